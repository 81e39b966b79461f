"""What tells runs apart: the code that ran, the commit it was of, the machine.

Code is told by its syntax without comments, constants and blank lines: another batch size, path or number of
epochs is the same code, another call is not. Only a hash of it is kept.
"""

import ast
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from profnb.core.safe_files import is_regular
from profnb.core.units import GB

_DIGITS, _GIT_PATIENCE_S, _LONGEST = 16, 0.5, 1_000_000
_GIT = (
    "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch",
    "--untracked-files=no",
)  # fmt: skip
_MODEL = re.compile(r"^model name\s*:\s*(.*)$", re.MULTILINE)


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


def identify_block(file: str, line: int) -> str:
    """Identify the ``with`` block of a file that a line is in; "" where the file cannot be read."""
    import linecache

    text = "".join(linecache.getlines(file))
    if not text or len(text) > _LONGEST:
        return ""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With | ast.AsyncWith)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    innermost = max(blocks, key=lambda node: node.lineno, default=None)
    return identify_code(innermost or tree)


def identify_script(path: str) -> str:
    """Identify a script by all of its code; "" where it cannot be read."""
    file = Path(path)
    try:
        if not is_regular(file) or file.stat().st_size > _LONGEST:
            return ""
        return identify_code(file.read_text("utf-8"))
    except (OSError, UnicodeError):
        return ""


def find_commit(folder: Path) -> tuple[str, bool | None]:
    """Find the commit of a folder's git repository, and whether files that git follows differ from it.

    Returns:
        ("", None) where there is no repository, no git, or git takes half a second.
    """
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return "", None
    try:
        run = subprocess.run(  # noqa: S603 - git itself, with words of ours
            _GIT, cwd=folder, capture_output=True, timeout=_GIT_PATIENCE_S, check=True,
            stdin=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "", None
    lines = run.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    return commit.strip("()")[:40], any(not line.startswith("#") for line in lines)


def describe_machine(boards: Iterable[str] = ()) -> str:
    """Describe the hardware: processor, cores, memory, GPUs; no host's name."""
    return ", ".join((*_host_facts(), *boards))


@cache
def _host_facts() -> tuple[str, ...]:
    model = platform.machine()
    cores = getattr(os, "sched_getaffinity", None)  # not everywhere
    count = len(cores(0)) if cores else os.cpu_count() or 1
    facts = [f"{count} cores"]
    try:
        named = _MODEL.search(Path("/proc/cpuinfo").read_text("utf-8", "replace"))
        model = " ".join(named[1].split()) if named else model
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts.append(f"{memory / GB:.0f} GB")
    except (OSError, ValueError, AttributeError):  # no Linux
        pass
    return model, *facts
