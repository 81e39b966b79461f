"""XLA's time as a tree: module (XLA's word for a program), op of XLA, op of the framework.

A fusion runs what several ops of the framework asked for, as one piece; how long each of them took nobody
can know. Its time is shared out here by the operations that each does inside it, or by the elements that each
makes where it does none, and marked as an estimate.
"""

from profnb.core.block import Block
from profnb.core.units import duration_text, percent_text
from profnb.subjects.xla.hlo_costs import Costs
from profnb.subjects.xla.hlo_ops import HloOp, HloOps
from profnb.subjects.xla.xla_ops import XlaOps
from profnb.trace.hlo import HloModule

Amounts = dict[str, float]

_MOST_OPS = 40
_MOST_PARTS = 4
_DEEPEST = 2


def grow_xla_tree(ops: XlaOps, hlo: HloOps) -> list[Block]:
    """Lay out the longest ops, module by module; what is left over is one block per module.

    Three levels, by role: "module"; "hlo op", "hlo op of no category" and "other hlo ops"; "framework op".

    Args:
        ops: The table of XLA's ops, most time first.
        hlo: The HLO instructions and modules.
    """
    whole = int(ops.self_ps.sum())
    if not whole:
        return []
    rows_of_module: dict[tuple[str, int], list[int]] = {}
    for row, op in enumerate(ops.op):
        rows_of_module.setdefault((op.module, op.program_id), []).append(row)
    totals = {key: int(ops.self_ps[rows].sum()) for key, rows in rows_of_module.items()}
    blocks: list[Block] = []
    begin = 0.0
    for key in sorted(rows_of_module, key=lambda key: -totals[key]):
        blocks.append(_block(0, begin, totals[key], whole, key[0], "module"))
        at, left = begin, totals[key]
        for row in rows_of_module[key]:
            if row >= _MOST_OPS or not ops.self_ps[row]:
                continue
            blocks.extend(_op_blocks(ops.op[row], int(ops.self_ps[row]), at, whole, hlo))
            at += int(ops.self_ps[row]) / whole
            left -= int(ops.self_ps[row])
        if left > 0:
            blocks.append(_block(1, at, left, whole, "other ops", "other hlo ops"))
        begin += totals[key] / whole
    return blocks


def _op_blocks(op: HloOp, spent_ps: int, begin: float, whole: int, hlo: HloOps) -> list[Block]:
    """An op of XLA and, under it, the framework's ops that it works for."""
    role = "hlo op" if op.category else "hlo op of no category"
    about = f" ({op.category})" if op.category else ""
    blocks = [_block(1, begin, spent_ps, whole, op.name, role, about)]
    for name, share in _parts(op, hlo):
        estimate = ", shared out by its operations" if share < 1 else ""
        block = _block(2, begin, share * spent_ps, whole, name, "framework op", remark=estimate)
        blocks.append(block)
        begin += share * spent_ps / whole
    return blocks


def _block(
    level: int, begin: float, spent_ps: float, whole: int, name: str, role: str,
    about: str = "", remark: str = "",
) -> Block:  # fmt: skip
    width = spent_ps / whole
    hover = f"{name[:160]}{about}: {duration_text(spent_ps)}, {percent_text(width)}{remark}"
    return Block(
        level, begin, width, name.rpartition("/")[2] if level == _DEEPEST else name, hover, role
    )


def parts_of_fusion(op: HloOp, module: HloModule, costs: Costs) -> tuple[Amounts, Amounts]:
    """What each op of the framework does inside an instruction: (operations, elements made), by its name.

    Args:
        op: The instruction, of this module.
        module: Its module.
        costs: That module's costs.
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
    module = hlo.modules.get(op.program_id)
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
