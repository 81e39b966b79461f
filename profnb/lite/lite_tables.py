"""The tables of a LiteRT result, declared: its models, their ops, their layers."""

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from profnb.core.table import Column, Table
from profnb.core.units import MISSING, PS_PER_S, count_text, duration_text
from profnb.lite.findings import LiteFindings

_NAN = float("nan")


def _of(name: str) -> Callable[[LiteFindings], Any]:
    return lambda findings: [getattr(one, name) for one in findings.models]


def _rate(per_second: float) -> str:
    return MISSING if math.isnan(per_second) else count_text(round(per_second, 1))


def clock_text(time_ps: float) -> str:
    """A time of the profiler, which counts whole microseconds: none counted is less than one."""
    return "<1 µs" if time_ps == 0 else duration_text(time_ps)


def _small(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.2g}"


def _latency(findings: LiteFindings, end: int) -> list[float]:
    return [one.latency_interval[end] if len(one.round_ps) else _NAN for one in findings.models]


def _throughput(findings: LiteFindings) -> list[float]:
    return [findings.batch_size * PS_PER_S / one.latency_ps for one in findings.models]


def _speedup(findings: LiteFindings, at: int) -> list[float]:
    return [findings.speedup(one)[at] for one in findings.models]


def _quality(findings: LiteFindings, at: int) -> list[float]:
    return [findings.quality(one)[at] if findings.metric else _NAN for one in findings.models]


def _price(findings: LiteFindings, name: str) -> list[float]:
    prices = [findings.price(one) for one in findings.models]
    return [_NAN if price is None else getattr(price, name) for price in prices]


def _optional_count(findings: LiteFindings, name: str) -> list[float]:
    return [float(getattr(one, name)) if one.ops else _NAN for one in findings.models]


LITE_MODELS: Table[LiteFindings] = Table(
    "models",
    "One row per model that ran: the Keras model first, then each kind, with each number of threads.",
    (
        Column("model", _of("name"), "the kind, with its threads where there are several"),
        Column("bytes", _of("bytes"), "size of the file", "size"),
        Column(
            "compressed_bytes",
            _of("compressed_bytes"),
            "its size compressed with gzip",
            "compressed",
        ),
        Column(
            "latency_ms",
            lambda f: [m.latency_ps for m in f.models],
            "median time of a run",
            "latency",
        ),
        Column(
            "latency_low_ms", lambda f: _latency(f, 0), "where the median's 95 % interval begins"
        ),
        Column("latency_high_ms", lambda f: _latency(f, 1), "where it ends"),
        Column("examples_per_second", _throughput, "throughput", "examples/s", _rate),
        Column(
            "speedup",
            lambda f: _speedup(f, 0),
            "times as fast as float32, round by round; its median",
            "speed-up",
        ),
        Column("speedup_low", lambda f: _speedup(f, 1), "where its 95 % interval begins"),
        Column("speedup_high", lambda f: _speedup(f, 2), "where it ends"),
        Column(
            "memory_bytes",
            _of("memory_bytes"),
            "most memory that opening it and one run took",
            "peak memory",
        ),
        Column("metric", lambda f: _quality(f, 0), "accuracy, or mean absolute error, on the data"),
        Column("metric_low", lambda f: _quality(f, 1), "where its 95 % interval begins"),
        Column("metric_high", lambda f: _quality(f, 2), "where it ends"),
        Column(
            "metric_difference",
            lambda f: _price(f, "difference"),
            "the metric less that of float32, in pairs",
        ),
        Column(
            "difference_low",
            lambda f: _price(f, "low"),
            "where the difference's 95 % interval begins",
        ),
        Column("difference_high", lambda f: _price(f, "high"), "where it ends"),
        Column(
            "agreement_fraction",
            _of("agreement_fraction"),
            "share of examples with the class that the Keras model gives",
            "same class as Keras",
        ),
        Column(
            "largest_difference",
            _of("largest_difference"),
            "largest difference of its outputs from the Keras model's",
            text=_small,
        ),
        Column("mean_difference", _of("mean_difference"), "... and the mean", text=_small),
        Column("ops", lambda f: _optional_count(f, "ops"), "how many ops it has"),
        Column(
            "delegated_ops",
            lambda f: _optional_count(f, "delegated_ops"),
            "how many of them XNNPACK runs",
        ),
        Column(
            "delegated_fraction",
            _of("delegated_fraction"),
            "share of the ops' time in XNNPACK, under the profiler",
            "in XNNPACK",
        ),
        Column("profiled_ms", _of("profiled_ps"), "mean time of a run under the profiler"),
        Column("conversion_ms", _of("conversion_ps"), "what converting took", "conversion"),
        Column("error", _of("error"), "why there is no more"),
    ),
    owner="lite",
)


def _op(name: str) -> Callable[[LiteFindings], Any]:
    return lambda findings: [getattr(one, name) for one in findings.ops]


def _fraction(findings: LiteFindings) -> list[float]:
    whole: dict[str, float] = {}
    for op in findings.ops:
        if op.self_ps == op.self_ps:
            whole[op.model] = whole.get(op.model, 0.0) + op.self_ps
    return [op.self_ps / whole[op.model] if whole.get(op.model) else _NAN for op in findings.ops]


LITE_OPS: Table[LiteFindings] = Table(
    "ops",
    "One row per op of each model, in the order of the model.",
    (
        Column("model", _op("model"), "which model"),
        Column("op_index", _op("index"), "its place in the model"),
        Column("op_type", _op("op_type"), "its type", "op"),
        Column(
            "layer",
            _op("layer"),
            "the Keras layer that it came from; the scope in its name for a file",
        ),
        Column("fused", _op("fused"), "further layers that were folded into it"),
        Column("shape", _op("shape"), "shape of what it gives"),
        Column("dtype", _op("dtype"), "type of what it gives", "type"),
        Column(
            "kernel",
            _op("kernel"),
            'who runs it: "XNNPACK", "built-in", "custom", or "folded" (unpacks weights once)',
        ),
        Column("kernel_name", _op("kernel_name"), "what XNNPACK runs for it", "XNNPACK's name"),
        Column(
            "self_us",
            _op("self_ps"),
            "mean time in a run under the profiler; 0 where it is less than a microsecond or part of another",
            "time",
            clock_text,
        ),
        Column("self_fraction", _fraction, "its share of the time of the model's ops", "share"),
    ),
    owner="lite",
)


def _layer(name: str) -> Callable[[LiteFindings], Any]:
    return lambda findings: [getattr(one, name) for one in findings.layers]


LITE_LAYERS: Table[LiteFindings] = Table(
    "layers",
    "One row per layer of each model, in the order of the model.",
    (
        Column("model", _layer("model"), "which model"),
        Column("layer", _layer("layer"), "the Keras layer; the scope in its ops' names for a file"),
        Column("layer_type", _layer("layer_type"), "its class"),
        Column("ops", _layer("ops"), "how many ops it has"),
        Column(
            "self_us",
            _layer("self_ps"),
            "time of its ops in a run under the profiler",
            "time",
            clock_text,
        ),
        Column(
            "error_fraction",
            _layer("error_fraction"),
            "how far its output is from that of float32 for a few examples: root mean square of "
            "the differences over that of the values",
            "error",
        ),
        Column(
            "clipped_fraction",
            _layer("clipped_fraction"),
            "share of float32's values that its type and scale cannot hold",
            "clipped",
        ),
    ),
    owner="lite",
)


def _row(name: str) -> Callable[[Sequence[Any]], list[Any]]:
    read = attrgetter(name)
    return lambda rows: [read(row) for row in rows]


def _price_of(name: str) -> Callable[[Sequence[Any]], list[float]]:
    return lambda rows: [_NAN if row.price is None else getattr(row.price, name) for row in rows]


LITE_DIFFERENCES: Table[Sequence[Any]] = Table(
    "kinds",
    "One row per kind that both LiteRT results have, in the order of A.",
    (
        Column("model", _row("name"), "the kind"),
        Column("first_ms", _row("first.latency_ps"), "median time of a run in A"),
        Column("second_ms", _row("second.latency_ps"), "... and in B"),
        Column("ratio", _row("time.ratio"), "time of B over that of A; below 1 B is faster"),
        Column("low", _row("time.low"), "where its 95 % interval begins"),
        Column("high", _row("time.high"), "where it ends"),
        Column("first_bytes", _row("first.bytes"), "size of the file in A"),
        Column("second_bytes", _row("second.bytes"), "... and in B"),
        Column(
            "metric_difference", _price_of("difference"), "the metric of B less that of A, in pairs"
        ),
        Column("difference_low", _price_of("low"), "where its 95 % interval begins"),
        Column("difference_high", _price_of("high"), "where it ends"),
    ),
    owner="c",
)
