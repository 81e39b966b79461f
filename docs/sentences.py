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
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path

from profnb.report.advice import code_pieces
from sentence_examples import CHOSEN_BY, VARIANTS
from sentence_names import Module, above, last_name
from sentence_source import MARKED, PASSES_ON, NoText, Pack, Source, agree

PACKAGE = Path(__file__).resolve().parents[1] / "profnb"
_ADVICE = {"Proposal": (0, 1, 2, 3), "Finding": (0, 1, 2, 4), "propose": (1, 2, 3)}
_ELSEWHERE = {
    "Column",
    "columns_in",
    "field_column",
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
_TAG, _LOWER = re.compile(r"<[^<>]*>"), re.compile(r"(?<!\S)[(`']?[a-z][a-z']*(?=[\s,.:;)?]|$)")
_NEXT = "\N{SYMBOL FOR UNIT SEPARATOR}"  # between title, evidence and code
_POINTING = frozenset(
    "that which what whose who it its those these they them such there then so also too else other others one ones".split()
)
_LONG = 22
_STOP, _SPLIT, _FEW = re.compile(r"(?<=[.?!])(?<!\.\.)\s+"), re.compile(r"[\s,.;:()]+"), 2


class Sentences(Source):
    """The texts of a package that stand on the page."""

    def __init__(self, folder: Path = PACKAGE) -> None:
        """Read the files of a package."""
        super().__init__(folder)

    def rooms(self) -> dict[str, list[str]]:
        """The lines of the page, by file of the package."""
        lines: dict[str, list[str]] = defaultdict(list)
        covered: set[ast.AST] = set()
        roots = [(module, node) for module in self.modules.values() for node in _advice_calls(module)]
        for module, node in roots:
            lines[module.name] += _new_only([_line(text) for text in self._advice(node) if "`rule`" not in text])
            covered |= self.seen
            self.seen = set()
        found = []
        for module in self.modules.values():
            for node in () if module.name in _NO_WORDS else _prose_roots(module):
                self.seen = set()
                try:
                    said = [text for text in self._flat(self.say(node))]
                except NoText:
                    continue
                found.append((module, node, said, self.seen))
        inside = defaultdict(int)
        for *_, seen in found:
            for literal in seen:
                inside[literal] += 1
        for module, node, said, seen in sorted(found, key=lambda one: -len(one[3])):
            own = {literal for literal in seen if isinstance(literal, (ast.Constant, ast.JoinedStr)) and _is_prose(literal)}
            if own and not own <= covered:
                covered |= seen
                is_error = any(isinstance(above, ast.Raise) for above in above(module, node))
                lines[module.name] += _new_only([_line(text) for text in said if _is_said(text, is_error=is_error)])
        order = {name: at for at, name in enumerate(self.modules)}
        return {name: list(dict.fromkeys(lines[name])) for name in sorted(lines, key=order.__getitem__) if lines[name]}

    def _flat(self, said: Iterable[object]) -> Iterator[str]:
        for one in said:
            if isinstance(one, Pack):
                for part in one.parts:
                    yield from self._flat(part)
            else:
                yield str(one)

    def _advice(self, node: ast.Call) -> list[str]:
        """A line for each alternative of an advice."""
        places = [node.args[at] for at in _ADVICE[last_name(node.func)] if at < len(node.args)]
        if len(places) == 3:  # words that are chosen by the framework
            rule, words, evidence = map(self.or_nothing, places)
            packs = [one for one in words if isinstance(one, Pack)]
            texts = [[text for title in pack.parts[0] for text in [title]] for pack in packs]
            fields = [rule, [], evidence, []]
            lines = []
            for pack, titles in zip(packs, texts, strict=True):
                code = [text for text in pack.parts[1] if isinstance(text, str)] if len(pack.parts) > 1 else []
                fitting = [one for one in evidence if agree(titles[0], str(one))]
                lines += _advice_lines(rule, titles, fitting or evidence, code)
            if lines:
                return lines
            return _advice_lines(*fields)
        return _advice_lines(*map(self.or_nothing, places))


def _advice_lines(
    rule: Sequence[object],
    titles: Sequence[object],
    evidence: Sequence[object],
    code: Sequence[object],
) -> list[str]:
    rules = [str(one) for one in rule if isinstance(one, str)] or ["rule"]
    evidence = [one for one in evidence if isinstance(one, str)]
    titles = _beside(titles, evidence)
    code = _beside(code, ["".join(filter(None, row)) for row in zip_longest(titles, evidence)])
    rows = zip_longest(titles, evidence, code)
    first = ["", "", ""]
    lines = []
    for at, row in enumerate(rows):
        beside = "".join(filter(None, row))
        first = [before if text is None else text for text, before in zip(row, first, strict=True)]
        title, *rest = (text if agree(beside, text) else "" for text in first)
        fitting = [one for one in rules if agree(one, "".join((title, *rest)))] or rules
        said = _NEXT.join(text for text in (title and f"{title}.", *rest) if text)
        lines.append(f"`{fitting[min(at, len(fitting) - 1)]}`: {said}")
    return lines


def _beside(texts: Iterable[object], others: Iterable[str]) -> list[str | None]:
    """Of texts for each of others the next one that can stand beside it, then the rest."""
    left = [text for text in texts if isinstance(text, str)]
    rows = []
    for other in others:
        rows.append(next((text for text in left if agree(other, text)), None))
        left = [text for text in left if text is not rows[-1]]
    return [*rows, *left]


def _advice_calls(module: Module) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and last_name(node.func) in _ADVICE:
            function = module.functions[node]
            if function is None or function.name not in _ADVICE:
                yield node


def _prose_roots(module: Module) -> Iterator[ast.AST]:
    """The widest expressions that are text, of all that hold prose."""
    given = set()
    for node in ast.walk(module.tree):
        if not isinstance(node, (ast.Constant, ast.JoinedStr)) or not _is_prose(node):
            continue
        root = _widest(module, node)
        if isinstance(module.parents.get(root), ast.Assign) and _ends_open(root):  # it goes on where its name is used
            names = {target.id for target in module.parents[root].targets if isinstance(target, ast.Name)}
            for one in ast.walk(module.functions[root] or module.tree):
                if isinstance(one, ast.Name) and one.id in names and isinstance(one.ctx, ast.Load):
                    root = _widest(module, one)
        if root not in given and not _is_elsewhere(module, root):
            given.add(root)
            yield root


def _widest(module: Module, node: ast.AST) -> ast.AST:
    while (parent := module.parents.get(node)) is not None and _goes_on(parent, node):
        node = parent
    return node


def _ends_open(node: ast.AST) -> bool:
    last = node.values[-1] if isinstance(node, ast.JoinedStr) else node
    return isinstance(last, ast.Constant) and str(last.value).endswith(" ")


def _goes_on(parent: ast.AST, child: ast.AST) -> bool:
    """Whether an expression is part of a wider text."""
    if isinstance(parent, ast.IfExp):
        return child is not parent.test
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, (ast.Add, ast.Mod, ast.Mult))
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("join", "format")
    if isinstance(parent, ast.Call):
        return parent.func is child or last_name(parent.func) in ("text_of", *PASSES_ON)
    if isinstance(parent, ast.keyword):
        return False
    return isinstance(parent, (ast.JoinedStr, ast.FormattedValue, ast.BoolOp))


def _is_elsewhere(module: Module, node: ast.AST) -> bool:
    """Whether it is a docstring, a pattern, a name, or said on another page."""
    while (parent := module.parents.get(node)) is not None:
        if isinstance(parent, ast.Expr) and parent.value is node and isinstance(node, ast.Constant):
            return True
        if isinstance(parent, ast.Compare) or (isinstance(parent, ast.Dict) and node in parent.keys):
            return True
        if isinstance(parent, (ast.FunctionDef, ast.arg, ast.AnnAssign)) and node in (
            getattr(parent, "returns", None),
            getattr(parent, "annotation", None),
        ):
            return True
        if isinstance(parent, ast.Call) and last_name(parent.func) in _ELSEWHERE:
            return True
        if isinstance(parent, ast.keyword) and parent.arg in _SETTINGS:
            return True
        if isinstance(parent, ast.Call) and last_name(parent.func) == "Table":
            return False
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return any(isinstance(one, ast.Name) and one.id in ("Column", "columns_in", "field_column") for one in ast.walk(node))
        node = parent
    return False


def _is_prose(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return _is_prose_text(" ".join(_literals(node)))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_prose_text(node.value)


def _is_said(text: str, *, is_error: bool) -> bool:
    """Whether it is more than a piece of a sentence, a heading or what a column means."""
    text = _line(text)
    begins = (text[:1].upper() == text[:1] and text[:1].isalnum()) or text[:1] in "`'%~_"
    return (
        _is_prose_text(text) and (is_error or text.endswith(".") or (begins and len(text.split()) > 5)) and text[:1] not in ",;.:"
    )


def _literals(node: ast.JoinedStr) -> Iterator[str]:
    for part in node.values:
        yield str(part.value) if isinstance(part, ast.Constant) else "12"


def _is_prose_text(text: str) -> bool:
    plain = _TAG.sub(" ", text)
    is_list = len(plain.split()) > 30 and not set(",.;:") & set(plain)
    return (
        not is_list and len(_LOWER.findall(plain)) >= 3 and "{" not in plain.replace("{}", "") and "://" not in plain.split(" ")[0]
    )


def _new_only(lines: Sequence[str]) -> list[str]:
    """Lines without the sentences that one before has, or has in nearly the same words."""
    kept: list[str] = []
    said: list[set[str]] = []
    for line in lines:
        rule, _, text = line.partition(": ") if line.startswith("`") else ("", "", line)
        before, fresh = list(said), []
        for sentence in sentences_of(text):
            words = set(_SPLIT.split(sentence.lower()))
            is_new = all(len(words - other) > _FEW or (len(words) <= _FEW and words != other) for other in before)
            if is_new or (fresh and words not in said):  # what follows in one text was written for it
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
    """A text in one line, with the examples of what chose it."""
    by = dict(MARKED.findall(text))
    text = MARKED.sub("", text)
    for name, examples in CHOSEN_BY.items():
        value = by.get(name, "")
        for example, chosen in {f"<{name}>": value, **examples.get(value, {})}.items():
            text = re.sub(rf"(?<!\w){example}(?!\w)", chosen, text)
    return re.sub(r"\s+", " ", _TAG.sub(" ", text).replace("{}", "...")).strip()


def varied(line: str) -> str:
    """An example that stands several times on a line varies, as the values do; a part is less than its whole."""
    for example, values in VARIANTS.items():
        counted = count()
        again = re.compile(rf"(?<![\w.,'])(?<!\w-){re.escape(example)}(?!\w|[.,]\d)")
        line = again.sub(lambda _: values[next(counted) % len(values)], line)

    def ordered(found: re.Match[str]) -> str:
        part, of, whole = found.groups()
        few, many = sorted((part, whole), key=lambda text: float(text.replace(",", "")))
        return f"{few if few != many else 3}{of}{many}"

    return re.sub(r"(?<![\w.])(\d[\d,]*)( (?:other )?of (?:its |the |up to )?)(\d[\d,]*)(?![\w,.]*\d)", ordered, line)


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
            pages.append(f"### {file}.py\n\n" + "\n".join(f"- {varied(line)}" for line in lines))
    return "\n\n".join(pages) + "\n"
