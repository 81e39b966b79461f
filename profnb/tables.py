"""The tables of a profile: each one a pandas DataFrame, made fresh on access.

Times are in the unit of the column's suffix and a missing value is NaN.
"""

import warnings
from typing import TYPE_CHECKING, Any

from profnb.core.table import TableOf

if TYPE_CHECKING:
    import pandas as pd

    from profnb.capture.recording import Recording
    from profnb.steps.step_times import StepTimes
    from profnb.subjects.python.python_time import PythonTime
    from profnb.subjects.study import Study
    from profnb.trace.model import Trace

__all__ = ["Tables"]


class Tables:
    """What ``Profile`` shows as tables."""

    recording: "Recording | None"

    if TYPE_CHECKING:

        @property
        def study(self) -> Study:
            """The analyses of the trace."""

        @property
        def trace(self) -> Trace:
            """The trace."""

        @property
        def _python(self) -> "PythonTime | None": ...

        @property
        def _step_times(self) -> StepTimes: ...

    kernels = TableOf("profnb.subjects.device.kernels", "KERNELS", "study.device.kernels")
    copies = TableOf("profnb.subjects.device.copies", "COPIES", "study.device.copies")
    precision = TableOf("profnb.subjects.device.precision", "PRECISION", "study.device.precision")
    devices = TableOf("profnb.subjects.device.devices", "DEVICES", "study.device.use")
    device_steps = TableOf("profnb.subjects.device.devices", "DEVICE_STEPS", "study")
    idle = TableOf("profnb.subjects.device.idle", "IDLE", "study.device.idle")
    utilization = TableOf("profnb.subjects.device.idle", "UTILIZATION", "study.device.idle")
    launches = TableOf("profnb.subjects.device.launches", "LAUNCHES", "study.device.launches")
    streams = TableOf("profnb.subjects.device.launches", "STREAMS", "study.device.streams")
    roofline = TableOf("profnb.subjects.device.roofline", "ROOFLINE", "study.device.roofline")
    xla = TableOf("profnb.subjects.xla.xla_ops", "XLA", "study.xla.ops")
    xla_modules = TableOf("profnb.subjects.xla.xla_modules", "XLA_MODULES", "study.xla.modules")
    layers = TableOf("profnb.subjects.layers.layer_table", "LAYERS", "study.layers.table")
    source_lines = TableOf(
        "profnb.subjects.source.source_lines", "SOURCE_LINES", "study.source.lines"
    )
    python = TableOf("profnb.subjects.python.python_time", "PYTHON", "_python")

    @property
    def utilisation(self) -> "pd.DataFrame":
        """What ``utilization`` was called one release ago."""
        warnings.warn("p.utilisation is called p.utilization now.", FutureWarning, stacklevel=2)
        return self.utilization

    @property
    def steps(self) -> "pd.DataFrame":
        """One row per traced step.

        Columns: ``step_num, phase, begin_ms, duration_ms, gap_ms, is_warmup, iterations`` and one
        ``<category>_ms`` per category; the nine categories sum to the duration. ``gap_ms`` is the
        time to the next step, NaN for the last. Without a device in the trace, categories that only
        a device has are NaN.
        """
        from profnb.frames.steps import step_frame

        study = self.study
        return step_frame(study.steps, study.breakdown, has_device=study.has_device)

    @property
    def step_times(self) -> "pd.DataFrame":
        """One row per step the code ran, traced or not: ``step_num, phase, wall_ms, was_traced``."""
        from profnb.frames.steps import step_time_frame

        return step_time_frame(self._step_times)

    @property
    def ops(self) -> "pd.DataFrame":
        """One row per op and side, most self time first.

        Columns: ``side, op_type, op_name, occurrences, total_us, self_us, self_fraction``.
        """
        from profnb.frames.steps import op_frame

        return op_frame(self.study.ops.table)

    @property
    def input_pipeline(self) -> "pd.DataFrame":
        """One row per iterator of tf.data, the outermost first; see ``analysis.input.pipeline``.

        Columns: ``iterator, kind, dataset, function, depth, calls, total_us, self_us, mean_us, max_us,
        function_runs, function_us, function_ops, is_async, is_blocking, waited_us, waited_fraction,
        parallelism, is_autotuned, buffer_capacity, buffered_mean, empty_fraction, elements_per_second``.
        ``waited_us`` is the training's waiting charged to the iterator; it sums to all waiting.
        ``elements_per_second`` is what the iterator could deliver if its input kept up. What the trace
        does not tell is NaN, or "" for names.
        """
        from profnb.frames.input import input_pipeline_frame

        return input_pipeline_frame(self.study.input.pipeline, self.study.input.functions)

    @property
    def input_waits(self) -> "pd.DataFrame":
        """One row per step: ``step_num, wait_ms, period_ms, wait_fraction, is_counted``.

        The period runs to the next step's begin; the wait is for the next element of tf.data. Averages and
        the diagnosis leave out what is not counted: warm-up, and the step in which the first element came.
        """
        from profnb.frames.input import input_wait_frame

        return input_wait_frame(self.study.steps, self.study.input.waiting)

    @property
    def buffers(self) -> "pd.DataFrame":
        """How full tf.data's buffers are: ``iterator, time_ms, buffered_elements, capacity``.

        One row per time that an iterator with a buffer was asked; NaN where it has no fixed capacity.
        """
        from profnb.frames.input import buffer_frame

        return buffer_frame(self.study.input.buffers, self.study.input.buffer_capacity)

    @property
    def memory_peak(self) -> "pd.DataFrame":
        """What was alive when most memory was in use, per allocator, most bytes first.

        Columns: ``allocator, op_name, region, dtype, shape, bytes, occurrences, is_persistent, time_ms``. The
        rows of an allocator sum to the bytes in use; what was allocated before the trace began has no
        name and stands in a row of its own. Persistent is what outlives the step on both sides.
        """
        from profnb.frames.memory import memory_peak_frame

        return memory_peak_frame(self.trace, self.study.memory.allocators, self.study.steps)

    @property
    def memory_summary(self) -> "pd.DataFrame":
        """One row per allocator.

        Columns: ``allocator, peak_bytes, peak_ms, lifetime_peak_bytes, base_bytes`` (held between steps)``,
        limit_bytes, fragmentation`` (at the peak)``, growth_bytes_per_step, growth_op, batch_size,
        largest_batch_size`` (an estimate: what comes and goes in a step grows with the batch, up to 95 % of
        the limit). What is not known is NaN.
        """
        from profnb.frames.memory import memory_summary_frame

        return memory_summary_frame(self.study.memory.use)

    @property
    def memory(self) -> "pd.DataFrame":
        """One row per allocator and sample.

        Columns: ``allocator, time_ms, in_use_bytes, reserved_bytes, fragmentation``. From the
        allocators' own events (XPlane), from the allocations of session runs (TF1), or from the counters of
        a Chrome trace; no row where there are none, NaN where only the use is known.
        """
        from profnb.frames.memory import memory_frame

        return memory_frame(self.trace, self.study.memory.allocators)

    @property
    def events(self) -> "pd.DataFrame":
        """One row per event: ``plane, line, name, begin_us, duration_us, self_us, step_num``."""
        from profnb.frames.steps import event_frame

        return event_frame(self.trace, self.study.steps, self.study.groups)

    def tfprof(self, view: str = "scope", graph: Any = None) -> "pd.DataFrame":
        """A view of tfprof's on session runs (TF1); see ``frames.graph_runs.tfprof_frame`` for its columns.

        Args:
            view: "scope", "graph", "op" or "code".
            graph: The graph that ran; a capture knows it.
        """
        from profnb.tf1.tfprof_table import tfprof_frame

        if graph is None and self.recording is not None:
            graph = self.recording.graph
        return tfprof_frame(self.trace, view, graph)
