"""Counts of a deterministic profiler to the same table and tree that samples give.

Who called whom is known pair by pair only: a function's time for one caller is shared out over the calls
that led to the caller in proportion, so blocks below the second level are estimates.
"""

import numpy as np

from profnb.capture.source.user_code import is_user_file
from profnb.core.block import Block
from profnb.core.units import PS_PER_S
from profnb.subjects.python.call_tree import DEEPEST, MOST_BLOCKS, NARROWEST, call_block
from profnb.subjects.python.python_time import PythonTime
from profnb.trace.pstats_file import CallCounts


def tabulate_counts(counts: CallCounts) -> PythonTime:
    """Bring counts into the form of samples."""
    alone = np.array([max(seconds, 0.0) * PS_PER_S for seconds in counts.self_s], np.float64)
    total = np.array([max(seconds, 0.0) * PS_PER_S for seconds in counts.total_s], np.float64)
    order = np.lexsort((-total, -alone))
    functions = tuple(counts.functions[row] for row in order)
    unknown = np.full(order.size, -1)
    return PythonTime(
        functions,
        np.array([is_user_file(file) for _, file, _ in functions], np.bool_),
        unknown,
        alone[order].astype(np.int64),
        total[order].astype(np.int64),
        unknown,
        unknown,
        int(alone.sum()),
        0,
        has_steps=False,
        blocks=tuple(_grow(counts)),
        occurrences=np.array([counts.calls[row] for row in order], np.int64),
    )


def _grow(counts: CallCounts) -> list[Block]:
    called: dict[int, list[tuple[int, float]]] = {}
    has_caller = set()
    for caller, row, seconds in counts.edges:
        if caller != row:
            called.setdefault(caller, []).append((row, seconds))
            has_caller.add(row)
    roots = [
        (row, counts.total_s[row]) for row in range(len(counts.functions)) if row not in has_caller
    ]
    whole = sum(seconds for _, seconds in roots)
    blocks: list[Block] = []
    waiting = [(roots, 0, 0.0, 1.0)]
    while waiting and whole > 0:
        parts, level, begin, scale = waiting.pop(0)
        for row, seconds in sorted(parts, key=lambda part: -part[1]):
            width = scale * seconds / whole
            if width < NARROWEST or len(blocks) >= MOST_BLOCKS or begin + width > 1.001:
                break
            function = counts.functions[row]
            spent = int(width * whole * PS_PER_S)
            blocks.append(call_block(function, level, begin, width, spent, {}))
            if level + 1 < DEEPEST and counts.total_s[row] > 0:
                inner = scale * seconds / counts.total_s[row]
                waiting.append((called.get(row, []), level + 1, begin, inner))
            begin += width
    return blocks
