"""A sweep as HTML, text and charts: throughput of each setting with its interval, and what it costs."""

from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.compare.section import label_axis, titled_html
from profnb.compare.sweeps import SweepTable, setting_text, settings_table, slower_text
from profnb.core.printable import for_terminal, printable
from profnb.core.units import MISSING, count_text, range_text, rate_text
from profnb.drawing.drawn_tables import note_list
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
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
    timed_count = int(np.isfinite(table.per_second).sum())
    figures = {"Throughput": _bar_figure(table)} if timed_count else {}
    if timed_count > 1 and table.against:
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
    timed_count, best = int(np.isfinite(table.per_second).sum()), _fastest(table)
    if not timed_count:
        return "No setting has a run that counts."
    rate = f"{count_text(round(float(table.per_second[best])))} {table.unit}/s"
    if timed_count == 1:
        return f"{_label(table, best)}: {rate}. No other setting ran."
    if table.equals:
        others = "one other" if table.equals == 1 else f"{table.equals} others"
        return f"{_label(table, best)} is fastest ({rate}), but {others} may be as fast."
    return f"{_label(table, best)} is fastest: {rate}."


def _fastest(table: SweepTable) -> int:
    """The setting that is the winner, and alone has the winner's colour; -1 where none has a run."""
    is_timed = np.isfinite(table.per_second)
    return int(np.nanargmax(np.where(is_timed, table.per_second, np.nan))) if is_timed.any() else -1


def _is_tied(table: SweepTable, row: int) -> bool:
    """Tell whether a setting is not the fastest of these runs, and may be it all the same."""
    ranking = table.ranking
    return ranking is not None and row != ranking.best and bool(ranking.may_be_best[row])


def _standing(table: SweepTable, row: int) -> str:
    """Say how a setting stands to the fastest one, in a word or two; "" where it has no run."""
    is_timed, ranking = np.isfinite(table.per_second), table.ranking
    if ranking is None or not is_timed[row] or is_timed.sum() == 1:
        return ""
    if row == ranking.best:
        return "fastest" if not table.equals else "fastest, tied"
    if _is_tied(table, row):
        return "tied"
    if not ranking.low[row] > 0:  # nothing tells
        return MISSING
    low, high = (slower_text(float(bounds[row])) for bounds in (ranking.low, ranking.high))
    return f"{range_text(low, high)} slower"


def _interval(table: SweepTable, row: int) -> str:
    low, high = float(table.low[row]), float(table.high[row])
    if not np.isfinite(low):
        return MISSING
    return range_text(rate_text(low, "").strip(), rate_text(high, "").strip())


def _section(table: SweepTable) -> Section:
    points, best = table.points, _fastest(table)
    fastest = float(table.per_second[best]) if best >= 0 else 1.0
    learned = [] if table.metric is None else [table.metric, f"{table.metric}_worst"]
    is_weighed = bool(table.against) and int(np.isfinite(table.per_second).sum()) > 1
    front = Shown(
        "worth its price",
        lambda row: "yes" if table.is_best[row] else "",
        meaning="no other setting is surely better in one respect without being worse in the other",
    )
    weighed = f" {table.against}" + ("" if table.against == "memory" else " (median over runs)")

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
        tab="",
        sentence=f"Worth the price: no other is surely better in throughput or in{weighed} without a loss."
        if is_weighed
        else "",
        bar=Bar.of(table.per_second, lambda row: _BEST if row == best else _NOT_BEST, full=fastest),
        rows=range(len(table)),
    )


def _bar_figure(table: SweepTable) -> dict[str, Any]:
    """A bar per setting, the interval as a line."""
    rows = [row for row in range(len(table)) if np.isfinite(table.per_second[row])][:_MOST_BARS]
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
    layout = figure_layout(f"{table.unit.capitalize()} per second", 90 + 26 * len(rows))
    layout |= {
        "showlegend": False,
        "margin": {"l": 8, "r": 16, "t": 34, "b": 34},
        "xaxis": {**axis(""), "range": [0, end]},
        "yaxis": label_axis(labels),
    }
    bars = {
        "type": "bar", "orientation": "h", "y": list(range(len(rows))), "x": rates,
        "marker": {
            "color": [_BEST if row == _fastest(table) else _NOT_BEST for row in rows],
            "line": {"width": [2 if _is_tied(table, row) else 0 for row in rows], "color": _BEST},
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
    return {"data": [bars], "layout": layout, "config": {"displaylogo": False}}


def _front_figure(table: SweepTable) -> dict[str, Any]:
    """Settings as points: what they cost or reach across, throughput up, the front joined."""
    is_memory = table.against == "memory"
    value = table.memory / _MB if is_memory else table.quality
    rows = np.flatnonzero(np.isfinite(value) & np.isfinite(table.per_second))[:_MOST_BARS]
    front = rows[table.is_best[rows]]
    front = front[np.argsort(value[front])]
    title = f"Throughput against {'memory at the peak' if is_memory else table.against}"
    names = ", ".join(table.names)
    layout = figure_layout(f"{figure_text(title)} ({figure_text(names[:_LONGEST_LABEL])})", 320)
    middle = float(value[rows].min() + value[rows].max()) / 2
    layout |= {
        "showlegend": False,
        "margin": {"l": 8, "r": 16, "t": 34, "b": 44},
        "xaxis": {**axis("MB" if is_memory else figure_text(str(table.against))), "automargin": True},
        "yaxis": {**axis(f"{table.unit}/s"), "rangemode": "tozero", "automargin": True},
    }  # fmt: skip

    def short_label(row: int) -> str:
        return f" {', '.join(map(str, table.points[row].setting.values()))} "[:_LONGEST_LABEL]

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
        "text": [figure_text(short_label(row)) if table.is_best[row] else "" for row in rows.tolist()],
        "hovertext": [figure_text(_label(table, row)) for row in rows.tolist()],
        # Beside the point, towards the middle: a label at the edge would be cut.
        "textposition": ["middle right" if value[row] <= middle else "middle left" for row in rows],
        "textfont": {"size": 10}, "cliponaxis": False,
        "marker": {"size": 9, "color": [_BEST if row == _fastest(table) else _NOT_BEST for row in rows]},
        "hovertemplate": "%{hovertext}: %{y:,.0f} " + table.unit + "/s, %{x:.4g}<extra></extra>",
    }  # fmt: skip
    return {"data": [line, points], "layout": layout, "config": {"displaylogo": False}}
