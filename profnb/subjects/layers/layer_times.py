"""Ops to layers: how long each takes forward, backward and to update, and what it computes.

The op time of the counted steps (``ops``: self time, each picosecond of a thread or stream once) is handed
out to rows, each picosecond to one row and one phase, so that the rows sum to it exactly. Rows are the
layers of the models that ran, where those are known, with the names of scopes for what is not; and the loss,
metrics, the optimizer, the input, and what is outside the model.

What an XLA instruction took that does the work of several rows (a fusion across layers) is shared out by the
operations that each does inside it, and marked as an estimate. A library call that fuses several ops of one
layer (oneDNN's) keeps the name of one of them, so it lies in that layer anyway.

Times of a row are those of the device where the trace has one, else of the host; both sides are told besides.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.models.layer_facts import ModelFacts
from profnb.core.columns import Bools, Floats, Int64s
from profnb.subjects.layers.layer_rows import OUTSIDE, PHASES, OpPlace, Rows
from profnb.subjects.ops.op_table import OpRuns
from profnb.subjects.xla.hlo_costs import Costs
from profnb.subjects.xla.hlo_ops import HloOp, HloOps
from profnb.subjects.xla.xla_tree import parts_of_fusion

__all__ = ["LayerTimes", "hand_out_ops"]

_FORWARD = PHASES.index("forward")


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """R rows of op time.

    Attributes:
        rows: What the rows are.
        time_ps: Self time by side (host, device), row and phase, shape (2, R, len(PHASES)).
        occurrences: Runs of ops by side, shape (2, R).
        hlo_flops: Operations of XLA's instructions over all counted steps by row, forward and backward;
            NaN where XLA ran nothing for it, shape (R, 2).
        is_estimate: Whether some of a row's time was shared out, shape (R,).
        row_of_op: The row of each op name; of one that several rows share, the one with the largest part.
        steps: How many iterations the counted steps are.
        iterations: How many of those each model ran in.
    """

    rows: Rows
    time_ps: Int64s
    occurrences: Int64s
    hlo_flops: Floats
    is_estimate: Bools
    row_of_op: Mapping[str, int]
    steps: int
    iterations: Sequence[int]

    def __len__(self) -> int:
        return self.is_estimate.size


@dataclass(slots=True)
class _Sums:
    """What is summed up while ops are handed out, by (side, row, phase)."""

    time: dict[tuple[int, int, int], int]
    runs: dict[tuple[int, int], int]
    flops: dict[tuple[int, int], float]
    estimates: set[int]
    often: dict[int, list[int]]  # by row, how often each forward op of it ran

    def add(self, side: int, place: OpPlace, spent: int) -> None:
        key = (side, place.row, place.phase)
        self.time[key] = self.time.get(key, 0) + spent

    def count(self, side: int, row: int, often: int) -> None:
        self.runs[side, row] = self.runs.get((side, row), 0) + often

    def compute(self, place: OpPlace, flops: float) -> None:
        key = (place.row, int(PHASES[place.phase] == "backward"))
        self.flops[key] = self.flops.get(key, 0.0) + flops


def hand_out_ops(
    runs: OpRuns, within: Bools, is_input: Bools, hlo: HloOps, models: Sequence[ModelFacts], steps: int,
    phase: str = "",
) -> LayerTimes:  # fmt: skip
    """Hand the self time of ops out to rows.

    Args:
        runs: Every run of an op.
        within: Which events count, shape (E,).
        is_input: Which runs are the input pipeline's, shape (N,).
        hlo: XLA's instructions and programs.
        models: The models that may have run.
        steps: How many iterations the counted events are of.
        phase: What those do: "train", "test", "predict".
    """
    kept = within[runs.events]
    events, own = runs.events[kept], runs.self_ps[kept]
    instruction = hlo.codes_of(events) if len(hlo) else np.full(events.size, -1)
    key = (runs.code[kept] * 2 + is_input[kept]) * (len(hlo.ops) + 1) + instruction + 1
    keys, row = np.unique(key, return_inverse=True)
    often = np.bincount(row, minlength=keys.size)
    spent = np.zeros(keys.size, np.int64)
    np.add.at(spent, row, own)
    code, instruction = np.divmod(keys, len(hlo.ops) + 1)
    fusions = _read_fusions(hlo, np.unique(instruction[instruction > 0] - 1))
    names = {runs.keys[at][0] for at in np.unique(code // 2).tolist()}
    names.update(name for fusion in fusions.values() for name in fusion.amounts)
    rows, sums = Rows(models, sorted(names), phase), _Sums({}, {}, {}, set(), {})
    row_of_op: dict[str, int] = {}
    parts_of: dict[int, _Parts] = {}
    for at in range(keys.size):
        op_code, from_input = divmod(int(code[at]), 2)
        name, op_type = runs.keys[op_code]
        side, ran = int(runs.is_device[op_code]), int(instruction[at]) - 1
        if ran >= 0 and ran not in parts_of:
            parts_of[ran] = _parts_of(hlo.ops[ran], fusions.get(ran), rows)
        if ran >= 0 and len(parts_of[ran].shares) > 0:
            _share_out(sums, side, parts_of[ran], int(spent[at]), int(often[at]))
            row_of_op.setdefault(name, parts_of[ran].shares[0][0].row)
            continue
        place = rows.place(name, op_type, is_input=bool(from_input))
        row_of_op[name] = place.row
        sums.add(side, place, int(spent[at]))
        sums.count(side, place.row, int(often[at]))
        if place.phase == _FORWARD:
            sums.often.setdefault(place.row, []).append(int(often[at]))
    return _as_columns(rows, sums, row_of_op, steps)


def _as_columns(rows: Rows, sums: _Sums, row_of_op: Mapping[str, int], steps: int) -> LayerTimes:
    count = len(rows)
    time = np.zeros((2, count, len(PHASES)), np.int64)
    for key, spent in sums.time.items():
        time[key] = spent
    occurrences = np.zeros((2, count), np.int64)
    for (side, row), often in sums.runs.items():
        occurrences[side, row] = often
    flops = np.full((count, 2), np.nan)
    for (row, way), done in sums.flops.items():
        flops[row, way] = done
    estimate = np.zeros(count, np.bool_)
    estimate[list(sums.estimates)] = True
    iterations = _iterations_of_models(rows, sums, steps)
    return LayerTimes(rows, time, occurrences, flops, estimate, row_of_op, steps, iterations)


def _iterations_of_models(rows: Rows, sums: _Sums, steps: int) -> list[int]:
    """How many iterations each model ran in: as often as most of its forward ops did.

    Where only one ran, all of them: a step that skips parts of its model is a step of it.
    """
    found: list[int] = []
    first = 0
    for model in rows.models:
        own = range(first, first + len(model.layers))
        often = Counter(count for row in own for count in sums.often.get(row, ()) if count <= steps)
        found.append(max(often, key=lambda count: (often[count], count), default=0))
        first += len(model.layers)
    return found if sum(count > 0 for count in found) > 1 else [steps] * len(found)


@dataclass(frozen=True, slots=True)
class _Parts:
    """An instruction's parts: the places it works for with their shares, and operations of one run."""

    shares: Sequence[tuple[OpPlace, float]]
    flops: Sequence[tuple[OpPlace, float]]


@dataclass(frozen=True, slots=True)
class _Fusion:
    """What the framework's ops do inside an instruction whose program is known.

    Attributes:
        amounts: Operations by op name, or elements made where none does any.
        has_flops: Whether the amounts are operations.
        flops: Operations of the whole instruction.
    """

    amounts: Mapping[str, float]
    has_flops: bool
    flops: float


def _read_fusions(hlo: HloOps, ran: Int64s) -> dict[int, _Fusion]:
    """The instructions that ran and whose program is known."""
    costs = {number: Costs(module) for number, module in hlo.modules.items()}
    found = {}
    for row in ran.tolist():
        op = hlo.ops[row]
        module = hlo.modules.get(op.program_id)
        if module is not None and op.row >= 0:
            cost = costs[op.program_id]
            done, made = parts_of_fusion(op, module, cost)
            has_flops = sum(done.values()) > 0
            found[row] = _Fusion(done if has_flops else made, has_flops, cost.flops(op.row))
    return found


def _parts_of(op: HloOp, fusion: _Fusion | None, rows: Rows) -> _Parts:
    """Whom an instruction works for, largest share first."""
    if not op.op_name:  # a copy or the like that no op of the framework asked for
        return _Parts([(OpPlace(rows.other(OUTSIDE), PHASES.index("other")), 1.0)], [])
    whole = rows.place(op.op_name, op.key[1])
    if fusion is None:
        return _Parts([(whole, 1.0)], [])
    by_place: dict[OpPlace, float] = {}
    for name, amount in fusion.amounts.items():
        place = rows.place(name, _type_of(name))
        by_place[place] = by_place.get(place, 0.0) + amount
    total = sum(by_place.values())
    if not total > 0 or not np.isfinite(total):
        return _Parts([(whole, 1.0)], [(whole, fusion.flops)])
    shares = [(place, amount / total) for place, amount in by_place.items() if amount > 0]
    shares.sort(key=lambda share: -share[1])
    return _Parts(shares, list(by_place.items()) if fusion.has_flops else [])


def _type_of(name: str) -> str:
    """An op's type as far as its name tells."""
    return name.rpartition("/")[2].rstrip("0123456789").rstrip("_")


def _share_out(sums: _Sums, side: int, parts: _Parts, spent: int, often: int) -> None:
    """Hand an instruction's time out by shares, to the picosecond; the largest takes what rounding leaves."""
    given = [int(spent * share) for _, share in parts.shares]
    given[0] += spent - sum(given)
    for (place, _), picoseconds in zip(parts.shares, given, strict=True):
        sums.add(side, place, picoseconds)
    places = {place.row for place, _ in parts.shares}
    sums.count(side, parts.shares[0][0].row, often)
    if len(parts.shares) > 1:
        sums.estimates.update(places)
    for place, done in parts.flops:
        sums.compute(place, done * often)
