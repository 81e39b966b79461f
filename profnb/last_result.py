"""``profnb.last``: an answer from a cell whose process died.

A kernel that is killed, by the system for its memory or by hand, leaves a journal; see ``capture.journal``.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from profnb.core.errors import CaptureError, TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.core.printable import quoted
from profnb.core.units import NS_PER_S, PS_PER_NS, bytes_text, counted_text, duration_text
from profnb.profile import Profile

if TYPE_CHECKING:
    from pathlib import Path

    from profnb.capture.journal.dead_cell import DeadCell

_NEAR = 0.85  # of what memory there is: the system may end a process before all of it is used
_read: list[Profile] = []  # the last one: its journal is gone


def last() -> Profile:
    """What was kept of the last cell of this user's, on this machine, whose process died while it ran.

    That is its steps, its tree, memory and machine, and its trace where that had been written, until half a
    second before. It is removed as it is read; in this process it can be asked for again.

    Returns:
        A profile; ``p.notes`` say when it died and with how much memory.

    Raises:
        CaptureError: No cell has died within a day.
    """
    for path, dead in _dead_cells():
        from profnb.capture.journal.dead_cell import forget

        _read[:] = [_profile_of(dead)]
        forget(path, dead.trace)
        break
    if not _read:
        raise CaptureError(
            "No profiled cell has died on this machine within a day, so there is nothing to show."
        )
    return _read[0]


def say_last_death() -> str:
    """Say in a sentence which cell died last, if that was not read yet; else ""."""
    for _, dead in _dead_cells():
        return f"The last profiled cell {_death(dead)}; `%tfprofile --last` shows it."
    return ""


def _dead_cells() -> "Iterator[tuple[Path, DeadCell]]":
    """The journals that can be read, the newest first."""
    try:
        from profnb.capture.journal.journal_file import journals_left
    except ImportError:  # no locks of files here
        return
    for path in journals_left():
        from profnb.capture.journal.dead_cell import read_dead_cell

        try:
            yield path, read_dead_cell(path)
        except (TraceFormatError, OSError):  # killed before it had begun, or of another version
            continue


def _death(dead: "DeadCell") -> str:
    """When it died, after how much, and where."""
    newest = dead.newest
    died = time.strftime("%H:%M", time.localtime(newest.epoch_ns / NS_PER_S))
    memory = ""
    if newest.resident_bytes >= 0:
        is_near = 0 <= dead.limit_bytes * _NEAR < newest.resident_bytes
        of = f" of {bytes_text(dead.limit_bytes)}" if is_near else ""
        memory = f" with {bytes_text(newest.resident_bytes)}{of} in use"
    place = [quoted(dead.function)] if dead.function else []
    place += [f"cell {dead.cell}"] if dead.cell and not dead.function else []
    place += [f"line {dead.line}"] if dead.line else []
    where = f", in {dead.part or 'Python'}" + (f" ({', '.join(place)})" if place else "")
    return f"died at {died} after {counted_text(newest.steps, 'step')}{memory}{where}"


def _profile_of(dead: "DeadCell") -> Profile:
    newest, recording = dead.newest, dead.recording
    notes = [f"This cell {_death(dead)}. All below is what was kept until then."]
    if 0 <= dead.limit_bytes * _NEAR < newest.peak_bytes:
        notes.append(
            f"Its process had {bytes_text(newest.peak_bytes)} of the {bytes_text(dead.limit_bytes)} that "
            f"{dead.limit_of} allows. So the system probably ended it for its memory."
        )
    kept = len(recording.steps)
    if kept < newest.steps:
        notes.append(
            f"Times of the first {counted_text(kept, 'step')} were kept; the later ones were counted."
        )
    trace = None
    if dead.trace is not None:
        from profnb.trace.files import read_trace

        try:
            trace = replace(read_trace(dead.trace), source="died")
        except (TraceFormatError, OSError) as error:
            notes.append(f"Its trace cannot be read: {error}")
    elif kept:
        after = duration_text(recording.wall_ns * PS_PER_NS)
        notes.append(f"It has no trace: after {after} none had been written.")
    recording.messages = notes
    options = CaptureOptions(warmup_steps=dead.warmup_steps)
    return Profile(trace, recording, options)
