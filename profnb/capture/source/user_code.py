"""Which files hold the user's own code, and the text of their lines.

The user's own is what was typed into a cell or lies outside of every place that packages are installed to:
neither the standard library, nor ``site-packages``, nor a folder on Python's path that a package was
installed to (``pip install --target``), nor profnb. TensorFlow's AutoGraph writes copies of functions to
temporary files, which stand for the function they were made from and are nobody's own; so do what PyTorch's
Inductor writes.
"""

import ast
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import FrameType

from profnb.capture.seams import (
    CELL_OF_FILE,
    CELL_TEXTS,
    COMPILER,
    HISTORY,
    SHELL_INSTANCE,
    SHELL_IS_THERE,
)

_MOST_FILES, _MOST_LINES, _LONGEST_LINE = 40, 20_000, 400
_LONGEST_TITLE = 110
# What a cell's first line became (``capture.cell``), and how the user wrote it.
_OUR_LINE = re.compile(
    r"^(?:__import__\('IPython'\)\.)?get_ipython\(\)\.run_line_magic\('_(tf\w+)_begin', '(.*)'\)$"
)
# What IPython compiles the lines below ``%%time`` as; they are numbered from there.
_TIMED = ("<timed exec>", "<timed eval>")
_TIMED_CELL = re.compile(
    r"^get_ipython\(\)\.run_cell_magic\('time', .*?, ('.*'|\".*\")\)$", re.MULTILINE
)
_PACKAGES = ("/site-packages/", "/dist-packages/", "/__autograph_generated_file", "/torchinductor_")
_ANY_LIBRARY = re.compile(r"/lib(64)?/python3\.\d+/")  # of a machine that a file was saved on
_OURS = Path(__file__).parents[2].as_posix() + "/"
_LIBRARY = tuple(
    Path(sysconfig.get_path(name)).as_posix() + "/" for name in ("stdlib", "platstdlib")
)


@lru_cache(maxsize=1 << 14)
def is_user_file(file: str) -> bool:
    """Whether code of this file name is the user's own, here or on a machine that it was saved on."""
    if file.startswith(("<", "~")):  # "~" is where cProfile says that functions in C are
        return file.startswith(("<ipython-input", "<stdin>", *_TIMED))
    path = file.replace("\\", "/")
    path = (
        path if path.startswith("/") else f"/{path}"
    )  # a short name begins with site-packages, say
    if path.startswith((_OURS, *_LIBRARY)) or any(part in path for part in _PACKAGES):
        return False
    return _ANY_LIBRARY.search(path) is None and not _is_of_package(path)


def _is_of_package(path: str) -> bool:
    """Whether a file lies in a folder on Python's path and belongs to what was installed there."""
    for folder in {entry.replace("\\", "/").rstrip("/") for entry in sys.path if entry}:
        if path.startswith(f"{folder}/"):
            top = path[len(folder) + 1 :].partition("/")[0]
            if _is_installed(folder, top):
                return True
    return False


@lru_cache(maxsize=1 << 10)
def _is_installed(folder: str, top: str) -> bool:
    """Whether a package that was installed to a folder has a file or folder of this name there."""
    listed = re.compile(rf"^{re.escape(top)}[/,]".encode(), re.MULTILINE)
    try:
        return any(
            listed.search(record.read_bytes()) for record in Path(folder).glob("*.dist-info/RECORD")
        )
    except OSError:  # a folder that may not be looked into
        return False


def is_own_file(file: str) -> bool:
    """Whether a file is profnb's."""
    return file.replace("\\", "/").startswith(_OURS)


class Places:
    """Distinct lines of code, numbered in the order they were first seen.

    Attributes:
        listed: (file, line) of each.
    """

    __slots__ = ("_rows", "listed")

    def __init__(self) -> None:
        """Start with none."""
        self.listed: list[tuple[str, int]] = []
        self._rows: dict[tuple[str, int], int] = {}

    def row_of(self, file: str, line: int) -> int:
        """The number of a line."""
        place = file, line
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = len(self.listed)
            self.listed.append(place)
        return row


def user_place(frame: FrameType | None) -> tuple[str, int] | None:
    """The innermost line of the user's own code at or above a frame."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def read_sources(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The lines of each file whose text Python has at hand; a cell's come from the shell.

    A file is read as the interpreter would for a traceback; nothing is imported or run. Long files and
    lines are cut.
    """
    texts: dict[str, tuple[str, ...]] = {}
    for file in list(dict.fromkeys(files))[:_MOST_FILES]:
        try:
            lines = _timed_lines() if file in _TIMED else linecache.getlines(file)
        except (OSError, UnicodeError, MemoryError):  # gone, or no text
            continue
        if lines:
            kept = (line.rstrip("\r\n")[:_LONGEST_LINE] for line in lines[:_MOST_LINES])
            texts[file] = tuple(_OUR_LINE.sub(r"%%\1 \2", line) for line in kept)
    return texts


def _timed_lines() -> list[str]:
    """The lines below the ``%%time`` of the cell that ran last; none where that has no such line."""
    is_there, instance = SHELL_IS_THERE.find(), SHELL_INSTANCE.find()
    if is_there is None or instance is None or not is_there():
        return []
    inputs = CELL_TEXTS.of(HISTORY.of(instance()), ())
    timed_cell = _TIMED_CELL.search(inputs[-1]) if len(inputs) else None
    return [] if timed_cell is None else str(ast.literal_eval(timed_cell[1])).splitlines()


def file_title(file: str, cells: Mapping[str, int]) -> str:
    """What a person calls a file: the cell's number, or the end of its path."""
    if file in cells:
        return f"Cell [{cells[file]}]"
    if file in _TIMED:
        return "Below %%time"
    parts = file.replace("\\", "/").split("/")
    return "/".join(parts[-2:])[-_LONGEST_TITLE:]


def number_cells() -> dict[str, int]:
    """The number of the cell that each file name of the shell stands for; none outside of IPython."""
    is_there, instance = SHELL_IS_THERE.find(), SHELL_INSTANCE.find()
    if is_there is None or instance is None or not is_there():
        return {}
    shell = instance()
    number_of = CELL_OF_FILE.of(COMPILER.of(shell))
    if isinstance(number_of, dict):
        return {file: number for file, number in number_of.items() if isinstance(number, int)}
    numbers = {}  # IPython 7 keeps no such map
    inputs = [text.strip() for text in CELL_TEXTS.of(HISTORY.of(shell), ())]
    for file in [name for name in list(linecache.cache) if is_user_file(name)]:
        named = re.match(r"<ipython-input-(\d+)-", file)
        text = "".join(linecache.getlines(file)).strip()
        if named:
            numbers[file] = int(named.group(1))
        elif text and text in inputs:
            numbers[file] = len(inputs) - 1 - inputs[::-1].index(text)
    return numbers
