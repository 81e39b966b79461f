"""Live Keras layers to plain data: what they are called, what they hold, and what they compute with.

Works on Keras 3 and Keras 2 without importing either, reads only what is there, and never builds, traces or
keeps a model. Attributes that Keras keeps for itself are read with care: where one is missing, so is the
fact.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from profnb.capture.models.layer_graph import is_called_again, with_gradients
from profnb.capture.models.layer_shapes import (
    Shape,
    inherits,
    input_shapes,
    kernel_shapes,
    output_shape,
    settings_of,
)
from profnb.capture.models.op_order import OpFact, describe_ops, function_graphs, handle_of
from profnb.capture.seams import COMPILED_LOSS, FLATTEN_LAYERS, LOSSES, OPEN_NAME_SCOPE
from profnb.capture.signals import signal_of

T = TypeVar("T")

_MOST_LAYERS = 20_000
_DEEPEST = 30
_LIBRARIES = ("keras.", "tf_keras.")
# Layers whose parts run in one piece, under one name: a recurrent layer and its cell, for instance.
_IN_ONE_PIECE = ("RNN", "TimeDistributed")
_NO_LAYERS = ("Metric", "Loss", "InputSpec")


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One layer of a model, at one place in it.

    Attributes:
        path: Names from the model down, ``model/encoder/dense``.
        name: Its own name.
        kind: Its class.
        is_library: Whether the class is Keras' own, so that its kind tells what it computes.
        parent: Row of the layer it is part of; -1 for the model.
        parameters: Numbers in its own weights, those of its parts left out; each weight counts at the first
            layer that holds it, so the rows of a model sum to its ``count_params()``. -1 if not built.
        output_shape: The batch dimension is None; None where it is not known.
        input_shapes: One per call in the model's graph of layers; empty where there is none.
        is_shared: Whether it is called or held at several places.
        is_trainable: Whether it has weights of its own that are trained.
        needs_input_gradient: Whether something before it is trained.
        kernels: Shapes of what it multiplies with.
        numbers: Settings that matter for its operations: heads and sizes of attention, the sequence
            lengths, an ``equation``.
    """

    path: str
    name: str
    kind: str
    is_library: bool
    parent: int
    parameters: int
    output_shape: Shape | None = None
    input_shapes: tuple[Shape, ...] = ()
    is_shared: bool = False
    is_trainable: bool = False
    needs_input_gradient: bool = True
    kernels: tuple[Shape, ...] = ()
    numbers: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model.

    Attributes:
        name: Its name.
        layers: The model itself, then its layers in order, parts after what they are part of.
        is_uniquified: Whether its library makes every name scope unique (Keras 3) or enters the same one
            again (Keras 2).
        has_keras_step: Whether its training step and loss are Keras' own, so that ops without a name scope
            are those of metrics.
        losses: Name scopes of its losses.
        optimizer: Name scope of its optimizer; "" without one.
        scopes: Name scopes that were seen to belong to a layer while the model was traced: to its row.
        again: Those of the scopes in which a gradient repeated what the way forward did.
        calls: How often a traced run calls a layer, by its row; empty if not seen.
        ops: What ops are for whose names do not tell, by phase: by name, for each graph of its step. "" is
            any other function.
        is_given: Whether somebody says that this is the model that ran.
        has_own_scopes: Whether the capture itself wrote the scopes (on PyTorch): their parts are names of
            layers, and nothing else.
    """

    name: str
    layers: tuple[LayerFacts, ...]
    is_uniquified: bool
    has_keras_step: bool = False
    losses: tuple[str, ...] = ()
    optimizer: str = ""
    scopes: Mapping[str, int] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    calls: Mapping[int, int] = field(default_factory=dict)
    ops: Mapping[str, Sequence[Mapping[str, OpFact]]] = field(default_factory=dict)
    is_given: bool = False
    has_own_scopes: bool = False


@dataclass(frozen=True, slots=True)
class TracedLayer:
    """What was seen of a layer while functions were traced.

    Attributes:
        scopes: Name scopes that are its own.
        again: Those in which a gradient repeated its call.
        calls: How often a graph calls it, repetitions left out.
        graph: The last graph that called it, if it lives.
        has_own_scopes: See ``ModelFacts``.
    """

    scopes: Collection[str]
    again: Collection[str]
    calls: int
    graph: Any
    has_own_scopes: bool = False


class _Walk:
    """A walk over a model's layers."""

    def __init__(self) -> None:
        self.rows: list[LayerFacts] = []
        self.row_of: dict[int, int] = {}  # by id of the layer, its first place
        self.row_of_handle: dict[int, int] = {}  # by id of the weight's resource
        self._counted: set[int] = set()  # ids of weights
        self._shared: set[int] = set()

    def visit(self, layer: Any, parent: int, path: str, depth: int, needs_gradient: bool) -> None:
        """Add a layer and its parts."""
        row, identity = len(self.rows), id(layer)
        if row >= _MOST_LAYERS or depth > _DEEPEST:
            return
        if identity in self.row_of:
            self._shared.update((row, self.row_of[identity]))
        self.row_of.setdefault(identity, row)
        name = str(layer.name)
        path = f"{path}/{name}" if path else name
        parts = [] if _ask(_is_in_one_piece, layer, otherwise=False) else parts_of(layer)
        nothing: tuple[bool, list[Any]] = False, []
        is_built, weights = _ask(partial(_own_weights, parts=parts), layer, nothing)
        fresh = [weight for weight in weights if id(weight) not in self._counted]
        self._counted.update(map(id, fresh))
        self.row_of_handle |= {id(_ask(handle_of, weight, None)): row for weight in fresh}
        trained = bool(_ask(attrgetter("trainable"), layer, otherwise=True)) and any(
            bool(getattr(weight, "trainable", False)) for weight in weights
        )
        parameters = sum(_size(weight) for weight in fresh) if is_built else -1
        facts = LayerFacts(
            path, name, type(layer).__name__, _is_library(layer), parent, parameters,
            is_trainable=trained, needs_input_gradient=needs_gradient,
        )  # fmt: skip
        self.rows.append(_with_shapes(facts, layer))
        for part, needs in _ask(
            partial(with_gradients, parts=parts, needs_gradient=needs_gradient),
            layer,
            [(part, True) for part in parts],
        ):
            self.visit(part, row, path, depth + 1, needs)

    def finished(self) -> tuple[LayerFacts, ...]:
        """The rows, with what only the whole walk tells."""
        return tuple(
            replace(facts, is_shared=True) if row in self._shared else facts
            for row, facts in enumerate(self.rows)
        )


def _is_library(layer: Any) -> bool:
    return type(layer).__module__.startswith(_LIBRARIES)


def _with_shapes(facts: LayerFacts, layer: Any) -> LayerFacts:
    """Add what a layer tells of its shapes and settings."""
    none: tuple[Shape, ...] = ()
    shapes = _ask(input_shapes, layer, none)
    output = _ask(partial(output_shape, is_library=facts.is_library), layer, None)
    is_shared = _ask(partial(is_called_again, shapes=shapes), layer, otherwise=False)
    if not facts.is_library:
        return replace(facts, input_shapes=shapes, output_shape=output, is_shared=is_shared)
    return replace(
        facts,
        input_shapes=shapes,
        output_shape=output,
        is_shared=is_shared,
        kernels=_ask(kernel_shapes, layer, none),
        numbers=_ask(settings_of, layer, {}),
    )


def _own_weights(layer: Any, parts: list[Any]) -> tuple[bool, list[Any]]:
    """Whether a layer is built, and the weights that none of its parts holds."""
    theirs = {id(weight) for part in parts for weight in part.weights}
    weights = [weight for weight in layer.weights if id(weight) not in theirs]
    return bool(getattr(layer, "built", True)), weights


def describe_model(model: Any, traced: Mapping[int, TracedLayer] | None = None) -> ModelFacts:
    """Turn a model into plain data.

    Args:
        model: A Keras model, or any layer.
        traced: What was seen of layers while they were traced, by id.
    """
    walk = _Walk()
    walk.visit(model, -1, "", 0, needs_gradient=False)
    calls = [(walk.row_of[i], seen) for i, seen in (traced or {}).items() if i in walk.row_of]
    graph = next((seen.graph for row, seen in calls if row == 0), None)
    has_keras_step = bool(_ask(_has_keras_step, model, otherwise=False))
    no_graphs: dict[str, list[Any]] = {}
    graphs = _ask(function_graphs, model, no_graphs)
    graphs |= {"": [graph]} if graph is not None else {}
    walk.row_of_handle.pop(id(None), None)
    describe = partial(describe_ops, row_of_handle=walk.row_of_handle)
    no_ops: dict[str, OpFact] = {}
    return ModelFacts(
        name=str(model.name),
        layers=walk.finished(),
        is_uniquified=OPEN_NAME_SCOPE.of(model) is not None,
        has_keras_step=has_keras_step,
        losses=_loss_names(model),
        optimizer=str(getattr(getattr(model, "optimizer", None), "name", "") or ""),
        scopes={scope: row for row, seen in calls for scope in seen.scopes},
        again=frozenset().union(*(seen.again for _, seen in calls)),
        calls={row: seen.calls for row, seen in calls if seen.calls},
        has_own_scopes=any(seen.has_own_scopes for _, seen in calls),
        ops={
            phase: [_ask(partial(describe, has_keras_step=is_keras), of, no_ops) for of in of_phase]
            for phase, of_phase in graphs.items()
            for is_keras in (has_keras_step and phase != "",)  # not in a loop of the user's own
        },
    )


def _has_keras_step(model: Any) -> bool:
    """Whether nobody has put a training step or loss of their own in place of Keras'."""
    if getattr(model, "optimizer", None) is None:
        return False
    if any(getattr(weight, "regularizer", None) is not None for weight in model.weights):
        return False  # Keras 3 works out regularization outside of any scope
    return all(
        getattr(getattr(type(model), name, None), "__module__", "keras.").startswith(_LIBRARIES)
        for name in ("train_step", "compute_loss", "compute_metrics", "test_step")
    )


def _loss_names(model: Any) -> tuple[str, ...]:
    """Name scopes of Keras 2's losses; Keras 3 puts all under ``compile_loss``."""
    losses = LOSSES.of(COMPILED_LOSS.of(model))
    flat: list[Any] = []
    waiting = [losses]
    while waiting and len(flat) < 100:
        at = waiting.pop()
        if isinstance(at, dict):
            waiting.extend(at.values())
        elif isinstance(at, list | tuple):
            waiting.extend(at)
        elif at is not None:
            flat.append(at)
    names = [getattr(loss, "name", None) for loss in flat]
    return tuple(name for name in names if isinstance(name, str) and name)


def parts_of(layer: Any) -> list[Any]:
    """The layers right inside a layer, each once."""

    def read(layer: Any) -> list[Any]:
        return list(FLATTEN_LAYERS.of(layer)(include_self=False, recursive=False))

    none: list[Any] = []
    parts = {id(part): part for part in _ask(read, layer, none)}
    return [part for part in parts.values() if not inherits(part, _NO_LAYERS)]


def _is_in_one_piece(layer: Any) -> bool:
    if not inherits(layer, _IN_ONE_PIECE):
        return False
    return all(not parts_of(part) or inherits(layer, ("RNN",)) for part in parts_of(layer))


def _ask(read: Callable[[Any], T], layer: Any, otherwise: T) -> T:
    """What a layer tells, or something else where it cannot be asked."""
    try:
        return read(layer)
    except Exception as error:  # attributes of somebody's layer may do anything
        if signal_of(error):
            raise
        return otherwise


def _size(weight: Any) -> int:
    size = 1
    for length in weight.shape:
        size *= int(length)
    return size
