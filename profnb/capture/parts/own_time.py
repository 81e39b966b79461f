"""When profnb itself held the cell's thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class OwnTime:
    """What profnb does on the thread that makes it: of blocks inside each other the outermost counts.

    Attributes:
        spans: What was done, and its begin and end by ``time.perf_counter_ns``, in order.
    """

    def __init__(self) -> None:
        """Nothing was done yet."""
        self.spans: list[tuple[str, int, int]] = []
        self._thread = threading.get_ident()
        self._depth = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What runs inside the block is profnb itself."""
        if threading.get_ident() != self._thread:
            yield
            return
        begin_ns = time.perf_counter_ns()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.spans.append((name, begin_ns, time.perf_counter_ns()))
