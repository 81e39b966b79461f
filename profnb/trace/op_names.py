"""Names of events to the ops they are.

Source: openxla/xla tf_op_utils.cc (ParseTfOpFullname, IsJaxOpType; 5a3e9fa3).
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from profnb.trace.names import is_host_collective

_TF_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")
_TF_TYPE = re.compile(r"[A-Z_][a-zA-Z0-9_]*")
_JAX_TYPE = re.compile(r"([a-z_][a-z0-9_]*)(\[.*\])?", re.DOTALL)
_DATASET = "Dataset"
# What PyTorch calls its exchange between devices (``nccl:all_reduce``): annotations around ops, no ops.
_BACKENDS = frozenset(
    {"nccl", "gloo", "hccl", "mpi", "ucc", "xccl", "rccl", "cncl", "mccl", "eccl"}
)
_PACKING = ("ConcatV2", "SplitV")
_NUMBER, _NUMBERS = re.compile(r"_\d+$"), re.compile(r"(_\d+)+$")
# Every op of a tf.function carries it; it tells nothing and pushes the layer's name out of sight.
_CALL = re.compile(r"(?:(?:Stateful)?PartitionedCall(?:_\d{1,9})?/)+")


def parse_op(event_name: str) -> tuple[str, str] | None:
    """Split a host event's name into (op name, op type), or None if it is no op.

    ``model/dense/MatMul:MatMul`` is an op named ``model/dense/MatMul``; ``Iterator::Root::Map`` is an
    op of type Dataset that keeps its full name; ``FunctionRun`` is none.
    """
    name, colon, op_type = event_name.partition(":")
    if not colon or name in _BACKENDS:
        return None
    if name == "Iterator":
        return event_name, _DATASET
    if _TF_NAME.fullmatch(name) and _TF_TYPE.fullmatch(op_type):
        return name, op_type
    jax = _JAX_TYPE.fullmatch(op_type)
    if jax:
        return name, jax.group(1)
    return (name, "") if not op_type else None


def without_call(op_name: str) -> str:
    """An op's name without the calls of functions that it stands in."""
    call = _CALL.match(op_name)
    return op_name[call.end() :] if call and call.end() < len(op_name) else op_name


def without_number(name: str) -> str:
    """A name without the number that made it unique: ``dense_1`` is ``dense``, ``dense_1_2`` ``dense_1``."""
    return _NUMBER.sub("", name)


def without_numbers(name: str) -> str:
    """A name without what Keras and then TensorFlow made it unique by: ``sgd_1_1`` becomes ``sgd``."""
    return _NUMBERS.sub("", name)


def packing_scopes(op_names: Iterable[str]) -> frozenset[str]:
    """The scopes that collectives are directly in, which TensorFlow gives the optimizer's or a layer's name.

    Beside ``sgd/CollectiveReduceV2_1`` stand ``sgd/concat_1``, which packs many gradients into the one tensor
    that is exchanged, and ``sgd/split_1``.
    """
    split = (name.rpartition("/") for name in op_names)
    return frozenset(
        scope
        for scope, _, last_part in split
        if scope and is_host_collective(f":{without_numbers(last_part)}")
    )


def is_packing(op_name: str, op_type: str, scopes: AbstractSet[str]) -> bool:
    """Whether an op packs or unpacks what is exchanged, in one of ``packing_scopes``."""
    return op_type in _PACKING and op_name.rpartition("/")[0] in scopes
