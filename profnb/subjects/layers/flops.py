"""Layers to the floating-point operations of their products, from their shapes alone.

A product of matrices or a convolution does two operations for each multiplication; borders that "same"
padding adds are counted like all else, and what is done element by element (biases, activations,
normalisation) is not counted. That is the usual count of "model FLOPs", which does not depend on how a
library computes it.

Backward, a layer does as much again for the gradient of its weights, if they are trained, and as much again
for the gradient of its input, if something before it is trained: twice the forward pass in the middle of a
model, once in its first layer. (Within the first layer the gradient still reaches the state of a recurrent
layer, and what lies between the two kernels of a separable convolution.) Dot products of attention always
need both. In a model without a graph of layers (a subclassed one) the layers are taken to be called in the
order in which they were made.
"""

from collections.abc import Sequence
from math import nan, prod

from profnb.capture.models.layer_facts import LayerFacts
from profnb.capture.source.source_records import Shape

_DENSE = ("Dense",)
_EINSUM = ("EinsumDense",)
_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv1D", "DepthwiseConv2D")
_SEPARABLE = ("SeparableConv1D", "SeparableConv2D")
_TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
_RECURRENT = ("LSTM", "GRU", "SimpleRNN")
_ATTENTION = ("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention")
# They move numbers, or look them up.
_NO_PRODUCTS = (
    "Embedding", "InputLayer", "Flatten", "Reshape", "Permute", "RepeatVector", "Concatenate", "Identity",
    "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping1D", "Cropping2D", "Cropping3D",
)  # fmt: skip


def backward_factor(layer: LayerFacts) -> float:
    """How many times a layer's forward operations its backward pass does."""
    if layer.kind in _ATTENTION:
        return 2.0
    if layer.needs_input_gradient:
        return float(layer.is_trainable) + 1.0
    return float(layer.is_trainable) * (1.0 + _inner_share(layer))


def _inner_share(layer: LayerFacts) -> float:
    """The part of a layer's operations whose input another kernel of the same layer made."""
    if layer.kind not in (*_SEPARABLE, *_RECURRENT) or len(layer.kernels) < 2:
        return 0.0
    sizes = [prod(length or 0 for length in kernel) for kernel in layer.kernels]
    return sizes[-1] / (sum(sizes) or 1)


def forward_flops(layers: Sequence[LayerFacts], row: int, calls: int) -> float:
    """Operations of a layer's own products for one example, over all its calls; NaN where not known.

    Args:
        layers: The layers of its model.
        row: The layer.
        calls: How often a step calls it.
    """
    layer = layers[row]
    if not layer.is_library:
        return nan
    if layer.kind in _NO_PRODUCTS:
        return 0.0
    if layer.kind in _ATTENTION:
        return _attention(layer) * calls
    parent = layers[layer.parent] if layer.parent >= 0 else None
    shapes = [_completed(shape, layer, parent) for shape in layer.input_shapes]
    if not shapes and parent is not None and parent.kind == "Bidirectional":
        shapes = list(parent.input_shapes)
    each = [_of_call(layer, shape) for shape in shapes]
    if len(each) == calls:
        return float(sum(each))
    return each[0] * calls if len(set(each)) == 1 else nan


def _completed(shape: Shape, layer: LayerFacts, parent: LayerFacts | None) -> Shape:
    """The shape with the sequence's length from the attention that a layer is part of."""
    if parent is None or len(shape) < 3 or shape[1] is not None:
        return shape
    length = parent.numbers.get(f"{layer.name}_length", parent.numbers.get("query_length"))
    return (shape[0], length, *shape[2:]) if isinstance(length, int) else shape


def _of_call(layer: LayerFacts, shape: Shape) -> float:
    """Twice the numbers of a layer's kernels, at each of the positions where they are used."""
    if not layer.kernels:
        return nan
    if layer.kind in _EINSUM:
        return 2.0 * _einsum(
            str(layer.numbers.get("equation", "")), shape, layer.kernels[0], layer.output_shape
        )
    kernels = layer.kernels
    made = layer.output_shape
    if layer.kind in _DENSE and shape and made and shape[-1] is not None and made[-1] is not None:
        kernels = ((shape[-1], made[-1]),)  # the kernel itself may be packed (int4)
    size = sum(prod(length or 0 for length in kernel) for kernel in kernels)
    return 2.0 * size * _product(_positions(layer, shape))


def _positions(layer: LayerFacts, shape: Shape) -> Sequence[int | None] | None:
    """Where kernels are used, for each example: the dimensions of those places."""
    if layer.kind in _DENSE or (layer.kind == "TimeDistributed" and len(layer.kernels[0]) == 2):
        return shape[1:-1]
    if layer.kind in (*_CONVOLUTIONS, *_SEPARABLE):
        return _spatial(layer, layer.output_shape)
    if layer.kind in _TRANSPOSED:
        return _spatial(layer, shape)
    return shape[1:2] if layer.kind in _RECURRENT and len(shape) == 3 else None


def _spatial(layer: LayerFacts, shape: Shape | None) -> Sequence[int | None] | None:
    """All dimensions of a convolution's output or input but batch and channels."""
    if shape is None or len(shape) < 3:
        return None
    is_first = layer.numbers.get("data_format") == "channels_first"
    return shape[2:] if is_first else shape[1:-1]


def _product(sizes: Sequence[int | None] | None) -> float:
    if sizes is None:
        return nan
    return float(prod(nan if size is None else size for size in sizes))


def _einsum(equation: str, shape: Shape, kernel: Shape, made: Shape | None) -> float:
    """The product of all distinct dimensions of ``abc,cde->abde`` but the batch, which comes first."""
    terms = equation.replace("->", ",").split(",")
    if len(terms) != 3:
        return nan
    data, weights, result = terms
    if data.startswith("..."):
        rest = len(shape) - len(data) + 3
        free, named = shape[1:rest], dict(zip(data[3:], shape[rest:], strict=False))
    else:
        free, named = (), dict(zip(data[1:], shape[1:], strict=False))
    if len(weights) != len(kernel):
        return nan
    # The kernel itself may be packed (int4): where input or output tell a size, that counts.
    outside = dict(zip(result[:0:-1], (made or ())[:0:-1], strict=False)) | named
    sized = {letter: size for letter, size in outside.items() if size is not None}
    sizes = {**named, **dict(zip(weights, kernel, strict=True)), **sized}
    return _product(tuple(free)) * _product(tuple(sizes.values()))


def _attention(layer: LayerFacts) -> float:
    """Queries by keys, and weights by values."""
    sizes = layer.numbers
    heads = sizes.get("num_heads", sizes.get("num_query_heads"))
    key = sizes.get("key_dim", sizes.get("head_dim"))
    value = sizes.get("value_dim", key)
    queries, keys = sizes.get("query_length"), sizes.get("key_length", sizes.get("value_length"))
    numbers = [n for n in (heads, key, value, queries, keys) if isinstance(n, int)]
    if len(numbers) < 5:
        return nan
    heads_, key_, value_, queries_, keys_ = numbers
    return 2.0 * heads_ * queries_ * keys_ * (key_ + value_)
