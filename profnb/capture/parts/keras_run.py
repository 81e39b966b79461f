"""A ``fit``, ``evaluate`` or ``predict`` on the clock's stack, and where it stands between its batches."""

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_stack import Open, Place

__all__ = ["BETWEEN", "EPOCH_END", "INSIDE", "START", "Run"]

START, INSIDE, BETWEEN, EPOCH_END = range(4)
_RUN = "run"
_BATCHES = {
    "fit": (parts.TRAIN, "fit"),
    "validation": (parts.VALIDATION, "fit"),
    "evaluate": (parts.EVALUATION, "evaluate"),
    "predict": (parts.PREDICT, "predict"),
}


class Run(Open):
    """A ``fit``, ``evaluate`` or ``predict``, and where it stands between its batches."""

    __slots__ = (
        "around_ns", "cut", "first", "has_stepped", "has_validated", "is_again", "method", "state",
    )  # fmt: skip

    def __init__(self, name: str, method: str, begin_ns: int, place: Place, *, again: bool) -> None:
        """It has just been called."""
        super().__init__(_RUN, name, begin_ns, place)
        self.method, self.state, self.is_again = method, START, again
        self.has_stepped = self.has_validated = False
        self.cut: Open | None = None  # a batch that raised: it failed, or the data had run out
        self.first: tuple[Open, str] | None = (
            None  # its first batch, if nothing was traced; its part
        )
        self.around_ns = 0

    def go_on(self) -> None:
        """It did not end with the batch that raised, so there was no data for that."""
        if self.cut is not None:
            self.self_ns += self.cut.self_ns
            self.cut = None

    @property
    def part_now(self) -> str:
        """What its time since the last batch is."""
        if self.state == EPOCH_END:
            return parts.EPOCH_ENDS
        return parts.GAPS if self.state == BETWEEN else parts.AROUND

    @property
    def batches_row(self) -> tuple[str, str]:
        """The row that its batches are charged to, as part and name."""
        return _BATCHES[self.name]
