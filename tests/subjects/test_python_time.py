"""Where Python's time went: samples of its stack, and profiles that cProfile saved."""

import os
import cProfile
import gc
import marshal
import pstats
import struct
import subprocess
import sys
import threading
import time

import pytest
from clocks import LockStep

import profnb
from profnb.subjects.python.python_time import tabulate_python
from profnb.capture.source.user_code import shorten_files
from profnb.capture.source.source_records import StackRecords
from profnb.capture.step_records import KERAS, StepRecords
from profnb.capture import session
from profnb.capture.source import stacks as stacks_module
from profnb.capture.source.stacks import Sampler, lines_of_stacks
from profnb.core.errors import CaptureError, TraceFormatError
from profnb.trace.pstats_file import read_pstats

MS = 10**9
SHELL = ("run_code", "/x/site-packages/IPython/core.py", 1, 5)
CELL = ("<module>", "<ipython-input-1-x>", 1, 2)
FIT = ("fit", "/x/site-packages/keras/trainer.py", 10, 20)
INNER = ("_loop", "/x/site-packages/keras/trainer.py", 50, 55)
LOG = ("Log.on_batch_end", "/home/me/log.py", 3, 4)


def stacks(*samples):
    """(milliseconds since the one before, stack) per sample."""
    found, frames, rows = StackRecords(), {}, {}
    now = 0
    for took, stack in samples:
        now += took * 1_000_000
        for frame in stack:
            frames.setdefault(frame, len(frames))
        found.time_ns.append(now)
        found.stack.append(rows.setdefault(tuple(frames[frame] for frame in stack), len(rows)))
    found.stacks, found.frames = list(rows), list(frames)
    return found


def steps(*windows):
    found = StepRecords(names=["train"])
    for begin, end in windows:
        found.append(begin * 1_000_000, end * 1_000_000, 0, found.kinds.index(KERAS), 1, 0, 1, 0, 0)
    return found


def table(python):
    return {name: row for row, (name, _, _) in enumerate(python.function)}


def test_a_sample_stands_for_the_time_since_the_one_before():
    # 1 ms: in the cell; 2 ms more: in a step; 4 ms more: a callback between steps
    python = tabulate_python(stacks((1, [SHELL, CELL]), (2, [SHELL, CELL, FIT, INNER]), (4, [SHELL, CELL, FIT, INNER, LOG])), steps((2, 4)))
    rows = table(python)
    assert "run_code" not in rows  # the shell is none of the user's
    assert python.whole_ps == 7 * MS
    own = {name: (python.self_ps[row] // MS, python.total_ps[row] // MS, python.inside_ps[row] // MS, python.between_ps[row] // MS) for name, row in rows.items()}
    assert own == {"<module>": (1, 7, 2, 5), "fit": (0, 6, 2, 4), "_loop": (2, 6, 2, 4), "Log.on_batch_end": (4, 4, 0, 4)}
    assert python.function[0][0] == "Log.on_batch_end"


def test_a_function_that_calls_itself_counts_once():
    again = ("again", "/home/me/a.py", 1, 2)
    python = tabulate_python(stacks((3, [CELL, again, again, again])), steps())
    assert python.total_ps[table(python)["again"]] == 3 * MS
    assert not python.has_steps


def test_the_tree_keeps_the_users_code_and_what_it_called_of_a_library():
    python = tabulate_python(stacks((1, [CELL, FIT, INNER, LOG]), (3, [CELL, FIT, INNER])), steps())
    blocks = [(block.level, block.label, block.begin, block.width) for block in python.blocks]
    assert blocks == [(0, "your code", 0.0, 1.0), (1, "fit", 0.0, 1.0), (2, "Log.on_batch_end", 0.0, 0.25)]


def test_lines_of_samples_are_the_innermost_of_the_users():
    lines = lines_of_stacks(stacks((1, [SHELL]), (1, [SHELL, CELL, FIT]), (1, [CELL, FIT, LOG])))
    assert list(lines.line) == [0, 2, 4]
    assert lines.is_sampled


def test_calls_are_found_by_what_they_take_and_the_switch_interval_stays(monkeypatch):
    """Short calls take a millisecond each and long ones three, by the sampler's own clock."""
    clock = LockStep(monkeypatch)

    def short():
        clock.pass_time(1)

    def long():
        clock.pass_time(3)

    before = sys.getswitchinterval()
    sampler = Sampler()
    sampler.start()
    assert sys.getswitchinterval() == before
    for _ in range(100):
        short()
        long()
    clock.end()
    found = sampler.stop()
    assert sys.getswitchinterval() == before
    python = tabulate_python(found, steps())
    total = {name.rpartition(".")[2]: python.total_ps[row] for name, row in table(python).items()}
    assert (total["short"], total["long"]) == (100 * MS, 300 * MS)


@pytest.mark.tensorflow
def test_a_callback_is_found_beside_a_running_profiler_of_the_users(monkeypatch):
    """Each call of the callback ends once it has been sampled; Keras 2 marks its own steps, with callbacks inside."""
    keras, np = pytest.importorskip("keras"), pytest.importorskip("numpy")
    sampler = []

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            looks = sampler[0]._stack
            seen = len(looks) + 2  # the first may have been on its way
            while len(looks) < seen:
                time.sleep(0.001)

    class Kept(Sampler):
        def start(self):
            sampler.append(self)
            super().start()

    monkeypatch.setattr(session, "Sampler", Kept)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    x, y = np.ones((80, 4), "float32"), np.ones((80, 3), "float32")
    own = cProfile.Profile()
    own.enable()
    try:
        with profnb.profile(python=True, max_seconds=300) as p:
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[Slow()])
    finally:
        own.disable()
    slow = p.python[p.python.function.str.endswith("on_train_batch_end") & (p.python.file == shorten_files([__file__], os.getcwd())[__file__])].iloc[0]
    assert slow.samples >= 10
    if keras.__version__ >= "3":
        assert slow.between_steps_ms > 0
    assert any("on_train_batch_end" in str(entry.code) for entry in own.getstats())
    assert "between steps" in p.summary()


COLLECTING = """
import gc, time
from profnb.capture.source import stacks

class Cycle:
    def __init__(self):
        self.me = self

def deep(levels):
    Cycle()
    if levels:
        deep(levels - 1)

stacks.Sampler._is_over = lambda sampler, _: sampler._running.acquire(timeout=0.0002)
gc.set_threshold(100)
gc.callbacks.append(lambda *_: time.sleep(1e-5))  # as a finalizer that lets other threads run
sampler = stacks.Sampler()
sampler.start()
while len(sampler._stack) < 3000:
    deep(60), deep(700), deep(3)  # frames come and go in pieces of memory that are given back
print(len(sampler.stop()) >= 3000, gc.isenabled())
"""


@pytest.mark.slow
def test_a_collector_that_lets_the_other_thread_run_crashes_nothing():
    # Python 3.11 collects where an object is made, that of a frame too: it crashed within 3,000 samples, 4 times of 4.
    done = subprocess.run([sys.executable, "-c", COLLECTING], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True"]), done.stderr[-2000:]


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_stays_as_the_user_has_it(is_on):
    (gc.enable if is_on else gc.disable)()
    try:
        seen = []
        frames = stacks_module.frames_of(threading.get_ident(), lambda: seen.append(gc.isenabled()) or sys._current_frames())
        assert (seen, gc.isenabled()) == ([False], is_on)
        assert [frame.f_code.co_name for frame in frames][:1] == ["<lambda>"]
        assert sys._getframe() in frames
        assert stacks_module.frames_of(-1, sys._current_frames) == []  # a thread that has ended
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


def test_without_python_there_are_no_samples(cpu_trace_path):
    assert profnb.load(cpu_trace_path).python.empty


# Profiles that cProfile saved.


def work():
    return sorted(str(number) for number in range(2000))


@pytest.fixture
def saved(tmp_path):
    profiler = cProfile.Profile()
    profiler.runcall(work)
    path = tmp_path / "work.prof"
    profiler.dump_stats(path)
    return path


def test_a_saved_profile_opens_with_the_numbers_that_pstats_has(saved):
    python, truth = profnb.load(saved).python, pstats.Stats(str(saved))
    assert len(python) == len(truth.stats)
    assert python.occurrences.sum() == truth.total_calls
    assert python.self_ms.sum() / 1e3 == pytest.approx(truth.total_tt)
    for row in python.itertuples():
        _, calls, alone, total, _ = truth.stats[row.file, row.line, row.function]
        assert (row.occurrences, row.self_ms, row.total_ms) == pytest.approx((calls, 1e3 * alone, 1e3 * total))
    assert python.samples.isna().all()


def test_its_report_has_no_trace_and_says_so(saved, tmp_path):
    p = profnb.load(saved)
    assert "work" in p.summary()
    assert "of Python in" in p.to_html(tmp_path / "x.html").read_text("utf-8")
    assert repr(p) == "<Profile of work.prof>"
    with pytest.raises(CaptureError, match=r"work\.prof is a profile of Python"):
        p.steps  # noqa: B018


GOOD = {("a.py", 3, "f"): (1, 1, 0.5, 1.0, {("b.py", 1, "g"): (1, 1, 0.5, 1.0)}), ("b.py", 1, "g"): (1, 2, 0.25, 1.5, {})}


def test_every_version_of_marshal_is_read():
    for version in range(2, 5):
        counts = read_pstats(marshal.dumps(GOOD, version))
        assert counts.functions == (("f", "a.py", 3), ("g", "b.py", 1))
        assert (counts.calls, counts.self_s, counts.edges) == ((1, 2), (0.5, 0.25), ((1, 0, 1.0),))


def nested(depth):
    return b"(" + struct.pack("<I", 1) + (nested(depth - 1) if depth else b"N")


@pytest.mark.parametrize("data", [
    b"", b"hello", b"{", marshal.dumps([1, 2]), marshal.dumps({1: 2}), marshal.dumps({("a", 1, "f"): 3}),
    marshal.dumps({("a", 1, "f"): (1, -1, 0.0, 0.0, {})}), marshal.dumps({("a", 1, "f"): (1, 1, float("nan"), 0.0, {})}),
    marshal.dumps(compile("1", "x", "eval")), marshal.dumps(GOOD)[:-9], nested(500), b"(" + b"\xff" * 4, b"r\xff\xff\xff\x7f",
    b"\xfb\xa9\x01r\x00\x00\x00\x00N0", b"{s\xff\xff\xff\xff", b"{l\x00\x00\x00\x80N0", b"\xdb" + b"[" * 100,
], ids=range(17))  # fmt: skip
def test_what_is_no_profile_is_said_and_never_crashes(data):
    with pytest.raises(TraceFormatError, match="No profile of Python's cProfile"):
        read_pstats(data)


def test_a_profile_that_was_damaged_anywhere_is_read_or_refused(saved):
    data = saved.read_bytes()
    for at in range(0, len(data), 7):
        try:
            read_pstats(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
        except TraceFormatError:
            pass


def counted(calls=1, alone=0.5, total=1.0, line=3):
    return {("a.py", line, "f"): (1, calls, alone, total, {})}


HUGE = [counted(alone=1e300), counted(total=1e300), counted(alone=9.1e6, total=9.1e6), counted(total=-1e300), counted(calls=1 << 80), counted(line=1 << 40)]


@pytest.mark.parametrize("stats", [*HUGE, {("a.py", n, "f"): (1, 1, 8e6, 8e6, {}) for n in range(3)}], ids=range(len(HUGE) + 1))
def test_numbers_that_no_profile_can_have_are_refused_with_the_documented_error(tmp_path, stats):
    file = tmp_path / "huge.prof"
    file.write_bytes(marshal.dumps(stats))
    with pytest.raises(TraceFormatError, match=r"huge\.prof: No profile of Python"):
        profnb.load(file)


def test_a_profile_of_three_months_and_a_clock_that_ran_backwards_open(tmp_path):
    file = tmp_path / "long.prof"
    file.write_bytes(marshal.dumps(counted(alone=7.8e6, total=7.8e6) | {("b.py", 1, "g"): (1, 1, -1e-6, 2e-6, {})}))
    assert profnb.load(file).python.self_ms.max() == 7.8e9
    assert "f" in profnb.load(file).summary()


def test_a_profile_in_which_nothing_ran_says_so(tmp_path):
    """Shorter than no function is none: its table is empty, and no trace is asked for."""
    file = tmp_path / "none.prof"
    file.write_bytes(marshal.dumps({}))
    p = profnb.load(file)
    assert len(p.python) == 0
    assert "0 functions" in p.summary()
    assert "python" not in p.to_dict()["tables"]
