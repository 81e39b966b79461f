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
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from tempfile import gettempdir
from types import CodeType
from typing import TYPE_CHECKING, Any

from profnb.capture.environment import imported_versions
from profnb.capture.machine.machine_watch import MISSING, MachineRecords
from profnb.capture.machine.memory_limits import find_limit, resident_bytes
from profnb.capture.source.user_code import is_own_file, is_user_file, number_cells
from profnb.capture.step_records import WIDTH
from profnb.core.safe_files import keep_a_day
from profnb.core.sharing import short_path

if TYPE_CHECKING:
    from profnb.capture.journal.journal_file import JournalFile, Newest
    from profnb.capture.parts.cell_counters import OwnTime
    from profnb.capture.recording import Recording
    from profnb.capture.source.stacks import Sampler
    from profnb.capture.step_records import StepLog
    from profnb.core.options import CaptureOptions

LISTS, STEPS, LOOKS, STACKS, MACHINE = (bytes([code]) for code in b"RSLFM")
_WRITES_APART_S = 0.8  # an answer tells all but the last second
_DISK_PATIENCE_S = 1.0  # for a disk that does not answer, as the cell ends
_MOST_STACKS = 12  # new ones of one write: the others come with the next
STEP_WORDS = WIDTH * 4  # of 16 bits
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
        self._looks = self._stacks = self._stack = self._user_files = 0
        self._met: set[int] = set()  # code by its id
        self._titles: dict[str, str] = {}  # of files; "" for profnb's
        of_log = ("names", "runs", "run_spans", "failed", "ended_at", "ended_epoch")
        of_journal = ("begin", "codes", "cells", "boards", "trace", "versions")
        self._lists: dict[str, list[Any]] = {name: [] for name in of_journal}
        self._lists |= {name: getattr(log, name) for name in of_log} | {"ours": own_time.spans}
        self._lengths = dict.fromkeys(self._lists, 0)  # of what is written

    def start(self) -> None:
        """Begin to write; where no file can be made, or no thread started, nothing is kept."""
        with suppress(OSError, ImportError, RuntimeError):
            from profnb.capture.journal.journal_file import JournalFile  # not everywhere

            self._file = JournalFile()
            self._began_ns = time.perf_counter_ns()
            limit = find_limit()
            self._lists["begin"].append({
                "began_ns": self._began_ns, "base": self._sampler.base,
                "warmup_steps": self._options.warmup_steps,
                "limit_bytes": MISSING if limit is None else limit.limit_bytes,
                "limit_of": "" if limit is None else limit.of,
            })  # fmt: skip
            self._write_lists(self._file)
            self._file.commit(self._newest(self._began_ns, 0))
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
        steps = self._write_steps(file)
        self._write_looks(file)
        self._write_machine(file, now)
        if not self._lists["trace"]:
            self._find_trace()
        if (versions := imported_versions()) not in self._lists["versions"][-1:]:
            self._lists["versions"].append(versions)
        self._write_lists(file)  # with all that the records above name
        file.commit(self._newest(now, steps))

    def _newest(self, now: int, steps: int) -> Newest:
        """Say where the cell stands: how many steps have ended, what runs, how much memory there is."""
        from profnb.capture.journal.journal_file import Newest

        resident = next(iter(self._machine().resident_bytes[-1:]), MISSING)
        if resident == MISSING:
            resident = resident_bytes() or MISSING
        self._peak_bytes = max(self._peak_bytes, resident)
        self._sequence += 1
        ended = next(iter(self._log.since(-1)[1:2]), 0)
        peak, epoch_ns = self._peak_bytes, time.time_ns()
        return Newest(self._sequence, now, epoch_ns, steps, ended, resident, peak, self._stack)

    def _write_lists(self, file: JournalFile) -> None:
        """Write what was added to lists that only grow."""
        added = {}
        for name, values in self._lists.items():
            if new := values[self._lengths[name] :]:
                self._lengths[name] += len(new)
                added[name] = new
        if added:
            file.append_json(LISTS, added)

    def _write_steps(self, file: JournalFile) -> int:
        """Write the steps since the last one written that still stands; how many have ended."""
        ends, back = self._step_ends, 1
        if file.is_full or file.size > _LAST_STEP_BYTES:
            return len(self._log)
        cells = self._log.since(max(len(ends) - 1, 0))
        while ends and cells[1:2] != ends[-1:]:
            del ends[-back:]
            back *= 2
            cells = self._log.since(max(len(ends) - 1, 0))
        first = len(ends)
        if new := cells[min(first, 1) * WIDTH :]:
            ends.extend(new[1::WIDTH])
            file.append(STEPS, _packed(first, new))
        return len(ends)

    def _write_looks(self, file: JournalFile) -> None:
        """Write new looks, and new stacks with the code in them."""
        first = self._stacks
        looks = self._sampler.since(self._looks, first)
        self._looks += len(looks.time_ns)
        if looks.time_ns:
            file.append(LOOKS, looks.time_ns.tobytes() + array("q", looks.stack).tobytes())
            self._stack = looks.stack[-1]
        stacks = dict(islice(enumerate(looks.keys, first), _MOST_STACKS))
        self._stacks += len(stacks)
        if self._stack >= first:  # what runs now
            stacks[self._stack] = looks.keys[self._stack - first]
        if stacks:
            numbers = ((row, len(key), *key) for row, key in stacks.items())
            file.append(STACKS, array("q", chain.from_iterable(numbers)).tobytes())
            for code in {code for key in stacks.values() for code in key[::2]} - self._met:
                self._met.add(code)
                self._add_code(code, looks.codes[code])

    def _add_code(self, number: int, code: CodeType) -> None:
        """List code with its lines, a library's without, profnb's not at all."""
        file = code.co_filename
        title = self._titles.get(file)
        if title is None:
            title = self._titles[file] = self._title_of(file)
        if title:
            name = str(getattr(code, "co_qualname", code.co_name))
            lines = list(code.co_lines()) if is_user_file(file) else []
            self._lists["codes"].append((number, name, title, code.co_firstlineno, lines))

    def _title_of(self, file: str) -> str:
        """What a file is called: a library's by its place among packages, one of the user's by a number."""
        if is_own_file(file):
            return ""
        if not is_user_file(file):
            return file if file.startswith("<") else short_path(file)
        self._user_files += 1
        title = f"file {self._user_files}"
        number = number_cells().get(file)
        if number is not None:
            self._lists["cells"].append((title, number))
        return title

    def _write_machine(self, file: JournalFile, now: int) -> None:
        """Write the newest look at the machine, the seldomer the longer the cell has run."""
        records = self._machine()
        columns = records.columns()
        count = min(map(len, columns), default=0)
        if not count or now - self._sampled_ns < (now - self._began_ns) // _THINNING:
            return
        if records.time_ns[count - 1] <= self._sampled_ns:
            return
        self._sampled_ns = records.time_ns[count - 1]
        new = records.boards[len(self._lists["boards"]) :]
        self._lists["boards"].extend((board.name, board.index, board.memory_bytes) for board in new)
        values = (column[count - 1] for column in columns)
        file.append(MACHINE, array("q", (records.begin_ns, *values)).tobytes())

    def _find_trace(self) -> None:
        """Tell where the trace is, once it is in a folder of ours, which then outlives the process."""
        path, folder = self._recording.path, self._recording.folder
        if path is None or folder is None or not path.is_relative_to(folder):
            return
        with suppress(OSError, ValueError):
            keep_a_day(Path(folder))
            written: dict[str, Any] = {"path": os.fspath(path.relative_to(gettempdir()))}
            written |= {name: getattr(self._recording, name) for name in ("window_ns", "closed_by")}
            self._lists["trace"].append(written)


def _packed(first: int, cells: array[int]) -> bytes:
    """Steps as a first one and what differs: numbers in words of 16 bits, most of which are all alike.

    Without arithmetic, and in few calls that keep the interpreter: NumPy's would give it away.
    """
    words = array("H", cells.tobytes())
    columns = [words[at::STEP_WORDS] for at in range(STEP_WORDS)]
    uneven = [at for at, column in enumerate(columns) if column != column[:1] * len(column)]
    head = array("q", (first, len(columns[0]), sum(1 << at for at in uneven)))
    return b"".join((head, words[:STEP_WORDS], *(columns[at] for at in uneven)))
