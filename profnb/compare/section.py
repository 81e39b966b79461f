"""A comparison as HTML, text and a chart: the guards, the verdict, step times, categories, ops."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.compare.differences import CATEGORY_DIFFERENCES, CategoryDifference
from profnb.compare.op_differences import OP_DIFFERENCES, OpDifference
from profnb.compare.quality import MetricDifference
from profnb.compare.speedup import RunSet
from profnb.core.columns import Floats
from profnb.core.printable import printable
from profnb.core.units import MISSING, bar_text, count_text, duration_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.html_table import note_list
from profnb.drawing.markup import figure_text
from profnb.drawing.plotly import figure_html
from profnb.drawing.section import Bar, Section, Shown, section_block, section_of, section_text
from profnb.drawing.theme import COLOURS, ROOT, colour_of
from profnb.subjects.layers.op_title import op_titles

__all__ = ["ComparisonView", "comparison_bundle", "comparison_text"]

_SHOWN_OPS, _SHOWN_METRICS, _MOST_POINTS, _MOST_RUNS = 12, 8, 60, 20


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """What a comparison shows.

    Attributes:
        verdict: The answer about time, in a sentence.
        quality_verdict: The answer about what was learned, or "".
        guards: What differs besides what was meant to.
        runs: The steps of both sides.
        p_value: Mann and Whitney's, a second opinion; NaN where there are too few runs to rank.
        categories: The categories of both.
        ops: The ops of both.
        metrics: The metrics of both.
    """

    verdict: str
    quality_verdict: str
    guards: Sequence[str]
    runs: tuple[RunSet, RunSet]
    p_value: float
    categories: Sequence[CategoryDifference]
    ops: Sequence[OpDifference]
    metrics: Sequence[MetricDifference] = ()

    def sections(self) -> list[Section]:
        """Its tables."""
        quality = [_quality_section(self)] if self.metrics else []
        return [
            _time_section(self.runs, self.p_value),
            *quality,
            _category_section(self.runs, self.categories),
            _op_section(self.runs, self.ops),
        ]

    def figures(self) -> dict[str, dict[str, Any]]:
        """The charts by title, in plotly's schema: what the runs took."""
        return dict(_box_figures(self.runs)) if all(one.step_count for one in self.runs) else {}


def comparison_text(view: ComparisonView) -> str:
    """The comparison as plain text."""
    parts = [f"Caution: {printable(guard)}" for guard in view.guards]
    parts += [printable(part) for part in (view.verdict, view.quality_verdict) if part]
    return "\n\n".join([*parts, *(section_text(section) for section in view.sections())])


def comparison_bundle(view: ComparisonView) -> dict[str, Any]:
    """The comparison as a MIME bundle: its verdict, its charts, its tables."""
    quality = Markup('<div style="margin:2px 0 4px">{}</div>').format(view.quality_verdict)
    html = Markup(
        '<div class="profnb" style="{}">{}'
        '<div role="heading" aria-level="2" style="font-size:18px;font-weight:600;margin:4px 0">{}</div>'
        "{}{}{}</div>"
    ).format(
        ROOT,
        note_list(view.guards, look=""),
        view.verdict,
        quality if view.quality_verdict else "",
        Markup("").join(figure_html(figure, Markup("")) for figure in view.figures().values()),
        Markup("").join(map(section_block, view.sections())),
    )
    return {"text/html": str(html), "text/plain": comparison_text(view)}


def _quality_section(view: ComparisonView) -> Section:
    rows = []
    for row in view.metrics[:_SHOWN_METRICS]:
        cells = [
            cell
            for values in (row.first, row.second)
            for cell in (row.text(float(np.median(values))), row.text(row.worst(values)))
        ]
        rows.append(("", row.metric, *cells, f"{len(row.first)} + {len(row.second)}", row.word))
    one, two = (side.label for side in view.runs)
    return Section(
        title="What was learned",
        sentence="The last value of each metric of Keras' History; worst is the worst run.",
        headings=(
            "",
            "metric",
            f"{one}, median",
            "worst",
            f"{two}, median",
            "worst",
            "runs",
            "difference",
        ),
        rows=rows,
        numbers=(False, False, True, True, True, True, True, False),
        colours=[COLOURS["host compute"]] * len(rows),
        tab="",
    )


def _time_section(runs: tuple[RunSet, RunSet], p_value: float) -> Section:
    rows = []
    slowest = max((float(side.medians.max()) for side in runs if side.medians.size), default=1.0)
    for side in runs:
        steps = np.concatenate(
            [np.asarray(run, np.float64) for run in side.step_ps] or [np.empty(0)]
        )
        if not steps.size:
            rows.append(("", side.label, "0", "0", MISSING, MISSING, MISSING))
            continue
        low, middle, high = np.percentile(steps, (25, 50, 75))
        rows.append((
            bar_text(float(np.median(side.medians)) / slowest, 12), side.label,
            count_text(side.medians.size), count_text(steps.size), duration_text(float(middle)),
            f"{duration_text(float(low))} to {duration_text(float(high))}",
            f"{duration_text(float(steps.min()))} to {duration_text(float(steps.max()))}",
        ))  # fmt: skip
    for side in runs:
        if side.run_ps and all(other.run_ps for other in runs):
            low, middle, high = np.percentile(side.run_ps, (25, 50, 75))
            rows.append((
                "", f"{side.label}, whole run", count_text(len(side.run_ps)), "",
                duration_text(float(middle)),
                f"{duration_text(float(low))} to {duration_text(float(high))}",
                f"{duration_text(min(side.run_ps))} to {duration_text(max(side.run_ps))}",
            ))  # fmt: skip
    return Section(
        title="From step to step, and whole runs",
        sentence=_second_opinion(p_value),
        headings=("", "", "runs", "steps", "median", "middle half", "all"),
        rows=rows,
        numbers=(False, False, True, True, True, True, True),
        colours=[COLOURS["device compute"], COLOURS["device collectives"]] * (len(rows) // 2),
        tab="",
    )


def _second_opinion(p_value: float) -> str:
    if math.isnan(p_value):
        return ""
    chance = f"p = {p_value:.3f}" if p_value >= 0.001 else "p < 0.001"
    return f"Mann and Whitney's ranks, as a second opinion: {chance} that equal programs differ this much."


def _category_section(
    runs: tuple[RunSet, RunSet], categories: Sequence[CategoryDifference]
) -> Section:
    most = max((abs(row.difference_ps) for row in categories), default=0) or 1.0
    return section_of(
        CATEGORY_DIFFERENCES,
        categories,
        ("category", *_sides(runs, categories), "difference_ms"),
        title="Mean step by category",
        tab="",
        bar=Bar(
            lambda row: abs(categories[row].difference_ps) / most,
            lambda row: colour_of(categories[row].category),
            10,
        ),
        rows=range(len(categories)),
    )


def _op_section(runs: tuple[RunSet, RunSet], ops: Sequence[OpDifference]) -> Section:
    shown = [row for row in ops if row.difference_ps][:_SHOWN_OPS]
    most = abs(shown[0].difference_ps) if shown else 1.0
    whole = sum(abs(row.difference_ps) for row in ops) or 1.0
    share = sum(abs(row.difference_ps) for row in shown) / whole
    are_layers = any(row.side == "layer" for row in shown)
    titles = op_titles([row.op_name for row in shown], [row.op_type for row in shown])

    def status(row: int) -> str:
        return "" if shown[row].status == "changed" else shown[row].status

    return section_of(
        OP_DIFFERENCES,
        shown,
        (
            Shown(
                "layer" if are_layers else "op",
                lambda row: shown[row].op_name if are_layers else titles[row].cell,
            ),
            "side",
            *_sides(runs, shown),
            "difference_us",
            Shown("", status),
        ),
        title=f"{'Layers' if are_layers else 'Ops'} that account for it",
        tab="",
        sentence=f"{'Op time' if are_layers else 'Self time'} of a mean step; "
        f"these are {percent_text(share)} of all differences.",
        bar=Bar(
            lambda row: abs(shown[row].difference_ps) / most,
            lambda row: COLOURS["input" if shown[row].difference_ps > 0 else "host compute"],
            8,
        ),
        rows=range(len(shown)),
    )


def _sides(
    runs: tuple[RunSet, RunSet], rows: Sequence[OpDifference | CategoryDifference]
) -> tuple[Shown, Shown]:
    """The times of A and of B, under what they are called."""
    return (
        Shown(runs[0].label, lambda row: duration_text(rows[row].first_ps), is_number=True),
        Shown(runs[1].label, lambda row: duration_text(rows[row].second_ps), is_number=True),
    )


def _box_figures(runs: tuple[RunSet, RunSet]) -> list[tuple[str, dict[str, Any]]]:
    """Step times, one box per run; run times, one box per side where both have several."""
    steps = [
        (f"{side.label[:24]} {number + 1}" if len(side.step_ps) > 1 else side.label[:28], at, times)
        for at, side in enumerate(runs)
        for number, times in enumerate(side.step_ps[:_MOST_RUNS])
        if len(times)
    ]
    figures = [("Time from step to step", _box_figure("Time from step to step", steps, 1e9, "ms"))]
    if min(len(side.run_ps) for side in runs) > 1:
        whole = [(side.label[:28], at, np.array(side.run_ps)) for at, side in enumerate(runs)]
        figures.append(("Time of whole runs", _box_figure("Time of whole runs", whole, 1e12, "s")))
    return figures


def _box_figure(
    title: str, boxes: Sequence[tuple[str, int, Floats]], scale: float, unit: str
) -> dict[str, Any]:
    """A box each: quartiles, median, the whole range, and what it is made of as points.

    plotly's own box plot is not in the bundle that notebooks load; bars and lines are.
    """
    data: list[dict[str, Any]] = []
    for place, (_, side, values) in enumerate(boxes):
        colour = COLOURS[("device compute", "device collectives")[side]]
        data += _box(place, np.asarray(values, np.float64) / scale, unit, colour)
    layout = figure_layout(title, 110 + 34 * len(boxes))
    layout |= {
        "barmode": "overlay",
        "showlegend": False,
        "margin": {"l": 8, "r": 12, "t": 34, "b": 34},
        "xaxis": {**axis(""), "ticksuffix": f" {unit}", "rangemode": "tozero"},
        "yaxis": {
            **axis(""), "tickvals": list(range(len(boxes))),
            "ticktext": [figure_text(label) for label, *_ in boxes],
            "automargin": True, "showgrid": False, "autorange": "reversed",
        },
    }  # fmt: skip
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _box(place: int, values: Floats, unit: str, colour: str) -> list[dict[str, Any]]:
    low, middle, high = (round(float(value), 5) for value in np.percentile(values, (25, 50, 75)))
    most = min(values.size, _MOST_POINTS)
    kept = np.sort(values)[np.linspace(0, values.size - 1, most).astype(int)]
    hover = f"median {middle:.4g} {unit}, middle half {low:.4g} to {high:.4g}"
    hover += f", all {kept[0]:.4g} to {kept[-1]:.4g}"
    return [
        {
            "type": "bar", "orientation": "h", "y": [place], "base": [low], "x": [round(high - low, 5)],
            "width": 0.5, "marker": {"color": colour, "opacity": 0.5, "line": {"width": 0}},
            "hovertemplate": f"{hover}<extra></extra>",
        },
        {
            "type": "scatter", "mode": "lines", "x": [round(float(kept[0]), 5), round(float(kept[-1]), 5)],
            "y": [place, place], "line": {"width": 1, "color": colour}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": [round(float(value), 5) for value in kept],
            "y": [round(place + 0.16 * (-1) ** at * ((at % 5) / 4), 3) for at in range(kept.size)],
            "marker": {"size": 3, "color": colour, "opacity": 0.7}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": [middle], "y": [place],
            "marker": {"size": 18, "color": colour, "symbol": "line-ns-open", "line": {"width": 3}},
            "hoverinfo": "skip",
        },
    ]  # fmt: skip
