"""Layers and ops of LiteRT models as sections: times side by side, and errors; and a chart of the layers."""

import math
from typing import Any

from profnb.core.units import MISSING, count_text, duration_text, percent_text
from profnb.drawing.drawn_tables import Cell
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import COLOURS
from profnb.lite.findings import KERAS, LiteFindings
from profnb.lite.lite_tables import LITE_LAYERS, LITE_OPS, clock_text

_MOST_LAYERS, _LONGEST = 60, 40
_MODEL_COLOURS = tuple(
    COLOURS[name]
    for name in (
        "device compute",
        "device to device",
        "kernel launch",
        "host compute",
        "device collectives",
        "output",
    )
)
_LAYERS, _OPS = "Layers", "Ops"


def colour_of_model(findings: LiteFindings, name: str) -> str:
    """The colour of a model in bars and charts."""
    names = [one.name for one in findings.models if one.kind != KERAS]
    at = next((at for at, one in enumerate(names) if one == name), None)
    return COLOURS["all others"] if at is None else _MODEL_COLOURS[at % len(_MODEL_COLOURS)]


def layer_section(findings: LiteFindings) -> Section:
    """Layers in rows, models side by side: time, and how far the output is from the float model's."""
    names = list(dict.fromkeys(row.layer for row in findings.layers))
    models = list(dict.fromkeys(row.model for row in findings.layers))
    cells = {(row.layer, row.model): row for row in findings.layers}
    first = [next(row for row in findings.layers if row.layer == name) for name in names]
    places = [findings.layers.index(row) for row in first]
    times = {key: row.self_ps for key, row in cells.items()}
    longest = max((time for time in times.values() if time == time), default=0.0) or 1.0  # noqa: PLR0124
    has_errors = {
        m: any(r.error_fraction == r.error_fraction for r in findings.layers if r.model == m)
        for m in models
    }

    def of(row: int, model: str) -> Any:
        return cells.get((findings.layers[row].layer, model))

    def time_of(model: str) -> Shown:
        def cell(row: int) -> Cell:
            one = of(row, model)
            return MISSING if one is None else clock_text(one.self_ps)

        return Shown(
            model, cell, is_number=True, meaning=f"{LITE_LAYERS['self_us'].meaning}, {model}"
        )

    def error_of(model: str) -> Shown:
        def cell(row: int) -> Cell:
            one = of(row, model)
            if one is None:
                return MISSING
            clipped = one.clipped_fraction > 0
            return (
                percent_text(one.error_fraction),
                "",
                f"{percent_text(one.clipped_fraction)} clipped" if clipped else "",
            )

        return Shown(
            f"{model} error", cell, is_number=True, meaning=LITE_LAYERS["error_fraction"].meaning
        )

    def bar_of(row: int) -> float:
        model_times_ps = [
            times.get((findings.layers[row].layer, model), math.nan) for model in models
        ]
        return max((time for time in model_times_ps if time == time), default=0.0) / longest  # noqa: PLR0124

    return section_of(
        LITE_LAYERS,
        findings,
        (
            Shown(
                "layer",
                lambda row: (
                    findings.layers[row].layer or "(none)",
                    "",
                    findings.layers[row].layer_type,
                ),
            ),
            *(time_of(model) for model in models),
            *(error_of(model) for model in models if has_errors[model]),
        ),
        title="Layers",
        tab=_LAYERS,
        sentence=(
            "Time of a layer's ops in a run under the profiler. Error: how far its output is "
            "from that of float32 for a "
            "few examples, root mean square over root mean square; it adds up from layer to layer."
        ),
        bar=Bar(bar_of, COLOURS["device compute"]),
        rows=places[:_MOST_LAYERS],
        figure=_layer_figure(findings, names, models, times),
    )


def _layer_figure(
    findings: LiteFindings, names: list[str], models: list[str], times: dict[tuple[str, str], float]
) -> dict[str, Any] | None:
    """Bars of each layer, float beside int8."""
    measured_ps = [time for time in times.values() if time == time]  # noqa: PLR0124 - NaN is not itself
    if not measured_ps or not sum(measured_ps):
        return None
    totals = {name: sum(times.get((name, model), 0.0) or 0.0 for model in models) for name in names}
    shown = [name for name in names if totals[name] >= 0.005 * sum(totals.values())][:24]
    places = list(range(len(shown)))
    layout = figure_layout("Time of each layer", 110 + (14 + 9 * len(models)) * len(shown))
    layout |= {
        "barmode": "group",
        "bargap": 0.25,
        "legend": {"orientation": "h", "x": 0, "y": -0.08, "yanchor": "top"},
        "margin": {"l": 8, "r": 16, "t": 34, "b": 34},
        "xaxis": {**axis(""), "ticksuffix": " µs", "rangemode": "tozero"},
        "yaxis": {
            **axis(""), "tickvals": places, "ticktext": [figure_text(name[:_LONGEST]) for name in shown],
            "automargin": True, "showgrid": False, "autorange": "reversed",
        },
    }  # fmt: skip
    data = [
        {
            "type": "bar", "orientation": "h", "name": figure_text(model), "y": places,
            "x": [round(times.get((name, model), 0.0) / 1e6, 3) for name in shown],
            "marker": {"color": colour_of_model(findings, model), "line": {"width": 0}},
            "hovertemplate": [
                f"{figure_text(name)}, {figure_text(model)}: "
                f"{duration_text(times.get((name, model)))}<extra></extra>"
                for name in shown
            ],
        }
        for model in models
    ]  # fmt: skip
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def op_section(findings: LiteFindings) -> Section:
    """The ops of all models, in order."""
    ops = findings.ops
    shown = [row for row, op in enumerate(ops) if op.kernel != "folded"]
    times = [op.self_ps if op.self_ps == op.self_ps else 0.0 for op in ops]
    longest = max(times, default=0.0) or 1.0
    folded = len(ops) - len(shown)
    return section_of(
        LITE_OPS,
        findings,
        (
            "model",
            Shown(
                "op",
                lambda row: (ops[row].op_type, "", ops[row].kernel_name),
                meaning="its type, and what XNNPACK runs for it",
            ),
            Shown(
                "layer",
                lambda row: (
                    ops[row].layer,
                    "",
                    f"with {ops[row].fused}" if ops[row].fused else "",
                ),
            ),
            "shape",
            "dtype",
            "kernel",
            "self_us",
            "self_fraction",
        ),
        title="Ops",
        tab=_OPS,
        sentence=(
            "In a run under the profiler, apart from the runs that were timed."
            + (
                f" {count_text(folded)} ops that only unpack weights, once, are left out."
                if folded
                else ""
            )
        ),
        bar=Bar(
            lambda row: times[row] / longest, lambda row: colour_of_model(findings, ops[row].model)
        ),
        rows=shown,
        is_sortable=True,
        shown=30,
        is_detail=True,
    )
