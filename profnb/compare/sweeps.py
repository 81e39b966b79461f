"""The runs of a sweep to what each setting achieves: throughput and its interval, quality, memory, the front.

A setting is on the Pareto front if no other is surely better in one respect and not surely worse in the
other: throughput, and either the metric of what was learned or the memory at the peak. Beside the table
stands what the sweep can tell and what it cannot, in sentences: ties, what more rounds would show, its power.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.models.layer_facts import FitResult
from profnb.capture.switches import BACKEND
from profnb.compare.differences import listed
from profnb.compare.estimates import Estimate, estimate_mean
from profnb.compare.quality import is_higher_better, pick_metric
from profnb.compare.ranking import MOST_ROUNDS, TINY, Ranking, RoundFit, fit_rounds, one_round, rank
from profnb.compare.speedup import estimate_step
from profnb.core.columns import Bools, Floats, RowColumns
from profnb.core.table import Column, Table, field_column
from profnb.core.units import MISSING, PS_PER_S, count_text, metric_text
from profnb.subjects.study import Study

_LONGEST_ERROR = 600
_EQUAL_MEMORY = 0.01
_TIE, _MOST_VALUES_NAMED, _LONGEST_SETTING = math.log(1.02), 3, 60
_NO_CHANCE = 1e-4  # a difference below which nothing was left to chance


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
        """Count the runs that were made and count."""
        return max(sum(1 for steps in self.step_ps if len(steps)), len(self.run_ps))

    @property
    def has_steps(self) -> bool:
        """A run has steps to speak of."""
        return any(len(steps) > 1 for steps in self.step_ps)

    def times(self, *, of_runs: bool) -> list[tuple[int, float]]:
        """Give the round of each run and its typical step, or how long it took as a whole."""
        if of_runs:
            rounds = self.run_rounds or range(len(self.run_ps))
            return list(zip(rounds, self.run_ps, strict=True))
        steps = zip(self.step_rounds or range(len(self.step_ps)), self.step_ps, strict=True)
        return [(at, float(np.median(step_ps))) for at, step_ps in steps if len(step_ps) > 1]

    @property
    def typical_ps(self) -> float:
        """The typical time of a step, or of a run where there are no steps; NaN where there is neither."""
        times = [time_ps for _, time_ps in self.times(of_runs=not self.has_steps)]
        return float(np.exp(np.log(np.maximum(times, 1.0)).mean())) if times else math.nan


@dataclass(frozen=True)
class SweepTable(RowColumns):
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

    @property
    def names(self) -> list[str]:
        """List the names that the settings bind, in order."""
        return list(dict.fromkeys(name for point in self.points for name in point.setting))

    @property
    def timed(self) -> list[int]:
        """List the settings that have a time."""
        return np.flatnonzero(np.isfinite(self.per_second)).tolist()


def setting_text(setting: Mapping[str, object]) -> str:
    """Write a setting: ``batch_size=64 jit_compile=True``."""
    return " ".join(f"{name}={value}" for name, value in setting.items())


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
    """Tabulate what each setting achieves.

    Args:
        points: The settings and their runs.
        metric: The metric that speaks for quality; by default the one a person would look at first.
        without_effect: Switches that changed nothing.
        remarks: What else to know before trusting the figures, in sentences.
    """
    tried = [point for point in points if point.run_ps or point.step_ps]
    unit = "examples" if all(point.batch_size for point in tried) else "steps"
    if not tried or not all(point.has_steps for point in tried):
        unit = "runs"
    fit = _fit(points, of_runs=unit == "runs")
    sizes = [point.batch_size or 1 if unit == "examples" else 1 for point in points]
    counts = np.array(sizes, np.float64)
    bounds = [(mean, *fit.interval(row)) for row, mean in enumerate(fit.means)]
    step_ps, least_ps, most_ps = np.exp(bounds).reshape(-1, 3).T
    if metric is None:
        reached = [fits[-1] for point in points for fits in point.fits if fits]
        metric = pick_metric(list(dict.fromkeys(name for fit in reached for name in fit.metrics)))
    learned = [
        [fits[-1].metrics[metric] for fits in point.fits if fits and metric in fits[-1].metrics]
        for point in points
    ]
    falls = metric is not None and is_higher_better(metric) is False
    quality, worst = (
        np.array([float(of(values)) if values else math.nan for values in learned])
        for of in (np.median, max if falls else min)
    )
    memory = np.array([point.peak_bytes for point in points])
    rates = np.log(counts) - fit.means  # what is larger is better
    ranking = rank(fit, rates)
    against, prices = "", [Estimate(0.0, 0.0)] * len(points)
    settings = [point.setting for point in points]
    of_one_seed = _seed_notes(settings, learned, metric)
    if np.isfinite(quality).sum() > 1 and not of_one_seed:
        sign = -1 if falls else 1
        against = str(metric)
        prices = [estimate_mean([sign * value for value in values]) for values in learned]
    elif points and np.isfinite(memory[np.isfinite(step_ps)]).all():
        against = "memory"
        prices = [Estimate(-value, (_EQUAL_MEMORY * value) ** 2, 30) for value in memory.tolist()]
    of_ranks = _ranking_notes(list(map(setting_text, settings)), ranking, fit)
    notes = (*remarks, *of_one_seed, *_notes(points, without_effect), *of_ranks)
    rate = counts * PS_PER_S
    return SweepTable(
        points, unit, step_ps, rate / step_ps, rate / most_ps, rate / least_ps, metric, quality, worst,
        memory, against, _front(rates, fit, prices),
        0 if ranking is None else max(int(ranking.may_be_best.sum()) - 1, 0), ranking, fit.rounds, notes,
    )  # fmt: skip


def _fit(points: Sequence[SweepPoint], *, of_runs: bool) -> RoundFit:
    """The logarithms of the typical times of a step, or of a run where there are no steps, by rounds."""
    runs = [
        (row, at, math.log(max(value, 1.0)))
        for row, point in enumerate(points)
        for at, value in point.times(of_runs=of_runs)
    ]
    row, at, logs = np.array(runs, np.float64).reshape(-1, 3).T
    fit = fit_rounds(row.astype(np.int64), at.astype(np.int64), logs, len(points))
    # Else by the setting's own runs, or by the steps of its only one.
    return fit or one_round([
        estimate_mean(np.log(np.maximum(point.run_ps, 1.0)).tolist()) if of_runs
        else estimate_step(point.step_ps)
        for point in points
    ])  # fmt: skip


def _front(rates: Floats, fit: RoundFit, prices: Sequence[Estimate]) -> Bools:
    """Find the points that no other beats: surely better in one respect, and not surely worse in the other.

    A difference that may be chance beats nobody.
    """
    measured = np.flatnonzero(np.isfinite(rates)).tolist()
    is_faster = rates[:, None] - rates > fit.factor * fit.errors + TINY
    best = np.zeros(rates.size, np.bool_)
    for row in measured:
        best[row] = not any(
            (is_faster[other, row] and not prices[row].exceeds(prices[other]))
            or (prices[other].exceeds(prices[row]) and not is_faster[row, other])
            for other in measured
            if other != row
        )
    return best


def _notes(points: Sequence[SweepPoint], without_effect: Collection[str]) -> Iterator[str]:
    for point in [point for point in points if point.error][:3]:
        error = " ".join(point.error.split())[:_LONGEST_ERROR]
        yield f"{setting_text(point.setting)}: {error}"
    if without_effect:
        names = ", ".join(sorted(without_effect))
        yield (
            f"{names} had no effect: rows that differ only in {names} differ by chance. Perhaps the cell "
            "sets the value, compiles no model, fits no tf.data.Dataset (prefetch) or imports no TensorFlow "
            "(threads). Or the installed version cannot change the value."
        )
    if any(point.was_traced for point in points):
        yield "Tracing slows the settings without untraced steps: run more steps, or --repeat 2."
    if any(point.runs == 1 for point in points):
        yield (
            "One run of a setting shows only the variation from step to step. --repeat 3 or more makes the "
            "intervals hold from run to run."
        )
    if any(fit.is_continued for point in points for fits in point.fits for fit in fits[-1:]):
        yield (
            "A model was trained before its fit began. Make the model inside the cell, for a fresh start of "
            "each setting."
        )


def _ranking_notes(labels: Sequence[str], ranking: Ranking | None, fit: RoundFit) -> Iterator[str]:
    """Settings that may be as fast as the fastest one, and what such a sweep shows."""
    if ranking is None or fit.rounds < 2 or fit.timed_count < 2:
        return
    others = [int(row) for row in ranking.may_be_best.nonzero()[0] if row != ranking.best]

    def named(rows: Sequence[int]) -> str:
        return listed([labels[row][:_LONGEST_SETTING] for row in rows], _MOST_VALUES_NAMED)

    ties = [row for row in others if ranking.high[row] <= _TIE]
    separable = [row for row in others if row not in ties and ranking.more_rounds[row] > 0]
    close = [row for row in others if row not in ties and ranking.more_rounds[row] < 0]
    if ties:
        yield (
            f"A tie: {named(ties)} {'is' if len(ties) == 1 else 'are'} at most "
            f"{slower_text(float(ranking.high[ties].max()))} slower than "
            f"{labels[ranking.best][:_LONGEST_SETTING]}, if at all."
        )
    if separable:
        rounds = int(ranking.more_rounds[separable].max())
        yield (
            f"{count_text(rounds)} more round{'s' if rounds > 1 else ''} (--repeat) would tell "
            f"{named(separable)} from the fastest, with a chance of 80 %."
        )
    if close:
        yield f"{named(close)}: too close to the fastest to tell apart, even with {MOST_ROUNDS} more rounds."
    if math.isfinite(ranking.shows) and ranking.shows > _NO_CHANCE:
        yield (
            f"{fit.rounds} rounds find a setting that is {slower_text(ranking.shows)} slower with a chance "
            "of 80 %. Smaller differences need more rounds (--repeat)."
        )


def _seed_notes(
    settings: Sequence[Mapping[str, object]], learned: Sequence[Sequence[float]], metric: str | None
) -> list[str]:
    """That what backends learned is one draw each; nothing where it is not."""
    pairs = zip(settings, learned, strict=True)
    backends = {setting.get(BACKEND) for setting, runs in pairs if runs}
    if len(backends) < 2 or not any(len(runs) > 1 and len(set(runs)) == 1 for runs in learned):
        return []
    return [
        "Every run of a backend learned exactly the same, as the cell sets a seed. From one seed each "
        f"backend makes different random numbers. So differences in {metric} may be chance and do not count."
    ]


def slower_text(log: float) -> str:
    """Write how much slower a difference of logarithms is."""
    value = 100 * (1 - math.exp(-log))
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def settings_table(sweep: SweepTable) -> Table[SweepTable]:
    """Declare the table of a sweep, whose columns depend on what was swept, counted and learned.

    Sweeping ``batch_size`` over fits that learn an accuracy gives ``batch_size, runs, step_ms,
    examples_per_second, low, high, accuracy, accuracy_worst, peak_bytes, is_best, error``.
    """

    def setting(name: str) -> Column[SweepTable]:
        values = [point.setting.get(name) for point in sweep.points]
        return Column(name, lambda _: values, "what was set", is_scaled=True)

    def text(value: float) -> str:
        return metric_text(value, is_score=is_higher_better(sweep.metric or "") is True)

    def rate(per_second: float) -> str:
        return count_text(round(float(per_second))) if math.isfinite(per_second) else MISSING

    unit, metric, learned = sweep.unit, sweep.metric, []
    step, typical = "run_ms" if unit == "runs" else "step_ms", "typical time of a step"
    if metric is not None:
        worst = f"{metric}_worst"
        learned = [
            field_column(metric, "its median", metric, text, of="quality", is_scaled=True),
            field_column(worst, "... its worst run", "worst", text, of="worst", is_scaled=True),
        ]
    front = "whether it is on the front of throughput against the metric or memory"
    columns = [
        *map(setting, sweep.names),
        field_column("runs", "how many runs count", of="points.runs"),
        field_column(step, f"{typical}, or of a run where there are no steps", of="step_ps"),
        field_column(f"{unit}_per_second", "throughput", f"{unit}/s", rate, of="per_second"),
        field_column("low", "where the 95 % interval of the throughput begins"),
        field_column("high", "where it ends"),
        *learned,
        field_column("peak_bytes", "most memory in use", "peak memory", of="memory"),
        field_column("is_best", front),
        field_column("error", "why it has no more runs", of="points.error"),
    ]
    distinct = {column.name: column for column in columns}  # a setting may be called "runs"
    rows = "One row per setting, in the order they were given."
    return Table("table", rows, tuple(distinct.values()))
