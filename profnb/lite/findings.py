"""Models that were converted, run and judged, as values that are shown and saved.

Times are picoseconds, sizes bytes; what is not known is NaN or empty. Outputs and labels become accuracy or
error, what that of one model differs from another's, and agreement.

Source: Wilson (1927) for one share; Bonett and Price, "Adjusted Wald confidence interval for a difference of
binomial proportions based on paired data" (2012); Student's interval for means.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from profnb.compare.estimates import estimate_mean
from profnb.compare.speedup import estimate_step
from profnb.core.columns import Floats
from profnb.core.table import Table, columns_in
from profnb.core.units import MISSING, PS_PER_S, count_text, duration_text
from profnb.subjects.advising import Finding

KERAS = "Keras"
_Z = 1.96
_UNMEASURED = math.nan


class Interval(NamedTuple):
    """A value, or a difference, and where its 95 % interval begins and ends; NaN where it is not known."""

    value: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """There is a value."""
        return not math.isnan(self.value)

    @property
    def is_sure(self) -> bool:
        """The interval leaves out 0."""
        return not self.low <= 0 <= self.high


NO_INTERVAL = Interval(_UNMEASURED, _UNMEASURED, _UNMEASURED)


def judge_outputs(
    outputs_by_model: Mapping[str, Sequence[Any]], labels: Any, reference: str
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Judge models: accuracy or error, and how far they agree with one of them.

    Args:
        outputs_by_model: By model its outputs, each with a row per example; the first is judged.
        labels: Labels of those examples; None for none.
        reference: The model that others are compared with; it may be missing.

    Returns:
        What scores are, "" without labels; and by model the fields of its row.

    Raises:
        ValueError: The labels do not belong to these outputs.
    """
    expected = outputs_by_model.get(reference)
    ordered = {
        name: outputs if expected is None else _in_order(outputs, expected)
        for name, outputs in outputs_by_model.items()
    }
    first = next(iter(ordered.values()))
    metric = "" if labels is None else metric_of(labels, first[0])
    # From which output on a single one means class 1: 0.5 of probabilities, 0 of logits.
    is_probability = first[0].size and first[0].min() >= 0 and first[0].max() <= 1
    threshold = 0.5 if is_probability else 0.0
    figures: dict[str, dict[str, Any]] = {}
    for name, outputs in ordered.items():
        row: dict[str, Any] = {}
        figures[name] = row
        if metric:
            row["scores"] = tuple(_score_examples(labels, outputs[0], metric, threshold).tolist())
        if expected is not None and name != reference:
            one, other = outputs[0], expected[0]
            row["largest_difference"], row["mean_difference"] = _largest_and_mean(one, other)
            if one.ndim == 2 or one.size == len(one):  # else these are no classes
                same = _classes(one, threshold) == _classes(other, threshold)
                row["agreement_fraction"] = float(np.mean(same))
    return metric, figures


def _in_order(outputs: Sequence[Any], reference: Sequence[Any]) -> list[Any]:
    """A model's outputs in the order of the reference's: of the same shape, the nearest."""
    left, ordered = list(outputs), []
    for expected in reference:
        fitting = [one for one in left if one.shape == expected.shape]
        if not fitting:
            return list(outputs)
        distances = [_largest_and_mean(one, expected)[0] for one in fitting]
        nearest = fitting[distances.index(min(distances))]
        ordered.append(nearest)
        left = [one for one in left if one is not nearest]
    return ordered


def metric_of(labels: Any, outputs: Any) -> str:
    """Find what labels can be judged by: "accuracy" for classes, else "mean absolute error"."""
    if len(labels) != len(outputs):
        raise ValueError(
            f"{len(labels)} labels for {len(outputs)} examples: give one label for each example."
        )
    classes = outputs.shape[-1] if outputs.ndim == 2 else 0
    if classes > 1 and labels.size == len(labels):
        flat = labels.reshape(-1)
        if np.all(flat == np.round(flat)) and flat.min() >= 0 and flat.max() < classes:
            return "accuracy"
    if outputs.size == labels.size:
        is_class = np.all((labels == 0) | (labels == 1))
        if classes > 1 and labels.shape == outputs.shape:
            is_class &= np.all(labels.sum(axis=1) == 1)  # one-hot
        else:
            is_class &= outputs.size == len(outputs)
        return "accuracy" if is_class else "mean absolute error"
    raise ValueError(
        f"Labels of shape {tuple(labels.shape)} do not fit outputs of shape {tuple(outputs.shape)}."
    )


def _score_examples(labels: Any, outputs: Any, metric: str, threshold: float) -> Floats:
    """For each example 1 if its class is right, else 0; or its mean absolute error."""
    if metric != "accuracy":
        differences = np.abs(outputs.reshape(len(outputs), -1) - labels.reshape(len(labels), -1))
        return np.asarray(differences.mean(axis=1), np.float64)
    right = labels.argmax(axis=-1) if labels.size != len(labels) else labels.reshape(-1)
    return np.asarray(_classes(outputs, threshold) == right, np.float64)


def _classes(outputs: Any, threshold: float) -> Any:
    """The class of each example: of a single output whether it is more than the threshold."""
    is_single = outputs.size == len(outputs)
    return outputs.reshape(-1) > threshold if is_single else outputs.argmax(axis=-1)


def _largest_and_mean(outputs: Any, reference: Any) -> tuple[float, float]:
    """The largest and the mean absolute difference of two sets of outputs."""
    differences = np.abs(np.asarray(outputs, np.float64) - np.asarray(reference, np.float64))
    return float(differences.max()), float(differences.mean())


def share_interval(right: Floats) -> Interval:
    """Give a share and Wilson's 95 % interval; NaN of nothing."""
    count = len(right)
    if not count:
        return NO_INTERVAL
    share, whole = float(np.mean(right)), 1 + _Z**2 / count
    centre = (share + _Z**2 / (2 * count)) / whole
    reach = math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) * _Z / whole
    return Interval(share, max(centre - reach, 0.0), min(centre + reach, 1.0))


def mean_interval(values: Floats) -> Interval:
    """Give a mean and Student's 95 % interval; NaN of nothing."""
    estimate = estimate_mean(list(values))
    return Interval(estimate.mean, *estimate.interval)


def paired_price(one: Floats, base: Floats, *, is_score: bool) -> Interval:
    """Give the mean of the differences, example by example."""
    if not is_score:
        return mean_interval(one - base)
    count = len(one)
    gained, lost = float(np.sum(one > base)), float(np.sum(one < base))
    more, less = (gained + 1) / (count + 2), (lost + 1) / (count + 2)
    reach = _Z * math.sqrt((more + less - (more - less) ** 2) / (count + 2))
    low, high = max(more - less - reach, -1.0), min(more - less + reach, 1.0)
    return Interval((gained - lost) / count, low, high)


@dataclass(frozen=True)
class LiteModel:
    """One model, as it was run; its fields are the columns of ``LITE_MODELS``.

    Attributes:
        kind: How it was converted, "Keras" for the model itself, or the name of a file.
        threads: Threads of the interpreter; 0 where another library decides.
        round_ps: For each round the median time of a run, in the order of the rounds.
        scores: For each example 1 if its class is right, else 0; or its mean absolute error. Empty without
            data.
        ops: How many ops it has, those that only unpack weights left out; 0 where that is not known.
    """

    name: str
    kind: str
    threads: int = 0
    bytes: float = _UNMEASURED
    compressed_bytes: float = _UNMEASURED
    conversion_ps: float = _UNMEASURED
    round_ps: Sequence[float] = ()
    memory_bytes: float = _UNMEASURED
    scores: Sequence[float] = ()
    agreement_fraction: float = _UNMEASURED
    largest_difference: float = _UNMEASURED
    mean_difference: float = _UNMEASURED
    ops: int = 0
    delegated_ops: int = 0
    delegated_fraction: float = _UNMEASURED
    profiled_ps: float = _UNMEASURED
    error: str = ""

    @property
    def latency_ps(self) -> float:
        """The median time of a run."""
        return float(np.median(self.round_ps)) if len(self.round_ps) else _UNMEASURED

    @cached_property
    def latency(self) -> Interval:
        """The median time of a run and its 95 % interval, in picoseconds."""
        if not len(self.round_ps):
            return NO_INTERVAL
        low, high = estimate_step([np.array(self.round_ps)]).interval
        return Interval(self.latency_ps, math.exp(low), math.exp(high))


@dataclass(frozen=True)
class LiteOp:
    """One op of a model.

    Its fields are the columns of ``LITE_OPS``.
    """

    model: str
    index: int
    op_type: str
    layer: str
    fused: str = ""
    shape: str = ""
    dtype: str = ""
    kernel: str = ""
    kernel_name: str = ""
    self_ps: float = _UNMEASURED


@dataclass(frozen=True)
class LiteLayer:
    """One layer in one model.

    Its fields are the columns of ``LITE_LAYERS``.
    """

    layer: str
    layer_type: str
    model: str
    self_ps: float = _UNMEASURED
    ops: int = 0
    error_fraction: float = _UNMEASURED
    clipped_fraction: float = _UNMEASURED


@dataclass(frozen=True)
class LiteFindings:
    """All of it.

    Attributes:
        title: The model's name.
        environment: What interpreted, and on what.
        models: The rows; the Keras model is the first where there is one.
        ops: The ops of all models.
        layers: The layers of all models.
        metric: What ``scores`` are: "accuracy", "mean absolute error", or "" without data.
        batch_size: Examples of a run.
        examples: How many were judged.
        data_digest: Tells whether two results are of the same data.
        advice: What to change.
        notes: What to know before trusting the figures.
    """

    title: str
    environment: dict[str, str] = field(default_factory=dict)
    models: tuple[LiteModel, ...] = ()
    ops: tuple[LiteOp, ...] = ()
    layers: tuple[LiteLayer, ...] = ()
    metric: str = ""
    batch_size: int = 1
    examples: int = 0
    data_digest: str = ""
    advice: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_score(self) -> bool:
        """Larger is better."""
        return self.metric == "accuracy"

    @property
    def measured(self) -> list[LiteModel]:
        """The models for the device that ran."""
        return [one for one in self.models if len(one.round_ps) and one.kind != KERAS]

    @property
    def base(self) -> LiteModel | None:
        """The model that others are compared with: float32, or the first that ran."""
        measured = self.measured
        return next((m for m in measured if m.kind == "float32"), measured[0] if measured else None)

    def speedup(self, one: LiteModel, base: LiteModel | None = None) -> Interval:
        """Give how many times as fast as the base it is: the median over rounds, and its 95 % interval."""
        base = base or self.base
        if base is None or not len(one.round_ps) or len(one.round_ps) != len(base.round_ps):
            return NO_INTERVAL
        estimate = estimate_step([np.array(base.round_ps) / np.array(one.round_ps)])
        return Interval(*(math.exp(log) for log in (estimate.mean, *estimate.interval)))

    def quality(self, one: LiteModel) -> Interval:
        """Give accuracy or error on the data, and its 95 % interval."""
        scores = np.array(one.scores)
        return share_interval(scores) if self.is_score else mean_interval(scores)

    def price(self, one: LiteModel, base: LiteModel | None = None) -> Interval:
        """Compare the metric with the base's, example by example: positive where it is larger."""
        base = base or self.base
        if base is None or not one.scores or len(one.scores) != len(base.scores):
            return NO_INTERVAL
        return paired_price(np.array(one.scores), np.array(base.scores), is_score=self.is_score)

    @cached_property
    def rows(self) -> list[SimpleNamespace]:
        """The models with all that follows from their values, for the table."""
        return [
            SimpleNamespace(
                model=one,
                per_second=self.batch_size * PS_PER_S / one.latency_ps,
                speedup=self.speedup(one),
                quality=self.quality(one) if self.metric else NO_INTERVAL,
                price=self.price(one),
                ops=float(one.ops) if one.ops else _UNMEASURED,
                delegated_ops=float(one.delegated_ops) if one.ops else _UNMEASURED,
            )
            for one in self.models
        ]


def clock_text(time_ps: float) -> str:
    """Write a time of the profiler, which counts whole microseconds: none counted is less than one."""
    return "<1 µs" if time_ps == 0 else duration_text(time_ps)


def _small(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.2g}"


def _rate(per_second: float) -> str:
    return MISSING if math.isnan(per_second) else count_text(round(per_second, 1))


LITE_MODELS = Table[Sequence[SimpleNamespace]](
    "models",
    "One row per model that ran: the Keras model first, then each kind, with each number of threads.",
    columns_in("""
        model = model.name: the kind, with its threads where there are several
        bytes [size] = model.bytes: size of the file
        compressed_bytes [compressed] = model.compressed_bytes: its size compressed with gzip
        latency_ms [latency] = model.latency_ps: median time of a run
        latency_low_ms = model.latency.low: where the median's 95 % interval begins
        latency_high_ms = model.latency.high: where it ends
        examples_per_second [examples/s] = per_second: throughput
        speedup [speed-up] = speedup.value: times as fast as float32, round by round; its median
        speedup_low = speedup.low: where its 95 % interval begins
        speedup_high = speedup.high: where it ends
        memory_bytes [peak memory] = model.memory_bytes: most memory that opening it and one run took
        metric = quality.value: accuracy, or mean absolute error, on the data
        metric_low = quality.low: where its 95 % interval begins
        metric_high = quality.high: where it ends
        metric_difference = price.value: the metric less that of float32, in pairs
        difference_low = price.low: where the difference's 95 % interval begins
        difference_high = price.high: where it ends
        agreement_fraction [same class as Keras] = model.agreement_fraction: share of examples with the
            class that the Keras model gives
        largest_difference = model.largest_difference: largest difference of its outputs from the Keras
            model's
        mean_difference = model.mean_difference: ... and the mean
        ops: how many ops it has
        delegated_ops: how many of them XNNPACK runs
        delegated_fraction [in XNNPACK] = model.delegated_fraction: share of the ops' time in XNNPACK, under
            the profiler
        profiled_ms = model.profiled_ps: mean time of a run under the profiler
        conversion_ms [conversion] = model.conversion_ps: what converting took
        error = model.error: why there is no more
        """),
    owner="lite",
    texts={"examples_per_second": _rate, "largest_difference": _small, "mean_difference": _small},
)


def _fraction(ops: Sequence[LiteOp]) -> list[float]:
    whole: dict[str, float] = {}
    for op in ops:
        if not math.isnan(op.self_ps):
            whole[op.model] = whole.get(op.model, 0.0) + op.self_ps
    return [op.self_ps / whole[op.model] if whole.get(op.model) else math.nan for op in ops]


LITE_OPS = Table[Sequence[LiteOp]](
    "ops",
    "One row per op of each model, in the order of the model.",
    columns_in("""
        model: which model
        op_index = index: its place in the model
        op_type [op]: its type
        layer: the Keras layer that it came from; the scope in its name for a file
        fused: further layers that were folded into it
        shape: shape of what it gives
        dtype [type]: type of what it gives
        kernel: who runs it: "XNNPACK", "built-in", "custom", or "folded" (unpacks weights once)
        kernel_name [XNNPACK's name]: what XNNPACK runs for it
        self_us [time]: mean time in a run under the profiler; 0 where it is less than a microsecond or part
            of another
        self_fraction [share]: its share of the time of the model's ops
        """),
    owner="lite",
    values={"self_fraction": _fraction},
    texts={"self_us": clock_text},
)
LITE_LAYERS = Table[Sequence[LiteLayer]](
    "layers",
    "One row per layer of each model, in the order of the model.",
    columns_in("""
        model: which model
        layer: the Keras layer; the scope in its ops' names for a file
        layer_type: its class
        ops: how many ops it has
        self_us [time]: time of its ops in a run under the profiler
        error_fraction [error]: how far its output is from that of float32 for a few examples: root mean
            square of the differences over that of the values
        clipped_fraction [clipped]: share of float32's values that its type and scale cannot hold
        """),
    owner="lite",
)


LITE_DIFFERENCES = Table[Sequence[Any]](
    "kinds",
    "One row per kind in both LiteRT results, in the order of A.",
    columns_in("""
        model = name: the kind
        first_ms = first.latency_ps: median time of a run in A
        second_ms = second.latency_ps: ... and in B
        ratio = time.ratio: time of B over that of A; below 1 B is faster
        low = time.low: where its 95 % interval begins
        high = time.high: where it ends
        first_bytes = first.bytes: size of the file in A
        second_bytes = second.bytes: ... and in B
        metric_difference = price.value: the metric of B less that of A, in pairs
        difference_low = price.low: where its 95 % interval begins
        difference_high = price.high: where it ends
        """),
    owner="c",
)
