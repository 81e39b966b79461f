"""The diagnosis benchmark, program by program: as they were recorded, and what of a run today no clock can change.

``python tests/advice/diagnosis.py`` runs them, prints what is said, and the score by rule.
"""

import gc
from dataclasses import replace

import diagnosis_kit
import pytest
from advised import proposed
from diagnosis import BY_BACKEND, FOLDER, LEAST_RIGHT, MISSES, MOST_WRONG, PROGRAMS, kept_profile, score
from diagnosis_kit import Program, begin, check_run, diagnose, judge

from profnb.capture.parts.part_records import FIRST, PREDICT
from profnb.subjects.study import Study

# Those that take the processor longest, from four seconds on.
LONG = {
    "fit_from_a_generator_dataset", "a_model_called_in_a_loop", "validation_that_is_larger_than_training", "fit_of_an_lstm_on_a_cpu",
    "fit_that_runs_eagerly", "a_large_optimizer", "a_python_number_in_each_call", "steps_that_slow_down_bit_by_bit",
    "a_second_fit_of_larger_batches", "many_epochs_of_few_steps", "predict_of_one_example_in_a_loop", "folds_of_a_cross_validation",
}  # fmt: skip
QUESTIONS_OF_A_CPU = {1, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 17, 18, 19, 20, 21, 22}
# Nothing runs in these.
MADE_OF_TRACES = {"a_map_with_far_too_many_threads", "one_thread_on_two_cores"}
RUNNING = [program for program in PROGRAMS if program.name not in MADE_OF_TRACES]


@pytest.fixture(scope="module")
def _tensorflow():
    pytest.importorskip("tensorflow")
    pytest.importorskip("keras")
    begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnosis_kit, "SIDE", 360)
        yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "program"), [pytest.param(backend, one, id=f"{backend}-{one.name}") for backend in BY_BACKEND for one in BY_BACKEND[backend]])
def test_the_planted_cause_comes_first_and_nothing_that_is_said_is_false(backend, program):
    outcome = diagnose(program, kept_profile(backend, program))
    said = "\n".join((str(outcome), *outcome.texts))
    if program.name in MISSES and not outcome.is_right:
        pytest.xfail(MISSES[program.name][1])
    assert outcome.is_right, said


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_tensorflow")
@pytest.mark.parametrize("program", [pytest.param(one, id=one.name, marks=[pytest.mark.long] * (one.name in LONG)) for one in RUNNING])
def test_a_run_today_is_seen_as_the_recorded_one_was_and_nothing_is_said_that_no_clock_makes_true(program):
    check_run(program, kept_profile("tensorflow", program))


def test_what_was_recorded_is_all_of_the_programs_and_nothing_else():
    for backend, programs in BY_BACKEND.items():
        kept = {file.name.partition(".")[0] for file in (FOLDER / backend).iterdir()}
        assert kept == {one.name for one in programs} - MADE_OF_TRACES
    assert max(file.stat().st_size for file in FOLDER.rglob("*")) <= 300_000


def test_there_are_enough_programs_and_a_third_is_innocent():
    names = [program.name for program in PROGRAMS]
    innocent = [program for program in PROGRAMS if not program.first]
    assert len(set(names)) == len(names) >= 55
    assert len(innocent) * 4 >= len(names)
    assert {program.question for program in PROGRAMS} >= QUESTIONS_OF_A_CPU


def test_programs_of_other_backends_have_names_of_their_own_and_a_quarter_is_innocent():
    for programs in (BY_BACKEND["jax"], BY_BACKEND["torch"]):
        names = [program.name for program in programs]
        assert len(set(names)) == len(names) >= 10
        assert sum(not program.first for program in programs) * 4 >= len(names)
    of_backends = {one.name for backend in ("jax", "torch") for one in BY_BACKEND[backend]}
    assert not of_backends & {program.name for program in PROGRAMS}


def test_known_misses_are_programs_with_a_reason_and_few():
    """The target: the right cause first in 95 %, a wrong remedy in 2 %."""
    assert set(MISSES) <= {program.name for program in PROGRAMS}
    assert all(reason.strip() for _, reason in MISSES.values())
    wrong = sum(is_wrong for is_wrong, _ in MISSES.values())
    if len(MISSES) > (1 - LEAST_RIGHT) * len(PROGRAMS) or wrong > MOST_WRONG * len(PROGRAMS):
        pytest.xfail(f"{len(MISSES)} of {len(PROGRAMS)} programs are not told right, {wrong} of them with a wrong remedy")


def a_program(*first, **rest):
    return Program(lambda: None, first, **rest)


def test_how_a_program_is_judged():
    guilty, innocent = a_program("eager-ops", also=("retracing",), says=("tf.function",), never=("Log every",)), a_program()
    right = judge(guilty, ["eager-ops", "retracing"], ["Use tf.function.", "."], "30 steps")
    assert right.is_right
    second = judge(guilty, ["retracing", "eager-ops"], [".", "Use tf.function."], "30 steps")
    assert (second.has_cause, second.has_wrong_remedy) == (False, False)
    mute = judge(guilty, ["eager-ops"], ["Use it."], "30 steps")
    assert mute.unsaid == ("tf.function",)
    assert not mute.is_right
    false = judge(guilty, ["eager-ops", "input-bound"], ["Use tf.function.", "Log every step."], "30 steps")
    assert (false.has_cause, false.wrong, false.words) == (True, ("input-bound",), ("Log every",))
    assert not false.is_right
    assert judge(innocent, [], [], "30 steps").is_right
    accused = judge(innocent, ["input-bound"], ["."], "30 steps")
    assert (accused.has_cause, accused.has_wrong_remedy) == (False, True)


def test_precision_and_recall_by_rule():
    eager, feed, idle = a_program("eager-ops"), a_program("feed", "python-input"), a_program()
    outcomes = [
        judge(eager, ["eager-ops"], ["."], ""), judge(eager, ["feed", "eager-ops"], [".", "."], ""),
        judge(feed, ["python-input"], ["."], ""), judge(feed, [], [], ""), judge(idle, ["eager-ops"], ["."], ""),
    ]  # fmt: skip
    assert score(outcomes) == {
        "eager-ops": ((2, 3), (1, 2)), "feed": ((0, 1), (0, 1)), "python-input": ((1, 1), (1, 1)),
    }  # fmt: skip


def test_a_batch_is_too_small_only_where_steps_run_that_were_traced_before():
    """The same steps, in a cell whose every step was traced: what takes so long is the tracing."""
    (program,) = (one for one in PROGRAMS if one.name == "predict_in_batches_of_32")
    study = kept_profile("tensorflow", program).study
    assert "larger-batch" in proposed(study)
    seen = study.recording.cell
    traced = replace(seen, tree=[replace(node, kind=FIRST) if node.kind == PREDICT else node for node in seen.tree])
    assert "larger-batch" not in proposed(Study(study.trace, 0, replace(study.recording, cell=traced)))
