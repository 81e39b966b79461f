"""Two timelines under a cell, joined; in a terminal their text."""

from functools import partial
from typing import Any
from uuid import uuid4

from profnb.drawing.live_outputs import close_widgets
from profnb.report.frontend import show_bundles
from profnb.subjects.study import Study
from profnb.timeline.element import timeline_script
from profnb.timeline.live import show_live_detail
from profnb.timeline.pair import build_pair

__all__ = ["show_pair"]


def show_pair(first: Study, second: Study, labels: tuple[str, str], *, live: bool | None) -> None:
    """Show two traces on one axis of time.

    Args:
        first: The one.
        second: The other.
        labels: What to call them.
        live: Whether zooming in may ask the kernel for more; None for what the notebook was configured to.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    has_kernel = getattr(shell, "kernel", None) is not None
    magics = shell.magics_manager.registry.get("ProfnbMagics") if has_kernel else None
    wanted = next((c for c in (live, getattr(magics, "live", None)) if c is not None), True)
    pair = build_pair(first, second, labels)
    one, two = (uuid4().hex if wanted and has_kernel and side.data else "" for side in pair.sides)
    page = {"text/html": str(pair.html((one, two))), "text/plain": pair.text}
    script = {"application/javascript": timeline_script(), "text/plain": ""}
    show_bundles([page, script], pair.text)
    outputs = getattr(magics, "live_outputs", None)
    for study, timeline_id in ((first, one), (second, two)):
        box = show_live_detail(study, timeline_id) if timeline_id else None
        if box is not None and outputs is not None:
            outputs.keep(partial(close_widgets, box))
