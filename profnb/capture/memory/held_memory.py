"""Living arrays to what holds them: weights, gradients, optimizer state, data, each block of memory once.

Models say which are weights; optimizers, in the namespace or alive, which are their state; a gradient hangs
on its weight. Any other array belongs to the variable that leads to it: through lists, tuples, dicts, and
objects of the notebook. Nothing of a framework is imported, copied or kept.
"""

import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

from profnb.capture.environment import jax_has_devices
from profnb.capture.memory.memory_errors import device_of, process_pool
from profnb.capture.memory.memory_records import (
    ACTIVATIONS,
    CPU,
    DATA,
    GRADIENTS,
    OPTIMIZER_STATE,
    UNKNOWN_BYTES,
    WEIGHTS,
    BlockSums,
    HeldMemory,
    MemoryPool,
)
from profnb.capture.models.layer_facts import parts_of
from profnb.capture.seams import JAX_LIVE, KERAS_LIBRARIES
from profnb.capture.signals import OwnFaults
from profnb.capture.source.layer_lines import living_of, model_types, of_types
from profnb.capture.source.user_code import is_user_file, package_of

_ARRAY_LIBRARIES = ("numpy", "torch", "tensorflow", "jax", "jaxlib", "keras", "tf_keras", "cupy")
_OF_NOTEBOOK, _OPTAX = "__main__", "optax"
_ARRAYS = ("ndarray", "EagerTensor", "ArrayImpl")
_LEADING_ON = (list, tuple, set, frozenset, deque, dict)
_PLAIN = (int, float, str, bytes, type(None))  # what a long list begins with, it holds
_LONG, _MOST_OBJECTS, _DEEPEST_HOLDER, _MOST_HOLDERS = 100, 50_000, 6, 500


class _Claims(BlockSums):
    """Blocks of memory by who claimed them first: by kind, holder and device."""

    def __init__(self) -> None:
        """Nobody has any."""
        super().__init__()
        self._taken: dict[int, Any] = {}

    def claim(self, array: Any, kind: str, holder: str) -> None:
        """Count an array, unless it shares a block that counts already."""
        block = None
        with OwnFaults():  # one that was deleted, or given away
            block = _block_of(array)
        if block is None or block[0] in self._taken:
            return
        key, size, device = block
        self._taken[key] = array  # alive meanwhile, so that no other has its number
        self.count((kind, holder, device), size)

    def held(self) -> tuple[HeldMemory, ...]:
        """All of it, the largest first."""
        held = ((key, both) for key, both in self.items() if both[0])
        rows = (HeldMemory(kind, holder, at, *both) for (kind, holder, at), both in held)
        return tuple(sorted(rows, key=lambda row: -row.bytes)[:_MOST_HOLDERS])


def find_held(
    namespace: Mapping[str, object], models: Iterable[Any], error: BaseException | None = None
) -> tuple[HeldMemory, ...]:
    """Find the arrays that live, by kind and holder.

    Args:
        namespace: The user's names.
        models: Keras models that ran or were given.
        error: What ended the code, whose frames hold what they made.
    """
    claims = _Claims()
    names = [*namespace.items(), *_frame_names(error)]
    values = [value for _, value in names]
    modules, optimizers, tensors = _torch_objects()
    layers: dict[int, str] = {}  # by the weight of PyTorch's
    of_keras = [one for one in modules if package_of(one) in KERAS_LIBRARIES]
    inside = {id(part) for one in of_keras for part in (*parts_of(one), *one.children())}
    outermost = [one for one in of_keras if id(one) not in inside]
    for model in (*models, *of_types(values, model_types()), *outermost):
        with OwnFaults():  # somebody's objects may do anything when they are looked at
            for path, weight in _keras_weights(model, str(model.name), 0):
                claims.claim(weight, WEIGHTS, path)
                layers.setdefault(id(getattr(weight, "value", weight)), path)
            for state in _states_of(getattr(model, "optimizer", None)):
                claims.claim(state, OPTIMIZER_STATE, "")
    with OwnFaults():  # likewise
        for kind, holder, array in _torch_claims(modules, optimizers, tensors, layers):
            claims.claim(array, kind, holder)
        for optimizer in values:
            for state in _states_of(optimizer):
                claims.claim(state, OPTIMIZER_STATE, "")
    with OwnFaults():  # likewise
        for name, array, is_state in _reached(names):
            claims.claim(array, OPTIMIZER_STATE if is_state else _kind_of(array), name)
    with OwnFaults():  # likewise
        for array in (*tensors, *_jax_arrays()):
            claims.claim(array, _kind_of(array), "")
    return claims.held()


def _frame_names(error: BaseException | None) -> Iterator[tuple[str, object]]:
    """Local names of the user's functions that the error passed."""
    frames = [] if error is None else [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in frames:
        is_function = frame.f_code.co_name != "<module>"
        if is_function and is_user_file(frame.f_code.co_filename):
            yield from dict(frame.f_locals).items()


def _keras_weights(layer: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The weights of a layer by the innermost layer that holds them."""
    for part in parts_of(layer) if depth < 30 else ():
        yield from _keras_weights(part, f"{path}/{part.name}", depth + 1)
    yield from ((path, weight) for weight in layer.weights)


def _states_of(optimizer: Any) -> Sequence[Any]:
    """The variables of an optimizer of Keras'; none of anything else."""
    if not (package_of(optimizer) in KERAS_LIBRARIES and hasattr(optimizer, "apply_gradients")):
        return ()
    states = getattr(optimizer, "variables", ())
    return list(states() if callable(states) else states)


def _torch_objects() -> tuple[list[Any], list[Any], list[Any]]:
    """The modules, optimizers and tensors of PyTorch's that live."""
    torch: Any = sys.modules.get("torch")
    if getattr(torch, "nn", None) is None or getattr(torch, "optim", None) is None:
        return [], [], []
    kinds = torch.nn.Module, torch.optim.Optimizer, torch.Tensor
    living = living_of(*kinds)
    modules, optimizers, tensors = (of_types(living, (kind,)) for kind in kinds)
    return modules, optimizers, tensors


def torch_blocks() -> dict[int, int]:
    """The size of each block of memory that PyTorch's living tensors and gradients have, by its address."""
    blocks = {}
    for one in _torch_objects()[2]:
        for tensor in (one, one.grad if one.is_leaf else None):
            if (block := _block_of(tensor)) is not None:
                blocks[block[0]] = block[1]
    return blocks


def _torch_claims(
    modules: list[Any], optimizers: list[Any], tensors: list[Any], layers: dict[int, str]
) -> Iterator[tuple[str, str, Any]]:
    """Give what PyTorch's modules, their gradients and optimizers hold, by kind and layer.

    Args:
        modules: The modules that live.
        optimizers: Likewise.
        tensors: Likewise.
        layers: The layer of each weight whose layer is known, by the weight's number; others are added.
    """
    inner = {id(part) for module in modules for part in module.children()}
    roots = [module for module in modules if id(module) not in inner]
    for root in roots:
        for name, weight in (*root.named_parameters(), *root.named_buffers()):
            layer = "/".join([type(root).__name__, *name.split(".")[:-1]])
            yield WEIGHTS, layers.setdefault(id(weight), layer), weight
    for tensor in tensors:
        if tensor.is_leaf and tensor.grad is not None:
            yield GRADIENTS, layers.get(id(tensor), ""), tensor.grad
    for optimizer in optimizers:
        for weight, states in optimizer.state.items():
            for state in states.values() if isinstance(states, dict) else ():
                yield OPTIMIZER_STATE, layers.get(id(weight), ""), state


def _jax_arrays() -> Iterable[Any]:
    live = JAX_LIVE.find() if jax_has_devices() else None
    return () if live is None else live()


def _kind_of(array: Any) -> str:
    """The kind of an array that neither a model nor an optimizer has."""
    if getattr(array, "grad_fn", None) is not None:
        return ACTIVATIONS
    is_weight = package_of(array) in ("tensorflow", "keras") and hasattr(array, "assign")
    return WEIGHTS if is_weight else DATA


def _reached(names: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Any, bool]]:
    """The arrays that names lead to, and whether they are state of an optimizer of JAX's."""
    seen: dict[int, Any] = {}
    left = _MOST_OBJECTS
    for name, value in names:
        if name.startswith("_"):  # what the shell keeps of outputs has other names too
            continue
        queue = deque([(value, 0, False)])
        while queue and left > 0:
            left -= 1
            one, depth, is_state = queue.popleft()
            inside: Iterable[Any] = ()
            kind = type(one).__module__
            is_named = hasattr(type(one), "_fields")
            if isinstance(one, _LEADING_ON) and (is_named or kind in ("builtins", "collections")):
                inside = one.values() if isinstance(one, dict) else one
                if len(one) > _LONG and isinstance(next(iter(inside)), _PLAIN):
                    inside = ()
            elif kind == _OF_NOTEBOOK and not isinstance(one, type):
                inside = getattr(one, "__dict__", {}).values()
            elif package_of(one) in _ARRAY_LIBRARIES:
                yield name, one, is_state
            if inside and id(one) not in seen and depth < _DEEPEST_HOLDER:
                seen[id(one)] = one
                is_state = is_state or package_of(one) == _OPTAX
                queue.extend((each, depth + 1, is_state) for each in islice(inside, left))


def _block_of(array: Any) -> tuple[int, int, str] | None:
    """Number, bytes and device of the memory behind an array; None of anything else."""
    if package_of(array) == "keras" and hasattr(array, "assign"):
        array = array.value
    if package_of(array) not in _ARRAY_LIBRARIES:
        return None
    if package_of(array) == "torch":
        if not isinstance(array, sys.modules["torch"].Tensor) or array.device.type == "meta":
            return None
        storage = array.untyped_storage()
        return storage.data_ptr(), storage.nbytes(), device_of(str(array.device)) or CPU
    if not (type(array).__name__ in _ARRAYS or hasattr(array, "assign")):
        return None
    while type(getattr(array, "base", None)).__name__ in _ARRAYS:  # a view of NumPy's
        array = array.base
    item = getattr(array.dtype, "itemsize", None) or array.dtype.size
    size = prod(map(int, array.shape)) * int(item)
    return id(array), size, device_of(str(getattr(array, "device", ""))) or CPU


def find_pools() -> tuple[MemoryPool, ...]:
    """Find who gives memory, and how much: the process, and devices as far as PyTorch and JAX tell."""
    pools = [process_pool()]
    with OwnFaults():  # a driver that does not answer
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            for number in range(cuda.device_count()):
                name = f"GPU:{number}"
                in_use, peak = cuda.memory_allocated(number), cuda.max_memory_allocated(number)
                pools.append(MemoryPool(name, in_use, peak, cuda.mem_get_info(number)[1], name))
    with OwnFaults():  # likewise
        jax: Any = sys.modules.get("jax")
        for device in jax.local_devices() if len(pools) == 1 and jax_has_devices() else ():
            stats, name = device.memory_stats() or {}, device_of(str(device))
            if stats and name not in ("", CPU):
                in_use, peak, most = (int(stats.get(key, UNKNOWN_BYTES)) for key in _JAX_STATS)
                pools.append(MemoryPool(name, in_use, peak, most, name))
    return tuple(pools)


_JAX_STATS = "bytes_in_use", "peak_bytes_in_use", "bytes_limit"
