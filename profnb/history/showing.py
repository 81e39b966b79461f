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

from profnb.compare.differences import number_of, shown_of
from profnb.compare.section import titled_html
from profnb.compare.tree_differences import PartDifference, compare_trees, difference_sentence
from profnb.core import units
from profnb.core.errors import ProfnbError
from profnb.core.printable import for_terminal, printable
from profnb.drawing.figures import axis, chart
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Bar, Section, section_block, section_of, section_text
from profnb.drawing.theme import COLOURS
from profnb.history.place import wanted_file
from profnb.history.series import CELL, FOLLOWED, HISTORY, STEP, ListedRun, list_runs
from profnb.history.store import Tree, read_runs, read_tree

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_RUNS, _SHOWN_SERIES, _MOST_POINTS, _NEAR = 30, 4, 200, 10
_STEADY = COLOURS["device compute"]
_KIND_COLOURS = {
    "steady": _STEADY, "slower from here on": COLOURS["input"],
    "faster from here on": COLOURS["host compute"], "left aside": COLOURS["all others"],
}  # fmt: skip
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
        what, time_of, _ = FOLLOWED[row.of]
        rows = [one for one in self.rows if one.series == row.series and not one.is_aside]
        runs = [one.run for one in rows if time_of(one.run) > 0]
        at = runs.index(row.run)
        before, after = (  # the usual run of those shortly before, and of those since
            sorted(some, key=time_of)[len(some) // 2]
            for some in (runs[max(at - _NEAR, 0) : at], runs[at : at + _NEAR])
        )
        commit = f", commit {_commit(row)}" if row.run.commit else ""
        said = (
            f"{name_of(row)} is {row.change_ratio:.2f}x slower since {_when(row)}{commit}: the {what} took "
            f"{_text(time_of(before))}, then {_text(time_of(after))}."
        )
        return f"{said} {difference_sentence(self.difference(before.key, after.key))}".rstrip()

    def difference(self, first: str, second: str) -> list[PartDifference]:
        """Compare the trees of two runs, by their keys; empty where one has none."""
        if self.path is None:
            return []
        trees: list[Tree] = [read_tree(self.path, key) for key in (first, second)]
        return compare_trees(*trees) if all(trees) else []

    @property
    def title(self) -> str:
        """Its message, in a sentence."""
        if self.path is None:
            return "No runs are kept here. `profnb.configure(history=True)` keeps them from now on."
        if not self.rows:
            return "No run has been kept yet. From now on each profiled cell or script is kept."
        alarms = self.sentences()
        if alarms:
            return alarms[-1]
        series = len({row.series for row in self.rows})
        counts = f"{units.counted_text(len(self.rows), 'run')} in {units.count_text(series)} series"
        return f"{counts}: no slow-down among the latest ten of each."

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
        walls = [row.run.wall_ms if row.run.wall_ms > 0 else 0.0 for row in rows]
        more = len(rows) - len(order)
        earlier = f" {units.count_text(more)} earlier ones are in `profnb.history()`."
        return section_of(
            HISTORY,
            rows,
            (
                shown_of(rows, "run", _when),
                shown_of(rows, "code", name_of),
                shown_of(rows, "commit", lambda row: _commit(row) or units.MISSING),
                number_of(rows, "step", lambda row: _text(row.run.median_ms)),
                number_of(rows, "95 % interval", _interval),
                number_of(rows, "whole", lambda row: _text(row.run.wall_ms)),
                number_of(rows, "throughput", lambda row: _rate(row.run.examples_per_second)),
                shown_of(rows, "", _remark),
            ),
            title="Latest runs",
            sentence=f"Bars are the whole time.{earlier if more else ''}",
            bar=Bar.of(walls, _STEADY, 10),
            rows=order,
        )

    def figures(self) -> dict[str, dict[str, Any]]:
        """Draw the typical step over runs by title, of the series that ran last; in plotly's schema."""
        latest = dict.fromkeys(row.series for row in reversed(self.rows))
        figures: dict[str, dict[str, Any]] = {}
        for series in latest:
            rows = [row for row in self.rows if row.series == series][-_MOST_POINTS:]
            of = STEP if any(row.run.median_ms > 0 for row in rows) else CELL
            rows = [row for row in rows if FOLLOWED[of][1](row.run) > 0]
            if len(rows) > 1 and len(figures) < _SHOWN_SERIES:
                title = f"{name_of(rows[0])}, {units.count_text(len(rows))} runs"
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
    cell: str | None = None, label: str | None = None, path: "str | os.PathLike[str] | None" = None
) -> History:
    """Read the history; see ``profnb.history``.

    Raises:
        HistoryError: The file is damaged, or another program's.
    """
    place = wanted_file(path)
    if place is None:
        return History(None, [])
    asked = (("substr(cell, 1, length(?)) = ?", cell), ("label = ?", label))
    conditions = [(text, value) for text, value in asked if value is not None]
    where = " AND ".join(["1", *(text for text, _ in conditions)])
    given = [value for text, value in conditions for _ in range(text.count("?"))]
    return History(place, list_runs(read_runs(place, where, given)))


def _text(ms: float) -> str:
    return units.duration_text(ms * units.PS_PER_MS)


def _interval(row: ListedRun) -> str:
    return units.range_text(_text(row.run.low_ms), _text(row.run.high_ms))


def _rate(per_second: float) -> str:
    return units.MISSING if isnan(per_second) else units.examples_text(per_second)


def name_of(row: ListedRun) -> str:
    """Give what the code is called: its label, or its hash."""
    return row.run.label or f"code {row.run.cell[:_NAMED]}"


def _when(row: ListedRun) -> str:
    if isnan(row.run.when):
        return units.MISSING
    return f"{datetime.fromtimestamp(row.run.when, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _commit(row: ListedRun) -> str:
    commit = row.run.commit[:_NAMED]
    return f"{commit}, edited" if commit and row.run.is_dirty else commit


def _remark(row: ListedRun) -> str:
    if row.is_aside:
        return f"left aside: other programs took {units.percent_text(row.run.others)} of the cores"
    if not row.is_change:
        return ""
    whole = "the whole cell " if row.of == CELL else ""
    return f"{whole}{max(row.change_ratio, 1 / row.change_ratio):.2f}x {_kind(row)}"


def _figure(title: str, rows: Sequence[ListedRun], of: str) -> dict[str, Any]:
    """Runs as points with their intervals; a change is where the line between them breaks."""
    what, time_of, _ = FOLLOWED[of]
    values = [round(time_of(row.run), 6) for row in rows]
    bounds = [
        (place, None if ms is None else round(ms, 6))
        for place, row in enumerate(rows, start=1)
        if of == STEP and not isnan(row.run.low_ms)
        for ms in (row.run.low_ms, row.run.high_ms, None)
    ]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "showlegend": False,
            "x": [place for place, _ in bounds], "y": [ms for _, ms in bounds],
            "line": {"width": 1, "color": _STEADY}, "hoverinfo": "skip",
        }
    ]  # fmt: skip
    for name, colour in _KIND_COLOURS.items():
        if chosen := [at for at, row in enumerate(rows) if _kind(row) == name]:
            data.append(
                {
                    "type": "scatter", "mode": "markers", "name": name,
                    "x": [at + 1 for at in chosen], "y": [values[at] for at in chosen],
                    "customdata": [_hover(rows[at], values[at]) for at in chosen],
                    "hovertemplate": "%{customdata[0]}<extra></extra>",
                    "marker": {"size": 7 if name == "steady" else 11, "color": colour},
                }
            )  # fmt: skip
    return chart(
        title, 240, data, showlegend=len(data) > 2,
        xaxis={**axis("run"), "range": [0.5, len(rows) + 0.5]},
        yaxis={**axis(f"{what}, ms"), "rangemode": "tozero"},
    )  # fmt: skip


def _kind(row: ListedRun) -> str:
    if row.is_aside:
        return "left aside"
    if not row.is_change:
        return "steady"
    return f"{'slower' if row.change_ratio > 1 else 'faster'} from here on"


def _hover(row: ListedRun, value: float) -> list[str]:
    """Write what stands under the pointer; and what a click asks for, where the run can be opened."""
    size = json.loads(row.run.settings).get("batch_size")
    lines = [
        _when(row),
        _text(value),
        f"commit {_commit(row)}" if row.run.commit else "",
        f"batch size {size}" if size else "",
        _remark(row),
        "click: opens the run" if row.run.trace else "",
    ]
    said = "<br>".join(figure_text(one) for one in lines if one)
    return [said, row.run.key, "run"] if row.run.trace else [said]
