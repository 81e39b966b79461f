"""``load_fleet``: a path to the hosts of one capture, each read to its part, and these to a ``Fleet``."""

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from profnb.core.errors import ProfnbError, TraceFormatError
from profnb.core.units import count_text, counted_text
from profnb.loading import load
from profnb.profile import Profile
from profnb.several.fleets import Fleet
from profnb.several.letting_go import let_go

if TYPE_CHECKING:
    from profnb.fleet.digest import Digest
    from profnb.trace.runs.grouping_files import TraceFile

Source = str | os.PathLike[str]


def load_fleet(
    path: Source | Sequence[Source] | Profile,
    *,
    run: str | None = None,
    executor: Executor | None = None,
) -> Fleet:
    """Open the traces of several hosts of one capture, or the several devices of one trace.

    Args:
        path: A logdir or a run's folder, also as a URL; or the hosts' trace files. One trace, or a profile,
            is a fleet of its devices where several of them ran collectives.
        run: Which run of a logdir; by default the newest of several hosts.
        executor: Where to read the traces: any ``concurrent.futures.Executor`` whose workers see the files (a
            process pool, Dask's ``Client.get_executor()``); here, one after the other, by default.

    Raises:
        FileNotFoundError: There is nothing at a path.
        TraceFormatError: There is no trace there, or none of them can be read.
        ValueError: No such run.
    """
    from profnb.trace.runs.remote_files import fetch_traces, is_url

    if isinstance(path, Profile):
        return _fleet_of_one(path, "", path.capture_time.hostname, path.options.label or "", [])
    folder = None
    if isinstance(path, str) and is_url(path):
        folder = fetch_traces(path, run)
        path = folder.name
    files, label, notes = _pick_files(path, run)
    if len(files) == 1:
        (file,) = files
        fleet = _fleet_of_one(load(file.path), str(file.path), file.host, label, notes)
        fleet.folder = folder
        return fleet
    tasks = [(str(file.path), file.host) for file in files]
    results = map(read_digest, tasks) if executor is None else executor.map(read_digest, tasks)
    digests = []
    for (_, host), result in zip(tasks, results, strict=True):
        if isinstance(result, str):
            notes.append(f"{host} is left out: {result}")
        else:
            digests.append(result)
    if not digests:
        raise TraceFormatError(" ".join(notes))
    fleet = Fleet(digests, label, notes)
    fleet.folder = folder
    return fleet


def _fleet_of_one(profile: Profile, path: str, host: str, label: str, notes: list[str]) -> Fleet:
    """The devices of a trace as a fleet; where they did not meet, a fleet of one host, which says so."""
    from profnb.fleet.digest import digest_devices, digest_study
    from profnb.steps.streams import working_devices

    study, time = profile.study.recorded, profile.capture_time
    digests = digest_devices(study, path, time)
    if not digests:
        count = len(working_devices(study.trace))
        if count > 1:
            notes.append(
                f"{counted_text(count, 'device')} of this trace ran something, but fewer than two of them "
                "collectives in its steps, so what they waited for one another cannot be told."
            )
        digests = [digest_study(study, host, path, time)]
    return Fleet(digests, label, notes, opened=None if path else profile)


def find_fleet(path: Source, run: str | None = None) -> Fleet | None:
    """The fleet that a path's newest run is, or the run of this name; None where it is of one host.

    Also where its hosts met in no collective: then one of them says more than all.

    Raises:
        FileNotFoundError: There is nothing at the path.
        TraceFormatError: There is no trace there.
        ValueError: No such run.
    """
    from profnb.trace.files import find_traces, pick_trace
    from profnb.trace.runs.remote_files import fetch_traces, is_url

    if isinstance(path, str) and is_url(path):
        with fetch_traces(path, run) as folder:
            if find_fleet(folder, run) is None:
                return None
        return load_fleet(path, run=run)
    files = find_traces(path)
    picked = pick_trace(files, run, None)
    if sum(file.run == picked.run for file in files) < 2:
        return None
    fleet = load_fleet(path, run=picked.run)
    return fleet if fleet.has_met else None


def read_digest(task: tuple[str, str]) -> "Digest | str":
    """One host's part of a fleet, or why it cannot be read.

    Args:
        task: Its file, and what it is called in the run.
    """
    digest = _digest(*task)
    let_go(task[0])
    return digest


def _digest(path: str, host: str) -> "Digest | str":
    from profnb.fleet.digest import digest_study

    try:
        profile = load(path)
        return digest_study(profile.study.recorded, host, path, profile.capture_time)
    except (ProfnbError, OSError, ValueError) as error:
        return str(error)


def _pick_files(
    path: Source | Sequence[Source], run: str | None
) -> tuple[list["TraceFile"], str, list[str]]:
    """The files of a run, what it is called, and what is to be said of the choice."""
    from profnb.trace.files import find_traces
    from profnb.trace.runs.grouping_files import name_hosts, runs_of

    if not isinstance(path, str | os.PathLike):
        listed = [file for one in path for file in find_traces(one)]
        return name_hosts(listed), counted_text(len(listed), "file"), []
    files = find_traces(path)
    runs = runs_of(files)
    if run is not None:
        of_folder = [file.run for file in files if run in (file.run, file.folder)]
        if not of_folder:
            raise ValueError(f"No run {run!r}; found: {', '.join(runs)}.")
        return runs[of_folder[0]], of_folder[0], []
    several = [name for name, hosts in runs.items() if len(hosts) > 1]
    chosen = (several or list(runs))[-1]
    notes = []
    if len(runs) > 1:
        what = " that has several hosts" if several else ""
        none = "" if several else " None has several hosts."
        notes.append(
            f"Of {count_text(len(runs))} runs the newest{what} was opened, {chosen}; run= opens "
            f"another.{none}"
        )
    return runs[chosen], chosen, notes
