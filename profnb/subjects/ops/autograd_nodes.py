"""PyTorch's backward nodes to the ops of the way forward that made them.

A node of autograd that runs backward carries the sequence number of the forward op that made it::

    aten::linear 7 [ aten::t 7, aten::addmm 8 ]
    evaluate_function: AddmmBackward0 8 [ aten::mm ]               made by aten::addmm
    evaluate_function: torch::autograd::AccumulateGrad [ ... ]     likewise: it has no number

An op carries the number that the next node will get; so of all that carry one, the last to begin made it.
The sums of gradients (``AccumulateGrad``) have no number; autograd runs them right behind the node whose
result they add up. Inside a node, the call of a layer repeats the way forward (checkpointing).

Source: torch/csrc/autograd/profiler_kineto.cpp, torch/csrc/autograd/engine.cpp (2.15).
"""

import re
from collections.abc import Callable

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.trace.model import Trace

_SEQUENCE, _FORWARD_THREAD = "Sequence number", "Fwd thread id"
_NODE, _SUM = "autograd::engine::evaluate_function: ", "AccumulateGrad"
_OLD_NODE = re.compile(r"(?:torch::autograd::)?(?:\w+Backward\d*|AccumulateGrad)")


def find_nodes(trace: Trace) -> Bools:
    """Find the nodes of autograd that run: a flag for each event, shape (E,).

    Before 1.9 a node is named by its kind alone (``CudnnConvolutionBackward``), and says its forward thread.
    """
    is_node = on_hosts(trace, lambda name: name.startswith(_NODE))
    if is_node.any():
        return is_node
    thread = trace.stats.integers(_FORWARD_THREAD)
    is_node[thread.events[thread.values.astype(np.int64) > 0]] = True
    return is_node & on_hosts(trace, lambda name: _OLD_NODE.fullmatch(name) is not None)


def on_hosts(trace: Trace, is_meant: Callable[[str], bool]) -> Bools:
    """Flag each event of a host that has such a name, shape (E,)."""
    return np.asarray(trace.by_name(trace.names.rows_where(is_meant)) & trace.is_host_event)


def find_makers(trace: Trace, nodes: Int64s, in_node: Bools) -> Int64s:
    """Find the forward op that made each node: an event, or -1, shape (N,).

    Args:
        trace: The trace.
        nodes: N nodes, in the order of events.
        in_node: Whether each event runs backward: in a node, and not in a repeated call, shape (E,).
    """
    number, thread = (trace.stats.integers(name) for name in (_SEQUENCE, _FORWARD_THREAD))
    backward = thread.of(number.events) > 0
    kept = ~backward & ~in_node[number.events] & trace.is_host_event[number.events]
    made, numbers = number.events[kept], number.values[kept].astype(np.int64)
    order = np.lexsort((trace.events.begin_ps[made], numbers))
    made, numbers = made[order], numbers[order]
    wanted = number.of(nodes)
    at = np.searchsorted(numbers, wanted, side="right") - 1
    has_maker = (wanted >= 0) & (at >= 0)
    has_maker[has_maker] = numbers[at[has_maker]] == wanted[has_maker]
    maker = np.full(nodes.size, -1, np.int64)
    maker[has_maker] = made[at[has_maker]]
    is_sum = trace.names.rows_where(lambda name: _SUM in name)[trace.events.name[nodes]]
    # Of a node its own row, of a sum of gradients that of the last other node of its line.
    rows, line = np.arange(nodes.size), trace.lines.of_event[nodes]
    starts = np.append(True, line[1:] != line[:-1])[: rows.size]
    return maker[np.maximum.accumulate(np.where(is_sum & ~starts, 0, rows))]
