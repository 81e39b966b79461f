"""A sweep as HTML, text and charts: throughput of each setting with its interval, and what it costs."""

from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.compare.section import lying_chart, titled_html
from profnb.compare.sweeps import SweepTable, setting_text, settings_table, slower_text
from profnb.core.printable import for_terminal, printable
from profnb.core.units import MISSING, count_text, range_text, rate_text
from profnb.drawing.figures import axis, chart
from profnb.drawing.markup import figure_text, note_list
from profnb.drawing.section import Bar, Section, Shown, section_of, section_text
from profnb.drawing.theme import COLOURS

_MOST_BARS, _LONGEST_LABEL = 40, 40
_BEST, _NOT_BEST = COLOURS["host compute"], COLOURS["device compute"]
_MB = 1e6


def sweep_text(table: SweepTable) -> str:
    """Write the sweep as plain text."""
    notes = [f"Note: {printable(note)}" for note in table.notes]
    return for_terminal("\n\n".join([_headline(table), *notes, section_text(_section(table))]))


def sweep_figures(table: SweepTable) -> dict[str, dict[str, Any]]:
    """Make the sweep's charts by title, in plotly's schema; none where nothing was measured."""
    figures = {"Throughput": _bar_figure(table)} if table.timed else {}
    if len(table.timed) > 1 and table.against:
        figures["Throughput and its price"] = _front_figure(table)
    return figures


def sweep_bundle(table: SweepTable) -> dict[str, Any]:
    """Make the sweep a MIME bundle: what it found, its charts, its table."""
    below = note_list(table.notes) + _section(table).html
    html = titled_html(_headline(table), Markup(""), sweep_figures(table), below)
    return {"text/html": html, "text/plain": sweep_text(table)}


def _label(table: SweepTable, row: int) -> str:
    return setting_text(table.points[row].setting)[:_LONGEST_LABEL]


def _headline(table: SweepTable) -> str:
    if table.ranking is None:
        return "No setting has a finished run. Mend the errors below, and repeat the sweep."
    best = _label(table, table.ranking.best)
    rate = f"{count_text(round(float(table.per_second[table.ranking.best])))} {table.unit}/s"
    if len(table.timed) == 1:
        return f"{best}: {rate}. No other setting ran."
    if table.equals:
        others = "another setting" if table.equals == 1 else f"{table.equals} more settings"
        return f"{best} is fastest ({rate}), but {others} may be as fast."
    return f"{best} is fastest: {rate}."


def _standing(table: SweepTable, row: int) -> str:
    """Say how a setting stands to the fastest one, in a word or two; "" where it has no run."""
    ranking = table.ranking
    if ranking is None or row not in table.timed or len(table.timed) == 1:
        return ""
    if row == ranking.best:
        return "fastest" if not table.equals else "fastest, tied"
    if ranking.may_be_best[row]:
        return "tied"
    if not ranking.low[row] > 0:  # nothing tells
        return MISSING
    low, high = (slower_text(float(bounds[row])) for bounds in (ranking.low, ranking.high))
    return f"{range_text(low, high)} slower"


def _colours(table: SweepTable) -> list[str]:
    """A colour for each setting: the winner alone has the winner's."""
    best = -1 if table.ranking is None else table.ranking.best
    return [_BEST if row == best else _NOT_BEST for row in range(len(table))]


def _interval(table: SweepTable, row: int) -> str:
    low, high = (rate_text(float(ends[row]), "").strip() for ends in (table.low, table.high))
    return range_text(low, high) if np.isfinite(table.low[row]) else MISSING


def _section(table: SweepTable) -> Section:
    points, colours = table.points, _colours(table)
    learned = [] if table.metric is None else [table.metric, f"{table.metric}_worst"]
    is_weighed = bool(table.against) and len(table.timed) > 1
    front = Shown(
        "worth its price",
        lambda row: "yes" if table.is_best[row] else "",
        meaning="no other setting is surely better in one respect without being worse in the other",
    )
    weighed = f" {table.against}" + ("" if table.against == "memory" else " (median over runs)")
    loses = f"Worth the price: any other setting loses in throughput or in{weighed}."

    def setting(name: str) -> Shown:
        def text(row: int) -> str:
            return str(points[row].setting.get(name, ""))[:_LONGEST_LABEL]

        return Shown(name, text, is_number=True, meaning="what was set")

    return section_of(
        settings_table(table),
        table,
        (
            *map(setting, table.names),
            Shown("runs", lambda row: count_text(points[row].runs), is_number=True),
            "run_ms" if table.unit == "runs" else "step_ms",
            f"{table.unit}_per_second",
            Shown("95 % interval", lambda row: _interval(table, row), is_number=True),
            Shown(
                "against the fastest",
                lambda row: _standing(table, row),
                meaning="how much less throughput it has, for all settings at once in 95 % of such sweeps; "
                "tied: these runs cannot tell it from the fastest",
            ),
            *learned,
            "peak_bytes",
            *([front] if is_weighed else []),
            Shown("", lambda row: (points[row].error.splitlines() or [""])[-1][:80]),
        ),
        title="Settings",
        sentence=loses if is_weighed else "",
        bar=Bar.of(np.nan_to_num(table.per_second), colours.__getitem__),
    )


def _bar_figure(table: SweepTable) -> dict[str, Any]:
    """A bar per setting, the interval as a line."""
    rows, colours = table.timed[:_MOST_BARS], _colours(table)
    rates = [round(float(table.per_second[row]), 2) for row in rows]
    high = [round(float(table.high[row] - table.per_second[row]), 2) for row in rows]
    low = [round(float(table.per_second[row] - table.low[row]), 2) for row in rows]
    reach = [rate + more for rate, more in zip(rates, high, strict=True)]
    # An interval of two runs may reach far; it is cut, with a mark, or no bar would be left to see.
    end = min(max(reach), 1.6 * max(rates)) * 1.04
    labels = [_label(table, row) for row in rows]
    for at, row in enumerate(rows):
        if reach[at] > end:
            labels[at] += f" (interval to {rate_text(float(table.high[row]), '').strip()} →)"
    bars = {
        "type": "bar", "orientation": "h", "y": list(range(len(rows))), "x": rates,
        "marker": {
            "color": [colours[row] for row in rows],
            "line": {"width": [2 if _standing(table, row) == "tied" else 0 for row in rows], "color": _BEST},
        },
        "error_x": {
            "type": "data", "symmetric": False, "array": high, "arrayminus": low, "thickness": 1.5,
            "width": 4, "color": "#888",
        },
        "hovertemplate": [
            f"{figure_text(_label(table, row))}: {count_text(round(rate))} {table.unit}/s, 95 % interval "
            f"{_interval(table, row)}; {_standing(table, row)}<extra></extra>"
            for row, rate in zip(rows, rates, strict=True)
        ],
    }  # fmt: skip
    title = f"{table.unit.capitalize()} per second"
    return lying_chart(title, 90 + 26 * len(rows), [bars], labels, end)


def _front_figure(table: SweepTable) -> dict[str, Any]:
    """Settings as points: what they cost or reach across, throughput up, the front joined."""
    is_memory = table.against == "memory"
    value = table.memory / _MB if is_memory else table.quality
    rows = np.flatnonzero(np.isfinite(value) & np.isfinite(table.per_second))[:_MOST_BARS]
    front = rows[table.is_best[rows]]
    front = front[np.argsort(value[front])]
    title = f"Throughput against {'memory at the peak' if is_memory else table.against}"
    names = ", ".join(table.names)[:_LONGEST_LABEL]
    middle = float(value[rows].min() + value[rows].max()) / 2
    labels = [f" {', '.join(map(str, point.setting.values()))} " for point in table.points]

    def rounded(values: Any) -> list[float]:
        return [float(f"{value:.6g}") for value in values]

    line = {
        "type": "scatter", "mode": "lines", "x": rounded(value[front]),
        "y": rounded(table.per_second[front]), "hoverinfo": "skip",
        "line": {"width": 1.5, "color": _BEST, "dash": "dot"},
    }  # fmt: skip
    points = {
        "type": "scatter", "mode": "markers+text" if rows.size <= 12 else "markers",
        "x": rounded(value[rows]), "y": rounded(table.per_second[rows]),
        "text": [figure_text(labels[row][:_LONGEST_LABEL]) if table.is_best[row] else "" for row in rows],
        "hovertext": [figure_text(_label(table, row)) for row in rows.tolist()],
        # Beside the point, towards the middle: a label at the edge would be cut.
        "textposition": ["middle right" if value[row] <= middle else "middle left" for row in rows],
        "textfont": {"size": 10}, "cliponaxis": False,
        "marker": {"size": 9, "color": [_colours(table)[row] for row in rows]},
        "hovertemplate": "%{hovertext}: %{y:,.0f} " + table.unit + "/s, %{x:.4g}<extra></extra>",
    }  # fmt: skip
    return chart(
        f"{figure_text(title)} ({figure_text(names)})", 320, [line, points], showlegend=False,
        margin={"l": 8, "r": 16, "t": 34, "b": 44},
        xaxis={**axis("MB" if is_memory else figure_text(str(table.against))), "automargin": True},
        yaxis={**axis(f"{table.unit}/s"), "rangemode": "tozero", "automargin": True},
    )  # fmt: skip
