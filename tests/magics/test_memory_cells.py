"""Cells and blocks that memory ends: the user's error as ever, and an answer that begins with it."""

import gc
import re
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import profnb

ROOT = Path(__file__).parents[2]
CELL = "%%tfprofile\nimport numpy as np\nkept = [np.ones(1000) for _ in range(3)]\n\ndef ask():\n    return np.zeros(1 << 50)\n\nask()"


def test_a_cell_fails_as_ever_and_its_report_begins_with_the_memory(shell, capsys):
    result = shell.run_cell(CELL, store_history=True)
    assert isinstance(result.error_in_exec, MemoryError)
    printed = capsys.readouterr().out
    assert printed.count("Unable to allocate") == 1
    report = printed[printed.index("ran out of memory") - 30 :]
    assert re.search(r"The process ran out of memory at \S.*:6\. 9,007 TB were asked for;", " ".join(report.split()))
    p = shell.user_ns["_tfprofile"]
    assert p.advice[0].rule == "out-of-memory" and p.advice[0].where.endswith(":6")
    failed = p.memory_kinds.query("moment == 'failure'")
    assert failed.query("holder == 'kept'").bytes.tolist() == [24000]
    assert failed.bytes.sum() == pytest.approx(p.recording.memory.shortage.in_use_bytes, rel=0.5)


def test_a_cell_that_fails_for_another_reason_hears_nothing_of_memory(shell, capsys):
    shell.run_cell("%%tfprofile\nraise ValueError('out of memory')")
    assert "ran out of memory" not in capsys.readouterr().out
    assert shell.user_ns["_tfprofile"].recording.memory.shortage is None


def test_a_block_in_the_handler_of_such_an_error_is_innocent():
    try:
        raise MemoryError
    except MemoryError:
        with profnb.profile() as p:
            sum(range(10))
    assert p.recording.memory.shortage is None


def test_a_block_raises_the_same_error_and_keeps_nothing_that_it_held():
    class Array(np.ndarray):
        pass

    def ask():
        local = np.zeros(1000).view(Array)
        living.append(weakref.ref(local))
        raise MemoryError("mine")

    living, said = [], ""
    try:
        with profnb.profile() as p:
            ask()
    except MemoryError as error:
        said = str(error)
    assert said == "mine"
    assert "test_memory_cells.py:" in p.recording.memory.shortage.where
    gc.collect()
    assert living[0]() is None


def test_saved_beside_a_trace_it_is_read_again(tmp_path):
    from profnb.capture.memory.memory_records import HeldMemory, MemoryPool, MemoryRecords, MemoryShortage
    from profnb.capture.recording import Recording
    from profnb.capture.saved.sidecar import read_recordings, write_recordings
    from profnb.core.options import CaptureOptions

    shortage = MemoryShortage("MemoryError", "CPU", 1, 2, 3, 4, 5, "the machine", "Mul", "Cell [3]:8")
    memory = MemoryRecords((HeldMemory("weights", "net/head", "CPU", 60, 2),), (MemoryPool("CPU", 1, -1, 9, "x"),), shortage)
    path = tmp_path / "host.xplane.pb"
    write_recordings(path, CaptureOptions(), [Recording(memory=memory)])
    assert read_recordings(path)[1][0].memory == memory


ULIMIT = """
import os, resource
import numpy as np, profnb, profnb.report.build
from profnb.capture.memory import held_memory
space = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
before = resource.getrlimit(resource.RLIMIT_AS)
kept = []
try:
    with profnb.profile() as p:
        resource.setrlimit(resource.RLIMIT_AS, (space + (1 << 30), before[1]))
        while True:
            kept.append(np.ones(1 << 22))
except MemoryError as error:
    assert "Unable to allocate" in str(error)
resource.setrlimit(resource.RLIMIT_AS, before)
print(p.summary())
failed = p.memory_kinds.query("moment == 'failure' and holder == 'kept'")
print("kept", int(failed.bytes.sum()) - 32 * 2**20 * len(kept), float(failed.fraction.sum()) > 0.5, len(kept) > 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
def test_a_small_machine():
    """One of a gigabyte more than the process has now: 32 MB at a time until it is full."""
    run = subprocess.run([sys.executable, "-c", ULIMIT], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.startswith("The process ran out of memory.")
    text = " ".join(run.stdout.split())
    assert "33.6 MB were asked for" in text and "(`ulimit -v`) were in use. In use: input and data" in text
    assert "kept 0 True True" in text
