"""The input pipeline: waiting charged by hand, real pathological pipelines, official tables."""

import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from recorded import FACTS, program
from advised import advised
from traces import event, host, line, read

import profnb
from profnb import Profile
from profnb.causes.starving import maps_the_same
from profnb.report.notes import note_starvation, notes_of
from profnb.subjects.input.diagnosis import CAUSES, runs_in_batch
from profnb.subjects.input.iterators import keras_array_rows, label_of
from profnb.subjects.study import Study
from profnb.capture.recording import Recording
from profnb.subjects.input.waiting import charge_waiting
from profnb.subjects.input.pipeline import BUFFERS
from profnb.subjects.input.pipeline import INPUT_PIPELINE
from profnb.subjects.input.waiting import INPUT_WAITS
from profnb.subjects.input.diagnosis import InputDiagnosis, _limit_of
from profnb.subjects.input.section import input_sections

US, MS = 10**6, 10**9
ROOT, PREFETCH, MAP, RANGE = (f"Iterator::Root{rest}" for rest in ("", "::Prefetch", "::Prefetch::MapV2", "::Prefetch::MapV2::Range"))


def iterators_of(trace):
    return Study(trace).input.iterators


def starved(count=8, op="decode/MatMul:MatMul", **more):
    """So many steps; the training waits 10 ms for each element, behind which a map takes 8 and its input 1."""
    steps = [one for at in range(count) for one in (event("train", at * 20 * MS, 8 * MS, step_num=at, _r=1), event("m/Relu:Relu", at * 20 * MS, 8 * MS))]
    waits, feeds = [], []
    for at in range(count):
        begin = at * 20 * MS + 9 * MS
        waits += [event(ROOT, begin, 10 * MS, id=1), event(PREFETCH, begin + MS // 2, 9 * MS, id=2, buffer_limit=2)]
        feeds += [
            event("PrefetchProduce", begin - 5 * MS, 14 * MS, element_id=at),
            event(MAP, begin - 5 * MS, 14 * MS, id=3, name="MapDataset:1"), event(RANGE, begin - 5 * MS, 7 * MS, id=4),
            event("InstantiatedCapturedFunction::Run", begin + 2 * MS, 7 * MS, id=70 + at),
        ]  # fmt: skip
    runs = [event("ExecutorState::Process", at * 20 * MS + 11 * MS, 6 * MS, id=70 + at) for at in range(count)]
    ops = [event(op, at * 20 * MS + 11 * MS, 5 * MS) for at in range(count)]
    return read(host(line("python", *steps, *waits), line("tf_data_1", *feeds, line_id=2), line("pool", *runs, *ops, line_id=3)), **more)


def mapped_one_by_one(op_us, last="BatchV2", count=12):
    """Steps of 2 ms that wait 8 ms each for 20 elements, whose function runs an op of so long in 330 us."""
    steps, waits, pool = [], [], []
    for at in range(count):
        begin = at * 10 * MS
        steps.append(event("train", begin, 2 * MS, step_num=at, _r=1))
        waits += [event(ROOT, begin + 2 * MS, 8 * MS, id=1), event(f"{ROOT}::{last}", begin + 2 * MS + 50 * US, 7900 * US, id=2)]
        for number in range(20):
            asked, run = begin + 2 * MS + (100 + number * 380) * US, 100 + at * 20 + number
            waits += [event(f"{ROOT}::{last}::MapV2", asked, 370 * US, id=3), event("InstantiatedCapturedFunction::Run", asked + 10 * US, 350 * US, id=run)]
            pool += [event("ExecutorState::Process", asked + 20 * US, 330 * US, id=run), event("scale/Cast:Cast", asked + 30 * US, op_us * US)]
    return Study(read(host(line("python", *steps, *waits), line("pool", *pool, line_id=2))))


def test_a_map_of_short_ops_is_told_to_come_behind_the_batch():
    """It takes nearly all of 8 in 10 ms: of that a call in 20 remains, and up to a quarter of what the others took."""
    study = mapped_one_by_one(op_us=2)
    assert (study.input.diagnosis.cause, runs_in_batch(study.input.pipeline, 2)) == ("each element", 20)
    said = advised(study)["input-bound"]
    assert said.title == "Batch before you map" and ".batch(n) before .map(f)" in said.code
    assert said.saves_ms[1] / said.wall_ms == pytest.approx(0.8 * 0.92 * 19 / 20, abs=0.03)
    assert said.saves_ms[0] == pytest.approx(said.saves_ms[1] * 3 / 4, rel=0.01)


@pytest.mark.parametrize(("op_us", "last"), [(300, "BatchV2"), (50, "Take")])
def test_a_map_whose_ops_compute_and_one_before_no_batch_are_not(op_us, last):
    """Most of the function's time is its op's; and there is no batch that it could take at once."""
    assert mapped_one_by_one(op_us, last).input.diagnosis.cause == "sequential map"


def test_an_iterator_that_only_hands_over_is_not_blamed():
    """Prefetch, behind which nothing was recorded: a cache behind it would hold what was made already."""
    steps = [event("train", at * 20 * MS, 8 * MS, step_num=at, _r=1) for at in range(9)]
    waits = [one for at in range(9) for one in (event(ROOT, at * 20 * MS + 9 * MS, 10 * MS, id=1), event(PREFETCH, at * 20 * MS + 10 * MS, 9 * MS, id=2))]
    study = Study(read(host(line("python", *steps, *waits))))
    assert study.input.diagnosis.severity == "none"
    assert "no stage of the pipeline stands out" in study.input.diagnosis.sentence
    assert "training" not in study.input.diagnosis.sentence  # a predict has no training
    assert "input-bound" not in set(advised(study))


def test_a_handful_of_steps_is_told_nothing_of_its_input():
    """Seven steps: the first one is warm-up or fills the buffers, and after the last nothing is waited for."""
    assert Study(starved(7)).input.diagnosis.severity == "high"
    for count in (1, 2, 3, 4):
        study = Study(starved(count))
        assert study.input.diagnosis is None or study.input.diagnosis.iterator == -1
        assert "input-bound" not in set(advised(study))


KERAS = ["Root", "Root::Prefetch", "Root::Prefetch::ParallelMapV2", "Root::Prefetch::ParallelMapV2::Zip", "Root::Prefetch::ParallelMapV2::Zip[0]::FlatMap",
         "Root::Prefetch::ParallelMapV2::Zip[0]::FlatMap::Prefetch", "Root::Prefetch::ParallelMapV2::Zip[1]::ForeverRepeat",
         "Root::Prefetch::ParallelMapV2::Zip[1]::ForeverRepeat::FromTensor"]  # fmt: skip


def waiting(paths, slow, count=9, phase="train", **more):
    """Steps of 8 ms that wait 10 ms for each element on their thread, each iterator inside the one before; ``slow`` takes all but 1 ms a level."""
    steps = [event(phase, at * 20 * MS, 8 * MS, step_num=at, _r=1) for at in range(count)]
    calls = []
    for at in range(count):
        begin, end = at * 20 * MS + 9 * MS, at * 20 * MS + 19 * MS
        for level, path in enumerate(paths):
            is_inner = level > paths.index(slow)
            calls.append(event(f"Iterator::{path}", begin + level * 10 * US, (end - begin - level * 20 * US) if not is_inner else MS - level * 20 * US, id=level + 1))
    return Study(read(host(line("python", *steps, *calls))), **more)


@pytest.mark.parametrize("slow", KERAS)
@pytest.mark.parametrize("phase", ["train", "test", "predict"])
def test_the_pipeline_that_keras_makes_of_arrays_is_nobodys_to_mend(slow, phase):
    study = waiting(KERAS, slow, phase=phase)
    assert keras_array_rows(study.input.iterators) == set(range(len(KERAS)))
    assert study.input.waiting.fraction > 0.4
    found = study.input.diagnosis
    assert (found.severity, found.fix) == ("none", "")
    assert "arrays in memory" in found.sentence
    assert not {"input-bound", "python-input", "prefetch-more"} & set(advised(study))
    assert note_starvation(found) == []


def test_what_only_looks_like_the_pipeline_of_keras_is_not_taken_for_it():
    own = ["Root", "Root::Prefetch", "Root::Prefetch::ParallelMapV2", "Root::Prefetch::ParallelMapV2::Zip", "Root::Prefetch::ParallelMapV2::Zip[0]::Map",
           "Root::Prefetch::ParallelMapV2::Zip[1]::TensorSlice"]  # fmt: skip
    study = waiting(own, own[4])
    assert keras_array_rows(study.input.iterators) == set()
    assert study.input.diagnosis.cause == "sequential map"
    both = waiting([*KERAS, "Root::Prefetch::ParallelMapV2::TensorSlice"], KERAS[2])  # a dataset to train, arrays to validate
    tree = both.input.iterators
    assert {tree.path[row] for row in keras_array_rows(tree)} == set(KERAS[3:])


@pytest.mark.parametrize("cache", ["MemoryCache", "MemoryCacheImpl", "FileCache"])
def test_what_a_cache_keeps_is_not_told_to_be_cached(cache):
    paths = ["Root", "Root::Prefetch", f"Root::Prefetch::{cache}", f"Root::Prefetch::{cache}::Map", f"Root::Prefetch::{cache}::Map::TensorSlice"]
    for slow in paths[2:]:
        study = waiting(paths, slow)
        assert study.input.diagnosis.iterator == -1, study.input.diagnosis.sentence
        assert ".cache()" not in " ".join(notes_of(study))
        assert "input-bound" not in set(advised(study))
    below = ["Root", "Root::Prefetch", "Root::Prefetch::Map", f"Root::Prefetch::Map::{cache}"]
    assert waiting(below, below[2]).input.diagnosis.cause == "sequential map"


def test_where_nothing_tells_why_only_the_cause_is_said():
    paths = ["Root", "Root::Prefetch", "Root::Prefetch::Zip", "Root::Prefetch::Zip[0]::TensorSlice"]
    study = waiting(paths, paths[2])
    found = study.input.diagnosis
    assert (found.cause, found.fix) == ("other", "")
    assert re.search(r"Zip .*: 90.2 % of the steady steps' waiting", found.sentence)
    advice = advised(study)["input-bound"]
    assert advice.code == ""
    assert note_starvation(found)[0] == f"Input-bound: {found.sentence}"


def test_the_outermost_iterator_is_advised_on_where_it_is_the_limit_itself():
    for paths, rule in ((["Root", "Root::Range"], "input-bound"), (["Map"], "input-bound"), (["Generator"], "python-input")):
        study = waiting(paths, paths[0])
        assert study.input.diagnosis.iterator == 0
        assert rule in set(advised(study))


def test_no_sentence_on_input_speaks_of_a_training():
    for what, fix in CAUSES.values():
        assert "train" not in f"{what} {fix}".lower().replace("keras.utils", "")


def test_the_line_of_the_users_function_is_told():
    names, lines = [(("Range", ""), ("Map", "augment"))], [(("Range", ""), ("Map", "Cell [3]:8"))]
    study = Study(starved(), recording=Recording(datasets=names, dataset_lines=lines))
    found = advised(study)["input-bound"]
    assert found.where == "Cell [3]:8"
    two = [*lines, (("Range", ""), ("Map", "Cell [4]:1"))]
    study = Study(starved(), recording=Recording(datasets=names, dataset_lines=two))
    assert advised(study)["input-bound"].where == ""


@pytest.mark.parametrize(("severity", "said"), [("high", "Input-bound: "), ("moderate", "Partly input-bound: ")])
def test_the_note_on_input_calls_nothing_a_training_that_may_be_a_predict(severity, said):
    [note] = note_starvation(InputDiagnosis(severity, 0, "python", "Map is the limit.", "Do less."))
    assert note == f"{said}Map is the limit. Do less."
    assert note_starvation(InputDiagnosis("none", -1, "", "The steps wait 3.0 % of the time.", "")) == []


def test_each_instant_of_waiting_is_charged_to_one_iterator_by_hand():
    trace = starved(3)
    tree = iterators_of(trace)
    assert tree.path == ("Root", "Root::Prefetch", "Root::Prefetch::MapV2", "Root::Prefetch::MapV2::Range")
    assert tree.parent.tolist() == [-1, 0, 1, 2]
    assert tree.is_async.tolist() == [False, True, False, False]
    assert set(tree.run_node.tolist()) == {2}
    charges = charge_waiting(trace, tree)
    charged = charges.sum_by_iterator(4)
    # Per element: Root itself 1 ms; behind Prefetch's 9 ms its input's 1.5, the function's 7, and 0.5 of nobody's.
    assert (charged / MS / 3).tolist() == [[1, 0], [0.5, 0], [0, 7], [1.5, 0]]
    assert charged.sum() == 30 * MS


def test_an_outermost_iterator_that_is_asynchronous_is_looked_behind():
    """Prefetch itself is asked at 9 and answers at 19; its thread is in Range until 11, then in Map's function until 18."""
    prefetch, fill, inner = "Iterator::Prefetch", "Iterator::Prefetch::MapV2", "Iterator::Prefetch::MapV2::Range"
    asks = [event("train", 0, 8 * MS, step_num=0, _r=1), event(prefetch, 9 * MS, 10 * MS, id=2)]
    fills = [event("PrefetchProduce", 4 * MS, 14 * MS, element_id=0), event(fill, 4 * MS, 14 * MS, id=3), event(inner, 4 * MS, 7 * MS, id=4),
             event("InstantiatedCapturedFunction::Run", 11 * MS, 7 * MS, id=70)]  # fmt: skip
    trace = read(host(line("python", *asks), line("tf_data_1", *fills, line_id=2), line("pool", event("ExecutorState::Process", 11 * MS, 7 * MS, id=70), line_id=3)))
    tree = iterators_of(trace)
    assert tree.is_async.tolist() == [True, False, False]
    assert (charge_waiting(trace, tree).sum_by_iterator(3) / MS).tolist() == [[1, 0], [0, 7], [2, 0]]


def test_behind_a_parallel_map_its_function_comes_first_and_then_its_input():
    """Asked at 9 and answered at 19; until 11 its thread reads the input, from 11 to 18 its function runs."""
    above, below = "Iterator::ParallelMapV2", "Iterator::ParallelMapV2::Range"
    asks = [event("train", 0, 8 * MS, step_num=0, _r=1), event(above, 9 * MS, 10 * MS, id=2)]
    makes = [event("ParallelMapProduce", 4 * MS, 14 * MS, element_id=0), event(below, 4 * MS, 7 * MS, id=4), event("InstantiatedCapturedFunction::Run", 11 * MS, 7 * MS, id=70)]
    trace = read(host(line("python", *asks), line("tf_data_1", *makes, line_id=2), line("pool", event("ExecutorState::Process", 11 * MS, 7 * MS, id=70), line_id=3)))
    tree = iterators_of(trace)
    assert (tree.is_async.tolist(), set(tree.run_node.tolist())) == ([True, False], {0})
    charges = charge_waiting(trace, tree)
    assert (charges.sum_by_iterator(2) / MS).tolist() == [[1, 7], [2, 0]]
    assert (charges.sum_by_iterator(2, charges.begin_ps >= 11 * MS) / MS).tolist() == [[1, 7], [0, 0]]


@pytest.mark.parametrize(("op", "draws"), [
    ("decode/MatMul:MatMul", False), ("random_flip_1/SelectV2:SelectV2", True), ("map/uniform:StatelessRandomUniformV2", True),
])  # fmt: skip
def test_a_function_that_draws_numbers_is_seen_by_its_op_or_by_its_layer(op, draws):
    study = Study(starved(7, op))
    assert study.input.pipeline.draws is draws
    assert maps_the_same(study) is not draws  # what may be cached


def test_the_table_and_the_diagnosis_by_hand():
    study = Study(starved(7))
    table = INPUT_PIPELINE.frame(study.input.pipeline).set_index("iterator")
    row = table.loc["Root::Prefetch::MapV2"]
    assert (row.kind, row.occurrences, row.total_us, row.self_us) == ("Map", 7, 98_000, 49_000)
    assert (row.function_occurrences, row.function_us, row.function_ops) == (7, 42_000, "MatMul")
    assert (row.waited_us, row.dataset) == (49_000, "MapDataset:1")
    waits = INPUT_WAITS.frame(study.input.waiting)
    assert waits.wait_ms.tolist()[:2] == [10, 10]
    assert waits.period_ms.tolist()[:2] == [20, 20]
    found = study.input.diagnosis
    assert (found.severity, found.cause, found.iterator) == ("high", "sequential map", 2)
    assert re.search(r"Map \(MatMul\) .*: 70.0 % of the steady steps' waiting", Profile(study.trace).notes[-1])


def test_indices_of_elements_are_dropped_and_those_of_branches_kept():
    names = ["Iterator::Root::FlatMap", "Iterator::Root::FlatMap[3]::TFRecord", "Iterator::Root::FlatMap[4]::TFRecord"]
    zips = ["Iterator::Root::FlatMap::Zip", "Iterator::Root::FlatMap::Zip[0]::Range", "Iterator::Root::FlatMap::Zip[1]::Range"]
    trace = read(host(line("p", *(event(name, at, 1) for at, name in enumerate(["Iterator::Root", *names, *zips])))))
    tree = iterators_of(trace)
    assert tree.path == ("Root", "Root::FlatMap", "Root::FlatMap::TFRecord", "Root::FlatMap::Zip",
                         "Root::FlatMap::Zip[0]::Range", "Root::FlatMap::Zip[1]::Range")  # fmt: skip
    assert tree.parent.tolist() == [-1, 0, 1, 1, 3, 3]
    assert label_of("Root::ParallelMapV2") == "ParallelMap"


def test_a_branch_below_a_branch_has_the_nearer_one_above_it():
    names = ["Root", "Root::Zip", "Root::Zip[0]::Concatenate", "Root::Zip[0]::Concatenate[1]::Range"]
    tree = iterators_of(read(host(line("p", *(event(f"Iterator::{name}", at, 1) for at, name in enumerate(names))))))
    assert tree.path == tuple(names)
    assert tree.parent.tolist() == [-1, 0, 1, 2]


def test_functions_get_their_names_from_the_datasets_of_the_namespace():
    chains = [(("Range", ""), ("Filter", "odd")), (("Range", ""), ("Map", "augment"), ("Prefetch", ""))]
    study = Study(starved(), recording=Recording(datasets=chains))
    assert study.input.pipeline.function == ("", "", "augment", "")
    assert re.search(r"Map\(augment\) .*: 70.0 % of the steady steps' waiting", study.input.diagnosis.sentence)


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
    assert "an earlier .map(" in found.fix


def test_indices_of_windows_are_dropped_and_those_of_mixed_datasets_kept():
    names = ["Root", "Root::DirectedInterleave", "Root::DirectedInterleave[0]::Map", "Root::DirectedInterleave[1]::Map",
             "Root::GroupByWindow", "Root::GroupByWindow[7]::Batch", "Root::GroupByWindow[8]::Batch"]  # fmt: skip
    trace = read(host(line("p", *(event(f"Iterator::{name}", at, 1) for at, name in enumerate(names)))))
    assert iterators_of(trace).path == (
        "Root", "Root::DirectedInterleave", "Root::GroupByWindow", "Root::DirectedInterleave[0]::Map",
        "Root::DirectedInterleave[1]::Map", "Root::GroupByWindow::Batch",
    )  # fmt: skip
    iterators_of(read(host(line("p", event("Iterator::" + "a" * 50_000, 0, 1)))))  # in no time


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
    assert any("shows no input" in note or "may fetch the data unseen" in note for note in notes_of(study))
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


def test_calls_by_the_name_of_the_contract(cpu_trace_path):
    table = profnb.load(cpu_trace_path).input_pipeline
    assert table["calls"].tolist() == table.calls.tolist() == table.occurrences.tolist()
    assert table[["iterator", "calls"]].columns.tolist() == ["iterator", "calls"]
    assert len(table[[True, *[False] * (len(table) - 1)]]) == 1
    assert type(table.head(1)).__name__ == "DataFrame"
    with pytest.raises(KeyError, match="no_such"):
        table[["calls", "no_such"]]


# Real pipelines, each slow in one known way, as they were recorded (tests/data/record_programs.py).

PIPELINES = {
    "sequential-map": ("sequential map", "Map"),
    "parallel-map": ("transform", "ParallelMap"),
    "py-function": ("python", "Map"),
    "generator": ("python", "Generator"),
    "small-files": ("small files", "Map"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(PIPELINES))
def test_a_slow_stage_is_named_with_its_cause_and_its_rate(name):
    cause, kind = PIPELINES[name]
    p, facts = program(f"pipeline-{name}"), FACTS["pipelines"][f"pipeline-{name}"]
    found = p.study.input.diagnosis
    assert found.severity == "high", found.sentence
    assert found.cause == cause, found.sentence
    assert p.study.input.pipeline.kind[found.iterator] == kind
    charged = p.study.input.waiting.charged_ps.sum(axis=1)
    assert charged[found.iterator] > 0.5 * charged.sum()
    assert found.fix in " ".join(p.notes)
    waits = p.input_waits[p.input_waits.is_counted]
    if name != "small-files":
        # What a batch takes less what the model takes; nobody was alone on the machine, so within 40 %.
        expected_ms = (1 / facts["alone_per_second"] - facts["step_s"]) * 1e3
        assert waits.wait_ms[:-1].mean() == pytest.approx(expected_ms, rel=0.4)
    assert p.input_pipeline.waited_us.sum() == pytest.approx(p.ops[p.ops.op_name == "Iterator::Root"].total_us.sum(), abs=1e-3)


def test_python_that_sleeps_costs_what_it_sleeps():
    """Eight naps of 12 ms for each batch, one after another, less a step of 30 ms."""
    p = program("rate-starved")
    waits = p.input_waits[p.input_waits.is_counted]
    assert waits.wait_ms.median() == pytest.approx(8 * 12 - 30, rel=0.25)
    assert p.study.input.waiting.starved == len(waits) - 1  # after the last step nothing is waited for


@pytest.mark.parametrize("name", ["starved", "slow-model"])
def test_elements_per_second_are_those_of_the_wall_clock(name):
    """Both where the training waits, and where the pipeline is ahead and its rate is told by its stages."""
    p, facts = program(f"rate-{name}"), FACTS["rates"][f"rate-{name}"]
    assert p.study.input.waiting.pipeline_per_second == pytest.approx(facts["alone_per_second"], rel=0.15)
    assert (p.study.input.diagnosis.severity == "high") == (name == "starved")


def test_a_healthy_pipeline_is_left_alone():
    p = program("healthy")
    assert p.study.input.diagnosis.severity == "none"
    assert not any("input-bound" in note.lower() for note in p.notes)
    assert [part.title for part in input_sections(p.study)] == ["Input pipeline"]


def test_a_cache_that_is_filled_is_healthy_whatever_made_it():
    assert program("healthy-cache").study.input.diagnosis.severity == "none"


def test_filling_a_shuffle_buffer_is_said():
    assert any("Shuffle fills its buffer of 50 elements" in note for note in program("shuffle").notes)


def test_work_on_the_training_thread_is_told_to_prefetch():
    p = program("no-prefetch")
    found = p.study.input.diagnosis
    assert found.cause == "sequential map"
    assert "The input stands still while the model works" in found.fix
    assert not p.input_pipeline.is_async.any()


def test_keras_fed_by_a_slow_generator_is_input_bound():
    p = program("keras-generator")
    found = p.study.input.diagnosis
    assert (found.severity, found.cause) == ("high", "python"), found.sentence
    assert p.input_waits[p.input_waits.is_counted].wait_ms.median() == pytest.approx(20, rel=0.35)


# Pipelines that run here: what is in them, whatever the clock says.


@pytest.mark.tensorflow
def test_a_pipeline_that_runs_here_has_its_stages_its_calls_and_its_naps():
    """Ten batches of four; the generator naps 4 ms for each element, and no nap is shorter."""
    tf = pytest.importorskip("tensorflow")

    def naps():
        for number in range(1000):
            time.sleep(0.004)
            yield np.float32(number)

    made = tf.data.Dataset.from_generator(naps, output_signature=tf.TensorSpec((), tf.float32))
    dataset = made.map(lambda x: tf.sqrt(x) * 2).batch(4).prefetch(2)
    with profnb.profile(max_seconds=300) as p:
        for number, _ in enumerate(dataset.take(10)):
            with profnb.step(number):
                pass
    table = p.input_pipeline.set_index("kind")
    assert {"Generator", "Prefetch"} <= set(table.index)
    assert table.occurrences["Generator"].sum() >= 40
    assert table.is_async.any()
    row = table.loc[["Generator"]].total_us.sum()
    assert row >= 40 * 4000
    assert p.input_pipeline.waited_us.sum() == pytest.approx(p.ops[p.ops.op_name == "Iterator::Root"].total_us.sum(), abs=1e-3)
    assert (p.input_waits.wait_ms >= 0).all()


@pytest.mark.tensorflow
def test_a_keras_generator_that_runs_here_is_seen_as_python():
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    del tf

    def slow():
        while True:
            time.sleep(0.01)
            yield np.ones((8, 4), "float32"), np.zeros((8, 1), "float32")

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with profnb.profile(max_seconds=300) as p:
        model.fit(slow(), steps_per_epoch=10, verbose=0)
    assert "Generator" in set(p.input_pipeline.kind)
    # The first step is warm-up; what is made while a step is held up, which stands aside, is waited for in none of the next ones.
    assert p.input_pipeline[p.input_pipeline.kind == "Generator"].total_us.sum() >= len(p.study.summary.counted) * 10_000 / 2 > 0


@pytest.mark.tensorflow
@pytest.mark.long
def test_what_keras_makes_of_arrays_here_is_known_as_its_own():
    """Of Keras 3, and of Keras 2 where it is installed; a dataset of the user's is none of theirs."""
    tf = pytest.importorskip("tensorflow")
    x, y = np.ones((64, 4), "float32"), np.zeros((64, 1), "float32")

    def augment(x, y):
        return tf.sqrt(x), y

    dataset = tf.data.Dataset.from_tensor_slices((x, y)).map(augment, num_parallel_calls=2).batch(8)
    for name in ("keras", "tf_keras"):
        try:
            keras = __import__(name)
        except ImportError:
            continue
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        for run in (lambda: model.fit(x, y, verbose=0), lambda: model.predict(x[:1], verbose=0), lambda: model.evaluate(x, y, verbose=0, batch_size=7)):
            with profnb.profile(max_seconds=300) as p:
                run()
            assert keras_array_rows(p.study.input.iterators) == set(range(len(p.input_pipeline))) != set()
            assert not {"input-bound", "python-input", "prefetch-more"} & {advice.rule for advice in p.advice}
        with profnb.profile() as p:
            model.fit(dataset, verbose=0)
        p.recording.describe({"dataset": dataset})  # as if it were the notebook's
        assert keras_array_rows(p.study.input.iterators) == set()
        assert any(text.startswith("subjects/test_input_pipeline.py:") for text in p.study.input.function_lines)


@pytest.mark.parametrize(
    ("kinds", "charged_ms", "function_ms", "limit"),
    [
        (["Filter", "ParallelMap"], [(10, 1400), (50, 950)], [400, 3600], "ParallelMap"),  # its short calls wait for threads that the map has
        (["Filter", "ParallelMap"], [(10, 1400), (50, 950)], [1300, 3600], "Filter"),  # it works itself
        (["Filter", "ParallelMap"], [(10, 1400), (10, 200)], [400, 3600], "Filter"),  # nobody else is much of it
        (["Filter", "ParallelMap"], [(1400, 10), (50, 950)], [4, 3600], "Filter"),  # the waiting is not in its function
        (["ParallelMap", "Filter"], [(10, 1400), (10, 900)], [400, 800], "ParallelMap"),
        (["Filter"], [(10, 1400)], [400], "Filter"),
    ],
)
def test_a_filter_whose_calls_wait_for_a_maps_threads_is_not_the_limit(kinds, charged_ms, function_ms, limit):
    table = SimpleNamespace(kind=kinds, function_occurrences=np.full(len(kinds), 4000), function_ps=np.array(function_ms) * MS)
    table.tree, table.function_ops = SimpleNamespace(parent=np.arange(len(kinds)) - 1), [()] * len(kinds)
    waits = SimpleNamespace(charged_ps=np.array(charged_ms) * MS)
    assert kinds[_limit_of(table, waits)] == limit


@pytest.mark.parametrize(
    ("kinds", "charged_ms", "total_ms", "limit"),
    [
        (["FlatMap", "Generator"], [(700, 0), (0, 300)], [1100, 1000], "Generator"),  # the lock is what it waits for
        (["FlatMap", "Generator"], [(700, 0), (300, 0)], [1100, 300], "FlatMap"),  # it works itself
        (["FlatMap", "Range"], [(700, 0), (0, 300)], [1100, 1000], "FlatMap"),  # no Python
        (["ParallelMap", "Generator"], [(10, 700), (0, 300)], [1100, 1000], "ParallelMap"),  # its function is what takes long
    ],
)
def test_a_stage_that_waits_for_python_below_is_not_the_limit(kinds, charged_ms, total_ms, limit):
    table = SimpleNamespace(kind=kinds, function_occurrences=np.zeros(2, int), function_ps=np.zeros(2), total_ps=np.array(total_ms) * MS)
    table.tree, table.function_ops = SimpleNamespace(parent=np.array([-1, 0])), [(), ()]
    waits = SimpleNamespace(charged_ps=np.array(charged_ms) * MS)
    assert kinds[_limit_of(table, waits)] == limit


@pytest.mark.parametrize(("each_ms", "severity"), [(8, "high"), (4, "high"), (0.9, "none")])
def test_a_pipeline_whose_stages_make_many_times_what_the_model_takes_is_not_called_slow(each_ms, severity):
    """Elements come 10 ms late each, though each stage needs no more than so long; the model takes 8 ms for one."""
    steps = [one for at in range(12) for one in (event("train", at * 20 * MS, 8 * MS, step_num=at, _r=1), event("m/Relu:Relu", at * 20 * MS, 8 * MS))]
    waits, feeds = [], []
    for at in range(12):
        begin = at * 20 * MS + 9 * MS
        waits += [event(ROOT, begin, 10 * MS, id=1), event(PREFETCH, begin + MS // 2, 9 * MS, id=2, buffer_limit=2)]
        took = round(each_ms * MS)
        feeds += [event("PrefetchProduce", begin + 9 * MS - took, took, element_id=at), event(MAP, begin + 9 * MS - took, took, id=3), event(RANGE, begin + 9 * MS - took, took // 2, id=4)]
    study = Study(read(host(line("python", *steps, *waits), line("tf_data_1", *feeds, line_id=2))))
    assert study.input.waiting.fraction > 0.4
    assert study.input.diagnosis.severity == severity
