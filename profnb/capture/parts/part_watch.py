"""What is hooked so that the clock of parts knows which part of the cell runs.

Steps come from ``marking``, which sees them anyway. Here is the rest: imports, the making of models, Keras'
calls and the hooks of its callbacks, files, and datasets that the code iterates itself. Nothing is hooked in
the way of a batch but the hooks that callbacks themselves have.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.hooks import WatchedCall, replace_attribute, watch_method
from profnb.capture.library import Library
from profnb.capture.parts.in_flight import watch_in_flight
from profnb.capture.parts.part_clock import PartClock
from profnb.capture.parts.part_records import (
    BUILDING,
    CALLBACKS,
    CHECKPOINTING,
    IMPORTS,
    INPUT,
)
from profnb.capture.seams import (
    BUILDING_CALLS,
    BUILT_BY_CALL,
    CALLBACK,
    CALLBACKS_OF_LIST,
    CHECKPOINTS,
    EPOCH_END,
    EXECUTING_EAGERLY,
    FIND_AND_LOAD,
    IS_BUILT,
    MODEL,
    MODEL_FILES,
    NEXT_ELEMENT,
    RUN_BEGIN,
    RUN_CALLS,
    RUN_END,
    SAVERS,
    SESSION_HOOKS,
    Seam,
)
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import is_user_file

__all__ = ["PartWatch"]

_MOST_CALLBACKS = 200
_LAYERS = "layers"
_ENDS = ("begin", "end")
_HOOKS = (
    *(f"on_{phase}_{end}" for phase in ("train", "test", "predict", "epoch", "batch") for end in _ENDS),
    *(f"on_{phase}_batch_{end}" for phase in ("train", "test", "predict") for end in _ENDS),
)  # fmt: skip


class PartWatch:
    """Tells a clock what begins and ends.

    Args:
        clock: What is told.
        hook_failed: Given every error of a hook of ours.
        importing: Told as an import begins (`is_importing=True`) and ends.
    """

    def __init__(
        self,
        clock: PartClock,
        hook_failed: Callable[[Exception], object],
        importing: Callable[..., object],
    ) -> None:
        """Nothing is watched yet."""
        self._clock, self._hook_failed, self._importing = clock, hook_failed, importing
        self._modules = 0
        self._building: list[int] = []  # ids of what is being made, the outermost first
        self._seen: set[tuple[int, str]] = set()

    @contextmanager
    def watch_imports(self) -> Iterator[None]:
        """See modules being imported inside the block."""
        load = FIND_AND_LOAD.find()
        if load is None:
            yield
            return

        def began() -> None:
            if self._clock.enter(IMPORTS):
                self._modules = len(sys.modules)
                self._importing(is_importing=True)

        def ended() -> None:
            if self._clock.leave(IMPORTS, self._imported):
                self._importing(is_importing=False)

        watched = WatchedCall(load, began, ended, hook_failed=self._hook_failed)
        with replace_attribute(FIND_AND_LOAD.owner(), FIND_AND_LOAD.attributes[0], watched):
            yield

    def _imported(self) -> str:
        """The package that the import which just ended was of: a module that has run is put last."""
        has_new = len(sys.modules) > self._modules
        return next(reversed(sys.modules)).partition(".")[0] if has_new else ""

    @contextmanager
    def watch_tensorflow(self, tensorflow: Library) -> Iterator[None]:
        """See checkpoints and datasets that the code iterates inside the block."""
        with ExitStack() as stack:
            for seam in (*CHECKPOINTS, *SAVERS):
                name = seam.name.partition("train.")[2]
                stack.enter_context(self._watch(tensorflow, seam, CHECKPOINTING, name))
            for seam in SESSION_HOOKS:
                name = seam.name.partition("train.")[2]
                stack.enter_context(self._watch(tensorflow, seam, CALLBACKS, name))
            stack.enter_context(self._watch(tensorflow, NEXT_ELEMENT, INPUT, ""))
            yield

    def _watch(
        self, library: Library, seam: Seam, part: str, name: str
    ) -> contextlib.AbstractContextManager[None]:
        clock = self._clock
        return library.watch(
            seam, before=lambda _: clock.enter(part, name), after=lambda _: clock.leave(part)
        )

    @contextmanager
    def watch_keras(self, keras: Library) -> Iterator[None]:
        """See models being made, run and saved, and callbacks at work, inside the block."""
        clock = self._clock
        with ExitStack() as stack:
            for seam in RUN_CALLS:
                method = seam.attributes[0]

                def began(_: object, method: str = method) -> None:
                    clock.run_began(method)

                def ended(_: object, method: str = method) -> None:
                    clock.run_ended(method)

                stack.enter_context(keras.watch(seam, before=began, after=ended))
            for seam in MODEL_FILES:
                stack.enter_context(self._watch(keras, seam, CHECKPOINTING, seam.name))
            self._watch_building(keras, stack)
            base = keras.take(CALLBACK)
            for seam in RUN_BEGIN.values():

                def callbacks_begin(callbacks: Any) -> None:
                    for callback in CALLBACKS_OF_LIST.of(callbacks, ()):
                        self._watch_callback(callback, base, stack)

                stack.enter_context(keras.watch(seam, before=callbacks_begin))
            for seam in RUN_END.values():
                stack.enter_context(keras.watch(seam, before=lambda _: clock.batches_end()))
            stack.enter_context(keras.watch(EPOCH_END, before=lambda _: clock.epoch_ends()))
            stack.enter_context(watch_in_flight(clock.batches_fly, self._hook_failed))
            yield

    # Models.

    def _watch_building(self, keras: Library, stack: ExitStack) -> None:
        model_type = keras.take(MODEL)

        def began(made: Any, name: str = "") -> None:
            if not self._clock.may_build(EXECUTING_EAGERLY.find()):
                return
            if not name:
                is_model = isinstance(model_type, type) and isinstance(made, model_type)
                name = type(made).__name__ if is_model else _LAYERS
            self._building.append(id(made))
            self._clock.enter(BUILDING, name)

        def called(layer: Any) -> None:
            if not IS_BUILT.of(layer, default=True):
                began(layer)

        def ended(made: Any) -> None:
            if self._building and self._building[-1] == id(made):
                self._building.pop()
                self._clock.leave(BUILDING)

        for seam in BUILDING_CALLS:
            name = seam.name if seam.attributes == ["compile"] else ""

            def made(instance: Any, name: str = name) -> None:
                began(instance, name)

            stack.enter_context(keras.watch(seam, before=made, after=ended))
        stack.enter_context(keras.watch(BUILT_BY_CALL, before=called, after=ended))

    # Callbacks.

    def _watch_callback(self, callback: Any, base: Any, stack: ExitStack) -> None:
        """Watch the hooks that a callback's class or itself has; those of Keras' base class do nothing."""
        kind = type(callback)
        for hook in _HOOKS:
            instance_hook = vars(callback).get(hook) if hasattr(callback, "__dict__") else None
            place = (id(kind) if instance_hook is None else id(callback)), hook
            function = (
                inspect.getattr_static(kind, hook, None) if instance_hook is None else instance_hook
            )
            if function is None or function is inspect.getattr_static(base, hook, None):
                continue
            if place in self._seen or len(self._seen) > _MOST_CALLBACKS * len(_HOOKS):
                continue
            self._seen.add(place)
            with OwnFaults():  # a class that does not let itself be changed
                if instance_hook is None:
                    stack.enter_context(self._class_watched(kind, hook, function))
                else:
                    stack.enter_context(self._own_watched(callback, hook, instance_hook))

    def _class_watched(
        self, kind: type, hook: str, function: Any
    ) -> contextlib.AbstractContextManager[None]:
        clock, place = self._clock, _definition(function)

        def began(callback: object) -> None:
            clock.enter(CALLBACKS, f"{type(callback).__name__}.{hook}", place)

        def ended(_: object) -> None:
            clock.leave(CALLBACKS)

        return watch_method(kind, hook, began, ended, self._hook_failed)

    def _own_watched(
        self, callback: object, hook: str, function: Any
    ) -> contextlib.AbstractContextManager[None]:
        clock, place = self._clock, _definition(function)
        name = f"{type(callback).__name__}.{hook}"
        watched = WatchedCall(
            function,
            lambda: clock.enter(CALLBACKS, name, place),
            lambda: clock.leave(CALLBACKS),
            hook_failed=self._hook_failed,
        )
        return replace_attribute(callback, hook, watched)


def _definition(function: Any) -> tuple[str, int] | None:
    """Where a function of the user's stands; None for anybody else's."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return None
    return code.co_filename, code.co_firstlineno
