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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.environment import Chain
from profnb.core.columns import Bools, Int32s, Int64s, RowColumns, flags_at, gather, sum_by
from profnb.core.units import bytes_text, count_text
from profnb.steps.activities import FunctionRuns
from profnb.steps.nesting import find_parents, last_around, self_times
from profnb.trace.model import Trace
from profnb.trace.names import parse_op

PREFIX = "Iterator::"
_EXECUTOR = ("ExecutorState::Process", "ExecutorDoneCallback")
# Here an index counts elements, files or windows; elsewhere (Zip, DirectedInterleave) it numbers branches.
_COUNTED = re.compile(
    r"((?:^|::)(?:FlatMap|GroupByWindow|(?!Directed)[A-Za-z]{0,30}Interleave|[A-Za-z]{0,30}Repeat)"
    r"[A-Za-z0-9]{0,30})\[\d{1,19}\]"
)
OP_VERSION = re.compile(r"V\d+$")
_INDEX = re.compile(r"\[\d+\]$")
OpShare = tuple[str, int, int]  # an op's type, its time in picoseconds, how often it ran
_MOST_OPS_NAMED = 3
_MOST_CODES = 1 << 20  # so many are counted without sorting
_FEWEST_FILES, _LARGE_BYTES = 50, 1 << 20
_WITH_FUNCTION = frozenset(
    {"Map", "Filter", "FlatMap", "Interleave", "Scan", "Reduce", "GroupByWindow"}
)
_PLACE = re.compile(r"([A-Za-z]{1,60}Dataset(?:V\d)?):(\d{1,9})\b")
NOT_INPUT, NO_FUNCTION = -2, -1


def label_of(path: str) -> str:
    """Name the kind of iterator at a path: ``ParallelMapV2`` becomes ``ParallelMap``."""
    return OP_VERSION.sub("", path.rpartition("::")[2].partition("[")[0])


@dataclass(frozen=True)
class IteratorTree(RowColumns):
    """N iterators, parents before children; E' events of theirs."""

    path: tuple[str, ...]  # their places, without ``Iterator::``
    parent: Int64s  # the iterator that asks each for elements, or -1, shape (N,)
    depth: Int64s  # how many ask before it, shape (N,)
    # whether its input is asked on other threads than it is asked itself, shape (N,)
    is_async: Bools
    events: Int64s  # events that are calls of iterators, ascending, shape (E',)
    node: Int64s  # the iterator of each, shape (E',)
    # the call that each lies inside on its own thread, as row of ``events``, or -1, shape (E',)
    above: Int32s
    self_ps: Int64s  # time in each call less the calls inside it, shape (E',)
    runs: Int64s  # events that are runs of a user's function, ascending, shape (R,)
    run_node: Int64s  # the iterator whose function each is, or -1, shape (R,)
    run_end_ps: Int64s  # when the last work for each ended, shape (R,)
    run_busy_ps: Int64s  # time that threads worked for each, shape (R,)
    # the run that each event has the id of, as row of ``runs``, or -1, shape (E,)
    run_of_event: Int32s


def find_iterators(trace: Trace, outside: Int32s, function_runs: FunctionRuns) -> IteratorTree:
    """Find the iterators of a trace, and which calls and runs of functions are whose.

    ``outside`` is each event's parent on its line, or -1, shape (E,).
    """
    texts = trace.names.texts
    named = {row: text for row, text in enumerate(texts) if text.startswith(PREFIX)}
    places = {row: _COUNTED.sub(r"\1", text.removeprefix(PREFIX)) for row, text in named.items()}
    ordered = sorted(set(places.values()), key=lambda path: (path.count("::"), path))
    rows = {path: row for row, path in enumerate(ordered)}
    of_name = np.full(len(texts) or 1, -1, np.int64)
    of_name[list(places)] = [rows[path] for path in places.values()]
    events = np.flatnonzero(trace.by_name(of_name >= 0) & trace.is_host_event)
    node = of_name[trace.events.name[events]]
    parent = np.array([_parent_of(path, rows) for path in ordered], np.int64)
    depth = np.zeros(len(ordered), np.int64)
    for row in np.flatnonzero(parent >= 0).tolist():
        depth[row] = depth[parent[row]] + 1
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    above = find_parents(end, np.searchsorted(events, trace.lines.offsets))
    alone = self_times(begin, end, above)
    is_outer = (above < 0) & (parent[node] >= 0) if node.size else above < 0
    asked_elsewhere = np.bincount(parent[node[is_outer]], minlength=len(ordered))
    asked_inside = np.bincount(node[above[above >= 0]], minlength=len(ordered))
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
    """
    owner = np.full(runs.size, -1, np.int64)
    if not runs.size:
        return owner
    whose = np.full(outside.size, -1, np.int32)  # whose call an event is, or whose thread it is on
    around = outside[calls]
    is_outer = around >= 0
    fed = is_outer & ~flags_at(calls, outside.size)[around]
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
    """Find the end of the last work for each run, and the time that threads worked for it, shape (R,).

    What the executor does for a run carries the run's id, on whatever thread.
    """
    end = trace.events.end_ps[runs]
    work = np.flatnonzero(run_of_event >= 0)
    work = work[trace.are_named(work, lambda name: name in _EXECUTOR)]
    row = run_of_event[work]
    np.maximum.at(end, row, trace.events.end_ps[work])
    busy = sum_by(row, trace.events.duration_ps[work], runs.size)
    return end, np.where(busy == 0, trace.events.duration_ps[runs], busy)  # 0: ran inline


def keras_array_rows(tree: IteratorTree) -> set[int]:
    """Find the iterators of the pipeline that Keras 2 and 3 make of arrays.

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
        is_zip = {arrays, indices} <= paths and label_of(path) == "Zip" and above >= 0
        if not is_zip or label_of(tree.path[above]) != "ParallelMap":
            continue
        prefixes = (f"{path}::", f"{path}[")
        rows |= {row, *(at for at, below in enumerate(tree.path) if below.startswith(prefixes))}
        while above >= 0 and set(np.flatnonzero(tree.parent == above).tolist()) <= rows:
            rows.add(above)
            above = int(tree.parent[above])
    return rows


def count_first_fill(trace: Trace, tree: IteratorTree, row: int) -> int:
    """Count how often an iterator's input was asked during its first call, on whatever thread."""
    calls = tree.events[tree.node == row]
    if not calls.size:
        return 0
    first = calls[trace.events.begin_ps[calls].argmin()]
    inputs = trace.events.begin_ps[tree.events[tree.parent[tree.node] == row]]
    begin, end = trace.events.begin_ps[first], trace.events.end_ps[first]
    return int(((inputs >= begin) & (inputs < end)).sum())


def name_functions(dataset: Sequence[str], chains: Sequence[Chain]) -> tuple[str, ...]:
    """Name the user's function of each iterator, from the pipeline whose shape is that of the trace.

    ``MapDataset:1`` below ``FilterDataset:4`` is the pipeline (Map, Filter) from the source on. If exactly
    one of the user's pipelines is of that shape, say (Map of ``augment``, Filter of ``odd``), those are the
    names.

    Args:
        dataset: The datasets of each iterator, named by kind and a number, ``ParallelMapDatasetV2:31``, that
            grows from the source on, and several in one where they were fused.
        chains: Pipelines that may have been the one: (kind, function) from the source on.

    Returns:
        The names, "" where there is no function or its name is not known.
    """
    places: dict[int, tuple[str, int]] = {}
    for row, name in enumerate(dataset):
        for kind, at in _PLACE.findall(name):
            plain = label_of(kind.partition("Dataset")[0]).removeprefix("Parallel")
            if plain in _WITH_FUNCTION:  # the deepest iterator of a dataset is the one that runs it
                places[int(at)] = plain, row
    kinds, rows = zip(*(places[at] for at in sorted(places)), strict=True) if places else ((), ())
    fitting = set()
    for chain in chains:
        plain_links = [(kind.removeprefix("Parallel"), function) for kind, function in chain]
        links = [link for link in plain_links if link[0] in _WITH_FUNCTION]
        if tuple(kind for kind, _ in links) == kinds:
            fitting.add(tuple(function for _, function in links))
    # Pipelines of one shape with other functions cannot be told apart.
    functions = dict(zip(rows, fitting.pop(), strict=True)) if len(fitting) == 1 else {}
    return tuple(functions.get(row, "") for row in range(len(dataset)))


def find_function_ops(
    trace: Trace, tree: IteratorTree, outside: Int32s
) -> tuple[tuple[OpShare, ...], ...]:
    """Sum up the ops inside each iterator's function that took most time, at most three, most time first.

    TensorFlow's executor runs a function in pieces on any thread, each an event with the run's id; an op of
    the function lies directly inside such a piece. ``outside`` is each event's parent on its line, or -1,
    shape (E,).
    """
    spent: list[list[OpShare]] = [[] for _ in range(len(tree))]
    if tree.runs.size:
        codes = {"": 0, "Dataset": 0}  # of types of ops; 0 is none
        parsed = map(parse_op, trace.names.texts)
        of_name = np.array(
            [codes.setdefault(op[1], len(codes)) if op is not None else 0 for op in parsed] or [0]
        )
        ops, iterator = _ops_of_runs(trace, tree, outside, of_name > 0)
        distinct, row, often = _count(iterator * len(codes) + of_name[trace.events.name[ops]])
        time_ps = sum_by(row, trace.events.duration_ps[ops], distinct.size)
        kinds = {code: kind for kind, code in codes.items()}
        for pair, time, count in zip(
            distinct.tolist(), time_ps.tolist(), often.tolist(), strict=True
        ):
            at, code = divmod(pair, len(codes))
            spent[at].append((kinds[code], time, count))
    return tuple(tuple(sorted(ops, key=lambda op: -op[1])[:_MOST_OPS_NAMED]) for ops in spent)


def draws_numbers(trace: Trace, tree: IteratorTree, outside: Int32s) -> bool:
    """Tell if a function of tf.data runs an op that draws numbers, or one of a layer that does.

    The op that draws is mostly too short to be recorded; ``random_flip_1/SelectV2`` tells of the layer.
    """
    is_drawn = trace.names.rows_where(lambda name: "random" in name.lower())
    return bool(is_drawn.any() and _ops_of_runs(trace, tree, outside, is_drawn)[0].size)


def _count(codes: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The distinct ones of N codes, ascending, the row in them of each, and how often each is there."""
    if codes.size and codes.max() > _MOST_CODES:
        distinct, row, often = np.unique(codes, return_inverse=True, return_counts=True)
        return distinct, row, often
    counts = np.bincount(codes)
    distinct = np.flatnonzero(counts)
    rows = np.zeros(counts.size, np.int64)
    rows[distinct] = np.arange(distinct.size)
    return distinct, rows[codes], counts[distinct]


def _ops_of_runs(
    trace: Trace, tree: IteratorTree, outside: Int32s, is_op: Bools
) -> tuple[Int64s, Int64s]:
    """Events of ops that ran in users' functions, and the iterator of each."""
    pieces = np.flatnonzero(tree.run_of_event >= 0)
    pieces = pieces[trace.are_named(pieces, lambda name: name in _EXECUTOR)]
    is_piece = flags_at(pieces, outside.size + 1)  # the last one is nobody's parent
    ops = np.flatnonzero(gather(is_piece, outside) & trace.is_host_event)
    ops = ops[gather(is_op, trace.events.name[ops])]
    iterator = gather(tree.run_node, gather(tree.run_of_event, outside[ops]))
    return ops[iterator >= 0], iterator[iterator >= 0]


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The function of an iterator that reads a file for each element."""

    iterator: int  # its row
    reads: int  # files that it read while traced
    reading_ps: int  # what ``ReadFile`` took in all, on whatever threads
    other_ps: int  # what its other ops took


def files_text(counts: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    """Count the files of the dataset with most: "600 files of 128 B on average"; "" if not known."""
    if not counts:
        return ""
    name = max(counts, key=counts.__getitem__)
    size = f" of {bytes_text(sizes[name])} on average" if name in sizes else ""
    return f"{count_text(counts[name])} files{size}"


def read_files(ops: Sequence[OpShare]) -> tuple[int, int, int]:
    """Sum up (files that a function read, time in ``ReadFile``, time in its other ops)."""
    reads = sum(often for name, _, often in ops if name == "ReadFile")
    reading = sum(time for name, time, _ in ops if name == "ReadFile")
    return reads, reading, sum(time for _, time, _ in ops) - reading


def find_small_files(
    function_ops: Sequence[Sequence[OpShare]], runs: Int64s, sizes: Mapping[str, int]
) -> SmallFiles | None:
    """Find the iterator that reads most files, one for each element, 50 or more of less than a megabyte.

    ``runs`` is how often each function ran; ``sizes`` are mean sizes of the files that datasets begin with,
    as far as known.
    """
    if max(sizes.values(), default=0) >= _LARGE_BYTES:
        return None
    readers = (SmallFiles(row, *read_files(ops)) for row, ops in enumerate(function_ops))
    many = (one for one in readers if one.reads >= _FEWEST_FILES)
    small = (one for one in many if one.reads * 2 > runs[one.iterator])
    return max(small, key=lambda one: one.reads, default=None)


def find_input_work(trace: Trace, tree: IteratorTree, parent: Int32s, wanted: Int64s) -> Int64s:
    """Find what the input pipeline ran: inside a call of an iterator, or in a run of its function.

    ``parent`` is each event's parent on its line, or -1, shape (E,).

    Returns:
        The iterator whose function an event is of; ``NO_FUNCTION`` where it is tf.data's own or not known,
        ``NOT_INPUT`` for all else, shape (N,).
    """
    iterator = np.full(wanted.size, NOT_INPUT, np.int64)
    if not len(tree):
        return iterator
    iterator[last_around(trace, tree.events[tree.above < 0], wanted) >= 0] = NO_FUNCTION
    if not tree.runs.size:
        return iterator
    run = last_around(trace, tree.runs, wanted)
    iterator[run >= 0] = tree.run_node[run[run >= 0]]
    # What the executor does for a run on another thread has the run's id, or is inside an event that has it.
    for events in (parent[wanted], wanted):
        rest = np.flatnonzero((iterator < 0) & (events >= 0))
        run_of = tree.run_of_event[events[rest]]
        rest, run_of = rest[run_of >= 0], run_of[run_of >= 0]
        iterator[rest] = np.maximum(iterator[rest], tree.run_node[run_of])
    return iterator
