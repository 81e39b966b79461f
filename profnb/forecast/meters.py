"""The memory of a step: of the process, of PyTorch's allocators, of session runs, as XLA plans it.

Of the process, the system keeps the most that was ever resident, which may be set back: only on Linux.
Source: proc(5), /proc/self/clear_refs and VmHWM; mallopt(3), M_MMAP_THRESHOLD; torch.profiler
(``profile_memory``), whose events of memory have no public reader; jax.stages.Compiled.memory_analysis.
"""

import ctypes
import gc
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from math import prod
from pathlib import Path
from statistics import linear_regression
from typing import Any

from profnb.capture.hooks import replace_attribute
from profnb.capture.machine.memory_limits import resident_bytes
from profnb.capture.memory.held_memory import torch_blocks
from profnb.core.errors import CaptureError
from profnb.forecast.kept_state import variables_of

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_KB = 1024
_UNKNOWN = "The peak of this process' memory is known on Linux only."
RUNS = 6  # after which a process of TensorFlow's grew no more
# glibc's options by number, and what it sets itself once a block of the largest size that it keeps was freed.
_MAP_FROM, _TRIM_FROM = -3, -1
_OWN_PAGES, _LARGEST_KEPT = 1 << 16, 1 << 25


def resident_peak(run: Callable[[], object]) -> tuple[float, float]:
    """The memory of the process before something runs again, and the most that running takes on top.

    Several runs count: what a program may do at once (two convolutions, each with scratch memory) overlaps in
    some of them, in large batches in most.

    What the first run makes and keeps (graphs, the optimizer's state) is there before. Blocks of a small
    batch have pages of their own meanwhile, as a large one's have: freed, they leave no holes.

    Raises:
        CaptureError: The system does not tell.
    """
    before, peaks = [], []
    with _own_pages():
        run()
        for _ in range(RUNS):
            gc.collect()
            _map_blocks_from(_OWN_PAGES)  # and gives back what is free now
            before.append(float(resident_bytes() or 0))
            peaks.append(_peak_while(run))
    there, most = min(before), max(peaks)  # what a thread gives back late is there before some
    if not there or not most:
        raise CaptureError(_UNKNOWN)
    return there, max(most - there, 0.0)


def process_peak(run: Callable[[], object]) -> float:
    """The most memory of the process while something runs, with blocks in pages of their own likewise.

    Raises:
        CaptureError: The system does not tell.
    """
    with _own_pages():
        peak = _peak_while(run)
    if not peak:
        raise CaptureError(_UNKNOWN)
    return peak


def _peak_while(run: Callable[[], object]) -> float:
    """The most that was resident while something ran; 0 where the system does not tell."""
    is_set_back = set_peak_back()
    run()
    peak = _PEAK.search(_STATUS.read_bytes()) if is_set_back else None
    return int(peak[1]) * float(_KB) if peak else 0.0


def set_peak_back() -> bool:
    """Begin anew to keep the most that was resident; False where the system does not."""
    with suppress(OSError):
        _CLEAR.write_text("5", "ascii")
        return True
    return False


@contextmanager
def _own_pages() -> Iterator[None]:
    """Have blocks of a small batch in pages of their own inside the block."""
    try:
        _map_blocks_from(_OWN_PAGES)
        yield
    finally:
        _map_blocks_from(_LARGEST_KEPT)


def _map_blocks_from(size: int) -> None:
    """Have glibc give blocks of this size and more pages of their own, and the system what is free."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_MAP_FROM, size)
        library.mallopt(_TRIM_FROM, 2 * size)
        library.malloc_trim(0)


def session_peak(run: Callable[[], object]) -> tuple[float, float]:
    """The most memory that a run of a TensorFlow 1 session takes, with its variables and what is fed."""
    import numpy as np

    from profnb.subjects.memory.peak import tabulate_run_peaks
    from profnb.tf1.graph_queues import defining_class
    from profnb.tf1.run_metadata import read_run_metadata

    tensorflow: Any = sys.modules["tensorflow"]
    v1 = tensorflow.compat.v1
    owner = defining_class(v1.Session, "run")
    original = vars(owner)["run"]
    has_gpu = tensorflow.test.is_built_with_cuda()
    level = v1.RunOptions.FULL_TRACE if has_gpu else v1.RunOptions.SOFTWARE_TRACE
    runs: list[Any] = []
    held = [0]

    def traced(session: Any, fetches: Any, feed_dict: Any = None, *_: object, **__: object) -> Any:
        runs.append(v1.RunMetadata())
        variables = ((one.dtype.base_dtype.size, one.shape) for one in variables_of(session))
        sizes = [size * (shape.num_elements() or 0) for size, shape in variables]
        sizes += [getattr(one, "nbytes", 0) for one in (feed_dict or {}).values()]
        held.append(sum(sizes))
        return original(session, fetches, feed_dict, v1.RunOptions(trace_level=level), runs[-1])

    with replace_attribute(owner, "run", traced):
        for _ in range(RUNS):  # ops beside each other end in any order: the most counts
            run()
    buffers = [np.frombuffer(one.SerializeToString(), np.uint8) for one in runs]
    peaks = tabulate_run_peaks(read_run_metadata(buffers, "the step"))
    return 0.0, float(max(held) + sum(row.bytes for row in peaks))


def torch_peak(run: Callable[[], object]) -> tuple[float, float]:
    """The most memory that PyTorch's allocators give while something runs, with what lives already."""
    torch: Any = sys.modules["torch"]
    run()  # what the first step makes and keeps: the optimizer's state
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return 0.0, float(torch.cuda.max_memory_allocated())
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds, profile_memory=True) as profiler:
        run()
    events = profiler.profiler.kineto_results.events()
    sizes = [(one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]"]
    # Backwards from what lives at the end: the profiler loses what is freed as it starts.
    back = (-size for _, size in sorted(sizes, reverse=True))
    return 0.0, living_bytes() + float(max(accumulate(back, initial=0)))


def living_bytes() -> float:
    """The memory of all tensors of PyTorch's that live; several may share one."""
    return float(sum(torch_blocks().values()))


def planned_peak(step: Any, arguments: tuple[Any, ...]) -> tuple[float, float]:
    """The memory of a step of JAX's: as XLA plans it, and on a CPU as it runs, if that is more.

    The scratch memory of a CPU's kernels is in no plan. A step that prints, calls back or donates its
    arguments does not run. Of shapes alone (``jax.ShapeDtypeStruct``) a step is planned only. Arrays that a
    function closes over are arguments of what it compiles; those that compiled code does are constants, which
    the plan leaves out.
    """
    jax: Any = sys.modules["jax"]
    program = jax.make_jaxpr(step)(*arguments)
    leaves = jax.tree_util.tree_leaves(arguments)
    if hasattr(step, "lower"):
        given, lower = arguments, step.lower
    else:
        given = program.consts, *leaves
        lower = jax.jit(lambda held, *batch: jax.core.eval_jaxpr(program.jaxpr, held, *batch)).lower
    compiled = lower(*given).compile()
    plan = compiled.memory_analysis()
    if plan is None:
        raise CaptureError(
            "XLA tells no memory of a step here. Give a compiled Keras model, or try batches by hand."
        )
    held = [*leaves, *{id(one): one for one in _constants_of(program)}.values()]
    held_bytes = sum(prod(one.shape) * one.dtype.itemsize for one in held if hasattr(one, "dtype"))
    held_bytes = max(plan.argument_size_in_bytes, held_bytes)
    more = plan.output_size_in_bytes + plan.temp_size_in_bytes - plan.alias_size_in_bytes
    planned = float(held_bytes + more)
    is_safe = not (program.effects or plan.alias_size_in_bytes)
    is_here = not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    if jax.default_backend() == "cpu" and is_safe and is_here:
        with suppress(CaptureError):  # not on Linux
            more = max(more, resident_peak(lambda: jax.block_until_ready(compiled(*given)))[1])
    return planned, float(held_bytes + more)


def _constants_of(program: Any) -> Iterator[Any]:
    """The arrays that a traced function of JAX's closes over, and those called in it."""
    yield from program.consts
    for equation in program.jaxpr.eqns:
        for inner in equation.params.values():
            if hasattr(inner, "consts"):
                yield from _constants_of(inner)


def lay_line(
    batches: Sequence[int], peaks: Sequence[float], *, is_process: bool
) -> tuple[float, float]:
    """Lay a line through peaks: what each example adds, and what is fixed.

    A peak is the most of several moments (forward, backward, the update), each of which grows evenly: memory
    bends upwards only, and the last two tell. Those of a process are uneven: all of them tell together.
    """
    count = len(batches) if is_process else 2
    if len(batches) < 2:
        return 0.0, float(sum(peaks))
    line = linear_regression(batches[-count:], peaks[-count:])
    return line.slope, line.intercept
