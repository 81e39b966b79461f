"""What Numba keeps on disk is what the kernels of today say, in whatever file they say it."""

import ast
import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from profnb.core import jit

PACKAGE = Path(__file__).parents[2] / "profnb"
# Two kernels that use other files: one calls a function there, the other reads a constant.
PROGRAM = """
import json
import numpy as np
from profnb.core.jit import compiling
from profnb.subjects.source.code_times import _follow
from profnb.trace.xplane_stats import _fill_stats

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
hits, misses = ([sum(getattr(kernel.kernel.stats, name).values()) for kernel in (_fill_stats, _follow)] for name in ("cache_hits", "cache_misses"))
print(json.dumps({"key": key.tolist(), "place": place.tolist(), "hits": hits, "misses": misses}))
"""


def run(folder, program=PROGRAM, **variables):
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": "", **variables}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=folder, env=environment, capture_output=True, text=True)
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


def test_what_kernels_are_made_of_are_the_files_that_are_looked_at():
    """Those with kernels, and those that they take a name from which a kernel reads."""
    found = {"core/jit"}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        if "from profnb.core.jit import" not in text or path.name == "warm.py":
            continue
        found.add(path.relative_to(PACKAGE).with_suffix("").as_posix())
        module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        kernels = [getattr(value, "kernel", value) for value in vars(module).values()]
        read = {name for kernel in kernels if hasattr(kernel, "py_func") for name in inspect.unwrap(kernel.py_func).__code__.co_names}
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module.startswith("profnb.") and read & {alias.asname or alias.name for alias in node.names}:
                found.add(node.module.removeprefix("profnb.").replace(".", "/"))
    assert sorted(found) == sorted(jit._SOURCES)


PLACES = """
    import json, pathlib, sys
    import numba
    from profnb.core import jit
    @jit.compiled
    def ours(x):
        return x
    print(json.dumps([jit._cache_folder(), numba.config.CACHE_DIR, ours(3)]))
"""


def test_the_users_own_functions_keep_the_folder_that_they_had(copied, tmp_path):
    folder, setting, _ = run(copied[0], PLACES)
    assert (Path(folder).parent, setting) == (copied[0] / "profnb" / "__pycache__", "")
    folder, setting, _ = run(copied[0], PLACES, NUMBA_CACHE_DIR=str(tmp_path))
    assert (Path(folder).parent, setting) == (tmp_path, str(tmp_path))


def test_kernels_are_kept_in_the_home_folder_where_the_package_cannot_be_written_to_and_nowhere_if_that_cannot_either(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "profnb", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "profnb" / "__pycache__").write_text("no folder")
    folder, *_ = run(tmp_path, PLACES, XDG_CACHE_HOME=str(tmp_path / "home"))
    assert Path(folder).parent == tmp_path / "home" / "profnb"
    folder, _, result = run(tmp_path, PLACES, XDG_CACHE_HOME=str(tmp_path / "profnb" / "__init__.py"))
    assert (folder, result) == ("", 3)


def test_a_folder_of_an_earlier_version_is_removed_when_it_was_not_used_for_a_month(copied, tmp_path):
    for name, days in (("kernels-old", 31), ("kernels-new", 29), ("others", 400)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - days * 86_400,) * 2)
    run(copied[0], PLACES, NUMBA_CACHE_DIR=str(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert {"kernels-new", "others"} < left
    assert "kernels-old" not in left
