"""Tables of the user's source lines and of Python's functions."""

import numpy as np
import pandas as pd

from profnb.core.columns import Floats, Int64s
from profnb.core.units import PS_PER_US
from profnb.subjects.source.source_lines import SourceLines

__all__ = ["source_line_frame"]

_COLUMNS = [
    "file", "line", "source", "host_us", "device_us", "python_us", "wall_us", "forward_us", "backward_us",
    "gradient_us", "fraction", "runs", "op_runs",
]  # fmt: skip


def source_line_frame(lines: SourceLines | None, *, has_device: bool) -> pd.DataFrame:
    """One row per line that cost anything, most op time first; none where lines were not looked at."""
    if lines is None:
        return pd.DataFrame(columns=_COLUMNS)

    def known(values: Int64s) -> Floats:
        return np.where(values >= 0, values / PS_PER_US, np.nan)

    ops_ps = lines.host_ps + lines.device_ps
    whole = int((lines.device_ps if has_device else lines.host_ps).sum())
    device = lines.device_ps / PS_PER_US if has_device else np.full(len(lines), np.nan)
    own = lines.device_ps if has_device else lines.host_ps
    return pd.DataFrame(
        {
            "file": list(lines.file),
            "line": lines.line,
            "source": [text.strip() for text in lines.text],
            "host_us": lines.host_ps / PS_PER_US,
            "device_us": device,
            "python_us": known(lines.python_ps),
            "wall_us": known(lines.wall_ps),
            "forward_us": (ops_ps - lines.backward_ps) / PS_PER_US,
            "backward_us": lines.backward_ps / PS_PER_US,
            "gradient_us": lines.gradient_ps / PS_PER_US,
            "fraction": own / whole if whole else np.full(len(lines), np.nan),
            "runs": np.where(lines.runs >= 0, lines.runs, np.nan),
            "op_runs": lines.op_runs,
        }
    )
