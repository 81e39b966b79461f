"""The Chrome trace of PyTorch's profiler (Kineto): its categories say what is an op, a call or device work.

Source: pytorch/kineto libkineto/src/output_json.cpp.
"""

import numpy as np

from profnb.core.columns import Int64s
from profnb.trace.assemble import FoundLine
from profnb.trace.chrome.dialect import Reading, number_of
from profnb.trace.chrome.events import RawEvents
from profnb.trace.names import ROOT_LEVEL, STEP_NUM

__all__ = ["is_kineto", "read_kineto"]

_KINETO_OPS = frozenset({"cpu_op", "Operator"})
_KINETO_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_KINETO_ANNOTATION = "gpu_user_annotation"
_KINETO_STEP = "ProfilerStep#"


def is_kineto(raw: RawEvents) -> bool:
    """Whether PyTorch's profiler wrote these events."""
    return not _KINETO_OPS.isdisjoint(raw.categories)


def read_kineto(
    raw: RawEvents, processes: dict[str, str], threads: dict[tuple[str, str], str]
) -> Reading:
    """Tell hosts, devices, ops and steps of a PyTorch trace.

    Args:
        raw: Its events.
        processes: Names of processes.
        threads: Names of threads.
    """
    kinds = [_kineto_kind(category) for category in raw.categories]
    kind = np.array(kinds, np.int64)[raw.category]
    on_device = np.zeros(len(raw.threads), np.bool_)
    on_device[raw.thread[kind == 1]] = True
    annotated = np.flatnonzero(kind == 2)
    # Annotations on a stream cover the kernels below them: a line of their own, not device work.
    thread = raw.thread.copy()
    thread[annotated] += len(raw.threads)
    lines = []
    for repeats in (False, True):
        for row, (process, tid) in enumerate(raw.threads):
            name = threads.get((process, tid), tid)
            if on_device[row]:
                stream = tid if tid.startswith("stream") else f"stream {tid}"
                stream += " annotations" if repeats else ""
                line = FoundLine(
                    f"/device:GPU:{process}", "device", stream, number_of(tid), repeats
                )
            elif process in ("Spans", "Traces") or not _is_thread(process, tid):
                line = FoundLine(processes.get(process, process), "other", name)
            else:
                label = name if name != tid else f"thread {tid}"
                plane = f"{processes.get(process, 'process')} {process}"
                line = FoundLine(plane, "host", label, number_of(tid))
            lines.append(line)
    in_ops = np.isin(raw.category, [r for r, c in enumerate(raw.categories) if c in _KINETO_OPS])
    is_op = np.zeros(len(raw.names), np.bool_)
    is_op[raw.name[in_ops]] = True
    is_event = ~raw.is_counter & ~(raw.is_instant & (raw.name == _row_of(raw.names, "[memory]")))
    return Reading(lines, thread, is_event, raw.names, raw.name, is_op, _kineto_steps(raw))


def _kineto_kind(category: str) -> int:
    """1 for device work, 2 for an annotation on a stream, else 0."""
    return 1 if category in _KINETO_DEVICE else 2 if category == _KINETO_ANNOTATION else 0


def _is_thread(process: str, thread: str) -> bool:
    return process.lstrip("-").isdecimal() and bool(thread)


def _row_of(names: list[str], wanted: str) -> int:
    return names.index(wanted) if wanted in names else -1


def _kineto_steps(raw: RawEvents) -> dict[str, tuple[Int64s, Int64s]]:
    """``ProfilerStep#1009`` is a step marker: the stats that say so."""
    numbers = {
        row: int(name[len(_KINETO_STEP) :])
        for row, name in enumerate(raw.names)
        if name.startswith(_KINETO_STEP)
        and name[len(_KINETO_STEP) :].isdecimal()
        and len(name) < len(_KINETO_STEP) + 16
    }
    number = np.full(len(raw.names), -1, np.int64)
    number[list(numbers)] = list(numbers.values())
    events = np.flatnonzero((number[raw.name] >= 0) & ~raw.is_instant)
    return {
        STEP_NUM: (events, number[raw.name[events]]),
        ROOT_LEVEL: (events, np.ones(events.size, np.int64)),
    }
