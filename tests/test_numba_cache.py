"""What Numba keeps on disk is what the kernels of today say, in whatever file they say it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "profnb"
# Two kernels that use other files: one calls a function there, the other reads a constant.
PROGRAM = """
import json
import numpy as np
from profnb.core.tiers import compiling
from profnb.subjects.source.code_times import _follow
from profnb.trace.grouped_stats import _fill_stats

def longs(*values):
    return np.array(values, np.int64)

stat = np.array([0x12, 0x82, 0, 8, 5], np.uint8)  # field 2 of two bytes, with key 5
key, of_one_group = longs(-1), np.zeros(2, np.int32)
kind, size = np.zeros(1, np.uint8), np.zeros(1, np.int32)
with compiling():
    _fill_stats(stat, longs(0).astype(np.int32), longs(5).astype(np.int32), longs(0), longs(1), longs(0, 1), 2, longs(5), of_one_group, longs(0), longs(1), 2, key, kind, longs(0), size)
place = longs(0, 0, 0)
with compiling():
    _follow(longs(1, 1, 1), longs(-1, 5, 0), longs(7, 7, 7), place, np.zeros((4, 2), np.int64))  # in, line 5, out
hits, misses = ([sum(getattr(kernel.stats, name).values()) for kernel in (_fill_stats, _follow)] for name in ("cache_hits", "cache_misses"))
print(json.dumps({"key": key.tolist(), "place": place.tolist(), "hits": hits, "misses": misses}))
"""


def run(folder):
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": ""}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def edit(folder, module, old, new):
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of the package after one run, and what that run said."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, folder / "profnb", ignore=shutil.ignore_patterns("__pycache__"))
    return folder, run(folder)


@pytest.fixture(scope="module")
def again(copied):
    """What a second run says, in which nothing has changed."""
    return run(copied[0])


@pytest.fixture(scope="module")
def edited(copied, again):
    """What a third run says, after edits in two files that no kernel above stands in."""
    folder, _ = copied
    edit(folder, "profnb.trace.wire", "number = np.int64(tag >> _THREE)", "number = np.int64(tag >> np.uint64(4))")
    edit(folder, "profnb.capture.source.source_records", "LEFT, ENTERED = 0, -1", "LEFT, ENTERED = 99, -1")
    return run(folder)


def test_nothing_is_compiled_twice_while_nothing_changes(copied, again):
    assert copied[1] == {"key": [0], "place": [-1, 7, -1], "hits": [0, 0], "misses": [1, 1]}
    assert again == {**copied[1], "hits": [1, 1], "misses": [0, 0]}


def test_an_edit_of_a_kernel_that_another_file_calls_is_seen(edited):
    assert (edited["key"], edited["misses"][0]) == ([-1], 1)  # field 2 reads as field 1


def test_an_edit_of_a_constant_that_another_file_reads_is_seen(edited):
    assert (edited["place"], edited["misses"][1]) == ([-1, 7, 7], 1)  # 0 is a line like any other
