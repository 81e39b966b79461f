"""The cost of recording events, taken out of all times: steps recorded with a known cost read as without it."""

import numpy as np
import pytest
from traces import event, gpu, host, line, read

from profnb.capture.recording import Recording
from profnb.capture.step_records import USER, StepRecords
from profnb.profile import Profile
from profnb.report.notes import note_cost
from profnb.subjects.study import Study

US, STEPS, UNTRACED = 1_000_000, 12, 12


class Thread:
    """What one thread records: before each event it loses time, and so does whatever is around it."""

    def __init__(self, at, cost):
        self.now, self.cost, self.events = at, cost, []

    def record(self, name, inside=0.0, then=0.0, work=None, **stats):
        """An event of some microseconds, or of what is recorded in it; then the thread goes on for some."""
        self.now += round(self.cost * US)
        begin = self.now
        self.now += round(inside * US)
        if work is not None:
            work()
            self.now += round(inside * US)
        self.events.append(event(name, begin, self.now - begin, **stats))
        self.now += round(then * US)


def ops(thread, small=20, large=100):
    """Small ops in frames of their own, beside a large one."""
    for _ in range(small):
        thread.record("EagerExecute", 0.5, 1, lambda: thread.record("Cast", 1.5, 0.5))
    thread.record("MatMul:MatMul", large)


def steps_of(work, cost, count=STEPS):
    """(events of each thread, how long a step takes): steps in which the given work is done."""
    main, others = Thread(US, cost), []
    for number in range(count):
        main.record("train", 1, 10, lambda: others.extend(work(main) or ()), step_num=number, _r=1)
    durations = [found[2] for found in main.events if found[0] == "train"]
    return [sorted(main.events, key=lambda one: (one[1], -one[2])), *([others] if others else [])], durations[0]


def recorded(work, cost, *planes):
    """A capture whose first steps were traced at this cost, and the same steps as they run untraced."""
    lines, took = steps_of(work, cost)
    _, untraced_took = steps_of(work, 0)
    records, at = StepRecords(names=["train"]), 0
    for number in range(STEPS + UNTRACED):
        duration = (took if number < STEPS else untraced_took) // 1000
        records.append(at, at + duration, 0, records.kinds.index(USER), number < STEPS, 0, 1, number, 0)
        at += duration + 10_000
    return trace_of(lines, *planes), Recording(steps=records)


def trace_of(lines, *planes):
    return read(host(*(line(f"thread {at}", *events, line_id=at) for at, events in enumerate(lines))), *planes)


def corrected(work, cost):
    trace, recording = recorded(work, cost)
    return Study(trace, recording=recording).without_tracing()


def true(work):
    return Study(trace_of(steps_of(work, 0)[0]))


@pytest.mark.parametrize("cost", [0.1, 0.4, 0.9])
def test_a_traced_step_is_told_as_it_runs_untraced(cost):
    study, truth = corrected(ops, cost), true(ops)
    assert study.clock.event_ps == pytest.approx(cost * US, rel=1e-3)
    few = STEPS * 50  # picoseconds: the cost is a whole number of them
    for told, is_so in (
        (study.steps.duration_ps, truth.steps.duration_ps), (study.breakdown.picoseconds, truth.breakdown.picoseconds),
        (study.breakdown.gap_picoseconds[:-1], truth.breakdown.gap_picoseconds[:-1] ), (study.ops.table.self_ps, truth.ops.table.self_ps),
    ):  # fmt: skip
        assert np.abs(told - is_so).max() <= few
    assert (study.breakdown.picoseconds.sum(axis=1) == study.steps.duration_ps).all()
    large = study.ops.runs.self_ps[study.ops.runs.total_ps == 100 * US]
    assert large.size == STEPS  # an op with nothing inside keeps its length


def test_the_trace_itself_stays_as_it_was_recorded():
    trace, recording = recorded(ops, 0.4)
    p = Profile(trace, recording)
    assert (p.events.begin_us * US).round().tolist() == trace.events.begin_ps.tolist()
    assert p.events.duration_us.max() * US == trace.events.duration_ps.max()
    assert p.steps.duration_ms.max() * 1e9 == pytest.approx(steps_of(ops, 0)[1], abs=50)
    assert p.study.recorded.trace.events is p.trace.events
    assert p.study.recorded.recorded is p.study.recorded


def test_where_nothing_was_measured_nothing_is_taken_out():
    trace, recording = recorded(ops, 0.4)
    loaded = Study(trace)
    assert loaded.without_tracing() is loaded
    no_cost = Study(true(ops).trace, recording=recorded(ops, 0)[1])
    assert no_cost.without_tracing() is no_cost
    assert len(recording.steps) == STEPS + UNTRACED


def waits_for(others):
    """The thread of the steps waits inside one event while another thread works."""

    def work(main):
        other = Thread(main.now + round(main.cost * US) + US, main.cost)
        others(other)
        wait = (other.now - main.now) / US - main.cost + 1
        main.record("FunctionRun", wait)
        return other.events

    return work


def test_what_another_thread_records_counts_while_the_steps_wait_for_it():
    work = waits_for(lambda other: [other.record("Cumsum:Cumsum", 2, 1) for _ in range(30)])
    study, truth = corrected(work, 0.4), true(work)
    longer = study.steps.duration_ps - truth.steps.duration_ps
    assert np.abs(longer[1:]).max() <= 50  # nothing tells since when that thread was there for its first event
    assert np.abs(study.ops.table.self_ps - truth.ops.table.self_ps).max() <= STEPS * 100


def test_what_another_thread_records_beside_the_steps_own_work_does_not_shorten_that():
    def work(main):
        other = Thread(main.now + US, main.cost)
        while other.now < main.now + 100 * US:
            other.record("Iterator::Map", 0.2, 0.3)
        ops(main)
        return [one for one in other.events if one[1] + one[2] < main.now]

    study, alone = corrected(work, 0.4), corrected(ops, 0.4)
    assert study.clock.event_ps == alone.clock.event_ps
    assert np.abs(study.steps.duration_ps - true(ops).steps.duration_ps).max() <= 50


def test_steps_that_were_slow_for_another_reason_lose_no_more_than_events_can_cost():
    trace, recording = recorded(lambda main: ops(main, small=2), 0)
    slow = Recording(steps=StepRecords(names=["train"]))
    for row in range(STEPS + UNTRACED):
        took = 900_000 if row < STEPS else 100_000
        slow.steps.append(row * 1_000_000, row * 1_000_000 + took, 0, 1, row < STEPS, 0, 1, row, 0)
    study = Study(trace, recording=slow).without_tracing()
    removed = study.recorded.steps.duration_ps - study.steps.duration_ps
    assert 0 < removed.max() <= 10 * US  # five events
    assert study.ops.runs.self_ps.max() == 100 * US
    assert len(recording.steps)


def test_work_of_a_device_keeps_its_length():
    begins = [begin for name, begin, *_ in steps_of(ops, 0.4)[0][0] if name == "train"]
    kernels = [event("kernel", begin + 5 * US, 50 * US) for begin in begins]
    trace, recording = recorded(ops, 0.4, gpu(line("Stream #1", *kernels)))
    study = Study(trace, recording=recording).without_tracing()
    assert study.clock is not None
    on_device = study.trace.events.duration_ps[study.trace.lines.spread(study.trace.is_device_line)]
    assert (on_device == 50 * US).all()


def test_the_note_says_what_is_taken_out_and_what_is_left():
    study = corrected(lambda main: ops(main, small=60, large=20), 0.9)
    (said,) = note_cost(study.tracing_cost, study.clock)
    assert "The times below leave this cost out." in said
    assert "too long" not in said
    assert "too long: without tracing a step takes" in note_cost(study.tracing_cost)[0]
