"""Device work to the op that asked for it, and kernels to their table: each one, by op and launch shape.

Where to look for the op depends on who recorded the trace, in this order:

1. the program that XLA saved, for an HLO instruction (``hlo_ops``);
2. ``tf_op``: the op of a TensorFlow kernel (newer traces);
3. ``name``: the op a fusion's root came from, else ``hlo_op``, where that program is not saved;
4. ``level 0`` or ``annotation``: the op around the launch, ``name:Type#more`` (TensorFlow 2.2 to 2.4);
5. the innermost op around its launch, where the recorder marks ops as such (PyTorch);
6. the work's own name (TF1), which may be an op's.

The official tool reads only the second, and finds no op in a trace that has only the fourth.

A kernel is what a stream ran that is neither a copy nor a memset. Its launch shape is in the stat
``kernel_details``, in three dialects: CUPTI's (``regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1
block:32,1,1 occ_pct:50``), the one of TensorFlow 2.2 to 2.4 (``regs:16 shm:0 grid:... block:...``), and
ROCm's (``grid:... block:... private_mem:0 group_mem:8192 occ_pct:0``, where 0 means not known). PyTorch has a
stat for each part; its shared memory is the sum of both kinds, its occupancy what the grid fills of a device.

Whether a kernel used tensor cores (AMD: matrix cores) is told by its name, never by its op; whether its op
could have, by the op's or by the program that XLA saved. The names of products that XLA has Triton write tell
nothing: of 16 or 8 bits they run in tensor cores, of 32 it is not known. The official tool's list ends with
Ampere; ours goes on to Hopper, Blackwell and AMD.

Source: openxla/xla xla/tsl/profiler/utils/xplane_schema.cc and cupti_collector.cc (5a3e9fa3); openxla/xprof
xprof/utils/kernel_stats_utils.cc (a27d00aa); pytorch/kineto libkineto/src/CuptiActivity.cpp; CUTLASS and
cuBLAS kernel names.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import (
    Bools,
    Floats,
    Int64s,
    RowColumns,
    fraction_of,
    look_up,
    number_values,
    sum_by,
)
from profnb.core.table import Table, columns_in
from profnb.steps.nesting import find_parents, nearest_of
from profnb.steps.spine import Spine
from profnb.steps.streams import by_device_clock, copy_directions, find_launches, raw_device_lines
from profnb.subjects.xla.hlo_ops import NO_HLO, HloOps, width_of_hlo
from profnb.trace.model import Trace
from profnb.trace.names import TF_OP, parse_op

_XLA_MODULE = "XlaModule"
_HLO_SOURCES = ("hlo_op", "name")  # the later one wins
_ANNOTATIONS = ("annotation", "level 0")
_KERNEL_DETAILS = "kernel_details"
_KINETO_NUMBERS = "registers per thread", "shared memory", "est. achieved occupancy %"
_KINETO_LISTS = "grid", "block"
# Kernels that XLA has Triton write: their names tell nothing, the width of their numbers does.
_TRITON = ("gemm_fusion", "triton_gemm")
_NARROW = ("8-bit", "16-bit")
_FIRST_WITH_TENSOR_CORES = 7  # the compute capability's first number
# Parts of kernel names. The first line is the official list, whose xmma kernels are all meant here; then
# Ampere's CUTLASS, Hopper (wgmma, cuBLAS' nvjet), Blackwell (tcgen05, umma), flash attention, and AMD
# (Tensile's MI instructions, mfma, wmma).
_TENSOR_CORE_PARTS = (
    "16816", "c1688", "conv1x1", "conv2d_c1_k1", "dgrad_1x1_stride_2x2", "direct_group",
    "first_layer_wgrad_kernel", "h1688", "h884", "hmma", "i16832", "i8816", "s884", "s1688", "xmma_",
    "tensorop", "gmma", "nvjet_", "tcgen05", "_umma", "mma_sync",
    "flash_fwd_kernel", "flash_fwd_splitkv_kernel", "flash_bwd_dq_dk_dv", "mfma", "wmma",
)  # fmt: skip
# What multiplies on the ordinary cores although another part of its name is listed: xmma has both kinds.
_ORDINARY_PARTS = ("_ffma_", "_simt_")
# Kernels that multiply in 32 bits whatever their op is called: ``sgemm``, and those of the ordinary cores.
_PRODUCT_PARTS = (*_ORDINARY_PARTS, "sgemm", "implicit_gemm", "scudnn_")
_TENSILE = re.compile(r"Cijk_.*_MI\d+x\d+x\d+")
_ELIGIBLE_ENDS = (
    "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput", "/MatMul",
    "FusedMatMul", "/CudnnRNN", "XlaDot", "XlaDotV2",
    "/dot_general", "/conv_general_dilated",
)  # fmt: skip
# PyTorch's products, convolutions and attention; ``aten::linear`` and others call one of them.
_ELIGIBLE_ATEN = re.compile(
    r"/aten::(_?(add|bad?d?)?b?mm(_activation|_dtype)?|_scaled_mm|\w*convolution\w*|_cudnn_rnn\w*|miopen_rnn\w*"
    r"|_\w*(flash|efficient|cudnn)_attention_\w+)"
)
_ELIGIBLE_PARTS = ("BatchMatMul", "CudnnRNNV", "CudnnRNNForward", "CudnnRNNBackprop")

_OpKey = tuple[str, str]


def name_device_work(
    trace: Trace, events: Int64s, hlo: HloOps = NO_HLO
) -> tuple[list[_OpKey], Int64s]:
    """Find the op of N device events, which ascend.

    Returns:
        The distinct (op name, op type), the type "" where the trace does not say; and the row of each event's
        op, shape (N,).
    """
    codes: dict[_OpKey, int] = {}
    code = np.full(events.size, -1)
    for keys, row in _sources_of_ops(trace, events, hlo):
        numbers = [-1 if key is None else codes.setdefault(key, len(codes)) for key in keys]
        event_codes = np.array([*numbers, -1], np.int64)[row]
        code = np.where(event_codes >= 0, event_codes, code)
    return list(codes), code


def _sources_of_ops(
    trace: Trace, events: Int64s, hlo: HloOps
) -> Iterator[tuple[list[_OpKey | None], Int64s]]:
    """Keys of ops by each source, and the key's row for each event, or -1; the last source to tell wins."""
    names, row = np.unique(trace.events.name[events], return_inverse=True)
    texts = [trace.names[name] for name in names.tolist()]
    yield [parse_op(text) or (text, "") for text in texts], row
    if trace.is_op_name is not None:  # ops around launches
        launches, launched = find_launches(trace)
        call = look_up(launched, launches, events)
        parent = find_parents(trace.events.end_ps, trace.lines.offsets)
        op = nearest_of(parent, trace.by_name(trace.is_op_name) & trace.is_host_event)
        around = np.where(call >= 0, op[call], -1)
        name_around = np.where(around >= 0, trace.events.name[around], -1)
        names, row = np.unique(name_around, return_inverse=True)
        yield [(trace.names[name], "") if name >= 0 else None for name in names.tolist()], row
    for stat in (*_ANNOTATIONS, *_HLO_SOURCES, TF_OP):
        column = trace.stats.texts(stat)
        row = column.of(events).astype(np.int64)
        yield [_key_of(text, stat) for text in column.texts], row
    yield [op.key if op.name else None for op in hlo.ops], hlo.codes_of(events)


def _key_of(text: str, stat: str) -> tuple[str, str] | None:
    """The op that a stat's text tells, or None."""
    if stat == TF_OP:
        return None if not text or text.startswith(_XLA_MODULE) else parse_op(text) or (text, "")
    if stat in _ANNOTATIONS:
        text = text.partition("#")[0]
        return (parse_op(text) or (text, "")) if text else None
    scope, _, primitive = text.rpartition("/")
    return (text, primitive if scope else "") if text else None


def tells_tensor_cores(spine: Spine, plane: int) -> bool:
    """Tell whether the names of a device's kernels say which ran in tensor cores.

    A TPU and a GPU before compute capability 7 have none, and what sessions of TensorFlow 1 record of a
    kernel is its op's name.
    """
    device = spine.trace.planes[plane]
    capability = device.stats.get("compute_cap_major", _FIRST_WITH_TENSOR_CORES)
    has_none = isinstance(capability, int) and 0 < capability < _FIRST_WITH_TENSOR_CORES
    return "GPU" in device.name.upper() and not (spine.program.is_graph or has_none)


def uses_tensor_core(kernel_name: str) -> bool:
    """Tell whether a kernel of this name multiplies matrices in tensor or matrix cores."""
    lowered = kernel_name.lower()
    if any(part in lowered for part in _ORDINARY_PARTS):
        return False
    return any(part in lowered for part in _TENSOR_CORE_PARTS) or bool(_TENSILE.search(kernel_name))


def is_tensor_core_eligible(op_name: str) -> bool:
    """Tell whether an op of this name is a matrix product or convolution."""
    return (
        op_name.endswith(_ELIGIBLE_ENDS)
        or any(part in op_name for part in _ELIGIBLE_PARTS)
        or _ELIGIBLE_ATEN.fullmatch(op_name) is not None
    )


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The launch of a kernel; None or "" where the trace does not say.

    Its fields are columns of ``KERNELS``. PyTorch's occupancy is lower where the grid is small.
    """

    registers_per_thread: int | None = None
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
        texts = (pairs.get(name, "") for name in names)
        return next((int(text) for text in texts if text.isdecimal() and len(text) < 12), None)

    occupancy = pairs.get("occ_pct", "")
    has_occupancy = re.fullmatch(r"\d{1,3}(\.\d{1,6})?", occupancy) and float(occupancy) > 0
    static, dynamic = number("static_shared", "shm", "group_mem"), number("dynamic_shared")
    return LaunchShape(
        registers_per_thread=number("regs"),
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
    grids, blocks = ([*column.texts, ""] for column in lists)
    shapes = [
        LaunchShape(
            registers_per_thread=int(registers) if registers >= 0 else None,
            shared_bytes=int(shared) if shared >= 0 else None,
            grid=_sizes(re.sub(r"[][\s]", "", grids[int(grid)])),
            block=_sizes(re.sub(r"[][\s]", "", blocks[int(block)])),
            occupancy_percent=occupancy if 0 < occupancy <= 100 else None,
        )
        for registers, shared, occupancy, grid, block in distinct.T.tolist()
    ]
    return shapes, row.reshape(-1)


def _sizes(text: str) -> str:
    return text if re.fullmatch(r"\d{1,10}(,\d{1,10}){0,2}", text) else ""


@dataclass(frozen=True, slots=True)
class KernelTable(RowColumns):
    """One row per kernel, op and launch shape, most time first.

    Its columns are those of ``KERNELS``, each of shape (N,), times in picoseconds.
    """

    kernel_name: tuple[str, ...]
    op_name: tuple[str, ...]
    op_type: tuple[str, ...]
    shape: tuple[LaunchShape, ...]  # how it was launched
    occurrences: Int64s
    total_ps: Int64s
    min_ps: Int64s
    max_ps: Int64s
    uses_tensor_core: Bools  # by the kernel's name, shape (N,)
    # by the op's name or the kernel's, or because it did use them, shape (N,)
    is_tensor_core_eligible: Bools

    @property
    def mean_ps(self) -> Floats:
        """Mean duration of a run, shape (N,)."""
        return self.total_ps / np.maximum(self.occurrences, 1)

    @property
    def fraction(self) -> Floats:
        """Each row's share of all kernel time, shape (N,); NaN without any."""
        return fraction_of(self.total_ps)


def find_kernels(trace: Trace) -> Int64s:
    """Find the events that are kernels, ascending."""
    on_stream = trace.lines.events_of(raw_device_lines(trace))
    return on_stream[copy_directions(trace, on_stream) < 0]


def tabulate_kernels(trace: Trace, hlo: HloOps = NO_HLO) -> KernelTable:
    """Sum up the kernels of a trace."""
    kernels = find_kernels(trace)
    ops, op_rows = name_device_work(trace, kernels, hlo)
    shapes, shape_of_kernel = _launch_shapes(trace, kernels)
    # Each plane has rows of its own: one kernel on eight devices, eight rows.
    distinct, row_of_text = number_values(trace.names.texts)
    names = row_of_text[trace.events.name[kernels]]
    packed = (names * len(ops) + op_rows) * (len(shapes) + 1) + shape_of_kernel + 1
    _, first, row = np.unique(packed, return_index=True, return_inverse=True)
    begin, end = by_device_clock(trace, kernels)
    total = sum_by(row, end - begin, first.size)
    longest, shortest = np.zeros_like(total), np.full_like(total, np.iinfo(np.int64).max)
    np.maximum.at(longest, row, end - begin)
    np.minimum.at(shortest, row, end - begin)
    order = np.lexsort((first, -total))
    first = first[order]  # of each row of the table
    kernel_names = tuple(distinct[name] for name in names[first].tolist())
    op_keys = [ops[at] for at in op_rows[first].tolist()]
    used, eligible = np.zeros((2, first.size), np.bool_)
    of_op = [*(width_of_hlo(hlo, op) for op in hlo.ops), ("", False)]
    codes = hlo.codes_of(kernels[first]).tolist()
    for at, (name, (op, _), code) in enumerate(zip(kernel_names, op_keys, codes, strict=True)):
        width, is_product = of_op[code]
        if name.startswith(_TRITON):
            eligible[at] = used[at] = width in _NARROW
        else:
            is_product |= any(part in name.lower() for part in _PRODUCT_PARTS)
            used[at] = uses_tensor_core(name)
            eligible[at] = used[at] or is_product or is_tensor_core_eligible(f"/{op}")
    shapes.append(LaunchShape())
    return KernelTable(
        kernel_name=kernel_names,
        op_name=tuple(name for name, _ in op_keys),
        op_type=tuple(op_type for _, op_type in op_keys),
        shape=tuple(shapes[at] for at in shape_of_kernel[first].tolist()),
        occurrences=np.bincount(row, minlength=first.size)[order],
        total_ps=total[order],
        min_ps=shortest[order],
        max_ps=longest[order],
        uses_tensor_core=used,
        is_tensor_core_eligible=eligible,
    )


KERNELS = Table[KernelTable](
    "kernels",
    "One row per kernel, op and launch shape, most time first. No row without a device.",
    columns_in("""
        kernel_name [kernel]: its name, as the compiler mangled it or not
        op_name: the framework's op that asked for it
        op_type: the kind of that op
        occurrences [runs]: how often it ran
        total_us [total]: time of all its runs
        mean_us [mean]: mean time of a run
        min_us: shortest run
        max_us: longest run
        fraction [share]: share of all kernel time
        registers_per_thread = shape.registers_per_thread >= 0: registers of each thread, NaN where unknown
        static_shared_bytes = shape.static_shared_bytes >= 0: shared memory that the kernel declares
        dynamic_shared_bytes = shape.dynamic_shared_bytes >= 0: shared memory that the launch asks for
        shared_bytes = shape.shared_bytes >= 0: shared memory of a block, both together
        grid = shape.grid: blocks of the launch, "x,y,z"; "" where unknown
        block = shape.block: threads of a block, "x,y,z"; "" where unknown
        occupancy_percent = shape.occupancy_percent >= 0: theoretical occupancy in percent; PyTorch's is
            what the grid fills, at most that
        uses_tensor_core: whether it ran in tensor cores
        is_tensor_core_eligible: whether such a product could run in tensor cores
        """),
)
