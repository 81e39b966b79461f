"""tfprof's views of session runs (TF1)."""

from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd

from profnb.core.errors import CaptureError
from profnb.tf1.node_stats import GraphStats
from profnb.tf1.tfprof import TfprofRow, tfprof_view
from profnb.trace.model import Trace

__all__ = ["tfprof_frame"]


def tfprof_frame(trace: Trace, view: str = "scope", graph: Any = None) -> pd.DataFrame:
    """One row per node of one of tfprof's views of session runs, the longest first.

    Columns: ``name, depth, parent`` (the row it stands under, -1 at the top)``, self_us, total_us, device_us,
    cpu_us, requested_bytes, peak_bytes, parameters, float_ops, run_count``. All but ``self_us`` include
    what stands below, and sum over the runs, except that a node's peak is that of its largest run.
    tfprof says 0 for what it does not know: ``device_us`` without any device, and ``float_ops`` of an op
    without a formula, are missing instead.

    Args:
        trace: A trace made from RunMetadata.
        view: "scope" (name scopes), "graph" (what feeds what), "op" (op types) or "code" (the Python
            lines that made the ops).
        graph: The ``tf.Graph`` that ran, or its ``GraphDef``; None takes it from the RunMetadata, if it
            was recorded with ``output_partition_graphs``. The code view needs the ``tf.Graph`` built in
            this process, whose ops remember their lines.

    Raises:
        CaptureError: The trace is not of session runs, there is no graph, or no TensorFlow.
        ValueError: No such view.
    """
    if not isinstance(trace.stats, GraphStats):
        raise CaptureError(
            f"{trace.source} is not of session runs, which are all that tfprof reads. Profile code "
            "that calls tf.compat.v1.Session.run, or load a RunMetadata file."
        )
    rows = tfprof_view(view, graph, trace.stats.recorded)
    table = pd.DataFrame([asdict(row) for row in rows], columns=[f.name for f in fields(TfprofRow)])
    table["float_ops"] = table["float_ops"].astype(float).where(table["float_ops"] > 0)
    if not (table["device_us"] > 0).any():
        table["device_us"] = np.nan
    return table
