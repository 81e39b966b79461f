"""Real programs as they were recorded: their profile, and what the clock said of them.

A test that is about times reads them here, where they are always the same. tests/data/record_programs.py recorded
the ones, ``python tests/advice/diagnosis.py --keep`` the programs of the diagnosis benchmark.
"""

import functools
import json
import lzma
import tempfile
from pathlib import Path

import profnb
from profnb.capture.saved.sidecar import sidecar_of

FOLDER = Path(__file__).parent / "data" / "programs"
FACTS = json.loads((FOLDER / "programs.json").read_text())
# What a capture leaves in a logdir: of TensorFlow and JAX, of PyTorch, of session runs.
TRACES = (".xplane.pb", ".pt.trace.json", ".run_metadata.pb.gz")
_BESIDE, _PACKED = ".profnb.json.gz", ".xz"


def traces_in(logdir):
    return [file for file in sorted(Path(logdir).rglob("*")) if file.name.endswith(TRACES)]


def keep(trace, folder, name):
    """Put a trace file and what stands beside it into a folder, as small as can be."""
    folder.mkdir(parents=True, exist_ok=True)
    (ending,) = (one for one in TRACES if trace.name.endswith(one))
    (folder / f"{name}{ending}{_PACKED}").write_bytes(lzma.compress(trace.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    if sidecar_of(trace).exists():
        (folder / f"{name}{_BESIDE}").write_bytes(sidecar_of(trace).read_bytes())


def _kept(folder, name):
    return [(file, ending) for ending in TRACES if (file := folder / f"{name}{ending}{_PACKED}").exists()]


def is_kept(folder, name):
    """Whether there is a trace of a program."""
    return bool(_kept(folder, name))


def load(folder, name):
    """The profile of a program that was kept."""
    ((file, ending),) = _kept(folder, name)
    with tempfile.TemporaryDirectory() as temporary:
        trace = Path(temporary) / f"host{ending}"
        trace.write_bytes(lzma.decompress(file.read_bytes()))
        beside = folder / f"{name}{_BESIDE}"
        if beside.exists():
            sidecar_of(trace).write_bytes(beside.read_bytes())
        return profnb.load(trace)


@functools.cache
def program(name):
    """The profile of a recorded program."""
    return load(FOLDER, name)


def rules(profile):
    """The advice on a profile, by rule."""
    return {advice.rule: advice for advice in profile.advice}
