"""A Profile to its row in the history, at the end of a cell, a block or a program.

What has been worked out already is kept: a cell's report has the steady steps, the whole tree, the advice.
Of a block, whose answers nobody has asked for yet, the clock's steps and the parts that the capture saw are.
No source, host or user is, and no path but that of a trace which the user has kept.
"""

import atexit
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import exp, isfinite, nan
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import numpy as np

from profnb.capture.environment import CORES
from profnb.capture.recording import Recording
from profnb.capture.step_records import TRAIN
from profnb.causes.cell_tree import grow_tree
from profnb.compare.estimates import Estimate, estimate_mean
from profnb.compare.speedup import ENOUGH_UNTRACED, block_medians, estimate_step, pick_steps
from profnb.compare.tree_differences import Tree, tree_rows
from profnb.compare.trial_table import Trial
from profnb.core.columns import Floats
from profnb.core.units import PS_PER_MS
from profnb.history.identity import ask_git, await_git, describe_machine, find_commit
from profnb.history.place import history_file
from profnb.history.store import HistoryError, Run, add_to_run, write_run
from profnb.profile import Profile
from profnb.report.text import headline_text
from profnb.steps.step_times import wall_step_times
from profnb.subjects.system.machine_use import find_machine_use

# When to ask git, how long to wait for it, and how long at the program's end.
_LATER_S, _GIT_PATIENCE_S, _AT_EXIT_S = 1.0, 5.0, 0.5


def keep_run(profile: Profile, code: str) -> str:
    """Keep a run, or what is known now of one that is kept; trouble is a sentence, and no more.

    Args:
        profile: The run, when it is over.
        code: What ``identity`` calls its code; "" for none, which is not kept.

    Returns:
        What the user should know, or "".
    """
    path = history_file()
    if path is None or profile.recording is None or not code:
        return ""
    profile.code = code
    try:
        run = run_of(profile)
        remark = write_run(path, run)
        if run.commit:
            _look_for_edits(path, run.key)
    except HistoryError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
        return f"This run was not kept in the history ({type(error).__name__}: {str(error)[:200]})."
    return remark


def run_of(profile: Profile) -> Run:
    """Give the row of a profile whose code is over."""
    profile.run_key = profile.run_key or uuid4().hex
    share, recording = profile.sharing.text, profile.recordings[0]
    versions = {name: one for name, one in profile.environment.items() if name != CORES}
    answers: dict[str, Any] = {}
    settings: dict[str, Any] = {"clock": not is_studied(profile)}
    if not is_studied(profile):
        times, settings["traced"] = _clocked(profile.recordings)
    else:
        study, summary = profile.study, profile.study.summary
        times = [steps for steps, _ in profile.steady_step_times]
        settings["traced"] = all(traced for _, traced in profile.steady_step_times)
        settings |= {"batch_size": summary.batch_size, "steps_per_execution": summary.iterations}
        if "hlo" in vars(study.xla):
            settings["jit"] = len(study.xla.hlo) > 0
        answers = {
            "examples_per_second": summary.examples_per_second or nan,
            "peak_bytes": max((float(use.peak_bytes) for use in study.memory.use), default=nan),
            "headline": share(headline_text(study)),
            "advice": [[one.rule, *np.round(one.saves_ms, 3).tolist()] for one in profile.advice],
        }
    estimate = _estimate(times)
    logs = (estimate.mean, *estimate.interval)
    median_ms, low_ms, high_ms = (exp(log) / PS_PER_MS for log in logs)
    return Run(
        key=profile.run_key,
        when=time.time(),
        cell=profile.code,
        label=share(profile.options.label or ""),
        commit=_commit_here(),
        machine=describe_machine(recording.machine),
        versions=json.dumps(versions, sort_keys=True),
        settings=json.dumps(settings, sort_keys=True),
        runs=len(profile.recordings),
        steps=sum(map(len, times)),
        cell_steps=_count_steps(recording),
        median_ms=median_ms,
        low_ms=low_ms,
        high_ms=high_ms,
        wall_ms=float(np.mean(profile.run_ps)) / PS_PER_MS if len(profile.run_ps) else nan,
        others=_others(recording),
        trace=_kept_trace(profile),
        trials=trial_rows(profile.tried),
        tree=[[*node[:2], share(node[2]), *node[3:]] for node in _tree(profile)],
        **answers,
    )


def keep_trials(profile: Profile, trials: Sequence[Trial]) -> None:
    """Add trials to a run that is kept already; of one that is not, ``keep_run`` keeps them."""
    path = history_file()
    if path is not None and profile.run_key:
        with suppress(HistoryError):  # said where runs are kept
            add_to_run(path, profile.run_key, "trials", trial_rows(trials))


def trial_rows(trials: Sequence[Trial]) -> list[list[Any]]:
    """Give the numbers of trials that have a result, as they are kept."""
    rows = []
    for trial in trials:
        one = trial.difference
        numbers = (one.ratio, one.low, one.high, *trial.promised)
        kept = [round(number, 5) if isfinite(number) else None for number in numbers]
        rows += [[trial.rule, *kept]] if trial.has_result else []
    return rows


def is_studied(profile: Profile) -> bool:
    """Tell whether somebody has asked for its answers, so that they cost nothing any more."""
    return profile.has_trace and "study" in vars(profile)


def _estimate(runs: Sequence[Floats]) -> Estimate:
    """Estimate the logarithm of the typical step: of one run by blocks of its steps, else by its runs."""
    measured = [steps for steps in runs if len(steps)]
    if len(measured) != 1:
        return estimate_step(measured)
    blocks, whole = np.maximum(block_medians(measured[0]), 1.0), np.median(measured[0])
    return replace(estimate_mean(np.log(blocks).tolist()), mean=float(np.log(max(whole, 1.0))))


def _main_phase(phases: Sequence[str]) -> str:
    return TRAIN if TRAIN in phases else next(iter(phases), "")


def _count_steps(recording: Recording) -> int:
    """Count the steps of the main phase: a callback that predicts has steps of its own."""
    phases = wall_step_times(recording.steps).phase
    return phases.count(_main_phase(phases))


def _clocked(recordings: Sequence[Recording]) -> tuple[list[Floats], bool]:
    """The times from step to step by the clock alone, for each run; whether they were traced."""
    runs = []
    for recording in recordings:
        steps = wall_step_times(recording.steps)
        period, chosen, _ = pick_steps(steps, _main_phase(steps.phase), 1)
        untraced = chosen & ~steps.was_traced
        is_untraced = untraced.sum() >= ENOUGH_UNTRACED
        runs.append((period[untraced if is_untraced else chosen], is_untraced))
    untraced_runs = [steps for steps, is_untraced in runs if is_untraced]
    return untraced_runs or [runs[0][0]], not untraced_runs


def _tree(profile: Profile) -> Tree:
    recording = profile.recordings[0]
    tree = profile.tree if is_studied(profile) else grow_tree(recording.cell, None)
    return () if tree is None else tree_rows(tree)


def _others(recording: Recording) -> float:
    """Share of all cores that other programs took."""
    use = find_machine_use(recording.machine)
    host = use.sources[0] if use is not None and use.sources else None
    if host is None:
        return nan
    others = host.utilization - host.process
    return float(np.nanmean(others)) if np.isfinite(others).any() else nan


def _kept_trace(profile: Profile) -> str:
    path = profile.recordings[0].path
    is_kept = profile.options.logdir is not None and path is not None and path.exists()
    return str(path.absolute()) if is_kept and path is not None else ""


def _commit_here() -> str:
    with suppress(OSError):  # the folder is gone
        return find_commit(Path.cwd())
    return ""


def _look_for_edits(path: Path, key: str) -> None:
    """Add to a run whether files differ from its commit: a moment later, or when the program ends."""
    folder = Path.cwd()

    def add(patience_s: float) -> None:
        asked = ask_git(folder)
        is_dirty = None if asked is None else await_git(asked, patience_s)
        with suppress(HistoryError):
            add_to_run(path, key, "is_dirty", is_dirty)

    def at_exit() -> None:
        if not later.finished.is_set():
            later.cancel()
            add(_AT_EXIT_S)

    # To start a process holds up all threads for a while.
    later = Timer(_LATER_S, add, [_GIT_PATIENCE_S])
    later.name, later.daemon = "profnb git", True
    later.start()
    atexit.register(at_exit)
