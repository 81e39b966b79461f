"""Waiting for the next element to the iterator that kept it waiting.

While a consumer waits for an asynchronous iterator, what counts is what the threads behind that do at the
time: if the user's function runs, the function is what everybody waits for; else the call of its input
that is running, and if that is itself a wait for an asynchronous iterator, what happens behind that; and so
on to work that somebody does. So every instant of the training's waiting is charged to exactly one
iterator, and the charges add up to the waiting to the picosecond.

No peer does this: the official tool's tf.data analysis, dropped in 2023, named the iterator with the longest
self time in the one slowest call.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.core.columns import Bools, Int64s, stable_order
from profnb.subjects.input.iterators import IteratorTree
from profnb.trace.model import Trace

# What time can be charged to, of each iterator: its own work, or its user's function.
ITERATOR, FUNCTION = 0, 1
_PARTS = 2
_LONG_AGO, _FAR_AHEAD = -(1 << 61), 1 << 61


class Pieces(NamedTuple):
    """P stretches of time, each with a label: a call, or what it is charged to (see ``_label``)."""

    begin_ps: Int64s
    end_ps: Int64s
    label: Int64s


def _label(iterator: Int64s | int, part: int) -> Int64s | int:
    """One number for an iterator's part, as the kernels below carry it along."""
    return _PARTS * iterator + part


@dataclass(frozen=True, slots=True)
class Charges:
    """P stretches of the training's waiting in time order, which do not overlap.

    Attributes:
        begin_ps: Their begins, shape (P,).
        end_ps: Their ends, shape (P,).
        iterator: The iterator that each is charged to, shape (P,).
        part: ``ITERATOR`` for its own work, ``FUNCTION`` for its user's function, shape (P,).
    """

    begin_ps: Int64s
    end_ps: Int64s
    iterator: Int64s
    part: Int64s

    @property
    def duration_ps(self) -> Int64s:
        """Their durations, shape (P,)."""
        return self.end_ps - self.begin_ps

    def sum_by_iterator(self, count: int, chosen: Bools | None = None) -> Int64s:
        """Waiting charged to each iterator, shape (count, 2), columns ``ITERATOR`` and ``FUNCTION``.

        Args:
            count: How many iterators there are.
            chosen: Which stretches count, shape (P,); all of them by default.
        """
        rows = slice(None) if chosen is None else chosen
        sums = np.zeros((count, _PARTS), np.int64)
        np.add.at(sums, (self.iterator[rows], self.part[rows]), self.duration_ps[rows])
        return sums


def self_pieces(trace: Trace, tree: IteratorTree) -> tuple[Pieces, Int64s]:
    """Where each call itself was running, not a call inside it.

    A call 0-10 with one 3-5 inside it gives (0, 3, outer), (5, 10, outer) and (3, 5, inner).

    Returns:
        The pieces thread by thread, labelled with rows of ``tree.events``; and for each call the outermost
        one on its thread that it lies inside.
    """
    begin, end = trace.events.begin_ps[tree.events], trace.events.end_ps[tree.events]
    above, calls = tree.above, np.arange(begin.size)
    top = np.maximum.accumulate(np.where(above < 0, calls, 0))
    inner = stable_order(above + 1)
    inner = inner[above[inner] >= 0]  # by the call that they lie inside, and by time
    outer = above[inner]
    follows = np.append(False, outer[1:] == outer[:-1])[: inner.size]
    before = np.where(follows, np.append(0, end[inner][:-1])[: inner.size], begin[outer])
    covered = begin.copy()
    covered[outer] = end[inner]  # the last one of several
    pieces = Pieces(
        np.concatenate([before, covered]),
        np.concatenate([begin[inner], end]),
        np.concatenate([outer, calls]),
    )
    lasting = np.flatnonzero(pieces.end_ps > pieces.begin_ps)
    order = lasting[stable_order(top[pieces.label[lasting]])]
    return Pieces(*(column[order] for column in pieces)), top


def _pieces_of(rows: Int64s) -> Pieces:
    """Rows of (begin, end, label) as columns."""
    return Pieces(*(np.ascontiguousarray(column) for column in rows.T))


def _flat(pieces: Pieces) -> Pieces:
    """Pieces in time order, made not to overlap: 0-4 and 2-6 become 0-4 and 4-6."""
    order = np.argsort(pieces.begin_ps, kind="stable")
    begin, end, label = (column[order] for column in pieces)
    begin[1:] = np.maximum(begin[1:], np.maximum.accumulate(end)[:-1])
    goes_on = end > begin
    return Pieces(begin[goes_on], end[goes_on], label[goes_on])


def _replace(pieces: Pieces, wanted: Bools, inside: Pieces) -> Pieces:
    """The wanted pieces replaced by what lies inside them: 0-10 by 2-5 gives 0-2, 2-5, 5-10."""
    first = np.searchsorted(inside.end_ps, pieces.begin_ps, side="right")
    parts = np.searchsorted(inside.begin_ps, pieces.end_ps) - first
    parts[~wanted] = 0
    np.maximum(parts, 0, out=parts)
    # The number of a part inside its piece: 0, 1, ... of the first piece, then of the next.
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    part = np.repeat(first, parts) + number
    lower = np.maximum(inside.begin_ps[part], np.repeat(pieces.begin_ps, parts))
    upper = np.minimum(inside.end_ps[part], np.repeat(pieces.end_ps, parts))
    # What is left of a piece: from its begin to its first part, between parts, from the last to its end.
    before = np.cumsum(parts)
    begin = np.insert(upper, before - parts, pieces.begin_ps)
    end = np.insert(lower, before, pieces.end_ps)
    rows = Pieces(
        np.concatenate([begin, lower]),
        np.concatenate([end, upper]),
        np.concatenate([np.repeat(pieces.label, parts + 1), inside.label[part]]),
    )
    lasting = np.flatnonzero(rows.end_ps > rows.begin_ps)
    order = lasting[np.argsort(rows.begin_ps[lasting], kind="stable")]
    return Pieces(*(column[order] for column in rows))


def charge_waiting(trace: Trace, tree: IteratorTree) -> Charges:
    """Charge each instant at which the training waits for an element to one iterator.

    One element of ``Range -> Map -> Prefetch``, in milliseconds. The training asks at 9 and has it at 19; the
    thread that fills Prefetch's buffer began on it at 4::

        training's thread                Root      9 ======================== 19
                                         Prefetch   9.5 ============== 18.5
        Prefetch's thread     Map   4 ============================ 18
                              Range 4 ============ 11
        run of Map's function                      11 ============ 18

        charged to                       Root Range Map's function Prefetch Root
                                         9-9.5 -11        -18       -18.5   -19
        milliseconds                      0.5  1.5         7         0.5    0.5

    Root's own time is charged to Root. Prefetch is asynchronous, so its 9 ms are looked behind: its thread is
    in Range until 11, then in Map's function until 18; after that nobody works, and the rest is Prefetch's.
    Together Root 1, Range 1.5, Map's function 7, Prefetch 0.5: the 10 ms that the training waited.

    Returns:
        The charges, which together cover the calls of the outermost iterators.
    """
    pieces, top = self_pieces(trace, tree)
    if not len(tree):
        none = np.empty(0, np.int64)
        return Charges(none, none, none, none)
    iterator = tree.node[pieces.label]
    feeds = tree.parent[tree.node[top[pieces.label]]]  # for which iterator a piece's thread works

    def calls_on_threads(of: Bools) -> Pieces:
        label = np.asarray(_label(iterator[of], ITERATOR))
        return _flat(Pieces(pieces.begin_ps[of], pieces.end_ps[of], label))

    behind: dict[int, Pieces] = {}
    for asynchronous in np.flatnonzero(tree.is_async)[::-1].tolist():  # the deepest first
        behind[asynchronous] = _look_behind(calls_on_threads(feeds == asynchronous), behind)
        functions = _function_runs(trace, tree, asynchronous)
        if functions.begin_ps.size:
            behind[asynchronous] = _merge(functions, behind[asynchronous])
    waits = _look_behind(calls_on_threads(feeds < 0), behind)
    begin, end, label = _name_functions(trace, tree, waits)
    return Charges(begin, end, label // _PARTS, label % _PARTS)


def _function_runs(trace: Trace, tree: IteratorTree, iterator: int) -> Pieces:
    """When some run of an iterator's function was going on."""
    runs = tree.run_node == iterator
    label = np.full(int(runs.sum()), _label(iterator, FUNCTION))
    return _flat(Pieces(trace.events.begin_ps[tree.runs[runs]], tree.run_end_ps[runs], label))


def _merge(front: Pieces, behind: Pieces) -> Pieces:
    """Two timelines as one, in which the first hides the second: 2-5 before 0-10 gives 0-2, 2-5, 5-10."""
    gaps = Pieces(
        np.concatenate([[_LONG_AGO], front.end_ps]),
        np.concatenate([front.begin_ps, [_FAR_AHEAD]]),
        np.full(front.begin_ps.size + 1, -1),
    )
    filled = np.stack(_replace(gaps, np.ones(gaps.label.size, np.bool_), behind), axis=1)
    rows = np.concatenate([filled[filled[:, 2] >= 0], np.stack(front, axis=1)])
    return _pieces_of(rows[np.argsort(rows[:, 0], kind="stable")])


def _look_behind(pieces: Pieces, behind: dict[int, Pieces]) -> Pieces:
    """Replace waits for asynchronous iterators by what happened behind them."""
    for asynchronous in sorted(set((pieces.label // _PARTS).tolist()) & set(behind)):
        wanted = pieces.label == _label(asynchronous, ITERATOR)
        if wanted.any() and behind[asynchronous].begin_ps.size:
            pieces = _replace(pieces, wanted, behind[asynchronous])
    return pieces


def _name_functions(trace: Trace, tree: IteratorTree, pieces: Pieces) -> Pieces:
    """Tell a synchronous iterator's function apart from the iterator's own work."""
    runs = (tree.run_node >= 0) & ~tree.is_async[np.maximum(tree.run_node, 0)]
    for iterator in np.unique(tree.run_node[runs]).tolist():
        wanted = pieces.label == _label(iterator, ITERATOR)
        pieces = _replace(pieces, wanted, _function_runs(trace, tree, iterator))
    return pieces
