"""tfprof's views of session runs (TF1)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from profnb.core.errors import CaptureError
from profnb.core.table import Column, Table, of_each
from profnb.tf1.node_stats import GraphStats
from profnb.tf1.tfprof import TfprofRow, tfprof_view
from profnb.trace.model import Trace

if TYPE_CHECKING:
    import pandas as pd


def _device_us(rows: Sequence[TfprofRow]) -> list[float]:
    has_device = any(row.device_us > 0 for row in rows)
    return [row.device_us if has_device else float("nan") for row in rows]


def _float_ops(rows: Sequence[TfprofRow]) -> list[float]:
    return [float(row.float_ops) if row.float_ops > 0 else float("nan") for row in rows]


TFPROF = Table[Sequence[TfprofRow]](
    "tfprof",
    "One row per node of one of tfprof's views of session runs, the longest first.",
    (
        Column(
            "name", of_each("name"), "a name scope or node, an op type, or `file.py:line:function`"
        ),
        Column("depth", of_each("depth"), "how deep it stands, 0 at the top"),
        Column("parent", of_each("parent"), "the row it stands under, -1 at the top"),
        Column("self_us", of_each("self_us"), "time of the node alone", is_scaled=True),
        Column("total_us", of_each("total_us"), "time with all below", is_scaled=True),
        Column("device_us", _device_us, "... on an accelerator, NaN without any", is_scaled=True),
        Column("cpu_us", of_each("cpu_us"), "... on the host", is_scaled=True),
        Column(
            "requested_bytes", of_each("requested_bytes"), "what its ops allocated, in all runs"
        ),
        Column("peak_bytes", of_each("peak_bytes"), "what they held at most, in the largest run"),
        Column("parameters", of_each("parameters"), "elements of its variables"),
        Column("float_ops", _float_ops, "floating-point operations, NaN without a formula"),
        Column("occurrences", of_each("occurrences"), "how often its ops ran", alias="run_count"),
    ),
    "All but `self_us` include what stands below, and sum over the runs, except that a node's peak is that "
    "of its largest run.",
)


def tfprof_frame(trace: Trace, view: str = "scope", graph: Any = None) -> "pd.DataFrame":
    """One of tfprof's views, with the columns of ``TFPROF``.

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
    return TFPROF.frame(tfprof_view(view, graph, trace.stats.recorded))
