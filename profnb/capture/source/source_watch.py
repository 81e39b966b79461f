"""Running code to what is known of its source: its lines, the graphs it traced, its Python stacks.

Recorded only while the window of the capture is open, on the thread that opened it. That thread's own line of
the trace, and the difference between Python's clock and the trace's, are told by a trace event that carries
the clock's reading.

Where Python cannot tell of lines as they run (before 3.12), the samples of its stack do, if they are asked
for; taken only for that, they would cost 2 to 3 %.
"""

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from profnb.capture.source.graph_lines import GraphWatch
from profnb.capture.source.line_watch import LineWatch
from profnb.capture.source.source_records import LineRecords, SourceRecords, StackRecords
from profnb.capture.source.stacks import Sampler, lines_of_stacks, looks_between
from profnb.capture.source.user_code import (
    LineTable,
    number_cells,
    read_sources,
    shorten_files,
    shorten_source,
)
from profnb.trace.names import CLOCK_EVENT, CLOCK_NS

_CLOCK_READINGS = 3


class SourceWatch:
    """Watches the source of the code that a capture surrounds.

    Args:
        sampler: Looks at the stack of the code's thread.
        has_lines: Whether to find the lines of ops.
        has_stacks: Whether to look a thousand times a second while the window is open, and keep that.

    Attributes:
        messages: What is lost and why, in sentences.
        trace_type: TensorFlow's or JAX's events, by which their trace tells its clock.
        folder: Where the code began to run.
    """

    def __init__(self, sampler: Sampler, *, has_lines: bool, has_stacks: bool) -> None:
        """Nothing is watched yet."""
        self._has_lines, self._has_stacks = has_lines, has_stacks
        self._places = LineTable()
        self._graphs = GraphWatch(self._places)
        self._lines: LineWatch | None = None
        self._sampler, self._dense_ns = sampler, (0, 0)
        self.trace_type: Any = None
        self._is_early = False
        self._lock = threading.Lock()
        self._line_records = LineRecords()
        self.folder = ""
        self.messages: list[str] = []

    def read_functions(self, functions: Iterable[Any]) -> None:
        """Read, as the window has closed, the lines of functions that were traced by then."""
        if self._has_lines:
            self._graphs.read_functions(functions)

    def add_places(self, places: Iterable[tuple[str, int]]) -> None:
        """Keep the text of lines that others name: files and numbers."""
        for file, line in places:
            self._places.row_of(file, line)

    def begin_without_trace(self) -> None:
        """Watch the lines of the code, which runs on this thread, until there is a window."""
        if self._has_lines:
            lines = LineWatch()
            self._is_early = lines.start()
            self._lines = lines if self._is_early else None

    def begin(self) -> None:
        """Begin as the window opens, on this thread."""
        if not (self._has_lines or self._has_stacks):
            return
        with self._lock:
            early, self._lines, self._is_early = self._lines, None, False
        if early is not None:  # what it saw is not part of the window
            early.stop()
        try:
            self._begin()
        except Exception:  # noqa: BLE001 - no thread to be had, say; the user's code comes first
            self.end()

    def _begin(self) -> None:
        with contextlib.suppress(OSError):  # the folder is gone
            self.folder = str(Path.cwd())
        # Events whose begin is known by Python's clock; a later reading is the surer one. PyTorch's door
        # tells PyTorch's.
        for _ in range(_CLOCK_READINGS if self.trace_type is not None else 0):
            with self.trace_type(CLOCK_EVENT, **{CLOCK_NS: time.perf_counter_ns()}):
                pass
        if self._has_stacks:
            self._dense_ns = time.perf_counter_ns(), 0
            self._sampler.is_dense = True
        if self._has_lines:
            self._lines = LineWatch()
            if not self._lines.start():
                if self._lines.taken_by:
                    self.messages.append(
                        f"Other tools use Python's sys.monitoring ({', '.join(self._lines.taken_by)}): "
                        "eager ops have no lines, and Python no time. End the debugger or coverage "
                        "tool, or sample the stack with --python."
                    )
                self._lines = None

    def end(self) -> None:
        """End as the window closes, perhaps on another thread."""
        with self._lock:
            if self._sampler.is_dense:
                self._sampler.is_dense = False
                self._dense_ns = self._dense_ns[0], time.perf_counter_ns()
            lines, self._lines = self._lines, None
        if lines is not None:
            lines.stop()
            self._line_records = lines.records
            if self._is_early and not lines.records.is_cut:  # an exception may have ended the code
                lines.records.end(time.perf_counter_ns())

    def finish(
        self,
        looks: StackRecords,
        graph_of_runs: Any = None,
        models: Iterable[object] = (),
        *,
        has_run: bool = True,
    ) -> tuple[SourceRecords | None, StackRecords | None]:
        """Give what was recorded: lines and stacks, None where they were not asked for.

        Args:
            looks: All looks at the stack of the cell.
            graph_of_runs: The graph that ran in sessions, or None.
            models: The Keras models that are known to have run.
            has_run: Whether a graph or a model may have run.
        """
        stacks = looks_between(looks, *self._dense_ns) if self._has_stacks else None
        if stacks is not None and self._has_lines and not len(self._line_records):
            self._line_records = lines_of_stacks(stacks)
        graphs = self._graphs.finish(graph_of_runs, models) if self._has_lines and has_run else ()
        lines, places = self._line_records, list(self._places)
        files = [*lines.files, *(file for file, _ in places)]
        frames = () if stacks is None else (file for _, file, _, _ in stacks.frames)
        names = shorten_files([*files, *frames], self.folder)
        if stacks is not None:
            called = [(name, names[file], first, line) for name, file, first, line in stacks.frames]
            stacks = replace(stacks, frames=called)
        if not self._has_lines:
            return None, stacks
        texts = read_sources(files)
        cells = {file: number for file, number in number_cells().items() if file in texts}
        shapes = tuple(self._graphs.shapes)
        source = SourceRecords(places, lines, graphs, self._graphs.layers, texts, cells, shapes)
        return shorten_source(source, names), stacks
