"""An error that ended the code to what it says of memory; None where it has another cause.

Frameworks write numbers into messages, with units of 1,024. Each fact has the forms in which they do. An
error that only names an exhausted resource may mean a disk or a message, so its text has to name memory.

Source: pytorch c10/cuda/CUDACachingAllocator.cpp, c10/cuda/CUDAMallocAsyncAllocator.cpp,
c10/core/impl/alloc_cpu.cpp, aten/src/ATen/mps/MPSAllocator.mm (1.13 to 2.9); tensorflow
core/framework/op_kernel.cc (2.21); openxla/xla tsl/framework/bfc_allocator.cc, pjrt; numpy
_core/_exceptions.py.
"""

import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from profnb.capture.machine.memory_limits import find_limit, resident_bytes
from profnb.capture.memory.memory_records import CPU, UNKNOWN_BYTES, MemoryPool, MemoryShortage
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import file_title, is_user_file, number_cells, package_of

_MOST_TEXT, _MOST_CAUSES, _MORE_THAN_ANY = 20_000, 10, 1 << 60
_KINDS = ("OutOfMemoryError", "MemoryError")
_RAISING = ("torch", "tensorflow", "keras", "tf_keras", "jax", "jaxlib")
_NAMES_MEMORY = re.compile(
    r"out of memory|\bOOM\b|can't allocate memory|not enough memory|failed to allocate memory|"
    r"unable to allocate output tensor|ran out of memory|allocating device buffer|"
    r"Attempting to (?:allocate|reserve)|Dst tensor is not initialized",
    re.IGNORECASE,
)
_BYTES_WRITTEN = r"(\d[\d.]{0,20})\s*([KMGTP]?i?B|[KMGTP]|bytes)\b"
# Of each fact the forms in which messages have it; the first that is met holds.
_FORMS: dict[str, tuple[str, ...]] = {
    "asked_bytes": (
        "(?:[Tt]ried|trying|[Uu]nable|Attempting) to (?:allocate|reserve) {}",
        "Out of memory allocating {}",
        r"Requested\s*: {}",
    ),
    "free_bytes": ("of which {} is free", r"Free \(according to CUDA\)\s*: {}", "{} free"),
    "in_use_bytes": (
        "{} is allocated by PyTorch",
        "{} already allocated",
        r"Currently allocated\s*: {}",
        "MPS allocated: {}",
        "Used {} of",
    ),
    "limit_bytes": (
        "{} allowed;",
        r"total capac\w+ of {}",
        "{} total capacity",
        r"Device limit\s*: {}",
        "max allowed: {}",
        "Used [^ ]{{1,20}} of {}",
    ),
    "unused_bytes": ("{} is reserved by PyTorch but unallocated",),
    "reserved_bytes": ("{} reserved in total by PyTorch",),
}
_PATTERNS = {
    fact: [re.compile(form.format(_BYTES_WRITTEN).replace(" ", r"\s+")) for form in forms]
    for fact, forms in _FORMS.items()
}
_TENSOR_ASKED = re.compile(r"shape\s?\[([\d,]{0,200})\] and type (\w{1,20})")
_ASKING_OP = re.compile(r"(?:\bat node |\{\{node |\[Op:|executable_name=')([\w./<>-]{1,200})")
_ITEM_BYTES = {"float": 4, "double": 8, "half": 2, "bool": 1}
_KIND = r"(?<![A-Za-z])(GPU|CUDA|ROCM|TPU|MPS|XPU|CPU"
_DEVICE_NAMES = (  # with a number, else without
    re.compile(_KIND + r"|DEVICE)(?:Device\(id=|[ :_])(\d{1,4})", re.IGNORECASE),
    re.compile(_KIND + r")(?:[ :_]|$)()", re.IGNORECASE),
)
_CPU_ALLOCATOR = "DefaultCPUAllocator"
_OTHERS = (CPU, "TPU")  # any other is a GPU, whatever its maker calls it


def device_of(text: str) -> str:
    """Call a device by kind and number, whoever writes it: "cuda:0", "GPU_0_bfc" are "GPU:0"; "" for none."""
    named = next((match for pattern in _DEVICE_NAMES if (match := pattern.search(text))), None)
    if named is None:
        return ""
    kind = named[1].upper() if named[1].upper() in _OTHERS else "GPU"
    return kind if kind == CPU else f"{kind}:{int(named[2] or 0)}"


def find_shortage(error: BaseException | None) -> MemoryShortage | None:
    """Read what an error says of memory, or the one that it was raised from.

    Of the CPU's memory the process and its limit are asked: call it while what failed still lives.
    """
    for one in _chain(error):
        text = _text_of(one)
        if _is_of_memory(one, text):
            return replace(_with_process(_read(one, text)), where=_users_line(one))
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__


def _text_of(error: BaseException) -> str:
    with OwnFaults():  # somebody's error may do anything when it is asked
        return str(error)[:_MOST_TEXT]
    return ""


def _is_of_memory(error: BaseException, text: str) -> bool:
    if any(kind.__name__ in _KINDS for kind in type(error).__mro__):
        return True
    is_of_framework = package_of(error) in _RAISING
    is_plain = type(error) is RuntimeError  # PyTorch's errors of the CPU, and of before 1.13
    return (is_of_framework or is_plain) and _NAMES_MEMORY.search(text) is not None


def _read(error: BaseException, text: str) -> MemoryShortage:
    facts: dict[str, Any] = {fact: _first_size(forms, text) for fact, forms in _PATTERNS.items()}
    reserved = facts.pop("reserved_bytes")
    if facts["unused_bytes"] < 0 <= facts["in_use_bytes"] <= reserved:
        facts["unused_bytes"] = reserved - facts["in_use_bytes"]
    if facts["asked_bytes"] < 0:
        facts["asked_bytes"] = _tensor_bytes(text)
    if min(facts["free_bytes"], facts["in_use_bytes"], facts["limit_bytes"]) >= 0:
        # A device may have more than the process is allowed.
        left = facts["limit_bytes"] - facts["in_use_bytes"]
        facts["free_bytes"] = max(min(facts["free_bytes"], left), 0)
    is_of_host = isinstance(error, MemoryError) or _CPU_ALLOCATOR in text
    device = CPU if is_of_host else device_of(text)
    op = _ASKING_OP.search(text)
    return MemoryShortage(type(error).__name__, device, op=op[1] if op else "", **facts)


def _first_size(patterns: list[re.Pattern[str]], text: str) -> int:
    size = next((match for pattern in patterns if (match := pattern.search(text))), None)
    if size is None:
        return UNKNOWN_BYTES
    number, unit = size.groups()
    power = "BKMGTP".index(unit[0].upper())
    with OwnFaults():  # 1.2.3 is no number
        count = float(number) * 1024**power
        return int(count) if count < _MORE_THAN_ANY else UNKNOWN_BYTES
    return UNKNOWN_BYTES


def _tensor_bytes(text: str) -> int:
    """Bytes of the tensor that TensorFlow names by shape and type."""
    tensor = _TENSOR_ASKED.search(text)
    if tensor is None:
        return UNKNOWN_BYTES
    shape, kind = tensor.groups()
    bits = re.search(r"\d{1,3}$", kind)
    item = int(bits[0]) // 8 if bits else _ITEM_BYTES.get(kind, 0)
    size = prod(int(one[:20]) for one in shape.split(",") if one) * item
    return size if 0 < size < _MORE_THAN_ANY else UNKNOWN_BYTES


def process_pool() -> MemoryPool:
    """What the process has now, and may have."""
    limit, resident = find_limit(), resident_bytes()
    in_use = UNKNOWN_BYTES if resident is None else resident
    if limit is None:
        return MemoryPool(CPU, in_use)
    return MemoryPool(CPU, in_use, UNKNOWN_BYTES, limit.limit_bytes, limit.of)


def _with_process(shortage: MemoryShortage) -> MemoryShortage:
    """Add what the process has and may have, where the CPU's memory ran out."""
    if shortage.device != CPU:
        return shortage
    pool, names = process_pool(), ("in_use_bytes", "limit_bytes", "limit_of")
    return replace(shortage, **{name: getattr(pool, name) for name in names})


def _users_line(error: BaseException) -> str:
    """The innermost line of the user's own code that the error passed; "" for none."""
    passed = list(traceback.walk_tb(error.__traceback__))
    places = ((frame.f_code.co_filename, line) for frame, line in reversed(passed))
    file, line = next((place for place in places if is_user_file(place[0])), ("", 0))
    return f"{file_title(file, number_cells())}:{line}" if line else ""
