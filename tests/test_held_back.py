"""What is said when the process dies while the profiler's log is held back, and what is not otherwise."""

import os
import subprocess
import sys
import time

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
