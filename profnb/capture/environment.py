"""The surroundings of the captured code: accelerators, versions, precision policy, datasets; what calls cost.

A trace names an iterator's dataset by the kind of its op and its place in the pipeline, counted from the
source: ``ParallelMapDatasetV2:3``. The dataset object, where it still lives, knows the function that was
given to ``map``. Attributes that it keeps for itself are read with care: where one is missing, there is no
name.

What is left of something once it is compiled, or ready, is measured in this process, once. A call of a
compiled function and the restart of a dataset that is ready cost little, but not nothing, and how little
differs tenfold between machines. Both are measured on a few numbers, without random ops and within some 50
ms, when something first asks. Where TensorFlow does not run eagerly here (a loaded trace, JAX, PyTorch), the
range is a wide one that held on the virtual machines tried.
"""

import contextlib
import ctypes
import importlib.util
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from profnb.capture import seams
from profnb.capture.machine.memory_limits import resident_bytes
from profnb.capture.source.user_code import file_title, is_user_file, number_cells
from profnb.core.units import PS_PER_NS

CUPTI = "TEARDOWN_CUPTI"  # whether PyTorch's profiler ends with its recording; the environment's own name
CORES, INTRA_OP, INTER_OP = "CPU cores", "Intra-op threads", "Inter-op threads"
KERAS_BACKEND = "Keras backend"
_DEFAULT = "default"
_PROCESSOR = re.compile(r"^model name[ \t]*:[ \t]*(.*)$", re.MULTILINE)
_LINE_TITLES = (
    ("tensorflow", "TensorFlow"), ("jax", "JAX"), ("torch", "PyTorch"), ("keras", "Keras"),
    ("tf_keras", "tf_keras"),
)  # fmt: skip
_INSTALL = (
    "TensorFlow is not installed here, so nothing was captured. Install TensorFlow with `pip install "
    "'profnb[cpu]'` (or `profnb[tensorflow]` for a GPU). Saved traces open without TensorFlow."
)
Chain = tuple[tuple[str, str], ...]
T = TypeVar("T")
_MOST_DATASETS, _LONGEST_CHAIN = 50, 100
_MOST_LOOKED_AT = 100  # files; on a network each takes a while


def jax_has_devices() -> bool:
    """Whether JAX's devices are set up: to ask for them would choose them for the code."""
    is_set_up = seams.JAX_IS_SET_UP.find()
    return is_set_up is not None and bool(is_set_up())


def explain_nothing() -> str:
    """Say why a capture that never saw a framework is empty."""
    if importlib.util.find_spec("tensorflow") is None:
        return _INSTALL
    return "The code did not import TensorFlow, JAX or PyTorch: nothing was captured."


class _Allocations(ctypes.Structure):
    """The answer of glibc's ``mallinfo2`` (man 3 mallinfo)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def allocated_bytes() -> int:
    """Memory that this process has allocated and not freed; what is resident where nobody tells that.

    What is freed stays resident, so a second capture of a process need not grow at all.
    """
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):  # glibc has it from 2.33 on
        return resident_bytes() or 0
    ask.restype = _Allocations
    allocations = ask()
    return int(allocations.uordblks + allocations.hblkhd)


def list_devices() -> tuple[str, ...]:
    """The accelerators of a TensorFlow that has run something; asking sets nothing up then."""
    with contextlib.suppress(Exception):  # whatever it is, the user's code comes first
        return tuple(
            device.name for device in seams.DEVICES.find()() if device.device_type in ("GPU", "TPU")
        )
    return ()


def processor_name() -> str:
    """Read what the processor is called; "" where the system does not tell."""
    with contextlib.suppress(OSError):
        named = _PROCESSOR.search(Path("/proc/cpuinfo").read_text("utf-8", "replace"))
        return " ".join(named[1].split()) if named else ""
    return ""


def count_cores() -> int:
    """Count the cores that this process may use."""
    cores = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(cores(0)) if cores else os.cpu_count() or 1


def imported_versions() -> dict[str, str]:
    """Versions of what the code has imported, and of Python; any thread may ask."""
    settings = {"Python": sys.version.partition(" ")[0]}
    for name, title in _LINE_TITLES:
        version = seams.VERSION.of(sys.modules.get(name))
        if isinstance(version, str):
            settings[title] = version
    return settings


def describe_environment() -> dict[str, str]:
    """Versions and settings that change how fast code runs, of what the code has imported."""
    settings = imported_versions()
    with contextlib.suppress(Exception):  # a Keras that failed to import
        settings |= {KERAS_BACKEND: str(seams.BACKEND.find()())}
    if settings.get(KERAS_BACKEND) == "tensorflow":
        del settings[KERAS_BACKEND]
    with contextlib.suppress(Exception):  # not every Keras has policies
        settings |= {"Precision policy": str(seams.POLICY.find()().name)}
    settings[CORES] = str(count_cores())
    if CUPTI in os.environ:
        settings[CUPTI] = os.environ[CUPTI]
    if "tensorflow" not in sys.modules:
        return settings
    with contextlib.suppress(Exception):  # a TensorFlow that failed to import
        threading = seams.THREADING.find()
        for title, ask, variable in (
            (INTRA_OP, threading.get_intra_op_parallelism_threads, "TF_NUM_INTRAOP_THREADS"),
            (INTER_OP, threading.get_inter_op_parallelism_threads, "TF_NUM_INTEROP_THREADS"),
        ):
            settings[title] = str(ask() or os.environ.get(variable) or _DEFAULT)
    return settings


def describe_datasets(
    namespace: Mapping[str, object],
) -> tuple[tuple[Chain, ...], tuple[Chain, ...]]:
    """Describe the straight pipelines of a namespace, each from its source on.

    Returns:
        For each dataset (kind, name of the user's function or "") of every transformation, for instance
        ``(("Range", ""), ("Map", "augment"), ("Batch", ""))``; and the same with the line of each function,
        "Cell [3]:8", in its place, "" where it is not the user's.
    """
    cells, named, placed = number_cells(), list[Chain](), list[Chain]()
    for value in list(namespace.values()):
        if len(named) < _MOST_DATASETS and _is_dataset(value):
            links = [(_kind_of(one), _function_of(one)) for one in chain_of(value)]
            names = [(kind, str(getattr(function, "__name__", ""))) for kind, function in links]
            if any(name for _, name in names):
                named.append(tuple(names))
                placed.append(tuple((kind, _line_of(function, cells)) for kind, function in links))
    return tuple(named), tuple(placed)


def python_functions() -> tuple[tuple[str, str], ...]:
    """The user's functions and generators that graphs call (``tf.numpy_function``): names and lines."""
    cells, named = number_cells(), dict[tuple[str, str], None]()
    for value in list((seams.PYTHON_FUNCTIONS.find() or {}).values()):
        function = inspect.unwrap(value) if callable(value) else value
        for one in (function, seams.CALLED_BY_GRAPHS.of(getattr(function, "__self__", function))):
            if line := _line_of(one, cells):
                named[str(getattr(one, "__name__", "")), line] = None
    return tuple(named)


def _line_of(function: object, cells: Mapping[str, int]) -> str:
    """The line at which a function of the user's begins, "Cell [3]:8"; "" of anything else."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None or not is_user_file(code.co_filename):
        return ""
    return f"{file_title(code.co_filename, cells)}:{code.co_firstlineno}"


def _is_dataset(value: object) -> bool:
    return str(type(value).__module__).startswith("tensorflow.python.data")


def _kind_of(dataset: object) -> str:
    return type(dataset).__name__.lstrip("_").partition("Dataset")[0]


def _function_of(dataset: object) -> object:
    for attribute in seams.DATASET_FUNCTIONS.attributes:
        function = seams.WRAPPED_FUNCTION.of(getattr(dataset, attribute, None))
        if isinstance(getattr(function, "__name__", None), str):
            return function
    return None


def chain_of(dataset: object) -> list[object]:
    """A dataset and those that it is made of, from the source on; none unless that is straight."""
    chain: list[object] = []
    inputs: Sequence[object] = (dataset,)
    while inputs and len(chain) < _LONGEST_CHAIN:
        if len(inputs) > 1:
            return []
        chain.append(inputs[0])
        ask = seams.DATASET_INPUTS.of(inputs[0])
        try:
            inputs = ask() if callable(ask) else ()
        except Exception:  # noqa: BLE001 - somebody's subclass may do anything
            return []
    return chain[::-1]


def _ask_datasets(
    namespace: Mapping[str, object], ask: Callable[[object], T | None]
) -> Iterator[tuple[str, T]]:
    """The names that a user gave to datasets, and what each of them answers; without those that do not."""
    answered = 0
    for name, value in list(namespace.items()):
        if answered < _MOST_DATASETS and name[:1] != "_" and _is_dataset(value):
            answer = None
            with contextlib.suppress(Exception):  # of a graph, or somebody's subclass
                answer = ask(value)
            if answer is not None:
                answered += 1
                yield name, answer


def count_elements(namespace: Mapping[str, object]) -> dict[str, int]:
    """Count the elements of a namespace's datasets, by their names there; unknown ones are left out."""
    counts = _ask_datasets(namespace, lambda dataset: int(seams.CARDINALITY.of(dataset)().numpy()))
    return {name: count for name, count in counts if count >= 0}


def find_files(namespace: Mapping[str, object]) -> tuple[dict[str, int], dict[str, int]]:
    """Count the files whose names the datasets of a namespace begin with, and their mean size in bytes.

    Returns:
        Both by the dataset's name there; without those of which no file is there (any more).
    """

    def files_of(dataset: object) -> tuple[int, int] | None:
        for tensor in seams.DATASET_TENSORS.of(next(iter(chain_of(dataset)), None), ()):
            if tensor.dtype.name == "string" and tensor.shape.rank == 1:
                files = list(tensor.numpy())
                size = mean_size(files)
                return None if size is None else (len(files), size)
        return None

    files = dict(_ask_datasets(namespace, files_of))
    counts, sizes = ({name: one[at] for name, one in files.items()} for at in (0, 1))
    return counts, sizes


def mean_size(files: Sequence[bytes]) -> int | None:
    """Take the mean size of files in bytes, of at most a hundred of them; None where one is not there."""
    if not files:
        return None
    chosen = files[:: -(-len(files) // _MOST_LOOKED_AT)]
    try:
        return sum(Path(os.fsdecode(file)).stat().st_size for file in chosen) // len(chosen)
    except (OSError, ValueError):
        return None


Range = tuple[int, int]
# Tracing a function takes as long as so many eager calls of it: 4.9 to 9.6 in five functions of layers, train
# steps and metrics. Of 80 bare ops it took 17, of an LSTM 3.
TRACED_CALLS = 5.0, 10.0
_TIMES, _MOST_NS = 24, 25_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Ranges in picoseconds, from the quickest to the slower half.

    Attributes:
        call_ps: A call of a compiled function that does nothing.
        restart_ps: A new iterator of a ready dataset, and its first element.
        tracing_ps: The first call of a function of one op; a layer takes about as long to trace.
        is_measured: Whether they were measured here.
    """

    call_ps: Range
    restart_ps: Range
    tracing_ps: int
    is_measured: bool = False


def typical_costs() -> Costs:
    """What they were on virtual machines of two cores: 0.02 to 0.5 ms, 0.3 to 3 ms, and 10 ms."""
    return Costs((20_000_000, 500_000_000), (300_000_000, 3_000_000_000), 10_000_000_000)


@cache
def costs_here() -> Costs:
    """What they are in this process; the typical ones where TensorFlow does not run eagerly here."""
    executing = seams.EXECUTING_EAGERLY.find()
    with contextlib.suppress(Exception):  # whatever the process forbids, a range is enough
        if executing is not None and executing():
            return _measured()
    return typical_costs()


def _measured() -> Costs:
    function = seams.FUNCTION.find()(lambda x: x + 1, autograph=False)
    began = time.perf_counter_ns()
    function(1)
    tracing_ps = (time.perf_counter_ns() - began) * PS_PER_NS
    dataset = seams.DATASET_RANGE.find()(4)

    def restart() -> None:
        next(iter(dataset))

    restart()
    calls, restarts = _range_of(lambda: function(1)), _range_of(restart)
    return Costs(calls, restarts, tracing_ps, is_measured=True)


def _range_of(call: Callable[[], object]) -> Range:
    """The quickest of some calls, and three quarters of the way to the slowest."""
    took: list[int] = []
    begun = time.perf_counter_ns()
    while len(took) < _TIMES and time.perf_counter_ns() - begun < _MOST_NS:
        began = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - began)
    return min(took) * PS_PER_NS, sorted(took)[-1 - len(took) // 4] * PS_PER_NS
