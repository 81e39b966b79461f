"""A graph of TensorFlow 1 to its queues: what each may hold, and which ops put in and take out how much.

Source: the ops' attributes, tensorflow/core/ops/data_flow_ops.cc (2.21).
"""

import math
from collections.abc import Iterable
from typing import Any

from profnb.capture.environment import mean_size
from profnb.capture.recording import QueueRecord
from profnb.capture.seams import COLLECTION, GRAPH_OPERATIONS, OP_HANDLE, RUNNER_OPS

_QUEUES = ("FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue", "PriorityQueue")
_PASSED_ON = ("Identity", "Switch", "RefSwitch", "Enter", "RefEnter", "RefIdentity")
_MOST_OPS, _MOST_SOURCES, _MOST_QUEUES = 300_000, 5_000, 100
_RUNNERS = "queue_runners"  # tf.compat.v1.GraphKeys.QUEUE_RUNNERS


def read_queues(graph: Any) -> tuple[dict[str, QueueRecord], dict[Any, str]]:
    """The queues of a graph.

    Args:
        graph: A ``tf.Graph``.

    Returns:
        The queues by name; and the name of each enqueuing op by its handle, for as long as that is kept.
    """
    queues: dict[str, QueueRecord] = {}
    handles: dict[Any, str] = {}
    operations = GRAPH_OPERATIONS.of(graph, list)()[:_MOST_OPS]
    for op in operations:
        if op.type.removesuffix("V2") in _QUEUES and len(queues) < _MOST_QUEUES:
            queues[op.name] = _describe(op)
    for op in operations if queues else ():
        if not op.type.startswith(("QueueDequeue", "QueueEnqueue")):
            continue
        queue = queues.get(_queue_of(op))
        if queue is None:
            continue
        if op.type.startswith("QueueDequeue"):
            queue.dequeues[op.name] = _taken(op)
        else:
            queue.enqueues[op.name] = _given(op)
            handles[OP_HANDLE.of(op)] = op.name
            sources = _sources(op.inputs[1:])
            queue.sources = tuple(sorted({*queue.sources, *(source.type for source in sources)}))
            _tell_files(queue, sources)
    for runner in COLLECTION.of(graph, lambda _: ())(_RUNNERS):
        queue = queues.get(getattr(runner, "name", ""))
        if queue is not None:
            queue.runner_threads += len(RUNNER_OPS.of(runner, ()))
    return queues, handles


def _describe(op: Any) -> QueueRecord:
    attributes = op.node_def.attr
    types, shapes = op.get_attr("component_types"), op.get_attr("shapes")
    sizes = [
        dtype.size * math.prod(dim.size for dim in shape.dim)
        for dtype, shape in zip(types, shapes, strict=False)
        if dtype.size and not shape.unknown_rank and all(dim.size >= 0 for dim in shape.dim)
    ]
    is_known = len(sizes) == len(types)
    return QueueRecord(
        op.name, op.type,
        int(attributes["capacity"].i) if "capacity" in attributes else -1,
        max(int(attributes["min_after_dequeue"].i), 0) if "min_after_dequeue" in attributes else 0,
        sum(sizes) if is_known else 0,
    )  # fmt: skip


def _queue_of(op: Any) -> str:
    """The name of the queue that an op takes as its first input."""
    at = op.inputs[0].op
    while at.type in _PASSED_ON and len(at.inputs):
        at = at.inputs[0].op
    return str(at.name)


def _taken(op: Any) -> int:
    """How many elements a dequeuing op takes out; 0 where the graph does not tell."""
    if op.type.removesuffix("V2") == "QueueDequeue":
        return 1
    count = op.inputs[1].op
    if count.type != "Const":
        return 0
    value = count.get_attr("value")
    number = (
        value.int_val[0] if value.int_val else int.from_bytes(value.tensor_content[:4], "little")
    )
    return max(int(number), 0)


def _given(op: Any) -> int:
    """How many elements an enqueuing op puts in; 0 where the graph does not tell."""
    if op.type.removesuffix("V2") == "QueueEnqueue":
        return 1
    shape = op.inputs[1].shape
    first = shape[0] if shape.rank else None
    return int(getattr(first, "value", first) or 0)


def _sources(tensors: Iterable[Any]) -> list[Any]:
    """The ops that tensors come from; not those behind another queue."""
    waiting, seen = [tensor.op for tensor in tensors], dict[str, Any]()
    while waiting and len(seen) < _MOST_SOURCES:
        op = waiting.pop()
        if op.name in seen:
            continue
        seen[op.name] = op
        if not op.type.startswith("QueueDequeue"):
            waiting.extend(tensor.op for tensor in op.inputs)
    return list(seen.values())


def _tell_files(queue: QueueRecord, sources: Iterable[Any]) -> None:
    """How many files are named among constants, and how large they are, where they are there."""
    for op in sources:
        if op.type != "Const" or op.outputs[0].dtype.name != "string":
            continue
        names = list(op.get_attr("value").string_val)
        size = mean_size(names)
        if size is not None and len(names) > queue.files:
            queue.files, queue.file_bytes = len(names), size
