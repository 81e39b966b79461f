"""What the texts in a package's source say: expressions worked out as far as they are text.

Variables, functions, properties and parameters are followed to the texts that they hold. Branches are
alternatives of one text; what is no text is an example by how it is written or by its name (``EXAMPLES``,
``ENDINGS``), by the name of its file or room before it (``magics.name``), if there is one. What one value
chooses (``CHOSEN_BY``), or one assignment binds, stands together.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentence_examples import CHOSEN_BY, ENDINGS, EXAMPLES
from sentence_names import Grown, Taken, above, bound, gives_text, is_text, last_name, read_module

_DEEPEST, _MOST = 18, 32  # calls that are followed; alternatives of one text
PASSES_ON = {
    "printable", "printable_lines", "quoted", "shortened", "cut_middle", "str", "fill", "with_names", "join", "strip",
    "rstrip", "lstrip", "removesuffix", "removeprefix", "replace", "capitalize", "Markup", "fitted", "escape", "plain_text",
}  # fmt: skip
_FORM = re.compile(r"%\(?\w*\)?[sdrf]|\{\w*(?:[!:][^{}]*)?\}")
_MARK = "\N{RECORD SEPARATOR}"  # around what a text was chosen by, as in "cause=shuffle"
MARKED = re.compile(f"{_MARK}([^{_MARK}=]*)=([^{_MARK}]*){_MARK}")


@dataclass(frozen=True)
class Pack:
    """A tuple of texts, each with its alternatives."""

    parts: tuple[tuple[object, ...], ...]


class NoText(Exception):
    """An expression is no text."""


def marked(said: object, name: str, value: str) -> object:
    """A text with what it was chosen by, which what stands beside it was chosen by too."""
    if isinstance(said, Pack):
        return Pack(tuple(tuple(marked(one, name, value) for one in part) for part in said.parts))
    return f"{_MARK}{name}={value}{_MARK}{said}" if said else said


def agree(one: str, other: str) -> bool:
    """Whether two texts can stand together: nothing that chose one chose another for the other."""
    chosen = dict(MARKED.findall(one))
    return all(chosen.get(name, value) == value for name, value in MARKED.findall(other))


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
            begin = re.compile(rf"^((?:{MARKED.pattern})*)(.)")
            return [begin.sub(lambda found: found[1] + found[found.lastindex].upper(), str(text)) for text in said]
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
        example = self._known(node)
        if example is not None:
            return [self._counted(node)] if key == "counted_text" else [example]
        try:
            said = [one for one in self.say(node) if isinstance(one, str)]
            if said:
                return said
        except NoText:
            pass
        if isinstance(node, ast.Call) and key in PASSES_ON and (node.args or isinstance(node.func, ast.Attribute)):
            inner = self.text(
                node.func.value if isinstance(node.func, ast.Attribute) and not is_text(node.func.value) else node.args[0]
            )
            return list(map(_in_backticks, inner)) if key == "quoted" else inner
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self.text(node.elt)
        if isinstance(node, ast.Name):
            for meant in self._meant(node, node.id):
                number = getattr(meant, "first", meant)
                if isinstance(number, ast.Constant) and isinstance(number.value, (int, float)):
                    return [f"{number.value:,}" if number is meant else "12"]
        ending = max((ending for ending in ENDINGS if key.endswith(ending)), key=len, default=None)
        if ending is not None:
            return [ENDINGS[ending]]
        if is_number or isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            return ["12"]
        self.missing[key] += 1
        return [key.strip("_").replace("_", " ")]

    def _known(self, node: ast.AST) -> str | None:
        """The example of an expression as it is written, or else of its name; of its file or room before any."""
        places = self.module_of[node].name.split(".")[::-1] if node in self.module_of else []
        function = self.module_of[node].functions[node] if isinstance(node, ast.Name) else None
        texts = bound(function, node.id) if function else ()
        if texts and all(isinstance(one, ast.JoinedStr) for one in texts):  # it says itself what it is
            return None
        keys = ast.unparse(node), last_name(node)
        names = (name for key in keys for name in (*(f"{place}.{key}" for place in places), key))
        return next((EXAMPLES[name] for name in names if name in EXAMPLES), None)

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
        if ast.unparse(node.test).endswith(" == 1") and isinstance(node.orelse, ast.Constant):  # counts are more
            return self.say(node.orelse)
        said = self._all([node.body, node.orelse])
        if said == [""]:  # there is an example of the other one
            return [*self.text(node.body if isinstance(node.orelse, ast.Constant) else node.orelse), ""]
        return said

    def _say_BoolOp(self, node: ast.BoolOp) -> list[object]:
        return self._all(node.values if isinstance(node.op, ast.Or) else node.values[-1:])

    def _say_NamedExpr(self, node: ast.NamedExpr) -> list[object]:
        return self.say(node.value)

    def _say_Starred(self, node: ast.Starred) -> list[object]:
        said = self.say(node.value)
        return [text for one in said for text in (one.parts[0] if isinstance(one, Pack) and one.parts else [one])]

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
        if last_name(node.elt) == "quoted":
            return self.text(node.elt)
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
        said = self._chosen(node.value, node.slice) or self.say(node.value)
        if not ast.unparse(node.slice).lstrip("-").isdigit():
            return [one for one in said if not isinstance(one, Pack)] or said
        at = ast.literal_eval(node.slice)
        return [text for one in said if isinstance(one, Pack) and one.parts for text in one.parts[at]]

    def _chosen(self, node: ast.AST, by: ast.AST | str) -> list[object]:
        """What a dict holds, each with its key, where a name of ``CHOSEN_BY`` chooses."""
        name = by if isinstance(by, str) else last_name(by)
        if name not in CHOSEN_BY or not isinstance(node, ast.Name):
            return []
        dicts = [one for one in self._meant(node, node.id) if isinstance(one, ast.Dict)]
        said = [
            marked(text, name, str(key[0])) if key else text
            for one in dicts
            for at, value in zip(one.keys, one.values, strict=True)
            for key in [self.or_nothing(at)]
            for text in self.or_nothing(value)
        ]
        return sorted(said, key=lambda text: text == "")

    def _say_Return(self, node: ast.Return) -> list[object]:
        return self.say(node.value) if node.value else self._refuse(node)

    _say_Yield = _say_Return

    def _say_FunctionDef(self, node: ast.FunctionDef) -> list[object]:
        ends = [
            one
            for one in ast.walk(node)
            if isinstance(one, (ast.Return, ast.Yield)) and self.module_of[node].functions[one] is node
        ]
        said = [self._tested(one, text) for one in ends for text in self.or_nothing(one) if self._can_be(one, text)]
        if not said:
            raise NoText
        return sorted(said, key=lambda text: text == "")

    def _can_be(self, node: ast.AST, text: object) -> bool:
        """Whether what chose a text lets a statement be reached: a test around it, or one that returns before it."""
        chosen, parents = dict(MARKED.findall(str(text))), self.module_of[node].parents
        while chosen and not isinstance(node, ast.FunctionDef):
            parent = parents[node]
            if isinstance(parent, ast.If) and node is not parent.test:
                holds = self._holds(parent.test, chosen)
                if holds is not None and holds != (node in parent.body):
                    return False
            for name in ("body", "orelse"):
                block = getattr(parent, name, None)
                if isinstance(block, list) and node in block:
                    tests = [one for one in block[: block.index(node)] if isinstance(one, ast.If)]
                    if any(isinstance(one.body[-1], ast.Return) and self._holds(one.test, chosen) for one in tests):
                        return False
            node = parent
        return True

    def _holds(self, test: ast.AST, chosen: Mapping[str, str]) -> bool | None:
        """Whether a test of what chose a text is true; None where it is of something else."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            parts = [self._holds(one, chosen) for one in test.values]
            return False if False in parts else None if None in parts else True
        if not isinstance(test, ast.Compare) or last_name(test.left) not in chosen:
            return None
        right = test.comparators[0]
        values = [text for one in getattr(right, "elts", [right]) for text in self.or_nothing(one)]
        is_one = chosen[last_name(test.left)] in values
        return is_one if isinstance(test.ops[0], (ast.Eq, ast.In)) else not is_one

    def _tested(self, node: ast.AST, text: object) -> object:
        """A text with the value that a test around it asks for."""
        parent = self.module_of[node].parents[node]
        for test in ast.walk(parent.test) if isinstance(parent, ast.If) and node in parent.body else ():
            if isinstance(test, ast.Compare) and last_name(test.left) in CHOSEN_BY and isinstance(test.ops[0], ast.Eq):
                return marked(text, last_name(test.left), str((self.or_nothing(test.comparators[0]) or [""])[0]))
        return text

    def _say_Call(self, node: ast.Call) -> list[object]:
        name = last_name(node.func)
        if self._known(node) is not None:
            return self.text(node)
        if name == "text_of" and node.args:  # by framework
            return self._chosen(node.args[0], "framework") or self._all(node.args)
        if name in ("format", "format_map") and isinstance(node.func, ast.Attribute):
            given = {keyword.arg: self.text(keyword.value)[0] for keyword in node.keywords if keyword.arg}
            given |= {str(at): self.text(arg)[0] for at, arg in enumerate(node.args)}
            listed = [self.text(arg)[0] for arg in node.args]

            def filled(text: str) -> str:
                rest = iter(listed)

                def fill(hole: re.Match[str]) -> str:
                    return str(given.get(hole.group().strip("{}").partition(":")[0]) or next(rest, "12"))

                return _FORM.sub(fill, text)

            return [filled(str(text)) for text in self.say(node.func.value)]
        if name in PASSES_ON:
            inner = (
                node.args[0]
                if node.args and name not in ("strip", "rstrip", "lstrip", "removesuffix", "removeprefix", "replace")
                else node.func
            )
            inner = inner.value if isinstance(inner, ast.Attribute) and inner is node.func else inner
            said = [self._known(inner)] if name in ("quoted", "printable") and self._known(inner) else self.say(inner)
            return list(map(_in_backticks, said)) if name == "quoted" else said
        if name == "get" and isinstance(node.func, ast.Attribute):
            if chosen := self._chosen(node.func.value, node.args[0]):
                return [*chosen, *(text for one in node.args[1:] for text in self.or_nothing(one) if text)]
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
        meant = self._meant(node, node.id)
        said = []
        for at, one in enumerate(meant):
            texts = self.or_nothing(one)
            parent = self.module_of[one].parents.get(one) if one in self.module_of else None
            if one in self.module_of and isinstance(self.module_of[one].parents.get(one), ast.Assign):
                texts = [self._tested(self.module_of[one].parents[one], text) for text in texts]
            if len(meant) > 1 and isinstance(parent, ast.Tuple):  # names that are bound together stay together
                statement = next(some for some in above(self.module_of[one], one) if isinstance(some, ast.stmt))
                names = ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
                texts = texts or (self.text(one) if isinstance(one, ast.Subscript) else [])
                texts = [marked(text, names, str(at)) for text in texts]
            said += texts
        if not said:
            raise NoText
        return sorted(said, key=lambda text: text == "")

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
            if one in uses and node in set(ast.walk(one)):
                values = values[:at]
        return sorted(self._reaching(node, values), key=lambda one: one not in uses)

    def _reaching(self, node: ast.AST, values: Sequence[ast.AST]) -> Sequence[ast.AST]:
        """Of what a name is bound to what it can still be: not what another branch or a block that leaves binds."""
        module, around = self.module_of[node], {node, *above(self.module_of[node], node)}
        left: list[ast.AST] = []
        for one in values:
            statement = one.first if isinstance(one, Grown) else one.value if isinstance(one, Taken) else one
            while not isinstance(statement, ast.stmt) and statement in module.parents:
                statement = module.parents[statement]
            parent = module.parents.get(statement)
            blocks = (some for _, some in ast.iter_fields(parent)) if parent else ()
            block = next((some for some in blocks if isinstance(some, list) and statement in some), [])
            later = [some for some in block if some in around]
            is_branch = parent in around and isinstance(parent, ast.If)  # and the use is in the other one
            if block and not later and (is_branch or isinstance(block[-1], (ast.Return, ast.Continue, ast.Raise))):
                continue
            if later and statement not in around and block.index(later[0]) > block.index(statement):
                left = []
            left.append(one)
        return left

    def _say_Taken(self, node: "Taken") -> list[object]:
        said = self.say(node.value)
        if isinstance(node.value, ast.IfExp):
            said = [marked(one, ast.unparse(node.value.test), str(at)) for at, one in enumerate(said)]
        by = next((at for at, name in enumerate(node.names) if name in CHOSEN_BY and at != node.at), None)
        texts: list[object] = []
        for one in said:
            if isinstance(one, Pack) and len(one.parts) > node.at:
                key = "".join(text for text in one.parts[by][:1] if isinstance(text, str)) if by is not None else ""
                name, key = node.names[by or 0], MARKED.sub("", key)
                texts += [marked(text, name, key) if key else text for text in one.parts[node.at]]
        return texts

    def _say_Grown(self, node: "Grown") -> list[object]:
        parts = (node.first, *node.more)
        if isinstance(node.first, ast.List):  # a list of sentences, not one sentence
            return self._all(parts)
        first = self.or_nothing(node.first)
        if not first and not any(map(self.or_nothing, node.more)):
            raise NoText
        said: list[object] = []
        for text in first or [""]:
            more = [self.or_nothing(part) for part in node.more if self._can_be(part, text)]
            grown = _combined([[text], *([*part, ""] for part in more)])
            said += grown if text == (first or [""])[0] else grown[:1]
        return said


def _combined(parts: Sequence[Sequence[object]]) -> list[object]:
    """The first alternatives together, then each other one in the place of its first."""
    texts = [[one for one in part if isinstance(one, str)] or [""] for part in parts]

    def with_others(at: int, one: str) -> str:
        chosen, together = one, []
        for where, part in enumerate(texts):
            together.append(one if where == at else next((other for other in part if agree(chosen, other)), part[0]))
            chosen += together[-1]
        return "".join(together)

    said = [with_others(0, texts[0][0])] if texts else [""]
    for at, part in enumerate(texts):
        said += [with_others(at, one) for one in part[1:]]
    return list(said)


def _in_backticks(name: object) -> object:
    return f"`{name}`" if isinstance(name, str) and name and "`" not in name else name
