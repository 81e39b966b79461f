"""The profiler of one framework, to one capture: started, stopped, its own log lines held back; its process.

Which process of its job this is, tells the launcher in the environment, or else a framework. TensorFlow's
clusters say it by ``TF_CONFIG``, PyTorch's launcher by ``RANK``, Horovod's by ``HOROVOD_RANK``, Open MPI by
``OMPI_COMM_WORLD_RANK``, MPICH by ``PMI_RANK``, Slurm by ``SLURM_PROCID``; JAX reads ``JAX_PROCESS_ID``. A
program may give the number itself (``jax.distributed.initialize``, ``torch.distributed.init_process_group``):
the framework then knows it.
"""

import contextlib
import io
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import Library
from profnb.capture.seam import Seam
from profnb.core.options import CaptureOptions

_PROFILER_LOG = re.compile(
    rb"(profiler_session|session_manager|save_profile)\.cc:\d+\]"
    rb"|^[A-Z]+:\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's
)
_FIRST_LOG = b"WARNING: All log messages before absl::InitializeLog() is called"


class Door:
    """Starts and stops a framework's profiler.

    Args:
        options: What to record.
        messages: Where what went wrong is said.

    Attributes:
        title: What the framework is called.
        is_of_thread: Whether only the thread that started it can stop it.
        needed: The functions without which nothing is recorded; the first two start and stop.
        functions: These functions, once they were found.
    """

    title = ""
    is_of_thread = False
    needed: tuple[Seam, ...] = ()

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing is looked up or started yet."""
        self._options, self._messages = options, messages
        self._library: Library | None = None
        self.functions: tuple[Any, ...] = ()

    def find(self, library: Library) -> bool:
        """Look the functions up in the framework; False where one is missing."""
        self._library = library
        self.functions = tuple(library.take(seam) for seam in self.needed)
        return None not in self.functions

    def _take(self, seam: Seam) -> Any:
        return None if self._library is None else self._library.take(seam)

    def start(self, folder: str) -> None:
        """Start the profiler, which writes its trace below a folder.

        Raises:
            RuntimeError: It runs already, for code that has not stopped it.
        """
        raise NotImplementedError

    def stop(self, folder: Path) -> Path | None:
        """Stop it; the trace that it wrote, if any."""
        raise NotImplementedError

    def _find_trace(self, folder: Path, if_none: str) -> Path | None:
        traces = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
        if not traces:
            self._messages.append(if_none)
        return traces[-1] if traces else None

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A step's marker in the trace, begun; None where none is recorded, or the framework has none."""
        raise NotImplementedError

    def mark(self, name: str) -> Any:
        """An event in the trace, begun; None where none is recorded, or the framework has none."""
        raise NotImplementedError


@contextlib.contextmanager
def log_quieted(level: int) -> Iterator[None]:
    """Silence TensorFlow's Python log below a level, and all that the block prints."""
    # Its log writes to the output of when it was imported.
    log = logging.getLogger("tensorflow")
    before, nowhere = log.level, io.StringIO()
    log.setLevel(max(before, level))
    try:
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        log.setLevel(before)


@contextlib.contextmanager
def log_held_back(pattern: re.Pattern[bytes] = _PROFILER_LOG) -> Iterator[list[bytes]]:
    """Hold back the log lines of C++ code that profnb itself calls in the block, and pass on all others.

    TensorFlow and PyTorch log to file descriptor 2, which a kernel shows under the user's cell. It is a file
    inside the block, which so may hold one call, and none of the user's code. On other threads than the main
    one, where the user's code runs beside it, nothing is held back: a window that closes by the clock, or a
    cell that runs on a thread of its own, shows two or three lines.

    If the process dies in the block, what it wrote last is in a file ``profnb-log-*.txt`` in the temporary
    folder, which else is removed.

    Args:
        pattern: What stands in lines that are held back; by default, what does in the profilers' own.

    Yields:
        The lines held back; complete when the block is over.
    """
    lines: list[bytes] = []
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is not threading.main_thread():
            yield lines
            return
        try:
            held = stack.enter_context(
                tempfile.NamedTemporaryFile(prefix="profnb-log-", suffix=".txt", buffering=0)
            )
            saved = os.dup(2)
        except OSError:  # no standard error, or nowhere to put it
            yield lines
            return
        stack.callback(os.close, saved)
        os.dup2(held.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            held.seek(0)
            lines += _pass_on(held.read().splitlines(keepends=True), pattern)


def _pass_on(written: list[bytes], pattern: re.Pattern[bytes]) -> list[bytes]:
    """The lines with the pattern; what else was written goes on to where it was meant for."""
    kept = [pattern.search(line) is not None for line in written]
    for at in range(len(written) - 1):  # what Abseil says once, of the line below it
        kept[at] |= kept[at + 1] and written[at].startswith(_FIRST_LOG)
    others = b"".join(line for line, is_kept in zip(written, kept, strict=True) if not is_kept)
    if others:
        os.write(2, others)
    return [line for line, is_kept in zip(written, kept, strict=True) if is_kept]


def first_line(error: Exception) -> str:
    """Give what an error says, in one line of 200 characters at most."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


# Variables of a process' number and of how many there are, in order of trust.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_CHIEFS, _WORKER = ("chief", "master"), "worker"
_MOST_RANKS = 1_000_000
_FAR_LONGER = 6


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a job.

    Attributes:
        name: What tells it from the others: ``3``, or ``ps0`` for a task that trains nothing.
        processes: How many there are; 0 where nobody says.
        is_collective: Whether they exchange with one another by collectives, as far as that is said: a
            cluster with parameter servers does not.
    """

    name: str
    processes: int = 0
    is_collective: bool = True


def find_rank(given: int | None = None, environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Find this process' rank; None where it is the only one, or nothing says that there are more.

    Args:
        given: Its number, where the user gave one.
        environment: The variables of the process.
    """
    if given is not None:
        return Rank(str(given))
    task = _task_of_cluster(environment.get("TF_CONFIG", ""))
    if task is not None:
        return task if task.processes > 1 else None
    for number, size in _VARIABLES:
        rank, ranks = (_whole(environment.get(name, "")) for name in (number, size))
        if rank is not None and ranks is not None and rank < ranks > 1:
            return Rank(str(rank), ranks)
    return _rank_in_framework()


def bound_by_steps(options: CaptureOptions) -> CaptureOptions:
    """In a job of several processes, bounds that let all of them trace the same steps.

    Each would close its window after so many seconds of its own; they go through their steps together, so
    the number of steps decides, unless seconds were asked for or a window becomes far longer.
    """
    usual = CaptureOptions().max_seconds
    if options.max_seconds != usual or find_rank(options.rank) is None:
        return options
    return replace(options, max_seconds=usual * _FAR_LONGER)


def _rank_in_framework() -> Rank | None:
    """Ask an imported framework what it was told, which sets nothing up."""
    job = seams.JAX_JOB.find()
    rank, ranks = seams.JAX_RANK.of(job), seams.JAX_RANKS.of(job)
    asked = [seam.find() for seam in (seams.TORCH_HAS_JOB, seams.TORCH_RANK, seams.TORCH_RANKS)]
    if rank is None and None not in asked and asked[0]():
        rank, ranks = asked[1](), asked[2]()
    is_known = isinstance(rank, int) and isinstance(ranks, int)
    return Rank(str(rank), ranks) if is_known and 0 <= rank < ranks > 1 else None


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= len(str(_MOST_RANKS)) else None


def _task_of_cluster(text: str) -> Rank | None:
    """The task that ``TF_CONFIG`` names; None where it names none, or is not what TensorFlow reads."""
    try:
        config: Any = json.loads(text) if text else None
        cluster, task = dict(config["cluster"]), dict(config["task"])
        kind, index = str(task["type"]), _whole(str(task["index"]))
        tasks = {name: len(of) for name, of in cluster.items()}
    except (ValueError, TypeError, KeyError):
        return None
    if not kind.isidentifier() or index is None:
        return None
    chiefs = sum(tasks.get(name, 0) for name in _CHIEFS)
    processes, is_collective = sum(tasks.values()), "ps" not in tasks
    if kind in _CHIEFS or kind == _WORKER:  # TensorFlow counts the chief as the first worker
        number = chiefs + index if kind == _WORKER else 0
        return Rank(str(number), processes, is_collective)
    return Rank(f"{kind[:20]}{index}", processes, is_collective=False)
