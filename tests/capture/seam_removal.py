"""Names of others' taken away, from all or from our eyes only, for the tests that walk the list of seams."""

import sys
from operator import attrgetter

from profnb.capture.seams import Seam


class Without:
    """A module in which one name is missing."""

    def __init__(self, module, name):
        self._module, self._name = module, name

    def __getattr__(self, name):
        if name == self._name:
            raise AttributeError(name)
        return getattr(self._module, name)


def is_missed(seam):
    """Whether a library that is imported should have the name, so that its absence is told."""
    if seam.is_on_objects or seam.module not in sys.modules:
        return False
    return not seam.only_with or Seam(seam.only_with, "").find() is not None


def remove(monkeypatch, seam):
    """Take a name away from all that have it; whether it is gone then."""
    root = sys.modules[seam.module]
    *path, _ = seam.name.split(".")
    if type(seam.owner()).__name__ == "TFModuleWrapper":  # does not let go of names: another one in its place
        owner = attrgetter(".".join(path[:-1]))(root) if path[:-1] else root
        monkeypatch.setattr(owner, path[-1], Without(seam.owner(), *seam.attributes))
        return seam.find() is None
    owner = seam.owner()
    try:
        for attribute in seam.attributes:
            for holder in getattr(owner, "__mro__", [owner]):
                if attribute in vars(holder) and not attribute.startswith("__"):
                    monkeypatch.delattr(holder, attribute)
    except TypeError:  # a class in C does not let go of names
        return False
    return seam.find() is None


def hide(monkeypatch, seam):
    """Take a name away from our eyes only, as if the library called it something else now."""
    whole = Seam.of
    monkeypatch.setattr(Seam, "of", lambda self, thing, default=None: default if self == seam else whole(self, thing, default))


def assert_told(notes, seam, *, is_missed):
    """One sentence names the loss, where a name is missed; no hook failed."""
    assert [note for note in notes if "A hook of" in note] == []
    sentences = [note for note in notes if " hides " in note]
    assert len(sentences) == is_missed
    assert all(seam.lost in sentence for sentence in sentences)
