"""Chrome traces out: what is written reads back as it was, obeys Perfetto's rules, and equals TF1's Timeline."""

import collections
import gzip
import json

import numpy as np
import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, plane, read, ref

import profnb
from profnb.subjects.input.pipeline import find_buffers
from profnb.subjects.memory.allocators import find_allocators
from profnb.subjects.memory.allocators import sample_memory
from profnb.profile import Profile
from profnb.trace.enqueued import align_clocks
from profnb.trace.files import read_trace
from profnb.trace.model import Trace

US = 10**6


def rows(trace: Trace):
    lines = trace.lines
    places = [(trace.planes[lines.plane[li]].name, lines.names[li]) for li in range(len(lines))]
    names = [trace.names[row] for row in trace.events.name.tolist()]
    return [
        (*places[li], name, begin, duration)
        for li, name, begin, duration in zip(lines.of_event.tolist(), names, trace.events.begin_ps.tolist(), trace.events.duration_ps.tolist(), strict=True)
    ]


def written(trace, path):
    Profile(trace).to_chrome_trace(path)
    body = path.read_bytes()
    return json.loads(gzip.decompress(body) if path.suffix == ".gz" else body)


@pytest.mark.parametrize("path", every_shared_trace())
def test_every_trace_obeys_perfettos_rules_and_reads_back_as_it_was_written(path, tmp_path):
    trace = read_trace(path)
    assert check_perfetto_rules(written(trace, tmp_path / "t.json")) > 0
    again, trace = read_trace(tmp_path / "t.json"), align_clocks(trace)  # what is written is on one clock, and stays so
    assert align_clocks(again) is again
    # As multisets: the order of events with equal begin and end is nobody's.
    assert collections.Counter(rows(trace)) == collections.Counter(rows(again))
    assert [p.name for p in trace.planes] == [p.name for p in again.planes]


def test_steps_breakdown_ops_and_stats_survive_the_round_trip(cpu_trace_path, tmp_path):
    before = profnb.load(cpu_trace_path)
    after = profnb.load(before.to_chrome_trace(tmp_path / "t.json.gz"))
    assert after.steps.equals(before.steps)
    assert after.ops.equals(before.ops)
    for index in range(0, len(before.trace.events), 37):
        expected = {k: v for k, v in before.trace.stats.of_event(index).items() if not isinstance(v, bytes)}
        found = after.trace.stats.of_event(index)
        assert {k: str(v) for k, v in expected.items()} == {k: str(v) for k, v in found.items()}
    assert not any("flow" in note for note in after.notes)


def test_the_json_is_what_a_person_would_write_by_hand(tmp_path):
    trace = read(
        host(line("python", event("train", 0, 50 * US, step_num=3, _r=1), event("launch", 5 * US + 7, 2 * US, correlation_id=9, note=ref("a<b"), share=0.5, big=2**60), line_id=77)),
        gpu(line("Stream #1", event("kernel", 20 * US, 1_500_000, correlation_id=9))),
    )
    data = written(trace, tmp_path / "t.json")
    assert data["displayTimeUnit"] == "ms"
    assert data["otherData"] == {"tool": "profnb", "version": profnb.__version__, "source": "built.xplane.pb"}
    events = data["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert complete == [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 50, "name": "train", "args": {"step_num": 3, "_r": 1}},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 5.000007, "dur": 2, "name": "launch", "args": {"correlation_id": 9, "note": "a<b", "share": 0.5, "big": str(2**60)}},
        {"ph": "X", "pid": 2, "tid": 2, "ts": 20, "dur": 1.5, "name": "kernel", "args": {"correlation_id": 9}},
    ]
    names = {(e["name"], e["pid"], e.get("tid")): e["args"] for e in events if e["ph"] == "M"}
    assert names["process_name", 1, None]["name"] == "/host:CPU"
    assert names["thread_name", 1, 1]["name"] == "python"
    assert names["thread_name", 1, 1]["line_id"] == 77
    assert names["thread_name", 2, 2]["name"] == "Stream #1"
    flows = [(e["ph"], e["id"], e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] in "sf"]
    assert flows == [("s", 1, 1, 1, 5.000007), ("f", 1, 2, 2, 20)]
    assert [(e["name"], e["ts"], e["tid"]) for e in events if e["ph"] == "i"] == [("train 3", 0, 1)]
    assert b"<" not in (tmp_path / "t.json").read_bytes()


def test_memory_and_buffers_are_counters(tmp_path):
    def memory(name, begin, in_use):
        return event(name, begin, 0, allocator_name=ref("GPU_0_bfc"), bytes_allocated=in_use, bytes_reserved=0)

    trace = read(host(line("t", memory("MemoryAllocation", 1 * US, 100), memory("MemoryDeallocation", 3 * US, 40), event("Iterator::Root::Prefetch", 2 * US, US, buffered_elements=2))))
    found = {(c.name, c.series, c.unit): (c.time_ps.tolist(), c.value.tolist()) for c in [*sample_memory(trace, find_allocators(trace)), *find_buffers(trace)]}
    assert found == {("memory", "GPU_0_bfc", "bytes"): ([US, 3 * US], [100, 40]), ("buffered elements", "Root::Prefetch", ""): ([2 * US], [2])}
    counters = [(e["name"], e["ts"], e["args"]) for e in written(trace, tmp_path / "t.json")["traceEvents"] if e["ph"] == "C"]
    assert counters == [("memory", 1, {"GPU_0_bfc": 100}), ("memory", 3, {"GPU_0_bfc": 40}), ("buffered elements", 2, {"Root::Prefetch": 2})]
    assert read_trace(tmp_path / "t.json").counters == ()  # they are in the events, not twice


def test_counters_of_a_chrome_trace_are_written_again(tmp_path):
    source = tmp_path / "in.json"
    source.write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":9},{"ph":"C","name":"q","pid":1,"ts":3,"args":{"n":2.5}}]')
    written(read_trace(source), tmp_path / "t.json")
    (counter,) = read_trace(tmp_path / "t.json").counters
    assert (counter.name, counter.series, counter.time_ps.tolist(), counter.value.tolist()) == ("q", "n", [3 * US], [2.5])


# Perfetto's rules: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU and Perfetto's importer.


def check_perfetto_rules(data):
    open_ = collections.defaultdict(list)
    slices = collections.defaultdict(list)
    flows = collections.defaultdict(list)
    for e in data["traceEvents"]:
        assert e["ph"] in "XMCsfi"
        assert isinstance(e["pid"], int)
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            continue
        assert isinstance(e["ts"], int | float) and e["ts"] >= 0
        assert isinstance(e["name"], str)
        if e["ph"] == "X":
            assert e["dur"] >= 0 and isinstance(e["tid"], int)
            # Integers of picoseconds, so that this test does not round.
            begin, end = round(e["ts"] * 1e6), round(e["ts"] * 1e6) + round(e["dur"] * 1e6)
            stack = open_[e["pid"], e["tid"]]
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], "slices of one thread have to nest"
            stack.append(end)
            slices[e["pid"], e["tid"]].append((begin, end))
        elif e["ph"] == "C":
            assert all(isinstance(v, int | float) for v in e["args"].values())
        elif e["ph"] in "sf":
            flows[e["id"]].append(e)
            assert e["bp"] == "e"
        elif e["ph"] == "i":
            assert e["s"] in "gpt"
    for ends in flows.values():
        assert [e["ph"] for e in ends] == ["s", "f"]
        for e in ends:
            at = round(e["ts"] * 1e6)
            begins = [b for b, _ in slices[e["pid"], e["tid"]]]
            assert at in begins, "a flow has to begin and end at a slice"
    return len(slices)


def test_events_that_overlap_without_nesting_get_a_thread_of_the_same_name_and_come_back(tmp_path):
    trace = read(host(line("t", event("a", 0, 10 * US), event("b", 5 * US, 10 * US), event("c", 6 * US, 2 * US), event("d", 12 * US, 20 * US))))
    data = written(trace, tmp_path / "t.json")
    check_perfetto_rules(data)
    tids = {e["name"]: e["tid"] for e in data["traceEvents"] if e["ph"] == "X"}
    assert tids["a"] == tids["c"] == tids["d"] != tids["b"]
    assert [e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"] == ["t", "t"]
    again = read_trace(tmp_path / "t.json")
    assert rows(again) == rows(trace)


def test_hostile_names_are_valid_json_and_close_nothing(tmp_path):
    evil = 'a"b\\c\x01\x1f</script>é\U0001f600'
    trace = read(host(line(evil, event(evil, 0, 1, **{evil: evil}))), plane(evil, line("x", event("y", 0, 1))))
    data = written(trace, tmp_path / "t.json")
    (e, _) = [e for e in data["traceEvents"] if e["ph"] == "X"]
    assert (e["name"], e["args"]) == (evil, {evil: evil})
    assert b"</" not in (tmp_path / "t.json").read_bytes()


def test_bytes_that_are_no_text_become_replacement_characters(tmp_path):
    from traces import message

    raw = b"\xff\xfe ok \xc3\x28 \xed\xa0\x80 \xf0\x9f\x98\x80 \xc3"
    broken = message((2, "/host:CPU"), (3, message((1, 1), (2, "t"), (4, message((1, 1), (2, 0), (3, 5), (4, message((1, 1), (5, raw))))))), (4, message((1, 1), (2, message((1, 1), (2, raw))))), (5, message((1, 1), (2, message((1, 1), (2, "key"))))))
    from profnb.trace.xplane import read_xplane

    trace = read_xplane(np.frombuffer(message((1, broken)), np.uint8), "broken.xplane.pb")
    (e,) = [e for e in written(trace, tmp_path / "t.json")["traceEvents"] if e["ph"] == "X"]
    assert e["args"]["key"] == raw.decode("utf-8", "replace")
    assert e["name"] == raw.decode("utf-8", "replace")


def test_an_empty_trace_is_still_a_file(tmp_path):
    data = written(read(host(line("t"))), tmp_path / "t.json")
    assert [e["name"] for e in data["traceEvents"]][:1] == ["process_name"]


@pytest.mark.slow
def test_pytorch_steps_and_ops_survive(shared_traces, tmp_path):
    before = profnb.load(shared_traces / "kineto" / "changed.json.gz")
    after = profnb.load(before.to_chrome_trace(tmp_path / "t.json"))
    assert after.steps.step_num.tolist() == before.steps.step_num.tolist()
    assert after.ops.groupby("op_name").total_us.sum().round(6).equals(before.ops.groupby("op_name").total_us.sum().round(6))
    assert after.kernels.occurrences.sum() == before.kernels.occurrences.sum()


# TF1.


def timeline_events(data):
    """The events of each device; those that mark the runs are ours alone."""
    process = {e["pid"]: e["args"]["name"] for e in data["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}
    return collections.Counter(
        (process[e["pid"]], e["name"], e["ts"], e["dur"], json.dumps(e["args"], sort_keys=True)) for e in data["traceEvents"] if e["ph"] == "X" and process[e["pid"]] != "session"
    )


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_saved_run_gives_the_events_of_tensorflows_timeline(shared_traces, tmp_path, name):
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.client.timeline import Timeline

    file = shared_traces / "run-metadata" / f"{name}.run_metadata.pb"
    metadata = tf.compat.v1.RunMetadata()
    metadata.ParseFromString(file.read_bytes())
    theirs = timeline_events(json.loads(Timeline(metadata.step_stats).generate_chrome_trace_format()))
    ours = timeline_events(written(read_trace(file), tmp_path / "t.json"))
    unknown = {key for key in theirs if "stream" in key[0] or "memcpy" in key[0]}
    # Timeline can't read the kernels' labels of this version and calls their ops unknown; the rest is equal.
    assert all(key[1] == "unknown" for key in unknown)
    known = {key: n for key, n in theirs.items() if key not in unknown}
    assert {key: ours[key] for key in known} == known
    place = lambda counts: collections.Counter({(k[0], k[2], k[3]): 0 for k in counts}) + sum((collections.Counter({(k[0], k[2], k[3]): n}) for k, n in counts.items()), collections.Counter())
    assert place(ours) == place(theirs)
    assert not any(key[1] == "unknown" for key in ours if "stream" in key[0])


@pytest.mark.tensorflow
def test_captured_runs_give_the_events_of_tensorflows_timeline(tmp_path):
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.client.timeline import Timeline

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        a = v1.placeholder(tf.float32, (None, 64), name="a")
        b = tf.matmul(a, tf.ones((64, 8)), name="b")
        with profnb.profile() as p, v1.Session() as session:
            for _ in range(3):
                session.run(b, {a: np.ones((16, 64), np.float32)})
    theirs = collections.Counter()
    for raw in p.recording.graph_runs:
        metadata = v1.RunMetadata()
        metadata.ParseFromString(raw)
        theirs += timeline_events(json.loads(Timeline(metadata.step_stats).generate_chrome_trace_format()))
    p.to_chrome_trace(tmp_path / "timeline.json")
    ours = timeline_events(json.loads((tmp_path / "timeline.json").read_text()))
    assert sum(ours.values()) >= 9
    assert ours == theirs
    again = profnb.load(tmp_path / "timeline.json")
    assert len(again.steps) == 3
