"""The plane, line, event and stat names that profnb relies on, each with its source.

Sources: XPL = openxla/xla xla/tsl/profiler/utils/xplane_schema.cc (5a3e9fa3), STEP = openxla/xprof
xprof/convert/xplane_to_step_events.cc (a27d00aa), CUPTI = openxla/xla cupti_buffer_events.cc,
TF = tensorflow/python (2.21), profnb = written by our own markers.
"""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import pairwise
from os.path import commonprefix

from profnb.core.printable import cut_middle

# PyTorch's step marker, and what profnb's capture writes of it (``capture.profiler.torch_door``).
KINETO_STEP, KINETO_FACTS = "ProfilerStep#", "profnb.step#"
# The call of a layer, likewise (``capture.profiler.torch_watch``): its path stands behind it.
KINETO_SCOPE = "profnb.layer#"
# A reading of ``time.perf_counter_ns``, which stands behind it, likewise; and what it is read as.
KINETO_CLOCK, CLOCK_EVENT, CLOCK_NS = "profnb.clock#", "profnb.clock", "profnb_clock_ns"
# What the user marked: a range of NVTX, or ``record_function`` of PyTorch.
USER_RANGE = "profnb_range"
# Of a plane: which profiler recorded it, where the format alone does not tell the framework.
RECORDER = "profnb_recorder"
ONNX_RUNTIME = "ONNX Runtime"
# How many examples a step took, of batches of a ``DataLoader``.
EXAMPLES = "profnb_examples"
# Keras fetching a batch, as profnb's capture marks it on JAX and PyTorch.
NEXT_BATCH = "profnb.next_batch"

# A call of a function that JAX compiled, whose name stands behind it, in brackets (jaxlib).
JIT_CALL = "PjitFunction("

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
DERIVED_LINES = frozenset({
    STEPS_LINE, "TensorFlow Name Scope", "TensorFlow Ops", "Framework Name Scope", "Framework Ops",
    XLA_MODULES_LINE, XLA_OPS_LINE, "XLA TraceMe", "Source code", "Launch Stats",
})  # fmt: skip

# Event names (XPL, TF).
EXECUTOR_PROCESS = "ExecutorState::Process"
FUNCTION_RUNS = "InstantiatedCapturedFunction::Run"  # of functions in tf.data: how names begin
IMPLICIT_ROOTS = frozenset({"FunctionRun", "SessionRun", "RunGraph", EXECUTOR_PROCESS})

# Stat names (XPL).
ROOT_LEVEL = "_r"
STEP_NUM = "step_num"
PRODUCER_TYPE, PRODUCER_ID = "_pt", "_p"
CONSUMER_TYPE, CONSUMER_ID = "_ct", "_c"
CORRELATION_ID = "correlation_id"
HLO_MODULE = "hlo_module"
# Of a TPU's program, and of the call that enqueues it.
RUN_ID, DEVICE_ORDINAL = "run_id", "device_ordinal"
GROUP_ID = "group_id"
GRAPH_TYPE = "graph_type"
TF_OP = "tf_op"
ALLOCATION, DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
# Set by tf.function's own trace event: "traced-nonXla", "notTraced-xla", ... (TF
# polymorphic_function.py Function.__call__).
FUNCTION_CALL = "tf_function_call"

# Stat names of our markers (profnb). A stat name that starts with "_" is internal to the profiler
# for every viewer; TensorBoard ignores these.
MARKED_BY = "profnb_marker"
ITERATIONS = "profnb_iterations"
IS_ABANDONED = "profnb_abandoned"
IS_APART = "profnb_apart"  # what ran between the step before and this one was not recorded
TAPE_NUMBER, TAPE_SITE = "profnb_tape", "profnb_tape_site"


def is_host_plane(name: str) -> bool:
    """Tell whether a plane of this name holds the host's threads."""
    return name == _HOST_PLANE


def is_device_plane(name: str) -> bool:
    """Tell whether a plane of this name is a GPU, or a TPU core."""
    return name.startswith(_DEVICE_PREFIXES) and "SparseCore" not in name


def split_graph_device(device: str) -> tuple[str, str, str]:
    """Tell where the events of a device string of TF1's ``StepStats`` belong: (plane, line, side).

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
_COPY = re.compile(r"(memcpy|memset)(?:([hdp])(?:2|to)([hdp]))?")
_COPY_DIRECTIONS = {
    ("h", "d"): "host to device", ("d", "h"): "device to host", ("p", "p"): "peer to peer",
    ("d", "d"): "device to device", ("h", "h"): "host to host",
}  # fmt: skip
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
    """Find the direction in which an event of this name moves bytes, or None if it is no copy.

    ``MemcpyH2D`` and PyTorch's ``Memcpy HtoD (Pageable -> Device)`` are "host to device".

    A TF1 copy is named after the edge it serves, its kind comes after the colon:
    ``edge_15_IteratorGetNext:MEMCPYHtoD``.
    """
    start = name[:48].lower()
    if start.startswith(("%copy-", "copy-")):  # XLA's asynchronous copies, and waiting for them
        hlo_copy = _HLO_COPY.match(name[:2000])
        if hlo_copy is None:
            return None
        layouts = _LAYOUT.findall(hlo_copy[1])[:2]
        ends = ["host" if _HOST_MEMORY in one else "device" for one in reversed(layouts)]
        return " to ".join(ends) if len(ends) == 2 else "other"
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
    copy = _COPY.match(start.rpartition(":")[2].replace(" ", ""))
    if copy is None:
        return None
    return "set" if copy[1] == "memset" else _COPY_DIRECTIONS.get((copy[2], copy[3]), "other")


def copy_direction_of_call(name: str) -> str | None:
    """Find the direction in which a driver's call copies, where its name tells: ``hipMemcpyHtoDAsync``."""
    call = _COPYING_CALL.match(name)
    return copy_direction(f"Memcpy{call[1]}") if call else None


def copy_direction_of_details(details: str) -> str:
    """Find the direction that a ``memcpy_details`` stat tells, "other" where it tells none.

    ``kind_src:pageable kind_dst:device size:4096 dest:0 async:1`` (CUPTI) is "host to device",
    ``kind:HostToDevice size:4096 dest:0 async:1`` (ROCm) too.

    Source: ToXStat of MemcpyDetails in openxla/xla cupti_buffer_events.cc and rocm_collector.cc (5a3e9fa3).
    """
    kinds = dict(_DETAIL.findall(details[:200]))
    if "_src" in kinds and "_dst" in kinds:
        is_device = [kinds[end] in ("device", "array") for end in ("_src", "_dst")]
        return " to ".join("device" if one else "host" for one in is_device)
    kind = kinds.get("", "")
    return copy_direction(f"Copy{kind}") or copy_direction(f"Memcpy{kind}") or "other"


def is_collective(name: str) -> bool:
    """Tell whether a kernel or an instruction of this name exchanges data between devices."""
    is_library = name.lower().startswith(_COLLECTIVE_PREFIXES)
    return is_library or _HLO_COLLECTIVE.match(name) is not None


# Exchange between workers as the host records it: ops of TensorFlow (also Horovod's) and what runs them,
# XLA's on a CPU with its meeting point, and what PyTorch and its backends on a CPU call it.
_COLLECTIVE_OP = re.compile(
    r"(Collective|Horovod|_?Nccl)[A-Z]\w*|AllReduce|AllGather|AllToAll|ReduceScatter|CrossReplicaSum"
)
_COLLECTIVE_RUNS = (
    "CollectiveExecutor::", "BaseCollectiveExecutor::", "CollectiveOpV2Kernel::", "CollectiveOp::",
)  # fmt: skip
_MEETINGS = ("Rendezvous", "InProcessCommunicator", "GlooCommunicator", "MpiCommunicator")
BACKEND_CALLS = ("gloo:", "mpi:")  # PyTorch's annotations, on threads of the backends
_TRANSFERS = ("_Recv", "_Send", "_HostRecv", "_HostSend")
_FEEDS = ("_recv_", "_send_", "_retval", "_arg")


def is_host_collective(name: str) -> bool:
    """Tell whether a host event of this name waits for and exchanges with other workers or replicas.

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
    """Tell whether a host event of this name sends a value to another device's executor or waits for one.

    Feeds and fetches of a session (``_recv_x_0:_Recv`` in old versions) are none.
    """
    if name.startswith("RecvTensor"):
        return True
    op_name, _, op_type = name.rpartition(":")
    return op_type in _TRANSFERS and not op_name.startswith(_FEEDS)


_TF_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")
_TF_TYPE = re.compile(r"[A-Z_][a-zA-Z0-9_]*")
_JAX_TYPE = re.compile(r"([a-z_][a-z0-9_]*)(\[.*\])?", re.DOTALL)
DATASET = "Dataset"
_MAKER_OF_OP = re.compile(r"_Mkl(?:Native)?|_(?=Fused)")
# What PyTorch calls its exchange between devices (``nccl:all_reduce``): annotations around ops, no ops.
_BACKENDS = frozenset((
    "nccl", "gloo", "hccl", "mpi", "ucc", "xccl", "rccl", "cncl", "mccl", "eccl",
))  # fmt: skip
_PACKING = ("ConcatV2", "SplitV")
_NO_WORD = re.compile(r"\W")
_NUMBER, _NUMBERS = re.compile(r"_\d+$"), re.compile(r"(_\d+)+$")
# Every op of a tf.function carries it; it tells nothing and pushes the layer's name out of sight.
_FUNCTION_CALLS = re.compile(r"(?:(?:Stateful)?PartitionedCall(?:_\d{1,9})?/)+")


@lru_cache(maxsize=1 << 14)  # each rule asks of every name
def parse_op(event_name: str) -> tuple[str, str] | None:
    """Split a host event's name into (op name, op type), or None if it is no op.

    ``model/dense/MatMul:MatMul`` is an op named ``model/dense/MatMul``; ``Iterator::Root::Map`` is an
    op of type Dataset that keeps its full name; ``FunctionRun`` is none.
    """
    name, colon, op_type = event_name.partition(":")
    if not colon or name in _BACKENDS:
        return None
    if name == "Iterator":
        return event_name, DATASET
    if _TF_NAME.fullmatch(name) and _TF_TYPE.fullmatch(op_type):
        return name, op_type
    jax = _JAX_TYPE.fullmatch(op_type)
    if jax:
        return name, jax.group(1)
    return (name, "") if not op_type else None


def plain_type(op_type: str) -> str:
    """Give an op's type without the library that runs it: ``FusedConv2D`` of ``_MklNativeFusedConv2D``."""
    return _MAKER_OF_OP.sub("", op_type, count=1)


def without_call(op_name: str) -> str:
    """Give an op's name without the calls of functions that it stands in."""
    call = _FUNCTION_CALLS.match(op_name)
    return op_name[call.end() :] if call and call.end() < len(op_name) else op_name


def called_function(event_name: str) -> str:
    """Give the user's name of a called function: ``f`` of JAX's ``PjitFunction(f)``."""
    return event_name.removeprefix(JIT_CALL).removesuffix(")" * event_name.startswith(JIT_CALL))


def compiled_program(function: str) -> str:
    """Give XLA's name of the program of a JAX function: ``jit__lambda`` of ``<lambda>``."""
    return f"jit_{_NO_WORD.sub('_', function)}".rstrip("_")


def without_number(name: str) -> str:
    """Give a name without the number that made it unique: ``dense_1`` is ``dense``."""
    return _NUMBER.sub("", name)


def without_numbers(name: str) -> str:
    """Give a name without what Keras and then TensorFlow made it unique by: ``sgd_1_1`` becomes ``sgd``."""
    return _NUMBERS.sub("", name)


def packing_scopes(op_names: Iterable[str]) -> frozenset[str]:
    """The scopes that collectives are directly in, which TensorFlow gives the optimizer's or a layer's name.

    Beside ``sgd/CollectiveReduceV2_1`` stand ``sgd/concat_1``, which packs many gradients into the one tensor
    that is exchanged, and ``sgd/split_1``.
    """
    split = (name.rpartition("/") for name in op_names)
    return frozenset(
        scope
        for scope, _, last_part in split
        if scope and is_host_collective(f":{without_numbers(last_part)}")
    )


def is_packing(op_name: str, op_type: str, scopes: AbstractSet[str]) -> bool:
    """Tell whether an op packs or unpacks what is exchanged, in one of ``packing_scopes``."""
    return op_type in _PACKING and op_name.rpartition("/")[0] in scopes


_NAMESPACES = re.compile(r"\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_{(])")
_RESULT = re.compile(r"(?:void|static|__global__)\s+")
_ANONYMOUS = "(anonymous namespace)::"


def kernel_title(kernel_name: str) -> str:
    """Give a kernel's name without its result, arguments and namespaces; what templates it was made of stays.

    ``void at::native::elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, ...)`` becomes
    ``elementwise_kernel<4, CUDAFunctor_add<float>>``: that tells it from another elementwise one.
    """
    start = _RESULT.sub("", kernel_name, count=1) if _RESULT.match(kernel_name) else kernel_name
    plain = start.replace(_ANONYMOUS, "")
    depth = 0
    for at, char in enumerate(plain):
        depth += (char == "<") - (char == ">" and plain[at - 1 : at] != "-")
        if char == "(" and depth <= 0:
            plain = plain[:at]
            break
    return _NAMESPACES.sub("", plain).replace("> >", ">>").strip() or start


def kernel_titles(kernel_names: Sequence[str], most: int) -> list[str]:
    """Give titles of at most so many characters, for names of one table.

    Of a long one the begin stays, and what tells it from names that begin like it: a functor stands in the
    middle, among a template's arguments.
    """
    titles = [kernel_title(name) for name in kernel_names]
    ordered = sorted(set(titles))
    shared = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):
        alike = len(commonprefix((one, other)))  # noqa: RUF071
        shared[one], shared[other] = max(shared[one], alike), max(shared[other], alike)
    return [_around(title, shared[title], most) for title in titles]


def _around(title: str, place: int, most: int) -> str:
    """Cut a title to its begin and what stands around a place; where that is near, to its begin and end."""
    if len(title) <= most:
        return title
    head = most // 3
    room = most - head - 2
    first = max(min(title.rfind(" ", 0, place + 1) + 1 or place, place), place - room // 2)
    if first <= head or first - head < 2:
        return cut_middle(title, most)
    rest = title[first:]
    end = "…" if len(rest) > room else ""
    return f"{title[:head]}…{rest[:room]}{end}"
