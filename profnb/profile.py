"""``Profile``: a capture and its answers, what every door gives back.

The magics, ``profnb.profile`` and ``profnb.load`` all end here. Nothing heavy is imported before a
question is asked, so that ``import profnb`` stays cheap.
"""

import math
import os
import time
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.environment import CORES
from profnb.capture.recording import Recording
from profnb.core.errors import CaptureError
from profnb.core.options import CaptureOptions
from profnb.core.printable import printable
from profnb.core.safe_files import whole_file
from profnb.core.sharing import Sharing
from profnb.core.units import PS_PER_MS
from profnb.report.result import SharedResult
from profnb.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from profnb.advice.cell_model import Model
    from profnb.advice.proposals import Advice
    from profnb.advice.what_if import WhatIf
    from profnb.capture.memory.memory_records import MemoryShortage
    from profnb.capture.models.layer_facts import ModelFacts
    from profnb.causes.cell_tree import CellTree
    from profnb.compare.trial_table import Trial
    from profnb.core.columns import Floats
    from profnb.drawing.figures import Figures
    from profnb.report.report import Report
    from profnb.steps.step_times import StepTimes
    from profnb.subjects.bounds.measured_peak import MeasuredPeak
    from profnb.subjects.cell.cell_breakdown import CellBreakdown
    from profnb.subjects.layers.memory_kinds import KindRow
    from profnb.subjects.python.python_time import PythonTime
    from profnb.subjects.study import Study
    from profnb.subjects.system.machine_use import Energy, MachineUse
    from profnb.tf1.event_file import Scalars
    from profnb.trace.model import Trace
    from profnb.trace.runs import CaptureTime

_LEAST_UNTRACED = 0.1  # of a cell's wall time: less is not worth a note


class Profile(Tables, SharedResult):
    """The answer to "where did the time go?" for one capture.

    Every table is a pandas DataFrame made fresh on access; times are in the unit of the column's
    suffix and a missing value is NaN. Shown in a notebook, a profile is its report.

    Attributes:
        options: How it was captured; defaults for a saved trace.
        recording: What the capture saw besides the trace; None for a trace of others.
        repeats: What was seen of further runs of the same code, which were timed but not traced.
        ran_here: Whether its code ran in this process.
        title: What the page is called where there is no label: the cell's first line of code, or the file
            that has the block; "" for none.
        opened_as: The path by which a line of the notebook opened it; "" for none.
        remarks: What is to be said of how it was opened, in sentences; the first of its notes.
        event_files: TensorBoard's event files of its folder or logdir, whose scalars it has.
        other_hosts: How many more hosts the capture has that are not shown.
        trying: Tries edits of its code, which is a cell of this notebook; None where it is none.
        tried: The trials that were made.
        code: What the history calls the code that ran; "" where it keeps nothing of it.
        run_key: What the history calls this run.
    """

    def __init__(
        self,
        trace: "Trace | None" = None,
        recording: Recording | None = None,
        options: CaptureOptions | None = None,
        counted: "tuple[PythonTime, str] | None" = None,
        models: "tuple[ModelFacts, ...]" = (),
    ) -> None:
        """Wrap a trace that was read, a recording whose trace comes later, or a profile of Python."""
        self.options = options or CaptureOptions()
        self._trace = None if trace is None else self._as_shown(trace)
        self._models = models
        self._counted: PythonTime | None
        self._counted, self._counted_source = counted or (None, "")
        self.recording = recording
        self.repeats: list[Recording] = []
        self.remarks: list[str] = []
        self.other_hosts = 0
        self.event_files: list[Path] = []
        self.title = self.opened_as = self.code = self.run_key = ""
        self.ran_here = False
        self.trying: Callable[..., list[Trial]] | None = None
        self.tried: list[Trial] = []
        self._shown: tuple[tuple[MeasuredPeak | None, str], Report] | None = None

    def _set_trace(self, trace: "Trace") -> None:
        """Take the trace that a capture left, and forget what was said before there was one."""
        self._trace, self._shown = self._as_shown(trace), None
        for name, attribute in vars(Profile).items():
            if isinstance(attribute, cached_property):
                vars(self).pop(name, None)

    def _as_shown(self, trace: "Trace") -> "Trace":
        """The trace with its devices on the host's clock, and with what may leave of it."""
        from profnb.trace.enqueued import align_clocks

        return replace(align_clocks(trace), has_files=self.options.source)

    @property
    def sharing(self) -> Sharing:
        """The rule for what of it may leave in a page, a notebook or a file."""
        trace = self._trace
        return Sharing(has_files=self.options.source) if trace is None else trace.sharing

    @property
    def trace(self) -> "Trace":
        """The trace's columns.

        Raises:
            CaptureError: There is no trace, or not yet; the message says why.
        """
        if self._counted is not None:
            source = self._counted_source
            raise CaptureError(f"{source} is a profile of Python and has no trace.")
        if self._trace is None:
            messages = self.recording.messages if self.recording else []
            raise CaptureError(" ".join(messages) or "The capture has not ended yet.")
        return self._trace

    @property
    def has_trace(self) -> bool:
        """True if there is a trace to ask about."""
        return self._trace is not None

    @cached_property
    def study(self) -> "Study":
        """The analyses behind the tables, as columns in picoseconds."""
        from profnb.subjects.study import Study

        recording, options = self.recording or Recording(models=self._models), self.options
        study = Study(self.trace, options.warmup_steps, recording, options.steps)
        return study.without_tracing()

    @property
    def _python(self) -> "PythonTime | None":
        return self.study.python.time if self._counted is None else self._counted

    @cached_property
    def _scalars(self) -> "Scalars":
        from profnb.tf1.event_file import read_scalars

        return read_scalars(self.event_files)

    @cached_property
    def _step_times(self) -> "StepTimes":
        from profnb.steps.step_times import wall_step_times

        if self.has_trace or self.recording is None:
            return self.study.step_times
        return wall_step_times(self.recording.steps)

    @cached_property
    def _cell_breakdown(self) -> "CellBreakdown | None":
        from profnb.subjects.cell.cell_breakdown import break_down_cell

        if self.recording is None or self.recording.cell is None:
            return None
        return break_down_cell(self.recording.cell, self.recording.source)

    @cached_property
    def tree(self) -> "CellTree | None":
        """The tree behind ``cell_tree``, as columns in picoseconds; None where there is none."""
        from profnb.causes.cell_tree import grow_tree

        cell = None if self.recording is None else self.recording.cell
        return grow_tree(cell, self._traced_study)

    @cached_property
    def _memory_kinds(self) -> "list[KindRow]":
        from profnb.subjects.layers.memory_kinds import tabulate_kinds

        recording = self.recording or Recording()
        looks = recording.machine.resident_bytes if recording.machine is not None else ()
        peaks = self.study.layers.peaks if self.has_trace else ()
        return tabulate_kinds(recording.memory, peaks, max(looks, default=-1))

    @property
    def _shortage(self) -> "MemoryShortage | None":
        return self.recording.memory.shortage if self.recording is not None else None

    @cached_property
    def _machine(self) -> "MachineUse | None":
        from profnb.subjects.system.machine_use import find_machine_use

        return None if self.recording is None else find_machine_use(self.recording.machine)

    @cached_property
    def _energy(self) -> "tuple[Energy, ...]":
        from profnb.steps.summary import usual_batch_size
        from profnb.subjects.system.machine_use import find_energy

        if self.recording is None or self.recording.machine is None:
            return ()
        if not self.has_trace:
            return find_energy(self.recording.machine, None, None, None)
        summary = self.study.summary
        batch = summary.batch_size or usual_batch_size(self.trace)
        examples = None if batch is None else float(batch * max(summary.iterations, 1))
        return find_energy(self.recording.machine, self._step_times, summary.phase, examples)

    def tfprof(self, view: str = "scope", graph: Any = None) -> "pd.DataFrame":
        """A view of tfprof's on session runs (TF1); columns: ``profnb.tf1.tfprof``.

        Args:
            view: "scope", "graph", "op" or "code".
            graph: The graph that ran; a capture knows it.
        """
        from profnb.tf1.tfprof import tfprof_frame

        if graph is None and self.recording is not None:
            graph = self.recording.graph
        return tfprof_frame(self.trace, view, graph)

    # Words and pictures.

    @property
    def _steady_runs(self) -> "list[tuple[int, tuple[Floats, bool]]]":
        from profnb.compare.speedup import steady_step_times
        from profnb.steps.step_times import wall_step_times

        times = [self._step_times, *(wall_step_times(run.steps) for run in self.repeats)]
        runs = [(at, steady_step_times(self.study, one)) for at, one in enumerate(times)]
        return [run for run in runs if not run[1][1] and len(run[1][0])] or runs[:1]

    @property
    def steady_step_times(self) -> "list[tuple[Floats, bool]]":
        """For each run, times from step to step without warm-up in picoseconds, and whether they were traced.

        Where there are untraced runs, only those count: tracing slows steps.
        """
        return [times for _, times in self._steady_runs]

    @property
    def steady_rounds(self) -> list[int]:
        """The numbers of these runs: 0 is the one that was traced, 1 the first repeat."""
        return [at for at, _ in self._steady_runs]

    @property
    def capture_time(self) -> "CaptureTime":
        """Time and host of the capture, as far as its trace tells."""
        from profnb.trace.runs import capture_time

        return capture_time(self.trace)

    @property
    def recordings(self) -> list[Recording]:
        """The record of each run of the code: the traced one, then its repeats; none of others' traces."""
        return ([self.recording] if self.recording else []) + self.repeats

    @property
    def run_ps(self) -> "Floats":
        """Wall time of the whole code in picoseconds, one per run: of untraced runs, where there are some."""
        import numpy as np

        runs = self.repeats or self.recordings[:1]
        return np.array([run.wall_ns * 1000.0 for run in runs if run.wall_ns > 0])

    @property
    def environment(self) -> dict[str, str]:
        """Versions and precision policy that the code ran with; empty for others' traces."""
        return dict(self.recording.environment) if self.recording else {}

    @property
    def _report(self) -> "Report":
        """The report, decided anew where the CPU's limits were measured since, or it has a new name."""
        from profnb.report.advice import again_line, name_in_notebook
        from profnb.subjects.bounds.measured_peak import kept_peak

        report_key = kept_peak(), again_line(name_in_notebook(self) or self.opened_as)
        if self._shown is None or self._shown[0] != report_key:
            self._shown = report_key, self._decide_report(report_key[1])
        return self._shown[1]

    def count_page(self, *, as_html: bool = True, shown_ns: int = 0, around_ns: int = 0) -> None:
        """Make the report, and count what that takes as profnb's part of the cell.

        Args:
            as_html: Whether it will be shown as HTML.
            shown_ns: What showing it will take, as far as is known; of that, as much as making it took.
            around_ns: What else was done around the cell, as reading the magic's options.
        """
        begin_ns = time.perf_counter_ns()
        from profnb.capture.parts.part_records import PROFNB
        from profnb.report.build import with_cell

        report = self._report
        if as_html:
            for section in report.sections:
                _ = section.html  # most of the page's time; kept for it
        if self.recording is None or self.recording.cell is None or self._shown is None:
            return
        made_ns = time.perf_counter_ns() - begin_ns
        self.recording.cell.add(PROFNB, "page", around_ns + made_ns + min(shown_ns, made_ns))
        for name in ("_cell_breakdown", "tree", "_model"):
            self.__dict__.pop(name, None)
        tree = self.tree
        if tree is not None:
            study = self._traced_study
            self.advice = [one.of_cell(tree.whole_ps / PS_PER_MS) for one in self.advice]
            report = replace(report, advice=report.advice and self.advice)
            self._shown = self._shown[0], with_cell(report, tree, study)

    def _decide_report(self, again: str = "") -> "Report":
        from profnb.report.build import build_python_report, build_report
        from profnb.subjects.system.section import system_sections

        if self._counted is not None:
            report = build_python_report(self._counted, self._counted_source)
            return replace(report, sharing=self.sharing)
        has_runs = bool(self.repeats) and self.has_trace
        source = self._trace.source if self._trace else "capture"
        report = build_report(
            self._traced_study,
            title=self.options.label or self.title or source,
            notes=self._other_notes,
            advice=self.advice,
            runs=[times for times, _ in self.steady_step_times] if has_runs else (),
            overhead_ps=self.recording.overhead_ns * 1000.0 if self.recording else None,
            shortage=self._shortage,
            memory_kinds=self._memory_kinds,
            tree=self.tree,
            machine=system_sections(self._machine, self._energy),
            has_tensorflow="TensorFlow" in self.environment,
            again=again,
            times=None if self.has_trace or self.recording is None else self._step_times,
        )
        sections = report.sections
        if self.tried:
            from profnb.compare.trial_section import trial_sections

            has_source = self.options.source
            tried = [one if has_source else replace(one, diff="", sources={}) for one in self.tried]
            sections = [*trial_sections(tried), *sections]
        return replace(report, sections=sections, sharing=self.sharing)

    @cached_property
    def advice(self) -> "list[Advice]":
        """Changes to make, with the numbers that say so; the one that can gain most comes first."""
        from profnb.advice.advise import advise
        from profnb.fleet.verdict import refine_with_devices

        model = self._model
        return [] if model is None else advise(model, refine_with_devices)

    @cached_property
    def _model(self) -> "Model | None":
        from profnb.advice.cell_model import Model

        tree, cores = self.tree, self.environment.get(CORES, "")
        if tree is None:
            return None
        return Model(
            tree,
            self._traced_study,
            self.ran_here,
            int(cores) if cores.isdecimal() else 0,
            self.recording.cell if self.recording is not None else None,
            self._shortage,
            self._memory_kinds if self._shortage is not None else (),
        )

    def what_if(self, **changes: object) -> "WhatIf":
        """Predict the cell's time after a change: ``p.what_if(without="Score.on_epoch_end")``.

        Args:
            changes: ``without``: the name of a callback, an own function or ``predict`` that is not called
                any more. ``compiled``: that of an own function put into a ``tf.function``.
                ``epochs_restart_free``: True for one iterator that all epochs share. ``input``, ``launch``,
                ``device``: how many times as long waiting for input, launching kernels, and what the device
                computes would take (0 for no time). ``cores``: how many there would be. Several are one
                change.

        Returns:
            The least and the most that it saves, in milliseconds of the cell's wall time (of a loaded trace's
            window), and why: ``p.what_if(input=0).saves_ms``.

        Raises:
            ValueError: There is no such change, nothing of that name, or no time that is known.
        """
        from profnb.advice.what_if import what_if

        model = self._model
        if model is None:
            raise ValueError("Nothing was recorded, so no change can save time.")
        return what_if(model, changes)

    def try_advice(
        self,
        n: int = 3,
        *,
        seconds: float = 60.0,
        anyway: bool = False,
        edits: "Sequence[Any] | None" = None,
    ) -> "pd.DataFrame":
        """Try the advice that saves most: edit the cell, run it beside the cell as it is, put all back.

        Args:
            n: How many edits to try one by one; the best are then tried together.
            seconds: How long to go on, about.
            anyway: Whether to try what may change files or other things that nobody can put back.
            edits: Edits to try; by default those of the advice.

        Returns:
            ``p.trials``, which the report shows as well.

        Raises:
            CaptureError: Its code is no cell of this notebook.
        """
        if self.trying is None:
            instead = "For a script: profnb run --try SCRIPT."
            raise CaptureError(f"Only a cell's advice can be tried here. {instead}")
        self.tried = self.trying(self, n, seconds, anyway=anyway, edits=edits)
        self._shown = None
        return self.trials

    @cached_property
    def notes(self) -> list[str]:
        """Sentences on what is missing, cut or averaged, and why, and what starves the training."""
        from profnb.report.notes import note_starvation

        starving = note_starvation(self.study.input.diagnosis) if self.has_trace else []
        return [*self._other_notes, *starving]

    @cached_property
    def _other_notes(self) -> list[str]:
        from profnb.report.notes import note_cost, note_interpreters, notes_of
        from profnb.subjects.system.machine_use import throttling_notes

        notes = [*self.remarks, *(self.recording.messages if self.recording else ())]
        notes.extend(self._window_notes())
        notes.extend(note_interpreters(self.recording))
        if self.has_trace:
            runs, clock = self.study.program.runs_sessions, self.study.clock
            notes.extend(note_cost(self.study.tracing_cost, clock, of_runs=runs))
            notes.extend(notes_of(self.study, [advice.rule for advice in self.advice]))
        notes.extend(throttling_notes(self._machine))
        return notes

    def _window_notes(self) -> list[str]:
        recording = self.recording
        if recording is None or recording.closed_by not in ("steps", "seconds", "events"):
            return []
        is_window = self.has_trace and self.study.steps.is_window
        if is_window and len(recording.steps) and not any(recording.steps.was_traced):
            return []  # the note on the window says why
        seconds = f"{recording.window_ns / 1e9:.2g} s"
        is_of_seconds = recording.closed_by == "seconds"
        why = " More would take long to read." if recording.closed_by == "events" else ""
        longer = f"`-t {math.ceil(recording.wall_ns / 1e9)}` traces longer"
        is_eager = self.has_trace and self.study.program.is_eager
        times = self._step_times if len(recording.steps) or is_eager else None
        if times is None or not len(times) or (times.first_ns is None and is_eager):
            untimed = "; later passes of the loop were not timed" if is_eager else ""
            return [f"Details cover the first {seconds}{untimed}.{why} {longer}."]
        traced = int(times.was_traced.sum())
        what = "passes of the loop" if is_eager else "steps"
        if traced < len(times):
            more = longer if is_of_seconds else f"`-n {len(times)}` traces all"
            covered = (
                f"Details cover the first {traced:,} of {len(times):,} {what}; all were timed."
            )
            return [f"{covered}{why} {more}."]
        if recording.wall_ns - recording.window_ns < recording.wall_ns * _LEAST_UNTRACED:
            return []  # nothing is missing
        return [f"Details cover the first {seconds}. No step came after that. {longer}."]

    def to_dict(self) -> dict[str, Any]:
        """Give what the report says as plain values, for programs and agents.

        Returns:
            Headline, steps, typical step, where the cell's time went, advice, notes, the top of each table,
            and definitions: at most 8 kB as JSON, by ``profnb/report/report.schema.json``.
        """
        from profnb.report.as_data import TOP_TABLES, report_data

        python = () if self._counted is None else ("python",)
        table_names = TOP_TABLES if self.has_trace else python
        source = self._trace.source if self._trace else self._counted_source
        return report_data(
            self._report,
            self._traced_study,
            {name: getattr(self, name) for name in table_names},
            source=self.options.label or source,
            environment=self.environment,
            advice=self.advice,
            step_times=self._step_times if self.has_trace else None,
            cell=self._cell_breakdown,
        )

    @property
    def _traced_study(self) -> "Study | None":
        return self.study if self.has_trace else None

    def metrics(self) -> dict[str, float]:
        """Give its numbers for a tracker of experiments: ``mlflow.log_metrics(p.metrics())``.

        Returns:
            Numbers by name. A name ends in the unit: ``step_median_ms``, ``device_compute_fraction``,
            ``device_gpu_0_busy_fraction``, ``examples_per_second``. What is not known is left out.
        """
        from profnb.report.as_data import metrics_of

        return metrics_of(self._traced_study, self._cell_breakdown)

    @property
    def figures(self) -> "Figures":
        """Every chart of the report as a ``plotly.graph_objects.Figure``, by its title.

        ``list(p.figures)`` says which there are; a trace has those that it has something for:

        ==================================== ============================================
        "Steps"                              time of each step by category, with pauses
        "Layers"                             the model as blocks as wide as their share of op time
        "Input pipeline"                     work and waiting of each iterator
        "Buffers", "Queues"                  what they held over time, and where a step found too little
        "Idle time of the device"            what the busiest device did, and why it was idle
        "XLA ops", "Roofline"                XLA's ops as blocks; what each reached of what it could
        "Roofline of ops"                    the same of the CPU's ops
        "Memory"                             what the device's allocators held over time
        "Python"                             Python's calls as blocks
        ==================================== ============================================

        ``p.figures["Steps"].write_image("steps.png")`` needs kaleido. Showing a figure sends nothing
        anywhere; of plotly's own buttons above it one may, when it is pressed.

        Raises:
            KeyError: There is no figure of this title; the message names those there are.
        """
        from profnb.drawing.figures import Figures

        return Figures(self._report.figures)

    def report(self, live: bool | None = None) -> None:
        """Show the report in the notebook.

        Args:
            live: Whether to add controls that work while the kernel lives; by default they are
                added in Jupyter and not in Colab.
        """
        from profnb.report.frontend import show_report, show_sentence

        if not self.has_trace and self._counted is None and self._cell_breakdown is None:
            show_sentence(" ".join(self.notes))
            return
        show_report(self._report, self._traced_study, live)

    def timeline(self, live: bool | None = None) -> None:
        """Show the trace itself in the notebook: threads and streams, nested events, steps.

        Args:
            live: Whether zooming in may ask the kernel for more detail than the notebook saves; by
                default it may, in Jupyter by two hidden widgets.
        """
        from profnb.report.frontend import show_sentence, show_timeline

        if not self.has_trace:
            show_sentence(" ".join(self.notes))
            return
        show_timeline(self.study, self.notes, live)

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace for chrome://tracing and Perfetto (https://ui.perfetto.dev).

        Args:
            path: The file; compressed if its name ends with ``.gz``.

        Returns:
            The file's path.

        Raises:
            CaptureError: There is no trace.
        """
        from profnb.timeline.export import export_chrome

        target = Path(path).expanduser()
        with whole_file(target) as partial:
            export_chrome(self.trace, self.study.recorded.steps, partial)
        return target

    def save(self, logdir: str | os.PathLike[str]) -> Path:
        """Write the trace into a logdir in TensorBoard's layout, and beside it what else was captured.

        Returns:
            The trace file: XPlane's, in which only paths and names of hosts and users are masked; of
            session runs their ``RunMetadata``.

        Raises:
            CaptureError: There is no trace.
            TraceFormatError: It was opened from a file of another format, which is there to copy.
            OSError: It cannot be written.
        """
        from profnb.capture.saved.sidecar import write_recordings
        from profnb.trace.files import write_into_run, write_trace

        runs = [] if self.recording is None else self.recording.graph_runs
        if self.trace.recorded is None and runs:
            import numpy as np

            from profnb.tf1.run_metadata import RUNS_SUFFIX, write_runs
            from profnb.trace.files import masked

            bytes_of_runs = (masked(np.frombuffer(run, np.uint8), self.sharing) for run in runs)
            buffers = [np.frombuffer(run, np.uint8) for run in bytes_of_runs]
            path = write_into_run(self.trace, logdir, RUNS_SUFFIX, partial(write_runs, buffers))
        else:
            path = write_trace(self.trace, logdir)
        if self.recordings:
            write_recordings(path, self.options, self.recordings)
        return path

    def __repr__(self) -> str:
        source = self._trace.source if self._trace else self._counted_source
        return f"<Profile of {printable(source)}>" if source else "<Profile without a trace>"
