"""Keras layers that were made before the capture to the lines of the cells that made them.

A layer does not remember its line. But the text of the cells and modules is at hand, and so is the model: a
call of ``Dense(64, name="head")`` in it can only have made a layer of that class with these arguments. Layers
of a model are looked for one after the other as they stand in it, then one by one. A layer that two calls may
have made has no line. Of models only those are looked at that ran, or one of whose layers a graph names: a
long session leaves many others alive. Nothing is run: of layers only plain attributes are read.

Texts are parsed, once as long as they stay as they are. A project of a hundred modules is the same at each
capture, and to walk the trees of all would take longer than all else at its end.
"""

import ast
import gc
import linecache
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, compress
from operator import attrgetter, itemgetter
from types import ModuleType
from typing import Any

from profnb.capture.source.user_code import is_user_file
from profnb.core.parsing import parse_again

_MOST_MODELS, _MOST_LAYERS_READ, _MOST_CALL_LINES = 200, 600, 2_000
_MOST_BYTES_OF_FILES, _MOST_BYTES_OF_FILE = 4_000_000, 200_000
_PLAIN_TYPES = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Call:
    """A call in a text that may make a layer: the class's name, its line, its constant arguments."""

    name: str
    file: str
    line: int
    positional: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    gives_name: bool


@lru_cache(maxsize=512)
def _calls_in(file: str, text: str) -> list[Call]:
    """List the calls in a text by line; the tree itself, many times as large, is not kept."""
    try:
        tree = parse_again(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls = [
        Call(
            name,
            file,
            node.lineno,
            tuple(each.value for each in node.args if isinstance(each, ast.Constant)),
            tuple(
                (each.arg, each.value.value)
                for each in node.keywords
                if each.arg is not None and isinstance(each.value, ast.Constant)
            ),
            any(each.arg in ("name", None) for each in node.keywords),
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (name := getattr(node.func, "attr", getattr(node.func, "id", "")))
    ]
    return sorted(calls, key=attrgetter("line"))


def calls_in_files(names: Collection[str]) -> list[list[Call]]:
    """Find the calls of some names in the user's cells, then modules, the newest first of each.

    Of each file that has any, in the order of their lines.
    """
    listed = [
        [call for call in _calls_in(file, text) if call.name in names][:_MOST_CALL_LINES]
        for file, text in _texts()
        if any(name in text for name in names)
    ]
    return [calls for calls in listed if calls]


def _texts() -> Iterator[tuple[str, str]]:
    modules = [vars(one) for one in list(sys.modules.values()) if isinstance(one, ModuleType)]
    named = [file for one in modules if isinstance(file := one.get("__file__"), str)]
    imported = [file for file in named if is_user_file(file)]
    of_modules = set(imported)
    cells = [one for one in list(linecache.cache) if one not in of_modules and is_user_file(one)]
    left = _MOST_BYTES_OF_FILES
    for file in (*cells[::-1], *imported[::-1]):
        text = "".join(linecache.getlines(file))
        if 0 < len(text) < _MOST_BYTES_OF_FILE:
            left -= len(text)
            if left < 0:
                return
            yield file, text


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    kind: str
    attributes: Mapping[str, Any]

    def may_come_from(self, call: Call) -> bool:
        """Tell whether a call can have made this layer."""
        if call.name != self.kind:
            return False
        # What Keras calls a layer of this class itself: ``max_pooling2d_3``.
        base = re.sub(r"(_\d+)?$", "", self.name, count=1).replace("_", "")
        if not call.gives_name and base != self.kind.lower():
            return False
        plain = {
            k: value for k, value in self.attributes.items() if isinstance(value, _PLAIN_TYPES)
        }
        numbers = [value for value in call.positional if _is_number(value)]
        if not all(_stands_in(value, self.attributes.values()) for value in numbers):
            return False
        values = plain | {"name": self.name}
        if any(values.get(key, value) != value for key, value in call.keywords):
            return False
        return bool(plain) or not call.positional


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _stands_in(value: Any, attributes: Iterable[Any]) -> bool:
    """Tell whether a layer has a number as attribute, alone or as each of a pair: ``kernel_size``."""
    parts = (one if isinstance(one, tuple) and one else (one,) for one in attributes)
    return any(all(_is_number(part) and part == value for part in of) for of in parts)


def model_types() -> tuple[type, ...]:
    """Give the classes of models of each Keras that is loaded."""
    kinds = (getattr(sys.modules.get(name), "Model", None) for name in ("keras", "tf_keras"))
    return tuple(kind for kind in kinds if isinstance(kind, type))


def living_of(*kinds: object) -> list[Any]:
    """Find the objects that live of certain types, of which some may be missing."""
    is_any_there = any(isinstance(kind, type) for kind in kinds)
    return of_types(gc.get_objects() if is_any_there else [], kinds)


def of_types(things: Iterable[object], given: tuple[object, ...]) -> list[Any]:
    """Pick those of some objects that are of certain types, of which some may be missing.

    By type: isinstance would ask proxies of other libraries for their class, which may raise. They may be
    hundreds of thousands, and to look at one at all is what takes time: in one pass, which no Python is run
    for, they are compared with the wanted types and those derived from them.
    """
    things = things if isinstance(things, list) else list(things)
    wanted: set[type] = set()
    kinds = tuple(kind for kind in given if isinstance(kind, type))
    left = list(kinds)
    try:
        while left:
            kind = left.pop()
            left += type.__subclasses__(kind) if kind not in wanted else ()
            wanted.add(kind)
        return list(compress(things, map(wanted.__contains__, map(type, things))))
    except TypeError:  # a class of classes may forbid to hash them
        return [thing for thing in things if issubclass(type(thing), kinds)]


def find_layer_lines(
    ran: Iterable[object], others: Iterable[object] = (), scopes: Collection[str] = ()
) -> dict[str, tuple[str, int]]:
    """Find the line of each layer of the live models among some objects.

    Args:
        ran: Objects among which are the models that are known to have run.
        others: Objects among which may be models that ran unseen, inside of functions traced long ago.
        scopes: The name scopes of the graphs; of the others, only models with a layer in them are looked at.

    Returns:
        (file, line) by the layer's name, of those that could be told. Of two models that name a layer alike
        the one that is known to have run counts; where neither is, and their lines differ, there is none.
    """
    kinds = model_types()
    if not kinds:
        return {}
    executed_models, unsure = (of_types(things, kinds) for things in (ran, others))
    sure = [layers for model in executed_models if (layers := _layers_of(model))][:_MOST_MODELS]
    named = [
        (sum(layer.name in scopes for layer in layers) / len(layers), layers)
        for layers in map(_layers_of, unsure)
        if layers
    ]
    # Those of whose layers all are named first: one called "dense" alone may be any model's.
    named.sort(key=itemgetter(0), reverse=True)
    likely = [layers for share, layers in named if share][:_MOST_MODELS]
    wanted = frozenset(layer.kind for layers in (*sure, *likely) for layer in layers)
    if not wanted:
        return {}
    files = calls_in_files(wanted)
    line_of: dict[str, tuple[str, int]] = {}
    for layers in sure:
        line_of = _lines_of_model(layers, files) | line_of
    guessed: dict[str, set[tuple[str, int]]] = {}
    for layers in likely:
        for name, line in _lines_of_model(layers, files).items():
            guessed.setdefault(name, set()).add(line)
    return {name: lines.pop() for name, lines in guessed.items() if len(lines) == 1} | line_of


def _lines_of_model(
    layers: Sequence[_Layer], files: Sequence[Sequence[Call]]
) -> dict[str, tuple[str, int]]:
    line_of = _match_in_order(layers, files)
    for layer in layers:
        # The only call of all files that gives the layer its name as it stands there.
        named = (call for call in chain(*files) if ("name", layer.name) in call.keywords)
        lines = _lines_for(layer, named)
        if len(lines) != 1 and layer.name not in line_of:
            # The only call of the newest file that can have made the layer.
            lines = next(filter(None, (_lines_for(layer, calls) for calls in files)), set())
        if len(lines) == 1:
            line_of[layer.name] = lines.pop()
    return line_of


def _lines_for(layer: _Layer, calls: Iterable[Call]) -> set[tuple[str, int]]:
    return {(call.file, call.line) for call in calls if layer.may_come_from(call)}


def _layers_of(model: Any) -> list[_Layer]:
    try:
        layers = list(model.layers)[:_MOST_LAYERS_READ]
        described_layers = [
            _Layer(str(layer.name), type(layer).__name__, dict(vars(layer))) for layer in layers
        ]
    except Exception:  # noqa: BLE001 - somebody's model may do anything
        return []
    return [layer for layer in described_layers if layer.kind != "InputLayer"]


def _match_in_order(
    layers: Sequence[_Layer], files: Sequence[Sequence[Call]]
) -> dict[str, tuple[str, int]]:
    """Find a model's layers where calls stand in the same order, in one place of the newest file."""
    for calls in files:
        places = [
            first
            for first in range(len(calls) - len(layers) + 1)
            if all(map(_Layer.may_come_from, layers, calls[first:]))
        ]
        if places:
            pairs = zip(layers, calls[places[0] :], strict=False) if len(places) == 1 else ()
            return {layer.name: (call.file, call.line) for layer, call in pairs}
    return {}
