"""``RunMetadata`` of TF1's ``Session.run`` to a ``Trace``; several to one file and back.

A run with ``trace_level=FULL_TRACE`` leaves a protobuf message that says when each node of the graph ran
on which device, what it allocated and the shapes of its outputs. Each run becomes a step: an event
``session_run`` from the first begin to the last end of its nodes. Times are nanoseconds where the
run has them and microseconds elsewhere.

The threads that ran the ops are not recorded, so a device's events are spread over as few lines as keep
two of one line from overlapping ("ops", "ops #2", ...), as TensorFlow's ``Timeline`` does; an op never
runs inside another on one executor thread, so nesting counts as overlap.

In a file of several runs their messages stand one after the other, each kept down to its ``step_stats``,
which is all that is read here. Other readers of protobufs merge them into one run.

Source of the field numbers: tensorflow/core/protobuf/config.proto and
tensorflow/core/framework/step_stats.proto (TensorFlow 2.21).
"""

import gzip
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profnb.capture.step_records import SESSION_RUN
from profnb.core.columns import Bytes, Int32s, Int64s, sum_by
from profnb.core.errors import TraceFormatError
from profnb.core.jit import compiled
from profnb.core.safe_files import whole_file
from profnb.tf1.nodes import GraphStats, Nodes, parse_label, read_nodes
from profnb.trace.assemble import FoundLine, assemble_trace
from profnb.trace.model import Counter, StringTable, Trace
from profnb.trace.names import GRAPH_RUNS, split_graph_device
from profnb.trace.wire import Messages, write_varint

RUNS_SUFFIX = ".run_metadata.pb.gz"
_RUN_STEP_STATS, _STATS_DEVICES = 1, 1
_DEVICE_NAME, _DEVICE_NODES = 1, 2
_FIELD_1 = b"\x0a"  # the tag of a length-delimited field 1
_GZIP_LEVEL = 1  # of gzip: protobufs of runs are alike

# No real run comes near these; a file that claims more is hostile or no RunMetadata.
_MOST_DEVICES = 100_000
_MOST_LANES = 256
_LATEST_NS = 1 << 62  # the year 2116
_LONGEST_NS = (1 << 61) // 1000  # 26 days: sums of two times in ps stay inside int64
_MOST_RUNS_READ = 10_000  # of 50 kB each they are as much as a capture keeps

_RECEIVED = "RecvTensor"


def join_run_metadata(buffers: Sequence[Bytes]) -> Iterator[bytes]:
    """Several runs as pieces of one file that ``read_run_metadata`` reads as it reads the runs.

    Raises:
        TraceFormatError: One is damaged, or there are more than are read again.
    """
    _check_count(len(buffers))
    for buffer in buffers:
        stats = _stats_of(buffer)
        for begin, end in zip(stats.begins.tolist(), stats.ends.tolist(), strict=True):
            yield _FIELD_1 + write_varint(end - begin) + buffer[begin:end].tobytes()


def write_runs(buffers: Sequence[Bytes], target: Path) -> None:
    """Write several runs to one file, whole or not at all."""
    with whole_file(target) as partial, gzip.open(partial, "wb", _GZIP_LEVEL) as packed:
        packed.writelines(join_run_metadata(buffers))


def _check_count(runs: int) -> None:
    if runs > _MOST_RUNS_READ:
        raise TraceFormatError(
            f"{runs:,} session runs in one file; at most {_MOST_RUNS_READ:,} are read (-n bounds them)."
        )


def _stats_of(buffer: Bytes) -> Messages:
    return Messages.whole(buffer, "RunMetadata").split(_RUN_STEP_STATS, "StepStats")


def looks_like_run_metadata(buffer: Bytes) -> bool:
    """Tell whether these bytes begin as a RunMetadata with recorded devices, and not as an XSpace.

    Both begin with field 1; inside, a plane begins with a number (its id) or field 2 (its name), while
    recorded devices are again field 1, and so is a device's name.
    """
    rest = buffer[:64].tobytes()
    for _ in range(3):  # RunMetadata.step_stats, StepStats.dev_stats, DeviceStepStats.device
        if rest[:1] != _FIELD_1:
            return False
        size = next((at for at, byte in enumerate(rest[1:11], 1) if byte < 0x80), 0)
        rest = rest[size + 1 :]
    return rest[:1] == b"/"


_Devices = dict[str, int]  # to their rows
_Labelled = dict[tuple[bytes, bytes, bool], int]  # (name, label, is of a device): row of the label


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: its nodes, the rows of their devices and labels, and those with times; each of shape (N,)."""

    nodes: Nodes
    device: Int64s
    label: Int64s
    timed: Int64s

    @property
    def begin_ns(self) -> int:
        return int(self.nodes.begin_ns[self.timed].min())

    @property
    def end_ns(self) -> int:
        return int((self.nodes.begin_ns + self.nodes.duration_ns)[self.timed].max())


def read_run_metadata(buffers: Sequence[Bytes], source: str, numbers: Sequence[int] = ()) -> Trace:
    """Read the RunMetadata of one or several runs.

    Args:
        buffers: Serialized RunMetadata as uint8, in the order of the runs, of one or several each; they must
            outlive the trace, which reads texts from them.
        source: The file's name, for messages.
        numbers: Which run of the program each is, where that is known: where it is not the one after the run
            before, nothing is known of what lies between.

    Returns:
        The trace; run r is the step with ``step_num`` r or its number. Nodes without times are left out.

    Raises:
        TraceFormatError: The bytes are no RunMetadata, or none with recorded devices.
    """
    if not buffers:
        raise TraceFormatError("No session run. Give a file with one or more.")
    devices, labelled, runs = _Devices(), _Labelled(), list[_Run]()
    for buffer in buffers:
        try:
            stats = _stats_of(buffer)
        except TraceFormatError:
            raise _no_run_metadata(buffer.size) from None
        _check_count(len(stats))
        # A message without any is still a run.
        each = [stats.rows(slice(at, at + 1)) for at in range(len(stats))] or [stats]
        runs += [_read_run(run, buffer.size, devices, labelled) for run in each]
    labels = [
        parse_label(*(part.decode("utf-8", "replace") for part in texts), is_device=is_device)
        for *texts, is_device in labelled
    ]
    base = min(run.begin_ns for run in runs)
    span_ns = max(run.end_ns for run in runs) - base
    if span_ns > _LONGEST_NS:
        raise TraceFormatError(
            f"The nodes lie {span_ns / 86_400e9:,.0f} days apart, too far for one program."
        )
    nodes, timed = [run.nodes for run in runs], [run.timed for run in runs]
    of_runs = np.array([(run.begin_ns, run.end_ns - run.begin_ns) for run in runs], np.int64).T
    begin = np.concatenate([*(run.nodes.begin_ns[run.timed] for run in runs), of_runs[0]])
    duration = np.concatenate([*(run.nodes.duration_ns[run.timed] for run in runs), of_runs[1]])
    begin_ps, duration_ps = (begin - base) * 1000, duration * 1000
    # What a cluster's workers receive is labelled with how fast it came ("[640.0KB 612.7Mb/s] edge_14_w/read
    # from ..."), which differs from run to run: there the event's name counts.
    first: dict[str, int] = {}
    alike = np.arange(len(labels))
    for row, label in enumerate(labels):
        if label.event.startswith(_RECEIVED):
            alike[row] = first.setdefault(label.event, row)
    program, programs = name_programs([alike[run.label[run.timed]] for run in runs])
    name = np.concatenate([*(r.label[r.timed] for r in runs), program + len(labels)])
    behind = np.full(len(runs), len(devices))
    device = np.concatenate([*(r.device[r.timed] for r in runs), behind])
    lines, line = _spread_over_lines([*devices], device, begin_ps, duration_ps)
    rows = [run.label for run in runs]
    number = np.array(numbers if len(numbers) == len(runs) else range(len(runs)), np.int64)
    in_time = np.argsort([run.begin_ns for run in runs], kind="stable")
    is_apart = np.zeros(len(runs), np.bool_)
    is_apart[in_time[1:]] = ~np.isin(np.diff(number[in_time]), (0, 1))
    missing = sum(map(len, nodes)) - sum(part.size for part in timed)
    left_out = [f"{missing:,} nodes were recorded without times."] if missing else []
    if is_apart.any():
        left_out.append(
            "Only the runs in the file were recorded: the time between steps is unknown."
        )
    return assemble_trace(
        source, lines, line, name, begin_ps, duration_ps,
        StringTable.of([*(label.event for label in labels), *programs]),
        stats=lambda order: GraphStats(nodes, timed, rows, labels, order, number, is_apart),
        counters=_count_memory(nodes, base),
        epoch_ns=base,
        left_out=tuple(left_out),
    )  # fmt: skip


def name_programs(nodes: Sequence[Int64s | Int32s]) -> tuple[Int64s, list[str]]:
    """Name the programs of R runs, the most frequent one as all are that a trace has no other name for.

    Runs of the same nodes ran the same program: an initialisation, a training step and an evaluation
    are three.

    Returns:
        The program of each run, shape (R,), and the programs' names.
    """
    keys = [np.unique(of_run).tobytes() for of_run in nodes]
    ranked = [key for key, _ in Counts(keys).most_common()]
    names = [SESSION_RUN, *(f"{SESSION_RUN} ({number})" for number in range(2, len(ranked) + 1))]
    return np.array([ranked.index(key) for key in keys], np.int64), names


def _read_run(stats: Messages, size: int, devices: _Devices, labelled: _Labelled) -> _Run:
    """Read a run, given what it recorded and the size of the message that stands in."""
    try:
        recorded = stats.split(_STATS_DEVICES, "DeviceStepStats")
        names = recorded.inner(_DEVICE_NAME, "device").texts()
        messages = recorded.split(_DEVICE_NODES, "NodeExecStats")
        nodes = read_nodes(messages)
    except TraceFormatError:
        raise _no_run_metadata(size) from None
    longest_ns = nodes.duration_ns.max(initial=0)
    if len(recorded) > _MOST_DEVICES or longest_ns > _LONGEST_NS:
        raise TraceFormatError(
            f"{len(recorded):,} devices and a node of {longest_ns / 1e9:,.0f} s: more than any run has. This "
            "is no RunMetadata, or damaged."
        )
    timed = np.flatnonzero((nodes.begin_ns > 0) & (nodes.begin_ns < _LATEST_NS))
    if not timed.size:
        raise TraceFormatError(
            f"No times of nodes in {size:,} bytes: no RunMetadata, or the run was not traced. Run the "
            "session with options=tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE) "
            "and run_metadata=tf.compat.v1.RunMetadata(), and save the result."
        )
    rows = [devices.setdefault(name, len(devices)) for name in names]
    sides = [split_graph_device(name)[2] == "device" for name in names]
    is_device = np.array(sides, np.bool_)[messages.parents].tolist()
    keys = zip(nodes.name, nodes.label, is_device, strict=True)
    label = np.array([labelled.setdefault(key, len(labelled)) for key in keys], np.int64)
    return _Run(nodes, np.array(rows, np.int64)[messages.parents], label, timed)


def _no_run_metadata(size: int) -> TraceFormatError:
    return TraceFormatError(
        f"{size:,} bytes that are no RunMetadata, or damaged. Write run_metadata.SerializeToString() in "
        "binary mode, and copy in binary mode."
    )


@compiled
def _assign_lanes(
    order: Int64s, group: Int64s, begin: Int64s, end: Int64s, busy_until: Int64s, lane: Int64s
) -> None:
    """Put each event on the first lane of its group that is free; ``order`` is by group and begin.

    Events [0, 5), [2, 4) and [4, 8) of one group stand on lanes 0, 1 and 1. Past the most lanes there may
    be, events share the last one and overlap there. ``busy_until`` has room for each lane.
    """
    lane_count, current = 0, np.int64(-1)
    for row in range(order.size):
        event = order[row]
        if group[event] != current:
            lane_count, current = 0, group[event]
        free = 0
        while free < lane_count and busy_until[free] > begin[event]:
            free += 1
        if free == busy_until.size:
            free -= 1
            busy_until[free] = max(busy_until[free], end[event])
        else:
            busy_until[free] = end[event]
        lane_count = max(lane_count, free + 1)
        lane[event] = free


def _spread_over_lines(
    devices: Sequence[str], group: Int64s, begin_ps: Int64s, duration_ps: Int64s
) -> tuple[list[FoundLine], Int64s]:
    """The lines of the devices and, last, of the runs; and the line of each event, shape (E,)."""
    lane = np.zeros(group.size, np.int64)
    order = np.lexsort((-duration_ps, begin_ps, group))
    busy_until = np.empty(_MOST_LANES, np.int64)
    _assign_lanes(order, group, begin_ps, begin_ps + duration_ps, busy_until, lane)
    pairs, line = np.unique(group * _MOST_LANES + lane, return_inverse=True)
    homes = [*map(split_graph_device, devices), (GRAPH_RUNS, "runs", "host")]
    lines = []
    for row, number in (divmod(pair, _MOST_LANES) for pair in pairs.tolist()):
        plane, name, side = homes[row]
        suffix = f" #{number + 1}" if number else ""
        lines.append(FoundLine(plane, side, (name or "ops") + suffix, number))
    return lines, line.astype(np.int64)


def _count_memory(runs: Sequence[Nodes], base: int) -> list[Counter]:
    """Per allocator, the bytes that the ops of a run hold; each run begins with none."""
    parts: dict[str, list[tuple[Int64s, Int64s]]] = {}
    for run in runs:
        for allocator, (when, size, _) in run.allocation_records().items():
            near = (when > (base - _LONGEST_NS) // 1000) & (when < (base + _LONGEST_NS) // 1000)
            distinct, moment = np.unique(when[near], return_inverse=True)
            held = np.cumsum(sum_by(moment, size[near], distinct.size))
            parts.setdefault(allocator, []).append(((distinct * 1000 - base) * 1000, held))
    counters = []
    for allocator, of_runs in parts.items():
        when, held = map(np.concatenate, zip(*of_runs, strict=True))
        order = np.argsort(when, kind="stable")
        values = held[order].astype(np.float64)
        counters.append(Counter("memory", allocator, "bytes", when[order], values))
    return counters
