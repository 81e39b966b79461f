"""What the names of a source file stand for: functions, assignments, parts of tuples, texts that are added to."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache


@dataclass(eq=False)
class Module:
    """A file of the package, and what its names stand for."""

    name: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    names: dict[str, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    functions: dict[ast.AST, ast.FunctionDef | None] = field(default_factory=dict)


@dataclass(eq=False)
class Taken(ast.AST):
    """A part of a tuple that a name is bound to."""

    value: ast.AST
    at: int
    names: Sequence[str] = ()


@dataclass(eq=False)
class Grown(ast.AST):
    """A text that is added to."""

    first: ast.AST
    more: list[ast.AST]


def above(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    while (node := module.parents.get(node)) is not None:
        yield node


def read_module(name: str, tree: ast.Module) -> Module:
    module = Module(name, tree)

    def walk(node: ast.AST, function: ast.FunctionDef | None) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.expr_context, ast.operator)):
                module.parents[child] = node
            module.functions[child] = function
            walk(child, child if isinstance(child, ast.FunctionDef) else function)

    module.functions[tree] = None
    walk(tree, None)
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                module.imported[alias.asname or alias.name] = (statement.module, alias.name)
        elif isinstance(statement, ast.FunctionDef):
            module.names[statement.name].append(statement)
        else:
            _bind(statement, module.names)
    return module


def _bind(statement: ast.AST, names: dict[str, list[ast.AST]]) -> None:
    """Note what a statement binds names to."""
    if isinstance(statement, ast.Assign):
        pairs = [(target, statement.value) for target in statement.targets]
    elif isinstance(statement, (ast.AnnAssign, ast.NamedExpr)) and statement.value is not None:
        pairs = [(statement.target, statement.value)]
    elif isinstance(statement, ast.For) and isinstance(statement.iter, ast.Tuple):
        pairs = [(statement.target, value) for value in statement.iter.elts]
    else:
        return
    for target, value in pairs:
        if isinstance(target, ast.Name):
            names[target.id].append(value)
        elif isinstance(target, ast.Tuple):
            has_parts = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
            together = tuple(map(last_name, target.elts))
            for at, one in enumerate(target.elts):
                if isinstance(one, ast.Name):
                    names[one.id].append(value.elts[at] if has_parts else Taken(value, at, together))


@cache
def _all_bound(function: ast.FunctionDef) -> Mapping[str, Sequence[ast.AST]]:
    names: dict[str, list[ast.AST]] = defaultdict(list)
    statements = [node for node in ast.walk(function) if hasattr(node, "lineno")]
    for node in sorted(statements, key=lambda node: (node.lineno, node.col_offset)):
        _bind(node, names)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and isinstance(node.op, ast.Add):
            bound = names[node.target.id]
            if bound and not isinstance(bound[-1], Grown):
                bound[-1] = Grown(bound[-1], [])
            if bound:
                bound[-1].more.append(node.value)
        if isinstance(node, ast.Call) and last_name(node) == "append" and len(node.args) == 1 and is_text(node.args[0]):
            names[last_name(node.func.value)].append(node.args[0])
    return names


def bound(function: ast.FunctionDef, name: str) -> Sequence[ast.AST]:
    return _all_bound(function).get(name, ())


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, (ast.Subscript, ast.Starred, ast.Await)):
        return last_name(node.value)
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else node.arg
        if isinstance(node, ast.arg)
        else ""
    )


def gives_text(annotation: ast.AST | None) -> bool:
    return annotation is not None and re.search(r"\bstr\b|Markup|Texts|Words", ast.unparse(annotation)) is not None


def is_text(node: ast.AST) -> bool:
    """Whether an expression is text by its form."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.IfExp):
        return is_text(node.body) or is_text(node.orelse)
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in {"join", "format"} and is_text(node.func.value)
    return isinstance(node, ast.JoinedStr)
