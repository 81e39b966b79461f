"""The Keras models that ran, or that live in a namespace, as plain data.

Which models run is seen where they are called or given to ``fit`` and the like. While a function is traced,
each call of a layer also tells which name scopes of the graph are the layer's: those that its name would
have been given before the call and would no longer be given after it. Keras 3 makes every scope unique, so
from names alone ``dense_1`` may be the layer ``dense`` or ``dense_1``.

Models are held by weak references and described when the capture ends.
"""

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.hooks import Library
from profnb.capture.models.layer_facts import ModelFacts, TracedLayer, describe_model
from profnb.capture.seams import (
    CALLBACK_MODEL,
    DEFAULT_GRAPH,
    EXECUTING_EAGERLY,
    FLATTEN_LAYERS,
    GRAPH_NAME,
    GRAPH_OPERATIONS,
    LAYER_CALL,
    MODEL,
    ON_BATCH,
    UNIQUE_NAME,
)
from profnb.capture.signals import OwnFaults, signal_of

_MOST_MODELS, _MOST_SCOPES = 50, 100_000
_LIBRARIES = ("keras", "tf_keras")
# Graphs in which Keras only works out shapes; nothing in them ever runs.
_SCRATCH = ("scratch_graph", "keras_graph")
_TAPE = "gradient_tape/"  # the name scope of gradients


class _Seen:
    """A layer that was called while a graph was built."""

    def __init__(self, layer: Any) -> None:
        self.layer = weakref.ref(layer)
        self.scopes: set[str] = set()
        self.again: set[str] = set()
        self.calls = 0
        self.in_graph = 0
        self.was_inside = self.was_outside = False  # of calls of other layers
        self.has_own_scopes = False  # written by us
        self._graph: Any = None

    @property
    def graph(self) -> Any:
        """The graph that it was called in last; None if that is gone."""
        return None if self._graph is None else self._graph()

    def called(self, graph: Any, *, is_inside: bool) -> None:
        """Count a call that is no repetition."""
        self.in_graph = self.in_graph + 1 if self.graph is graph else 1
        self._graph = weakref.ref(graph)
        self.calls = max(self.calls, self.in_graph)
        self.was_inside |= is_inside
        self.was_outside |= not is_inside


class ModelWatch:
    """Sees models being called and traced, on the thread that makes it."""

    def __init__(self) -> None:
        """Nothing has been seen."""
        self._models: dict[int, Any] = {}
        self._seen: dict[int, _Seen] = {}
        self._facts: dict[int, ModelFacts] = {}
        self._gone: list[ModelFacts] = []  # of models that live no more, whose ids others may have
        self._final: set[int] = set()  # ids of models that were described after a run
        self._open: list[tuple[int, Any, str, bool]] = []
        self._model_types: tuple[type, ...] = ()
        self._thread = threading.get_ident()
        self._scopes_left = _MOST_SCOPES

    @contextmanager
    def watch_calls(self, keras: Library) -> Iterator[None]:
        """See the calls of layers and models inside the block."""
        model = keras.take(MODEL)
        self._model_types += (model,) if isinstance(model, type) else ()
        with ExitStack() as stack:
            if sys.modules.get("tensorflow") is not None:
                hooks = {"before": self._call_began(), "after": self._call_ended}
                stack.enter_context(keras.watch(LAYER_CALL, **hooks))
            for phase in ON_BATCH:
                stack.enter_context(keras.watch(ON_BATCH[phase], before=self._see))
            yield

    def _see(self, model: Any, *_: object, **__: object) -> None:
        if id(model) not in self._models and len(self._models) < _MOST_MODELS:
            identity = id(model)
            try:
                reference = weakref.ref(model, lambda _: self._died(identity))
            except TypeError:  # somebody's __slots__
                return
            self._models[identity] = reference

    def _died(self, identity: int) -> None:
        self._models.pop(identity, None)
        self._final.discard(identity)
        facts = self._facts.pop(identity, None)
        if facts is not None:
            self._gone.append(facts)

    def run_began(self, _: str, callbacks: Any) -> None:
        """A run of Keras' begins, with callbacks that know the model."""
        model = CALLBACK_MODEL.of(callbacks)
        if model is not None:
            self._see(model)

    def run_ended(self, _: str, callbacks: Any) -> None:
        """It ended."""
        model = CALLBACK_MODEL.of(callbacks)
        if model is not None:
            self._keep(model, is_final=True)

    def _keep(self, model: Any, *, is_final: bool = False) -> None:
        """Describe a model now: it may be gone when the capture ends."""
        described = self._final if is_final else self._facts
        if id(model) not in described and len(self._facts) + len(self._gone) < _MOST_MODELS:
            facts = describe_models([model], self._traced_layers())
            if facts:
                self._facts[id(model)] = facts[0]
                self._final.update([id(model)] if is_final else [])

    def _traced_layers(self) -> dict[int, TracedLayer]:
        """What was seen of the layers that live, by id."""
        return {
            identity: TracedLayer(
                seen.scopes,
                seen.again,
                seen.calls,
                None if seen.has_own_scopes else seen.graph,
                seen.has_own_scopes,
            )
            for identity, seen in self._seen.items()
            if seen.layer() is not None
        }

    def _call_began(self) -> Any:
        is_eager, graph_now = EXECUTING_EAGERLY.find(), DEFAULT_GRAPH.find()

        def began(layer: Any, *_: object, **__: object) -> None:
            if threading.get_ident() != self._thread:
                return
            if isinstance(layer, self._model_types) and not self._open:
                self._see(layer)
            if is_eager is None or graph_now is None or is_eager():
                return
            try:
                graph = graph_now()
                if str(GRAPH_NAME.of(graph, "")).startswith(_SCRATCH):
                    return
                scope = UNIQUE_NAME.of(graph)(layer.name, mark_as_used=False)
                is_again = self._open[-1][3] if self._open else self._is_again(layer, graph)
            except Exception as error:  # a layer may be anything, and its call comes first
                if signal_of(error):
                    raise
                return
            self._open.append((id(layer), graph, scope, is_again))

        return began

    def _is_again(self, layer: Any, graph: Any) -> bool:
        """Whether a call from outside of any layer repeats one for a gradient that has begun."""
        seen = self._seen.get(id(layer))
        if seen is None or seen.layer() is not layer or seen.was_outside or not seen.was_inside:
            return False
        return any(made.name.startswith(_TAPE) for made in reversed(GRAPH_OPERATIONS.of(graph)()))

    def _call_ended(self, layer: Any, *_: object, **__: object) -> None:
        if not self._open or self._open[-1][0] != id(layer):
            return
        if threading.get_ident() != self._thread:
            return
        identity, graph, first, is_again = self._open.pop()
        try:
            seen = self._seen.get(identity)
            if seen is None or seen.layer() is not layer:
                seen = self._seen[identity] = _Seen(layer)
            scopes = _scopes_between(first, UNIQUE_NAME.of(graph)(layer.name, mark_as_used=False))
            if not is_again:
                seen.called(graph, is_inside=bool(self._open))
        except Exception as error:  # likewise
            if signal_of(error):
                raise
            return
        scopes = scopes[: self._scopes_left]
        self._scopes_left -= len(scopes)
        seen.scopes.update(scopes)
        seen.again.update(scopes if is_again else ())
        if not self._open and isinstance(layer, self._model_types):
            self._keep(layer)

    def scope_entered(self, layer: Any, path: str, turn: object) -> None:
        """A layer is called on PyTorch, where ops have the scopes that we give them.

        Args:
            layer: The layer, or what else opens a scope.
            path: The scope.
            turn: The outermost call that it is part of.
        """
        seen = self._seen.get(id(layer))
        if seen is None or seen.layer() is not layer:
            seen = self._seen[id(layer)] = _Seen(layer)
            seen.has_own_scopes = True
        if path not in seen.scopes and self._scopes_left > 0:
            self._scopes_left -= 1
            seen.scopes.add(path)
        seen.called(turn, is_inside="/" in path)

    def add(self, facts: ModelFacts) -> None:
        """Keep a model that somebody else has described."""
        if len(self._gone) < _MOST_MODELS:
            self._gone.append(facts)

    def living(self) -> list[Any]:
        """The models that ran and are alive."""
        return [model for reference in list(self._models.values()) if (model := reference())]

    def describe(
        self, namespace: Mapping[str, object], given: Sequence[object] = ()
    ) -> tuple[ModelFacts, ...]:
        """The models that ran, those of a namespace, and those given, as plain data; none is kept."""
        given = [*self.living(), *given, *_models_in(namespace)]
        facts = (*describe_models(given, self._traced_layers()), *self._gone)
        for kept in (self._models, self._facts, self._final, self._seen, self._open, self._gone):
            kept.clear()
        return facts


def _scopes_between(first: str, last: str) -> list[str]:
    """The scopes that were used up from one free name to the next: ``a/x_1`` and ``a/x_3`` give two.

    Where the free name is the same, the scope was entered again, as Keras 2 does: it is that one.
    """
    if first == last:
        return [first]
    base, _, number = last.rpartition("_")
    if not number.isdigit():
        return [first]
    if first == base:
        begin = 0
    else:
        stem, _, first_number = first.rpartition("_")
        if stem != base or not first_number.isdigit():
            return [first]
        begin = int(first_number)
    if not 0 < int(number) - begin < 100:
        return [first]
    return [f"{base}_{at}" if at else base for at in range(begin, int(number))]


def _models_in(namespace: Mapping[str, object]) -> list[Any]:
    """The Keras models that are values of a namespace."""
    modules = [sys.modules[name] for name in _LIBRARIES if name in sys.modules]
    types = tuple(kind for module in modules if isinstance(kind := MODEL.find(module), type))
    if not types:
        return []
    models = [value for value in list(namespace.values()) if issubclass(type(value), types)]
    return models[:_MOST_MODELS]


def as_models(given: object) -> list[object]:
    """What ``model=`` was given: one model, several, or none."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def describe_models(
    models: Iterable[Any], traced: Mapping[int, TracedLayer] | None = None
) -> tuple[ModelFacts, ...]:
    """Describe each model that is no part of another one.

    Args:
        models: Keras models, or layers; of one given twice the first counts.
        traced: What was seen of layers while they were traced, by id.
    """
    distinct = {id(model): model for model in models}
    inside: set[int] = set()
    facts: list[ModelFacts] = []
    for identity, model in sorted(distinct.items(), key=lambda item: -_count_parts(item[1])):
        if identity in inside:
            continue
        with OwnFaults():  # somebody's model may do anything when it is looked at
            inside.update(map(id, _flat(model)))
            facts.append(describe_model(model, traced or {}))
    return tuple(facts)


def _flat(model: Any) -> list[Any]:
    flatten = FLATTEN_LAYERS.of(model)
    return [] if flatten is None else list(flatten(include_self=False))


def _count_parts(model: Any) -> int:
    with OwnFaults():  # likewise
        return len(_flat(model))
    return 0
