"""The ops of one graph by name, by scope and by type, and which of its scopes are whose layers."""

import re

from profnb.capture.source.source_records import GraphLines
from profnb.trace.names import without_number

_VERSION = re.compile(r"V\d+$")
_TAPE = re.compile(r"(?:^|/)gradient_tape/")
_GRADIENTS = re.compile(r"(?:^|/)gradients/((?:(?!_grad/).)+)_grad/")


class GraphOps:
    """A graph's ops by name.

    Attributes:
        lines: The graph.
        layers: The layer of each scope that is one.
        rows: Row of each op by its name.
        made: Of forward ops, one row per place, by scope and type.
        inside: Likewise, by each scope around them.
    """

    def __init__(self, lines: GraphLines, layers: dict[str, int]) -> None:
        """Index a graph; ``layers`` are the places of layers by name."""
        self.lines = lines
        parts = {part for name in lines.op_names for part in name.split("/")} if layers else set()
        self.layers = _name_layers(parts, layers)
        self.rows = {name: row for row, name in enumerate(lines.op_names)}
        self.made: dict[str, dict[str, dict[int, int]]] = {}
        self.inside: dict[str, dict[int, int]] = {}
        for row, name in enumerate(lines.op_names):
            if forward_of(name) is None:
                self._note_forward(name.rpartition("/")[0], lines.op_types[row], row)

    def _note_forward(self, scope: str, kind: str, row: int) -> None:
        place = self.lines.places[row]
        self.made.setdefault(scope, {}).setdefault(kind, {}).setdefault(place, row)
        while scope:
            self.inside.setdefault(scope, {}).setdefault(place, row)
            scope = scope.rpartition("/")[0]


def _name_layers(parts: set[str], layers: dict[str, int]) -> dict[str, str]:
    """Which layer each scope of a graph is.

    A scope carries the layer's name, or that with a number where it was taken: ``dense_1`` is either the
    layer of that name or a second scope of ``dense``. It is the former unless ``dense_1`` has a scope that
    can be no other's, as ``dense_1_2``.
    """
    waiting = {
        part: names
        for part in sorted(parts)
        if (names := [n for n in dict.fromkeys((part, without_number(part))) if n in layers])
    }
    named: dict[str, str] = {}
    while waiting:
        taken = set(named.values())
        free = {part: [n for n in names if n not in taken] for part, names in waiting.items()}
        sure = [part for part, names in waiting.items() if len(names) == 1 or len(free[part]) < 2]
        for part in sure or list(waiting)[:1]:
            named[part] = (free[part] or waiting[part])[0]
            del waiting[part]
    return named


def forward_of(name: str) -> tuple[str, bool] | None:
    """What the forward op of a gradient op is called: (its scope or name, whether it is a name)."""
    matches = list(_GRADIENTS.finditer(name))
    if matches:
        return matches[-1].group(1), True
    tape = list(_TAPE.finditer(name))
    if tape:
        return name[tape[-1].end() :].rpartition("/")[0], False
    return None


def is_gradient_of(op_type: str, forward: str) -> bool:
    """Whether ops of a type are made for the gradient of another: ReluGrad, Conv2DBackpropInput."""
    if "Grad" not in op_type and "Backprop" not in op_type:
        return False
    plain = _VERSION.sub("", forward)
    return len(plain) > 2 and op_type.startswith(plain) and op_type != forward
