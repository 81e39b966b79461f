"""Scripts whose edits are tried, in fresh processes."""

from dataclasses import replace

import pytest
from test_trials import Edit

from profnb.capture.recording import Recording
from profnb.profile import Profile
from profnb.trials.script_runs import run_here, try_script

SCRIPT = """import sys
import time

def step():
    time.sleep(0.2)

if __name__ == "__main__":
    assert sys.argv[1:] == ["a"], sys.argv
    seen = int(open("seen.txt").read())
    open("seen.txt", "w").write(str(seen + 1))
    for _ in range(5):
        step()
    sys.exit(0)
"""


@pytest.fixture
def profile():
    return Profile(recording=replace(Recording(), wall_ns=10**9))


def test_a_script_runs_as_edited_and_its_files_stay(tmp_path, monkeypatch, profile):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("profnb.trials.alternating._MOST_TRIAL_ROUNDS", 1)
    (tmp_path / "seen.txt").write_text("1")
    (tmp_path / "script.py").write_text(SCRIPT)
    file = str(tmp_path / "script.py")
    edits = [Edit(sources={file: SCRIPT.replace("0.2", "0.001")}), Edit(sources={file: SCRIPT.replace("step()", "stop()", 1)})]
    good, bad = try_script(profile, 2, 100.0, words=["script.py", "a"], edits=edits)
    assert good.error == ""
    assert good.difference.ratio > 0  # how much faster is the clock's to say
    assert "name 'step' is not defined" in bad.error
    assert (tmp_path / "seen.txt").read_text() == "1"


def test_a_script_that_writes_elsewhere_and_a_module_are_declined(tmp_path, monkeypatch, profile):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("open('/tmp/x', 'w')")
    (trial,) = try_script(profile, 2, 1.0, words=["script.py"], edits=[Edit()])
    assert trial.error == "The script may write to `/tmp/x`, which is outside the working folder."
    (trial,) = try_script(profile, 2, 1.0, words=["script"], is_module=True)
    assert "A module's advice cannot be tried" in trial.error


def test_functions_of_the_text_that_runs_have_its_source(tmp_path, monkeypatch):
    import inspect
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [])
    file = tmp_path / "script.py"
    file.write_text("first = 1\n")
    names = {}
    run_here(names, str(file), ["script.py"], "def f():\n    return 2\n", 10.0)
    assert inspect.getsource(names["f"]) == "def f():\n    return 2\n"
