"""Python frames of a trace by their recorded names: the user's, or a framework's.

Kineto names a frame ``torch/nn/modules/module.py(1779): _call_impl``; TensorFlow and JAX write
``$pjit.py:120 cache_miss``, without the folder. A name without a folder is a framework's only where no
user would call a file so.
"""

import re
import sys

_FRAME = re.compile(
    r"\$?(?P<folders>(?:[^/(]*/)*)(?P<file>[\w<>.-]+?)(?:\.py)?(?:\(\d+\): |:\d+ | )"
)
_FRAMEWORKS = {
    "tensorflow", "keras", "tf_keras", "jax", "jaxlib", "flax", "optax", "torch", "torchvision", "lightning",
    "transformers", "accelerate", "IPython", "ipykernel", "tornado", "traitlets", "numpy", "tqdm", "absl",
}  # fmt: skip
# Files that pass a call on, in TensorFlow, Keras and JAX.
_WRAPPERS = {
    "traceback_utils", "tf_method_target", "polymorphic_function", "tracing_compilation", "atomic_function",
    "concrete_function", "def_function", "pjit", "pxla", "tree_util", "xla_bridge", "sharding_impls",
    "named_sharding", "api_util", "linear_util", "partial_eval", "interpreters", "custom_derivatives",
}  # fmt: skip


def is_framework_frame(name: str) -> bool:
    """Tell whether an event is a Python frame of a framework or of Python's own library."""
    if not name.startswith("$") and ".py(" not in name:
        return False
    match = _FRAME.match(name)
    if match is None:
        return False
    folders, file = match["folders"].strip("/").split("/"), match["file"]
    if "site-packages" in folders or "dist-packages" in folders:
        return True
    if folders == [""]:
        is_builtin = file in ("builtins", "<unknown>")
        return is_builtin or file in sys.stdlib_module_names or file in _WRAPPERS
    return folders[0] in _FRAMEWORKS or folders[0] in sys.stdlib_module_names
