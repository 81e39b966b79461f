"""Tell runs apart: the code that ran, the commit it was of, the machine.

Code is told by its syntax without comments, constants and blank lines: another batch size, path or number of
epochs is the same code, another call is not. Only a hash of it is kept.
"""

import ast
import hashlib
import os
import platform
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from profnb.capture.environment import count_cores, processor_name
from profnb.core.safe_files import is_regular
from profnb.core.units import GB

if TYPE_CHECKING:
    from profnb.capture.machine.machine_watch import MachineRecords

_DIGITS, _LONGEST = 16, 1_000_000
_DIFF = (
    "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "diff", "--quiet", "--no-ext-diff",
    "--no-textconv", "--no-relative", "--ignore-submodules=untracked", "HEAD", "--",
)  # fmt: skip
_COMMIT, _REFERENCE = re.compile(r"[0-9a-f]{40,64}"), re.compile(r"ref:\s*(refs/\S+)")
_MOST_REFERENCES, _MOST_PACKED = 5, 50_000_000


class _WithoutValues(ast.NodeTransformer):
    """Puts one constant in place of each value that is written out: numbers, texts, lists of them."""

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Make a node without values; a text that stands alone documents, and is left out."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return None
        node = self.generic_visit(node)
        if isinstance(node, ast.Constant | ast.JoinedStr) or self._is_of_constants(node):
            return ast.Constant(None)
        return node

    def _is_of_constants(self, node: ast.AST) -> bool:
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return all(isinstance(one, ast.Constant) for one in node.elts)
        return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)


def identify_code(code: str | ast.AST) -> str:
    """Give a hash of code that edits of comments, constants and blank lines leave as it is.

    Args:
        code: Python, or what else a cell may hold, or its parsed form. Text that is no Python is told by its
            lines without blanks at their ends and comments.
    """
    try:
        tree = ast.parse(code) if isinstance(code, str) else code
        bare = _WithoutValues().visit(tree) or ast.Module([], [])
        text = ast.dump(bare, annotate_fields=False)
    except (SyntaxError, ValueError, RecursionError):
        lines = (line.partition("#")[0].rstrip() for line in str(code).splitlines())
        text = "\n".join(filter(None, lines))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGITS]


def identify_block(file: str, line: int = 0) -> str:
    """Identify the ``with`` block of a file that a line is in, else the file; "" where nobody can read it."""
    import linecache

    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text if len(text) <= _LONGEST else "")
    except (SyntaxError, ValueError, RecursionError):
        return ""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With | ast.AsyncWith)]
    blocks = [node for node in blocks if node.lineno <= line <= (node.end_lineno or 0)]
    innermost = max(blocks, key=lambda node: node.lineno, default=None)
    return identify_code(innermost or tree) if tree.body else ""


def find_commit(folder: Path) -> str:
    """Find the commit of a folder's git repository, as its files tell it; no process is started.

    Returns:
        "" where there is no repository, no commit, or references are kept in another way (reftable).

    Source:
        git's documentation: gitrepository-layout (HEAD, refs, packed-refs, commondir, gitdir files).
    """
    for above in (folder, *folder.parents):
        if (git := _git_folder(above)) is not None:
            shared = git / (_text_of(git / "commondir") or ".")
            said = _text_of(git / "HEAD")
            for _ in range(_MOST_REFERENCES):
                if (named := _REFERENCE.fullmatch(said)) is None or ".." in named[1]:
                    break
                places = git / named[1], shared / named[1]
                said = next(filter(None, map(_text_of, places)), "") or _packed(shared, named[1])
            return said[:40] if _COMMIT.fullmatch(said) else ""
    return ""


def _git_folder(folder: Path) -> Path | None:
    """Find a repository's state: ``.git``, where a file of that name points, a bare one itself."""
    git = folder / ".git"
    if (pointer := _text_of(git)).startswith("gitdir:"):
        return folder / pointer.removeprefix("gitdir:").strip()
    is_bare = (folder / "objects").is_dir() and (folder / "refs").is_dir()
    candidates = (git, folder) if is_bare else (git,)
    return next((one for one in candidates if (one / "HEAD").is_file()), None)


def _text_of(file: Path, most: int = _LONGEST) -> str:
    """Read a file; "" where it cannot be, or is longer."""
    with suppress(OSError):
        if is_regular(file) and file.stat().st_size <= most:
            return file.read_text("utf-8", "replace").strip()
    return ""


def _packed(folder: Path, reference: str) -> str:
    """The commit of a reference among the packed ones: lines of a commit, a blank and its name."""
    lines = _text_of(folder / "packed-refs", _MOST_PACKED).splitlines()
    return next((line for line in lines if line.endswith(f" {reference}")), "").partition(" ")[0]


def ask_git(folder: Path) -> "subprocess.Popen[bytes] | None":
    """Have git look, beside this process, whether files that it follows differ from the commit.

    Returns:
        What exits with 0 for no and 1 for yes; None where there is no git.
    """
    silent = subprocess.DEVNULL
    with suppress(OSError):
        return subprocess.Popen(_DIFF, cwd=folder, stdin=silent, stdout=silent, stderr=silent)  # noqa: S603 - git itself, with words of ours
    return None


def await_git(asked: "subprocess.Popen[bytes]", patience_s: float) -> bool | None:
    """Wait for what git has to say; None where it says nothing within the time."""
    try:
        return {0: False, 1: True}.get(asked.wait(patience_s))
    except subprocess.TimeoutExpired:
        asked.kill()
        asked.wait()
        return None


def describe_machine(machine: "MachineRecords | None") -> str:
    """Describe the hardware: processor, cores, memory, and GPUs as they were sampled; no host's name."""
    boards = () if machine is None else machine.boards
    return ", ".join((*_host_facts(), *(board.name for board in boards if board.name)))


@cache
def _host_facts() -> tuple[str, ...]:
    facts = [(processor := processor_name()) or platform.machine(), f"{count_cores()} cores"]
    if not processor:  # no Linux
        return tuple(facts)
    with suppress(OSError, ValueError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts.append(f"{memory / GB:.0f} GB")
    return tuple(facts)
