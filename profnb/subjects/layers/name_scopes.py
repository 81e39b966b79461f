"""Names of ops to the name scope they were made in, and whether a gradient asked for them.

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
"""

import re
from dataclasses import dataclass

from profnb.trace.names import without_number

_CALLS = re.compile(
    r"(Stateful)?PartitionedCall(_\d+)?|_\d+|while(_\d+)?|while_grad(_\d+)?|body|cond(_\d+)?|cond_grad"
    r"|then|else|branch\d+|update_\d+|replica(_\d+)?|XlaLaunch|cluster(_\d+)+|xla_compile|TPUPartitionedCall"
    r"|[A-Z][a-zA-Z]*(Optimizer|Folding)|Remapper|jit\(.*\)|pjit|closed_call|core_call|custom_[a-z_]+_call"
)
_BACKWARD = re.compile(r"gradient_tape(_\d+)?|gradients(_\d+)?")
_AGAIN = re.compile(r"rematted_computation|checkpoint|remat\d*|recompute_grad(_\d+)?")
_TRANSFORMED = re.compile(r"(jvp|vmap|transpose|remat|checkpoint|pmap|shard_map)\((.*)\)")
_GRAD = "_grad"
_LONGEST, _DEEPEST = 2000, 100

# Scopes that ops and Keras' own functions open inside a layer; compared without a number at the end.
_OF_OPS = frozenset(
    {
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
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpScope:
    """Where an op was made.

    Attributes:
        path: The scopes from the outermost on; the last part is the op itself.
        is_backward: Whether a gradient asked for it.
        is_again: Whether its name says that it repeats a forward op (recomputation).
        has_only_scopes: Whether all above the op itself are scopes of layers, as where JAX named it.
    """

    path: tuple[str, ...]
    is_backward: bool = False
    is_again: bool = False
    has_only_scopes: bool = False


def parse_scope(op_name: str) -> OpScope:
    """Split an op's name into its scopes, without what inlining, gradients and loops put in front."""
    path: list[str] = []
    is_backward = is_again = False
    name = op_name[:_LONGEST].partition(";jit(")[0]  # of ops that XLA made one, the first
    for part in name.split("/")[:_DEEPEST]:
        while transformed := _TRANSFORMED.fullmatch(part):
            is_backward |= transformed[1] == "transpose"
            is_again |= transformed[1] in ("remat", "checkpoint")
            part = transformed[2]  # noqa: PLW2901 - peeled like an onion
        if _BACKWARD.fullmatch(part):
            is_backward = True
        elif _AGAIN.fullmatch(part):
            is_again = True
        elif part and not _CALLS.fullmatch(part):
            path.append(part.removesuffix(_GRAD) if is_backward else part)
    return OpScope(tuple(path), is_backward, is_again, "jit(" in op_name)


def layer_scope(scope: OpScope) -> tuple[str, ...]:
    """The part of an op's path that looks like a layer: scopes up to the first that is an op's own.

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
