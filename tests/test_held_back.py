"""What is said when the process dies while the profiler's log is held back, and what is not otherwise."""

import os
import subprocess
import sys
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


HOLD = "from profnb.capture.profiler import held_back\n"
IN_NOTEBOOK = HOLD + "held_back.is_in_notebook = lambda: True\n"


def run(code):
    """Standard error of a process that runs code in which the log may be held back."""
    script = f"import ctypes, faulthandler, os, sys\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})


pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")


@pytest.fixture
def notebook(monkeypatch):
    """Code is run as in a kernel."""
    monkeypatch.setattr(held_back, "is_in_notebook", lambda: True)


@pytest.mark.parametrize("how", DYING)
def test_the_last_words_of_a_process_that_dies_are_shown(how):
    died = run(f"{HOLD}with held_back.profiler_log_held_back():\n    os.write(2, b'F0000 check.cc:5] Check failed: a fatal message\\n')\n    {DYING[how]}")
    assert died.returncode != 0
    assert died.stderr.count("a fatal message") == 1  # communicate() reads until the last writer has closed
    assert how != "faulthandler" or "Fatal Python error: Segmentation fault" in died.stderr


def test_a_process_that_lives_on_shows_what_others_wrote_once_and_the_profilers_lines_never():
    lived = run(f"{IN_NOTEBOOK}with held_back.profiler_log_held_back():\n    os.write(2, {PROFILERS!r})\n    os.write(2, b'another line\\n')\nprint('on', file=sys.stderr)")
    assert lived.stderr == "another line\non\n"
    assert lived.returncode == 0


def test_what_abseil_says_once_of_the_first_line_goes_where_that_line_goes(capfd, notebook):
    first = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    with held_back.profiler_log_held_back() as log:
        os.write(2, first + PROFILERS)
    assert (b"".join(log), capfd.readouterr().err) == (first + PROFILERS, "")
    for another in (b"another line\n", b""):
        with held_back.profiler_log_held_back():
            os.write(2, first + another + PROFILERS * bool(another))
        assert capfd.readouterr().err.encode() == first + another


def test_nothing_stays_open_and_no_child_is_left(capfd, notebook):
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with held_back.profiler_log_held_back():
            os.write(2, PROFILERS)
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_nothing_is_held_back_outside_of_a_notebook(capfd):
    with held_back.profiler_log_held_back() as log:
        os.write(2, PROFILERS)
    assert (log, capfd.readouterr().err) == ([], PROFILERS.decode())


HOLDER = "from contextlib import closing\nwith closing(held_back.LogHolder()) as holder:\n"


@pytest.mark.parametrize("how", DYING)
def test_a_holder_shows_the_last_words_of_its_last_block(how):
    block = f"    for k in range(3):\n        with holder.hold():\n            os.write(2, b'run %d\\n' % k)\n            if k == 2: {DYING[how]}"
    died = run(HOLD + HOLDER + block)
    assert died.returncode != 0
    assert [died.stderr.count(f"run {k}") for k in range(3)] == [1, 1, 1]


def test_a_holder_shows_nothing_twice_where_the_process_dies_between_its_blocks():
    died = run(HOLD + HOLDER + "    with holder.hold() as lines:\n        os.write(2, b'said\\n')\n    os._exit(3)")
    assert died.stderr == "said\n"


def test_a_holder_holds_back_each_time_and_what_is_written_between_passes():
    block = f"    for k in range(3):\n        with holder.hold() as lines:\n            os.write(2, {PROFILERS!r} + b'run %d\\n' % k)\n        assert lines == [{PROFILERS!r}], lines\n        os.write(2, b'between\\n')"
    lived = run(IN_NOTEBOOK + HOLDER + block)
    assert lived.stderr == "run 0\nbetween\nrun 1\nbetween\nrun 2\nbetween\n"
    assert lived.returncode == 0


def test_blocks_at_once_are_one(capfd, notebook):
    with closing(held_back.LogHolder()) as holder, holder.hold() as first:
        with holder.hold() as second:
            os.write(2, PROFILERS + b"another line\n")
        os.write(2, PROFILERS)
    assert (first, second) == ([PROFILERS, PROFILERS], [])
    assert capfd.readouterr().err == "another line\n"


def test_nothing_stays_open_when_a_holder_is_closed(notebook):
    before = set(os.listdir("/proc/self/fd"))
    with closing(held_back.LogHolder()) as holder:
        for _ in range(3):
            with holder.hold():
                pass
    assert set(os.listdir("/proc/self/fd")) == before
