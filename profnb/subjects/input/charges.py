"""Waiting for the next element to the iterator that kept it waiting.

While a consumer waits for an asynchronous iterator, what counts is what the threads behind that do at the
time: if the user's function runs, the function is what everybody waits for; else the call of its input
that is running, and if that is itself a wait for an asynchronous iterator, what happens behind that; and so
on to work that somebody does. So every instant of the training's waiting is charged to exactly one
iterator, and the charges add up to the waiting to the picosecond.

No peer does this: the official tool's tf.data analysis, dropped in 2023, named the iterator with the longest
self time in the one slowest call.
"""

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.jit import compiled
from profnb.subjects.input.iterators import IteratorTree
from profnb.trace.model import Trace

__all__ = ["Pieces", "charge_waiting", "self_pieces"]

Pieces = tuple[Int64s, Int64s, Int64s]  # begins, ends, labels


@compiled
def _self_pieces(begin: Int64s, end: Int64s, above: Int64s, top: Int64s, out: Int64s) -> int:
    """Stretches of each call that no call inside it covers: rows of (begin, end, call), and how many."""
    count = 0
    covered = begin.copy()  # how far each call is accounted for
    stack = [np.int64(-1)]
    for call in range(begin.size):
        while len(stack) > 1 and stack[-1] != above[call]:
            done = stack.pop()
            if end[done] > covered[done]:
                out[count, 0], out[count, 1], out[count, 2] = covered[done], end[done], done
                count += 1
        owner = above[call]
        if owner >= 0:
            if begin[call] > covered[owner]:
                out[count, 0], out[count, 1], out[count, 2] = covered[owner], begin[call], owner
                count += 1
            covered[owner] = max(covered[owner], end[call])
            top[call] = top[owner]
        else:
            top[call] = call
        stack.append(np.int64(call))
    while len(stack) > 1:
        done = stack.pop()
        if end[done] > covered[done]:
            out[count, 0], out[count, 1], out[count, 2] = covered[done], end[done], done
            count += 1
    return count


def self_pieces(trace: Trace, tree: IteratorTree) -> tuple[Pieces, Int64s]:
    """Where each call itself was running, not a call inside it.

    Returns:
        The pieces, labelled with rows of ``tree.events``; and for each call the outermost one on its
        thread that it lies inside.
    """
    begin, end = trace.events.begin_ps[tree.events], trace.events.end_ps[tree.events]
    top = np.empty(begin.size, np.int64)
    out = np.empty((2 * begin.size + 1, 3), np.int64)
    count = _self_pieces(begin, end, tree.above, top, out)
    return (out[:count, 0].copy(), out[:count, 1].copy(), out[:count, 2].copy()), top


@compiled
def _flatten(begin: Int64s, end: Int64s, label: Int64s, out: Int64s) -> int:
    """Pieces ordered by begin, made not to overlap: what began first goes on."""
    count, until = 0, np.int64(-(1 << 62))
    for row in range(begin.size):
        start = max(begin[row], until)
        if end[row] > start:
            out[count, 0], out[count, 1], out[count, 2] = start, end[row], label[row]
            count += 1
            until = end[row]
    return count


def _flat(pieces: Pieces) -> Pieces:
    order = np.argsort(pieces[0], kind="stable")
    out = np.empty((order.size + 1, 3), np.int64)
    count = _flatten(pieces[0][order], pieces[1][order], pieces[2][order], out)
    return out[:count, 0].copy(), out[:count, 1].copy(), out[:count, 2].copy()


@compiled
def _overlay(
    begin: Int64s, end: Int64s, label: Int64s, wanted: Int64s, first: Int64s, last: Int64s,
    inside: Int64s, out: Int64s,
) -> int:  # fmt: skip
    """Replace the pieces that are wanted by what lies inside them; what nothing covers stays as it is."""
    count, at = 0, 0
    for row in range(begin.size):
        start = begin[row]
        if wanted[row]:
            while at < first.size and last[at] <= start:
                at += 1
            here = at
            while here < first.size and first[here] < end[row]:
                lower, upper = max(first[here], start), min(last[here], end[row])
                if upper > lower:
                    if lower > start:
                        out[count, 0], out[count, 1], out[count, 2] = start, lower, label[row]
                        count += 1
                    out[count, 0], out[count, 1], out[count, 2] = lower, upper, inside[here]
                    count += 1
                    start = upper
                here += 1
        if end[row] > start:
            out[count, 0], out[count, 1], out[count, 2] = start, end[row], label[row]
            count += 1
    return count


def _resolve(pieces: Pieces, wanted: Int64s, inside: Pieces) -> Pieces:
    out = np.empty((2 * (pieces[0].size + inside[0].size) + 2, 3), np.int64)
    count = _overlay(*pieces, wanted, *inside, out)
    return out[:count, 0].copy(), out[:count, 1].copy(), out[:count, 2].copy()


def charge_waiting(trace: Trace, tree: IteratorTree) -> Pieces:
    """Charge each instant at which the training waits for an element to one iterator.

    Returns:
        Pieces that do not overlap, in time order, labelled ``2 * iterator`` for the iterator's own work and
        ``2 * iterator + 1`` for its user's function. Together they cover the calls of the outermost
        iterators.
    """
    pieces, top = self_pieces(trace, tree)
    none = np.empty(0, np.int64)
    if not len(tree):
        return none, none, none
    node = tree.node[pieces[2]]
    feeds = tree.parent[tree.node[top[pieces[2]]]]  # for which iterator the thread of a piece works
    resolved: dict[int, Pieces] = {}
    for asynchronous in np.flatnonzero(tree.is_async)[::-1].tolist():  # the deepest first
        own = feeds == asynchronous
        behind = _flat((pieces[0][own], pieces[1][own], 2 * node[own]))
        resolved[asynchronous] = _look_behind(behind, resolved)
        runs = tree.run_node == asynchronous
        functions = _flat((
            trace.events.begin_ps[tree.runs[runs]], tree.run_end_ps[runs],
            np.full(int(runs.sum()), 2 * asynchronous + 1),
        ))  # fmt: skip
        if functions[0].size:
            resolved[asynchronous] = _merge(functions, resolved[asynchronous])
    outermost = feeds < 0
    waits = _flat((pieces[0][outermost], pieces[1][outermost], 2 * node[outermost]))
    return _name_functions(trace, tree, _look_behind(waits, resolved))


def _merge(front: Pieces, behind: Pieces) -> Pieces:
    """Two timelines as one, in which the first hides the second."""
    out = np.empty((2 * (front[0].size + behind[0].size) + 2, 3), np.int64)
    gaps = (
        np.concatenate([[-(1 << 61)], front[1]]),
        np.concatenate([front[0], [1 << 61]]),
        np.full(front[0].size + 1, -1),
    )
    count = _overlay(*gaps, np.ones(gaps[0].size, np.int64), *behind, out)
    kept = out[:count][out[:count, 2] >= 0]
    rows = np.concatenate([kept, np.stack(front, axis=1)])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy()


def _look_behind(pieces: Pieces, resolved: dict[int, Pieces]) -> Pieces:
    """Replace waits for asynchronous iterators by what happened behind them."""
    for asynchronous in sorted(set((pieces[2] // 2).tolist()) & set(resolved)):
        wanted = (pieces[2] == 2 * asynchronous).astype(np.int64)
        if wanted.any() and resolved[asynchronous][0].size:
            pieces = _resolve(pieces, wanted, resolved[asynchronous])
    return pieces


def _name_functions(trace: Trace, tree: IteratorTree, pieces: Pieces) -> Pieces:
    """Tell a synchronous iterator's function apart from the iterator's own work."""
    runs = (tree.run_node >= 0) & ~tree.is_async[np.maximum(tree.run_node, 0)]
    if not runs.any():
        return pieces
    for node in np.unique(tree.run_node[runs]).tolist():
        own = tree.run_node == node
        functions = _flat((
            trace.events.begin_ps[tree.runs[own]], tree.run_end_ps[own],
            np.full(int(own.sum()), 2 * node + 1),
        ))  # fmt: skip
        pieces = _resolve(pieces, (pieces[2] == 2 * node).astype(np.int64), functions)
    return pieces
