"""TensorBoard's event file to the session runs in it, which ``FileWriter.add_run_metadata`` wrote.

It is a sequence of records: eight bytes of length, four of its checksum, an ``Event`` message, four more. A
file that is still written ends in the middle of a record; what is whole before it is read.

Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto (TensorFlow 2.21).
"""

import struct
from collections.abc import Iterator
from itertools import chain

import numpy as np

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.trace.wire import Messages

_HEADER, _FOOTER = 12, 4
_TAGGED_RUN, _RUN = 8, 2  # Event.tagged_run_metadata, TaggedRunMetadata.run_metadata


def is_event_file(head: bytes) -> bool:
    """Tell whether bytes begin with the record that each event file begins with."""
    return b"brain.Event:" in head[:64]


def find_runs(buffer: Bytes) -> list[Bytes]:
    """Find the RunMetadata of each run, in file order.

    Args:
        buffer: The whole file.

    Raises:
        TraceFormatError: There is none, or a record is damaged.
    """
    places = chain.from_iterable(_records(buffer))  # one number at a time: there may be very many
    spans = np.fromiter(places, np.int64).reshape(-1, 2).T.copy()
    events = Messages.whole(buffer, "event file").within(spans, "Event")
    messages = events.inner(_TAGGED_RUN, "TaggedRunMetadata").inner(_RUN, "RunMetadata")
    spans_of_runs = zip(messages.begins.tolist(), messages.ends.tolist(), strict=True)
    runs = [buffer[begin:end] for begin, end in spans_of_runs if begin < end]
    if not runs:
        raise TraceFormatError(
            "An event file of TensorBoard without RunMetadata: it has scalars or graphs, and no times of "
            "ops. Open the trace below plugins/profile."
        )
    return runs


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
