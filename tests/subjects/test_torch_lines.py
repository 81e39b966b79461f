"""PyTorch's ops to the user's source lines, by hand-made Kineto traces: lines that were followed, and stacks in the trace."""

import json

import numpy as np
import pytest

from profnb.capture.recording import Recording
from profnb.capture.source.source_records import ENTERED, LEFT, LineRecords, SourceRecords
from profnb.profile import Profile
from profnb.subjects.source.code_times import read_clock
from profnb.subjects.source.torch_lines import find_stack_lines
from profnb.trace.chrome.reader import read_chrome
from profnb.trace.names import KINETO_CLOCK, KINETO_SCOPE

NODE = "autograd::engine::evaluate_function: "
US = 1_000_000


def event(name, begin_us, duration_us, number=None, forward=None, category="cpu_op", tid=7, pid=1, **args):
    args |= {} if number is None else {"Sequence number": number, "Fwd thread id": forward or 0}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": begin_us, "dur": duration_us, "args": args}


def note(name, begin_us, duration_us):
    return event(name, begin_us, duration_us, category="user_annotation")


def read(*events):
    buffer = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    return read_chrome(np.frombuffer(buffer, np.uint8), "hand-made")


CLOCK = note(f"{KINETO_CLOCK}5000", 5, 1)  # Python's clock and the trace's are the same


def records(*rows, files=("a.py", "b.py"), **more):
    """Rows of (microseconds, code, line)."""
    lines = LineRecords(files=list(files))
    for time_us, code, number in rows:
        lines.time_ns.append(time_us * 1000)
        lines.code.append(code)
        lines.line.append(number)
    return SourceRecords(lines=lines, **more)


def lines_of(trace, source=None):
    """Host, device, backward and gradient microseconds by (file, line); their sums are those of all ops."""
    p = Profile(trace, recording=Recording(source=source))
    table, ops = p.source_lines, p.ops
    for side in ("host", "device"):
        column = table[f"{side}_us"].sum()
        assert column == ops.self_us[ops.side == side].sum()
    keys = zip(table.file, table.line, strict=True)
    spent = table[["host_us", "device_us", "backward_us", "gradient_us"]].fillna(0).round(3).to_numpy().tolist()
    return dict(zip(keys, map(tuple, spent), strict=True)), table.set_index(["file", "line"])


# The loop: 3 loss = mse(net(x)), 4 loss.backward(), 5 optimizer.step(); in net: 21 h = fc(x), 22 return h * 2
LOOP = (
    CLOCK,
    note("ProfilerStep#0", 10, 90),
    event("aten::linear", 15, 10, 1), event("aten::addmm", 18, 4, 2),
    event("aten::mul", 27, 3, 3),
    event("aten::mse_loss", 32, 5, 4),
    event(f"{NODE}MseLossBackward0", 42, 4, 4, 1), event("aten::mse_loss_backward", 43, 2),
    event(f"{NODE}MulBackward0", 47, 3, 3, 1),
    event(f"{NODE}AddmmBackward0", 51, 8, 2, 1), event("aten::mm", 52, 6),
    event(f"{NODE}torch::autograd::AccumulateGrad", 60, 2),
    note("Optimizer.step#SGD.step", 71, 20), event("aten::add_", 75, 10, 5),
)  # fmt: skip
FOLLOWED = (
    (6, 0, ENTERED), (11, 0, 3), (12, 1, ENTERED), (13, 1, 21), (26, 1, 22), (31, 1, LEFT), (40, 0, 4), (70, 0, 5), (95, 0, 2), (105, 0, LEFT),
)  # fmt: skip


def test_ops_go_to_the_line_that_ran_and_backward_ops_to_that_of_their_forward_op():
    spent, table = lines_of(read(*LOOP), records(*FOLLOWED))
    assert spent == {
        ("b.py", 21): (10 + 8 + 2, 0, 10, 0),  # the sum of the gradient follows the node of addmm
        ("b.py", 22): (3 + 3, 0, 3, 0),
        ("a.py", 3): (5 + 4, 0, 4, 0),
        ("a.py", 5): (10, 0, 0, 0),
        ("a.py", 4): (0, 0, 0, 17),
        ("a.py", 2): (0, 0, 0, 0),  # Python's time only
    }
    assert table.python_us["a.py", 4] == 30 - 17
    assert table.python_us["a.py", 5] == 25 - 10
    assert table.wall_us["b.py", 21] == 13
    assert table.op_occurrences["b.py", 21] == 5


def test_the_clock_is_an_event_whose_name_says_the_reading_and_no_op():
    late = note(f"{KINETO_CLOCK}{10**15 + 1}", 50, 1)
    clock = read_clock(read(CLOCK, event("aten::mm", 0, 1)))
    assert clock.offset_ps == 0
    assert Profile(read(CLOCK, event("aten::mm", 0, 1))).ops.op_name.tolist() == ["aten::mm"]
    assert read_clock(read(late, event("aten::mm", 0, 1))).offset_ps == 50 * US - (10**15 + 1) * 1000
    for broken in ("x", "-5", "1" * 19, ""):
        assert read_clock(read(note(f"{KINETO_CLOCK}{broken}", 5, 1), event("aten::mm", 0, 1))) is None


def test_kernels_count_for_the_line_that_launched_them_and_of_backward_for_the_forward_line():
    """Backward runs on autograd's own thread while the line of ``backward()`` waits."""
    trace = read(
        CLOCK, note("ProfilerStep#0", 10, 90),
        event("aten::mm", 15, 5, 1), event("cudaLaunchKernel", 16, 1, category="cuda_runtime", correlation=1),
        event(f"{NODE}MmBackward0", 42, 8, 1, 1, tid=9), event("cudaLaunchKernel", 44, 1, category="cuda_runtime", correlation=2, tid=9),
        event("gemm", 60, 20, category="kernel", pid=0, tid=20, correlation=1), event("gemm_t", 80, 10, category="kernel", pid=0, tid=20, correlation=2),
    )  # fmt: skip
    spent, _ = lines_of(trace, records((6, 0, ENTERED), (11, 0, 3), (40, 0, 4), (70, 0, 5)))
    assert spent["a.py", 3][1:] == (30, 8 + 10, 0)
    assert spent["a.py", 4][1:] == (0, 0, 8 + 10)


def test_what_the_users_own_code_runs_in_backward_stays_with_it():
    """A ``torch.autograd.Function`` whose ``backward`` is in b.py, line 31."""
    trace = read(CLOCK, event("aten::exp", 15, 5, 1), event(f"{NODE}MineBackward", 42, 20, 1, 1), event("aten::mul", 50, 5))
    spent, _ = lines_of(trace, records((6, 0, ENTERED), (11, 0, 3), (40, 0, 4), (45, 1, ENTERED), (46, 1, 31), (60, 1, LEFT), (70, 0, 5)))
    assert spent["b.py", 31] == (5, 0, 5, 0)
    assert spent["a.py", 3] == (5 + 15, 0, 15, 0)
    assert spent["a.py", 4] == (0, 0, 0, 20)


def test_layers_that_keras_calls_go_to_the_line_that_made_them_unless_the_users_code_runs_in_between():
    def layer(path, begin, duration):
        return note(f"{KINETO_SCOPE}{path}", begin, duration)

    trace = read(
        CLOCK, note("ProfilerStep#0", 10, 90),
        layer("model", 12, 60), layer("model/dense", 14, 10), event("aten::addmm", 15, 5, 1),
        layer("model/mine", 30, 20), event("aten::mul", 35, 5, 2), layer("model/mine/dense", 41, 8), event("aten::addmm", 42, 5, 3),
        event("aten::sum", 65, 4, 4),
        event(f"{NODE}AddmmBackward0", 75, 3, 1, 1),
    )  # fmt: skip
    source = records(
        (6, 0, ENTERED), (7, 0, 9), (31, 1, ENTERED), (32, 1, 40), (55, 1, LEFT), (110, 0, LEFT),
        places=[("a.py", 2), ("a.py", 4)], layers={"dense": 0, "mine": 1},
    )  # fmt: skip
    spent, _ = lines_of(trace, source)
    assert spent == {
        ("a.py", 2): (5 + 3, 0, 3, 0),  # fit runs at line 9 all the time
        ("b.py", 40): (5 + 5, 0, 0, 0),
        ("a.py", 9): (4, 0, 0, 3),
    }
    source.lines = LineRecords()  # Python 3.10 and 3.11 do not tell lines
    spent, table = lines_of(trace, source)
    assert spent["a.py", 2] == (5 + 5 + 3, 0, 3, 0)
    assert spent["a.py", 4] == (5, 0, 0, 0)
    assert spent["", 0] == (4, 0, 0, 0)
    assert table.python_us.isna().all()


# Stacks in the trace.


def python(name, begin, duration, caller=None):
    return event(name, begin, duration, category="python_function", **({} if caller is None else {"CallFrom": caller}))


def test_the_innermost_call_of_the_users_code_tells_the_exact_line():
    trace = read(
        python("train.py(1): <module>", 0, 200),
        python("train.py(8): main", 1, 190, "train.py:30"),
        python("torch/nn/modules/module.py(1789): _wrapped_call_impl", 10, 40, "train.py:12"),
        python("train.py(3): forward", 12, 30, "torch/nn/modules/module.py:1798"),
        python("<built-in function linear>", 14, 8, "train.py:4"), event("aten::linear", 15, 6, 1),
        event("aten::add", 30, 5, 2),
        python("torch/_tensor.py(500): backward", 60, 40, "train.py:13"),
        event(f"{NODE}AddBackward0", 65, 4, 2, 1), event(f"{NODE}AddmmBackward0", 70, 10, 1, 1),
    )  # fmt: skip
    spent, table = lines_of(trace)
    assert spent == {("train.py", 4): (6 + 10, 0, 10, 0), ("train.py", 3): (5 + 4, 0, 4, 0), ("train.py", 13): (0, 0, 0, 14)}
    assert table.source.to_dict() == {("train.py", 4): "", ("train.py", 3): "in forward", ("train.py", 13): ""}
    assert table.python_us.isna().all()  # Python was not watched


def test_old_stacks_of_ops_tell_the_innermost_of_the_users_lines():
    stack = "/usr/lib/python3.7/site-packages/torch/nn/modules/conv.py(443): forward;models/net.py(7): forward;train.py(46): <module>"
    trace = read(event("aten::conv2d", 0, 9, 1, **{"Call stack": stack}), event("aten::relu", 10, 2, **{"Call stack": ""}), event(f"{NODE}ConvBackward", 20, 5, 1, 1))
    spent, _ = lines_of(trace)
    assert spent == {("models/net.py", 7): (14, 0, 5, 0), ("", 0): (2, 0, 0, 0)}


def test_of_old_traces_launches_and_backward_nodes_find_their_line_too():
    """Before 1.9 a node is named by its kind alone, and of what an op launches only the op has a stack."""
    trace = read(
        event("aten::conv2d", 0, 9, 1, **{"Call stack": "train.py(46): <module>"}),
        event("cudaLaunchKernel", 3, 1, category="Runtime", correlation=1),
        event("CudnnConvolutionBackward", 20, 5, 1, 1, tid=9), event("cudaLaunchKernel", 22, 1, category="Runtime", correlation=2, tid=9),
        event("conv", 10, 30, category="Kernel", pid=0, tid=20, correlation=1), event("conv_t", 40, 60, category="Kernel", pid=0, tid=20, correlation=2),
    )  # fmt: skip
    spent, _ = lines_of(trace)
    assert spent == {("train.py", 46): (14, 90, 65, 0)}


def test_absolute_paths_of_stacks_stay_in_the_trace():
    spent, _ = lines_of(read(python("/home/somebody/work/train.py(8): main", 0, 20), event("aten::mm", 5, 5)))
    assert list(spent) == [("work/train.py", 8)]


def test_what_is_missing_is_said():
    source = records(places=[("a.py", 2)], layers={"dense": 0})
    p = Profile(read(*LOOP), recording=Recording(source=source))
    (remark,) = p.study.source.lines.remarks
    assert "Python 3.12 or --python-tracer" in remark and "tf.function" not in remark


@pytest.mark.parametrize("file", ["threading.py", "torch/nn/modules/linear.py", "/opt/venv/lib/python3.12/site-packages/timm/vit.py", "transformers/trainer.py", "<string>"])
def test_what_python_and_packages_called_is_not_the_users(file):
    assert find_stack_lines(read(python(f"{file}(12): run", 0, 20), event("aten::mm", 5, 5))) is None


def test_without_stacks_a_foreign_trace_has_no_lines():
    assert Profile(read(*LOOP)).source_lines.empty
    annotated = event("aten::mm", 5, 5), note("epoch (3): warm", 0, 20), event("odd(5): op", 30, 5)
    assert Profile(read(*annotated)).source_lines.empty
