"""Rounds of a sweep on the workers of any executor: each is one run of every setting, all on one worker.

What a machine has in common is then common to a whole round, so it falls out of every difference between
settings (``compare.ranking``), and every worker that takes part runs every setting. A worker makes one run at
a time, in a process of its own; what that left travels back as bytes, so that no folder has to be shared.
Who ran them, and what that means for the figures, the ``Crew`` says.
"""

import platform
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from profnb.capture.environment import processor_name
from profnb.capture.switches import JOB, run_fresh
from profnb.core.columns import group
from profnb.core.errors import CaptureError
from profnb.core.options import CaptureOptions
from profnb.core.printable import printable
from profnb.core.safe_files import folder_prefix
from profnb.core.units import count_text
from profnb.many_traces.summaries import MOST_TEXT, LostWorkerError, call_on_workers

_MOST_SETTINGS_NAMED, _PROCESSOR = 4, "processor"
_COMPARED = ("CPU cores", "Python", "TensorFlow", "JAX", "PyTorch", "Keras", "tf_keras")
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class FreshRound:
    """Runs for one worker, one after the other.

    Attributes:
        number: Which round it is; 0 is the one that is traced.
        body: Python and magics, as in a cell.
        runs: Which setting each run is of, and what is bound for it; plain values.
        options: What to record.
        traces: Whether to record traces; without, steps are only timed.
        token: What tells it from rounds of other sweeps where an executor remembers results.
    """

    number: int
    body: str
    runs: tuple[tuple[int, dict[str, object]], ...]
    options: CaptureOptions
    traces: bool
    token: str


@dataclass(frozen=True, slots=True)
class DoneRun:
    """The files that one run left behind.

    Attributes:
        row: Which setting it is of.
        files: The files, by where they were in its folder; empty where it failed.
        error: Why it failed; "" where it did not.
    """

    row: int
    files: dict[str, bytes]
    error: str


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A round that was run.

    Attributes:
        number: Which.
        host: The machine that ran it.
        cpu: Its processor; "" where it does not tell.
        begin_s: When it began, by that machine's clock, in seconds since 1970.
        end_s: When it ended.
        runs: What its runs left behind.
    """

    number: int
    host: str
    cpu: str
    begin_s: float
    end_s: float
    runs: tuple[DoneRun, ...]


def run_round(one: FreshRound) -> RoundResult:
    """Make the runs of a round, on a worker; another round of this process waits until they are done."""
    with _ONE_AT_A_TIME:
        begin = time.time()
        runs = tuple(_run(one, row, setting) for row, setting in one.runs)
        processor = processor_name()[:MOST_TEXT] or platform.processor()
        return RoundResult(one.number, platform.node(), processor, begin, time.time(), runs)


def _run(one: FreshRound, row: int, setting: dict[str, object]) -> DoneRun:
    with tempfile.TemporaryDirectory(prefix=folder_prefix()) as name:
        folder = Path(name)
        try:
            run_fresh(one.body, setting, folder, one.options, traces=one.traces)
        except (CaptureError, OSError) as error:
            return DoneRun(row, {}, str(error))
        left = [file for file in folder.rglob("*") if file.is_file() and file.name != JOB]
        return DoneRun(row, {str(f.relative_to(folder)): f.read_bytes() for f in left}, "")


def run_rounds(
    executor: Executor, rounds: Sequence[FreshRound]
) -> Iterator[tuple[FreshRound, RoundResult | str]]:
    """Make rounds on an executor's workers.

    Yields:
        Each round as it is done, with its result, or why there is none: its worker was lost.

    Raises:
        KeyboardInterrupt: It was interrupted. Rounds that had not begun are cancelled; those that a worker
            has begun end there, and nobody asks for them.
    """
    for at, result in call_on_workers(executor, run_round, rounds):
        yield rounds[at], str(result) if isinstance(result, LostWorkerError) else result


class Crew:
    """The workers of a sweep.

    Attributes:
        lost: Why rounds were lost, in sentences.
    """

    def __init__(self) -> None:
        """Nobody ran anything yet."""
        self.lost: list[str] = []
        self._rounds: dict[int, RoundResult] = {}
        self._facts: dict[str, dict[str, str]] = {}  # by host

    def add(self, done: RoundResult, environment: Mapping[str, str]) -> None:
        """Note who ran a round.

        Args:
            done: The round.
            environment: What one of its runs ran with.
        """
        if done.number:  # the first ones are traced, and no times of theirs are compared
            self._rounds[done.number] = done
        facts = {name: environment[name] for name in _COMPARED if name in environment}
        facts |= {_PROCESSOR: done.cpu} if done.cpu else {}
        self._facts.setdefault(done.host, {}).update(facts)

    @property
    def notes(self) -> list[str]:
        """Say what to know before trusting the figures."""
        return [*self.lost, *self._who(), *self._differing(), *self._crowded()]

    def _who(self) -> list[str]:
        counts = Counter(one.host for one in self._rounds.values())
        if len(self._facts) < 2 or not counts:
            return []
        most = counts.most_common(_MOST_SETTINGS_NAMED)
        named = [f"{printable(host)} {count_text(count)}" for host, count in most]
        left = len(counts) - _MOST_SETTINGS_NAMED
        others = f" and {left} more" if left > 0 else ""
        return [
            f"Rounds were run by {count_text(len(counts))} machines ({', '.join(named)}{others}). Settings "
            "are compared within rounds, so differences between machines do not count. The time of a "
            "setting is the mean over rounds."
        ]

    def _differing(self) -> list[str]:
        """Say what workers differ in, by which of them has what."""
        differing = []
        for name in (_PROCESSOR, *_COMPARED):
            of_name = [pair for pair in self._facts.items() if name in pair[1]]
            hosts = group((facts[name], printable(host)) for host, facts in of_name)
            named = {value: ", ".join(of[:_MOST_SETTINGS_NAMED]) for value, of in hosts.items()}
            values_text = "; ".join(f"{printable(value)} on {of}" for value, of in named.items())
            differing += [f"{name} ({values_text})"] if len(hosts) > 1 else []
        return [f"The workers differ: {', '.join(differing)}."] if differing else []

    def _crowded(self) -> list[str]:
        """Name machines on which rounds overlapped."""
        of_host = group((one.host, one) for one in self._rounds.values())
        crowded = []
        for host, rounds in of_host.items():
            in_order = sorted(rounds, key=attrgetter("begin_s"))
            if any(later.begin_s < one.end_s for one, later in pairwise(in_order)):
                crowded.append(printable(host))
        if not crowded:
            return []
        return [
            f"Several workers made runs on {', '.join(crowded[:_MOST_SETTINGS_NAMED])} at a time and may "
            "have slowed each other. One worker a machine gives cleaner times."
        ]
