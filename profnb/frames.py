"""Columns to the pandas tables a user sees: the one place where integers become milliseconds.

Tables are made fresh on each access, so changing one changes nothing else. Times are floats in the
unit of the column's suffix; a missing value is NaN.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd

from profnb.analysis.breakdown import CATEGORIES, StepBreakdown, category_column
from profnb.analysis.copies import CopyTable
from profnb.analysis.devices import DeviceTable
from profnb.analysis.grouping import Groups
from profnb.analysis.idle import IDLE_CAUSES, IdleTable
from profnb.analysis.kernels import KernelTable
from profnb.analysis.nesting import find_parents, self_times
from profnb.analysis.ops import OpTable
from profnb.analysis.precision import WIDTHS, Precision
from profnb.analysis.samples import RESERVED, find_samples
from profnb.analysis.step_times import StepTimes
from profnb.analysis.steps import Steps
from profnb.capture.tfprof import TfprofRow, tfprof_view
from profnb.columns import Floats, Int32s, Int64s
from profnb.errors import CaptureError
from profnb.trace.model import Trace
from profnb.trace.run_metadata_stats import GraphStats

__all__ = [
    "copy_frame",
    "device_frame",
    "event_frame",
    "idle_frame",
    "kernel_frame",
    "memory_frame",
    "op_frame",
    "precision_frame",
    "step_frame",
    "step_time_frame",
    "tfprof_frame",
]

_PS_PER_MS = 1e9
_PS_PER_US = 1e6


# Without a device's own lines in the trace these were not measured.
_DEVICE_CATEGORIES = (
    "device compute", "device to device", "device collectives", "kernel launch", "output",
)  # fmt: skip


def step_frame(steps: Steps, breakdown: StepBreakdown, *, has_device: bool) -> pd.DataFrame:
    """One row per step: when, how long, how long to the next, and nine categories that add up.

    Args:
        steps: The steps.
        breakdown: Their categories.
        has_device: Whether the trace has device activity; without it the device's categories are
            missing (NaN), not zero.
    """
    gap_ps = steps.gap_ps
    columns: dict[str, object] = {
        "step_num": steps.step_num,
        "phase": list(steps.phase),
        "begin_ms": steps.begin_ps / _PS_PER_MS,
        "duration_ms": steps.duration_ps / _PS_PER_MS,
        "gap_ms": np.where(gap_ps >= 0, gap_ps / _PS_PER_MS, np.nan),
        "is_warmup": steps.is_warmup,
        "iterations": steps.iterations,
    }
    for category in CATEGORIES:
        is_missing = category in _DEVICE_CATEGORIES and not has_device
        milliseconds = breakdown.of(category) / _PS_PER_MS
        columns[category_column(category)] = np.nan if is_missing else milliseconds
    return pd.DataFrame(columns)


def step_time_frame(times: StepTimes) -> pd.DataFrame:
    """One row per step the code ran, traced or not, by the wall clock."""
    return pd.DataFrame(
        {
            "step_num": times.step_num,
            "phase": list(times.phase),
            "wall_ms": times.duration_ps / _PS_PER_MS,
            "was_traced": times.was_traced,
        }
    )


def op_frame(ops: OpTable) -> pd.DataFrame:
    """One row per op and side, most self time first."""
    return pd.DataFrame(
        {
            "side": np.where(ops.is_device, "device", "host"),
            "op_type": list(ops.op_type),
            "op_name": list(ops.op_name),
            "occurrences": ops.occurrences,
            "total_us": ops.total_ps / _PS_PER_US,
            "self_us": ops.self_ps / _PS_PER_US,
            "self_fraction": ops.self_fraction,
        }
    )


def event_frame(trace: Trace, steps: Steps, groups: Groups) -> pd.DataFrame:
    """One row per event, in the trace's order; ``step_num`` is missing outside every step."""
    events, lines = trace.events, trace.lines
    own = self_times(events.begin_ps, events.end_ps, find_parents(events.end_ps, lines.offsets))
    inside = groups.step >= 0
    step_num = pd.array(np.zeros(len(events), np.int64), dtype="Int64")
    step_num[inside] = steps.step_num[groups.step[inside]]
    step_num[~inside] = pd.NA
    return pd.DataFrame(
        {
            "plane": _categories([p.name for p in trace.planes], lines.plane[lines.of_event]),
            "line": _categories(lines.names.texts, lines.of_event),
            "name": _categories(trace.names.texts, events.name),
            "begin_us": events.begin_ps / _PS_PER_US,
            "duration_us": events.duration_ps / _PS_PER_US,
            "self_us": own / _PS_PER_US,
            "step_num": step_num,
        }
    )


def _categories(texts: list[str], rows: Int32s | Int64s) -> "pd.Categorical[str]":
    """Texts looked up by row, each distinct text stored once."""
    distinct = list(dict.fromkeys(texts))
    code_of = {text: code for code, text in enumerate(distinct)}
    codes = np.array([code_of[text] for text in texts], np.int64)
    return pd.Categorical.from_codes(codes[rows], pd.Index(distinct))


def kernel_frame(kernels: KernelTable) -> pd.DataFrame:
    """One row per kernel, op and launch shape."""
    shapes = kernels.shape
    mean_us = kernels.total_ps / np.maximum(kernels.occurrences, 1) / _PS_PER_US
    return pd.DataFrame(
        {
            "kernel_name": list(kernels.kernel_name),
            "op_name": list(kernels.op_name),
            "op_type": list(kernels.op_type),
            "occurrences": kernels.occurrences,
            "total_us": kernels.total_ps / _PS_PER_US,
            "mean_us": mean_us,
            "min_us": kernels.min_ps / _PS_PER_US,
            "max_us": kernels.max_ps / _PS_PER_US,
            "fraction": kernels.fraction,
            "registers_per_thread": _numbers([shape.registers for shape in shapes]),
            "static_shared_bytes": _numbers([shape.static_shared_bytes for shape in shapes]),
            "dynamic_shared_bytes": _numbers([shape.dynamic_shared_bytes for shape in shapes]),
            "grid": [shape.grid for shape in shapes],
            "block": [shape.block for shape in shapes],
            "occupancy_percent": _numbers([shape.occupancy_percent for shape in shapes]),
            "uses_tensor_core": kernels.uses_tensor_core,
            "is_tensor_core_eligible": kernels.is_tensor_core_eligible,
        }
    )


def _numbers(values: Sequence[float | None]) -> Floats:
    """Numbers with None as NaN."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def memory_frame(trace: Trace) -> pd.DataFrame:
    """One row per allocator and sample of its memory."""
    samples = [*trace.counters, *find_samples(trace)]
    reserved = {c.series: c.value for c in samples if c.name == RESERVED}
    parts = [
        pd.DataFrame(
            {
                "allocator": c.series,
                "time_ms": c.time_ps / _PS_PER_MS,
                "in_use_bytes": c.value,
                "reserved_bytes": reserved.get(c.series, np.full(c.value.size, np.nan)),
            }
        )
        for c in samples
        if c.unit == "bytes" and c.name != RESERVED
    ]
    columns = ["allocator", "time_ms", "in_use_bytes", "reserved_bytes"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def copy_frame(copies: CopyTable) -> pd.DataFrame:
    """One row per direction and kinds of memory of a device's copies."""
    return pd.DataFrame(
        {
            "direction": list(copies.direction),
            "source_kind": list(copies.source_kind),
            "destination_kind": list(copies.destination_kind),
            "occurrences": copies.occurrences,
            "total_us": copies.total_ps / _PS_PER_US,
            "bytes": np.where(copies.sized > 0, copies.bytes, np.nan),
            "gigabytes_per_second": copies.bandwidth / 1e9,
        }
    )


def precision_frame(precision: Precision) -> pd.DataFrame:
    """One row per width of numbers that kernels compute with; none without kernels."""
    used = np.flatnonzero(precision.occurrences)
    return pd.DataFrame(
        {
            "width": [WIDTHS[row] for row in used.tolist()],
            "occurrences": precision.occurrences[used],
            "total_us": precision.total_ps[used] / _PS_PER_US,
            "fraction": precision.fraction[used],
        }
    )


def device_frame(devices: DeviceTable) -> pd.DataFrame:
    """One row per device that ran something."""
    collective = devices.collective_ps
    hidden = devices.hidden_collective_ps / np.maximum(collective, 1)
    return pd.DataFrame(
        {
            "device": list(devices.device),
            "busy_us": devices.busy_ps / _PS_PER_US,
            "compute_us": devices.compute_ps / _PS_PER_US,
            "copy_us": devices.copy_ps / _PS_PER_US,
            "collective_us": collective / _PS_PER_US,
            "hidden_collective_fraction": np.where(collective > 0, hidden, np.nan),
            "utilisation_fraction": devices.utilisation,
        }
    )


def idle_frame(idle: IdleTable | None) -> pd.DataFrame:
    """One row per cause of a device's idle time; none without a device."""
    causes = IDLE_CAUSES if idle is not None else ()
    none = np.empty(0, np.int64)
    total_ps = idle.total_ps if idle is not None else none
    whole, window = int(total_ps.sum()), idle.window_ps if idle is not None else 0
    return pd.DataFrame(
        {
            "cause": list(causes),
            "occurrences": idle.occurrences if idle is not None else none,
            "total_us": total_ps / _PS_PER_US,
            "longest_us": (idle.longest_ps if idle is not None else none) / _PS_PER_US,
            "idle_fraction": total_ps / whole if whole else np.full(len(causes), np.nan),
            "window_fraction": total_ps / window if window else np.full(len(causes), np.nan),
        }
    )


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
