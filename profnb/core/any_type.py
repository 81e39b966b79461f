"""The type variable of what takes values of any one type."""

from typing import TypeVar

T = TypeVar("T")
