"""Memory that grows from step to step: by how much, and the variable that keeps it, with its line.

An allocator's events tell growth exactly. Of the process a few looks do: the middle of those in the last
quarter of the steps against the second quarter. That alone may be anything, so it is only said with the
variable. A variable is the cause if it leads to an array from every other step or more, and these are half of
what came, or keep what their gradients need.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profnb.capture.memory.memory_errors import device_of
from profnb.capture.memory.memory_records import ACTIVATIONS, CPU, DATA, HeldMemory
from profnb.capture.source.user_code import file_title
from profnb.causes.numbers import FEWEST
from profnb.subjects.layers.memory_kinds import PROCESS
from profnb.subjects.study import Study

_LEAKING, _LEAST_GROWN, _LEAST_BYTES, _LOOKS_TO_JUDGE = 0.001, 0.02, 32e6, 8
_KEEPS = r"(?<![\w.]){}\s*(?:\.(?:append|extend|add|insert|update)\s*\(|\[[^\]]*\]\s*=(?!=)|\+=)"


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that grows.

    Attributes:
        source: The allocator, or PROCESS.
        bytes: How much a step leaves behind.
        op: The op that allocates most of what stays; "" where nobody tells.
        holder: The variable that leads to it; None where none does.
        line: The line that puts more into that: "Cell [3]:8"; "" where it is not known.
    """

    source: str
    bytes: float
    op: str = ""
    holder: HeldMemory | None = None
    line: str = ""


def find_growths(study: Study) -> Iterator[Growth]:
    """Find the memory that grows: of each allocator, and of the process."""
    is_seen = False
    for use in study.memory.use:
        if use.growth_bytes > max(_LEAKING * use.peak_bytes, 0):
            device = device_of(use.allocator.name) or CPU
            is_seen |= device == CPU
            yield _growth(study, use.allocator.name, device, use.growth_bytes, use.growth_op)
    grows = 0.0 if is_seen else _growth_of_process(study)
    growth = _growth(study, PROCESS, CPU, grows)
    if grows and growth.holder is not None:
        yield growth


def _growth(study: Study, source: str, device: str, grows: float, op: str = "") -> Growth:
    holder, line = find_holder(study, device, grows * len(study.step_times))
    return Growth(source, grows, op, holder, line)


def find_holder(study: Study, device: str, came_bytes: float) -> tuple[HeldMemory | None, str]:
    """Find the variable that keeps what the steps made, and the line that puts it there.

    Args:
        study: The trace's analyses.
        device: Whose memory is meant.
        came_bytes: What came in all steps.
    """
    steps = len(study.step_times)
    for one in study.recording.memory.held:
        is_much = one.kind == ACTIVATIONS or 2 * one.bytes >= came_bytes
        is_of_steps = one.device == device and FEWEST <= steps <= 2 * one.blocks
        if one.kind in (ACTIVATIONS, DATA) and one.holder and is_of_steps and is_much:
            return one, _line_of(study, one.holder)
    return None, ""


def _growth_of_process(study: Study) -> float:
    """Bytes that the process gains a step; 0 where that is little, or not known."""
    machine, steps = study.recording.machine, study.recording.steps
    if machine is None or not len(steps):
        return 0.0
    ends = np.asarray(steps.end_ns, np.int64)
    when, resident = np.asarray(machine.time_ns), np.asarray(machine.resident_bytes, np.float64)
    done = np.searchsorted(ends, when)  # steps before each look
    inside = (done > len(ends) / 4) & (done < len(ends)) & (resident >= 0)
    early, late = inside & (2 * done <= len(ends)), inside & (4 * done > 3 * len(ends))
    if inside.sum() < _LOOKS_TO_JUDGE or not early.any() or not late.any():
        return 0.0
    rise = float(np.median(resident[late]) - np.median(resident[early]))
    if rise < max(_LEAST_BYTES, _LEAST_GROWN * float(resident[late].max())):
        return 0.0
    return rise / float(np.median(done[late]) - np.median(done[early]))


def _line_of(study: Study, name: str) -> str:
    """The first line that puts something into a variable."""
    source, keeps = study.recording.source, re.compile(_KEEPS.format(re.escape(name)))
    if source is None:
        return ""
    places = (
        f"{file_title(file, source.cells)}:{number}"
        for file, lines in source.texts.items()
        for number, line in enumerate(lines, 1)
        if keeps.search(line)
    )
    return next(places, "")
