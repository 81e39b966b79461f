"""The history to what it knows of a Profile's code, and of the advice that was tried."""

import os
from math import nan
from typing import TYPE_CHECKING

from profnb.compare.estimates import Spread
from profnb.history.identity import describe_machine
from profnb.history.place import history_file, wanted_file
from profnb.history.series import as_dates, spread_of_runs
from profnb.history.store import HistoryError, read_runs
from profnb.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

_KEPT = ("rule", "ratio", "interval_low", "interval_high", "promised_low", "promised_high", "when")


def find_spread(profile: Profile) -> Spread | None:
    """Find how much runs of a profile's code vary on this machine; None where nothing tells it.

    Of a trace of another program nobody knows where it ran.
    """
    path = history_file()
    if path is None or not profile.ran_here or profile.recording is None:
        return None
    machine = describe_machine(profile.recording.machine)
    try:
        runs = read_runs(path)
    except HistoryError:  # said where runs are kept
        return None
    return spread_of_runs(runs, profile.code, profile.options.label or "", machine)


def kept_trials(path: "str | os.PathLike[str] | None" = None) -> "pd.DataFrame":
    """List the trials of advice that were kept, the oldest first: what was promised beside what was measured.

    Args:
        path: The history's file; the usual one by default.

    Returns:
        A DataFrame with a row per trial: rule, the time as edited over that as it is (``ratio``), the 95 %
        interval of that, the range that the advice had promised (missing for several together), and when.

    Raises:
        HistoryError: The file is damaged, or another program's.
    """
    import pandas as pd

    place = wanted_file(path)
    runs = [] if place is None else read_runs(place, "trials IS NOT NULL")
    rows = [
        (rule, *(nan if one is None else one for one in numbers), run.when)
        for run in runs
        for rule, *numbers in run.trials
    ]
    frame = pd.DataFrame(rows, columns=list(_KEPT))
    return frame.assign(when=as_dates(frame["when"].tolist()))
