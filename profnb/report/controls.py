"""Live controls: the breakdown and ops of any range of steps, while the kernel runs.

Layer C of the design. Only core ipywidgets that work in 7.7.1 and 8 (no Tab, no Output, no custom
widget), driving one HTML widget. Shown as an output of its own after the report, so losing it loses
nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.core.columns import Int64s
from profnb.core.units import count_text, duration_text
from profnb.drawing.live_outputs import close_widgets
from profnb.drawing.section import section_html
from profnb.drawing.theme import MUTED, ROOT
from profnb.drawing.widget_marks import WIDGET_VIEW, WITHOUT_KERNEL
from profnb.report.forms.as_html import share_table_html
from profnb.report.text import share_rows
from profnb.steps.summary import share_time
from profnb.subjects.ops.op_table import sum_op_runs
from profnb.subjects.ops.section import chosen_section, rows_by_type, rows_of_ops
from profnb.subjects.study import Study

__all__ = ["show_controls"]


# What a range of steps can be of, and the rows of each.
_SCOPES: dict[str, Callable[[Study], Int64s]] = {
    "steady steps": lambda study: study.summary.counted,
    "warm-up steps": lambda study: study.summary.warm_up,
    "steps of all kinds": lambda study: np.arange(len(study.steps)),
}


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
    group = widgets.Dropdown(options=["by op", "by type"], layout={"width": "96px"})
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
    """What the controls ask for: mean step and ops of the steps from first to last (inclusive)."""
    first, last = chosen
    rows = _SCOPES[scope](study)
    rows = rows[(rows >= first) & (rows <= last)]
    if not rows.size:
        return Markup('<div style="{}">no such steps in this range</div>').format(MUTED)
    words = search.lower().split()
    shown = [
        op
        for op in rows_of_ops(
            sum_op_runs(study.ops.runs, study.events_of(rows) | study.runs_beside(rows))
        )
        if side in ("all", op.side)
        and all(word in f"{op.remark} {op.name}".lower() for word in words)
    ]
    if group == "by type":
        shown = rows_by_type(shown)
    shares = share_time(study.gaps, study.breakdown, rows)
    durations = study.steps.duration_ps[rows]
    head = (
        f"{count_text(rows.size)} {scope}, "
        f"median {duration_text(float(np.median(durations)))}; "
        f"{count_text(len(shown))} {'types' if group == 'by type' else 'ops'}"
    )
    return Markup('<div style="{}"><div style="{}">{}</div>{}{}</div>').format(
        ROOT,
        MUTED,
        head,
        share_table_html(share_rows(shares)),
        section_html(chosen_section(shown)),
    )
