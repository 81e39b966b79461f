"""Name scopes to the live model's layers.

Where the model was traced while the capture ran, each layer's scopes are known
(``capture.models.model_watch``). Otherwise they follow from the layers' names: Keras 2 enters the scope of a
layer's name again at each call; Keras 3 enters a scope twice a call and TensorFlow gives each a name of its
own, so the layer ``dense`` runs in ``dense_1`` and the layer ``dense_1`` in ``dense_1_2``. The same rule is
followed here, call by call.

Source: Graph.unique_name in tensorflow/python/framework/ops.py (2.21); Layer.__call__ in Keras 3.15, 2.15.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.subjects.layers.name_scopes import parse_scope
from profnb.trace.names import without_number

Path = tuple[str, ...]

_ENTRIES = 2  # scopes that Keras 3 opens at each call


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """A layer that a scope belongs to.

    Attributes:
        row: Row among the layers of all models.
        scope: The scope itself, one per call where its library makes scopes unique.
        is_again: True if a gradient repeated the layer's call there.
    """

    row: int
    scope: Path
    is_again: bool


class LayerScopes:
    """The layers of some models, matched with the scopes of a trace.

    Attributes:
        layers: The layers of all models.
        alike: Scopes that several models have, with the numbers of those.
    """

    def __init__(self, models: Sequence[ModelFacts], paths: Iterable[Path]) -> None:
        """Match.

        Args:
            models: The models.
            paths: The scopes of a trace's ops, each without the op itself.
        """
        self.layers: list[LayerFacts] = []
        self.alike: dict[Path, set[int]] = {}
        self._place_of: dict[Path, LayerPlace | None] = {}
        self._rows: dict[Path, int] = {}  # the layer of each scope
        self._roots: set[str] = set()  # first scopes of models, which may stand anywhere in a path
        self._again: set[Path] = set()  # scopes in which gradients repeated calls
        self._inside: dict[Path, set[str]] = {}
        for path in set(paths):
            for end in range(len(path)):
                self._inside.setdefault(path[:end], set()).add(path[end])
        seen = [
            {_path_of(scope, model): row for scope, row in model.scopes.items()} for model in models
        ]
        for number, model in enumerate(models):
            first = len(self.layers)
            traced = _without_others(seen, number)
            self._again.update(_path_of(scope, model) for scope in model.again)
            matched = {scope: first + row for scope, row in traced.items() if scope}
            self._roots.update(scope[-1] for scope, row in traced.items() if scope and row == 0)
            if seen[number]:
                self._rows |= matched
            else:
                self._match_model(model, first, matched)
                self._rows = matched | self._rows
            for scope in matched:
                self.alike.setdefault(scope, set()).add(number)
            self.layers.extend(model.layers)
        self._longest = max(map(len, self._rows), default=0)

    def place(self, path: Path) -> LayerPlace | None:
        """Find the innermost layer that an op's scopes (its path without itself) lie in, or None."""
        if path not in self._place_of:
            self._place_of[path] = self._find(path)
        return self._place_of[path]

    def _find(self, path: Path) -> LayerPlace | None:
        starts = [at for at, part in enumerate(path) if at == 0 or part in self._roots]
        for end in range(len(path), 0, -1):
            for start in starts:
                scope = path[start:end]
                row = self._rows.get(scope) if 0 < len(scope) <= self._longest else None
                if row is not None:
                    return LayerPlace(row, scope, scope in self._again)
        return None

    def _match_model(self, model: ModelFacts, first: int, rows: dict[Path, int]) -> None:
        """Find where a model's outermost scope stands, and match what is inside."""
        parts: dict[int, list[int]] = {}
        for row, layer in enumerate(model.layers):
            parts.setdefault(layer.parent, []).append(row)
        starts = [
            (row, (*path, name))
            for path, names in self._inside.items()
            for name, row in _match(model, [0], names).items()
        ]
        self._roots.update(scope[-1] for _, scope in starts)
        if not starts:  # a part of it that ran by itself
            names = self._inside.get((), set())
            for row in parts.get(0, []):
                if parts.get(row):
                    matched = _match(model, [row], names)
                    self._roots.update(matched)
                    starts += [(row, (name,)) for name in matched]
                elif model.layers[row].name in names:
                    starts.append((row, (model.layers[row].name,)))
        waiting = starts[::-1]
        while waiting:
            row, scope = waiting.pop()
            rows.setdefault(scope, first + row)
            inside = _match(model, parts.get(row, []), self._inside.get(scope, set()))
            waiting.extend((part, (*scope, name)) for name, part in inside.items())


def _without_others(seen: Sequence[dict[Path, int]], number: int) -> dict[Path, int]:
    """The scopes of a model without those in which another model called a layer that both have."""

    def is_inside(scope: Path, model: dict[Path, int]) -> bool:
        return any(model.get(scope[:end]) == 0 for end in range(1, len(scope) + 1))

    others = [model for at, model in enumerate(seen) if at != number]
    return {
        scope: row
        for scope, row in seen[number].items()
        if is_inside(scope, seen[number])
        or not any(scope in model and is_inside(scope, model) for model in others)
    }


def _path_of(scope: str, model: ModelFacts) -> Path:
    if model.has_own_scopes:
        return tuple(scope.split("/"))
    return parse_scope(f"{scope}/op").path[:-1]


def _match(model: ModelFacts, wanted: Sequence[int], names: set[str]) -> dict[str, int]:
    """The layer of each scope's name, among layers that are called from one place."""
    if not names or not wanted:
        return {}
    layers = model.layers
    if not model.is_uniquified:
        exact = {layers[row].name: row for row in wanted}
        return {name: exact[name] for name in names if name in exact}
    landing, passing = _names_given([(layers[row], row) for row in wanted])
    by_name = {layers[row].name: row for row in reversed(wanted)}
    matched = {}
    for name in names:
        row = landing.get(name, passing.get(name, by_name.get(without_number(name))))
        if row is not None:
            matched[name] = row
    return matched


def _names_given(layers: Sequence[tuple[LayerFacts, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """Names that TensorFlow gives to the scopes of layers called in turn: those with ops, and the others."""
    used: dict[str, int] = {}
    landing: dict[str, int] = {}
    passing: dict[str, int] = {}
    for layer, row in layers:
        calls = max(len(layer.input_shapes), 1) if layer.is_shared else 1
        for entry in range(calls * _ENTRIES):
            name = _unique(layer.name, used)
            is_last = entry % _ENTRIES == _ENTRIES - 1
            (landing if is_last else passing).setdefault(name, row)
    return landing, passing


def _unique(name: str, used: dict[str, int]) -> str:
    at = used.get(name, 0)
    used[name] = at + 1
    given = name
    while at and given in used:
        given = f"{name}_{at}"
        at += 1
    if given != name:
        used[given] = 1
    return given
