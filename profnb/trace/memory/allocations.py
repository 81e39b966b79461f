"""Allocations, whoever recorded them, as events of allocators, which the tables of memory read.

The line of the program stands where those have the op.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int64s
from profnb.trace.assemble import FoundLine
from profnb.trace.names import ALLOCATION, DEALLOCATION
from profnb.trace.nvidia.records import Records

BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Allocations:
    """N changes of what one allocator holds, in time order.

    Attributes:
        allocator: Its name.
        number: Its number.
        time_ns: When, shape (N,).
        change: Bytes more, or less, shape (N,).
        in_use: Bytes in use after each, shape (N,); -1 where nobody says.
        address: The block, shape (N,).
        lines: The line of the program that each belongs to; "" where it is not known.
        blocks: How many blocks each stands for, shape (N,).
    """

    allocator: str
    number: int
    time_ns: Int64s
    change: Int64s
    in_use: Int64s
    address: Int64s
    lines: Sequence[str]
    blocks: Int64s

    def records(self) -> Records:
        """Make records of them."""
        texts = {line: row for row, line in enumerate(dict.fromkeys(self.lines))}
        rows = [texts[line] if line else -1 for line in self.lines]
        one_line = np.zeros_like(self.time_ns)
        return Records(
            [FoundLine("/host:CPU", "host", f"memory of {self.allocator}", self.number)], one_line,
            [ALLOCATION, DEALLOCATION], (self.change < 0).astype(np.int64),
            self.time_ns, self.time_ns,
            {
                "bytes_allocated": self.in_use, "allocation_bytes": np.abs(self.change),
                "addr": self.address, "peak_bytes_in_use": np.maximum.accumulate(self.in_use),
                BLOCKS: self.blocks,
            },
            {
                "allocator_name": ([self.allocator], one_line),
                "tf_op": (list(texts), np.array(rows, np.int64)),
            },
        )  # fmt: skip


def line_name(file: str, line: int, function: str) -> str:
    """Name a line of a program: ``train.py:41 step``."""
    name = file.replace("\\", "/").rpartition("/")[2][:200]
    place = f"{name}:{line}" if name and line else name
    return " ".join(part for part in (place, function[:200]) if part)
