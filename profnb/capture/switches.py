"""Settings that a sweep changes around a cell which does not read them itself.

``mixed_precision`` sets Keras' global policy, ``jit_compile`` and ``steps_per_execution`` become the
defaults of ``Model.compile``, ``prefetch`` is put behind the dataset that ``fit`` is given. All of it ends
with the run.
The numbers of threads cannot change once TensorFlow runs, nor Keras' backend once Keras is imported, so those
need a fresh process.
"""

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.hooks import on_import, replace_attribute
from profnb.capture.seams import COMPILE, DATASET, FIT, MODEL, POLICY, SET_POLICY, THREADING

THREADS = ("intra_op_threads", "inter_op_threads")
_OF_COMPILE = ("jit_compile", "steps_per_execution")
BACKEND = "backend"
FRESH = (*THREADS, BACKEND)  # those that hold for a whole process
SWITCHES = ("mixed_precision", "prefetch", *_OF_COMPILE, *FRESH)
_KERAS = ("keras", "tf_keras")
_KERAS_BACKEND = "KERAS_BACKEND"
_MIXED, _PLAIN = "mixed_float16", "float32"
_PACKAGES = {  # of Keras' backends: their names, and what of profnb's brings them
    "tensorflow": ("TensorFlow", "profnb[cpu]' (or 'profnb[tensorflow]' for a GPU)"),
    "jax": ("JAX", "profnb[jax]'"),
    "torch": ("PyTorch", "profnb[torch]'"),
}


def switches_of(setting: Mapping[str, object], read: AbstractSet[str]) -> dict[str, object]:
    """The settings to apply around a cell: known switches that it does not read itself, in this process."""
    return {
        name: value
        for name, value in setting.items()
        if name in SWITCHES and name not in FRESH and name not in read
    }


@contextmanager
def apply_switches(values: Mapping[str, object]) -> Iterator[set[str]]:
    """Run the block with these settings, also where it imports Keras itself.

    Yields:
        The names of those that took effect, when the block is over: what the code gives explicitly stays,
        there may be no ``compile`` and no dataset to change, or not what changes them (see ``seams``).

    Args:
        values: Names of ``SWITCHES``, without those of threads, to values.
    """
    applied: set[str] = set()
    with ExitStack() as stack:

        def imported(name: str) -> None:
            keras = sys.modules[name]
            if MODEL.find(keras) is not None:
                _apply(stack, keras, values, applied)

        hooks = {name: functools.partial(imported, name) for name in _KERAS}
        stack.enter_context(on_import(hooks))
        yield applied


def _apply(stack: ExitStack, keras: Any, values: Mapping[str, object], applied: set[str]) -> None:
    defaults = {name: values[name] for name in _OF_COMPILE if name in values}
    model, compile_model, fit = MODEL.find(keras), COMPILE.find(keras), FIT.find(keras)
    if defaults and compile_model is not None:
        changed = _with_defaults(compile_model, defaults, applied)
        stack.enter_context(replace_attribute(model, "compile", changed))
    if "prefetch" in values and fit is not None and DATASET.find() is not None:
        changed = _with_prefetch(fit, values["prefetch"], applied)
        stack.enter_context(replace_attribute(model, "fit", changed))
    set_policy, policy_now = SET_POLICY.find(keras), POLICY.find(keras)
    if "mixed_precision" in values and set_policy is not None and policy_now is not None:
        asked = values["mixed_precision"]
        policy = asked if isinstance(asked, str) else _MIXED if asked else _PLAIN
        stack.callback(set_policy, policy_now())
        set_policy(policy)
        applied.add("mixed_precision")


def _with_defaults(
    method: Callable[..., Any], defaults: Mapping[str, object], applied: set[str]
) -> Any:
    """A method whose keyword arguments have other defaults; what is given explicitly stays."""

    @functools.wraps(method)
    def changed(model: Any, *arguments: Any, **keywords: Any) -> Any:
        applied.update(defaults.keys() - keywords.keys())
        return method(model, *arguments, **{**defaults, **keywords})

    return changed


def _with_prefetch(method: Callable[..., Any], buffer: object, applied: set[str]) -> Any:
    """A ``fit`` that prefetches the dataset it is given; other data stays as it is."""

    @functools.wraps(method)
    def changed(model: Any, x: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(x, DATASET.find()):
            x = x.prefetch(buffer) if buffer else x
            applied.add("prefetch")
        return method(model, x, *arguments, **keywords)

    return changed


def set_backend(name: object) -> None:
    """Have Keras run on a backend ("tensorflow", "jax" or "torch") in this process, before it is imported."""
    os.environ[_KERAS_BACKEND] = str(name)


def missing_backend(name: object) -> str:
    """What to install for a backend that is not here, in a sentence; "" if it is, or is none that we know."""
    title, extra = _PACKAGES.get(str(name), ("", ""))
    if not title or importlib.util.find_spec(str(name)) is not None:
        return ""
    return f"{title} is not installed here: pip install '{extra}, then run the cell again."


@contextmanager
def set_threads(values: Mapping[str, object]) -> Iterator[set[str]]:
    """Give TensorFlow these numbers of threads as soon as the block imports it.

    Yields:
        The names of those that it was given, when the block is over.

    Args:
        values: ``intra_op_threads`` and ``inter_op_threads``, or one of them.
    """
    applied: set[str] = set()

    def imported() -> None:
        threading = THREADING.find()
        for name, count in values.items():
            kind = name.removesuffix("_threads")
            set_count = getattr(threading, f"set_{kind}_parallelism_threads", None)
            if set_count is not None:
                set_count(count)
                applied.add(name)

    with on_import({"tensorflow": imported}):
        yield applied
