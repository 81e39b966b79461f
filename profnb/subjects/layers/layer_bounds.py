"""Layers against what the machine could do: the bytes that their ops must move, and what bounds them.

A layer is what its ops are together: it reaches the share of a peak that its ops' operations, or bytes, would
have taken of its time at that peak. Some ops have no known cost; a layer of which more than a fifth of the
time is of such ops has none either.
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats
from profnb.subjects.bounds.op_roofline import OpRoofline, bound_by
from profnb.subjects.layers.layer_times import LayerTimes

_LEAST_KNOWN = 0.8


@dataclass(frozen=True, slots=True)
class LayerBounds:
    """R layers; NaN where not known.

    Attributes:
        bytes: What their ops must read and write in a step, shape (R,).
        intensity: Operations of all their ops, not of products alone, per byte, shape (R,).
        bytes_per_second: Bytes that they reached, shape (R,).
        flops_fraction: Of the peak of operations, shape (R,).
        bytes_fraction: Of the peak of memory, shape (R,).
    """

    bytes: Floats
    intensity: Floats
    bytes_per_second: Floats
    flops_fraction: Floats
    bytes_fraction: Floats

    @property
    def bound_by(self) -> tuple[str, ...]:
        """What bounds each: "compute", "memory", "neither", or "" where that is not known."""
        pairs = zip(self.flops_fraction.tolist(), self.bytes_fraction.tolist(), strict=True)
        return tuple(bound_by(*pair) for pair in pairs)


# What is summed up of each row: time of ops with a cost, and of those with a peak too; operations and bytes,
# and the seconds that both would take at their peaks.
_COSTED, _RATED, _FLOPS, _BYTES, _AT_PEAK_FLOPS, _AT_PEAK_BYTES = range(6)


def bound_layers(
    times: LayerTimes, roofline: OpRoofline | None, *, has_device: bool
) -> LayerBounds:
    """Sum up the ops of each row, in the order of ``LayerTimes``.

    Args:
        times: The times of the rows, and whose each op is.
        roofline: The ops under their roof; None where none has a cost.
        has_device: Whether they ran on a device.
    """
    sums = np.zeros((6, len(times)))
    fractions = np.empty(0) if roofline is None else roofline.flops_fraction
    for row in [] if roofline is None else np.flatnonzero(roofline.has_cost).tolist():
        assert roofline is not None
        at = times.row_of_op.get(roofline.op_name[row])
        if at is None:
            continue
        often, spent = roofline.occurrences[row], roofline.self_ps[row]
        flops, moved = roofline.flops[row] * often, roofline.bytes[row] * often
        sums[_COSTED, at] += spent
        sums[_FLOPS, at] += flops
        sums[_BYTES, at] += moved
        sums[_AT_PEAK_BYTES, at] += moved / roofline.peak_bytes
        if not np.isnan(fractions[row]):
            sums[_RATED, at] += spent
            sums[_AT_PEAK_FLOPS, at] += flops / roofline.peak_flops[row] if flops else 0.0
    whole = times.time_ps[int(has_device)].sum(axis=1)
    is_known = (whole > 0) & (sums[_COSTED] >= _LEAST_KNOWN * whole)
    is_rated = is_known & (sums[_RATED] >= _LEAST_KNOWN * whole)
    seconds = whole / 1e12
    return LayerBounds(
        np.where(is_known, sums[_BYTES] / max(times.iterations, 1), np.nan),
        _over(sums[_FLOPS], sums[_BYTES], is_known & (sums[_BYTES] > 0)),
        _over(sums[_BYTES], seconds, is_known),
        _over(sums[_AT_PEAK_FLOPS], seconds, is_rated),
        _over(sums[_AT_PEAK_BYTES], seconds, is_known),
    )


def _over(amount: Floats, per: Floats, where: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    divided: Floats = np.full(amount.size, np.nan)
    np.divide(amount, per, out=divided, where=where)
    return divided
