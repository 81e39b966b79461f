"""What a picture of a trace is made from: its analyses, and the lanes that its events stand in."""

from functools import cached_property

from profnb.subjects.study import Study
from profnb.timeline.lanes import Lanes, lay_out_lanes

__all__ = ["Scene"]


class Scene:
    """A study with its lanes, which are laid out once.

    Attributes:
        study: The trace and what is worked out from it.
    """

    def __init__(self, study: Study) -> None:
        """Nothing is laid out yet."""
        self.study = study

    @cached_property
    def lanes(self) -> Lanes:
        """Where each event stands."""
        return lay_out_lanes(self.study.trace, self.study.steps, self.study.parent)
