"""Where the whole cell's wall time went, as a tree of who called whom.

A node is what a person would name: a call of Keras', an own function, a callback, steps, an iterator that is
made. Equal siblings are one node. The self times add up to the cell.
"""

from __future__ import annotations

from dataclasses import dataclass

CELL, CALL, EPOCH, LINES = "cell", "call", "epoch", "own lines"
SETTING_UP, TRACING, COMPILATION = "set-up", "tracing", "compilation"
FRAMEWORK = "framework code"  # that an own function calls: no ops, and no Python of its own
WAITING = "waiting for other threads"
EAGER = "eager ops"  # of TensorFlow and Keras that an own function or a callback runs one by one


@dataclass(frozen=True, slots=True)
class Place:
    """What a node stands for, among its siblings.

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
        kind: See ``Place``.
        name: See ``Place``.
        file: See ``Place``.
        line: See ``Place``.
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
