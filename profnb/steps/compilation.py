"""Which events are a program being compiled, and during which steps a function was traced or compiled."""

import re

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.trace.model import Trace
from profnb.trace.names import FUNCTION_CALL

# Whatever XLA's own compilers do is compiling; of others a call that says so: JAX's runtime also copies in
# ``PjRtCApiCompiler::BufferFromHostBuffer``.
_ALWAYS = ("backend_compile", "CpuCompiler", "GpuCompiler")
_CALLERS = (
    "Xla",
    "Pjit",
    "PjRt",
    "LocalClient",
    "Hlo",
    "CompileCpuExecutable",
    "CompileGpuExecutable",
)
_COMPILES = re.compile(r"Compile(?!r)")


# PyTorch's torch.compile: one function, and the backward pass of one.
FRAME_COMPILES, _BACKWARD_COMPILES = "compile_inner (dynamo_timed)", "_backward_impl (dynamo_timed)"


def is_compilation(name: str) -> bool:
    """Whether an event of this name is XLA or ``torch.compile`` compiling a program on the host."""
    if name.endswith((FRAME_COMPILES, _BACKWARD_COMPILES)):
        return True
    if name.startswith(_ALWAYS):
        return True
    compiles = _COMPILES.search(name)
    return compiles is not None and (name.startswith(_CALLERS) or "::Compile" in name)


def was_compiled_during(trace: Trace, begin_ps: Int64s, end_ps: Int64s) -> Bools:
    """Whether a ``tf.function`` was traced, or a program compiled, in each of S windows, shape (S,).

    Args:
        trace: The trace.
        begin_ps: Begins of the windows, ascending, shape (S,).
        end_ps: Their ends, shape (S,).
    """
    flags = np.zeros(begin_ps.size, np.bool_)
    calls = trace.stats.texts(FUNCTION_CALL)
    traced = np.array([text.startswith("traced") for text in calls.texts], np.bool_)
    tracing = calls.events[traced[calls.values]] if len(calls) else calls.events
    compiling = np.flatnonzero(trace.select_names(is_compilation))
    begins = trace.events.begin_ps[np.concatenate([tracing, compiling])]
    owner = np.searchsorted(begin_ps, begins, side="right") - 1
    inside = (owner >= 0) & (begins < end_ps[owner])
    flags[owner[inside]] = True
    return flags
