"""What is said when the process dies while the profiler's log is held back, and what is not otherwise."""

import os
import subprocess
import sys
import time
from contextlib import closing

import pytest

from profnb.capture.profiler import held_back

PROFILERS = b"2026-01-01 00:00:00.000000: I external/local_tsl/tsl/profiler/lib/profiler_session.cc:103] Profiler session initializing.\n"
DYING = {
    "abort": "ctypes.CDLL(None).abort()",
    "faulthandler": "faulthandler.enable(); ctypes.string_at(0)",
    "killed": "os.kill(os.getpid(), 9)",
    "exit": "os._exit(3)",
}


def run(code):
    """Standard error of a process that runs code while the log is held back."""
    script = f"import ctypes, faulthandler, os, sys\nfrom profnb.capture.profiler.held_back import profiler_log_held_back\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})


pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")


@pytest.mark.parametrize("how", DYING)
def test_the_last_words_of_a_process_that_dies_are_shown(how):
    died = run(f"with profiler_log_held_back():\n    os.write(2, b'F0000 check.cc:5] Check failed: a fatal message\\n')\n    {DYING[how]}")
    assert died.returncode != 0
    assert died.stderr.count("a fatal message") == 1  # communicate() reads until the last writer has closed
    assert how != "faulthandler" or "Fatal Python error: Segmentation fault" in died.stderr


def test_a_process_that_lives_on_shows_what_others_wrote_once_and_the_profilers_lines_never():
    lived = run(f"with profiler_log_held_back():\n    os.write(2, {PROFILERS!r})\n    os.write(2, b'another line\\n')\nprint('on', file=sys.stderr)")
    assert lived.stderr == "another line\non\n"
    assert lived.returncode == 0


def test_what_abseil_says_once_of_the_first_line_goes_where_that_line_goes(capfd):
    first = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    with held_back.profiler_log_held_back() as log:
        os.write(2, first + PROFILERS)
    assert (b"".join(log), capfd.readouterr().err) == (first + PROFILERS, "")
    for another in (b"another line\n", b""):
        with held_back.profiler_log_held_back():
            os.write(2, first + another + PROFILERS * bool(another))
        assert capfd.readouterr().err.encode() == first + another


def test_nothing_stays_open_and_no_child_is_left(capfd):
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with held_back.profiler_log_held_back():
            os.write(2, PROFILERS)
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_no_process_to_be_had_costs_nothing_but_the_last_words(monkeypatch, capfd):
    def fails(*_, **__):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "posix_spawn", fails)
    with held_back.profiler_log_held_back() as log:
        os.write(2, PROFILERS + b"another line\n")
    assert log == [PROFILERS]
    assert capfd.readouterr().err == "another line\n"


def test_code_that_reaps_its_children_itself_is_not_in_the_way(monkeypatch):
    import signal

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with held_back.profiler_log_held_back():
            time.sleep(0)
    finally:
        signal.signal(signal.SIGCHLD, before)


HOLDER = "from profnb.capture.profiler.held_back import LogHolder\nfrom contextlib import closing\nwith closing(LogHolder(is_long=True)) as holder:\n"


@pytest.mark.parametrize("how", DYING)
def test_a_holder_shows_the_last_words_of_its_last_block(how):
    block = f"    for k in range(3):\n        with holder.hold():\n            os.write(2, b'run %d\\n' % k)\n            if k == 2: {DYING[how]}"
    died = run(HOLDER + block)
    assert died.returncode != 0
    assert [died.stderr.count(f"run {k}") for k in range(3)] == [1, 1, 1]


def test_a_holder_shows_nothing_twice_where_the_process_dies_between_its_blocks():
    died = run(HOLDER + "    with holder.hold() as lines:\n        os.write(2, b'said\\n')\n    os._exit(3)")
    assert died.stderr == "said\n"


def test_a_holder_holds_back_each_time_and_what_is_written_between_passes():
    block = f"    for k in range(3):\n        with holder.hold() as lines:\n            os.write(2, {PROFILERS!r} + b'run %d\\n' % k)\n        assert lines == [{PROFILERS!r}], lines\n        os.write(2, b'between\\n')"
    lived = run(HOLDER + block)
    assert lived.stderr == "run 0\nbetween\nrun 1\nbetween\nrun 2\nbetween\n"
    assert lived.returncode == 0


def test_blocks_at_once_are_one(capfd):
    with closing(held_back.LogHolder()) as holder, holder.hold() as first:
        with holder.hold() as second:
            os.write(2, PROFILERS + b"another line\n")
        os.write(2, PROFILERS)
    assert (first, second) == ([PROFILERS, PROFILERS], [])
    assert capfd.readouterr().err == "another line\n"


def test_the_process_of_a_long_holder_is_no_child_and_nothing_stays_open():
    """Code that waits for all its children would wait for it."""
    before = set(os.listdir("/proc/self/fd"))
    with closing(held_back.LogHolder(is_long=True)) as holder:
        for _ in range(3):
            with holder.hold():
                pass
            with pytest.raises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
    assert set(os.listdir("/proc/self/fd")) == before
