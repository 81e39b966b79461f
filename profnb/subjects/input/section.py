"""The input pipeline as the report shows it: its tree, the training's waiting, and how full buffers were."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from profnb.core.columns import Floats, Int64s, group
from profnb.core.units import (
    PS_PER_MS,
    bar_text,
    count_text,
    counted_text,
    duration_text,
    percent_text,
)
from profnb.drawing.figures import LEGEND_ABOVE, axis, chart
from profnb.drawing.markup import Cell, figure_text
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import COLOURS, GRID, colour_of
from profnb.steps.windows import Steps
from profnb.subjects.feeds.feeding import QueueUse
from profnb.subjects.input.pipeline import INPUT_PIPELINE, InputPipeline
from profnb.subjects.study import Study
from profnb.trace.model import Counter

_MOST_ITERATORS, _MOST_BUFFERS, _MOST_POINTS, _MOST_RULES = 24, 6, 60, 60
_BUFFER_COLOURS = (
    "device compute", "host compute", "kernel launch", "device collectives", "input", "output",
)  # fmt: skip
_INDENT = "\u00a0"
_MOST_QUEUES, _MOST_QUEUE_POINTS, _MOST_MARKS, _LONGEST_QUEUE = 6, 300, 200, 60
_QUEUE_COLOURS = (*_BUFFER_COLOURS[:4], "output", "input")
_HEADINGS = (
    "queue", "holds", "min_after_dequeue", "mean", "found empty", "threads", "enqueue takes", "threads busy",
)  # fmt: skip


def input_sections(study: Study) -> list[Section]:
    """The tables on queues, and on tf.data where that ran anything."""
    uses = study.input.queues[:_MOST_QUEUES]
    queues = [_queue_section(uses)] if uses else []
    if not len(study.input.iterators):
        return queues
    starved = study.input.diagnosis is not None and study.input.diagnosis.iterator >= 0
    sections = [*queues, _tree_section(study, starved=starved)]
    if starved:  # else nobody waits: the table is enough, and only for who asks
        sections.append(_wait_section(study))
        sections += [_buffer_section(study)] if study.input.buffers else []
    return sections


def _order(table: InputPipeline) -> list[int]:
    """The iterators as the pipeline is asked: each followed by its inputs."""
    rows = reversed(list(enumerate(table.tree.parent.tolist())))
    children = group((parent, row) for row, parent in rows)
    order: list[int] = []
    stack = [-1]  # asks the outermost
    while stack:
        order.append(stack.pop())
        stack += children.get(order[-1], [])
    return order[1:]


def _tree_section(study: Study, *, starved: bool) -> Section:
    table = study.input.pipeline
    shown = _order(table)[:_MOST_ITERATORS]
    diagnosis, more = study.input.diagnosis, len(table) - len(shown)
    sentence = diagnosis.sentence if diagnosis is not None else ""
    if more:
        sentence += f" {more} more iterators are in p.input_pipeline."

    def iterator(row: int) -> Cell:
        indent = _INDENT * (3 * int(table.tree.depth[row]))
        return f"{indent}{table.name(row)}", "", "async" if table.tree.is_async[row] else ""

    return section_of(
        INPUT_PIPELINE,
        table,
        (
            Shown("iterator", iterator),
            "occurrences",
            Shown(
                "work",
                lambda row: duration_text(float(table.work_ps[row]) or None),
                is_number=True,
                meaning="what it did itself: its function where that runs on threads, else its self time",
            ),
            "mean_us waited_us waited_fraction",
        ),
        title="Input pipeline",
        tab="Input",
        sentence=sentence,
        bar=Bar.of(table.waited_ps, colour_of("input"), 10),
        rows=shown,
        figure=_tree_figure(study, shown) if starved else None,
        is_detail=not starved,
    )


def _tree_figure(study: Study, shown: list[int]) -> dict[str, Any]:
    """Each iterator's work, and the waiting that it caused: hidden work is long and pale, a limit is red."""
    table = study.input.pipeline
    rows = shown[::-1]
    labels = [f"{_INDENT * (2 * int(table.tree.depth[row]))}{table.name(row)}"[:60] for row in rows]
    # Two iterators may have one name; the axis is told apart by place.
    places = list(range(len(rows)))
    work, waited = table.work_ps[rows] / PS_PER_MS, table.waited_ps[rows] / PS_PER_MS
    # What is shown when pointed at, and what the timeline on the same page searches when clicked.
    calls = {table.tree.path[row]: count_text(int(table.occurrences[row])) for row in rows}
    hover = [[figure_text(f"{path}: {n} calls"), f"Iterator::{path}"] for path, n in calls.items()]
    series = (
        ("work, hidden or not", work, "rgba(58,154,93,0.45)", 0.7),
        ("the training waited for it", waited, COLOURS["input"], 0.35),
    )
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": places, "width": width,
            "x": [round(float(value), 4) for value in values], "customdata": hover,
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": f"%{{customdata[0]}}<br>{name}: %{{x:.4g}} ms<extra></extra>",
        }
        for name, values, colour, width in series
    ]  # fmt: skip
    title = "Work of each iterator, and waits of the training"
    return chart(
        title, 96 + 22 * len(rows), data, barmode="overlay", margin={"l": 8, "r": 12, "t": 62, "b": 34},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        xaxis={**axis(""), "ticksuffix": " ms", "rangemode": "tozero"},
        yaxis={
            **axis(""), "tickvals": places, "ticktext": [figure_text(label) for label in labels],
            "automargin": True, "showgrid": False, "ticklabelposition": "outside",
        },
    )  # fmt: skip


def _wait_section(study: Study) -> Section:
    waiting = study.input.waiting
    counted = waiting.step_ps[waiting.counted]
    names = ("median", "95 % of steps below", "longest", "first element, while buffers fill")
    waits = [*np.percentile(counted, (50, 95, 100)).tolist(), float(waiting.first_ps)]
    longest = max(waits) or 1.0
    return Section(
        title="Waiting for the next element",
        sentence=(
            f"{count_text(waiting.starved)} of {counted_text(counted.size, 'step')} waited for more than a "
            f"tenth of the step. {percent_text(waiting.fraction)} of all time was waiting."
        ),
        headings=("", "wait", "time"),
        meanings=("", "which of the waits of all steps", "how long it was"),
        rows=[
            (bar_text(wait / longest, 10), name, duration_text(wait))
            for name, wait in zip(names, waits, strict=True)
        ],
        numbers=(False, False, True),
        colours=[colour_of("input")] * len(waits),
        tab="Input",
    )


def _buffer_section(study: Study) -> Section:
    table = study.input.pipeline
    rows_of = {path: row for row, path in enumerate(table.tree.path)}
    of_rows = {rows_of[c.series]: c for c in study.input.buffers if c.series in rows_of}
    rows = sorted(of_rows)[:_MOST_BUFFERS]
    fill = np.where(table.capacity > 0, table.buffered / np.maximum(table.capacity, 1), 0.0)
    return section_of(
        INPUT_PIPELINE,
        table,
        (
            Shown("iterator", lambda row: (table.name(row), "", table.tree.path[row])),
            "buffer_capacity buffered_mean empty_fraction",
        ),
        title="Buffers",
        tab="Input",
        sentence="An empty buffer keeps the consumer waiting; a full buffer is ahead.",
        bar=Bar(lambda row: min(float(fill[row]), 1.0), colour_of("input"), 10),
        rows=rows,
        figure=_buffer_figure(study, {row: of_rows[row] for row in rows}),
    )


def _buffer_figure(study: Study, buffers: dict[int, Counter]) -> dict[str, Any]:
    """Draw how full each buffer was over time; its lowest stays, so that no empty moment is lost."""
    data: list[dict[str, Any]] = []
    table = study.input.pipeline
    for (row, counter), colour in zip(buffers.items(), _BUFFER_COLOURS, strict=False):
        kept = thin(counter.value, _MOST_POINTS, np.argmin)
        capacity = max(int(table.capacity[row]), 0)
        most = capacity or max(float(counter.value.max()), 1.0)
        name = table.name(row) + (f", holds {capacity}" if capacity else "")
        values = counter.value[kept].tolist()
        percent = [round(100 * value / most, 2) for value in values]
        hover = f"%{{customdata}} in {figure_text(name)}"
        times = counter.time_ps[kept]
        data.append(line_of(name, COLOURS[colour], times, percent, hover, customdata=values))
    yaxis = {**axis("% full"), "range": [0, 104]}
    return figure_over_time("How full the buffers were", data, study.steps, yaxis, (56, 84))


def thin(values: Floats | Int64s, most: int, pick: Callable[[Any], Any]) -> list[int]:
    """Choose rows to draw, at most so many: of each stretch the one that ``pick`` finds."""
    width = max(-(-values.size // most), 1)
    return [at + int(pick(values[at : at + width])) for at in range(0, values.size, width)]


def line_of(
    name: str, colour: str, times_ps: Int64s, values: Sequence[float], hover: str, **rest: Any
) -> dict[str, Any]:
    """Draw a line over milliseconds that keeps its value until the next."""
    return {
        "type": "scatter", "mode": "lines", "name": figure_text(name),
        "x": [round(float(time) / PS_PER_MS, 4) for time in times_ps], "y": values, **rest,
        "line": {"shape": "hv", "width": 1.5, "color": colour},
        "hovertemplate": f"%{{x:.4g}} ms: {hover}<extra></extra>",
    }  # fmt: skip


def figure_over_time(
    title: str, lines: list[dict[str, Any]], steps: Steps | None, yaxis: dict[str, Any],
    margins: tuple[int, int], **rest: Any,
) -> dict[str, Any]:  # fmt: skip
    """Draw lines over the time of the trace, with a rule where each step begins.

    Margins are pixels to the left and above; without steps there are no rules.
    """
    if steps is not None:
        has_rules = not steps.is_window and len(steps) <= _MOST_RULES
        begins = (steps.begin_ps / PS_PER_MS).tolist() if has_rules else []
        rest["shapes"] = [
            {
                "type": "line", "x0": round(at, 4), "x1": round(at, 4), "yref": "paper", "y0": 0, "y1": 1,
                "line": {"width": 1, "color": GRID},
            }
            for at in begins
        ]  # fmt: skip
    return chart(
        title, 260, lines, margin={"l": margins[0], "r": 12, "t": margins[1], "b": 34},
        legend=LEGEND_ABOVE, **rest, xaxis={**axis(""), "ticksuffix": " ms", "showgrid": False}, yaxis=yaxis,
    )  # fmt: skip


def _queue_section(queues: list[QueueUse]) -> Section:
    return Section(
        title="Queues",
        sentence="The contents of a queue are counted from elements put in and taken out. A step waits "
        "for a queue with too few. All samples are in p.buffers.",
        headings=_HEADINGS,
        rows=[_row(use) for use in queues],
        numbers=(False, *(True for _ in _HEADINGS[1:])),
        colours=[""] * len(queues),
        tab="Input",
        figure=queue_figure(queues),
    )


def _row(use: QueueUse) -> tuple[str, ...]:
    record, held_counts = use.record, use.held[~np.isnan(use.held)]
    has_all = held_counts.size == use.held.size and held_counts.size > 0
    return (
        record.name[:_LONGEST_QUEUE],
        count_text(record.capacity) if record.capacity >= 0 else "any number",
        count_text(record.min_after_dequeue) if record.min_after_dequeue else "—",
        f"{held_counts.mean():.1f}" if has_all else "—",
        f"{count_text(use.found_empty)} of {count_text(use.dequeued)} times",
        count_text(use.threads) if use.threads else "—",
        duration_text(None if np.isnan(use.enqueue_ps) else use.enqueue_ps),
        "—" if np.isnan(use.busy_fraction) else percent_text(min(use.busy_fraction, 1.0)),
    )


def queue_figure(queues: list[QueueUse]) -> dict[str, Any] | None:
    """Draw what queues held over time, with a mark where a step had to wait; None where nothing is known."""
    data: list[dict[str, Any]] = []
    for use, line in zip(queues, _QUEUE_COLOURS, strict=False):
        if np.isnan(use.held).all():
            continue
        name = f"{use.record.name[:_LONGEST_QUEUE]}, holds {use.record.capacity}"
        lowest = thin(np.nan_to_num(use.held, nan=np.inf), _MOST_QUEUE_POINTS, np.argmin)
        held, empty = use.held[lowest].tolist(), np.flatnonzero(use.is_empty)[:_MOST_MARKS]
        drawn = line_of(name, COLOURS[line], use.time_ps[lowest], held, "%{y} elements")
        marks = {
            "type": "scatter", "mode": "markers", "name": "too few: a step waits",
            "x": np.round(use.time_ps[empty] / PS_PER_MS, 4).tolist(), "y": use.held[empty].tolist(),
            "marker": {"size": 6, "symbol": "x", "color": colour_of("input")},
            "hovertemplate": "%{x:.4g} ms: too few<extra></extra>",
        }  # fmt: skip
        data += [drawn, marks]
        if kept := use.record.min_after_dequeue:
            data.append(
                {
                    "type": "scatter", "mode": "lines", "name": f"min_after_dequeue, {kept}",
                    "x": [drawn["x"][0], drawn["x"][-1]], "y": [kept, kept],
                    "line": {"width": 1, "dash": "dot", "color": COLOURS[line]},
                }
            )  # fmt: skip
    yaxis = {**axis("elements"), "rangemode": "tozero"}
    figure = figure_over_time("How full the queues were", data, None, yaxis, (56, 84))
    return figure if data else None
