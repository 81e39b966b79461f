"""What is known of Keras models, to plain JSON values and back."""

from collections.abc import Mapping, Sequence
from typing import Any

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.models.layer_shapes import Shape
from profnb.capture.models.op_order import OpFact
from profnb.capture.saved.checked import Checked

__all__ = ["plain_models", "read_models"]

_MOST_MODELS, _MOST_LAYERS, _MOST_SCOPES, _MOST_OPS, _MOST_GRAPHS = (
    200,
    20_000,
    100_000,
    100_000,
    20,
)
_MOST_SIZES, _LARGEST, _MOST_PARAMETERS, _DEEPEST = 16, 1 << 40, 1 << 60, 64


def plain_models(models: Sequence[ModelFacts]) -> list[dict[str, Any]]:
    """Models as JSON values."""
    return [_plain_model(model) for model in models[:_MOST_MODELS]]


def _plain_model(model: ModelFacts) -> dict[str, Any]:
    return {
        "name": model.name,
        "layers": [_plain_layer(layer) for layer in model.layers],
        "is_uniquified": model.is_uniquified,
        "has_keras_step": model.has_keras_step,
        "losses": model.losses,
        "optimizer": model.optimizer,
        "scopes": [[scope, row, scope in model.again] for scope, row in model.scopes.items()],
        "calls": list(model.calls.items()),
        "ops": {
            phase: [_plain_ops(graph) for graph in graphs] for phase, graphs in model.ops.items()
        },
    }


def _plain_layer(layer: LayerFacts) -> dict[str, Any]:
    return {
        "path": layer.path,
        "name": layer.name,
        "kind": layer.kind,
        "is_library": layer.is_library,
        "parent": layer.parent,
        "parameters": layer.parameters,
        "output_shape": layer.output_shape,
        "input_shapes": layer.input_shapes,
        "is_shared": layer.is_shared,
        "is_trainable": layer.is_trainable,
        "needs_input_gradient": layer.needs_input_gradient,
        "kernels": layer.kernels,
        "numbers": {
            name: value
            for name, value in layer.numbers.items()
            if isinstance(value, str) or 0 <= value < _LARGEST
        },
    }


def _plain_ops(graph: Mapping[str, OpFact]) -> list[list[Any]]:
    return [[name, fact.part, fact.row, fact.scope] for name, fact in graph.items()][:_MOST_OPS]


def read_models(reader: Checked, value: object) -> tuple[ModelFacts, ...]:
    """Models from JSON values.

    Raises:
        TraceFormatError: They are not what ``plain_models`` gives.
    """
    return tuple(_read_model(reader, model) for model in reader.items(value, _MOST_MODELS))


def _read_model(reader: Checked, value: object) -> ModelFacts:
    told = reader.mapping(value)
    layers = tuple(
        _read_layer(reader, layer) for layer in reader.items(told.get("layers"), _MOST_LAYERS)
    )
    depth: list[int] = []
    for row, layer in enumerate(layers):
        if not (0 <= layer.parent < row or (row == 0 and layer.parent == -1)):
            reader.refuse(f"layer {row} as part of layer {layer.parent}")
        depth.append(depth[layer.parent] + 1 if row else 0)
    if not layers or max(depth) > _DEEPEST:
        reader.refuse("a model without layers, or one of too many levels")
    rows = range(len(layers))
    scopes: dict[str, int] = {}
    again: set[str] = set()
    for item in reader.items(told.get("scopes"), _MOST_SCOPES):
        scope, row, is_again = reader.items(item, 3)
        scopes[reader.text(scope)] = _row(reader, row, rows)
        again.update([reader.text(scope)] if is_again else [])
    calls = [reader.items(item, 2) for item in reader.items(told.get("calls"), _MOST_LAYERS)]
    return ModelFacts(
        name=reader.text(told.get("name")),
        layers=layers,
        is_uniquified=bool(told.get("is_uniquified")),
        has_keras_step=bool(told.get("has_keras_step")),
        losses=tuple(reader.texts(told.get("losses"))),
        optimizer=reader.text(told.get("optimizer")),
        scopes=scopes,
        again=frozenset(again),
        calls={_row(reader, row, rows): _size(reader, count) for row, count in calls},
        ops=reader.named(
            told.get("ops"),
            lambda graphs: [
                _read_ops(reader, graph, rows) for graph in reader.items(graphs, _MOST_GRAPHS)
            ],
        ),
    )


def _read_layer(reader: Checked, value: object) -> LayerFacts:
    told = reader.mapping(value)
    parameters = reader.number(told.get("parameters"))
    if not -1 <= parameters < _MOST_PARAMETERS:
        reader.refuse(f"{parameters} parameters")
    output = told.get("output_shape")
    return LayerFacts(
        path=reader.text(told.get("path")),
        name=reader.text(told.get("name")),
        kind=reader.text(told.get("kind")),
        is_library=bool(told.get("is_library")),
        parent=reader.number(told.get("parent")),
        parameters=parameters,
        output_shape=None if output is None else _shape(reader, output),
        input_shapes=_shapes(reader, told.get("input_shapes")),
        is_shared=bool(told.get("is_shared")),
        is_trainable=bool(told.get("is_trainable")),
        needs_input_gradient=bool(told.get("needs_input_gradient")),
        kernels=_shapes(reader, told.get("kernels")),
        numbers=reader.named(
            told.get("numbers"),
            lambda own: reader.text(own) if isinstance(own, str) else _size(reader, own),
        ),
    )


def _read_ops(reader: Checked, value: object, rows: range) -> dict[str, OpFact]:
    found = {}
    for item in reader.items(value, _MOST_OPS):
        name, part, row, scope = reader.items(item, 4)
        own = -1 if row == -1 else _row(reader, row, rows)
        found[reader.text(name)] = OpFact(reader.text(part), own, reader.text(scope))
    return found


def _row(reader: Checked, value: object, rows: range) -> int:
    row = reader.number(value)
    if row not in rows:
        reader.refuse(f"layer {row} of {len(rows)}")
    return row


def _size(reader: Checked, value: object) -> int:
    size = reader.count(value)
    if size >= _LARGEST:
        reader.refuse(f"a size of {size}")
    return size


def _shape(reader: Checked, value: object) -> Shape:
    return tuple(
        None if size is None else _size(reader, size) for size in reader.items(value, _MOST_SIZES)
    )


def _shapes(reader: Checked, value: object) -> tuple[Shape, ...]:
    return tuple(_shape(reader, shape) for shape in reader.items(value))
