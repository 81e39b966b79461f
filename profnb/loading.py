"""``load``: a saved trace, or a profile that Python's cProfile saved, to a ``Profile``."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.models.model_watch import as_models, describe_models
from profnb.capture.step_records import SESSION_RUN
from profnb.core.options import CaptureOptions
from profnb.core.printable import printable
from profnb.core.units import PS_PER_NS, count_text, counted_text
from profnb.lite.entry import is_saved, open_result
from profnb.profile import Profile

if TYPE_CHECKING:
    from profnb.capture.recording import Recording
    from profnb.trace.model import Trace
    from profnb.trace.runs import TraceFile

_FAR_NS = 3_600_000_000_000  # between the clocks of a cluster's hosts


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
            Systems (SQLite) and nvprof (``.nvvp``, CSV), or of pprof (JAX's memory). A profile of functions
            (Python's cProfile, pprof's CPU samples) has ``p.python`` and a report, but no trace.
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
    from profnb.steps.finding.ranges import check_range
    from profnb.subjects.python.python_time import tabulate_counts, tabulate_stacks
    from profnb.trace.files import read_file
    from profnb.trace.pprof import SampledStacks
    from profnb.trace.pstats_file import CallCounts
    from profnb.trace.remote_files import fetch_traces, is_url
    from profnb.trace.runs import event_files, find_traces, pick_trace

    if is_url(path):
        with fetch_traces(os.fspath(path), run) as folder:
            return load(
                folder, run=run, host=host, warmup_steps=warmup_steps, steps=steps, model=model
            )
    target = Path(path).expanduser()
    if is_saved(target):
        return open_result(target)
    traces = find_traces(path)
    picked = pick_trace(traces, run, host)
    file = picked.path
    options, recordings = read_recordings(file)
    asked: dict[str, Any] = {"warmup_steps": warmup_steps} if warmup_steps else {}
    if steps is not None:
        asked["steps"] = steps
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
    seen = [
        begin
        for begin, kind, was_traced in zip(
            steps.begin_ns, steps.kind, steps.was_traced, strict=True
        )
        if was_traced and steps.kinds[kind] == RUN
    ]
    if not run_events.size or not seen:
        return [], False
    began_ns = trace.epoch_ns + int(trace.events.begin_ps[run_events].min()) // PS_PER_NS
    apart_ns = abs(began_ns - recording.sessions.epoch_ns - min(seen))
    if trace.epoch_ns and apart_ns > _FAR_NS:
        return [
            "The records beside the session runs come from another capture and are left out."
        ], True
    if (
        0.9 * len(seen) - 1 <= run_events.size <= len(seen)
    ):  # a run that recorded nothing is none in the file
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
