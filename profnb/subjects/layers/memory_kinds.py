"""Memory by kind and holder, which add up to what the allocator, or the process, had.

What came and went in the step of the peak has the name of an op, which tells its layer and the part of the
work. What stays was mostly made before the trace: of it the capture knows what lived as the code ended.

    30 MB in use at the peak      the trace's blocks                the capture's
    activations       8 MB        net/conv/Conv2D, 8 MB
    workspace         2 MB        net/conv/Conv2D, 2 MB, "temp"
    weights           5 MB                                          weights of net/conv, 5 MB
    optimizer state  10 MB                                          10 MB
    everything else   5 MB        no name: 20 MB less 15 MB

Where no allocator's events say who came and went, that is one row: activations and workspace.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from profnb.capture.memory.memory_errors import device_of
from profnb.capture.memory.memory_records import (
    ACTIVATIONS,
    CPU,
    DATA,
    GRADIENTS,
    OPTIMIZER_STATE,
    PYTHON_OBJECTS,
    UNKNOWN_BYTES,
    WEIGHTS,
    BlockSums,
    HeldMemory,
    MemoryRecords,
    MemoryShortage,
)
from profnb.core.columns import group
from profnb.core.table import Table, columns_in
from profnb.core.units import MISSING, count_text
from profnb.subjects.layers.layer_rows import INPUT, LAYER_PARTS, OUTSIDE, LayerRows
from profnb.subjects.memory.allocators import Allocator
from profnb.subjects.memory.peak import UNATTRIBUTED, PeakRow
from profnb.trace.hlo import HloModule

WORKSPACE, UNUSED, OTHER = "workspace", "reserved, unused", "everything else"
PASSING = "activations and workspace"
GROWING = (ACTIVATIONS, WORKSPACE, PASSING)  # with the batch
AT_PEAK, AT_END, AT_FAILURE = "peak", "end", "failure"
PROCESS = "process"
# What holds what stays, in the order in which it is taken from that.
_STAYING = (WEIGHTS, OPTIMIZER_STATE, GRADIENTS, DATA, ACTIVATIONS, PYTHON_OBJECTS)
_OF_PART = {"forward": ACTIVATIONS, "recomputation": ACTIVATIONS, "backward": GRADIENTS}


@dataclass(frozen=True, slots=True)
class KindRow:
    """Memory of one kind and holder; its fields are the columns of ``MEMORY_KINDS``."""

    source: str
    moment: str
    kind: str
    holder: str
    bytes: int
    blocks: int = 0
    fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class AllocatorPeak:
    """An allocator's peak."""

    allocator: str  # its name; the device where a program of XLA's tells
    bytes: int  # in use; -1 where nobody tells
    unused_bytes: int  # reserved besides; 0 where it reserves nothing, or nobody tells
    parts: Sequence[KindRow]  # what came and went, by kind and layer


def name_peak(allocator: Allocator, alive: Iterable[PeakRow], rows: LayerRows) -> AllocatorPeak:
    """Give what came and went at an allocator's peak its kind and layer."""
    blocks = [
        (*block.op_name.partition(":")[::2], block.region, block.bytes, block.occurrences)
        for block in alive
        if not block.is_persistent and block.op_name != UNATTRIBUTED
    ]
    peak = allocator.peak
    in_use, reserved = int(allocator.in_use[peak]), int(allocator.reserved[peak])
    parts = _name_blocks(allocator.name, blocks, rows)
    if allocator.name == CPU:  # PyTorch's, which counts since its profiler began
        in_use = reserved = UNKNOWN_BYTES
    return AllocatorPeak(allocator.name, in_use, max(reserved - in_use, 0), parts)


def name_program(
    module: HloModule, op_names: Mapping[int, str], rows: LayerRows, device: str
) -> AllocatorPeak:
    """Give the temporaries of a program of XLA's, when they take most, their kind and layer.

    ``op_names`` are the framework's ops of its instructions, by row.
    """
    names = [
        (op_names.get(row) or (module.op_names[row] if row >= 0 else ""), size)
        for row, size in module.temporaries
    ]
    blocks = [(name, name.rpartition("/")[2], "", size, 1) for name, size in names]
    whole = (module.buffers or {}).get("temporary", 0)
    gaps = whole - sum(size for _, size in names)
    blocks += [("", "", "temp", gaps, 0)] if gaps > 0 else []
    return AllocatorPeak(device, UNKNOWN_BYTES, 0, _name_blocks(device, blocks, rows))


def _name_blocks(
    source: str, blocks: Iterable[tuple[str, str, str, int, int]], rows: LayerRows
) -> list[KindRow]:
    """Sum up blocks by kind and layer: of each the op's name and type, the region, bytes, how many."""
    sums = BlockSums()
    for name, op_type, region, size, count in blocks:
        place = rows.place(name, op_type)
        layer = rows.names[place.row]
        kind = _OF_PART.get(LAYER_PARTS[place.layer_part], WORKSPACE)
        if kind == WORKSPACE and "jvp(" in name and "transpose(" not in name:
            kind = ACTIVATIONS  # JAX's, outside of any layer
        kind = DATA if layer == INPUT else WORKSPACE if region == "temp" else kind
        sums.count((kind, "" if layer == OUTSIDE else layer), size, count)
    return [KindRow(source, AT_PEAK, kind, layer, *both) for (kind, layer), both in sums.items()]


def tabulate_kinds(
    records: MemoryRecords, peaks: Iterable[AllocatorPeak], resident_peak: int = -1
) -> list[KindRow]:
    """Divide what each allocator, and the process, had; where the code failed for memory, that moment first.

    ``resident_peak`` is the most memory that the process was seen to have; -1 where nobody looked.
    """
    rows: list[KindRow] = []
    shortage = records.shortage
    if shortage is not None and shortage.in_use_bytes >= 0:
        source = PROCESS if shortage.device == CPU else shortage.device
        in_use, unused = shortage.in_use_bytes, max(shortage.unused_bytes, 0)
        if shortage.device == CPU:  # some may be free again as the error arrives
            in_use = max(in_use, resident_peak)
        rows += _divide(source, AT_FAILURE, in_use, unused, (), records.held)
    traced = set()
    parts: dict[str, list[KindRow]] = {}  # of each device, as far as anybody tells
    for peak in peaks:
        device = device_of(peak.allocator) or CPU
        parts.setdefault(device, []).extend(peak.parts)
        if peak.bytes >= 0:
            traced.add(device)
            rows += _divide(
                peak.allocator, AT_PEAK, peak.bytes, peak.unused_bytes, peak.parts, records.held
            )
    for pool in records.pools:
        source = PROCESS if pool.device == CPU else pool.device
        most = max(pool.peak_bytes, resident_peak) if pool.device == CPU else pool.peak_bytes
        moment, most = (AT_PEAK, most) if most >= pool.in_use_bytes else (AT_END, pool.in_use_bytes)
        if most >= 0 and (pool.device == CPU or pool.device not in traced):
            there = parts.get(pool.device, ()) if moment == AT_PEAK else ()
            rows += _divide(source, moment, most, 0, there, records.held)
    return rows


def _divide(
    source: str, moment: str, whole: int, unused: int, parts: Sequence[KindRow],
    held: Sequence[HeldMemory]
) -> Iterator[KindRow]:  # fmt: skip
    """Take from what was in use what came and went, then what is held; the rest is one row."""
    device = CPU if source == PROCESS else device_of(source) or CPU
    there = [one for one in held if one.device == device]
    if parts:  # those that live on are of other steps
        there = [one for one in there if one.kind != ACTIVATIONS]
    there.sort(key=lambda one: _STAYING.index(one.kind))
    left, rows = whole, list[KindRow]()
    named: list[KindRow | HeldMemory] = [*parts, *there]
    for one in named:
        size = min(one.bytes, left)
        if size > 0:
            rows.append(KindRow(source, moment, one.kind, one.holder, size, one.blocks))
            left -= size
    rows.sort(key=lambda row: -row.bytes)
    rest = PASSING if not parts and device != CPU else OTHER
    rows += [KindRow(source, moment, rest, "", left)] if left > 0 else []
    rows += [KindRow(source, moment, UNUSED, "", unused)] if unused > 0 else []
    had = max(whole + unused, 1)
    yield from (replace(row, fraction=row.bytes / had) for row in rows)


def rows_of(shortage: MemoryShortage, rows: Sequence[KindRow]) -> list[KindRow]:
    """The division of the memory that ran out: as it did, else at its allocator's peak."""
    there = [row for row in rows if row.moment == AT_FAILURE]
    devices = [device for row in rows if (device := device_of(row.source)) not in ("", CPU)]
    device = shortage.device or next(iter(devices), CPU)
    there = there or [row for row in rows if (device_of(row.source) or CPU) == device]
    return [row for row in there if row.source == there[0].source]


def shown_kinds(shortage: MemoryShortage | None, rows: Sequence[KindRow]) -> list[KindRow]:
    """The division to show: of the memory that ran out, else of the device that has most."""
    if shortage is not None:
        return rows_of(shortage, rows)
    devices = group((row.source, row) for row in rows if device_of(row.source) not in ("", CPU))
    return max(devices.values(), key=lambda of_one: sum(row.bytes for row in of_one), default=[])


def sums_by_kind(rows: Sequence[KindRow]) -> dict[str, int]:
    """Bytes by kind of the first source and moment, the largest first."""
    sums: Counter[str] = Counter()
    for row in rows:
        if (row.source, row.moment) == (rows[0].source, rows[0].moment):
            sums[row.kind] += row.bytes
    return dict(sums.most_common())


MEMORY_KINDS = Table[Sequence[KindRow]](
    "memory_kinds",
    "One row per allocator, moment, kind and holder of memory, most bytes first.",
    columns_in("""
        source [allocator]: the allocator; "process" for all memory of this process
        moment: "peak", "end" of the cell, or "failure" where memory ran out
        kind: "weights", "gradients", "optimizer state", "activations", "input and data", "workspace",
            "Python objects" (--memory), "activations and workspace" where no event names these, "reserved,
            unused", or "everything else"
        holder: the layer; of data the variable that leads to it; of objects the line; "" where none is
            known
        bytes: its size
        blocks: how many arrays or blocks; 0 where that is not known
        fraction [share]: of what the allocator or the process had
        """),
    "The rows of an allocator and moment add up to the bytes in use, reserved and unused bytes included. "
    "Memory kept from step to step has the names of variables alive at the end of the cell.",
    texts={
        "holder": lambda holder: holder or MISSING,
        "blocks": lambda blocks: count_text(blocks) if blocks else MISSING,
    },
)
