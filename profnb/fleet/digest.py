"""One host's part of a capture, or one device's, small enough to travel: all that the fleet needs of a trace.

A digest has the times of the collectives and of the steps, what the host did between them, and the ops and
lines that took most of its steps.

Devices of one process are a fleet on one clock, by the hosts' definitions (``profnb.fleet``): own work is
what lies between a device's collectives, be it the device's or what the host does until it has given it
more. One clock is all there is, so collectives that are the same ran at the same time and ended together:
others of equal name and number are none, and are left out (NCCL's reduce and broadcast let the root go before
the rest comes; of groups that exchange apart, nothing tells which is whose).
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profnb.core.columns import Bools, Int8s, Int64s
from profnb.core.printable import printable
from profnb.core.units import counted_text
from profnb.fleet.collectives import HostCollectives, Key, find_collectives, has_pairs
from profnb.steps.activities import (
    ACTIVITIES,
    CATEGORIES,
    COLLECTIVES,
    EXCHANGING,
    FIRST_OF_DEVICE,
    find_activities,
)
from profnb.steps.breakdown import Pieces, find_stretches, host_pieces, sum_stretches
from profnb.steps.spine import Spine
from profnb.steps.streams import (
    COLLECTIVE,
    DIRECTIONS,
    directions_of_copies,
    kinds_of_work,
    raw_device_lines,
    working_devices,
)
from profnb.steps.summary import GAP
from profnb.subjects.advising import line_text
from profnb.subjects.device.device_ops import name_device_work
from profnb.subjects.study import Study
from profnb.trace.names import is_host_collective
from profnb.trace.runs.capture_times import CaptureTime

AtWork = tuple[Int8s, Pieces]

_COLLECTIVES = "device collectives"
# What own work is made of: the categories without the collectives, and what nothing explains between steps.
OWN_CATEGORIES = (*(name for name in CATEGORIES if name != _COLLECTIVES), GAP)
DEVICE_COMPUTE = OWN_CATEGORIES.index("device compute")
_IN_STEP = 0  # the lane of a step's window: where nothing else is active in it


@dataclass(frozen=True, slots=True)
class Doings:
    """What a host did in each of P pieces of time: between the bounds of its steps and collectives.

    Attributes:
        edge_ps: Bounds of the pieces, ascending, shape (P + 1,).
        columns: Which of ``OWN_CATEGORIES`` took any time, C of them.
        own_ps: Own work by these, shape (P, C).
    """

    edge_ps: Int64s
    columns: tuple[int, ...]
    own_ps: Int64s

    def between(self, begin_ps: Int64s, end_ps: Int64s) -> Int64s:
        """Own work in K stretches whose bounds are among the edges, shape (K, categories).

        Time in collectives, also those of a part of the hosts, is no own work.
        """
        sums = np.zeros((self.edge_ps.size, len(OWN_CATEGORIES)), np.int64)
        sums[1:, list(self.columns)] = np.cumsum(self.own_ps, axis=0)
        first, last = (np.searchsorted(self.edge_ps, at) for at in (begin_ps, end_ps))
        return np.asarray(sums[np.maximum(last, first)] - sums[first])


def all_at_work(spine: Spine) -> AtWork:
    """What each event is and when the host is at work, where the work of all devices counts."""
    activities = find_activities(spine.trace, spine.steps, None, spine.groups.parent)
    return activities, host_pieces(spine.trace, spine.steps, spine.groups, activities)


def find_doings(
    spine: Spine, edge_ps: Int64s, plane: int | None = None, at_work: AtWork | None = None
) -> Doings:
    """What the host, or its busiest device, did between some times; what is higher in priority counts.

    Args:
        spine: The trace and its steps.
        edge_ps: The times, in any order.
        plane: The device that is asked about; None for the busiest.
        at_work: Of that device, what ``all_at_work`` finds.
    """
    trace, steps = spine.trace, spine.steps
    edges = np.unique(edge_ps)
    if not len(steps) or edges.size < 2:
        return Doings(np.zeros(1, np.int64), (), np.zeros((0, 0), np.int64))
    window = max(int(steps.begin_ps[0]), int(edges[0])), min(int(steps.end_ps[-1]), int(edges[-1]))
    activities, pieces = at_work or (spine.activities, spine.host_pieces)
    device = np.flatnonzero(activities >= FIRST_OF_DEVICE)
    if plane is not None:
        device = device[trace.lines.plane[trace.lines.of_event[device]] == plane]
    host_begin, host_end, events = pieces
    lanes = [activities[device], activities[events], np.full(len(steps), _IN_STEP)]
    begin = np.concatenate([trace.events.begin_ps[device], host_begin, steps.begin_ps])
    end = np.concatenate([spine.groups.end_ps[device], host_end, steps.end_ps])
    begin, end = np.clip(begin, *window), np.clip(end, *window)
    some = end > begin
    lane = np.concatenate(lanes).astype(np.int8)[some]
    stretches = find_stretches(begin[some], end[some], lane, len(ACTIVITIES))
    sums = sum_stretches(*stretches, edges, len(ACTIVITIES))
    own_ps = np.zeros((edges.size - 1, len(OWN_CATEGORIES)), np.int64)
    for row, category in enumerate(ACTIVITIES):
        if category != _COLLECTIVES:
            own_ps[:, OWN_CATEGORIES.index(category)] += sums[:, row]
    own_ps[:, -1] = np.diff(edges) - sums.sum(axis=1)
    columns = np.flatnonzero(own_ps.any(axis=0))
    return Doings(edges, tuple(columns.tolist()), own_ps[:, columns])


_MOST_OPS = 60
_FIRST_PORT = 1024  # that a process may open without being root


@dataclass(frozen=True, slots=True)
class Digest:
    """What a fleet knows of one host.

    Attributes:
        host: What it is called in the run.
        rank: Its number in the job; -1 where nothing tells.
        path: Its trace; "" for one that is no file.
        time: When it was captured, by its own clock.
        step_begin_ps: Begins of S steps since the trace began, shape (S,).
        step_num: Their numbers, shape (S,).
        is_warmup: Which are no steady steps, shape (S,).
        collectives: What it exchanged with others.
        doings: What it did between them.
        op_ps: Self time of a mean step by op, most first, ops at the end of the list left out.
        line_ps: Time of a mean step by line of the user's code, likewise; empty where nobody looked.
        framework: Whose trace it is.
        has_device: Whether anything ran on a device.
        has_transfers: Whether it sent values to other hosts, or received them, outside of collectives.
        is_device: Whether it is no host, but one of several devices of a process: these have one clock.
        ranks: How many the job has; 0 where nothing tells.
        copied_in_ps: Of such a device, time of copies from the host of a mean step.
    """

    host: str
    rank: int
    path: str
    time: CaptureTime
    step_begin_ps: Int64s
    step_num: Int64s
    is_warmup: Bools
    collectives: HostCollectives
    doings: Doings
    op_ps: dict[str, float]
    line_ps: dict[str, float]
    framework: str
    has_device: bool
    has_transfers: bool
    is_device: bool = False
    ranks: int = 0
    copied_in_ps: float = 0.0


def noun_of(digests: Sequence[Digest]) -> str:
    """What one of a fleet is called: "host", or "device" where all are of one process."""
    return "device" if digests and all(one.is_device for one in digests) else "host"


def count_of(digests: Sequence[Digest]) -> str:
    """How many there are, with the noun: "3 hosts", "1 host"."""
    return counted_text(len(digests), noun_of(digests))


def rank_of_name(host: str) -> int:
    """The rank in a name HOST_RANK, as captures of profnb's have it; -1 for none.

    TensorFlow's service, which ``serve`` starts, names files HOST_PORT: no rank is as large as a port.
    """
    number = host.rpartition("_")[2]
    is_rank = "_" in host and number.isdecimal() and len(number) < 7
    return int(number) if is_rank and int(number) < _FIRST_PORT else -1


def digest_study(
    study: Study, host: str, path: str | os.PathLike[str], time: CaptureTime
) -> Digest:
    """A host's part.

    Args:
        study: Its analyses.
        host: What it is called in the run.
        path: Its trace.
        time: When it was captured.
    """
    ops = study.ops.of_steps(study.summary.counted)
    steps = max(int(study.summary.counted.size), 1)
    of_side = ops.is_device == study.has_device
    spent: dict[
        str, float
    ] = {}  # names of ops stand in sentences, so nothing in them commands a terminal
    has_transfers = has_pairs(study.trace)
    exchanged = find_collectives(study)
    edges = np.concatenate([exchanged.enter_ps, exchanged.leave_ps])
    for row in of_side.nonzero()[0].tolist():
        name, op_type = ops.op_name[row], ops.op_type[row]
        has_transfers |= op_type in ("_Recv", "_Send", "RecvTensor")
        if not is_host_collective(f"{name}:{op_type}") and len(spent) < _MOST_OPS:
            name = printable(name)
            spent[name] = spent.get(name, 0.0) + float(ops.self_ps[row]) / steps
    return Digest(
        host=printable(host),
        rank=study.trace.rank if study.trace.rank >= 0 else rank_of_name(host),
        path=str(Path(path)) if os.fspath(path) else "",
        time=time,
        step_begin_ps=study.steps.begin_ps,
        step_num=study.steps.step_num,
        is_warmup=study.steps.is_warmup,
        collectives=exchanged,
        doings=find_doings(study, edges),
        op_ps=spent,
        line_ps=_lines_of(study, steps),
        framework=study.framework,
        has_device=study.has_device,
        has_transfers=has_transfers,
        ranks=study.trace.ranks,
    )


def _lines_of(study: Study, steps: int) -> dict[str, float]:
    """Time of a mean step at each line of the user's code, as far as the capture looked; most first.

    Collectives are left out: a line that all exchange in is longest where the others are waited for.
    """
    lines = study.source.lines_without(np.isin(study.activities, (COLLECTIVES, EXCHANGING)))
    if lines is None:
        return {}
    spent = (lines.host_ps + lines.device_ps + np.maximum(lines.python_ps, 0)) / steps
    return {
        line_text(study, lines.file[row], int(lines.line[row])): float(spent[row])
        for row in np.argsort(-spent, kind="stable")[:_MOST_OPS].tolist()
        if lines.file[row]
    }


_MOST_OPS = 60
_SLACK_PS = 20_000_000  # between the clocks of devices that one profiler has put on one
_APART_PS = 100_000_000  # a TPU's, of 122 ms each, were left within 0.02 ms
_PREFIX = re.compile(r"^/?(device:)?")
_FEWEST = 2


def _meeting_devices(study: Study) -> list[int]:
    trace = study.trace
    devices = working_devices(trace)
    if len(devices) < _FEWEST:
        return []
    work = trace.lines.events_of(raw_device_lines(trace))
    work = work[kinds_of_work(trace, work) == COLLECTIVE]
    planes = np.unique(trace.lines.plane[trace.lines.of_event[work]])
    return [plane for plane in devices if plane in planes]


def digest_devices(
    study: Study, path: str, time: CaptureTime, most: int | None = None
) -> list[Digest]:
    """The part of each device that ran anything, where several ran collectives; else nothing.

    Args:
        study: The trace's analyses.
        path: Its file; "" for none.
        time: When it was captured.
        most: Of how many last collectives of each device to speak; None for all.
    """
    if study.steps.is_window or len(_meeting_devices(study)) < _FEWEST:
        return []
    devices = working_devices(study.trace)
    device_collectives = _of_one_time([find_collectives(study, plane, most) for plane in devices])
    at_work = all_at_work(study)
    return [
        Digest(
            host=printable(_PREFIX.sub("", study.trace.planes[plane].name)),
            rank=-1,
            path=path,
            time=time,
            step_begin_ps=study.steps.begin_ps,
            step_num=study.steps.step_num,
            is_warmup=study.steps.is_warmup,
            collectives=exchanged,
            doings=find_doings(
                study, np.concatenate([exchanged.enter_ps, exchanged.leave_ps]), plane, at_work
            ),
            op_ps=_ops_of(study, plane),
            line_ps={},
            framework=study.framework,
            has_device=True,
            has_transfers=has_pairs(study.trace),
            is_device=True,
            copied_in_ps=_copied_in(study, plane),
        )
        for plane, exchanged in zip(devices, device_collectives, strict=True)
    ]


def _of_one_time(device_collectives: list[HostCollectives]) -> list[HostCollectives]:
    """Only collectives in which all were at one moment and that all left together; else none at all."""
    times: dict[Key, list[tuple[int, int]]] = {}
    for one in device_collectives:
        pairs = zip(one.enter_ps.tolist(), one.leave_ps.tolist(), strict=True)
        for key, pair in zip(one.keys, pairs, strict=True):
            times.setdefault(key, []).append(pair)
    several = [key for key, pairs in times.items() if len(pairs) >= _FEWEST]
    kept = {key for key in several if _is_one(times[key])}
    is_unclear = 2 * len(kept) < len(several)
    return [
        _chosen(one, set() if is_unclear else kept, is_unclear=is_unclear)
        for one in device_collectives
    ]


def _is_one(times: list[tuple[int, int]]) -> bool:
    last_entered, first_left = max(e for e, _ in times), min(left for _, left in times)
    shortest = min(left - entered for entered, left in times)
    apart = max(left for _, left in times) - first_left
    return last_entered <= first_left + _SLACK_PS and apart <= shortest / 2 + _APART_PS


def _chosen(one: HostCollectives, kept: set[Key], *, is_unclear: bool) -> HostCollectives:
    rows = np.array([at for at, key in enumerate(one.keys) if key in kept], np.int64)
    keys = tuple(one.keys[at] for at in rows.tolist())
    return HostCollectives(
        keys, one.enter_ps[rows], one.leave_ps[rows], one.is_numbered, is_unclear
    )


def _work_of_steps(study: Study, plane: int) -> Int64s:
    """What ran on a device in the steps that averages are of."""
    trace = study.trace
    work = trace.lines.events_of(raw_device_lines(trace) & (trace.lines.plane == plane))
    return np.asarray(work[study.events_of(study.summary.counted)[work]])


def _copied_in(study: Study, plane: int) -> float:
    work = _work_of_steps(study, plane)
    is_in = directions_of_copies(study.trace, work) == DIRECTIONS.index("host to device")
    spent = study.trace.events.duration_ps[work[is_in]].sum()
    return float(spent) / max(int(study.summary.counted.size), 1)


def _ops_of(study: Study, plane: int) -> dict[str, float]:
    """Time of a mean step on a device by op, collectives left out; those that took most."""
    trace = study.trace
    work = _work_of_steps(study, plane)
    work = work[kinds_of_work(trace, work) != COLLECTIVE]
    ops = name_device_work(trace, work, study.xla.hlo)
    spent = np.zeros(len(ops.keys), np.int64)
    np.add.at(spent, ops.code, trace.events.duration_ps[work])
    steps = max(int(study.summary.counted.size), 1)
    named: dict[str, float] = {}
    for row in np.argsort(-spent, kind="stable")[:_MOST_OPS].tolist():
        name = printable(ops.keys[row][0])
        named[name] = named.get(name, 0.0) + float(spent[row]) / steps
    return named
