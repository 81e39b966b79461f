"""The table of layers: what each took forward, backward and to update, its operations, memory and bounds.

Against what the machine could do a layer is what its ops are together: it reaches the share of a peak that
its ops' operations, or bytes, would have taken of its time at that peak. Some ops have no known cost; a layer
of which more than a fifth of the time is of such ops has none either.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, RowColumns, fraction_of, group, ratio
from profnb.core.table import Table, columns_in
from profnb.core.units import rate_text
from profnb.steps.spine import Spine
from profnb.subjects.bounds.op_roofline import OpRoofline, bound_by
from profnb.subjects.layers.flops import backward_factor, forward_flops
from profnb.subjects.layers.layer_rows import LAYER_PARTS, OTHERS, LayerRows
from profnb.subjects.layers.layer_times import LayerTimes
from profnb.subjects.memory.peak import PeakRow

_LEAST_KNOWN = 0.8
SCOPE = "name scope"


@dataclass(frozen=True, slots=True)
class LayerBounds:
    """R layers; NaN where not known."""

    bytes: Floats  # read and written by their ops in a step, shape (R,)
    intensity: Floats  # operations of all their ops, not of products alone, per byte, shape (R,)
    bytes_per_second: Floats  # bytes that they reached, shape (R,)
    flops_fraction: Floats  # of the peak of operations, shape (R,)
    bytes_fraction: Floats  # of the peak of memory, shape (R,)

    @property
    def bound_by(self) -> tuple[str, ...]:
        """The bound of each: "compute", "memory", "neither", or "" where that is not known."""
        return tuple(map(bound_by, self.flops_fraction.tolist(), self.bytes_fraction.tolist()))


@dataclass(frozen=True, slots=True)
class LayerTable(RowColumns):
    """One row per layer, in the order of the model, then scopes, then what is neither.

    Its columns are those of ``LAYERS``, each of R rows, times in picoseconds; NaN or "" where not known.
    """

    layer: tuple[str, ...]
    layer_type: tuple[str, ...]
    parent: Int64s  # row of the layer it is part of, or -1, shape (R,)
    # self time of the counted steps by layer part (``LAYER_PARTS``), on the device where there is one, else
    # on the host, shape (R, 5). The rows sum to the op time of that side exactly.
    layer_part_ps: Int64s
    host_ps: Int64s
    device_ps: Int64s
    occurrences: Int64s
    parameters: Floats
    output_shape: tuple[str, ...]
    flops: Floats  # operations forward and backward, mean per step, shape (R, 2)
    bounds: LayerBounds
    peak_bytes: Floats
    is_shared: Bools
    is_estimate: Bools
    search: tuple[str, ...]  # words that find the row's ops among all
    iterations: int  # iterations of training that the times are of
    side: str  # "device" or "host"
    has_models: bool  # whether the layers are those of live models, not of name scopes
    remarks: tuple[str, ...] = ()  # what the numbers do not say, in sentences

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
        return fraction_of(self.total_ps)

    @property
    def flops_per_second(self) -> Floats:
        """Operations forward and backward over the time of both, shape (R,); NaN where not known."""
        spent = self.layer_part_ps[:, :2].sum(axis=1)
        return ratio(self.flops.sum(axis=1) * self.iterations, spent) * 1e12


def _part(at: int) -> Callable[[LayerTable], Int64s]:
    return lambda table: table.layer_part_ps[:, at]


LAYERS = Table[LayerTable](
    "layers",
    "One row per layer in the order of the model; name scopes and the rest follow.",
    columns_in("""
        layer: its path in the model, or what else the row is
        layer_type: its class, "name scope", or "" for what is neither
        forward_us: time of its forward ops
        backward_us: time of the gradient ops that they caused
        update_us: time in which the optimizer updated its weights
        recomputation_us [recomputed]: time of forward ops done again for a gradient
        other_us: time of what is none of these
        total_us [own time]: time of all of these; the rows sum to the op time
        with_parts_us: the total together with that of the layers inside it
        fraction [share]: of all op time
        host_us: time of its ops on hosts
        device_us: time of its ops on devices, NaN without a device
        occurrences: how often ops of it ran
        parameters: its own, not those of layers inside it; those of a model sum to ``count_params()``
        output_shape [output]: as Keras writes it, "" if not known
        flops: floating-point operations of a step, forward and backward
        flops_forward: the forward part of them
        flops_backward: the backward part of them
        gigaflops_per_second [achieved] = flops_per_second: operations over the time forward and backward
        least_bytes = bounds.bytes: what its ops read and write in a step, each tensor once
        flops_per_byte = bounds.intensity: operations of all its ops, not of products alone, for each byte
        gigabytes_per_second = bounds.bytes_per_second: bytes over its time
        flops_fraction [of peak operations] = bounds.flops_fraction: share of the peak of operations that
            all its ops reached
        bytes_fraction [of peak memory] = bounds.bytes_fraction: share of the peak of memory; what is above
            1 found them in a cache
        bound_by = bounds.bound_by: as in ``p.op_roofline``: "compute", "memory", "neither", "" where it is
            not known
        peak_bytes: memory that its ops held at the peak
        is_shared: whether it is called or held at several places
        is_estimate: whether some of the time was shared out by operations
        """),
    "Times are of all counted steps together; ``attrs['steps']`` is the number of steps. The rows sum to "
    "the op time of these steps, on the device if there is one, or on the host (``attrs['side']``). Some "
    "rows are no layers: loss, metrics, optimizer (updates of unknown weights), input, outside the model. "
    'Unknown values are NaN or "".',
    attributes=lambda t: {"steps": t.iterations, "side": t.side, "remarks": list(t.remarks)},
    values={
        **{f"{name}_us": _part(at) for at, name in enumerate(LAYER_PARTS)},
        "device_us": lambda t: np.where(t.side == "device", t.device_ps, nan),
        "flops": lambda t: t.flops.sum(axis=1),
        "flops_forward": lambda t: t.flops[:, 0],
        "flops_backward": lambda t: t.flops[:, 1],
    },
    texts={"gigaflops_per_second": lambda value: rate_text(value or None, "flop/s")},
)


def tabulate_layers(
    spine: Spine, times: LayerTimes, peak: Sequence[PeakRow], roofline: OpRoofline | None
) -> LayerTable:
    """Put together what is known of each layer.

    ``peak`` is what was alive when most memory was in use.
    """
    has_device, phase = spine.program.has_device, spine.summary.phase
    rows, side = times.rows, int(has_device)
    order, parent = _order_rows(times)
    position = {row: at for at, row in enumerate(order)}
    names = rows.names
    kinds = [layer.kind for layer in rows.layers] + [""] * len(OTHERS) + [SCOPE] * len(rows.scopes)
    batch_size = None if spine.steps.is_window else spine.summary.batch_size
    has_gradients = bool(times.time_ps[:, :, LAYER_PARTS.index("backward")].any())
    is_training = has_gradients or phase == "train"
    flops = _count_flops(times, batch_size, is_training=is_training)
    search = _search_words(rows, times.row_of_op)
    layers = [rows.layers[row] if row < len(rows.layers) else None for row in order]
    shapes = [None if layer is None else layer.output_shape for layer in layers]
    parameters = np.array([-1 if layer is None else layer.parameters for layer in layers], np.int64)
    return LayerTable(
        layer=tuple(names[row] for row in order),
        layer_type=tuple(kinds[row] for row in order),
        parent=np.array([position.get(parent.get(row, -1), -1) for row in order], np.int64),
        layer_part_ps=times.time_ps[side][order],
        host_ps=times.time_ps[0].sum(axis=1)[order],
        device_ps=times.time_ps[1].sum(axis=1)[order],
        occurrences=times.occurrences[side][order],
        parameters=np.where(parameters < 0, nan, parameters),
        output_shape=tuple("" if shape is None else str(shape) for shape in shapes),
        flops=flops[order],
        bounds=_bound_layers(times, roofline, order, has_device=has_device),
        peak_bytes=_peak_bytes(times, peak)[order],
        is_shared=np.array([layer is not None and layer.is_shared for layer in layers], np.bool_),
        is_estimate=times.is_estimate[order],
        search=tuple(search.get(row, "") for row in order),
        iterations=times.iterations,
        side="device" if has_device else "host",
        has_models=any(layer is not None for layer in layers),
        remarks=tuple(_remarks(times)),
    )


def _bound_layers(
    times: LayerTimes, roofline: OpRoofline | None, order: Sequence[int], *, has_device: bool
) -> LayerBounds:
    # Of each row: time of ops with a cost, and of those with a peak too; operations and bytes, and the
    # seconds that both would take at their peaks.
    sums = np.zeros((6, len(times)))
    if roofline is not None:
        at = np.array([times.row_of_op.get(name, -1) for name in roofline.op_name], np.int64)
        op = np.flatnonzero(roofline.has_cost & (at >= 0))
        often, spent = roofline.occurrences[op], roofline.self_ps[op]
        flops, moved = roofline.flops[op] * often, roofline.bytes[op] * often
        is_rated = ~np.isnan(roofline.flops_fraction[op])
        flops_s = np.where(is_rated & (flops > 0), flops / roofline.peak_flops[op], 0.0)
        columns = (spent, spent * is_rated, flops, moved, flops_s, moved / roofline.peak_bytes)
        for total, column in zip(sums, columns, strict=True):
            np.add.at(total, at[op], column)
    costed, rated, flops, moved, flops_s, moved_s = sums[:, order]
    whole = times.time_ps[int(has_device)].sum(axis=1)[order]
    is_known = (whole > 0) & (costed >= _LEAST_KNOWN * whole)
    is_rated = is_known & (rated >= _LEAST_KNOWN * whole)
    seconds = whole / 1e12
    with np.errstate(divide="ignore", invalid="ignore"):
        return LayerBounds(
            np.where(is_known, moved / max(times.iterations, 1), nan),
            np.where(is_known & (moved > 0), flops / moved, nan),
            np.where(is_known, moved / seconds, nan),
            np.where(is_rated, flops_s / seconds, nan),
            np.where(is_known, moved_s / seconds, nan),
        )


def _remarks(times: LayerTimes) -> Iterator[str]:
    """Say what of the models could not be distinguished, or did not run."""
    for name, often in times.rows.alike.items():
        yield (
            f"{often} models named {name} ran with the same layer names. One model's rows hold the time of "
            "all. Name the models, or capture one at a time."
        )
    spent = times.time_ps.sum(axis=(0, 2))
    for model, layers in times.rows.models:
        of_layers = spent[layers]
        has_only_name = len(of_layers) > 1 and of_layers[0] > 0 and not of_layers[1:].any()
        if has_only_name or (model.is_given and not of_layers.any()):
            yield (
                f"The layers of {model.name} were not found in this trace. Either another model ran, or "
                "Keras has numbered the layers anew since. Name the layers to be sure."
            )


def _order_rows(times: LayerTimes) -> tuple[list[int], dict[int, int]]:
    """The rows to show, in order, and the row that each is part of."""
    rows = times.rows
    order: list[int] = []
    parent: dict[int, int] = {}
    for _, layers in rows.models:
        if times.time_ps[:, layers].any():
            order.extend(layers)
            parent |= {row: layers.start + rows.layers[row].parent for row in layers[1:]}
    for path, row in sorted(rows.scopes.items()):
        order.append(row)
        above = (path[:at] for at in range(len(path) - 1, 0, -1))
        parent[row] = next((rows.scopes[scope] for scope in above if scope in rows.scopes), -1)
    order.extend(row for row in map(rows.other, OTHERS) if times.occurrences[:, row].any())
    return order, parent


def _count_flops(times: LayerTimes, batch_size: int | None, *, is_training: bool) -> Floats:
    """Operations of a step by row, forward and backward: from shapes, else from XLA's instructions."""
    flops, rows = times.hlo_flops / max(times.iterations, 1), times.rows
    alike = rows.alike
    calls_seen = Counter(place.row for place in rows.layer_places if not place.is_again)
    for (model, layers), iterations in zip(rows.models, times.model_iterations, strict=True):
        share = iterations / max(times.iterations, 1)
        if model.name in alike:  # the time is that of several models
            continue
        for at, row in enumerate(layers):
            layer = rows.layers[row]
            # As seen while tracing, else by its graph of layers or its scopes.
            in_graph = len(layer.input_shapes) if layer.is_shared else 1
            in_scopes = calls_seen[row] if model.is_uniquified else 0
            calls = model.calls.get(at, max(in_graph, in_scopes))
            done = forward_flops(model.layers, at, calls) * (batch_size or nan) * share
            if not np.isnan(done):
                flops[row] = done, done * backward_factor(layer) if is_training else 0.0
    return flops


def _peak_bytes(times: LayerTimes, peak: Sequence[PeakRow]) -> Floats:
    """Bytes alive at the memory's peak by the row of the op that allocated them; NaN for none."""
    held = np.full(len(times), nan)
    for allocated in peak:
        name, _, op_type = allocated.op_name.partition(":")
        row = times.row_of_op.get(name, -1)
        if row < 0 and op_type:
            row = times.rows.place(name, op_type).row
        if 0 <= row < len(times):
            held[row] = np.nansum([held[row], allocated.bytes])
    return held


def _search_words(rows: LayerRows, row_of_op: Mapping[str, int]) -> dict[int, str]:
    """A layer's path, as ops are called in tables; of what is no layer, the scope of most of its ops."""
    words = {place.row: f"{rows.layers[place.row].path}/" for place in rows.layer_places}
    words |= {row: "/".join(path) + "/" for path, row in rows.scopes.items()}
    first, last = rows.other(OTHERS[0]), rows.other(OTHERS[-1])
    outside = [(row, rows.head_of(name)) for name, row in row_of_op.items() if first <= row <= last]
    heads = group((row, head) for row, head in outside if head)
    return words | {row: Counter(of_row).most_common(1)[0][0] for row, of_row in heads.items()}
