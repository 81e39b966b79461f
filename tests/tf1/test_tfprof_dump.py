"""What tfprof saved opens as the session runs it was made of; memory by op is tfprof's own."""

import numpy as np
import pytest
from traces import message, varint

import profnb
from profnb.core.errors import TraceFormatError
from profnb.profile import Profile
from profnb.tf1.run_metadata import read_run_metadata
from profnb.trace.names import GRAPH_RUNS

CPU, STREAM = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:GPU:0/stream:7"


def executions(device, *times):
    return message((1, device), (2, message(*((1, message((1, varint(a) + varint(b)))) for a, b in times))))


def node(number, name, op, steps):
    """Of each step: executions by device, on the host or not, and the memory of each on the host."""
    execs = [message((1, step), (2, message(*((4 if "stream" in device else 5, executions(device, *times)) for device, times in places.items()),
                                            *((7, message(*one)) for one in memory)))) for step, (places, memory) in steps.items()]  # fmt: skip
    return (1, message((1, number), (2, message((1, name), (9, op), *((12, one) for one in execs)))))


def held(requested, peak, residual, output, persistent=0, temp=0):
    return (2, temp), (3, persistent), (6, requested), (7, peak), (8, residual), (9, output)


def dump():
    product = {step: ({CPU: [(at, 5)], STREAM: [(at + 2, 9)]}, [held(120, 110, 105, 64, persistent=100, temp=7)]) for step, at in ((100, 1000), (200, 2000))}
    body = {100: ({CPU: [(1010, 2), (1020, 4)]}, [held(8, 8, 0, 8), held(6, 4, 0, 4)]), 200: ({CPU: [(2010, 2)]}, [held(8, 8, 0, 8)])}
    return message(node(97, "dense/product", "MatMul", product), node(3, "while/add", "Add", body), node(4, "never", "NoOp", {}), (2, 1), (3, varint(100) + varint(200)))


def load(path, raw):
    path.write_bytes(raw)
    return profnb.load(path)


def test_each_step_of_a_dump_is_a_run_with_its_ops(tmp_path):
    p = load(tmp_path / "profile_100", dump())
    assert p.steps.duration_ms.tolist() == [0.024, 0.012]
    assert (p.steps.step_num.tolist(), p.steps.gap_kind.tolist(), p.steps.gap_ms.notna().any()) == ([100, 200], ["last", "last"], False)
    ops = p.ops[["side", "op_name", "op_type", "occurrences", "total_us"]].to_numpy().tolist()
    assert sorted(ops) == [["device", "dense/product", "MatMul", 2, 18.0], ["host", "dense/product", "MatMul", 2, 10.0], ["host", "while/add", "Add", 3, 8.0]]


def test_memory_by_op_is_the_sum_of_a_runs_executions_and_the_mean_of_runs(tmp_path):
    p = load(tmp_path / "profile_100", dump())
    columns = ["op_name", "op_type", "occurrences", "requested_bytes", "peak_bytes", "residual_bytes", "output_bytes", "temp_bytes"]
    assert p.op_memory[columns].to_numpy().tolist() == [["dense/product", "MatMul", 2, 120, 110, 105, 64, 7], ["while/add", "Add", 3, 11, 10, 0, 10, 0]]
    assert "Memory by op" in p.to_html(tmp_path / "page.html").read_text()


def test_the_peak_of_a_run_is_told_by_who_held_it():
    def used(name, *records):
        return message((1, name), (2, 1000), (8, f"{name} = Op()"), (4, 1), (5, 1), (6, message((1, "cpu"), *((6, message((1, at), (2, size))) for at, size in records))))

    minus = (1 << 64) - 1
    nodes = [used("a", (1000, 300), (1005, minus - 299)), used("b", (1001, 50)), used("b", (1002, 20)), used("c", (1004, 80), (1004, minus - 79)), used("d", (1006, 10))]
    stats = message((1, message((1, CPU), *((2, one) for one in nodes))))
    p = Profile(read_run_metadata([np.frombuffer(message((1, stats)), np.uint8)], "x"))
    assert p.memory_peak[["allocator", "op_name", "bytes", "occurrences"]].to_numpy().tolist() == [["cpu", "a", 300, 1], ["cpu", "b", 70, 2]]
    assert p.memory_peak.bytes.sum() == p.memory.in_use_bytes.max() == 370
    assert p.memory_peak.time_ms[0] == pytest.approx(p.memory.time_ms[p.memory.in_use_bytes.idxmax()])
    assert any(plane.name == GRAPH_RUNS for plane in p.trace.planes)


@pytest.mark.parametrize(
    ("raw", "essence"),
    [
        (message(node(1, "never", "NoOp", {})), "without an execution of an op"),
        (dump() + b"\x0a\xff\xff\x03", "Malformed profile of tfprof"),
        (message(node(1, "n" * 1000, "o" * 1000, {1: ({CPU: [(5, 1)] * 100_000}, [])})), "more than 268 MB of executions"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_said(tmp_path, raw, essence):
    with pytest.raises(TraceFormatError, match=essence) as error:
        load(tmp_path / "profile_1", raw)
    assert str(error.value).startswith("profile_1: ")


@pytest.mark.tensorflow
def test_memory_by_op_equals_what_tfprof_says_of_the_same_runs(tmp_path):
    tf = pytest.importorskip("tensorflow").compat.v1
    if not hasattr(tf.profiler, "Profiler"):
        pytest.skip("this TensorFlow has no tfprof")
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 30], name="x")
        y = tf.matmul(x, tf.ones([30, 20]), name="product")
        total = tf.reduce_sum(tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, tf.sin(a)), (0, y))[1])
        tfprof = tf.profiler.Profiler(graph)
        for step in (1, 2):
            run = tf.RunMetadata()
            session.run(total, {x: np.ones((64, 30))}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=run)
            tfprof.add_step(step, run)
        (tmp_path / "profile_2").write_bytes(tfprof.serialize_to_string())
        options = tf.profiler.ProfileOptionBuilder.time_and_memory() | {"output": "none", "account_type_regexes": [".*"], "max_depth": 100, "step": -1, "min_bytes": 0, "min_micros": 0}
        waiting, expected = [tfprof.profile_name_scope(options)], {}
        while waiting:
            one = waiting.pop()
            waiting += one.children
            expected[one.name] = one.requested_bytes, one.peak_bytes, one.residual_bytes, one.output_bytes
    table = profnb.load(tmp_path / "profile_2").op_memory.set_index("op_name")
    ours = {name: tuple(int(row[f"{kind}_bytes"]) for kind in ("requested", "peak", "residual", "output")) for name, row in table.iterrows()}
    assert ours["product"][:2] == (64 * 20 * 4, 64 * 20 * 4)
    assert {name: ours[name] for name in expected if name in ours} == {name: expected[name] for name in expected if name in ours}
    assert [name for name, sizes in expected.items() if any(sizes) and name not in ours and name != "_TFProfRoot"] == []
