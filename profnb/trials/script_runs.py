"""A script's advice tried: the script as it is and as edited by turns, each time in a fresh process."""

import linecache
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.saved.sidecar import read_recordings
from profnb.capture.switches import run_fresh
from profnb.compare.trial_section import trials_text
from profnb.compare.trial_table import Trial
from profnb.core.parsing import parse_again
from profnb.core.safe_files import folder_prefix
from profnb.core.units import NS_PER_S
from profnb.profile import Profile
from profnb.report.progress import LiveLine, Output
from profnb.sweep_process import UNTRACED
from profnb.trials.alternating import TrialRun, cut_after, declined, try_for, working_elsewhere
from profnb.trials.cell_reads import CodeReads, existing_places

if TYPE_CHECKING:
    from profnb.edits.editing import Edit


def try_script(
    profile: Profile,
    count: int,
    seconds: float,
    *,
    words: Sequence[str],
    anyway: bool = False,
    edits: "Sequence[Edit] | None" = None,
    is_module: bool = False,
    names: Mapping[str, object] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Trial]:
    """Try the advice on a script that has run.

    Args:
        profile: Its profile.
        count: How many edits to try one by one.
        seconds: How long to go on, about.
        words: The script and its arguments.
        anyway: Whether to try one that writes outside of its working folder, too.
        edits: What to try; by default the edits of its advice.
        is_module: Whether it is no script, but a module.
        names: The global names that it left.
        tell: Is told what is being tried.
    """
    if is_module:
        return [declined("A module's advice cannot be tried; a script's can.")]
    file = str(Path.cwd() / words[0])
    text = Path(file).read_text(encoding="utf-8")
    reads = CodeReads(parse_again(text), {}, ())
    if refusal := "" if anyway else next(reads.refusals(), ""):
        return [declined(refusal.replace("The cell", "The script"))]
    sources = {file: text}
    if edits is None:
        from profnb.edits.editing import find_edits

        edits = find_edits(profile.advice, sources, names or {})
    if not edits:
        none = "No advice has a safe edit for this script. Edit by hand, then profile again."
        return [declined(none)]
    needed = None if reads.places is None else existing_places(reads.places, Path.cwd())

    def run_once(changed: Mapping[str, str], limit_s: float) -> TrialRun:
        """Run it in a process of its own; where it writes files, in a temporary folder with what it needs."""
        given = file, list(words), changed.get(file, text), limit_s
        body = f"from profnb.trials.script_runs import run_here\nrun_here(globals(), *{given!r})"
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=folder_prefix()))
            if needed is not None:
                stack.enter_context(working_elsewhere(needed))
            run_fresh(body, {}, Path(folder), profile.options, traces=False)
            recording = read_recordings(Path(folder) / UNTRACED)[1][0]
        return TrialRun(recording, is_cut=recording.wall_ns >= limit_s * NS_PER_S)

    return try_for(profile, edits[:count], sources, run_once, seconds, tell)


def try_in_terminal(
    profile: Profile, arguments: Namespace, names: Mapping[str, object], slot: Output | None
) -> str:
    """Try a script's advice as a line of the terminal asks, and give what came of it as text."""
    now = ["trying"]
    with closing(LiveLine(lambda: f"profnb: {now[0]}", is_wanted=False, slot=slot)) as line:
        line.start()
        profile.trying = partial(
            try_script,
            words=arguments.program,
            is_module=arguments.module,
            names=names,
            tell=partial(now.__setitem__, 0),
        )
        seconds, anyway = arguments.try_seconds, arguments.try_anyway
        profile.try_advice(arguments.tries, seconds=seconds, anyway=anyway)
    return trials_text(profile.tried)


def run_here(
    namespace: dict[str, Any], file: str, words: Sequence[str], text: str, seconds: float
) -> None:
    """Run a script's text as Python runs the file, for so many seconds at most."""
    sys.argv = list(words)
    sys.path.insert(0, str(Path(file).parent))
    namespace["__file__"] = file
    # Whoever reads the source of a function, as AutoGraph does, reads the text that runs.
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    try:
        with cut_after(seconds):
            exec(compile(text, file, "exec", dont_inherit=True), namespace)  # noqa: S102 - likewise
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
