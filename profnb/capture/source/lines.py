"""Running code to the times at which each line of the user's own code began.

Python 3.12 and later tell of lines as they run (``sys.monitoring``), and only of code that was asked for. So
every function is looked at once, as it is first called, and asked for if it is the user's; library code then
costs nothing. Between two lines of the user's, all that TensorFlow does on this thread belongs to the
first of them, however short: an eager op of 20 us finds its line as surely as one of 20 ms.

The ways not taken, as measured with TensorFlow 2.21 on two cores: sampling the thread's frames (below) needs
the interpreter's lock, which pure Python gives away every 5 ms only, and never meets a short line; a hook
around the dispatch of each eager op costs about as much per op as a line costs here, but tells nothing of
Python's own time; ``sys.settrace`` and ``sys.setprofile`` are called for TensorFlow's own Python too, and
belong to the user's debugger and profiler.

A line costs about 0.2 us. Where lines run so often that this would be felt (a loop of plain Python), the
busiest of them are recorded only the first time after their function was entered: then the time of the
whole loop stands at one of its lines. A function that is called that often counts to the line that calls it.
Python 3.10 and 3.11 have no monitoring; there lines are known from samples of the stack (``--python``) only.
"""

import inspect
import sys
import threading
import time
from collections import Counter
from types import CodeType
from typing import Any

from profnb.capture.source.records import ENTERED, LEFT, LineRecords
from profnb.capture.source.user_code import is_user_file

__all__ = ["LineWatch"]

_TOOL_IDS = (4, 3)  # 0, 1, 2 and 5 are meant for debuggers, coverage, profilers and optimizers
_BATCH = 1 << 13
_FASTEST_BATCH_NS = _BATCH * 6_000  # at 6 us a line, recording it costs some 3 %
_MOST_ROWS = 2_000_000
_REARMED_NS = 100_000


class LineWatch:
    """Records where the calling thread is in the user's code, between ``start`` and ``stop``.

    Attributes:
        records: What was recorded; complete after ``stop``.
    """

    def __init__(self) -> None:
        """Nothing is watched yet."""
        self.records = LineRecords()
        self._batch: list[Any] = []  # time, code, line, time, ...
        self._since_ns = 0
        self._codes: list[CodeType] = []
        self._rows: dict[int, int] = {}  # by id: equal code may stand in two cells
        self._muted: set[tuple[int, int]] = set()
        self._armed_ns: dict[
            int, int
        ] = {}  # when the muted lines of a function were last asked for
        self._ignored: set[int] = set()
        self._tool = -1
        self._thread = 0

    def start(self) -> bool:
        """Begin; False where this Python cannot or others have taken all its tools."""
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None:
            return False
        free = [tool for tool in _TOOL_IDS if monitoring.get_tool(tool) is None]
        if not free:
            return False
        self._tool, self._thread = free[0], threading.get_ident()
        events = monitoring.events
        monitoring.use_tool_id(self._tool, "profnb")
        for event, callback in (
            (events.PY_START, self._function_entered),
            (events.PY_RESUME, self._generator_resumed),
            (events.PY_RETURN, self._function_left),
            (events.PY_YIELD, self._function_left),
        ):
            monitoring.register_callback(self._tool, event, callback)
        self._begin_batch()
        self._enter_running()
        monitoring.set_events(self._tool, events.PY_START)
        return True

    def _enter_running(self) -> None:
        """Take in the user's functions that are running already, the outermost first."""
        frames = []
        frame = inspect.currentframe()
        while frame is not None:
            if is_user_file(frame.f_code.co_filename):
                frames.append(frame)
            frame = frame.f_back
        now = time.perf_counter_ns()
        for running in frames[::-1]:
            self._ask_for(running.f_code)
            self._batch += now, running.f_code, ENTERED, now, running.f_code, running.f_lineno

    def _ask_for(self, code: CodeType) -> None:
        if id(code) in self._rows:
            return
        self._rows[id(code)] = len(self._codes)
        self._codes.append(code)
        self.records.files.append(code.co_filename)
        self._arm(code)

    def _arm(self, code: CodeType) -> None:
        events = sys.monitoring.events
        wanted = events.LINE | events.PY_RETURN | events.PY_YIELD | events.PY_RESUME
        sys.monitoring.set_local_events(self._tool, code, wanted)

    # What Python calls. Each is called for every thread.

    def _function_entered(self, code: CodeType, _: int) -> object:
        if id(code) not in self._rows:
            if not is_user_file(code.co_filename):
                return sys.monitoring.DISABLE
            self._ask_for(code)
        if threading.get_ident() == self._thread:
            if id(code) in self._ignored:
                sys.monitoring.set_local_events(self._tool, code, 0)
                return sys.monitoring.DISABLE
            now = time.perf_counter_ns()
            self._batch += now, code, ENTERED
            if now - self._armed_ns.get(id(code), now) > _REARMED_NS:
                self._armed_ns[id(code)] = now
                sys.monitoring.set_local_events(self._tool, code, 0)
                self._arm(code)
        return None

    def _generator_resumed(self, code: CodeType, _: int) -> None:
        if threading.get_ident() == self._thread:
            self._batch += time.perf_counter_ns(), code, ENTERED

    def _function_left(self, code: CodeType, *_: object) -> None:
        if threading.get_ident() == self._thread:
            self._batch += time.perf_counter_ns(), code, LEFT

    def _begin_batch(self) -> None:
        """Record lines into a new batch; the names are local because this runs for every line."""
        self._since_ns = time.perf_counter_ns()
        batch = self._batch = []
        append, clock = batch.append, time.perf_counter_ns
        ident, thread, muted = threading.get_ident, self._thread, self._muted
        full, next_batch, disabled = 3 * _BATCH, self._next_batch, sys.monitoring.DISABLE

        def line_begins(code: CodeType, line: int) -> object:
            if ident() == thread:
                append(clock())
                append(code)
                append(line)
                if len(batch) > full:
                    next_batch()
            return None

        def line_begins_once_if_muted(code: CodeType, line: int) -> object:
            line_begins(code, line)
            return disabled if (id(code), line) in muted else None

        callback = line_begins_once_if_muted if muted else line_begins
        line_event = sys.monitoring.events.LINE
        sys.monitoring.register_callback(self._tool, line_event, callback)

    def _next_batch(self) -> None:
        batch, took_ns = self._batch, time.perf_counter_ns() - self._since_ns
        if took_ns < _FASTEST_BATCH_NS:
            self._mute_busiest(batch)
        self._begin_batch()
        self._keep(batch)
        if len(self.records) > _MOST_ROWS:
            self.records.is_cut = True
            self._detach()

    def _mute_busiest(self, batch: list[Any]) -> None:
        """Record no longer each time what makes up most of a batch."""
        often = Counter(zip(map(id, batch[1::3]), batch[2::3], strict=True))
        for (code, line), count in often.most_common():
            if count < _BATCH // 64:
                break
            row = self._rows.get(code)
            if row is None or line == LEFT:
                continue
            if line == ENTERED:
                self._ignored.add(code)
                line = self._codes[row].co_firstlineno  # noqa: PLW2901
            self._muted.add((code, line))
            self._armed_ns.setdefault(code, 0)
            self.records.untimed.append((self.records.files[row], line))

    def _keep(self, batch: list[Any]) -> None:
        rows = self._rows
        self.records.time_ns.extend(batch[0::3])
        self.records.code.extend([rows.get(id(code), -1) for code in batch[1::3]])
        self.records.line.extend(batch[2::3])

    def _detach(self) -> None:
        tool, self._tool = self._tool, -1
        if tool < 0:
            return
        monitoring = sys.monitoring
        monitoring.set_events(tool, 0)
        for code in self._codes:
            monitoring.set_local_events(tool, code, 0)
        events = monitoring.events
        for event in (
            events.PY_START, events.PY_RESUME, events.PY_RETURN, events.PY_YIELD, events.LINE,
        ):  # fmt: skip
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    def stop(self) -> None:
        """End; no reference to the user's code is kept."""
        self._detach()
        batch, self._batch = self._batch, []
        self._keep(batch)
        self._codes.clear()
        self._rows.clear()
