"""What a device could do at most: operations and bytes per second, and where each figure comes from.

A TPU's plane states both. A GPU's states its clock, its number of multiprocessors and its memory's
bandwidth; how many operations one multiprocessor does per cycle depends on its architecture and on the
width of the numbers. Nothing is returned for an architecture that is not in the table.

Which kernels ran in tensor cores their names tell, and the names of ops which could have. The official
tool's list ends with Ampere; ours goes on to Hopper, Blackwell and AMD, and a kernel counts only by its name,
never by its op.

Source: NVIDIA's architecture whitepapers (Pascal to Blackwell) and CUDA C++ Programming Guide, "Throughput
of native arithmetic instructions"; AMD CDNA 3 whitepaper. Dense, without sparsity. The official tool takes
the 16-bit peak of the tensor cores for everything, 32-bit work included. Names: openxla/xprof
xprof/utils/kernel_stats_utils.cc (a27d00aa); CUTLASS and cuBLAS kernel names.
"""

import re
from dataclasses import dataclass

from profnb.trace.framework import SESSIONS
from profnb.trace.model import Plane, Trace


@dataclass(frozen=True, slots=True)
class Peak:
    """A device's limits.

    Attributes:
        flops: Operations per second by width ("8-bit", "16-bit", "TF32", "32-bit"); a width that the
            device has no units for is not among them.
        bytes_per_second: Of its main memory; NaN if the trace does not say.
        source: Where the figures come from, in a sentence.
    """

    flops: dict[str, float]
    bytes_per_second: float
    source: str

    def flops_of(self, width: str, *, is_product: bool) -> float:
        """The peak for work of a width; products of 32-bit matrices may run as TF32. NaN if unknown."""
        if width == "32-bit" and is_product and "TF32" in self.flops:
            return self.flops["TF32"]
        return self.flops.get(width, self.flops.get("any", float("nan")))


# Operations (a fused multiply-add is two) per cycle and multiprocessor, by compute capability:
# (8-bit floats, 16-bit, TF32, 32-bit); 0 where there are no such units.
_NVIDIA = {
    (6, 0): (0, 256, 0, 128),
    (6, 1): (0, 0, 0, 256),
    (7, 0): (0, 1024, 0, 128),
    (7, 5): (0, 1024, 0, 128),
    (8, 0): (0, 2048, 1024, 128),
    (8, 6): (0, 1024, 256, 256),
    (8, 9): (2048, 1024, 256, 256),
    (9, 0): (8192, 4096, 2048, 256),
    (10, 0): (16384, 8192, 4096, 256),
}
_AMD = {(9, 4): (4096, 2048, 1024, 256)}  # CDNA 3, per compute unit
_ROCM = ("hip", "Cijk_", "rocm", "rocblas", "__amd_")
_FIRST_WITH_TENSOR_CORES = 7  # the compute capability's first number
_LARGEST = 1e18  # no clock, bandwidth or count of anything comes near
_WIDTHS = ("8-bit", "16-bit", "TF32", "32-bit")
# Parts of kernel names. The first line is the official list, whose xmma kernels are all meant here; then
# Ampere's CUTLASS, Hopper (wgmma, cuBLAS' nvjet), Blackwell (tcgen05, umma), flash attention, and AMD
# (Tensile's MI instructions, mfma, wmma).
_TENSOR_CORE_PARTS = (
    "16816", "c1688", "conv1x1", "conv2d_c1_k1", "dgrad_1x1_stride_2x2", "direct_group",
    "first_layer_wgrad_kernel", "h1688", "h884", "hmma", "i16832", "i8816", "s884", "s1688", "xmma_",
    "tensorop", "gmma", "nvjet_", "tcgen05", "_umma", "mma_sync",
    "flash_fwd_kernel", "flash_fwd_splitkv_kernel", "flash_bwd_dq_dk_dv", "mfma", "wmma",
)  # fmt: skip
# What multiplies on the ordinary cores although another part of its name is listed: xmma has both kinds.
_ORDINARY_PARTS = ("_ffma_", "_simt_")
_TENSILE = re.compile(r"Cijk_.*_MI\d+x\d+x\d+")
_ELIGIBLE_ENDS = (
    "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput", "/MatMul",
    "FusedMatMul", "/CudnnRNN", "XlaDot", "XlaDotV2",
    "/dot_general", "/conv_general_dilated",
)  # fmt: skip
# PyTorch's products, convolutions and attention; ``aten::linear`` and others call one of them.
_ELIGIBLE_ATEN = re.compile(
    r"/aten::(_?(add|bad?d?)?b?mm(_activation|_dtype)?|_scaled_mm|\w*convolution\w*|_cudnn_rnn\w*|miopen_rnn\w*"
    r"|_\w*(flash|efficient|cudnn)_attention_\w+)"
)
_ELIGIBLE_PARTS = ("BatchMatMul", "CudnnRNNV", "CudnnRNNForward", "CudnnRNNBackprop")


def is_nvidia(trace: Trace, plane: int) -> bool:
    """Whether a device is a GPU of NVIDIA's: it says no other vendor, and nothing of ROCm was recorded.

    Args:
        trace: The trace.
        plane: The device's plane.
    """
    device = trace.planes[plane]
    vendor = str(device.stats.get("device_vendor", ""))
    if "GPU" not in device.name.upper() or vendor:
        return "nvidia" in vendor.lower()
    return not trace.select_names(lambda name: name.startswith(_ROCM)).any()


def tells_tensor_cores(trace: Trace, plane: int, framework: str) -> bool:
    """Whether the names of a device's kernels tell which ran in tensor cores.

    A TPU and a GPU before compute capability 7 have none, and what sessions of TensorFlow 1 record of a
    kernel is its op's name.

    Args:
        trace: The trace.
        plane: The device's plane.
        framework: Whose trace it is.
    """
    device = trace.planes[plane]
    capability = device.stats.get("compute_cap_major", _FIRST_WITH_TENSOR_CORES)
    has_none = isinstance(capability, int) and 0 < capability < _FIRST_WITH_TENSOR_CORES
    return "GPU" in device.name.upper() and framework != SESSIONS and not has_none


def uses_tensor_core(kernel_name: str) -> bool:
    """Whether a kernel of this name multiplies matrices in tensor or matrix cores."""
    lowered = kernel_name.lower()
    if any(part in lowered for part in _ORDINARY_PARTS):
        return False
    return any(part in lowered for part in _TENSOR_CORE_PARTS) or bool(_TENSILE.search(kernel_name))


def is_tensor_core_eligible(op_name: str) -> bool:
    """Whether an op of this name is a matrix product or convolution."""
    return (
        op_name.endswith(_ELIGIBLE_ENDS)
        or any(part in op_name for part in _ELIGIBLE_PARTS)
        or _ELIGIBLE_ATEN.fullmatch(op_name) is not None
    )


def find_rates(plane: Plane) -> dict[str, int]:
    """Operations per cycle and multiprocessor by width, of what a device has units for; {} if not known."""
    capability = tuple(plane.stats.get(f"compute_cap_{part}", -1) for part in ("major", "minor"))
    table = _AMD if plane.stats.get("device_vendor") == "AMD" else _NVIDIA
    rates = next((row for listed, row in table.items() if listed == capability), ())
    return {width: rate for width, rate in zip(_WIDTHS, rates, strict=False) if rate}


def find_peak(plane: Plane) -> Peak | None:
    """The limits of the device of a plane, or None where they are not known."""
    stats = plane.stats

    def number(name: str) -> float:
        value = stats.get(name)
        is_stated = isinstance(value, int | float) and 0 < value < _LARGEST
        return float(value) if is_stated and isinstance(value, int | float) else 0.0

    teraflops = number("peak_teraflops_per_second")
    if teraflops:
        bandwidth = number("peak_hbm_bw_gigabytes_per_second") * 1e9
        return Peak({"any": teraflops * 1e12}, bandwidth or float("nan"), "as the trace states it")
    clock, cores = number("clock_rate") * 1e3, number("core_count")
    rates = find_rates(plane)
    if not clock or not cores or not rates:
        return None
    unit = "compute units" if stats.get("device_vendor") == "AMD" else "multiprocessors"
    return Peak(
        {width: rate * clock * cores for width, rate in rates.items()},
        number("memory_bandwidth") or float("nan"),
        f"{cores:.0f} {unit} at {clock / 1e9:.3g} GHz, as the trace states them, times what "
        f"capability {number('compute_cap_major'):.0f}.{number('compute_cap_minor'):.0f} does per cycle",
    )
