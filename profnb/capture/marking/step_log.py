"""Steps as they end, written down by one append each, and what else a few exact counters know of a cell."""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field

from profnb.capture.step_records import StepRecords

__all__ = ["KerasRunSeen", "StepLog"]

_COLUMNS = (
    "begin_ns", "end_ns", "name", "kind", "was_traced", "retraced", "iterations", "step_num", "run",
)  # fmt: skip
_WIDTH, _TRACED = len(_COLUMNS), _COLUMNS.index("was_traced")


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
    """What the counters of one thread have seen.

    A row is appended at once, so an interrupt leaves no half of one.

    Attributes:
        names: Distinct names of steps.
        ended_at: How many steps had ended as each of Keras' epochs did.
        ended_epoch: Which epoch of its ``fit`` that was; the first one is 1.
        runs: Keras' runs, in the order in which they began.
        failed: Steps that ended with an exception: name, begin and end by ``time.perf_counter_ns``.
    """

    names: list[str] = field(default_factory=list)
    ended_at: list[int] = field(default_factory=list)
    ended_epoch: list[int] = field(default_factory=list)
    runs: list[KerasRunSeen] = field(default_factory=list)
    failed: list[tuple[str, int, int]] = field(default_factory=list)
    _cells: array[int] = field(default_factory=lambda: array("q"))
    _codes: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH

    def code_of(self, name: str) -> int:
        """The row of a name in ``names``."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self.names)
            self.names.append(name)
        return code

    def append(self, row: tuple[int, ...]) -> None:
        """Add a step: the columns of ``StepRecords``, in their order."""
        self._cells.extend(row)

    def truncate(self, length: int) -> None:
        """Forget the steps from one on."""
        del self._cells[length * _WIDTH :]

    def column(self, name: str, first: int = 0) -> array[int]:
        """One column, from a row on."""
        return self._cells[first * _WIDTH + _COLUMNS.index(name) :: _WIDTH]

    def forget_traced(self) -> None:
        """What was traced so far is of a trace that nobody will see."""
        self._cells[_TRACED::_WIDTH] = array("q", bytes(8 * len(self)))

    def mark_traced(self, begin_ns: int, end_ns: int) -> None:
        """All steps that lie in a span of time were traced, by somebody's profiler."""
        spans = zip(self.column("begin_ns"), self.column("end_ns"), strict=True)
        is_inside = (int(begin_ns <= begin and end <= end_ns) for begin, end in spans)
        self._cells[_TRACED::_WIDTH] = array("q", is_inside)

    def records(self) -> StepRecords:
        """The steps so far, as columns of their own."""
        steps = StepRecords(
            names=list(self.names),
            ended_at=array("q", self.ended_at),
            ended_epoch=array("q", self.ended_epoch),
        )
        for name in _COLUMNS:
            getattr(steps, name).extend(self.column(name).tolist())
        return steps
