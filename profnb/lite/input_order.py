"""Which array of the data goes to which input of a model."""

import re
from collections.abc import Sequence


def match_inputs(
    names: Sequence[str],
    shapes: Sequence[Sequence[int]],
    given: Sequence[Sequence[int]],
    called: Sequence[str],
) -> list[int]:
    """Which of the arrays belongs to each input of a model.

    Args:
        names: Of the inputs.
        shapes: Of the inputs; -1 for a size that is open, and the first one is not compared.
        given: The arrays' shapes.
        called: What the user called the arrays; empty for nothing.

    Raises:
        ValueError: They do not fit.
    """
    texts = ", ".join(f"{n} {_open_text(s)}" for n, s in zip(names, shapes, strict=True))
    if len(names) != len(given):
        raise ValueError(
            f"The model has {len(names)} inputs ({texts}), and {len(given)} arrays were given."
        )
    order: list[int] = []
    for name, shape in zip(names, shapes, strict=True):
        free = [at for at in range(len(given)) if at not in order]
        fitting = [at for at in free if _fits(given[at], shape)]
        parts = re.split(r"[:/]", name.removeprefix("serving_default_"))
        by_name = [at for at in fitting if called and called[at] in parts]
        if not fitting:
            raise ValueError(
                f"The model's input {name} has the shape {_open_text(shape)}; the data has "
                f"{', '.join(str(tuple(map(int, given[at]))) for at in free)}."
            )
        order.append((by_name or fitting)[0])
    return order


def _open_text(shape: Sequence[int]) -> str:
    """A shape, with what is open as None."""
    return str(tuple(None if size == -1 else int(size) for size in shape))


def _fits(given: Sequence[int], shape: Sequence[int]) -> bool:
    return len(given) == len(shape) and all(
        want in (-1, have) for have, want in zip(given[1:], shape[1:], strict=True)
    )
