"""The user's own code: which files hold it, what of their text is kept, and whether it uses sessions.

The user's own is what was typed into a cell or lies outside of every place that packages are installed to:
neither the standard library, nor ``site-packages``, nor a folder on Python's path that a package was
installed to (``pip install --target``), nor profnb. TensorFlow's AutoGraph writes copies of functions to
temporary files, which stand for the function they were made from and are nobody's own; so do what PyTorch's
Inductor writes.

A result is shared: the notebook, the page, the file beside a trace. So of each file it holds the lines that
ran or made ops, a few around each within the same function, and nothing else; and files are named from the
working folder or their package on.
"""

import ast
import inspect
import linecache
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from profnb.capture import seams
from profnb.capture.source.source_records import SourceRecords
from profnb.core.parsing import parse_again
from profnb.core.sharing import short_path

if TYPE_CHECKING:
    from profnb.capture.hooks import Library

_MOST_FILES, _MOST_LINES, _LONGEST_LINE = 40, 20_000, 400
_LONGEST_TITLE = 110
# What a cell's first line became (``capture.cell``), and how the user wrote it.
_OUR_LINE = re.compile(
    r"^(?:__import__\('IPython'\)\.)?get_ipython\(\)\.run_line_magic\('_(tf\w+)_begin', '(.*)'\)$"
)
# What IPython compiles the lines below ``%%time`` as; they are numbered from there.
_TIMED_CELLS = ("<timed exec>", "<timed eval>")
_TIMED_CELL = re.compile(
    r"^get_ipython\(\)\.run_cell_magic\('time', .*?, ('.*'|\".*\")\)$", re.MULTILINE
)
_INSTALLED = re.compile(  # the last: of a machine that a file was saved on
    r"/(?:(?:site|dist)-packages/|__autograph_generated_file|torchinductor_|lib(?:64)?/python3\.\d+/)"
)
_OUR_FILES = Path(__file__).parents[2].as_posix() + "/"
_LIBRARIES = [Path(sysconfig.get_path(name)).as_posix() for name in ("stdlib", "platstdlib")]
_NOT_THE_USERS = (_OUR_FILES, *(f"{folder}/" for folder in _LIBRARIES))
_LIBRARY = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}"
_AROUND = 2  # lines that are kept before and behind each
_MAGIC = re.compile(r"^(\s*)[%!?].*$")
_SESSION_NAMES = ("Session", "compat.v1", "v1", "estimator")
_SESSION_FILE = "/tensorflow/python/client/session.py"
_SESSION_CLASSES = "tensorflow.python.client.session"
_MOST_MODULES, _MOST_VALUES = 30, 2_000
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=1 << 14)
def is_user_file(file: str) -> bool:
    """Tell whether code of this file name is the user's own, here or on a machine that it was saved on."""
    if file.startswith(("<", "~")):  # "~" is where cProfile says that functions in C are
        return file.startswith(("<ipython-input", "<stdin>", *_TIMED_CELLS))
    # A short name begins with site-packages, say.
    path = "/" + file.replace("\\", "/").removeprefix("/")
    if path.startswith(_NOT_THE_USERS) or _INSTALLED.search(path) is not None:
        return False
    folders = {entry.replace("\\", "/").rstrip("/") + "/" for entry in sys.path if entry}
    return not any(
        _is_installed(folder, path.removeprefix(folder).partition("/")[0])
        for folder in folders
        if path.startswith(folder)
    )


@lru_cache(maxsize=1 << 10)
def _is_installed(folder: str, top: str) -> bool:
    """Tell whether a package that was installed to a folder has a file or folder of this name there."""
    listed = re.compile(rf"^{re.escape(top)}[/,]".encode(), re.MULTILINE)
    try:
        return any(
            listed.search(record.read_bytes()) for record in Path(folder).glob("*.dist-info/RECORD")
        )
    except OSError:  # a folder that may not be looked into
        return False


def package_of(value: object) -> str:
    """Name the package that an object's class is of."""
    return str(type(value).__module__).partition(".")[0]


def is_own_file(file: str) -> bool:
    """Tell whether a file is profnb's."""
    return file.replace("\\", "/").startswith(_OUR_FILES)


class LineTable(dict[tuple[str, int], int]):
    """Distinct lines of code, (file, line), numbered in the order they were first seen."""

    def row_of(self, file: str, line: int) -> int:
        """Number a line."""
        return self.setdefault((file, line), len(self))


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame of the calling thread, then those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def callers() -> Iterator[FrameType]:
    """Yield the frames that called profnb here, the innermost first."""
    frames = outward(inspect.currentframe())
    return dropwhile(lambda frame: is_own_file(frame.f_code.co_filename), frames)


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield those of them that run the user's own code."""
    return (one for one in outward(frame) if is_user_file(one.f_code.co_filename))


def user_place(frame: FrameType | None) -> tuple[str, int] | None:
    """Find the innermost line of the user's own code at or above a frame."""
    places = ((one.f_code.co_filename, one.f_lineno) for one in user_frames(frame))
    return next(places, None)


def read_sources(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read the lines of each file whose text Python has at hand; a cell's come from the shell.

    A file is read as the interpreter would for a traceback; nothing is imported or run. Long files and
    lines are cut.
    """
    texts: dict[str, tuple[str, ...]] = {}
    for file in list(dict.fromkeys(files))[:_MOST_FILES]:
        try:
            lines = _timed_lines() if file in _TIMED_CELLS else linecache.getlines(file)
        except (OSError, UnicodeError, MemoryError):  # gone, or no text
            continue
        if lines:
            kept = (line.rstrip("\r\n")[:_LONGEST_LINE] for line in lines[:_MOST_LINES])
            texts[file] = tuple(_OUR_LINE.sub(r"%%\1 \2", line) for line in kept)
    return texts


def _shell() -> Any:
    """Give the IPython shell that runs the code, or None."""
    is_there, instance = seams.SHELL_IS_THERE.find(), seams.SHELL_INSTANCE.find()
    return instance() if is_there is not None and instance is not None and is_there() else None


def _timed_lines() -> list[str]:
    """Give the lines below the ``%%time`` of the cell that ran last; none where that has no such line."""
    inputs = seams.CELL_TEXTS.of(seams.HISTORY.of(_shell()), ())
    timed_cell = _TIMED_CELL.search(inputs[-1]) if len(inputs) else None
    return [] if timed_cell is None else str(ast.literal_eval(timed_cell[1])).splitlines()


def file_title(file: str, cells: Mapping[str, int]) -> str:
    """Call a file what a person calls it: the cell's number, or the end of its path."""
    if file in cells:
        return f"Cell [{cells[file]}]"
    if file in _TIMED_CELLS:
        return "Below %%time"
    return "/".join(file.replace("\\", "/").split("/")[-2:])[-_LONGEST_TITLE:]


def number_cells() -> dict[str, int]:
    """Number the cell that each file name of the shell stands for; none outside of IPython."""
    shell = _shell()
    number_of = seams.CELL_OF_FILE.of(seams.COMPILER.of(shell))
    if isinstance(number_of, dict):
        return {file: number for file, number in number_of.items() if isinstance(number, int)}
    numbers: dict[str, int] = {}  # IPython 7 keeps no such map
    inputs = [text.strip() for text in seams.CELL_TEXTS.of(seams.HISTORY.of(shell), ())]
    for file in [name for name in list(linecache.cache) if inputs and is_user_file(name)]:
        named = re.match(r"<ipython-input-(\d+)-", file)
        text = "".join(linecache.getlines(file)).strip()
        if named:
            numbers[file] = int(named.group(1))
        elif text and text in inputs:
            numbers[file] = len(inputs) - 1 - inputs[::-1].index(text)
    return numbers


def keep_near(lines: Sequence[str], kept: Collection[int]) -> tuple[str, ...]:
    """Empty all lines of a text but those near some lines.

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
    """Find where the innermost function or class around each line begins; 0 for none."""
    scopes = [0] * len(lines)
    try:
        tree = parse_again("\n".join(_MAGIC.sub(r"\1pass", line) for line in lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return list(range(1, len(lines) + 1))  # no Python: each line for itself
    nodes = [node for node in ast.walk(tree) if isinstance(node, _SCOPES)]
    # Outer ones come first, so that inner ones write over them.
    for node in sorted(nodes, key=lambda node: node.lineno):
        first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
        last = node.end_lineno or node.lineno
        scopes[first - 1 : last] = [first] * (last - first + 1)
    return scopes


def shorten_files(files: Iterable[str], folder: str) -> dict[str, str]:
    """Name files as a result calls them; two files never alike.

    Args:
        files: As code objects name them.
        folder: Where the code began to run.
    """
    file_of: dict[str, str] = {}
    for file in dict.fromkeys(files):
        name = short = _short(file, folder)
        number = 1
        while name in file_of:
            number += 1
            name = f"{short} ({number})"
        file_of[name] = file
    return {file: name for name, file in file_of.items()}


def _short(file: str, folder: str) -> str:
    if file.startswith(("<", "~")):
        return file
    path = Path(file)
    for name in ("site-packages", "dist-packages"):
        if name in path.parts:
            at = len(path.parts) - path.parts[::-1].index(name)
            return "/".join((name, *path.parts[at:]))
    for place in _LIBRARIES:
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
    """Call files by their short names in records, and keep of texts only what is near their lines."""
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


def uses_sessions(tensorflow: "Library") -> bool:
    """Tell whether the code that runs now means to use sessions.

    That is so where nothing executes eagerly, or where a module of the user's that runs now, or one that
    such a module has imported, has a session or TensorFlow 1's API, or a function or class whose code names
    one. What else leads to a session is noticed as it runs (``is_session_file``).

    Args:
        tensorflow: The library.
    """
    is_eager = tensorflow.take(seams.EXECUTING_EAGERLY)
    if is_eager is not None and not is_eager():
        return True
    frames = list(user_frames(inspect.currentframe()))
    if any(_names_one(frame.f_code) for frame in frames):
        return True
    namespaces = [frame.f_globals for frame in frames[:_MOST_MODULES]]
    asked = set(map(id, namespaces))
    for values in namespaces:  # grows meanwhile
        for value in list(values.values())[:_MOST_VALUES]:
            is_module = issubclass(type(value), ModuleType)
            name = str(getattr(value, "__name__", "")) if is_module else ""
            if name.endswith("compat.v1") or type(value).__module__ == _SESSION_CLASSES:
                return True
            # The code of a function of the user's, or of a class's methods.
            functions = vars(value).values() if type(value) is type else (value,)
            codes = [one.__code__ for one in functions if type(one) is FunctionType]
            if any(is_user_file(code.co_filename) and _names_one(code) for code in codes):
                return True
            imported = _namespace_of(value)
            if imported and id(imported) not in asked and len(namespaces) < _MOST_MODULES:
                asked.add(id(imported))
                namespaces.append(imported)
    return False


def is_session_file(file: str) -> bool:
    """Tell whether a file is that of TensorFlow's sessions, whose code runs in one."""
    return file.replace("\\", "/").endswith(_SESSION_FILE)


def _namespace_of(value: Any) -> dict[str, Any]:
    """Give the names of a module of the user's, or of the one that the user's function or class is in."""
    if type(value) is FunctionType:
        return value.__globals__ if is_user_file(value.__code__.co_filename) else {}
    module = sys.modules.get(str(value.__module__)) if type(value) is type else value
    file = vars(module).get("__file__") if type(module) is ModuleType else None
    return vars(module) if isinstance(file, str) and is_user_file(file) else {}


def _names_one(code: CodeType) -> bool:
    """Tell whether a function, or one inside of it, reads a name like ``Session`` or ``v1``."""
    return any(name in _SESSION_NAMES or name.endswith("Session") for name in names_in(code))


def names_in(code: CodeType) -> set[str]:
    """The names that code reads of its module, functions in it included."""
    inner = [names_in(one) for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*inner)
