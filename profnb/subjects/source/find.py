"""What each line of the user's source cost."""

from functools import cached_property

from profnb.steps.spine import Spine
from profnb.subjects.ops.find import Ops
from profnb.subjects.ops.op_table import runs_within
from profnb.subjects.source.source_charges import tabulate_source_lines
from profnb.subjects.source.source_lines import SourceLines
from profnb.subjects.xla.find import Xla

__all__ = ["Source"]


class Source:
    """The user's source in a trace, worked out when asked for."""

    def __init__(self, spine: Spine, xla: Xla, ops: Ops) -> None:
        """Nothing is computed yet."""
        self._spine = spine
        self._xla = xla
        self._ops = ops

    @cached_property
    def lines(self) -> SourceLines | None:
        """What each line of the user's source cost; None where the capture did not look at it.

        Times of ops are of the steps that averages are of, Python's of the whole capture; all of the whole
        capture where there are no steps.
        """
        records = self._spine.recording.source
        if records is None:
            return None
        runs, iterator = self._ops.runs, self._ops.iterator
        kept = self._spine.in_scope[runs.events]
        if kept.any():
            runs, iterator = runs_within(runs, kept), iterator[kept]
        return tabulate_source_lines(
            self._spine.trace,
            self._xla.hlo,
            runs,
            iterator,
            records,
            has_device=self._spine.has_device,
        )
