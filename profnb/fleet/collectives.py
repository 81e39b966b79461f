"""A trace to its collectives, in order, with keys by which other hosts know the same ones.

TensorFlow numbers its collectives alike on all hosts (``group_key``, ``instance_key``: stats of
``CollectiveReduceV2`` and its kind). A device's kernels (NCCL), XLA's collectives on a CPU and PyTorch's
backends have no such number: they are the Nth of their name (and of PyTorch's process group), in the step of
a number that the program gave where it gave one. Devices of one process share its steps: theirs are the Nth
of the step that launched them.

TPU cores wait for one another before a program that exchanges (``barrier-cores``), and its collectives then
begin on all at one moment: that barrier is a collective of its own.

What only two take part in (NCCL's sends and receives, of a pipeline's stages) is none, nor is what only
starts a collective (``all-reduce-start``): nobody waits for all in it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

import numpy as np

from profnb.core.columns import Bools, Int64s, RowColumns, look_up
from profnb.steps.activities import COLLECTIVES, EXCHANGING
from profnb.steps.grouping import has_replicas
from profnb.steps.nesting import outermost_of
from profnb.steps.spine import Spine
from profnb.steps.streams import COLLECTIVE, kinds_of_work, raw_device_lines
from profnb.trace.model import Trace
from profnb.trace.names import STEP_NUM, is_host_collective

Key = tuple[str, int, int, int]  # group or name, instance, step or -1, occurrence

_INSTANCE, _GROUP = "instance_key", "group_key"
_PYTORCH = "ProfilerStep#"
_RANKS = "Process Group Ranks"  # of PyTorch's, beside its kernels
_KIND = "Collective name"  # likewise
_PAIRS, _ALL_TO_ALL = "sendrecv", ("all_to_all", "alltoall")
# What PyTorch calls on the host for each: NCCL exchanges all with all by the kernels that send by twos.
_CALLS_OF_ALL = ("nccl:all_to_all", "nccl:alltoall", "c10d::alltoall")
_CALLS_OF_TWO = ("nccl:send", "nccl:recv", "c10d::send", "c10d::recv")
_BARRIER = "barrier-cores"  # beside a TPU's ops, from the begin of its program on
_START = re.compile(r"%?[a-z-]+-start\b")
_MOST_NAME = 80


@dataclass(frozen=True, slots=True)
class HostCollectives(RowColumns):
    """K collectives of one host, by begin.

    Attributes:
        keys: What each is called on every host.
        enter_ps: When the host entered each, since its trace began, shape (K,).
        leave_ps: When it left, shape (K,).
        is_numbered: Whether the keys are TensorFlow's own numbers, or count from a step's begin: then equal
            keys are the same collective though hosts began to record at different steps.
        is_unclear: Whether processes exchange in several groups, and nothing tells which collective is of
            which: then none is here.
        has_replicas: Whether one process runs each several times, for its replicas.
    """

    keys: tuple[Key, ...]
    enter_ps: Int64s
    leave_ps: Int64s
    is_numbered: bool
    is_unclear: bool = False
    has_replicas: bool = False


def find_collectives(spine: Spine, device: int | None = None, most: int = 0) -> HostCollectives:
    """Find the collectives of a trace between its first step's begin and its last one's end.

    ``device`` is the plane of the device that is asked about; None asks about the host, whose collectives are
    its busiest device's where devices exchange. Of a device the last ``most`` are given; 0 for all.
    """
    if device is not None:
        return _find_of_device(spine, device, most)
    trace = spine.trace
    instances = trace.stats.integers(_INSTANCE)
    numbered = dict(zip(instances.events.tolist(), instances.values.tolist(), strict=True))
    on_device = np.flatnonzero(spine.activities == COLLECTIVES)
    if on_device.size:
        events = on_device[_is_meeting(trace, on_device)]
    else:
        is_wanted = trace.select_names(is_host_collective) & (spine.activities == EXCHANGING)
        if numbered:
            is_wanted &= np.isin(np.arange(len(trace.events)), instances.events)
        events = outermost_of(is_wanted, spine.groups.parent)
    events = _in_steps(spine, events)
    enter, leave = trace.events.begin_ps[events], trace.events.end_ps[events]
    several = bool(numbered) and not on_device.size
    if several:  # TensorFlow's keys
        groups = trace.stats.integers(_GROUP)
        group_of = dict(zip(groups.events.tolist(), groups.values.tolist(), strict=True))
        keys = _count_occurrences(
            (f"group {group_of.get(event, 0)}", numbered[event], -1) for event in events.tolist()
        )
        # They may number the ops that run again in each step, and no runs. Those of runs that begin anew in
        # the middle are still numbers: most come once.
        if 2 * sum(not occurrence for *_, occurrence in keys) > len(keys):
            return HostCollectives(keys, enter, leave, is_numbered=True)
    named = trace.stats.texts(_RANKS).events
    if events.size and trace.process_groups > 1 and not np.isin(events, named).all():
        none = np.empty(0, np.int64)
        return HostCollectives((), none, none, is_numbered=False, is_unclear=True)
    # Else the Nth of a name, of its step where the program numbered its steps.
    by_step, steps = _has_numbers(spine), spine.steps
    number = np.full(events.size, -1)
    if by_step:
        row = np.searchsorted(steps.begin_ps, enter, side="right") - 1
        number = np.where(row >= 0, steps.step_num[row], -1)
    keys = _nth_of_names(trace, events, number)
    several |= not on_device.size and has_replicas(trace, events)
    return HostCollectives(keys, enter, leave, is_numbered=by_step, has_replicas=several)


def _find_of_device(spine: Spine, device: int, most: int) -> HostCollectives:
    trace, steps = spine.trace, spine.steps
    work = trace.lines.events_of(raw_device_lines(trace) & (trace.lines.plane == device))
    exchanging = work[kinds_of_work(trace, work) == COLLECTIVE]
    barriers, behind = _find_barriers(trace, device, work)
    events = np.concatenate([exchanging[_is_meeting(trace, exchanging)], barriers])
    events = _in_steps(spine, events)[-most:]
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    # A barrier is in its program's step, and ends where that begins to work.
    first = look_up(barriers, behind, events)
    end = np.where(first >= 0, np.minimum(end, trace.events.begin_ps[first]), end)
    row = spine.groups.step[np.where(first >= 0, first, events)].astype(np.int64)
    row = np.where(row >= 0, row, np.searchsorted(steps.begin_ps, begin, side="right") - 1)
    keys = _nth_of_names(trace, events, row.astype(np.int64))
    return HostCollectives(keys, begin, end, is_numbered=True)


def _find_barriers(trace: Trace, device: int, work: Int64s) -> tuple[Int64s, Int64s]:
    """Find where a TPU waits for the others before a program, and the first event of its work behind each."""
    is_barrier = trace.select_names(_BARRIER.__eq__)
    of_plane = trace.lines.events_of(trace.lines.plane == device)
    barriers = of_plane[is_barrier[of_plane]]
    begins = trace.events.begin_ps[work]
    order = np.argsort(begins, kind="stable")
    at = np.searchsorted(begins[order], trace.events.begin_ps[barriers])
    is_followed = at < work.size
    return barriers[is_followed], work[order[at[is_followed]]]


def _in_steps(spine: Spine, events: Int64s) -> Int64s:
    """Those between the first step's begin and the last one's end, by begin."""
    times, steps = spine.trace.events, spine.steps
    if not len(steps):
        return events[:0]
    first, last = int(steps.begin_ps[0]), int(steps.end_ps[-1])
    events = events[(times.begin_ps[events] >= first) & (times.end_ps[events] <= last)]
    return events[np.argsort(times.begin_ps[events], kind="stable")]


def _is_meeting(trace: Trace, events: Int64s) -> Bools:
    """In which of N collectives all wait for all, shape (N,)."""
    kinds = trace.stats.texts(_KIND)
    row = kinds.of(events)
    texts, names = (*kinds.texts, ""), trace.events.name[events]
    is_all_to_all = np.array([text.startswith(_ALL_TO_ALL) for text in texts], np.bool_)
    is_of_twos = has_pairs(trace)
    is_name_of_all = {
        name: not ((is_of_twos and _is_pair(trace.names[name])) or _START.match(trace.names[name]))
        for name in np.unique(names).tolist()
    }
    is_of_all = np.array([is_name_of_all[name] for name in names.tolist()], np.bool_)
    return np.asarray(is_of_all | is_all_to_all[row])


def has_pairs(trace: Trace) -> bool:
    """Tell whether devices send to one another by twos."""
    texts = trace.names.texts
    if not any(map(_is_pair, texts)):
        return False
    is_of_all = any(name.startswith(_CALLS_OF_ALL) for name in texts)
    return not is_of_all or any(name.startswith(_CALLS_OF_TWO) for name in texts)


def _is_pair(name: str) -> bool:
    return _PAIRS in name.lower()


def _has_numbers(spine: Spine) -> bool:
    """Tell whether the program numbered its steps: those of calls count from where recording began."""
    steps, trace = spine.steps, spine.trace
    if not spine.program.is_marked:
        return False
    first = steps.roots[steps.first_root[:-1]]
    numbers = trace.stats.integers(STEP_NUM).events
    names = {trace.names[trace.events.name[event]] for event in first.tolist()}
    return bool(np.isin(first, numbers).all() or all(name.startswith(_PYTORCH) for name in names))


def _nth_of_names(trace: Trace, events: Int64s, number: Int64s) -> tuple[Key, ...]:
    """Keys of N collectives by name, process group and a number of each."""
    ranks = trace.stats.texts(_RANKS)
    of_events = zip(ranks.events.tolist(), ranks.values.tolist(), strict=True)
    group_of = {event: f" of {ranks.texts[row]}"[:_MOST_NAME] for event, row in of_events}
    names = [
        trace.names[name][:_MOST_NAME] + group_of.get(event, "")
        for event, name in zip(events.tolist(), trace.events.name[events].tolist(), strict=True)
    ]
    pairs = zip(names, number.tolist(), strict=True)
    return _count_occurrences((name, -1, at) for name, at in pairs)


def _count_occurrences(names: Iterable[tuple[str, int, int]]) -> tuple[Key, ...]:
    numbers: dict[tuple[str, int, int], count[int]] = defaultdict(count)
    return tuple((*name, next(numbers[name])) for name in names)
