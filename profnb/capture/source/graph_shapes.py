"""Graphs to the shapes of their tensors: what an op's operations and bytes are counted from.

Only reads graphs that exist, once the code has run; nothing is traced or worked out anew. A dimension that a
graph leaves open stays None: what it was is known only where the graph ran.
"""

from dataclasses import dataclass, field
from typing import Any

from profnb.capture.seams import GRAPH_OPERATIONS

Shape = tuple[int | None, ...]

# The settings that decide how much an op computes and that no shape tells.
_SETTINGS = {
    "Einsum": "equation",
    **dict.fromkeys(
        ("MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad", "MaxPool3D", "MaxPool3DGrad",
         "AvgPool3D", "AvgPool3DGrad"), "ksize",
    ),
}  # fmt: skip
_MOST_INPUTS = 1_000


@dataclass(frozen=True, slots=True)
class GraphShapes:
    """N ops of one graph in the order in which they were made, and its T tensors.

    Attributes:
        op_names: Names inside the graph, N.
        op_types: Types, N.
        inputs: Rows of ``shapes`` that each op takes, N.
        outputs: How many tensors each op makes, N; they follow one another in ``shapes``.
        shapes: Of each tensor, None for a dimension that is open, or for all where even their number is, T.
        dtypes: Of each tensor, "float32", T.
        settings: By row of an op: the equation of an Einsum, the window of a pooling as "1,2,2,1".
    """

    op_names: tuple[str, ...] = ()
    op_types: tuple[str, ...] = ()
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[int, ...] = ()
    shapes: tuple[Shape | None, ...] = ()
    dtypes: tuple[str, ...] = ()
    settings: dict[int, str] = field(default_factory=dict)


def read_shapes(graph: Any, most: int) -> GraphShapes:
    """Take in the shapes of a graph.

    Args:
        graph: A graph of TensorFlow's.
        most: How many ops at most; of a larger graph nothing is taken.
    """
    operations = GRAPH_OPERATIONS.of(graph)()
    if len(operations) > most:
        return GraphShapes()
    row_of: dict[str, int] = {}
    shapes: list[Shape | None] = []
    dtypes: list[str] = []
    inputs: list[tuple[int, ...]] = []
    settings: dict[int, str] = {}
    for row, operation in enumerate(operations):
        for tensor in operation.outputs:
            row_of[tensor.name] = len(shapes)
            shape = tensor.shape
            shapes.append(None if shape.rank is None else tuple(shape))
            dtypes.append(tensor.dtype.name)
        setting = _SETTINGS.get(operation.type)
        if setting is not None:
            settings[row] = _as_text(operation.get_attr(setting))
    for operation in operations:  # a loop's NextIteration is made after the Merge that takes it
        taken = [row_of.get(tensor.name, -1) for tensor in operation.inputs]
        inputs.append(() if len(taken) > _MOST_INPUTS else tuple(taken))
    return GraphShapes(
        tuple(operation.name for operation in operations),
        tuple(operation.type for operation in operations),
        tuple(inputs),
        tuple(len(operation.outputs) for operation in operations),
        tuple(shapes),
        tuple(dtypes),
        settings,
    )


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    return value if isinstance(value, str) else ",".join(map(str, value))
