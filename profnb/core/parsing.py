"""Python's parser for texts that were compiled already: the user's cells and modules, read once more."""

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_MAY_WARN = re.compile(r"\\|\d[A-Za-z]")  # an escape that is none, a number that ends in a keyword


def parse_again(text: str) -> ast.Module:
    r"""Parse as ``ast.parse`` does, without a warning about the text.

    Python warned of ``"\d"`` where it compiled the code, and would again at every reading of ours.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As ``ast.parse``.
    """
    if _MAY_WARN.search(text) is None:
        return ast.parse(text)
    with warned_before():  # which makes Python show once more what it shows once a place
        return ast.parse(text)


@contextmanager
def warned_before() -> Iterator[None]:
    """Show no warning from compiling a text inside the block, nor have it raise as the user's filters say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
