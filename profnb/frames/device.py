"""Tables of what devices did: kernels, copies, launches, streams, idle time."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profnb.steps.breakdown import CATEGORIES, StepBreakdown, category_column
from profnb.subjects.device.copies import CopyTable
from profnb.subjects.device.devices import DeviceTable
from profnb.subjects.device.idle import IDLE_CAUSES, WORK, IdleTable
from profnb.subjects.device.kernels import KernelTable
from profnb.subjects.device.launches import LaunchTable, StreamTable
from profnb.subjects.device.precision import WIDTHS, Precision
from profnb.steps.windows import Steps
from profnb.core.columns import Floats

__all__ = [
    "copy_frame",
    "device_frame",
    "device_step_frame",
    "idle_frame",
    "kernel_frame",
    "launch_frame",
    "precision_frame",
    "stream_frame",
    "utilisation_frame",
]

_PS_PER_MS = 1e9
_PS_PER_US = 1e6


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


def device_step_frame(steps: Steps, breakdowns: dict[str, StepBreakdown]) -> pd.DataFrame:
    """One row per device and step; none without a device."""
    parts = [
        pd.DataFrame(
            {
                "device": device,
                "step_num": steps.step_num,
                "duration_ms": steps.duration_ps / _PS_PER_MS,
                **{
                    category_column(category): breakdown.of(category) / _PS_PER_MS
                    for category in CATEGORIES
                },
            }
        )
        for device, breakdown in breakdowns.items()
    ]
    columns = ["device", "step_num", "duration_ms", *map(category_column, CATEGORIES)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def launch_frame(launches: LaunchTable) -> pd.DataFrame:
    """One row per device that ran kernels."""
    kernels = np.maximum(launches.kernels, 1)
    return pd.DataFrame(
        {
            "device": list(launches.device),
            "kernels": launches.kernels,
            "kernels_per_step": launches.per_step,
            "launch_us": launches.launch_ps / _PS_PER_US,
            "delay_us": launches.delay_ps / _PS_PER_US,
            "delay_p95_us": launches.late_ps / _PS_PER_US,
            "launched_fraction": launches.launched / kernels,
            "tiny_fraction": launches.tiny / kernels,
            "shorter_than_launch_fraction": np.where(
                launches.launched > 0, launches.outlived / np.maximum(launches.launched, 1), np.nan
            ),
        }
    )


def stream_frame(streams: StreamTable, window_ps: int) -> pd.DataFrame:
    """One row per stream on which a device ran something."""
    return pd.DataFrame(
        {
            "device": list(streams.device),
            "stream": list(streams.stream),
            "kernels": streams.kernels,
            "copies": streams.copies,
            "busy_us": streams.busy_ps / _PS_PER_US,
            "busy_fraction": streams.busy_ps / window_ps if window_ps else np.nan,
        }
    )


def utilisation_frame(idle: IdleTable | None) -> pd.DataFrame:
    """One row per piece of the window: what the busiest device did then, or why it was idle."""
    names = [f"{name}_fraction" for name in (*WORK, *IDLE_CAUSES)]
    names = [name.replace(" ", "_").lower() for name in names]
    if idle is None:
        return pd.DataFrame(columns=["begin_ms", *names])
    whole = np.maximum(idle.bins_ps.sum(axis=1), 1)
    return pd.DataFrame(
        {
            "begin_ms": idle.bin_begin_ps / _PS_PER_MS,
            **{name: idle.bins_ps[:, at] / whole for at, name in enumerate(names)},
        }
    )
