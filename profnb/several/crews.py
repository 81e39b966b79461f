"""Who ran the rounds of a sweep, and what that means for its figures, in sentences."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from profnb.core.printable import printable
from profnb.core.units import count_text

if TYPE_CHECKING:
    from profnb.several.sweep_rounds import RoundResult

_MOST_NAMED = 4
_CPU = "processor"
_COMPARED = ("CPU cores", "Python", "TensorFlow", "JAX", "PyTorch", "Keras", "tf_keras")


class Crew:
    """The workers of a sweep.

    Attributes:
        lost: Why rounds were lost, in sentences.
    """

    def __init__(self) -> None:
        """Nobody ran anything yet."""
        self.lost: list[str] = []
        self._rounds: dict[int, RoundResult] = {}
        self._facts: dict[str, dict[str, str]] = {}  # by host

    def add(self, done: "RoundResult", environment: Mapping[str, str]) -> None:
        """Know who ran a round.

        Args:
            done: The round.
            environment: What one of its runs ran with.
        """
        if done.number:  # the first ones are traced, and no times of theirs are compared
            self._rounds[done.number] = done
        facts = {name: environment[name] for name in _COMPARED if name in environment}
        facts |= {_CPU: done.worker.cpu} if done.worker.cpu else {}
        self._facts.setdefault(done.worker.host, {}).update(facts)

    @property
    def notes(self) -> list[str]:
        """What to know before trusting the figures."""
        return [*self.lost, *self._who(), *self._differing(), *self._crowded()]

    def _who(self) -> list[str]:
        if len(self._facts) < 2:
            return []
        counts = Counter(one.worker.host for one in self._rounds.values())
        machines_text = ", ".join(
            f"{printable(host)} {count_text(count)}"
            for host, count in counts.most_common(_MOST_NAMED)
        )
        left = len(counts) - _MOST_NAMED
        return [
            f"Rounds were run by {count_text(len(counts))} machines ({machines_text}"
            + (f" and {left} more" if left > 0 else "")
            + "). Settings are compared within rounds, so what machines differ in does not count; the "
            "time of a setting is the mean over rounds."
        ] if counts else []  # fmt: skip

    def _differing(self) -> list[str]:
        """What workers differ in, by which of them has what."""
        differing = []
        for name in (_CPU, *_COMPARED):
            hosts: dict[str, list[str]] = {}
            for host, facts in self._facts.items():
                if name in facts:
                    hosts.setdefault(facts[name], []).append(printable(host))
            if len(hosts) > 1:
                values_text = "; ".join(
                    f"{printable(value)} on {', '.join(of[:_MOST_NAMED])}"
                    for value, of in hosts.items()
                )
                differing.append(f"{name} ({values_text})")
        return [f"The workers differ: {', '.join(differing)}."] if differing else []

    def _crowded(self) -> list[str]:
        """Machines on which rounds overlapped."""
        crowded = []
        for host in dict.fromkeys(one.worker.host for one in self._rounds.values()):
            host_rounds = [one for one in self._rounds.values() if one.worker.host == host]
            host_rounds.sort(key=lambda one: one.begin_s)
            if any(b.begin_s < a.end_s for a, b in pairwise(host_rounds)):
                crowded.append(printable(host))
        if not crowded:
            return []
        return [
            f"Several workers made runs on {', '.join(crowded[:_MOST_NAMED])} at a time, which may slow one "
            "another: one worker a machine gives cleaner times."
        ]
