"""What the devices of a trace did: kernels, copies, launches, streams, and why one was idle."""

from functools import cached_property

from profnb.steps.spine import Spine
from profnb.steps.streams import busiest_device
from profnb.subjects.device.copies import CopyTable, tabulate_copies
from profnb.subjects.device.devices import DeviceTable, tabulate_devices
from profnb.subjects.device.idle import IdleTable, attribute_idle
from profnb.subjects.device.kernels import KernelTable, tabulate_kernels
from profnb.subjects.device.launches import (
    LaunchTable,
    StreamTable,
    tabulate_launches,
    tabulate_streams,
)
from profnb.subjects.device.peaks import Peak, find_peak
from profnb.subjects.device.precision import Precision, measure_precision
from profnb.subjects.device.roofline import Roofline, draw_roofline
from profnb.subjects.device.unused import find_unused_gpus
from profnb.subjects.memory.find import Memory
from profnb.subjects.xla.find import Xla


class Devices:
    """The devices' part of a trace, each value worked out when asked for."""

    def __init__(self, spine: Spine, xla: Xla, memory: Memory) -> None:
        """Nothing is computed yet."""
        self._spine = spine
        self._xla = xla
        self._memory = memory

    @cached_property
    def use(self) -> DeviceTable:
        """How busy each device was."""
        return tabulate_devices(self._spine.trace, self._spine.steps)

    @cached_property
    def idle(self) -> IdleTable | None:
        """Why the busiest device was idle; None without a device."""
        spine = self._spine
        if busiest_device(spine.trace) is None:  # so that the host's pieces are not looked for
            return None
        return attribute_idle(
            spine.trace,
            spine.steps,
            spine.gaps,
            spine.summary.counted,
            spine.activities,
            spine.host_pieces,
        )

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """The GPUs that are there and that the steps do not use."""
        return find_unused_gpus(self._spine, self._memory)

    @cached_property
    def kernels(self) -> KernelTable:
        """The kernels of the whole capture."""
        return tabulate_kernels(self._spine.trace, hlo=self._xla.hlo)

    @cached_property
    def precision(self) -> Precision:
        """Kernel time by the width of the numbers."""
        return measure_precision(self._spine.trace, self._xla.hlo)

    @cached_property
    def copies(self) -> CopyTable:
        """The devices' copies of the whole capture."""
        return tabulate_copies(self._spine.trace)

    @cached_property
    def launches(self) -> LaunchTable:
        """How each device's kernels were launched."""
        spine = self._spine
        return tabulate_launches(spine.trace, spine.groups, len(spine.steps))

    @cached_property
    def streams(self) -> StreamTable:
        """What each stream ran."""
        steps = self._spine.steps
        window = (int(steps.begin_ps[0]), int(steps.end_ps[-1])) if len(steps) else (0, 0)
        return tabulate_streams(self._spine.trace, window)

    @cached_property
    def peak(self) -> Peak | None:
        """The limits of the busiest device; None where they are not known."""
        device = busiest_device(self._spine.trace)
        return None if device is None else find_peak(self._spine.trace.planes[device])

    @cached_property
    def roofline(self) -> Roofline | None:
        """XLA's ops against the limits of their device; None where those are not known."""
        return draw_roofline(self._xla.ops, self._xla.hlo, self.peak)
