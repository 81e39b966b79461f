"""Names of ops to what a person calls them: the layer, the direction and the op, with the rest behind.

    gradient_tape/net/conv2d/Conv2D/Conv2DBackpropFilter    conv2d · backward (filter)       in net
    net/conv2d/BiasAdd                                      conv2d · BiasAdd                 in net
    Adam/update_dense/kernel/ResourceApplyAdam              Adam · ResourceApplyAdam         dense/kernel
    jit(f)/transpose(jvp(Model))/Dense_0/dot_general        Dense_0 · backward (dot_general) in Model
    Iterator::Root::Map                                     Map                              Iterator::Root
    GatherV2                                                GatherV2

What is said once is not said again: a type stands behind only where the name does not say it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from profnb.subjects.layers.name_scopes import layer_scope, parse_scope
from profnb.subjects.ops.op_table import OPTIMIZERS
from profnb.trace.op_names import without_call, without_number, without_numbers

# What a gradient's op is of, where its type says so.
_OF_GRADIENT = (
    (re.compile(r".*BackpropFilter(V\d+)?"), "filter"),
    (re.compile(r".*BackpropInput(V\d+)?"), "input"),
    (re.compile(r"BiasAddGrad(V\d+)?"), "bias"),
)
_GRADIENT = re.compile(r"Grad(?=(V\d+)?(_\d+)?$)")
_ITERATOR = "Iterator::"
_NUMBER, _TELLING = re.compile(r"[._]\d+$|V\d+$"), 4
_NOT_TOLD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class OpTitle:
    """What an op is called.

    Attributes:
        name: Its name, as a person says it.
        about: Where it stands, and its type if the name does not say it; "" for nothing.
        full: Its own name and type.
    """

    name: str
    about: str
    full: str

    @property
    def cell(self) -> tuple[str, str, str, str]:
        """As a table's cell: the name, fainter what is about it, and its own name under the pointer."""
        return self.name, "", self.about, self.full if self.full != self.name else ""


def op_titles(names: Sequence[str], types: Sequence[str]) -> list[OpTitle]:
    """Titles of several ops of one table; where two would read alike, their own names stand behind."""
    titles = [op_title(name, kind) for name, kind in zip(names, types, strict=True)]
    distinct = {(title.name, title.about, title.full) for title in titles}
    often = Counter((name, about) for name, about, _ in distinct)
    return [
        OpTitle(title.name, title.full, title.full) if often[title.name, title.about] > 1 else title
        for title in titles
    ]


def op_title(op_name: str, op_type: str = "") -> OpTitle:
    """What a person calls an op.

    Args:
        op_name: Its name, as it was recorded.
        op_type: Its type; "" if unknown.
    """
    plain = without_call(op_name)
    is_said = _says(plain, op_type)
    full = plain if is_said else f"{plain} ({op_type})"
    kind = "" if is_said else op_type
    if plain.startswith(_ITERATOR):
        above, _, last = plain.rpartition("::")
        return OpTitle(last, above, full) if above != "Iterator" else OpTitle(plain, "", full)
    scope = parse_scope(plain)
    if len(scope.path) < 2 or "/" not in plain:
        return OpTitle(plain, kind, full)
    if without_numbers(scope.path[0].lower()) in OPTIMIZERS:
        inner = "/".join(part.removeprefix("update_") for part in scope.path[1:-1])
        return OpTitle(f"{scope.path[0]} · {scope.path[-1]}", _joined(kind, inner), full)
    layers = layer_scope(scope)
    inside = scope.path[len(layers) :]
    op = (
        f"backward ({_gradient_of(inside[-1], op_type)})"
        if scope.is_backward
        else _once(layers, inside)
    )
    if not layers:
        of = f"{inside[-2]} · {op}" if scope.is_backward else plain
        return OpTitle(of, kind, full)
    above = f"in {'/'.join(layers[:-1])}" if len(layers) > 1 else ""
    return OpTitle(f"{layers[-1]} · {op}", _joined(kind, above), full)


def _once(layers: Sequence[str], inside: Sequence[str]) -> str:
    """The path of an op inside its layer, without parts that the part before or behind them says."""
    said = [*layers[-1:], *inside]
    bare = [_bare(part) for part in said]
    parts = list(inside[-1:])
    for at in range(len(said) - 2, len(said) - len(inside) - 1, -1):
        if bare[at] not in (bare[at + 1], bare[0] if layers and at == 1 else ""):
            parts.insert(0, said[at])
    return "/".join(parts)


def _gradient_of(last: str, op_type: str) -> str:
    """What a backward op works out: of which input, or of which op."""
    for pattern, word in _OF_GRADIENT:
        if pattern.fullmatch(without_number(last)) or pattern.fullmatch(op_type):
            return word
    return _GRADIENT.sub("", last) or last


def _says(name: str, op_type: str) -> bool:
    """Whether a name says a type already: ``Mul`` of ``net/mul`` is said, ``_Send`` of ``x/_1`` is not.

    A type that only adds who runs it (``_MklMatMul``, ``_MklNativeConv2DBackpropFilterWithBias``) is said.
    """
    if not op_type or (op_type == "Dataset" and name.startswith(_ITERATOR)):
        return True
    kind = _bare(op_type)
    parts = [_bare(part) for part in re.split(r"/|::", name)]
    return kind in parts or (len(parts[-1]) >= _TELLING and parts[-1] in kind)


def _bare(word: str) -> str:
    """A word without its number or version, and without what stands between letters."""
    return _NOT_TOLD.sub("", _NUMBER.sub("", word)).lower()


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
