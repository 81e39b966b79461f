"""What is known of models that were converted, run and judged: the values that are shown and saved.

Times are picoseconds, sizes bytes; what is not known is NaN or empty.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from profnb.compare.estimates import Estimate
from profnb.compare.speedup import estimate_step
from profnb.lite.judging import Price, mean_interval, paired_price, share_interval
from profnb.subjects.advising import Finding

KERAS = "Keras"
_UNKNOWN = math.nan


@dataclass(frozen=True)
class LiteModel:
    """One model, as it was run: a row of the table.

    Attributes:
        name: What it is called: its kind, with the number of threads where there are several.
        kind: How it was converted, "Keras" for the model itself, or the name of a file.
        threads: Threads of the interpreter; 0 where another library decides.
        bytes: Size of the file; NaN for the Keras model.
        compressed_bytes: The same, compressed with gzip.
        conversion_ps: What converting took.
        round_ps: For each round the median time of a run, in the order of the rounds.
        memory_bytes: Most memory that opening it and one run took.
        scores: For each example 1 if its class is right, else 0; or its mean absolute error. Empty without
        data.
        agreement_fraction: Share of examples with the class that the Keras model gives.
        largest_difference: Between its outputs and those of the Keras model.
        mean_difference: The mean of those.
        ops: How many ops it has, those that only unpack weights left out; 0 where that is not known.
        delegated_ops: How many of them a delegate took.
        delegated_fraction: Share of the ops' time in the delegate.
        profiled_ps: Mean time of a run under the profiler.
        error: Why there is no more, or "".
    """

    name: str
    kind: str
    threads: int = 0
    bytes: float = _UNKNOWN
    compressed_bytes: float = _UNKNOWN
    conversion_ps: float = _UNKNOWN
    round_ps: Sequence[float] = ()
    memory_bytes: float = _UNKNOWN
    scores: Sequence[float] = ()
    agreement_fraction: float = _UNKNOWN
    largest_difference: float = _UNKNOWN
    mean_difference: float = _UNKNOWN
    ops: int = 0
    delegated_ops: int = 0
    delegated_fraction: float = _UNKNOWN
    profiled_ps: float = _UNKNOWN
    error: str = ""

    @cached_property
    def _latency(self) -> Estimate:
        return estimate_step([np.array(self.round_ps)])

    @property
    def latency_ps(self) -> float:
        """The median time of a run."""
        return float(np.median(self.round_ps)) if len(self.round_ps) else _UNKNOWN

    @property
    def latency_interval(self) -> tuple[float, float]:
        """The 95 % interval of the median, in picoseconds."""
        low, high = self._latency.interval
        return math.exp(low), math.exp(high)


@dataclass(frozen=True)
class LiteOp:
    """One op of a model.

    Attributes:
        model: The model's name.
        index: Its place in the model.
        op_type: Its type, such as CONV_2D.
        layer: The Keras layer it came from, or the scope in its name where no Keras model is at hand.
        fused: Further layers that were folded into it, separated by commas.
        shape: The shape of what it gives, as text.
        dtype: The type of what it gives.
        kernel: "XNNPACK", "built-in", "custom", or "folded" for what only unpacks weights.
        kernel_name: What the delegate calls what it runs for it; "" where nothing tells.
        self_ps: Mean time in a run under the profiler; NaN where it was not profiled.
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
    self_ps: float = _UNKNOWN


@dataclass(frozen=True)
class LiteLayer:
    """One layer in one model.

    Attributes:
        layer: Its name.
        layer_type: Its class; "" where no Keras model is at hand.
        model: The model's name.
        self_ps: Time of its ops in a run under the profiler; NaN where it was not profiled.
        ops: How many ops it has.
        error_fraction: How far its output is from that of the float model: root of the mean square of the
            differences over that of the values, for a few examples.
        clipped_fraction: Share of the float model's values, for examples that were not used to calibrate,
            outside of what the output can hold.
    """

    layer: str
    layer_type: str
    model: str
    self_ps: float = _UNKNOWN
    ops: int = 0
    error_fraction: float = _UNKNOWN
    clipped_fraction: float = _UNKNOWN


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
        """Whether larger is better."""
        return self.metric == "accuracy"

    @property
    def measured(self) -> list[LiteModel]:
        """The models for the device that ran."""
        return [one for one in self.models if len(one.round_ps) and one.kind != KERAS]

    @property
    def base(self) -> LiteModel | None:
        """What the others are compared with: float32, or the first that ran."""
        return next(
            (m for m in self.measured if m.kind == "float32"), next(iter(self.measured), None)
        )

    def speedup(self, one: LiteModel, base: LiteModel | None = None) -> tuple[float, float, float]:
        """How many times as fast as the base: the median over rounds, and its 95 % interval."""
        base = base or self.base
        if base is None or not len(one.round_ps) or len(one.round_ps) != len(base.round_ps):
            return _UNKNOWN, _UNKNOWN, _UNKNOWN
        ratios = np.array(base.round_ps) / np.array(one.round_ps)
        estimate = estimate_step([ratios])
        low, high = estimate.interval
        return math.exp(estimate.mean), math.exp(low), math.exp(high)

    def quality(self, one: LiteModel) -> tuple[float, float, float]:
        """Accuracy or error on the data, and its 95 % interval."""
        scores = np.array(one.scores)
        return share_interval(scores) if self.is_score else mean_interval(scores)

    def price(self, one: LiteModel, base: LiteModel | None = None) -> Price | None:
        """How much the metric differs from the base's, example by example; None where that is not known."""
        base = base or self.base
        if base is None or not one.scores or len(one.scores) != len(base.scores):
            return None
        return paired_price(np.array(one.scores), np.array(base.scores), is_score=self.is_score)
