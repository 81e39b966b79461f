"""What a cell does again and again: models made anew, validations, work that depends on nothing learned.

Times are those of the cell's parts, so each cost is counted besides the first one, which is its due.

What depends on nothing learned, tell the edges of the steps' graphs. What comes from an argument or an
iterator is the data's; what comes from a variable that the graph changes is learned, and so is all behind it;
random numbers count as learned, as they are others each time. What is the data's alone is the same of an
example in each epoch: layers that are not trained, targets made one-hot. What is neither is the same in each
step: a matrix that is normalised in each call.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from posixpath import commonpath

import numpy as np

from profnb.capture.marking.trace_events import TracedFunction
from profnb.capture.parts.part_records import (
    BUILDING,
    CALL,
    CHECKPOINTING,
    LOADING,
)
from profnb.capture.source.source_records import CAPTURED, GraphShapes
from profnb.capture.source.user_code import file_title
from profnb.causes.cell_tree import STEPS, CellTree
from profnb.causes.numbers import LEAST_SHARE
from profnb.core.columns import Bools
from profnb.core.printable import printable
from profnb.core.units import PS_PER_NS
from profnb.subjects.advising import covered_share, op_events, period_ps, share_of
from profnb.subjects.bounds.op_costs import locate_ops
from profnb.subjects.feeds.feeding import session_gaps
from profnb.subjects.layers.layer_rows import OTHERS
from profnb.subjects.study import Study
from profnb.trace.names import parse_op

FEWEST_OF_A_LOOP = 3  # two are compared; three come from a loop
_COMPILE, _BUILDING_LAYERS = "Model.compile", "layers"
_VALIDATES = re.compile(
    r"(?:^|_)(?:test|val|valid|validate|validation|eval|evaluate|evaluation)(?:_|$)", re.IGNORECASE
)
_LEARNS = re.compile(r"(?:^|/)gradient_tape/|:Resource(?:Sparse)?Apply")


@dataclass(frozen=True, slots=True)
class ModelsAgain:
    """Models of Keras that one line made or compiled anew, each of which was traced.

    Attributes:
        count: How many.
        line: That line.
        is_compiled: Whether one model was compiled again, and none made.
        spent_ps: What making them and the steps that traced took, besides the first of each size.
        traced: Those steps.
    """

    count: int
    line: str
    is_compiled: bool
    spent_ps: float
    traced: float


def find_models_again(study: Study) -> ModelsAgain | None:
    """Find models of which one line traced three or more, each made or compiled anew.

    None where the weights of as many were loaded, or all are of sizes of their own: those are other models.
    """
    loop = _traced_in_a_loop(study.recording.functions)
    cell = study.recording.cell
    building = [] if cell is None else [part for part in cell.parts if part.part == BUILDING]
    if loop is None or cell is None:
        return None
    first, count = loop
    loaded = [p for p in cell.parts if p.part == CHECKPOINTING and p.name.endswith(LOADING)]
    seen = sum(
        part.occurrences for part in building if part.name not in (_COMPILE, _BUILDING_LAYERS)
    )
    compiled = sum(part.occurrences for part in building if part.name == _COMPILE)
    are_counted = bool(building) and all(part.is_counted for part in building)
    are_loaded = max(sum(one.times for one in cell.loads), sum(part.occurrences for part in loaded))
    if are_loaded >= count or (are_counted and max(seen, compiled) < count - 1):
        return None
    tracing_ns = _tracing_again_ns(study)
    making_ns = sum(part.wall_ns - part.longest_ns for part in building)
    models = study.recording.models
    sizes = {
        tuple((at.kind, at.parameters, at.output_shape) for at in one.layers) for one in models
    }
    is_compiled = max(seen, len(models)) < count - 1
    again = 1.0 if is_compiled else 1 - max(len(sizes) - 1, 0) / max(len(models) - 1, 1)
    spent_ps = again * (sum(tracing_ns) + making_ns) * PS_PER_NS
    again_traced = again * len(tracing_ns)
    return ModelsAgain(count, first.caller, is_compiled, spent_ps, again_traced) if again else None


def _tracing_again_ns(study: Study) -> list[int]:
    """Times of Keras' steps in which a function was traced, without those of each phase's first run."""
    seen, first_run = study.recording.steps, dict[int, int]()
    rows = list(zip(seen.name, seen.run, seen.retraced, seen.begin_ns, seen.end_ns, strict=True))
    for name, run, retraced, _, _ in rows:
        if retraced and run > 0:
            first_run[name] = min(first_run.get(name, run), run)
    return [
        end - begin
        for name, run, retraced, begin, end in rows
        if retraced and run > first_run.get(name, run)
    ]


def _traced_in_a_loop(functions: tuple[TracedFunction, ...]) -> tuple[TracedFunction, int] | None:
    """A function of Keras that one line had traced for several models, with their number."""
    keras = [one for one in functions if one.is_keras and one.caller]
    places = Counter((one.code, one.phase, one.caller) for one in keras)
    if not places:
        return None
    place, models = places.most_common(1)[0]
    first = next(one for one in keras if (one.code, one.phase, one.caller) == place)
    return (first, models) if models >= FEWEST_OF_A_LOOP else None


@dataclass(frozen=True, slots=True)
class Passes:
    """Gaps between passes over the data: epochs, validations, fits; batches that a loop makes one by one.

    Attributes:
        are_batches: Whether a loop of the user's makes an iterator for each batch.
        count: How many.
        ends: How many of these end an epoch, where anything trains.
        trains: Whether anything does.
        all_ps: What all took, without work of devices.
        each_ps: What one took as a rule: in the first ones things are set up.
        python_ps: How long Python ran in one, as a rule.
    """

    are_batches: bool
    count: int
    ends: int
    trains: bool
    all_ps: float
    each_ps: float
    python_ps: float


def find_passes(study: Study) -> Passes:
    """Find the gaps between passes over the data."""
    rows = study.gaps.between_epochs
    are_batches = not rows.size and study.program.is_own_loop
    if are_batches:
        rows = np.flatnonzero(study.gaps.sets_up)
    trains = np.array([phase not in ("test", "predict") for phase in study.steps.phase], np.bool_)
    each_ps = np.maximum(study.gaps.duration_ps[rows] - study.breakdown.gap_busy_ps[rows], 0)
    return Passes(
        are_batches,
        rows.size,
        int(trains[rows].sum()) if trains.any() else rows.size,
        bool(trains.any()),
        float(each_ps.sum()),
        float(np.median(each_ps)) if rows.size else 0.0,
        float(np.median(study.breakdown.gap_picoseconds[rows, -1])) if rows.size else 0.0,
    )


def find_validating(study: Study, functions: list[str]) -> tuple[list[str], list[str], float]:
    """Tell functions that validate from those that learn, by what their traced calls ran.

    One that validates is called so (``test_step``, ``val_loss``) and has no gradients and no optimizer among
    its traced ops. A function that only runs forward may be anything else, as what plays in reinforcement
    learning.

    Args:
        study: What was traced.
        functions: Their names.

    Returns:
        Those that validate, those that learn, and how many steps of the latter lie between two runs of the
        former, as a rule; 0 where it comes once: before the first one, and behind the last, is anything.
    """
    learns = {name: _learns(study, name) for name in functions}
    training = [name for name in functions if learns[name]]
    validating = [name for name in functions if learns[name] is False and _VALIDATES.search(name)]
    between = [0]
    for phase in study.step_times.phase:
        if phase in training:
            between[-1] += 1
        elif phase in validating and (between[-1] or len(between) == 1):
            between.append(0)
    runs = between[1:-1]
    return validating, training, float(np.median(runs)) if runs else 0.0


def _learns(study: Study, function: str) -> bool | None:
    """True if the traced calls of a function have gradients or an optimizer; None where none has ops."""
    rows = study.steps.rows_of(function, warm_up=True)
    codes = set(study.trace.events.name[study.events_of(rows)].tolist())
    ops = [name for name in map(study.trace.names.__getitem__, codes) if parse_op(name)]
    return any(map(_LEARNS.search, ops)) if ops else None


_SUMMARY_OPS = (
    "ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary", "TensorSummary",
    "TensorSummaryV2", "MergeSummary",
)  # fmt: skip
_WRITES = ("add_summary", "SummarySaverHook.")


def find_summaries(study: Study) -> tuple[int, float, float, float]:
    """Find session runs that make summaries.

    Returns:
        How many there are, 0 where nothing looked at what is between runs; the shares of the time that the
        summaries' ops take, and what writes these between runs; how long that is a run.
    """
    gaps, counted = session_gaps(study), study.summary.counted
    ops = op_events(study, lambda _, op_type: op_type in _SUMMARY_OPS)
    if gaps is None:
        return 0, 0.0, 0.0, 0.0
    written = sum(place.wall_ns for place in gaps.places if any(w in place.text for w in _WRITES))
    each_ps = written * PS_PER_NS / gaps.gaps
    made = np.intersect1d(study.groups.step[ops], counted).size
    writing = each_ps * counted.size / period_ps(study)
    return made, covered_share(study, ops), writing, each_ps


def count_epochs(tree: CellTree, loop: int) -> int:
    """How often a loop calls ``fit`` of several steps each, as a loop over epochs does; 0 for none."""
    fits = [row for row in tree.rows(CALL, below=loop) if tree.name[row] == "fit"]
    steps = [row for row in tree.with_below(fits).tolist() if tree.kind[row] in STEPS]
    times = int(tree.occurrences[fits].sum())
    return times if tree.occurrences[steps].sum() > times > 1 else 0


SAME, DATA, LEARNED, LOOKUP = range(4)
_HANDS_ON = {"Identity", "Cast", "Reshape", "ExpandDims", "StopGradient", "PreventGradient"}
_PRODUCTS, _BEHIND = {"MatMul", "BatchMatMulV2"}, {"BiasAdd", "AddV2"}
_CHANGING_OPS = re.compile(
    r"^(?:Resource(?!Gather)|Assign|(?:Stateful)?PartitionedCall$|(?:Stateless)?(?:While|If)$|Scatter)"
)
_DRAWS = re.compile(
    r"Random(?!Shuffle)|TruncatedNormal|Multinomial|Rng|PyFunc|^Stateful|^While$|^If$"
)
_OF_GRADIENTS = re.compile(r"(?:^|/)gradient_tape/")


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
        kinds: ``DATA``, ``SAME``; ``LOOKUP`` for a product of one-hot rows and a weight.

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
        levels = [_lookups(graph) if kind == LOOKUP else _levels(graph, kind) for graph in graphs]
        chosen = {
            key
            for key, standing in places.items()
            if standing and all(levels[at][row] == kind for at, row in standing)
        }
        took = sum(int(ops.self_ps[row]) for row, key in keys.items() if key in chosen)
        share = took / whole * computing
        if share >= LEAST_SHARE and not (kind == DATA and _input_draws(study)):
            work = _describe(study, chosen, took, share, learns=kind == LOOKUP)
            if work.share >= LEAST_SHARE:
                yield kind, work


def _describe(
    study: Study, chosen: set[tuple[str, str]], took: int, share: float, *, learns: bool
) -> Unlearned:
    """Say which layers or line the chosen ops are of, which took so many picoseconds.

    What lies inside of a layer that learns (an LSTM turns its input about first) is nobody's to take out, but
    for what learns in another one.
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
        share * (1 - (0 if learns else inside)),
        _together(weighty or paths, whole_of) if is_of_layers else "",
        len(weighty),
        longest_line(study, within),
    )


def longest_line(study: Study, within: Bools) -> str:
    """Give the user's line that made most of the ops of some events; "" where that is not known."""
    lines = study.source.lines_without(~within)
    if lines is None or not len(lines):
        return ""
    most = int(np.argmax(lines.side_ps))
    at = f"{file_title(lines.file[most], lines.cells)}:{lines.line[most]}"
    return printable(at) if lines.line[most] else ""


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
    if kind == DATA and not any(map(_OF_GRADIENTS.search, graph.op_names)):
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
        elif _DRAWS.search(op_type) or _OF_GRADIENTS.search(graph.op_names[row]):
            level = LEARNED
        of_tensor[begin:end] = [level] * (end - begin)
        levels.append(level)
    return _serving(graph, levels) if kind == SAME else levels


def _lookups(graph: GraphShapes) -> list[int]:
    """Mark as ``LOOKUP`` what makes one-hot rows, multiplies them by a weight, and learns that weight.

    A product with anything but a variable mixes rows (experts, attention), which no embedding does.
    """
    maker = graph.makers
    first = [0, *accumulate(graph.outputs)]

    def origin(tensor: int) -> int:
        row = maker[tensor] if tensor >= 0 else -1
        while row >= 0 and graph.op_types[row] in _HANDS_ON and graph.inputs[row]:
            tensor = graph.inputs[row][0]
            if tensor < 0 or _width(graph, tensor) != _width(graph, first[row]):
                return (
                    -1
                )  # several rows side by side, as Flatten makes of them, are no row of a table
            row = maker[tensor]
        return row

    levels, looked_up = [LEARNED] * len(graph.op_types), set[int]()
    for row, op_type in enumerate(graph.op_types):
        made_by = [origin(tensor) for tensor in graph.inputs[row]]
        types = {graph.op_types[at] for at in made_by if at >= 0}
        hot = {at for at in made_by if at >= 0 and graph.op_types[at] == "OneHot"}
        is_gradient = bool(_OF_GRADIENTS.search(graph.op_names[row])) and hot <= looked_up
        if op_type in _PRODUCTS and hot and ("ReadVariableOp" in types or is_gradient):
            looked_up |= hot
        elif not (
            op_type in _BEHIND
            and "ReadVariableOp" in types
            and any(levels[at] == LOOKUP for at in made_by if at >= 0)
        ):
            continue
        levels[row] = LOOKUP
    for row in looked_up:
        levels[row] = LOOKUP
    return levels


def _width(graph: GraphShapes, tensor: int) -> int | None:
    """The last dimension of a tensor; None where it is open, or not known."""
    return (graph.shapes[tensor] or (None,))[-1]


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
    """True if ops outside of the steps, which make the data, draw numbers."""
    names = np.unique(study.trace.events.name[study.groups.step < 0]).tolist()
    draws = [parse_op(study.trace.names[code]) for code in names]
    return any(at and _DRAWS.search(at[1]) for at in draws)
