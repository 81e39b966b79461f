"""A trace to the framework that made it, so that sentences and repairs use its words.

JAX and PyTorch are told by names that only they write; a JAX program may read its data through tf.data, so
JAX is looked for before TensorFlow. Sessions of TensorFlow 1 have repairs of their own: there is no Keras of
today, and no function that compiles. What tells nothing is unknown, and gets neutral words.
"""

import re

from profnb.trace.model import Trace
from profnb.trace.names import FUNCTION_CALL, parse_op

TENSORFLOW, SESSIONS, JAX, PYTORCH, UNKNOWN = "TensorFlow", "TensorFlow 1", "JAX", "PyTorch", ""

_JAX_PREFIXES = ("PjitFunction(", "jit(", "pmap(", "shard_map(")
_JAX_MODULE = ("jit_", "pmap_")  # a program of any name may be called so
_PYTORCH_PREFIXES = ("aten::", "autograd::", "torch::", "Optimizer.step#", "ProfilerStep#")
_PYTORCH_PARTS = ("at::native::", "c10::", "PyTorch Profiler")
_TENSORFLOW_PREFIXES = (
    "ExecutorState::", "EagerLocalExecute", "EagerExecute", "EagerKernelExecute", "FunctionRun", "SessionRun",
    "Iterator::", "IteratorGetNext", "_SOURCE:", "tf_Compute", "tf_gpu_private", "tf_data_",
)  # fmt: skip
_SESSION_PREFIXES = ("_SOURCE:", "SessionRun", "session_run")
_TENSORFLOW_PARTS = ("tensorflow::", "N10tensorflow")
_TYPE_OF_TENSORFLOW = re.compile(r"[A-Z][A-Za-z0-9]*")


def find_framework(trace: Trace) -> str:
    """TENSORFLOW, SESSIONS, JAX or PYTORCH; UNKNOWN where neither planes, threads, ops nor kernels tell.

    Args:
        trace: The trace.
    """
    if trace.is_op_name is not None:
        return PYTORCH
    if any("jax_version" in plane.stats for plane in trace.planes):
        return JAX
    names = [*trace.names.texts, *trace.lines.names.texts, *(plane.name for plane in trace.planes)]
    names.extend(trace.stats.texts("tf_op").texts)
    if _any(names, _PYTORCH_PREFIXES, _PYTORCH_PARTS):
        return PYTORCH
    if _any(names, _JAX_PREFIXES, ()):
        return JAX
    if _any(names, _SESSION_PREFIXES, ()):
        return SESSIONS
    has_calls = bool(len(trace.stats.texts(FUNCTION_CALL)))
    if has_calls or _any(names, _TENSORFLOW_PREFIXES, _TENSORFLOW_PARTS):
        return TENSORFLOW
    if _any(names, _JAX_MODULE, ()):
        return JAX
    return TENSORFLOW if any(map(_is_tensorflow_op, names)) else UNKNOWN


def _any(names: list[str], prefixes: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether any of the names begins with one of the prefixes or holds one of the parts."""
    return any(
        name.startswith(prefixes) or any(part in name[:200] for part in parts) for name in names
    )


def _is_tensorflow_op(name: str) -> bool:
    op = parse_op(name)
    return op is not None and bool(_TYPE_OF_TENSORFLOW.fullmatch(op[1]))


def words(
    framework: str,
    other: str,
    *,
    tensorflow: str = "",
    sessions: str = "",
    jax: str = "",
    pytorch: str = "",
) -> str:
    """What to say to the users of a framework.

    Args:
        framework: What ``find_framework`` found.
        other: What is said where it is unknown, or has no words of its own; neutral.
        tensorflow: Said of TensorFlow.
        sessions: Said of sessions of TensorFlow 1; what is said of TensorFlow where it is empty.
        jax: Said of JAX.
        pytorch: Said of PyTorch.
    """
    of_session = sessions or tensorflow
    by_framework = {TENSORFLOW: tensorflow, SESSIONS: of_session, JAX: jax, PYTORCH: pytorch}
    return by_framework.get(framework, "") or other
