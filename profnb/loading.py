"""``load`` and ``last``: what was saved, or left by a cell whose process died, to a ``Profile``.

A kernel that is killed, by the system for its memory or by hand, leaves a journal; see ``capture.journal``.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.models.model_watch import as_models, describe_models
from profnb.capture.step_records import SESSION_RUN
from profnb.core.errors import CaptureError, TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.core.printable import printable, quoted
from profnb.core.units import PS_PER_NS, bytes_text, count_text, counted_text, duration_text
from profnb.lite.entry import is_saved, open_result
from profnb.profile import Profile

if TYPE_CHECKING:
    from profnb.capture.journal.dead_cell import DeadCell
    from profnb.capture.recording import Recording
    from profnb.trace.model import Trace
    from profnb.trace.runs import TraceFile

_FAR_NS = 3_600_000_000_000  # between the clocks of a cluster's hosts
_NEAR = 0.85  # of what memory there is: the system may end a process before all of it is used
_read: list[Profile] = []  # the last one: its journal is gone


def load(
    path: str | os.PathLike[str],
    *,
    run: str | None = None,
    host: str | None = None,
    warmup_steps: int = 0,
    steps: str | None = None,
    model: Any = None,
) -> Profile | Any:
    """Open a saved trace, or what ``save`` of a LiteRT result wrote.

    Args:
        path: A trace file, a run folder, or a TensorBoard logdir. Files may be XPlane
            (``*.xplane.pb``), Chrome traces (ours, TF1's ``timeline.json``, the profiler's
            ``trace.json.gz``, PyTorch's), TF1 ``RunMetadata``, alone or in event files, or of Nsight
            Systems (SQLite) and nvprof (``.nvvp``, CSV), or of memory (PyTorch's snapshot and timeline, JAX's
            pprof). A profile of functions (Python's cProfile, pprof's CPU samples) has ``p.python`` and a
            report, but no trace.
        run: Which run of a logdir; the newest by default.
        host: Which host of the run; the first by default.
        warmup_steps: How many first steps to leave out of averages besides those with tracing.
        steps: The name of a range that is a step, where the steps that are found are not those meant:
            of ``record_function``, NVTX or a trace annotation, without the number behind it.
        model: The Keras model that ran, whose layers tell parameters, shapes and operations; or several.
            Not needed for what profnb captured: that is beside the trace.

    A path with ``://`` (gs, s3, memory ...) is opened through ``fsspec``.

    Returns:
        A profile; of a file ``*.lite.json.gz`` what ``profnb.lite`` gave.

    Raises:
        ProfnbError: The package that opens such a URL is missing.
        FileNotFoundError: There is nothing at this path.
        TraceFormatError: There is no trace there, or it is damaged.
        ValueError: No such run, host or range.
    """
    from profnb.capture.saved.sidecar import read_recordings
    from profnb.steps.finding.sources import check_range
    from profnb.subjects.python.python_time import tabulate_counts, tabulate_stacks
    from profnb.trace.files import read_file
    from profnb.trace.pprof import SampledStacks
    from profnb.trace.pstats_file import CallCounts
    from profnb.trace.remote_files import fetch_traces, is_url
    from profnb.trace.runs import event_files, find_traces, pick_trace

    if is_url(path):
        choice = {"run": run, "host": host, "steps": steps}
        with fetch_traces(os.fspath(path), run) as folder:
            return load(folder, **choice, warmup_steps=warmup_steps, model=model)
    target = Path(path).expanduser()
    if is_saved(target):
        return open_result(target)
    traces = find_traces(path)
    picked = pick_trace(traces, run, host)
    file = picked.path
    options, recordings = read_recordings(file)
    given: dict[str, Any] = {"warmup_steps": warmup_steps or None, "steps": steps}
    asked = {name: value for name, value in given.items() if value is not None}
    options = replace(options, **asked)
    models = tuple(replace(facts, is_given=True) for facts in describe_models(as_models(model)))
    recording = recordings[0] if recordings else None
    if recording is not None and models:
        recording.models = models
    trace = read_file(file, picked.beside)
    if isinstance(trace, CallCounts):
        return Profile(counted=(tabulate_counts(trace), printable(file.name)))
    if isinstance(trace, SampledStacks):
        return Profile(counted=(tabulate_stacks(trace), printable(file.name)))
    if steps is not None:
        check_range(trace, steps)
    doubt, is_other = _doubt(trace, recording)
    if is_other:
        options, recording, recordings = CaptureOptions(**asked), None, []
    profile = Profile(trace, recording, options, models=models)
    profile.repeats.extend(recordings[1:])
    profile.remarks.extend([*doubt, *_remarks(traces, picked, run, host)])
    profile.event_files = event_files(target)
    profile.other_hosts = sum(trace.run == picked.run for trace in traces) - 1
    return profile


def _doubt(trace: "Trace", recording: "Recording | None") -> tuple[list[str], bool]:
    """Doubt, in sentences, that what stands beside session runs saw these; and whether it surely did not."""
    import numpy as np

    from profnb.capture.step_records import RUN

    if recording is None or recording.sessions is None:
        return [], False
    steps, run_events = recording.steps, np.flatnonzero(trace.select_names(SESSION_RUN.__eq__))
    columns = zip(steps.begin_ns, steps.kind, steps.was_traced, strict=True)
    seen = [begin for begin, kind, traced in columns if traced and steps.kinds[kind] == RUN]
    if not run_events.size or not seen:
        return [], False
    began_ns = trace.epoch_ns + int(trace.events.begin_ps[run_events].min()) // PS_PER_NS
    apart_ns = abs(began_ns - recording.sessions.epoch_ns - min(seen))
    if trace.epoch_ns and apart_ns > _FAR_NS:
        other = "The records beside the session runs come from another capture and are left out."
        return [other], True
    # A run that recorded nothing is none in the file.
    if 0.9 * len(seen) - 1 <= run_events.size <= len(seen):
        return [], False
    return [
        f"The file holds {count_text(run_events.size)} of {counted_text(len(seen), 'traced run')}. Steps and "
        "the whole time are of all runs, ops of the file's."
    ], False


def _remarks(
    traces: "Sequence[TraceFile]", picked: "TraceFile", run: str | None, host: str | None
) -> list[str]:
    """Name which of several runs and hosts was opened, where nobody asked for it by name."""
    runs = dict.fromkeys(trace.run for trace in traces)
    hosts = [trace.host for trace in traces if trace.run == picked.run]
    remarks = []
    if run is None and len(runs) > 1:
        remarks.append(
            f"The newest of {count_text(len(runs))} runs was opened, {picked.run}; run= (--run) opens a "
            "different run."
        )
    if host is None and len(hosts) > 1:
        remarks.append(
            f"The first of {count_text(len(hosts))} hosts was opened, {picked.host}; host= (--host) opens a "
            "different host, profnb.load_fleet all."
        )
    return remarks


def last() -> Profile:
    """Open what was kept of this user's last cell on this machine whose process died while it ran.

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
        nothing = "No profiled cell has died on this machine within a day: nothing to show."
        raise CaptureError(nothing)
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
    """Say when it died, after how many steps, and where."""
    newest = dead.newest
    died = time.strftime("%H:%M", time.localtime(newest.epoch_ns / 1e9))
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
    notes = [f"This cell {_death(dead)}. The report shows what was kept until then."]
    if 0 <= dead.limit_bytes * _NEAR < newest.peak_bytes:
        notes.append(
            f"The process had {bytes_text(newest.peak_bytes)} of the {bytes_text(dead.limit_bytes)} of "
            f"{dead.limit_of}: the system probably ended it for lack of memory."
        )
    kept = len(recording.steps)
    if kept < newest.steps:
        steps = counted_text(kept, "step")
        notes.append(f"Times of the first {steps} were kept; the later ones were counted.")
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
    return Profile(trace, recording, CaptureOptions(warmup_steps=dead.warmup_steps))
