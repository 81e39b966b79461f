"""Where the user's code was, and which line made which op: columns of plain values."""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field

from profnb.capture.source.graph_shapes import GraphShapes  # noqa: TC001 - read as it runs

LEFT, ENTERED = 0, -1


@dataclass
class LineRecords:
    """Where the thread of the capture was in the user's own code, in time order.

    Attributes:
        time_ns: When, by the clock ``time.perf_counter_ns``.
        code: Row of ``files``: the function or block of code. Two of them may share a file.
        line: The line that begins to run; ``ENTERED`` where the function is entered (anew), ``LEFT`` where
            it returns, yields, or is left by an exception. Code that raises thousands of exceptions a second
            is no longer told of those.
        files: The file of each function.
        is_sampled: Whether rows are samples, each a line or ``LEFT`` for none of the user's, and not every
            line that began.
        untimed: Lines that ran so often that they were no longer recorded one by one, as (file, line).
        is_cut: Whether recording stopped early: there were too many rows, or another tool took over.
    """

    time_ns: array[int] = field(default_factory=lambda: array("q"))
    code: array[int] = field(default_factory=lambda: array("i"))
    line: array[int] = field(default_factory=lambda: array("i"))
    files: list[str] = field(default_factory=list)
    is_sampled: bool = False
    untimed: list[tuple[str, int]] = field(default_factory=list)
    is_cut: bool = False

    def __len__(self) -> int:
        return len(self.time_ns)

    def end(self, time_ns: int) -> None:
        """Say until when the last line lasted at least."""
        self.time_ns.append(time_ns)
        self.code.append(-1)
        self.line.append(LEFT)


@dataclass
class StackRecords:
    """Samples of one thread's stack, in time order.

    Attributes:
        begin_ns: When sampling began, by the clock ``time.perf_counter_ns``.
        time_ns: When each sample was taken; it stands for the time since the one before.
        stack: Row of ``stacks``.
        stacks: Rows of ``frames`` of each stack, the outermost first; profnb's own are left out.
        frames: (function, file, the function's first line, the line that was running).
        base: How many frames of each stack called what was looked at.
    """

    begin_ns: int = 0
    time_ns: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("i"))
    stacks: list[tuple[int, ...]] = field(default_factory=list)
    frames: list[tuple[str, str, int, int]] = field(default_factory=list)
    base: int = 0

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True)
class GraphLines:
    """The ops of one graph and the lines that made them.

    Attributes:
        name: The traced function's name.
        op_names: Names inside the graph, N.
        op_types: Types, N.
        places: Row of ``SourceRecords.places`` per op: the innermost line of the user's; -1 for none, N.
        is_outside: Whether that line lies outside of the traced function, as when ``fit`` traces a model that
            is made of layers only, N.
        calls: Which functions an op calls (a function call, a loop, a branch), by the op's name.
    """

    name: str
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    places: tuple[int, ...]
    is_outside: tuple[bool, ...]
    calls: dict[str, tuple[str, ...]]


@dataclass
class SourceRecords:
    """What a capture knows of the user's source.

    Attributes:
        places: (file, line) of each place.
        lines: Where the user's code was.
        graphs: The graphs that were traced during the capture or still lived when it ended, oldest first.
        layers: The place at which a layer was made, by the layer's name; during the capture only.
        texts: The lines of each file.
        cells: The number of the cell that each file stands for, where it is one.
        shapes: The shapes of the same graphs, of those that are not too large.
    """

    places: list[tuple[str, int]] = field(default_factory=list)
    lines: LineRecords = field(default_factory=LineRecords)
    graphs: tuple[GraphLines, ...] = ()
    layers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)
    shapes: tuple[GraphShapes, ...] = ()
