"""Files that tfprof saved of TensorFlow 1 (``profile_100`` of a ``ProfileContext``) to the runs in them.

A ``ProfileProto`` holds, node by node, when each execution began and how long it took, by step and device,
and what it allocated. From that the RunMetadata of each step is written again, so that all that is known of
those holds here too. What tfprof dropped is missing: which allocator it was, inputs, and shapes.

Source: tensorflow/core/profiler/tfprof_log.proto, tensorflow/core/profiler/internal/tfprof_node.cc (2.21).
"""

from collections.abc import Iterator

import numpy as np

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.trace.wire import LENGTH, VARINT, Messages, read_plain_varint, write_message

_NODES = 1
_NODE_NAME, _OP, _EXECS = 1, 9, 12
_ACCELERATOR, _CPU, _MEMORY = 4, 5, 7
_MOST_BYTES, _LONGEST_NODE_NAME = 256 << 20, 1_000
_NODE_FIELDS = range(1, 17)
_ALLOCATOR = b"(allocator)"


def is_tfprof(head: bytes) -> bool:
    """Tell whether bytes begin with a numbered node; a plane of XPlane has text where that has a message."""
    at = 0
    try:
        for wanted in (0x0A, 0x08, 0x12, 0x0A):  # nodes, key, value, ProfileNode.name
            if head[at : at + 1] != bytes([wanted]):
                return False
            size, at = read_plain_varint(head, at + 1, len(head))
        following = head[at + size : at + size + 1]
    except ValueError:  # no number of a message
        return False
    return (
        bool(following)
        and following[0] >> 3 in _NODE_FIELDS
        and following[0] & 7 in (VARINT, LENGTH)
    )


def find_steps(buffer: Bytes) -> tuple[list[Bytes], list[int]]:
    """Give the RunMetadata of each step, and its number, in order.

    Args:
        buffer: The whole file.

    Raises:
        TraceFormatError: It is damaged, or no step was traced.
    """
    nodes = (
        Messages.whole(buffer, "profile of tfprof").split(_NODES, "node").inner(2, "ProfileNode")
    )
    names, ops = (
        [raw[:_LONGEST_NODE_NAME] for raw in nodes.inner(field, "name").raw()]
        for field in (_NODE_NAME, _OP)
    )
    entries = nodes.split(_EXECS, "step of a node")
    execs = entries.inner(2, "ExecProfile")
    owners, step_of, memory = (
        entries.parents.tolist(),
        entries.numbers(1)[0].tolist(),
        _memory_of(execs),
    )
    steps: dict[int, dict[bytes, list[bytes]]] = {}
    size = 0
    for at, device, begin, duration, is_device in _executions(execs):
        name, op = names[owners[at]], ops[owners[at]]
        held = b"" if is_device or not memory[at] else memory[at].pop()
        title, label = (name + b":" + op,) * 2 if is_device else (name, name + b" = " + op + b"()")
        node = (
            write_message((1, title), (2, begin), (4, duration), (5, duration), (8, label)) + held
        )
        steps.setdefault(step_of[at], {}).setdefault(device, []).append(node)
        size += len(node)
        if size > _MOST_BYTES:
            raise TraceFormatError(
                f"A profile of tfprof with more than {_MOST_BYTES / 1e6:,.0f} MB of executions. Profile "
                "fewer steps."
            )
    if not steps:
        raise TraceFormatError(
            "A profile of tfprof without an execution of an op: it holds a graph alone. Give trace_steps to "
            "`ProfileContext`, or a RunMetadata to `add_step`."
        )
    return [_run_of(steps[number]) for number in sorted(steps)], sorted(steps)


def _executions(execs: Messages) -> Iterator[tuple[int, bytes, int, int, bool]]:
    """Give each execution: row, device, begin and duration in us, and whether a device recorded it."""
    for field in (_CPU, _ACCELERATOR):
        entries = execs.split(field, "times of a device")
        devices = [raw[:_LONGEST_NODE_NAME] for raw in entries.inner(1, "device").raw()]
        times = entries.inner(2, "ExecTime").split(1, "execution")
        offsets, numbers = times.split_numbers(1)
        row, of_device = entries.parents, times.parents
        for at in np.flatnonzero(np.diff(offsets) == 2).tolist():
            begin, duration = numbers[offsets[at] : offsets[at] + 2].tolist()
            if begin > 0 and duration >= 0:
                one = int(of_device[at])
                yield int(row[one]), devices[one], begin, duration, field == _ACCELERATOR


def _memory_of(execs: Messages) -> list[list[bytes]]:
    """Write what each execution allocated, the last one first, by row.

    Requested, peak and residual bytes hold the persistent ones, which stand apart in RunMetadata.
    """
    memory = execs.split(_MEMORY, "ExecMemory")
    # Fields 2 to 10 in the order of their numbers; unsigned, as a number below 0 is written.
    columns = np.array(memory.numbers(*range(2, 11))).view(np.uint64)
    host_temp, host_kept, device_temp, device_kept, *sizes, output, in_use = columns
    temp, kept = host_temp + device_temp, host_kept + device_kept
    total, peak, live = (size - kept for size in sizes)
    written: list[list[bytes]] = [[] for _ in range(len(execs))]
    parents = reversed(memory.parents.tolist())
    rows = np.stack([total, peak, live, in_use, output, temp, kept])[:, ::-1].T.tolist()
    for at, (*used, of_output, scratch, persistent) in zip(parents, rows, strict=True):
        allocator = write_message((1, _ALLOCATOR), *zip((2, 3, 4, 5), used, strict=True))
        tensor = write_message((4, write_message((1, of_output))))
        stats = write_message((1, scratch), (3, persistent))
        written[at].append(
            write_message((6, allocator), (7, write_message((3, tensor))), (12, stats))
        )
    return written


def _run_of(devices: dict[bytes, list[bytes]]) -> Bytes:
    stats = [
        (1, write_message((1, name), *((2, node) for node in nodes)))
        for name, nodes in devices.items()
    ]
    return np.frombuffer(write_message((1, write_message(*stats))), np.uint8)
