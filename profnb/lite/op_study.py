"""Models op by op: which layer each op is from, what the layers' tensors lose, and how long each op takes.

A tensor is named after what it was in TensorFlow's graph, with what was folded into it:
``cnn_1/conv2d_1/Relu;cnn_1/conv2d_1/BiasAdd;...``. Keras gives a scope that is taken a number, so
``conv2d_1`` may be the layer ``conv2d``; scopes and layers are matched in order.

The delegate tells an op's name and its place in what it was given, not which op of the model it stands
for; both go in order, so they are aligned by which kinds can stand for each other.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from profnb.capture.seams import LITE_OPS
from profnb.core.columns import group
from profnb.core.units import PS_PER_US, longer_text
from profnb.lite.findings import LiteLayer, LiteModel, LiteOp
from profnb.lite.lite_data import LiteData
from profnb.lite.process.interpreters import Bench, InterpreterProcess, InterpreterRefusalError

_HEAVY = re.compile(
    r"conv|matmul|depthwise|biasadd|einsum|while|lstm|gru|gather|pool|mean|tensordot", re.IGNORECASE
)
_NUMBERED = re.compile(r"_\d+$")
_WEIGHTS_ONLY = ("DEQUANTIZE", "DENSIFY")
LayerKinds = Sequence[tuple[str, str]]  # names and classes of a Keras model's layers, in order
LayersByModel = Mapping[str, LayerKinds]
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


class OpLayer(NamedTuple):
    """The layer that an op came from.

    Attributes:
        layer: The layer, or the scope in its name; "" where nothing tells.
        layer_type: The layer's class, or "".
        fused: Further layers that were folded into it.
    """

    layer: str
    layer_type: str = ""
    fused: tuple[str, ...] = ()


def read_graph(details: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> Graph:
    """Read the graph from what the interpreter tells.

    Args:
        details: ``ops`` (None where the interpreter hides them; those of type DELEGATE stand for
            a part, behind all others) and ``tensors``.
        inputs: The tensors that are fed.
    """
    fed = {one["index"] for one in inputs}
    tensors = {one["index"]: {**one, "is_input": one["index"] in fed} for one in details["tensors"]}
    listed = details["ops"] or []
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


def assign_layers(graph: Graph, layers: LayerKinds) -> list[OpLayer]:
    """Find the layer of each op.

    ``layers`` are names and classes of the Keras layers, in order; none where there is no Keras model.
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
    _name_the_rest(graph, op_layers, layers)
    return op_layers


def _name_of(graph: Graph, op: Mapping[str, Any]) -> str:
    """An op's name: its output's, or where that is only the model's, that of its weights."""
    makers = (one for one in graph.ops if one["type"] not in _WEIGHTS_ONLY)
    made = {one for maker in makers for one in maker["outputs"]}
    weights = [one for one in op["inputs"] if one >= 0 and one not in made]
    tensors = (graph.tensors.get(one, {}) for one in (*op["outputs"][:1], *weights))
    return next((name for one in tensors if "/" in (name := str(one.get("name", "")))), "")


def _match_scopes(scopes: Sequence[str], layers: Sequence[str]) -> dict[str, str]:
    """Scopes to layers, each layer once, in the order in which both come."""
    layer_of_scope: dict[str, str] = {}
    free = list(layers)
    for scope in dict.fromkeys(scopes):
        names = _NUMBERED.sub("", scope), scope
        if layer := next((name for name in free if name in names), None):
            layer_of_scope[scope] = layer
            free.remove(layer)
    return layer_of_scope


def _layer_in(scopes: Sequence[str], layers: Mapping[str, str], *, has_layers: bool) -> str:
    """The innermost scope that is a layer; without layers the one below the model's."""
    inner = scopes[1:] or scopes
    otherwise = "" if has_layers or not inner else inner[0]
    return next((layers[one] for one in reversed(inner) if one in layers), otherwise)


def _name_the_rest(graph: Graph, op_layers: list[OpLayer], layers: LayerKinds) -> None:
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


def align(types: Sequence[str], run: Sequence[str]) -> list[int]:
    """Find for each op that the delegate ran the op of the model that it stands for: a place in ``types``.

    As many as possible go to an op of a kind that fits, in order; what is left (a reshape before a product, a
    copy) goes to the next one that does, or to the last.
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


_PROFILED_RUNS, _LOOKED_INTO = 60, 8
_METHOD = LITE_OPS.attributes[0]  # of the interpreter: lists its ops
_NO_OPS = f"The interpreter hides {LITE_OPS.name}, so {LITE_OPS.lost}."
_MARGIN = 2  # steps: the 1 of a softmax is one beyond its fixed range, and nothing is lost


class OpStudy:
    """The ops of some models.

    Args:
        bench: Where they are measured.
    """

    def __init__(self, bench: Bench) -> None:
        """Nothing is looked into yet."""
        self._bench = bench
        self._seen: list[LiteModel] = []
        self._graphs: dict[str, Graph] = {}
        self._layers: dict[str, list[OpLayer]] = {}
        self._ops: dict[str, list[LiteOp]] = {}
        self._invoke_ps: dict[str, float] = {}
        self._errors: Mapping[tuple[str, str], tuple[float, ...]] = {}  # by model and layer

    def look_into(
        self, process: InterpreterProcess, models: Sequence[LiteModel], layers: LayersByModel
    ) -> None:
        """Find the ops of each model, with their layers and who runs them.

        ``models`` has one for each file, ``layers`` by model names and classes of its Keras model's layers.
        """
        self._seen = list(models)
        for one in models:
            name = one.name
            inputs = process.ask("open", **self._bench.place(name, one.threads))["inputs"]
            graph_details = process.ask("graph", id=name, method=_METHOD)
            if graph_details["ops"] is None and _NO_OPS not in self._bench.notes:
                self._bench.notes.append(_NO_OPS)
            graph = self._graphs[name] = read_graph(graph_details, inputs)
            of_model = layers.get(name) or layers.get(name.rpartition(", ")[0], [])
            self._layers[name] = assign_layers(graph, of_model)
            self._ops[name] = list_ops(name, graph, self._layers[name])

    def compare_layers(self, process: InterpreterProcess, data: LiteData) -> None:
        """Find how far each layer's output is from the float model's, and what its range cuts off.

        The last few examples are looked at, as calibration took the first.
        """
        base = next((one for one in self._seen if one.kind.endswith("float32")), None)
        if base is None:
            return
        last = slice(max(len(data) - max(_LOOKED_INTO, self._bench.batch), 0), None)
        source = self._bench.write("looked", data, last)
        kept = {}
        for one in self._seen:
            target = str(self._bench.folder / "tensors.npz")
            try:
                process.ask("tensors", id=one.name, source=source, target=target, method=_METHOD)
            except InterpreterRefusalError as error:
                self._bench.notes.append(f"{one.name}: no tensors of its layers ({error}).")
                continue
            with np.load(target, allow_pickle=False) as file:
                kept[one.name] = {int(name[1:]): file[name] for name in file.files}
        self._errors = layer_errors(base.name, kept, self._graphs, self._layers)

    def profile(self, data: LiteData) -> None:
        """Time ops, apart from the runs that were timed; a model that ends its process ends no other's."""
        bench = self._bench
        if bench.engine != "litert":
            bench.notes.append("There are no times of ops: tf.lite lacks LiteRT's profiler.")
            return
        source = bench.write("first", data, slice(0, bench.batch))
        costs, why, left = [], "", list(self._seen)
        while left:
            with bench.begin() as process:
                while left and process.is_alive:
                    try:
                        costs.append(self._profile_one(process, left.pop(0), source))
                    except InterpreterRefusalError as error:  # noqa: PERF203 - each model may
                        why = why or str(error)
        if why:
            bench.notes.append(
                f"No times of ops: ai-edge-litert {bench.version} has no working profiler here ({why})."
            )
        if costs:
            longer = longer_text(min(costs), max(costs))
            bench.notes.append(
                "Times of ops come from separate runs, in whole microseconds. Under the profiler runs "
                f"took {longer}."
            )

    def _profile_one(self, process: InterpreterProcess, one: LiteModel, source: str) -> float:
        """Time one model's ops; what the profiler cost, as a part of the time without it."""
        process.ask("open", **self._bench.place(one.name, one.threads))
        profile = process.ask("profile", id=one.name, source=source, runs=_PROFILED_RUNS)
        self._invoke_ps[one.name] = profile["invoke_us"] * PS_PER_US
        self._ops[one.name] = timed_ops(self._ops[one.name], self._graphs[one.name], profile["ops"])
        return float(profile["run_us"] * PS_PER_US / one.latency_ps - 1)

    @property
    def ops(self) -> tuple[LiteOp, ...]:
        """The ops of all models."""
        return tuple(op for ops in self._ops.values() for op in ops)

    @property
    def layers(self) -> tuple[LiteLayer, ...]:
        """The layers of all models in the order in which they begin, with what they lose."""
        rows = []
        for model, ops in self._ops.items():
            kinds = {layer.layer: layer.layer_type for layer in self._layers[model]}
            for name in dict.fromkeys(op.layer for op in ops):
                layer_ops = [op for op in ops if op.layer == name and op.kernel != "folded"]
                if layer_ops:
                    spent = float(sum(op.self_ps for op in layer_ops))
                    errors = self._errors.get((model, name), ())
                    rows.append(LiteLayer(name, kinds[name], model, spent, len(layer_ops), *errors))
        return tuple(rows)

    def with_ops(self, model: LiteModel) -> LiteModel:
        """Add to a model's row what its ops say; it stays as it is where they were not looked into."""
        ops = [op for op in self._ops.get(model.name, ()) if op.kernel != "folded"]
        if not ops:
            return model
        delegated = [op.self_ps for op in ops if op.kernel == "XNNPACK"]
        whole = sum(op.self_ps for op in ops)
        return replace(
            model,
            ops=len(ops),
            delegated_ops=len(delegated),
            delegated_fraction=sum(delegated) / whole if whole > 0 else math.nan,
            profiled_ps=self._invoke_ps.get(model.name, math.nan),
        )


def list_ops(model: str, graph: Graph, layers: Sequence[OpLayer]) -> list[LiteOp]:
    """List the ops of a model, in order, without times."""
    delegated, folded = {place for part in graph.parts for place in part}, graph.folded
    listed = []
    for place, (op, layer) in enumerate(zip(graph.ops, layers, strict=True)):
        kernel = "XNNPACK" if place in delegated else "built-in"
        if place in folded:
            kernel = "folded"
        elif not op["type"].isupper():
            kernel = "custom"
        detail = graph.output_of(op)
        shape = " x ".join(map(str, detail.get("shape", ()))) or "scalar"
        listed.append(LiteOp(
            model, op["index"], op["type"], layer.layer, ", ".join(layer.fused), shape,
            detail.get("dtype", ""), kernel,
        ))  # fmt: skip
    return listed


def timed_ops(ops: Sequence[LiteOp], graph: Graph, rows: Sequence[Sequence[Any]]) -> list[LiteOp]:
    """Add times to the ops, by what ``op_profiler.profile_ops`` tells of each that ran.

    An op of a part whose others ran takes no time of its own: it is folded into them.
    """
    time_us = {op.index: 0.0 for op in ops}
    names: dict[int, str] = {}
    for is_delegated, _, index, _, us in rows:
        if not is_delegated:
            time_us[int(index)] = time_us.get(int(index), 0.0) + us
    ran = group((int(part), (name, us)) for is_its, name, _, part, us in rows if is_its)
    folded = graph.folded
    unfolded = ([at for at in part if at not in folded] for part in graph.parts)
    parts = [part for part in unfolded if part]
    runs = [ran[part] for part in sorted(ran)]
    if len(parts) != len(runs):  # the profiler divides them in another way: all of them, in order
        parts, runs = [sorted(chain.from_iterable(parts))], [list(chain.from_iterable(runs))]
    for part, run in zip(parts, runs, strict=True):
        if not part:
            continue
        places = align([graph.ops[at]["type"] for at in part], [name for name, _ in run])
        for place, (name, us) in zip(places, run, strict=True):
            op = ops[part[place]].index
            time_us[op] += us
            names[op] = name
    return [
        replace(op, self_ps=time_us[op.index] * PS_PER_US, kernel_name=names.get(op.index, ""))
        for op in ops
    ]


def layer_errors(
    base: str,
    kept: Mapping[str, Mapping[int, Any]],
    graphs: Mapping[str, Graph],
    layers: Mapping[str, Sequence[OpLayer]],
) -> dict[tuple[str, str], tuple[float, float]]:
    """Find by model and layer how far its last output is from the base's, and what is cut off.

    ``kept`` has by model and tensor the values for a few examples.
    """

    def key(detail: Mapping[str, Any]) -> str:
        """A tensor in every kind of the model: the first of what was folded into it."""
        return str(detail.get("name", "")).partition(";")[0]

    errors: dict[tuple[str, str], tuple[float, float]] = {}
    named = {
        model: {key(graphs[model].tensors[at]): array for at, array in arrays.items()}
        for model, arrays in kept.items()
    }
    expected = named.pop(base, {})
    for model, values in named.items():
        for op, layer in zip(graphs[model].ops, layers[model], strict=True):
            detail = graphs[model].output_of(op)
            one, two = (arrays.get(key(detail)) for arrays in (expected, values))
            if one is not None and two is not None and one.shape == two.shape:
                errors[model, layer.layer] = _distance(one, two, detail)
    return errors


def _distance(expected: Any, actual: Any, detail: Mapping[str, Any]) -> tuple[float, float]:
    """The relative error, and the share of values that the tensor's type and scale cannot hold."""
    size = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64))))
    error = float(np.sqrt(np.mean(np.square(actual.astype(np.float64) - expected))))
    clipped = math.nan
    if detail["scale"] and np.dtype(detail["dtype"]).kind in "iu":
        limits = np.iinfo(detail["dtype"])
        low = (limits.min - detail["zero"] - _MARGIN) * detail["scale"]
        high = (limits.max - detail["zero"] + _MARGIN) * detail["scale"]
        clipped = float(np.mean((expected < low) | (expected > high)))
    return (error / size if size else math.nan), clipped
