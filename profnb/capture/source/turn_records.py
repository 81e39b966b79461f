"""Where turns of eager loops may have begun, as columns that only grow; what they were is decided later."""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field

MOST_MARKS = 200_000


@dataclass
class TurnRecords:
    """Moments at which a turn of an eager loop may have begun, traced or not, in order.

    Attributes:
        begin_ns: When, by the clock ``time.perf_counter_ns``.
        place: A number for the calls that led there.
        iterator: A number for the iterator of tf.data that was asked for its next element; -1 where a
            ``GradientTape`` was entered.
        was_traced: 1 where a trace was being recorded then.
        end_ns: When the code ended; 0 before.
        library_places: The places that are Keras' own code: a layer's ``adapt`` loops over a dataset.
    """

    begin_ns: array[int] = field(default_factory=lambda: array("q"))
    place: array[int] = field(default_factory=lambda: array("i"))
    iterator: array[int] = field(default_factory=lambda: array("i"))
    was_traced: array[int] = field(default_factory=lambda: array("b"))
    end_ns: int = 0
    library_places: list[int] = field(default_factory=list)

    @property
    def are_library(self) -> bool:
        """Whether some began, and all of them in Keras' own code."""
        return len(self) > 0 and set(self.place) <= set(self.library_places)

    def __len__(self) -> int:
        return len(self.begin_ns)

    def add(self, begin_ns: int, place: int, iterator: int, was_traced: bool) -> None:
        """Add one."""
        if len(self) < MOST_MARKS:
            self.begin_ns.append(begin_ns)
            self.place.append(place)
            self.iterator.append(iterator)
            self.was_traced.append(was_traced)
