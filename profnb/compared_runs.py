"""Which captures a comparison's sides are: each file opened once, all runs of a folder, no host twice."""

import os
from collections.abc import Sequence
from pathlib import Path

from profnb.core.errors import CaptureError
from profnb.lite.entry import LiteResult
from profnb.loading import load
from profnb.many_traces.fleets import Fleet
from profnb.profile import Profile

NOT_ALIKE = "A result of profnb.lite cannot be compared with a profile. Compare two lite results."
Source = Profile | Fleet | LiteResult | str | os.PathLike[str]


def differing_parts(first: str, second: str) -> tuple[str, str]:
    """Two paths without the parts that they share: ``a`` and ``b`` of ``logs/a/x.pb`` and ``logs/b/x.pb``."""
    one, two = list(Path(first).parts), list(Path(second).parts)
    for end in (0, -1):
        while len(one) > 1 and len(two) > 1 and one[end] == two[end]:
            del one[end], two[end]
    return "/".join(one), "/".join(two)


def profiles_of(source: Source, opened: dict[Path, Profile]) -> list[Profile]:
    """The profiles of one source; of a fleet, that of its first host."""
    if isinstance(source, Profile):
        return [source]
    if isinstance(source, LiteResult):
        raise CaptureError(NOT_ALIKE)
    return [source[next(iter(source))]] if isinstance(source, Fleet) else _load_runs(source, opened)


def _load_runs(path: str | os.PathLike[str], opened: dict[Path, Profile]) -> list[Profile]:
    """Every run of a logdir, the oldest first; the trace, if the path is one.

    Args:
        path: A logdir or a trace.
        opened: What each file gave before, which it gives again: a file is one run however often it is named.
    """
    from profnb.trace.runs import find_traces, pick_trace

    traces = find_traces(path)
    runs = dict.fromkeys(trace.run for trace in traces)
    profiles = []
    for run in runs if len(runs) > 1 else [None]:
        file = pick_trace(traces, run, None).path.resolve()
        if file not in opened:
            opened[file] = load(path, run=run)
        profiles.append(opened[file])
    return profiles


def distinct(profiles: Sequence[Profile]) -> list[Profile]:
    """The profiles without those given again: as the same object, or as the same capture opened twice."""
    kept: list[Profile] = []
    for profile in dict.fromkeys(profiles):
        time = profile.capture_time if profile.has_trace else None
        again = [
            one
            for one in kept
            if time is not None
            and time.is_known
            and one.has_trace
            and one.capture_time == time
            and one.trace.hostnames == profile.trace.hostnames
            and len(one.trace.events) == len(profile.trace.events)
        ]
        if not again:
            kept.append(profile)
    return kept


def one_per_capture(profiles: Sequence[Profile]) -> tuple[tuple[Profile, ...], int]:
    """The profiles without those that another host recorded while one before them was recorded."""
    kept: list[Profile] = []
    for profile in profiles:
        time = profile.capture_time
        others = [one.capture_time for one in kept if one.capture_time.hostname != time.hostname]
        if not any(time.overlaps(other) for other in others):
            kept.append(profile)
    return tuple(kept), len(profiles) - len(kept)
