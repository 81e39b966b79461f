"""What one writer's Chrome trace means: the value that each dialect's reader gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profnb.core.columns import Bools, Int64s
from profnb.trace.assemble import FoundLine, PlaneStats


@dataclass(frozen=True, slots=True)
class Reading:
    """How one writer's events become a trace's.

    Attributes:
        lines: The lines; several of them may be the same.
        thread: Row of ``lines`` of each raw event, shape (E,).
        is_event: Which raw events are events of a line, shape (E,).
        names: The events' names.
        name: Row of ``names``, shape (E,).
        is_op_name: See ``Trace``.
        derived: Stats worked out from something else than the args, by name: raw events and their values.
            Kineto's ``ProfilerStep#1009`` has ``step_num`` 1009.
        rank: Where each line stands, by line; as they are found where empty.
        planes: Planes that stand first even if they have no events: name and side.
        plane_stats: What the file says of devices, by their planes' names.
        left_out: What of the events is not understood, in sentences.
    """

    lines: list[FoundLine]
    thread: Int64s
    is_event: Bools
    names: list[str]
    name: Int64s
    is_op_name: Bools | None
    derived: dict[str, tuple[Int64s, Int64s]]
    rank: Sequence[int] = ()
    planes: Sequence[tuple[str, str]] = ()
    plane_stats: Mapping[str, PlaneStats] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def number_of(text: str) -> int:
    """The number that a process or thread is called by; 0 where it has another kind of name."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 18 else 0
