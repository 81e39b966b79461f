"""A trace to all its analyses, each worked out once and only when asked for."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from profnb.steps.breakdown import (
    StepBreakdown,
    break_down_steps,
    categorize_events,
    extend_to_device_work,
)
from profnb.subjects.device.copies import CopyTable, tabulate_copies
from profnb.subjects.device.devices import (
    DeviceTable,
    busiest_device,
    tabulate_devices,
    working_devices,
)
from profnb.subjects.device.idle import IdleTable, attribute_idle
from profnb.subjects.device.kernels import KernelTable, tabulate_kernels
from profnb.subjects.device.launches import (
    LaunchTable,
    StreamTable,
    tabulate_launches,
    tabulate_streams,
)
from profnb.subjects.device.peaks import Peak, find_peak
from profnb.subjects.device.precision import Precision, measure_precision
from profnb.subjects.device.roofline import Roofline, draw_roofline
from profnb.subjects.input.diagnosis import (
    InputDiagnosis,
    diagnose_input,
    explain_first_element,
    name_functions,
)
from profnb.subjects.input.iterators import IteratorTree, count_first_fill, find_iterators
from profnb.subjects.input.pipeline import InputPipeline, tabulate_input_pipeline
from profnb.subjects.input.charges import Pieces, charge_waiting
from profnb.subjects.input.waiting import Waiting, find_waiting
from profnb.subjects.input.input_work import NOT_INPUT, find_input_work
from profnb.subjects.layers.layer_table import LayerTable, tabulate_layers
from profnb.subjects.layers.layer_times import LayerTimes, hand_out_ops
from profnb.subjects.memory.allocators import Allocator, find_allocators, tabulate_peak
from profnb.subjects.memory.samples import find_samples
from profnb.subjects.memory.use import MemoryUse, measure_memory
from profnb.steps.nesting import self_times
from profnb.report.notes import note_contents, note_devices, note_input, note_memory, note_steps
from profnb.subjects.ops.op_table import OpRuns, OpTable, find_op_runs, sum_op_runs
from profnb.timeline.lanes import Rows, lay_out_rows
from profnb.subjects.source.source_lines import SourceLines, tabulate_source_lines
from profnb.subjects.python.python_time import PythonTime, tabulate_python
from profnb.steps.examples import examples_per_step, usual_batch_size
from profnb.steps.grouping import Groups, group_events
from profnb.steps.step_times import (
    StepTimes,
    TracingCost,
    step_times_of_trace,
    tracing_cost,
    wall_step_times,
)
from profnb.steps.windows import Steps, find_steps
from profnb.steps.streams import raw_device_lines
from profnb.steps.summary import Summary, summarize
from profnb.subjects.xla.hlo_ops import HloOps, find_hlo_ops
from profnb.subjects.xla.programs import XlaModules, XlaOps, tabulate_xla, tabulate_xla_modules
from profnb.capture.recording import Recording
from profnb.core.columns import Int8s, Int64s
from profnb.trace.model import Counter, Trace

__all__ = ["Study"]


class Study:
    """Everything that is worked out from one trace.

    Attributes:
        trace: The trace.
        warmup_steps: How many first steps to leave out of averages besides those with tracing.
        recording: What the capture saw besides the trace; empty for a saved trace.
    """

    def __init__(
        self, trace: Trace, warmup_steps: int = 0, recording: Recording | None = None
    ) -> None:
        """Nothing is computed yet."""
        self.trace = trace
        self.warmup_steps = warmup_steps
        self.recording = recording or Recording()

    @cached_property
    def _host_steps(self) -> Steps:
        return find_steps(self.trace, self.warmup_steps)

    @cached_property
    def groups(self) -> Groups:
        """Which step each event belongs to."""
        return group_events(self.trace, self._host_steps)

    @cached_property
    def steps(self) -> Steps:
        """The steps, each to the end of the device work that the host waited for."""
        return extend_to_device_work(self.trace, self._host_steps, self.groups)

    @cached_property
    def breakdown(self) -> StepBreakdown:
        """Where each step's time went, on the busiest device if there are several."""
        device = busiest_device(self.trace)
        return break_down_steps(self.trace, self.steps, self.groups, device)

    @cached_property
    def device_breakdowns(self) -> dict[str, StepBreakdown]:
        """Where each step's time went as each device sees it, by the device's name."""
        return {
            self.trace.planes[plane].name: break_down_steps(
                self.trace, self.steps, self.groups, plane
            )
            for plane in working_devices(self.trace)
        }

    @cached_property
    def categories(self) -> Int8s:
        """The category of each event, as index into ``CATEGORIES``."""
        return categorize_events(self.trace, self.steps)

    @cached_property
    def rows(self) -> Rows:
        """Where each event stands in a picture of the trace."""
        return lay_out_rows(self.trace, self.steps)

    @cached_property
    def self_ps(self) -> Int64s:
        """Each event's duration less what its children on the same line cover, shape (E,)."""
        events = self.trace.events
        return self_times(events.begin_ps, events.end_ps, self.rows.parent)

    @cached_property
    def has_device(self) -> bool:
        """Whether anything was recorded on a device."""
        lines = raw_device_lines(self.trace)
        return bool(lines.any() and np.diff(self.trace.lines.offsets)[lines].any())

    @cached_property
    def hlo(self) -> HloOps:
        """Which events ran HLO instructions, and the programs those belong to."""
        return find_hlo_ops(self.trace)

    @cached_property
    def xla(self) -> XlaOps:
        """The HLO instructions of the whole capture."""
        return tabulate_xla(self.trace, self.hlo)

    @cached_property
    def xla_modules(self) -> XlaModules:
        """The programs that were compiled or ran."""
        return tabulate_xla_modules(self.trace, self.hlo, self.xla)

    @cached_property
    def op_runs(self) -> OpRuns:
        """Every run of an op."""
        return find_op_runs(self.trace, self.hlo)

    @cached_property
    def _input_of(self) -> Int64s:
        """Which runs of ops are the input pipeline's, and of which iterator's function."""
        events = self.op_runs.events
        return find_input_work(self.trace, self.iterators, self.groups.parent, events)

    @cached_property
    def ops(self) -> OpTable:
        """The ops of the whole capture."""
        return sum_op_runs(self.op_runs)

    @cached_property
    def source_lines(self) -> SourceLines | None:
        """What each line of the user's source cost; None where the capture did not look at it."""
        records = self.recording.source
        if records is None:
            return None
        return tabulate_source_lines(self.trace, self.hlo, self.op_runs, self._input_of, records)

    @cached_property
    def python(self) -> PythonTime | None:
        """Where Python's time went; None where the capture did not sample it."""
        stacks = self.recording.stacks
        return None if stacks is None else tabulate_python(stacks, self.recording.steps)

    @cached_property
    def kernels(self) -> KernelTable:
        """The kernels of the whole capture."""
        return tabulate_kernels(self.trace, hlo=self.hlo)

    @cached_property
    def precision(self) -> Precision:
        """Kernel time by the width of the numbers."""
        return measure_precision(self.trace, self.hlo)

    @cached_property
    def copies(self) -> CopyTable:
        """The devices' copies of the whole capture."""
        return tabulate_copies(self.trace)

    @cached_property
    def devices(self) -> DeviceTable:
        """How busy each device was."""
        return tabulate_devices(self.trace, self.steps)

    @cached_property
    def iterators(self) -> IteratorTree:
        """The iterators of tf.data."""
        return find_iterators(self.trace)

    @cached_property
    def _waits(self) -> Pieces:
        return charge_waiting(self.trace, self.iterators)

    @cached_property
    def input_pipeline(self) -> InputPipeline:
        """What each iterator of tf.data cost."""
        return tabulate_input_pipeline(self.trace, self.iterators, self._waits)

    @cached_property
    def waiting(self) -> Waiting:
        """How the training waited for its input."""
        return find_waiting(
            self.trace,
            self.steps,
            self.summary.counted,
            self.iterators,
            self._waits,
            self.input_pipeline,
        )

    @cached_property
    def _first_element(self) -> str:
        if not len(self.iterators) or not len(self.trace.events):
            return ""
        events = self.trace.events
        window = int(events.end_ps.max() - events.begin_ps.min())
        filling = count_first_fill(self.trace, self.iterators)
        return explain_first_element(self.input_pipeline, self.waiting, window, filling)

    @cached_property
    def samples(self) -> list[Counter]:
        """What was sampled: memory per allocator, and how full tf.data's buffers were."""
        return find_samples(self.trace)

    @cached_property
    def buffer_capacity(self) -> dict[str, int]:
        """How much the buffer of each iterator holds, by its place."""
        table = self.input_pipeline
        return {
            path: int(capacity)
            for path, capacity in zip(self.iterators.path, table.capacity, strict=True)
            if capacity > 0
        }

    @cached_property
    def input_functions(self) -> tuple[str, ...]:
        """The name of the user's function of each iterator, where the capture knew the dataset."""
        return name_functions(self.input_pipeline, self.recording.datasets)

    @cached_property
    def input_diagnosis(self) -> InputDiagnosis | None:
        """What starves the training; None without an input pipeline or steps."""
        if self.steps.is_window:
            return None
        waiting = self.waiting
        examples = self._examples[waiting.counted]
        each: float | None = usual_batch_size(self.trace)
        if waiting.elements and examples.size and examples.all():
            each = float(examples.sum() / waiting.elements)
        return diagnose_input(self.input_pipeline, waiting, each, self.input_functions)

    @cached_property
    def allocators(self) -> list[Allocator]:
        """The allocators of memory."""
        return find_allocators(self.trace)

    @cached_property
    def memory_use(self) -> list[MemoryUse]:
        """What each allocator held at its peak, and whether it grows."""
        batch = None if self.steps.is_window else self.summary.batch_size
        batch = batch or usual_batch_size(self.trace)
        return [
            measure_memory(self.trace, allocator, self.steps, batch)
            for allocator in self.allocators
        ]

    @cached_property
    def launches(self) -> LaunchTable:
        """How each device's kernels were launched."""
        return tabulate_launches(self.trace, self.groups, len(self.steps))

    @cached_property
    def streams(self) -> StreamTable:
        """What each stream ran."""
        steps = self.steps
        window = (int(steps.begin_ps[0]), int(steps.end_ps[-1])) if len(steps) else (0, 0)
        return tabulate_streams(self.trace, window)

    @cached_property
    def peak(self) -> Peak | None:
        """The limits of the busiest device; None where they are not known."""
        device = busiest_device(self.trace)
        return None if device is None else find_peak(self.trace.planes[device])

    @cached_property
    def roofline(self) -> Roofline | None:
        """XLA's ops against the limits of their device; None where those are not known."""
        return draw_roofline(self.xla, self.hlo, self.peak)

    @cached_property
    def idle(self) -> IdleTable | None:
        """Why the busiest device was idle; None without a device."""
        return attribute_idle(self.trace, self.steps)

    def ops_of_steps(self, rows: npt.NDArray[np.int64]) -> OpTable:
        """The ops of some steps only."""
        wanted = np.zeros(len(self.steps) + 1, np.bool_)
        wanted[rows] = True
        return sum_op_runs(self.op_runs, wanted[self.groups.step])

    @cached_property
    def layer_times(self) -> LayerTimes:
        """Op time of the counted steps by layer."""
        counted = self.summary.counted
        wanted = np.zeros(len(self.steps) + 1, np.bool_)
        wanted[counted] = True
        iterations = int(self.steps.iterations[counted].sum())
        return hand_out_ops(
            self.op_runs,
            wanted[self.groups.step],
            self._input_of > NOT_INPUT,
            self.hlo,
            self.recording.models,
            max(iterations, 1),
            self.summary.phase or "",
        )

    @cached_property
    def layers(self) -> LayerTable:
        """The layers, with what is known of each."""
        times = self.layer_times
        went_back = bool(times.time_ps[:, :, 1].any())
        largest = max(
            self.allocators, key=lambda a: (a.is_device, int(a.in_use.max())), default=None
        )
        return tabulate_layers(
            times,
            [] if largest is None else tabulate_peak(self.trace, largest, self.steps),
            batch_size=None if self.steps.is_window else self.summary.batch_size,
            is_training=went_back or self.summary.phase == "train",
            has_device=self.has_device,
        )

    @cached_property
    def _examples(self) -> Int64s:
        return examples_per_step(self.trace, self.groups, len(self.steps))

    @cached_property
    def summary(self) -> Summary:
        """The few numbers a person reads first."""
        examples = self._examples
        return summarize(self.steps, self.breakdown, examples)

    @cached_property
    def step_times(self) -> StepTimes:
        """Every step the code ran, traced or not; of a saved trace the traced ones."""
        if len(self.recording.steps):
            return wall_step_times(self.recording.steps)
        return step_times_of_trace(self.steps)

    @cached_property
    def tracing_cost(self) -> TracingCost | None:
        """What tracing did to the steps; None where it was not measured."""
        return tracing_cost(self.step_times, self.summary.phase)

    @cached_property
    def notes(self) -> list[str]:
        """What is missing, cut or averaged, in sentences."""
        return [
            *note_steps(self.steps, self.summary, len(self.trace.events)),
            *note_devices(self.trace),
            *note_contents(self.trace),
            *note_input(self._first_element, self.steps, self.summary, self.iterators),
            *note_memory(self.memory_use),
            *self.hlo.complaints,
        ]
