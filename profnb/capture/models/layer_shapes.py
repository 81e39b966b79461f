"""Shapes of a live Keras layer's inputs, output and weights, and settings that decide what it computes."""

from typing import Any

from profnb.capture.seams import (
    ATTENTION_INPUTS,
    ATTENTION_SHAPES,
    BUILT_SHAPE,
    BUILT_SHAPES,
    HEADS,
    INBOUND_NODES,
    KERNELS,
    LAYER_GRAPH,
    NODE_INPUTS,
    NODE_OUTPUTS,
)

Shape = tuple[int | None, ...]
_LARGEST = 1 << 40
WITHOUT_CUDNN = (
    "without_cudnn"  # the setting that says which arguments of a recurrent layer forbid cuDNN
)
_FOR_CUDNN = {"activation": "tanh", "recurrent_activation": "sigmoid"}
_LONGEST_NAME = 40


def inherits(layer: Any, names: tuple[str, ...]) -> bool:
    """Whether a layer's class, or one it is made from, has one of these names."""
    return any(kind.__name__ in names for kind in type(layer).__mro__)


def nodes_of(layer: Any) -> list[Any]:
    """The layer's calls in a graph of layers."""
    nodes = INBOUND_NODES.of(layer)
    return list(nodes) if isinstance(nodes, list) else []


def _as_shape(sizes: Any) -> Shape | None:
    """A shape as a tuple with None for the batch and what is not known."""
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
    """The first input's shape at each call of the graph of layers, else as it was built."""
    shapes = []
    for node in nodes_of(layer):
        shapes.extend(_tensor_shapes(NODE_INPUTS.of(node))[:1])
    if shapes:
        return tuple(shapes)
    built = BUILT_SHAPES.of(layer, {}).get("input_shape") or BUILT_SHAPE.of(layer)
    shape = _as_shape(built)
    return (shape,) if shape else ()


def output_shape(layer: Any, *, is_library: bool) -> Shape | None:
    """From the graph of layers; else as one of Keras' own layers works it out from its input's."""
    for node in nodes_of(layer)[-1:]:
        shapes = _tensor_shapes(NODE_OUTPUTS.of(node))
        if shapes:
            return shapes[0]
    if LAYER_GRAPH.of(layer) is not None and isinstance(getattr(layer, "outputs", None), list):
        shapes = _tensor_shapes(layer.outputs)
        return shapes[0] if shapes else None
    if inherits(layer, ("Sequential",)):
        parts = getattr(layer, "layers", None)
        return output_shape(parts[-1], is_library=True) if parts else None
    if not is_library or not inherits(layer, _PURE):
        return None
    inputs = input_shapes(layer)
    return _as_shape(layer.compute_output_shape(inputs[-1])) if inputs else None


# Layers that work out their output's shape by arithmetic alone, where others would be traced for it.
_PURE = (
    "Dense", "EinsumDense", "BaseConv", "Conv", "BaseConvTranspose", "BaseDepthwiseConv", "DepthwiseConv",
    "BaseSeparableConv", "SeparableConv", "Embedding", "Dropout", "BatchNormalization",
    "LayerNormalization", "Flatten", "Activation", "ReLU", "BasePooling", "BaseGlobalPooling",
)  # fmt: skip


def kernel_shapes(layer: Any) -> tuple[Shape, ...]:
    """Shapes of the matrices that a layer multiplies with, in a fixed order."""
    holder = getattr(layer, "cell", layer) if inherits(layer, ("RNN",)) else layer
    if inherits(layer, ("TimeDistributed",)):
        holder = getattr(layer, "layer", layer)
    shapes = []
    for seam in KERNELS:
        shape = getattr(seam.of(holder), "shape", None)
        if shape is not None:
            shapes.append(tuple(int(size) for size in shape))
    return tuple(shapes)


def settings_of(layer: Any) -> dict[str, int | str]:
    """Settings that decide how much a layer computes."""
    settings: dict[str, int | str] = {}
    for name in ("equation", "data_format"):
        text = getattr(layer, name, None)
        if isinstance(text, str):
            settings[name] = text
    for name, seam in HEADS.items():
        value = seam.of(layer)
        if isinstance(value, int) and 0 <= value < _LARGEST:
            settings[name] = value
    for name, seam in ATTENTION_INPUTS.items():
        part = seam.of(layer)
        shapes = input_shapes(part) if part is not None else ()
        sizes = ATTENTION_SHAPES[name].of(layer) or (shapes[0] if shapes else None)
        shape = _as_shape(sizes) if sizes is not None else None
        if shape and len(shape) == 3 and shape[1]:
            settings[f"{name}_length"] = shape[1]
    forbids = _forbids_cudnn(layer)
    if forbids:
        settings[WITHOUT_CUDNN] = ", ".join(forbids)
    return settings


def _forbids_cudnn(layer: Any) -> list[str]:
    """Which arguments of an LSTM or GRU layer forbid cuDNN, as they would be written; empty for others.

    Source: Keras 2.15 and 3.15, ``_could_use_gpu_kernel`` and ``cudnn_ok``.
    """
    cell = getattr(layer, "cell", None)
    if type(layer).__name__ == "RNN" and inherits(cell, ("LSTMCell", "GRUCell")):
        return [f"RNN({type(cell).__name__})"]
    if not inherits(layer, ("LSTM", "GRU")) or cell is None:
        return []
    arguments = []
    for name, wanted in _FOR_CUDNN.items():
        function = getattr(cell, name, None)
        given = getattr(function, "__name__", type(function).__name__)
        if given != wanted:
            arguments.append(f"{name}={given[:_LONGEST_NAME]!r}")
    dropout = getattr(cell, "recurrent_dropout", 0)
    if isinstance(dropout, int | float) and dropout > 0:
        arguments.append(f"recurrent_dropout={dropout:g}")
    if getattr(layer, "unroll", False):
        arguments.append("unroll=True")
    for name in ("use_bias", "reset_after"):
        if getattr(cell, name, True) is False:
            arguments.append(f"{name}=False")
    if getattr(layer, "use_cudnn", True) is False:
        arguments.append("use_cudnn=False")
    return arguments
