"""profnb: the TensorFlow profiler that lives in the notebook.

``%load_ext profnb``, then ``%%tfprofile`` over a cell that trains: under the cell appears where each
step's time went; with ``%%tftimeline`` the trace itself. In scripts: ``with profnb.profile() as p: ...``;
for saved traces: ``profnb.load(path)``.

The house. Rooms are subjects: what a tab of the report shows lives in one folder. An import only ever points
back up this list, but for two doors to tf1: formats open its RunMetadata, a capture records its session runs.
Each folder's own docstring says what is in it.

    core/       what every room may use: errors, units, options, array types, a table declared once
    trace/      what was recorded: files of every format to columns; chrome/ has its JSON, both ways
    capture/    the only door to the profilers, and to whatever of TensorFlow, Keras and IPython is hooked
    tf1/        session runs of TensorFlow 1: recorded, read, tfprof's views
    steps/      the spine: when training went through its iterations, and where each step's time went
    drawing/    what a section is drawn with: palette, tables, figures, the door to plotly
    subjects/   feeds, input, memory, xla, device, ops, bounds, layers, source, python, cell, system: what
                each finds, and its ``section`` (how it is shown), if any;
                ``study`` has all that is found of a trace
    causes/     what may be behind the time of steps, as far as several subjects tell
    advice/     what a change saves: the tree of the cell's time, its replay with an edit, the rules
    edits/      advice as edits of the source, by LibCST: what is tried
    compare/    runs against runs, and the settings of a sweep
    timeline/   the trace itself: lanes, marks, a still picture, browser code
    report/     the page around the sections: words, notes, frontends
    fleet/      several hosts of one capture: merged by their collectives, who holds the others up
    lite/       models for the device: converted to LiteRT, run, judged, compared
    forecast/   how much memory a batch takes, and the largest that fits
    tables, profile, loading                         the API: from a path, or a journal, to answers
    many_traces/    fleets, running processes, many traces to one row each, rounds of a sweep on workers
    history/    every run's numbers: kept, listed, and where they changed
    captured, comparison, sweep*, warm                from code that runs to answers; runs against runs
    trials/     advice tried: the code as it is and as edited by turns, and everything put back
    magic/, magics, demo, program, __main__   the doors: magics and the command line
"""

from typing import TYPE_CHECKING, Any

import profnb.compare as _folder  # noqa: F401 - before the function of that name, which so keeps it
import profnb.history as _history_folder  # noqa: F401 - likewise
import profnb.lite as _lite_folder  # noqa: F401 - likewise
from profnb.capture.profiler.tensorflow_door import serve
from profnb.captured import profile, step
from profnb.comparison import Comparison, compare
from profnb.core.errors import CaptureError, ProfnbError, TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.forecast.fitting import fits
from profnb.lite.entry import lite
from profnb.loading import last, load
from profnb.many_traces.fleets import Fleet, load_fleet
from profnb.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Executor
    from os import PathLike
    from types import EllipsisType

    import pandas as pd

    from profnb.subjects.bounds.measured_peak import MeasuredPeak

__all__ = [
    "CaptureError", "CaptureOptions", "Comparison", "Fleet", "Profile", "ProfnbError", "TraceFormatError",
    "compare", "configure", "fits", "history", "last", "lite", "load", "load_fleet", "measure_peak",
    "profile", "serve", "step", "summarize",
]  # fmt: skip
__version__ = "0.1.0"


def configure(
    *, live: "bool | EllipsisType | None" = ..., history: "bool | str | PathLike[str] | None" = None
) -> None:
    """Choose whether reports in this notebook get live controls, and whether runs are kept.

    Args:
        live: True or False for all reports from now on; None for the default (not in Colab).
        history: False keeps nothing of any run in this process from now on, True keeps their numbers in the
            usual file (see ``docs/history.md``); a path names the file. ``PROFNB_HISTORY`` is the same.

    Raises:
        CaptureError: There is no notebook with `%load_ext profnb` that could have live controls.
    """
    from profnb.history.place import choose

    choose(history)
    if live is ...:
        return
    from IPython.core.getipython import get_ipython

    from profnb.capture.cell import loaded_magics

    magics = loaded_magics(get_ipython())
    if magics is None:
        raise CaptureError("profnb is not loaded in this notebook; run `%load_ext profnb` first.")
    magics.live = live


def history(
    cell: str | None = None, label: str | None = None, path: "str | PathLike[str] | None" = None
) -> "pd.DataFrame":
    """List the runs that were kept, and where they became slower or faster.

    Args:
        cell: Only runs of this code: how the column ``cell`` begins.
        label: Only runs of this label.
        path: The history's file; the usual one by default.

    Returns:
        A DataFrame with a row per run, the oldest first; see ``docs/history.md``.

    Raises:
        ProfnbError: The file is damaged, or another program's.
    """
    from profnb.history.showing import open_history

    return open_history(cell, label, path).frame()


def measure_peak(seconds: float = 2.0) -> "MeasuredPeak":
    """Measure what this machine's CPU can do: a product of matrices and a copy, on all its cores.

    What is captured in this process is judged by it from then on, a capture before it too: ``p.op_roofline``,
    ``p.layers`` and the report say which ops are compute-bound and which memory-bound. Run it while nothing
    else runs.

    Args:
        seconds: How long to measure, about.

    Returns:
        Operations and bytes per second, of the fastest run and between which half of the runs lay.

    Raises:
        ValueError: There is no time.
    """
    from profnb.subjects.bounds.measured_peak import measure_cpu

    return measure_cpu(seconds)


def summarize(
    paths: "str | PathLike[str] | Iterable[str | PathLike[str]]",
    *,
    executor: "Executor | None" = None,
) -> "pd.DataFrame":
    """Summarize many traces, one row each; see ``profnb.many_traces.summaries.summarize``.

    Args:
        paths: A folder, of which every trace is taken, or traces; also as URLs.
        executor: Where to read them: any ``concurrent.futures.Executor`` whose workers see the files; here,
            one after the other, by default.

    Returns:
        A DataFrame with a row per trace; one that cannot be read, or whose worker was lost, says why.

    Raises:
        FileNotFoundError: There is nothing at the folder.
        TraceFormatError: There is no trace in it.
    """
    from profnb.many_traces.summaries import summarize as summarize_traces

    return summarize_traces(paths, executor=executor)


def load_ipython_extension(shell: Any) -> None:
    """Load the magics: ``%load_ext profnb`` calls this."""
    from profnb.magics import load_magics

    load_magics(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away: ``%unload_ext profnb`` calls this."""
    from profnb.magics import unload_magics

    unload_magics(shell)
