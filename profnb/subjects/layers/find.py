"""All that is found of layers in a trace: the op time of each, and the table."""

from functools import cached_property

from profnb.core.columns import Bools, Floats, Int64s
from profnb.steps.spine import Spine
from profnb.subjects.bounds.find import Bounds
from profnb.subjects.bounds.op_roofline import OpRoofline
from profnb.subjects.input.iterators import NOT_INPUT
from profnb.subjects.layers.called_scopes import CalledScopes, find_called_scopes
from profnb.subjects.layers.flops import product_flops
from profnb.subjects.layers.layer_rows import LAYER_PARTS, LayerRows
from profnb.subjects.layers.layer_table import LayerTable, tabulate_layers
from profnb.subjects.layers.layer_times import LayerTimes, hand_out_ops
from profnb.subjects.layers.memory_kinds import AllocatorPeak, name_peak
from profnb.subjects.layers.name_scopes import LayerNames
from profnb.subjects.memory.find import Memory
from profnb.subjects.memory.peak import tabulate_peak
from profnb.subjects.ops.find import Ops
from profnb.subjects.xla.find import Xla


class Layers:
    """The layers of a trace, each value worked out when asked for."""

    def __init__(self, spine: Spine, xla: Xla, ops: Ops, memory: Memory, bounds: Bounds) -> None:
        """Compute nothing yet."""
        self._spine, self._xla, self._ops, self._memory = spine, xla, ops, memory
        self._bounds = bounds
        self._tabulated: tuple[OpRoofline | None, LayerTable] | None = None

    @cached_property
    def times(self) -> LayerTimes:
        """Op time of the counted steps by layer."""
        counted = self._spine.summary.counted
        return self._times_of(counted, self._spine.events_of(counted))

    @cached_property
    def names(self) -> LayerNames:
        """The names of the models' layers, by the scopes of their calls."""
        rows = self.times.rows
        return {place.scope: rows.layers[place.row].path for place in rows.layer_places}

    @cached_property
    def _called(self) -> CalledScopes | None:
        """The scope that called each op, where names of ops do not tell."""
        return find_called_scopes(self._spine.trace, self._ops.runs.events)

    @cached_property
    def _products(self) -> tuple[Int64s, Floats]:
        """Products of PyTorch's, by the shapes that the trace has."""
        return product_flops(self._spine.trace, self._spine.parent)

    def _times_of(self, rows: Int64s, within: Bools) -> LayerTimes:
        spine = self._spine
        return hand_out_ops(
            self._ops.runs,
            within,
            self._ops.iterator > NOT_INPUT,
            self._xla.hlo,
            spine.recording.models,
            max(int(spine.steps.iterations[rows].sum()), 1),
            spine.summary.phase or "",
            self._called,
            self._products,
        )

    @cached_property
    def peaks(self) -> list[AllocatorPeak]:
        """Name what came and went at each allocator's peak, by kind and layer."""
        spine = self._spine
        models, phase = spine.recording.models, spine.summary.phase or ""
        alive = [tabulate_peak(spine.trace, one, spine.steps) for one in self._memory.allocators]
        names = {block.op_name.partition(":")[0] for blocks in alive for block in blocks}
        rows = LayerRows(models, sorted(names), phase)
        return [
            name_peak(one, blocks, rows)
            for one, blocks in zip(self._memory.allocators, alive, strict=True)
        ]

    @property
    def table(self) -> LayerTable:
        """The layers, with what is known of each now: limits of the CPU may be measured later."""
        roofline = self._bounds.roofline
        if self._tabulated is None or self._tabulated[0] is not roofline:
            self._tabulated = roofline, self._tabulate(self.times, roofline)
        return self._tabulated[1]

    def table_of(self, rows: Int64s, within: Bools) -> LayerTable:
        """The layers by the op time of a part of the trace, without what bounds them.

        Args:
            rows: The steps that a mean is of, as rows of ``Spine.steps``.
            within: True for events that count, shape (E,).
        """
        return self._tabulate(self._times_of(rows, within), None)

    def _tabulate(self, times: LayerTimes, roofline: OpRoofline | None) -> LayerTable:
        spine = self._spine
        has_gradients = bool(times.time_ps[:, :, LAYER_PARTS.index("backward")].any())
        largest = max(
            self._memory.allocators, key=lambda a: (a.is_device, int(a.in_use.max())), default=None
        )
        return tabulate_layers(
            times,
            [] if largest is None else tabulate_peak(spine.trace, largest, spine.steps),
            roofline,
            batch_size=None if spine.steps.is_window else spine.summary.batch_size,
            is_training=has_gradients or spine.summary.phase == "train",
            has_device=spine.program.has_device,
        )
