"""PyTorch's products to the operations that they did, where the trace has the shapes of what they took.

``record_shapes=True`` (here ``--host-level 3``) writes them as ``Input Dims``, and settings as
``Concrete Inputs``:

    aten::addmm [[32], [8, 288], [288, 32]]              2 * 8 * 288 * 32
    aten::_convolution [[8, 3, 8, 8], [16, 3, 3, 3]]     2 * 8 * 36 places * 16 * 27
    aten::convolution_backward                           as much for each gradient it was asked for

A multiplication and an addition count as two; what is done element by element is not counted. An op inside of
another that is counted (``aten::linear``, which calls ``aten::addmm``) is not counted again. Dot products of
attention count twice backward, as in ``flops``, though a library may do them a third time.

Source: aten/src/ATen/native/native_functions.yaml (PyTorch 2.15).
"""

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from profnb.core.columns import Floats, Int32s, Int64s, look_up
from profnb.steps.nesting import outermost_of
from profnb.trace.model import Trace

_SHAPES, _SETTINGS = "Input Dims", "Concrete Inputs"
# Of a product of two matrices, which of what it takes they are.
_MATRICES = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
_LINEAR, _CONVOLUTION, _GRADIENTS = (
    "aten::linear",
    "aten::_convolution",
    "aten::convolution_backward",
)
_ATTENTION, _BACKWARD = "aten::_scaled_dot_product_", "_backward"
_BY_PARTS = "math"  # attention whose products are ops of their own
_LONGEST = 10_000


def product_flops(trace: Trace, parent: Int32s) -> tuple[Int64s, Floats]:
    """The products of a trace, and the operations of each.

    Args:
        trace: The trace.
        parent: Index of each event's parent on its line, or -1, shape (E,).

    Returns:
        Events and operations, both of shape (N,); nothing where no shapes were recorded.
    """
    shapes, settings = trace.stats.lists(_SHAPES), trace.stats.lists(_SETTINGS)
    if not len(shapes):
        return np.empty(0, np.int64), np.empty(0)
    is_product = trace.names.rows_where(_is_product)[trace.events.name]
    chosen = np.isin(shapes.events, outermost_of(is_product, parent))
    events, shape = shapes.events[chosen], shapes.values[chosen].astype(np.int64)
    setting = look_up(settings.events, settings.values.astype(np.int64), events)
    kinds, kind = np.unique(
        np.stack([trace.events.name[events], shape, setting]), axis=1, return_inverse=True
    )
    flops = np.array(
        [
            _flops_of(
                trace.names[name], shapes.texts[at], settings.texts[set_at] if set_at >= 0 else ""
            )
            for name, at, set_at in kinds.T.tolist()
        ],
        np.float64,
    )
    done = flops[kind.reshape(-1)]
    return events[~np.isnan(done)], done[~np.isnan(done)]


def _is_product(name: str) -> bool:
    if name.startswith(_ATTENTION):
        return _BY_PARTS not in name
    return name in _MATRICES or name in (_LINEAR, _CONVOLUTION, _GRADIENTS)


def _flops_of(name: str, shapes: str, settings: str) -> float:
    """Operations of one run; NaN where its shapes do not tell."""
    try:
        done = _done(name, _sizes(shapes), _parsed(settings) or [])
    except (ValueError, TypeError, IndexError, ArithmeticError, RecursionError):
        return np.nan
    return float(done) if 0 <= done < 1e30 else np.nan


def _sizes(text: str) -> list[list[int]]:
    """Shapes, none for what is no tensor; a list of tensors is none either."""
    shapes = _parsed(text)
    return [
        shape if all(isinstance(size, int) and size >= 0 for size in shape) else []
        for shape in shapes
    ]


def _parsed(text: str) -> Any:
    """What a list or a setting says: ``[1, 1]``, ``True``."""
    if len(text) > _LONGEST:
        raise ValueError(text[:20])
    return json.loads(text.lower()) if text else None


def _done(name: str, taken: Sequence[Sequence[int]], settings: Sequence[str]) -> float:
    if name in _MATRICES:
        left, right = taken[_MATRICES[name]], taken[_MATRICES[name] + 1]
        return 2.0 * prod(left) * right[-1] if left[-1] == right[-2] else np.nan
    if name == _LINEAR:
        data, weight = taken[0], taken[1]
        return 2.0 * prod(data) * (weight[0] if len(weight) == 2 else 1)
    if name == _CONVOLUTION:
        data, weight = taken[0], taken[1]
        stride, padding, dilation, is_transposed = map(_parsed, settings[3:7])
        places = prod(
            size if is_transposed else (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
            for size, kernel, step, pad, gap in zip(
                data[2:], weight[2:], stride, padding, dilation, strict=True
            )
        )
        return 2.0 * data[0] * places * prod(weight)
    if name == _GRADIENTS:
        made, data, weight = taken[:3]
        places = prod((data if _parsed(settings[7]) else made)[2:])
        return 2.0 * data[0] * places * prod(weight) * sum(map(bool, _parsed(settings[10])[:2]))
    is_backward = _BACKWARD in name
    queries, keys, values = taken[1:4] if is_backward else taken[:3]
    pairs = prod(queries[:-1]) * keys[-2]
    return 2.0 * pairs * (queries[-1] + values[-1]) * (2 if is_backward else 1)
