"""The table of layers: what each took forward, backward and to update, its operations and memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table
from profnb.core.units import rate_text
from profnb.subjects.layers.layer_bounds import LayerBounds
from profnb.subjects.layers.layer_rows import LAYER_PARTS

SCOPE = "name scope"


@dataclass(frozen=True, slots=True)
class LayerTable:
    """One row per layer, in the order of the model, then scopes, then what is neither.

    Attributes:
        layer: Paths of layers, ``model/encoder/dense``, or what else a row is.
        layer_type: The layer's class, "name scope", or "" for what is neither.
        parent: Row of the layer it is part of, or -1, shape (R,).
        layer_part_ps: Self time of the counted steps by layer part (``LAYER_PARTS``), on the device where
            there is one, else on the host, shape (R, 5). The rows sum to the op time of that side exactly.
        host_ps: Self time on the host, shape (R,).
        device_ps: Self time on devices, shape (R,).
        occurrences: Runs of ops on the side that ``layer_part_ps`` is of, shape (R,).
        parameters: Of the layer itself, without its parts; NaN where not known, shape (R,).
        output_shape: ``(None, 10)``, or "".
        flops: Operations forward and backward, mean per step, shape (R, 2); NaN where not known.
        bounds: The bytes that its ops must move, and what bounds them, R rows.
        peak_bytes: Alive at the memory's peak, of those allocated by the row's ops; NaN where not known or
            none, shape (R,).
        is_shared: Whether a layer is called or held at several places, shape (R,).
        is_estimate: Whether some of the time was shared out by operations, shape (R,).
        search: Words that find the row's ops among all.
        iterations: Iterations of training that the times are of.
        side: "device" or "host".
        has_models: Whether the layers are those of live models, not of name scopes.
        remarks: What the numbers do not say, in sentences.
    """

    layer: tuple[str, ...]
    layer_type: tuple[str, ...]
    parent: Int64s
    layer_part_ps: Int64s
    host_ps: Int64s
    device_ps: Int64s
    occurrences: Int64s
    parameters: Floats
    output_shape: tuple[str, ...]
    flops: Floats
    bounds: LayerBounds
    peak_bytes: Floats
    is_shared: Bools
    is_estimate: Bools
    search: tuple[str, ...]
    iterations: int
    side: str
    has_models: bool
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.parent.size

    @property
    def total_ps(self) -> Int64s:
        """Self time of each row over all layer parts, shape (R,)."""
        total: Int64s = self.layer_part_ps.sum(axis=1)
        return total

    @property
    def with_parts_ps(self) -> Int64s:
        """Each row's time together with that of its parts, shape (R,)."""
        total = self.total_ps.copy()
        for row in range(len(self) - 1, -1, -1):
            if self.parent[row] >= 0:
                total[self.parent[row]] += total[row]
        return total

    @property
    def fraction(self) -> Floats:
        """Each row's share of all op time, shape (R,); NaN without any."""
        total = self.total_ps
        whole = int(total.sum())
        return total / whole if whole else np.full(len(self), np.nan)

    @property
    def flops_per_second(self) -> Floats:
        """Operations forward and backward over the time of both, shape (R,); NaN where not known."""
        spent = self.layer_part_ps[:, :2].sum(axis=1)
        done = np.nansum(self.flops, axis=1) * self.iterations
        is_rated = (spent > 0) & ~np.isnan(self.flops).any(axis=1)
        return np.where(is_rated, done / np.where(is_rated, spent, 1) * 1e12, np.nan)


def _part(name: str) -> Callable[[LayerTable], Int64s]:
    number = LAYER_PARTS.index(name)

    def values(table: LayerTable) -> Int64s:
        part: Int64s = table.layer_part_ps[:, number]
        return part

    return values


def _device_ps(table: LayerTable) -> Floats:
    return np.where(table.side == "device", table.device_ps, np.nan)


LAYERS = Table[LayerTable](
    "layers",
    "One row per layer in the order of the model, then name scopes, then what is neither.",
    (
        Column("layer", lambda t: t.layer, "its path in the model, or what else the row is"),
        Column(
            "layer_type",
            lambda t: t.layer_type,
            'its class, "name scope", or "" for what is neither',
        ),
        Column("forward_us", _part("forward"), "time of its forward ops"),
        Column("backward_us", _part("backward"), "time of the gradient ops that they caused"),
        Column("update_us", _part("update"), "time in which the optimizer updated its weights"),
        Column(
            "recomputation_us",
            _part("recomputation"),
            "time of forward ops done again for a gradient",
            "recomputed",
        ),
        Column("other_us", _part("other"), "time of what is none of these"),
        Column(
            "total_us",
            lambda t: t.total_ps,
            "time of all of these; the rows sum to the op time",
            "own time",
        ),
        Column(
            "with_parts_us",
            lambda t: t.with_parts_ps,
            "the total together with that of the layers inside it",
        ),
        Column("fraction", lambda t: t.fraction, "of all op time", "share"),
        Column("host_us", lambda t: t.host_ps, "time of its ops on hosts"),
        Column("device_us", _device_ps, "time of its ops on devices, NaN without a device"),
        Column("occurrences", lambda t: t.occurrences, "how often ops of it ran"),
        Column(
            "parameters",
            lambda t: t.parameters,
            "its own, not those of layers inside it; those of a model sum to ``count_params()``",
        ),
        Column(
            "output_shape",
            lambda t: t.output_shape,
            'as Keras writes it, "" if not known',
            "output",
        ),
        Column(
            "flops",
            lambda t: t.flops.sum(axis=1),
            "floating-point operations of a step, forward and backward",
        ),
        Column("flops_forward", lambda t: t.flops[:, 0], "the forward part of them"),
        Column("flops_backward", lambda t: t.flops[:, 1], "the backward part of them"),
        Column(
            "gigaflops_per_second",
            lambda t: t.flops_per_second,
            "operations over the time forward and backward",
            "achieved",
            lambda value: rate_text(value or None, "flop/s"),
        ),
        Column(
            "least_bytes",
            lambda t: t.bounds.bytes,
            "what its ops read and write in a step, each tensor once",
        ),
        Column(
            "flops_per_byte",
            lambda t: t.bounds.intensity,
            "operations of all its ops, not of products alone, for each byte",
        ),
        Column("gigabytes_per_second", lambda t: t.bounds.bytes_per_second, "bytes over its time"),
        Column(
            "flops_fraction",
            lambda t: t.bounds.flops_fraction,
            "share of the peak of operations that all its ops reached",
            "of peak operations",
        ),
        Column(
            "bytes_fraction",
            lambda t: t.bounds.bytes_fraction,
            "share of the peak of memory; what is above 1 found them in a cache",
            "of peak memory",
        ),
        Column(
            "bound_by",
            lambda t: t.bounds.bound_by,
            'as in ``p.op_roofline``: "compute", "memory", "neither", "" where it is not known',
            "bound by",
        ),
        Column("peak_bytes", lambda t: t.peak_bytes, "memory that its ops held at the peak"),
        Column(
            "is_shared", lambda t: t.is_shared, "whether it is called or held at several places"
        ),
        Column(
            "is_estimate",
            lambda t: t.is_estimate,
            "whether some of the time was shared out by operations",
        ),
    ),
    'Times are of all counted steps together; ``attrs["steps"]`` is how many. The rows sum to the op time of '
    "those steps: the device's where there is one (``attrs['side']``), else the host's. Rows that are no "
    "layers: loss, metrics, optimizer (updates of nobody knows whose weights), input, outside the model. "
    'What is not known is NaN or "".',
    attributes=lambda t: {"steps": t.iterations, "side": t.side, "remarks": list(t.remarks)},
)
