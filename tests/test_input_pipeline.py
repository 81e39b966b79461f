"""The input pipeline: waiting charged by hand, real pathological pipelines, official tables."""

import os
import time

import numpy as np
import pytest
from patience import patient
from traces import event, host, line, read

import profnb
from profnb import Profile
from profnb.report.notes import notes_of
from profnb.subjects.input.iterators import find_iterators, label_of
from profnb.subjects.study import Study
from profnb.capture.recording import Recording
from profnb.subjects.input.charges import charge_waiting
from profnb.subjects.input.buffers import BUFFERS
from profnb.subjects.input.pipeline import INPUT_PIPELINE
from profnb.subjects.input.waiting import INPUT_WAITS
from profnb.subjects.input.section import input_sections

US, MS = 10**6, 10**9
ROOT, PREFETCH, MAP, RANGE = (f"Iterator::Root{rest}" for rest in ("", "::Prefetch", "::Prefetch::MapV2", "::Prefetch::MapV2::Range"))


def starved(**more):
    """Two steps; the training waits 10 ms for each element, behind which a map takes 8 and its input 1."""
    steps = [event("train", at * 20 * MS, 8 * MS, step_num=at, _r=1) for at in range(3)]
    waits, feeds = [], []
    for at in range(3):
        begin = at * 20 * MS + 9 * MS
        waits += [event(ROOT, begin, 10 * MS, id=1), event(PREFETCH, begin + MS // 2, 9 * MS, id=2, buffer_limit=2)]
        feeds += [
            event("PrefetchProduce", begin - 5 * MS, 14 * MS, element_id=at),
            event(MAP, begin - 5 * MS, 14 * MS, id=3, name="MapDataset:1"), event(RANGE, begin - 5 * MS, 7 * MS, id=4),
            event("InstantiatedCapturedFunction::Run", begin + 2 * MS, 7 * MS, id=70 + at),
        ]  # fmt: skip
    runs = [event("ExecutorState::Process", at * 20 * MS + 11 * MS, 6 * MS, id=70 + at) for at in range(3)]
    ops = [event("decode/MatMul:MatMul", at * 20 * MS + 11 * MS, 5 * MS) for at in range(3)]
    return read(host(line("python", *steps, *waits), line("tf_data_1", *feeds, line_id=2), line("pool", *runs, *ops, line_id=3)), **more)


def test_each_instant_of_waiting_is_charged_to_one_iterator_by_hand():
    trace = starved()
    tree = find_iterators(trace)
    assert tree.path == ("Root", "Root::Prefetch", "Root::Prefetch::MapV2", "Root::Prefetch::MapV2::Range")
    assert tree.parent.tolist() == [-1, 0, 1, 2]
    assert tree.is_async.tolist() == [False, True, False, False]
    assert set(tree.run_node.tolist()) == {2}
    charges = charge_waiting(trace, tree)
    charged = charges.sum_by_iterator(4)
    # Per element: Root itself 1 ms; behind Prefetch's 9 ms its input's 1.5, the function's 7, and 0.5 of nobody's.
    assert (charged / MS / 3).tolist() == [[1, 0], [0.5, 0], [0, 7], [1.5, 0]]
    assert charged.sum() == 30 * MS


def test_the_table_and_the_diagnosis_by_hand():
    study = Study(starved())
    table = INPUT_PIPELINE.frame(study.input.pipeline).set_index("iterator")
    row = table.loc["Root::Prefetch::MapV2"]
    assert (row.kind, row.occurrences, row.total_us, row.self_us) == ("Map", 3, 42_000, 21_000)
    assert (row.function_occurrences, row.function_us, row.function_ops) == (3, 18_000, "MatMul")
    assert (row.waited_us, row.dataset) == (21_000, "MapDataset:1")
    waits = INPUT_WAITS.frame(study.input.waiting)
    assert waits.wait_ms.tolist()[:2] == [10, 10]
    assert waits.period_ms.tolist()[:2] == [20, 20]
    found = study.input.diagnosis
    assert (found.severity, found.cause, found.iterator) == ("high", "sequential map", 2)
    assert "Map (MatMul) is the limit" in Profile(study.trace).notes[-1]


def test_indices_of_elements_are_dropped_and_those_of_branches_kept():
    names = ["Iterator::Root::FlatMap", "Iterator::Root::FlatMap[3]::TFRecord", "Iterator::Root::FlatMap[4]::TFRecord"]
    zips = ["Iterator::Root::FlatMap::Zip", "Iterator::Root::FlatMap::Zip[0]::Range", "Iterator::Root::FlatMap::Zip[1]::Range"]
    trace = read(host(line("p", *(event(name, at, 1) for at, name in enumerate(["Iterator::Root", *names, *zips])))))
    tree = find_iterators(trace)
    assert tree.path == ("Root", "Root::FlatMap", "Root::FlatMap::TFRecord", "Root::FlatMap::Zip",
                         "Root::FlatMap::Zip[0]::Range", "Root::FlatMap::Zip[1]::Range")  # fmt: skip
    assert tree.parent.tolist() == [-1, 0, 1, 1, 3, 3]
    assert label_of("Root::ParallelMapV2") == "ParallelMap"


def test_a_branch_below_a_branch_has_the_nearer_one_above_it():
    names = ["Root", "Root::Zip", "Root::Zip[0]::Concatenate", "Root::Zip[0]::Concatenate[1]::Range"]
    tree = find_iterators(read(host(line("p", *(event(f"Iterator::{name}", at, 1) for at, name in enumerate(names))))))
    assert tree.path == tuple(names)
    assert tree.parent.tolist() == [-1, 0, 1, 2]


def test_functions_get_their_names_from_the_datasets_of_the_namespace():
    chains = [(("Range", ""), ("Filter", "odd")), (("Range", ""), ("Map", "augment"), ("Prefetch", ""))]
    study = Study(starved(), recording=Recording(datasets=chains))
    assert study.input.pipeline.function == ("", "", "augment", "")
    assert "Map(augment) is the limit" in study.input.diagnosis.sentence


def test_names_follow_the_order_of_the_pipeline_whatever_the_numbers_are():
    chains = [(("TensorSlice", ""), ("Map", "one"), ("Batch", ""), ("Map", "two"))]
    study = Study(starved(), recording=Recording(datasets=chains))
    assert study.input.pipeline.function == ("", "", "", "")  # one map in the trace, two in the pipeline
    study = Study(starved(), recording=Recording(datasets=[(("Range", ""), ("Map", "augment")), (("Range", ""), ("ParallelMap", "other"))]))
    assert study.input.pipeline.function == ("", "", "", "")  # two pipelines of this shape: nobody knows which


def test_a_validation_that_waits_does_not_speak_for_the_training():
    steps = [event("train", at * 10 * MS, 9 * MS, step_num=at, _r=1) for at in range(8)]
    steps += [event("test", 200 * MS + at * 30 * MS, 5 * MS, step_num=at, _r=1) for at in range(3)]
    quick = [event(ROOT, at * 10 * MS + 9 * MS + 10 * US, 100 * US, id=1) for at in range(8)]
    slow = [event(ROOT, 200 * MS + at * 30 * MS + 6 * MS, 20 * MS, id=9) for at in range(3)]
    study = Study(read(host(line("python", *steps, *quick, *slow))))
    assert study.summary.phase == "train"
    assert study.input.diagnosis.severity == "none"
    assert study.input.waiting.counted.sum() <= 8


def test_reading_a_dataset_without_a_model_is_no_input_bound_training():
    calls = [event(ROOT, at * 10 * MS, 9 * MS, id=1) for at in range(10)]
    study = Study(read(host(line("python", *calls))))
    assert study.steps.is_window
    assert study.input.diagnosis is None


def test_a_filter_is_not_told_to_run_in_parallel():
    paths = ["Iterator::Root", "Iterator::Root::Filter", "Iterator::Root::Filter::Range"]
    steps = [event("train", at * 20 * MS, 8 * MS, step_num=at, _r=1) for at in range(8)]
    calls = []
    for at in range(8):
        begin = at * 20 * MS + 9 * MS
        calls += [event(paths[0], begin, 10 * MS, id=1), event(paths[1], begin, 10 * MS, id=2), event(paths[2], begin, MS, id=3),
                  event("InstantiatedCapturedFunction::Run", begin + MS, 8 * MS, id=70 + at)]  # fmt: skip
    found = Study(read(host(line("python", *steps, *calls)))).input.diagnosis
    assert found.cause == "busy"
    assert "before it" in found.fix


def test_indices_of_windows_are_dropped_and_those_of_mixed_datasets_kept():
    names = ["Root", "Root::DirectedInterleave", "Root::DirectedInterleave[0]::Map", "Root::DirectedInterleave[1]::Map",
             "Root::GroupByWindow", "Root::GroupByWindow[7]::Batch", "Root::GroupByWindow[8]::Batch"]  # fmt: skip
    trace = read(host(line("p", *(event(f"Iterator::{name}", at, 1) for at, name in enumerate(names)))))
    assert find_iterators(trace).path == (
        "Root", "Root::DirectedInterleave", "Root::GroupByWindow", "Root::DirectedInterleave[0]::Map",
        "Root::DirectedInterleave[1]::Map", "Root::GroupByWindow::Batch",
    )  # fmt: skip
    find_iterators(read(host(line("p", event("Iterator::" + "a" * 50_000, 0, 1)))))  # in no time


def test_a_call_that_tells_no_buffer_found_it_empty():
    calls = [event(PREFETCH, at * 10, 1, buffer_limit=4, **({"buffered_elements": at} if at else {})) for at in range(4)]
    study = Study(read(host(line("p", event(ROOT, 0, 100), *calls))))
    frame = BUFFERS.frame(study.input.buffer_samples)
    assert frame.buffered_elements.tolist() == [0, 1, 2, 3]
    assert set(frame.capacity) == {4}
    row = study.input.iterators.path.index("Root::Prefetch")
    assert study.input.pipeline.buffered[row] == 1.5
    assert study.input.pipeline.empty_fraction[row] == 0.25


def test_without_tf_data_a_large_gap_says_that_the_source_cannot_be_seen():
    steps = [event("train", at * 100 * MS, 10 * MS, step_num=at, _r=1) for at in range(8)]
    study = Study(read(host(line("python", *steps))))
    assert study.input.diagnosis is None
    assert any("cannot be seen" in note for note in notes_of(study))
    assert input_sections(study) == []


@pytest.mark.parametrize("name", ["gpu-cnn-batch512", "gpu-cnn-batch128", "gpu-cnn-batch8"])
def test_the_input_op_table_is_the_official_one(shared_traces, name):
    protos = pytest.importorskip("xprof.protobuf.input_pipeline_pb2")
    result = protos.InputPipelineAnalysisResult()
    result.ParseFromString((shared_traces / name / "host.input_pipeline.pb").read_bytes())
    profile = profnb.load(shared_traces / name / "host.xplane.pb")
    ops = profile.ops.set_index("op_name")
    for op in result.input_op_details:
        own = ops.loc[op.op_name]
        assert (own.occurrences, own.total_us / 1e3, own.self_us / 1e3) == pytest.approx((op.count, op.time_in_ms, op.self_time_in_ms), abs=1e-9)
    # The tree of iterators has the same calls and times, elements of flat_map and branches apart.
    table = profile.input_pipeline
    assert table.occurrences.sum() == sum(op.count for op in result.input_op_details)
    assert table.self_us.sum() / 1e3 == pytest.approx(sum(op.self_time_in_ms for op in result.input_op_details), abs=1e-6)


# Real pipelines, each slow in one known way.

tf = pytest.importorskip("tensorflow")
STEPS, BATCH = 30, 8


def plain(dataset):
    """As written: tf.data neither parallelizes nor fuses nor prefetches by itself."""
    options = tf.data.Options()
    options.autotune.enabled = False
    for name in ("map_parallelization", "map_and_batch_fusion", "inject_prefetch"):
        if hasattr(options.experimental_optimization, name):
            setattr(options.experimental_optimization, name, False)
    return dataset.with_options(options)


def burn(x):
    """Work of one to three milliseconds that one thread does."""
    y = tf.reshape(tf.cast(x, tf.float32), [1, 1]) * tf.ones((320, 320))
    for _ in range(3):
        y = tf.matmul(y, tf.ones((320, 320))) * 1e-3
    return y[0, 0]


def nap(x):
    time.sleep(0.004)
    return np.float32(x)


def naps():
    for number in range(10_000):
        time.sleep(0.004)
        yield np.float32(number)


def numbers():
    return tf.data.Dataset.range(10_000)


def train(dataset, step_s):
    """A training whose step sleeps, so that it takes no core from the pipeline."""
    with profnb.profile(max_steps=STEPS + 5) as p:
        for number, _ in enumerate(dataset.take(STEPS)):
            with profnb.step(number):
                time.sleep(step_s)
    return p


def batches_per_second(dataset):
    """How fast the dataset is alone: wall time of the batches after the fifth."""
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    begin = time.perf_counter()
    for _ in range(STEPS):
        next(iterator)
    return STEPS / (time.perf_counter() - begin)


def files_of(folder, count=400, size=150_000):
    paths = []
    for number in range(count):
        (folder / f"{number}.bin").write_bytes(os.urandom(size))
        paths.append(str(folder / f"{number}.bin"))
    return paths


def read_whole(path):
    return tf.strings.length(tf.io.read_file(path))


PIPELINES = {
    "sequential map": (lambda _: plain(numbers().map(burn).batch(BATCH).prefetch(2)), "sequential map", "Map"),
    "parallel map": (lambda _: plain(numbers().map(burn, num_parallel_calls=2).batch(BATCH).prefetch(2)), "transform", "ParallelMap"),
    "py_function": (lambda _: plain(numbers().map(lambda x: tf.numpy_function(nap, [x], tf.float32)).batch(BATCH).prefetch(2)), "python", "Map"),
    "generator": (lambda _: plain(tf.data.Dataset.from_generator(naps, output_signature=tf.TensorSpec((), tf.float32)).batch(BATCH).prefetch(2)), "python", "Generator"),
    "small files": (lambda d: plain(tf.data.Dataset.from_tensor_slices(files_of(d)).repeat().map(read_whole).batch(64).prefetch(2)), "small files", "Map"),
}  # fmt: skip


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", list(PIPELINES))
@patient
def test_a_slow_stage_is_named_with_its_cause_and_its_rate(tmp_path, name):
    make, cause, kind = PIPELINES[name]
    dataset = make(tmp_path)
    alone = batches_per_second(dataset)
    # The model is three times as fast as the pipeline; files come faster from one pass to the next.
    step_s = 0.3 / alone if name != "small files" else 0.0
    p = train(dataset, step_s)
    found = p.study.input.diagnosis
    assert found.severity == "high", found.sentence
    assert found.cause == cause, found.sentence
    assert p.study.input.pipeline.kind[found.iterator] == kind
    charged = p.study.input.waiting.charged_ps.sum(axis=1)
    assert charged[found.iterator] > 0.5 * charged.sum()
    assert found.fix in " ".join(p.notes)
    waits = p.input_waits[p.input_waits.is_counted]
    if name != "small files":
        # What a batch takes less what the model takes; machines are shared, so within 40 %.
        assert waits.wait_ms[:-1].mean() == pytest.approx((1 / alone - step_s) * 1e3, rel=0.4)
    assert p.input_pipeline.waited_us.sum() == pytest.approx(p.ops[p.ops.op_name == "Iterator::Root"].total_us.sum(), abs=1e-3)


@pytest.mark.tensorflow
@patient
def test_python_that_sleeps_costs_what_it_sleeps():
    """Eight naps of 4 ms for each batch, one after another, less a step of 10 ms."""
    make, *_ = PIPELINES["generator"]
    p = train(make(None), 0.010)
    waits = p.input_waits[p.input_waits.is_counted]
    assert waits.wait_ms.median() == pytest.approx(8 * 4 - 10, rel=0.25)
    assert p.study.input.waiting.starved == len(waits) - 1  # after the last step nothing is waited for


@pytest.mark.tensorflow
@pytest.mark.parametrize("step_s", [0.0, 0.060], ids=["starved", "slow-model"])
@patient
def test_elements_per_second_are_those_of_the_wall_clock(step_s):
    """Both where the training waits, and where the pipeline is ahead and its rate is told by its stages."""
    make, *_ = PIPELINES["generator"]
    dataset = make(None)
    alone = batches_per_second(dataset)
    p = train(dataset, step_s)
    made = p.study.input.waiting.pipeline_per_second
    assert made == pytest.approx(alone, rel=0.15)
    assert (p.study.input.diagnosis.severity == "high") == (step_s == 0)


@pytest.mark.tensorflow
@patient
def test_a_healthy_pipeline_is_left_alone():
    p = train(numbers().batch(BATCH).prefetch(2), 0.004)
    assert p.study.input.diagnosis.severity == "none"
    assert not any("input-bound" in note for note in p.notes)
    assert [part.title for part in input_sections(p.study)] == ["Input pipeline"]


@pytest.mark.tensorflow
@patient
def test_a_cache_that_is_filled_is_healthy_whatever_made_it():
    dataset = plain(numbers().take(BATCH * 10).map(burn).batch(BATCH).cache().repeat().prefetch(2))
    iterator = iter(dataset)
    for _ in range(15):
        next(iterator)
    with profnb.profile() as p:
        for number in range(STEPS):
            next(iterator)
            with profnb.step(number):
                time.sleep(0.004)
    assert p.study.input.diagnosis.severity == "none"


@pytest.mark.tensorflow
@patient
def test_filling_a_shuffle_buffer_is_said():
    p = train(plain(numbers().map(burn).shuffle(300).batch(BATCH).prefetch(2)), 0.001)
    assert any("Shuffle fills its buffer of 300 elements" in note for note in p.notes)


@pytest.mark.tensorflow
@patient
def test_work_on_the_training_thread_is_told_to_prefetch():
    p = train(plain(numbers().map(burn).batch(BATCH)), 0.002)
    found = p.study.input.diagnosis
    assert found.cause == "sequential map"
    assert "nothing runs while the model works" in found.fix
    assert not p.input_pipeline.is_async.any()


@pytest.mark.tensorflow
@patient
def test_keras_fed_by_a_slow_generator_is_input_bound():
    keras = pytest.importorskip("keras")
    if keras.config.backend() != "tensorflow" if hasattr(keras, "config") and hasattr(keras.config, "backend") else False:
        pytest.skip("needs Keras on TensorFlow")

    def slow():
        while True:
            time.sleep(0.02)
            yield np.ones((8, 4), "float32"), np.zeros((8, 1), "float32")

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(slow(), steps_per_epoch=2, verbose=0)
    with profnb.profile() as p:
        model.fit(slow(), steps_per_epoch=20, verbose=0)
    found = p.study.input.diagnosis
    assert (found.severity, found.cause) == ("high", "python"), found.sentence
    assert p.input_waits[p.input_waits.is_counted].wait_ms.median() == pytest.approx(20, rel=0.35)
