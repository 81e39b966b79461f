"""Device work to the kernel table: each kernel, for each op and launch shape it was run with.

A kernel is what a stream ran that is neither a copy nor a memset. Its launch shape is in the stat
``kernel_details``, in three dialects: CUPTI's (``regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1
block:32,1,1 occ_pct:50``), the one of TensorFlow 2.2 to 2.4 (``regs:16 shm:0 grid:... block:...``), and
ROCm's (``grid:... block:... private_mem:0 group_mem:8192 occ_pct:0``, where 0 means not known).

Whether a kernel used tensor cores (AMD: matrix cores) is told by its name; whether its op could have
is told by the op's. The official tool's name list ends with Ampere; ours goes on to Hopper, Blackwell
and AMD, and a kernel counts only by its name, never by its op.

Source: openxla/xprof xprof/utils/kernel_stats_utils.cc (a27d00aa); CUTLASS and cuBLAS kernel names.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table, sequence_of
from profnb.steps.streams import by_device_clock, directions_of_copies, raw_device_lines
from profnb.subjects.device.device_ops import name_device_work
from profnb.subjects.xla.hlo_ops import HloOps
from profnb.trace.model import Trace

__all__ = [
    "KERNELS",
    "KernelTable",
    "LaunchShape",
    "find_kernels",
    "is_tensor_core_eligible",
    "parse_launch_shape",
    "tabulate_kernels",
    "uses_tensor_core",
]

_KERNEL_DETAILS = "kernel_details"

# Parts of kernel names. The first line is the official list; then Ampere's CUTLASS, Hopper (wgmma,
# cuBLAS' nvjet), Blackwell (tcgen05, umma), and AMD (Tensile's MI instructions, mfma, wmma).
_TENSOR_CORE_PARTS = (
    "16816", "c1688", "conv1x1", "conv2d_c1_k1", "dgrad_1x1_stride_2x2", "direct_group",
    "first_layer_wgrad_kernel", "h1688", "h884", "hmma", "i16832", "i8816", "s884", "s1688",
    "xmma_gemm", "xmma_implicit_gemm", "xmma_sparse_conv", "xmma_sparse_gemm",
    "xmma_warp_specialized_implicit_gemm",
    "tensorop", "wgmma", "gmma", "nvjet_", "sm90_xmma", "tcgen05", "_umma", "sm100_xmma", "mma_sync",
    "mfma", "wmma",
)  # fmt: skip
_TENSILE = re.compile(r"Cijk_.*_MI\d+x\d+x\d+")
_ELIGIBLE_ENDS = (
    "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput", "/MatMul",
    "FusedMatMul", "/CudnnRNN", "XlaDot", "XlaDotV2",
    "/dot_general", "/conv_general_dilated",
)  # fmt: skip
_ELIGIBLE_PARTS = ("BatchMatMul", "CudnnRNNV", "CudnnRNNForward", "CudnnRNNBackprop")


def uses_tensor_core(kernel_name: str) -> bool:
    """Whether a kernel of this name multiplies matrices in tensor or matrix cores."""
    lowered = kernel_name.lower()
    return any(part in lowered for part in _TENSOR_CORE_PARTS) or bool(_TENSILE.search(kernel_name))


def is_tensor_core_eligible(op_name: str) -> bool:
    """Whether an op of this name is a matrix product or convolution."""
    return op_name.endswith(_ELIGIBLE_ENDS) or any(part in op_name for part in _ELIGIBLE_PARTS)


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """How a kernel was launched; None where the trace does not say.

    Attributes:
        registers: Per thread.
        static_shared_bytes: Shared memory the kernel declares, per block.
        dynamic_shared_bytes: Shared memory asked for at launch, per block.
        grid: Blocks, as ``x,y,z``.
        block: Threads of a block, as ``x,y,z``.
        occupancy_percent: Theoretical occupancy.
    """

    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    grid: str = ""
    block: str = ""
    occupancy_percent: float | None = None


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
    return LaunchShape(
        registers=number("regs"),
        static_shared_bytes=number("static_shared", "shm", "group_mem"),
        dynamic_shared_bytes=number("dynamic_shared"),
        grid=_sizes(pairs.get("grid", "")),
        block=_sizes(pairs.get("block", "")),
        occupancy_percent=float(occupancy) if has_occupancy else None,
    )


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
    details = trace.stats.texts(_KERNEL_DETAILS)
    texts: dict[
        str, int
    ] = {}  # each plane has rows of its own: one kernel on eight devices, eight rows
    row_of_text = np.array([texts.setdefault(t, len(texts)) for t in trace.names.texts], np.int64)
    names = row_of_text[trace.events.name[kernels]]
    sizes = (len(texts), len(ops.keys), len(details.texts) + 1)
    packed = (names * sizes[1] + ops.code) * sizes[2] + details.of(kernels) + 1
    distinct_rows, first, row = np.unique(packed, return_index=True, return_inverse=True)
    rest, shape_row = np.divmod(distinct_rows, sizes[2])
    keys = np.stack([*np.divmod(rest, max(sizes[1], 1)), shape_row - 1])
    begin, end = by_device_clock(trace, kernels)
    duration = end - begin
    total, longest = (np.zeros(keys.shape[1], np.int64) for _ in range(2))
    shortest = np.full(keys.shape[1], np.iinfo(np.int64).max)
    np.add.at(total, row, duration)
    np.maximum.at(longest, row, duration)
    np.minimum.at(shortest, row, duration)
    order = np.lexsort((first, -total))
    shapes = [parse_launch_shape(text) for text in details.texts]
    distinct = list(texts)
    kernel_names = tuple(distinct[keys[0, at]] for at in order)
    op_keys = [ops.keys[keys[1, at]] for at in order]
    used = np.array([uses_tensor_core(name) for name in kernel_names], np.bool_)
    eligible = [is_tensor_core_eligible(f"/{name}") for name, _ in op_keys]
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
        is_tensor_core_eligible=np.array(eligible, np.bool_) | used,
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
            "occupancy_percent", _of_shape("occupancy_percent"), "theoretical occupancy in percent"
        ),
        Column("uses_tensor_core", lambda t: t.uses_tensor_core, "whether it ran in tensor cores"),
        Column(
            "is_tensor_core_eligible",
            lambda t: t.is_tensor_core_eligible,
            "whether its op could run in tensor cores",
        ),
    ),
)
