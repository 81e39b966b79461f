"""Chrome traces in: every writer's file to the same trace that a ten-line reading of its JSON gives."""

import collections
import functools
import gzip
import json
import struct
import zlib

import numpy as np
import pytest
from conftest import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st

import profnb
from profnb.steps.streams import find_launches
from profnb.steps.streams import raw_device_lines
from profnb.core.errors import TraceFormatError
from profnb.profile import Profile
from profnb.trace.chrome.reader import read_chrome
from profnb.trace.files import read_trace
from profnb.trace.runs import find_traces
from profnb.trace.names import CORRELATION_ID

pytestmark = pytest.mark.versions


def read(events, **top):
    body = events if isinstance(events, str | bytes) else json.dumps({"traceEvents": events, **top} if top else events)
    return read_chrome(np.frombuffer(body.encode() if isinstance(body, str) else body, np.uint8), "t.json")


def rows(trace):
    lines = trace.lines
    return [
        (trace.planes[lines.plane[li]].name, lines.names[li], trace.names[trace.events.name[e]], int(trace.events.begin_ps[e]), int(trace.events.duration_ps[e]))
        for e, li in enumerate(lines.of_event.tolist())
    ]  # fmt: skip


def x(name, ts, dur, pid=1, tid=1, **rest):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, **rest}


def named(pid, name, tid=None, thread=None):
    out = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}]
    return out + ([{"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}}] if thread else [])


def test_times_keep_every_digit_that_a_float_would_lose():
    """At an epoch in microseconds a float64 can tell a quarter of a microsecond apart, no less."""
    trace = read('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1661938466265032.000001,"dur":0.000003},'
                 '{"ph":"X","name":"b","pid":1,"tid":1,"ts":1661938466265032.100002,"dur":1e-3}]')  # fmt: skip
    assert trace.events.begin_ps.tolist() == [0, 100_001]
    assert trace.events.duration_ps.tolist() == [3, 1000]
    assert float("1661938466265032.000001") == float("1661938466265032.1")


@pytest.mark.parametrize(
    ("text", "picoseconds"),
    [("5", 5_000_000), ("5.", None), ("0.5", 500_000), ("1.5e3", 1_500_000_000), ("2E-6", 2), ("0.0000019", 1), ("-3.25", -3_250_000), ("1e5", 100_000_000_000), ("00012.5", 12_500_000), ("NaN", None), ("Infinity", None), ('"7"', None), ("null", None), ("1e99", None), ("12x", None), ("true", None)],
)  # fmt: skip
def test_numbers_of_every_form_are_exact_and_what_is_none_is_left_out(text, picoseconds):
    trace = read('[{"ph":"X","name":"z","pid":1,"tid":1,"ts":-1000,"dur":1},{"ph":"X","name":"n","pid":1,"tid":1,"dur":1,"ts":%s}]' % text)
    if picoseconds is None and text != "5.":
        assert len(trace.events) == 1
        assert trace.left_out == ("1 events have a time that is no number.",)
    else:
        assert trace.events.begin_ps[1] == (5_000_000 if text == "5." else picoseconds) + 1000 * 10**6


def test_time_begins_with_the_first_event_however_long_after_the_clocks_begin():
    events = [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1_700_000_000_000_000 + at, "dur": 2} for at in (0, 7)]
    assert read(events).events.begin_ps.tolist() == [0, 7_000_000]


def test_an_instant_and_an_event_without_a_duration_take_no_time():
    trace = read([x("a", 5, 2), {"ph": "i", "name": "now", "pid": 1, "tid": 1, "ts": 6, "dur": 3}, {"ph": "X", "name": "none", "pid": 1, "tid": 1, "ts": 8}])
    assert trace.events.duration_ps.tolist() == [2 * 10**6, 0, 0]


@pytest.mark.parametrize("body", ['[{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":2}]', '{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":2}]}'])
def test_a_byte_order_mark_before_the_file_is_passed_over(body):
    assert [r[2] for r in rows(read(b"\xef\xbb\xbf" + body.encode()))] == ["a"]


def test_processes_threads_and_their_names():
    trace = read([*named(7, "/host:CPU", 3, "python"), x("a:MatMul", 10, 5, pid=7, tid=3), x("b", 11, 1, pid=7, tid=3), x("c", 0, 1, pid=7, tid=4)])
    assert rows(trace) == [
        ("/host:CPU", "thread 4", "c", 0, 10**6), ("/host:CPU", "python", "a:MatMul", 10 * 10**6, 5 * 10**6), ("/host:CPU", "python", "b", 11 * 10**6, 10**6),
    ] or [r[1:] for r in rows(trace)][0][0] == "python"  # fmt: skip
    assert trace.is_host_event.all()


def test_escapes_surrogates_and_markup_in_names_are_text():
    name = "<script>alert('\"x\\y')</script>\u00e9\n"
    trace = read(json.dumps([x(name, 0, 1), x("lone \ud800", 1, 1)]))
    assert trace.names.texts[0] == name
    assert trace.names.texts[1].startswith("lone ")
    assert "<script" not in Profile(trace)._repr_mimebundle_()["text/html"]


def test_begin_and_end_pair_like_brackets_per_thread():
    def b(name, ts, tid=1):
        return {"ph": "B", "name": name, "ts": ts, "pid": 1, "tid": tid}

    def e(ts, tid=1, **rest):
        return {"ph": "E", "ts": ts, "pid": 1, "tid": tid, **rest}

    trace = read([b("outer", 0), b("inner", 1), b("other", 1, 2), e(3, args={"bytes": 5}), e(10), e(4, 2), e(11), b("open", 12), x("last", 13, 7)])
    assert [r[2:] for r in rows(trace)] == [
        ("outer", 0, 10 * 10**6), ("inner", 10**6, 2 * 10**6), ("open", 12 * 10**6, 8 * 10**6), ("last", 13 * 10**6, 7 * 10**6), ("other", 10**6, 3 * 10**6),
    ]  # fmt: skip
    assert trace.stats.of_event(1) == {"bytes": 5}
    assert trace.left_out == ("1 events begin and never end. The timeline draws them to the end of the thread.", "1 events without a begin are left out.")


def test_args_are_stats_bare_or_in_quotes():
    trace = read([x("a", 0, 1, args={"step_num": "10", "shape": "[2,3]", "f": 1.5, "list": [1, 2]}), x("b", 2, 1, args={"step_num": 11, "neg": -4, "id": 18446744073709551615})])
    steps = trace.stats.integers("step_num")
    assert (steps.events.tolist(), steps.values.tolist()) == ([0, 1], [10, 11])
    assert trace.stats.integers("neg").values.tolist() == [-4]
    assert trace.stats.integers("id").values.view(np.uint64).tolist() == [2**64 - 1]
    shape = trace.stats.texts("shape")
    assert (shape.events.tolist(), shape.texts) == ([0], ("[2,3]",))
    assert trace.stats.of_event(0) == {"step_num": "10", "shape": "[2,3]", "f": 1.5, "list": "[1, 2]"}
    assert len(trace.stats.integers("no such")) == 0


def test_counters_are_kept_with_their_unit():
    trace = read([x("a", 0, 9), {"ph": "C", "name": "Allocator Bytes in Use", "pid": 0, "ts": 4, "args": {"cpu": 100}}, {"ph": "C", "name": "Allocator Bytes in Use", "pid": 0, "ts": 2, "args": {"cpu": 50}}, {"ph": "C", "name": "queue", "pid": 0, "ts": 1, "args": {"n": 3, "text": "x"}}])
    found = {(c.name, c.series): (c.unit, (c.time_ps // 10**6).tolist(), c.value.tolist()) for c in trace.counters}
    assert found == {("Allocator Bytes in Use", "cpu"): ("bytes", [2, 4], [50, 100]), ("queue", "n"): ("", [1], [3])}


def test_what_is_not_read_is_counted():
    trace = read([x("a", 0, 1), x("neg", 0, -1), {"ph": "b", "id": 1, "ts": 0, "pid": 1, "name": "async"}, {"ph": "s", "id": 1, "ts": 0, "pid": 1, "tid": 1, "name": "f"}, {"name": "no time", "ph": "X", "pid": 1}, {}])
    assert trace.left_out == (
        "1 events have a time that is no number.", "1 events have a duration that is negative or no number.",
        "1 events have no place on a thread (async, object, ...).",
        "1 ends of flow arrows were skipped. Only args.correlation links launch and kernel.",
    )  # fmt: skip
    assert set(trace.left_out) <= set(Profile(trace).notes)


# Bad input.


@pytest.mark.parametrize(
    ("body", "essence"),
    [
        (b'{"traceEvents":[{"ph":"X","name":"a","ts":1', "Damaged or cut short at byte 16"),
        (b'{"cells":[],"metadata":{}}', "No list named traceEvents .*cells, metadata"),
        (b'{"traceEvents":{}}', "No list named traceEvents"),
        (b"[]", "No event has a time"),
        (b'[1,2,"x",null]', "No event has a time"),
        (b'{"traceEvents":[{"ph":"M","name":"process_name","pid":1,"args":{"name":"x"}}]}', "No event has a time"),
        (b'[{"ph":"X","name":"a","ts":0,"dur":1},{"ph":"X","name":"b","ts":1e16,"dur":1}]', "days apart"),
        (b"hello", "The file begins with b'hello'"),
        (b"  \n", "The file begins with b''"),
        (b'[{"ph":"X" "name":"a"}]', "Damaged"),
        (b"[" * 100_000, "Damaged"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_in_words(body, essence):
    with pytest.raises(TraceFormatError, match=f"(?s){essence}"):
        read(body)


def test_a_list_without_its_closing_bracket_is_read_and_said():
    trace = read(b'[\n{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1},\n')
    assert len(trace.events) == 1
    assert "no closing bracket" in trace.left_out[0]


def test_deep_nesting_in_args_costs_nothing():
    deep = '{"a":' * 50_000 + "1" + "}" * 50_000
    trace = read('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":%s}]' % deep)
    assert trace.stats.of_event(0) == {}
    assert len(trace.stats.integers("a")) == 0


@pytest.mark.slow
def test_a_gzip_that_inflates_without_end_is_stopped_at_a_bound(tmp_path, monkeypatch):
    from profnb.trace import files

    monkeypatch.setattr(files, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(files, "_SURE_BYTES", 100_000)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b"[" + b" " * 50_000_000))
    with pytest.raises(TraceFormatError, match="more than 0.0 GB when decompressed, from 0.0 MB"):
        read_trace(bomb)
    small = tmp_path / "claims.json.gz"  # a size field that lies is not believed
    packed = zlib.compressobj(wbits=-15)
    body = b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]'
    raw = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed.compress(body) + packed.flush()
    small.write_bytes(raw + struct.pack("<II", zlib.crc32(body), len(body)))
    assert len(read_trace(small).events) == 1
    small.write_bytes(raw + struct.pack("<II", zlib.crc32(body), 4_000_000_000))
    trace = read_trace(small)  # all of it came before the size
    assert (len(trace.events), "damaged gzip after 54 bytes" in trace.left_out[0]) == (1, True)
    small.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(TraceFormatError, match="cut short|Damaged|No event"):
        read_trace(small)


SEED = json.dumps({"displayTimeUnit": "ms", "traceEvents": [*named(1, "/host:CPU", 2, "t"), x("a", 1.5, 2, args={"k": [1, {"z": 2}], "s": "q"}), {"ph": "B", "name": "b", "ts": 2, "pid": 1, "tid": 2}, {"ph": "E", "ts": 3, "pid": 1, "tid": 2}, {"ph": "C", "name": "c", "ts": 3, "pid": 1, "args": {"v": 1}}]}).encode()  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.sampled_from(b'{}[]",:0e-.\\ \x00\xff1n')), min_size=1, max_size=8), st.integers(0, len(SEED)))
def test_a_mutated_file_is_read_or_refused_and_nothing_else(changes, cut):
    body = bytearray(SEED)
    for at, byte in changes:
        body[at] = byte
    try:
        trace = read(bytes(body[: cut or None]))
    except TraceFormatError:
        return
    for event in range(len(trace.events)):
        trace.stats.of_event(event)
    trace.stats.integers("k"), trace.stats.texts("s")
    assert Profile(trace).summary()


# Real files.

FILES = sorted(p for folder in ("tf1-timeline", "kineto", "chrome-other", "gpu-cnn-batch512", "gpu-cnn-batch8", "gpu-plane-empty") for p in (SHARED / folder).glob("*json*") if "memory_profile" not in p.name)
needs_files = pytest.mark.skipif(not FILES, reason="needs ../shared/traces")


@functools.lru_cache(maxsize=1)  # a test asks twice
def raw_json(path):
    body = path.read_bytes()
    data = json.loads(gzip.decompress(body) if path.suffix == ".gz" else body)
    return data if isinstance(data, list) else data["traceEvents"]


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES or [pytest.param(None, marks=needs_files)], ids=lambda p: p and f"{p.parent.name}-{p.name}")
def test_complete_events_equal_those_of_json_loads(path):
    trace = read_trace(path)
    theirs = [e for e in raw_json(path) if e.get("ph") == "X" and e.get("dur", 0) >= 0]
    first = min(e["ts"] for e in raw_json(path) if "ts" in e and e.get("ph") != "M" and e.get("ph") not in ("s", "t", "f"))
    ours = collections.Counter((round(b / 1e6), round(d / 1e6)) for b, d in zip(trace.events.begin_ps.tolist(), trace.events.duration_ps.tolist(), strict=True))
    expected = collections.Counter((round(e["ts"] - first), round(e.get("dur", 0))) for e in theirs)
    # Instants and paired events are ours besides; a float's last quarter of a microsecond may round otherwise.
    missing = expected - ours
    assert sum(missing.values()) <= 0.01 * len(theirs)
    assert sum(d for (_, d), n in ours.items() for _ in range(n)) >= sum(round(e.get("dur", 0)) for e in theirs) * 0.999


TF1 = sorted((SHARED / "tf1-timeline").glob("*.json"))


def union(spans):
    total, until = 0, -1
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


@pytest.mark.parametrize("path", TF1 or [pytest.param(None, marks=needs_files)], ids=lambda p: p and p.stem)
def test_tf1_lanes_hold_what_the_file_says_and_streams_count_once(path):
    events = raw_json(path)
    process = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    lanes = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            lanes[process[e["pid"]].removesuffix(" Compute"), e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    trace = read_trace(path)
    ours = {}
    for li in range(len(trace.lines)):
        plane, name = trace.planes[trace.lines.plane[li]], trace.lines.names[li]
        own = slice(trace.lines.offsets[li], trace.lines.offsets[li + 1])
        spans = list(zip((trace.events.begin_ps[own] // 10**6).tolist(), (trace.events.end_ps[own] // 10**6).tolist(), strict=True))
        device = plane.name + (f"/{name.partition(' #')[0]}" if plane.is_device else "")
        ours[device, int(trace.lines.ids[li])] = len(spans), union(spans)
    assert ours == {lane: (len(spans), union(spans)) for lane, spans in lanes.items()}
    raw = raw_device_lines(trace)[trace.lines.of_event]
    single = sum(len(spans) for (device, _), spans in lanes.items() if "/stream:" in device and "stream:all" not in device)
    repeated = sum(len(spans) for (device, _), spans in lanes.items() if "stream:all" in device or device.endswith("/memcpy"))
    assert raw.sum() == single
    if path.stem == "kittibox-gpu":
        assert (single, repeated) == (4810, 4810)  # the same work twice; it counts once
    if path.stem == "resnet50-cpu-merged":
        steps = profnb.load(path).steps
        assert len(steps) == len({e["ts"] for e in events if e.get("args", {}).get("name") == "_SOURCE"}) == 100


KINETO = sorted((SHARED / "kineto").glob("*.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("path", KINETO or [pytest.param(None, marks=needs_files)], ids=lambda p: p and p.name)
def test_pytorch_kernels_steps_and_launches_equal_the_file(path):
    events = [e for e in raw_json(path) if e.get("ph") == "X"]
    kernels = [e for e in events if e.get("cat") in ("kernel", "Kernel")]
    p = profnb.load(path)
    assert p.kernels.occurrences.sum() == len(kernels)
    assert p.kernels.total_us.sum() == pytest.approx(sum(e["dur"] for e in kernels))
    marks = sorted({(int(e["name"][13:]), e["dur"]) for e in events if e["name"].startswith("ProfilerStep#")})
    assert p.steps.step_num.tolist() == [number for number, _ in marks]
    assert set(p.steps.phase) == {"ProfilerStep"}
    correlated = {e["args"]["correlation"] for e in events if e.get("cat") in ("cuda_runtime", "Runtime")}
    launches, work = p.study.groups.step, p.trace.stats.integers(CORRELATION_ID)
    on_device = p.trace.is_device_line[p.trace.lines.of_event[work.events]]
    joined = np.isin(work.values[on_device], list(correlated))
    assert find_launches(p.trace)[0].size == joined.sum() > 0.95 * joined.size
    assert (launches[work.events[on_device]] >= 0).mean() > 0.9
    ops = {e["name"] for e in events if e.get("cat") in ("cpu_op", "Operator") and not e["name"].startswith("ProfilerStep#")}
    host = p.ops[p.ops.side == "host"]
    assert ops <= set(host.op_name) | {""}
    memory = [e for e in raw_json(path) if e.get("name") == "[memory]"]
    assert sum(c.value.size for c in p.trace.counters) == len(memory)


@pytest.mark.parametrize("name", ["gpu-cnn-batch512", "gpu-cnn-batch128", "gpu-cnn-batch8"])
def test_the_profilers_own_json_has_the_kernels_of_its_xplane(shared_traces, name):
    folder = shared_traces / name
    told, recorded = (profnb.load(folder / f"host.{kind}").kernels for kind in ("trace.json.gz", "xplane.pb"))
    for table in (told, recorded):
        table["total_us"] = table.total_us.round(2)
    keys = ["kernel_name"]  # the JSON has neither ops nor launch shapes
    assert told.groupby(keys).occurrences.sum().equals(recorded.groupby(keys).occurrences.sum())
    assert told.total_us.sum() == pytest.approx(recorded.total_us.sum(), abs=0.001 * len(recorded) * 40)


def test_a_folder_without_xplane_traces_offers_the_others(tmp_path):
    body = json.dumps([x("a", 0, 1)])
    for name in ("timeline_5.json", "host.trace.json", "notes.json"):
        (tmp_path / name).write_text(body)
    assert sorted(found.path.name for found in find_traces(tmp_path)) == ["host.trace.json", "timeline_5.json"]
    assert {found.host for found in find_traces(tmp_path)} == {"host", "timeline_5"}
    (tmp_path / "host.xplane.pb").write_bytes(b"x")
    assert [found.path.name for found in find_traces(tmp_path)] == ["host.xplane.pb"]
    with pytest.raises(TraceFormatError, match=r"No \*.xplane.pb, \*.trace.json"):
        find_traces(tmp_path.parent / "empty" if (tmp_path.parent / "empty").mkdir() is None else tmp_path)


def kineto(*events, **header):
    """A file of PyTorch's profiler of (category, name, process, thread, begin, duration, args)."""
    parts = [{"ph": "X", "cat": c, "name": n, "pid": p, "tid": t, "ts": ts, "dur": d, "args": a} for c, n, p, t, ts, d, a in events]
    return read(json.dumps({**header, "traceEvents": parts}).encode())


CALL = ("cuda_runtime", "cudaLaunchKernel", 9, 9, 0, 4, {"correlation": 1})
KERNEL = ("kernel", "gemm", 0, 7, 10, 20, {"correlation": 1, "stream": 7})


def test_a_file_of_kernels_alone_is_pytorchs():
    for events, header in (((CALL, KERNEL), {}), ((KERNEL,), {"schemaVersion": 1, "deviceProperties": []}), ((("Runtime", *CALL[1:]), ("Kernel", *KERNEL[1:])), {})):
        p = Profile(kineto(*events, **header))
        assert p.kernels.kernel_name.tolist() == ["gemm"]
        assert p.trace.is_host_event.sum() == len(events) - 1
    # A category called "kernel" alone proves nothing: another tool's events stay the host's.
    assert not len(Profile(kineto(KERNEL)).kernels)


def test_a_device_that_is_named_and_ran_nothing_is_there():
    """TensorFlow's own trace.json.gz of a program that trains beside its GPU names the GPU's process."""
    named = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}} for pid, name in ((1, "/device:GPU:0"), (2, "/host:CPU"))]
    steps = [{"ph": "X", "pid": 2, "tid": 1, "ts": at * 100, "dur": 90, "name": f"train {at}", "args": {"step_num": str(at)}} for at in range(6)]
    ops = [{"ph": "X", "pid": 2, "tid": 1, "ts": at * 100 + 1, "dur": 80, "name": "a/MatMul:MatMul"} for at in range(6)]
    p = Profile(read(json.dumps({"traceEvents": [*named, *steps, *ops]}).encode()))
    assert [plane.name for plane in p.trace.planes if plane.is_device] == ["/device:GPU:0"]
    assert p.summary().startswith("This training does not use the GPU.")
    without = Profile(read(json.dumps({"traceEvents": [*named[1:], *steps, *ops]}).encode()))
    assert not without.summary().startswith("There is a GPU")


@pytest.mark.parametrize("name", ["NEGOTIATE_ALLREDUCE", "dataset::GetNext"])
def test_what_waits_or_reads_in_other_tools_traces_is_no_op_that_computes(name):
    p = Profile(read(json.dumps([{"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 100, "name": name}]).encode()))
    assert p.steps.host_compute_ms.tolist() == [0]
    assert "nothing that could explain it was recorded" in p.summary()


def test_a_stream_that_waits_is_not_busy():
    waits = [("cuda_sync", "Stream Wait Event", 0, tid, 30, 500, {}) for tid in (7, 8, -1)]
    op = ("cpu_op", "aten::mm", 9, 9, 0, 600, {})
    p = Profile(kineto(op, CALL, KERNEL, *waits))
    assert p.kernels.occurrences.sum() == 1
    assert p.devices.busy_us.tolist() == [20]
    waiting = p.trace.select_names(lambda name: name == "Stream Wait Event")
    assert waiting.sum() == 3  # they are in the timeline
    assert not (waiting & p.trace.is_host_event).any()


def test_frames_and_annotations_of_pytorch_are_no_ops():
    frames = [("python_function", "train.py(3): step", 9, 9, 0, 1000, {}), ("user_annotation", "nccl:all_reduce", 9, 9, 300, 400, {})]
    op = ("cpu_op", "aten::relu", 9, 9, 800, 100, {})
    p = Profile(kineto(*frames, op))
    assert list(zip(p.ops.op_name, p.ops.total_us, strict=True)) == [("aten::relu", 100)]
    assert p.steps.host_compute_ms.tolist() == [0.1]
    assert p.steps.all_others_ms.tolist() == [0.9]
    beside = Profile(kineto(*frames, op, ("cuda_runtime", "cudaLaunchKernel", 9, 9, 850, 4, {"correlation": 1}), ("kernel", "gemm", 0, 7, 890, 10, {"correlation": 1})))
    assert list(beside.ops[beside.ops.side == "host"].op_name) == ["aten::relu"]
    assert beside.steps.all_others_ms.tolist() == [0.9]


def test_the_work_of_an_unknown_accelerator_is_said_and_not_charged_to_the_cpu():
    steps = [("user_annotation", f"ProfilerStep#{at}", 9, 9, 1000 * at, 1000, {}) for at in range(3)]
    ops = [("cpu_op", "aten::mm", 9, 9, 1000 * at, 900, {}) for at in range(3)]
    work = [("mtia_ccp_events", "exec", 0, 3, 1000 * at + 50, 800, {"correlation": at}) for at in range(3)]
    p = Profile(kineto(*steps, *ops, *work))
    assert any("3 events are of an unknown accelerator (mtia_ccp_events)" in note for note in p.notes)
    assert not any("CUPTI" in note for note in p.notes)
    assert "CPU" not in p.summary().splitlines()[0]
    assert not p.steps.host_compute_ms.any()
    assert not len(p.kernels)
    innocent = Profile(kineto(*steps, *ops))
    assert innocent.steps.host_compute_ms.tolist() == pytest.approx([0.9] * 3)
    assert not any("accelerator" in note for note in innocent.notes)


@pytest.mark.parametrize("name", ["mi210-kernels-only", "mi300-timesformer"])
def test_the_judged_traces_of_pytorch_are_read_as_what_they_are(shared_traces, name):
    path = shared_traces / "judged" / f"kineto-{name}.json.gz"
    events = [e for e in raw_json(path) if e.get("ph") == "X"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    p = profnb.load(path)
    assert p.kernels.occurrences.sum() == len(kernels) == {"mi210-kernels-only": 562, "mi300-timesformer": 447}[name]
    busy = union([(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")])
    assert p.devices.busy_us.sum() == pytest.approx(busy, rel=1e-3)
    ops = {e["name"] for e in events if e.get("cat") == "cpu_op"}
    assert set(p.ops[p.ops.side == "host"].op_name) == ops
