"""Memory as plain data: what lived as the code ended, and what was missing where that failed for memory."""

from dataclasses import dataclass
from typing import Any

CPU, UNKNOWN_BYTES = "CPU", -1
WEIGHTS, GRADIENTS, OPTIMIZER_STATE = "weights", "gradients", "optimizer state"
ACTIVATIONS, DATA = "activations", "input and data"
PYTHON_OBJECTS = "Python objects"


class BlockSums(dict[Any, tuple[int, int]]):
    """Bytes and blocks by whatever they are of."""

    def count(self, key: object, size: int, blocks: int = 1) -> None:
        """Add blocks of one kind, of so many bytes together."""
        so_far = self.get(key, (0, 0))
        self[key] = so_far[0] + size, so_far[1] + blocks


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Arrays that lived as the code ended; each block of memory counts once.

    Attributes:
        kind: WEIGHTS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS (a gradient may still flow through them), DATA,
            PYTHON_OBJECTS (when most of these lived).
        holder: The layer's path; of ACTIVATIONS and DATA the variable that leads to them, of PYTHON_OBJECTS
            the line that made them; "" where none is known.
        device: Where they lie: "CPU", "GPU:0".
        bytes: Their size.
        blocks: How many there are.
    """

    kind: str
    holder: str
    device: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """Memory of the process, or what a framework's allocator says of a device; -1 where nobody tells.

    Attributes:
        device: "CPU" for the process; "GPU:0".
        in_use_bytes: As the code ended.
        peak_bytes: The most so far, before the code too.
        limit_bytes: The most there may be.
        limit_of: What sets that bound.
    """

    device: str
    in_use_bytes: int = UNKNOWN_BYTES
    peak_bytes: int = UNKNOWN_BYTES
    limit_bytes: int = UNKNOWN_BYTES
    limit_of: str = ""


@dataclass(frozen=True, slots=True)
class MemoryShortage:
    """An error that ended the code, as far as it speaks of memory; -1 and "" where it says nothing.

    Attributes:
        error: The error's class.
        device: Whose memory ran out: "CPU", "GPU:0"; "" where nobody tells.
        asked_bytes: What was asked for.
        free_bytes: What was free.
        in_use_bytes: What the framework's allocator had given; of the CPU, what the process had.
        unused_bytes: What the allocator held, and could not give in one piece.
        limit_bytes: The most there may be.
        limit_of: What sets that bound.
        op: The op, or the program of XLA's, that asked.
        where: The user's line that asked, "Cell [3]:8".
    """

    error: str
    device: str = ""
    asked_bytes: int = UNKNOWN_BYTES
    free_bytes: int = UNKNOWN_BYTES
    in_use_bytes: int = UNKNOWN_BYTES
    unused_bytes: int = UNKNOWN_BYTES
    limit_bytes: int = UNKNOWN_BYTES
    limit_of: str = ""
    op: str = ""
    where: str = ""


@dataclass
class MemoryRecords:
    """Memory as a capture found it when the code ended.

    Attributes:
        held: What lived.
        pools: Who gave it.
        shortage: What was missing; None where the code did not fail for memory.
    """

    held: tuple[HeldMemory, ...] = ()
    pools: tuple[MemoryPool, ...] = ()
    shortage: MemoryShortage | None = None
