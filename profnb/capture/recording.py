"""What one capture left behind."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profnb.capture.datasets import (
    Chain,
    count_elements,
    describe_datasets,
    find_files,
    locate_datasets,
)
from profnb.capture.machine.core_waits import CoreWaits
from profnb.capture.machine.machine_records import MachineRecords
from profnb.capture.machine.network_files import NetworkFiles
from profnb.capture.marking.retracings import ChangingArguments, TracedFunction
from profnb.capture.models.layer_facts import FitResult, ModelFacts
from profnb.capture.parts.part_records import CellRecords
from profnb.capture.session_records import SessionRecords
from profnb.capture.source.source_records import SourceRecords, StackRecords, TurnRecords
from profnb.capture.step_records import StepRecords

NOT_ENDED = "The first step had not ended"  # how the message begins that says so


@dataclass(slots=True)
class Recording:
    """What one capture left behind.

    Attributes:
        path: The trace file, or None if there is none.
        folder: A temporary folder to remove once the trace is read, or None.
        steps: Every step seen, traced or not.
        window_ns: Wall time of the traced window.
        wall_ns: Wall time of the whole code, without what starting and stopping the profiler took.
        overhead_ns: Wall time spent starting the profiler, stopping it and writing the trace.
        marking_ns: What marking a traced step took outside of it, on average.
        closed_by: Why the window closed before the code ended: "steps", "seconds", "events" (what was
            recorded takes long to read), "the code" (it
            started its own profiler), "session runs" (which are traced one by one), "a fault" (of
            ours, as it opened), or None if it did not.
        messages: What the user should know, in sentences.
        graph_runs: The serialized RunMetadata of each traced session run, in order.
        graph: The graph of the first of them, or None.
        devices: The GPUs and TPUs that TensorFlow had, by its own names.
        environment: What the code ran with: versions, and Keras' precision policy.
        datasets: The tf.data pipelines of the user's namespace; see ``datasets``.
        dataset_lines: The same, with the lines at which their functions stand.
        cardinalities: How many elements each of them has, by its name, where that is known.
        file_counts: How many files each of them begins with the names of, by its name.
        file_bytes: The mean size of those files.
        changing_arguments: Why functions were traced anew; see ``functions``.
        functions: The tf.functions that were traced, by object.
        fits: What each of Keras' fits reached, in order.
        graph_versions: How many changes the graph had seen at each session run, bounded.
        sessions: What was seen of TF1's sessions besides their runs; None where there were none.
        models: The Keras models that ran or were given; see ``capture.models``.
        source: The user's lines and the ops they made; None if not asked for.
        stacks: Samples of Python's stack; None if not asked for.
        cell: Where the whole wall time went; None where nobody looked.
        network_files: Files on network mounts that were read.
        machine: What the machine did meanwhile; None where nobody could look.
        turns: Where turns of eager loops may have begun.
        core_waits: How long threads waited for a free core while the window was open.
    """

    path: Path | None = None
    folder: str | None = None
    steps: StepRecords = field(default_factory=StepRecords)
    window_ns: int = 0
    wall_ns: int = 0
    overhead_ns: int = 0
    marking_ns: int = 0
    closed_by: str | None = None
    messages: list[str] = field(default_factory=list)
    graph_runs: list[bytes] = field(default_factory=list)
    graph: Any = None
    devices: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    datasets: tuple[Chain, ...] = ()
    dataset_lines: tuple[Chain, ...] = ()
    cardinalities: dict[str, int] = field(default_factory=dict)
    file_counts: dict[str, int] = field(default_factory=dict)
    file_bytes: dict[str, int] = field(default_factory=dict)
    changing_arguments: ChangingArguments = field(default_factory=dict)
    functions: tuple[TracedFunction, ...] = ()
    fits: list[FitResult] = field(default_factory=list)
    graph_versions: list[int] = field(default_factory=list)
    sessions: SessionRecords | None = None
    models: tuple[ModelFacts, ...] = ()
    source: SourceRecords | None = None
    stacks: StackRecords | None = None
    cell: CellRecords | None = None
    network_files: NetworkFiles = field(default_factory=NetworkFiles)
    machine: MachineRecords | None = None
    turns: TurnRecords = field(default_factory=TurnRecords)
    core_waits: CoreWaits = field(default_factory=CoreWaits)

    def describe(self, namespace: Mapping[str, object]) -> None:
        """Learn from the objects among which the code ran; call it once the capture has ended."""
        self.datasets = describe_datasets(namespace)
        self.dataset_lines = locate_datasets(namespace)
        self.cardinalities = count_elements(namespace)
        self.file_counts, self.file_bytes = find_files(namespace)

    def discard(self) -> None:
        """Remove the temporary folder; a trace that was read stays readable."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
