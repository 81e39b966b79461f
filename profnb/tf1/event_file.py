"""Files that hold session runs: TensorBoard's event files, with scalars too, and what tfprof saved.

An event file (``FileWriter.add_run_metadata``) is a sequence of records: eight bytes of length, four of its
checksum, an ``Event`` message, four more. One that is still written ends in the middle of a record; what is
whole before it is read, and what stands around a damaged one. All event files of a folder are one run.

tfprof saves a ``ProfileProto`` (``profile_100`` of a ``ProfileContext``). It holds, node by node, when each
execution began and how long it took, by step and device, and what it allocated. From that the RunMetadata of
each step is written again, so that all that is known of those holds here too. What
tfprof dropped is missing: which allocator it was, inputs, and shapes.

Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto, framework/summary.proto and
tensor.proto, tensorflow/core/profiler/tfprof_log.proto and internal/tfprof_node.cc (TensorFlow 2.21).
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from profnb.core.columns import Bytes, Floats, Int64s, RowColumns
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.safe_files import read_whole
from profnb.core.table import Table, columns_in
from profnb.trace.wire import LENGTH, VARINT, Messages, read_plain_varint, write_message

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
_STEP_NUMBER = re.compile(r"(\d{1,15})\D{0,100}$")
_MOST_TRIES = 2_000  # to find which records are damaged
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Scalars(RowColumns):
    """N scalars, tag after tag, in the order of their steps.

    The columns are those of ``SCALARS``, each of shape (N,).
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


class TaggedRuns(NamedTuple):
    """The session runs of event files, in file order.

    Attributes:
        runs: The RunMetadata of each.
        numbers: The step that the program gave each, as number or at the end of its tag; none where it gave
            none.
        damaged: How many records could not be read.
    """

    runs: list[Bytes]
    numbers: list[int]
    damaged: int


def find_runs(buffers: Iterable[Bytes]) -> TaggedRuns:
    """Find the RunMetadata of each run."""
    parts, damaged = _read_all(buffers, _runs_of)
    tagged = [run for part in parts for run in part]
    numbers = [step for _, step, _ in tagged]
    if not any(numbers):
        ends = [_STEP_NUMBER.search(tag) for _, _, tag in tagged]
        numbers = [int(end[1]) for end in ends if end]
    return TaggedRuns(
        [run for run, _, _ in tagged], numbers if len(numbers) == len(tagged) else [], damaged
    )


def _runs_of(events: Messages) -> list[tuple[Bytes, int, str]]:
    (steps,) = events.numbers(_STEP)
    tagged = events.inner(_TAGGED_RUN, "TaggedRunMetadata")
    runs, tags = tagged.inner(_METADATA_OF_RUN, "RunMetadata"), tagged.inner(_TAG, "tag")
    rows = np.flatnonzero(runs.begins < runs.ends)
    places = zip(runs.begins[rows], runs.ends[rows], strict=True)
    whole = [events.buffer[begin:end] for begin, end in places]
    names = (tag[-_LONGEST_TAG:] for tag in tags.rows(rows).texts())
    return list(zip(whole, steps[rows].tolist(), names, strict=True))


def find_scalars(buffers: Iterable[Bytes], run: str = "") -> tuple[Scalars, int]:
    """Find the scalars, of both kinds: a plain number, or a tensor without dimensions.

    Returns:
        The scalars, and how many records could not be read.
    """
    parts, damaged = _read_all(buffers, _scalars_of)
    whole = _together(parts)
    of_tag = np.unique(whole.tag, return_inverse=True)[1]
    order = np.lexsort((whole.time_s, whole.step, of_tag))
    tags = tuple(whole.tag[row] for row in order)
    step, time_s, value = whole.step[order], whole.time_s[order], whole.value[order]
    return Scalars((run,) * len(tags), tags, step, time_s, value), damaged


def _together(parts: Iterable[Scalars]) -> Scalars:
    none = np.empty(0)
    listed = [Scalars((), (), none.astype(np.int64), none, none), *parts]
    runs, tags, *numbers = zip(*map(attrgetter(*Scalars.__slots__), listed), strict=True)
    return Scalars(tuple(chain(*runs)), tuple(chain(*tags)), *map(np.concatenate, numbers))


def read_scalars(files: Sequence[Path]) -> Scalars:
    """Read the scalars of event files; each folder is a run. A too large file is left out."""
    buffers: dict[Path, list[Bytes]] = {file.parent: [] for file in files}
    for file in files:
        with suppress(TraceFormatError, OSError):
            buffers[file.parent].append(read_whole(file, _MOST_FILE_BYTES))
    runs = (find_scalars(held, printable(folder.name))[0] for folder, held in buffers.items())
    return _together(runs)


def _scalars_of(events: Messages) -> Scalars:
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
            is_one = (held.ends - held.begins == size) & (shape.begins == shape.ends)
            rows = np.flatnonzero(is_one & (dtype == kind))
            raw = events.buffer[held.begins[rows][:, None] + np.arange(size)]
            number[rows], is_scalar[rows] = np.ascontiguousarray(raw).view(form).reshape(-1), True
    rows = np.flatnonzero(is_scalar)
    event, (step,) = values.parents[rows], events.numbers(_STEP)
    texts = values.inner(_TAG, "tag").texts()
    tags = tuple(printable(texts[row][:_LONGEST_TAG]) for row in rows)
    timed, seconds = events.fixed(_WALL_TIME, "<f8")
    time_s = np.full(len(events), np.nan)
    time_s[timed] = np.where(np.abs(seconds) < _LATEST_S, seconds, np.nan)
    return Scalars(("",) * len(tags), tags, step[event], time_s[event], number[rows])


def _read_all(buffers: Iterable[Bytes], read: Callable[[Messages], Read]) -> tuple[list[Read], int]:
    """Read the events of files, in halves of halves where one is damaged, and count those."""
    parts, damaged = list[Read](), 0
    for buffer in buffers:
        places = chain.from_iterable(_records(buffer))  # one by one: there may be very many
        waiting = [np.fromiter(places, np.int64).reshape(-1, 2).T.copy()]
        whole, tries = Messages.whole(buffer, "event file"), 0
        while waiting:
            spans = waiting.pop()
            try:
                parts.append(read(whole.within(spans, "Event")))
            except TraceFormatError:
                tries += 1
                half = spans.shape[1] // 2
                if half and tries < _MOST_TRIES:
                    waiting += [spans[:, half:], spans[:, :half]]
                else:
                    damaged += spans.shape[1]
    return parts, damaged


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
    columns_in("""
        run: the folder that it was written to
        tag: what it is of
        step: the step that the program gave it
        time_s: when it was written, in seconds since 1970
        value: its value
        steps_per_second: steps since the row before of this tag, over the time between; NaN for the first
        """),
    "By run, tag and step. No row without event files.",
)


_NODES = 1
_NODE_NAME, _OP, _EXECS = 1, 9, 12
_ACCELERATOR, _CPU, _MEMORY = 4, 5, 7
_MOST_BYTES, _LONGEST_NODE_NAME = 256 << 20, 1_000
_NODE_FIELDS = range(1, 17)
_ALLOCATOR = b"(allocator)"


def is_tfprof(head: bytes) -> bool:
    """Tell whether bytes begin with a numbered node; a plane of XPlane has text where that has a message."""
    at = 0
    try:
        for wanted in (0x0A, 0x08, 0x12, 0x0A):  # nodes, key, value, ProfileNode.name
            if head[at : at + 1] != bytes([wanted]):
                return False
            size, at = read_plain_varint(head, at + 1, len(head))
        following = head[at + size : at + size + 1]
    except ValueError:  # no number of a message
        return False
    tag = following[0] if following else 0
    return tag >> 3 in _NODE_FIELDS and tag & 7 in (VARINT, LENGTH)


def find_steps(buffer: Bytes) -> tuple[list[Bytes], list[int]]:
    """Give the RunMetadata of each step, and its number, in order."""
    profile = Messages.whole(buffer, "profile of tfprof")
    nodes = profile.split(_NODES, "node").inner(2, "ProfileNode")
    names, ops = (_names(nodes.inner(field, "name")) for field in (_NODE_NAME, _OP))
    entries = nodes.split(_EXECS, "step of a node")
    execs = entries.inner(2, "ExecProfile")
    owners, step_of = entries.parents.tolist(), entries.numbers(1)[0].tolist()
    memory = _memory_of(execs)
    steps: dict[int, dict[bytes, list[bytes]]] = {}
    size = 0
    for at, device, begin, duration, is_device in _executions(execs):
        name, op = names[owners[at]], ops[owners[at]]
        held = b"" if is_device or not memory[at] else memory[at].pop()
        title, label = (name + b":" + op,) * 2 if is_device else (name, name + b" = " + op + b"()")
        node = write_message((1, title), (2, begin), (4, duration), (5, duration), (8, label))
        steps.setdefault(step_of[at], {}).setdefault(device, []).append(node + held)
        size += len(node) + len(held)
        if size > _MOST_BYTES:
            raise TraceFormatError(
                f"A profile of tfprof with more than {_MOST_BYTES / 1e6:,.0f} MB of executions. Profile "
                "fewer steps."
            )
    if not steps:
        raise TraceFormatError(
            "A profile of tfprof without an execution of an op: it holds a graph alone. Give trace_steps to "
            "`ProfileContext`, or a RunMetadata to `add_step`."
        )
    return [_run_of(steps[number]) for number in sorted(steps)], sorted(steps)


def _names(texts: Messages) -> list[bytes]:
    return [raw[:_LONGEST_NODE_NAME] for raw in texts.raw()]


def _executions(execs: Messages) -> Iterator[tuple[int, bytes, int, int, bool]]:
    """Give each execution: row, device, begin and duration in us, and whether a device recorded it."""
    for field in (_CPU, _ACCELERATOR):
        entries = execs.split(field, "times of a device")
        devices = _names(entries.inner(1, "device"))
        times = entries.inner(2, "ExecTime").split(1, "execution")
        offsets, numbers = times.split_numbers(1)
        row, of_device = entries.parents, times.parents
        for at in np.flatnonzero(np.diff(offsets) == 2).tolist():
            begin, duration = numbers[offsets[at] : offsets[at] + 2].tolist()
            if begin > 0 and duration >= 0:
                one = int(of_device[at])
                yield int(row[one]), devices[one], begin, duration, field == _ACCELERATOR


def _memory_of(execs: Messages) -> list[list[bytes]]:
    """Write what each execution allocated, the last one first, by row.

    Requested, peak and residual bytes hold the persistent ones, which stand apart in RunMetadata.
    """
    memory = execs.split(_MEMORY, "ExecMemory")
    # Fields 2 to 10 in the order of their numbers; unsigned, as a number below 0 is written.
    columns = np.array(memory.numbers(*range(2, 11))).view(np.uint64)
    host_temp, host_kept, device_temp, device_kept, *sizes, output, in_use = columns
    temp, kept = host_temp + device_temp, host_kept + device_kept
    total, peak, live = (size - kept for size in sizes)
    written: list[list[bytes]] = [[] for _ in range(len(execs))]
    parents = reversed(memory.parents.tolist())
    rows = np.stack([total, peak, live, in_use, output, temp, kept])[:, ::-1].T.tolist()
    for at, (*used, of_output, scratch, persistent) in zip(parents, rows, strict=True):
        allocator = write_message((1, _ALLOCATOR), *zip((2, 3, 4, 5), used, strict=True))
        tensor = write_message((4, write_message((1, of_output))))
        stats = write_message((1, scratch), (3, persistent))
        output = write_message((3, tensor))
        written[at].append(write_message((6, allocator), (7, output), (12, stats)))
    return written


def _run_of(devices: dict[bytes, list[bytes]]) -> Bytes:
    stats = [
        (1, write_message((1, name), *((2, node) for node in nodes)))
        for name, nodes in devices.items()
    ]
    return np.frombuffer(write_message((1, write_message(*stats))), np.uint8)
