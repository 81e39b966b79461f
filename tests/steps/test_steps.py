import lzma

import numpy as np
import pytest
from conftest import DATA
from advised import advised
from traces import event, gpu, host, line, plane, read, ref

import profnb
from profnb.capture.recording import Recording
from profnb.report.notes import notes_of
from profnb.report.build import build_report
from profnb.report.text import headline_text
from profnb.steps.streams import covered_ps
from profnb.steps.finding.calls import find_phases, find_sequence, pick_cycle
from profnb.steps.finding.sources import _kinds_of_runs, find_steps
from profnb.steps.windows import WINDOW, outermost
from profnb.subjects.study import Study

MS = 10**9


def marker(begin, end, number, name="train", **stats):
    return event(name, begin, end - begin, _r=1, step_num=number, **stats)


def numbers(steps):
    return list(zip(steps.step_num.tolist(), steps.begin_ps.tolist(), steps.end_ps.tolist(), strict=True))


def test_markers_are_steps_with_the_gap_to_the_next():
    steps = find_steps(read(host(line("python", marker(10, 20, 7), marker(25, 40, 8)))))
    assert numbers(steps) == [(7, 10, 20), (8, 25, 40)]
    assert steps.gap_ps.tolist() == [5, -1]
    assert steps.duration_ps.sum() + steps.gap_ps[:-1].sum() == 30  # the wall time of the window


def test_a_marker_needs_no_root_level_if_it_has_a_step_number():
    """Keras 3's TensorBoard callback writes "Profiled batch" without _r."""
    trace = read(host(line("python", event("Profiled batch", 0, 5, step_num=3))))
    assert find_steps(trace).step_num.tolist() == [3]


def test_implicit_roots_and_abandoned_batches_are_no_steps():
    trace = read(
        host(
            line(
                "python",
                event("FunctionRun", 0, 5, _r=1),
                marker(10, 20, 0, profnb_marker=ref("keras")),
                marker(30, 40, 1, profnb_marker=ref("keras"), profnb_abandoned=1),
            )
        )
    )
    assert numbers(find_steps(trace)) == [(0, 10, 20)]


def test_a_marker_inside_a_marker_is_part_of_the_outer_step():
    trace = read(host(line("python", marker(0, 50, 0), marker(10, 20, 0, "train_function"), marker(60, 70, 1))))
    assert numbers(find_steps(trace)) == [(0, 0, 50), (1, 60, 70)]


def test_training_and_evaluation_steps_are_told_apart():
    trace = read(
        host(
            line(
                "python",
                marker(0, 10, 0), marker(12, 20, 1), marker(30, 34, 2, "test"), marker(40, 50, 3),
            )
        )
    )  # fmt: skip
    steps = find_steps(trace)
    assert steps.phase == ("train", "train", "test", "train")
    assert steps.main_phase == "train"
    assert steps.rows_of("test").tolist() == [2]


def test_keras_2_calls_its_phase_graph_type():
    trace = read(host(line("python", event("TraceContext", 0, 5, _r=1, graph_type="train", step_num=0))))
    assert find_steps(trace).phase == ("train",)


def test_steps_per_execution_is_read_from_the_marker():
    trace = read(host(line("python", marker(0, 5, 0, profnb_iterations=4), marker(5, 9, 1))))
    assert find_steps(trace).iterations.tolist() == [4, 1]


@pytest.fixture(scope="module")
def keras_on_jax(tmp_path_factory):
    """A recorded `fit` of 64 batches, Keras 3 on JAX on a CPU (tests/data/record_keras_on_jax.py)."""
    path = tmp_path_factory.mktemp("jax") / "host.xplane.pb"
    path.write_bytes(lzma.decompress((DATA / "keras-on-jax.xplane.pb.xz").read_bytes()))
    return profnb.load(path)


def test_keras_on_jax_steps_are_the_calls_that_train_and_not_their_neighbours(keras_on_jax):
    trace = keras_on_jax.trace
    calls = {}
    for name in (trace.names[row] for row in trace.events.name):
        calls[name] = calls.get(name, 0) + 1
    # Each call is recorded twice, one inside the other.
    assert (calls["PjitFunction(train_step)"], calls["PjitFunction(equal)"]) == (128, 4)
    assert keras_on_jax.steps.phase.tolist() == ["train_step"] * 64
    assert keras_on_jax.study.program.framework == "JAX"


def test_keras_on_jax_computes_after_its_calls_returned_and_that_is_host_compute(keras_on_jax):
    """The programs run on other threads for 43 % of the time, nearly all of it after the call that asked for them."""
    trace, steps = keras_on_jax.trace, keras_on_jax.study.steps
    programs = trace.stats.texts("hlo_module").events
    window = int(steps.begin_ps[0]), int(steps.end_ps[-1])
    running = covered_ps(np.clip(trace.events.begin_ps[programs], *window), np.clip(trace.events.end_ps[programs], *window))
    share = running / (window[1] - window[0])
    shares = {share.category: share.fraction for share in keras_on_jax.study.summary.shares}
    assert 0.3 < share <= shares["host compute"]
    assert steps.steps_ahead > 0
    assert keras_on_jax.advice == []  # the programs have calls to go on with, so they wait for no Python


def call(begin, end, name="train_step", kind="notTraced-nonXla"):
    return event(name, begin, end - begin, tf_function_call=ref(kind))


def test_repeated_calls_of_a_function_are_steps_when_there_is_no_marker():
    trace = read(host(line("python", call(0, 9, "setup"), call(10, 20), call(30, 40), call(50, 60))))
    steps = find_steps(trace)
    assert numbers(steps) == [(0, 10, 20), (1, 30, 40), (2, 50, 60)]
    assert steps.origin == "repeated calls of train_step"


def test_a_function_called_inside_another_is_not_a_step_of_its_own():
    trace = read(host(line("python", call(0, 20), call(5, 8, "inner"), call(30, 50), call(35, 38, "inner"))))
    assert set(find_steps(trace).phase) == {"train_step"}


def test_functions_that_alternate_form_one_step_together():
    trace = read(
        host(
            line(
                "python",
                call(0, 10, "d"), call(12, 40, "g"), call(50, 60, "d"), call(62, 90, "g"),
                call(91, 92, "log_images"),
            )
        )
    )  # fmt: skip
    steps = find_steps(trace)
    assert numbers(steps) == [(0, 0, 40), (1, 50, 90)]
    assert steps.origin == "repeated calls of d + g"
    study = Study(trace)
    assert headline_text(study).startswith("2 d + g steps, ")
    assert study.scope == "2 d + g steps"


def loop_of(*names):
    """Calls of 10 ps, one every 12."""
    return [call(at * 12, at * 12 + 10, name) for at, name in enumerate(names)]


def counts(steps):
    return {phase: steps.phase.count(phase) for phase in dict.fromkeys(steps.phase)}


def test_every_repeated_outermost_function_is_a_phase_of_its_own():
    names = (["train_step"] * 8 + ["test_step"] * 16) * 2
    steps = find_steps(read(host(line("python", *loop_of("setup", *names)))))
    assert counts(steps) == {"train_step": 16, "test_step": 32}
    assert (np.diff(steps.begin_ps) >= 12).all()
    assert steps.origin == "repeated calls of train_step, test_step"
    assert steps.together == ()


def test_training_is_the_main_phase_although_testing_takes_longer():
    names = (["distributed_train"] * 4 + ["check"] * 9) * 2
    steps = find_steps(read(host(line("python", *loop_of(*names)))))
    assert steps.main_phase == "distributed_train"
    assert find_steps(read(host(line("python", *loop_of(*(["constrain"] * 4 + ["check"] * 9)))))).main_phase == "check"


def test_steps_that_are_called_train_are_the_main_phase_whatever_else_trains_longer():
    """The name that Keras and our own markers give, beside a marker of the user's own."""
    marked = [event(name, begin, size, step_num=at, _r=1) for at, (name, begin, size) in enumerate((("pretrain", 0, 50), ("train head", 50, 40), ("train", 90, 1)))]
    assert find_steps(read(host(line("python", *marked)))).main_phase == "train"
    assert find_steps(read(host(line("python", *marked[:2])))).main_phase == "train head"


def test_a_function_that_runs_in_every_tenth_iteration_is_a_phase_and_no_part_of_the_others():
    names = [name for at in range(40) for name in (["train_step", "write_summary"] if at % 10 == 9 else ["train_step"])]
    steps = find_steps(read(host(line("python", *loop_of(*names)))))
    assert counts(steps) == {"train_step": 40, "write_summary": 4}


def test_calls_that_only_partly_overlap_are_outermost_where_the_one_before_has_ended():
    """What no thread does, but a damaged clock: of 0-10, 5-15, 10-20 and 12-14 the second begins inside the first."""
    trace = read(host(line("python", *(event("f", begin, end - begin) for begin, end in ((0, 10), (5, 15), (10, 20), (12, 14))))))
    assert outermost(trace, np.arange(4)).tolist() == [0, 2]
    assert outermost(trace, np.arange(0)).size == 0


def test_functions_called_once_are_no_phases_and_a_turn_is_not_torn_apart():
    """d and g alternate; log runs twice, between a d and its g, and belongs to those turns."""
    names = ["build", "d", "g", "d", "log", "g", "d", "g", "d", "log", "g", "d", "g", "export"]
    steps = find_steps(read(host(line("python", *loop_of(*names)))))
    assert counts(steps) == {"d": 5} or counts(steps) == {"g": 5}
    assert (steps.begin_ps[1:] >= steps.end_ps[:-1]).all()


def test_jax_calls_are_found_by_their_name():
    trace = read(host(line("python", event("PjitFunction(f)", 0, 4), event("PjitFunction(f)", 6, 4))))
    assert len(find_steps(trace)) == 2


def test_the_devices_steps_line_is_used_without_host_markers():
    trace = read(gpu(line("Steps", event("5", 0, 10), event("6", 12, 10)), line("Stream #1", event("k", 1, 2))))
    steps = find_steps(trace)
    assert numbers(steps) == [(5, 0, 10), (6, 12, 22)]
    assert "Steps line" in steps.origin


def test_without_any_step_the_capture_is_one_window():
    steps = find_steps(read(host(line("python", event("a", 3, 4), event("b", 9, 1)))))
    assert steps.is_window
    assert (steps.phase, steps.begin_ps.tolist(), steps.end_ps.tolist()) == ((WINDOW,), [3], [10])


def test_without_events_there_is_no_row():
    steps = find_steps(read(host()))
    assert len(steps) == 0
    assert steps.main_phase is None


def test_steps_in_which_a_function_was_traced_or_compiled_are_warm_up():
    trace = read(
        host(
            line(
                "python",
                marker(0, 100, 0), call(5, 90, kind="traced-nonXla"),
                marker(110, 150, 1), event("XlaCompile:#x#", 115, 10),
                marker(160, 170, 2), call(161, 169), marker(180, 190, 3),
            )
        )
    )  # fmt: skip
    assert find_steps(trace).is_warmup.tolist() == [True, True, False, False]
    assert find_steps(trace, warmup_steps=3).is_warmup.tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("codes", "durations", "roots", "turns"),
    [
        ([], [], [], [0]),
        ([0], [5], [], [0]),
        ([0, 0], [0, 0], [0, 1], [0, 1, 2]),
        ([0, 1, 1], [99, 5, 5], [1, 2], [0, 1, 2]),
        ([0, 1, 0, 1, 0, 1, 0], [1, 9, 1, 9, 1, 9, 1], [0, 1, 2, 3, 4, 5], [0, 2, 4, 6]),
    ],
)
def test_a_cycle_begins_with_whichever_member_came_first(codes, durations, roots, turns):
    found, first_root, _ = pick_cycle(np.array(codes, np.int64), np.array(durations, np.int64))
    assert (found.tolist(), first_root.tolist()) == (roots, turns)


def test_a_turn_that_holds_calls_of_a_larger_cycle_is_none_of_its_own():
    """C, A, A, D and again: A takes the time and is a turn each time; C and D alternate, with two turns of A between them."""
    codes, at = np.array([2, 0, 0, 3] * 4), np.arange(16) * 100
    turns = find_phases(codes, at, at + np.where(codes == 0, 90, 10))
    assert turns.roots.tolist() == [1, 2, 5, 6, 9, 10, 13, 14]
    apart = np.array([2, 3] * 4 + [0] * 8)
    turns = find_phases(apart, at, at + np.where(apart == 0, 90, 10))
    assert turns.first_root.tolist() == [0, 2, 4, 6, 8, *range(9, 17)]


def test_markers_on_two_threads_at_once_leave_the_busier_thread():
    trace = read(host(line("a", marker(0, 10, 0)), line("b", marker(1, 50, 1), marker(60, 90, 2))))
    assert find_steps(trace).step_num.tolist() == [1, 2]


def test_a_plane_of_another_kind_has_no_markers():
    trace = read(plane("/host:python-tracer", line("x", marker(0, 5, 0))))
    assert find_steps(trace).is_window


def test_a_step_number_too_long_to_be_one_is_replaced_by_the_order():
    trace = read(gpu(line("Steps", event("9" * 30, 0, 10), event("7", 20, 5))))
    assert find_steps(trace).step_num.tolist() == [0, 7]


def test_loops_one_after_the_other_are_not_one_cycle():
    codes = np.array(([0] * 10 + [1] * 10) * 2)
    found, first_root, anchor = pick_cycle(codes, np.where(codes == 0, 9, 1))
    assert anchor == 0
    assert (codes[found] == 0).all()
    assert first_root.size == 21


@pytest.mark.parametrize(
    ("turns", "alternates"),
    [([[0, 1]] * 9 + [[0]], True), ([[0, 1]] * 8 + [[0, 1, 1], [0]], False)],
    ids=["nine of ten", "eight of ten"],
)
def test_a_function_is_part_of_the_cycle_if_nine_of_ten_turns_call_it_once(turns, alternates):
    """A tenth turn ends where the eleventh call of 0 begins."""
    codes = np.array([code for turn in [*turns, [0, 1]] for code in turn])
    roots, _, anchor = pick_cycle(codes, np.where(codes == 0, 9, 1))
    assert anchor == 0
    assert (1 in codes[roots]) is alternates


def test_a_function_that_the_last_turns_do_not_call_is_missing_there():
    """Nine turns between ten calls of 0; 1 was called before the first and in eight of them, which is less than nine of ten."""
    codes = np.array([1, *[0, 1] * 8, 0, 0])
    roots, _, anchor = pick_cycle(codes, np.where(codes == 0, 9, 1))
    assert (anchor, set(codes[roots].tolist())) == (0, {0})


def test_session_runs_of_a_timeline_are_steps_each_begun_by_its_first_node():
    """Two runs of one program, and one of another between them; the last event of the first runs on into the second."""
    first = "_SOURCE:NoOp"
    trace = read(
        host(line("w",
            event("before", 0, 5), event(first, 10, 1), event("a:MatMul", 12, 95),
            event(first, 100, 1), event("b:Save", 105, 20), event(first, 200, 1), event("a:MatMul", 202, 8)))
    )  # fmt: skip
    steps = find_steps(trace)
    assert numbers(steps) == [(0, 10, 100), (1, 100, 125), (2, 200, 210)]
    assert steps.phase == ("session_run", "session_run (2)", "session_run")
    assert (steps.roots.tolist(), steps.first_root.tolist(), steps.iterations.tolist()) == ([], [0] * 4, [1] * 3)
    assert steps.origin.startswith("session runs")


def jax_calls(*calls, **modules):
    """Calls of JAX's functions (name, begin, duration) on one thread, and what their programs took on another."""
    work = [event("fusion", 1000 * at, size, hlo_module=f"jit_{name}") for at, (name, size) in enumerate(modules.items())]
    made = [event(f"PjitFunction({name})", begin, size) for name, begin, size in calls]
    return find_steps(read(host(line("python", *made), line("tf_XLAPjRtCpuClient", *work, line_id=2))))


def test_the_call_whose_program_takes_the_time_divides_and_not_the_one_that_waits_for_it():
    calls = [("train_step", at * 100, 5) for at in range(16)] + [("equal", at * 100 + 10, 80) for at in (3, 7, 11, 15)]
    calls.sort(key=lambda call: call[1])
    steps = jax_calls(*calls, train_step=640, equal=4)
    assert len(steps) == 16
    assert steps.origin == "repeated calls of train_step"
    assert len(jax_calls(*calls)) == 4  # nothing says what the programs took: the calls' time has to do
    logged = jax_calls(*calls, train_step=640, equal=220)  # less than three quarters: four steps and a log repeat
    assert (len(logged), logged.origin) == (4, "a sequence of 5 calls that repeats")


def test_the_program_of_a_lambda_is_found_by_the_name_that_xla_gives_it():
    calls = [("convert_element_type", at, 1) for at in range(4)] + [("<lambda>", 10 + at * 100, 1) for at in range(9)]
    steps = jax_calls(*calls, _lambda=640, convert_element_type=4)
    assert (len(steps), steps.origin) == (9, "repeated calls of <lambda>")


def test_a_sequence_of_calls_that_repeats_is_one_step():
    """Eager JAX: matmul, add, matmul, tanh, three times over; no one of them is a step."""
    names = ["matmul", "add", "matmul", "tanh"] * 3
    steps = jax_calls(*((name, at * 10, 8) for at, name in enumerate(names)), matmul=90, add=50)
    assert len(steps) == 3
    assert steps.duration_ps.tolist() == [38, 38, 38]
    assert steps.phase == ("step",) * 3
    assert steps.origin == "a sequence of 4 calls that repeats"
    cut = jax_calls(*((name, at * 10, 8) for at, name in enumerate(names[:-1])))
    assert len(cut) == 2  # the last turn is cut off


@pytest.mark.parametrize(("codes", "length"), [([], 0), ([0], 0), ([0, 0], 1), ([0, 1, 0], 0), ([0, 1, 0, 1], 2), ([0, 1, 0, 1, 0], 2), ([0, 1, 1, 0, 1, 0], 0)])
def test_the_shortest_sequence_that_repeats(codes, length):
    assert find_sequence(np.array(codes, np.int64)) == ((0, len(codes), length) if length else (0, 0, 0))


@pytest.mark.parametrize(("before", "turn", "count", "after", "expected"), [
    ([7, 8, 9], [0, 1, 2, 3, 4, 5], 10, [6], (3, 63, 6)),
    ([7, 8, 9], [0, 1, 2, 3, 4, 5], 10, [0, 1, 2, 6], (3, 66, 6)),  # the last turn is cut off
    ([5], [0, 1, 2, 3, 4, 5], 10, [], (0, 61, 6)),  # what came before could be of a turn
    ([], [0, 1, 2, 3, 4, 5], 10, [6], (0, 60, 6)),
    ([7] * 20, [0, 1, 2, 3, 4, 5], 10, [], (0, 0, 0)),  # a quarter is something else
    ([7], [0, 1, 2, 3, 4, 5, 6, 8, 9, 10], 2, [], (0, 0, 0)),  # twice may be chance
    ([7], [0] * 5 + [1], 30, [], (1, 181, 6)),
])  # fmt: skip
def test_a_sequence_may_have_other_calls_before_it_and_behind_it(before, turn, count, after, expected):
    assert find_sequence(np.array([*before, *turn * count, *after], np.int64)) == expected


def test_a_turn_begins_behind_the_longest_pause_where_what_came_before_ends_like_one():
    """matmul, add, subtract, 2 apart, and 30 of Python behind each turn; before the loop, normal and subtract."""
    calls, at = [("normal", 0, 8), ("subtract", 10, 8)], 50
    for _ in range(12):
        for name in ("matmul", "add", "subtract"):
            calls.append((name, at, 8))
            at += 10
        at += 28
    steps = jax_calls(*calls, matmul=90, add=50, subtract=50)
    assert steps.begin_ps.tolist()[:3] == [50, 108, 166]
    assert (len(steps), set(steps.duration_ps.tolist())) == (12, {28})


def test_weights_that_are_made_before_an_eager_loop_on_jax_are_no_part_of_its_steps():
    names = ["normal", "zeros_like", *["loss_and_grad", "multiply", "multiply", "add"] * 10, "mean"]
    steps = jax_calls(*((name, at * 10, 8) for at, name in enumerate(names)), multiply=90, add=50, loss_and_grad=30)
    assert (len(steps), steps.origin) == (10, "a sequence of 4 calls that repeats")
    assert steps.begin_ps.tolist()[:2] == [20, 60]


def test_runs_of_a_graph_that_grows_are_one_phase_and_others_keep_their_programs():
    grown = ("session_run", *(f"session_run ({at})" for at in range(2, 41)))
    assert _kinds_of_runs(grown) == ("session_run",) * 40
    assert _kinds_of_runs(grown[:9]) == grown[:9]  # a few runs of different things
    two = ("session_run", "session_run (2)") * 20
    assert _kinds_of_runs(two) == two
    training = (*grown[1:], *("session_run",) * 10)
    assert _kinds_of_runs(training) == training
    functions = tuple(f"f{at}" for at in range(20))
    assert _kinds_of_runs(functions) == functions


def test_a_graph_that_grows_is_the_headline():
    made = [event("session_run" + (f" ({at})" if at else ""), at * 100, 80, step_num=at, _r=1) for at in range(40)]
    trace = read(host(line("python", *made)))
    grows = Study(trace, recording=Recording(graph_versions=list(range(7, 207, 5))))
    assert counts(grows.steps) == {"session_run": 40}
    report = build_report(grows, title="t", notes=notes_of(grows), overhead_ps=None)
    assert report.alarm.startswith("The graph grows in the loop: 39 of 40 session runs found new ops.")
    assert report.headline.startswith("40 session_run steps, median ")
    assert not any("also recorded" in note for note in report.notes)
    apart = Study(read(host(line("python", *(event("session_run", at * 40 * 10**9, 10**9, step_num=at, _r=1) for at in range(40))))), recording=grows.recording)
    assert build_report(apart, title="t", notes=(), overhead_ps=None).answer.endswith("% (ops are made, and the session reads the graph).")
    assert "python-between-steps" not in advised(apart)
    apart.recording.graph_versions[:] = [7] * 40
    assert "python-between-steps" in advised(Study(apart.trace, recording=apart.recording))
    assert not build_report(Study(trace, recording=Recording(graph_versions=[7] * 40)), title="t", notes=(), overhead_ps=None).alarm
