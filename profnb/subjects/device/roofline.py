"""XLA's ops against what their device could do: how fast each ran, and what bounds it.

An op that does few operations per byte cannot run faster than memory delivers, whatever the units could
do; where the two limits meet is the ridge. Only ops whose operations, bytes and time are all known, on a
device whose limits are known, have a row.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.core.table import Column, Table, sequence_of
from profnb.subjects.device.peaks import Peak
from profnb.subjects.xla.hlo_ops import HloOp, HloOps, width_of_hlo
from profnb.subjects.xla.xla_ops import XlaOps


@dataclass(frozen=True, slots=True)
class Roofline:
    """N ops, most time first.

    Attributes:
        row: Their rows in the table of XLA's ops, shape (N,).
        op: Their HLO instructions.
        width: Of the numbers they compute with; "" if not known.
        intensity: Operations per byte, shape (N,).
        flops_per_second: Achieved, shape (N,).
        bytes_per_second: Achieved, shape (N,).
        peak_flops: What the device can do with numbers of that width, shape (N,).
        peak: The device's limits.
    """

    row: Int64s
    op: tuple[HloOp, ...]
    width: tuple[str, ...]
    intensity: Floats
    flops_per_second: Floats
    bytes_per_second: Floats
    peak_flops: Floats
    peak: Peak

    def __len__(self) -> int:
        return self.row.size

    @property
    def flops_fraction(self) -> Floats:
        """Share of the peak of operations, shape (N,)."""
        return self.flops_per_second / self.peak_flops

    @property
    def bytes_fraction(self) -> Floats:
        """Share of the memory's bandwidth, shape (N,)."""
        return self.bytes_per_second / self.peak.bytes_per_second

    @property
    def is_compute_bound(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether operations, not memory, limit the op: it lies right of the ridge; shape (N,)."""
        return self.intensity * self.peak.bytes_per_second > self.peak_flops

    @property
    def attained_fraction(self) -> Floats:
        """Share of what could be reached at this intensity, shape (N,)."""
        roof = np.minimum(self.peak_flops, self.intensity * self.peak.bytes_per_second)
        return self.flops_per_second / roof


def draw_roofline(ops: XlaOps, hlo: HloOps, peak: Peak | None) -> Roofline | None:
    """Place each op of a device under its roof.

    Args:
        ops: The table of XLA's ops.
        hlo: The HLO instructions, for the width of their numbers.
        peak: The device's limits.

    Returns:
        The ops that can be placed, or None where the limits are not known or nothing can be.
    """
    if peak is None or np.isnan(peak.bytes_per_second):
        return None
    has_costs = ops.is_device & (ops.flops > 0) & (ops.bytes > 0) & (ops.self_ps > 0)
    rows = np.flatnonzero(has_costs)
    widths = [width_of_hlo(hlo, ops.op[row]) for row in rows.tolist()]
    peaks = np.array([peak.flops_of(width, is_product=product) for width, product in widths])
    kept = ~np.isnan(peaks)
    if not kept.any():
        return None
    rows = rows[kept]
    return Roofline(
        rows,
        tuple(ops.op[row] for row in rows.tolist()),
        tuple(width for (width, _), keep in zip(widths, kept, strict=True) if keep),
        ops.flops[rows] / ops.bytes[rows],
        ops.flops_per_second[rows],
        ops.bytes_per_second[rows],
        peaks[kept],
        peak,
    )


class _Reaching(Protocol):
    """Ops with their operations per byte, and what they reached of both in a second."""

    @property
    def intensity(self) -> Floats: ...

    @property
    def flops_per_second(self) -> Floats: ...

    @property
    def bytes_per_second(self) -> Floats: ...


T = TypeVar("T", bound=_Reaching)


def reached_columns() -> tuple[Column[T], Column[T], Column[T]]:
    """What every table of ops under their roof says of what they reached."""
    return (
        Column(
            "flops_per_byte",
            lambda t: t.intensity,
            "operations for each byte read or written",
            "flop/byte",
            lambda value: f"{value:,.3g}",
        ),
        Column(
            "gigaflops_per_second",
            lambda t: t.flops_per_second,
            "operations that it reached",
            "operations",
        ),
        Column(
            "gigabytes_per_second", lambda t: t.bytes_per_second, "bytes that it reached", "memory"
        ),
    )


ROOFLINE = Table[Roofline](
    "roofline",
    "One row per XLA op that can be placed under its device's roof, most time first.",
    (
        Column("hlo_op", lambda t: sequence_of(t.op, "name"), "the HLO instruction", "op of XLA"),
        Column("op_name", lambda t: sequence_of(t.op, "op_name"), "the framework's op"),
        Column("width", lambda t: t.width, "of the numbers it computes with"),
        *reached_columns(),
        Column(
            "peak_gigaflops_per_second",
            lambda t: t.peak_flops,
            "operations that the device can do at most with that width",
        ),
        Column(
            "peak_gigabytes_per_second",
            lambda t: np.full(len(t), t.peak.bytes_per_second),
            "bytes that the device can do at most",
        ),
        Column("flops_fraction", lambda t: t.flops_fraction, "operations reached over their peak"),
        Column("bytes_fraction", lambda t: t.bytes_fraction, "bytes reached over their peak"),
        Column(
            "attained_fraction",
            lambda t: t.attained_fraction,
            "of what can be reached with that many operations per byte",
            "of its limit",
        ),
        Column(
            "bound_by",
            lambda t: np.where(t.is_compute_bound, "compute", "memory"),
            '"compute" or "memory": which peak is the nearer one',
        ),
    ),
    "No row where the limits of the device, or an op's operations and bytes, are not known; "
    "where the limits come from stands in ``subjects/device/peaks.py``.",
)
