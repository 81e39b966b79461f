"""One graph of TensorFlow's, read: its ops with the lines that made them, and the functions that they call.

What TensorFlow gives out as an op's traceback lives as long as the graph does and no longer, so nothing of it
is kept.
"""

from typing import TYPE_CHECKING, Any

from profnb.capture.seams import (
    GRAPH_KEY,
    GRAPH_NAME,
    GRAPH_OPERATIONS,
    INTERNAL_CAPTURES,
    OP_TRACEBACK,
    OUTER_GRAPH,
    USER_FRAMES,
)
from profnb.capture.source.source_records import GraphLines
from profnb.capture.source.user_code import Places, is_user_file

if TYPE_CHECKING:
    from profnb.capture.source.graph_shapes import GraphShapes

_DEEPEST = 20
# They leave no event, or none of any length.
_UNSEEN = frozenset({"Const", "Placeholder", "NoOp", "Identity"})
_CALLED = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
}

Place = tuple[str, int]  # a file, and a line of it


class Reading:
    """A graph, and what was read of it."""

    __slots__ = ("calls", "driver", "name", "names", "number", "places", "shapes", "types")

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.name = ""
        self.number = 0
        self.driver: Place | None = None  # the line that had the graph traced, where that is known
        self.names: list[str] = []
        self.types: list[str] = []
        self.places: list[Place | None] = []
        self.calls: dict[str, tuple[str, ...]] = {}
        self.shapes: GraphShapes | None = None

    def read(self, graph: Any, most: int) -> int:
        """Take in the ops of the graph; how many."""
        self.name, self.number = str(GRAPH_NAME.of(graph, "")), number_of(graph)
        self.driver = _driver_of(graph)
        alike: dict[Place | None, Place | None] = {}
        for operation in GRAPH_OPERATIONS.of(graph)():
            kind = operation.type
            if kind in _UNSEEN:
                continue
            if len(self.names) >= most:
                break
            place = _innermost(OP_TRACEBACK.of(operation))
            self.names.append(operation.name)
            self.types.append(kind)
            self.places.append(alike.setdefault(place, place))
            called = _CALLED.get(kind)
            if called is not None:
                names = (operation.get_attr(attribute).name for attribute in called)
                self.calls[operation.name] = tuple(map(str, names))
        return len(self.names)

    def lines(self, places: Places) -> GraphLines:
        """What was read, as a value."""
        row_of = {place: places.row_of(*place) for place in dict.fromkeys(self.places) if place}
        is_outside = tuple(place is not None and place == self.driver for place in self.places)
        rows = tuple(-1 if place is None else row_of[place] for place in self.places)
        return GraphLines(
            self.name, tuple(self.names), tuple(self.types), rows, is_outside, self.calls
        )


def _driver_of(graph: Any) -> Place | None:
    """The line that had a graph traced: it made the placeholders of the arguments, not those of captures.

    A branch or a loop's body without any belongs to the function around it.
    """
    for _ in range(_DEEPEST):
        captured = {inner.op.name for inner in INTERNAL_CAPTURES.of(graph, ())}
        for operation in GRAPH_OPERATIONS.of(graph)():
            if operation.type == "Placeholder" and operation.name not in captured:
                return _innermost(OP_TRACEBACK.of(operation))
        graph = OUTER_GRAPH.of(graph)
        if INTERNAL_CAPTURES.of(graph) is None:  # not inside of a function
            return None
    return None


def _innermost(traceback: Any) -> Place | None:
    """The innermost line of the user's own in an op's traceback."""
    for frame in reversed(USER_FRAMES.of(traceback)()):
        if is_user_file(frame.filename):
            return frame.filename, frame.lineno or 0
    return None


def is_whole(graph: Any) -> bool:
    """Whether the graph of a function can still be asked for its ops; one that cannot ends the process.

    A collection on another thread that began before its class had a ``__del__`` has taken it apart when that
    is called: first what Python knows of it, then what C++ has.
    """
    return GRAPH_NAME.of(graph) is not None


def number_of(graph: Any) -> int:
    """Greater for a graph that was made later; TensorFlow numbers them, the collector does not order them."""
    digits = "".join(filter(str.isdigit, str(GRAPH_KEY.of(graph, ""))))
    return int(digits[:18] or 0)
