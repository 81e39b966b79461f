"""A trace file to a ``Trace``, whatever format it has, and back to a file, as it may leave."""

import os
import re
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.safe_files import claim_folder, open_regular, read_whole, whole_file
from profnb.core.sharing import Sharing
from profnb.trace.formats import GZIP, HEAD, SQLITE, Opened, read_opened
from profnb.trace.model import Trace
from profnb.trace.pprof import SampledStacks
from profnb.trace.pstats_file import CallCounts
from profnb.trace.runs import XPLANE_SUFFIX
from profnb.trace.wire import FIXED32, FIXED64, LENGTH, VARINT, read_plain_varint

_BYTES_AT_ONCE, _FIRST_BYTES = 1 << 22, 1 << 12
MOST_BYTES = 2 << 30  # of a trace, inflated or not: no protobuf has more
_SURE_BYTES = 1 << 28  # more than that is counted before it is kept


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read one trace file, as ``read_file`` does.

    Raises:
        FileNotFoundError: There is no such file.
        TraceFormatError: It is not a trace we can read, or it changed while it was read.
    """
    read = read_file(path)
    if not isinstance(read, Trace):
        raise TraceFormatError(
            f"{printable(Path(path).name)} is a profile of functions and has no trace. Open it with "
            "`profnb.load`."
        )
    return read


def read_file(
    path: str | os.PathLike[str], beside: Sequence[Path] = ()
) -> Trace | CallCounts | SampledStacks:
    """Read one file, of any format we know; the content tells which, not the name.

    The file is copied into memory and not mapped: what another program does to it afterwards is nothing to
    the trace, and one that is written while it is read is an error and no end of the process (SIGBUS).

    Args:
        path: The file.
        beside: Further files of the same run, where it is an event file.

    Returns:
        A trace; of a profile of functions, what it counted or sampled.

    Raises:
        FileNotFoundError: There is no such file.
        TraceFormatError: It is nothing that we can read, or it changed while it was read.
    """
    file = Path(path).expanduser()
    source = printable(file.name)
    with open_regular(file) as opened:
        head = opened.read(HEAD)
    if head.startswith(SQLITE):  # which is read by the page, whatever its size
        return read_opened(Opened(file, np.frombuffer(head, np.uint8), source))
    recorded = read_whole(file, MOST_BYTES)
    is_packed, damage = recorded[:2].tobytes() == GZIP, ""
    if is_packed:
        recorded, damage = _decompress(recorded, source)
        if recorded[:2].tobytes() == GZIP:  # a file may hold itself, without end
            raise TraceFormatError(
                f"{source}: gzip inside gzip. Decompress once and open the result."
            )
    others = tuple(read_whole(other, MOST_BYTES) for other in beside)
    try:
        read = read_opened(Opened(file, recorded, source, is_packed, others))
    except TraceFormatError:
        if damage:
            raise TraceFormatError(damage) from None
        raise
    if damage and isinstance(read, Trace):
        read = replace(read, left_out=(*read.left_out, damage))
    return read


def _decompress(packed: Bytes, source: str) -> tuple[Bytes, str]:
    """Inflate gzip to a bound: what a file claims of its size is not believed, and much is counted first."""
    inflated, is_counted, damage = bytearray(), False, list[str]()
    for piece in _inflate(packed, source, damage):
        inflated += piece
        if len(inflated) > _SURE_BYTES and not is_counted:
            is_counted = True
            sizes = accumulate(map(len, _inflate(packed, source, [])))
            if any(size > MOST_BYTES for size in sizes):
                raise TraceFormatError(
                    f"{source}: more than {MOST_BYTES / 1e9:.1f} GB when decompressed, from "
                    f"{packed.size / 1e6:,.1f} MB. Decompress and cut the file, or record fewer steps."
                )
    whole = np.frombuffer(inflated, np.uint8)
    whole.flags.writeable = False
    return whole, "".join(damage)


def _inflate(packed: Bytes, source: str, damage: list[str]) -> Iterator[bytes]:
    """Inflate gzip by pieces, none of them large, up to where it is damaged, which is said."""
    done, at, size = 0, 0, _FIRST_BYTES
    inflate = zlib.decompressobj(wbits=31)
    try:
        while at < packed.size:
            left = packed[at : at + size].tobytes()
            at += len(left)
            while left and not inflate.eof:
                piece, inflate, read = _inflate_some(inflate, left)
                # Behind the end of a member, zlib gives the rest as unused_data, and may as this, too.
                tail = b"" if inflate.eof else inflate.unconsumed_tail
                left = tail + left[read:]
                done += len(piece)
                yield piece
            at -= len(left)
            at -= len(inflate.unused_data)
            size = min(2 * size, _BYTES_AT_ONCE)
            if inflate.eof:
                if packed[at : at + 2].tobytes() != GZIP:
                    break
                # Another member; pieces begin small, or many tiny members would take quadratic time.
                inflate, size = zlib.decompressobj(wbits=31), _FIRST_BYTES
    except zlib.error as error:
        damage.append(
            f"{source}: damaged gzip after {done:,} bytes ({error}). Download or record it again."
        )
        return
    if not inflate.eof:
        damage.append(
            f"{source}: the gzip is cut short after {done:,} bytes. Download or record it again."
        )


def _inflate_some(inflate: Any, packed: bytes) -> tuple[bytes, Any, int]:
    """Inflate as much as can be: (what came out, the state behind it, how much of the input was taken)."""
    size = len(packed)
    while True:
        before = inflate.copy()
        try:
            return inflate.decompress(packed[:size], _BYTES_AT_ONCE), inflate, size
        except zlib.error:  # what comes before the damage is read by ever smaller parts
            if size == 1:
                raise
            inflate, size = before, size // 2


def write_trace(trace: Trace, logdir: str | os.PathLike[str]) -> Path:
    """Write a trace into a logdir in TensorBoard's layout, as it was read but for what must not leave.

    Raises:
        TraceFormatError: The trace did not come from an XPlane file.
        OSError: It cannot be written.
    """
    if trace.recorded is None:
        raise TraceFormatError(
            f"{trace.source} is no XPlane file and cannot be written again. Copy the original file. With "
            "logdir= (in a notebook -d) a capture keeps its files."
        )
    recorded = trace.recorded

    def write(target: Path) -> None:
        with whole_file(target) as partial:
            partial.write_bytes(masked(recorded, trace.sharing))

    return write_into_run(trace, logdir, XPLANE_SUFFIX, write)


def write_into_run(
    trace: Trace, logdir: str | os.PathLike[str], suffix: str, write: Callable[[Path], object]
) -> Path:
    """Write what was recorded of a trace into a new run of a logdir, in TensorBoard's layout.

    The file is named for the trace's host as far as that may leave; ``write`` writes it, whole or not at all.
    """
    runs = Path(logdir).expanduser() / "plugins" / "profile"
    folder = claim_folder(runs, time.strftime("%Y_%m_%d_%H_%M_%S"))
    host = trace.sharing.text(trace.hostnames[0]) if trace.hostnames else "host"
    target = folder / (re.sub(r"[^\w.-]", "_", host) + suffix)
    try:
        write(target)
    except BaseException:
        folder.rmdir()
        raise
    return target


_MOST_NESTED, _MOST_FIELDS = 40, 1 << 16
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_PATHS = rb"[/\\][^\x00-\x1f/\\\\]+[/\\\\]"
_FILES = rb"\.[A-Za-z]\w|-of-|://"


def masked(recorded: Bytes, sharing: Sharing) -> bytes:
    """Mask what no file that leaves may hold: texts of a protobuf, each in as many bytes.

    So nothing in it moves, and who reads it finds what he found. Which bytes are a text is not known of a
    message inside of another (an HLO module, a graph): a field is taken for a message where it reads as one
    to its end.

    Returns:
        As many bytes; the same ones where they hold nothing of that kind, or are no protobuf.
    """
    raw = bytearray(recorded.tobytes())
    looked_for = [_PATHS, *map(re.escape, sharing.names)] + ([] if sharing.has_files else [_FILES])
    places = [match.start() for match in re.finditer(b"|".join(looked_for), raw)]
    _mask_message(raw, 0, len(raw), places, sharing, 0)
    return bytes(raw)


def _mask_message(
    raw: bytearray, begin: int, end: int, places: list[int], sharing: Sharing, depth: int
) -> None:
    """Mask the texts around some places, ascending, in the fields of a message."""
    for first, last in list(_fields_with_length(raw, begin, end)):
        inside = places[bisect_left(places, first) : bisect_left(places, last)]
        if not inside:
            continue
        try:
            if depth == _MOST_NESTED:
                raise ValueError("too deep")  # noqa: TRY301 - taken for a text as well
            _mask_message(raw, first, last, inside, sharing, depth + 1)
        except ValueError:
            if not _CONTROL.search(raw, first, last):
                text = raw[first:last].decode("latin-1")  # a character for each byte
                raw[first:last] = sharing.masked(text).encode("latin-1")


def _fields_with_length(raw: bytearray, at: int, end: int) -> Iterator[tuple[int, int]]:
    while at < end:
        key, at = read_plain_varint(raw, at, end)
        kind = key & 7
        if not 0 < key >> 3 < _MOST_FIELDS or kind not in (VARINT, FIXED64, LENGTH, FIXED32):
            raise ValueError("no field of a message")
        if kind == VARINT:
            _, at = read_plain_varint(raw, at, end)
        elif kind == LENGTH:
            size, at = read_plain_varint(raw, at, end)
            yield at, min(at + size, end)
            at += size
        else:
            at += 8 if kind == FIXED64 else 4
    if at > end:
        raise ValueError("a field goes beyond its message")
