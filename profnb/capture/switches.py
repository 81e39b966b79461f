"""Settings that a sweep changes around a cell which does not read them itself.

``mixed_precision`` sets Keras' global policy, ``jit_compile`` and ``steps_per_execution`` become the
defaults of ``Model.compile``, ``prefetch`` is put behind the dataset that ``fit`` is given. All of it ends
with the run.

The numbers of threads cannot change once TensorFlow runs, nor Keras' backend once Keras is imported, so
those need a fresh Python process: ``profnb.sweep_process``. It takes a job file, runs the body in an IPython
shell of its own, and leaves the trace and what was seen in a folder. The cell must import and make all it
needs.
"""

import ast
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import on_import, replace_attribute
from profnb.core.errors import CaptureError
from profnb.core.options import CaptureOptions

THREADS = ("intra_op_threads", "inter_op_threads")
_OF_COMPILE = ("jit_compile", "steps_per_execution")
BACKEND = "backend"
FRESH = (*THREADS, BACKEND)  # those that hold for a whole process
SWITCHES = ("mixed_precision", "prefetch", *_OF_COMPILE, *FRESH)
_KERAS_BACKEND = "KERAS_BACKEND"
_MIXED_PRECISION, _FULL_PRECISION = "mixed_float16", "float32"
_BACKEND_PACKAGES = {  # of Keras' backends: their names, and what of profnb's brings them
    "tensorflow": ("TensorFlow", "profnb[cpu]' (or 'profnb[tensorflow]' for a GPU)"),
    "jax": ("JAX", "profnb[jax]'"),
    "torch": ("PyTorch", "profnb[torch]'"),
}


def switches_of(setting: Mapping[str, object], read: AbstractSet[str]) -> dict[str, object]:
    """Pick the settings to apply around a cell: known switches that it does not read itself."""
    return {
        name: value
        for name, value in setting.items()
        if name in SWITCHES and name not in FRESH and name not in read
    }


@contextmanager
def switched(values: Mapping[str, object]) -> Iterator[set[str]]:
    """Run the block with these settings, also where it imports Keras itself.

    Yields:
        The names of those that took effect, when the block is over: what the code gives explicitly stays,
        there may be no ``compile`` and no dataset to change, or not what changes them (see ``seams``).

    Args:
        values: Names of ``SWITCHES``, without those of threads, to values.
    """
    applied: set[str] = set()
    with ExitStack() as stack:

        def imported(name: str) -> None:
            keras = sys.modules[name]
            if seams.MODEL.find(keras) is not None:
                _apply(stack, keras, values, applied)

        hooks = {name: functools.partial(imported, name) for name in seams.KERAS_LIBRARIES}
        stack.enter_context(on_import(hooks))
        yield applied


def _apply(stack: ExitStack, keras: Any, values: Mapping[str, object], applied: set[str]) -> None:
    wanted = (seams.MODEL, seams.COMPILE, seams.FIT)
    model, compile_model, fit = (seam.find(keras) for seam in wanted)
    defaults = {name: values[name] for name in _OF_COMPILE if name in values}
    if defaults and compile_model is not None:

        @functools.wraps(compile_model)
        def compile_with_defaults(model: Any, *arguments: Any, **keywords: Any) -> Any:
            applied.update(defaults.keys() - keywords.keys())  # what is given explicitly stays
            return compile_model(model, *arguments, **{**defaults, **keywords})

        stack.enter_context(replace_attribute(model, "compile", compile_with_defaults))
    if "prefetch" in values and fit is not None and seams.DATASET.find() is not None:

        @functools.wraps(fit)
        def fit_with_prefetch(model: Any, x: Any = None, *arguments: Any, **keywords: Any) -> Any:
            if isinstance(x, seams.DATASET.find()):  # other data stays as it is
                x = x.prefetch(values["prefetch"]) if values["prefetch"] else x
                applied.add("prefetch")
            return fit(model, x, *arguments, **keywords)

        stack.enter_context(replace_attribute(model, "fit", fit_with_prefetch))
    set_policy, policy_now = seams.SET_POLICY.find(keras), seams.POLICY.find(keras)
    if "mixed_precision" in values and set_policy is not None and policy_now is not None:
        asked = values["mixed_precision"]
        policy = asked if isinstance(asked, str) else _MIXED_PRECISION if asked else _FULL_PRECISION
        stack.callback(set_policy, policy_now())
        set_policy(policy)
        applied.add("mixed_precision")


def set_backend(name: object) -> None:
    """Have Keras run on a backend ("tensorflow", "jax" or "torch") in this process, before it is imported."""
    os.environ[_KERAS_BACKEND] = str(name)


def missing_backend(name: object) -> str:
    """Say how to install a backend that is not here; "" if it is, or is none that we know."""
    title, extra = _BACKEND_PACKAGES.get(str(name), ("", ""))
    if not title or importlib.util.find_spec(str(name)) is not None:
        return ""
    return f"{title} is not installed here: pip install '{extra}, then run the cell again."


@contextmanager
def set_threads(values: Mapping[str, object]) -> Iterator[set[str]]:
    """Give TensorFlow these numbers of threads as soon as the block imports it.

    Yields:
        The names of those that it was given, when the block is over.

    Args:
        values: ``intra_op_threads`` and ``inter_op_threads``, or one of them.
    """
    applied: set[str] = set()

    def imported() -> None:
        threading = seams.THREADING.find()
        for name, count in values.items():
            kind = name.removesuffix("_threads")
            set_count = getattr(threading, f"set_{kind}_parallelism_threads", None)
            if set_count is not None:
                set_count(count)
                applied.add(name)

    with on_import({"tensorflow": imported}):
        yield applied


JOB, ERROR = "job.json", "error.txt"
_ESCAPES = re.compile(r"\x1b\[[\d;]*m")


def run_fresh(
    body: str,
    setting: Mapping[str, object],
    folder: Path,
    options: CaptureOptions,
    *,
    traces: bool,
) -> None:
    """Run a body in a process of its own.

    Args:
        body: Python and magics, as in a cell.
        setting: Names to bind before it runs, and known switches; plain values.
        folder: An empty folder that takes the results.
        options: What to record.
        traces: Whether to record a trace; without one, steps are only timed.

    Raises:
        CaptureError: The body failed; the message has its error.
        KeyboardInterrupt: The process was stopped with us.
    """
    job = {
        "body": body,
        "setting": repr(dict(setting)),
        "options": {**asdict(options), "logdir": None},
        "traces": traces,
    }
    (folder / JOB).write_text(json.dumps(job), encoding="utf-8")
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(  # noqa: S603 - our own module, by this Python
        [sys.executable, "-m", "profnb.sweep_process", str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    if done.returncode:
        raise CaptureError(_failure(folder, done))


def _failure(folder: Path, done: "subprocess.CompletedProcess[str]") -> str:
    """Say why the body's process failed: by the body's own error, else by the last line that it printed."""
    if (folder / ERROR).exists():
        error = (folder / ERROR).read_text(encoding="utf-8")
        if error.startswith("NameError"):
            return (
                "The cell ran in a fresh process, so the cell must import and make everything "
                f"anew.\n{error}"
            )
        return error
    printed = _ESCAPES.sub("", done.stderr.strip() or done.stdout.strip()).splitlines()
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
    last = printed[-1] if printed else "It printed nothing."
    return f"The cell's fresh process ended with {ended}.\n{last}"


def read_job(folder: Path) -> tuple[str, dict[str, object], CaptureOptions, bool]:
    """Read the body, the setting, the options and whether to trace, as ``run_fresh`` wrote them."""
    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    setting: dict[str, object] = ast.literal_eval(job["setting"])
    return job["body"], setting, CaptureOptions(**job["options"]), bool(job["traces"])
