"""Feeding of TensorFlow 1's session runs: by hand (``feed_dict``), and by queues.

Of what the capture sampled (``tf1.gap_watch``) it is input if statements from which the fed values come took
more than half of the time between the runs; or if those and the ones before the run in its loop did, and
the arrays were made anew for nine of ten runs. Logging behind the run, arrays that were there already, and
scalars are not. Times are the shorter of two: what the trace shows as nobody's, and what passed between
the end of ``Session.run`` and its next begin.

A queue tells nobody what it holds, but what was put in and taken out is known: the capture saw when each
enqueuing run ended, the trace when each dequeuing op did. What it held at first follows from its bounds. One
that kept a dequeuing op waiting held after that op what it keeps back (``min_after_dequeue``; 0 where it does
not shuffle). One that never did, while the threads that fill it never paused and it grew no more, was full.
Where neither holds, what it held is not known. So counts are right to within one element per thread.

A dequeuing op found too little if it took a millisecond or more, in which something was put in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.recording import BEFORE, FEEDS, RUN_ITSELF, GapPlace, GapRecords, QueueRecord
from profnb.capture.source.user_code import file_title
from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.printable import quoted
from profnb.core.units import PS_PER_NS, duration_text
from profnb.steps.activities import CATEGORIES
from profnb.steps.spine import Spine
from profnb.trace.names import parse_op

_FEWEST_RUNS, _FEWEST_SAMPLES, _LEAST_SHARE, _LEAST_GAP_PS = 5, 10, 0.05, 20_000_000
_WAITED_PS = 1_000_000_000
_LATE_PS = 5_000_000_000  # by which, at most, an enqueuing run ends later than the element is there
_NEARLY_ALWAYS = 0.8
_LONGEST_PLACE, _MOST_PLACES_NAMED, _LEAST_NAMED = 60, 3, 0.1


@dataclass(frozen=True, slots=True)
class Feeding:
    """Python between session runs."""

    share: float  # its share of the time from step to step
    each_ps: float  # its time a step
    makes_input: bool  # true if it makes what is fed
    fed_bytes: int  # the most that a run was fed
    places: tuple[GapPlace, ...]  # the statements that took it, the longest first
    # what all of them took but TensorFlow's own Python; what each took is a share of this
    seen_ns: int
    cells: dict[str, int]  # the number of the cell that each file stands for, where it is one

    def named(self, roles: tuple[str, ...] = ()) -> str:
        """Name the longest statements, of some roles: "`batch = load(i)`, Cell [1]:8 (20.1 ms a step)"."""
        long = [p for p in self.places if p.wall_ns >= _LEAST_NAMED * self.seen_ns]
        user_places = [p for p in long if p.role != RUN_ITSELF or p.text]
        chosen = [p for p in user_places if not roles or p.role in roles]
        return ", ".join(map(self._name, chosen[:_MOST_PLACES_NAMED]))

    def _name(self, place: GapPlace) -> str:
        statement = self._quote_statement(place.text, place.file, place.line)
        took = duration_text(self.each_ps * place.wall_ns / self.seen_ns)
        inside = ""
        if place.inner_file and place.inner_ns * 2 > place.wall_ns:
            inner = self._quote_statement(place.inner_text, place.inner_file, place.inner_line)
            inside = f", mostly in {inner}"
        return f"{statement} ({took} a step{inside})"

    def _quote_statement(self, text: str, file: str, line: int) -> str:
        at = f"{file_title(file, self.cells)}:{line}"
        return f"{quoted(text, _LONGEST_PLACE)}, {at}" if text else at


def session_gaps(spine: Spine) -> GapRecords | None:
    """Give what was sampled between the runs, where the steps are session runs; else None."""
    sessions = spine.recording.sessions
    gaps = sessions.gaps if sessions is not None and spine.program.runs_sessions else None
    return gaps if gaps is not None and gaps.gaps else None


def own_gap_ps(gaps: GapRecords) -> float:
    """Mean time between two runs, less what TensorFlow's own Python around a run took; hooks count."""
    seen = sum(place.wall_ns for place in gaps.places)
    around = sum(p.wall_ns for p in gaps.places if p.role == RUN_ITSELF and not p.text)
    return gaps.gap_ns / gaps.gaps * 1000 * (1 - around / seen if seen else 1)


def inside_runs_ps(spine: Spine, gaps: GapRecords) -> float:
    """Time a step between the ops of two runs and is neither the code's between them nor profnb's."""
    rows = spine.summary.counted
    between = float(spine.gaps.own_ps[rows].sum()) / max(rows.size, 1)
    return between - gaps.gap_ns / gaps.gaps * PS_PER_NS - profnb_ps(gaps)


def profnb_ps(gaps: GapRecords) -> float:
    """Time of profnb itself around a traced run."""
    return gaps.own_ns / max(gaps.traced, 1) * PS_PER_NS


def find_feeding(spine: Spine) -> Feeding | None:
    """Find Python's part of the time between session runs; None where it is small, or was not sampled."""
    gaps, rows = session_gaps(spine), spine.summary.counted
    if gaps is None or rows.size < _FEWEST_RUNS:
        return None
    period_ps = spine.steps.duration_ps[rows] + spine.gaps.own_ps[rows]
    nobodys = spine.breakdown.gap_picoseconds[rows, CATEGORIES.index("all others")]
    traced_ps = float((nobodys * spine.gaps.belongs[rows]).sum()) / rows.size
    each_ps = min(traced_ps, own_gap_ps(gaps))
    whole = float(period_ps.sum()) / rows.size
    seen = sum(p.wall_ns for p in gaps.places if p.role != RUN_ITSELF or p.text)
    is_seen = gaps.samples >= _FEWEST_SAMPLES and seen > 0
    if not is_seen or each_ps < max(_LEAST_SHARE * whole, _LEAST_GAP_PS):
        return None
    feeds, before = (
        sum(p.wall_ns for p in gaps.places if p.role == role) for role in (FEEDS, BEFORE)
    )
    is_fed = gaps.fed > 0 and gaps.fed * 2 >= min(gaps.runs, 256)
    is_new = gaps.judged > 0 and gaps.new * 10 >= gaps.judged * 9
    made = is_fed and 2 * (feeds + before * is_new) > seen
    share, places = each_ps / whole, tuple(gaps.places)
    return Feeding(share, each_ps, made, gaps.fed_bytes, places, seen, gaps.cells)


@dataclass(frozen=True, slots=True)
class QueueUse:
    """One queue."""

    record: QueueRecord  # what the capture knows of it
    # when it was looked at, ascending, shape (N,): as each dequeuing op began and ended, and as each
    # element came while none waited
    time_ps: Int64s
    held: Floats  # elements in it then, shape (N,); NaN where not known
    is_empty: Bools  # whether a dequeuing op found too few then, shape (N,)
    dequeued: int  # how often an op took elements out
    found_empty: int  # how often it had to wait for them
    steps_empty: int  # in how many of the steps that averages are of
    enqueue_ps: float  # mean time of an enqueuing run while elements were missing; NaN without any
    threads: int  # threads that put elements in; 0 where none was seen
    # share of the time in which those threads were in an enqueuing run; NaN without any
    busy_fraction: float
    made_per_second: float  # elements put in a second; NaN where not known
    # how long the first dequeuing op took, where nothing had been put in before; else 0
    first_wait_ps: int
    # the graph's other queues, from which its elements may be made
    upstream: tuple[QueueRecord, ...]


def find_queues(spine: Spine) -> list[QueueUse]:
    """Find the queues from which the traced runs took elements."""
    sessions = spine.recording.sessions
    if sessions is None or not sessions.queues or not spine.trace.epoch_ns:
        return []
    offset_ns = sessions.epoch_ns - spine.trace.epoch_ns
    takers = _takers(spine, sessions.queues)
    return [
        _use(spine, queue, takers[queue.name], offset_ns, sessions.queues)
        for queue in sessions.queues
        if takers.get(queue.name)
    ]


def _takers(spine: Spine, queues: Sequence[QueueRecord]) -> dict[str, dict[int, int]]:
    """The events that took elements out of each queue, with the number of elements."""
    trace = spine.trace
    of_op = {op: (queue.name, count) for queue in queues for op, count in queue.dequeues.items()}
    takers: dict[str, dict[int, int]] = {}
    for row, name in enumerate(trace.names.texts):
        op, op_type = parse_op(name) or ("", "")
        if op in of_op and op_type.startswith("QueueDequeue"):
            events = np.flatnonzero((trace.events.name == row) & trace.is_host_event)
            queue, count = of_op[op]
            takers.setdefault(queue, {}).update(dict.fromkeys(events.tolist(), count))
    return takers


def _use(
    spine: Spine, queue: QueueRecord, takers: Mapping[int, int], offset_ns: int,
    queues: Sequence[QueueRecord],
) -> QueueUse:  # fmt: skip
    events = np.array(list(takers), np.int64)
    order = np.argsort(spine.trace.events.end_ps[events], kind="stable")
    events, taken = events[order], np.array(list(takers.values()), np.int64)[order]
    begin, end = spine.trace.events.begin_ps[events], spine.trace.events.end_ps[events]
    put_ns = np.array([queue.begin_ns, queue.end_ns], np.int64) + offset_ns
    put_begin, put_end = map(spine.read_clock, put_ns * PS_PER_NS)
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
    is_pushed = busy >= _NEARLY_ALWAYS
    time_ps, held, is_empty = _samples(
        queue, begin, end, waited, taken, put_end, put, is_known=is_known, always_put=is_pushed
    )
    return QueueUse(
        queue, time_ps, held, is_empty, int(events.size), int(waited.sum()),
        int(np.isin(spine.summary.counted, steps).sum()),
        float((put_end - put_begin)[inside].mean()) if inside.any() else float("nan"),
        threads, busy,
        float(put[inside].sum()) / window * 1e12 if is_known and inside.any() else float("nan"),
        int(end[0] - begin[0]) if put_end.size and put_end[0] > begin[0] else 0,
        tuple(other for other in queues if other.name != queue.name),
    )  # fmt: skip


def _samples(
    queue: QueueRecord, begin: Int64s, end: Int64s, waited: Bools, taken: Int64s, put_ps: Int64s,
    put: Int64s, *, is_known: bool, always_put: bool,
) -> tuple[Int64s, Floats, Bools]:  # fmt: skip
    """Moments at which the queue was looked at, elements in it, and True for too few."""
    least = queue.min_after_dequeue

    def net(times: Int64s) -> Int64s:
        """Elements put in less those taken out until some times."""
        all_put, all_taken = (np.append(0, np.cumsum(column)) for column in (put, taken))
        more = all_put[np.searchsorted(put_ps, times, side="right")]
        return np.asarray(more - all_taken[np.searchsorted(end, times, side="right")], np.int64)

    first = None  # elements before all of it
    if is_known and waited.any():
        first = int((least - net(end)).max())
    elif is_known and always_put and queue.capacity >= 0:
        filled = net(put_ps)[put_ps >= begin[0]]
        half = filled.size // 2
        if filled.size and filled[half:].max() - filled[: half + 1].max() <= 1:
            first = int(queue.capacity - filled.max())
    if first is None:
        return begin, np.where(waited, float(least), np.nan), waited
    # As ops begin and end, and as elements come while none waits.
    at = np.searchsorted(begin, put_ps, side="right") - 1
    is_after = (at >= 0) & (put_ps > end[np.maximum(at, 0)]) & (put_ps <= end[-1])
    others = np.unique(np.concatenate([end, put_ps[is_after]]))
    times = np.concatenate([begin, others])
    most = queue.capacity if queue.capacity >= 0 else np.iinfo(np.int64).max
    held = np.clip(first + net(times), 0, most).astype(np.float64)
    is_empty = np.concatenate([waited, np.zeros(others.size, np.bool_)])
    order = np.argsort(times, kind="stable")
    return times[order], held[order], is_empty[order]
