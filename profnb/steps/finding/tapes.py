"""Gradients that are computed eagerly to steps: a loop over NumPy batches asks no tf.data for elements.

The capture marks where a tape is entered and where it is asked for a gradient, with a number for the calls
that led there. Gradients of calls that alternate make one turn (a GAN's two), and so do those of one
persistent tape (one for each example). It begins where the first of their tapes is entered and ends, after
its last gradient, with what TensorFlow does then on that thread.

    tapes      |in    gradient|          |in    gradient|          |in    gradient|
    ops          ooooo        oooo apply  xooooo        oooo apply  xooooo        oooo apply  evaluation ...
    steps      [0                     ]  [1                     ]  [2                     ]

Evaluation, logging and making the next batch may follow too. So a turn has no more events after its last
gradient than the median turn of its loop, unless it updates variables later (accumulated gradients are
applied now and then), and constants and conversions do not end it: those are of the next batch.
"""

import numpy as np

from profnb.core.columns import Bools, Int64s, look_up
from profnb.steps.finding.cycles import Turns, find_phases
from profnb.steps.finding.loops import EAGER_TAPES, Thread, names_of_phases
from profnb.steps.windows import Steps, make_steps
from profnb.trace.model import Trace
from profnb.trace.names import TAPE_NUMBER, TAPE_SITE

_ASKS = ("EagerLocalExecute: IteratorGetNext", "EagerLocalExecute: MakeIterator")
_PREPARES = ("convert_to_tensor", "tf.constant", "TFE_DeleteTensorHandle")


def taped_steps(trace: Trace, others: Steps | None = None) -> Steps | None:
    """Steps of eager loops by their gradients.

    Args:
        trace: The trace.
        others: Steps of eager loops that were found already; what overlaps one is part of it.

    Returns:
        These and the others, in time order; None where there is neither.
    """
    sites = trace.stats.integers(TAPE_SITE)
    on_host = trace.is_host_event[sites.events]
    gradients, codes = sites.events[on_host], sites.values[on_host].astype(np.int64)
    if gradients.size < 2:
        return others
    thread = Thread(trace, int(np.bincount(trace.lines.of_event[gradients]).argmax()))
    order = np.argsort(gradients)
    order = order[trace.lines.of_event[gradients[order]] == thread.line]
    gradients, codes = _of_one_turn(trace, gradients[order], codes[order])
    codes = np.unique(codes, return_inverse=True)[1]
    at = np.arange(gradients.size)
    turns = find_phases(codes.astype(np.int64), at, at + 1)
    if turns.first_root.size < 3:
        return others
    begin_events = _begins(trace, gradients, turns)
    in_turns = np.isin(at, turns.roots)
    begins = thread.rows_of(begin_events)
    last = _lasts(
        trace,
        thread,
        turns.anchor,
        thread.rows_of(gradients[turns.roots[turns.first_root[1:] - 1]]),
        np.concatenate(
            [begin_events, gradients[~in_turns], _other_work(trace, gradients[in_turns])]
        ),
    )
    kept = np.append(begins[1:] > begins[:-1], True)
    if others is not None:
        kept &= ~_overlap(trace, others, thread.outer[begins], thread.outer[last - 1])
    begins, last = begins[kept], last[kept]
    if begins.size < 2:
        return others
    phase = names_of_phases(thread, begins, last, turns.anchor[kept])
    rows = [thread.outer[a:b] for a, b in zip(begins.tolist(), last.tolist(), strict=True)]
    if others is None:
        return _steps_of(trace, rows, phase, EAGER_TAPES)
    pieces = np.split(others.roots, others.first_root[1:-1])
    both = [*zip(pieces, others.phase, strict=True), *zip(rows, phase, strict=True)]
    both.sort(key=lambda step: int(trace.events.begin_ps[step[0][0]]))
    rows, phase = [roots for roots, _ in both], tuple(name for _, name in both)
    return _steps_of(trace, rows, phase, f"{others.origin}; {EAGER_TAPES}")


def _steps_of(trace: Trace, rows: list[Int64s], phase: tuple[str, ...], origin: str) -> Steps:
    first_root = np.append(0, np.cumsum([roots.size for roots in rows]))
    return make_steps(trace, np.concatenate(rows), first_root, phase, origin)


def _overlap(trace: Trace, others: Steps, first: Int64s, last: Int64s) -> Bools:
    """Which of S turns, from their first event to their last one, overlap a step."""
    begun_before = np.searchsorted(others.host_begin_ps, trace.events.end_ps[last])
    ends = np.append(0, others.host_end_ps)[begun_before]
    return np.asarray((begun_before > 0) & (ends > trace.events.begin_ps[first]))


def _of_one_turn(trace: Trace, gradients: Int64s, codes: Int64s) -> tuple[Int64s, Int64s]:
    """One gradient for all that a persistent tape is asked for in a row: the last, by the first one's place.

    A tape that is the only one is entered before the loop, so each of its gradients may be a turn.
    """
    numbers = _numbers_of(trace, gradients)
    if np.unique(numbers[numbers > 0]).size < 2:
        return gradients, codes
    is_again = np.append(False, (numbers[1:] == numbers[:-1]) & (numbers[1:] > 0))
    return gradients[~np.append(is_again[1:], False)], codes[~is_again]


def _tapes(trace: Trace) -> tuple[Int64s, Int64s]:
    """(numbers of tapes, ascending and distinct, where each was entered)."""
    column, gradients = trace.stats.integers(TAPE_NUMBER), trace.stats.integers(TAPE_SITE).events
    entered = ~np.isin(column.events, gradients)
    numbers, row = np.unique(column.values[entered].astype(np.int64), return_index=True)
    return numbers, column.events[entered][row]


def _numbers_of(trace: Trace, gradients: Int64s) -> Int64s:
    """The number of the tape that each of N gradients is of, shape (N,); 0 where it is not known."""
    column = trace.stats.integers(TAPE_NUMBER)
    return look_up(column.events, column.values.astype(np.int64), gradients, 0)


def _other_work(trace: Trace, gradients: Int64s) -> Int64s:
    """Events with which something begins that is no turn: tapes of none of these gradients, tf.data."""
    numbers, entered = _tapes(trace)
    asks = np.flatnonzero(trace.select_names(lambda name: name in _ASKS) & trace.is_host_event)
    return np.concatenate([entered[~np.isin(numbers, _numbers_of(trace, gradients))], asks])


def _begins(trace: Trace, gradients: Int64s, turns: Turns) -> Int64s:
    """The event with which each of S turns of N gradients begins, shape (S,).

    That is where the first of its tapes was entered; where none was since the gradient before it, its own
    first gradient.
    """
    numbers, entered = _tapes(trace)
    turn_gradients, first = gradients[turns.roots], turns.first_root[:-1]
    entry = look_up(numbers, entered, _numbers_of(trace, turn_gradients), -1)
    previous = np.append(-1, gradients)[turns.roots[first]]
    is_since = entry > np.repeat(previous, np.diff(turns.first_root))
    return np.minimum.reduceat(
        np.where(is_since, np.minimum(entry, turn_gradients), turn_gradients), first
    )


def _lasts(
    trace: Trace, thread: Thread, of_loop: Int64s, gradients: Int64s, stops: Int64s
) -> Int64s:
    """Where each of S turns ends.

    Args:
        trace: The trace.
        thread: The thread that runs them.
        of_loop: Which loop each belongs to, shape (S,).
        gradients: The row of ``thread.outer`` with each one's last gradient, shape (S,).
        stops: Events with which something else begins.

    Returns:
        The row of ``thread.outer`` behind each, shape (S,).
    """
    size = thread.outer.size
    stops = np.unique(thread.rows_of(stops))
    at = np.searchsorted(stops, gradients, side="right")
    last = np.append(stops, size)[at]
    after, usual = last - gradients, np.ones_like(last)
    for loop in np.unique(of_loop).tolist():
        is_of_loop = of_loop == loop
        stopped = is_of_loop & (at < stops.size)
        usual[is_of_loop] = np.median(after[stopped]) if stopped.any() else 1
    updates = np.searchsorted(thread.outer, thread.updates)
    last_update = np.append(-1, updates)[np.searchsorted(updates, last)]
    last = np.minimum(last, np.maximum(gradients + usual, last_update + 1))
    prepares = trace.are_named(thread.outer, lambda name: name in _PREPARES)
    works = np.maximum.accumulate(np.where(prepares, -1, np.arange(size)))
    return np.asarray(np.maximum(gradients, works[last - 1]) + 1)
