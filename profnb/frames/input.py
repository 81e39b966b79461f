"""Tables of the input pipeline."""

import numpy as np
import pandas as pd

from profnb.core.columns import Floats
from profnb.core.units import PS_PER_MS, PS_PER_US
from profnb.steps.windows import Steps
from profnb.subjects.input.buffers import BUFFER
from profnb.subjects.input.pipeline import InputPipeline
from profnb.subjects.input.waiting import Waiting
from profnb.trace.model import Counter

__all__ = ["buffer_frame", "input_pipeline_frame", "input_wait_frame"]


def input_pipeline_frame(table: InputPipeline, functions: tuple[str, ...]) -> pd.DataFrame:
    """One row per iterator, as the pipeline is asked: the outermost first."""
    calls = np.maximum(table.calls, 1)
    whole = int(table.waited_ps.sum())

    def known(values: Floats, condition: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Floats:
        return np.where(condition, values, np.nan)

    return pd.DataFrame(
        {
            "iterator": list(table.tree.path),
            "kind": list(table.kind),
            "dataset": list(table.dataset),
            "function": list(functions),
            "depth": table.tree.depth,
            "calls": table.calls,
            "total_us": table.total_ps / PS_PER_US,
            "self_us": table.self_ps / PS_PER_US,
            "mean_us": table.total_ps / calls / PS_PER_US,
            "max_us": table.longest_ps / PS_PER_US,
            "function_runs": table.runs,
            "function_us": known(table.function_ps / PS_PER_US, table.runs > 0),
            "function_ops": [", ".join(name for name, *_ in ops) for ops in table.function_ops],
            "is_async": table.tree.is_async,
            "is_blocking": table.waited_ps > 0,
            "waited_us": table.waited_ps / PS_PER_US,
            "waited_fraction": table.waited_ps / whole if whole else np.nan,
            "parallelism": known(table.parallelism.astype(float), table.parallelism > 0),
            "is_autotuned": table.is_autotuned,
            "buffer_capacity": known(table.capacity.astype(float), table.capacity > 0),
            "buffered_mean": table.buffered,
            "empty_fraction": table.empty_fraction,
            "elements_per_second": table.elements_per_second,
        }
    )


def input_wait_frame(steps: Steps, waiting: Waiting) -> pd.DataFrame:
    """One row per step: how long the training waited for elements in its period."""
    period = np.maximum(waiting.period_ps, 1)
    return pd.DataFrame(
        {
            "step_num": steps.step_num,
            "wait_ms": waiting.step_ps / PS_PER_MS,
            "period_ms": waiting.period_ps / PS_PER_MS,
            "wait_fraction": waiting.step_ps / period,
            "is_counted": waiting.counted,
        }
    )


def buffer_frame(samples: list[Counter], capacity: dict[str, int]) -> pd.DataFrame:
    """One row per sample of how full a buffer of the pipeline is."""
    columns = ["iterator", "time_ms", "buffered_elements", "capacity"]
    parts = [
        pd.DataFrame(
            {
                "iterator": counter.series,
                "time_ms": counter.time_ps / PS_PER_MS,
                "buffered_elements": counter.value,
                "capacity": float(capacity.get(counter.series, 0)) or np.nan,
            }
        )
        for counter in samples
        if counter.name == BUFFER
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
