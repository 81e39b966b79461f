"""State that code can change, kept before it runs and put back in place afterwards.

A walk begins at named objects and goes on through containers, attributes, closures and the names that the
user's functions read. What is put back stays the same object, so that whoever else holds it sees it too. An
array that is too large to copy is made read-only while the code runs. Of what cannot be put back a reason is
kept, for whoever would rather not run the code.
"""

import io
import os
import random
import socket
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from profnb.capture import seams
from profnb.capture.environment import chain_of
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import is_user_file, names_in, package_of
from profnb.core.units import bytes_text

Restore = Callable[[], object]
# How it is called, the object, whether its state has to be known whole.
Reached = tuple[str, Any, bool]

_KEPT_BYTES = 1 << 29  # of arrays, all together
_MOST_OBJECTS = 100_000
_ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(len), CodeType, property,
    staticmethod, classmethod, os.PathLike, type(list.append), type(str.join)
)  # fmt: skip
_PLAIN_CONTAINERS = (list, dict, set, deque, bytearray)
_GROUPS = (*_PLAIN_CONTAINERS, tuple, frozenset)
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
_UNSAFE: tuple[tuple[Any, str], ...] = (
    (io.IOBase, "an open file"),
    (socket.socket, "a socket"),
    ((*_LOCKS, threading.Event), "a lock"),
    ((threading.Thread, subprocess.Popen, Executor), "work of its own beside the cell"),
    (Iterator, "an iterator, which may be half used"),
)
# Packages whose objects never change, and those whose objects change only what is kept of them here.
_CONSTANT = (
    "builtins", "typing", "datetime", "decimal", "fractions", "re", "enum", "operator", "types", "logging",
    "jax", "jaxlib", "weakref", "abc", "functools"
)  # fmt: skip
_COMPUTING_LIBRARIES = (*seams.KERAS_LIBRARIES, "torch", "tensorflow", "numpy")
_GENERATORS = ("random", "numpy", "torch")
_CHANGING_METHODS = {"close", "insert"}  # methods of what TensorFlow writes or looks up
_WITHOUT_STATE = (
    "EagerTensor", "Tensor", "SymbolicTensor", "TensorSpec", "DType", "TensorShape", "RaggedTensor",
    "SparseTensor", "IndexedSlices"
)  # fmt: skip


class KeptState:
    """The state of objects, and of the sources of random numbers, as it is now.

    Attributes:
        refusals: Why something cannot be put back, in sentences.
        unsafe: Files, locks, iterators and the like among that: what each is, by how it is called.
        sessions: The sessions of TensorFlow 1.
        shuffled: What datasets are called that shuffle by a seed: their order moves on.
    """

    def __init__(self, named: Mapping[str, Any], *, only: "KeptState | None" = None) -> None:
        """Keep what these names lead to.

        Args:
            named: Objects by their names.
            only: What was kept before: the same objects are kept again, and no others.
        """
        self.refusals: list[str] = []
        self.unsafe: dict[str, str] = {}
        self.sessions: list[Any] = []
        self.shuffled: list[str] = []
        self._restores = list(_restores_of_process())
        self._seen: dict[int, Any] = {}
        self._guarded: list[Any] = []
        self._copied = 0
        begins = named.items() if only is None else (("", value) for value in only.objects)
        queue: deque[Reached] = deque((name, value, only is None) for name, value in begins)
        while queue:
            path, value, is_strict = queue.popleft()
            if id(value) in self._seen or isinstance(value, _ATOMS):
                continue
            if len(self._seen) > _MOST_OBJECTS:
                self.refusals.append(f"`{path}` leads to more than {_MOST_OBJECTS:,} objects.")
                break
            self._seen[id(value)] = value
            reached = list(self._keep(path, value, is_strict=is_strict))
            if only is None:
                queue.extend(reached)

    @property
    def objects(self) -> list[Any]:
        """Everything whose state is kept."""
        return list(self._seen.values())

    @property
    def holds_torch(self) -> bool:
        """True where a module, an optimizer or a tensor of PyTorch's is among that."""
        return any(_is_tensor(one) or _is_module(one) for one in self._seen.values())

    def put_back(self) -> None:
        """Give everything the state that it had; as often as asked, and all even if one fails."""
        with ExitStack() as stack:
            for restore in reversed(self._restores):
                stack.callback(restore)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Make arrays that are too large to copy read-only inside the block."""
        for array in self._guarded:
            array.flags.writeable = False
        try:
            yield
        finally:
            for array in self._guarded:
                array.flags.writeable = True

    def _keep(self, path: str, value: Any, *, is_strict: bool) -> Iterator[Reached]:
        """Keep one object by the first rule that fits; give those it leads to."""
        rules: tuple[tuple[Callable[[Any], object], Callable[[str, Any, bool], object]], ...] = (
            (lambda one: isinstance(one, ModuleType | type), self._keep_definition),
            (_unsafe, self._refuse),
            (lambda one: isinstance(one, _GROUPS), self._keep_group),
            (_is_array, self._keep_array),
            (_is_frame, self._keep_frame),
            (_is_tensor, self._keep_tensor),
            (_is_session, self._keep_session),
        )
        keep = next((keep for fits, keep in rules if fits(value)), None)
        reached: Any = ()
        if keep is not None:
            reached = keep(path, value, is_strict)
        elif (pair := _accessors(value)) is not None:
            self._restores.append(partial(pair[1], pair[0]()))
        elif (names := names_read_by(value)) is not None:
            reached = ((name, one, is_strict) for name, one in names.items())
        else:
            reached = self._keep_attributes(path, value, is_strict)
        yield from reached or ()

    def _refuse(self, path: str, value: Any, is_strict: bool) -> None:
        what = _unsafe(value)
        if is_strict or (isinstance(value, Iterator) and is_of_user(type(value))):
            self.unsafe[path] = what
        if is_strict:
            self.refusals.append(f"`{path}` is {what}.")

    def _keep_group(self, path: str, value: Any, is_strict: bool) -> Iterator[Reached]:
        """Keep a container; of TensorFlow's wrapper of a list, what it holds is an attribute."""
        attributes = getattr(value, "__dict__", None) or {}
        if attributes:
            self._restores.append(restore_names(attributes))
        if isinstance(value, _PLAIN_CONTAINERS):
            self._restores.append(_restore_container(value))
        kinds = object if is_of_user(type(value)) else _PLAIN_CONTAINERS
        members = [*(value.values() if isinstance(value, dict) else value)]
        members += [one for one in attributes.values() if isinstance(one, kinds)]
        yield from ((path, one, is_strict) for one in members)

    def _keep_session(self, _: str, session: Any, __: bool) -> None:
        """Keep the variables of a graph, by the ops that gave them their first values."""
        initializers, values = [], {}
        for variable in variables_of(session):
            with OwnFaults():  # one that has no value yet
                values[variable.initializer.inputs[1]] = session.run(variable)
                initializers.append(variable.initializer)
        self.sessions.append(session)
        self._restores.append(partial(session.run, initializers, values))

    def _keep_attributes(self, path: str, value: Any, is_strict: bool) -> Iterator[Reached]:
        kind, root, is_users = type(value), package_of(value), is_of_user(type(value))
        refused = ""
        if _is_dataset(value):
            if is_strict and shuffles_by_seed(value):
                self.shuffled.append(path)
        elif root in _CONSTANT or kind.__name__ in _WITHOUT_STATE:
            return
        elif root == "tensorflow" and not hasattr(value, "variables"):
            refused = _unknown(path, kind) if _CHANGING_METHODS.intersection(dir(value)) else ""
        elif hasattr(value, "__dict__"):
            self._restores.append(restore_names(vars(value)))
            is_strict = is_users or (is_strict and root not in _COMPUTING_LIBRARIES)
            for name, one in list(vars(value).items()):
                if is_strict or _is_kept_in_library(one):
                    yield f"{path}.{name}", one, is_strict
        elif root not in _COMPUTING_LIBRARIES:
            refused = _unknown(path, kind)
        if refused and is_strict:
            self.refusals.append(refused)

    def _keep_definition(self, path: str, value: Any, _: bool) -> Iterator[Reached]:
        """Keep what a module or class of the user's holds; of others' nothing is asked."""
        is_class, file = isinstance(value, type), getattr(value, "__file__", None)
        if is_class and is_of_user(value):
            held = dict(vars(value))
            self._restores.append(partial(_restore_class, value, held))
        elif not is_class and file and is_user_file(str(file)):  # built-in modules have none
            held = dict(vars(value))
            self._restores.append(restore_names(vars(value)))
        else:
            return
        for name, one in held.items():
            if not name.startswith("__"):
                yield f"{path}.{name}", one, True

    def _keep_array(self, path: str, array: Any, _: bool) -> None:
        if not array.flags.writeable:
            return
        is_mapped = type(array).__name__ == "memmap"
        if is_mapped or not self._has_room(path, array.nbytes, is_strict=False):
            self._guarded.append(array)
        else:
            self._restores.append(partial(sys.modules["numpy"].copyto, array, array.copy()))

    def _has_room(self, path: str, size: int, *, is_strict: bool) -> bool:
        """Count a copy of so many bytes, or refuse it."""
        if self._copied + size > _KEPT_BYTES:
            if is_strict:
                self.refusals.append(f"`{path}` is too large to copy ({bytes_text(size)}).")
            return False
        self._copied += size
        return True

    def _keep_frame(self, path: str, frame: Any, is_strict: bool) -> None:
        usage = frame.memory_usage()
        size = int(usage if isinstance(usage, int) else usage.sum())
        if not self._has_room(path, size, is_strict=is_strict):
            return
        before = frame.copy()

        def restore() -> None:
            if not frame.equals(before) or list(frame.index) != list(before.index):
                vars(frame).clear()
                vars(frame).update(vars(before.copy()))

        self._restores.append(restore)

    def _keep_tensor(self, path: str, tensor: Any, is_strict: bool) -> None:
        """Keep a tensor where neither PyTorch's allocators nor what counts living tensors see it."""
        torch: Any = sys.modules["torch"]
        size = tensor.nelement() * tensor.element_size()
        is_kept = tensor.is_leaf
        if not tensor.requires_grad:  # data, which may be of any size
            is_kept = self._has_room(path, size, is_strict=is_strict)
        if not is_kept:
            return
        kept = io.BytesIO()
        torch.save((tensor.detach(), tensor.grad), kept)

        def restore() -> None:
            kept.seek(0)
            data, grad = torch.load(kept, weights_only=False)
            if (data.shape, data.dtype, data.device) == (tensor.shape, tensor.dtype, tensor.device):
                with torch.no_grad():
                    tensor.data.copy_(data)
            else:
                tensor.data = data
            if tensor.is_leaf:
                tensor.grad = grad

        self._restores.append(restore)


def is_of_user(kind: type) -> bool:
    """Tell whether a class is of the notebook, the script or a module of the user's."""
    if kind.__module__ == "__main__":
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and is_user_file(str(file))


def names_read_by(value: Any) -> dict[str, Any] | None:
    """What a function of the user's reaches by name, and what a library's holds; None of other objects.

    Those are what it closes over, its defaults, the object it is a method of, and names of its module.
    """
    if isinstance(value, partial):
        given = {str(at): one for at, one in enumerate(value.args)}
        return {"func": value.func, **value.keywords, **given}
    function = getattr(value, "python_function", None) or getattr(value, "__wrapped__", value)
    if isinstance(function, MethodType):
        return {type(function.__self__).__name__: function.__self__, "func": function.__func__}
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    named = {name: cell.cell_contents for name, cell in cells if cell != type(cell)()}
    if is_user_file(code.co_filename):
        read = [name for name in names_in(code) if name in function.__globals__]
        named |= {name: function.__globals__[name] for name in read}
    defaults = function.__defaults__ or ()
    optional = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    return named | dict(zip(optional, defaults, strict=True)) | (function.__kwdefaults__ or {})


def _unsafe(value: Any) -> str:
    return next((reason for kind, reason in _UNSAFE if isinstance(value, kind)), "")


def _unknown(path: str, kind: type) -> str:
    return f"`{path}` is a {kind.__module__}.{kind.__qualname__}, whose state cannot be put back."


def _is_a(module: str, *names: str) -> Callable[[Any], bool]:
    """Ask whether an object is of classes of a module, which is not imported for it."""

    def is_such(value: Any) -> bool:
        kinds = (getattr(sys.modules.get(module), name, None) for name in names)
        return isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type)))

    return is_such


_is_array, _is_frame = _is_a("numpy", "ndarray"), _is_a("pandas", "DataFrame", "Series")
_is_tensor, _is_tensorflow_variable = _is_a("torch", "Tensor"), _is_a("tensorflow", "Variable")
_is_module = _is_a("torch.nn", "Module")


def _is_session(value: Any) -> bool:
    methods = ("run", "graph", "close")
    return package_of(value) == "tensorflow" and all(hasattr(value, one) for one in methods)


def variables_of(session: Any) -> list[Any]:
    """The variables of a session's graph."""
    graph = session.graph
    return [*graph.get_collection("variables"), *graph.get_collection("local_variables")]


def _is_dataset(value: Any) -> bool:
    kind = seams.DATASET.find()
    return kind is not None and isinstance(value, kind)


def _accessors(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """What reads and what sets a variable, or the state of a generator of random numbers; else None."""
    package = package_of(value)
    bits = getattr(value, "bit_generator", None) if package == "numpy" else None
    if bits is not None:
        return lambda: bits.state, partial(setattr, bits, "state")
    is_keras = package in seams.KERAS_LIBRARIES and hasattr(value, "assign")
    if (is_keras and hasattr(value, "numpy")) or _is_tensorflow_variable(value):
        return value.numpy, value.assign
    for get, put in (("getstate", "setstate"), ("get_state", "set_state")):
        if package in _GENERATORS and hasattr(value, get) and hasattr(value, put):
            return getattr(value, get), getattr(value, put)
    return None


def _is_kept_in_library(value: Any) -> bool:
    """Tell whether an attribute of a library's object holds state of the training's; the rest is its own."""
    return (
        package_of(value) in _COMPUTING_LIBRARIES
        or isinstance(value, _PLAIN_CONTAINERS)
        or is_of_user(type(value))
    )


def shuffles_by_seed(dataset: Any) -> bool:
    """Tell whether a dataset, or one that it is made of, shuffles in an order that a seed decides."""
    return any(
        type(one).__name__ == "_ShuffleDataset"
        and any(int(getattr(one, name, 0)) for name in ("_seed", "_seed2"))
        for one in (chain_of(dataset) if _is_dataset(dataset) else ())
    )


def _restore_container(value: Any) -> Restore:
    """Put back what a container holds, by its base's own methods: a library's subclass may watch others."""
    before = value.copy()
    kinds = (OrderedDict, *_PLAIN_CONTAINERS)
    base: Any = next((kind for kind in kinds if kind in type(value).__mro__), None)
    fill = "update" if isinstance(value, dict | set) else "extend"

    def restore() -> None:
        held = [list(one.items() if isinstance(one, dict) else one) for one in (value, before)]
        if len(held[0]) == len(held[1]) and all(
            a is b or (isinstance(a, tuple) and a[0] is b[0] and a[1] is b[1])
            for a, b in zip(*held, strict=True)
        ):
            return
        for name, *given in (("clear",), (fill, before)):
            if base is None:  # a proxy of one
                getattr(value, name)(*given)
            else:
                getattr(base, name)(value, *given)

    return restore


def restore_names(held: MutableMapping[str, Any]) -> Restore:
    """Put back attributes or a module's names, none of which is missing meanwhile."""
    before = dict(held)

    def restore() -> None:
        for name in held.keys() - before.keys():
            del held[name]
        for name, value in before.items():
            if name not in held or held[name] is not value:
                held[name] = value

    return restore


def _restore_class(kind: type, before: Mapping[str, Any]) -> None:
    for name in vars(kind).keys() - before.keys():
        delattr(kind, name)
    for name, value in before.items():
        if vars(kind).get(name) is not value:
            setattr(kind, name, value)


def _restores_of_process() -> Iterator[Restore]:
    """Keep what belongs to the process: random numbers, Keras' counters, the environment."""
    yield partial(random.setstate, random.getstate())
    yield restore_names(os.environ)
    yield partial(os.chdir, os.getcwd())  # noqa: PTH109 - as it is asked
    numpy, torch = map(sys.modules.get, ("numpy", "torch"))
    if numpy is not None:
        yield partial(numpy.random.set_state, numpy.random.get_state())
    if torch is not None:
        yield partial(torch.set_rng_state, torch.get_rng_state())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            yield partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    context = seams.EAGER_CONTEXT.find()
    if context is not None and (seed := seams.EAGER_SEED.of(context())) is not None:
        state = seams.EAGER_RANDOM.of(context()).getstate()
        yield partial(_reseed, context(), seed, state)
    if (keras := seams.KERAS_STATE.find()) is not None:
        yield restore_names(vars(keras))
        for value in vars(keras).values():
            if isinstance(value, dict):
                yield _restore_container(value)
            elif (state := getattr(value, "state", None)) is not None:
                yield partial(state.assign, state.numpy())


def _reseed(context: Any, seed: int, state: Any) -> None:
    """Seed TensorFlow anew, which forgets ops that have drawn numbers, and go on from a state."""
    seams.EAGER_RESEED.of(context)(seed)
    seams.EAGER_RANDOM.of(context).setstate(state)
