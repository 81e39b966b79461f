"""Two studies to the ops, layers or events that differ, though names were numbered anew.

Keras numbers what is made without a name through the whole process (``sequential_3_1/dense_10_1``), so the
same model made again has other op names. An op is matched by its path with each scope's number replaced by
its rank among the scopes of that base name beside it: the second dense layer of A meets the second of B.

Two frameworks have no ops in common, but layers: a layer is matched by its path likewise; where each side has
one model at the top, the models may be called differently. JAX tells whose weights an update is of, PyTorch
does not: all updates are the optimizer's row on both sides. The interval of a ratio comes from blocks of
neighbouring steps of one run each: it tells the variation from step to step, not from run to run.

Of two frameworks the rows of the table of ops are the layers, too, and what is none (loss, optimizer); there
are none where one side has no layers.

Of events, the first steady step of A lies on the first of B, and so on; of each counts what it takes in a
step itself, without the events inside it, and when in the step it begins. Threads are called differently in
each run, so an event is the same where its side and its name are, scopes numbered anew.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.compare.estimates import estimate_mean
from profnb.compare.tree_differences import GONE, LONGER, NEW, SHORTER
from profnb.core.columns import Floats, flags_at, group
from profnb.core.table import Table, columns_in
from profnb.core.units import signed_text
from profnb.subjects.layers.layer_rows import LAYER_PARTS, OPTIMIZER, OTHERS
from profnb.subjects.layers.layer_table import SCOPE, LayerTable
from profnb.subjects.study import Study
from profnb.trace.names import DATASET, without_call

_LAST_NUMBERS = re.compile(r"(?:_\d{1,9})+\Z")
_DEEPEST_SCOPE, _LONGEST_NUMBERS = 40, 40
_MOST_BLOCKS_COMPARED, _LEAST_STEPS = 6, 3
_FORWARD_PART, _UPDATE_PART = LAYER_PARTS.index("forward"), LAYER_PARTS.index("update")


@dataclass(frozen=True, slots=True)
class OpDifference:
    """An op in A and in B; times are self times of a mean step.

    Attributes:
        side: "host", "device", "input" for waiting, charged to an iterator of tf.data, or "layer".
        op_name: The op, as B names it if B has it; or the iterator, or the layer.
        op_type: Its type.
        first_ps: Per step of A; NaN where A has no such op.
        second_ps: Per step of B; NaN where B has no such op.
        status: "changed", "new", "gone", "other type", or "other kernel" where a device ran other
            kernels for it.
    """

    side: str
    op_name: str
    op_type: str
    first_ps: float
    second_ps: float
    status: str

    @property
    def difference_ps(self) -> float:
        """The time that B spends on it beyond A per step."""
        return float(np.nan_to_num(self.second_ps) - np.nan_to_num(self.first_ps))


@dataclass(slots=True, eq=False)
class _Op:
    op_name: str
    op_type: str
    self_ps: float = 0.0
    largest_ps: float = -1.0
    kernels: frozenset[str] = frozenset()


def compare_ops(first: Study, second: Study) -> list[OpDifference]:
    """List the ops of both, or the layers where two frameworks ran; the largest difference first."""
    is_one = first.program.framework == second.program.framework
    tables = [(_ops_per_step if is_one else _layers_per_step)(study) for study in (first, second)]
    if not all(tables) and not is_one:
        return []
    absent, rows = _Op("", "", math.nan), []
    for side, path in tables[0].keys() | tables[1].keys():
        one, two = (table.get((side, path), absent) for table in tables)
        if absent in (one, two):
            status = NEW if one is absent else GONE
        elif side == "device" and one.kernels != two.kernels:
            status = "other kernel"
        else:
            is_open = side == "layer" and not (one.op_type and two.op_type)
            status = "changed" if is_open or one.op_type == two.op_type else "other type"
        op = one if two is absent else two
        rows.append(OpDifference(side, op.op_name, op.op_type, one.self_ps, two.self_ps, status))
    return sorted(rows, key=lambda row: (-abs(row.difference_ps), row.op_name))


def _layers_per_step(study: Study) -> dict[tuple[str, str], _Op]:
    """The layers of a mean step, and what is none, by path; nothing where no op lies in a layer."""
    table = study.layers.table
    spent = (table.total_ps / max(table.iterations, 1)).tolist()
    columns = zip(_paths_of(table), table.layer, table.layer_type, spent, strict=True)
    rows = [row for row in columns if row[-1]]
    return {
        ("layer", path): _Op(name, "" if kind == SCOPE else kind, self_ps)
        for path, name, kind, self_ps in (rows if any(kind for _, _, kind, _ in rows) else ())
    }


def _paths_of(table: LayerTable) -> list[str]:
    return rank_scopes([f"{name}/" for name in table.layer])


def _ops_per_step(study: Study) -> dict[tuple[str, str], _Op]:
    """The ops of a mean step by side and path."""
    counted = study.summary.counted
    ops = study.ops.of_steps(counted)
    kernels: dict[str, list[str]] = {}
    if study.program.has_device:
        launched = study.device.kernels
        kernels = group(zip(launched.op_name, launched.kernel_name, strict=True))
    steps = max(counted.size, 1) * max(study.summary.iterations, 1)
    ops_by_path = _waiting_per_step(study)
    for row, path in enumerate(rank_scopes(ops.op_name)):
        if ops.op_type[row] == DATASET and len(study.input.iterators):
            continue  # its time is a wait, or hidden; what the training waited for stands under input
        side = "device" if ops.is_device[row] else "host"
        name, spent = ops.op_name[row], float(ops.self_ps[row]) / steps
        op = _Op(name, ops.op_type[row], kernels=frozenset(kernels.get(name, ())))
        op = ops_by_path.setdefault((side, path), op)
        op.self_ps += spent
        if spent > op.largest_ps:
            op.largest_ps, op.op_type = spent, ops.op_type[row]
    return ops_by_path


def _waiting_per_step(study: Study) -> dict[tuple[str, str], _Op]:
    """The training's waiting in a mean step, by the iterator of tf.data that it is charged to."""
    if not len(study.input.iterators) or study.steps.is_window:
        return {}
    waiting, table = study.input.waiting, study.input.pipeline
    steps = max(int(waiting.counted.sum()), 1) * max(study.summary.iterations, 1)
    charged = waiting.charged_ps.sum(axis=1) / steps
    return {
        ("input", path): _Op(path, kind, float(spent))
        for path, kind, spent in zip(study.input.iterators.path, table.kind, charged, strict=True)
        if spent
    }


def rank_scopes(names: Sequence[str]) -> list[str]:
    """Replace the number of each scope in op names by its rank among its like.

    Args:
        names: ``sequential_3/dense_7/MatMul`` and ``sequential_3/dense_9/MatMul``.

    Returns:
        One path per name: ``sequential#0/dense#0/MatMul``, ``sequential#0/dense#1/MatMul``. The op's own
        name, behind the last slash, stays as it is.
    """
    parts = [without_call(name).split("/", _DEEPEST_SCOPE) for name in names]
    paths: list[list[str]] = [[] for _ in parts]
    for depth in range(max((len(part) for part in parts), default=0) - 1):
        scopes: list[tuple[int, tuple[str, str], tuple[int, ...]]] = []
        for row, part in enumerate(parts):
            if depth < len(part) - 1:
                match = _LAST_NUMBERS.search(part[depth][-_LONGEST_NUMBERS:])
                digits = match[0] if match else ""  # "_10_1" of dense_10_1
                siblings = "/".join(paths[row]), part[depth].removesuffix(digits)
                scopes.append((row, siblings, tuple(map(int, digits.split("_")[1:]))))
        numbers = group((siblings, suffix) for _, siblings, suffix in scopes)
        ranks = {
            siblings: {suffix: at for at, suffix in enumerate(sorted(set(suffixes)))}
            for siblings, suffixes in numbers.items()
        }
        for row, siblings, suffix in scopes:
            paths[row].append(f"{siblings[1]}#{ranks[siblings][suffix]}")
    return ["/".join([*path, part[-1]]) for path, part in zip(paths, parts, strict=True)]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """A layer on one side, or what else a step consists of; op times of a mean step.

    Attributes:
        layer: Its path.
        layer_type: Its class; "" where that is not known.
        is_layer: Whether it is a layer; else loss, metrics, optimizer, input, outside the model.
        parameters: Its own; NaN where not known.
        forward_ps: Its forward ops; NaN where the side has no such layer.
        backward_ps: All its other ops, gradients above all; without updates of weights.
        blocks_ps: Both together in a mean step of each block of steps, shape (B,).
    """

    layer: str
    layer_type: str
    is_layer: bool
    parameters: float
    forward_ps: float
    backward_ps: float
    blocks_ps: Floats

    @property
    def total_ps(self) -> float:
        """All of its ops but updates of weights; NaN where the side has no such layer."""
        return self.forward_ps + self.backward_ps


_ABSENT = LayerTimes("", "", False, math.nan, math.nan, math.nan, np.empty(0))  # noqa: FBT003 - no layer


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """A layer in A and in B, or what else a step consists of.

    Attributes:
        layer: Its path, as A has it if A has it.
        layer_type: Its class; "" where neither tells it.
        is_layer: Whether it is a layer, and not loss, metrics, optimizer, input, outside the model.
        first: It in A; its times are NaN where A has none.
        second: It in B, likewise.
        ratio: Time in B over that in A; NaN where one of them has none.
        low: Where its 95 % interval begins; NaN where there are too few steps.
        high: Where it ends.
        status: "both", "only in A" or "only in B".
    """

    layer: str
    layer_type: str
    is_layer: bool
    first: LayerTimes
    second: LayerTimes
    ratio: float
    low: float
    high: float
    status: str

    @property
    def first_ps(self) -> float:
        """Time in A; NaN where A has no such layer."""
        return self.first.total_ps

    @property
    def second_ps(self) -> float:
        """Time in B; NaN where B has no such layer."""
        return self.second.total_ps

    @property
    def difference_ps(self) -> float:
        """The time that B spends on it beyond A; NaN where one of them has no such layer."""
        return self.second.total_ps - self.first.total_ps


def compare_layers(first: Study, second: Study) -> list[LayerDifference]:
    """List the layers of both in the order of A's model, B's others, and what is no layer.

    Nothing where one of them has no layer in which an op ran.
    """
    sides = [_layer_times(study) for study in (first, second)]
    if not all(any(row.is_layer for row in rows.values()) for rows in sides):
        return []
    # The scopes at the top that layers lie in: one model each may be called differently.
    paths = [[key for key, row in rows.items() if row.is_layer] for rows in sides]
    tops = [{key.split("/")[0] if "/" in key.strip("/") else "" for key in keys} for keys in paths]
    if all(len(names) == 1 for names in tops):
        sides = [
            {key.partition("/")[2] if row.is_layer else key: row for key, row in rows.items()}
            for rows in sides
        ]
    keys = dict.fromkeys([*sides[0], *sides[1]])
    rows = [_difference(sides[0].get(key), sides[1].get(key)) for key in keys]
    return sorted(rows, key=lambda row: not row.is_layer)


def layer_guards(rows: Sequence[LayerDifference]) -> list[str]:
    """Say that the two models are not alike: their parameters, where both are known."""
    layers = [(row.first.parameters, row.second.parameters) for row in rows if row.is_layer]
    one, two = (float(np.nansum(counts)) for counts in np.reshape(layers, (-1, 2)).T)
    if not one or not two or one == two:
        return []
    return [f"The models differ: {one:,.0f} and {two:,.0f} parameters."]


def op_time(study: Study) -> float:
    """Add up op time of a mean step, in picoseconds, on the device where there is one."""
    table = study.layers.table
    return float(table.total_ps.sum()) / max(table.iterations, 1)


def _layer_times(study: Study) -> dict[str, LayerTimes]:
    """Take apart a mean step, by path; what took no time is left out."""
    table, blocks = study.layers.table, _blocks_of(study)
    whole = _times_per_step(table)
    forward = table.layer_part_ps[:, _FORWARD_PART] / max(table.iterations, 1)
    is_optimizer = np.array([name == OPTIMIZER for name in table.layer], np.bool_)
    rows: dict[str, LayerTimes] = {}
    for at, path in enumerate(_paths_of(table)):
        if is_optimizer[at] or not whole[at, 0]:
            continue
        name, kind, forward_ps = table.layer[at], table.layer_type[at], float(forward[at])
        rows[path] = LayerTimes(
            name, "" if kind == SCOPE else kind, name not in OTHERS or kind != "",
            float(table.parameters[at]), forward_ps, float(whole[at, 0]) - forward_ps, blocks[:, at, 0],
        )  # fmt: skip
    spent, of_blocks = (
        times[..., 1].sum(axis=-1) + times[..., is_optimizer, 0].sum(axis=-1)
        for times in (whole, blocks)
    )
    if spent:
        rows[OPTIMIZER] = LayerTimes(OPTIMIZER, "", False, math.nan, 0.0, float(spent), of_blocks)  # noqa: FBT003
    return rows


def _times_per_step(table: LayerTable) -> Floats:
    """Time of each row in a mean step without updates of weights, and that of those, shape (R, 2)."""
    updates = table.layer_part_ps[:, _UPDATE_PART]
    return np.stack([table.total_ps - updates, updates], axis=-1) / max(table.iterations, 1)


def _blocks_of(study: Study) -> Floats:
    """The same of each block of steps, shape (B, R, 2)."""
    counted, table = study.summary.counted, study.layers.table
    count = min(_MOST_BLOCKS_COMPARED, counted.size // _LEAST_STEPS)
    blocks = np.array_split(counted, count) if count else []
    tables = [study.layers.table_of(block, study.events_of(block)) for block in blocks]
    if not tables or any(one.layer != table.layer for one in tables):
        return np.zeros((0, len(table), 2))
    return np.stack([_times_per_step(one) for one in tables])


def _difference(one: LayerTimes | None, two: LayerTimes | None) -> LayerDifference:
    ratio = low = high = math.nan
    if one is not None and two is not None:
        ratio = two.total_ps / one.total_ps
        sides = [row.blocks_ps for row in (two, one)]
        if all(len(blocks) > 1 and (blocks > 0).all() for blocks in sides):
            estimates = [estimate_mean(np.log(blocks).tolist()) for blocks in sides]
            low, high = (float(np.exp(bound)) for bound in estimates[0].less(estimates[1]))
    status = "both" if one and two else "only in A" if one else "only in B"
    first, second = one or _ABSENT, two or _ABSENT
    shown, kind = one or second, first.layer_type or second.layer_type
    about = shown.layer, kind, shown.is_layer
    return LayerDifference(*about, first, second, ratio, low, high, status)


@dataclass(frozen=True, slots=True)
class EventDifference:
    """An event in a mean step of A and of B.

    Attributes:
        side: "host" or "device".
        event: Its name, as B has it if B has it.
        first_count: How often it comes in a step of A.
        second_count: ... of B.
        first_ps: Its self time in a step of A; NaN where there is no such event.
        second_ps: ... of B.
        first_begin_ps: How long after the step's begin it begins in A, likewise.
        second_begin_ps: ... in B.
    """

    side: str
    event: str
    first_count: float
    second_count: float
    first_ps: float
    second_ps: float
    first_begin_ps: float
    second_begin_ps: float

    @property
    def difference_ps(self) -> float:
        """The time that B spends on it in a step beyond A."""
        return float(np.nan_to_num(self.second_ps) - np.nan_to_num(self.first_ps))

    @property
    def status(self) -> str:
        """New, gone, longer or shorter."""
        if not self.first_count or not self.second_count:
            return GONE if self.first_count else NEW
        return LONGER if self.difference_ps > 0 else SHORTER


_Key = tuple[str, str]
_Row = tuple[str, float, float, float]


def compare_timelines(first: Study, second: Study) -> list[EventDifference]:
    """List the events whose self time differs, the largest difference first."""
    sides = _events_per_step(first), _events_per_step(second)
    absent: _Row = ("", 0.0, math.nan, math.nan)
    rows = []
    for key in sides[0].keys() | sides[1].keys():
        one, two = (side.get(key, absent) for side in sides)
        pairs = (value for pair in zip(one[1:], two[1:], strict=True) for value in pair)
        rows.append(EventDifference(key[0], two[0] or one[0], *pairs))
    differing = [row for row in rows if row.difference_ps or row.status in (NEW, GONE)]
    return sorted(differing, key=lambda row: (-abs(row.difference_ps), row.side, row.event))


def _events_per_step(study: Study) -> dict[_Key, _Row]:
    """Name, count, self time and begin of each event in a mean step, by its side and path."""
    trace, steps, step = study.trace, study.steps, study.groups.step
    counted = study.summary.counted
    is_counted = flags_at(counted, len(steps) + 1)  # the last one: outside every step
    chosen = np.flatnonzero(is_counted[step])
    if not chosen.size:
        return {}
    is_device = trace.lines.spread(trace.is_device_line)[chosen]
    keys, of_event = np.unique(trace.events.name[chosen] * 2 + is_device, return_inverse=True)
    names = [trace.names.texts[key // 2] for key in keys.tolist()]
    begin_ps = trace.events.begin_ps[chosen] - steps.begin_ps[step[chosen]]
    columns = np.ones(chosen.size), study.self_ps[chosen], begin_ps
    sums = np.stack([np.bincount(of_event, one.astype(np.float64)) for one in columns], axis=-1)
    rows: dict[_Key, np.ndarray] = {}
    titles: dict[_Key, str] = {}
    for at, path in enumerate(rank_scopes(names)):
        key = "device" if keys[at] % 2 else "host", path
        titles.setdefault(key, names[at])
        rows[key] = rows.get(key, 0) + sums[at]
    iterations = max(counted.size, 1) * max(study.summary.iterations, 1)
    return {
        key: (titles[key], times / iterations, spent / iterations, begun / times)
        for key, (times, spent, begun) in ((key, row.tolist()) for key, row in rows.items())
    }


OP_DIFFERENCES = Table[Sequence[OpDifference]](
    "table",
    "One row per op of either side, the largest difference first.",
    columns_in("""
        side: "host", "device", "input" for waiting, or "layer" where two frameworks ran
        op_name: the op, as B names it if B has it; or the iterator, or the layer
        op_type: its type
        first_us: self time in a mean step of A
        second_us: ... of B
        difference_us: how much more B spends on it
        status: "changed", "new", "gone", "other type", or "other kernel"
        """),
    "Times are of each side's first run; a time is NaN where the op is missing. Rows of the side "
    '"input" are the training\'s waiting, charged to the iterators of tf.data.',
    "c",
    texts={"difference_us": signed_text},
)
LAYER_DIFFERENCES = Table[Sequence[LayerDifference]](
    "layers",
    "One row per layer of either side in the order of A's model; the rest follows.",
    columns_in("""
        layer: its path, as A has it if A has it
        layer_type: its class, "" where not known
        first_forward_us = first.forward_ps: its forward ops in a mean step of A
        first_backward_us = first.backward_ps: its other ops, gradients above all, without updates of
            weights
        second_forward_us = second.forward_ps: its forward ops in B
        second_backward_us = second.backward_ps: its other ops in B
        difference_us: how much more B spends on it
        ratio: time in B over that in A
        low: where its 95 % interval begins, by blocks of steps of one run each
        high: where it ends
        first_parameters = first.parameters: its own parameters in A
        second_parameters = second.parameters: ... in B
        status: "both", "only in A" or "only in B"
        """),
    "Times are op times of the traced run of each side, all threads and streams added up. A side without "
    "the layer has NaN. Updates of all weights count for the optimizer.",
    "c",
)
EVENT_DIFFERENCES = Table[Sequence[EventDifference]](
    "timeline_diff",
    "One row per new, gone, longer or shorter event of the timelines, the largest difference first.",
    columns_in("""
        side: host or device
        event: its name
        status: new, gone, longer or shorter
        first_count: how often it comes in a step of A
        second_count: ... of B
        first_ms: its self time in a mean step of A; missing where there is none
        second_ms: ... of B
        difference_ms: how much more B spends on it
        first_begin_ms: how long after the step's begin it begins in A
        second_begin_ms: ... in B
        """),
    "Steady steps of the first run of each side, per iteration.",
    "c",
    texts={"difference_ms": signed_text},
)
