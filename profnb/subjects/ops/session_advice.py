"""What loops of TensorFlow 1 do beside training: summaries in each step, checkpoints; pools of threads."""

from profnb.capture.environment import CORES, INTER_OP, INTRA_OP
from profnb.capture.parts.part_records import CHECKPOINTING, LOADING, CellPart
from profnb.core.units import PS_PER_NS, count_text, duration_text, percent_text
from profnb.subjects.advising import Finding, cell_ps, cell_share_text, op_events
from profnb.subjects.covered_time import covered_share, period_ps
from profnb.subjects.crowded import is_crowded, is_crowded_by_others
from profnb.subjects.feeds.feeding import inside_runs_ps, session_gaps
from profnb.subjects.study import Study
from profnb.trace.names import PYTHON_OPS

__all__ = ["checkpoints_often", "note_threads", "note_waits", "summaries_each_step"]

_SUMMARY_OPS = (
    "ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary", "TensorSummary",
    "TensorSummaryV2", "MergeSummary",
)  # fmt: skip
_WRITES = ("add_summary", "SummarySaverHook.")
_LEAST_SHARE, _FEWEST_STEPS = 0.05, 5
_LONG_START = 0.1  # of a step's period
_LINK = "https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/"


def summaries_each_step(study: Study) -> Finding | None:
    """More than half of the session runs make summaries, and that takes 5 % of the time or more."""
    counted, gaps = study.summary.counted, session_gaps(study)
    if gaps is None or counted.size < _FEWEST_STEPS:
        return None
    ops = op_events(study, lambda _, op_type: op_type in _SUMMARY_OPS)
    steps = set(study.groups.step[ops].tolist()) & set(counted.tolist())
    if len(steps) * 2 <= counted.size:
        return None
    making = covered_share(study, ops)
    written = sum(place.wall_ns for place in gaps.places if any(w in place.text for w in _WRITES))
    each_ps = written * 1000 / max(gaps.gaps, 1)
    writing = each_ps * counted.size / (period_ps(study) or 1)
    share = min(making + writing, 1.0)
    if share < _LEAST_SHARE:
        return None
    return Finding(
        "summaries", "Write summaries less often",
        f"{count_text(len(steps))} of {count_text(counted.size)} session runs make summaries: their ops take "
        f"{percent_text(making)} of the time"
        + (f", and writing them {duration_text(each_ps)} a run." if each_ps else "."),
        share,
        "Make them every 100 steps: save_summaries_steps=100 of MonitoredTrainingSession, or fetch the "
        "merged summary only if step % 100 == 0. Histograms and images cost most.",
        f"{_LINK}SummarySaverHook",
    )  # fmt: skip


def checkpoints_often(study: Study) -> Finding | None:
    """Checkpoints are saved once in a hundred session runs, three times or more, for 5 % of the cell.

    Saves that are so long that they are pauses count too, so the cell is what they are a share of.
    """
    cell, gaps, counted = study.recording.cell, session_gaps(study), study.summary.counted.size
    if cell is None or gaps is None or counted < _FEWEST_STEPS or study.steps.is_window:
        return None
    saves = [
        part
        for part in cell.parts
        if part.part == CHECKPOINTING and not part.name.endswith(LOADING) and part.occurrences
    ]
    often, took_ns = sum(p.occurrences for p in saves), sum(p.wall_ns for p in saves)
    whole_ps = cell_ps(study)
    share = min(took_ns * PS_PER_NS / whole_ps, 1.0) if whole_ps else 0.0
    if often < 3 or share < _LEAST_SHARE:
        return None
    if often * 100 < gaps.gaps:
        return None
    return Finding(
        "checkpoints", "Save less often",
        f"{_times(saves)} checkpoints in {count_text(gaps.runs)} session runs took "
        f"{duration_text(took_ns * 1000)}{_each(saves)}: "
        f"{cell_share_text(study, share)}.",
        share,
        "Save every few minutes: save_checkpoint_secs=600 of MonitoredTrainingSession, or saver.save(..., "
        "write_meta_graph=False) once in 1,000 steps; the graph need be written only once.",
        f"{_LINK}Saver",
        is_of_cell=True,
    )  # fmt: skip


def _times(parts: list[CellPart]) -> str:
    """How often they ran: "12", or "at least 12" where looks alone say so."""
    at_least = "" if all(part.is_counted for part in parts) else "at least "
    return at_least + count_text(sum(part.occurrences for part in parts))


def _each(parts: list[CellPart]) -> str:
    """What each took, behind what all did; "" where nobody knows how many there were."""
    if not all(part.is_counted for part in parts):
        return ""
    often, took_ns = sum(p.occurrences for p in parts), sum(p.wall_ns for p in parts)
    return f", {duration_text(took_ns * PS_PER_NS / often)} each"


def note_threads(study: Study) -> list[str]:
    """How many threads were set where those are more than cores, and runs that wait for one to begin."""
    cores, intra, inter = (_set_to(study, name) for name in (CORES, INTRA_OP, INTER_OP))
    notes = []
    thread_settings = [
        f"{count_text(count)} {what}"
        for count, what in ((intra, "for each op (intra-op)"), (inter, "to run ops (inter-op)"))
        if count and cores and count > cores
    ]
    if thread_settings and cores and not study.has_device:
        pools = [
            p
            for p, n in (("intra_op_threads", intra), ("inter_op_threads", inter))
            if n and n > cores
        ]
        sweep = " ".join(
            f"{p}={cores},{n}"
            for p, n in zip(pools, (n for n in (intra, inter) if n and n > cores), strict=True)
        )
        notes.append(
            f"Threads were set to {' and '.join(thread_settings)}; there are {count_text(cores)} cores, and "
            f"threads that compute at once take turns. What that costs here, `%%tfsweep {sweep}` measures."
        )
    return [*notes, *_note_starts(study, inter or cores)]


def note_waits(study: Study) -> list[str]:
    """That threads waited for a core for half as long as they ran or longer, and whether others had them."""
    waits = study.recording.core_waits
    if not is_crowded(waits):
        return []
    others = (
        f"Other programs had {waits.others_cores:.1f} of the {count_text(waits.cores)} cores meanwhile: run "
        "it again while they rest to see what it takes alone."
        if is_crowded_by_others(waits)
        else "More threads were ready than there are cores."
    )
    return [
        f"For each second that threads of this process ran while it was traced, they waited "
        f"{count_text(round(waits.waited_fraction, 2))} s for a free core; an op that waits counts as "
        f"computing. {others}"
    ]


def _set_to(study: Study, setting: str) -> int:
    """A number of the environment; 0 where none was told."""
    setting_text = study.recording.environment.get(setting, "")
    return int(setting_text) if setting_text.isdecimal() and len(setting_text) < 7 else 0


def _threads_fill(count: int) -> str:
    return "1 thread fills" if count == 1 else f"{count_text(count)} threads fill"


def _note_starts(study: Study, pool: int) -> list[str]:
    """That session runs wait for a thread before their first op, while Python functions hold as many."""
    gaps, rows = session_gaps(study), study.summary.counted
    fillers = [
        q
        for q in study.input.queues
        if q.threads and any(op in PYTHON_OPS for op in q.record.sources)
    ]
    if gaps is None or not fillers or not pool or rows.size < _FEWEST_STEPS:
        return []
    threads = sum(queue.threads for queue in fillers)
    period = period_ps(study) / rows.size
    inside = inside_runs_ps(study, gaps)
    if threads < pool or inside < _LONG_START * period:
        return []
    return [
        f"Of each step {duration_text(inside)} pass inside of Session.run before its first op or after its "
        f"last: {_threads_fill(threads)} queues with functions of Python, each of which holds one "
        f"of {count_text(pool)} inter-op threads while it runs. ConfigProto(inter_op_parallelism_threads="
        f"{threads + pool}) of the process's first session leaves some for the steps."
    ]
