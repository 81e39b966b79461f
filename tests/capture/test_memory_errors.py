"""Errors that say that memory ran out: what of it stands in the messages of all frameworks, and who else is innocent."""

import numpy as np
import pytest

import profnb
from profnb.capture.memory.memory_errors import device_of, find_shortage

MIB, GIB = 1 << 20, 1 << 30
UNKNOWN = -1


def made(module, name, text, base=RuntimeError):
    """An error of a framework's class, which need not be installed."""
    return type(name, (base,), {"__module__": module})(text)


TORCH_2 = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8.00 GiB of which 512.00 MiB is free. Process 77 has 7.50 GiB memory in use. "
    "Of the allocated memory 6.00 GiB is allocated by PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
TORCH_2_POOLS = TORCH_2.replace("allocated by PyTorch, and", "allocated by PyTorch, with 20.00 MiB allocated in private pools (e.g., CUDA Graphs), and").replace("capacity", "capacty")
TORCH_1 = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.00 GiB total capacity; 9.25 GiB already allocated; 10.50 MiB free; 9.50 GiB reserved in total by PyTorch)"
TORCH_ALLOWED = (  # as it came on an H200: the device has room, the process may not take it
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 131.19 GiB is free. Including non-PyTorch memory, this process has "
    "3.72 GiB memory in use. Process 531 has 4.88 GiB memory in use. 4.19 GiB allowed; Of the allocated memory 2.97 GiB is allocated by PyTorch, and 77.29 MiB is reserved by PyTorch but unallocated."
)
TORCH_ASYNC = "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 5.00 GiB\nRequested               : 1.00 GiB\nDevice limit            : 8.00 GiB\nFree (according to CUDA): 10.00 MiB"
TORCH_CPU = "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 2359296 bytes. Error code 12 (Cannot allocate memory)"
MPS = "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 GB, max allowed: 9.00 GB). Tried to allocate 256.00 MB on private pool."
TF = "OOM when allocating tensor with shape[32,1024,64,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]"
JAX = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes."
JAX_NEW = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 19.50GiB. [executable_name='jit_step']"
TPU = "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 2.00G. That was not possible. There are 1.50G free.; (0x0x0_HBM0)"
HBM = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.00G of 15.50G hbm. Exceeded hbm capacity by 4.50G."
NUMPY = "Unable to allocate 7.50 GiB for an array with shape (1000000000,) and data type float64"


@pytest.mark.parametrize(
    ("error", "device", "asked", "free", "in_use", "unused", "limit"),
    [
        (made("torch", "OutOfMemoryError", TORCH_2), "GPU:1", 2 * GIB, 512 * MIB, 6 * GIB, 5 * GIB // 4, 8 * GIB),
        (made("torch", "OutOfMemoryError", TORCH_2_POOLS), "GPU:1", 2 * GIB, 512 * MIB, 6 * GIB, 5 * GIB // 4, 8 * GIB),
        (RuntimeError(TORCH_1), "GPU:0", 20 * MIB, 21 * MIB // 2, 37 * GIB // 4, GIB // 4, 10 * GIB),
        (made("torch", "OutOfMemoryError", TORCH_ALLOWED), "GPU:0", 2 * GIB, int(4.19 * GIB) - int(2.97 * GIB), int(2.97 * GIB), int(77.29 * MIB), int(4.19 * GIB)),
        (made("torch", "OutOfMemoryError", TORCH_ASYNC), "GPU:0", GIB, 10 * MIB, 5 * GIB, UNKNOWN, 8 * GIB),
        (RuntimeError(MPS), "GPU:0", 256 * MIB, UNKNOWN, 8 * GIB, UNKNOWN, 9 * GIB),
        (made("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", TF, Exception), "GPU:0", 32 * 1024 * 64 * 64 * 4, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (made("jaxlib.xla_extension", "XlaRuntimeError", JAX), "", 4 * GIB, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (made("jax.errors", "JaxRuntimeError", JAX_NEW), "", 39 * GIB // 2, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (made("jaxlib", "XlaRuntimeError", TPU), "", 2 * GIB, 3 * GIB // 2, UNKNOWN, UNKNOWN, UNKNOWN),
        (made("jaxlib", "XlaRuntimeError", HBM), "TPU:0", UNKNOWN, UNKNOWN, 20 * GIB, UNKNOWN, 31 * GIB // 2),
    ],
)  # fmt: skip
def test_numbers_of_messages(error, device, asked, free, in_use, unused, limit):
    found = find_shortage(error)
    assert (found.error, found.device) == (type(error).__name__, device)
    assert (found.asked_bytes, found.free_bytes, found.in_use_bytes, found.unused_bytes, found.limit_bytes) == (asked, free, in_use, unused, limit)


@pytest.mark.parametrize(("error", "asked"), [(RuntimeError(TORCH_CPU), 2359296), (made("numpy", "_ArrayMemoryError", NUMPY, MemoryError), 15 * GIB // 2), (MemoryError(), UNKNOWN)])
def test_of_the_cpu_the_process_and_its_limit_are_asked(error, asked):
    found = find_shortage(error)
    assert (found.device, found.asked_bytes) == ("CPU", asked)
    assert 0 < found.in_use_bytes < found.limit_bytes and found.limit_of


def test_the_line_of_the_user_that_asked():
    namespace = {}
    exec(compile("def ask():\n    raise MemoryError\n", "/nowhere/at all/asking.py", "exec"), namespace)
    with pytest.raises(MemoryError) as raised:
        namespace["ask"]()
    assert find_shortage(raised.value).where == "at all/asking.py:2"
    assert find_shortage(MemoryError()).where == ""


def test_an_error_raised_from_one_of_memory_is_one():
    error = ValueError("no batch")
    error.__cause__ = RuntimeError(TORCH_1)
    assert find_shortage(error).asked_bytes == 20 * MIB
    error = ValueError("handled, then something else")
    error.__context__ = RuntimeError(TORCH_1)
    assert find_shortage(error) is None


@pytest.mark.parametrize(
    "error",
    [
        None,
        KeyboardInterrupt(),
        ValueError("out of memory"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        made("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", "checkpoint/part; No space left on device"),
        made("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", "Received message larger than max (5000000 vs. 4194304)"),
        made("jaxlib", "XlaRuntimeError", "INVALID_ARGUMENT: shapes"),
        made("mine", "XlaRuntimeError", "RESOURCE_EXHAUSTED: my quota"),
    ],
)
def test_other_errors_are_innocent(error):
    assert find_shortage(error) is None


def test_hostile_errors_take_nothing_and_end_nothing():
    class Mute(MemoryError):
        def __str__(self):
            raise RuntimeError("no text")

    assert find_shortage(Mute()).asked_bytes == UNKNOWN
    for size in ("1.2.3 GiB", "9" * 30 + " GiB", "-5 GiB", "nan GiB", "99999999999999999999 PiB"):
        assert find_shortage(RuntimeError(f"CUDA out of memory. Tried to allocate {size}.")).asked_bytes == UNKNOWN
    shape = ",".join(["99999999"] * 9)
    huge = made("tensorflow", "ResourceExhaustedError", f"OOM when allocating tensor with shape[{shape}] and type float on /device:GPU:0")
    assert find_shortage(huge).asked_bytes == UNKNOWN
    long = made("torch", "OutOfMemoryError", "Used " * 100_000)
    assert find_shortage(long).asked_bytes == UNKNOWN
    loop = ValueError("a circle")
    loop.__cause__ = loop
    assert find_shortage(loop) is None


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("GPU_0_bfc", "GPU:0"), ("cuda:3", "GPU:3"), ("/job:localhost/replica:0/task:0/device:GPU:1", "GPU:1"), ("TPU_2", "TPU:2"), ("cpu", "CPU"), ("mps:0", "GPU:0"),
        ("/job:localhost/replica:0/task:0/device:CPU:0", "CPU"), ("mklcpu", ""), ("", ""), ("my gpus", ""), ("CudaDevice(id=2)", "GPU:2"), ("TFRT_CPU_0", "CPU"),
    ],
)  # fmt: skip
def test_devices_have_one_name(text, device):
    assert device_of(text) == device


def test_the_op_that_asked():
    text = "Graph execution error:\n\nDetected at node net_1/first_1/BiasAdd defined at (most recent call last):\nOOM when allocating tensor with shape[4,5] and type half"
    found = find_shortage(made("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", text))
    assert (found.op, found.asked_bytes) == ("net_1/first_1/BiasAdd", 40)
    assert find_shortage(made("tensorflow", "ResourceExhaustedError", TF)).op == "Conv2D"
    assert find_shortage(made("jax.errors", "JaxRuntimeError", JAX_NEW)).op == "jit_step"
    assert find_shortage(RuntimeError(TORCH_1)).op == ""


# As the installed frameworks raise them: a number of bytes that no machine has.


def raised(ask):
    with pytest.raises(Exception) as error:  # noqa: B017, PT011 - each framework has its own
        ask()
    return find_shortage(error.value)


def test_numpys_own_error():
    found = raised(lambda: np.zeros(1 << 50))
    assert (found.device, found.asked_bytes) == ("CPU", 8 << 50)


@pytest.mark.tensorflow
def test_tensorflows_own_error():
    tf = pytest.importorskip("tensorflow")
    found = raised(lambda: tf.zeros((1 << 20, 1 << 30)))
    assert found is not None and found.device == "CPU"
    assert found.asked_bytes in (UNKNOWN, 4 << 50)
    assert found.in_use_bytes < found.limit_bytes


def test_pytorchs_own_error():
    torch = pytest.importorskip("torch")
    found = raised(lambda: torch.ones(1 << 50))
    assert (found.device, found.asked_bytes) == ("CPU", 4 << 50)


def test_jaxs_own_error():
    jax = pytest.importorskip("jax")
    found = raised(lambda: jax.numpy.ones((1 << 20, 1 << 30), "float32").block_until_ready())
    assert found.asked_bytes == 4 << 50


def test_an_error_that_cannot_be_read_ends_the_capture_as_any():
    class Hostile(Exception):
        @property
        def __cause__(self):
            raise ValueError

    with pytest.raises(Hostile), profnb.profile() as p:
        raise Hostile
    assert p.recording.wall_ns > 0 and p.recording.messages == []
