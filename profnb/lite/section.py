"""A LiteRT result as sections of a report: models, layers and ops side by side; two results.

Its verdict is a sentence: what the fastest kind gains, and its price.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from profnb.core import units
from profnb.drawing.figures import axis, chart, label_axis
from profnb.drawing.markup import Cell, figure_text
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import COLOURS
from profnb.lite.findings import (
    KERAS,
    LITE_DIFFERENCES,
    LITE_LAYERS,
    LITE_MODELS,
    LITE_OPS,
    Interval,
    LiteFindings,
    clock_text,
)

_SHORT_BAR, _MOST_LAYERS_DRAWN, _LONGEST_LABEL = 6, 60, 40
_MODEL_CATEGORIES = (
    "device compute", "device to device", "kernel launch", "host compute", "device collectives", "output",
)  # fmt: skip
_SAME_SIZE = 0.005
_ratio_text, _signed_text = "{:.2f}".format, "{:+.3g}".format


def lite_sections(findings: LiteFindings) -> list[Section]:
    """Make the tables: models, layers, ops."""
    agrees = any(not math.isnan(one.agreement_fraction) for one in findings.models)
    makers = (
        (True, _time_section),
        (findings.metric or agrees, _quality_section),
        (findings.layers, _layer_section),
        (findings.ops, _op_section),
    )
    return [make(findings) for is_there, make in makers if is_there]


def _ranged(
    value: float, low: float, high: float, text: Callable[[float], str]
) -> tuple[str, str, str]:
    """Write a value, and its 95 % interval where it has one that is not all the same in writing."""
    interval = units.range_text(text(low), text(high)) if math.isfinite(low) else ""
    return text(value), "", interval if interval != text(value) else ""


def _number(heading: str, cell: Callable[[int], Cell], meaning: str) -> Shown:
    return Shown(heading, cell, is_number=True, meaning=meaning)


def _with_interval(name: str) -> str:
    return f"{LITE_MODELS[name].meaning}, and its 95 % interval"


def _colours_of(findings: LiteFindings) -> Callable[[str], str]:
    """The colour of a model in bars and charts, by its name."""
    names = [one.name for one in findings.models if one.kind != KERAS]

    def colour(name: str) -> str:
        if name not in names:
            return COLOURS["all others"]
        return COLOURS[_MODEL_CATEGORIES[names.index(name) % len(_MODEL_CATEGORIES)]]

    return colour


def _time_section(findings: LiteFindings) -> Section:
    models, colour = findings.models, _colours_of(findings)

    def latency(row: int) -> Cell:
        return _ranged(*models[row].latency, units.duration_text)

    def speedup(row: int) -> Cell:
        ratio, low, high = findings.speedup(models[row])
        is_base = models[row] is findings.base
        interval = "" if is_base else _ranged(ratio, low, high, _ratio_text)[2]
        return f"{ratio:.2f}x" if math.isfinite(ratio) else units.MISSING, "", interval

    def size(row: int) -> Cell:
        compressed = models[row].compressed_bytes
        packed = "" if math.isnan(compressed) else f"{units.bytes_text(compressed)} gzip"
        return units.bytes_text(models[row].bytes), "", packed

    def delegated(row: int) -> Cell:
        one = models[row]
        count = f"{one.delegated_ops} of {one.ops} ops" if one.ops else ""
        return units.percent_text(one.delegated_fraction), "", count

    sentence = "Times are of this machine; only a phone shows a phone's speed."
    if models and models[0].kind == KERAS:
        sentence = f"Keras is the model in a tf.function with TensorFlow's threads. {sentence}"
    return section_of(
        LITE_MODELS,
        findings.rows,
        (
            "model",
            _number("size", size, "bytes of the file, and compressed with gzip"),
            _number("latency", latency, _with_interval("latency_ms")),
            _number("speed-up", speedup, _with_interval("speedup")),
            "examples_per_second memory_bytes",
            _number("in XNNPACK", delegated, LITE_MODELS["delegated_fraction"].meaning),
            "conversion_ms",
        ),
        title="Size and time",
        tab="Models",
        sentence=sentence,
        bar=Bar.of(
            [one.latency_ps if len(one.round_ps) else 0.0 for one in models],
            lambda row: colour(models[row].name),
            _SHORT_BAR,
        ),
    )


def _quality_section(findings: LiteFindings) -> Section:
    models, colour = findings.models, _colours_of(findings)
    base = "" if findings.base is None else findings.base.name

    def metric(value: float) -> str:
        return units.metric_text(value, is_score=findings.is_score)

    def points(value: float) -> str:
        return f"{100 * value:+.1f}" if findings.is_score else _signed_text(value)

    def quality(row: int) -> Cell:
        return _ranged(*findings.quality(models[row]), metric)

    def price(row: int) -> Cell:
        one = findings.price(models[row])
        if not one.is_known or models[row] is findings.base:
            return units.MISSING
        return _ranged(*one, points)

    judged = [
        _number(findings.metric, quality, "on the data, and its 95 % interval"),
        _number(f"less that of {base}", price, _with_interval("metric_difference")),
    ]
    has_keras = models[0].kind == KERAS
    against = ["agreement_fraction", "largest_difference", "mean_difference"] if has_keras else []
    bars, most = [one.agreement_fraction for one in models], 1.0
    if findings.metric:
        bars = [findings.quality(one).value for one in models]
        if not findings.is_score:
            most = max((bar for bar in bars if not math.isnan(bar)), default=1.0) or 1.0
    return section_of(
        LITE_MODELS,
        findings.rows,
        ("model", *(judged if findings.metric else []), *against),
        title="What comes out",
        tab="Models",
        sentence=f"For {units.count_text(findings.examples)} examples. Differences are of pairs, example by "
        "example.",
        bar=Bar(
            lambda row: 0.0 if math.isnan(bars[row]) else bars[row] / most,
            lambda row: colour(models[row].name),
            _SHORT_BAR,
        ),
    )


def difference_section(rows: Sequence[Any], labels: tuple[str, str]) -> Section:
    """Show two results, kind by kind."""

    def side(which: str, label: str) -> Shown:
        def cell(row: int) -> Cell:
            one = getattr(rows[row], which)
            return units.duration_text(one.latency_ps), "", units.bytes_text(one.bytes)

        return _number(label, cell, "median time of a run, and size of the file")

    def ratio(row: int) -> Cell:
        time = rows[row].time
        return _ranged(time.ratio, time.low, time.high, _ratio_text)

    def price(row: int) -> Cell:
        one: Interval = rows[row].price
        return _ranged(*one, _signed_text) if one.is_known else units.MISSING

    difference = LITE_DIFFERENCES["metric_difference"].meaning
    return section_of(
        LITE_DIFFERENCES,
        rows,
        (
            "model",
            side("first", labels[0]),
            side("second", labels[1]),
            _number("ratio", ratio, LITE_DIFFERENCES["ratio"].meaning),
            _number("difference of the metric", price, difference),
        ),
        title="Kinds",
        bar=Bar.of([row.second.latency_ps for row in rows], COLOURS["device compute"]),
    )


def _layer_section(findings: LiteFindings) -> Section:
    """Layers in rows, models side by side: time, and how far the output is from the float model's."""
    layers = findings.layers
    models = list(dict.fromkeys(row.model for row in layers))
    cells = {(row.layer, row.model): row for row in layers}
    first = {row.layer: at for at, row in reversed([*enumerate(layers)])}
    has_errors = {row.model for row in layers if not math.isnan(row.error_fraction)}
    times = {key: row.self_ps for key, row in cells.items()}
    longest = max(map(_spent, times.values())) or 1.0

    def time_of(model: str) -> Shown:
        def cell(row: int) -> Cell:
            time_ps = times.get((layers[row].layer, model))
            return units.MISSING if time_ps is None else clock_text(time_ps)

        return _number(model, cell, f"{LITE_LAYERS['self_us'].meaning}, {model}")

    def error_of(model: str) -> Shown:
        def cell(row: int) -> Cell:
            one = cells.get((layers[row].layer, model))
            if one is None:
                return units.MISSING
            clipped = one.clipped_fraction
            cut = f"{units.percent_text(clipped)} clipped" if clipped > 0 else ""
            return units.percent_text(one.error_fraction), "", cut

        return _number(f"{model} error", cell, LITE_LAYERS["error_fraction"].meaning)

    def bar(row: int) -> float:
        name = layers[row].layer
        return max(_spent(times.get((name, model), 0.0)) for model in models) / longest

    return section_of(
        LITE_LAYERS,
        layers,
        (
            Shown("layer", lambda row: (layers[row].layer or "(none)", "", layers[row].layer_type)),
            *map(time_of, models),
            *(error_of(model) for model in models if model in has_errors),
        ),
        title="Layers",
        tab="Layers",
        sentence="Time of a layer's ops in a run under the profiler. Error: distance of the output from "
        "float32's for a few examples, root mean square over root mean square. Errors add up from layer to "
        "layer.",
        bar=Bar(bar, COLOURS["device compute"]),
        rows=sorted(first.values())[:_MOST_LAYERS_DRAWN],
        figure=_layer_figure(models, times, _colours_of(findings)),
    )


def _spent(time_ps: float) -> float:
    return 0.0 if math.isnan(time_ps) else time_ps


def _layer_figure(
    models: Sequence[str], times: Mapping[tuple[str, str], float], colour: Callable[[str], str]
) -> dict[str, Any] | None:
    """Bars of each layer, float beside int8; None where nothing took time."""
    totals: dict[str, float] = {}
    for (name, _), time_ps in times.items():
        totals[name] = totals.get(name, 0.0) + _spent(time_ps)
    whole = sum(totals.values())
    if not whole:
        return None
    shown = [name for name, total in totals.items() if total >= 0.005 * whole][:24]
    data = [
        {
            "type": "bar", "orientation": "h", "name": figure_text(model), "y": list(range(len(shown))),
            "x": [round(_spent(times.get((name, model), 0.0)) / 1e6, 3) for name in shown],
            "marker": {"color": colour(model), "line": {"width": 0}},
            "hovertemplate": [
                f"{figure_text(name)}, {figure_text(model)}: "
                f"{units.duration_text(times.get((name, model)))}<extra></extra>"
                for name in shown
            ],
        }
        for model in models
    ]  # fmt: skip
    return chart(
        "Time of each layer", 110 + (14 + 9 * len(models)) * len(shown), data, barmode="group", bargap=0.25,
        legend={"orientation": "h", "x": 0, "y": -0.08, "yanchor": "top"},
        margin={"l": 8, "r": 16, "t": 34, "b": 34},
        xaxis={**axis(""), "ticksuffix": " µs", "rangemode": "tozero"},
        yaxis=label_axis([name[:_LONGEST_LABEL] for name in shown]),
    )  # fmt: skip


def _op_section(findings: LiteFindings) -> Section:
    """The ops of all models, in order."""
    ops, colour = findings.ops, _colours_of(findings)
    shown = [row for row, op in enumerate(ops) if op.kernel != "folded"]
    times = [_spent(op.self_ps) for op in ops]
    sentence = "In a run under the profiler, apart from the timed runs."
    if folded := len(ops) - len(shown):
        sentence += f" {units.count_text(folded)} ops for unpacking weights (once) are left out."

    return section_of(
        LITE_OPS,
        ops,
        (
            "model",
            Shown(
                "op",
                lambda row: (ops[row].op_type, "", ops[row].kernel_name),
                meaning="its type, and what XNNPACK runs for it",
            ),
            Shown(
                "layer",
                lambda row: (ops[row].layer, "", ops[row].fused and f"with {ops[row].fused}"),
            ),
            "shape dtype kernel self_us self_fraction",
        ),
        title="Ops",
        tab="Ops",
        sentence=sentence,
        bar=Bar.of(times, lambda row: colour(ops[row].model)),
        rows=shown,
        is_sortable=True,
        shown=30,
        is_detail=True,
    )


def verdict_text(findings: LiteFindings) -> str:
    """Say in a sentence what the fastest kind gains, and its price."""
    base = findings.base
    if base is None:
        return "No model could be run."
    others = [one for one in findings.measured if one is not base]
    if not others:
        return f"{base.name}: {units.duration_text(base.latency_ps)} a run, {units.bytes_text(base.bytes)}."
    best = max(others, key=lambda one: findings.speedup(one).value)
    smaller = "no smaller"
    if best.bytes < base.bytes * 0.95:
        smaller = f"{base.bytes / best.bytes:.1f}x smaller"
    gain = f"{best.name} is {_speedup_text(*findings.speedup(best), base.name)} and {smaller}"
    return f"{gain}{_price_text(findings.price(best), findings)}."


def _speedup_text(ratio: float, low: float, high: float, other: str) -> str:
    """Say how much faster something is, with its interval: "4.1x faster than float32 (3.9 to 4.3)"."""
    if low <= 1 <= high:
        interval = units.range_text(f"{low:.2f}", f"{high:.2f}")
        return f"as fast as {other}, within the interval of these runs ({interval} of the speed)"
    factors, word = (ratio, low, high), "faster"
    if high < 1:
        factors, word = (1 / ratio, 1 / high, 1 / low), "slower"
    times, first, last = (f"{one:.1f}" if one >= 1.95 else f"{one:.2f}" for one in factors)
    interval = units.range_text(first, last)
    return f"{times}x {word} than {other}" + (f" ({interval})" if interval != times else "")


def difference_text(row: Any, labels: tuple[str, str], findings: LiteFindings) -> str:
    """Say what one kind of B gains over that of A, and its price."""
    one, two = (f"{row.name} of {label}" for label in labels)
    time = row.time
    size = row.second.bytes / row.first.bytes
    if math.isnan(size) or abs(size - 1) < _SAME_SIZE:
        smaller = "of the same size"
    else:
        smaller = f"{1 / size:.2f}x smaller" if size < 1 else f"{size:.2f}x larger"
    speedup = _speedup_text(1 / time.ratio, 1 / time.high, 1 / time.low, one)
    return f"{two} is {speedup} and {smaller}{_price_text(row.price, findings)}."


def _price_text(price: Interval, findings: LiteFindings) -> str:
    """Say what it costs in what the model is for: "; accuracy 0.3 points lower (0.1 to 0.6)"."""
    if not price.is_known:
        return ""
    scale, unit = (100, " points") if findings.is_score else (1, "")

    def text(value: float) -> str:
        return f"{value * scale:.1f}" if findings.is_score else f"{value:.3g}"

    value, low, high = price
    interval = units.range_text(text(low), text(high))
    if not value:
        said = f"the same ({interval}{unit})"
    elif not price.is_sure:
        said = f"differs by {text(value)}{unit}, perhaps by chance ({interval})"
    else:
        low, high = (low, high) if value > 0 else (-high, -low)
        word = "higher" if value > 0 else "lower"
        said = f"{text(abs(value))}{unit} {word} ({units.range_text(text(low), text(high))})"
    return f"; {findings.metric} {said}"
