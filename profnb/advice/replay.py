"""The tree of the cell with edits: what remains of its time, as a range.

Three resources run beside each other: the thread that runs the cell, the input pipeline, the device. The tree
has each instant of the thread once: waiting for the pipeline is "input", and what the device does while
nothing else could go on is "device compute". So an edit of the thread's own work saves what it takes away. An
edit of the device's work saves at most that, and at least what the host's hidden work leaves of it.

Nothing is assumed to become free: an edit says what remains at least and at most. Edits of the same node
count once; the one that comes first takes it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from profnb.advice.cell_tree import CellTree
from profnb.core.columns import Bools, Int64s

__all__ = ["Edit", "Saving", "once", "remove", "replay", "scale", "with_below_of"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Nodes that a change takes time from.

    Attributes:
        rows: Nodes, each without those below.
        least_ps: What remains of their time at least.
        most_ps: What remains at most.
        because: Where these come from, a clause.
        is_bound: Whether no more is known than what it takes at most, so others may take the same time.
    """

    rows: Int64s
    least_ps: float
    most_ps: float
    because: str
    is_bound: bool = False


@dataclass(frozen=True, slots=True)
class Saving:
    """What edits save of the cell.

    Attributes:
        low_ps: At least.
        high_ps: At most.
        taken: Which nodes they took, shape (N,).
    """

    low_ps: float = 0.0
    high_ps: float = 0.0
    taken: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def middle_ps(self) -> float:
        """The middle of the range."""
        return (self.low_ps + self.high_ps) / 2


def replay(tree: CellTree, edits: Iterable[Edit], before: Saving | None = None) -> Saving:
    """What edits save.

    Args:
        tree: The cell as it was.
        edits: What changes.
        before: What other edits have taken already; the saving is what these add.
    """
    taken = np.zeros(len(tree), np.bool_) if before is None else before.taken.copy()
    low = high = 0.0
    for edit in edits:
        whole = float(tree.self_ps[edit.rows].sum())
        rows = edit.rows[~taken[edit.rows]]
        left = float(tree.self_ps[rows].sum())
        share = left / whole if whole else 0.0
        error = 0.0 if edit.is_bound else tree.error_of(rows)
        low += max(left - error - edit.most_ps * share, 0.0)
        high += max(min(left + error, tree.whole_ps) - edit.least_ps * share, 0.0)
        taken[rows] = True
    return Saving(min(low, tree.whole_ps), min(high, tree.whole_ps), taken)


def with_below_of(tree: CellTree, nodes: Sequence[int]) -> Int64s:
    """Give nodes with all below them, each once."""
    if not len(nodes):
        return np.zeros(0, np.int64)
    return np.unique(np.concatenate([tree.rows_below(node) for node in nodes]))


def remove(tree: CellTree, nodes: Sequence[int], because: str) -> Edit:
    """They are not done any more."""
    return Edit(with_below_of(tree, nodes), 0.0, 0.0, because)


def scale(
    tree: CellTree,
    nodes: Sequence[int],
    least: float,
    most: float,
    because: str,
    *,
    with_below: bool = True,
) -> Edit:
    """They take so many times as long, at least and at most."""
    rows = with_below_of(tree, nodes) if with_below else np.array(nodes, np.int64)
    whole = float(tree.self_ps[rows].sum())
    return Edit(rows, whole * least, whole * most, because)


def once(
    tree: CellTree,
    nodes: Sequence[int],
    times: int,
    each_ps: tuple[float, float],
    because: str,
    *,
    with_below: bool = True,
) -> Edit:
    """They are done once instead of so many times, and each further time costs no more than so much."""
    rows = with_below_of(tree, nodes) if with_below else np.array(nodes, np.int64)
    whole = float(tree.self_ps[rows].sum())
    least, most = (whole / times + (times - 1) * min(each, whole / times) for each in each_ps)
    return Edit(rows, least, most, because)
