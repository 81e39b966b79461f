"""What the captured code ran with: accelerators, versions, precision policy; or why with nothing."""

import contextlib
import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from profnb.capture.seams import BACKEND, DEVICES, POLICY, THREADING, VERSION

CORES, INTRA_OP, INTER_OP = "CPU cores", "Intra-op threads", "Inter-op threads"
KERAS_BACKEND = "Keras backend"
_DEFAULT = "default"
_TITLES = (
    ("tensorflow", "TensorFlow"), ("jax", "JAX"), ("torch", "PyTorch"), ("keras", "Keras"),
    ("tf_keras", "tf_keras"),
)  # fmt: skip
_INSTALL = (
    "TensorFlow is not installed here, so nothing was captured. Install it with "
    "`pip install 'profnb[cpu]'` (or `profnb[tensorflow]` for a GPU); saved traces open without it."
)


def explain_nothing() -> str:
    """Why a capture that never saw TensorFlow is empty."""
    if importlib.util.find_spec("tensorflow") is None:
        return _INSTALL
    return "The code did not import TensorFlow, JAX or PyTorch, so there was nothing to capture."


def resident_bytes() -> int:
    """Memory that this process has in use; 0 where the system does not tell it cheaply."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


class _Allocations(ctypes.Structure):
    """What glibc's ``mallinfo2`` tells (man 3 mallinfo)."""

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
        return resident_bytes()
    ask.restype = _Allocations
    allocations = ask()
    return int(allocations.uordblks + allocations.hblkhd)


def list_devices() -> tuple[str, ...]:
    """The accelerators of a TensorFlow that has run something; asking sets nothing up then."""
    with contextlib.suppress(Exception):  # whatever it is, the user's code comes first
        return tuple(
            device.name for device in DEVICES.find()() if device.device_type in ("GPU", "TPU")
        )
    return ()


def describe_environment() -> dict[str, str]:
    """Versions and settings that change how fast code runs, of what the code has imported."""
    settings = {"Python": sys.version.partition(" ")[0]}
    for name, title in _TITLES:
        version = VERSION.of(sys.modules.get(name))
        if isinstance(version, str):
            settings[title] = version
    with contextlib.suppress(Exception):  # a Keras that failed to import
        backend = BACKEND.find()
        if backend is not None and str(backend()) != "tensorflow":
            settings[KERAS_BACKEND] = str(backend())
    with contextlib.suppress(Exception):  # not every Keras has policies
        policy = POLICY.find()
        if policy is not None:
            settings["Precision policy"] = str(policy().name)
    if "tensorflow" in sys.modules:
        settings |= _describe_threads()
    return settings


def _describe_threads() -> dict[str, str]:
    """How many cores this process may use, and how many threads TensorFlow was told to."""
    cores = getattr(os, "sched_getaffinity", None)  # not everywhere
    settings = {CORES: str(len(cores(0)) if cores else os.cpu_count() or 1)}
    with contextlib.suppress(Exception):  # a TensorFlow that failed to import
        threading = THREADING.find()
        asked = {
            INTRA_OP: (threading.get_intra_op_parallelism_threads(), "TF_NUM_INTRAOP_THREADS"),
            INTER_OP: (threading.get_inter_op_parallelism_threads(), "TF_NUM_INTEROP_THREADS"),
        }
        for title, (value, variable) in asked.items():
            settings[title] = str(value or os.environ.get(variable) or _DEFAULT)
    return settings
