"""A cell's time and what is known of it: the tree, the trace's analyses, what things cost where it ran."""

from dataclasses import dataclass

from profnb.advice.cell_tree import CellTree
from profnb.advice.measured_costs import Costs, costs_here, typical_costs
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.tree_records import CALL, LINES
from profnb.core.printable import printable
from profnb.subjects.study import Study

__all__ = ["Model"]

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


@dataclass(frozen=True)
class Model:
    """A cell's time and what is known of it.

    Attributes:
        tree: Where it went.
        study: The trace's analyses; None without a trace.
        is_here: Whether the cell ran in this process, whose costs can be measured.
        cores: Cores that it had; 0 where that is not known.
    """

    tree: CellTree
    study: Study | None = None
    is_here: bool = False
    cores: int = 0

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
