"""Events to activities: what the host or a device was doing, as one of a few kinds with an order of priority.

Without a device, work of ops is host compute. Beside a device the host mostly prepares and launches the
device's work: executors, eager dispatch and runtimes are that, and only an op that computes on the CPU is
host compute. A call that copies counts by what it copies, a call that starts kernels is a launch, and waiting
for a result is output, as reading it back is.

Source: openxla/xprof xprof/utils/event_span.h (a27d00aa), from which ``breakdown`` says where we depart.
"""

import numpy as np

from profnb.core.columns import Bools, Int8s, Int32s, Int64s
from profnb.steps.compilation import is_compilation
from profnb.steps.launching import (
    FunctionRuns,
    find_function_runs,
    find_launches,
    work_of_pipelines,
)
from profnb.steps.nesting import has_inside, is_inside
from profnb.steps.streams import (
    COLLECTIVE,
    DIRECTIONS,
    directions_of_copies,
    kinds_of_work,
    raw_device_lines,
)
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import (
    BACKEND_CALLS,
    FUNCTION_CALL,
    HLO_MODULE,
    NEXT_BATCH,
    is_host_collective,
    is_host_transfer,
    parse_op,
)

CATEGORIES = (
    "device compute", "device to device", "device collectives", "host compute", "kernel launch", "input",
    "output", "compilation", "all others",
)  # fmt: skip

# Activities in order of priority (a later one wins) and the category that each is charged to: the host's
# first, then the device's.
ACTIVITIES = (
    "all others",
    "output",  # Python waiting for a result
    "compilation",  # a function being traced, where none of its ops is at work
    "host compute",  # frames around ops, where other workers are waited for inside
    "kernel launch",  # preparing work for a device: executors, eager dispatch, runtimes
    "device to device",  # sending values to other executors, and waiting for theirs
    "device collectives",  # waiting for other workers and exchanging with them, on the host
    "output",  # a call of the driver that waits for what the device does
    "host compute",
    "compilation",
    "host compute",  # programs of XLA on the CPU's own threads, whatever Python compiles meanwhile
    "kernel launch",  # a call that starts kernels
    "device to device",  # a call that copies so
    "output",  # likewise
    "input",  # likewise
    "input",  # waiting for the next element
    "input",  # a copy from host to device
    "device collectives",
    "device to device",
    "output",
    "device compute",
)
NOTHING, AWAITING, TRACING, _FRAME, DISPATCH, _TRANSFERRING, EXCHANGING = range(7)
SYNCHRONISING, HOST_COMPUTE, COMPILING, _PROGRAM, _LAUNCH = range(7, 12)
_COPYING_ACROSS, COPYING_OUT, COPYING_IN, WAITING_FOR_INPUT = range(12, 16)
HOST_TO_DEVICE, COLLECTIVES, _DEVICE_TO_DEVICE, _OUTPUT, DEVICE_COMPUTE = range(16, 21)
FIRST_OF_DEVICE = HOST_TO_DEVICE
AT_WORK: Bools = np.zeros(len(ACTIVITIES), np.bool_)  # what does work itself and waits for no other
AT_WORK[[HOST_COMPUTE, COMPILING, _PROGRAM]] = AT_WORK[FIRST_OF_DEVICE:] = True

# Wrappers around work that is recorded on its own, and frames of the Python tracer ("$file:1 f").
# What Horovod's ranks say to each other, and tf.data's elements as SageMaker names them, is no op's work.
_NOT_WORK = (
    "EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun", "$", "NEGOTIATE_",
    "dataset::GetNext",
)  # fmt: skip
# A program that XLA runs on a CPU; with "(wait for completion)" its own threads compute.
XLA_ON_CPU = "ThunkExecutor::Execute"
# Beside a device: Python's frames, and threads of tf.data.
_NO_WORK_BESIDE_DEVICE = ("$", "Iterator")
# JAX waiting for a result: its runtime, and Python's frame around it ("$api.py:2551 block_until_ready").
_AWAITING_RESULT = ("BufferSequencingEvent::Execute", "np.asarray(jax.Array)", "block_until_ready")
# XLA's runtime moving the program's arrays into memory that the device can read, and results out of it.
_STAGING = {
    "H2D Dispatch": COPYING_IN, "D2H Dispatch": COPYING_OUT, "D2H Copy From Staging Buffer": COPYING_OUT,
}  # fmt: skip
_COPIES = {
    "host to device": HOST_TO_DEVICE,
    "device to host": _OUTPUT,
    "device to device": _DEVICE_TO_DEVICE,
    "peer to peer": _DEVICE_TO_DEVICE,
    "other": _DEVICE_TO_DEVICE,
}
_CALLS = {
    HOST_TO_DEVICE: COPYING_IN,
    _OUTPUT: COPYING_OUT,
    _DEVICE_TO_DEVICE: _COPYING_ACROSS,
}
_TAKES_ELEMENTS = (
    "QueueDequeue",
    "Unstage",
    "MapUnstage",
    "OrderedMapUnstage",
    "ReaderRead",
)  # op types
_GRAPH_BUILDING, _TAKES_IN = "tf.function-graph_building", "TFE_Py_Execute"
# Calls of the drivers and runtimes, in traces whose ops are marked as such (PyTorch's).
_RUNTIME = ("cuda", "cu", "hip", "xpu", "ze")
# An op without a launch inside that takes this long computes on the CPU; what is shorter (a reshape, a
# constant, bookkeeping) prepares the ops that launch.
_SHORTEST_COMPUTE_PS = 50_000_000


def _is_input_wait(name: str) -> bool:
    """Whether an event waits for the next element, or makes it where it is asked for.

    ``IteratorGetNext/_1:_Send`` copies it to a device; PyTorch's ``enumerate(DataLoader)#..._next`` makes the
    batch on the spot where there are no workers. TF1's queues feed by dequeuing, a staging area by unstaging,
    readers by reading; a queue of tokens only synchronises workers.
    """
    if name == NEXT_BATCH or name.startswith("enumerate(DataLoader)"):
        return True
    if name.rpartition(":")[2].startswith(_TAKES_ELEMENTS):
        return "token" not in name
    return name.lower().startswith("iteratorgetnext") and not name.endswith("Send")


def _host_lane(name: str) -> int:
    if name.startswith(_NOT_WORK):
        return NOTHING
    if _is_input_wait(name):
        return WAITING_FOR_INPUT
    return COMPILING if is_compilation(name) else HOST_COMPUTE


def _host_lane_beside_device(name: str) -> int:
    """A host event's lane where there is a device, before its launches and its own ops are known."""
    if _is_input_wait(name):
        return WAITING_FOR_INPUT
    if name.endswith(":_Send"):
        return COPYING_IN
    if name.endswith(_AWAITING_RESULT):
        return AWAITING
    if name.startswith(_NO_WORK_BESIDE_DEVICE):
        return NOTHING
    lane = SYNCHRONISING if "Synchronize" in name else _STAGING.get(name, DISPATCH)
    return COMPILING if is_compilation(name) else lane


def _device_lanes(trace: Trace) -> Int8s:
    """The lane of each event of a device, shape (E,)."""
    of_direction = [_COPIES.get(direction, DEVICE_COMPUTE) for direction in DIRECTIONS]
    events = trace.lines.events_of(trace.is_device_line)
    copies = np.array([*of_direction, DEVICE_COMPUTE], np.int8)[directions_of_copies(trace, events)]
    lanes = np.zeros(len(trace.events), np.int8)
    is_collective = kinds_of_work(trace, events) == COLLECTIVE
    lanes[events] = np.where(is_collective, np.int8(COLLECTIVES), copies)
    return lanes


def find_activities(
    trace: Trace,
    steps: Steps,
    device: int | None,
    parent: Int32s,
    function_runs: FunctionRuns | None = None,
) -> Int8s:
    """What each event is, as index into ``ACTIVITIES``, shape (E,), int8.

    Args:
        trace: The trace.
        steps: Its steps; what marks them is no activity.
        device: The plane whose work counts; None for all.
        parent: Index of each event's parent on its line, or -1, shape (E,).
        function_runs: Runs of users' functions in tf.data; found if not given.
    """
    if function_runs is None:
        function_runs = find_function_runs(trace)
    texts = trace.names.texts
    raw = raw_device_lines(trace)
    has_events = np.diff(trace.lines.offsets) > 0
    if not (trace.is_device_line & has_events).any():
        host = np.fromiter(map(_host_lane, texts), np.int8, len(texts))
        if trace.is_op_name is not None:  # Python's frames and the user's annotations are no ops
            is_backend = np.array([name.startswith(BACKEND_CALLS) for name in texts], np.bool_)
            host[~trace.is_op_name & ~is_backend & (host == HOST_COMPUTE)] = NOTHING
        lanes = trace.by_name(host) * trace.is_host_event
        _mark_exchange(trace, lanes)
        lanes[work_of_pipelines(trace, lanes == HOST_COMPUTE, function_runs)] = NOTHING
        is_program = trace.select_names(lambda name: name.startswith(XLA_ON_CPU))
        is_program[trace.stats.texts(HLO_MODULE).events] = True
        lanes[is_program & (lanes == HOST_COMPUTE)] = _PROGRAM
        _mark_tracing(trace, parent, lanes)
        lanes[steps.roots] = NOTHING  # a marker covers its whole step and explains none of it
        return lanes
    host = np.fromiter(map(_host_lane_beside_device, texts), np.int8, len(texts))
    if trace.is_op_name is not None:
        # What is neither op nor runtime is Python's, or the user's annotation.
        is_runtime = np.array([name.startswith(_RUNTIME) for name in texts], np.bool_)
        host[~trace.is_op_name & ~is_runtime & (host == DISPATCH)] = NOTHING
    lanes = trace.by_name(host) * trace.is_host_event
    lanes[trace.select_names(is_host_collective) & (lanes == DISPATCH)] = EXCHANGING
    _mark_tracing(trace, parent, lanes)
    of_work = _device_lanes(trace)
    launches, launched = find_launches(trace)
    is_call = np.zeros(len(trace.events), np.bool_)
    is_call[launches] = True
    on_cpu = _cpu_ops(trace, parent, is_call)
    on_cpu = on_cpu[~np.isin(lanes[on_cpu], (WAITING_FOR_INPUT, EXCHANGING))]
    is_on_cpu = np.zeros(len(trace.events), np.bool_)
    is_on_cpu[on_cpu] = True
    lanes[is_on_cpu] = HOST_COMPUTE
    lanes[work_of_pipelines(trace, is_on_cpu, function_runs)] = NOTHING
    work = of_work[launched]
    call = np.array([_CALLS.get(lane, _LAUNCH) for lane in range(len(ACTIVITIES))], np.int8)
    if device is not None:
        raw &= trace.lines.plane == device
    on_device = raw[trace.lines.of_event]
    chosen = on_device[launched]
    lanes[launches] = NOTHING
    # A call that starts a graph of kernels and copies counts as the copy.
    np.maximum.at(lanes, launches[chosen], call[work[chosen]])
    lanes[trace.is_device_line[trace.lines.of_event]] = NOTHING
    lanes[on_device] = of_work[on_device]
    lanes[steps.roots] = NOTHING
    return lanes


def _mark_exchange(trace: Trace, lanes: Int8s) -> None:
    """Charge what waits for others to that where no op computes; what only frames it, to its wait.

    Without such an event nothing changes: a call that runs a function is then as much work as its ops.
    """
    on_host = lanes == HOST_COMPUTE
    exchanges = trace.select_names(is_host_collective) & on_host
    transfers = trace.select_names(is_host_transfer) & on_host
    if not exchanges.any() and not transfers.any():
        return
    is_op = trace.select_names(lambda name: parse_op(name) is not None)
    if trace.is_op_name is not None:
        is_op = trace.is_op_name[trace.events.name]
    is_op[trace.stats.texts(HLO_MODULE).events] = True
    lanes[on_host & ~is_op] = _FRAME
    lanes[transfers] = _TRANSFERRING
    lanes[exchanges] = EXCHANGING


def _mark_tracing(trace: Trace, parent: Int32s, lanes: Int8s) -> None:
    """Charge the calls in which a ``tf.function`` was traced to that, but for what its ops compute.

    The graph is built in the call; then the runtime takes the function in, which is the rest of it.
    """
    building = np.flatnonzero(trace.select_named(_GRAPH_BUILDING))
    lanes[building[trace.is_host_event[building]]] = COMPILING
    calls = trace.stats.texts(FUNCTION_CALL)
    if not len(calls):
        return
    traced = np.array([text.startswith("traced") for text in calls.texts], np.bool_)
    is_traced = np.zeros(len(trace.events) + 1, np.bool_)  # the last one is nobody's parent
    is_traced[calls.events[traced[calls.values]]] = True
    takes_in = np.flatnonzero(trace.select_names(lambda name: name.startswith(_TAKES_IN)))
    lanes[takes_in[is_traced[parent[takes_in]]]] = NOTHING
    lanes[np.flatnonzero(is_traced)] = TRACING


def _cpu_ops(trace: Trace, parent: Int32s, is_call: Bools) -> Int64s:
    """The ops that compute on the CPU in a trace with a device: outermost ones, long, that launch nothing."""
    is_op = trace.select_names(
        lambda name: parse_op(name) is not None and not name.startswith("Iterator")
    )
    if trace.is_op_name is not None:
        is_op = trace.is_op_name[trace.events.name]
    # TF1's timelines record no launches; there the plane tells where an op was placed.
    placed = ["device:" in plane.name for plane in trace.planes if plane.is_host]
    if not is_call.any() and not any(placed):
        return np.empty(0, np.int64)
    enqueues_on = np.array(["GPU" in plane.name for plane in trace.planes], np.bool_)
    enqueues = enqueues_on[trace.lines.plane[trace.lines.of_event]]
    is_op = is_op & trace.is_host_event & ~enqueues
    is_long = trace.events.duration_ps >= _SHORTEST_COMPUTE_PS
    ops = np.flatnonzero(is_op & is_long & ~has_inside(parent, is_call))
    return ops[~is_inside(parent, is_op, ops)]
