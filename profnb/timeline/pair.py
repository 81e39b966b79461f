"""Two traces to two timelines on one axis of time, aligned where a step of each begins.

Each is an element of its own and works alone where the script does not join them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from profnb.core.printable import printable
from profnb.drawing.theme import ROOT
from profnb.subjects.study import Study
from profnb.timeline.element import Timeline, build_timeline


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
        """The element.

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
    """Decide the timelines of two traces; together they take the room of one.

    Args:
        first: The one.
        second: The other.
        labels: What to call them.
    """
    one, two = (
        _named(build_timeline(study, beside=2), study.trace.sharing.text(label))
        for study, label in zip((first, second), labels, strict=True)
    )
    shared = [
        study.trace.sharing.text(label)
        for study, label in zip((first, second), labels, strict=True)
    ]
    return TimelinePair((shared[0], shared[1]), (one, two))


def _named(side: Timeline, label: str) -> Timeline:
    name = printable(label)
    return replace(side, headline=f"{name}: {side.headline}", text=f"{name}: {side.text}")
