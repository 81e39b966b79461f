"""One JSON value of a file to Python, with texts that can be written again."""

import json
from typing import Any


def parse_value(raw: bytes) -> Any:
    r"""Parse JSON that may be of anybody.

    What is no UTF-8, and halves of characters that an escape names alone (``"\ud800"``), which no file can
    hold, become U+FFFD.

    Raises:
        ValueError: It is no JSON.
        RecursionError: It is nested too deeply.
    """
    return _writable(json.loads(raw.decode("utf-8", "replace"), strict=False))


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, dict):
        return {_writable(name): _writable(one) for name, one in value.items()}
    return value
