"""Events in any order to a ``Trace``: what the readers of formats without XPlane's layout share.

They find planes, lines and events as they come; here lines are put after their planes and events
into time order, the longest first at equal begins, and the times to picoseconds since the first.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from profnb.core.columns import Bools, Int64s, number_values
from profnb.trace.model import Counter, Events, Lines, Plane, Stats, StatValue, StringTable, Trace

PlaneStats = Mapping[str, StatValue]


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line as a reader found it.

    Attributes:
        plane: The plane's name.
        side: "host", "device", "other", or "" to decide by the plane's name.
        name: The line's own name.
        line_id: The identifier the recorder gave.
        repeats: Whether its events repeat those of other lines.
    """

    plane: str
    side: str
    name: str
    line_id: int = 0
    repeats: bool = False


def assemble_trace(
    source: str,
    lines: Sequence[FoundLine],
    line_of_event: Int64s,
    name: Int64s,
    begin_ps: Int64s,
    duration_ps: Int64s,
    names: StringTable,
    *,
    stats: Callable[[Int64s], Stats] | None = None,
    counters: Sequence[Counter] = (),
    hostnames: tuple[str, ...] = (),
    is_op_name: Bools | None = None,
    left_out: tuple[str, ...] = (),
    epoch_ns: int | None = None,
    planes: Sequence[tuple[str, str]] = (),
    plane_stats: Mapping[str, PlaneStats] = MappingProxyType({}),
    keeps_origin: bool = False,
) -> Trace:
    """Put found lines and E events into a trace.

    Args:
        source: The file's name, for messages.
        lines: The lines, in the order to show them; lines of one plane need not be neighbours.
        line_of_event: Index into ``lines``, shape (E,).
        name: Row of ``names``, shape (E,).
        begin_ps: Begins since any origin, shape (E,); the earliest becomes 0.
        duration_ps: Durations, not negative, shape (E,).
        names: The events' names.
        stats: Given the order (row of the input for each event of the trace), the events' stats.
        counters: Sampled quantities, on the clock of ``begin_ps``.
        hostnames: The hosts, where known.
        is_op_name: See ``Trace``.
        left_out: See ``Trace``.
        epoch_ns: What 0 of ``begin_ps`` is, in nanoseconds since 1970; None where it is not known.
        planes: Planes that stand first, with or without lines: name and side.
        plane_stats: What is known of planes, by name.
        keeps_origin: Whether ``begin_ps`` is since the trace began already, and stays as it is.
    """
    sides = [*planes, *((line.plane, line.side) for line in lines)]
    rows, row = number_values(sides)
    plane_of = row[len(planes) :]
    by_plane = np.argsort(plane_of, kind="stable")
    rank = np.empty(len(lines), np.int64)
    rank[by_plane] = np.arange(len(lines))
    placed = rank[line_of_event] if len(lines) else line_of_event
    order = np.lexsort((-duration_ps, begin_ps, placed))
    clocks = [] if keeps_origin else [begin_ps, *(counter.time_ps[:1] for counter in counters)]
    origin = min((int(times.min()) for times in clocks if times.size), default=0)
    offsets = np.append(0, np.cumsum(np.bincount(placed, minlength=len(lines))))
    first_line = np.searchsorted(plane_of[by_plane], np.arange(len(rows) + 1)).tolist()
    sorted_lines = [lines[row] for row in by_plane]
    is_copy = _repeat_others(sorted_lines)
    return Trace(
        source=source,
        planes=tuple(
            Plane(plane, range(first, last), dict(plane_stats.get(plane, {})), side)
            for (plane, side), (first, last) in zip(rows, pairwise(first_line), strict=True)
        ),
        lines=Lines(
            plane_of[by_plane],
            StringTable.of(line.name for line in sorted_lines),
            offsets,
            np.array([line.line_id for line in sorted_lines], np.int64),
            is_copy if is_copy.any() else None,
        ),
        events=Events(name[order].astype(np.int32), begin_ps[order] - origin, duration_ps[order]),
        names=names,
        stats=stats(order) if stats is not None else Stats(),
        hostnames=hostnames,
        counters=tuple(replace(c, time_ps=c.time_ps - origin) for c in counters),
        is_op_name=is_op_name,
        left_out=left_out,
        epoch_ns=0 if epoch_ns is None else epoch_ns + origin // 1000,
    )


def _repeat_others(lines: Sequence[FoundLine]) -> Bools:
    """Tell which lines hold again what others hold, as they say or as on a TF1 device, shape (L,).

    There ``stream:all`` repeats the kernels of every stream and ``memcpy`` the copies; where no single
    stream was recorded they are all there is.
    """
    single = {line.plane for line in lines if re.match(r"stream:\d", line.name)}

    def repeats(line: FoundLine) -> bool:
        is_of_all = line.side == "device" and line.name.startswith(("stream:all", "memcpy"))
        return line.repeats or (is_of_all and line.plane in single)

    return np.array([repeats(line) for line in lines], np.bool_)
