"""Loops of Python's that a traced function wrote out: each of their turns is in the graph as ops of its own.

In a program of JAX's most operations then are of the same lines, again and again.

Two ops do the same to other data where their types, their shapes and, all the way up, their inputs do; of
constants and variables only the shapes count, of arguments which they are. Turns of a loop do so unless one
needs another: then each has one turn more above it, as each layer of a chain has.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate, compress

import numpy as np

from profnb.capture.source.source_records import CAPTURED, GraphShapes
from profnb.capture.source.user_code import is_user_file
from profnb.causes.numbers import FEWEST, QUARTER
from profnb.causes.starving import long_ops_share
from profnb.core.printable import printable
from profnb.subjects.advising import line_text, period_ps, share_of
from profnb.subjects.bounds.op_costs import locate_ops
from profnb.subjects.ops.op_execution import Loop
from profnb.subjects.study import Study

_STARTS_NOTHING = {"Const", "Identity", "NoOp", "Placeholder"}
_OF_DATASETS = "Dataset_"
_IN_ROUNDS = re.compile("threefry|random|erf_inv")
_GIVE_NEXT = {"IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue"}
_SPLIT = {"Unpack", "Split", "SplitV"}
_UPDATING = "Assign", "ResourceApply"
_MOVES = {
    "parameter", "constant", "get-tuple-element", "tuple", "broadcast", "bitcast", "copy", "iota", "reshape",
    "transpose", "convert",
}  # fmt: skip
_FEWEST_TURNS = 2 * FEWEST  # so many columns of a table, or layers, are written one by one


def find_unrolled(study: Study) -> Loop | None:
    """Find the written-out loop of most ops; its share is of what starting and running short ops takes."""
    steps_ps = float(study.steps.duration_ps[study.summary.counted].sum())
    if not steps_ps:
        return None
    graphs = [one for one in _graphs_that_ran(study) if _OF_DATASETS not in one.function]
    turns = [_turns(graph) for graph in graphs]
    at = max(range(len(graphs)), key=lambda row: len(turns[row]), default=None)
    if at is None or not turns[at]:
        return None
    chosen, turns_of = _with_updates(graphs[at], turns[at]), turns[at]
    shares = []
    for unseen in (_STARTS_NOTHING, {"Placeholder"}):  # what a step starts, and what tracing makes
        of_graphs = [[kind not in unseen for kind in graph.op_types] for graph in graphs]
        shares.append(sum(compress(chosen, of_graphs[at])) / max(map(sum, of_graphs)))
    short = max(share_of(study, "host compute") - long_ops_share(study), 0.0)
    share = min(shares[0] * short * period_ps(study) / steps_ps, 1.0)
    times, nothing = Counter(turns_of.values()).most_common(1)[0][0], np.zeros(0, np.int64)
    line = _line_of(study, graphs[at], turns_of)
    return Loop(times, share, 0.0, is_recurrent=False, others=nothing, traced=shares[1], line=line)


def _graphs_that_ran(study: Study) -> list[GraphShapes]:
    """The graphs a quarter of whose ops ran: others are of models that are still there, with names alike."""
    ops, graphs = study.bounds.ops, study.bounds.graphs
    places = locate_ops(zip(ops.op_name, ops.op_type, strict=True), graphs).values()
    ran = Counter(at for standing in places for at, _ in standing)
    starts = [sum(kind not in _STARTS_NOTHING for kind in graph.op_types) for graph in graphs]
    return [graph for at, graph in enumerate(graphs) if ran[at] >= QUARTER * starts[at]]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A loop that tracing wrote out, whose turns need one another.

    Attributes:
        turns: How many there are.
        traced: The share of the graph's ops that they are.
        layers: The scopes that they are in; "" for none.
    """

    turns: int
    traced: float
    layers: tuple[str, ...]


def find_recurrence(study: Study) -> Recurrence | None:
    """Find the largest graph that reads the same weights in each turn of a loop that was written out.

    All in the scope of what reads them is of the turns, with its gradients. Optimizers read single numbers
    for each variable.
    """
    if not any(map(_weights_read_often, study.bounds.graphs)):
        return None
    loops = []
    for graph in _graphs_that_ran(study):
        if often := _weights_read_often(graph):
            layers = {posixpath.commonpath(map(posixpath.dirname, names)) for names in often}
            of_layers = sum(
                any(not at or f"/{at}/" in f"/{name}" for at in layers) for name in graph.op_names
            )
            size, turns = len(graph.op_names), max(map(len, often))
            loops.append((size, turns, of_layers / size, tuple(sorted(layers))))
    return Recurrence(*max(loops)[1:]) if loops else None


def _weights_read_often(graph: GraphShapes) -> list[list[str]]:
    """The names of the ops that read a weight, for each that more read than are written one by one."""
    reads, ends = dict[int, list[str]](), accumulate(graph.outputs)
    ops = zip(graph.op_names, graph.op_types, graph.inputs, ends, strict=True)
    for name, op_type, taken, end in ops:
        if op_type == "ReadVariableOp" and graph.shapes[end - 1]:
            reads.setdefault(taken[0], []).append(name)
    return [names for names in reads.values() if len(names) > _FEWEST_TURNS]


def find_unrolled_program(study: Study) -> tuple[float, str]:
    """Find what of JAX's programs one file of the user's made line by line again, and its line.

    What XLA copies from fusion to fusion counts with what it was copied from. Random numbers are many equal
    rounds by themselves.

    Returns:
        The share of the programs' operations, 0 where that is less than half of the largest one's.
    """
    modules = list(study.xla.hlo.modules.values())
    module = max(modules, key=len, default=None)
    if not study.program.is_jax or module is None:
        return 0.0, ""
    sizes, lines_of = module.shapes.elements.tolist(), module.source_lines.tolist()
    made = Counter(
        (module.op_names[row], opcode, module.source_files[row], lines_of[row], sizes[row])
        for row in range(len(module))
        if (opcode := module.opcodes[row]) not in _MOVES
    )
    lines = Counter[tuple[str, int]]()
    for (name, _, file, line, _), times in made.items():
        if times > _FEWEST_TURNS and is_user_file(file) and not _IN_ROUNDS.search(name):
            lines[file, line] += times
    if 2 * lines.total() <= made.total():
        return 0.0, ""
    (file, line), _ = lines.most_common(1)[0]
    of_module = len(module) / sum(map(len, modules))
    return of_module * lines.total() / made.total(), printable(line_text(study, file, line))


def _turns(graph: GraphShapes) -> dict[str, int]:
    """The ops of the turns of a loop, by name, and how many turns there were."""
    ends = list(accumulate(graph.outputs))
    numbers, values = dict[object, int](), dict[object, int]()
    nothing: tuple[int, object, bool] = (-1, -1, False)
    # What it does, what value it is, whether it is of data.
    of_tensor = [nothing] * len(graph.dtypes)
    of_op = []
    for row, op_type in enumerate(graph.op_types):
        made = slice(ends[row] - graph.outputs[row], ends[row])
        taken = [of_tensor[tensor] if tensor >= 0 else nothing for tensor in graph.inputs[row]]
        shapes, is_constant, is_next = graph.shapes[made], op_type == "Const", op_type in _GIVE_NEXT
        is_held = "resource" in graph.dtypes[made] or graph.settings.get(row) == CAPTURED
        is_source = is_next or not (taken or is_constant or is_held)
        is_data = is_source or any(data for _, _, data in taken)
        what = op_type, shapes, tuple(number for number, _, _ in taken), is_source and row
        number = numbers.setdefault(what, len(numbers))
        # Of the same values the same comes out, and TensorFlow works it out once. Two numbers may be one.
        is_one_value = taken or (is_constant and shapes == ((),))
        value = op_type, shapes, tuple(same for _, same, _ in taken), None if is_one_value else row
        same = values.setdefault(value, len(values))
        of_op.append((number if is_data and op_type not in _STARTS_NOTHING else -1, same))
        outputs = range(made.start, made.stop)
        each = [number] * len(outputs)
        if op_type not in _SPLIT and len(outputs) > 1:  # what one op makes is not alike
            each = [numbers.setdefault((number, at - made.start), len(numbers)) for at in outputs]
        pairs = zip(each, outputs, strict=True)
        of_tensor[made] = [(one, (same, at - made.start), is_data) for one, at in pairs]
        if op_type == "IdentityN":
            of_tensor[made] = taken
        if is_next:  # each is an argument of its own
            of_tensor[made] = [(-2 - at, -2 - at, True) for at in outputs]
    times = Counter(number for number, _ in set(of_op))
    is_turn = [number >= 0 and times[number] > _FEWEST_TURNS for number, _ in of_op]
    return {
        name: times[of_op[row][0]] for row, name in compress(enumerate(graph.op_names), is_turn)
    }


def _with_inputs(graph: GraphShapes, names: Collection[str]) -> list[bool]:
    """Mark some ops of a graph, and all that nothing but these need: constants, what reads a variable."""
    maker = graph.makers
    is_chosen, is_needed, by_others = ([False] * len(graph.op_names) for _ in range(3))
    for row in reversed(range(len(graph.op_names))):
        only_chosen = is_needed[row] and not by_others[row]
        is_chosen[row] = graph.op_names[row] in names or only_chosen
        for tensor in graph.inputs[row]:
            if tensor >= 0:
                marks = is_needed if is_chosen[row] else by_others
                marks[maker[tensor]] = True
    return is_chosen


def _with_updates(graph: GraphShapes, names: Collection[str]) -> list[bool]:
    """Mark some ops, what only these need, and what updates a variable that one of them alone reads."""
    chosen = _with_inputs(graph, names)
    reads = [
        taken[0]
        for is_chosen, op_type, taken in zip(chosen, graph.op_types, graph.inputs, strict=True)
        if is_chosen and op_type == "ReadVariableOp"
    ]
    unshared = {tensor for tensor, times in Counter(reads).items() if times == 1}
    updates = {
        name
        for name, op_type, taken in zip(graph.op_names, graph.op_types, graph.inputs, strict=True)
        if op_type.startswith(_UPDATING) and unshared.intersection(taken)
    }
    return _with_inputs(graph, {*names, *updates})


def _line_of(study: Study, of: GraphShapes, ops: Collection[str]) -> str:
    """The user's line that made most of some ops of a graph; other graphs have ops of their names, too."""
    source, every = study.recording.source, set(of.op_names)
    lines = Counter[tuple[str, int]]()
    for graph in source.graphs if source is not None else ():
        if source is not None and every.issuperset(graph.op_names):
            made = zip(graph.op_names, graph.places, graph.is_outside, strict=True)
            lines.update(
                source.places[place]
                for name, place, is_outside in made
                if place >= 0 and not is_outside and name in ops
            )
    (place, _), *_ = lines.most_common(1) or [(("", 0), 0)]
    return printable(line_text(study, *place))
