"""Outputs that ask the kernel: the way there, and the end of what lives behind them.

JupyterLab gives a script in an output no way to the kernel, so two hidden core ipywidgets carry the words:
a text field that the script types the question into, and an HTML widget that holds the answer. In Colab its
own call does, without a widget. ``ask.js`` is the other end.

Controls and timelines that ask the kernel keep their trace. Nobody tells the kernel that an output was
cleared, but a cell that begins to run has lost its old ones, and frontends say which cell it is. Where they
do not, and for cells that are never run again, the oldest are let go when there are too many.
"""

import sys
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from profnb.capture.seams import CELL_ID, EVENTS, REGISTER, UNREGISTER
from profnb.capture.signals import handed_on

_MOST_LIVE = 50
# What marks an output with widgets of ours, so that a saved notebook can be repaired.
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
OURS = "Live controls need the kernel"  # as reports of 0.1 say it; now they are hidden
# What hidden widgets show without a kernel: nothing.
HIDDEN = Markup('<span class="profnb-detail"></span>')


def show_bridge(live_id: str, answer: Callable[[str], str]) -> Any:
    """Make the kernel answer what on a page has this id.

    Shows an output of its own with two hidden widgets; in Colab nothing.

    Args:
        live_id: The id.
        answer: The answer to a question; a page may ask what makes no sense.

    Returns:
        The widgets; None in Colab, where what answers is forgotten with the runtime.
    """
    from IPython.display import JSON, display

    if "google.colab" in sys.modules:
        from google.colab import output

        output.register_callback(
            f"profnb.{live_id}", lambda question: JSON({"answer": str(answer(question))})
        )
        return None
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
    box = widgets.VBox([ask, reply], layout=hidden)
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    # Nothing to see, with a kernel or without one; the script says whether it can ask.
    display({WIDGET_VIEW: view, "text/html": HIDDEN, "text/plain": ""}, raw=True)
    return box


class LiveOutputs:
    """Register of what to close for each cell."""

    def __init__(self, shell: Any) -> None:
        """Nothing lives yet."""
        self._cell: str | None = None
        self._living: list[tuple[str | None, Callable[[], object]]] = []
        register, unregister = (seam.of(EVENTS.of(shell)) for seam in (REGISTER, UNREGISTER))
        self._unregister: Callable[..., object] | None = register and unregister
        if self._unregister is not None:
            register("pre_run_cell", self._cell_begins)

    def __len__(self) -> int:
        return len(self._living)

    def keep(self, close: Callable[[], object]) -> None:
        """Remember how to close what the running cell has shown."""
        self._living.append((self._cell, close))
        while len(self._living) > _MOST_LIVE:
            self._living.pop(0)[1]()

    @handed_on
    def _cell_begins(self, info: Any = None) -> None:
        cell = CELL_ID.of(info)
        if cell is None:  # run by other code, or a frontend that does not say
            return
        self._cell = cell
        replaced = [close for of, close in self._living if of == cell]
        self._living = [(of, close) for of, close in self._living if of != cell]
        for close in replaced:
            close()

    def end(self) -> None:
        """Listen no longer; what lives stays."""
        if self._unregister is not None:
            self._unregister("pre_run_cell", self._cell_begins)


def close_widgets(widget: Any) -> None:
    """Close a widget and all in it, so that nothing of ours is kept by what observed them."""
    looks = (getattr(widget, name, None) for name in ("layout", "style"))
    for part in (*getattr(widget, "children", ()), *looks):
        if hasattr(part, "unobserve_all"):
            close_widgets(part)
    widget.unobserve_all()
    widget.close()
