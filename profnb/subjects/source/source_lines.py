"""The table of source lines: what each line of the user's own source cost."""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Floats, Int64s
from profnb.core.table import Column, Table


@dataclass(frozen=True, slots=True)
class SourceLines:
    """One row per line of the user's source that cost anything, most op time first.

    Attributes:
        file: Files; "" in the row of what no line is known of.
        line: Line numbers; 0 in that row, shape (N,).
        text: The source; "" where it is not at hand, "in NAME" where only the function is known.
        host_ps: Self time of its ops on hosts, shape (N,).
        device_ps: Time of its ops on devices, shape (N,).
        backward_ps: The part of both in gradient ops, shape (N,).
        gradient_ps: Time of gradient ops that the line asked for and that other lines caused, which
            are charged to those, shape (N,).
        python_ps: Time at the line in which the framework did not run, in the same steps and the gaps that
            belong to them; -1 where Python was not watched, shape (N,).
        wall_ps: Time at the line then, shape (N,); -1 likewise.
        occurrences: How often it began to run then; -1 likewise or where lines were sampled, shape (N,).
        capture_ps: Time at the line in the whole capture, shape (N,); -1 where Python was not watched.
        op_occurrences: How often ops of it ran, shape (N,).
        has_device: Whether anything ran on a device.
        texts: The lines of each file.
        cells: The number of the cell that each file stands for, where it is one.
        remarks: What the numbers do not say, in sentences.
    """

    file: tuple[str, ...]
    line: Int64s
    text: tuple[str, ...]
    host_ps: Int64s
    device_ps: Int64s
    backward_ps: Int64s
    gradient_ps: Int64s
    python_ps: Int64s
    wall_ps: Int64s
    occurrences: Int64s
    capture_ps: Int64s
    op_occurrences: Int64s
    has_device: bool
    texts: dict[str, tuple[str, ...]]
    cells: dict[str, int]
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.line.size


def _device_ps(lines: SourceLines) -> Floats:
    return np.where(lines.has_device, lines.device_ps, np.nan)


def _fraction(lines: SourceLines) -> Floats:
    side_ps = lines.device_ps if lines.has_device else lines.host_ps
    return side_ps / (int(side_ps.sum()) or np.nan)


def _if_watched(values: Int64s) -> Floats:
    return np.where(values >= 0, values, np.nan)


SOURCE_LINES = Table[SourceLines](
    "source_lines",
    "One row per line of your own source that cost anything, most op time first.",
    (
        Column(
            "file",
            lambda t: t.file,
            'the file it stands in, from the working folder or its package on, "" in the row of ops that no '
            "line made",
        ),
        Column("line", lambda t: t.line, "its number in the file, 0 in that row"),
        Column(
            "source",
            lambda t: [text.strip() for text in t.text],
            'its text; "in NAME" where a trace of PyTorch tells the function only, whose first line it is',
        ),
        Column("host_us", lambda t: t.host_ps, "self time on hosts of the ops that it made"),
        Column("device_us", _device_ps, "... on devices, NaN without a device"),
        Column(
            "python_us",
            lambda t: _if_watched(t.python_ps),
            "time at the line in which the framework did not run",
            "Python",
        ),
        Column("wall_us", lambda t: _if_watched(t.wall_ps), "time at the line"),
        Column(
            "capture_us",
            lambda t: _if_watched(t.capture_ps),
            "time at the line in the whole capture, in steps or not",
        ),
        Column(
            "forward_us",
            lambda t: t.host_ps + t.device_ps - t.backward_ps,
            "the part of its ops' time that is no gradient's",
        ),
        Column(
            "backward_us", lambda t: t.backward_ps, "the part of it in gradients that it caused"
        ),
        Column(
            "gradient_us",
            lambda t: t.gradient_ps,
            "time of gradients asked for here and charged to the lines that caused them",
        ),
        Column("fraction", _fraction, "of the op time of the device, without a device of the host"),
        Column(
            "occurrences",
            lambda t: _if_watched(t.occurrences),
            "how often the line began to run",
            alias="runs",
        ),
        Column(
            "op_occurrences", lambda t: t.op_occurrences, "how often ops of it ran", alias="op_runs"
        ),
    ),
    "Ops are those of the steady steps and of what ran beside them, and Python's time is of those steps and "
    "of the gaps that belong to them (``capture_us`` has it of all); of everything without steps. With the "
    "row of no file, host and device times add up to all those ops'. No row without ``source``, nor for a "
    "saved trace that has no stacks of PyTorch's; what was not watched is NaN.",
)
