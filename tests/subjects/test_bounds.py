"""Operations and bytes of ops, what is open in their shapes, and what bounds them: by hand, and of programs that ran."""

import json
from dataclasses import replace
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from traces import event, gpu, host, line, read

import profnb
from profnb.capture.recording import Recording
from profnb.capture.saved.codec import Codec
from profnb.capture.saved.sidecar import CHECKS, LIMITS
from profnb.capture.source.graph_lines import read_shapes
from profnb.capture.source.source_records import GraphShapes
from profnb.capture.source.source_records import SourceRecords
from profnb.core.errors import TraceFormatError
from profnb.report.build import build_report
from profnb.subjects.bounds.op_costs import OpTensors, Tensor, find_costs, op_cost
from profnb.subjects.bounds.op_roofline import OP_ROOFLINE, bound_by
from profnb.subjects.bounds.tensor_sizes import fill_shapes, find_recorded_shapes, read_sizes
from profnb.subjects.bounds import measured_peak
from profnb.subjects.bounds.measured_peak import MeasuredPeak
from profnb.subjects.study import Study

US = 1_000_000


# Operations and bytes, by hand.


def cost_of(kind, inputs, outputs, setting="", dtype="float32"):
    """Of an op; an input is a shape, an integer stands for the input that it repeats."""
    rows = [one if isinstance(one, int) else row for row, one in enumerate(inputs)]
    taken = [Tensor(row, inputs[row], dtype) for row in rows]
    made = [Tensor(100 + row, shape, dtype) for row, shape in enumerate(outputs)]
    return op_cost(OpTensors(kind, taken, made, setting))


@pytest.mark.parametrize(("kind", "inputs", "outputs", "flops", "numbers"), [
    ("MatMul", [(64, 784), (784, 10)], [(64, 10)], 2 * 64 * 784 * 10, 64 * 784 + 784 * 10 + 640),
    ("MatMul", [(784, 64), (784, 10)], [(64, 10)], 2 * 64 * 784 * 10, 64 * 784 + 784 * 10 + 640),  # the first transposed
    ("BatchMatMulV2", [(8, 4, 20, 16), (8, 4, 16, 30)], [(8, 4, 20, 30)], 2 * 32 * 20 * 16 * 30, 32 * (20 * 16 + 16 * 30 + 20 * 30)),
    ("BatchMatMulV2", [(8, 20, 16), (16, 30)], [(8, 20, 30)], 2 * 8 * 20 * 16 * 30, 8 * 20 * 16 + 16 * 30 + 8 * 20 * 30),
    ("Conv2D", [(2, 28, 28, 3), (3, 3, 3, 8)], [(2, 26, 26, 8)], 2 * 2 * 26 * 26 * 8 * 27, 2 * 28 * 28 * 3 + 216 + 2 * 26 * 26 * 8),
    ("Conv2D", [(2, 28, 28, 8), (3, 3, 2, 8)], [(2, 28, 28, 8)], 2 * 2 * 28 * 28 * 8 * 18, 2 * 2 * 28 * 28 * 8 + 144),  # in four groups
    ("Conv3D", [(1, 8, 8, 8, 2), (3, 3, 3, 2, 4)], [(1, 6, 6, 6, 4)], 2 * 864 * 54, 1024 + 216 + 864),
    ("Conv2DBackpropInput", [(4,), (3, 3, 3, 8), (2, 26, 26, 8)], [(2, 28, 28, 3)], 2 * 2 * 26 * 26 * 8 * 27, 4 + 216 + 10816 + 4704),
    ("Conv2DBackpropFilter", [(2, 28, 28, 3), (4,), (2, 26, 26, 8)], [(3, 3, 3, 8)], 2 * 2 * 26 * 26 * 8 * 27, 4704 + 4 + 10816 + 216),
    ("DepthwiseConv2dNative", [(2, 28, 28, 3), (3, 3, 3, 2)], [(2, 26, 26, 6)], 2 * 2 * 26 * 26 * 6 * 9, 4704 + 54 + 8112),
    ("DepthwiseConv2dNativeBackpropInput", [(4,), (3, 3, 3, 2), (2, 26, 26, 6)], [(2, 28, 28, 3)], 2 * 8112 * 9, 4 + 54 + 8112 + 4704),
    ("Mul", [(64, 10), (10,)], [(64, 10)], 640, 640 + 10 + 640),
    ("Mul", [(64, 10), 0], [(64, 10)], 640, 1280),  # by itself: read once
    ("AddN", [(5,), (5,), (5,)], [(5,)], 10, 20),
    ("Sum", [(64, 10), (1,)], [(64,)], 640, 640 + 1 + 64),
    ("Softmax", [(64, 10)], [(64, 10)], 3200, 1280),
    ("Transpose", [(64, 10), (2,)], [(10, 64)], 0, 1282),
    ("Slice", [(1000, 10), (2,), (2,)], [(5, 10)], 0, 100),  # of a large one only what is taken
    ("ResourceGather", [(), (32,)], [(32, 16)], 0, 2 * 512),
    ("ResourceApplyGradientDescent", [(), (), (100,)], [], 200, 300),
    ("ResourceApplyAdam", [*[()] * 9, (100, 3)], [], 12 * 300, 7 * 300),
    ("AssignSubVariableOp", [(), (100,)], [], 100, 300),
    ("FusedBatchNormV3", [(2, 5, 5, 4), (4,), (4,), (4,), (4,)], [(2, 5, 5, 4), (4,), (4,)], 6 * 200, 400),
])  # fmt: skip
def test_operations_and_bytes_equal_those_worked_out_by_hand(kind, inputs, outputs, flops, numbers):
    cost = cost_of(kind, inputs, outputs)
    assert (cost.flops, cost.nbytes) == (flops, 4 * numbers)


def test_settings_and_widths_count():
    assert cost_of("Einsum", [(8, 20, 4, 16), (8, 30, 4, 16)], [(8, 4, 20, 30)], "aecd,abcd->acbe").flops == 2 * 8 * 20 * 30 * 4 * 16
    assert cost_of("MaxPool", [(2, 8, 8, 3)], [(2, 4, 4, 3)], "1,2,2,1").flops == 2 * 4 * 4 * 3 * 4
    assert cost_of("MaxPoolGrad", [(2, 8, 8, 3), (2, 4, 4, 3), (2, 4, 4, 3)], [(2, 8, 8, 3)], "1,2,2,1").flops == 96 * 4
    half = cost_of("MatMul", [(8, 8), (8, 8)], [(8, 8)], dtype="bfloat16")
    assert (half.width, half.nbytes, half.is_product) == ("16-bit", 3 * 64 * 2, True)
    assert cost_of("AddV2", [(8,), (8,)], [(8,)], dtype="int64").width == ""


@pytest.mark.parametrize(("kind", "inputs", "outputs", "setting"), [
    ("MatMul", [(None, 784), (784, 10)], [(None, 10)], ""),
    ("MatMul", [None, (784, 10)], [(64, 10)], ""),
    ("Mul", [(64, None), (10,)], [(64, 10)], ""),
    ("Where", [(64,)], [(64, 1)], ""),  # not among the types that are known
    ("Identity", [(64,)], [(64,)], ""),  # moves nothing
    ("ReadVariableOp", [()], [(64,)], ""),
    ("MaxPool", [(2, 8, 8, 3)], [(2, 4, 4, 3)], ""),  # a window that nobody told
    ("Einsum", [(8, 2), (8, 2)], [(8,)], "...a,...a->..."),
    ("ResourceApplyAdam", [()], [], ""),
    ("Conv2D", [(2, 28, 28, 3)], [(2, 26, 26, 8)], ""),
])  # fmt: skip
def test_what_is_not_known_has_no_cost_and_not_none(kind, inputs, outputs, setting):
    assert cost_of(kind, inputs, outputs, setting) is None


def test_text_has_no_bytes():
    assert cost_of("Transpose", [(8, 8), (2,)], [(8, 8)], dtype="string") is None


# Graphs.


def graph(*ops):
    """A graph: (name, type, names of what it takes, shapes of what it makes[, setting]); whole tensors are of floats."""
    first, shapes, inputs, settings = {}, [], [], {}
    for row, (name, _, taken, made, *setting) in enumerate(ops):
        inputs.append(tuple(first.get(one, -1) for one in taken))
        first[name] = len(shapes)
        shapes.extend(made)
        settings |= dict.fromkeys([row] if setting else [], *setting)
    return GraphShapes(
        tuple(op[0] for op in ops), tuple(op[1] for op in ops), tuple(inputs), tuple(len(op[3]) for op in ops),
        tuple(shapes), ("float32",) * len(shapes), settings,
    )  # fmt: skip


def weights(name, *sizes):
    return name, "ReadVariableOp", [], [sizes]


CNN = graph(
    ("x", "Placeholder", [], [(None, 28, 28, 1)]),
    weights("k", 3, 3, 1, 32),
    weights("b", 32),
    weights("w", 21632, 10),
    ("net/conv/Conv2D", "Conv2D", ["x", "k"], [(None, 26, 26, 32)]),
    ("net/conv/BiasAdd", "BiasAdd", ["net/conv/Conv2D", "b"], [(None, 26, 26, 32)]),
    ("net/conv/Relu", "Relu", ["net/conv/BiasAdd"], [(None, 26, 26, 32)]),
    ("net/flat/Reshape", "Reshape", ["net/conv/Relu"], [(None, 21632)]),
    ("net/dense/MatMul", "MatMul", ["net/flat/Reshape", "w"], [(None, 10)]),
    ("net/loss", "Mean", ["net/dense/MatMul"], [()]),
    ("gradient_tape/net/dense/MatMul/MatMul", "MatMul", ["net/dense/MatMul", "w"], [(None, 21632)]),
    ("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul", ["net/flat/Reshape", "net/dense/MatMul"], [(21632, 10)]),
)


def filled(graph, batch=64, recorded=None):
    return dict(zip(graph.op_names, fill_shapes(graph, batch, recorded or {}), strict=True))


def test_the_batch_reaches_every_tensor_of_a_model():
    shapes = filled(CNN)
    assert shapes["x"] == (64, 28, 28, 1)
    assert shapes["net/conv/Relu"] == (64, 26, 26, 32)
    assert shapes["net/flat/Reshape"] == (64, 21632)
    assert shapes["net/dense/MatMul"] == (64, 10)
    assert shapes["gradient_tape/net/dense/MatMul/MatMul"] == (64, 21632)


def test_without_a_batch_nothing_is_guessed():
    assert filled(CNN, batch=None)["net/dense/MatMul"] == (None, 10)


@pytest.mark.parametrize(("ops", "shape"), [
    # A sequence of 20 is laid under one another: 64 * 20 rows.
    ([("y", "Reshape", ["x"], [(None, 16)])], (1280, 16)),
    ([("y", "Transpose", ["x"], [(20, None, 16)])], (20, 64, 16)),
    ([("y", "Transpose", ["x"], [(None, 20, None)])], (None, 20, None)),
    ([("y", "ConcatV2", ["x", "x", "axis"], [(None, 20, 16)])], (128, 20, 16)),
    ([("y", "Where", ["x"], [(None, 3)])], (None, 3)),
    ([("y", "Unique", ["x"], [(None,)])], (None,)),
    ([("y", "Sum", ["x"], [(None, 16)])], (64, 16)),
    ([("y", "AddV2", ["x", "b"], [None])], (64, 20, 16)),
    ([("u", "Where", ["x"], [None]), ("y", "AddV2", ["x", "u"], [None])], None),
    ([("u", "Where", ["x"], [None]), ("y", "AddN", ["x", "u"], [None])], (64, 20, 16)),
    ([("y", "Einsum", ["x", "m"], [(None, 20, 4)], "abc,cd->abd")], (64, 20, 4)),
    ([("y", "Einsum", ["x", "m"], [(None, 20, 4)], "...c,cd->...d")], (None, 20, 4)),
    # Which of them is open is not what is open in what they take.
    ([("t", "Placeholder", [], [(10, None)]), ("y", "MatMul", ["t", "m"], [(None, 4)])], (None, 4)),
    # Rows of a table by their numbers; of a table whose size is open, it could be the other way round.
    ([("i", "Reshape", ["n"], [(None, 5)]), ("y", "GatherV2", ["m", "i"], [(None, 5, 4)])], (64, 5, 4)),
    ([("y", "ResourceGather", ["h", "n"], [(None, 16)])], (320, 16)),
    ([("y", "GatherV2", ["x", "n"], [(None, 20, 16)])], (None, 20, 16)),
])  # fmt: skip
def test_what_is_open_follows_from_what_is_taken(ops, shape):
    given = [
        ("x", "Placeholder", [], [(None, 20, 16)]), weights("b", 16), weights("m", 16, 4), ("axis", "Const", [], [()]),
        ("p", "Placeholder", [], [(None, 5)]), ("n", "Reshape", ["p"], [(None,)]), ("h", "Placeholder", [], [()]),
    ]  # fmt: skip
    assert filled(graph(*given, *ops))["y"] == shape


def test_what_the_trace_recorded_fills_in_what_fits_it():
    where = graph(("x", "Placeholder", [], [(None,)]), ("y", "Where", ["x"], [(None, 3)]), ("z", "Where", ["x"], [None]))
    seen = {"y": [(7, 3), (21,)], "z": [(7, 4)]}
    assert filled(where, recorded=seen)["y"] == (7, 3)
    assert filled(where, recorded=seen)["z"] == (7, 4)
    assert filled(where, recorded={"y": [(7, 3), (8, 3)], "z": [(7,), (8,)]})["y"] == (None, 3)
    assert filled(where, recorded={"y": [(7, 4)], "z": [(7,), (8,)]})["z"] is None
    assert read_sizes("[64,26,26,32]") == (64, 26, 26, 32)
    assert read_sizes("[]") == ()
    assert [read_sizes(text) for text in ("", "[?,3]", "(float[3])", "[-1]", "[1,]", "[" + "9," * 200 + "1]")] == [None] * 6


CONV_FLOPS = 2 * 64 * 26 * 26 * 32 * 9


def costs_of(*ops, graphs=(CNN,), batch=64):
    return find_costs(ops, graphs, batch, {})


def test_ops_are_found_through_the_calls_that_they_were_inlined_from():
    for name in ("net/dense/MatMul", "StatefulPartitionedCall/net/dense/MatMul", "while/body/_14/net/dense/MatMul", "net/lstm/while/body/_24/net/lstm/while/body/_7/net/dense/MatMul"):
        ((_, cost),) = costs_of((name, "MatMul")).items()
        assert cost.flops == 2 * 64 * 21632 * 10
    assert costs_of(("other/net/dense/MatMul", "MatMul")) == {}


def test_what_a_library_runs_as_one_counts_as_one():
    written, kernel = 64 * 26 * 26 * 32, 3 * 3 * 32
    for op_type in ("_FusedConv2D", "_MklNativeFusedConv2D"):
        (cost,) = costs_of(("net/conv/Relu", op_type)).values()
        assert cost.flops == CONV_FLOPS + 2 * written  # and a bias and an activation
        assert cost.nbytes == 4 * (64 * 28 * 28 + kernel + 32 + written)
        assert cost.is_product
    (cost,) = costs_of(("net/conv/Conv2D", "_MklNativeConv2D")).values()
    assert cost.flops == CONV_FLOPS


def test_an_op_that_became_another_has_the_cost_of_neither():
    assert costs_of(("net/dense/MatMul", "Transpose")) == {}
    assert costs_of(("net/dense/MatMul", "_FusedConv2D")) == {}
    assert costs_of(("net/conv/Relu", "_FusedMatMul")) == {}
    assert costs_of(("net/conv/Relu", "")) == {}  # nobody knows whether it is the whole of it
    divided = graph(("x", "Placeholder", [], [(8,)]), ("c", "Const", [], [()]), ("y", "RealDiv", ["x", "c"], [(8,)]))
    assert costs_of(("y", "Mul"), graphs=[divided])[("y", "Mul")].flops == 8  # times a constant


def test_a_sum_with_what_came_before_is_not_followed_into_it():
    residual = graph(
        ("x", "Placeholder", [], [(None, 8, 8, 4)]), weights("k1", 1, 1, 4, 4), weights("k2", 3, 3, 4, 4),
        ("first/Conv2D", "Conv2D", ["x", "k1"], [(None, 8, 8, 4)]),
        ("first/Relu", "Relu", ["first/Conv2D"], [(None, 8, 8, 4)]),
        ("second/Conv2D", "Conv2D", ["first/Relu", "k2"], [(None, 8, 8, 4)]),
        ("second/add", "AddV2", ["second/Conv2D", "first/Relu"], [(None, 8, 8, 4)]),
        ("second/Relu", "Relu", ["second/add"], [(None, 8, 8, 4)]),
    )  # fmt: skip
    (cost,) = costs_of(("second/Relu", "_FusedConv2D"), graphs=[residual], batch=2).values()
    numbers = 2 * 8 * 8 * 4
    assert cost.flops == 2 * numbers * 36 + 2 * numbers
    assert cost.nbytes == 4 * (numbers + 144 + numbers)  # what both the product and the sum take is read once


def test_of_graphs_that_differ_the_one_that_ran_counts_or_none():
    small = graph(("a", "Placeholder", [], [(8, 8)]), ("y", "MatMul", ["a", "a"], [(8, 8)]), ("z", "Relu", ["y"], [(8, 8)]))
    large = graph(("a", "Placeholder", [], [(9, 9)]), ("y", "MatMul", ["a", "a"], [(9, 9)]))
    assert costs_of(("y", "MatMul"), graphs=[small, large]) == {}
    both = costs_of(("y", "MatMul"), ("z", "Relu"), graphs=[large, small])
    assert both["y", "MatMul"].flops == 2 * 8**3
    assert costs_of(("y", "MatMul"), graphs=[small, small])["y", "MatMul"].flops == 2 * 8**3


# What a capture reads.


def made_tensor(name, shape, dtype="float32"):
    size = SimpleNamespace(rank=None) if shape is None else SizeList(shape)
    return SimpleNamespace(name=name, shape=size, dtype=SimpleNamespace(name=dtype))


class FakeGraph(SimpleNamespace):
    """A graph is known by itself, not by what it holds."""

    __hash__ = object.__hash__


class SizeList(list):
    """What TensorFlow's TensorShape is to a reader."""

    rank = property(len)


def test_shapes_are_read_from_a_graph():
    x, y, z = made_tensor("x:0", (None, 4)), made_tensor("y:0", None), made_tensor("z:0", (), "resource")
    pool = SimpleNamespace(name="pool", type="MaxPool", inputs=[x, z], outputs=[y], get_attr=lambda name: [1, 2, 2, 1])
    ein = SimpleNamespace(name="ein", type="Einsum", inputs=[y, made_tensor("elsewhere:0", ())], outputs=[], get_attr=lambda name: b"ab->a")
    fake = FakeGraph(get_operations=lambda: [SimpleNamespace(name="x", type="Placeholder", inputs=[], outputs=[x, z]), pool, ein])
    assert read_shapes(fake, 10) == GraphShapes(
        ("x", "pool", "ein"), ("Placeholder", "MaxPool", "Einsum"), ((), (0, 1), (2, -1)), (2, 1, 0),
        ((None, 4), (), None), ("float32", "resource", "float32"), {1: "1,2,2,1", 2: "ab->a"},
    )  # fmt: skip
    assert read_shapes(fake, 2) == GraphShapes()


# Ops under their roof.


@pytest.mark.parametrize(("flops", "memory", "bound"), [
    (0.7, 0.1, "compute"), (0.1, 0.7, "memory"), (0.7, 0.8, "memory"), (0.8, 0.7, "compute"), (0.3, 0.3, "neither"),
    (0.3, 1.2, "memory"), (0.3, 2.0, "neither"), (0.7, 2.0, "compute"), (1.1, 0.0, "compute"),
    (float("nan"), 0.7, "memory"), (float("nan"), 0.3, ""), (0.3, float("nan"), ""), (0.7, float("nan"), "compute"),
    (float("nan"), float("nan"), ""),
])  # fmt: skip
def test_what_bounds_an_op(flops, memory, bound):
    assert bound_by(flops, memory) == bound


STEPS = 4
PLAIN = graph(
    ("a", "Placeholder", [], [(None, 1000)]), weights("w", 1000, 1000), weights("v", 1000, 1000),
    ("net/dense/MatMul", "MatMul", ["a", "w"], [(None, 1000)]),  # 2e9 operations at a batch of 1000
    ("net/dense/Relu", "Relu", ["w"], [(1000, 1000)]),  # 8e6 bytes
    ("net/odd/Where", "Where", ["a"], [(None, 2)]),
)  # fmt: skip


def steps_of(work):
    """Four steps of 30 ms, and some work in each: (name, microseconds after the step's begin, microseconds)."""
    marks, ops = [], []
    for step in range(STEPS):
        begin = step * 30_000 * US
        marks.append(event("train", begin, 29_000 * US, step_num=step, _r=1))
        ops += [event(name, begin + at * US, took * US) for name, at, took in work]
    return marks, ops


WORK = [("net/dense/MatMul:MatMul", 0, 20_000), ("net/dense/Relu:Relu", 20_000, 1000), ("net/odd/Where:Where", 21_000, 500)]


def captured(trace, *graphs, is_here=True):
    recording = Recording(path=Path("somewhere") if is_here else None, source=SourceRecords(shapes=graphs))
    return Study(trace, recording=recording)


def on_cpu(work=WORK, graphs=(replace(PLAIN, shapes=tuple((1000, *s[1:]) if s and s[0] is None else s for s in PLAIN.shapes)),), **rest):
    marks, ops = steps_of(work)
    return captured(read(host(line("python", *marks), line("worker", *ops, line_id=2))), *graphs, **rest)


@pytest.fixture
def measured(monkeypatch):
    """As if this CPU could do 125 Gflop/s and move 10 GB/s; nothing is kept afterwards."""
    peak = MeasuredPeak(125e9, (100e9, 120e9), 10e9, (8e9, 9e9), 2)
    monkeypatch.setattr(measured_peak, "_kept", [peak])
    return peak


def frame_of(study):
    return OP_ROOFLINE.frame(study.bounds.roofline).set_index("op_name")


def test_ops_of_a_cpu_by_hand(measured):
    frame = frame_of(on_cpu())
    product, relu = frame.loc["net/dense/MatMul"], frame.loc["net/dense/Relu"]
    assert (product.occurrences, product.self_us, product.flops, product.least_bytes) == (4, 80_000, 2e9, 12e6)
    assert product.gigaflops_per_second == pytest.approx(100)  # 2e9 in 20 ms
    assert product.gigabytes_per_second == pytest.approx(0.6)
    assert product.flops_per_byte == pytest.approx(2e9 / 12e6)
    assert product.flops_fraction == pytest.approx(0.8)
    assert product.bytes_fraction == pytest.approx(0.06)
    assert (product.bound_by, product.width) == ("compute", "32-bit")
    assert relu.gigabytes_per_second == pytest.approx(8)
    assert relu.bytes_fraction == pytest.approx(0.8)
    assert relu.bound_by == "memory"


def test_what_is_not_known_is_missing_never_zero(measured):
    odd = frame_of(on_cpu()).loc["net/odd/Where"]
    assert odd.self_us == 2000
    assert odd[["flops", "least_bytes", "gigaflops_per_second", "bytes_fraction"]].isna().all()
    assert odd.bound_by == ""
    open_batch = frame_of(on_cpu(graphs=(PLAIN,))).loc["net/dense/MatMul"]  # nobody knows the batch
    assert isnan(open_batch.flops)
    assert on_cpu(graphs=()).bounds.roofline is None
    assert OP_ROOFLINE.frame(None).empty


def test_without_a_measured_peak_nothing_is_bound():
    study = on_cpu()
    frame = frame_of(study)
    assert frame.loc["net/dense/MatMul"].gigaflops_per_second == pytest.approx(100)
    assert set(frame.bound_by) == {""}
    assert frame[["flops_fraction", "bytes_fraction", "peak_gigaflops_per_second"]].isna().all(axis=None)


def test_the_peak_of_this_machine_says_nothing_of_a_trace_from_another(measured):
    assert set(frame_of(on_cpu(is_here=False)).bound_by) == {""}


def test_a_peak_that_is_measured_later_counts_from_then_on(monkeypatch):
    study = on_cpu()
    assert set(frame_of(study).bound_by) == {""}
    monkeypatch.setattr(measured_peak, "_kept", [MeasuredPeak(125e9, (1, 2), 10e9, (1, 2), 2)])
    assert set(frame_of(study).bound_by) == {"compute", "memory", ""}


GPU = {"clock_rate": 1_000_000, "core_count": 10, "compute_cap_major": 8, "compute_cap_minor": 0, "memory_bandwidth": 10_000_000_000}


def on_gpu(number=1, stats=GPU, dtype="float32"):
    marks, ops = steps_of([(name.partition(":")[0], *rest) for name, *rest in WORK])
    kinds = dict(name.split(":") for name, *_ in WORK)
    kernels = [event(f"kernel_{name}", begin, took, tf_op=f"{name}:{kinds[name]}") for name, begin, took, _ in ops]
    planes = [gpu(line("Stream #7", *kernels), number=at, stats=stats) for at in range(number)]
    made = on_cpu().recording.source.shapes[0]
    return captured(read(host(line("python", *marks)), *planes), replace(made, dtypes=(dtype,) * len(made.dtypes)))


def test_ops_of_a_gpu_have_the_peak_of_its_table(measured):
    frame = frame_of(on_gpu())
    product, relu = frame.loc["net/dense/MatMul"], frame.loc["net/dense/Relu"]
    # 10 multiprocessors at 1 GHz: 1024 operations a cycle in TF32, 128 without products.
    assert product.peak_gigaflops_per_second == pytest.approx(10 * 1024)
    assert product.flops_fraction == pytest.approx(100 / 10_240)
    assert relu.peak_gigaflops_per_second == pytest.approx(1280)
    assert (product.side, product.bound_by, relu.bound_by) == ("device", "neither", "memory")
    assert frame_of(on_gpu(dtype="float16")).loc["net/dense/MatMul"].peak_gigaflops_per_second == pytest.approx(20_480)


def test_a_device_without_a_table_bounds_nothing(measured):
    frame = frame_of(on_gpu(stats={}))
    assert frame.loc["net/dense/MatMul"].gigaflops_per_second == pytest.approx(100)
    assert set(frame.bound_by) == {""}


def test_the_report_says_it_in_one_sentence(measured):
    report = build_report(on_cpu(), title="t", notes=(), overhead_ps=None)
    (section,) = [one for one in report.sections if one.title == "Roofline of ops"]
    assert "93.0 % compute-bound" in section.sentence
    assert "4.7 % memory-bound (60 to 125 % of peak memory)" in section.sentence
    assert "0.0 % neither, 2.3 % unknown" in section.sentence
    assert "At most 125 Gflop/s in 32-bit and 10.0 GB/s of memory. Source: measured here on 2 cores" in section.sentence
    assert "middle half of the runs 100 Gflop/s to 120 Gflop/s for matrix products" in section.sentence
    limit, *points = section.figure["data"]
    assert [one["name"] for one in points] == ["compute-bound", "memory-bound"]
    assert max(limit["y"]) == 125e9
    assert "Roofline of ops" in report.text()


def test_without_a_peak_the_report_says_how_to_get_one():
    (section,) = [s for s in build_report(on_cpu(), title="t", notes=(), overhead_ps=None).sections if s.tab == "Roofline"]
    assert "profnb.measure_peak()" in section.sentence
    assert "compute-bound" not in section.sentence
    assert section.figure is None
    (section,) = [s for s in build_report(on_cpu(is_here=False), title="t", notes=(), overhead_ps=None).sections if s.tab == "Roofline"]
    assert "measure_peak" not in section.sentence


def test_a_hostile_name_is_data(measured):
    evil = "net/<script>alert(1)</script>"
    made = on_cpu().recording.source.shapes[0]
    names = tuple(evil if name == "net/dense/Relu" else name for name in made.op_names)
    trace = read(host(line("python", *steps_of([])[0]), line("w", *steps_of([(f"{evil}:Relu", 0, 1000)])[1], line_id=2)))
    report = build_report(captured(trace, replace(made, op_names=names)), title="t", notes=(), overhead_ps=None)
    assert "<script>alert" not in str(report.html)


# The machine, and programs that ran.


def test_the_peak_is_measured_and_kept(monkeypatch):
    monkeypatch.setattr(measured_peak, "_kept", [])
    monkeypatch.setattr(measured_peak, "_LARGEST_MATRIX", 512)
    peak = profnb.measure_peak(0.02)
    for value, (low, high) in ((peak.flops_per_second, peak.flops_interval), (peak.bytes_per_second, peak.bytes_interval)):
        assert 0 < low <= high <= value < np.inf
    assert peak.threads >= 1
    assert measured_peak.kept_peak() is peak
    assert 0 < peak.cores_fraction <= 1
    assert "flop/s" in repr(peak)
    with pytest.raises(ValueError, match="positive"):
        profnb.measure_peak(0)


@pytest.mark.tensorflow
def test_ops_of_known_size_have_the_cost_that_a_person_works_out(monkeypatch, tmp_path):
    tf = pytest.importorskip("tensorflow")
    monkeypatch.setattr(measured_peak, "_kept", [MeasuredPeak(1e12, (1e12, 1e12), 1e11, (1e11, 1e11), 2)])

    @tf.function
    def step(a, b, image, kernel):
        with tf.name_scope("one"):
            return tf.reduce_sum(tf.matmul(a, b)), tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "VALID"))

    given = [tf.ones(shape) for shape in ((200, 300), (300, 400), (4, 30, 30, 8), (3, 3, 8, 16))]
    step(*given)
    with profnb.profile(logdir=str(tmp_path)) as p:
        for _ in range(5):
            step(*given)
    frame = p.op_roofline
    assert p.op_roofline.attrs["peak"].startswith("measured here")
    product = frame[frame.op_type.str.contains("MatMul")].iloc[0]
    assert product.flops == 2 * 200 * 300 * 400
    assert product.least_bytes == 4 * (200 * 300 + 300 * 400 + 200 * 400)
    conv = frame[frame.op_type.str.contains("Conv2D")].iloc[0]
    assert conv.flops == pytest.approx(2 * 4 * 28 * 28 * 16 * 72, rel=0.1)
    assert conv.least_bytes == pytest.approx(4 * (4 * 900 * 8 + 9 * 8 * 16 + 4 * 784 * 16), rel=0.1)
    assert frame.loc[product.name].gigaflops_per_second == pytest.approx(product.flops * product.occurrences / product.self_us / 1e3)
    q = profnb.load(tmp_path)  # of a saved trace the shapes are known, the machine is not
    assert q.op_roofline.flops.equals(frame.flops)
    assert set(q.op_roofline.bound_by) == {""}


# Layers.


def test_a_layer_is_what_its_ops_are_together(measured):
    table = on_cpu().layers.table
    at = table.layer.index("net/dense")
    bounds = table.bounds
    assert bounds.bytes[at] == 20e6  # a step's product and activation
    assert bounds.intensity[at] == pytest.approx(2.001e9 / 20e6)
    assert bounds.bytes_per_second[at] == pytest.approx(20e6 / 21e-3)
    # 2e9 operations and 1e6 more would take 16.008 ms of the 21 ms at the peak, 20 MB 2 ms.
    assert bounds.flops_fraction[at] == pytest.approx(16.008 / 21)
    assert bounds.bytes_fraction[at] == pytest.approx(2 / 21)
    assert bounds.bound_by[at] == "compute"
    odd = table.layer.index("net/odd")
    assert isnan(bounds.bytes[odd])
    assert bounds.bound_by[odd] == ""


def test_a_layer_of_which_a_fifth_is_not_known_is_not_known(measured):
    unknown = [("net/dense/Where:Where", 21_000, 6000)]
    bounds = on_cpu(WORK[:2] + unknown).layers.table.bounds
    assert np.isnan(bounds.bytes).all()
    assert set(bounds.bound_by) == {""}
    little = [("net/dense/Where:Where", 21_000, 2000)]
    table = on_cpu(WORK[:2] + little).layers.table
    assert table.bounds.bytes_per_second[table.layer.index("net/dense")] == pytest.approx(20e6 / 23e-3)


def test_layers_are_bound_by_nothing_before_a_peak_is_known(monkeypatch):
    study = on_cpu()
    at = study.layers.table.layer.index("net/dense")
    assert study.layers.table.bounds.bytes[at] == 20e6
    assert set(study.layers.table.bounds.bound_by) == {""}
    monkeypatch.setattr(measured_peak, "_kept", [MeasuredPeak(125e9, (1, 2), 10e9, (1, 2), 2)])
    assert study.layers.table.bounds.bound_by[at] == "compute"
    (section,) = [one for one in build_report(study, title="t", notes=(), overhead_ps=None).sections if one.title == "Layers"]
    assert "bound by" in section.headings


def test_a_product_of_what_was_laid_under_one_another_has_its_rows():
    """As Keras' Dense does on sequences: two dimensions are open, but how many numbers there are is known."""
    shapes = filled(graph(
        ("x", "Placeholder", [], [(None, 20, 16)]), weights("w", 16, 40),
        ("flat", "Reshape", ["x"], [(None, None)]), ("y", "MatMul", ["flat", "w"], [(None, 40)]),
        ("back", "Reshape", ["y"], [(None, 20, 40)]), ("dy", "Reshape", ["back"], [(None, 40)]),
        ("dw", "MatMul", ["flat", "dy"], [(None, 40)]),
    ))  # fmt: skip
    assert (shapes["flat"], shapes["y"], shapes["back"], shapes["dw"]) == ((1280, 16), (1280, 40), (64, 20, 40), (16, 40))


def test_what_is_made_in_the_shape_of_another_has_it():
    shapes = filled(graph(
        ("x", "Placeholder", [], [(None, 20)]), ("s", "Shape", ["x"], [(2,)]), ("c", "Cast", ["s"], [(2,)]), weights("one", 1, 1),
        ("noise", "StatelessRandomUniformV2", ["s"], [(None, None)]), ("wide", "BroadcastTo", ["one", "c"], [None]),
        ("unknown", "Where", ["x"], [None]), ("u", "Shape", ["unknown"], [(None,)]), ("other", "Fill", ["u", "one"], [None]),
    ))  # fmt: skip
    assert (shapes["noise"], shapes["wide"], shapes["other"]) == ((64, 20), (64, 20), None)


def test_ops_that_grappler_renamed_are_those_that_they_were():
    for name in ("net/dense/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul", "StatefulPartitionedCall/net/dense/ConstantFolding/MatMul"):
        assert costs_of((name, "MatMul"))[name, "MatMul"].flops == 2 * 64 * 21632 * 10
    assert costs_of(("net/dense/ArithmeticOptimizer/Some_MatMul", "Transpose")) == {}


def test_a_product_that_is_faster_than_the_measured_peak_refutes_it(monkeypatch):
    monkeypatch.setattr(measured_peak, "_kept", [MeasuredPeak(50e9, (40e9, 50e9), 10e9, (8e9, 9e9), 2, 0.55)])
    study = on_cpu()
    frame = frame_of(study)
    assert frame.loc["net/dense/MatMul"].gigaflops_per_second == pytest.approx(100)
    assert (frame.loc["net/dense/MatMul"].bound_by, frame.loc["net/dense/Relu"].bound_by) == ("", "memory")
    assert frame.peak_gigaflops_per_second.isna().all()
    (section,) = [s for s in build_report(study, title="t", notes=(), overhead_ps=None).sections if s.tab == "Roofline"]
    assert "reached 2 times the measured limit of this CPU" in section.sentence
    assert "left only 55.0 % of the cores' time" in section.sentence
    assert section.figure is None


def test_a_peak_that_was_measured_beside_other_programs_judges_nothing(monkeypatch):
    sure = MeasuredPeak(125e9, (100e9, 120e9), 10e9, (8e9, 9e9), 2)
    assert sure.peak.flops_of("32-bit", is_product=True) == 125e9
    assert isnan(sure.peak.flops_of("16-bit", is_product=True))  # was not measured
    assert "cores' time" not in repr(sure)
    busy = replace(sure, cores_fraction=0.3)
    assert busy.peak is None
    assert "left only 30.0 % of the cores' time" in repr(busy)
    monkeypatch.setattr(measured_peak, "_kept", [busy])
    study = on_cpu()
    assert set(frame_of(study).bound_by) == {""}
    (section,) = [s for s in build_report(study, title="t", notes=(), overhead_ps=None).sections if s.tab == "Roofline"]
    assert "only 30.0 % of the cores' time. Run profnb.measure_peak() again" in section.sentence


def test_what_the_trace_recorded_refutes_what_was_worked_out():
    name = "net/dense/MatMul"
    assert find_costs([(name, "MatMul")], [CNN], 64, {name: [(64, 10)]})[name, "MatMul"].flops == 2 * 64 * 21632 * 10
    assert find_costs([(name, "MatMul")], [CNN], 64, {name: [(640,), (7,)]}) != {}  # the same numbers, laid flat
    assert find_costs([(name, "MatMul")], [CNN], 64, {name: [(32, 10)]}) == {}


def test_recorded_shapes_are_those_that_ops_give_back():
    def allocation(at, op, shape, region="output"):
        return event("MemoryAllocation", at, 1, tf_op=op, shape=shape, region_type=region)

    trace = read(host(line("worker", allocation(0, "call/a:Relu", "[2,3]"), allocation(2, "PartitionedCall/b", "[4]"),
                           allocation(4, "PartitionedCall/b", "[4]"), allocation(6, "b", "[5]"), allocation(8, "b", "[6]", "temp"),
                           allocation(10, "l/while/body/_1/l/while/c", "[]"), allocation(12, "d", "(float[3])"))))  # fmt: skip
    assert find_recorded_shapes(trace) == {"call/a": [(2, 3)], "b": [(4,), (5,)], "l/while/c": [()], "d": []}
    assert find_recorded_shapes(read(host(line("worker", event("x", 0, 1))))) == {}


# Kept beside a trace.


def test_shapes_are_kept_as_they_are_and_refused_where_they_cannot_be():
    codec = Codec(LIMITS, CHECKS)
    pooled = graph(("x", "Placeholder", [], [(None, 8, 8, 3)]), ("p", "MaxPool", ["x"], [(None, 4, 4, 3)], "1,2,2,1"), ("u", "Where", ["x"], [None]))
    plain = json.loads(json.dumps(codec.encode(pooled, GraphShapes)))
    assert codec.decode(plain, GraphShapes) == pooled
    for wrong in ({"inputs": [[], [7], [0]]}, {"outputs": [1, 1, 2]}, {"outputs": [3, 1, -1]}, {"op_types": ["Relu"]}, {"settings": [[9, "1"]]},
                  {"shapes": [[-1], None, None]}, {"shapes": "all"}, {"dtypes": ["float32"]}):  # fmt: skip
        with pytest.raises(TraceFormatError):
            codec.decode(plain | wrong, GraphShapes)


def test_impossible_sizes_and_orders_have_no_cost():
    huge = (1 << 39,) * 60
    assert cost_of("Relu", [huge], [huge]) is None
    letters = "abcdefghijklmnopqrst"
    assert cost_of("Einsum", [(1 << 39,) * 20, (2,)], [(2,)], f"{letters},z->z") is None
    assert cost_of("MaxPool", [(2, 8, 8, 3)], [(2, 4, 4, 3)], "9" * 2000) is None
    loop = graph(("y", "Relu", ["late"], [(8, 8)]), ("late", "MatMul", ["y", "y"], [(8, 8)]))
    backwards = replace(loop, inputs=((1,), (0, 0)))
    assert costs_of(("y", "_FusedMatMul"), graphs=[backwards]) == {}
