"""Graphs to the lines that made their ops.

TensorFlow keeps with each op the Python frames that made it, already led back from AutoGraph's copies to the
original source. What is read of them is the innermost line of the user's own code. Reading them takes 30 us
an op, so graphs are read when the capture has ended, and those of functions that were traced by then as the
window closes: they may be gone at the end. One that is gone before has no lines. What was read of a graph is
kept as long as it lives. Where several lines of the user's stand one inside the other, the innermost one is
the one that called TensorFlow or Keras.

A model made of layers only has no line of the user's inside its traced function. The line that made the layer
tells more there than the call of ``fit``; it is looked for in the text of the cells (``layer_lines``).
"""

import gc
import re
import weakref
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from profnb.capture.seams import (
    CONCRETE_FUNCTIONS,
    FUNC_GRAPH,
    FUNCTION_GRAPH,
    GRAPH_FUNCTIONS,
    GRAPH_NAME,
    GRAPH_OF,
    GRAPH_OPERATIONS,
)
from profnb.capture.signals import OwnFaults, signal_of
from profnb.capture.source.graph_reading import Reading, is_whole, number_of
from profnb.capture.source.graph_shapes import GraphShapes, read_shapes
from profnb.capture.source.layer_lines import find_layer_lines, model_types, of_types
from profnb.capture.source.source_records import GraphLines
from profnb.capture.source.user_code import Places

_MOST_OPS, _MOST_GRAPHS = 30_000, 1_000
_SCRATCH = ("scratch_graph", "keras_graph")  # Keras infers shapes in them; they never run

# What was read of graphs that live, and how many ops they had.
_read_before: weakref.WeakKeyDictionary[Any, tuple[int, Reading]] = weakref.WeakKeyDictionary()


class GraphWatch:
    """Reads the lines of graphs.

    Args:
        places: Where lines get their numbers.
    """

    def __init__(self, places: Places) -> None:
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
            concrete = [one for function in functions for one in CONCRETE_FUNCTIONS.of(function)()]
            graphs = [FUNCTION_GRAPH.of(one) for one in concrete]
            for graph in graphs:  # it grows by the functions inside
                if len(graphs) < _MOST_GRAPHS:
                    inner = (GRAPH_OF.of(one) for one in GRAPH_FUNCTIONS.of(graph, {}).values())
                    graphs += [one for one in inner if one is not None and one not in graphs]
                self._read_once(graph)

    def _read(self, graph: Any) -> Reading | None:
        if self._ops >= _MOST_OPS or GRAPH_NAME.of(graph) in _SCRATCH:
            return None
        reading, most = Reading(), _MOST_OPS - self._ops
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

    def _read_once(self, graph: Any) -> None:
        """A graph is read once, by whatever capture, as long as no op is added to it."""
        count = 0
        with OwnFaults():  # as in reading it
            count = len(GRAPH_OPERATIONS.of(graph)())
        if self._taken.get(graph) == count:
            return
        self._taken[graph] = count
        read_count, reading = _read_before.get(graph, (-1, None))
        if (
            reading is not None
            and read_count == count
            and self._ops + len(reading.names) <= _MOST_OPS
        ):
            self._ops += len(reading.names)
            self._take(reading)
            return
        reading = self._read(graph)
        if reading is not None and self._ops < _MOST_OPS:  # it was read to its end
            _read_before[graph] = count, reading

    def finish(
        self, graph_of_runs: Any = None, models: Iterable[object] = (), *, has_run: bool = True
    ) -> tuple[GraphLines, ...]:
        """Read the graphs that live, and give back all, oldest first.

        Args:
            graph_of_runs: The graph that ran in sessions, or None.
            models: The Keras models that are known to have run.
            has_run: Whether a graph or a model may have run; to look for those that live takes 0.1 s.
        """
        if not has_run:
            return ()
        kind = FUNC_GRAPH.find()
        kinds = (kind,) if isinstance(kind, type) else ()
        # A fresh list: it holds nothing longer than this call, whatever is found in it. Looked through once.
        living = of_types(gc.get_objects(), (*kinds, *model_types()))
        graphs = [graph for graph in of_types(living, kinds) if is_whole(graph)]
        if graph_of_runs is not None:
            self._read(graph_of_runs)
        # The youngest first: there may be more than will be read.
        for graph in sorted(graphs, key=number_of, reverse=True):
            self._read_once(graph)
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
