"""A cell's body in a fresh Python process, captured: for settings that hold for a whole process.

The process is ``profnb.sweep_process``; it takes a job file, runs the body in an IPython shell of its own,
and leaves the trace and what was seen in a folder. The cell must import and make all it needs.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from profnb.core.errors import CaptureError
from profnb.core.options import CaptureOptions

JOB, ERROR = "job.json", "error.txt"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


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
    paths = [path for path in sys.path if path]
    done = subprocess.run(  # noqa: S603 - our own module, by this Python
        [sys.executable, "-m", "profnb.sweep_process", str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    if done.returncode:
        raise CaptureError(_failure(folder, done))


def _failure(folder: Path, done: "subprocess.CompletedProcess[str]") -> str:
    """Why the body's process failed: by the body's own error, else by the last line that it printed."""
    if (folder / ERROR).exists():
        error = (folder / ERROR).read_text(encoding="utf-8")
        if error.startswith("NameError"):
            return f"The cell ran in a fresh process, so it must import and make all it uses itself.\n{error}"
        return error
    printed = _COLOURS.sub("", done.stderr.strip() or done.stdout.strip()).splitlines()
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
    last = printed[-1] if printed else "It printed nothing."
    return f"The cell's fresh process ended with {ended}.\n{last}"


def read_job(folder: Path) -> tuple[str, dict[str, object], CaptureOptions, bool]:
    """The body, the setting, the options and whether to trace, as ``run_fresh`` wrote them."""
    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    setting: dict[str, object] = ast.literal_eval(job["setting"])
    return job["body"], setting, CaptureOptions(**job["options"]), bool(job["traces"])
