"""What begins and ends on one thread to the parts of its wall time, which add up to the nanosecond.

One clock, one stack: whatever stands on top of the stack is charged with the time until the next thing
begins or ends. So a part that runs inside another (an import in a model's making, ``evaluate`` in a callback)
is charged once, to the innermost, and the sum is the time from the first look at the clock to the last.

A ``fit`` with one callback and validation, as the stack sees it. Time runs down; the run of ``fit`` itself is
charged by where it stands between its batches::

    what happens              stack                                    the time until then is charged to
    ------------              -----                                    ---------------------------------
    fit is called             cell, fit                                other Python
    the first batch begins    cell, fit, batch                         around steps (fit)
    it ends                   cell, fit                                first steps (train), if traced
    on_batch_end of a Timer   cell, fit, Timer.on_batch_end            -
    returns                   cell, fit                                callbacks (Timer.on_batch_end)
    the next batch begins     cell, fit, batch                         gaps (fit)
    it ends                   cell, fit                                train steps (fit)
    evaluate is called        cell, fit, validation                    -
    ... its batches ...       cell, fit, validation, batch             validation steps (fit)
    it returns                cell, fit                                around steps (validation)
    fit returns               cell                                     epoch ends (fit)

A first batch in which nothing was traced waits for the second one: which part it is depends on how long that
takes. What lies around the batches of a run is one occurrence, charged as the run ends.

On JAX batches of a run may still be computed when Keras is done with them (see ``in_flight``). Until they
are, the time of a run around its batches, and of a validation's batches, is theirs.

What turns out to be no step (a batch for which the data had run out, a user's region of the trace) gives its
time to what it stood in. Whether a call of a ``tf.function`` is outermost is known only when what surrounds
it has ended, so its time is kept there until then.
"""

from collections.abc import Callable

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.in_flight import InFlight
from profnb.capture.parts.keras_run import BETWEEN, EPOCH_END, INSIDE, Run
from profnb.capture.parts.part_stack import (
    MOST_ROWS,
    STEP,
    Open,
    PartStack,
    Place,
    Row,
    running_line,
)
from profnb.capture.step_records import KERAS, RUN, USER, OpenStep

__all__ = ["PartClock"]

# Parts of calls that are so only if they are outermost.
_OUTERMOST = (parts.CALLS, parts.FIRST, parts.FAILED)
_FIT, _VALIDATION = "fit", "validation"
_FAR_LONGER = 5  # as steps/finding/warm_up has it
_PHASES = {"train": parts.TRAIN, "test": parts.EVALUATION, "predict": parts.PREDICT}


class PartClock(PartStack):
    """Charges one thread's wall time to the parts of a cell."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        super().__init__()
        self._flying: list[tuple[InFlight, tuple[str, str], Place]] = []  # and whose they are

    def _tick(self) -> int:
        since, now = self._last_ns, super()._tick()
        top = self._stack[-1]
        is_run = isinstance(top, Run) or (top.span is not None and top.span.kind == KERAS)
        while self._flying:
            batches, key, place = self._flying[0]
            ended_ns = batches.ended_ns
            until = now if ended_ns is None else min(max(ended_ns, since), now)
            if is_run:
                top.self_ns -= until - since
                self._row(key, since).add(since, 0, until - since, 0, place)
            if ended_ns is None:
                break
            del self._flying[0]
            since = until
        return now

    def _close(self, one: Open) -> None:
        if isinstance(one, Run):
            if one.cut is not None:
                self._close_step(one.cut, parts.FAILED, one.cut.name)
            self._settle_first(one, None)
            if one.state == EPOCH_END:
                self._charge(parts.EPOCH_ENDS, one.name, one, self._last_ns - one.self_ns)
            one.self_ns += one.around_ns
            self._charge(parts.AROUND, one.name, one)
        elif one.part != STEP:
            super()._close(one)
        elif one.span is not None and one.span.kind is not None:
            self._close_step(one, parts.FAILED, one.name)
        else:
            self._give_back(one)

    def may_build(self, is_eager: Callable[[], bool] | None) -> bool:
        """Whether a model that is being made now is made by itself, and not as part of a step.

        Args:
            is_eager: Tells whether no graph is being built; None where nobody can.
        """
        if not self._is_running_here():
            return False
        top = self._stack[-1]
        if top.span is None:
            return True
        return top.span.kind not in (KERAS, USER) and (is_eager is None or is_eager())

    # Steps.

    def step_began(self, span: OpenStep) -> None:
        """A step began, or what may turn out to be one."""
        if not self._is_running_here():
            return
        now, run = self._tick(), self._stack[-1]
        place: Place = None
        if isinstance(run, Run):
            place = run.place
            if span.kind in (KERAS, USER):
                run.go_on()
                if run.part_now == parts.AROUND:
                    run.around_ns, run.self_ns = run.around_ns + run.self_ns, 0
                else:
                    self._charge(run.part_now, run.name, run, self._last_ns - run.self_ns)
                run.state = INSIDE
        elif (parts.CALLS, span.name) not in self._rows:
            place = running_line()
        step = Open(STEP, span.name, now, place, span)
        if self._is_outermost(len(self._stack)):
            step.stretches = []
        self._stack.append(step)

    def step_ended(self, span: OpenStep, *, is_step: bool, failed: bool = False) -> None:
        """What ``step_began`` told of ended.

        Args:
            span: The same one.
            is_step: Whether it was one.
            failed: Whether it ended with an exception.
        """
        if not self._is_running_here():
            return
        stack = self._stack
        for at in range(len(stack) - 1, 0, -1):
            if stack[at].span is span:
                break
        else:
            return
        self._tick()
        self._close_from(at + 1)
        step, run = stack.pop(), stack[-1]
        if isinstance(run, Run) and run.state == INSIDE:
            run.state = BETWEEN
        if failed and isinstance(run, Run) and span.kind == USER:
            run.cut = step
        elif failed and self._is_outermost(len(stack)):
            self._close_step(step, parts.FAILED, step.name)
        elif not is_step:
            self._give_back(step)
        elif span.kind in (KERAS, USER):
            self._close_batch(step, span, run)
        elif self._is_outermost(len(stack)):
            part = parts.SESSION_RUNS if span.kind == RUN else parts.CALLS
            name = "" if span.kind == RUN else span.name
            part, name = (parts.FIRST, span.name) if span.retraced else (part, name)
            self._close_step(step, part, name)
        else:
            self._give_back(step)

    def _is_outermost(self, height: int) -> bool:
        """Whether below a height of the stack there is nothing but what may turn out to be a step."""
        return all(
            one.part == STEP and one.span is not None and one.span.kind not in (KERAS, USER)
            for one in self._stack[1:height]
        )

    def _close_batch(self, step: Open, span: OpenStep, run: Open) -> None:
        phase = span.name
        if not isinstance(run, Run):
            part = parts.MARKED if span.kind == USER else _PHASES.get(phase, parts.MARKED)
            name = phase if span.retraced or span.kind == USER else f"{phase}_on_batch"
            self._close_step(step, parts.FIRST if span.retraced else part, name)
            return
        step.place = run.place
        is_first, run.has_stepped = not (run.has_stepped or run.is_again), True
        if run.name == _VALIDATION:
            phase, usual = _VALIDATION, (parts.VALIDATION, _FIT)
        else:
            usual = _PHASES.get(phase, parts.MARKED), run.name
        if span.retraced:
            self._close_step(step, parts.FIRST, phase)
        elif is_first:
            step.name, run.first = phase, (step, usual[0])
        else:
            self._settle_first(run, step.self_ns)
            self._close_step(step, *usual)

    def _settle_first(self, run: Run, second_ns: int | None) -> None:
        """Charge a run's first batch, in which nothing was traced, now that the second one is known.

        Args:
            run: The run.
            second_ns: What the second one took; None where there was none.
        """
        if run.first is None:
            return
        (step, part), run.first = run.first, None
        if second_ns and step.self_ns >= _FAR_LONGER * second_ns:
            self._close_step(step, parts.SLOW_FIRST, step.name)
        else:
            self._close_step(step, part, _FIT if run.name == _VALIDATION else run.name)

    def _close_step(self, step: Open, part: str, name: str) -> None:
        """Charge a step that left the stack, with what was kept in it."""
        for row in (step.kept or {}).values():
            step.self_ns += row.wall_ns
        self._stretches -= len(step.stretches or ()) // 2
        if part in _OUTERMOST:
            row = self._row_around((part, name), step.begin_ns)
            row.add(step.begin_ns, 1, step.self_ns, step.self_ns, step.place)
        else:
            self._charge(part, name, step)

    def _row_around(self, key: tuple[str, str], first_ns: int) -> Row:
        """The row of a call that has left the stack: kept where what surrounds it may be the step."""
        around = self._stack[-1]
        if around.part != STEP or around.stretches is None:
            return self._row(key, first_ns)
        around.kept = {} if around.kept is None else around.kept
        if key not in around.kept and len(around.kept) >= MOST_ROWS:
            key = key[0], ""
        return around.kept.setdefault(key, Row(first_ns))

    def _give_back(self, step: Open) -> None:
        """What left the stack was no step: its time belongs to what it stood in."""
        around = self._stack[-1]
        around.self_ns += step.self_ns
        if around.stretches is not None and step.stretches is not None:
            around.stretches += step.stretches
        for key, kept in (step.kept or {}).items():
            row = self._row_around(key, kept.first_ns)
            row.add(kept.first_ns, kept.occurrences, kept.wall_ns, kept.longest_ns, kept.place)

    # Keras' runs.

    def batches_fly(self, batches: InFlight) -> None:
        """The innermost run has no batch for now, and some that it had are still computed."""
        run = self._stack[-1] if self._is_running_here() else None
        if isinstance(run, Run):
            self._tick()
            self._flying.append((batches, run.batches_row, run.place))

    def run_began(self, method: str) -> None:
        """``fit``, ``evaluate`` or ``predict`` was called."""
        if not self._is_running_here():
            return
        now = self._tick()
        around = self._stack[-1]
        if around.span is not None and around.span.kind == KERAS:  # the data had run out
            self.step_ended(around.span, is_step=False)
            around = self._stack[-1]
        elif around.span is not None and around.span.kind == USER:  # part of a step of the user's
            return
        name, again = method, False
        if isinstance(around, Run) and around.method == _FIT and method == "evaluate":
            self.epoch_ends()
            name, again, around.has_validated = _VALIDATION, around.has_validated, True
        place = around.place if isinstance(around, Run) else running_line()
        self._stack.append(Run(name, method, now, place, again=again))

    def epoch_ends(self) -> None:
        """The innermost run's epoch is over: what follows is its end, until a batch begins."""
        run = self.batches_end()
        if run is not None and run.state in (INSIDE, BETWEEN):
            run.state = EPOCH_END

    def batches_end(self) -> "Run | None":
        """The innermost run, if there is one, has no batches for now."""
        if self._is_running_here():
            for one in reversed(self._stack):
                if isinstance(one, Run):
                    one.go_on()
                    return one
        return None

    def run_ended(self, method: str) -> None:
        """It returned, or raised."""
        if not self._is_running_here():
            return
        for at in range(len(self._stack) - 1, 0, -1):
            run = self._stack[at]
            if isinstance(run, Run) and run.method == method:
                self._tick()
                self._close_from(at)
                return
