"""Several hosts of one capture: opened, traced, merged, and what is said of them.

``load_fleet`` makes a ``Fleet`` of a path, each host read to its part. ``trace_remotely`` opens one window of
running processes, and gives of it what ``load`` or ``load_fleet`` give.
"""

import math
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from profnb.capture.profiler.tensorflow_door import parse_addresses, trace_processes
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.safe_files import folder_prefix, whole_file
from profnb.core.sharing import Sharing
from profnb.core.table import TableOf
from profnb.core.units import count_text, counted_text
from profnb.loading import load
from profnb.profile import Profile
from profnb.report.result import SharedResult

if TYPE_CHECKING:
    from profnb.advice.proposals import Advice
    from profnb.fleet.digest import Digest
    from profnb.fleet.fleet_section import FleetSteps
    from profnb.fleet.fleet_timeline import FleetTimeline
    from profnb.fleet.merging import Meeting, Merged
    from profnb.fleet.verdict import HostTimes, Verdict
    from profnb.report.report import Report
    from profnb.trace.runs import TraceFile

Source = str | os.PathLike[str]
Sources = Source | Sequence[Source]
_NUMBERS_INSIDE = re.compile(r"(\d+)")
# hosts whose threads a timeline shows, and their traces
_MOST_OPENED, _LARGEST_OPENED = 8, 100_000_000


class Fleet(SharedResult):
    """Several hosts of one capture, or devices of one trace, merged by their collectives.

    Tables are pandas DataFrames made fresh on access; ``fleet["worker-2"]`` is the profile of one host. Shown
    in a notebook, a fleet is its report.

    Attributes:
        label: What it is called.
        first_notes: What is to be said of how it was opened.
        folder: What keeps copies of its traces while it lives; None where they are no copies.
    """

    hosts = TableOf("fleet.fleet_section", "FLEET_HOSTS", "_times")
    steps = TableOf("fleet.fleet_section", "FLEET_STEPS", "_steps")
    collectives = TableOf("fleet.fleet_section", "FLEET_COLLECTIVES", "_steps")

    def __init__(
        self, digests: "list[Digest]", label: str, notes: list[str], opened: Profile | None = None
    ) -> None:
        """Hosts by rank, or by name where nothing tells ranks.

        Args:
            digests: What is known of each.
            label: What it is called.
            notes: What is to be said first.
            opened: The profile whose devices they are, where that is no file.
        """
        self.label, self._opened = label, opened
        self._digests = sorted(digests, key=_order_of)
        self.first_notes = notes
        self.folder: object = None

    @cached_property
    def _meeting(self) -> "Meeting":
        from profnb.fleet.merging import find_meeting

        return find_meeting(self._digests)

    @cached_property
    def _joined(self) -> "Merged | None":
        from profnb.fleet.merging import merge

        return merge(self._meeting.digests)

    @property
    def _merged(self) -> "Merged | None":
        """Give what the hosts have in common; None also where it cannot have been the same."""
        return self._joined if self._joined and self._joined.clocks.is_possible else None

    @property
    def has_met(self) -> bool:
        """Tell whether the hosts took part in the same collectives, so that something can be said of them."""
        return self._merged is not None

    @cached_property
    def _times(self) -> "HostTimes | None":
        from profnb.fleet.verdict import time_hosts

        return None if self._merged is None else time_hosts(self._meeting.digests, self._merged)

    @property
    def _steps(self) -> "FleetSteps | None":
        from profnb.fleet.fleet_section import FleetSteps

        if self._merged is None:
            return None
        return FleetSteps([one.host for one in self._meeting.digests], self._merged)

    @cached_property
    def _verdict(self) -> "Verdict":
        from profnb.fleet.digest import count_of
        from profnb.fleet.verdict import Verdict, judge

        if self._joined is not None and self._merged is None:
            return Verdict(
                f"{count_of(self._digests)}: the straggler is not known. Collectives ended before every host "
                "had entered, with any clocks. Capture all hosts in one run."
            )
        if self._merged is None or self._times is None:
            return Verdict(
                f"{count_of(self._digests)}: the straggler is not known. Capture the same steps of all (-n)."
            )
        return judge(self._meeting.digests, self._merged, self._times)

    @property
    def verdict(self) -> str:
        """Say who holds the others up, by how much and why, in one or two sentences."""
        return f"{self._verdict.sentence} {self._verdict.why}".rstrip()

    @property
    def stragglers(self) -> tuple[str, ...]:
        """The hosts that the verdict names; empty for nobody."""
        return self._verdict.hosts

    @property
    def advice(self) -> "list[Advice]":
        """Things to look at, with the numbers that say so."""
        return self._verdict.advice

    @property
    def notes(self) -> list[str]:
        """Sentences that say what is missing, and why."""
        return [*self.first_notes, *self._meeting.notes]

    @property
    def step_ps(self) -> "Any":
        """Times of the steady steps, the mean over hosts, in picoseconds, shape (S,)."""
        import numpy as np

        merged = self._merged
        return np.empty(0) if merged is None else merged.step_ps[:, merged.steady].mean(axis=0)

    def __getitem__(self, host: str) -> Profile:
        """The profile of one host, or of the trace that a device is of, opened when asked for.

        Raises:
            KeyError: There is no such host.
        """
        from profnb.fleet.digest import noun_of

        for one in self._digests:
            if one.host == host:
                return self._opened or load(one.path)
        names = printable(", ".join(one.host for one in self._digests))
        raise KeyError(f"No {noun_of(self._digests)} {host!r}; there are: {names}.")

    def __iter__(self) -> Iterator[str]:
        return iter([one.host for one in self._digests])

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def _report(self) -> "Report":
        from profnb.fleet.fleet_section import fleet_report

        return fleet_report(self.label, self._verdict, self._times, self._merged, self.notes)

    def timeline(self, live: bool | None = None) -> None:
        """Show all hosts on one axis of time, which is the first one's clock.

        Up to eight hosts have their threads and streams there, more only a line each. How events of
        different hosts lie to each other is an estimate, whose bounds are said; no other figure has it.

        Args:
            live: Whether zooming in may ask the kernel for events that were merged; None for what the
                notebook was configured to.
        """
        from profnb.report.frontend import show_sentence, show_timeline_page

        built = self._timeline(self.notes)
        if built is None:
            why = "The traces have nothing to join the clocks by."
            show_sentence(" ".join([why, self._verdict.sentence, *self.notes]))
            return
        show_timeline_page((built.study,), lambda names: built.html(*names), built.text, live)

    def _timeline(self, notes: Sequence[str], *, is_page: bool = False) -> "FleetTimeline | None":
        """All hosts on one axis; None where nothing joins their clocks."""
        from profnb.fleet.digest import noun_of
        from profnb.fleet.fleet_timeline import build_fleet_timeline

        merged = self._merged
        if merged is None:
            return None
        met = self._meeting.digests
        files = [Path(one.path) for one in met]
        has_files = all(one.path for one in met) and all(file.is_file() for file in files)
        is_few = has_files and len(files) <= _MOST_OPENED
        is_small = is_few and sum(file.stat().st_size for file in files) <= _LARGEST_OPENED
        is_small &= not met[0].is_device  # whose streams their trace's own timeline has
        studies = [load(one.path).study.recorded if is_small else None for one in met]
        names = [one.host for one in met]
        noun = noun_of(met)
        return build_fleet_timeline(merged, names, studies, notes, is_page=is_page, noun=noun)

    def to_html(self, path: Source, *, timeline: bool = True) -> Path:
        """Write the report as one HTML file that needs no network.

        Args:
            path: Where to.
            timeline: Whether all hosts follow on one axis of time, for which their traces are read.

        Returns:
            The file's path.
        """
        from profnb.report.report import page_html

        target = Path(path).expanduser()
        built = self._timeline((), is_page=True) if timeline else None
        drawn = () if built is None else (built.timeline, built.above)
        with whole_file(target) as partial:
            partial.write_text(page_html(self._report, None, *drawn), encoding="utf-8")
        return target

    def to_dict(self) -> dict[str, Any]:
        """Verdict, hosts, advice and notes as plain values, for programs and agents."""
        hosts, fields = self.hosts.to_dict("records"), ("rule", "title", "evidence", "code")
        shown = {
            "verdict": self.verdict,
            "stragglers": list(self.stragglers),
            "gain_fraction": self._verdict.gain_fraction,
            "hosts": [{name: _plain(value) for name, value in row.items()} for row in hosts],
            "advice": [{name: getattr(one, name) for name in fields} for one in self.advice],
            "notes": self.notes,
        }
        shared: dict[str, Any] = Sharing(names_hosts=True).values(shown)
        return shared

    def __repr__(self) -> str:
        from profnb.fleet.digest import count_of

        return f"<Fleet of {count_of(self._digests)}>"


def _order_of(digest: "Digest") -> tuple[int, list[tuple[int, str]]]:
    """Order hosts by rank, then name, with numbers by their value: worker-2 before worker-10."""
    parts = _NUMBERS_INSIDE.split(digest.host)
    return digest.rank, [(int(p[:18]), "") if p.isdecimal() else (-1, p) for p in parts]


def _plain(value: Any) -> Any:
    """A cell as JSON knows it; None for what is missing or without a bound."""
    item = getattr(value, "item", None)
    plain = item() if callable(item) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def load_fleet(
    path: Sources | Profile, *, run: str | None = None, executor: Executor | None = None
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
    from profnb.trace.remote_files import fetch_traces, is_url

    if isinstance(path, Profile):
        return _fleet_of_one(path, "", path.capture_time.hostname, path.options.label or "", [])
    folder = None
    if isinstance(path, str) and is_url(path):
        folder = fetch_traces(path, run)
        path = folder.name
    files, label, notes = _pick_files(path, run)
    tasks = [(str(file.path), file.host) for file in files]
    if len(tasks) == 1:
        ((file, host),) = tasks
        fleet = _fleet_of_one(load(file), file, host, label, notes)
    else:
        results = map(read_digest, tasks) if executor is None else executor.map(read_digest, tasks)
        read = [(host, one) for (_, host), one in zip(tasks, results, strict=True)]
        notes += [f"{host} is left out: {one}" for host, one in read if isinstance(one, str)]
        digests = [one for _, one in read if not isinstance(one, str)]
        if not digests:
            raise TraceFormatError(" ".join(notes))
        fleet = Fleet(digests, label, notes)
    fleet.folder = folder
    return fleet


def _fleet_of_one(profile: Profile, path: str, host: str, label: str, notes: list[str]) -> Fleet:
    """Make a fleet of the devices of a trace; where they did not meet, a fleet of one host, which says so."""
    from profnb.fleet.digest import digest_devices, digest_study
    from profnb.steps.streams import working_devices

    study, time = profile.study.recorded, profile.capture_time
    digests = digest_devices(study, path, time)
    if not digests:
        count = len(working_devices(study.trace))
        if count > 1:
            notes.append(
                f"{counted_text(count, 'device')} of this trace worked, but fewer than two took part in "
                "collectives, so no late device can be named."
            )
        digests = [digest_study(study, host, path, time)]
    return Fleet(digests, label, notes, opened=None if path else profile)


def find_fleet(path: Source, run: str | None = None) -> Fleet | None:
    """Open the fleet that a path's newest run is, or the run of this name; None where it is of one host.

    Also where its hosts met in no collective: then one of them says more than all.

    Raises:
        FileNotFoundError: There is nothing at the path.
        TraceFormatError: There is no trace there.
        ValueError: No such run.
    """
    from profnb.trace.remote_files import fetch_traces, is_url
    from profnb.trace.runs import find_traces, pick_trace

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
    """Read one host's part of a fleet, or say why it cannot be read.

    Args:
        task: Its file, and what it is called in the run.
    """
    from profnb.fleet.digest import digest_study
    from profnb.many_traces.summaries import read_and_free

    path, host = task
    return read_and_free(path, lambda p: digest_study(p.study.recorded, host, path, p.capture_time))


def _pick_files(path: Sources, run: str | None) -> tuple[list["TraceFile"], str, list[str]]:
    """Pick the files of a run; give what it is called, and what is to be said of the choice."""
    from profnb.trace.runs import find_traces, name_hosts, runs_of

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
        what = " with several hosts" if several else ""
        none = "" if several else " None has several hosts."
        notes.append(
            f"Of {count_text(len(runs))} runs the newest{what} was opened, {chosen}. run= opens a different "
            f"run.{none}"
        )
    return runs[chosen], chosen, notes


def trace_remotely(url: str, seconds: float = 2.0) -> Profile | Fleet:
    """Trace processes that run ``profnb.serve(port)``, all in one window.

    Args:
        url: ``grpc://host:port``, of several processes with commas between them.
        seconds: How long.

    Returns:
        The profile of one process, or the fleet of several. Layers, source lines and steps outside of the
        window are not known of others.

    Raises:
        CaptureError: Nobody answered, or nothing ran.
        ValueError: An address is not HOST:PORT, or the time not positive.
    """
    addresses = parse_addresses(url)
    folder = TemporaryDirectory(prefix=folder_prefix())
    logdir = Path(folder.name)
    trace_processes(addresses, seconds, logdir)
    trace_files = sorted(logdir.glob("plugins/profile/*/*.xplane.pb"))
    missing = len(addresses) - len(trace_files)
    silent = f"Of {count_text(len(addresses))} processes {count_text(missing)} left no trace."
    if len(trace_files) == 1:
        profile = load(trace_files[0])
        profile.remarks += [silent] if missing > 0 else []
        return profile
    fleet = load_fleet([str(file) for file in trace_files])
    if missing > 0:
        fleet.first_notes.append(silent)
    fleet.folder = folder
    return fleet
