"""A Keras model's graph of layers: who is called again, and where the gradient must reach."""

from collections.abc import Iterator
from typing import Any

from profnb.capture.models.layer_shapes import Shape, inherits, nodes_of
from profnb.capture.seams import LAYER_GRAPH, NODE_LAYER, NODE_PARENTS

# Layers whose parts are all given the layer's own input, but for the part that joins the others.
_SIDE_BY_SIDE = ("Bidirectional", "MultiHeadAttention", "GroupedQueryAttention")
_JOINS = "attention_output"


def is_called_again(layer: Any, shapes: tuple[Shape, ...]) -> bool:
    """Whether a graph of layers calls it at several places.

    A Sequential adds a call each time that it is rebuilt, with the same input.
    """
    return len(nodes_of(layer)) > 1 and (len({*_producers(layer)}) > 1 or len(set(shapes)) > 1)


def _producers(layer: Any) -> Iterator[int]:
    """Which layers a layer's inputs come from, by id."""
    for node in nodes_of(layer):
        for parent in _parents(node):
            yield id(parent)


def _parents(node: Any) -> list[Any]:
    """The layers that made a node's inputs."""
    parents = [NODE_LAYER.of(parent) for parent in NODE_PARENTS.of(node, [])]
    return [parent for parent in parents if parent is not None]


def with_gradients(layer: Any, parts: list[Any], needs_gradient: bool) -> list[tuple[Any, bool]]:
    """Each part, and whether the gradient must reach its input.

    That is so where something before it is trained. What is before it tells the model's graph of layers, or
    their order in a Sequential; elsewhere, the order in which the layers were made.
    """
    has_graph = LAYER_GRAPH.of(layer) is not None
    is_sequential = inherits(layer, ("Sequential",))
    if has_graph and not is_sequential:
        answers: dict[int, bool] = {}
        return [(part, needs_gradient or _trained_before(part, answers, 0)) for part in parts]
    if inherits(layer, _SIDE_BY_SIDE):
        joined = needs_gradient or any(map(_is_trained, parts))
        names = [getattr(part, "name", "") for part in parts]
        return [
            (part, joined if name == _JOINS else needs_gradient)
            for part, name in zip(parts, names, strict=True)
        ]
    pairs, trained = [], needs_gradient
    for part in parts:
        pairs.append((part, trained))
        trained = trained or _is_trained(part)
    return pairs


def _is_trained(layer: Any) -> bool:
    return bool(getattr(layer, "trainable", True)) and bool(getattr(layer, "trainable_weights", ()))


def _trained_before(layer: Any, answers: dict[int, bool], depth: int) -> bool:
    """Whether anything that a layer's inputs are made from is trained."""
    if id(layer) in answers:
        return answers[id(layer)]
    answers[id(layer)] = depth > 900  # until it is known, against circles; too deep: assume it is
    if depth <= 900:
        parents = [parent for node in nodes_of(layer) for parent in _parents(node)]
        answers[id(layer)] = any(
            parent is not layer and (_is_trained(parent) or _trained_before(parent, answers, depth + 1))
            for parent in parents
        )  # fmt: skip
    return answers[id(layer)]
