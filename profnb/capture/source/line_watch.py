"""Running code to the times at which each line of the user's own code began.

Python 3.12 and later tell of lines as they run (``sys.monitoring``), and only of code that was asked for. So
every function is looked at once, as it is first called, and asked for if it is the user's; library code then
costs nothing. Between two lines of the user's, all that TensorFlow does on this thread belongs to the
first of them, however short: an eager op of 20 us finds its line as surely as one of 20 ms.

The ways not taken, as measured with TensorFlow 2.21 on two cores: sampling the thread's frames (``stacks``)
needs the interpreter's lock, which pure Python gives away every 5 ms only, and never meets a short line; a
hook around the dispatch of each eager op costs about as much per op as a line costs here, but tells nothing
of Python's own time; ``sys.settrace`` and ``sys.setprofile`` are called for TensorFlow's own Python too, and
belong to the user's debugger and profiler.

A line costs about 0.2 us (some us in a function of thousands of lines, where Python searches for its number).
Where lines come so thick that this would be felt (plain Python), those that take no time to speak of are
recorded only the first time after their function was entered, and functions that take none no longer at
all: their time stands at the line before, or at the line that calls them. A line that runs an op takes longer
than that and stays. How thick is told by the thread's own CPU time: on a busy machine a line of plain Python
takes milliseconds by the clock now and then, while somebody else has the processor or the interpreter.

Python 3.10 and 3.11 have no monitoring; there lines are known from samples of the stack (``--python``) only.

The window may be closed by another thread while this one records: what the two share is changed under a lock,
which a line alone never needs. Another tool may give our id back or take it for itself: recording ends then,
the other's goes on.
"""

import contextlib
import inspect
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from types import CodeType
from typing import Any

from profnb.capture.seams import MONITORING
from profnb.capture.source.source_records import ENTERED, LEFT, LineRecords
from profnb.capture.source.user_code import is_user_file, user_frames

_TOOLS, _TOOL_NAME = range(6), "profnb"  # Python has six
_BATCH = 1 << 13
_FULL = 3 * _BATCH  # a row is three values
_FASTEST_BATCH_NS = _BATCH * 6_000  # at 6 us a line, recording it costs some 3 %
_CHEAP_NS = 3_000  # no op is dispatched in less
_OFTEN = 8  # times in fast batches
_RARE = 64  # one of so many occurrences, and one more, may have been interrupted
_MOST_RECORDS = 2_000_000
_MOST_SWITCHES = 400  # after each, Python looks at all code anew
_MOST_UNWOUND = 50_000  # exceptions through functions; at 0.3 us each, some 15 ms
# What Python calls at its events; at each line, what belongs to the batch.
_CALLBACKS = {
    "PY_START": "_function_entered", "PY_RESUME": "_function_goes_on", "PY_THROW": "_function_goes_on",
    "PY_RETURN": "_function_left", "PY_YIELD": "_function_left", "PY_UNWIND": "_function_unwound",
}  # fmt: skip
_REARMED_NS, _REARMING_SHARE = 100_000, 100  # asking again may take a hundredth of the time


class LineWatch:
    """Records where the calling thread is in the user's code, between ``start`` and ``stop``.

    What a cell of three lines and a function of two leave in ``records``, at 1 us a step (the cell is
    code 0, ``f`` is code 1, and ``tf.add`` is a library's, of which nothing is told)::

        line  code               time_ns  code  line      the time until the next row belongs to
        ----  ----               -------  ----  ----      --------------------------------------
           1  def f(x):             1000     0  ENTERED   line 1 of the cell
           2    y = x * x           1000     0  1         line 1: it makes the function
           3    return y            2000     0  4         line 4, until f is entered
           4  for i in range(2):    3000     0  5         line 5: what tf.add does before it calls f ...
           5    tf.add(1, f(i))     4000     1  ENTERED   line 1 of f
                                    4000     1  2         line 2
                                    5000     1  3         line 3
                                    6000     1  LEFT      line 5 of the cell: its own row is the last one open
                                    7000     0  4         line 4, the second time round

    A batch of 8,192 rows that took the thread less than 49 ms of CPU time means that lines come too thick.
    Then of each line in it, less the rare occurrences in which the thread may have stood still::

        ran 8 times or more, under 3 us each   -> muted: one row each time that its function is entered anew,
                                                  and at most every hundredth of the time (``_rearm``)
        so did all lines of its function       -> ignored: no row at all; its time stands at its caller's line
        any other, as one that runs an op      -> stays

    Attributes:
        records: What was recorded; complete after ``stop``.
        taken_by: Who has the tools of Python's that we could have had, if none is left.
    """

    def __init__(self) -> None:
        """Nothing is watched yet."""
        self.records = LineRecords()
        self.taken_by: tuple[str, ...] = ()
        self._batch: list[Any] = []  # time, code, line, time, ...
        self._since_ns = self._cpu_since_ns = 0
        self._codes: list[CodeType] = []
        self._rows: dict[int, int] = {}  # by id: equal code may stand in two cells
        self._often: dict[tuple[int, int], list[int]] = {}  # of fast batches: times and nanoseconds
        self._muted: set[tuple[int, int]] = set()
        self._rearm_at_ns: dict[int, int] = {}  # when to ask for a function's muted lines again
        self._ignored: set[int] = set()
        self._unwound = self._switches = 0
        self._tool = -1
        self._thread = 0
        self._lock = threading.RLock()

    def start(self) -> bool:
        """Begin; False where this Python cannot or others have taken all its tools."""
        monitoring = MONITORING.find()
        if monitoring is None:
            return False
        self._tool, self._thread = self._take_tool(monitoring), threading.get_ident()
        if self._tool < 0:
            return False
        for name, callback in _CALLBACKS.items():
            event = getattr(monitoring.events, name)
            self._change(monitoring.register_callback, event, getattr(self, callback))
        self._begin_batch()
        # The user's functions that are running already, the outermost first.
        frames, now = list(user_frames(inspect.currentframe())), time.perf_counter_ns()
        for running in frames[::-1]:
            self._ask_for(running.f_code)
            self._batch += now, running.f_code, ENTERED, now, running.f_code, running.f_lineno
        self.see_exceptions(are_seen=True)
        return True

    def _take_tool(self, monitoring: Any) -> int:
        """Take a tool of our own, or -1."""
        names = ("DEBUGGER_ID", "COVERAGE_ID", "PROFILER_ID", "OPTIMIZER_ID")
        for_others = [getattr(monitoring, name) for name in names]
        for tool in (tool for tool in _TOOLS if tool not in for_others):
            with contextlib.suppress(ValueError):  # in use
                monitoring.use_tool_id(tool, _TOOL_NAME)
                return tool
            self.taken_by += (str(monitoring.get_tool(tool)),)
        return -1

    def _change(self, change: Callable[..., object], *arguments: object) -> None:
        """Change what Python tells of; where the tool is not ours any more, the watch is over."""
        if self._tool < 0:
            return
        with contextlib.suppress(ValueError):  # somebody gives it back right now
            if sys.monitoring.get_tool(self._tool) == _TOOL_NAME:
                change(self._tool, *arguments)
                return
        self.records.is_cut = True
        self._detach()

    def see_exceptions(self, *, are_seen: bool) -> None:
        """Have functions that an exception leaves told of then, or as the next line begins.

        They are told of for everybody's code or for nobody's, which makes the import of a large package some
        5 % longer.
        """
        with self._lock:
            self._switches += 1
            if self._tool >= 0 and (are_seen or self._switches < _MOST_SWITCHES):
                events = sys.monitoring.events
                exceptions = events.PY_UNWIND | events.PY_THROW
                are_seen &= self._unwound < _MOST_UNWOUND
                everywhere = events.PY_START | (exceptions if are_seen else 0)
                self._change(sys.monitoring.set_events, everywhere)

    def _ask_for(self, code: CodeType) -> None:
        with self._lock:
            if id(code) in self._rows or self._tool < 0:
                return
            self._rows[id(code)] = len(self._codes)
            self._codes.append(code)
            self.records.files.append(code.co_filename)
            self._arm(code)

    def _arm(self, code: CodeType) -> None:
        events = sys.monitoring.events
        wanted = events.LINE | events.PY_RETURN | events.PY_YIELD | events.PY_RESUME
        self._change(sys.monitoring.set_local_events, code, wanted)

    def _rearm(self, code: CodeType, now: int) -> None:
        """Have the muted lines of a function recorded once more; the longer it is, the longer this takes."""
        began_ns = time.thread_time_ns()
        with self._lock:
            self._change(sys.monitoring.set_local_events, code, 0)
            self._arm(code)
        took = time.thread_time_ns() - began_ns
        self._rearm_at_ns[id(code)] = now + max(_REARMED_NS, took * _REARMING_SHARE)

    def _ignore(self, code: CodeType) -> object:
        with self._lock:
            self._change(sys.monitoring.set_local_events, code, 0)
        return sys.monitoring.DISABLE

    # What Python calls. Each is called for every thread, and one row is one change of the batch, so that an
    # interrupt finds whole rows.

    def _function_entered(self, code: CodeType, _: int) -> object:
        if id(code) not in self._rows:
            if not is_user_file(code.co_filename):
                return sys.monitoring.DISABLE
            self._ask_for(code)
        if threading.get_ident() == self._thread:
            if id(code) in self._ignored:
                return self._ignore(code)
            now = time.perf_counter_ns()
            self._entered(now, code)
            if now > self._rearm_at_ns.get(id(code), now):
                self._rearm(code, now)
        return None

    def _entered(self, now: int, code: CodeType) -> None:
        """Lines alone may never fill a batch: those that a generator goes on at may be muted."""
        self._batch += now, code, ENTERED
        if len(self._batch) > _FULL:
            self._next_batch()

    def _function_goes_on(self, code: CodeType, *_: object) -> None:
        if id(code) in self._rows and threading.get_ident() == self._thread:
            if id(code) in self._ignored:  # a generator; such functions are entered once
                self._ignore(code)
            else:
                self._entered(time.perf_counter_ns(), code)

    def _function_left(self, code: CodeType, *_: object) -> None:
        if id(code) in self._rows and threading.get_ident() == self._thread:
            self._batch += time.perf_counter_ns(), code, LEFT
            if id(code) in self._ignored:
                self._ignore(code)

    def _function_unwound(self, code: CodeType, *_: object) -> None:
        """An exception leaves a function, anybody's; code that raises all the time is let alone."""
        self._function_left(code)
        self._unwound += 1
        if self._unwound == _MOST_UNWOUND:
            self._switches = 0
            self.see_exceptions(are_seen=False)

    def _begin_batch(self) -> None:
        """Record lines into a new batch; the names are local because this runs for every line."""
        self._since_ns, self._cpu_since_ns = time.perf_counter_ns(), time.thread_time_ns()
        batch = self._batch = []
        extend, clock = batch.extend, time.perf_counter_ns
        ident, thread, muted = threading.get_ident, self._thread, self._muted
        full, next_batch, disabled = _FULL, self._next_batch, sys.monitoring.DISABLE

        def line_begins(code: CodeType, line: int) -> object:
            if ident() == thread:
                extend((clock(), code, line))
                if len(batch) > full:
                    next_batch()
            return None

        def line_begins_once_if_muted(code: CodeType, line: int) -> object:
            line_begins(code, line)
            return disabled if (id(code), line) in muted else None

        callback = line_begins_once_if_muted if muted else line_begins
        line_event = sys.monitoring.events.LINE
        self._change(sys.monitoring.register_callback, line_event, callback)

    def _next_batch(self) -> None:
        with self._lock:
            if self._tool < 0:  # the window has closed and took the batch, or the tool is not ours
                self._batch.clear()
                return
            batch, cpu_ns = self._batch, time.thread_time_ns() - self._cpu_since_ns
            if cpu_ns < _FASTEST_BATCH_NS:
                self._mute_cheap(batch, time.perf_counter_ns() - self._since_ns - cpu_ns)
            self._begin_batch()
            self._keep(batch)
            if len(self.records) > _MOST_RECORDS:
                self.records.is_cut = True
                self._detach()

    def _add_up(self, batch: list[Any], still_ns: int) -> None:
        """Add the lines of a batch to those of earlier ones: how often they ran, how long they took.

        Args:
            batch: What was recorded.
            still_ns: How long the thread stood still in it. That may have been any line, a rare occurrence of
                which took much longer than the others, and is not counted as its time.
        """
        times, codes, lines = batch[0::3], batch[1::3], batch[2::3]
        took: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for code, line, begin, end in zip(codes, lines, times, times[1:], strict=False):
            if line != LEFT:
                took[id(code), line].append(end - begin)
        for key, took_ns in took.items():
            slow_ns = [one for one in took_ns if one > _CHEAP_NS]
            is_rare = len(slow_ns) <= 1 + len(took_ns) // _RARE
            sums = self._often.setdefault(key, [0, 0])
            sums[0] += len(took_ns)
            sums[1] += sum(took_ns) - (min(sum(slow_ns), still_ns) if is_rare else 0)

    def _mute_cheap(self, batch: list[Any], still_ns: int) -> None:
        """Record no longer each time what runs often and takes no time to speak of."""
        self._add_up(batch, max(still_ns, 0))
        spent: Counter[int] = Counter()
        for (code, _), sums in self._often.items():
            spent[code] += sums[1]
        for key, (count, took_ns) in self._often.items():
            code, line = key
            row = self._rows.get(code)
            if row is None or count < _OFTEN or code in self._ignored or key in self._muted:
                continue
            if (spent[code] if line == ENTERED else took_ns) >= count * _CHEAP_NS:
                continue
            if line == ENTERED:
                self._ignored.add(code)
                line = self._codes[row].co_firstlineno
            else:
                self._muted.add(key)
                self._rearm_at_ns.setdefault(code, 0)
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
        monitoring, events = sys.monitoring, sys.monitoring.events
        with contextlib.suppress(ValueError):  # one that somebody gave back still calls us
            monitoring.use_tool_id(tool, _TOOL_NAME)
        if monitoring.get_tool(tool) != _TOOL_NAME:  # somebody else's now
            return
        monitoring.set_events(tool, 0)
        for code in self._codes:
            monitoring.set_local_events(tool, code, 0)
        for event in (*_CALLBACKS, "LINE"):
            monitoring.register_callback(tool, getattr(events, event), None)
        monitoring.free_tool_id(tool)

    def stop(self) -> None:
        """End; no reference to the user's code is kept."""
        with self._lock:
            self._detach()
            batch, self._batch = self._batch, []
            self._keep(list(batch))
            self._codes.clear()
            self._rows.clear()
