"""XLA's time as a tree: program, op of XLA, op of the framework.

A fusion runs what several ops of the framework asked for, as one piece; how long each of them took nobody
can know. Its time is shared out here by the operations that each does inside it, or by the elements that each
makes where it does none, and marked as an estimate.
"""

from dataclasses import dataclass

from profnb.subjects.xla.hlo_costs import Costs
from profnb.subjects.xla.hlo_ops import HloOp, HloOps
from profnb.subjects.xla.programs import XlaOps
from profnb.trace.hlo import HloModule

__all__ = ["TreeBlock", "grow_xla_tree", "parts_of_fusion"]

Amounts = dict[str, float]

_MOST_OPS = 40
_MOST_PARTS = 4


@dataclass(frozen=True, slots=True)
class TreeBlock:
    """One block of the tree.

    Attributes:
        level: 0 for a program, 1 for an op of XLA, 2 for an op of the framework.
        label: What it is.
        begin: Where it begins, as share of all time in 0..1; a block lies under what it is part of.
        width: Its share of all time.
        self_ps: Its time.
        is_estimate: Whether its time was shared out and not measured.
        category: Opcode or call of an XLA op; "" on other levels.
    """

    level: int
    label: str
    begin: float
    width: float
    self_ps: float
    is_estimate: bool = False
    category: str = ""


def grow_xla_tree(ops: XlaOps, hlo: HloOps) -> list[TreeBlock]:
    """Lay out the longest ops, program by program; what is left over is one block per program.

    Args:
        ops: The table of XLA's ops, most time first.
        hlo: The HLO instructions and programs.
    """
    whole = int(ops.self_ps.sum())
    if not whole:
        return []
    programs: dict[tuple[str, int], list[int]] = {}
    for row, op in enumerate(ops.op):
        programs.setdefault((op.module, op.program_id), []).append(row)
    totals = {key: int(ops.self_ps[rows].sum()) for key, rows in programs.items()}
    blocks: list[TreeBlock] = []
    begin = 0.0
    for key in sorted(programs, key=lambda key: -totals[key]):
        blocks.append(TreeBlock(0, key[0], begin, totals[key] / whole, totals[key]))
        at, left = begin, totals[key]
        for row in programs[key]:
            if row >= _MOST_OPS or not ops.self_ps[row]:
                continue
            spent = int(ops.self_ps[row])
            op = ops.op[row]
            blocks.append(TreeBlock(1, op.name, at, spent / whole, spent, category=op.category))
            inside = at
            for name, share in _parts(op, hlo):
                width = share * spent / whole
                is_estimate = share < 1
                blocks.append(TreeBlock(2, name, inside, width, share * spent, is_estimate))
                inside += width
            at += spent / whole
            left -= spent
        if left > 0:
            blocks.append(TreeBlock(1, "other ops", at, left / whole, left))
        begin += totals[key] / whole
    return blocks


def parts_of_fusion(op: HloOp, module: HloModule, costs: Costs) -> tuple[Amounts, Amounts]:
    """What each op of the framework does inside an instruction: (operations, elements made), by its name.

    Args:
        op: The instruction, of this program.
        module: Its program.
        costs: That program's costs.
    """
    done: Amounts = {}
    made: Amounts = {}
    for body in module.called_by(op.row):
        if body < 0 or not module.is_fused[body]:
            continue
        first, last = module.offsets[body : body + 2].tolist()
        for row in range(first, last):
            name = module.op_names[row]
            if name and module.opcodes[row] not in ("parameter", "constant"):
                done[name] = done.get(name, 0.0) + costs.flops(row)
                made[name] = made.get(name, 0.0) + float(module.shapes.elements[row])
    return done, made


def _parts(op: HloOp, hlo: HloOps) -> list[tuple[str, float]]:
    """The framework's ops inside one of XLA's, and the share of its time each is given."""
    module = hlo.programs.get(op.program_id)
    if module is None or op.row < 0:
        return [(op.op_name, 1.0)] if op.op_name else []
    done, made = parts_of_fusion(op, module, Costs(module))
    weights = done if sum(done.values()) > 0 else made
    whole = sum(weights.values())
    if not whole > 0 or len(weights) < 2:
        return [(op.op_name, 1.0)] if op.op_name else []
    order = sorted(weights, key=lambda name: -weights[name])
    parts = [(name, weights[name] / whole) for name in order[:_MOST_PARTS] if weights[name]]
    rest = 1.0 - sum(share for _, share in parts)
    return [*parts, ("others", rest)] if rest > 0.005 else parts
