"""A Profile to what the history knows of its code: how much the typical step varies from run to run."""

from profnb.compare.estimates import Spread
from profnb.history.identity import describe_machine
from profnb.history.place import history_file
from profnb.history.series import spread_of_runs
from profnb.history.store import HistoryError, read_runs
from profnb.profile import Profile


def find_spread(profile: Profile) -> Spread | None:
    """Find how much runs of a profile's code vary on this machine; None where nothing tells it.

    Of a trace of another program nobody knows where it ran.
    """
    path = history_file()
    if path is None or not profile.ran_here or profile.recording is None:
        return None
    machine = profile.recording.machine
    boards = [] if machine is None else [board.name for board in machine.boards if board.name]
    try:
        runs = read_runs(path)
    except HistoryError:  # said where runs are kept
        return None
    return spread_of_runs(runs, profile.code, profile.options.label or "", describe_machine(boards))
