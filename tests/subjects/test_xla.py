"""XLA's ops, programs and roofline: by hand, on real traces, and against the official tool where it is right."""

import numpy as np
import pandas as pd
import pytest
from advised import advised
from programs import BF16, F32, convolution, dot, metadata_plane, op, parameter, program, shape
from traces import event, gpu, host, line, plane, read

import profnb
from profnb.subjects.xla.hlo_ops import find_hlo_ops, width_of_hlo
from profnb.subjects.device.roofline import find_peak
from profnb.steps.activities import is_compilation
from profnb.subjects.device.idle import IDLE
from profnb.subjects.study import Study
from profnb.subjects.xla.xla_ops import grow_xla_tree
from profnb.subjects.xla.xla_ops import XLA_MODULES
from profnb.subjects.xla.xla_ops import XLA
from profnb.trace.enqueued import align_clocks
from profnb.trace.model import Plane
from profnb.trace.names import copy_direction
from profnb.subjects.device.roofline import ROOFLINE

US = 10**6
T4 = {"clock_rate": 1_590_000, "core_count": 40, "memory_bandwidth": 320_064_000_000, "compute_cap_major": 7, "compute_cap_minor": 5}
FUSED = [
    parameter("p0", 0, shape(F32, 64, 256)),
    op("relu.1", "maximum", shape(F32, 64, 256), "p0", "p0", op_name="model/relu/Relu", op_type="Relu"),
    op("add.1", "add", shape(F32, 64, 256), "relu.1", "p0", op_name="model/add/Add", op_type="AddV2"),
]
PROGRAM = program(
    "jit_step",
    {
        "fused": FUSED,
        "main": [
            parameter("a", 0, shape(BF16, 64, 128)), parameter("b", 1, shape(BF16, 128, 256)),
            dot("dot.1", shape(F32, 64, 256), "a", "b", op_name="model/dense/MatMul", op_type="MatMul", source=("/u/model.py", 12)),
            op("fusion.1", "fusion", shape(F32, 64, 256), "dot.1", calls=("fused",)),
        ],
    },
    "main", {"fused"}, [(49152, 5), (65536, 7), (65536,)],
)  # fmt: skip


def hlo(name, begin, duration, **more):
    return event(f"kernel_{name}", begin, duration, hlo_op=name, hlo_module="jit_step", program_id=3, **more)


@pytest.fixture
def study():
    steps = [event("train", at * 100 * US, 90 * US, step_num=at, _r=1) for at in range(2)]
    launches = [event("cuLaunchKernel", at, 2 * US, correlation_id=at, hlo_op="dot.1") for at in (5, 105 * US)]
    work = [
        hlo("dot.1", 10 * US, 20 * US, correlation_id=5), hlo("fusion.1", 30 * US, 10 * US),
        hlo("dot.1", 110 * US, 20 * US, correlation_id=105 * US), hlo("fusion.1", 130 * US, 10 * US),
    ]  # fmt: skip
    compiling = [event("GpuCompiler::Compile", 0, 3 * US, name="jit_step"), event("GpuCompiler::CompileInner", US, US, name="jit_step")]
    return Study(read(
        metadata_plane(jit_step=(3, PROGRAM)),
        host(line("python", *steps), line("launcher", *launches), line("compiler", *compiling)),
        gpu(line("Stream #1", *work), stats=T4),
    ))  # fmt: skip


def test_ops_their_costs_and_where_they_come_from(study):
    table = XLA.frame(study.xla.ops)
    assert table.hlo_op.tolist() == ["dot.1", "fusion.1"]
    assert table.op_name.tolist() == ["model/dense/MatMul", "model/add/Add"]  # the fusion's root
    assert table.source.tolist() == ["/u/model.py:12", ""]
    assert table.occurrences.tolist() == [2, 2]  # launches carry hlo_op too and are none
    assert table.self_us.tolist() == [40, 20]
    assert table.flops.tolist() == [2 * 64 * 128 * 256, 2 * 64 * 256]
    assert table.bytes.tolist() == [2 * (64 * 128 + 128 * 256) + 4 * 64 * 256, 2 * 4 * 64 * 256]
    assert table.gigaflops_per_second[0] == pytest.approx(2 * 64 * 128 * 256 / 20e-6 / 1e9)
    assert table.fraction.sum() == pytest.approx(1)


def test_programs_their_compilation_and_their_buffers(study):
    row = XLA_MODULES.frame(study.xla.modules).iloc[0]
    assert (row.module, row.program_id, row.occurrences) == ("jit_step", 3, 2)
    assert (row.compilations, row.compile_ms) == (1, 0.003)  # nested events of one compilation count once
    assert (row.argument_bytes, row.output_bytes, row.temporary_bytes) == (49152, 65536, 65536)


def test_other_tables_name_the_ops_of_the_framework(study):
    assert study.device.kernels.op_name == ("model/dense/MatMul", "model/add/Add")
    assert study.device.kernels.op_type == ("MatMul", "AddV2")
    assert ("model/dense/MatMul", "MatMul") in zip(study.ops.table.op_name, study.ops.table.op_type, strict=True)
    assert study.device.precision.total_ps[1] == 40 * US  # bf16 products, told by their shapes alone
    assert study.device.precision.total_ps[3] == 20 * US


def test_the_roofline_by_hand(study):
    table = ROOFLINE.frame(study.device.roofline)
    peak_16, peak_32, bandwidth = 40 * 1.59e9 * 1024, 40 * 1.59e9 * 128, 320.064e9
    assert table.width.tolist() == ["16-bit", "32-bit"]
    assert table.peak_gigaflops_per_second.tolist() == pytest.approx([peak_16 / 1e9, peak_32 / 1e9])
    intensity = np.array([4194304 / 147456, 32768 / 131072])
    assert table.flops_per_byte.tolist() == pytest.approx(intensity.tolist())
    assert table.bound_by.tolist() == ["memory", "memory"]
    assert table.attained_fraction[1] == pytest.approx(131072 / 10e-6 / bandwidth)
    assert table.bytes_fraction[0] == pytest.approx(147456 / 20e-6 / bandwidth)


def test_the_tree_shares_a_fusion_out_by_its_operations(study):
    blocks = grow_xla_tree(study.xla.ops, study.xla.hlo)
    assert [(b.level, b.label, round(b.begin, 4), round(b.width, 4), "shared out" in b.hover) for b in blocks] == [
        (0, "jit_step", 0.0, 1.0, False),
        (1, "dot.1", 0.0, 0.6667, False),
        (2, "MatMul", 0.0, 0.6667, False),
        (1, "fusion.1", 0.6667, 0.3333, False),
        (2, "Relu", 0.6667, 0.1667, True),
        (2, "Add", 0.8333, 0.1667, True),
    ]


@pytest.mark.parametrize(("stats", "width", "expected"), [
    ({"clock_rate": 1_830_000, "core_count": 132, "memory_bandwidth": 3.35e12, "compute_cap_major": 9, "compute_cap_minor": 0}, "16-bit", 989e12),
    ({"clock_rate": 1_410_000, "core_count": 108, "memory_bandwidth": 1.555e12, "compute_cap_major": 8, "compute_cap_minor": 0}, "TF32", 156e12),
    ({"clock_rate": 1_530_000, "core_count": 80, "memory_bandwidth": 9e11, "compute_cap_major": 7, "compute_cap_minor": 0}, "16-bit", 125e12),
    ({"clock_rate": 2_040_000, "core_count": 58, "memory_bandwidth": 3e11, "compute_cap_major": 8, "compute_cap_minor": 9}, "32-bit", 30.3e12),
    ({"clock_rate": 2_100_000, "core_count": 304, "memory_bandwidth": 5.3e12, "compute_cap_major": 9, "compute_cap_minor": 4,
      "device_vendor": "AMD"}, "8-bit", 2614.9e12),
    ({"peak_teraflops_per_second": 918.0, "peak_hbm_bw_gigabytes_per_second": 1638.0}, "16-bit", 918e12),
])  # fmt: skip
def test_peaks_are_those_of_the_data_sheets(stats, width, expected):
    peak = find_peak(Plane("/device:GPU:0", range(1), stats))
    assert peak.flops_of(width, is_product=True) == pytest.approx(expected, rel=0.01)


def test_a_device_that_is_not_known_has_no_peak():
    assert find_peak(Plane("/device:GPU:0", range(1), {})) is None
    assert find_peak(Plane("/device:GPU:0", range(1), {**T4, "compute_cap_major": 99})) is None
    assert np.isnan(find_peak(Plane("/device:GPU:0", range(1), T4)).flops_of("TF32", is_product=True))


def test_a_tpu_core_works_on_its_line_of_ops_by_its_own_clock():
    name = "%fusion.7 = f32[8,128]{1,0} fusion(f32[8,128] %x)"
    ops = [event(name, 0, 5 * US, device_offset_ps=100, device_duration_ps=4 * US), event(name, 9 * US, 5 * US)]
    told = {name: {"program_id": 9, "hlo_category": "loop fusion", "flops": 1024, "bytes_accessed": 8192, "tf_op": "jit(f)/add:"}}
    trace = read(
        host(line("python", event("train", 0, 20 * US, step_num=0, _r=1))),
        plane("/device:TPU:0", line("XLA Modules", event("jit_f(9)", 0, 20 * US)), line("XLA Ops", *ops),
              line("Tensor Core", event("bundle.1", 0, 5 * US)), of_names=told),
    )  # fmt: skip
    study = Study(trace)
    table = XLA.frame(study.xla.ops)
    assert table.hlo_op.tolist() == ["fusion.7"]
    assert (table.module[0], table.program_id[0], table.category[0]) == ("jit_f", 9, "loop fusion")
    assert (table.op_name[0], table.flops[0], table.bytes[0]) == ("jit(f)/add", 1024, 8192)
    assert table.self_us[0] == 9
    assert study.device.use.busy_ps.tolist() == [10 * US]
    assert study.ops.table.total_ps.tolist() == study.device.kernels.total_ps.tolist() == [9 * US]  # one clock
    assert study.device.precision.total_ps.sum() == 9 * US


def test_one_clock_tells_how_long_a_tpu_took(shared_traces):
    p = profnb.load(shared_traces / "tpu-v6e" / "inference_2.xplane.pb")
    trace = p.trace
    clock = trace.stats.integers("device_duration_ps")
    name = trace.select_names(lambda text: text.startswith("%copy-done.2 "))
    raw = clock.values[name[clock.events]].sum() / 1e6
    assert raw == pytest.approx(77_642_772.8, abs=0.1)
    assert trace.events.duration_ps[name].sum() / 1e6 == pytest.approx(87_957_829, abs=1)  # the other clock
    for table, column in ((p.xla, "hlo_op"), (p.ops, "op_name")):
        assert table.total_us[table[column] == "copy-done.2"].sum() == pytest.approx(raw)
    assert p.kernels.total_us.sum() + p.copies.total_us.sum() == pytest.approx(p.xla.total_us.sum())


def tpu_program(at, number, waits=7 * US):
    """A call of 1 us, and the program of 10 us that it enqueued: 2 of waiting for a copy from the host's memory, 1 of one to it, 7 of work."""
    call = [event("PjitFunction(f)", at * US // 10, US), event("DoEnqueueProgram", at * US // 10, US // 2, run_id=number, device_ordinal=0)]
    copies = ("{1,0}", "{1,0:S(5)}"), ("{1,0:T(8)S(5)}", "{1,0:T(8)}")
    names = [f"%copy-done.{n} = f32[8,8]{to} copy-done((f32[8,8]{to}, f32[8,8]{source}, u32[]{{:S(2)}}) %copy-start.{n})" for n, (to, source) in enumerate(copies)]
    ops = [event(names[0], at * US, 2 * US), event("%dot.1 = f32[8,8]{1,0} dot()", (at + 2) * US, 7 * US), event(names[1], (at + 9) * US, US)]
    return call, event("jit_f(7)", at * US, 10 * US, run_id=number), ops


def test_a_tpus_step_is_its_programs_run_and_its_own_copies_are_input_and_output():
    """Five calls at 0, 1, 2 us and so on; their programs run at 0, 10, 20 and so on."""
    runs = [tpu_program(10 * n, n + 40) for n in range(5)]
    steps = line("python", *(one for calls, _, _ in runs for one in calls))
    modules = line("XLA Modules", *(program for _, program, _ in runs), line_id=2)
    ops = line("XLA Ops", *(one for _, _, ops in runs for one in ops), line_id=3)
    study = Study(read(host(steps), plane("/device:TPU:0", modules, ops)))
    assert study.steps.duration_ps.tolist() == [10 * US] * 5
    assert study.steps.steps_ahead == 2
    assert {s.category: round(s.mean_ps / US) for s in study.summary.shares} == {"device compute": 7, "input": 2, "output": 1}
    copies = {(d, n): t // US for d, n, t in zip(study.device.copies.direction, study.device.copies.occurrences.tolist(), study.device.copies.total_ps.tolist(), strict=True)}
    assert copies == {("host to device", 5): 10, ("device to host", 5): 5}
    advice = advised(study)["copying-input"]
    assert advice.title == "Keep arrays on the device"
    assert advice.bound_fraction == pytest.approx(0.2)


def test_a_tpu_whose_clock_is_early_is_shown_later_and_this_is_said():
    """Programs enqueued at 100 and 200 us began at 70 and 190 by their clock: 30 us early at least."""
    calls = [event("DoEnqueueProgram", at * US, US, run_id=number, device_ordinal=0) for at, number in ((100, 1), (200, 2))]
    def tpu(begins):
        programs = [event("jit_f(7)", at * US, 9 * US, run_id=number) for number, at in enumerate(begins, 1)]
        ops = [event("%dot.1 = f32[8] dot()", at * US, 5 * US, device_offset_ps=at * US, device_duration_ps=5 * US) for at in begins]
        return plane("/device:TPU:0", line("XLA Modules", *programs), line("XLA Ops", *ops, line_id=2))

    early = Study(read(host(line("python", *calls)), tpu((70, 190)))).trace
    assert align_clocks(early) is early
    assert early.events.begin_ps[early.is_device_line[early.lines.of_event]].tolist() == [100 * US, 220 * US] * 2
    assert early.events.begin_ps[early.is_host_event].tolist() == [100 * US, 200 * US]
    assert "/device:TPU:0 is shown 30.0 µs later than recorded" in early.left_out[0]
    right = align_clocks(read(host(line("python", *calls)), tpu((100, 230))))
    assert right.events.begin_ps[right.is_device_line[right.lines.of_event]].tolist() == [100 * US, 230 * US] * 2
    assert right.left_out == ()
    unknown = align_clocks(read(host(line("python")), tpu((70, 190))))  # no call, no knowledge
    assert unknown.left_out == ()


@pytest.mark.parametrize("name", ["%copy.3 = f32[8]{0} copy(f32[8]{0} %p)", "copy-insertion", "tpu-copy-normalizer"])
def test_what_only_reads_like_a_copy_of_xlas_is_none(name):
    assert copy_direction(name) is None


def test_a_copy_within_the_devices_memories_is_device_to_device():
    name = "%copy-done.1 = f32[8]{0:S(1)} copy-done((f32[8]{0:S(1)}, f32[8]{0}, u32[]{:S(2)}) %copy-start.1)"
    assert copy_direction(name) == "device to device"
    assert copy_direction("copy-start.4") == "other"


def test_a_roofline_of_ops_that_take_next_to_no_time_is_drawn(tmp_path):
    other = event("mystery", 20 * US, 70_000 * US, hlo_op="unknown.1", hlo_module="jit_step", program_id=3)
    trace = read(
        metadata_plane(jit_step=(3, PROGRAM)), host(line("p", event("train", 0, 100_000 * US, step_num=0, _r=1))),
        gpu(line("Stream #1", hlo("dot.1", 0, US // 10), other), stats=T4),
    )  # fmt: skip
    assert profnb.Profile(trace).to_html(tmp_path / "r.html").stat().st_size > 0


def test_a_run_on_several_devices_is_one_run():
    devices = [gpu(line("Stream #1", hlo("dot.1", 0, US)), number=at, stats=T4) for at in range(4)]
    study = Study(read(metadata_plane(jit_step=(3, PROGRAM)), host(line("p", event("train", 0, 9 * US, step_num=0, _r=1))), *devices))
    assert study.xla.ops.occurrences.tolist() == [4]
    assert study.xla.modules.occurrences.tolist() == [1]


def test_stats_that_no_device_has_give_no_peak():
    assert find_peak(Plane("/device:GPU:0", range(1), {**T4, "clock_rate": float("inf"), "compute_cap_major": float("inf")})) is None


def test_hlo_collectives_are_collectives():
    ops = [event("%all-reduce.1 = f32[4] all-reduce(f32[4] %x)", 0, 5 * US), event("%all-reduce-scatter-like = f32[4] add()", 5 * US, US)]
    trace = read(host(line("p", event("train", 0, 10 * US, step_num=0, _r=1))), plane("/device:TPU:0", line("XLA Ops", *ops)))
    assert Study(trace).device.use.collective_ps.tolist()[0] >= 5 * US


def test_without_xla_the_tables_are_empty_and_have_their_columns():
    study = Study(read(host(line("python", event("train", 0, US, step_num=0, _r=1)))))
    for table in (XLA.frame(study.xla.ops), XLA_MODULES.frame(study.xla.modules), ROOFLINE.frame(study.device.roofline)):
        assert isinstance(table, pd.DataFrame)
        assert table.empty
        assert "bound_by" in table or "module" in table


@pytest.mark.parametrize("name", ["jax-rocm/attention.xplane.pb", "tpu-v6e/inference_2.xplane.pb"])
def test_times_and_costs_are_the_official_ones(shared_traces, tmp_path, name):
    """Where the official tool knows an op's cost: it counts library calls as 0, and weighs GPU ops by instruction."""
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
    import json

    copy = tmp_path / "host.xplane.pb"
    copy.write_bytes((shared_traces / name).read_bytes())
    data, _ = convert.xspace_to_tool_data([str(copy)], "hlo_stats", {"use_saved_result": False})
    found = json.loads(data)
    labels = [column["label"] for column in found["cols"]]
    official = pd.DataFrame([[cell and cell.get("v") for cell in row["c"]] for row in found["rows"]], columns=labels)
    ours = profnb.load(shared_traces / name).xla.set_index(["program_id", "hlo_op"])
    for _, row in official.iterrows():
        own = ours.loc[int(row["Program id"]), row["HLO op name"]]
        assert own.occurrences == row["#Occurrences"]
        assert own.self_us == pytest.approx(row["Total self time (us)"], abs=1e-3)
        if row["Normalized GFLOP/s"] and ("tpu" in name or "gemm" in row["HLO op name"]):
            assert own.gigaflops_per_second == pytest.approx(row["Normalized GFLOP/s"], rel=2e-3)


def test_widths_and_products_of_real_programs(shared_traces):
    trace = profnb.load(shared_traces / "jax-rocm" / "attention.xplane.pb").trace
    found = find_hlo_ops(trace)
    told = {op.name: width_of_hlo(found, op) for op in found.ops}
    assert told["gemm_fusion_dot_general.1"] == ("16-bit", True)
    assert told["custom-call.1"] == ("16-bit", True)
    assert all(op.source.startswith("/workspace/") for op in found.ops if "custom-call" in op.name)


def test_convolutions_count_in_the_backward_pass_too():
    raw = program("jit_c", {"main": [
        parameter("x", 0, shape(F32, 8, 32, 32, 4)), parameter("k", 1, shape(F32, 3, 3, 4, 16)),
        convolution("conv", shape(F32, 8, 30, 30, 16), "x", "k", [(3, 1, 0, 0)] * 2),
    ]}, "main")  # fmt: skip
    trace = read(metadata_plane(jit_c=(1, raw)), gpu(line("Stream #1", event("k", 0, US, hlo_op="conv", program_id=1, hlo_module="jit_c"))))
    assert Study(trace).xla.ops.flops.tolist() == [2 * 8 * 30 * 30 * 16 * 9 * 4]


@pytest.mark.tensorflow
def test_a_compiled_function_on_a_cpu():
    """A product of known size, run by XLA here: its operations, bytes and name."""
    tf = pytest.importorskip("tensorflow")

    @tf.function(jit_compile=True)
    def step(x, w):
        with tf.name_scope("layer"):
            return tf.reduce_sum(tf.matmul(x, w, name="product"))

    x, w = tf.random.normal((128, 256)), tf.random.normal((256, 512))
    with profnb.profile() as p:
        for number in range(6):
            with profnb.step(number):
                step(x, w).numpy()
    table = p.xla
    if table.empty:
        pytest.skip(f"TensorFlow {tf.__version__} records no XLA ops on a CPU")
    product = table[table.flops >= 2 * 128 * 256 * 512]
    assert len(product) == 1
    row = product.iloc[0]
    assert row.occurrences == 6
    assert row.flops < 2 * 128 * 256 * 512 * 1.01
    assert "product" in row.op_name or row.op_type in ("MatMul", "Sum")
    assert row.bytes >= 4 * (128 * 256 + 256 * 512)
    modules = p.xla_modules
    assert modules.occurrences.max() == 6
    assert modules.compile_ms.max() > 0
    assert row.op_name in set(p.ops.op_name)
    assert "XLA programs" in p.summary()


FUSION = [parameter("p", 0, shape(F32, 8, 8)), op("tanh", "tanh", shape(F32, 8, 8), "p")]
GRAPHS = program(
    "jit_step",
    {
        "body": FUSION,
        "loop": [
            parameter("p", 0, shape(F32, 8, 8)), op("mul_fusion.1", "fusion", shape(F32, 8, 8), "p", calls=("body",), op_name="jit(step)/while/body/mul"),
            op("add_fusion", "fusion", shape(F32, 8, 8), "p", calls=("body",), op_name="jit(step)/while/body/add"),
        ],
        # In the file as XLA writes it; the schedule tells in which order they run.
        "main": [
            parameter("a", 0, shape(F32, 8, 8)),
            op("tanh_fusion", "fusion", shape(F32, 8, 8), "a", calls=("body",), op_name="jit(step)/tanh", source=("/u/model.py", 7)),
            op("custom-call.2", "custom-call", shape(F32, 8, 8), "a", "a", target="__cublas$lt$matmul", op_name="jit(step)/second/dot_general"),
            op("fusion.4", "fusion", shape(F32, 8, 8), "a", calls=("body",), op_name="jit(step)/fourth/mul"),
            op("fusion.5", "fusion", shape(F32, 8, 8), "a", calls=("body",), op_name="jit(step)/fifth/mul"),
            op("custom-call.1", "custom-call", shape(F32, 8, 8), "a", "a", target="__cublas$lt$matmul", op_name="jit(step)/first/dot_general"),
        ],
    },
    "main", {"body"},
    schedule={"main": ("a", "custom-call.1", "tanh_fusion", "custom-call.2", "fusion.4", "fusion.5"), "loop": ("p", "add_fusion", "mul_fusion.1")},
)  # fmt: skip


def graph_of(*kernels, launches=1):
    """The names that the kernels of each launch of one graph have, in the table of XLA's ops."""
    work, calls = [], []
    for launch in range(launches):
        begin = launch * 1000 * US
        calls.append(event("cuGraphLaunch", begin, 5 * US, correlation_id=launch + 1))
        for at, name in enumerate(kernels):
            more = {"hlo_op": "command_buffer_1", "hlo_module": "jit_step", "program_id": 3, "correlation_id": launch + 1}
            work.append(event(name, begin + (10 + 10 * at) * US, 5 * US, **more))
    study = Study(read(metadata_plane(jit_step=(3, GRAPHS)), host(line("python", *calls)), gpu(line("Stream #1", *work))))
    codes = study.xla.hlo.codes_of(study.xla.hlo.events).tolist()
    return [study.xla.hlo.ops[code].name for code in codes]


def test_kernels_of_a_graph_have_the_instructions_of_its_schedule():
    """A fusion's kernel is named after it or an earlier one that does the same, a library's stands between them."""
    kernels = ("sm90_xmma_gemm", "tanh_fusion", "nvjet_a", "fusion_4", "fusion_4")
    expected = ["custom-call.1", "tanh_fusion", "custom-call.2", "fusion.4", "fusion.5"]
    assert graph_of(*kernels, launches=2) == expected * 2


def test_a_call_of_a_library_may_run_several_kernels():
    assert graph_of("split_k", "reduce", "tanh_fusion", "nvjet_a", "fusion_4", "fusion_4")[:3] == ["custom-call.1", "custom-call.1", "tanh_fusion"]


@pytest.mark.parametrize("kernels", [
    ("fusion_9", "fusion_9"),  # the names of another program
    ("fusion_4", "tanh_fusion", "fusion_4"),  # another order
    ("sm90_xmma_gemm", "nvjet_a"),  # no fusion tells where
])  # fmt: skip
def test_kernels_that_do_not_fit_the_schedule_keep_the_name_of_their_graph(kernels):
    assert set(graph_of(*kernels)) == {"command_buffer_1"}


def test_a_graph_may_be_the_body_of_a_loop():
    """``jax.lax.scan``: 88 % of such a program's kernels on an H200 were of graphs that ran once an iteration."""
    assert graph_of("add_fusion", "mul_fusion_1", launches=3) == ["add_fusion", "mul_fusion.1"] * 3


def test_a_graph_may_be_a_part_of_its_program():
    assert graph_of("nvjet_a", "fusion_4", "fusion_4") == ["custom-call.2", "fusion.4", "fusion.5"]


@pytest.mark.parametrize(("name", "compiles"), [
    ("GpuCompiler::RunBackend", True), ("CpuCompiler::Compile", True), ("PjRtCApiCompiler::Compile", True), ("XlaCompileOnDemand", True), ("backend_compile_and_load", True),
    ("PjRtCApiCompiler::BufferFromHostBuffer(f32[4096,4096])", False), ("PjRtCApiLoadedExecutable::Execute", False),
])  # fmt: skip
def test_only_compiling_is_compilation(name, compiles):
    """JAX 0.11 copies a batch in a method of a class called compiler: every step of a fit was taken for warm-up."""
    assert is_compilation(name) == compiles


def test_copying_to_where_the_device_can_read_is_input():
    """XLA's runtime moves a batch into pinned memory on a thread of its own, while Python waits in the call."""
    steps = [event("train", at * 100 * US, 95 * US, step_num=at, _r=1) for at in range(3)]
    calls = [event("PjitFunction(update)", (at * 100 + 5) * US, 85 * US) for at in range(3)]
    launches = [event("cuLaunchKernel", (at * 100 + 80) * US, 2 * US, correlation_id=at + 1) for at in range(3)]
    staging = [event("H2D Dispatch", (at * 100 + 10) * US, 60 * US) for at in range(3)]
    kernels = [event("gemm", (at * 100 + 83) * US, 10 * US, correlation_id=at + 1) for at in range(3)]
    study = Study(read(host(line("python", *sorted((*steps, *calls, *launches), key=lambda e: e[1])), line("pjrt", *staging)), gpu(line("Stream #1", *kernels))))
    shares = {share.category: round(share.fraction, 2) for share in study.summary.shares}
    assert shares["input"] == pytest.approx(0.6, abs=0.02)
    cause = dict(zip(IDLE.frame(study.device.idle).cause, IDLE.frame(study.device.idle).total_us, strict=True))
    assert cause["copying input"] == 180
