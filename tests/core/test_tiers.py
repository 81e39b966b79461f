"""Kernels in plain Python: when they run so, and that it comes to the same as machine code."""

import importlib
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profnb.core import jit
from profnb.core.errors import TraceFormatError
from profnb.core.jit import Tiered, compiled, compiling, plain_version, tiered
from profnb.trace.xplane import read_xplane
from profnb.warm import tiny_trace

TIERED = {
    "profnb.core.joining": ["_number"], "profnb.steps.breakdown": ["_walk"], "profnb.steps.grouping": ["_spread"],
    "profnb.steps.streams": ["_begin"], "profnb.steps.nesting": ["_find_parents", "_self_times"],
    "profnb.subjects.source.code_times": ["_follow"], "profnb.timeline.scene": ["_stack"], "profnb.timeline.pack": ["_merge"],
    "profnb.trace.xplane_stats": ["_fill_stats"], "profnb.trace.wire": ["_split", "_read_fields"], "profnb.trace.xplane": ["_decode_events"],
}  # fmt: skip


@compiled
def twice(value):
    return value + value


def summing():
    """A new kernel, of which nothing is compiled."""

    def add_up(values, total):
        for index in range(values.size):
            total[0] += twice(values[index])

    return tiered(add_up)


def call(kernel, size=3):
    total = np.zeros(1, np.int64)
    kernel(np.ones(size, np.int64), total)
    assert total[0] == 2 * size
    return len(kernel.kernel.signatures)


def test_what_is_small_runs_in_plain_python_and_what_is_large_compiles():
    kernel = summing()
    assert call(kernel) == call(kernel, jit._SMALL_ARRAY) == 0
    assert call(kernel, jit._SMALL_ARRAY + 1) == 1
    assert call(kernel) == 1  # and stays so


def test_what_warming_calls_compiles_however_small():
    kernel = summing()
    with compiling():
        assert call(kernel) == 1
    assert call(summing()) == 0  # not what is called after it


def test_a_kernel_that_ran_for_as_long_as_it_compiles_is_compiled(monkeypatch):
    kernel, spent = summing(), iter([0.0, jit._COMPILING_S, 0.0, 0.01])
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    assert call(kernel) == call(kernel) == 0
    monkeypatch.undo()
    assert call(kernel) == 1


def test_an_error_reaches_the_caller():
    @tiered
    def fail(values):
        values[5] = 1

    with pytest.raises(IndexError):
        fail(np.zeros(1))


def test_integers_wrap_in_silence():
    @tiered
    def multiply(values):
        values[0] *= values[1]

    values = np.array([1 << 62, 4 * 3], np.int64)
    multiply(values)
    assert values[0] == 0


def test_every_kernel_of_a_first_report_is_tiered():
    for module, names in TIERED.items():
        for name in names:
            kernel = getattr(importlib.import_module(module), name)
            assert isinstance(kernel, Tiered), name


@pytest.fixture
def both(monkeypatch):
    """Run something in plain Python and as machine code."""

    def run(function):
        with monkeypatch.context() as patch:
            for module, names in TIERED.items():
                found = importlib.import_module(module)
                for name in names:
                    patch.setattr(found, name, plain_version(getattr(found, name).kernel))
            with np.errstate(over="ignore"):
                plain = function()
        with compiling():
            return plain, function()

    return run


def columns_of(data):
    """All that reading makes of bytes, or why it does not."""
    try:
        trace = read_xplane(np.frombuffer(data, np.uint8), "a.xplane.pb")
        offsets, csr = trace.stats._csr
        grouped = trace.stats.integers("step_num")
        return [
            trace.events.name.tolist(), trace.events.begin_ps.tolist(), trace.events.end_ps.tolist(), trace.lines.offsets.tolist(),
            [plane.name for plane in trace.planes], list(trace.names.texts), offsets.tolist(), csr.kind.tolist(), csr.value.tolist(),
            grouped.events.tolist(), list(grouped.values),
        ]  # fmt: skip
    except TraceFormatError as error:
        return str(error)


EDITS = st.lists(st.tuples(st.integers(0, len(tiny_trace()) - 1), st.integers(0, 255)), max_size=3)


@given(EDITS, st.integers(0, len(tiny_trace())))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_trace_reads_the_same_whole_and_damaged(both, edits, cut):
    data = bytearray(tiny_trace())
    for at, byte in edits:
        data[at] = byte
    plain, machine = both(lambda: columns_of(bytes(data[: cut or None])))
    assert plain == machine


def test_a_real_trace_reads_the_same(both, cpu_trace_path):
    data = cpu_trace_path.read_bytes()
    plain, machine = both(lambda: columns_of(data))
    assert plain == machine


def test_a_report_and_a_timeline_say_the_same(both, cpu_trace_path):
    from profnb.profile import Profile
    from profnb.timeline.scene import Scene

    def say():
        p = Profile(read_xplane(np.frombuffer(cpu_trace_path.read_bytes(), np.uint8), "a.xplane.pb"))
        lanes = Scene(p.study).lanes
        return p.summary(), p.ops.to_csv(), p.study.groups.step.tolist(), lanes.lane.tolist(), lanes.parent.tolist(), lanes.busy_ps.tolist()

    plain, machine = both(say)
    assert plain == machine
