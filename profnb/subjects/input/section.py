"""The input pipeline as the report shows it: its tree, the training's waiting, and how full buffers were."""

from typing import Any

import numpy as np

from profnb.core.units import MISSING, PS_PER_MS, bar_text, count_text, duration_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.html_table import Cell
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Section
from profnb.drawing.theme import COLOURS, GRID, colour_of
from profnb.steps.windows import Steps
from profnb.subjects.input.pipeline import InputPipeline
from profnb.subjects.study import Study
from profnb.trace.model import Counter

__all__ = ["input_sections", "step_rules"]

_MOST_ITERATORS, _MOST_BUFFERS, _MOST_POINTS, _MOST_RULES = 24, 6, 60, 60
_BUFFER_COLOURS = (
    "device compute", "host compute", "kernel launch", "device collectives", "input", "output",
)  # fmt: skip
_INDENT = "\u00a0"


def input_sections(study: Study) -> list[Section]:
    """The tables on the input pipeline; none where tf.data ran nothing."""
    if not len(study.input.iterators):
        return []
    starved = study.input.diagnosis is not None and study.input.diagnosis.iterator >= 0
    sections = [_tree_section(study, starved=starved)]
    if not starved:  # nobody waits: the table is enough, and only for who asks
        return sections
    sections.append(_wait_section(study))
    buffers = study.input.buffers
    if buffers:
        sections.append(_buffer_section(study, buffers))
    return sections


def _order(table: InputPipeline) -> list[int]:
    """The iterators as the pipeline is asked: each followed by its inputs."""
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(table.tree.parent.tolist()):
        children.setdefault(parent, []).append(row)
    order: list[int] = []
    stack = children.get(-1, [])[::-1]
    while stack:
        row = stack.pop()
        order.append(row)
        stack.extend(children.get(row, [])[::-1])
    return order


def _name(study: Study, row: int) -> str:
    table = study.input.pipeline
    function = study.input.functions[row]
    ops = table.function_ops[row]
    kind = table.kind[row]
    if function:
        return f"{kind}({function})"
    return f"{kind} ({ops[0][0]})" if ops else kind


def _tree_section(study: Study, *, starved: bool) -> Section:
    table = study.input.pipeline
    order = _order(table)
    shown = order[:_MOST_ITERATORS]
    whole = int(table.waited_ps.sum())
    diagnosis = study.input.diagnosis
    sentence = diagnosis.sentence if diagnosis is not None else ""
    if len(order) > len(shown):
        sentence += f" {len(order) - len(shown)} more iterators are in p.input_pipeline."
    most = float(table.waited_ps.max()) if whole else 1.0
    work = _work_ps(table)

    def row_of(row: int) -> tuple[Cell, ...]:
        indent = _INDENT * (3 * int(table.tree.depth[row]))
        waited = int(table.waited_ps[row])
        return (
            bar_text(waited / most if most else 0.0, 10),
            (
                f"{indent}{_name(study, row)}",
                "",
                "async" if table.tree.is_async[row] else "",
            ),
            count_text(int(table.calls[row])),
            duration_text(float(work[row])) if work[row] else MISSING,
            duration_text(table.total_ps[row] / max(int(table.calls[row]), 1)),
            duration_text(waited),
            percent_text(waited / whole) if whole else MISSING,
        )

    return Section(
        title="Input pipeline",
        sentence=sentence,
        headings=("", "iterator", "calls", "work", "mean call", "waited for", "of waiting"),
        rows=[row_of(row) for row in shown],
        numbers=(False, False, True, True, True, True, True),
        colours=[colour_of("input")] * len(shown),
        tab="Input",
        figure=_tree_figure(study, shown) if starved else None,
        is_detail=not starved,
    )


def _work_ps(table: InputPipeline) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """What each iterator did itself: its function where that runs on threads, else its own time."""
    own = np.where(table.tree.is_async, 0, table.self_ps)
    return np.where(table.tree.is_async, table.function_ps, own).astype(np.float64)


def _tree_figure(study: Study, shown: list[int]) -> dict[str, Any]:
    """Each iterator's work, and the waiting that it caused: hidden work is long and pale, a limit is red."""
    table = study.input.pipeline
    rows = shown[::-1]
    labels = [
        f"{_INDENT * (2 * int(table.tree.depth[row]))}{_name(study, row)}"[:60] for row in rows
    ]
    # Two iterators may have one name; the axis is told apart by place.
    places = list(range(len(rows)))
    work, waited = _work_ps(table)[rows] / PS_PER_MS, table.waited_ps[rows] / PS_PER_MS
    # What is shown when pointed at, and what the timeline on the same page searches when clicked.
    told = [
        [
            figure_text(f"{table.tree.path[row]}: {count_text(int(table.calls[row]))} calls"),
            f"Iterator::{table.tree.path[row]}",
        ]
        for row in rows
    ]
    series = (
        ("work, hidden or not", work, "rgba(58,154,93,0.45)", 0.7),
        ("the training waited for it", waited, COLOURS["input"], 0.35),
    )
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": places, "width": width,
            "x": [round(float(value), 4) for value in values], "customdata": told,
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": f"%{{customdata[0]}}<br>{name}: %{{x:.4g}} ms<extra></extra>",
        }
        for name, values, colour, width in series
    ]  # fmt: skip
    layout = figure_layout(
        "What each iterator did, and what the training waited for", 96 + 22 * len(rows)
    )
    layout |= {
        "barmode": "overlay",
        "margin": {"l": 8, "r": 12, "t": 62, "b": 34},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "xaxis": {**axis(""), "ticksuffix": " ms", "rangemode": "tozero"},
        "yaxis": {
            **axis(""), "tickvals": places, "ticktext": [figure_text(label) for label in labels],
            "automargin": True, "showgrid": False, "ticklabelposition": "outside",
        },
    }  # fmt: skip
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _wait_section(study: Study) -> Section:
    waiting = study.input.waiting
    counted = waiting.step_ps[waiting.counted]
    rows = [
        ("median", float(np.median(counted))),
        ("95 % of steps below", float(np.percentile(counted, 95))),
        ("longest", float(counted.max())),
        ("first element, while buffers fill", float(waiting.first_ps)),
    ]
    longest = max(value for _, value in rows) or 1.0
    return Section(
        title="Waiting for the next element",
        sentence=(
            f"{count_text(waiting.starved)} of {count_text(counted.size)} steps waited for more than a "
            f"tenth of their time; {percent_text(waiting.fraction)} of all time was waiting."
        ),
        headings=("", "wait", "time"),
        rows=[(bar_text(value / longest, 10), name, duration_text(value)) for name, value in rows],
        numbers=(False, False, True),
        colours=[colour_of("input")] * len(rows),
        tab="Input",
    )


def _buffer_section(study: Study, buffers: list[Counter]) -> Section:
    table = study.input.pipeline
    rows_of = {path: row for row, path in enumerate(table.tree.path)}
    known = [(counter, rows_of[counter.series]) for counter in buffers if counter.series in rows_of]
    known = sorted(known, key=lambda pair: pair[1])[:_MOST_BUFFERS]

    def cells(counter: Counter, row: int) -> tuple[Cell, ...]:
        capacity = int(table.capacity[row])
        mean, empty = float(table.buffered[row]), float(table.empty_fraction[row])
        return (
            bar_text(min(mean / capacity, 1.0) if capacity > 0 else 0.0, 10),
            (_name(study, row), "", counter.series),
            count_text(capacity) if capacity > 0 else MISSING,
            f"{mean:.3g}",
            percent_text(empty),
        )

    return Section(
        title="Buffers",
        sentence="A buffer that is always empty keeps its consumer waiting; a full one is ahead.",
        headings=("", "iterator", "holds", "held, mean", "empty when asked"),
        rows=[cells(*pair) for pair in known],
        numbers=(False, False, True, True, True),
        colours=[colour_of("input")] * len(known),
        tab="Input",
        figure=_buffer_figure(study, [counter for counter, _ in known]),
    )


def _buffer_figure(study: Study, buffers: list[Counter]) -> dict[str, Any]:
    """How full each buffer was over time, thinned out by its lowest so that no empty moment is lost."""
    data: list[dict[str, Any]] = []
    palette = [COLOURS[name] for name in _BUFFER_COLOURS]
    rows_of = {path: row for row, path in enumerate(study.input.iterators.path)}
    for counter, colour in zip(buffers, palette, strict=False):
        times, values = _thin(counter)
        capacity = study.input.buffer_capacity.get(counter.series)
        most = capacity or max(float(counter.value.max()), 1.0)
        name = _name(study, rows_of[counter.series]) + (f", holds {capacity}" if capacity else "")
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": figure_text(name), "x": times,
                "y": [round(100 * value / most, 2) for value in values], "customdata": values,
                "line": {"shape": "hv", "width": 1.5, "color": colour},
                "hovertemplate": f"%{{x:.4g}} ms: %{{customdata}} in {figure_text(name)}<extra></extra>",
            }
        )  # fmt: skip
    layout = figure_layout("How full the buffers were", 260)
    layout |= {
        "margin": {"l": 56, "r": 12, "t": 84, "b": 34},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": {**axis(""), "ticksuffix": " ms", "showgrid": False},
        "yaxis": {**axis("% full"), "range": [0, 104]},
        "shapes": step_rules(study.steps),
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _thin(counter: Counter) -> tuple[list[float], list[float]]:
    """At most 60 points: of each stretch the lowest value, where it was."""
    width = max(-(-counter.value.size // _MOST_POINTS), 1)
    times, values = [], []
    for begin in range(0, counter.value.size, width):
        at = begin + int(np.argmin(counter.value[begin : begin + width]))
        times.append(round(float(counter.time_ps[at]) / PS_PER_MS, 4))
        values.append(float(counter.value[at]))
    return times, values


def step_rules(steps: Steps) -> list[dict[str, Any]]:
    """A thin rule where each step begins, unless there are too many to see."""
    if steps.is_window or len(steps) > _MOST_RULES:
        return []
    return [
        {
            "type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1,
            "line": {"width": 1, "color": GRID},
        }
        for at in (round(float(begin) / PS_PER_MS, 4) for begin in steps.begin_ps)
    ]  # fmt: skip
