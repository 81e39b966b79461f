"""Samples of Python's stack to the functions and the calls that the time went to.

A sample stands for the time since the one before. It belongs to every function on its stack (total time)
and to the innermost one alone (self time); a function that calls itself counts once. It lies inside a step or
between steps by the wall times of the steps. What stands outside of the user's own code (the shell that runs
the cell) is left out.

The tree leaves out what happens inside of a library: of each run of frames of one package the first one
stays, which is what was called, and the user's own.
"""

from dataclasses import dataclass

import numpy as np

from profnb.capture.source.source_records import StackRecords
from profnb.capture.source.user_code import is_user_file
from profnb.capture.step_records import StepRecords
from profnb.core.columns import Bools, Int64s
from profnb.core.units import PS_PER_NS

__all__ = ["CallBlock", "PythonTime", "tabulate_python"]

# What libraries wrap their public functions in.
_WRAPPERS = frozenset({"error_handler", "op_dispatch_handler", "wrapper", "wrapped_fn", "wrapped"})
_DEEPEST, _MOST_BLOCKS, _NARROWEST = 12, 160, 0.004

Function = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CallBlock:
    """One block of the tree of calls.

    Attributes:
        level: 0 for the outermost.
        function: (name, file, first line).
        begin: Where it begins, as share of all time in 0..1; a block lies under its caller.
        width: Its share of all time.
        total_ps: Its time.
        between_ps: The part of it between steps.
        is_user: Whether it is the user's own code.
    """

    level: int
    function: Function
    begin: float
    width: float
    total_ps: int
    between_ps: int
    is_user: bool


@dataclass(frozen=True, slots=True)
class PythonTime:
    """One row per Python function that was seen, most self time first.

    Attributes:
        function: (name, file, first line).
        is_user: Whether it is the user's own code, shape (N,).
        samples: Samples in which it was on the stack, shape (N,).
        self_ps: Time in it alone, shape (N,).
        total_ps: Time in it and what it called, shape (N,).
        inside_ps: The part of the total inside steps, shape (N,).
        between_ps: The part between or outside of them, shape (N,).
        whole_ps: All time that was sampled.
        has_steps: Whether there were steps to be inside of.
        blocks: The tree of calls.
        calls: How often each was called, shape (N,), where that was counted; -1 where it was not.
    """

    function: tuple[Function, ...]
    is_user: Bools
    samples: Int64s
    self_ps: Int64s
    total_ps: Int64s
    inside_ps: Int64s
    between_ps: Int64s
    whole_ps: int
    has_steps: bool
    blocks: tuple[CallBlock, ...]
    calls: Int64s

    def __len__(self) -> int:
        return self.samples.size


def tabulate_python(stacks: StackRecords, steps: StepRecords) -> PythonTime:
    """Sum up samples.

    Args:
        stacks: The samples.
        steps: The steps by the same clock.
    """
    times = np.array(stacks.time_ns, np.int64)
    took = np.diff(times, prepend=stacks.begin_ns) * PS_PER_NS
    is_inside = _inside(times, steps)
    rows = np.array(stacks.stack, np.int64)
    sums = np.zeros((3, len(stacks.stacks)), np.int64)
    for row, values in enumerate((np.ones_like(took), took * is_inside, took * ~is_inside)):
        np.add.at(sums[row], rows, values)
    calls = [[_function_of(stacks.frames[frame]) for frame in stack] for stack in stacks.stacks]
    own = [_without_shell(stack) for stack in calls]
    functions: dict[Function, int] = {}
    for stack in own:
        for function in stack:
            functions.setdefault(function, len(functions))
    table = np.zeros((4, len(functions)), np.int64)
    for stack, (count, inside, between) in zip(own, sums.T.tolist(), strict=True):
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
    whole = sum(int(sums[1:, row].sum()) for row, stack in enumerate(own) if stack)
    return PythonTime(
        tuple(listed[row] for row in order),
        np.array([is_user_file(listed[row][1]) for row in order], np.bool_),
        table[0, order], table[1, order], total[order], table[2, order], table[3, order],
        whole, len(steps) > 0, tuple(_grow(own, sums, whole)), np.full(order.size, -1),
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
    shown: list[Function] = []
    before = None
    for function in stack:
        package = _package_of(function[1])
        if package == "" or package != before:
            shown.append(function)
        elif shown[-1][0].rpartition(".")[2] in _WRAPPERS:
            shown[-1] = function
        before = package
    return shown[:_DEEPEST]


class _Node:
    __slots__ = ("between", "inside", "parts")

    def __init__(self) -> None:
        self.parts: dict[Function, _Node] = {}
        self.inside = self.between = 0


def _grow(own: list[list[Function]], sums: Int64s, whole: int) -> list[CallBlock]:
    root = _Node()
    for stack, (_, inside, between) in zip(own, sums.T.tolist(), strict=True):
        node = root
        for function in _entry_points(stack):
            node = node.parts.setdefault(function, _Node())
            node.inside += inside
            node.between += between
    blocks: list[CallBlock] = []
    waiting = [(root, 0, 0.0)]
    while waiting:
        node, level, begin = waiting.pop(0)
        for function, part in sorted(node.parts.items(), key=lambda item: -_time_of(item[1])):
            width = _time_of(part) / whole if whole else 0.0
            if width < _NARROWEST or len(blocks) >= _MOST_BLOCKS:
                break
            is_user = is_user_file(function[1])
            blocks.append(
                CallBlock(level, function, begin, width, _time_of(part), part.between, is_user)
            )
            waiting.append((part, level + 1, begin))
            begin += width
    return blocks


def _time_of(node: _Node) -> int:
    return node.inside + node.between
