"""A cell's time and what is known of it: the tree, the trace's analyses, what things cost where it ran."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profnb.advice.measured_costs import Costs, costs_here, typical_costs
from profnb.advice.replay import Edit, Saving, with_below_of
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CALL, LINES, CellRecords
from profnb.capture.source.user_code import file_title
from profnb.causes.cell_tree import PHASE_OF_STEPS, STEADY_STEPS, CellTree
from profnb.causes.numbers import HALF, QUARTER
from profnb.core.printable import printable
from profnb.core.units import PS_PER_MS
from profnb.steps.activities import CATEGORIES
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import cell_ps, share_of, steps_share
from profnb.subjects.ops.eager_ops import shares_of_kernels
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH

_NAMED = (
    LINES,
    CALL,
    parts.CALLBACKS,
    parts.CHECKPOINTING,
    parts.CALLS,
    parts.MARKED,
    parts.BUILDING,
)
_MOST_NAMES = 8
_BETWEEN = (parts.GAPS, parts.EPOCH_ENDS)


@dataclass(frozen=True)
class Model:
    """A cell's time and what is known of it.

    Attributes:
        tree: Where it went.
        study: The trace's analyses; None without a trace.
        is_here: Whether the cell ran in this process, whose costs can be measured.
        cores: Cores that it had; 0 where that is not known.
        cell: What the capture saw of it; None for a trace of another program's.
    """

    tree: CellTree
    study: Study | None = None
    is_here: bool = False
    cores: int = 0
    cell: CellRecords | None = None

    @property
    def traced(self) -> Study:
        """The trace's analyses; only rules of a trace may ask."""
        assert self.study is not None
        return self.study

    @property
    def framework(self) -> str:
        """Whose work was traced; "" where nothing was."""
        return "" if self.study is None else self.study.framework

    @cached_property
    def own_ps(self) -> int:
        """What profnb itself took."""
        return int(self.tree.self_ps[self.rows(parts.PROFNB)].sum())

    def saves_ms(self, saving: Saving) -> tuple[float, float]:
        """The least and the most of the cell's wall time that is saved, in milliseconds.

        As a share of the cell without profnb, which is in that time too: the share is what holds for a run
        without it. Where profnb takes little both are the same.
        """
        whole = self.tree.whole_ps
        of_cell = whole / max(whole - self.own_ps, 1)
        low, high = (min(ps * of_cell, whole) / PS_PER_MS for ps in (saving.low_ps, saving.high_ps))
        return low, high

    @property
    def costs(self) -> Costs:
        """What a compiled call and a new iterator cost."""
        return costs_here() if self.is_here else typical_costs()

    def rows(self, *kinds: str, below: int | None = None) -> list[int]:
        """The nodes of some kinds, directly below one or anywhere."""
        return [
            row
            for row, kind in enumerate(self.tree.kind)
            if kind in kinds and below in (None, int(self.tree.parent[row]))
        ]

    def named(self, name: str) -> list[int]:
        """The outermost nodes of a name: "Score.on_epoch_end", or its last part.

        Raises:
            ValueError: There is none.
        """
        tree = self.tree
        named = [row for row in self.rows(*_NAMED) if _is_called(tree.name[row], name)]
        outermost = [
            row for row in named if not any(row in tree.rows_below(at)[1:] for at in named)
        ]
        if not outermost:
            largest = sorted(self.rows(*_NAMED), key=lambda row: -int(tree.wall_ps[row]))
            listed = list(dict.fromkeys(tree.name[row] for row in largest if tree.name[row]))
            there = ", ".join(listed[:_MOST_NAMES]) or "none"
            raise ValueError(
                f"Nothing in p.cell_tree is called {name!r}. Those that take most: {printable(there)}."
            )
        return outermost

    @property
    def has_looks(self) -> bool:
        """Whether a capture of ours looked at the cell, and not at a window of a trace alone."""
        return self.cell is not None and bool(self.cell.tree)

    @property
    def saves(self) -> int:
        """How often something was saved, at least."""
        saves = (p for p in (self.cell.parts if self.cell else ()) if p.part == parts.CHECKPOINTING)
        return sum(p.occurrences for p in saves if not p.name.endswith(parts.LOADING))

    def is_inside(
        self, row: int, kinds: Collection[str], above: int, *, itself: bool = True
    ) -> bool:
        """Whether a node, or one above it but below another, is of some kinds."""
        at = row if itself else int(self.tree.parent[row])
        while at > above:
            if self.tree.kind[at] in kinds:
                return True
            at = int(self.tree.parent[at])
        return False

    @cached_property
    def python_share(self) -> float:
        """Share of the traced time in which only Python ran: nothing computed, copied or was waited for.

        1 where nothing was traced that could tell, and where a call returns when its work is done.
        """
        if self.study is None or not self.study.summary.counted.size:
            return 1.0
        if not self.study.has_device and self.framework not in (JAX, PYTORCH):
            return 1.0
        rows, breakdown = self.study.summary.counted, self.study.breakdown
        python = breakdown.picoseconds[rows, -1].sum() + breakdown.gap_picoseconds[rows, -1].sum()
        whole = breakdown.picoseconds[rows].sum() + breakdown.gap_picoseconds[rows].sum()
        return float(python / whole) if whole else 1.0

    @property
    def kernel_shares(self) -> tuple[float, float]:
        """Of the time of ops that are started one by one, the least and the most that is computing."""
        if self.study is None:
            return 0.0, 1.0
        if self.framework != JAX:
            return shares_of_kernels(self.study.trace, self.study.parent)
        return 0.0, share_of(self.study, "device compute") + share_of(self.study, "host compute")

    def is_main(self, row: int) -> bool:
        """Whether a node is the steps of the phase that the trace's summary speaks of."""
        if self.study is None:
            return False
        phase = PHASE_OF_STEPS.get(self.tree.kind[row], self.tree.name[row])
        return phase == self.study.summary.phase

    @cached_property
    def main_steps(self) -> list[int]:
        """The nodes of the steady steps of that phase."""
        return [row for row in self.rows(*STEADY_STEPS) if self.is_main(row)]

    @cached_property
    def periods_ps(self) -> float:
        """What the steady steps of the main phase take, with the gaps behind them; the cell without steps."""
        study = self.study
        if study is None or study.steps.is_window:
            return float(self.tree.whole_ps)
        return steps_share(study) * (cell_ps(study) or self.tree.whole_ps)

    def some_of(
        self,
        kinds: Collection[str],
        share: float,
        remains: tuple[float, float],
        because: str,
        *,
        is_between: bool = False,
    ) -> Edit:
        """A share of the time from step to step, as far as nodes of some kinds took so long.

        Args:
            kinds: Categories of the main phase's steps and of what lies between them; what lies between them,
                by which its Python is meant; none of them: all of both.
            share: What is spoken of, of the steady steps and the gaps behind them.
            remains: How much of that remains at least and at most.
            because: Where these come from, a clause.
            is_between: Whether only what lies between the steps is meant.
        """
        tree, between = self.tree, self.rows(*_BETWEEN)
        everything = with_below_of(tree, between if is_between else [*self.main_steps, *between])

        def is_chosen(row: int) -> bool:
            above = tree.kind[int(tree.parent[row])]
            if tree.kind[row] == OTHERS and above in _BETWEEN:
                return above in kinds
            return tree.kind[row] in kinds

        chosen = [row for row in everything.tolist() if is_chosen(row)]
        rows = with_below_of(tree, [row for row in chosen if tree.kind[row] not in _BETWEEN])
        rows = np.union1d(rows, np.array(chosen, np.int64)) if kinds else everything
        rows = rows if rows.size else everything if everything.size else np.arange(len(tree))
        whole = float(tree.self_ps[rows].sum())
        spoken = min(share * self.periods_ps, whole)
        least, most = remains
        return Edit(rows, least * spoken, most * spoken, because, spoken / whole if whole else 0.0)

    def of_category(
        self, category: str, share: float, remains: tuple[float, float], because: str
    ) -> list[Edit]:
        """The same of one category of steps, and of the gaps behind them as far as it lies there.

        Args:
            category: A category of steps; "" for the gaps alone.
            share: What is spoken of, of the steady steps and the gaps behind them.
            remains: How much of that remains at least and at most.
            because: Where these come from, a clause.
        """
        between = 0.0 if category else 1.0
        if self.study is not None and category and self.has_looks:  # else the gaps are divided, too
            rows, at = self.study.summary.counted, CATEGORIES.index(category)
            behind = float(self.study.breakdown.gap_picoseconds[rows, at].sum())
            within = float(self.study.breakdown.picoseconds[rows, at].sum())
            between = behind / max(behind + within, 1)
        parts = ((category,), share * (1 - between)), (_BETWEEN, share * between)
        return [self.some_of(kinds, part, remains, because) for kinds, part in parts if part]

    def left_by_a_call(self, share: float) -> tuple[float, float]:
        """Of a share of each step that one call starts all at once: that call at least, half at most."""
        step_ps = self.study.summary.mean_period_ps if self.study is not None else 0.0
        return min(self.costs.call_ps[0] / max(share * step_ps, 1), HALF), HALF

    def steps_behind(self, times: int, took_ps: float) -> list[Edit]:
        """The steps, as far as they take longer behind what runs so often between them.

        Args:
            times: How often it runs; what runs after few steps leaves the others alone.
            took_ps: What it takes.
        """
        tree = self.tree
        steps = [row for row in self.main_steps if 0 < tree.occurrences[row] <= 2 * times]
        rows = with_below_of(tree, steps)
        whole = float(tree.self_ps[rows].sum())
        colder = min(QUARTER * whole, HALF * took_ps)
        because = "threads and caches stay warm"
        return [Edit(rows, whole - colder, whole, because)] if colder else []

    def line_above(self, row: int) -> str:
        """The line of a node, or of the next one above that has one."""
        while row > 0 and not self.tree.line[row]:
            row = int(self.tree.parent[row])
        return self.tree.line[row] if row >= 0 else ""

    @property
    def input_lines(self) -> set[str]:
        """Lines that wait for input: what passes there is the pipeline's, whatever a look saw of it."""
        return {self.tree.line[row] for row in self.rows(parts.INPUT)} - {""}

    def own_line(self, row: int) -> str:
        """The line of an own function's file that takes most; where nobody knows, where it begins."""
        begin = self.tree.line[row]
        cell = self.cell
        if cell is None or not begin:
            return begin
        title = begin.rpartition(":")[0]
        lines = [part for part in cell.parts if part.part == parts.OTHER and part.file]
        there = [part for part in lines if file_title(part.file, cell.cells) == title]
        longest = max(there, key=lambda part: part.wall_ns, default=None)
        return begin if longest is None else f"{title}:{longest.line}"

    def times_of(self, row: int) -> int:
        """How often a node happened; where nobody counted, as often as what it stands beside or below."""
        tree = self.tree
        while row > 0:
            if tree.occurrences[row]:
                return int(tree.occurrences[row])
            beside = tree.occurrences[tree.parent == tree.parent[row]]
            if beside.any():
                return int(beside.max())
            row = int(tree.parent[row])
        return 1


def _is_called(name: str, asked: str) -> bool:
    return bool(name) and (name == asked or name.endswith(f".{asked}"))
