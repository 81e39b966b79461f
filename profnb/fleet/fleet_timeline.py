"""Hosts of one capture in one trace on the first one's clock, and the timeline of that under a cell.

First comes a line per host: its own work, and its exchange with the others; what is blank between the two is
waiting. Behind them come the threads and streams of each host, where its trace was opened, those of one kind
(``tf_Compute``) at one place in all hosts, by how busy the kind is in all of them. What has to be
added to a clock is an estimate (``merging.Clocks``), and it is said how far off it may be.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup

from profnb.core.columns import Int64s, span_at
from profnb.core.printable import first_of, printable
from profnb.core.units import duration_text
from profnb.drawing.markup import note_list
from profnb.drawing.theme import ROOT
from profnb.fleet.merging import Clocks, Merged
from profnb.steps.activities import CATEGORIES
from profnb.steps.grouping import Groups
from profnb.steps.summary import Summary
from profnb.steps.windows import Steps
from profnb.subjects.study import Study
from profnb.timeline.element import Timeline, build_timeline
from profnb.timeline.scene import lay_out_lanes
from profnb.trace.assemble import FoundLine, assemble_trace
from profnb.trace.model import Stats, StringTable, Trace

Studies = Sequence[Study | None]
OWN_WORK, EXCHANGE = "own work", "exchange"
_BARS = (OWN_WORK, EXCHANGE)
_ID = re.compile(r"[/ #-]*\d+$")  # of a thread, behind the name of its kind
_MOST_LANES_OF_FLEET, _MOST_THREADS = 400, 40  # as many as a timeline shows, and of one host
_MOST_NAMES = 8
_READING = (
    "A line per {noun}: own work, then exchange; what is blank between them is waiting for others. Steps are "
    "the first {noun}'s."
)


class _JoinedStats(Stats):
    """Stats of the hosts' events, one by one; numbers of different hosts link nothing."""

    def __init__(self, traces: Sequence[Trace | None], source: Int64s, row: Int64s) -> None:
        self._traces, self._source, self._row = traces, source, row

    def of_event(self, event: int) -> dict[str, int | float | str | bytes]:
        """Every stat of one event."""
        source = int(self._source[event])
        trace = self._traces[source] if source >= 0 else None
        return {} if trace is None else trace.stats.of_event(int(self._row[event]))


class _Pieces:
    """Events of all hosts as they come, before they are put into a trace."""

    def __init__(self) -> None:
        self.lines: list[FoundLine] = []
        self.texts: list[str] = list(_BARS)
        self.columns: list[Sequence[Int64s]] = []

    def add(
        self, name: Int64s | int, begin: Int64s, end: Int64s, category: Int64s | int, source: int,
        row: Int64s | int,
    ) -> None:  # fmt: skip
        """Add events of the line that was added last; what is one number holds for all of them."""
        columns = name, begin, end - begin, category, row, len(self.lines) - 1, source
        self.columns.append(np.broadcast_arrays(*columns))


def join_hosts(
    merged: Merged, names: Sequence[str], studies: Studies, *, has_device: bool = False
) -> Study:
    """Put hosts on one clock.

    Args:
        merged: Their steps.
        names: What the H hosts are called.
        studies: The analyses of each one's trace; None for one of which a line is enough.
        has_device: Whether own work is a device's, also where no study says so.

    Returns:
        What a timeline asks of a trace; the steps are the first host's.
    """
    pieces = _Pieces()
    has_device |= any(one is not None and one.program.has_device for one in studies)
    _add_bars(pieces, merged, names, has_device)
    shift = merged.clocks.shift_ps
    most = min(_MOST_THREADS, max(_MOST_LANES_OF_FLEET // max(len(names), 1) - 1, 0))
    opened = {host: study for host, study in enumerate(studies) if study is not None}
    for host, lines in _in_one_order(opened, most).items():
        _add_threads(pieces, opened[host], names[host], host, int(shift[host]), lines)
    columns = map(np.concatenate, zip(*pieces.columns, strict=True))
    name, begin, duration, category, row, line, source = columns
    origin = int(begin.min())
    orders: list[Int64s] = []

    def keep(order: Int64s) -> Stats:
        orders.append(order)
        traces = [None if one is None else one.trace for one in studies]
        return _JoinedStats(traces, source[order], row[order])

    trace = assemble_trace(
        "fleet", pieces.lines, line, name, begin - origin, duration, StringTable.of(pieces.texts),
        stats=keep, hostnames=tuple(names), keeps_origin=True,
    )  # fmt: skip
    study = Study(trace)
    study.steps = steps = _steps_of_first(merged, origin - int(shift[0]))
    study.categories = category[orders[0]].astype(np.int8)
    step = span_at(steps.begin_ps, steps.end_ps, trace.events.begin_ps)
    study.groups = Groups(step.astype(np.int32), study.parent, trace.events.end_ps)
    none, nothing = np.empty(0, np.int64), (None,) * 6  # is known of several hosts
    study.summary = Summary(
        "step", merged.steady, none, none, (), 1, *nothing, shares=(), all_warm_up=False
    )
    return study


def _add_bars(pieces: _Pieces, merged: Merged, names: Sequence[str], has_device: bool) -> None:
    """A line per host: own work from leaving one joint to entering the next, then, after a wait, exchange."""
    joints, shift = merged.joints, merged.clocks.shift_ps
    own_category = CATEGORIES.index("device compute" if has_device else "host compute")
    exchange = CATEGORIES.index("device collectives")
    for host, name in enumerate(names):
        pieces.lines.append(FoundLine("", "host", name, host))
        begin = joints.leave_ps[host, :-1] + shift[host]
        end = joints.leave_ps[host, 1:] + shift[host]
        enter = np.maximum(joints.enter_ps[host, 1:] + shift[host], begin)
        waited = np.minimum(enter + merged.piece_wait_ps[host], end)
        spans = (own_category, begin, enter), (exchange, waited, end)
        for row, (category, first, last) in enumerate(spans):
            some = last > first
            pieces.add(row, first[some], last[some], category, -1, 0)


def _in_one_order(opened: Mapping[int, Study], most: int) -> dict[int, list[int]]:
    """The lines of each host, those that do most, in an order that is the same for hosts that are alike."""
    # Of each line its place, kind and number.
    lines_by_host: dict[int, list[tuple[int, str, int]]] = {}
    busy_ps: Counter[tuple[int, str]] = Counter()
    for host, study in opened.items():
        lanes = lay_out_lanes(study.trace, study.steps, study.parent)
        rows = lines_by_host.setdefault(host, [])
        for at, line in enumerate(lanes.lines[:most].tolist()):
            is_device = bool(study.trace.is_device_line[line])
            place = 0 if is_device else 1 if at == lanes.steps_line else 2
            # A device's streams are few and keep the recorder's order.
            kind = f"{at:4}" if is_device else _ID.sub("", study.trace.lines.names[line])
            rows.append((place, kind, line))
            busy_ps[place, kind] += int(lanes.busy_ps[at])
    for rows in lines_by_host.values():
        rows.sort(key=lambda row: (row[0], -busy_ps[row[:2]] if row[0] else 0, row[1]))
    return {host: [line for *_, line in rows] for host, rows in lines_by_host.items()}


def _add_threads(
    pieces: _Pieces, study: Study, name: str, host: int, shift_ps: int, chosen: Sequence[int]
) -> None:
    """Some of a host's own threads and streams."""
    trace = study.trace
    offsets = trace.lines.offsets
    parts = [trace.events.name[offsets[line] : offsets[line + 1]] for line in chosen]
    used = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
    number = np.zeros(len(trace.names), np.int64)
    number[used] = len(pieces.texts) + np.arange(used.size)
    pieces.texts += [trace.names[row] for row in used.tolist()]
    for line in chosen:
        plane = trace.planes[trace.lines.plane[line]]
        short = "" if plane.is_host else f" {plane.name.rpartition('/')[2]}"
        side = "device" if plane.is_device else "host"
        line_name = trace.lines.names[line] or f"thread {trace.lines.ids[line]}"
        pieces.lines.append(FoundLine(name + short, side, line_name, int(trace.lines.ids[line])))
        rows = np.arange(offsets[line], offsets[line + 1])
        begin, end = trace.events.begin_ps[rows] + shift_ps, trace.events.end_ps[rows] + shift_ps
        category = study.categories[rows].astype(np.int64)
        pieces.add(number[trace.events.name[rows]], begin, end, category, host, rows)


def _steps_of_first(merged: Merged, origin_ps: int) -> Steps:
    """The steps of the first host, between the joints that end them."""
    count = merged.step_num.size
    first = np.searchsorted(merged.step_of, np.arange(count))
    last = np.searchsorted(merged.step_of, np.arange(count), side="right")
    begin = merged.joints.leave_ps[0, first] - origin_ps
    end = merged.joints.leave_ps[0, last] - origin_ps
    phases, origin = ("step",) * count, "collectives that all hosts took part in"
    steps = Steps.between(begin, end, phases, origin=origin)
    return replace(steps, step_num=merged.step_num, is_warmup=~merged.is_steady)


@dataclass(frozen=True, slots=True)
class FleetTimeline:
    """A timeline of several hosts, decided.

    Attributes:
        study: Their events on one clock.
        timeline: The picture of them.
        notes: What is to be said first, in sentences.
    """

    study: Study
    timeline: Timeline
    notes: Sequence[str]

    @property
    def above(self) -> Markup:
        """The notes, which stand above the picture."""
        root = Markup('<div class="profnb" style="{}">{}</div>')
        return self.study.trace.sharing.html(root.format(ROOT, note_list(self.notes)))

    def html(self, timeline_id: str = "") -> Markup:
        """The element, with what stands above it."""
        return self.above + self.timeline.html(timeline_id)

    @property
    def text(self) -> str:
        """The notes and the timeline as plain text."""
        notes = [f"Note: {printable(note)}" for note in self.notes]
        return self.study.trace.sharing.text("\n".join([*notes, self.timeline.text]))


def build_fleet_timeline(
    merged: Merged, names: Sequence[str], studies: Studies, notes: Sequence[str], *,
    is_page: bool = False, noun: str = "host",
) -> FleetTimeline:  # fmt: skip
    """Build the timeline of a fleet.

    Of a host without a study there is a line only. Devices have one clock, and their streams are in the
    timeline of their trace.
    """
    own_notes = [_READING.format(noun=noun)]
    if noun == "device":
        own_notes.append(f"fleet[{names[0]!r}].timeline() shows all streams and threads.")
    else:
        if any(study is None for study in studies):
            own_notes.append(
                "Threads are left out for many hosts, large traces or missing traces. "
                f"fleet[{names[0]!r}].timeline() shows the threads of one host."
            )
        own_notes.append(_clock_note(merged.clocks, names))
    study = join_hosts(merged, names, studies, has_device=noun == "device")
    timeline = build_timeline(study, is_page=is_page, of=f"fleet[{names[0]!r}]")
    return FleetTimeline(study, timeline, [*own_notes, *notes])


def _clock_note(clocks: Clocks, names: Sequence[str]) -> str:
    """Say how far each host's events may lie from where they are drawn."""
    early = (clocks.offset_ps - clocks.low_ps).tolist()
    late = (clocks.high_ps - clocks.offset_ps).tolist()
    deviations = [
        f"{names[row]} up to {duration_text(early[row])} earlier or {duration_text(late[row])} later"
        for row in sorted(range(1, len(names)), key=lambda row: -(early[row] + late[row]))
    ]
    return (
        f"Clocks are joined to {names[0]}'s by the order of leaving collectives. Events may lie off the "
        f"drawn place: {first_of(deviations, _MOST_NAMES, rest='; {} more by less')}."
    )
