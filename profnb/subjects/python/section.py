"""Where Python's time went, as the report shows it: functions, and who called them as an icicle."""

from typing import Any

from profnb.core.units import bar_text, count_text, duration_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import figure_text
from profnb.drawing.section import Section
from profnb.drawing.theme import colour_of
from profnb.subjects.python.python_time import CallBlock, Function, PythonTime
from profnb.subjects.source.section import file_title

__all__ = ["python_sections"]

_SHOWN_FUNCTIONS = 15
_LONGEST = 160
_CHARACTERS = 96  # of a block as wide as the chart, at a usual width


def python_sections(python: PythonTime | None, cells: dict[str, int]) -> list[Section]:
    """The table and the chart of Python's functions; none where Python was not sampled.

    Args:
        python: Python's functions.
        cells: The number of the cell that a file stands for.
    """
    if python is None or not len(python):
        return []
    shown = range(min(_SHOWN_FUNCTIONS, len(python)))
    most = int(python.self_ps[0]) or 1
    steps = ("inside steps", "between steps") if python.has_steps else ()
    counted = bool((python.calls >= 0).any())
    rows = []
    for row in shown:
        name, *_ = python.function[row]
        split = (python.inside_ps[row], python.between_ps[row]) if python.has_steps else ()
        rows.append(
            (
                bar_text(float(python.self_ps[row] / most), 8),
                (_short_name(name), "", _place(python.function[row], cells)),
                *((count_text(int(python.calls[row])),) if counted else ()),
                duration_text(int(python.self_ps[row])) if python.self_ps[row] else "",
                duration_text(int(python.total_ps[row])),
                *(duration_text(int(part)) if part else "" for part in split),
            )
        )
    calls = ("calls",) if counted else ()
    return [
        Section(
            title="Python",
            sentence=_sentence(python, is_counted=counted),
            headings=("", "function", *calls, "self", "total", *steps),
            rows=rows,
            numbers=(False, False, *(True for _ in (*calls, "self", "total", *steps))),
            colours=[
                colour_of("host compute" if python.is_user[row] else "between steps")
                for row in shown
            ],
            tab="Python",
            figure=call_figure(python, cells) if python.blocks else None,
        )
    ]


def _short_name(name: str) -> str:
    return name.replace(".<locals>", "")[-_LONGEST:]


def _place(function: Function, cells: dict[str, int]) -> str:
    name, file, line = function
    if file.startswith("~") or not file:
        return "built in"
    title = file_title(file, cells)
    return title if name == "<module>" else f"{title}:{line}"


def _sentence(python: PythonTime, *, is_counted: bool) -> str:
    if is_counted:
        return f"{count_text(len(python))} functions, {duration_text(python.whole_ps)} in all."
    inside, between = _split_of(python)
    text = (
        f"{duration_text(python.whole_ps)} of the main thread, sampled every millisecond, waiting and "
        "TensorFlow's own work included"
    )
    if not python.has_steps or not python.whole_ps:
        return f"{text}."
    return (
        f"{text}: {percent_text(inside / python.whole_ps)} inside steps, "
        f"{percent_text(between / python.whole_ps)} between them."
    )


def _split_of(python: PythonTime) -> tuple[int, int]:
    outermost = [block for block in python.blocks if block.level == 0]
    between = sum(block.between_ps for block in outermost)
    return sum(block.total_ps for block in outermost) - between, between


def call_figure(python: PythonTime, cells: dict[str, int]) -> dict[str, Any]:
    """Who called whom, as an icicle: bars under bars, as wide as their share of the time.

    plotly's own icicle is not in the bundle that notebooks load, stacked bars are; they zoom by
    dragging.
    """
    levels = max(block.level for block in python.blocks) + 1
    data = []
    for level in range(levels):
        own = [block for block in python.blocks if block.level == level]
        data.append(
            {
                "type": "bar", "orientation": "h", "showlegend": False,
                "y": [level] * len(own), "base": [round(100 * block.begin, 4) for block in own],
                "x": [round(100 * block.width, 4) for block in own],
                "text": [figure_text(_label(block)) for block in own],
                "textposition": "inside", "insidetextanchor": "middle", "constraintext": "none",
                "textangle": 0, "insidetextfont": {"color": "#fff", "size": 11},
                "customdata": [figure_text(_told(block, cells, python)) for block in own],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {
                    "color": [_colour(block, python) for block in own],
                    "line": {"width": 1, "color": "rgba(255,255,255,0.6)"},
                },
            }
        )  # fmt: skip
    layout = figure_layout("Who called whom (inside libraries only what was called)", 0)
    layout |= {
        "height": 90 + 26 * levels,
        "barmode": "overlay",
        "bargap": 0.06,
        "margin": {"l": 12, "r": 12, "t": 34, "b": 40},
        "xaxis": {**axis("% of the time"), "range": [0, 100], "showgrid": False},
        "yaxis": {**axis(""), "range": [levels - 0.5, -0.5], "visible": False},
    }
    return {"data": data, "layout": layout, "config": {"displaylogo": False}}


def _label(block: CallBlock) -> str:
    room = int(block.width * _CHARACTERS)
    name = block.function[0].rpartition(".<locals>.")[2]
    if name == "<module>":
        name = "your code"
    if len(name) <= room:
        return name
    return name[: room - 1] + "…" if room > 3 else ""


def _told(block: CallBlock, cells: dict[str, int], python: PythonTime) -> str:
    name = f"{_short_name(block.function[0])} ({_place(block.function, cells)})"
    text = f"{name}: {duration_text(block.total_ps)}, {percent_text(block.width)}"
    if python.has_steps and block.total_ps:
        text += f", {percent_text(block.between_ps / block.total_ps)} of it between steps"
    return text


def _colour(block: CallBlock, python: PythonTime) -> str:
    """The user's own code, a library inside steps, a library between steps."""
    if block.is_user:
        return colour_of("host compute")
    is_between = python.has_steps and 2 * block.between_ps > block.total_ps
    return colour_of("between steps" if is_between else "device compute")
