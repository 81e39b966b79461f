"""tfprof's four views of session runs, as rows and as a table.

tfprof is the analyzer that TensorFlow carries for ``RunMetadata``: ``scope`` sums up by name scope,
``graph`` by what feeds what, ``op`` by op type and ``code`` by the Python lines that made the ops. It is
asked through ``tf.compat.v1.profiler.profile`` and not ``Profiler``, of which a process may have one: a
second one makes the next question to the first abort the process.

All runs are asked about at once, so times and occurrences sum over them, as in the op table. tfprof would
sum peaks as well; here a node's peak counts once, in the run where it is largest. It also would write
the shapes of the runs into the user's graph, which then refuses other batch sizes, so it gets a copy; the
``code`` view needs the graph itself and gets runs without shapes.

Source: tensorflow/python/profiler/model_analyzer.py and tfprof_logger.py (2.21).
"""

import logging
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from profnb.capture.profiler.profiler_door import log_held_back, log_quieted
from profnb.capture.seams import GRAPH_DEF, RUN_METADATA, TFPROF
from profnb.core.errors import CaptureError
from profnb.core.table import Table, columns_in
from profnb.tf1.nodes import GraphStats
from profnb.trace.model import Trace

if TYPE_CHECKING:
    import pandas as pd

VIEWS = ("scope", "graph", "op", "code")
_TFPROF_LOG = re.compile(rb"tfprof|^\s*$")
_FED = re.compile(r"_arg_(.+)_0_\d+")  # what is fed for a placeholder's output 0
_OPTIONS: dict[str, Any] = {
    "max_depth": 100_000,
    "order_by": "micros",
    "account_type_regexes": [".*"],
    "start_name_regexes": [".*"],
    "show_name_regexes": [".*"],
    "select": [
        "micros", "accelerator_micros", "cpu_micros", "bytes", "peak_bytes", "params", "float_ops",
        "occurrence",
    ],
    "output": "none",
}  # fmt: skip
_Rows = Sequence[SimpleNamespace]  # with the columns of the table below
# The columns of a row that tfprof calls "total_..." where a view is a tree.
_SUMS = {
    "total_us": "exec_micros", "device_us": "accelerator_exec_micros", "cpu_us": "cpu_exec_micros",
    "requested_bytes": "requested_bytes", "peak_bytes": "peak_bytes", "parameters": "parameters",
    "float_ops": "float_ops",
}  # fmt: skip


def _device_us(rows: _Rows) -> list[float]:
    has_device = any(row.device_us > 0 for row in rows)
    return [row.device_us if has_device else float("nan") for row in rows]


TFPROF_TABLE = Table[_Rows](
    "tfprof",
    "One row per node of a tfprof view of session runs, the longest first.",
    columns_in("""
        name: a name scope or node, an op type, or `file.py:line:function`
        depth: how deep it stands, 0 at the top
        parent: the row it stands under, -1 at the top
        self_us = self_us: time of the node alone
        total_us = total_us: time with all below
        device_us = device_us: ... on an accelerator, NaN without any
        cpu_us = cpu_us: ... on the host
        requested_bytes: what its ops allocated, in all runs
        peak_bytes: what they held at most, in the largest run
        parameters: elements of its variables
        float_ops >= 1: floating-point operations, NaN without a formula
        occurrences: how often its ops ran
        """),
    "All but `self_us` include the nodes below and sum over the runs. A node's peak is of the largest run.",
    values={"device_us": _device_us},
)


def tfprof_frame(trace: Trace, view: str = "scope", graph: Any = None) -> "pd.DataFrame":
    """Make one of tfprof's views, with the columns of ``TFPROF_TABLE``.

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
            f"{trace.source} has no session runs for tfprof. Profile code that calls "
            "tf.compat.v1.Session.run, or load a RunMetadata file."
        )
    return TFPROF_TABLE.frame(tfprof_view(view, graph, trace.stats.recorded))


def tfprof_view(view: str, graph: Any, runs: Sequence[bytes]) -> list[SimpleNamespace]:
    """Ask tfprof about session runs; it prints nothing.

    The arguments are those of ``tfprof_frame``; of runs, serialized, there is at least one.

    Returns:
        What ran, each row after the one it stands under, the longest first.
    """
    if view not in VIEWS:
        raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}.")
    try:
        import tensorflow as tf
    except ImportError:
        raise CaptureError(
            "tfprof is part of TensorFlow. Install TensorFlow with `pip install 'profnb[cpu]'`."
        ) from None
    if None in (seam.find(tf) for seam in (TFPROF, RUN_METADATA, GRAPH_DEF)):
        raise CaptureError(f"TensorFlow {tf.__version__} has no tfprof any more.")
    merged = _merge_runs(runs)
    if graph is None:
        graph = _recorded_graph(merged)
    if view == "code":
        if not isinstance(graph, tf.Graph):
            raise CaptureError(
                "The code view needs a graph with the ops' source lines. Pass graph=, the tf.Graph built "
                "in this process."
            )
        for device in merged.step_stats.dev_stats:
            for node in device.node_stats:
                node.ClearField("output")
    with log_quieted(logging.ERROR), log_held_back(_TFPROF_LOG):
        graph = graph if view == "code" else _copy_graph(tf, graph)
        answer = TFPROF.find()(graph, merged, cmd=view, options=_OPTIONS)
    return _rows_of(answer, view)


def _merge_runs(runs: Sequence[bytes]) -> Any:
    """One RunMetadata with the nodes of all.

    A node's peak stays only where it is largest, and what it keeps for good only where it is first. What
    is fed gets the placeholder's name, so that tfprof knows its shape.
    """
    merged = RUN_METADATA.find()()
    for run in runs:
        merged.MergeFromString(run)
    largest: dict[tuple[str, str, str], Any] = {}
    has_kept: set[tuple[str, str]] = set()
    for device in merged.step_stats.dev_stats:
        for node in device.node_stats:
            fed = _FED.fullmatch(node.node_name)
            node.node_name = fed[1] if fed else node.node_name
            for memory in node.memory:
                key = device.device, node.node_name, memory.allocator_name
                other = largest.setdefault(key, memory)
                if other is not memory and other.peak_bytes < memory.peak_bytes:
                    other.peak_bytes = 0
                    largest[key] = memory
                elif other is not memory:
                    memory.peak_bytes = 0
            if (device.device, node.node_name) in has_kept:
                node.memory_stats.ClearField("persistent_memory_size")
            elif node.memory_stats.persistent_memory_size:
                has_kept.add((device.device, node.node_name))
    return merged


def _recorded_graph(merged: Any) -> Any:
    nodes = {node.name: node for graph in merged.partition_graphs for node in graph.node}
    if not nodes:
        raise CaptureError(
            "tfprof needs the graph, and the RunMetadata has none. Pass graph=, the tf.Graph or its "
            "GraphDef, or record with RunOptions(output_partition_graphs=True)."
        )
    graph = GRAPH_DEF.find()(library=merged.partition_graphs[0].library)
    graph.versions.CopyFrom(merged.partition_graphs[0].versions)
    for recorded in nodes.values():
        node = graph.node.add()
        node.CopyFrom(recorded)
        node.name = _importable(node.name)
        node.input[:] = [_importable(name) for name in node.input]
    return graph


def _importable(name: str) -> str:
    """A node's name or input; TensorFlow's own bookkeeping (``_arg_x_0_0``) cannot be imported."""
    control, bare = ("^", name[1:]) if name.startswith("^") else ("", name)
    return f"{control}tf{bare}" if bare.startswith("_") else name


def _copy_graph(tf: Any, graph: Any) -> Any:
    definition = graph.as_graph_def(add_shapes=True) if isinstance(graph, tf.Graph) else graph
    copy = tf.Graph()
    try:
        with copy.as_default():
            tf.import_graph_def(definition, name="")
    except ValueError as error:
        raise CaptureError(
            f"TensorFlow cannot import the graph ({str(error)[:200]}). Pass graph=, the tf.Graph built in "
            "this process."
        ) from None
    return copy


def _rows_of(answer: Any, view: str) -> list[SimpleNamespace]:
    """The tree below the root, depth first; branches that never ran are left out."""
    rows: list[SimpleNamespace] = []
    prefix = "" if view == "op" else "total_"
    waiting = [(child, 0, -1) for child in reversed(answer.children)]
    while waiting:
        node, depth, parent = waiting.pop()
        occurrences = _occurrences(node, view)
        if view == "op":  # a chain in which each op type hangs below the one before it
            waiting.extend((child, 0, -1) for child in node.children)
        elif occurrences:
            waiting.extend((child, depth + 1, len(rows)) for child in reversed(node.children))
        if occurrences:
            sums = {name: int(getattr(node, prefix + field)) for name, field in _SUMS.items()}
            rows.append(SimpleNamespace(
                name=node.name, depth=depth, parent=parent, self_us=int(node.exec_micros), **sums,
                occurrences=occurrences,
            ))  # fmt: skip
    return rows


def _occurrences(node: Any, view: str) -> int:
    if view in ("scope", "graph"):
        return int(node.total_run_count)
    nodes = [node]
    for one in nodes if view == "code" else ():  # grows by what is below
        nodes += one.children
    return sum(int(op.run_count) for one in nodes for op in one.graph_nodes)
