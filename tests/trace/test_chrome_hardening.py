"""Chrome traces and gzip files that are odd, hostile, or say one thing twice."""

import gzip
import json

import numpy as np
import pytest
from traces import event, gpu, host, line, read

from profnb.subjects.device.kernels import tabulate_kernels
from profnb.core.errors import TraceFormatError
from profnb.profile import Profile
from profnb.trace.chrome.events import read_events
from profnb.trace.chrome.reader import read_chrome
from profnb.trace.files import read_trace

ONE = {"ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "name": "a"}


def chrome(*events):
    return read_chrome(np.frombuffer(json.dumps(list(events)).encode(), np.uint8), "x.json")


@pytest.mark.parametrize("tid", ["--5", "-", "5-", "²", "-7"])
def test_a_thread_id_may_be_any_text(tid):
    assert len(chrome({**ONE, "tid": tid}).events) == 1


def test_a_sample_that_no_float_holds_is_no_sample():
    sample = {"ph": "C", "ts": 1, "pid": 1, "name": "c"}
    trace = chrome(ONE, {**sample, "args": {"huge": 10**400, "whole": 3}})
    assert [(c.series, c.value.tolist()) for c in trace.counters] == [("whole", [3.0])]


def test_a_gzip_of_several_members_is_read_whole(tmp_path):
    raw = json.dumps([ONE, {**ONE, "ts": 9}]).encode()
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(raw[:20]) + gzip.compress(raw[20:]) + bytes(512))
    assert read_trace(path).events.begin_ps.tolist() == [0, 8_000_000]


def test_a_gzip_inside_a_gzip_is_refused_however_deep(tmp_path):
    raw = json.dumps([ONE]).encode()
    for _ in range(1500):
        raw = gzip.compress(raw, 1)
    (tmp_path / "x.json.gz").write_bytes(raw)
    with pytest.raises(TraceFormatError, match="gzip inside gzip"):
        read_trace(tmp_path / "x.json.gz")


def test_lines_of_one_name_stay_apart_in_the_round_trip(tmp_path):
    trace = read(host(line("w", event("a", 0, 5)), line("w", event("b", 2, 5))))
    path = Profile(trace).to_chrome_trace(tmp_path / "x.json")
    back = read_trace(path)
    assert back.lines.names.texts == ["w", "w"]
    assert back.lines.of_event.tolist() == [0, 1]


def test_launches_and_steps_stand_where_their_events_do_when_those_begin_before_the_trace(tmp_path):
    launch = event("launch", -5_000_000, 9, correlation_id=3, _r=1, step_num=2)
    kernel = event("k", -3_500_000, 9, correlation_id=3)
    trace = read(host(line("w", launch)), gpu(line("Stream #1", kernel)))
    path = Profile(trace).to_chrome_trace(tmp_path / "x.json")
    times = [(e["ph"], e["ts"]) for e in json.loads(path.read_text())["traceEvents"] if e["ph"] in "Xsfi"]
    assert times == [("X", 0), ("X", 1.5), ("s", 0), ("f", 1.5), ("i", 0)]


def test_one_kernel_on_two_devices_is_one_row():
    planes = [gpu(line("Stream #1", event("k", 0, 5)), number=n) for n in range(2)]
    table = tabulate_kernels(read(*planes))
    assert (table.kernel_name, table.occurrences.tolist(), table.total_ps.tolist()) == (("k",), [2], [10])


def test_a_member_before_the_list_needs_its_colon():
    events = json.dumps([ONE])
    assert len(read_chrome(np.frombuffer(('{"a":5,"traceEvents":' + events + "}").encode(), np.uint8), "x.json").events) == 1
    with pytest.raises(TraceFormatError, match=r"No list named traceEvents .*members found: none"):
        read_chrome(np.frombuffer(('{"a"=5,"traceEvents":' + events + "}").encode(), np.uint8), "x.json")


def test_a_member_that_was_cut_off_is_not_called_found():
    with pytest.raises(TraceFormatError, match=r"members found: unit\)"):
        read_chrome(np.frombuffer(b'{"unit": "ms", "cut": [1, 2', np.uint8), "x.json")


def test_small_members_before_the_list_are_kept_and_large_ones_passed_over():
    """100,000 bytes are small, their quotes included."""
    members = {"fits": "x" * 99_998, "too long": "x" * 99_999, "a": {"b": 1}}
    raw = json.dumps({**members, "traceEvents": [ONE]}).encode()
    found = read_events(np.frombuffer(raw, np.uint8))
    assert found.header == {"fits": members["fits"], "a": {"b": 1}}
    assert found.name.size == 1


def test_half_a_character_is_replaced_and_whole_ones_stay(tmp_path):
    """No file can hold a lone surrogate, though JSON's escapes can name one."""
    args = {"step_num": 0, "_r": 1, "list": ["\ud800", "\U0001f600"], "k\udc00": "v\ud800"}
    trace = chrome({**ONE, "name": "MatMul\ud800\U0001f600", "args": args}, {**ONE, "ts": 20, "args": {"name": "\udfff"}})
    assert trace.names[trace.events.name[0]].startswith("MatMul\ufffd\U0001f600")
    profile = Profile(trace)
    assert "\ufffd\U0001f600" in profile.to_html(tmp_path / "r.html").read_text("utf-8")
    assert profile.to_chrome_trace(tmp_path / "r.json").stat().st_size
    assert profile.to_json().encode()


def test_step_markers_without_any_length_on_a_later_line_are_steps_without_any():
    trace = read(host(line("first", event("a:MatMul", 0, 9)), line("second", event("train", 5, 0, step_num=0, _r=1), event("train", 7, 0, step_num=1, _r=1))))
    profile = Profile(trace)
    assert profile.steps.duration_ms.tolist() == [0, 0]
    assert profile.summary()
