"""The table of layers."""

import numpy as np
import pandas as pd

from profnb.core.units import PS_PER_US
from profnb.subjects.layers.layer_rows import PHASES
from profnb.subjects.layers.layer_table import LayerTable

__all__ = ["layer_frame"]


def layer_frame(table: LayerTable) -> pd.DataFrame:
    """One row per layer, scope, and what is neither; see ``Tables.layers``."""
    columns: dict[str, object] = {
        "layer": list(table.layer),
        "layer_type": list(table.layer_type),
    }
    for number, phase in enumerate(PHASES):
        columns[f"{phase}_us"] = table.phases_ps[:, number] / PS_PER_US
    is_missing = table.side == "host"
    frame = pd.DataFrame(
        {
            **columns,
            "total_us": table.total_ps / PS_PER_US,
            "with_parts_us": table.with_parts_ps / PS_PER_US,
            "fraction": table.fraction,
            "host_us": table.host_ps / PS_PER_US,
            "device_us": np.nan if is_missing else table.device_ps / PS_PER_US,
            "occurrences": table.occurrences,
            "parameters": table.parameters,
            "output_shape": list(table.output_shape),
            "flops": table.flops.sum(axis=1),
            "flops_forward": table.flops[:, 0],
            "flops_backward": table.flops[:, 1],
            "gigaflops_per_second": table.flops_per_second / 1e9,
            "peak_bytes": table.peak_bytes,
            "is_shared": table.is_shared,
            "is_estimate": table.is_estimate,
        }
    )
    frame.attrs.update(steps=table.steps, side=table.side, remarks=list(table.remarks))
    return frame
