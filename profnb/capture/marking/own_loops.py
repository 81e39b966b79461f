"""Steps of loops of the user's own: iterations over PyTorch, and session runs."""

import time

from profnb.capture.marking.open_steps import OpenSteps, abandon_marker
from profnb.capture.signals import OwnFaults
from profnb.capture.step_records import RUN, USER, Marking, OpenStep

_SESSION_RUN = "session_run"


class OwnLoops:
    """Is told of each iteration and each session run.

    Args:
        open_steps: Given each of them.
    """

    def __init__(self, open_steps: OpenSteps) -> None:
        """Nothing runs yet."""
        self._open = open_steps
        self._iteration: OpenStep | None = None
        self._iterations_begun = 0
        self._session_run: OpenStep | None = None
        self._session_runs = 0

    def iteration_begins(self, door: Marking) -> None:
        """An iteration begins, unless it is part of a step; one that has not ended is none."""
        self.abandon_iteration()
        if self._open.is_inside_step or self._open.is_in_run:
            return
        self._open.report()
        number = self._iterations_begun
        span = self._open.begin(None, USER, "train", number)
        if span.was_traced:
            with OwnFaults():  # then the step has no marker
                span.marker = door.mark_step("train", number)
            self._open.marker_began(span)
        self._iterations_begun += 1
        self._iteration = span
        self._open.stack.append(span)

    def iteration_ended(self) -> None:
        """The open iteration has ended, with a step of its optimizer."""
        span, self._iteration = self._iteration, None
        if span is not None and span in self._open.stack:
            end_ns = time.perf_counter_ns()
            self._open.stack.remove(span)  # first: an interrupt behind it leaves no step open
            self._open.end_marker(span)
            self._open.record(span, end_ns)
            self._open.report()

    def abandon_iteration(self) -> None:
        """The open iteration, if there is one, is no step."""
        span, self._iteration = self._iteration, None
        if span is not None and span in self._open.stack:
            self._open.stack.remove(span)
            self._iterations_begun -= 1
            abandon_marker(span.marker)

    def run_began(self) -> None:
        """A ``Session.run`` begins."""
        self._session_run = self._open.begin(None, RUN, _SESSION_RUN, self._session_runs)

    def run_ended(self, was_traced: bool) -> None:
        """The session run ended; it is a step unless it is part of one."""
        end_ns = time.perf_counter_ns()
        self._session_runs += 1
        if self._session_run is not None and not self._open.is_inside_step:
            self._open.record(self._session_run, end_ns, was_traced=was_traced)
            self._open.report()

    def run_failed(self) -> None:
        """The session run raised."""
        if self._session_run is not None:
            self._open.fail(self._session_run, time.perf_counter_ns())
