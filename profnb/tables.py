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

    steps = TableOf("profnb.steps.step_tables", "STEPS", "study")
    step_times = TableOf("profnb.steps.step_tables", "STEP_TIMES", "_step_times")
    events = TableOf("profnb.steps.step_tables", "EVENTS", "study")
    ops = TableOf("profnb.subjects.ops.op_table", "OPS", "study.ops.table")
    input_pipeline = TableOf(
        "profnb.subjects.input.pipeline", "INPUT_PIPELINE", "study.input.pipeline"
    )
    input_waits = TableOf("profnb.subjects.input.waiting", "INPUT_WAITS", "study.input.waiting")
    buffers = TableOf("profnb.subjects.input.buffers", "BUFFERS", "study.input.buffer_samples")
    memory_peak = TableOf("profnb.subjects.memory.peak", "MEMORY_PEAK", "study.memory.peak")
    memory_summary = TableOf("profnb.subjects.memory.use", "MEMORY_SUMMARY", "study.memory.use")
    memory = TableOf("profnb.subjects.memory.samples", "MEMORY", "study.memory.samples")
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

    @property
    def utilisation(self) -> "pd.DataFrame":
        """What ``utilization`` was called one release ago."""
        warnings.warn("p.utilisation is called p.utilization now.", FutureWarning, stacklevel=2)
        return self.utilization

    @property
    def xla(self) -> "pd.DataFrame":
        """One row per XLA op (an HLO instruction that ran as one piece) and side, most self time first.

        Columns: ``module, program_id, hlo_op, category, op_name, op_type, source, side, occurrences,
        total_us, self_us, fraction, flops, bytes, gigaflops_per_second, gigabytes_per_second``.
        Operations and bytes are those of one run, as XLA recorded them or from the shapes in the saved
        program; NaN where neither is known. ``op_name`` is the framework's op, ``source`` the user's
        "file:line".
        """
        from profnb.frames.xla import xla_frame

        return xla_frame(self.study.xla.ops)

    @property
    def xla_modules(self) -> "pd.DataFrame":
        """One row per XLA program: what it cost to compile, to run and to hold.

        Columns: ``module, program_id, executions, self_us, compilations, compile_ms, instructions,
        argument_bytes, output_bytes, constant_bytes, temporary_bytes``. ``compile_ms`` is NaN if it was not
        compiled while the trace ran, sizes where the program is not saved in the trace.
        """
        from profnb.frames.xla import xla_module_frame

        return xla_module_frame(self.study.xla.modules)

    @property
    def layers(self) -> "pd.DataFrame":
        """One row per layer in the order of the model, then name scopes, then what is neither.

        Columns: ``layer, layer_type, forward_us, backward_us, update_us, recomputation_us, other_us,
        total_us, with_parts_us`` (the layers inside it too)``, fraction, host_us, device_us, occurrences``
        (runs of ops)``, parameters`` (its own; those of a model sum to ``count_params()``)``, output_shape,
        flops`` (of a step, both ways)``, flops_forward, flops_backward, gigaflops_per_second, peak_bytes,
        is_shared, is_estimate``.

        Times are of all counted steps together; ``attrs["steps"]`` is how many. The rows sum to the op time
        of those steps: the device's where there is one (``attrs["side"]``), else the host's. Rows that are
        no layers: loss, metrics, optimizer (updates of nobody knows whose weights), input, outside the model.
        What is not known is NaN or "". See ``analysis.layers.times`` and ``analysis.layers.flops``.
        """
        from profnb.frames.layers import layer_frame

        return layer_frame(self.study.layers.table)

    @property
    def source_lines(self) -> "pd.DataFrame":
        """One row per line of the user's own source that cost anything, most op time first.

        Columns: ``file, line, source, host_us, device_us`` (self time of the ops it made; with the row of no
        file they add up to all ops')``, python_us`` (at the line without TensorFlow)``, wall_us, forward_us,
        backward_us, gradient_us`` (asked for here, charged to the lines that caused it)``, fraction, runs,
        op_runs``. No row for a saved trace or without ``source``; what was not watched is NaN.
        """
        from profnb.frames.lines import source_line_frame

        return source_line_frame(self.study.source.lines, has_device=self.study.has_device)

    @property
    def python(self) -> "pd.DataFrame":
        """One row per function of Python, most self time first; with ``python=True`` or of a ``.prof`` file.

        Columns: ``function, file, line, is_user, samples, calls, self_ms, total_ms, inside_steps_ms,
        between_steps_ms``. Times are of the main thread, TensorFlow's own work and waiting included; a
        sampled function has no ``calls``, a counted one no ``samples``.
        """
        from profnb.frames.lines import python_frame

        return python_frame(self._python)

    def tfprof(self, view: str = "scope", graph: Any = None) -> "pd.DataFrame":
        """A view of tfprof's on session runs (TF1); columns: ``profnb.tf1.tfprof_table``.

        Args:
            view: "scope", "graph", "op" or "code".
            graph: The graph that ran; a capture knows it.
        """
        from profnb.tf1.tfprof_table import tfprof_frame

        if graph is None and self.recording is not None:
            graph = self.recording.graph
        return tfprof_frame(self.trace, view, graph)
