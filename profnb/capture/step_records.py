"""The steps that a capture saw: appended as they end, as columns afterwards; and where it stands meanwhile.

Another thread reads that without asking anything of the code that runs.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, Protocol

KINDS = KERAS, USER, CALL, RUN = "keras", "user", "call", "session run"
SESSION_RUN = "session_run"  # the phase of steps that are session runs, or how it begins
TRAIN = "train"  # the phase of steps of a fit
INVOKE = "invoke"  # the phase of steps that are runs of LiteRT's or ONNX Runtime's interpreters
TAPE = "tape"  # marks where a step may begin, and is none
COLUMNS = (
    "begin_ns", "end_ns", "name", "kind", "was_traced", "retraced", "iterations", "step_num", "run",
)  # fmt: skip
WIDTH, _NAME, _TRACED = len(COLUMNS), COLUMNS.index("name"), COLUMNS.index("was_traced")
_PACKED = Struct(f"{WIDTH}q").pack
_RECENT = 64  # steps, by which a typical one is known


class Marking(Protocol):
    """Writes into a running profiler's trace."""

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A step's marker, begun; None where the profiler has none."""

    def mark(self, name: str) -> Any:
        """An event, begun; None where the profiler has none."""


class OpenStep:
    """Something that began and has not ended.

    One is made for each step, traced or not, so what few of them have is the class's, and ``OpenSteps.begin``
    sets the rest: an ``__init__`` would be a frame in each.

    Attributes:
        marker: Its event in the trace.
        kind: One of ``KINDS``; None while that is not known.
        name: The phase, the marker's or the function's name.
        begin_ns: When it began, by ``time.perf_counter_ns``.
        first_record: How many steps had ended then.
        was_traced: Whether a trace was being recorded then.
        step_num: Its number.
        retraced: Whether a function was traced in it.
        has_traced: Whether a graph was, a function's or another one.
        is_marked: Whether a capture inside this capture has marked it.
        iterations: Iterations in it.
        function: The ``tf.function`` whose call it is; None of what is no call.
        failed_ns: When something in it ended with an exception; 0 for never.
        marked_ns: When its marker of ours had begun; 0 without one.
        unmarked_ns: When that had ended.
    """

    marker: Any
    kind: str | None
    name: str
    begin_ns: int
    first_record: int
    was_traced: bool
    step_num: int
    retraced = has_traced = is_marked = False
    iterations = 1
    function: Any = None
    failed_ns = marked_ns = unmarked_ns = 0


@dataclass
class StepRecords:
    """Every step or call that was seen, traced or not, in order of its end.

    Attributes:
        begin_ns: Begins by the clock ``time.perf_counter_ns``.
        end_ns: Ends.
        name: Row of ``names``: the phase, the marker's or the function's name.
        kind: Row of ``kinds``.
        was_traced: 1 where the whole step lies inside the traced window.
        retraced: 1 where a ``tf.function`` was traced in it.
        iterations: Iterations in one step.
        step_num: The number the program gave it, or its order among steps of its kind.
        run: Which ``fit`` (or ``evaluate``, ``predict``) of the code it belongs to, for Keras' batches.
        ended_at: How many steps had been recorded as each of Keras' epochs ended, in order.
        ended_epoch: Which epoch of its ``fit`` that was, as Keras prints it: the first one is 1.
        names: Distinct names.
        kinds: What delimits the steps: "keras", "user" markers, function "call" or "session run".
    """

    begin_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("i"))
    kind: array[int] = field(default_factory=lambda: array("b"))
    was_traced: array[int] = field(default_factory=lambda: array("b"))
    retraced: array[int] = field(default_factory=lambda: array("b"))
    iterations: array[int] = field(default_factory=lambda: array("i"))
    step_num: array[int] = field(default_factory=lambda: array("q"))
    run: array[int] = field(default_factory=lambda: array("i"))
    ended_at: array[int] = field(default_factory=lambda: array("q"))
    ended_epoch: array[int] = field(default_factory=lambda: array("q"))
    names: list[str] = field(default_factory=list)
    kinds: tuple[str, ...] = KINDS

    def __len__(self) -> int:
        return len(self.begin_ns)

    def latest(self, count: int) -> list[tuple[int, str, int]]:
        """Give the latest steps' begin, name and run."""
        rows = zip(self.begin_ns[-count:], self.name[-count:], self.run[-count:], strict=True)
        return [(begin, self.names[name], run) for begin, name, run in rows]

    def append(self, *values: int) -> None:
        """Add one row, values in the order of the attributes."""
        for name, value in zip(COLUMNS, values, strict=True):
            getattr(self, name).append(value)


@dataclass(frozen=True, slots=True)
class KerasRunSeen:
    """A ``fit``, ``evaluate`` or ``predict`` that began.

    Attributes:
        phase: "train", "test" or "predict".
        number: Which run of its phase it is, as the steps' ``run`` has it.
        is_validation: Whether a ``fit`` called it, for its own validation.
    """

    phase: str
    number: int
    is_validation: bool


@dataclass(slots=True)
class StepLog:
    """The steps of one thread, so far.

    A row is appended at once, so an interrupt leaves no half of one.

    Attributes:
        names: Distinct names of steps.
        ended_at: How many steps had ended as each of Keras' epochs did.
        ended_epoch: Which epoch of its ``fit`` that was; the first one is 1.
        runs: Keras' runs, in the order in which they began.
        run_spans: When the outermost of them began and ended, by ``time.perf_counter_ns``.
        failed: Steps that ended with an exception: name, begin and end by ``time.perf_counter_ns``.
        cells: The steps, one after the other, a number for each of ``COLUMNS``.
    """

    names: list[str] = field(default_factory=list)
    ended_at: list[int] = field(default_factory=list)
    ended_epoch: list[int] = field(default_factory=list)
    runs: list[KerasRunSeen] = field(default_factory=list)
    run_spans: list[tuple[int, int]] = field(default_factory=list)
    failed: list[tuple[str, int, int]] = field(default_factory=list)
    cells: array[int] = field(default_factory=lambda: array("q"))
    _codes: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cells) // WIDTH

    def code_of(self, name: str) -> int:
        """Give the row of a name in ``names``."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self.names)
            self.names.append(name)
        return code

    def end_step(self, first: int, begin_ns: int, end_ns: int, name: str, *others: int) -> None:
        """Add a step in one call, and forget those that ended inside it.

        Args:
            first: How many steps had ended as it began.
            begin_ns: When that was.
            end_ns: When it ended.
            name: What it is called.
            others: The other columns of ``StepRecords``, in their order.
        """
        if len(self.cells) != first * WIDTH:
            self.truncate(first)
        code = self._codes.get(name)
        if code is None:
            code = self.code_of(name)
        self.cells.frombytes(_PACKED(begin_ns, end_ns, code, *others))

    def truncate(self, length: int) -> None:
        """Forget the steps from one on."""
        del self.cells[length * WIDTH :]

    def column(self, name: str) -> array[int]:
        """Give one column."""
        return self.cells[COLUMNS.index(name) :: WIDTH]

    def since(self, first: int) -> array[int]:
        """The steps from one on, one after the other; any thread may ask, while others end."""
        return self.cells[first * WIDTH :]

    def latest(self, count: int) -> list[tuple[int, str, int]]:
        """The latest steps' begin, name and run; any thread may ask, while others end."""
        cells = self.since(-count)
        rows = zip(cells[::WIDTH], cells[_NAME::WIDTH], cells[WIDTH - 1 :: WIDTH], strict=True)
        return [(begin, self.names[name], run) for begin, name, run in rows]

    def steps_within(self, begin_ns: int, end_ns: int) -> list[int]:
        """Give a 1 for each step that lies in a span of time, else a 0."""
        spans = zip(self.column("begin_ns"), self.column("end_ns"), strict=True)
        return [int(begin_ns <= begin and end <= end_ns) for begin, end in spans]

    def set_traced(self, traced: Sequence[int] = ()) -> None:
        """Say of the first steps whether each was traced; the others were in no trace that is shown."""
        whole = [*traced, *[0] * (len(self) - len(traced))]
        self.cells[_TRACED::WIDTH] = array("q", whole)

    def without(self, is_aside: Sequence[bool]) -> StepLog:
        """The log without some of the steps; ends of epochs stand where they did among the others."""
        kept = array("q")
        for row, aside in enumerate(is_aside):
            if not aside:
                kept.extend(self.cells[row * WIDTH : (row + 1) * WIDTH])
        before = [0, *accumulate(map(int, is_aside))]
        ended_at = [at - before[min(at, len(is_aside))] for at in self.ended_at]
        return replace(self, ended_at=ended_at, cells=kept)

    def records(self) -> StepRecords:
        """The steps so far, as columns of their own."""
        steps = StepRecords(names=[*self.names])
        steps.ended_at.extend(self.ended_at)
        steps.ended_epoch.extend(self.ended_epoch)
        for name in COLUMNS:
            getattr(steps, name).extend(self.column(name).tolist())
        return steps


@dataclass(slots=True)
class KerasRun:
    """A ``fit``, ``evaluate`` or ``predict`` that runs.

    Attributes:
        phase: "train", "test" or "predict".
        number: Which run of the capture it is.
        epochs: The number of the last epoch, counted from 1; 0 where it is not known.
        batches: Batches of an epoch; 0 where that is not known.
        first_epoch: The epoch it began with, counted from 0: 0, until its first epoch has ended and told it.
        epochs_ended: How many epochs are over.
        batches_ended: How many batches of this epoch are over.
        loss: The loss of the last epoch; NaN before.
    """

    phase: str
    number: int
    epochs: int = 0
    batches: int = 0
    first_epoch: int = 0
    epochs_ended: int = 0
    batches_ended: int = 0
    loss: float = math.nan

    @property
    def done(self) -> int:
        """Batches that are over, in all epochs."""
        return self.epochs_ended * self.batches + self.batches_ended

    @property
    def total(self) -> int:
        """Batches there will be, in all epochs; 0 where that is not known."""
        if not (self.epochs and self.batches):
            return 0
        return max(self.epochs - self.first_epoch, 0) * self.batches


@dataclass(frozen=True, slots=True)
class Standing:
    """A capture at one moment.

    Attributes:
        elapsed_ns: Wall time since it began.
        is_tracing: Whether the window is open.
        was_tracing: Whether it was open and has closed.
        traced_steps: Steps that were recorded under trace.
        max_steps: How many the window takes.
        step_ns: The typical time from step to step of late, in nanoseconds; NaN before there are three.
        run: The run of Keras' that goes on; None where there is none.
    """

    elapsed_ns: int
    is_tracing: bool = False
    was_tracing: bool = False
    traced_steps: int = 0
    max_steps: int = 0
    step_ns: float = math.nan
    run: KerasRun | None = None


def recent_step_ns(steps: StepLog | StepRecords) -> float:
    """The median time from the begin of a step to the next one's, of the last steps of one name and run."""
    alike = steps.latest(_RECENT)
    begins = [at for at, *what in alike if what == list(alike[-1][1:])]
    if len(begins) < 3:
        return math.nan
    periods = sorted(later - earlier for earlier, later in pairwise(begins))
    return (periods[len(periods) // 2] + periods[(len(periods) - 1) // 2]) / 2
