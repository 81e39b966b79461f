"""Eager loops to steps: what Python repeats without any function around it.

``for x in dataset`` asks for the next element at the begin of each turn, on the thread that runs the loop; a
step begins there and ends with the last thing that TensorFlow does on that thread before the next one.
Python's own time after that is the gap. A call that brings no element (the data ran out) ends the loop and
is no step. Where two iterators take turns (``zip``), a turn is a step.

    asks     |next|  ops  |next|  ops  |next|  ops  |none|  validation ...
    steps    [0         ] [1         ] [2         ]

A loop over NumPy batches asks no tf.data for elements, but computes gradients. The capture marks where a
tape is entered and where it is asked for a gradient, with a number for the calls that led there. Gradients
of calls that alternate make one turn (a GAN's two), and so do those of one persistent tape (one for each
example). It begins where the first of their tapes is entered and ends, after its last gradient, with what
TensorFlow does then on that thread.

    tapes      |in    gradient|          |in    gradient|          |in    gradient|
    ops          ooooo        oooo apply  xooooo        oooo apply  xooooo        oooo apply  evaluation ...
    steps      [0                     ]  [1                     ]  [2                     ]

Evaluation, logging and making the next batch may follow too. So a turn has no more events after its last
gradient than the median turn of its loop, unless it updates variables later (accumulated gradients are
applied now and then), and constants and conversions do not end it: those are of the next batch.

A turn in which a variable is updated as optimizers do it is training.
"""

import numpy as np

from profnb.core.columns import Bools, Int64s, distinct_rows, look_up
from profnb.steps.finding.calls import Turns, find_phases
from profnb.steps.nesting import find_parents, last_around
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import TAPE_NUMBER, TAPE_SITE

EAGER_TURNS = "passes of an eager loop, each from asking tf.data for the next element"
EAGER_TAPES = "passes of an eager loop, each from entering a GradientTape"
_ASKS = "EagerLocalExecute: IteratorGetNext"
_FETCH = "IteratorGetNextOp::DoCompute"
_MAKES = "EagerLocalExecute: MakeIterator"
_ROOT = "Iterator::Root"
_UPDATED = "AssignSubVariableOp", "ResourceApply", "ResourceSparseApply"
_UPDATES = tuple(f"EagerLocalExecute: {op}" for op in _UPDATED)
_TENTH = 0.1
_PREPARES = ("convert_to_tensor", "tf.constant", "TFE_DeleteTensorHandle")


class _Thread:
    """The events of one line that lie in no other.

    Attributes:
        line: The line.
        outer: Those events, ascending, shape (N,).
        updates: Those in which variables are updated as optimizers do it, ascending.
    """

    def __init__(self, trace: Trace, events: Int64s) -> None:
        """Find them on the line that has most of some events."""
        self.line = int(np.bincount(trace.lines.of_event[events]).argmax())
        self._first, self._last = (int(at) for at in trace.lines.offsets[self.line :][:2])
        ends = trace.events.end_ps[self._first : self._last]
        self.outer = self._first + np.flatnonzero(find_parents(ends, np.array([0, ends.size])) < 0)
        updates = trace.select_names(lambda name: name.startswith(_UPDATES))
        self.updates = self.outer_of(np.flatnonzero(updates))

    def rows_of(self, events: Int64s) -> Int64s:
        """Find the row of ``outer`` in which each of N events of this line lies, shape (N,)."""
        line_events = events[(events >= self._first) & (events < self._last)]
        return np.searchsorted(self.outer, line_events, side="right") - 1

    def outer_of(self, events: Int64s) -> Int64s:
        """Find the outermost events in which those of this line lie, in their order, each once."""
        outermost_events = self.outer[np.maximum(self.rows_of(events), 0)]
        return outermost_events[np.flatnonzero(np.diff(outermost_events, prepend=-1))]

    def phases(self, first: Int64s, last: Int64s, of_loop: Int64s) -> list[str]:
        """Name each of S turns: an update in a tenth of a loop's turns makes them all training.

        Gradients may be accumulated.
        """
        _, of_loop = np.unique(of_loop, return_inverse=True)
        begun = np.searchsorted(self.updates, self.outer[first])
        updates = begun < np.searchsorted(self.updates, self.outer[last - 1], side="right")
        share = np.bincount(of_loop, updates) / np.maximum(np.bincount(of_loop), 1)
        return ["train" if trains else "loop" for trains in (share >= _TENTH)[of_loop].tolist()]

    def rows_between(self, first: Int64s, last: Int64s) -> list[Int64s]:
        """Split out the events of each of S turns, given as for ``phases``."""
        return [self.outer[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]


def _steps_of(trace: Trace, turns: list[Int64s], phase: list[str], origin: str) -> Steps:
    first_root = np.cumsum([0, *(roots.size for roots in turns)])
    return Steps.of_roots(trace, np.concatenate(turns), tuple(phase), origin, first_root)


def eager_steps(trace: Trace) -> Steps | None:
    """Find steps of eager loops over tf.data; None where none asks twice for an element."""
    asks = np.flatnonzero(trace.select_named(_ASKS) & trace.is_host_event)
    if asks.size < 2:
        return None
    thread = _Thread(trace, asks)
    asks = asks[trace.lines.of_event[asks] == thread.line]
    brings = _brings_element(trace, asks)
    made = thread.outer_of(np.flatnonzero(trace.select_named(_MAKES)))
    asked, iterator = thread.outer_of(asks[brings]), _iterator_of(trace, asks[brings])
    in_pass = np.searchsorted(made, asked)
    chosen = _turns(iterator, in_pass)
    if chosen.size < 2:
        return None
    begins = asked[chosen]
    stops = np.unique(np.concatenate([begins, made, thread.outer_of(asks[~brings])]))
    # A turn ends before whatever stops it. The last one of a loop that was left (``break``) is stopped by
    # nothing of its own; it is given as many events as others have.
    first = np.searchsorted(thread.outer, begins)
    at = np.searchsorted(stops, begins, side="right")
    is_stopped = at < stops.size
    last = np.searchsorted(thread.outer, stops[np.minimum(at, stops.size - 1)])
    usual = int(np.median((last - first)[is_stopped])) if is_stopped.any() else 1
    last = np.where(is_stopped, last, np.minimum(thread.outer.size, first + max(usual, 1)))
    _, of_loop = distinct_rows(in_pass[chosen], iterator[chosen])
    phase = thread.phases(first, last, of_loop)
    return _steps_of(trace, thread.rows_between(first, last), phase, EAGER_TURNS)


def _brings_element(trace: Trace, asks: Int64s) -> Bools:
    """Mark those of N calls that brought an element: the fetch inside tells its size, if any does."""
    sizes = trace.stats.integers("element_size").events
    fetches = np.flatnonzero(trace.select_named(_FETCH) & trace.is_host_event)
    has_size = np.isin(fetches, sizes)
    if not has_size.any():
        return np.ones(asks.size, np.bool_)
    inside = last_around(trace, asks, fetches[has_size])
    return np.isin(np.arange(asks.size), inside)


def _iterator_of(trace: Trace, asks: Int64s) -> Int64s:
    """Find the iterator that each of N calls asks, as the root inside tells it; 0 where none does."""
    roots = np.flatnonzero(trace.select_named(_ROOT) & trace.is_host_event)
    ids = trace.stats.integers("id")
    row = last_around(trace, asks, roots)
    iterator = np.zeros(asks.size, np.int64)
    iterator[row[row >= 0]] = ids.of(roots, 0)[row >= 0]
    return iterator


def _turns(iterator: Int64s, in_pass: Int64s) -> Int64s:
    """Find which of N calls begin a turn of a loop, ascending.

    Within one pass over the data (between the making of iterators) those that are asked in turn make one
    turn together. What is asked once in a pass counts where the same iterator is asked in other passes too
    (another loop runs inside this one), and where there is nothing else.
    """
    rows = np.arange(iterator.size)
    begins: list[Int64s] = []
    rest = np.ones(iterator.size, np.bool_)
    for number in np.unique(in_pass).tolist():
        pass_rows = rows[in_pass == number]
        turns = find_phases(iterator[pass_rows])
        begins.append(pass_rows[turns.first])
        rest[pass_rows[turns.roots]] = False
    alone = rows[rest]
    turn_begins = np.sort(np.concatenate([*begins, alone[find_phases(iterator[alone]).first]]))
    return turn_begins if turn_begins.size else rows


def taped_steps(trace: Trace, others: Steps | None = None) -> Steps | None:
    """Find steps of eager loops by their gradients.

    What overlaps a step of other eager loops that was found already is part of that.

    Returns:
        These and the others, in time order; None where there is neither.
    """
    sites, tapes = trace.stats.integers(TAPE_SITE), trace.stats.integers(TAPE_NUMBER)
    on_host = trace.is_host_event[sites.events]
    gradients, codes = sites.events[on_host], sites.values[on_host].astype(np.int64)
    if gradients.size < 2:
        return others
    thread = _Thread(trace, gradients)
    on_thread = trace.lines.of_event[gradients] == thread.line
    gradients, codes = gradients[on_thread], codes[on_thread]
    # The numbers of tapes, ascending, and where each was entered; the tape of each gradient, 0 for none
    # known.
    is_entry = ~np.isin(tapes.events, sites.events)
    tape_numbers = tapes.values.astype(np.int64)
    numbers, row = np.unique(tape_numbers[is_entry], return_index=True)
    entered = tapes.events[is_entry][row]
    tape = tapes.of(gradients, 0).astype(np.int64)
    if np.unique(tape[tape > 0]).size > 1:
        # All that a persistent tape is asked for in a row is one gradient: the last, by the first one's
        # place. A tape that is the only one is entered before the loop, so each of its gradients may be a
        # turn.
        is_again = np.append(False, (tape[1:] == tape[:-1]) & (tape[1:] > 0))
        is_last = ~np.append(is_again[1:], False)
        gradients, tape, codes = gradients[is_last], tape[is_last], codes[~is_again]
    turns = find_phases(codes)
    if turns.first_root.size < 3:
        return others
    entry = look_up(numbers, entered, tape, -1)
    begin_events = _begins(gradients, entry, turns)
    in_turns = np.isin(np.arange(gradients.size), turns.roots)
    asks = np.flatnonzero(trace.select_named(_ASKS, _MAKES) & trace.is_host_event)
    begins = thread.rows_of(begin_events)
    others_entered = entered[~np.isin(numbers, tape[in_turns])]
    stops = np.concatenate([begin_events, gradients[~in_turns], others_entered, asks])
    last_gradients = thread.rows_of(gradients[turns.last])
    last = _lasts(trace, thread, turns.anchor, last_gradients, stops)
    kept = np.append(begins[1:] > begins[:-1], True)
    if others is not None:
        ends_ps = trace.events.end_ps[thread.outer[last - 1]]
        begun_before = np.searchsorted(others.host_begin_ps, ends_ps)
        others_end_ps = np.append(0, others.host_end_ps)[begun_before]
        is_over = others_end_ps <= trace.events.begin_ps[thread.outer[begins]]
        kept &= (begun_before == 0) | is_over
    begins, last = begins[kept], last[kept]
    if begins.size < 2:
        return others
    rows = thread.rows_between(begins, last)
    phase = thread.phases(begins, last, turns.anchor[kept])
    if others is None:
        return _steps_of(trace, rows, phase, EAGER_TAPES)
    pieces = np.split(others.roots, others.first_root[1:-1])
    both = [*zip(pieces, others.phase, strict=True), *zip(rows, phase, strict=True)]
    both.sort(key=lambda step: int(trace.events.begin_ps[step[0][0]]))
    origin = f"{others.origin}; {EAGER_TAPES}"
    return _steps_of(trace, [roots for roots, _ in both], [name for _, name in both], origin)


def _begins(gradients: Int64s, entry: Int64s, turns: Turns) -> Int64s:
    """Find the event with which each of S turns of N gradients begins, shape (S,).

    That is where the first of its tapes was entered; where none was since the gradient before it, its own
    first gradient.
    """
    turn_gradients, entry = gradients[turns.roots], entry[turns.roots]
    previous = np.append(-1, gradients)[turns.first]
    is_since = entry > np.repeat(previous, np.diff(turns.first_root))
    begin = np.where(is_since, np.minimum(entry, turn_gradients), turn_gradients)
    return np.minimum.reduceat(begin, turns.first_root[:-1])


def _lasts(
    trace: Trace, thread: _Thread, of_loop: Int64s, gradients: Int64s, stops: Int64s
) -> Int64s:
    """Find where each of S turns ends.

    ``gradients`` are rows of ``thread.outer`` with each one's last gradient; with ``stops`` something else
    begins.

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
