"""Live controls: the breakdown, ops, layers and source lines of any range of steps, while the kernel runs.

Layer C of the design. Only core ipywidgets that work in 7.7.1 and 8 (no Tab, no Output, no custom
widget), driving one HTML widget. Shown as an output of its own after the report, so losing it loses
nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.core.columns import Bools, Int64s
from profnb.core.units import count_text, duration_text
from profnb.drawing.live_outputs import close_widgets
from profnb.drawing.section import Section, section_html
from profnb.drawing.theme import MUTED, ROOT
from profnb.drawing.widget_marks import WIDGET_VIEW, WITHOUT_KERNEL
from profnb.report.forms.as_html import share_table_html
from profnb.report.text import share_rows
from profnb.steps.summary import share_time
from profnb.subjects.layers.section import chosen_layers
from profnb.subjects.ops.op_table import sum_op_runs
from profnb.subjects.ops.section import chosen_section, rows_by_type, rows_of_ops
from profnb.subjects.source.section import chosen_lines
from profnb.subjects.study import Study

__all__ = ["show_controls"]


# What a range of steps can be of, and the rows of each.
_EVERYTHING = "everything"
_SCOPES: dict[str, Callable[[Study], Int64s]] = {
    "steady steps": lambda study: study.summary.counted,
    "warm-up steps": lambda study: study.summary.warm_up,
    "steps of all kinds": lambda study: np.arange(len(study.steps)),
    _EVERYTHING: lambda study: np.arange(len(study.steps)),
}
_OP, _TYPE, _LAYER, _LINE = "by op", "by type", "by layer", "by line"


@dataclass(frozen=True, slots=True)
class _Choice:
    """What of a trace is shown.

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


def show_controls(study: Study) -> Callable[[], None]:
    """Display the controls and the part of the report they drive.

    Returns:
        Closes them, and lets the trace go.
    """
    from IPython.display import display

    controls = _build(study)
    # The widget's own text form is a wall of constructor arguments; say what it is instead, for
    # viewers without a kernel (GitHub, nbconvert, an untrusted notebook).
    html = str(Markup('<div style="{};{}">{}</div>').format(ROOT, MUTED, WITHOUT_KERNEL))
    view = {"version_major": 2, "version_minor": 0, "model_id": controls.model_id}
    bundle = {WIDGET_VIEW: view, "text/html": html, "text/plain": WITHOUT_KERNEL}
    display(bundle, raw=True)
    return partial(close_widgets, controls)


def _build(study: Study) -> Any:
    import ipywidgets as widgets

    last = len(study.steps) - 1
    steps = widgets.IntRangeSlider(
        value=(0, last), min=0, max=max(last, 1), description="steps", continuous_update=False,
        layout={"width": "360px"},
    )  # fmt: skip
    sides = ["all"] + (["host", "device"] if study.ops.table.is_device.any() else [])
    side = None  # a trace of the host alone has no choice
    if len(sides) > 1:
        side = widgets.ToggleButtons(options=sides, value="all", style={"button_width": "64px"})
    group = widgets.Dropdown(options=_groups(study), layout={"width": "96px"})
    scope = widgets.Dropdown(options=list(_SCOPES), layout={"width": "120px"})
    search = widgets.Text(placeholder="search ops", layout={"width": "160px"})
    output = widgets.HTML()

    def update(_: object = None) -> None:
        chosen_side = "all" if side is None else side.value
        part = _part_html(study, steps.value, chosen_side, group.value, search.value, scope.value)
        output.value = str(part)

    shown = [control for control in (steps, scope, side, group, search) if control is not None]
    for control in shown:
        control.observe(update, names="value")
    update()
    row = widgets.HBox(shown, layout={"flex_flow": "row wrap"})
    return widgets.VBox([row, output])


def _part_html(
    study: Study,
    chosen: tuple[int, int],
    side: str,
    group: str,
    search: str,
    scope: str = next(iter(_SCOPES)),
) -> Markup:
    """What the controls ask for: the mean step, and what ran, of the steps from first to last (inclusive)."""
    choice = _choose(study, chosen, scope)
    if not choice.rows.size:
        return Markup('<div style="{}">no such steps in this range</div>').format(MUTED)
    section, found = _section_of(study, choice, side, group, search.lower().split())
    shares = share_time(study.gaps, study.breakdown, choice.rows)
    durations = study.steps.duration_ps[choice.rows]
    head = f"{choice.words}, median {duration_text(float(np.median(durations)))}; {found}"
    return Markup('<div style="{}"><div style="{}">{}</div>{}{}</div>').format(
        ROOT,
        MUTED,
        head,
        share_table_html(share_rows(shares)),
        "" if section is None else section_html(section),
    )


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
    words = f"everything, {count_text(rows.size)} steps and what ran between and around them"
    times = None if every else (np.array([begin_ps]), np.array([end_ps]))
    return _Choice(rows, of_steps | beside, of_steps | beside, times, words)


def _groups(study: Study) -> list[str]:
    """What there is to show: ops always, layers and lines where any are known."""
    lines = study.source.lines
    has_layers = chosen_layers(study.layers.table, "", ()) is not None
    has_lines = lines is not None and any(lines.file)
    return [_OP, _TYPE, *([_LAYER] if has_layers else []), *([_LINE] if has_lines else [])]


def _section_of(
    study: Study, choice: _Choice, side: str, group: str, words: list[str]
) -> tuple[Section | None, str]:
    """The table that is asked for, and what it holds in words."""
    if group == _LAYER:
        table = study.layers.table_of(choice.rows, choice.of_steps)
        return chosen_layers(table, choice.words, words), "layers"
    if group == _LINE:
        lines = study.source.lines_of(choice.within, choice.times_ps)
        return None if lines is None else chosen_lines(lines, choice.words, words), "lines"
    shown = [
        op
        for op in rows_of_ops(sum_op_runs(study.ops.runs, choice.within))
        if side in ("all", op.side)
        and all(word in f"{op.remark} {op.name}".lower() for word in words)
    ]
    if group == _TYPE:
        shown = rows_by_type(shown)
    section = replace(chosen_section(shown), sentence=f"Of {choice.words}.")
    return section, f"{count_text(len(shown))} {'types' if group == _TYPE else 'ops'}"
