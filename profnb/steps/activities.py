"""Events to activities: what the host or a device was doing, as one of a few kinds with an order of priority.

Without a device, work of ops is host compute. Beside a device the host mostly prepares and launches the
device's work: executors, eager dispatch and runtimes are that, and only an op that computes on the CPU is
host compute. A call that copies counts by what it copies, a call that starts kernels is a launch, and waiting
for a result is output, as reading it back is. What a program's input pipeline does is no step's compute; what
the executor does for a run of a user's function in tf.data carries the run's id, on whatever thread.

Source: openxla/xprof xprof/utils/event_span.h (a27d00aa), from which ``breakdown`` says where we depart.
"""

import re
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int8s, Int32s, Int64s, flags_at, span_at
from profnb.core.joining import number_keys
from profnb.steps.nesting import find_parents, has_inside, is_inside, last_around
from profnb.steps.streams import (
    COLLECTIVE,
    DIRECTIONS,
    copy_directions,
    find_launches,
    kinds_of_work,
    raw_device_lines,
)
from profnb.steps.windows import Steps
from profnb.trace import names as trace_names
from profnb.trace.model import Trace

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
CATEGORY_OF: Int8s = np.array([CATEGORIES.index(name) for name in ACTIVITIES], np.int8)
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
_COPY_ACTIVITIES = {
    "host to device": HOST_TO_DEVICE, "device to host": _OUTPUT,
    **dict.fromkeys(("device to device", "peer to peer", "other"), _DEVICE_TO_DEVICE),
}  # fmt: skip
_CALL_ACTIVITIES = {
    HOST_TO_DEVICE: COPYING_IN, _OUTPUT: COPYING_OUT, _DEVICE_TO_DEVICE: _COPYING_ACROSS,
}  # fmt: skip
# Types of ops.
_TAKES_ELEMENTS = ("QueueDequeue", "Unstage", "MapUnstage", "OrderedMapUnstage", "ReaderRead")
_GRAPH_BUILDING, _TAKES_IN = "tf.function-graph_building", "TFE_Py_Execute"
# Calls of the drivers and runtimes, in traces whose ops are marked as such (PyTorch's).
_RUNTIME_PREFIXES = ("cuda", "cu", "hip", "xpu", "ze")
# An op without a launch inside that takes this long computes on the CPU; what is shorter (a reshape, a
# constant, bookkeeping) prepares the ops that launch.
_SHORTEST_COMPUTE_PS = 50_000_000
# Whatever XLA's own compilers do is compiling; of others a call that says so: JAX's runtime also copies in
# ``PjRtCApiCompiler::BufferFromHostBuffer``.
_ALWAYS = ("backend_compile", "CpuCompiler", "GpuCompiler")
_CALLERS = (
    "Xla", "Pjit", "PjRt", "LocalClient", "Hlo", "CompileCpuExecutable", "CompileGpuExecutable",
)  # fmt: skip
_COMPILES = re.compile(r"Compile(?!r)")
# PyTorch's torch.compile: one function, and the backward pass of one.
FRAME_COMPILES, _BACKWARD_COMPILES = "compile_inner (dynamo_timed)", "_backward_impl (dynamo_timed)"
# What tf.data does for an element, on whatever thread, and its own threads.
_OF_PIPELINES = ("Iterator::", "PrefetchProduce", trace_names.FUNCTION_RUNS)
_PIPELINE_THREADS = ("tf_data_",)


@dataclass(frozen=True, slots=True)
class FunctionRuns:
    """The runs of users' functions in tf.data, R of them, and what worked for each.

    Attributes:
        runs: The runs as events, ascending, shape (R,).
        of_event: The run that each event has the id of, the first of several, as row of ``runs``; -1 for
            none, shape (E,).
    """

    runs: Int64s
    of_event: Int32s


def find_activities(
    trace: Trace,
    steps: Steps,
    device: int | None,
    parent: Int32s,
    function_runs: FunctionRuns | None = None,
) -> Int8s:
    """Find what each event is, as index into ``ACTIVITIES``, shape (E,), int8.

    The work of the plane ``device`` counts, or of all; what marks steps is no activity.
    """
    if function_runs is None:
        function_runs = find_function_runs(trace)
    has_events = np.diff(trace.lines.offsets) > 0
    has_device = (trace.is_device_line & has_events).any()
    of_name, usual, runtime = (
        (_activity_beside_device, DISPATCH, _RUNTIME_PREFIXES)
        if has_device
        else (_activity_without_device, HOST_COMPUTE, trace_names.BACKEND_CALLS)
    )
    texts = trace.names.texts
    by_name = np.fromiter(map(of_name, texts), np.int8, len(texts))
    if trace.is_op_name is not None:
        # What is neither op nor runtime is Python's, or the user's annotation.
        is_runtime = np.array([name.startswith(runtime) for name in texts], np.bool_)
        by_name[~trace.is_op_name & ~is_runtime & (by_name == usual)] = NOTHING
    activity = trace.by_name(by_name) * trace.is_host_event
    if has_device:
        _mark_beside_device(trace, device, parent, function_runs, activity)
    else:
        _mark_exchange(trace, activity)
        activity[work_of_pipelines(trace, activity == HOST_COMPUTE, function_runs)] = NOTHING
        is_program = trace.select_names(lambda name: name.startswith(XLA_ON_CPU))
        is_program[trace.stats.texts(trace_names.HLO_MODULE).events] = True
        activity[is_program & (activity == HOST_COMPUTE)] = _PROGRAM
        _mark_tracing(trace, parent, activity)
    activity[steps.roots] = NOTHING  # a marker covers its whole step and explains none of it
    return activity


def _activity_without_device(name: str) -> int:
    if name.startswith(_NOT_WORK):
        return NOTHING
    if _is_input_wait(name):
        return WAITING_FOR_INPUT
    return COMPILING if is_compilation(name) else HOST_COMPUTE


def _activity_beside_device(name: str) -> int:
    """Tell a host event's activity by its name, before its launches and its own ops are known."""
    if _is_input_wait(name):
        return WAITING_FOR_INPUT
    if name.endswith(":_Send"):
        return COPYING_IN
    if name.endswith(_AWAITING_RESULT):
        return AWAITING
    if name.startswith(_NO_WORK_BESIDE_DEVICE):
        return NOTHING
    if is_compilation(name):
        return COMPILING
    return SYNCHRONISING if "Synchronize" in name else _STAGING.get(name, DISPATCH)


def _is_input_wait(name: str) -> bool:
    """Tell whether an event waits for the next element, or makes it where it is asked for.

    ``IteratorGetNext/_1:_Send`` copies it to a device; PyTorch's ``enumerate(DataLoader)#..._next`` makes the
    batch on the spot where there are no workers. TF1's queues feed by dequeuing, a staging area by unstaging,
    readers by reading; a queue of tokens only synchronises workers.
    """
    if name == trace_names.NEXT_BATCH or name.startswith("enumerate(DataLoader)"):
        return True
    if name.rpartition(":")[2].startswith(_TAKES_ELEMENTS):
        return "token" not in name
    return name.lower().startswith("iteratorgetnext") and not name.endswith("Send")


def is_compilation(name: str) -> bool:
    """Tell whether an event of this name is XLA or ``torch.compile`` compiling a program on the host."""
    if name.endswith((FRAME_COMPILES, _BACKWARD_COMPILES)) or name.startswith(_ALWAYS):
        return True
    compiles = _COMPILES.search(name)
    return compiles is not None and (name.startswith(_CALLERS) or "::Compile" in name)


def _mark_beside_device(
    trace: Trace, device: int | None, parent: Int32s, function_runs: FunctionRuns, activity: Int8s
) -> None:
    """Charge the host's launches by what they launch, its own ops to it, and the device's work to that."""
    exchanges = trace.select_names(trace_names.is_host_collective) & (activity == DISPATCH)
    activity[exchanges] = EXCHANGING
    _mark_tracing(trace, parent, activity)
    on_device = trace.lines.events_of(trace.is_device_line)
    of_direction = [_COPY_ACTIVITIES.get(direction, DEVICE_COMPUTE) for direction in DIRECTIONS]
    work = np.zeros(len(trace.events), np.int8)
    work[on_device] = np.where(
        kinds_of_work(trace, on_device) == COLLECTIVE,
        np.int8(COLLECTIVES),
        np.array([*of_direction, DEVICE_COMPUTE], np.int8)[copy_directions(trace, on_device)],
    )
    launches, launched = find_launches(trace)
    on_cpu = _cpu_ops(trace, parent, flags_at(launches, len(trace.events)))
    on_cpu = on_cpu[~np.isin(activity[on_cpu], (WAITING_FOR_INPUT, EXCHANGING))]
    activity[on_cpu] = HOST_COMPUTE
    is_on_cpu = flags_at(on_cpu, len(trace.events))
    activity[work_of_pipelines(trace, is_on_cpu, function_runs)] = NOTHING
    call = np.full(len(ACTIVITIES), _LAUNCH, np.int8)
    call[list(_CALL_ACTIVITIES)] = list(_CALL_ACTIVITIES.values())
    raw = raw_device_lines(trace)
    if device is not None:
        raw &= trace.lines.plane == device
    counts = raw[trace.lines.of_event]
    chosen = counts[launched]
    activity[launches] = NOTHING
    # A call that starts a graph of kernels and copies counts as the copy.
    np.maximum.at(activity, launches[chosen], call[work[launched[chosen]]])
    activity[on_device] = NOTHING
    activity[counts] = work[counts]


def _mark_exchange(trace: Trace, activity: Int8s) -> None:
    """Charge what waits for others to that where no op computes; what only frames it, to its wait.

    Without such an event nothing changes: a call that runs a function is then as much work as its ops.
    """
    on_host = activity == HOST_COMPUTE
    exchanges = trace.select_names(trace_names.is_host_collective) & on_host
    transfers = trace.select_names(trace_names.is_host_transfer) & on_host
    if not exchanges.any() and not transfers.any():
        return
    is_op = _are_ops(trace)
    is_op[trace.stats.texts(trace_names.HLO_MODULE).events] = True
    activity[on_host & ~is_op] = _FRAME
    activity[transfers] = _TRANSFERRING
    activity[exchanges] = EXCHANGING


def _are_ops(trace: Trace, *but: str) -> Bools:
    """Mark the events that are ops; by their names none whose name begins in some way."""
    if trace.is_op_name is not None:
        return trace.is_op_name[trace.events.name]
    parse = trace_names.parse_op
    return trace.select_names(lambda name: not name.startswith(but) and parse(name) is not None)


def _traced_calls(trace: Trace) -> Int64s:
    calls = trace.stats.texts(trace_names.FUNCTION_CALL)
    traced = [row for row, text in enumerate(calls.texts) if text.startswith("traced")]
    return calls.events[np.isin(calls.values, traced)]


def _mark_tracing(trace: Trace, parent: Int32s, activity: Int8s) -> None:
    """Charge the calls in which a ``tf.function`` was traced to that, but for what its ops compute.

    The graph is built in the call; then the runtime takes the function in, which is the rest of it.
    """
    building = np.flatnonzero(trace.select_named(_GRAPH_BUILDING))
    activity[building[trace.is_host_event[building]]] = COMPILING
    calls = _traced_calls(trace)
    takes_in = np.flatnonzero(trace.select_names(lambda name: name.startswith(_TAKES_IN)))
    activity[takes_in[np.isin(parent[takes_in], calls)]] = NOTHING
    activity[calls] = TRACING


def was_compiled_during(trace: Trace, begin_ps: Int64s, end_ps: Int64s) -> Bools:
    """Tell whether a ``tf.function`` was traced, or a program compiled, in each of S windows, shape (S,)."""
    compiling = np.flatnonzero(trace.select_names(is_compilation))
    begins = trace.events.begin_ps[np.concatenate([_traced_calls(trace), compiling])]
    owner = span_at(begin_ps, end_ps, begins)
    return flags_at(owner[owner >= 0], begin_ps.size)


def _cpu_ops(trace: Trace, parent: Int32s, is_call: Bools) -> Int64s:
    """Find the ops that compute on the CPU beside a device: outermost ones, long, that launch nothing."""
    is_op = _are_ops(trace, "Iterator")
    # TF1's timelines record no launches; there the plane tells where an op was placed.
    placed = ["device:" in plane.name for plane in trace.planes if plane.is_host]
    if not is_call.any() and not any(placed):
        return np.empty(0, np.int64)
    enqueues_on = np.array(["GPU" in plane.name for plane in trace.planes], np.bool_)
    is_op = is_op & trace.is_host_event & ~enqueues_on[trace.lines.plane[trace.lines.of_event]]
    is_long = trace.events.duration_ps >= _SHORTEST_COMPUTE_PS
    ops = np.flatnonzero(is_op & is_long & ~has_inside(parent, is_call))
    return ops[~is_inside(parent, is_op, ops)]


def find_function_runs(trace: Trace) -> FunctionRuns:
    """Find the runs of users' functions, by the ids that the executor's events on any thread carry, too."""
    is_run = trace.select_names(lambda name: name.startswith(trace_names.FUNCTION_RUNS))
    runs = np.flatnonzero(is_run & trace.is_host_event)
    of_event = np.full(len(trace.events), -1, np.int32)
    ids = trace.stats.integers("id")
    if runs.size and len(ids):
        numbers = ids.values.astype(np.int64, copy=False)
        number, event_number = number_keys((ids.of(runs, 0),), (numbers,))
        first = np.full(number.size + 1, -1, np.int32)  # the last: of what is not found
        first[number[::-1]] = np.arange(number.size)[::-1]
        rows_in_runs = np.flatnonzero((event_number >= 0) & (numbers != 0))  # 0: no id
        of_event[ids.events[rows_in_runs]] = first[event_number[rows_in_runs]]
    return FunctionRuns(runs, of_event)


def work_of_pipelines(trace: Trace, among: Bools, function_runs: FunctionRuns) -> Bools:
    """Mark what some host events do for an input pipeline, which may work or wait there: no step's compute.

    Calls of iterators, what lies inside of one or of a run of a user's function, all of tf.data's own
    threads, and what an executor does for such a run. What a step waits for is in the wait itself.
    """
    is_thread = trace.lines.names.rows_where(lambda name: name.startswith(_PIPELINE_THREADS))
    names = trace.names.rows_where(lambda name: name.startswith(_OF_PIPELINES))
    if not names.any() and not is_thread.any():
        return np.zeros(among.size, np.bool_)
    is_mark = trace.by_name(names)
    is_of_pipeline = is_mark | trace.lines.spread(is_thread)
    is_of_pipeline &= among
    is_mark |= function_runs.of_event >= 0
    # What lies on pipelines' own threads is theirs already.
    marks = np.flatnonzero(is_mark & trace.lines.spread(trace.is_host_line & ~is_thread))
    if marks.size:
        offsets = np.searchsorted(marks, trace.lines.offsets)
        marks = marks[find_parents(trace.events.end_ps[marks], offsets) < 0]
        has_marks = flags_at(trace.lines.of_event[marks], len(trace.lines))
        rest = np.flatnonzero(among & ~is_of_pipeline & trace.lines.spread(has_marks))
        is_of_pipeline[rest] = last_around(trace, marks, rest) >= 0
    return is_of_pipeline
