"""Steps that take longer and longer: a trend, or a change that stays.

Steps in order of their time are cut into 20 blocks of equal length; a block stands for its lower median,
so that one slow step, or an epoch's end, moves none. Pettitt's statistic counts how many pairs of a block
before some point and one after it rise, less those that fall, at the point where that is most (a fifth of
the blocks at least on either side). Without a trend or a change 85 or more are reached once in a thousand
times.

Source: A. N. Pettitt (1979), A non-parametric approach to the change-point problem; one-sided, its level from
two hundred thousand permutations of 20 blocks.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profnb.causes.numbers import FAR_LONGER
from profnb.core.columns import Floats, Int64s, next_begins
from profnb.core.units import PS_PER_NS, count_text, duration_text
from profnb.steps.activities import CATEGORIES
from profnb.subjects.advising import op_events
from profnb.subjects.core_contention import (
    is_crowded_by_others,
    is_shared,
    is_shared_between,
    is_slowed_by_others,
)
from profnb.subjects.study import Study

_BLOCKS, _EDGE, _LEVEL = 20, 4, 85
_FEWEST_TO_SLOW = 2 * _BLOCKS
_LEAST_GROWTH, _LEAST_OF_TRACED, _GOES_ON = 1.25, 1.15, 1.1
_FEWEST_TRACED = 20
_JOINS = "aten::cat", "EagerLocalExecute: ConcatV2"
INPUT, PYTHON, MORE, SAME = "input", "python", "more", "same"


@dataclass(frozen=True, slots=True)
class Rise:
    """Steps that take longer at the end than at the beginning.

    Attributes:
        early: The median of the first quarter of the blocks, in the unit of the steps.
        late: That of the last quarter.
        change: Row of the step at which most of the rise happens; None where it comes bit by bit.
        excess: Share of the time of all steps beyond what they took had each taken what those of the first
            quarter did. Of a step far longer than its neighbours (a model is saved) no more than five
            times their median counts: it is long for another reason.
    """

    early: float
    late: float
    change: int | None
    excess: float


@dataclass(frozen=True, slots=True)
class Slowing:
    """Steps that rise, and what grew.

    Attributes:
        rise: In picoseconds.
        count: How many steps they are.
        whole_ps: What they took together.
        cause: The part of a step that grew: ``INPUT``, ``PYTHON``, ``MORE`` ops or the ``SAME`` ones; ""
            where the traced steps do not show it.
        what: That in a sentence.
    """

    rise: Rise
    count: int
    whole_ps: float
    cause: str
    what: str


def find_rise(periods: Floats) -> Rise | None:
    """What is told of N steps whose times rise.

    Args:
        periods: Their times in order, in any unit, shape (N,).

    Returns:
        The rise; None for fewer than 40 steps, where chance explains it, or where the last quarter takes less
        than a quarter longer than the first.
    """
    if periods.size < _FEWEST_TO_SLOW:
        return None
    bounds = np.linspace(0, periods.size, _BLOCKS + 1).astype(np.int64)
    cut = [np.sort(periods[a:b]) for a, b in pairwise(bounds.tolist())]
    blocks = np.array([block[(block.size - 1) // 2] for block in cut])
    signs = np.sign(blocks[None, :] - blocks[:, None])
    points = np.arange(_EDGE, _BLOCKS - _EDGE + 1)
    rises = np.array([signs[:point, point:].sum() for point in points])
    best = int(points[rises.argmax()])
    quarter = _BLOCKS // 4
    early, late = float(np.median(blocks[:quarter])), float(np.median(blocks[-quarter:]))
    if rises.max() < _LEVEL or early <= 0 or late < _LEAST_GROWTH * early:
        return None
    near = min(best, _BLOCKS - best, quarter)
    jump = float(np.median(blocks[best : best + near]) / np.median(blocks[best - near : best]))
    is_jump = jump >= (late / early) ** 0.8
    usual = np.minimum(periods, FAR_LONGER * np.repeat(blocks, np.diff(bounds)))
    excess = float(usual.sum()) - periods.size * float(usual[: bounds[quarter]].mean())
    return Rise(
        early, late, int(bounds[best]) if is_jump else None, max(excess / float(periods.sum()), 0.0)
    )


def find_growing_joins(study: Study) -> tuple[Int64s, float, float]:
    """Find ops on the host that join tensors and take longer and longer: each copies all so far.

    What grows by one piece each time takes 39 times as long in the last twentieth as in the first.

    Returns:
        Their events, none where they do not grow so; what they took beyond the first ones, and what they did
        with what Python took from there to the next op, which frees what was copied, ps.
    """
    events, is_host = study.trace.events, study.trace.is_host_event
    joins = np.flatnonzero(study.trace.select_named(*_JOINS) & is_host)
    nothing = joins[:0], 0.0, 0.0
    if not joins.size:
        return nothing
    line = study.trace.lines.of_event[joins[np.argmax(events.duration_ps[joins])]]
    on_line = np.flatnonzero((study.trace.lines.of_event == line) & is_host)
    joins = np.intersect1d(joins, on_line)
    joins = joins[np.argsort(events.begin_ps[joins], kind="stable")]
    took_ps = events.duration_ps[joins].astype(np.float64)
    rise, first = find_rise(took_ps), joins.size // _BLOCKS
    if rise is None or rise.change is not None:
        return nothing
    early, late = np.median(took_ps[:first]), np.median(took_ps[-first:])
    if late < FAR_LONGER * FAR_LONGER * early:
        return nothing
    until = next_begins(events.begin_ps[on_line], events.end_ps[joins])
    with_pauses = until - events.begin_ps[joins]
    least, most = (
        float(each.sum() - each.size * np.median(each[:first])) for each in (took_ps, with_pauses)
    )
    return joins, least, max(most, least)


def find_slowing(study: Study) -> Slowing | None:
    """Find a rise of the steady steps of one fit or loop.

    Not where a buffer of the input ran dry (the wait for it grew once, and stays as it is), and not where a
    session's graph grows, which a rule of its own tells.
    """
    versions = study.recording.graph_versions
    if study.steps.is_window or (versions and versions[-1] - versions[0] >= len(versions) // 2 > 0):
        return None
    periods, begins_ns = _periods(study)
    rise = find_rise(periods)
    if rise is None:
        return None
    cause, what = _cause_of(study)
    if _has_another_reason(study, cause, rise, begins_ns):
        return None
    return Slowing(rise, periods.size, float(periods.sum()), cause, what)


def _has_another_reason(study: Study, cause: str, rise: Rise, begins_ns: Int64s) -> bool:
    """Whether that the steps take longer is not, or may not be, the program's own doing.

    Of calls of JAX's that nobody timed all are traced, and the tracing may take longer and longer: in the
    first trace of a process later steps took 60 % longer where all took the same without a profiler.
    """
    program = study.program
    is_untimed = program.is_jax and not program.has_device and not begins_ns.size
    return (
        (is_untimed and cause not in (INPUT, MORE))
        or (cause == INPUT and rise.change is not None)  # a buffer ran dry
        # A note says who had the cores, or the table of the machine does.
        or (cause == SAME and is_crowded_by_others(study.recording.core_waits))
        or (cause != MORE and _may_be_of_others(study, begins_ns))
    )


def _may_be_of_others(study: Study, begins_ns: Int64s) -> bool:
    """True if the last quarter of some steps, by when each began, is longer for what others did.

    Of a few seconds of steps the looks at the machine do not tell that; there it may be so wherever others
    had a quarter of the cores while the steps ran, or while they were traced. Where nobody timed the steps,
    as those of JAX' calls, the latter alone is known.
    """
    quarter, machine = begins_ns.size // 4, study.recording.machine
    if not quarter:
        return is_shared(study.recording.core_waits)
    first, last = int(begins_ns[0]), int(begins_ns[-1])
    early, late = (first, int(begins_ns[quarter])), (int(begins_ns[-1 - quarter]), last)
    is_slowed = is_slowed_by_others(machine, early, late)
    if is_slowed is not None:
        return is_slowed
    return is_shared(study.recording.core_waits) or is_shared_between(machine, first, last)


def _periods(study: Study) -> tuple[Floats, Int64s]:
    """Times from step to step of the longest fit or loop of the main phase, warm-up left out, picoseconds.

    And when each began by ``time.perf_counter_ns``, empty where that is not known.

    On devices the traced steps, whose times are the device's: a host that runs ahead is quick at first.
    """
    phase, times = study.summary.phase, study.step_times
    if study.program.has_device or times.first_ns is None:
        rows = study.summary.counted
        periods = study.steps.duration_ps[rows] + study.gaps.own_ps[rows]
        return np.asarray(periods, np.float64), np.empty(0, np.int64)
    is_after_warmup = np.array([name == phase for name in times.phase], np.bool_)
    is_after_warmup[np.flatnonzero(is_after_warmup)[: study.warmup_steps]] = False
    steady = is_after_warmup & ~times.retraced
    if not steady.any():
        return np.empty(0), np.empty(0, np.int64)
    runs, spent = np.unique(times.run[steady], return_inverse=True)
    longest = runs[np.bincount(spent, times.duration_ps[steady].astype(np.float64)).argmax()]
    steady &= times.run == longest
    follows = np.append(is_after_warmup[1:] & (times.run[1:] == times.run[:-1]), False)
    to_next = np.append(np.diff(times.begin_ps), 0)
    period = np.where(follows, np.maximum(to_next, times.duration_ps), times.duration_ps)
    begins_ns = times.first_ns + times.begin_ps[steady] // PS_PER_NS
    return np.asarray(period[steady], np.float64), begins_ns


def _cause_of(study: Study) -> tuple[str, str]:
    """Which part of a traced step grew, and that in a sentence; "" where the traced steps do not show it."""
    rows = study.summary.counted
    if rows.size < _FEWEST_TRACED:
        return "", ""
    quarter = rows.size // 4
    ends = rows[:quarter], rows[-quarter:]
    input_ps, python_ps, rest_ps = (
        [float(np.median(part[:quarter])), float(np.median(part[-quarter:]))]
        for part in _parts(study, rows)
    )
    whole = [sum(part) for part in zip(input_ps, python_ps, rest_ps, strict=True)]
    grown = whole[1] - whole[0]
    if whole[1] < _LEAST_OF_TRACED * whole[0]:
        return "", ""
    for cause, (early, late), name in (
        (INPUT, input_ps, "the wait for input"),
        (PYTHON, python_ps, "Python between steps and around ops"),
    ):
        if 2 * (late - early) > grown:
            before, after = duration_text(early), duration_text(late)
            return cause, f" The growing part is {name}, from {before} to {after} a step."
    is_rest = 2 * (rest_ps[1] - rest_ps[0]) > grown
    ops = study.groups.step[op_events(study, lambda _, op_type: op_type != "Dataset")]
    early_ops, late_ops = (np.isin(ops, end).sum() / quarter for end in ends)
    if is_rest and late_ops > _GOES_ON * early_ops:
        now, before = count_text(round(late_ops)), count_text(round(early_ops))
        return MORE, f" Each late step ran {now} ops, each early step {before}."
    if is_rest and early_ops and late_ops * _GOES_ON >= early_ops:
        return SAME, " The number of ops stayed the same, and each op took longer."
    return "", ""


def _parts(study: Study, rows: Int64s) -> tuple[Floats, Floats, Floats]:
    """Of some steps' periods: the wait for input, Python, and all else, each shape (N,)."""
    gaps = study.breakdown.gap_picoseconds[rows] * study.gaps.belongs[rows, None]
    steps = study.breakdown.picoseconds[rows]
    whole = (steps + gaps).sum(axis=1).astype(np.float64)
    at, others = CATEGORIES.index("input"), CATEGORIES.index("all others")
    shown = (steps[:, at] + gaps[:, at]).astype(np.float64)
    waited = np.maximum(shown, study.input.waiting.step_ps[rows])
    python = (steps[:, others] + gaps[:, others]).astype(np.float64)
    python = np.maximum(python - (waited - shown), 0)
    return waited, python, np.maximum(whole - waited - python, 0)
