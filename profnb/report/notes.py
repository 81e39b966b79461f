"""The notes: all to know before trusting the numbers, as what is missing, cut or averaged, and why.

Each note is one or two plain sentences: what was found, then what to do.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from profnb.capture.environment import CUPTI
from profnb.capture.recording import Recording
from profnb.capture.step_records import INVOKE
from profnb.causes.growing import find_growths
from profnb.causes.numbers import QUARTER
from profnb.causes.starving import note_files, note_queues, note_threads, note_waits
from profnb.core.printable import quoted
from profnb.core.units import (
    bytes_text,
    count_text,
    counted_text,
    duration_text,
    longer_text,
    percent_text,
)
from profnb.steps.finding.sources import listed
from profnb.steps.program_kind import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN
from profnb.steps.summary import GAP
from profnb.steps.untraced import TracingCost, UntracedClock
from profnb.subjects.advising import share_of
from profnb.subjects.device.devices import gpu_worked
from profnb.subjects.input.diagnosis import InputDiagnosis
from profnb.subjects.study import Study
from profnb.subjects.unseen import is_fed, is_of_memory, note_backend, note_window
from profnb.trace.model import Trace
from profnb.trace.names import RECORDER

_COSTLY, _MOSTLY_GAP, _NEARLY_FULL, _MOST_PHASES = 0.25, 0.2, 0.9, 4
# Advice on what passes between steps: of a capture of ours it names what that was.
_OF_GAPS = {
    "checkpoints", "epoch-ends", "growing-graph", "new-model-in-a-loop", "predict-in-a-loop",
    "python-between-steps", "python-input", "summaries",
}  # fmt: skip


_WITH_CUDA = "tensorflow[and-cuda]"
_PACKAGE = {TENSORFLOW: _WITH_CUDA, SESSIONS: _WITH_CUDA, JAX: "jax[cuda12]"}


def _recorder(trace: Trace) -> str:
    """Name the profiler that recorded a trace, where that was no framework's own; else ""."""
    named = (str(plane.stats[RECORDER]) for plane in trace.planes if RECORDER in plane.stats)
    return next(named, "")


def _cupti(study: Study) -> str:
    recorder = _recorder(study.trace)
    if recorder:
        return f"Have {recorder} record kernels and copies, and open that."
    package = study.program.text_of(_PACKAGE)
    installs = f"`pip install '{package}'` installs CUPTI, or " if package else ""
    return (
        f"On NVIDIA the cause is CUPTI. Either libcupti is missing: {installs}put its folder on "
        "LD_LIBRARY_PATH (on Windows cupti64_*.dll on PATH). Or CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: set "
        "NVreg_RestrictProfilingToAdminUsers=0, or run the container with --privileged. Capture again in a "
        "fresh process."
    )


_MEMORY_ALONE = "The file holds memory and no times. Record a trace for times of ops and kernels."


def notes_of(study: Study, rules: Sequence[str] = ()) -> list[str]:
    """List what is missing, cut or averaged in a trace, in sentences.

    Args:
        study: The trace's analyses.
        rules: The rules of advice that spoke.
    """
    if is_of_memory(study):
        return [_MEMORY_ALONE, *note_contents(study.trace), *_note_memory(study)]
    has_gap_advice = study.recording.cell is not None and not _OF_GAPS.isdisjoint(rules)
    may_be_fed = is_fed(study) and study.input.feeding is None and not has_gap_advice
    return [
        *_note_steps(study),
        *note_backend(study),
        *_note_steps_ahead(study),
        *_note_left_behind(study),
        *note_devices(study),
        *note_contents(study.trace),
        *_note_input(study, may_be_fed=may_be_fed),
        *note_queues(study),
        *note_files(study),
        *note_threads(study),
        *note_waits(study),
        *_note_memory(study),
        *study.xla.hlo.complaints,
    ]


_MARKING = {
    UNKNOWN: "Mark each iteration as a step, with the recording profiler's marker.",
    TENSORFLOW: "Wrap each iteration in `with profnb.step(i):`, or profile a Keras fit or a loop over a "
    "tf.function.",
    SESSIONS: "Record each session run with RunMetadata, or profile a cell that calls sess.run.",
    JAX: "Wrap each iteration in `with jax.profiler.StepTraceAnnotation('train', step_num=i):`.",
    PYTORCH: "Wrap each iteration in `with torch.profiler.record_function('step'):`, and record CPU "
    "activities.",
}


def _marking(study: Study) -> str:
    if _recorder(study.trace):
        return "Mark each iteration with a range (NVTX, or ROCTx on AMD): ranges that repeat are steps."
    return study.program.text_of(_MARKING)


def _note_steps(study: Study) -> Iterator[str]:
    """Say how steps were found and which of them count."""
    steps, summary = study.steps, study.summary
    if not len(steps):
        if not study.trace.left_out:  # else what the file has instead is said
            yield "The trace has no events: nothing ran while it was recorded."
        return
    if steps.is_window:
        yield (
            note_window(study)
            or f"No steps among {count_text(len(study.trace.events))} events: the whole capture is shown as "
            f"one window. {_marking(study)}"
        )
    elif note := _note_origin(study):
        yield note
    if summary.all_warm_up and not steps.is_window:
        count = len(summary.counted)
        each = "the only step" if count == 1 else f"each of the {count_text(count)} steps"
        yield (
            f"A function was traced or compiled in {each}, so averages are of warm-up steps. Run more "
            "steps, or look for retracing."
        )
    if summary.iterations > 1:
        yield (
            f"Each step runs {summary.iterations} iterations (steps_per_execution={summary.iterations}). "
            "Step times are per execution."
        )
    if summary.others:
        shown, more = summary.others[:_MOST_PHASES], summary.others[_MOST_PHASES:]
        listed = ", ".join(f"{count_text(count)} {steps.title_of(name)}" for name, count in shown)
        plural = "step" if shown[-1][1] == 1 else "steps"
        if more:
            steps_more = count_text(sum(count for _, count in more))
            plural = f"steps and {steps_more} of {count_text(len(more))} other kinds"
        phase = steps.title_of(summary.phase)
        yield f"Averages are of {phase} steps. The trace also holds {listed} {plural}."
    if 0 < len(summary.counted) < 5 and not steps.is_window:
        count_of_steps = counted_text(len(summary.counted), "step")
        yield f"Only {count_of_steps} to average. Run a few more for firmer figures."


def _note_origin(study: Study) -> str:
    """Say what a step is, and which ranges could be; "" for step markers where none could."""
    steps, asked = study.steps, study.step_range
    ranges = [name for name in study.repeated_ranges if name not in steps.phase]
    others = f" `steps=` takes another range: {listed(ranges)}." if ranges else ""
    missing = "" if asked is None else f"No range is called {asked[:60]!r}. "
    if study.program.is_as_asked:
        return f"Steps are the range {listed([str(asked)])}, as asked.{others}"
    if not study.program.is_marked:
        return f"{missing}Steps below are {steps.origin}.{others}"
    return f"{missing}Steps are the step markers.{others}" if missing or others else ""


def _note_steps_ahead(study: Study) -> list[str]:
    """Say that a step is the device's period, or the programs', where the host does not wait for it."""
    ahead = study.steps.steps_ahead
    if ahead < 1:
        return []
    if not study.program.has_device:
        return [
            f"Python runs {counted_text(ahead, 'step')} ahead of the compiled programs. A step is "
            "counted from the end of one step's programs to the end of the next."
        ]
    return [
        f"The host runs {counted_text(ahead, 'step')} ahead of the device. A step is counted from the "
        "end of one step's device work to the end of the next."
    ]


def _note_left_behind(study: Study) -> list[str]:
    """Say that launches stay slow behind PyTorch's profiler, where they set the pace and steps ran there.

    Loops over 120 small layers and over an LSTM took 1.3 to 1.5 times as long on an H200, with PyTorch's own
    profiler as with profnb, and 1.1 to 1.2 times with the setting. It is no default of PyTorch's: profilers
    that start in quick succession have met what is taken down (pytorch/kineto 1264, 1554).
    """
    traced = np.flatnonzero(study.step_times.was_traced)
    is_followed = traced.size > 0 and traced[-1] + 1 < len(study.step_times)
    is_pytorch = study.program.is_pytorch and study.program.is_nvidia
    is_slow = is_followed and share_of(study, "kernel launch") > QUARTER
    if not is_pytorch or not is_slow or study.recording.environment.get(CUPTI) == "1":
        return []
    return [
        "PyTorch's profiler slows launches until the kernel restarts: later steps take up to 1.5 times as "
        f"long. Set {CUPTI}=1 in the environment before the first capture: most of the slowing goes."
    ]


def note_cost(
    cost: TracingCost | None, clock: UntracedClock | None = None, *, of_runs: bool = False
) -> list[str]:
    """A note if tracing slowed the steps so much that it matters what was done about that.

    Args:
        cost: What tracing cost; None where nothing shows any.
        clock: What took the cost of recording events out of all times; None where nothing did.
        of_runs: Whether calls of ``Session.run`` were timed, whose steps begin with the first op.
    """
    if cost is None or cost.fraction < _COSTLY:
        return []
    what, one = ("calls of Session.run", "call") if of_runs else ("steps", "step")
    note = (
        f"Traced {what} took {longer_text(cost.fraction, than='the untraced ones beside them')} (95 % "
        f"interval {longer_text(cost.low, cost.high)})."
    )
    left = cost.fraction - (0 if clock is None else clock.step_ps / cost.untraced_ps)
    if left < _COSTLY:
        return [f"{note} The times below leave this cost out."]
    untraced = duration_text(cost.untraced_ps)
    return [f"{note} The times below are too long: without tracing a {one} takes {untraced}."]


def note_devices(study: Study) -> list[str]:
    """Say that a device was there, or was worked for, and the trace has none or nothing of it."""
    trace, worked = study.trace, gpu_worked(study.trace, study.memory.allocators)
    devices = [plane for plane in trace.planes if plane.is_device]
    if not devices and worked:
        return [
            f"A device worked, but the trace has none: device times are absent, not zero. {_cupti(study)}"
        ]
    if not devices and _recorder(trace):
        return [f"The trace holds no kernel and no copy. {_cupti(study)}"]
    if not devices:
        present = study.recording.devices
        named = ", ".join(present[:4])
        return [f"Nothing shows that {named} was used while the trace ran."] if present else []
    counts = np.diff(trace.lines.offsets)
    empty = [one.name for one in devices if not counts[one.lines.start : one.lines.stop].any()]
    if not empty:
        return []
    names = ", ".join(empty[:8]) + (f" and {len(empty) - 8} more" if len(empty) > 8 else "")
    if len(empty) == len(devices) and worked:
        return [
            f"Nothing was recorded on {names} despite work: device times are absent, not zero. "
            f"{_cupti(study)}"
        ]
    return [
        f"Nothing was recorded on {names}: the traced code did not use {'it' if len(empty) == 1 else 'them'}."
    ]


def _note_memory(study: Study) -> Iterator[str]:
    """Name memory that grows from step to step, and a device's memory that is nearly full."""
    for growth in find_growths(study):
        culprit = f", mostly from {growth.op[:100]}" if growth.op else ""
        keeps = "Something keeps tensors: a Python list of losses or outputs, or a new variable in each step."
        if growth.holder is not None:
            at = f" ({growth.line})" if growth.line else ""
            count = counted_text(growth.holder.blocks, "array")
            keeps = f"{quoted(growth.holder.holder)}{at} keeps {count}."
        yield (
            f"Memory of {growth.source} grows by {bytes_text(growth.bytes)} a step{culprit}. {keeps} Append "
            "float(x) instead of the tensor."
        )
    for use in study.memory.use:
        name, limit = use.allocator.name, use.allocator.limit
        if use.allocator.is_device and 0 < limit < use.peak_bytes / _NEARLY_FULL:
            yield (
                f"{name} was {percent_text(use.peak_bytes / limit)} full "
                f"({bytes_text(use.peak_bytes)} of {bytes_text(limit)}): a larger batch will not fit."
            )


def note_starvation(diagnosis: InputDiagnosis | None) -> list[str]:
    """Say what starves the steps (of a training, or of whatever ran), and the repair."""
    if diagnosis is None or diagnosis.iterator < 0:
        return []
    bound = "Input-bound" if diagnosis.severity == "high" else "Partly input-bound"
    return [f"{bound}: {diagnosis.sentence} {diagnosis.fix}".rstrip()]


def note_interpreters(recording: Recording | None) -> list[str]:
    """Say that no trace has the ops of interpreters, and what tells their times."""
    if recording is None or INVOKE not in recording.steps.names:
        return []
    return [
        "An `invoke` step is a run of an interpreter, whose ops no trace has. For LiteRT, "
        "`%tflite MODEL.tflite` tells the time of each op. For ONNX Runtime, open the file that "
        "`SessionOptions.enable_profiling` writes."
    ]


_NO_DATASET = (
    "no tf.data iterator ran. A Python loop, generator or DataLoader may fetch the data unseen: tf.data with "
    ".prefetch(tf.data.AUTOTUNE) fetches while the model works."
)
_UNSEEN_INPUT = {
    UNKNOWN: "the trace shows no input. A loop, generator or loader in Python may be the cause: fetch the "
    "next batch while the model works.",
    TENSORFLOW: _NO_DATASET,
    SESSIONS: _NO_DATASET,
}


def _note_input(study: Study, *, may_be_fed: bool) -> list[str]:
    """Say what was long in coming, or that the input cannot be seen although it may be what is slow.

    Where looks saw the cell, its tree tells what ran between the steps.

    Args:
        study: The trace's analyses.
        may_be_fed: Whether steps may have got data from Python at all.
    """
    steps, first = study.steps, study.input.first_element
    cell = study.recording.cell
    is_seen = (cell is not None and cell.tree) or len(study.input.iterators)
    if is_seen or steps.is_window or not len(steps) or not may_be_fed:
        return [first] if first else []
    gap = sum(share.fraction for share in study.summary.shares if share.category == GAP)
    passes = f"{percent_text(gap)} of the time passes between steps, and "
    return [] if gap < _MOSTLY_GAP else [passes + study.program.text_of(_UNSEEN_INPUT)]


def note_contents(trace: Trace) -> list[str]:
    """Give what the profiler complained about while recording, and what of a file was not read."""
    complaints = [f"The profiler reports: {message[:300]}" for message in trace.messages[:5]]
    if any("drop" in message.lower() for message in trace.messages):
        complaints.append(
            "Events were dropped because a buffer was full, so counts and times are too low. Trace "
            "fewer steps (-n STEPS), or a shorter time (-t SECONDS)."
        )
    return [*complaints, *trace.left_out]
