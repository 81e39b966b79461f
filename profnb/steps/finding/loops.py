"""Eager loops to steps: what Python repeats without any function around it.

``for x in dataset`` asks for the next element at the begin of each turn, on the thread that runs the loop; a
step begins there and ends with the last thing that TensorFlow does on that thread before the next one.
Python's own time after that is the gap. A call that brings no element (the data ran out) ends the loop and
is no step.

    asks     |next|  ops  |next|  ops  |next|  ops  |none|  validation ...
    steps    [0         ] [1         ] [2         ]

Where two iterators take turns (``zip``), a turn is a step. A turn in which a variable is updated as
optimizers do it is training.
"""

import numpy as np

from profnb.core.columns import Bools, Int64s, look_up
from profnb.steps.finding.cycles import find_phases
from profnb.steps.nesting import find_parents, last_around
from profnb.steps.windows import Steps, make_steps
from profnb.trace.model import Trace

EAGER_TURNS = "turns of an eager loop, each from asking tf.data for the next element"
EAGER_TAPES = "turns of an eager loop, each from entering a GradientTape"
EAGER_LOOPS = frozenset({EAGER_TURNS, EAGER_TAPES, f"{EAGER_TURNS}; {EAGER_TAPES}"})

_ASKS = "EagerLocalExecute: IteratorGetNext"
_FETCH = "IteratorGetNextOp::DoCompute"
_MAKES = "EagerLocalExecute: MakeIterator"
_ROOT = "Iterator::Root"
_UPDATES = tuple(
    f"EagerLocalExecute: {op}"
    for op in ("AssignSubVariableOp", "ResourceApply", "ResourceSparseApply")
)
_TENTH = 0.1
_TRAIN, _LOOP = "train", "loop"


def eager_steps(trace: Trace) -> Steps | None:
    """Steps of eager loops over tf.data; None where none asks twice for an element."""
    asks = np.flatnonzero(trace.select_named(_ASKS) & trace.is_host_event)
    if asks.size < 2:
        return None
    thread = Thread(trace, int(np.bincount(trace.lines.of_event[asks]).argmax()))
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
    first, last = _bounds(thread.outer, begins, stops)
    _, of_loop = np.unique(np.stack([in_pass, iterator])[:, chosen], axis=1, return_inverse=True)
    phase = names_of_phases(thread, first, last, of_loop.ravel())
    rows = [thread.outer[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    first_root = np.append(0, np.cumsum(last - first))
    return make_steps(trace, np.concatenate(rows), first_root, phase, EAGER_TURNS)


class Thread:
    """The events of one line that lie in no other.

    Attributes:
        line: The line.
        outer: Those events, ascending, shape (N,).
        updates: Those in which variables are updated as optimizers do it, ascending.
    """

    def __init__(self, trace: Trace, line: int) -> None:
        """Find them."""
        self.line = line
        self._first, self._last = (int(at) for at in trace.lines.offsets[line : line + 2])
        ends = trace.events.end_ps[self._first : self._last]
        self.outer = self._first + np.flatnonzero(find_parents(ends, np.array([0, ends.size])) < 0)
        updates = trace.select_names(lambda name: name.startswith(_UPDATES))
        self.updates = self.outer_of(np.flatnonzero(updates))

    def rows_of(self, events: Int64s) -> Int64s:
        """The row of ``outer`` in which each of N events of this line lies, shape (N,)."""
        line_events = events[(events >= self._first) & (events < self._last)]
        return np.searchsorted(self.outer, line_events, side="right") - 1

    def outer_of(self, events: Int64s) -> Int64s:
        """The outermost events in which those of this line lie, in their order, each once."""
        outermost_events = self.outer[np.maximum(self.rows_of(events), 0)]
        return outermost_events[np.flatnonzero(np.diff(outermost_events, prepend=-1))]


def names_of_phases(
    thread: Thread, first: Int64s, last: Int64s, of_loop: Int64s
) -> tuple[str, ...]:
    """Whether each of S turns is training: an update in a tenth of a loop's turns makes them all so.

    Gradients may be accumulated.

    Args:
        thread: The thread that runs them.
        first: Row of ``thread.outer`` at which each begins, shape (S,).
        last: The row behind its last one, shape (S,).
        of_loop: Which loop each belongs to, shape (S,).
    """
    each = np.searchsorted(thread.updates, thread.outer[first]) < np.searchsorted(
        thread.updates, thread.outer[last - 1], side="right"
    )
    trains = (np.bincount(of_loop, each) / np.maximum(np.bincount(of_loop), 1) >= _TENTH)[of_loop]
    return tuple(_TRAIN if train else _LOOP for train in trains.tolist())


def _brings_element(trace: Trace, asks: Int64s) -> Bools:
    """Which of N calls brought an element: the fetch inside tells its size then, where any fetch does."""
    sizes = trace.stats.integers("element_size").events
    fetches = np.flatnonzero(trace.select_named(_FETCH) & trace.is_host_event)
    has_size = np.isin(fetches, sizes)
    if not has_size.any():
        return np.ones(asks.size, np.bool_)
    inside = last_around(trace, asks, fetches[has_size])
    return np.isin(np.arange(asks.size), inside)


def _iterator_of(trace: Trace, asks: Int64s) -> Int64s:
    """The iterator that each of N calls asks, as the root inside tells it; 0 where none does."""
    roots = np.flatnonzero(trace.select_named(_ROOT) & trace.is_host_event)
    ids = trace.stats.integers("id")
    row = last_around(trace, asks, roots)
    iterator = np.zeros(asks.size, np.int64)
    root_ids = look_up(ids.events, ids.values.astype(np.int64), roots, 0)
    iterator[row[row >= 0]] = root_ids[row >= 0]
    return iterator


def _turns(iterator: Int64s, in_pass: Int64s) -> Int64s:
    """Which of N calls begin a turn of a loop, ascending.

    Within one pass over the data (between the making of iterators) those that are asked in turn make one
    turn together. What is asked once in a pass counts where the same iterator is asked in other passes too
    (another loop runs inside this one), and where there is nothing else.
    """
    rows = np.arange(iterator.size)
    begins: list[Int64s] = []
    rest = np.ones(iterator.size, np.bool_)
    for number in np.unique(in_pass).tolist():
        pass_rows = rows[in_pass == number]
        begin, members = _cycles(iterator[pass_rows])
        begins.append(pass_rows[begin])
        rest[pass_rows[members]] = False
    alone = rows[rest]
    begin, _ = _cycles(iterator[alone])
    turn_begins = np.sort(np.concatenate([*begins, alone[begin]]))
    return turn_begins if turn_begins.size else rows


def _cycles(codes: Int64s) -> tuple[Int64s, Int64s]:
    """(where each turn of what repeats begins, all that belongs to turns) among N calls."""
    distinct = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    at = np.arange(codes.size)
    turns = find_phases(distinct, at, at + 1)
    return turns.roots[turns.first_root[:-1]], turns.roots


def _bounds(outer: Int64s, begins: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
    """Rows of ``outer`` at which S turns begin and end: before whatever stops them.

    The last turn of a loop that was left (``break``) is stopped by nothing of its own; it is given as many
    events as others have.
    """
    first = np.searchsorted(outer, begins)
    at = np.searchsorted(stops, begins, side="right")
    is_stopped = at < stops.size
    last = np.searchsorted(outer, stops[np.minimum(at, stops.size - 1)])
    usual = int(np.median((last - first)[is_stopped])) if is_stopped.any() else 1
    rest = np.minimum(outer.size, first + max(usual, 1))
    return first, np.where(is_stopped, last, rest)
