"""Graphs to the lines that made their ops.

TensorFlow keeps with each op the Python frames that made it, already led back from AutoGraph's copies to the
original source. What is read of them is the innermost line of the user's own code. Reading them takes 30 us
an op, so graphs are read when the capture has ended; one that dies before is read as it dies, in a
``__del__`` that its class has while the capture runs. What was read of graphs that are older than a capture
is kept as long as they live: the next capture would read all of them again. Where several lines of the user's
stand one inside the other, the innermost one is the one that called TensorFlow or Keras.

A model made of layers only has no line of the user's inside its traced function. The line that made the layer
tells more there than the call of ``fit``; it is seen for layers that are made while the capture runs, and of
older ones looked for in the text of the cells (``layer_lines``).
"""

import gc
import inspect
import re
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from types import FrameType
from typing import Any

from profnb.capture.library import Library
from profnb.capture.seams import (
    FUNC_GRAPH,
    FUNC_GRAPH_DEL,
    FUNC_GRAPH_INIT,
    GRAPH_NAME,
    GRAPH_OPERATIONS,
    LAYER_INIT,
)
from profnb.capture.signals import OwnFaults, raise_later, signal_of
from profnb.capture.source.graph_reading import Place, Reading, is_whole, number_of
from profnb.capture.source.graph_shapes import GraphShapes, read_shapes
from profnb.capture.source.layer_lines import find_layer_lines, model_types, of_types
from profnb.capture.source.source_records import GraphLines
from profnb.capture.source.user_code import Places, is_user_file, user_place

__all__ = ["GraphWatch"]

_MOST_OLD_OPS, _MOST_OPS, _MOST_LAYERS = 10_000, 30_000, 5_000
_SCRATCH = ("scratch_graph", "keras_graph")  # Keras infers shapes in them; they never run

# What was read of graphs that were older than a capture, and how many ops they had.
_older: weakref.WeakKeyDictionary[Any, tuple[int, Reading]] = weakref.WeakKeyDictionary()


class GraphWatch:
    """Reads the lines of graphs.

    Args:
        places: Where lines get their numbers.
    """

    def __init__(self, places: Places) -> None:
        """Nothing is watched yet."""
        self._places = places
        self._readings: list[Reading] = []
        self._drivers: dict[int, Place | None] = {}  # who traced each living graph, by its id
        self._ops = 0
        self.layers: dict[str, int] = {}
        self.shapes: list[GraphShapes] = []
        self.is_reading = True

    @contextmanager
    def watch(self, tensorflow: Library) -> Iterator[None]:
        """See graphs being made inside the block."""
        before = FUNC_GRAPH_DEL.of(tensorflow.take(FUNC_GRAPH))

        def graph_dies(graph: Any) -> None:
            try:
                with OwnFaults():
                    self._graph_dies(graph)
            except BaseException as error:  # noqa: BLE001 - of a signal: nothing can be raised from here
                raise_later(error, graph)
            if before is not None:
                before(graph)

        with ExitStack() as stack:
            stack.enter_context(tensorflow.watch(FUNC_GRAPH_INIT, after=self._graph_made))
            stack.enter_context(tensorflow.replace(FUNC_GRAPH_DEL, graph_dies))
            yield

    @contextmanager
    def watch_keras(self, keras: Library) -> Iterator[None]:
        """See layers being made inside the block."""
        with keras.watch(LAYER_INIT, after=self._layer_made):
            yield

    def _layer_made(self, layer: Any) -> None:
        if not self.is_reading or len(self.layers) >= _MOST_LAYERS:
            return
        try:
            name = layer.name
        except Exception as error:  # its own __init__ has not finished; it may be anything
            if signal_of(error):
                raise
            return
        place = _maker(inspect.currentframe())
        if isinstance(name, str) and place is not None:
            self.layers[name] = self._places.row_of(*place)

    def _graph_made(self, graph: Any) -> None:
        if self.is_reading:
            self._drivers[id(graph)] = user_place(inspect.currentframe())

    def _graph_dies(self, graph: Any) -> None:
        """Nothing refers to a graph any more; it is whole until this returns."""
        driver = self._drivers.pop(id(graph), None)
        if self.is_reading and is_whole(graph):
            self._read(graph, driver)

    def _read(self, graph: Any, driver: Place | None) -> Reading | None:
        if self._ops >= _MOST_OPS or GRAPH_NAME.of(graph) in _SCRATCH:
            return None
        reading, most = Reading(driver), _MOST_OPS - self._ops
        try:
            self._ops += reading.read(graph, most)
        except Exception as error:  # a graph half made, or of another version's making
            if signal_of(error):
                raise
            return None
        with OwnFaults():  # likewise
            reading.shapes = read_shapes(graph, 2 * most) if reading.names else None
        self._take(reading)
        return reading

    def _take(self, reading: Reading) -> None:
        if reading.names:
            self._readings.append(reading)
        if reading.shapes is not None:
            self.shapes.append(reading.shapes)

    def _read_older(self, graph: Any) -> None:
        """A graph that no capture saw made: read once, as long as no op is added to it."""
        count = 0
        with OwnFaults():  # as in reading it
            count = len(GRAPH_OPERATIONS.of(graph)())
        read_count, reading = _older.get(graph, (-1, None))
        if (
            reading is not None
            and read_count == count
            and self._ops + len(reading.names) <= _MOST_OPS
        ):
            self._ops += len(reading.names)
            self._take(reading)
            return
        reading = self._read(graph, None)
        if reading is not None and self._ops < _MOST_OPS:  # it was read to its end
            _older[graph] = count, reading

    def finish(
        self, graph_of_runs: Any = None, models: Iterable[object] = ()
    ) -> tuple[GraphLines, ...]:
        """Read the graphs that are older than the capture, and give back all, oldest first.

        Args:
            graph_of_runs: The graph that ran in sessions, or None.
            models: The Keras models that are known to have run.
        """
        self.is_reading = False
        kind = FUNC_GRAPH.find()
        kinds = (kind,) if isinstance(kind, type) else ()
        # A fresh list: it holds nothing longer than this call, whatever is found in it. Looked through once.
        living = of_types(gc.get_objects(), (*kinds, *model_types()))
        graphs = [graph for graph in of_types(living, kinds) if is_whole(graph)]
        if graph_of_runs is not None:
            self._read(graph_of_runs, None)
        for graph in graphs:
            if id(graph) in self._drivers:
                self._read(graph, self._drivers[id(graph)])
        self._ops = max(self._ops, _MOST_OPS - _MOST_OLD_OPS)
        # The youngest first: there may be more than will be read.
        for graph in sorted(graphs, key=number_of, reverse=True):
            if id(graph) not in self._drivers:
                self._read_older(graph)
        # Not as they were read: a graph that died in the window may be far older than one that lives, the one
        # of a cell, say, that was edited and run again since.
        readings = sorted(self._readings, key=attrgetter("number"))
        self._readings = []
        names = {name for reading in readings for name in reading.names}
        scopes = {part for name in names for part in name.split("/")[:-1]}
        scopes |= {re.sub(r"_\d+$", "", part) for part in scopes}  # Keras 3 makes scopes unique
        for name, place in find_layer_lines(models, living, scopes).items():
            self.layers.setdefault(name, self._places.row_of(*place))
        self._drivers.clear()
        return tuple(reading.lines(self._places) for reading in readings)


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
