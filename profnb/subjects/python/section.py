"""Python's time as the report shows it: functions, and who called them as an icicle."""

from profnb.core.units import count_text, duration_text, percent_text
from profnb.drawing.figures import icicle_figure
from profnb.drawing.markup import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of, times_shown
from profnb.drawing.theme import colour_of
from profnb.subjects.python.python_time import PYTHON, PythonTime, function_place, short_name

_SHOWN_FUNCTIONS = 15
_COLOURS = {
    "user code": colour_of("host compute"),
    "library": colour_of("device compute"),
    "library between steps": colour_of("between steps"),
}


def python_sections(python: PythonTime | None) -> list[Section]:
    """Give the table and the chart of Python's functions; none where Python was not sampled."""
    if python is None or not len(python):
        return []
    is_counted = bool((python.occurrences >= 0).any())

    def function(row: int) -> Cell:
        name, *_ = python.function[row]
        return short_name(name), "", function_place(python.function[row], python.cells)

    def colour(row: int) -> str:
        return colour_of("host compute" if python.is_user[row] else "between steps")

    of_steps = ("inside_steps_ms", "between_steps_ms")
    title = "Who called whom (of libraries only the first call)"
    figure = icicle_figure(python.blocks, _COLOURS, title=title, of_what="the time")
    section = section_of(
        PYTHON,
        python,
        (
            Shown("function", function, meaning="the function, and where it stands"),
            *(("occurrences",) if is_counted else ()),
            times_shown(PYTHON, "self_ms", python),
            "total_ms",
            *(times_shown(PYTHON, name, python) for name in of_steps if python.has_steps),
        ),
        title="Functions" if python.kind else "Python",
        tab="Python",
        sentence=_sentence(python, is_counted=is_counted),
        bar=Bar.of(python.self_ps, colour, 8),
        rows=range(min(_SHOWN_FUNCTIONS, len(python))),
        figure=figure if python.blocks else None,
    )
    return [section]


def _sentence(python: PythonTime, *, is_counted: bool) -> str:
    if is_counted or python.kind:
        samples = f" of `{python.kind}` samples" if python.kind else ""
        return f"{count_text(len(python))} functions, {duration_text(python.whole_ps)}{samples} in all."
    text = (
        f"{duration_text(python.whole_ps)} of the main thread, sampled every millisecond, waiting and "
        "TensorFlow's own work included"
    )
    if not python.has_steps or not python.whole_ps:
        return f"{text}."
    between = python.whole_between_ps / python.whole_ps
    return (
        f"{text}: {percent_text(1 - between)} inside steps, {percent_text(between)} between them."
    )
