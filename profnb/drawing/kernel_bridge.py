"""Questions from a script in an output to the kernel, and the answers.

JupyterLab gives such a script no way to the kernel, so two hidden core ipywidgets carry the words: a text
field that the script types the question into, and an HTML widget that holds the answer. In Colab its own
call does, without a widget. ``ask.js`` is the other end.
"""

import sys
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from profnb.drawing.widget_marks import HIDDEN, WIDGET_VIEW


def show_bridge(live_id: str, answer: Callable[[str], str]) -> Any:
    """Make the kernel answer what on a page has this id.

    Shows an output of its own with two hidden widgets; in Colab nothing.

    Args:
        live_id: The id.
        answer: The answer to a question; a page may ask what makes no sense.

    Returns:
        The widgets; None in Colab, where what answers is forgotten with the runtime.
    """
    if "google.colab" in sys.modules:
        _register_in_colab(live_id, answer)
        return None
    from IPython.display import display

    box = _build(live_id, answer)
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    # Nothing to see, with a kernel or without one; the script says whether it can ask.
    display({WIDGET_VIEW: view, "text/html": HIDDEN, "text/plain": ""}, raw=True)
    return box


def _build(live_id: str, answer: Callable[[str], str]) -> Any:
    import ipywidgets as widgets

    hidden = {"display": "none"}
    ask = widgets.Text(continuous_update=True, layout=hidden)
    reply = widgets.HTML(layout=hidden)
    ask.add_class(f"profnb-ask-{live_id}")
    reply.add_class(f"profnb-reply-{live_id}")

    def reply_to(change: dict[str, Any]) -> None:
        number, _, question = str(change["new"]).partition(" ")
        said = Markup('<i data-number="{}" data-answer="{}"></i>')
        reply.value = str(said.format(number, str(answer(question))))

    ask.observe(reply_to, names="value")
    return widgets.VBox([ask, reply], layout=hidden)


def _register_in_colab(live_id: str, answer: Callable[[str], str]) -> None:
    from google.colab import output
    from IPython.display import JSON

    def reply_to(question: str) -> Any:
        return JSON({"answer": str(answer(question))})

    output.register_callback(f"profnb.{live_id}", reply_to)
