"""Without TensorFlow: saved traces open, a capture says in one sentence what to install."""

import subprocess
import sys

import profnb
from profnb.capture import seams
from profnb.__main__ import main


def test_a_capture_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    for name in seams.INTERPRETERS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with profnb.profile() as p:
        total = sum(range(10))
    assert total == 45
    assert len(p.notes) == 1
    assert "pip install 'profnb[cpu]'" in p.notes[0]
    assert p.notes[0].count(".") <= 4


def test_code_that_never_imports_tensorflow_is_told_so():
    code = (
        "import sys, profnb\n"
        "with profnb.profile() as p: pass\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(p.notes)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "did not import TensorFlow" in run.stdout or "not installed" in run.stdout


def test_a_step_marked_by_hand_costs_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with profnb.step(3):
        pass


def test_saved_traces_open(monkeypatch, cpu_trace_path, capsys):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert len(profnb.load(cpu_trace_path).steps) == 8
    assert main(["report", str(cpu_trace_path)]) == 0
    assert "8 train steps" in capsys.readouterr().out


def test_the_demo_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert main(["demo", "-o", str(tmp_path / "x.html")]) == 1
    assert "pip install 'profnb[cpu]'" in capsys.readouterr().err
