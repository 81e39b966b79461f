"""The shapes of what ops allocated, as far as a trace recorded them.

TensorFlow's allocators write of each large allocation which op asked for it, for what, and its shape.
"""

import re

import numpy as np

from profnb.subjects.bounds.tensor_sizes import Sizes
from profnb.trace.model import Trace
from profnb.trace.names import without_call

_MOST_SHAPES = 8  # of one op: it has no one shape then
_OUTPUT = "output"
_BRANCH = re.compile(r".*/(?:body|cond|then|else)/_\d+/")


def find_recorded_shapes(trace: Trace) -> dict[str, list[Sizes]]:
    """The distinct shapes of what each op allocated to give back, by its name without calls."""
    ops, shapes = trace.stats.texts("tf_op"), trace.stats.texts("shape")
    regions = trace.stats.texts("region_type")
    events, in_ops, in_shapes = np.intersect1d(ops.events, shapes.events, return_indices=True)
    region = regions.of(events)
    is_output = np.array([text == _OUTPUT for text in (*regions.texts, "")], np.bool_)
    kept = is_output[region] if events.size else np.empty(0, np.bool_)
    pairs = np.stack([ops.values[in_ops][kept], shapes.values[in_shapes][kept]], axis=1)
    recorded: dict[str, list[Sizes]] = {}
    for op, shape in np.unique(pairs, axis=0).tolist():
        sizes = read_sizes(shapes.texts[shape])
        seen = recorded.setdefault(without_loops(ops.texts[op].partition(":")[0]), [])
        if sizes is not None and sizes not in seen and len(seen) <= _MOST_SHAPES:
            seen.append(sizes)
    return recorded


def without_loops(name: str) -> str:
    """An op's name without the calls of functions, loops and branches that it stands in."""
    plain = without_call(name)
    branch = _BRANCH.match(plain)  # of nested ones the innermost
    return plain[branch.end() :] if branch else plain


def read_sizes(text: str) -> Sizes | None:
    """A shape as the trace writes it, ``[64,26,26,32]``; None for anything else."""
    inner = text[1:-1]
    if text[:1] != "[" or text[-1:] != "]" or len(text) > 200:
        return None
    parts = inner.split(",") if inner else []
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else None
