"""tf.data's iterator events to the tree of iterators, with what ran for each and on which thread.

Each ``GetNext`` of an iterator is an event named by its place, ``Iterator::Root::Prefetch::Map``. What it
asks of its input on the same thread nests inside it. ``Prefetch``, ``ParallelMap`` and their like
are asynchronous: threads of their own ask the input and run the user's function, and the event on the
consumer's thread is only the wait for what they made. An iterator made anew (each epoch) or for each element
(inside ``flat_map`` and ``interleave``) is the same node of the tree.

Source: tensorflow/core/data/name_utils.cc and kernels/data (2.21): IteratorPrefix, TraceMeMetadata;
InstantiatedCapturedFunction in captured_function.cc.
"""

import re
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Bools, Int32s, Int64s
from profnb.steps.activities import FunctionRuns, find_function_runs
from profnb.steps.nesting import find_parents, self_times
from profnb.trace.model import Trace

PREFIX = "Iterator::"
_EXECUTOR = ("ExecutorState::Process", "ExecutorDoneCallback")
# Here an index counts elements, files or windows; elsewhere (Zip, DirectedInterleave) it numbers branches.
_COUNTED = re.compile(
    r"((?:^|::)(?:FlatMap|GroupByWindow|(?!Directed)[A-Za-z]{0,30}Interleave|[A-Za-z]{0,30}Repeat)"
    r"[A-Za-z0-9]{0,30})\[\d{1,19}\]"
)
_VERSION = re.compile(r"V\d+$")
_INDEX = re.compile(r"\[\d+\]$")


def label_of(path: str) -> str:
    """What kind of iterator stands at a path: ``ParallelMapV2`` becomes ``ParallelMap``."""
    return _VERSION.sub("", path.rpartition("::")[2].partition("[")[0])


@dataclass(frozen=True)
class IteratorTree:
    """N iterators, parents before children; E' events of theirs.

    Attributes:
        path: Their places, without ``Iterator::``.
        parent: The iterator that asks each for elements, or -1, shape (N,).
        depth: How many ask before it, shape (N,).
        is_async: Whether its input is asked on other threads than it is asked itself, shape (N,).
        events: Events that are calls of iterators, ascending, shape (E',).
        node: The iterator of each, shape (E',).
        above: The call that each lies inside on its own thread, as row of ``events``, or -1, shape (E',).
        self_ps: Time in each call less the calls inside it, shape (E',).
        runs: Events that are runs of a user's function, ascending, shape (R,).
        run_node: The iterator whose function each is, or -1, shape (R,).
        run_end_ps: When the last work for each ended, shape (R,).
        run_busy_ps: Time that threads worked for each, shape (R,).
        run_of_event: The run that each event has the id of, as row of ``runs``, or -1, shape (E,).
    """

    path: tuple[str, ...]
    parent: Int64s
    depth: Int64s
    is_async: Bools
    events: Int64s
    node: Int64s
    above: Int32s
    self_ps: Int64s
    runs: Int64s
    run_node: Int64s
    run_end_ps: Int64s
    run_busy_ps: Int64s
    run_of_event: Int32s

    def __len__(self) -> int:
        return len(self.path)


def find_iterators(
    trace: Trace, outside: Int32s | None = None, function_runs: FunctionRuns | None = None
) -> IteratorTree:
    """Find the iterators of a trace, and which calls and runs of functions are whose.

    Args:
        trace: The trace.
        outside: Each event's parent on its line, or -1, shape (E,); found if not given.
        function_runs: Runs of users' functions; found if not given.
    """
    if outside is None:
        outside = find_parents(trace.events.end_ps, trace.lines.offsets)
    texts = trace.names.texts
    paths: dict[str, int] = {}
    for text in texts:
        if text.startswith(PREFIX):
            paths.setdefault(_COUNTED.sub(r"\1", text.removeprefix(PREFIX)), 0)
    used = trace.names.rows_where(lambda text: text.startswith(PREFIX))
    events = np.flatnonzero(trace.by_name(used) & trace.is_host_event)
    ordered = sorted(paths, key=lambda path: (path.count("::"), path))
    rows = {path: row for row, path in enumerate(ordered)}
    of_name = np.array(
        [rows.get(_COUNTED.sub(r"\1", text.removeprefix(PREFIX)), -1) for text in texts] or [-1],
        np.int64,
    )
    node = of_name[trace.events.name[events]]
    parent = np.array([_parent_of(path, rows) for path in ordered], np.int64)
    depth = np.zeros(len(ordered), np.int64)
    for row in range(len(ordered)):
        depth[row] = depth[parent[row]] + 1 if parent[row] >= 0 else 0
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    above = find_parents(end, np.searchsorted(events, trace.lines.offsets))
    alone = self_times(begin, end, above)
    is_outer = (above < 0) & (parent[node] >= 0) if node.size else above < 0
    asked_elsewhere = np.bincount(parent[node[is_outer]], minlength=len(ordered))
    asked_inside = np.bincount(node[above[above >= 0]], minlength=len(ordered))
    if function_runs is None:
        function_runs = find_function_runs(trace)
    runs, run_of_event = function_runs.runs, function_runs.of_event
    run_end, run_busy = _work_of_runs(trace, runs, run_of_event)
    return IteratorTree(
        tuple(ordered), parent, depth, asked_elsewhere > asked_inside, events, node, above, alone,
        runs, _owners(outside, runs, events, node, parent), run_end, run_busy, run_of_event,
    )  # fmt: skip


def _parent_of(path: str, rows: dict[str, int]) -> int:
    """The nearest place above that has calls, or -1."""
    while "::" in path:
        path = path.rpartition("::")[0]
        for above in (path, _INDEX.sub("", path)):
            if above in rows:
                return rows[above]
    return -1


def _owners(outside: Int32s, runs: Int64s, calls: Int64s, node: Int64s, parent: Int64s) -> Int64s:
    """The iterator whose function each run is of, or -1, shape (R,).

    A run lies inside the call of a synchronous iterator. One of an asynchronous iterator lies beside the
    call that fetched its argument, both inside the same event of the thread that feeds it.

    Args:
        outside: Each event's parent, shape (E,).
        runs: Runs of users' functions, shape (R,).
        calls: Calls of iterators, shape (E',).
        node: The iterator of each call.
        parent: The iterator that asks each iterator.
    """
    owner = np.full(runs.size, -1, np.int64)
    if not runs.size:
        return owner
    whose = np.full(outside.size, -1, np.int32)  # whose call an event is, or whose thread it is on
    around = outside[calls]
    is_outer = around >= 0
    is_call = np.zeros(outside.size, np.bool_)
    is_call[calls] = True
    fed = is_outer & ~is_call[around]
    whose[around[fed]] = parent[node[fed]]
    whose[calls] = node
    rows, at = np.arange(runs.size), outside[runs]
    while rows.size:  # one level further out each time
        inside = at >= 0
        rows, at = rows[inside], at[inside]
        owner[rows] = whose[at]
        unknown = owner[rows] < 0
        rows, at = rows[unknown], outside[at[unknown]]
    return owner


def _work_of_runs(trace: Trace, runs: Int64s, run_of_event: Int32s) -> tuple[Int64s, Int64s]:
    """When the last work for each run ended, and how long threads worked for it, both shape (R,).

    What the executor does for a run carries the run's id, on whatever thread.
    """
    end, busy = trace.events.end_ps[runs], np.zeros(runs.size, np.int64)
    work = np.flatnonzero(run_of_event >= 0)
    work = work[trace.are_named(work, lambda name: name in _EXECUTOR)]
    row = run_of_event[work]
    np.maximum.at(end, row, trace.events.end_ps[work])
    np.add.at(busy, row, trace.events.duration_ps[work])
    return end, np.where(busy == 0, trace.events.duration_ps[runs], busy)  # 0: ran inline


def keras_array_rows(tree: IteratorTree) -> set[int]:
    """The iterators of the pipeline that Keras 2 and 3 make of arrays.

    It maps a function that gathers over pairs of indices and the arrays themselves, again and again::

        Root::Prefetch::ParallelMap::Zip [0]::FlatMap::Prefetch::Map::Range      indices, shuffled
                                         [1]::ForeverRepeat::FromTensor          the arrays

    Source: keras/src/trainers/data_adapters/array_data_adapter.py, get_tf_dataset (3.15), which is
    TensorLikeDataAdapter of Keras 2's data_adapter.py.
    """
    rows: set[int] = set()
    paths = set(tree.path)
    for row, path in enumerate(tree.path):
        arrays, indices = f"{path}[1]::ForeverRepeat::FromTensor", f"{path}[0]::FlatMap"
        above = int(tree.parent[row])
        if not {arrays, indices} <= paths or label_of(path) != "Zip" or above < 0:
            continue
        if label_of(tree.path[above]) != "ParallelMap":
            continue
        prefixes = (f"{path}::", f"{path}[")
        rows |= {row, *(at for at, below in enumerate(tree.path) if below.startswith(prefixes))}
        while above >= 0 and set(np.flatnonzero(tree.parent == above).tolist()) <= rows:
            rows.add(above)
            above = int(tree.parent[above])
    return rows


def count_first_fill(trace: Trace, tree: IteratorTree) -> list[int]:
    """How often each iterator's input was asked during the first call of it, on whatever thread."""
    counts = [0] * len(tree)
    begin, end = trace.events.begin_ps[tree.events], trace.events.end_ps[tree.events]
    for row in range(len(tree)):
        calls = np.flatnonzero(tree.node == row)
        if not calls.size:
            continue
        first = calls[begin[calls].argmin()]
        inputs = begin[tree.parent[tree.node] == row]
        counts[row] = int(((inputs >= begin[first]) & (inputs < end[first])).sum())
    return counts
