"""One host's part of a capture, or one device's, small enough to travel: all that the fleet needs of a trace.

A digest has the times of the collectives and of the steps, what the host did between them, and the ops and
lines that took most of its steps.

Devices of one process are a fleet on one clock, by the hosts' definitions (``profnb.fleet``): own work is
what lies between a device's collectives, be it the device's or what the host does until it has given it
more. One clock is all there is, so collectives that are the same ran at the same time and ended together:
others of equal name and number are none, and are left out (NCCL's reduce and broadcast let the root go before
the rest comes; of groups that exchange apart, nothing tells which is whose).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from profnb.core.columns import Bools, Int8s, Int64s, sum_by
from profnb.core.printable import printable
from profnb.core.units import counted_text
from profnb.fleet.collectives import HostCollectives, Key, find_collectives, has_pairs
from profnb.steps import streams
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
from profnb.steps.summary import GAP
from profnb.subjects.advising import line_text
from profnb.subjects.device.kernels import name_device_work
from profnb.subjects.study import Study
from profnb.trace.names import is_host_collective
from profnb.trace.runs import CaptureTime

AtWork = tuple[Int8s, Pieces]

_COLLECTIVES = "device collectives"
# What own work is made of: the categories without the collectives, and what nothing explains between steps.
OWN_CATEGORIES = (*(name for name in CATEGORIES if name != _COLLECTIVES), GAP)
DEVICE_COMPUTE = OWN_CATEGORIES.index("device compute")
_IN_STEP = 0  # the lane of a step's window: where nothing else is active in it
_MOST_OPS_OF_HOST = 60
_FIRST_PORT = 1024  # that a process may open without being root
_SLACK_PS = 20_000_000  # between the clocks of devices that one profiler has put on one
_APART_PS = 100_000_000  # a TPU's, of 122 ms each, were left within 0.02 ms
_PREFIX = re.compile(r"^/?(device:)?")
_FEWEST_DEVICES = 2


@dataclass(frozen=True, slots=True)
class OwnWork:
    """The work of a host in each of P pieces of time, by category, to the picosecond.

    Attributes:
        edge_ps: Bounds of the pieces, those of its steps and collectives, ascending, shape (P + 1,).
        columns: Which of ``OWN_CATEGORIES`` took any time, C of them.
        own_ps: Own work by these, shape (P, C).
    """

    edge_ps: Int64s
    columns: tuple[int, ...]
    own_ps: Int64s

    def between(self, begin_ps: Int64s, end_ps: Int64s) -> Int64s:
        """Add up own work in K stretches whose bounds are among the edges, shape (K, categories).

        Time in collectives, also those of a part of the hosts, is no own work.
        """
        sums = np.zeros((self.edge_ps.size, len(OWN_CATEGORIES)), np.int64)
        sums[1:, list(self.columns)] = np.cumsum(self.own_ps, axis=0)
        first, last = (np.searchsorted(self.edge_ps, at) for at in (begin_ps, end_ps))
        return np.asarray(sums[np.maximum(last, first)] - sums[first])


@dataclass(frozen=True, slots=True)
class Digest:
    """All that a fleet knows of one host.

    Attributes:
        host: What it is called in the run.
        rank: Its number in the job; -1 where nothing tells.
        path: Its trace; "" for one that is no file.
        time: When it was captured, by its own clock.
        step_begin_ps: Begins of S steps since the trace began, shape (S,).
        step_num: Their numbers, shape (S,).
        is_warmup: Which are no steady steps, shape (S,).
        collectives: What it exchanged with others.
        own_work: What it did between them.
        op_ps: Self time of a mean step by op, most first, ops at the end of the list left out.
        line_ps: Time of a mean step by line of the user's code, likewise; empty where nobody looked.
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
    own_work: OwnWork
    op_ps: dict[str, float]
    line_ps: dict[str, float]
    has_device: bool
    has_transfers: bool
    is_device: bool = False
    ranks: int = 0
    copied_in_ps: float = 0.0


def noun_of(digests: Sequence[Digest]) -> str:
    """Name one of a fleet: "host", or "device" where all are of one process."""
    return "device" if digests and all(one.is_device for one in digests) else "host"


def count_of(digests: Sequence[Digest]) -> str:
    """Count them, with the noun: "3 hosts", "1 host"."""
    return counted_text(len(digests), noun_of(digests))


def rank_of_name(host: str) -> int:
    """Read the rank in a name HOST_RANK, as captures of profnb's have it; -1 for none.

    TensorFlow's service, which ``serve`` starts, names files HOST_PORT: no rank is as large as a port.
    """
    number = host.rpartition("_")[2]
    is_rank = "_" in host and number.isdecimal() and len(number) < 7
    return int(number) if is_rank and int(number) < _FIRST_PORT else -1


def digest_study(study: Study, host: str, path: str, time: CaptureTime) -> Digest:
    """Take a host's part; its path is "" where it is no file."""
    ops = study.ops.of_steps(study.summary.counted)
    steps = max(int(study.summary.counted.size), 1)
    spent: dict[str, float] = {}
    has_transfers = has_pairs(study.trace)
    for row in (ops.is_device == study.program.has_device).nonzero()[0].tolist():
        name, op_type = ops.op_name[row], ops.op_type[row]
        has_transfers |= op_type in ("_Recv", "_Send", "RecvTensor")
        if not is_host_collective(f"{name}:{op_type}") and len(spent) < _MOST_OPS_OF_HOST:
            _add(spent, name, float(ops.self_ps[row]) / steps)
    exchanged = find_collectives(study)
    return Digest(
        host=printable(host),
        rank=study.trace.rank if study.trace.rank >= 0 else rank_of_name(host),
        path=str(Path(path)) if path else "",
        time=time,
        step_begin_ps=study.steps.begin_ps,
        step_num=study.steps.step_num,
        is_warmup=study.steps.is_warmup,
        collectives=exchanged,
        own_work=_find_own_work(study, exchanged),
        op_ps=spent,
        line_ps=_lines_of(study, steps),
        has_device=study.program.has_device,
        has_transfers=has_transfers,
        ranks=study.trace.ranks,
    )


def _add(spent: dict[str, float], name: str, time_ps: float) -> None:
    name = printable(name)  # it stands in sentences, so nothing in it commands a terminal
    spent[name] = spent.get(name, 0.0) + time_ps


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
        for row in np.argsort(-spent, kind="stable")[:_MOST_OPS_OF_HOST].tolist()
        if lines.file[row]
    }


def digest_devices(study: Study, path: str, time: CaptureTime, most: int = 0) -> list[Digest]:
    """Take the part of each device that ran anything, where several ran collectives; else nothing.

    The last ``most`` collectives of each are looked at; 0 for all.
    """
    trace, devices = study.trace, streams.working_devices(study.trace)
    if study.steps.is_window or len(devices) < _FEWEST_DEVICES:
        return []
    is_line, of_plane = streams.raw_device_lines(trace), trace.lines.plane
    works = [trace.lines.events_of(is_line & (of_plane == plane)) for plane in devices]
    kinds_by_device = [streams.kinds_of_work(trace, work) for work in works]
    if sum((kinds == streams.COLLECTIVE).any() for kinds in kinds_by_device) < _FEWEST_DEVICES:
        return []
    device_collectives = _of_one_time([find_collectives(study, plane, most) for plane in devices])
    # What each event is and when the host is at work, where the work of all devices counts.
    activities = find_activities(trace, study.steps, None, study.groups.parent)
    at_work = activities, host_pieces(trace, study.steps, study.groups, activities)
    steps, is_counted = max(study.summary.counted.size, 1), study.events_of(study.summary.counted)
    digests = []
    rows = zip(devices, device_collectives, works, kinds_by_device, strict=True)
    for plane, exchanged, all_work, all_kinds in rows:
        is_of_steps = is_counted[all_work]
        work, kinds = all_work[is_of_steps], all_kinds[is_of_steps]
        is_in = streams.copy_directions(trace, work) == streams.DIRECTIONS.index("host to device")
        digests.append(Digest(
            host=printable(_PREFIX.sub("", trace.planes[plane].name)),
            rank=-1,
            path=path,
            time=time,
            step_begin_ps=study.steps.begin_ps,
            step_num=study.steps.step_num,
            is_warmup=study.steps.is_warmup,
            collectives=exchanged,
            own_work=_find_own_work(study, exchanged, plane, at_work),
            op_ps=_ops_of(study, work[kinds != streams.COLLECTIVE]),
            line_ps={},
            has_device=True,
            has_transfers=has_pairs(trace),
            is_device=True,
            copied_in_ps=float(trace.events.duration_ps[work[is_in]].sum()) / steps,
        ))  # fmt: skip
    return digests


def _of_one_time(device_collectives: list[HostCollectives]) -> list[HostCollectives]:
    """Only collectives in which all were at one moment and that all left together; else none at all."""
    times: dict[Key, list[tuple[int, int]]] = {}
    for one in device_collectives:
        pairs = zip(one.enter_ps.tolist(), one.leave_ps.tolist(), strict=True)
        for key, pair in zip(one.keys, pairs, strict=True):
            times.setdefault(key, []).append(pair)
    several = [key for key, pairs in times.items() if len(pairs) >= _FEWEST_DEVICES]
    kept = {key for key in several if _is_one(times[key])}
    is_unclear = 2 * len(kept) < len(several)
    chosen = []
    for one in device_collectives:
        is_kept = np.array([key in kept and not is_unclear for key in one.keys], np.bool_)
        keys, enter_ps = tuple(compress(one.keys, is_kept)), one.enter_ps[is_kept]
        leave_ps = one.leave_ps[is_kept]
        chosen.append(HostCollectives(keys, enter_ps, leave_ps, one.is_numbered, is_unclear))
    return chosen


def _is_one(times: list[tuple[int, int]]) -> bool:
    last_entered, first_left = max(e for e, _ in times), min(left for _, left in times)
    shortest = min(left - entered for entered, left in times)
    apart = max(left for _, left in times) - first_left
    return last_entered <= first_left + _SLACK_PS and apart <= shortest / 2 + _APART_PS


def _ops_of(study: Study, work: Int64s) -> dict[str, float]:
    """Time of a mean step by op of the work of a device; the ops that took most."""
    ops, op_rows = name_device_work(study.trace, work, study.xla.hlo)
    spent = sum_by(op_rows, streams.own_times(study.trace, work), len(ops))
    steps = max(int(study.summary.counted.size), 1)
    named: dict[str, float] = {}
    for row in np.argsort(-spent, kind="stable")[:_MOST_OPS_OF_HOST].tolist():
        _add(named, ops[row][0], float(spent[row]) / steps)
    return named


def _find_own_work(
    spine: Spine, exchanged: HostCollectives, plane: int | None = None, work: AtWork | None = None
) -> OwnWork:
    """Find what the host, or its busiest device, did between collectives; what is higher in priority counts.

    ``work`` tells what each event is, and when the host is at work, as the device ``plane`` sees it.
    """
    trace, steps = spine.trace, spine.steps
    edges = np.unique(np.concatenate([exchanged.enter_ps, exchanged.leave_ps]))
    if not len(steps) or edges.size < 2:
        return OwnWork(np.zeros(1, np.int64), (), np.zeros((0, 0), np.int64))
    window = max(int(steps.begin_ps[0]), int(edges[0])), min(int(steps.end_ps[-1]), int(edges[-1]))
    activities, pieces = work or (spine.activities, spine.host_pieces)
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
    return OwnWork(edges, tuple(columns.tolist()), own_ps[:, columns])
