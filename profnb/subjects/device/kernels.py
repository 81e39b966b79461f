"""Device work to the kernel table: each kernel, for each op and launch shape it was run with.

A kernel is what a stream ran that is neither a copy nor a memset. Its launch shape is in the stat
``kernel_details``, in three dialects: CUPTI's (``regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1
block:32,1,1 occ_pct:50``), the one of TensorFlow 2.2 to 2.4 (``regs:16 shm:0 grid:... block:...``), and
ROCm's (``grid:... block:... private_mem:0 group_mem:8192 occ_pct:0``, where 0 means not known). PyTorch has a
stat for each part; its shared memory is the sum of both kinds, its occupancy what the grid fills of a device.

Whether a kernel used tensor cores (AMD: matrix cores) is told by its name; whether its op could have, by the
op's (``peaks``) or by the program that XLA saved. The names of products that XLA has Triton write tell
nothing: of 16 or 8 bits they run in tensor cores, of 32 it is not known.

Source: openxla/xprof xprof/utils/kernel_stats_utils.cc (a27d00aa); pytorch/kineto
libkineto/src/CuptiActivity.cpp.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table, sequence_of
from profnb.steps.streams import by_device_clock, directions_of_copies, raw_device_lines
from profnb.subjects.device.device_ops import name_device_work
from profnb.subjects.device.peaks import is_tensor_core_eligible, uses_tensor_core
from profnb.subjects.xla.hlo_ops import HloOps, width_of_hlo
from profnb.trace.model import Trace

_KERNEL_DETAILS = "kernel_details"
_KINETO_NUMBERS = "registers per thread", "shared memory", "est. achieved occupancy %"
_KINETO_LISTS = "grid", "block"

# Kernels that XLA has Triton write: their names tell nothing, the width of their numbers does.
_TRITON = ("gemm_fusion", "triton_gemm")
_NARROW = ("8-bit", "16-bit")


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """How a kernel was launched; None where the trace does not say.

    Attributes:
        registers: Per thread.
        static_shared_bytes: Shared memory the kernel declares, per block.
        dynamic_shared_bytes: Shared memory asked for at launch, per block.
        grid: Blocks, as ``x,y,z``.
        block: Threads of a block, as ``x,y,z``.
        occupancy_percent: Theoretical occupancy; PyTorch's is lower where the grid is small.
        shared_bytes: Shared memory of both kinds, per block.
    """

    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    grid: str = ""
    block: str = ""
    occupancy_percent: float | None = None
    shared_bytes: int | None = None


def parse_launch_shape(details: str) -> LaunchShape:
    """Read the text of a ``kernel_details`` stat; what it does not hold or garbles is None."""
    pairs = dict(part.partition(":")[::2] for part in details.split())

    def number(*names: str) -> int | None:
        for name in names:
            text = pairs.get(name, "")
            if text.isdecimal() and len(text) < 12:
                return int(text)
        return None

    occupancy = pairs.get("occ_pct", "")
    has_occupancy = re.fullmatch(r"\d{1,3}(\.\d{1,6})?", occupancy) and float(occupancy) > 0
    static, dynamic = number("static_shared", "shm", "group_mem"), number("dynamic_shared")
    return LaunchShape(
        registers=number("regs"),
        static_shared_bytes=static,
        dynamic_shared_bytes=dynamic,
        shared_bytes=None if static is None or dynamic is None else static + dynamic,
        grid=_sizes(pairs.get("grid", "")),
        block=_sizes(pairs.get("block", "")),
        occupancy_percent=float(occupancy) if has_occupancy else None,
    )


def _launch_shapes(trace: Trace, kernels: Int64s) -> tuple[list[LaunchShape], Int64s]:
    """The distinct launch shapes, and the row of each kernel's, or -1."""
    details = trace.stats.texts(_KERNEL_DETAILS)
    if len(details):
        shapes = [parse_launch_shape(text) for text in details.texts]
        return shapes, details.of(kernels).astype(np.int64)
    numbers = [trace.stats.numbers(name).of(kernels) for name in _KINETO_NUMBERS]
    lists = [trace.stats.lists(name) for name in _KINETO_LISTS]
    parts = np.stack([*numbers, *(column.of(kernels) for column in lists)])
    distinct, row = np.unique(parts, axis=1, return_inverse=True)
    shapes = []
    for registers, shared, occupancy, *rows in distinct.T.tolist():
        sizes = [
            _sizes(re.sub(r"[][\s]", "", column.texts[int(at)])) if at >= 0 else ""
            for column, at in zip(lists, rows, strict=True)
        ]
        counts = [int(count) if count >= 0 else None for count in (registers, shared)]
        percent = occupancy if 0 < occupancy <= 100 else None
        shapes.append(LaunchShape(counts[0], None, None, sizes[0], sizes[1], percent, counts[1]))
    return shapes, row.reshape(-1)


def _sizes(text: str) -> str:
    return text if re.fullmatch(r"\d{1,10}(,\d{1,10}){0,2}", text) else ""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """One row per kernel, op and launch shape, most time first.

    Attributes:
        kernel_name: The kernels' names.
        op_name: The op it ran for; the kernel's own name where the trace names none.
        op_type: That op's type, or "".
        shape: How it was launched.
        occurrences: How often, shape (N,).
        total_ps: Sum of durations, shape (N,).
        min_ps: Shortest, shape (N,).
        max_ps: Longest, shape (N,).
        uses_tensor_core: By the kernel's name, shape (N,).
        is_tensor_core_eligible: By the op's name, or because it did use them, shape (N,).
    """

    kernel_name: tuple[str, ...]
    op_name: tuple[str, ...]
    op_type: tuple[str, ...]
    shape: tuple[LaunchShape, ...]
    occurrences: Int64s
    total_ps: Int64s
    min_ps: Int64s
    max_ps: Int64s
    uses_tensor_core: Bools
    is_tensor_core_eligible: Bools

    def __len__(self) -> int:
        return self.occurrences.size

    @property
    def mean_ps(self) -> Floats:
        """Mean duration of a run, shape (N,)."""
        return self.total_ps / np.maximum(self.occurrences, 1)

    @property
    def fraction(self) -> Floats:
        """Each row's share of all kernel time, shape (N,); NaN without any."""
        whole = int(self.total_ps.sum())
        return self.total_ps / whole if whole else np.full(len(self), np.nan)


def find_kernels(trace: Trace) -> Int64s:
    """The events that are kernels, ascending."""
    on_stream = trace.lines.events_of(raw_device_lines(trace))
    return on_stream[directions_of_copies(trace, on_stream) < 0]


def tabulate_kernels(
    trace: Trace, within: Bools | None = None, hlo: HloOps | None = None
) -> KernelTable:
    """Sum up the kernels of a trace.

    Args:
        trace: The trace.
        within: Which events count, shape (E,); all of them by default.
        hlo: Its HLO instructions, if they were looked for.
    """
    kernels = find_kernels(trace)
    if within is not None:
        kernels = kernels[within[kernels]]
    ops = name_device_work(trace, kernels, hlo)
    shapes, shape_of_kernel = _launch_shapes(trace, kernels)
    # Each plane has rows of its own: one kernel on eight devices, eight rows.
    texts: dict[str, int] = {}
    row_of_text = np.array([texts.setdefault(t, len(texts)) for t in trace.names.texts], np.int64)
    names = row_of_text[trace.events.name[kernels]]
    sizes = (len(texts), len(ops.keys), len(shapes) + 1)
    packed = (names * sizes[1] + ops.code) * sizes[2] + shape_of_kernel + 1
    distinct_rows, first, row = np.unique(packed, return_index=True, return_inverse=True)
    rest, shape_row = np.divmod(distinct_rows, sizes[2])
    keys = np.stack([*np.divmod(rest, max(sizes[1], 1)), shape_row - 1])
    begin, end = by_device_clock(trace, kernels)
    total, longest = (np.zeros(keys.shape[1], np.int64) for _ in range(2))
    shortest = np.full(keys.shape[1], np.iinfo(np.int64).max)
    np.add.at(total, row, end - begin)
    np.maximum.at(longest, row, end - begin)
    np.minimum.at(shortest, row, end - begin)
    order = np.lexsort((first, -total))
    distinct = list(texts)
    kernel_names = tuple(distinct[keys[0, at]] for at in order)
    op_keys = [ops.keys[keys[1, at]] for at in order]
    used = np.array(list(map(uses_tensor_core, kernel_names)), np.bool_)
    eligible = np.array([is_tensor_core_eligible(f"/{name}") for name, _ in op_keys], np.bool_)
    is_triton = np.array([name.startswith(_TRITON) for name in kernel_names], np.bool_)
    if hlo is not None and len(hlo):
        of_op = [width_of_hlo(hlo, op) for op in hlo.ops]
        codes = hlo.codes_of(kernels[first[order]])
        products = [of_op[code] if code >= 0 else ("", False) for code in codes.tolist()]
        eligible |= np.array([is_product for _, is_product in products], np.bool_)
        used |= is_triton & np.array([width in _NARROW for width, _ in products], np.bool_)
    eligible &= ~is_triton
    return KernelTable(
        kernel_name=kernel_names,
        op_name=tuple(name for name, _ in op_keys),
        op_type=tuple(op_type for _, op_type in op_keys),
        shape=tuple(shapes[keys[2, at]] if keys[2, at] >= 0 else LaunchShape() for at in order),
        occurrences=np.bincount(row, minlength=keys.shape[1])[order],
        total_ps=total[order],
        min_ps=shortest[order],
        max_ps=longest[order],
        uses_tensor_core=used,
        is_tensor_core_eligible=eligible | used,
    )


def _of_shape(name: str) -> "Callable[[KernelTable], Floats]":
    """A number of the launch shape; NaN where the trace does not tell."""

    def read(table: KernelTable) -> Floats:
        values = sequence_of(table.shape, name)
        return np.array([np.nan if value is None else value for value in values], np.float64)

    return read


KERNELS = Table[KernelTable](
    "kernels",
    "One row per kernel, op and launch shape, most time first; no row without a device.",
    (
        Column(
            "kernel_name",
            lambda t: t.kernel_name,
            "its name, as the compiler mangled it or not",
            "kernel",
        ),
        Column("op_name", lambda t: t.op_name, "the framework's op that asked for it"),
        Column("op_type", lambda t: t.op_type, "the kind of that op"),
        Column("occurrences", lambda t: t.occurrences, "how often it ran", "runs"),
        Column("total_us", lambda t: t.total_ps, "time of all its runs", "total"),
        Column("mean_us", lambda t: t.mean_ps, "mean time of a run", "mean"),
        Column("min_us", lambda t: t.min_ps, "shortest run"),
        Column("max_us", lambda t: t.max_ps, "longest run"),
        Column("fraction", lambda t: t.fraction, "share of all kernel time", "share"),
        Column(
            "registers_per_thread",
            _of_shape("registers"),
            "registers of each thread, NaN where unknown",
        ),
        Column(
            "static_shared_bytes",
            _of_shape("static_shared_bytes"),
            "shared memory that the kernel declares",
        ),
        Column(
            "dynamic_shared_bytes",
            _of_shape("dynamic_shared_bytes"),
            "shared memory that the launch asks for",
        ),
        Column(
            "shared_bytes", _of_shape("shared_bytes"), "shared memory of a block, both together"
        ),
        Column(
            "grid",
            lambda t: sequence_of(t.shape, "grid"),
            'blocks of the launch, "x,y,z"; "" where unknown',
        ),
        Column(
            "block",
            lambda t: sequence_of(t.shape, "block"),
            'threads of a block, "x,y,z"; "" where unknown',
        ),
        Column(
            "occupancy_percent",
            _of_shape("occupancy_percent"),
            "theoretical occupancy in percent; PyTorch's is what the grid fills, at most that",
        ),
        Column("uses_tensor_core", lambda t: t.uses_tensor_core, "whether it ran in tensor cores"),
        Column(
            "is_tensor_core_eligible",
            lambda t: t.is_tensor_core_eligible,
            "whether its op could run in tensor cores",
        ),
    ),
)
