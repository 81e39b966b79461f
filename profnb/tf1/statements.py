"""Source files to their statements, and which of them give what another one needs.

What is fed comes from a statement if one of its names is assigned there, directly or through others
(``batch = load(i)``, ``for batch in batches()``). No value is looked at.
"""

import ast
import linecache
from collections.abc import Iterator

from profnb.core.parsing import parse_again

_LONGEST = 110
# What only shows or keeps what has been: never what the next run is fed with.
_SHOWS = frozenset({
    "append", "add_summary", "debug", "display", "eval", "evaluate", "figure", "flush", "info", "log", "plot",
    "print", "save", "show", "warning", "write",
})  # fmt: skip
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Source:
    """The statements of one file."""

    def __init__(self, file: str) -> None:
        """Read it as the interpreter would for a traceback."""
        self.lines = linecache.getlines(file)
        try:
            self.tree: ast.Module | None = parse_again("".join(self.lines))
        except (SyntaxError, ValueError):
            self.tree = None
        self.parent: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree) if self.tree else ():
            for inner in ast.iter_child_nodes(node):
                self.parent[inner] = node

    def statement(self, line: int, column: int | None) -> ast.stmt | None:
        """The innermost statement at a place; None where a line alone has several."""
        innermost: ast.stmt | None = None
        for node in ast.walk(self.tree) if self.tree else ():
            if not isinstance(node, ast.stmt):
                continue
            begin, last = (node.lineno, node.col_offset), node.end_lineno or node.lineno
            if column is None:
                inside = node.lineno <= line <= last
            else:
                inside = begin <= (line, column) < (last, node.end_col_offset or 0)
            if not inside:
                continue
            if innermost is None or self._lies_in(node, innermost):
                innermost = node
            else:
                return None
        return innermost

    def _lies_in(self, node: ast.AST, outer: ast.AST) -> bool:
        return any(above is outer for above in self.above(node))

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What it lies in, the innermost first."""
        while node in self.parent:
            node = self.parent[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST | None:
        """The function, class or module that it belongs to."""
        return next((n for n in self.above(node) if isinstance(n, (*_SCOPES, ast.Module))), None)

    def loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop of its own scope, or None."""
        for above in self.above(node):
            if isinstance(above, _LOOPS):
                return above
            if isinstance(above, _SCOPES):
                return None
        return None

    def text(self, line: int, statement: ast.stmt | None = None) -> str:
        """A line as people read it; of a simple statement its part of the line."""
        if not 0 < line <= len(self.lines):
            return ""
        text = self.lines[line - 1]
        if statement is not None and statement.lineno == line and not hasattr(statement, "body"):
            raw = text.encode()  # columns are bytes
            end = statement.end_col_offset if statement.end_lineno == line else None
            text = raw[statement.col_offset : end].decode("utf-8", "replace")
        return text.strip()[:_LONGEST]


def _own_parts(statement: ast.stmt) -> list[ast.AST]:
    """A statement without the statements inside it."""
    parts: list[ast.AST] = []
    for _, value in ast.iter_fields(statement):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST) and not isinstance(item, (ast.stmt, ast.excepthandler)):
                parts.append(item)
    return parts


def _nodes(statement: ast.AST) -> Iterator[ast.AST]:
    for part in _own_parts(statement) if isinstance(statement, ast.stmt) else [statement]:
        yield from ast.walk(part)


def loaded_names(node: ast.AST, kind: type[ast.expr_context] = ast.Load) -> set[str]:
    """The names that a statement reads itself, or those it binds with ``kind=ast.Store``."""
    return {n.id for n in _nodes(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}


def _feeds(run: ast.stmt) -> list[ast.expr]:
    """The expressions that a run's statement feeds: ``feed_dict=``, or the second argument of ``run``."""
    expressions = []
    for node in _nodes(run):
        if not isinstance(node, ast.Call):
            continue
        expressions += [keyword.value for keyword in node.keywords if keyword.arg == "feed_dict"]
        name = _name_of(node)
        if name == "run" and len(node.args) > 1:
            expressions.append(node.args[1])
        elif name == "eval" and node.args:
            expressions.append(node.args[0])
    return expressions


def is_fed(run: ast.stmt) -> bool:
    """Whether a run's statement feeds anything."""
    return bool(_feeds(run))


def fed_names(run: ast.stmt) -> set[str]:
    """The names that what it feeds is made of."""
    return set().union(*map(loaded_names, _feeds(run)))


def _name_of(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def only_shows(statement: ast.stmt) -> bool:
    """Whether it calls something that shows or keeps what has been."""
    called = [_name_of(node) for node in _nodes(statement) if isinstance(node, ast.Call)]
    return any(name in _SHOWS for name in called)


def comes_from(source: Source, statement: ast.stmt, run: ast.stmt, needed: set[str]) -> bool:
    """Whether a value that the run's statement needs comes from a statement of the same scope."""
    scope = source.scope(run)
    if scope is None or not needed:
        return False
    scope_statements = [
        node for node in ast.walk(scope)
        if isinstance(node, ast.stmt) and node is not run and source.scope(node) is scope
    ]  # fmt: skip
    wanted, chosen = set(needed), set[ast.stmt]()
    while True:
        new = [node for node in scope_statements if node not in chosen and _gives(node) & wanted]
        if not new:
            break
        chosen.update(new)
        wanted |= set().union(*map(loaded_names, new))
    return statement in chosen


def _gives(statement: ast.stmt) -> set[str]:
    """The names that it binds, or whose values it fills in: targets, ``x[:] = ...``, ``x.f()``, ``out=x``."""
    if isinstance(statement, (*_SCOPES, ast.Import, ast.ImportFrom)):
        return set()
    given = loaded_names(statement, ast.Store)
    for node in _nodes(statement):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            given |= loaded_names(node.value)
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "out":
                    given |= loaded_names(keyword.value)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            given.add(function.value.id)
    return given
