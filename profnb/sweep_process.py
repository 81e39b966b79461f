"""`python -m profnb.sweep_process FOLDER`: a sweep's run in its own process; see ``capture.switches``."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profnb.capture import switches
from profnb.capture.cell import names_of
from profnb.capture.saved.sidecar import write_recordings
from profnb.capture.seams import FAILED_BEFORE, FAILED_INSIDE, SUCCESS
from profnb.capture.session import Capture
from profnb.captured import CapturedProfile

# There is no such file; what was seen stands beside where it would be.
UNTRACED = "untraced.xplane.pb"
WITHOUT_EFFECT = "without_effect.json"  # the switches that changed nothing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job of a folder.

    Returns:
        0; 1 if the body failed, whose error is then in a file of the folder.
    """
    from IPython.core.interactiveshell import InteractiveShell

    (folder,) = map(Path, sys.argv[1:] if arguments is None else arguments)
    body, setting, options, traces = switches.read_job(folder)
    shell = InteractiveShell.instance()
    shell.user_ns.update(setting)
    threads = {name: value for name, value in setting.items() if name in switches.THREADS}
    if switches.BACKEND in setting:
        switches.set_backend(setting[switches.BACKEND])
    # What a profiler writes stays as it is, in the format that it has: XPlane, or PyTorch's JSON.
    captured = CapturedProfile(replace(options, logdir=str(folder)))
    capture = None if traces else Capture(options, traces=False)
    asked = switches.switches_of(setting, names_of(shell, body)[0])
    with switches.set_threads(threads) as given, switches.switched(asked) as applied:
        (capture or captured).start()
        result = shell.run_cell(body)
    failed = FAILED_INSIDE.of(result) or FAILED_BEFORE.of(result)
    succeeded = SUCCESS.of(result, default=failed is None)
    if failed is not None:
        text = f"{type(failed).__name__}: {' '.join(str(failed).split())}".removesuffix(": ")
        _say(folder, text)
    idle = sorted({*asked, *threads} - applied - given)
    (folder / WITHOUT_EFFECT).write_text(json.dumps(idle), encoding="utf-8")
    if capture is not None:
        write_recordings(folder / UNTRACED, options, [capture.finish()])
        capture.journal.remove()
    else:
        profile = captured.finish(shell.user_ns)
        if profile.has_trace and profile.recordings[0].path is None:  # runs of TF1's sessions
            profile.save(folder)
        elif not profile.has_trace and succeeded:
            _say(folder, " ".join(profile.notes))
            return 1
    return 0 if succeeded else 1


def _say(folder: Path, error: str) -> None:
    """Tell the process that asked for this one why there is no result."""
    (folder / switches.ERROR).write_text(error, encoding="utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(main())
