"""Pieces that are started one by one where a compiler would make few of them, and what they take.

JAX: programs that Python starts besides the largest one. PyTorch: ops of an eager loop, and what
``torch.compile`` made of a function that graph breaks cut. TensorFlow: ops that XLA would fuse,
and recurrent layers that cuDNN would run as one. Of all: what computes on wide numbers.

Source: PyTorch's torch/csrc/dynamo/eval_frame.c and torch/_dynamo/eval_frame.py (2.15): what was compiled
runs in events ``Torch-Compiled Region: 2/1``, the third function that it came across, in its second version.
A graph break ends a function's piece, and calls the rest, a function of its own, from inside of it.
TensorFlow 2.21: the kernels that it registers for XLA_CPU_JIT.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from profnb.capture.models.layer_facts import WITHOUT_CUDNN, LayerFacts
from profnb.causes.numbers import CLOSE_PS, FEWEST, LEAST_SHARE, LEFT, QUARTER, SLOWEST_PRODUCT
from profnb.core.columns import Bools, Int64s, flags_at, next_begins
from profnb.steps.activities import FIRST_OF_DEVICE
from profnb.steps.nesting import is_inside, last_around, nearest_of, outermost_of
from profnb.subjects.advising import (
    Spans,
    covered_share,
    in_periods,
    op_events,
    period_ps,
    share_beyond,
    share_of,
    spans_of,
    usual_share_beyond,
)
from profnb.subjects.layers.called_scopes import (
    FORWARD_THREAD,
    SEQUENCE,
    SUM,
    find_makers,
    find_nodes,
)
from profnb.subjects.layers.layer_rows import LAYER_PARTS
from profnb.subjects.ops.op_execution import LONG_OP_PS
from profnb.subjects.study import Study
from profnb.subjects.xla.hlo_ops import width_of_hlo
from profnb.trace.names import JIT_CALL, called_function, compiled_program

_WHOLE_COPIES = "aten::copy_", "aten::clone"
_REGION = re.compile(r"Torch-Compiled Region: \d{1,6}/(\d{1,6})")
_PRODUCT, _CONVOLUTION = re.compile("MatMul|Conv|Einsum"), re.compile("Conv")
_RANDOM_OPS = re.compile("Random")
# Where Python calls a layer or begins a step, or a machine is slow, it takes longer from one op to the next.
FAR_PS = 10 * CLOSE_PS
FEW_ROWS = 20_000  # as many as a vocabulary of common words has
_WHOLE_UPDATES = ("ResourceApply", "ResourceSparseApply", "Apply", "SparseApply")
# Ops that make each number from the numbers at its place, which XLA fuses into one pass over memory.
ELEMENTWISE = frozenset({
    "Abs", "Add", "AddN", "AddV2", "BiasAdd", "Cast", "ClipByValue", "Div", "DivNoNan", "Elu",
    "EluGrad", "Equal", "Erf", "Exp", "Expm1", "GreaterEqual", "Greater", "Less", "LessEqual", "Log",
    "Log1p", "LogicalAnd", "LogicalNot", "Maximum", "Minimum", "Mul", "Neg", "Pow", "RealDiv",
    "Reciprocal", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Rsqrt", "RsqrtGrad", "Select", "SelectV2",
    "Sigmoid", "SigmoidGrad", "Sign", "Softplus", "SoftplusGrad", "Sqrt", "SqrtGrad", "Square",
    "SquaredDifference", "Sub", "Tanh", "TanhGrad", "TruncateDiv", "Xdivy", "ZerosLike",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of the steps.

    Attributes:
        each: How many there are in a step.
        starts: How often a step starts one after something else, so how many starts remain at least.
        runs: The events in which they compute.
        is_firm: Whether a compiler leaves each of these as it is, where it takes long, shape (N,).
        spans: From when to when each is started and computes.
        others: When something else computes, which hides them.
        names: How often each name started, the most frequent first.
        beside: What they run beside; "" where they are all there is.
        for_many: Whether short ones take as long for many examples as for one, so that a larger batch has
            fewer of them: 40 % remain of a batch 2.5 times as large.
    """

    each: float
    starts: float
    runs: Int64s
    is_firm: Bools
    spans: Spans
    others: Spans
    names: tuple[tuple[str, int], ...] = ()
    beside: str = ""
    for_many: bool = False

    def shares(self, study: Study, long_ps: int) -> tuple[float, float, float]:
        """Give shares of the usual time from step to step.

        Returns:
            What they take; what remains computing of that at least, and at most.
        """
        is_long = self.is_firm & (study.trace.events.duration_ps[self.runs] > long_ps)
        firm, every = spans_of(study, self.runs[is_long]), spans_of(study, self.runs)
        # What a few steps lost to other programs is not in it.
        whole, least, most = (
            min(share_beyond(study, s, self.others), usual_share_beyond(study, s, self.others))
            for s in (self.spans, firm, every)
        )
        most = least + LEFT * (whole - least) if self.for_many else most
        return whole, min(least, whole), min(most, whole)


def _with_pauses(
    study: Study, events: Int64s, among: Int64s, *, is_across: bool = False
) -> tuple[Spans, float]:
    """Spans of N events, each up to the next of some others where the pause is short; how many are not so.

    Across steps it is short where that from the end of one is, and that to the begin of the next: between
    there is only what the loop and we do for each step.
    """
    begin, end = spans_of(study, events)
    order = among[np.argsort(study.trace.events.begin_ps[among], kind="stable")]
    begins = study.trace.events.begin_ps[order]
    behind = np.searchsorted(begins, end)
    is_followed = behind < order.size
    behind = np.minimum(behind, order.size - 1)
    step, steps = study.groups.step[events], study.steps
    after = study.groups.step[order[behind]]
    outside = steps.begin_ps[after] - steps.end_ps[step]
    into = np.maximum(begins[behind] - steps.begin_ps[after], steps.end_ps[step] - end)
    is_close = is_across & (outside < FAR_PS) & (into < CLOSE_PS)
    is_followed &= np.where(after == step, begins[behind] - end < CLOSE_PS, is_close)
    spans = begin, np.where(is_followed, begins[behind], end)
    return spans, float((~is_followed).sum() / study.summary.counted.size)


def _of_device(study: Study) -> Spans:
    return spans_of(study, np.flatnonzero(study.activities >= FIRST_OF_DEVICE))


def find_programs(study: Study) -> Pieces | None:
    """JAX's programs on a CPU; besides the largest one, unless that is one op.

    Products stay what they are; what makes each number from those at its place is fused.
    """
    if not study.has_steps or study.program.has_device:
        return None
    trace, roots, hlo = study.trace, study.steps.roots, study.xla.hlo
    is_call = trace.select_names(lambda name: name.startswith(JIT_CALL)) & trace.is_host_event
    if roots.size:
        is_call &= trace.lines.of_event == trace.lines.of_event[roots[0]]
    calls = outermost_of(is_call, study.groups.parent)
    calls = calls[in_periods(study, trace.events.begin_ps[calls])]
    names = [called_function(trace.names[row]) for row in trace.events.name[calls].tolist()]
    largest = _largest_program(study, set(names))
    others = calls[np.array([name != largest for name in names], np.bool_)]
    each = others.size / study.summary.counted.size
    if each < FEWEST:
        return None
    is_beside = np.array(
        [op.module.rstrip("_") == compiled_program(largest) for op in hlo.ops], np.bool_
    )
    is_product = np.array([width_of_hlo(hlo, op)[1] for op in hlo.ops], np.bool_)
    is_beside = is_beside[hlo.code]
    runs = hlo.events[~is_beside]
    spans, starts = _with_pauses(study, others, calls)
    begin, end = (np.concatenate(both) for both in zip(spans, spans_of(study, runs), strict=True))
    often = Counter(name for name in names if name != largest).most_common()
    return Pieces(
        each, starts, runs, is_product[hlo.code][~is_beside], (begin, end),
        spans_of(study, hlo.events[is_beside]), tuple(often), largest,
    )  # fmt: skip


def _largest_program(study: Study, functions: set[str]) -> str:
    """The function whose program took most time; "" where none is known to have run, or that is one op."""
    spent, modules = Counter[str](), study.xla.modules
    function_of_module = {compiled_program(function): function for function in functions}
    for name, took in zip(modules.module, modules.self_ps.tolist(), strict=True):
        if took and name.rstrip("_") in function_of_module:
            spent[function_of_module[name.rstrip("_")]] += took
    largest = max(spent, key=lambda name: spent[name], default="")
    saved = [
        m for m in study.xla.hlo.modules.values() if m.name.rstrip("_") == compiled_program(largest)
    ]
    ops = {name for one in saved for name in one.op_names.texts if "/" in name}
    return "" if len(ops) == 1 else largest  # ``jit(matmul)/dot_general``


def find_torch_ops(study: Study) -> Pieces | None:
    """The short ops that PyTorch starts one by one on a CPU; those that take long compute.

    The way back of an op takes long where all its nodes of autograd do: a GRU is one op with hundreds. An op
    of many short ones is itself short where each step starts it again and again, as a loop does its cell.
    Where the long ones take more, it is they that a larger batch makes slower or faster.
    Between two steps there is more of Python to go through; where we saw the cell, own functions are nodes.
    """
    trace, roots = study.trace, study.steps.roots
    if not study.has_steps or study.program.has_device or not roots.size:
        return None
    is_op = is_torch_op(study) & (trace.lines.of_event == trace.lines.of_event[roots[0]])
    is_op &= np.isin(study.groups.step, study.summary.counted)
    every = np.setdiff1d(outermost_of(is_op, study.groups.parent), _walked_again(study))
    took_ps, longest = trace.events.duration_ps, _longest_stretch(study, every, is_op)
    _, name, times = np.unique(trace.events.name[every], return_inverse=True, return_counts=True)
    is_again = times[name] >= FEWEST * study.summary.counted.size
    is_short = (longest <= LONG_OP_PS) & (is_again | (took_ps[every] <= LONG_OP_PS))
    is_long = _is_of_long_way_back(study, every, is_again & is_short) | ~is_short
    ops = every[~is_long]
    each = ops.size / study.summary.counted.size
    if each < FEWEST:
        return None
    is_seen, long = study.recording.cell is not None, spans_of(study, every[is_long])
    spans, _ = _with_pauses(study, every, every, is_across=is_seen)
    if share_beyond(study, spans, long) < covered_share(study, every[is_long]):
        return None
    return Pieces(each, 0.0, ops, np.zeros(ops.size, np.bool_), spans, long, for_many=True)


def find_nodes_again(study: Study) -> Pieces | None:
    """The nodes of autograd that had run before, where these are more than ran for the first time."""
    if not study.has_steps or not (again := _walked_again(study)).size:
        return None
    ops = outermost_of(is_torch_op(study), study.groups.parent)
    spans, _ = _with_pauses(study, again, ops)
    nothing = np.empty(0, np.int64)
    each = again.size / study.summary.counted.size
    return Pieces(each, 0.0, nothing, nothing.astype(np.bool_), spans, _of_device(study))


def _walked_again(study: Study) -> Int64s:
    """The runs of nodes of autograd in the counted steps that had run before; none where more ran once.

    One that has no number of its own, which adds to a gradient, goes with the one before it. Where none adds,
    gradients are asked for one by one (a Jacobian's rows), each of which needs a walk of its own.
    """
    nodes = outermost_of(find_nodes(study.trace), study.groups.parent)
    nodes = nodes[np.argsort(study.trace.events.begin_ps[nodes], kind="stable")]
    # Each thread that ran forward numbers its own.
    number, thread = (study.trace.stats.integers(of).of(nodes) for of in (SEQUENCE, FORWARD_THREAD))
    rows, both = np.arange(nodes.size), np.stack([number, thread], axis=1)
    is_again = ~flags_at(np.unique(both, axis=0, return_index=True)[1], nodes.size)
    again = nodes[is_again[np.maximum.accumulate(np.where(number >= 0, rows, 0))]]
    again = again[np.isin(study.groups.step[again], study.summary.counted)]
    adds = study.trace.names.rows_where(lambda name: SUM in name)[study.trace.events.name[again]]
    return again if 2 * again.size > nodes.size and adds.any() else again[:0]


def find_copies(study: Study) -> tuple[float, float, float]:
    """Find where a loop of PyTorch's on a CPU itself copies large tensors for longer than ops compute.

    Returns:
        How many a step; the share of the time from step to step that they take, and with small ones beside
        them and the pauses behind, in which what was copied before is freed.
    """
    trace, parent = study.trace, study.groups.parent
    copies = np.flatnonzero(trace.select_named(*_WHOLE_COPIES) & np.isin(parent, study.steps.roots))
    copies = copies[np.isin(study.groups.step[copies], study.summary.counted)]
    large = copies[trace.events.duration_ps[copies] >= LONG_OP_PS]
    large_ps = trace.events.duration_ps[large]
    if study.program.has_device or 2 * large_ps.sum() < study.ops.steady.self_ps.sum():
        return 0.0, 0.0, 0.0
    begin, end = spans_of(study, copies)
    ops = outermost_of(is_torch_op(study), parent)
    until = next_begins(trace.events.begin_ps[ops], end)
    whole = period_ps(study)
    took, most = (float(ps.sum() / whole) for ps in (large_ps, until - begin))
    return large.size / study.summary.counted.size, took, max(most, took)


def _longest_stretch(study: Study, ops: Int64s, is_op: Bools) -> Int64s:
    """The longest time in each of N outermost ops in which none of a thread's ops begins or ends, (N,)."""
    events = study.trace.events
    edges = np.unique(np.concatenate(spans_of(study, np.flatnonzero(is_op))))
    row = np.searchsorted(events.begin_ps[ops], edges[:-1], "right") - 1
    is_in = (row >= 0) & (edges[:-1] < np.append(events.end_ps[ops], 0)[row])
    longest = np.zeros(ops.size, np.int64)
    np.maximum.at(longest, row[is_in], np.diff(edges)[is_in])
    return longest


def _is_of_long_way_back(study: Study, ops: Int64s, is_piece: Bools) -> Bools:
    """Mark those of N outermost ops that are nodes of one op, no piece, whose nodes take long together."""
    trace = study.trace
    is_node = find_nodes(trace)
    nodes = ops[is_node[ops]]
    made = find_makers(trace, nodes, nearest_of(study.groups.parent, is_node) >= 0)
    maker = np.where(made >= 0, last_around(trace, ops, made), -1)
    took = np.bincount(maker + 1, trace.events.duration_ps[nodes], ops.size + 1)[maker + 1]
    is_its = (maker >= 0) & ~is_piece[maker]
    return np.isin(ops, nodes[is_its & (took > LONG_OP_PS)])


def is_torch_op(study: Study) -> Bools:
    """Mark the events of the host that are PyTorch's ops, shape (E,)."""
    trace = study.trace
    if trace.is_op_name is None:
        return np.zeros(len(trace.events), np.bool_)
    is_op: Bools = trace.is_op_name[trace.events.name] & trace.is_host_event
    is_op[study.steps.roots] = False
    return is_op


def compiled_regions(study: Study) -> tuple[Int64s, Int64s]:
    """The events that run what was compiled, and which version of its function each is, from 0."""
    trace = study.trace
    matches = [_REGION.fullmatch(name) for name in trace.names.texts]
    version = np.array([int(match[1]) if match else -1 for match in matches], np.int64)
    events = np.flatnonzero((version[trace.events.name] >= 0) & trace.is_host_event)
    return events, version[trace.events.name[events]]


def find_cut_regions(study: Study) -> Pieces | None:
    """Regions inside of regions: pieces of one function; those that follow each other are functions."""
    if not study.has_steps:
        return None
    regions, _ = compiled_regions(study)
    regions = regions[in_periods(study, study.trace.events.begin_ps[regions])]
    is_region = np.zeros(len(study.trace.events), np.bool_)
    is_region[regions] = True
    outer = outermost_of(is_region, study.groups.parent)
    breaks = (regions.size - outer.size) / study.summary.counted.size
    starts = outer.size / study.summary.counted.size
    if breaks < 1:
        return None
    ops = np.flatnonzero(is_torch_op(study) & ~is_region)
    ops = ops[is_inside(study.groups.parent, is_region, ops)]
    is_leaf = ~np.isin(ops, study.groups.parent[ops])
    return Pieces(breaks, starts, ops, is_leaf, spans_of(study, outer), _of_device(study))


def find_fusible(study: Study, is_member: Callable[[str, str], bool]) -> Pieces | None:
    """The device's ops of the steps, or the host's, where (op name, op type) is one that XLA fuses.

    Fused they are one pass over memory, which takes as long as the longest of them. A long op that does the
    whole update of a variable is one already.
    """
    runs, counted = study.ops.runs, study.summary.counted
    if not study.has_steps:
        return None
    chosen = study.ops.innermost
    if study.program.has_device:
        chosen = runs.events[study.activities[runs.events] >= FIRST_OF_DEVICE]
    chosen = chosen[in_periods(study, study.trace.events.begin_ps[chosen])]
    ops, _, rows = np.intersect1d(chosen, runs.events, return_indices=True)
    code = runs.code[rows]
    is_fused = np.array([is_member(*key) for key in runs.keys], np.bool_)[code]
    is_whole = np.array([kind.startswith(_WHOLE_UPDATES) for _, kind in runs.keys], np.bool_)[code]
    members = ops[is_fused]
    if not members.size:
        return None
    took = study.trace.events.duration_ps[ops]
    is_firm = code == np.bincount(code[is_fused], took[is_fused]).argmax()
    is_firm |= is_whole & (took >= LONG_OP_PS)
    spans, _ = _with_pauses(study, members, ops)
    each = members.size / counted.size
    return Pieces(each, 0.0, members, is_firm[is_fused], spans, spans_of(study, ops[~is_fused]))


def fused_by_xla(study: Study, ops: Pieces) -> tuple[float, float, float, float] | None:
    """One pass over memory instead of ops, or half as many; None where products cost about that.

    Returns:
        The ops' share of the time, that of all that computes there, and how much of that remains at least
        and at most.
    """
    rows, nothing = study.summary.counted, (ops.others[0][:0], ops.others[1][:0])
    side = study.breakdown.of(study.program.computing)
    periods = study.steps.duration_ps[rows] + study.gaps.own_ps[rows]
    whole = float(np.median(side[rows] / periods))
    others = min(usual_share_beyond(study, ops.others, nothing), whole)
    share, one_pass, _ = ops.shares(study, 0)
    share = min(share, whole - others)  # pauses count where TensorFlow is at work in them
    whole, least = share + others, others + min(one_pass, share)

    # XLA multiplies matrices on a CPU up to 1.7 times as long: with an optimizer of 39 % of a dense model's
    # ops, jit_compile=True took 4 % more processor time although it fused them.
    # Convolutions that oneDNN did took up to 2.3 times as long (32 x 32 images, filters of 3 x 3, both ways).
    def of_kind(pattern: re.Pattern[str]) -> float:
        events = op_events(study, lambda _, op_type: pattern.search(op_type) is not None)
        return min(usual_share_beyond(study, spans_of(study, events), nothing), others)

    has_device = study.program.has_device
    # Random numbers took 1.9 to 2.5 times as long in two models with dropout.
    slower = 0.7 * of_kind(_PRODUCT) + 0.6 * of_kind(_CONVOLUTION) + 1.5 * of_kind(_RANDOM_OPS)
    slower = 0.0 if has_device else slower
    most = max(others + slower + share / 2, least)
    if whole - (least + most) / 2 < LEAST_SHARE:
        return None
    return share, whole, least / whole, min(most / whole, 1.0)


def find_large_tables(study: Study) -> tuple[float, list[tuple[int, str, int, int]]]:
    """Find embeddings that the optimizer updates as a whole, though a step reads few of their rows.

    Returns:
        What their updates take of the time from step to step, 0 where that is not most of the optimizer's
        work; of each what its update took, its path, its rows, and how many of them a step reads at most, 0
        where that is not known; the one that took most first.
    """
    table, large = study.layers.table, list[tuple[int, str, int, int]]()
    models = [m for m in study.recording.models if not m.optimizer.lower().startswith("sgd")]
    facts = {layer.path: layer for one in models for layer in one.layers if not layer.is_shared}
    updates = table.layer_part_ps[:, LAYER_PARTS.index("update")].tolist()
    for path, took in zip(table.layer, updates, strict=True):
        layer = facts.get(path)
        made = layer.output_shape if took and layer and layer.kind == "Embedding" else None
        if layer and made and made[-1]:
            rows, places = layer.parameters // made[-1], [size or 0 for size in made[1:-1]]
            read = (study.batch_size or 0) * prod(places)
            if (read or FEW_ROWS) < QUARTER * rows:
                large.append((took, path, rows, read))
    spent = sum(took for took, *_ in large)
    if 2 * spent <= sum(updates):
        return 0.0, []
    share = spent / table.total_ps.sum() * share_of(study, study.program.computing)
    return share, sorted(large, reverse=True)


def shares_by_width(study: Study) -> tuple[float, float]:
    """Shares of what computes: on 64-bit numbers, and on 16-bit ones where a product of these is slow.

    By op, or by layer where nothing tells the types of ops; a short op takes as long in any width.
    """
    placed, layers = study.bounds.roofline, study.layers.times
    if placed is None:
        side = int(study.program.has_device)
        widths = [layer.width for layer in layers.rows.layers]
        spent, times = layers.time_ps[side].sum(axis=1), layers.occurrences[side]
        is_slow = np.zeros(spent.size, np.bool_)
    else:
        widths, spent, times = [*placed.width], placed.self_ps, placed.occurrences
        is_slow = np.array([bool(_PRODUCT.search(kind)) for kind in placed.op_type], np.bool_)
        is_slow &= placed.flops_per_second < SLOWEST_PRODUCT
    width = np.array([*widths, *[""] * (spent.size - len(widths))])
    long_ps, whole = np.where(spent > LONG_OP_PS * times, spent, 0), max(int(spent.sum()), 1)
    wide, narrow = width == "64-bit", width == "16-bit"
    narrow &= (narrow & is_slow & (long_ps > 0)).any()
    return float(long_ps[wide].sum() / whole), float(long_ps[narrow].sum() / whole)


def find_step_by_step(study: Study) -> tuple[Sequence[LayerFacts], Pieces]:
    """The layers that Keras keeps from cuDNN and that ran, with their ops and kernels of the steps."""
    times, runs = study.layers.times, study.ops.runs
    rows = {row for row, layer in enumerate(times.rows.layers) if WITHOUT_CUDNN in layer.numbers}
    row_of_key = np.array([times.row_of_op.get(name, -1) for name, _ in runs.keys], np.int64)
    is_theirs = np.isin(row_of_key, list(rows))[runs.code]
    is_theirs &= np.isin(study.groups.step[runs.events], study.summary.counted)
    events = np.asarray(runs.events[is_theirs], np.int64)
    layers = [times.rows.layers[row] for row in np.unique(row_of_key[runs.code[is_theirs]])]
    kernels = events[study.activities[events] >= FIRST_OF_DEVICE]
    each = events.size / max(study.summary.counted.size, 1)
    nothing = np.empty(0, np.int64)
    return layers, Pieces(
        each, len(layers), kernels, np.ones(kernels.size, np.bool_), spans_of(study, events),
        (nothing, nothing),
    )  # fmt: skip


# Kinds of ops that have no kernel of XLA's: ``@tf.function(jit_compile=True)`` raises ("unsupported
# operations"), Keras warns and goes on without.
_KINDS_OF_PIECES = (
    "PyFunc", "EagerPyFunc", "Print", "String", "AsString", "Regex", "StaticRegex", "Lookup",
    "HashTable", "MutableHashTable", "Write", "Decode", "Encode", "ParseExample", "ParseSingleExample",
    "ReadFile", "Unicode", "Substr", "Summary", "ScalarSummary", "HistogramSummary", "ImageSummary",
)  # fmt: skip


def find_uncompilable(study: Study) -> str:
    """The type of an op that XLA cannot compile and a traced step ran, warm-up included; "" for none."""
    runs = study.ops.runs
    is_kind = [op_type.startswith(_KINDS_OF_PIECES) for _, op_type in runs.keys]
    if not any(is_kind):
        return ""
    in_steps = set(runs.code[study.groups.step[runs.events] >= 0].tolist())
    return next((runs.keys[code][1] for code in sorted(in_steps) if is_kind[code]), "")


# What to write instead, by the argument that forbids cuDNN.
_ALLOWED = {
    "activation": "activation='tanh'",
    "recurrent_activation": "recurrent_activation='sigmoid'",
    "recurrent_dropout": "recurrent_dropout=0 (dropout=... is allowed)",
    "unroll": "unroll=False",
    "use_bias": "use_bias=True",
    "reset_after": "reset_after=True",
    "use_cudnn": "use_cudnn='auto'",
}


def allowed_instead(reasons: list[str]) -> str:
    """What to write so that cuDNN may run the layers."""
    given = dict.fromkeys(part for reason in reasons for part in reason.split(", "))
    texts = [f"keras.layers.{c[4:-5]}(...) instead of {c}" for c in given if c.startswith("RNN(")]
    names = {part.partition("=")[0] for part in given}
    texts.append(", ".join(text for name, text in _ALLOWED.items() if name in names))
    instead = "; ".join(filter(None, texts))
    return f"{instead}. The changed model has to be trained anew; check that the accuracy holds."
