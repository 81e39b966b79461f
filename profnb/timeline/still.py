"""A trace to a picture of text: how busy each thread and stream is, as a strip of block characters.

It is what remains of the timeline where no script runs (GitHub, an untrusted notebook, a terminal), so
it uses nothing that a sanitizer removes.
"""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from profnb.core.printable import printable
from profnb.core.units import count_text, duration_text, percent_text
from profnb.drawing.drawn_tables import Cell, html_table, plain_table
from profnb.drawing.theme import MUTED, colour_of
from profnb.timeline.scene import Scene, busy_in_bins

_BINS = 60
_MOST_LANES_DRAWN = 12
_LEVELS = " ▁▂▃▄▅▆▇█"
_ARE_NUMBERS = (False, False, True, True, True)  # of the columns
# Fonts that have both blocks and spaces, so that all are of one width.
_STRIP = (
    "letter-spacing:-1px;white-space:pre;font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace"
)


@dataclass(frozen=True, slots=True)
class Still:
    """The still picture, decided.

    Attributes:
        rows: Per line: label, whether it is a device's, strip, events, busy time, busy fraction.
        steps: The strip that marks where steps begin; "" without steps.
        span_ps: What the width of a strip stands for.
        hidden_lines: How many lines are not among the rows.
    """

    rows: tuple[tuple[str, bool, str, int, int, float], ...]
    steps: str
    span_ps: int
    hidden_lines: int


def still_picture(scene: Scene) -> Still:
    """Decide the still picture of a trace."""
    trace, lanes = scene.study.trace, scene.lanes
    if not len(trace.events):
        return Still((), "", 0, 0)
    begin, end = int(trace.events.begin_ps.min()), int(trace.events.end_ps.max())
    span = max(end - begin, 1)
    edges = begin + (np.arange(_BINS + 1) * (span / _BINS)).astype(np.int64)
    shown = []
    recorded_positions = [row for row, device in enumerate(scene.derived) if not device]
    for position in recorded_positions[:_MOST_LANES_DRAWN]:
        line, busy_ps = int(lanes.lines[position]), int(lanes.busy_ps[position])
        busy = busy_in_bins(trace, lanes, position, edges)
        levels = np.ceil(busy * (len(_LEVELS) - 1) - 1e-9).astype(int)
        strip = "".join(_LEVELS[level] for level in levels)
        count = int(np.diff(trace.lines.offsets[line : line + 2])[0])
        is_device = bool(trace.is_device_line[line])
        shown.append((scene.names[position], is_device, strip, count, busy_ps, busy_ps / span))
    steps = ""
    if not scene.study.steps.is_window and len(scene.study.steps) <= _BINS // 2:
        marked = set(np.searchsorted(edges, scene.study.steps.begin_ps, side="right").tolist())
        steps = "".join("▏" if column + 1 in marked else " " for column in range(_BINS))
    return Still(tuple(shown), steps, span, len(lanes.lines) - len(shown))


def _headings(width: str) -> tuple[str, ...]:
    return ("thread or stream", width, "busy", "busy %", "events")


def still_text(still: Still) -> str:
    """Write the picture for a terminal."""
    table = [
        (printable(label)[:28], f"|{strip}|", *_numbers(*numbers))
        for label, _, strip, *numbers in still.rows
    ]
    head = _headings(f"|{duration_text(still.span_ps):^{_BINS}}|")
    text = plain_table([head, *table], _ARE_NUMBERS)
    return text + (f"\nand {still.hidden_lines} more" if still.hidden_lines else "")


def still_html(still: Still) -> Markup:
    """Write the picture as a table that stays readable without style and script."""
    rows: list[list[Cell]] = []
    if still.steps:
        rows.append(["steps", (still.steps, _STRIP), "", "", ""])
    for label, is_device, strip, *numbers in still.rows:
        colour = colour_of("device compute" if is_device else "host compute")
        shown = strip.replace(" ", "\N{NO-BREAK SPACE}")
        rows.append([label[:40], (shown, f"{_STRIP};color:{colour}"), *_numbers(*numbers)])
    table = html_table(_headings(f"busy over {duration_text(still.span_ps)}"), rows, _ARE_NUMBERS)
    if not still.hidden_lines:
        return table
    return table + Markup('<div style="{}">and {} more</div>').format(MUTED, still.hidden_lines)


def _numbers(events: float, busy_ps: float, share: float) -> tuple[str, str, str]:
    return duration_text(busy_ps), percent_text(share), count_text(events)
