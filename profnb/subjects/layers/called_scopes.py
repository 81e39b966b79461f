"""PyTorch's ops to the layer that called them, and their backward passes to the layer of the way forward.

Names of PyTorch's ops hold no scopes. What tells is what stands around an op in the trace: the call of a
layer that profnb's capture marked (or, with Python's stacks, ``nn.Module: Linear_0``), a step of an
optimizer, a ``DataLoader`` that is asked. Nothing is around a backward op but the node of autograd that runs
it, and the node carries the sequence number of the forward op that made it:

    Net/fc [ aten::linear 7 [ aten::t 7, aten::addmm 8 ] ]         Net/fc, forward
    evaluate_function: AddmmBackward0 8 [ aten::mm ]               Net/fc, backward
    evaluate_function: torch::autograd::AccumulateGrad [ ... ]     Net/fc, backward

An op carries the number that the next node will get; so of all that carry one, the last to begin made it.
The sums of gradients (``AccumulateGrad``) have no number; autograd runs them right behind the node whose
result they add up. Inside a node, the call of a layer repeats the way forward (checkpointing).

Source: torch/csrc/autograd/profiler_kineto.cpp, torch/csrc/autograd/engine.cpp (2.15).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int64s, flags_at, look_up
from profnb.steps.nesting import find_parents, nearest_of
from profnb.steps.streams import find_launches
from profnb.subjects.layers.name_scopes import OpScope
from profnb.trace.model import Trace
from profnb.trace.names import KINETO_SCOPE

_MODULE = "nn.Module: "
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#(\w+)\..*")
_LOADER = "enumerate(DataLoader)#"
# Losses that are called as functions, outside of any layer.
_LOSS = re.compile(
    r"aten::((?:cross_entropy|mse|l1|smooth_l1|huber|nll|poisson_nll|ctc|multi_margin|multilabel_margin|soft_margin"
    r"|triplet_margin|margin_ranking|hinge_embedding|cosine_embedding)_loss\w*|binary_cross_entropy\w*|kl_div)"
)
_LOSS_MODULE = re.compile(r"\w*Loss_\d+")
SEQUENCE, FORWARD_THREAD = "Sequence number", "Fwd thread id"
_NODE, SUM = "autograd::engine::evaluate_function: ", "AccumulateGrad"
_OLD_NODE = re.compile(r"(?:torch::autograd::)?(?:\w+Backward\d*|AccumulateGrad)")


@dataclass(frozen=True, slots=True)
class CalledScopes:
    """Distinct scopes that N runs of ops were called in, and the row of each run's, or -1."""

    scopes: tuple[OpScope, ...]
    code: Int64s


def find_called_scopes(trace: Trace, runs: Int64s) -> CalledScopes | None:
    """Find what called each op; None where the trace tells of no layer's call.

    ``runs`` are indices of events, shape (N,).
    """
    if trace.is_op_name is None:
        return None
    is_own = trace.names.rows_where(lambda name: name.startswith(KINETO_SCOPE))
    is_module = trace.names.rows_where(lambda name: name.startswith(_MODULE))
    if not (is_own.any() or is_module.any()):
        return None
    parent = find_parents(trace.events.end_ps, trace.lines.offsets)
    is_node = find_nodes(trace)
    is_outer = on_hosts(
        trace, lambda name: bool(_OPTIMIZER.fullmatch(name)) or name.startswith(_LOADER)
    )
    is_layer = trace.by_name(is_own if is_own.any() else is_module) & trace.is_host_event
    is_anchor = is_node | is_outer | is_layer
    is_loss = on_hosts(trace, lambda name: bool(_LOSS.fullmatch(name)))
    is_anchor |= is_loss & (nearest_of(parent, is_anchor) < 0)
    anchor = nearest_of(parent, is_anchor)
    codes: dict[OpScope, int] = {}
    code = np.full(len(trace.events), -1, np.int64)  # of anchors
    calls = np.flatnonzero(is_anchor & ~is_node)
    above = np.where(parent[calls] >= 0, anchor[parent[calls]], -1)
    _name_calls(trace, calls, above, is_node, code, codes)
    nodes = np.flatnonzero(is_node)  # of autograd: their scopes are those of the ops that made them
    maker = find_makers(trace, nodes, (anchor >= 0) & is_node[anchor])
    forward = np.append(code, -1)[np.where(maker >= 0, anchor[maker], -1)]
    paths = [*(scope.path for scope in codes), ()]  # the last one where nothing is known
    rows, row = np.unique(forward, return_inverse=True)
    scopes = [OpScope(paths[at], is_backward=True, has_only_scopes=True) for at in rows.tolist()]
    code[nodes] = np.array([codes.setdefault(s, len(codes)) for s in scopes], np.int64)[row]
    code = np.where(anchor >= 0, code[anchor], -1)
    launch, work = find_launches(trace)
    order = np.argsort(work)
    launched_by = look_up(work[order], launch[order], runs)
    code = np.where(launched_by >= 0, code[launched_by], code[runs])
    return CalledScopes(tuple(codes), code)


def _name_calls(
    trace: Trace, calls: Int64s, above: Int64s, is_node: Bools, code: Int64s, codes: dict[OpScope, int]
) -> None:  # fmt: skip
    """Scopes of calls, outer ones first, which is the order of events."""
    paths: dict[int, tuple[str, ...]] = {}
    again: set[int] = set()
    scope_of_key: dict[tuple[int, int, bool], tuple[tuple[str, ...], int]] = {}
    for call, outer in zip(calls.tolist(), above.tolist(), strict=True):
        is_again = outer >= 0 and (bool(is_node[outer]) or outer in again)
        key = int(trace.events.name[call]), int(code[outer]) if outer >= 0 else -1, is_again
        if key not in scope_of_key:
            path = _path_of(trace.names[key[0]], paths.get(outer, ()))
            scope = OpScope(path, is_again=is_again, has_only_scopes=True)
            scope_of_key[key] = path, codes.setdefault(scope, len(codes))
        paths[call], code[call] = scope_of_key[key]
        if is_again:
            again.add(call)


def _path_of(name: str, above: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a call: in its name, or that of the call around it and its own."""
    if name.startswith(KINETO_SCOPE):
        return tuple(name.removeprefix(KINETO_SCOPE).split("/"))
    if name.startswith(_LOADER):
        return ("Iterator",)
    if optimizer := _OPTIMIZER.fullmatch(name):
        return "training", optimizer[1]
    if loss := _LOSS.fullmatch(name):
        return "loss", loss[1]
    module = name.removeprefix(_MODULE)
    return ("loss", module) if not above and _LOSS_MODULE.fullmatch(module) else (*above, module)


def find_nodes(trace: Trace) -> Bools:
    """Find the nodes of autograd that run: a flag for each event, shape (E,).

    Before 1.9 a node is named by its kind alone (``CudnnConvolutionBackward``), and says its forward thread.
    """
    is_node = on_hosts(trace, lambda name: name.startswith(_NODE))
    if is_node.any():
        return is_node
    thread = trace.stats.integers(FORWARD_THREAD)
    has_thread = flags_at(thread.events[thread.values.astype(np.int64) > 0], is_node.size)
    return has_thread & on_hosts(trace, lambda name: _OLD_NODE.fullmatch(name) is not None)


def on_hosts(trace: Trace, is_meant: Callable[[str], bool]) -> Bools:
    """Flag each event of a host that has such a name, shape (E,)."""
    return np.asarray(trace.by_name(trace.names.rows_where(is_meant)) & trace.is_host_event)


def find_makers(trace: Trace, nodes: Int64s, in_node: Bools) -> Int64s:
    """Find the forward op that made each node: an event, or -1, shape (N,).

    Nodes are in the order of events. ``in_node`` tells which events run backward: in a node, and not in a
    repeated call, shape (E,).
    """
    number, thread = (trace.stats.integers(name) for name in (SEQUENCE, FORWARD_THREAD))
    backward = thread.of(number.events) > 0
    kept = ~backward & ~in_node[number.events] & trace.is_host_event[number.events]
    made, numbers = number.events[kept], number.values[kept].astype(np.int64)
    order = np.lexsort((trace.events.begin_ps[made], numbers))
    made, numbers = made[order], numbers[order]
    wanted = number.of(nodes)
    at = np.searchsorted(numbers, wanted, side="right") - 1
    has_maker = (wanted >= 0) & (np.append(numbers, -1)[at] == wanted)  # the last: of at -1
    maker = np.where(has_maker, np.append(made, -1)[at], -1)
    is_sum = trace.names.rows_where(lambda name: SUM in name)[trace.events.name[nodes]]
    # Of a node its own row, of a sum of gradients that of the last other node of its line.
    rows, line = np.arange(nodes.size), trace.lines.of_event[nodes]
    starts = np.append(True, line[1:] != line[:-1])[: rows.size]
    return maker[np.maximum.accumulate(np.where(is_sum & ~starts, 0, rows))]
