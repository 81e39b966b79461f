"""Ops whose names do not tell what they are for, by the order in which a model's step made them.

A training step makes its ops in turn: the way forward, the loss, the gradient tape's, the optimizer's weight
by weight, the metrics'. Names tell the first three. The rest follows from the order: what the optimizer makes
up to the assignment of a weight is for that weight; ops without a name scope after the optimizer's are the
metrics' (in Keras' own step), and those among the tape's belong to the way back. Among them are gradients
that a function defines itself (``swish``): if exactly one such function lies between the forward ops of the
neighbours, it is of that. A sum of gradients is made right before the gradient of the op whose output they
are of.

Only reads graphs that exist; nothing is traced.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from profnb.capture import seams
from profnb.capture.source.graph_lines import graphs_of

UPDATE, BACKWARD, METRICS = "update", "backward", "metrics"
_TAPE = "gradient_tape/"
_CUSTOM = "IdentityN"  # what tf.custom_gradient leaves in the forward pass
_SUM_OP = "AddN"
_UPDATING = "Assign", "Apply", "ResourceScatter"  # the last of single rows
_LARGEST_GRAPH, _MOST_FUNCTIONS, _MOST_GRAPHS, _MOST_WRAPPERS = 300_000, 200, 6, 8


@dataclass(frozen=True, slots=True)
class OpFact:
    """The purpose of one op.

    Attributes:
        part: ``UPDATE``, ``BACKWARD`` or ``METRICS``.
        row: The layer whose weight it updates; -1 if not known.
        scope: The name scope of the forward op that it is the gradient of; "" if not known.
    """

    part: str
    row: int = -1
    scope: str = ""


def function_graphs(model: Any) -> dict[str, list[Any]]:
    """Give the graphs of a Keras model's steps, by phase.

    A step is traced twice where the first time makes variables, and again for other shapes; which graph ran
    tell the names of the ops that did.
    """
    graphs_of_phase = {}
    for phase, seam in seams.STEP_FUNCTIONS.items():
        graphs = graphs_of(_traced(seam.of(model), 0), _MOST_FUNCTIONS)
        sizes = [len(seams.GRAPH_OPERATIONS.of(graph, tuple)()) for graph in graphs]
        if any(sizes):
            is_large = [2 * size > max(sizes) for size in sizes]
            graphs_of_phase[phase] = [*compress(graphs, is_large)][:_MOST_GRAPHS]
    return graphs_of_phase


def _traced(function: Any, depth: int) -> Iterator[Any]:
    """Yield what was traced of a function, and of the functions that it holds (Keras 3 wraps its steps)."""
    listed = seams.CONCRETE_FUNCTIONS.of(function)
    if listed is not None:
        yield from listed()
        function = seams.PYTHON_FUNCTION.of(function)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # not yet filled
            continue
        if depth < _MOST_WRAPPERS and callable(inner) and not isinstance(inner, type):
            yield from _traced(inner, depth + 1)


def handle_of(weight: Any) -> Any:
    """Give the resource that a weight is, in Keras 3 and Keras 2; None where it has none."""
    return getattr(seams.VARIABLE_VALUE.of(weight, weight), "handle", None)


def describe_ops(
    graph: Any, row_of_handle: Mapping[int, int], has_keras_step: bool
) -> dict[str, OpFact]:
    """Say what the ops of a graph are for, where their names do not tell.

    Args:
        graph: The graph of a step.
        row_of_handle: The layer of each weight, by the id of its handle.
        has_keras_step: Whether the step is Keras' own, so that what is left over is the metrics'.
    """
    operations = seams.GRAPH_OPERATIONS.of(graph, list)()
    if len(operations) > _LARGEST_GRAPH:
        return {}
    names = [(operation.name, operation.type) for operation in operations]
    back = [at for at, (name, _) in enumerate(names) if name.startswith(_TAPE)]
    first_back = min(back, default=len(names))
    last_back = max(back, default=len(names))
    updates = _find_updates(graph, operations, first_back, row_of_handle)
    facts = {names[at][0]: OpFact(UPDATE, row) for at, row in updates.items()}
    boundary = min(updates, default=min(last_back + 1, len(names)))
    facts |= _find_gradients(names, first_back, boundary)
    if has_keras_step:
        forward = (at for at in range(first_back) if not _is_unscoped(names[at][0]))
        before = range(max(forward, default=first_back) + 1, first_back)
        after = range(max(updates, default=last_back), len(names))
        left = (names[at][0] for at in (*before, *after) if _is_unscoped(names[at][0]))
        facts |= {name: OpFact(METRICS) for name in left if name not in facts}
    return facts


def _is_unscoped(name: str) -> bool:
    head, _, rest = name.partition("/")
    return not rest or (rest in ("ReadVariableOp", "resource") and head != "")


def _find_updates(
    graph: Any, operations: Sequence[Any], first: int, row_of_handle: Mapping[int, int]
) -> dict[int, int]:
    """Find the layer whose weight each of the optimizer's ops is for, by the op's place."""
    outer_of: dict[int, dict[int, Any]] = {}
    row_of_input = {
        inner.name: row_of_handle.get(id(_outermost(outer, outer_of)))
        for outer, inner in seams.CAPTURES.of(graph, ())
    }
    rows: dict[int, int] = {}
    since = first
    for at in range(first, len(operations)):
        operation = operations[at]
        is_update = any(kind in operation.type for kind in _UPDATING)
        taken = operation.inputs[0].name if is_update and len(operation.inputs) else ""
        row = row_of_input.get(taken)
        if row is None:
            continue
        scope, slash, _ = operation.name.partition("/")
        rows[at] = row
        for before in range(since, at) if slash else ():
            if operations[before].name.startswith(f"{scope}/"):
                rows[before] = row
        since = at + 1
    return rows


def _outermost(tensor: Any, outer_of: dict[int, dict[int, Any]]) -> Any:
    """Find what was given to the outermost function, of what a function was given by the one around it.

    Args:
        tensor: What a graph captured.
        outer_of: For graphs already looked at what each of their placeholders captured; filled in.
    """
    for _ in range(_MOST_WRAPPERS):
        graph = getattr(tensor, "graph", None) if hasattr(tensor, "op") else None
        if graph is None:
            break
        if id(graph) not in outer_of:
            captures = seams.CAPTURES.of(graph, ())
            outer_of[id(graph)] = {id(inner): outer for outer, inner in captures}
        outer = outer_of[id(graph)].get(id(tensor))
        if outer is None:
            break
        tensor = outer
    return tensor


def _find_gradients(
    names: Sequence[tuple[str, str]], first: int, boundary: int
) -> dict[str, OpFact]:
    """Find ops without a scope among the gradient tape's, with the forward op they are the gradient of."""
    place_of = {names[at][0]: at for at in range(first)}
    custom = [at for at in range(first) if names[at][1] == _CUSTOM]
    facts: dict[str, OpFact] = {}
    run: list[tuple[str, str]] = []
    last = first  # where in the forward pass the gradient is
    for name, kind in (*names[first:boundary], ("", "")):
        if name and _is_unscoped(name):
            run.append((name, kind))
            continue
        forward = name.removeprefix(_TAPE)  # the op that the gradient is named after
        while forward and forward not in place_of:
            forward = _scope_of(forward)
        if name and not forward:
            continue
        here = place_of.get(forward, -1)  # behind the last one, which has no name
        between = [place for place in custom if here < place < last]
        scope = _scope_of(names[between[0]][0]) if len(between) == 1 else ""
        following = _scope_of(names[here][0]) if here >= 0 else ""
        for op_name, op_type in reversed(run):
            following = following if op_type == _SUM_OP else scope
            facts[op_name] = OpFact(BACKWARD, scope=following)
        run, last = [], here
    return facts


def _scope_of(name: str) -> str:
    return name.rpartition("/")[0]
