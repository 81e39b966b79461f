"""Threads on a CPU: how many were set, how many ops were at work at once, and what a report notes of them."""

from profnb.capture.environment import CORES, INTER_OP, INTRA_OP
from profnb.causes.numbers import FEWEST, LONG_OP_PS
from profnb.core.units import count_text, duration_text
from profnb.steps.streams import covered_ps
from profnb.subjects.advising import op_events, period_ps, share_beyond, share_of, spans_of
from profnb.subjects.core_contention import is_crowded, is_crowded_by_others
from profnb.subjects.feeds.feeding import inside_runs_ps, session_gaps
from profnb.subjects.study import Study
from profnb.trace.names import PYTHON_OPS

_LONG_START = 0.1  # of a step's period


def number_set(study: Study, setting: str) -> int:
    """A number that the capture noted of the environment; 0 where there is none."""
    text = study.recording.environment.get(setting, "")
    return int(text) if text.isdecimal() and len(text) < 7 else 0


def threads_at_work(study: Study) -> float:
    """How many of the host's ops ran at once on average, while any did, from the first counted step on."""
    ops = op_events(study, lambda _, op_type: op_type != "Dataset")
    events, counted = study.trace.events, study.summary.counted
    inside = events.begin_ps[ops] >= study.steps.begin_ps[counted[0]]
    inside &= events.end_ps[ops] <= study.steps.end_ps[counted[-1]]
    begin, end = events.begin_ps[ops[inside]], events.end_ps[ops[inside]]
    covered = covered_ps(begin, end)  # of all of them: a validation between the steps has ops too
    return float((end - begin).sum() / covered) if covered else 0.0


def long_ops_share(study: Study) -> float:
    """Share of the time in which ops compute that are long enough for several threads.

    Not while functions of Python run that ops call: they have one thread.
    """
    python = op_events(study, lambda _, op_type: op_type in PYTHON_OPS)
    ops = op_events(study, lambda _, op_type: op_type not in (*PYTHON_OPS, "Dataset"))
    ops = ops[study.trace.events.duration_ps[ops] > LONG_OP_PS]
    busy = share_beyond(study, spans_of(study, ops), spans_of(study, python))
    return min(busy, share_of(study, "host compute"))


def note_threads(study: Study) -> list[str]:
    """How many threads were set where those are more than cores, and runs that wait for one to begin."""
    cores, intra, inter = (number_set(study, name) for name in (CORES, INTRA_OP, INTER_OP))
    notes = []
    thread_settings = [
        f"{count_text(count)} {what}"
        for count, what in ((intra, "for each op (intra-op)"), (inter, "to run ops (inter-op)"))
        if count and cores and count > cores
    ]
    if thread_settings and cores and not study.program.has_device:
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
            f"Threads were set to {' and '.join(thread_settings)}, on {count_text(cores)} cores. More "
            f"threads than cores take turns. `%%tfsweep {sweep}` measures the cost."
        )
    return [*notes, *_note_starts(study, inter or cores)]


def note_waits(study: Study) -> list[str]:
    """That threads waited for a core for half as long as they ran or longer, and whether others had them."""
    waits = study.recording.core_waits
    if not is_crowded(waits):
        return []
    busy = busy_text(study)
    others = (
        f"{busy}. Times below are too long; run again when it is idle."
        if busy
        else "More threads were ready than the machine has cores."
    )
    return [
        f"{others} For each second of running, threads of this process waited "
        f"{count_text(round(waits.waited_fraction, 2))} s for a free core."
    ]


def busy_text(study: Study) -> str:
    """Say that other programs had the cores for which threads waited; "" where they had not."""
    waits = study.recording.core_waits
    if not is_crowded_by_others(waits):
        return ""
    used = f"{waits.others_cores:.1f} of {count_text(waits.cores)} cores"
    return f"The machine was busy: other programs used {used}"


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
    if gaps is None or not fillers or not pool or rows.size < FEWEST:
        return []
    threads = sum(queue.threads for queue in fillers)
    period = period_ps(study) / rows.size
    inside = inside_runs_ps(study, gaps)
    if threads < pool or inside < _LONG_START * period:
        return []
    return [
        f"Each step spends {duration_text(inside)} inside of Session.run around the ops: "
        f"{_threads_fill(threads)} queues with functions of Python. Each function holds one of "
        f"{count_text(pool)} inter-op threads. ConfigProto(inter_op_parallelism_threads={threads + pool}) "
        "for the first session leaves some for the steps."
    ]
