"""The sources of a cell together: what their names mean, and which datasets and models they use.

What a name is follows from the value that it has after the cell, and from the place that binds it. Where that
is not plain it is unknown, and nothing is changed because of it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TypeGuard, TypeVar, cast

import libcst as cst
from libcst.metadata.scope_provider import Assignment, GlobalScope

from profnb.advice.proposals import Advice
from profnb.capture.models.layer_facts import is_a, is_keras
from profnb.capture.source.user_code import file_title, names_in, number_cells
from profnb.edits.source_text import (
    DoesNotFitError,
    Piece,
    SourceText,
    certain,
    holder_of,
    method_of,
    path_of,
    receiver,
    require,
    root_of,
)

LOOPS = (cst.For, cst.While, cst.CompFor, cst.ListComp, cst.GeneratorExp, cst.SetComp, cst.DictComp)
STAGES = {
    "apply", "batch", "cache", "concatenate", "enumerate", "filter", "flat_map", "interleave", "map",
    "padded_batch", "prefetch", "ragged_batch", "repeat", "shard", "shuffle", "skip", "take", "unbatch",
    "window", "with_options",
}  # fmt: skip
_SOURCE = re.compile(r"tensorflow\..*\bdata\..*|(tensorflow|keras)\..*_dataset_from_directory")
_MISSING = object()
_Only = TypeVar("_Only")
_Node = TypeVar("_Node", bound=cst.CSTNode)
Place = tuple[SourceText, int]
Expression = tuple[SourceText, cst.BaseExpression]
CallPlace = tuple[SourceText, cst.Call]
Change = tuple[str, str, list[Piece]]  # what changes, what that alters in results, the text
Make = Callable[["ProgramText", Advice], Change]
ROUNDING, NOTHING = "order of rounding", "nothing"  # which most edits change in results


def is_module(value: object) -> TypeGuard[ModuleType]:
    """Tell whether a value is a module, without asking it."""
    return issubclass(type(value), ModuleType)


def only(some: Sequence[_Only]) -> _Only:
    """Take the only one; of several nobody knows which is meant."""
    require(len(some) == 1)
    return some[0]


@dataclass(frozen=True)
class ProgramText:
    """The sources that a cell runs, and the values of its names.

    Attributes:
        texts: The sources, the cell's first.
        names: The cell's global names.
    """

    texts: Sequence[SourceText]
    names: Mapping[str, object]

    def place_of(self, where: str) -> Place | None:
        """The source and line that an advice calls "Cell [3]:8"; None where that is none of these."""
        title, _, line = where.rpartition(":")
        if not title or not line.isdecimal():
            return None
        cells = number_cells()
        texts = [
            text
            for text in self.texts
            if title in (text.name, file_title(text.name, cells))
            or text.name.replace("\\", "/").endswith("/" + title)
        ]
        return (texts[0], int(line)) if len(texts) == 1 else None

    def nearest(self, find: Callable[[SourceText], list[_Only]]) -> list[tuple[SourceText, _Only]]:
        """Find in the first source that has any, so in the cell before those it builds on."""
        lists = ([(text, one) for one in find(text)] for text in self.texts)
        return next(filter(None, lists), [])

    def only_at(
        self, where: str, find: Callable[[SourceText], list[_Node]]
    ) -> tuple[SourceText, _Node]:
        """The only node that is meant: on the advice's line, or else of the nearest source."""
        at, line = self.place_of(where) or (None, 0)
        nodes = [(at, node) for node in find(at)] if at is not None else []
        there = [(at, n) for at, n in nodes if at.has_line(at.line_statement(n), line)]
        return only(there or self.nearest(find))

    def call(self, what: str, advice: Advice) -> CallPlace:
        """The only call of a kind, as ``is_call`` names it."""

        def find(text: SourceText) -> list[cst.Call]:
            return [call for call in text.find(cst.Call) if self.is_call(text, call, what)]

        return self.only_at(advice.where, find)

    def is_call(self, text: SourceText, call: cst.Call, what: str) -> bool:
        """Tell whether a call is what is named, of "model.fit", "dataset.map", or a pattern of full names."""
        of, _, method = what.rpartition(".")
        behind = receiver(call)
        if of not in ("model", "dataset") or behind is None:
            return re.fullmatch(what, self.meaning(text, call.func)) is not None
        if method_of(call) != method:
            return False
        if of == "dataset":
            return self.is_dataset(text, call)
        return is_keras(self.value(text, behind), "Model")

    def is_dataset(self, text: SourceText, node: cst.BaseExpression) -> bool:
        """Tell whether an expression is a dataset of tf.data for sure."""
        if isinstance(node, cst.Name):
            defined = None if self.is_global(text, node) else self.definition(text, node)
            is_one = is_a(self.value(text, node), "DatasetV2", "tensorflow")
            return is_one or (defined is not None and self.is_dataset(*defined))
        if not isinstance(node, cst.Call):
            return False
        if method_of(node) in STAGES and (behind := receiver(node)) is not None:
            return self.is_dataset(text, behind)
        return self.is_source(text, node)

    def is_source(self, text: SourceText, call: cst.Call) -> bool:
        """Tell whether a call makes a dataset of something else."""
        return _SOURCE.fullmatch(self.meaning(text, call.func)) is not None

    def is_global(self, text: SourceText, name: cst.Name) -> bool:
        """Tell whether a name is one of the cell's, and no function's own."""
        scope = text.scope(name)
        if scope is None:
            return False
        bound = [one for one in scope[name.value] if isinstance(one, Assignment)]
        return all(isinstance(one.scope, GlobalScope) for one in bound)

    def value(self, text: SourceText, node: cst.CSTNode) -> object:
        """The value that a global name has after the cell; something that is nothing for all else."""
        if isinstance(node, cst.Name) and self.is_global(text, node):
            return self.names.get(node.value, _MISSING)
        return _MISSING

    def meaning(self, text: SourceText, node: cst.CSTNode) -> str:
        """Resolve names with dots, as "tensorflow.data.AUTOTUNE"; "" where that is not known."""
        root, path = root_of(node), path_of(node)
        value, behind = self.value(text, root), path[len(path_of(root)) :]
        if is_module(value):
            return f"{value.__name__}{behind}"
        if issubclass(type(value), type | FunctionType):
            named = cast("type", value)
            return f"{named.__module__}.{named.__qualname__}{behind}"
        return ""

    def alias(self, module: str, text: SourceText, node: cst.CSTNode) -> str:
        """Give the user's name for a module where a node stands."""
        scope = text.scope(node)
        for name, value in list(self.names.items()):
            if not is_module(value) or value.__name__ != module or name[:1] == "_":
                continue
            bound = [] if scope is None else [a for a in scope[name] if isinstance(a, Assignment)]
            if all(
                isinstance(one.scope, GlobalScope)
                and text.begin(text.statement(one.node)) < text.begin(text.statement(node))
                for one in bound
            ):
                return name
        raise DoesNotFitError

    def bindings(self, name: str) -> Sequence[tuple[SourceText, cst.CSTNode]]:
        """The places that bind a global name."""
        return [
            (text, one.node)
            for text in self.texts
            if text.has_word(name) and (scope := text.global_scope) is not None
            for one in scope[name]
            if isinstance(one, Assignment)
        ]

    def is_bound_once(self, name: str) -> bool:
        """Tell whether a global name keeps its value from where it is bound on."""
        places = self.bindings(name)
        around = [one for text, node in places for one in text.above(node)]
        is_repeated = any(isinstance(one, (*LOOPS, cst.FunctionDef)) for one in around)
        return len(places) <= 1 and not is_repeated

    def is_set_inside(self, name: str) -> bool:
        """Tell whether an item or attribute of a global name is set anywhere."""
        kinds = cst.AssignTarget | cst.AugAssign
        targets = (n.target for text in self.texts for n in text.nodes if isinstance(n, kinds))
        return any(holder_of(target) == name for target in targets)

    def function(self, name: str) -> tuple[SourceText, cst.FunctionDef]:
        """The only definition of a function of the cell or of a source before it."""
        text, node = only(self.bindings(name))
        require(isinstance(next(text.above(node)), cst.Module))
        return text, certain(node if isinstance(node, cst.FunctionDef) else None)

    def definition(self, text: SourceText, name: cst.Name) -> Expression | None:
        """Find what a name was last set to where it stands, if one plain assignment tells."""
        scope, around = text.scope(name), [name, *text.above(name)]
        if scope is None:
            return None
        nodes = [one.node for one in scope[name.value] if isinstance(one, Assignment)]
        before = [node for node in nodes if text.begin(node) < text.begin(name)]
        before = [node for node in before if text.line_statement(node) not in around]
        is_inside = any(isinstance(one, cst.FunctionDef | cst.Lambda) for one in around)
        if self.is_global(text, name) and (is_inside or not before):
            places = self.bindings(name.value)
            return _assigned(*places[0]) if places and self.is_bound_once(name.value) else None
        if not before:
            return None
        last = max(before, key=text.begin)
        outside = set(around) - set(text.above(last))
        block = next(text.above(text.line_statement(last)))
        loops = [one for node in nodes for one in text.above(node) if isinstance(one, LOOPS)]
        if block not in around or not outside.isdisjoint(loops):
            return None  # bound on some paths only, or in an earlier turn of a loop
        return _assigned(text, last)

    def words(self, text: SourceText, node: cst.CSTNode, seen: set[str] | None = None) -> set[str]:
        """All names that a function uses, with those of the functions and layers that it calls."""
        seen = set() if seen is None else seen
        for name in text.find(cst.Name, node):
            if name.value in seen:
                continue
            seen.add(name.value)
            value = self.value(text, name)
            if type(value) is FunctionType:
                try:
                    self.words(*self.function(name.value), seen)
                except DoesNotFitError:
                    seen |= names_in(value.__code__).union(value.__code__.co_varnames)
            elif is_keras(value, "Layer", "KerasLayer"):
                layers = [value, *getattr(value, "layers", ())]
                seen |= {type(layer).__name__ for layer in layers}
        return seen


def _assigned(text: SourceText, node: cst.CSTNode) -> Expression | None:
    """The value of a plain assignment to one name."""
    for above in text.above(node):
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            return (text, above.value) if above.targets[0].target is node else None
    return None
