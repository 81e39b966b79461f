"""Rows of the history to series of runs that may be compared, where each changed, and how its runs vary.

A series is of one code (or label, where the user gave one), machine, versions and settings. Two times are
followed: the typical step, and the wall time of runs with as many steps. A run beside which other programs
took a fifth of the cores more than usual is left aside: it neither raises an alarm nor counts against later
ones.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from profnb.compare.estimates import OTHER_CODE, THIS_CODE, Spread, student_factor
from profnb.core.columns import Floats, group
from profnb.core.table import Table, columns_in
from profnb.core.units import NS_PER_S
from profnb.history.change_points import Change, find_changes
from profnb.history.identity import describe_machine
from profnb.history.place import history_file, wanted_file
from profnb.history.store import HistoryError, Run, read_runs
from profnb.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

STEP, CELL = "step", "cell"
# What is followed: what it is called, its time, and of which runs: the whole time of runs with as many steps.
FOLLOWED: dict[str, tuple[str, Callable[[Run], float], Callable[[Run], int]]] = {
    STEP: ("typical step", attrgetter("median_ms"), lambda _: 0),
    CELL: ("whole cell", attrgetter("wall_ms"), attrgetter("cell_steps")),
}
_MUCH = 0.2  # of all cores
_NEWS = 10  # runs for which a change is news
_FEWEST, _FEWEST_CODES, _FREEDOM_OF_OTHERS, _CAUTIOUS, _RARE = 2, 4, 3, 80, 0.75  # by simulation
_KEPT = ("rule", "ratio", "interval_low", "interval_high", "promised_low", "promised_high", "when")
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run among others.

    Attributes:
        run: The run.
        series: The number of its series.
        is_aside: Whether other programs kept the machine so busy that it doesn't count.
        change: The change that it is the first run of; None for none.
        of: What changed: "step" or "cell"; "" for nothing.
        behind: How many runs that count follow it in its series.
    """

    run: Run
    series: int
    is_aside: bool = False
    change: Change | None = None
    of: str = ""
    behind: int = 0

    @property
    def is_change(self) -> bool:
        """True if its series changed with it."""
        return self.change is not None

    @property
    def change_ratio(self) -> float:
        """Time since over that before; NaN where nothing changed."""
        return nan if self.change is None else self.change.ratio

    @property
    def is_alarm(self) -> bool:
        """True if the code has been slower since, and that is news."""
        return self.change_ratio > 1 and self.behind < _NEWS


def list_runs(runs: Sequence[Run]) -> list[ListedRun]:
    """Divide runs, the oldest first, into series, and mark where each changed."""
    listed: dict[int, ListedRun] = {}
    for number, rows in enumerate(_rows_by_series(runs).values(), start=1):
        shares = [runs[at].others for at in rows if not isnan(runs[at].others)]
        usual = float(np.median(shares)) if shares else 0.0
        aside = {at for at in rows if runs[at].others > usual + _MUCH}
        for at in rows:
            listed[at] = ListedRun(runs[at], number, is_aside=at in aside)
        counted = [at for at in rows if at not in aside]
        for of, (_, time_of, count_of) in FOLLOWED.items():
            groups = group((count_of(runs[at]), at) for at in counted if time_of(runs[at]) > 0)
            for chosen in groups.values():
                changes = find_changes([time_of(runs[at]) for at in chosen])
                for change in changes:
                    row, behind = chosen[change.at], len(chosen) - 1 - change.found_at
                    if not _is_near(listed, counted, row):
                        behind = behind if change is changes[-1] else _NEWS  # else it is over
                        listed[row] = replace(listed[row], change=change, of=of, behind=behind)
    return [listed[at] for at in range(len(runs))]


def _is_near(listed: Mapping[int, ListedRun], rows: Sequence[int], row: int) -> bool:
    """True if a change at this run or close by is marked, which this one only repeats."""
    place = rows.index(row)
    return any(listed[at].change is not None for at in rows[max(place - 4, 0) : place + 5])


def _rows_by_series(runs: Sequence[Run]) -> dict[Key, list[int]]:
    return group(
        ((run.label, "" if run.label else run.cell, run.machine, run.versions, run.settings), at)
        for at, run in enumerate(runs)
    )


def spread_of_runs(runs: Sequence[Run], code: str, label: str, machine: str = "") -> Spread | None:
    """Tell how much the typical step varies from run to run, as the logarithm's variance.

    Args:
        runs: The history.
        code: The cell's code.
        label: Its label; "" for none.
        machine: The hardware; "" for any.

    Returns:
        That of this code where three runs or more tell it, else that of other code on this machine: what four
        in five of four or more others stay below; None where nothing tells it.
    """
    of_code: list[list[Floats]] = []
    of_others: list[list[Floats]] = []
    here = [run for run in runs if machine in ("", run.machine)]
    for rows in _rows_by_series(here).values():
        series = [here[at] for at in rows if 0 < here[at].median_ms < inf]
        if not series:
            continue
        first = series[0]
        is_code = first.label == label if label else bool(code) and first.cell == code
        (of_code if is_code else of_others).append(_stretches(series))
    variance, freedom = _variance([part for parts in of_code for part in parts], _RARE)
    if freedom:
        return Spread(variance, freedom, THIS_CODE)
    variances = [variance for variance, freedom in map(_variance, of_others) if freedom]
    if len(variances) < _FEWEST_CODES:
        return None
    return Spread(float(np.percentile(variances, _CAUTIOUS)), _FREEDOM_OF_OTHERS, OTHER_CODE)


def _stretches(series: Sequence[Run]) -> list[Floats]:
    """Logarithms of the typical steps, cut where they changed with the code or the commit.

    A shift without an edit is how runs vary: what else ran on the machine made it.
    """
    times = [run.median_ms for run in series]
    edits = [
        change.at
        for change in find_changes(times)
        if len({(run.cell, run.commit) for run in series[change.at - 2 : change.at + 2]}) > 1
    ]
    return np.split(np.log(times), edits)


def _variance(stretches: Sequence[Floats], rare: float = 0.0) -> tuple[float, int]:
    """Pool the variance of stretches, and its freedom; 95 of 100 pairs of runs are no further apart.

    Among few runs the pairs that are rarely so far apart may be missing: a ``rare`` part of one run
    is taken for missing, so that with 0.75 it is 99 of 100 pairs of twenty runs, and all of ten.
    """
    freedom = sum(part.size - 1 for part in stretches)
    if freedom < _FEWEST:
        return nan, 0
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in stretches)
    pairs = [np.abs(part[:, None] - part)[np.triu_indices(part.size, 1)] for part in stretches]
    share = min(0.95 + rare / (freedom + 1), 1.0)
    reach = float(np.quantile(np.concatenate(pairs), share)) / student_factor([1.0], [freedom])
    return max(squares / freedom, reach**2 / 2), freedom


def as_dates(seconds: Sequence[float]) -> "pd.DatetimeIndex":
    """Give times since 1970 as dates of pandas, UTC."""
    import pandas as pd

    return pd.to_datetime(np.asarray(seconds, np.float64) * NS_PER_S, unit="ns", utc=True)


def find_spread(profile: Profile) -> Spread | None:
    """Find how much runs of a profile's code vary on this machine; None where nothing tells it.

    Of a trace of another program nobody knows where it ran.
    """
    path = history_file()
    if path is None or not profile.ran_here or profile.recording is None:
        return None
    machine = describe_machine(profile.recording.machine)
    with suppress(HistoryError):  # said where runs are kept
        return spread_of_runs(read_runs(path), profile.code, profile.options.label or "", machine)
    return None


def kept_trials(path: "str | os.PathLike[str] | None" = None) -> "pd.DataFrame":
    """List the trials of advice that were kept, the oldest first: what was promised beside what was measured.

    Args:
        path: The history's file; the usual one by default.

    Returns:
        A DataFrame with a row per trial: rule, the time as edited over that as it is (``ratio``), the 95 %
        interval of that, the range that the advice had promised (missing for several together), and when.

    Raises:
        HistoryError: The file is damaged, or another program's.
    """
    import pandas as pd

    place = wanted_file(path)
    runs = [] if place is None else read_runs(place, "trials IS NOT NULL")
    rows = [
        (rule, *(nan if one is None else one for one in numbers), run.when)
        for run in runs
        for rule, *numbers in run.trials
    ]
    frame = pd.DataFrame(rows, columns=list(_KEPT))
    return frame.assign(when=as_dates(frame["when"].tolist()))


HISTORY = Table[Sequence[ListedRun]](
    "history",
    "One row per kept run, the oldest first.",
    columns_in("""
        when: when it ended, UTC
        cell = run.cell: which code it is; edits of constants and comments leave it as it is
        label = run.label: what the user called it
        commit = run.commit: the git commit; empty where there is none
        is_dirty = run.is_dirty: whether files differed from it; missing where nobody knows
        machine = run.machine: the hardware
        series: its series: runs of one code or label, machine, versions and settings
        runs = run.runs: how often the code ran (--repeat)
        steps = run.steps: steps that the times are of
        median_ms = run.median_ms: the typical step; missing where there are none
        low_ms = run.low_ms: where its 95 % interval begins
        high_ms = run.high_ms: where it ends
        wall_ms = run.wall_ms: wall time of the whole code
        examples_per_second = run.examples_per_second: examples over wall time of steps
        peak_bytes = run.peak_bytes: most memory of an allocator
        others_fraction = run.others: share of all cores that other programs took
        is_aside: whether they took so much more than usual that the run doesn't count
        is_change: whether the code has been slower or faster from this run on
        change_ratio: its time since over that before; missing for no change
        change_of = of: what changed: step, or cell
        is_alarm: whether it is slower since, which was found in the latest ten runs
        headline = run.headline: its steps in a line; empty where nobody asked for its answers
        advice: the rules of advice that it had
        trials: rules whose edit was tried, and the time as edited over that as it is
        """),
    owner="profnb",
    values={
        "when": lambda rows: as_dates([row.run.when for row in rows]),
        "advice": lambda rows: [", ".join(str(one[0]) for one in row.run.advice) for row in rows],
        "trials": lambda rows: [
            "; ".join(f"{one[0]} {one[1]:.2f}" for one in row.run.trials) for row in rows
        ],
    },
)
