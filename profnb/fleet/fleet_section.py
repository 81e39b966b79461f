"""A fleet as HTML and text: the answer, a row per host, what own work is made of, who was late when."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from profnb.core.columns import Floats
from profnb.core.printable import for_terminal, printable
from profnb.core.sharing import Sharing
from profnb.core.units import counted_text, duration_text, percent_text
from profnb.drawing.html_table import note_list
from profnb.drawing.markup import content_policy, script_element
from profnb.drawing.section import Bar, Section, Shown, section_block, section_of, section_text
from profnb.drawing.theme import MUTED, ROOT, colour_of
from profnb.fleet.digest import OWN_CATEGORIES
from profnb.fleet.fleet_tables import FLEET_HOSTS
from profnb.fleet.merging import Merged
from profnb.fleet.verdict import HostTimes, Verdict
from profnb.report.advice import advice_html, advice_section_text
from profnb.report.script import report_script

_MOST_HOSTS, _MOST_STEPS = 64, 200
_SHARING = Sharing(names_hosts=True)
_LEVELS = "·▁▂▃▄▅▆▇█"
_LEAST_SHARE = 0.005
_PAGE = Markup(
    '<!doctype html><html lang="en"><head><meta charset="utf-8">{policy}'
    '<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title} - profnb</title>'
    "<style>:root{{color-scheme:light dark}}body{{margin:24px auto;max-width:980px;padding:0 16px;"
    "background:Canvas;color:CanvasText}}</style></head><body><main>{body}</main>{scripts}</body></html>"
)


@dataclass(frozen=True, slots=True)
class FleetView:
    """What a fleet shows.

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
        """Its tables."""
        if self.times is None or self.merged is None:
            return []
        listed = [_host_section(self.times), _own_section(self.times, self.merged)]
        listed.append(_late_section(self.times, self.merged))
        return [*listed, *([_clock_section(self.times)] if self.times.noun == "host" else [])]


def _rows(times: HostTimes) -> list[int]:
    """The hosts that tables show: all, or those of the longest own work."""
    longest = np.argsort(-times.own_ps, kind="stable")[:_MOST_HOSTS]
    return sorted(longest.tolist())


def _more(times: HostTimes) -> str:
    left = len(times.host) - _MOST_HOSTS
    if left <= 0:
        return ""
    count = counted_text(len(times.host), times.noun)
    return f" Of {count} the {_MOST_HOSTS} of the longest own work; all are in fleet.hosts."


def _name_of(times: HostTimes) -> Shown:
    return Shown(times.noun, lambda row: times.host[row])


def _host_section(times: HostTimes) -> Section:
    most = float(times.own_ps.max()) or 1.0
    return section_of(
        FLEET_HOSTS,
        times,
        (
            _name_of(times),
            "step_ms",
            "own_ms",
            "wait_ms",
            "exchange_ms",
            "caused_ms",
            "last_fraction",
        ),
        title=f"{times.noun.capitalize()}s",
        tab="",
        bar=Bar(
            lambda row: float(times.own_ps[row]) / most, colour_of(f"{times.noun} compute"), 12
        ),
        rows=_rows(times),
        sentence="Of a mean step; own work, waiting and exchange add up to it. Bars are own work. What one "
        "holds up is counted from the slowest of the others." + _more(times),
    )


def _own_section(times: HostTimes, merged: Merged) -> Section:
    """Own work by category, those that take anything."""
    mean = merged.categories_ps[:, merged.steady].mean(axis=1)
    largest = mean.max(axis=0) >= _LEAST_SHARE * max(float(times.step_ps.max()), 1.0)
    shown = np.flatnonzero(largest).tolist()
    columns = [
        Shown(OWN_CATEGORIES[at], lambda row, at=at: duration_text(mean[row, at]), is_number=True)  # type: ignore[misc]
        for at in shown
    ]
    spread = mean.max(axis=0) - mean.min(axis=0)
    widest = OWN_CATEGORIES[int(spread.argmax())]
    return section_of(
        FLEET_HOSTS,
        times,
        (_name_of(times), *columns),
        title="Own work by what it is",
        tab="",
        bar=Bar(
            lambda row: (
                float(mean[row, spread.argmax()]) / (float(mean[:, spread.argmax()].max()) or 1.0)
            ),
            colour_of(widest),
            12,
        ),
        rows=_rows(times),
        sentence=f"The {times.noun}s differ most in {widest}, which the bars are of.",
    )


def _late_section(times: HostTimes, merged: Merged) -> Section:
    """Hosts by steps: how much longer a host's own work was than the shortest, as blocks."""
    late = merged.own_ps - merged.own_ps.min(axis=0)
    most = float(np.percentile(late[:, merged.steady], 99)) if merged.steady.size else 0.0
    together = -(-late.shape[0] // _MOST_HOSTS)
    begins = np.arange(0, late.shape[0], together)
    coarse = _coarsen(np.maximum.reduceat(late, begins, axis=0), _MOST_STEPS)
    each = -(-merged.step_num.size // coarse.shape[1])
    levels = np.clip(np.ceil(coarse / (most or 1.0) * (len(_LEVELS) - 1)), 0, len(_LEVELS) - 1)
    rows = [
        (
            "".join(_LEVELS[int(level)] for level in levels[row]),
            _names_of(times.host[at : at + together]),
        )
        for row, at in enumerate(begins.tolist())
    ]
    several = f" Each mark is the mean of {each} steps." if each > 1 else ""
    several += f" Each row is the latest of {together} {times.noun}s." if together > 1 else ""
    return Section(
        title="Who was late in which step",
        sentence="One mark a step, from the first common one to the last: how much longer the own work of "
        f"the {times.noun} was than the shortest of all; a full block is {duration_text(most)}.{several}",
        headings=("steps", times.noun),
        rows=rows,
        numbers=(False, False),
        colours=["currentColor"] * len(rows),  # the least marks are as thin as a letter
        tab="",
        plain="Who was late in which step (a full block is "
        f"{duration_text(most)})\n"
        + "\n".join(f"{marks}  {printable(host)}" for marks, host in rows),
    )


def _names_of(hosts: Sequence[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{hosts[0]} to {hosts[-1]}"


def _coarsen(values: Floats, most: int) -> Floats:
    """Means of so many neighbouring columns that at most so many are left."""
    each = -(-values.shape[1] // most)
    begins = np.arange(0, values.shape[1], each)
    counts = np.diff(np.append(begins, values.shape[1]))
    return np.asarray(np.add.reduceat(values, begins, axis=1) / counts)


def _clock_section(times: HostTimes) -> Section:
    def bounds(row: int) -> str:
        low, high = float(times.offset_low_ps[row]), float(times.offset_high_ps[row])
        return f"{duration_text(abs(high - low))} wide"

    return section_of(
        FLEET_HOSTS,
        times,
        ("host", "offset_ms", Shown("interval", bounds, is_number=True)),
        title="Clocks",
        tab="",
        bar=Bar(lambda _: 0.0, colour_of("all others"), 1),
        rows=_rows(times),
        sentence="What to add to a host's clock to have the first one's, from who can have left a collective "
        "before whom. No other figure here depends on clocks.",
        is_detail=True,
    )


def fleet_text(view: FleetView) -> str:
    """The fleet as plain text."""
    said = [printable(part) for part in (view.verdict.sentence, view.verdict.why) if part]
    if view.verdict.gain_fraction:
        said.append(_what_if(view))
    parts = ["\n".join(said)]
    if view.verdict.advice:
        parts.append(advice_section_text(view.verdict.advice))
    parts += [f"Note: {printable(note)}" for note in view.notes]
    parts += [section_text(one) for one in view.sections() if not one.is_detail]
    return for_terminal(_SHARING.text("\n\n".join(parts)))


def _what_if(view: FleetView) -> str:
    """What a step would take if the slow were as fast as the slowest of the others."""
    if view.times is None or not view.verdict.gain_fraction:
        return ""
    step = float(view.times.step_ps.mean())
    left = 1 - view.verdict.gain_fraction
    they = "it" if len(view.verdict.hosts) == 1 else "they"
    return (
        f"Were {they} as fast as the slowest of the others, a step would take {duration_text(step * left)}, "
        f"{percent_text(view.verdict.gain_fraction)} less."
    )


def fleet_html(view: FleetView) -> Markup:
    """The fleet as HTML that is readable with script and style stripped."""
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
    """The fleet as a MIME bundle."""
    return {"text/html": str(fleet_html(view)), "text/plain": fleet_text(view)}


def fleet_page(view: FleetView, timeline: Markup, script: str) -> str:
    """The fleet as one HTML file that asks nothing of a network.

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
