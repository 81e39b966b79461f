"""GPUs that are there, and that the program does not use.

A GPU worked if the host launched anything for it, if an allocator of its memory held anything, or if it ran
anything itself. Where none of that was recorded and ops computed on the host all the time, the program trains
beside it. That is no fault of the profiler's: CUPTI is to blame only where a GPU worked and nothing of it was
recorded.
"""

import re
from collections.abc import Sequence

import numpy as np

from profnb.steps.spine import Spine
from profnb.subjects.memory.allocators import Allocator
from profnb.subjects.memory.find import Memory
from profnb.trace.model import Trace

_STARTS_WORK = re.compile(r"(cu|cuda|hip)\w*(Launch|Mem(cpy|set))")
_MOSTLY = 0.5
_POLICY = "Precision policy"


def gpu_worked(trace: Trace, allocators: Sequence[Allocator]) -> bool:
    """Whether anything proves that a GPU worked: a launch, memory held on it, or work of its own.

    A call of its runtime that starts nothing proves nothing: profilers themselves wait for the device.
    """
    counts = np.diff(trace.lines.offsets)
    return bool(
        trace.select_names(lambda name: _STARTS_WORK.match(name) is not None).any()
        or any(a.is_device and (a.in_use > 0).any() for a in allocators)
        or any(p.is_device and counts[p.lines.start : p.lines.stop].any() for p in trace.planes)
    )


def find_unused_gpus(spine: Spine, memory: Memory) -> tuple[str, ...]:
    """The GPUs that are there and that the steps, which compute on the CPU, do not use.

    Args:
        spine: The steps and where their time went.
        memory: What was allocated, which is looked at only where there is a GPU.

    Returns:
        The names of the devices; none where one of them worked, or where the steps compute little.
    """
    trace = spine.trace
    in_trace = tuple(
        plane.name for plane in trace.planes if plane.is_device and "GPU" in plane.name
    )
    present = in_trace or tuple(name for name in spine.recording.devices if "GPU" in name)
    if not present or spine.steps.is_window or gpu_worked(trace, memory.allocators):
        return ()
    shares = {share.category: share.fraction for share in spine.summary.shares}
    return present if shares.get("host compute", 0.0) >= _MOSTLY else ()


def is_mixed_precision(spine: Spine) -> bool:
    """Whether the program computes in 16 bits, as far as its policy or the names of its ops tell."""
    policy = spine.recording.environment.get(_POLICY, "")
    scales = spine.trace.select_names(lambda name: "LossScale" in name or "loss_scale" in name)
    return policy.startswith("mixed_") or bool(scales.any())
