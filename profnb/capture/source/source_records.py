"""Columns of plain values that say where the user's code was, and which line made which op.

Columns only grow while the code runs; what turns of an eager loop were is decided later.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field

LEFT, ENTERED = 0, -1
MOST_MARKS = 200_000
Shape = tuple[int | None, ...]


@dataclass
class LineRecords:
    """Lines of the user's own code that the thread of the capture was in, in time order.

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


CAPTURED = "captured"


@dataclass(frozen=True, slots=True)
class GraphShapes:
    """N ops of one graph in the order in which they were made, and its T tensors.

    Attributes:
        op_names: Names inside the graph, N.
        op_types: Types, N.
        inputs: Rows of ``shapes`` that each op takes, N.
        outputs: How many tensors each op makes, N; they follow one another in ``shapes``.
        shapes: Of each tensor, None for a dimension that is open, or for all where even their number is, T.
        dtypes: Of each tensor, "float32", T.
        settings: By row of an op: the equation of an Einsum, the window of a pooling as "1,2,2,1"; of a
            placeholder of a value that the function closes over, "captured".
        function: The name under which it runs: "__inference_step_24"; "" where that is not known.
    """

    op_names: tuple[str, ...] = ()
    op_types: tuple[str, ...] = ()
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[int, ...] = ()
    shapes: tuple[Shape | None, ...] = ()
    dtypes: tuple[str, ...] = ()
    settings: dict[int, str] = field(default_factory=dict)
    function: str = ""

    @property
    def makers(self) -> list[int]:
        """The row of the op that makes each tensor, T."""
        return [row for row, count in enumerate(self.outputs) for _ in range(count)]


@dataclass
class SourceRecords:
    """All that a capture knows of the user's source.

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
        """Tell whether some began, and all of them in Keras' own code."""
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
