"""The diagnosis benchmark, program by program; `python tests/diagnosis.py` prints what is said, and the score by rule."""

import gc
from dataclasses import replace

import diagnosis_kit
import pytest
from diagnosis import LEAST_RIGHT, MISSES, MOST_WRONG, OF_BACKENDS, PROGRAMS, score
from diagnosis_kit import Program, begin, diagnose_again, judge

# Those that take the processor longest, from four seconds on.
LONG = {
    "fit_from_a_generator_dataset", "a_model_called_in_a_loop", "validation_that_is_larger_than_training", "fit_of_an_lstm_on_a_cpu",
    "fit_that_runs_eagerly", "a_large_optimizer", "a_python_number_in_each_call", "steps_that_slow_down_bit_by_bit",
    "a_second_fit_of_larger_batches", "many_epochs_of_few_steps", "predict_of_one_example_in_a_loop", "folds_of_a_cross_validation",
}  # fmt: skip
QUESTIONS_OF_A_CPU = {1, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 17, 18, 19, 20, 21, 22}


@pytest.fixture(scope="module")
def _tensorflow():
    pytest.importorskip("tensorflow")
    pytest.importorskip("keras")
    begin()
    yield
    gc.unfreeze()


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_tensorflow")
@pytest.mark.parametrize("program", [pytest.param(one, id=one.name, marks=[pytest.mark.long] * (one.name in LONG)) for one in PROGRAMS])
def test_the_planted_cause_comes_first_and_nothing_that_is_said_is_false(program):
    outcome = diagnose_again(program)
    said = "\n".join((str(outcome), *outcome.texts))
    if program.name in MISSES and not outcome.is_right:
        pytest.xfail(MISSES[program.name][1])
    assert outcome.is_right, said


def test_there_are_enough_programs_and_a_third_is_innocent():
    names = [program.name for program in PROGRAMS]
    innocent = [program for program in PROGRAMS if not program.first]
    assert len(set(names)) == len(names) >= 55
    assert len(innocent) * 4 >= len(names)
    assert {program.question for program in PROGRAMS} >= QUESTIONS_OF_A_CPU


def test_programs_of_other_backends_have_names_of_their_own_and_a_quarter_is_innocent():
    for programs in OF_BACKENDS.values():
        names = [program.name for program in programs]
        assert len(set(names)) == len(names) >= 10
        assert sum(not program.first for program in programs) * 4 >= len(names)
    every = {program.name: program for programs in (*OF_BACKENDS.values(), PROGRAMS) for program in programs}
    assert len(every) == len(PROGRAMS) + len(set().union(*({one.name for one in programs} for programs in OF_BACKENDS.values())))


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


@pytest.mark.parametrize(
    ("said", "is_crowded", "is_kept"),
    [
        ([], True, False),  # the cause is hidden, and nothing is said
        ([], False, True),
        (["input-bound"], True, True),  # a false one is false on a busy machine too
        (["eager-ops"], True, True),
    ],
)
def test_on_a_busy_machine_a_cause_may_be_hidden_and_nothing_false_be_said(monkeypatch, said, is_crowded, is_kept):
    guilty = a_program("eager-ops")
    outcome = replace(judge(guilty, said, ["."] * len(said), ""), is_crowded=is_crowded)
    monkeypatch.setattr(diagnosis_kit, "diagnose", lambda program: outcome)
    if is_kept:
        assert diagnosis_kit.diagnose_again(guilty) is outcome
    else:
        with pytest.raises(pytest.skip.Exception, match="other programs"):
            diagnosis_kit.diagnose_again(guilty)


def test_precision_and_recall_by_rule():
    eager, feed, idle = a_program("eager-ops"), a_program("feed", "python-input"), a_program()
    outcomes = [
        judge(eager, ["eager-ops"], ["."], ""), judge(eager, ["feed", "eager-ops"], [".", "."], ""),
        judge(feed, ["python-input"], ["."], ""), judge(feed, [], [], ""), judge(idle, ["eager-ops"], ["."], ""),
    ]  # fmt: skip
    assert score(outcomes) == {
        "eager-ops": ((2, 3), (1, 2)), "feed": ((0, 1), (0, 1)), "python-input": ((1, 1), (1, 1)),
    }  # fmt: skip
