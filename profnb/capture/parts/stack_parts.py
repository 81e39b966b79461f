"""Looks at a thread's stack to the part of the cell that each was in; the ways there to the cell's tree.

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

Two loops of a cell, in which ``Score.on_epoch_end`` calls ``predict``, as a tree::

    cell
      Cell [3]:2                        lines of the cell itself
      fit                               a call
        around steps
        epoch                           4 times
          train steps                   128
          callbacks Score.on_epoch_end  4
            predict                     4
              predict steps
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import TypeVar

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import NodeKey, TreeNode
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


Path = tuple[NodeKey, ...]
_FIT_NODE, _VALIDATION = NodeKey(parts.CALL, "fit"), NodeKey(parts.CALL, "validation")
_OF_EPOCHS = re.compile(r"\.?on_(?:epoch|\w*batch)_\w+$")
_MOST_NODES = 1_000
_LEAF_KINDS = (parts.FRAMEWORK, parts.WAITING, parts.EAGER)
_T = TypeVar("_T")


@dataclass(slots=True)
class _Node:
    first_ns: int
    self_ns: int = 0
    looks: int = 0
    below: dict[NodeKey, "_Node"] = field(default_factory=dict)


class CellTree:
    """The tree in the making."""

    def __init__(self) -> None:
        """The cell alone."""
        self._root = _Node(0)
        self._count = 1

    def add(self, path: Path, first_ns: int, self_ns: int, looks: int = 0) -> None:
        """Charge time to the end of a way; to the node above where there are too many."""
        node = self._root
        for place in path:
            below = node.below.get(place)
            if below is None:
                if self._count >= _MOST_NODES:
                    break
                below = node.below[place] = _Node(first_ns)
                self._count += 1
            below.first_ns = min(below.first_ns, first_ns)
            node = below
        node.self_ns += self_ns
        node.looks += looks

    def names_of(self, kind: str) -> set[str]:
        """Give the names of all nodes of a kind."""
        return {place.name for place, _ in self._walk() if place.kind == kind}

    def take(self, share: float, but: str) -> int:
        """Take a share of the time of all nodes but those of a kind; what that was."""
        taken = 0
        for place, node in self._walk():
            if place.kind != but:
                ns = int(node.self_ns * share)
                node.self_ns, taken = node.self_ns - ns, taken + ns
        return taken

    def _walk(self) -> Iterator[tuple[NodeKey, "_Node"]]:
        waiting = [(NodeKey(parts.CELL), self._root)]
        while waiting:
            place, node = waiting.pop()
            yield place, node
            waiting += node.below.items()

    def nodes(
        self, occurrences: Mapping[tuple[str, str, str], int], calls: Mapping[Path, int]
    ) -> list[TreeNode]:
        """List the nodes, each behind the one above; siblings in the order in which they first began.

        Args:
            occurrences: How often what has a kind and a name happened in all runs of a method ("" for
                anywhere).
            calls: The same by the way to a node, where several have one kind and name.
        """
        listed: list[tuple[int, NodeKey, _Node, tuple[str, str, str], Path]] = []

        def walk(parent: int, path: Path, node: _Node, run: str) -> None:
            place = path[-1] if path else NodeKey(parts.CELL)
            row, key = len(listed), (place.kind, place.name, run)
            key = key if key in occurrences else (place.kind, place.name, "")
            listed.append((parent, place, node, key, path))
            run = place.name if place.kind == parts.CALL else run
            for place_below, below in sorted(node.below.items(), key=lambda item: item[1].first_ns):
                walk(row, (*path, place_below), below, run)

        if self._root.below or self._root.self_ns:
            walk(-1, (), self._root, "")
        nodes = Counter(key for *_, key, _ in listed)
        return [
            TreeNode(
                parent, place.kind, place.name, place.file, place.line,
                occurrences.get(key, 0) if nodes[key] == 1 else calls.get(path, 0), node.self_ns, node.looks,
            )
            for parent, place, node, key, path in listed
        ]  # fmt: skip


def in_epochs(path: Path, *, is_inside: bool) -> Path:
    """Lead a way through the epochs of its fits.

    Args:
        path: A way as a stack shows it.
        is_inside: Whether the innermost fit was between its first batch and its last; what a way leads to
            behind others tells by itself.
    """
    made: list[NodeKey] = []
    last = _behind_last(path, lambda place: place == _FIT_NODE) - 1
    for at, place in enumerate(path):
        made.append(place)
        if place != _FIT_NODE:
            continue
        follows = path[at + 1] if at + 1 < len(path) else NodeKey("")
        is_callback = follows.kind == parts.CALLBACKS
        is_of_epoch = is_callback and _OF_EPOCHS.search(follows.name) is not None
        if follows == _VALIDATION or is_of_epoch or (at == last and is_inside and not is_callback):
            made.append(NodeKey(parts.EPOCH))
    return tuple(made)


def _behind_last(path: Sequence[NodeKey], is_it: Callable[[NodeKey], bool]) -> int:
    """Find the place behind the last one of some kind; 0 where there is none."""
    return max((at for at, place in enumerate(path, 1) if is_it(place)), default=0)


def common_path(paths: Iterable[Sequence[NodeKey]]) -> Path:
    """Give the way that several have in common."""
    same = takewhile(lambda places: len(set(places)) == 1, zip(*paths, strict=False))
    return tuple(places[0] for places in same)


class Paths:
    """The ways that looks show, to runs of Keras' and to steps.

    Args:
        seen: The ways of looks, and how much time each look stands for.
    """

    def __init__(self, seen: Iterable[tuple[Path, int]]) -> None:
        """Find the way that most looks took to each run."""
        paths: dict[str, Counter[Path]] = {}
        for path, weight in seen:
            for at, place in enumerate(path):
                if place.kind == parts.CALL:
                    paths.setdefault(place.name, Counter())[path[: at + 1]] += weight
        self._paths = {name: of_run.most_common(1)[0][0] for name, of_run in paths.items()}

    def to_run(self, method: str) -> Path:
        """Give the way to a run, "fit"; where no look met it, from the cell itself."""
        outer = self.to_run("fit") if method == _VALIDATION.name else ()
        return self._paths.get(method) or (*outer, NodeKey(parts.CALL, method))

    def between(self, part: NodeKey, path: Path | None, *, is_inside: bool) -> Path:
        """Give the way to what lies between steps.

        Args:
            part: What it is, by what was counted around it.
            path: What a look saw; None for none.
            is_inside: Whether a fit that is on the way was between its first batch and its last.
        """
        if path is None:
            is_of_run = part.kind in (parts.AROUND, parts.EPOCH_ENDS, parts.GAPS)
            path = self.to_run(part.name) if is_of_run else ()
        ends_in_run = bool(path) and path[-1].kind == parts.CALL and part.kind != parts.OTHER
        return (*in_epochs(path, is_inside=is_inside), *([NodeKey(part.kind)] * ends_in_run))

    def of_steps(
        self,
        step: NodeKey,
        methods: Collection[str],
        looks: Sequence[tuple[Path, int]],
        around: Iterable[Path],
    ) -> Counter[Path]:
        """Give the ways to what steps of one kind did, with the time that looks stand for.

        Args:
            step: What they are.
            methods: The runs of Keras' that make such steps, if any.
            looks: Those that met one.
            around: The ways of looks between two of them.
        """

        def is_run(place: NodeKey) -> bool:
            return place.kind == parts.CALL and place.name in methods

        cuts = [_behind_last(path, is_run) for path, _ in looks]
        if not any(cuts):  # above what only says what its function called
            common = common_path([*(path for path, _ in looks), *around])
            cuts = [_behind_last(common, lambda place: place.kind not in _LEAF_KINDS)] * len(looks)
        shares: Counter[Path] = Counter()
        for (path, weight), cut in zip(looks, cuts, strict=True):
            outer = in_epochs(path[:cut], is_inside=True)
            shares[(*outer, step, *path[cut:])] += weight
        if not shares:
            common = common_path(around)
            functions = common[: _behind_last(common, lambda place: place.kind == parts.LINES)]
            outer = self.to_run(min(methods)) if methods else functions
            shares[(*in_epochs(outer, is_inside=True), step)] = 1
        return shares


def divided(whole: int, shares: Mapping[_T, int]) -> Iterator[tuple[_T, int]]:
    """Divide a whole number in the ratio of shares, the largest first; nothing is lost."""
    left, of_all = whole, sum(shares.values())
    for key, share in Counter(shares).most_common():
        part = -(-left * share // of_all)
        yield key, part
        left, of_all = left - part, of_all - share
