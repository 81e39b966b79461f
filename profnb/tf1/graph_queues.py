"""The queues of a session's graph: what each may hold, and every enqueuing run of any other thread.

Queue runners do not call ``Session.run`` but what that calls in the end, as do threads of the code's own; so
that is what is hooked, also for runners that run already. Nothing is traced and nothing asked of the queue:
what it holds follows from what was put in and taken out, and from how much of it the graph's ops say.

Source: the ops' attributes, tensorflow/core/ops/data_flow_ops.cc (2.21).
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.environment import mean_size
from profnb.capture.hooks import Library, watch
from profnb.capture.recording import QueueRecord
from profnb.capture.seams import GRAPH_OPERATIONS, OP_HANDLE, RAW_RUN

_MOST_RUNS = 200_000
_TARGETS = 4  # of Session._call_tf_sessionrun(self, options, feed_dict, fetch_list, target_list)
_QUEUES = ("FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue", "PriorityQueue")
_PASSED_ON = ("Identity", "Switch", "RefSwitch", "Enter", "RefEnter", "RefIdentity")
_LARGEST_GRAPH, _MOST_SOURCES, _MOST_QUEUES = 300_000, 5_000, 100


def defining_class(of: Any, method: str) -> Any:
    """Find the class in which a method of a class stands; None where there is none."""
    return next((base for base in getattr(of, "__mro__", ()) if method in vars(base)), None)


class QueueWatch:
    """Enqueuing runs of all threads but the one that makes it.

    Args:
        hook_failed: Given an error of ours.
    """

    def __init__(self, hook_failed: Callable[[Exception], object]) -> None:
        """No graph has been seen yet."""
        self._hook_failed = hook_failed
        self._thread = threading.get_ident()
        self._hook = ExitStack()
        self._seen: set[tuple[int, int]] = set()
        self._graph: Any = None
        self._ops: dict[Any, str] = {}  # an op's handle is one object for as long as it is kept
        self._began_ns: dict[int, int] = {}  # by thread
        self._runs: list[tuple[int, int, Any, int]] = []
        self._queues: dict[str, QueueRecord] = {}

    @contextmanager
    def watch(self, tensorflow: Library) -> Iterator[None]:
        """See enqueuing runs inside the block."""
        session = RAW_RUN.owner(tensorflow.module) if tensorflow.take(RAW_RUN) else None
        owner, name = defining_class(session, RAW_RUN.attributes[0]), RAW_RUN.attributes[0]
        with self._hook:
            if owner is not None:
                watching = watch(
                    owner, name, before=self._run_begins, came=self._run_ended,
                    hook_failed=self._hook_failed,
                )  # fmt: skip
                self._hook.enter_context(watching)
            yield

    def graph_is_final(self) -> None:
        """The graph changes no more: where it has no queues, nobody puts anything into them."""
        if not self._queues:
            self._hook.close()

    def _run_begins(self, *_: object) -> None:
        self._began_ns[threading.get_ident()] = time.perf_counter_ns()

    def _run_ended(self, *arguments: Any) -> None:
        """Keep a run of another thread that did not raise and that only enqueues."""
        now_ns, thread, targets = time.perf_counter_ns(), threading.get_ident(), arguments[_TARGETS]
        began_ns = self._began_ns.pop(thread, None)
        if thread == self._thread or began_ns is None:
            return
        if len(targets) == 1 and len(self._runs) < _MOST_RUNS:
            self._runs.append((began_ns, now_ns, targets[0], thread))

    def see_graph(self, graph: Any) -> None:
        """Take in the queues of a graph; what it has seen already costs nothing."""
        key = id(graph), int(getattr(graph, "version", 0))
        is_other = self._graph is not None and graph is not self._graph
        if key in self._seen or is_other or len(self._seen) > 3:  # it grows all the time
            return
        self._seen.add(key)
        self._graph = graph
        try:
            self._queues, self._ops = read_queues(graph)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._hook_failed(error)

    def finish(self) -> list[QueueRecord]:
        """Give the queues that anything was put into or can be taken from; keep no reference to the graph."""
        by_op = {op: queue for queue in self._queues.values() for op in queue.enqueues}
        threads: dict[int, int] = {}
        for begin, end, handle, thread in sorted(self._runs, key=lambda run: run[1]):
            op = self._ops.get(handle, "")
            queue = by_op.get(op)
            if queue is not None:
                queue.begin_ns.append(begin)
                queue.end_ns.append(end)
                queue.elements.append(queue.enqueues[op])
                queue.thread.append(threads.setdefault(thread, len(threads)))
        self._runs, self._ops, self._graph = [], {}, None
        return list(self._queues.values())


def read_queues(graph: Any) -> tuple[dict[str, QueueRecord], dict[Any, str]]:
    """Read the queues of a graph."""
    queues: dict[str, QueueRecord] = {}
    handles: dict[Any, str] = {}
    operations = GRAPH_OPERATIONS.of(graph, list)()[:_LARGEST_GRAPH]
    for op in operations:
        if op.type.removesuffix("V2") in _QUEUES and len(queues) < _MOST_QUEUES:
            queues[op.name] = _describe(op)
    for op in operations if queues else ():
        if not op.type.startswith(("QueueDequeue", "QueueEnqueue")):
            continue
        taken_from = op.inputs[0].op
        while taken_from.type in _PASSED_ON and len(taken_from.inputs):
            taken_from = taken_from.inputs[0].op
        queue = queues.get(str(taken_from.name))
        if queue is None:
            continue
        if op.type.startswith("QueueDequeue"):
            queue.dequeues[op.name] = _taken(op)
        else:
            queue.enqueues[op.name] = _given(op)
            handles[OP_HANDLE.of(op)] = op.name
            sources = _sources(op.inputs[1:])
            queue.sources = tuple(sorted({*queue.sources, *(source.type for source in sources)}))
            for source in sources:  # how many files constants name, and how large those are
                if source.type == "Const" and source.outputs[0].dtype.name == "string":
                    names = list(source.get_attr("value").string_val)
                    size = mean_size(names)
                    if size is not None and len(names) > queue.files:
                        queue.files, queue.file_bytes = len(names), size
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


def _taken(op: Any) -> int:
    """Count the elements that a dequeuing op takes out; 0 where the graph does not tell."""
    if op.type.removesuffix("V2") == "QueueDequeue":
        return 1
    count = op.inputs[1].op
    if count.type != "Const":
        return 0
    value = count.get_attr("value")
    raw = value.tensor_content[:4]
    number = value.int_val[0] if value.int_val else int.from_bytes(raw, "little")
    return max(int(number), 0)


def _given(op: Any) -> int:
    """Count the elements that an enqueuing op puts in; 0 where the graph does not tell."""
    if op.type.removesuffix("V2") == "QueueEnqueue":
        return 1
    shape = op.inputs[1].shape
    first = shape[0] if shape.rank else None
    return int(getattr(first, "value", first) or 0)


def _sources(tensors: Iterable[Any]) -> list[Any]:
    """Find the ops that tensors come from; not those behind another queue."""
    waiting, seen = [tensor.op for tensor in tensors], dict[str, Any]()
    while waiting and len(seen) < _MOST_SOURCES:
        op = waiting.pop()
        if op.name in seen:
            continue
        seen[op.name] = op
        if not op.type.startswith("QueueDequeue"):
            waiting.extend(tensor.op for tensor in op.inputs)
    return list(seen.values())
