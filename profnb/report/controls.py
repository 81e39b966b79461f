"""The report of any range of steps and any scope, while the kernel runs: what its controls ask for.

Layer C of the design. The controls stand in the report, made by its script where the kernel answers; what
they ask for takes the place of what the report shows of all steps, so nothing is shown twice and losing them
loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.core.units import count_text, counted_text, duration_text
from profnb.drawing.live_outputs import show_bridge
from profnb.drawing.section import Section
from profnb.report.report import live_parts
from profnb.report.step_chart import step_chart
from profnb.report.text import share_rows
from profnb.steps.summary import share_time
from profnb.subjects.layers.section import sections_of_layers
from profnb.subjects.ops.op_table import sum_op_runs
from profnb.subjects.ops.section import ops_section, rows_of_ops
from profnb.subjects.source.section import chosen_lines
from profnb.subjects.study import Study

# What a range of steps can be of, and the rows of each.
_EVERYTHING = "everything"
_SCOPES: dict[str, Callable[[Study], Int64s]] = {
    "steady steps": lambda study: study.summary.counted,
    "warm-up steps": lambda study: study.summary.warm_up,
    "steps of all kinds": lambda study: np.arange(len(study.steps)),
    _EVERYTHING: lambda study: np.arange(len(study.steps)),
}
_NONE = "none"


@dataclass(frozen=True, slots=True)
class _Choice:
    """The steps and events of a trace that are shown.

    Attributes:
        rows: The steps.
        within: Which events count, shape (E,): theirs, and what runs for no step beside them.
        of_steps: Which of them belong to the steps.
        times_ps: Begins and ends of what Python's time is of; None for the whole capture.
        words: What that is.
    """

    rows: Int64s
    within: Bools
    of_steps: Bools
    times_ps: tuple[Int64s, Int64s] | None
    words: str


def show_controls(study: Study, live_id: str) -> Any:
    """Make the kernel answer the report of this id.

    Returns:
        What lives on; None in Colab.
    """
    return show_bridge(live_id, partial(answer_choice, study))


def answer_choice(study: Study, question: str) -> str:
    """Answer a report's script, in text.

    Args:
        study: The analyses.
        question: ``hello`` for the number of each step; or ``FIRST LAST SCOPE``: rows of steps, the last
            included, and the place of a scope among those there are.

    Returns:
        Numbers and scopes, or the parts of the report; "none" where no step is of that choice; "" for a
        question that makes no sense, which a page may ask.
    """
    if question == "hello":
        return "\n".join([" ".join(map(str, study.steps.step_num.tolist())), *_SCOPES])
    numbers = question.split()
    if len(numbers) != 3 or not all(n.isdecimal() and len(n) < 10 for n in numbers):
        return ""
    first, last, scope = map(int, numbers)
    if scope >= len(_SCOPES):
        return ""
    choice = _choose(study, (first, last), list(_SCOPES)[scope])
    return str(_parts_of(study, choice)) if choice.rows.size else _NONE


def _parts_of(study: Study, choice: _Choice) -> str:
    """The parts of the report that are of some steps, of these."""
    shares = share_time(study.gaps, study.breakdown, choice.rows)
    durations = study.steps.duration_ps[choice.rows]
    scope = f"Of {choice.words}, median {duration_text(float(np.median(durations)))}"
    rows = share_rows(shares)
    steps, breakdown, gaps = study.steps, study.breakdown, study.gaps
    chart = None if steps.is_window else step_chart(steps, breakdown, gaps, choice.rows)
    return live_parts(scope, rows, chart, _sections_of(study, choice))


def _choose(study: Study, chosen: tuple[int, int], scope: str) -> _Choice:
    """The steps of a scope in a range; of everything also what lies between and around them."""
    first, last = chosen
    rows = _SCOPES[scope](study)
    rows = rows[(rows >= first) & (rows <= last)]
    if not rows.size:
        none = np.zeros(len(study.trace.events), np.bool_)
        return _Choice(rows, none, none, None, "")
    of_steps = study.events_of(rows)
    if scope != _EVERYTHING:
        words = f"{count_text(rows.size)} {scope}"
        return _Choice(
            rows, of_steps | study.runs_beside(rows), of_steps, study.loop_times(rows), words
        )
    ends = study.steps.host_begin_ps[1:]  # a range of everything ends where the next step begins
    every = rows.size == len(study.steps)
    begin_ps = 0 if first == 0 else int(study.steps.host_begin_ps[first])
    end_ps = int(ends[last]) if last < ends.size else np.iinfo(np.int64).max
    begins = study.trace.events.begin_ps
    beside = (study.groups.step < 0) & (begins >= begin_ps) & (begins < end_ps)
    words = f"everything, {counted_text(rows.size, 'step')} and all between and around"
    times = None if every else (np.array([begin_ps]), np.array([end_ps]))
    return _Choice(rows, of_steps | beside, of_steps | beside, times, words)


def _sections_of(study: Study, choice: _Choice) -> list[Section]:
    """The tables on ops, layers and lines, of what was chosen."""
    sections = []
    ops = rows_of_ops(sum_op_runs(study.ops.runs, choice.within))
    if ops:
        sections.append(ops_section(ops, choice.words, study.layers.names))
    sections += sections_of_layers(
        study.layers.table_of(choice.rows, choice.of_steps), choice.words
    )
    lines = study.source.lines_of(choice.within, choice.times_ps)
    if lines is not None and any(lines.file):
        sections.append(chosen_lines(lines, choice.words))
    return sections
