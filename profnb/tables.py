"""The tables of a profile: each one a pandas DataFrame, made fresh on access.

Times are in the unit of the column's suffix and a missing value is NaN.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from profnb.analysis.step_times import StepTimes
    from profnb.analysis.study import Study
    from profnb.capture.recording import Recording
    from profnb.trace.model import Trace

__all__ = ["Tables"]


class Tables:
    """What ``Profile`` shows as tables."""

    recording: "Recording | None"

    if TYPE_CHECKING:

        @property
        def trace(self) -> Trace:
            """The trace."""

        @property
        def study(self) -> Study:
            """Its analyses."""

        @property
        def _step_times(self) -> StepTimes: ...

    @property
    def steps(self) -> "pd.DataFrame":
        """One row per traced step.

        Columns: ``step_num, phase, begin_ms, duration_ms, gap_ms, is_warmup, iterations`` and one
        ``<category>_ms`` per category; the nine categories sum to the duration. ``gap_ms`` is the
        time to the next step, NaN for the last. Without a device in the trace, categories that only
        a device has are NaN.
        """
        from profnb.frames import step_frame

        study = self.study
        return step_frame(study.steps, study.breakdown, has_device=study.has_device)

    @property
    def step_times(self) -> "pd.DataFrame":
        """One row per step the code ran, traced or not: ``step_num, phase, wall_ms, was_traced``."""
        from profnb.frames import step_time_frame

        return step_time_frame(self._step_times)

    @property
    def ops(self) -> "pd.DataFrame":
        """One row per op and side, most self time first.

        Columns: ``side, op_type, op_name, occurrences, total_us, self_us, self_fraction``.
        """
        from profnb.frames import op_frame

        return op_frame(self.study.ops)

    @property
    def kernels(self) -> "pd.DataFrame":
        """One row per kernel, op and launch shape, most time first; no row without a device.

        Columns: ``kernel_name, op_name, op_type, occurrences, total_us, mean_us, min_us, max_us, fraction,
        registers_per_thread, static_shared_bytes, dynamic_shared_bytes, grid, block, occupancy_percent,
        uses_tensor_core, is_tensor_core_eligible``. What the trace does not tell is NaN, or "" for the
        grid and block; ``fraction`` is of all kernel time.
        """
        from profnb.frames import kernel_frame

        return kernel_frame(self.study.kernels)

    @property
    def copies(self) -> "pd.DataFrame":
        """One row per direction and kinds of memory of a device's copies, most time first.

        Columns: ``direction, source_kind, destination_kind, occurrences, total_us, bytes,
        gigabytes_per_second``. Kinds are "pageable", "pinned", "device", or "" where the trace does not
        say; bytes and bandwidth are of the copies that tell their size, NaN if none does.
        """
        from profnb.frames import copy_frame

        return copy_frame(self.study.copies)

    @property
    def memory(self) -> "pd.DataFrame":
        """One row per allocator and sample: ``allocator, time_ms, in_use_bytes, reserved_bytes``.

        From the allocators' own events (XPlane), from the allocations of session runs (TF1), or from the
        counters of a Chrome trace; no row where there are none, NaN where only the use is known.
        """
        from profnb.frames import memory_frame

        return memory_frame(self.trace)

    @property
    def precision(self) -> "pd.DataFrame":
        """Kernel time by the width of the numbers: ``width, occurrences, total_us, fraction``.

        Widths are "8-bit", "16-bit" (half and bfloat16), "TF32", "32-bit", "64-bit", and "unknown" where
        neither the kernel's name nor its op's shape tells.
        """
        from profnb.frames import precision_frame

        return precision_frame(self.study.precision)

    @property
    def devices(self) -> "pd.DataFrame":
        """One row per device that ran something, inside the steps' window, by the wall clock.

        Columns: ``device, busy_us, compute_us, copy_us, collective_us, hidden_collective_fraction,
        utilisation_fraction``. Work that overlaps on several streams counts once; collectives are hidden
        where compute runs as well (NaN without any).
        """
        from profnb.frames import device_frame

        return device_frame(self.study.devices)

    @property
    def idle(self) -> "pd.DataFrame":
        """Why the busiest device was idle between the first step's begin and the last one's end.

        Columns: ``cause, occurrences, total_us, longest_us, idle_fraction, window_fraction``, one row per
        cause (see ``analysis.idle``); the totals add up to the idle time exactly. No row without a
        device.
        """
        from profnb.frames import idle_frame

        return idle_frame(self.study.idle)

    @property
    def events(self) -> "pd.DataFrame":
        """One row per event: ``plane, line, name, begin_us, duration_us, self_us, step_num``."""
        from profnb.frames import event_frame

        return event_frame(self.trace, self.study.steps, self.study.groups)

    def tfprof(self, view: str = "scope", graph: Any = None) -> "pd.DataFrame":
        """A view of tfprof's on session runs (TF1); see ``frames.tfprof_frame`` for its columns.

        Args:
            view: "scope", "graph", "op" or "code".
            graph: The graph that ran; a capture knows it.
        """
        from profnb.frames import tfprof_frame

        if graph is None and self.recording is not None:
            graph = self.recording.graph
        return tfprof_frame(self.trace, view, graph)
