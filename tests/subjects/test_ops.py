import json

import numpy as np
import pytest
from conftest import DATA, every_shared_trace
from programs import F32, metadata_plane, op, parameter, program, shape
from traces import event, gpu, host, line, read, ref

import profnb
from profnb.subjects.device.kernels import name_device_work
from profnb.trace.names import parse_op
from profnb.subjects.ops.op_table import find_op_runs, sum_op_runs
from profnb.steps.streams import raw_device_lines
from profnb.subjects.xla.hlo_ops import HloOps, find_hlo_ops
from profnb.trace.files import read_trace


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model/dense/MatMul:MatMul", ("model/dense/MatMul", "MatMul")),
        ("while/body/_1/x:_FusedMatMul", ("while/body/_1/x", "_FusedMatMul")),
        ("Iterator::Root::Map", ("Iterator::Root::Map", "Dataset")),
        ("jit(f)/add:add[axis=0]", ("jit(f)/add", "add")),
        ("name:", ("name", "")),
        ("FunctionRun", None),
        ("ExecutorState::Process", None),
        ("EagerLocalExecute: Foo", None),
        ("_send_Const_0:_Send", None),  # TensorFlow's rule: a name does not begin with "_"
    ],
)
def test_op_names_are_told_from_other_events(name, expected):
    assert parse_op(name) == expected

NO_HLO = HloOps(np.empty(0, np.int64), np.empty(0, np.int64), ())


def rows(table):
    return [
        ("device" if d else "host", n, t, int(o), int(total), int(own))
        for d, n, t, o, total, own in zip(
            table.is_device, table.op_name, table.op_type, table.occurrences, table.total_ps,
            table.self_ps, strict=True,
        )
    ]  # fmt: skip


def test_self_time_leaves_out_ops_called_on_the_same_thread_only():
    trace = read(
        host(
            line("a", event("f:Call", 0, 100), event("wrapper", 5, 60), event("g:Mul", 10, 30)),
            line("b", event("g:Mul", 0, 50)),
        )
    )
    assert rows(sum_op_runs(find_op_runs(trace, NO_HLO))) == [
        ("host", "g", "Mul", 2, 80, 80),
        ("host", "f", "Call", 1, 100, 70),
    ]


def test_making_and_asking_an_iterator_in_python_are_ops_less_what_the_iterators_take():
    trace = read(
        host(
            line(
                "python",
                event("EagerLocalExecute: AnonymousIteratorV3", 0, 10),
                event("EagerLocalExecute: MakeIterator", 20, 300), event("MakeIterator::RootDataset", 30, 250),
                event("EagerLocalExecute: IteratorGetNext", 400, 100), event("Iterator::Root", 410, 60),
                event("EagerLocalExecute: IteratorGetNext", 600, 100), event("Iterator::Root", 610, 60),
                event("EagerLocalExecute: __inference_step_7", 800, 50), event("a:Mul", 810, 20),
            )
        )
    )  # fmt: skip
    assert rows(sum_op_runs(find_op_runs(trace, NO_HLO))) == [
        ("host", "MakeIterator", "MakeIterator", 1, 300, 300),
        ("host", "Iterator::Root", "Dataset", 2, 120, 120),
        ("host", "IteratorGetNext", "IteratorGetNext", 2, 200, 80),
        ("host", "a", "Mul", 1, 20, 20),
        ("host", "AnonymousIteratorV3", "AnonymousIteratorV3", 1, 10, 10),
    ]


def test_what_xla_runs_on_the_host_is_the_op_it_was_compiled_from():
    instructions = [parameter("x", 0, shape(F32, 4)), op("tanh.1", "tanh", shape(F32, 4), "x", op_name="model/act/Tanh", op_type="Tanh")]
    stats = {"hlo_op": "tanh.1", "hlo_module": "jit_f", "program_id": 3}
    trace = read(
        metadata_plane(jit_f=(3, program("jit_f", {"main": instructions}, "main"))),
        host(line("a", event("f:Call", 0, 100), event("tanh.1", 10, 30, **stats), event("tanh.1", 50, 20, **stats))),
    )
    assert rows(sum_op_runs(find_op_runs(trace, find_hlo_ops(trace)))) == [
        ("host", "f", "Call", 1, 100, 50),
        ("host", "model/act/Tanh", "Tanh", 2, 50, 50),
    ]
    assert rows(sum_op_runs(find_op_runs(trace, NO_HLO))) == [("host", "f", "Call", 1, 100, 100)]


def test_waiting_for_a_program_of_xla_on_other_threads_is_no_self_time_of_the_function_that_runs_it():
    """30 of 100 are before and behind the program, which runs an op of 20 here and one of 40 elsewhere."""
    instructions = [parameter("x", 0, shape(F32, 4)), op("tanh.1", "tanh", shape(F32, 4), "x", op_name="model/act/Tanh", op_type="Tanh")]
    stats = {"hlo_op": "tanh.1", "hlo_module": "jit_f", "program_id": 3}
    here = [event("f:Call", 0, 100), event("CpuExecutable::ExecuteAsyncOnStream", 20, 70), event("tanh.1", 25, 20, **stats)]
    trace = read(
        metadata_plane(jit_f=(3, program("jit_f", {"main": instructions}, "main"))),
        host(line("a", *here), line("pool", event("tanh.1", 40, 40, **stats), line_id=2)),
    )
    assert rows(sum_op_runs(find_op_runs(trace, find_hlo_ops(trace)))) == [
        ("host", "model/act/Tanh", "Tanh", 2, 60, 60),
        ("host", "f", "Call", 1, 100, 30),
    ]
    assert rows(sum_op_runs(find_op_runs(trace, NO_HLO))) == [("host", "f", "Call", 1, 100, 100)]  # nothing of it was recorded


def test_device_work_is_charged_to_its_op_and_derived_lines_are_not_counted_twice():
    trace = read(
        gpu(
            line("Stream #1(Compute)", event("gemm", 0, 40, tf_op=ref("dense/MatMul:MatMul")), event("copy", 50, 10)),
            line("TensorFlow Ops", event("dense/MatMul:MatMul", 0, 40)),
        )
    )  # fmt: skip
    assert rows(sum_op_runs(find_op_runs(trace, NO_HLO))) == [
        ("device", "dense/MatMul", "MatMul", 1, 40, 40),
        ("device", "copy", "", 1, 10, 10),
    ]


def test_instructions_of_many_programs_and_kernels_beside_them_are_executions_of_their_own():
    """Twelve programs, in each an instruction of the same name and op, and four kernels that XLA did not make."""
    body = [parameter("x", 0, shape(F32, 4)), op("tanh.1", "tanh", shape(F32, 4), "x", op_name="model/act/Tanh", op_type="Tanh")]
    work = [event("fused", at * 10, 5, hlo_op="tanh.1", hlo_module=f"jit_{at}", program_id=at + 1) for at in range(12)]
    others = [event(f"k{at}", 200 + at * 10, 5 - at) for at in range(4)]
    programs = {f"jit_{at}": (at + 1, program(f"jit_{at}", {"main": body}, "main")) for at in range(12)}
    trace = read(metadata_plane(**programs), gpu(line("Stream #1", *work, *others)))
    found = rows(sum_op_runs(find_op_runs(trace, find_hlo_ops(trace))))
    assert found == [("device", "model/act/Tanh", "Tanh", 12, 60, 60), *(("device", f"k{at}", "", 1, 5 - at, 5 - at) for at in range(4))]


def test_shares_are_of_one_side():
    trace = read(
        host(line("a", event("f:F", 0, 30), event("g:G", 30, 10))),
        gpu(line("Stream #1", event("k", 0, 7))),
    )
    table = sum_op_runs(find_op_runs(trace, NO_HLO))
    shares = dict(zip(table.op_name, table.self_fraction.tolist(), strict=True))
    assert shares == {"f": 0.75, "g": 0.25, "k": 1.0}


def test_every_op_equals_the_official_table(cpu_trace_path):
    """Times agree op by op; official occurrences add the memory events that name the op."""
    answers = json.loads((DATA / "cpu-cnn.xprof.json").read_text())
    trace = read_trace(cpu_trace_path)
    table = sum_op_runs(find_op_runs(trace, NO_HLO))
    mine = {(n, t): (o, total, own) for _, n, t, o, total, own in rows(table)}
    named = trace.stats.texts("tf_op")
    memory = {}
    for event_index, value in zip(named.events, named.values, strict=True):
        if trace.names[trace.events.name[event_index]] in ("MemoryAllocation", "MemoryDeallocation"):
            text = named.texts[value].partition(":")[0]
            memory[text] = memory.get(text, 0) + 1
    only_memory = 0
    for _side, op_type, name, occurrences, total_us, self_us in answers["ops"]:
        if total_us == 0 and (name, op_type) not in mine:
            only_memory += 1  # a row made of memory events alone
            continue
        count, total, own = mine.pop((name, op_type))
        assert total / 1e6 == pytest.approx(total_us, abs=1e-3)
        assert own / 1e6 == pytest.approx(self_us, abs=1e-3)
        assert count == occurrences - memory.get(name, 0)
    eager = set(trace.names.texts)  # what Python ran by itself; the official table has none of it
    assert all(name == op_type and f"EagerLocalExecute: {name}" in eager for name, op_type in mine)
    assert only_memory <= 2


def test_eager_ops_count_once_and_calls_of_functions_do_not():
    trace = read(host(line(
        "python",
        event("EagerLocalExecute: MatMul", 0, 10),
        event("EagerLocalExecute: Relu", 20, 10), event("Relu:Relu", 22, 5),
        event("EagerLocalExecute: __inference_train_7", 40, 50), event("a/Add:AddV2", 50, 5),
        event("EagerLocalExecute: IteratorGetNext", 100, 10),
    )))  # fmt: skip
    assert rows(sum_op_runs(find_op_runs(trace, NO_HLO))) == [
        ("host", "MatMul", "MatMul", 1, 10, 10), ("host", "IteratorGetNext", "IteratorGetNext", 1, 10, 10),
        ("host", "Relu", "Relu", 1, 5, 5), ("host", "a/Add", "AddV2", 1, 5, 5),
    ]  # fmt: skip


@pytest.mark.parametrize("path", every_shared_trace())
def test_self_times_are_part_of_totals_and_a_filter_only_takes_away(path):
    trace = read_trace(path)
    table = sum_op_runs(find_op_runs(trace, NO_HLO))
    assert (table.self_ps >= 0).all()
    assert (table.self_ps <= table.total_ps).all()
    half = np.arange(len(trace.events)) % 2 == 0
    part = sum_op_runs(find_op_runs(trace, NO_HLO), half)
    other = sum_op_runs(find_op_runs(trace, NO_HLO), ~half)
    assert part.self_ps.sum() + other.self_ps.sum() == table.self_ps.sum()
    assert part.occurrences.sum() + other.occurrences.sum() == table.occurrences.sum()


def test_device_work_names_its_op_by_the_best_source_there_is():
    """tf_op, then XLA's metadata, then the annotation around the launch, then its own name."""
    work = [
        event("k1", 0, 1, tf_op=ref("dense/MatMul:MatMul"), annotation=ref("other:Op")),
        event("k2", 1, 1, tf_op=ref("XlaModule:"), hlo_op=ref("fusion.1"), name=ref("jit(f)/dot_general")),
        event("k3", 2, 1, tf_op=ref("XlaModule:"), hlo_op=ref("fusion.2")),
        event("k4", 3, 1, annotation=ref("a/_2:_Recv#edge_name=e#"), **{"level 0": ref("a/_2:_Recv")}),
        event("k5", 4, 1, annotation=ref("b/Relu:Relu#x#")),
        event("k6", 5, 1, annotation=ref("")),
    ]
    table = sum_op_runs(find_op_runs(read(gpu(line("Stream #1", *work))), NO_HLO))
    assert sorted(zip(table.op_name, table.op_type, strict=True)) == [
        ("a/_2", "_Recv"), ("b/Relu", "Relu"), ("dense/MatMul", "MatMul"), ("fusion.2", ""),
        ("jit(f)/dot_general", "dot_general"), ("k6", ""),
    ]  # fmt: skip


def test_almost_all_device_time_of_the_v100_trace_has_an_op(shared_traces):
    """The official tool finds 0 device ops there: it reads tf_op only (xprof 2.24.2)."""
    trace = read_trace(shared_traces / "gpu-v100x8-bert" / "host0.xplane.pb")
    work = np.flatnonzero(raw_device_lines(trace)[trace.lines.of_event])
    keys, codes = name_device_work(trace, work)
    event_names = [trace.names[row] for row in trace.events.name[work]]
    named = np.array([keys[code][0] != name for code, name in zip(codes, event_names, strict=True)])
    duration = trace.events.duration_ps[work]
    assert duration[named].sum() / duration.sum() > 0.99


def test_an_op_of_several_kernels_ran_once_per_execution():
    """Three executions of a, b, c with another op's kernels between; on the other device b ran two kernels by itself."""
    def run(*kernels, at, op):
        return [event(name, at + n, 1, tf_op=ref(f"{op}:Conv2D")) for n, name in enumerate(kernels)]

    first = [*run("a", "b", "c", at=0, op="conv"), *run("x", at=3, op="relu"), *run("a", "b", at=10, op="conv"), *run("x", at=12, op="relu"), *run("c", at=13, op="conv"), *run("a", "b", "c", at=20, op="conv")]
    trace = read(gpu(line("Stream #1", *first)), gpu(line("Stream #1", *run("a", "b", "c", "c", at=0, op="conv")), number=1))
    table = sum_op_runs(find_op_runs(trace, NO_HLO))
    assert dict(zip(table.op_name, table.occurrences.tolist(), strict=True)) == {"conv": 5, "relu": 2}
    assert table.total_ps.sum() == 15


def test_an_execution_is_of_one_step_and_of_one_instruction():
    """Kernels of another algorithm in the next step are another execution, though they repeat none."""
    work = [event("a", 0, 1, tf_op=ref("conv:Conv2D")), event("b", 10, 1, tf_op=ref("conv:Conv2D")), event("a", 20, 1, tf_op=ref("conv:Conv2D"))]
    trace = read(gpu(line("Stream #1", *work)))
    assert sum_op_runs(find_op_runs(trace, NO_HLO)).occurrences.tolist() == [2]
    assert sum_op_runs(find_op_runs(trace, NO_HLO, step=np.array([0, 1, 1]))).occurrences.tolist() == [2]
    assert sum_op_runs(find_op_runs(trace, NO_HLO, step=np.array([0, 1, 2]))).occurrences.tolist() == [3]
    fused = [event("k1", 0, 1, hlo_op=ref("fusion.1"), hlo_module=ref("jit_f"), name=ref("jit(f)/add")), event("k2", 1, 1, hlo_op=ref("fusion.2"), hlo_module=ref("jit_f"), name=ref("jit(f)/add"))]
    trace = read(gpu(line("Stream #1", *fused)))
    assert sum_op_runs(find_op_runs(trace, find_hlo_ops(trace))).occurrences.sum() == 2  # two instructions


@pytest.mark.parametrize("name", ["gpu-cnn-batch512", "gpu-cnn-batch128", "gpu-cnn-batch8"])
def test_device_ops_ran_as_often_as_tensorflow_itself_said(shared_traces, name):
    tf_stats_pb2 = pytest.importorskip("xprof.protobuf.tf_stats_pb2")
    stats = tf_stats_pb2.TfStatsDatabase()
    stats.ParseFromString((shared_traces / name / "host.tensorflow_stats.pb").read_bytes())
    theirs = {(row.op_name, row.op_type): row.occurrences for row in stats.with_idle.tf_stats_record if row.host_or_device == "Device"}
    ops = profnb.load(shared_traces / name / "host.xplane.pb").ops
    ops = ops[ops.side == "device"]
    ours = dict(zip(zip(ops.op_name, ops.op_type, strict=True), ops.occurrences, strict=True))
    shared = ours.keys() & theirs.keys()
    assert len(shared) >= len(ours) - 1 >= 146
    assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}


def test_a_library_call_of_two_kernels_is_one_run(shared_traces):
    """Five runs on each of eight devices; the convolution is two kernels, one of which was not recorded once."""
    p = profnb.load(shared_traces / "jax-rocm" / "conv.xplane.pb")
    assert p.xla[p.xla.hlo_op == "cudnn-conv.1"].occurrences.tolist() == [40]
    assert p.ops[p.ops.op_name == "jit(forward_3d_conv)/conv_general_dilated"].occurrences.tolist() == [80]  # two instructions
