"""A thread that keeps on disk what a capture has seen, every second, for an answer if the process dies.

It asks nothing of the code that runs: it reads what the capture keeps anyway, and writes what is new since it
wrote last. Of the user's source it keeps the names of functions and the numbers of lines, no path and no
text: files of the user's are numbered.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import gettempdir
from types import CodeType
from typing import TYPE_CHECKING, Any

from profnb.capture.environment import imported_versions
from profnb.capture.machine.machine_watch import MISSING, MachineRecords
from profnb.capture.machine.memory_limits import find_limit, resident_bytes
from profnb.capture.source.stacks import Looks, Sampler, line_at
from profnb.capture.source.user_code import is_own_file, is_user_file, number_cells
from profnb.core.safe_files import keep_a_day
from profnb.core.sharing import short_path

if TYPE_CHECKING:
    from profnb.capture.journal.journal_file import JournalFile, Newest
    from profnb.capture.parts.cell_counters import OwnTime
    from profnb.capture.recording import Recording
    from profnb.capture.step_records import StepLog
    from profnb.core.options import CaptureOptions

BEGIN, LISTS, STEPS, LOOKS, STACKS, MACHINE, TRACE, VERSIONS = (
    bytes([code]) for code in b"BRSLFMTV"
)
_WRITES_APART_S = 0.8  # an answer tells all but the last second
_DISK_PATIENCE_S = 1.0  # for a disk that does not answer, as the cell ends
_MOST_STACKS, _MOST_FRAMES = 4, 30  # new ones of one write: the others come with the next
_LAST_STEP_BYTES, _THINNING = 6 << 20, 1000  # from there on no more steps are written


class Journal:
    """What a capture keeps on disk.

    Args:
        options: How it captures.
        sampler: Looks at the code.
        log: Its steps.
        own_time: What profnb takes.
        machine: What the machine does.
        recording: Where the trace will be.
        failed: Is given what went wrong, once.
    """

    def __init__(
        self,
        options: CaptureOptions,
        sampler: Sampler,
        log: StepLog,
        own_time: OwnTime,
        machine: Callable[[], MachineRecords],
        recording: Recording,
        failed: Callable[[Exception], object],
    ) -> None:
        """Nothing is kept yet."""
        self._options, self._sampler, self._log = options, sampler, log
        self._own_time, self._machine, self._recording = own_time, machine, recording
        self._failed = failed
        self._ended = threading.Event()
        self._file: JournalFile | None = None
        self._thread: threading.Thread | None = None
        self.took_s = 0.0  # processor time of the thread
        self._began_ns = self._sequence = self._peak_bytes = self._sampled_ns = 0
        self._step_ends = array("q")  # of the steps that are written, whose begin may be taken back
        self._names: dict[str, int] = {}
        self._looks = self._stacks = self._named = self._user_files = 0
        self._frames: dict[tuple[int, int], int] = {}  # the row of each that was seen
        self._rows: dict[tuple[int, int], int] = {}  # of each that is written
        self._files: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        self._has_trace = False
        self._versions: dict[str, str] = {}

    def start(self) -> None:
        """Begin to write; where no file can be made, or no thread started, nothing is kept."""
        with suppress(OSError, ImportError, RuntimeError):
            from profnb.capture.journal.journal_file import JournalFile  # not everywhere

            self._file = JournalFile()
            self._began_ns = time.perf_counter_ns()
            limit = find_limit()
            begin = {
                "began_ns": self._began_ns,
                "base": self._sampler.base,
                "warmup_steps": self._options.warmup_steps,
                "limit_bytes": MISSING if limit is None else limit.limit_bytes,
                "limit_of": "" if limit is None else limit.of,
            }
            self._file.append_json(BEGIN, begin)
            self._file.commit(self._newest(self._began_ns, 0, 0))
            self._thread = threading.Thread(target=self._write_on, name="profnb", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Write a last time: reading what was captured may end the process, too.

        In a fork the thread does not live; what it waits with may be locked for ever.
        """
        if self._thread is not None and self._thread.is_alive():
            self._ended.set()
            self._thread.join(_DISK_PATIENCE_S)

    def remove(self) -> None:
        """Let the file go: the cell has its answer."""
        self.end()
        if self._file is not None and not (self._thread and self._thread.is_alive()):
            self._file.remove()
            self._file = None

    def _write_on(self) -> None:
        file, clock = self._file, time.thread_time
        if file is None:
            return
        is_last = False
        try:
            while not is_last:
                is_last = self._ended.wait(_WRITES_APART_S)
                began = clock()
                self._write(file)
                self.took_s += clock() - began
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._failed(error)

    def _write(self, file: JournalFile) -> None:
        now = time.perf_counter_ns()
        self._write_lists(file)
        steps = self._write_steps(file)
        stack = self._write_looks(file)
        self._write_machine(file, now)
        if not self._has_trace:
            self._write_trace(file)
        versions = imported_versions()
        if versions != self._versions:
            self._versions = versions
            file.append_json(VERSIONS, versions)
        file.commit(self._newest(now, steps, stack))

    def _newest(self, now: int, steps: int, stack: int) -> Newest:
        """Say where the cell stands: how many steps have ended, what runs, how much memory there is."""
        from profnb.capture.journal.journal_file import Newest

        resident = resident_bytes()
        if resident is None:
            resident = next(iter(self._machine().resident_bytes[-1:]), MISSING)
        self._peak_bytes = max(self._peak_bytes, resident)
        self._sequence += 1
        last = self._log.latest(1)
        ended = self._step_ends[-1] if self._step_ends else 0
        ended = max(ended, last[0][0] if last else 0)
        peak, epoch_ns = self._peak_bytes, time.time_ns()
        return Newest(self._sequence, now, epoch_ns, steps, ended, resident, peak, stack)

    def _write_lists(self, file: JournalFile) -> None:
        """Write what was added to lists that only grow."""
        log, added = self._log, {}
        listed: Mapping[str, list[Any]] = {
            "runs": log.runs,
            "run_spans": log.run_spans,
            "failed": log.failed,
            "ended_at": log.ended_at,
            "ended_epoch": log.ended_epoch,
            "ours": self._own_time.spans,
        }
        for name, values in listed.items():
            first = self._lengths.get(name, 0)
            new = values[first:]
            if new:
                self._lengths[name] = first + len(new)
                added[name] = new
        if added:
            file.append_json(LISTS, added)

    def _write_steps(self, file: JournalFile) -> int:
        """Write the steps since the last one written that still stands; how many have ended."""
        ends, named, back = self._step_ends, len(self._names), 1
        if file.is_full or file.size > _LAST_STEP_BYTES:
            return len(self._log)
        columns = self._log.since(max(len(ends) - 1, 0), self._names)
        while ends and columns[1][:1] != ends[-1:]:
            del ends[-back:]
            back *= 2
            columns = self._log.since(max(len(ends) - 1, 0), self._names)
        first = len(ends)
        columns = [column[min(first, 1) :] for column in columns]
        if new := list(self._names)[named:]:
            file.append_json(LISTS, {"names": new})
        if columns[1]:
            ends.extend(columns[1])
            file.append(STEPS, b"".join((array("q", (first, len(columns[1]))), *columns)))
        return len(ends)

    def _write_looks(self, file: JournalFile) -> int:
        """Write new looks and stacks; the row of the newest."""
        looks = self._sampler.since(self._looks, self._stacks)
        self._looks += len(looks.time_ns)
        if looks.time_ns:
            file.append(LOOKS, looks.time_ns.tobytes() + array("q", looks.stack).tobytes())
            self._named = looks.stack[-1]
        frames: list[Any] = []
        cells: dict[str, int] = {}
        rows_of = partial(self._rows_of, looks=looks, frames=frames, cells=cells)
        first, stacks = self._stacks, {}
        if self._named >= first:  # what runs now comes first
            stacks[self._named] = list(rows_of(looks.keys[self._named - first]))
        for row, key in islice(enumerate(looks.keys, first), _MOST_STACKS):
            if len(frames) > _MOST_FRAMES:
                break
            stacks[row] = list(rows_of(key))
            self._stacks += 1
        if stacks:
            file.append_json(STACKS, {"stacks": stacks, "frames": frames, "cells": cells})
        return self._named

    def _rows_of(
        self, key: tuple[int, ...], looks: Looks, frames: list[Any], cells: dict[str, int]
    ) -> Iterable[int]:
        """The rows of a stack's frames, the outermost first; new frames are added."""
        for at in range(len(key) - 2, -1, -2):
            place = key[at], key[at + 1]
            row = self._frames.get(place)
            if row is None:
                row = self._frames[place] = self._row_of(place, looks, frames, cells)
            if row != MISSING:
                yield row

    def _row_of(
        self, place: tuple[int, int], looks: Looks, frames: list[Any], cells: dict[str, int]
    ) -> int:
        """The row of a frame, all lines of a library's function in one; none for profnb's."""
        code = looks.codes[place[0]]
        if is_own_file(code.co_filename):
            return MISSING
        is_users = is_user_file(code.co_filename)
        place = place[0], place[1] if is_users else MISSING
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = len(self._rows)
            line = line_at(code, place[1]) if is_users else code.co_firstlineno
            name = str(getattr(code, "co_qualname", code.co_name))
            frames.append((name, self._file_name(code, cells), code.co_firstlineno, line))
        return row

    def _file_name(self, code: CodeType, cells: dict[str, int]) -> str:
        """What a file is called: a library's by its place among packages, one of the user's by a number."""
        file = code.co_filename
        name = self._files.get(file)
        if name is None and is_user_file(file):
            self._user_files += 1
            name = self._files[file] = f"file {self._user_files}"
            number = number_cells().get(file)
            if number is not None:
                cells[name] = number
        elif name is None:
            name = self._files[file] = file if file.startswith("<") else short_path(file)
        return name

    def _write_machine(self, file: JournalFile, now: int) -> None:
        """Write the newest look at the machine, the seldomer the longer the cell has run."""
        records = self._machine()
        count = min(map(len, records.columns()), default=0)
        if not count or now - self._sampled_ns < (now - self._began_ns) // _THINNING:
            return
        if records.time_ns[count - 1] <= self._sampled_ns:
            return
        self._sampled_ns = records.time_ns[count - 1]
        boards = [(board.name, board.index, board.memory_bytes) for board in records.boards]
        values = [column[count - 1] for column in records.columns()]
        looked = {"began_ns": records.begin_ns, "boards": boards, "values": values}
        file.append_json(MACHINE, looked)

    def _write_trace(self, file: JournalFile) -> None:
        """Write where the trace is, once it is in a folder of ours, which then outlives the process."""
        path, folder = self._recording.path, self._recording.folder
        if path is None or folder is None or not path.is_relative_to(folder):
            return
        self._has_trace = True
        with suppress(OSError, ValueError):
            keep_a_day(Path(folder))
            name = os.fspath(path.relative_to(gettempdir()))
            window_ns, closed_by = self._recording.window_ns, self._recording.closed_by
            file.append_json(TRACE, {"path": name, "window_ns": window_ns, "closed_by": closed_by})
