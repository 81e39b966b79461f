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
from dataclasses import dataclass, replace

import numpy as np

from profnb.capture.source.source_records import LineRecords, SourceRecords
from profnb.capture.source.user_code import shorten_files
from profnb.core.columns import Bools, Int64s, RowColumns, distinct_rows, fraction_of, sum_by
from profnb.core.table import Table, columns_in
from profnb.steps.spine import Spine
from profnb.subjects.input.iterators import NOT_INPUT
from profnb.subjects.ops.op_table import OpRuns
from profnb.subjects.source.code_times import (
    Calls,
    LineHistory,
    Work,
    find_busy,
    find_calls,
    find_work,
    follow_lines,
    read_clock,
    times_of_lines,
)
from profnb.subjects.source.op_lines import NOWHERE, LineIndex, OpLine
from profnb.subjects.source.torch_lines import CalledRows, StackLines
from profnb.subjects.xla.hlo_ops import HloOps

_FUNCTION_SEPARATOR = "__"


@dataclass(frozen=True, slots=True)
class SourceLines(RowColumns):
    """One row per line of the user's source that cost anything, most op time first.

    Its columns are those of ``SOURCE_LINES``, each of shape (N,), times in picoseconds.
    """

    file: tuple[str, ...]
    line: Int64s
    # the source; "" where it is not at hand, "in NAME" where only the function is known
    text: tuple[str, ...]
    host_ps: Int64s
    device_ps: Int64s
    backward_ps: Int64s
    gradient_ps: Int64s
    # time at the line in which the framework did not run, in the same steps and the gaps that belong to them;
    # -1 where Python was not watched, shape (N,)
    python_ps: Int64s
    wall_ps: Int64s  # time at the line then, shape (N,); -1 likewise
    # how often it began to run then; -1 likewise or where lines were sampled, shape (N,)
    occurrences: Int64s
    # time at the line in the whole capture, shape (N,); -1 where Python was not watched
    capture_ps: Int64s
    op_occurrences: Int64s
    has_device: bool  # whether anything ran on a device
    texts: dict[str, tuple[str, ...]]  # the lines of each file
    cells: dict[str, int]  # the number of the cell that each file stands for, where it is one
    remarks: tuple[str, ...] = ()  # what the numbers do not say, in sentences

    @property
    def side_ps(self) -> Int64s:
        """Time of its ops on devices; without a device on hosts."""
        return self.device_ps if self.has_device else self.host_ps


SOURCE_LINES = Table[SourceLines](
    "source_lines",
    "One row per line of your own source with any cost, most op time first.",
    columns_in("""
        file: the file it stands in, from the working folder or its package on, "" in the row of ops that no
            line made
        line: its number in the file, 0 in that row
        source: its text; "in NAME" where a trace of PyTorch tells the function only, whose first line it is
        host_us: self time on hosts of the ops that it made
        device_us: ... on devices, NaN without a device
        python_us [Python] >= 0: time at the line in which the framework did not run
        wall_us >= 0: time at the line
        capture_us >= 0: time at the line in the whole capture, in steps or not
        forward_us: the part of its ops' time that is no gradient's
        backward_us: the part of it in gradients that it caused
        gradient_us: time of gradients asked for here and charged to the lines that caused them
        fraction: of the op time of the device, without a device of the host
        occurrences >= 0: how often the line began to run
        op_occurrences: how often ops of it ran
        """),
    "Ops are of the steady steps and of work beside. Python's time is of the steady steps and their gaps; "
    "``capture_us`` covers the whole capture. Without steps everything counts. With the row of no file, "
    "host and device times add up to all these ops. No row without ``source``, nor for a saved trace "
    "without PyTorch's stacks. Unwatched values are NaN.",
    values={
        "source": lambda t: [text.strip() for text in t.text],
        "device_us": lambda t: np.where(t.has_device, t.device_ps, np.nan),
        "forward_us": lambda t: t.host_ps + t.device_ps - t.backward_ps,
        "fraction": lambda t: fraction_of(t.side_ps),
    },
)


def tabulate_source_lines(
    spine: Spine, hlo: HloOps, runs: OpRuns, input_of: Int64s,
    within: tuple[Int64s, Int64s] | None, stacks: StackLines | None,
) -> SourceLines:  # fmt: skip
    """Charge the time of all ops to source lines.

    Args:
        spine: The trace, and what the capture knows of the user's source.
        hlo: Its HLO instructions.
        runs: Its runs of ops.
        input_of: The iterator of tf.data whose function each is of (``find_input_work``), shape (N,).
        within: Begins and ends of what Python's time is of, in order; None for the whole capture.
        stacks: What PyTorch's stacks tell, where the lines were not followed.
    """
    trace, records = spine.trace, spine.recording.source or SourceRecords()
    clock = read_clock(trace)
    none = np.empty(0, np.int64)
    history, calls = LineHistory(none, none, none, ()), Calls(none, none, none, ())
    thread_line, busy = -1, None
    if clock is not None:
        thread_line = clock.thread_line
        history = follow_lines(records.lines, clock, int(trace.events.end_ps.max(initial=0)))
        history = replace(history, begin_ps=spine.read_clock(history.begin_ps))
        calls, busy = find_calls(trace, thread_line), find_busy(trace, thread_line)
    places: dict[tuple[str, int], int] = {("", 0): 0}
    rows: _SourceRows | CalledRows
    if trace.is_op_name is None:
        rows = _SourceRows(places, records, history, calls, hlo)
    else:
        layers = {name: records.places[row] for name, row in records.layers.items()}
        rows = CalledRows(trace, places, layers, stacks or (history, thread_line))
    works = [
        find_work(trace, runs, input_of, thread_line, on_device=side) for side in (False, True)
    ]
    charged = [rows.charge(work) for work in works]
    of_history = [places.setdefault(place, len(places)) for place in history.places]
    table = np.zeros((9, len(places)), np.int64)
    for side, work, (row, tape, is_backward) in zip((_HOST, _DEVICE), works, charged, strict=True):
        table[side] += sum_by(row, work.self_ps, len(places))
        table[_BACKWARD_ROW] += sum_by(row, work.self_ps * is_backward, len(places))
        table[_GRADIENT] += sum_by(tape, work.self_ps, len(places))
        table[_OPS_ROW] += sum_by(row, work.is_execution, len(places))
    times = [_PYTHON_ROW, _WALL, _BEGUN, _CAPTURE]
    table[np.ix_(times, of_history)] = times_of_lines(history, busy, within)
    if not len(records.lines) or not of_history:
        table[times] = -1
    elif records.lines.is_sampled:
        table[_BEGUN] = -1
    remarks = _remarks(records.lines, stacks, is_called=trace.is_op_name is not None)
    has_device = spine.program.has_device
    return _tabulate(table, list(places), records, stacks, remarks, has_device=has_device)


class _SourceRows:
    """Finds the row of each op's source line.

    ``places``, the rows by (file, line), grows.
    """

    def __init__(
        self, places: dict[tuple[str, int], int], records: SourceRecords, history: LineHistory,
        calls: Calls, hlo: HloOps,
    ) -> None:  # fmt: skip
        self._places, self._history, self._calls = places, history, calls
        self._index = LineIndex(records)
        self._row_of_place = self._rows(records.places)
        self._row_of_current = self._rows(history.places)
        sources = {op.key[0]: op.source.rpartition(":") for op in hlo.ops if op.source}
        titles = {*records.lines.files, *records.texts, *(file for file, _ in records.places)}
        names = _names_of_files({file for file, _, _ in sources.values()}, titles)
        lines = sources.items()
        self._hlo_sources = {op: (names[file], int(number)) for op, (file, _, number) in lines}

    def _rows(self, places: Iterable[tuple[str, int]]) -> Int64s:
        """Rows of places, and at the end, where -1 leads, the row of none."""
        rows = [self._places.setdefault(place, len(self._places)) for place in places]
        return np.array([*rows, 0], np.int64)

    def charge(self, work: Work) -> tuple[Int64s, Int64s, Bools]:
        """Per op: the row of its line, the row that asked for the gradient (else -1), whether it is one."""
        current = self._row_of_current[self._history.place_at(work.asked_ps)]
        call, is_running = self._calls.at(work.asked_ps)
        called = np.append(self._calls.name, len(self._calls.names))[call]
        names = (*self._calls.names, "")
        in_function = np.array([name.startswith(_FUNCTION_SEPARATOR) for name in names])[called]
        is_eager = work.is_watched & is_running & ~in_function
        is_input = work.input_of > NOT_INPUT
        context = np.where(in_function & ~is_input, called, -1)
        kinds, pair = distinct_rows(work.name, context, work.input_of)
        self._index.note_input((node, work.keys[name]) for name, _, node in kinds if node >= 0)
        lines = [self._find(work.keys[name], names[at], node) for name, at, node in kinds]
        columns = np.array(lines, np.int64).reshape(-1, len(NOWHERE))[pair].T
        place, tape = self._row_of_place[columns[0]], columns[1]
        is_backward, has_graph, is_outside, is_tape_outside = columns[2:] > 0
        asks_current = is_running & in_function & (is_outside | (~has_graph & (place == 0)))
        asks_current &= ~(is_input | work.is_elsewhere)
        row = np.where(is_eager | (asks_current & (current > 0)), current, place)
        asks_tape = is_tape_outside & is_running & (current > 0)
        asked = np.where(asks_tape, current, self._row_of_place[tape])
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
    """Name files that a saved program names by their whole path.

    Where ``src/train.py`` is such a title, ``/home/me/src/train.py`` is that file.
    """
    ends = {file: [title for title in titles if file.endswith(f"/{title}")] for file in files}
    others = shorten_files((file for file in files if not ends[file]), "")
    return others | {file: max(fitting, key=len) for file, fitting in ends.items() if fitting}


# The rows of a table that is added up: one column per place, in the order of ``SourceLines``.
_HOST, _DEVICE, _BACKWARD_ROW, _GRADIENT, _PYTHON_ROW, _WALL, _BEGUN, _CAPTURE, _OPS_ROW = range(9)


def _tabulate(
    table: Int64s, places: list[tuple[str, int]], records: SourceRecords, stacks: StackLines | None,
    remarks: tuple[str, ...], *, has_device: bool,
) -> SourceLines:  # fmt: skip
    """The places that cost anything, most op time first."""
    is_costly: Bools = np.any(table[[_HOST, _DEVICE, _GRADIENT, _CAPTURE]] > 0, axis=0)
    texts = []
    for at, (file, line) in enumerate(places):
        lines = records.texts.get(file, ())
        texts.append(lines[line - 1] if 0 < line <= len(lines) else "")
        if line == 1 and texts[at].startswith("%%tf"):  # profnb's own, which is not the user's
            is_costly[at] = False
    order = np.lexsort((-table[_CAPTURE], -table[_WALL], -(table[_HOST] + table[_DEVICE])))
    order = order[is_costly[order]]
    host, device, backward, gradient, python, wall, begun, capture, ops = table[:, order]
    named = {} if stacks is None else dict(zip(stacks.places, stacks.functions, strict=True))
    functions = [named.get(place, "") for place in places]
    return SourceLines(
        tuple(places[row][0] for row in order),
        np.array([places[row][1] for row in order], np.int64),
        tuple(texts[row] or (functions[row] and f"in {functions[row]}") for row in order),
        host, device, backward, gradient, python, wall, begun, capture, ops,
        has_device, records.texts, records.cells, remarks,
    )  # fmt: skip


def _remarks(lines: LineRecords, stacks: StackLines | None, *, is_called: bool) -> tuple[str, ...]:
    """Say what the numbers do not; ``is_called``: of ops that Python calls one by one, as PyTorch's."""
    remarks = []
    if stacks is not None:
        remarks.append("Lines come from PyTorch's recorded stacks.")
        if any(stacks.functions):
            remarks.append(
                "If a stack has only the function, the function's first line has the time."
            )
    elif lines.is_sampled:
        remarks.append(
            "Before Python 3.12 lines cannot be followed, so Python's lines were sampled every "
            "millisecond. Shorter lines may be missing."
        )
    elif not len(lines):
        option, then = "--python", "Ops outside of compiled functions have no line"
        if is_called:
            option = "--python-tracer"
            then = "Only layers of Keras have lines: where the layer was made"
        remarks.append(f"{then}. Python 3.12 or {option} follows all lines.")
    if lines.untimed:
        shown = ", ".join(f"{line}" for _, line in sorted(lines.untimed)[:6])
        remarks.append(
            f"Very frequent lines ({shown}{', ...' if len(lines.untimed) > 6 else ''}) were not timed one "
            "by one: a single line has the Python time of the whole loop."
        )
    if lines.is_cut:
        remarks.append(
            "Python's lines were recorded for a part of the window only: too many lines ran, or another "
            "tool took over."
        )
    return tuple(remarks)
