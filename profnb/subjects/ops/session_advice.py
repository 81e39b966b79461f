"""What loops of TensorFlow 1 do beside training: summaries in each step, checkpoints; pools of threads."""

from profnb.capture.environment import CORES, INTER_OP, INTRA_OP
from profnb.capture.parts.part_records import CHECKPOINTING, IMPORTS, PROFNB
from profnb.core.units import count_text, duration_text, percent_text
from profnb.subjects.advising import Advice, cell_share_text, covered_share, op_events, period_ps
from profnb.subjects.feeds.feeding import session_gaps
from profnb.subjects.study import Study

__all__ = ["checkpoints_often", "note_threads", "summaries_each_step"]

_SUMMARY_OPS = (
    "ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary", "TensorSummary",
    "TensorSummaryV2", "MergeSummary",
)  # fmt: skip
_WRITES = ("add_summary", "SummarySaverHook.")
_LEAST_SHARE, _FEWEST_STEPS = 0.05, 5
_PYTHON_OPS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_LONG_START = 0.1  # of a step's period
_LINK = "https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/"


def summaries_each_step(study: Study) -> Advice | None:
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
    return Advice(
        "summaries", "Write summaries less often",
        f"{count_text(len(steps))} of {count_text(counted.size)} session runs make summaries: their ops take "
        f"{percent_text(making)} of the time"
        + (f", and writing them {duration_text(each_ps)} a run." if each_ps else "."),
        share,
        "Make them every 100 steps: save_summaries_steps=100 of MonitoredTrainingSession, or fetch the "
        "merged summary only if step % 100 == 0. Histograms and images cost most.",
        f"{_LINK}SummarySaverHook",
    )  # fmt: skip


def checkpoints_often(study: Study) -> Advice | None:
    """Checkpoints are saved between session runs, three times or more, for 5 % of the cell's time or more.

    Saves that are so long that they are pauses count too, so the cell is what they are a share of.
    """
    cell, gaps, counted = study.recording.cell, session_gaps(study), study.summary.counted.size
    if cell is None or gaps is None or counted < _FEWEST_STEPS:
        return None
    saves = [
        part for part in cell.parts if part.part == CHECKPOINTING and part.name.endswith("save")
    ]
    often, took_ns = sum(p.occurrences for p in saves), sum(p.wall_ns for p in saves)
    whole_ns = sum(p.wall_ns for p in cell.parts if p.part not in (IMPORTS, PROFNB))
    share = min(took_ns / whole_ns, 1.0) if whole_ns else 0.0
    if often < 3 or often * 100 < gaps.gaps or share < _LEAST_SHARE:
        return None
    return Advice(
        "checkpoints", "Save less often",
        f"{count_text(often)} checkpoints in {count_text(gaps.runs)} session runs took "
        f"{duration_text(took_ns * 1000)}, {duration_text(took_ns * 1000 / often)} each: "
        f"{cell_share_text(study, share)}.",
        share,
        "Save every few minutes: save_checkpoint_secs=600 of MonitoredTrainingSession, or saver.save(..., "
        "write_meta_graph=False) once in 1,000 steps; the graph need be written only once.",
        f"{_LINK}Saver",
    )  # fmt: skip


def note_threads(study: Study) -> list[str]:
    """How many threads were set where those are more than cores, and runs that wait for one to begin."""
    cores, intra, inter = (_set_to(study, name) for name in (CORES, INTRA_OP, INTER_OP))
    notes = []
    told = [
        f"{count_text(count)} {what}"
        for count, what in ((intra, "for each op (intra-op)"), (inter, "to run ops (inter-op)"))
        if count and cores and count > cores
    ]
    if told and cores and not study.has_device:
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
            f"Threads were set to {' and '.join(told)}; there are {count_text(cores)} cores, and threads "
            f"that compute at once take turns. What that costs here, `%%tfsweep {sweep}` measures."
        )
    return [*notes, *_note_starts(study, inter or cores)]


def _set_to(study: Study, setting: str) -> int:
    """A number of the environment; 0 where none was told."""
    told = study.recording.environment.get(setting, "")
    return int(told) if told.isdecimal() and len(told) < 7 else 0


def _threads_fill(count: int) -> str:
    return "1 thread fills" if count == 1 else f"{count_text(count)} threads fill"


def _note_starts(study: Study, pool: int) -> list[str]:
    """That session runs wait for a thread before their first op, while Python functions hold as many."""
    gaps, rows = session_gaps(study), study.summary.counted
    fillers = [
        q
        for q in study.input.queues
        if q.threads and any(op in _PYTHON_OPS for op in q.record.sources)
    ]
    if gaps is None or not fillers or not pool or rows.size < _FEWEST_STEPS:
        return []
    threads = sum(queue.threads for queue in fillers)
    period = period_ps(study) / rows.size
    between = float(study.gaps.own_ps[rows].sum()) / rows.size
    inside = between - gaps.gap_ns / gaps.gaps * 1000
    if threads < pool or inside < _LONG_START * period:
        return []
    return [
        f"Of each step {duration_text(inside)} pass inside of Session.run before its first op or after its "
        f"last: {_threads_fill(threads)} queues with functions of Python, each of which holds one "
        f"of {count_text(pool)} inter-op threads while it runs. ConfigProto(inter_op_parallelism_threads="
        f"{threads + pool}) of the process's first session leaves some for the steps."
    ]
