"""tfprof's views of session runs as tables."""

import subprocess
import sys

import numpy as np
import pytest

import profnb
from profnb.tf1.tfprof import VIEWS, tfprof_view
from profnb.profile import Profile
from profnb.tf1.run_metadata import read_run_metadata

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow
v1 = tf.compat.v1


@pytest.fixture(scope="module")
def profiled():
    """Two runs of a product of two 1000 x 1000 matrices of float32, the batch size open."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 1000), name="x")
        w = v1.get_variable("w", (1000, 1000), initializer=v1.ones_initializer())
        with v1.name_scope("layer"):
            product = tf.matmul(x, w, name="product")
        total = tf.reduce_sum(product, name="total")
        session.run(w.initializer)
        with profnb.profile() as p:
            for _ in range(2):
                session.run(total, {x: np.ones((1000, 1000))})
        yield p, graph, session


def by_name(table):
    return table.set_index("name")


def test_name_scopes_hold_their_nodes(profiled):
    p, *_ = profiled
    table = p.tfprof("scope")
    layer = table[table.name == "layer"].iloc[0]
    product = table[table.name == "layer/product"].iloc[0]
    assert (layer.depth, product.depth) == (0, 1)
    assert table.name[product.parent] == "layer"
    assert layer.total_us >= product.total_us > 0
    assert layer.self_us == 0


def test_the_numbers_of_a_known_product(profiled):
    p, *_ = profiled
    product = by_name(p.tfprof("op")).loc["MatMul"]
    runs = [v1.RunMetadata.FromString(run) for run in p.recording.graph_runs]
    nodes = [n for run in runs for d in run.step_stats.dev_stats for n in d.node_stats if n.node_name == "layer/product"]
    at_least = sum(n.op_end_rel_micros - n.op_start_rel_micros for n in nodes)
    assert at_least <= product.total_us <= sum(n.all_end_rel_micros for n in nodes)
    assert at_least > 0
    assert product.float_ops == 2 * (2 * 1000**3)  # of both runs
    assert product.occurrences == 2
    assert product.requested_bytes == 8_000_000
    assert product.peak_bytes == 4_000_000
    assert product.cpu_us == product.total_us
    assert np.isnan(product.device_us)
    assert by_name(p.tfprof("op")).loc["VarHandleOp"].parameters == 1_000_000


def test_the_graph_view_stands_on_what_is_fetched(profiled):
    p, *_ = profiled
    table = p.tfprof("graph")
    total = table[table.name == "total"].iloc[0]
    assert total.depth == 0
    product = table[table.name == "layer/product"].iloc[0]
    assert table.name[product.parent] == "total"
    assert total.total_us == table[table.depth == 0].total_us.max()


def test_the_code_view_names_the_lines_that_made_the_ops(profiled):
    p, *_ = profiled
    table = p.tfprof("code")
    mine = table[table.name.str.startswith("test_tfprof.py")]
    assert len(mine) >= 2
    assert mine.total_us.max() >= by_name(p.tfprof("op")).loc["MatMul"].total_us
    assert table.occurrences.min() >= 1


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_the_time_of_the_product(profiled, view):
    p, *_ = profiled
    table = p.tfprof(view)
    assert by_name(p.tfprof("op")).loc["MatMul"].self_us in set(table.self_us)
    assert list(table.columns) == [
        "name", "depth", "parent", "self_us", "total_us", "device_us", "cpu_us", "requested_bytes",
        "peak_bytes", "parameters", "float_ops", "occurrences",
    ]  # fmt: skip


def test_the_graph_stays_as_it_was_and_takes_other_batch_sizes(profiled):
    p, graph, session = profiled
    for view in VIEWS:
        p.tfprof(view)
    assert graph.get_tensor_by_name("x:0").shape.as_list() == [None, 1000]
    assert session.run("total:0", {"x:0": np.ones((3, 1000))}) == 3e6


def test_nothing_is_printed(profiled, capfd):
    p, *_ = profiled
    for view in VIEWS:
        p.tfprof(view)
    assert capfd.readouterr() == ("", "")


def test_a_fresh_process_prints_nothing_either(tmp_path):
    code = """
import sys, os
import tensorflow as tf
v1 = tf.compat.v1
with tf.Graph().as_default() as graph, v1.Session() as session:
    x = v1.placeholder(tf.float32, (None, 8))
    y = tf.matmul(x, tf.ones((8, 8)))
    run = v1.RunMetadata()
    session.run(y, {x: [[1.0] * 8]}, v1.RunOptions(trace_level=3), run)
from profnb.tf1.tfprof import VIEWS, tfprof_view
out, err = (open(sys.argv[1] + "/" + name, "wb") for name in ("out", "err"))
os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
for view in VIEWS:
    assert tfprof_view(view, graph, [run.SerializeToString()])
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={"TF_CPP_MIN_LOG_LEVEL": "0", "CUDA_VISIBLE_DEVICES": "-1", "PATH": ""}, check=True, capture_output=True
    )
    assert run.returncode == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "err").read_bytes() == b""


def test_a_profiler_of_the_users_own_survives(profiled):
    p, graph, _ = profiled
    run = v1.RunMetadata.FromString(p.recording.graph_runs[0])
    with tf.Graph().as_default() as copy:
        tf.import_graph_def(graph.as_graph_def(), name="")
    own = v1.profiler.Profiler(copy)
    own.add_step(0, run)
    p.tfprof("scope")
    options = v1.profiler.ProfileOptionBuilder(v1.profiler.ProfileOptionBuilder.time_and_memory()).with_empty_output()
    assert own.profile_name_scope(options.build()).total_exec_micros > 0


def record(graph, **options):
    run = v1.RunMetadata()
    with v1.Session(graph=graph) as session:
        session.run("y:0", {"x:0": [[1.0] * 8]}, v1.RunOptions(trace_level=3, **options), run)
    return Profile(read_run_metadata([np.frombuffer(run.SerializeToString(), np.uint8)], "saved.pb"))


@pytest.fixture
def small():
    with tf.Graph().as_default() as graph:
        tf.matmul(v1.placeholder(tf.float32, (None, 8), name="x"), tf.ones((8, 8)), name="y")
    return graph


def test_a_saved_run_needs_the_graph(small):
    p = record(small)
    with pytest.raises(profnb.CaptureError, match="Pass graph="):
        p.tfprof()
    assert by_name(p.tfprof(graph=small)).loc["y"].float_ops == 2 * 1 * 8 * 8
    assert by_name(p.tfprof(graph=small.as_graph_def())).loc["y"].occurrences == 1
    with pytest.raises(profnb.CaptureError, match="built in this process"):
        p.tfprof("code", graph=small.as_graph_def())


def test_a_saved_run_may_hold_its_graph(small):
    p = record(small, output_partition_graphs=True)
    assert by_name(p.tfprof("scope")).loc["y"].occurrences == 1


def test_a_trace_of_something_else_and_an_unknown_view_say_so(cpu_trace_path, profiled):
    with pytest.raises(profnb.CaptureError, match="has no session runs"):
        profnb.load(cpu_trace_path).tfprof()
    with pytest.raises(ValueError, match="scope, graph, op, code, got 'advise'"):
        profiled[0].tfprof("advise")


def test_device_time_of_a_recorded_gpu_run(shared_traces):
    from google.protobuf import text_format

    folder = shared_traces / "run-metadata"
    graph = text_format.Parse((folder / "graph.pbtxt").read_text(), v1.GraphDef())
    raw = (folder / "gpu.run_metadata.pb").read_bytes()
    rows = {row.name: row for row in tfprof_view("scope", graph, [raw])}
    # Kernels of the single stream; the copy of 2 us that our op table counts with Conv2D is not in it.
    assert (rows["Conv2D"].device_us, rows["Conv2D_1"].device_us) == (226, 178)
    ours = Profile(read_run_metadata([np.frombuffer(raw, np.uint8)], "gpu")).ops
    ours = ours[ours.side == "device"].set_index("op_name").total_us
    assert (ours["Conv2D"], ours["Conv2D_1"]) == (228, 178)
