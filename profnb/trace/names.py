"""The plane, line, event and stat names that profnb relies on, each with its source.

Sources: XPL = openxla/xla xla/tsl/profiler/utils/xplane_schema.cc (5a3e9fa3), STEP = openxla/xprof
xprof/convert/xplane_to_step_events.cc (a27d00aa), CUPTI = openxla/xla cupti_buffer_events.cc,
TF = tensorflow/python (2.21), profnb = written by our own markers.
"""

import re

# PyTorch's step marker, and what profnb's capture writes of it (``capture.profiler.torch_door``).
KINETO_STEP, KINETO_FACTS = "ProfilerStep#", "profnb.step#"
# The call of a layer, likewise (``capture.profiler.torch_watch``): its path stands behind it.
KINETO_SCOPE = "profnb.layer#"
# A reading of ``time.perf_counter_ns``, which stands behind it, likewise; and what it is read as.
KINETO_CLOCK, CLOCK_EVENT, CLOCK_NS = "profnb.clock#", "profnb.clock", "profnb_clock_ns"
# How many examples a step took, of batches of a ``DataLoader``.
EXAMPLES = "profnb_examples"
# Keras fetching a batch, as profnb's capture marks it on JAX and PyTorch.
NEXT_BATCH = "profnb.next_batch"

# The ops that call back into Python, which runs on one core whatever it does (TF ops/script_ops.py).
PYTHON_OPS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")

# Planes (XPL).
_HOST_PLANE = "/host:CPU"
_DEVICE_PREFIXES = ("/device:GPU:", "/device:TPU:")

GRAPH_RUNS = "session"  # the plane of ours that marks the runs of a TF1 session

# Lines that a profiler derived from other lines of the same device plane; counting them as well
# would count the work twice (XPL kStepLineName and its neighbours).
STEPS_LINE = "Steps"
XLA_OPS_LINE, XLA_MODULES_LINE = "XLA Ops", "XLA Modules"
DERIVED_LINES = frozenset(
    {
        STEPS_LINE,
        "TensorFlow Name Scope",
        "TensorFlow Ops",
        "Framework Name Scope",
        "Framework Ops",
        XLA_MODULES_LINE,
        XLA_OPS_LINE,
        "XLA TraceMe",
        "Source code",
        "Launch Stats",
    }
)

# Event names (XPL, TF).
EXECUTOR_PROCESS = "ExecutorState::Process"
FUNCTION_RUNS = (
    "InstantiatedCapturedFunction::Run"  # of a user's function in tf.data: how names begin
)
IMPLICIT_ROOTS = frozenset({"FunctionRun", "SessionRun", "RunGraph", EXECUTOR_PROCESS})

# Stat names (XPL).
ROOT_LEVEL = "_r"
STEP_NUM = "step_num"
PRODUCER_TYPE, PRODUCER_ID = "_pt", "_p"
CONSUMER_TYPE, CONSUMER_ID = "_ct", "_c"
CORRELATION_ID = "correlation_id"
HLO_MODULE = "hlo_module"
RUN_ID, DEVICE_ORDINAL = (
    "run_id",
    "device_ordinal",
)  # of a TPU's program, and of the call that enqueues it
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
TAPE_NUMBER, TAPE_SITE = "profnb_tape", "profnb_tape_site"


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
# Kernels that are copies: ROCm moves and fills memory with them (clr, rocclr device/blitcl.cpp); in which
# direction only the call tells.
_BLIT_KERNELS = (("__amd_rocclr_copybuffer", "other"), ("__amd_rocclr_fillbuffer", "set"))
_COPYING_CALL = re.compile(r"(?:cuda|hip|cu)Memcpy(HtoD|DtoH|DtoD|PtoP)")
# HIP's own names, ``CopyDeviceToDevice`` and ``CopyHostToDevice2D`` (ROCm clr, rocclr activity names).
_HIP_COPY = re.compile(r"Copy(Host|Device)To(Host|Device)(2D|3D)?")
# XLA's own copies on a TPU, named by the whole instruction; the layouts tell the memories, S(5) is the host's
# (xla Layout::kHostMemorySpace). Both name the tuple (destination, source, context) of the copy.
_HLO_COPY = re.compile(r"%?copy-(?:start|done)\b(?:.*?= \(|.*?\(\()?(.*)")
_LAYOUT = re.compile(r"\{[^}]*\}")
_HOST_MEMORY = "S(5)"
_DETAIL = re.compile(r"kind(_src|_dst)?:(\S+)")
_COLLECTIVE_PREFIXES = ("nccl", "rccl")
_HLO_COLLECTIVE = re.compile(
    r"%?(all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-[a-z]+)\b"
    # By JAX's primitives, as it names instructions since 0.10.
    r"|%?(psum|pmax|pmin|all_gather|all_to_all|ragged_all_to_all|reduce_scatter|ppermute)(_invariant)?"
    r"(\.\d+)*( =|$)"
)


def copy_direction(name: str) -> str | None:
    """The direction in which an event of this name moves bytes, or None if it is no copy.

    ``MemcpyH2D`` and PyTorch's ``Memcpy HtoD (Pageable -> Device)`` are "host to device".

    A TF1 copy is named after the edge it serves, its kind comes after the colon:
    ``edge_15_IteratorGetNext:MEMCPYHtoD``.
    """
    start = name[:48].lower()
    if start.startswith(("%copy-", "copy-")):
        return _hlo_copy_direction(name)
    for prefix, direction in _BLIT_KERNELS:
        if start.startswith(prefix):
            return direction
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


def copy_direction_of_call(name: str) -> str | None:
    """The direction in which a driver's call copies, where its name tells: ``hipMemcpyHtoDAsync``."""
    call = _COPYING_CALL.match(name)
    return copy_direction(f"Memcpy{call[1]}") if call else None


def _hlo_copy_direction(name: str) -> str | None:
    """The direction of XLA's asynchronous copies, and of waiting for them; None for what is none."""
    hlo_copy = _HLO_COPY.match(name[:2000])
    if hlo_copy is None:
        return None
    memories = _LAYOUT.findall(hlo_copy[1])[:2]
    if len(memories) < 2:
        return "other"
    to, source = ("host" if _HOST_MEMORY in memory else "device" for memory in memories)
    return f"{source} to {to}"


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
    """Whether a kernel or an instruction of this name exchanges data between devices."""
    if name.lower().startswith(_COLLECTIVE_PREFIXES):
        return True
    return _HLO_COLLECTIVE.match(name) is not None


# Exchange between workers as the host records it: ops of TensorFlow (also Horovod's) and what runs them,
# XLA's on a CPU with its meeting point, and what PyTorch and its backends on a CPU call it.
_COLLECTIVE_OP = re.compile(
    r"(Collective|Horovod|_?Nccl)[A-Z]\w*|AllReduce|AllGather|AllToAll|ReduceScatter|CrossReplicaSum"
)
_COLLECTIVE_RUNS = (
    "CollectiveExecutor::",
    "BaseCollectiveExecutor::",
    "CollectiveOpV2Kernel::",
    "CollectiveOp::",
)
_MEETINGS = ("Rendezvous", "InProcessCommunicator", "GlooCommunicator", "MpiCommunicator")
BACKEND_CALLS = ("gloo:", "mpi:")  # PyTorch's annotations, on threads of the backends
_TRANSFERS = ("_Recv", "_Send", "_HostRecv", "_HostSend")
_FEEDS = ("_recv_", "_send_", "_retval", "_arg")


def is_host_collective(name: str) -> bool:
    """Whether a host event of this name waits for and exchanges with other workers or replicas.

    ``CollectiveReduceV2:CollectiveReduceV2`` and what runs it, XLA's ``all-reduce.1`` on a CPU and its
    ``Rendezvous``, ``HorovodAllreduce``; not ``GatherV2``, which looks up rows.
    """
    if name.startswith((*_COLLECTIVE_RUNS, *BACKEND_CALLS)) or _HLO_COLLECTIVE.match(name):
        return True
    if name.startswith(_MEETINGS) or name.endswith("::Rendezvous"):
        return True
    _, colon, op_type = name.rpartition(":")
    return bool(colon) and _COLLECTIVE_OP.fullmatch(op_type) is not None


def is_host_transfer(name: str) -> bool:
    """Whether a host event of this name sends a value to another device's executor or waits for one.

    Feeds and fetches of a session (``_recv_x_0:_Recv`` in old versions) are none.
    """
    if name.startswith("RecvTensor"):
        return True
    op_name, _, op_type = name.rpartition(":")
    return op_type in _TRANSFERS and not op_name.startswith(_FEEDS)
