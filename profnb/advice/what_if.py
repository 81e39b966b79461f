"""``p.what_if``: a change in a user's words to edits of the tree, and what they save of the cell.

without="Score.on_epoch_end"    a callback, a function, ``predict``: not called any more
compiled="test_step"            an own function put into a ``tf.function``: its ops and a call remain
epochs_restart_free=True        one iterator for all epochs, over a dataset that is ready
input=0                         waiting for input takes no time, or so many times as much
launch=0                        likewise what the host spends on launching kernels
device=0.5                      likewise what the device computes
cores=8                         a machine with so many cores

Several at once are one change.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.replay import Edit, once, replay, scale
from profnb.capture.environment import TRACED_CALLS
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import EPOCH, SETTING_UP
from profnb.causes.cell_tree import STEADY_STEPS, CellTree
from profnb.causes.starving import crowded_share, kept_by_host
from profnb.core.printable import printable
from profnb.core.units import PS_PER_MS, count_text, duration_text, durations_text, percent_text
from profnb.steps.summary import OTHERS
from profnb.trace.names import PYTHON_OPS


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
        saves = durations_text(*(ms * PS_PER_MS for ms in self.saves_ms))
        return f"saves {saves} of {duration_text(self.wall_ms * PS_PER_MS)}: {self.because}"


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
    because = "; ".join(dict.fromkeys(edit.because for edit in edits if edit.because))
    because = because or "nothing like it was seen"
    return WhatIf(
        model.saves_ms(replay(model.tree, edits)),
        model.tree.whole_ps / PS_PER_MS,
        f"{because[:1].upper()}{because[1:]}.",
    )


def _factor(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < np.inf:
        raise ValueError(f"{name} takes a factor of the present time, got {value!r}.")
    return float(value)


def _took(model: Model, nodes: Sequence[int]) -> str:
    return duration_text(int(model.tree.wall_ps[nodes].sum()))


def without(model: Model, name: object) -> list[Edit]:
    """What has a name is not called any more, and steps that it ran between find warm caches."""
    rows = model.tree.named(str(name))
    because = f"`{printable(str(name))}` took {_took(model, rows)}, with all calls below"
    took_ps, times = float(model.tree.wall_ps[rows].sum()), sum(map(model.tree.times_of, rows))
    removed = Edit(model.tree.with_below(rows), 0.0, 0.0, because=because)
    return [removed, *model.steps_behind(times, took_ps)]


def compiled(model: Model, name: object) -> list[Edit]:
    """An own function is compiled: its ops remain, at most as they are, and a call each time."""
    return [compiled_at(model, row) for row in model.tree.named(str(name))]


def compiled_at(model: Model, row: int, eager: Sequence[int] | None = None) -> Edit:
    """The same of one node: ops that compute for long stay as they are, of the others up to all remains.

    The first call traces it, and a second time where it makes variables.

    Args:
        model: The cell.
        row: The node.
        eager: What of it is compiled; None for all.
    """
    tree, calls = model.tree, model.calls_of(row)
    times, traces = calls or tree.times_of(row), 2 if tree.rows(parts.BUILDING, below=row) else 1
    below = tree.rows_below(row).tolist() if eager is None else eager
    # A compiled function makes tensors of Python's values as before.
    rows = np.array([at for at in below if tree.name[at] != parts.TO_TENSORS], np.int64)
    whole, calls_ps = int(tree.self_ps[rows].sum()), model.costs.call_ps
    shares = least_share, most_share = model.kernel_shares(whole)
    least, most = (
        min(times * call_ps + share * whole, whole)
        for call_ps, share in zip(calls_ps, shares, strict=True)
    )
    first, last = (
        traces * as_many * (1 - share) * whole / calls if calls else 0.0
        for as_many, share in zip(TRACED_CALLS, (most_share, least_share), strict=True)
    )
    because = (
        f"`{printable(tree.name[row])}` took {duration_text(whole)}; ops compute for "
        f"{percent_text(most_share)} of this time, and a call of a compiled function costs "
        f"{_cost_text(model, calls_ps)}"
    )
    return Edit(rows, least, most, because=because, once_ps=(first, last))


def epochs_restart_free(model: Model, wanted: object) -> list[Edit]:
    """One iterator for all epochs: what is set up at each end of one is set up once."""
    if not wanted:
        return []
    edits = []
    for epoch in model.tree.rows(EPOCH):
        times = int(model.tree.occurrences[epoch])
        nodes = model.tree.rows(SETTING_UP, parts.EPOCH_ENDS, below=epoch)
        for steps in model.tree.rows(*STEADY_STEPS, below=epoch):
            if model.tree.occurrences[steps] < 2 * times:  # each waits for a new iterator's batch
                nodes += model.tree.rows(parts.INPUT, below=steps)
        if times > 1 and nodes:
            took = _took(model, nodes)
            because = (
                f"new iterators and ends of {count_text(times)} epochs took {took}, and restarting a ready "
                f"dataset costs {_cost_text(model, model.costs.restart_ps)}"
            )
            edits.append(once(model.tree, nodes, times, model.costs.restart_ps, because))
    return edits


def _cost_text(model: Model, cost_ps: tuple[float, float]) -> str:
    return f"{durations_text(*cost_ps)} {'here' if model.costs.is_measured else 'as a rule'}"


def launch(model: Model, value: object) -> list[Edit]:
    """What the host spends on launching kernels takes so many times as long."""
    factor, nodes = _factor(value, "launch"), model.tree.rows("kernel launch")
    because = f"launching kernels took {_took(model, nodes)} while nothing computed"
    return [scale(model.tree, nodes, factor, factor, because)] if nodes else []


def input_scaled(model: Model, least: float, most: float, share: float | None = None) -> list[Edit]:
    """Waiting for input takes so many times as long, and its threads leave so much more to the steps.

    Args:
        model: The cell.
        least: How much of the waiting is left at least.
        most: How much of it is left at most.
        share: The waiting's share of the time from step to step; None for what tf.data tells.
    """
    tree, study = model.tree, model.study
    nodes = [at for at in tree.rows(parts.INPUT) if not tree.is_inside(at, (parts.BUILDING,), 0)]
    because = f"waiting for input took {_took(model, nodes)} while nothing computed"
    edits = [scale(tree, nodes, least, most, because)] if nodes else []
    if study is None:
        return edits
    # A generator of Python's stops at the end of an epoch, and starts anew with its workers.
    if "Generator" in study.input.pipeline.kind:
        edits.append(scale(tree, ends_of_epochs(tree), least, most, because))
    # The pipeline's own calls tell of waits, too, that no op asked for.
    share = float(np.nan_to_num(study.input.waiting.fraction if share is None else share))
    more = share - float(tree.wall_ps[nodes].sum()) / max(model.periods_ps, 1)
    if more > 0:
        edits.append(model.some_of((parts.GAPS, OTHERS), more, (least, most), because))
    return edits + held_up(model, least, most)


def ends_of_epochs(tree: CellTree) -> list[int]:
    """The nodes of what lies between the epochs of a fit, without callbacks and validation."""
    return [row for row in tree.rows(parts.EPOCH_ENDS) if tree.is_inside(row, (EPOCH,), 0)]


def held_up(model: Model, least: float, most: float) -> list[Edit]:
    """The steps compute beside the input's threads, which do so many times as much."""
    if model.study is None or least >= 1:
        return []
    tree = model.tree
    computing = tree.with_below(tree.rows("host compute"))
    rows = [row for row in computing.tolist() if tree.name[row] not in (*PYTHON_OPS, "Dataset")]
    crowded, sure = crowded_share(model.study)
    if not crowded or not rows:
        return []
    because = (
        f"the input's threads may have held up {percent_text(crowded)} of the steps' computing"
    )
    surely = min(sure, (1 - least) * crowded) * (1 - most) / (1 - least)
    left = 1 - (1 - least) * crowded
    return [scale(tree, rows, left, 1 - surely, because, with_below=False)]


def device(model: Model, value: object) -> list[Edit]:
    """The device takes so many times as long; the host's work beside it may then be what takes longer."""
    factor, nodes = _factor(value, "device"), model.tree.rows("device compute")
    if not nodes or model.study is None:
        return []
    kept = kept_by_host(model.study, factor)
    because = f"the device computed for {_took(model, nodes)}"
    if kept:
        because += f"; the host's own work beside needs {percent_text(kept)} of the saving"
    return [scale(model.tree, nodes, factor, factor + max(1 - factor, 0) * kept, because)]


def cores(model: Model, value: object) -> list[Edit]:
    """A machine with other cores: waiting for input and computing take at least their share of them."""
    wanted = _factor(value, "cores")
    if not wanted or not model.cores:
        had = f"The machine had {model.cores or 'an unknown number'}."
        raise ValueError(f"cores takes a number of cores, got {value!r}. {had}")
    ratio = model.cores / wanted
    nodes = model.tree.rows(parts.INPUT, "host compute")
    because = f"the machine had {count_text(model.cores)} cores; how much of the work can use more is unknown"
    least, most = sorted((ratio, 1.0))
    return [scale(model.tree, nodes, least, most, because)] if nodes else []


_CHANGES: Mapping[str, Callable[[Model, object], list[Edit]]] = {
    "without": without,
    "compiled": compiled,
    "epochs_restart_free": epochs_restart_free,
    "input": lambda model, value: input_scaled(model, *(_factor(value, "input"),) * 2),
    "launch": launch,
    "device": device,
    "cores": cores,
}
