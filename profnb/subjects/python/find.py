"""Python's own time in a capture."""

from functools import cached_property

from profnb.steps.spine import Spine
from profnb.subjects.python.python_time import PythonTime, tabulate_python


class Python:
    """Python's part of a capture, worked out when asked for."""

    def __init__(self, spine: Spine) -> None:
        """Nothing is computed yet."""
        self._spine = spine

    @cached_property
    def time(self) -> PythonTime | None:
        """Python's time by function; None where the capture did not sample it."""
        recording = self._spine.recording
        if recording.stacks is None:
            return None
        cells = recording.source.cells if recording.source else {}
        return tabulate_python(recording.stacks, recording.steps, cells)
