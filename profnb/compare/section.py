"""A comparison as HTML, text and charts: the guards, the verdict, step times, categories, ops or layers.

Runs are drawn as boxes: what their steps took, and they as a whole. Where two frameworks ran, their layers
stand side by side instead of ops.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.compare.differences import (
    CATEGORY_DIFFERENCES,
    CategoryDifference,
    compare_categories,
    listed,
    more_or_less,
    number_of,
    shown_of,
)
from profnb.compare.op_differences import (
    EVENT_DIFFERENCES,
    LAYER_DIFFERENCES,
    OP_DIFFERENCES,
    LayerDifference,
    compare_layers,
    compare_ops,
    compare_timelines,
    op_time,
)
from profnb.compare.part_section import Labels, part_section
from profnb.compare.quality import MetricDifference
from profnb.compare.speedup import RunSet
from profnb.compare.tree_differences import PartDifference
from profnb.core import units
from profnb.core.columns import Floats
from profnb.core.printable import for_terminal, printable, unbroken
from profnb.core.table import Table
from profnb.drawing.figures import axis, chart, figure_html, label_axis
from profnb.drawing.markup import Cell, note_list
from profnb.drawing.section import Bar, Section, Shown, section_block, section_of, section_text
from profnb.drawing.theme import COLOURS, ROOT, colour_of
from profnb.subjects.layers.name_scopes import op_titles
from profnb.subjects.study import Study
from profnb.trace.names import parse_op

Charts = dict[str, dict[str, Any]]  # by title, in plotly's schema
_SHOWN_OPS, _SHOWN_METRICS, _SHOWN_LAYERS, _SHOWN_EVENTS = 12, 8, 60, 8
_MOST_BINS, _MOST_RUNS_DRAWN, _MOST_LAYERS_NAMED = 60, 20, 5
_FAR_OUT = 2  # of where the boxes end
_STEPS_TITLE, _RUNS_TITLE = "Time from step to step", "Time of whole runs"
_LAYERS_TITLE = "Layers, forward + backward"
_LAYER_TIME = "op time of a mean step: forward + backward and all else that is no update of weights"
_LAYER_RATIO = "time of the second over that of the first, with its 95 % interval"
_SIDE_COLOURS = (COLOURS["device compute"], COLOURS["device collectives"])


class TracePair:
    """The differences between the traces of A and of B; nothing is compared before it is asked for.

    Attributes:
        studies: The two.
        frameworks: Which frameworks ran; "" for both where it is one, and ops are compared.
    """

    def __init__(self, first: Study, second: Study) -> None:
        """Compare nothing yet."""
        self.studies = first, second
        names = first.program.framework, second.program.framework
        self.frameworks = names if names[0] != names[1] else ("", "")

    categories = cached_property(lambda self: compare_categories(*self.studies))
    ops = cached_property(lambda self: compare_ops(*self.studies))
    events = cached_property(lambda self: compare_timelines(*self.studies))
    layers = cached_property(lambda self: compare_layers(*self.studies))

    def op_column(self, heading: str, ops: Sequence[tuple[str, str]]) -> Shown:
        """Show ops by name and type, called as B calls them."""
        layers = {**self.studies[0].layers.names, **self.studies[1].layers.names}
        titles = op_titles([name for name, _ in ops], [kind for _, kind in ops], layers)
        return Shown(heading, lambda row: titles[row].cell)


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Everything that a comparison shows.

    Attributes:
        verdict: The answer about time, in a sentence.
        quality_verdict: The answer about what was learned, or "".
        guards: What differs besides what was meant to.
        runs: The steps of both sides.
        p_value: Mann and Whitney's, a second opinion; NaN where there are too few runs to rank.
        traces: The traces of both.
        metrics: The metrics of both.
        parts: The parts of the whole cell whose time differs.
        picture: Both cells' trees side by side; None where one has none.
    """

    verdict: str
    quality_verdict: str
    guards: Sequence[str]
    runs: tuple[RunSet, RunSet]
    p_value: float
    traces: TracePair
    metrics: Sequence[MetricDifference] = ()
    parts: Sequence[PartDifference] = ()
    picture: Markup | None = None

    def sections(self) -> list[Section]:
        """Make its tables; the last has what accounts for the difference."""
        labels, traces = (self.runs[0].label, self.runs[1].label), self.traces
        sections = [
            _time_section(self.runs, self.p_value),
            _quality_section(labels, self.metrics),
            part_section(labels, self.parts, self.picture),
            _category_section(labels, traces.categories),
        ]
        if any(traces.frameworks):
            op_ps = op_time(traces.studies[0]), op_time(traces.studies[1])
            sections += [layer_section(labels, traces.layers, op_ps, traces.frameworks)]
        else:
            sections += [_op_section(labels, traces), _event_section(labels, traces)]
        return [section for section in sections if section.rows or section.plain]

    def figures(self) -> Charts:
        """Make the charts by title, in plotly's schema: what the runs took."""
        return box_figures(self.runs) if all(one.step_count for one in self.runs) else {}


def comparison_text(view: ComparisonView) -> str:
    """Write the comparison as plain text."""
    parts = [printable(part) for part in (view.verdict, view.quality_verdict) if part]
    parts += [f"Caution: {printable(guard)}" for guard in view.guards]
    parts += [section_text(section) for section in view.sections()]
    return for_terminal("\n\n".join(parts))


def comparison_bundle(view: ComparisonView) -> dict[str, Any]:
    """Make the comparison a MIME bundle: its verdict, its charts, its tables."""
    quality = Markup('<div style="margin:2px 0 4px">{}</div>').format(view.quality_verdict)
    above = (quality if view.quality_verdict else Markup("")) + note_list(view.guards, look="")
    tables = Markup("").join(map(section_block, view.sections()))
    html = titled_html(view.verdict, above, view.figures(), tables)
    return {"text/html": html, "text/plain": comparison_text(view)}


def titled_html(title: str, above: Markup, figures: Charts, below: Markup) -> str:
    """Write an answer, its first sentence large, and what it rests on: charts with markup above and below."""
    charts = Markup("").join(figure_html(figure, Markup("")) for figure in figures.values())
    answer, stop, rest = unbroken(title).partition(". ")
    heading = Markup(
        '<div role="heading" aria-level="2" style="font-size:18px;font-weight:600;margin:4px 0">{}</div>'
        "<div>{}</div>"
    ).format(answer + stop.strip(), rest)
    whole = Markup('<div class="profnb" style="{}">{}</div>')
    return str(whole.format(ROOT, heading + above + charts + below))


def _quality_section(labels: Labels, metrics: Sequence[MetricDifference]) -> Section:
    rows = []
    for row in metrics[:_SHOWN_METRICS]:
        pairs = zip(row.medians, row.worsts, strict=True)
        cells = [row.text(value) for pair in pairs for value in pair]
        rows.append(("", row.metric, *cells, f"{row.runs[0]} + {row.runs[1]}", row.word))
    sides = [heading for label in labels for heading in (f"{label}, median", "worst")]
    return Section(
        title="What was learned",
        sentence="The last value of each metric of Keras' History; worst is the worst run.",
        headings=("", "metric", *sides, "runs", "difference"),
        rows=rows,
        numbers=(False, False, True, True, True, True, True, False),
        colours=[COLOURS["host compute"]] * len(rows),
    )


def _time_section(runs: tuple[RunSet, RunSet], p_value: float) -> Section:
    def spread(times: Floats) -> tuple[str, str, str]:
        quantiles = np.percentile(times, (25, 50, 75, 0, 100)).tolist()
        low, middle, high, least, most = map(units.duration_text, quantiles)
        return middle, units.range_text(low, high), units.range_text(least, most)

    rows = []
    slowest = max((float(side.medians.max()) for side in runs if side.medians.size), default=1.0)
    for side in runs:
        if not side.step_count:
            rows.append(("", side.label, "0", "0", units.MISSING, units.MISSING, units.MISSING))
            continue
        bar = units.bar_text(float(np.median(side.medians)) / slowest, 12)
        counts = units.count_text(side.medians.size), units.count_text(side.step_count)
        rows.append((bar, side.label, *counts, *spread(np.concatenate(side.step_ps))))
    if all(side.run_ps for side in runs):
        for side in runs:
            count = units.count_text(len(side.run_ps))
            rows.append(("", f"{side.label}, whole run", count, "", *spread(np.array(side.run_ps))))
    second_opinion = ""
    if not math.isnan(p_value):
        chance = f"p = {p_value:.3f}" if p_value >= 0.001 else "p < 0.001"
        second_opinion = f"Mann-Whitney U test: {chance} if both programs are equally fast."
    return Section(
        title="From step to step, and whole runs",
        sentence=second_opinion,
        headings=("", "", "runs", "steps", "median", "middle half", "all"),
        rows=rows,
        numbers=(False, False, True, True, True, True, True),
        colours=[*_SIDE_COLOURS] * (len(rows) // 2),
    )


def _differences(
    table: Table[Any], rows: Sequence[Any], labels: Labels, columns: Sequence[Any], **rest: Any
) -> Section:
    """Show rows that differ; where the columns have "times" stand those of A and of B."""
    times = [
        number_of(rows, labels[0], lambda row: units.duration_text(row.first_ps)),
        number_of(rows, labels[1], lambda row: units.duration_text(row.second_ps)),
    ]
    shown = [one for column in columns for one in (times if column == "times" else [column])]
    bar = more_or_less([row.difference_ps for row in rows])
    return section_of(table, rows, shown, **{"bar": bar, **rest})


def _category_section(labels: Labels, rows: Sequence[CategoryDifference]) -> Section:
    lengths = [abs(row.difference_ps) for row in rows]
    bar = Bar.of(lengths, lambda at: colour_of(rows[at].category), 10)
    columns, title = ("category", "times", "difference_ms"), "Mean step by category"
    return _differences(CATEGORY_DIFFERENCES, rows, labels, columns, title=title, bar=bar)


def _op_section(labels: Labels, traces: TracePair) -> Section:
    ops = traces.ops
    shown = [row for row in ops if row.difference_ps][:_SHOWN_OPS]
    whole = sum(abs(row.difference_ps) for row in ops) or 1.0
    share = sum(abs(row.difference_ps) for row in shown) / whole
    op = traces.op_column("op", [(row.op_name, row.op_type) for row in shown])
    status = shown_of(shown, "", lambda row: "" if row.status == "changed" else row.status)
    columns = (op, "side", "times", "difference_us", status)
    about = f"Self time of a mean step: {units.percent_text(share)} of all differences."
    title = "Ops that account for it"
    return _differences(OP_DIFFERENCES, shown, labels, columns, title=title, sentence=about)


def _event_section(labels: Labels, traces: TracePair) -> Section:
    events = traces.events
    shown, more = events[:_SHOWN_EVENTS], len(events) - _SHOWN_EVENTS
    left_out = f" `c.timeline_diff` has {units.count_text(more)} more." if more > 0 else ""
    event = traces.op_column("event", [parse_op(row.event) or (row.event, "") for row in shown])
    columns = (event, "side", "times", "difference_ms", "status")
    title, about = "The timelines, step by step", f"Self time of a mean step.{left_out}"
    return _differences(EVENT_DIFFERENCES, shown, labels, columns, title=title, sentence=about)


def layer_section(
    labels: Labels, layers: Sequence[LayerDifference], op_ps: Sequence[float], frameworks: Labels
) -> Section:
    """Show layers of two frameworks side by side; without rows where one side has none.

    Args:
        labels: What A and B are called.
        layers: The layers of both.
        op_ps: Op time of a mean step of A and of B.
        frameworks: Which frameworks ran.
    """
    if not layers:
        sentence = (
            f"{frameworks[0]} and {frameworks[1]} have no common ops, and one has no known layers. Only "
            "categories can be compared."
        )
        plain = f"{_LAYERS_TITLE}\n{sentence}"
        return Section(_LAYERS_TITLE, sentence, (), (), (), (), plain=plain)
    # How much more B spends on each, also where one side has no such layer.
    more = [float(np.nan_to_num(row.second_ps) - np.nan_to_num(row.first_ps)) for row in layers]
    order = sorted(range(len(layers)), key=lambda row: -abs(more[row]))

    def name(row: LayerDifference) -> Cell:
        above, _, called = row.layer.rpartition("/") if row.is_layer else ("", "", row.layer)
        inside = above.partition("/")[2]
        about = [row.layer_type, inside and f"in {inside}"]
        if row.status != "both":
            about.append(f"only {labels[row.status == 'only in B']}")
        beside = " ".join(filter(None, about))
        return (called, "", beside) if beside else called

    def side(which: int) -> Shown:
        def text(row: LayerDifference) -> str:
            one = (row.first, row.second)[which]
            if math.isnan(one.forward_ps):
                return units.MISSING
            if not row.is_layer:
                return units.duration_text(one.total_ps)
            return f"{units.duration_text(one.forward_ps)} + {units.duration_text(one.backward_ps)}"

        return number_of(layers, labels[which], text, _LAYER_TIME)

    return section_of(
        LAYER_DIFFERENCES,
        layers,
        (
            shown_of(layers, "layer", name),
            side(0),
            side(1),
            number_of(layers, f"{labels[1]} / {labels[0]}", _ratio, _LAYER_RATIO),
            number_of(layers, "parameters", _parameters),
        ),
        title=_LAYERS_TITLE,
        sentence=_about_layers(labels, layers, op_ps),
        bar=more_or_less(more),
        rows=sorted(order[:_SHOWN_LAYERS]),
    )


def _ratio(row: LayerDifference) -> str:
    if math.isnan(row.ratio):
        return units.MISSING
    interval = units.range_text(f"{row.low:.2f}", f"{row.high:.2f}")
    return f"{row.ratio:.2f}" + ("" if math.isnan(row.low) else f" ({interval})")


def _parameters(row: LayerDifference) -> str:
    counts = (row.first.parameters, row.second.parameters)
    texts = [units.count_text(int(count)) for count in counts if not math.isnan(count)]
    return " and ".join(dict.fromkeys(texts)) or units.MISSING


def _about_layers(labels: Labels, layers: Sequence[LayerDifference], op_ps: Sequence[float]) -> str:
    both = sum(row.status == "both" for row in layers if row.is_layer)
    every = sum(row.is_layer for row in layers)
    times = " and ".join(
        f"{units.duration_text(spent)} in {label}"
        for spent, label in zip(op_ps, labels, strict=True)
    )
    words = [
        f"{units.count_text(both)} of {units.count_text(every)} layers with ops were found on both sides by "
        f"name. Op time of a mean traced step: {times}, threads added up, without Python and waiting between "
        "ops."
    ]
    if len(layers) > _SHOWN_LAYERS:
        words.append(f"{units.count_text(len(layers) - _SHOWN_LAYERS)} more rows are in c.layers.")
    for status, label in zip(("only in A", "only in B"), labels, strict=True):
        only = [row.layer for row in layers if row.is_layer and row.status == status]
        named = [name.rpartition("/")[2] or name for name in only]
        if only:
            words.append(f"Only {label} has ops of {listed(named, _MOST_LAYERS_NAMED, 'more')}.")
    return " ".join(words)


def box_figures(runs: tuple[RunSet, RunSet]) -> Charts:
    """Make charts by title: step times, one box per run; run times, one per side where both have several."""
    steps = [
        (f"{side.label[:24]} {number + 1}" if len(side.step_ps) > 1 else side.label[:28], at, times)
        for at, side in enumerate(runs)
        for number, times in enumerate(side.step_ps[:_MOST_RUNS_DRAWN])
        if len(times)
    ]
    figures = {_STEPS_TITLE: _box_figure(_STEPS_TITLE, steps, units.PS_PER_MS, "ms")}
    if min(len(side.run_ps) for side in runs) > 1:
        whole = [(side.label[:28], at, np.array(side.run_ps)) for at, side in enumerate(runs)]
        figures[_RUNS_TITLE] = _box_figure(_RUNS_TITLE, whole, units.PS_PER_S, "s")
    return figures


def _box_figure(
    title: str, boxes: Sequence[tuple[str, int, Floats]], scale: float, unit: str
) -> dict[str, Any]:
    """A box each: quartiles, median, the whole range, and what it is made of as points.

    Where a few values lie so far out that the boxes would be dots, the axis ends before them (three heights
    of a box above it), and the label says how far they go. plotly's own box plot is not in the bundle that
    notebooks load; bars and lines are.
    """
    scaled = [np.asarray(values, np.float64) / scale for *_, values in boxes]
    quartiles = [np.percentile(values, (25, 75)) for values in scaled]
    tops = [float(values.max()) for values in scaled]
    pairs = zip(tops, quartiles, strict=True)
    fence = max(min(top, float(high + 3 * (high - low))) for top, (low, high) in pairs)
    end = 1.05 * (fence if max(tops) > _FAR_OUT * fence else max(tops))
    data: list[dict[str, Any]] = []
    labels = []
    for place, ((label, side, _), values) in enumerate(zip(boxes, scaled, strict=True)):
        data += _box(place, values, end, unit, _SIDE_COLOURS[side])
        far = f" (to {units.duration_text(tops[place] * scale)} →)" if tops[place] > end else ""
        labels.append(f"{label}{far}")
    return lying_chart(title, 110 + 34 * len(boxes), data, labels, end, f" {unit}")


def lying_chart(
    title: str, height: int, data: Sequence[Any], labels: Sequence[str], end: float, unit: str = ""
) -> dict[str, Any]:
    """Make a figure of bars that lie, each with a label, on an axis from 0 to an end."""
    return chart(
        title, height, data, barmode="overlay", showlegend=False, margin={"l": 8, "r": 12, "t": 34, "b": 34},
        xaxis={**axis(""), "ticksuffix": unit, "range": [0, end]}, yaxis=label_axis(labels),
    )  # fmt: skip


def _box(place: int, values: Floats, end: float, unit: str, colour: str) -> list[dict[str, Any]]:
    low, middle, high = (round(float(value), 5) for value in np.percentile(values, (25, 50, 75)))
    most = min(values.size, _MOST_BINS)
    kept = np.sort(values)[np.linspace(0, values.size - 1, most).astype(int)]
    hover = f"median {middle:.4g} {unit}, middle half {low:.4g} to {high:.4g}"
    hover += f", all {kept[0]:.4g} to {kept[-1]:.4g}"
    shown = kept[kept <= end]
    return [
        {
            "type": "bar", "orientation": "h", "y": [place], "base": [low], "x": [round(high - low, 5)],
            "width": 0.5, "marker": {"color": colour, "opacity": 0.5, "line": {"width": 0}},
            "hovertemplate": f"{hover}<extra></extra>",
        },
        {
            "type": "scatter", "mode": "lines", "y": [place, place],
            "x": [round(float(kept[0]), 5), round(min(float(kept[-1]), end), 5)],
            "line": {"width": 1, "color": colour}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": [round(float(value), 5) for value in shown],
            "y": [round(place + 0.16 * (-1) ** at * ((at % 5) / 4), 3) for at in range(shown.size)],
            "marker": {"size": 3, "color": colour, "opacity": 0.7}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": [middle], "y": [place],
            "marker": {"size": 18, "color": colour, "symbol": "line-ns-open", "line": {"width": 3}},
            "hoverinfo": "skip",
        },
    ]  # fmt: skip
