"""Ops to layers: how long each takes forward, backward and to update, and what it computes.

The op time of the counted steps (``ops``: self time, each picosecond of a thread or stream once) is handed
out to rows, each picosecond to one row and one layer part, so that the rows sum to it exactly. Rows are the
layers of the models that ran, where those are known, with the names of scopes for what is not; and the loss,
metrics, the optimizer, the input, and what is outside the model.

    net/dense/MatMul     10 us                 10 us to net/dense, forward
    gradient_tape/net/dense/MatMul/MatMul_1    20 us to net/dense, backward
    fusion.3             12 us                 its module says what is inside it, by operations:
      net/dense/MatMul              3000       9 us to net/dense, forward, an estimate
      net/relu/Relu                 1000       3 us to net/relu, forward, an estimate

What an XLA instruction took that does the work of several rows (a fusion across layers, as above) is shared
out by the operations that each does inside it, and marked as an estimate. A library call that fuses several
ops of one layer (oneDNN's) keeps the name of one of them, so it lies in that layer anyway.

Times of a row are those of the device where the trace has one, else of the host; both are kept.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from profnb.core.columns import Bools, Floats, Int64s, flags_at, look_up, sum_by
from profnb.steps.spine import Spine
from profnb.subjects.layers.called_scopes import CalledScopes
from profnb.subjects.layers.layer_rows import LAYER_PARTS, OUTSIDE, LayerRows, OpPlace
from profnb.subjects.ops.op_table import OpRuns
from profnb.subjects.xla.hlo_ops import HloOp, HloOps
from profnb.subjects.xla.hlo_program import Costs
from profnb.subjects.xla.xla_ops import parts_of_fusion

_FORWARD, _BACKWARD, _OTHER = map(LAYER_PARTS.index, ("forward", "backward", "other"))


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """R rows of op time."""

    rows: LayerRows  # what the rows are
    # self time by side (host, device), row and layer part, shape (2, R, len(LAYER_PARTS))
    time_ps: Int64s
    occurrences: Int64s  # runs of ops by side, shape (2, R)
    # operations of XLA's instructions, or of PyTorch's products, over all counted steps by row, forward and
    # backward; NaN where neither is known, shape (R, 2)
    hlo_flops: Floats
    is_estimate: Bools  # whether some of a row's time was shared out, shape (R,)
    # the row of each op name; of one that several rows share, the one with the largest part
    row_of_op: Mapping[str, int]
    iterations: int  # how many iterations of training the counted steps are
    model_iterations: Sequence[int]  # how many of those each model ran in

    def __len__(self) -> int:
        return self.is_estimate.size


class _Sums:
    """Sums over ops by side, row and layer part, while rows are still added."""

    def __init__(self) -> None:
        self.time_ps: Counter[tuple[int, int, int]] = Counter()  # by side, row and layer part
        self.occurrences: Counter[tuple[int, int]] = Counter()  # by side and row
        # By row; 1 is backward.
        self.flops: defaultdict[tuple[int, int], float] = defaultdict(float)
        self.estimates: set[int] = set()  # rows of which some time was shared out
        self.forward: defaultdict[int, list[int]] = defaultdict(list)  # occurrences of each op

    def compute(self, place: OpPlace, flops: float) -> None:
        self.flops[place.row, int(place.layer_part == _BACKWARD)] += flops

    def share_out(self, side: int, parts: "_Parts", spent_ps: int, occurrences: int) -> None:
        """Hand an instruction's time out, to the picosecond; the largest share takes what rounding leaves."""
        shares_ps = [int(spent_ps * share) for _, share in parts.shares]
        shares_ps[0] += spent_ps - sum(shares_ps)
        for (place, _), share_ps in zip(parts.shares, shares_ps, strict=True):
            self.time_ps[side, place.row, place.layer_part] += share_ps
        self.occurrences[side, parts.shares[0][0].row] += occurrences
        if len(parts.shares) > 1:
            self.estimates.update(place.row for place, _ in parts.shares)
        for place, done in parts.flops:
            self.compute(place, done * occurrences)


def _group_runs(
    runs: OpRuns, within: Bools, is_input: Bools, hlo: HloOps, called: CalledScopes | None
) -> list[list[int]]:
    """Group the runs inside the counted steps that go the same way, a column of numbers for each fact.

    Each run gets one number, which sorts fast: its op, whether it is input, and a slot for each instruction
    and for none. With 3 instructions (4 slots), op 5 as input by no instruction is (5 * 2 + 1) * 4 + 0 = 44.
    Scopes that ops were called in make slots too.

    Returns:
        Rows of ``OpRuns.keys``; 1 for what the input pipeline ran; rows of ``HloOps.ops``, -1 for what XLA
        did not run; self time; executions; rows of ``CalledScopes.scopes``, -1 where the op's name tells all.
    """
    kept = within[runs.events]
    events = runs.events[kept]
    none = np.full(events.size, -1)
    instruction = hlo.codes_of(events) if len(hlo) else none
    caller, scopes = (none, 0) if called is None else (called.code[kept], len(called.scopes))
    shape = (len(runs.keys) + 1, 2, len(hlo.ops) + 1, scopes + 1)
    facts = (runs.code[kept], is_input[kept].astype(np.int64), instruction + 1, caller + 1)
    distinct, kind = np.unique(np.ravel_multi_index(facts, shape), return_inverse=True)
    spent = sum_by(kind, runs.self_ps[kept], distinct.size)
    occurrences = np.bincount(kind[runs.is_execution[kept]], minlength=distinct.size)
    op, from_input, slot, scope = np.unravel_index(distinct, shape)
    columns = (op, from_input, slot - 1, spent, occurrences, scope - 1)
    return [column.tolist() for column in columns]


def hand_out_ops(
    spine: Spine, counted: Int64s, within: Bools, runs: OpRuns, is_input: Bools, hlo: HloOps,
    called: CalledScopes | None, products: tuple[Int64s, Floats],
) -> LayerTimes:  # fmt: skip
    """Hand the self time of ops out to rows.

    Args:
        spine: The steps, and the models that may have run.
        counted: Rows of the steps that the counted events are of.
        within: Which events count, shape (E,).
        runs: Every run of an op.
        is_input: True for the input pipeline's runs, shape (N,).
        hlo: XLA's instructions and modules.
        called: What called each run, where names of ops do not tell.
        products: Events that multiply, and the operations of each, where the trace tells.
    """
    kinds = _group_runs(runs, within, is_input, hlo, called)
    fusions = _read_fusions(hlo, sorted({row for row in kinds[2] if row >= 0}))
    names = {runs.keys[op][0] for op in kinds[0]}
    names.update(name for fusion in fusions.values() for name in fusion.amounts)
    names.update(served for row in fusions if (served := hlo.ops[row].served))
    callers = () if called is None else called.scopes
    models, phase = spine.recording.models, spine.summary.phase or ""
    rows, sums = LayerRows(models, sorted(names), phase, callers), _Sums()
    row_of_op: dict[str, int] = {}
    most_of_op: dict[str, int] = {}
    parts_of = cache(lambda row: _parts_of(hlo.ops[row], fusions.get(row), rows))
    for op, from_input, instruction, spent_ps, occurrences, caller in zip(*kinds, strict=True):
        (name, op_type), side = runs.keys[op], int(runs.is_device[op])
        if instruction >= 0:
            parts = parts_of(instruction)
            sums.share_out(side, parts, spent_ps, occurrences)
            row_of_op.setdefault(name, parts.shares[0][0].row)
            continue
        scope = callers[caller] if caller >= 0 else None
        place = rows.place(name, op_type, is_input=bool(from_input), called=scope)
        if spent_ps >= most_of_op.get(name, 0):
            most_of_op[name], row_of_op[name] = spent_ps, place.row
        sums.time_ps[side, place.row, place.layer_part] += spent_ps
        sums.occurrences[side, place.row] += occurrences
        if place.layer_part == _FORWARD:
            sums.forward[place.row].append(occurrences)
    if called is not None:
        _add_products(runs, within, called, products, rows, sums)
    iterations = max(int(spine.steps.iterations[counted].sum()), 1)
    return _as_columns(rows, sums, row_of_op, iterations)


def _add_products(
    runs: OpRuns, within: Bools, called: CalledScopes, products: tuple[Int64s, Floats],
    rows: LayerRows, sums: _Sums,
) -> None:  # fmt: skip
    """Add the operations of products to the rows that called them."""
    events, done = products
    events, done = events[within[events]], done[within[events]]
    order = np.argsort(runs.events, kind="stable")
    run = look_up(runs.events[order], order, events)
    caller = np.where(run >= 0, called.code[run], -1)
    for row in np.unique(caller[caller >= 0]).tolist():
        place = rows.place("", "", called=called.scopes[row])
        sums.compute(place, float(done[caller == row].sum()))


def _as_columns(
    rows: LayerRows, sums: _Sums, row_of_op: Mapping[str, int], iterations: int
) -> LayerTimes:
    time_ps = np.zeros((2, len(rows), len(LAYER_PARTS)), np.int64)
    occurrences, flops = np.zeros((2, len(rows)), np.int64), np.full((len(rows), 2), np.nan)
    for table, filled in (
        (time_ps, sums.time_ps), (occurrences, sums.occurrences), (flops, sums.flops),
    ):  # fmt: skip
        for key, amount in filled.items():
            table[key] = amount
    is_estimate = flags_at(np.array(list(sums.estimates), np.int64), len(rows))
    return LayerTimes(
        rows, time_ps, occurrences, flops, is_estimate, row_of_op, iterations,
        _iterations_of_models(rows, sums, iterations),
    )  # fmt: skip


def _iterations_of_models(rows: LayerRows, sums: _Sums, iterations: int) -> list[int]:
    """The iterations that each model ran in: as often as most of its forward ops did.

    Where only one ran, all of them: a step that skips parts of its model is a step of it.
    """
    counts: list[int] = []
    for _, layers in rows.models:
        votes = Counter(count for row in layers for count in sums.forward[row])
        possible = [count for count in votes if count <= iterations]
        counts.append(max(possible, key=lambda count: (votes[count], count), default=0))
    return counts if sum(count > 0 for count in counts) > 1 else [iterations] * len(counts)


class _Parts(NamedTuple):
    """An instruction's parts: the places it works for with their shares, and operations of one run."""

    shares: Sequence[tuple[OpPlace, float]]
    flops: Sequence[tuple[OpPlace, float]]


class _Fusion(NamedTuple):
    """The work of the framework's ops inside an instruction whose module the trace holds."""

    amounts: Mapping[str, float]  # operations by op name, or elements made where none does any
    has_flops: bool  # the amounts are operations
    flops: float  # of the whole instruction


def _read_fusions(hlo: HloOps, instructions: Sequence[int]) -> dict[int, _Fusion]:
    """The instructions whose module the trace holds."""
    costs = {number: Costs(module) for number, module in hlo.modules.items()}
    fusions = {}
    for row in instructions:
        if (op := hlo.ops[row]).row >= 0:
            module, cost = hlo.modules[op.program_id], costs[op.program_id]
            fusions[row] = _Fusion(*parts_of_fusion(op, module, cost), cost.flops(op.row))
    return fusions


def _parts_of(op: HloOp, fusion: _Fusion | None, rows: LayerRows) -> _Parts:
    """The places that an instruction works for, largest share first."""
    if op.served and fusion is not None and not op.is_exchange:
        place = rows.place(op.served, _type_of(op.served))
        return _Parts([(place, 1.0)], [(place, fusion.flops)])
    if op.is_exchange or not op.op_name:  # no op of the framework asked for it: a copy or the like
        return _Parts([(OpPlace(rows.other(OUTSIDE), _OTHER), 1.0)], [])
    whole = rows.place(op.op_name, op.key[1])
    if fusion is None:
        return _Parts([(whole, 1.0)], [])
    by_place: defaultdict[OpPlace, float] = defaultdict(float)
    for name, amount in fusion.amounts.items():
        by_place[rows.place(name, _type_of(name))] += amount
    total = sum(by_place.values())
    if not total > 0 or not np.isfinite(total):
        return _Parts([(whole, 1.0)], [(whole, fusion.flops)])
    shares = [(place, amount / total) for place, amount in by_place.items() if amount > 0]
    shares.sort(key=lambda share: -share[1])
    return _Parts(shares, list(by_place.items()) if fusion.has_flops else [])


def _type_of(name: str) -> str:
    """An op's type as far as its name says."""
    return name.rpartition("/")[2].rstrip("0123456789").rstrip("_")
