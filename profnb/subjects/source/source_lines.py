"""Ops to the lines of the user's source, with the time that each line cost.

The time of every op, on hosts and devices, is charged to one line or to none, so the rows add up to the ops'
self time exactly:

- an op that Python ran eagerly, and the device work that it launched: the line that was running;
- an op of a graph: the line that made it (``op_lines``), a gradient op the forward line that caused it;
- an op of a graph that no line of the user's made (``fit`` of a model made of layers only): the line
  that made the layer, else the line that was running when the graph was;
- an op that tf.data ran: the line in a function given to tf.data that made it, if no other can be meant;
- an op that Python ran eagerly on another thread: the line of the op that called Python
  (``tf.py_function``), or none;
- tf.data's own work, and other threads' ops of which nothing is known: none.

Besides, each line has the time that Python spent at it (``code_times``).
"""

from dataclasses import dataclass

import numpy as np

from profnb.capture.source.source_records import LineRecords, SourceRecords
from profnb.core.columns import Bools, Int64s
from profnb.subjects.input.input_work import NOT_INPUT
from profnb.subjects.ops.op_table import OpRuns
from profnb.subjects.source.code_times import (
    Timeline,
    busy_within,
    find_busy,
    follow_lines,
    read_clock,
)
from profnb.subjects.source.op_lines import NOWHERE, LineIndex, OpLine
from profnb.subjects.source.op_work import Calls, Work, find_calls, find_device_work, find_host_work
from profnb.subjects.xla.hlo_ops import HloOps
from profnb.trace.model import Trace

__all__ = ["SourceLines", "tabulate_source_lines"]

_FUNCTION = "__"


@dataclass(frozen=True, slots=True)
class SourceLines:
    """One row per line of the user's source that cost anything, most op time first.

    Attributes:
        file: Files; "" in the row of what no line is known of.
        line: Line numbers; 0 in that row, shape (N,).
        text: The source; "" where it is not at hand.
        host_ps: Self time of its ops on hosts, shape (N,).
        device_ps: Time of its ops on devices, shape (N,).
        backward_ps: The part of both in gradient ops, shape (N,).
        gradient_ps: Time of gradient ops that the line asked for and that other lines caused, which
            are charged to those, shape (N,).
        python_ps: Time at the line in which TensorFlow did not run; -1 where Python was not watched,
            shape (N,).
        wall_ps: Time at the line, shape (N,); -1 likewise.
        runs: How often it began to run; -1 likewise or where lines were sampled, shape (N,).
        op_runs: Executions of its ops, shape (N,).
        texts: The lines of each file.
        cells: The number of the cell that each file stands for, where it is one.
        remarks: What the numbers do not say, in sentences.
    """

    file: tuple[str, ...]
    line: Int64s
    text: tuple[str, ...]
    host_ps: Int64s
    device_ps: Int64s
    backward_ps: Int64s
    gradient_ps: Int64s
    python_ps: Int64s
    wall_ps: Int64s
    runs: Int64s
    op_runs: Int64s
    texts: dict[str, tuple[str, ...]]
    cells: dict[str, int]
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.line.size


def tabulate_source_lines(
    trace: Trace, hlo: HloOps, runs: OpRuns, input_of: Int64s, records: SourceRecords
) -> SourceLines:
    """Charge the time of all ops to lines.

    Args:
        trace: The trace.
        hlo: Its HLO instructions.
        runs: Its runs of ops.
        input_of: The iterator of tf.data whose function each is of (``find_input_work``), shape (N,).
        records: What the capture knows of the user's source.
    """
    clock = read_clock(trace)
    end_ps = int(trace.events.end_ps.max(initial=0))
    if clock is None:
        none = np.empty(0, np.int64)
        timeline = Timeline(none, none, none, ())
        calls = Calls(none, none, none, ())
    else:
        timeline = follow_lines(records.lines, clock, end_ps)
        calls = find_calls(trace, clock.line)
    line = -1 if clock is None else clock.line
    host = find_host_work(trace, runs, input_of, line)
    device = find_device_work(trace, runs, input_of, line)
    places: dict[tuple[str, int], int] = {("", 0): 0}
    rows = _Rows(places, records, timeline, calls, hlo)
    host_rows, device_rows = rows.charge(host), rows.charge(device)
    busy = None if clock is None else find_busy(trace, clock.line)
    times = _times_of_lines(
        timeline, busy, [places.setdefault(p, len(places)) for p in timeline.places]
    )
    return _tabulate(places, (host, *host_rows), (device, *device_rows), times, records)


class _Rows:
    """Finds the row of each op's line.

    Args:
        places: Rows by (file, line); grows.
        records: What the capture knows.
        timeline: Where the user's code was.
        calls: What it asked TensorFlow to run.
        hlo: The HLO instructions, some of which know their line.
    """

    def __init__(
        self,
        places: dict[tuple[str, int], int],
        records: SourceRecords,
        timeline: Timeline,
        calls: Calls,
        hlo: HloOps,
    ) -> None:
        self._places, self._timeline, self._calls = places, timeline, calls
        self._index = LineIndex(records)
        self._row_of_place = self._rows(records.places)
        self._row_of_current = self._rows(timeline.places)
        self._hlo_sources = {op.key[0]: op.source for op in hlo.ops if op.source}

    def _rows(self, places: list[tuple[str, int]] | tuple[tuple[str, int], ...]) -> Int64s:
        """Rows of places, and at the end, where -1 leads, the row of none."""
        rows = [self._places.setdefault(place, len(self._places)) for place in places]
        return np.array([*rows, 0], np.int64)

    def charge(self, work: Work) -> tuple[Int64s, Int64s, Bools]:
        """Per op: the row of its line, the row that asked for the gradient (else -1), whether it is one."""
        current = self._row_of_current[self._timeline.place_at(work.asked_ps)]
        call, is_running = self._calls.at(work.asked_ps)
        called = self._calls.name[np.maximum(call, 0)] if self._calls.name.size else call
        is_function = np.array([name.startswith(_FUNCTION) for name in (*self._calls.names, "")])
        in_function = (call >= 0) & is_function[called]
        is_eager = work.is_own_thread & is_running & ~in_function
        is_input = work.input_of > NOT_INPUT
        context = np.where(in_function & ~is_input, called, -1)
        kinds, pair = np.unique(
            np.stack([work.name, context, work.input_of]), axis=1, return_inverse=True
        )
        pair = pair.reshape(-1)
        self._index.note_input(
            (node, work.keys[name]) for name, _, node in kinds.T.tolist() if node >= 0
        )
        found = [
            self._find(work.keys[name], self._calls.names[at] if at >= 0 else "", node)
            for name, at, node in kinds.T.tolist()
        ]
        place = self._row_of_place[np.array([line.place for line in found], np.int64)][pair]
        tape = np.array([line.tape for line in found], np.int64)[pair]
        is_backward = np.array([line.is_backward for line in found], np.bool_)[pair]
        is_known = np.array([line.is_known for line in found], np.bool_)[pair]
        is_outside = np.array([line.is_outside for line in found], np.bool_)[pair]
        asks_current = is_running & in_function & (is_outside | (~is_known & (place == 0)))
        asks_current &= ~(is_input | work.is_elsewhere)
        row = np.where(is_eager | (asks_current & (current > 0)), current, place)
        is_tape_outside = np.array([line.is_tape_outside for line in found], np.bool_)[pair]
        asked = np.where(
            is_tape_outside & is_running & (current > 0), current, self._row_of_place[tape]
        )
        tape = np.where((tape >= 0) & ~is_eager, asked, -1)
        return row, np.where(tape == row, -1, tape), is_backward & ~is_eager

    def _find(self, name: str, function: str, input_of: int) -> OpLine:
        found = self._index.find(name, function, input_of)
        if found is NOWHERE and name in self._hlo_sources:
            file, _, line = self._hlo_sources[name].rpartition(":")
            row = self._places.setdefault((file, int(line)), len(self._places))
            self._row_of_place = np.append(self._row_of_place[:-1], [row, 0])
            return OpLine(self._row_of_place.size - 2, is_known=True)
        return found


@dataclass(frozen=True, slots=True)
class _Times:
    """Per row of lines that ran: wall, Python's part, how often."""

    rows: Int64s
    wall_ps: Int64s
    python_ps: Int64s
    runs: Int64s


def _times_of_lines(
    timeline: Timeline, busy: tuple[Int64s, Int64s] | None, rows: list[int]
) -> _Times:
    count = len(rows)
    wall, python, runs = (np.zeros(count, np.int64) for _ in range(3))
    at = timeline.place >= 0
    if count and busy is not None:
        took = np.diff(timeline.begin_ps)
        idle = took - np.diff(busy_within(busy, timeline.begin_ps))
        np.add.at(wall, timeline.place[at], took[at])
        np.add.at(python, timeline.place[at], idle[at])
        np.add.at(runs, timeline.place[at], timeline.is_begin[at])
    return _Times(np.array(rows, np.int64), wall, python, runs)


def _tabulate(
    places: dict[tuple[str, int], int],
    host: tuple[Work, Int64s, Int64s, Bools],
    device: tuple[Work, Int64s, Int64s, Bools],
    times: _Times,
    records: SourceRecords,
) -> SourceLines:
    table = np.zeros((8, len(places)), np.int64)
    for side, (work, row, tape, is_backward) in enumerate((host, device)):
        np.add.at(table[side], row, work.self_ps)
        np.add.at(table[2], row[is_backward], work.self_ps[is_backward])
        np.add.at(table[3], tape[tape >= 0], work.self_ps[tape >= 0])
        np.add.at(table[7], row, 1)
    watched = len(records.lines) > 0 and times.rows.size > 0
    for column, values in ((4, times.python_ps), (5, times.wall_ps), (6, times.runs)):
        table[column, times.rows] = values
    if not watched:
        table[4:7] = -1
    elif records.lines.is_sampled:
        table[6] = -1
    listed = list(places)
    cost = table[0] + table[1]
    costs: Bools = np.any(table[[0, 1, 3, 5]] > 0, axis=0)
    for at, place in enumerate(listed):  # our own line is not the user's
        costs[at] &= not (place[1] == 1 and _text(records.texts, *place).startswith("%%tf"))
    order = np.lexsort((-table[5], -cost))
    order = order[costs[order]]
    return SourceLines(
        tuple(listed[row][0] for row in order),
        np.array([listed[row][1] for row in order], np.int64),
        tuple(_text(records.texts, *listed[row]) for row in order),
        *_columns(table[:, order]),
        records.texts,
        records.cells,
        _remarks(records.lines),
    )


def _columns(
    table: Int64s,
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int64s, Int64s, Int64s]:
    host, device, backward, gradient, python, wall, runs, op_runs = table
    return host, device, backward, gradient, python, wall, runs, op_runs


def _text(texts: dict[str, tuple[str, ...]], file: str, line: int) -> str:
    lines = texts.get(file, ())
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _remarks(lines: LineRecords) -> tuple[str, ...]:
    remarks = []
    if lines.is_sampled:
        remarks.append(
            "This Python cannot tell of lines as they run (3.12 can), so Python's lines were sampled every "
            "millisecond; shorter ones may be missing."
        )
    elif not len(lines):
        remarks.append(
            "Lines of Python were not followed as they ran (that needs Python 3.12, or --python), so ops "
            "outside of any tf.function have no line."
        )
    if lines.untimed:
        shown = ", ".join(f"{line}" for _, line in sorted(lines.untimed)[:6])
        remarks.append(
            f"Lines that ran very often ({shown}{', ...' if len(lines.untimed) > 6 else ''}) were not timed "
            "one by one: the Python time of such a loop stands at one of its lines."
        )
    if lines.is_cut:
        remarks.append(
            "Python's lines were recorded for a part of the window only: there were too many."
        )
    return tuple(remarks)
