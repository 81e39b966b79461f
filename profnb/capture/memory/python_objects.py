"""Memory of Python's objects when most was in use, by the user's line that made them: through memray.

memray sees every allocation of the interpreter, on all threads, and sums them up as they come; its file is
small and temporary. Arrays are none of these: their numbers lie in memory of their libraries. It costs time
with every object that is made, so it is asked for (``--memory``).

Source: bloomberg.github.io/memray, "Python allocators", "Memray API" (1.20).
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from profnb.capture.memory.memory_records import CPU, PYTHON_OBJECTS, BlockSums, HeldMemory
from profnb.capture.signals import OwnFaults
from profnb.capture.source.user_code import file_title, is_user_file, number_cells
from profnb.core.safe_files import folder_prefix

_MOST_ROWS, _DEEPEST = 200, 100
_OF_PYTHON = "PYMALLOC_"


class PythonObjects:
    """What objects took when most lived.

    Attributes:
        held: They, by line, the largest first; none before the watch ends.
    """

    def __init__(self, messages: list[str]) -> None:
        """Nothing is known yet; why there is nothing is said in ``messages``."""
        self.held: list[HeldMemory] = []
        self._messages = messages

    @contextmanager
    def watch(self) -> Iterator[None]:
        """See what is made inside the block."""
        with tempfile.TemporaryDirectory(prefix=folder_prefix()) as folder, ExitStack() as stack:
            path = Path(folder) / "objects"
            try:
                import memray

                kind = memray.FileFormat.AGGREGATED_ALLOCATIONS
                tracker = memray.Tracker(path, trace_python_allocators=True, file_format=kind)
                stack.callback(self._read, path)  # behind the tracker's end
                stack.enter_context(tracker)
            except ImportError:
                self._messages.append(
                    "--memory needs memray for Python's objects. Install memray with `pip install memray`."
                )
            except Exception as error:  # noqa: BLE001 - another tracker runs, say; the code comes first
                self._messages.append(
                    f"memray could not start ({error}), so Python's objects are unknown."
                )
            yield

    def _read(self, path: Path) -> None:
        """Sum up what lived at the peak, by line of the user's."""
        import memray

        sums, cells = BlockSums(), number_cells()
        with OwnFaults(), memray.FileReader(path) as reader:  # whatever its file holds
            for record in reader.get_high_watermark_allocation_records(merge_threads=True):
                if memray.AllocatorType(record.allocator).name.startswith(_OF_PYTHON):
                    sums.count(_line_of(record, cells), record.size, record.n_allocations)
        rows = [HeldMemory(PYTHON_OBJECTS, line, CPU, *both) for line, both in sums.items()]
        self.held += sorted(rows, key=lambda row: -row.bytes)[:_MOST_ROWS]


def _line_of(record: Any, cells: dict[str, int]) -> str:
    """The innermost line of the user's that an allocation came from; "" for none."""
    frames = record.stack_trace(max_stacks=_DEEPEST)
    user = next(((file, line) for _, file, line in frames if is_user_file(file)), ("", 0))
    return f"{file_title(user[0], cells)}:{user[1]}" if user[0] else ""
