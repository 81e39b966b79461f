"""Ops to the row of the table of layers that each belongs to, and to the part of the layer's work it is.

What a training step of a model ``net`` with one layer ``dense`` runs, and where it goes:

    op                                          row                  layer part
    Iterator::Root::Map                         input                other
    net/dense/MatMul                            net/dense            forward
    gradient_tape/net/dense/MatMul/MatMul_1     net/dense            backward
    net/dense/checkpoint/MatMul                 net/dense            recomputation
    Adam/update_dense/kernel/ResourceApplyAdam  net/dense            update
    Adam/sub                                    optimizer            update
    mean_squared_error/sub                      loss                 forward
    gradient_tape/mean_squared_error/mul        loss                 backward
    Sum                                         outside the model    other

The first of these rules that fits decides: an op is the input pipeline's; waits for other workers or
replicas, or packs what they exchange, which is no layer's work though its name may say so (outside the
model); inside a layer of a known model; for what the model's graph says (``capture.models.op_order``); the
optimizer's; of the loss; of a metric; inside a name scope that looks like a layer; outside the model.

Where the model was traced while the capture ran, each layer's scopes are known
(``capture.models.model_watch``). Otherwise they follow from the layers' names: Keras 2 enters the scope of a
layer's name again at each call; Keras 3 enters a scope twice a call and TensorFlow gives each a name of its
own, so the layer ``dense`` runs in ``dense_1`` and the layer ``dense_1`` in ``dense_1_2``. The same rule is
followed here, call by call.

Source: Graph.unique_name in tensorflow/python/framework/ops.py (2.21); Layer.__call__ in Keras 3.15, 2.15.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.models.op_order import METRICS as METRICS_PART
from profnb.capture.models.op_order import UPDATE, OpFact
from profnb.core.columns import group
from profnb.subjects.layers.name_scopes import OpScope, layer_scope, parse_scope
from profnb.subjects.ops.op_table import OPTIMIZERS
from profnb.trace.names import (
    copy_direction,
    is_host_collective,
    is_packing,
    packing_scopes,
    without_number,
    without_numbers,
)

Path = tuple[str, ...]

_ENTRIES = 2  # scopes that Keras 3 opens at each call


class LayerPlace(NamedTuple):
    """A layer that a scope belongs to."""

    row: int  # among the layers of all models
    scope: Path  # one per call where its library makes scopes unique
    is_again: bool  # a gradient repeated the layer's call there


class LayerScopes:
    """The layers of some models, matched with the scopes of a trace.

    Attributes:
        layers: The layers of all models.
        alike: Scopes that several models have, with the numbers of those.
    """

    def __init__(self, models: Sequence[ModelFacts], paths: Iterable[Path]) -> None:
        """Match models with the scopes of a trace's ops, each without the op itself."""
        self.layers: list[LayerFacts] = []
        self.models: list[tuple[ModelFacts, range]] = []  # with the rows of their layers
        self.alike: dict[Path, set[int]] = {}
        self.place = cache(self._find)
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
            self.models.append((model, range(first, len(self.layers))))
        self._longest = max(map(len, self._rows), default=0)

    def _find(self, path: Path) -> LayerPlace | None:
        """Find the innermost layer that an op's scopes (its path without itself) lie in, or None."""
        starts = [at for at, part in enumerate(path) if at == 0 or part in self._roots]
        for end in range(len(path), 0, -1):
            for start in starts:
                scope = path[start:end]
                if 0 < len(scope) <= self._longest and scope in self._rows:
                    return LayerPlace(self._rows[scope], scope, scope in self._again)
        return None

    def _match_model(self, model: ModelFacts, first: int, rows: dict[Path, int]) -> None:
        """Find where a model's outermost scope stands, and match what is inside."""
        parts = group((layer.parent, row) for row, layer in enumerate(model.layers))
        starts = [
            (row, (*path, name))
            for path, names in self._inside.items()
            for name, row in _match(model, [0], names).items()
        ]
        self._roots.update(scope[-1] for _, scope in starts)
        if not starts:  # a part of it that ran by itself
            names = self._inside.get((), set())
            for row in parts.get(0, []):
                name = model.layers[row].name
                matched = _match(model, [row], names) if parts.get(row) else {name} & names
                self._roots.update(matched if parts.get(row) else ())
                starts += [(row, (name,)) for name in matched]
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
    plain = {name: by_name[base] for name in names if (base := without_number(name)) in by_name}
    rows = plain | passing | landing
    return {name: rows[name] for name in names if name in rows}


def _names_given(layers: Sequence[tuple[LayerFacts, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """Names that TensorFlow gives to the scopes of layers called in turn: those with ops, and the others."""
    used: dict[str, int] = {}
    landing, passing = dict[str, int](), dict[str, int]()
    for layer, row in layers:
        calls = max(len(layer.input_shapes), 1) if layer.is_shared else 1
        for names in [*[passing] * (_ENTRIES - 1), landing] * calls:
            names.setdefault(_unique(layer.name, used), row)
    return landing, passing


def _unique(name: str, used: dict[str, int]) -> str:
    at = used.get(name, 0)
    used[name] = at + 1
    unique = name
    while at and unique in used:
        unique = f"{name}_{at}"
        at += 1
    used.setdefault(unique, 1)
    return unique


OTHERS = ("loss", "metrics", "optimizer", "input", "outside the model")
LOSS, METRICS, OPTIMIZER, INPUT, OUTSIDE = OTHERS
LAYER_PARTS = ("forward", "backward", "update", "recomputation", "other")
_FORWARD, _BACKWARD, _UPDATE, _RECOMPUTATION, _OTHER = range(5)

_INPUT_TYPE = re.compile(
    r"Dataset|.*Dataset(V\d+)?|(Make|Anonymous|Multi_?Device)?Iterator.*|Optional[A-Z].*|Infeed.*"
)
_INPUT_SCOPE = re.compile(
    r"(Anonymous|MultiDevice)?Iterator[A-Za-z:]*(_\d+)?|Optional[A-Z].*|Infeed.*"
)
_APPLIES = re.compile(r"(Resource)?(Sparse)?Apply[A-Z].*|ResourceApply.*")
_LOSSES = frozenset({
    "binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "categorical_hinge", "circle", "compile_loss", "compute_loss",
    "cosine_similarity", "ctc", "dice", "hinge", "huber", "huber_loss", "kl_divergence",
    "kullback_leibler_divergence", "log_cosh", "logcosh", "loss", "loss_fn", "losses",
    "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_error",
    "mean_squared_logarithmic_error", "poisson", "softmax_cross_entropy_loss",
    "sparse_categorical_crossentropy", "squared_hinge", "tversky", "weighted_loss",
})  # fmt: skip
_REGULARIZERS = ("Regularizer", "ActivityRegularizer")


class OpPlace(NamedTuple):
    """The row of ``LayerRows``, and the part of its work (``LAYER_PARTS``), that an op belongs to."""

    row: int
    layer_part: int


class LayerRows:
    """The rows that ops are handed out to: layers of models, then ``OTHERS``, then scopes like layers.

    Attributes:
        models: The models that rows are taken from, and the rows of each.
        scopes: Paths of the scopes that look like layers, as they were met.
        layer_places: The scopes of layers that ops were placed in.
    """

    def __init__(
        self, models: Sequence[ModelFacts], op_names: Sequence[str], phase: str = "",
        called: Sequence[OpScope] = (),
    ) -> None:  # fmt: skip
        """Match the models with the ops' scopes.

        ``called`` are scopes that ops were called in whose names do not tell; ``phase`` is the work of the
        steps: "train", "test", "predict".
        """
        self._parsed = {name: parse_scope(name) for name in op_names}
        paths = {scope.path[:-1] for scope in self._parsed.values()} | {s.path for s in called}
        self._layers = LayerScopes(models, paths)
        self.layers = self._layers.layers
        self.models = self._layers.models
        self.scopes: dict[tuple[str, ...], int] = {}
        self.layer_places: set[LayerPlace] = set()
        names = {"/".join(scope.path) for scope in self._parsed.values()}
        self._packing = packing_scopes(op_names)
        ran = {place.row for path in paths if (place := self._layers.place(path))}
        self._graph_facts = self._find_graph_facts(phase, names, ran)
        self._losses = _LOSSES.union(*(map(str.lower, model.losses) for model in models))
        self._optimizers = OPTIMIZERS.union(
            without_numbers(model.optimizer.lower()) for model in models if model.optimizer
        )
        self._by_name: dict[str, int] = {}
        for row, layer in enumerate(self.layers):
            self._by_name[layer.name] = -1 if layer.name in self._by_name else row

    @property
    def alike(self) -> dict[str, int]:
        """Number of models that have scopes in common, which nothing can tell apart, by their name."""
        places = (self._layers.alike.get(place.scope, ()) for place in self.layer_places)
        sharing = {number for numbers in places if len(numbers) > 1 for number in numbers}
        named = Counter(self.models[number][0].name for number in sorted(sharing))
        return {name: often for name, often in named.items() if often > 1}

    def __len__(self) -> int:
        return len(self.layers) + len(OTHERS) + len(self.scopes)

    @property
    def names(self) -> list[str]:
        """The name of each row: a layer's path, one of ``OTHERS``, a scope."""
        layers = [layer.path for layer in self.layers]
        return [*layers, *OTHERS, *map("/".join, self.scopes)]

    def other(self, name: str) -> int:
        """The row of one of ``OTHERS``."""
        return len(self.layers) + OTHERS.index(name)

    def head_of(self, name: str) -> str:
        """The outermost scope of an op, or ""."""
        if name.startswith("Iterator::"):
            return "Iterator::"
        scope = self._parsed.get(name)
        return f"{scope.path[0]}/" if scope is not None and len(scope.path) > 1 else ""

    def place(
        self, name: str, op_type: str, *, is_input: bool = False, called: OpScope | None = None
    ) -> OpPlace:
        """Find the row and the part of the work that an op belongs to.

        Args:
            name: Its name.
            op_type: Its type; "" if unknown.
            is_input: True if a thread of the input pipeline ran it.
            called: The scope that it was called in, where its name does not tell.
        """
        scope = self._parsed.get(name)
        if called is not None:
            scope = replace(called, path=(*called.path, name))
        elif scope is None:
            scope = self._parsed[name] = parse_scope(name)
        if is_input or _is_input(name, op_type, scope):
            return OpPlace(self.other(INPUT), _OTHER)
        if is_packing(name, op_type, self._packing) or is_host_collective(f"{name}:{op_type}"):
            return OpPlace(self.other(OUTSIDE), _OTHER)
        if any(part in _REGULARIZERS for part in scope.path):
            return OpPlace(self.other(LOSS), _direction(scope))
        place = self._layers.place(scope.path[:-1])
        if place is not None:
            self.layer_places.add(place)
            is_again = scope.is_again or place.is_again
            return OpPlace(place.row, _part_in_layer(scope, is_again=is_again))
        fact = self._graph_facts.get("/".join(scope.path))
        return self._place_outside(op_type, scope) if fact is None else self._place_by_graph(*fact)

    def _place_by_graph(self, first: int, fact: OpFact) -> OpPlace:
        """Follow what an op's graph says that it is for; ``first`` is its model's first row."""
        if fact.part == UPDATE:
            return OpPlace(first + fact.row, _UPDATE)
        if fact.part == METRICS_PART:
            return OpPlace(self.other(METRICS), _OTHER)
        made_in = parse_scope(f"{fact.scope}/op").path[:-1] if fact.scope else ()
        place = self._layers.place(made_in)
        return OpPlace(self.other(OUTSIDE) if place is None else place.row, _BACKWARD)

    def _find_graph_facts(
        self, phase: str, names: set[str], ran: set[int]
    ) -> dict[str, tuple[int, OpFact]]:
        """Graphs' facts about ops by their names, with the first row of the model.

        Only a model of which a layer ran says anything, and of several graphs of its step the one of whose
        ops most have run. Two models' optimizers name their ops alike: of such an op nothing is said.
        """
        facts: dict[str, tuple[int, OpFact]] = {}
        disputed: set[str] = set()
        for model, rows in self.models:
            if ran.isdisjoint(rows):
                continue
            graphs = model.ops.get(phase, model.ops.get("", ()))
            shares = [len(names & ops.keys()) / (len(ops) or 1) for ops in graphs]
            graph = graphs[shares.index(max(shares))] if shares else {}
            for name, fact in graph.items():
                other = facts.setdefault(name, (rows.start, fact))
                is_same = other == (rows.start, fact) or fact.part == other[1].part == METRICS_PART
                disputed.update(() if is_same else (name,))
        return {name: fact for name, fact in facts.items() if name not in disputed}

    def _place_outside(self, op_type: str, scope: OpScope) -> OpPlace:
        first = without_numbers(scope.path[0].lower()) if scope.path else ""
        heads = {without_number(part.lower()) for part in scope.path[:2]}
        if first in self._optimizers or "training" in heads or _APPLIES.fullmatch(op_type):
            return OpPlace(self._updated(scope), _UPDATE)
        if len(scope.path) > 1 and (heads & self._losses or first.endswith("_loss")):
            return OpPlace(self.other(LOSS), _direction(scope))
        if first == "metrics" and len(scope.path) > 1:
            return OpPlace(self.other(METRICS), _OTHER)
        path = layer_scope(scope)
        if path:
            row = self.scopes.setdefault(path, len(self))
            return OpPlace(row, _part_in_layer(scope, is_again=scope.is_again))
        return OpPlace(self.other(OUTSIDE), _BACKWARD if scope.is_backward else _OTHER)

    def _updated(self, scope: OpScope) -> int:
        """The layer whose weights an op updates, where its name says: ``Adam/update_dense/kernel/...``."""
        for at, part in enumerate(scope.path):
            if part.startswith("update_") and not part[7:].isdigit():
                for name in reversed((part[7:], *scope.path[at + 1 : -1])):
                    if self._by_name.get(name, -1) >= 0:
                        return self._by_name[name]
        return self.other(OPTIMIZER)


def _direction(scope: OpScope) -> int:
    return _BACKWARD if scope.is_backward else _FORWARD


def _part_in_layer(scope: OpScope, *, is_again: bool) -> int:
    return _RECOMPUTATION if is_again and not scope.is_backward else _direction(scope)


def _is_input(name: str, op_type: str, scope: OpScope) -> bool:
    if name.startswith("Iterator::") or copy_direction(name) == "host to device":
        return True
    outermost = scope.path[0] if scope.path else ""
    return bool(_INPUT_TYPE.fullmatch(op_type) or _INPUT_SCOPE.fullmatch(outermost))
