"""The shapes of a graph's tensors, with what the graph leaves open filled in.

A graph that takes batches of any size has None for the batch in most shapes. What ran had a size: the trace
says how many examples a step took, and of some ops what they allocated. From there sizes follow op by op:

    op              in the graph             taken from            filled in
    Placeholder     (None, 28, 28, 1)        the batch, 64         (64, 28, 28, 1)
    Conv2D          (None, 26, 26, 32)       its input's batch     (64, 26, 26, 32)
    Reshape         (None, 21632)            numbers are kept      (64, 21632)
    Transpose       (None, 20, None)         two are open          not known
    BiasAdd         (None, 10)               its larger input      (64, 10)
    BroadcastTo     unknown                  Shape of another      (64, 10)
    Where           (None, 2)                no rule               not known

A size that no rule gives stays None, and so does everything that is counted from it.
"""

from collections.abc import Mapping, Sequence
from math import prod

from profnb.capture.source.source_records import GraphShapes, Shape
from profnb.subjects.bounds.op_kinds import (
    BATCHED,
    ELEMENTWISE,
    GATHERS,
    INPUT_GRADIENTS,
    JOINS,
    KEEPS,
    LIKE_FIRST,
    PRODUCTS,
    SHAPED_BY,
)

Sizes = tuple[int, ...]
_ARGUMENTS = frozenset(
    {"Placeholder", "_Arg", "IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue"}
)
_LARGEST = 1 << 62
_HANDED_ON = frozenset({"Cast", "Identity"})


def count_of(shape: Shape | None) -> int | None:
    """How many numbers a tensor has; None where that is not known, or more than any could have."""
    if shape is None:
        return None
    count = 1
    for size in shape:
        if size is None or count > _LARGEST:
            return None
        count *= size
    return count if count <= _LARGEST else None


def fill_shapes(
    graph: GraphShapes, batch_size: int | None, recorded: Mapping[str, Sequence[Sizes]]
) -> list[Shape | None]:
    """The shapes of a graph's tensors as far as they can be known, in the order of ``graph.shapes``.

    Args:
        graph: The graph.
        batch_size: Examples of one iteration; None where not known.
        recorded: The distinct shapes of what ops allocated, by the op's name.
    """
    filling = _Filling(graph, batch_size)
    first = 0
    for row, made in enumerate(graph.outputs):
        for at in range(first, first + made):
            filling.fill(row, at, recorded.get(graph.op_names[row], ()))
        first += made
    return filling.shapes


class _Filling:
    """What is known of a graph's tensors, op by op.

    Args:
        graph: The graph.
        batch_size: Examples of one iteration; None where not known.

    Attributes:
        shapes: As far as they are known.
    """

    def __init__(self, graph: GraphShapes, batch_size: int | None) -> None:
        self.shapes: list[Shape | None] = list(graph.shapes)
        self._graph, self._batch_size = graph, batch_size
        self._counts: dict[int, int] = {}  # numbers of tensors of which two dimensions are open
        self._held_shapes: dict[int, Shape] = {}  # tensors that hold the shape of another one

    def fill(self, row: int, at: int, recorded: Sequence[Sizes]) -> None:
        """Take in one tensor that the op of a row makes."""
        kind, taken = self._graph.op_types[row], self._graph.inputs[row]
        if count_of(self.shapes[at]) is None:
            self.shapes[at] = self._filled(row, at)
        if count_of(self.shapes[at]) is None:
            self.shapes[at] = _recorded(self.shapes[at], recorded)
        if kind in KEEPS and taken and self.count(taken[0]) is not None:
            self._counts[at] = self.count(taken[0]) or 0
        if kind == "Shape" and taken:
            held_shape = self._shape(taken[0])
        else:
            held_shape = self._held_shapes.get(taken[0]) if kind in _HANDED_ON and taken else None
        if held_shape is not None:
            self._held_shapes[at] = held_shape

    def count(self, at: int) -> int | None:
        """How many numbers a tensor has; None where not known."""
        count = count_of(self._shape(at))
        return self._counts.get(at) if count is None else count

    def _shape(self, at: int) -> Shape | None:
        return self.shapes[at] if at >= 0 else None

    def _filled(self, row: int, at: int) -> Shape | None:
        """What an op makes, from what it takes."""
        kind, shape, taken = self._graph.op_types[row], self.shapes[at], self._graph.inputs[row]
        inputs = [self._shape(one) for one in taken]
        if kind in _ARGUMENTS:
            return _with_batch(shape, self._batch_size)
        by = SHAPED_BY.get(kind, len(taken))
        if by < len(taken) and taken[by] in self._held_shapes:
            shape = _merged(shape, self._held_shapes[taken[by]])
        if kind == "AddN" or (kind in LIKE_FIRST and inputs):
            return _merged(shape, *(inputs if kind == "AddN" else inputs[:1]))
        if kind in ELEMENTWISE:
            return _broadcast(shape, inputs)
        if kind == "Einsum":
            return _merged(shape, _einsum(self._graph.settings.get(row, ""), inputs))
        return self._by_size(kind, taken, shape)

    def _by_size(self, kind: str, taken: Sequence[int], shape: Shape | None) -> Shape | None:
        """What an op makes whose output has the batch, the rows or the numbers of its input."""
        graph, inputs = self._graph, [self._shape(one) for one in taken]
        if kind in BATCHED:
            source = 2 if kind in INPUT_GRADIENTS else 0
            given, given_shape = (
                (taken[source], inputs[source]) if len(taken) > source else (-1, None)
            )
            opens = given >= 0 and _opens_first(graph.shapes[given]) and _opens_first(shape)
            if opens and given_shape:
                return _with_batch(shape, given_shape[0])
            return self._product(taken, shape) if kind in PRODUCTS else shape
        if kind in GATHERS:
            return _gathered(graph, taken, inputs, shape)
        numbers = self._numbers_made(kind, taken)
        return shape if numbers is None else _with_count(shape, numbers)

    def _product(self, taken: Sequence[int], shape: Shape | None) -> Shape | None:
        """A product of matrices of which the numbers of the left one are known, whichever is transposed."""
        left, right = (self.count(one) for one in taken[:2]) if len(taken) > 1 else (None, None)
        if not shape or not _opens_first(shape) or not left or not right or not shape[-1]:
            return shape
        summed, rest = divmod(right, shape[-1])
        if rest or left % summed:
            return shape
        rows = left // summed
        if count_of(self.shapes[taken[0]]) is None:
            self.shapes[taken[0]] = rows, summed
        return (rows, *shape[1:])

    def _numbers_made(self, kind: str, taken: Sequence[int]) -> int | None:
        """How many numbers an op makes that keeps those it is given, or joins them."""
        counts = [self.count(one) for one in taken]
        if kind in KEEPS and counts:
            return counts[0]
        if kind in JOINS:
            joined = counts[:-1] if kind == "ConcatV2" else counts  # the last one is the axis
            return None if None in joined else sum(one for one in joined if one is not None)
        return None


def _opens_first(shape: Shape | None) -> bool:
    """Whether the first dimension is open, and no other."""
    return bool(shape) and shape is not None and shape[0] is None and None not in shape[1:]


def _with_batch(shape: Shape | None, batch_size: int | None) -> Shape | None:
    """A shape with its first dimension filled in, where that is open."""
    if not shape or shape[0] is not None or batch_size is None:
        return shape
    return (batch_size, *shape[1:])


def _gathered(
    graph: GraphShapes, taken: Sequence[int], inputs: Sequence[Shape | None], shape: Shape | None
) -> Shape | None:
    """Rows by their numbers: where the table's size is known, the open dimension is that of the numbers."""
    if len(taken) < 2 or min(taken[:2]) < 0 or shape is None or shape.count(None) != 1:
        return shape
    table, numbers, numbers_shape = graph.shapes[taken[0]], graph.shapes[taken[1]], inputs[1]
    if (
        count_of(table) is None
        or numbers is None
        or numbers.count(None) != 1
        or numbers_shape is None
    ):
        return shape
    size = numbers_shape[numbers.index(None)]
    return tuple(size if dimension is None else dimension for dimension in shape)


def _merged(shape: Shape | None, *others: Shape | None) -> Shape | None:
    """What several shapes of one tensor know together."""
    for other in others:
        if shape is None:
            shape = other
        elif other is not None and len(shape) == len(other):
            pairs = zip(shape, other, strict=True)
            shape = tuple(theirs if size is None else size for size, theirs in pairs)
    return shape


def _broadcast(shape: Shape | None, inputs: Sequence[Shape | None]) -> Shape | None:
    """What an op makes that works element by element: the largest of its inputs in each dimension."""
    known_shapes = [taken for taken in inputs if taken is not None]
    are_all = len(known_shapes) == len(inputs) > 0
    if shape is None:
        if not are_all:
            return None
        shape = (None,) * max(len(taken) for taken in known_shapes)
    sizes: list[int | None] = []
    for back, size in zip(range(len(shape), 0, -1), shape, strict=True):
        taken = [one[-back] for one in known_shapes if len(one) >= back]
        numbers = [one for one in taken if one is not None]
        is_sure = (are_all and len(numbers) == len(taken)) or max(numbers, default=1) > 1
        sizes.append(max(numbers, default=None) if size is None and is_sure else size)
    return tuple(sizes)


def _einsum(equation: str, inputs: Sequence[Shape | None]) -> Shape | None:
    """What an Einsum makes, by its labels; None where they are not plain letters."""
    sizes = label_sizes(equation, inputs)
    made = equation.partition("->")[2]
    return None if sizes is None else tuple(sizes.get(label) for label in made)


def label_sizes(equation: str, inputs: Sequence[Shape | None]) -> dict[str, int | None] | None:
    """The size of each label of an Einsum; None where its labels are not plain letters.

    Args:
        equation: For instance ``abc,cd->abd``.
        inputs: The shapes of what it takes.
    """
    left, arrow, made = equation.partition("->")
    terms = left.split(",")
    sizes: dict[str, int | None] = {}
    for term, shape in zip(terms, inputs, strict=False):
        if shape is None or len(shape) != len(term) or not term.isalpha():
            return None
        for label, size in zip(term, shape, strict=True):
            sizes[label] = sizes.get(label) or size
    return sizes if arrow and len(terms) == len(inputs) and set(made) <= set(sizes) else None


def _with_count(shape: Shape | None, numbers: int) -> Shape | None:
    """A shape of which one dimension is open, from how many numbers it holds."""
    if shape is None or shape.count(None) != 1:
        return shape
    others = prod(size for size in shape if size is not None)
    if others <= 0 or numbers % others:
        return shape
    return tuple(numbers // others if size is None else size for size in shape)


def _recorded(shape: Shape | None, seen: Sequence[Sizes]) -> Shape | None:
    """What an op allocated, if exactly one such shape is what the graph says."""
    if shape is None:
        return seen[0] if len(seen) == 1 else None
    fitting = [
        one
        for one in seen
        if len(one) == len(shape)
        and all(
            size in (None, recorded_size) for size, recorded_size in zip(shape, one, strict=True)
        )
    ]
    return fitting[0] if len(fitting) == 1 else shape
