"""Kernels to the width of the numbers they compute with, as far as names and shapes tell.

A kernel counts as 8-bit, 16-bit or TF32 if its name says so (``e4m3``, ``bf16``, ``__half``, ``tf32``, ...)
or the ``shape`` stat of its op does; as 32-bit if it names only ``float``, ``f32`` or ``sgemm``; else as
unknown. XLA's fusions name no width; there the shapes of the saved program tell. A kernel that reads 16
bits and adds up in 32 is a 16-bit one.

The official tool knows only "half" and "fp16": it counts bfloat16, TF32, 8 bits and everything unknown as
32-bit.

Source: openxla/xprof xplane_to_step_events.cc:107-136 (a27d00aa); cuBLAS, cuDNN and CUTLASS names.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, fraction_of, number_values, sum_by
from profnb.core.table import Table, columns_in
from profnb.steps.program_kind import JAX, PYTORCH, TENSORFLOW, UNKNOWN
from profnb.steps.streams import COLLECTIVE, by_device_clock, kinds_of_work
from profnb.steps.windows import Steps
from profnb.subjects.device.kernels import KernelTable, find_kernels
from profnb.subjects.xla.hlo_ops import NO_HLO, HloOps, width_of_hlo
from profnb.trace.model import Trace
from profnb.trace.names import TF_OP

WIDTHS = ("8-bit", "16-bit", "TF32", "32-bit", "64-bit", "unknown")
_UNKNOWN_WIDTH = len(WIDTHS) - 1
_PATTERNS = (
    re.compile(r"e4m3|e5m2|fp8|f8e\d|int8|_i8|i8816|i16832|\bs8\b|qmma"),
    re.compile(
        r"bf16|bfloat16|half|fp16|\bf16|_f16|f16_|h884|h1688|h16816|hmma|hgemm|_[ht][hts][hts]_"
    ),
    re.compile(r"tf32|s1688gemm_f?32|tensorop_s1688gemm"),
    re.compile(r"float|f32|fp32|sgemm|_sss_"),
    re.compile(r"double|f64|fp64|dgemm"),
)
_OP_OF_LAYER = re.compile(r"(.+?)/((?:Conv2D|MatMul)(?:_\d+)?(?:/.*)?)")
_OF_WEIGHTS = ("Conv2DBackpropFilter", "MatMul_1", "/Cast")  # whose result has the weights' shape


IN_TF32 = {
    UNKNOWN: "Allow TF32 in matrix products and convolutions.",
    TENSORFLOW: "tf.config.experimental.enable_tensor_float_32_execution(True)",
    JAX: "jax.config.update('jax_default_matmul_precision', 'tensorfloat32')",
    PYTORCH: "torch.set_float32_matmul_precision('high')",
}


def width_of(text: str) -> str:
    """Read the width that a kernel's name or an op's shape tells; one of ``WIDTHS``."""
    matches = (pattern.search(text.lower()) for pattern in _PATTERNS)
    return next((width for width, match in zip(WIDTHS, matches, strict=False) if match), "unknown")


def _width_rows(widths: Iterable[str]) -> Int64s:
    return np.array([WIDTHS.index(width) for width in widths], np.int64)


@dataclass(frozen=True, slots=True)
class Precision:
    """Time of kernels by width; rows as ``WIDTHS``."""

    occurrences: Int64s  # kernels, shape (6,)
    total_ps: Int64s  # sum of their durations, shape (6,)

    @property
    def fraction(self) -> Floats:
        """Share of all kernel time, shape (6,); NaN without any."""
        return fraction_of(self.total_ps)

    @property
    def rows(self) -> Int64s:
        """The widths that occur."""
        return np.flatnonzero(self.occurrences)


def measure_precision(trace: Trace, hlo: HloOps = NO_HLO) -> Precision:
    """Sum up the kernels of a trace by the width of their numbers; collectives compute nothing.

    The shapes of HLO instructions tell what names do not.
    """
    kernels = find_kernels(trace)
    kernels = kernels[kinds_of_work(trace, kernels) != COLLECTIVE]
    if not kernels.size:  # of which no name need be read
        return Precision(*np.zeros((2, len(WIDTHS)), np.int64))
    width = _width_rows(map(width_of, trace.names.texts))[trace.events.name[kernels]]
    shapes = trace.stats.texts("shape")
    of_shape = _width_rows([*map(width_of, shapes.texts), "unknown"])
    width = np.minimum(width, of_shape[shapes.of(kernels)])  # the narrower of the two
    of_op = _width_rows([*(width_of_hlo(hlo, op)[0] for op in hlo.ops), "unknown"])
    width = np.where(width == _UNKNOWN_WIDTH, of_op[hlo.codes_of(kernels)], width)
    begin, end = by_device_clock(trace, kernels)
    count = len(WIDTHS)
    return Precision(np.bincount(width, minlength=count), sum_by(width, end - begin, count))


def ops_without_tensor_cores(kernels: KernelTable) -> dict[str, tuple[int, int]]:
    """Find the products and convolutions that spent most of their time on the ordinary cores, by name.

    An op counts by where its time went: helper kernels beside main ones in tensor cores make none.

    Returns:
        Picoseconds and kernels of each op's.
    """
    could = np.flatnonzero(kernels.is_tensor_core_eligible)
    names, row = number_values(kernels.op_name[at] for at in could.tolist())
    total_ps, in_cores = kernels.total_ps[could], kernels.uses_tensor_core[could]
    columns = (total_ps, kernels.occurrences[could], total_ps * in_cores)
    sums = (sum_by(row, column, len(names)).tolist() for column in columns)
    rows = zip(names, *sums, strict=True)
    return {name: (spent, often) for name, spent, often, inside in rows if inside * 2 < spent}


def find_missed_dimensions(
    trace: Trace, steps: Steps, kernels: KernelTable
) -> tuple[list[tuple[str, str]], Bools]:
    """Find the layers that miss tensor cores by a dimension that is no multiple of 8, and could be.

    Returns:
        Each layer with what is odd of it, most time first; which of N kernels are its, shape (N,).
    """
    odd, missing = _odd_dimensions(trace, steps), ops_without_tensor_cores(kernels)
    layers = [layer_of(name)[0] if name in missing else "" for name in kernels.op_name]
    spent = dict.fromkeys(layer for layer in layers if layer in odd)  # kernels are in this order
    chosen = np.array([layer in spent for layer in layers], np.bool_)
    chosen &= kernels.is_tensor_core_eligible
    return [(layer, odd[layer]) for layer in spent], chosen


def _odd_dimensions(trace: Trace, steps: Steps) -> dict[str, str]:
    """Sides of a layer's weights that are no multiple of 8 and could be, by the layer's name.

    Shapes are those of the memory that TensorFlow's ops asked for. What the data has (the input of the first
    layer) and what it is told apart into (the output of the last one) cannot be rounded.
    """
    shapes, ops = trace.stats.texts("shape"), trace.stats.texts(TF_OP)
    op_of = dict(zip(ops.events.tolist(), ops.values.tolist(), strict=True))
    begins: dict[str, int] = {}
    weights: dict[str, tuple[int, ...]] = {}
    for event, value in zip(shapes.events.tolist(), shapes.values.tolist(), strict=True):
        name = ops.texts[op_of[event]] if event in op_of else ""
        layer, kind = layer_of(name)
        shape = tuple(int(n) for n in re.findall(r"\d{1,9}", shapes.texts[value]))
        if not kind:
            continue
        if "/" not in kind and not name.startswith("gradient_tape/"):  # casts come in any order
            at = int(trace.events.begin_ps[event])
            row = int(np.searchsorted(steps.host_begin_ps, at, side="right")) - 1
            if row >= 0 and at < steps.host_end_ps[row]:  # a trace may begin in the middle of one
                begin = at - int(steps.host_begin_ps[row])
                begins[layer] = min(begins.get(layer, begin), begin)
        is_weights = kind.endswith(_OF_WEIGHTS) and len(shape) == (4 if "Conv" in kind else 2)
        least = weights.get(layer, shape)
        if is_weights and (len(shape) == 2 or shape[0] * shape[1] <= least[0] * least[1]):
            weights[layer] = shape
    order = sorted(begins, key=lambda layer: begins[layer])
    ends = {"inputs": order[:1], "outputs": order[-1:]}
    odd = {
        layer: " and ".join(
            f"{size} {side}"
            for size, (side, fixed) in zip(shape[-2:], ends.items(), strict=True)
            if size % 8 and fixed and layer not in fixed
        )
        for layer, shape in weights.items()
    }
    return {layer: sides for layer, sides in odd.items() if sides}


def layer_of(op_name: str) -> tuple[str, str]:
    """Split a product's or convolution's name into its layer and the rest; ("", "") for other ops.

    ``gradient_tape/model/conv/Conv2D/Conv2DBackpropFilter`` is of ``model/conv``.
    """
    match = _OP_OF_LAYER.fullmatch(op_name.removeprefix("gradient_tape/"))
    return (match[1], match[2]) if match else ("", "")


PRECISION = Table[Precision](
    "precision",
    "One row per width of the kernels' numbers, narrowest first. No row without kernels.",
    columns_in("""
        width: "8-bit", "16-bit" (half and bfloat16), "TF32", "32-bit", "64-bit", or "unknown" where neither
            the kernel's name nor its op's shape tells
        occurrences [runs]: how often such kernels ran
        total_us [total]: time of all of them
        fraction [share]: share of all kernel time
        """),
    values={
        "width": lambda t: [WIDTHS[row] for row in t.rows],
        "occurrences": lambda t: t.occurrences[t.rows],
        "total_us": lambda t: t.total_ps[t.rows],
        "fraction": lambda t: t.fraction[t.rows],
    },
)
