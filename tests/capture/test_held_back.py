"""What becomes of file descriptor 2 while the profiler starts or stops."""

import os
import subprocess
import sys
import tempfile
import threading

import pytest

from profnb.capture.profiler import profiler_door

PROFILERS = b"2026-01-01 00:00:00.000000: I external/local_tsl/tsl/profiler/lib/profiler_session.cc:103] Profiler session initializing.\n"
DYING = {
    "abort": "ctypes.CDLL(None).abort()",
    "faulthandler": "faulthandler.enable(); ctypes.string_at(0)",
    "killed": "os.kill(os.getpid(), 9)",
    "exit": "os._exit(3)",
}


def run(code, folder):
    """Standard error of a process that runs code, and what is left in the temporary folder."""
    script = f"import ctypes, faulthandler, os, sys\nfrom profnb.capture.profiler.profiler_door import log_held_back\n{code}"
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "TMPDIR": str(folder)}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    return ended, "".join(path.read_text("utf-8") for path in folder.iterdir())


@pytest.mark.parametrize("how", DYING)
def test_the_last_words_of_a_process_that_dies_are_in_a_file(tmp_path, how):
    died, left = run(f"with log_held_back():\n    os.write(2, b'Check failed: a fatal message\\n')\n    {DYING[how]}", tmp_path)
    assert died.returncode != 0
    assert "a fatal message" in left
    assert [path.name.startswith("profnb-log-") for path in tmp_path.iterdir()] == [True]
    assert how != "faulthandler" or "Fatal Python error: Segmentation fault" in left


def test_a_process_that_lives_on_shows_what_others_wrote_once_and_the_profilers_lines_never(tmp_path):
    code = f"with log_held_back():\n    os.write(2, {PROFILERS!r})\n    os.write(2, b'another line\\n')\nprint('on', file=sys.stderr)"
    lived, left = run(code, tmp_path)
    assert (lived.stderr, lived.returncode, left) == ("another line\non\n", 0, "")


def test_what_abseil_says_once_of_the_first_line_goes_where_that_line_goes(capfd):
    first = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    with profiler_door.log_held_back() as log:
        os.write(2, first + PROFILERS)
    assert (b"".join(log), capfd.readouterr().err) == (first + PROFILERS, "")
    for another in (b"another line\n", b""):
        with profiler_door.log_held_back():
            os.write(2, first + another + PROFILERS * bool(another))
        assert capfd.readouterr().err.encode() == first + another


def test_an_error_in_the_block_passes_and_so_do_other_lines(capfd):
    with pytest.raises(RuntimeError, match="mine"), profiler_door.log_held_back():
        os.write(2, PROFILERS + b"another line\n")
        raise RuntimeError("mine")
    assert capfd.readouterr().err == "another line\n"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_nothing_stays_open_and_no_process_is_made(monkeypatch):
    monkeypatch.setattr(os, "posix_spawn", None)
    monkeypatch.setattr(os, "fork", None)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with profiler_door.log_held_back():
            os.write(2, PROFILERS)
    assert set(os.listdir("/proc/self/fd")) == before


def test_on_another_thread_the_descriptor_stays_as_it_is(capfd):
    def stop():
        with profiler_door.log_held_back() as log:
            os.write(2, PROFILERS)
            seen.append(os.fstat(2).st_ino)
        seen.append(log)

    seen = []
    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    assert seen == [os.fstat(2).st_ino, []]
    assert capfd.readouterr().err.encode() == PROFILERS


def test_where_there_is_no_room_for_a_file_all_is_shown(monkeypatch, capfd):
    def no_space(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", no_space)
    with profiler_door.log_held_back() as log:
        os.write(2, PROFILERS)
    assert (log, capfd.readouterr().err.encode()) == ([], PROFILERS)
