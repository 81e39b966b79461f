"""What is put into the queues of a session's graph: every enqueuing run of any other thread, and when it ran.

Queue runners do not call ``Session.run`` but what that calls in the end, as do threads of the code's own; so
that is what is hooked, also for runners that run already. Nothing is traced and nothing asked of the queue:
what it holds follows from what was put in and taken out.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from profnb.capture.hooks import Library, replace_attribute
from profnb.capture.recording import QueueRecord
from profnb.capture.seams import RAW_RUN
from profnb.tf1.inlined import copy_inside
from profnb.tf1.queue_graph import read_queues

_MOST_RUNS = 200_000
_Arguments = tuple[Any]


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
        self._runs: list[tuple[int, int, Any, int]] = []
        self._queues: dict[str, QueueRecord] = {}

    @contextmanager
    def watch(self, tensorflow: Library) -> Iterator[None]:
        """See enqueuing runs inside the block."""
        session = RAW_RUN.owner(tensorflow.module) if tensorflow.take(RAW_RUN) else None
        name = RAW_RUN.attributes[0]
        owner = next((base for base in getattr(session, "__mro__", ()) if name in vars(base)), None)
        run = (
            None
            if owner is None
            else copy_inside(vars(owner)[name], self._around, ("target_list",))
        )
        if run is None:
            yield
            return
        with self._hook:
            self._hook.enter_context(replace_attribute(owner, name, run))
            yield

    def graph_is_final(self) -> None:
        """The graph changes no more: where it has no queues, nobody puts anything into them."""
        if not self._queues:
            self._hook.close()

    def _around(self, _: Any, targets: Any) -> AbstractContextManager[_Arguments]:
        if (
            threading.get_ident() == self._thread
            or len(self._runs) >= _MOST_RUNS
            or len(targets) != 1
        ):
            return nullcontext((targets,))
        return _Run(self._runs, targets)

    def see_graph(self, graph: Any) -> None:
        """Take in the queues of a graph; what it has seen already costs nothing."""
        key = id(graph), int(getattr(graph, "version", 0))
        if key in self._seen or (self._graph is not None and graph is not self._graph):
            return
        if len(self._seen) > 3:  # it grows all the time
            return
        self._seen.add(key)
        self._graph = graph
        try:
            self._queues, self._ops = read_queues(graph)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._hook_failed(error)

    def finish(self) -> list[QueueRecord]:
        """The queues that anything was put into or can be taken from; no reference to the graph is kept."""
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


class _Run:
    """Around one run of another thread; it counts if it does not raise."""

    def __init__(self, runs: list[tuple[int, int, Any, int]], targets: Any) -> None:
        self._runs, self._targets = runs, targets

    def __enter__(self) -> _Arguments:
        self._began_ns = time.perf_counter_ns()
        return (self._targets,)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            now = time.perf_counter_ns()
            self._runs.append((self._began_ns, now, self._targets[0], threading.get_ident()))
