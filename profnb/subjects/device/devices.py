"""Device work to one row per device: how busy each was, with what, its collectives; copies; unused GPUs.

Times are by the wall clock: work that overlaps on several streams counts once. The window is that of the
steps, as for the idle causes.

A GPU worked if the host launched anything for it, if an allocator of its memory held anything, or if it ran
anything itself. Where none of that was recorded and ops computed on the host all the time, the program trains
beside it. That is no fault of the profiler's: CUPTI is to blame only where a GPU worked and nothing of it was
recorded.

Sizes of copies are in the stat ``memcpy_details``: ``kind_src:pageable kind_dst:device size:4096 dest:0
async:1``, in traces up to TensorFlow 2.4 without the kinds. A copy from pageable host memory goes through a
pinned buffer of the driver's, so it is slower and the host waits for it. The official tool looks for
``num_bytes:`` there and shows 0 bytes. PyTorch has the size in ``bytes`` and the kinds in the name, ``Memcpy
HtoD (Pageable -> Device)``. A TPU's copies are XLA's instructions; what is recorded on the core is
starting them and waiting for them (``copy-done``).

Source: openxla/xla cupti_collector.cc CreateXEvent (5a3e9fa3).
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from profnb.core.columns import Floats, Int64s, RowColumns, number_values, ratio, sum_by
from profnb.core.table import Column, Table, columns_in
from profnb.core.units import MISSING, PS_PER_S, bytes_text
from profnb.steps import streams
from profnb.steps.activities import CATEGORIES
from profnb.steps.breakdown import column_of
from profnb.steps.spine import Spine
from profnb.steps.windows import Steps
from profnb.subjects.memory.allocators import Allocator
from profnb.trace.model import Trace

_STARTS_WORK = re.compile(r"(cu|cuda|hip)\w*(Launch|Mem(cpy|set))")
_MOSTLY_WORK = 0.5


@dataclass(frozen=True, slots=True)
class DeviceTable(RowColumns):
    """D devices that ran something, in the order of the trace.

    Its columns are those of ``DEVICES``, each of shape (D,), times in picoseconds.
    """

    device: tuple[str, ...]
    busy_ps: Int64s
    compute_ps: Int64s
    copy_ps: Int64s
    collective_ps: Int64s
    hidden_collective_ps: Int64s  # the part of it during which compute ran as well, shape (D,)
    window_ps: int  # from the first step's begin to the last one's end

    @property
    def utilization(self) -> Floats:
        """Busy share of the window, shape (D,)."""
        return self.busy_ps / max(self.window_ps, 1)

    @property
    def hidden_fraction(self) -> Floats:
        """Share of the collectives' time that compute hides, shape (D,); NaN without any."""
        return ratio(self.hidden_collective_ps, self.collective_ps)

    @property
    def imbalance(self) -> float:
        """The busiest device's busy time over the mean one's, less 1: 0 where all are alike."""
        mean = self.busy_ps.mean() if len(self) else 0
        return float(self.busy_ps.max() / mean - 1) if mean else 0.0


def window_of_steps(steps: Steps) -> tuple[int, int]:
    """Give the first step's begin and the last one's end; (0, 0) without steps."""
    return (int(steps.begin_ps[0]), int(steps.end_ps[-1])) if len(steps) else (0, 0)


def tabulate_devices(trace: Trace, steps: Steps) -> DeviceTable:
    """Sum up each device's time inside the steps' window."""
    work = trace.lines.events_of(streams.raw_device_lines(trace) & bool(len(steps)))
    window = window_of_steps(steps)
    begin = np.clip(trace.events.begin_ps[work], *window)
    end = np.clip(trace.events.end_ps[work], *window)
    plane = trace.lines.plane[trace.lines.of_event[work]]
    kind = streams.kinds_of_work(trace, work)
    planes = np.unique(plane).tolist()
    kinds = (streams.COMPUTE, streams.COPY, streams.COLLECTIVE)
    compute, copy, collective = (kind == wanted for wanted in kinds)
    parts = np.stack([kind >= 0, compute, copy, collective, compute | collective])
    covered = [
        [streams.covered_ps(begin[part], end[part]) for part in parts & (plane == number)]
        for number in planes
    ]
    sums = np.array(covered, np.int64).reshape(-1, len(parts))
    busy, compute_ps, copy_ps, collective_ps, either_ps = sums.T.copy()
    return DeviceTable(
        tuple(trace.planes[number].name for number in planes),
        busy, compute_ps, copy_ps, collective_ps, compute_ps + collective_ps - either_ps,
        window[1] - window[0],
    )  # fmt: skip


DEVICES = Table[DeviceTable](
    "devices",
    "One row per active device, inside the steps' window, by the wall clock.",
    columns_in("""
        device: its name
        busy_us: time in which it ran anything; what overlaps on several streams counts once
        compute_us: ... computed
        copy_us [copies]: ... copied
        collective_us [collectives]: ... exchanged data with other devices
        hidden_collective_fraction [of it hidden] = hidden_fraction: share of the exchange during which it
            computed as well, NaN without any
        utilization_fraction [busy] = utilization: busy time over the window
        """),
)


def _of_devices(category: str, spine: Spine) -> Int64s:
    """A category's time on all devices, each with a row per step."""
    parts = [breakdown.of(category) for breakdown in spine.device_breakdowns.values()]
    return np.concatenate([np.empty(0, np.int64), *parts])


DEVICE_STEPS = Table[Spine](
    "device_steps",
    "One row per device and step; no row without a device.",
    (
        *columns_in("""
            device: its name
            step_num: the step's number
            duration_ms: its duration
            """),
        *(
            Column(column_of(name), partial(_of_devices, name), f"time of it that is {name}")
            for name in CATEGORIES
        ),
    ),
    "A row counts only the device's own work; ``steps`` shows the busiest device. The categories of a row "
    "sum to the duration.",
    values={
        "device": lambda t: [d for d in t.device_breakdowns for _ in range(len(t.steps))],
        "step_num": lambda t: np.tile(t.steps.step_num, len(t.device_breakdowns)),
        "duration_ms": lambda t: np.tile(t.steps.duration_ps, len(t.device_breakdowns)),
    },
)


def gpu_worked(trace: Trace, allocators: Sequence[Allocator]) -> bool:
    """Tell whether anything proves that a GPU worked: a launch, memory held on it, or work of its own.

    A call of its runtime that starts nothing proves nothing: profilers themselves wait for the device.
    """
    counts = np.diff(trace.lines.offsets)
    return bool(
        trace.select_names(lambda name: _STARTS_WORK.match(name) is not None).any()
        or any(a.is_device and (a.in_use > 0).any() for a in allocators)
        or any(p.is_device and counts[p.lines.start : p.lines.stop].any() for p in trace.planes)
    )


def find_unused_gpus(
    spine: Spine, find_allocators: Callable[[], Sequence[Allocator]]
) -> tuple[str, ...]:
    """Find the GPUs that are there and that the steps, which compute on the CPU, do not use.

    Allocators are looked for only where there is a GPU.

    Returns:
        The names of the devices; none where one of them worked, or where the steps compute little.
    """
    trace = spine.trace
    in_trace = [plane.name for plane in trace.planes if plane.is_device and "GPU" in plane.name]
    present = tuple(in_trace or [name for name in spine.recording.devices if "GPU" in name])
    if not present or spine.steps.is_window or gpu_worked(trace, find_allocators()):
        return ()
    shares = {share.category: share.fraction for share in spine.summary.shares}
    return present if shares.get("host compute", 0.0) >= _MOSTLY_WORK else ()


def is_mixed_precision(spine: Spine) -> bool:
    """Tell whether the program computes in 16 bits, as far as its policy or the names of its ops tell."""
    policy = spine.recording.environment.get("Precision policy", "")
    scales = spine.trace.select_names(lambda name: "LossScale" in name or "loss_scale" in name)
    return policy.startswith("mixed_") or bool(scales.any())


_KINETO_KINDS = re.compile(r"Mem\w+ (?:\w+ )?\((?:(\w+) -> )?(\w+)\)")


@dataclass(frozen=True, slots=True)
class CopyTable(RowColumns):
    """One row per direction and pair of memory kinds, most time first.

    Its columns are those of ``COPIES``, each of shape (N,), times in picoseconds.
    """

    direction: tuple[str, ...]
    source_kind: tuple[str, ...]
    destination_kind: tuple[str, ...]
    occurrences: Int64s
    total_ps: Int64s
    sized: Int64s  # number of those that tell their size, shape (N,)
    bytes: Int64s  # bytes moved by those that tell, shape (N,)
    sized_ps: Int64s  # time of those that tell, shape (N,)

    @property
    def bandwidth(self) -> Floats:
        """Bytes per second of the copies whose size is known, shape (N,); NaN where none is."""
        return ratio(self.bytes, self.sized_ps / PS_PER_S)

    def bytes_by_source(self, direction: str) -> dict[str, int]:
        """Bytes that were copied in a direction, by the kind of memory that they came from."""
        by_kind: Counter[str] = Counter()
        for row, kind in enumerate(self.source_kind):
            if self.direction[row] == direction:
                by_kind[kind] += int(self.bytes[row])
        return by_kind


def _parse_details(text: str) -> tuple[str, str, int]:
    """(source kind, destination kind, bytes or -1); ROCm writes a size of 0 where it does not know."""
    pairs = dict(part.partition(":")[::2] for part in text.split())
    size = pairs.get("size", pairs.get("num_bytes", ""))
    has_size = size.isdecimal() and len(size) < 17 and int(size) > 0
    return pairs.get("kind_src", ""), pairs.get("kind_dst", ""), int(size) if has_size else -1


def tabulate_copies(trace: Trace) -> CopyTable:
    """Sum up the copies and memsets of a trace's devices."""
    work = trace.lines.events_of(streams.raw_device_lines(trace))
    directions = streams.copy_directions(trace, work)
    copies, directions = work[directions >= 0], directions[directions >= 0]
    names, kind = np.unique(trace.events.name[copies], return_inverse=True)
    matches = [_KINETO_KINDS.match(trace.names[name]) for name in names.tolist()]
    kinds = [((m[1] or "").lower(), m[2].lower()) if m else ("", "") for m in matches]
    moved = trace.stats.integers("bytes").of(copies)  # PyTorch's
    for stat in ("memcpy_details", "memset_details"):
        details = trace.stats.texts(stat)
        row = details.of(copies)
        parsed = [_parse_details(text) for text in details.texts]
        size = np.array([*(row[2] for row in parsed), -1], np.int64)
        moved = np.where(row >= 0, size[row], moved)
        kind = np.where(row >= 0, row + len(kinds), kind)
        kinds += [row[:2] for row in parsed]
    keys, codes = number_values(
        (streams.DIRECTIONS[direction], *kinds[at])
        for direction, at in zip(directions.tolist(), kind.tolist(), strict=True)
    )
    begin, end = streams.by_device_clock(trace, copies)
    duration, is_sized = end - begin, moved >= 0
    columns = (1, duration, is_sized, moved * is_sized, duration * is_sized)
    sums = np.stack([sum_by(codes, column, len(keys)) for column in columns])
    order = np.argsort(-sums[1], kind="stable")
    direction, source, destination = (tuple(keys[row][at] for row in order) for at in range(3))
    return CopyTable(direction, source, destination, *sums[:, order])


def are_of_program(trace: Trace) -> bool:
    """Tell whether XLA's own instructions are most of the time of copies from the host."""
    copies = trace.lines.events_of(streams.raw_device_lines(trace))
    to_device = streams.copy_directions(trace, copies) == streams.DIRECTIONS.index("host to device")
    of_xla = trace.are_named(copies, lambda name: name.lstrip("%").startswith("copy-"))
    spent = trace.events.duration_ps[copies]
    return bool(2 * spent[to_device & of_xla].sum() > spent[to_device].sum())


COPIES = Table[CopyTable](
    "copies",
    "One row per direction and kinds of memory of the devices' copies, most time first. No row without a "
    "device.",
    columns_in("""
        direction: "host to device", "device to host", ...; "set" for memset
        source_kind: "pageable", "pinned", "device", or "" where the trace does not say
        destination_kind: likewise
        occurrences [times]: how many copies
        total_us: time of all of them
        bytes: bytes moved by those that tell their size, NaN if none does
        gigabytes_per_second [bandwidth] = bandwidth: their bytes over their time
        """),
    values={"bytes": lambda t: np.where(t.sized > 0, t.bytes, np.nan)},
    texts={
        "gigabytes_per_second": lambda rate: MISSING if np.isnan(rate) else f"{bytes_text(rate)}/s",
    },
)
