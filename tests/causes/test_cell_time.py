"""Where the whole cell's wall time went: by made looks to the nanosecond, and seconds planted into real cells."""

import ast
import contextlib
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from made_cell import CELL, IMPORT, KERAS_2, KERAS_3, MAKES_MODEL, MINE, MS, NEXT_ELEMENT, TENSORFLOW, TRAINER, S, Cell
from made_cell import callback, callback_list, imports, keras_run, layer, saves

import profnb
from profnb.capture.parts.cell_division import CellCounts, divide_cell
from profnb.capture.hooks import Library
from profnb.capture.parts.cell_counters import InFlight, watch_in_flight
from profnb.capture.parts.cell_counters import OwnTime
from profnb.capture.parts.part_records import (
    AROUND, BUILDING, CALLBACKS, CALLS, CHECKPOINTING, EPOCH_ENDS, EVALUATION, FAILED, FIRST, GAPS, IMPORTS, INPUT, MARKED, OTHER, PARTS,
    PREDICT, PROFNB, SESSION_RUNS, SLOW_FIRST, TRAIN, VALIDATION, CellPart, CellRecords, TreeNode,
)  # fmt: skip
from profnb.capture.step_records import KerasRunSeen, StepLog
from profnb.capture.parts.stack_parts import RUN as IN_RUN
from profnb.capture.parts.stack_parts import StackPart, part_of_stack
from profnb.capture.source.source_records import SourceRecords, StackRecords
from profnb.capture.source.stacks import Sampler
from profnb.capture.step_records import CALL, KERAS, KINDS, RUN, USER
from profnb.drawing.theme import CELL_COLOURS
from profnb.subjects.cell.cell_breakdown import kind_title
from profnb.capture.parts.part_records import CELL as WHOLE
from profnb.causes.cell_tree import grow_tree
from profnb.report.build import build_report
from profnb.subjects.cell.cell_breakdown import break_down_cell

# Which part of the cell a stack is in.


def test_the_stack_in_the_words_of_stack_parts():
    stack = [CELL, keras_run("fit"), callback_list("on_epoch_end"), callback("Saves.on_epoch_end"), saves()]
    found = [part_of_stack(stack[:depth]) for depth in range(1, 6)]
    assert found == [
        StackPart(OTHER, "", "", CELL[1], 8),
        StackPart(IN_RUN, "", "fit", CELL[1], 8),
        StackPart(CALLBACKS, "on_epoch_end", "fit"),
        StackPart(CALLBACKS, "Saves.on_epoch_end", "fit", MINE, 4),
        StackPart(CHECKPOINTING, "Model.save_weights", "fit", MINE, 5),
    ]


def part(*frames):
    found = part_of_stack([CELL, *frames])
    return found.part, found.name, found.run


@pytest.mark.parametrize("file", [
    TRAINER, f"{KERAS_3}/backend/jax/trainer.py", f"{KERAS_3}/backend/torch/trainer.py", f"{KERAS_2}/engine/training.py",
    f"{KERAS_2}/engine/training_v1.py", TRAINER.replace("/", "\\"),
])  # fmt: skip
def test_runs_are_those_of_every_keras(file):
    for method in ("fit", "evaluate", "predict"):
        for name in (method, f"Model.{method}"):  # before Python 3.11 a name may lack its class
            assert part((name, file, 1, 2)) == (IN_RUN, "", method)


def test_what_is_only_called_like_something_of_a_library_is_the_codes_own():
    for name in ("fit", "Model.fit", "Mine.save", "on_epoch_end", "CallbackList.on_epoch_end", "__next__", "Layer.__init__", "_find_and_load"):
        assert part((name, MINE, 1, 2)) == (OTHER, "", "")
    for name in ("SVC.fit", "SVC.predict"):
        assert part((name, "/x/site-packages/sklearn/svm/_base.py", 1, 2)) == (OTHER, "", "")


def test_an_evaluation_that_a_fit_itself_calls_is_its_validation_and_one_of_a_callback_is_not():
    fit, evaluate = keras_run("fit"), keras_run("evaluate")
    assert part(fit, evaluate) == (IN_RUN, "", "validation")
    assert part(evaluate) == (IN_RUN, "", "evaluate")
    mine = [callback_list("on_epoch_end"), callback("Mine.on_epoch_end")]
    assert part(fit, *mine, evaluate) == (IN_RUN, "", "evaluate")
    assert part(fit, *mine, evaluate, callback_list("on_test_end"), callback("Inner.on_test_end")) == (CALLBACKS, "Inner.on_test_end", "evaluate")
    assert part(fit, *mine, fit) == (IN_RUN, "", "fit")
    assert part(keras_run("predict"), callback_list("on_predict_end"), callback("C.on_predict_end"), fit, evaluate) == (IN_RUN, "", "validation")


@pytest.mark.parametrize(("frames", "name"), [
    ([callback("<lambda>")], "LambdaCallback.on_epoch_begin"),
    ([callback("train.<locals>.Slow.on_epoch_begin")], "Slow.on_epoch_begin"),
    ([("EarlyStopping.on_epoch_begin", f"{KERAS_3}/callbacks/early_stopping.py", 1, 2)], "EarlyStopping.on_epoch_begin"),
    ([("EarlyStopping.on_epoch_begin", f"{KERAS_2}/callbacks.py", 1, 2)], "EarlyStopping.on_epoch_begin"),
    ([callback("Mine.on_epoch_begin"), ("EarlyStopping.on_epoch_begin", f"{KERAS_3}/callbacks/early_stopping.py", 1, 2)], "Mine.on_epoch_begin"),
    ([callback("Mine.on_epoch_begin"), callback("Mine.helps")], "Mine.on_epoch_begin"),
    ([callback("Mine.on_train_end")], "Mine.on_epoch_begin"),  # which is bound to two names
    ([callback("Mine.on_epoch_begin"), callback_list("on_epoch_begin"), callback("Inner.on_epoch_begin")], "Mine.on_epoch_begin"),
])  # fmt: skip
def test_a_hook_is_called_after_whose_it_is(frames, name):
    assert part(keras_run("fit"), callback_list("on_epoch_begin"), *frames) == (CALLBACKS, name, "fit")


def test_hooks_of_monitored_sessions_are_callbacks():
    hook = ("SummarySaverHook.after_run", f"{TENSORFLOW}/training/basic_session_run_hooks.py", 1, 2)
    assert part(hook) == (CALLBACKS, "SummarySaverHook.after_run", "")


@pytest.mark.parametrize(("frame", "name"), [
    (MAKES_MODEL, "Sequential"), (layer(), "layers"), (("Layer.__init__", f"{KERAS_3}/layers/layer.py", 1, 2), "layers"),
    (("TextVectorization.adapt", f"{KERAS_3}/layers/preprocessing/text_vectorization.py", 1, 2), "TextVectorization.adapt"),
    (("Functional.__init__", f"{KERAS_3}/models/functional.py", 1, 2), "Functional"), (("Trainer.compile", f"{KERAS_3}/trainers/trainer.py", 1, 2), "Model.compile"),
    (("Sequential.add", f"{KERAS_2}/engine/sequential.py", 1, 2), "Sequential"), (("Model.compile", f"{KERAS_2}/engine/training.py", 1, 2), "Model.compile"),
])  # fmt: skip
def test_what_is_built_is_a_model_by_its_class_or_layers(frame, name):
    assert part(frame) == (BUILDING, name, "")
    assert part(frame, layer(), callback("Mine.build"), layer("Mine.__init__")) == (BUILDING, name, "")
    assert part(keras_run("fit"), frame) == (IN_RUN, "", "fit")  # a model that is built as its first batch comes
    assert part(keras_run("fit"), callback_list("on_epoch_end"), callback("Mine.on_epoch_end"), frame) == (BUILDING, name, "fit")
    assert part(saves("load_model"), frame) == (CHECKPOINTING, "load_model", "")


@pytest.mark.parametrize(("name", "file"), [
    ("Model.save", f"{KERAS_3}/models/model.py"), ("Model.load_weights", f"{KERAS_2}/engine/training.py"), ("load_model", f"{KERAS_3}/saving/saving_api.py"),
    ("Checkpoint.restore", f"{TENSORFLOW}/checkpoint/checkpoint.py"), ("Saver.save", f"{TENSORFLOW}/training/saver.py"),
    ("save", f"{TENSORFLOW}/saved_model/save.py"), ("save", "/x/site-packages/torch/serialization.py"), ("load", "/x/site-packages/torch/serialization.py"),
])  # fmt: skip
def test_what_saves_and_loads_is_named(name, file):
    assert part((name, file, 1, 2))[:2] == (CHECKPOINTING, name)
    assert part((name, file, 1, 2), callback("Mine.get_config"))[:2] == (CHECKPOINTING, name)


def test_a_dataset_that_the_code_iterates_is_input_and_one_that_a_fit_does_is_the_fits():
    assert part(NEXT_ELEMENT) == (INPUT, "", "")
    assert part(callback("load"), NEXT_ELEMENT, callback("generator")) == (INPUT, "", "")
    assert part(("_BaseDataLoaderIter.__next__", "/x/site-packages/torch/utils/data/dataloader.py", 1, 2)) == (INPUT, "", "")
    assert part(keras_run("fit"), NEXT_ELEMENT) == (IN_RUN, "", "fit")


def test_an_import_is_its_packages_whatever_runs_in_it():
    assert part(*imports("pandas")) == (IMPORTS, "pandas", "")
    assert part(*imports("pandas"), *imports("numpy"), layer()) == (IMPORTS, "pandas", "")
    assert part(IMPORT, ("<module>", "/home/me/slow_module.py", 1, 1)) == (IMPORTS, "slow_module", "")
    assert part(IMPORT, ("<module>", "/home/me/package/__init__.py", 1, 1)) == (IMPORTS, "package", "")
    assert part(IMPORT, ("<module>", "/usr/lib/python3/dist-packages/six.py", 1, 1)) == (IMPORTS, "six", "")
    assert part(IMPORT) == (IMPORTS, "", "")  # still looked for
    assert part(keras_run("fit"), *imports("h5py")) == (IMPORTS, "h5py", "fit")


def test_the_codes_own_python_is_at_its_innermost_line_and_the_rest_where_it_is_called():
    inner, numpy = ("helps", MINE, 20, 25), ("sort", "/x/site-packages/numpy/core.py", 1, 2)
    assert part_of_stack([("run_code", "/x/site-packages/IPython/core.py", 1, 5), CELL, inner, numpy]) == StackPart(OTHER, "", "", MINE, 25)
    assert part_of_stack([CELL, inner, MAKES_MODEL]) == StackPart(BUILDING, "Sequential", "", MINE, 25)
    assert part_of_stack([]) == StackPart()  # too deep, or too many of them


# Looks and counters to parts, with time that passes when the test says so.


@pytest.fixture
def cell():
    return Cell()


def test_a_fit_of_two_epochs_with_a_validation(cell):
    """What runs behind the last epoch's last batch is around the fit's steps, as the last epoch has no next one."""
    cell.work(1)
    with cell.run("fit"):
        cell.work(40)
        for epoch in range(2):
            for number in range(3):
                cell.step(100, retraced=not epoch + number)
                cell.callback("Timer.on_batch_end", 7)
                cell.work(2)
            with cell.run("evaluate"):
                cell.work(20)
                for number in range(3):
                    cell.step(30, name="test", retraced=not epoch + number)
                cell.work(5)
            cell.epoch_ends()
            cell.callback("Timer.on_epoch_end", 50)
            cell.work(11)
    assert cell.finish() == {
        (OTHER, ""): (1, 0),
        (AROUND, "fit"): (40 + 2 + 11, 1),
        (FIRST, "train"): (100, 1),
        (TRAIN, "fit"): (500, 5),
        (CALLBACKS, "Timer.on_batch_end"): (42, 6),
        (GAPS, "fit"): (8, 4),
        (EPOCH_ENDS, "fit"): (2 + 11, 2),
        (CALLBACKS, "Timer.on_epoch_end"): (100, 2),
        (AROUND, "validation"): (50, 2),
        (FIRST, "validation"): (30, 1),
        (VALIDATION, "fit"): (150, 5),
    }


def test_the_example_in_the_words_of_cell_division(cell):
    """Of the epoch end of 20 ms three quarters are the callback's; what lies between batches is what the one look saw."""
    with cell.run("fit"):
        for _ in range(2):
            cell.step(10, looks=False)
            cell.work(1, looks=False)
        cell.step(10)
        cell.epoch_ends()
        for _ in range(3):
            cell.callback("Stop.on_epoch_end", 5)
        cell.work(5)
        cell.step(10)
        cell.callback("Log.on_batch_end", 2)
        cell.step(10)
    assert {key: ms for key, (ms, _) in cell.finish().items()} == {
        (TRAIN, "fit"): 50, (CALLBACKS, "Stop.on_epoch_end"): 15, (EPOCH_ENDS, "fit"): 5, (CALLBACKS, "Log.on_batch_end"): 2, (GAPS, "fit"): 2,
    }  # fmt: skip


def test_short_stretches_of_one_kind_are_divided_as_they_were_seen_together(cell):
    """Of 100 gaps of 1 ms between steps of 9 ms each tenth is looked at: seven times in a callback, three in the fit itself."""
    with cell.run("fit"):
        for number in range(101):
            if number:
                frames = [callback_list("on_batch_end"), callback("Log.on_batch_end")] if number % 100 >= 30 else []
                cell.work(1, *frames, looks=number % 10 == 0)
            cell.step(9, looks=False)
    found = cell.finish()
    assert found[TRAIN, "fit"] == (909, 101)
    assert found[GAPS, "fit"][0] == 30
    assert found[CALLBACKS, "Log.on_batch_end"] == (70, 101)
    assert len(found) == 3


def test_without_any_look_the_parts_that_are_counted_have_their_time(cell):
    cell.work(3, looks=False)
    with cell.run("fit"):
        for number in range(4):
            cell.step(10, looks=False)
            if number == 1:
                cell.epoch_ends()
            cell.work(1, looks=False)
    cell.profnb(2, "stop")
    assert cell.finish() == {(OTHER, ""): (3 + 1, 0), (TRAIN, "fit"): (40, 4), (GAPS, "fit"): (2, 2), (EPOCH_ENDS, "fit"): (1, 1), (PROFNB, "stop"): (2, 1)}


def test_shares_that_do_not_divide_lose_no_nanosecond(cell):
    cell.looks.time_ns.append(cell.now)
    with cell.run("fit"):
        for number in range(8):
            cell.step(10, looks=False)
            cell.now += 1_000_003
            with cell.within(callback_list("on_batch_end"), callback(f"C{number % 3}.on_batch_end")):
                cell.look()
    cell.looks.time_ns.pop(0)
    found = [part.wall_ns for part in cell.records().parts if part.part == CALLBACKS]
    assert len(found) == 3 and all(wall_ns > 0 for wall_ns in found)


class Flight:
    """Batches in flight, that land when the test says so."""

    ended_ns = None

    def lands(self, cell):
        self.ended_ns = cell.now


def flies(cell):
    flight = Flight()
    cell.flying.append((cell.now, flight))
    return flight


def test_training_that_still_runs_as_its_epoch_ends_is_training(cell):
    """Three steps take no time to ask for and are computed 60 ms into the validation, whose own work takes 9 ms more."""
    with cell.run("fit"):
        for _ in range(3):
            cell.step(1)
        trained = flies(cell)
        with cell.run("evaluate"):
            cell.work(4)
            for _ in range(2):
                cell.step(3, name="test")
            tested = flies(cell)
            cell.work(60 - 10)
            trained.lands(cell)
            cell.work(9)
            tested.lands(cell)
            cell.work(5)
        cell.epoch_ends()
        cell.callback("Timer.on_epoch_end", 7)
    cell.work(8)
    found = cell.finish()
    assert found == {
        (OTHER, ""): (8, 0),
        (TRAIN, "fit"): (3 + 60, 3),
        (VALIDATION, "fit"): (9, 2),
        (AROUND, "validation"): (5, 1),
        (CALLBACKS, "Timer.on_epoch_end"): (7, 1),
    }
    told = break_down_cell(CellRecords(74 * MS, [CellPart(TRAIN, "fit", 3, 63 * MS, 1 * MS), CellPart(OTHER, "", 0, 11 * MS, 0)]), None)
    assert told.knows_longest.tolist() == [False, False]


def test_what_else_runs_while_batches_are_in_flight_has_its_own_time(cell):
    with cell.run("fit"):
        cell.step(1)
        cell.step(1)
        trained = flies(cell)
        cell.work(2)
        cell.callback("Saver.on_epoch_end", 7)
        trained.lands(cell)
        cell.profnb(20, "stop")
        cell.work(4)
    found = cell.finish()
    assert found[TRAIN, "fit"] == (2 + 2, 2)
    assert found[CALLBACKS, "Saver.on_epoch_end"][0] == 7
    assert found[PROFNB, "stop"] == (20, 1)
    assert sum(ms for ms, _ in found.values()) == 35


def test_batches_in_flight_that_never_land_or_are_of_no_run_are_nobodys(cell):
    flies(cell)
    cell.work(3)
    assert cell.finish() == {(OTHER, ""): (3, 0)}


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
    with watch_in_flight(Library(ModuleType("keras"), failed.append), flights):
        for states in ({}, {"weights": []}, {"weights": [array(ready=True)]}, {"weights": [Gone()]}):
            assert JAXTrainer(**states).jax_state_sync() == 5
        assert not flights
        assert JAXTrainer(weights=[array(ready=False)], metrics=[]).jax_state_sync() == 5
    assert len(flights) == 1 and not failed


def test_a_dataset_that_the_code_iterates_is_input_until_an_element_is_there_or_there_is_none(cell):
    for number in range(4):
        cell.work(5, NEXT_ELEMENT)
        if number < 3:
            cell.work(2)
    assert cell.finish() == {(INPUT, ""): (4 * 5, 0), (OTHER, ""): (3 * 2, 0)}


def test_a_part_inside_another_is_charged_once_to_the_innermost(cell):
    cell.work(100, MAKES_MODEL)
    cell.work(5, MAKES_MODEL, layer())
    cell.work(30, MAKES_MODEL, *imports("a"))
    cell.work(4, MAKES_MODEL, *imports("a"), *imports("b"))
    assert cell.finish() == {(BUILDING, "Sequential"): (105, 0), (IMPORTS, "a"): (34, 0)}


def test_evaluate_and_fit_in_a_callback_are_not_the_callbacks_time(cell):
    def inside():
        with cell.run("evaluate"):
            cell.step(20, name="test")
            cell.step(21, name="test")
        with cell.run("fit"):
            cell.step(30)
            cell.step(31)

    with cell.run("fit"):
        cell.step(10)
        cell.epoch_ends()
        cell.callback("Mine.on_epoch_end", 3, inside=inside)
    assert cell.finish() == {
        (TRAIN, "fit"): (10 + 30 + 31, 3), (CALLBACKS, "Mine.on_epoch_end"): (3, 1), (EVALUATION, "evaluate"): (20 + 21, 2),
    }  # fmt: skip


def test_a_first_step_in_which_nothing_was_traced_is_like_others_unless_it_took_five_times_the_second(cell):
    def run(*times, **first):
        with cell.run("predict"):
            cell.work(3)
            for number, ms in enumerate(times):
                cell.step(ms, name="predict", **(first if not number else {}))
            cell.work(4)

    for _ in range(40):  # predict in a loop
        run(2)
    run(500, retraced=True)
    run(49, 10)
    run(50, 10)
    assert cell.finish() == {
        (AROUND, "predict"): (43 * 7, 43),
        (PREDICT, "predict"): (40 * 2 + 49 + 10 + 10, 43),
        (FIRST, "predict"): (500, 1),
        (SLOW_FIRST, "predict"): (50, 1),
    }


def test_a_run_that_is_cut_off_behind_its_first_step_keeps_it(cell):
    with cell.run("fit"):
        cell.work(1)
        cell.step(70)
        cell.fail(2, "train")
    assert cell.finish() == {(AROUND, "fit"): (1, 1), (TRAIN, "fit"): (70, 1), (FAILED, "train"): (2, 1)}


def test_a_batch_for_which_the_data_had_run_out_is_part_of_the_epochs_end(cell):
    """It is no step, and so it is as any other time between an epoch's last batch and the next one's first."""
    with cell.run("fit"):
        cell.step(10)
        cell.step(10)
        cell.work(90)  # until the iterator says that there is no more
        with cell.run("evaluate"):
            cell.step(5, name="test")
        cell.epoch_ends()
        cell.step(10)
    found = cell.finish()
    assert found[EPOCH_ENDS, "fit"] == (90, 1)
    assert found[TRAIN, "fit"] == (30, 3)
    assert found[VALIDATION, "fit"] == (5, 1)


def test_calls_of_two_functions_are_two_rows(cell):
    for _ in range(3):
        cell.step(14, CALL, "outer")
        cell.step(5, CALL, "other")
        cell.work(1)
    cell.step(100, CALL, "outer", retraced=True)
    assert cell.finish() == {(CALLS, "outer"): (42, 3), (CALLS, "other"): (15, 3), (FIRST, "outer"): (100, 1), (OTHER, ""): (3, 0)}


def test_a_function_called_by_a_callback_or_between_batches_is_no_step_of_the_cell(cell):
    with cell.run("fit"):
        cell.step(10)
        cell.step(3, CALL, "metric")
        cell.callback("Mine.on_batch_end", 1, inside=lambda: cell.step(4, CALL, "mine"))
        cell.step(10)
    found = cell.finish()
    assert found[GAPS, "fit"][0] == 3
    assert found[CALLBACKS, "Mine.on_batch_end"][0] == 5
    assert not any(part == CALLS for part, _ in found)


def test_steps_of_every_kind_have_their_part(cell):
    cell.step(1, USER, "epoch")
    cell.step(2, RUN, "session_run")
    cell.step(3, KERAS, "train")
    cell.fail(4, "predict")
    cell.fail(5, "f")
    with cell.run("predict"):
        cell.step(6, KERAS, "predict", retraced=True)
        cell.step(7, KERAS, "predict")
    cell.work(8, NEXT_ELEMENT)
    cell.work(9, saves("Model.save"))
    cell.profnb(10, "stop")
    assert {key: ms for key, (ms, _) in cell.finish().items() if ms} == {
        (MARKED, "epoch"): 1, (SESSION_RUNS, ""): 2, (TRAIN, "train_on_batch"): 3, (FAILED, "predict"): 4, (FAILED, "f"): 5,
        (FIRST, "predict"): 6, (PREDICT, "predict"): 7, (INPUT, ""): 8, (CHECKPOINTING, "Model.save"): 9, (PROFNB, "stop"): 10,
    }  # fmt: skip


def test_steps_hold_all_that_is_in_them_but_profnbs_own_time(cell):
    def inside():
        cell.work(5, saves("Checkpoint.save"))
        cell.profnb(4, "stop")

    cell.step(10, USER, "train", inside=inside)
    assert cell.finish() == {(MARKED, "train"): (15, 1), (PROFNB, "stop"): (4, 1)}


def test_what_traced_steps_take_longer_and_counting_them_is_profnbs(cell):
    cell.hooks_ns = 3 * MS // 10, 0  # behind each batch there is no room, so it is in the next
    with cell.run("fit"):
        for _ in range(10):
            cell.step(7, traced=True)
        for ms in (4, 5, 6) * 10:
            cell.step(ms)
    assert cell.finish() == {(TRAIN, "fit"): (70 - 20 + 150 - 9, 40), (PROFNB, "tracing"): (20, 0), (PROFNB, "hooks"): (9, 0)}


def test_what_counting_takes_lies_behind_a_step_before_it_is_taken_from_the_next(cell):
    cell.hooks_ns = MS, 2 * MS
    for at in range(20):
        cell.step(4, CALL, "work", traced=at < 5)
        cell.work(3)
    assert cell.finish() == {(CALLS, "work"): (80, 20), (OTHER, ""): (35, 0), (PROFNB, "hooks"): (25, 0)}


def test_what_profnbs_threads_took_is_taken_from_each_part(cell):
    cell.threads_ns = 14 * MS
    for _ in range(20):
        cell.step(4, CALL, "work")
        cell.work(3)
    cell.profnb(60, "stop")
    assert cell.finish() == {(CALLS, "work"): (74.4, 20), (OTHER, ""): (55.8, 0), (PROFNB, "stop"): (60, 1), (PROFNB, "threads"): (9.8, 0)}


def test_calls_that_took_long_are_shorter_by_what_threads_took_of_them_too(cell):
    cell.threads_ns = 2 * MS
    cell.work(12)
    cell.callback("C.on_epoch_end", 3)
    cell.callback("D.on_epoch_end", 5)
    records = cell.records()  # longer ones than their part would not be read again
    assert [wall_ns / MS for wall_ns in records.long_wall_ns] == pytest.approx([3 * 0.9, 5 * 0.9])


def eager_loop(cell, traced, untraced, inside=None):
    """Turns of 8 ms, 10 where they are traced, of which a third is in one line and the others in another."""
    with cell.within(("train", MINE, 1, 5)):
        for turn in range(traced + untraced):
            cell.turns.add(cell.now, 3, -1, turn < traced)
            for at in range(12):
                line = at // 8
                cell.work((8 + 2 * (turn < traced)) / 12, (f"part_{line}", MINE, 20 + line, 30 + line))
            if inside:
                inside()
        cell.turns.add(cell.now, 3, -1, False)


def test_what_traced_turns_of_an_eager_loop_take_longer_is_profnbs(cell):
    eager_loop(cell, 30, 60)
    found = cell.finish()
    assert found.pop((PROFNB, "tracing")) == (pytest.approx(60, abs=0.01), 30)
    assert sum(ms for ms, _ in found.values()) == pytest.approx(720, abs=0.01)
    walls = [node.self_ns / MS for node in cell.records().tree if node.name.startswith("part_")]
    assert walls == pytest.approx([480, 240], rel=0.05)  # each line is still seen as often


@pytest.mark.parametrize(("traced", "untraced"), [(30, 0), (0, 30), (30, 5)])
def test_turns_with_nothing_to_compare_are_as_they_were(cell, traced, untraced):
    eager_loop(cell, traced, untraced)
    assert (PROFNB, "tracing") not in cell.finish()


def test_steps_inside_turns_are_charged_by_themselves(cell):
    eager_loop(cell, 10, 20, inside=lambda: cell.step(40, CALL, "step", traced=cell.turns.was_traced[-1]))
    assert cell.finish()[PROFNB, "tracing"] == (pytest.approx(20, abs=0.01), 10)


def test_steps_without_untraced_ones_beside_them_or_no_longer_than_those_are_as_they_were(cell):
    with cell.run("fit"):
        for _ in range(10):
            cell.step(7, traced=True)
        cell.step(5)
    with cell.run("predict"):
        for ms in (2, 3):
            for _ in range(10):
                cell.step(ms, name="predict", traced=ms == 2)
    assert {key: ms for key, (ms, _) in cell.finish().items()} == {(TRAIN, "fit"): 75, (PREDICT, "predict"): 50}


def test_what_an_exception_cuts_off_is_a_failed_step_and_what_comes_behind_it_is_not(cell):
    with cell.run("fit"):
        cell.step(10)
        cell.fail(70, "train")
        cell.callback("C.on_train_end", 2)
    cell.work(1)
    assert {key: ms for key, (ms, _) in cell.finish().items()} == {
        (TRAIN, "fit"): 10, (FAILED, "train"): 70, (CALLBACKS, "C.on_train_end"): 2, (OTHER, ""): 1,
    }  # fmt: skip


def test_what_lies_outside_of_the_cell_is_none_of_it(cell):
    cell.own.append(("start", cell.now - 5 * MS, cell.now))
    cell.look()
    cell.work(3)
    over = cell.now
    cell.step(4)
    cell.profnb(5, "stop")
    cell.now = over
    assert cell.finish()[OTHER, ""] == (3, 0)


def test_a_cell_of_no_time_has_no_parts():
    assert divide_cell(CellCounts(5, 5, StepLog()), StackRecords()) == CellRecords()
    assert divide_cell(CellCounts(5, 5, StepLog()), Sampler().stop()) == CellRecords()


def test_of_profnbs_own_blocks_the_outermost_counts_and_only_on_its_thread(clock):
    own = OwnTime()
    with own.part("stop"):
        clock.work(3)
        with own.part("start"):
            clock.work(4)
    with pytest.raises(KeyError), own.part("start"):
        clock.work(1)
        raise KeyError

    def elsewhere():
        with own.part("stop"):
            clock.work(9)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert own.spans == [("stop", 7, 7 + 7 * MS), ("start", 7 + 7 * MS, 7 + 8 * MS)]


def test_rows_are_bounded(cell):
    for number in range(2000):
        cell.work(1)
        cell.callback(f"C{number}.on_epoch_end", 1)
    for line in range(2000):
        cell.work(1, ("f", MINE, 1, line + 1))
    records = cell.records()
    assert records.wall_ns == 6000 * MS
    assert len(records.parts) < 330
    assert sum(part.wall_ns for part in records.parts if part.part == CALLBACKS) == 2000 * MS


def test_of_the_codes_own_lines_the_longest_are_kept(cell):
    for line in range(1, 101):
        cell.work(line, ("f", MINE, 1, line))
    found = [(part.line, part.wall_ns // MS) for part in cell.records().parts]
    assert found == [(0, sum(range(1, 81))), *((line, line) for line in range(81, 101))]


def test_each_part_knows_the_line_that_was_seen_most_often(cell):
    for line, times in ((5, 2), (6, 3)):
        for _ in range(times):
            with cell.within(("train", MINE, 1, line)):
                cell.step(10, CALL, "f")
                cell.work(1, saves("Model.save"))
    places = {part.part: (part.file, part.line) for part in cell.records().parts}
    assert places == {CALLS: (MINE, 6), CHECKPOINTING: (MINE, 6)}


def test_what_adapts_is_one_call_between_two_steps_though_it_asks_for_input(cell):
    adapts = ("Normalization.adapt", f"{KERAS_3}/layers/preprocessing/normalization.py", 200, 230)
    for times in (1, 2, 1):  # two features one after the other are no loop over training
        for _ in range(times):
            for ms, inside in ((20, ()), (5, (NEXT_ELEMENT,)), (20, ())):
                cell.work(ms, adapts, *inside)
            cell.work(1)
        cell.step(10, CALL, "learn")
    times = {part.name: (part.occurrences, part.is_counted) for part in cell.records().parts if part.part == BUILDING}
    assert times == {"Normalization.adapt": (3, False)}


def test_functions_that_an_adapting_layer_calls_are_steps_of_its_own(cell):
    """A layer of Keras 2 calls a function for each batch."""
    adapts = ("Normalization.adapt", f"{KERAS_3}/layers/preprocessing/normalization.py", 200, 230)
    for _ in range(20):
        cell.work(20, adapts)
        with cell.within(adapts):
            cell.step(20, CALL, "adapt_step")
    cell.step(10, CALL, "learn")
    times = [part.occurrences for part in cell.records().parts if part.part == BUILDING]
    assert times == [1]


def test_when_the_longest_calls_of_callbacks_ran_is_kept(cell):
    """What a callback calls has a time of its own; steps and what is shorter than 1 ms have none."""
    cell.step(100)
    cell.work(2)
    cell.callback("C.on_epoch_end", 3, inside=lambda: cell.work(5, saves("Model.save")))
    cell.callback("C.on_epoch_end", 0.5)
    cell.callback("D.on_epoch_end", 1)
    cell.callback("D.on_epoch_end", 3)
    records = cell.records()
    calls = zip(records.long_part, records.long_begin_ns, records.long_end_ns, records.long_wall_ns, strict=True)
    named = [(records.parts[row].name, (begin - 7) / MS, (end - 7) / MS, wall / MS) for row, begin, end, wall in calls]
    assert named == [
        ("C.on_epoch_end", 102, 105, 3),
        ("Model.save", 105, 110, 5),
        ("D.on_epoch_end", 110.5, 114.5, 4),
    ]  # fmt: skip


def test_of_many_calls_the_longest_are_kept_of_as_many_rows_as_there_are(cell):
    for number in range(200):
        cell.callback("C.on_epoch_end", 2 + number % 50)
        cell.work(1)
    records = cell.records()
    assert sorted(records.long_wall_ns) == [ms * MS for ms in sorted(2 + number % 50 for number in range(200))[-64:]]
    assert list(records.long_begin_ns) == sorted(records.long_begin_ns)


def test_callbacks_beyond_all_rows_keep_no_calls(cell):
    for number in range(2000):
        cell.callback(f"C{number}.on_epoch_end", 2)
    records = cell.records()
    assert len(records.long_part) <= 300
    assert all(records.parts[row].name for row in records.long_part)


def test_any_steps_and_any_looks_add_up():
    """Times that overlap, lie outside of the cell or run backwards; looks of any number."""
    for seed in range(60):
        chance, made = np.random.default_rng(seed), Cell()
        contexts = contextlib.ExitStack()
        for _ in range(int(chance.integers(1, 60))):
            what, ms, looks = int(chance.integers(9)), float(chance.exponential(4)), bool(chance.integers(2))
            if what < 3:
                made.step(ms, [KERAS, CALL, USER][what], str(chance.choice(["train", "test", "f"])), retraced=bool(chance.integers(2)), looks=looks)
            elif what == 3:
                contexts.enter_context(made.run(str(chance.choice(["fit", "evaluate", "predict"]))))
            elif what == 4:
                made.callback("C.on_epoch_end", ms, looks=looks)
            elif what == 5:
                made.profnb(ms, "stop")
            elif what == 6:
                made.epoch_ends()
            elif what == 7:
                made.fail(ms, "train")
            else:
                flies(made).ended_ns = made.now + int(ms * MS)
        made.work(1, looks=bool(chance.integers(2)))
        made.began += int(chance.integers(0, 3)) * MS // 4
        made.records()


def test_the_next_look_comes_later_the_more_one_costs_and_the_longer_the_cell_runs(monkeypatch):
    """5 ms; a hundred times what a look takes of the interpreter; a five-hundredth of the cell so far."""

    class Clock:
        now = took = 0.0
        perf_counter_ns = staticmethod(lambda: 0)

        def perf_counter(self):
            return self.now

        def thread_time(self):
            return self.took

    clock, waits, costs = Clock(), [], []

    class Counting(Sampler):
        def _is_over(self, period_s):
            waits.append(round(period_s, 6))
            clock.now += costs[len(waits) - 1][0] if len(waits) <= len(costs) else 0
            return len(waits) > len(costs)

        def _look(self, thread):
            super()._look(thread)
            clock.took += costs[len(waits) - 1][1]

    monkeypatch.setattr("profnb.capture.source.stacks.time", clock)
    # How long the wait was, and what the look cost.
    costs += [(0.005, 0.00002)] * 3 + [(0.005, 0.00008)] + [(4.0, 0.00004)]
    sampler = Counting()
    sampler.start()
    sampler._sampler.join()
    # the mean of 20, 20, 20 and 80 us is 35; 4 s late is a forced change of threads, too: 300 us and 40
    assert waits[:4] == [0.005] * 4
    assert waits[4] == 0.005
    assert waits[5] == round((0.000035 + (0.00034 - 0.000035) / 5) / 0.01, 6)
    sampler.stop()


# Parts to a table, to words.


def records(*rows, **rest):
    parts = [CellPart(part, name, count, wall * MS, longest * MS) for part, name, count, wall, longest in rows]
    return CellRecords(sum(part.wall_ns for part in parts), parts, **rest)


def test_a_cell_without_tensorflow_is_python_at_its_lines():
    cell, file = "<ipython-input-5-a>", "/home/me/b.py"
    source = SourceRecords(texts={cell: ("a = 1", "slow()", "slower()")}, cells={cell: 5})
    parts = [
        CellPart(OTHER, "", 0, 70 * MS, 0), CellPart(OTHER, "", 0, 10 * MS, 10 * MS, cell, 1), CellPart(OTHER, "", 0, 400 * MS, 400 * MS, file, 9),
        CellPart(OTHER, "", 0, 520 * MS, 500 * MS, cell, 3), CellPart(PROFNB, "stop", 1, 50 * MS, 50 * MS),
    ]  # fmt: skip
    found = break_down_cell(CellRecords(1050 * MS, parts), source)
    assert list(zip(found.part, found.name, (found.wall_ps / 1e9).tolist(), found.occurrences.tolist(), found.line)) == [
        (OTHER, "", 70, 0, ""),
        (OTHER, "a = 1", 10, 0, "Cell [5]:1"),
        (OTHER, "", 400, 0, "me/b.py:9"),  # whose text is not kept
        (OTHER, "slower()", 520, 0, "Cell [5]:3"),
        (PROFNB, "stop", 50, 1, ""),
    ]


def test_clocks_of_a_machine_that_has_run_for_a_year_do_not_overflow(cell):
    cell.now = cell.began = cell.looks.begin_ns = 365 * 86400 * S
    cell.work(9)
    assert (break_down_cell(cell.records(), None).wall_ps / 1e9).tolist() == [9]


def test_names_are_data():
    evil = "<img src=x onerror=alert(1)>`\x1b[31m"
    seen = records((CALLS, evil, 3, 900, 400), (CALLBACKS, f"{evil}.on_epoch_end", 3, 800, 400))
    seen.tree = [TreeNode(-1, WHOLE), TreeNode(0, CALLS, evil, self_ns=900), TreeNode(0, CALLBACKS, f"{evil}.on_epoch_end", self_ns=800)]
    report = build_report(None, title="t", notes=[], overhead_ps=None, tree=grow_tree(seen, None))
    assert "<img" not in report.html
    assert "&lt;img" in report.html
    assert "\x1b" not in report.text()


def test_names_in_a_stack_are_data(cell):
    evil = "<img src=x>\x1b[31m.on_epoch_end.*(["
    with cell.run("fit"), cell.within(callback_list("on_epoch_end")):
        cell.work(5, (evil, f"/home/{evil}/keras/src/callbacks.py", 1, 2))
    cell.work(5, (evil, evil, 1, 10**9), *imports(evil))
    cell.step(5, CALL, evil)
    assert sorted(part for part, _ in cell.finish()) == sorted([CALLBACKS, IMPORTS, CALLS])


def test_every_part_has_a_meaning_and_a_colour():
    assert set(PARTS) <= set(CELL_COLOURS)
    assert all(f"{kind_title(part)}: {meaning}" in profnb.Profile.cell_breakdown.__doc__.replace("\n", " ") for part, meaning in PARTS.items())


def test_a_trace_of_others_has_none(cpu_trace_path):
    p = profnb.load(cpu_trace_path)
    assert p.cell_breakdown.empty
    assert list(p.cell_breakdown) == ["part", "name", "occurrences", "wall_ms", "fraction", "mean_ms", "longest_ms", "line"]
    assert "Of " not in p.summary().splitlines()[0]
    assert "The whole cell" not in p.summary()


# Real cells, with times planted in them, by a clock that only these move; and one by the machine's.

tensorflow = pytest.mark.tensorflow


def by_a_still_clock(code, error=None):
    """The profile of code by a clock that only its ``work`` moves; what takes time, in milliseconds, and occurrences of all, by part and name."""
    with contextlib.nullcontext() if error is None else pytest.raises(error), profnb.profile() as p:
        code()
    cell, table = p.recording.cell, p.cell_breakdown
    assert sum(part.wall_ns for part in cell.parts) == cell.wall_ns
    assert table.wall_ms.sum() == pytest.approx(cell.wall_ns / MS, rel=1e-9)
    assert table.fraction.sum() == pytest.approx(1)
    took, occurrences = Counter(), Counter()
    for part in cell.parts:
        took[part.part, part.name] += part.wall_ns / MS * (part.part != PROFNB)  # which reads what was captured, in real time
        occurrences[part.part, part.name] += part.occurrences
    return p, dict(+took), occurrences


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
def test_seconds_planted_in_a_fit_are_named(keras, clock, tmp_path):
    class Slow(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            clock.work(500)

        def on_train_batch_end(self, batch, logs=None):
            clock.work(400 if batch == 4 else 0)

        def on_test_end(self, logs=None):
            clock.work(300)

    class SlowLayer(keras.layers.Layer):
        def build(self, shape):
            clock.work(600)
            super().build(shape)

        def save_own_variables(self, store):
            clock.work(800)

        def call(self, x):
            return x

        def compute_output_shape(self, shape):
            return shape

    def code():
        model = keras.Sequential([keras.layers.Input((4,)), SlowLayer(), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        callbacks = [Slow(), keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: clock.work(450))]
        model.fit(X, Y, batch_size=8, epochs=2, validation_data=(X, Y), callbacks=callbacks, verbose=0)
        model.save_weights(str(tmp_path / "a.weights.h5"))
        model.predict(X, batch_size=8, verbose=0)
        clock.work(700)

    p, took, occurrences = by_a_still_clock(code)
    assert took == {
        (CALLBACKS, "Slow.on_epoch_end"): 1000, (CALLBACKS, "Slow.on_train_batch_end"): 800, (CALLBACKS, "Slow.on_test_end"): 600,
        (CALLBACKS, "LambdaCallback.on_epoch_begin"): 900, (BUILDING, "Sequential"): 600,
        (CHECKPOINTING, "Model.save_weights"): 800, (OTHER, ""): 700,
    }  # fmt: skip
    assert occurrences[CALLBACKS, "Slow.on_epoch_end"] == 2
    assert occurrences[TRAIN, "fit"] + occurrences[FIRST, "train"] == 16
    assert occurrences[VALIDATION, "fit"] + occurrences[FIRST, "validation"] == 16
    assert occurrences[PREDICT, "predict"] + occurrences[FIRST, "predict"] == 8
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


@tensorflow
def test_seconds_planted_in_the_data_of_steps_are_those_of_the_steps(keras, tf, clock):
    """In the pipeline of the training, and in that of the validation."""

    def slow(x, y):
        clock.work(100)
        return x, y

    def dataset(count):
        data = tf.data.Dataset.from_tensor_slices((X[:count], Y[:count])).batch(8)
        data = data.map(lambda x, y: tf.numpy_function(slow, (x, y), (tf.float32, tf.float32)))
        return made_when_asked_for(tf, data.map(lambda x, y: (tf.ensure_shape(x, (None, 4)), tf.ensure_shape(y, (None, 2)))))

    def code():
        made_model(keras).fit(dataset(64), validation_data=dataset(40), epochs=2, verbose=0)

    _, took, occurrences = by_a_still_clock(code)
    assert took == {(FIRST, "train"): 100, (TRAIN, "fit"): 15 * 100, (FIRST, "validation"): 100, (VALIDATION, "fit"): 9 * 100}
    assert all(occurrences[key] * 100 == ms for key, ms in took.items())


@tensorflow
def test_evaluate_and_fit_inside_callbacks_of_a_real_fit(keras, clock):
    class Sleeper(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            clock.work(100)

    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            clock.work(7)
            self.model.evaluate(X, Y, batch_size=8, verbose=0, callbacks=[Sleeper()])
            clock.work(5)

    model = made_model(keras)
    _, took, occurrences = by_a_still_clock(lambda: model.fit(X, Y, batch_size=8, epochs=2, callbacks=[Evaluates()], verbose=0))
    assert took == {(CALLBACKS, "Sleeper.on_test_batch_end"): 1600, (CALLBACKS, "Evaluates.on_epoch_end"): 2 * (7 + 5)}  # what slept in it is not its own
    assert (occurrences[EVALUATION, "evaluate"], occurrences[FIRST, "test"]) == (15, 1)
    assert (VALIDATION, "fit") not in occurrences


@tensorflow
def test_a_custom_loop_with_two_functions_and_a_slow_dataset(tf, clock):
    @tf.function
    def train_step(x):
        tf.py_function(lambda: clock.work(50), [], [])
        return x + 1

    @tf.function
    def test_step(x):
        tf.py_function(lambda: clock.work(30), [], [])
        return x + 2

    def slow():
        for number in range(6):
            clock.work(300)
            yield number

    def code():
        data = tf.data.Dataset.from_generator(slow, output_signature=tf.TensorSpec((), tf.int32))
        for x in made_when_asked_for(tf, data):
            train_step(x)
        for x in tf.data.Dataset.range(6):
            test_step(x)
        clock.work(600)

    _, took, occurrences = by_a_still_clock(code)
    assert took == {
        (INPUT, ""): 1800, (FIRST, "train_step"): 50, (CALLS, "train_step"): 250, (FIRST, "test_step"): 30, (CALLS, "test_step"): 150, (OTHER, ""): 600,
    }  # fmt: skip
    assert occurrences[CALLS, "train_step"] == occurrences[CALLS, "test_step"] == 5
    assert occurrences[FIRST, "train_step"] == 1


@tensorflow
def test_an_eager_loop_is_python_and_its_data_is_input(tf, clock):
    weight = tf.Variable(1.0)

    def slow(x):
        clock.work(200)
        return x

    def code():
        data = tf.data.Dataset.range(5).map(lambda x: tf.numpy_function(slow, [x], tf.int64))
        for x in made_when_asked_for(tf, data):
            with tf.GradientTape() as tape:
                loss = weight * tf.cast(x, tf.float32)
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
            clock.work(300)

    assert by_a_still_clock(code)[1] == {(INPUT, ""): 1000, (OTHER, ""): 1500}


@tensorflow
@pytest.mark.parametrize(("place", "part"), [("batch", (FAILED, "train")), ("callback", (CALLBACKS, "Fails.on_epoch_end")), ("python", (OTHER, ""))])
def test_a_cell_that_fails_in_the_middle(keras, tf, clock, place, part):
    @tf.autograph.experimental.do_not_convert
    def fail_at(here):
        if here == place:
            clock.work(800)
            1 / 0

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                fail_at("callback")

    class FailsOnce(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            fail_at("batch")
            return super().train_step(data)

    def code():
        model = FailsOnce()
        model.compile("sgd", "mse")
        model.fit(X, Y, batch_size=8, epochs=3, callbacks=[Fails()], verbose=0)
        fail_at("python")

    assert by_a_still_clock(code, Exception)[1] == {part: 800}  # AutoGraph has an error of its own for what a step raises


@tensorflow
def test_a_function_that_fails_has_all_that_it_took_by_the_machines_clock(tf):
    """And the cell less than what lies around the block, and more than what lies inside."""

    @tf.function
    def broken(x):
        time.sleep(0.5)
        raise ZeroDivisionError

    before_ns = time.perf_counter_ns()
    with pytest.raises(Exception), profnb.profile() as p:  # noqa: PT011 - AutoGraph has an error of its own
        began_ns = time.perf_counter_ns()
        try:
            broken(tf.constant(1.0))
        finally:
            inside_ns = time.perf_counter_ns() - began_ns
    cell = p.recording.cell
    assert inside_ns <= cell.wall_ns <= time.perf_counter_ns() - before_ns
    assert sum(part.wall_ns for part in cell.parts) == cell.wall_ns
    assert sum(part.wall_ns for part in cell.parts if (part.part, part.name) == (FAILED, "broken")) >= 500 * MS  # what is counted is no look's


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
    assert q.summary().splitlines()[0] == p.summary().splitlines()[0] != ""


@pytest.mark.slow
def test_a_module_that_takes_its_time_to_import_is_an_import_and_its_error_has_the_same_traceback(tmp_path):
    """In a process of its own, without TensorFlow, by a clock that only its ``work`` moves."""
    (tmp_path / "slow_module.py").write_text("from __main__ import clock\nclock.work(500)\nimport slow_inside\n")
    (tmp_path / "slow_inside.py").write_text("from __main__ import clock\nclock.work(300)\n")
    (tmp_path / "fails_module.py").write_text("from __main__ import clock\nclock.work(200)\n1 / 0\n")
    code = f"""
import sys, traceback
sys.path[:0] = {str(tmp_path)!r}, {str(Path(__file__).parents[1])!r}
import importlib._bootstrap as bootstrap
import pytest
import profnb
from clocks import stand_still
def error():
    try:
        import fails_module
    except ZeroDivisionError:
        return traceback.format_exc()
clock = stand_still(pytest.MonkeyPatch())
before, plain = bootstrap._find_and_load, error()
with profnb.profile() as p:
    import slow_module
    profiled = error()
    clock.work(400)
assert plain == profiled, profiled
assert bootstrap._find_and_load is before
print({{(q.part, q.name): q.wall_ns / 1e6 for q in p.recording.cell.parts if q.part != {PROFNB!r} and q.wall_ns}})
print(p.summary())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    took, *said = done.stdout.splitlines()
    assert ast.literal_eval(took) == {(IMPORTS, "slow_module"): 800, (IMPORTS, "fails_module"): 200, (OTHER, ""): 400}
    assert re.match(r"Of \d.*? s: imports `slow_module` \d+ %, .*imports `fails_module` \d+ %", said[0])  # profnb's own time is the clock's
    assert "none of it in TensorFlow" in said[1]
