"""Looks at a thread's stack to the part of the cell that each was in, and the way there.

Read from the outermost frame to the innermost; what comes further in counts more, as a part inside another
is charged to the inner one. A stack in which a callback of a ``fit`` saves the weights::

    frame                              the part from here on
    -----                              ---------------------
    <module>, Cell [3]:8               other Python, at that line
    Trainer.fit                        a run: fit
    CallbackList.on_epoch_end          callbacks
    Saves.on_epoch_end, Cell [2]:4     callbacks (Saves.on_epoch_end), where it stands
    Model.save_weights                 checkpointing (Model.save_weights), called at Cell [2]:5

The way there is every function of the user's own, call of Keras' and part that was entered, from the cell on:
``fit``, ``Saves.on_epoch_end``, ``Model.save_weights``.

Which function it is, is told by its name and the end of its file's path: the libraries' public names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import NodeKey
from profnb.capture.source.user_code import is_user_file

Frame = tuple[str, str, int, int]  # name with its class, file, first line, line that runs
RUN = "run"  # in a fit, evaluate or predict, and nothing more is known
_CALLBACK_LIST, _COMPILE, _BUILDING_LAYERS = "callback list", "Model.compile", "layers"
_KERAS_FILES = r"/(?:tf_)?keras/(?:src/)?"
_ITERATORS = r"/tensorflow/python/data/ops/iterator_ops\.py$|/torch/utils/data/dataloader\.py$"
# What a function is, by the end of its name and the end of its file's path.
_KINDS_OF_FUNCTIONS = [
    (kind, re.compile(name), re.compile(file))
    for kind, name, file in (
        (parts.IMPORTS, r"^_find_and_load$", r"importlib\._bootstrap>$"),
        (RUN, r"(?:^|\.)(?:fit|evaluate|predict)$", rf"{_KERAS_FILES}.*train(?:er|ing|ing_v1)\.py$"),
        (_CALLBACK_LIST, r"(?:^|CallbackList\.)on_\w+$", rf"{_KERAS_FILES}callbacks(?:/callback_list)?\.py$"),
        (parts.CALLBACKS, r"Hook\.(?:before|after)_run$|^(?:before|after)_run$",
         r"/tensorflow/python/training/\w+hooks?\.py$"),
        (parts.CHECKPOINTING, r"(?:^|\.)(?:save\w*|load_weights|load_model|export|write|restore|read|load)$",
         rf"{_KERAS_FILES}(?:saving/.*sav\w*|models/model|engine/training|engine/functional)\.py$"
         r"|/tensorflow/python/(?:checkpoint/\w+|training/saver|saved_model/(?:save|load)\w*)\.py$"
         r"|/torch/serialization\.py$|/orbax/"),
        (parts.INTERPRETER,
         r"(?:^|\.)Interpreter\.(?:__init__|allocate_tensors|resize_tensor_input|[sg]et_tensor)$",
         r"/(?:ai_edge_litert|tensorflow/lite/python)/interpreter\.py$"),
        (parts.BUILDING,
         r"(?:^|\.)(?:__init__|add|adapt|build|_maybe_build|compile|symbolic_call|compute_output_spec)$",
         rf"{_KERAS_FILES}(?:models|layers|engine|trainers|ops/operation|backend/\w+/(?:layer|trainer))\b"),
        (parts.INPUT, r"(?:^|\.)__next__$", _ITERATORS),
        (parts.SETTING_UP,
         r"^(?:OwnedIterator|_(?:Base|SingleProcess|MultiProcessing)DataLoaderIter)\.__init__$", _ITERATORS),
        (parts.TRACING, r"^(?:trace_function|trace_to_jaxpr\w*|lower_jaxpr\w*|lower_sharding\w*)$",
         r"/tensorflow/python/eager/polymorphic_function/\w+\.py$|/jax/_src/[\w/]+\.py$"),
        (parts.COMPILATION, r"^(?:compile_or_get_cached|_compile)$",
         r"/jax/_src/compiler\.py$|/torch/_dynamo/convert_frame\.py$"),
    )
]  # fmt: skip
# They belong to what called them.
_OF_NO_PART = (parts.SETTING_UP, parts.TRACING, parts.COMPILATION)
# A framework's code that runs ops, where no call of a compiled function is on the stack.
_RUNS_OPS = re.compile(
    r"/tensorflow/python/(?:ops|eager)/"
    rf"|{_KERAS_FILES}(?:layers|ops|models|backend|losses|metrics|optimizers|engine|random)\b"
    r"|/jax/_src/(?:numpy|lax|nn|scipy|random|interpreters|ad_util)\b"
)
_READ_VALUES = ("numpy", "__array__", "convert_to_numpy", "__float__", "__int__", "__bool__")
# Where a look finds TensorFlow that took Python's values to a tensor: an op itself runs further in.
_CONVERTS = re.compile(
    r"/tensorflow/python/(?:framework/(?:constant_op|tensor_conversion\w*)|ops/weak_tensor_ops)\.py$"
)
_COMPILED = "/tensorflow/python/eager/polymorphic_function/"
_LEAVES = re.compile(rf"{_KERAS_FILES}utils/traceback_utils\.py$")
# Code that is not the user's, whatever calls it, and what waits for other threads.
_FRAMEWORKS = re.compile(
    r"/(?:site|dist)-packages/(?:tensorflow|(?:tf_)?keras|jax|torch|ai_edge_litert)/"
)
_WAITS = re.compile(r"/python3[^/]*/(?:threading|queue|selectors|subprocess)\.py$")
_DEEPEST_PART = 40
_MODEL_METHODS = re.compile(r"(?:^|\.)(Sequential|Functional|Model)\.")


@dataclass(frozen=True, slots=True)
class StackPart:
    """The part of the cell that a stack is in.

    Attributes:
        part: One of ``PARTS``, or ``RUN``.
        name: Which one, as ``CellPart`` has it.
        run: The innermost run of Keras': "fit", "validation", "evaluate", "predict"; "" outside of one.
        file: Where it was called, or a callback stands; "" where that is not the user's.
        line: That line.
        path: The way there, the outermost first.
    """

    part: str = parts.OTHER
    name: str = ""
    run: str = ""
    file: str = ""
    line: int = 0
    path: tuple[NodeKey, ...] = field(default=(), compare=False)


@lru_cache(maxsize=1 << 16)
def _kind_of(name: str, file: str) -> str:
    """Say what kind a function is; "" for nothing special."""
    path = file.replace("\\", "/")
    kinds = (
        kind
        for kind, of_name, at in _KINDS_OF_FUNCTIONS
        if of_name.search(name) and at.search(path)
    )
    return next(kinds, "")


@lru_cache(maxsize=1 << 12)
def _library_of(file: str) -> tuple[str, bool, bool, str]:
    """Tell of a file: the leaf that ends in it, or ""; if it calls what is compiled, runs ops; which ops."""
    path = file.replace("\\", "/")
    leaves = ((parts.AROUND, _LEAVES), (parts.WAITING, _WAITS), (parts.FRAMEWORK, _FRAMEWORKS))
    leaf = next((kind for kind, pattern in leaves if pattern.search(path)), "")
    op = parts.TO_TENSORS if _CONVERTS.search(path) else ""
    return leaf, _COMPILED in path, _RUNS_OPS.search(path) is not None, op


def is_named(name: str, file: str) -> bool:
    """Tell whether a library's function is one that a part is named after: a callback's hook, what saves."""
    return _last(name).startswith("on_") or _kind_of(name, file) != ""


def enters_framework(name: str, file: str) -> bool:
    """Tell whether a framework's function runs ops, calls what is compiled, or reads values."""
    leaf, is_compiled, has_ops, _ = _library_of(file)
    return is_compiled or has_ops or (leaf == parts.FRAMEWORK and _last(name) in _READ_VALUES)


def part_of_stack(stack: Sequence[Frame], base: int = 0) -> StackPart:
    """Find the part that a stack is in.

    Args:
        stack: Its frames, the outermost first, without profnb's own.
        base: How many of them called the cell, and are none of its functions.
    """
    walk = _Walk()
    for at, (name, file, first_line, line) in enumerate(stack):
        kind = _kind_of(name, file)
        if kind == parts.IMPORTS:
            walk.now = StackPart(parts.IMPORTS, _package(stack[at:]), walk.now.run, *walk.place)
            walk.add(NodeKey(parts.IMPORTS, walk.now.name))
            break
        if walk.hook:
            walk.name_callback(name, file, first_line, is_special=bool(kind))
        walk.see_library(name, file)
        if is_user_file(file):
            walk.enter_own(name if at >= base else "<cell>", file, first_line, line)
        if kind in _OF_NO_PART:
            walk.add(NodeKey(kind))
        elif kind and (kind != walk.now.part or kind == RUN):
            walk.enter(kind, name)
    return walk.result()


class _Walk:
    """A walk into a stack.

    Attributes:
        now: The part so far.
        place: The innermost line of the user's so far.
        hook: The hook of callbacks that runs, until it is known whose.
        path: The way so far.
        leaf: What it ends in: a framework's code, a wait, or a call of Keras' that is being left, as what it
            held is freed and its frame is gone; "" for none of them.
        runs_ops: Whether ops are run one by one since the innermost line of the user's.
        op: What these are, where the innermost frame makes tensors of Python's values.
    """

    def __init__(self) -> None:
        self.now, self.place, self.hook = StackPart(), ("", 0), ""
        self.leaf = self.op = ""
        self.runs_ops: bool | None = False
        self.path: list[NodeKey] = []

    def add(self, place: NodeKey) -> None:
        """Enter a node; one that calls itself is one."""
        if not self.path or self.path[-1] != place:
            self.path.append(place)

    def result(self) -> StackPart:
        """Give what was found; lines of the cell itself are a node where nothing was called."""
        if self.now.part == parts.OTHER and not self.path and self.place[0]:
            self.path.append(NodeKey(parts.LINES, "", *self.place))
        end = self.path[-1].kind if self.path else ""
        if self.runs_ops and end in (parts.LINES, parts.CALLBACKS):
            self.path.append(NodeKey(parts.EAGER, self.op))
        elif end == parts.LINES and self.leaf:
            self.path.append(NodeKey(self.leaf))
        return replace(self.now, path=tuple(self.path[:_DEEPEST_PART]))

    def see_library(self, name: str, file: str) -> None:
        """A framework's file tells whether ops run: not in a call of what is compiled, nor in a read."""
        self.leaf, is_compiled, has_ops, self.op = _library_of(file)
        if is_compiled or (has_ops and _last(name) in _READ_VALUES):
            self.runs_ops = None
        elif self.runs_ops is False and has_ops:
            self.runs_ops = True

    def enter_own(self, name: str, file: str, first_line: int, line: int) -> None:
        """Enter a function of the user's, or the cell itself."""
        self.place, self.runs_ops = (file, line), False
        if self.now.part == parts.OTHER:
            self.now = StackPart(parts.OTHER, "", self.now.run, file, line)
        hook = parts.CALLBACKS, file, first_line
        is_of_hook = (self.now.part, self.now.file, self.now.line) == hook
        if not is_of_hook and not _last(name).startswith("<"):
            self.add(NodeKey(parts.LINES, _outside(name), file, first_line))

    def enter(self, kind: str, name: str) -> None:
        """Enter a function of some kind."""
        called, run = _last(name), self.now.run
        if kind == RUN:
            is_validation = called == "evaluate" and run == "fit" and self.now.part == RUN
            run = "validation" if is_validation else called
            self._begin(RUN, "", run)
        elif kind == _CALLBACK_LIST:
            if self.now.part != parts.CALLBACKS:
                self.now, self.hook = StackPart(parts.CALLBACKS, called, run), called
                self.add(NodeKey(parts.CALLBACKS, called))
        elif kind == parts.BUILDING:
            if self.now.part in (parts.OTHER, parts.CALLBACKS):  # a model by its class, or a layer
                model = _MODEL_METHODS.search(name)
                built = _BUILDING_LAYERS if model is None else model[1]
                built = {"compile": _COMPILE, "adapt": _with_class(name)}.get(called, built)
                self._begin(parts.BUILDING, built, run)
        elif kind != parts.INPUT:
            self._begin(kind, _outside(name), run)
        elif self.now.part != RUN:
            self._begin(parts.INPUT, "", run)
        else:
            self.add(NodeKey(parts.INPUT))

    def _begin(self, part: str, name: str, run: str) -> None:
        self.now, self.hook = StackPart(part, name, run, *self.place), ""
        self.add(NodeKey(parts.CALL, run) if part == RUN else NodeKey(part, name, *self.place))

    def name_callback(self, name: str, file: str, first_line: int, *, is_special: bool) -> None:
        """The next function of a callback: the user's first one says whose hook it is, else a library's."""
        called = _hook_name(name, self.hook)
        if is_user_file(file):
            self.now = replace(self.now, name=called, file=file, line=first_line)
            self.hook = ""
        elif not is_special and _last(name).startswith("on_"):
            self.now = replace(self.now, name=called)
        if self.path[-1].kind == parts.CALLBACKS:
            self.path[-1] = NodeKey(parts.CALLBACKS, self.now.name, self.now.file, self.now.line)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _with_class(name: str) -> str:
    """``Saves.on_epoch_end`` of ``train.<locals>.Saves.on_epoch_end``."""
    return ".".join(name.split(".")[-2:])


def _outside(name: str) -> str:
    """``Saves.make`` of ``Saves.<locals>.make``."""
    return _with_class(name.replace(".<locals>", ""))


def _hook_name(name: str, hook: str) -> str:
    """Name a callback's hook; one given as a function has no class of its own."""
    if not _last(name).startswith("on_"):
        return f"LambdaCallback.{hook}"
    kind, _, name_there = _with_class(name).rpartition(".")
    # Keras' hooks of a phase's batches call those of all phases; any other name may be one of several.
    return f"{kind}.{name_there if name_there.startswith('on_batch_') else hook}".lstrip(".")


def _package(stack: Sequence[Frame]) -> str:
    """The package that is imported: that of the first module whose code runs."""
    for name, file, *_ in stack:
        if name == "<module>":
            folders = file.replace("\\", "/").split("/")
            for place in ("site-packages", "dist-packages"):
                if place in folders:
                    return folders[folders.index(place) + 1].removesuffix(".py")
            return folders[-2] if folders[-1] == "__init__.py" else folders[-1].removesuffix(".py")
    return ""
