"""The tree of the cell with edits: what remains of its time, as a range.

Three resources run beside each other: the thread that runs the cell, the input pipeline, the device. The tree
has each instant of the thread once: waiting for the pipeline is "input", and what the device does while
nothing else could go on is "device compute". So an edit of the thread's own work saves what it takes away. An
edit of the device's work saves at most that, and at least what the host's hidden work leaves of it.

Nothing is assumed to become free: an edit says what remains at least and at most. What looks may be wrong by
has nothing to do with that, so the two make a range as independent errors do: the root of their squares. No
more is promised than the time that an edit speaks of, which the advice names.
Edits of the same node count once: the one that comes first takes what it speaks of, and leaves the others
their share of the rest.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from profnb.causes.cell_tree import CellTree
from profnb.core.columns import Floats, Int64s


@dataclass(frozen=True, slots=True)
class Edit:
    """Nodes that a change takes time from.

    Attributes:
        rows: Nodes, each without those below.
        least_ps: What remains at least of the time that it speaks of.
        most_ps: What remains of it at most.
        share: How much of their time it speaks of, 0 to 1.
        because: Where these come from, a clause of ``p.what_if``.
        once_ps: What the change costs once, at least and at most, as compiling does; no part of the above.
    """

    rows: Int64s
    least_ps: float
    most_ps: float
    share: float = 1.0
    because: str = ""
    once_ps: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Saving:
    """What edits save of the cell.

    Attributes:
        low_ps: At least.
        high_ps: At most.
        middle_ps: The middle, however little time there is to save.
        once_ps: What the change costs once beside, at least and at most.
        taken: How much of each node's time they spoke of, 0 to 1, shape (N,).
    """

    low_ps: float = 0.0
    high_ps: float = 0.0
    middle_ps: float = 0.0
    once_ps: tuple[float, float] = (0.0, 0.0)
    taken: Floats = field(default_factory=lambda: np.zeros(0))


def replay(tree: CellTree, edits: Iterable[Edit], before: Saving | None = None) -> Saving:
    """What edits save.

    Args:
        tree: The cell as it was.
        edits: What changes.
        before: What other edits have taken already; the saving is what these add.
    """
    taken = np.zeros(len(tree)) if before is None else before.taken.copy()
    saved = spoken = spread = squares = first = last = 0.0
    for edit in edits:
        spoken_ps = tree.self_ps[edit.rows] * edit.share
        left_ps = spoken_ps * (1 - taken[edit.rows])
        whole, left = float(spoken_ps.sum()), float(left_ps.sum())
        share = left / whole if whole else 0.0
        least, most = (min(end * share, left) for end in (edit.least_ps, edit.most_ps))
        first, last = first + share * edit.once_ps[0], last + share * edit.once_ps[1]
        spoken += left
        saved += left - (least + most) / 2
        spread += (most - least) / 2
        squares += (tree.error_of(edit.rows) * edit.share * share) ** 2
        taken[edit.rows] += (1 - taken[edit.rows]) * edit.share
    either = math.sqrt(spread**2 + squares)
    low, high = (min(max(end, 0.0), spoken) for end in (saved - either, saved + either))
    return Saving(low, high, saved, (first, last), taken)


def scale(
    tree: CellTree,
    nodes: Sequence[int],
    least: float,
    most: float,
    because: str = "",
    *,
    with_below: bool = True,
) -> Edit:
    """They take so many times as long, at least and at most."""
    rows = tree.with_below(nodes) if with_below else np.array(nodes, np.int64)
    whole = float(tree.self_ps[rows].sum())
    return Edit(rows, whole * least, whole * most, because=because)


def once(
    tree: CellTree,
    nodes: Sequence[int],
    times: float,
    each_ps: tuple[float, float],
    because: str = "",
    *,
    with_below: bool = True,
) -> Edit:
    """They are done once instead of so many times, and each further time costs no more than so much."""
    rows = tree.with_below(nodes) if with_below else np.array(nodes, np.int64)
    whole = float(tree.self_ps[rows].sum())
    least, most = (whole / times + (times - 1) * min(each, whole / times) for each in each_ps)
    return Edit(rows, least, most, because=because)
