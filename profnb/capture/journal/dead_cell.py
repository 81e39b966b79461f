"""A journal whose process died, to a recording: what the capture would have left, as far as it was kept.

Numbers of a file are not trusted: it may be another version's, or damaged.
"""

import shutil
from array import array
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from profnb.capture.journal.journal import LISTS, LOOKS, MACHINE, STACKS, STEP_WORDS, STEPS
from profnb.capture.journal.journal_file import Newest, as_json, read_journal
from profnb.capture.machine.machine_watch import BoardRecords, MachineRecords
from profnb.capture.parts.cell_division import CellCounts, divide_cell
from profnb.capture.parts.part_records import CALL, CELL, LINES, NodeKey
from profnb.capture.parts.stack_parts import part_of_stack
from profnb.capture.recording import Recording
from profnb.capture.source.source_records import StackRecords
from profnb.capture.source.stacks import line_among
from profnb.capture.source.user_code import is_user_file
from profnb.capture.step_records import KINDS, KerasRunSeen, StepLog
from profnb.core.errors import TraceFormatError
from profnb.core.safe_files import ours_alone

_MODULE = "<module>"
_NS, _MOST_RUNS, _MOST_STACKS, _MOST_STEPS = 1 << 60, 100_000, 500_000, 1 << 20
_STEPS_HEAD = 24  # bytes


@dataclass(frozen=True, slots=True)
class DeadCell:
    """A cell whose process died.

    Attributes:
        recording: What was kept of it.
        newest: Where it stood when it was written last.
        limit_bytes: The memory it could have had; -1 where that is not known.
        limit_of: What set that bound.
        part: The part that ran; "" for the user's own Python.
        function: The innermost function of the user's that ran; "" for none, or the cell itself.
        line: The line that ran in it; 0 for none.
        cell: The number of the cell that it stands in; 0 for none.
        warmup_steps: How many first steps stay out of averages.
        trace: The trace, where it had been written; else None.
    """

    recording: Recording
    newest: Newest
    limit_bytes: int
    limit_of: str
    part: str
    function: str
    line: int
    cell: int
    warmup_steps: int
    trace: Path | None


def read_dead_cell(path: Path) -> DeadCell:
    """Read a journal.

    Raises:
        TraceFormatError: It is none, of another version, damaged, or cut before anything was kept.
    """
    newest, records = read_journal(path)
    with ours_alone(path, "profnb writes while a cell runs"):
        return _read(newest, records)


def forget(path: Path, trace: Path | None) -> None:
    """Remove a journal and its trace."""
    with suppress(OSError):
        path.unlink()
    if trace is not None:
        folder = Path(gettempdir()) / trace.relative_to(gettempdir()).parts[0]
        shutil.rmtree(folder, ignore_errors=True)


class _Kept:
    """What a journal's records hold, one after the other."""

    def __init__(self) -> None:
        self.log, self.looks, self.machine = StepLog(), StackRecords(), MachineRecords()
        self.stacks: dict[int, list[int]] = {}
        self.lists: dict[str, list[Any]] = {}

    def add(self, kind: bytes, content: bytes) -> None:
        """Add a record, behind the lists that it names things of; of a kind that is not known nothing."""
        if kind == LISTS:
            for name, items in as_json(content).items():
                self.lists.setdefault(name, []).extend(items)
        elif kind == STEPS:
            _add_steps(self.log, content, self.lists.get("names", []))
        elif kind == LOOKS:
            numbers = _numbers(content)
            half = len(numbers) // 2
            self.looks.time_ns.extend(numbers[:half])
            self.looks.stack.extend(numbers[half:].tolist())
        elif kind == STACKS:
            rest = iter(_numbers(content))
            for row, length in zip(rest, rest, strict=False):
                self.stacks[row] = list(islice(rest, length))
        elif kind == MACHINE:
            _add_look(self.machine, self.lists.get("boards", []), *_numbers(content))

    def name_stacks(self, newest: int) -> None:
        """Give looks their stacks; one that was not kept is an empty one."""
        looks = self.looks
        codes = {
            int(number): (str(name), str(file), int(first), list(lines))
            for number, name, file, first, lines in self.lists.get("codes", ())
        }
        frames: dict[tuple[str, str, int, int], int] = {}
        rows: dict[tuple[int, int], int] = {}  # by code and instruction: they stand in many stacks
        count = min(max(newest, max(looks.stack, default=0)), _MOST_STACKS) + 1
        for row in range(count):
            key = self.stacks.get(row, [])
            places = zip(key[-2::-2], key[::-2], strict=True)  # the outermost first
            stack = []
            for place in places:
                if place[0] in codes and place not in rows:
                    name, file, first, lines = codes[place[0]]
                    frame = name, file, first, int(line_among(lines, place[1])) or first
                    rows[place] = frames.setdefault(frame, len(frames))
                if place in rows:
                    stack.append(rows[place])
            looks.stacks.append(tuple(stack))
        looks.frames.extend(frames)


def _read(newest: Newest, records: list[tuple[bytes, bytes]]) -> DeadCell:
    kept = _Kept()
    for kind, content in sorted(records, key=lambda record: record[0] != LISTS):
        kept.add(kind, content)
    log, looks, recording = kept.log, kept.looks, Recording()
    if "begin" not in kept.lists:
        raise TraceFormatError("a journal that was cut")
    (begin,) = kept.lists["begin"]
    looks.begin_ns, looks.base = begin["began_ns"], begin["base"]
    kept.name_stacks(newest.stack)
    _fill(log, kept.lists)
    end_ns = max(newest.time_ns, begin["began_ns"] + 1)
    ours = [(str(name), int(at), int(end)) for name, at, end in kept.lists.get("ours", ())]
    cell = divide_cell(CellCounts(begin["began_ns"], end_ns, log, ours), looks)
    cells = {str(name): int(number) for name, number in kept.lists.get("cells", ())}
    recording.cell = replace(cell, cells=cells)
    for versions in kept.lists.get("versions", ()):
        recording.environment = {str(name): str(version) for name, version in versions.items()}
    trace = None
    for written in kept.lists.get("trace", ()):
        trace, recording.closed_by = _trace_at(str(written["path"])), written["closed_by"]
        recording.window_ns = int(written["window_ns"])
    recording.steps, recording.wall_ns = log.records(), end_ns - begin["began_ns"]
    recording.overhead_ns = sum(end - at for _, at, end in ours)
    kept.machine.end_ns = end_ns
    recording.machine = kept.machine if len(kept.machine) else None
    frames = [looks.frames[at] for at in looks.stacks[newest.stack]]
    part = part_of_stack(frames, looks.base)
    users = [frame for frame in frames[max(looks.base - 1, 0) :] if is_user_file(frame[1])]
    name, file, _, line = users[-1] if users else ("", "", 0, 0)
    return DeadCell(
        recording,
        newest._replace(steps=max(newest.steps, len(log))),  # killed between the two writes
        int(begin["limit_bytes"]),
        str(begin["limit_of"]),
        next((_title(key) for key in reversed(part.path) if key.kind not in (LINES, CELL)), ""),
        "" if name == _MODULE else name,
        line,
        cells.get(file, 0),
        int(begin["warmup_steps"]),
        trace,
    )


def _title(key: NodeKey) -> str:
    return f"`{key.name}`" if key.kind == CALL else key.kind


def _numbers(content: bytes) -> "array[int]":
    numbers = array("q")
    numbers.frombytes(content)
    return numbers


def _add_steps(log: StepLog, content: bytes, names: list[str]) -> None:
    """Add steps, and forget those that they came in place of."""
    import numpy as np

    first, count, is_uneven = _numbers(content[:_STEPS_HEAD])
    if not (0 <= first <= len(log) and 0 < count <= _MOST_STEPS):
        raise TraceFormatError("steps out of order")
    words = np.frombuffer(content[_STEPS_HEAD:], np.uint16)
    steps = np.tile(words[:STEP_WORDS], (count, 1))
    uneven = [at for at in range(STEP_WORDS) if is_uneven >> at & 1]
    steps[:, uneven] = words[STEP_WORDS:].reshape(len(uneven), count).T
    log.truncate(first)
    for begin, end, name, kind, *others in steps.view(np.int64).tolist():
        is_step = 0 <= begin <= end < _NS and 0 <= kind < len(KINDS) and 0 <= name < len(names)
        if not is_step or not 0 <= others[-1] < _MOST_RUNS:
            raise TraceFormatError("a step with impossible times")
        log.end_step(len(log), begin, end, names[name], kind, *others)


def _fill(log: StepLog, lists: dict[str, list[Any]]) -> None:
    """Give the log what it has besides steps."""
    log.runs.extend(KerasRunSeen(**run) for run in lists.get("runs", ()))
    log.ended_at.extend(map(int, lists.get("ended_at", ())))
    log.ended_epoch.extend(map(int, lists.get("ended_epoch", ())))
    log.run_spans.extend((int(begin), int(end)) for begin, end in lists.get("run_spans", ()))
    log.failed.extend((str(name), int(at), int(end)) for name, at, end in lists.get("failed", ()))


def _add_look(records: MachineRecords, boards: list[Any], began_ns: int, *values: int) -> None:
    """Add a look at the machine, in the order of its columns."""
    records.begin_ns = began_ns
    if not len(records):
        records.boards = [BoardRecords(str(name), index, size) for name, index, size in boards]
    for column, value in zip(records.columns(), values, strict=True):
        column.append(value)


def _trace_at(name: str) -> Path | None:
    """The trace of this name in the folder of what is temporary, if it is there."""
    root = Path(gettempdir())
    path = root / name
    is_inside = path.resolve().is_relative_to(root.resolve()) and path.parent != root
    return path if is_inside and path.is_file() else None
