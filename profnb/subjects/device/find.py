"""All that is found of the devices of a trace: kernels, copies, launches, streams, and why one was idle."""

from functools import cached_property

from profnb.steps.spine import Spine
from profnb.subjects.device.copies import CopyTable, tabulate_copies
from profnb.subjects.device.devices import DeviceTable, find_unused_gpus, tabulate_devices
from profnb.subjects.device.idle import IdleTable, attribute_idle
from profnb.subjects.device.kernels import KernelTable, tabulate_kernels
from profnb.subjects.device.launches import (
    LaunchTable,
    StreamTable,
    tabulate_launches,
    tabulate_streams,
)
from profnb.subjects.device.precision import Precision, measure_precision
from profnb.subjects.device.roofline import Peak, Roofline, draw_roofline, find_peak
from profnb.subjects.memory.find import Memory
from profnb.subjects.xla.find import Xla


class Devices:
    """The devices' part of a trace, each value worked out when asked for."""

    def __init__(self, spine: Spine, xla: Xla, memory: Memory) -> None:
        """Compute nothing yet."""
        self._spine, self._xla, self._memory = spine, xla, memory

    @cached_property
    def use(self) -> DeviceTable:
        """Busy time of each device."""
        return tabulate_devices(self._spine.trace, self._spine.steps)

    @cached_property
    def idle(self) -> IdleTable | None:
        """Idle time of the busiest device by cause; None without a device."""
        return attribute_idle(self._spine)

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """The GPUs that are there and that the steps do not use."""
        return find_unused_gpus(self._spine, self._memory)

    @cached_property
    def kernels(self) -> KernelTable:
        """The kernels of the whole capture."""
        return tabulate_kernels(self._spine.trace, self._xla.hlo)

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
        """Launches of each device's kernels."""
        return tabulate_launches(self._spine)

    @cached_property
    def streams(self) -> StreamTable:
        """Work of each stream."""
        return tabulate_streams(self._spine.trace, self._spine.steps)

    @cached_property
    def peak(self) -> Peak | None:
        """The limits of the busiest device; None where they are not known."""
        device = self._spine.program.device
        return None if device is None else find_peak(self._spine.trace.planes[device])

    @cached_property
    def roofline(self) -> Roofline | None:
        """XLA's ops against the limits of their device; None where those are not known."""
        return draw_roofline(self._xla.ops, self._xla.hlo, self.peak)
