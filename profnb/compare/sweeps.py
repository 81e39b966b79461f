"""The runs of a sweep to what each setting achieves: throughput and its interval, quality, memory, the front.

A setting is on the Pareto front if no other is surely better in one respect and not surely worse in the
other: throughput, and either the metric of what was learned or the memory at the peak.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.models.layer_facts import FitResult
from profnb.compare.best_setting import Ranking, rank
from profnb.compare.estimates import Estimate, estimate_mean
from profnb.compare.quality import is_higher_better, pick_metric
from profnb.compare.rounds import RoundFit, fit_rounds, of_single_runs
from profnb.compare.speedup import estimate_step
from profnb.compare.sweep_words import ranking_notes, seed_note
from profnb.core.columns import Bools, Floats
from profnb.core.units import PS_PER_S
from profnb.subjects.study import Study

_LONGEST_ERROR = 600
_EQUAL_MEMORY = 0.01
_SAME = 1e-9  # of logarithms: what rounding makes


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One setting and its runs.

    Attributes:
        setting: The names that were bound, and to what.
        step_ps: For each run the times from step to step, warm-up left out; empty where there are no steps.
        run_ps: How long each run took as a whole.
        step_rounds: For each run with steps the round in which it was made; 0, 1, ... by default.
        run_rounds: The same for the runs as a whole.
        was_traced: Whether those steps were under trace, which slows them.
        batch_size: Examples per step; None where it is not known.
        fits: For each run what its fits reached.
        peak_bytes: Most memory in use; NaN where no allocator was recorded.
        error: Why there are no more runs, or "".
    """

    setting: Mapping[str, object]
    step_ps: Sequence[Floats] = ()
    run_ps: Sequence[float] = ()
    was_traced: bool = False
    batch_size: int | None = None
    fits: Sequence[Sequence[FitResult]] = ()
    peak_bytes: float = float("nan")
    error: str = ""
    step_rounds: Sequence[int] = ()
    run_rounds: Sequence[int] = ()

    @property
    def runs(self) -> int:
        """How many runs were made and count."""
        return max(sum(1 for steps in self.step_ps if len(steps)), len(self.run_ps))

    @property
    def typical_ps(self) -> float:
        """The typical time of a step, or of a run where there are no steps; NaN where there is neither."""
        medians = [float(np.median(steps)) for steps in self.step_ps if len(steps) > 1]
        times = np.maximum(medians or list(self.run_ps), 1.0)
        return float(np.exp(np.log(times).mean())) if times.size else math.nan


@dataclass(frozen=True)
class SweepTable:
    """N settings in the order they were given.

    Attributes:
        points: The settings.
        unit: What is counted per second: "examples", "steps" where a batch size is not known, or "runs" where
            there are no steps.
        step_ps: The typical time of a step (of a run, where there are no steps), shape (N,); NaN if none.
        per_second: Throughput, shape (N,).
        low: Where its 95 % interval begins, shape (N,).
        high: Where it ends.
        metric: The metric of what was learned; None where there is none.
        quality: The median over runs of its last value, shape (N,).
        worst: The worst run's, shape (N,).
        memory: Bytes in use at the peak, shape (N,).
        against: What the front weighs throughput against: the metric, "memory", or "" for neither.
        is_best: Which settings are on the front; by throughput alone where nothing can be weighed against it.
        equals: How many other settings may be as fast as the fastest one.
        ranking: How they stand to the fastest one; None where none has a run.
        rounds: How many rounds tell it; 1 where settings were run once.
        notes: What to know before trusting the figures, in sentences.
    """

    points: Sequence[SweepPoint]
    unit: str
    step_ps: Floats
    per_second: Floats
    low: Floats
    high: Floats
    metric: str | None
    quality: Floats
    worst: Floats
    memory: Floats
    against: str
    is_best: Bools
    equals: int
    ranking: Ranking | None = None
    rounds: int = 1
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.points)

    @property
    def names(self) -> list[str]:
        """The names that the settings bind, in order."""
        return list(dict.fromkeys(name for point in self.points for name in point.setting))

    @property
    def is_score(self) -> bool:
        """Whether larger values of the metric are better."""
        return self.metric is not None and is_higher_better(self.metric) is True


def setting_text(setting: Mapping[str, object]) -> str:
    """A setting as it is written: ``batch_size=64 jit_compile=True``."""
    return " ".join(f"{name}={value}" for name, value in setting.items())


def _one_line(error: str) -> str:
    """An error without its line breaks, cut where it is long."""
    return " ".join(error.split())[:_LONGEST_ERROR]


def peak_bytes(study: Study) -> float:
    """Most memory in use at once, of a device if there is one; NaN where no allocator was recorded."""
    uses = study.memory.use
    chosen = [use for use in uses if use.allocator.is_device] or list(uses)
    return max((float(use.peak_bytes) for use in chosen), default=float("nan"))


def tabulate_sweep(
    points: Sequence[SweepPoint],
    metric: str | None = None,
    without_effect: Collection[str] = (),
    remarks: Sequence[str] = (),
) -> SweepTable:
    """What each setting achieves.

    Args:
        points: The settings and their runs.
        metric: The metric that speaks for quality; by default the one a person would look at first.
        without_effect: Switches that changed nothing.
        remarks: What else to know before trusting the figures, in sentences.
    """
    unit = _unit_of(points)
    fit = _fit(points, unit)
    intervals = [fit.interval(row) for row in range(len(points))]
    bounds = np.exp([(fit.means[row], *each) for row, each in enumerate(intervals)]).reshape(-1, 3)
    sizes = [point.batch_size or 1 if unit == "examples" else 1 for point in points]
    counts = np.array(sizes, np.float64)
    if metric is None:
        names = dict.fromkeys(
            name
            for point in points
            for fits in point.fits
            for fit in fits[-1:]
            for name in fit.metrics
        )
        metric = pick_metric(list(names))
    learned = [_last_values(point, metric) for point in points]
    falls = metric is not None and is_higher_better(metric) is False
    worst_of = max if falls else min
    quality = np.array([float(np.median(values)) if values else math.nan for values in learned])
    memory = np.array([point.peak_bytes for point in points])
    rates = np.log(counts) - fit.means  # what is larger is better
    ranking = rank(fit, rates)
    against, prices = "", [Estimate(0.0, 0.0)] * len(points)
    settings = [point.setting for point in points]
    of_one_seed = seed_note(settings, learned, metric)
    if np.isfinite(quality).sum() > 1 and not of_one_seed:
        sign = -1 if falls else 1
        against = str(metric)
        prices = [estimate_mean([sign * value for value in values]) for values in learned]
    elif bounds.size and np.isfinite(memory[np.isfinite(bounds[:, 0])]).all():
        against = "memory"
        prices = [Estimate(-value, (_EQUAL_MEMORY * value) ** 2, 30) for value in memory.tolist()]
    is_best = _front(rates, fit, prices)
    labels = [setting_text(setting) for setting in settings]
    all_remarks = [*remarks, of_one_seed] if of_one_seed else remarks
    notes = (*all_remarks, *_notes(points, without_effect), *ranking_notes(labels, ranking, fit))
    equals = 0 if ranking is None else max(int(ranking.may_be_best.sum()) - 1, 0)
    per_second = counts * PS_PER_S / bounds[:, 0]
    return SweepTable(
        points, unit, bounds[:, 0], per_second,
        counts * PS_PER_S / bounds[:, 2], counts * PS_PER_S / bounds[:, 1],
        metric, quality, np.array([float(worst_of(values)) if values else math.nan for values in learned]),
        memory, against, is_best, equals, ranking, fit.rounds, notes,
    )  # fmt: skip


def _fit(points: Sequence[SweepPoint], unit: str) -> RoundFit:
    """The logarithms of the typical times of a step, or of a run where there are no steps, by rounds."""
    runs = [
        (row, at, math.log(max(value, 1.0)))
        for row, point in enumerate(points)
        for at, value in _times(point, unit)
    ]
    row, at, logs = np.array(runs, np.float64).reshape(-1, 3).T
    fit = fit_rounds(row.astype(np.int64), at.astype(np.int64), logs, len(points))
    return fit or of_single_runs([_estimate(point, unit) for point in points])


def _times(point: SweepPoint, unit: str) -> list[tuple[int, float]]:
    """The round and the typical time of each run."""
    if unit == "runs":
        rounds = point.run_rounds or range(len(point.run_ps))
        return list(zip(rounds, point.run_ps, strict=True))
    rounds = point.step_rounds or range(len(point.step_ps))
    steps = zip(rounds, point.step_ps, strict=True)
    return [(at, float(np.median(step_ps))) for at, step_ps in steps if len(step_ps) > 1]


def _estimate(point: SweepPoint, unit: str) -> Estimate:
    """The logarithm of a setting's typical time by its own runs, or by the steps of its only one."""
    if unit == "runs":
        return estimate_mean(np.log(np.maximum(point.run_ps, 1.0)).tolist())
    return estimate_step(point.step_ps)


def _unit_of(points: Sequence[SweepPoint]) -> str:
    tried = [point for point in points if point.run_ps or point.step_ps]
    if not tried or not all(any(len(steps) > 1 for steps in point.step_ps) for point in tried):
        return "runs"
    return "examples" if all(point.batch_size for point in tried) else "steps"


def _last_values(point: SweepPoint, metric: str | None) -> list[float]:
    """The metric's last value in each run that has it."""
    return [fits[-1].metrics[metric] for fits in point.fits if fits and metric in fits[-1].metrics]


def _front(rates: Floats, fit: RoundFit, prices: Sequence[Estimate]) -> Bools:
    """Which points no other beats: surely better in one respect, and not surely worse in the other.

    A difference that may be chance beats nobody.
    """
    measured = np.flatnonzero(np.isfinite(rates)).tolist()

    def is_faster(one: int, other: int) -> bool:
        return bool(rates[one] - rates[other] > fit.factor * fit.error(one, other) + _SAME)

    best = np.zeros(rates.size, np.bool_)
    for row in measured:
        best[row] = not any(
            (is_faster(other, row) and not prices[row].exceeds(prices[other]))
            or (prices[other].exceeds(prices[row]) and not is_faster(row, other))
            for other in measured
            if other != row
        )
    return best


def _notes(points: Sequence[SweepPoint], without_effect: Collection[str]) -> list[str]:
    failed = [point for point in points if point.error]
    notes = [f"{setting_text(point.setting)}: {_one_line(point.error)}" for point in failed[:3]]
    if without_effect:
        notes.append(
            f"{', '.join(sorted(without_effect))} had no effect: the cell gives the value itself, "
            "compiles no model, (prefetch) fits no tf.data.Dataset, (threads) imports no TensorFlow, or "
            "what would change it is missing in the installed version. Rows that differ in nothing else "
            "differ by chance."
        )
    if any(point.was_traced for point in points):
        notes.append(
            "Some settings have no untraced steps, so tracing slows theirs: run more steps, or --repeat 2."
        )
    if any(point.runs == 1 for point in points):
        notes.append(
            "One run of a setting tells its variation from step to step only; runs differ from each other "
            "too. --repeat 3 or more makes the intervals hold from run to run."
        )
    if any(fit.is_continued for point in points for fits in point.fits for fit in fits[-1:]):
        notes.append(
            "A model had been trained before its fit began: make it inside the cell, so that each setting "
            "starts afresh."
        )
    return notes
