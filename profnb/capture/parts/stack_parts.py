"""One look at a thread's stack to the part of the cell that it was in.

Read from the outermost frame to the innermost; what comes further in counts more, as a part inside another
is charged to the inner one. A stack in which a callback of a ``fit`` saves the weights::

    frame                              the part from here on
    -----                              ---------------------
    <module>, Cell [3]:8               other Python, at that line
    Trainer.fit                        a run: fit
    CallbackList.on_epoch_end          callbacks
    Saves.on_epoch_end, Cell [2]:4     callbacks (Saves.on_epoch_end), where it stands
    Model.save_weights                 checkpointing (Model.save_weights), called at Cell [2]:5

Which function it is, is told by its name and the end of its file's path: the libraries' public names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from profnb.capture.parts.part_records import (
    BUILDING,
    CALLBACKS,
    CHECKPOINTING,
    IMPORTS,
    INPUT,
    OTHER,
)
from profnb.capture.source.user_code import is_user_file

__all__ = ["RUN", "StackPart", "part_of_stack"]

Frame = tuple[str, str, int, int]  # name with its class, file, first line, line that runs
RUN = "run"  # in a fit, evaluate or predict, and nothing more is known
_CALLBACK_LIST, _COMPILE, _LAYERS = "callback list", "Model.compile", "layers"
_KERAS = r"/(?:tf_)?keras/(?:src/)?"
# What a function is, by the end of its name and the end of its file's path.
_KINDS = tuple(
    (kind, re.compile(name), re.compile(file))
    for kind, name, file in (
        (IMPORTS, r"^_find_and_load$", r"importlib\._bootstrap>$"),
        (RUN, r"(?:^|\.)(?:fit|evaluate|predict)$", rf"{_KERAS}.*train(?:er|ing|ing_v1)\.py$"),
        (
            _CALLBACK_LIST,
            r"(?:^|CallbackList\.)on_\w+$",
            rf"{_KERAS}callbacks(?:/callback_list)?\.py$",
        ),
        (
            CALLBACKS,
            r"Hook\.(?:before|after)_run$|^(?:before|after)_run$",
            r"/tensorflow/python/training/\w+hooks?\.py$",
        ),
        (
            CHECKPOINTING,
            r"(?:^|\.)(?:save\w*|load_weights|load_model|export|write|restore|read|load)$",
            rf"{_KERAS}(?:saving/.*sav\w*|models/model|engine/training|engine/functional)\.py$"
            r"|/tensorflow/python/(?:checkpoint/\w+|training/saver|saved_model/(?:save|load)\w*)\.py$"
            r"|/torch/serialization\.py$|/orbax/",
        ),
        (
            BUILDING,
            r"(?:^|\.)(?:__init__|add|build|_maybe_build|compile|symbolic_call|compute_output_spec)$",
            rf"{_KERAS}(?:models|layers|engine|trainers|ops/operation|backend/\w+/(?:layer|trainer))\b",
        ),
        (
            INPUT,
            r"(?:^|\.)__next__$",
            r"/tensorflow/python/data/ops/iterator_ops\.py$|/torch/utils/data/dataloader\.py$",
        ),
    )
)
_MODELS = re.compile(r"(?:^|\.)(Sequential|Functional|Model)\.")


@dataclass(frozen=True, slots=True)
class StackPart:
    """The part of the cell that a stack is in.

    Attributes:
        part: One of ``PARTS``, or ``RUN``.
        name: Which one, as ``CellPart`` has it.
        run: The innermost run of Keras': "fit", "validation", "evaluate", "predict"; "" outside of one.
        file: Where it was called, or a callback stands; "" where that is not the user's.
        line: That line.
    """

    part: str = OTHER
    name: str = ""
    run: str = ""
    file: str = ""
    line: int = 0


@lru_cache(maxsize=1 << 16)
def _kind_of(name: str, file: str) -> str:
    """What a function is; "" for nothing special."""
    path = file.replace("\\", "/")
    return next(
        (kind for kind, *is_so in _KINDS if is_so[0].search(name) and is_so[1].search(path)), ""
    )


def part_of_stack(stack: Sequence[Frame]) -> StackPart:
    """The part that a stack is in.

    Args:
        stack: Its frames, the outermost first, without profnb's own.
    """
    walk = _Walk()
    for at, (name, file, first_line, line) in enumerate(stack):
        kind = _kind_of(name, file)
        if kind == IMPORTS:
            return StackPart(IMPORTS, _package(stack[at:]), walk.now.run, *walk.place)
        if walk.hook:
            walk.name_callback(name, file, first_line, is_special=bool(kind))
        if is_user_file(file):
            walk.place = file, line
            if walk.now.part == OTHER:
                walk.now = StackPart(OTHER, "", walk.now.run, file, line)
        if kind and (kind != walk.now.part or kind == RUN):
            walk.enter(kind, name)
    return walk.now


class _Walk:
    """Where a walk into a stack is.

    Attributes:
        now: The part so far.
        place: The innermost line of the user's so far.
        hook: The hook of callbacks that runs, until it is known whose.
    """

    def __init__(self) -> None:
        self.now, self.place, self.hook = StackPart(), ("", 0), ""

    def enter(self, kind: str, name: str) -> None:
        """A function of some kind is called."""
        called, run = _last(name), self.now.run
        if kind == RUN:
            is_validation = called == "evaluate" and run == "fit" and self.now.part == RUN
            run = "validation" if is_validation else called
            self._begin(RUN, "", run)
        elif kind == _CALLBACK_LIST:
            if self.now.part != CALLBACKS:
                self.now, self.hook = StackPart(CALLBACKS, called, run), called
        elif kind == BUILDING:
            if self.now.part in (OTHER, CALLBACKS):
                self._begin(BUILDING, _built(name), run)
        elif kind != INPUT:
            self._begin(kind, _with_class(name.replace(".<locals>", "")), run)
        elif self.now.part != RUN:
            self._begin(INPUT, "", run)

    def _begin(self, part: str, name: str, run: str) -> None:
        self.now, self.hook = StackPart(part, name, run, *self.place), ""

    def name_callback(self, name: str, file: str, first_line: int, *, is_special: bool) -> None:
        """The next function of a callback: the user's first one says whose hook it is, else a library's."""
        if is_user_file(file):
            self.now = replace(
                self.now, name=_hook_name(name, self.hook), file=file, line=first_line
            )
            self.hook = ""
        elif not is_special and _last(name).startswith("on_"):
            self.now = replace(self.now, name=_hook_name(name, self.hook))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _with_class(name: str) -> str:
    """``Saves.on_epoch_end`` of ``train.<locals>.Saves.on_epoch_end``."""
    return ".".join(name.split(".")[-2:])


def _hook_name(name: str, hook: str) -> str:
    """What a callback's hook is called; one given as a function has no class of its own."""
    if not _last(name).startswith("on_"):
        return f"LambdaCallback.{hook}"
    kind, _, name_there = _with_class(name).rpartition(".")
    # Keras' hooks of a phase's batches call those of all phases; any other name may be one of several.
    return f"{kind}.{name_there if name_there.startswith('on_batch_') else hook}".lstrip(".")


def _built(name: str) -> str:
    """What is made: a model by its class, a layer, or ``Model.compile``."""
    if _last(name) == "compile":
        return _COMPILE
    model = _MODELS.search(name)
    return model[1] if model is not None else _LAYERS


def _package(stack: Sequence[Frame]) -> str:
    """The package that is imported: that of the first module whose code runs."""
    for name, file, *_ in stack:
        if name == "<module>":
            parts = file.replace("\\", "/").split("/")
            for place in ("site-packages", "dist-packages"):
                if place in parts:
                    return parts[parts.index(place) + 1].removesuffix(".py")
            return parts[-2] if parts[-1] == "__init__.py" else parts[-1].removesuffix(".py")
    return ""
