"""Rules that ask the tree of the cell, each on the guilty and on the innocent; cells of made looks, so every number is known."""

import pytest
from made_cell import IMPORT, KERAS_3, MINE, NEXT_ELEMENT, TENSORFLOW, Cell, callback_list, imports, saves

from profnb.advice.advise import advise, proposals_of
from profnb.advice.cell_model import Model
from profnb.advice.what_if import what_if
from profnb.causes.cell_tree import grow_tree
from profnb.capture.parts.part_records import Loads
from profnb.capture.step_records import CALL, RUN

EAGER_OP = ("matmul", f"{TENSORFLOW}/ops/gen_math_ops.py", 100, 120)
KERAS_OP = ("Dense.call", f"{KERAS_3}/layers/core/dense.py", 100, 120)
COMPILED = ("Function.__call__", f"{TENSORFLOW}/eager/polymorphic_function/polymorphic_function.py", 800, 833)
LEAVES = ("filter_traceback.<locals>.error_handler", f"{KERAS_3}/utils/traceback_utils.py", 110, 117)
MAKES_DATASET = ("DatasetV2.map", f"{TENSORFLOW}/data/ops/dataset_ops.py", 100, 120)
MAKES_ITERATOR = ("OwnedIterator.__init__", f"{TENSORFLOW}/data/ops/iterator_ops.py", 700, 709)


def mine(name, line=40):
    return (name, MINE, line, line + 2)


@pytest.fixture
def cell():
    return Cell()


def model_of(cell, loads=()):
    records = cell.records()
    records.loads = list(loads)
    return Model(grow_tree(records, None), None, is_here=False, cores=2, cell=records)


def told(cell):
    return [(one.rule, one.title) for one in advise(model_of(cell))]


def rules(cell, loads=()):
    return [one.rule for one in advise(model_of(cell, loads))]


def trained(cell, steps=10, ms=30, **how):
    for _ in range(steps):
        cell.step(ms, **how)


def test_a_function_is_pointed_at_by_its_line_that_takes_most_and_by_no_line_of_what_it_calls(cell):
    for ms, frames in ((100, [("train", MINE, 40, 44)]), (300, [("train", MINE, 40, 47)]), (500, [("train", MINE, 40, 48), ("plot", MINE, 80, 85)])):
        cell.work(ms, *frames)
    model = model_of(cell)
    at = {model.tree.name[row]: model.own_line(row).rpartition(":")[2] for row in range(1, len(model.tree)) if model.tree.name[row]}
    assert at == {"train": "47", "plot": "85"}


def test_predict_in_a_loop_saves_the_set_up_of_all_calls_but_one(cell):
    for _ in range(20):
        with cell.run("predict"):
            cell.work(30, MAKES_ITERATOR)
            cell.step(5, name="predict")
            cell.work(15)
    (advice,) = advise(model_of(cell))
    assert (advice.rule, advice.title) == ("predict-in-a-loop", "Call predict once, not in a loop")
    assert "ran 20 times" in advice.evidence and "900 ms, 45.0 ms each" in advice.evidence
    assert advice.wall_ms == 1000
    low, high = advice.saves_ms
    assert high <= 855 + 95 + 100  # 19 of 20 set-ups, batches as one, and what few looks are sure of
    assert low >= 855 - 100
    assert advice.bound_fraction == high / 1000


def test_calls_of_several_methods_in_one_loop_are_one_piece_of_advice(cell):
    for _ in range(10):
        with cell.within(mine("replay")):
            for method in ("predict", "fit"):
                with cell.run(method):
                    cell.work(40, MAKES_ITERATOR)
                    cell.step(5, name="predict" if method == "predict" else "train")
    (advice,) = advise(model_of(cell))
    assert (advice.rule, advice.title) == ("predict-in-a-loop", "Call predict and fit once, not in a loop")
    assert "model.predict and model.fit ran 20 times" in advice.evidence and "800 ms, 40.0 ms each" in advice.evidence
    assert "model.predict_on_batch" in advice.code and "model.train_on_batch" in advice.code
    assert advice.saves_ms[0] > 600


@pytest.mark.parametrize("has_fit", [True, False])
def test_evaluations_of_a_loop_over_epochs_may_go_as_a_whole_and_those_of_other_loops_may_not(cell, has_fit):
    """Ten times 30 ms to start and eight steps of 5 ms; with a fit of eight steps each they may be done once, after the last one."""
    for _ in range(10):
        if has_fit:
            with cell.run("fit"):
                for _ in range(8):
                    cell.step(5, name="train")
        with cell.run("evaluate"):
            cell.work(30)
            for _ in range(8):
                cell.step(5, name="test")
    advice = next(one for one in advise(model_of(cell)) if one.rule == "predict-in-a-loop")
    starts, steps = 9 * 30, 9 * 40 * has_fit
    assert advice.saves_ms[1] > 0.9 * starts + 0.7 * steps and advice.saves_ms[0] < starts + 60
    assert advice.saves_ms[1] - advice.saves_ms[0] < (0.4 * advice.wall_ms + 120 if has_fit else 200)
    assert ("after the last epoch" in advice.code and "1.10 s in all" in advice.evidence) == has_fit


def test_calls_from_two_functions_are_counted_and_told_apart(cell):
    for _ in range(10):
        for name, times in (("act", 1), ("replay", 3)):
            with cell.within(mine(name)):
                for _ in range(times):
                    with cell.run("predict"):
                        cell.work(40, MAKES_ITERATOR)
                        cell.step(5, name="predict")
    replay, act = advise(model_of(cell))
    assert replay.rule == act.rule == "predict-in-a-loop"
    assert "ran 30 times" in replay.evidence and "1.20 s, 40.0 ms each" in replay.evidence
    assert "ran 10 times" in act.evidence and "400 ms, 40.0 ms each" in act.evidence


@pytest.mark.parametrize(("calls", "steps", "set_up", "retraced"), [
    (4, 1, 50, False),  # few calls: the first is too large a part
    (20, 20, 2, False),  # of many batches each
    (20, 1, 30, True),  # of a new model each time, which is another rule's
])  # fmt: skip
def test_few_calls_long_ones_and_those_of_new_models_are_left_alone(cell, calls, steps, set_up, retraced):
    for _ in range(calls):
        with cell.run("predict"):
            cell.work(set_up, MAKES_ITERATOR)
            for at in range(steps):
                cell.step(5, name="predict", retraced=retraced and not at)
    assert "predict-in-a-loop" not in rules(cell)


def fit_with(cell, name="Score.on_epoch_end", ms=60, epochs=8, inside=None):
    with cell.run("fit"):
        for _ in range(epochs):
            trained(cell, 3, 10)
            cell.epoch_ends()
            with cell.within(callback_list(name.rpartition(".")[2]), (name, MINE, 55, 57)):
                if inside is None:
                    cell.work(ms)
                else:
                    inside()


def test_a_callback_is_named_with_its_line_and_what_it_takes(cell):
    fit_with(cell)
    (advice,) = advise(model_of(cell))
    assert (advice.rule, advice.title, advice.where) == ("callback", "Run `Score.on_epoch_end` less often", "me/mine.py:55")
    assert "ran 8 times and took 480 ms, 60.0 ms each" in advice.evidence
    assert advice.edit == {"without": "Score.on_epoch_end"}
    assert advice.saves_ms[0] <= 480 * 0.8 <= advice.saves_ms[1]


def test_what_a_callback_calls_is_said(cell):
    def evaluates():
        with cell.run("evaluate"):
            cell.work(5, MAKES_ITERATOR)
            trained(cell, 5, 20, name="test")

    fit_with(cell, inside=evaluates)
    first = advise(model_of(cell))[0]
    assert first.rule == "callback" and "mostly in `evaluate`" in first.evidence

    other = Cell()
    fit_with(other, inside=lambda: other.work(60, saves()))
    first = advise(model_of(other))[0]
    assert first.rule == "callback" and "mostly in `Model.save_weights`" in first.evidence


@pytest.mark.parametrize(("name", "ms", "epochs"), [("Score.on_epoch_end", 1, 8), ("Score.on_train_end", 400, 1)], ids=["short", "once"])
def test_callbacks_that_are_short_or_run_once_are_left_alone(cell, name, ms, epochs):
    fit_with(cell, name, ms, epochs)
    assert rules(cell) == []


def test_what_a_callback_does_once_is_not_done_less_often(cell):
    imported = iter([400])
    fit_with(cell, "TensorBoard.on_epoch_end", inside=lambda: (cell.work(next(imported, 0), *imports("tensorboard")), cell.work(1)))
    assert rules(cell) == []


def fit_of_epochs(cell, epochs, set_up, steps):
    with cell.run("fit"):
        for _ in range(epochs):
            cell.work(set_up, MAKES_ITERATOR)
            trained(cell, steps, 10)
            cell.epoch_ends()


def test_epochs_that_each_make_an_iterator_are_told_to_keep_one(cell):
    fit_of_epochs(cell, epochs=20, set_up=30, steps=2)
    first = advise(model_of(cell))[0]
    assert (first.rule, first.edit) == ("epoch-ends", {"epochs_restart_free": True})
    assert "20 epochs each made a new iterator" in first.evidence


def test_few_epochs_are_left_alone(cell):
    fit_of_epochs(cell, epochs=3, set_up=60, steps=10)
    assert rules(cell) == []


@pytest.mark.parametrize(("validating", "is_said"), [(80, True), (20, False)])
def test_a_validation_is_told_where_it_takes_longer_than_the_training(cell, validating, is_said):
    with cell.run("fit"):
        for _ in range(6):
            trained(cell, 3, 15)
            with cell.run("evaluate"):
                trained(cell, 1, validating, name="test")
            cell.epoch_ends()
    assert ("validation" in rules(cell)) is is_said


@pytest.mark.parametrize("op", [EAGER_OP, KERAS_OP])
def test_an_own_function_that_runs_ops_one_by_one_is_named(cell, op):
    for _ in range(10):
        trained(cell, 1, 10, kind=CALL, name="learn")
        cell.work(40, mine("score"), op)
    (advice,) = advise(model_of(cell))
    assert (advice.rule, advice.title, advice.where) == ("eager-ops", "Put `score` into a tf.function", "me/mine.py:40")
    assert advice.edit == {"compiled": "score"}


def test_calls_of_compiled_functions_are_no_ops_one_by_one(cell):
    for _ in range(10):
        trained(cell, 1, 10, kind=CALL, name="learn")
        cell.work(40, mine("score"), COMPILED, EAGER_OP)
    assert "eager-ops" not in rules(cell)


def test_what_a_loop_runs_one_by_one_between_its_steps_is_said_of_the_loop(cell):
    with cell.within(mine("train")):
        for _ in range(10):
            trained(cell, 1, 10, kind=CALL, name="learn")
            cell.work(40, EAGER_OP)
    (advice,) = advise(model_of(cell))
    assert advice.title == "Put the ops of `train` into a tf.function"


def test_python_of_ones_own_between_the_steps_is_named(cell):
    for _ in range(10):
        trained(cell, 1, 20, kind=CALL, name="learn")
        cell.work(30, mine("plot"))
    (advice,) = advise(model_of(cell))
    assert (advice.rule, advice.title) == ("own-python", "Do less in `plot`")
    assert advice.saves_ms[1] <= 300 * 1.25 and advice.saves_ms[0] <= 180


def test_the_function_that_holds_nearly_all_of_another_is_named(cell):
    with cell.within(mine("run", 60)):
        cell.work(800, mine("train_step"), EAGER_OP)
        cell.work(5)
    (advice,) = advise(model_of(cell))
    assert advice.title == "Put `train_step` into a tf.function"
    both = Cell()
    with both.within(mine("run", 60)):
        both.work(400, mine("train_step"), EAGER_OP)
        both.work(400, mine("judge", 80), EAGER_OP)
    assert [one.title for one in advise(model_of(both))] == ["Put `run` into a tf.function"]


def loops_that_call(cell, *inside, ms=40):
    """Two functions, each with a loop of steps, each of which calls a function of one's own beside them."""
    for at, frames in enumerate(inside):
        with cell.within(mine(f"loop_{at}", 60 + 20 * at)):
            for _ in range(5):
                trained(cell, 1, 10, kind=CALL, name=f"learn_{at}")
                cell.work(ms, *frames)


@pytest.mark.parametrize("frames", [(mine("score"), EAGER_OP), (mine("score"),)], ids=["ops", "Python"])
def test_a_function_that_two_places_call_is_one_piece_of_advice(cell, frames):
    loops_that_call(cell, frames, frames)
    (advice,) = advise(model_of(cell))
    alone = Cell()
    loops_that_call(alone, frames, ms=80)
    (same,) = advise(model_of(alone))
    assert (advice.rule, advice.title, advice.where, advice.edit) == (same.rule, same.title, same.where, same.edit)
    assert "400 ms" in advice.evidence and "400 ms" in same.evidence
    assert sum(advice.saves_ms) > 0.9 * sum(same.saves_ms)
    assert len(advice.target) == 2 * len(same.target)


def test_what_a_function_costs_to_compile_counts_once_however_many_places_call_it(cell):
    loops_that_call(cell, (mine("score"), EAGER_OP), (mine("score"), EAGER_OP))
    (of_both,) = [one for one in proposals_of(model_of(cell)) if one.rule == "eager-ops"]
    first, second = of_both.edits
    assert first.once_ps[1] > 0 and second.once_ps == (0, 0)


def test_functions_that_differ_are_told_apart(cell):
    loops_that_call(cell, (mine("score"), EAGER_OP), (mine("judge", 90), EAGER_OP))
    assert sorted(told(cell)) == [("eager-ops", f"Put `{name}` into a tf.function") for name in ("judge", "score")]
    of_one_name = Cell()
    loops_that_call(of_one_name, (mine("score"),), (mine("score", 90),))
    assert [(one.title, one.where) for one in advise(model_of(of_one_name))] == [("Do less in `score`", f"me/mine.py:{at}") for at in (40, 90)]


CONVERTS = (
    ("convert_to_tensor", f"{TENSORFLOW}/framework/ops.py", 100, 120),
    ("weak_tensor_op_wrapper", f"{TENSORFLOW}/ops/weak_tensor_ops.py", 80, 88),
    ("convert_to_eager_tensor", f"{TENSORFLOW}/framework/constant_op.py", 90, 108),
)


def loop_that_converts(cell, converting, eager=0, around=()):
    for _ in range(10):
        trained(cell, 1, 10, kind=CALL, name="learn")
        cell.work(converting, mine("replay"), *around, *CONVERTS)
        if eager:
            cell.work(eager, mine("replay"), EAGER_OP)


def test_a_function_that_makes_tensors_of_lists_is_named(cell):
    loop_that_converts(cell, 40, eager=5)
    (advice,) = advise(model_of(cell))
    assert (advice.rule, advice.title) == ("values-to-tensors", "Convert the arrays of `replay` once")
    assert advice.where == "me/mine.py:42"  # the line of it that takes most
    assert "`replay` took 400 ms to make tensors of Python lists and arrays." in advice.evidence
    assert advice.saves_ms[0] <= 450 * 0.75 and 400 <= advice.saves_ms[1]  # of its ops a quarter remains at most


def test_a_function_that_makes_tensors_for_two_places_is_told_once(cell):
    for at in range(2):
        with cell.within(mine(f"loop_{at}", 60 + 20 * at)):
            loop_that_converts(cell, 200)
    (advice,) = [one for one in proposals_of(model_of(cell)) if one.rule == "values-to-tensors"]
    alone = Cell()
    loop_that_converts(alone, 200)
    (once,) = [one for one in proposals_of(model_of(alone)) if one.rule == "values-to-tensors"]
    assert (advice.title, advice.where) == (once.title, once.where)
    assert advice.edits[0].most_ps == 2 * once.edits[0].most_ps > 0


def test_a_compiled_function_makes_tensors_of_values_as_before(cell):
    loop_that_converts(cell, 40, eager=5)
    assert what_if(model_of(cell), {"compiled": "replay"}).saves_ms[1] < 50 + 60  # its ops, and what few looks are sure of


@pytest.mark.parametrize(("converting", "eager", "around", "said"), [
    (4, 0, (), []),  # 40 ms: nobody waits for that
    (10, 30, (), ["eager-ops"]),  # its ops take longer than the tensors that they are given
    (40, 0, (COMPILED,), ["own-python"]),  # what a compiled call makes of its arguments
], ids=["short", "ops take longer", "in a compiled call"])  # fmt: skip
def test_few_values_and_those_of_calls_are_not_told_to_be_made_once(cell, converting, eager, around, said):
    loop_that_converts(cell, converting, eager, around)
    assert rules(cell) == said


@pytest.mark.parametrize(("ms", "is_said"), [(0.4, False), (1.5, True)], ids=["arrays", "lists"])
def test_what_takes_no_longer_to_make_a_tensor_of_than_a_call_is_left_alone(cell, ms, is_said):
    """Each action needs the observation before, an array: nothing can make its tensor before the loop."""
    for _ in range(400):
        with cell.within(mine("rollout")):
            trained(cell, 1, 0.5, kind=CALL, name="act")
            cell.work(ms, *CONVERTS)
    assert ("values-to-tensors" in rules(cell)) == is_said


READS = (
    ("KerasVariable.numpy", f"{KERAS_3}/backend/common/variables.py", 100, 102),
    ("convert_to_numpy", f"{KERAS_3}/backend/tensorflow/core.py", 170, 172),
    ("_EagerTensorBase.numpy", f"{TENSORFLOW}/framework/ops.py", 400, 402),
)


def test_reading_values_runs_no_op_and_belongs_to_the_function_that_reads(cell):
    for _ in range(10):
        trained(cell, 1, 20, kind=CALL, name="learn")
        cell.work(20, mine("plot"), *READS)
        cell.work(10, mine("plot"))
    (advice,) = advise(model_of(cell))
    assert (advice.rule, advice.title) == ("own-python", "Do less in `plot`")
    assert advice.saves_ms[1] >= 300  # all of it goes where it is done less often


def test_a_function_that_waits_for_other_threads_is_no_python_of_ones_own(cell):
    waits = ("Condition.wait", "/usr/lib/python3.11/threading.py", 320, 322)
    for _ in range(10):
        trained(cell, 1, 20, kind=CALL, name="learn")
        cell.work(30, mine("take"), waits)
    assert rules(cell) == []


@pytest.mark.parametrize("frames", [
    (NEXT_ELEMENT,), (saves(),), IMPORT, (LEAVES,), (mine("load"), NEXT_ELEMENT),
], ids=["input", "saved once", "imports", "leaving a call", "input in a function"])  # fmt: skip
def test_what_is_no_python_of_ones_own_is_not_told_so(cell, frames):
    frames = frames if isinstance(frames[0], tuple) else (frames,)
    for _ in range(10):
        trained(cell, 1, 20, kind=CALL, name="learn")
    cell.work(200, *frames)
    assert "own-python" not in rules(cell)


def test_saving_three_times_or_more_is_too_often(cell):
    for _ in range(5):
        trained(cell, 3, 20, kind=CALL, name="learn")
        cell.work(60, saves())
        cell.work(1)
    assert "checkpoints" in rules(cell)
    once = Cell()
    trained(once, 15, 20, kind=CALL, name="learn")
    once.work(300, saves())
    assert rules(once) == []


LOAD = ("load_model", f"{KERAS_3}/saving/saving_api.py", 126, 190)
ALLOCATE, MAKE = ((f"Interpreter.{name}", "/x/site-packages/ai_edge_litert/interpreter.py", 400, 420) for name in ("allocate_tensors", "__init__"))


def test_a_model_loaded_for_each_example_is_told_with_the_tracing_of_each(cell):
    for _ in range(10):
        cell.work(60, mine("classify"), LOAD)
        cell.step(30, kind=CALL, name="call", retraced=True)
        cell.step(10, kind=CALL, name="call")
    first, *_ = advise(model_of(cell, [Loads("load_model", 10, 1)]))
    assert (first.rule, first.title) == ("loaded-again", "Load the model once")
    assert "`load_model` ran 10 times and took 600 ms, 60.0 ms each." in first.evidence
    low, high = (one / first.wall_ms for one in first.saves_ms)
    assert (low, high) == pytest.approx((0.9 * 600 / 1000, (0.9 * 600 + 0.75 * 400) / 1000), abs=0.01)


def test_an_interpreter_made_for_each_image_is_told_with_its_allocating(cell):
    for _ in range(10):
        cell.work(20, mine("ready"), MAKE)
        cell.work(60, mine("ready"), ALLOCATE)
        cell.step(20, name="invoke")
    first, *_ = advise(model_of(cell, [Loads("Interpreter.__init__", 10, 1)]))
    assert (first.rule, first.title) == ("loaded-again", "Load the interpreter once")
    assert "`Interpreter.__init__` and `Interpreter.allocate_tensors` ran 10 times and took 800 ms" in first.evidence
    assert first.saves_ms[0] / first.wall_ms == pytest.approx(0.72, abs=0.01)


def test_tracing_another_model_once_is_none_of_the_loading(cell):
    for _ in range(10):
        cell.work(60, mine("weights"), LOAD)
    cell.step(900, kind=CALL, name="learn", retraced=True)
    trained(cell, 30, 30, kind=CALL, name="learn")
    assert "loaded-again" not in rules(cell, [Loads("load_model", 10, 1)])


@pytest.mark.parametrize(("times", "models"), [(1, 1), (2, 1), (4, 1), (10, 10), (12, 3)])
def test_models_that_are_loaded_once_each_are_not_loaded_again(cell, times, models):
    for _ in range(times):
        cell.work(600 / times, mine("classify"), LOAD)
        cell.step(40, kind=CALL, name="call")
    assert "loaded-again" not in rules(cell, [Loads("load_model", times, models)])


def test_the_one_that_saves_most_comes_first_and_the_next_is_what_it_adds(cell):
    """A callback that predicts in a loop: the callback takes all of it, so nothing is left for the loop."""

    def predicts():
        with cell.run("predict"):
            cell.work(40, MAKES_ITERATOR)
            cell.step(3, name="predict")

    fit_with(cell, inside=predicts, epochs=12)
    assert "predict_on_batch" not in advise(model_of(cell))[0].code  # once each time
    cell.work(130, mine("plot"))
    first, *others = told(cell)
    assert first == ("callback", "Run `Score.on_epoch_end` less often")
    assert [rule for rule, _ in others] == ["own-python"]


def test_a_callback_that_predicts_often_is_told_to_predict_once(cell):
    def predicts():
        for _ in range(5):
            with cell.run("predict"):
                cell.work(8, MAKES_ITERATOR)
                cell.step(2, name="predict")

    fit_with(cell, inside=predicts, epochs=8)
    first = advise(model_of(cell))[0]
    assert first.rule == "callback" and "mostly in `predict` (40 calls)" in first.evidence
    assert first.code.startswith("Call model.predict once") and "if epoch % 5 == 0" in first.code


def test_a_healthy_cell_is_told_nothing(cell):
    with cell.run("fit"):
        for _ in range(5):
            trained(cell, 20, 20)
            cell.epoch_ends()
            cell.callback("Note.on_epoch_end", 1)
    assert rules(cell) == []


def test_what_saves_less_than_a_twentieth_or_50_ms_is_not_worth_a_word(cell):
    fit_with(cell, ms=5)  # 40 ms of 280
    assert rules(cell) == []


def test_names_are_data(cell):
    evil = "<img src=x onerror=alert(1)>.on_epoch_end"
    fit_with(cell, evil)
    (advice,) = advise(model_of(cell))
    assert evil in advice.title  # and escaped where it is shown


def test_a_session_that_makes_its_graph_is_not_told_to_compile_it(cell):
    for _ in range(10):
        cell.step(20, RUN, "session_run")
        cell.work(1)
    assert rules(cell) == []


@pytest.mark.parametrize(("frames", "is_told"), [((), True), ((MAKES_DATASET,), False), ((mine("prepare"), MAKES_DATASET), True)])
def test_what_a_line_calls_of_the_framework_is_not_its_own_python(cell, frames, is_told):
    trained(cell, 10, 30)
    cell.stack = [("<module>", "<ipython-input-3-x>", 1, 12)]  # another line of the cell
    with cell.within(*frames):
        cell.work(400)
    cell.work(1)
    assert ("own-python" in rules(cell)) == is_told
