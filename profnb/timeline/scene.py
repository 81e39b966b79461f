"""What a picture of a trace is made from: its analyses, and the lanes that its events stand in."""

from functools import cached_property

from profnb.subjects.study import Study
from profnb.timeline.lane_names import derived_of, lane_names
from profnb.timeline.lanes import Lanes, lay_out_lanes
from profnb.timeline.tracks import Track, find_tracks


class Scene:
    """A study with its lanes and tracks, which are laid out once.

    Attributes:
        study: The trace and what is worked out from it.
    """

    def __init__(self, study: Study) -> None:
        """Nothing is laid out yet."""
        self.study = study.recorded

    @cached_property
    def lanes(self) -> Lanes:
        """Where each event stands."""
        return lay_out_lanes(self.study.trace, self.study.steps, self.study.parent)

    @cached_property
    def names(self) -> list[str]:
        """What to call each line that is shown."""
        return lane_names(self.study.trace, self.lanes)

    @cached_property
    def derived(self) -> list[str]:
        """The device whose work each line only repeats, or ""."""
        return derived_of(self.study.trace, self.lanes)

    @cached_property
    def tracks(self) -> list[Track]:
        """The quantities that were sampled."""
        return find_tracks(self.study)
