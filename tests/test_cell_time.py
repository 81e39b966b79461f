"""Where the whole cell's wall time went: by a made clock to the nanosecond, and seconds planted into real cells."""

import contextlib
import pickle
import subprocess
import sys
import threading
import time
from array import array
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import profnb
from profnb.capture.hooks import watch_method
from profnb.capture.library import Library
from profnb.capture.parts import part_stack
from profnb.capture.parts.in_flight import InFlight, watch_in_flight
from profnb.capture.parts.part_clock import PartClock
from profnb.capture.parts.part_records import (
    AROUND, BUILDING, CALLBACKS, CALLS, CHECKPOINTING, EPOCH_ENDS, EVALUATION, FAILED, FIRST, GAPS, IMPORTS, INPUT, MARKED, OTHER, PARTS,
    PREDICT, PROFNB, SESSION_RUNS, SLOW_FIRST, TRAIN, VALIDATION, CellPart, CellRecords,
)  # fmt: skip
from profnb.capture.parts.part_watch import PartWatch
from profnb.capture.source.source_records import ENTERED, LEFT, LineRecords, SourceRecords
from profnb.capture.step_records import CALL, KERAS, RUN, USER, OpenStep
from profnb.drawing.theme import CELL_COLOURS
from profnb.report.forms.as_html import _marks
from profnb.report.report import build_report
from profnb.subjects.cell.cell_breakdown import break_down_cell
from profnb.subjects.cell.section import cell_words

MS, S = 1_000_000, 1_000_000_000


# The clock, with time that passes when the test says so.


class Cell:
    """A clock of parts, and a clock that stands still until `work`."""

    def __init__(self, monkeypatch):
        self.now = 7
        monkeypatch.setattr(part_stack, "time", SimpleNamespace(perf_counter_ns=lambda: self.now))
        self.clock = PartClock()
        self.clock.begin()

    def work(self, ms):
        self.now += int(ms * MS)

    def step(self, ms, kind=KERAS, name="train", *, retraced=False, is_step=True, failed=False, inside=None):
        span = OpenStep(None, None if kind == CALL else kind, name, 0, 0, was_traced=False, step_num=0)
        self.clock.step_began(span)
        self.work(ms)
        if inside is not None:
            inside()
        span.kind, span.retraced = kind, retraced
        self.clock.step_ended(span, is_step=is_step, failed=failed)

    def part(self, part, ms, name="", inside=None):
        self.clock.enter(part, name)
        self.work(ms)
        if inside is not None:
            inside()
        self.clock.leave(part)

    def run(self, method, inside):
        self.clock.run_began(method)
        inside()
        self.clock.run_ended(method)

    def finish(self):
        """Milliseconds and occurrences by part and name; the sum is exact."""
        began = 7
        records = self.clock.finish()
        assert records.wall_ns == self.now - began == sum(part.wall_ns for part in records.parts)
        return {(p.part, p.name): (p.wall_ns / MS, p.occurrences) for p in records.parts}


@pytest.fixture
def cell(monkeypatch):
    return Cell(monkeypatch)


def test_the_example_in_the_words_of_part_clock(cell):
    def validation():
        cell.work(20)
        for number in range(3):
            cell.step(30, name="test", retraced=not validated and number == 0)
        validated.append(True)
        cell.work(5)

    def epoch():
        for number in range(3):
            cell.step(100, retraced=not validated and number == 0)
            cell.part(CALLBACKS, 7, "Timer.on_batch_end")
            cell.work(2)
        cell.run("evaluate", validation)
        cell.clock.epoch_ends()
        cell.part(CALLBACKS, 50, "Timer.on_epoch_end")
        cell.work(11)

    def fit():
        cell.work(40)
        epoch()
        epoch()

    validated = []
    cell.work(1)
    cell.run("fit", fit)
    assert cell.finish() == {
        (OTHER, ""): (1, 0),
        (AROUND, "fit"): (40, 1),
        (FIRST, "train"): (100, 1),
        (TRAIN, "fit"): (500, 5),
        (CALLBACKS, "Timer.on_batch_end"): (42, 6),
        (GAPS, "fit"): (8, 4),
        (EPOCH_ENDS, "fit"): (2 * (2 + 11), 2),
        (CALLBACKS, "Timer.on_epoch_end"): (100, 2),
        (AROUND, "validation"): (50, 2),
        (FIRST, "validation"): (30, 1),
        (VALIDATION, "fit"): (150, 5),
        (GAPS, "validation"): (0, 4),
    }


class Flight:
    """Batches in flight, that land when the test says so."""

    ended_ns = None

    def lands(self, cell):
        self.ended_ns = cell.now


def test_training_that_still_runs_as_its_epoch_ends_is_training(cell):
    """Three steps take no time to ask for and are computed 60 ms into the validation, whose own work takes 9 ms more."""

    def validation():
        cell.work(4)
        for at in range(2):
            cell.step(3, name="test")
        cell.clock.batches_fly(tested)
        cell.work(60 - 10)
        trained.lands(cell)
        cell.work(9)
        tested.lands(cell)
        cell.work(5)

    def fit():
        for _ in range(3):
            cell.step(1)
        cell.clock.batches_fly(trained)
        cell.run("evaluate", validation)
        cell.part(CALLBACKS, 7, "Timer.on_epoch_end")

    trained, tested = Flight(), Flight()
    cell.run("fit", fit)
    cell.work(8)
    found = cell.finish()
    assert found == {
        (OTHER, ""): (8, 0),
        (AROUND, "fit"): (0, 1),
        (TRAIN, "fit"): (3 + 60, 3),
        (GAPS, "fit"): (0, 2),
        (EPOCH_ENDS, "fit"): (0, 1),
        (GAPS, "validation"): (0, 1),
        (VALIDATION, "fit"): (9, 2),
        (AROUND, "validation"): (5, 1),
        (CALLBACKS, "Timer.on_epoch_end"): (7, 1),
    }
    told = break_down_cell(CellRecords(74 * MS, [CellPart(TRAIN, "fit", 3, 63 * MS, 1 * MS), CellPart(OTHER, "", 0, 11 * MS, 0)]), None)
    assert told.knows_longest.tolist() == [False, False]


def test_what_else_runs_while_batches_are_in_flight_has_its_own_time(cell):
    def fit():
        cell.step(1)
        cell.step(1)
        cell.clock.batches_fly(trained)
        cell.work(2)
        cell.part(CALLBACKS, 7, "Saver.on_epoch_end")
        trained.lands(cell)
        cell.part(PROFNB, 20, "stop")
        cell.work(4)

    trained = Flight()
    cell.clock.batches_fly(Flight())  # of no run
    cell.run("fit", fit)
    found = cell.finish()
    assert found[TRAIN, "fit"] == (2 + 2, 2)
    assert found[CALLBACKS, "Saver.on_epoch_end"] == (7, 1)
    assert found[PROFNB, "stop"] == (20, 1)
    assert sum(ms for ms, _ in found.values()) == 35


class Array:
    """Ready when the test says so, or broken."""

    def __init__(self, error=None):
        self.error, self.ready, self.has_waited = error, threading.Event(), threading.Event()

    def block_until_ready(self):
        self.has_waited.set()
        if self.error is not None:
            raise self.error
        self.ready.wait(20)


def test_when_work_was_done_is_told_by_another_thread():
    array = Array()
    before = time.perf_counter_ns()
    flight = InFlight(array)
    assert array.has_waited.wait(20) and flight.ended_ns is None
    array.ready.set()
    for _ in range(2000):
        if flight.ended_ns is not None:
            break
        time.sleep(0.01)
    assert before < flight.ended_ns <= time.perf_counter_ns()


def test_work_that_failed_or_is_gone_was_never_in_flight():
    flight = InFlight(Array(RuntimeError("Array has been deleted")))
    for _ in range(2000):
        if flight.ended_ns is not None:
            break
        time.sleep(0.01)
    assert flight.ended_ns <= time.perf_counter_ns()


def test_batches_are_in_flight_where_keras_is_done_with_them_and_their_results_are_not_there(monkeypatch):
    class JAXTrainer:
        def __init__(self, **state):
            self._jax_state = state or None

        def jax_state_sync(self):
            return 5

    class Gone:
        def is_ready(self):
            raise RuntimeError("Array has been deleted")

    def array(*, ready):
        return SimpleNamespace(is_ready=lambda: ready, block_until_ready=lambda: None)

    monkeypatch.setitem(sys.modules, "keras.src.backend.jax.trainer", SimpleNamespace(JAXTrainer=JAXTrainer))
    flights, failed = [], []
    with watch_in_flight(flights.append, failed.append):
        for states in ({}, {"weights": []}, {"weights": [array(ready=True)]}, {"weights": [Gone()]}):
            assert JAXTrainer(**states).jax_state_sync() == 5
        assert not flights
        assert JAXTrainer(weights=[array(ready=False)], metrics=[]).jax_state_sync() == 5
    assert len(flights) == 1 and not failed


def test_a_dataset_that_the_code_iterates_is_input_until_an_element_is_there_or_there_is_none(cell, monkeypatch):
    class OwnedIterator:
        left = 3

        def __iter__(self):
            return self

        def __next__(self):
            cell.work(5)
            if not self.left:
                raise StopIteration
            self.left -= 1

    monkeypatch.setitem(sys.modules, "tensorflow.python.data.ops.iterator_ops", SimpleNamespace(OwnedIterator=OwnedIterator))
    failed = []
    watch = PartWatch(cell.clock, failed.append, lambda **_: None)
    with watch.watch_tensorflow(Library(ModuleType("tensorflow"), failed.append)):
        for _ in OwnedIterator():
            cell.work(2)
    assert not failed
    assert cell.finish() == {(INPUT, ""): (4 * 5, 4), (OTHER, ""): (3 * 2, 0)}


def test_a_part_inside_another_is_charged_once_to_the_innermost(cell):
    inner = lambda: cell.part(IMPORTS, 30, inside=lambda: cell.part(IMPORTS, 4))  # noqa: E731
    cell.part(BUILDING, 100, "Sequential", inside=lambda: (cell.part(BUILDING, 5, "layers"), inner()))
    assert cell.finish() == {(BUILDING, "Sequential"): (105, 1), (IMPORTS, ""): (34, 1)}


def test_evaluate_and_fit_in_a_callback_are_not_the_callbacks_time(cell):
    def fit():
        cell.step(10)
        cell.clock.epoch_ends()
        cell.part(CALLBACKS, 3, "Mine.on_epoch_end", inside=lambda: (cell.run("evaluate", evaluate), cell.run("fit", inner)))

    def evaluate():
        cell.step(20, name="test")
        cell.step(21, name="test")

    def inner():
        cell.step(30)
        cell.step(31)

    cell.run("fit", fit)
    assert cell.finish() == {
        (TRAIN, "fit"): (10 + 30 + 31, 3),
        (CALLBACKS, "Mine.on_epoch_end"): (3, 1),
        (EVALUATION, "evaluate"): (20 + 21, 2),
        (GAPS, "evaluate"): (0, 1),
        (GAPS, "fit"): (0, 1),
    } | {key: (0, count) for key, count in (((AROUND, "fit"), 2), ((AROUND, "evaluate"), 1), ((EPOCH_ENDS, "fit"), 1))}


def test_a_first_step_in_which_nothing_was_traced_is_like_others_unless_it_took_five_times_the_second(cell):
    def run(*times, **first):
        cell.work(3)
        for number, ms in enumerate(times):
            cell.step(ms, name="predict", **(first if not number else {}))
        cell.work(4)

    for _ in range(40):  # predict in a loop
        cell.run("predict", lambda: run(2))
    cell.run("predict", lambda: run(500, retraced=True))
    cell.run("predict", lambda: run(49, 10))
    cell.run("predict", lambda: run(50, 10))
    assert cell.finish() == {
        (AROUND, "predict"): (43 * 7, 43),
        (PREDICT, "predict"): (40 * 2 + 49 + 10 + 10, 43),
        (FIRST, "predict"): (500, 1),
        (SLOW_FIRST, "predict"): (50, 1),
        (GAPS, "predict"): (0, 2),
    }


def test_a_run_that_is_cut_off_behind_its_first_step_keeps_it(cell):
    cell.clock.run_began("fit")
    cell.work(1)
    cell.step(70)
    cell.clock.step_began(OpenStep(None, KERAS, "train", 0, 0, was_traced=False, step_num=1))
    cell.work(2)
    assert cell.finish() == {(AROUND, "fit"): (1, 1), (TRAIN, "fit"): (70, 1), (FAILED, "train"): (2, 1), (GAPS, "fit"): (0, 1)}


def test_a_batch_for_which_the_data_had_run_out_is_part_of_the_epochs_end(cell):
    def fit():
        cell.step(10)
        cell.step(10)
        span = OpenStep(None, KERAS, "train", 0, 0, was_traced=False, step_num=2)
        cell.clock.step_began(span)
        cell.work(90)  # until the iterator says that there is no more
        cell.run("evaluate", lambda: cell.step(5, name="test"))
        cell.clock.step_ended(span, is_step=False)  # Keras' next hook comes late
        cell.clock.epoch_ends()

    cell.run("fit", fit)
    found = cell.finish()
    assert found[EPOCH_ENDS, "fit"] == (90, 1)
    assert found[TRAIN, "fit"] == (20, 2)
    assert found[VALIDATION, "fit"] == (5, 1)


def test_calls_of_two_functions_are_two_rows_and_what_is_called_inside_is_part_of_the_outermost(cell):
    for _ in range(3):
        cell.step(10, CALL, "outer", inside=lambda: cell.step(4, CALL, "inner"))
        cell.step(5, CALL, "other")
        cell.work(1)
    cell.step(100, CALL, "outer", retraced=True)
    assert cell.finish() == {(CALLS, "outer"): (42, 3), (CALLS, "other"): (15, 3), (FIRST, "outer"): (100, 1), (OTHER, ""): (3, 0)}


def test_a_region_of_the_users_is_no_step_and_what_runs_in_it_is_told_apart(cell):
    def region():
        cell.work(2)
        for _ in range(4):
            cell.step(10, CALL, "f", inside=lambda: cell.step(1, CALL, "g"))
        cell.part(IMPORTS, 6, "json")

    cell.step(0, None, "my region", is_step=False, inside=lambda: cell.step(0, None, "inner", is_step=False, inside=region))
    records = cell.clock.finish()
    assert {(p.part, p.name): (p.wall_ns / MS, p.occurrences) for p in records.parts} == {
        (OTHER, ""): (2, 0), (CALLS, "f"): (44, 4), (IMPORTS, "json"): (6, 1),
    }  # fmt: skip
    kept = sum(records.python_end_ns) - sum(records.python_begin_ns)
    assert kept == 2 * MS  # of the code's own Python, for its lines


def test_a_function_called_by_a_callback_or_between_batches_is_no_step_of_the_cell(cell):
    def fit():
        cell.step(10)
        cell.step(3, CALL, "metric")
        cell.part(CALLBACKS, 1, "Mine.on_batch_end", inside=lambda: cell.step(4, CALL, "mine"))
        cell.step(10)

    cell.run("fit", fit)
    found = cell.finish()
    assert found[GAPS, "fit"] == (3, 1)
    assert found[CALLBACKS, "Mine.on_batch_end"] == (5, 1)
    assert not any(part == CALLS for part, _ in found)


def test_steps_of_every_kind_have_their_part(cell):
    cell.step(1, USER, "epoch")
    cell.step(2, RUN, "session_run")
    cell.step(3, KERAS, "train")
    cell.step(4, KERAS, "predict", failed=True, is_step=False)
    cell.step(5, CALL, "f", failed=True, is_step=False)
    cell.run("predict", lambda: (cell.step(6, KERAS, "predict", retraced=True), cell.step(7, KERAS, "predict")))
    cell.part(INPUT, 8)
    cell.part(CHECKPOINTING, 9, "Model.save")
    cell.part(PROFNB, 10, "stop")
    assert {key: ms for key, (ms, _) in cell.finish().items() if ms} == {
        (MARKED, "epoch"): 1, (SESSION_RUNS, ""): 2, (TRAIN, "train_on_batch"): 3, (FAILED, "predict"): 4, (FAILED, "f"): 5,
        (FIRST, "predict"): 6, (PREDICT, "predict"): 7, (INPUT, ""): 8, (CHECKPOINTING, "Model.save"): 9, (PROFNB, "stop"): 10,
    }  # fmt: skip


def test_steps_marked_by_hand_hold_all_that_is_in_them_but_other_parts(cell):
    def inside():
        cell.step(5, CALL, "f", is_step=False)
        cell.run("evaluate", lambda: cell.work(3))
        cell.part(CHECKPOINTING, 2, "Checkpoint.save")

    cell.step(10, USER, "train", inside=inside)
    assert cell.finish() == {(MARKED, "train"): (18, 1), (CHECKPOINTING, "Checkpoint.save"): (2, 1)}


def test_what_an_exception_cuts_off_ends_with_what_it_stands_in(cell):
    cell.clock.run_began("fit")
    cell.step(10)
    cell.clock.step_began(OpenStep(None, KERAS, "train", 0, 0, was_traced=False, step_num=1))
    cell.work(70)
    cell.clock.enter(BUILDING, "layers")
    cell.work(2)
    cell.clock.run_ended("fit")  # the others were never told
    cell.work(1)
    found = cell.finish()
    assert found[FAILED, "train"] == (70, 1)
    assert found[BUILDING, "layers"] == (2, 1)
    assert found[OTHER, ""] == (1, 0)


def test_ends_of_what_never_began_and_other_threads_change_nothing(cell):
    cell.clock.leave(IMPORTS)
    cell.clock.run_ended("fit")
    cell.clock.epoch_ends()
    cell.clock.step_ended(OpenStep(None, KERAS, "train", 0, 0, was_traced=False, step_num=0), is_step=True)
    thread = threading.Thread(target=lambda: (cell.clock.enter(IMPORTS, "json"), cell.clock.run_began("fit")))
    thread.start()
    thread.join()
    cell.work(5)
    assert cell.finish() == {(OTHER, ""): (5, 0)}
    cell.clock.enter(IMPORTS, "late")  # a hook that somebody kept
    assert cell.clock.finish() == CellRecords()


def test_a_capture_that_never_started_has_no_parts():
    assert PartClock().finish() == CellRecords()


def test_rows_and_stretches_are_bounded(cell, monkeypatch):
    monkeypatch.setattr(part_stack, "_MOST_STRETCHES", 100)
    for number in range(2000):
        cell.work(1)
        cell.part(CALLBACKS, 1, f"C{number}.on_epoch_end")
    records = cell.clock.finish()
    assert records.wall_ns == 4000 * MS == sum(part.wall_ns for part in records.parts)
    assert len(records.parts) < 330
    assert len(records.python_begin_ns) == 100


def test_when_the_longest_calls_of_callbacks_ran_is_kept(cell):
    """By itself 3 of 8 ms; what it calls has a time of its own; steps and what is shorter than 1 ms have none."""
    cell.step(100)
    cell.work(2)
    cell.part(CALLBACKS, 3, "C.on_epoch_end", inside=lambda: cell.part(CHECKPOINTING, 5, "Model.save"))
    cell.part(CALLBACKS, 0.5, "C.on_epoch_end")
    cell.clock.enter(CALLBACKS, "D.on_epoch_end")
    cell.work(4)
    records = cell.clock.finish()
    calls = zip(records.long_part, records.long_begin_ns, records.long_end_ns, records.long_wall_ns, strict=True)
    named = [(records.parts[row].name, (begin - 7) / MS, (end - 7) / MS, wall / MS) for row, begin, end, wall in calls]
    assert named == [
        ("C.on_epoch_end", 102, 110, 3),
        ("Model.save", 105, 110, 5),
        ("D.on_epoch_end", 110.5, 114.5, 4),
    ]  # fmt: skip


def test_of_many_calls_the_longest_are_kept_of_as_many_rows_as_there_are(cell):
    for number in range(200):
        cell.part(CALLBACKS, 2 + number % 50, "C.on_epoch_end")
    records = cell.clock.finish()
    assert sorted(records.long_wall_ns) == [ms * MS for ms in sorted(2 + number % 50 for number in range(200))[-64:]]
    assert list(records.long_begin_ns) == sorted(records.long_begin_ns)


def test_callbacks_beyond_all_rows_keep_no_calls(cell):
    for number in range(2000):
        cell.part(CALLBACKS, 2, f"C{number}.on_epoch_end")
    records = cell.clock.finish()
    assert len(records.long_part) <= 300
    assert all(records.parts[row].name for row in records.long_part)


def test_many_calls_do_not_use_up_the_stretches_of_the_codes_own_python(cell, monkeypatch):
    monkeypatch.setattr(part_stack, "_MOST_STRETCHES", 3000)
    for _ in range(2000):
        cell.work(1)
        cell.step(1, CALL, "f")
    records = cell.clock.finish()
    assert sum(records.python_end_ns) - sum(records.python_begin_ns) == 2000 * MS


# Parts to a table, to words.


def records(*rows, **rest):
    parts = [CellPart(part, name, count, wall * MS, longest * MS) for part, name, count, wall, longest in rows]
    return CellRecords(sum(part.wall_ns for part in parts), parts, **rest)


def test_a_cell_in_words():
    found = break_down_cell(
        records(
            (OTHER, "", 0, 100, 0), (TRAIN, "fit", 10, 2800, 300), (VALIDATION, "fit", 10, 3200, 300),
            (CALLBACKS, "ReduceLROnPlateau.on_epoch_end", 2, 1500, 900), (CALLBACKS, "ReduceLROnPlateau.on_train_begin", 1, 500, 500),
            (CALLBACKS, "Mine.on_epoch_end", 1, 1800, 1800), (PROFNB, "start", 1, 100, 100),
        ),
        None,
    )  # fmt: skip
    words = cell_words(found, has_eager_ops=True)
    assert words.text == "Of 10.0 s: validation 32 %, training 28 %, `ReduceLROnPlateau` 20 %, `Mine` 18 %, other parts 1 %, profnb itself 1 %."
    assert sum(share.fraction for share in words.shares) == pytest.approx(1)
    assert len({share.colour for share in words.shares}) == len(words.shares)


def test_words_for_the_set_up_of_runs_say_how_many_runs():
    loop = records((AROUND, "predict", 40, 9000, 900), (PREDICT, "predict", 40, 1000, 30))
    assert cell_words(break_down_cell(loop, None), has_eager_ops=True).text == "Of 10.0 s: set-up of runs 90 % (40 times predict), prediction 10 %."
    one = records((AROUND, "fit", 1, 9000, 9000), (TRAIN, "fit", 40, 1000, 30))
    assert cell_words(break_down_cell(one, None), has_eager_ops=True).text == "Of 10.0 s: set-up of runs 90 %, training 10 %."
    two = records((AROUND, "fit", 1, 1000, 1000), (AROUND, "validation", 3, 8000, 3000), (TRAIN, "fit", 40, 1000, 30))
    assert "set-up of runs 90 % (fit, 3 times validation)" in cell_words(break_down_cell(two, None), has_eager_ops=True).text


def test_a_cell_without_tensorflow_is_python_at_its_lines():
    lines = LineRecords(
        array("q", [row * MS for row in (0, 0, 10, 20, 420, 430, 930)]), array("i", [0, 0, 0, 1, 1, 0, 0]),
        array("i", [ENTERED, 1, 2, ENTERED, LEFT, 3, LEFT]), ["<ipython-input-5-a>", "b.py"],
    )  # fmt: skip
    source = SourceRecords(lines=lines, texts={"<ipython-input-5-a>": ("a = 1", "slow()", "slower()")}, cells={"<ipython-input-5-a>": 5})
    whole = records((OTHER, "", 0, 1000, 0), (PROFNB, "stop", 1, 50, 50), python_begin_ns=array("q", [0]), python_end_ns=array("q", [1000 * MS]))
    found = break_down_cell(whole, source)
    assert list(zip(found.part, found.name, (found.wall_ps / 1e9).tolist(), found.occurrences.tolist(), found.line)) == [
        (OTHER, "", 70, 0, ""),
        (OTHER, "a = 1", 10, 1, "Cell [5]:1"),
        (OTHER, "slow()", 10 + 400 + 10, 1, "Cell [5]:2"),  # and a function of which no line is known
        (OTHER, "slower()", 500, 1, "Cell [5]:3"),
        (PROFNB, "stop", 50, 1, ""),
    ]
    assert cell_words(found, has_eager_ops=False).text == "Of 1.05 s: Python 95 % (most of it `slower()`, Cell [5]:3), profnb itself 5 %."


def test_python_in_other_parts_is_not_its_lines():
    """The line that calls fit lasts as long as the fit, most of which is other parts."""
    lines = LineRecords(array("q", [0, 0, 100 * MS]), array("i", [0, 0, 0]), array("i", [ENTERED, 1, LEFT]), ["a.py"])
    stretches = {"python_begin_ns": array("q", [10 * MS, 80 * MS]), "python_end_ns": array("q", [15 * MS, 90 * MS])}
    found = break_down_cell(records((OTHER, "", 0, 15, 0), (TRAIN, "fit", 3, 85, 40), **stretches), SourceRecords(lines=lines))
    assert list(zip(found.part, (found.wall_ps / 1e9).tolist(), found.line)) == [(OTHER, 15, "a.py:1"), (TRAIN, 85, "")]


def test_clocks_of_a_machine_that_has_run_for_a_year_do_not_overflow():
    base = 365 * 86400 * S
    lines = LineRecords(array("q", [base, base, base + 9 * MS]), array("i", [0, 0, 0]), array("i", [ENTERED, 1, LEFT]), ["a.py"])
    stretches = {"python_begin_ns": array("q", [base]), "python_end_ns": array("q", [base + 9 * MS])}
    found = break_down_cell(records((OTHER, "", 0, 9, 0), **stretches), SourceRecords(lines=lines))
    assert (found.wall_ps / 1e9).tolist() == [9]


def test_names_are_data():
    evil = "<img src=x onerror=alert(1)>`\x1b[31m"
    found = break_down_cell(records((CALLS, evil, 3, 900, 400), (CALLBACKS, f"{evil}.on_epoch_end", 3, 800, 400)), None)
    report = build_report(None, title="t", notes=[], overhead_ps=None, cell=found)
    assert "<img" not in report.html
    assert "&lt;img" in report.html
    assert "\x1b" not in report.text()


def test_the_bar_is_as_long_as_the_whole_and_no_mark_is_lost():
    rng = np.random.default_rng(0)
    for count in range(1, 9):
        shares = rng.dirichlet(np.ones(count)).tolist()
        marks = _marks(shares)
        assert sum(marks) == 72
        assert all(abs(mark - 72 * share) <= 1 for mark, share in zip(marks, shares, strict=True))


def test_every_part_has_a_meaning_and_a_colour():
    assert set(PARTS) <= set(CELL_COLOURS)
    assert all(f"{part}: {meaning}" in profnb.Profile.cell_breakdown.__doc__.replace("\n", " ") for part, meaning in PARTS.items())


def test_a_trace_of_others_has_none(cpu_trace_path):
    p = profnb.load(cpu_trace_path)
    assert p.cell_breakdown.empty
    assert list(p.cell_breakdown) == ["part", "name", "occurrences", "wall_ms", "fraction", "mean_ms", "longest_ms", "line"]
    assert "Of " not in p.summary().splitlines()[1]
    assert "The whole cell" not in p.summary()


# Real cells, with sleeps planted in them.

tensorflow = pytest.mark.tensorflow


def spent(p):
    """Milliseconds by part and name; the sum is the cell's wall time, to the nanosecond, and the table says the same."""
    cell = p.recording.cell
    assert sum(part.wall_ns for part in cell.parts) == cell.wall_ns
    table = p.cell_breakdown
    assert table.wall_ms.sum() == pytest.approx(cell.wall_ns / 1e6, rel=1e-9)
    assert table.fraction.sum() == pytest.approx(1)
    return table.groupby(["part", "name"]).wall_ms.sum().to_dict()


def timed(code, error=None):
    """The profile of a function. The clock saw less than what lies around the block, and more than what lies inside."""
    inside = []

    def measured():
        began = time.perf_counter_ns()
        try:
            code()
        finally:
            inside.append(time.perf_counter_ns() - began)

    before = time.perf_counter_ns()
    with contextlib.nullcontext() if error is None else pytest.raises(error), profnb.profile() as p:
        measured()
    assert inside[0] <= p.recording.cell.wall_ns <= time.perf_counter_ns() - before
    return p


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def keras(request, tf):
    return pytest.importorskip(request.param)


def made_model(keras):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


X, Y = np.ones((64, 4), "float32"), np.ones((64, 2), "float32")


@tensorflow
def test_seconds_planted_in_a_fit_are_named(keras, tmp_path):
    class Slow(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            time.sleep(0.5)

        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.05)

        def on_test_end(self, logs=None):
            time.sleep(0.3)

    class SlowLayer(keras.layers.Layer):
        def build(self, shape):
            time.sleep(0.6)
            super().build(shape)

        def call(self, x):
            return x

        def compute_output_shape(self, shape):
            return shape

    def code():
        model = keras.Sequential([keras.layers.Input((4,)), SlowLayer(), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        callbacks = [Slow(), keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: time.sleep(0.4))]
        model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X, Y), callbacks=callbacks, verbose=0)
        model.save_weights(str(tmp_path / "a.weights.h5"))
        model.predict(X, batch_size=8, verbose=0)
        time.sleep(0.7)

    p = timed(code)
    found = spent(p)
    planted = {
        (CALLBACKS, "Slow.on_epoch_end"): 1000, (CALLBACKS, "Slow.on_train_batch_end"): 800, (CALLBACKS, "Slow.on_test_end"): 600,
        (CALLBACKS, "LambdaCallback.on_epoch_begin"): 800, (BUILDING, "Sequential"): 600,
    }  # fmt: skip
    assert [key for key, ms in planted.items() if found[key] < ms] == []
    python = sum(ms for (part, _), ms in found.items() if part == OTHER)
    assert python >= 700
    occurrences = p.cell_breakdown.set_index(["part", "name"]).occurrences
    assert occurrences[CALLBACKS, "Slow.on_epoch_end"] == 2
    assert occurrences[TRAIN, "fit"] + occurrences[FIRST, "train"] == 16
    assert occurrences[VALIDATION, "fit"] + occurrences[FIRST, "validation"] == 16
    assert occurrences[PREDICT, "predict"] + occurrences[FIRST, "predict"] == 8
    assert occurrences[EPOCH_ENDS, "fit"] == 2
    assert occurrences[CHECKPOINTING, "Model.save_weights"] == 1
    line = p.cell_breakdown.set_index(["part", "name"]).line[CALLBACKS, "Slow.on_epoch_end"]
    assert line.endswith(f"test_cell_time.py:{Slow.on_epoch_end.__code__.co_firstlineno}")
    assert "Slow" not in str(vars(keras.callbacks.LambdaCallback))
    assert type(vars(Slow)["on_epoch_end"]).__name__ == "function"  # as it was


def made_when_asked_for(tf, dataset):
    """The same elements, none of which is made ahead: whoever asks waits for all of it."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def by_a_still_clock(code):
    """What takes time, in milliseconds, and occurrences of all, by part and name: of the clock of ``cell``, which only ``cell.work`` moves."""
    with profnb.profile() as p:
        code()
    spent(p)
    parts = [part for part in p.recording.cell.parts if part.part != PROFNB]
    took = {(part.part, part.name): part.wall_ns / MS for part in parts if part.wall_ns}
    return took, {(part.part, part.name): part.occurrences for part in parts}


@tensorflow
def test_seconds_planted_in_the_data_of_steps_are_those_of_the_steps(keras, tf, cell):
    """In the pipeline of the training, and in that of the validation."""

    def slow(x, y):
        cell.work(100)
        return x, y

    def dataset(count):
        data = tf.data.Dataset.from_tensor_slices((X[:count], Y[:count])).batch(8)
        data = data.map(lambda x, y: tf.numpy_function(slow, (x, y), (tf.float32, tf.float32)))
        return made_when_asked_for(tf, data.map(lambda x, y: (tf.ensure_shape(x, (None, 4)), tf.ensure_shape(y, (None, 2)))))

    def code():
        made_model(keras).fit(dataset(64), validation_data=dataset(40), epochs=2, verbose=0)

    took, occurrences = by_a_still_clock(code)
    assert took == {(FIRST, "train"): 100, (TRAIN, "fit"): 15 * 100, (FIRST, "validation"): 100, (VALIDATION, "fit"): 9 * 100}
    assert all(occurrences[key] * 100 == ms for key, ms in took.items())


@tensorflow
def test_evaluate_and_fit_inside_callbacks_of_a_real_fit(keras, cell):
    class Sleeper(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            cell.work(100)

    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            cell.work(7)
            self.model.evaluate(X, Y, batch_size=8, verbose=0, callbacks=[Sleeper()])
            cell.work(5)

    model = made_model(keras)
    took, occurrences = by_a_still_clock(lambda: model.fit(X, Y, batch_size=8, epochs=2, callbacks=[Evaluates()], verbose=0))
    assert took == {(CALLBACKS, "Sleeper.on_test_batch_end"): 1600, (CALLBACKS, "Evaluates.on_epoch_end"): 2 * (7 + 5)}  # what slept in it is not its own
    assert (occurrences[EVALUATION, "evaluate"], occurrences[FIRST, "test"]) == (15, 1)
    assert (VALIDATION, "fit") not in occurrences


@tensorflow
def test_a_custom_loop_with_two_functions_and_a_slow_dataset(tf):
    @tf.function
    def train_step(x):
        tf.py_function(lambda: time.sleep(0.05), [], [])
        return x + 1

    @tf.function
    def test_step(x):
        tf.py_function(lambda: time.sleep(0.03), [], [])
        return x + 2

    def slow():
        for number in range(6):
            time.sleep(0.3)
            yield number

    def code():
        data = tf.data.Dataset.from_generator(slow, output_signature=tf.TensorSpec((), tf.int32))
        for x in made_when_asked_for(tf, data):
            train_step(x)
        for x in tf.data.Dataset.range(6):
            test_step(x)
        time.sleep(0.6)

    p = timed(code)
    found = spent(p)
    assert found[CALLS, "train_step"] >= 250
    assert found[CALLS, "test_step"] >= 150
    assert found[INPUT, ""] >= 1800
    assert sum(ms for (part, _), ms in found.items() if part == OTHER) >= 600
    occurrences = p.cell_breakdown.set_index(["part", "name"]).occurrences
    assert occurrences[CALLS, "train_step"] == occurrences[CALLS, "test_step"] == 5
    assert occurrences[FIRST, "train_step"] == 1
    assert occurrences[INPUT, ""] == 14  # each loop asks once more than there are


@tensorflow
def test_an_eager_loop_is_python_and_eager_ops_and_its_data_is_input(tf):
    weight = tf.Variable(1.0)

    def code():
        for x in tf.data.Dataset.range(5):
            with tf.GradientTape() as tape:
                loss = weight * tf.cast(x, tf.float32)
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
            time.sleep(0.2)

    p = timed(code)
    found = spent(p)
    assert sum(ms for (part, _), ms in found.items() if part == OTHER) >= 1000
    assert (INPUT, "") in found
    assert "Python and eager ops" in p.summary().splitlines()[1]


@tensorflow
@pytest.mark.parametrize("place", ["batch", "callback", "python"])
def test_a_cell_that_fails_in_the_middle(keras, place):
    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1 and place == "callback":
                time.sleep(0.8)
                1 / 0

    class FailsOnce(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            if place == "batch":
                time.sleep(0.8)
                1 / 0
            return super().train_step(data)

    def code():
        model = FailsOnce()
        model.compile("sgd", "mse")
        model.fit(X, Y, batch_size=8, epochs=3, callbacks=[Fails()], verbose=0)
        time.sleep(0.8)
        1 / 0

    found = spent(timed(code, Exception))  # AutoGraph has an error of its own for what a step raises
    if place == "batch":
        assert found[FAILED, "train"] >= 800
    elif place == "callback":
        assert found[CALLBACKS, "Fails.on_epoch_end"] >= 800
    else:
        assert sum(ms for (part, _), ms in found.items() if part == OTHER) >= 800


@tensorflow
def test_a_function_that_fails(tf):
    @tf.function
    def broken(x):
        time.sleep(0.5)
        raise ZeroDivisionError

    found = spent(timed(lambda: broken(tf.constant(1.0)), Exception))
    assert found[FAILED, "broken"] >= 500


@tensorflow
def test_traced_or_not_and_without_the_trace_at_all(tf, keras):
    def parts(**options):
        with profnb.profile(**options) as p:
            made_model(keras).fit(X, Y, batch_size=8, epochs=4, verbose=0)
        occurrences = p.cell_breakdown.set_index(["part", "name"]).occurrences
        return {key: occurrences[key] for key in ((TRAIN, "fit"), (FIRST, "train"), (EPOCH_ENDS, "fit"))}

    assert parts(max_steps=3) == parts(max_steps=100) == {(TRAIN, "fit"): 31, (FIRST, "train"): 1, (EPOCH_ENDS, "fit"): 4}


@tensorflow
def test_it_is_kept_beside_a_saved_trace(tf, tmp_path):
    from profnb.capture.saved.sidecar import sidecar_of

    @tf.function
    def f(x):
        return x + 1

    with profnb.profile() as p:
        for _ in range(5):
            f(tf.constant(1.0))
    path = p.save(tmp_path)
    q = profnb.load(path)
    assert sidecar_of(path).exists()
    assert q.recording.cell == p.recording.cell
    assert q.cell_breakdown.equals(p.cell_breakdown)
    assert q.summary().splitlines()[1] == p.summary().splitlines()[1] != ""


@pytest.mark.slow
def test_a_module_that_takes_its_time_to_import_is_an_import_and_its_error_has_the_same_traceback(tmp_path):
    """In a process of its own, without TensorFlow."""
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.5)\nimport slow_inside\n")
    (tmp_path / "slow_inside.py").write_text("import time\ntime.sleep(0.3)\n")
    (tmp_path / "fails_module.py").write_text("import time\ntime.sleep(0.2)\n1 / 0\n")
    code = f"""
import sys, time, traceback
sys.path.insert(0, {str(tmp_path)!r})
import importlib._bootstrap as bootstrap
import profnb
def error():
    try:
        import fails_module
    except ZeroDivisionError:
        return traceback.format_exc()
before, plain = bootstrap._find_and_load, error()
with profnb.profile() as p:
    import slow_module
    profiled = error()
    time.sleep(0.4)
assert plain == profiled, profiled
assert bootstrap._find_and_load is before
parts = {{(q.part, q.name): q.wall_ns / 1e6 for q in p.recording.cell.parts}}
assert parts["imports", "slow_module"] >= 800, parts
assert parts["other Python", ""] >= 400, parts
assert sum(ms for (part, _), ms in parts.items() if part == "imports") >= 1000, parts
print(p.summary())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "none of it in TensorFlow" in done.stdout.splitlines()[0]
    assert "Python" in done.stdout.splitlines()[1]


class Counted:
    """A callback that somebody's class hierarchy calls twice."""

    def on_epoch_end(self, epoch, logs=None):
        return epoch


def test_a_watched_class_that_is_pickled_whole_keeps_its_own_methods(cell):
    with watch_method(Counted, "on_epoch_end", lambda _: cell.clock.enter(CALLBACKS, "Counted.on_epoch_end")):
        attribute = vars(Counted)["on_epoch_end"]
        assert type(attribute).__name__ == "_WatchedMethod"
        assert pickle.loads(pickle.dumps(attribute)) is Counted.on_epoch_end
    assert vars(Counted)["on_epoch_end"] is pickle.loads(pickle.dumps(Counted.on_epoch_end))
