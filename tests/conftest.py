"""What tests share: where real traces are, and a shell that keeps what it displays."""

import gc
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ["PROFNB_HISTORY"] = os.environ["PROFNB_JOURNALS"] = "0"  # no run of a test is the user's
# What LLVM would make faster runs a few steps; the programs, and what the trace tells of them, are the same.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# What a shell starts in the background ignores interrupts, and so would all that tests of interrupts start.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "traces"
# How long nbclient waits at most, in seconds: a busy machine takes its time, and output that comes late is output.
PATIENT = {"timeout": 900, "iopub_timeout": 120, "startup_timeout": 300}
SLOW = {"tensorflow", "kernel", "browser", "backend", "slow", "long"}
MEASURED = {"tensorflow", "kernel", "browser", "backend"}
# The files that take longest, in that order: workers begin with them, so that none works alone at the end.
LONGEST = (
    "notebooks", "layer_programs", "seams", "diagnosis", "capture", "jupyterlab", "browser", "sweep", "cells", "browser_timeline", "saved", "repeats",
    "poison", "browser_lanes", "source_lines", "sweep_workers", "cell_time", "judged", "lite", "own_loops", "hosts", "graph_runs", "numba_cache",
    "xplane", "chrome", "chrome_write", "snippets", "input_pipeline", "fuzz", "python_time", "remote", "warm", "comparison",
)  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="only what takes no TensorFlow, kernel, browser or patience: two minutes at most")
    parser.addoption("--alone", metavar="FILE", help="where nothing failed but real runs, name these in FILE: .ci/run has them run once more, with nothing beside them")
    parser.addoption("--cpu", metavar="FILE", help="add each test's processor seconds, its ended children's with them, to FILE (tests/benchmarks/cpu.py sums)")


# jsonschema, which nbformat and JupyterLab bring, would have it build 38 grammars, which takes three seconds of each worker.
sys.modules.setdefault("rfc3987_syntax", None)


def pytest_configure(config):
    """Have workers take files as they are ordered here: xdist would begin with those of most tests, which are the quick ones."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config, items):
    """Leave out what is slow, where only the fast tests are asked for; for workers, begin with the longest files."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: LONGEST.index(name) if (name := item.path.stem.removeprefix("test_")) in LONGEST else len(LONGEST))
    if config.getoption("--fast"):
        is_slow = [not SLOW.isdisjoint(mark.name for mark in item.iter_markers()) for item in items]
        config.hook.pytest_deselected(items=[item for item, slow in zip(items, is_slow, strict=True) if slow])
        items[:] = [item for item, slow in zip(items, is_slow, strict=True) if not slow]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Write down what a test cost the processor: that says the same on a busy machine, where a clock does not."""
    before = sum(os.times()[:4])
    yield
    if file := item.config.getoption("--cpu"):
        with open(file, "a") as lines:
            lines.write(f"{sum(os.times()[:4]) - before:.2f}\t{item.nodeid}\n")


@pytest.hookimpl(specname="pytest_runtest_protocol")
def pytest_measure_anew_once(item, nextitem):
    """Have a real run that fails what it is asked run once more, with all that its file measured: another program may have disturbed it.

    The closing lines name such tests ("rerun"): each is one to mend. pytest-rerunfailures keeps what a file's fixtures measured.
    """
    if MEASURED.isdisjoint(mark.name for mark in item.iter_markers()) or item.config.getoption("usepdb"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if failed := [report for report in reports if report.failed]:
        for report in failed:
            report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        item.session._setupstate.teardown_exact(None)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionfinish(session, exitstatus):
    """Name the real runs that failed, unless anything else did, too."""
    file, terminal = session.config.getoption("--alone"), session.config.pluginmanager.get_plugin("terminalreporter")
    if not file or terminal is None or exitstatus != pytest.ExitCode.TESTS_FAILED or hasattr(session.config, "workerinput"):
        return
    failed = {report.nodeid: set(getattr(report, "keywords", ())) for kind in ("failed", "error") for report in terminal.stats.get(kind, ())}
    if not any(map(MEASURED.isdisjoint, failed.values())):
        Path(file).write_text("".join(f"{name}\n" for name in failed))


def pytest_report_teststatus(report):
    return ("rerun", "R", "RERUN") if report.outcome == "rerun" else None


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.line(f"RERUN {report.nodeid} - {getattr(report.longrepr, 'reprcrash', None) and report.longrepr.reprcrash.message[:300]}")


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_behind():
    """Let the models and graphs of a file's tests go: each later capture would look at all that live.

    What was there before, a million objects of imported modules, is none of the tests': frozen, neither captures nor collections
    look through it, which takes most of the time of a small capture. Python 3.10 finds the class of a method only in what is not.
    """
    if sys.version_info >= (3, 11):
        gc.freeze()
    yield
    for name in ("keras", "tf_keras"):
        if name in sys.modules:
            sys.modules[name].backend.clear_session()
    if peak := sys.modules.get("profnb.subjects.bounds.measured_peak"):  # a process measures it once
        peak._kept.clear()
    gc.collect()


_hook_errors = []


@pytest.fixture(scope="session", autouse=True)
def _watch_hooks():
    """Know of every error of a hook of ours, of which a capture only leaves a note."""
    from profnb.capture.session import Capture

    keep = Capture._hook_failed

    def hook_failed(capture, error):
        _hook_errors.append(error)
        keep(capture, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Capture, "_hook_failed", hook_failed)
        yield


@pytest.fixture(scope="session", autouse=True)
def _patient():
    """Wait for profnb's own threads as long as a busy machine takes, which is longer than it may hold up a user's cell."""
    from profnb.capture.journal import journal
    from profnb.capture.machine import machine_watch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_DISK_PATIENCE_S", 60.0)
        patch.setattr(machine_watch, "_CLOSING_S", 60.0)
        yield


@pytest.fixture(autouse=True)
def _hooks_work(request, _watch_hooks):
    """No hook fails in a test, nor in what its file made for it, but where it is meant to."""
    yield
    errors, _hook_errors[:] = list(_hook_errors), []
    assert errors == [] or request.node.get_closest_marker("hooks_fail")


@pytest.fixture
def clock(monkeypatch):
    """The clock of steps and of a cell's parts, which stands still but for what a test plants."""
    from clocks import stand_still

    return stand_still(monkeypatch)


@pytest.fixture
def shell():
    """A shell of IPython's with the magics."""
    from IPython.core.interactiveshell import InteractiveShell

    from profnb.magics import load_magics, unload_magics

    made = InteractiveShell()
    load_magics(made)
    yield made
    unload_magics(made)


@pytest.fixture(scope="session")
def cpu_trace_path():
    """A real CPU trace: eight steps of a small CNN, recorded by tests/data/record.py."""
    return DATA / "cpu-cnn.xplane.pb"


@pytest.fixture(scope="session")
def shared_traces():
    """Real traces of others, by name; skipped where they are absent."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared/traces")
    return SHARED


def every_shared_trace():
    """Paths of the XPlane traces that must open, for parametrize."""
    found = sorted(p for p in SHARED.glob("*/*.xplane.pb") if p.parent.name != "corrupt")
    return [pytest.param(p, id=f"{p.parent.name}-{p.stem}") for p in found] or [
        pytest.param(None, marks=pytest.mark.skip(reason="needs ../shared/traces"))
    ]


@pytest.fixture(scope="module", params=every_shared_trace())
def shared_study(request):
    """The study of each of them, read once for all tests of a file that look at it."""
    from profnb.subjects.study import Study
    from profnb.trace.files import read_trace

    return Study(read_trace(request.param))
