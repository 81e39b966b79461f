"""The tables of a profile on devices and on XLA; see ``tables``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from profnb.subjects.study import Study

__all__ = ["DeviceTables"]


class DeviceTables:
    """What ``Profile`` shows of devices and XLA as tables; without a device most have no row."""

    if TYPE_CHECKING:

        @property
        def study(self) -> Study:
            """The analyses of the trace."""

    @property
    def kernels(self) -> "pd.DataFrame":
        """One row per kernel, op and launch shape, most time first; no row without a device.

        Columns: ``kernel_name, op_name, op_type, occurrences, total_us, mean_us, min_us, max_us, fraction,
        registers_per_thread, static_shared_bytes, dynamic_shared_bytes, grid, block, occupancy_percent,
        uses_tensor_core, is_tensor_core_eligible``. What the trace does not tell is NaN, or "" for the
        grid and block; ``fraction`` is of all kernel time.
        """
        from profnb.frames.device import kernel_frame

        return kernel_frame(self.study.kernels)

    @property
    def copies(self) -> "pd.DataFrame":
        """One row per direction and kinds of memory of a device's copies, most time first.

        Columns: ``direction, source_kind, destination_kind, occurrences, total_us, bytes,
        gigabytes_per_second``. Kinds are "pageable", "pinned", "device", or "" where the trace does not
        say; bytes and bandwidth are of the copies that tell their size, NaN if none does.
        """
        from profnb.frames.device import copy_frame

        return copy_frame(self.study.copies)

    @property
    def precision(self) -> "pd.DataFrame":
        """Kernel time by the width of the numbers: ``width, occurrences, total_us, fraction``.

        Widths are "8-bit", "16-bit" (half and bfloat16), "TF32", "32-bit", "64-bit", and "unknown" where
        neither the kernel's name nor its op's shape tells.
        """
        from profnb.frames.device import precision_frame

        return precision_frame(self.study.precision)

    @property
    def devices(self) -> "pd.DataFrame":
        """One row per device that ran something, inside the steps' window, by the wall clock.

        Columns: ``device, busy_us, compute_us, copy_us, collective_us, hidden_collective_fraction,
        utilisation_fraction``. Work that overlaps on several streams counts once; collectives are hidden
        where compute runs as well (NaN without any).
        """
        from profnb.frames.device import device_frame

        return device_frame(self.study.devices)

    @property
    def idle(self) -> "pd.DataFrame":
        """Why the busiest device was idle between the first step's begin and the last one's end.

        Columns: ``cause, occurrences, total_us, longest_us, idle_fraction, window_fraction``, one row per
        cause (see ``analysis.idle``); the totals add up to the idle time exactly. No row without a
        device.
        """
        from profnb.frames.device import idle_frame

        return idle_frame(self.study.idle)

    @property
    def utilisation(self) -> "pd.DataFrame":
        """What the busiest device did over time, and why it was idle.

        One row per piece of the window from the first step's begin to the last one's end (at most 96):
        ``begin_ms`` and a ``..._fraction`` for compute, collectives, copies and each cause of idle time;
        each row sums to 1.
        """
        from profnb.frames.device import utilisation_frame

        return utilisation_frame(self.study.idle)

    @property
    def device_steps(self) -> "pd.DataFrame":
        """One row per device and step: ``device, step_num, duration_ms`` and one ``<category>_ms`` each.

        Only the work of that device counts in its rows; ``steps`` shows the busiest one's. Each row's
        categories sum to its duration.
        """
        from profnb.frames.device import device_step_frame

        return device_step_frame(self.study.steps, self.study.device_breakdowns)

    @property
    def launches(self) -> "pd.DataFrame":
        """One row per device that ran kernels: how they were launched.

        Columns: ``device, kernels, kernels_per_step`` (median)``, launch_us`` (median time of the launching
        call)``, delay_us, delay_p95_us`` (from its end to the kernel's begin)``, launched_fraction`` (of the
        kernels, those whose launch was recorded)``, tiny_fraction`` (shorter than 10 us)``,
        shorter_than_launch_fraction``.
        """
        from profnb.frames.device import launch_frame

        return launch_frame(self.study.launches)

    @property
    def streams(self) -> "pd.DataFrame":
        """One row per stream: ``device, stream, kernels, copies, busy_us, busy_fraction`` of the window."""
        from profnb.frames.device import stream_frame

        return stream_frame(self.study.streams, self.study.devices.window_ps)

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

        return xla_frame(self.study.xla)

    @property
    def xla_modules(self) -> "pd.DataFrame":
        """One row per XLA program: what it cost to compile, to run and to hold.

        Columns: ``module, program_id, executions, self_us, compilations, compile_ms, instructions,
        argument_bytes, output_bytes, constant_bytes, temporary_bytes``. ``compile_ms`` is NaN if it was not
        compiled while the trace ran, sizes where the program is not saved in the trace.
        """
        from profnb.frames.xla import xla_module_frame

        return xla_module_frame(self.study.xla_modules)

    @property
    def roofline(self) -> "pd.DataFrame":
        """XLA's ops against the limits of their device, most time first; see ``analysis.peaks``.

        Columns: ``hlo_op, op_name, width, flops_per_byte, gigaflops_per_second, gigabytes_per_second,
        peak_gigaflops_per_second, peak_gigabytes_per_second, flops_fraction, bytes_fraction,
        attained_fraction`` (of what can be reached with that many operations per byte)``, bound_by``. No row
        where the limits of the device, or an op's operations and bytes, are not known.
        """
        from profnb.frames.xla import roofline_frame

        return roofline_frame(self.study.xla, self.study.roofline)
