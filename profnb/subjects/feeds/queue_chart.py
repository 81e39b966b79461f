"""The queues of TensorFlow 1 as the report shows them: how full each was, and when steps found it empty."""

from typing import Any

import numpy as np

from profnb.core.units import PS_PER_MS, count_text, duration_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Section
from profnb.drawing.theme import COLOURS, colour_of
from profnb.subjects.feeds.feeding import QueueUse
from profnb.subjects.study import Study

_MOST_QUEUES, _MOST_QUEUE_POINTS, _MOST_MARKS, _LONGEST_QUEUE = 6, 300, 200, 60
_LINES = (
    "device compute",
    "host compute",
    "kernel launch",
    "device collectives",
    "output",
    "input",
)
_HEADINGS = (
    "queue", "holds", "min_after_dequeue", "mean", "found empty", "threads", "enqueue takes", "threads busy",
)  # fmt: skip


def queue_sections(study: Study) -> list[Section]:
    """Show queues with their chart; none where nothing was taken from one."""
    queues = study.input.queues[:_MOST_QUEUES]
    if not queues:
        return []
    return [
        Section(
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
    ]


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
    for use, line in zip(queues, _LINES, strict=False):
        if np.isnan(use.held).all():
            continue
        name = f"{use.record.name[:_LONGEST_QUEUE]}, holds {use.record.capacity}"
        times, held = _thin(use)
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": figure_text(name), "x": times, "y": held,
                "line": {"shape": "hv", "width": 1.5, "color": COLOURS[line]},
                "hovertemplate": "%{x:.4g} ms: %{y} elements<extra></extra>",
            }
        )  # fmt: skip
        empty = np.flatnonzero(use.is_empty)[:_MOST_MARKS]
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": "too few: a step waits",
                "x": [round(float(at) / PS_PER_MS, 4) for at in use.time_ps[empty]],
                "y": [float(value) for value in use.held[empty]],
                "marker": {"size": 6, "symbol": "x", "color": colour_of("input")},
                "hovertemplate": "%{x:.4g} ms: too few<extra></extra>",
            }
        )  # fmt: skip
        kept = use.record.min_after_dequeue
        if kept:
            data.append(
                {
                    "type": "scatter", "mode": "lines", "name": f"min_after_dequeue, {kept}",
                    "x": [times[0], times[-1]], "y": [kept, kept],
                    "line": {"width": 1, "dash": "dot", "color": COLOURS[line]},
                }
            )  # fmt: skip
    if not data:
        return None
    layout = figure_layout("How full the queues were", 260)
    layout |= {
        "margin": {"l": 56, "r": 12, "t": 84, "b": 34},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": {**axis(""), "ticksuffix": " ms", "showgrid": False},
        "yaxis": {**axis("elements"), "rangemode": "tozero"},
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _thin(use: QueueUse) -> tuple[list[float], list[float]]:
    """At most 300 points: of each stretch the lowest, where it was."""
    width = max(-(-use.held.size // _MOST_QUEUE_POINTS), 1)
    at = [
        begin + int(np.argmin(np.nan_to_num(use.held[begin : begin + width], nan=np.inf)))
        for begin in range(0, use.held.size, width)
    ]
    return [round(float(t) / PS_PER_MS, 4) for t in use.time_ps[at]], use.held[at].tolist()
