"""The tables of a profile on devices and on XLA; see ``tables``."""

import warnings
from typing import TYPE_CHECKING

from profnb.core.table import TableOf

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
