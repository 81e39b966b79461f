"""Questions from a timeline in the browser to the kernel, and the answers.

A saved timeline holds what fits; while the kernel lives, zooming in asks for the events of the window.
JupyterLab gives a script in an output no way to the kernel, so two core ipywidgets carry the words: a text
field that the script types the question into, and an HTML widget that holds the answer. In Colab its own
call does, without a widget.
"""

import sys
from base64 import b64encode
from typing import Any

import numpy as np
from markupsafe import Markup

from profnb.drawing.widget_marks import HIDDEN, WIDGET_VIEW
from profnb.subjects.study import Study
from profnb.timeline.pack import event_details, pack_timeline, unit_of
from profnb.timeline.scene import Scene

__all__ = ["answer_question", "show_live_detail"]

_MOST_MARKS, _MOST_DETAILS = 30_000, 500
_FARTHEST_PS = 1 << 62


def answer_question(scene: Scene, question: str) -> str:
    """What a timeline's script asked, as text.

    Args:
        scene: The trace, what was found in it, and its lanes.
        question: ``hello``; ``window FROM TO`` for the packed marks of a window in base64; or
            ``event ROW BEGIN`` for the stats of the event that begins there. Times are in the
            timeline's units.

    Returns:
        The answer; "" for a question that makes no sense, which a page may ask.
    """
    if question == "hello":
        return "here"
    kind, *numbers = question.split() or [""]
    if len(numbers) != 2 or not all(n.lstrip("-").isdecimal() and len(n) < 16 for n in numbers):
        return ""
    first, second = int(numbers[0]), int(numbers[1])
    begin_ps, unit_ps = unit_of(scene)
    if kind == "window":
        ends = (begin_ps + first * unit_ps, begin_ps + max(second, first + 1) * unit_ps)
        window = tuple(min(max(end, -_FARTHEST_PS), _FARTHEST_PS) for end in ends)
        packed = pack_timeline(scene, _MOST_MARKS, _MOST_DETAILS, (window[0], window[1]))
        return b64encode(packed.data).decode("ascii")
    if kind == "event":
        events = scene.study.trace.events
        matches = np.flatnonzero(
            (scene.lanes.lane == first) & ((events.begin_ps - begin_ps) // unit_ps == second)
        )
        return event_details(scene, int(matches[0])) if matches.size else ""
    return ""


def show_live_detail(study: Study, timeline_id: str) -> Any:
    """Make the kernel answer the timeline of this id.

    Shows an output of its own with two hidden widgets; in Colab nothing.

    Returns:
        The widgets; None in Colab, where what answers is forgotten with the runtime.
    """
    scene = Scene(study)
    if "google.colab" in sys.modules:
        _register_in_colab(scene, timeline_id)
        return None
    from IPython.display import display

    box = _build(scene, timeline_id)
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    # Nothing to see, with a kernel or without one; the viewer says whether it can ask.
    display({WIDGET_VIEW: view, "text/html": HIDDEN, "text/plain": ""}, raw=True)
    return box


def _build(scene: Scene, timeline_id: str) -> Any:
    import ipywidgets as widgets

    hidden = {"display": "none"}
    ask = widgets.Text(continuous_update=True, layout=hidden)
    reply = widgets.HTML(layout=hidden)
    ask.add_class(f"profnb-ask-{timeline_id}")
    reply.add_class(f"profnb-reply-{timeline_id}")

    def answer(change: dict[str, Any]) -> None:
        number, _, question = str(change["new"]).partition(" ")
        said = Markup('<i data-number="{}" data-answer="{}"></i>')
        reply.value = str(said.format(number, answer_question(scene, question)))

    ask.observe(answer, names="value")
    return widgets.VBox([ask, reply], layout=hidden)


def _register_in_colab(scene: Scene, timeline_id: str) -> None:
    from google.colab import output
    from IPython.display import JSON

    def answer(question: str) -> Any:
        return JSON({"answer": answer_question(scene, question)})

    output.register_callback(f"profnb.{timeline_id}", answer)
