"""``p.what_if``: a change in a user's words to edits of the tree, and what they save of the cell.

======================================  ====================================================================
``p.what_if(without="Score.on_epoch_end")``  a callback, a function, ``predict``: not called any more
``p.what_if(compiled="test_step")``     an own function put into a ``tf.function``: its ops and a call remain
``p.what_if(epochs_restart_free=True)``  one iterator for all epochs, over a dataset that is ready
``p.what_if(input=0)``                  waiting for input takes no time, or so many times as much
``p.what_if(launch=0)``                 likewise what the host spends on launching kernels
``p.what_if(device=0.5)``               likewise what the device computes
``p.what_if(cores=8)``                  a machine with so many cores
======================================  ====================================================================

Several at once are one change.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.advice.cell_tree import CellTree
from profnb.advice.measured_costs import Costs, costs_here, typical_costs
from profnb.advice.replay import Edit, Saving, once, remove, replay, scale
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.tree_records import CALL, EPOCH, LINES, SETTING_UP
from profnb.core.units import PS_PER_MS, count_text, duration_text, percent_text
from profnb.steps.activities import AWAITING, SYNCHRONISING
from profnb.subjects.covered_time import covered_share
from profnb.subjects.ops.eager_ops import share_of_kernels
from profnb.subjects.study import Study

__all__ = ["Model", "WhatIf", "what_if"]

_NAMED = (
    LINES,
    CALL,
    parts.CALLBACKS,
    parts.CHECKPOINTING,
    parts.CALLS,
    parts.MARKED,
    parts.BUILDING,
)
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a change would save.

    Attributes:
        saves_ms: Least and most that it saves of the wall time.
        wall_ms: The wall time as it is: of the cell, or of a loaded trace's window.
        because: Where that comes from, in a sentence or two.
    """

    saves_ms: tuple[float, float]
    wall_ms: float
    because: str

    def __str__(self) -> str:
        saves = _range_text([ms * PS_PER_MS for ms in self.saves_ms])
        return f"saves {saves} of {duration_text(self.wall_ms * PS_PER_MS)}: {self.because}"


@dataclass(frozen=True)
class Model:
    """A cell's time and what is known of it.

    Attributes:
        tree: Where it went.
        study: The trace's analyses; None without a trace.
        is_here: Whether the cell ran in this process, whose costs can be measured.
        cores: Cores that it had; 0 where that is not known.
    """

    tree: CellTree
    study: Study | None = None
    is_here: bool = False
    cores: int = 0

    @property
    def costs(self) -> Costs:
        """What a compiled call and a new iterator cost."""
        return costs_here() if self.is_here else typical_costs()

    def rows(self, *kinds: str, below: int | None = None) -> list[int]:
        """The nodes of some kinds, directly below one or anywhere."""
        return [
            row
            for row, kind in enumerate(self.tree.kind)
            if kind in kinds and below in (None, int(self.tree.parent[row]))
        ]

    def named(self, name: str) -> list[int]:
        """The outermost nodes of a name: "Score.on_epoch_end", or its last part.

        Raises:
            ValueError: There is none.
        """
        tree = self.tree
        named = [row for row in self.rows(*_NAMED) if _is_called(tree.name[row], name)]
        outermost = [
            row for row in named if not any(row in tree.rows_below(at)[1:] for at in named)
        ]
        if not outermost:
            largest = sorted(self.rows(*_NAMED), key=lambda row: -int(tree.wall_ps[row]))
            listed = list(dict.fromkeys(tree.name[row] for row in largest if tree.name[row]))
            there = ", ".join(listed[:_MOST_NAMES]) or "none"
            raise ValueError(
                f"Nothing in p.cell_tree is called {name!r}. Those that take most: {there}."
            )
        return outermost

    def times_of(self, row: int) -> int:
        """How often a node happened; where nobody counted, as often as what it stands beside or below."""
        tree = self.tree
        while row > 0:
            if tree.occurrences[row]:
                return int(tree.occurrences[row])
            beside = tree.occurrences[tree.parent == tree.parent[row]]
            if beside.any():
                return int(beside.max())
            row = int(tree.parent[row])
        return 1


def _is_called(name: str, asked: str) -> bool:
    return bool(name) and (name == asked or name.endswith(f".{asked}"))


def what_if(model: Model, changes: Mapping[str, object]) -> WhatIf:
    """What changes would save together.

    Args:
        model: The cell.
        changes: By name; see above.

    Raises:
        ValueError: There is no such change, or nothing that it is about.
    """
    unknown = sorted(set(changes) - set(_CHANGES))
    if unknown or not changes:
        raise ValueError(
            f"what_if takes {', '.join(sorted(_CHANGES))}; found {', '.join(unknown) or 'nothing'}."
        )
    edits = [edit for name, value in changes.items() for edit in _CHANGES[name](model, value)]
    saving = replay(model.tree, edits)
    return in_words(model, saving, edits)


def in_words(model: Model, saving: Saving, edits: Sequence[Edit]) -> WhatIf:
    """A saving in milliseconds of the wall time, and why."""
    because = "; ".join(dict.fromkeys(edit.because for edit in edits)) or "nothing of that was seen"
    return WhatIf(
        (saving.low_ps / PS_PER_MS, saving.high_ps / PS_PER_MS),
        model.tree.whole_ps / PS_PER_MS,
        f"{because[:1].upper()}{because[1:]}.",
    )


def _factor(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < np.inf:
        raise ValueError(f"{name} takes how many times as long it would take; found {value!r}.")
    return float(value)


def without(model: Model, name: object) -> list[Edit]:
    """What has a name is not called any more."""
    rows = model.named(str(name))
    took = duration_text(int(model.tree.wall_ps[rows].sum()))
    return [remove(model.tree, rows, f"what is called {name} took {took}, with all that it calls")]


def compiled(model: Model, name: object) -> list[Edit]:
    """An own function is compiled: its ops remain, at most as they are, and a call each time."""
    return [compiled_at(model, row) for row in model.named(str(name))]


def compiled_at(model: Model, row: int) -> Edit:
    """The same of one node."""
    tree, times = model.tree, model.times_of(row)
    whole = int(tree.wall_ps[row])
    least, most = (min(times * each, whole) for each in model.costs.call_ps)
    ops = _share_of_kernels(model)
    because = (
        f"{tree.name[row]} took {duration_text(whole)}, {count_text(round(ops * 100))} % of such time is ops "
        f"at work, and a call of a compiled function costs {_range_text(model.costs.call_ps)} here"
    )
    return Edit(tree.rows_below(row), least, min(most + ops * whole, whole), because)


def _share_of_kernels(model: Model) -> float:
    """Of the time in which ops are run one by one, the share in which one is at work; 1 where not known."""
    study = model.study
    return 1.0 if study is None else share_of_kernels(study.trace, study.parent)


def epochs_restart_free(model: Model, wanted: object) -> list[Edit]:
    """One iterator for all epochs: what is set up at each end of one is set up once."""
    if not wanted:
        return []
    edits = []
    for epoch in model.rows(EPOCH):
        times = int(model.tree.occurrences[epoch])
        nodes = model.rows(SETTING_UP, parts.EPOCH_ENDS, below=epoch)
        if times > 1 and nodes:
            took = duration_text(int(model.tree.wall_ps[nodes].sum()))
            because = (
                f"new iterators and ends of {count_text(times)} epochs took {took}, and restarting a ready "
                f"dataset costs {_range_text(model.costs.restart_ps)} here"
            )
            edits.append(once(model.tree, nodes, times, model.costs.restart_ps, because))
    return edits


def _range_text(range_ps: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(duration_text(end) for end in range_ps))


def _scaled(*kinds: str) -> Callable[[Model, object], list[Edit]]:
    def edits(model: Model, value: object) -> list[Edit]:
        factor = _factor(value, kinds[0])
        nodes = model.rows(*kinds)
        took = duration_text(int(model.tree.wall_ps[nodes].sum()))
        because = f"{kinds[0]} took {took} that nothing else hid"
        return [scale(model.tree, nodes, factor, factor, because)] if nodes else []

    return edits


def device(model: Model, value: object) -> list[Edit]:
    """The device takes so many times as long; the host's work beside it may then be what takes longer."""
    factor, nodes = _factor(value, "device"), model.rows("device compute")
    if not nodes or model.study is None:
        return []
    whole, kept = int(model.tree.wall_ps[nodes].sum()), _kept_by_host(model.study, factor)
    because = f"the device computed for {duration_text(whole)}"
    if kept:
        because += f"; the host needs {percent_text(kept)} of what would be saved, for its own work beside it"
    return [scale(model.tree, nodes, factor, factor + max(1 - factor, 0) * kept, because)]


def _kept_by_host(study: Study, factor: float) -> float:
    """Of what a faster device saves, the share that the host then takes, which works so long itself."""
    rows, steps = study.summary.counted, study.steps
    period_ps = float((steps.duration_ps[rows] + study.gaps.own_ps[rows]).sum())
    saved_ps = (1 - factor) * float(study.breakdown.of("device compute")[rows].sum())
    host_ps = float(
        (steps.host_end_ps[rows] - steps.host_begin_ps[rows] + study.gaps.own_ps[rows]).sum()
    )
    waits = np.flatnonzero(np.isin(study.activities, (AWAITING, SYNCHRONISING)))
    host_ps -= covered_share(study, waits) * period_ps
    return (
        float(np.clip((host_ps - (period_ps - saved_ps)) / saved_ps, 0, 1)) if saved_ps > 0 else 0.0
    )


def cores(model: Model, value: object) -> list[Edit]:
    """A machine with other cores: waiting for input and computing take at least their share of them."""
    wanted = _factor(value, "cores")
    if not wanted or not model.cores:
        had = model.cores or "an unknown number"
        raise ValueError(f"cores takes how many there would be; found {value!r}, and it had {had}.")
    ratio = model.cores / wanted
    nodes = model.rows(parts.INPUT, "host compute")
    because = f"it had {count_text(model.cores)} cores; how much of it can use more is not known"
    least, most = sorted((ratio, 1.0))
    return [scale(model.tree, nodes, least, most, because)] if nodes else []


_CHANGES: Mapping[str, Callable[[Model, object], list[Edit]]] = {
    "without": without,
    "compiled": compiled,
    "epochs_restart_free": epochs_restart_free,
    "input": _scaled(parts.INPUT),
    "launch": _scaled("kernel launch"),
    "device": device,
    "cores": cores,
}
