"""Show reports and timelines where we are: the one place that knows about frontends.

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
from profnb.drawing.live_outputs import close_widgets, show_bridge
from profnb.drawing.theme import ROOT
from profnb.report.controls import show_controls
from profnb.report.report import Report, report_script
from profnb.subjects.study import Study
from profnb.timeline.element import (
    build_pair,
    build_timeline,
    show_live_detail,
    timeline_script,
)

_ROOT = Markup('<div class="profnb" style="{}">{}</div>')


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


def show_pair(first: Study, second: Study, labels: tuple[str, str], *, live: bool | None) -> None:
    """Show two traces on one axis of time.

    Args:
        first: The one.
        second: The other.
        labels: What to call them.
        live: Whether zooming in may ask the kernel for more; None for what the notebook was configured to.
    """
    pair = build_pair(first, second, labels)
    show_timeline_page((first, second), pair.html, pair.text, live)


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
    name = uuid4().hex
    html = f'<div data-answers="{name}">{bundle["text/html"]}</div>'
    show_bundles([{**bundle, "text/html": html}], text)
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
    return {"application/javascript": script, "text/plain": ""}


def _keep_until_replaced(shell: Any, box: Any) -> None:
    """Close widgets when their cell runs again; never where there are none or profnb is not loaded."""
    outputs = getattr(loaded_magics(shell), "live_outputs", None)
    if box is not None and outputs is not None:
        outputs.keep(partial(close_widgets, box))
