"""The models that ran, or that live in a namespace, as plain data; and what Keras' fits reached.

Which models run is seen where they are called or given to ``fit`` and the like. While a function is traced,
each call of a layer also tells which name scopes of the graph are the layer's: those that its name would
have been given before the call and would no longer be given after it. Keras 3 makes every scope unique, so
from names alone ``dense_1`` may be the layer ``dense`` or ``dense_1``.

Models are held by weak references and described when the capture ends. Keras keeps the metrics of a fit in
its ``History``, on the model; they are copied when the fit ends.

PyTorch's modules become the same data as Keras' layers; nothing of PyTorch is imported.
"""

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import Library
from profnb.capture.models.layer_facts import (
    FitResult,
    LayerFacts,
    ModelFacts,
    TracedLayer,
    describe_model,
    width_of,
)
from profnb.capture.seams import TORCH_COMPILED_CALL, TORCH_COMPILED_MODULE
from profnb.capture.signals import OwnFaults
from profnb.capture.source.graph_lines import is_scratch
from profnb.capture.source.layer_lines import model_types, of_types
from profnb.capture.source.source_records import Shape
from profnb.capture.step_records import TRAIN

_MOST_MODELS, _MOST_SCOPES = 50, 100_000
_TAPE = "gradient_tape/"  # the name scope of gradients
_MOST_METRICS, _LONGEST_METRIC = 50, 100


class FitWatch:
    """Keeps what each fit reached.

    Args:
        fits: Where those are put that end, in order.
    """

    def __init__(self, fits: list[FitResult]) -> None:
        """None has ended."""
        self._fits, self._was_trained = fits, False

    def watch(self, keras: Library) -> AbstractContextManager[None]:
        """See fits begin and end inside the block."""
        return _watch_runs(keras, (TRAIN,), self._fit_began, self._fit_ended)

    def _fit_began(self, callbacks: Any, *_: object, **__: object) -> None:
        self._was_trained = False
        with OwnFaults():  # anybody's callbacks; the user's code comes first
            iterations = seams.CALLBACK_MODEL.of(callbacks).optimizer.iterations
            self._was_trained = int(iterations.numpy()) > 0

    def _fit_ended(self, callbacks: Any, *_: object, **__: object) -> None:
        with OwnFaults():  # likewise
            history = seams.CALLBACK_MODEL.of(callbacks).history
            metrics = {
                str(name)[:_LONGEST_METRIC]: float(values[-1])
                for name, values in list(history.history.items())[:_MOST_METRICS]
                if len(values)
            }
            if metrics:
                self._fits.append(FitResult(metrics, len(history.epoch), self._was_trained))


@contextmanager
def _watch_runs(
    keras: Library,
    phases: Iterable[str],
    began: Callable[..., object],
    ended: Callable[..., object],
) -> Iterator[None]:
    """See Keras' runs begin and end inside the block, on any thread, where both can be seen."""
    with ExitStack() as stack:
        for phase in phases:
            begin, end = seams.RUN_BEGIN[phase], seams.RUN_END[phase]
            if None not in (keras.take(begin), keras.take(end)):
                stack.enter_context(keras.watch(begin, on_any_thread=True, before=began))
                stack.enter_context(keras.watch(end, on_any_thread=True, after=ended))
        yield


class ModelWatch:
    """Sees models being called and traced, on the thread that makes it."""

    def __init__(self) -> None:
        """Nothing has been seen."""
        self._models: dict[int, Any] = {}
        self._seen: dict[int, TracedLayer] = {}
        self._facts: dict[int, ModelFacts] = {}
        self._gone: list[ModelFacts] = []  # of models that live no more, whose ids others may have
        self._final: set[int] = set()  # ids of models that were described after a run
        self._open: list[tuple[int, Any, str, bool]] = []
        self._model_types: tuple[type, ...] = ()
        self._scopes_left = _MOST_SCOPES

    @contextmanager
    def watch_calls(self, keras: Library) -> Iterator[None]:
        """See the calls of layers and models inside the block."""
        model = keras.take(seams.MODEL)
        self._model_types += (model,) if isinstance(model, type) else ()
        with ExitStack() as stack:
            if sys.modules.get("tensorflow") is not None:
                hooks = {"before": self._call_began(), "after": self._call_ended}
                stack.enter_context(keras.watch(seams.LAYER_CALL, **hooks))
            for phase in seams.ON_BATCH:
                seen = keras.watch(seams.ON_BATCH[phase], on_any_thread=True, before=self._see)
                stack.enter_context(seen)
            yield

    def watch_runs(self, keras: Library) -> AbstractContextManager[None]:
        """See the models of Keras' runs inside the block."""
        return _watch_runs(keras, seams.RUN_BEGIN, self._run_began, self._run_ended)

    def _see(self, model: Any, *_: object, **__: object) -> None:
        identity = id(model)
        if model is not None and identity not in self._models and len(self._models) < _MOST_MODELS:
            with contextlib.suppress(TypeError):  # somebody's __slots__
                self._models[identity] = weakref.ref(model, lambda _: self._died(identity))

    def _died(self, identity: int) -> None:
        self._models.pop(identity, None)
        self._final.discard(identity)
        facts = self._facts.pop(identity, None)
        self._gone += [] if facts is None else [facts]

    def _run_began(self, callbacks: Any, *_: object, **__: object) -> None:
        self._see(seams.CALLBACK_MODEL.of(callbacks))

    def _run_ended(self, callbacks: Any, *_: object, **__: object) -> None:
        model = seams.CALLBACK_MODEL.of(callbacks)
        if model is not None and id(model) not in self._final and self._keep(model):
            self._final.add(id(model))

    def _keep(self, model: Any) -> bool:
        """Describe a model now, if there are not too many: it may be gone when the capture ends."""
        facts: tuple[ModelFacts, ...] = ()
        if len(self._facts) + len(self._gone) < _MOST_MODELS:
            facts = describe_models([model], self._living_layers())
            self._facts |= {id(model): one for one in facts}
        return bool(facts)

    def _living_layers(self) -> dict[int, TracedLayer]:
        return {one: seen for one, seen in self._seen.items() if seen.layer() is not None}

    def _seen_layer(self, layer: Any, *, has_own_scopes: bool = False) -> TracedLayer:
        """Give what was seen of a layer, from the first call on."""
        seen = self._seen.get(id(layer))
        if seen is None or seen.layer() is not layer:
            seen = self._seen[id(layer)] = TracedLayer(layer, has_own_scopes=has_own_scopes)
        return seen

    def _call_began(self) -> Any:
        is_eager, graph_now = seams.EXECUTING_EAGERLY.find(), seams.DEFAULT_GRAPH.find()

        def began(layer: Any, *_: object, **__: object) -> None:
            if isinstance(layer, self._model_types) and not self._open:
                self._see(layer)
            if is_eager is None or graph_now is None or is_eager():
                return
            with OwnFaults():  # a layer may be anything, and its call comes first
                graph = graph_now()
                if not is_scratch(graph):
                    scope = seams.UNIQUE_NAME.of(graph)(layer.name, mark_as_used=False)
                    is_again = self._open[-1][3] if self._open else self._is_again(layer, graph)
                    self._open.append((id(layer), graph, scope, is_again))

        return began

    def _is_again(self, layer: Any, graph: Any) -> bool:
        """Tell whether a call from outside of any layer repeats one for a gradient that has begun."""
        seen = self._seen.get(id(layer))
        if seen is None or seen.layer() is not layer or seen.was_outside or not seen.was_inside:
            return False
        latest = reversed(seams.GRAPH_OPERATIONS.of(graph)())
        return any(made.name.startswith(_TAPE) for made in latest)

    def _call_ended(self, layer: Any, *_: object, **__: object) -> None:
        if not self._open or self._open[-1][0] != id(layer):
            return
        graph, first, is_again = self._open.pop()[1:]
        is_model = False
        with OwnFaults():  # likewise
            seen = self._seen_layer(layer)
            last = seams.UNIQUE_NAME.of(graph)(layer.name, mark_as_used=False)
            scopes = _scopes_between(first, last)[: self._scopes_left]
            if not is_again:
                seen.called(graph, is_inside=bool(self._open))
            self._scopes_left -= len(scopes)
            seen.scopes.update(scopes)
            seen.again.update(scopes if is_again else ())
            is_model = not self._open and isinstance(layer, self._model_types)
        if is_model and id(layer) not in self._facts:
            self._keep(layer)

    def scope_entered(self, layer: Any, path: str, turn: object) -> None:
        """See a layer being called on PyTorch, where ops have the scopes that we give them.

        Args:
            layer: The layer, or what else opens a scope.
            path: The scope.
            turn: The outermost call that it is part of.
        """
        seen = self._seen_layer(layer, has_own_scopes=True)
        if path not in seen.scopes and self._scopes_left > 0:
            self._scopes_left -= 1
            seen.scopes.add(path)
        seen.called(turn, is_inside="/" in path)

    def add(self, facts: ModelFacts) -> None:
        """Keep a model that somebody else has described, instead of one of its name."""
        before = [one for one in self._gone if one.has_own_scopes and one.name == facts.name]
        for one in before:
            self._gone.remove(one)
        if len(self._gone) < _MOST_MODELS:
            self._gone.append(facts)

    def living(self) -> list[Any]:
        """Give the models that ran and are alive."""
        return [model for reference in list(self._models.values()) if (model := reference())]

    def describe(
        self, namespace: Mapping[str, object], given: Sequence[object] = ()
    ) -> tuple[ModelFacts, ...]:
        """Turn the models that ran, those of a namespace, and those given into plain data; keep none."""
        named = of_types(list(namespace.values()), model_types())[:_MOST_MODELS]
        models = [*self.living(), *given, *named]
        facts = (*describe_models(models, self._living_layers()), *self._gone)
        for kept in (self._models, self._facts, self._final, self._seen, self._open, self._gone):
            kept.clear()
        return facts


def _scopes_between(first: str, last: str) -> list[str]:
    """Give the scopes used up from one free name to the next: ``a/x_1`` and ``a/x_3`` give two.

    Where the free name is the same, the scope was entered again, as Keras 2 does: it is that one.
    """
    base, _, end = last.rpartition("_")
    begin = "0" if first == base else first.removeprefix(f"{base}_")
    if first != last and begin.isdigit() and end.isdigit() and 0 < int(end) - int(begin) < 100:
        return [f"{base}_{at}" if at else base for at in range(int(begin), int(end))]
    return [first]


def as_models(given: object) -> list[object]:
    """List what ``model=`` was given: one model, several, or none."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def describe_models(
    models: Iterable[Any], traced: Mapping[int, TracedLayer] | None = None
) -> tuple[ModelFacts, ...]:
    """Describe each model that is no part of another one.

    Args:
        models: Keras models, or layers; of one given twice the first counts.
        traced: Layers as they were traced, by id.
    """
    distinct = {id(model): model for model in models}
    parts = {identity: _ids_inside(model) for identity, model in distinct.items()}
    inside: set[int] = set()
    facts: list[ModelFacts] = []
    for identity in sorted(parts, key=lambda identity: -len(parts[identity])):
        if identity not in inside:
            inside |= parts[identity]
            with OwnFaults():  # somebody's model may do anything when it is looked at
                facts.append(describe_model(distinct[identity], traced))
    return tuple(facts)


def _ids_inside(model: Any) -> set[int]:
    with OwnFaults():  # likewise; or it is no layer
        return set(map(id, seams.FLATTEN_LAYERS.of(model)(include_self=False)))
    return set()


_MOST_LAYERS, _DEEPEST_MODULE = 20_000, 30
_TORCH_MODULES = "torch.nn."
_LOSSES = "torch.nn.modules.loss"


def is_loss(module: object) -> bool:
    """Tell whether it is one of PyTorch's losses, or made from one."""
    return any(kind.__module__ == _LOSSES for kind in type(module).__mro__)


def compiled_in(module: object) -> object | None:
    """Find the module that ``torch.compile`` compiled as this one, or in it; None where it did not."""
    if TORCH_COMPILED_CALL.of(module) is not None:
        return module
    parts = vars(module).get("_modules")
    return parts.get(TORCH_COMPILED_MODULE.name) if isinstance(parts, Mapping) else None


def describe_module(module: Any, name: str, calls: Mapping[int, int]) -> ModelFacts | None:
    """Turn a module and all inside into plain data; None where it does not let itself be looked at.

    What was compiled is one layer with all that is inside: nothing is called there that could be seen.

    Args:
        module: A ``torch.nn.Module``.
        name: What it is called.
        calls: How often its last call called each module, by id.
    """
    rows: list[LayerFacts] = []
    row_of: dict[str, int] = {}
    counted: set[int] = set()
    called: dict[int, int] = {}
    compiled: tuple[str, ...] = ()
    with OwnFaults():  # somebody's module may do anything when it is looked at
        for dotted, part in module.named_modules():
            if len(rows) >= _MOST_LAYERS or dotted.count(".") >= _DEEPEST_MODULE:
                continue
            if dotted and f"{dotted}.".startswith(compiled):
                continue
            whole = compiled_in(part)
            compiled = compiled if whole is None else (*compiled, f"{dotted}." if dotted else "")
            kind = type(part if whole is None else whole)
            above, _, short_name = dotted.rpartition(".")
            weights = list(part.parameters(recurse=whole is not None))
            fresh = [weight for weight in weights if id(weight) not in counted]
            row = row_of[dotted] = len(rows)
            called |= {row: calls[id(part)]} if calls.get(id(part)) else {}
            rows.append(
                LayerFacts(
                    path=f"{name}/{dotted.replace('.', '/')}" if dotted else name,
                    name=short_name or name,
                    kind=kind.__name__,
                    is_library=kind.__module__.startswith(_TORCH_MODULES),
                    parent=row_of[above] if dotted else -1,
                    parameters=sum(map(_size, fresh)),
                    is_shared=called.get(row, 0) > 1,
                    is_trainable=any(bool(weight.requires_grad) for weight in weights),
                    width=width_of([*part.parameters()], rows, row_of[above] if dotted else -1),
                )
            )
            counted.update(map(id, weights))
        return ModelFacts(
            name=name,
            layers=tuple(rows),
            is_uniquified=False,
            scopes={layer.path: row for row, layer in enumerate(rows)},
            calls=called,
            has_own_scopes=True,
        )
    return None


def shapes_of(given: Sequence[Any]) -> tuple[Shape, ...]:
    """The shape of the array with most rows among what a module was called with; () for none.

    Of a sequence nobody knows whether its steps or its examples come first: the larger number does here.
    """
    shapes = [(0,)]
    for one in given:
        with suppress(Exception):  # somebody's array may refuse to tell, as nested ones do
            sizes = getattr(one, "shape", ())
            if sizes and all(type(size) is int for size in sizes):  # not while a graph is traced
                first = max(sizes[:2]) if len(sizes) == 3 else sizes[0]
                shapes.append((first, *sizes[1:]))
    return tuple(shape for shape in [max(shapes)] if shape[0])


def _size(weight: Any) -> int:
    """Count the numbers in a weight; of one that a lazy layer has not made yet there are none."""
    try:
        return int(weight.numel())
    except (RuntimeError, ValueError, TypeError):
        return 0
