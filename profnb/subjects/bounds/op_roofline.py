"""Each op against what the machine could do: how fast it ran, and what bounds it.

An op is compute-bound if it does at least 60 % of the operations that the machine could do in its time, and
memory-bound if it moves at least 60 % of the bytes; where both hold, by the nearer limit. Where neither does,
it is bound by neither: too little work for all units or cores, a library that is far from either limit, or
other ops that run beside it. The bytes are the least without caches, so an op that moves more than 1.25 times
what memory could found them in a cache: memory does not bound it. A limit that is not known bounds nothing,
and where only one is known and is not near, what bounds the op is not known either.

Where a product of matrices did more operations than a CPU was measured to do, the measurement is refuted:
some other program ran beside it. Its peak of operations then bounds nothing. (A convolution proves nothing:
libraries have ways to do it with fewer operations.)

The 60 % are those of Nsight Compute's rule for the same question (SOLBottleneck, "Speed Of Light").
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan

import numpy as np

from profnb.core.columns import Bools
from profnb.core.table import Table, columns_in
from profnb.subjects.bounds.op_costs import Cost
from profnb.subjects.device.roofline import INTENSITY_TEXT, REACHED, OpRates, Peak
from profnb.subjects.ops.op_table import OpTable

COMPUTE, MEMORY, NEITHER, UNKNOWN = "compute", "memory", "neither", ""
_NEAR_ROOF, _CACHED, _REFUTED = 0.6, 1.25, 1.1
_NOT_KNOWN = Cost(nan, nan, "", is_product=False)


@dataclass(frozen=True, slots=True)
class OpRoofline(OpRates):
    """N ops of one side, most time first; NaN or "" for what is not known."""

    is_device: bool  # true if the side is the device
    op_type: tuple[str, ...]  # their types
    op_name: tuple[str, ...]  # their names
    # how many times the measured peak a product of matrices reached, where that is more
    # than it can be; else 0
    refuted_by: float = 0.0

    @property
    def has_cost(self) -> Bools:
        """True for ops that have a cost, shape (N,)."""
        return ~np.isnan(self.bytes)

    @property
    def bound_by(self) -> tuple[str, ...]:
        """The bound of each: "compute", "memory", "neither", or "" where that is not known."""
        return tuple(map(bound_by, self.flops_fraction.tolist(), self.bytes_fraction.tolist()))


def bound_by(flops_fraction: float, bytes_fraction: float) -> str:
    """Name what bounds an op that reaches these shares of the peaks; NaN for a share that is not known."""
    near_flops = flops_fraction >= _NEAR_ROOF
    near_bytes = _NEAR_ROOF <= bytes_fraction <= _CACHED
    if near_flops and (not near_bytes or flops_fraction >= bytes_fraction):
        return COMPUTE
    if near_bytes:
        return MEMORY
    return UNKNOWN if np.isnan([flops_fraction, bytes_fraction]).any() else NEITHER


def place_ops(
    ops: OpTable, costs: Mapping[tuple[str, str], Cost], peak: Peak | None, *, is_device: bool
) -> OpRoofline | None:
    """Place the ops of one side under its roof, most time first; None where nothing is known of any."""
    rows = [row for row in np.flatnonzero(ops.is_device == is_device).tolist() if ops.self_ps[row]]
    keys = [(ops.op_name[row], ops.op_type[row]) for row in rows]
    if costs.keys().isdisjoint(keys):
        return None
    row_costs = [costs.get(key, _NOT_KNOWN) for key in keys]
    peaks = np.full(len(rows), nan)
    for at, cost in enumerate(row_costs):
        if peak is not None and cost is not _NOT_KNOWN:
            peaks[at] = peak.flops_of(cost.width, is_product=cost.is_product)
    op_names, op_types = zip(*keys, strict=True)
    flops, moved = (
        np.array([getattr(one, name) for one in row_costs]) for name in ("flops", "nbytes")
    )
    widths = tuple(cost.width for cost in row_costs)
    placed = OpRoofline(
        ops.occurrences[rows], ops.self_ps[rows], flops, moved, widths, peaks, peak, is_device,
        op_types, op_names,
    )  # fmt: skip
    is_product = np.array(["MatMul" in kind for kind in op_types], np.bool_)
    reached = placed.flops_fraction[is_product & ~np.isnan(placed.flops_fraction)]
    most = float(reached.max(initial=0.0))
    if is_device or most <= _REFUTED:
        return placed
    # A product of matrices reached more than was measured: nobody knows the peak.
    return replace(placed, peak_flops=np.full(len(placed), nan), refuted_by=most)


OP_ROOFLINE = Table[OpRoofline](
    "op_roofline",
    "One row per op run by TensorFlow itself in the averaged steps, most time first.",
    (
        *columns_in("""
            side: where it ran, "host" or "device"
            op_type: the kind of op
            op_name: the op's own name
            occurrences [runs]: how often it ran
            self_us [own time]: time in it alone, over all runs
            width: of the numbers it computes with; "" if not known
            flops: operations of one run; a multiplication and an addition are two
            least_bytes = bytes: what one run reads and writes, each tensor once
            """),
        *REACHED,
        *columns_in("""
            peak_gigaflops_per_second = peak_flops: operations that the machine can do at most with that
                width
            peak_gigabytes_per_second: bytes that its memory can move at most
            flops_fraction [of peak operations]: operations reached over their peak
            bytes_fraction [of peak memory]: bytes reached over their peak; what is above 1 found them in a
                cache
            bound_by: "compute" or "memory": of which it reaches 60 % of the peak; "neither"; "" where no
                peak or no cost is known
            """),
    ),
    "Operations and bytes follow from the shapes in the graphs, known to a capture (counted as in "
    "``subjects/bounds/op_costs.py``). ``profnb.measure_peak()`` measures the limits of a CPU. "
    "XLA's ops are in ``p.roofline``. "
    'Unknown values are NaN or "".',
    attributes=lambda t: {"peak": "" if t.peak is None else t.peak.source},
    texts=INTENSITY_TEXT,
    values={
        "side": lambda t: ["device" if t.is_device else "host"] * len(t),
        "peak_gigabytes_per_second": lambda t: np.full(len(t), t.peak_bytes),
    },
)
