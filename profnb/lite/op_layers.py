"""Ops of a model to the Keras layers they came from, and ops of the delegate to ops of the model.

A tensor is named after what it was in TensorFlow's graph, with what was folded into it:
``cnn_1/conv2d_1/Relu;cnn_1/conv2d_1/BiasAdd;...``. Keras gives a scope that is taken a number, so
``conv2d_1`` may be the layer ``conv2d``; scopes and layers are matched in order.

The delegate tells an op's name and its place in what it was given, not which op of the model it stands
for; both go in order, so they are aligned by which kinds can stand for each other.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HEAVY = re.compile(
    r"conv|matmul|depthwise|biasadd|einsum|while|lstm|gru|gather|pool|mean|tensordot", re.IGNORECASE
)
_NUMBERED = re.compile(r"_\d+$")
_WEIGHTS_ONLY = ("DEQUANTIZE", "DENSIFY")
# Ops of the model, and how what XNNPACK runs for them is called.
_STANDS_FOR = {
    "CONV_2D": ("Convolution", "Fully Connected"),
    "DEPTHWISE_CONV_2D": ("Convolution", "Depthwise"),
    "TRANSPOSE_CONV": ("Deconvolution",),
    "FULLY_CONNECTED": ("Fully Connected",),
    "BATCH_MATMUL": ("Batch Matrix Multiply", "Fully Connected"),
    "MAX_POOL_2D": ("Max Pooling",),
    "AVERAGE_POOL_2D": ("Average Pooling", "Global Average Pooling"),
    "MEAN": ("Mean", "Global Average Pooling"),
    "SUM": ("Sum", "Global Sum Pooling"),
    "ADD": ("Add",), "SUB": ("Subtract",), "MUL": ("Multiply",), "DIV": ("Divide",),
    "MAXIMUM": ("Maximum",), "MINIMUM": ("Minimum",), "SQUARED_DIFFERENCE": ("Squared Difference",),
    "SOFTMAX": ("Softmax",), "LOGISTIC": ("Sigmoid",), "TANH": ("TanH",), "GELU": ("GELU",), "EXP": ("Exp",),
    "HARD_SWISH": ("HardSwish",), "LEAKY_RELU": ("Leaky ReLU",), "PRELU": ("PReLU",), "ELU": ("ELU",),
    "RELU": ("Clamp",), "RELU6": ("Clamp",), "RELU_N1_TO_1": ("Clamp",), "ABS": ("Abs",), "NEG": ("Negate",),
    "SQUARE": ("Square",), "SQRT": ("Square Root",), "RSQRT": ("Reciprocal Square Root",),
    "PAD": ("Constant Pad",), "PADV2": ("Constant Pad",), "TRANSPOSE": ("Transpose",),
    "RESHAPE": ("Static Reshape", "Copy"), "EXPAND_DIMS": ("Static Reshape", "Copy"),
    "CONCATENATION": ("Concatenate",), "SPLIT": ("Even Split", "Split", "Copy"),
    "SLICE": ("Static Slice", "Slice"), "STRIDED_SLICE": ("Static Slice", "Slice"),
    "SPACE_TO_DEPTH": ("Space To Depth",), "DEPTH_TO_SPACE": ("Depth To Space",),
    "RESIZE_BILINEAR": ("Resize",),
    "QUANTIZE": ("Convert",), "DEQUANTIZE": ("Convert",), "CAST": ("Convert",),
}  # fmt: skip


@dataclass(frozen=True)
class Graph:
    """The ops of a model.

    Attributes:
        ops: In order, each with ``index, type, inputs, outputs``.
        tensors: By index, each with ``name, shape, dtype, scale, zero``.
        parts: For each part that a delegate was given the places of its ops, in the order in which they run.
    """

    ops: list[dict[str, Any]]
    tensors: dict[int, dict[str, Any]]
    parts: list[list[int]]

    @property
    def delegated(self) -> set[int]:
        """Places of the ops that a delegate was given."""
        return {place for part in self.parts for place in part}

    @property
    def folded(self) -> set[int]:
        """Places of the ops that only unpack weights, once, before the first run."""
        made = {one for op in self.ops for one in op["outputs"]}
        fed = {at for at, detail in self.tensors.items() if detail.get("is_input")}
        return {
            place
            for place, op in enumerate(self.ops)
            if op["type"] in _WEIGHTS_ONLY and not (made | fed).intersection(op["inputs"])
        }

    def output_of(self, op: Mapping[str, Any]) -> dict[str, Any]:
        """Describe the tensor that an op gives; nothing where it gives none."""
        return self.tensors.get(op["outputs"][0], {}) if op["outputs"] else {}


@dataclass(frozen=True)
class OpLayer:
    """The layer that an op came from.

    Attributes:
        layer: The layer, or the scope in its name; "" where nothing tells.
        layer_type: The layer's class, or "".
        fused: Further layers that were folded into it.
    """

    layer: str
    layer_type: str = ""
    fused: tuple[str, ...] = ()


def read_graph(graph_details: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> Graph:
    """Read the graph from what the interpreter tells.

    Args:
        graph_details: ``ops`` (None where the interpreter hides them; those of type DELEGATE stand for
            a part, behind all others) and ``tensors``.
        inputs: The tensors that are fed.
    """
    fed = {one["index"] for one in inputs}
    tensors = {
        one["index"]: {**one, "is_input": one["index"] in fed} for one in graph_details["tensors"]
    }
    listed = graph_details["ops"] or []
    ops = [op for op in listed if op["type"] != "DELEGATE"]
    made_by = {one: place for place, op in enumerate(ops) for one in op["outputs"] if one >= 0}
    parts = []
    for delegate in (op for op in listed if op["type"] == "DELEGATE"):
        given, places = set(delegate["inputs"]), set()
        wanted = [one for one in delegate["outputs"] if one in made_by]
        while wanted:
            place = made_by[wanted.pop()]
            if place not in places:
                places.add(place)
                takes = [one for one in ops[place]["inputs"] if one not in given]
                wanted += [one for one in takes if one in made_by]
        parts.append(sorted(places))
    return Graph(ops, tensors, sorted(part for part in parts if part))


def assign_layers(graph: Graph, layers: Sequence[tuple[str, str]]) -> list[OpLayer]:
    """Find the layer of each op.

    Args:
        graph: The model's ops.
        layers: Names and classes of the Keras layers, in order; empty where there is no Keras model.
    """
    kinds = dict(layers)
    texts = [_name_of(graph, op).split(";") for op in graph.ops]
    # The scopes of each op in a tensor's name, outermost first, without the op itself.
    paths = [[[s for s in text.split("/")[:-1] if s] for text in each] for each in texts]
    # The outermost scope is the model's own, which may be called like a layer.
    inner = [scope for parts in paths for part in parts for scope in part[1:] or part]
    layer_of_scope = _match_scopes(inner, list(kinds))
    op_layers: list[OpLayer] = []
    made_by: dict[int, int] = {}
    for place, (op, parts) in enumerate(zip(graph.ops, paths, strict=True)):
        named = [_layer_in(part, layer_of_scope, has_layers=bool(kinds)) for part in parts]
        names = list(dict.fromkeys(name for name in named if name))
        pairs = zip(named, texts[place], strict=True)
        heavy = [name for name, text in pairs if name and _HEAVY.search(text.split("/")[-1])]
        layer = (heavy or names or [""])[0]
        before = [made_by[one] for one in op["inputs"] if one in made_by]
        if not layer and before:  # an activation belongs to what it follows
            layer = op_layers[max(before)].layer
        fused = tuple(name for name in names if name != layer)
        op_layers.append(OpLayer(layer, kinds.get(layer, ""), fused))
        made_by |= dict.fromkeys(op["outputs"], place)
    return _name_the_rest(graph, op_layers, layers)


def _name_of(graph: Graph, op: Mapping[str, Any]) -> str:
    """An op's name: its output's, or where that is only the model's, that of its weights."""
    made = {
        one for each in graph.ops if each["type"] not in _WEIGHTS_ONLY for one in each["outputs"]
    }
    weights = [one for one in op["inputs"] if one >= 0 and one not in made]
    for tensor in (*op["outputs"][:1], *weights):
        name: str = graph.tensors.get(tensor, {}).get("name", "")
        if "/" in name:
            return name
    return ""


def _match_scopes(scopes: Sequence[str], layers: Sequence[str]) -> dict[str, str]:
    """Scopes to layers, each layer once, in the order in which both come."""
    layer_of_scope: dict[str, str] = {}
    for scope in dict.fromkeys(scopes):
        base = _NUMBERED.sub("", scope)
        free = [
            name for name in layers if name in (base, scope) and name not in layer_of_scope.values()
        ]
        if free:
            layer_of_scope[scope] = free[0]
    return layer_of_scope


def _layer_in(scopes: Sequence[str], layer_of_scope: Mapping[str, str], *, has_layers: bool) -> str:
    """The innermost scope that is a layer; without layers the one below the model's."""
    for scope in reversed(scopes[1:] or scopes):
        if scope in layer_of_scope:
            return layer_of_scope[scope]
    if has_layers or not scopes:
        return ""
    return scopes[1] if len(scopes) > 1 else scopes[0]


def _name_the_rest(
    graph: Graph, op_layers: list[OpLayer], layers: Sequence[tuple[str, str]]
) -> list[OpLayer]:
    """Ops at the front take the layer of what they feed; the last op the last layer, where none has it."""
    kinds = dict(layers)
    takes: dict[int, int] = {}
    for place, op in enumerate(graph.ops):
        for one in op["inputs"]:
            takes.setdefault(one, place)
    for place in reversed(range(len(op_layers))):
        feeds = [takes[one] for one in graph.ops[place]["outputs"] if one in takes]
        if not op_layers[place].layer and feeds:
            layer = op_layers[min(feeds)].layer
            op_layers[place] = OpLayer(layer, kinds.get(layer, ""))
    used = {name for one in op_layers for name in (one.layer, *one.fused)}
    last = layers[-1] if layers else ("", "")
    if op_layers and last[0] and last[0] not in used:
        op = graph.ops[-1]
        if "/" not in graph.output_of(op).get("name", ""):
            fused = (op_layers[-1].layer,) if "FULLY" in op["type"] else ()
            op_layers[-1] = OpLayer(*last, fused)
    return op_layers


def align(types: Sequence[str], run: Sequence[str]) -> list[int]:
    """Find for each op that the delegate ran the op of the model that it stands for: a place in ``types``.

    As many as possible go to an op of a kind that fits, in order; what is left (a reshape before a product, a
    copy) goes to the next one that does, or to the last.

    Args:
        types: The types of the part's ops, in order.
        run: What the delegate ran, by its names.
    """
    fits = [
        [name.startswith(_STANDS_FOR.get(kind, (kind.title(),))) for kind in types] for name in run
    ]
    best = [[0] * (len(types) + 1) for _ in range(len(run) + 1)]
    for row in reversed(range(len(run))):
        for column in reversed(range(len(types))):
            matched = best[row + 1][column + 1] + 1 if fits[row][column] else 0
            best[row][column] = max(matched, best[row + 1][column], best[row][column + 1])
    taken: list[int | None] = []
    column = 0
    for row in range(len(run)):
        taken.append(None)
        for at in range(column, len(types)):
            if fits[row][at] and best[row + 1][at + 1] + 1 == best[row][column]:
                taken[row], column = at, at + 1
                break
            if best[row][at + 1] != best[row][column]:
                break
    places: list[int] = []
    for place in reversed(taken):
        behind = places[-1] if places else max(len(types) - 1, 0)
        places.append(behind if place is None else place)
    return places[::-1]
