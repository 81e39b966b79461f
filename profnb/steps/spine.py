"""A trace to its spine: when its steps ran, and where the time of each went; that as tables.

Every subject hangs on it; each value is worked out once, when somebody asks for it.
"""

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from profnb.capture.recording import Recording
from profnb.core.columns import (
    Bools,
    Floats,
    Int8s,
    Int32s,
    Int64s,
    flags_at,
    gather,
    span_at,
    sum_by,
)
from profnb.core.table import Column, Table, columns_in
from profnb.steps.activities import (
    CATEGORIES,
    CATEGORY_OF,
    FunctionRuns,
    find_activities,
    find_function_runs,
)
from profnb.steps.breakdown import Pieces, StepBreakdown, break_down_steps, column_of, host_pieces
from profnb.steps.finding.sources import find_ranges, find_steps, repeated_ranges
from profnb.steps.grouping import Groups, extend_to_device_work, group_events
from profnb.steps.nesting import find_parents, self_times
from profnb.steps.program_kind import ProgramKind, find_program_kind
from profnb.steps.step_times import StepTimes, step_times_of_trace, turn_step_times, wall_step_times
from profnb.steps.streams import by_device_clock, own_times, raw_device_lines, working_devices
from profnb.steps.summary import Summary, examples_per_step, summarize, usual_batch_size
from profnb.steps.untraced import TracingCost, UntracedClock, find_untraced_clock, tracing_cost
from profnb.steps.windows import GAP_KINDS, IN_LOOP, Gaps, Steps, find_gaps, with_lambda
from profnb.trace.enqueued import align_clocks
from profnb.trace.model import Trace

if TYPE_CHECKING:
    import pandas as pd


_CHUNK = 1 << 16  # events
# What is the same for any clock. Of steps, which the wall clock timed, too.
_WITHOUT_TIMES = ("activities", "function_runs", "program", "step_times", "tracing_cost")
Spined = TypeVar("Spined", bound="Spine")


class Spine:
    """The steps of one trace, the events of each, and where its time went.

    Attributes:
        trace: The trace, devices on the host's clock.
        warmup_steps: How many first steps to leave out of averages besides those with tracing.
        step_range: The name of the range that a step was asked to be; None for what is found.
        recording: What the capture saw besides the trace; empty for a saved trace.
        recorded: The same with all times as they were recorded; itself where no cost of tracing is taken out.
        clock: What took it out; None where nothing did.
    """

    recorded: "Spine"

    def __init__(
        self,
        trace: Trace,
        warmup_steps: int = 0,
        recording: Recording | None = None,
        step_range: str | None = None,
    ) -> None:
        """Nothing is computed yet."""
        self.trace = align_clocks(trace)
        self.warmup_steps = warmup_steps
        self.step_range = step_range
        self.recording = recording or Recording()
        self.recorded = self
        self.clock: UntracedClock | None = None

    def read_clock(self, times_ps: Int64s) -> Int64s:
        """Times of the recorded trace as this one has them."""
        return times_ps if self.clock is None else self.clock.read(times_ps)

    def without_tracing(self: Spined) -> Spined:  # noqa: PYI019 - Self is of Python 3.11
        """The same with what recording events cost taken out of all times, as ``untraced`` says.

        Itself where the recording has no untraced steps that are neighbours of traced ones, or where nothing
        shows that tracing cost them anything.
        """
        if self.tracing_cost is None:
            return self
        clock = find_untraced_clock(
            self.trace, self.steps, self.groups, self.activities, self.tracing_cost
        )
        if clock is None:
            return self
        corrected = type(self)(
            clock.of_trace(self.trace), self.warmup_steps, self.recording, self.step_range
        )
        corrected.recorded, corrected.clock = self, clock
        vars(corrected).update(  # what is the same whatever the clock, and what needs it
            {name: getattr(self, name) for name in _WITHOUT_TIMES},
            steps=clock.of_steps(self.steps),
            groups=replace(self.groups, end_ps=clock.read(self.groups.end_ps)),
        )
        return corrected

    @cached_property
    def _host_steps(self) -> Steps:
        return find_steps(self.trace, self.warmup_steps, self.step_range)

    @cached_property
    def ranges(self) -> Int64s:
        """The events that are ranges which the user marked, ascending."""
        return find_ranges(self.trace, self.groups.parent)

    @cached_property
    def repeated_ranges(self) -> list[str]:
        """The names of those that repeat, most time first."""
        return repeated_ranges(self.trace, self.ranges)

    @cached_property
    def groups(self) -> Groups:
        """The step that each event belongs to."""
        return group_events(self.trace, self._host_steps)

    @cached_property
    def steps(self) -> Steps:
        """The steps, each to the end of the device work that the host waited for."""
        steps = extend_to_device_work(self.trace, self._host_steps, self.groups)
        return with_lambda(steps, self.recording.functions)

    @cached_property
    def gaps(self) -> Gaps:
        """The gaps between the steps: part of a step's period, end of an epoch, pause."""
        return find_gaps(self.steps)

    @cached_property
    def breakdown(self) -> StepBreakdown:
        """Each step's time by category, on the busiest device if there are several."""
        device = self.program.device
        # Kept only where idle asks again.
        host = self.host_pieces if self.program.has_device else None
        return break_down_steps(self.trace, self.steps, self.groups, device, self.activities, host)

    @cached_property
    def host_pieces(self) -> Pieces:
        """Begins and ends of what the host did for the steps, and the event of each, shape (P,) each."""
        return host_pieces(self.trace, self.steps, self.groups, self.activities)

    @cached_property
    def activities(self) -> Int8s:
        """The activity of each event, as index into ``ACTIVITIES``, where the busiest device counts."""
        return find_activities(
            self.trace, self.steps, self.program.device, self.groups.parent, self.function_runs
        )

    @cached_property
    def function_runs(self) -> FunctionRuns:
        """The runs of users' functions in tf.data, and what worked for each."""
        return find_function_runs(self.trace)

    @cached_property
    def device_breakdowns(self) -> dict[str, StepBreakdown]:
        """The same as each device sees it, by the device's name."""
        return {
            self.trace.planes[plane].name: break_down_steps(
                self.trace, self.steps, self.groups, plane
            )
            for plane in working_devices(self.trace)
        }

    @cached_property
    def launched_ps(self) -> Int64s:
        """Time of the work that each step launched on the busiest device, whenever it ran, shape (S,).

        What several of its streams run at once counts for each, so it may be more than the step's time; what
        one stream runs at once counts once.
        """
        lines = raw_device_lines(self.trace) & (self.trace.lines.plane == self.program.device)
        work = self.trace.lines.events_of(lines)
        work = work[self.groups.step[work] >= 0]
        return sum_by(self.groups.step[work], own_times(self.trace, work), len(self.steps))

    @cached_property
    def categories(self) -> Int8s:
        """The category that each event is charged to where nothing of higher priority runs, shape (E,).

        As index into ``CATEGORIES``; what is no work (markers, frames of the Python tracer, lines that repeat
        others) is "all others".
        """
        return CATEGORY_OF[find_activities(self.trace, self.steps, None, self.groups.parent)]

    @cached_property
    def parent(self) -> Int32s:
        """Index of each event's parent on its own line, or -1, shape (E,)."""
        return find_parents(self.trace.events.end_ps, self.trace.lines.offsets)

    @cached_property
    def self_ps(self) -> Int64s:
        """Each event's duration less what others on the same line cover, shape (E,).

        That is its children, and of a device's work what began before it.
        """
        events = self.trace.events
        self_ps = self_times(events.begin_ps, events.end_ps, self.parent)
        work = self.trace.lines.events_of(raw_device_lines(self.trace))
        work = work[self.parent[work] < 0]
        own_ps = own_times(self.trace, work)
        begin_ps, end_ps = by_device_clock(self.trace, work)
        self_ps[work] = np.maximum(self_ps[work] - (end_ps - begin_ps - own_ps), 0)
        return self_ps

    @cached_property
    def program(self) -> ProgramKind:
        """The kind of program that ran."""
        return find_program_kind(self.trace, self.steps, self.recording)

    @property
    def has_steps(self) -> bool:
        """Tell whether steps were found, and some of them count."""
        return not self.steps.is_window and self.summary.counted.size > 0

    @cached_property
    def examples(self) -> Int64s:
        """The examples that each step took, 0 where the trace does not tell, shape (S,)."""
        return examples_per_step(self.trace, self.groups, len(self.steps))

    @cached_property
    def batch_size(self) -> int | None:
        """Examples of a usual step, else of a usual element of the input; None where nothing tells."""
        of_steps = None if self.steps.is_window else self.summary.batch_size
        return of_steps or usual_batch_size(self.trace)

    @cached_property
    def summary(self) -> Summary:
        """The few numbers a person reads first."""
        return summarize(self.steps, self.breakdown, self.examples, self.gaps)

    @cached_property
    def scope(self) -> str:
        """The steps that tables and sentences speak of where they do not say otherwise, in words."""
        summary = self.summary
        count = summary.counted.size
        if not self.has_steps:
            return "the whole capture"
        kind = "warm-up " if summary.all_warm_up else "steady " if summary.warm_up.size else ""
        phase = "" if summary.phase == "step" else f"{self.steps.title_of(summary.phase)} "
        return f"{count:,} {kind}{phase}{'step' if count == 1 else 'steps'}"

    @cached_property
    def step_times(self) -> StepTimes:
        """Every step the code ran, traced or not; of a saved trace the traced ones."""
        times = None
        if self.program.is_eager:
            times = turn_step_times(self.program, self.steps, self.recording.turns)
        elif len(self.recording.steps):
            times = wall_step_times(self.recording.steps)
        return step_times_of_trace(self.steps) if times is None else times

    @cached_property
    def tracing_cost(self) -> TracingCost | None:
        """The cost of tracing to the steps; None where it was not measured, or the host runs ahead of them.

        Where calls return early and a device works, an untraced step is as long as it took the host. That is
        the whole step only if it outlasts the device's work.
        """
        if self.steps.steps_ahead:
            return None
        phase = self.steps.main_phase
        cost = tracing_cost(self.step_times, phase)
        if cost is None or not (self.program.runs_ahead and self.program.has_device):
            return cost
        launched_ps = self.launched_ps[self.steps.rows_of(phase)]
        is_whole = launched_ps.size and cost.untraced_ps > np.median(launched_ps)
        return cost if is_whole else None

    @cached_property
    def in_scope(self) -> Bools:
        """The events that tables are of which speak of steady steps, shape (E,).

        Those of the steps that averages are of, and what runs for no step in their periods: an input
        pipeline that works ahead, callbacks. Everything where there are no steps.
        """
        counted = self.summary.counted
        if not self.has_steps:
            return np.ones(len(self.trace.events), np.bool_)
        return self.events_of(counted) | self.runs_beside(counted)

    def loop_times(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Give the times in which the thread of the steps was at some of them and in their gaps.

        Returns:
            Begins and ends on the host, which may run ahead of the device, both of shape (R,).
        """
        begin_ps, end_ps = self.steps.host_begin_ps, self.steps.host_end_ps
        until = np.where(self.gaps.belongs, np.append(begin_ps[1:], end_ps[-1:]), end_ps)
        return begin_ps[rows], until[rows]

    def runs_beside(self, rows: Int64s) -> Bools:
        """Mark the events that belong to no step and begin in the periods of some, shape (E,)."""
        begin = np.minimum(self.steps.begin_ps, self.steps.host_begin_ps)[rows]
        end = (self.steps.end_ps + self.gaps.own_ps)[rows]
        beside = self.groups.step < 0
        for first in range(0, beside.size, _CHUNK):  # so that little is in memory at once
            part = slice(first, first + _CHUNK)
            beside[part] &= span_at(begin, end, self.trace.events.begin_ps[part]) >= 0
        return beside

    def events_of(self, rows: Int64s) -> Bools:
        """Mark the events that belong to some of the steps, shape (E,)."""
        # Behind the steps one more: outside of every step.
        return gather(flags_at(rows, len(self.steps) + 1), self.groups.step)


# Without a device's own lines in the trace these were not measured.
_DEVICE_CATEGORIES = (
    "device compute", "device to device", "device collectives", "kernel launch", "output",
)  # fmt: skip


def _with_device(spine: Spine, values: Int64s) -> Int64s | Floats:
    return values if spine.program.has_device else np.full(len(spine.steps), np.nan)


def _category_ps(category: str, spine: Spine) -> Int64s | Floats:
    """Take a category's time in each step; NaN where it takes a device, and neither that nor a host has any.

    A host without a device waits for others and exchanges with them too.
    """
    spent = spine.breakdown.of(category)
    is_missing = category in _DEVICE_CATEGORIES and not spine.program.has_device and not spent.any()
    return np.full(len(spine.steps), np.nan) if is_missing else spent


def _step_num(spine: Spine) -> Any:
    """Take the number of each event's step, missing outside every step."""
    import pandas as pd

    step = spine.groups.step
    numbers = np.append(spine.steps.step_num, 0)[step]  # the last one: outside every step
    return pd.arrays.IntegerArray(numbers.astype(np.int64, copy=False), step < 0)


def _categories(texts: list[str], rows: Int32s | Int64s) -> "pd.Categorical[str]":
    """Look texts up by row, each distinct text stored once."""
    import pandas as pd

    codes, distinct = pd.factorize(np.array(texts, object))
    return pd.Categorical.from_codes(codes[rows], pd.Index(distinct))


_OTHER_GAPS = ", ".join(f'"{kind}"' for kind in GAP_KINDS[IN_LOOP + 1 :])
STEPS = Table[Spine](
    "steps",
    "One row per traced step.",
    (
        *columns_in(f"""
            step_num = steps.step_num: the number the program gave it
            phase = steps.phase: what it did: "train", "test", "predict", a function's name, or "window"
            begin_ms = steps.begin_ps: its begin
            duration_ms = steps.duration_ps: its duration
            gap_ms: time to the next step, NaN for the last
            gap_kind: what that gap is: "{GAP_KINDS[IN_LOOP]}" where it is part of the step's period, else
                {_OTHER_GAPS}
            is_warmup = steps.is_warmup: whether averages leave it out
            iterations = steps.iterations: iterations of the training loop in it (``steps_per_execution``)
            """),
        *(
            Column(column_of(name), partial(_category_ps, name), f"time of it that is {name}")
            for name in CATEGORIES
        ),
        *columns_in("""
            busy_gap_ms: time of the gap in which the device ran anything
            launched_work_ms: time of the device's work that it launched, whenever that ran; streams add up
            """),
    ),
    "The nine categories of a row sum to its duration. Without a device in the trace, categories of "
    "devices are NaN.",
    values={
        "gap_kind": lambda t: [GAP_KINDS[kind] for kind in t.gaps.kind.tolist()],
        "gap_ms": lambda t: np.where(t.steps.gap_ps >= 0, t.steps.gap_ps, np.nan),
        "busy_gap_ms": lambda t: _with_device(t, t.breakdown.gap_busy_ps),
        "launched_work_ms": lambda t: _with_device(t, t.launched_ps),
    },
)
STEP_TIMES = Table[StepTimes](
    "step_times",
    "One row per step the code ran, traced or not, by the wall clock.",
    columns_in("""
        step_num: the number the program gave it, or its order
        phase: what it did
        wall_ms = duration_ps: how long it took; of a turn of an eager loop, until the next one began
        was_traced: whether all of it was under trace
        """),
)
EVENTS = Table[Spine](
    "events",
    "One row per event, in the trace's order.",
    columns_in("""
        plane: the host or device
        line: its thread or stream
        name: its name
        begin_us = trace.events.begin_ps: its begin
        duration_us = trace.events.duration_ps: its duration
        self_us: less the events inside it on the same line
        step_num: the step it belongs to, missing outside every step
        """),
    values={
        "plane": lambda t: _categories([p.name for p in t.trace.planes], t.trace.lines.plane)[
            t.trace.lines.of_event
        ],
        "line": lambda t: _categories(t.trace.lines.names.texts, t.trace.lines.of_event),
        "name": lambda t: _categories(t.trace.names.texts, t.trace.events.name),
        "step_num": _step_num,
    },
)
