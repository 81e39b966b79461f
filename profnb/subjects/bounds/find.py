"""All that is found of the bounds of ops in a trace: their costs, the limits, and their roofline."""

from functools import cached_property

import numpy as np

from profnb.capture.source.source_records import GraphShapes
from profnb.steps.spine import Spine
from profnb.steps.streams import working_devices
from profnb.subjects.bounds.measured_peak import kept_peak
from profnb.subjects.bounds.op_costs import Cost, find_costs
from profnb.subjects.bounds.op_roofline import OpRoofline, place_ops
from profnb.subjects.bounds.tensor_sizes import find_recorded_shapes
from profnb.subjects.device.find import Devices
from profnb.subjects.device.roofline import Peak
from profnb.subjects.input.iterators import NOT_INPUT
from profnb.subjects.ops.find import Ops
from profnb.subjects.ops.op_execution import EAGER
from profnb.subjects.ops.op_table import OpTable, runs_within, sum_op_runs
from profnb.subjects.xla.find import Xla

_CASTING = "AutoMixedPrecision"  # casts that TensorFlow itself puts in: the graph's widths are not what ran


class Bounds:
    """Ops under their roof, worked out when asked for."""

    def __init__(self, spine: Spine, xla: Xla, device: Devices, ops: Ops) -> None:
        """Compute nothing yet."""
        self._spine, self._xla, self._device, self._ops = spine, xla, device, ops
        self._placed: tuple[Peak | None, OpRoofline | None] | None = None

    @property
    def peak(self) -> Peak | None:
        """The limits of what the steps run on: the busiest device, else the CPU of this machine.

        Of a CPU they are known once they were measured, and for what this process captured.
        """
        if self._spine.program.has_device:
            return self._device.peak
        measured = kept_peak()
        return measured.peak if measured is not None and self.is_of_here else None

    @property
    def is_of_here(self) -> bool:
        """True if this process captured the trace, and so on this machine."""
        recording = self._spine.recording
        return recording.path is not None or bool(recording.graph_runs)

    @property
    def roofline(self) -> OpRoofline | None:
        """The ops of the counted steps under the limits known now; None where no op's cost is known."""
        peak = self.peak
        if self._placed is None or self._placed[0] != peak:
            is_device = self._spine.program.has_device
            costs = self.costs
            placed = place_ops(self.ops, costs, peak, is_device=is_device) if costs else None
            self._placed = peak, placed
        return self._placed[1]

    @cached_property
    def ops(self) -> OpTable:
        """The ops of the counted steps that TensorFlow ran itself and that feed no pipeline."""
        spine, runs = self._spine, self._ops.runs
        counted = spine.summary.counted
        within = spine.events_of(counted) if counted.size else spine.in_scope
        kept = within[runs.events] & (self._ops.iterator == NOT_INPUT)
        if len(self._xla.hlo):
            kept &= self._xla.hlo.codes_of(runs.events) < 0
        return sum_op_runs(runs_within(runs, kept))

    @cached_property
    def graphs(self) -> list[GraphShapes]:
        """The graphs that may have run: of a function that the trace names, or that another one calls."""
        source, texts = self._spine.recording.source, self._spine.trace.names.texts
        if source is None:
            return []
        ran = {text.removeprefix(EAGER) for text in texts if text.startswith(EAGER)}
        ran |= {name for one in source.graphs for called in one.calls.values() for name in called}
        return [one for one in source.shapes if not one.function or one.function in ran]

    @cached_property
    def costs(self) -> dict[tuple[str, str], Cost]:
        """Operations and bytes of one run of each op, by name and type, of those of which they are known."""
        spine = self._spine
        if not self.graphs:
            return {}
        rows = np.flatnonzero(self.ops.is_device == spine.program.has_device).tolist()
        keys = [(self.ops.op_name[row], self.ops.op_type[row]) for row in rows]
        if any(_CASTING in name for name, _ in keys):
            return {}
        is_one = len(working_devices(spine.trace)) <= 1  # several share a batch
        batch = spine.summary.batch_size if is_one and not spine.steps.is_window else None
        return find_costs(keys, self.graphs, batch, find_recorded_shapes(spine.trace))
