"""Names of ops to the name scope they were made in, forward or backward; and to what a person calls them.

    StatefulPartitionedCall/net/dense/MatMul             net/dense/MatMul
    gradient_tape/net/dense/MatMul/MatMul_1              net/dense/MatMul/MatMul_1, backward
    while/body/_14/net/dense/MatMul                      net/dense/MatMul
    jit(f)/transpose(jvp(Model))/Dense_0/dot_general     Model/Dense_0/dot_general, backward

TensorFlow puts the names of the functions that a step was inlined from in front of an op's own
(``StatefulPartitionedCall/``), the gradient tape its own name and the forward op's
(``gradient_tape/model/dense/MatMul/MatMul_1``), loops the name of their body and its number, and the graph
optimizers theirs. JAX writes what a function went through (``jit(f)/transpose(jvp(Model))/Dense_0``). What is
left is the path of scopes, down to the op itself.

From names alone a scope is taken for a layer where it looks like one: ops that are made of others open
scopes too (``moments``, ``Tensordot``, ``einsum``), and those are no layers.

A person says the layer, the direction and the op; the rest stands behind:

    gradient_tape/net/conv2d/Conv2D/Conv2DBackpropFilter    conv2d · backward (filter)       in net
    net/conv2d/BiasAdd                                      conv2d · BiasAdd                 in net
    Adam/update_dense/kernel/ResourceApplyAdam              Adam · ResourceApplyAdam         dense/kernel
    jit(f)/transpose(jvp(Model))/Dense_0/dot_general        Dense_0 · backward (dot_general) in Model
    Iterator::Root::Map                                     Map                              Iterator::Root
    GatherV2                                                GatherV2

What is said once is not said again: a type stands behind only where the name does not say it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from profnb.core.units import counted_text
from profnb.subjects.ops.op_table import OPTIMIZERS
from profnb.trace.names import kernel_title, without_call, without_number, without_numbers

_CALL_SCOPES = re.compile(
    r"(Stateful)?PartitionedCall(_\d+)?|_\d+|while(_\d+)?|while_grad(_\d+)?|body|cond(_\d+)?|cond_grad"
    r"|then|else|branch\d+|update_\d+|replica(_\d+)?|XlaLaunch|cluster(_\d+)+|xla_compile|TPUPartitionedCall"
    r"|[A-Z][a-zA-Z]*(Optimizer|Folding)|Remapper|jit\(.*\)|pjit|closed_call|core_call|custom_[a-z_]+_call"
)
_BACKWARD_SCOPE = re.compile(r"gradient_tape(_\d+)?|gradients(_\d+)?")
_AGAIN = re.compile(r"rematted_computation|checkpoint|remat\d*|recompute_grad(_\d+)?")
_TRANSFORMED = re.compile(r"(jvp|vmap|transpose|remat|checkpoint|pmap|shard_map)\((.*)\)")
_GRAD = "_grad"
_LONGEST_OP, _DEEPEST_SCOPE = 2000, 100

# Scopes that ops and Keras' own functions open inside a layer; compared without a number at the end.
_OF_OPS = frozenset({
    "add", "and", "assert", "batchnorm", "bidirectional_rnn", "boolean_mask", "cast", "clip_by_norm",
    "clip_by_value", "concat", "convolution", "cumsum", "depthwise", "div", "div_no_nan", "dropout",
    "einsum", "elu", "embedding_lookup", "equal", "exp", "expand_dims", "floordiv", "gelu", "greater",
    "hinge", "l2_normalize", "leaky_relu", "less", "log", "log_softmax", "logistic_loss", "matmul", "max",
    "maximum", "mean", "min", "minimum", "mod", "moments", "mul", "ndim", "neg", "noise_shape",
    "normalize_moments", "not", "num_elements", "one_hot", "ones", "ones_like", "or", "pad", "pow",
    "random_normal", "random_uniform", "range", "reduce", "relu", "reshape", "resize", "rsqrt",
    "separable_conv2d", "shape", "sigmoid", "size", "softmax", "softplus", "split", "sqrt", "square",
    "squeeze", "stack", "stateless_dropout", "stateless_random_normal", "stateless_random_uniform",
    "strided_slice", "sub", "sufficient_statistics", "sum", "swish", "tanh", "tile", "transpose",
    "truediv", "truncated_normal", "unstack", "weighted_loss", "where", "xw_plus_b",
    "zeros", "zeros_like",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpScope:
    """The scopes that an op was made in."""

    path: tuple[str, ...]  # the scopes from the outermost on; the last part is the op itself
    is_backward: bool = False  # true if a gradient asked for it
    is_again: bool = False  # true if its name says that it repeats a forward op (recomputation)
    # true if all above the op itself are scopes of layers, as where JAX named it
    has_only_scopes: bool = False


def parse_scope(op_name: str) -> OpScope:
    """Split an op's name into its scopes, without what inlining, gradients and loops put in front."""
    path: list[str] = []
    is_backward = is_again = False
    name = op_name[:_LONGEST_OP].partition(";jit(")[0]  # of ops that XLA made one, the first
    for part in name.split("/")[:_DEEPEST_SCOPE]:
        while transformed := _TRANSFORMED.fullmatch(part):
            is_backward |= transformed[1] == "transpose"
            is_again |= transformed[1] in ("remat", "checkpoint")
            part = transformed[2]  # noqa: PLW2901 - peeled like an onion
        if _BACKWARD_SCOPE.fullmatch(part):
            is_backward = True
        elif _AGAIN.fullmatch(part):
            is_again = True
        elif part and not _CALL_SCOPES.fullmatch(part):
            path.append(part.removesuffix(_GRAD) if is_backward else part)
    return OpScope(tuple(path), is_backward, is_again, "jit(" in op_name)


def layer_scope(scope: OpScope) -> tuple[str, ...]:
    """Cut an op's path to what looks like a layer: scopes up to the first that is an op's own.

    Ops are called in capitals (``BiasAdd``) or by a word of their own (``moments``); layers otherwise. A
    model may be in capitals if it has layers inside, and so may all of JAX's modules (``Dense_0``).
    """
    path = scope.path
    for at, part in enumerate(path[:-1]):
        if scope.has_only_scopes or not _is_of_op(part):
            continue
        is_model = at == 0 and len(path) > 2 and part[:1].isupper() and not _is_of_op(path[1])
        is_dropout = path[at + 1] == "dropout"  # the layer of that name around the op of that name
        if not (is_model or is_dropout):
            return path[:at]
    return path[:-1]


def _is_of_op(part: str) -> bool:
    return part[:1].isupper() or without_number(part) in _OF_OPS


# What a gradient's op is of, where its type says so.
_OF_GRADIENT = (
    (re.compile(r".*BackpropFilter(V\d+)?"), "filter"),
    (re.compile(r".*BackpropInput(V\d+)?"), "input"),
    (re.compile(r"BiasAddGrad(V\d+)?"), "bias"),
)
_GRADIENT = re.compile(r"Grad(?=(V\d+)?(_\d+)?$)")
_ITERATOR = "Iterator::"
_LAST_NUMBER, _TELLING = re.compile(r"[._]\d+$|V\d+$"), 4
_NOT_TOLD = re.compile(r"[\W_]+")


class OpTitle(NamedTuple):
    """The name of an op as a person says it."""

    name: str  # the layer, the direction and the op
    about: str  # where it stands, and its type if the name does not say it; "" for nothing
    full: str  # its own name and type

    @property
    def cell(self) -> tuple[str, str, str, str]:
        """As a table's cell: the name, fainter what is about it, and its own name under the pointer."""
        return self.name, "", self.about, self.full if self.full != self.name else ""


_KERNEL = ("void ", "at::native::")  # a device's work that has no op is named by its kernel


# The path of a layer by the scope of its calls: what a library makes unique, ``net_1/conv2d_1_2``, is one of
# ``net/conv2d_1``, and called so everywhere.
LayerNames = Mapping[tuple[str, ...], str]
NO_LAYERS: LayerNames = {}
# The paths of the layers that ops of a name ran in, where the name does not tell.
Callers = Mapping[str, Sequence[str]]
NO_CALLERS: Callers = {}


def op_titles(
    names: Sequence[str],
    types: Sequence[str],
    layers: LayerNames = NO_LAYERS,
    callers: Callers = NO_CALLERS,
) -> list[OpTitle]:
    """Name several ops of one table; where two would read alike, their own names stand behind."""
    titles = [op_title(name, kind, layers) for name, kind in zip(names, types, strict=True)]
    for at, name in enumerate(names):
        if paths := callers.get(name):
            said = paths[0] if len(paths) == 1 else counted_text(len(paths), "layer")
            titles[at] = titles[at]._replace(about=f"in {said}")
    often = Counter((name, about) for name, about, _ in set(titles))
    return [
        title._replace(about=title.full) if often[title.name, title.about] > 1 else title
        for title in titles
    ]


def op_title(op_name: str, op_type: str = "", named: LayerNames = NO_LAYERS) -> OpTitle:
    """Name an op as a person does."""
    plain = without_call(op_name)
    is_said = _says(plain, op_type)
    full = plain if is_said else f"{plain} ({op_type})"
    kind = "" if is_said else op_type
    if plain.startswith(_ITERATOR):
        above, _, last = plain.rpartition("::")
        return OpTitle(last, above, full) if above != "Iterator" else OpTitle(plain, "", full)
    scope = parse_scope(plain)
    if len(scope.path) < 2 or "/" not in plain:
        return OpTitle(kernel_title(plain) if plain.startswith(_KERNEL) else plain, kind, full)
    if without_numbers(scope.path[0].lower()) in OPTIMIZERS:
        inner = "/".join(part.removeprefix("update_") for part in scope.path[1:-1])
        return OpTitle(f"{scope.path[0]} · {scope.path[-1]}", _joined(kind, inner), full)
    layers = layer_scope(scope)
    ends = [end for end in range(1, len(layers) + 1) if layers[:end] in named]
    layers = layers[: max(ends, default=len(layers))]  # scopes inside of a known layer are its ops'
    inside = scope.path[len(layers) :]
    if ends:
        path = named[layers]
        layers = tuple(path.split("/"))
        full = f"{'/'.join((path, *inside))}\nrecorded as {full}"
    op = _once(layers, inside)
    if scope.is_backward:
        op = f"backward ({_gradient_of(inside[-1], op_type)})"
    if not layers:
        return OpTitle(f"{inside[-2]} · {op}" if scope.is_backward else plain, kind, full)
    above = f"in {'/'.join(layers[:-1])}" if len(layers) > 1 else ""
    return OpTitle(f"{layers[-1]} · {op}", _joined(kind, above), full)


def _once(layers: Sequence[str], inside: Sequence[str]) -> str:
    """The path of an op inside its layer, without parts that the part before or behind them says."""
    said = [*layers[-1:], *inside]
    bare = [_bare(part) for part in said]
    parts = list(inside[-1:])
    for at in range(len(said) - 2, len(said) - len(inside) - 1, -1):
        if bare[at] not in (bare[at + 1], bare[0] if layers and at == 1 else ""):
            parts.insert(0, said[at])
    return "/".join(parts)


def _gradient_of(last: str, op_type: str) -> str:
    """The gradient that a backward op works out: of an input, or of an op."""
    for pattern, word in _OF_GRADIENT:
        if pattern.fullmatch(without_number(last)) or pattern.fullmatch(op_type):
            return word
    return _GRADIENT.sub("", last) or last


def _says(name: str, op_type: str) -> bool:
    """Tell whether a name says a type already: ``Mul`` of ``net/mul`` is said, ``_Send`` of ``x/_1`` is not.

    A type that only adds who runs it (``_MklMatMul``, ``_MklNativeConv2DBackpropFilterWithBias``) is said.
    """
    if not op_type or (op_type == "Dataset" and name.startswith(_ITERATOR)):
        return True
    kind = _bare(op_type)
    parts = [_bare(part) for part in re.split(r"/|::", name)]
    return kind in parts or (len(parts[-1]) >= _TELLING and parts[-1] in kind)


def _bare(word: str) -> str:
    """A word without its number or version, and without what stands between letters."""
    return _NOT_TOLD.sub("", _LAST_NUMBER.sub("", word)).lower()


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
