"""PyTorch's memory snapshot (``torch.cuda.memory._dump_snapshot``) to a ``Trace`` of allocations.

The file is a pickle, which may name anything that is then run. So its instructions are looked at first: only
those that make dictionaries, lists, texts and numbers are let through; none that names or calls something,
and no tuples, whose hash may take for ever.

Source: torch/cuda/memory.py, torch/csrc/cuda/memory_snapshot.cpp (2.9); Python's Lib/pickletools.py.
"""

import io
import pickle
import pickletools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.trace.memory.allocations import Allocations, line_name
from profnb.trace.model import Trace
from profnb.trace.nvidia.records import Records, trace_of

RECORDED = "PyTorch's memory snapshot"
_LARGEST_SNAPSHOT, _MOST_EVENTS, _MOST_DEVICES = 256 << 20, 5_000_000, 1_000
_CONTAINERS, _MOST_CONTAINERS = ("EMPTY_DICT", "EMPTY_LIST"), 20_000_000
_PLAIN_OPCODES = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "APPEND", "APPENDS", "SETITEM", "SETITEMS",
    "BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE",
    "NEWFALSE", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
))  # fmt: skip
_INTEGERS = ("BININT", "BININT1", "BININT2", "LONG1")
_FREES = ("free_completed", "free_requested")
_INSIDE_TORCH = ("/torch/", "\\torch\\")
_LARGEST_WORD = (1 << 62) - 1


def read_torch_snapshot(buffer: Bytes, source: str) -> Trace:
    """Read a snapshot.

    Args:
        buffer: The whole file.
        source: Its name, for messages.

    Raises:
        TraceFormatError: It is none, holds something else than plain values, or is damaged.
    """
    try:
        histories = _histories(_load_plain(buffer))
    except TraceFormatError as error:
        raise TraceFormatError(f"{source}: {error}") from None
    records = [_records(device, changes) for device, changes in histories.items()]
    return trace_of(source, RECORDED, records)


def _histories(snapshot: object) -> dict[int, list[tuple[int, int, int, str]]]:
    """Find what each device allocated and freed, by its number."""
    devices = snapshot.get("device_traces") if isinstance(snapshot, dict) else None
    if not isinstance(devices, list):
        raise TraceFormatError(
            "A Python pickle that is no memory snapshot of PyTorch: it has no `device_traces`."
        )
    histories, left = {}, _MOST_EVENTS  # of all devices: one list may stand for many of them
    for number, history in enumerate(devices[:_MOST_DEVICES]):
        histories[number] = [*_changes(history, left)]
        left -= len(history) if isinstance(history, list) else 0
        if left <= 0:
            break
    if not any(histories.values()):
        raise TraceFormatError(
            "No allocation in the snapshot. Call torch.cuda.memory._record_memory_history() before the "
            "program allocates."
        )
    return {number: changes for number, changes in histories.items() if changes}


class _NothingNamed(pickle.Unpickler):
    """Makes nothing by name, should an instruction have been let through that asks for it."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _load_plain(buffer: Bytes) -> Any:
    if buffer.size > _LARGEST_SNAPSHOT:
        raise TraceFormatError(
            f"{buffer.size / 1e6:,.0f} MB; at most {_LARGEST_SNAPSHOT / 1e6:,.0f} MB are read. Record less."
        )
    raw = buffer.tobytes()
    try:
        strange = _find_strange(raw)
        if not strange:
            return _NothingNamed(io.BytesIO(raw)).load()
    except (
        pickle.UnpicklingError, ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError,
        OverflowError,
    ) as error:  # fmt: skip
        raise TraceFormatError(
            f"The pickle is damaged or cut short ({printable(str(error))[:100]}). Write the snapshot again."
        ) from None
    raise TraceFormatError(
        f"The pickle holds {strange}, which no memory snapshot has. Nothing of it was run."
    )


def _find_strange(raw: bytes) -> str:
    """Name the first instruction that is not let through; "" where all are.

    A place to remember something at is one of those before it: one far away would take that much memory. A
    pair is of two integers, the number of a pool: its hash costs nothing. Containers are counted.
    """
    before, containers = ("", ""), 0
    for count, (operation, argument, _) in enumerate(pickletools.genops(raw)):
        name = operation.name
        is_far = name == "LONG_BINPUT" and isinstance(argument, int) and argument > count
        is_pair = name == "TUPLE2" and all(one in _INTEGERS for one in before)
        containers += name in _CONTAINERS
        if is_far or not (name in _PLAIN_OPCODES or is_pair):
            return name
        if containers > _MOST_CONTAINERS:
            return f"more than {_MOST_CONTAINERS:,} lists and dicts"
        before = before[1], name
    return ""


def _changes(history: object, most: int) -> Iterator[tuple[int, int, int, str]]:
    """Give (time in ns, address, bytes, line) of each allocation, and of each end of one with bytes below 0.

    A block is free when its streams are done with it (``free_completed``); a history without such events has
    only the calls that asked for it.
    """
    entries = (
        [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    )
    actions = {action for entry in entries if isinstance(action := entry.get("action"), str)}
    frees = next((action for action in _FREES if action in actions), "")
    for number, entry in enumerate(entries[:most]):
        action, size = entry.get("action"), entry.get("size")
        if (
            action not in ("alloc", frees)
            or not isinstance(size, int)
            or not 0 < size < _LARGEST_WORD >> 16
        ):
            continue
        time, address = entry.get("time_us", number), entry.get("addr", 0)
        time_us = time if isinstance(time, int) and 0 <= time < _LARGEST_WORD // 1000 else number
        address = address & _LARGEST_WORD if isinstance(address, int) else 0
        yield time_us * 1000, address, size if action == "alloc" else -size, _line_of(entry)


def _line_of(entry: Mapping[str, Any]) -> str:
    """Name the line that allocated: the innermost frame of Python that is not PyTorch's own."""
    frames = entry.get("frames")
    places = [
        (
            frame["filename"],
            frame["line"],
            name if isinstance(name := frame.get("name"), str) else "",
        )
        for frame in (frames[:200] if isinstance(frames, list) else ())
        if isinstance(frame, dict)
        and isinstance(frame.get("filename"), str)
        and isinstance(frame.get("line"), int)
    ]
    python = [place for place in places if place[0].endswith(".py")]
    of_user = [place for place in python if not any(part in place[0] for part in _INSIDE_TORCH)]
    for file, line, name in (of_user or python)[:1]:
        return line_name(file, line, name)
    return ""


def _records(device: int, changes: list[tuple[int, int, int, str]]) -> Records:
    times, addresses, sizes, lines = zip(*changes, strict=True)
    when, address, change = (np.array(column, np.int64) for column in (times, addresses, sizes))
    in_use = np.cumsum(change)
    in_use -= min(int(in_use.min()), 0)  # what was allocated before the history began, at the least
    return Allocations(
        f"GPU_{device}", device, when, change, in_use, address, lines, np.ones_like(when)
    ).records()
