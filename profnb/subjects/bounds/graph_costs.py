"""The ops that a trace names to what one run of each must do.

An op of the trace is found in the graphs by its name, without the calls of functions that it was inlined
from. Libraries run several ops of a graph as one, under the name of the last:

    in the trace                             in the graph                           counted
    call/net/dense/MatMul:MatMul             net/dense/MatMul                       itself
    net/conv/Relu:_FusedConv2D               net/conv/Relu, BiasAdd, Conv2D         all three, as one
    net/conv/Conv2D:_MklNativeConv2D         net/conv/Conv2D                        itself
    net/scale/truediv:Mul                    RealDiv by a constant                  itself
    net/dense/MatMul:Transpose               MatMul                                 nothing: it is another op
    net/while/body/_7/net/while/add:AddV2    net/while/add, in the loop's body      itself
    net/ArithmeticOptimizer/Fold_x:MatMul    net/x, a MatMul                        itself

What stands between fused ops is neither read nor written. Where graphs that have the op differ (a function
that was traced again for other shapes), the one that knows most of the ops that ran counts; if several know
as many and disagree, the op has no cost. Neither has one of which the trace recorded what it allocated, and
nothing of that has the size that was worked out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from profnb.capture.source.source_records import GraphShapes, Shape
from profnb.subjects.bounds.op_costs import (
    Cost,
    OpTensors,
    Tensor,
    is_product,
    op_cost,
    op_flops,
    width_of_op,
)
from profnb.subjects.bounds.op_kinds import ELEMENTWISE, LIKE_FIRST
from profnb.subjects.bounds.recorded_shapes import without_loops
from profnb.subjects.bounds.tensor_sizes import Sizes, fill_shapes

_MKL = re.compile(r"_Mkl(?:Native)?|_(?=Fused)")
_BATCH_NORM = "FusedBatchNorm"
_WITH_BIAS = "WithBias"
_REWRITTEN = re.compile(r"(?:^|/)(?:ArithmeticOptimizer|ConstantFolding)/(?:[A-Z][A-Za-z]+_(?=.))?")
_OF_CALLS = re.compile(r"(?:(?:Stateful)?PartitionedCall|while|cond|body|then|else|if)?(?:_\d+)?")
_MOST_FUSED, _FARTHEST, _MOST_OPS = 24, 2_000, 400_000
_HANDED_ON = frozenset({"Identity", "StopGradient", "PreventGradient", "CheckNumerics", "Snapshot"})


def _plain_type(op_type: str) -> tuple[str, bool]:
    """A type as the graph has it, and whether the op does more than that one."""
    plain = _MKL.sub("", op_type, count=1)
    if plain.startswith(_BATCH_NORM):
        base = plain.removesuffix("Ex")
        return (base, False) if base == plain else (base + "V3", True)
    is_fused = plain.startswith("Fused") and op_type.startswith("_")
    plain = plain.removeprefix("Fused") if is_fused else plain
    return plain.removesuffix(_WITH_BIAS), is_fused


class GraphCosts:
    """One graph's ops and what each must do.

    Args:
        graph: The graph.
        batch_size: Examples of one iteration; None where not known.
        recorded: The distinct shapes of what ops allocated, by the op's name.
    """

    def __init__(
        self, graph: GraphShapes, batch_size: int | None, recorded: Mapping[str, Sequence[Sizes]]
    ) -> None:
        """Fill in the shapes."""
        self._graph, self._recorded = graph, recorded
        self._shapes: list[Shape | None] = fill_shapes(graph, batch_size, recorded)
        self._first: list[int] = []
        self._maker: list[int] = []  # the op that makes each tensor
        for row, count in enumerate(graph.outputs):
            self._first.append(len(self._maker))
            self._maker.extend([row] * count)

    def cost(self, row: int, op_type: str) -> Cost | None:
        """What one run of the op of a row does, which the trace calls a type; None where not known."""
        if not self._fits_what_was_recorded(row):
            return None
        plain, is_fused = _plain_type(op_type)
        graph_type = self._graph.op_types[row]
        if is_fused:
            return self._fused(row, plain)
        is_alike = plain in ELEMENTWISE and graph_type in ELEMENTWISE and plain != "AddN"
        if plain != graph_type and not is_alike:
            return None
        return op_cost(self._tensors(row))

    def _fits_what_was_recorded(self, row: int) -> bool:
        """Whether an op can have made what is worked out, where the trace says what it allocated."""
        recorded = self._recorded.get(self._graph.op_names[row], ())
        made = self._tensors(row).outputs
        return not (recorded and made and made[0].count is not None) or any(
            prod(sizes) == one.count for sizes in recorded for one in made
        )

    def _tensors(self, row: int) -> OpTensors:
        graph, first = self._graph, self._first[row]
        made = range(first, first + graph.outputs[row])
        return OpTensors(
            graph.op_types[row],
            [self._tensor(at) for at in graph.inputs[row]],
            [self._tensor(at) for at in made],
            graph.settings.get(row, ""),
        )

    def _tensor(self, at: int) -> Tensor:
        if at < 0:
            return Tensor(at, None, "")
        return Tensor(at, self._shapes[at], self._graph.dtypes[at])

    def _fused(self, row: int, kind: str) -> Cost | None:
        """What an op does that runs those from the nearest one of a kind up to the op of a row as one."""
        rows = self._rows_up_to(row, kind)
        if rows is None:
            return None
        flops, moved = 0.0, 0.0
        read: dict[int, Tensor] = {}
        for at in rows:
            op = self._tensors(at)
            if op.kind not in _HANDED_ON:
                done = op_flops(op)
                if done is None:
                    return None
                flops += done
            read |= {one.row: one for one in op.inputs if self._made_by(one.row) not in rows}
        written = self._tensors(row).outputs[:1]
        for one in (*read.values(), *written):
            if one.nbytes is None:
                return None
            moved += one.nbytes
        base = self._tensors(rows[0])
        return Cost(flops, moved, width_of_op(base), is_product(kind))

    def _made_by(self, tensor: int) -> int:
        return self._maker[tensor] if tensor >= 0 else -1

    def _rows_up_to(self, row: int, kind: str) -> list[int] | None:
        """The nearest op of a kind before one, the ops between them, and that one; None if there is none.

        Between them lies only what works element by element.
        """
        came_from: dict[int, int] = {row: -1}
        level = [row]
        while level and len(came_from) < _MOST_FUSED:
            rows_of_kind = [at for at in level if self._graph.op_types[at] == kind]
            if len(rows_of_kind) > 1:
                return None
            if rows_of_kind and not 0 <= row - rows_of_kind[0] < _FARTHEST:
                return None
            if rows_of_kind:
                return self._between(rows_of_kind[0], row)
            following = []
            for at in level:
                if self._graph.op_types[at] not in ELEMENTWISE | LIKE_FIRST:
                    continue
                for tensor in self._graph.inputs[at]:
                    maker = self._made_by(tensor)
                    if maker >= 0 and maker not in came_from:
                        came_from[maker] = at
                        following.append(maker)
            level = following
        return None

    def _between(self, first: int, last: int) -> list[int]:
        """The ops on every way from one to another, which were made in this order."""
        rows = {first}
        for at in range(first + 1, last + 1):
            if any(self._made_by(tensor) in rows for tensor in self._graph.inputs[at]):
                rows.add(at)
        needed = {last}
        for at in sorted(rows, reverse=True):
            if at in needed:
                needed.update(self._made_by(t) for t in self._graph.inputs[at])
        return sorted(rows & needed)


def find_costs(
    ops: Iterable[tuple[str, str]],
    graphs: Sequence[GraphShapes],
    batch_size: int | None,
    recorded: Mapping[str, Sequence[Sizes]],
) -> dict[tuple[str, str], Cost]:
    """What one run of each op does, of the ops of which that is known.

    Args:
        ops: Names and types, as the trace has them.
        graphs: The graphs that may have run.
        batch_size: Examples of one iteration; None where not known.
        recorded: The distinct shapes of what ops allocated, by the op's name without calls.
    """
    rows: dict[str, list[tuple[int, int]]] = {}
    for at, graph in enumerate(graphs):
        for row, name in enumerate(graph.op_names):
            rows.setdefault(name, []).append((at, row))
    places: dict[tuple[str, str], list[tuple[int, int]]] = {}
    op_counts: dict[int, int] = {}
    for key in dict.fromkeys(ops):
        rows_of_paths = (rows[path] for path in _paths(key[0]) if path in rows)
        places[key] = next(rows_of_paths, [])
        for at, _ in places[key]:
            op_counts[at] = op_counts.get(at, 0) + 1
    counted: dict[int, GraphCosts] = {}
    left = _MOST_OPS
    for at in sorted(op_counts, key=lambda at: (-op_counts[at], -at)):
        left -= len(graphs[at].op_names)
        if left >= 0:
            counted[at] = GraphCosts(graphs[at], batch_size, recorded)
    costs: dict[tuple[str, str], Cost] = {}
    for key, standing in places.items():
        each = [
            (op_counts[at], counted[at].cost(row, key[1])) for at, row in standing if at in counted
        ]
        scored_costs = [(score, cost) for score, cost in each if cost is not None]
        best = max((score for score, _ in scored_costs), default=0)
        distinct = {cost for score, cost in scored_costs if score == best}
        if len(distinct) == 1:
            costs[key] = distinct.pop()
    return costs


def _paths(name: str) -> Iterable[str]:
    """The name, and what is left of it without the functions and loops that it was inlined from."""
    yield name
    plain = without_loops(name)
    if plain != name:
        yield plain
    rewritten = _REWRITTEN.search(plain)
    if rewritten:
        scope, rest = plain[: rewritten.start()], plain[rewritten.end() :]
        yield f"{scope}/{rest}" if scope else rest
        return
    parts = name.split("/")
    for first in range(1, min(len(parts), _MOST_FUSED)):
        if not _OF_CALLS.fullmatch(parts[first - 1]):
            return
        yield "/".join(parts[first:])
