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

_MOST_OLD_OPS, _MOST_OPS, _MOST_LAYERS = 20_000, 200_000, 5_000
_SCRATCH = ("scratch_graph", "keras_graph")  # Keras infers shapes in them; they never run
_UNSEEN = frozenset({"Const", "Placeholder", "NoOp"})  # they leave no event, or none of any length
_CALLED = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
}


class _Reading:
    """A graph that is being traced, and what was read of it so far."""

    __slots__ = ("calls", "driver", "graph", "is_outside", "names", "places", "seen", "types")

    def __init__(self, graph: Any, driver: int | None) -> None:
        self.graph = weakref.ref(graph)
        self.driver = driver
        self.seen = 0
        self.names: list[str] = []
        self.types: list[str] = []
        self.places: list[int] = []
        self.is_outside: list[bool] = []
        self.calls: dict[str, tuple[str, ...]] = {}

    def lines(self, name: str) -> GraphLines:
        """What was read, as a value."""
        return GraphLines(
            name, tuple(self.names), tuple(self.types), tuple(self.places),
            tuple(self.is_outside), self.calls,
        )  # fmt: skip


class GraphWatch:
    """Reads the lines of graphs.

    Args:
        places: Where lines get their numbers.
    """

    def __init__(self, places: Places) -> None:
        """Nothing is watched yet."""
        self._places = places
        self._readings: list[tuple[str, _Reading]] = []
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
        self.read_traced()
        place = user_place(inspect.currentframe())
        driver = None if place is None else self._places.row_of(*place)
        self._waiting.append(_Reading(graph, driver))
        self._known.add(id(graph))

    def read_traced(self) -> None:
        """Read what has been added to graphs since the last time; call it when a trace is complete."""
        still: list[_Reading] = []
        for reading in self._waiting:
            graph = reading.graph()
            if graph is None:
                continue
            self._read(graph, reading)
            still.append(reading)
        self._waiting = still

    def _read(self, graph: Any, reading: _Reading) -> None:
        try:
            operations = graph.get_operations()
            for operation in operations[reading.seen :]:
                if self._ops >= _MOST_OPS:
                    break
                self._read_op(operation, reading)
            if not reading.seen and operations:
                self._readings.append((str(getattr(graph, "name", "")), reading))
            reading.seen = len(operations)
        except Exception:  # noqa: BLE001 - a graph half made, or of another version's making
            return

    def _read_op(self, operation: Any, reading: _Reading) -> None:
        kind = operation.type
        if kind == "Placeholder" and reading.driver is None:
            reading.driver = self._innermost(operation)  # an input is made by whoever calls
        if kind in _UNSEEN:
            return
        self._ops += 1
        place = self._innermost(operation)
        reading.names.append(operation.name)
        reading.types.append(kind)
        reading.places.append(place)
        reading.is_outside.append(place == reading.driver)
        called = _CALLED.get(kind)
        if called is not None:
            names = (operation.get_attr(attribute).name for attribute in called)
            reading.calls[operation.name] = tuple(map(str, names))

    def _innermost(self, operation: Any) -> int:
        for frame in reversed(operation.traceback.get_user_frames()):
            if is_user_file(frame.filename):
                return self._places.row_of(frame.filename, frame.lineno or 0)
        return -1

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
        read = (*older, *traced)
        return tuple(own.lines(name) for name, own in read if own.names and name not in _SCRATCH)


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
