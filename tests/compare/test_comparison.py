"""Comparisons: coverage of the interval and false alarms on simulated runs, differences by hand, real runs, doors."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from recorded import FACTS, program
from traces import event, gpu, host, line, plane, read, xspace

import profnb
from profnb.__main__ import main
from profnb.compare.section import box_figures
from profnb.compare.estimates import estimate_mean, mann_whitney, student_factor
from profnb.compare.estimates import OTHER_CODE, THIS_CODE, UNKNOWN_SPREAD, Spread
from profnb.compare.speedup import RunSet, block_medians, _resampled_medians, compare_runs, estimate_step
from profnb.compare.differences import compare_categories, find_guards
from profnb.compare.op_differences import compare_ops, rank_scopes
from profnb.compare.speedup import steady_step_times
from profnb.steps.program_kind import JAX, UNKNOWN, ProgramKind
from profnb.steps.step_times import StepTimes
from profnb.subjects.study import Study
from profnb.capture.recording import Recording
from profnb.comparison import Comparison, compare
from profnb.profile import Profile

MS = 10**9


def runs(random, count, truth, run_spread=0.03, steps=80, drift=0.05):
    """Runs that differ from each other, of steps that depend on the one before, drift, and are now and then much slower."""
    fresh = random.normal(0, 0.04, (count, steps))
    noise = np.empty_like(fresh)
    last = np.zeros(count)
    for at in range(steps):
        noise[:, at] = last = 0.5 * last + fresh[:, at]
    noise += drift * random.normal(size=(count, 1)) * np.linspace(0, 1, steps)
    noise += np.where(random.random((count, steps)) < 0.03, random.exponential(1.0, (count, steps)), 0)
    return RunSet("x", tuple(10 * MS * truth * np.exp(random.normal(0, run_spread, (count, 1)) + noise)))


@pytest.mark.long
@pytest.mark.parametrize(("count", "spread"), [(3, 0.0), (3, 0.03), (5, 0.03)])
def test_the_interval_holds_the_truth_and_alarms_are_rarely_false(count, spread):
    random = np.random.default_rng(count)
    trials = 2000
    held = alarms = ranks = 0
    for trial in range(trials):
        faster = compare_runs(runs(random, count, 1.0, spread), runs(random, count, 0.8, spread), trial)
        held += faster.low <= 0.8 <= faster.high
        same = compare_runs(runs(random, count, 1.0, spread), runs(random, count, 1.0, spread), trial)
        alarms += same.is_different
        ranks += same.p_value < 0.05
    assert 0.93 * trials <= held <= 0.97 * trials
    assert alarms <= 0.05 * trials
    assert ranks <= 0.05 * trials  # with 3 + 3 runs there is nothing to rank, and it says so


@pytest.mark.slow
def test_one_run_each_speaks_of_its_steps_only():
    random = np.random.default_rng(0)
    held = alarms = 0
    for trial in range(120):
        found = compare_runs(runs(random, 1, 1.0, 0, drift=0), runs(random, 1, 1.1, 0, drift=0), trial)
        held += found.low <= 1.1 <= found.high
        alarms += compare_runs(runs(random, 1, 1.0, 0, drift=0), runs(random, 1, 1.0, 0, drift=0), trial).is_different
    assert held >= 0.87 * 120
    assert alarms <= 0.13 * 120
    assert "Repeat the runs" in found.verdict("a", "b")


@pytest.mark.filterwarnings("error")
def test_one_value_tells_nothing_of_its_spread():
    assert math.isnan(estimate_mean([3.0]).variance)
    assert (estimate_mean([1.0, 3.0]).mean, estimate_mean([1.0, 3.0]).variance) == (2, 1)


def test_verdicts():
    random = np.random.default_rng(1)
    slow, fast = runs(random, 5, 1.0, 0.01), runs(random, 5, 0.75, 0.01)
    found = compare_runs(slow, fast)
    assert found.is_different
    assert found.ratio == pytest.approx(0.75, rel=0.03)
    assert found.p_value < 0.02
    text = found.verdict("fp32", "fp16")
    assert text.startswith("fp16 is 1.3")
    assert "x faster than fp32 (95 % interval 1." in text
    assert text.endswith("5 + 5 runs).")
    assert "slower" in compare_runs(fast, slow).verdict("a", "b")
    assert compare_runs(*(RunSet(side.label, side.step_ps[:4]) for side in (slow, fast))).p_value == pytest.approx(0.03, abs=0.005)
    assert math.isnan(compare_runs(*(RunSet(side.label, side.step_ps[:3]) for side in (slow, fast))).p_value)  # nothing to rank
    assert compare_runs(RunSet("a", slow.step_ps[:1]), fast).verdict("a", "b").count("1 + 5 runs") == 1
    two_each = (RunSet(side.label, tuple(steps[:2] for steps in side.step_ps)) for side in (slow, fast))
    assert compare_runs(*two_each).runs == (5, 5)  # and of one step nobody knows how far steps are apart
    assert compare_runs(RunSet("a", tuple(steps[:1] for steps in slow.step_ps)), fast).runs == (0, 5)
    by_hand = estimate_step([np.exp([at] * 3) for at in (1.0, 2.0, 6.0)])
    assert (by_hand.mean, by_hand.variance) == (pytest.approx(3), pytest.approx(7 / 3))  # of three logarithms, 1, 2 and 6
    same = compare_runs(slow, runs(random, 5, 1.0, 0.01)).verdict("a", "b")
    assert same.startswith("These runs show no difference")
    nothing = compare_runs(RunSet("a", ()), slow)
    assert math.isnan(nothing.ratio)
    assert "cannot be compared" in nothing.verdict("a", "b")


def test_a_mean_that_stands_for_many_steps_is_one_measurement():
    """JAX's steps are measured some 32 at a time: the interval is that of the stretches, however many steps each has."""
    a, b = (np.random.default_rng(seed).normal(mean, 1, 9) * MS for seed, mean in ((1, 10), (2, 11)))
    together = compare_runs(*(RunSet("x", (np.repeat(means, 32),)) for means in (a, b)))
    each = compare_runs(*(RunSet("x", (means,)) for means in (a, b)))
    assert (together.low, together.high, together.p_value) == pytest.approx((each.low, each.high, each.p_value), nan_ok=True)
    assert together.steps == (288, 288) and together.high / together.low > 1.1


def test_the_same_runs_give_the_same_answer_and_huge_ones_are_quick():
    random = np.random.default_rng(2)
    big = RunSet("x", (random.normal(10, 1, 300_000) * MS,))
    assert compare_runs(big, big) == compare_runs(big, big)
    assert compare_runs(big, big).ratio == 1


def test_blocks_of_steps_where_the_count_is_no_multiple():
    """Of 32 steps 2 * 32 ** (1 / 3) = 6.3 neighbours stay together: five blocks of 6, the last two steps in none."""
    steps = np.arange(32.0)
    assert block_medians(steps).tolist() == [2.5, 8.5, 14.5, 20.5, 26.5]
    assert estimate_step([steps]).freedom == 4
    assert estimate_step([steps[:2]]).freedom == 1  # one block of two steps: no less than one
    assert estimate_step([steps, steps, steps]).freedom == 2  # of runs, whatever their length


def test_a_long_run_is_resampled_by_the_medians_of_neighbours():
    """2,000 steps are 1,000 pairs, 2,500 are 833 threes and one step that is left over."""
    pairs, threes = np.tile([10.0, 30.0], 1000), np.append(np.tile([1.0, 20.0, 99.0], 833), 1e9)
    random = np.random.default_rng(0)
    assert np.exp(_resampled_medians(pairs, random)) == pytest.approx(np.full(1000, 20.0))
    assert np.exp(_resampled_medians(threes, random)) == pytest.approx(np.full(1000, 20.0))
    short = np.exp(_resampled_medians(pairs[:1000], random))  # as it is: half of the steps are 10
    assert set(np.round(short)) <= {10.0, 20.0, 30.0}


def test_student_factors_fall_from_12_7_to_the_normal_distributions():
    factors = [student_factor([1.0], [freedom]) for freedom in range(1, 61)]
    assert factors == sorted(factors, reverse=True)
    steps = -np.diff(factors)
    assert (np.diff(steps[:29]) < 0.002).all()  # ever less, but for what rounding to three digits does
    assert (factors[0], factors[1], factors[9], factors[29]) == pytest.approx((12.71, 4.303, 2.228, 2.042))
    assert student_factor([1.0], [10**9]) == pytest.approx(1.96)
    assert student_factor([0.0, 0.0], [3, 3]) == 1.96
    assert student_factor([1.0, 1.0], [4, 4]) == pytest.approx(2.306)  # Welch: two alike sides have eight degrees


def test_student_factors_are_scipys():
    stats = pytest.importorskip("scipy.stats")
    for freedom in range(1, 31):
        assert student_factor([1.0], [freedom]) == pytest.approx(stats.t.ppf(0.975, freedom), abs=0.005)


def test_estimates_by_hand():
    """1, 2 and 6 ms: a mean of 3, a variance of 7 over three of them, two degrees of freedom."""
    found = estimate_mean([1.0, 2.0, 6.0])
    assert (found.mean, found.variance, found.freedom) == pytest.approx((3, 7 / 3, 2))
    assert found.interval == pytest.approx((3 - 4.303 * math.sqrt(7 / 3), 3 + 4.303 * math.sqrt(7 / 3)))
    once = estimate_mean([5.0])
    assert (once.mean, once.freedom, math.isnan(once.variance), math.isnan(estimate_mean([]).mean)) == (5.0, 1, True, True)
    assert estimate_mean([10.0, 10.0]).exceeds(estimate_mean([9.0, 9.0]))
    assert not estimate_mean([10.0, 10.0]).exceeds(estimate_mean([10.0, 10.0]))


def test_a_single_run_is_resampled_alike_each_time():
    steps = np.arange(1.0, 65.0)
    first, again = (estimate_step([steps]) for _ in range(2))
    assert first == again
    assert first.mean == pytest.approx(math.log(32.5))
    assert (first.variance > 0, first.freedom) == (True, 7)  # blocks of eight


def test_mann_whitney_against_known_answers():
    scipy = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(3)
    for first, second in [(random.normal(0, 1, 12), random.normal(0.8, 1, 15)), (np.arange(6.0), np.repeat(3.0, 5))]:
        expected = scipy.mannwhitneyu(first, second, method="asymptotic").pvalue
        assert mann_whitney(first, second) == pytest.approx(expected, rel=1e-6)
    assert mann_whitney(np.ones(4), np.ones(4)) == 1
    assert math.isnan(mann_whitney(np.empty(0), np.ones(3)))


def test_one_run_against_two_proves_nothing_and_is_no_certainty():
    """Of 3 orders the lowest one: U is 0 where 1 is expected, less 0.5 for continuity, over the root of 2/3."""
    assert mann_whitney(np.array([1.0]), np.array([2.0, 3.0])) == pytest.approx(math.erfc(0.5 / math.sqrt(2 / 3) / math.sqrt(2)))
    assert mann_whitney(np.array([1.0]), np.array([2.0])) == 1


def profile(kernel="gemm_a", matmul=4, relu=1, extra=None, gap=1, steps=12, batch=None):
    """Steps of a matmul and a relu on a GPU, launched by the host."""
    markers, ops, work = [], [], []
    at = 0
    for number in range(steps):
        more = {"batch_size": batch} if batch else {}
        markers.append(event("train", at, 8 * MS, step_num=number, _r=1, **more))
        ops.append(event("dense/MatMul:MatMul", at + MS // 2, MS // 2))
        work.append(event(kernel, at + MS, matmul * MS, correlation_id=3 * number, tf_op="dense/MatMul:MatMul"))
        work.append(event("relu_kernel", at + MS + matmul * MS, relu * MS, correlation_id=3 * number + 1, tf_op="dense/Relu:Relu"))
        if extra:
            work.append(event("cast_kernel", at + MS + (matmul + relu) * MS, extra * MS, correlation_id=3 * number + 2, tf_op="dense/Cast:Cast"))
        at += (8 + gap) * MS
    return Profile(read(host(line("python", *markers, *ops)), gpu(line("Stream #1", *work))))


def test_ops_and_categories_by_hand():
    one, two = profile(), profile(kernel="gemm_b", matmul=2, extra=1)
    ops = {(row.side, row.op_name): row for row in compare_ops(one.study, two.study)}
    matmul, relu, cast = (ops["device", f"dense/{name}"] for name in ("MatMul", "Relu", "Cast"))
    assert (matmul.first_ps, matmul.second_ps, matmul.difference_ps, matmul.status) == (4 * MS, 2 * MS, -2 * MS, "other kernel")
    assert (relu.difference_ps, relu.status) == (0, "changed")
    assert (math.isnan(cast.first_ps), cast.second_ps, cast.status) == (True, MS, "new")
    assert {row.status for row in compare_ops(two.study, one.study) if row.op_name == "dense/Cast"} == {"gone"}
    categories = {name: (first, second) for name, first, second in compare_categories(one.study, two.study)}
    assert categories["device compute"] == (5 * MS, 4 * MS)


def test_guards_are_said_before_the_verdict():
    one, two = profile(batch=32), profile(batch=64)
    guards = find_guards(one.study, two.study, ({"TensorFlow": "2.20.0"}, {"TensorFlow": "2.21.0"}))
    assert guards == ["TensorFlow differs: 2.20.0 and 2.21.0.", "Batch sizes differ (32 and 64), so the verdict compares time per example."]
    on_cpu = Study(read(host(line("python", *(event("train", n * MS, MS // 2, step_num=n, _r=1) for n in range(6))))))
    assert any("The devices differ" in guard for guard in find_guards(one.study, on_cpu, ({}, {})))
    sides = ([profile(batch=size) for _ in range(3)] for size in (32, 64))
    found = compare(*sides, labels=("small", "large"))
    assert found.ratio_per_example == pytest.approx(found.ratio / 2)
    assert found.verdict.startswith("large is 2.00x faster per example than small (95 % interval 2.00, 3 + 3 runs).")
    assert found.verdict.endswith("A step takes 1.00 times as long, with 2 times the examples.")
    assert (found.is_different, found.leading.is_different) == (False, True)
    text = found.summary()
    assert text.index("Caution: Batch sizes differ") > text.index("large is 2.00x faster per example")


def test_equal_batches_and_unknown_ones_are_compared_by_steps():
    one, two = profile(batch=32), profile(batch=32, gap=4)
    assert compare(one, two).leading is compare(one, two).leading or compare(one, two).leading.ratio == compare(one, two).ratio
    assert "per example" not in compare(one, two).verdict
    assert "per example" not in compare(profile(batch=32), profile()).verdict


def test_a_difference_of_steps_becomes_one_of_examples():
    found = compare_runs(RunSet("a", (np.full(50, 100.0),)), RunSet("b", (np.full(50, 228.0),)))
    each = found.times(0.25)
    assert (found.ratio, each.ratio) == (pytest.approx(2.28), pytest.approx(0.57))
    assert (each.low, each.high) == (pytest.approx(0.57), pytest.approx(0.57))
    assert each.verdict("a", "b", of="per example").startswith("b is 1.75x faster per example than a (95 % interval 1.75, ")
    nothing = compare_runs(RunSet("a", ()), RunSet("b", (np.ones(5),)))
    assert not nothing.times(0.5).is_different
    far = compare_runs(RunSet("a", (np.full(50, 3503.0),)), RunSet("b", (np.full(50, 100.0),)))
    assert far.verdict("a", "b").startswith("b is 35x faster than a (95 % interval 35, ")


@pytest.mark.parametrize("runs_ahead", [False, True])
def test_steps_that_only_hand_work_over_count_as_the_mean_of_those_around_them(runs_ahead):
    # Two epochs of 64 steps of a fit: seven in eight take 1 ms to hand over, the eighth waits 9 ms for all; 30 ms behind an epoch's end
    # are of it, and 5 s behind the fit are not.
    begin = np.cumsum([0.0, *([1] * 7 + [9]) * 8, *([1] * 7 + [9]) * 8])[:-1] * MS
    begin[64:] += 30 * MS
    times = StepTimes(
        begin.astype(np.int64), np.array(([1] * 7 + [9]) * 16, np.int64) * MS, np.zeros(128, bool), np.zeros(128, bool), ("train",) * 128,
        np.arange(128), np.zeros(128, np.int64), epoch=np.array([0] * 63 + [1] + [0] * 63 + [2]),
    )  # fmt: skip
    summary = SimpleNamespace(phase="train", iterations=1, counted=np.arange(0))
    study = SimpleNamespace(summary=summary, warmup_steps=0, program=ProgramKind(JAX if runs_ahead else UNKNOWN))
    found, was_traced = steady_step_times(study, times)
    assert not was_traced
    means = [2, 2, 2, 2 + 30 / 16, 2, 2, 2, 2] if runs_ahead else [1] * 8
    assert [float(np.median(found[at : at + 16])) for at in range(0, 128, 16)] == pytest.approx([mean * MS for mean in means])
    assert not runs_ahead or np.median(found) == 2 * MS


def test_a_run_whose_steps_nobody_timed_has_no_times():
    """Calls of an unmarked loop on JAX are told by the trace alone: ``--repeat 2`` with ``--vs`` raised."""
    none = np.zeros(0, np.int64)
    times = StepTimes(none, none, none.astype(bool), none.astype(bool), (), none, none)
    study = SimpleNamespace(summary=SimpleNamespace(phase="f", iterations=1), warmup_steps=0, program=ProgramKind(JAX))
    assert steady_step_times(study, times)[0].size == 0


def test_the_same_result_twice_is_one_run():
    one, two = profile(gap=1), profile(gap=4)
    found = compare([one, one, one], [two, two])
    assert found.difference.runs == (1, 1)
    assert found.guards[-1] == "The same result was given more than once and counts as one run."
    assert "can differ by 8 %. Repeat the runs" in found.verdict
    assert compare(one, one).guards[-1].startswith("The same result was given")
    assert not any("more than once" in guard for guard in compare(one, two).guards)


def saved(path, begin_ns, hostname="one", gap=1):
    """A trace file whose profiler started at a nanosecond since 1970."""
    steps = [event("train", at * (8 + gap) * MS, 8 * MS, step_num=at, _r=1) for at in range(6)]
    stats = {"profile_start_time": begin_ns, "profile_stop_time": begin_ns + 10**9}
    path.write_bytes(xspace(host(line("python", *steps)), plane("Task Environment", stats=stats), hostnames=[hostname]))
    return path


def test_the_same_path_twice_is_one_run(tmp_path):
    one, two = saved(tmp_path / "a.xplane.pb", 0), saved(tmp_path / "b.xplane.pb", 0, gap=4)
    link = tmp_path / "link.xplane.pb"
    link.symlink_to(one)
    found = compare([one, str(one), link], two)
    assert found.difference.runs == (1, 1)
    assert found.guards[-1] == "The same result was given more than once and counts as one run."
    assert compare(one, one).guards[-1].startswith("The same result was given")
    assert not any("more than once" in guard for guard in compare(one, two).guards)


def test_the_same_capture_under_another_name_is_one_run(tmp_path):
    start = 1_700_000_000_000_000_000
    one, copy = (saved(tmp_path / f"{name}.xplane.pb", start) for name in ("a", "copy"))
    later = saved(tmp_path / "later.xplane.pb", start + 5 * 10**9)
    other_host = saved(tmp_path / "other.xplane.pb", start, hostname="two")
    loaded = profnb.load(one)
    assert compare([loaded, copy], later).difference.runs == (1, 1)
    assert any("more than once" in guard for guard in compare(loaded, copy).guards)
    assert compare([loaded, later], copy).difference.runs == (2, 1)
    assert not any("more than once" in guard for guard in compare(loaded, other_host).guards)


def test_in_ci_a_larger_batch_that_is_faster_per_example_is_no_failure(monkeypatch, capsys):
    import profnb.comparison
    from profnb.__main__ import main

    sizes, runs = {"small": 32, "large": 64, "slow": 16}, 3
    monkeypatch.setattr(profnb.comparison, "_load_runs", lambda path, _: [profile(batch=sizes[path]) for _ in range(runs)])
    assert main(["compare", "small", "large", "--fail-if-slower", "5%"]) == 0
    assert main(["compare", "small", "slow", "--fail-if-slower", "5%"]) == 1
    capsys.readouterr()
    runs = 1
    assert main(["compare", "small", "slow", "--fail-if-slower", "5%"]) == 0
    assert "One run a side proves nothing" in capsys.readouterr().out


def test_guards_on_how_much_was_run():
    one, two = profile(steps=12), profile(steps=9)
    one.recording, two.recording = (Recording(cardinalities={"train": count, "test": 5}) for count in (100, 50))
    guards = find_guards(one.study, two.study, ({}, {}))
    assert guards == ["The two sides ran 12 and 9 train steps.", "The dataset train has 100 elements in A and 50 in B."]


def test_a_comparison_of_profiles_and_of_lists_of_them():
    one, two = profile(gap=1), profile(gap=4)
    found = compare(one, two, labels=("before", "after"))
    assert found.ratio == pytest.approx(12 / 9)  # from step to step: the gap counts
    assert found.verdict.startswith("One run each is no proof: after takes 1.33 times as long as before (95 % interval 1.24 to 1.44, 12 + 12 steps)")
    assert not found.is_different
    assert all("One run each" in text for text in (found.summary(), found.to_markdown(), found._repr_mimebundle_()["text/html"]))
    assert found.table.difference_us.abs().is_monotonic_decreasing
    assert set(found.categories.columns) == {"category", "first_ms", "second_ms", "difference_ms"}
    several = compare([profile(gap=1) for _ in range(3)], [profile(gap=4) for _ in range(3)])
    assert several.difference.runs == (3, 3)
    assert several.is_different
    assert several.verdict.startswith("B is 1.33x slower than A")
    with pytest.raises(profnb.CaptureError):
        Comparison([Profile()], [one], ("a", "b"))


def test_boxes_can_be_read_beside_steps_that_lie_far_out():
    """One step of 600 ms among hundreds of 2 ms would make a dot of each box."""
    usual = np.linspace(1.5, 2.5, 200) * MS
    stalled = np.append(usual, 600 * MS)
    (figure,) = box_figures((RunSet("before", (stalled,)), RunSet("after", (usual,)))).values()
    assert figure["layout"]["xaxis"]["range"][1] < 5
    assert figure["layout"]["yaxis"]["ticktext"] == ["before (to 600 ms →)", "after"]
    assert max(value for trace in figure["data"] for value in trace["x"]) <= figure["layout"]["xaxis"]["range"][1]
    (figure,) = box_figures((RunSet("before", (np.append(usual, 4 * MS),)), RunSet("after", (usual,)))).values()
    assert figure["layout"]["xaxis"]["range"][1] > 4
    assert figure["layout"]["yaxis"]["ticktext"] == ["before", "after"]


def test_it_is_shown_as_escaped_tables_and_a_valid_figure():
    go = pytest.importorskip("plotly.graph_objects")
    evil = "<script>alert(1)</script>"
    found = compare(profile(kernel=evil), profile(kernel=evil, matmul=2), labels=(evil, "b"))
    bundle = found._repr_mimebundle_()
    assert sorted(bundle) == ["text/html", "text/plain"]
    assert "<script>" not in bundle["text/html"]
    assert "<script>" not in json.dumps(found._view.figures())
    assert len(found.figures) == 1
    assert all(isinstance(figure, go.Figure) for figure in found.figures.values())
    assert "Ops that account for it" in bundle["text/html"]
    assert bundle["text/html"].count("data-figure=") == 1


def test_saved_logdirs_and_the_command_line(tmp_path, capsys):
    one, two = profile(gap=1), profile(gap=4)
    for name, kept in (("a", one), ("b", two)):
        for _ in range(3):
            kept.save(tmp_path / name)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.labels == ("a", "b")
    assert found.difference.runs == (3, 3)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "slower than" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--fail-if-slower", "5%"]) == 1
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--fail-if-slower", "50%"]) == 0
    assert main(["compare", str(tmp_path / "b"), str(tmp_path / "a"), "--fail-if-slower", "5%"]) == 0
    assert main(["compare", str(tmp_path / "nothing"), str(tmp_path / "b")]) == 1


def test_the_magic(tmp_path):
    shell_module = pytest.importorskip("IPython.core.interactiveshell")
    shell = shell_module.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "profnb")
    shell.user_ns.update(one=profile(gap=1), two=[profile(gap=4), profile(gap=4)])
    shell.run_line_magic("tfcompare", "one two -q -o found")
    found = shell.user_ns["found"]
    assert found.labels == ("one", "two")
    assert found.difference.runs == (1, 2)


# Real code, as it was recorded (tests/data/record_programs.py), in pairs taken in turn.


def pairs(first, second, turns):
    return [program(f"{first}-{turn}") for turn in range(turns)], [program(f"{second}-{turn}") for turn in range(turns)]


def test_real_code_that_does_twice_the_work_takes_twice_the_time():
    found = compare(*pairs("once", "twice", 3), labels=("once", "twice"))
    assert not found.first[0].steady_step_times[0][1]  # untraced steps are what is compared
    assert found.ratio == pytest.approx(2, rel=0.35)
    assert found.is_different
    assert found.guards == []


def test_real_runs_of_the_same_show_no_difference():
    one = [program(f"once-{turn}") for turn in range(3)]
    found = compare(one, one[::-1])
    assert not found.is_different
    assert found.verdict.startswith("These runs show no difference")


def test_a_sleep_in_the_input_is_found_with_its_size_and_its_place():
    found = compare(*pairs("short-sleep", "long-sleep", 3), labels=("short", "long"))
    added = np.median(found.runs[1].medians) - np.median(found.runs[0].medians)
    assert added == pytest.approx(FACTS["sleep-in-the-input"]["added_s"] * 1e12, rel=0.25)
    assert found.is_different
    assert found.ratio > 1
    culprit = found.table.iloc[0]
    assert culprit.side == "input"
    assert "FlatMap" in culprit.op_name or "Generator" in culprit.op_name
    assert found.categories.category[0] in ("input", "between steps")


def test_an_extra_layer_is_found_by_name():
    found = compare(*pairs("without-extra", "with-extra", 3))
    assert found.is_different
    assert found.ratio > 1.2
    table = found.table
    assert "extra" in table.op_name[0]
    assert table.status[0] == "new"
    whole = found.categories.set_index("category").difference_ms
    named = table[table.op_name.str.contains("extra")].difference_us.sum() / 1e3
    assert whole.idxmax() == "host compute"
    assert named > 0.4 * whole["host compute"]


@pytest.mark.tensorflow
def test_code_that_runs_here_is_compared_by_its_untraced_steps_and_its_ops():
    tf = pytest.importorskip("tensorflow")
    x = tf.ones((16, 16))

    def run(work):
        step = tf.function(work)
        step(x)
        with profnb.profile(max_steps=5, max_seconds=300) as p:
            for number in range(20):
                with profnb.step(number):
                    step(x).numpy()
        return p

    one, two = ([run(work) for _ in range(2)] for work in (lambda x: tf.reduce_sum(tf.matmul(x, x)), lambda x: tf.reduce_sum(tf.tanh(tf.matmul(x, x)))))
    found = compare(one, two)
    assert [len(own) for own in found.runs[0].step_ps] == [15, 15]
    assert found.guards == []
    assert set(found.table[found.table.status == "new"].op_name) == {"Tanh"}


def test_one_run_a_side_is_held_against_how_runs_vary():
    """Steps of one run hardly vary here; runs do, by what the history knows or by 3 %."""
    one, two = (RunSet(name, (ms * np.random.default_rng(0).normal(1, 0.001, 100),)) for name, ms in (("a", 1.0), ("b", 1.05)))
    assert compare_runs(one, two).is_different  # where only the steps are asked
    unknown = compare_runs(one, two, spreads=(UNKNOWN_SPREAD, UNKNOWN_SPREAD))
    assert unknown.verdict("a", "b") == (
        "One run each is no proof: b takes 1.05 times as long as a (95 % interval 0.97 to 1.13, 100 + 100 steps). "
        "Even on an idle machine two runs of the same code can differ by 8 %. Repeat the runs (in a notebook: --repeat 5)."
    )
    assert not compare_runs(one, RunSet("c", (3 * two.step_ps[0],)), spreads=(UNKNOWN_SPREAD, UNKNOWN_SPREAD)).is_different  # nobody knows
    three = RunSet("b", tuple(two.step_ps[0] * by for by in (0.99, 1.0, 1.01)))
    by_the_other = compare_runs(one, three, spreads=(UNKNOWN_SPREAD, UNKNOWN_SPREAD))
    assert by_the_other.is_different is False  # one run against three that vary by 1 %: 5 % are four of their deviations
    assert by_the_other.verdict("a", "b").endswith("Runs of the other side vary by 1.0 %.")
    assert compare_runs(one, RunSet("c", tuple(2 * steps for steps in three.step_ps)), spreads=(UNKNOWN_SPREAD, UNKNOWN_SPREAD)).is_different
    pair = [RunSet(side.label, side.step_ps[:2]) for side in (three, RunSet("c", tuple(2 * steps for steps in three.step_ps)))]
    assert compare_runs(*pair, spreads=(UNKNOWN_SPREAD, UNKNOWN_SPREAD)) == compare_runs(*pair)  # two a side tell it, too
    calm, wild = Spread(0.01**2, 20, THIS_CODE), Spread(0.1**2, 5, OTHER_CODE)
    assert compare_runs(one, two, spreads=(calm, calm)).is_different
    assert compare_runs(one, two, spreads=(calm, calm)).verdict("a", "b").endswith("Past runs of this code vary by 1.0 %.")
    assert not compare_runs(one, two, spreads=(calm, wild)).is_different
    assert "other code on this machine vary by 10" in compare_runs(one, two, spreads=(calm, wild)).verdict("a", "b")
    many = [RunSet("a", one.step_ps * 3), RunSet("b", two.step_ps * 3)]
    assert compare_runs(*many, spreads=(wild, wild)) == compare_runs(*many)  # three runs a side tell it themselves


@pytest.mark.slow
@pytest.mark.parametrize("past, count", [(3, 1), (10, 1), (10, 2)])
def test_intervals_with_past_runs_hold_the_truth(past, count):
    random, held, trials = np.random.default_rng(1), 0, 400
    for trial in range(trials):
        level = np.exp(random.normal(0, 0.04, past))
        spread = Spread(float(np.log(level).var(ddof=1)), past - 1, THIS_CODE)
        sides = [RunSet("x", tuple(2 * np.exp(random.normal(0, 0.04)) * random.normal(1, 0.02, 50) for _ in range(count))) for _ in range(2)]
        difference = compare_runs(*sides, trial, (spread, spread))
        held += difference.low <= 1 <= difference.high
    assert 0.92 * trials <= held <= 0.985 * trials
