"""Every sentence that profnb can print, worked out from its source and filled with examples.

Each text in the source that reads as prose stands on the page: the expression that it is part of is worked out
as far as it is text. Variables, functions, properties and parameters are followed to the texts that they hold,
which so stand where they are said. Branches are alternatives of one text, and what is no text is an example by
its name (``EXAMPLES``). A new sentence appears by itself.

Left out are what other pages have (columns, terms) and the help of options.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path

from profnb.report.advice import code_pieces
from sentence_examples import ENDINGS, EXAMPLES

PACKAGE = Path(__file__).resolve().parents[1] / "profnb"
_DEEPEST, _MOST = 14, 12  # calls that are followed; alternatives of one text
_ADVICE = {"Proposal": (0, 1, 2, 3), "Finding": (0, 1, 2, 4), "propose": (1, 2, 3)}
_ELSEWHERE = {
    "Column",
    "execute",
    "add_argument",
    "argument",
    "compile",
    "GlossaryTerm",
    "getattr",
    "TypeVar",
    "startswith",
}
_NO_WORDS = {"profnb.warm", "profnb.core.glossary"}
_SETTINGS = {"help", "style", "metavar", "d"}
_PASSES_ON = {
    "printable", "printable_lines", "quoted", "shortened", "cut_middle", "str", "fill", "with_names", "join", "strip",
    "rstrip", "lstrip", "removesuffix", "removeprefix", "replace", "capitalize", "Markup", "fitted", "escape", "plain_text",
}  # fmt: skip
_TAG, _LOWER = re.compile(r"<[^<>]*>"), re.compile(r"(?<!\S)[(`']?[a-z][a-z']*(?=[\s,.:;)?]|$)")
_NEXT = "\N{SYMBOL FOR UNIT SEPARATOR}"  # between title, evidence and code
_POINTING = frozenset(
    "that which what whose who it its those these they them such there then so also too else other others one ones".split()
)
_LONG = 22
_STOP, _SPLIT, _FEW = re.compile(r"(?<=[.?!])(?<!\.\.)\s+"), re.compile(r"[\s,.;:()]+"), 2
_FORM = re.compile(r"%\(?\w*\)?[sdrf]|\{\w*(?:[!:][^{}]*)?\}")


@dataclass(frozen=True)
class Pack:
    """A tuple of texts, each with its alternatives."""

    parts: tuple[tuple[object, ...], ...]


@dataclass(eq=False)
class Module:
    """A file of the package, and what its names stand for."""

    name: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    names: dict[str, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    functions: dict[ast.AST, ast.FunctionDef | None] = field(default_factory=dict)


class _NoText(Exception):
    """An expression is no text."""


class Sentences:
    """The texts of a package."""

    def __init__(self, folder: Path = PACKAGE) -> None:
        """Read the files of a package."""
        self.modules = {
            ".".join((folder.name, *path.relative_to(folder).with_suffix("").parts)).removesuffix(
                ".__init__"
            ): ast.parse(path.read_text("utf-8"))
            for path in sorted(folder.rglob("*.py"))
        }
        self.modules = {name: _module(name, tree) for name, tree in self.modules.items()}
        self.module_of = {
            node: module for module in self.modules.values() for node in ast.walk(module.tree)
        }
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.fields: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self.hints: dict[str, str] = {}  # of fields and methods, the annotations
        self.texts_of: dict[str, list[ast.AST]] = defaultdict(
            list
        )  # what methods and properties of a name give
        for node in self.module_of:
            if isinstance(node, ast.Call):
                self.calls[_last_name(node.func)].append(node)
            if isinstance(node, ast.FunctionDef) and _gives_text(node.returns):
                self.texts_of[node.name].append(node)
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                self.hints[node.name] = (
                    f"{self.hints.get(node.name, '')} {ast.unparse(node.returns)}"
                )
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        self.hints[one.target.id] = (
                            f"{self.hints.get(one.target.id, '')} {ast.unparse(one.annotation)}"
                        )
                        if _gives_text(one.annotation):
                            self.fields[one.target.id].append(node)
        self.seen: set[ast.AST] = set()
        self.active: list[ast.AST] = []
        self.missing: dict[str, int] = defaultdict(int)

    # -- what an expression says

    def say(self, node: ast.AST) -> list[object]:
        """The alternatives of a text; raises where an expression is none."""
        if node in self.active or len(self.active) > _DEEPEST:
            raise _NoText
        self.active.append(node)
        try:
            said = getattr(self, f"_say_{type(node).__name__}", self._refuse)(node)
        finally:
            self.active.pop()
        return list(dict.fromkeys(said))[:_MOST]

    def _refuse(self, node: ast.AST) -> list[object]:
        raise _NoText

    def _all(self, nodes: Iterable[ast.AST]) -> list[object]:
        """All that any of these says."""
        said: list[object] = []
        for node in nodes:
            try:
                said += self.say(node)
            except _NoText:
                continue
        if not said:
            raise _NoText
        return sorted(said, key=lambda text: text == "")

    def _say_Constant(self, node: ast.Constant) -> list[object]:
        if not isinstance(node.value, str):
            raise _NoText
        self.seen.add(node)
        return [node.value]

    def _say_JoinedStr(self, node: ast.JoinedStr) -> list[object]:
        self.seen.add(node)
        return _combined([self._part(part) for part in node.values])

    def _part(self, node: ast.AST) -> list[object]:
        if isinstance(node, ast.FormattedValue):
            form = ast.unparse(node.format_spec)[2:-1] if node.format_spec else ""
            said = self.text(node.value, is_number=bool(form))
            if form.endswith("%"):
                return ["38%" if ".0" in form else "38.2%"]
            return [f"'{text}'" for text in said] if node.conversion == ord("r") else said
        return self.say(node)

    def text(self, node: ast.AST, *, is_number: bool = False) -> list[object]:
        """What it says, or an example by its name."""
        key = _last_name(node)
        if key in EXAMPLES:
            example = EXAMPLES[key]
            return [self._counted(node)] if key == "counted_text" else [example]
        try:
            said = [one for one in self.say(node) if isinstance(one, str)]
            if said:
                return said
        except _NoText:
            pass
        if (
            isinstance(node, ast.Call)
            and key in _PASSES_ON
            and (node.args or isinstance(node.func, ast.Attribute))
        ):
            return self.text(
                node.func.value
                if isinstance(node.func, ast.Attribute) and not _is_text(node.func.value)
                else node.args[0]
            )
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self.text(node.elt)
        if isinstance(node, ast.Name):
            for meant in self._meant(node, node.id):
                if isinstance(meant, ast.Constant) and isinstance(meant.value, (int, float)):
                    return [f"{meant.value:,}"]
        ending = max((ending for ending in ENDINGS if key.endswith(ending)), key=len, default=None)
        if ending is not None:
            return [ENDINGS[ending]]
        if is_number or isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            return ["12"]
        self.missing[key] += 1
        return [key.strip("_").replace("_", " ")]

    def _counted(self, node: ast.AST) -> str:
        noun = (
            self.text(node.args[1])[0]
            if isinstance(node, ast.Call) and len(node.args) > 1
            else "step"
        )
        return f"12 {noun}s"

    def _say_BinOp(self, node: ast.BinOp) -> list[object]:
        if isinstance(node.op, ast.Mult):
            text = next((side for side in (node.left, node.right) if _is_text(side)), None)
            if text is None:
                raise _NoText
            return [*self.say(text), ""]
        if isinstance(node.op, ast.Mod) and _is_text(node.left):
            return [_FORM.sub("12", str(text)) for text in self.say(node.left)]
        if not isinstance(node.op, ast.Add):
            raise _NoText
        sides = []
        for side in (node.left, node.right):
            try:
                sides.append(self.say(side))
            except _NoText:
                sides.append([])
        if not any(sides):
            raise _NoText
        return _combined(
            [
                said or self.text(side)
                for said, side in zip(sides, (node.left, node.right), strict=True)
            ]
        )

    def _say_IfExp(self, node: ast.IfExp) -> list[object]:
        return self._all([node.body, node.orelse])

    def _say_BoolOp(self, node: ast.BoolOp) -> list[object]:
        return self._all(node.values if isinstance(node.op, ast.Or) else node.values[-1:])

    def _say_NamedExpr(self, node: ast.NamedExpr) -> list[object]:
        return self.say(node.value)

    def _say_Starred(self, node: ast.Starred) -> list[object]:
        return self.say(node.value)

    def _say_Dict(self, node: ast.Dict) -> list[object]:
        return self._all(node.values)

    def _say_Tuple(self, node: ast.Tuple) -> list[object]:
        return [Pack(tuple(tuple(self._or_nothing(part)) for part in node.elts))]

    def _or_nothing(self, node: ast.AST) -> list[object]:
        try:
            return self.say(node)
        except _NoText:
            return []

    def _say_List(self, node: ast.List) -> list[object]:
        return self._all(node.elts)

    _say_Set = _say_List

    def _say_GeneratorExp(self, node: ast.GeneratorExp) -> list[object]:
        if not _is_text(node.elt):
            raise _NoText
        return self.say(node.elt)

    _say_ListComp = _say_GeneratorExp

    def _say_Subscript(self, node: ast.Subscript) -> list[object]:
        if isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Name):
            chosen = [
                value
                for meant in self._meant(node, node.value.id)
                if isinstance(meant, ast.Dict)
                for key, value in zip(meant.keys, meant.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == node.slice.value
            ]
            if chosen:
                return self._all(chosen)
        said = self.say(node.value)
        if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, int):
            return [one for one in said if not isinstance(one, Pack)] or said
        return [
            text
            for one in said
            if isinstance(one, Pack) and one.parts
            for text in one.parts[node.slice.value]
        ]

    def _say_Return(self, node: ast.Return) -> list[object]:
        return self.say(node.value) if node.value else self._refuse(node)

    _say_Yield = _say_Return

    def _say_FunctionDef(self, node: ast.FunctionDef) -> list[object]:
        return self._all(
            one
            for one in ast.walk(node)
            if isinstance(one, (ast.Return, ast.Yield))
            and self.module_of[node].functions[one] is node
        )

    def _say_Call(self, node: ast.Call) -> list[object]:
        name = _last_name(node.func)
        if name in EXAMPLES:
            return self.text(node)
        if name == "words":  # by framework
            return self._all([*node.args[1:], *(keyword.value for keyword in node.keywords)])
        if name in ("format", "format_map") and isinstance(node.func, ast.Attribute):
            given = {
                keyword.arg: self.text(keyword.value)[0] for keyword in node.keywords if keyword.arg
            }
            listed = iter([self.text(arg)[0] for arg in node.args])
            return [
                _FORM.sub(
                    lambda hole: str(
                        given.get(hole.group().strip("{}").partition(":")[0]) or next(listed, "12")
                    ),
                    str(text),
                )
                for text in self.say(node.func.value)
            ]
        if name in _PASSES_ON:
            inner = (
                node.args[0]
                if node.args
                and name
                not in ("strip", "rstrip", "lstrip", "removesuffix", "removeprefix", "replace")
                else node.func
            )
            return self.say(
                inner.value if isinstance(inner, ast.Attribute) and inner is node.func else inner
            )
        if name == "get" and isinstance(node.func, ast.Attribute):
            return self._all([node.func.value, *node.args[1:]])
        if name == "next" and node.args:
            return self._all(node.args)
        if isinstance(node.func, ast.Name):
            for target in self._meant(node, node.func.id):
                if isinstance(target, ast.FunctionDef) and _gives_text(target.returns):
                    return self.say(target)
        elif isinstance(node.func, ast.Attribute):
            return self._say_Attribute(node.func)
        raise _NoText

    def _say_Attribute(self, node: ast.Attribute) -> list[object]:
        if isinstance(node.value, ast.Name):
            module = self.module_of[node]
            at, name = module.imported.get(node.value.id, ("", ""))
            other = self.modules.get(f"{at}.{name}") or self.modules.get(at)
            if other is not None and node.attr in other.names:
                return self._all(other.names[node.attr])
        owners = [
            one
            for one in self.fields.get(node.attr, ())
            if len(self.fields[node.attr]) == 1 or one.name in self._type_of(node.value)
        ]
        given = [arg for owner in owners for arg in self._given_to(owner, node.attr)]
        methods = [
            one
            for one in self.texts_of.get(node.attr, [])
            if isinstance(owner := self.module_of[one].parents[one], ast.ClassDef)
            and (
                (len(self.texts_of[node.attr]) == 1 and not given)
                or owner.name in self._type_of(node.value)
            )
        ]
        return self._all([*given, *methods])

    def _given_to(self, owner: ast.ClassDef, name: str) -> Iterator[ast.AST]:
        """What a field is made with."""
        fields = [
            one.target.id
            for one in owner.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        at = fields.index(name)
        for call in self.calls[owner.name]:
            if at < len(call.args):
                yield call.args[at]
            yield from (keyword.value for keyword in call.keywords if keyword.arg == name)

    def _type_of(self, node: ast.AST) -> str:
        """The annotation of what an expression is, as far as it says one."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                return " ".join(
                    ast.unparse(one.returns)
                    for one in self._meant(node, node.func.id)
                    if isinstance(one, ast.FunctionDef) and one.returns is not None
                )
            return self.hints.get(_last_name(node.func), "")
        if isinstance(node, ast.Name):
            said = []
            for meant in self._meant(node, node.id):
                if isinstance(meant, ast.arg):
                    said.append(ast.unparse(meant.annotation) if meant.annotation else "")
                    if node.id == "self":
                        owner = self.module_of[node].parents[self.module_of[node].functions[node]]
                        said.append(owner.name if isinstance(owner, ast.ClassDef) else "")
                elif not isinstance(meant, (Grown, Taken)):
                    said.append(self._type_of(meant))
            return " ".join(said)
        return self.hints.get(node.attr, "") if isinstance(node, ast.Attribute) else ""

    def _say_Name(self, node: ast.Name) -> list[object]:
        return self._all(self._meant(node, node.id))

    def _say_arg(self, node: ast.arg) -> list[object]:
        """What callers give for a parameter."""
        module = self.module_of[node]
        function = module.functions[node]
        if function is None or (node.annotation is not None and not _gives_text(node.annotation)):
            raise _NoText
        arguments = [*function.args.posonlyargs, *function.args.args]
        owner = module.parents[function]
        shift = int(isinstance(owner, ast.ClassDef))
        at = arguments.index(node) - shift if node in arguments else -1
        name = (
            owner.name
            if isinstance(owner, ast.ClassDef) and function.name == "__init__"
            else function.name
        )
        given = []
        for call in self.calls[name]:
            if 0 <= at < len(call.args) and not any(
                isinstance(arg, ast.Starred) for arg in call.args
            ):
                given.append(call.args[at])
            given += [keyword.value for keyword in call.keywords if keyword.arg == node.arg]
        return self._all(given)

    def _meant(self, node: ast.AST, name: str) -> Sequence[ast.AST]:
        """What a name stands for where it is used."""
        module = self.module_of[node]
        function = module.functions[node]
        while function is not None:
            for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
                if arg.arg == name:
                    return [arg, *_bound(function, name)]
            if bound := _bound(function, name):
                return bound
            function = module.functions[module.parents[function]]
        if name in module.names:
            return module.names[name]
        at, name = module.imported.get(name, ("", ""))
        other = self.modules.get(at)
        if other is None:
            return []
        if name in other.names:
            return other.names[name]
        return self._meant(other.tree, name) if name in other.imported else []

    def _say_Taken(self, node: "Taken") -> list[object]:
        said = self.say(node.value)
        return [
            text
            for one in said
            if isinstance(one, Pack) and len(one.parts) > node.at
            for text in one.parts[node.at]
        ]

    def _say_Grown(self, node: "Grown") -> list[object]:
        return _combined([self._or_nothing(part) or [""] for part in (node.first, *node.more)])

    # -- what stands on the page

    def rooms(self) -> dict[str, list[str]]:
        """The lines of the page, by file of the package."""
        lines: dict[str, list[str]] = defaultdict(list)
        covered: set[ast.AST] = set()
        roots = [
            (module, node) for module in self.modules.values() for node in _advice_calls(module)
        ]
        for module, node in roots:
            lines[module.name] += _new_only(
                [_line(text) for text in self._advice(node) if "`rule`" not in text]
            )
            covered |= self.seen
            self.seen = set()
        found = []
        for module in self.modules.values():
            for node in () if module.name in _NO_WORDS else _prose_roots(module):
                self.seen = set()
                try:
                    said = [text for text in self._flat(self.say(node))]
                except _NoText:
                    continue
                found.append((module, node, said, self.seen))
        inside = defaultdict(int)
        for *_, seen in found:
            for literal in seen:
                inside[literal] += 1
        for module, node, said, seen in sorted(found, key=lambda one: -len(one[3])):
            own = {
                literal
                for literal in seen
                if isinstance(literal, (ast.Constant, ast.JoinedStr)) and _is_prose(literal)
            }
            if own and not own <= covered:
                covered |= seen
                is_error = any(isinstance(above, ast.Raise) for above in _above(module, node))
                lines[module.name] += _new_only(
                    [_line(text) for text in said if _is_said(text, is_error=is_error)]
                )
        order = {name: at for at, name in enumerate(self.modules)}
        return {
            name: list(dict.fromkeys(lines[name]))
            for name in sorted(lines, key=order.__getitem__)
            if lines[name]
        }

    def _flat(self, said: Iterable[object]) -> Iterator[str]:
        for one in said:
            if isinstance(one, Pack):
                for part in one.parts:
                    yield from self._flat(part)
            else:
                yield str(one)

    def _advice(self, node: ast.Call) -> list[str]:
        """A line for each alternative of an advice."""
        places = [node.args[at] for at in _ADVICE[_last_name(node.func)] if at < len(node.args)]
        if len(places) == 3:  # words that are chosen by the framework
            rule, words, evidence = map(self._or_nothing, places)
            packs = [one for one in words if isinstance(one, Pack)]
            texts = [[text for title in pack.parts[0] for text in [title]] for pack in packs]
            fields = [rule, [], evidence, []]
            lines = []
            for pack, titles in zip(packs, texts, strict=True):
                code = (
                    [text for text in pack.parts[1] if isinstance(text, str)]
                    if len(pack.parts) > 1
                    else []
                )
                lines += _advice_lines(rule, titles, evidence, code)
            if lines:
                return lines
            return _advice_lines(*fields)
        return _advice_lines(*map(self._or_nothing, places))


@dataclass(eq=False)
class Taken(ast.AST):
    """A part of a tuple that a name is bound to."""

    value: ast.AST
    at: int


@dataclass(eq=False)
class Grown(ast.AST):
    """A text that is added to."""

    first: ast.AST
    more: list[ast.AST]


def _advice_lines(
    rule: Sequence[object],
    titles: Sequence[object],
    evidence: Sequence[object],
    code: Sequence[object],
) -> list[str]:
    rules = [str(one) for one in rule if isinstance(one, str)] or ["rule"]
    rows = zip_longest(
        *([text for text in texts if isinstance(text, str)] for texts in (titles, evidence, code))
    )
    first = ["", "", ""]
    lines = []
    for at, row in enumerate(rows):
        first = [
            text if text is not None else before for text, before in zip(row, first, strict=True)
        ]
        title, *rest = first
        lines.append(
            f"`{rules[min(at, len(rules) - 1)]}`: {_NEXT.join(text for text in (f'{title}.', *rest) if text)}"
        )
    return lines


def _module(name: str, tree: ast.Module) -> Module:
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
    else:
        return
    for target, value in pairs:
        if isinstance(target, ast.Name):
            names[target.id].append(value)
        elif isinstance(target, ast.Tuple):
            has_parts = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
            for at, one in enumerate(target.elts):
                if isinstance(one, ast.Name):
                    names[one.id].append(value.elts[at] if has_parts else Taken(value, at))


@cache
def _all_bound(function: ast.FunctionDef) -> Mapping[str, Sequence[ast.AST]]:
    names: dict[str, list[ast.AST]] = defaultdict(list)
    statements = [node for node in ast.walk(function) if hasattr(node, "lineno")]
    for node in sorted(statements, key=lambda node: (node.lineno, node.col_offset)):
        _bind(node, names)
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.op, ast.Add)
        ):
            bound = names[node.target.id]
            if bound and not isinstance(bound[-1], Grown):
                bound[-1] = Grown(bound[-1], [])
            if bound:
                bound[-1].more.append(node.value)
    return names


def _bound(function: ast.FunctionDef, name: str) -> Sequence[ast.AST]:
    return _all_bound(function).get(name, ())


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, (ast.Subscript, ast.Starred, ast.Await)):
        return _last_name(node.value)
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else node.arg
        if isinstance(node, ast.arg)
        else ""
    )


def _gives_text(annotation: ast.AST | None) -> bool:
    return (
        annotation is not None
        and re.search(r"\bstr\b|Markup|Texts|Words", ast.unparse(annotation)) is not None
    )


def _is_text(node: ast.AST) -> bool:
    """Whether an expression is text by its form."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in {"join", "format"}
            and _is_text(node.func.value)
        )
    return isinstance(node, ast.JoinedStr)


def _combined(parts: Sequence[Sequence[object]]) -> list[object]:
    """The first alternatives together, then each other one in the place of its first."""
    texts = [[one for one in part if isinstance(one, str)] or [""] for part in parts]
    first = [part[0] for part in texts]
    said = ["".join(first)]
    for at, part in enumerate(texts):
        said += ["".join([*first[:at], one, *first[at + 1 :]]) for one in part[1:]]
    return list(said)


def _advice_calls(module: Module) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in _ADVICE:
            function = module.functions[node]
            if function is None or function.name not in _ADVICE:
                yield node


def _prose_roots(module: Module) -> Iterator[ast.AST]:
    """The widest expressions that are text, of all that hold prose."""
    given = set()
    for node in ast.walk(module.tree):
        if not isinstance(node, (ast.Constant, ast.JoinedStr)) or not _is_prose(node):
            continue
        root = node
        while (parent := module.parents.get(root)) is not None and _goes_on(parent, root):
            root = parent
        if root not in given and not _is_elsewhere(module, root):
            given.add(root)
            yield root


def _goes_on(parent: ast.AST, child: ast.AST) -> bool:
    """Whether an expression is part of a wider text."""
    if isinstance(parent, ast.IfExp):
        return child is not parent.test
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, (ast.Add, ast.Mod, ast.Mult))
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("join", "format")
    if isinstance(parent, ast.Call):
        return parent.func is child or _last_name(parent.func) in ("words", *_PASSES_ON)
    if isinstance(parent, ast.keyword):
        return False
    return isinstance(parent, (ast.JoinedStr, ast.FormattedValue, ast.BoolOp))


def _above(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    while (node := module.parents.get(node)) is not None:
        yield node


def _is_elsewhere(module: Module, node: ast.AST) -> bool:
    """Whether it is a docstring, a pattern, a name, or said on another page."""
    while (parent := module.parents.get(node)) is not None:
        if isinstance(parent, ast.Expr) and parent.value is node and isinstance(node, ast.Constant):
            return True
        if isinstance(parent, ast.Compare) or (
            isinstance(parent, ast.Dict) and node in parent.keys
        ):
            return True
        if isinstance(parent, (ast.FunctionDef, ast.arg, ast.AnnAssign)) and node in (
            getattr(parent, "returns", None),
            getattr(parent, "annotation", None),
        ):
            return True
        if isinstance(parent, ast.Call) and _last_name(parent.func) in _ELSEWHERE:
            return True
        if isinstance(parent, ast.keyword) and parent.arg in _SETTINGS:
            return True
        if isinstance(parent, ast.Call) and _last_name(parent.func) == "Table":
            return False
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return any(isinstance(one, ast.Name) and one.id == "Column" for one in ast.walk(node))
        node = parent
    return False


def _is_prose(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return _is_prose_text(" ".join(_literals(node)))
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _is_prose_text(node.value)
    )


def _is_said(text: str, *, is_error: bool) -> bool:
    """Whether it is more than a piece of a sentence, a heading or what a column means."""
    text = _line(text)
    begins = (text[:1].upper() == text[:1] and text[:1].isalnum()) or text[:1] in "`'%~_"
    return (
        _is_prose_text(text)
        and (is_error or text.endswith(".") or (begins and len(text.split()) > 5))
        and text[:1] not in ",;.:"
    )


def _literals(node: ast.JoinedStr) -> Iterator[str]:
    for part in node.values:
        yield str(part.value) if isinstance(part, ast.Constant) else "12"


def _is_prose_text(text: str) -> bool:
    plain = _TAG.sub(" ", text)
    is_list = len(plain.split()) > 30 and not set(",.;:") & set(plain)
    return (
        not is_list
        and len(_LOWER.findall(plain)) >= 3
        and "{" not in plain.replace("{}", "")
        and "://" not in plain.split(" ")[0]
    )


def _new_only(lines: Sequence[str]) -> list[str]:
    """Lines without the sentences that one before has, or has in nearly the same words."""
    kept: list[str] = []
    said: list[set[str]] = []
    for line in lines:
        rule, _, text = line.partition(": ") if line.startswith("`") else ("", "", line)
        fresh = []
        for sentence in sentences_of(text):
            words = set(_SPLIT.split(sentence.lower()))
            if all(
                len(words - before) > _FEW or (len(words) <= _FEW and words != before)
                for before in said
            ):
                fresh.append(sentence)
                said.append(words)
        if fresh:
            kept.append(f"{rule}: {' '.join(fresh)}" if rule else " ".join(fresh))
    return kept


def sentences_of(text: str) -> list[str]:
    """The sentences of a line."""
    return [one.strip() for part in text.split(_NEXT) for one in _STOP.split(part) if one.strip()]


@dataclass(frozen=True)
class Measure:
    """How sentences read, code aside.

    Attributes:
        words: Of each sentence how many it has.
        pointing: How many of them point elsewhere.
    """

    words: Mapping[str, int]
    pointing: Mapping[str, int]

    @property
    def mean(self) -> float:
        """Words a sentence."""
        return sum(self.words.values()) / len(self.words)

    @property
    def long_fraction(self) -> float:
        """The share of sentences of more than 22 words."""
        return sum(count > _LONG for count in self.words.values()) / len(self.words)

    @property
    def pointing_fraction(self) -> float:
        """The share of words that point elsewhere."""
        return sum(self.pointing.values()) / sum(self.words.values())


def measure(page: str) -> Measure:
    """Measure the sentences of a page, each once."""
    words, pointing = {}, {}
    for line in page.splitlines():
        if not line.startswith("- "):
            continue
        text = re.sub(r"^- (`[\w-]+`: )?", "", line)
        said = "".join("\0" if piece.is_code else piece.text for piece in code_pieces(text))
        for sentence in sentences_of(said):
            plain = re.findall(r"[^\W_]+(?:[-'.,][^\W_]+)*", sentence.replace("\0", " "))
            if plain:
                words[sentence] = len(plain)
                pointing[sentence] = sum(word.lower() in _POINTING for word in plain)
    return Measure(words, pointing)


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", _TAG.sub(" ", text).replace("{}", "...")).strip()


def sentences_markdown(folder: Path = PACKAGE) -> str:
    """The page of all sentences."""
    rooms: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for name, lines in Sentences(folder).rooms().items():
        parts = name.split(".")[1:] or [name]
        room = "/".join(parts[:-1][:2]) or "profnb"
        rooms[room][parts[-1]] = lines
    head = (
        "# Sentences\n\nAll that profnb can say, filled with examples: advice with its rule, notes, captions, verdicts and "
        "errors, by room. Written by `docs/make.py` from the source."
    )
    pages = [head]
    for room, files in rooms.items():
        pages.append(f"## {room}")
        for file, lines in files.items():
            pages.append(f"### {file}.py\n\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(pages) + "\n"
