"""The trace model: columns, not objects; and what events have besides name and time, by key.

A ``Trace`` is what one host recorded in one capture: planes (a host or a device), each with lines (a
thread or a stream), each with events (one named timespan). Events are a struct of arrays, stored
line after line and in time order inside a line; text is a ``StringTable`` that is decoded only where
someone looks. All times are int64 picoseconds since the trace began (epoch picoseconds overflow
64 bits). Readers in this room build a trace; nobody changes one afterwards.

Intervals are half-open everywhere: an event covers ``[begin_ps, begin_ps + duration_ps)``.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from profnb.core.columns import Bools, Bytes, Floats, Int32s, Int64s, RowColumns, gather, group
from profnb.core.sharing import Sharing
from profnb.trace.names import is_device_plane, is_host_plane

EXACT = 1 << 53  # larger integers lose digits in a reader that has only floats
_FEW_NAMES = 4  # comparing a column with so many numbers is faster than looking all of it up
Value = TypeVar("Value", bound=np.generic)
StatValue = int | float | str | bytes


def json_text(value: object) -> str:
    """Write JSON without spaces, which may come to stand in a page."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


@dataclass(frozen=True)
class StringTable:
    """N strings as spans of one byte buffer, decoded on first use.

    Attributes:
        buffer: The bytes, uint8.
        begins: Where each string begins, shape (N,).
        ends: Where each string ends, shape (N,).
    """

    buffer: Bytes
    begins: Int64s
    ends: Int64s
    _decoded: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.begins.size

    def __getitem__(self, row: int) -> str:
        """The text of one row; bytes that are not UTF-8 become U+FFFD, never an error."""
        row = int(row)
        text = self._decoded.get(row)
        if text is None:
            raw = self.buffer[self.begins[row] : self.ends[row]].tobytes()
            text = self._decoded[row] = raw.decode("utf-8", "replace")
        return text

    @cached_property
    def texts(self) -> list[str]:
        """Every string, in row order."""
        return [self[row] for row in range(len(self))]

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """The rows of each text."""
        return group((text, row) for row, text in enumerate(self.texts))

    def rows_where(self, condition: Callable[[str], bool]) -> Bools:
        """Flag the rows whose text meets a condition; shape (N,)."""
        return np.fromiter((condition(text) for text in self.texts), np.bool_, len(self))

    @classmethod
    def of(cls, texts: Iterable[str]) -> "StringTable":
        """Make a table of the given texts, for readers of formats that arrive decoded."""
        raw = [text.encode("utf-8", "surrogatepass") for text in texts]
        offsets = np.cumsum([0, *map(len, raw)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(raw), np.uint8), offsets[:-1], offsets[1:])


@dataclass(frozen=True)
class Events(RowColumns):
    """E events, line after line, by begin and then longest first inside a line.

    Attributes:
        name: Row of ``Trace.names``, shape (E,), int32.
        begin_ps: Begin since the trace began, shape (E,), int64.
        duration_ps: Duration, never negative, shape (E,), int64.
    """

    name: Int32s
    begin_ps: Int64s
    duration_ps: Int64s

    @cached_property
    def end_ps(self) -> Int64s:
        """The end of each event (exclusive), shape (E,), int64."""
        return self.begin_ps + self.duration_ps


@dataclass(frozen=True)
class Lines(RowColumns):
    """L lines of the whole trace, plane after plane.

    Attributes:
        plane: Index into ``Trace.planes``, shape (L,).
        name: Row of ``names``, shape (L,).
        names: The lines' own names.
        offsets: Line l owns events ``offsets[l]:offsets[l + 1]``, shape (L + 1,).
        ids: The identifier the recorder gave, shape (L,); a thread id on a host.
        is_copy: Lines that repeat events of other lines, shape (L,); None where none does.
    """

    plane: Int64s
    names: StringTable
    offsets: Int64s
    ids: Int64s
    is_copy: Bools | None = None

    @cached_property
    def of_event(self) -> Int32s:
        """The line of each event, shape (E,), int32."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))

    def spread(self, flags: Bools) -> Bools:
        """Give each event the flag of its line, shape (E,)."""
        return np.repeat(flags, np.diff(self.offsets))

    def events_of(self, flags: Bools) -> Int64s:
        """The events of the lines that are flagged, ascending."""
        lines = np.flatnonzero(flags)
        parts = [np.arange(self.offsets[line], self.offsets[line + 1]) for line in lines.tolist()]
        return np.concatenate([np.empty(0, np.int64), *parts])


@dataclass(frozen=True, slots=True)
class Plane:
    """One source of events.

    Attributes:
        name: As recorded, for instance ``/host:CPU`` or ``/device:GPU:0``.
        lines: The half-open range of its lines in ``Trace.lines``.
        stats: The plane's own stats, for instance a device's clock rate and memory.
        side: "host", "device" or "other" where the format says so; "" decides by the name.
    """

    name: str
    lines: range
    stats: dict[str, int | float | str | bytes]
    side: str = ""

    @property
    def is_host(self) -> bool:
        """Tell whether this is the plane of the host's threads."""
        return self.side == "host" if self.side else is_host_plane(self.name)

    @property
    def is_device(self) -> bool:
        """Tell whether this is a GPU or TPU core."""
        return self.side == "device" if self.side else is_device_plane(self.name)


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity that was sampled while the trace ran.

    Attributes:
        name: What was counted.
        series: Which of the counter's values this is, for instance an allocator; may be "".
        unit: "bytes", or "" where the file does not say.
        time_ps: When, shape (N,), ascending.
        value: The samples, shape (N,), float64.
    """

    name: str
    series: str
    unit: str
    time_ps: Int64s
    value: Floats


@dataclass(frozen=True, slots=True)
class StatColumn(RowColumns):
    """One stat of the events that carry it.

    Attributes:
        events: Indices of the N events that have the stat, ascending, shape (N,).
        values: Their values, shape (N,): int64, float64, or rows of ``texts``.
        texts: The distinct texts, for a text stat; empty for a number.
    """

    events: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    values: npt.NDArray[np.generic] = field(default_factory=lambda: np.empty(0, np.int64))
    texts: tuple[str, ...] = ()

    def of(self, events: Int64s, missing: float = -1) -> npt.NDArray[Any]:
        """Look up the value at each of some events, the last of several, or ``missing``."""
        if not len(self):
            return np.full(events.size, missing, self.values.dtype)
        at = np.maximum(np.searchsorted(self.events, events, side="right") - 1, 0)
        return np.where(self.events[at] == events, self.values[at], missing)


def values_at(columns: Mapping[str, StatColumn], event: int) -> dict[str, StatValue]:
    """Give what one event has of some columns of integers and texts, the first of several."""
    stats: dict[str, StatValue] = {}
    for name, column in columns.items():
        at = int(np.searchsorted(column.events, event))
        if at < len(column) and column.events[at] == event:
            value = int(column.values[at])
            stats[name] = column.texts[value] if column.texts else value
    return stats


class Stats:
    """The stats of a trace's events; a source without stats has none of any name.

    A format has its own kind, which reads them at the first question, or has them at hand as columns.

    Args:
        columns: Of integers and of texts, by name.
    """

    columns: Mapping[str, StatColumn] = MappingProxyType({})

    def __init__(self, columns: Mapping[str, StatColumn] = columns) -> None:
        """Keep what is at hand."""
        self.columns = columns

    def integers(self, name: str) -> StatColumn:
        """Give the events with an integer stat of this name, and its values as int64."""
        column = self.columns.get(name, StatColumn())
        return StatColumn() if column.texts else column

    def numbers(self, name: str) -> StatColumn:
        """Give the events with a stat of this name that is any number, and its values as float64."""
        integers = self.integers(name)
        return StatColumn(integers.events, integers.values.astype(np.float64))

    def texts(self, name: str) -> StatColumn:
        """Give the events with a text stat of this name, and its values as rows of ``texts``."""
        column = self.columns.get(name, StatColumn())
        return column if column.texts else StatColumn()

    def lists(self, name: str) -> StatColumn:  # noqa: ARG002
        """Give the events with a list of this name, as rows of ``texts`` in JSON."""
        return StatColumn()

    def blobs(self, name: str) -> list[tuple[int, Bytes]]:  # noqa: ARG002
        """Give the events with a stat of this name that holds bytes, and the bytes, not copied."""
        return []

    def of_event(self, event: int) -> dict[str, StatValue]:
        """Give every stat of one event."""
        return values_at(self.columns, event)

    def as_json(self, first: int, last: int) -> list[str]:
        """Write the stats of events ``first`` to ``last`` as JSON objects, "" for an event without any.

        They are a Chrome trace's ``args``.
        """
        texts = []
        for event in range(first, last):
            stats = {
                name: str(value) if isinstance(value, int) and abs(value) > EXACT else value
                for name, value in self.of_event(event).items()
                if isinstance(value, int | str) or (isinstance(value, float) and isfinite(value))
            }
            texts.append(json_text(stats) if stats else "")
        return texts


@dataclass(frozen=True)
class Trace:
    """Everything recorded in one capture of one host.

    Attributes:
        source: Where it was read from, for messages.
        planes: The planes, in file order.
        lines: The lines of all planes.
        events: The events of all lines.
        names: The names that ``events.name`` points to; one text may stand in several rows.
        stats: Stats of events, decoded on demand.
        name_stats: Stats that hold for every event of a name, by row of ``names``.
        hostnames: The hosts named in the file; may be empty.
        messages: Warnings and errors the profiler itself wrote into the file.
        recorded: The bytes it was read from, where it can be saved again as it was.
        counters: What was sampled besides the events.
        is_op_name: Rows of ``names`` that are ops whatever they look like, shape (N,), where the
            format says which events are ops; None where the names tell.
        left_out: What the file held and the trace does not, in sentences.
        epoch_ns: When the trace began, in nanoseconds since 1970; 0 where it is not known.
        rank: The number of its process in a job; -1 where the file does not say.
        ranks: How many processes that job has; 0 where the file does not say.
        process_groups: How many different sets of that job's processes exchange among themselves, as far as
            the file says; 0 for not at all.
        has_files: Whether names of the user's files may leave with results of it.
    """

    source: str
    planes: tuple[Plane, ...]
    lines: Lines
    events: Events
    names: StringTable
    stats: Stats
    name_stats: Stats = field(default_factory=Stats)
    hostnames: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    recorded: Bytes | None = None
    counters: tuple[Counter, ...] = ()
    is_op_name: Bools | None = None
    left_out: tuple[str, ...] = ()
    epoch_ns: int = 0
    rank: int = -1
    ranks: int = 0
    process_groups: int = 0
    has_files: bool = True

    @cached_property
    def sharing(self) -> Sharing:
        """The rule of what may leave of it; a trace of several hosts is about them, and names them."""
        return Sharing(self.hostnames, self.has_files, names_hosts=len(self.hostnames) > 1)

    @cached_property
    def is_host_line(self) -> Bools:
        """Flag the lines that belong to the host plane, shape (L,)."""
        return np.array([plane.is_host for plane in self.planes], np.bool_)[self.lines.plane]

    @cached_property
    def is_host_event(self) -> Bools:
        """Flag the events that belong to the host plane, shape (E,)."""
        return self.lines.spread(self.is_host_line)

    @cached_property
    def is_device_line(self) -> Bools:
        """Flag the lines that belong to a device plane, shape (L,)."""
        return np.array([plane.is_device for plane in self.planes], np.bool_)[self.lines.plane]

    def select_named(self, *names: str) -> Bools:
        """Flag the events that have one of some names, shape (E,)."""
        return self._select([row for name in names for row in self.names.rows.get(name, ())])

    def select_names(self, condition: Callable[[str], bool]) -> Bools:
        """Flag the events whose name meets a condition, shape (E,)."""
        wanted = self.names.rows_where(condition)
        rows = np.flatnonzero(wanted)
        return self.by_name(wanted) if rows.size > _FEW_NAMES else self._select(rows.tolist())

    def _select(self, rows: list[int]) -> Bools:
        selected = np.zeros(len(self.events), np.bool_)
        for row in rows:
            selected |= self.events.name == row
        return selected

    def by_name(self, values: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """Give each event the value of its name, shape (E,)."""
        return gather(values, self.events.name) if len(self.names) else values[:0]

    def are_named(self, events: Int64s, condition: Callable[[str], bool]) -> Bools:
        """Tell whether the name of each of some events meets a condition, shape of ``events``."""
        return gather(self.names.rows_where(condition), self.events.name[events])
