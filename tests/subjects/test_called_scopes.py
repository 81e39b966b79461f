"""PyTorch's ops to layers, by hand-made Kineto traces: what the capture marks, what Python's stacks tell, and autograd's nodes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from traces import event as tf_event
from traces import host, line
from traces import read as read_tf

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.recording import Recording
from profnb.compare.op_differences import compare_layers, layer_guards
from profnb.compare.section import layer_section
from profnb.compare.op_differences import compare_ops
from profnb.drawing.section import section_text
from profnb.profile import Profile
from profnb.subjects.layers.flops import product_flops
from profnb.subjects.layers.called_scopes import find_called_scopes
from profnb.subjects.study import Study
from profnb.trace.chrome.reader import read_chrome
from profnb.trace.names import KINETO_SCOPE

NODE = "autograd::engine::evaluate_function: "


def event(name, begin_us, duration_us, number=None, forward=None, category="cpu_op", tid=7, **args):
    args |= {} if number is None else {"Sequence number": number, "Fwd thread id": forward or 0}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": begin_us, "dur": duration_us, "args": args}


def layer(path, begin_us, duration_us):
    return event(f"{KINETO_SCOPE}{path}", begin_us, duration_us)


def one_step(number=0):
    """Ops of 68 us: Net 2, one 20 + 18, two 10 + 6, the loss 3 + 2, the optimizer 5, nobody's 2."""
    at, n = 110 * number, 10 * number
    return [
        event(f"ProfilerStep#{number}", at, 100, category="user_annotation"),
        layer("Net", at, 40),
        event("aten::mul", at + 1, 2, n + 5),
        layer("Net/one", at + 4, 22),
        event("aten::linear", at + 5, 20, n + 6),
        event("aten::t", at + 6, 4, n + 6),
        event("aten::addmm", at + 12, 8, n + 7),
        layer("Net/two", at + 29, 11),
        event("aten::relu", at + 30, 10, n + 8),
        event("aten::mse_loss", at + 41, 3, n + 9),
        event(f"{NODE}MseLossBackward0", at + 45, 2, n + 9, 1),
        event(f"{NODE}ReluBackward0", at + 50, 6, n + 8, 1),
        event("aten::threshold_backward", at + 51, 4),
        event(f"{NODE}AddmmBackward0", at + 60, 10, n + 7, 1),
        event("aten::mm", at + 61, 6),
        event(f"{NODE}TBackward0", at + 71, 3, n + 6, 1),
        event(f"{NODE}torch::autograd::AccumulateGrad", at + 75, 5),
        event("aten::detach", at + 76, 1),
        event("Optimizer.step#SGD.step", at + 85, 9, category="user_annotation"),
        event("aten::add_", at + 86, 5, n + 10),
        event("aten::item", at + 96, 2, n + 10),
    ]


STEPS = [event for number in range(3) for event in one_step(number)]


def read(events):
    buffer = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    return read_chrome(np.frombuffer(buffer, np.uint8), "hand-made")


def net():
    kinds = {"Net": "Net", "Net/one": "Linear", "Net/two": "ReLU"}
    layers = [
        LayerFacts(path, path.rpartition("/")[2], kind, True, -1 if path == "Net" else 0, 12 if kind == "Linear" else 0)
        for path, kind in kinds.items()
    ]
    return ModelFacts("Net", tuple(layers), False, scopes={path: row for row, path in enumerate(kinds)}, has_own_scopes=True)


def layers_of(events, *models):
    """Microseconds forward, backward, to update and otherwise of three steps, by the row's name."""
    p = Profile(read(events), recording=Recording(models=models))
    table = p.layers
    on_device = (p.ops.side == "device").any()
    assert table.total_us.sum() == p.ops.self_us[p.ops.side == ("device" if on_device else "host")].sum()
    parts = table[["forward_us", "backward_us", "update_us", "recomputation_us", "total_us"]].round(3).to_numpy().tolist()
    return dict(zip(table.layer, map(tuple, parts), strict=True)), table.set_index("layer")


def thrice(*numbers):
    return tuple(3.0 * number for number in numbers)


EXPECTED = {
    "Net": thrice(2, 0, 0, 0, 2),
    "Net/one": thrice(20, 18, 0, 0, 38),
    "Net/two": thrice(10, 6, 0, 0, 16),
    "loss": thrice(3, 2, 0, 0, 5),
    "optimizer": thrice(0, 0, 5, 0, 5),
    "outside the model": thrice(0, 0, 0, 0, 2),
}


def test_ops_go_to_the_layer_around_them_and_backward_ops_to_the_one_that_made_them():
    spent, table = layers_of(STEPS, net())
    assert spent == EXPECTED
    assert table.parameters["Net/one"] == 12
    assert table.layer_type["Net/two"] == "ReLU"


def test_without_the_model_the_marks_alone_tell_the_layers():
    assert layers_of(STEPS)[0] == EXPECTED


def test_names_that_are_ops_elsewhere_are_layers_here():
    renamed = [{**e, "name": e["name"].replace("Net/one", "Net/body").replace("Net/two", "Net/Relu")} for e in STEPS]
    spent, _ = layers_of(renamed)
    assert spent["Net/body"] == EXPECTED["Net/one"]
    assert spent["Net/Relu"] == EXPECTED["Net/two"]


def test_a_trace_without_marks_has_no_layers():
    bare = [e for e in STEPS if not e["name"].startswith(KINETO_SCOPE)]
    trace = read(bare)
    assert find_called_scopes(trace, np.arange(len(trace.events))) is None


def test_pythons_stacks_tell_modules_too():
    frames = [
        event("nn.Module: Net_0", e["ts"], e["dur"], category="python_function")
        if e["name"] == f"{KINETO_SCOPE}Net"
        else event("nn.Module: Linear_0", e["ts"], e["dur"], category="python_function")
        if e["name"] == f"{KINETO_SCOPE}Net/one"
        else event("nn.Module: ReLU_0", e["ts"], e["dur"], category="python_function")
        if e["name"] == f"{KINETO_SCOPE}Net/two"
        else e
        for e in STEPS
    ]
    spent, _ = layers_of(frames)
    assert spent["Net_0/Linear_0"] == EXPECTED["Net/one"]
    assert spent["Net_0/ReLU_0"] == EXPECTED["Net/two"]
    assert spent["outside the model"] == EXPECTED["outside the model"]


def test_a_layer_called_inside_of_autograd_repeats_the_way_forward():
    again = [layer("Net/one", 50.5, 3), event("aten::relu", 51.5, 1, 10)]  # in the node of ReLU, inside of its op
    kept = [e for e in STEPS if not (e["name"] == "aten::threshold_backward" and e["ts"] == 51)]
    spent, _ = layers_of([*kept, *again], net())
    assert spent["Net/one"] == (60, 54, 0, 1, 115)
    assert spent["Net/two"] == (30, 17, 0, 0, 47)


def test_a_node_whose_forward_op_was_not_recorded_is_backward_and_nobodys():
    lost = event(f"{NODE}MulBackward0", 98.5, 1, 4, 1)
    spent, _ = layers_of([*STEPS, lost], net())
    assert spent["outside the model"] == (0, 1, 0, 0, 7)
    assert spent["Net"] == EXPECTED["Net"]


def test_what_a_dataloader_is_asked_for_is_input():
    asked = [
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 98, 2, category="user_annotation"),
        event("aten::stack", 98.5, 1, 11),
    ]
    spent, _ = layers_of([*STEPS, *asked], net())
    assert spent["input"] == (0, 0, 0, 0, 1)
    assert {name: spent[name] for name in EXPECTED} == EXPECTED


def test_a_kernel_is_of_the_layer_whose_op_launched_it():
    launches = [
        event("cudaLaunchKernel", 13, 2, category="cuda_runtime", correlation=1),
        event("gemm", 15, 30, category="kernel", tid=3, correlation=1) | {"pid": 0},
        event("cudaLaunchKernel", 62, 2, category="cuda_runtime", correlation=2),
        event("gemm", 64, 50, category="kernel", tid=3, correlation=2) | {"pid": 0},
    ]
    _, table = layers_of([*STEPS, *launches], net())
    assert table.device_us["Net/one"] == 80
    assert (table.forward_us["Net/one"], table.backward_us["Net/one"]) == (30, 50)


def of_tensorflow():
    """Three steps of 100 us with net/one 30 + 10 and an op of net/other of 7."""
    us = 1_000_000
    named = ("Net/one/MatMul:MatMul", 10, 30), ("gradient_tape/Net/one/MatMul:MatMul", 45, 10), ("Net/other/Relu:Relu", 60, 7)
    steps = [tf_event("train", 110 * at * us, 100 * us, step_num=at, _r=1) for at in range(3)]
    ops = [tf_event(name, (110 * at + begin) * us, spent * us) for at in range(3) for name, begin, spent in named]
    return read_tf(host(line("python", *sorted(steps + ops, key=lambda e: (e[1], -e[2])))))


def test_two_frameworks_are_compared_by_layer():
    torch = Study(read(STEPS), recording=Recording(models=(net(),)))
    tensorflow = Study(of_tensorflow(), recording=Recording())
    rows = {row.op_name: row for row in compare_ops(tensorflow, torch)}
    assert {row.side for row in rows.values()} == {"layer"}
    assert (rows["Net/one"].first_ps, rows["Net/one"].second_ps, rows["Net/one"].status) == (40e6, 38e6, "changed")
    assert rows["Net/other"].status == "gone"
    assert rows["Net/two"].status == rows["loss"].status == rows["optimizer"].status == "new"
    alike = compare_ops(torch, torch)
    assert {row.side for row in alike} == {"host"}
    assert "aten::mm" in {row.op_name for row in alike}


def test_layers_of_two_frameworks_stand_side_by_side():
    torch = Study(read(STEPS), recording=Recording(models=(net(),)))
    rows = {row.layer: row for row in compare_layers(Study(of_tensorflow(), recording=Recording()), torch)}
    one = rows["Net/one"]
    assert (one.first.forward_ps, one.first.backward_ps, one.second_ps) == (30e6, 10e6, 38e6)
    assert (one.ratio, one.status) == (pytest.approx(38 / 40), "both")
    assert math.isnan(one.low)  # three steps are one block, and one block tells no variation
    assert (rows["Net/other"].status, rows["Net/two"].status, rows["optimizer"].status) == ("only in A", "only in B", "only in B")
    assert math.isnan(rows["Net/other"].second_ps) and math.isnan(rows["Net/two"].ratio)
    assert [row.is_layer for row in rows.values()] == sorted((row.is_layer for row in rows.values()), reverse=True)
    shown = section_text(layer_section(("here", "there"), list(rows.values()), (47e6, 50e6), ("TensorFlow", "PyTorch")))
    assert "1 of " in shown and "30.0 µs + 10.0 µs" in shown and "Only here has ops of other." in shown
    none = layer_section(("here", "there"), [], (0.0, 0.0), ("TensorFlow", "PyTorch"))
    assert "no common ops" in section_text(none) and "<td" not in none.html


def test_the_top_of_a_model_may_be_called_differently_and_numbers_of_a_process_do_not_count():
    def model(top, number, first, parameters):
        us = 1_000_000
        steps = [tf_event("train", 110 * at * us, 100 * us, step_num=at, _r=1) for at in range(9)]
        named = (f"{top}/dense{number}/MatMul:MatMul", 10, first), (f"{top}/dense{number + '_9'}/MatMul:MatMul", 60, 20)
        ops = [tf_event(name, (110 * at + begin) * us, spent * us) for at in range(9) for name, begin, spent in named]
        return Study(read_tf(host(line("python", *sorted(steps + ops, key=lambda e: (e[1], -e[2]))))), recording=Recording())

    rows = compare_layers(model("sequential_1", "_1", 10, 3), model("net", "_3", 30, 4))
    assert [(row.layer, row.ratio, row.low, row.high) for row in rows if row.is_layer] == [
        ("sequential_1/dense_1", pytest.approx(3), pytest.approx(3), pytest.approx(3)),
        ("sequential_1/dense_1_9", pytest.approx(1), pytest.approx(1), pytest.approx(1)),
    ]
    assert layer_guards(rows) == []
    known = [replace(row, first=replace(row.first, parameters=3.0), second=replace(row.second, parameters=4.0)) for row in rows]
    assert layer_guards(known) == ["The models differ: 6 and 8 parameters."]


def test_frameworks_without_layers_have_nothing_to_compare_by_name():
    bare = Study(read([e for e in STEPS if not e["name"].startswith(KINETO_SCOPE)]), recording=Recording())
    rows = compare_ops(Study(of_tensorflow(), recording=Recording()), bare)
    assert rows == compare_layers(Study(of_tensorflow(), recording=Recording()), bare) == []


def with_shapes(name, begin_us, duration_us, *shapes, settings=(), number=None, forward=None):
    told = {"Input Dims": list(shapes), "Concrete Inputs": [str(setting) for setting in settings]}
    return event(name, begin_us, duration_us, number, forward, **told)


CONVOLUTION = ("", "", "", [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
PRODUCTS = [
    event("ProfilerStep#0", 0, 100, category="user_annotation"), layer("Net", 0, 50), layer("Net/conv", 1, 10),
    with_shapes("aten::_convolution", 2, 8, [8, 3, 6, 6], [16, 3, 3, 3], [16], settings=CONVOLUTION, number=3),
    with_shapes("aten::mkldnn_convolution", 3, 6, [8, 3, 6, 6], [16, 3, 3, 3], [16], settings=CONVOLUTION, number=4),
    layer("Net/fc", 20, 10),
    with_shapes("aten::linear", 21, 8, [8, 4, 32], [10, 32], [10], number=4),
    with_shapes("aten::addmm", 22, 6, [10], [32, 32], [32, 10], number=4),
    layer("Net/relu", 31, 4), with_shapes("aten::relu", 32, 2, [8, 10], number=5),
    with_shapes(f"{NODE}AddmmBackward0", 60, 10, [], number=4, forward=1),
    with_shapes("aten::mm", 61, 2, [32, 10], [10, 32]), with_shapes("aten::mm", 64, 2, [10, 32], [32, 32]),
    event(f"{NODE}ConvolutionBackward0", 75, 10, 3, 1),
    with_shapes("aten::convolution_backward", 76, 8, [8, 16, 6, 6], [8, 3, 6, 6], [16, 3, 3, 3],
                settings=("", "", "", [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, True])),
]  # fmt: skip


def test_operations_of_layers_follow_from_recorded_shapes():
    table = Profile(read(PRODUCTS)).layers.set_index("layer")
    conv, fc = 2 * 8 * 36 * 16 * 27, 2 * 32 * 32 * 10
    assert table.loc["Net/conv", ["flops_forward", "flops_backward"]].tolist() == [conv, conv]
    assert table.loc["Net/fc", ["flops_forward", "flops_backward"]].tolist() == [fc, 2 * fc]
    assert np.isnan(table.flops["Net/relu"])  # of which nothing is counted


@pytest.mark.parametrize(("name", "shapes", "settings", "flops"), [
    ("aten::bmm", [[4, 2, 3], [4, 3, 5]], (), 2 * 4 * 2 * 3 * 5),
    ("aten::baddbmm", [[4, 2, 5], [4, 2, 3], [4, 3, 5]], (), 2 * 4 * 2 * 3 * 5),
    ("aten::linear", [[7, 3], [3]], (), 2 * 7 * 3),
    # 9 of 3 with steps of 2 and gaps of 2, without a border: 3 places
    ("aten::_convolution", [[2, 4, 9], [6, 4, 3], []], ("", "", "", [2], [0], [2], False, [0], 1), 2 * 2 * 3 * 6 * 4 * 3),
    ("aten::_convolution", [[2, 6, 5], [6, 4, 3], []], ("", "", "", [2], [0], [1], True, [0], 1), 2 * 2 * 5 * 6 * 4 * 3),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", [[2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8]], ("", "", "", "0.", "False"), 2 * 2 * 3 * 5 * 7 * 16),
    ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", [[2, 3, 5, 8], [2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8]], (), 4 * 2 * 3 * 5 * 7 * 16),
    ("aten::_scaled_dot_product_attention_math", [[2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8]], (), None),
    ("aten::mm", [[2, 3], [4, 5]], (), None), ("aten::mm", [[2, 3]], (), None), ("aten::mm", [[[2], 3], [3, 4]], (), None),
    ("aten::_convolution", [[2, 4, 9], [6, 4, 3]], ("", "", "", [0], [0], [1], False), None), ("aten::_convolution", [[2, 4, 9], [6, 4, 3]], (), None),
    ("aten::mm", 5, (), None), ("aten::add", [[2, 3], [3, 4]], (), None), ("aten::mm", [[-2, 3], [3, 4]], (), None),
])  # fmt: skip
def test_operations_by_hand_and_none_where_shapes_do_not_tell(name, shapes, settings, flops):
    told = {"Input Dims": shapes, "Concrete Inputs": [str(setting) for setting in settings]}
    trace = read([event("aten::zeros", 0, 1), event(name, 2, 5, **told)])
    events, done = product_flops(trace, np.full(len(trace.events), -1))
    assert done.tolist() == ([] if flops is None else [flops])
    assert trace.events.begin_ps[events].size == done.size
