"""The names that optimizers' scopes have: what is known without a live model."""

import numpy as np

from profnb.core.columns import Bools
from profnb.subjects.ops.op_table import OpTable
from profnb.trace.names import is_host_collective
from profnb.trace.op_names import is_packing, packing_scopes, without_numbers

__all__ = ["OPTIMIZERS", "find_optimizer_ops", "is_of_optimizer", "is_optimizer"]

OPTIMIZERS = frozenset(
    {
        "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "gradientdescent", "lamb",
        "lion", "loss_scale_optimizer", "lossscaleoptimizer", "momentum", "muon", "nadam", "optimizer",
        "rmsprop", "sgd",
    }
)  # fmt: skip
_WHOLE_UPDATES = ("ResourceApply", "ResourceSparseApply", "Apply", "SparseApply")


def is_optimizer(scope: str) -> bool:
    """Whether a scope is an optimizer's: ``Adam``, ``sgd_1_1``."""
    return without_numbers(scope.lower()) in OPTIMIZERS


def is_of_optimizer(op_name: str) -> bool:
    """Whether an op was made in an optimizer's scope."""
    return any(map(is_optimizer, op_name.split("/")))


def find_optimizer_ops(ops: OpTable, long_ps: int) -> Bools:
    """Which of N ops are an optimizer's and could be fused, shape (N,).

    An exchange of gradients, and what packs them for it, has the optimizer's name and is not its own. A long
    op that does a variable's whole update (``ResourceApplyAdam``) is one pass over its memory already.
    """
    packing = packing_scopes(ops.op_name)
    keys = zip(ops.op_name, ops.op_type, strict=True)
    is_its = np.array(
        [
            is_of_optimizer(name)
            and not (is_host_collective(f"{name}:{kind}") or is_packing(name, kind, packing))
            for name, kind in keys
        ],
        np.bool_,
    )
    is_whole = np.array([kind.startswith(_WHOLE_UPDATES) for kind in ops.op_type], np.bool_)
    is_its &= ~(is_whole & (ops.self_ps >= long_ps * ops.occurrences))
    return is_its
