"""Names of ops to the source lines that made them.

A trace names an op by its path through the functions that it was inlined from; a graph knows its own ops, and
which functions they call. The path is followed from call to call, beginning in the function that was running:

    source line                   graph of step              graph of while_body_7
    3  y = tf.matmul(x, w)        MatMul
    4  while tf.norm(y) > 1:      while, calls while_body_7
    5      y = tf.matmul(y, w)                               while/MatMul
    9  tape.gradient(y, w)        gradient_tape/MatMul/MatMul_1

    op in the trace               followed                                          source line
    MatMul                        step: MatMul                                      3
    while/body/_14/while/MatMul   step: while; while_body_7: while/MatMul           5
    MatMul-0-CastToFp16           step: MatMul, which Grappler renamed              3
    gradient_tape/MatMul/MatMul_1 step: itself (line 9), and MatMul in its name     3, asked for at 9

Where Grappler has renamed an op, the name it was made from is taken, or the op whose scope it lies in.

A gradient op is made by the tape, but caused by a forward op: ``gradient_tape/dense/MatMul/MatMul_1``
carries the scope that was open when the forward op was made, ``gradients/dense/MatMul_grad/MatMul`` that
op's name. Both source lines are given; the forward one only where no other could be meant.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, takewhile
from typing import NamedTuple

from profnb.capture.source.source_records import GraphLines, SourceRecords
from profnb.core.columns import group
from profnb.subjects.input.iterators import NOT_INPUT, OP_VERSION
from profnb.trace.names import without_number

_REWRITTEN = re.compile(r"(?:^|/)(?:ArithmeticOptimizer|ConstantFolding)/")
_STAGE = re.compile(r"[A-Z][A-Za-z]+_(?=.)")
_ADDED = re.compile(r"-\d+-[^/]*$")  # ...-0-CastToFp16-AutoMixedPrecision, ...-LayoutOptimizer
_BRANCH = re.compile(r"(?:body|cond|then|else)/_\d+/")
_OF_CALLS = re.compile(r"(?:(?:Stateful)?PartitionedCall|while|cond|body|then|else|if)?(?:_\d+)?")
_FUNCTION = re.compile(r"__(?:inference|forward)_(.+?)(?:_\d+)?$")
# How TensorFlow names the functions that are given to tf.data: Dataset_map_parse, reduce_add.
_DATASET_FUNCTIONS, _INPUT = "Dataset_", ("Dataset_", "reduce_")
_LONGEST_OP, _MOST_PATHS, _MOST_PATH_STEPS = 1_000, 100, 2_000_000
_MOST_SCOPES = 6
_TAPE_SCOPE = re.compile(r"(?:^|/)gradient_tape/")
_GRADIENTS_SCOPE = re.compile(r"(?:^|/)gradients/((?:(?!_grad/).)+)_grad/")


class GraphOps:
    """A graph's ops by name.

    Attributes:
        lines: The graph.
        layers: The layer of each scope that is one.
        rows: Row of each op by its name.
        made: Of forward ops, one row per place, by scope and type.
        inside: Likewise, by each scope around them.
    """

    def __init__(self, lines: GraphLines, layers: dict[str, int]) -> None:
        """Index a graph; ``layers`` are the places of layers by name."""
        self.lines = lines
        parts = {part for name in lines.op_names for part in name.split("/")} if layers else set()
        self.layers = _name_layers(parts, layers)
        self.rows = {name: row for row, name in enumerate(lines.op_names)}
        self.made: dict[str, dict[str, dict[int, int]]] = {}
        self.inside: dict[str, dict[int, int]] = {}
        for row, name in enumerate(lines.op_names):
            if forward_of(name) is not None:
                continue
            scope, place = name.rpartition("/")[0], lines.places[row]
            of_type = self.made.setdefault(scope, {}).setdefault(lines.op_types[row], {})
            of_type.setdefault(place, row)
            while scope:
                self.inside.setdefault(scope, {}).setdefault(place, row)
                scope = scope.rpartition("/")[0]


def _name_layers(parts: set[str], layers: dict[str, int]) -> dict[str, str]:
    """Name the layer that each scope of a graph is.

    A scope carries the layer's name, or that with a number where it was taken: ``dense_1`` is either the
    layer of that name or a second scope of ``dense``. It is the former unless ``dense_1`` has a scope that
    can be no other's, as ``dense_1_2``.
    """
    waiting = {
        part: names
        for part in sorted(parts)
        if (names := [n for n in dict.fromkeys((part, without_number(part))) if n in layers])
    }
    named: dict[str, str] = {}
    while waiting:
        taken = set(named.values())
        free = {part: [n for n in names if n not in taken] for part, names in waiting.items()}
        sure = [part for part, names in waiting.items() if len(names) == 1 or len(free[part]) < 2]
        for part in sure or list(waiting)[:1]:
            named[part] = (free[part] or waiting[part])[0]
            del waiting[part]
    return named


def forward_of(name: str) -> tuple[str, bool] | None:
    """Read what the forward op of a gradient op is called: (its scope or name, whether it is a name)."""
    scopes = _GRADIENTS_SCOPE.findall(name)
    if scopes:
        return scopes[-1], True
    parts = _TAPE_SCOPE.split(name)
    return (parts[-1].rpartition("/")[0], False) if len(parts) > 1 else None


def is_gradient_of(op_type: str, forward: str) -> bool:
    """Tell whether ops of a type are made for the gradient of another: ReluGrad, Conv2DBackpropInput."""
    plain = OP_VERSION.sub("", forward)
    is_like = len(plain) > 2 and op_type.startswith(plain) and op_type != forward
    return is_like and ("Grad" in op_type or "Backprop" in op_type)


class OpLine(NamedTuple):
    """The lines that an op comes from; places are rows of ``SourceRecords.places``, -1 for none."""

    place: int = -1  # the source line that its time belongs to
    tape: int = -1  # the source line that asked for the gradient, where it is a gradient op
    is_backward: bool = False  # whether it is a gradient op
    has_graph: bool = False  # whether the capture has its graph
    # whether no line of the user's lies inside the traced function, so that the line that was running says
    # more than ``place``
    is_outside: bool = False
    is_tape_outside: bool = False  # likewise of ``tape``


NOWHERE = OpLine()


_GraphOp = tuple[GraphOps, int]
"""A graph, and the row of an op in it."""


class LineIndex:
    """Finds the source lines of ops; the table at the top of this file has an example."""

    def __init__(self, records: SourceRecords) -> None:
        """Index the graphs; of two with the same name the later one is looked at first."""
        self._layers = records.layers
        self._graphs = [GraphOps(lines, records.layers) for lines in records.graphs]
        self._by_name: dict[str, list[GraphOps]] = {}
        self._anywhere: dict[str, _GraphOp | None] = {}  # None where two functions may be meant
        for graph in self._graphs:
            self._by_name.setdefault(graph.lines.name, []).insert(0, graph)
            if not graph.lines.name.startswith(_DATASET_FUNCTIONS):
                self._note_anywhere(graph)
        self._of_iterator: dict[int, list[GraphOps]] = {}
        self._of_input = [g for g in self._graphs[::-1] if g.lines.name.startswith(_INPUT)]
        self._steps_left = _MOST_PATH_STEPS  # after which calls are no longer followed
        self.find = cache(self._find)

    def _note_anywhere(self, graph: GraphOps) -> None:
        for name, row in graph.rows.items():
            if noted := self._anywhere.setdefault(name, (graph, row)):
                other, at = noted[0].lines, noted[1]
                is_same = other.places[at] == graph.lines.places[row]
                is_anew = other.name == graph.lines.name  # traced anew: the later one
                self._anywhere[name] = (graph, row) if is_same or is_anew else None

    def note_input(self, ops: Iterable[tuple[int, str]]) -> None:
        """Choose the function of each iterator of tf.data.

        It is the one that has most of the ops that ran for the iterator, and the fewest others. ``ops`` are
        (iterator, name).
        """
        for node, of_node in group(ops).items():
            graphs: dict[tuple[int, int], list[GraphOps]] = {}
            for graph in self._of_input:
                count = sum(self._follow(graph, name, set()) is not None for name in of_node)
                graphs.setdefault((count, -len(graph.rows)), []).append(graph)
            best = max(graphs, default=(0, 0))
            self._of_iterator[node] = graphs[best] if best[0] else []

    def _find(self, name: str, function: str, input_of: int = NOT_INPUT) -> OpLine:
        """Find the lines that the op of this name comes from.

        ``function`` is the traced one that was running, ``__inference_train_step_123``, "" if not known;
        ``input_of`` as of ``find_input_work``.
        """
        if len(name) > _LONGEST_OP:  # no op of a program: it would only cost time
            return NOWHERE
        paths = _names(name)
        if input_of > NOT_INPUT:
            graphs = self._of_iterator.get(input_of, self._of_input)
            located = (self._locate_input(path, graphs) for path in paths)
        else:
            located = (self._locate(path, function) for path in paths)
        graph_op = next(filter(None, located), None)
        backward = forward_of(name)
        if graph_op is None:
            return NOWHERE if backward is None else OpLine(is_backward=True)
        graph, row = graph_op
        place, is_outside = graph.lines.places[row], graph.lines.is_outside[row]
        backward = forward_of(graph.lines.op_names[row]) or backward
        is_backward = backward is not None
        is_tape_outside = is_outside and is_backward
        tape = place if is_backward else -1
        path = name
        if backward is not None:
            path = f"{backward[0]}/"
            if forward := self._forward(*backward, graph.lines.op_types[row], graph):
                made, at = forward[0].lines, forward[1]
                if made.places[at] >= 0 and not made.is_outside[at]:
                    place, is_outside = made.places[at], False
        if is_outside or place < 0:  # the line that made the innermost layer
            parts = reversed(path.split("/")[:-1])
            layer = next((graph.layers[part] for part in parts if part in graph.layers), None)
            if layer is not None and self._layers[layer] >= 0:
                place, is_outside = self._layers[layer], False
        return OpLine(place, tape, is_backward, True, is_outside, is_tape_outside)  # noqa: FBT003

    def _graphs_of(self, function: str) -> list[GraphOps]:
        match = _FUNCTION.match(function)
        plain = match[1] if match and function not in self._by_name else function
        return self._by_name.get(plain, [])

    def _locate_input(self, path: str, graphs: Sequence[GraphOps]) -> _GraphOp | None:
        """The op in a function that was given to tf.data, unless two of them may be meant."""
        seen: set[tuple[str, str]] = set()
        followed = [one for graph in graphs if (one := self._follow(graph, path, seen))]
        places = {graph.lines.places[row] for graph, row in followed}
        return followed[0] if len(places) == 1 else None

    def _locate(self, path: str, function: str) -> _GraphOp | None:
        seen: set[tuple[str, str]] = set()
        followed = (self._follow(graph, path, seen) for graph in self._graphs_of(function))
        parts = path.split("/")
        calls = list(takewhile(_OF_CALLS.fullmatch, parts[:-1]))  # the rest may stand anywhere
        rests = ("/".join(parts[first:]) for first in range(len(calls) + 1))
        return next(filter(None, chain(followed, map(self._anywhere.get, rests))), None)

    def _follow(self, graph: GraphOps, path: str, seen: set[tuple[str, str]]) -> _GraphOp | None:
        """The op at a path that begins in this graph and may lead into functions that it calls.

        ``seen`` are functions and paths from there that were looked at: there may be hundreds of graphs of a
        function that is traced again and again, and all call the same ones.
        """
        if path in graph.rows:
            return graph, graph.rows[path]
        at = path.find("/") if graph.lines.calls else -1
        while at >= 0 and self._steps_left > 0:
            self._steps_left -= 1
            for called in graph.lines.calls.get(path[:at], ()):
                rest = _BRANCH.sub("", path[at + 1 :], count=1)
                if (called, rest) in seen or len(seen) > _MOST_PATHS:
                    continue
                seen.add((called, rest))
                inner = (self._follow(callee, rest, seen) for callee in self._graphs_of(called))
                if graph_op := next(filter(None, inner), None):
                    return graph_op
            at = path.find("/", at + 1)
        return None

    def _forward(self, scope: str, is_op: bool, op_type: str, graph: GraphOps) -> _GraphOp | None:
        """The forward op that a gradient op was made for, if no other can be meant."""
        if scope in graph.rows:
            return graph, graph.rows[scope]
        if is_op:
            return self._anywhere.get(scope)
        made = graph.made.get(scope, {}).items()
        related = dict(chain(*(of.items() for kind, of in made if is_gradient_of(op_type, kind))))
        for rows_of_places in (related, graph.inside.get(scope, {})):
            if len(rows_of_places) == 1:
                return graph, next(iter(rows_of_places.values()))
        return None


def _names(name: str) -> Iterable[str]:
    """The name, and those it may have had before Grappler: by its rules, then of the scopes around it."""
    yield name
    plain = _ADDED.sub("", name)
    if match := _REWRITTEN.search(plain):
        scope, rest = plain[: match.start()], plain[match.end() :]
        plain = "/".join(part for part in (scope, _STAGE.sub("", rest, count=1)) if part)
    if plain != name:
        yield plain
    scope = plain
    for _ in range(min(scope.count("/"), _MOST_SCOPES)):
        scope = scope.rpartition("/")[0]
        if _OF_CALLS.fullmatch(scope.rpartition("/")[2]):
            return  # a call is not what an op inside of it was made for
        yield scope
