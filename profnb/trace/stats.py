"""What a trace knows of its events besides name and time: typed values by key, one column for each key.

A format has its own kind of ``Stats``, which reads them at the first question.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Bytes, Int64s

_EXACT = 1 << 53  # larger integers lose digits in a reader that has only floats


def _json_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").encode()


@dataclass(frozen=True, slots=True)
class StatColumn:
    """One stat of the events that carry it.

    Attributes:
        events: Indices of the N events that have the stat, ascending, shape (N,).
        values: Their values, shape (N,): int64, float64, or rows of ``texts``.
        texts: The distinct texts, for a text stat; empty for a number.
    """

    events: Int64s
    values: npt.NDArray[np.generic]
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.events.size

    def of(self, events: Int64s, missing: float = -1) -> npt.NDArray[Any]:
        """The value at each of some events, the last of several, or ``missing``."""
        if not len(self):
            return np.full(events.size, missing, self.values.dtype)
        at = np.maximum(np.searchsorted(self.events, events, side="right") - 1, 0)
        return np.where(self.events[at] == events, self.values[at], missing)


class Stats:
    """The stats of a trace's events; a source without stats has none of any name."""

    def integers(self, name: str) -> StatColumn:
        """The events with an integer stat of this name, and its values as int64."""
        del name
        return StatColumn(np.empty(0, np.int64), np.empty(0, np.int64))

    def numbers(self, name: str) -> StatColumn:
        """The events with a stat of this name that is any number, and its values as float64."""
        integers = self.integers(name)
        return StatColumn(integers.events, integers.values.astype(np.float64))

    def texts(self, name: str) -> StatColumn:
        """The events with a text stat of this name, and its values as rows of ``texts``."""
        del name
        return StatColumn(np.empty(0, np.int64), np.empty(0, np.int64))

    def lists(self, name: str) -> StatColumn:
        """The events with a list of this name, as rows of ``texts`` in JSON."""
        del name
        return StatColumn(np.empty(0, np.int64), np.empty(0, np.int64))

    def blobs(self, name: str) -> list[tuple[int, Bytes]]:
        """The events with a stat of this name that holds bytes, and the bytes, not copied."""
        del name
        return []

    def of_event(self, event: int) -> dict[str, int | float | str | bytes]:
        """Every stat of one event."""
        del event
        return {}

    def as_json(self, first: int, last: int) -> tuple[Bytes, Int64s]:
        """The stats of events ``first`` to ``last`` as JSON objects, for a Chrome trace's ``args``.

        Returns:
            A buffer and N + 1 offsets; nothing for an event without stats.
        """
        texts = []
        for event in range(first, last):
            stats = {
                name: str(value) if isinstance(value, int) and abs(value) > _EXACT else value
                for name, value in self.of_event(event).items()
                if not isinstance(value, bytes)
                and np.isfinite(value if isinstance(value, float) else 0)
            }
            texts.append(_json_bytes(stats) if stats else b"")
        offsets = np.zeros(last - first + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        return np.frombuffer(b"".join(texts), np.uint8), offsets
