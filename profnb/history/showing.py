"""The history as a DataFrame, as a list with a picture, as the sentence of an alarm."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from profnb.compare.section import titled_html
from profnb.compare.tree_differences import PartDifference, compare_trees, difference_sentence
from profnb.core.errors import ProfnbError
from profnb.core.printable import for_terminal, printable
from profnb.core.units import (
    MISSING,
    PS_PER_MS,
    count_text,
    counted_text,
    duration_text,
    examples_text,
    percent_text,
)
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Bar, Section, Shown, section_block, section_of, section_text
from profnb.drawing.theme import COLOURS
from profnb.history.place import wanted_file
from profnb.history.series import CELL, HISTORY, ListedRun, list_runs
from profnb.history.store import Tree, read_runs, read_tree

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_RUNS, _SHOWN_SERIES, _MOST_POINTS, _NEAR = 30, 4, 200, 10
_STEADY, _SLOWER, _FASTER = (COLOURS[name] for name in ("device compute", "input", "host compute"))
_ASIDE = COLOURS["all others"]
_NAMED = 7  # characters of a commit
_OPENED = Markup('<div class="profnb-run"></div>')  # where a run stands that was clicked


@dataclass(frozen=True)
class History:
    """Runs that were kept, the oldest first.

    Attributes:
        path: The file; None where nothing is kept.
        rows: The runs, and where they changed.
    """

    path: Path | None
    rows: Sequence[ListedRun]

    def frame(self) -> "pd.DataFrame":
        """Make the DataFrame."""
        return HISTORY.frame(self.rows)

    @property
    def alarms(self) -> list[ListedRun]:
        """The first runs of slow-downs that are news, the latest last."""
        return [row for row in self.rows if row.is_alarm]

    def sentences(self) -> list[str]:
        """Say each alarm: which code, since which run and commit, how much, and where it comes from."""
        return [self._alarm(row) for row in self.alarms]

    def _alarm(self, row: ListedRun) -> str:
        run, change = row.run, row.change
        if change is None:
            return ""
        before, after = self._around(row)
        times = [one.wall_ms if row.of == CELL else one.median_ms for one in (before, after)]
        what = "the whole cell" if row.of == CELL else "the typical step"
        commit = f", commit {_commit(row)}" if run.commit else ""
        said = (
            f"{name_of(row)} is {change.ratio:.2f}x slower since {_when(row)}{commit}: {what} took "
            f"{duration_text(times[0] * PS_PER_MS)}, then {duration_text(times[1] * PS_PER_MS)}."
        )
        parts = self.difference(before.key, after.key)
        return f"{said} {difference_sentence(parts)}".rstrip()

    def _around(self, row: ListedRun) -> tuple[Any, Any]:
        """The usual run of those shortly before a change, and of those since."""
        of = "wall_ms" if row.of == CELL else "median_ms"
        runs = [
            one.run
            for one in self.rows
            if one.series == row.series and not one.is_aside and getattr(one.run, of) > 0
        ]
        at = runs.index(row.run)
        return tuple(
            sorted(some, key=lambda run: getattr(run, of))[len(some) // 2]
            for some in (runs[max(at - _NEAR, 0) : at], runs[at : at + _NEAR])
        )  # type: ignore[return-value]

    def difference(self, first: str, second: str) -> list[PartDifference]:
        """Compare the trees of two runs, by their keys; empty where one has none."""
        if self.path is None:
            return []
        trees: list[Tree] = [read_tree(self.path, key) for key in (first, second)]
        return compare_trees(*trees) if all(trees) else []

    @property
    def title(self) -> str:
        """What it says, in a sentence."""
        if self.path is None:
            return "No runs are kept here. `profnb.configure(history=True)` keeps them from now on."
        if not self.rows:
            return "No run has been kept yet. From now on each profiled cell is kept."
        alarms = self.sentences()
        if alarms:
            return alarms[-1]
        series = len({row.series for row in self.rows})
        counts = f"{counted_text(len(self.rows), 'run')} in {count_text(series)} series"
        return f"{counts}: no slow-down among the latest ten of any."

    def summary(self) -> str:
        """Write it as plain text."""
        parts = [printable(one) for one in (self.title, *self.sentences()[:-1])]
        if self.rows:
            parts.append(section_text(self.section()))
        return for_terminal("\n\n".join(parts))

    def bundle(self) -> dict[str, Any]:
        """Make it a MIME bundle: what it says, a picture of each series, the list."""
        alarms = [Markup("<div>{}</div>").format(one) for one in self.sentences()[:-1]]
        listed = section_block(self.section()) if self.rows else Markup("")
        html = titled_html(self.title, Markup("").join(alarms), self.figures(), listed + _OPENED)
        return {"text/html": html, "text/plain": self.summary()}

    def open_run(self, key: str) -> str:
        """Give the report of a run whose trace was kept, as HTML, or a sentence; "" where none was."""
        run = next((row.run for row in self.rows if row.run.key == key and row.run.trace), None)
        if run is None:
            return ""
        from profnb.loading import load

        try:
            return str(load(run.trace)._repr_mimebundle_()["text/html"])
        except (ProfnbError, OSError) as error:
            return Markup("{}").format(printable(str(error)))

    def section(self) -> Section:
        """List the latest runs, the newest first."""
        rows = self.rows
        order = range(len(rows) - 1, max(len(rows) - 1 - _SHOWN_RUNS, -1), -1)
        most = max((row.run.wall_ms for row in rows if row.run.wall_ms > 0), default=1.0)
        more = len(rows) - len(order)
        left_out = f" {count_text(more)} earlier ones are in `profnb.history()`." if more else ""
        return section_of(
            HISTORY,
            rows,
            (
                Shown("run", lambda at: _when(rows[at])),
                Shown("code", lambda at: name_of(rows[at])),
                Shown("commit", lambda at: _commit(rows[at]) or MISSING),
                Shown(
                    "step",
                    lambda at: duration_text(rows[at].run.median_ms * PS_PER_MS),
                    is_number=True,
                ),
                Shown("95 % interval", lambda at: _interval(rows[at]), is_number=True),
                Shown(
                    "whole",
                    lambda at: duration_text(rows[at].run.wall_ms * PS_PER_MS),
                    is_number=True,
                ),
                Shown("throughput", lambda at: _throughput(rows[at]), is_number=True),
                Shown("", lambda at: _remark(rows[at])),
            ),
            title="Latest runs",
            tab="",
            sentence=f"Bars are the whole time.{left_out}",
            bar=Bar(lambda at: max(rows[at].run.wall_ms, 0.0) / most, _STEADY, 10),
            rows=order,
        )

    def figures(self) -> dict[str, dict[str, Any]]:
        """Draw the typical step over runs by title, of the series that ran last; in plotly's schema."""
        latest = dict.fromkeys(row.series for row in reversed(self.rows))
        figures: dict[str, dict[str, Any]] = {}
        for series in latest:
            rows = [row for row in self.rows if row.series == series][-_MOST_POINTS:]
            of = "median_ms" if any(row.run.median_ms > 0 for row in rows) else "wall_ms"
            rows = [row for row in rows if getattr(row.run, of) > 0]
            if len(rows) > 1 and len(figures) < _SHOWN_SERIES:
                title = f"{name_of(rows[0])}, {count_text(len(rows))} runs"
                title = f"{title} (series {series})" if title in figures else title
                figures[title] = _figure(title, rows, of)
        return figures

    def report(self) -> None:
        """Show it in the notebook, or as text in a terminal."""
        from profnb.report.frontend import show_answering

        has_traces = any(row.run.trace for row in self.rows)
        show_answering(self.bundle(), self.summary(), self.open_run if has_traces else None)

    def to_csv(self) -> str:
        """Write the DataFrame as CSV."""
        return str(self.frame().to_csv(index=False))


def open_history(
    cell: str | None = None,
    label: str | None = None,
    path: "str | os.PathLike[str] | None" = None,
) -> History:
    """Read the history; see ``profnb.history``.

    Raises:
        HistoryError: The file is damaged, or another program's.
    """
    place = wanted_file(path)
    if place is None:
        return History(None, [])
    conditions, given = ["1"], []
    if cell is not None:
        conditions.append("substr(cell, 1, ?) = ?")
        given += [len(cell), cell]
    if label is not None:
        conditions.append("label = ?")
        given.append(label)
    return History(place, list_runs(read_runs(place, " AND ".join(conditions), given)))


def name_of(row: ListedRun) -> str:
    """Give what the code is called: its label, or its hash."""
    return row.run.label or f"code {row.run.cell[:_NAMED]}"


def _when(row: ListedRun) -> str:
    if isnan(row.run.when):
        return MISSING
    return f"{datetime.fromtimestamp(row.run.when, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _commit(row: ListedRun) -> str:
    commit = row.run.commit[:_NAMED]
    return f"{commit}, edited" if commit and row.run.is_dirty else commit


def _interval(row: ListedRun) -> str:
    low, high = row.run.low_ms, row.run.high_ms
    if isnan(low):
        return ""
    return f"{duration_text(low * PS_PER_MS)} to {duration_text(high * PS_PER_MS)}"


def _throughput(row: ListedRun) -> str:
    per_second = row.run.examples_per_second
    return MISSING if isnan(per_second) else examples_text(per_second)


def _remark(row: ListedRun) -> str:
    if row.is_aside:
        return f"left aside: other programs took {percent_text(row.run.others)} of the cores"
    if row.change is None:
        return ""
    ratio = row.change.ratio
    factor, word = (ratio, "slower") if ratio > 1 else (1 / ratio, "faster")
    whole = "the whole cell " if row.of == CELL else ""
    return f"{whole}{factor:.2f}x {word} from here on"


def _figure(title: str, rows: Sequence[ListedRun], of: str) -> dict[str, Any]:
    """Runs as points with their intervals; a change is where the line between them breaks."""
    values = [round(getattr(row.run, of), 6) for row in rows]
    places = list(range(1, len(rows) + 1))
    has_bounds = of == "median_ms"
    bounds: dict[str, list[Any]] = {"x": [], "y": []}
    for place, row in zip(places, rows, strict=True):
        if has_bounds and not isnan(row.run.low_ms):
            bounds["x"] += [place, place, place]
            bounds["y"] += [round(row.run.low_ms, 6), round(row.run.high_ms, 6), None]
    hovers = [[_hover(row, value)] for row, value in zip(rows, values, strict=True)]
    for row, hover in zip(rows, hovers, strict=True):
        if row.run.trace:
            hover[0] += "<br>click: opens the run"
            hover += [row.run.key, "run"]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "showlegend": False, **bounds,
            "line": {"width": 1, "color": _STEADY}, "hoverinfo": "skip",
        }
    ]  # fmt: skip
    kinds = {"steady": _STEADY, "slower from here on": _SLOWER, "faster from here on": _FASTER,
             "left aside": _ASIDE}  # fmt: skip
    for name, colour in kinds.items():
        chosen = [at for at, row in enumerate(rows) if _kind(row) == name]
        if chosen:
            data.append(
                {
                    "type": "scatter", "mode": "markers", "name": name,
                    "x": [places[at] for at in chosen], "y": [values[at] for at in chosen],
                    "customdata": [hovers[at] for at in chosen],
                    "hovertemplate": "%{customdata[0]}<extra></extra>",
                    "marker": {"size": 7 if name == "steady" else 11, "color": colour},
                }
            )  # fmt: skip
    layout = figure_layout(title, 240)
    what = "typical step" if has_bounds else "whole cell"
    layout |= {
        "showlegend": len(data) > 2,
        "xaxis": {**axis("run"), "range": [0.5, len(rows) + 0.5]},
        "yaxis": {**axis(f"{what}, ms"), "rangemode": "tozero"},
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _kind(row: ListedRun) -> str:
    if row.is_aside:
        return "left aside"
    if row.change is None:
        return "steady"
    return "slower from here on" if row.change.ratio > 1 else "faster from here on"


def _hover(row: ListedRun, value: float) -> str:
    lines = [
        _when(row),
        duration_text(value * PS_PER_MS),
        f"commit {_commit(row)}" if row.run.commit else "",
    ]
    settings = json.loads(row.run.settings)
    if settings.get("batch_size"):
        lines.append(f"batch size {settings['batch_size']}")
    return "<br>".join(figure_text(one) for one in (*lines, _remark(row)) if one)
