"""Ops to the lines of the user's source, with the time that each source line cost.

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

Besides, each line has the time that Python spent at it (``code_times``): in the steps that are asked for and
the gaps that belong to them, and in the whole capture.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from profnb.capture.source.source_records import LineRecords, SourceRecords
from profnb.capture.source.user_code import shorten_files
from profnb.core.columns import Bools, Int64s
from profnb.steps.untraced.clock import UntracedClock
from profnb.subjects.input.input_work import NOT_INPUT
from profnb.subjects.ops.op_table import OpRuns
from profnb.subjects.source.called_lines import CalledRows
from profnb.subjects.source.code_times import (
    LineHistory,
    LineTimes,
    find_busy,
    follow_lines,
    read_clock,
    times_of_lines,
)
from profnb.subjects.source.op_lines import NOWHERE, LineIndex, OpLine
from profnb.subjects.source.op_work import Calls, Work, find_calls, find_device_work, find_host_work
from profnb.subjects.source.source_lines import SourceLines
from profnb.subjects.source.stack_lines import StackLines
from profnb.subjects.xla.hlo_ops import HloOps
from profnb.trace.model import Trace

_FUNCTION = "__"


def tabulate_source_lines(
    trace: Trace,
    hlo: HloOps,
    runs: OpRuns,
    input_of: Int64s,
    records: SourceRecords,
    *,
    has_device: bool,
    within: tuple[Int64s, Int64s] | None = None,
    stacks: StackLines | None = None,
    untraced: UntracedClock | None = None,
) -> SourceLines:
    """Charge the time of all ops to source lines.

    Args:
        trace: The trace.
        hlo: Its HLO instructions.
        runs: Its runs of ops.
        input_of: The iterator of tf.data whose function each is of (``find_input_work``), shape (N,).
        records: What the capture knows of the user's source.
        has_device: Whether anything ran on a device.
        within: Begins and ends of what Python's time is of, in order; None for the whole capture.
        stacks: What PyTorch's stacks tell, where the lines were not followed.
        untraced: What took the cost of tracing out of the trace's times.
    """
    clock = read_clock(trace)
    end_ps = int(trace.events.end_ps.max(initial=0))
    if clock is None:
        none = np.empty(0, np.int64)
        history = LineHistory(none, none, none, ())
        calls = Calls(none, none, none, ())
    else:
        history = follow_lines(records.lines, clock, end_ps)
        if untraced is not None:
            history = replace(history, begin_ps=untraced.read(history.begin_ps))
        calls = find_calls(trace, clock.thread_line)
    thread_line = -1 if clock is None else clock.thread_line
    host = find_host_work(trace, runs, input_of, thread_line)
    device = find_device_work(trace, runs, input_of, thread_line)
    places: dict[tuple[str, int], int] = {("", 0): 0}
    rows: _SourceRows | CalledRows
    if trace.is_op_name is None:
        rows = _SourceRows(places, records, history, calls, hlo)
    else:
        layers = {name: records.places[row] for name, row in records.layers.items()}
        rows = CalledRows(trace, places, layers, stacks or (history, thread_line))
    host_rows, device_rows = rows.charge(host), rows.charge(device)
    busy = None if clock is None else find_busy(trace, clock.thread_line)
    times = times_of_lines(
        history, busy, [places.setdefault(p, len(places)) for p in history.places], within
    )
    table = _add_up(places, (host, *host_rows), (device, *device_rows), times, records)
    remarks = _remarks(records.lines, stacks, is_called=trace.is_op_name is not None)
    return _tabulate(table, list(places), records, stacks, remarks, has_device=has_device)


class _SourceRows:
    """Finds the row of each op's source line.

    Args:
        places: Rows by (file, line); grows.
        records: What the capture knows.
        history: Where the user's code was.
        calls: What it asked TensorFlow to run.
        hlo: The HLO instructions, some of which know their line.
    """

    def __init__(
        self,
        places: dict[tuple[str, int], int],
        records: SourceRecords,
        history: LineHistory,
        calls: Calls,
        hlo: HloOps,
    ) -> None:
        self._places, self._history, self._calls = places, history, calls
        self._index = LineIndex(records)
        self._row_of_place = self._rows(records.places)
        self._row_of_current = self._rows(history.places)
        sources = {op.key[0]: op.source.rpartition(":") for op in hlo.ops if op.source}
        titles = {*records.lines.files, *records.texts, *(file for file, _ in records.places)}
        names = _names_of_files({file for file, _, _ in sources.values()}, titles)
        self._hlo_sources = {
            op: (names[file], int(number)) for op, (file, _, number) in sources.items()
        }

    def _rows(self, places: list[tuple[str, int]] | tuple[tuple[str, int], ...]) -> Int64s:
        """Rows of places, and at the end, where -1 leads, the row of none."""
        rows = [self._places.setdefault(place, len(self._places)) for place in places]
        return np.array([*rows, 0], np.int64)

    def charge(self, work: Work) -> tuple[Int64s, Int64s, Bools]:
        """Per op: the row of its line, the row that asked for the gradient (else -1), whether it is one."""
        current = self._row_of_current[self._history.place_at(work.asked_ps)]
        call, is_running = self._calls.at(work.asked_ps)
        called = self._calls.name[np.maximum(call, 0)] if self._calls.name.size else call
        is_function = np.array([name.startswith(_FUNCTION) for name in (*self._calls.names, "")])
        in_function = (call >= 0) & is_function[called]
        is_eager = work.is_watched & is_running & ~in_function
        is_input = work.input_of > NOT_INPUT
        context = np.where(in_function & ~is_input, called, -1)
        kinds, pair = np.unique(
            np.stack([work.name, context, work.input_of]), axis=1, return_inverse=True
        )
        pair = pair.reshape(-1)
        self._index.note_input(
            (node, work.keys[name]) for name, _, node in kinds.T.tolist() if node >= 0
        )
        lines = [
            self._find(work.keys[name], self._calls.names[at] if at >= 0 else "", node)
            for name, at, node in kinds.T.tolist()
        ]
        place = self._row_of_place[np.array([line.place for line in lines], np.int64)][pair]
        tape = np.array([line.tape for line in lines], np.int64)[pair]
        is_backward = np.array([line.is_backward for line in lines], np.bool_)[pair]
        has_graph = np.array([line.has_graph for line in lines], np.bool_)[pair]
        is_outside = np.array([line.is_outside for line in lines], np.bool_)[pair]
        asks_current = is_running & in_function & (is_outside | (~has_graph & (place == 0)))
        asks_current &= ~(is_input | work.is_elsewhere)
        row = np.where(is_eager | (asks_current & (current > 0)), current, place)
        is_tape_outside = np.array([line.is_tape_outside for line in lines], np.bool_)[pair]
        asked = np.where(
            is_tape_outside & is_running & (current > 0), current, self._row_of_place[tape]
        )
        tape = np.where((tape >= 0) & ~is_eager, asked, -1)
        return row, np.where(tape == row, -1, tape), is_backward & ~is_eager

    def _find(self, name: str, function: str, input_of: int) -> OpLine:
        op_line = self._index.find(name, function, input_of)
        if op_line is NOWHERE and name in self._hlo_sources:
            row = self._places.setdefault(self._hlo_sources[name], len(self._places))
            self._row_of_place = np.append(self._row_of_place[:-1], [row, 0])
            return OpLine(self._row_of_place.size - 2, has_graph=True)
        return op_line


def _names_of_files(files: Iterable[str], titles: Collection[str]) -> dict[str, str]:
    """What the result calls files that a saved program names by their whole path.

    Where ``src/train.py`` is such a title, ``/home/me/src/train.py`` is that file.
    """
    ends = {file: [title for title in titles if file.endswith(f"/{title}")] for file in files}
    others = shorten_files((file for file in files if not ends[file]), "")
    return others | {file: max(fitting, key=len) for file, fitting in ends.items() if fitting}


# The rows of a table that is added up: one column per place, in the order of ``SourceLines``.
_HOST, _DEVICE, _BACKWARD, _GRADIENT, _PYTHON, _WALL, _BEGUN, _CAPTURE, _OPS = range(9)


def _add_up(
    places: dict[tuple[str, int], int],
    host: tuple[Work, Int64s, Int64s, Bools],
    device: tuple[Work, Int64s, Int64s, Bools],
    times: LineTimes,
    records: SourceRecords,
) -> Int64s:
    """Times and occurrences of each place, shape (9, places)."""
    table = np.zeros((9, len(places)), np.int64)
    for side, (work, row, tape, is_backward) in ((_HOST, host), (_DEVICE, device)):
        np.add.at(table[side], row, work.self_ps)
        np.add.at(table[_BACKWARD], row[is_backward], work.self_ps[is_backward])
        np.add.at(table[_GRADIENT], tape[tape >= 0], work.self_ps[tape >= 0])
        np.add.at(table[_OPS], row, work.is_execution)
    for column, values in (
        (_PYTHON, times.python_ps), (_WALL, times.wall_ps), (_BEGUN, times.occurrences),
        (_CAPTURE, times.capture_ps),
    ):  # fmt: skip
        table[column, times.rows] = values
    if not len(records.lines) or not times.rows.size:
        table[[_PYTHON, _WALL, _BEGUN, _CAPTURE]] = -1
    elif records.lines.is_sampled:
        table[_BEGUN] = -1
    return table


def _tabulate(
    table: Int64s,
    places: list[tuple[str, int]],
    records: SourceRecords,
    stacks: StackLines | None,
    remarks: tuple[str, ...],
    *,
    has_device: bool,
) -> SourceLines:
    """The places that cost anything, most op time first."""
    cost = table[_HOST] + table[_DEVICE]
    is_costly: Bools = np.any(table[[_HOST, _DEVICE, _GRADIENT, _CAPTURE]] > 0, axis=0)
    for at, place in enumerate(places):  # profnb's own line is not the user's
        is_costly[at] &= not (place[1] == 1 and _text(records.texts, *place).startswith("%%tf"))
    order = np.lexsort((-table[_CAPTURE], -table[_WALL], -cost))
    order = order[is_costly[order]]
    host, device, backward, gradient, python, wall, begun, capture, ops = table[:, order]
    named = {} if stacks is None else dict(zip(stacks.places, stacks.functions, strict=True))
    texts = (_text(records.texts, *places[row]) for row in order)
    functions = (named.get(places[row], "") for row in order)
    return SourceLines(
        tuple(places[row][0] for row in order),
        np.array([places[row][1] for row in order], np.int64),
        tuple(t or (f"in {f}" if f else "") for t, f in zip(texts, functions, strict=True)),
        host, device, backward, gradient, python, wall, begun, capture, ops,
        has_device,
        records.texts,
        records.cells,
        remarks,
    )  # fmt: skip


def _text(texts: dict[str, tuple[str, ...]], file: str, line: int) -> str:
    lines = texts.get(file, ())
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _remarks(lines: LineRecords, stacks: StackLines | None, *, is_called: bool) -> tuple[str, ...]:
    """What the numbers do not say; ``is_called``: of ops that Python calls one by one, as PyTorch's."""
    remarks = []
    if stacks is not None:
        remarks.append("Lines are those of the stacks that PyTorch recorded.")
        if any(stacks.functions):
            remarks.append(
                "Where these tell only the function, its time stands at the function's first line."
            )
    elif lines.is_sampled:
        remarks.append(
            "This Python cannot tell of lines as they run (3.12 can), so Python's lines were sampled every "
            "millisecond; shorter ones may be missing."
        )
    elif not len(lines) and is_called:
        remarks.append(
            "Lines of Python were not followed as they ran (that needs Python 3.12, or --python-tracer), so "
            "only layers of Keras have lines: those that made them."
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
            "Python's lines were recorded for a part of the window only: there were too many, or another "
            "tool took over."
        )
    return tuple(remarks)
