"""Compiling ahead: it rests while a cell is captured, and does first what the first view needs."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from profnb.trace.files import read_trace
from profnb.warm import Warming

SIGNATURES = """
import gc, sys
from numba.core.dispatcher import Dispatcher
def compiled():
    kernels = [k for k in gc.get_objects() if isinstance(k, Dispatcher) and k.__module__.startswith("profnb.")]
    return {(k.__module__, k.__name__): len(k.signatures) for k in kernels if k.signatures}
"""


def in_a_process(code, *arguments):
    run = subprocess.run([sys.executable, "-c", SIGNATURES + code, *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.split()


def test_no_piece_begins_while_it_rests():
    first_began, first_may_end, rests = threading.Event(), threading.Event(), threading.Event()
    done = []

    def pieces():
        first_began.set()
        first_may_end.wait()
        done.append("first")
        rests.set()
        yield "first"
        done.append("second")
        yield "second"

    warming = Warming(pieces)
    first_began.wait()
    with warming.paused():  # in the middle of a piece
        first_may_end.set()
        rests.wait()
        assert done == ["first"]
    warming.join()
    assert done == ["first", "second"]


def test_a_pause_before_the_first_piece_ended_is_no_wait():
    begun, may_end = threading.Event(), threading.Event()

    def pieces():
        begun.set()
        may_end.wait()
        yield "first"

    warming = Warming(pieces)
    begun.wait()
    with warming.paused():  # begins although the piece cannot end
        pass
    may_end.set()
    warming.join()


def test_what_fails_while_warming_is_silent():
    def pieces():
        yield "first"
        raise ValueError

    Warming(pieces).join()


class Warmer:
    def __init__(self):
        self.calls = []

    @contextmanager
    def paused(self):
        self.calls.append("pause")
        yield
        self.calls.append("go on")


@pytest.mark.parametrize("cell", ["1 + 1", "raise ValueError", "import no_such_module_anywhere"])
def test_a_captured_cell_pauses_it_until_the_report(cell):
    shell_class = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    shell = shell_class()
    shell.run_line_magic("load_ext", "profnb")
    magics = shell.magics_manager.registry["ProfnbMagics"]
    magics._warming.join()
    magics._warming = warmer = Warmer()
    shell.user_ns["warmer"] = warmer
    shell.run_cell(f"%%tfprofile -q\nwarmer.calls.append('cell')\n{cell}")
    assert warmer.calls == ["pause", "cell", "go on"]


def test_an_option_that_is_refused_pauses_nothing():
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.run_line_magic("load_ext", "profnb")
    magics = shell.magics_manager.registry["ProfnbMagics"]
    magics._warming.join()
    magics._warming = warmer = Warmer()
    shell.run_cell("%%tfprofile -o 1x\n1")
    assert warmer.calls == []


def test_the_first_view_needs_nothing_that_is_compiled_after_it(cpu_trace_path):
    """Then a report, its timeline: every kernel has one signature, so nothing is compiled twice."""
    code = """
from profnb.warm import FIRST_VIEW, kernel_by_kernel
pieces = kernel_by_kernel()
while next(pieces) != FIRST_VIEW:
    pass
before = compiled()
import profnb
p = profnb.load(sys.argv[1])
p.study.summary, p.advice, p.notes
assert compiled() == before, set(compiled().items()) - set(before.items())
for _ in pieces:
    pass
before = compiled()
from profnb.timeline.element import build_timeline
p.summary(), p._repr_mimebundle_(), p.ops, p.steps, p.layers, p.input_pipeline, build_timeline(p.study)
assert compiled() == before, set(compiled().items()) - set(before.items())
assert set(before.values()) == {1}, before
"""
    in_a_process(code, cpu_trace_path)


def test_loading_the_extension_imports_nothing_heavy_itself():
    code = """
import profnb.warm
class Idle:
    def __init__(self): pass
profnb.warm.Warming = Idle
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_line_magic("load_ext", "profnb")
print(*(set(sys.modules) & {"pandas", "plotly", "ipywidgets", "tensorflow", "profnb.subjects.study"}))
"""
    assert in_a_process(code) == []


def test_a_stat_asked_for_twice_is_read_once(cpu_trace_path):
    stats = read_trace(cpu_trace_path).stats
    assert stats.integers("id") is stats.integers("id")
    assert stats.texts("shapes") is stats.texts("shapes")
    grouped = stats._grouped
    stats.integers("iter_num")
    assert stats._grouped is grouped


def test_all_a_traces_stats_are_parsed_once_for_all_tables(cpu_trace_path, monkeypatch):
    import profnb
    from profnb.trace import xplane_stats

    parsed = []

    def count(read):
        def counted(buffer, entries, keys):
            parsed.append(entries.begins.size)
            return read(buffer, entries, keys)

        return counted

    for name in ("read_grouped", "read_csr"):
        monkeypatch.setattr(xplane_stats, name, count(getattr(xplane_stats, name)))
    p = profnb.load(cpu_trace_path)
    p.summary(), p.ops, p.layers, p.input_pipeline, p.memory, p.kernels
    assert parsed.count(len(p.trace.events)) == 1


def test_a_cell_that_follows_at_once_is_not_disturbed_at_all(monkeypatch):
    slept, begun = threading.Event(), threading.Event()
    monkeypatch.setattr("profnb.warm.time", SimpleNamespace(sleep=lambda _: slept.wait()))

    def pieces():
        begun.set()
        yield "first"

    warming = Warming(pieces)
    with warming.paused():
        slept.set()
        assert not begun.wait(0.1)
    warming.join()
    assert begun.is_set()
