"""TensorBoard's event files: the session runs in them (``FileWriter.add_run_metadata``), and the scalars.

A file is a sequence of records: eight bytes of length, four of its checksum, an ``Event`` message, four more.
One that is still written ends in the middle of a record; what is whole before it is read. All event files of
a folder are one run.

Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto, framework/summary.proto and
tensor.proto (TensorFlow 2.21).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s, RowColumns
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.safe_files import read_whole
from profnb.core.table import Table, field_column
from profnb.trace.wire import Messages

_HEADER, _FOOTER = 12, 4
_TAGGED_RUN, _METADATA_OF_RUN = 8, 2  # Event.tagged_run_metadata, TaggedRunMetadata.run_metadata
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_TAG, _SIMPLE, _TENSOR = 1, 2, 8  # Summary.Value
_DTYPE, _SHAPE, _CONTENT, _FLOATS, _DOUBLES = 1, 2, 4, 5, 6  # TensorProto
_CONTENTS = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
SCALARS_ALONE = (
    "The event files hold scalars (`p.scalars`) and no times of ops. Those are in the traces below "
    "plugins/profile."
)
_LONGEST_TAG, _LATEST_S, _MOST_FILE_BYTES = 500, 1e11, 512 << 20


_Part = tuple[list[str], Int64s, Floats, Floats]  # tags, steps, times, values


@dataclass(frozen=True, slots=True)
class Scalars(RowColumns):
    """N scalars, tag after tag, in the order of their steps.

    Attributes:
        run: The folder that each was written to.
        tag: What each is of.
        step: The step that the program gave it, shape (N,).
        time_s: When it was written, in seconds since 1970, shape (N,).
        value: Its value, shape (N,).
    """

    run: tuple[str, ...]
    tag: tuple[str, ...]
    step: Int64s
    time_s: Floats
    value: Floats

    @property
    def steps_per_second(self) -> Floats:
        """Steps since the scalar before of its tag, over the time between; NaN for the first."""
        keys = [np.unique(one, return_inverse=True)[1] for one in (self.run, self.tag)]
        speed = np.full(len(self), np.nan)
        took, steps = np.diff(self.time_s), np.diff(self.step.astype(np.float64))
        is_next = (np.diff(keys) == 0).all(axis=0) & (took > 0) & (steps > 0)
        speed[1:][is_next] = steps[is_next] / took[is_next]
        return speed


def is_event_file(head: bytes) -> bool:
    """Tell whether bytes begin with the record that each event file begins with."""
    return b"brain.Event:" in head[:64]


def find_runs(buffers: Iterable[Bytes]) -> list[Bytes]:
    """Find the RunMetadata of each run, in file order.

    Args:
        buffers: Whole files.

    Raises:
        TraceFormatError: A record is damaged.
    """
    runs: list[Bytes] = []
    for buffer in buffers:
        tagged = _events(buffer).inner(_TAGGED_RUN, "TaggedRunMetadata")
        messages = tagged.inner(_METADATA_OF_RUN, "RunMetadata")
        spans_of_runs = zip(messages.begins.tolist(), messages.ends.tolist(), strict=True)
        runs += [buffer[begin:end] for begin, end in spans_of_runs if begin < end]
    return runs


def find_scalars(buffers: Sequence[Bytes], run: str = "") -> Scalars:
    """Find the scalars, of both kinds: a plain number, or a tensor without dimensions.

    Args:
        buffers: Whole files of one run.
        run: What the run is called.

    Raises:
        TraceFormatError: A record is damaged.
    """
    return _joined([_scalars_of(buffer) for buffer in buffers], run)


def _joined(parts: Sequence[_Part], run: str) -> Scalars:
    tags = [tag for part in parts for tag in part[0]]
    step, time_s, value = (np.concatenate([np.empty(0, kind), *(part[at] for part in parts)])
                           for at, kind in ((1, np.int64), (2, np.float64), (3, np.float64)))  # fmt: skip
    order = np.lexsort((time_s, step, np.unique(tags, return_inverse=True)[1]))
    in_order = tuple(tags[row] for row in order)
    return Scalars((run,) * len(tags), in_order, step[order], time_s[order], value[order])


def read_scalars(files: Sequence[Path]) -> Scalars:
    """Read the scalars of event files; each folder is a run. A damaged or too large file is left out."""
    runs = [find_scalars([])]
    parts: dict[Path, list[_Part]] = {file.parent: [] for file in files}
    for file in files:
        with suppress(TraceFormatError, OSError):
            parts[file.parent].append(_scalars_of(read_whole(file, _MOST_FILE_BYTES)))
    runs += [_joined(of_folder, printable(folder.name)) for folder, of_folder in parts.items()]
    return Scalars(
        tuple(run for one in runs for run in one.run),
        tuple(tag for one in runs for tag in one.tag),
        np.concatenate([one.step for one in runs]),
        np.concatenate([one.time_s for one in runs]),
        np.concatenate([one.value for one in runs]),
    )


def _scalars_of(buffer: Bytes) -> _Part:
    events = _events(buffer)
    values = events.inner(_SUMMARY, "Summary").split(1, "Summary.Value")
    number, is_scalar = np.zeros(len(values)), np.zeros(len(values), np.bool_)
    plain_rows, plain = values.fixed(_SIMPLE, "<f4")
    number[plain_rows], is_scalar[plain_rows] = plain, True
    tensors = values.inner(_TENSOR, "TensorProto")
    (dtype,) = tensors.numbers(_DTYPE)
    shape = tensors.inner(_SHAPE, "TensorShape")
    for field, kinds in ((_CONTENT, _CONTENTS), (_FLOATS, {1: "<f4"}), (_DOUBLES, {2: "<f8"})):
        held = tensors.inner(field, "a tensor's values")
        for kind, form in kinds.items():
            size = np.dtype(form).itemsize
            is_one = (
                (held.ends - held.begins == size) & (dtype == kind) & (shape.begins == shape.ends)
            )
            rows = np.flatnonzero(is_one)
            raw = buffer[held.begins[rows][:, None] + np.arange(size)]
            number[rows], is_scalar[rows] = np.ascontiguousarray(raw).view(form).reshape(-1), True
    rows = np.flatnonzero(is_scalar)
    event, (step,) = values.parents[rows], events.numbers(_STEP)
    tags = [printable(tag[:_LONGEST_TAG]) for tag in values.inner(_TAG, "tag").texts()]
    timed, seconds = events.fixed(_WALL_TIME, "<f8")
    time_s = np.full(len(events), np.nan)
    time_s[timed] = np.where(np.abs(seconds) < _LATEST_S, seconds, np.nan)
    return [tags[row] for row in rows], step[event], time_s[event], number[rows]


def _events(buffer: Bytes) -> Messages:
    places = chain.from_iterable(_records(buffer))  # one number at a time: there may be very many
    spans = np.fromiter(places, np.int64).reshape(-1, 2).T.copy()
    return Messages.whole(buffer, "event file").within(spans, "Event")


def _records(buffer: Bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + _HEADER <= buffer.size:
        (size,) = struct.unpack_from("<Q", buffer, at)
        begin = at + _HEADER
        at = begin + size + _FOOTER
        if at > buffer.size:
            return
        if size:
            yield begin, begin + size


SCALARS = Table[Scalars](
    "scalars",
    "One row per scalar in the event files of the folder or logdir: loss, speed, whatever was written.",
    (
        field_column("run", "the folder that it was written to"),
        field_column("tag", "what it is of"),
        field_column("step", "the step that the program gave it"),
        field_column("time_s", "when it was written, in seconds since 1970"),
        field_column("value", "its value"),
        field_column(
            "steps_per_second",
            "steps since the row before of this tag, over the time between; NaN for the first",
        ),
    ),
    "By run, tag and step. No row without event files.",
)
