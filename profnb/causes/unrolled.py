"""Loops of Python's that a traced function wrote out: each of their turns is in the graph as ops of its own.

In a program of JAX's most operations then are of the same lines, again and again.

Two ops do the same to other data where their types, their shapes and, all the way up, their inputs do; of
constants and variables only the shapes count, of arguments which they are. Turns of a loop do so unless one
needs another: then each has one turn more above it, as each layer of a chain has.
"""

from collections import Counter
from collections.abc import Collection
from itertools import accumulate, compress
from operator import itemgetter

import numpy as np

from profnb.capture.source.source_records import CAPTURED, GraphShapes, SourceRecords
from profnb.capture.source.user_code import file_title
from profnb.causes.numbers import FEWEST
from profnb.causes.starving import long_ops_share
from profnb.core.printable import printable
from profnb.subjects.advising import period_ps, share_of
from profnb.subjects.ops.op_execution import Loop
from profnb.subjects.study import Study

_STARTS_NOTHING = {"Const", "Identity", "NoOp", "Placeholder"}
_GIVE_NEXT = {"IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue"}
_MOVES = {
    "parameter", "constant", "get-tuple-element", "tuple", "broadcast", "bitcast", "copy", "iota", "reshape",
    "transpose", "convert",
}  # fmt: skip
_FEWEST_TURNS = (
    2 * FEWEST
)  # so many columns of a table, or steps of a network, are written one by one


def find_unrolled(study: Study) -> Loop | None:
    """Find the written-out loop of most ops; its share is of what starting and running short ops takes."""
    most, of_ops, turns_of = 0.0, 0.0, dict[str, int]()
    for graph in study.bounds.graphs:
        if made := _turns(graph):
            is_starting = [op_type not in _STARTS_NOTHING for op_type in graph.op_types]
            is_made = [op_type != "Placeholder" for op_type in graph.op_types]
            with_inputs = _with_inputs(graph, made)
            traced, started = (
                sum(compress(with_inputs, which)) / sum(which) for which in (is_made, is_starting)
            )
            most, of_ops, turns_of = max(
                (most, of_ops, turns_of), (traced, started, made), key=itemgetter(0)
            )
    if not turns_of or not study.summary.counted.size:
        return None
    steps_ps = float(study.steps.duration_ps[study.summary.counted].sum())
    short = max(share_of(study, "host compute") - long_ops_share(study), 0.0)
    short *= period_ps(study) / steps_ps
    turns, nothing = Counter(turns_of.values()).most_common(1)[0][0], np.zeros(0, np.int64)
    line = _line_of(study.recording.source, turns_of)
    return Loop(
        turns, most * short, 0.0, is_recurrent=False, others=nothing, traced=most, line=line
    )


def find_unrolled_program(study: Study) -> tuple[float, str]:
    """Find what of JAX's largest program one line made again and again, and that line; 0 for less than half.

    What XLA copies from fusion to fusion counts with what it was copied from.
    """
    module = max(study.xla.hlo.modules.values(), key=len, default=None)
    if not study.program.is_jax or module is None:
        return 0.0, ""
    sizes, lines_of = module.shapes.elements.tolist(), module.source_lines.tolist()
    made = Counter(
        (
            module.opcodes[row],
            module.op_names[row],
            module.source_files[row],
            lines_of[row],
            sizes[row],
        )
        for row in range(len(module))
        if module.opcodes[row] not in _MOVES
    )
    again = Counter({what: times for what, times in made.items() if times > _FEWEST_TURNS})
    if 2 * again.total() <= made.total():
        return 0.0, ""
    lines = Counter[tuple[str, int]]()
    for (_, _, file, line, _), times in again.items():
        lines[file, line] += times
    (file, line), _ = lines.most_common(1)[0]
    source = study.recording.source
    title = f"{file_title(file, source.cells if source is not None else {})}:{line}"
    return again.total() / made.total(), printable(title) if file else ""


def _turns(graph: GraphShapes) -> dict[str, int]:
    """The ops of the turns of a loop, by name, and how many turns there were."""
    ends = list(accumulate(graph.outputs))
    numbers: dict[object, int] = {}
    of_tensor = [(-1, False)] * len(graph.dtypes)  # what it does, and whether it does so to data
    of_op = []
    for row, op_type in enumerate(graph.op_types):
        made = slice(ends[row] - graph.outputs[row], ends[row])
        taken = [of_tensor[tensor] if tensor >= 0 else (-1, False) for tensor in graph.inputs[row]]
        is_held = "resource" in graph.dtypes[made] or graph.settings.get(row) == CAPTURED
        is_source = op_type in _GIVE_NEXT or not (taken or op_type == "Const" or is_held)
        is_data = is_source or any(data for _, data in taken)
        what = op_type, graph.shapes[made], tuple(number for number, _ in taken), is_source and row
        number = numbers.setdefault(what, len(numbers))
        of_op.append(number if is_data and op_type not in _STARTS_NOTHING else -1)
        of_tensor[made] = [(number, is_data)] * graph.outputs[row]
    times = Counter(of_op)
    is_turn = [number >= 0 and times[number] > _FEWEST_TURNS for number in of_op]
    return {name: times[of_op[row]] for row, name in compress(enumerate(graph.op_names), is_turn)}


def _with_inputs(graph: GraphShapes, names: Collection[str]) -> list[bool]:
    """Mark some ops of a graph, and all that nothing but these need: constants, what reads a variable."""
    maker = [row for row, count in enumerate(graph.outputs) for _ in range(count)]
    is_chosen, is_needed, by_others = ([False] * len(graph.op_names) for _ in range(3))
    for row in reversed(range(len(graph.op_names))):
        only_chosen = is_needed[row] and not by_others[row]
        is_chosen[row] = graph.op_names[row] in names or only_chosen
        for tensor in graph.inputs[row]:
            if tensor >= 0:
                marks = is_needed if is_chosen[row] else by_others
                marks[maker[tensor]] = True
    return is_chosen


def _line_of(source: SourceRecords | None, ops: Collection[str]) -> str:
    lines = Counter[tuple[str, int]]()
    for graph in source.graphs if source is not None else ():
        for name, place, is_outside in zip(
            graph.op_names, graph.places, graph.is_outside, strict=True
        ):
            if source is not None and place >= 0 and not is_outside and name in ops:
                lines[source.places[place]] += 1
    if source is None or not lines:
        return ""
    (file, line), _ = lines.most_common(1)[0]
    return printable(f"{file_title(file, source.cells)}:{line}")
