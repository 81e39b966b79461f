"""The tables of a fleet: its hosts, its steps on each host, its collectives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profnb.core.table import Column, Table, field_column
from profnb.fleet.digest import OWN_CATEGORIES
from profnb.fleet.merging import Merged
from profnb.fleet.verdict import HostTimes
from profnb.steps.breakdown import category_column


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


def _step_rows(name: str) -> "Column[FleetSteps]":
    at = OWN_CATEGORIES.index(name)
    return Column(
        category_column(name),
        lambda f: f.merged.categories_ps[:, :, at].T.ravel(),
        f"{name} of the own work",
    )


FLEET_HOSTS = Table[HostTimes](
    "hosts",
    "One row per host, in the order of ranks or names. Means are over the steady steps common to all.",
    (
        field_column("host", "what it is called in the run", "host"),
        field_column("rank", "its number in the job; -1 where nothing tells"),
        field_column("steps", "steady steps that all hosts have"),
        field_column("step_ms", "a step: own work, waiting and exchange", "step"),
        field_column("own_ms", "own work: outside of collectives", "own work"),
        field_column("wait_ms", "waiting in collectives for others", "waits"),
        field_column(
            "exchange_ms",
            "the rest of the time in collectives: transfer, and what cannot be told from it",
            "exchange",
        ),
        field_column(
            "caused_ms",
            "what a step would be shorter, were it alone as fast as the slowest of the others: its own work "
            "beyond theirs, where it is last, and no more than what they compute while they wait leaves",
            "holds up",
        ),
        field_column(
            "low_ms",
            "its own work beyond the slowest other host's, in the median step, is above this (95 %); "
            "negative where another is slower",
        ),
        field_column("high_ms", "and below this"),
        field_column(
            "last_fraction", "in which part of the collectives it was the last to come", "last in"
        ),
        field_column(
            "offset_ms",
            "what to add to its clock to have the first host's; no figure but this depends on clocks",
            "clock",
        ),
        field_column("offset_low_ms", "the least that it may be"),
        field_column("offset_high_ms", "the most that it may be"),
    ),
    owner="f",
)
FLEET_STEPS = Table[FleetSteps](
    "steps",
    "One row per step and host, in the order of the first host's steps, between the first and the last "
    "collective of all hosts.",
    (
        Column(
            "step_num", lambda f: f.spread(f.merged.step_num), "the step's number on the first host"
        ),
        Column("host", lambda f: f.names(f.merged.step_num.size), "the host"),
        Column(
            "is_steady",
            lambda f: f.spread(f.merged.is_steady),
            "whether averages count it: whole, no warm-up on any host, no pause",
        ),
        Column("step_ms", lambda f: f.merged.step_ps.T.ravel(), "the step on this host"),
        Column("own_ms", lambda f: f.merged.own_ps.T.ravel(), "own work"),
        Column("wait_ms", lambda f: f.merged.wait_ps.T.ravel(), "waiting for others"),
        Column("exchange_ms", lambda f: f.merged.exchange_ps.T.ravel(), "exchange"),
        *(_step_rows(name) for name in OWN_CATEGORIES),
    ),
    remark="Own work, waiting and exchange add up to the step exactly, the categories to the own work.",
    owner="f",
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
    (
        Column("key", _key_texts, "the collective, by what it is called on every host"),
        Column("host", lambda f: f.names(len(f.merged.joints.keys) - 1), "the host"),
        Column(
            "step_num",
            lambda f: f.spread(f.merged.step_num[f.merged.step_of]),
            "the step that it is of",
        ),
        Column(
            "enter_ms",
            lambda f: f.merged.joints.enter_ps[:, 1:].T.ravel(),
            "when the host entered it, since its own trace began",
        ),
        Column(
            "leave_ms",
            lambda f: f.merged.joints.leave_ps[:, 1:].T.ravel(),
            "when it left, likewise",
        ),
        Column(
            "own_ms", lambda f: f.merged.piece_own_ps.T.ravel(), "own work since the one before"
        ),
        Column("wait_ms", lambda f: f.merged.piece_wait_ps.T.ravel(), "waiting in it"),
        Column("exchange_ms", lambda f: f.merged.piece_exchange_ps.T.ravel(), "exchange in it"),
    ),
    owner="f",
)
