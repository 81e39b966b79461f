"""A cell whose looks, steps and callbacks a test makes by hand, with time that passes when the test says so; and a real one."""

from contextlib import contextmanager

import numpy as np
import pytest

import profnb
from profnb.capture.parts.cell_counters import TimedCalls
from profnb.capture.saved.sidecar import CHECKS
from profnb.capture.parts.cell_division import CellCounts, divide_cell
from profnb.capture.source.source_records import StackRecords, TurnRecords
from profnb.capture.step_records import KERAS, KINDS, KerasRunSeen, StepLog

MS, S = 1_000_000, 1_000_000_000

# Frames as they are seen: name, file, first line, line that runs.

KERAS_3, KERAS_2, TENSORFLOW = (f"/x/site-packages/{name}" for name in ("keras/src", "tf_keras/src", "tensorflow/python"))
TRAINER = f"{KERAS_3}/backend/tensorflow/trainer.py"
MINE = "/home/me/mine.py"
CELL = ("<module>", "<ipython-input-3-x>", 1, 8)
IMPORT = ("_find_and_load", "<frozen importlib._bootstrap>", 1165, 1176)


def keras_run(method):
    return (f"TensorFlowTrainer.{method}", TRAINER, 300, 370)


def callback_list(hook):
    return (f"CallbackList.{hook}", f"{KERAS_3}/callbacks/callback_list.py", 20, 25)


def callback(name, line=4):
    return (name, MINE, line, line + 1)


def layer(name="Dense.build"):
    return (name, f"{KERAS_3}/layers/core/dense.py", 100, 110)


def saves(name="Model.save_weights"):
    return (name, f"{KERAS_3}/models/model.py", 300, 320)


def imports(package):
    return IMPORT, ("<module>", f"/x/site-packages/{package}/__init__.py", 1, 3)


MAKES_MODEL = ("Sequential.__init__", f"{KERAS_3}/models/sequential.py", 60, 70)
NEXT_ELEMENT = ("OwnedIterator.__next__", f"{TENSORFLOW}/data/ops/iterator_ops.py", 800, 826)


class Cell:
    """A cell that is looked at as each piece of work ends, unless a test says that there was no time for it."""

    def __init__(self, name_of_file=CELL):
        self.began = self.now = 7
        self.stack = [name_of_file]
        self.log, self.looks, self.own, self.turns, self.flying = StepLog(), StackRecords(7), [], TurnRecords(), []
        self.hooks_ns, self.threads_ns = (0, 0), 0
        self.calls, self.calls_ns = StackRecords(7), []
        self._runs, self._frames, self._stacks = [], {}, {}

    def look(self, records=None, at=None):
        records = self.looks if records is None else records
        rows = tuple(self._frames.setdefault(frame, len(self._frames)) for frame in self.stack)
        records.time_ns.append(self.now if at is None else at)
        records.stack.append(self._stacks.setdefault(rows, len(self._stacks)))

    def gap(self, *pieces, told):
        """Milliseconds and frames, one behind the other, between two steps; no look meets them, but calls may be told."""
        begin = self.now
        for ms, *frames in pieces:
            with self.within(*frames):
                if told:
                    self.look(self.calls, begin)
                    self.calls_ns.append(int(ms * MS))
                self.work(ms, looks=False)

    def work(self, ms, *frames, looks=True):
        self.now += int(ms * MS)
        if looks:
            with self.within(*frames):
                self.look()

    @contextmanager
    def within(self, *frames):
        self.stack += frames
        yield
        del self.stack[len(self.stack) - len(frames) :]

    @contextmanager
    def run(self, method):
        phase = {"fit": "train", "evaluate": "test"}.get(method, method)
        number = 1 + sum(run.phase == phase for run in self.log.runs)
        is_validation = method == "evaluate" and self._runs[-1:] == ["train"] and "on_" not in self.stack[-1][0]
        self.log.runs.append(KerasRunSeen(phase, number, is_validation))
        self._runs.append(phase)
        begin = self.now
        with self.within(keras_run(method)):
            yield
        self._runs.pop()
        if not self._runs:
            self.log.run_spans.append((begin, self.now))

    def callback(self, name, ms=0, *frames, looks=True, inside=None):
        with self.within(callback_list(name.rpartition(".")[2]), callback(name), *frames):
            self.work(ms, looks=looks)
            if inside is not None:
                inside()

    def step(self, ms, kind=KERAS, name="train", *, retraced=False, traced=False, looks=True, inside=None):
        begin = self.now
        if inside is not None:
            inside()
        self.work(ms, looks=looks)
        number = sum(run.phase == name for run in self.log.runs) if kind == KERAS and self._runs else 0
        self.log.end_step(len(self.log), begin, self.now, name, KINDS.index(kind), traced, retraced, 1, 0, number)

    def fail(self, ms, name):
        begin = self.now
        self.work(ms)
        self.log.failed.append((name, begin, self.now))

    def profnb(self, ms, name):
        begin = self.now
        self.work(ms, looks=False)
        self.own.append((name, begin, self.now))

    def epoch_ends(self):
        self.log.ended_at.append(len(self.log))
        self.log.ended_epoch.append(len(self.log.ended_at))

    def records(self):
        """The parts, whose sum is exact."""
        for records in (self.looks, self.calls):
            records.frames[:], records.stacks[:] = self._frames, self._stacks
        counts = CellCounts(self.began, self.now, self.log, self.own, self.turns, self.flying, self.hooks_ns, self.threads_ns)
        found = divide_cell(counts, self.looks, TimedCalls(self.calls, self.calls_ns))
        assert found.wall_ns == self.now - self.began == sum(part.wall_ns for part in found.parts)
        assert all(part.wall_ns >= part.longest_ns >= 0 for part in found.parts)
        assert sum(node.self_ns for node in found.tree) == found.wall_ns
        CHECKS[type(found)](found)  # it is read again from a file
        assert all(node.self_ns >= 0 and node.parent < row for row, node in enumerate(found.tree))
        return found

    def tree(self):
        """Milliseconds alone and occurrences by the way: "fit > epoch > train steps"."""
        found, ways = {}, []
        for node in self.records().tree:
            name = " ".join(word for word in (node.kind, node.name) if word)
            ways.append(f"{ways[node.parent]} > {name}" if node.parent >= 0 else name)
            if node.self_ns:
                found[ways[-1].removeprefix("cell > ")] = node.self_ns / MS, node.occurrences
        return found

    def finish(self):
        """Milliseconds and occurrences by part and name; several rows of the code's own Python are one."""
        found = {}
        for part in self.records().parts:
            ms, count = found.get((part.part, part.name), (0, 0))
            found[part.part, part.name] = ms + part.wall_ns / MS, count + part.occurrences * part.is_counted
        return found


def fit_whose_callback_predicts(epochs):
    """The profile of a real fit, and the class of the callback that predicts at the end of each epoch."""
    keras = pytest.importorskip("keras")

    class Score(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.predict(x, verbose=0)

    x = np.zeros((64, 4), "float32")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    with profnb.profile() as p:
        model.fit(x, x[:, :2], epochs=epochs, verbose=0, callbacks=[Score()])
    return p, Score
