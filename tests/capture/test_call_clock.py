"""Which functions run between two steps, call by call: made calls by a clock of our own, then real fits and loops."""

import sys
import threading
from collections import Counter
from inspect import currentframe
from itertools import chain

import pytest
from clocks import stand_still
from made_cell import saves, Cell, callback, callback_list

from profnb.capture.parts import cell_counters
from profnb.capture.parts.cell_counters import CallClock
from profnb.capture.source.source_records import StackRecords
from profnb.capture.source.stacks import Looks, frames_above, name_frames

US = 1_000


class Clock:
    """Time that passes as functions say."""

    def __init__(self, monkeypatch):
        self.now = 1_000_000_000
        monkeypatch.setattr(cell_counters.time, "perf_counter_ns", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def by_function(told):
    """Microseconds by innermost function; what passed in this file's own test by ""."""
    took = Counter()
    for stack, ns in zip(told.stacks.stack, told.took_ns, strict=True):
        names = [told.stacks.frames[at][0].rpartition(".")[2] for at in told.stacks.stacks[stack]]
        name = next(name for name in reversed(names) if not name.startswith("<"))
        took[name if not name.startswith("test_") else ""] += ns // US
    return dict(took)


def test_time_between_calls_belongs_to_the_innermost_function(clock):
    def inner():
        clock.now += 3 * US

    def outer():
        clock.now += 10 * US
        inner()
        clock.now += 20 * US

    gaps = CallClock()
    gaps.begin()
    clock.now += 5 * US
    outer()
    [inner() for _ in range(4)]  # a comprehension is its function's
    clock.now += 7 * US
    gaps.end()
    outer()  # in no gap
    assert by_function(gaps.stop(0)) == {"": 12, "outer": 30, "inner": 15}
    assert sys.getprofile() is None


def test_what_is_freed_as_a_function_returns_is_its_own():
    """A look finds the caller at the instruction that called it, and the function's frame gone."""
    seen = []

    def inner():
        seen.append(list(frames_above(currentframe())))

    def outer():
        inner()
        seen.append(list(frames_above(currentframe())))

    outer()
    within, behind = seen
    looks = Looks(keys=[tuple(chain.from_iterable((id(c), at) for c, at in key)) for key in (within, within[1:], behind)])
    looks.codes.update({id(code): code for key in seen for code, _ in key})
    records = StackRecords()
    name_frames(looks, records)
    names = [records.frames[stack[-1]][0].rpartition(".")[2] for stack in records.stacks]
    assert names == ["inner", "inner", "outer"]


def test_who_called_whom_is_kept_and_gaps_are_told_apart(clock):
    def shared():
        clock.now += 4 * US

    def one():
        shared()

    def two():
        shared()
        shared()

    gaps = CallClock()
    for call in (one, two):
        while not gaps.is_on:  # some gaps are left out
            gaps.begin()
        clock.now += 1 * US
        call()
        gaps.end()
        clock.now += 100 * US
    told = gaps.stop(0)
    assert len(set(told.stacks.time_ns)) == 2
    paths = {}
    for stack, ns in zip(told.stacks.stack, told.took_ns, strict=True):
        names = [told.stacks.frames[at][0].rpartition(".")[2] for at in told.stacks.stacks[stack]]
        if names[-1] == "shared":
            paths[names[-2]] = paths.get(names[-2], 0) + ns
    assert paths == {"one": 4 * US, "two": 8 * US}


def test_an_exception_through_a_gap_is_the_codes_own(clock):
    def fails():
        clock.now += 2 * US
        raise KeyError("mine")

    gaps = CallClock()
    gaps.begin()
    with pytest.raises(KeyError, match="mine") as caught:
        fails()
    clock.now += 3 * US
    gaps.end()
    assert all("profnb/capture" not in str(entry.path) for entry in caught.traceback)
    assert by_function(gaps.stop(0))["fails"] == 2


@pytest.mark.parametrize("where", [sys, threading])
def test_where_somebody_else_is_told_of_calls_nothing_is_touched(clock, where):
    def theirs(*_):
        return None

    where.setprofile(theirs)
    try:
        gaps = CallClock()
        gaps.begin()
        assert not gaps.is_on and where.getprofile() is theirs
        gaps.end()
        assert where.getprofile() is theirs
        assert not gaps.stop(0).took_ns
    finally:
        where.setprofile(None)


def test_a_profiler_that_code_starts_in_a_gap_goes_on(clock):
    def theirs(*_):
        return None

    gaps = CallClock()
    gaps.begin()
    sys.setprofile(theirs)
    try:
        gaps.end()
        assert sys.getprofile() is theirs and not gaps.is_on
    finally:
        sys.setprofile(None)


def test_a_gap_of_many_calls_is_left_and_gaps_cost_a_300th_of_the_cell(clock, monkeypatch):
    monkeypatch.setattr(cell_counters, "_MOST_EVENTS", 100)

    def short():
        clock.now += 10

    gaps = CallClock()
    began = clock.now
    gaps.begin()
    for _ in range(200):
        short()
    assert sys.getprofile() is None  # told no more, though the gap goes on
    gaps.end()
    assert gaps.next_ns >= began + 300 * 100 * 300  # a hundred events of 300 ns, at least
    assert sum(gaps.stop(0).took_ns) == 50 * 10  # of 50 calls and returns


@pytest.mark.parametrize("each", [2, 3, 5, 7])
def test_long_gaps_are_told_as_often_as_short_ones(clock, each):
    """Each second to seventh gap takes 40 ms, the others 0.4 ms: the time until the next one is told ends in a long one, mostly."""
    gaps, told = CallClock(), {True: 0, False: 0}
    for gap in range(4000):
        clock.now += 5_000 * US
        if clock.now >= gaps.next_ns:
            gaps.begin()
        is_long = gap % each == 0
        clock.now += (40_000 if is_long else 400) * US
        if gaps.is_on:
            told[is_long] += 1
            gaps.end()
    assert sum(told.values()) > 100
    assert 0.5 / each < told[True] / sum(told.values()) < 1.6 / each


def fit_with_gaps(*told):
    """Steps with 24 gaps of 0.4 ms, a quarter of it a callback; (which gap is told: what the callback takes more there)."""
    cell, told = Cell(), dict(told)
    with cell.run("fit"):
        cell.step(5, looks=False)
        for step in range(24):
            more = told.get(step, 0)
            cell.gap((0.1 + more, callback_list("on_train_batch_end"), callback("Mine.on_train_batch_end")), (0.3,), told=step in told)
            cell.step(5, looks=False)
    return cell.finish()


def test_gaps_are_divided_as_those_that_were_told():
    parts = fit_with_gaps((3, 0), (9, 0), (20, 0))
    assert parts["callbacks", "Mine.on_train_batch_end"][0] == pytest.approx(24 * 0.1)


def test_calls_that_took_no_time_divide_nothing():
    cell = Cell()
    with cell.run("fit"):
        for _ in range(3):
            cell.step(5, looks=False)
            cell.gap((0, callback_list("on_train_batch_end"), callback("Mine.on_train_batch_end")), told=True)
            cell.work(0.4, looks=False)
        cell.step(5, looks=False)
    assert ("callbacks", "Mine.on_train_batch_end") not in cell.finish()


def test_a_told_gap_that_waited_for_a_core_says_nothing_of_the_others():
    """Of its length it is the only one; told by the sum of all, the callback would have 28 of 29.6 ms."""
    parts = fit_with_gaps((3, 0), (9, 20), (20, 0))
    assert parts["callbacks", "Mine.on_train_batch_end"][0] == pytest.approx(24 * 0.1 + 20)


@pytest.mark.parametrize("told", [(5,), (5, 15), ()], ids=["one save", "two saves", "none"])
def test_gaps_that_are_told_speak_for_those_of_their_length(told):
    """Each fifth of 30 gaps saves the model for 30 ms, one fifth of it in the callback's hook itself; the others take 0.4 ms."""
    cell, keep = Cell(), callback("Keep.on_train_batch_end")
    with cell.run("fit"):
        cell.step(5, looks=False)
        for step in range(1, 31):
            if step % 5:
                cell.gap((0.4,), told=step % 3 == 1)
            else:
                cell.gap((6, callback_list("on_train_batch_end"), keep), (24, callback_list("on_train_batch_end"), keep, saves()), told=step in told)
            cell.step(5, looks=False)
    parts = cell.finish()
    if told:
        assert parts["callbacks", "Keep.on_train_batch_end"][0] == pytest.approx(6 * 6)
        assert parts["checkpointing", "Model.save_weights"][0] == pytest.approx(6 * 24)
    else:
        assert ("callbacks", "Keep.on_train_batch_end") not in parts


@pytest.mark.tensorflow
@pytest.mark.parametrize("works", ["Watch", "Other"])
def test_a_callback_of_short_python_in_each_batch_is_named(monkeypatch, works):
    """No look at the stack meets 1 ms of Python: the lock is not given away in it. Of two callbacks one takes that, and nothing else takes any time."""
    keras, np = pytest.importorskip("keras"), pytest.importorskip("numpy")
    import profnb

    if keras.__version__.startswith("2."):
        pytest.skip("Keras 2 calls the callbacks of a batch inside of its own step")

    clock = stand_still(monkeypatch)

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            clock.now_ns += 1_000 * US if works == "Watch" else 0

    class Other(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            clock.now_ns += 1_000 * US if works == "Other" else 0

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((1_200, 4), "float32"), np.ones((1_200, 1), "float32")
    with profnb.profile() as p:
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[Watch(), Other()])
    tree = p.cell_tree
    took = tree[tree.self_ms > 0].groupby("name").self_ms.sum().drop("reading")  # of what was captured, in real time
    assert took.to_dict() == {f"{works}.on_train_batch_end": pytest.approx(149), "block": pytest.approx(1)}  # behind the last batch nothing is told
    assert [f"`{works}.on_train_batch_end`" in advice.title for advice in p.advice if advice.rule == "callback"] == [True]
    assert sys.getprofile() is None
