"""Ranges that the user marked to their table: what the host took for each, and what it kept devices at.

A range has the device work that was launched inside of it, on its thread or on threads that worked for it,
whenever that ran; so have the ranges around it. What several streams or devices ran at once counts once. In
a trace that does not link threads (PyTorch's), other threads of the process launch for the range that runs
meanwhile on the thread with most ranges: its backward pass is such a thread.

    host     |epoch                              |        epoch   busy 10-20, 25-40: 25
             | forward | backward |                       forward busy 10-20:        10
    device        [10 20]  [25 35]  (launched in backward)
                             [30 40]                      backward busy 25-40:       15

JAX names the scopes that an op was made in (``jax.named_scope``, modules) in the op itself: they are rows of
their own kind, of device work alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profnb.core.columns import (
    Bools,
    Floats,
    Int64s,
    RowColumns,
    flags_at,
    look_up,
    number_values,
    sum_by,
)
from profnb.core.table import Table, columns_in, field_of
from profnb.steps.finding.sources import family_of
from profnb.steps.grouping import claim, links_threads
from profnb.steps.nesting import nearest_of
from profnb.steps.spine import Spine
from profnb.steps.streams import copy_directions, covered_ps, find_launches, raw_device_lines
from profnb.subjects.device.kernels import name_device_work
from profnb.subjects.layers.name_scopes import parse_scope
from profnb.subjects.xla.hlo_ops import HloOps

MARKED, SCOPE = "range", "named scope"
_BETWEEN = " / "
_DEEPEST = 32  # what is nested deeper counts for the range at that depth

Path = tuple[str, ...]


class RangeRow(NamedTuple):
    """One range inside of the same ranges.

    Its numbers are those of ``RANGES``, times in picoseconds, NaN where nothing tells; ``path`` has the names
    from the outermost range to this one.
    """

    path: Path
    kind: str
    occurrences: float
    host_ps: float
    busy_ps: float
    kernels: float


@dataclass(frozen=True, slots=True)
class RangeTable(RowColumns):
    """The ranges of a trace."""

    rows: tuple[RangeRow, ...]  # those around others first, most time first among equals
    device_ps: int  # time in which any device worked at all

    def column(self, name: str) -> Floats:
        """A number of each row."""
        return np.array(field_of(self.rows, name), np.float64)

    @property
    def fraction(self) -> Floats:
        """Share of the time in which any device worked, shape (N,); NaN without any."""
        return self.column("busy_ps") / (self.device_ps or np.nan)


def tabulate_ranges(spine: Spine, hlo: HloOps) -> RangeTable:
    """Sum up what the host and devices did in each range."""
    trace = spine.trace
    work = trace.lines.events_of(raw_device_lines(trace))
    is_kernel = copy_directions(trace, work) < 0
    rows = [*_marked_rows(spine, work, is_kernel)]
    if spine.program.is_jax and work.size:
        rows += _scope_rows(spine, work, is_kernel, hlo)
    begin, end = trace.events.begin_ps[work], trace.events.end_ps[work]
    return RangeTable(_in_tree_order(rows), covered_ps(begin, end) if work.size else 0)


def _marked_rows(spine: Spine, work: Int64s, is_kernel: Bools) -> Iterator[RangeRow]:
    trace, ranges = spine.trace, spine.ranges
    if not ranges.size:
        return
    around = _parents_of(spine)
    paths, path, depth = _paths_of(spine, around)
    order = np.argsort(-depth, kind="stable")  # the innermost first
    owner = np.full(len(trace.events), -1, np.int32)
    claim(trace, ranges[order], np.arange(ranges.size + 1), spine.groups.parent, owner)
    row = np.where(owner[work] >= 0, order[owner[work]], -1)
    calls, launched = find_launches(trace)
    if not links_threads(trace):
        call = look_up(launched, calls, work)
        stray = np.flatnonzero((row < 0) & (call >= 0))
        row[stray] = _running_at(spine, around, call[stray])
    is_told = bool(launched.size or (row >= 0).any())
    none = (0.0, 0.0) if is_told else (np.nan, np.nan)
    times = dict.fromkeys(range(len(paths)), none)
    times |= _sum_up(spine, work, is_kernel, np.where(row >= 0, path[row], -1), paths)
    occurrences = np.bincount(path, minlength=len(paths)).tolist()
    spent = sum_by(path, trace.events.duration_ps[ranges], len(paths))
    texts = _texts_of(paths)
    for at, (busy_ps, kernels) in times.items():
        yield RangeRow(texts[at], MARKED, occurrences[at], int(spent[at]), busy_ps, kernels)


def _parents_of(spine: Spine) -> Int64s:
    """The range around each of the R ranges, as row of them, or -1, shape (R,)."""
    ranges, parent = spine.ranges, spine.groups.parent
    is_range = flags_at(ranges, len(spine.trace.events))
    outer = parent[ranges]
    outer = np.where(outer >= 0, nearest_of(parent, is_range)[outer], -1)
    return np.where(outer >= 0, np.searchsorted(ranges, outer), -1)


def _paths_of(spine: Spine, around: Int64s) -> tuple[list[tuple[int, str]], Int64s, Int64s]:
    """The distinct paths, as (row of the one around it or -1, name); of each range its path and depth."""
    names, name = np.unique(spine.trace.events.name[spine.ranges], return_inverse=True)
    listed, rows = number_values(family_of(spine.trace.names[row]) for row in names.tolist())
    family = rows[name]
    paths: list[tuple[int, str]] = []
    path, depth = np.full(around.size, -1), np.full(around.size, _DEEPEST)
    level = np.flatnonzero(around < 0)
    for at in range(_DEEPEST if level.size else 0):
        outer = np.where(around[level] >= 0, path[around[level]], -1)
        keys, row = np.unique((outer + 1) * len(listed) + family[level], return_inverse=True)
        path[level], depth[level] = row + len(paths), at
        paths += [(key // len(listed) - 1, listed[key % len(listed)]) for key in keys.tolist()]
        level = np.flatnonzero((around >= 0) & flags_at(level, around.size)[around])
    deeper = np.flatnonzero(path < 0)
    path[deeper] = path[nearest_of(around, path >= 0)[deeper]]
    return paths, path, depth


def _texts_of(paths: list[tuple[int, str]]) -> list[Path]:
    texts: list[Path] = []
    for outer, name in paths:
        texts.append((*(texts[outer] if outer >= 0 else ()), name))
    return texts


def _running_at(spine: Spine, around: Int64s, calls: Int64s) -> Int64s:
    """The innermost range that ran as each of N calls began, on the thread with most ranges there."""
    trace, ranges = spine.trace, spine.ranges
    row_of_call = np.full(calls.size, -1, np.int64)
    line = trace.lines.of_event[ranges]
    spent = np.bincount(line, trace.events.duration_ps[ranges], minlength=len(trace.lines))
    plane = trace.lines.plane[trace.lines.of_event[calls]]
    for number in np.unique(plane).tolist():
        of_plane = np.where(trace.lines.plane == number, spent, -1)
        there = np.flatnonzero(line == of_plane.argmax())
        part = np.flatnonzero(plane == number)
        times = trace.events.begin_ps[calls[part]]
        at = np.searchsorted(trace.events.begin_ps[ranges[there]], times, side="right") - 1
        row = np.append(there, -1)[at]
        while (is_over := (row >= 0) & (trace.events.end_ps[ranges[row]] <= times)).any():
            row[is_over] = around[row[is_over]]
        row_of_call[part] = row
    return row_of_call


def _sum_up(
    spine: Spine, work: Int64s, is_kernel: Bools, path: Int64s, paths: list[tuple[int, str]]
) -> dict[int, tuple[float, float]]:
    """Sum up the work of each path, and of those around it: the time that it covers, and its kernels."""
    outer = np.array([one for one, _ in paths] + [-1], np.int64)
    sums: dict[int, tuple[float, float]] = {}
    depth = np.full(len(paths) + 1, -1)  # the last: around all others
    for row, (one, _) in enumerate(paths):
        depth[row] = depth[one] + 1
    for level in range(int(depth.max()), -1, -1):
        of_level = np.flatnonzero((path >= 0) & (depth[path] == level))
        of_level = of_level[np.argsort(path[of_level], kind="stable")]
        rows, first = np.unique(path[of_level], return_index=True)
        for row, part in zip(rows.tolist(), np.split(of_level, first[1:]), strict=False):
            events = work[part]
            begin, end = spine.trace.events.begin_ps[events], spine.trace.events.end_ps[events]
            sums[row] = covered_ps(begin, end), int(is_kernel[part].sum())
        path[of_level] = outer[path[of_level]]
    return sums


def _scope_rows(spine: Spine, work: Int64s, is_kernel: Bools, hlo: HloOps) -> Iterator[RangeRow]:
    ops, op_rows = name_device_work(spine.trace, work, hlo)
    path_rows: dict[Path, int] = {(): -1}
    paths: list[tuple[int, str]] = []
    of_op = []
    for name, _ in ops:
        scopes = parse_scope(name).path[:-1][:_DEEPEST] if "jit(" in name else ()
        for end in range(1, len(scopes) + 1):
            if scopes[:end] not in path_rows:
                path_rows[scopes[:end]] = len(paths)
                paths.append((path_rows[scopes[: end - 1]], scopes[end - 1]))
        of_op.append(path_rows[scopes])
    path = np.array([*of_op, -1], np.int64)[op_rows]
    texts = _texts_of(paths)
    for at, (busy_ps, kernels) in _sum_up(spine, work, is_kernel, path, paths).items():
        yield RangeRow(texts[at], SCOPE, np.nan, np.nan, busy_ps, kernels)


def _in_tree_order(rows: list[RangeRow]) -> tuple[RangeRow, ...]:
    weight = {
        (row.kind, row.path): row.host_ps if np.isnan(row.busy_ps) else row.busy_ps for row in rows
    }

    def place(row: RangeRow) -> tuple[bool, list[tuple[float, str]]]:
        around = [row.path[: end + 1] for end in range(len(row.path))]
        return row.kind != MARKED, [(-weight[row.kind, path], path[-1]) for path in around]

    return tuple(sorted(rows, key=place))


RANGES = Table[RangeTable](
    "ranges",
    "One row per marked range inside of the same ranges, the outer range first.",
    columns_in(f"""
        range: its name, without the number behind it
        parent [in]: the ranges around it, "" at the top
        kind = rows.kind: "{MARKED}" (`record_function`, NVTX, a trace annotation), or "{SCOPE}" of JAX
        occurrences [runs] = rows.occurrences >= 0: how often it ran
        host_ms = rows.host_ps: time of all its runs on the host
        device_busy_ms = rows.busy_ps: time in which any device did what it launched, overlap counted once;
            NaN where no launch was recorded
        device_fraction [of device time] = fraction: share of the time in which any device worked
        kernels = rows.kernels >= 0: how many kernels it launched
        """),
    remark="Time and kernels of a range count for all ranges around.",
    values={
        "range": lambda t: [row.path[-1] for row in t.rows],
        "parent": lambda t: [_BETWEEN.join(row.path[:-1]) for row in t.rows],
    },
)
