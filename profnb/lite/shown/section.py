"""A LiteRT result as sections of a report, its verdict, and its chart."""

import math
from collections.abc import Sequence
from typing import Any

from profnb.core.units import (
    MISSING,
    bytes_text,
    count_text,
    duration_text,
    metric_text,
    percent_text,
    range_text,
)
from profnb.drawing.drawn_tables import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import COLOURS
from profnb.lite.findings import KERAS, LiteFindings
from profnb.lite.lite_tables import LITE_DIFFERENCES, LITE_MODELS
from profnb.lite.shown.op_sections import colour_of_model, layer_section, op_section

_SHORT_BAR = 6
_MODELS = "Models"


def lite_sections(findings: LiteFindings) -> list[Section]:
    """The tables: models, layers, ops."""
    sections = [_time_section(findings)]
    if findings.metric or any(
        one.agreement_fraction == one.agreement_fraction for one in findings.models
    ):
        sections.append(_quality_section(findings))
    if findings.layers:
        sections.append(layer_section(findings))
    if findings.ops:
        sections.append(op_section(findings))
    return sections


def _between(low: float, high: float, text: Any) -> str:
    return range_text(text(low), text(high)) if math.isfinite(low) else ""


def _times(value: float) -> str:
    return f"{value:.2f}x" if math.isfinite(value) else MISSING


def _time_section(findings: LiteFindings) -> Section:
    models = findings.models
    slowest = max((one.latency_ps for one in models if len(one.round_ps)), default=1.0)

    def latency(row: int) -> Cell:
        low, high = (
            models[row].latency_interval if len(models[row].round_ps) else (math.nan, math.nan)
        )
        return duration_text(models[row].latency_ps), "", _between(low, high, duration_text)

    def speedup(row: int) -> Cell:
        ratio, low, high = findings.speedup(models[row])
        is_base = models[row] is findings.base
        return (
            _times(ratio),
            "",
            "" if is_base else _between(low, high, lambda value: f"{value:.2f}"),
        )

    def size(row: int) -> Cell:
        one = models[row]
        has_file = not math.isnan(one.compressed_bytes)
        return (
            bytes_text(one.bytes),
            "",
            f"{bytes_text(one.compressed_bytes)} gzip" if has_file else "",
        )

    def delegated(row: int) -> Cell:
        one = models[row]
        count = f"{one.delegated_ops} of {one.ops} ops" if one.ops else ""
        return percent_text(one.delegated_fraction), "", count

    return section_of(
        LITE_MODELS,
        findings,
        (
            "model",
            Shown(
                "size", size, is_number=True, meaning="bytes of the file, and compressed with gzip"
            ),
            Shown(
                "latency",
                latency,
                is_number=True,
                meaning=f"{_meaning('latency_ms')}, and its 95 % interval",
            ),
            Shown(
                "speed-up",
                speedup,
                is_number=True,
                meaning=_meaning("speedup") + ", and its 95 % interval",
            ),
            "examples_per_second",
            "memory_bytes",
            Shown("in XNNPACK", delegated, is_number=True, meaning=_meaning("delegated_fraction")),
            "conversion_ms",
        ),
        title="Size and time",
        tab=_MODELS,
        sentence=(
            "Keras is the model itself in a tf.function, with TensorFlow's threads, on this "
            "machine; how fast a phone is "
            "only a phone tells."
            if models and models[0].kind == KERAS
            else "On this machine; how fast a phone is only a phone tells."
        ),
        bar=Bar(
            lambda row: models[row].latency_ps / slowest if len(models[row].round_ps) else 0.0,
            lambda row: colour_of_model(findings, models[row].name),
            _SHORT_BAR,
        ),
        rows=range(len(models)),
    )


def _meaning(name: str) -> str:
    return LITE_MODELS[name].meaning


def _quality_section(findings: LiteFindings) -> Section:
    models = findings.models

    def metric(value: float) -> str:
        return metric_text(value, is_score=findings.is_score)

    def quality(row: int) -> Cell:
        value, low, high = findings.quality(models[row])
        return metric(value), "", _between(low, high, metric)

    def price(row: int) -> Cell:
        metric_price = findings.price(models[row])
        if metric_price is None or models[row] is findings.base:
            return MISSING
        text = _points if findings.is_score else _signed
        return (
            text(metric_price.difference),
            "",
            _between(metric_price.low, metric_price.high, text),
        )

    base = "" if findings.base is None else findings.base.name
    judged = [
        Shown(findings.metric, quality, is_number=True, meaning="on the data, and its 95 % interval"),
        Shown(
            f"less that of {base}", price, is_number=True,
            meaning=LITE_MODELS["metric_difference"].meaning + ", and its 95 % interval",
        ),
    ]  # fmt: skip
    has_keras = models[0].kind == KERAS
    against = ["agreement_fraction", "largest_difference", "mean_difference"] if has_keras else []
    return section_of(
        LITE_MODELS,
        findings,
        ("model", *(judged if findings.metric else []), *against),
        title="What comes out",
        tab=_MODELS,
        sentence=(
            f"For {count_text(findings.examples)} examples; differences are of pairs, "
            "example by example."
        ),
        bar=Bar(
            lambda row: _bar_of_quality(findings, row),
            lambda row: colour_of_model(findings, models[row].name),
            _SHORT_BAR,
        ),
        rows=range(len(models)),
    )


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _signed(value: float) -> str:
    return f"{value:+.3g}"


def _bar_of_quality(findings: LiteFindings, row: int) -> float:
    if not findings.metric:
        share = findings.models[row].agreement_fraction
        return share if share == share else 0.0  # noqa: PLR0124 - NaN is not itself
    values = [findings.quality(one)[0] for one in findings.models]
    judged_values = [value for value in values if value == value]  # noqa: PLR0124 - likewise
    most = 1.0 if findings.is_score else max(judged_values, default=1.0) or 1.0
    return values[row] / most if values[row] == values[row] else 0.0


def difference_section(rows: Sequence[Any], labels: tuple[str, str]) -> Section:
    """Two results, kind by kind.

    Args:
        rows: ``LiteDifference``s.
        labels: What the two are called.
    """
    longest = max((row.second.latency_ps for row in rows), default=1.0)

    def side(which: str, label: str) -> Shown:
        def cell(row: int) -> Cell:
            one = getattr(rows[row], which)
            return duration_text(one.latency_ps), "", bytes_text(one.bytes)

        return Shown(
            label, cell, is_number=True, meaning="median time of a run, and size of the file"
        )

    def ratio(row: int) -> Cell:
        time = rows[row].time
        return f"{time.ratio:.2f}", "", _between(time.low, time.high, lambda value: f"{value:.2f}")

    def price(row: int) -> Cell:
        metric_price = rows[row].price
        if metric_price is None:
            return MISSING
        return (
            f"{metric_price.difference:+.3g}",
            "",
            _between(metric_price.low, metric_price.high, _signed),
        )

    return section_of(
        LITE_DIFFERENCES,
        rows,
        (
            "model",
            side("first", labels[0]),
            side("second", labels[1]),
            Shown("ratio", ratio, is_number=True, meaning=LITE_DIFFERENCES["ratio"].meaning),
            Shown(
                "difference of the metric",
                price,
                is_number=True,
                meaning=LITE_DIFFERENCES["metric_difference"].meaning,
            ),
        ),
        title="Kinds",
        tab="",
        bar=Bar(lambda row: rows[row].second.latency_ps / longest, COLOURS["device compute"]),
        rows=range(len(rows)),
    )
