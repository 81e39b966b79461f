"""A cell of the shell to a captured cell that otherwise runs as if no magic were there.

An input transformer replaces the magic's own line, at the same line number, by a call that starts
the capture; IPython itself then runs the user's body. So the last value, a trailing ``;``, tracebacks
with the notebook's own line numbers, ``await``, AutoGraph's look at the source, interrupts, and "Run
all" stopping at an error stay as they are. When the cell is over, its end hook shows the report.

Five other ways were measured and each breaks one of these: running the body inside the magic with
``run_cell`` (errors do not stop "Run all", no ``await``, ``;`` ignored), with re-raise (two tracebacks),
``exec`` (AutoGraph finds no source), and text templates (strings change, no last value).
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import ExitStack, suppress
from importlib import import_module
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import replace_attribute
from profnb.capture.signals import interrupt_held_back
from profnb.core.parsing import parse_again
from profnb.core.printable import shortened

Transformer = Callable[[list[str]], list[str]]
_CELL_MAGIC = re.compile(r"%%(\w+)[ \t]*(.*)")
_HELP = re.compile(r"^\?|(^|\s)(-h|--help)(\s|$)")
_TITLE = 70  # characters
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FIRST_LINE = re.compile(r"(?:-+> ?)?\s*1 (?=\S)")  # what a traceback writes before it


def make_transformer(
    magics: Iterable[str],
    namespace: Mapping[str, object] | None = None,
    written: MutableMapping[str, str] | None = None,
) -> Transformer:
    """Make an input transformer for cells that begin with one of our cell magics.

    Args:
        magics: Names of cell magics; each needs a line magic ``_NAME_begin`` that starts the capture.
        namespace: The user's names, one of which may be ``get_ipython``.
        written: Where to keep, for each line that a magic's was replaced by, that as it was written.

    Returns:
        A function for ``shell.input_transformers_cleanup``. It leaves alone every other cell, and
        requests for help, which the ordinary cell magic answers.
    """
    names = frozenset(magics)

    def transform(lines: list[str]) -> list[str]:
        match = _CELL_MAGIC.match(lines[0]) if lines else None
        if match is None or match.group(1) not in names:
            return lines
        arguments = match.group(2).strip()
        body = lines[1:]
        if _HELP.search(arguments):
            return lines
        shell = "get_ipython()"
        getter = (namespace or {}).get("get_ipython")
        module = str(getattr(getter, "__module__", ""))
        is_named_so = getattr(getter, "__name__", "") == "get_ipython"
        if getter is not None and not (is_named_so and module.startswith("IPython.")):
            shell = f"__import__('IPython').{shell}"
        begin = f"{shell}.run_line_magic('_{match.group(1)}_begin', {arguments!r})\n"
        if written is not None:
            written[begin.rstrip("\n")] = lines[0].rstrip("\n")
        inner = _CELL_MAGIC.match(body[0]) if body else None
        if inner is not None:
            call = (inner.group(1), inner.group(2).rstrip("\n"), "".join(body[1:]))
            body = [f"{shell}.run_cell_magic({', '.join(map(repr, call))})\n"]
        return [begin, *body]

    # A terminal asks transformers whether a half-typed cell is complete; this one must not answer.
    transform.has_side_effects = True  # type: ignore[attr-defined]
    return transform


def as_written(text: str, written: Mapping[str, str]) -> str:
    """Give a piece of a traceback in which the magic's line reads as its user wrote it.

    Only there: what Python and AutoGraph look up as the cell's source must be Python.

    Args:
        text: What IPython shows of a frame, perhaps with colours.
        written: What ``make_transformer`` kept.
    """
    lines = text.split("\n")
    for row, line in enumerate(lines):
        plain = _COLOUR.sub("", line)
        first = _FIRST_LINE.match(plain)
        if first is None or (written_line := written.get(plain[first.end() :].rstrip())) is None:
            continue
        at, left = 0, first.end()
        while left:
            colour = _COLOUR.match(line, at)
            at, left = (colour.end(), left) if colour else (at + 1, left - 1)
        lines[row] = line[:at] + ("\x1b[0m" if plain != line else "") + written_line
    return "\n".join(lines)


def can_transform(shell: Any) -> bool:
    """Tell if a transformer can start a capture before a cell of the shell, and be told of the cell's end.

    Where it cannot, the magics run the cell themselves.
    """
    events = seams.EVENTS.of(shell)
    needed = seams.REGISTER.of(events), seams.UNREGISTER.of(events)
    return None not in (seams.TRANSFORMERS.of(shell), *needed)


def loaded_magics(shell: Any) -> Any:
    """The shell's ``ProfnbMagics``; None where there are none, or no shell."""
    return seams.LOADED_MAGICS.of(seams.MAGICS_MANAGER.of(shell), {}).get("ProfnbMagics")


def call_after_cell(
    shell: Any, callback: Callable[[str, bool, BaseException | None], None]
) -> None:
    """Call back once when the running cell is over, however it ends.

    Args:
        shell: The IPython shell.
        callback: Takes the cell as it was written, whether it succeeded, and what it raised. Called after
            the cell's value or traceback was shown; cells that the cell itself runs (``run_cell``) do not
            count.
    """
    depth = 0
    events = seams.EVENTS.of(shell)
    register, unregister = seams.REGISTER.of(events), seams.UNREGISTER.of(events)

    def cell_begins(*_: object) -> None:
        nonlocal depth
        depth += 1

    def is_outermost() -> bool:
        nonlocal depth
        if depth:
            depth -= 1
            return False
        unregister("pre_run_cell", cell_begins)
        unregister("post_run_cell", cell_ended)
        return True

    def cell_ended(result: Any = None) -> None:
        """End it, whatever interrupt comes: IPython would print that, and the code is over."""
        is_due = None
        while True:
            try:
                with interrupt_held_back():
                    is_due = is_outermost() if is_due is None else is_due
                if is_due:
                    cell = seams.RAW_CELL.of(seams.RESULT_INFO.of(result))
                    is_due = False
                    succeeded = bool(cell and seams.SUCCESS.of(result))
                    callback(cell or "", succeeded, seams.FAILED_INSIDE.of(result))
            except KeyboardInterrupt:
                continue  # with what is left to do
            return

    register("pre_run_cell", cell_begins)
    register("post_run_cell", cell_ended)


def body_of(cell: str) -> str:
    """Give what stands below a cell's first magic line, ready to be run, its line numbers as they were."""
    lines = cell.lstrip("\n").splitlines(keepends=True)
    body = "".join(lines[1:])
    # A comment stands for the magic's line; another cell magic must come first.
    return body if body.startswith("%%") else f"#\n{body}"


def title_of(cell: str) -> str:
    """Call a cell by its first line of code below the magic's and decorators; "" where it has none."""
    lines = (line.strip() for line in body_of(cell).splitlines())
    return shortened(next((line for line in lines if line and line[0] not in "#%@"), ""), _TITLE)


def names_of(shell: Any, body: str) -> tuple[frozenset[str], frozenset[str]]:
    """Find the names that a body reads anywhere, in its functions too, and those that it binds itself.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = parse_again(seams.TRANSFORM_CELL.of(shell, str)(body))
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = frozenset(node.id for node in named if isinstance(node.ctx, ast.Load))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, functions)
        for node in ast.walk(function)
    }
    outer = (node for node in named if id(node) not in inner)
    return read, frozenset(node.id for node in outer if isinstance(node.ctx, ast.Store))


def awaits(shell: Any, body: str) -> bool:
    """Tell if a body awaits something: the shell cannot run it inside of another cell."""
    transform, is_async = seams.TRANSFORM_CELL.of(shell), seams.IS_ASYNC.of(shell)
    if transform is None or is_async is None:
        return False
    return bool(is_async(body, transformed_cell=transform(body)))


def run_quietly(shell: Any, body: str, *, shows_errors: bool = True) -> BaseException | None:
    """Run a cell's body again without its output, which the first run has shown.

    Args:
        shell: The IPython shell.
        body: See ``body_of``.
        shows_errors: Whether a traceback is shown.

    Returns:
        The error it ended with, or None. A traceback is shown, but not that of an interrupt.
    """
    errors: list[Any] = []
    with suppress(ImportError):
        import_module(seams.CAPTURE_OUTPUT.module)
    hide, show = seams.CAPTURE_OUTPUT.find(), seams.SHOW_TRACEBACK.of(shell)

    def keep(*_: object, **__: object) -> None:
        errors.append(sys.exc_info())

    with ExitStack() as stack:
        if hide is not None:
            stack.enter_context(hide())
        if show is not None:
            stack.enter_context(replace_attribute(shell, seams.SHOW_TRACEBACK.attributes[0], keep))
        result = shell.run_cell(body, silent=True)
    if seams.SUCCESS.of(result, default=not errors):
        return None
    if not errors:  # it did not compile, and its traceback went where syntax errors go
        failure = seams.FAILED_BEFORE.of(result) or seams.FAILED_INSIDE.of(result)
        return failure or SyntaxError("the cell is no Python")
    if shows_errors and not issubclass(errors[0][0], KeyboardInterrupt):
        show(errors[0])
    error: BaseException = errors[0][1]
    return error
