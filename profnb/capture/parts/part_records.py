"""The whole cell's wall time as plain values that add up exactly: its parts, and a tree of who called whom.

A node of the tree is what a person would name: a call of Keras', an own function, a callback, steps, an
iterator that is made. Equal siblings are one node.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from dataclasses import dataclass, field, replace

from profnb.capture.source.user_code import shorten_files

IMPORTS, BUILDING = "imports", "building models"
FIRST, SLOW_FIRST = "first steps", "slow first steps"
TRAIN, VALIDATION, EVALUATION = "train steps", "validation steps", "evaluation steps"
PREDICT, MARKED, CALLS = "predict steps", "marked steps", "function calls"
SESSION_RUNS, FAILED = "session runs", "failed steps"
INPUT, GAPS, EPOCH_ENDS, AROUND = "input", "gaps", "epoch ends", "around steps"
CALLBACKS, CHECKPOINTING = "callbacks", "checkpointing"
INTERPRETER = "interpreter"
ADAPTS = ".adapt"  # how what a layer does with its data, of building, ends
# How what loads, of checkpointing, ends.
LOADING = "load_weights", "restore", "read", "load", "load_model"
OTHER, PROFNB = "other Python", "profnb"

# What else a node of the tree may be.
CELL, CALL, EPOCH, LINES = "cell", "call", "epoch", "own lines"
SETTING_UP, TRACING, COMPILATION = "set-up", "tracing", "compilation"
FRAMEWORK = "framework code"  # that an own function calls: no ops, and no Python of its own
WAITING = "waiting for other threads"
EAGER = "eager ops"  # of TensorFlow and Keras that an own function or a callback runs one by one
TO_TENSORS = "values to tensors"  # of these, what takes Python's values to tensors

# Every part, and what it is.
PARTS = {
    IMPORTS: "importing modules, by the package that was imported",
    BUILDING: "making layers and models, giving them weights, `compile`",
    FIRST: "steps in which a function was traced: tracing, XLA compiling, and what else they did",
    SLOW_FIRST: "the first step of a fit, evaluate or predict, where nothing was traced and it took "
    "five times the second one or more: as when threads start and buffers fill",
    TRAIN: "batches of `fit` and `train_on_batch`",
    VALIDATION: "batches of the validation inside `fit`",
    EVALUATION: "batches of `evaluate` and `test_on_batch`",
    PREDICT: "batches of `predict` and `predict_on_batch`",
    MARKED: "iterations marked by hand, by their phase",
    CALLS: "outermost calls of a `tf.function`, by its name",
    SESSION_RUNS: "session runs of TensorFlow 1",
    FAILED: "steps that ended with an exception",
    INPUT: "the code waiting for the next element of a dataset that it iterates itself",
    GAPS: "between two batches of an epoch, without callbacks",
    EPOCH_ENDS: "from an epoch's last batch to the next one's first, without validation and callbacks",
    AROUND: "set-up of `fit`, `evaluate` and `predict`: from the call to its first batch, and after its last",
    CALLBACKS: "callbacks, by class and hook: `EarlyStopping.on_epoch_end`; TensorFlow's own hooks of a "
    "monitored session: `SummarySaverHook.after_run`",
    CHECKPOINTING: "saving and loading models, weights and checkpoints",
    INTERPRETER: "making a LiteRT interpreter, and copying its inputs and outputs: `set_tensor`, "
    "`get_tensor`; its runs are marked steps",
    OTHER: "everything else: the code's own Python, and ops of TensorFlow that it runs one by one (eagerly), "
    "by the source line that was seen",
    PROFNB: "profnb itself: its start, its stop (the trace is written), reading the trace, the page, what "
    "traced steps took longer than untraced ones, counting steps, and its threads (which look at the stack)",
}


@dataclass(frozen=True, slots=True)
class CellPart:
    """One part of the cell.

    Attributes:
        part: One of ``PARTS``.
        name: Which one: a callback's hook, a package, a function; "" for the whole part.
        occurrences: How often it ran; 0 where that has no meaning.
        is_counted: Whether a counter says so; else it is how often looks met it, and may have been more.
        wall_ns: Wall time of it alone, without the parts inside it.
        longest_ns: The longest occurrence.
        file: File of the line that caused it, or where a callback stands; "" where that is not the user's.
        line: That line; 0 for none.
    """

    part: str
    name: str
    occurrences: int
    wall_ns: int
    longest_ns: int
    file: str = ""
    line: int = 0
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class NodeKey:
    """Tells a node from its siblings.

    Attributes:
        kind: ``LINES`` for a function of the user's or lines of the cell itself, ``CALL`` for a run of
            Keras', one of the other constants here, or one of ``PARTS``.
        name: The user's or the library's own name; "" where the kind says all.
        file: Where it is defined; of lines of the cell, and of what a library does, where they stand, or it
            was called. "" where that is not the user's.
        line: That line; 0 for none.
    """

    kind: str
    name: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of the tree.

    Attributes:
        parent: Row of the node that it is below; -1 for the cell itself, which comes first.
        kind: See ``NodeKey``.
        name: See ``NodeKey``.
        file: See ``NodeKey``.
        line: See ``NodeKey``.
        occurrences: How often it happened, where a counter knows; else 0.
        self_ns: Wall time of it alone, without the nodes below.
        looks: How many looks met it alone; 0 where its time is counted and not looked at.
    """

    parent: int
    kind: str
    name: str = ""
    file: str = ""
    line: int = 0
    occurrences: int = 0
    self_ns: int = 0
    looks: int = 0


@dataclass(frozen=True, slots=True)
class Loads:
    """How often one function loaded models.

    Attributes:
        name: The function, as nodes of the tree are called: "load_model", "Interpreter.__init__".
        times: How often.
        models: How many different models it loaded, by their files or bytes.
    """

    name: str
    times: int
    models: int


@dataclass
class CellRecords:
    """The parts of a cell.

    Attributes:
        wall_ns: Wall time from the capture's start until the trace was read: the sum of the parts.
        parts: In the order in which they first began.
        cells: The number of the cell that each file stands for, where it is one.
        long_part: Row of ``parts`` of each long call of a callback, or long saving or loading: the longest
            of each row, in the order in which they began, as the looks saw them.
        long_begin_ns: When it began, by ``time.perf_counter_ns``.
        long_end_ns: When it ended.
        long_wall_ns: What it took by itself, without the parts inside it.
        tree: The same time as a tree of who called whom, the cell itself first.
        loads: What loaded models.
    """

    wall_ns: int = 0
    parts: list[CellPart] = field(default_factory=list)
    cells: dict[str, int] = field(default_factory=dict)
    long_part: array[int] = field(default_factory=lambda: array("i"))
    long_begin_ns: array[int] = field(default_factory=lambda: array("q"))
    long_end_ns: array[int] = field(default_factory=lambda: array("q"))
    long_wall_ns: array[int] = field(default_factory=lambda: array("q"))
    tree: list[TreeNode] = field(default_factory=list)
    loads: list[Loads] = field(default_factory=list)

    def call(self, whole: str) -> None:
        """Name what ran: "script"; "" for a cell."""
        self.tree[:1] = [replace((self.tree or [TreeNode(-1, CELL)])[0], name=whole)]

    def add(self, part: str, name: str, wall_ns: int) -> None:
        """Add what came after the clock had stopped."""
        self.wall_ns += wall_ns
        self.tree = self.tree or [TreeNode(-1, CELL)]
        rows = {(node.parent, node.kind, node.name): row for row, node in enumerate(self.tree)}
        row = rows.get((0, part, name), len(self.tree))
        node = [*self.tree, TreeNode(0, part, name)][row]
        added = replace(node, occurrences=node.occurrences + 1, self_ns=node.self_ns + wall_ns)
        self.tree[row : row + 1] = [added]
        listed = {(entry.part, entry.name): row for row, entry in enumerate(self.parts)}
        row = listed.get((part, name), len(self.parts))
        entry = [*self.parts, CellPart(part, name, 0, 0, 0)][row]
        times, whole_ns = entry.occurrences + 1, entry.wall_ns + wall_ns
        longest_ns = max(entry.longest_ns, wall_ns)
        entry = replace(entry, occurrences=times, wall_ns=whole_ns, longest_ns=longest_ns)
        self.parts[row : row + 1] = [entry]


def shorten_parts(records: CellRecords, folder: str) -> CellRecords:
    """Call files by their short names in records, as ``capture.source.user_code`` has them.

    Args:
        records: The parts of a cell.
        folder: Where the code began to run.
    """
    files = {part.file for part in records.parts} | {node.file for node in records.tree}
    names = {"": "", **shorten_files(sorted(files - {""}), folder)}
    parts = [replace(part, file=names[part.file]) for part in records.parts]
    tree = [replace(node, file=names[node.file]) for node in records.tree]
    cells = {names[file]: number for file, number in records.cells.items() if file in names}
    return replace(records, parts=parts, cells=cells, tree=tree)
