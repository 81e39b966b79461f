"""The steps that a capture saw, as columns that only grow."""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["CALL", "KERAS", "RUN", "TAPE", "USER", "Marking", "OpenStep", "StepRecords"]

KERAS, USER, CALL, RUN = "keras", "user", "call", "session run"
TAPE = "tape"  # marks where a step may begin, and is none


class Marking(Protocol):
    """What writes into a running profiler's trace."""

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A step's marker, begun; None where the profiler has none."""

    def mark(self, name: str) -> Any:
        """An event, begun; None where the profiler has none."""


@dataclass(slots=True)
class OpenStep:
    """Something that began and has not ended."""

    marker: Any
    kind: str | None
    name: str
    begin_ns: int
    first_record: int
    was_traced: bool
    step_num: int
    retraced: bool = False
    failed: bool = False
    is_marked: bool = False
    iterations: int = 1
    marked_ns: int = 0  # when its marker of ours had begun; 0 without one
    unmarked_ns: int = 0  # when that had ended


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
    kinds: tuple[str, ...] = (KERAS, USER, CALL, RUN)

    def __len__(self) -> int:
        """Rows that are whole: an interrupt may come between two columns of one."""
        return min(map(len, self._columns()))

    def _columns(self) -> tuple[array[int], ...]:
        return (
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

    def append(self, *values: int) -> None:
        """Add one row, values in the order of the attributes."""
        whole = len(self)
        for column, value in zip(self._columns(), values, strict=True):
            del column[whole:]
            column.append(value)

    def truncate(self, length: int) -> None:
        """Forget the rows from ``length`` on, and one that is not whole."""
        length = min(length, len(self))
        for column in self._columns():
            del column[length:]
