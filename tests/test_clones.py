"""A clone of any name: what is ours is told by the package, not by how the folders above are called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
# What tells our frames, files and names from the code's, and the doors of the command line.
CHOSEN = ("tests/capture/test_kept_source.py", "tests/magics/test_command.py", "tests/magics/test_titles.py", "tests/subjects/test_python_time.py")


@pytest.mark.long
@pytest.mark.parametrize("name", ["profnb", "a b", "größe"])
def test_the_tests_hold_in_a_clone_of_any_name(tmp_path, name):
    clone = tmp_path / name
    for folder in ("profnb", "tests"):
        shutil.copytree(HERE / folder, clone / folder, ignore=shutil.ignore_patterns("__pycache__", "traces"))
    for file in ("pyproject.toml", "setup.cfg", "README.md"):
        shutil.copy(HERE / file, clone)
    environment = os.environ | {"PYTHONPATH": str(clone)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--fast", "-c", "pyproject.toml", *CHOSEN]
    ran = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
