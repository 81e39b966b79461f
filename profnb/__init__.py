"""profnb: the TensorFlow profiler that lives in the notebook.

``%load_ext profnb``, then ``%%tfprofile`` over a cell that trains: under the cell appears where each
step's time went; with ``%%tftimeline`` the trace itself. In scripts: ``with profnb.profile() as p: ...``;
for saved traces: ``profnb.load(path)``.

The house (data flows downwards, an import only ever points back up):

    errors, units, options   what every room may use
    columns, kernels         array types; the one door to Numba
    capture/                 record one bounded trace around running code
        watch                hooks around calls, without a frame in the user's tracebacks
        records, recording   columns of what was seen; what one capture left behind
        markers, inlined     step markers, every step timed; frameless hooks that change arguments
        graph_runs, tfprof   TF1: Session.run with FULL_TRACE, as RunMetadata; tfprof's four views of it
        graph_ops            what ops are for whose names do not tell, by the order they were made in
        environment          what the code ran with
        datasets, functions  what users gave to tf.data; why tf.functions were traced anew
        histories            what Keras' fits reached
        models/              the Keras models that ran, as plain data: layers, shapes, name scopes
        source/              around a capture, what is known of the user's own code
            user_code        which files are the user's, and their text
            lines, stacks    lines as they run; samples of Python's stack
            graph_lines, layer_lines   which lines made the ops of graphs; and Keras' layers
            watch, records   all of them around a capture; columns of what they saw
        switches, fresh      settings around a cell; a cell in a fresh process
        saved                what was seen besides the trace, beside it in a file
        held_back            the profiler's log lines and an interrupt, while it starts or stops
        session              the TensorFlow profiler: start, bounded window, always stopped
        cell                 a cell of the shell, run as if no magic were there
    trace/                   what was recorded: columns, not objects
        names, model         the names we rely on; Trace, Events, Lines, Stats, StringTable
        wire                 protobuf wire format to columns (Numba)
        hlo, hlo_shapes      XLA's programs, saved in a trace, to columns
        xplane, xplane_stats *.xplane.pb to a Trace; its stats, on demand
        assemble             events in any order to a Trace, for the formats below
        run_metadata/        TF1 RunMetadata to a Trace
        chrome/              Chrome trace JSON to a Trace, whoever wrote it, and back
            json_*           JSON bytes to columns and columns to JSON text (Numba)
            reader, kineto   its dialects; events, pairs, counters and stats are their parts
            writer, graph_timeline, stat_texts   a Trace to JSON
        pstats_file          profiles that Python's cProfile saved
        files                a path, a logdir, a run: which files, which reader
    analysis/                what it means: pure functions over columns
        nesting, op_names    parents and self time; which names are ops
        streams, compilation which lines are a device's work, of which kind; programs being compiled
        steps/               when training went through its iterations
            windows, cycles  steps of a trace; which repeated calls make up one iteration
            times            wall times of every step
            grouping         which step an event belongs to, across threads
            examples         batch sizes
        xla/                 what XLA ran: hlo_ops, for which op of the framework; hlo_costs, its operations
                             and bytes; tables of ops and programs; where its time goes, as a tree
        device/              what devices did
            ops, kernels     the op of device work; what ran, and with numbers of which width (precision)
            launches, copies kernels, their launches and streams; what was moved
            devices, idle    how busy each was, and why the busiest was not
            peaks, roofline  what a device could do at most, and how near each op came
        ops                  the op table
        breakdown, summary   every picosecond of a step to one category; the numbers of the headline
        input/               what tf.data did
            iterators, work  its iterators; which events it ran
            waiting, waits   the training's waiting, charged to them, and step by step
            pipeline         what each costs
            diagnosis        which iterator starves the training, and why
        memory/              what allocators held, what was alive at the peak; use: what grows, what would
                             fit; samples over time
        layers/              op time by layer
            name_scopes, model_scopes   names of ops to scopes, scopes to a live model's layers
            rows, times      which row an op belongs to and which way; op time handed out to rows
            flops, table, tree   what layers compute; the table of them; as a picture
        source/              time by the user's code
            graph_ops, op_lines   the ops of a graph; which line made an op
            code_times       which line was running when
            op_work, lines   ops and who asked for them; their time to lines
            python_time, python_counts   Python's functions, from samples and from cProfile's counts
        rows, marks          where events stand in a picture; what of them fits into it
        graph_runs, export   the runs of a TF1 timeline; all that a Chrome trace shows
        notes, study         what is missing and why; all analyses of a trace, each once
        advice/              findings to what to change, ranked by what it can gain
        comparison/          runs against runs
            steady, speedup  the steps of a run that count; how much faster, how sure
            differences, op_differences   which categories and ops account for it
            quality, sweeps  what was learned, compared; what each setting of a sweep achieves
    view/                    how it looks: values in, figures, HTML and text out
        theme, text, tables  palette, words, HTML tables
        charts, plotly       figures as plotly JSON; how each frontend is given one
        sections, advice, report   one table of the report; what to change; the report
        source, python       the user's code with times in its gutter; who called whom in Python
        layers, input, memory, device, xla   its tables on each; device_charts, layer_chart have figures
        page                 all of it as one offline file
        timeline/            the trace itself: packed marks, a still picture, browser code
        comparison, sweep    runs against runs; settings against each other
        controls, progress, frontend   ipywidgets; how far a series is; what to show where
        notebook_file        repair saved notebooks
    frames/                  columns to pandas tables
    device_tables, tables    the tables of a profile
    profile, loading, captured   Profile; load(); profile(), step()
    comparison               compare(): did a change help
    sweep, sweep_process     several settings of one cell; one run in a process of its own
    warm                     compile the kernels ahead of use
    magic_options, sweep_magic, magics   %%tfprofile, %%tftimeline, %tfcompare, %%tfsweep
    demo, __main__           `python -m profnb demo | report | timeline | compare | clean`
"""

from typing import Any

import profnb.compare as _folder  # noqa: F401 - before the function of that name, which so keeps it
from profnb.captured import profile, step
from profnb.comparison import Comparison, compare
from profnb.core.errors import CaptureError, ProfnbError, TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.loading import load
from profnb.profile import Profile

__all__ = [
    "CaptureError",
    "CaptureOptions",
    "Comparison",
    "Profile",
    "ProfnbError",
    "TraceFormatError",
    "compare",
    "configure",
    "load",
    "profile",
    "step",
]
__version__ = "0.1.0"


def configure(*, live: bool | None) -> None:
    """Choose whether reports in this notebook get live controls.

    Args:
        live: True or False for all reports from now on; None for the default (not in Colab).

    Raises:
        CaptureError: There is no notebook with `%load_ext profnb`.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    magics = None if shell is None else shell.magics_manager.registry.get("ProfnbMagics")
    if magics is None:
        raise CaptureError("profnb is not loaded in this notebook; run `%load_ext profnb` first.")
    magics.live = live


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext profnb`` calls."""
    from profnb.magics import load_magics

    load_magics(shell)


def unload_ipython_extension(shell: Any) -> None:
    """What ``%unload_ext profnb`` calls."""
    from profnb.magics import unload_magics

    unload_magics(shell)
