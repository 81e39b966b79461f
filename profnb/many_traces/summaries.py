"""``summarize``: many traces to one row each, here or on the workers of any executor.

What travels back is the row, not the trace. A trace that cannot be read, or whose worker was lost, is a row
that says why.

What is worked out from an opened trace refers to itself, so only a collection frees it. Arrays do not count
for Python's own collections, so a hundred opened traces of 24 MB would hold gigabytes.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from profnb.core.errors import ProfnbError
from profnb.core.printable import printable
from profnb.core.table import Column, Table, columns_in
from profnb.loading import load
from profnb.profile import Profile
from profnb.steps.activities import CATEGORIES
from profnb.steps.breakdown import column_of
from profnb.steps.summary import GAP, GAP_WORK

if TYPE_CHECKING:
    import pandas as pd


_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
MOST_TEXT = 300  # characters of what others say, a worker or a machine
_EACH_BYTES = 100_000_000  # a collection takes a tenth of a second: not after each small trace


class LostWorkerError(Exception):
    """The worker of a call was lost; its text says how, in one line."""


def call_on_workers(
    executor: Executor | None, call: Callable[[_Value], _Result], values: Sequence[_Value]
) -> Iterator[tuple[int, _Result | LostWorkerError]]:
    """Call a function with each of N values on an executor's workers, or here without one.

    Yields:
        As each call is done, the place of its value and what it gave, or that its worker was lost.

    Raises:
        KeyboardInterrupt: It was interrupted. Calls that had not begun are cancelled; those that a worker
            has begun end there, and nobody asks for them.
    """
    if executor is None:
        yield from enumerate(map(call, values))
        return
    tasks: dict[Future[_Result], int] = {}
    try:
        for at, value in enumerate(values):
            try:
                tasks[executor.submit(call, value)] = at
            except Exception as error:  # noqa: BLE001, PERF203 - a pool that broke takes no more
                yield at, _lost(error)
        for future in as_completed(tasks):
            result: _Result | LostWorkerError
            try:
                result = future.result()
            except Exception as error:  # noqa: BLE001 - of the executor: its worker was lost
                result = _lost(error)
            yield tasks[future], result
    finally:
        for future in tasks:
            future.cancel()


def _lost(error: Exception) -> LostWorkerError:
    said = f"The worker was lost ({type(error).__name__}: {error!s})"
    return LostWorkerError(printable(said.replace("\n", " "))[:MOST_TEXT])


class _Opened:
    """Bytes of the files that were opened since the last collection."""

    size = 0


def read_and_free(path: str, read: Callable[[Profile], _Result]) -> _Result | str:
    """Open a trace, read something off it, and free its memory.

    Returns:
        What was read; where the trace cannot be read, the error's text.
    """
    try:
        return read(load(path))
    except (ProfnbError, OSError, ValueError) as error:
        return str(error)
    finally:
        file = Path(path)
        _Opened.size += file.stat().st_size if file.is_file() else 0
        if _Opened.size >= _EACH_BYTES:
            _Opened.size = 0
            gc.collect()


Source = str | os.PathLike[str]
Sources = Source | Iterable[Source]
_STEP_PARTS = (*CATEGORIES, GAP, GAP_WORK)
_FEWEST_FOR_PROGRESS = 8


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """One trace in a row.

    Its fields are the columns of ``SUMMARIES``, times in picoseconds; "" or NaN for what is not known.

    Attributes:
        parts_ps: That mean by category, in the order of the table.
    """

    path: str
    host: str = ""
    framework: str = ""
    phase: str = ""
    steps: int = 0
    median_ps: float = nan
    period_ps: float = nan
    examples_per_second: float = nan
    parts_ps: tuple[float, ...] = field(default=(nan,) * len(_STEP_PARTS))
    advice: str = ""
    bound_fraction: float = nan
    notes: int = 0
    error: str = ""


def _part(at: int) -> Callable[[Sequence[TraceSummary]], list[float]]:
    return lambda rows: [row.parts_ps[at] for row in rows]


SUMMARIES = Table[Sequence[TraceSummary]](
    "summarize",
    "One row per trace, in the given order.",
    (
        *columns_in("""
            path: the trace
            host: where it was captured, as far as it tells
            framework: whose trace it is, as far as it tells
            phase: what the steps do that averages are of
            steps: how many those are: steady ones
            median_ms: their median time
            period_ms: their mean time with the gaps that belong to them
            examples_per_second: examples over that time
            """),
        *(
            Column(column_of(name), _part(at), f"{name}, of that mean; they add up to it")
            for at, name in enumerate(_STEP_PARTS)
        ),
        *columns_in("""
            advice: the rule of advice that can gain most
            bound_fraction: the most that it can gain
            notes: how many notes its report has
            error: why nothing else is known of it; empty where it was read
            """),
    ),
    owner="profnb",
)  # fmt: skip


def summarize_trace(path: str) -> TraceSummary:
    """Summarize one trace; it never raises what is the file's fault."""
    row = read_and_free(path, partial(_summarize, path))
    return row if isinstance(row, TraceSummary) else _failed(path, row)


def _failed(path: str, why: str) -> TraceSummary:
    return TraceSummary(path, error=printable(why)[:MOST_TEXT])


def _summarize(path: str, profile: Profile) -> TraceSummary:
    if not profile.has_trace:
        return TraceSummary(path, error="The result has no trace.")
    study, best = profile.study, next(iter(profile.advice), None)
    summary = study.summary
    described = TraceSummary(
        path,
        profile.capture_time.hostname,
        study.program.framework,
        examples_per_second=summary.examples_per_second or nan,
        advice="" if best is None else best.rule,
        bound_fraction=nan if best is None else best.bound_fraction,
        notes=len(profile.notes),
    )
    if summary.median_ps is None or study.steps.is_window:
        return described
    parts = {share.category: share.mean_ps for share in summary.shares}
    return replace(
        described,
        phase=printable(summary.phase or ""),
        steps=int(summary.counted.size),
        median_ps=summary.median_ps,
        period_ps=summary.mean_period_ps,
        parts_ps=tuple(parts.get(name, 0.0) for name in _STEP_PARTS),
    )


def summarize(paths: Sources, *, executor: Executor | None = None) -> "pd.DataFrame":
    """Summarize many traces, one row each.

    Args:
        paths: A folder, of which every trace is taken, or traces; also as URLs.
        executor: Where to read them: any ``concurrent.futures.Executor`` whose workers see the files, as a
            ``ProcessPoolExecutor`` or Dask's ``Client.get_executor()``; here, one after the other, by
            default. A pool takes seconds to start: it pays from some fifty traces on.

    Returns:
        A DataFrame; times are in the unit of the column's suffix. A trace that cannot be read, or whose
        worker was lost, has a row with ``error``.

    Raises:
        FileNotFoundError: There is nothing at a path that is the only one.
        TraceFormatError: There is no trace in the folder.
        KeyboardInterrupt: It was interrupted; what had not begun is cancelled.
    """
    listed = _listed(paths)
    results = dict(_followed(call_on_workers(executor, summarize_trace, listed), len(listed)))
    rows = [(path, results[at]) for at, path in enumerate(listed)]
    return SUMMARIES.frame([
        row if isinstance(row, TraceSummary) else _failed(path, str(row)) for path, row in rows
    ])  # fmt: skip


def _listed(paths: Sources) -> list[str]:
    if not isinstance(paths, str | os.PathLike):
        return [os.fspath(path) for path in paths]
    from profnb.trace.remote_files import is_url, list_traces
    from profnb.trace.runs import find_traces

    if isinstance(paths, str) and is_url(paths):
        return list_traces(paths)
    return [str(file.path) for file in find_traces(Path(paths))]


def _followed(results: Iterator[_Result], total: int) -> Iterator[_Result]:
    """Pass results on, with a line in the notebook that says how far they are."""
    if total < _FEWEST_FOR_PROGRESS or "IPython" not in sys.modules:
        yield from results
        return
    from profnb.report.progress import Progress

    with closing(Progress(total, counted="traces")) as progress:
        for done, result in enumerate(results, start=1):
            progress.show(done, "")
            yield result
