"""Where we are shown, and what to show there: the one place that knows about frontends.

- A terminal gets plain text only.
- A kernel gets the report (HTML and text, no widget, its charts inside), the script that makes it better
  where scripts run, then two hidden widgets through which its controls ask the kernel.
- Colab has a call of its own for that and gets no widget: any saved widget can make the notebook "Invalid" on
  GitHub (colabtools#5255). There the controls come when asked, by ``profnb.configure(live=True)``.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from markupsafe import Markup

from profnb.capture.cell import loaded_magics
from profnb.capture.seams import KERNEL
from profnb.core.printable import for_terminal, printable
from profnb.core.sharing import Sharing
from profnb.drawing.drawn_tables import note_list
from profnb.drawing.live_outputs import close_widgets
from profnb.drawing.theme import ROOT
from profnb.report.controls import show_controls
from profnb.report.report import Report
from profnb.report.script import script_bundle
from profnb.subjects.study import Study
from profnb.timeline.element import build_timeline, show_live_detail, timeline_script

_ROOT = Markup('<div class="profnb" style="{}">{}</div>')


def is_colab() -> bool:
    """Whether the kernel is a Colab runtime."""
    return "google.colab" in sys.modules


def for_notebooks(show: Callable[[], object]) -> None:
    """Show a value that is a cell's last: in a notebook with its script, which its HTML alone has not.

    Raises:
        NotImplementedError: There is only a terminal; IPython then shows the value's text as any other's.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if KERNEL.of(shell) is None:
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
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    shell: Any = get_ipython()
    if KERNEL.of(shell) is None:
        print(report.text())
        return
    magics = loaded_magics(shell)
    wanted = (live, getattr(magics, "live", None), not is_colab())
    is_live = next(choice for choice in wanted if choice is not None)
    live_id = uuid4().hex if is_live and study is not None and len(study.steps) else ""
    display(report.bundle(live_id), raw=True)
    display(script_bundle(), raw=True)
    if live_id and study is not None:
        box = show_controls(study, live_id)
        if box is not None:
            _keep_until_replaced(magics, partial(close_widgets, box))


def show_timeline(study: Study, notes: Sequence[str], live: bool | None) -> None:
    """Show a timeline under the cell.

    Args:
        study: The trace and what was found in it.
        notes: What the reader should know first.
        live: Whether zooming in may ask the kernel for more; None for what the notebook was
            configured to, and by default yes (Colab needs no widget for it).
    """
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    shell: Any = get_ipython()
    timeline = build_timeline(study)
    if KERNEL.of(shell) is None:
        print("\n".join([*(f"Note: {printable(note)}" for note in notes), timeline.text]))
        return
    magics = loaded_magics(shell)
    asks = _wants_detail(magics, live) and bool(timeline.data)
    timeline_id = uuid4().hex if asks else ""
    above = _ROOT.format(ROOT, note_list(notes)) if notes else Markup("")
    html = str(study.trace.sharing.html(above) + timeline.html(timeline_id))
    display({"text/html": html, "text/plain": timeline.text}, raw=True)
    if timeline.data:
        script = {"application/javascript": timeline_script(), "text/plain": ""}
        display(script, raw=True)
    if asks:
        box = show_live_detail(study, timeline_id)
        if box is not None:
            _keep_until_replaced(magics, partial(close_widgets, box))


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
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    has_kernel = KERNEL.of(shell) is not None
    magics = loaded_magics(shell) if has_kernel else None
    asks = has_kernel and _wants_detail(magics, live)
    names = [uuid4().hex if asks and len(study.trace.events) else "" for study in studies]
    script = {"application/javascript": timeline_script(), "text/plain": ""}
    show_bundles([{"text/html": str(page(names)), "text/plain": text}, script], text)
    for study, name in zip(studies, names, strict=True):
        box = show_live_detail(study, name) if name else None
        if box is not None:
            _keep_until_replaced(magics, partial(close_widgets, box))


def _wants_detail(magics: Any, live: bool | None) -> bool:
    """Whether zooming in may ask the kernel: as wanted, else as the notebook was configured, else yes."""
    wanted = (live, getattr(magics, "live", None), True)
    return next(choice for choice in wanted if choice is not None)


def _keep_until_replaced(magics: Any, close: Callable[[], object]) -> None:
    """Close what was shown when its cell runs again; for ever where the extension is not loaded."""
    outputs = getattr(magics, "live_outputs", None)
    if outputs is not None:
        outputs.keep(close)


def show_bundles(bundles: Sequence[dict[str, Any]], text: str) -> None:
    """Show outputs one after another and the script that upgrades them, or in a terminal their text once."""
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    shell: Any = get_ipython()
    if KERNEL.of(shell) is None:
        print(text)
        return
    for bundle in (*bundles, script_bundle()):
        display(bundle, raw=True)


def show_sentence(sentence: str) -> None:
    """Show one sentence in the cell's output, apart from what the cell printed."""
    from IPython.display import display

    sentence = Sharing().text(sentence)
    text = for_terminal(printable(sentence))
    display({"text/html": str(_ROOT.format(ROOT, sentence)), "text/plain": text}, raw=True)
