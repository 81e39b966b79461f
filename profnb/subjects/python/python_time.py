"""Samples of Python's stack, or a profiler's counts, to the functions and the calls that the time went to.

A sample stands for the time since the one before. It belongs to every function on its stack (total time)
and to the innermost one alone (self time); a function that calls itself counts once. It lies inside a step or
between steps by the wall times of the steps. What stands outside of the user's own code (the shell that runs
the cell) is left out.

The tree leaves out what happens inside of a library: of each run of frames of one package the first one
stays, which is what was called, and the user's own.

A deterministic profiler counts who called whom pair by pair only: a function's time for one caller is shared
out over the calls that led to the caller in proportion, so blocks below the second level are estimates.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile

import numpy as np

from profnb.capture.recording import Recording
from profnb.capture.source.source_records import StackRecords
from profnb.capture.source.user_code import file_title, is_user_file
from profnb.capture.step_records import StepRecords
from profnb.core.block import Block
from profnb.core.columns import Bools, Int64s, RowColumns, group, number_values, span_at, sum_by
from profnb.core.table import T, Table, columns_in
from profnb.core.units import PS_PER_NS, PS_PER_S, duration_text, percent_text
from profnb.trace.pprof import SampledStacks
from profnb.trace.pstats_file import CallCounts

# What libraries wrap their public functions in.
_WRAPPERS = frozenset({"error_handler", "op_dispatch_handler", "wrapper", "wrapped_fn", "wrapped"})
_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]*)")
# How much of a tree is drawn; the narrowest block is a fraction of the whole width.
_DEEPEST_SHOWN, _MOST_BLOCKS, _NARROWEST = 12, 160, 0.004
_LONGEST_FUNCTION = 160

Function = tuple[str, str, int]
"""(name, file, first line)."""

_Part = tuple[Function, float, int | None, T]


@dataclass(frozen=True, slots=True)
class PythonTime(RowColumns):
    """One row per Python function that was seen, most self time first.

    Its columns are those of ``PYTHON``, each of shape (N,), times in picoseconds.
    """

    function: tuple[Function, ...]  # (name, file, first line)
    is_user: Bools
    # samples in which it was on the stack, shape (N,); -1 where calls were counted instead
    samples: Int64s
    self_ps: Int64s
    total_ps: Int64s
    inside_ps: Int64s
    between_ps: Int64s
    whole_ps: int  # all time that was sampled
    whole_between_ps: int  # the part of it between or outside of steps
    has_steps: bool  # whether there were steps to be inside of
    blocks: tuple[Block, ...]  # who called whom; a block lies under its caller
    # how often each was called, shape (N,), where that was counted; -1 where it was not
    occurrences: Int64s
    # the number of the cell that each file stands for, where it is one
    cells: Mapping[str, int] = field(default_factory=dict)
    kind: str = ""  # what another profiler calls its samples; "" for Python's main thread


def find_python(recording: Recording) -> PythonTime | None:
    """Sum up the samples of a capture; None where it did not sample."""
    if recording.stacks is None:
        return None
    cells = recording.source.cells if recording.source else {}
    return tabulate_python(recording.stacks, recording.steps, cells)


def tabulate_python(
    stacks: StackRecords, steps: StepRecords, cells: Mapping[str, int] | None = None
) -> PythonTime:
    """Sum up samples."""
    times = np.array(stacks.time_ns, np.int64)
    took = np.diff(times, prepend=stacks.begin_ns) * PS_PER_NS
    spans = np.array([steps.begin_ns, steps.end_ns], np.int64)
    begin, end = spans[:, np.argsort(spans[0])]
    is_inside = span_at(begin, end, times) >= 0
    rows = np.array(stacks.stack, np.int64)
    columns = (1, took * is_inside, took * ~is_inside)
    sums = np.stack([sum_by(rows, values, len(stacks.stacks)) for values in columns])
    calls = [_calls_of([stacks.frames[frame] for frame in stack]) for stack in stacks.stacks]
    return _tabulate(calls, sums, cells or {}, has_steps=len(steps) > 0)


def tabulate_stacks(stacks: SampledStacks) -> PythonTime:
    """Sum up what another profiler sampled; nothing is left out, and no step is known of."""
    calls = [[stacks.functions[row] for row in stack] for stack in stacks.stacks]
    nothing = np.zeros_like(stacks.time_ns)
    sums = np.stack([np.maximum(stacks.samples, 0), nothing, stacks.time_ns * PS_PER_NS])
    python = _tabulate(calls, sums, {}, has_steps=False)
    samples = python.samples if (stacks.samples >= 0).all() else np.full(len(python), -1)
    return replace(python, samples=samples, kind=stacks.kind)


def _tabulate(
    calls: list[list[Function]], sums: Int64s, cells: Mapping[str, int], *, has_steps: bool
) -> PythonTime:
    """Sum up S stacks: their samples, and their time inside of steps and between, shape (3, S)."""
    listed, rows = number_values(function for stack in calls for function in stack)
    rows_of = np.split(rows, np.cumsum([len(stack) for stack in calls]))
    table = np.zeros((4, len(listed)), np.int64)  # samples, time inside, between, alone
    for of_stack, column in zip(rows_of, sums.T, strict=False):
        table[:3, np.unique(of_stack)] += column[:, None]
        table[3, of_stack[-1:]] += column[1:].sum()
    order = np.lexsort((-table[1:3].sum(axis=0), -table[3]))
    samples, inside, between, alone = table[:, order]
    whole, whole_between = (int(sums[row:, list(map(bool, calls))].sum()) for row in (1, 2))
    return PythonTime(
        tuple(listed[row] for row in order),
        np.array([is_user_file(listed[row][1]) for row in order], np.bool_),
        samples, alone, inside + between, inside, between, whole, whole_between, has_steps,
        _blocks_of_samples(calls, sums, whole, cells, has_steps=has_steps),
        np.full(order.size, -1), cells,
    )  # fmt: skip


def _calls_of(frames: Iterable[tuple[str, str, int, int]]) -> list[Function]:
    """The functions from the user's outermost on; each statement of a cell is one of its own."""
    functions = ((name, file, 1 if name == "<module>" else at) for name, file, at, _ in frames)
    return list(dropwhile(lambda function: not is_user_file(function[1]), functions))


def _package_of(file: str) -> str:
    """The package that a file belongs to; the user's own code is "", every file of it."""
    installed = _INSTALLED.search(file)
    return "" if is_user_file(file) else installed[1] if installed else "python"


def _entry_points(stack: list[Function]) -> list[Function]:
    """Keep what was called of each package in turn, the user's functions all; at most twelve."""
    shown: list[Function] = []
    packages = [_package_of(file) for _, file, _ in stack]
    for function, package, before in zip(stack, packages, [None, *packages], strict=False):
        if package == "" or package != before:
            shown.append(function)
        elif shown[-1][0].rpartition(".")[2] in _WRAPPERS:
            shown[-1] = function
    return shown[:_DEEPEST_SHOWN]


@dataclass(slots=True)
class _Node:
    parts: "dict[Function, _Node]" = field(default_factory=dict)
    inside: int = 0
    between: int = 0


def _blocks_of_samples(
    calls: list[list[Function]], sums: Int64s, whole: int, cells: Mapping[str, int], *, has_steps: bool
) -> tuple[Block, ...]:  # fmt: skip
    root = _Node()
    for stack, (_, inside, between) in zip(calls, sums.T.tolist(), strict=True):
        node = root
        for function in _entry_points(stack):
            node = node.parts.setdefault(function, _Node())
            node.inside += inside
            node.between += between

    def parts(node: _Node) -> list[_Part[_Node]]:
        return [
            (function, part.inside + part.between, part.between if has_steps else None, part)
            for function, part in node.parts.items()
        ]

    return _lay_out(root, parts, whole, cells)


def tabulate_counts(counts: CallCounts) -> PythonTime:
    """Bring counts into the form of samples."""
    both = np.array([counts.self_s, counts.total_s], np.float64)
    alone, total = np.maximum(both, 0) * PS_PER_S
    order = np.lexsort((-total, -alone))
    functions = tuple(counts.functions[row] for row in order)
    unknown = np.full(order.size, -1)
    return PythonTime(
        functions, np.array([is_user_file(file) for _, file, _ in functions], np.bool_),
        unknown, alone[order].astype(np.int64), total[order].astype(np.int64), unknown, unknown,
        int(alone.sum()), 0, has_steps=False, blocks=_blocks_of_counts(counts),
        occurrences=np.array([counts.calls[row] for row in order], np.int64),
    )  # fmt: skip


def _blocks_of_counts(counts: CallCounts) -> tuple[Block, ...]:
    edges = counts.edges
    called = group((caller, (row, time_s)) for caller, row, time_s in edges if caller != row)
    has_caller = {row for calls in called.values() for row, _ in calls}
    rows = set(range(len(counts.functions))) - has_caller
    called[-1] = [(row, counts.total_s[row]) for row in sorted(rows)]

    def parts(node: tuple[int, float]) -> list[_Part[tuple[int, float]]]:
        """The calls of a function, and how much of each one's time counts here."""
        caller, scale = node
        return [
            (
                counts.functions[row], seconds * scale * PS_PER_S, None,
                (row, scale * seconds / counts.total_s[row] if counts.total_s[row] > 0 else 0.0),
            )
            for row, seconds in called.get(caller, [])
        ]  # fmt: skip

    whole = sum(seconds for _, seconds in called[-1])
    return _lay_out((-1, 1.0), parts, whole * PS_PER_S, {})


def _lay_out(
    root: T, parts_of: Callable[[T], Sequence[_Part[T]]], whole_ps: float, cells: Mapping[str, int]
) -> tuple[Block, ...]:
    """Blocks of functions under their callers: "user code", "library" or "library between steps".

    Args:
        root: What calls the outermost functions.
        parts_of: What a function calls: (function, its time, the part of it between steps, None where there
            are no steps, and what it calls itself).
        whole_ps: The time that is the whole width.
        cells: The number of the cell that each file stands for, where it is one.
    """
    blocks: list[Block] = []
    waiting = [(root, 0, 0.0)]
    while waiting and whole_ps > 0:
        node, level, begin = waiting.pop(0)
        for function, total_ps, between_ps, inner in sorted(parts_of(node), key=lambda p: -p[1]):
            width = total_ps / whole_ps
            if width < _NARROWEST or len(blocks) >= _MOST_BLOCKS or begin + width > 1.001:
                break
            (name, file, _), took = function, duration_text(int(total_ps))
            place = function_place(function, cells)
            hover = f"{short_name(name)} ({place}): {took}, {percent_text(width)}"
            if between_ps is not None:
                hover += f", {percent_text(between_ps / total_ps)} of it between steps"
            role = "library between steps" if 2 * (between_ps or 0) > total_ps else "library"
            role = "user code" if is_user_file(file) else role
            label = "your code" if name == "<module>" else name.rpartition(".<locals>.")[2]
            blocks.append(Block(level, begin, width, label, hover, role))
            if level + 1 < _DEEPEST_SHOWN:
                waiting.append((inner, level + 1, begin))
            begin += width
    return tuple(blocks)


def short_name(name: str) -> str:
    """Shorten a function's name by the word for functions inside functions."""
    return name.replace(".<locals>", "")[-_LONGEST_FUNCTION:]


def function_place(function: Function, cells: Mapping[str, int]) -> str:
    """Say where a function stands: "Cell [3]:12", "built in"."""
    name, file, first_line = function
    if file.startswith("~") or not file:
        return "built in"
    title = file_title(file, cells)
    return title if name == "<module>" or not first_line else f"{title}:{first_line}"


PYTHON = Table[PythonTime](
    "python",
    "One row per function, most self time first, with ``python=True`` or of a profile of cProfile or pprof.",
    columns_in("""
        function: its name
        file: the file it stands in
        line: the source line it begins at
        is_user: whether it is your own code
        samples >= 0: samples in which it was on the stack, NaN where calls were counted
        occurrences [calls] >= 0: how often it was called, NaN where it was sampled
        self_ms: time in it alone
        total_ms: time in it and in what it called
        inside_steps_ms: the part of the total inside steps
        between_steps_ms: the part of the total between steps
        """),
    "Times are of the main thread, TensorFlow's own work and waiting included; of pprof, its samples.",
    values={
        "function": lambda t: [name for name, _, _ in t.function],
        "file": lambda t: [file for _, file, _ in t.function],
        "line": lambda t: [first for _, _, first in t.function],
        "inside_steps_ms": lambda t: np.where(t.has_steps, t.inside_ps, np.nan),
        "between_steps_ms": lambda t: np.where(t.has_steps, t.between_ps, np.nan),
    },
)
