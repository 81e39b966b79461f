"""The names that optimizers' scopes have: what is known without a live model."""

from profnb.trace.names import without_numbers

OPTIMIZERS = frozenset(
    {
        "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "gradientdescent", "lamb",
        "lion", "loss_scale_optimizer", "lossscaleoptimizer", "momentum", "muon", "nadam", "optimizer",
        "rmsprop", "sgd",
    }
)  # fmt: skip


def is_optimizer(scope: str) -> bool:
    """Whether a scope is an optimizer's: ``Adam``, ``sgd_1_1``."""
    return without_numbers(scope.lower()) in OPTIMIZERS


def is_of_optimizer(op_name: str) -> bool:
    """Whether an op was made in an optimizer's scope."""
    return any(map(is_optimizer, op_name.split("/")))
