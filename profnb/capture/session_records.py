"""What a capture saw of TF1's sessions besides their runs: Python between them, and queues of elements."""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field

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
        runs: Session runs that were looked at.
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
        runner_threads: Threads that the queue's runners were made with.
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
    runner_threads: int = 0
    sources: tuple[str, ...] = ()
    files: int = 0
    file_bytes: int = 0
    begin_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    elements: array[int] = field(default_factory=lambda: array("i"))
    thread: array[int] = field(default_factory=lambda: array("i"))


@dataclass
class SessionRecords:
    """What was seen of the sessions of one thread.

    Attributes:
        epoch_ns: What to add to ``time.perf_counter_ns`` to have nanoseconds since 1970.
        gaps: Python between their runs.
        queues: The queues of their graph.
    """

    epoch_ns: int = 0
    gaps: GapRecords = field(default_factory=GapRecords)
    queues: list[QueueRecord] = field(default_factory=list)
