"""A fleet as HTML and text: the answer, a row per host, what own work is made of, who was late when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.core.printable import for_terminal, printable
from profnb.core.sharing import Sharing
from profnb.core.units import counted_text, duration_text, percent_text
from profnb.drawing.drawn_tables import note_list
from profnb.drawing.markup import content_policy, script_element
from profnb.drawing.section import Bar, Section, Shown, section_block, section_of, section_text
from profnb.drawing.theme import MUTED, ROOT, colour_of
from profnb.fleet.digest import OWN_CATEGORIES
from profnb.fleet.fleet_tables import FLEET_HOSTS
from profnb.fleet.merging import Merged
from profnb.fleet.verdict import HostTimes, Verdict
from profnb.report.advice import advice_html, advice_section_text
from profnb.report.report import report_script

_MOST_HOSTS, _MOST_STEPS_DRAWN = 64, 200
_SHARING = Sharing(names_hosts=True)
_LEVELS = "·▁▂▃▄▅▆▇█"
_LEAST_SHARE_SHOWN = 0.005
_LATE = "Who was late in which step"
_PAGE = Markup(
    '<!doctype html><html lang="en"><head><meta charset="utf-8">{policy}'
    '<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title} - profnb</title>'
    "<style>:root{{color-scheme:light dark}}body{{margin:24px auto;max-width:980px;padding:0 16px;"
    "background:Canvas;color:CanvasText}}</style></head><body><main>{body}</main>{scripts}</body></html>"
)


@dataclass(frozen=True, slots=True)
class FleetView:
    """Everything that a fleet shows.

    Attributes:
        title: What it is called.
        verdict: The answer.
        times: Its hosts' means; None where they did not meet.
        merged: Its steps; None likewise.
        notes: What is missing, and why.
    """

    title: str
    verdict: Verdict
    times: HostTimes | None
    merged: Merged | None
    notes: Sequence[str]

    def sections(self) -> list[Section]:
        """Make its tables."""
        if self.times is None or self.merged is None:
            return []
        return [
            _host_section(self.times),
            _own_section(self.times, self.merged),
            _late_section(self.times, self.merged),
            *([_clock_section(self.times)] if self.times.noun == "host" else []),
        ]


def _section(
    times: HostTimes,
    title: str,
    sentence: str,
    columns: Sequence[str | Shown],
    bar: Bar,
    **rest: Any,
) -> Section:
    """A section with a row per host: of all, or of those of the longest own work."""
    longest = np.argsort(-times.own_ps, kind="stable")[:_MOST_HOSTS]
    return section_of(
        FLEET_HOSTS,
        times,
        columns,
        title=title,
        tab="",
        bar=bar,
        rows=sorted(longest.tolist()),
        sentence=sentence,
        **rest,
    )


def _host_section(times: HostTimes) -> Section:
    bar = Bar.of(times.own_ps, colour_of(f"{times.noun} compute"))
    sentence = (
        "Own work, waiting and exchange add up to a mean step. Bars are own work. Delay caused is counted "
        "from the slowest other worker."
    )
    if len(times.host) > _MOST_HOSTS:
        count = counted_text(len(times.host), times.noun)
        sentence += (
            f" Of {count} the {_MOST_HOSTS} with the longest own work. All are in fleet.hosts."
        )
    columns = ("step_ms", "own_ms", "wait_ms", "exchange_ms", "caused_ms", "last_fraction")
    title = f"{times.noun.capitalize()}s"
    return _section(times, title, sentence, (_name_of(times), *columns), bar)


def _name_of(times: HostTimes) -> Shown:
    return Shown(times.noun, lambda row: times.host[row])


def _own_section(times: HostTimes, merged: Merged) -> Section:
    """Own work by category, those that take anything."""
    mean = merged.categories_ps[:, merged.steady].mean(axis=1)
    largest = mean.max(axis=0) >= _LEAST_SHARE_SHOWN * max(float(times.step_ps.max()), 1.0)
    columns = [
        Shown(OWN_CATEGORIES[at], lambda row, at=at: duration_text(mean[row, at]), is_number=True)  # type: ignore[misc]
        for at in np.flatnonzero(largest).tolist()
    ]
    widest = int((mean.max(axis=0) - mean.min(axis=0)).argmax())
    category = OWN_CATEGORIES[widest]
    bar = Bar.of(mean[:, widest], colour_of(category))
    sentence = f"The {times.noun}s differ most in {category}, shown by the bars."
    return _section(times, "Own work by what it is", sentence, (_name_of(times), *columns), bar)


def _late_section(times: HostTimes, merged: Merged) -> Section:
    """Hosts by steps: how much longer a host's own work was than the shortest, as blocks."""
    late = merged.own_ps - merged.own_ps.min(axis=0)
    most = float(np.percentile(late[:, merged.steady], 99)) if merged.steady.size else 0.0
    together = -(-late.shape[0] // _MOST_HOSTS)
    hosts = np.arange(0, late.shape[0], together)
    # Means of neighbouring steps, as many as fit into a line.
    each = -(-late.shape[1] // _MOST_STEPS_DRAWN)
    steps = np.arange(0, late.shape[1], each)
    counts = np.diff(np.append(steps, late.shape[1]))
    coarse = np.add.reduceat(np.maximum.reduceat(late, hosts, axis=0), steps, axis=1) / counts
    levels = np.clip(np.ceil(coarse / (most or 1.0) * (len(_LEVELS) - 1)), 0, len(_LEVELS) - 1)
    rows = []
    for row, at in enumerate(hosts.tolist()):
        named = times.host[at : at + together]
        marks = "".join(_LEVELS[int(level)] for level in levels[row])
        rows.append((marks, named[0] if len(named) == 1 else f"{named[0]} to {named[-1]}"))
    several = f" Each mark is the mean of {each} steps." if each > 1 else ""
    several += f" Each row is the latest of {together} {times.noun}s." if together > 1 else ""
    listed = "\n".join(f"{marks}  {printable(host)}" for marks, host in rows)
    return Section(
        title=_LATE,
        sentence=f"One mark a step, from the first common step to the last: own work of the {times.noun} "
        f"beyond the shortest. A full block is {duration_text(most)}.{several}",
        headings=("steps", times.noun),
        rows=rows,
        numbers=(False, False),
        colours=["currentColor"] * len(rows),  # the least marks are as thin as a letter
        tab="",
        plain=f"{_LATE} (a full block is {duration_text(most)})\n{listed}",
    )


def _clock_section(times: HostTimes) -> Section:
    def bounds(row: int) -> str:
        low, high = float(times.offset_low_ps[row]), float(times.offset_high_ps[row])
        return f"{duration_text(abs(high - low))} wide"

    return _section(
        times,
        "Clocks",
        "Offset of each host's clock from the first host's, from the order of leaving collectives. No "
        "other figure here depends on clocks.",
        ("host", "offset_ms", Shown("interval", bounds, is_number=True)),
        Bar(lambda _: 0.0, colour_of("all others"), 1),
        is_detail=True,
    )


def fleet_text(view: FleetView) -> str:
    """Write the fleet as plain text."""
    said = (printable(view.verdict.sentence), printable(view.verdict.why), _what_if(view))
    parts = ["\n".join(filter(None, said))]
    if view.verdict.advice:
        parts.append(advice_section_text(view.verdict.advice))
    parts += [f"Note: {printable(note)}" for note in view.notes]
    parts += [section_text(one) for one in view.sections() if not one.is_detail]
    return for_terminal(_SHARING.text("\n\n".join(parts)))


def _what_if(view: FleetView) -> str:
    """Say what a step would take if the slow were as fast as the slowest of the others; "" for nobody."""
    gain = view.verdict.gain_fraction
    if view.times is None or not gain:
        return ""
    left_ps = float(view.times.step_ps.mean()) * (1 - gain)
    return (
        f"At the speed of the slowest other worker, a step would take {duration_text(left_ps)}, "
        f"{percent_text(gain)} less."
    )


def fleet_html(view: FleetView) -> Markup:
    """Write the fleet as HTML that is readable with script and style stripped."""
    muted = Markup('<div style="{}">{}</div>')
    why = [muted.format(MUTED, part) for part in (view.verdict.why, _what_if(view)) if part]
    html = Markup(
        '<div class="profnb" style="{}"><div style="font-size:17px;font-weight:600;margin:4px 0">{}</div>'
        "{}{}{}{}</div>"
    ).format(
        ROOT,
        view.verdict.sentence,
        Markup("").join(why),
        advice_html(view.verdict.advice) if view.verdict.advice else "",
        note_list(view.notes),
        Markup("").join(map(section_block, view.sections())),
    )
    return _SHARING.html(html)


def fleet_bundle(view: FleetView) -> dict[str, str]:
    """Make the fleet a MIME bundle."""
    return {"text/html": str(fleet_html(view)), "text/plain": fleet_text(view)}


def fleet_page(view: FleetView, timeline: Markup, script: str) -> str:
    """Write the fleet as one HTML file that asks nothing of a network.

    Args:
        view: What it says.
        timeline: The hosts on one axis of time; "" leaves it out.
        script: What makes that move; "" for nothing.
    """
    programs = [script_element(one) for one in (report_script(), script) if one]
    return str(
        _PAGE.format(
            policy=content_policy(*programs),
            title=_SHARING.text(printable(view.title)),
            body=fleet_html(view) + timeline,
            scripts=Markup("").join(programs),
        )
    )
