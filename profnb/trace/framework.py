"""A trace to the framework that made it, so that sentences and repairs use its words.

JAX and PyTorch are told by names that only they write; a JAX program may read its data through tf.data, so
JAX is looked for before TensorFlow. Sessions of TensorFlow 1 have repairs of their own: there is no Keras of
today, and no function that compiles. What tells nothing is unknown, and gets neutral words.
"""

import re

from profnb.trace.model import Trace
from profnb.trace.names import FUNCTION_CALL, ONNX_RUNTIME, RECORDER, parse_op

TENSORFLOW, SESSIONS, JAX, PYTORCH, UNKNOWN = "TensorFlow", "TensorFlow 1", "JAX", "PyTorch", ""

# How names begin that only one framework writes, and what stands in them; the first that is met holds.
_WRITTEN: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        PYTORCH, ("aten::", "autograd::", "torch::", "Optimizer.step#", "ProfilerStep#"),
        ("at::native::", "c10::", "PyTorch Profiler"),
    ),
    (JAX, ("PjitFunction(", "jit(", "pmap(", "shard_map("), ()),
    (SESSIONS, ("_SOURCE:", "SessionRun", "session_run"), ()),
    (
        TENSORFLOW,
        (
            "ExecutorState::", "EagerLocalExecute", "EagerExecute", "EagerKernelExecute", "FunctionRun",
            "Iterator::", "IteratorGetNext", "tf_Compute", "tf_gpu_private", "tf_data_",
        ),
        ("tensorflow::", "N10tensorflow"),
    ),
    (JAX, ("jit_", "pmap_"), ()),  # a program of any name may be called so
)  # fmt: skip
_TYPE_OF_TENSORFLOW = re.compile(r"[A-Z][A-Za-z0-9]*")


def find_framework(trace: Trace) -> str:
    """TENSORFLOW, SESSIONS, JAX or PYTORCH; UNKNOWN where neither planes, threads, ops nor kernels tell.

    Args:
        trace: The trace.
    """
    if trace.is_op_name is not None and not any(RECORDER in plane.stats for plane in trace.planes):
        return PYTORCH
    if any(plane.stats.get(RECORDER) == ONNX_RUNTIME for plane in trace.planes):
        return UNKNOWN
    if any("jax_version" in plane.stats for plane in trace.planes):
        return JAX
    names = [*trace.names.texts, *trace.lines.names.texts, *(plane.name for plane in trace.planes)]
    names.extend(trace.stats.texts("tf_op").texts)
    for framework, prefixes, parts in _WRITTEN:
        if any(n.startswith(prefixes) or any(part in n[:200] for part in parts) for n in names):
            return framework
        if framework == SESSIONS and len(trace.stats.texts(FUNCTION_CALL)):
            return TENSORFLOW
    ops = filter(None, map(parse_op, names))
    is_tensorflow = any(_TYPE_OF_TENSORFLOW.fullmatch(op_type) for _, op_type in ops)
    return TENSORFLOW if is_tensorflow else UNKNOWN


def words(
    framework: str,
    other: str,
    *,
    tensorflow: str = "",
    sessions: str = "",
    jax: str = "",
    pytorch: str = "",
) -> str:
    """Choose what to say to the users of a framework.

    Args:
        framework: What ``find_framework`` found.
        other: What is said where it is unknown, or has no words of its own; neutral.
        tensorflow: Said of TensorFlow.
        sessions: Said of sessions of TensorFlow 1; what is said of TensorFlow where it is empty.
        jax: Said of JAX.
        pytorch: Said of PyTorch.
    """
    by_framework = {
        SESSIONS: sessions or tensorflow,
        TENSORFLOW: tensorflow,
        JAX: jax,
        PYTORCH: pytorch,
    }
    return by_framework.get(framework) or other
