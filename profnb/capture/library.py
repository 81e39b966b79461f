"""An imported library in one capture: its seams looked up and hooked, and what is missing said."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any

from profnb.capture.hooks import guarded, replace_attribute, watch, watched_call
from profnb.capture.seams import SEAMS, SHELL_INSTANCE, Seam

_TITLES = {
    "tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch", "keras": "Keras", "sys": "Python",
    "importlib": "Python",
}  # fmt: skip


class Library:
    """One imported library in one capture.

    Args:
        module: tensorflow, jax, torch, keras, tf_keras, IPython, or what of Python holds seams.
        hook_failed: Given every error of a hook of ours.

    Attributes:
        module: The library.
        missing: Its seams that are not there.
        changed: Its seams that cannot be called any more as they were.
    """

    def __init__(
        self, module: ModuleType, hook_failed: Callable[[Exception], object] = lambda _: None
    ) -> None:
        """Look up every seam of the library."""
        self.module, self._hook_failed = module, hook_failed
        self._values: dict[Seam, Any] = {
            seam: seam.find(_root(self, seam)) for seam in SEAMS if _is_expected(self, seam)
        }
        self.missing = [seam for seam, value in self._values.items() if value is None]
        self.changed = [
            seam
            for seam, value in self._values.items()
            if value is not None and seam.is_changed(value)
        ]

    def take(self, seam: Seam) -> Any:
        """The value of a seam; None where it is missing or changed."""
        return None if seam in self.changed else self._values.get(seam)

    def guarded(self, hook: Callable[..., object]) -> Callable[..., object]:
        """Keep the faults of a hook from the code, where no seam is watched."""
        return guarded(hook, self._hook_failed)

    def watch(self, seam: Seam, **hooks: Callable[..., object]) -> AbstractContextManager[None]:
        """Run hooks around a method, given its arguments; see ``hooks.watch``."""
        if self.take(seam) is None:
            return nullcontext()
        owner, name = seam.owner(_root(self, seam)), seam.attributes[0]
        return self._entered(watch(owner, name, hook_failed=self._hook_failed, **hooks))

    @contextmanager
    def watch_everywhere(
        self, seam: Seam, function: Any, **hooks: Callable[..., object]
    ) -> Iterator[None]:
        """Run hooks around a function of a profiler, under every module that holds it by its name.

        It is public in several places (``tf.compat.v2`` too), its own module calls it, and a notebook may
        have imported it, under any name.
        """
        held = _held_by_modules(function, seam.attributes)
        with ExitStack() as stack:
            calls = watched_call(function, hook_failed=self._hook_failed, **hooks)
            watched = stack.enter_context(calls)
            for module, name in held:
                stack.enter_context(self._entered(replace_attribute(module, name, watched)))
            yield

    @contextmanager
    def replace_everywhere(self, seam: Seam, value: Any, other: Any) -> Iterator[None]:
        """Give a public name another value, and every name in a notebook that holds it, inside the block."""
        with ExitStack() as stack:
            for module, name in _held_by_modules(value, seam.attributes):
                if not module.__name__.startswith("tensorflow.python"):
                    stack.enter_context(self._entered(replace_attribute(module, name, other)))
            yield

    def replace(self, seam: Seam, value: object) -> AbstractContextManager[None]:
        """Give a name another value inside the block; nothing where its owner is missing."""
        owner = seam.owner(self.module)
        if owner is None:
            return nullcontext()
        return self._entered(replace_attribute(owner, seam.attributes[0], value))

    @contextmanager
    def _entered(self, hooking: AbstractContextManager[None]) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(hooking)
            except Exception as error:  # noqa: BLE001 - a class that does not let itself be changed
                self._hook_failed(error)
            yield


def _held_by_modules(value: object, names: Iterable[str]) -> list[tuple[ModuleType, str]]:
    """The modules that hold a value by one of some names, or a notebook by any, and that name.

    There are thousands, at each capture's begin: they are looked through without a loop around them.
    """
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    holders = [
        (module, name) for name in names for module in modules if vars(module).get(name) is value
    ]
    main = sys.modules.get("__main__")
    if isinstance(main, ModuleType):
        holders += [(main, name) for name, held in list(vars(main).items()) if held is value]
    return list({(id(module), name): (module, name) for module, name in holders}.values())


def explain_missing(libraries: Iterable[Library]) -> list[str]:
    """One sentence about all that is missing or changed; no sentence if nothing is.

    For instance "TensorFlow 2.23.0 hides compat.v1, so session runs are not traced."
    """
    clauses = [_clause_of(library) for library in libraries if library.missing or library.changed]
    return ["; ".join(clauses) + "."] if clauses else []


def modules_beside() -> list[ModuleType]:
    """Python's own modules that hold seams, and IPython; not what code puts in its place, without a shell."""
    modules = [sys.modules[name] for name in ("sys", "importlib")]
    ipython = sys.modules.get("IPython")
    if ipython is not None and SHELL_INSTANCE.owner() is not None:
        modules.append(ipython)
    return modules


def _clause_of(library: Library) -> str:
    module, verbs = library.module, []
    if library.missing:
        names = (seam.first_missing(_root(library, seam)) for seam in library.missing)
        verbs.append(f"hides {_listed(names)}")
    if library.changed:
        verbs.append(f"has changed {_listed(seam.name for seam in library.changed)}")
    title = _TITLES.get(module.__name__, module.__name__)
    version = str(getattr(module, "__version__", ""))
    losses = _listed(seam.lost for seam in (*library.missing, *library.changed))
    return f"{f'{title} {version}'.strip()} {' and '.join(verbs)}, so {losses}"


def _is_expected(library: Library, seam: Seam) -> bool:
    """Whether a library should have a seam: by its name, which tf_keras shares, or in a module inside."""
    name = library.module.__name__
    is_its = seam.module == name.removeprefix("tf_") or seam.module.startswith(f"{name}.")
    if not is_its or seam.is_on_objects:
        return False
    beside = Seam(seam.only_with, "")
    return not seam.only_with or beside.find(_root(library, beside)) is not None


def _root(library: Library, seam: Seam) -> ModuleType | None:
    return None if seam.module.startswith(f"{library.module.__name__}.") else library.module


def _listed(words: Iterable[str]) -> str:
    """Distinct words: ``a``, ``a and b``, ``a, b and c``."""
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} and {last}" if others else last
