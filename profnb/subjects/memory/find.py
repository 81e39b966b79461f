"""The allocators of a trace: their use over time, at the peak, and what grows."""

from functools import cached_property

from profnb.steps.spine import Spine
from profnb.subjects.memory.allocators import (
    Allocator,
    MemorySamples,
    find_allocators,
    tabulate_samples,
)
from profnb.subjects.memory.peak import (
    MemoryUse,
    OpMemory,
    PeakRow,
    measure_memory,
    tabulate_op_memory,
    tabulate_peak,
    tabulate_run_peaks,
)


class Memory:
    """The allocators' part of a trace, each value worked out when asked for."""

    def __init__(self, spine: Spine) -> None:
        """Nothing is computed yet."""
        self._spine = spine

    @cached_property
    def allocators(self) -> list[Allocator]:
        """The allocators of memory."""
        return find_allocators(self._spine.trace)

    @cached_property
    def samples(self) -> MemorySamples | None:
        """Bytes that each allocator held and had reserved over time; None where nothing was recorded."""
        return tabulate_samples(self._spine.trace, self.allocators)

    @cached_property
    def peak(self) -> list[PeakRow]:
        """The blocks that were alive at each allocator's peak; of session runs the ops that held them."""
        trace, steps = self._spine.trace, self._spine.steps
        if not self.allocators:
            return tabulate_run_peaks(trace)
        return [row for one in self.allocators for row in tabulate_peak(trace, one, steps)]

    @cached_property
    def ops(self) -> list[OpMemory]:
        """The memory that each op of session runs allocated."""
        return tabulate_op_memory(self._spine.trace)

    @cached_property
    def use(self) -> list[MemoryUse]:
        """Each allocator's peak, and its growth."""
        spine = self._spine
        context = spine.steps, spine.batch_size
        return [measure_memory(spine.trace, allocator, *context) for allocator in self.allocators]
