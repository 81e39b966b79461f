"""Clocks made for tests: time passes when a test says so, whatever the machine is busy with."""

import itertools
import threading

from profnb.capture import hooks, session
from profnb.capture.journal import journal
from profnb.capture.machine import machine_watch
from profnb.capture.marking import open_steps, step_recorder, trace_events
from profnb.capture.parts import cell_counters
from profnb.capture.source import stacks
from profnb.capture.source.stacks import Sampler
from profnb.tf1 import gap_watch


class Ticks:
    """A clock of nanoseconds that is later by ``step_ns`` each time it is looked at.

    Stands in for the module ``time``. In between, ``sum(clock.work(100))`` lets as much time pass as a hundred
    looks, in one line of Python and without another.
    """

    def __init__(self, step_ns=200):
        self._ticks = itertools.count(0, step_ns)
        self.perf_counter_ns = self.thread_time_ns = self._ticks.__next__
        self.work = lambda looks: itertools.islice(self._ticks, looks)


class BusyTicks(Ticks):
    """The same on a machine that others use too: every so many looks the thread stands still for a while."""

    def __init__(self, step_ns=200, looks=1500, still_ns=10_000_000):
        self._own_ns, self._period_ns = looks * step_ns, looks * step_ns + still_ns
        self._ticks = itertools.accumulate(itertools.cycle([step_ns] * (looks - 1) + [step_ns + still_ns]))
        self.perf_counter_ns = self._ticks.__next__
        self.work = lambda looks: itertools.islice(self._ticks, looks)

    def thread_time_ns(self):
        whole, rest = divmod(next(self._ticks), self._period_ns)
        return whole * self._own_ns + min(rest, self._own_ns)


class Still:
    """A clock of nanoseconds that stands still but for what a test plants; stands in for the module ``time``.

    The stack of a cell that runs meanwhile is looked at right where time passes, and nowhere else.
    """

    def __init__(self):
        self.now_ns = 7
        self._looked_at = []  # the sampler that runs, and the thread that it looks at

    def perf_counter_ns(self):
        return self.now_ns

    def perf_counter(self):
        return self.now_ns / 1e9

    def thread_time(self):
        return 0.0  # no thread of profnb's takes any

    def work(self, ms):
        """Let so many milliseconds pass; what runs is seen there."""
        self.now_ns += ms * 1_000_000
        for sampler, thread in self._looked_at:
            sampler._look(thread)

    def look_on(self, sampler, thread):
        """What the sampler's own thread does instead of looking by the machine's clock."""
        self._looked_at[:] = [(sampler, thread)]
        sampler._is_over(-1)
        self._looked_at.clear()


def stand_still(monkeypatch):
    """Let a capture take the times of steps and of a cell's parts from a clock that stands still; returns it."""
    clock = Still()
    for module in (hooks, session, journal, machine_watch, cell_counters, gap_watch, stacks, open_steps, step_recorder, trace_events):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(Sampler, "_look_on", lambda sampler, thread: clock.look_on(sampler, thread))
    return clock


class LockStep:
    """A clock for the sampler, which then looks from its thread only when the program says so.

    Stands in for the module ``time``: the sampler's wait ends when the program calls ``pass_time``, which
    returns when the look was taken, so that it finds the program right there. A look is ``period_ns`` after
    the one before.
    """

    def __init__(self, monkeypatch, period_ns=1_000_000):
        self._now = itertools.count(0, period_ns)
        self.perf_counter_ns = self._now.__next__
        self.perf_counter = self.thread_time = lambda: 0.0
        self._asked, self._taken = threading.Semaphore(0), threading.Semaphore(0)
        self._is_first, self._is_over = True, False
        monkeypatch.setattr(stacks, "time", self)
        monkeypatch.setattr(Sampler, "_is_over", lambda _, period_s: self._wait())

    def _wait(self):
        """Say that the look before is taken, wait for the next; whether there is none any more."""
        if not self._is_first:
            self._taken.release()
        self._is_first = False
        self._asked.acquire()
        return self._is_over

    def pass_time(self, looks=1):
        """What the program calls."""
        for _ in range(looks):
            self._asked.release()
            self._taken.acquire()

    def end(self):
        """Let the sampler's thread end, so that it can be stopped."""
        self._is_over = True
        self._asked.release()
