"""The queues of TensorFlow 1: how full each was, when the training found it empty, and what limits it.

A queue tells nobody what it holds, but what was put in and taken out is known: the capture saw when each
enqueuing run ended, the trace when each dequeuing op did. What it held at first follows from its bounds. One
that kept a dequeuing op waiting held after that op what it keeps back (``min_after_dequeue``; 0 where it does
not shuffle). One that never did, while the threads that fill it never paused and it grew no more, was full.
Where neither holds, what it held is not known. So counts are right to within one element per thread.

A dequeuing op found too little if it took a millisecond or more, in which something was put in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profnb.capture.recording import QueueRecord
from profnb.core.columns import Bools, Floats, Int64s
from profnb.steps.spine import Spine
from profnb.trace.op_names import parse_op

_WAITED_PS = 1_000_000_000
_LATE_PS = (
    5_000_000_000  # an enqueuing run ends this much later, at most, than the element is there
)
_ALWAYS = 0.8


@dataclass(frozen=True, slots=True)
class QueueUse:
    """One queue.

    Attributes:
        record: What the capture knows of it.
        time_ps: When it was looked at: as each dequeuing op began and ended, and as each element came while
            none waited, shape (N,), ascending.
        held: Elements in it then, shape (N,); NaN where not known.
        is_empty: Whether a dequeuing op found too few then, shape (N,).
        dequeued: How often an op took elements out.
        found_empty: How often it had to wait for them.
        steps_empty: In how many of the steps that averages are of.
        enqueue_ps: Mean time of an enqueuing run while elements were missing; NaN without any.
        threads: Threads that put elements in; 0 where none was seen.
        busy_fraction: Share of the time in which those threads were in an enqueuing run; NaN without any.
        made_per_second: Elements put in a second; NaN where not known.
        first_wait_ps: How long the first dequeuing op took, where nothing had been put in before; else 0.
        upstream: The graph's other queues, from which its elements may be made.
    """

    record: QueueRecord
    time_ps: Int64s
    held: Floats
    is_empty: Bools
    dequeued: int
    found_empty: int
    steps_empty: int
    enqueue_ps: float
    threads: int
    busy_fraction: float
    made_per_second: float
    first_wait_ps: int
    upstream: tuple[QueueRecord, ...] = ()


def find_queues(spine: Spine) -> list[QueueUse]:
    """The queues from which the traced runs took elements."""
    sessions = spine.recording.sessions
    if sessions is None or not sessions.queues or not spine.trace.epoch_ns:
        return []
    offset_ns = sessions.epoch_ns - spine.trace.epoch_ns
    takers = _takers(spine, sessions.queues)
    uses = [
        _use(spine, queue, takers[queue.name], offset_ns)
        for queue in sessions.queues
        if queue.name in takers
    ]
    return [
        replace(use, upstream=tuple(q for q in sessions.queues if q.name != use.record.name))
        for use in uses
    ]


def _takers(spine: Spine, queues: Sequence[QueueRecord]) -> dict[str, dict[int, int]]:
    """The events that took elements out of each queue, and how many each did."""
    trace = spine.trace
    of_op = {op: (queue.name, count) for queue in queues for op, count in queue.dequeues.items()}
    takers: dict[str, dict[int, int]] = {}
    for row, name in enumerate(trace.names.texts):
        key = parse_op(name)
        if key is None or key[0] not in of_op or not key[1].startswith("QueueDequeue"):
            continue
        events = np.flatnonzero((trace.events.name == row) & trace.is_host_event)
        queue, count = of_op[key[0]]
        takers.setdefault(queue, {}).update(dict.fromkeys(events.tolist(), count))
    return {queue: events for queue, events in takers.items() if events}


def _use(spine: Spine, queue: QueueRecord, takers: Mapping[int, int], offset_ns: int) -> QueueUse:
    events = np.array(list(takers), np.int64)
    order = np.argsort(spine.trace.events.end_ps[events], kind="stable")
    events, taken = events[order], np.array(list(takers.values()), np.int64)[order]
    begin, end = spine.trace.events.begin_ps[events], spine.trace.events.end_ps[events]
    put_begin, put_end = (
        spine.read_clock((np.array(column, np.int64) + offset_ns) * 1000)
        for column in (queue.begin_ns, queue.end_ns)
    )
    came = np.searchsorted(put_end, end + _LATE_PS) - np.searchsorted(put_end, begin)
    waited = (end - begin >= _WAITED_PS) & ((came > 0) | (not put_end.size))
    inside = (put_end > begin[0]) & (put_begin < end[-1])
    window = max(int(end[-1] - begin[0]), 1)
    threads = len(set(np.array(queue.thread, np.int64)[inside].tolist()))
    spent = np.minimum(put_end, end[-1]) - np.maximum(put_begin, begin[0])
    busy = float(spent[inside].sum()) / window / threads if threads else float("nan")
    put = np.array(queue.elements, np.int64)
    is_known = bool(taken.all() and put.all() and put_end.size)
    steps = spine.groups.step[events[waited]]
    level = _Levels(begin, end, taken, waited, put_end, put) if is_known else None
    time_ps, held, is_empty = _samples(queue, level, begin, waited, always_put=busy >= _ALWAYS)
    return QueueUse(
        queue, time_ps, held, is_empty, int(events.size), int(waited.sum()),
        int(np.isin(spine.summary.counted, steps).sum()),
        float((put_end - put_begin)[inside].mean()) if inside.any() else float("nan"),
        threads, busy,
        float(put[inside].sum()) / window * 1e12 if is_known and inside.any() else float("nan"),
        int(end[0] - begin[0]) if put_end.size and put_end[0] > begin[0] else 0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Levels:
    """What goes into a queue and out of it."""

    begin_ps: Int64s
    end_ps: Int64s
    taken: Int64s
    waited: Bools
    put_ps: Int64s
    put: Int64s

    def net(self, times: Int64s) -> Int64s:
        """Elements put in less those taken out until some times."""
        put, taken = (np.append(0, np.cumsum(column)) for column in (self.put, self.taken))
        more = put[np.searchsorted(self.put_ps, times, side="right")]
        fewer = taken[np.searchsorted(self.end_ps, times, side="right")]
        return np.asarray(more - fewer, np.int64)

    def first(self, least: int, capacity: int, *, always_put: bool) -> int | None:
        """What the queue held before all of it; None where that is not known."""
        after = self.net(self.end_ps)
        if self.waited.any():
            return int((least - after).max())
        filled = self.net(self.put_ps)[self.put_ps >= self.begin_ps[0]]
        if not always_put or capacity < 0 or not filled.size:
            return None
        grew = filled[filled.size // 2 :].max() - filled[: filled.size // 2 + 1].max()
        return int(capacity - filled.max()) if grew <= 1 else None

    def times(self) -> Int64s:
        """When to look: as ops begin and end, and as elements come while none waits."""
        at = np.searchsorted(self.begin_ps, self.put_ps, side="right") - 1
        is_after = (at >= 0) & (self.put_ps > self.end_ps[np.maximum(at, 0)])
        is_before_last = self.put_ps <= self.end_ps[-1]
        return np.unique(np.concatenate([self.end_ps, self.put_ps[is_after & is_before_last]]))


def _samples(
    queue: QueueRecord, levels: _Levels | None, begin: Int64s, waited: Bools, *, always_put: bool
) -> tuple[Int64s, Floats, Bools]:
    """When the queue was looked at, what it held, and whether that was too little."""
    first = None
    if levels is not None:
        first = levels.first(queue.min_after_dequeue, queue.capacity, always_put=always_put)
    if levels is None or first is None:
        held = np.where(waited, float(queue.min_after_dequeue), np.nan)
        return begin, held, waited
    most = queue.capacity if queue.capacity >= 0 else np.iinfo(np.int64).max
    others = levels.times()
    times = np.concatenate([begin, others])
    held = np.clip(first + levels.net(times), 0, most).astype(np.float64)
    is_empty = np.concatenate([waited, np.zeros(others.size, np.bool_)])
    order = np.argsort(times, kind="stable")
    return times[order], held[order], is_empty[order]
