"""The calls that stand in the user's cells and modules, which may have made layers.

Nothing is run or imported: texts are parsed, once as long as they stay as they are. A project of a hundred
modules is the same at each capture, and to walk the trees of all would take longer than all else at its end.
"""

import ast
import linecache
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from types import ModuleType
from typing import Any

from profnb.capture.source.user_code import is_user_file
from profnb.core.parsing import parse_again

_MOST_BYTES, _MOST_BYTES_OF_FILE = 4_000_000, 200_000
_MOST_CALLS = 2_000


@dataclass(frozen=True, slots=True)
class Call:
    """A call in a text that may make a layer: the class's name, its line, its constant arguments."""

    name: str
    file: str
    line: int
    positional: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    gives_name: bool


class _Text:
    """The text of a cell or module, and the calls in it once some are asked for."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text

    def calls_of(self, names: Collection[str]) -> list[Call]:
        """The first calls of some names, in the order of their lines."""
        there = [name for name in names if name in self.text]
        if not there:
            return []
        numbered = sorted(
            (call.line, at, call) for name in there for at, call in self._calls.get(name, ())
        )
        return [call for _, _, call in islice(numbered, _MOST_CALLS)]

    @cached_property
    def _calls(self) -> dict[str, list[tuple[int, Call]]]:
        """Its calls by the name that is called, each with which of all it is."""
        try:
            tree = parse_again(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return {}
        calls: dict[str, list[tuple[int, Call]]] = {}
        for at, node in enumerate(ast.walk(tree)):
            if isinstance(node, ast.Call) and (call := _read(node, self.file)):
                calls.setdefault(call.name, []).append((at, call))
        return calls


def _read(node: ast.Call, file: str) -> Call | None:
    """What a call says; the tree itself, many times as large, is not kept."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    positional = tuple(each.value for each in node.args if isinstance(each, ast.Constant))
    keywords = tuple(
        (each.arg, each.value.value)
        for each in node.keywords
        if each.arg is not None and isinstance(each.value, ast.Constant)
    )
    gives_name = any(each.arg in ("name", None) for each in node.keywords)
    return Call(name, file, node.lineno, positional, keywords, gives_name) if name else None


# The texts that the last search saw, by file.
_last_seen: dict[str, _Text] = {}


def calls_in_files(names: Collection[str]) -> list[list[Call]]:
    """The calls of some names in the user's cells, then modules, the newest first of each.

    Of each file that has any, in the order of their lines.
    """
    seen = {
        file: last_seen
        if (last_seen := _last_seen.get(file)) and last_seen.text == text
        else _Text(file, text)
        for file, text in _texts()
    }
    _last_seen.clear()
    _last_seen.update(seen)
    return [calls for text in seen.values() if (calls := text.calls_of(names))]


def _texts() -> Iterator[tuple[str, str]]:
    imported = list(_imported_files())
    modules = set(imported)
    cells = [file for file in list(linecache.cache) if file not in modules and is_user_file(file)]
    left = _MOST_BYTES
    for file in (*cells[::-1], *imported[::-1]):
        text = "".join(linecache.getlines(file))
        if 0 < len(text) < _MOST_BYTES_OF_FILE:
            left -= len(text)
            if left < 0:
                return
            yield file, text


def _imported_files() -> Iterable[str]:
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            file = vars(module).get("__file__")
            if isinstance(file, str) and is_user_file(file):
                yield file
