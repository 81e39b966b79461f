"""Real programs as tests/data/record_programs.py recorded them: their profile, and what the clock said of them.

A test that is about times reads them here, where they are always the same.
"""

import functools
import json
import lzma
import shutil
import tempfile
from pathlib import Path

import profnb

FOLDER = Path(__file__).parent / "data" / "programs"
FACTS = json.loads((FOLDER / "programs.json").read_text())


@functools.cache
def program(name):
    """The profile of a recorded program."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "host.xplane.pb"
        trace.write_bytes(lzma.decompress((FOLDER / f"{name}.xplane.pb.xz").read_bytes()))
        beside = FOLDER / f"{name}.profnb.json.gz"
        if beside.exists():
            shutil.copy(beside, trace.with_name("host.profnb.json.gz"))
        return profnb.load(trace)


def rules(profile):
    """The advice on a profile, by rule."""
    return {advice.rule: advice for advice in profile.advice}
