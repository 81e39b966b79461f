"""The steps that a capture saw, as columns that only grow."""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["CALL", "KERAS", "KINDS", "RUN", "TAPE", "USER", "Marking", "OpenStep", "StepRecords"]

KINDS = KERAS, USER, CALL, RUN = "keras", "user", "call", "session run"
TAPE = "tape"  # marks where a step may begin, and is none


class Marking(Protocol):
    """What writes into a running profiler's trace."""

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A step's marker, begun; None where the profiler has none."""

    def mark(self, name: str) -> Any:
        """An event, begun; None where the profiler has none."""


class OpenStep:
    """Something that began and has not ended.

    One is made for each step, traced or not, so what few of them have are the class's.

    Attributes:
        marker: Its event in the trace.
        kind: One of ``KINDS``; None while that is not known.
        name: The phase, the marker's or the function's name.
        begin_ns: When it began, by ``time.perf_counter_ns``.
        first_record: How many steps had ended then.
        was_traced: Whether a trace was being recorded then.
        step_num: Its number.
        retraced: Whether a function was traced in it.
        is_marked: Whether a capture inside this capture has marked it.
        iterations: Iterations in it.
        function: The ``tf.function`` whose call it is; None of what is no call.
        tracings: How often that had been traced before.
        failed_ns: When something in it ended with an exception; 0 for never.
        marked_ns: When its marker of ours had begun; 0 without one.
        unmarked_ns: When that had ended.
    """

    retraced = is_marked = False
    iterations = 1
    function: Any = None
    tracings = 0
    failed_ns = marked_ns = unmarked_ns = 0

    def __init__(
        self,
        marker: Any,
        kind: str | None,
        name: str,
        begin_ns: int,
        first_record: int,
        was_traced: bool,
        step_num: int,
    ) -> None:
        """It has just begun."""
        self.marker, self.kind, self.name = marker, kind, name
        self.begin_ns, self.first_record = begin_ns, first_record
        self.was_traced, self.step_num = was_traced, step_num


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

    def column(self, name: str, first: int = 0) -> array[int]:
        """One column, from a row on."""
        values: array[int] = getattr(self, name)
        return values[first:]

    def append(self, *values: int) -> None:
        """Add one row, values in the order of the attributes."""
        columns = (
            self.begin_ns,
            self.end_ns,
            self.name,
            self.kind,
            self.was_traced,
            self.retraced,
            self.iterations,
            self.step_num,
            self.run,
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
