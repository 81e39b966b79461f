"""What one capture left behind."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profnb.capture.datasets import Chain
from profnb.capture.line_records import SourceRecords, StackRecords
from profnb.capture.records import StepRecords

__all__ = ["Recording"]


@dataclass(slots=True)
class Recording:
    """What one capture left behind.

    Attributes:
        path: The trace file, or None if there is none.
        folder: A temporary folder to remove once the trace is read, or None.
        steps: Every step seen, traced or not.
        window_ns: Wall time of the traced window.
        overhead_ns: Wall time spent starting the profiler, stopping it and writing the trace.
        closed_by: Why the window closed before the code ended: "steps", "seconds", "the code" (it
            started its own profiler), "session runs" (which are traced one by one), or None if it
            did not.
        messages: What the user should know, in sentences.
        graph_runs: The serialized RunMetadata of each traced session run, in order.
        graph: The graph of the first of them, or None.
        devices: The GPUs and TPUs that TensorFlow had, by its own names.
        environment: What the code ran with: versions, and Keras' precision policy.
        datasets: The tf.data pipelines of the user's namespace; see ``datasets``.
        source: The user's lines and the ops they made; None if not asked for.
        stacks: Samples of Python's stack; None if not asked for.
    """

    path: Path | None = None
    folder: str | None = None
    steps: StepRecords = field(default_factory=StepRecords)
    window_ns: int = 0
    overhead_ns: int = 0
    closed_by: str | None = None
    messages: list[str] = field(default_factory=list)
    graph_runs: list[bytes] = field(default_factory=list)
    graph: Any = None
    devices: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    datasets: tuple[Chain, ...] = ()
    source: SourceRecords | None = None
    stacks: StackRecords | None = None

    def discard(self) -> None:
        """Remove the temporary folder; a trace that was read stays readable."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
