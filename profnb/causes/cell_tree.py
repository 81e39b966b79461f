"""The wall time of the cell as one tree, down to what its steps computed.

The upper part is what the capture's looks and counters saw; of a trace that another program recorded, its
steps and what lies between. Below the steps the traced ones tell the rest: categories, and below computing
the layers, or ops where no layer is known. They are scaled to all that ran, tracing's cost taken out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CellRecords, TreeNode
from profnb.capture.source.user_code import file_title
from profnb.capture.step_records import SESSION_RUN
from profnb.core.columns import Floats, Int64s, RowColumns
from profnb.core.printable import printable
from profnb.core.table import Column, Table, field_column
from profnb.core.units import PS_PER_NS
from profnb.steps.activities import CATEGORIES
from profnb.subjects.cell.cell_breakdown import kind_title, node_title
from profnb.subjects.layers.layer_rows import INPUT as PIPELINE
from profnb.subjects.study import Study
from profnb.trace.names import DATASET, plain_type

LAYER, OP, _COMPUTE = "layer", "op", " compute"
_WINDOW = "recorded window"  # what a trace of another program's is of
_MOST_BELOW = 12  # layers or ops below one node; the others together
_SURE = 1.96  # standard errors on either side hold the true share in 95 of 100 cells
_STEPS_OF_PART = {
    "train": parts.TRAIN, "test": parts.EVALUATION, "predict": parts.PREDICT,
    "validation": parts.VALIDATION, SESSION_RUN: parts.SESSION_RUNS,
}  # fmt: skip
PHASE_OF_STEPS = {
    parts.TRAIN: "train", parts.VALIDATION: "test", parts.EVALUATION: "test",
    parts.PREDICT: "predict", parts.SESSION_RUNS: SESSION_RUN,
}  # fmt: skip
_NAMED_STEPS = (parts.CALLS, parts.MARKED)
_OF_TRACE = (parts.INPUT, parts.FRAMEWORK)  # what looks see, and the trace tells of every step
_WAITS = (parts.FRAMEWORK, parts.WAITING)
_OF_DEVICE = (
    "device compute", "device to device", "device collectives", "kernel launch", "input", "output",
)  # fmt: skip
STEADY_STEPS = (*PHASE_OF_STEPS, *_NAMED_STEPS)
STEPS = (*STEADY_STEPS, parts.FIRST, parts.SLOW_FIRST)
_NAMED_KINDS = (
    parts.LINES, parts.CALL, parts.CALLBACKS, parts.CHECKPOINTING, parts.CALLS, parts.MARKED, parts.BUILDING,
)  # fmt: skip
_CALLED_BY_NAME = (parts.CELL, parts.LINES, parts.CALL, LAYER, OP, parts.CALLBACKS, parts.CALLS)
_MOST_NAMES_OF_NODE = 8


@dataclass(frozen=True, slots=True)
class CellTree(RowColumns):
    """N nodes, each behind the one above; the first is the cell.

    Attributes:
        parent: Row of the node above; -1 for the cell, shape (N,).
        depth: How far below the cell, shape (N,).
        kind: What each node is.
        name: The user's or the library's own name, "" where the kind says all.
        line: Where it is defined, or called: "Cell [3]:8"; "" where that is not the user's.
        occurrences: How often it happened; 0 where nobody counted, shape (N,).
        self_ps: Wall time without the nodes below, shape (N,).
        wall_ps: Wall time with them, shape (N,).
        own_looks: Looks at the stack that met the node itself, shape (N,).
        seen_ps: What of its wall time they tell, and no counter, shape (N,).
    """

    parent: Int64s
    depth: Int64s
    kind: tuple[str, ...]
    name: tuple[str, ...]
    line: tuple[str, ...]
    occurrences: Int64s
    self_ps: Int64s
    wall_ps: Int64s
    own_looks: Int64s
    seen_ps: Int64s

    @property
    def whole_ps(self) -> int:
        """The cell's wall time."""
        return int(self.wall_ps[0])

    @property
    def whole(self) -> str:
        """What all of it is: "the cell", "the script", "the recorded window"."""
        return f"the {self.title(0)}"

    @property
    def is_recorded(self) -> bool:
        """True if it is what a trace alone recorded, and nobody looked at all that ran."""
        return self.name[0] == _WINDOW

    @property
    def fraction(self) -> Floats:
        """Each node's share of the cell, with the nodes below, shape (N,)."""
        return self.wall_ps / (self.whole_ps or np.nan)

    @property
    def error_ps(self) -> Floats:
        """What looks may be wrong by in each node with those below, shape (N,)."""
        return self._error_of(self.seen_ps)

    def error_of(self, rows: Int64s) -> float:
        """What they may be wrong by in some nodes together, each without those below."""
        is_seen = self.self_ps[rows] * (self.own_looks[rows] > 0)
        return float(self._error_of(is_seen.sum()))

    def _error_of(self, seen_ps: Int64s) -> Floats:
        """A share of what looks divide is so sure in 95 of 100 cells; what is counted is exact."""
        looks, whole = max(int(self.own_looks.sum()), 1), int(self.seen_ps[0]) or np.nan
        share = seen_ps / whole
        return np.nan_to_num(_SURE * np.sqrt(share * (1 - share) / looks) * whole)

    def rows_below(self, row: int) -> Int64s:
        """A node and all below it."""
        behind = np.flatnonzero(self.depth[row + 1 :] <= self.depth[row])
        return np.arange(row, row + 1 + behind[0] if behind.size else len(self))

    def rows_above(self, row: int) -> list[int]:
        """A node and all above it, the innermost first."""
        rows = [row]
        while (row := int(self.parent[row])) >= 0:
            rows.append(row)
        return rows

    def with_below(self, nodes: Sequence[int]) -> Int64s:
        """Nodes with all below them, each once."""
        below = [np.zeros(0, np.int64), *map(self.rows_below, nodes)]
        return np.unique(np.concatenate(below))

    def has_steps(self, row: int) -> bool:
        """True if steps, or epochs of them, are below a node, or it is some."""
        return any(self.kind[at] in (*STEPS, parts.EPOCH) for at in self.rows_below(row).tolist())

    def title(self, row: int) -> str:
        """A node's own name; its line, or its kind, where it has none."""
        kind, name = self.kind[row], self.name[row]
        if kind in _CALLED_BY_NAME and (name or self.line[row]):
            return name or self.line[row]
        return node_title(kind, name)

    def rows(self, *kinds: str, below: int | None = None) -> list[int]:
        """The nodes of some kinds, directly below one or anywhere."""
        chosen = [row for row, kind in enumerate(self.kind) if kind in kinds]
        return [row for row in chosen if below in (None, int(self.parent[row]))]

    def is_inside(
        self, row: int, kinds: Collection[str], above: int, *, itself: bool = True
    ) -> bool:
        """True if a node, or one above it but below another, is of some kinds."""
        rows = self.rows_above(row)[not itself :]
        return any(self.kind[at] in kinds for at in rows if at > above)

    def line_above(self, row: int) -> str:
        """The line of a node, or of the next one above that has one."""
        return next((line for at in self.rows_above(row) if (line := self.line[at])), "")

    def times_of(self, row: int) -> int:
        """How often a node happened; where nobody counted, as often as what it stands beside or below."""
        for at in self.rows_above(row)[:-1]:
            if self.occurrences[at]:
                return int(self.occurrences[at])
            beside = self.occurrences[self.parent == self.parent[at]]
            if beside.any():
                return int(beside.max())
        return 1

    def named(self, name: str) -> list[int]:
        """The outermost nodes of a name: "Score.on_epoch_end", or its last part.

        Raises:
            ValueError: There is none.
        """
        every = [row for row in self.rows(*_NAMED_KINDS) if self.name[row]]
        named = [row for row in every if f".{self.name[row]}".endswith(f".{name}")]
        outermost = [row for row in named if not {*self.rows_above(row)[1:]} & {*named}]
        if not outermost:
            largest = sorted(every, key=lambda row: -int(self.wall_ps[row]))
            listed = list(dict.fromkeys(self.name[row] for row in largest))
            there = ", ".join(listed[:_MOST_NAMES_OF_NODE]) or "none"
            raise ValueError(
                f"Nothing in p.cell_tree is called {name!r}. The largest nodes: {printable(there)}."
            )
        return outermost


CELL_TREE = Table[CellTree](
    "cell_tree",
    "One row per node of the cell's time, each below its parent.",
    (
        Column("node", lambda t: np.arange(len(t)), "its number, by which others name it"),
        Column(
            "parent", lambda t: np.where(t.parent < 0, np.nan, t.parent),
            "the node above; missing for the cell",
        ),
        field_column("depth", "how far below the cell"),
        Column("kind", lambda t: tuple(map(kind_title, t.kind)), "what it is"),
        field_column("name", "its own name; empty where the kind says all"),
        field_column("line", "where it is defined, or called; empty where that is not known"),
        field_column("occurrences", "how often it happened; missing where nobody counted", least=1),
        field_column("wall_ms", "wall time, with the nodes below", "time"),
        field_column("self_ms", "wall time without them", "self"),
        field_column("fraction", "share of the cell's wall time", "share"),
        Column(
            "low_ms", lambda t: np.maximum(t.wall_ps - t.error_ps, 0),
            "least of its wall time, of 95 in 100 cells; where it is counted, the wall time itself",
        ),
        Column("high_ms", lambda t: np.minimum(t.wall_ps + t.error_ps, t.whole_ps), "most of it, likewise"),
    ),
    "The self times add up to the cell. Calls are nested: work of a callback stands below the callback. "
    "Own functions have names without any marking. Steps are counted. Time between and around steps comes "
    "from samples of the stack. Below the steps stand the traced steps, scaled to all steps.",
)  # fmt: skip


def grow_tree(records: CellRecords | None, study: Study | None) -> CellTree | None:
    """The tree of a cell, or of a recorded window.

    Args:
        records: What the capture saw; None for a trace of another program's.
        study: The trace's analyses; None without a trace.

    Returns:
        The tree; None where there is neither.
    """
    cells: dict[str, int] = {}
    if records is not None and records.tree:
        nodes = [replace(node, self_ns=node.self_ns * PS_PER_NS) for node in records.tree]
        cells = records.cells
    elif study is not None and len(study.trace.events):
        nodes = _recorded(study)
    else:
        return None
    if study is not None:
        if records is not None and records.tree and not study.steps.is_window:
            nodes = _with_waits(nodes, study)
        nodes = _with_steps(nodes, study)
    return _as_columns(nodes, cells)


def _as_columns(nodes: Sequence[TreeNode], cells: dict[str, int]) -> CellTree:
    below: dict[int, list[int]] = {}
    for row, node in enumerate(nodes):
        below.setdefault(node.parent, []).append(row)
    order: list[int] = []
    waiting = [0]
    while waiting:
        row = waiting.pop()
        order.append(row)
        waiting += reversed(below.get(row, []))
    place = {row: at for at, row in enumerate(order)}
    listed = [nodes[row] for row in order]
    parent = np.array([place.get(node.parent, -1) for node in listed], np.int64)
    depth = np.zeros(len(listed), np.int64)
    self_ps, looks = (
        np.array([getattr(node, name) for node in listed], np.int64)
        for name in ("self_ns", "looks")
    )
    wall_ps, seen_ps = self_ps.copy(), np.where(looks > 0, self_ps, 0)
    for row in range(1, len(listed)):
        depth[row] = depth[parent[row]] + 1
    for row in range(len(listed) - 1, 0, -1):
        wall_ps[parent[row]] += wall_ps[row]
        seen_ps[parent[row]] += seen_ps[row]
    return CellTree(
        parent, depth,
        tuple(node.kind for node in listed),
        tuple(node.name for node in listed),
        tuple(f"{file_title(n.file, cells)}:{n.line}" if n.file else "" for n in listed),
        np.array([node.occurrences for node in listed], np.int64),
        self_ps, wall_ps, looks, seen_ps,
    )  # fmt: skip


def _recorded(study: Study) -> list[TreeNode]:
    """What a trace recorded, in picoseconds: its steps by phase, and what lies between them."""
    steps, gaps = study.steps, study.gaps
    nodes = [TreeNode(-1, parts.CELL, _WINDOW)]
    if steps.is_window:
        return [TreeNode(-1, parts.CELL, _WINDOW, self_ns=int(steps.duration_ps.sum()))]
    for phase in dict.fromkeys(steps.phase):
        rows = np.array([at == phase for at in steps.phase], np.bool_)
        kind = _STEPS_OF_PART.get(phase, parts.MARKED)
        for is_first in (True, False):
            of_kind = np.flatnonzero(rows & (steps.is_warmup == is_first))
            if of_kind.size:
                part = parts.FIRST if is_first else kind
                name = phase if part in (parts.FIRST, parts.MARKED) else ""
                spent = int(steps.duration_ps[of_kind].sum())
                nodes.append(TreeNode(0, part, name, occurrences=of_kind.size, self_ns=spent))
    is_end = np.isin(np.arange(len(steps)), gaps.between_epochs)
    for kind, is_chosen in ((parts.GAPS, ~is_end), (parts.EPOCH_ENDS, is_end)):
        chosen = is_chosen & (gaps.duration_ps > 0)
        if chosen.any():
            nodes.append(TreeNode(0, kind, occurrences=int(chosen.sum())))
            shares = study.breakdown.gap_picoseconds[chosen].sum(axis=0).tolist()
            whole = int(gaps.duration_ps[chosen].sum())
            _add_below(nodes, len(nodes) - 1, whole, list(zip(CATEGORIES, shares, strict=True)))
    return nodes


def _with_waits(nodes: Sequence[TreeNode], study: Study) -> list[TreeNode]:
    """The nodes, where the thread's waiting for a device or programs belongs to the steps that it waits for.

    The traced steps tell how much longer than on the thread they take there, and what copies, launches and
    computes between them. A look sees the line that waits, and not what for::

        thread   |s||s||s|..wait..............|      3 marked steps, then torch.cuda.synchronize()
        device     [ step   ][ step  ][ step  ]      of the wait all is the steps'
    """
    steps, made = study.steps, list(nodes)
    if steps.steps_ahead and not any(_phase_of(node) == study.summary.phase for node in made):
        made += _calls_that_nobody_counted(made, study)
    for row, node in enumerate(made):
        rows = steps.rows_of(_phase_of(node))
        if not (times := node.occurrences / rows.size if rows.size else 0.0):
            continue
        took = int(steps.duration_ps[rows].sum())
        on_thread = int((steps.host_end_ps - steps.host_begin_ps)[rows].sum())
        seen = sum(made[at].self_ns for at in _inside(made, row))
        left = round(times * (took - (on_thread if seen else 0)))
        left = min(left, round(times * took) - seen) if steps.steps_ahead else left
        left = _move(made, _waits_around(made, row), row, left)
        if steps.steps_ahead:  # the window that closes waits for what is not computed yet
            lasted = int(steps.end_ps.max() - steps.host_begin_ps.min())
            late = lasted - study.recording.window_ns * PS_PER_NS
            stops = [at for at in _below(made, 0, (parts.PROFNB,)) if made[at].name == "stop"]
            _move(made, stops, row, min(left, late))
        if study.program.has_device and made[node.parent].kind == parts.LINES:
            gaps = study.breakdown.gap_picoseconds[rows].sum(axis=0) * times
            _divide_gaps(made, node.parent, dict(zip(CATEGORIES, gaps.tolist(), strict=True)))
    return made


def _phase_of(node: TreeNode) -> str:
    """The phase of a node's steps, as the trace names it; "" for no steps."""
    return PHASE_OF_STEPS.get(node.kind, node.name if node.kind in _NAMED_STEPS else "")


def _calls_that_nobody_counted(made: Sequence[TreeNode], study: Study) -> list[TreeNode]:
    """The steps of a loop on JAX that nothing marks, below the code that waited for them longest.

    More than the steps took is no wait; of several that hold as much the one with more time in library code.
    """
    phase = study.summary.phase
    rows = study.steps.rows_of(phase)
    took = int(study.steps.duration_ps[rows].sum())

    def waited(at: int) -> tuple[int, int]:
        waits, lines = (
            sum(made[one].self_ns for one in some)
            for some in (_below(made, at, _WAITS), _lines_of(made, at))
        )
        return min(waits + lines, took), waits

    loop = max(range(len(made)), key=waited)
    if not any(waited(loop)):
        return []
    return [TreeNode(loop, parts.CALLS, phase or "", occurrences=rows.size)]


def _lines_of(made: Sequence[TreeNode], row: int) -> list[int]:
    """The lines of a function, in one node; of a cell, one each, the longest first."""
    if made[row].kind == parts.LINES:
        return [row]
    lines = [at for at in _below(made, row, (parts.LINES,)) if not made[at].name]
    return sorted(lines, key=lambda at: -made[at].self_ns)


def _waits_around(made: Sequence[TreeNode], row: int) -> list[int]:
    """Nodes in which the thread may wait for a step, the nearest first.

    Library code that the functions around the step call, and their own lines, in which JAX waits outside of
    Python. Last library code anywhere: steps that no look met stand below the cell.
    """
    around, above = [], made[row].parent
    while above >= 0:
        around += [*_below(made, above, _WAITS), *_lines_of(made, above)]
        above = made[above].parent
    others = [at for at, node in enumerate(made) if node.kind in _WAITS and at not in around]
    return [*around, *(at for at in others if made[made[at].parent].kind == parts.LINES)]


def _move(made: list[TreeNode], rows: Sequence[int], to: int, most: int) -> int:
    """Move so much time to a node, as far as others have it, the first ones first; what is left of it."""
    for row in rows:
        moved = max(min(most, made[row].self_ns), 0)
        made[row] = replace(made[row], self_ns=made[row].self_ns - moved)
        made[to] = replace(made[to], self_ns=made[to].self_ns + moved)
        most -= moved
    return most


def _divide_gaps(made: list[TreeNode], loop: int, spent: dict[str, float]) -> None:
    """Say of a loop's own time what its thread did for a device, or waited for, between the steps."""
    for row in _below(made, loop, (parts.INPUT,)):
        spent["input"] -= made[row].self_ns
    shares = [(name, spent[name]) for name in _OF_DEVICE if spent[name] > 0]
    gaps = len(made)
    made.append(TreeNode(loop, parts.GAPS))
    _move(made, [*_below(made, loop, _WAITS), loop], gaps, round(sum(share for _, share in shares)))
    if whole := made[gaps].self_ns:
        made[gaps] = replace(made[gaps], self_ns=0)
        _add_below(made, gaps, whole, shares)
    else:
        made.pop()


def _inside(made: Sequence[TreeNode], row: int) -> set[int]:
    """A node and all below it."""
    inside = {row}
    inside.update(at for at, one in enumerate(made) if one.parent in inside)
    return inside


def _below(made: Sequence[TreeNode], row: int, kinds: Collection[str]) -> list[int]:
    return [at for at, node in enumerate(made) if node.parent == row and node.kind in kinds]


def _with_steps(nodes: Sequence[TreeNode], study: Study) -> list[TreeNode]:
    """The nodes, and below those of steps what the traced ones did."""
    made = list(nodes)
    for row, node in enumerate(nodes):
        phase = _phase_of(node)
        rows = np.zeros(0, np.int64) if study.steps.is_window else _steps_of(study, phase)
        below = _below(made, row, _OF_TRACE)
        whole = node.self_ns + sum(made[at].self_ns for at in below)
        if rows.size and whole:
            for at in (row, *below):
                made[at] = replace(made[at], self_ns=0)
            # What looks saw of own functions inside is Python, as far as the trace has so much.
            lines = sum(
                made[at].self_ns for at in _inside(made, row) if made[at].kind == parts.LINES
            )
            shares = study.breakdown.picoseconds[rows].sum(axis=0, dtype=np.float64)
            shares *= (whole + lines) / max(shares.sum(), 1)
            shares[-1] = max(shares[-1] - lines, 0)
            _add_below(made, row, whole, list(zip(CATEGORIES, shares.tolist(), strict=True)))
            if phase == study.summary.phase:
                _add_ops(made, row, study)
    return made


def _steps_of(study: Study, phase: str) -> Int64s:
    """The steady steps of a phase, and those that waited for the first batch of a further pass."""
    steps = study.steps
    every = steps.rows_of(phase, warm_up=True)
    begins_pass = np.append(False, steps.ends_epoch[:-1])
    return np.union1d(steps.rows_of(phase), every[1:][begins_pass[every[1:]]])


def _add_below(
    made: list[TreeNode],
    parent: int,
    whole: int,
    shares: Sequence[tuple[str, float]],
    kind: str = "",
) -> None:
    """Divide a node's time among nodes below it, the largest first."""
    left, of_all = whole, float(sum(share for _, share in shares))
    for name, share in sorted(shares, key=lambda one: -one[1]):
        if share <= 0 or not left:
            break
        part = min(round(left * share / of_all), left)
        made.append(TreeNode(parent, kind or name, name if kind else "", self_ns=part))
        left, of_all = left - part, of_all - share


def _add_ops(made: list[TreeNode], steps: int, study: Study) -> None:
    """Divide what steps computed by layer, or by op where no layer is known."""
    for row, node in enumerate(made):
        if node.parent != steps or not node.kind.endswith(_COMPUTE):
            continue
        shares, kind = _shares_of_side(study, node.kind.removesuffix(_COMPUTE))
        if shares:
            made[row] = replace(node, self_ns=0)
            _add_below(made, row, node.self_ns, shares, kind)


def _shares_of_side(study: Study, side: str) -> tuple[list[tuple[str, float]], str]:
    """(layer or op, its time) of the host or the device, the largest and all others; which of both."""
    layers, ops, kind = study.layers.table, study.ops.table, LAYER
    names, spent = layers.layer, layers.layer_part_ps.sum(axis=1)
    if not layers.has_models or layers.side != side:
        both = zip(ops.op_type, ops.op_name, strict=True)
        names, kind = tuple(plain_type(of_type) or op for of_type, op in both), OP
        spent = np.where(ops.is_device == (side == "device"), ops.self_ps, 0)
    beside = PIPELINE if kind == LAYER else DATASET  # on threads of its own
    total: dict[str, float] = {}
    for name, value in zip(names, spent.tolist(), strict=True):
        if name == beside:
            continue
        total[name or "unnamed"] = total.get(name or "unnamed", 0.0) + value
    largest = sorted((one for one in total.items() if one[1] > 0), key=lambda one: -one[1])
    others = sum(value for _, value in largest[_MOST_BELOW:])
    return largest[:_MOST_BELOW] + ([("others", others)] if others else []), kind
