"""What a device could do at most: operations and bytes per second, and where each figure comes from.

A TPU's plane states both. A GPU's states its clock, its number of multiprocessors and its memory's
bandwidth; how many operations one multiprocessor does per cycle depends on its architecture and on the
width of the numbers. Nothing is returned for an architecture that is not in the table.

Source: NVIDIA's architecture whitepapers (Pascal to Blackwell) and CUDA C++ Programming Guide, "Throughput
of native arithmetic instructions"; AMD CDNA 3 whitepaper. Dense, without sparsity. The official tool takes
the 16-bit peak of the tensor cores for everything, 32-bit work included.
"""

from dataclasses import dataclass

from profnb.trace.framework import SESSIONS
from profnb.trace.model import Plane, Trace

__all__ = ["Peak", "find_peak", "is_nvidia", "tells_tensor_cores"]


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
    capability = int(number("compute_cap_major")), int(number("compute_cap_minor"))
    table = _AMD if stats.get("device_vendor") == "AMD" else _NVIDIA
    rates = table.get(capability)
    if not clock or not cores or rates is None:
        return None
    flops = {
        width: rate * clock * cores for width, rate in zip(_WIDTHS, rates, strict=True) if rate
    }
    unit = "compute units" if table is _AMD else "multiprocessors"
    return Peak(
        flops,
        number("memory_bandwidth") or float("nan"),
        f"{cores:.0f} {unit} at {clock / 1e9:.3g} GHz, as the trace states them, times what "
        f"capability {capability[0]}.{capability[1]} does per cycle",
    )
