"""``RunMetadata`` to columns of its nodes: times and memory; labels and other stats of a trace's events.

Integers are read once with the nodes; texts (shapes, allocators) are made where someone asks.

Source of the field numbers: tensorflow/core/framework/step_stats.proto, tensor_description.proto,
tensor_shape.proto, allocation_description.proto and types.proto (TensorFlow 2.21).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profnb.core.columns import Bools, Int64s, flags_at, group, number_values, sum_by
from profnb.trace.model import StatColumn, Stats
from profnb.trace.names import GROUP_ID, IS_APART, ROOT_LEVEL, STEP_NUM, TF_OP
from profnb.trace.wire import Messages

_NODE_NAME, _LABEL = 1, 8
_BEGIN_US, _DURATION_US, _SCHEDULED_US, _THREAD = 2, 5, 9, 10
_BEGIN_NS, _DURATION_NS, _SCHEDULED_NS = 13, 16, 17
_NODE_MEMORY, _NODE_OUTPUT, _MEMORY_STATS = 6, 7, 12
_USED_ALLOCATOR, _USED_TOTAL, _USED_PEAK, _USED_LIVE, _USED_IN_USE, _USED_RECORDS = 1, 2, 3, 4, 5, 6
_RECORD_US, _RECORD_BYTES = 1, 2
_OUTPUT_SLOT, _OUTPUT_TENSOR = 1, 3
_TENSOR_TYPE, _TENSOR_SHAPE, _TENSOR_ALLOCATION, _ALLOCATION_REQUESTED = 1, 2, 4, 1
_SHAPE_DIM, _SHAPE_UNKNOWN_RANK, _DIM_SIZE = 2, 3, 1
_STATS_TEMPORARY, _STATS_PERSISTENT = 1, 3

_MOST_SHOWN = 64  # outputs of a node, dimensions of a shape
_LATEST_US = (1 << 62) // 1000
_LONGEST_WAIT_NS = 3_600_000_000_000  # longer, and "scheduled" is of another clock, as in TF 2.15

TENSOR_TYPES = (
    "invalid", "float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64",
    "int64", "bool", "qint8", "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16",
    "complex128", "float16", "resource", "variant", "uint32", "uint64", "float8_e5m2",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "int4", "uint4",
    "int2", "uint2",
)  # fmt: skip
_REFERENCE = 100  # added to a type's number, for a reference to such a tensor

_OP_LABEL = re.compile(r"(.*) = (.*)\((.*)\)", re.DOTALL)
_OP_TOKEN = re.compile(r"([^\s:]+):([A-Za-z_]\w*)")
_UNKNOWN_DEVICE = "unknown"
_WHOLE_RUN = -1  # the node of the event that stands for a whole run

# Which nodes have a stat, ascending, and its value for every node, shape (N,).
Column = tuple[Int64s, Int64s]


@dataclass(frozen=True, slots=True)
class Nodes:
    """N node executions of one run, device after device, as recorded.

    Attributes:
        messages: Their messages; the parent is the run's device.
        name: Their names, as bytes.
        label: Their timeline labels, as bytes.
        begin_ns: Begins since the epoch, shape (N,); 0 where not recorded.
        duration_ns: Durations, not negative, shape (N,).
        integers: Stats by name.
    """

    messages: Messages
    name: list[bytes]
    label: list[bytes]
    begin_ns: Int64s
    duration_ns: Int64s
    integers: dict[str, Column]

    def __len__(self) -> int:
        return self.begin_ns.size

    def memory_texts(self, rows: slice) -> list[str]:
        """Say what each node allocated, per allocator, in bytes; "" for nothing."""
        nodes = self.messages.rows(rows)
        memory = nodes.split(_NODE_MEMORY, "AllocatorMemoryUsed")
        allocators = memory.inner(_USED_ALLOCATOR, "allocator name").texts()
        columns = [part.tolist() for part in memory.numbers(_USED_TOTAL, _USED_PEAK, _USED_LIVE)]
        texts = [
            f"{name}: total {total}, peak {peak}, live {live}" if total or peak or live else ""
            for name, total, peak, live in zip(allocators, *columns, strict=True)
        ]
        return _join_by(memory.parents, texts, len(nodes))

    def shapes_texts(self, rows: slice) -> list[str]:
        """Write each node's outputs as ``slot: dtype[dimensions]``; "" for none."""
        nodes = self.messages.rows(rows)
        outputs = nodes.split(_NODE_OUTPUT, "NodeOutput")
        tensors = outputs.inner(_OUTPUT_TENSOR, "TensorDescription")
        shapes = tensors.inner(_TENSOR_SHAPE, "TensorShape")
        slots, types = outputs.numbers(_OUTPUT_SLOT)[0], tensors.numbers(_TENSOR_TYPE)[0]
        types -= np.where(types > _REFERENCE, _REFERENCE, 0)
        shape_texts: dict[bytes, str] = {}
        texts = []
        columns = zip(slots.tolist(), types.tolist(), shapes.raw(), strict=True)
        for row, (slot, kind, raw) in enumerate(columns):
            if raw not in shape_texts:
                shape_texts[raw] = _shape_text(shapes.rows(slice(row, row + 1)))
            name = TENSOR_TYPES[kind] if 0 <= kind < len(TENSOR_TYPES) else f"type {kind}"
            texts.append(f"{slot}: {name}[{shape_texts[raw]}]")
        return _join_by(outputs.parents, texts, len(nodes))

    def peaks(self) -> dict[str, tuple[int, int, dict[str, list[int]]]]:
        """Tell by allocator the most bytes held, when (us since the epoch), and of which nodes."""
        peaks: dict[str, tuple[int, int, dict[str, list[int]]]] = {}
        for name, (times, sizes, node) in self.allocation_records().items():
            moments, at = np.unique(times, return_inverse=True)
            held = np.cumsum(sum_by(at, sizes, moments.size))
            peak = int(held.argmax())
            before = at <= peak
            sums = sum_by(node[before], sizes[before], len(self))
            titled = (
                (self.name[one].decode("utf-8", "replace"), int(sums[one]))
                for one in np.flatnonzero(sums > 0)
            )
            peaks[name] = int(held[peak]), int(moments[peak]), group(titled)
        return peaks

    def allocation_records(self) -> dict[str, tuple[Int64s, Int64s, Int64s]]:
        """Tell by allocator when (us since the epoch) how many bytes which node took (+) or freed (-)."""
        memory = self.messages.split(_NODE_MEMORY, "AllocatorMemoryUsed")
        records = memory.split(_USED_RECORDS, "AllocationRecord")
        names, codes = number_values(memory.inner(_USED_ALLOCATOR, "allocator name").texts())
        times, sizes = records.numbers(_RECORD_US, _RECORD_BYTES)
        node = memory.parents[records.parents]
        flags = (codes[records.parents] == code for code in range(len(names)))  # one at a time
        return {
            name: (times[is_its], sizes[is_its], node[is_its])
            for name, is_its in zip(names, flags, strict=True)
            if is_its.any()
        }


_COMPOSED = {"memory": Nodes.memory_texts, "output_shapes": Nodes.shapes_texts}


def _shape_text(shape: Messages) -> str:
    if shape.numbers(_SHAPE_UNKNOWN_RANK)[0].any():
        return "?"
    dimensions = shape.split(_SHAPE_DIM, "dimension").rows(slice(_MOST_SHOWN))
    (sizes,) = dimensions.numbers(_DIM_SIZE)
    return ",".join("?" if size < 0 else str(size) for size in sizes.tolist())


def _join_by(parents: Int64s, texts: list[str], count: int) -> list[str]:
    """For each of ``count`` parents, its first texts that are not empty, joined."""
    pairs = zip(parents.tolist(), texts, strict=True)
    texts_of_parent = group((parent, text) for parent, text in pairs if text)
    return ["; ".join(texts_of_parent.get(row, ())[:_MOST_SHOWN]) for row in range(count)]


def read_nodes(nodes: Messages) -> Nodes:
    """Read the nodes of one run.

    Besides the memory stats below, their integers are ``thread_id`` and ``scheduled_us``, how long before
    its begin the node was scheduled.
    """
    begin_ns, begin_us, duration_ns, duration_us = nodes.numbers(
        _BEGIN_NS, _BEGIN_US, _DURATION_NS, _DURATION_US
    )
    scheduled_ns, scheduled_us, thread = nodes.numbers(_SCHEDULED_NS, _SCHEDULED_US, _THREAD)
    has_ns = begin_ns != 0
    begin = _nanoseconds(begin_ns, begin_us, has_ns)
    waited = begin - _nanoseconds(scheduled_ns, scheduled_us, scheduled_ns != 0)
    is_waiting_recorded = (waited >= 0) & (waited < _LONGEST_WAIT_NS) & (begin > 0)
    return Nodes(
        nodes,
        nodes.inner(_NODE_NAME, "node name").raw(),
        nodes.inner(_LABEL, "timeline label").raw(),
        begin,
        np.maximum(_nanoseconds(duration_ns, duration_us, has_ns), 0),
        {
            **_read_memory(nodes),
            "thread_id": (np.flatnonzero(thread), thread),
            "scheduled_us": (np.flatnonzero(is_waiting_recorded), waited // 1000),
        },
    )


def _nanoseconds(nanoseconds: Int64s, microseconds: Int64s, has_ns: Bools) -> Int64s:
    coarse = np.clip(microseconds, -_LATEST_US, _LATEST_US) * 1000
    return np.where(has_ns, nanoseconds, coarse)


def _read_memory(nodes: Messages) -> dict[str, Column]:
    """Memory stats in bytes, summed over allocators and outputs.

    ``total_bytes``, ``peak_bytes`` and ``live_bytes`` (allocated by the node; at most at once; still held
    after it), ``in_use_bytes`` (of the allocator, after the node), ``output_bytes`` of its outputs,
    ``temp_bytes`` and ``persistent_bytes``.
    """
    memory = nodes.split(_NODE_MEMORY, "AllocatorMemoryUsed")
    fields = (_USED_TOTAL, _USED_PEAK, _USED_LIVE, _USED_IN_USE)
    names = ("total_bytes", "peak_bytes", "live_bytes", "in_use_bytes")
    sums = [sum_by(memory.parents, part, len(nodes)) for part in memory.numbers(*fields)]
    has = np.unique(memory.parents)
    columns = {name: (has, part) for name, part in zip(names, sums, strict=True)}
    columns["in_use_bytes"] = np.flatnonzero(sums[-1]), sums[-1]
    outputs = nodes.split(_NODE_OUTPUT, "NodeOutput")
    tensors = outputs.inner(_OUTPUT_TENSOR, "TensorDescription")
    allocations = tensors.inner(_TENSOR_ALLOCATION, "AllocationDescription")
    (requested,) = allocations.numbers(_ALLOCATION_REQUESTED)
    of_outputs = sum_by(outputs.parents, requested, len(nodes))
    columns["output_bytes"] = np.unique(outputs.parents), of_outputs
    memory_stats = nodes.inner(_MEMORY_STATS, "MemoryStats")
    temporary, persistent = memory_stats.numbers(_STATS_TEMPORARY, _STATS_PERSISTENT)
    columns["temp_bytes"] = np.flatnonzero(temporary), temporary
    columns["persistent_bytes"] = np.flatnonzero(persistent), persistent
    return columns


@dataclass(frozen=True, slots=True)
class Label:
    """A node's name and timeline label, read.

    Attributes:
        event: The event's name: ``node:Op``, or what a device did where that is named apart.
        name: The node's name.
        op: Its op type; "unknown" where the label does not say, as in TensorFlow's ``Timeline``.
        inputs: The names of its inputs.
        details: On a device, what follows: registers, grid and block, or the copied bytes.
        is_device: Whether a device's stream or copy engine recorded it.
    """

    event: str
    name: str
    op: str
    inputs: tuple[str, ...] = ()
    details: str = ""
    is_device: bool = False

    @property
    def stats(self) -> dict[str, str]:
        """The text stats of an event with this label."""
        texts = {"name": self.name, "op": self.op}
        texts |= {f"input{index}": text for index, text in enumerate(self.inputs)}
        if self.is_device and self.op != _UNKNOWN_DEVICE:
            texts[TF_OP] = f"{self.name}:{self.op}"
        if self.details:
            is_copy = self.event.lower().startswith(("memcpy", "memset"))
            texts["memcpy_details" if is_copy else "kernel_details"] = self.details
        return texts


def parse_label(node_name: str, label: str, *, is_device: bool) -> Label:
    """Read a node's timeline label.

    Ops: ``[allocator 3.8MB 3.8MB] name = Op(input, input)``. Device work: ``name:Op details``, with the
    kernel or the copy (``MEMCPYHtoD``) as the node's name; or, older, ``kernel@@name:Op#id``.

    Source: Timeline._parse_op_label and _parse_kernel_label in tensorflow/python/client/timeline.py
    (2.21), which do not know ``name:Op details`` and call such an op unknown.
    """
    if not is_device:
        if node_name == "RecvTensor":
            return Label("RecvTensor:RecvTensor", node_name, "RecvTensor")
        match = _OP_LABEL.match(label)
        op = match[2] if match else _UNKNOWN_DEVICE
        inputs = tuple(match[3].split(", ")) if match and match[3] else ()
        return Label(f"{node_name}:{op}", node_name, op, inputs)
    kernel, _, annotation = label.partition("@@")
    annotated, closed, _ = annotation.partition("#")
    if annotated and closed:
        name, op = [*annotated.split(":"), _UNKNOWN_DEVICE][:2]
        return Label(kernel.strip() or annotated, name, op, is_device=True)
    token = _OP_TOKEN.match(label)
    if token is None:
        name, op = [*node_name.split(":"), _UNKNOWN_DEVICE][:2]
        return Label(node_name, name, op, details=label, is_device=True)
    name, op = token[1], token[2]
    event = f"{name}:{op}" if node_name == name else node_name
    return Label(event, name, op, details=label.partition(" ")[2], is_device=True)


class GraphStats(Stats):
    """The stats of a trace made from session runs: what their nodes say besides their times.

    Input events are the nodes of run 0, of run 1, ..., and then one event per run, which carries
    ``step_num``, and whether anything between the run before and it is missing. Every event has its run as
    ``group_id``.

    Args:
        runs: R runs.
        event_nodes: For each run, the nodes that are events.
        label_rows: For each run, the row of ``labels`` of each of its nodes.
        labels: The distinct labels.
        order: The input event of each event of the trace, shape (E,).
        numbers: The number of each run, shape (R,).
        is_apart: Whether something between the run before and it is missing, shape (R,).
    """

    def __init__(
        self,
        runs: Sequence[Nodes],
        event_nodes: Sequence[Int64s],
        label_rows: Sequence[Int64s],
        labels: Sequence[Label],
        order: Int64s,
        numbers: Int64s,
        is_apart: Bools,
    ) -> None:
        """Remember the runs; nothing is worked out yet."""
        self._of_runs = {STEP_NUM: numbers, ROOT_LEVEL: np.ones_like(numbers)}
        if is_apart.any():
            self._of_runs[IS_APART] = is_apart.astype(np.int64)
        self._runs, self._label_rows, self._labels = runs, label_rows, labels
        each = np.arange(len(runs))
        run = np.concatenate([np.repeat(each, [rows.size for rows in event_nodes]), each])
        node = np.concatenate([*event_nodes, np.full(len(runs), _WHOLE_RUN, np.int64)])
        self._run, self._node = run[order], node[order]

    @property
    def recorded(self) -> list[bytes]:
        """The RunMetadata of each run, as it was read."""
        return [run.messages.buffer.tobytes() for run in self._runs]

    def peaks(self) -> dict[str, tuple[int, dict[str, list[int]]]]:
        """Tell by allocator when (us since the epoch) most was held in any run, and of which nodes."""
        most: dict[str, tuple[int, int, dict[str, list[int]]]] = {}
        for run in self._runs:
            for name, peak in run.peaks().items():
                most[name] = max(most.get(name, peak), peak, key=lambda one: one[0])
        return {name: peak[1:] for name, peak in most.items()}

    @cached_property
    def _positions(self) -> tuple[Int64s, Int64s]:
        """The events that are nodes, and their positions when all runs' nodes stand one after another."""
        first = np.cumsum([0, *map(len, self._runs)])
        events = np.flatnonzero(self._node != _WHOLE_RUN)
        return events, first[self._run[events]] + self._node[events]

    def integers(self, name: str) -> StatColumn:
        """Take the events with an integer stat of this name."""
        if name == GROUP_ID:
            return StatColumn(np.arange(self._run.size), self._run)
        if name in self._of_runs:
            events = np.flatnonzero(self._node == _WHOLE_RUN)
            return StatColumn(events, self._of_runs[name][self._run[events]])
        if name not in self._runs[0].integers:
            return super().integers(name)
        flags = [flags_at(run.integers[name][0], len(run)) for run in self._runs]
        events, positions = self._positions
        has = np.concatenate(flags)[positions]
        values = np.concatenate([run.integers[name][1] for run in self._runs])[positions]
        return StatColumn(events[has], values[has])

    def texts(self, name: str) -> StatColumn:
        """Take the events with a text stat of this name, as rows of the distinct texts."""
        events, positions = self._positions
        if name in _COMPOSED:
            compose, rows = _COMPOSED[name], positions
            distinct = [text for run in self._runs for text in compose(run, slice(None))]
        else:
            distinct = [label.stats.get(name, "") for label in self._labels]
            rows = np.concatenate(self._label_rows)[positions]
        codes = {"": -1}
        values = [codes.setdefault(distinct[row], len(codes) - 1) for row in rows.tolist()]
        code = np.array(values, np.int64)
        return StatColumn(events[code >= 0], code[code >= 0], tuple(codes)[1:])

    def of_event(self, event: int) -> dict[str, int | float | str | bytes]:
        """Collect every stat of one event."""
        number, node = int(self._run[event]), int(self._node[event])
        if node == _WHOLE_RUN:
            of_run = {name: int(values[number]) for name, values in self._of_runs.items()}
            return {**of_run, GROUP_ID: number}
        run, only = self._runs[number], slice(node, node + 1)
        composed = ((name, one) for name, of in _COMPOSED.items() for one in of(run, only) if one)
        label = self._labels[self._label_rows[number][node]]
        stats: dict[str, int | float | str | bytes] = {**label.stats, **dict(composed)}
        for name, (rows, values) in run.integers.items():
            at = np.searchsorted(rows, node)
            if at < rows.size and rows[at] == node:
                stats[name] = int(values[node])
        stats[GROUP_ID] = number
        return stats
