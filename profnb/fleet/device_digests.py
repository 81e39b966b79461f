"""A trace of one process to a digest per device: its devices as a fleet, on one clock.

The definitions are the hosts' (``profnb.fleet``): own work is what lies between a device's collectives, be
it the device's or what the host does until it has given it more. One clock is all there is, so collectives
that are the same ran at the same time and ended together: others of equal name and number are none, and are
left out (NCCL's reduce and broadcast let the root go before the rest comes; of groups that exchange apart,
nothing tells which is whose).
"""

import re

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.printable import printable
from profnb.fleet.collectives import HostCollectives, Key, find_collectives, has_pairs
from profnb.fleet.digest import Digest
from profnb.fleet.own_work import all_at_work, find_doings
from profnb.steps.streams import (
    COLLECTIVE,
    DIRECTIONS,
    directions_of_copies,
    kinds_of_work,
    raw_device_lines,
    working_devices,
)
from profnb.subjects.device.kernels import name_device_work
from profnb.subjects.study import Study
from profnb.trace.runs import CaptureTime

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
