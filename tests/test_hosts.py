"""Honest hosts: which files are one capture, whose a trace is, and what is never taken for something else."""

from pathlib import Path

import pytest

import profnb
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.trace import files
from profnb.trace.files import read_trace
from tests.traces import event, host, line, xspace

MS = 10**9


def one_step(name="train_step"):
    return host(line("python", event(name, 0, 5 * MS, step_num=1, _r=1)))


def test_a_trace_outlives_what_is_done_to_its_file(tmp_path):
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(xspace(one_step()))
    trace = read_trace(file)
    with file.open("r+b") as opened:  # as TensorFlow's writer does: a mapped page would now end the process
        opened.truncate(0)
    assert trace.names.texts == ["train_step"]
    assert trace.stats.integers("step_num").values.tolist() == [1]


def test_a_trace_that_is_rewritten_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(xspace(one_step()))
    real, calls = files.os.fstat, []

    def rewrites_between(descriptor):
        if calls:
            file.write_bytes(xspace(one_step("another_step")))
        calls.append(descriptor)
        return real(descriptor)

    monkeypatch.setattr(files.os, "fstat", rewrites_between)
    with pytest.raises(TraceFormatError, match="changed while it was read"):
        read_trace(file)


def test_a_trace_that_is_cut_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    file = tmp_path / "a.xplane.pb"
    file.write_bytes(xspace(one_step()))
    real = files.np.empty

    def cuts_first(*shape):
        file.write_bytes(b"")
        return real(*shape)

    monkeypatch.setattr(files.np, "empty", cuts_first)
    with pytest.raises(TraceFormatError, match="changed while it was read"):
        read_trace(file)


def test_a_folder_may_be_a_path_object(tmp_path):
    assert CaptureOptions(logdir=tmp_path).logdir == str(tmp_path)
    with profnb.profile(logdir=Path(tmp_path)) as p:  # TensorFlow is not needed to say what was asked
        pass
    assert p.options.logdir == str(tmp_path)
    with pytest.raises(ValueError, match="local folder"):
        CaptureOptions(logdir="gs://b/logs")
