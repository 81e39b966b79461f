"""Python's parser for texts that were compiled already: the user's cells and modules, read once more."""

import ast
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["parse_again", "warned_before"]


def parse_again(text: str) -> ast.Module:
    r"""What ``ast.parse`` gives, without a warning about the text.

    Python warned of ``"\d"`` where it compiled the code, and would again at every reading of ours.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As ``ast.parse``.
    """
    with warned_before():
        return ast.parse(text)


@contextmanager
def warned_before() -> Iterator[None]:
    """Show no warning from compiling a text inside the block, nor have it raise as the user's filters say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
