"""What lives behind outputs in the notebook, and its end: a cell that runs again replaces its outputs.

Controls and timelines that ask the kernel keep their trace. Nobody tells the kernel that an output was
cleared, but a cell that begins to run has lost its old ones, and frontends say which cell it is. Where they
do not, and for cells that are never run again, the oldest are let go when there are too many.
"""

from collections.abc import Callable
from typing import Any

from profnb.capture.seams import CELL_ID, EVENTS, REGISTER, UNREGISTER
from profnb.capture.signals import handed_on

_MOST = 50


class LiveOutputs:
    """What to close for each cell.

    Args:
        shell: The IPython shell, which tells of cells that begin.
    """

    def __init__(self, shell: Any) -> None:
        """Nothing lives yet."""
        self._cell: str | None = None
        self._living: list[tuple[str | None, Callable[[], object]]] = []
        register, unregister = (seam.of(EVENTS.of(shell)) for seam in (REGISTER, UNREGISTER))
        has_events = register is not None and unregister is not None
        self._unregister: Callable[..., object] = unregister if has_events else _ignored
        if has_events:
            register("pre_run_cell", self._cell_begins)

    def __len__(self) -> int:
        return len(self._living)

    def keep(self, close: Callable[[], object]) -> None:
        """Remember how to close what the running cell has shown."""
        self._living.append((self._cell, close))
        while len(self._living) > _MOST:
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
        self._unregister("pre_run_cell", self._cell_begins)


def _ignored(*_: object) -> None:
    """What nobody tells of, nobody listens to."""


def close_widgets(widget: Any) -> None:
    """Close a widget and all in it, so that nothing of ours is kept by what observed them."""
    looks = (getattr(widget, name, None) for name in ("layout", "style"))
    for part in (*getattr(widget, "children", ()), *looks):
        if hasattr(part, "unobserve_all"):
            close_widgets(part)
    widget.unobserve_all()
    widget.close()
