"""The plane, line, event and stat names that profnb relies on, each with its source.

Sources: XPL = openxla/xla xla/tsl/profiler/utils/xplane_schema.cc (5a3e9fa3), STEP = openxla/xprof
xprof/convert/xplane_to_step_events.cc (a27d00aa), CUPTI = openxla/xla cupti_buffer_events.cc,
TF = tensorflow/python (2.21), profnb = written by our own markers.
"""

import re

__all__ = [
    "CONSUMER_ID",
    "CONSUMER_TYPE",
    "CORRELATION_ID",
    "DERIVED_LINES",
    "EXECUTOR_PROCESS",
    "FUNCTION_CALL",
    "GRAPH_RUNS",
    "GRAPH_TYPE",
    "GROUP_ID",
    "IMPLICIT_ROOTS",
    "IS_ABANDONED",
    "ITERATIONS",
    "MARKER_SOURCE",
    "PRODUCER_ID",
    "PRODUCER_TYPE",
    "ROOT_LEVEL",
    "STEPS_LINE",
    "STEP_NUM",
    "TF_OP",
    "XLA_OPS_LINE",
    "copy_direction",
    "copy_direction_of_details",
    "is_collective",
    "is_device_plane",
    "is_host_plane",
    "split_graph_device",
]

# Planes (XPL).
_HOST_PLANE = "/host:CPU"
_DEVICE_PREFIXES = ("/device:GPU:", "/device:TPU:")

GRAPH_RUNS = "session"  # the plane of ours that marks the runs of a TF1 session

# Lines that a profiler derived from other lines of the same device plane; counting them as well
# would count the work twice (XPL kStepLineName and its neighbours).
STEPS_LINE = "Steps"
XLA_OPS_LINE = "XLA Ops"
DERIVED_LINES = frozenset(
    {
        STEPS_LINE,
        "TensorFlow Name Scope",
        "TensorFlow Ops",
        "Framework Name Scope",
        "Framework Ops",
        "XLA Modules",
        XLA_OPS_LINE,
        "XLA TraceMe",
        "Source code",
        "Launch Stats",
    }
)

# Event names (XPL, TF).
EXECUTOR_PROCESS = "ExecutorState::Process"
IMPLICIT_ROOTS = frozenset({"FunctionRun", "SessionRun", "RunGraph", EXECUTOR_PROCESS})

# Stat names (XPL).
ROOT_LEVEL = "_r"
STEP_NUM = "step_num"
PRODUCER_TYPE, PRODUCER_ID = "_pt", "_p"
CONSUMER_TYPE, CONSUMER_ID = "_ct", "_c"
CORRELATION_ID = "correlation_id"
HLO_MODULE = "hlo_module"
GROUP_ID = "group_id"
GRAPH_TYPE = "graph_type"
TF_OP = "tf_op"
# Set by tf.function's own trace event: "traced-nonXla", "notTraced-xla", ... (TF
# polymorphic_function.py Function.__call__).
FUNCTION_CALL = "tf_function_call"

# Stat names of our markers (profnb). A stat name that starts with "_" is internal to the profiler
# for every viewer; TensorBoard ignores these.
MARKER_SOURCE = "profnb_marker"
ITERATIONS = "profnb_iterations"
IS_ABANDONED = "profnb_abandoned"


def is_host_plane(name: str) -> bool:
    """Whether a plane of this name holds the host's threads."""
    return name == _HOST_PLANE


def is_device_plane(name: str) -> bool:
    """Whether a plane of this name is a GPU, or a TPU core."""
    return name.startswith(_DEVICE_PREFIXES) and "SparseCore" not in name


def split_graph_device(device: str) -> tuple[str, str, str]:
    """Where the events of a device string of TF1's ``StepStats`` belong: (plane, line, side).

    ``/device:GPU:0/stream:13`` is the line ``stream:13`` of the device ``/device:GPU:0``. A string
    without a stream, ``/job:localhost/replica:0/task:0/device:GPU:0`` as well, is a host plane: the
    executor's threads that ran (on a CPU) or enqueued (on a GPU) the ops placed there.

    Source: Timeline._is_gputrace_device in tensorflow/python/client/timeline.py (2.21).
    """
    plane, separator, stream = device.partition("/stream:")
    if separator:
        return plane, f"stream:{stream}", "device"
    if device.endswith("/memcpy"):
        return device.removesuffix("/memcpy"), "memcpy", "device"
    return device, "", "host"


# Copies, by CUPTI's names (``MemcpyH2D``), the ones TF1 and PyTorch write (``MEMCPYHtoD``, ``Memcpy HtoD
# (Pageable -> Device)``) and ROCm's. CUPTI = xla cupti_buffer_events.cc AddMemcpyActivityEvent.
_COPY_DIRECTIONS = (
    (("memcpyh2d", "memcpyhtod"), "host to device"),
    (("memcpyd2h", "memcpydtoh"), "device to host"),
    (("memcpyp2p", "memcpyptop"), "peer to peer"),
    (("memcpyd2d", "memcpydtod"), "device to device"),
    (("memcpyh2h", "memcpyhtoh"), "host to host"),
    (("memcpy",), "other"),
    (("memset",), "set"),
)
# HIP's own names, ``CopyDeviceToDevice`` and ``CopyHostToDevice2D`` (ROCm clr, rocclr activity names).
_HIP_COPY = re.compile(r"Copy(Host|Device)To(Host|Device)(2D|3D)?")
_DETAIL = re.compile(r"kind(_src|_dst)?:(\S+)")
_COLLECTIVE_PREFIXES = ("nccl", "rccl")


def copy_direction(name: str) -> str | None:
    """The direction in which an event of this name moves bytes, or None if it is no copy.

    ``MemcpyH2D`` and PyTorch's ``Memcpy HtoD (Pageable -> Device)`` are "host to device".

    A TF1 copy is named after the edge it serves, its kind comes after the colon:
    ``edge_15_IteratorGetNext:MEMCPYHtoD``.
    """
    start = name[:48].lower()
    if "memcpy" not in start and "memset" not in start:
        hip = _HIP_COPY.fullmatch(name)
        if hip:
            return f"{hip[1]} to {hip[2]}".lower()
        tail = name.rpartition(":")[2].lower()
        if not tail.startswith("memcpy"):
            return None
        start = tail
    compact = start.rpartition(":")[2].replace(" ", "")
    for prefixes, direction in _COPY_DIRECTIONS:
        if compact.startswith(prefixes):
            return direction
    return None


def copy_direction_of_details(details: str) -> str:
    """The direction that a ``memcpy_details`` stat tells, "other" where it tells none.

    ``kind_src:pageable kind_dst:device size:4096 dest:0 async:1`` (CUPTI) is "host to device",
    ``kind:HostToDevice size:4096 dest:0 async:1`` (ROCm) too.

    Source: ToXStat of MemcpyDetails in openxla/xla cupti_buffer_events.cc and rocm_collector.cc (5a3e9fa3).
    """
    kinds = dict(_DETAIL.findall(details[:200]))
    if "_src" in kinds and "_dst" in kinds:
        ends = [
            "device" if kinds[end] in ("device", "array") else "host" for end in ("_src", "_dst")
        ]
        return " to ".join(ends)
    kind = kinds.get("", "")
    return copy_direction(f"Copy{kind}") or copy_direction(f"Memcpy{kind}") or "other"


def is_collective(name: str) -> bool:
    """Whether a kernel of this name exchanges data between devices."""
    return name.lower().startswith(_COLLECTIVE_PREFIXES)
