"""Two studies to the ops that account for their difference, matched although their names were numbered anew.

Keras numbers what is made without a name through the whole process (``sequential_3_1/dense_10_1``), so the
same model made again has other op names. An op is matched by its path with each scope's number replaced by
its rank among the scopes of that base name beside it: the second dense layer of A meets the second of B.

Two frameworks have no ops in common. There the rows are the layers, and what is none (loss, optimizer); there
are none where one side has no layers (see ``across.layer_differences`` for what the comparison shows).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.core.table import Column, Table, of_each
from profnb.core.units import signed_text
from profnb.subjects.layers.layer_table import SCOPE
from profnb.subjects.study import Study
from profnb.trace.names import without_call

_NUMBERS = re.compile(r"(?:_\d{1,9})+\Z")
_DATASET = "Dataset"
_DEEPEST, _LONGEST_NUMBERS = 40, 40


@dataclass(frozen=True, slots=True)
class OpDifference:
    """An op in A and in B; times are self times of a mean step.

    Attributes:
        side: "host", "device", "input" for waiting, charged to an iterator of tf.data, or "layer".
        op_name: The op, as B names it if B has it; or the iterator, or the layer.
        op_type: Its type.
        first_ps: Per step of A; NaN where A has no such op.
        second_ps: Per step of B; NaN where B has no such op.
        status: "changed", "appeared", "vanished", "other type", or "other kernel" where a device ran other
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
        """How much more B spends on it per step."""
        return float(np.nan_to_num(self.second_ps) - np.nan_to_num(self.first_ps))


@dataclass(slots=True)
class _Op:
    op_name: str
    op_type: str
    self_ps: float
    largest_ps: float
    kernels: frozenset[str]


def compare_ops(first: Study, second: Study) -> list[OpDifference]:
    """The ops of both, or the layers where two frameworks ran; the largest difference first."""
    is_one = first.framework == second.framework
    tables = [(_ops_per_step if is_one else _layers_per_step)(study) for study in (first, second)]
    if not all(tables) and not is_one:
        return []
    nan, rows = float("nan"), []
    for key in tables[0].keys() | tables[1].keys():
        one, two = tables[0].get(key), tables[1].get(key)
        shown = two or one
        assert shown is not None
        rows.append(OpDifference(
            key[0], shown.op_name, shown.op_type, nan if one is None else one.self_ps,
            nan if two is None else two.self_ps, _status(key[0], one, two),
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (-abs(row.difference_ps), row.op_name))


def _status(side: str, one: _Op | None, two: _Op | None) -> str:
    if one is None:
        return "appeared"
    if two is None:
        return "vanished"
    if side == "device" and one.kernels != two.kernels:
        return "other kernel"
    is_same = one.op_type == two.op_type or (side == "layer" and not (one.op_type and two.op_type))
    return "changed" if is_same else "other type"


def _layers_per_step(study: Study) -> dict[tuple[str, str], _Op]:
    """The layers of a mean step, and what is none, by path; nothing where no op lies in a layer."""
    table = study.layers.table
    if not any(
        kind and spent for kind, spent in zip(table.layer_type, table.total_ps, strict=True)
    ):
        return {}
    spent_on: dict[tuple[str, str], _Op] = {}
    paths = rank_scopes([f"{name}/" for name in table.layer])
    for row, path in enumerate(paths):
        if not table.total_ps[row]:
            continue
        kind = "" if table.layer_type[row] == SCOPE else table.layer_type[row]
        spent = float(table.total_ps[row]) / max(table.iterations, 1)
        spent_on["layer", path] = _Op(table.layer[row], kind, spent, spent, frozenset())
    return spent_on


def _ops_per_step(study: Study) -> dict[tuple[str, str], _Op]:
    """The ops of a mean step by side and path."""
    counted = study.summary.counted
    ops = study.ops.of_steps(counted)
    kernels = _kernels_of(study)
    steps = max(counted.size, 1) * max(study.summary.iterations, 1)
    ops_by_path = _waiting_per_step(study)
    for row, path in enumerate(rank_scopes(ops.op_name)):
        if ops.op_type[row] == _DATASET and len(study.input.iterators):
            continue  # its time is a wait, or hidden; what the training waited for stands under input
        side = "device" if ops.is_device[row] else "host"
        name, spent = ops.op_name[row], float(ops.self_ps[row]) / steps
        op = ops_by_path.setdefault(
            (side, path),
            _Op(name, ops.op_type[row], 0.0, -1.0, kernels.get(name, frozenset())),
        )
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
        ("input", path): _Op(path, kind, float(spent), float(spent), frozenset())
        for path, kind, spent in zip(study.input.iterators.path, table.kind, charged, strict=True)
        if spent
    }


def _kernels_of(study: Study) -> dict[str, frozenset[str]]:
    kernels_by_op: dict[str, set[str]] = {}
    if study.has_device:
        for kernel, op in zip(
            study.device.kernels.kernel_name, study.device.kernels.op_name, strict=True
        ):
            kernels_by_op.setdefault(op, set()).add(kernel)
    return {op: frozenset(names) for op, names in kernels_by_op.items()}


def rank_scopes(names: Sequence[str]) -> list[str]:
    """Op names with the number of each scope replaced by its rank among its like.

    Args:
        names: ``sequential_3/dense_7/MatMul`` and ``sequential_3/dense_9/MatMul``.

    Returns:
        One path per name: ``sequential#0/dense#0/MatMul``, ``sequential#0/dense#1/MatMul``. The op's own
        name, behind the last slash, stays as it is.
    """
    parts = [without_call(name).split("/", _DEEPEST) for name in names]
    paths: list[list[str]] = [[] for _ in parts]
    for depth in range(max((len(part) for part in parts), default=0) - 1):
        numbers: dict[tuple[str, str], set[tuple[int, ...]]] = {}
        scopes: list[tuple[int, tuple[str, str], tuple[int, ...]]] = []
        for row, part in enumerate(parts):
            if depth < len(part) - 1:
                base, suffix = _split(part[depth])
                siblings = "/".join(paths[row]), base
                numbers.setdefault(siblings, set()).add(suffix)
                scopes.append((row, siblings, suffix))
        ranks = {
            siblings: {suffix: at for at, suffix in enumerate(sorted(suffixes))}
            for siblings, suffixes in numbers.items()
        }
        for row, siblings, suffix in scopes:
            paths[row].append(f"{siblings[1]}#{ranks[siblings][suffix]}")
    return ["/".join([*path, part[-1]]) for path, part in zip(paths, parts, strict=True)]


def _split(scope: str) -> tuple[str, tuple[int, ...]]:
    """A scope's base name and its numbers: ``("dense", (10, 1))`` of ``dense_10_1``."""
    match = _NUMBERS.search(scope[-_LONGEST_NUMBERS:])
    if match is None:
        return scope, ()
    numbers = match[0]
    return scope[: -len(numbers)], tuple(int(digits) for digits in numbers.split("_")[1:])


OP_DIFFERENCES = Table[Sequence[OpDifference]](
    "table",
    "One row per op of either side, the largest difference first.",
    (
        Column(
            "side",
            of_each("side"),
            '"host", "device", "input" for waiting, or "layer" where two frameworks ran',
        ),
        Column(
            "op_name",
            of_each("op_name"),
            "the op, as B names it if B has it; or the iterator, or the layer",
        ),
        Column("op_type", of_each("op_type"), "its type"),
        Column("first_us", of_each("first_ps"), "self time in a mean step of A"),
        Column("second_us", of_each("second_ps"), "... of B"),
        Column(
            "difference_us",
            of_each("difference_ps"),
            "how much more B spends on it",
            text=signed_text,
        ),
        Column(
            "status",
            of_each("status"),
            '"changed", "appeared", "vanished", "other type", or "other kernel"',
        ),
    ),
    "The first run of each side speaks for it; a time is NaN where the op is missing. Rows of the side "
    '"input" are the training\'s waiting, charged to the iterators of tf.data.',
    "c",
)
