"""One capture's remains: a trace, and what was seen besides it.

Of TF1's sessions that is Python between their runs, and queues of elements.
"""

import shutil
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profnb.capture.environment import (
    Chain,
    count_elements,
    describe_datasets,
    find_files,
    python_functions,
)
from profnb.capture.machine.machine_watch import MachineRecords
from profnb.capture.machine.waits import CoreWaits, NetworkFiles
from profnb.capture.marking.trace_events import ChangingArguments, TracedFunction
from profnb.capture.memory.memory_records import MemoryRecords
from profnb.capture.models.layer_facts import FitResult, ModelFacts
from profnb.capture.parts.part_records import CellRecords
from profnb.capture.source.source_records import SourceRecords, StackRecords, TurnRecords
from profnb.capture.step_records import StepRecords

NOT_ENDED = "The first step had not ended"  # how the message begins that says so
FEEDS, BEFORE, RUN_ITSELF, AFTER = "feeds", "before", "run", "after"
# What a statement between two runs is to the run that follows.
ROLES = {
    FEEDS: "what is fed to the run is made from what it gives, or in the run's own statement",
    BEFORE: "stands before the run's statement in the same loop, and is none that only shows or writes",
    RUN_ITSELF: "TensorFlow's own Python around the run, and hooks of a monitored session",
    AFTER: "any other",
}


@dataclass(frozen=True, slots=True)
class GapPlace:
    """A statement of the user's that ran between session runs.

    Attributes:
        file: Its file.
        line: Its first line.
        text: Its first line's text, or the hook's name; "" where it is not at hand.
        role: One of ``ROLES``.
        wall_ns: Its time between runs, without pauses; by samples.
        inner_file: File of the innermost line of the user's that took most of it; "" where that is itself.
        inner_line: That line.
        inner_text: Its text.
        inner_ns: What that line took.
    """

    file: str
    line: int
    text: str
    role: str
    wall_ns: int
    inner_file: str = ""
    inner_line: int = 0
    inner_text: str = ""
    inner_ns: int = 0


@dataclass
class GapRecords:
    """Python between the session runs of one thread.

    Attributes:
        runs: Session runs that were looked at, the first few hundred.
        fed: Those that were fed arrays.
        judged: Those of which it is known whether their arrays were made for them.
        new: Those whose arrays were made for them: not fed before, and gone soon after.
        fed_bytes: The most that a run was fed.
        gaps: How many gaps there are times of, without pauses.
        gap_ns: Their time, without what profnb did in them.
        samples: How many samples the places are by.
        places: Statements that ran in them, the longest first.
        cells: The number of the cell that each file stands for, where it is one.
        traced: How many of the runs were traced one by one.
        own_ns: What profnb itself did around them, which lies between the steps of their trace.
    """

    runs: int = 0
    fed: int = 0
    judged: int = 0
    new: int = 0
    fed_bytes: int = 0
    gaps: int = 0
    gap_ns: int = 0
    samples: int = 0
    places: list[GapPlace] = field(default_factory=list)
    cells: dict[str, int] = field(default_factory=dict)
    traced: int = 0
    own_ns: int = 0


@dataclass
class QueueRecord:
    """A queue of a session's graph, and what threads put into it.

    Attributes:
        name: The queue op's name.
        op_type: Its type, "RandomShuffleQueueV2".
        capacity: How many elements it holds; -1 without a limit.
        min_after_dequeue: How many it keeps back to shuffle; 0 for other queues.
        element_bytes: Size of an element by its static shapes; 0 where they do not tell.
        dequeues: Elements that each dequeuing op takes out, by its name; 0 where the graph does not tell.
        enqueues: Elements that each enqueuing op puts in, by its name; 0 where the graph does not tell.
        sources: Types of the ops that what is put in comes from, up to another queue.
        files: Files whose names are put in, where the graph has them.
        file_bytes: Their mean size; 0 where not known.
        begin_ns: Begins of the enqueuing runs, by ``time.perf_counter_ns``, in order of their ends.
        end_ns: Their ends.
        elements: How many elements each put in; 0 where that is not known.
        thread: A number for the thread of each.
    """

    name: str = ""
    op_type: str = ""
    capacity: int = -1
    min_after_dequeue: int = 0
    element_bytes: int = 0
    dequeues: dict[str, int] = field(default_factory=dict)
    enqueues: dict[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    files: int = 0
    file_bytes: int = 0
    begin_ns: "array[int]" = field(default_factory=lambda: array("q"))
    end_ns: "array[int]" = field(default_factory=lambda: array("q"))
    elements: "array[int]" = field(default_factory=lambda: array("i"))
    thread: "array[int]" = field(default_factory=lambda: array("i"))


@dataclass
class SessionRecords:
    """The sessions of one thread, besides their runs.

    Attributes:
        epoch_ns: What to add to ``time.perf_counter_ns`` to have nanoseconds since 1970.
        gaps: Python between their runs.
        queues: The queues of their graph.
    """

    epoch_ns: int = 0
    gaps: GapRecords = field(default_factory=GapRecords)
    queues: list[QueueRecord] = field(default_factory=list)


@dataclass(slots=True)
class Recording:
    """Everything that one capture left behind.

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
        python_functions: Functions of Python that graphs may call, by name and line.
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
        memory: What lived as the code ended, and what was missing where it failed for memory.
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
    python_functions: tuple[tuple[str, str], ...] = ()
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
    memory: MemoryRecords = field(default_factory=MemoryRecords)
    core_waits: CoreWaits = field(default_factory=CoreWaits)

    def describe(self, namespace: Mapping[str, object]) -> None:
        """Learn from the objects among which the code ran; call it once the capture has ended."""
        self.datasets, self.dataset_lines = describe_datasets(namespace)
        self.python_functions = python_functions()
        self.cardinalities = count_elements(namespace)
        self.file_counts, self.file_bytes = find_files(namespace)

    def discard(self) -> None:
        """Remove the temporary folder; a trace that was read stays readable."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
