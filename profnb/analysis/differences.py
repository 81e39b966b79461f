"""Two studies to where their steps differ: categories, ops, and what makes them hard to compare."""

from dataclasses import dataclass

import numpy as np

from profnb.analysis.devices import busiest_device
from profnb.analysis.examples import usual_batch_size
from profnb.analysis.step_times import StepTimes
from profnb.analysis.study import Study
from profnb.columns import Floats

__all__ = [
    "OpDifference",
    "batch_sizes",
    "compare_categories",
    "compare_ops",
    "find_guards",
    "steady_step_times",
]

_ENOUGH_UNTRACED = 10
_DEVICE_STATS = ("device_type_string", "compute_cap_major", "compute_cap_minor", "core_count")


@dataclass(frozen=True, slots=True)
class OpDifference:
    """An op in A and in B; times are self times of a mean step.

    Attributes:
        side: "host" or "device".
        op_name: The op.
        op_type: Its type.
        first_ps: Per step of A; NaN where A has no such op.
        second_ps: Per step of B; NaN where B has no such op.
        status: "changed", "appeared", "vanished", or "other kernel" where a device ran other kernels for it.
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


def steady_step_times(study: Study | None, times: StepTimes) -> tuple[Floats, bool]:
    """The times from step to step of one run, warm-up left out, in picoseconds.

    Untraced steps are taken where there are enough, because tracing slows steps.

    Returns:
        The times, and whether the steps were traced.
    """
    phase = study.summary.phase if study is not None else None
    rows = np.arange(len(times))
    chosen = np.array([phase is None or name == phase for name in times.phase], np.bool_)
    chosen &= ~times.retraced
    follows = np.append(np.diff(times.run) == 0, False)
    same = np.append(chosen[1:], False)
    period = np.append(np.diff(times.begin_ps), 0).astype(np.float64)
    period = np.where(follows & same & (period > 0), period, times.duration_ps)
    untraced = chosen & ~times.was_traced
    if untraced.sum() >= _ENOUGH_UNTRACED:
        return period[rows[untraced]], False
    if study is None or not len(study.steps):
        return period[rows[chosen]], True
    steps = study.steps
    counted = study.summary.counted
    gaps = np.maximum(steps.gap_ps[counted], 0)
    return (steps.duration_ps[counted] + gaps).astype(np.float64), True


def compare_categories(first: Study, second: Study) -> list[tuple[str, float, float]]:
    """(category, mean of A, mean of B) in picoseconds per step, the largest difference first."""
    means: dict[str, list[float]] = {}
    for column, study in enumerate((first, second)):
        for share in study.summary.shares:
            means.setdefault(share.category, [0.0, 0.0])[column] = share.mean_ps
    rows = [(name, pair[0], pair[1]) for name, pair in means.items()]
    return sorted(rows, key=lambda row: -abs(row[2] - row[1]))


def compare_ops(first: Study, second: Study) -> list[OpDifference]:
    """The ops of both, the largest difference first."""
    tables = [_ops_per_step(study) for study in (first, second)]
    kernels = [_kernels_of(study) for study in (first, second)]
    rows = []
    for key in tables[0].keys() | tables[1].keys():
        one, two = tables[0].get(key), tables[1].get(key)
        if one is None:
            status = "appeared"
        elif two is None:
            status = "vanished"
        else:
            own = kernels[0].get(key[1]), kernels[1].get(key[1])
            other = key[0] == "device" and own[0] != own[1]
            status = "other kernel" if other else "changed"
        nan = float("nan")
        rows.append(
            OpDifference(*key, nan if one is None else one, nan if two is None else two, status)
        )
    return sorted(rows, key=lambda row: (-abs(row.difference_ps), row.op_name))


def _ops_per_step(study: Study) -> dict[tuple[str, str, str], float]:
    counted = study.summary.counted
    ops = study.ops_of_steps(counted)
    steps = max(counted.size, 1)
    return {
        ("device" if ops.is_device[row] else "host", ops.op_name[row], ops.op_type[row]):
            float(ops.self_ps[row]) / steps
        for row in range(len(ops))
    }  # fmt: skip


def _kernels_of(study: Study) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    if study.has_device:
        for kernel, op in zip(study.kernels.kernel_name, study.kernels.op_name, strict=True):
            found.setdefault(op, set()).add(kernel)
    return {op: frozenset(names) for op, names in found.items()}


def find_guards(
    first: Study, second: Study, environments: tuple[dict[str, str], dict[str, str]]
) -> list[str]:
    """What differs between A and B besides what was meant to, in sentences."""
    guards = []
    for name in sorted(environments[0].keys() & environments[1].keys()):
        one, two = environments[0][name], environments[1][name]
        if one != two:
            guards.append(f"{name} differs: {one} and {two}.")
    devices = [_device_of(study) for study in (first, second)]
    if devices[0] != devices[1]:
        guards.append(f"They ran on different devices: {devices[0]} and {devices[1]}.")
    sizes = batch_sizes(first, second)
    if sizes is not None and sizes[0] != sizes[1]:
        guards.append(
            f"Batch sizes differ ({sizes[0]} and {sizes[1]}): compare the time per example, not steps."
        )
    phases = [study.summary.phase for study in (first, second)]
    if phases[0] != phases[1]:
        guards.append(f"Their steps are of different kinds: {phases[0]} and {phases[1]}.")
    iterations = [study.summary.iterations for study in (first, second)]
    if iterations[0] != iterations[1]:
        guards.append(
            f"A step runs {iterations[0]} iterations in one and {iterations[1]} in the other."
        )
    return guards


def batch_sizes(first: Study, second: Study) -> tuple[int, int] | None:
    """Examples per step of A and of B; None where one is not known."""
    one, two = (
        study.summary.batch_size or usual_batch_size(study.trace) for study in (first, second)
    )
    return None if one is None or two is None else (one, two)


def _device_of(study: Study) -> str:
    plane = busiest_device(study.trace)
    if plane is None:
        return "the CPU"
    stats = study.trace.planes[plane].stats
    told = {name: str(stats.get(name, "?")) for name in _DEVICE_STATS}
    kind = told["device_type_string"]
    if kind == "?":
        capability = f"{told['compute_cap_major']}.{told['compute_cap_minor']}"
        kind = f"compute capability {capability}, {told['core_count']} cores"
    return f"{study.trace.planes[plane].name.partition(':')[2]} ({kind})"
