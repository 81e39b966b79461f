"""A cell's time and what is known of it: the tree, the trace's analyses, what things cost where it ran."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from profnb.advice.replay import Edit, Saving
from profnb.capture.environment import Costs, costs_here, typical_costs
from profnb.capture.memory.memory_records import MemoryShortage
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CellRecords
from profnb.capture.source.user_code import file_title
from profnb.causes.cell_tree import PHASE_OF_STEPS, STEADY_STEPS, CellTree
from profnb.causes.numbers import CALL_PS, LEFT, QUARTER
from profnb.causes.python_work import python_alone_share, shares_without_programs
from profnb.causes.repeats import Passes, find_passes
from profnb.core.printable import quoted
from profnb.core.units import PS_PER_MS
from profnb.steps.activities import CATEGORIES
from profnb.steps.program_kind import ProgramKind
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import share_of, steps_ps
from profnb.subjects.layers.memory_kinds import KindRow
from profnb.subjects.ops.op_execution import shares_of_kernels
from profnb.subjects.study import Study

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
        shortage: The memory that was missing; None where it did not end for that.
        memory_kinds: What filled the memory.
    """

    tree: CellTree
    study: Study | None = None
    is_here: bool = False
    cores: int = 0
    cell: CellRecords | None = None
    shortage: MemoryShortage | None = None
    memory_kinds: Sequence[KindRow] = ()

    @property
    def traced(self) -> Study:
        """The trace's analyses; only rules of a trace may ask."""
        assert self.study is not None
        return self.study

    @cached_property
    def is_traced(self) -> bool:
        """True if there is a trace, and the work is in it."""
        return self.study is not None and not self.study.program.unrecorded_backend

    @property
    def has_steps(self) -> bool:
        """True if steps were traced."""
        return self.is_traced and self.traced.has_steps

    @property
    def program(self) -> ProgramKind:
        """The kind of program whose work was traced; an unknown one where nothing was."""
        return ProgramKind() if self.study is None else self.study.program

    @cached_property
    def own_ps(self) -> int:
        """What profnb itself took."""
        return int(self.tree.self_ps[self.tree.rows(parts.PROFNB)].sum())

    @property
    def ran_ps(self) -> int:
        """What the cell took without profnb."""
        return self.tree.whole_ps - self.own_ps

    def saves_ms(self, saving: Saving) -> tuple[float, float]:
        """The least and the most of the cell's wall time that is saved, in milliseconds.

        As a share of the cell without profnb, which is in that time too: the share is what holds for a run
        without it. Where profnb takes little both are the same.
        """
        whole = self.tree.whole_ps
        of_cell = whole / max(self.ran_ps, 1)
        low, high = (min(ps * of_cell, whole) / PS_PER_MS for ps in (saving.low_ps, saving.high_ps))
        return low, high

    @property
    def costs(self) -> Costs:
        """What a compiled call and a new iterator cost."""
        if calls := CALL_PS.get(self.program.framework):
            return replace(typical_costs(), call_ps=calls)
        return costs_here() if self.is_here else typical_costs()

    @property
    def has_looks(self) -> bool:
        """True if a capture of ours looked at the cell, and not at a window of a trace alone."""
        return self.cell is not None and bool(self.cell.tree)

    @cached_property
    def python_between_ps(self) -> float:
        """What only Python ran of the cell beside its steady steps and their input; all without a trace."""
        if self.study is None:
            return float(self.ran_ps)
        share = python_alone_share(self.study, between=bool(self.main_steps))
        steps_ps = float(self.tree.wall_ps[self.main_steps].sum())
        waits_ps = share_of(self.study, "input") * self.periods_ps
        return share * max(self.ran_ps - steps_ps - waits_ps, 0.0)

    def kernel_shares(self, took_ps: float) -> tuple[float, float]:
        """Of what ops take that are started one by one, the least and the most that is computing.

        JAX's may wait for a program: in all of them together no more is saved than passes without any.
        """
        study = self.study
        if study is None or (study.program.is_jax and not len(study.xla.hlo)):
            return 0.0, 1.0
        if study.program.is_jax:
            as_many = self.ran_ps / max(took_ps, 1)
            least, most = (1 - min(idle * as_many, 1.0) for idle in shares_without_programs(study))
            return least, most
        return shares_of_kernels(study.trace, study.parent)

    @cached_property
    def main_steps(self) -> list[int]:
        """The nodes of the steady steps of the phase that the trace's summary speaks of."""
        tree, study = self.tree, self.study
        phase = study.summary.phase if study is not None else None
        rows = tree.rows(*STEADY_STEPS)
        return [row for row in rows if PHASE_OF_STEPS.get(tree.kind[row], tree.name[row]) == phase]

    @property
    def loops(self) -> list[int]:
        """The nodes of own functions, or lines of the cell, whose loops take these steps."""
        above = {int(self.tree.parent[row]) for row in self.main_steps}
        return [row for row in sorted(above) if self.tree.kind[row] == parts.LINES]

    @cached_property
    def periods_ps(self) -> float:
        """What the steady steps of the main phase take, with the gaps behind them; the cell without steps."""
        study = self.study
        if study is None or study.steps.is_window:
            return float(self.tree.whole_ps)
        imports = int(self.tree.self_ps[self.tree.rows(parts.IMPORTS)].sum())
        return steps_ps(study, self.ran_ps - imports)

    def some_of(
        self,
        kinds: Collection[str],
        share: float,
        remains: Sequence[float],
        because: str = "",
        *,
        is_between: bool = False,
    ) -> Edit:
        """A share of the time from step to step, as far as nodes of some kinds took so long.

        Args:
            kinds: Categories of the main phase's steps and of what lies between them; what lies between them,
                by which its Python is meant; none of them: all of both.
            share: What is spoken of, of the steady steps and the gaps behind them.
            remains: How much of that remains at least and at most.
            because: Where these come from, a clause of ``p.what_if``.
            is_between: Whether only what lies between the steps is meant.
        """
        tree, between = self.tree, self.tree.rows(*_BETWEEN)
        everything = tree.with_below(between if is_between else [*self.main_steps, *between])

        def is_chosen(row: int) -> bool:
            above = tree.kind[int(tree.parent[row])]
            if tree.kind[row] == OTHERS and above in _BETWEEN:
                return above in kinds
            return tree.kind[row] in kinds

        chosen = [row for row in everything.tolist() if is_chosen(row)]
        rows = tree.with_below([row for row in chosen if tree.kind[row] not in _BETWEEN])
        rows = np.union1d(rows, np.array(chosen, np.int64)) if kinds else everything
        rows = rows if rows.size else everything if everything.size else np.arange(len(tree))
        whole = float(tree.self_ps[rows].sum())
        spoken = min(share * self.periods_ps, whole)
        least, most = remains
        return Edit(rows, least * spoken, most * spoken, spoken / whole if whole else 0.0, because)

    def of_category(self, category: str, share: float, remains: tuple[float, float]) -> list[Edit]:
        """The same of one category of steps, and of the gaps behind them as far as it lies there.

        Args:
            category: A category of steps; "" for the gaps alone.
            share: What is spoken of, of the steady steps and the gaps behind them.
            remains: How much of that remains at least and at most.
        """
        between = 0.0 if category else 1.0
        gaps = self.tree.rows(*_BETWEEN)
        is_divided = any(self.tree.rows(category, below=row) for row in gaps)
        if self.study is not None and category and self.has_looks and not is_divided:
            rows, at = self.study.summary.counted, CATEGORIES.index(category)
            behind = float(self.study.breakdown.gap_picoseconds[rows, at].sum())
            within = float(self.study.breakdown.picoseconds[rows, at].sum())
            between = behind / max(behind + within, 1)
        # What the host launches it runs op by op, where looks see that.
        kinds = (category, parts.EAGER) if category == "kernel launch" else (category,)
        spoken = (kinds, share * (1 - between)), (_BETWEEN, share * between)
        return [self.some_of(kinds, part, remains) for kinds, part in spoken if part]

    def left_by_a_call(self, share: float) -> tuple[float, float]:
        """Of a share of each step that one call starts all at once: that call at least."""
        step_ps = self.study.summary.mean_period_ps if self.study is not None else 0.0
        return min(self.costs.call_ps[0] / max(share * step_ps, 1), LEFT), LEFT

    def steps_behind(self, times: int, took_ps: float) -> list[Edit]:
        """The steps, as far as they take longer behind what runs so often between them.

        Args:
            times: How often it runs; what runs after few steps leaves the others alone.
            took_ps: What it takes.
        """
        tree = self.tree
        steps = [row for row in self.main_steps if 0 < tree.occurrences[row] <= 2 * times]
        rows = tree.with_below(steps)
        whole = float(tree.self_ps[rows].sum())
        colder = min(QUARTER * whole, took_ps / 2)
        return [Edit(rows, whole - colder, whole)] if colder else []

    def calls_of(self, row: int) -> int:
        """How often an own function ran: as counted, as the steps beside, or once a pass; 0 for unknown."""
        tree, study = self.tree, self.study
        beside = tree.rows(*STEADY_STEPS, below=int(tree.parent[row]))
        passes = len(study.step_times) if study is not None and study.program.is_eager else 0
        return int(tree.occurrences[row] or max(tree.occurrences[beside], default=0) or passes)

    @cached_property
    def passes(self) -> Passes:
        """The passes over the data; of a cell that we saw, scaled from its traced steps to all."""
        study = self.traced
        passes, gaps = find_passes(study), max(len(study.steps) - 1, 1)
        of_all = (len(study.step_times) - 1) / gaps if self.has_looks else 1.0
        return replace(passes, count=round(passes.count * of_all), ends=round(passes.ends * of_all))

    def own_within(self, nodes: Sequence[int]) -> tuple[str, float, str] | None:
        """The own function that takes most of some nodes' time: its name, its share of it, where it begins.

        Of functions inside of each other it is the innermost that takes most of the one around it.

        Returns:
            None where that is less than a quarter.
        """
        tree, below = self.tree, self.tree.with_below(nodes).tolist()
        named = [row for row in below if tree.kind[row] == parts.LINES and tree.name[row]]
        most, inner = 0, max(named, key=lambda row: tree.wall_ps[row], default=0)
        while inner and (most == 0 or tree.wall_ps[inner] > (1 - QUARTER) * tree.wall_ps[most]):
            most, within = inner, set(tree.rows_below(inner)[1:].tolist()).intersection(named)
            inner = max(within, key=lambda row: tree.wall_ps[row], default=0)
        share = float(tree.wall_ps[most] / max(tree.wall_ps[list(nodes)].sum(), 1))
        if not named or share < QUARTER:
            return None
        return quoted(tree.name[most]), share, tree.line[most]

    def own_line(self, row: int) -> str:
        """The line of an own function's file that takes most; where nobody knows, where it begins."""
        begin = self.tree.line[row]
        cell = self.cell
        if cell is None or not begin:
            return begin
        title, _, first = begin.rpartition(":")
        begins = [line.rpartition(":") for line in self.tree.line]
        after = [int(at) for file, _, at in begins if file == title and int(at) > int(first)]
        ends = min(after, default=sys.maxsize)  # where the next function of the file begins
        there = [
            part
            for part in cell.parts
            if part.part == parts.OTHER
            and file_title(part.file, cell.cells) == title
            and int(first) <= part.line < ends
        ]
        longest = max(there, key=lambda part: part.wall_ns, default=None)
        return begin if longest is None else f"{title}:{longest.line}"
