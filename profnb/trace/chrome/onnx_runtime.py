"""ONNX Runtime's own profile (``SessionOptions.enable_profiling``): nodes to ops, runs to ranges.

A node is recorded as ``NAME_kernel_time`` with its type in the args; ``NAME:TYPE`` is its op. ``model_run``
is one ``InferenceSession.run``, which counts as a range that the user marked.

Source: microsoft/onnxruntime onnxruntime/core/common/profiler.cc, framework/sequential_executor.cc.
"""

from dataclasses import replace

import numpy as np

from profnb.trace.chrome.events import RawEvents, Reading, row_of
from profnb.trace.names import ONNX_RUNTIME, RECORDER, USER_RANGE

_NODE, _SESSION, _RUN, _KERNEL = "Node", "Session", "model_run", "_kernel_time"


def is_onnx_runtime(raw: RawEvents) -> bool:
    """Tell whether ONNX Runtime wrote these events: its two categories, and how it names a node's time."""
    has_nodes = any(name.endswith(_KERNEL) or name == _RUN for name in raw.names)
    return has_nodes and {*raw.categories} <= {_NODE, _SESSION, "Kernel", ""}


def read_onnx_runtime(raw: RawEvents, plain: Reading) -> Reading:
    """Tell ops and runs of the session."""
    is_op, names = np.zeros(len(raw.names), np.bool_), list(raw.names)
    nodes = np.flatnonzero(raw.category == row_of(raw.categories, _NODE))
    rows, first = np.unique(raw.name[nodes], return_index=True)
    for row, event in zip(rows.tolist(), nodes[first].tolist(), strict=True):
        kind = raw.args_of(event).get("op_name")
        if names[row].endswith(_KERNEL) and isinstance(kind, str) and kind:
            is_op[row] = True
            names[row] = f"{names[row].removesuffix(_KERNEL)}:{kind}"
    runs = np.flatnonzero(raw.name == row_of(raw.names, _RUN))
    return replace(
        plain,
        names=names,
        name=raw.name,
        is_op_name=is_op,
        derived={**plain.derived, USER_RANGE: (runs, np.ones(runs.size, np.int64))},
        plane_stats={line.plane: {RECORDER: ONNX_RUNTIME} for line in plain.lines},
    )
