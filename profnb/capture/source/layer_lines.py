"""Keras layers that were made before the capture to the lines of the cells that made them.

A layer does not remember its line. But the text of the cells and modules is at hand, and so is the model: a
call of ``Dense(64, name="head")`` in it can only have made a layer of that class with these arguments. Layers
of a model are looked for one after the other as they stand in it, then one by one. A layer that two calls may
have made has no line. Of models only those are looked at that ran, or one of whose layers a graph names: a
long session leaves many others alive. Nothing is run: of layers only plain attributes are read.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import Any

from profnb.capture.source.layer_calls import Call, calls_in_files

_MOST_MODELS, _MOST_LAYERS = 200, 600
_PLAIN = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    kind: str
    attributes: Mapping[str, Any]

    @property
    def _is_named_by_keras(self) -> bool:
        """Whether the name is what Keras calls a layer of this class: ``max_pooling2d_3``."""
        return re.sub(r"(_\d+)?$", "", self.name, count=1).replace("_", "") == self.kind.lower()

    def may_come_from(self, call: Call) -> bool:
        """Whether a call can have made this layer."""
        if call.name != self.kind or not (call.gives_name or self._is_named_by_keras):
            return False
        attributes = self.attributes
        plain = [value for value in attributes.values() if isinstance(value, _PLAIN)]
        if any(
            _is_number(value) and not _stands_in(value, attributes) for value in call.positional
        ):
            return False
        for key, value in call.keywords:
            if key == "name" and value != self.name:
                return False
            if isinstance(attributes.get(key), _PLAIN) and attributes[key] != value:
                return False
        return bool(plain) or not call.positional


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _stands_in(value: Any, attributes: Mapping[str, Any]) -> bool:
    """Whether a layer has a number as attribute, alone or as each of a pair: ``kernel_size``."""
    for attribute in attributes.values():
        if _is_number(attribute) and attribute == value:
            return True
        if (
            isinstance(attribute, tuple)
            and attribute
            and all(_is_number(part) and part == value for part in attribute)
        ):
            return True
    return False


def model_types() -> tuple[type, ...]:
    """What the models of each Keras that is loaded are."""
    model_classes = (
        getattr(sys.modules.get(name), "Model", None) for name in ("keras", "tf_keras")
    )
    return tuple(kind for kind in model_classes if isinstance(kind, type))


def of_types(things: Iterable[object], kinds: tuple[type, ...]) -> list[Any]:
    """Those of some objects that are of certain types.

    By type: isinstance would ask proxies of other libraries for their class, which may raise. They may be
    hundreds of thousands, and to look at one at all is what takes time: in one pass, which no Python is run
    for, they are compared with the wanted types and those derived from them.
    """
    things = things if isinstance(things, list) else list(things)
    try:
        wanted = _with_derived(kinds)
        return list(compress(things, map(wanted.__contains__, map(type, things))))
    except TypeError:  # a class of classes may forbid to hash them
        return _of_types_one_by_one(things, kinds)


def _with_derived(kinds: Iterable[type]) -> set[type]:
    """Types with all that are derived from them and alive."""
    all_kinds: set[type] = set()
    left = list(kinds)
    while left:
        kind = left.pop()
        if kind not in all_kinds:
            all_kinds.add(kind)
            left += type.__subclasses__(kind)
    return all_kinds


def _of_types_one_by_one(things: Iterable[object], kinds: tuple[type, ...]) -> list[Any]:
    is_wanted: dict[type, bool] = {}
    instances = []
    for thing in things:
        kind = type(thing)
        try:
            wanted = is_wanted[kind]
        except KeyError:
            wanted = is_wanted[kind] = issubclass(kind, kinds)
        except TypeError:  # a class of classes may forbid to hash them
            wanted = issubclass(kind, kinds)
        if wanted:
            instances.append(thing)
    return instances


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
    named = {layer.name: line for layer in layers if (line := _line_of_name(layer, files))}
    line_of = (_match_in_order(layers, files) or {}) | named
    for layer in layers:
        line = None if layer.name in line_of else _only_line(layer, files)
        if line is not None:
            line_of[layer.name] = line
    return line_of


def _layers_of(model: Any) -> list[_Layer]:
    try:
        layers = list(model.layers)[:_MOST_LAYERS]
        described_layers = [
            _Layer(str(layer.name), type(layer).__name__, dict(vars(layer))) for layer in layers
        ]
    except Exception:  # noqa: BLE001 - somebody's model may do anything
        return []
    return [layer for layer in described_layers if layer.kind != "InputLayer"]


def _line_of_name(layer: _Layer, files: Sequence[Sequence[Call]]) -> tuple[str, int] | None:
    """The line of the only call of all files that gives the layer its name as it stands there."""
    calls = (call for calls in files for call in calls if ("name", layer.name) in call.keywords)
    lines = {(call.file, call.line) for call in calls if layer.may_come_from(call)}
    return lines.pop() if len(lines) == 1 else None


def _match_in_order(
    layers: Sequence[_Layer], files: Sequence[Sequence[Call]]
) -> dict[str, tuple[str, int]] | None:
    """The lines of a model's layers where calls stand in the same order, in one place of the newest file."""
    for calls in files:
        places = [
            first
            for first in range(len(calls) - len(layers) + 1)
            if all(map(_Layer.may_come_from, layers, calls[first:]))
        ]
        if len(places) == 1:
            made = calls[places[0] :]
            pairs = zip(layers, made, strict=False)
            return {layer.name: (call.file, call.line) for layer, call in pairs}
        if places:
            return None
    return None


def _only_line(layer: _Layer, files: Sequence[Sequence[Call]]) -> tuple[str, int] | None:
    """The line of the only call of the newest file that can have made the layer."""
    for calls in files:
        lines = {(call.file, call.line) for call in calls if layer.may_come_from(call)}
        if lines:
            return next(iter(lines)) if len(lines) == 1 else None
    return None
