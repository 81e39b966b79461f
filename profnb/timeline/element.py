"""A trace to its timeline: one HTML element that holds the still picture and the packed marks.

The element stands alone in any frontend. Its script is an output of its own, as the report's is, and
puts a viewer in place of the still picture where scripts run; no network, no library. Two traces become two
timelines on one axis of time, aligned where a step of each begins; each works alone where the script does not
join them.

The still picture shows how busy each thread and stream is, as a strip of block characters. It remains where
no script runs (GitHub, an untrusted notebook, a terminal), so it uses nothing that a sanitizer removes.

A saved timeline holds what fits; while the kernel lives, zooming in asks it for the events of the window.
"""

import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.core.printable import for_terminal, printable, terminal_columns
from profnb.core.units import count_text, counted_text, duration_text, percent_text
from profnb.drawing.live_outputs import show_bridge
from profnb.drawing.markup import Cell, html_table, plain_table, without_controls
from profnb.drawing.programs import joined
from profnb.drawing.theme import MUTED, ROOT, colour_of
from profnb.subjects.study import Study
from profnb.timeline.pack import event_details, fit_timeline, pack_timeline, unit_of
from profnb.timeline.scene import Scene, busy_in_bins

# A notebook cell's budget is 0.5 MB for what is usual and 1.2 MB at most; base64 adds a third.
_NOTEBOOK_MARKS, _NOTEBOOK_DETAILS, _NOTEBOOK_BYTES = 100_000, 3_000, 450_000
_PAGE_MARKS, _PAGE_DETAILS, _PAGE_BYTES = 3_000_000, 20_000, 24_000_000
# What a page draws first where it holds more: a picture needs no more marks than it has pixels.
_FIRST_MARKS, _FIRST_BYTES = 30_000, 250_000
_MOST_MARKS, _MOST_DETAILS = 30_000, 500
_FARTHEST_PS = 1 << 62
_PARTS = (
    "numbers", "marks", "frames", "bands", "picture", "ruler", "minimap", "tracks", "range_table", "panel",
    "search", "lane_menu", "detail", "viewer", "hands", "pair", "start",
)  # fmt: skip
_FIRST = "thread or stream"
_BINS, _BESIDE_STRIP = 60, 35  # marks of the still picture, and characters beside them
_MOST_LANES_DRAWN = 12
_LEVELS = " ▁▂▃▄▅▆▇█"
_ARE_NUMBERS = (False, False, True, True, True)  # of the columns
# Fonts that have both blocks and spaces, so that all are of one width.
_FONT = "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace"
_STRIP = f"letter-spacing:-1px;white-space:pre;{_FONT}"
_SCRIPTS = {
    "drawing": ("format.js", "look.js", "sorting.js", "ask.js"),
    "timeline/browser": [f"{part}.js" for part in _PARTS],
}


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline, decided.

    Attributes:
        headline: What was recorded, in a sentence.
        remarks: What was merged or left out and how to get it, in sentences.
        still: The picture as HTML that needs no script.
        text: The whole as plain text.
        data: The packed marks in base64; "" for a trace without events.
        every: More of them in base64, for a page that draws ``data`` first; "" where ``data`` is all.
    """

    headline: str
    remarks: tuple[str, ...]
    still: Markup
    text: str
    data: str
    every: str = ""

    def html(self, timeline_id: str = "") -> Markup:
        """Write the element.

        Args:
            timeline_id: What a script calls it when it asks the kernel for more; "" never asks.
        """
        remark = Markup('<div style="{}">{}</div>')
        return Markup(
            '<div class="profnb profnb-timeline" style="{};max-width:none"{}{}{}>'
            '<div style="font-size:15px;font-weight:600;margin:4px 0 0">{}</div>'
            '{}<div class="profnb-still">{}</div></div>'
        ).format(
            ROOT,
            Markup(' data-id="{}"').format(timeline_id) if timeline_id else "",
            Markup(' data-timeline="{}"').format(self.data) if self.data else "",
            Markup(' data-more="1"') if self.every else "",
            printable(self.headline),
            Markup("").join(remark.format(MUTED, text) for text in self.remarks),
            without_controls(self.still),
        )

    def every_html(self) -> Markup:
        """Write what stands at the end of a page, behind the script, which so draws before all is read."""
        if not self.every:
            return Markup("")
        return Markup('<div hidden class="profnb-every" data-marks="{}"></div>').format(self.every)


def build_timeline(
    study: Study, *, is_page: bool = False, beside: int = 1, of: str = "p"
) -> Timeline:
    """Decide the timeline of a trace.

    Args:
        study: The trace and what was found in it.
        is_page: Whether it stands in a page of its own, which may be larger than a notebook's cell.
        beside: How many timelines share the budget of one.
        of: What the profile is called that has every event.
    """
    trace, steps = study.recorded.trace, study.recorded.steps
    if not len(trace.events):
        return Timeline("The trace has no events", (), Markup(""), "The trace has no events", "")
    scene = Scene(study)
    still = still_picture(scene)
    limits = (_NOTEBOOK_MARKS, _NOTEBOOK_DETAILS, _NOTEBOOK_BYTES)
    if is_page:
        limits = (_PAGE_MARKS, _PAGE_DETAILS, _PAGE_BYTES)
    packed = fit_timeline(scene, *(limit // beside for limit in limits))
    first = packed
    if is_page and packed.marks > _FIRST_MARKS:
        first = fit_timeline(scene, _FIRST_MARKS, 0, _FIRST_BYTES)
    step_text = "no steps found" if steps.is_window else counted_text(len(steps), "step")
    lines = len(scene.lanes.lines)
    headline = (
        f"{counted_text(len(trace.events), 'event')} on "
        f"{count_text(lines)} {'thread or stream' if lines == 1 else 'threads and streams'} in "
        f"{duration_text(still.span_ps)}, {step_text}"
    )
    remarks = []
    if packed.merged_events:
        remarks.append(
            f"{count_text(packed.merged_events)} events shorter than {duration_text(packed.resolution_ps)} "
            f"are drawn as blocks of several. To see every event: {of}.to_html(path) as a page, "
            f"{of}.to_chrome_trace(path) for Perfetto."
        )
    if packed.left_out_events:
        remarks.append(
            f"Only {count_text(len(scene.lanes.lines))} lines are shown. {of}.events also has "
            f"{count_text(packed.left_out_events)} events on hidden lines."
        )
    text = "\n\n".join([printable(headline), *remarks, still_text(still)])
    return Timeline(
        headline=headline,
        remarks=tuple(remarks),
        still=trace.sharing.html(still_html(still)),
        text=for_terminal(trace.sharing.text(text)),
        data=b64encode(first.data).decode("ascii"),
        every="" if first is packed else b64encode(packed.data).decode("ascii"),
    )


@cache
def timeline_script() -> str:
    """Read the script that puts a viewer in place of every still picture on the page it runs in."""
    return joined(_SCRIPTS)


@dataclass(frozen=True, slots=True)
class TimelinePair:
    """Two timelines, decided.

    Attributes:
        labels: What the runs are called.
        sides: Their timelines, in the same order.
    """

    labels: tuple[str, str]
    sides: tuple[Timeline, Timeline]

    def html(self, ids: Sequence[str] = ("", "")) -> Markup:
        """Write the element.

        Args:
            ids: What a script calls each side when it asks the kernel for more; "" never asks.
        """
        first, second = (side.html(one) for side, one in zip(self.sides, ids, strict=True))
        return Markup(
            '<div class="profnb profnb-pair" style="{};max-width:none" data-first="{}" '
            'data-second="{}">{}{}</div>'
        ).format(ROOT, *map(printable, self.labels), first, second)

    @property
    def text(self) -> str:
        """Both as plain text, one below the other."""
        return "\n\n".join(side.text for side in self.sides)


def build_pair(first: Study, second: Study, labels: tuple[str, str]) -> TimelinePair:
    """Decide the timelines of two traces; together they take the room of one."""

    def side_of(study: Study, label: str) -> tuple[str, Timeline]:
        label = study.trace.sharing.text(label)
        side, name = build_timeline(study, beside=2), printable(label)
        headline, text = f"{name}: {side.headline}", f"{name}: {side.text}"
        return label, replace(side, headline=headline, text=text)

    (one, left), (two, right) = side_of(first, labels[0]), side_of(second, labels[1])
    return TimelinePair((one, two), (left, right))


def answer_question(scene: Scene, question: str) -> str:
    """Answer what a timeline's script asked, as text.

    Args:
        scene: The trace, what was found in it, and its lanes.
        question: ``hello``; ``window FROM TO`` for the packed marks of a window in base64; or
            ``event ROW BEGIN`` for the stats of the event that begins there. Times are in the
            timeline's units.

    Returns:
        The answer; "" for a question that makes no sense, which a page may ask.
    """
    if question == "hello":
        return "here"
    kind, *numbers = question.split() or [""]
    if len(numbers) != 2 or not all(n.lstrip("-").isdecimal() and len(n) < 16 for n in numbers):
        return ""
    first, second = int(numbers[0]), int(numbers[1])
    begin_ps, unit_ps = unit_of(scene)
    if kind == "window":
        ends = (begin_ps + first * unit_ps, begin_ps + max(second, first + 1) * unit_ps)
        window = tuple(min(max(end, -_FARTHEST_PS), _FARTHEST_PS) for end in ends)
        packed = pack_timeline(scene, _MOST_MARKS, _MOST_DETAILS, (window[0], window[1]))
        return b64encode(packed.data).decode("ascii")
    if kind == "event":
        events = scene.study.trace.events
        matches = np.flatnonzero(
            (scene.lanes.lane == first) & ((events.begin_ps - begin_ps) // unit_ps == second)
        )
        return event_details(scene, int(matches[0])) if matches.size else ""
    return ""


def show_live_detail(study: Study, timeline_id: str) -> Any:
    """Make the kernel answer the timeline of this id.

    Returns:
        What lives on; None in Colab.
    """
    return show_bridge(timeline_id, partial(answer_question, Scene(study)))


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
    return (_FIRST, width, "busy", "busy %", "events")


def still_text(still: Still) -> str:
    """Write the picture for a terminal, as wide as that is."""
    labels = [printable(label)[:28] for label, *_ in still.rows]
    room = (terminal_columns() or sys.maxsize) - max(map(len, (*labels, _FIRST))) - _BESIDE_STRIP
    begins = range(0, _BINS, -(-_BINS // max(room, 8)))  # a mark is the highest of so many
    table = [_headings(f"|{duration_text(still.span_ps):^{len(begins)}}|")]
    for label, (_, _, strip, *numbers) in zip(labels, still.rows, strict=True):
        marks = "".join(max(strip[at : at + begins.step]) for at in begins)
        table.append((label, f"|{marks}|", *_numbers(*numbers)))
    text = plain_table(table, _ARE_NUMBERS)
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
    more = Markup('<div style="{}">and {} more</div>').format(MUTED, still.hidden_lines)
    return table + more if still.hidden_lines else table


def _numbers(events: float, busy_ps: float, share: float) -> tuple[str, str, str]:
    return duration_text(busy_ps), percent_text(share), count_text(events)
