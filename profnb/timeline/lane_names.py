"""What to call a lane: words that a person knows where the recorder wrote those of a thread pool.

The recorder's own name of a thread or a stream stays what is shown when a lane is pointed at.

Source: the names in traces of TensorFlow 2.2 to 2.21 and JAX.
"""

import re
from collections import Counter

from profnb.steps.streams import raw_device_lines
from profnb.timeline.lanes import Lanes
from profnb.trace.model import Trace

_LONGEST = 300
_THREAD = re.compile(r"(.+?)/-?\d+$")
_STREAM = re.compile(r"Stream #(\d+)\((\w+(?:,\w+)*)\)$")
_PYTHON = re.compile(r"python[\d.]*$")
_POOLS = {
    "tf_Compute": "TensorFlow worker",
    "tf_data_private_threadpool": "tf.data worker",
    "tf_data_iterator_resource": "tf.data background",
    "tf_data_iterator_get_next": "tf.data next element",
    "tf_pjrt_thread_pool": "PjRt worker",
    "py_xla_execute": "XLA launcher",
    "tf_GPU_Event_Manager": "GPU event manager",
}
_EIGEN = re.compile(r"tf_numa_-?\d+_Eigen$")
_GPU_PRIVATE = re.compile(r"tf_gpu_private_\d+$")  # TF_GPU_THREAD_MODE=gpu_private
_OF_STREAMS = {
    "Compute": "compute",
    "Kernel": "compute",
    "MemcpyH2D": "copies in",
    "MemcpyD2H": "copies out",
    "MemcpyD2D": "copies inside",
    "MemcpyP2P": "copies to devices",
}


def recorded_name(trace: Trace, line: int) -> str:
    """A thread's or a stream's own name."""
    return (trace.lines.names[line] or f"thread {trace.lines.ids[line]}")[:_LONGEST]


def _short_plane(name: str) -> str:
    return name.removeprefix("/device:").rpartition("/")[2]


def _known_name(name: str, *, runs_steps: bool) -> tuple[str, bool]:
    """The words for a thread or stream, and whether several of the kind are to be numbered."""
    stream = _STREAM.match(name)
    if stream:
        kinds = dict.fromkeys(_OF_STREAMS.get(kind, kind) for kind in stream[2].split(","))
        words = "compute" if "compute" in kinds else ", ".join(kinds)
        return f"{words} #{stream[1]}", False
    if _PYTHON.match(name):
        return ("Python (steps)" if runs_steps else "Python"), not runs_steps
    thread = _THREAD.match(name)
    if not thread:
        return name, False
    pool = _POOLS.get(thread[1], thread[1])
    for pattern, words in ((_EIGEN, "intra-op worker"), (_GPU_PRIVATE, "gpu_private worker")):
        pool = words if pattern.match(pool) else pool
    return pool, True


def lane_names(trace: Trace, lanes: Lanes) -> list[str]:
    """What to call each of the G lines that are shown; threads of a pool are numbered in reading order."""
    entries: list[tuple[str, bool]] = []
    for position, line in enumerate(lanes.lines.tolist()):
        plane = trace.planes[trace.lines.plane[line]]
        name, is_numbered = _known_name(
            recorded_name(trace, line), runs_steps=position == lanes.steps_line
        )
        others = sum(1 for other in trace.planes if other.is_host == plane.is_host)
        if not plane.is_host or others > 1:
            name = f"{_short_plane(plane.name)} {name}".strip()
        entries.append((name[:_LONGEST], is_numbered))
    sizes = Counter(entries)
    numbers: Counter[str] = Counter()
    names = []
    for entry in entries:
        name, is_numbered = entry
        if is_numbered and sizes[entry] > 1:
            numbers[name] += 1
            name = f"{name} {numbers[name]}"
        names.append(name)
    return names


def derived_of(trace: Trace, lanes: Lanes) -> list[str]:
    """For each of the G lines the device whose work it only repeats in other words; "" for all others."""
    raw = raw_device_lines(trace)
    return [
        _short_plane(trace.planes[trace.lines.plane[line]].name)[:_LONGEST]
        if trace.is_device_line[line] and not raw[line]
        else ""
        for line in lanes.lines.tolist()
    ]
