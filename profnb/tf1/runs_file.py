"""Session runs to one file and back: their ``RunMetadata`` one after the other.

Each is kept down to its ``step_stats``, which is all that is read here. Other readers of protobufs merge them
into one run.

Source of the field numbers: tensorflow/core/protobuf/config.proto (TensorFlow 2.21).
"""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.core.safe_files import whole_file
from profnb.trace.wire import Messages

RunBytes = tuple[Messages, int]  # a run's StepStats, and the size of what it stands in
RUNS_SUFFIX = ".run_metadata.pb.gz"
_LEVEL = 1  # of gzip: protobufs of runs are alike
_RUN_STEP_STATS = 1
_FIELD_1 = b"\x0a"  # the tag of a length-delimited field 1
_MOST_RUNS = 10_000  # of 50 kB each they are as much as a capture keeps


def join_run_metadata(buffers: Sequence[Bytes]) -> Iterator[bytes]:
    """Several runs as pieces of one file that ``read_run_metadata`` reads as it reads the runs.

    Args:
        buffers: R serialized RunMetadata, in the order of the runs.

    Raises:
        TraceFormatError: One is damaged, or there are more than are read again.
    """
    _check_count(len(buffers))
    for buffer in buffers:
        stats = _stats_of(buffer)
        for begin, end in zip(stats.begins.tolist(), stats.ends.tolist(), strict=True):
            yield _FIELD_1 + _varint(end - begin) + buffer[begin:end].tobytes()


def write_runs(buffers: Sequence[Bytes], target: Path) -> None:
    """Write several runs to one file, whole or not at all.

    Args:
        buffers: As for ``join_run_metadata``.
        target: The file, whose name ends with ``RUNS_SUFFIX``.

    Raises:
        TraceFormatError: As for ``join_run_metadata``.
        OSError: It cannot be written.
    """
    with whole_file(target) as partial, gzip.open(partial, "wb", _LEVEL) as packed:
        packed.writelines(join_run_metadata(buffers))


def _check_count(runs: int) -> None:
    if runs > _MOST_RUNS:
        raise TraceFormatError(
            f"{runs:,} session runs in one file; at most {_MOST_RUNS:,} are read (-n bounds them)."
        )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _stats_of(buffer: Bytes) -> Messages:
    return Messages.whole(buffer, "RunMetadata").split(_RUN_STEP_STATS, "StepStats")


def runs_of(buffer: Bytes) -> list[RunBytes]:
    """What each run in a buffer recorded; of one without any, nothing, which is still a run.

    Args:
        buffer: One or several serialized RunMetadata.

    Raises:
        TraceFormatError: The bytes are none.
    """
    try:
        stats = _stats_of(buffer)
    except TraceFormatError:
        raise no_run_metadata(buffer.size) from None
    _check_count(len(stats))
    if len(stats) < 2:
        return [(stats, buffer.size)]
    return [(stats.rows(slice(at, at + 1)), buffer.size) for at in range(len(stats))]


def no_run_metadata(size: int) -> TraceFormatError:
    """What to raise of so many bytes that are something else."""
    return TraceFormatError(
        f"{size:,} bytes that are no RunMetadata, or a damaged one. Expected is what "
        "run_metadata.SerializeToString() gives, written and copied in binary mode."
    )
