"""Build a report: decide all that it shows of a study, of code without a trace, of a profile of Python."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from profnb.advice.proposals import Advice
from profnb.capture.memory.memory_records import MemoryShortage
from profnb.capture.source.source_records import SourceRecords
from profnb.capture.source.user_code import file_title
from profnb.causes.cell_tree import CellTree
from profnb.causes.python_work import share_around_ops
from profnb.causes.starving import busy_text
from profnb.core.columns import Floats
from profnb.core.units import PS_PER_NS, count_text, counted_text, duration_text
from profnb.drawing.section import Section
from profnb.report import text
from profnb.report.cell_picture import cell_picture, cell_words, longest_text, tree_section
from profnb.report.report import Report
from profnb.report.step_chart import step_chart
from profnb.steps.step_times import StepTimes
from profnb.steps.streams import working_devices
from profnb.steps.summary import GAP
from profnb.subjects import unseen
from profnb.subjects.bounds.section import bounds_sections
from profnb.subjects.core_contention import is_crowded
from profnb.subjects.device.section import device_sections
from profnb.subjects.feeds.feeding import inside_runs_ps, profnb_ps, session_gaps
from profnb.subjects.input.section import input_sections
from profnb.subjects.layers.memory_kinds import KindRow, shown_kinds
from profnb.subjects.layers.section import layer_sections
from profnb.subjects.memory.section import kind_sections, memory_sections
from profnb.subjects.ops.op_execution import find_growth
from profnb.subjects.ops.section import ops_sections
from profnb.subjects.python.python_time import PythonTime
from profnb.subjects.python.section import python_sections
from profnb.subjects.source.section import source_sections
from profnb.subjects.study import Study
from profnb.subjects.xla.section import xla_sections


def build_report(
    study: Study | None,
    *,
    title: str,
    notes: Sequence[str],
    overhead_ps: float | None,
    shortage: MemoryShortage | None = None,
    memory_kinds: Sequence[KindRow] = (),
    tree: CellTree | None = None,
    machine: Sequence[Section] = (),
    has_tensorflow: bool = True,
    advice: Sequence[Advice] = (),
    runs: Sequence[Floats] = (),
    again: str = "",
    times: StepTimes | None = None,
) -> Report:
    """Decide everything the report shows.

    Args:
        study: The trace's analyses; None where there is no trace, which the notes explain.
        title: The report's name.
        notes: What the reader should know first.
        overhead_ps: Time spent starting the profiler and saving the trace; None for a saved trace.
        shortage: The memory that was missing; None where the code did not end for that.
        memory_kinds: What filled the memory.
        tree: The wall time of the cell, or of the recorded window, as a tree; None where there is none.
        machine: What the machine did over the whole cell.
        has_tensorflow: Whether the code had imported TensorFlow.
        advice: What to change.
        runs: The times from step to step of each run, in picoseconds, where the code ran several times.
        times: The steps that were timed, where there is no trace of them.
        again: The line over a cell that measures a change of it; "" where the result has no name.
    """
    ended = "" if shortage is None else text.shortage_text(shortage, memory_kinds)
    filled = kind_sections(shown_kinds(shortage, memory_kinds))
    if study is None:
        return Report(
            title,
            _headline_without_trace(tree, times, has_tensorflow=has_tensorflow),
            alarm=ended,
            **_of_cell(tree, None),
            notes=notes,
            sections=[*([*_tree_sections(tree), *machine] if tree else ()), *filled],
            advice=advice or None,
        )
    steps, summary = study.steps, study.summary
    headline = text.headline_text(study)
    explanation, has_host = _explain_largest(study), unseen.has_thread(study)
    place, several = study.program.device, len(working_devices(study.trace)) > 1
    device = study.trace.planes[place].name if several and place is not None else ""
    answer = text.answer_text(summary, device, has_host=has_host, explanation=explanation)
    if unseen.nothing_ran(study):
        headline, answer = unseen.headline_without_work(study), ""
    elif unseen.is_of_memory(study) and study.memory.use:
        headline, answer = unseen.headline_of_memory(study), ""
    elif study.program.unrecorded_backend or study.program.invokes:
        answer = ""  # a note says why
    has_chart = len(steps) > 0 and not steps.is_window
    return Report(
        title=title,
        headline=headline,
        alarm=ended or text.alarm_text(study),
        unmeasured=text.unmeasured_text(study),
        answer=answer,
        idle=" ".join(filter(None, (answer and text.idle_text(study), busy_text(study)))),
        lead=text.lead_text(study, explanation, has_host=has_host) if answer else "",
        **_of_cell(tree, study),
        facts=[*text.fact_rows(study, overhead_ps), *text.run_facts(runs)],
        shares=text.share_rows(summary.shares) if answer else (),
        notes=notes,
        chart=step_chart(steps, study.breakdown, study.gaps) if has_chart else None,
        sections=[*_sections(study), *filled, *_tree_sections(tree), *machine],
        advice=None if (steps.is_window or not answer) and not advice else advice,
        foot=_foot(study),
        again=again,
        lines=_lines_of(study.recording.source, advice),
    )


def _lines_of(source: SourceRecords | None, advice: Sequence[Advice]) -> dict[str, str]:
    """The text of each line that an advice speaks of, where it was kept."""
    places = {one.where for one in advice if one.where}
    if source is None or not places:
        return {}
    return {
        where: line.strip()
        for file, lines in source.texts.items()
        for number, line in enumerate(lines, 1)
        if line.strip() and (where := f"{file_title(file, source.cells)}:{number}") in places
    }


def _explain_largest(study: Study) -> str:
    """Name the largest part of the time, where more is known than its category tells."""
    largest = study.summary.largest
    if largest is not None and largest.category == "host compute":
        if share_around_ops(study) > largest.fraction / 2:
            whose = "JAX" if study.program.is_jax else "TensorFlow"
            return f"{whose} at work on the CPU, mostly outside of recorded ops"
        crowded = is_crowded(study.recording.core_waits)
        return "ops on the CPU, computing or waiting for a core" if crowded else ""
    return _between(study) if largest is not None and largest.category == GAP else ""


def _between(study: Study) -> str:
    """Name what passes between steps, where that is known."""
    if find_growth(study.recording.graph_versions) is not None:
        return "ops are made, and the session reads the graph"
    feeding = study.input.feeding
    if feeding and feeding.makes_input:
        return "Python making the fed arrays"
    gaps, rows = session_gaps(study), study.summary.counted
    if gaps is None or not rows.size:
        return ""
    parts = {
        "Python between two runs": gaps.gap_ns / gaps.gaps * PS_PER_NS,
        "mostly inside of Session.run, around its ops": inside_runs_ps(study, gaps),
        "mostly profnb, which traces each run by itself": profnb_ps(gaps),
    }
    return max(parts, key=lambda text: parts[text])


def _foot(study: Study) -> str:
    """Say what a reader of the report, the notebook or the page learns besides times."""
    names = "names of ops, layers, threads and devices"
    lines = study.source.lines
    if lines is None or not any(lines.texts.values()):
        return f"Shared, this shows {names}, and no source code."
    return (
        f"Shared, this shows {names}. Your lines of code with ops or Python time are shown, with up to two "
        "lines around each (--no-source hides your code)."
    )


def _headline_without_trace(
    tree: CellTree | None, times: StepTimes | None, *, has_tensorflow: bool
) -> str:
    """Say how long code took that left no trace, or its steps."""
    if tree is None:
        return "Nothing was captured"
    if times is None or not len(times):
        why = "not traced" if has_tensorflow else "none of it in TensorFlow"
        return f"{duration_text(tree.whole_ps)}, {why}"
    phase, count = Counter(times.phase).most_common(1)[0]
    of_phase = np.array(times.phase) == phase
    median = duration_text(float(np.median(times.duration_ps[of_phase])))
    return f"{counted_text(count, f'{phase} step')}, median {median}, not traced"


def _tree_sections(tree: CellTree | None) -> list[Section]:
    return [] if tree is None or len(tree) < 2 else [tree_section(tree)]


def _of_cell(tree: CellTree | None, study: Study | None) -> dict[str, Any]:
    """The sentence and the picture of a tree; none of one that has only the cell itself."""
    if tree is None or len(tree) < 2:
        return {}
    layers = None if study is None else study.layers.table
    words = {} if layers is None else dict(zip(layers.layer, layers.search, strict=True))
    return {
        "cell": cell_words(tree),
        "is_cell": not tree.is_recorded,
        "picture": cell_picture(tree, lambda layer: words.get(layer, "")),
        "longest": longest_text(tree),
    }


def with_cell(report: Report, tree: CellTree, study: Study | None) -> Report:
    """The same report of a cell whose parts have grown since: making the report is one.

    Args:
        report: What was decided before.
        tree: Its tree now.
        study: The trace's analyses; None without a trace.
    """
    made = {one.tab: one for one in _tree_sections(tree)}
    sections = [made.get(one.tab, one) for one in report.sections]
    before, why = report.headline.partition(", ")[::2]
    is_of_cell = report.cell is not None and before in report.cell.head
    headline = f"{duration_text(tree.whole_ps)}, {why}" if is_of_cell else report.headline
    return replace(report, headline=headline, sections=sections, **_of_cell(tree, study))


def _sections(study: Study) -> list[Section]:
    """The tables of every subject, in the order of their tabs."""
    return [
        *ops_sections(study),
        *layer_sections(study.layers.table, study.scope),
        *source_sections(study),
        *python_sections(study.python.time),
        *input_sections(study),
        *device_sections(study),
        *xla_sections(study),
        *bounds_sections(study),
        *memory_sections(study),
    ]


def build_python_report(python: PythonTime, title: str) -> Report:
    """Decide what the report of a profile of Python alone shows."""
    what = f"`{python.kind}` samples" if python.kind else "Python"
    headline = f"{duration_text(python.whole_ps)} of {what} in {count_text(len(python))} functions"
    return Report(title, headline, sections=python_sections(python))
