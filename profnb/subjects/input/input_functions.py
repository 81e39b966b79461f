"""The users' functions of a pipeline: what each is called, and the ops that it ran."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.environment import Chain
from profnb.core.columns import Bools, Int32s, Int64s, gather
from profnb.core.units import bytes_text, count_text
from profnb.subjects.input.iterators import IteratorTree, label_of
from profnb.trace.model import Trace
from profnb.trace.op_names import parse_op

OpShare = tuple[str, int, int]  # an op's type, its time in picoseconds, how often it ran
_FUNCTION_WORK = ("ExecutorState::Process", "ExecutorDoneCallback")
_MOST_OPS = 3
_MOST_CODES = 1 << 20  # so many are counted without sorting
_FEWEST_FILES, _LARGE_BYTES = 50, 1 << 20
_WITH_FUNCTION = frozenset(
    {"Map", "Filter", "FlatMap", "Interleave", "Scan", "Reduce", "GroupByWindow"}
)
_PLACE = re.compile(r"([A-Za-z]{1,60}Dataset(?:V\d)?):(\d{1,9})\b")


def name_functions(dataset: Sequence[str], chains: Sequence[Chain]) -> tuple[str, ...]:
    """The user's function of each iterator, from the pipeline whose shape is that of the trace.

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
    kinds = [places[at][0] for at in sorted(places)]
    shapes = [_links(chain) for chain in chains]
    fitting = {
        tuple(function for _, function in links)
        for links in shapes
        if [kind.removeprefix("Parallel") for kind, _ in links] == kinds
    }
    names = [""] * len(dataset)
    # Pipelines of one shape with other functions cannot be told apart.
    if kinds and len(fitting) == 1:
        for function, at in zip(fitting.pop(), sorted(places), strict=True):
            names[places[at][1]] = function
    return tuple(names)


def _links(chain: Chain) -> list[tuple[str, str]]:
    """The transformations of a pipeline that take a function, the source first."""
    return [link for link in chain if link[0].removeprefix("Parallel") in _WITH_FUNCTION]


def find_function_ops(
    trace: Trace, tree: IteratorTree, outside: Int32s
) -> tuple[tuple[OpShare, ...], ...]:
    """The ops inside each iterator's function that took most time, at most three, most time first.

    TensorFlow's executor runs a function in pieces on any thread, each an event with the run's id; an op of
    the function lies directly inside such a piece.

    Args:
        trace: The trace.
        tree: Its iterators.
        outside: Each event's parent on its line, or -1, shape (E,).
    """
    spent: list[dict[str, tuple[int, int]]] = [{} for _ in range(len(tree))]
    if tree.runs.size:
        types = [_op_type(text) for text in trace.names.texts]
        is_op = np.array([text != "" for text in types] or [False], np.bool_)
        ops, iterator = _ops_of_runs(trace, tree, outside, is_op)
        pairs = iterator * len(types) + trace.events.name[ops]
        distinct, row, often = _count(pairs)
        time_ps = np.zeros(distinct.size, np.int64)
        np.add.at(time_ps, row, trace.events.duration_ps[ops])
        for pair, time, count in zip(
            distinct.tolist(), time_ps.tolist(), often.tolist(), strict=True
        ):
            at, name = divmod(pair, len(types))
            before = spent[at].get(types[name], (0, 0))
            spent[at][types[name]] = before[0] + time, before[1] + count
    return tuple(
        tuple(
            (name, *sums)
            for name, sums in sorted(ops_of_one.items(), key=lambda item: -item[1][0])[:_MOST_OPS]
        )
        for ops_of_one in spent
    )


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
    """Events of ops that ran in users' functions, and the iterator of each.

    Args:
        trace: The trace.
        tree: Its iterators, with at least one run of a function.
        outside: Each event's parent on its line, or -1, shape (E,).
        is_op: Which of the trace's names are of ops.
    """
    pieces = np.flatnonzero(tree.run_of_event >= 0)
    pieces = pieces[trace.are_named(pieces, lambda name: name in _FUNCTION_WORK)]
    is_piece = np.zeros(outside.size + 1, np.bool_)  # the last one is nobody's parent
    is_piece[pieces] = True
    ops = np.flatnonzero(gather(is_piece, outside) & trace.is_host_event)
    ops = ops[gather(is_op, trace.events.name[ops])]
    iterator = gather(tree.run_node, gather(tree.run_of_event, outside[ops]))
    return ops[iterator >= 0], iterator[iterator >= 0]


def _op_type(text: str) -> str:
    parsed = parse_op(text)
    return parsed[1] if parsed is not None and parsed[1] != "Dataset" else ""


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The function of an iterator that reads a file for each element.

    Attributes:
        iterator: Its row.
        reads: Files that it read while traced.
        reading_ps: What ``ReadFile`` took in all, on whatever threads.
        other_ps: What its other ops took.
    """

    iterator: int
    reads: int
    reading_ps: int
    other_ps: int


def files_text(counts: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    """How many files the dataset with most has: "600 files of 128 B on average"; "" if not known."""
    if not counts:
        return ""
    name = max(counts, key=lambda name: counts[name])
    size = f" of {bytes_text(sizes[name])} on average" if name in sizes else ""
    return f"{count_text(counts[name])} files{size}"


def find_small_files(
    function_ops: Sequence[Sequence[OpShare]], runs: Int64s, sizes: Mapping[str, int]
) -> SmallFiles | None:
    """The iterator that reads most files, one for each element.

    Args:
        function_ops: The ops of each iterator's function, N.
        runs: How often each function ran, shape (N,).
        sizes: Mean sizes of the files that datasets begin with, as far as known.

    Returns:
        None below 50 files, or where they are known to be of a megabyte or more.
    """
    if sizes and max(sizes.values()) >= _LARGE_BYTES:
        return None
    small_files = None
    for row, shares in enumerate(function_ops):
        ops = {name: (time, often) for name, time, often in shares}
        reading, often = ops.get("ReadFile", (0, 0))
        if often < _FEWEST_FILES or often * 2 <= int(runs[row]):
            continue
        if small_files is None or often > small_files.reads:
            others = sum(time for time, _ in ops.values()) - reading
            small_files = SmallFiles(row, int(often), int(reading), int(others))
    return small_files
