"""The Chrome trace of PyTorch's profiler (Kineto): its categories say what is an op, a call or device work.

Only what has an op's category is an op: Python's frames and the user's annotations (``nccl:all_reduce``) are
none, nor are the steps' markers, which early versions write as ops. Annotations on a stream cover the kernels
below them, and ``cuda_sync`` events say that a stream or the host waits: both are lines of their own, and no
work. The work of an accelerator whose categories are not
known here is shown and said, and counts as nobody's.

Source: pytorch/kineto libkineto/src/output_json.cpp and ActivityType.cpp.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.trace import names as trace_names
from profnb.trace.assemble import FoundLine, PlaneStats
from profnb.trace.chrome.events import Derived, RawEvents, Reading, number_of, row_of

_KINETO_OPS = frozenset({"cpu_op", "Operator"})
_KINETO_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
# Categories that nobody else writes, in files without a single op (``activities=[ProfilerActivity.CUDA]``).
_KINETO_ONLY = frozenset({
    "cuda_runtime", "cuda_driver", "cuda_sync", "xpu_runtime", "xpu_driver", "gpu_memcpy", "gpu_memset",
    "gpu_user_annotation", "python_function", "cpu_instant_event", "privateuse1_runtime",
    "privateuse1_driver", "mtia_runtime", "mtia_ccp_events", "glow_runtime", "hpu_op"
})  # fmt: skip
_KINETO_OLD = frozenset({"Kernel", "Runtime"})  # before 2022; together they are Kineto's
_KINETO_HEADER = frozenset({"schemaVersion", "deviceProperties"})
# Ranges of ``record_function``, and those that PyTorch and profnb mark themselves.
_RANGES, _OURS = "user_annotation", "profnb."
_FRAMEWORK_RANGES = (
    "ProfilerStep#", "Optimizer.", "enumerate(DataLoader)", "DistributedDataParallel",
    "FullyShardedDataParallel", "FSDP::", "nccl:", "gloo:", "mpi:", "c10d::", "torch::", "autograd::",
    "aten::", "## ", "Torch-Compiled", "TorchDynamo", "PyTorch Profiler", "CompiledFunction", "Pregraph",
    "AOTDispatcher", _OURS
)  # fmt: skip
_MOST_RANKS = 1_000_000
_MEMORY_RECORD = "[memory]"
# What Kineto says of a device, and what XPlane calls it.
_DEVICE_FACTS = {
    "name": "gpu_device_name", "totalGlobalMem": "memory_size", "computeMajor": "compute_cap_major",
    "computeMinor": "compute_cap_minor", "numSms": "core_count"
}  # fmt: skip
_LARGEST_FACT = 1 << 53
_DIGITS, _CLOCK_DIGITS = 15, 18  # of what 64 bits hold; 15 digits of nanoseconds are 12 days only
# What an event on a device is, by its category: work, or what a line beside the work shows.
_WORK, _ANNOTATION, _SYNCHRONISATION, _UNKNOWN = range(1, 5)
_LINES_BESIDE = (" annotations", " waits")
_KINDS = {
    "gpu_user_annotation": _ANNOTATION, "cuda_sync": _SYNCHRONISATION, "mtia_ccp_events": _UNKNOWN,
    "mtia_insight": _UNKNOWN, "mtia_counters": _UNKNOWN, "mtia_workloadd": _UNKNOWN, "hpu_op": _UNKNOWN,
    "glow_runtime": _UNKNOWN
}  # fmt: skip


def is_kineto(raw: RawEvents) -> bool:
    """Tell whether PyTorch's profiler wrote these events: by its own categories, or its header."""
    return (
        not (_KINETO_OPS | _KINETO_ONLY).isdisjoint(raw.categories)
        or _KINETO_OLD.issubset(raw.categories)
        or _KINETO_HEADER.issubset(raw.header)
    )


def read_kineto(
    raw: RawEvents, processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> Reading:
    """Tell hosts, devices, ops and steps of a PyTorch trace."""
    kinds = [
        _WORK if category in _KINETO_DEVICE else _KINDS.get(category, 0)
        for category in raw.categories
    ]
    kind = np.array(kinds, np.int64)[raw.category]
    count = len(raw.threads)
    on_device = np.zeros(count, np.bool_)
    on_device[raw.thread[kind == _WORK]] = True
    thread = raw.thread + np.maximum(kind - _WORK, 0) * count
    lines, beside, unknown = [], [], []
    for (process, tid), has_work in zip(raw.threads, on_device.tolist(), strict=True):
        device, number = f"/device:GPU:{process}", number_of(tid)
        stream = tid if tid.startswith("stream") else f"stream {tid}"
        name = threads.get((process, tid), tid)
        is_thread = process.lstrip("-").isdecimal() and bool(tid)
        if has_work:
            line = FoundLine(device, "device", stream, number)
        elif process in ("Spans", "Traces") or not is_thread:
            line = FoundLine(processes.get(process, process), "other", name)
        else:
            label = name if name != tid else f"thread {tid}"
            plane = f"{processes.get(process, 'process')} {process}"
            line = FoundLine(plane, "host", label, number)
        lines.append(line)
        names_beside = (stream + what for what in _LINES_BESIDE)
        beside.append(
            [FoundLine(device, "device", one, number, repeats=True) for one in names_beside]
        )
        unknown.append(FoundLine(f"/device:unknown:{process}", "device", name, repeats=True))
    lines += [*chain.from_iterable(zip(*beside, strict=True)), *unknown]
    in_ops = np.isin(raw.category, [r for r, c in enumerate(raw.categories) if c in _KINETO_OPS])
    is_op = np.zeros(len(raw.names), np.bool_)
    is_op[raw.name[in_ops]] = True
    ours = trace_names.KINETO_STEP, _OURS
    is_op[[row for row, name in enumerate(raw.names) if name.startswith(ours)]] = False
    steps, renamed = _kineto_steps(raw)
    allocations, records, frees = _allocations(raw)
    derived: dict[str, Derived] = {**steps, **allocations}
    is_event = ~raw.is_counter & ~(raw.is_instant & (raw.name == row_of(raw.names, _MEMORY_RECORD)))
    is_event[records] = True
    is_own = np.array([not name.startswith(_FRAMEWORK_RANGES) for name in raw.names], np.bool_)
    ranges = np.flatnonzero((raw.category == row_of(raw.categories, _RANGES)) & is_own[raw.name])
    if ranges.size:
        derived[trace_names.USER_RANGE] = ranges, np.ones(ranges.size, np.int64)
    # What Python's clock read as an event ``profnb.clock#1234`` was begun.
    readings = _numbers_behind(raw.names, trace_names.KINETO_CLOCK, _CLOCK_DIGITS)
    if readings:
        clock_events = np.flatnonzero(np.isin(raw.name, list(readings)))
        values = [readings[row] for row in raw.name[clock_events].tolist()]
        derived[trace_names.CLOCK_NS] = clock_events, np.array(values, np.int64)
        renamed |= dict.fromkeys(readings, trace_names.CLOCK_EVENT)
    names = [renamed.get(row, name) for row, name in enumerate(raw.names)]
    names += [trace_names.ALLOCATION, trace_names.DEALLOCATION]
    name_rows, is_op = raw.name.copy(), np.append(is_op, [False, False])
    name_rows[records] = len(raw.names) + frees
    facts = _facts_of_devices(raw.header)
    return Reading(
        lines, thread, is_event, names, name_rows, is_op, derived,
        planes=() if on_device.any() else [(plane, "device") for plane in facts], plane_stats=facts,
        left_out=_unknown_work(raw, kinds)
    )  # fmt: skip


def memory_records(raw: RawEvents) -> Iterator[tuple[str, Int64s, Int64s, Int64s]]:
    """Find PyTorch's ``[memory]`` instants: by device the events, the change and the bytes in use of each.

    The total is taken where every record has it; else changes are added up: +100, +50, -100 bytes are
    100, 150, 50 bytes in use.
    """
    events = np.flatnonzero(raw.is_instant & (raw.name == row_of(raw.names, _MEMORY_RECORD)))
    events = events[np.argsort(raw.begin_ps[events], kind="stable")]
    if not events.size:
        return
    stats, rows = raw.stats_of(events), np.arange(events.size)
    wanted = {"Device Id": -1, "Device Type": 0, "Bytes": 0, "Total Allocated": -1}
    device, kind, change, total = (
        stats.integers(name).of(rows, missing) for name, missing in wanted.items()
    )
    for device_type, device_id in sorted(set(zip(kind.tolist(), device.tolist(), strict=True))):
        there = (kind == device_type) & (device == device_id)
        has_total = (total[there] >= 0).all()
        in_use = total[there] if has_total else np.cumsum(change[there])
        name = f"GPU:{device_id}" if device_type else "CPU"
        yield name, events[there], change[there], in_use


def _allocations(raw: RawEvents) -> tuple[dict[str, Derived], Int64s, Bools]:
    """Say what records of memory that have an address tell in the words of other allocators' events.

    Returns:
        Stats; the records; whether each frees a block.
    """
    names, parts = [], [(np.empty(0, np.int64),) * 4]
    for name, events, change, in_use in memory_records(raw):
        names.append(name)
        kind = np.full(events.size, len(names) - 1)
        parts.append((events, change, in_use - min(int(in_use.min()), 0), kind))
    events, change, in_use, kind = map(np.concatenate, zip(*parts, strict=True))
    address = raw.stats_of(events).integers("Addr").of(np.arange(events.size))
    chosen = address > 0
    events, change, in_use, kind, address = (
        column[chosen] for column in (events, change, in_use, kind, address)
    )
    columns = {"bytes_allocated": in_use, "allocation_bytes": np.abs(change), "addr": address}
    stats: dict[str, Derived] = {stat: (events, column) for stat, column in columns.items()}
    return stats | {"allocator_name": (events, kind, tuple(names))}, events, change < 0


def place_in_job(header: Mapping[str, Any]) -> tuple[int, int, int]:
    """Read the rank of the process that was recorded, of how many, and how many sets of ranks exchange apart.

    Returns:
        -1, 0 and 0 where ``distributedInfo``, which PyTorch writes for jobs of several, does not say.
    """
    job = header.get("distributedInfo")
    if not isinstance(job, dict):
        return -1, 0, 0
    rank, ranks, groups = job.get("rank"), job.get("world_size"), job.get("pg_config")
    rank = rank if isinstance(rank, int) and 0 <= rank < _MOST_RANKS else -1
    ranks = ranks if isinstance(ranks, int) and rank < ranks <= _MOST_RANKS else 0
    listed = [one for one in groups if isinstance(one, dict)] if isinstance(groups, list) else []
    members = (group.get("ranks") for group in listed)
    sets = {str(of_group) for of_group in members if isinstance(of_group, list) and of_group[1:]}
    return rank, ranks, len(sets)


def _facts_of_devices(header: Mapping[str, Any]) -> dict[str, PlaneStats]:
    """Read what the header says of each device, by the name of its plane."""
    vendor = "AMD" if any(key.startswith("hip") for key in header) else "Nvidia"
    facts: dict[str, PlaneStats] = {}
    for device in devices if isinstance(devices := header.get("deviceProperties"), list) else ():
        if not isinstance(device, dict) or not isinstance(device.get("id"), int):
            continue
        values = {ours: device.get(theirs) for theirs, ours in _DEVICE_FACTS.items()}
        facts[f"/device:GPU:{device['id']}"] = {"device_vendor": vendor} | {
            name: value
            for name, value in values.items()
            if isinstance(value, str) or (isinstance(value, int) and 0 <= value < _LARGEST_FACT)
        }
    return facts


def _unknown_work(raw: RawEvents, kinds: Sequence[int]) -> tuple[str, ...]:
    """Write the sentence on accelerators whose work is not understood, if there are any."""
    unknown = [row for row, kind in enumerate(kinds) if kind == _UNKNOWN]
    count = int(np.isin(raw.category, unknown).sum())
    if not count:
        return ()
    named = ", ".join(sorted(raw.categories[row] for row in unknown))
    return (
        f"{count:,} events are of an unknown accelerator ({named}). Only the timeline shows these events. "
        "The accelerator's busy time and ops are unknown.",
    )


def _kineto_steps(raw: RawEvents) -> tuple[dict[str, tuple[Int64s, Int64s]], dict[int, str]]:
    """``ProfilerStep#1009`` is a step marker: the stats that say so, and its name by its phase.

    profnb's own markers end with an event ``profnb.step#1009 test profnb_abandoned=1`` that says more. Where
    others have one, a marker without was cut short, and is given up too.
    """
    numbers = _numbers_behind(raw.names, trace_names.KINETO_STEP, _DIGITS)
    number = np.full(len(raw.names), -1, np.int64)
    number[list(numbers)] = list(numbers.values())
    events = np.flatnonzero((number[raw.name] >= 0) & ~raw.is_instant)
    derived = {
        trace_names.STEP_NUM: (events, number[raw.name[events]]),
        trace_names.ROOT_LEVEL: (events, np.ones(events.size, np.int64)),
    }
    facts = _facts_of(raw, events)
    if not facts:
        return derived, {}
    phases: dict[int, str] = {}
    kept = trace_names.IS_ABANDONED, trace_names.ITERATIONS, trace_names.EXAMPLES
    stats: dict[str, dict[int, int]] = {stat: {} for stat in kept}
    for event in events.tolist():
        phase, *words = facts.get(event, ["", f"{trace_names.IS_ABANDONED}=1"])
        if phase:
            row = int(raw.name[event])
            phases[row] = f"{phase}#{numbers[row]}"
        for word in words:
            stat, _, value = word.partition("=")
            is_number = value.isdecimal() and len(value) <= _DIGITS
            if stat in stats and is_number and int(value):
                stats[stat][event] = int(value)
    for stat, values in stats.items():
        if values:
            derived[stat] = np.array([*values], np.int64), np.array([*values.values()], np.int64)
    return derived, phases


def _facts_of(raw: RawEvents, markers: Int64s) -> dict[int, list[str]]:
    """Find what profnb's own events say of the markers that they stand in: the phase, then words."""
    facts = {
        row: words
        for row, name in enumerate(raw.names)
        if name.startswith(trace_names.KINETO_FACTS) and (words := name.split(" ")[1:])
    }
    is_fact = np.zeros(len(raw.names), np.bool_)
    is_fact[list(facts)] = True
    fact_events = np.flatnonzero(is_fact[raw.name])
    words_of: dict[int, list[str]] = {}
    for thread in np.unique(raw.thread[fact_events]).tolist():
        thread_markers = markers[raw.thread[markers] == thread]
        thread_markers = thread_markers[np.argsort(raw.begin_ps[thread_markers], kind="stable")]
        those = fact_events[raw.thread[fact_events] == thread]
        at = np.searchsorted(raw.begin_ps[thread_markers], raw.begin_ps[those], side="right") - 1
        for event, row in zip(those.tolist(), at.tolist(), strict=True):
            if row >= 0:
                words_of[int(thread_markers[row])] = facts[int(raw.name[event])]
    return words_of


def _numbers_behind(names: Sequence[str], prefix: str, most_digits: int) -> dict[int, int]:
    """Read the numbers that stand behind a prefix, by the row of their name."""
    texts = {row: name[len(prefix) :] for row, name in enumerate(names) if name.startswith(prefix)}
    return {
        row: int(text)
        for row, text in texts.items()
        if text.isdecimal() and len(text) <= most_digits
    }
