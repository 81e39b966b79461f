"""Show reports and timelines where we are: the one place that knows about frontends.

- A terminal gets plain text only.
- A kernel gets the report (HTML and text, no widget, its charts inside), the script that makes it better
  where scripts run, then two hidden widgets through which its controls ask the kernel.
- Colab has a call of its own for that and gets no widget: any saved widget can make the notebook "Invalid" on
  GitHub (colabtools#5255). There the controls come when asked, by ``profnb.configure(live=True)``.

The controls ask for the report of any range of steps and any scope. What they ask for takes the place of what
the report shows of all steps, so nothing is shown twice and losing them loses nothing.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from markupsafe import Markup

from profnb.capture.cell import loaded_magics
from profnb.capture.seams import KERNEL
from profnb.core.columns import Bools, Int64s
from profnb.core.printable import for_terminal, printable
from profnb.core.sharing import Sharing
from profnb.core.units import count_text, counted_text, duration_text
from profnb.drawing.live_outputs import close_widgets, show_bridge
from profnb.drawing.markup import note_list, without_controls
from profnb.drawing.programs import packed
from profnb.drawing.section import Section
from profnb.drawing.theme import ROOT
from profnb.report.report import Report, live_parts, report_script
from profnb.report.step_chart import step_chart
from profnb.report.text import share_rows
from profnb.steps.summary import share_time
from profnb.subjects.layers.section import layer_sections
from profnb.subjects.ops.op_table import sum_op_runs
from profnb.subjects.ops.section import ops_section
from profnb.subjects.source.section import chosen_lines
from profnb.subjects.study import Study
from profnb.timeline.element import build_timeline, show_live_detail, timeline_script

_ROOT = Markup('<div class="profnb" style="{}">{}</div>')
# What a range of steps can be of, and the rows of each.
_EVERYTHING = "everything"
_ROWS_OF_SCOPE: dict[str, Callable[[Study], Int64s]] = {
    "steady steps": lambda study: study.summary.counted,
    "warm-up steps": lambda study: study.summary.warm_up,
    "steps of all kinds": lambda study: np.arange(len(study.steps)),
    _EVERYTHING: lambda study: np.arange(len(study.steps)),
}
_NONE = "none"


def for_notebooks(show: Callable[[], object]) -> None:
    """Show a value that is a cell's last: in a notebook with its script, which its HTML alone has not.

    Raises:
        NotImplementedError: There is only a terminal; IPython then shows the value's text as any other's.
    """
    if _kernel_shell() is None:
        raise NotImplementedError
    show()


def show_report(report: Report, study: Study | None, live: bool | None) -> None:
    """Show a report under the cell.

    Args:
        report: The report.
        study: The analyses that the controls ask again; None without a trace.
        live: Whether to add controls that work while the kernel lives; None for what the notebook
            was configured to, and by default everywhere but in Colab.
    """
    shell = _kernel_shell()
    if shell is None:
        print(report.text())
        return
    is_live = _is_live(shell, live, default="google.colab" not in sys.modules)
    live_id = uuid4().hex if is_live and study is not None and len(study.steps) else ""
    show_bundles([report.bundle(live_id)])
    if live_id and study is not None:
        _keep_until_replaced(shell, show_controls(study, live_id))


def show_timeline(study: Study, notes: Sequence[str], live: bool | None) -> None:
    """Show a timeline under the cell.

    Args:
        study: The trace and what was found in it.
        notes: What the reader should know first.
        live: Whether zooming in may ask the kernel for more; None for what the notebook was
            configured to, and by default yes (Colab needs no widget for it).
    """
    from IPython.display import display

    shell = _kernel_shell()
    timeline = build_timeline(study)
    if shell is None:
        print("\n".join([*(f"Note: {printable(note)}" for note in notes), timeline.text]))
        return
    timeline_id = uuid4().hex if timeline.data and _is_live(shell, live, default=True) else ""
    above = _ROOT.format(ROOT, note_list(notes)) if notes else Markup("")
    html = str(study.trace.sharing.html(above) + timeline.html(timeline_id))
    display({"text/html": html, "text/plain": timeline.text}, raw=True)
    if timeline.data:
        display(_script_bundle(timeline_script()), raw=True)
    if timeline_id:
        _keep_until_replaced(shell, show_live_detail(study, timeline_id))


def show_timeline_page(
    studies: Sequence[Study], page: Callable[[Sequence[str]], Markup], text: str, live: bool | None
) -> None:
    """Show a page with the timelines of several studies, or in a terminal its text.

    Args:
        studies: What each of the N timelines is of.
        page: Makes the page of what its script calls each timeline when it asks the kernel for more, N
            names; "" never asks.
        text: The page as plain text.
        live: Whether zooming in may ask the kernel; None for what the notebook was configured to.
    """
    shell = _kernel_shell()
    asks = shell is not None and _is_live(shell, live, default=True)
    names = [uuid4().hex if asks and len(study.trace.events) else "" for study in studies]
    html = {"text/html": str(page(names)), "text/plain": text}
    show_bundles([html, _script_bundle(timeline_script())], text)
    for study, name in zip(studies, names, strict=True):
        if name:
            _keep_until_replaced(shell, show_live_detail(study, name))


def show_bundles(bundles: Sequence[dict[str, Any]], text: str = "") -> None:
    """Show outputs one after another and the script that upgrades them, or in a terminal their text once."""
    from IPython.display import display

    if _kernel_shell() is None:
        print(text)
        return
    for bundle in (*bundles, _script_bundle(report_script())):
        display(bundle, raw=True)


def show_answering(bundle: dict[str, Any], text: str, answer: Callable[[str], str] | None) -> None:
    """Show an output, or in a terminal its text; what is clicked in it the kernel answers, with HTML.

    Args:
        bundle: The output.
        text: The same as plain text.
        answer: The answer to a question; None where there is nothing to ask.
    """
    shell = _kernel_shell()
    if answer is None or shell is None or not _is_live(shell, None, default=True):
        show_bundles([bundle], text)
        return
    name, body = uuid4().hex, without_controls(bundle["text/html"])
    html = Markup('<div data-answers="{}">{}</div>').format(name, body)
    show_bundles([{**bundle, "text/html": str(html)}], text)
    _keep_until_replaced(shell, show_bridge(name, answer))


def show_sentence(sentence: str) -> None:
    """Show one sentence in the cell's output, apart from what the cell printed."""
    from IPython.display import display

    sentence = Sharing().text(sentence)
    text = for_terminal(printable(sentence))
    display({"text/html": str(_ROOT.format(ROOT, sentence)), "text/plain": text}, raw=True)


def _kernel_shell() -> Any:
    """The notebook's shell; None in a terminal."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return None if KERNEL.of(shell) is None else shell


def _is_live(shell: Any, live: bool | None, *, default: bool) -> bool:
    """As it was asked for, else as the notebook was configured, else the default."""
    wanted = (live, getattr(loaded_magics(shell), "live", None), default)
    return next(choice for choice in wanted if choice is not None)


def _script_bundle(script: str) -> dict[str, str]:
    """A script as an output of its own, with nothing to see where it does not run."""
    return {"application/javascript": packed(script), "text/plain": ""}


def _keep_until_replaced(shell: Any, box: Any) -> None:
    """Close widgets when their cell runs again; never where there are none or profnb is not loaded."""
    outputs = getattr(loaded_magics(shell), "live_outputs", None)
    if box is not None and outputs is not None:
        outputs.keep(partial(close_widgets, box))


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
        return "\n".join([" ".join(map(str, study.steps.step_num.tolist())), *_ROWS_OF_SCOPE])
    numbers = question.split()
    if len(numbers) != 3 or not all(n.isdecimal() and len(n) < 10 for n in numbers):
        return ""
    first, last, scope = map(int, numbers)
    if scope >= len(_ROWS_OF_SCOPE):
        return ""
    choice = _choose(study, (first, last), list(_ROWS_OF_SCOPE)[scope])
    return _NONE if choice is None else str(live_parts(_report_of(study, choice)))


def _report_of(study: Study, choice: _Choice) -> Report:
    """The report of these steps, as far as it is of some steps."""
    steps, breakdown, gaps = study.steps, study.breakdown, study.gaps
    median = duration_text(float(np.median(steps.duration_ps[choice.rows])))
    return Report(
        title="",
        headline=f"Of {choice.words}, median {median}",
        shares=share_rows(share_time(gaps, breakdown, choice.rows)),
        chart=None if steps.is_window else step_chart(steps, breakdown, gaps, choice.rows),
        sections=_sections_of(study, choice),
    )


def _choose(study: Study, chosen: tuple[int, int], scope: str) -> _Choice | None:
    """The steps of a scope in a range, if any; of everything also what lies between and around them."""
    first, last = chosen
    rows = _ROWS_OF_SCOPE[scope](study)
    rows = rows[(rows >= first) & (rows <= last)]
    if not rows.size:
        return None
    of_steps = study.events_of(rows)
    if scope != _EVERYTHING:
        words, within = f"{count_text(rows.size)} {scope}", of_steps | study.runs_beside(rows)
        return _Choice(rows, within, of_steps, study.loop_times(rows), words)
    ends = study.steps.host_begin_ps[1:]  # a range of everything ends where the next step begins
    begin_ps = 0 if first == 0 else int(study.steps.host_begin_ps[first])
    end_ps = int(ends[last]) if last < ends.size else np.iinfo(np.int64).max
    begins = study.trace.events.begin_ps
    within = of_steps | (study.groups.step < 0) & (begins >= begin_ps) & (begins < end_ps)
    words = f"everything ({counted_text(rows.size, 'step')}, and the time between and around)"
    is_whole = rows.size == len(study.steps)
    times = None if is_whole else (np.array([begin_ps]), np.array([end_ps]))
    return _Choice(rows, within, within, times, words)


def _sections_of(study: Study, choice: _Choice) -> list[Section]:
    """The tables on ops, layers and lines, of what was chosen."""
    sections = []
    ops = sum_op_runs(study.ops.runs, choice.within)
    if len(ops):
        sections.append(ops_section(ops, choice.words, study.layers.names, study.layers.callers))
    sections += layer_sections(study.layers.table_of(choice.rows, choice.of_steps), choice.words)
    lines = study.source.lines_of(choice.within, choice.times_ps)
    if lines is not None and any(lines.file):
        sections.append(chosen_lines(lines, choice.words))
    return sections
