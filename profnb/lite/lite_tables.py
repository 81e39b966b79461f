"""The tables of a LiteRT result, declared: its models, their ops, their layers."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from profnb.core.table import Table, columns_in
from profnb.core.units import MISSING, count_text, duration_text
from profnb.lite.findings import LiteLayer, LiteOp


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
    texts={"self_us": clock_text},
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
