"""RunMetadata of session runs to traces: against TensorFlow's own Timeline, and by hand."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import profnb
from conftest import SHARED
from profnb.core.errors import TraceFormatError
from profnb.profile import Profile
from profnb.tf1 import run_metadata
from profnb.tf1.run_metadata import looks_like_run_metadata, read_run_metadata
from profnb.tf1.run_metadata import join_run_metadata
from profnb.tf1.nodes import parse_label


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def message(*fields):
    """Fields as (number, int | text | bytes), in wire format."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def node(name, begin_us, duration_us, op="Add", *more):
    return message((1, name), (2, begin_us), (5, duration_us), (8, f"{name} = {op}()"), *more)


def metadata(devices):
    """A RunMetadata with {device string: nodes}."""
    stats = [(1, message((1, name), *((2, n) for n in nodes))) for name, nodes in devices.items()]
    return np.frombuffer(message((1, message(*stats))), np.uint8)


def events(trace):
    """(plane, line, name, begin us, duration us) of every event."""
    lines = trace.lines.of_event
    return [
        (
            trace.planes[trace.lines.plane[lines[e]]].name,
            trace.lines.names[lines[e]],
            trace.names[trace.events.name[e]],
            trace.events.begin_ps[e] / 1e6,
            trace.events.duration_ps[e] / 1e6,
        )
        for e in range(len(trace.events))
    ]


CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def test_a_run_is_a_step_from_its_first_begin_to_its_last_end():
    trace = read_run_metadata([metadata({CPU: [node("a", 1000, 30), node("b", 1030, 50, "MatMul")]})], "x")
    assert events(trace) == [
        (CPU, "ops", "a:Add", 0.0, 30.0),
        (CPU, "ops", "b:MatMul", 30.0, 50.0),
        ("session", "runs", "session_run", 0.0, 80.0),
    ]
    steps = Profile(trace).steps
    assert steps.phase.tolist() == ["session_run"]
    assert steps.duration_ms.tolist() == [0.08]
    assert steps.host_compute_ms.tolist() == [0.08]


def test_runs_are_numbered_in_their_order_and_their_nodes_belong_to_them():
    runs = [metadata({CPU: [node("a", 1000 + 100 * r, 40), node("b", 1010 + 100 * r, 20)]}) for r in range(3)]
    p = Profile(read_run_metadata(runs, "x"))
    assert p.steps.step_num.tolist() == [0, 1, 2]
    assert p.steps.gap_ms.tolist()[:2] == [0.06, 0.06]
    assert p.events[p.events.name == "b:Add"].step_num.tolist() == [0, 1, 2]
    assert p.ops.set_index("op_name").total_us.to_dict() == {"a": 120.0, "b": 60.0}
    assert p.ops.set_index("op_name").self_us.to_dict() == {"a": 120.0, "b": 60.0}


def test_runs_of_one_file_are_what_they_were_apart():
    runs = [metadata({CPU: [node("a", 1000 * at, 30 + at)], "/device:GPU:0": [node("b", 1000 * at + 5, 7)]}) for at in (3, 1, 2)]
    runs[1] = np.append(runs[1], np.frombuffer(message((2, b"cost graph")), np.uint8))  # what is not read is not kept
    joined = b"".join(join_run_metadata(runs))
    assert b"cost graph" not in joined and looks_like_run_metadata(np.frombuffer(joined, np.uint8))
    apart, together = read_run_metadata(runs, "x"), read_run_metadata([np.frombuffer(joined, np.uint8)], "x")
    assert events(together) == events(apart)
    assert [together.stats.of_event(row) for row in range(len(together.events))] == [apart.stats.of_event(row) for row in range(len(apart.events))]


def test_a_file_of_more_runs_than_any_capture_keeps_is_refused(monkeypatch):
    monkeypatch.setattr(run_metadata, "_MOST_RUNS_READ", 2)
    runs = [metadata({CPU: [node("a", 1000, 30)]})] * 3
    with pytest.raises(TraceFormatError, match="3 session runs in one file; at most 2"):
        read_run_metadata([np.concatenate(runs)], "x")
    with pytest.raises(TraceFormatError, match="at most 2"):
        list(join_run_metadata(runs))


def test_how_fast_a_value_came_makes_no_program_of_its_own():
    def run(at, speed):
        received = message((1, "RecvTensor"), (2, at), (5, 9), (8, f"[640.0KB {speed}Mb/s] edge_14_w/read from /job:ps/replica:0/task:0/device:CPU:0 to {CPU}"))
        return metadata({CPU: [received, node("train", at + 9, 30)]})

    trace = read_run_metadata([run(1000, 61.2), run(2000, 58.0), metadata({CPU: [node("init", 3000, 5)]}), run(4000, 612.7)], "x")
    assert [name for name, *_ in sorted(((one[2], one[3]) for one in events(trace)), key=lambda one: one[1]) if name.startswith("session_run")] == ["session_run", "session_run", "session_run (2)", "session_run"]


def test_events_that_overlap_get_lines_of_their_own():
    nodes = [node("a", 1000, 30), node("b", 1010, 5), node("c", 1020, 20), node("d", 1030, 1)]
    trace = read_run_metadata([metadata({CPU: nodes})], "x")
    assert [(line, name) for _, line, name, _, _ in events(trace)][:4] == [
        ("ops", "a:Add"), ("ops", "d:Add"), ("ops #2", "b:Add"), ("ops #2", "c:Add"),
    ]  # fmt: skip


def test_nanoseconds_are_taken_where_there_are_any():
    fine = message((1, "a"), (2, 5), (5, 9), (8, "a = Add()"), (13, 5_250), (16, 750))
    trace = read_run_metadata([metadata({CPU: [fine, node("b", 6, 1)]})], "x")
    assert events(trace)[:2] == [(CPU, "ops", "a:Add", 0.0, 0.75), (CPU, "ops", "b:Add", 0.75, 1.0)]


def test_streams_are_lines_of_the_device_and_copies_keep_their_names():
    kernel = message((1, "Conv2D"), (2, 1010), (5, 9), (8, "Conv2D:Conv2D regs:17 grid:1,1,1"), (10, 7))
    copy = message((1, "MEMCPYHtoD"), (2, 1000), (5, 2), (8, "x/Conv2D:Conv2D num_bytes: 112"))
    old = message((1, "k"), (2, 1030), (5, 1), (8, "sgemm@@dense/MatMul:MatMul#id=1"))
    trace = read_run_metadata([metadata({
        "/device:GPU:0/stream:all": [kernel, copy, old], "/device:GPU:0/stream:13": [kernel, copy, old],
    })], "x")  # fmt: skip
    assert [p.side for p in trace.planes] == ["device", "host"]
    assert trace.lines.is_copy.tolist() == [True, False, False]
    assert [(line, name) for _, line, name, _, _ in events(trace)][3:6] == [
        ("stream:13", "MEMCPYHtoD"), ("stream:13", "Conv2D:Conv2D"), ("stream:13", "sgemm"),
    ]  # fmt: skip
    p = Profile(trace)
    device = p.ops[p.ops.side == "device"]
    assert dict(zip(device.op_name, device.total_us)) == {"Conv2D": 9.0, "x/Conv2D": 2.0, "dense/MatMul": 1.0}
    assert p.steps.device_compute_ms.tolist() == [0.01]
    assert p.steps.input_ms.tolist() == [0.002]
    assert trace.stats.of_event(4)["kernel_details"] == "regs:17 grid:1,1,1"
    assert trace.stats.of_event(4)["thread_id"] == 7


def test_memory_shapes_and_inputs_are_stats():
    used = message((1, "cpu"), (2, 300), (3, 200), (4, -100), (5, 900))
    shape = message((2, message((1, 8))), (2, message((1, -1))))
    output = message((1, 1), (3, message((1, 14), (2, shape), (4, message((1, 64), (3, "cpu"))))))
    scalar = message((3, message((1, 101), (2, b""))))
    labelled = message(
        (1, "b"), (2, 1000), (5, 4), (6, used), (7, scalar), (7, output), (8, "[cpu 1KB] b = Mul(a, c:1)"),
        (9, 990), (12, message((1, 5), (3, 6))),
    )  # fmt: skip
    trace = read_run_metadata([metadata({CPU: [labelled]})], "x")
    assert trace.stats.of_event(0) == {
        "name": "b", "op": "Mul", "input0": "a", "input1": "c:1",
        "memory": "cpu: total 300, peak 200, live -100",
        "output_shapes": "0: float32[]; 1: bfloat16[8,?]",
        "total_bytes": 300, "peak_bytes": 200, "live_bytes": -100, "in_use_bytes": 900, "output_bytes": 64,
        "temp_bytes": 5, "persistent_bytes": 6, "scheduled_us": 10, "group_id": 0,
    }  # fmt: skip
    assert trace.stats.of_event(1) == {"step_num": 0, "_r": 1, "group_id": 0}


@pytest.mark.parametrize("name", ["op", "memory", "peak_bytes", "step_num", "thread_id", "no such stat"])
def test_a_stats_column_says_what_each_event_says(shared_traces, name):
    paths = [shared_traces / "run-metadata" / f"{n}.run_metadata.pb" for n in ("cpu", "gpu")]
    buffers = [np.fromfile(paths[1], np.uint8)] * 2
    trace = read_run_metadata(buffers, "x")
    each = {e: trace.stats.of_event(e).get(name) for e in range(len(trace.events))}
    each = {e: value for e, value in each.items() if value is not None}
    for column in (trace.stats.integers(name), trace.stats.texts(name)):
        values = [column.texts[v] if column.texts else int(v) for v in column.values]
        assert {e: each.pop(e) for e in column.events.tolist()} == dict(zip(column.events.tolist(), values))
    assert each == {}


def test_the_memory_that_ops_hold_is_a_counter_that_begins_anew_with_each_run():
    def run(begin):
        records = [message((1, begin + 2), (2, 64)), message((1, begin + 9), (2, -64))]
        more = message((1, "cpu"), *((6, record) for record in records))
        other = message((1, "cpu"), (6, message((1, begin + 4), (2, 36))))
        return metadata({CPU: [node("a", begin, 10, "Add", (6, more)), node("b", begin + 10, 1, "Add", (6, other))]})

    (counter,) = read_run_metadata([run(1000), run(2000)], "x").counters
    assert (counter.name, counter.series, counter.unit) == ("memory", "cpu", "bytes")
    assert (counter.time_ps / 1e6).tolist() == [2, 4, 9, 1002, 1004, 1009]
    assert counter.value.tolist() == [64, 100, 36, 64, 100, 36]


@pytest.mark.parametrize(
    ("name", "label", "is_device", "expected"),
    [
        ("a/b", "a/b = MatMul(x, y:1)", False, ("a/b", "MatMul")),
        ("a", "[mklcpu 3.8MB 3.8MB] a = _MklMatMul(x)", False, ("a", "_MklMatMul")),
        ("RecvTensor", "anything", False, ("RecvTensor", "RecvTensor")),
        ("a", "nothing known", False, ("a", "unknown")),
        ("k", "void k<int>(...)@@a:MatMul#1", True, ("a", "MatMul")),
        ("MEMCPYDtoHAsync", "c/_0:_Send::edge_1::async num_bytes: 4", True, ("c/_0", "_Send")),
        ("kernel", "regs 4", True, ("kernel", "unknown")),
    ],
)
def test_labels_name_the_node_and_its_op(name, label, is_device, expected):
    found = parse_label(name, label, is_device=is_device)
    assert (found.name, found.op) == expected


# Trouble.


def test_a_run_without_full_trace_says_what_to_do():
    with pytest.raises(TraceFormatError, match="^No times of nodes in 0 bytes.*FULL_TRACE"):
        read_run_metadata([np.empty(0, np.uint8)], "run.pb")


def test_another_protobuf_says_what_is_expected(cpu_trace_path):
    with pytest.raises(TraceFormatError, match="^No times of nodes in 62,588 bytes: no RunMetadata, or.*FULL_TRACE"):
        read_run_metadata([np.fromfile(cpu_trace_path, np.uint8)], "x")


def test_a_damaged_run_says_what_is_expected():
    raw = metadata({CPU: [node("a", 1000, 30)]})[:-3]
    with pytest.raises(TraceFormatError, match="bytes that are no RunMetadata, or damaged.*SerializeToString"):
        read_run_metadata([raw], "x")


def test_no_run_at_all_is_refused():
    with pytest.raises(TraceFormatError, match="No session run"):
        read_run_metadata([], "x")


def test_nodes_without_times_are_left_out_and_counted():
    trace = read_run_metadata([metadata({CPU: [node("a", 1000, 1), node("b", 0, 0)]})], "x")
    assert [name for *_, name, _, _ in events(trace)] == ["a:Add", "session_run"]
    assert trace.left_out == ("1 nodes were recorded without times.",)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("a", 1, 1), node("b", 10**15, 1)],
        [node("a", 1, 10**14)],
        [message((1, "a"), (13, (1 << 62) - 1), (16, (1 << 63) - 1))],
    ],
)
def test_times_that_no_program_has_are_refused(nodes):
    with pytest.raises(TraceFormatError):
        read_run_metadata([metadata({CPU: nodes})], "x")


def test_more_overlap_than_there_may_be_lines_shares_the_last_one():
    nodes = [node(f"n{i}", 1000, 5000 - i) for i in range(300)]
    trace = read_run_metadata([metadata({CPU: nodes})], "x")
    sizes = np.diff(trace.lines.offsets).tolist()
    assert sizes[:256] == [1] * 255 + [45]


def test_only_run_metadata_looks_like_run_metadata(shared_traces):
    found = [
        path.name
        for path in sorted(shared_traces.glob("*/*"))
        if path.is_file() and looks_like_run_metadata(np.fromfile(path, np.uint8))
    ]
    assert found == ["cpu.run_metadata.pb", "gpu.run_metadata.pb"]


def test_our_own_trace_does_not_look_like_run_metadata(cpu_trace_path):
    assert not looks_like_run_metadata(np.fromfile(cpu_trace_path, np.uint8))
    assert not looks_like_run_metadata(np.empty(0, np.uint8))
    assert looks_like_run_metadata(metadata({CPU: [node("a" * 300, 1, 1)]}))


REAL = SHARED / "run-metadata" / "gpu.run_metadata.pb"
SEED = REAL.read_bytes() if REAL.exists() else bytes(metadata({CPU: [node("a", 1000, 1), node("b", 1001, 2)]}))


def study(raw):
    buffer = np.frombuffer(raw, np.uint8)
    looks_like_run_metadata(buffer)
    try:
        trace = read_run_metadata([buffer], "x")
        for event in range(min(len(trace.events), 50)):
            trace.stats.of_event(event)
    except TraceFormatError:
        return
    assert (trace.events.duration_ps >= 0).all()
    assert (trace.events.begin_ps >= 0).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_damaged_bytes_are_refused_or_read_but_never_crash(changes):
    raw = bytearray(SEED)
    for position, byte in changes:
        raw[position] = byte
    study(bytes(raw))


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.integers(0, len(SEED)).map(lambda size: SEED[:size])))
def test_any_bytes_are_refused_or_read_but_never_crash(raw):
    study(raw)


# Against TensorFlow's own Timeline.


def timeline_events(run):
    """(device, node, op, begin ns, duration ns), sorted, as TensorFlow's Timeline sees them."""
    timeline = pytest.importorskip("tensorflow.python.client.timeline")
    trace = json.loads(timeline.Timeline(run.step_stats).generate_chrome_trace_format())["traceEvents"]
    pids = {e["pid"]: e["args"]["name"] for e in trace if e["ph"] == "M"}
    return sorted(
        (pids[e["pid"]].removesuffix(" Compute"), e["args"]["name"], e["args"]["op"], e["ts"] * 1000, e["dur"] * 1000)
        for e in trace
        if e["ph"] == "X"
    )


def our_events(trace, run, number=0):
    """The same from our trace."""
    base = min(n.all_start_nanos or n.all_start_micros * 1000 for d in run.step_stats.dev_stats for n in d.node_stats)
    first = min(
        b for b, n in zip(trace.events.begin_ps, trace.stats.integers("group_id").values) if n == number
    )  # fmt: skip
    lines, found = trace.lines.of_event, []
    for e in range(len(trace.events)):
        stats = trace.stats.of_event(e)
        if "name" in stats and stats["group_id"] == number:
            plane, line = trace.planes[trace.lines.plane[lines[e]]].name, trace.lines.names[lines[e]].split(" #")[0]
            begin, duration = (int(ps) // 1000 for ps in (trace.events.begin_ps[e] - first, trace.events.duration_ps[e]))
            found.append((plane if line == "ops" else f"{plane}/{line}", stats["name"], stats["op"], base + begin, duration))
    return sorted(found)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_recorded_run_has_exactly_the_events_of_tensorflows_timeline(shared_traces, name):
    tf = pytest.importorskip("tensorflow")
    raw = (shared_traces / "run-metadata" / f"{name}.run_metadata.pb").read_bytes()
    run = tf.compat.v1.RunMetadata.FromString(raw)
    ours = our_events(read_run_metadata([np.frombuffer(raw, np.uint8)], name), run)
    theirs = timeline_events(run)
    assert len(ours) == {"cpu": 14, "gpu": 54}[name]
    named = [(d, n, o, b, t) for d, n, o, b, t in ours if "/stream:" not in d and "/memcpy" not in d]
    assert named == [e for e in theirs if "/stream:" not in e[0] and "/memcpy" not in e[0]]
    # On a device, Timeline does not read this TensorFlow's labels: it has no op, and copies' own names.
    assert [(d, b, t) for d, _, _, b, t in sorted(ours, key=lambda e: (e[0], *e[3:]))] == sorted((d, b, t) for d, _, _, b, t in theirs)


@pytest.mark.tensorflow
def test_runs_of_this_tensorflow_have_the_events_of_its_timeline():
    tf = pytest.importorskip("tensorflow")
    v1, runs = tf.compat.v1, []
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 1000))
        branches = [tf.reduce_sum(tf.matmul(x, tf.fill((1000, 1000), float(i)), name=f"mm{i}")) for i in range(4)]
        for _ in range(3):
            run = v1.RunMetadata()
            session.run(branches, {x: np.ones((1000, 1000))}, v1.RunOptions(trace_level=3), run)
            runs.append(run)
    trace = read_run_metadata([np.frombuffer(r.SerializeToString(), np.uint8) for r in runs], "x")
    for number, run in enumerate(runs):
        ours, theirs = our_events(trace, run, number), timeline_events(run)
        assert len(theirs) > 10
        by_name = lambda e: (e[0], e[1], e[2])  # noqa: E731
        ours, theirs = sorted(ours, key=by_name), sorted(theirs, key=by_name)
        assert [e[:3] for e in ours] == [e[:3] for e in theirs]
        for (*_, begin, duration), (*_, their_begin, their_duration) in zip(ours, theirs):
            assert their_begin <= begin < their_begin + 1000  # theirs are whole microseconds
            assert abs(duration - their_duration) < 1000


@pytest.mark.tensorflow
def test_a_matrix_product_of_a_million_floats_takes_four_million_bytes():
    tf = pytest.importorskip("tensorflow")
    v1, run = tf.compat.v1, tf.compat.v1.RunMetadata()
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (1000, 1000))
        total = tf.reduce_sum(tf.matmul(x, x, name="product"))
        session.run(total, {x: np.ones((1000, 1000))}, v1.RunOptions(trace_level=3), run)
    trace = read_run_metadata([np.frombuffer(run.SerializeToString(), np.uint8)], "x")
    (product,) = [
        stats for e in range(len(trace.events)) if (stats := trace.stats.of_event(e)).get("name") == "product"
    ]
    assert product["op"].endswith("MatMul")
    assert product["total_bytes"] == product["peak_bytes"] == product["output_bytes"] == 4_000_000
    assert product["output_shapes"] == "0: float32[1000,1000]"
    assert max(counter.value.max() for counter in trace.counters) >= 4_000_000


def test_runs_keep_their_line_and_their_steps_through_a_timeline(tmp_path):
    runs = [metadata({CPU: [node("a", 1000 + 100 * r, 40), node("b", 1010 + 100 * r, 20)]}) for r in range(3)]
    runs.append(metadata({CPU: [node("init", 2000, 7)]}))
    before = Profile(read_run_metadata(runs, "x"))
    after = profnb.load(before.to_chrome_trace(tmp_path / "timeline.json"))
    assert sorted(events(after.trace)) == sorted(events(before.trace))
    columns = ["step_num", "phase", "begin_ms", "duration_ms", "gap_ms", "host_compute_ms"]
    assert after.steps[columns].round(9).equals(before.steps[columns].round(9))
