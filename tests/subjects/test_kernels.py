"""The kernel and copy tables, against TensorFlow's own answer and by hand."""

import collections
import math

import numpy as np
import pytest
from traces import event, gpu, host, line, read, ref

from profnb.steps.streams import raw_device_lines
from profnb.subjects.device.devices import COPIES, _parse_details, tabulate_copies
from profnb.subjects.device.kernels import KERNELS, LaunchShape, is_tensor_core_eligible, parse_launch_shape, tabulate_kernels, uses_tensor_core
from profnb.subjects.study import Study
from profnb.trace.files import read_trace
from profnb.trace.names import copy_direction, is_collective, kernel_title

US = 10**6


def test_a_kernel_has_a_row_per_op_and_launch_shape():
    small, large = ref("regs:16 static_shared:0 dynamic_shared:64 grid:1,1,1 block:32,1,1 occ_pct:50"), ref("regs:16 static_shared:0 dynamic_shared:64 grid:9,1,1 block:32,1,1 occ_pct:50")
    trace = read(gpu(line("Stream #1",
        event("relu", 0, 5 * US, tf_op=ref("a/Relu:Relu"), kernel_details=small),
        event("relu", 10 * US, 7 * US, tf_op=ref("a/Relu:Relu"), kernel_details=small),
        event("relu", 20 * US, 1 * US, tf_op=ref("b/Relu:Relu"), kernel_details=small),
        event("relu", 30 * US, 2 * US, tf_op=ref("a/Relu:Relu"), kernel_details=large),
        event("MemcpyH2D", 40 * US, 9 * US, tf_op=ref("c:Cast")),
        event("Memset", 50 * US, 9 * US),
    )))  # fmt: skip
    table = tabulate_kernels(trace)
    rows = list(zip(table.kernel_name, table.op_name, [s.grid for s in table.shape], table.occurrences.tolist(), (table.total_ps // US).tolist(), (table.min_ps // US).tolist(), (table.max_ps // US).tolist(), strict=True))
    assert rows == [("relu", "a/Relu", "1,1,1", 2, 12, 5, 7), ("relu", "a/Relu", "9,1,1", 1, 2, 2, 2), ("relu", "b/Relu", "1,1,1", 1, 1, 1, 1)]
    assert table.shape[0] == LaunchShape(16, 0, 64, "1,1,1", "32,1,1", 50.0, 64)
    assert table.fraction.tolist() == [12 / 15, 2 / 15, 1 / 15]


def test_the_times_of_a_kernel_are_of_all_its_runs_and_their_mean():
    work = line("Stream #1", event("relu", 0, 5 * US, tf_op=ref("a/Relu:Relu")), event("relu", 10 * US, 7 * US, tf_op=ref("a/Relu:Relu")))
    [row] = KERNELS.frame(tabulate_kernels(read(gpu(work)))).to_dict("records")
    assert [row[f"{name}_us"] for name in ("total", "mean", "min", "max")] == [12, 6, 5, 7]


def test_what_a_trace_tells_of_a_launch_is_in_columns_and_the_rest_is_missing():
    work = line("Stream #1", event("k", 0, US, kernel_details="regs:96 grid:1,1,29 block:8,8,1"))
    row = KERNELS.frame(tabulate_kernels(read(gpu(work)))).iloc[0]
    assert (row.registers_per_thread, row.grid, row.block) == (96, "1,1,29", "8,8,1")
    assert math.isnan(row.occupancy_percent)


@pytest.mark.parametrize(("said", "expected"), [
    ("kind_src:pinned kind_dst:device size:4096 dest:0", ("pinned", "device", 4096)), ("num_bytes:7", ("", "", 7)), ("size:0", ("", "", -1)), ("size:-5", ("", "", -1)),
    ("size:" + "9" * 16, ("", "", 10**16 - 1)), ("size:" + "9" * 17, ("", "", -1)),
])  # fmt: skip
def test_the_size_of_a_copy_is_a_number_that_a_memory_could_have(said, expected):
    assert _parse_details(said) == expected


def test_a_copy_whose_size_is_not_told_has_no_bandwidth():
    write = COPIES["gigabytes_per_second"].write
    assert (write(float("nan")), write(2e9)) == ("—", "2.00 GB/s")


def test_a_kernel_may_use_tensor_cores_where_its_op_allows_it_or_it_does():
    work = [("volta_fp16_s884gemm", "a/Relu:Relu"), ("sgemm_64", "a/MatMul:MatMul"), ("relu", "b/Relu:Relu")]
    frame = KERNELS.frame(tabulate_kernels(read(gpu(line("Stream #1", *(event(name, at * 10 * US, US, tf_op=ref(op)) for at, (name, op) in enumerate(work)))))))
    told = frame.set_index("kernel_name")[["uses_tensor_core", "is_tensor_core_eligible"]]
    assert {name: tuple(row) for name, row in zip(told.index, told.to_numpy().tolist())} == {"volta_fp16_s884gemm": (True, True), "sgemm_64": (False, True), "relu": (False, False)}


@pytest.mark.parametrize("names", [("k",), ("k", "k2")])
def test_kernels_without_an_op_stand_under_their_own_names(names):
    work = line("Stream #1", *(event(name, at * 10 * US, (5 - at) * US) for at, name in enumerate(names)))
    table = tabulate_kernels(read(host(line("python", event("a", 0, 1), event("b", 2, 1), event("c", 4, 1))), gpu(work)))
    assert (table.kernel_name, table.op_name) == (names, names)


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("regs:96 shm:3332 grid:1,1,29 block:8,8,1", LaunchShape(96, 3332, None, "1,1,29", "8,8,1", None)),
        (" grid:2048,1,1 block:256,1,1 private_mem:0 group_mem:8192 occ_pct:0", LaunchShape(None, 8192, None, "2048,1,1", "256,1,1", None)),
        ("occ_pct:37.5", LaunchShape(occupancy_percent=37.5)),
        ("regs:-1 grid:<script> block: occ_pct:nan", LaunchShape()),
        ("regs:99999999999", LaunchShape(registers_per_thread=99_999_999_999)),  # nobody reads more digits than these
        ("regs:999999999999", LaunchShape()),
        ("", LaunchShape()),
    ],
)
def test_launch_shapes_of_every_dialect_are_read_and_garbage_is_missing(details, expected):
    assert parse_launch_shape(details) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("turing_fp16_s884gemm_fp16_64x64_ldg8_f2f_nn", True),
        ("ampere_bf16_s16816gemm_bf16_128x64_sliced1x2_ldg8_f2f_stages_64x6_tn", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>", True),
        ("nvjet_hsh_128x64_64x6_2x1_v_bz_TNN", True),  # cuBLAS on Hopper
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", True),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", True),  # AMD
        # From an H200: float32 on the ordinary cores, TF32, bfloat16, float16, and attention.
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(cutlass_80_simt_sgemm_128x256_8x4_nt_align1::Params)", False),
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn", False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas", True),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn", True),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", True),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >", True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_cga1x1x1_kernel0_0", True),
        ("void Eigen::internal::EigenMetaKernel<...>", False),
        ("summary_kernel", False),
        ("volta_sgemm_128x64_nn", False),
        ("loop_add_fusion", False),
    ],
)  # fmt: skip
def test_tensor_core_kernels_are_known_by_name_up_to_blackwell_and_amd(kernel, expected):
    assert uses_tensor_core(kernel) is expected


@pytest.mark.parametrize(("kernel", "expected"), [
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int, float*)", "vectorized_layer_norm_kernel<float>"),
    ("(anonymous namespace)::softmax(float*)", "softmax"), ("gemm", "gemm"), ("void relu<4>(int)", "relu<4>"),
])  # fmt: skip
def test_a_kernel_is_shown_without_what_cpp_puts_around_its_name(kernel, expected):
    """PyTorch's were all called ``at::native::``."""
    assert kernel_title(kernel) == expected


@pytest.mark.parametrize(("op", "expected"), [
    ("aten::mm", True), ("aten::addmm", True), ("aten::bmm", True), ("aten::baddbmm", True), ("aten::_addmm_activation", True),
    ("aten::cudnn_convolution", True), ("aten::convolution_backward", True), ("aten::_cudnn_attention_forward", True),
    ("aten::_scaled_dot_product_flash_attention_backward", True), ("aten::addmv", False), ("aten::add_", False), ("aten::mul", False), ("aten::copy_", False),
])  # fmt: skip
def test_products_of_pytorch_are_eligible(op, expected):
    assert is_tensor_core_eligible(f"/{op}") is expected


def test_matrix_products_and_convolutions_are_eligible():
    assert all(map(is_tensor_core_eligible, ["model/dense/MatMul", "a/Conv2D", "a/Conv2DBackpropInput", "x/BatchMatMulV2", "jit(f)/dot_general"]))
    assert not any(map(is_tensor_core_eligible, ["a/Relu", "a/MatMul/Cast", "conv2d/BiasAdd", "transpose"]))


@pytest.mark.parametrize("name", ["gpu-cnn-batch512", "gpu-cnn-batch128", "gpu-cnn-batch8"])
def test_kernels_equal_what_tensorflow_itself_said(shared_traces, name):
    """host.kernel_stats.pb: count, total and op of every kernel, to the nanosecond."""
    kernel_stats = pytest.importorskip("xprof.protobuf.kernel_stats_pb2")
    official = kernel_stats.KernelStatsDb()
    official.ParseFromString((shared_traces / name / "host.kernel_stats.pb").read_bytes())
    table = tabulate_kernels(read_trace(shared_traces / name / "host.xplane.pb"))
    ours, theirs = collections.Counter(), collections.Counter()
    for kernel, op, count, total in zip(table.kernel_name, table.op_name, table.occurrences, table.total_ps, strict=True):
        ours[kernel, op, "runs"] += int(count)
        ours[kernel, op, "ns"] += int(total) // 1000
    for report in official.reports:
        theirs[report.name, report.op_name, "runs"] += report.occurrences
        theirs[report.name, report.op_name, "ns"] += report.total_duration_ns
    assert ours == theirs
    if name.endswith("512"):
        assert (table.occurrences.sum(), table.total_ps.sum() // 1000) == (3781, 110_400_339)


def test_turing_tensor_cores_that_the_official_list_of_2020_missed(shared_traces):
    """TensorFlow 2.4 knew no s884 kernels and said 0 % tensor cores; 19.2 % of kernel time was in them."""
    table = tabulate_kernels(read_trace(shared_traces / "gpu-cnn-batch512" / "host.xplane.pb"))
    share = table.total_ps[table.uses_tensor_core].sum() / table.total_ps.sum()
    assert round(float(share), 4) == 0.1921


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("MemcpyH2D", "host to device"), ("MemcpyD2H", "device to host"), ("MemcpyD2D", "device to device"), ("MemcpyP2P", "peer to peer"),
        ("Memset", "set"), ("Memcpy HtoD (Pageable -> Device)", "host to device"), ("Memcpy DtoD (Device -> Device)", "device to device"),
        ("Memset (Device)", "set"), ("edge_15_IteratorGetNext:MEMCPYHtoD", "host to device"), ("MEMCPYHToD", "host to device"),
        ("volta_sgemm", None), ("a/memcpy_layer/MatMul:MatMul", None), ("", None),
    ],
)  # fmt: skip
def test_copies_are_known_by_the_names_of_cupti_tf1_and_pytorch(name, direction):
    assert copy_direction(name) == direction


def test_collectives_are_known_by_name():
    assert is_collective("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)")
    assert is_collective("rcclGenericKernel")
    assert not is_collective("my_nccl_like")


def test_copies_add_up_by_direction_and_kind_of_memory():
    pageable, pinned, unknown = ref("kind_src:pageable kind_dst:device size:4000000 dest:0 async:1"), ref("kind_src:pinned kind_dst:device size:8000000 dest:0 async:1"), ref("dest:0 async:1")
    trace = read(
        host(line("t", event("MemcpyH2D", 0, 5 * US, memcpy_details=pageable))),
        gpu(line("Stream #1",
            event("MemcpyH2D", 0, 1000 * US, memcpy_details=pageable), event("MemcpyH2D", 1000 * US, 1000 * US, memcpy_details=pageable),
            event("MemcpyH2D", 2000 * US, 1000 * US, memcpy_details=pinned), event("MemcpyD2H", 3000 * US, 100 * US, memcpy_details=unknown),
            event("kernel", 4000 * US, US))),
    )  # fmt: skip
    table = tabulate_copies(trace)
    assert list(zip(table.direction, table.source_kind, table.occurrences.tolist(), table.bytes.tolist(), strict=True)) == [
        ("host to device", "pageable", 2, 8_000_000), ("host to device", "pinned", 1, 8_000_000), ("device to host", "", 1, 0),
    ]  # fmt: skip
    assert table.bandwidth[:2].tolist() == [4e9, 8e9]  # bytes a second: 8 MB in 2 ms, 8 MB in 1 ms
    assert np.isnan(table.bandwidth[2])
    frame = COPIES.frame(table)
    assert frame.bytes[:2].tolist() == [8_000_000, 8_000_000]
    assert frame.bytes.isna().tolist() == [False, False, True]  # missing, not zero


@pytest.mark.parametrize(("duration_ps", "bandwidth"), [(0, np.nan), (1, 8e12), (1000, 8e9)])
def test_a_copy_that_took_no_time_has_no_bandwidth_and_any_other_has(duration_ps, bandwidth):
    trace = read(gpu(line("Stream #1", event("MemcpyH2D", 0, duration_ps, memcpy_details=ref("size:8")))))
    np.testing.assert_allclose(tabulate_copies(trace).bandwidth, [bandwidth])


def test_the_size_of_a_copy_has_one_of_two_names():
    """``size:``, or ``num_bytes:``, for which the official tool looks."""
    told = [event("MemcpyH2D", at * US, US, memcpy_details=ref(text)) for at, text in enumerate(("num_bytes:112", "size:8", "size:x"))]
    table = tabulate_copies(read(gpu(line("Stream #1", *told))))
    assert (table.occurrences.tolist(), table.sized.tolist(), table.bytes.tolist()) == ([3], [2], [120])


def test_no_device_no_rows():
    trace = read(host(line("t", event("a:MatMul", 0, 1))))
    assert len(tabulate_kernels(trace)) == len(tabulate_copies(trace)) == 0


def rocm_trace():
    """Two devices of ROCm: one computes and copies, the other only copies; the host's call names details too."""
    def copy(name, begin, **details):
        return event(name, begin, 10 * US, **details)

    return read(
        host(line("python", event("train", 0, 1000 * US, step_num=1, _r=1)), line("call", event("hipMemcpyDtoDAsync", 0, US, memcpy_details=ref("kind:Unknown size:0 dest:512 async:1")))),
        gpu(line("Stream #1(Kernel,MemcpyOther)", event("gemm", 0, 500 * US, kernel_details=ref("regs:8")), copy("CopyDeviceToDevice", 600 * US, memcpy_details=ref("kind:Unknown size:0 dest:0 async:1")))),
        gpu(line("Stream #2(MemcpyOther)", copy("CopyDeviceToDevice", 0), copy("blit", 50 * US, memcpy_details=ref("kind:HostToDevice size:4096 dest:0 async:1")),
                 copy("blit", 70 * US, memcpy_details=ref("kind_src:device kind_dst:pageable size:100")), copy("blit", 90 * US, memset_details=ref("size:7")), copy("blit", 110 * US)), number=1),
    )  # fmt: skip


def test_copies_of_rocm_are_known_by_their_details():
    trace = rocm_trace()
    kernels = tabulate_kernels(trace)
    assert sorted(zip(kernels.kernel_name, kernels.occurrences.tolist(), strict=True)) == [("blit", 1), ("gemm", 1)]
    copies = tabulate_copies(trace)
    assert sorted(zip(copies.direction, copies.occurrences.tolist(), copies.bytes.tolist(), strict=True)) == [
        ("device to device", 2, 0), ("device to host", 1, 100), ("host to device", 1, 4096), ("set", 1, 7),
    ]  # fmt: skip
    study = Study(trace)
    assert study.device.use.compute_ps.tolist() == [500 * US, 10 * US]
    assert study.device.use.copy_ps.tolist() == [10 * US, 40 * US]
    assert sorted(zip(study.device.streams.kernels.tolist(), study.device.streams.copies.tolist(), strict=True)) == [(1, 1), (1, 4)]
    assert study.breakdown.of("device to device").tolist() == [10 * US]
    assert study.breakdown.of("device compute").tolist() == [500 * US]


def test_kernels_whose_details_are_a_kernels_stay_kernels(shared_traces):
    """The host's calls carry memcpy_details as well: they make no copy of anything."""
    trace = read_trace(shared_traces / "jax-rocm" / "conv.xplane.pb")
    details = trace.stats.texts("memcpy_details")
    assert len(details) == 33
    assert not trace.is_device_line[trace.lines.of_event[details.events]].any()
    work = trace.lines.events_of(raw_device_lines(trace))
    kernels, copies = tabulate_kernels(trace), tabulate_copies(trace)
    copying = sum("copyBuffer" in trace.names[trace.events.name[event]] for event in work)  # ROCm's own kernels that copy
    assert (kernels.occurrences.sum(), copies.occurrences.sum()) == (work.size - copying, copying)
