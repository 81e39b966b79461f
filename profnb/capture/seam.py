"""A name of somebody else's that a capture hooks or reads: where it is, and what is lost without it."""

import inspect
import sys
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from profnb.capture.signals import signal_of


@dataclass(frozen=True, slots=True)
class Seam:
    """One name of somebody else's.

    Attributes:
        path: Module, colon, dotted name. Of last names with a bar between them (``new|old``), the first
            counts that is there.
        lost: What is lost without it, to follow "so".
        arguments: How many arguments it is called with by their place; -1 for what is not called.
        keywords: Those it is called with by name.
        is_on_objects: Whether only objects have it, so that nobody can look it up beforehand.
        only_with: Another path; where nothing is there, nobody misses this one: Keras 2 has no
            ``keras:ops``, and a script no shell.
        cost: What a hook on it costs, and when; "" of what is only read.
    """

    path: str
    lost: str
    arguments: int = -1
    keywords: tuple[str, ...] = ()
    is_on_objects: bool = False
    only_with: str = ""
    cost: str = ""

    @property
    def module(self) -> str:
        """The module that it is looked up in."""
        return self.path.partition(":")[0]

    @property
    def name(self) -> str:
        """The dotted name: ``profiler.experimental.Trace.set_metadata``."""
        return self.path.partition(":")[2]

    @property
    def attributes(self) -> tuple[str, ...]:
        """The last name, or several of which one will do."""
        return _alternatives(self.path)

    def owner(self, root: ModuleType | None = None) -> Any:
        """Find what has the name: a module or a class; None if that is missing itself.

        Args:
            root: The module to look in; by default ``module``, if it is imported.
        """
        at: Any = sys.modules.get(self.module) if root is None else root
        for attribute in self.name.split(".")[:-1]:
            at = _read(at, attribute)
        return at

    def find(self, root: ModuleType | None = None) -> Any:
        """Its value; None if it is missing."""
        return self.of(self.owner(root))

    def of(self, thing: object, default: Any = None) -> Any:
        """Its value on an object or in a module; a default where that has no such name, or will not tell."""
        for attribute in () if thing is None else _alternatives(self.path):
            value = _read(thing, attribute)
            if value is not None:
                return value
        return default

    def is_changed(self, value: Any) -> bool:
        """Tell if a value cannot be called as we, or the library itself, call it."""
        if self.arguments < 0:
            return False
        try:
            inspect.signature(value).bind(*range(self.arguments), **dict.fromkeys(self.keywords))
        except TypeError:
            return True
        except ValueError:  # it does not say what it takes
            return False
        return False

    def first_missing(self, root: ModuleType | None = None) -> str:
        """The shortest beginning of ``name`` that is missing: ``compat.v1`` where that is gone as a whole."""
        at: Any = sys.modules.get(self.module) if root is None else root
        parts = self.name.split(".")
        for end, attribute in enumerate(parts[:-1], 1):
            at = _read(at, attribute)
            if at is None:
                return ".".join(parts[:end])
        return self.name


def on_objects(path: str, lost: str) -> Seam:
    """A name that only objects have."""
    return Seam(path, lost, is_on_objects=True)


@cache
def _alternatives(path: str) -> tuple[str, ...]:
    return tuple(path.rpartition(".")[2].rpartition(":")[2].split("|"))


def _read(thing: object, attribute: str) -> Any:
    try:
        return getattr(thing, attribute, None)
    except Exception as error:  # properties of somebody's object may do anything
        if signal_of(error):
            raise
        return None
