import numpy as np
import pytest
from traces import event, gpu, host, line, read

from profnb.steps.summary import batch_size_of
from profnb.steps.step_times import StepTimes, wall_step_times
from profnb.steps.untraced import tracing_cost
from profnb.report.notes import note_cost, notes_of
from profnb.report.build import build_report
from profnb.subjects.study import Study
from profnb.steps.summary import GAP, share_time, summarize
from profnb.capture.step_records import StepRecords


US, MS = 10**6, 10**9


def marker(begin, end, number, name="train", **stats):
    return event(name, begin, end - begin, _r=1, step_num=number, **stats)


def fetch(begin, size):
    return event("IteratorGetNextOp::DoCompute", begin, 1, element_size=size)


ROOT = {"shapes": "[?,2] [?]", "types": "float int64"}  # 2 * 4 + 8 = 16 bytes an example


def test_the_headline_of_a_trace_that_a_person_can_compute():
    trace = read(
        host(
            line(
                "python",
                event("Iterator::Root", 1, 1, **ROOT),
                marker(0, 10_000, 0), event("a:Op", 0, 4000), fetch(9000, 160),
                marker(12_000, 22_000, 1), event("a:Op", 12_000, 4000), fetch(21_000, 160),
                marker(24_000, 34_000, 2), event("a:Op", 24_000, 4000), fetch(33_000, 80),
            )
        )
    )  # fmt: skip
    summary = Study(trace).summary
    assert (summary.phase, summary.median_ps, summary.median_gap_ps) == ("train", 10_000, 2_000)
    assert summary.batch_size == 10
    assert summary.examples_per_second == pytest.approx(25 / 34_000e-12)  # wall time of all three
    assert {s.category: s.mean_ps * 3 for s in summary.shares} == {
        "host compute": 12_000, "input": 3, "all others": 17_997, GAP: 4_000,
    }  # fmt: skip
    assert sum(s.fraction for s in summary.shares) == pytest.approx(1)


def test_what_keras_says_of_its_batches_on_jax_are_examples():
    def batch(begin, size):
        return event("profnb.next_batch", begin, 100, batch_size=size)

    trace = read(
        host(
            line(
                "python",
                marker(0, 10_000, 0), batch(0, 32), marker(12_000, 22_000, 1), batch(12_000, 32), marker(24_000, 34_000, 2), batch(24_000, 4),
                marker(40_000, 50_000, 3, "test"), batch(40_000, 64),
            )
        )
    )  # fmt: skip
    study = Study(trace)
    assert study.examples.tolist() == [32, 32, 4, 64]
    assert (study.summary.batch_size, study.batch_size) == (32, 32)


def test_steps_that_take_no_time_have_no_rate():
    study = Study(read(host(line("python", marker(5, 5, 0)))))
    summary = summarize(study.steps, study.breakdown, np.array([32]), study.gaps)
    assert (summary.examples_per_second, summary.batch_size) == (None, 32)


def test_the_gap_before_validation_is_no_part_of_a_training_step():
    trace = read(
        host(
            line("python", marker(0, 10, 0), marker(12, 22, 1), marker(500, 510, 2, "test"), marker(900, 910, 3))
        )
    )
    summary = Study(trace).summary
    assert summary.median_gap_ps == 2
    assert summary.others == (("test", 1),)


def test_warm_up_steps_stay_out_unless_there_is_nothing_else():
    def trace(count):
        return read(host(line("python", *(marker(i * 10, i * 10 + (9 if i == 0 else 5), i) for i in range(count)))))

    study = Study(trace(4), warmup_steps=1)
    assert study.summary.counted.tolist() == [1, 2, 3]
    assert study.summary.warm_up.tolist() == [0]
    study = Study(trace(1), warmup_steps=1)
    assert study.summary.all_warm_up
    assert (study.summary.counted.tolist(), study.summary.median_ps) == ([0], 9)
    assert any("warm-up" in note for note in notes_of(study))


def test_shares_of_chosen_steps():
    trace = read(
        host(line("python", marker(0, 10, 0), event("a:Op", 0, 10), marker(10, 20, 1)))
    )
    study = Study(trace)
    shares = share_time(study.gaps, study.breakdown, np.array([0]))
    assert [(s.category, s.fraction) for s in shares] == [("host compute", 1.0)]
    assert share_time(study.gaps, study.breakdown, np.empty(0, np.int64)) == ()


def test_whatever_took_any_time_has_a_share_of_it():
    study = Study(read(host(line("python", marker(0, 10, 0), event("a:Op", 0, 1)))))
    shares = share_time(study.gaps, study.breakdown, np.array([0]))
    assert [(s.category, s.mean_ps, s.fraction) for s in shares] == [("all others", 9, 0.9), ("host compute", 1, 0.1)]


@pytest.mark.parametrize(
    ("shapes", "types", "size", "batch"),
    [
        ("[?,28,28,1] [?]", "float int64", 100_608, 32),
        ("[64,10] [64]", "float int32", 0, 64),
        ("[?,10]", "half", 200, 10),
        ("[?,10]", "half", 201, None),  # not a whole number of examples
        ("[?,?]", "float", 400, None),
        ("[]", "int64", 8, None),
        ("[?]", "string", 80, None),
        ("[8,2] [4]", "float float", 0, None),
        ("", "", 0, None),
        ("[?,0]", "float", 0, None),
        ("[" + "9" * 30 + ",3]", "float", 4, None),
        ("[?," + "9" * 5000 + "]", "float", 4, None),
    ],
)
def test_the_batch_size_is_read_or_not_guessed(shapes, types, size, batch):
    assert batch_size_of(shapes, types, size) == batch


def test_no_throughput_where_one_step_is_unreadable():
    trace = read(
        host(
            line(
                "python", event("Iterator::Root", 1, 1, **ROOT),
                marker(0, 10, 0), fetch(5, 160), marker(10, 20, 1), fetch(15, 7),
            )
        )
    )  # fmt: skip
    assert Study(trace).summary.examples_per_second is None


def test_notes_say_what_is_missing():
    window = Study(read(host(line("python", event("a", 0, 5)))))
    assert any("No steps among 1 events" in note for note in notes_of(window))
    empty = Study(read(host(), gpu()))
    assert "no events" in notes_of(empty)[0]
    silent = Study(read(host(line("python", marker(0, 5, 0), event("cuLaunchKernel", 1, 2))), gpu()))
    assert any("CUPTI" in note for note in notes_of(silent))
    assert not silent.program.has_device
    unused = Study(read(host(line("python", marker(0, 5, 0))), gpu()))
    assert not any("CUPTI" in note for note in notes_of(unused))
    assert any("the traced code did not use it" in note for note in notes_of(unused))
    partly = Study(read(gpu(line("Stream #1", event("k", 0, 5))), gpu(number=1)))
    assert any("/device:GPU:1" in note and "did not use" in note for note in notes_of(partly))
    reported = Study(read(host(line("p", marker(0, 5, 0))), errors=["dropped 7 events"]))
    assert any("dropped 7 events" in note for note in notes_of(reported))


def records(*rows, names=("f", "g"), kind="call"):
    out = StepRecords(names=list(names))
    for begin, end, name in rows:
        out.append(begin, end, name, out.kinds.index(kind), 1, 0, 1, len(out), 0)
    return out


def test_wall_times_of_two_functions_are_two_phases():
    times = wall_step_times(records(*((at * 10, at * 10 + 5 + code, code) for at, code in enumerate([0, 0, 1, 1, 1] * 2))))
    assert times.phase == ("f", "f", "g", "g", "g") * 2
    assert times.duration_ps.tolist() == [5000, 5000, 6000, 6000, 6000] * 2


def test_wall_times_of_calls_are_of_the_function_that_repeats():
    times = wall_step_times(records((0, 50, 1), (60, 70, 0), (80, 95, 0), (100, 110, 0)))
    assert times.phase == ("f", "f", "f")
    assert times.duration_ps.tolist() == [10_000, 15_000, 10_000]
    assert times.begin_ps.tolist() == [0, 20_000, 40_000]


def test_wall_times_of_marked_steps_are_all_of_them():
    assert len(wall_step_times(records((0, 5, 0), (6, 9, 1), kind="keras"))) == 2
    assert len(wall_step_times(records())) == 0


def times_of(traced, untraced, runs=None):
    """Steps of these picoseconds, first the traced ones."""
    duration = np.array([*traced, *untraced], np.int64)
    was = np.arange(duration.size) < len(traced)
    none, order = np.zeros(duration.size, np.bool_), np.arange(duration.size)
    run = np.zeros(duration.size, np.int64) if runs is None else np.array(runs)
    return StepTimes(duration, duration, was, none, ("train",) * duration.size, order, run)


def test_the_cost_of_tracing_is_how_much_longer_traced_steps_take_than_their_neighbours():
    cost = tracing_cost(times_of([11] * 5, [10] * 5), "train")
    assert (cost.fraction, cost.low, cost.high, cost.untraced_ps) == (*[pytest.approx(0.1)] * 3, 10)
    assert note_cost(cost) == note_cost(None) == []
    assert "50.0 % longer" in note_cost(tracing_cost(times_of([15] * 5, [10] * 5), "train"))[0]
    assert tracing_cost(times_of([11] * 4, [10] * 50), "train") is None
    assert tracing_cost(times_of([11] * 9, [10] * 9), "test") is None


def noisy(level, count, seed):
    return (level * np.random.default_rng(seed).uniform(0.9, 1.1, count)).astype(np.int64)


def test_an_interval_that_holds_0_is_silence_and_no_cost_is_negative():
    held = 0
    for seed in range(20):
        assert tracing_cost(times_of(noisy(1000, 50, seed), noisy(1000, 50, seed + 50)), "train") is None
        assert tracing_cost(times_of(noisy(900, 50, seed), noisy(1000, 50, seed + 50)), "train") is None
        cost = tracing_cost(times_of(noisy(1300, 50, seed), noisy(1000, 50, seed + 50)), "train")
        held += cost.low < 0.3 < cost.high
    assert held >= 16  # 19 of 20 on average


def test_a_training_that_was_slow_at_first_has_no_cost_of_tracing():
    """The first 80 of 100 traced steps waited for a cold cache."""
    assert tracing_cost(times_of([*noisy(20_000, 80, 1), *noisy(1000, 20, 2)], noisy(1000, 400, 3)), "train") is None


@pytest.mark.parametrize("slope", [0.99, 0.995, 1.01])
def test_what_gets_steadily_faster_or_slower_is_no_cost_of_tracing(slope):
    steps = 10**9 * slope ** np.arange(200)
    assert tracing_cost(times_of(steps[:100], steps[100:]), "train") is None
    cost = tracing_cost(times_of(1.5 * steps[:100], steps[100:]), "train")
    assert cost.fraction == pytest.approx(0.5, abs=0.01)


def test_steps_right_behind_the_stop_are_left_out_they_find_full_buffers():
    assert tracing_cost(times_of(noisy(1000, 30, 4), [10] * 4 + noisy(1000, 30, 5).tolist()), "train") is None


def test_the_cost_of_tracing_compares_steps_of_one_fit():
    duration = np.array([10] * 6 + [30] * 6, np.int64)
    run = np.array([1] * 6 + [2] * 6)
    traced = np.arange(12) < 6
    none, order = np.zeros(12, np.bool_), np.arange(12)
    times = StepTimes(duration, duration, traced, none, ("train",) * 12, order, run)
    assert tracing_cost(times, "train") is None


def timed(sizes, gap=MS // 100, name="train"):
    """Steps of these sizes, of which ops take half."""
    events, at = [], 0
    for number, size in enumerate(sizes):
        events += [marker(at, at + size, number, name), event("a:Op", at, size // 2)]
        at += size + gap
    return Study(read(host(line("python", *events))))


def headline(study):
    report = build_report(study, title="t", notes=(), overhead_ps=None)
    return report.headline, report.answer, {fact.name: fact for fact in report.facts}


def test_one_slow_step_among_five_does_not_decide_and_is_said():
    study = timed([1200 * US] * 2 + [114 * MS] + [1200 * US] * 2)
    assert study.summary.counted.tolist() == [0, 1, 3, 4]
    assert study.summary.aside.tolist() == [2]
    assert headline(study)[0] == "4 train steps, median 1.20 ms (one step of 114 ms aside)"
    two = timed([MS] * 98 + [50 * MS, 60 * MS])
    assert headline(two)[0] == "98 train steps, median 1.00 ms (2 steps of 50.0 ms to 60.0 ms aside)"
    assert two.summary.p95_ps == MS


@pytest.mark.parametrize(
    "sizes",
    [
        [4 * MS, MS, MS, MS],  # not five times as long
        [5 * MS, MS],  # nobody tells which of two is the usual one
        [9 * MS, 9 * MS, MS, MS, MS, MS],  # a third of them: it is the program's
        [5 * MS, *[MS] * 100],  # it decides nothing
        [9 * MS] * 5,
    ],
)
def test_slow_steps_that_are_the_programs_own_stay(sizes):
    study = timed(sizes)
    assert not study.summary.aside.size
    assert "aside" not in headline(study)[0]


def test_a_step_stands_aside_from_five_times_the_usual_on():
    assert timed([MS] * 9 + [5 * MS]).summary.aside.tolist() == [9]
    assert timed([MS] * 9 + [5 * MS - 1]).summary.aside.tolist() == []
    assert timed([MS] * 78 + [50 * MS] * 2).summary.aside.tolist() == [78, 79]  # a fortieth
    assert timed([MS] * 77 + [50 * MS] * 2).summary.aside.tolist() == []


def test_the_middle_half_of_five_steps_is_from_the_second_to_the_fourth():
    assert timed([5 * MS, MS, 4 * MS, 2 * MS, 3 * MS]).summary.quartiles_ps == (2 * MS, 4 * MS)


@pytest.mark.filterwarnings("error")
def test_without_any_step_there_is_no_median():
    summary = Study(read(host(line("python")))).summary
    assert (summary.median_ps, summary.p95_ps, summary.quartiles_ps, summary.median_gap_ps) == (None,) * 4


def test_one_step_has_no_median_and_few_have_no_p95():
    said, _, facts = headline(timed([2 * MS]))
    assert said == "1 train step, 2.00 ms"
    assert facts["step time"].remark == "of one step"
    assert not {"step time, median", "step time, p95", "between steps"} & facts.keys()
    assert "step time, p95" not in headline(timed([MS] * 19))[2]
    assert "step time, p95" in headline(timed([MS] * 20))[2]


def test_one_other_step_is_one():
    study = Study(read(host(line("python", marker(0, 5, 0), marker(9, 12, 1), marker(20, 25, 2, "test")))))
    assert "Averages are of train steps. The trace also holds 1 test step." in notes_of(study)


def test_the_answer_of_a_trace_with_several_working_devices_says_whose_it_is():
    def work(number):
        return gpu(line("Stream #1", event("k", 0, 8 * MS - number)), number=number)

    def answer(*devices):
        study = Study(read(host(line("python", marker(0, 10 * MS, 0))), *devices))
        return build_report(study, title="t", notes=(), overhead_ps=None).answer

    assert answer(work(0), work(1)).startswith("Most of it, seen from /device:GPU:0, is device compute")
    assert answer(work(0), gpu(number=1)).startswith("Most of it is device compute")


def test_what_a_device_alone_cannot_explain_is_not_called_python():
    steps = line("Steps", *(event(str(at), at * 10 * MS, 10 * MS) for at in range(4)), line_id=9)
    study = Study(read(gpu(line("Stream #1", *(event("k", at * 10 * MS, MS) for at in range(4))), steps)))
    assert "nothing that could explain it was recorded" in build_report(study, title="t", notes=(), overhead_ps=None).answer


def test_windows_are_told_how_to_mark_steps_in_the_words_of_their_framework():
    def note(name):
        return notes_of(Study(read(host(line("python", event(name, 0, 5))))))[0]

    assert "profnb.step" in note("a/Relu:Relu")
    assert "StepTraceAnnotation" in note("jit(f)/mul:")
    assert "torch.profiler" in note("aten::relu")
    assert "profnb" not in note("something")
