"""Graphs to the lines that made their ops, and the shapes of their tensors.

TensorFlow keeps with each op the Python frames that made it, already led back from AutoGraph's copies to the
original source. What is read of them is the innermost line of the user's own code, once for each stack: ops
by the thousand share some dozens. Asking for a stack takes 50 us, so graphs are read when the capture has
ended, and those of functions that were traced by then as the window closes: they may be gone at the end. One
that is gone before has no lines. What was read of a graph is kept as long as it lives. Where several lines of
the user's stand one inside the other, the innermost one is the one that called TensorFlow or Keras.

A model made of layers only has no line of the user's inside its traced function. The line that made the layer
tells more there than the call of ``fit``; it is looked for in the text of the cells (``layer_lines``).

Only reads graphs that exist; nothing is traced or worked out anew. A dimension that a graph leaves open stays
None: what it was is known only where the graph ran. What TensorFlow gives out as an op's traceback lives as
long as the graph does and no longer, so nothing of it is kept.
"""

import re
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import Any

from profnb.capture import seams
from profnb.capture.signals import OwnFaults
from profnb.capture.source.layer_lines import find_layer_lines, living_of, model_types, of_types
from profnb.capture.source.source_records import CAPTURED, GraphLines, GraphShapes
from profnb.capture.source.user_code import LineTable, is_user_file

_MOST_OPS_READ, _MOST_GRAPHS, _MOST_INPUTS = 30_000, 1_000, 1_000
_SCRATCH = re.compile(r"(?:\w+_)?scratch_graph(?:_\d+)?|keras_graph\w*")
# They leave no event, or none of any length.
_UNSEEN = frozenset({"Const", "Placeholder", "NoOp", "Identity"})
_CALLED = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
}

# The settings that decide how much an op computes and that no shape tells.
_OP_SETTINGS = {
    "Einsum": "equation",
    **dict.fromkeys(
        ("MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad", "MaxPool3D", "MaxPool3DGrad",
         "AvgPool3D", "AvgPool3DGrad"), "ksize",
    ),
}  # fmt: skip

SourceLine = tuple[str, int]  # a file, and a line of it


@dataclass(eq=False, slots=True)
class Reading:
    """A graph, and what was read of it."""

    name: str = ""
    number: int = 0
    driver: SourceLine | None = None  # the line that had the graph traced, where that is known
    names: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    places: list[SourceLine | None] = field(default_factory=list)
    calls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shapes: GraphShapes | None = None

    def read(self, graph: Any, most: int) -> None:
        """Take in the ops of the graph, so many at most."""
        self.name, self.number = str(seams.GRAPH_NAME.of(graph, "")), _number_of(graph)
        self.driver = _driver_of(graph)
        for operation in seams.GRAPH_OPERATIONS.of(graph)():
            kind = operation.type
            if kind in _UNSEEN:
                continue
            if len(self.names) >= most:
                break
            self.names.append(operation.name)
            self.types.append(kind)
            self.places.append(_innermost(operation))
            if kind in _CALLED:
                names = (operation.get_attr(attribute).name for attribute in _CALLED[kind])
                self.calls[operation.name] = tuple(map(str, names))
        with OwnFaults():  # a graph half made, or of another version's making
            self.shapes = read_shapes(graph, 2 * most) if self.names else None

    def lines(self, places: LineTable) -> GraphLines:
        """Give what was read as a value."""
        is_outside = tuple(place is not None and place == self.driver for place in self.places)
        rows = tuple(-1 if place is None else places.row_of(*place) for place in self.places)
        return GraphLines(
            self.name, tuple(self.names), tuple(self.types), rows, is_outside, self.calls
        )


# What was read of graphs that live, and how many ops they had; the names under which they run.
_runs_as: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_read_before: weakref.WeakKeyDictionary[Any, tuple[int, Reading]] = weakref.WeakKeyDictionary()


class GraphWatch:
    """Reads the lines of graphs.

    Args:
        places: Where lines get their numbers.
    """

    def __init__(self, places: LineTable) -> None:
        """Nothing is read yet."""
        self._places = places
        self._readings: list[Reading] = []
        self._taken: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._ops = 0
        self.layers: dict[str, int] = {}
        self.shapes: list[GraphShapes] = []

    def read_functions(self, functions: Iterable[Any]) -> None:
        """Read what was traced so far: some of it may be gone when the capture ends.

        Args:
            functions: The ``tf.function``s that were traced.
        """
        with OwnFaults():  # somebody's subclass may do anything
            concrete = [
                one for function in functions for one in seams.CONCRETE_FUNCTIONS.of(function)()
            ]
            _note_names(concrete)
            self._read_all(graphs_of(concrete, _MOST_GRAPHS))

    def _read_all(self, graphs: Iterable[Any]) -> None:
        """Read graphs; nothing is kept of what they share, which is looked up once."""
        try:
            for graph in graphs:
                self._read_once(graph)
        finally:
            for shared in (_own_line, _driver_of, _held):
                shared.cache_clear()

    def _read_once(self, graph: Any) -> None:
        """Read a graph once, by whatever capture, as long as no op is added to it."""
        count, left = 0, _MOST_OPS_READ - self._ops
        with OwnFaults():  # as in reading it
            count = len(seams.GRAPH_OPERATIONS.of(graph)())
        if self._taken.get(graph) == count:
            return
        self._taken[graph] = count
        read_count, reading = _read_before.get(graph, (-1, Reading()))
        if read_count != count or len(reading.names) > left:
            if left <= 0 or is_scratch(graph):
                return
            reading, is_read = Reading(), False
            with OwnFaults():  # a graph half made, or of another version's making
                reading.read(graph, left)
                is_read = True
            if not is_read:
                return
            if len(reading.names) < left:  # it was read to its end
                _read_before[graph] = count, reading
        self._ops += len(reading.names)
        self._readings += [reading] if reading.names else []
        if reading.shapes is not None:
            self.shapes.append(replace(reading.shapes, function=_runs_as.get(graph, "")))

    def finish(
        self, graph_of_runs: Any = None, models: Iterable[object] = ()
    ) -> tuple[GraphLines, ...]:
        """Read the graphs that live, and give back all, oldest first; to look for them takes 0.1 s.

        Args:
            graph_of_runs: The graph that ran in sessions, or None.
            models: The Keras models that are known to have run.
        """
        kind, concrete = seams.FUNC_GRAPH.find(), seams.CONCRETE_FUNCTION.find()
        # A fresh list: it holds nothing longer than this call, whatever is found in it. Looked through once.
        living = living_of(kind, concrete, *model_types())
        with OwnFaults():  # as above
            _note_names(of_types(living, (concrete,)))
        # One that cannot be asked for its ops any more ends the process: a collection on another thread that
        # began before its class had a ``__del__`` has taken it apart when that is called, first what Python
        # knows of it, then what C++ has.
        graphs = [one for one in of_types(living, (kind,)) if seams.GRAPH_NAME.of(one) is not None]
        # The youngest first: there may be more than will be read.
        graphs.sort(key=_number_of, reverse=True)
        self._read_all(([] if graph_of_runs is None else [graph_of_runs]) + graphs)
        # Not as they were read: a graph that died in the window may be far older than one that lives, the one
        # of a cell, say, that was edited and run again since.
        readings = sorted(self._readings, key=attrgetter("number"))
        self._readings = []
        names = {name for reading in readings for name in reading.names}
        scopes = {part for name in names for part in name.split("/")[:-1]}
        scopes |= {re.sub(r"_\d+$", "", part) for part in scopes}  # Keras 3 makes scopes unique
        for name, place in find_layer_lines(models, living, scopes).items():
            self.layers.setdefault(name, self._places.row_of(*place))
        return tuple(reading.lines(self._places) for reading in readings)


def is_scratch(graph: Any) -> bool:
    """Tell whether Keras only works out shapes in a graph, so that nothing in it ever runs."""
    return _SCRATCH.fullmatch(str(seams.GRAPH_NAME.of(graph, ""))) is not None


def graphs_of(concrete: Iterable[Any], most: int) -> list[Any]:
    """Give the graphs of traced functions, and of the functions that they call, about so many at most."""
    graphs = list(dict.fromkeys(map(seams.FUNCTION_GRAPH.of, concrete)))
    for graph in graphs:  # it grows by the functions inside
        if len(graphs) < most:
            inner = map(seams.FUNCTION_GRAPH.of, (seams.GRAPH_FUNCTIONS.of(graph) or {}).values())
            graphs += [one for one in inner if one is not None and one not in graphs]
    return graphs


def _note_names(concrete: Iterable[Any]) -> None:
    """Note the names under which graphs run, as traces have them."""
    for one in concrete:
        name = seams.FUNCTION_NAME.of(one, b"")
        text = name.decode() if isinstance(name, bytes) else str(name)
        _runs_as[seams.FUNCTION_GRAPH.of(one)] = text


@cache
def _driver_of(graph: Any) -> SourceLine | None:
    """Find the line that had a graph traced: it made the placeholders of the arguments, not of captures.

    A branch or a loop's body without any belongs to the function around it.
    """
    captured = {inner.op.name for inner in seams.INTERNAL_CAPTURES.of(graph, ())}
    for operation in seams.GRAPH_OPERATIONS.of(graph)():
        if operation.type == "Placeholder" and operation.name not in captured:
            return _innermost(operation)
    outer = seams.OUTER_GRAPH.of(graph)
    is_inside = seams.INTERNAL_CAPTURES.of(outer) is not None  # of a function
    return _driver_of(outer) if is_inside else None


def _innermost(operation: Any) -> SourceLine | None:
    """Find the innermost line of the user's own in an op's traceback."""
    return _own_line(seams.USER_FRAMES.of(seams.OP_TRACEBACK.of(operation))())


@cache  # a stack is hashed in one call of TensorFlow's; to look at it takes one for each frame
def _own_line(stack: Any) -> SourceLine | None:
    for frame in reversed(stack):
        if is_user_file(frame.filename):
            return frame.filename, frame.lineno or 0
    return None


@cache
def _held(graph: Any) -> frozenset[str]:
    """Name the placeholders of values that a function closes over, made by no op of what is around it."""
    return frozenset(
        inner.name
        for outer, inner in seams.CAPTURES.of(graph, ())
        if (around := getattr(outer, "graph", None) if hasattr(outer, "op") else None) is None
        or outer.name in _held(around)
    )


def _number_of(graph: Any) -> int:
    """Give a greater number for a later graph: TensorFlow counts them, the collector does not order them."""
    digits = "".join(filter(str.isdigit, str(seams.GRAPH_KEY.of(graph, ""))))
    return int(digits[:18] or 0)


def read_shapes(graph: Any, most: int) -> GraphShapes:
    """Take in the shapes of a graph.

    Args:
        graph: A graph of TensorFlow's.
        most: How many ops at most; of a larger graph nothing is taken.
    """
    operations = seams.GRAPH_OPERATIONS.of(graph)()
    if len(operations) > most:
        return GraphShapes()
    tensors = [(tensor, row) for row, one in enumerate(operations) for tensor in one.outputs]
    row_of = {tensor.name: number for number, (tensor, _) in enumerate(tensors)}
    captured = _held(graph)
    settings = {row: CAPTURED for tensor, row in tensors if tensor.name in captured}
    inputs: list[tuple[int, ...]] = []
    for row, operation in enumerate(operations):
        if operation.type in _OP_SETTINGS:
            value = operation.get_attr(_OP_SETTINGS[operation.type])
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            settings[row] = text if isinstance(text, str) else ",".join(map(str, text))
    for operation in operations:  # a loop's NextIteration is made after the Merge that takes it
        taken = [row_of.get(tensor.name, -1) for tensor in operation.inputs]
        inputs.append(() if len(taken) > _MOST_INPUTS else tuple(taken))
    shapes: list[Any] = [tensor.shape for tensor, _ in tensors]
    return GraphShapes(
        tuple(operation.name for operation in operations),
        tuple(operation.type for operation in operations),
        tuple(inputs),
        tuple(len(operation.outputs) for operation in operations),
        tuple(None if shape.rank is None else tuple(shape) for shape in shapes),
        tuple(tensor.dtype.name for tensor, _ in tensors),
        settings,
    )
