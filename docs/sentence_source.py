"""What the texts in a package's source say: expressions worked out as far as they are text.

Variables, functions, properties and parameters are followed to the texts that they hold. Branches are
alternatives of one text; what is no text is an example by its name (``EXAMPLES``, ``ENDINGS``), by the
name of its file or room before it (``magics.name``), if there is one.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentence_examples import ENDINGS, EXAMPLES
from sentence_names import Grown, Taken, bound, gives_text, is_text, last_name, read_module

_DEEPEST, _MOST = 18, 12  # calls that are followed; alternatives of one text
PASSES_ON = {
    "printable", "printable_lines", "quoted", "shortened", "cut_middle", "str", "fill", "with_names", "join", "strip",
    "rstrip", "lstrip", "removesuffix", "removeprefix", "replace", "capitalize", "Markup", "fitted", "escape", "plain_text",
}  # fmt: skip
_FORM = re.compile(r"%\(?\w*\)?[sdrf]|\{\w*(?:[!:][^{}]*)?\}")


@dataclass(frozen=True)
class Pack:
    """A tuple of texts, each with its alternatives."""

    parts: tuple[tuple[object, ...], ...]


class NoText(Exception):
    """An expression is no text."""


class Source:
    """The texts of a package, as they are said."""

    def __init__(self, folder: Path) -> None:
        """Read the files of a package."""
        self.modules = {
            ".".join((folder.name, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): ast.parse(
                path.read_text("utf-8")
            )
            for path in sorted(folder.rglob("*.py"))
        }
        self.modules = {name: read_module(name, tree) for name, tree in self.modules.items()}
        self.module_of = {node: module for module in self.modules.values() for node in ast.walk(module.tree)}
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.fields: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self.hints: dict[str, str] = {}  # of fields and methods, the annotations
        self.texts_of: dict[str, list[ast.AST]] = defaultdict(list)  # what methods and properties of a name give
        for node in self.module_of:
            if isinstance(node, ast.Call):
                self.calls[last_name(node.func)].append(node)
            if isinstance(node, ast.FunctionDef) and gives_text(node.returns):
                self.texts_of[node.name].append(node)
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                self.hints[node.name] = f"{self.hints.get(node.name, '')} {ast.unparse(node.returns)}"
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        self.hints[one.target.id] = f"{self.hints.get(one.target.id, '')} {ast.unparse(one.annotation)}"
                        if gives_text(one.annotation):
                            self.fields[one.target.id].append(node)
        self.seen: set[ast.AST] = set()
        self.active: list[ast.AST] = []
        self.missing: dict[str, int] = defaultdict(int)

    # -- what an expression says

    def say(self, node: ast.AST) -> list[object]:
        """The alternatives of a text; raises where an expression is none."""
        if node in self.active or len(self.active) > _DEEPEST:
            raise NoText
        self.active.append(node)
        try:
            said = getattr(self, f"_say_{type(node).__name__}", self._refuse)(node)
        finally:
            self.active.pop()
        return list(dict.fromkeys(said))[:_MOST]

    def _refuse(self, node: ast.AST) -> list[object]:
        raise NoText

    def _all(self, nodes: Iterable[ast.AST]) -> list[object]:
        """All that any of these says."""
        said: list[object] = []
        for node in nodes:
            try:
                said += self.say(node)
            except NoText:
                continue
        if not said:
            raise NoText
        return sorted(said, key=lambda text: text == "")

    def _say_Constant(self, node: ast.Constant) -> list[object]:
        if not isinstance(node.value, str):
            raise NoText
        self.seen.add(node)
        return [node.value]

    def _say_JoinedStr(self, node: ast.JoinedStr) -> list[object]:
        self.seen.add(node)
        said = _combined([self._part(part) for part in node.values])
        first = node.values[0] if node.values else None
        if isinstance(first, ast.FormattedValue) and ast.unparse(first.value).endswith("[:1].upper()"):
            return [f"{text[:1].upper()}{text[1:]}" for text in map(str, said)]
        return said

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
        key = last_name(node)
        places = self.module_of[node].name.split(".")[::-1] if node in self.module_of else []
        known = (EXAMPLES[name] for name in (*(f"{place}.{key}" for place in places), key) if name in EXAMPLES)
        example = next(known, None)
        if example is not None:
            return [self._counted(node)] if key == "counted_text" else [example]
        try:
            said = [one for one in self.say(node) if isinstance(one, str)]
            if said:
                return said
        except NoText:
            pass
        if isinstance(node, ast.Call) and key in PASSES_ON and (node.args or isinstance(node.func, ast.Attribute)):
            return self.text(
                node.func.value if isinstance(node.func, ast.Attribute) and not is_text(node.func.value) else node.args[0]
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
        noun = self.text(node.args[1])[0] if isinstance(node, ast.Call) and len(node.args) > 1 else "step"
        return f"12 {noun}s"

    def _say_BinOp(self, node: ast.BinOp) -> list[object]:
        if isinstance(node.op, ast.Mult):
            text = next((side for side in (node.left, node.right) if is_text(side)), None)
            if text is None:
                raise NoText
            return [*self.say(text), ""]
        if isinstance(node.op, ast.Mod) and is_text(node.left):
            return [_FORM.sub("12", str(text)) for text in self.say(node.left)]
        if not isinstance(node.op, ast.Add):
            raise NoText
        sides = []
        for side in (node.left, node.right):
            try:
                sides.append(self.say(side))
            except NoText:
                sides.append([])
        if not any(sides):
            raise NoText
        return _combined([said or self.text(side) for said, side in zip(sides, (node.left, node.right), strict=True)])

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
        return [Pack(tuple(tuple(self.or_nothing(part)) for part in node.elts))]

    def or_nothing(self, node: ast.AST) -> list[object]:
        try:
            return self.say(node)
        except NoText:
            return []

    def _say_List(self, node: ast.List) -> list[object]:
        return self._all(node.elts)

    _say_Set = _say_List

    def _say_GeneratorExp(self, node: ast.GeneratorExp) -> list[object]:
        if not is_text(node.elt):
            raise NoText
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
        return [text for one in said if isinstance(one, Pack) and one.parts for text in one.parts[node.slice.value]]

    def _say_Return(self, node: ast.Return) -> list[object]:
        return self.say(node.value) if node.value else self._refuse(node)

    _say_Yield = _say_Return

    def _say_FunctionDef(self, node: ast.FunctionDef) -> list[object]:
        return self._all(
            one
            for one in ast.walk(node)
            if isinstance(one, (ast.Return, ast.Yield)) and self.module_of[node].functions[one] is node
        )

    def _say_Call(self, node: ast.Call) -> list[object]:
        name = last_name(node.func)
        if name in EXAMPLES:
            return self.text(node)
        if name == "text_of" and node.args:  # by framework
            return self._all(node.args)
        if name in ("format", "format_map") and isinstance(node.func, ast.Attribute):
            given = {keyword.arg: self.text(keyword.value)[0] for keyword in node.keywords if keyword.arg}
            given |= {str(at): self.text(arg)[0] for at, arg in enumerate(node.args)}
            listed = iter([self.text(arg)[0] for arg in node.args])

            def filled(hole: re.Match[str]) -> str:
                return str(given.get(hole.group().strip("{}").partition(":")[0]) or next(listed, "12"))

            return [_FORM.sub(filled, str(text)) for text in self.say(node.func.value)]
        if name in PASSES_ON:
            inner = (
                node.args[0]
                if node.args and name not in ("strip", "rstrip", "lstrip", "removesuffix", "removeprefix", "replace")
                else node.func
            )
            return self.say(inner.value if isinstance(inner, ast.Attribute) and inner is node.func else inner)
        if name == "get" and isinstance(node.func, ast.Attribute):
            return self._all([node.func.value, *node.args[1:]])
        if name == "next" and node.args:
            return self._all(node.args)
        if isinstance(node.func, ast.Name):
            for target in self._meant(node, node.func.id):
                if isinstance(target, ast.FunctionDef) and gives_text(target.returns):
                    return self.say(target)
        elif isinstance(node.func, ast.Attribute):
            return self._say_Attribute(node.func)
        raise NoText

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
            and ((len(self.texts_of[node.attr]) == 1 and not given) or owner.name in self._type_of(node.value))
        ]
        return self._all([*given, *methods])

    def _given_to(self, owner: ast.ClassDef, name: str) -> Iterator[ast.AST]:
        """What a field is made with."""
        fields = [one.target.id for one in owner.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
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
            return self.hints.get(last_name(node.func), "")
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
        if function is None or (node.annotation is not None and not gives_text(node.annotation)):
            raise NoText
        arguments = [*function.args.posonlyargs, *function.args.args]
        owner = module.parents[function]
        shift = int(isinstance(owner, ast.ClassDef))
        at = arguments.index(node) - shift if node in arguments else -1
        name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        given = []
        for call in self.calls[name]:
            if 0 <= at < len(call.args) and not any(isinstance(arg, ast.Starred) for arg in call.args):
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
                    return self._as_used(node, [arg, *bound(function, name)], name)
            if values := bound(function, name):
                return self._as_used(node, values, name)
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

    def _as_used(self, node: ast.AST, values: Sequence[ast.AST], name: str) -> Sequence[ast.AST]:
        """Of what a name is bound to one after the other: a text made of the name itself stands for those before it."""
        uses = [one for one in values if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(one))]
        uses = [one for one in uses if not isinstance(one, (Grown, Taken)) and (is_text(one) or last_name(one) == "format")]
        for at, one in reversed(list(enumerate(values))):
            if one in uses:
                return values[:at] if node in set(ast.walk(one)) else values[at:]
        return values

    def _say_Taken(self, node: "Taken") -> list[object]:
        said = self.say(node.value)
        return [text for one in said if isinstance(one, Pack) and len(one.parts) > node.at for text in one.parts[node.at]]

    def _say_Grown(self, node: "Grown") -> list[object]:
        parts = (node.first, *node.more)
        if isinstance(node.first, ast.List):  # a list of sentences, not one sentence
            return self._all(parts)
        return _combined([self.or_nothing(part) or [""] for part in parts])


def _combined(parts: Sequence[Sequence[object]]) -> list[object]:
    """The first alternatives together, then each other one in the place of its first."""
    texts = [[one for one in part if isinstance(one, str)] or [""] for part in parts]
    first = [part[0] for part in texts]
    said = ["".join(first)]
    for at, part in enumerate(texts):
        said += ["".join([*first[:at], one, *first[at + 1 :]]) for one in part[1:]]
    return list(said)
