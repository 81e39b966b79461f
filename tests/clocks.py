"""Clocks made for tests: time passes when a test says so, whatever the machine is busy with."""

import itertools
import threading

from profnb.capture.marking import keras_batches, open_steps, own_loops, trace_events
from profnb.capture.parts import part_stack


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
    """A clock of nanoseconds that stands still but for what a test plants; stands in for the module ``time``."""

    def __init__(self):
        self.now_ns = 7

    def perf_counter_ns(self):
        return self.now_ns

    def work(self, ms):
        """Let so many milliseconds pass."""
        self.now_ns += ms * 1_000_000


def stand_still(monkeypatch):
    """Let a capture take the times of steps and of a cell's parts from a clock that stands still; returns it."""
    clock = Still()
    for module in (part_stack, open_steps, keras_batches, own_loops, trace_events):
        monkeypatch.setattr(module, "time", clock)
    return clock


class LockStep:
    """A clock and a sleep for a sampler of another thread, which then samples only when the program says so.

    Stands in for the module ``time``: each sleep ends when the program calls ``pass_time``, which returns when
    the sample was taken, so that the sample finds the program right there. A sample is ``period_ns`` after the
    one before.
    """

    def __init__(self, period_ns=1_000_000):
        self._now = itertools.count(0, period_ns)
        self.perf_counter_ns = self._now.__next__
        self._asked, self._taken = threading.Semaphore(0), threading.Semaphore(0)
        self._is_over = False
        self._is_first = True

    def sleep(self, _):
        """What the sampler calls: say that the sample before is taken, wait for the next."""
        if not self._is_first:
            self._taken.release()
        self._is_first = False
        if not self._is_over:
            self._asked.acquire()

    def pass_time(self, samples=1):
        """What the program calls."""
        for _ in range(samples):
            self._asked.release()
            self._taken.acquire()

    def end(self):
        """Let the sampler run on, so that it can be stopped."""
        self._is_over = True
        self._asked.release()
