"""PyTorch's memory snapshot, or memory timeline, to a ``Trace`` of allocations.

The file of a snapshot (``torch.cuda.memory._dump_snapshot``) is a pickle, which may name
anything that is then run. So its instructions are looked at first: only those that make dictionaries, lists,
texts and numbers are let through; none that names or calls something, and no tuples, whose hash may take for
ever.

As in PyTorch's memory_viz, what is in use is the sum of ``alloc`` less ``free_completed``, by the sizes that
were asked for. To it comes what was there before the history: blocks that it frees and never allocates, and
those that are allocated in ``segments`` at the end and not in the history.

A memory timeline (``export_memory_timeline``) has bytes by kind of tensor, over time: a ``.json`` or
``.json.gz`` the bytes of each kind at each microsecond of a change, a ``.raw.json.gz`` each change by itself,
in nanoseconds. As in PyTorch's own picture, what is in use is the sum over the kinds, after all changes of a
moment. No device or line is told, so a kind stands where an allocator has an op.

Source: torch/cuda/memory.py, torch/csrc/cuda/memory_snapshot.cpp, torch/utils/viz/MemoryViz.js (2.11);
Python's Lib/pickletools.py; torch/profiler/_memory_profiler.py, ``MemoryProfileTimeline`` (2.11, where it is
deprecated).
"""

import io
import pickle
import pickletools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.units import PS_PER_NS
from profnb.trace.chrome.event_args import parse_value
from profnb.trace.memory.allocations import Allocations, line_name
from profnb.trace.model import Counter, Trace
from profnb.trace.nvidia.records import trace_of

RECORDED = "PyTorch's memory snapshot"
_LARGEST_SNAPSHOT, _MOST_EVENTS, _MOST_DEVICES = 256 << 20, 5_000_000, 1_000
_CONTAINERS, _MOST_CONTAINERS = ("EMPTY_DICT", "EMPTY_LIST"), 20_000_000
_PLAIN_OPCODES = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "APPEND", "APPENDS", "SETITEM", "SETITEMS",
    "BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE",
    "NEWFALSE", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
))  # fmt: skip
_INTEGERS = ("BININT", "BININT1", "BININT2", "LONG1")
_FREES = "free_completed", "free", "free_requested"
_INSIDE_TORCH = ("/torch/", "\\torch\\")
_OP_OF_AUTOGRAD = re.compile(
    r"torch::autograd::(?:VariableType|generated)::(?:\(anonymous namespace\)::)?"
    r"(\w{1,100}?)(?:_apply_functional|::apply)?\("
)
_LARGEST_WORD = (1 << 62) - 1
_LARGEST_BLOCK = 1 << 38  # bytes: sums of all stay inside int64
_Change = tuple[int, int, int, str]
_Block = tuple[int, int, str]
# In the order of _CATEGORY_TO_COLORS, whose last is a tensor of no known kind.
_TENSOR_KINDS = (
    "parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients", "autograd detail",
    "unknown kind",
)  # fmt: skip
# a list of lists of numbers; Chrome's lists hold objects
MEMORY_TIMELINE = re.compile(rb"\s*\[\s*\[\s*(?:-?\d|\])")
_MOST_TIMELINE_BYTES, _MOST_MOMENTS = 256 << 20, 1_000_000
_LAST_MOMENT_NS, _MOST_IN_USE = 1 << 61, 1 << 55


def read_torch_snapshot(buffer: Bytes, source: str) -> Trace:
    """Read a snapshot."""
    snapshot = _load_plain(buffer)
    devices = snapshot.get("device_traces") if isinstance(snapshot, dict) else None
    if not isinstance(devices, list):
        raise TraceFormatError(
            "A Python pickle, but no memory snapshot of PyTorch: `device_traces` is missing."
        )
    # one list may stand for many devices
    blocks, left = _blocks(snapshot.get("segments")), _MOST_EVENTS
    records = []
    for number, history in enumerate(devices[:_MOST_DEVICES]):
        if left <= 0:
            break
        changes = [*_changes(history, left)]
        left -= len(history) if isinstance(history, list) else 0
        earlier, unnamed = _earlier(changes, blocks.get(number, ()))
        if earlier or changes:
            times, addresses, sizes, lines = zip(*earlier, *changes, strict=True)
            when, address, change = np.array([times, addresses, sizes], np.int64)
            in_use, one = unnamed + np.cumsum(change), np.ones_like(when)
            gpu = Allocations(f"GPU_{number}", number, when, change, in_use, address, lines, one)
            records.append(gpu.records())
    if not records:
        raise TraceFormatError(
            "No allocation in the snapshot. Call torch.cuda.memory._record_memory_history() before the "
            "program allocates."
        )
    return trace_of(source, RECORDED, records)


def _blocks(segments: object) -> dict[int, list[_Block]]:
    """Find the blocks that are allocated as the snapshot is made, by device; each begins where one ends."""
    blocks: dict[int, list[_Block]] = {}
    left = _MOST_EVENTS
    for segment in _dicts(segments, _MOST_EVENTS):
        device, at = _natural(segment.get("device"), 1 << 31), segment.get("address")
        parts = _dicts(segment.get("blocks"), max(left, 0))
        left -= len(parts)
        for block in parts:
            size, whole = _natural(block.get("requested_size"), _LARGEST_BLOCK), block.get("size")
            if not isinstance(at, int) or not isinstance(whole, int):
                break
            if block.get("state") == "active_allocated" and size > 0:
                blocks.setdefault(device, []).append((at & _LARGEST_WORD, size, _line_of(block)))
            at += whole
    return blocks


def _earlier(changes: Sequence[_Change], blocks: Iterable[_Block]) -> tuple[list[_Change], int]:
    """Find what was there before a history: allocations at its begin, and bytes of which no line is known."""
    alive, freed = set[int](), 0
    for _, address, change, _ in changes:
        if change > 0:
            alive.add(address)
        elif address in alive:
            alive.discard(address)
        else:
            freed -= change
    before = [one for one in blocks if one[0] not in alive]
    begin = changes[0][0] if changes else 0
    named = [(begin, address, size, line) for address, size, line in before if line]
    return named, freed + sum(size for _, size, line in before if not line)


def _dicts(values: object, most: int) -> list[dict[str, Any]]:
    first = values[:most] if isinstance(values, list) else []
    return [one for one in first if isinstance(one, dict)]


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


def _changes(history: object, most: int) -> Iterator[_Change]:
    """Give (time in ns, address, bytes, line) of each allocation, and of each end of one with bytes below 0.

    A block is free when its streams are done with it (``free_completed``); a history without such events has
    only the calls that asked for it.
    """
    entries = _dicts(history, most)
    actions = {action for entry in entries if isinstance(action := entry.get("action"), str)}
    frees = next((action for action in _FREES if action in actions), "")
    for number, entry in enumerate(entries):
        action, size = entry.get("action"), _natural(entry.get("size"), _LARGEST_BLOCK)
        if action in ("alloc", frees) and size > 0:
            time_us = _natural(entry.get("time_us"), _LARGEST_WORD // 1000)
            address = max(_natural(entry.get("addr"), 1 << 64), 0) & _LARGEST_WORD
            change = size if action == "alloc" else -size
            yield (number if time_us < 0 else time_us) * 1000, address, change, _line_of(entry)


def _natural(value: object, end: int) -> int:
    return value if isinstance(value, int) and 0 <= value < end else -1


def _line_of(entry: Mapping[str, Any]) -> str:
    """Name the line that allocated: the innermost frame of Python that is not PyTorch's own.

    Threads of autograd run no Python: there it is the innermost op, where frames of C++ were recorded.
    """
    places = [
        (file, line, name if isinstance(name, str) else "")
        for frame in _dicts(entry.get("frames"), 200)
        for file, line, name in [(frame.get("filename"), frame.get("line"), frame.get("name"))]
        if isinstance(file, str) and isinstance(line, int)
    ]
    python = [place for place in places if place[0].endswith(".py")]
    of_user = [place for place in python if not any(part in place[0] for part in _INSIDE_TORCH)]
    for file, line, name in (of_user or python)[:1]:
        return line_name(file, line, name)
    ops = (_OP_OF_AUTOGRAD.match(name) for _, _, name in places)
    return next((op[1] for op in ops if op), "")


def read_timeline(buffer: Bytes, source: str) -> Trace:
    """Read a memory timeline, of bytes by kind or of each change."""
    whole = parse_value(buffer.tobytes()) if buffer.size <= _MOST_TIMELINE_BYTES else []
    if not whole:
        raise TraceFormatError(
            "An empty or cut-off memory timeline of PyTorch, or more than "
            f"{_MOST_TIMELINE_BYTES / 1e6:,.0f} MB. Export fewer steps."
        )
    match whole:
        case [[*moments], [[*_], *_] as rows]:
            times, held, blocks = _summed(moments, rows)
        case _:
            times, held, blocks = _kind_changes(whole)
    if held.size and float(np.abs(held).max()) * len(_TENSOR_KINDS) > _MOST_IN_USE:
        raise TraceFormatError(
            "A memory timeline of more bytes than any device has. Export the timeline again."
        )
    held, blocks = np.maximum(held, 0), np.maximum(blocks, 0)
    before = np.vstack([np.zeros_like(held[:1]), held[:-1]])
    moment, kind = np.nonzero(held != before)
    if not moment.size:
        raise TraceFormatError(
            "A memory timeline without an allocation. Export the device that works, of a profile with "
            "record_shapes, profile_memory and with_stack."
        )
    is_last = np.append(moment[1:] != moment[:-1], True)  # of what changes at one moment
    records = Allocations(
        "PyTorch", 0, times[moment], np.where(held, held, -before)[moment, kind],
        np.where(is_last, held.sum(axis=1)[moment], -1), kind, [_TENSOR_KINDS[one] for one in kind.tolist()],
        blocks[moment, kind],
    ).records()  # fmt: skip
    trace = trace_of(source, "PyTorch's memory timeline", [records])
    since = (times - times[moment[0]])[moment[0] :] * PS_PER_NS
    counters = [
        Counter("held", name, "bytes", since, column[moment[0] :].astype(np.float64))
        for name, column in zip(_TENSOR_KINDS, held.T, strict=True)
        if column.any()
    ]
    return replace(trace, counters=tuple(counters))


def _integers(rows: object, width: int) -> Int64s:
    """Give rows of as many integers each as an array, shape (N, width)."""
    listed = rows if isinstance(rows, list) else [None]
    is_list = all(isinstance(row, list) and len(row) == width for row in listed)
    is_whole = is_list and all(
        type(one) is int and abs(one) < _LAST_MOMENT_NS for row in listed for one in row or ()
    )
    if not is_whole or len(listed) > _MOST_MOMENTS:
        raise TraceFormatError(
            f"No memory timeline of PyTorch, or more than {_MOST_MOMENTS:,} changes. profnb opens what "
            "`export_memory_timeline` wrote."
        )
    return np.array(listed, np.int64).reshape(-1, width)


def _summed(times: Sequence[object], rows: object) -> tuple[Int64s, Int64s, Int64s]:
    """Read the bytes of each kind by moment: moments in ns, and bytes and blocks, each (moments, kinds)."""
    times_us = _integers([[one] for one in times], 1)[:, 0]
    held = _integers(rows, 1 + len(_TENSOR_KINDS))[:, 1:]  # a picture's lower edge comes first
    if times_us.size != len(held) or times_us.max(initial=0) >= _LAST_MOMENT_NS // 1000:
        raise TraceFormatError(
            "A memory timeline with other times than sizes. Export the timeline again."
        )
    order = np.argsort(times_us, kind="stable")
    return times_us[order] * 1000, held[order], np.zeros_like(held)


def _kind_changes(rows: object) -> tuple[Int64s, Int64s, Int64s]:
    """Add up the changes of each kind; what was there before has the time -1, and comes first."""
    table = _integers(rows, 4)
    table = table[np.argsort(table[:, 0], kind="stable")]
    times, _, size, kind = table.T
    is_kind = (kind >= 0) & (kind < len(_TENSOR_KINDS))
    if not is_kind.all() or np.abs(size).sum(dtype=np.float64) > _MOST_IN_USE:
        raise TraceFormatError(
            "A memory timeline with a kind or size that no tensor has. Export the timeline again."
        )
    changes = np.zeros((len(table), len(_TENSOR_KINDS)), np.int64)
    changes[np.arange(len(table)), kind] = size
    recorded = times[times >= 0]
    times = np.maximum(times, recorded.min() if recorded.size else 0)
    last = np.flatnonzero(np.append(np.diff(times) != 0, True))
    return times[last], np.cumsum(changes, axis=0)[last], np.cumsum(np.sign(changes), axis=0)[last]
