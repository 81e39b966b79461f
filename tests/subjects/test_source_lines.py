"""Which line of the user's code an op came from: by name, by the frame that ran it, and in real programs."""

import os
import contextlib
import linecache
import os
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import PATIENT
from clocks import BusyTicks, Ticks
from traces import event, gpu, host, line, read

import profnb
from profnb.subjects.source.code_times import busy_within, find_busy, follow_lines, read_clock
from profnb.subjects.source.op_lines import NOWHERE, LineIndex
from profnb.subjects.study import Study
from profnb.capture.source import user_code
from profnb.capture.source.source_records import ENTERED, LEFT, GraphLines, LineRecords, SourceRecords
from profnb.trace.names import CLOCK_EVENT, CLOCK_NS
from profnb.capture.source import line_watch
from profnb.capture.source.line_watch import LineWatch
from profnb.capture.recording import Recording
from profnb.capture.source.user_code import shorten_files
from profnb.capture.source.user_code import is_user_file
from profnb.subjects.source.source_lines import _names_of_files

US = 1_000_000
HAS_MONITORING = hasattr(sys, "monitoring")
needs_monitoring = pytest.mark.skipif(not HAS_MONITORING, reason="lines are told since Python 3.12")

HERE = shorten_files([__file__], os.getcwd())[__file__]  # what this file is called in a result


def graph(name, *ops, calls=None):
    """A graph of (op name, type, place[, is_outside])."""
    columns = list(zip(*((*op, False)[:4] for op in ops)))
    return GraphLines(name, *(tuple(column) for column in columns), calls or {})


def index(*graphs, layers=None):
    return LineIndex(SourceRecords(graphs=graphs, layers=layers or {}))


# Names to lines.


def test_an_op_is_looked_up_in_the_function_that_ran():
    found = index(graph("train", ("MatMul", "MatMul", 1)), graph("test", ("MatMul", "MatMul", 2))).find
    assert found("MatMul", "__inference_train_17").place == 1
    assert found("MatMul", "__inference_test_18").place == 2
    assert found("MatMul", "") is NOWHERE  # of two functions, where none is known
    found = index(graph("train", ("MatMul", "MatMul", 1)), graph("train", ("MatMul", "MatMul", 2))).find
    assert found("MatMul", "").place == 2  # of one that was traced again, the latest


def test_the_example_in_the_words_of_op_lines():
    step = graph("step", ("MatMul", "MatMul", 3), ("while", "While", 4), ("gradient_tape/MatMul/MatMul_1", "MatMul", 9), calls={"while": ("while_body_7",)})
    find = index(step, graph("while_body_7", ("while/MatMul", "MatMul", 5))).find
    ops = {name: find(name, "__inference_step_1") for name in ("MatMul", "while/body/_14/while/MatMul", "MatMul-0-CastToFp16", "gradient_tape/MatMul/MatMul_1")}
    assert [line.place for line in ops.values()] == [3, 5, 3, 3]
    assert [line.tape for line in ops.values()] == [-1, -1, -1, 9]


def test_an_op_that_tf_data_ran_is_of_a_function_given_to_tf_data():
    step = graph("step", ("MatMul", "MatMul", 1))
    parse = graph("Dataset_map_parse", ("MatMul", "MatMul", 2), ("PartitionedCall", "PartitionedCall", 2), calls={"PartitionedCall": ("__inference_inner_3",)})
    inner = graph("inner", ("Relu", "Relu", 3))
    find = index(inner, parse, step).find
    assert find("MatMul", "__inference_step_1", -1).place == 2
    assert find("PartitionedCall/Relu", "__inference_step_1", -1).place == 3
    assert find("MatMul", "__inference_step_1").place == find("MatMul", "").place == 1
    assert find("Iterator::Batch", "__inference_step_1", -1) is NOWHERE
    assert index(step).find("MatMul", "__inference_step_1", -1) is NOWHERE
    other = graph("Dataset_filter_keep", ("MatMul", "MatMul", 9), ("Less", "Less", 9))
    found = index(parse, other, inner)
    assert found.find("MatMul", "", -1) is NOWHERE  # one of two, and nobody knows which
    found.note_input([(0, "MatMul"), (0, "Less"), (4, "MatMul"), (4, "PartitionedCall/Relu")])
    assert found.find("MatMul", "", 0).place == 9  # what ran beside it for the same iterator tells
    assert found.find("MatMul", "", 4).place == 2
    assert found.find("MatMul", "", 7) is NOWHERE


@pytest.mark.parametrize(("name", "place"), [
    ("StatefulPartitionedCall/dense/MatMul", 3),
    ("while/body/_14/while/MatMul", 4),
    ("cond/then/_5/cond/add", 5),
    ("StatefulPartitionedCall/PartitionedCall_1/dense/MatMul", 3),
])  # fmt: skip
def test_the_path_of_an_inlined_op_is_followed_through_calls(name, place):
    inner = graph("inner", ("dense/MatMul", "MatMul", 3))
    body, then = graph("while_body_9", ("while/MatMul", "MatMul", 4)), graph("cond_true_2", ("cond/add", "AddV2", 5))
    step = graph(
        "step", ("StatefulPartitionedCall", "StatefulPartitionedCall", 0), ("while", "While", 0), ("cond", "If", 0), ("dense/MatMul", "MatMul", 9),
        calls={"StatefulPartitionedCall": ("__inference_inner_7",), "while": ("while_cond_8", "while_body_9"), "cond": ("cond_true_2", "cond_false_3")},
    )  # fmt: skip
    other = graph("outer", ("dense/MatMul", "MatMul", 8))
    if "Call_1/" in name:  # a call that no graph knows: the op is the only one of that name that is known
        assert index(inner).find(name, "__inference_step_1").place == place
    else:
        assert index(other, inner, body, then, step).find(name, "__inference_step_1").place == place


def test_functions_traced_again_and_again_that_call_each_other_are_each_followed_once():
    """Hundreds of graphs a function, each calling hundreds: walked one by one, this would never end."""
    graphs = [graph("again", ("a", "X", 0), ("b", "X", 0), calls={"a": ("again",) * 8}) for _ in range(300)]
    find = index(*graphs, graph("again", ("a", "X", 0), ("deep/MatMul", "MatMul", 7), calls={"a": ("again",)})).find
    assert find("a/a/a/a/deep/MatMul", "again").place == 7
    for times in range(300, 499):
        assert find("x/" + "a/" * times + "no", "again") is NOWHERE
        assert find("a/" * times + "x/x/x/x/x/x/x/x/no", "again") is NOWHERE


@pytest.mark.parametrize(("name", "place"), [
    ("ArithmeticOptimizer/ReplaceMulWithSquare_mul", 2),
    ("layer/ArithmeticOptimizer/AddOpsRewrite_add_1", 3),
    ("layer/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer", 4),
    ("layer/Conv2D/something_new", 4),
    ("nothing/like/it", -1),
])  # fmt: skip
def test_what_grappler_renamed_is_found_by_the_name_it_had(name, place):
    step = graph("step", ("mul", "Mul", 2), ("layer/add_1", "AddV2", 3), ("layer/Conv2D", "Conv2D", 4))
    assert index(step).find(name, "__inference_step_1").place == place


def test_a_gradient_op_counts_for_the_forward_line_and_remembers_the_tape():
    step = graph(
        "step", ("dense/MatMul", "MatMul", 1), ("dense/Relu", "Relu", 2), ("tanh/Tanh", "Tanh", 3),
        ("gradient_tape/dense/MatMul/MatMul_1", "MatMul", 7), ("gradient_tape/dense/ReluGrad", "ReluGrad", 7),
        ("gradient_tape/Tile", "Tile", 7), ("gradients/tanh/Tanh_grad/TanhGrad", "TanhGrad", 8),
    )  # fmt: skip
    found = {name: index(step).find(name, "__inference_step_1") for name in step.op_names}
    assert [(f.place, f.tape) for f in found.values()] == [(1, -1), (2, -1), (3, -1), (1, 7), (2, 7), (7, 7), (3, 8)]
    assert [f.is_backward for f in found.values()] == [False] * 3 + [True] * 4


def test_a_gradient_that_two_lines_may_have_caused_stays_with_the_tape():
    step = graph("step", ("Relu", "Relu", 1), ("Relu_1", "Relu", 2), ("gradient_tape/ReluGrad", "ReluGrad", 7))
    assert index(step).find("gradient_tape/ReluGrad", "__inference_step_1").place == 7
    same = graph("step", ("Relu", "Relu", 1), ("Relu_1", "Relu", 1), ("gradient_tape/ReluGrad", "ReluGrad", 7))
    assert index(same).find("gradient_tape/ReluGrad", "__inference_step_1").place == 1


def test_ops_that_no_line_inside_the_function_made_go_to_the_line_that_made_the_layer():
    step = graph(
        "one_step", ("sequential_1/big_1/MatMul", "MatMul", 5, True), ("loss/Mean", "Mean", 5, True),
        ("gradient_tape/sequential_1/big_1/MatMul/MatMul", "MatMul", 5, True), ("big/add", "AddV2", 3, False),
    )  # fmt: skip
    found = index(step, layers={"big": 2}).find
    assert (found("sequential_1/big_1/MatMul", "").place, found("sequential_1/big_1/MatMul", "").is_outside) == (2, False)
    assert found("loss/Mean", "").is_outside
    backward = found("gradient_tape/sequential_1/big_1/MatMul/MatMul", "")
    assert (backward.place, backward.tape, backward.is_backward) == (2, 5, True)
    assert found("big/add", "").place == 3  # called from a line of the user's: that says more
    assert found("no/such", "") is NOWHERE


@pytest.mark.parametrize(("scopes", "layers"), [
    (("dense", "dense_1", "dense_2"), ("dense", "dense_1", "dense_2")),  # Keras 2
    (("dense_1", "dense_1_2", "dense_2_1"), ("dense", "dense_1", "dense_2")),  # Keras 3: each name was taken once before
    (("dense", "dense_1"), ("dense", "dense")),  # one layer, called twice
    (("other", "big_1"), (None, "big")),
])  # fmt: skip
def test_a_scope_is_told_which_layer_it_is(scopes, layers):
    names = {name: place for place, name in enumerate(sorted({n for n in layers if n}), 10)}
    step = graph("one_step", *((f"model/{scope}/MatMul", "MatMul", 5, True) for scope in scopes))
    found = index(step, layers=names).find
    assert [found(f"model/{scope}/MatMul", "").place for scope in scopes] == [names.get(layer, 5) for layer in layers]


def test_hostile_names_end():
    ring = graph("a", ("f", "PartitionedCall", 0), calls={"f": ("a",)})
    name = "f/" * 5000 + "x"
    assert index(ring).find(name, "__inference_a_1").place in (-1, 0)
    assert index(ring).find("gradients/" * 3000 + "x_grad/y", "").place == -1


# Lines to a timeline.


def records(*rows, files=("a.py", "b.py")):
    lines = LineRecords(files=list(files))
    for time_ns, code, number in rows:
        lines.time_ns.append(time_ns)
        lines.code.append(code)
        lines.line.append(number)
    return lines


def follow(*rows, end=100):
    timeline = follow_lines(records(*rows), SimpleNamespace(offset_ps=0), end * 1000)
    return [(int(b) // 1000, timeline.places[p][1] if p >= 0 else None) for b, p in zip(timeline.begin_ps, timeline.place, strict=False)]


def test_a_caller_goes_on_where_its_function_returns():
    rows = (0, 0, ENTERED), (1, 0, 10), (5, 1, ENTERED), (6, 1, 20), (9, 1, LEFT), (12, 0, 11), (20, 0, LEFT)
    assert follow(*rows) == [(0, None), (1, 10), (5, 10), (6, 20), (9, 10), (12, 11), (20, None)]


def test_a_function_that_an_exception_left_is_forgotten():
    rows = (0, 0, ENTERED), (1, 0, 10), (2, 1, ENTERED), (3, 1, 20), (8, 0, 12), (9, 0, LEFT)
    assert follow(*rows) == [(0, None), (1, 10), (2, 10), (3, 20), (8, 12), (9, None)]


def test_recursion_returns_to_the_line_that_called():
    rows = (0, 0, ENTERED), (1, 0, 5), (2, 0, ENTERED), (3, 0, 6), (4, 0, LEFT), (6, 0, LEFT)
    assert follow(*rows) == [(0, None), (1, 5), (2, 5), (3, 6), (4, 5), (6, None)]


def test_busy_time_is_counted_once():
    trace = read(host(line("main", event("EagerExecute", 0, 100), event("Add:Add", 10, 20), event("my region", 0, 900), event("EagerExecute", 300, 50))))
    busy = find_busy(trace, 0)
    assert [b.tolist() for b in busy] == [[0, 300], [100, 350]]
    assert busy_within(busy, np.array([-5, 0, 40, 200, 310, 1000])).tolist() == [0, 0, 40, 100, 110, 150]


def clock(begin, reading_ns):
    return event(CLOCK_EVENT, begin, 10, **{CLOCK_NS: reading_ns})


def test_the_clock_is_read_where_it_was_told_with_least_delay():
    trace = read(host(line("main", clock(5000, 1), clock(11_500, 10))))
    assert read_clock(trace).offset_ps == 1500
    assert read_clock(read(host(line("main", event("x", 0, 1))))) is None


# Both to the table.


def call(name, begin, duration):
    return event(f"EagerLocalExecute: {name}", begin * US, duration * US)


def table_of(trace, **source):
    study = Study(trace, recording=Recording(source=SourceRecords(**source)))
    lines = study.source.lines
    assert lines.host_ps.sum() == study.ops.table.self_ps[~study.ops.table.is_device].sum()
    assert lines.device_ps.sum() == study.ops.table.self_ps[study.ops.table.is_device].sum()
    return {(f, int(n)): row for row, (f, n) in enumerate(zip(lines.file, lines.line, strict=True))}, lines


def test_eager_ops_count_for_the_line_that_ran_and_graph_ops_for_the_line_that_made_them():
    trace = read(host(
        line("main", clock(0, 0),
             call("Add", 10, 20), event("Add:AddV2", 12 * US, 15 * US),
             call("__inference_step_1", 40, 50), event("Mul:Mul", 50 * US, 6 * US)),
        line("worker", event("MatMul:MatMul", 60 * US, 20 * US), event("unknown/op:Cast", 62 * US, 5 * US), line_id=2),
    ))  # fmt: skip
    rows, lines = table_of(
        trace, places=[("a.py", 3), ("a.py", 4)],
        graphs=(graph("step", ("Mul", "Mul", 0), ("MatMul", "MatMul", 1)),), texts={"a.py": ("one", "two", "three", "four")},
        lines=records((0, 0, ENTERED), (5_000, 0, 1), (35_000, 0, 2), (95_000, 0, LEFT), (100_000, 0, LEFT)),
    )  # fmt: skip
    host_us = {number: lines.host_ps[row] / US for (_, number), row in rows.items()}
    # the op of no known graph ran in a call from line 2, inside another op's time on its thread
    assert host_us == {1: 15, 2: 5, 3: 6, 4: 15}
    assert lines.wall_ps[rows["a.py", 1]] == 30 * US
    assert lines.python_ps[rows["a.py", 1]] == 10 * US
    assert lines.python_ps[rows["a.py", 2]] == 10 * US
    assert lines.text[rows["a.py", 3]] == "three"
    assert lines.occurrences[rows["a.py", 1]] == 1


def test_device_work_counts_for_the_line_that_launched_it_eagerly_or_that_made_its_op():
    trace = read(
        host(line("main", clock(0, 0), call("MatMul", 10, 10), event("cuLaunchKernel", 12 * US, US, correlation_id=7),
                  call("__inference_step_1", 40, 10), event("cuLaunchKernel", 42 * US, US, correlation_id=8))),
        gpu(line("stream 1", event("gemm", 100 * US, 30 * US, correlation_id=7, tf_op="MatMul:MatMul"),
                 event("gemm", 150 * US, 40 * US, correlation_id=8, tf_op="MatMul:MatMul"))),
    )  # fmt: skip
    rows, lines = table_of(
        trace, places=[("a.py", 9)], graphs=(graph("step", ("MatMul", "MatMul", 0)),),
        lines=records((0, 0, ENTERED), (5_000, 0, 1), (35_000, 0, 2), (95_000, 0, LEFT)),
    )  # fmt: skip
    assert lines.device_ps[rows["a.py", 1]] == 30 * US
    assert lines.device_ps[rows["a.py", 9]] == 40 * US


def test_an_op_of_several_kernels_ran_once_however_many_it_took():
    """Two executions, of one kernel and its two helpers each: two, not six."""
    launches = [event("cuLaunchKernel", at * US, US, correlation_id=at) for at in (42, 44, 46, 52, 54, 56)]
    kernels = [event(name, (58 + at) * US, US, correlation_id=at, tf_op="Conv:Conv2D") for at, name in zip((42, 44, 46, 52, 54, 56), 2 * ("pad", "conv", "unpad"), strict=True)]
    trace = read(host(line("main", clock(0, 0), call("__inference_step_1", 40, 20), *launches)), gpu(line("stream 1", *kernels)))
    rows, lines = table_of(
        trace, places=[("a.py", 9)], graphs=(graph("step", ("Conv", "Conv2D", 0)),),
        lines=records((0, 0, ENTERED), (5_000, 0, 1), (95_000, 0, LEFT)),
    )  # fmt: skip
    assert lines.op_occurrences[rows["a.py", 9]] == 2
    assert lines.device_ps[rows["a.py", 9]] == 6 * US
    assert lines.op_occurrences.sum() == Study(trace).ops.table.occurrences.sum()


def test_gradients_are_counted_once_and_shown_at_the_tape_as_well():
    trace = read(host(
        line("main", clock(0, 0), call("__inference_step_1", 0, 90)),
        line("worker", event("dense/MatMul:MatMul", 10 * US, 10 * US), event("gradient_tape/dense/MatMul/MatMul:MatMul", 30 * US, 20 * US), line_id=2),
    ))  # fmt: skip
    step = graph("step", ("dense/MatMul", "MatMul", 0), ("gradient_tape/dense/MatMul/MatMul", "MatMul", 1))
    rows, lines = table_of(trace, places=[("a.py", 5), ("a.py", 8)], graphs=(step,))
    forward, tape = rows["a.py", 5], rows["a.py", 8]
    assert (lines.host_ps[forward], lines.backward_ps[forward]) == (30 * US, 20 * US)
    assert (lines.host_ps[tape], lines.gradient_ps[tape]) == (0, 20 * US)
    assert lines.python_ps[forward] == -1  # Python was not watched: not zero


def test_a_trace_without_a_clock_still_has_the_lines_of_graphs():
    trace = read(host(line("worker", event("MatMul:MatMul", 0, 100))))
    source = SourceRecords(places=[("a.py", 1)], graphs=(graph("f", ("MatMul", "MatMul", 0)),))
    lines = Study(trace, recording=Recording(source=source)).source.lines
    assert (lines.file, lines.host_ps.tolist()) == (("a.py",), [100])


def test_a_saved_trace_has_no_source_lines(cpu_trace_path):
    p = profnb.load(cpu_trace_path)
    assert p.source_lines.empty
    assert "host_us" in p.source_lines.columns
    assert p.python.empty


# What is the user's.


@pytest.mark.parametrize(("file", "is_own"), [
    ("/tmp/ipykernel_12/34.py", True), ("<ipython-input-3-abc>", True), ("/home/me/model.py", True), ("<frozen abc>", False), ("<string>", False),
    ("/usr/lib/python3/dist-packages/x.py", False), (np.__file__, False), (textwrap.__file__, False), (profnb.__file__, False),
    ("/tmp/__autograph_generated_filexyz.py", False),
    ("/tmp/torchinductor_me/yk/cykk5qzrzm572xub.py", False),
])  # fmt: skip
def test_the_users_own_code_is_what_is_not_installed(file, is_own):
    assert is_user_file(file) == is_own


def test_what_was_installed_to_a_folder_of_its_own_is_a_library(tmp_path, monkeypatch):
    """``pip install --target``: Keras in such a folder was recorded line by line, five times as slow on an H200."""
    (tmp_path / "keras-3.15.dist-info").mkdir()
    (tmp_path / "keras-3.15.dist-info" / "RECORD").write_text("keras/__init__.py,sha256=x,1\nsix.py,,\nkeras-3.15.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {name: is_user_file(f"{tmp_path}/{name}") for name in ("keras/src/layers/layer.py", "six.py", "train.py", "keras_model/net.py")}
    assert files == {"keras/src/layers/layer.py": False, "six.py": False, "train.py": True, "keras_model/net.py": True}
    assert is_user_file(f"{tmp_path}x/keras/own.py")


def test_a_file_of_a_saved_program_is_the_file_that_the_watch_saw():
    """XLA saves whole paths, a result has short names; what it did not see is shortened, too."""
    names = _names_of_files({"/home/me/src/train.py", "/home/me/lib/net.py", "<ipython-input-3-x>"}, {"src/train.py", "train.py", "rain.py"})
    assert names == {"/home/me/src/train.py": "src/train.py", "/home/me/lib/net.py": "lib/net.py", "<ipython-input-3-x>": "<ipython-input-3-x>"}


# The watch.


def tools():
    return [sys.monitoring.get_tool(tool) for tool in range(6)]


def watched(function):
    watch = LineWatch()
    assert watch.start()
    try:
        function()
    finally:
        watch.stop()
    return watch.records


@needs_monitoring
def test_lines_are_told_in_order_and_nothing_stays_behind():
    def double(value):
        doubled = value * 2
        return doubled

    def work():
        a = double(1)
        return textwrap.dedent(str(a))

    found = watched(work)
    first = double.__code__.co_firstlineno
    own = [number - first for number in found.line if number > first]
    assert own[own.index(5) :][:4] == [5, 1, 2, 6]
    assert set(found.files) == {__file__}
    assert tools() == [None] * 6
    assert [sys.monitoring.get_local_events(tool, double.__code__) for tool in range(6)] == [0] * 6


@needs_monitoring
def test_an_exception_leaves_the_functions_that_it_passes():
    def fails(n):
        if n:
            fails(n - 1)
        raise KeyError(n)

    def tries():
        with contextlib.suppress(KeyError): fails(2); int()  # noqa: E702
        return 3

    found = watched(tries)
    rows = [r for r, c in enumerate(found.code) if c >= 0 and found.line[r] in (ENTERED, LEFT)]
    depth = np.cumsum([1 if found.line[r] == ENTERED else -1 for r in rows])
    assert depth.max() - depth.min() >= 4  # three calls of fails inside of tries
    timeline = follow_lines(found, SimpleNamespace(offset_ps=0), found.time_ns[-1] * 1000)
    own = [timeline.places[p][1] - tries.__code__.co_firstlineno for p in timeline.place if p >= 0]
    inside = [n for n in own if n >= 1]
    assert inside[-2:] == [1, 2] or inside[-3:] == [1, 1, 2]  # back at the line that caught it, before the next one


@needs_monitoring
def test_another_thread_may_end_the_watch_at_any_moment():
    source = "def work():\n  x = 0\n  for i in range(40):\n" + "".join(f"    x = (x + i * {n}) & 255\n" for n in range(120))
    space = {}
    exec(compile(source, "/tmp/a_users_file.py", "exec"), space)
    for times in range(40):
        watch = LineWatch()
        assert watch.start()
        timer = threading.Timer(0.0005 * times, watch.stop)
        timer.start()
        while timer.is_alive():
            space["work"]()
        timer.join()
        assert len(watch.records.time_ns) == len(watch.records.code) == len(watch.records.line)
        assert tools() == [None] * 6


@pytest.fixture
def made_clock(monkeypatch):
    """The watch's clock: 200 ns pass from look to look, which is what a line of plain Python takes."""
    ticks = Ticks()
    monkeypatch.setattr(line_watch, "time", ticks)
    return ticks


@needs_monitoring
@pytest.mark.parametrize("functions", [1, 300, 3000])
def test_what_takes_no_time_is_soon_no_longer_recorded(made_clock, functions):
    lines = 120 if functions == 1 else 2
    body = "".join(f"    x = x + {n}\n" for n in range(lines))
    source = "".join(f"def f{n}(x):\n{body}    return x\n" for n in range(functions))
    source += "def all_of_them():\n  for _ in range(" + str(60_000 // functions) + "):\n    for f in fs: f(1)\n"
    space = {}
    exec(compile(source, "/tmp/a_users_file.py", "exec"), space)
    space["fs"] = [space[f"f{n}"] for n in range(functions)]
    found = watched(space["all_of_them"])
    assert not found.is_cut
    assert len(found) < 60_000 + 60 * functions  # of some 300,000 calls, lines and returns, or millions


@needs_monitoring
def test_a_line_that_takes_its_time_is_recorded_among_many_that_do_not(made_clock):
    """An op of some 20 us in a loop of lines of plain Python keeps its line."""

    def loop():
        total = 0
        for number in range(6000):
            total += number
            total -= number
            total += 1
            sum(made_clock.work(100))
            total -= 1
            total += 2

    found = watched(loop)
    timeline = follow_lines(found, SimpleNamespace(offset_ps=0), found.time_ns[-1] * 1000)
    took = np.diff(timeline.begin_ps)
    first = loop.__code__.co_firstlineno
    wall = {number - first: int(took[timeline.place == row].sum()) for row, (_, number) in enumerate(timeline.places)}
    assert wall[6] > 0.8 * sum(took)


def test_after_recording_was_cut_no_line_is_known():
    lines = records((0, 0, ENTERED), (5_000, 0, 1), (35_000, 0, 2))
    lines.is_cut = True
    timeline = follow_lines(lines, SimpleNamespace(offset_ps=0), 90_000_000)
    assert timeline.place_at(np.array([10_000_000, 34_000_000, 36_000_000, 89_000_000])).tolist() == [0, 0, -1, -1]


@needs_monitoring
def test_a_loop_of_plain_python_is_not_recorded_line_by_line(made_clock):
    def busy():
        total = 0
        for number in range(300_000):
            total += number
        return total

    found = watched(busy)
    assert len(found) < 20_000
    first = busy.__code__.co_firstlineno
    assert {number - first for _, number in found.untimed} == {2, 3}
    timeline = follow_lines(found, SimpleNamespace(offset_ps=0), found.time_ns[-1] * 1000)
    took = np.diff(timeline.begin_ps)
    wall = {number - first: int(took[timeline.place == row].sum()) for row, (_, number) in enumerate(timeline.places)}
    assert wall[2] + wall[3] > 0.9 * sum(took)


def plain_loop():
    total = 0
    for number in range(300_000):
        total += number
    return total


def counting(most):
    for number in range(most):
        yield number


def loop_over_a_generator():
    total = 0
    for number in counting(200_000):
        total += number
    return total


def generator_expression():
    return sum(number for number in range(200_000))


def caught(most):
    raise KeyError(most)


def loop_of_exceptions():
    for number in range(70_000):
        try:
            caught(number)
        except KeyError:
            pass


LOOPS = [plain_loop, loop_over_a_generator, generator_expression]


@needs_monitoring
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("clock", [Ticks, BusyTicks])
def test_loops_of_plain_python_are_no_longer_recorded_soon_whoever_else_has_the_processor(monkeypatch, loop, clock):
    """The clock jumps by 10 ms now and then, as on a busy machine, and the thread's CPU time does not."""
    monkeypatch.setattr(line_watch, "time", clock())
    found = watched(loop)
    assert not found.is_cut
    assert len(found) < 30_000  # of 400,000 and more


@needs_monitoring
def test_where_every_function_is_left_by_an_exception_these_are_soon_not_told_any_more(made_clock):
    watch = LineWatch()
    assert watch.start()
    try:
        loop_of_exceptions()
        assert sys.monitoring.get_events(tools().index("profnb")) == sys.monitoring.events.PY_START
    finally:
        watch.stop()


@needs_monitoring
@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_the_brake_holds_while_others_use_every_processor(loop):
    """By the real clocks, beside twice as many busy processes as there are processors."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        found = [len(watched(loop)) for _ in range(3)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert min(found) < 60_000  # of 400,000 and more


@needs_monitoring
def test_a_line_that_waits_each_time_stays_though_it_takes_no_cpu_time(monkeypatch):
    class Waiting(Ticks):
        """Waits are no CPU time: `waits` looks pass by the clock alone."""

        def __init__(self):
            super().__init__()
            self.waited = 0
            self.thread_time_ns = lambda: next(self._ticks) - self.waited

    clock = Waiting()
    monkeypatch.setattr(line_watch, "time", clock)

    def loop():
        total = 0
        for number in range(6000):
            total += number
            total -= number
            sum(clock.work(100)); clock.waited += 20_000  # noqa: E702
            total += 2

    found = watched(loop)
    timeline = follow_lines(found, SimpleNamespace(offset_ps=0), found.time_ns[-1] * 1000)
    took = np.diff(timeline.begin_ps)
    first = loop.__code__.co_firstlineno
    wall = {number - first: int(took[timeline.place == row].sum()) for row, (_, number) in enumerate(timeline.places)}
    assert wall[5] > 0.8 * sum(took)


@needs_monitoring
def test_an_exception_passes_and_other_tools_are_left_alone():
    import cProfile

    def fails():
        raise ValueError("mine")

    own = cProfile.Profile()
    own.enable()
    try:
        with pytest.raises(ValueError, match="mine") as caught:
            watched(fails)
    finally:
        own.disable()
    assert any("fails" in str(entry.code) for entry in own.getstats())
    assert caught.traceback[-1].name == "fails"


@contextlib.contextmanager
def other_tools(*ids):
    """Tools of others', each of which counts the lines of one function."""
    lines = dict.fromkeys(ids, 0)

    def counting(tool):
        def line_begins(_code, _line):
            lines[tool] += 1

        return line_begins

    def attend(tool, function):
        sys.monitoring.register_callback(tool, sys.monitoring.events.LINE, counting(tool))
        sys.monitoring.set_local_events(tool, function.__code__, sys.monitoring.events.LINE)

    for tool in ids:
        sys.monitoring.use_tool_id(tool, "somebody")
    try:
        yield lines, attend
    finally:
        for tool in ids:
            sys.monitoring.register_callback(tool, sys.monitoring.events.LINE, None)
            if sys.monitoring.get_tool(tool) == "somebody":
                sys.monitoring.free_tool_id(tool)


def another():
    return None


def three_lines():
    a = 1
    b = a + 1
    return b


@needs_monitoring
def test_where_all_tools_are_taken_there_is_no_watch():
    with other_tools(3, 4):
        watch = LineWatch()
        assert not watch.start()
        assert watch.taken_by == ("somebody", "somebody")


@needs_monitoring
@pytest.mark.parametrize("taken", [3, 4])
def test_whichever_tool_is_free_is_taken_and_none_that_is_meant_for_others(taken):
    with other_tools(taken):
        watch = LineWatch()
        assert watch.start()
        assert tools().index("profnb") == 7 - taken
        watch.stop()
    assert watch.taken_by in ((), ("somebody",))


@needs_monitoring
def test_debuggers_and_coverage_go_on_as_without_us():
    """Those that began before, and those that begin while we watch."""
    watch = LineWatch()
    with other_tools(0, 1) as (before, attend):
        attend(0, three_lines), attend(1, three_lines)
        assert watch.start()
        with other_tools(2, 5) as (meanwhile, attend):
            attend(2, three_lines), attend(5, three_lines)
            three_lines()
        three_lines()
        watch.stop()
        three_lines()
    assert before == {0: 9, 1: 9}
    assert meanwhile == {2: 3, 5: 3}
    assert not watch.records.is_cut


@needs_monitoring
def test_a_tool_of_ours_that_somebody_gave_back_is_the_end_of_the_watch_and_of_nothing_else():
    watch = LineWatch()
    assert watch.start()
    three_lines()
    sys.monitoring.free_tool_id(tools().index("profnb"))
    assert another() is None  # a function not seen before, of which Python would have to tell us
    assert tools() == [None] * 6
    assert sys.monitoring.get_local_events(3, three_lines.__code__) == sys.monitoring.get_local_events(4, three_lines.__code__) == 0
    watch.stop()
    assert watch.records.is_cut
    assert three_lines.__code__.co_firstlineno + 1 in watch.records.line


@needs_monitoring
def test_a_tool_of_ours_that_somebody_took_is_left_alone():
    watch = LineWatch()
    assert watch.start()
    tool = tools().index("profnb")
    sys.monitoring.free_tool_id(tool)
    with other_tools(tool) as (lines, attend):
        attend(tool, three_lines)
        assert another() is None
        three_lines()
        watch.stop()
        three_lines()
        assert sys.monitoring.get_tool(tool) == "somebody"
    assert lines[tool] >= 6
    assert watch.records.is_cut


@needs_monitoring
def test_other_threads_are_not_mixed_in():
    import threading

    def elsewhere():
        return 1 + 1

    def here():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    found = watched(here)
    assert elsewhere.__code__.co_firstlineno + 1 not in found.line


# Real programs.

tensorflow = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def lines_of(frame, function, column="host_us"):
    """Host time by line, counted from a function's first."""
    first = function.__code__.co_firstlineno
    own = frame[frame.file == HERE]
    return {int(line) - first: spent for line, spent in zip(own.line, own[column], strict=True)}


@tensorflow
@pytest.mark.parametrize("was_traced", [False, True])
def test_lines_in_branches_and_loops_are_found_though_the_function_was_traced_before(tf, was_traced):
    weights = tf.Variable(tf.random.normal((300, 300)) * 0.05)

    def body(n):
        x = tf.matmul(weights, weights)
        if n > 0:
            x = tf.matmul(x, weights)
        x = tf.cond(n > 0, lambda: tf.matmul(x, weights), lambda: x)
        for _ in tf.range(1):
            x = tf.matmul(x, weights)
        return tf.reduce_sum(x)

    def without_arguments():
        return tf.matmul(weights, weights)

    step, bare = tf.function(body), tf.function(without_arguments)
    if was_traced:
        step(tf.constant(1)), bare()
    with profnb.profile() as p:
        for _ in range(20):
            step(tf.constant(1))
            bare()
    runs = lines_of(p.source_lines, body, "op_occurrences")
    steady = len(p.study.summary.counted)  # without the step in which they were traced; one may stand aside
    assert steady >= 18
    assert [runs.get(line, 0) >= steady for line in (1, 3, 4, 6)] == [True] * 4
    assert lines_of(p.source_lines, without_arguments, "op_occurrences")[1] >= steady
    assert p.source_lines.op_occurrences.sum() == p.study.ops.steady.occurrences.sum()


@tensorflow
def test_ops_of_tf_data_and_of_other_threads_are_not_those_of_the_step(tf):
    large, small = tf.random.normal((400, 400)), tf.Variable(tf.random.normal((8, 8)))

    def heavy(x):
        return tf.reduce_sum(tf.matmul(x, large))

    def body():
        return tf.reduce_sum(tf.matmul(small, small))

    def in_python(x):
        return tf.matmul(large, large)

    def calls_python():
        return tf.reduce_sum(
            tf.py_function(in_python, [small], tf.float32))

    def elsewhere():
        tf.matmul(large, large)

    def light(x):
        return tf.reduce_sum(tf.matmul(x, x)) + 1.0

    step, python = tf.function(body), tf.function(calls_python)
    data = tf.data.Dataset.from_tensors(large).repeat(30).map(heavy, num_parallel_calls=2)
    data = data.map(lambda x: tf.ones((9, 9)) * x).map(light).prefetch(2)
    step(), python()
    with profnb.profile() as p:
        for _ in data:
            step()
    # Thirty elements, less those that were made before the first steady step: of each function a matmul with
    # its read of the variable, a sum, and for light an add.
    steady = len(p.study.summary.counted)
    assert 20 <= lines_of(p.source_lines, heavy, "op_occurrences")[1] <= 60
    assert 30 <= lines_of(p.source_lines, light, "op_occurrences")[1] <= 90
    assert lines_of(p.source_lines, body, "op_occurrences")[1] == 4 * steady
    with profnb.profile(max_steps=10**6) as p:
        for _ in range(10):
            python()
    assert lines_of(p.source_lines, calls_python, "op_occurrences")[2] >= len(p.study.summary.counted) >= 8
    with profnb.profile(max_steps=10**6) as p:
        for _ in range(30):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            while thread.is_alive():
                step()
    assert p.source_lines[p.source_lines.file == ""].op_occurrences.sum() >= 1  # the other thread's, of those in steady steps
    assert lines_of(p.source_lines, body, "op_occurrences")[1] % 4 == 0  # whole steps: none of the other thread's
    assert p.source_lines.host_us.sum() == pytest.approx(p.study.ops.steady.self_ps.sum() / 1e6)


@tensorflow
@pytest.mark.skipif(not HAS_MONITORING, reason="samples meet an op or not, as the clock has it")
def test_eager_ops_of_three_lines_are_found_at_theirs(tf):
    left = tf.random.normal((256, 256))
    wide = {times: tf.random.normal((256, 256 * times)) for times in (1, 2, 4)}

    def loop(count):
        for _ in range(count):
            tf.matmul(left, wide[1])
            tf.matmul(left, wide[2])
            tf.matmul(left, wide[4])

    loop(5)
    with profnb.profile() as p:
        loop(60)
    runs = lines_of(p.source_lines, loop, "op_occurrences")
    assert [runs[line] for line in (2, 3, 4)] == [60, 60, 60]
    assert p.source_lines.host_us.sum() == pytest.approx(p.study.ops.steady.self_ps.sum() / 1e6)


@tensorflow
def test_ops_of_three_lines_of_a_function_are_found_at_theirs(tf):
    left = tf.random.normal((64, 64))
    wide = {times: tf.random.normal((64, 64 * times)) for times in (1, 2, 4)}

    @tf.function
    def step(data):
        first = tf.matmul(data, wide[1])
        data += 1e-9 * first[:, :64]
        second = tf.matmul(data, wide[2])
        data += 1e-9 * second[:, :64]
        return tf.matmul(data, wide[4])

    step(left)
    with profnb.profile() as p:
        for _ in range(20):
            step(left)
    spent = lines_of(p.source_lines, step.python_function)
    steady = p.study.ops.steady  # a step may stand aside
    ops = dict(zip(steady.op_name, (steady.self_ps / 1e6).tolist(), strict=True))
    assert [spent[line] for line in (2, 4, 6)] == pytest.approx([ops["MatMul"], ops["MatMul_1"], ops["MatMul_2"]])


@tensorflow
def test_gradients_of_a_custom_loop_point_to_the_forward_line_and_the_tape(tf):
    weights = tf.Variable(tf.random.normal((128, 128)))

    @tf.function
    def step(data):
        with tf.GradientTape() as tape:
            product = tf.matmul(data, weights)
            loss = tf.reduce_mean(tf.sqrt(tf.abs(product)))
        gradient = tape.gradient(loss, weights)
        weights.assign_sub(1e-9 * gradient)

    with profnb.profile() as p:
        for _ in range(5):
            step(tf.ones((64, 128)))
    own = p.source_lines[p.source_lines.file == HERE].set_index("line")
    first = step.python_function.__code__.co_firstlineno
    assert own.backward_us[first + 3] > 0
    assert own.forward_us[first + 3] > 0
    assert own.gradient_us[first + 5] >= own.backward_us[first + 3]
    assert p.source_lines.host_us.sum() == pytest.approx(p.study.ops.steady.self_ps.sum() / 1e6)


@tensorflow
def test_a_function_that_is_gone_when_the_capture_ends_is_known(tf):
    def run():
        @tf.function
        def gone(x):
            return tf.linalg.expm(x) * 3.0

        for _ in range(3):
            gone(tf.ones((30, 30)))

    with profnb.profile() as p:
        run()
    lines = p.source_lines
    assert (lines.source == "return tf.linalg.expm(x) * 3.0").any()


@tensorflow
def test_fit_finds_a_slow_callbacks_line_and_a_slow_layers_line(tf):
    keras = pytest.importorskip("keras")

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            del batch, logs
            time.sleep(0.004)  # a line to look for

    with profnb.profile(python=not HAS_MONITORING) as p:
        model = keras.Sequential([
            keras.layers.Input((64,)),
            keras.layers.Dense(8, name="small"),
            keras.layers.Dense(2048, name="large_one"),
            keras.layers.Dense(3, name="last"),
        ])  # fmt: skip
        model.compile("sgd", "mse")
        model.fit(np.ones((640, 64), "float32"), np.ones((640, 3), "float32"), batch_size=32, verbose=0, callbacks=[Slow()])
    lines = p.source_lines
    if HAS_MONITORING:
        slow = lines[lines.source.str.startswith("time.sleep(0.004)")]
        assert slow.capture_us.sum() >= 20 * 4000 * 0.999  # no sleep is shorter; the trace's clock is another one
        steady = int(p.study.gaps.belongs[p.study.summary.counted].sum())
        assert slow.python_us.sum() >= steady * 4000 * 0.99
        assert lines[lines.source.str.startswith("model.fit")].wall_us.sum() > 0

    def made(name):
        found = lines[lines.source.str.contains(name)]
        return found.host_us.sum(), found.backward_us.sum()

    assert all(part > 0 for name in ("large_one", '"small"') for part in made(name))


@pytest.fixture
def all_graphs(monkeypatch):
    """Other tests of this process leave graphs and models alive, more than are read."""
    from profnb.capture.source import graph_lines, layer_lines

    monkeypatch.setattr(layer_lines, "_MOST_MODELS", 10**6)
    monkeypatch.setattr(graph_lines, "_MOST_OPS_READ", 10**8)
    monkeypatch.setattr(graph_lines, "_MOST_GRAPHS", 10**6)


@tensorflow
def test_layers_that_were_made_before_the_capture_are_found_in_the_text(tf, all_graphs):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([
        keras.layers.Input((16, 16, 1)),
        keras.layers.Conv2D(7, 3, activation="relu"),
        keras.layers.Conv2D(9, (3, 3), activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(11, activation="relu"),
        keras.layers.Dense(units=11),
    ])  # fmt: skip
    model.compile("sgd", "mse")
    x, y = np.ones((320, 16, 16, 1), "float32"), np.ones((320, 11), "float32")
    model.fit(x, y, verbose=0)
    with profnb.profile() as p:
        model.fit(x, y, verbose=0)
    lines = p.source_lines.set_index("source")
    for source in ('keras.layers.Conv2D(7, 3, activation="relu"),', 'keras.layers.Conv2D(9, (3, 3), activation="relu"),', 'keras.layers.Dense(11, activation="relu"),', "keras.layers.Dense(units=11),"):
        assert lines.forward_us[source] > 0
        assert lines.backward_us[source] > 0
    assert p.source_lines.host_us.sum() == pytest.approx(p.study.ops.steady.self_ps.sum() / 1e6)


@tensorflow
def test_a_layer_that_two_lines_may_have_made_has_none(tf):
    keras = pytest.importorskip("keras")
    from profnb.capture.source.layer_lines import find_layer_lines

    one = keras.layers.EinsumDense("ab,bc->ac", output_shape=13, name="named")
    two = keras.layers.EinsumDense("ab,bc->ac", output_shape=13)
    keras.layers.EinsumDense("ab,bc->ac", output_shape=13)
    inputs = keras.layers.Input((4,))
    ran = [keras.Model(inputs, one(inputs)), keras.Model(inputs, two(inputs)), "no model", 3]
    found = find_layer_lines(ran)
    assert found["named"][1] == test_a_layer_that_two_lines_may_have_made_has_none.__code__.co_firstlineno + 5
    assert two.name not in found
    assert find_layer_lines([]) == {}
    others = [keras.Sequential([keras.layers.Dense(2)]) for _ in range(30)]
    assert find_layer_lines((), [*others, *ran]) == {}
    assert find_layer_lines((), [*others, *ran], {"named"}) == {"named": found["named"]}
    twin = keras.Sequential([keras.layers.Input((4,)), keras.layers.Embedding(9, 13, name="named")])
    assert find_layer_lines((), [*ran, twin], {"named"}) == {}  # one of the two, and nobody knows which
    assert find_layer_lines(ran, [twin], {"named"}) == {"named": found["named"]}


@tensorflow
def test_a_call_that_gives_the_name_goes_before_a_newer_one_that_may_have(tf, monkeypatch):
    keras = pytest.importorskip("keras")
    from profnb.capture.source.layer_lines import find_layer_lines

    cell, text = "<ipython-input-7-a>", "keras.layers.EinsumDense('ab,bc->ac', output_shape=19, name=f'{n}')\n"
    monkeypatch.setitem(linecache.cache, cell, (len(text), None, [text], cell))
    given = keras.layers.EinsumDense("ab,bc->ac", output_shape=19, name="given")
    computed = keras.layers.EinsumDense("ab,bc->ac", output_shape=19, name="computed"[:4])
    inputs = keras.layers.Input((4,))
    found = find_layer_lines([keras.Model(inputs, given(inputs)), keras.Model(inputs, computed(inputs))])
    first = test_a_call_that_gives_the_name_goes_before_a_newer_one_that_may_have.__code__.co_firstlineno
    assert found == {"given": (__file__, first + 7), "comp": (cell, 1)}


@tensorflow
def test_of_more_models_than_are_looked_at_those_that_the_graphs_name_whole_come_first(tf, monkeypatch):
    keras = pytest.importorskip("keras")
    from profnb.capture.source import layer_lines

    monkeypatch.setattr(layer_lines, "_MOST_MODELS", 3)
    others = [
        keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2, name="common"), keras.layers.Dense(3, name=f"o{n}")])
        for n in range(20)
    ]
    one = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2, name="common"), keras.layers.Dense(23, name="whole")])
    found = layer_lines.find_layer_lines((), [*others, one], {"common", "whole"})
    first = test_of_more_models_than_are_looked_at_those_that_the_graphs_name_whole_come_first.__code__.co_firstlineno
    assert found["whole"] == (__file__, first + 10)
    assert layer_lines.find_layer_lines((), others, {"elsewhere"}) == {}


@tensorflow
def test_a_model_that_ran_is_found_among_many_that_did_not(tf, all_graphs):
    keras = pytest.importorskip("keras")
    others = [keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)]) for _ in range(40)]
    model = keras.Sequential([
        keras.layers.Input((8,)),
        keras.layers.Dense(17, name="only_here"),
    ])  # fmt: skip
    others += [keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)]) for _ in range(40)]
    predict = tf.function(model)
    x = tf.ones((64, 8))
    predict(x)
    for run in (predict, model.predict_on_batch):
        run(x)
        with profnb.profile() as p:
            run(x)
        assert 'keras.layers.Dense(17, name="only_here"),' in set(p.source_lines.source)


@tensorflow
@pytest.mark.kernel
@pytest.mark.long
def test_a_cell_of_a_notebook_shows_its_own_lines(tf):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = [
        "%load_ext profnb\nimport os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'",
        "import tensorflow as tf\n@tf.function\ndef step(x):\n    return tf.linalg.expm(x)",
        "%%tfprofile -q -o p --python\nx = tf.ones((400, 400))\nfor _ in range(5):\n    step(x)\n    z = tf.linalg.inv(x + tf.eye(400))",
        "%%tfprofile -q -o without --no-source\nstep(x)",
        "lines = p.source_lines\nprint([(p.recording.source.cells.get(f), n, s) for f, n, s in zip(lines.file, lines.line, lines.source)])\n"
        "print(len(without.source_lines), without.recording.source, len(p.python) > 0)\nprint(p.summary())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, **PATIENT, kernel_name="python3").execute()
    text = "".join(output.text for output in notebook.cells[-1].outputs if output.output_type == "stream")
    assert "(2, 4, 'return tf.linalg.expm(x)')" in text
    if HAS_MONITORING:  # samples meet an eager op or not, as the clock has it
        assert "(3, 5, 'z = tf.linalg.inv(x + tf.eye(400))')" in text
        assert "Cell [3]:5" in text
    assert "_begin" not in text
    assert "0 None True" in text


@tensorflow
def test_a_layers_call_in_the_users_code_is_where_its_ops_are(tf, all_graphs):
    keras = pytest.importorskip("keras")

    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second = keras.layers.Dense(256), keras.layers.Dense(3)

        def call(self, x):
            x = self.first(x)
            return self.second(x)

    model = Mine()
    model.compile("sgd", "mse")
    x, y = np.ones((320, 64), "float32"), np.ones((320, 3), "float32")
    model.fit(x, y, verbose=0)
    with profnb.profile() as p:  # it was traced before
        model.fit(x, y, verbose=0)
    lines = p.source_lines.set_index("source")
    assert lines.forward_us["x = self.first(x)"] > 0
    assert lines.backward_us["x = self.first(x)"] > 0
    assert lines.forward_us["return self.second(x)"] > 0


@tensorflow
def test_jit_compiled_code_finds_its_lines(tf):
    @tf.function(jit_compile=True)
    def step(x):
        y = tf.matmul(x, x)
        return tf.reduce_sum(tf.nn.relu(y) * 2.0)

    x = tf.random.normal((300, 300))
    with profnb.profile() as p:
        for _ in range(5):
            step(x)
    lines = p.source_lines
    if not len(p.xla):
        pytest.skip("this TensorFlow records no HLO ops on a CPU")
    product = lines[lines.source == "y = tf.matmul(x, x)"]
    assert product.host_us.sum() > 0
    assert lines.host_us.sum() == pytest.approx(p.study.ops.steady.self_ps.sum() / 1e6)


@tensorflow
def test_without_source_nothing_is_looked_at(tf):
    with profnb.profile(source=False) as p:
        tf.ones(3) + 1
    assert p.recording.source is None
    assert p.source_lines.empty
    assert not (p.events.name == CLOCK_EVENT).any()


@tensorflow
def test_the_hooks_are_gone_and_no_graph_is_held(tf):
    import gc
    import weakref

    keras = pytest.importorskip("keras")
    graph_type = tf.__internal__.FuncGraph
    before = graph_type.__init__, keras.layers.Layer.__init__

    @tf.function
    def f(x):
        return x + 1

    with profnb.profile() as p, pytest.raises(ZeroDivisionError):
        f(tf.constant(1.0))
        graph_of = weakref.ref(f.get_concrete_function(tf.TensorSpec((), tf.float32)).graph)
        1 / 0  # noqa: B018
    assert (graph_type.__init__, keras.layers.Layer.__init__) == before
    assert "__del__" not in vars(graph_type)
    del f
    gc.collect()
    assert graph_of() is None
    assert len(p.recording.source.graphs)


@pytest.mark.long
@tensorflow
def test_a_report_of_2000_ops_stays_small_and_shows_the_code(tf):
    source = "\n".join(["import tensorflow as tf", "@tf.function", "def many(x):", *(f"    x = x * {n}.5 + 1.0" for n in range(1000)), "    return x"])
    import linecache

    linecache.cache["<ipython-input-77-many>"] = len(source), None, source.splitlines(keepends=True), "<ipython-input-77-many>"
    scope = {}
    exec(compile(source, "<ipython-input-77-many>", "exec"), scope)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        with profnb.profile() as p:
            for _ in range(3):
                scope["many"](tf.ones((8, 8)))
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    assert len(p.ops) > 1900
    own = p.source_lines[p.source_lines.file == "<ipython-input-77-many>"]
    assert len(own) >= 1000
    html = p._report.html
    assert "x\u200b" not in html
    assert len(html) < 500_000


@tensorflow
def test_an_object_that_nobody_may_look_at_is_left_alone(tf):
    class Proxy:
        @property
        def __class__(self):
            raise RuntimeError("working outside of a context")

    keep = [Proxy()]
    with profnb.profile() as p:
        tf.ones(3) + 1
    assert p.recording.source is not None
    assert not any("could not be read" in note for note in p.notes)
    del keep


@tensorflow
def test_trouble_with_source_lines_costs_a_sentence(tf, monkeypatch):
    from profnb.capture.source.source_watch import SourceWatch

    def fail(*_, **__):
        raise ValueError("odd")

    monkeypatch.setattr(SourceWatch, "finish", fail)
    with profnb.profile() as p:
        tf.ones(3) + 1
    assert p.has_trace
    assert any("could not be read (odd)" in note for note in p.notes)


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        ("get_ipython().run_line_magic('_tfprofile_begin', '-q')\nget_ipython().run_cell_magic('time', '', 'for i in x:\\n    f(\\'a\\')\\n')\n", ("for i in x:", "    f('a')")),
        ("get_ipython().run_cell_magic('time', '--no-raise', \"print('b')\\n\")\n", ("print('b')",)),
        ("f(1)\n", None),
        ("get_ipython().run_cell_magic('timeit', '', 'f()')\n", None),
    ],
    ids=["below ours", "with an option", "no magic", "another magic"],
)
def test_lines_below_time_are_the_users_own_and_have_their_text(monkeypatch, cell, lines):
    """IPython compiles them as a file of their own, "<timed exec>"."""

    class Shell:
        class history_manager:
            input_hist_parsed = ["", "get_ipython().run_cell_magic('time', '', 'older()')", cell]

    class Seam:
        def __init__(self, value):
            self.find = lambda: value

    monkeypatch.setattr(user_code.seams, "SHELL_IS_THERE", Seam(lambda: True))
    monkeypatch.setattr(user_code.seams, "SHELL_INSTANCE", Seam(Shell))
    assert user_code.is_user_file("<timed exec>")
    assert not user_code.is_user_file("<string>")
    assert user_code.read_sources(["<timed exec>"]) == ({} if lines is None else {"<timed exec>": lines})
    assert user_code.file_title("<timed exec>", {}) == "Below %%time"
