"""The cost of each line of the user's source."""

from functools import cached_property

import numpy as np

from profnb.capture.source.source_records import SourceRecords
from profnb.core.columns import Bools, Int64s
from profnb.steps.spine import Spine
from profnb.subjects.ops.find import Ops
from profnb.subjects.ops.op_table import runs_within
from profnb.subjects.source.range_table import RangeTable, tabulate_ranges
from profnb.subjects.source.source_lines import SourceLines, tabulate_source_lines
from profnb.subjects.source.torch_lines import StackLines, find_stack_lines
from profnb.subjects.xla.find import Xla


class Source:
    """The user's source in a trace, worked out when asked for."""

    def __init__(self, spine: Spine, xla: Xla, ops: Ops) -> None:
        """Nothing is computed yet."""
        self._spine = spine
        self._xla = xla
        self._ops = ops

    @cached_property
    def ranges(self) -> RangeTable:
        """The host's and the devices' time in each range that the user marked."""
        return tabulate_ranges(self._spine, self._xla.hlo)

    @cached_property
    def lines(self) -> SourceLines | None:
        """The cost of each line of the user's source; None where the capture did not look at it.

        Times are of the steps that averages are of; of the whole capture where there are none, or where they
        ran no op.
        """
        return self.lines_without(np.zeros(len(self._spine.trace.events), np.bool_))

    def lines_without(self, left_out: Bools) -> SourceLines | None:
        """Give the same without the ops of some events, shape (E,)."""
        spine = self._spine
        if not self._has_scope:
            return self.lines_of(~left_out)
        return self.lines_of(spine.in_scope & ~left_out, spine.loop_times(spine.summary.counted))

    @property
    def scope(self) -> str:
        """The scope of the lines' times, in words."""
        return self._spine.scope if self._has_scope else "the whole capture"

    @cached_property
    def _has_scope(self) -> bool:
        spine = self._spine
        return spine.has_steps and bool(spine.in_scope[self._ops.runs.events].any())

    @cached_property
    def _stacks(self) -> StackLines | None:
        """The trace's own stacks, where the capture did not follow the user's lines."""
        records = self._spine.recording.source
        if records is not None and len(records.lines):
            return None
        return find_stack_lines(self._spine.trace)

    def lines_of(
        self, within: Bools, times_ps: tuple[Int64s, Int64s] | None = None
    ) -> SourceLines | None:
        """Work out what each line cost in a part of the trace; None where the capture did not look at lines.

        Args:
            within: Which events count, shape (E,).
            times_ps: Begins and ends of what Python's time is of; None for the whole capture.
        """
        records = self._spine.recording.source
        if records is None and self._stacks is None:
            return None
        kept = within[self._ops.runs.events]
        return tabulate_source_lines(
            self._spine.trace,
            self._xla.hlo,
            runs_within(self._ops.runs, kept),
            self._ops.iterator[kept],
            records or SourceRecords(),
            has_device=self._spine.program.has_device,
            within=times_ps,
            stacks=self._stacks,
            untraced=self._spine.clock,
        )
