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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from profnb.capture.source.source_records import StackRecords
from profnb.capture.source.user_code import file_title, is_user_file
from profnb.capture.step_records import StepRecords
from profnb.core.block import Block
from profnb.core.columns import Bools, Floats, Int64s
from profnb.core.table import Column, Table
from profnb.core.units import PS_PER_NS, PS_PER_S, duration_text, percent_text
from profnb.trace.pstats_file import CallCounts

# What libraries wrap their public functions in.
_WRAPPERS = frozenset({"error_handler", "op_dispatch_handler", "wrapper", "wrapped_fn", "wrapped"})
Function = tuple[str, str, int]
"""(name, file, first line)."""

# How much of a tree is drawn; the narrowest block is a fraction of the whole width.
DEEPEST, MOST_BLOCKS, NARROWEST = 12, 160, 0.004
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class PythonTime:
    """One row per Python function that was seen, most self time first.

    Attributes:
        function: (name, file, first line).
        is_user: Whether it is the user's own code, shape (N,).
        samples: Samples in which it was on the stack, shape (N,); -1 where calls were counted instead.
        self_ps: Time in it alone, shape (N,).
        total_ps: Time in it and what it called, shape (N,).
        inside_ps: The part of the total inside steps, shape (N,).
        between_ps: The part between or outside of them, shape (N,).
        whole_ps: All time that was sampled.
        whole_between_ps: The part of it between or outside of steps.
        has_steps: Whether there were steps to be inside of.
        blocks: Who called whom; a block lies under its caller.
        occurrences: How often each was called, shape (N,), where that was counted; -1 where it was not.
        cells: The number of the cell that each file stands for, where it is one.
    """

    function: tuple[Function, ...]
    is_user: Bools
    samples: Int64s
    self_ps: Int64s
    total_ps: Int64s
    inside_ps: Int64s
    between_ps: Int64s
    whole_ps: int
    whole_between_ps: int
    has_steps: bool
    blocks: tuple[Block, ...]
    occurrences: Int64s
    cells: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.samples.size


def tabulate_python(
    stacks: StackRecords, steps: StepRecords, cells: Mapping[str, int] | None = None
) -> PythonTime:
    """Sum up samples.

    Args:
        stacks: The samples.
        steps: The steps by the same clock.
        cells: The number of the cell that each file stands for, where it is one.
    """
    times = np.array(stacks.time_ns, np.int64)
    took = np.diff(times, prepend=stacks.begin_ns) * PS_PER_NS
    is_inside = _inside(times, steps)
    rows = np.array(stacks.stack, np.int64)
    sums = np.zeros((3, len(stacks.stacks)), np.int64)
    for row, values in enumerate((np.ones_like(took), took * is_inside, took * ~is_inside)):
        np.add.at(sums[row], rows, values)
    calls = [
        _without_shell([_function_of(stacks.frames[frame]) for frame in stack])
        for stack in stacks.stacks
    ]
    functions: dict[Function, int] = {}
    for stack in calls:
        for function in stack:
            functions.setdefault(function, len(functions))
    table = np.zeros((4, len(functions)), np.int64)
    for stack, (count, inside, between) in zip(calls, sums.T.tolist(), strict=True):
        for function in set(stack):
            at = functions[function]
            table[0, at] += count
            table[2, at] += inside
            table[3, at] += between
        if stack:
            table[1, functions[stack[-1]]] += inside + between
    total = table[2] + table[3]
    order = np.lexsort((-total, -table[1]))
    listed = list(functions)
    is_users = np.array([bool(stack) for stack in calls], np.bool_)
    inside_whole, between_whole = sums[1:, is_users].sum(axis=1).tolist()
    shares = _Shares(inside_whole + between_whole, len(steps) > 0, cells or {})
    return PythonTime(
        tuple(listed[row] for row in order),
        np.array([is_user_file(listed[row][1]) for row in order], np.bool_),
        table[0, order], table[1, order], total[order], table[2, order], table[3, order],
        shares.whole_ps, between_whole, shares.has_steps, tuple(_grow(calls, sums, shares)),
        np.full(order.size, -1), shares.cells,
    )  # fmt: skip


def _inside(times: Int64s, steps: StepRecords) -> Bools:
    begin, end = np.array(steps.begin_ns, np.int64), np.array(steps.end_ns, np.int64)
    if not begin.size:
        return np.zeros(times.size, np.bool_)
    order = np.argsort(begin)
    at = np.searchsorted(begin[order], times, side="right") - 1
    is_inside: Bools = (at >= 0) & (times < end[order][np.maximum(at, 0)])
    return is_inside


def _function_of(frame: tuple[str, str, int, int]) -> Function:
    name, file, first, _ = frame
    if name == "<module>":  # each statement of a cell is one of its own
        return name, file, 1
    return name, file, first


def _without_shell(stack: list[Function]) -> list[Function]:
    first = next((at for at, (_, file, _) in enumerate(stack) if is_user_file(file)), len(stack))
    return stack[first:]


def _package_of(file: str) -> str:
    """The package that a file belongs to; the user's own code is "", every file of it."""
    if is_user_file(file):
        return ""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in file:
            return file.partition(folder)[2].partition("/")[0]
    return "python"


def _entry_points(stack: list[Function]) -> list[Function]:
    """What was called of each package in turn, the user's functions all; at most twelve."""
    shown: list[Function] = []
    before = None
    for function in stack:
        package = _package_of(function[1])
        if package == "" or package != before:
            shown.append(function)
        elif shown[-1][0].rpartition(".")[2] in _WRAPPERS:
            shown[-1] = function
        before = package
    return shown[:DEEPEST]


class _Node:
    __slots__ = ("between", "inside", "parts")

    def __init__(self) -> None:
        self.parts: dict[Function, _Node] = {}
        self.inside = self.between = 0

    @property
    def total(self) -> int:
        return self.inside + self.between


@dataclass(frozen=True, slots=True)
class _Shares:
    """What blocks are shares of, and how their files are called."""

    whole_ps: int
    has_steps: bool
    cells: Mapping[str, int]


def _grow(calls: list[list[Function]], sums: Int64s, shares: _Shares) -> list[Block]:
    root = _Node()
    for stack, (_, inside, between) in zip(calls, sums.T.tolist(), strict=True):
        node = root
        for function in _entry_points(stack):
            node = node.parts.setdefault(function, _Node())
            node.inside += inside
            node.between += between
    blocks: list[Block] = []
    waiting = [(root, 0, 0.0)]
    while waiting:
        node, level, begin = waiting.pop(0)
        for function, part in sorted(node.parts.items(), key=lambda item: -item[1].total):
            width = part.total / shares.whole_ps if shares.whole_ps else 0.0
            if width < NARROWEST or len(blocks) >= MOST_BLOCKS:
                break
            between_ps = part.between if shares.has_steps else None
            blocks.append(
                call_block(function, level, begin, width, part.total, shares.cells, between_ps)
            )
            waiting.append((part, level + 1, begin))
            begin += width
    return blocks


def _split(part: str) -> Callable[[PythonTime], Floats]:
    """Time inside or between steps, NaN where there are none."""

    def values(python: PythonTime) -> Floats:
        times: Int64s = getattr(python, part)
        return times.astype(np.float64) if python.has_steps else np.full(len(python), np.nan)

    return values


def _if_counted(values: Int64s) -> Floats:
    return np.where(values >= 0, values, np.nan)


PYTHON = Table[PythonTime](
    "python",
    "One row per function of Python, most self time first; with ``python=True`` or of a ``.prof`` file.",
    (
        Column("function", lambda t: [name for name, _, _ in t.function], "its name"),
        Column("file", lambda t: [file for _, file, _ in t.function], "the file it stands in"),
        Column(
            "line", lambda t: [first for _, _, first in t.function], "the source line it begins at"
        ),
        Column("is_user", lambda t: t.is_user, "whether it is your own code"),
        Column(
            "samples",
            lambda t: _if_counted(t.samples),
            "samples in which it was on the stack, NaN where calls were counted",
        ),
        Column(
            "occurrences",
            lambda t: _if_counted(t.occurrences),
            "how often it was called, NaN where it was sampled",
            "calls",
            alias="calls",
        ),
        Column("self_ms", lambda t: t.self_ps, "time in it alone"),
        Column("total_ms", lambda t: t.total_ps, "time in it and in what it called"),
        Column("inside_steps_ms", _split("inside_ps"), "the part of the total inside steps"),
        Column("between_steps_ms", _split("between_ps"), "the part of the total between steps"),
    ),
    "Times are of the main thread, TensorFlow's own work and waiting included.",
)


def short_name(name: str) -> str:
    """A function's name without the word for functions inside functions."""
    return name.replace(".<locals>", "")[-_LONGEST:]


def function_place(function: Function, cells: Mapping[str, int]) -> str:
    """Where a function stands: "Cell [3]:12", "built in".

    Args:
        function: The function.
        cells: The number of the cell that each file stands for, where it is one.
    """
    name, file, first_line = function
    if file.startswith("~") or not file:
        return "built in"
    title = file_title(file, cells)
    return title if name == "<module>" else f"{title}:{first_line}"


def call_block(
    function: Function, level: int, begin: float, width: float, total_ps: int, cells: Mapping[str, int],
    between_ps: int | None = None,
) -> Block:  # fmt: skip
    """The block of a function under its caller: "user code", "library" or "library between steps".

    Args:
        function: The function.
        level: How many callers it has.
        begin: Its left edge, as a fraction of the whole width.
        width: As a fraction of the whole width.
        total_ps: Its time.
        cells: The number of the cell that each file stands for, where it is one.
        between_ps: The part of its time between steps; None where there are no steps.
    """
    name, file, _ = function
    hover = f"{short_name(name)} ({function_place(function, cells)}): {duration_text(total_ps)}, "
    hover += percent_text(width)
    if between_ps is not None and total_ps:
        hover += f", {percent_text(between_ps / total_ps)} of it between steps"
    role = "library between steps" if between_ps and 2 * between_ps > total_ps else "library"
    role = "user code" if is_user_file(file) else role
    label = "your code" if name == "<module>" else name.rpartition(".<locals>.")[2]
    return Block(level, begin, width, label, hover, role)


def tabulate_counts(counts: CallCounts) -> PythonTime:
    """Bring counts into the form of samples."""
    alone = np.array([max(seconds, 0.0) * PS_PER_S for seconds in counts.self_s], np.float64)
    total = np.array([max(seconds, 0.0) * PS_PER_S for seconds in counts.total_s], np.float64)
    order = np.lexsort((-total, -alone))
    functions = tuple(counts.functions[row] for row in order)
    unknown = np.full(order.size, -1)
    return PythonTime(
        functions,
        np.array([is_user_file(file) for _, file, _ in functions], np.bool_),
        unknown,
        alone[order].astype(np.int64),
        total[order].astype(np.int64),
        unknown,
        unknown,
        int(alone.sum()),
        0,
        has_steps=False,
        blocks=tuple(_grow_of_counts(counts)),
        occurrences=np.array([counts.calls[row] for row in order], np.int64),
    )


def _grow_of_counts(counts: CallCounts) -> list[Block]:
    called: dict[int, list[tuple[int, float]]] = {}
    has_caller = set()
    for caller, row, seconds in counts.edges:
        if caller != row:
            called.setdefault(caller, []).append((row, seconds))
            has_caller.add(row)
    roots = [
        (row, counts.total_s[row]) for row in range(len(counts.functions)) if row not in has_caller
    ]
    whole = sum(seconds for _, seconds in roots)
    blocks: list[Block] = []
    waiting = [(roots, 0, 0.0, 1.0)]
    while waiting and whole > 0:
        parts, level, begin, scale = waiting.pop(0)
        for row, seconds in sorted(parts, key=lambda part: -part[1]):
            width = scale * seconds / whole
            if width < NARROWEST or len(blocks) >= MOST_BLOCKS or begin + width > 1.001:
                break
            function = counts.functions[row]
            spent = int(width * whole * PS_PER_S)
            blocks.append(call_block(function, level, begin, width, spent, {}))
            if level + 1 < DEEPEST and counts.total_s[row] > 0:
                inner = scale * seconds / counts.total_s[row]
                waiting.append((called.get(row, []), level + 1, begin, inner))
            begin += width
    return blocks
