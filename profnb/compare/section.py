"""A comparison as HTML, text and a chart: the guards, the verdict, step times, categories, ops."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.compare.across.layer_differences import LayerDifference
from profnb.compare.across.layer_section import layer_section
from profnb.compare.box_chart import box_figures
from profnb.compare.differences import CATEGORY_DIFFERENCES, CategoryDifference
from profnb.compare.op_differences import OP_DIFFERENCES, OpDifference
from profnb.compare.quality import MetricDifference
from profnb.compare.speedup import RunSet
from profnb.core.printable import for_terminal, printable
from profnb.core.units import MISSING, bar_text, count_text, duration_text, percent_text, range_text
from profnb.drawing.drawn_tables import note_list
from profnb.drawing.figures import figure_html
from profnb.drawing.section import Bar, Section, Shown, section_block, section_of, section_text
from profnb.drawing.theme import COLOURS, ROOT, colour_of
from profnb.subjects.layers.name_scopes import op_titles

_SHOWN_OPS, _SHOWN_METRICS = 12, 8


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
        layers: The layers of both, where two frameworks ran.
        frameworks: Which frameworks those are; "" for both where it is one, and ops are compared.
        op_ps: Op time of a mean step of both.
    """

    verdict: str
    quality_verdict: str
    guards: Sequence[str]
    runs: tuple[RunSet, RunSet]
    p_value: float
    categories: Sequence[CategoryDifference]
    ops: Sequence[OpDifference]
    metrics: Sequence[MetricDifference] = ()
    layers: Sequence[LayerDifference] = ()
    frameworks: tuple[str, str] = ("", "")
    op_ps: tuple[float, float] = (0.0, 0.0)

    def sections(self) -> list[Section]:
        """Its tables."""
        quality = [_quality_section(self)] if self.metrics else []
        return [
            _time_section(self.runs, self.p_value),
            *quality,
            _category_section(self.runs, self.categories),
            self._last_section(),
        ]

    def _last_section(self) -> Section:
        """What accounts for the difference: ops, or layers where two frameworks ran."""
        one, two = self.runs
        if not any(self.frameworks):
            return _op_section(self.runs, self.ops)
        return layer_section((one.label, two.label), self.layers, self.op_ps, self.frameworks)

    def figures(self) -> dict[str, dict[str, Any]]:
        """The charts by title, in plotly's schema: what the runs took."""
        return box_figures(self.runs) if all(one.step_count for one in self.runs) else {}


def comparison_text(view: ComparisonView) -> str:
    """The comparison as plain text."""
    parts = [f"Caution: {printable(guard)}" for guard in view.guards]
    parts += [printable(part) for part in (view.verdict, view.quality_verdict) if part]
    parts += [section_text(section) for section in view.sections()]
    return for_terminal("\n\n".join(parts))


def comparison_bundle(view: ComparisonView) -> dict[str, Any]:
    """The comparison as a MIME bundle: its verdict, its charts, its tables."""
    quality = Markup('<div style="margin:2px 0 4px">{}</div>').format(view.quality_verdict)
    html = Markup(
        '<div class="profnb" style="{}">'
        '<div role="heading" aria-level="2" style="font-size:18px;font-weight:600;margin:4px 0">{}</div>'
        "{}{}{}{}</div>"
    ).format(
        ROOT,
        view.verdict,
        quality if view.quality_verdict else "",
        note_list(view.guards, look=""),
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
            range_text(duration_text(float(low)), duration_text(float(high))),
            range_text(duration_text(float(steps.min())), duration_text(float(steps.max()))),
        ))  # fmt: skip
    for side in runs:
        if side.run_ps and all(other.run_ps for other in runs):
            low, middle, high = np.percentile(side.run_ps, (25, 50, 75))
            rows.append((
                "", f"{side.label}, whole run", count_text(len(side.run_ps)), "",
                duration_text(float(middle)),
                range_text(duration_text(float(low)), duration_text(float(high))),
                range_text(duration_text(min(side.run_ps)), duration_text(max(side.run_ps))),
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
    titles = op_titles([row.op_name for row in shown], [row.op_type for row in shown])

    def status(row: int) -> str:
        return "" if shown[row].status == "changed" else shown[row].status

    return section_of(
        OP_DIFFERENCES,
        shown,
        (
            Shown("op", lambda row: titles[row].cell),
            "side",
            *_sides(runs, shown),
            "difference_us",
            Shown("", status),
        ),
        title="Ops that account for it",
        tab="",
        sentence=f"Self time of a mean step; these are {percent_text(share)} of all differences.",
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
