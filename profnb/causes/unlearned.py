"""Work of the steps that depends on nothing that is learned, by the edges of their graphs.

What comes from an argument or an iterator is the data's; what comes from a variable that the graph changes is
learned, and so is all behind it; random numbers count as learned, as they are others each time. What is the
data's alone is the same of an example in each epoch: layers that are not trained, targets made one-hot. What
is neither is the same in each step: a matrix that is normalised in each call.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import commonpath

import numpy as np

from profnb.capture.source.source_records import CAPTURED, GraphShapes
from profnb.causes.numbers import LEAST_SHARE
from profnb.core.columns import Bools
from profnb.core.printable import printable
from profnb.subjects.advising import share_of
from profnb.subjects.bounds.op_costs import locate_ops
from profnb.subjects.layers.layer_rows import OTHERS
from profnb.subjects.study import Study
from profnb.trace.names import parse_op

SAME, DATA, LEARNED = range(3)
_CHANGING_OPS = re.compile(
    r"^(?:Resource(?!Gather)|Assign|(?:Stateful)?PartitionedCall$|(?:Stateless)?(?:While|If)$|Scatter)"
)
_DRAWS = re.compile(
    r"Random(?!Shuffle)|TruncatedNormal|Multinomial|Rng|PyFunc|^Stateful|^While$|^If$"
)
_LEARNS = re.compile(r"(?:^|/)gradient_tape/")


@dataclass(frozen=True, slots=True)
class Unlearned:
    """Ops that are the same each time.

    Attributes:
        share: What they take of the time from step to step.
        layers: The layers that they are of, "conv1 to conv5", or the model that holds them; "" where most of
            their time is of none.
        count: How many layers have weights.
        line: The line that made most of them; "" where that is not known.
    """

    share: float
    layers: str
    count: int
    line: str


def find_unlearned(study: Study, kinds: Sequence[int]) -> Iterator[tuple[int, Unlearned]]:
    """Find the ops of the steps that are the same of the same data, or always.

    Args:
        study: The trace.
        kinds: ``DATA``, ``SAME``.

    Yields:
        Of each kind what is worth saying; of ``DATA`` nothing where the input draws numbers.
    """
    ops, graphs = study.bounds.ops, study.bounds.graphs
    rows = np.flatnonzero(ops.is_device == study.program.has_device).tolist() if graphs else []
    keys = {row: (ops.op_name[row], ops.op_type[row]) for row in rows}
    places = locate_ops(keys.values(), graphs)
    whole = max(int(ops.self_ps[rows].sum()), 1)
    computing = share_of(study, study.program.computing)
    for kind in kinds:
        levels = [_levels(graph, kind) for graph in graphs]
        chosen = {
            key
            for key, standing in places.items()
            if standing and all(levels[at][row] == kind for at, row in standing)
        }
        took = sum(int(ops.self_ps[row]) for row, key in keys.items() if key in chosen)
        share = took / whole * computing
        if share >= LEAST_SHARE and not (kind == DATA and _input_draws(study)):
            work = _describe(study, chosen, took, share)
            if work.share >= LEAST_SHARE:
                yield kind, work


def _describe(study: Study, chosen: set[tuple[str, str]], took: int, share: float) -> Unlearned:
    """Say which layers or line the chosen ops are of, which took so many picoseconds.

    What lies inside of a layer that learns (an LSTM turns its input about first) is nobody's to take out.
    """
    table = study.layers.table
    runs, counted = study.ops.runs, study.summary.counted
    within = study.events_of(counted)
    is_chosen = np.array([key in chosen for key in runs.keys], np.bool_)[runs.code]
    within[runs.events[~is_chosen]] = False
    part = study.layers.table_of(counted, within)
    of_layer = dict(zip(part.layer, part.total_ps.tolist(), strict=True))
    paths = [
        path
        for path, ps in zip(table.layer, table.total_ps.tolist(), strict=True)
        if 0 < ps < 2 * of_layer.get(path, 0) and path not in OTHERS
    ]
    facts = {at.path: at for model in study.recording.models for at in model.layers}
    weighty = [path for path in paths if path in facts and facts[path].parameters]
    learning = [at.path for at in facts.values() if at.is_trainable]
    whole_of = {path for path in facts if not any(at.startswith(f"{path}/") for at in learning)}
    is_of_layers = 2 * sum(of_layer[path] for path in paths) > took
    inside = sum(of_layer.get(path, 0) for path in learning) / max(sum(of_layer.values()), 1)
    return Unlearned(
        share * (1 - inside),
        _together(weighty or paths, whole_of) if is_of_layers else "",
        len(weighty),
        longest_line(study, within),
    )


def longest_line(study: Study, within: Bools) -> str:
    """Give the user's line that made most of the ops of some events; "" where that is not known."""
    lines = study.source.lines_without(~within)
    most = -1 if lines is None or not len(lines) else int(np.argmax(lines.side_ps))
    is_known = lines is not None and most >= 0 and lines.line[most]
    return printable(f"{lines.file[most]}:{lines.line[most]}") if lines and is_known else ""


def _together(paths: list[str], layers: set[str]) -> str:
    """The model or layer that holds some; else the first and the last of them."""
    whole = commonpath(paths)
    ends = dict.fromkeys([whole] if whole in layers else [paths[0], paths[-1]])
    return " to ".join(path.rpartition("/")[2] for path in ends)


def _levels(graph: GraphShapes, kind: int) -> list[int]:
    """What each op of a graph depends on; of the data alone is told only where the graph has gradients.

    A variable may be changed by another graph, so only what needs none is the same always. Gradients are
    learned from, though that of a linear loss needs none.
    """
    if kind == DATA and not any(map(_LEARNS.search, graph.op_names)):
        return [LEARNED] * len(graph.op_names)
    of_tensor = [LEARNED] * len(graph.dtypes)  # what comes later, around a loop
    changed = {
        tensor
        for op_type, taken in zip(graph.op_types, graph.inputs, strict=True)
        if _CHANGING_OPS.search(op_type)
        for tensor in taken
        if tensor >= 0 and graph.dtypes[tensor] == "resource"
    }
    levels, end = [], 0
    for row, op_type in enumerate(graph.op_types):
        begin, end = end, end + graph.outputs[row]
        taken = graph.inputs[row]
        level = max((of_tensor[at] if at >= 0 else LEARNED for at in taken), default=SAME)
        if op_type == "Placeholder":
            is_held = graph.settings.get(row) == CAPTURED and graph.dtypes[begin] != "resource"
            is_other = graph.dtypes[begin] == "resource" and kind == SAME
            level = LEARNED if begin in changed or is_other else SAME if is_held else DATA
        elif _DRAWS.search(op_type) or _LEARNS.search(graph.op_names[row]):
            level = LEARNED
        of_tensor[begin:end] = [level] * (end - begin)
        levels.append(level)
    return _serving(graph, levels) if kind == SAME else levels


def _serving(graph: GraphShapes, levels: list[int]) -> list[int]:
    """The levels, less those of ops whose results nothing learned needs."""
    needed: set[int] = set()
    end = len(graph.dtypes)
    for row in reversed(range(len(levels))):
        last, end = end, end - graph.outputs[row]
        if levels[row] == LEARNED or not needed.isdisjoint(range(end, last)):
            needed.update(graph.inputs[row])
        else:
            levels[row] = LEARNED
    return levels


def _input_draws(study: Study) -> bool:
    """Whether ops outside of the steps, which make the data, draw numbers."""
    names = np.unique(study.trace.events.name[study.groups.step < 0]).tolist()
    draws = [parse_op(study.trace.names[code]) for code in names]
    return any(at and _DRAWS.search(at[1]) for at in draws)
