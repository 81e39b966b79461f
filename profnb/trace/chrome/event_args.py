"""The ``args`` of Chrome trace events as stats, read when someone asks for them.

They stay in the file as text until the first question; then all of them are indexed once into CSR form
(event e owns entries ``offsets[e]:offsets[e + 1]``): which key, and where the value is. A value is parsed
only if it is asked for. The profiler's own JSON writes every number as a string, so a decimal string counts
as an integer too; a list or an object stays JSON text.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.trace.chrome.json_scan import distinct_spans, find_members, read_integers
from profnb.trace.model import StatColumn, Stats, StatValue, values_at
from profnb.trace.names import CORRELATION_ID

# What others call a stat that has a name of its own here.
_OTHER_NAMES = {CORRELATION_ID: ("correlation",)}
_LONGEST_TEXT = 100_000


def parse_value(raw: bytes) -> Any:
    r"""Parse JSON that may be of anybody; None for what is none, or is nested too deeply.

    What is no UTF-8, and halves of characters that an escape names alone (``"\ud800"``), which no file can
    hold, become U+FFFD.
    """
    try:
        return _writable(json.loads(raw.decode("utf-8", "replace"), strict=False))
    except (ValueError, RecursionError):
        return None


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, dict):
        return {_writable(name): _writable(one) for name, one in value.items()}
    return value


def text_of(raw: bytes) -> str:
    """Give the text of a JSON value: of a string what it says, of anything else itself."""
    text = parse_value(raw) if raw[:1] == b'"' else None
    if isinstance(text, str):
        return text
    return (raw[1:-1] if raw[:1] == b'"' else raw).decode("utf-8", "replace")


class ChromeStats(Stats):
    """The args of a trace's events.

    Args:
        buffer: The whole file.
        begins: Where each event's args begin, shape (E,), in the order of the trace's events.
        ends: Where they end; begin == end for an event without args.
        derived: Stats worked out from something else than the args, by name.
    """

    def __init__(
        self, buffer: Bytes, begins: Int64s, ends: Int64s, derived: Mapping[str, StatColumn]
    ) -> None:
        """Remember where the args are; nothing is read yet."""
        self._buffer, self._begins, self._ends = buffer, begins, ends
        self._derived = derived

    @cached_property
    def _index(self) -> tuple[Int64s, Int64s, dict[str, int], Int64s]:
        """(offsets, spans of values, key to its code, code of each entry)."""
        offsets, spans = find_members(self._buffer, self._begins, self._ends)
        code, first = distinct_spans(self._buffer, spans[:, 0].copy(), spans[:, 1].copy())
        keys: dict[str, int] = {}
        for row, at in enumerate(first.tolist()):
            text = text_of(b'"' + self._buffer[spans[at, 0] : spans[at, 1]].tobytes() + b'"')
            keys.setdefault(text, row)
        return offsets, spans[:, 2:].copy(), keys, code

    def _select(self, name: str) -> tuple[Int64s, Int64s, Int64s]:
        """(events, value begins, value ends) of the first entry of this name in each event."""
        offsets, spans, keys, code = self._index
        there = [key for key in (name, *_OTHER_NAMES.get(name, ())) if key in keys]
        entries = np.flatnonzero(code == (keys[there[0]] if there else -1))
        events = np.searchsorted(offsets, entries, side="right") - 1
        is_first = np.diff(events, prepend=-1) > 0
        return (events[is_first], *spans[entries[is_first]].T.copy())

    def integers(self, name: str) -> StatColumn:
        """Give the events with an integer of this name, bare or in quotes."""
        if name in self._derived:
            return self._derived[name]
        events, begins, ends = self._select(name)
        value, valid = np.zeros(events.size, np.int64), np.zeros(events.size, np.bool_)
        read_integers(self._buffer, begins, ends, value, valid)
        return StatColumn(events[valid], value[valid])

    def texts(self, name: str) -> StatColumn:
        """Give the events with a text of this name, as rows of the distinct texts."""
        if name in self._derived:
            return self._derived[name]
        return self._distinct(name, b'"')

    def lists(self, name: str) -> StatColumn:
        """Give the events with a list of this name, as rows of the distinct ones, as the file writes them."""
        return self._distinct(name, b"[")

    def _distinct(self, name: str, first_byte: bytes) -> StatColumn:
        """Find the distinct values of this name that begin so."""
        events, begins, ends = self._select(name)
        chosen = self._buffer[begins] == first_byte[0]
        begins, ends = begins[chosen], ends[chosen]
        code, first = distinct_spans(self._buffer, begins, ends)
        raw = [self._buffer[begins[at] : ends[at]].tobytes() for at in first.tolist()]
        return StatColumn(events[chosen], code, tuple(map(text_of, raw)))

    def of_event(self, event: int) -> dict[str, StatValue]:
        """Give every stat of one event."""
        stats: dict[str, StatValue] = {}
        raw = self._buffer[self._begins[event] : self._ends[event]].tobytes()
        members = parse_value(raw[:_LONGEST_TEXT])
        for key, value in members.items() if isinstance(members, dict) else ():
            plain = isinstance(value, int | float | str) and not isinstance(value, bool)
            stats[key] = value if plain else json.dumps(value)
        return stats | values_at(self._derived, event)
