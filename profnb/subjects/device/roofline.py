"""Peaks of a device, operations and bytes per second with their sources; and XLA's ops under that roof.

A TPU's plane states both. A GPU's states its clock, its number of multiprocessors and its memory's
bandwidth; how many operations one multiprocessor does per cycle depends on its architecture and on the
width of the numbers. Nothing is returned for an architecture that is not in the table.

An op that does few operations per byte cannot run faster than memory delivers, whatever the units could
do; where the two limits meet is the ridge. Only ops whose operations, bytes and time are all known, on a
device whose limits are known, have a row.

Source: NVIDIA's architecture whitepapers (Pascal to Blackwell) and CUDA C++ Programming Guide, "Throughput
of native arithmetic instructions"; AMD CDNA 3 whitepaper. Dense, without sparsity. The official tool takes
the 16-bit peak of the tensor cores for everything, 32-bit work included.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, ratio
from profnb.core.table import Table, columns_in
from profnb.subjects.xla.hlo_ops import HloOp, HloOps, width_of_hlo
from profnb.subjects.xla.xla_ops import OpWork, XlaOps
from profnb.trace.model import Plane


@dataclass(frozen=True, slots=True)
class Peak:
    """A device's limits."""

    # operations per second by width ("8-bit", "16-bit", "TF32", "32-bit"); a width that the device has no
    # units for is not among them
    flops: dict[str, float]
    bytes_per_second: float  # of its main memory; NaN if the trace does not say
    source: str  # where the figures come from, in a sentence

    def flops_of(self, width: str, *, is_product: bool) -> float:
        """The peak for work of a width; products of 32-bit matrices may run as TF32. NaN if unknown."""
        if width == "32-bit" and is_product and "TF32" in self.flops:
            return self.flops["TF32"]
        return self.flops.get(width, self.flops.get("any", float("nan")))


# Operations (a fused multiply-add is two) per cycle and multiprocessor, by compute capability:
# (8-bit floats, 16-bit, TF32, 32-bit); 0 where there are no such units.
_NVIDIA: dict[tuple[object, ...], tuple[int, ...]] = {
    (6, 0): (0, 256, 0, 128),
    (6, 1): (0, 0, 0, 256),
    (7, 0): (0, 1024, 0, 128),
    (7, 5): (0, 1024, 0, 128),
    (8, 0): (0, 2048, 1024, 128),
    (8, 6): (0, 1024, 256, 256),
    (8, 9): (2048, 1024, 256, 256),
    (9, 0): (8192, 4096, 2048, 256),
    (10, 0): (16384, 8192, 4096, 256),
}
# CDNA 3, per compute unit
_AMD: dict[tuple[object, ...], tuple[int, ...]] = {(9, 4): (4096, 2048, 1024, 256)}
_LARGEST_QUANTITY = 1e18  # no clock, bandwidth or count of anything comes near
_WIDTHS = ("8-bit", "16-bit", "TF32", "32-bit")


def find_rates(plane: Plane) -> dict[str, int]:
    """Look up operations per cycle and multiprocessor by width; without units none, {} if not known."""
    capability = tuple(plane.stats.get(f"compute_cap_{part}", -1) for part in ("major", "minor"))
    table = _AMD if plane.stats.get("device_vendor") == "AMD" else _NVIDIA
    rates = table.get(capability, ())
    return {width: rate for width, rate in zip(_WIDTHS, rates, strict=False) if rate}


def find_peak(plane: Plane) -> Peak | None:
    """Read the limits of the device of a plane, or None where they are not known."""
    stats = plane.stats

    def number(name: str) -> float:
        value = stats.get(name)
        is_quantity = isinstance(value, int | float) and 0 < value < _LARGEST_QUANTITY
        return float(value or 0) if is_quantity else 0.0

    teraflops = number("peak_teraflops_per_second")
    if teraflops:
        bandwidth = number("peak_hbm_bw_gigabytes_per_second") * 1e9
        return Peak({"any": teraflops * 1e12}, bandwidth or float("nan"), "by the trace")
    clock, cores = number("clock_rate") * 1e3, number("core_count")
    rates = find_rates(plane)
    if not clock or not cores or not rates:
        return None
    unit = "compute units" if stats.get("device_vendor") == "AMD" else "multiprocessors"
    return Peak(
        {width: rate * clock * cores for width, rate in rates.items()},
        number("memory_bandwidth") or float("nan"),
        f"{cores:.0f} {unit} at {clock / 1e9:.3g} GHz, by the trace, times the work per cycle of capability "
        f"{number('compute_cap_major'):.0f}.{number('compute_cap_minor'):.0f}",
    )


@dataclass(frozen=True, slots=True)
class OpRates(OpWork):
    """N ops under the roof of what ran them; NaN for what is not known."""

    # of the numbers each computes with; "" for whole numbers or where not known
    width: tuple[str, ...]
    # operations that can be done in a second with numbers of that width, shape (N,)
    peak_flops: Floats
    peak: Peak | None  # the limits; None where they are not known

    @property
    def intensity(self) -> Floats:
        """Operations per byte, shape (N,)."""
        return ratio(self.flops, self.bytes)

    @property
    def peak_bytes(self) -> float:
        """Bytes that memory could move in a second; NaN where not known."""
        return float("nan") if self.peak is None else self.peak.bytes_per_second

    @property
    def flops_fraction(self) -> Floats:
        """Share of the peak of operations, shape (N,); 0 for an op that does none."""
        none = (self.flops == 0) & ~np.isnan(self.peak_bytes)
        return np.where(none, 0.0, self.flops_per_second / self.peak_flops)

    @property
    def bytes_fraction(self) -> Floats:
        """Share of the memory's bandwidth, shape (N,)."""
        return self.bytes_per_second / self.peak_bytes


@dataclass(frozen=True, slots=True)
class Roofline(OpRates):
    """N ops of XLA, most time first."""

    peak: Peak
    row: Int64s  # their rows in the table of XLA's ops, shape (N,)
    op: tuple[HloOp, ...]  # their HLO instructions

    @property
    def is_compute_bound(self) -> Bools:
        """True where operations, not memory, limit the op: right of the ridge; shape (N,)."""
        return self.intensity * self.peak_bytes > self.peak_flops

    @property
    def attained_fraction(self) -> Floats:
        """Share of what could be reached at this intensity, shape (N,)."""
        roof = np.minimum(self.peak_flops, self.intensity * self.peak_bytes)
        return self.flops_per_second / roof


def draw_roofline(ops: XlaOps, hlo: HloOps, peak: Peak | None) -> Roofline | None:
    """Place the ops of a device under its roof; None where no limits are known or nothing can be placed."""
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
        ops.occurrences[rows],
        ops.self_ps[rows],
        ops.flops[rows],
        ops.bytes[rows],
        tuple(width for (width, _), keep in zip(widths, kept, strict=True) if keep),
        peaks[kept],
        peak,
        rows,
        tuple(ops.op[row] for row in rows.tolist()),
    )


# For every table of ops under their roof: operations per byte, and how much of both they reached in a second.
REACHED = columns_in("""
    flops_per_byte [flop/byte] = intensity: operations for each byte read or written
    gigaflops_per_second [operations] = flops_per_second: operations that it reached
    gigabytes_per_second [memory] = bytes_per_second: bytes that it reached
    """)
INTENSITY_TEXT = {"flops_per_byte": "{:,.3g}".format}
ROOFLINE = Table[Roofline](
    "roofline",
    "One row per XLA op with a place under the device's roof, most time first.",
    (
        *columns_in("""
            hlo_op [op of XLA] = op.name: the HLO instruction
            op_name = op.op_name: the framework's op
            width: of the numbers it computes with
            """),
        *REACHED,
        *columns_in("""
            peak_gigaflops_per_second = peak_flops: operations that the device can do at most with that
                width
            peak_gigabytes_per_second: bytes that the device can do at most
            flops_fraction: operations reached over their peak
            bytes_fraction: bytes reached over their peak
            attained_fraction [of its limit]: of what can be reached with that many operations per byte
            bound_by: "compute" or "memory": which peak is the nearer one
            """),
    ),
    "No row without known limits of the device and known operations and bytes of the op. "
    "``subjects/device/roofline.py`` has the source of the limits.",
    texts=INTENSITY_TEXT,
    values={
        "peak_gigabytes_per_second": lambda t: np.full(len(t), t.peak_bytes),
        "bound_by": lambda t: np.where(t.is_compute_bound, "compute", "memory"),
    },
)
