"""PyTorch's modules to plain data, as ``layer_facts`` has Keras' layers; imports nothing of PyTorch."""

from collections.abc import Mapping
from typing import Any

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.seams import TORCH_COMPILED_CALL, TORCH_COMPILED_MODULE
from profnb.capture.signals import OwnFaults

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
            row = row_of[dotted] = len(rows)
            called |= {row: calls[id(part)]} if calls.get(id(part)) else {}
            rows.append(
                LayerFacts(
                    path=f"{name}/{dotted.replace('.', '/')}" if dotted else name,
                    name=short_name or name,
                    kind=kind.__name__,
                    is_library=kind.__module__.startswith(_TORCH_MODULES),
                    parent=row_of[above] if dotted else -1,
                    parameters=sum(
                        _size(weight) for weight in weights if id(weight) not in counted
                    ),
                    is_shared=called.get(row, 0) > 1,
                    is_trainable=any(bool(weight.requires_grad) for weight in weights),
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


def _size(weight: Any) -> int:
    """Count the numbers in a weight; of one that a lazy layer has not made yet there are none."""
    try:
        return int(weight.numel())
    except (RuntimeError, ValueError, TypeError):
        return 0
