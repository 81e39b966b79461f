"""Files that are read one for each element: how many, how large, and when that is worth saying."""

from dataclasses import replace

from types import SimpleNamespace

import numpy as np
import pytest

import profnb
from profnb.advice.cell_model import Model
from profnb.causes.cell_tree import grow_tree
from profnb.advice.rules.input_rules import files_read_singly
from profnb.advice.replay import replay
from profnb.capture.environment import find_files, mean_size
from profnb.subjects.input.diagnosis import CAUSES
from profnb.causes.starving import note_files
from profnb.subjects.input.iterators import files_text, find_small_files

from recorded import program


def proposed(study):
    return list(files_read_singly(Model(grow_tree(None, study), study)))


READS = (("ReadFile", 5_000, 600), ("DecodeRaw", 500, 600))


def test_the_iterator_that_reads_most_files_is_found():
    found = find_small_files([(), READS, (("ReadFile", 100, 60),)], np.array([0, 600, 60]), {})
    assert (found.iterator, found.reads, found.reading_ps, found.other_ps) == (1, 600, 5_000, 500)


@pytest.mark.parametrize(
    ("ops", "runs", "sizes"),
    [
        ((("ReadFile", 5_000, 40),), 40, {}),  # few
        ((("ReadFile", 5_000, 60),), 6_000, {}),  # one file for a hundred elements
        ((("DecodeRaw", 5_000, 600),), 600, {}),
        (READS, 600, {"ds": 50_000_000}),  # large
    ],
)
def test_few_or_large_files_are_none(ops, runs, sizes):
    assert find_small_files([ops], np.array([runs]), sizes) is None


def test_sizes_are_means_of_files_that_are_there(tmp_path):
    names = []
    for number in range(250):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(b"x" * 100)
        names.append(str(path).encode())
    assert mean_size(names) == 100
    assert mean_size([]) is None
    assert mean_size([*names[:2], b"/not/there"]) is None
    assert mean_size([b"\0"]) is None
    assert files_text({"a": 3, "train": 600}, {"train": 128}) == "600 files of 128 B on average"
    assert files_text({}, {}) == ""


@pytest.mark.tensorflow
def test_files_of_real_pipelines_are_counted_and_said(tmp_path):
    tf = pytest.importorskip("tensorflow")
    for number in range(80):
        (tmp_path / f"{number}.bin").write_bytes(np.ones(8, np.float32).tobytes())

    def read(name):
        return tf.io.decode_raw(tf.io.read_file(name), tf.float32)

    listed = tf.data.Dataset.list_files(str(tmp_path / "*.bin")).map(read).batch(4)
    texts = tf.data.Dataset.from_tensor_slices(["a", "b"])
    both = tf.data.Dataset.zip((listed, texts))
    counts, sizes = find_files({"listed": listed, "texts": texts, "both": both, "numbers": tf.data.Dataset.range(3), "x": 3})
    assert (counts, sizes) == ({"listed": 80}, {"listed": 32})

    @tf.function
    def step(batch):
        return tf.reduce_sum(batch)

    with profnb.profile() as p:
        for batch in listed:
            step(batch)
    p.recording.describe({"listed": listed})
    found = p.study.input.small_files
    assert found.reads == 80
    diagnosis = p.study.input.diagnosis
    p.study.input.__dict__["diagnosis"] = replace(diagnosis, cause="")
    waiting = p.study.input.waiting
    said = proposed(p.study)
    assert bool(said) == (waiting.fraction > 0 and found.reading_ps > found.other_ps)
    if said:
        assert "80 while traced (80 files of 32 B on average)" in said[0].evidence
        assert said[0].code == CAUSES["small files"][1]
        saving = replay(grow_tree(None, p.study), said[0].edits)
        assert 0 < saving.low_ps <= saving.high_ps
    p.study.input.__dict__["diagnosis"] = replace(diagnosis, cause="small files")
    assert not proposed(p.study)  # the rule of starving steps says it


def test_a_starving_pipeline_of_files_says_how_many_there_are():
    p = program("pipeline-small-files")
    p.recording.file_counts, p.recording.file_bytes = {"ds": 600}, {"ds": 128}
    study = type(p.study)(p.trace, recording=p.recording)
    assert study.input.diagnosis.cause == "small files"
    assert study.input.diagnosis.sentence.endswith("There are 600 files of 128 B on average.")
    assert not proposed(study)


@pytest.mark.parametrize(("waits", "cause", "is_said"), [(0.01, "other", True), (0.2, "other", False), (0.01, "small files", False)])
def test_files_that_cost_little_here_are_noted(waits, cause, is_said):
    p = program("pipeline-small-files")
    p.recording.file_counts, p.recording.file_bytes = {"ds": 600}, {"ds": 128}
    study = type(p.study)(p.trace, recording=p.recording)
    seen = study.input.waiting
    study.input.__dict__["diagnosis"] = replace(study.input.diagnosis, cause=cause)
    study.input.__dict__["waiting"] = SimpleNamespace(fraction=waits, period_ps=seen.period_ps, counted=seen.counted)
    notes = note_files(study)
    assert bool(notes) is is_said
    if is_said:
        assert "(600 files of 128 B on average). Here this costs little: steps wait 1.0 % of the time for input" in notes[0]
