"""Python that makes the input: what is said of a generator that only hands arrays over, and of one that works."""

import numpy as np
import pytest
from advised import proposed
from test_what_if import tree_of
from traces import event, host, line, read

import profnb
from profnb.advice.advise import proposals_of
from profnb.advice.cell_model import Model
from profnb.advice.replay import replay
from profnb.causes.starving import crowded_share
from profnb.subjects.advising import share_of
from profnb.subjects.study import Study

US, MS = 10**6, 10**9
STEP_US = 4_000
# As a fit of four epochs is: its input is waited for in the steps and, as it starts anew, at the ends of epochs.
FIT = tree_of(
    (-1, "cell", "", 0, 0),
    (0, "call", "fit", 0, 1),
    (1, "epoch", "", 0, 4),
    (2, "epoch ends", "", 300, 4),
    (2, "callbacks", "Score.on_epoch_end", 0, 4),
    (2, "train steps", "", 0, 100),
    (5, "input", "", 200, 100),
    (5, "host compute", "", 500, 0),
)  # fmt: skip


def fed_by(makes, made_us, op="PyFunc"):
    """Steps that wait on their thread for an element, which an iterator's function makes in so many microseconds."""
    steps, calls, pool = [], [], []
    for at in range(12):
        begin = at * (STEP_US + made_us + 100) * US
        steps.append(event("train", begin, STEP_US * US, step_num=at, _r=1))
        asked, run = begin + (STEP_US + 10) * US, 100 + at
        calls += [event(f"Iterator::{path}", asked + level * US, (made_us + 60 - 2 * level) * US, id=level + 1)
                  for level, path in enumerate(("Root", "Root::FlatMap", f"Root::FlatMap[0]::{makes}"))]  # fmt: skip
        calls.append(event("InstantiatedCapturedFunction::Run", asked + 10 * US, (made_us + 20) * US, id=run))
        pool += [event("ExecutorState::Process", asked + 15 * US, made_us * US, id=run), event(f"make:{op}", asked + 16 * US, (made_us - 5) * US)]
    return Study(read(host(line("python", *steps, *calls), line("pool", *pool, line_id=2))))


def told(study, tree=FIT):
    model = Model(tree, study, cores=2)
    (found,) = [one for one in proposals_of(model) if one.rule == "python-input"]
    saving = replay(tree, found.edits)
    return found, (saving.low_ps / MS, saving.high_ps / MS)


def test_a_generator_that_hands_over_in_less_than_a_millisecond_is_told_to_be_arrays():
    found, saves = told(fed_by("Generator", 800))
    assert "from_tensor_slices((x, y)).batch(n)" in found.code and "read or drawn anew" in found.code
    assert "use_multiprocessing" not in found.code
    assert saves == pytest.approx((0.6 * 500, 500))  # the steps' waiting and the ends of epochs, of which two fifths may stay


@pytest.mark.parametrize(("makes", "made_us", "op"), [("Generator", 3_000, "PyFunc"), ("MapV2", 800, "EagerPyFunc")])
def test_python_that_works_for_each_batch_is_not_told_so(makes, made_us, op):
    found, _ = told(fed_by(makes, made_us, op))
    assert "TFRecordDataset" in found.code and "from_tensor_slices" not in found.code


def test_the_end_of_an_epoch_is_the_inputs_only_where_python_starts_anew():
    _, (low, high) = told(fed_by("MapV2", 800, "EagerPyFunc"))
    assert (low, high) == pytest.approx((0.6 * 200, 200))


def test_what_makes_the_elements_in_tensorflow_is_none_of_it():
    for study in (fed_by("TensorSlice", 800, "MatMul"), fed_by("MapV2", 800, "MatMul")):
        assert "python-input" not in {one.rule for one in proposals_of(Model(FIT, study, cores=2))}


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_sliced", [True, False])
def test_a_pydataset_that_runs_here(is_sliced):
    keras = pytest.importorskip("keras", minversion="3.0")
    x, y = np.ones((640, 20), "float32"), np.ones((640, 1), "float32")

    class Rows(keras.utils.PyDataset):
        def __len__(self):
            return 20

        def __getitem__(self, at):
            rows = slice(at * 32, at * 32 + 32)
            if is_sliced:
                return x[rows], y[rows]
            return np.array([[float(str(value + 1)) - 1 for value in row] for row in x[rows] for _ in range(20)], "float32")[::20], y[rows]

    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = Rows()
    model.fit(data, verbose=0)
    with profnb.profile() as p:
        model.fit(data, epochs=4, verbose=0)
    code = proposed(p.study)["python-input"].code
    assert is_sliced or "from_tensor_slices" not in code  # of slices it is said where the machine is quick enough
    with profnb.profile() as p:
        model.fit(x, y, epochs=4, verbose=0)
    assert "python-input" not in proposed(p.study)


def beside(python_us, ops_us):
    """Calls of 4 ms each with ops of so long in them; a generator's Python on another thread, from their begin on."""
    steps, calls, pool = [], [], []
    for at in range(12):
        begin = at * (STEP_US + 100) * US
        steps += [event("train", begin, STEP_US * US, step_num=at, _r=1), event("TFE_Py_ExecuteCancelable", begin + 10 * US, (STEP_US - 20) * US)]
        pool.append(event("m/MatMul:MatMul", begin + (STEP_US - 20 - ops_us) * US, ops_us * US))
        steps += [event(f"Iterator::{path}", begin + (STEP_US + 20 + level) * US, (40 - 2 * level) * US, id=level + 1) for level, path in enumerate(("Root", "Root::Prefetch"))]
        calls += [event("Iterator::Root::Prefetch::Generator", begin + 20 * US, (python_us + 60) * US, id=3), event("make:PyFunc", begin + 30 * US, python_us * US)]
    return Study(read(host(line("python", *steps), line("pool", *pool, line_id=2), line("tf_data", *calls, line_id=3))))


@pytest.mark.parametrize(
    ("python_us", "ops_us", "surely_us"),
    [(3000, 500, 3000), (3000, 3800, 150), (3000, 2000, 1950), (300, 500, 300)],
    ids=["the call waits for Python", "ops run beside it", "in part", "little Python"],
)
def test_a_call_surely_waits_while_only_the_inputs_python_runs(python_us, ops_us, surely_us):
    study = beside(python_us, ops_us)
    most, surely = crowded_share(study)
    computing = share_of(study, "host compute") * (STEP_US + 100)
    assert surely * computing == pytest.approx(surely_us, abs=120)
    assert surely <= most <= 1
