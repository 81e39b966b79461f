"""Layers called on PyTorch, marked in its trace: modules of one's own, and Keras' scopes.

PyTorch's trace does not say which module an op was called by (its stacks do, at twenty times the cost). Each
call of a module puts one event around its ops, for a sixteenth of what a small layer takes; Keras opens a
name scope for each layer, loss and optimizer, which gets one likewise. Modules have the names of
``named_modules()`` of the outermost one that is called: ``Net/encoder/0``.

Nothing is marked while no profiler of ours records PyTorch, or on other threads. ``torch.compile`` compiles
what a module calls without our hooks, so what runs in there is the module's that was compiled.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.hooks import watch
from profnb.capture.library import Library
from profnb.capture.models.model_watch import ModelWatch
from profnb.capture.models.torch_modules import compiled_in, describe_module, is_loss
from profnb.capture.profiler.torch_door import TorchDoor
from profnb.capture.seams import (
    KERAS_METRICS,
    KERAS_SCOPE,
    KERAS_SCOPE_EXIT,
    KERAS_SCOPE_LAYER,
    TORCH_CALL,
    Seam,
)

_METRICS = "metrics"


class _Turn:
    """One call of an outermost layer."""

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}  # by id of the module


class _Root:
    """A module that was called by no other one.

    Attributes:
        module: The module, if it lives.
        path: Its name, which no other has.
        paths: Of each module inside, by its id.
        is_described: Whether it is known as a model.
    """

    def __init__(self, module: Any, path: str) -> None:
        self.module, self.path, self.is_described = weakref.ref(module), path, False
        names = ((id(part), name.replace(".", "/")) for name, part in module.named_modules())
        self.paths = {part: f"{path}/{name}" if name else path for part, name in names}


class TorchScopes:
    """Marks calls of layers, on the thread that makes it.

    Args:
        door: Marks them in the trace.
        models: Told which layers ran.
        messages: Where what is lost is said.
        hook_failed: Given every error of a hook of ours.
    """

    def __init__(
        self, door: TorchDoor, models: ModelWatch, messages: list[str],
        hook_failed: Callable[[Exception], object],
    ) -> None:  # fmt: skip
        """Nothing is watched yet."""
        self._door, self._models, self._messages = door, models, messages
        self._hook_failed = hook_failed
        self._thread = threading.get_ident()
        self._open: list[tuple[object, str, Any, object]] = []  # owner, path, event, caller
        self._roots: dict[int, _Root] = {}
        self._owner_of: dict[str, int] = {}  # paths to the ids of what has them
        self._turn = _Turn()

    @contextmanager
    def watch_torch(self, torch: Library) -> Iterator[None]:
        """Mark calls of modules inside the block."""
        with torch.watch(TORCH_CALL, before=self._module_called, after=self._left):
            yield

    @contextmanager
    def watch_keras(self, keras: Library) -> Iterator[None]:
        """Mark the scopes of Keras' layers, losses and optimizers, and its metrics, inside the block."""
        hooks: tuple[tuple[Seam, str, dict[str, Any]], ...] = (
            (KERAS_SCOPE, "__enter__", {"after": self._scope_entered}),
            (KERAS_SCOPE_EXIT, "__exit__", {"before": self._left}),
            (
                KERAS_METRICS,
                "compute_metrics",
                {"before": self._metrics_begin, "after": self._left},
            ),
        )
        with ExitStack() as stack:
            for seam, name, both in hooks:
                owner = seam.owner(keras.module)
                if isinstance(owner, type) and seam.of(owner) is not None:
                    watching = watch(owner, name, hook_failed=self._hook_failed, **both)
                    stack.enter_context(watching)
            yield

    def _is_marking(self) -> bool:
        if not self._door.is_running:
            self._open.clear()
            return False
        return threading.get_ident() == self._thread

    def _enter(self, owner: object, path: str, caller: object) -> None:
        event = None if not path else self._door.mark_scope(path)
        self._open.append((owner, path, event, caller))

    def _left(self, owner: object, *_args: object, **_keywords: object) -> None:
        """What is open is left, with all inside of it that was not."""
        if threading.get_ident() != self._thread or not any(
            owner is entry[0] for entry in self._open
        ):
            return
        while self._open:
            left_owner, _path, event, caller = self._open.pop()
            if event is not None:
                event.__exit__(None, None, None)
            if left_owner is owner:
                break
        if not self._open and left_owner is caller and id(left_owner) in self._roots:
            self._describe(self._roots[id(left_owner)])

    # Modules.

    def _module_called(self, module: Any, *_args: object, **_keywords: object) -> None:
        if not self._is_marking():
            return
        if not self._open:
            self._turn = _Turn()
        calls = self._turn.calls
        calls[id(module)] = calls.get(id(module), 0) + 1
        root = self._roots.get(id(self._open[0][0])) if self._open else None
        path = None if root is None else root.paths.get(id(module))
        if path is None and self._open:
            path = f"{self._open[-1][1]}/{type(module).__name__}"
        elif path is None:
            path = self._root_of(module).path
        self._enter(module, path, module)

    def _root_of(self, module: Any) -> _Root:
        root = self._roots.get(id(module))
        if root is None or root.module() is not module:
            name = type(compiled_in(module) or module).__name__
            name = f"loss/{name}" if is_loss(module) else name
            root = self._roots[id(module)] = _Root(module, self._own_path(name, id(module)))
        return root

    def _own_path(self, path: str, owner: int) -> str:
        """The path, or with a number where something else has it."""
        at, given = 0, path
        while self._owner_of.setdefault(given, owner) != owner:
            at += 1
            given = f"{path}_{at}"
        return given

    def _describe(self, root: _Root) -> None:
        module = root.module()
        if root.is_described or module is None or root.path.startswith("loss/"):
            return
        root.is_described = True
        facts = describe_module(module, root.path, self._turn.calls)
        if facts is not None:
            self._models.add(facts)

    # Keras.

    def _scope_entered(self, scope: Any) -> None:
        if not self._is_marking():
            return
        name, layer = str(scope.name), KERAS_SCOPE_LAYER.of(scope)
        if not self._open:
            self._turn = _Turn()
        above = self._open[-1] if self._open else None
        if above is not None and layer is not None and above[3] is layer:
            self._open.append((scope, above[1], None, layer))  # Keras enters each of them twice
            return
        path = name if above is None else f"{above[1]}/{name}"
        path = path if layer is None else self._own_path(path, id(layer))
        self._enter(scope, path, layer)
        if layer is not None:
            self._models.scope_entered(layer, path, self._turn)

    def _metrics_begin(self, model: object, *_: object, **__: object) -> None:
        if self._is_marking():
            self._enter(model, _METRICS, None)
