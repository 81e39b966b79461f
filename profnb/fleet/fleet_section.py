"""A fleet as tables and a report: the answer, a row per host, what own work is made of, who was late."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.core.printable import printable
from profnb.core.sharing import Sharing
from profnb.core.table import Column, Table, columns_in
from profnb.core.units import counted_text, duration_text, percent_text
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import MUTED, colour_of
from profnb.fleet.digest import OWN_CATEGORIES
from profnb.fleet.merging import Merged
from profnb.fleet.verdict import HostTimes, Verdict
from profnb.report.report import Report
from profnb.steps.breakdown import column_of


@dataclass(frozen=True, slots=True)
class FleetSteps:
    """Steps or joints of all hosts, one after the other: row 0 of every host, then row 1.

    Attributes:
        hosts: What the H hosts are called.
        merged: Their S steps and K joints.
    """

    hosts: Sequence[str]
    merged: Merged

    def spread(self, values: Any) -> Any:
        """Repeat one value per step, or per joint, for every host."""
        return np.repeat(values, len(self.hosts))

    def names(self, count: int) -> list[str]:
        """List the hosts, once for each of so many."""
        return list(self.hosts) * count


def _each_hosts(path: str, *names: str) -> dict[str, Callable[[FleetSteps], Any]]:
    """Fill columns of times from fields that have a row per host."""

    def column(of: Callable[[FleetSteps], Any]) -> Callable[[FleetSteps], Any]:
        return lambda f: of(f).T.ravel()

    return {f"{name}_ms": column(attrgetter(f"{path}{name}_ps")) for name in names}


def _step_rows(name: str) -> "Column[FleetSteps]":
    at, meaning = OWN_CATEGORIES.index(name), f"{name} of the own work"
    return Column(column_of(name), lambda f: f.merged.categories_ps[:, :, at].T.ravel(), meaning)


FLEET_HOSTS = Table[HostTimes](
    "hosts",
    "One row per host, in the order of ranks or names. Means are over the steady steps common to all.",
    columns_in("""
        host: what it is called in the run
        rank: its number in the job; -1 where nothing tells
        steps: steady steps that all hosts have
        step_ms: a step: own work, waiting and exchange
        own_ms [own work]: own work: outside of collectives
        wait_ms [waits]: waiting in collectives for others
        exchange_ms: the rest of the time in collectives: transfer, and what cannot be told from it
        caused_ms [holds up]: what a step would be shorter, were it alone as fast as the slowest of the
            others: its own work beyond theirs, where it is last, and no more than what they compute while
            they wait leaves
        low_ms: its own work beyond the slowest other host's, in the median step, is above this (95 %);
            negative where another is slower
        high_ms: and below this
        last_fraction [last in]: in which part of the collectives it was the last to come
        offset_ms [clock]: what to add to its clock to have the first host's; no figure but this depends on
            clocks
        offset_low_ms: the least that it may be
        offset_high_ms: the most that it may be
        """),
    owner="f",
)
FLEET_STEPS = Table[FleetSteps](
    "steps",
    "One row per step and host, in the order of the first host's steps, between the first and the last "
    "collective of all hosts.",
    (
        *columns_in("""
            step_num: the step's number on the first host
            host: the host
            is_steady: whether averages count it: whole, no warm-up on any host, no pause
            step_ms: the step on this host
            own_ms: own work
            wait_ms: waiting for others
            exchange_ms: exchange
            """),
        *(_step_rows(name) for name in OWN_CATEGORIES),
    ),
    remark="Own work, waiting and exchange add up to the step exactly, the categories to the own work.",
    owner="f",
    values={
        "step_num": lambda f: f.spread(f.merged.step_num),
        "host": lambda f: f.names(f.merged.step_num.size),
        "is_steady": lambda f: f.spread(f.merged.is_steady),
        **_each_hosts("merged.", "step", "own", "wait", "exchange"),
    },
)


def _key_texts(fleet: FleetSteps) -> list[str]:
    keys = []
    for name, instance, step, occurrence in fleet.merged.joints.keys[1:]:
        numbers = ("instance", instance), ("step", step), ("occurrence", occurrence or -1)
        keys.append(", ".join([name, *(f"{what} {at}" for what, at in numbers if at >= 0)]))
    return [key for key in keys for _ in fleet.hosts]


FLEET_COLLECTIVES = Table[FleetSteps](
    "collectives",
    "One row per collective and host, in time order. Overlapping collectives on a host are one. The first "
    "collective begins the measurement and has no row.",
    columns_in("""
        key: the collective, by what it is called on every host
        host: the host
        step_num: the step that it is of
        enter_ms: when the host entered it, since its own trace began
        leave_ms: when it left, likewise
        own_ms: own work since the one before
        wait_ms: waiting in it
        exchange_ms: exchange in it
        """),
    owner="f",
    values={
        "key": _key_texts,
        "host": lambda f: f.names(len(f.merged.joints.keys) - 1),
        "step_num": lambda f: f.spread(f.merged.step_num[f.merged.step_of]),
        "enter_ms": lambda f: f.merged.joints.enter_ps[:, 1:].T.ravel(),
        "leave_ms": lambda f: f.merged.joints.leave_ps[:, 1:].T.ravel(),
        **_each_hosts("merged.piece_", "own", "wait", "exchange"),
    },
)


_MOST_HOSTS, _MOST_STEPS_DRAWN = 64, 200
_LEVELS = "·▁▂▃▄▅▆▇█"
_LEAST_SHARE_SHOWN = 0.005
_LATE = "Who was late in which step"


def _section(times: HostTimes, *columns: str | Shown, **rest: Any) -> Section:
    """A section with a row per host: of all, or of those of the longest own work."""
    longest = np.argsort(-times.own_ps, kind="stable")[:_MOST_HOSTS]
    return section_of(FLEET_HOSTS, times, columns, rows=sorted(longest.tolist()), **rest)


def _host_section(times: HostTimes, _: Merged) -> Section:
    bar = Bar.of(times.own_ps, colour_of(f"{times.noun} compute"))
    sentence = (
        "Own work, waiting and communication add up to a mean step. Bars are own work. Delay caused is the "
        "work beyond that of the next slowest."
    )
    if len(times.host) > _MOST_HOSTS:
        count = counted_text(len(times.host), times.noun)
        sentence += (
            f" Listed are the {_MOST_HOSTS} with the longest own work; fleet.hosts has all {count}."
        )
    columns = ("step_ms", "own_ms", "wait_ms", "exchange_ms", "caused_ms", "last_fraction")
    title = f"{times.noun.capitalize()}s"
    return _section(times, _name_of(times), *columns, title=title, sentence=sentence, bar=bar)


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
    title = "Own work by category"
    return _section(times, _name_of(times), *columns, title=title, sentence=sentence, bar=bar)


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
        sentence=f"Each mark is a step: the taller, the longer the {times.noun} worked than the fastest. "
        f"A full block is {duration_text(most)}.{several}",
        headings=("steps", times.noun),
        rows=rows,
        numbers=(False, False),
        colours=["currentColor"] * len(rows),  # the least marks are as thin as a letter
        plain=f"{_LATE} (a full block is {duration_text(most)})\n{listed}",
    )


def _clock_section(times: HostTimes, _: Merged) -> Section:
    def bounds(row: int) -> str:
        low, high = float(times.offset_low_ps[row]), float(times.offset_high_ps[row])
        return f"{duration_text(abs(high - low))} wide"

    sentence = (
        "Offset of each host's clock from the first host's, from the order of leaving collectives. No "
        "other figure here depends on clocks."
    )
    columns = ("host", "offset_ms", Shown("interval", bounds, is_number=True))
    bar = Bar(lambda _: 0.0, colour_of("all others"), 1)
    return _section(times, *columns, title="Clocks", sentence=sentence, bar=bar, is_detail=True)


def fleet_report(
    title: str, verdict: Verdict, times: HostTimes | None, merged: Merged | None, notes: list[str]
) -> Report:
    """Make the report of a fleet, of whose hosts there are no times where they did not meet."""
    sections: list[Section] = []
    reasons = [verdict.why] if verdict.why else []
    if times is not None and merged is not None:
        makers = (_host_section, _own_section, _late_section, _clock_section)
        sections = [make(times, merged) for make in makers[: 4 if times.noun == "host" else 3]]
        gain = verdict.gain_fraction
        if gain:
            left_ps = float(times.step_ps.mean()) * (1 - gain)
            reasons.append(
                f"At the speed of the slowest other worker, a step would take {duration_text(left_ps)}, "
                f"{percent_text(gain)} less."
            )
    muted = Markup('<div style="{}">{}</div>')
    return Report(
        title=title,
        headline=verdict.sentence.rstrip("."),
        answer=" ".join(reasons),
        picture=Markup("").join(muted.format(MUTED, reason) for reason in reasons),
        notes=notes,
        sections=sections,
        advice=verdict.advice or None,
        sharing=Sharing(names_hosts=True),
    )
