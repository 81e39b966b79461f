"""Runs of code as it is and as edited, by turns, to how much faster each edit makes it.

Runs of a round have in common what the machine does meanwhile. So whole runs are compared round by round: the
mean over rounds of the logarithm of their ratio, with Student's interval. Where runs are ended after their
first steps, the steps are compared as ``compare.speedup`` does. Of several edits, each is tried by itself,
then the best together. All of it happens in a temporary folder, and ends after a time.
"""

import _thread
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from profnb.capture.recording import Recording
from profnb.compare.estimates import UNKNOWN_SPREAD, Estimate, Spread, estimate_mean
from profnb.compare.quality import compare_metrics
from profnb.compare.speedup import ENOUGH_RUNS, Difference, RunSet, compare_runs, steady_step_times
from profnb.compare.trial_table import UNTRIED, Trial, promised_ratio
from profnb.core.columns import Floats
from profnb.core.errors import CaptureError
from profnb.core.safe_files import folder_prefix
from profnb.core.units import PS_PER_NS, bytes_text
from profnb.history.keeping import keep_trials
from profnb.history.series import find_spread
from profnb.profile import Profile
from profnb.steps.step_times import wall_step_times
from profnb.subjects.study import Study
from profnb.sweep import run_order

if TYPE_CHECKING:
    from profnb.edits.editing import Edit

_ONE_BY_ONE = 0.7  # of the time, where the best together are tried too
_MOST_FOLDER_BYTES = 1 << 28
_MOST_TRIAL_ROUNDS, _LEAST_ROUNDS, _NARROW = 30, 3, 0.02
_FEWEST_STEPS = 4
_TOO_LONG = "The code takes longer than there is time (--try-seconds), and has no steps to compare."


@dataclass(frozen=True, slots=True)
class TrialRun:
    """One run.

    Attributes:
        recording: What was seen of it.
        is_cut: Whether it was ended before its end.
    """

    recording: Recording
    is_cut: bool = False


# Runs the code with these sources changed, for so many seconds at most.
RunOnce = Callable[[Mapping[str, str], float], TrialRun]


@dataclass
class _Side:
    """The code as it is, or with an edit: its runs, and why there are no more."""

    sources: Mapping[str, str]
    runs: list[TrialRun] = field(default_factory=list)
    error: str = ""
    is_known: bool = False


def try_edits(
    edits: "Sequence[Edit]",
    run_once: RunOnce,
    seconds: float,
    study: Study | None = None,
    spread: Spread | None = None,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Trial]:
    """Run code as it is and with each edit by turns.

    Args:
        edits: The edits.
        run_once: Runs the code, and leaves nothing behind.
        seconds: How long to go on, about; the first edit gets two rounds in any case.
        study: The captured run, which knows which steps to compare; None where none is captured.
        spread: How much runs of this code vary, where past runs tell it.
        tell: Is told what is being tried.
        clock: Seconds.

    Returns:
        A trial per edit. One that failed, or was interrupted, says so and has no difference.
    """
    sides = [_Side({}), *(_Side(edit.sources) for edit in edits)]
    begin, limit = clock(), max(seconds / (2 * len(sides)), 1.0)
    order = run_order(len(sides), _MOST_TRIAL_ROUNDS)
    difference = partial(_compare, sides[0], study=study, spread=spread)
    try:
        for number in range(_MOST_TRIAL_ROUNDS if edits else 0):
            rows = [next(order) for _ in sides]
            for row in rows if number else range(len(sides)):
                side, took = sides[row], clock() - begin
                is_late = took > seconds and row > 1
                if side.is_known or side.error or sides[0].error or is_late:
                    continue
                what = "as it is" if row == 0 else edits[row - 1].change
                tell(f"trying: {what} · round {number + 1} · {took:.0f} of {seconds:.0f} s")
                try:
                    run = run_once(side.sources, limit)
                    if run.is_cut and len(run.recording.steps) < _FEWEST_STEPS and not number:
                        limit = max(seconds / 2, limit)
                        run = run_once(side.sources, limit)
                    side.runs.append(run)
                except CaptureError as error:
                    side.error = str(error)
            for side in sides[1:]:
                side.is_known = _is_known(difference(side), number + 1)
            is_over = all(side.is_known or side.error for side in sides[1:])
            if is_over or sides[0].error or (number and clock() - begin > seconds):
                break
    except KeyboardInterrupt:
        for side in sides:
            side.error = side.error or ("" if len(side.runs) > 1 else "It was interrupted.")
    tried = zip(edits, sides[1:], strict=True)
    return [_trial(edit, sides[0], side, difference(side)) for edit, side in tried]


def _is_known(one: Difference, rounds: int) -> bool:
    """Tell whether more rounds would say nothing new: the interval is a third of the gain, or very narrow.

    Nor would they where a run was ended before it had any step to compare.
    """
    is_narrow = one.high - one.low < max(abs(1 - one.ratio) / 3, _NARROW)
    return math.isnan(one.ratio) or (rounds >= _LEAST_ROUNDS and is_narrow)


def _trial(edit: "Edit", before: _Side, after: _Side, difference: Difference) -> Trial:
    row = Trial(edit.rule, edit.change, edit.alters, edit.diff, edit.sources)
    if before.error:
        return replace(row, error=f"The code as it is cannot be run again: {before.error}")
    if after.error:
        return replace(row, error=after.error)
    if not after.runs:
        return replace(row, error="No time was left (--try-seconds).")
    if math.isnan(difference.ratio):
        return replace(row, error=_TOO_LONG)
    fits = [[run.recording.fits for run in side.runs] for side in (before, after)]
    is_cut = any(run.is_cut for side in (before, after) for run in side.runs)
    return replace(
        row,
        difference=difference,
        reached=None if is_cut else next(iter(compare_metrics(*fits)), None),
        steps=sum(len(run.recording.steps) for run in after.runs),
        is_cut=is_cut,
    )


def _compare(before: _Side, after: _Side, study: Study | None, spread: Spread | None) -> Difference:
    rounds = min(len(before.runs), len(after.runs))
    if not rounds:
        return UNTRIED
    sides = before.runs[:rounds], after.runs[:rounds]
    if any(run.is_cut for side in sides for run in side):
        first, second = (RunSet("", tuple(_step_ps(run, study) for run in side)) for side in sides)
        return compare_runs(first, second, spreads=(UNKNOWN_SPREAD, UNKNOWN_SPREAD))
    first_ps, second_ps = ([run.recording.wall_ns * PS_PER_NS for run in side] for side in sides)
    return compare_rounds(first_ps, second_ps, spread)


def _step_ps(run: TrialRun, study: Study | None) -> Floats:
    times = wall_step_times(run.recording.steps)
    if study is None:
        return times.duration_ps[1:].astype(float)
    return steady_step_times(study, times)[0]


def compare_rounds(
    before: Sequence[float], after: Sequence[float], spread: Spread | None = None
) -> Difference:
    """Compare the wall times of whole runs, round by round; the first of several rounds warms up.

    Rounds of 10 and 5, 8 and 4 have a ratio of a half. Where there are few rounds, what past runs varied by
    counts too.
    """
    first = 1 if len(before) >= _LEAST_ROUNDS else 0
    logs = [math.log(b / a) for a, b in zip(before[first:], after[first:], strict=True)]
    estimate = estimate_mean(logs) if len(logs) > 1 else Estimate(logs[0], 0.0)
    if len(logs) < ENOUGH_RUNS:
        usual = spread or UNKNOWN_SPREAD
        estimate = replace(usual, variance=2 * usual.variance).widen(estimate, len(logs))
    low, high = map(math.exp, estimate.interval)
    runs = len(logs), len(logs)
    used = (spread or UNKNOWN_SPREAD) if len(logs) == 1 else None
    return Difference(math.exp(estimate.mean), low, high, math.nan, runs, (0, 0), used)


def try_for(
    profile: Profile,
    edits: "Sequence[Edit]",
    sources: Mapping[str, str],
    run_once: RunOnce,
    seconds: float,
    tell: Callable[[str], None],
) -> list[Trial]:
    """Try edits of the sources that a profile is of one by one, then those together that made it faster.

    Beside each trial stands what its advice promised, of whole runs, where the change is new, or of steps;
    what came of it is kept in the history.

    Args:
        profile: The captured run, with the advice that promised something of its time.
        edits: What to try, in order.
        sources: The texts that the edits are of.
        run_once: See ``try_edits``.
        seconds: How long to go on, about.
        tell: Is told what is being tried.
    """
    from profnb.edits.editing import join

    study, spread = profile.study if profile.has_trace else None, find_spread(profile)
    share = _ONE_BY_ONE if len(edits) > 1 else 1.0
    trials = try_edits(edits, run_once, share * seconds, study, spread, tell)
    meant = {edit.rule for edit in edits if edit.is_as_advised}
    promises = {one.rule: one for one in profile.advice if one.rule in meant}
    for at, trial in enumerate(trials):
        if (one := promises.get(trial.rule)) is not None:
            once_ms = (0.0, 0.0) if trial.is_cut else one.once_ms
            promised = promised_ratio(one.saves_ms, one.wall_ms, once_ms)
            trials[at] = replace(trial, promised=promised)
    best = [edit for edit, trial in zip(edits, trials, strict=True) if trial.is_faster]
    joined = join(best, sources) if len(best) > 1 else None
    if joined is not None and not any("interrupted" in trial.error for trial in trials):
        trials += try_edits([joined], run_once, (1 - share) * seconds, study, spread, tell)
    keep_trials(profile, trials)
    return trials


def declined(reason: str, edit: "Edit | None" = None) -> Trial:
    """A trial that was not made, and why."""
    if edit is None:
        return Trial("", "nothing was tried", "nothing", "", error=reason)
    return Trial(edit.rule, edit.change, edit.alters, edit.diff, error=reason)


@contextmanager
def working_elsewhere(needed: Sequence[Path]) -> Iterator[Path]:
    """Work in a temporary folder inside the block, with copies of what is needed there.

    Raises:
        CaptureError: That is too large to copy.
    """
    files = [file for path in needed for file in (path, *path.rglob("*")) if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if size > _MOST_FOLDER_BYTES:
        raise CaptureError(
            f"The code writes files, and reads {bytes_text(size)} of its folder: too much to copy. Move the "
            "data elsewhere."
        )
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix=folder_prefix(), ignore_cleanup_errors=True) as name:
        for path in needed:
            copy = partial(shutil.copytree, symlinks=True) if path.is_dir() else shutil.copy2
            copy(path, Path(name) / path.name)
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


@contextmanager
def cut_after(seconds: float) -> Iterator[threading.Event]:
    """Interrupt the block, as a user would, after so many seconds; the event set tells it from a real one."""
    cut, lock, is_open = threading.Event(), threading.Lock(), True

    def end() -> None:
        with lock:
            if is_open:
                cut.set()
                _thread.interrupt_main()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    try:
        timer.start()
        yield cut
        with lock:
            is_open = False
    except KeyboardInterrupt:
        if not cut.is_set():
            raise
    finally:
        is_open = False
        timer.cancel()
