"""A trace to its collectives, in order, with keys by which other hosts know the same ones.

TensorFlow numbers its collectives alike on all hosts (``group_key``, ``instance_key``: stats of
``CollectiveReduceV2`` and its kind). A device's kernels (NCCL), XLA's collectives on a CPU and PyTorch's
backends have no such number: they are the Nth of their name (and of PyTorch's process group), in the step of
a number that the program gave where it gave one.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int64s
from profnb.steps.activities import COLLECTIVES, EXCHANGING
from profnb.steps.nesting import outermost_of
from profnb.steps.spine import Spine
from profnb.trace.names import STEP_NUM, is_host_collective

__all__ = ["HostCollectives", "Key", "find_collectives"]

Key = tuple[str, int, int, int]  # group or name, instance, step or -1, occurrence

_INSTANCE, _GROUP = "instance_key", "group_key"
_MARKED, _PYTORCH = "step markers", "ProfilerStep#"
_RANKS = "Process Group Ranks"  # of PyTorch's, beside its kernels
_MOST_NAME = 80


@dataclass(frozen=True, slots=True)
class HostCollectives:
    """K collectives of one host, by begin.

    Attributes:
        keys: What each is called on every host.
        enter_ps: When the host entered each, since its trace began, shape (K,).
        leave_ps: When it left, shape (K,).
        is_numbered: Whether the keys are TensorFlow's own numbers, or count from a step's begin: then equal
            keys are the same collective though hosts began to record at different steps.
        is_unclear: Whether processes exchange in several groups, and nothing tells which collective is of
            which: then none is here.
    """

    keys: tuple[Key, ...]
    enter_ps: Int64s
    leave_ps: Int64s
    is_numbered: bool
    is_unclear: bool = False

    def __len__(self) -> int:
        return self.enter_ps.size


def find_collectives(spine: Spine) -> HostCollectives:
    """The collectives of a trace between its first step's begin and its last one's end.

    Args:
        spine: The trace and its steps.
    """
    trace = spine.trace
    instances = trace.stats.integers(_INSTANCE)
    numbered = dict(zip(instances.events.tolist(), instances.values.tolist(), strict=True))
    on_device = np.flatnonzero(spine.activities == COLLECTIVES)
    if on_device.size:
        events = on_device
    else:
        is_wanted = trace.select_names(is_host_collective) & (spine.activities == EXCHANGING)
        if numbered:
            is_wanted &= np.isin(np.arange(len(trace.events)), instances.events)
        events = outermost_of(is_wanted, spine.groups.parent)
    steps = spine.steps
    if not len(steps):
        events = events[:0]
    else:
        begin, end = int(steps.begin_ps[0]), int(steps.end_ps[-1])
        inside = (trace.events.begin_ps[events] >= begin) & (trace.events.end_ps[events] <= end)
        events = events[inside]
    events = events[np.argsort(trace.events.begin_ps[events], kind="stable")]
    enter, leave = trace.events.begin_ps[events], trace.events.end_ps[events]
    if numbered and not on_device.size:
        keys, is_unique = _numbered_keys(spine, events, numbered)
        if is_unique:
            return HostCollectives(keys, enter, leave, is_numbered=True)
    named = trace.stats.texts(_RANKS).events
    if events.size and trace.process_groups > 1 and not np.isin(events, named).all():
        none = np.empty(0, np.int64)
        return HostCollectives((), none, none, is_numbered=False, is_unclear=True)
    keys, by_step = _counted_keys(spine, events)
    return HostCollectives(keys, enter, leave, is_numbered=by_step)


def _numbered_keys(
    spine: Spine, events: Int64s, numbered: dict[int, int]
) -> tuple[tuple[Key, ...], bool]:
    """TensorFlow's keys, and whether they number runs, and not the ops that run again in each step.

    Numbers that begin anew in the middle are still numbers: most come once.
    """
    groups = spine.trace.stats.integers(_GROUP)
    group_of = dict(zip(groups.events.tolist(), groups.values.tolist(), strict=True))
    seen: Counter[tuple[int, int]] = Counter()
    keys = []
    for event in events.tolist():
        pair = group_of.get(event, 0), numbered[event]
        keys.append((f"group {pair[0]}", pair[1], -1, seen[pair]))
        seen[pair] += 1
    return tuple(keys), 2 * len(seen) > len(keys)


def _has_numbers(spine: Spine) -> bool:
    """Whether the program gave its steps their numbers: those of calls count from where recording began."""
    steps, trace = spine.steps, spine.trace
    if steps.is_window or not steps.origin.startswith(_MARKED):
        return False
    first = steps.roots[steps.first_root[:-1]]
    numbers = trace.stats.integers(STEP_NUM).events
    names = {trace.names[trace.events.name[event]] for event in first.tolist()}
    return bool(np.isin(first, numbers).all() or all(name.startswith(_PYTORCH) for name in names))


def _counted_keys(spine: Spine, events: Int64s) -> tuple[tuple[Key, ...], bool]:
    """The Nth of a name, of its step where the program numbered its steps; and whether it did."""
    trace, steps = spine.trace, spine.steps
    by_step = _has_numbers(spine)
    row = np.searchsorted(steps.begin_ps, trace.events.begin_ps[events], side="right") - 1
    told = trace.stats.texts(_RANKS)
    group_of = {
        event: f" of {told.texts[row]}"[:_MOST_NAME]
        for event, row in zip(told.events.tolist(), told.values.tolist(), strict=True)
    }
    seen: Counter[tuple[str, int]] = Counter()
    keys = []
    for event, at in zip(events.tolist(), row.tolist(), strict=True):
        name = trace.names[trace.events.name[event]][:_MOST_NAME] + group_of.get(event, "")
        number = int(steps.step_num[at]) if by_step and at >= 0 else -1
        keys.append((name, -1, number, seen[name, number]))
        seen[name, number] += 1
    return tuple(keys), by_step
