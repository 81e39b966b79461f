"""Two timelines under a cell, joined; in a terminal their text."""

from profnb.report.frontend import show_timeline_page
from profnb.subjects.study import Study
from profnb.timeline.element import build_pair


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
