"""One output under the cell that is written anew while code runs, and empty when that is over.

It stands where it was first shown, in front of what the code prints, so that the code's own outputs stay as
they are and in one piece. It is no widget (those stay in the saved notebook), and an output cannot be taken
back alone; an empty one shows nothing (one without any data would make nbconvert warn). What is shown goes
to the kernel's own publisher: where the code has put another in its place, to keep what is displayed, it
finds nothing of ours.
"""

from typing import Any
from uuid import uuid4

from profnb.capture.seams import KERNEL, PUBLISH, PUBLISHER, SOCKET

EMPTY = {"text/html": "", "text/plain": ""}


class Slot:
    """One output of a notebook's cell.

    Args:
        publish: The kernel's way to display something.
    """

    def __init__(self, publish: Any) -> None:
        """Show an empty one."""
        self._publish, self._id = publish, uuid4().hex
        self._send(EMPTY, is_update=False)

    def show(self, html: str, text: str) -> None:
        """Write it anew; any thread may."""
        self._send({"text/html": html, "text/plain": text}, is_update=True)

    def clear(self) -> None:
        """Leave nothing in it."""
        self._send(EMPTY, is_update=True)

    def _send(self, data: dict[str, str], *, is_update: bool) -> None:
        self._publish(data, {}, transient={"display_id": self._id}, update=is_update)


def open_slot() -> Slot | None:
    """An output under the running cell; None without a notebook, or where what is displayed is being kept."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if KERNEL.of(shell) is None:
        return None
    publisher = PUBLISHER.of(shell)
    publish = PUBLISH.of(publisher)
    if SOCKET.of(publisher) is None:  # what is displayed is being kept (%%capture)
        return None
    return None if publish is None else Slot(publish)
