"""The formats of files, told by their first bytes: what each looks like, what reads it, what else to do.

One row is one format. The first whose bytes fit is taken, so what says clearly what it is comes first, and
XSpace, whose bytes say least, last. A format without a reader is named for its sentence alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.units import counted_text
from profnb.tf1.event_file import SCALARS_ALONE, find_runs, find_scalars, find_steps, is_tfprof
from profnb.tf1.run_metadata import looks_like_run_metadata, read_run_metadata
from profnb.trace.amd.rocprof import is_rocprof, read_rocprof
from profnb.trace.assemble import assemble_trace
from profnb.trace.chrome.reader import read_chrome
from profnb.trace.memory.torch_memory import MEMORY_TIMELINE, read_timeline, read_torch_snapshot
from profnb.trace.model import StringTable, Trace
from profnb.trace.nvidia import nsys, nvprof
from profnb.trace.nvidia.database import open_database
from profnb.trace.nvidia.printed import is_printed, read_printed
from profnb.trace.pprof import SampledStacks, is_pprof, read_pprof
from profnb.trace.pstats_file import MOST_PSTATS_BYTES, CallCounts, read_pstats
from profnb.trace.xplane import read_xplane

HEAD = 1 << 12
GZIP, SQLITE = b"\x1f\x8b", b"SQLite format 3\0"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = re.compile(rb"(\xff\xfe|[\[{]\x00)|(?:\xfe\xff|\x00[\[{])")  # little end first, or last
_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95|[\]})(cX\x8c])")
_MARSHAL = re.compile(rb"[{\xfb](?:[()\xa8\xa9]|0$)")
# A message that begins with a named one: a node of a graph, or an op that the tfprof of 2017 logged.
_GRAPH = re.compile(rb"\n[\x80-\xff]{0,4}[\0-\x7f]\n[\x80-\xff]?[\x01-\x7f][A-Za-z0-9.]")
# a table's first entry is its header, without a key
_CHECKPOINT = re.compile(rb"\0\0[\x01-\x7f][\x08\n]")
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
# Words of eight or four bytes, 0 and 3, before the version; or a heading.
_GPERFTOOLS = (
    b"\0" * 8 + b"\3" + b"\0" * 7, b"\0" * 4 + b"\3\0\0\0",
    b"heap profile:", b"--- heapz", b"--- contentionz",
)  # fmt: skip
_EVENT = b"brain.Event:"  # in the record that each event file begins with
_PICTURE = b"<title>GPU Memory Timeline HTML</title>"
_REPORT = (".nsys-rep", ".qdrep", ".qdstrm")
_OPENS = (
    "profnb opens XPlane (`*.xplane.pb`), Chrome JSON, `RunMetadata`, Nsight Systems' SQLite export and "
    "nvprof's `.nvvp` or CSV."
)
_Read = Trace | CallCounts | SampledStacks
_EXPORT = "`nsys export --type sqlite {name}`"


@dataclass(frozen=True, slots=True)
class Opened:
    """A file as it was read.

    Attributes:
        file: Where it is.
        data: All of its bytes, unpacked if they were packed.
        source: Its name, for messages.
        is_unpacked: Whether they were packed.
        beside: The bytes of further files of the same run.
    """

    file: Path
    data: Bytes
    source: str
    is_unpacked: bool = False
    beside: tuple[Bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file.

    Attributes:
        name: What it is, after "This is".
        fits: Whether a file's first bytes look like it.
        read: What reads it, and raises TraceFormatError where it is damaged or tells of nothing; None where
            nothing here does.
        remedy: What to do where nothing does, with ``{name}`` for the file's.
    """

    name: str
    fits: Callable[[bytes], bool]
    read: Callable[[Opened], _Read] | None = None
    remedy: str = ""


def _begins(*beginnings: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(beginnings)


def _matches(pattern: re.Pattern[bytes]) -> Callable[[bytes], bool]:
    return lambda head: pattern.match(head) is not None


def _of_bytes(read: Callable[[Bytes, str], _Read]) -> Callable[[Opened], _Read]:
    return lambda opened: read(opened.data, opened.source)


def _is_json(head: bytes) -> bool:
    return head.removeprefix(_BOM).lstrip()[:1] in (b"[", b"{") and not _MARSHAL.match(head)


def _is_text(head: bytes) -> bool:
    """Tell whether bytes are text; a protobuf may begin with a line's end or a quotation mark, too."""
    text = head[:512]
    return len(text) > 1 and not _NO_TEXT.search(text) and not _UTF_16.match(text)


def _read_database(opened: Opened) -> Trace:
    if opened.is_unpacked:
        raise TraceFormatError("A packed SQLite database. Unpack the file first.")
    try:
        with open_database(opened.file) as database:
            if database.has(nsys.STRINGS) and not database.has(nvprof.STRINGS):
                return nsys.read_nsys(database, opened.source)
            if database.has(*nvprof.TABLES):
                return nvprof.read_nvprof(database, opened.source)
            tables = ", ".join(sorted(database.tables)[:5]) or "none"
    except (ValueError, LookupError) as error:  # what a cell holds is anything
        raise TraceFormatError(
            f"A table is damaged ({printable(str(error))[:100]}). Export again."
        ) from None
    raise TraceFormatError(
        f"A SQLite database of neither Nsight Systems nor nvprof (tables: {tables[:200]}). {_OPENS}"
    )


def _read_event_files(opened: Opened) -> Trace:
    files = [opened.data, *opened.beside]
    tagged, (scalars, damaged) = find_runs(files), find_scalars(files)
    damaged = max(damaged, tagged.damaged)
    sentence = f"{counted_text(damaged, 'damaged record')} of the event files could not be read."
    missing = (sentence,) if damaged else ()
    if tagged.runs:
        trace = read_run_metadata(tagged.runs, opened.source, tagged.numbers)
        return replace(trace, left_out=(*trace.left_out, *missing))
    if not len(scalars):
        raise TraceFormatError(
            "An event file of TensorBoard without RunMetadata or scalars"
            f"{f' ({damaged:,} records are damaged)' if damaged else ''}. Open the trace below "
            "plugins/profile."
        )
    none, notes = np.empty(0, np.int64), (SCALARS_ALONE, *missing)
    return assemble_trace(
        opened.source, [], none, none, none, none, StringTable.of(()), left_out=notes
    )


def _read_tfprof(opened: Opened) -> Trace:
    runs, numbers = find_steps(opened.data)
    return read_run_metadata(runs, opened.source, numbers)


def _read_utf_16(opened: Opened) -> Trace:
    match = _UTF_16.match(opened.data[:2].tobytes())
    little = match is not None and match[1] is not None
    text = opened.data.tobytes().decode("utf-16-le" if little else "utf-16-be", "replace").encode()
    return read_chrome(np.frombuffer(text, np.uint8), opened.source)


FORMATS = (
    Format("an SQLite database", _begins(SQLITE), _read_database),
    Format("a zip archive", _begins(b"PK\x03\x04"), remedy="Unpack the archive and open the trace inside."),
    Format("an xz archive", _begins(b"\xfd7zXZ\0"), remedy="Unpack with `xz -d` and open the result."),
    Format(
        "a zstd archive", _begins(b"\x28\xb5\x2f\xfd"),
        remedy="Unpack with `zstd -d` and open the result.",
    ),
    Format("a bzip2 archive", _begins(b"BZh"), remedy="Unpack with `bzip2 -d` and open the result."),
    Format(
        "a report of Nsight Compute", _begins(b"NVR\0"),
        remedy="It holds counters of kernels and no timeline. Record with `nsys profile`.",
    ),
    Format("a Python pickle", _matches(_PICKLE), _of_bytes(read_torch_snapshot)),
    Format("an event file of TensorBoard", lambda head: _EVENT in head[:64], _read_event_files),
    Format(
        "a profile of Python's cProfile", _matches(_MARSHAL),
        lambda opened: read_pstats(opened.data[: MOST_PSTATS_BYTES + 1].tobytes()),
    ),
    Format("JSON in UTF-16", _matches(_UTF_16), _read_utf_16),
    Format(
        "JSON of AMD's rocprofv3", lambda head: _is_json(head) and is_rocprof(head),
        _of_bytes(read_rocprof),
    ),
    Format("a memory timeline of PyTorch", _matches(MEMORY_TIMELINE), _of_bytes(read_timeline)),
    Format(
        "a picture of PyTorch's memory timeline", lambda head: _PICTURE in head,
        remedy="Export a `.raw.json.gz` instead, and open that file.",
    ),
    Format("JSON", _is_json, _of_bytes(read_chrome)),
    Format("a table that nvprof or nsys printed", is_printed, _of_bytes(read_printed)),
    Format(
        "an older profile of pprof or gperftools", _begins(*_GPERFTOOLS),
        remedy="Run `pprof -proto -output profile.pb.gz PROGRAM {name}` and open the result.",
    ),
    Format("a text", _is_text, remedy=_OPENS),
    Format("a profile of pprof", is_pprof, _of_bytes(read_pprof)),
    Format("a profile of tfprof", is_tfprof, _read_tfprof),
    Format(
        "RunMetadata", lambda head: looks_like_run_metadata(np.frombuffer(head, np.uint8)),
        lambda opened: read_run_metadata([opened.data], opened.source),
    ),
    Format(
        "a graph of TensorFlow or an op log of tfprof", _matches(_GRAPH),
        remedy="A graph has no times. Open the RunMetadata, profile or event file of a run.",
    ),
    Format(
        "a checkpoint of TensorFlow", _matches(_CHECKPOINT),
        remedy="It has values and no times. Open what was recorded while the program ran.",
    ),
    # Fields 1 to 4 are all that an XSpace has; an empty file is said to be so by its reader.
    Format("an XPlane trace", lambda head: not head or head[0] >> 3 in (1, 2, 3, 4), _of_bytes(read_xplane)),
)  # fmt: skip
_UNKNOWN_FORMAT = Format("", lambda _: True, remedy=_OPENS)


def read_opened(opened: Opened) -> _Read:
    """Read a file of any format that has a reader.

    Raises:
        TraceFormatError: It has none, or is damaged; the sentence names what it looks like and what opens.
    """
    head = opened.data[:HEAD].tobytes()
    format_ = next((one for one in FORMATS if one.fits(head)), _UNKNOWN_FORMAT)
    if opened.file.name.endswith(_REPORT):
        export = _EXPORT.format(name=opened.source)
        raise TraceFormatError(
            f"{opened.source} is a report of Nsight Systems, which only nsys reads. Run {export} and open "
            "what it writes."
        )
    if format_.read is not None:
        try:
            return format_.read(opened)
        except TraceFormatError as error:
            raise TraceFormatError(f"{opened.source}: {error}") from None
    what = f"is {format_.name}"
    if not format_.name:
        what = f"begins with {head[:8]!r}, which no format here does"
    raise TraceFormatError(f"{opened.source} {what}. {format_.remedy.format(name=opened.source)}")
