"""The ops of a trace."""

from functools import cached_property

from profnb.core.columns import Int64s
from profnb.steps.spine import Spine
from profnb.subjects.input.find import Input
from profnb.subjects.input.iterators import find_input_work
from profnb.subjects.ops.op_table import OpRuns, OpTable, find_op_runs, sum_op_runs
from profnb.subjects.xla.find import Xla


class Ops:
    """The ops of a trace, each value worked out when asked for."""

    def __init__(self, spine: Spine, xla: Xla, pipeline: Input) -> None:
        """Nothing is computed yet."""
        self._spine = spine
        self._xla = xla
        self._input = pipeline

    @cached_property
    def runs(self) -> OpRuns:
        """Every run of an op."""
        return find_op_runs(self._spine.trace, self._xla.hlo, self._spine.groups.step)

    @cached_property
    def table(self) -> OpTable:
        """The ops of the whole capture."""
        return sum_op_runs(self.runs)

    @cached_property
    def steady(self) -> OpTable:
        """The ops of the steps that averages are of and of what runs beside them; else of everything."""
        if not self._spine.has_steps:
            return self.table
        return sum_op_runs(self.runs, self._spine.in_scope)

    def of_steps(self, rows: Int64s) -> OpTable:
        """Sum up the ops of some steps only.

        Args:
            rows: The steps, as rows of ``Spine.steps``.
        """
        if rows is self._spine.summary.counted:
            return self._counted
        return sum_op_runs(self.runs, self._spine.events_of(rows))

    @cached_property
    def _counted(self) -> OpTable:
        return sum_op_runs(self.runs, self._spine.events_of(self._spine.summary.counted))

    @cached_property
    def iterator(self) -> Int64s:
        """The iterator of tf.data that each run worked for, or ``NOT_INPUT``, in the order of ``runs``."""
        trace, parent = self._spine.trace, self._spine.groups.parent
        return find_input_work(trace, self._input.iterators, parent, self.runs.events)
