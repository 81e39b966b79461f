"""The first sentence of a report: where the time goes and why; above it what was not seen.

Its numbers are those of the tables below it: idle time by cause (``p.idle``), shares of the typical step, and
of the ops' own time (the op table by type). Nothing is said that one of them does not have.
"""

import numpy as np

from profnb.core.printable import printable
from profnb.core.units import percent_text
from profnb.report.notes import note_contents, note_devices, note_missing_devices
from profnb.report.text import MEANINGS
from profnb.steps.streams import working_devices
from profnb.steps.summary import OTHERS
from profnb.subjects.device.devices import gpu_worked
from profnb.subjects.device.idle import IDLE_CAUSES, IdleTable
from profnb.subjects.study import Study
from profnb.subjects.unseen import category_title, unrecorded_backend
from profnb.trace.framework import UNKNOWN

_LEAST_IDLE, _LEAST_CAUSE, _LEAST_OP = 0.1, 0.05, 0.1
_MOST, _SHARE_OF_FIRST = 0.5, 1 / 3
_LONGEST = 60
_ABSENT, _DROPPED = "absent, not zero", "Events were dropped"  # as notes say it
_CLAUSES = {
    "compiling": "functions are traced or compiled",
    "waiting for input": "the next batch is not there yet",
    "copying input": "the next batch is still being copied to the device",
    "synchronising copy": "the host waits for results or copies results back",
    "host compute": "ops compute on the CPU",
    "kernel launch": "the host is still launching kernels",
    "host collectives": "the host waits for other workers or replicas, or exchanges data",
    "Python in the step": "the host runs Python or unrecorded work in the step",
    "Python between steps": "the host runs Python between steps",
}


def lead_text(study: Study, explanation: str, *, has_host: bool) -> str:
    """Where the time goes, and why, in one sentence; "" where nothing is known of it.

    A device that is idle a tenth of the time or more comes first, with what the host did meanwhile; else the
    largest part of a step, and the kind of op that takes most of it or what its input waits for.

    Args:
        study: The analyses.
        explanation: What the largest part is, where more is known than its category tells.
        has_host: Whether the thread of the steps was recorded.
    """
    largest = study.summary.largest
    if largest is None:
        return ""
    idle = study.device.idle
    if idle is not None and idle.total_ps.sum() >= _LEAST_IDLE * idle.window_ps:
        return _idle_text(study, idle)
    title = category_title(largest.category, study.framework if has_host else UNKNOWN)
    how_much = "Most" if largest.fraction >= _MOST else "The largest part"
    meaning = _why(study, largest.category, explanation, has_host=has_host)
    return f"{how_much} of a step is {title}, {percent_text(largest.fraction)}{meaning}."


def _idle_text(study: Study, idle: IdleTable) -> str:
    """How long the busiest device was idle, and what the host did then."""
    whole, window = int(idle.total_ps.sum()), idle.window_ps
    order = np.argsort(-idle.total_ps, kind="stable")[:2].tolist()
    causes = [(IDLE_CAUSES[row], int(idle.total_ps[row])) for row in order]
    name = idle.device.removeprefix("/device:").partition(":")[0]
    several = len(working_devices(study.trace))
    device = f"The {name if name in ('GPU', 'TPU') else 'device'}"
    if several > 1:
        device = f"The busiest of {several} devices"
    said = f"{device} is idle {percent_text(whole / window)} of the time"
    first, first_ps = causes[0]
    if first not in _CLAUSES:
        return f"{said}; why was not recorded."
    is_most = first_ps >= _MOST * whole
    how = "mostly because" if is_most else "most often because"
    said += f", {how} {_CLAUSES[first]} ({percent_text(first_ps / window)})"
    second, second_ps = causes[1]
    is_worth_it = second_ps >= max(_LEAST_CAUSE * window, _SHARE_OF_FIRST * first_ps)
    if second in _CLAUSES and is_worth_it and not is_most:
        said += f". Second cause: {_CLAUSES[second]} ({percent_text(second_ps / window)})"
    return f"{said}."


def _why(study: Study, category: str, explanation: str, *, has_host: bool) -> str:
    """What is behind the largest part of a step: what it waits for, or the op that takes most of it."""
    diagnosis = study.input.diagnosis
    if category == "input" and diagnosis is not None and diagnosis.limit:
        return f": {diagnosis.limit}"
    meaning = MEANINGS.get(category, "")
    if category == OTHERS and not has_host:
        meaning = "nothing that could explain it was recorded"
    meaning = explanation or meaning
    said = f" ({meaning})" if meaning else ""
    if category not in ("device compute", "host compute"):
        return said
    op = _largest_kind(study, on_device=category == "device compute")
    return f"{said}{op}"


def _largest_kind(study: Study, *, on_device: bool) -> str:
    """The type of op that takes most of its side's own time in the steps, and how much."""
    ops = study.ops.steady
    rows = np.flatnonzero((ops.is_device == on_device) & (ops.self_ps > 0))
    whole = int(ops.self_ps[rows].sum())
    sums: dict[str, int] = {}
    for row in rows.tolist():
        kind = ops.op_type[row] or ops.op_name[row]
        sums[kind] = sums.get(kind, 0) + int(ops.self_ps[row])
    if len(sums) < 2:
        return ""
    kind, took = max(sums.items(), key=lambda item: item[1])
    if took < _LEAST_OP * whole or not kind:
        return ""
    name = printable(kind).removeprefix("_Mkl").removeprefix("Native")[:_LONGEST]
    return f"; {name} takes {percent_text(took / whole)} of the ops' time"


def unmeasured_text(study: Study) -> str:
    """What was not recorded although it happened, if that is more important than what was; else ""."""
    worked = gpu_worked(study.trace, study.memory.allocators)
    backend = unrecorded_backend(study)
    framework, devices = study.framework, study.recording.devices
    notes = (
        [f"{backend}'s work was not recorded: only the time of a step is known."] if backend else []
    )
    if worked:
        notes += note_missing_devices(study.trace, devices, worked=True, framework=framework)
        notes += note_devices(study.trace, worked=True, framework=framework)
    notes = [note for note in notes if backend or _ABSENT in note]
    notes += [note for note in note_contents(study.trace) if note.startswith(_DROPPED)]
    return " ".join(_first_sentence(note) for note in notes)


def _first_sentence(note: str) -> str:
    return note.partition(". ")[0].rstrip(".") + "."
