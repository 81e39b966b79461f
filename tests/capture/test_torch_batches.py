"""How many examples PyTorch's steps took: of batches, of loaders that take turns, in the trace, and what watching ``__next__`` leaves as it was."""

import json
import traceback

import numpy as np
import pytest

from profnb.capture.hooks import watch
from profnb.capture.profiler.torch_door import BatchCount, count_examples
from profnb.profile import Profile
from profnb.trace.chrome.reader import read_chrome

X, Y = np.ones((8, 3)), np.ones(8)


@pytest.mark.parametrize(("batch", "count"), [
    (X, 8), ([X], 8), ((X, Y), 8), ({"ids": X, "mask": (X, [Y])}, 8), ([X, ["a"] * 8], 8), ((X, None), 8),
    ((X, Y[:5]), 0), ((X, np.float32(1)), 0), ("text", 0), ([], 0), (np.ones((0, 3)), 0), ([X] * 1000, 0),
])  # fmt: skip
def test_a_batch_holds_what_the_first_sizes_of_all_its_tensors_agree_on(batch, count):
    assert count_examples(batch, is_batch=True) == count


def test_what_may_be_a_single_example_needs_two_tensors_that_agree():
    assert count_examples(np.ones((3, 224, 224)), is_batch=False) == 0
    assert count_examples((X, Y), is_batch=False) == 8


class Loader:
    def __init__(self, *batches):
        self._batches = iter(batches)

    def __next__(self):
        return next(self._batches)

    def __iter__(self):
        return self


class Collating(Loader):
    _auto_collation = True


def test_a_step_takes_what_its_own_loader_gave_since_the_last_one():
    train, validation, count = Collating(), Collating(), BatchCount()
    assert count.taken() == 0
    for loader in (train, train, validation, validation, train):
        count.came(loader, X, is_batch=False)
    assert count.taken() == 24
    assert count.taken() == 0
    count.came(train, X, is_batch=False)
    count.came(train, "?", is_batch=False)
    count.came(train, X, is_batch=False)
    assert count.taken() == 0  # of one of the three it is not known
    count.came(Loader(), X, is_batch=False)
    assert count.taken() == 0
    count.came(Loader(), X, is_batch=True)
    assert count.taken() == 8


def test_a_watched_next_gives_what_it_gave_and_tells_it():
    """Arrays would not compare with a sentinel, and a traceback has no line of ours."""
    plain, seen, loader = Loader.__next__, [], Loader(X, (X, Y), None)
    with watch(Loader, "__next__", before=lambda _: seen.append("asked"), came=lambda _, value: seen.append(value), hook_failed=seen.append):
        given = list(loader)
        with pytest.raises(StopIteration):
            next(loader)
    assert given[0] is X and given[1][1] is Y and given[2] is None
    assert len(seen) == 5 + 3  # asked five times, three came
    assert vars(Loader)["__next__"] is plain


def test_what_next_raises_passes_with_no_frame_of_ours():
    class Fails(Loader):
        def __next__(self):
            raise ValueError("mine")

    failed = []
    with watch(Fails, "__next__", came=lambda *_: 1 / 0, hook_failed=failed.append), pytest.raises(ValueError, match="mine") as raised:
        for _ in Fails():
            pass
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)] == ["test_what_next_raises_passes_with_no_frame_of_ours", "__next__"]
    assert failed == []  # nothing came
    with watch(Loader, "__next__", came=lambda *_: 1 / 0, hook_failed=failed.append):
        assert list(Loader(1, 2)) == [1, 2]
    assert [type(error) for error in failed] == [ZeroDivisionError] * 2


def test_markers_tell_examples_of_steps_and_their_rate():
    events = []
    for number, examples in enumerate([32, 32, 32, 16]):
        at = 1000 * number
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1, "ts": at, "dur": 900},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": at + 10, "dur": 800},
            {"ph": "X", "cat": "user_annotation", "name": f"profnb.step#{number} train profnb_examples={examples}", "pid": 1, "tid": 1, "ts": at + 890, "dur": 5},
        ]
    p = Profile(read_chrome(np.frombuffer(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), np.uint8), "hand-made"))
    assert p.study.examples.tolist() == [32, 32, 32, 16]
    assert p.study.summary.batch_size == 32
    assert p.study.summary.examples_per_second == pytest.approx(112 / 3.9e-3)  # three gaps of 0.1 ms
    assert "batch size 32" in p.summary()
