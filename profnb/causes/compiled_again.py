"""Programs that were compiled again and again: which, how often, why as far as the trace tells."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.causes.pieces import compiled_regions
from profnb.core.printable import quoted
from profnb.core.units import count_text
from profnb.steps.compilation import FRAME_COMPILES
from profnb.steps.nesting import outermost_of
from profnb.subjects.study import Study
from profnb.subjects.xla.xla_ops import argument_names, argument_shapes
from profnb.trace.framework import PYTORCH
from profnb.trace.hlo import HloModule

_SHOWN_SHAPES = 4
_FEWEST = 3  # the first is a program's due, and the second its due for other shapes
SAME_SHAPES = (
    "its shapes are the same, so a new function or another static argument came with each call"
)


@dataclass(frozen=True, slots=True)
class CompiledAgain:
    """What was compiled again and again.

    Attributes:
        what: Who compiled what how often, the begin of a sentence.
        times: How often it was compiled, the first time with it.
        spent_ps: What all but the first compiling took.
        why: What changed from one to the next.
    """

    what: str
    times: int
    spent_ps: float
    why: str


def find_compiled_again(study: Study) -> CompiledAgain | None:
    """What was compiled three times or more, and took longest; of PyTorch all such functions together."""
    return _by_torch(study) if study.framework == PYTORCH else _by_xla(study)


def _by_xla(study: Study) -> CompiledAgain | None:
    modules = study.xla.modules
    names = enumerate(modules.module)
    often = [row for row, name in names if modules.compilations[row] >= _FEWEST]
    often = [row for row in often if not _is_eager_op(study, modules.module[row])]
    if not often:
        return None
    row = max(often, key=lambda row: int(modules.compile_ps[row]))
    name, times = modules.module[row], int(modules.compilations[row])
    spent = float(modules.compile_ps[row]) * (times - 1) / times
    what = f"XLA compiled {quoted(name, 100)} {count_text(times)} times"
    return CompiledAgain(what, times, spent, _why_compiled(study, name))


def _is_eager_op(study: Study, module: str) -> bool:
    """Whether a program is one op that JAX ran outside of any ``jit``: one program for each shape it makes.

    Nobody wrote that function, so nobody can make it once. All its instructions come from
    ``jit(broadcast_in_dim)/broadcast_in_dim``.
    """
    op = module.removeprefix("jit_")
    saved = [other for other in study.xla.hlo.modules.values() if other.name == module]
    names = {name for other in saved for name in other.op_names.texts if "/" in name}
    return names == {f"jit({op})/{op}"}


def _why_compiled(study: Study, module: str) -> str:
    """Which shapes its arguments had, where the trace holds several of the name."""
    saved = [other for other in study.xla.hlo.modules.values() if other.name == module]
    shapes = [argument_shapes(other) for other in saved]
    for at in range(len(shapes[0]) if shapes else 0):
        distinct = list(dict.fromkeys(shape[at] for shape in shapes if at < len(shape)))
        if len(distinct) > 1:
            more = ", ..." if len(distinct) > _SHOWN_SHAPES else ""
            listed = ", ".join(distinct[:_SHOWN_SHAPES]) + more
            return f"argument {_argument_name(saved, at)} had several shapes ({listed})"
    if len(saved) > 1:
        return SAME_SHAPES
    return "its shapes change from call to call, or the function is made anew"


def _argument_name(saved: Sequence[HloModule], at: int) -> str:
    """An argument as the function names it, where all of its programs do ("params['w']"); else its place."""
    names = {name for module in saved for name in argument_names(module)[at : at + 1]}
    return names.pop()[:60] if len(names) == 1 and "" not in names else str(at + 1)


def _by_torch(study: Study) -> CompiledAgain | None:
    """Further versions of functions: what was compiled runs next, and says which version it is."""
    trace = study.trace
    is_compiling = trace.select_names(lambda name: name.endswith(FRAME_COMPILES))
    compiling = outermost_of(is_compiling & trace.is_host_event, study.groups.parent)
    regions, version = compiled_regions(study)
    order = np.argsort(trace.events.begin_ps[regions], kind="stable")
    runs = np.searchsorted(trace.events.begin_ps[regions[order]], trace.events.end_ps[compiling])
    again = np.append(version[order], 0)[runs] > 0
    times, versions = int(again.sum()) + 1, int(version.max(initial=0)) + 1
    if times < _FEWEST:
        return None
    spent = float(trace.events.duration_ps[compiling[again]].sum())
    why = f"each for other shapes or Python values, and one has {versions} versions by now"
    what = f"torch.compile compiled functions again {count_text(times - 1)} times"
    return CompiledAgain(what, times, spent, why)
