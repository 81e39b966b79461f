"""``slowing-down``: steps that take longer and longer, by hand; real programs are in the diagnosis benchmark."""

from array import array

import numpy as np
import pytest
from advised import advised
from test_steps import marker
from traces import event, host, line, read

from profnb.capture.machine.waits import CoreWaits
from profnb.capture.machine.machine_watch import MachineRecords
from profnb.capture.recording import Recording
from profnb.capture.step_records import StepRecords
from profnb.causes.slowing import find_rise, find_slowing
from profnb.subjects.core_contention import is_slowed_by_others
from profnb.subjects.study import Study

MS, S = 10**9, 10**9
NOISE = np.random.default_rng(4)


def noisy(level, spread=0.2):
    """Times about a level: most near it, some far above it, as a busy machine makes them."""
    level = np.asarray(level, float)
    late = np.where(NOISE.random(level.size) < 0.1, 3 * NOISE.random(level.size), 0)
    return level * (1 + spread * NOISE.random(level.size) + late)


def test_a_trend_and_a_change_that_stays_are_told_apart():
    trend = find_rise(noisy(np.linspace(10, 30, 100)))
    assert trend.change is None
    assert 10 < trend.early < 17
    assert 25 < trend.late < 37
    change = find_rise(noisy(np.repeat([10, 20], [40, 60])))
    assert change.change == 40
    assert find_rise(noisy(np.repeat([10, 20], [280, 220]))).change == pytest.approx(280, abs=25)


@pytest.mark.parametrize("level", [
    np.full(200, 10), np.repeat([50, 10], [10, 90]), np.repeat([10, 90, 10], [60, 1, 39]), np.repeat([10, 90, 10], [40, 15, 45]),
    np.linspace(30, 10, 100), np.tile([10, 10, 10, 80], 25), np.linspace(10, 11, 100), np.repeat([5, 10], [8, 92]), np.repeat([10, 40], [97, 3]),
    np.linspace(10, 40, 39), np.tile(np.linspace(10, 30, 25), 4),
], ids=[
    "level", "warm-up", "one slow step", "a disturbance that passes", "faster and faster", "ends of epochs", "hardly", "buffers full at first",
    "the last steps", "too few to tell", "each epoch alike",
])  # fmt: skip
def test_what_is_no_slowing_down(level):
    assert find_rise(noisy(level)) is None


def test_what_is_saved_every_fifth_step_is_no_part_of_what_the_rise_costs():
    """Steps of 4 ms that become ones of 6 ms, a fifth of them followed by 60 ms: 2 ms of 65 steps is 130 of 2,220 ms."""
    level = np.repeat([4.0, 6.0], [35, 65])
    assert find_rise(level).excess == pytest.approx(130 / level.sum())
    saving = level + np.tile([0, 0, 60, 0, 0], 20)
    assert find_rise(saving).late == 6
    assert 130 / saving.sum() <= find_rise(saving).excess < 3 * 130 / saving.sum()


def test_the_level_is_one_in_a_thousand():
    """Times without a trend whose ends differ by chance; the bound on how much they must is not what keeps it."""
    draw = np.random.default_rng(9)
    found = sum(find_rise(draw.lognormal(0, 1.5, 60)) is not None for _ in range(4000))
    assert found <= 10


# Traces: which part grew.


def said(study):
    return advised(study)["slowing-down"]


def study_of(times_ms, inside=None, gap_ms=lambda at: 0.1, recording=None):
    """Steps of given times; ``inside`` makes the events of one from its row, begin and time."""
    begin, markers, work = 0, [], []
    for at, took in enumerate(times_ms):
        end = begin + int(took * MS)
        markers.append(marker(begin, end, at))
        work += inside(at, begin, end) if inside else [event("m/a/MatMul:MatMul", begin, end - begin)]
        begin = end + int(gap_ms(at) * MS)
    return Study(read(host(line("python", *markers), line("tf_Compute", *work, line_id=2))), 0, recording)


def op(begin, end, name="m/a/MatMul:MatMul"):
    return event(name, begin, end - begin)


def test_the_same_ops_that_take_longer():
    found = said(study_of(np.repeat([10.0, 20.0], 30)))
    assert "100.0 % longer" not in found.evidence  # the gap of 100 us belongs to the step
    assert "The last quarter of 60 steps took 20.1 ms each, the first 10.1 ms: 99.0 % longer, mostly from about step 30 on" in found.evidence
    assert "The number of ops stayed the same" in found.evidence
    assert "nvidia-smi" in found.code
    assert found.bound_fraction == pytest.approx(1 - 10.1 / 15.1, abs=0.01)
    assert found.saves_ms[0] == pytest.approx(found.saves_ms[1])


def test_steps_that_run_more_and_more_ops():
    def inside(at, begin, end):
        bounds = np.linspace(begin, end, 3 + at // 4).astype(int).tolist()
        return [op(a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]

    found = said(study_of(np.linspace(10, 40, 60), inside))
    assert "bit by bit" in found.evidence
    assert "Each late step ran 15 ops, each early step 3." in found.evidence
    assert "longer sequences" in found.code


def test_python_that_grows_between_steps():
    found = said(study_of([10.0] * 60, gap_ms=lambda at: 0.5 * at))
    assert "The growing part is Python between steps and around ops, from 3.50 ms to 25.5 ms a step." in found.evidence
    assert "a list of losses" in found.code


def waiting(at, begin, end):
    """An input that is waited for all of the step but 5 ms."""
    return [op(end - 5 * MS, end), event("IteratorGetNext:IteratorGetNext", begin, end - begin - 5 * MS)]


def test_an_input_that_gets_slower_and_one_whose_buffer_ran_dry():
    def on_python(times):
        begin, events = 0, []
        for at, took in enumerate(times):
            end = begin + int(took * MS)
            events += [marker(begin, end, at), event("IteratorGetNext", begin, end - begin - 5 * MS)]
            events.append(op(end - 5 * MS, end))
            begin = end
        return Study(read(host(line("python", *events))))

    slower = said(on_python(np.linspace(10, 40, 60)))
    assert "the wait for input" in slower.evidence
    assert "A generator" in slower.code
    assert find_slowing(on_python(np.repeat([6.0, 20.0], 30))) is None


def test_what_the_clock_saw_after_the_trace_counts_and_is_not_explained():
    records = StepRecords(names=["train"])
    begin = 0
    for at in range(80):
        took = 10_000_000 + 400_000 * at
        records.append(begin, begin + took, 0, 0, int(at < 12), 0, 1, at, 0)
        begin += took + 1000
    recording = Recording(steps=records)
    found = said(study_of([10.0] * 12, recording=recording))
    assert "of 80 steps" in found.evidence
    assert found.evidence.endswith("bit by bit.")
    assert found.code.startswith("Trace more steps")
    assert list(advised(study_of([10.0] * 12, recording=recording))) == ["slowing-down"]
    records.retraced[:] = records.retraced[:0]
    for _ in range(80):
        records.retraced.append(1)
    assert find_slowing(study_of([10.0] * 12, recording=recording)) is None  # each is a warm-up


def test_fits_are_not_compared_with_each_other():
    """Two fits of 40 steps each, the second of larger batches."""
    records = StepRecords(names=["train"])
    begin = 0
    for at in range(80):
        took = 10_000_000 if at < 40 else 30_000_000
        records.append(begin, begin + took, 0, 0, 1, 0, 1, at, at // 40)
        begin += took + 1000
    times = np.repeat([10.0, 30.0], 40)
    assert find_slowing(study_of(times, recording=Recording(steps=records))) is None
    assert find_slowing(study_of(times)) is not None  # of a trace alone nobody knows


def test_a_session_whose_graph_grows_has_a_rule_of_its_own():
    times = np.linspace(10, 40, 60)
    assert find_slowing(study_of(times, recording=Recording(graph_versions=list(range(60))))) is None
    assert find_slowing(study_of(times, recording=Recording(graph_versions=[7] * 60))) is not None


def looks(own, others, cores=2, every_s=0.1, seconds=10):
    """A machine that was looked at ten times a second; how many cores this process and others had, by the second."""
    times = np.arange(0, seconds + every_s, every_s)

    def counted(cores_at):
        return (np.cumsum([0, *(cores_at(at) * every_s for at in times[:-1])]) * S).astype(int)

    own_ns, others_ns = counted(own), counted(others)
    busy_ns = own_ns + others_ns
    blank = array("q", [-1] * times.size)
    columns = [array("q", column.tolist()) for column in ((times * S).astype(int), busy_ns, (times * cores * S).astype(int) - busy_ns, own_ns)]
    return MachineRecords(0, seconds * S, *columns, blank, blank, blank)


BUSY_LATER = lambda at: 0.1 if at < 3 else 1.5  # noqa: E731


@pytest.mark.parametrize(
    ("own", "others", "speaks"),
    [
        (lambda at: 0.9 if at < 3 else 0.45, BUSY_LATER, False),  # as much work a step, in twice the time
        (lambda at: 0.9, BUSY_LATER, True),  # twice the work a step
        (lambda at: 0.9 if at < 3 else 0.45, lambda at: 0.1, True),  # the machine rests: something waits
    ],
    ids=["others took the cores", "more work", "an idle machine"],
)
def test_steps_that_others_slow_down_are_told_by_the_processor_time_of_a_step(own, others, speaks):
    quarter = 125 * 10_100_000
    early, late = (0, quarter), (7_000_000_000 - 125 * 20_100_000, 7_000_000_000)
    assert is_slowed_by_others(looks(own, others), early, late) is not speaks


def test_steps_slowed_by_others_after_the_trace_get_no_advice():
    def of(own):
        records, begin = StepRecords(names=["train"]), 0
        for at in range(200):
            took = 20_000_000 if at < 100 else 60_000_000
            records.append(begin, begin + took, 0, 0, int(at < 12), 0, 1, at, 0)
            begin += took + 1000
        return study_of([20.0] * 12, recording=Recording(steps=records, machine=looks(own, lambda at: 0.1 if at < 2 else 1.5)))

    assert find_slowing(of(lambda at: 0.9)) is not None
    assert find_slowing(of(lambda at: 0.9 if at < 2 else 0.3)) is None


def test_of_hardly_any_looks_nobody_can_tell():
    machine = looks(lambda at: 0.4, lambda at: 1.6, every_s=5)
    assert is_slowed_by_others(machine, (0, S), (6 * S, 7 * S)) is None
    assert is_slowed_by_others(None, (0, S), (6 * S, 7 * S)) is None


def test_steps_that_nobody_timed_are_not_told_to_slow_down_beside_busy_programs():
    """As those of JAX' calls: what the machine did is known of the traced window alone."""
    times = [10.0] * 30 + [20.0] * 30
    assert find_slowing(study_of(times)) is not None
    assert find_slowing(study_of(times, recording=Recording(core_waits=BESIDE))) is None


BESIDE = CoreWaits(wall_ns=S, ran_ns=S // 2, waited_ns=0, others_ns=S, cores=2)


@pytest.mark.parametrize(
    ("machine", "waits", "speaks"),
    [
        (None, CoreWaits(), True),
        (looks(lambda at: 0.9, lambda at: 0.1, every_s=0.5), CoreWaits(), True),
        (looks(lambda at: 0.9, lambda at: 0.9, every_s=0.5), CoreWaits(), False),
        (None, BESIDE, False),
        (looks(lambda at: 0.9, lambda at: 0.9), BESIDE, True),  # looks often enough tell: more work
    ],
    ids=["nothing told", "alone", "beside busy programs", "traced beside them", "beside them, and more work"],
)
def test_steps_of_a_few_seconds_beside_busy_programs_get_no_advice(machine, waits, speaks):
    records, begin = StepRecords(names=["train"]), 0
    for at in range(64):
        took = 16_000_000 if at < 32 else 26_000_000
        records.append(begin, begin + took, 0, 0, int(at < 12), 0, 1, at, 0)
        begin += took + 1000
    recording = Recording(steps=records, machine=machine, core_waits=waits)
    assert (find_slowing(study_of([16.0] * 12, recording=recording)) is not None) is speaks
