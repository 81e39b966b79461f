"""The report in words: sentences and rows that the HTML and the terminal share.

Where the time goes is said shortly for the terminal (`answer_text`), and on a page with the reason
(`lead_text`). The lead's numbers are those of the tables below it: idle time by cause (``p.idle``), shares of
the typical step, and of the ops' own time (the op table by type).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profnb.capture.memory.memory_records import CPU, MemoryShortage
from profnb.core.columns import Floats
from profnb.core.printable import LONGEST_NAME, printable, quoted
from profnb.core.units import (
    PS_PER_NS,
    PS_PER_S,
    bar_text,
    bytes_text,
    count_text,
    counted_text,
    duration_text,
    examples_text,
    longer_text,
    percent_text,
    range_text,
)
from profnb.report.notes import note_contents, note_devices
from profnb.steps.streams import working_devices
from profnb.steps.summary import GAP, GAP_WORK, OTHERS, Share, Summary
from profnb.steps.untraced import TracingCost
from profnb.steps.windows import GAP_KINDS, PAUSE
from profnb.subjects.advising import window_of
from profnb.subjects.cell.cell_breakdown import epoch_behind, find_gap_cause
from profnb.subjects.device.devices import is_mixed_precision
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.layers.memory_kinds import KindRow, rows_of, sums_by_kind
from profnb.subjects.ops.op_execution import find_growth
from profnb.subjects.study import Study
from profnb.trace.names import plain_type

THROUGHPUT = "throughput"
_HALF = 0.5  # from there on it is "most"
_FEWEST_FOR_P95 = 20  # steps: of fewer the slowest in 20 is none
_TELLING_COST = 0.05
_MOST_KINDS = 4  # of memory
_MUCH_LONGER = 1.5
_WORTH_A_FACT, _WORTH_NAMING = 0.01, 0.1
# What of the time a device is idle, of that a cause takes, and of the ops' time a kind, to be named first;
# and a second cause, of what the first takes.
_IDLE_MUCH, _LEAST_CAUSE, _LEAST_OP, _SHARE_OF_FIRST = 0.1, 0.05, 0.1, 1 / 3
_ABSENT, _DROPPED = "absent, not zero", "Events were dropped"  # as notes say it
MEANINGS = {
    "device compute": "kernels running on the device",
    "device to device": "copies within or between devices",
    "device collectives": "devices or workers exchanging data and waiting",
    "host compute": "ops computing on the CPU",
    "kernel launch": "the host preparing and launching the device's work",
    "input": "waiting for the next batch, or copying it to the device",
    "output": "copying results to the host, or waiting for results",
    "compilation": "XLA compiling, or functions being traced",
    OTHERS: "no op active: mostly Python",
    GAP: "callbacks, metrics, fetching data, other Python",
    GAP_WORK: "a new iterator of the input is made before each step",
}
_IDLE_CLAUSES = {
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


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of the headline row: what, how much, and a remark that qualifies it."""

    name: str
    value: str
    remark: str = ""


def alarm_text(study: Study) -> str:
    """Say what is more important than where the time went; nothing where nothing is."""
    growth = find_growth(study.recording.graph_versions)
    if growth is not None:
        runs = f"{count_text(growth[0])} of {count_text(len(study.recording.graph_versions))}"
        return f"The graph grows in the loop: {runs} session runs found new ops."
    if not study.device.unused:
        return ""
    mixed = ", and mixed precision is slow on a CPU" if is_mixed_precision(study) else ""
    return f"This training does not use the GPU{mixed}."


def shortage_text(shortage: MemoryShortage, kinds: Sequence[KindRow]) -> str:
    """Say whose memory ran out and where, what was asked for, what there was, and what filled it."""
    whose = "The process" if shortage.device == CPU else shortage.device or "The device"
    sums = sums_by_kind(rows_of(shortage, kinds))
    in_use = max(shortage.in_use_bytes, sum(sums.values()) - max(shortage.unused_bytes, 0))
    said = [f"{whose} ran out of memory" + (f" at {shortage.where}." if shortage.where else ".")]
    asked = bytes_text(shortage.asked_bytes) if shortage.asked_bytes >= 0 else ""
    had, of = "", f"of {bytes_text(shortage.limit_bytes)} " if shortage.limit_bytes >= 0 else ""
    if shortage.free_bytes >= 0:
        had = f"{bytes_text(shortage.free_bytes)} {of}were free"
    elif in_use > 0:
        of = f"{of}({shortage.limit_of}) " if of and shortage.limit_of else of
        had = f"{bytes_text(in_use)} {of}were in use"
    by = f" by {quoted(shortage.op)}" if shortage.op else ""
    facts = "; ".join(filter(None, (asked and f"{asked} were asked for{by}", had)))
    said += [f"{facts}."] if facts else []
    parts = [f"{kind} {bytes_text(size)}" for kind, size in sums.items()]
    said += [f"In use: {', '.join(parts[:_MOST_KINDS])}."] if parts else []
    return " ".join(said)


def headline_text(study: Study) -> str:
    """Count the steps and say how long one takes, in one line; first without tracing, where that costs.

    Where a step and the gap behind it take much longer than the step, that is said too: shares are of both.
    """
    steps, summary = study.steps, study.summary
    if summary.median_ps is None:
        return "Nothing was recorded"
    if steps.is_window:
        untraced = len(study.recording.steps)
        none = f"None of {counted_text(untraced, 'step')} was traced"
        what = none if untraced else "No steps found"
        return f"{what}; {duration_text(summary.median_ps)} of activity in one window"
    count = len(summary.counted)
    phase = "" if summary.phase == "step" else f"{steps.title_of(summary.phase)} "
    aside = _aside_text(steps.duration_ps[summary.aside].tolist())
    if count == 1:
        return f"1 {phase}step, {duration_text(summary.median_ps)}{aside}"
    _, median = _typical_step(study)
    return f"{count_text(count)} {phase}steps, median {median}{aside}"


def _typical_step(study: Study) -> tuple[float, str]:
    """Give the time that the headline says a step takes, or that one comes every, and its words for that."""
    summary, program = study.summary, study.program
    cost = None if study.clock else study.tracing_cost
    median_ps = summary.median_ps or 0.0
    median = duration_text(median_ps)
    is_timed_alike = not program.runs_sessions and not program.is_eager
    if cost is not None and is_timed_alike and _is_all_of_tracing(median_ps, cost):
        untraced = duration_text(cost.untraced_ps)
        return cost.untraced_ps, f"{untraced} without tracing ({median} traced)"
    if summary.mean_period_ps >= _MUCH_LONGER * median_ps:  # what the answer speaks of
        period = duration_text(summary.mean_period_ps)
        return summary.mean_period_ps, f"{median}, one every {period}"
    return median_ps, median


def _is_all_of_tracing(median_ps: float, cost: TracingCost) -> bool:
    """Tell whether a typical traced step is slower than an untraced one by the cost of tracing alone.

    The cost is of neighbours; where the traced steps were slow for another reason (a cold cache), most of
    the difference is no tracing.
    """
    longer = median_ps / max(cost.untraced_ps, 1) - 1
    return cost.fraction >= _TELLING_COST and 0 < longer <= cost.high


def _aside_text(durations_ps: Sequence[int]) -> str:
    """Say which steps are left out because they took many times as long."""
    if not durations_ps:
        return ""
    if len(durations_ps) == 1:
        return f" (one step of {duration_text(durations_ps[0])} aside)"
    spread = range_text(duration_text(min(durations_ps)), duration_text(max(durations_ps)))
    return f" ({count_text(len(durations_ps))} steps of {spread} aside)"


def answer_text(
    summary: Summary, device: str = "", *, has_host: bool = True, explanation: str = ""
) -> str:
    """Say where the time goes, in one sentence.

    Args:
        summary: The numbers of the headline.
        device: Whose work it speaks of, where several devices worked.
        has_host: Whether the thread of the steps was recorded.
        explanation: What the largest part is, where more is known than its category tells.
    """
    largest = summary.largest
    if largest is None:
        return ""
    part = "Most of it" if largest.fraction >= _HALF else "The largest part"
    where = f", seen from {device}," if device else ""
    sentence = f"{part}{where} is {largest.category}, {percent_text(largest.fraction)}"
    meaning = explanation or _meaning(largest.category, has_host=has_host)
    return f"{sentence} ({meaning})." if meaning else f"{sentence}."


def _meaning(category: str, *, has_host: bool) -> str:
    if category == OTHERS and not has_host:
        return "nothing that could explain it was recorded"
    return MEANINGS.get(category, "")


def lead_text(study: Study, explanation: str, *, has_host: bool) -> str:
    """Say where the time goes, and why, in one sentence; "" where nothing is known of it.

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
    if said := idle_text(study):
        return said
    how_much = "Most" if largest.fraction >= _HALF else "The largest part"
    meaning = _why(study, largest.category, explanation, has_host=has_host)
    return f"{how_much} of a step is {largest.category}, {percent_text(largest.fraction)}{meaning}."


def idle_text(study: Study) -> str:
    """Say how long the busiest device was idle, and what the host did then; "" below a tenth of the time."""
    idle = study.device.idle
    if idle is None or idle.total_ps.sum() < _IDLE_MUCH * idle.window_ps:
        return ""
    whole, window = int(idle.total_ps.sum()), idle.window_ps
    order = np.argsort(-idle.total_ps, kind="stable")[:2].tolist()
    causes = [(IDLE_CAUSES[row], int(idle.total_ps[row])) for row in order]
    (first, first_ps), (second, second_ps) = causes
    name = idle.device.removeprefix("/device:").partition(":")[0]
    several = len(working_devices(study.trace))
    device = f"The {name if name in ('GPU', 'TPU') else 'device'}"
    if several > 1:
        device = f"The busiest of {several} devices"
    said = f"{device} is idle {percent_text(whole / window)} of the time"
    if first not in _IDLE_CLAUSES:
        return f"{said}; why was not recorded."
    is_most = first_ps >= _HALF * whole
    how = "mostly because" if is_most else "most often because"
    said += f", {how} {_IDLE_CLAUSES[first]} ({percent_text(first_ps / window)})"
    is_worth_it = second_ps >= max(_LEAST_CAUSE * window, _SHARE_OF_FIRST * first_ps)
    if second in _IDLE_CLAUSES and is_worth_it and not is_most:
        said += f". Second cause: {_IDLE_CLAUSES[second]} ({percent_text(second_ps / window)})"
    return f"{said}."


def _why(study: Study, category: str, explanation: str, *, has_host: bool) -> str:
    """Give the reason for the largest part of a step: what it waits for, or its largest op."""
    diagnosis = study.input.diagnosis
    if category == "input" and diagnosis is not None and diagnosis.limit:
        return f": {diagnosis.limit}"
    meaning = explanation or _meaning(category, has_host=has_host)
    said = f" ({meaning})" if meaning else ""
    if category not in ("device compute", "host compute"):
        return said
    return said + _largest_kind(study, on_device=category == "device compute")


def _largest_kind(study: Study, *, on_device: bool) -> str:
    """The type of op that takes most of its side's own time in the steps, and how much."""
    ops = study.ops.steady
    rows = np.flatnonzero((ops.is_device == on_device) & (ops.self_ps > 0))
    whole = int(ops.self_ps[rows].sum())
    sums = Counter[str]()
    for row in rows.tolist():
        sums[ops.op_type[row] or ops.op_name[row]] += int(ops.self_ps[row])
    if len(sums) < 2:
        return ""
    ((kind, took),) = sums.most_common(1)
    if took < _LEAST_OP * whole or not kind:
        return ""
    name = printable(plain_type(kind))[:LONGEST_NAME]
    return f"; {name} takes {percent_text(took / whole)} of the ops' time"


def unmeasured_text(study: Study) -> str:
    """Say what was not recorded although it happened, if that is more important than what was."""
    backend = study.program.unrecorded_backend
    only_steps = f"{backend}'s work was not recorded: only the time of a step is known."
    notes = [only_steps] if backend else []
    notes += [note for note in note_devices(study) if _ABSENT in note]
    notes += [note for note in note_contents(study.trace) if note.startswith(_DROPPED)]
    return " ".join(note.partition(". ")[0].rstrip(".") + "." for note in notes)


def fact_rows(study: Study, overhead_ps: float | None) -> list[Fact]:
    """The figures of the headline, each with its spread or its reason for being absent.

    Args:
        study: The analyses.
        overhead_ps: Time spent starting the profiler and saving the trace; None for a saved trace.
    """
    steps, summary = study.steps, study.summary
    if summary.median_ps is None or steps.is_window:
        return []
    facts = _time_facts(study)
    if summary.examples_per_second is not None and summary.batch_size is not None:
        a_step_ps, _ = _typical_step(study)
        rate = summary.batch_size * summary.iterations / a_step_ps * PS_PER_S
        remark = f"batch size {count_text(summary.batch_size)}, at the step time of the headline"
        facts.append(Fact(THROUGHPUT, examples_text(rate), remark))
    if summary.warm_up.size and not summary.all_warm_up:
        count, warm_ps = len(summary.warm_up), steps.duration_ps[summary.warm_up]
        remark = f"{count} left out of averages; first step {duration_text(float(warm_ps[0]))}"
        facts.append(Fact("warm-up", duration_text(float(warm_ps.sum())), remark))
    facts.extend(_facts_between(study))
    facts.append(_cost_fact(study, overhead_ps))
    return facts


def _facts_between(study: Study) -> list[Fact]:
    """The figures of what is no part of a step: the time between epochs, and pauses."""
    facts, steps, gaps = [], study.steps, study.gaps
    ends, pauses = gaps.between_epochs, gaps.long
    are_told = pauses.size > 0 and bool(np.isin(ends, pauses).all())  # below, with their cause
    between_ps = float(gaps.duration_ps[ends].sum())
    if ends.size and not are_told and between_ps >= _WORTH_A_FACT * window_of(study):
        about = "between passes over the data, each with a new iterator; not part of a step"
        gaps_text = counted_text(ends.size, "gap")
        facts.append(Fact("between epochs", duration_text(between_ps), f"{gaps_text} {about}"))
    if pauses.size:
        longest = int(pauses[gaps.duration_ps[pauses].argmax()])
        took = duration_text(float(gaps.duration_ps[longest]))
        where = f"after {steps.phase[longest]} step {steps.step_num[longest]}"
        what = f", {GAP_KINDS[gaps.kind[longest]]}" if gaps.kind[longest] != PAUSE else ""
        epoch = epoch_behind(study, longest)
        what = f", at the end of epoch {epoch}" if epoch else what
        cause = find_gap_cause(study, longest)
        if cause is not None:
            what += f": {duration_text(cause.wall_ps)} of it {cause.text}"
        count = count_text(pauses.size)
        remark = f"{count}, outside of the steps; the longest {took}, {where}{what}"
        facts.append(Fact("pauses", duration_text(float(gaps.duration_ps[pauses].sum())), remark))
    return facts


def _time_facts(study: Study) -> list[Fact]:
    """The figures of a step's time: of few steps only what few can tell."""
    summary = study.summary
    if len(summary.counted) == 1:
        return [Fact("step time", duration_text(summary.median_ps), "of one step")]
    low, high = summary.quartiles_ps or (None, None)
    spread = f"middle half {range_text(duration_text(low), duration_text(high))}"
    facts = [Fact("step time, median", duration_text(summary.median_ps), spread)]
    if len(summary.counted) + len(summary.aside) >= _FEWEST_FOR_P95:
        p95 = duration_text(summary.p95_ps)
        facts.append(Fact("step time, p95", p95, "19 of 20 steps are faster"))
    facts.append(Fact("between steps", duration_text(summary.median_gap_ps), _gap_remark(study)))
    return facts


def _gap_remark(study: Study) -> str:
    """Qualify the time between steps; name profnb's part of it from a tenth on."""
    summary, own_ps = study.summary, study.recording.marking_ns * PS_PER_NS
    gap_ps = summary.median_gap_ps or 0.0
    if study.program.runs_sessions or not max(_WORTH_NAMING * gap_ps, 1) <= own_ps <= gap_ps:
        return "median"
    return f"median; profnb's marking of the steps takes {duration_text(own_ps)} of it"


def run_facts(runs: Sequence[Floats]) -> list[Fact]:
    """The figure of how far apart runs of the same code are; nothing for one run."""
    medians = [float(np.median(steps)) for steps in runs if len(steps)]
    if len(medians) < 2:
        return []
    spread = range_text(duration_text(min(medians)), duration_text(max(medians)))
    remark = f"median steps of {len(medians)} untraced runs, {spread}"
    return [Fact("from run to run", duration_text(float(np.median(medians))), remark)]


def _cost_fact(study: Study, overhead_ps: float | None) -> Fact:
    """The figure of what tracing cost.

    Args:
        study: The analyses.
        overhead_ps: Time spent starting the profiler and saving the trace; None for a saved trace.
    """
    program, times, tracing_cost = study.program, study.step_times, study.tracing_cost
    passes = "passes" if program.is_eager else "steps"
    what = "calls of Session.run" if program.runs_sessions else passes
    traced = f"{count_text(int(times.was_traced.sum()))} of {count_text(len(times))}"
    once = "" if overhead_ps is None else f"; starting and saving took {duration_text(overhead_ps)}"
    if program.is_eager and study.recording.closed_by is not None and times.first_ns is None:
        return Fact("steps traced", count_text(len(times)), f"later ones were not timed{once}")
    if tracing_cost is None:
        why = "all traced, so what tracing costs is unknown"
        if not times.was_traced.all():
            why = "as fast as the untraced ones beside them"
        return Fact("steps traced", traced, f"{why}{once}")
    interval = longer_text(tracing_cost.low, tracing_cost.high)
    remark = (
        f"95 % interval {interval}; untraced {what} take {duration_text(tracing_cost.untraced_ps)}; "
        f"{traced} traced{once}"
    )
    return Fact("tracing cost", longer_text(tracing_cost.fraction), remark)


def share_rows(shares: Sequence[Share]) -> list[tuple[str, str, str, str]]:
    """One row per category: name, bar, mean per step, share."""
    return [
        (s.category, bar_text(s.fraction), duration_text(s.mean_ps), percent_text(s.fraction))
        for s in shares
    ]
