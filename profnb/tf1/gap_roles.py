"""Stacks between session runs to statements of the user's, and what each is to the run.

A stack is compared with those of the runs, from the outermost frame of the user's on: where both are in
the same statement, one frame further in is looked at; the first statement that differs is what ran instead
of the one that leads to the run.
"""

import ast
from collections.abc import Mapping, Sequence
from types import CodeType

from profnb.capture.recording import AFTER, BEFORE, FEEDS, RUN_ITSELF, GapPlace
from profnb.capture.source.stacks import line_at
from profnb.capture.source.user_code import is_user_file
from profnb.tf1.statements import (
    Source,
    comes_from,
    fed_names,
    is_fed,
    loaded_names,
    only_shows,
)

Stack = tuple[tuple[CodeType, int], ...]  # the outermost first

_MOST_PLACES = 12
_SESSIONS = (
    "/tensorflow/python/client/",
    "/tensorflow/python/training/",
    "/tensorflow/python/framework/",
)
_HOOKS = ("after_run", "before_run")
_Place = tuple[str, int, str, str]  # file, line, text, role


class _Reader:
    """The sources of all files, each read once."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._places: dict[tuple[int, int], tuple[int, ast.stmt | None]] = {}

    def of(self, code: CodeType) -> Source:
        file = code.co_filename
        if file not in self._sources:
            self._sources[file] = Source(file)
        return self._sources[file]

    def statement(self, code: CodeType, offset: int) -> tuple[int, ast.stmt | None]:
        """Line of an instruction and the statement it belongs to."""
        key = id(code), offset
        if key not in self._places:
            self._places[key] = self._find(code, offset)
        return self._places[key]

    def _find(self, code: CodeType, offset: int) -> tuple[int, ast.stmt | None]:
        line, column = line_at(code, offset), None
        if hasattr(code, "co_positions"):
            place = next(
                (p for row, p in enumerate(code.co_positions()) if row == offset // 2), None
            )
            if place is not None and place[0] is not None and place[2] is not None:
                line, column = place[0], place[2]
        return line, self.of(code).statement(line, column)


def tell_roles(calls: Sequence[Stack], stacks: Mapping[Stack, int], scale: float) -> list[GapPlace]:
    """Sum up stacks by statement.

    Args:
        calls: The stacks of the runs; those of our own frames end them.
        stacks: Time of each stack between runs.
        scale: What to multiply times by.

    Returns:
        The statements that took most of the time, the longest first.
    """
    reader = _Reader()
    sums: dict[_Place, int] = {}
    inner: dict[_Place, dict[tuple[str, int, str], int]] = {}
    for stack, took in stacks.items():
        place = (
            max((_place(call, stack, reader) for call in calls), key=_kinship)[-1]
            if calls and stack
            else None
        )
        if place is None:
            continue
        sums[place] = sums.get(place, 0) + took
        code, offset = [frame for frame in stack if is_user_file(frame[0].co_filename)][-1]
        line = line_at(code, offset)
        if (code.co_filename, line) != place[:2]:
            inner_place = (
                code.co_filename,
                line,
                reader.of(code).text(line, reader.statement(code, offset)[1]),
            )
            inside = inner.setdefault(place, {})
            inside[inner_place] = inside.get(inner_place, 0) + took
    places = []
    for place, took in sorted(sums.items(), key=lambda item: -item[1])[:_MOST_PLACES]:
        most = max(inner.get(place, {("", 0, ""): 0}).items(), key=lambda item: item[1])
        places.append(GapPlace(*place, int(took * scale), *most[0], int(most[1] * scale)))
    return places


def _kinship(candidate: tuple[int, bool, _Place]) -> tuple[int, bool, bool]:
    """Of several runs, the one a statement is told by: it is fed from there, or is in the same loop.

    Before a loop there often is another run in the same function, which initialises the variables.
    """
    shared, same_loop, place = candidate
    return shared, place[-1] == FEEDS, same_loop


def _place(call: Stack, stack: Stack, reader: _Reader) -> tuple[int, bool, _Place]:
    """How many of the user's frames both share, whether a loop too, and what ran instead of the run."""
    rows = [row for row, (code, _) in enumerate(stack) if is_user_file(code.co_filename)]
    of_call = [frame for frame in call if is_user_file(frame[0].co_filename)]
    shared = 0
    for level, (row, (code, offset)) in enumerate(zip(rows, of_call, strict=False)):
        stack_code, stack_offset = stack[row]
        is_last = level == len(of_call) - 1
        line, statement = reader.statement(stack_code, stack_offset)
        source = reader.of(stack_code)
        if stack_code is not code:
            role = FEEDS if level else AFTER
            return shared, False, (stack_code.co_filename, line, source.text(line), role)
        _, run = reader.statement(code, offset)
        if run is None or run is not statement:
            role = (
                AFTER
                if run is None or statement is None
                else _role(source, statement, run, is_last=is_last)
            )
            first = line if statement is None else statement.lineno
            place = stack_code.co_filename, first, source.text(first, statement), role
            return shared, _in_one_loop(source, statement, run), place
        shared += 1
        if is_last or row == rows[-1]:
            hook = _hook_in(stack[row + 1 :])
            first = run.lineno
            if hook is not None:
                return shared, True, (stack_code.co_filename, first, hook, RUN_ITSELF)
            role = FEEDS if not is_last or is_fed(run) else AFTER
            return (
                shared,
                True,
                (stack_code.co_filename, first, source.text(first, statement), role),
            )
    code, offset = stack[0]
    line = line_at(code, offset)
    return shared, False, (code.co_filename, line, reader.of(code).text(line), AFTER)


def _hook_in(frames: Stack) -> str | None:
    """The hook that runs below a run's statement, "" for TensorFlow's own Python; None where neither does."""
    if not frames or not any(
        part in frames[0][0].co_filename.replace("\\", "/") for part in _SESSIONS
    ):
        return None
    for code, _ in frames:
        if code.co_name in _HOOKS and code.co_argcount:
            return str(getattr(code, "co_qualname", code.co_name))
    return ""


def _in_one_loop(source: Source, statement: ast.stmt | None, run: ast.stmt | None) -> bool:
    loop = None if run is None else source.loop(run)
    return loop is not None and statement is not None and loop in source.above(statement)


def _role(source: Source, statement: ast.stmt, run: ast.stmt, *, is_last: bool) -> str:
    """What a statement is to another one of the same scope that leads to the run."""
    needed = fed_names(run) if is_last else loaded_names(run)
    if comes_from(source, statement, run, needed):
        return FEEDS
    is_earlier = (statement.lineno, statement.col_offset) < (run.lineno, run.col_offset)
    in_loop = _in_one_loop(source, statement, run)
    feeds = not is_last or bool(needed) or is_fed(run)
    return BEFORE if is_earlier and in_loop and feeds and not only_shows(statement) else AFTER
