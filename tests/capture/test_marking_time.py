"""What profnb does between steps to mark them is clocked, and nobody is told that it is Python of the code's."""

from types import SimpleNamespace

import pytest
from advised import advised
from test_advice import MS, US, loop

from profnb.capture.hook_clock import hook_clock
from profnb.capture.hooks import watched_call
from profnb.capture.marking.open_steps import OpenSteps
from profnb.capture.step_records import StepLog
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.recording import Recording
from profnb.report.text import fact_rows
from profnb.subjects.study import Study

BEGINS, MARKS, UNMARKS, ENDS, WORKS = 1, 2, 8, 4, 100  # ms


@pytest.fixture(autouse=True)
def _takes_time(clock, monkeypatch):
    """A step takes 1 ms to begin and 4 to be written down."""

    def then_work(owner, name, ms):
        original = getattr(owner, name)

        def works(*given, **named):
            result = original(*given, **named)
            clock.work(ms)
            return result

        monkeypatch.setattr(owner, name, works)

    then_work(OpenSteps, "begin", BEGINS)
    then_work(StepLog, "end_step", ENDS)


def recorder_by(clock, is_tracing=lambda: True):
    """A recorder that takes 2 ms to begin a step's marker and 8 to end that."""

    class Marker:
        def __init__(self, *_, **__):
            clock.work(MARKS)

        def __exit__(self, *_):
            clock.work(UNMARKS)

    door = SimpleNamespace(mark_step=Marker)
    return StepRecorder(is_tracing, lambda _: None, lambda: door), door


def iterate(recorder, door, clock):
    recorder.iterations.begin(door)
    clock.work(WORKS)
    recorder.iterations.end()
    clock.work(50)  # Python of the code's own


def run_a_batch(recorder, door, clock):
    recorder.batches._batch_began("train")
    clock.work(WORKS)
    recorder.batches._batch_ended()
    clock.work(50)


class Function:
    _name = "call"

    def experimental_get_tracing_count(self):
        return 1


def call(recorder, door, clock, inside=()):
    """A tf.function, whose marker TensorFlow itself begins and ends, and says late what it is; what it calls is part of it."""
    trace = SimpleNamespace(set_metadata=lambda **_: None)
    function = Function()
    recorder.events._called(function)
    clock.work(WORKS)
    for one in inside:
        one(recorder, door, clock)
    recorder.events.metadata_set(trace, tf_function_call="notTraced-xla")
    recorder.events._returned(function)
    clock.work(50)


def call_twice(recorder, door, clock):
    call(recorder, door, clock, [call, call])


@pytest.mark.parametrize(("step", "own_ms"), [
    (iterate, BEGINS + MARKS + ENDS), (run_a_batch, BEGINS + MARKS + ENDS), (call, ENDS), (call_twice, ENDS),
])  # fmt: skip
def test_marking_is_clocked_outside_of_the_steps_only(clock, step, own_ms):
    recorder, door = recorder_by(clock)
    assert recorder.open.marking_ns == 0
    for _ in range(3):
        step(recorder, door, clock)
    assert len(recorder.log) == 3
    assert recorder.open.marking_ns == own_ms * 1_000_000


def test_what_is_not_traced_is_not_clocked(clock):
    """Its markers cost less, and it lies between no steps of the trace."""
    is_tracing = [True]
    recorder, door = recorder_by(clock, lambda: is_tracing[0])
    iterate(recorder, door, clock)
    is_tracing[0] = False
    iterate(recorder, door, clock)
    assert len(recorder.log) == 2
    assert recorder.open.marking_ns == (BEGINS + MARKS + ENDS) * 1_000_000


def marked(study, own_us):
    return advised(Study(study.trace, 0, Recording(marking_ns=own_us * 1000))).get("python-between-steps")


def test_what_marking_took_is_not_python_of_the_codes():
    """Ten gaps of 44 us in eleven steps: 40 us a step."""
    study = loop(11, 100 * US, 44 * US)
    assert marked(study, 0).bound_fraction == pytest.approx(440 / 1540)
    assert marked(study, 19).bound_fraction == pytest.approx((440 - 11 * 19) / 1540)
    assert marked(study, 35) is None  # 5 us of 140 are left
    assert marked(study, 10**6) is None  # what is not to be believed


def test_a_long_gap_stays_said_whatever_marking_took():
    assert marked(loop(11, 6 * MS, 4 * MS), 30).bound_fraction == pytest.approx(40 / 106, abs=0.005)


@pytest.mark.parametrize(("own_us", "remark"), [
    (0, "median"),
    (4, "median"),  # less than a tenth
    (30, "median; profnb's marking of the steps takes 30.0 \u00b5s of it"),
    (50, "median"),  # of gaps that are shorter than that nothing is known
])  # fmt: skip
def test_the_time_between_steps_says_how_much_of_it_is_profnbs(own_us, remark):
    study = loop(11, 100 * US, 44 * US)
    facts = fact_rows(Study(study.trace, 0, Recording(marking_ns=own_us * 1000)), None)
    assert [fact.remark for fact in facts if fact.name == "between steps"] == [remark]


@pytest.mark.parametrize("is_on", [False, True])
def test_hooks_of_watched_calls_are_clocked_but_not_what_closes_the_window_in_one(clock, is_on):
    traced = iter(range(5))

    def closes(_):
        if next(traced, None) is None and not steps.counts_only:
            clock.work(700)
            steps.count_only()

    hook_clock.is_on = is_on  # as a capture before may have left it
    steps, late = OpenSteps(lambda: not steps.counts_only, closes), iter(range(10_000))

    def ended():
        clock.work(3 if steps.counts_only else 20)
        steps.record(steps.stack.pop(), clock.perf_counter_ns())
        steps.report()

    def began():
        clock.work(900 if next(late) == 3 else 5)  # a profiler that starts, once
        steps.stack.append(steps.begin(None, "call", "f"))

    with watched_call(lambda: clock.work(WORKS), hook_failed=pytest.fail, before=began, after=ended) as call:
        for _ in range(60):
            call()
    assert steps.counts_only
    assert steps.hooks_ns == ((5 + BEGINS + 3 + ENDS) * 1_000_000, (5 + BEGINS + 20 + ENDS) * 1_000_000)
