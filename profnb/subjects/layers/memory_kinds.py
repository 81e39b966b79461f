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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from profnb.capture.memory.memory_errors import device_of
from profnb.capture.memory.memory_records import (
    ACTIVATIONS,
    CPU,
    DATA,
    GRADIENTS,
    OPTIMIZER_STATE,
    WEIGHTS,
    HeldMemory,
    MemoryRecords,
    MemoryShortage,
)
from profnb.core.table import Table, field_column
from profnb.core.units import MISSING, count_text
from profnb.subjects.layers.layer_rows import INPUT, LAYER_PARTS, OUTSIDE, LayerRows
from profnb.subjects.memory.allocators import Allocator
from profnb.subjects.memory.peak import UNATTRIBUTED, PeakRow

WORKSPACE, UNUSED, OTHER = "workspace", "reserved, unused", "everything else"
PASSING = "activations and workspace"
GROWING = (ACTIVATIONS, WORKSPACE, PASSING)  # with the batch
AT_PEAK, AT_END, AT_FAILURE = "peak", "end", "failure"
PROCESS = "process"
# What holds what stays, in the order in which it is taken from that.
_STAYING = (WEIGHTS, OPTIMIZER_STATE, GRADIENTS, DATA, ACTIVATIONS)
_OF_PART = {"forward": ACTIVATIONS, "recomputation": ACTIVATIONS, "backward": GRADIENTS}


@dataclass(frozen=True, slots=True)
class KindRow:
    """Memory of one kind and holder.

    Attributes:
        source: The allocator; PROCESS, or the device where only its framework tells.
        moment: AT_PEAK, AT_END of the code, AT_FAILURE.
        kind: Its kind.
        holder: A layer's path, or a variable's name; "" where neither is known.
        bytes: Its size.
        blocks: How many blocks; 0 where that is not known.
        fraction: Of what the source had then.
    """

    source: str
    moment: str
    kind: str
    holder: str
    bytes: int
    blocks: int = 0
    fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class AllocatorPeak:
    """An allocator's peak.

    Attributes:
        allocator: Its name.
        bytes: What was in use.
        unused_bytes: What it had reserved besides; 0 where it reserves nothing, or nobody tells.
        parts: What came and went, by kind and layer.
    """

    allocator: str
    bytes: int
    unused_bytes: int
    parts: Sequence[KindRow]


def name_peak(allocator: Allocator, alive: Iterable[PeakRow], rows: LayerRows) -> AllocatorPeak:
    """Give what came and went at an allocator's peak its kind and layer.

    Args:
        allocator: The allocator.
        alive: What was alive then.
        rows: Where ops belong.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for block in alive:
        if block.is_persistent or block.op_name == UNATTRIBUTED:
            continue
        name, _, op_type = block.op_name.partition(":")
        place = rows.place(name, op_type)
        layer_part, layer = LAYER_PARTS[place.layer_part], rows.names[place.row]
        kind = DATA if layer == INPUT else _OF_PART.get(layer_part, WORKSPACE)
        kind = WORKSPACE if block.region == "temp" else kind
        so_far = sums.setdefault((kind, "" if layer == OUTSIDE else layer), [0, 0])
        so_far[0], so_far[1] = so_far[0] + block.bytes, so_far[1] + block.occurrences
    in_use, reserved = (
        int(allocator.in_use[allocator.peak]),
        int(allocator.reserved[allocator.peak]),
    )
    parts = [KindRow(allocator.name, AT_PEAK, *key, *both) for key, both in sums.items()]
    return AllocatorPeak(allocator.name, in_use, max(reserved - in_use, 0), parts)


def tabulate_kinds(
    records: MemoryRecords, peaks: Iterable[AllocatorPeak], resident_peak: int = -1
) -> list[KindRow]:
    """Divide what each allocator, and the process, had; where the code failed for memory, that moment first.

    Args:
        records: What lived as the code ended, and what was missing.
        peaks: The peaks of the trace's allocators.
        resident_peak: The most memory that the process was seen to have; -1 where nobody looked.
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
    for peak in peaks:
        device = device_of(peak.allocator) or CPU
        traced.add(device)
        held = [one for one in records.held if one.kind != ACTIVATIONS]
        rows += _divide(peak.allocator, AT_PEAK, peak.bytes, peak.unused_bytes, peak.parts, held)
    for pool in records.pools:
        source = PROCESS if pool.device == CPU else pool.device
        most = max(pool.peak_bytes, resident_peak) if pool.device == CPU else pool.peak_bytes
        moment, most = (AT_PEAK, most) if most >= pool.in_use_bytes else (AT_END, pool.in_use_bytes)
        if most >= 0 and (pool.device == CPU or pool.device not in traced):
            rows += _divide(source, moment, most, 0, (), records.held)
    return rows


def _divide(
    source: str, moment: str, whole: int, unused: int, parts: Sequence[KindRow],
    held: Sequence[HeldMemory],
) -> Iterator[KindRow]:  # fmt: skip
    """Take from what was in use what came and went, then what is held; the rest is one row."""
    device = CPU if source == PROCESS else device_of(source) or CPU
    left = whole - sum(part.bytes for part in parts)
    rows = list(parts)
    there = [one for one in held if one.device == device]
    for one in sorted(there, key=lambda one: _STAYING.index(one.kind)):
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
    devices = [row for row in rows if device_of(row.source) not in ("", CPU)]
    totals = Counter({row.source: 0 for row in devices})
    for row in devices:
        totals[row.source] += row.bytes
    largest = totals.most_common(1)
    return [row for row in devices if row.source == largest[0][0]]


def sums_by_kind(rows: Sequence[KindRow]) -> dict[str, int]:
    """Bytes by kind of the first source and moment, the largest first."""
    sums: dict[str, int] = {}
    for row in rows:
        if (row.source, row.moment) == (rows[0].source, rows[0].moment):
            sums[row.kind] = sums.get(row.kind, 0) + row.bytes
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


MEMORY_KINDS = Table[Sequence[KindRow]](
    "memory_kinds",
    "One row per allocator, moment, kind and holder of memory, most bytes first.",
    (
        field_column(
            "source", 'the allocator; "process" for all memory of this process', "allocator"
        ),
        field_column("moment", '"peak", "end" of the cell, or "failure" where memory ran out'),
        field_column(
            "kind",
            '"weights", "gradients", "optimizer state", "activations", "input and data", "workspace", '
            '"activations and workspace" where no event names these, "reserved, unused", or '
            '"everything else"',
        ),
        field_column(
            "holder",
            'the layer; of data the variable that leads to it; "" where neither is known',
            text=lambda holder: holder or MISSING,
        ),
        field_column("bytes", "its size", "bytes"),
        field_column(
            "blocks",
            "how many arrays or blocks; 0 where that is not known",
            text=lambda blocks: count_text(blocks) if blocks else MISSING,
        ),
        field_column("fraction", "of what the allocator or the process had", "share"),
    ),
    "The rows of one allocator and moment add up to the bytes in use, with what is reserved and unused. What "
    "stays from step to step is named by what lived as the cell ended.",
)
