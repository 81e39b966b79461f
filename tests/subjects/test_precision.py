"""Which width a kernel computes with: by names that exist, by the op's shape, and where the official rule is wrong."""

import pytest
from traces import event, gpu, line, read, ref

import profnb
from profnb.subjects.device.precision import WIDTHS, measure_precision, width_of

US = 10**6


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("volta_sgemm_128x64_nn", "32-bit"),
        ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1", "16-bit"),
        ("void Eigen::internal::EigenMetaKernel<Eigen::half>", "16-bit"),
        ("void cudnn::detail::wgrad_alg1_engine_NHWC<__half, 512, float>", "16-bit"),  # adds up in 32 bits
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x6_tn", "16-bit"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>", "TF32"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "TF32"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n", "8-bit"),
        ("volta_dgemm_64x64_nn", "64-bit"),
        ("loop_add_fusion", "unknown"),
        ("nvjet_hsh_128x64_64x6_2x1_v_bz_TNN", "16-bit"),
    ],
)
def test_names_of_kernels_tell_their_width(name, width):
    assert width_of(name) == width


def test_time_adds_up_by_the_narrower_of_name_and_shape():
    """The official rule calls bfloat16 32-bit: it would say 10 us of 16-bit here, not 40 (xprof 2.24.2)."""
    trace = read(gpu(line("Stream #1",
        event("gemm_half", 0, 10 * US), event("gemm_bf16", 20 * US, 20 * US), event("fusion_1", 50 * US, 10 * US, shape=ref("(bf16[4,384];bf16[])")),
        event("sgemm", 70 * US, 5 * US), event("fusion_2", 80 * US, 7 * US), event("MemcpyH2D", 90 * US, 9 * US), event("ncclDevKernel_AllReduce_f16", 100 * US, 50 * US)),
    ))  # fmt: skip
    precision = measure_precision(trace)
    assert dict(zip(WIDTHS, (precision.total_ps // US).tolist(), strict=True)) == {"8-bit": 0, "16-bit": 40, "TF32": 0, "32-bit": 5, "64-bit": 0, "unknown": 7}
    assert precision.occurrences.sum() == 5


def test_a_mixed_precision_training_is_mostly_16_bit(shared_traces):
    table = profnb.load(shared_traces / "gpu-cnn-batch512").precision.set_index("width")
    assert table.occurrences.sum() == 3781
    assert table.fraction["16-bit"] > 0.85
    assert table.fraction.sum() == pytest.approx(1)
