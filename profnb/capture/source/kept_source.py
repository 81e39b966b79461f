"""Which of the user's source is kept, and by what name: the lines that matter, and no path of the machine.

A result is shared: the notebook, the page, the file beside a trace. So of each file it holds the lines that
ran or made ops, a few around each within the same function, and nothing else; and files are named from the
working folder or their package on.
"""

import ast
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from profnb.capture.source.source_records import SourceRecords, StackRecords
from profnb.core.parsing import parse_again
from profnb.core.sharing import short_path

_AROUND = 2
_MAGIC = re.compile(r"^(\s*)[%!?].*$")
_LIBRARY = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def keep_near(lines: Sequence[str], kept: Collection[int]) -> tuple[str, ...]:
    """A text with all lines but those near some lines emptied.

    Args:
        lines: The text.
        kept: Numbers of lines, from 1; each stays with two before and two after it, as far as they lie in the
            same function or class, or like it in none.
    """
    scopes = _scopes(tuple(lines))
    near = {
        number
        for line in kept
        if 0 < line <= len(lines)
        for number in range(max(line - _AROUND, 1), min(line + _AROUND, len(lines)) + 1)
        if scopes[number - 1] == scopes[line - 1]
    }
    return tuple(text if at in near else "" for at, text in enumerate(lines, 1))


@lru_cache(maxsize=8)  # a module is the same at each capture
def _scopes(lines: tuple[str, ...]) -> Sequence[int]:
    """The line at which the innermost function or class around each line begins; 0 for none."""
    scopes = [0] * len(lines)
    try:
        tree = parse_again("\n".join(_MAGIC.sub(r"\1pass", line) for line in lines))
    except (
        SyntaxError,
        ValueError,
        RecursionError,
        MemoryError,
    ):  # no Python: each line for itself
        return list(range(1, len(lines) + 1))
    # Outer ones come first, so that inner ones write over them.
    for node in sorted(
        (node for node in ast.walk(tree) if isinstance(node, _SCOPES)), key=lambda node: node.lineno
    ):
        first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
        last = node.end_lineno or node.lineno
        scopes[first - 1 : last] = [first] * (last - first + 1)
    return scopes


def shorten_files(files: Iterable[str], folder: str) -> dict[str, str]:
    """What files are called in a result; two files never alike.

    Args:
        files: As code objects name them.
        folder: Where the code began to run.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for file in dict.fromkeys(files):
        name = _short(file, folder)
        number = 2
        while name in taken:
            name = f"{_short(file, folder)} ({number})"
            number += 1
        names[file] = name
        taken.add(name)
    return names


def _short(file: str, folder: str) -> str:
    if file.startswith(("<", "~")):
        return file
    path = Path(file)
    for name in ("site-packages", "dist-packages"):
        if name in path.parts:
            at = len(path.parts) - path.parts[::-1].index(name)
            return "/".join((name, *path.parts[at:]))
    for place in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")):
        if path.is_relative_to(place):
            return f"{_LIBRARY}/{path.relative_to(place).as_posix()}"
    if folder and path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    top = path.parent
    while (top / "__init__.py").is_file() and top != top.parent:
        top = top.parent
    if top != path.parent:
        return path.relative_to(top).as_posix()
    return short_path(file) if path.is_absolute() else path.as_posix()


def shorten_source(records: SourceRecords, names: Mapping[str, str]) -> SourceRecords:
    """The same records with files by their short names, and of texts only what is near their lines."""
    timed: dict[str, set[int]] = {}
    for file, line in records.places:
        timed.setdefault(file, set()).add(line)
    lines = records.lines
    for code, line in set(zip(lines.code, lines.line, strict=True)):
        if code >= 0:
            timed.setdefault(lines.files[code], set()).add(line)
    return replace(
        records,
        places=[(names[file], line) for file, line in records.places],
        lines=replace(
            lines,
            files=[names[file] for file in lines.files],
            untimed=[(names[file], line) for file, line in lines.untimed],
        ),
        texts={
            names[file]: keep_near(text, timed.get(file, ()))
            for file, text in records.texts.items()
        },
        cells={names[file]: number for file, number in records.cells.items()},
    )


def shorten_stacks(stacks: StackRecords, names: Mapping[str, str]) -> StackRecords:
    """The same samples with files by their short names."""
    frames = [(name, names[file], first, line) for name, file, first, line in stacks.frames]
    return replace(stacks, frames=frames)
