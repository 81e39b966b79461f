"""The tables of a LiteRT result, declared: its models, their ops, their layers."""

import math
from collections.abc import Sequence
from typing import Any

from profnb.compare.differences import columns_of
from profnb.core.table import Column, Table
from profnb.core.units import MISSING, count_text, duration_text
from profnb.lite.findings import LiteFindings

_INTERVAL_BEGINS = "where its 95 % interval begins"


def clock_text(time_ps: float) -> str:
    """Write a time of the profiler, which counts whole microseconds: none counted is less than one."""
    return "<1 µs" if time_ps == 0 else duration_text(time_ps)


def _fields(rows: str, *declared: tuple[Any, ...]) -> tuple[Column[LiteFindings], ...]:
    """Columns of fields of the findings' rows, ops or layers: of each its name, the field, and so on."""
    return columns_of(*((name, f"{rows}.{field}", *rest) for name, field, *rest in declared))


def _small(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.2g}"


def _rate(per_second: float) -> str:
    return MISSING if math.isnan(per_second) else count_text(round(per_second, 1))


_SAME_CLASS = "share of examples with the class that the Keras model gives"
_LARGEST_DIFFERENCE = "largest difference of its outputs from the Keras model's"
_DELEGATED = "share of the ops' time in XNNPACK, under the profiler"
_MEMORY_TAKEN = "most memory that opening it and one run took"
_FASTER = "times as fast as float32, round by round; its median"
LITE_MODELS: Table[LiteFindings] = Table(
    "models",
    "One row per model that ran: the Keras model first, then each kind, with each number of threads.",
    _fields(
        "rows",
        ("model", "model.name", "the kind, with its threads where there are several"),
        ("bytes", "model.bytes", "size of the file", "size"),
        (
            "compressed_bytes",
            "model.compressed_bytes",
            "its size compressed with gzip",
            "compressed",
        ),
        ("latency_ms", "model.latency_ps", "median time of a run", "latency"),
        ("latency_low_ms", "model.latency.low", "where the median's 95 % interval begins"),
        ("latency_high_ms", "model.latency.high", "where it ends"),
        ("examples_per_second", "per_second", "throughput", "examples/s", _rate),
        ("speedup", "speedup.value", _FASTER, "speed-up"),
        ("speedup_low", "speedup.low", _INTERVAL_BEGINS),
        ("speedup_high", "speedup.high", "where it ends"),
        ("memory_bytes", "model.memory_bytes", _MEMORY_TAKEN, "peak memory"),
        ("metric", "quality.value", "accuracy, or mean absolute error, on the data"),
        ("metric_low", "quality.low", _INTERVAL_BEGINS),
        ("metric_high", "quality.high", "where it ends"),
        ("metric_difference", "price.value", "the metric less that of float32, in pairs"),
        ("difference_low", "price.low", "where the difference's 95 % interval begins"),
        ("difference_high", "price.high", "where it ends"),
        ("agreement_fraction", "model.agreement_fraction", _SAME_CLASS, "same class as Keras"),
        ("largest_difference", "model.largest_difference", _LARGEST_DIFFERENCE, "", _small),
        ("mean_difference", "model.mean_difference", "... and the mean", "", _small),
        ("ops", "ops", "how many ops it has"),
        ("delegated_ops", "delegated_ops", "how many of them XNNPACK runs"),
        ("delegated_fraction", "model.delegated_fraction", _DELEGATED, "in XNNPACK"),
        ("profiled_ms", "model.profiled_ps", "mean time of a run under the profiler"),
        ("conversion_ms", "model.conversion_ps", "what converting took", "conversion"),
        ("error", "model.error", "why there is no more"),
    ),
    owner="lite",
)


def _fraction(findings: LiteFindings) -> list[float]:
    whole: dict[str, float] = {}
    for op in findings.ops:
        if not math.isnan(op.self_ps):
            whole[op.model] = whole.get(op.model, 0.0) + op.self_ps
    return [
        op.self_ps / whole[op.model] if whole.get(op.model) else math.nan for op in findings.ops
    ]


_FROM = "the Keras layer that it came from; the scope in its name for a file"
_RUNNER = 'who runs it: "XNNPACK", "built-in", "custom", or "folded" (unpacks weights once)'
_MEAN_TIME = "mean time in a run under the profiler; 0 where it is less than a microsecond or part of another"
LITE_OPS: Table[LiteFindings] = Table(
    "ops",
    "One row per op of each model, in the order of the model.",
    (
        *_fields(
            "ops",
            ("model", "model", "which model"),
            ("op_index", "index", "its place in the model"),
            ("op_type", "op_type", "its type", "op"),
            ("layer", "layer", _FROM),
            ("fused", "fused", "further layers that were folded into it"),
            ("shape", "shape", "shape of what it gives"),
            ("dtype", "dtype", "type of what it gives", "type"),
            ("kernel", "kernel", _RUNNER),
            ("kernel_name", "kernel_name", "what XNNPACK runs for it", "XNNPACK's name"),
            ("self_us", "self_ps", _MEAN_TIME, "time", clock_text),
        ),
        Column("self_fraction", _fraction, "its share of the time of the model's ops", "share"),
    ),
    owner="lite",
)
_ERROR = (
    "how far its output is from that of float32 for a few examples: root mean square of the differences over "
    "that of the values"
)
_CLIPPED = "share of float32's values that its type and scale cannot hold"
LITE_LAYERS: Table[LiteFindings] = Table(
    "layers",
    "One row per layer of each model, in the order of the model.",
    _fields(
        "layers",
        ("model", "model", "which model"),
        ("layer", "layer", "the Keras layer; the scope in its ops' names for a file"),
        ("layer_type", "layer_type", "its class"),
        ("ops", "ops", "how many ops it has"),
        ("self_us", "self_ps", "time of its ops in a run under the profiler", "time", clock_text),
        ("error_fraction", "error_fraction", _ERROR, "error"),
        ("clipped_fraction", "clipped_fraction", _CLIPPED, "clipped"),
    ),
    owner="lite",
)


LITE_DIFFERENCES: Table[Sequence[Any]] = Table(
    "kinds",
    "One row per kind in both LiteRT results, in the order of A.",
    columns_of(
        ("model", "name", "the kind"),
        ("first_ms", "first.latency_ps", "median time of a run in A"),
        ("second_ms", "second.latency_ps", "... and in B"),
        ("ratio", "time.ratio", "time of B over that of A; below 1 B is faster"),
        ("low", "time.low", _INTERVAL_BEGINS),
        ("high", "time.high", "where it ends"),
        ("first_bytes", "first.bytes", "size of the file in A"),
        ("second_bytes", "second.bytes", "... and in B"),
        ("metric_difference", "price.value", "the metric of B less that of A, in pairs"),
        ("difference_low", "price.low", _INTERVAL_BEGINS),
        ("difference_high", "price.high", "where it ends"),
    ),
    owner="c",
)
