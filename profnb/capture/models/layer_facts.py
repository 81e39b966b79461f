"""Live Keras models to plain data: their layers, what those hold and compute with, what fits reached.

Works on Keras 3 and Keras 2 without importing either, reads only what is there, and never builds, traces or
keeps a model. Attributes that Keras keeps for itself are read with care: where one is missing, so is the
fact.
"""

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from operator import or_
from typing import Any, TypeVar

from profnb.capture import seams
from profnb.capture.models.op_order import OpFact, describe_ops, function_graphs, handle_of
from profnb.capture.signals import OwnFaults
from profnb.capture.source.source_records import Shape

_Answer = TypeVar("_Answer")

_MOST_LAYERS, _DEEPEST_MODULE, _DEEPEST_GRAPH = 20_000, 30, 900
_LARGEST_SETTING, _LONGEST_SETTING = 1 << 40, 40
_KERAS_MODULES = ("keras.", "tf_keras.")
_FLOATS = re.compile(r"float(\d\d)$")  # a type: "float32", "torch.bfloat16"
_NO_LAYERS = ("Metric", "Loss", "InputSpec")
# Layers whose parts are all given the layer's own input, but for the part that joins the others.
_SIDE_BY_SIDE = ("Bidirectional", "MultiHeadAttention", "GroupedQueryAttention")
_JOINS = "attention_output"
# The setting that says which arguments of a recurrent layer forbid cuDNN.
WITHOUT_CUDNN = "without_cudnn"
_FOR_CUDNN = {"activation": "tanh", "recurrent_activation": "sigmoid"}


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
        width: Of the numbers in its weights and its parts', "64-bit"; of a layer without any, that of what it
            is part of. "" where there are none, or several.
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
    width: str = ""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model.

    Attributes:
        name: Its name.
        layers: The model itself, then its layers in order, parts after what they are part of.
        is_uniquified: Whether its library makes every name scope unique (Keras 3) or enters the same one
            again (Keras 2).
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
    losses: tuple[str, ...] = ()
    optimizer: str = ""
    scopes: Mapping[str, int] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    calls: Mapping[int, int] = field(default_factory=dict)
    ops: Mapping[str, Sequence[Mapping[str, OpFact]]] = field(default_factory=dict)
    is_given: bool = False
    has_own_scopes: bool = False


@dataclass(frozen=True, slots=True)
class FitResult:
    """The metrics that one ``fit`` reached.

    Attributes:
        metrics: The last value of each metric: ``{"loss": 0.31, "val_accuracy": 0.86}``.
        epochs: How many epochs it ran.
        is_continued: Whether the model had been trained before this fit.
    """

    metrics: dict[str, float]
    epochs: int
    is_continued: bool


class TracedLayer:
    """A layer and the calls of it that were seen while functions were traced.

    Attributes:
        layer: Gives it; None if it lives no more.
        scopes: Name scopes that are its own.
        again: Those in which a gradient repeated its call.
        calls: How often a graph calls it, repetitions left out.
        was_inside: Whether it was called inside of calls of other layers.
        was_outside: Whether it was called elsewhere.
        has_own_scopes: See ``ModelFacts``.
    """

    def __init__(self, layer: Any, *, has_own_scopes: bool = False) -> None:
        """It was not called yet."""
        self.layer = weakref.ref(layer)
        self.scopes: set[str] = set()
        self.again: set[str] = set()
        self.calls = self._in_graph = 0
        self.was_inside = self.was_outside = False
        self.has_own_scopes = has_own_scopes
        self._graph: Callable[[], Any] = lambda: None

    @property
    def graph(self) -> Any:
        """The TensorFlow graph that called it last; None if that is gone."""
        return None if self.has_own_scopes else self._graph()

    def called(self, graph: Any, *, is_inside: bool) -> None:
        """Count a call that is no repetition."""
        self._in_graph = self._in_graph + 1 if self._graph() is graph else 1
        self._graph = weakref.ref(graph)
        self.calls = max(self.calls, self._in_graph)
        self.was_inside |= is_inside
        self.was_outside |= not is_inside


def describe_model(model: Any, traced: Mapping[int, TracedLayer] | None = None) -> ModelFacts:
    """Turn a model into plain data.

    Args:
        model: A Keras model, or any layer.
        traced: Layers as they were traced, by id.
    """
    walk = _Walk()
    walk.visit(model, -1, "", 0, needs_gradient=False)
    calls = [(walk.row_of[i], seen) for i, seen in (traced or {}).items() if i in walk.row_of]
    graph = next((seen.graph for row, seen in calls if row == 0), None)
    has_keras_step = _ask(_has_keras_step, model, otherwise=False)
    graphs = _ask(function_graphs, model, otherwise={}) | ({} if graph is None else {"": [graph]})

    def ops_of(phase: str, graph: Any) -> Mapping[str, OpFact]:
        is_of_keras = (
            has_keras_step and phase != ""
        )  # a loop of the user's own is no step of Keras'
        return _ask(describe_ops, graph, walk.row_of_handle, is_of_keras, otherwise={})

    return ModelFacts(
        name=str(model.name),
        layers=tuple(walk.rows),
        is_uniquified=seams.OPEN_NAME_SCOPE.of(model) is not None,
        losses=tuple(_loss_names(seams.LOSSES.of(seams.COMPILED_LOSS.of(model)))),
        optimizer=str(getattr(getattr(model, "optimizer", None), "name", "") or ""),
        scopes={scope: row for row, seen in calls for scope in seen.scopes},
        again=frozenset().union(*(seen.again for _, seen in calls)),
        calls={row: seen.calls for row, seen in calls if seen.calls},
        has_own_scopes=any(seen.has_own_scopes for _, seen in calls),
        ops={phase: [ops_of(phase, one) for one in listed] for phase, listed in graphs.items()},
    )


def _ask(read: Callable[..., _Answer], *arguments: Any, otherwise: Any) -> _Answer:
    """Give what a layer tells, or something else where it cannot be asked."""
    with OwnFaults():  # attributes of somebody's layer may do anything
        return read(*arguments)
    answer: _Answer = otherwise
    return answer


class _Walk:
    """A walk over a model's layers."""

    def __init__(self) -> None:
        self.rows: list[LayerFacts] = []
        self.row_of: dict[int, int] = {}  # by id of the layer, its first place
        self.row_of_handle: dict[int, int] = {}  # by id of the weight's resource
        self._counted: set[int] = set()  # ids of weights

    def visit(self, layer: Any, parent: int, path: str, depth: int, needs_gradient: bool) -> None:
        """Add a layer and its parts."""
        row = len(self.rows)
        if row >= _MOST_LAYERS or depth > _DEEPEST_MODULE:
            return
        first = self.row_of.setdefault(id(layer), row)
        if first != row:
            self.rows[first] = replace(self.rows[first], is_shared=True)
        name = str(layer.name)
        path = f"{path}/{name}" if path else name
        parts = parts_of(layer)
        # A recurrent layer and its cell run in one piece, under one name.
        is_wrapper = inherits(layer, "TimeDistributed") and not any(map(parts_of, parts))
        if is_wrapper or inherits(layer, "RNN"):
            parts = []
        is_built, weights = _ask(_own_weights, layer, parts, otherwise=(False, []))
        fresh = [weight for weight in weights if id(weight) not in self._counted]
        self._counted.update(map(id, fresh))
        for weight in fresh:
            handle = _ask(handle_of, weight, otherwise=None)
            self.row_of_handle |= {} if handle is None else {id(handle): row}
        is_trainable = _ask(getattr, layer, "trainable", otherwise=True) and any(
            getattr(weight, "trainable", False) for weight in weights
        )
        is_library = type(layer).__module__.startswith(_KERAS_MODULES)
        shapes = _ask(input_shapes, layer, otherwise=())
        self.rows.append(
            LayerFacts(
                path,
                name,
                type(layer).__name__,
                is_library,
                parent,
                sum(prod(map(int, weight.shape)) for weight in fresh) if is_built else -1,
                output_shape=_ask(_output_shape, layer, is_library, otherwise=None),
                input_shapes=shapes,
                is_shared=first != row or _ask(_is_called_again, layer, shapes, otherwise=False),
                is_trainable=is_trainable,
                needs_input_gradient=needs_gradient,
                kernels=_ask(_kernel_shapes, layer, otherwise=()) if is_library else (),
                numbers=_ask(_settings_of, layer, otherwise={}) if is_library else {},
                width=width_of(_ask(getattr, layer, "weights", otherwise=[]), self.rows, parent),
            )
        )
        needs = _ask(_needs_of_parts, layer, parts, needs_gradient, otherwise=[True] * len(parts))
        for part, needs_it in zip(parts, needs, strict=True):
            self.visit(part, row, path, depth + 1, needs_it)


def width_of(weights: Sequence[Any], layers: Sequence[LayerFacts], parent: int) -> str:
    """The width of the numbers in a layer's weights; see ``LayerFacts``."""
    dtypes = {str(getattr(weight, "dtype", "")) for weight in weights}
    widths = {match[1] for match in map(_FLOATS.search, dtypes) if match}
    if not dtypes and parent >= 0:
        return layers[parent].width
    return f"{widths.pop()}-bit" if len(widths) == 1 else ""


def _own_weights(layer: Any, parts: list[Any]) -> tuple[bool, list[Any]]:
    """Tell whether a layer is built, and give the weights that none of its parts holds."""
    theirs = {id(weight) for part in parts for weight in part.weights}
    weights = [weight for weight in layer.weights if id(weight) not in theirs]
    return bool(getattr(layer, "built", True)), weights


def _has_keras_step(model: Any) -> bool:
    """Tell whether nobody has put a training step or loss of their own in place of Keras'."""
    if getattr(model, "optimizer", None) is None:
        return False
    if any(getattr(weight, "regularizer", None) is not None for weight in model.weights):
        return False  # Keras 3 works out regularization outside of any scope
    return all(
        getattr(getattr(type(model), name, None), "__module__", "keras.").startswith(_KERAS_MODULES)
        for name in ("train_step", "compute_loss", "compute_metrics", "test_step")
    )


def _loss_names(losses: Any, depth: int = 0) -> Iterator[str]:
    """Yield the name scopes of Keras 2's losses; Keras 3 puts all under ``compile_loss``."""
    if isinstance(losses, dict | list | tuple) and depth < _DEEPEST_MODULE:
        for inner in losses.values() if isinstance(losses, dict) else losses:
            yield from _loss_names(inner, depth + 1)
    elif isinstance(name := getattr(losses, "name", None), str) and name:
        yield name


def parts_of(layer: Any) -> list[Any]:
    """Give the layers right inside a layer, each once."""

    def read() -> list[Any]:
        return list(seams.FLATTEN_LAYERS.of(layer)(include_self=False, recursive=False))

    parts = {id(part): part for part in _ask(read, otherwise=[])}
    return [part for part in parts.values() if not inherits(part, *_NO_LAYERS)]


def inherits(layer: Any, *names: str) -> bool:
    """Tell whether a layer's class, or one it is made from, has one of these names."""
    return any(kind.__name__ in names for kind in type(layer).__mro__)


def is_a(value: object, name: str, *packages: str) -> bool:
    """Tell whether a value is of a class of this name of some packages; none of its own code runs."""
    classes = [cls for cls in type(value).__mro__ if cls.__name__ == name]
    return any(cls.__module__.partition(".")[0] in packages for cls in classes)


def is_keras(value: object, *names: str) -> bool:
    """Tell whether a value is of a class of Keras, whichever that is: Keras 3, tf_keras, TensorFlow's own."""
    return any(is_a(value, name, "keras", "tf_keras", "tensorflow") for name in names)


def _nodes_of(layer: Any) -> list[Any]:
    """Give the layer's calls in a graph of layers."""
    nodes = seams.INBOUND_NODES.of(layer)
    return list(nodes) if isinstance(nodes, list) else []


def _producers(layer: Any) -> list[Any]:
    """Give the layers that made a layer's inputs in a graph of layers."""
    parents = (of for node in _nodes_of(layer) for of in seams.NODE_PARENTS.of(node, []))
    return [made for made in map(seams.NODE_LAYER.of, parents) if made is not None]


def _is_called_again(layer: Any, shapes: tuple[Shape, ...]) -> bool:
    """Tell whether a graph of layers calls it at several places.

    A Sequential adds a call each time that it is rebuilt, with the same input.
    """
    has_several = len(set(map(id, _producers(layer)))) > 1 or len(set(shapes)) > 1
    return len(_nodes_of(layer)) > 1 and has_several


def _needs_of_parts(layer: Any, parts: list[Any], needs_gradient: bool) -> list[bool]:
    """Tell for each part whether the gradient must reach its input.

    That is so where something before it is trained. What is before it tells the model's graph of layers, or
    their order in a Sequential; elsewhere, the order in which the layers were made.
    """
    if seams.LAYER_GRAPH.of(layer) is not None and not inherits(layer, "Sequential"):
        answers: dict[int, bool] = {}
        return [needs_gradient or _is_trained_before(part, answers, 0) for part in parts]
    if inherits(layer, *_SIDE_BY_SIDE):
        joined = needs_gradient or any(map(_is_trained, parts))
        names = [getattr(part, "name", "") for part in parts]
        return [joined if name == _JOINS else needs_gradient for name in names]
    return [*accumulate(map(_is_trained, parts), or_, initial=needs_gradient)][:-1]


def _is_trained(layer: Any) -> bool:
    return bool(getattr(layer, "trainable", True)) and bool(getattr(layer, "trainable_weights", ()))


def _is_trained_before(layer: Any, answers: dict[int, bool], depth: int) -> bool:
    """Tell whether anything that a layer's inputs are made from is trained."""
    if id(layer) not in answers:
        is_deep = depth > _DEEPEST_GRAPH  # then assume it
        answers[id(layer)] = is_deep  # until it is known, against circles
        answers[id(layer)] = is_deep or any(
            one is not layer and (_is_trained(one) or _is_trained_before(one, answers, depth + 1))
            for one in _producers(layer)
        )
    return answers[id(layer)]


def _as_shape(sizes: Any) -> Shape | None:
    """Give a shape as a tuple with None for the batch and what is not known."""
    try:
        shape = tuple(None if size is None else int(size) for size in sizes)
    except (TypeError, ValueError):
        return None
    return (None, *shape[1:]) if shape else None


def _tensor_shapes(tensors: Any) -> list[Shape]:
    listed = tensors if isinstance(tensors, list | tuple) else [tensors]
    shapes = (_as_shape(getattr(tensor, "shape", None)) for tensor in listed)
    return [shape for shape in shapes if shape is not None]


def input_shapes(layer: Any) -> tuple[Shape, ...]:
    """Give the first input's shape at each call of the graph of layers, else as it was built."""
    inputs = map(seams.NODE_INPUTS.of, _nodes_of(layer))
    shapes = [shape for tensors in inputs for shape in _tensor_shapes(tensors)[:1]]
    if shapes:
        return tuple(shapes)
    given = seams.BUILT_SHAPES.of(layer, {}).get("input_shape") or seams.BUILT_SHAPE.of(layer)
    built = _as_shape(given)
    return (built,) if built else ()


def _output_shape(layer: Any, is_library: bool) -> Shape | None:
    """Read the graph of layers; else ask one of Keras' own layers to work it out from its input's."""
    for node in _nodes_of(layer)[-1:]:
        for shape in _tensor_shapes(seams.NODE_OUTPUTS.of(node)):
            return shape
    has_graph = seams.LAYER_GRAPH.of(layer) is not None
    outputs = getattr(layer, "outputs", None) if has_graph else None
    if isinstance(outputs, list):
        return next(iter(_tensor_shapes(outputs)), None)
    if inherits(layer, "Sequential"):
        parts = getattr(layer, "layers", None)
        return _output_shape(parts[-1], is_library=True) if parts else None
    inputs = input_shapes(layer) if is_library and inherits(layer, *_PURE) else ()
    return _as_shape(layer.compute_output_shape(inputs[-1])) if inputs else None


# Layers that work out their output's shape by arithmetic alone, where others would be traced for it.
_PURE = (
    "Dense", "EinsumDense", "BaseConv", "Conv", "BaseConvTranspose", "BaseDepthwiseConv", "DepthwiseConv",
    "BaseSeparableConv", "SeparableConv", "Embedding", "Dropout", "BatchNormalization",
    "LayerNormalization", "Flatten", "Activation", "ReLU", "BasePooling", "BaseGlobalPooling",
)  # fmt: skip


def _kernel_shapes(layer: Any) -> tuple[Shape, ...]:
    """Give the shapes of the matrices that a layer multiplies with, in a fixed order."""
    holder = getattr(layer, "cell", layer) if inherits(layer, "RNN") else layer
    if inherits(layer, "TimeDistributed"):
        holder = getattr(layer, "layer", layer)
    shapes = (getattr(seam.of(holder), "shape", None) for seam in seams.KERNELS)
    return tuple(tuple(map(int, shape)) for shape in shapes if shape is not None)


def _settings_of(layer: Any) -> dict[str, int | str]:
    """Give the settings that decide how much a layer computes."""
    settings: dict[str, int | str] = {}
    for name in ("equation", "data_format"):
        text = getattr(layer, name, None)
        if isinstance(text, str):
            settings[name] = text
    for name, seam in seams.HEADS.items():
        value = seam.of(layer)
        if isinstance(value, int) and 0 <= value < _LARGEST_SETTING:
            settings[name] = value
    for name, seam in seams.ATTENTION_INPUTS.items():
        part = seam.of(layer)
        shapes = input_shapes(part) if part is not None else ()
        shape = _as_shape(seams.ATTENTION_SHAPES[name].of(layer) or (shapes[0] if shapes else None))
        if shape and len(shape) == 3 and shape[1]:
            settings[f"{name}_length"] = shape[1]
    forbids = ", ".join(_forbids_cudnn(layer))
    return settings | ({WITHOUT_CUDNN: forbids} if forbids else {})


def _forbids_cudnn(layer: Any) -> Iterator[str]:
    """Yield the arguments of an LSTM or GRU layer that forbid cuDNN, as they would be written.

    Source: Keras 2.15 and 3.15, ``_could_use_gpu_kernel`` and ``cudnn_ok``.
    """
    cell = getattr(layer, "cell", None)
    if type(layer).__name__ == "RNN" and inherits(cell, "LSTMCell", "GRUCell"):
        yield f"RNN({type(cell).__name__})"
    if not inherits(layer, "LSTM", "GRU") or cell is None:
        return
    for name, wanted in _FOR_CUDNN.items():
        function = getattr(cell, name, None)
        given = getattr(function, "__name__", type(function).__name__)
        if given != wanted:
            yield f"{name}={given[:_LONGEST_SETTING]!r}"
    dropout = getattr(cell, "recurrent_dropout", 0)
    if isinstance(dropout, int | float) and dropout > 0:
        yield f"recurrent_dropout={dropout:g}"
    if getattr(layer, "unroll", False):
        yield "unroll=True"
    for holder, name in ((cell, "use_bias"), (cell, "reset_after"), (layer, "use_cudnn")):
        if getattr(holder, name, True) is False:
            yield f"{name}=False"
