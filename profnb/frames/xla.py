"""Tables of XLA's programs and ops."""

import numpy as np
import pandas as pd

from profnb.core.columns import Floats
from profnb.core.units import PS_PER_MS, PS_PER_US
from profnb.subjects.device.roofline import Roofline
from profnb.subjects.xla.programs import XlaModules, XlaOps

__all__ = ["roofline_frame", "xla_frame", "xla_module_frame"]

_BUFFERS = ("argument", "output", "constant", "temporary")


def xla_frame(ops: XlaOps) -> pd.DataFrame:
    """One row per HLO instruction and side, most self time first."""
    return pd.DataFrame(
        {
            "module": [op.module for op in ops.op],
            "program_id": [op.program_id for op in ops.op],
            "hlo_op": [op.name for op in ops.op],
            "category": [op.category for op in ops.op],
            "op_name": [op.op_name for op in ops.op],
            "op_type": [op.key[1] if op.op_name else "" for op in ops.op],
            "source": [op.source for op in ops.op],
            "side": np.where(ops.is_device, "device", "host"),
            "occurrences": ops.occurrences,
            "total_us": ops.total_ps / PS_PER_US,
            "self_us": ops.self_ps / PS_PER_US,
            "fraction": ops.fraction,
            "flops": ops.flops,
            "bytes": ops.bytes,
            "gigaflops_per_second": ops.flops_per_second / 1e9,
            "gigabytes_per_second": ops.bytes_per_second / 1e9,
        }
    )


def xla_module_frame(modules: XlaModules) -> pd.DataFrame:
    """One row per program that was compiled or ran."""

    def known(values: Floats) -> Floats:
        return np.where(values > 0, values, np.nan)

    columns: dict[str, object] = {
        "module": list(modules.module),
        "program_id": list(modules.program_id),
        "executions": known(modules.executions.astype(np.float64)),
        "self_us": modules.self_ps / PS_PER_US,
        "compilations": modules.compilations,
        "compile_ms": known(modules.compile_ps / PS_PER_MS),
        "instructions": known(modules.instructions.astype(np.float64)),
    }
    for kind in _BUFFERS:
        sizes = [np.nan if b is None else float(b[kind]) for b in modules.buffers]
        columns[f"{kind}_bytes"] = np.array(sizes, np.float64)
    return pd.DataFrame(columns)


def roofline_frame(ops: XlaOps, roofline: Roofline | None) -> pd.DataFrame:
    """One row per op that can be placed under its device's roof."""
    if roofline is None:
        return pd.DataFrame(
            columns=[
                "hlo_op", "op_name", "width", "flops_per_byte", "gigaflops_per_second",
                "gigabytes_per_second", "peak_gigaflops_per_second", "peak_gigabytes_per_second",
                "flops_fraction", "bytes_fraction", "attained_fraction", "bound_by",
            ]
        )  # fmt: skip
    return pd.DataFrame(
        {
            "hlo_op": [ops.op[row].name for row in roofline.row],
            "op_name": [ops.op[row].op_name for row in roofline.row],
            "width": list(roofline.width),
            "flops_per_byte": roofline.intensity,
            "gigaflops_per_second": roofline.flops_per_second / 1e9,
            "gigabytes_per_second": roofline.bytes_per_second / 1e9,
            "peak_gigaflops_per_second": roofline.peak_flops / 1e9,
            "peak_gigabytes_per_second": roofline.peak.bytes_per_second / 1e9,
            "flops_fraction": roofline.flops_fraction,
            "bytes_fraction": roofline.bytes_fraction,
            "attained_fraction": roofline.attained_fraction,
            "bound_by": np.where(roofline.is_compute_bound, "compute", "memory"),
        }
    )
