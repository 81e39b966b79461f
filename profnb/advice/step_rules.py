"""Rules that ask the tree and the trace's tables: what the steps, and the input beside them, do in pieces."""

from collections.abc import Callable, Iterator

from profnb.advice.cell_model import Model
from profnb.advice.cell_tree import STEADY_STEPS
from profnb.advice.numbers import AT_ONCE, LONG_OP_PS
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, with_below_of
from profnb.capture.parts import part_records as parts
from profnb.core.printable import quoted
from profnb.core.units import count_text, duration_text
from profnb.subjects.advising import GUIDE
from profnb.subjects.ops.graph_loops import find_loop

__all__ = ["STEP_RULES"]

_LONGEST = 60


def loops_of_small_ops(model: Model) -> Iterator[Proposal]:
    """A loop inside of a compiled function starts the same small ops again in each of its turns.

    Not the loop of a recurrent layer, each of whose turns needs the one before.
    """
    study, tree = model.study, model.tree
    assert study is not None
    loop = find_loop(study, LONG_OP_PS)
    steps = [row for row in model.rows(*_STEPS) if model.is_main(row)]
    if loop is None or loop.turns < 2 or loop.is_recurrent or not steps:
        return
    if _RECURRENT_LAYERS & set(study.layers.table.layer_type):
        return
    rows = with_below_of(tree, steps)
    whole = float(tree.self_ps[rows].sum())
    spent = duration_text(loop.share * whole)
    # At once: its long ops as now, of the rest one turn; perhaps more, as the ops then are larger.
    rest = max(loop.share - loop.long_share, 0.0) / loop.turns
    least = 1 - loop.share + loop.long_share + rest
    if loop.long_share > loop.share / 2:  # it is computing that takes the time
        return
    edit = Edit(
        rows,
        whole * least,
        whole * min(least + (1 - least) * AT_ONCE, 1.0),
        f"the loop took {spent}",
    )
    name = next((tree.name[row] for row in steps if tree.name[row]), "")
    where = f" in {quoted(name, _LONGEST)}" if name else ""
    yield Proposal(
        "loop-of-ops", f"Do all turns of the loop{where} at once",
        f"A loop{where} (for, tf.while_loop or tf.map_fn) took {count_text(loop.turns)} turns a step, and "
        f"{spent} in all, most of it starting small ops.",
        "Where a turn does not need the one before: one op over all of them, with the loop's axis as one "
        "more axis of the tensors (tf.vectorized_map does it for many functions). Else take several elements "
        "a turn, or jit_compile=True.",
        f"{GUIDE}/function#autograph_transformations", [edit], model.line_above(steps[0]),
    )  # fmt: skip


_RECURRENT_LAYERS = {
    "LSTM",
    "GRU",
    "SimpleRNN",
    "RNN",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    "Bidirectional",
}
_STEPS = tuple(kind for kind in STEADY_STEPS if kind != parts.VALIDATION)


STEP_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (loops_of_small_ops,)
