"""Graphs to the lines that made their ops.

TensorFlow keeps with each op the Python frames that made it, already led back from AutoGraph's copies to the
original source. What is read of them is the innermost line of the user's own code. Graphs that are traced
during the capture are read as soon as a trace is complete, because a function may be gone before the capture
ends; older ones when it ends, as far as they still live. Where several lines of the user's stand one inside
the other, the innermost one is the one that called TensorFlow or Keras.

A model made of layers only has no line of the user's inside its traced function. The line that made the layer
tells more there than the call of ``fit``; it is seen for layers that are made while the capture runs, and of
older ones looked for in the text of the cells (``layer_lines``).
"""

import gc
import inspect
import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, ModuleType
from typing import Any

from profnb.capture.layer_lines import find_layer_lines
from profnb.capture.line_records import GraphLines
from profnb.capture.user_code import Places, is_user_file, user_place
from profnb.capture.watch import watch_method

__all__ = ["GraphWatch"]

_MOST_OLD_OPS, _MOST_OPS, _MOST_LAYERS = 20_000, 60_000, 5_000
_SCRATCH = ("scratch_graph", "keras_graph")  # Keras infers shapes in them; they never run
_UNSEEN = frozenset({"Const", "Placeholder", "NoOp"})  # they leave no event, or none of any length
_CALLED = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
}


class _Reading:
    """A graph, and what was read of it: frames stay as TensorFlow keeps them until the capture is over."""

    __slots__ = ("calls", "driver", "graph", "input", "name", "names", "tracebacks", "types")

    def __init__(self, graph: Any, driver: int | None) -> None:
        self.graph = weakref.ref(graph)
        self.name = ""
        self.driver = driver
        self.input: Any = None
        self.names: list[str] = []
        self.types: list[str] = []
        self.tracebacks: list[Any] = []
        self.calls: dict[str, tuple[str, ...]] = {}

    def read(self, graph: Any, most: int) -> int:
        """Take in the ops of the graph; how many."""
        self.name = str(getattr(graph, "name", ""))
        for operation in graph.get_operations():
            kind = operation.type
            if kind == "Placeholder" and self.input is None:
                self.input = operation.traceback
            if kind in _UNSEEN:
                continue
            if len(self.names) >= most:
                break
            self.names.append(operation.name)
            self.types.append(kind)
            self.tracebacks.append(operation.traceback)
            called = _CALLED.get(kind)
            if called is not None:
                names = (operation.get_attr(attribute).name for attribute in called)
                self.calls[operation.name] = tuple(map(str, names))
        return len(self.names)

    def lines(self, places: Places) -> GraphLines:
        """What was read, as a value."""
        own = tuple(_innermost(traceback, places) for traceback in self.tracebacks)
        driver = self.driver
        if driver is None and self.input is not None:
            driver = _innermost(self.input, places)  # an input is made by whoever calls
        is_outside = tuple(place == driver for place in own)
        names, types = tuple(self.names), tuple(self.types)
        return GraphLines(self.name, names, types, own, is_outside, self.calls)


def _innermost(traceback: Any, places: Places) -> int:
    for frame in reversed(traceback.get_user_frames()):
        if is_user_file(frame.filename):
            return places.row_of(frame.filename, frame.lineno or 0)
    return -1


class GraphWatch:
    """Reads the lines of graphs.

    Args:
        places: Where lines get their numbers.
    """

    def __init__(self, places: Places) -> None:
        """Nothing is watched yet."""
        self._places = places
        self._readings: list[_Reading] = []
        self._waiting: list[_Reading] = []
        self._known: set[int] = set()
        self._ops = 0
        self.layers: dict[str, int] = {}
        self.is_reading = True

    @contextmanager
    def watch(self, tensorflow: ModuleType) -> Iterator[None]:
        """See graphs being made inside the block."""
        graph_type = getattr(getattr(tensorflow, "__internal__", None), "FuncGraph", None)
        with ExitStack() as stack:
            if isinstance(graph_type, type):
                stack.enter_context(watch_method(graph_type, "__init__", after=self._graph_made))
            yield

    @contextmanager
    def watch_keras(self, keras: ModuleType) -> Iterator[None]:
        """See layers being made inside the block; ``keras`` is keras or tf_keras."""
        layer = getattr(getattr(keras, "layers", None), "Layer", None)
        with ExitStack() as stack:
            if isinstance(layer, type):
                stack.enter_context(watch_method(layer, "__init__", after=self._layer_made))
            yield

    def _layer_made(self, layer: Any) -> None:
        if not self.is_reading or len(self.layers) >= _MOST_LAYERS:
            return
        try:
            name = layer.name
        except Exception:  # noqa: BLE001 - its own __init__ has not finished; it may be anything
            return
        place = _maker(inspect.currentframe())
        if isinstance(name, str) and place is not None:
            self.layers[name] = self._places.row_of(*place)

    def _graph_made(self, graph: Any) -> None:
        if not self.is_reading:
            return
        place = user_place(inspect.currentframe())
        driver = None if place is None else self._places.row_of(*place)
        self._waiting.append(_Reading(graph, driver))
        self._known.add(id(graph))

    def read_traced(self) -> None:
        """Read the graphs that were made since the last time; call it when a trace is complete."""
        waiting, self._waiting = self._waiting, []
        for reading in waiting:
            graph = reading.graph()
            if graph is not None:
                self._read(graph, reading)

    def _read(self, graph: Any, reading: _Reading) -> None:
        try:
            self._ops += reading.read(graph, _MOST_OPS - self._ops)
        except Exception:  # noqa: BLE001 - a graph half made, or of another version's making
            return
        if reading.names and reading.name not in _SCRATCH:
            self._readings.append(reading)

    def finish(self, graph_of_runs: Any = None) -> tuple[GraphLines, ...]:
        """Read the graphs that are older than the capture, and give back all, oldest first.

        Args:
            graph_of_runs: The graph that ran in sessions, or None.
        """
        self.read_traced()
        self.is_reading = False
        traced, self._readings, self._waiting = self._readings, [], []
        self._ops = max(self._ops, _MOST_OPS - _MOST_OLD_OPS)
        func_graph = sys.modules.get("tensorflow.python.framework.func_graph")
        kind = getattr(func_graph, "FuncGraph", None)
        if graph_of_runs is not None:
            self._read(graph_of_runs, _Reading(graph_of_runs, None))
        if isinstance(kind, type):
            # A fresh list: it holds nothing longer than this call, whatever is found in it.
            living = gc.get_objects()
            for graph in [thing for thing in living if isinstance(thing, kind)]:
                if id(graph) not in self._known:
                    self._read(graph, _Reading(graph, None))
            for name, place in find_layer_lines(living).items():
                self.layers.setdefault(name, self._places.row_of(*place))
        older, self._readings = self._readings, []
        return tuple(reading.lines(self._places) for reading in (*older, *traced))


def _maker(frame: FrameType | None) -> tuple[str, int] | None:
    """The line that makes a layer: the innermost of the user's outside of ``__init__`` of layers.

    A layer of the user's own calls ``super().__init__()``; who made it stands further out.
    """
    making: object = None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__":
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_varnames else None
            making = making or first
            if first is making:
                frame = frame.f_back
                continue
        if is_user_file(code.co_filename):
            return code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None
