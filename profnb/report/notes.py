"""What a reader should know before trusting the numbers: what is missing, cut or averaged, and why.

Each note is one or two plain sentences: what was found, then what to do.
"""

from collections.abc import Sequence

import numpy as np

from profnb.causes.starving import note_files, note_queues
from profnb.causes.threads import note_threads, note_waits
from profnb.core.units import bytes_text, count_text, duration_text, longer_text, percent_text
from profnb.steps.summary import GAP, Summary
from profnb.steps.untraced import TracingCost, UntracedClock
from profnb.steps.windows import Steps
from profnb.subjects.device.devices import gpu_worked
from profnb.subjects.input.diagnosis import InputDiagnosis
from profnb.subjects.input.iterators import IteratorTree
from profnb.subjects.memory.peak import MemoryUse
from profnb.subjects.study import Study
from profnb.subjects.unseen import is_fed, note_backend, note_window
from profnb.trace.framework import UNKNOWN, words
from profnb.trace.model import Trace

_COSTLY = 0.25
_MOSTLY_GAP = 0.2
_MOST_PHASES = 4
_LEAK, _NEARLY_FULL = 0.001, 0.9
# Advice on what passes between steps: of a capture of ours it names what that was.
_OF_GAPS = frozenset(
    {
        "checkpoints", "epoch-ends", "growing-graph", "new-model-in-a-loop", "predict-in-a-loop",
        "python-between-steps", "python-input", "summaries",
    }
)  # fmt: skip


def _cupti(framework: str) -> str:
    """Why nothing of a GPU was recorded that worked."""
    library = words(
        framework,
        "put its folder on LD_LIBRARY_PATH",
        tensorflow=(
            "`pip install 'tensorflow[and-cuda]'` installs CUPTI, or put its folder on LD_LIBRARY_PATH"
        ),
        jax="`pip install 'jax[cuda12]'` installs CUPTI, or put its folder on LD_LIBRARY_PATH",
    )
    return (
        f"On NVIDIA the cause is CUPTI. Either libcupti is missing: {library} (on Windows cupti64_*.dll on "
        "PATH). Or CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: set NVreg_RestrictProfilingToAdminUsers=0, or run "
        "the container with --privileged. Capture again in a fresh process."
    )


def notes_of(study: Study, rules: Sequence[str] = ()) -> list[str]:
    """What is missing, cut or averaged in a trace, in sentences.

    Args:
        study: The trace's analyses.
        rules: The rules of advice that spoke.
    """
    has_gap_advice = study.recording.cell is not None and not _OF_GAPS.isdisjoint(rules)
    worked = gpu_worked(study.trace, study.memory.allocators)
    return [
        *note_steps(
            study.steps,
            study.summary,
            len(study.trace.events),
            study.framework,
            note_window(study) if study.steps.is_window else "",
        ),
        *note_backend(study),
        *_note_steps_ahead(study.steps, has_device=study.has_device),
        *note_devices(study.trace, worked=worked, framework=study.framework),
        *note_missing_devices(
            study.trace, study.recording.devices, worked=worked, framework=study.framework
        ),
        *note_contents(study.trace),
        *note_input(
            study.input.first_element,
            study.steps,
            study.summary,
            study.input.iterators,
            study.framework,
            may_be_fed=is_fed(study) and study.input.feeding is None and not has_gap_advice,
        ),
        *note_queues(study),
        *note_files(study),
        *note_threads(study),
        *note_waits(study),
        *note_memory(study.memory.use),
        *study.xla.hlo.complaints,
    ]


def _marking(framework: str) -> str:
    """How steps are marked."""
    return words(
        framework,
        "Mark each iteration as a step, with the recording profiler's marker.",
        tensorflow="Wrap each iteration in `with profnb.step(i):`, or profile a Keras fit or a loop over a "
        "tf.function.",
        sessions="Record each session run with RunMetadata, or profile a cell that calls sess.run.",
        jax="Wrap each iteration in `with jax.profiler.StepTraceAnnotation('train', step_num=i):`.",
        pytorch="Call `step()` of torch.profiler.profile after each iteration, and record CPU activities.",
    )


def note_steps(
    steps: Steps,
    summary: Summary,
    event_count: int,
    framework: str = UNKNOWN,
    window: str = "",
) -> list[str]:
    """Notes on how steps were found and which of them count.

    Args:
        steps: The steps.
        summary: The numbers of the headline.
        event_count: How many events the trace has.
        framework: Whose words to use.
        window: Why there are no steps, where more is known than that.
    """
    notes = []
    if not len(steps):
        return ["The trace has no events: nothing ran while it was recorded."]
    if steps.is_window:
        notes.append(
            window
            or f"No steps among {count_text(event_count)} events: the whole capture is shown as one window. "
            f"{_marking(framework)}"
        )
    elif not steps.origin.startswith("step markers"):
        notes.append(f"The trace has no step markers; steps are {steps.origin}.")
    if summary.all_warm_up and not steps.is_window:
        notes.append(
            f"A function was traced or compiled in {_each_of(len(summary.counted))}, so averages are of "
            "warm-up steps. Run more steps, or look for retracing."
        )
    if summary.iterations > 1:
        notes.append(
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
        notes.append(f"Averages are of {phase} steps. The trace also holds {listed} {plural}.")
    if 0 < len(summary.counted) < 5 and not steps.is_window:
        notes.append(
            f"Only {_steps_text(len(summary.counted))} to average. Run a few more for firmer figures."
        )
    return notes


def _each_of(count: int) -> str:
    return "the only step" if count == 1 else f"every one of the {count_text(count)} steps"


def _steps_text(count: int) -> str:
    return "1 step" if count == 1 else f"{count_text(count)} steps"


def _note_steps_ahead(steps: Steps, *, has_device: bool) -> list[str]:
    """That a step is the device's period, or the programs', where the host does not wait for it."""
    if steps.steps_ahead < 1:
        return []
    if not has_device:
        return [
            f"Python runs {_steps_text(steps.steps_ahead)} ahead of the compiled programs. A step is "
            "counted from the end of one step's programs to the end of the next."
        ]
    return [
        f"The host runs {_steps_text(steps.steps_ahead)} ahead of the device. A step is counted from the "
        "end of one step's device work to the end of the next."
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
    left = cost.fraction
    if clock is not None:
        left -= clock.step_ps / cost.untraced_ps
        note += (
            f" Recording an event took {duration_text(clock.event_ps)}. The times below leave this cost "
            "out."
        )
    if left >= _COSTLY:
        still = "" if clock is None else "still "
        note += (
            f" The times below are {still}{percent_text(left)} too long. Without tracing a {one} takes "
            f"{duration_text(cost.untraced_ps)}."
        )
    return [note]


def note_missing_devices(
    trace: Trace, present: Sequence[str], *, worked: bool, framework: str = UNKNOWN
) -> list[str]:
    """A note if a device was there, or was worked for, and the trace has none.

    Args:
        trace: The trace.
        present: The devices that the framework had while it was recorded, if known.
        worked: Whether anything proves that a device worked.
        framework: Whose words to use.
    """
    if any(plane.is_device for plane in trace.planes):
        return []
    if not worked:
        named = ", ".join(present[:4])
        return [f"Nothing shows that {named} was used while the trace ran."] if present else []
    return [
        f"A device worked, but the trace has none: device times are absent, not zero. "
        f"{_cupti(framework)}"
    ]


def note_devices(trace: Trace, *, worked: bool, framework: str = UNKNOWN) -> list[str]:
    """Notes on device planes on which nothing was recorded.

    Args:
        trace: The trace.
        worked: Whether anything proves that a device worked.
        framework: Whose words to use.
    """
    counts = np.diff(trace.lines.offsets)
    devices = [plane for plane in trace.planes if plane.is_device]
    empty = [
        plane.name for plane in devices if not counts[plane.lines.start : plane.lines.stop].any()
    ]
    if not empty:
        return []
    names = ", ".join(empty[:8]) + (f" and {len(empty) - 8} more" if len(empty) > 8 else "")
    if len(empty) == len(devices) and worked:
        return [
            f"Nothing was recorded on {names} despite work: device times are absent, not zero. "
            f"{_cupti(framework)}"
        ]
    return [
        f"Nothing was recorded on {names}: the program did not use {'it' if len(empty) == 1 else 'them'} "
        "while it was traced."
    ]


def note_memory(uses: Sequence[MemoryUse]) -> list[str]:
    """Memory that grows from step to step, and a device's memory that is nearly full."""
    notes = []
    for use in uses:
        name, limit = use.allocator.name, use.allocator.limit
        if use.growth_bytes > max(_LEAK * use.peak_bytes, 0):
            culprit = f", mostly from {use.growth_op[:100]}" if use.growth_op else ""
            notes.append(
                f"Memory of {name} grows by {bytes_text(use.growth_bytes)} a step{culprit}. Something keeps "
                "tensors: a Python list of losses or outputs, or a new variable in each step. Append "
                "float(x) instead of the tensor."
            )
        if use.allocator.is_device and 0 < limit < use.peak_bytes / _NEARLY_FULL:
            notes.append(
                f"{name} was {percent_text(use.peak_bytes / limit)} full "
                f"({bytes_text(use.peak_bytes)} of {bytes_text(limit)}): a larger batch will not fit."
            )
    return notes


def note_starvation(diagnosis: InputDiagnosis | None) -> list[str]:
    """What starves the steps (of a training, or of whatever ran), and the repair."""
    if diagnosis is None or diagnosis.iterator < 0:
        return []
    bound = "Input-bound" if diagnosis.severity == "high" else "Partly input-bound"
    return [f"{bound}: {diagnosis.sentence} {diagnosis.fix}".rstrip()]


def note_input(
    first: str,
    steps: Steps,
    summary: Summary,
    tree: IteratorTree,
    framework: str = UNKNOWN,
    *,
    may_be_fed: bool = True,
) -> list[str]:
    """What was long in coming, or that the input cannot be seen although it may be what is slow.

    Args:
        first: Why the first element was long in coming, or "".
        steps: The steps.
        summary: The numbers of the headline.
        tree: The iterators of tf.data.
        framework: Whose words to use.
        may_be_fed: Whether steps may have got data from Python at all.
    """
    start = [first] if first else []
    if len(tree) or steps.is_window or not len(steps) or not may_be_fed:
        return start
    gap = sum(share.fraction for share in summary.shares if share.category == GAP)
    if gap < _MOSTLY_GAP:
        return []
    unseen = words(
        framework,
        "and the trace shows no input. A loop, generator or loader in Python may be the cause:",
        tensorflow="and no tf.data iterator ran. A Python loop, generator or DataLoader may fetch the data "
        "unseen:",
    )
    ready = words(
        framework,
        "fetch the next batch while the model works.",
        tensorflow="tf.data with .prefetch(tf.data.AUTOTUNE) fetches while the model works.",
    )
    return [f"{percent_text(gap)} of the time passes between steps, {unseen} {ready}"]


def note_contents(trace: Trace) -> list[str]:
    """What the profiler itself complained about while recording, and what of a file was not read."""
    complaints = [f"The profiler reports: {message[:300]}" for message in trace.messages[:5]]
    if any("drop" in message.lower() for message in trace.messages):
        complaints.append(
            "Events were dropped because a buffer was full, so counts and times are too low. Trace "
            "fewer steps (-n STEPS), or a shorter time (-t SECONDS)."
        )
    return [*complaints, *trace.left_out]
