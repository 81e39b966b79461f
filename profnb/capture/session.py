"""Running code to one bounded trace: the only door to the profilers.

A ``Capture`` starts the profiler of the framework that does the work, closes the window by itself after a
number of steps or seconds, and keeps timing steps until it is finished. It never fails the code it surrounds:
what goes wrong with a profiler is said in ``messages``. No framework need be imported yet; the capture begins
when one is. A profiler session that is already running is stopped, its trace saved where its owner asked, and
that is said.
"""

import re
import time
from contextlib import ExitStack
from functools import partial

from profnb.capture.environment import describe_environment, explain_nothing, list_devices
from profnb.capture.frameworks import Frameworks
from profnb.capture.journal.journal import Journal
from profnb.capture.machine.machine_watch import MachineWatch
from profnb.capture.marking.open_steps import counting_ns
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.marking.trace_events import find_changing_arguments
from profnb.capture.models.model_watch import ModelWatch
from profnb.capture.parts.cell_counters import CallClock, OwnTime
from profnb.capture.parts.part_records import PROFNB, shorten_parts
from profnb.capture.profiler.doors import Doors
from profnb.capture.profiler.profiler_door import first_line
from profnb.capture.profiler.window import Window
from profnb.capture.recording import Recording
from profnb.capture.signals import interrupt_held_back
from profnb.capture.source.source_watch import SourceWatch
from profnb.capture.source.stacks import Sampler
from profnb.capture.source.user_code import is_session_file
from profnb.capture.step_records import KINDS, RUN, Standing, recent_step_ns
from profnb.core.options import CaptureOptions
from profnb.tf1.session_runs import GraphRuns

_MODEL_CODE = re.compile("tensorflow|keras")  # a file in which graphs and models are made and run


class Capture:
    """One bounded capture around running code.

    Args:
        options: What to record and for how long.
        traces: Whether to record a trace; without one, steps are only timed.
    """

    def __init__(self, options: CaptureOptions, *, traces: bool = True) -> None:
        """Prepare; nothing starts before ``start``."""
        self.options = options
        self.recording = Recording()
        self._traces = traces
        messages, failed = self.recording.messages, self._hook_failed
        self._hook_error: Exception | None = None
        self.own_time = OwnTime()
        self.sampler = Sampler(self._code_seen)
        self._gaps = CallClock()
        self.profilers = Doors(options, messages)
        self.source = SourceWatch(
            self.sampler, has_lines=options.source and traces, has_stacks=options.python and traces
        )
        self._window = window = Window(
            options,
            self.recording,
            self.profilers,
            self.source,
            self.own_time,
            lambda: self.recorder.open.has_begun,
            failed,
        )
        self.recorder = StepRecorder(
            window.is_open,
            window.step_recorded,
            lambda: self._frameworks.door_of_keras(),  # noqa: PLW0108 - they are made below
            self._gaps,
        )
        self.recording.turns = self.recorder.tapes.turns
        self.graph_runs = GraphRuns(
            options.max_steps if traces else 0,
            options.max_seconds,
            self._session_runs_begin,
            self.recorder.session_runs,
            failed,
            partial(self.own_time.part, "session runs"),
        )
        self.machine = MachineWatch()
        self.models = ModelWatch()
        self._frameworks = Frameworks(
            window,
            self.profilers,
            self.recording,
            recorder=self.recorder,
            source=self.source,
            models=self.models,
            session_runs=self.graph_runs.watch,
            own_time=self.own_time,
            hook_failed=failed,
            traces=traces,
        )
        self.journal = Journal(
            options,
            self.sampler,
            self.recorder.log,
            self.own_time,
            lambda: self.machine.records,
            self.recording,
            failed,
        )
        self._watches = ExitStack()
        self._began_ns = 0
        self._code_began = 0, 0  # when, and what the profiler had taken by then

    def _code_seen(self, file: str) -> None:
        """The sampler has met code of a file."""
        if is_session_file(file):
            self._frameworks.sessions_seen()

    def standing(self) -> Standing:
        """Say where it stands now; any thread may ask."""
        return Standing(
            time.perf_counter_ns() - self._code_began[0] if self._code_began[0] else 0,
            self._window.is_open(),
            self._window.has_closed,
            self._window.traced_steps,
            self.options.max_steps,
            recent_step_ns(self.recorder.log),
            self.recorder.batches.keras_runs.now,
        )

    def start(self) -> None:
        """Begin: now, or when the code imports TensorFlow; nothing is left open where that fails."""
        try:
            with interrupt_held_back():
                self._start()
        except BaseException:
            with interrupt_held_back():
                self._abandon()
            raise

    def _start(self) -> None:
        self._began_ns = time.perf_counter_ns()
        with self.own_time.part("start"):
            if self._traces:
                self._watches.enter_context(self.machine.watch())
            self._watches.enter_context(self._frameworks.watch())
            if not self._traces:
                self.recorder.open.counts_only = True
            if not self._window.is_open():
                self.source.begin_without_trace()
            self.sampler.start()
            self.journal.start()
        self._code_began = time.perf_counter_ns(), self.recording.overhead_ns

    def _abandon(self) -> None:
        """Close what was opened; the code will not run."""
        try:
            self._window.close(None)
        finally:
            self._window.stop_clock()
            self._watches.close()
            self._gaps.stop(0)
            self.sampler.stop()
            self.journal.remove()
            self.recording.discard()

    def finish(self) -> Recording:
        """End the capture and say what it left behind."""
        began_ns, overhead_before_ns = self._code_began
        self.journal.end()
        inside_ns = self.recording.overhead_ns - overhead_before_ns
        ended_ns = self.recording.turns.end_ns = time.perf_counter_ns()
        self.recording.wall_ns = ended_ns - began_ns - inside_ns
        self.graph_runs.see_gaps(self.sampler.end(), has_source=self.options.source)
        timed = self._gaps.stop(self.sampler.base)
        looks = self.sampler.stop()
        try:
            self._window.close(None)
            self._frameworks.codes_profiler.choose_trace()
            self.source.end()
        finally:
            self._window.stop_clock()
            self._watches.close()
        runs, recording = self.graph_runs, self.recording
        self.recorder.batches.end_failed_batch()
        from profnb.capture.parts.cell_division import CellCounts, divide_cell  # it needs NumPy

        log = self.recorder.log
        recording.steps = log.records()
        counts = CellCounts(
            self._began_ns,
            ended_ns,
            log,
            self.own_time.spans,
            self._frameworks.flying,
            counting_ns() if len(log) else 0,
        )
        cell = divide_cell(counts, looks, timed)
        self.source.add_places((part.file, part.line) for part in cell.parts if part.file)
        recording.marking_ns = self.recorder.open.marking_ns
        recording.machine = self.machine.records if len(self.machine.records) else None
        has_reason = bool(recording.messages)
        recording.messages.extend(self._explain_losses())
        try:
            has_run = bool(len(log)) or any(
                _MODEL_CODE.search(file) for _, file, *_ in looks.frames
            )
            recording.source, recording.stacks = self.source.finish(
                looks, runs.graph, self.models.living(), has_run=has_run
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            recording.messages.append(
                f"Source lines could not be read ({first_line(error)}). --no-source does without."
            )
        recording.graph_runs, recording.graph = runs.runs, runs.graph
        recording.graph_versions = runs.graph_versions
        recording.sessions = runs.records if runs.ended else None
        recording.messages.extend(self.source.messages)
        if self._traces:
            recording.messages.extend(runs.explain())
        if self._frameworks.tensorflow is not None and len(recording.steps):
            recording.devices = list_devices()
        recording.environment = describe_environment() | runs.environment
        recording.changing_arguments = find_changing_arguments(self.recorder.events.functions.alive)
        recording.functions = self.recorder.events.functions.listed()
        if not (self._frameworks.any_imported or has_reason):
            recording.messages.append(explain_nothing())
        recording.cell = shorten_parts(cell, self.source.folder)
        recording.cell.add(PROFNB, "stop", time.perf_counter_ns() - ended_ns)
        return recording

    def _explain_losses(self) -> list[str]:
        """Say what is lost because of names that others changed, and because of faults of ours."""
        sentences = self._frameworks.explain_losses()
        if self._hook_error is not None:
            error = f"{type(self._hook_error).__name__}: {first_line(self._hook_error)}"
            sentences.append(
                f"A hook of profnb's failed ({error}), so this result may lack something. The code ran as "
                "usual."
            )
        return sentences

    def _hook_failed(self, error: Exception) -> None:
        """Keep the first error only: a hook that fails does so each time."""
        self._hook_error = self._hook_error or error

    def _session_runs_begin(self) -> bool:
        """Make way for FULL_TRACE, unless the window holds steps of another kind."""
        log = self.recorder.log
        pairs = zip(log.column("kind"), log.column("was_traced"), strict=True)
        if sum(traced for kind, traced in pairs if KINDS[kind] != RUN) > 1:
            return False
        self._window.close("session runs")
        self.recording.closed_by = "session runs"
        log.set_traced()  # by the profiler, whose trace is not the one to be shown
        return True
