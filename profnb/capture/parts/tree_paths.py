"""The tree of a cell in the making, and the ways to its nodes that looks at the stack show.

Two loops of a cell, in which ``Score.on_epoch_end`` calls ``predict``, as a tree::

    cell
      Cell [3]:2                        lines of the cell itself
      fit                               a call
        around steps
        epoch                           4 times
          train steps                   128
          callbacks Score.on_epoch_end  4
            predict                     4
              predict steps
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeVar

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import NodeKey, TreeNode

Path = tuple[NodeKey, ...]
_FIT_NODE, _VALIDATION = NodeKey(parts.CALL, "fit"), NodeKey(parts.CALL, "validation")
_OF_EPOCHS = re.compile(r"\.?on_(?:epoch|\w*batch)_\w+$")
_MOST_NODES = 1_000
_LEAF_KINDS = (parts.FRAMEWORK, parts.WAITING, parts.EAGER)
_T = TypeVar("_T")


@dataclass(slots=True)
class _Node:
    first_ns: int
    self_ns: int = 0
    looks: int = 0
    below: dict[NodeKey, "_Node"] = field(default_factory=dict)


class CellTree:
    """The tree in the making."""

    def __init__(self) -> None:
        """The cell alone."""
        self._root = _Node(0)
        self._count = 1

    def add(self, path: Path, first_ns: int, self_ns: int, looks: int = 0) -> None:
        """Charge time to the end of a way; to the node above where there are too many."""
        node = self._root
        for place in path:
            below = node.below.get(place)
            if below is None:
                if self._count >= _MOST_NODES:
                    break
                below = node.below[place] = _Node(first_ns)
                self._count += 1
            below.first_ns = min(below.first_ns, first_ns)
            node = below
        node.self_ns += self_ns
        node.looks += looks

    def names_of(self, kind: str) -> set[str]:
        """Give the names of all nodes of a kind."""
        return {place.name for place, _ in self._walk() if place.kind == kind}

    def take(self, share: float, but: str) -> int:
        """Take a share of the time of all nodes but those of a kind; what that was."""
        taken = 0
        for place, node in self._walk():
            if place.kind != but:
                left_ns = without(node.self_ns, share)
                node.self_ns, taken = left_ns, taken + node.self_ns - left_ns
        return taken

    def _walk(self) -> Iterator[tuple[NodeKey, "_Node"]]:
        waiting = [(NodeKey(parts.CELL), self._root)]
        while waiting:
            place, node = waiting.pop()
            yield place, node
            waiting += node.below.items()

    def nodes(
        self, occurrences: Mapping[tuple[str, str, str], int], calls: Mapping[Path, int]
    ) -> list[TreeNode]:
        """List the nodes, each behind the one above; siblings in the order in which they first began.

        Args:
            occurrences: How often what has a kind and a name happened in all runs of a method ("" for
                anywhere).
            calls: The same by the way to a node, where several have one kind and name.
        """
        listed: list[tuple[int, NodeKey, _Node, tuple[str, str, str], Path]] = []

        def walk(parent: int, path: Path, node: _Node, run: str) -> None:
            place = path[-1] if path else NodeKey(parts.CELL)
            row, key = len(listed), (place.kind, place.name, run)
            key = key if key in occurrences else (place.kind, place.name, "")
            listed.append((parent, place, node, key, path))
            run = place.name if place.kind == parts.CALL else run
            for place_below, below in sorted(node.below.items(), key=lambda item: item[1].first_ns):
                walk(row, (*path, place_below), below, run)

        if self._root.below or self._root.self_ns:
            walk(-1, (), self._root, "")
        nodes = Counter(key for *_, key, _ in listed)
        return [
            TreeNode(
                parent, place.kind, place.name, place.file, place.line,
                occurrences.get(key, 0) if nodes[key] == 1 else calls.get(path, 0), node.self_ns, node.looks,
            )
            for parent, place, node, key, path in listed
        ]  # fmt: skip


def in_epochs(path: Path, *, is_inside: bool) -> Path:
    """Lead a way through the epochs of its fits.

    Args:
        path: A way as a stack shows it.
        is_inside: Whether the innermost fit was between its first batch and its last; what a way leads to
            behind others tells by itself.
    """
    made: list[NodeKey] = []
    last = _behind_last(path, lambda place: place == _FIT_NODE) - 1
    for at, place in enumerate(path):
        made.append(place)
        if place != _FIT_NODE:
            continue
        follows = path[at + 1] if at + 1 < len(path) else NodeKey("")
        is_callback = follows.kind == parts.CALLBACKS
        is_of_epoch = is_callback and _OF_EPOCHS.search(follows.name) is not None
        if follows == _VALIDATION or is_of_epoch or (at == last and is_inside and not is_callback):
            made.append(NodeKey(parts.EPOCH))
    return tuple(made)


def _behind_last(path: Sequence[NodeKey], is_it: Callable[[NodeKey], bool]) -> int:
    """Find the place behind the last one of some kind; 0 where there is none."""
    return max((at for at, place in enumerate(path, 1) if is_it(place)), default=0)


def common_path(paths: Iterable[Sequence[NodeKey]]) -> Path:
    """Give the way that several have in common."""
    same = takewhile(lambda places: len(set(places)) == 1, zip(*paths, strict=False))
    return tuple(places[0] for places in same)


class Paths:
    """The ways that looks show, to runs of Keras' and to steps.

    Args:
        seen: The ways of looks, and how much time each look stands for.
    """

    def __init__(self, seen: Iterable[tuple[Path, int]]) -> None:
        """Find the way that most looks took to each run."""
        paths: dict[str, Counter[Path]] = {}
        for path, weight in seen:
            for at, place in enumerate(path):
                if place.kind == parts.CALL:
                    paths.setdefault(place.name, Counter())[path[: at + 1]] += weight
        self._paths = {name: of_run.most_common(1)[0][0] for name, of_run in paths.items()}

    def to_run(self, method: str) -> Path:
        """Give the way to a run, "fit"; where no look met it, from the cell itself."""
        outer = self.to_run("fit") if method == _VALIDATION.name else ()
        return self._paths.get(method) or (*outer, NodeKey(parts.CALL, method))

    def between(self, part: NodeKey, path: Path | None, *, is_inside: bool) -> Path:
        """Give the way to what lies between steps.

        Args:
            part: What it is, by what was counted around it.
            path: What a look saw; None for none.
            is_inside: Whether a fit that is on the way was between its first batch and its last.
        """
        if path is None:
            is_of_run = part.kind in (parts.AROUND, parts.EPOCH_ENDS, parts.GAPS)
            path = self.to_run(part.name) if is_of_run else ()
        ends_in_run = bool(path) and path[-1].kind == parts.CALL and part.kind != parts.OTHER
        return (*in_epochs(path, is_inside=is_inside), *([NodeKey(part.kind)] * ends_in_run))

    def of_steps(
        self,
        step: NodeKey,
        methods: Collection[str],
        looks: Sequence[tuple[Path, int]],
        around: Iterable[Path],
    ) -> Counter[Path]:
        """Give the ways to what steps of one kind did, with the time that looks stand for.

        Args:
            step: What they are.
            methods: The runs of Keras' that make such steps, if any.
            looks: Those that met one.
            around: The ways of looks between two of them.
        """

        def is_run(place: NodeKey) -> bool:
            return place.kind == parts.CALL and place.name in methods

        cuts = [_behind_last(path, is_run) for path, _ in looks]
        if not any(cuts):  # above what only says what its function called
            common = common_path([*(path for path, _ in looks), *around])
            cuts = [_behind_last(common, lambda place: place.kind not in _LEAF_KINDS)] * len(looks)
        shares: Counter[Path] = Counter()
        for (path, weight), cut in zip(looks, cuts, strict=True):
            outer = in_epochs(path[:cut], is_inside=True)
            shares[(*outer, step, *path[cut:])] += weight
        if not shares:
            common = common_path(around)
            functions = common[: _behind_last(common, lambda place: place.kind == parts.LINES)]
            outer = self.to_run(min(methods)) if methods else functions
            shares[(*in_epochs(outer, is_inside=True), step)] = 1
        return shares


def divided(whole: int, shares: Mapping[_T, int]) -> Iterator[tuple[_T, int]]:
    """Divide a whole number in the ratio of shares, the largest first; nothing is lost."""
    left, of_all = whole, sum(shares.values())
    for key, share in Counter(shares).most_common():
        part = -(-left * share // of_all)
        yield key, part
        left, of_all = left - part, of_all - share


def without(ns: int, share: float) -> int:
    """Take a share off; of two times the longer one stays so."""
    return ns - int(ns * share)
