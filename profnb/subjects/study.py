"""A trace to everything that is worked out from it: the spine, and one object per subject.

A subject needs the spine and the subjects before it: memory the spine alone, input what fed it besides, then
xla, device, ops, bounds, and last layers, source and python. That holds of what they find; a section may link
to any other. Nothing is computed before it is asked for, and nothing twice.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Generic

import numpy as np

from profnb.capture.memory.memory_records import CPU
from profnb.capture.source.source_records import GraphShapes
from profnb.core.columns import Bools, Int64s, group, look_up
from profnb.core.table import T
from profnb.steps.spine import Spine
from profnb.steps.streams import working_devices
from profnb.steps.summary import usual_batch_size
from profnb.subjects.bounds.measured_peak import kept_peak
from profnb.subjects.bounds.op_costs import Cost, find_costs
from profnb.subjects.bounds.op_roofline import OpRoofline, place_ops
from profnb.subjects.bounds.tensor_sizes import find_recorded_shapes
from profnb.subjects.device.devices import find_unused_gpus, tabulate_copies, tabulate_devices
from profnb.subjects.device.idle import attribute_idle
from profnb.subjects.device.kernels import tabulate_kernels
from profnb.subjects.device.launches import tabulate_launches, tabulate_streams
from profnb.subjects.device.precision import measure_precision
from profnb.subjects.device.roofline import Peak, draw_roofline, find_peak
from profnb.subjects.feeds.feeding import find_feeding, find_queues
from profnb.subjects.input.diagnosis import InputDiagnosis, diagnose_input, explain_first_element
from profnb.subjects.input.iterators import (
    NOT_INPUT,
    files_text,
    find_input_work,
    find_iterators,
    find_small_files,
    name_functions,
)
from profnb.subjects.input.pipeline import find_buffers, tabulate_buffers, tabulate_input_pipeline
from profnb.subjects.input.waiting import charge_waiting, find_waiting
from profnb.subjects.layers.called_scopes import CalledScopes, find_called_scopes
from profnb.subjects.layers.flops import product_flops
from profnb.subjects.layers.layer_rows import LayerRows
from profnb.subjects.layers.layer_table import LayerTable, tabulate_layers
from profnb.subjects.layers.layer_times import LayerTimes, hand_out_ops
from profnb.subjects.layers.memory_kinds import AllocatorPeak, name_peak, name_program
from profnb.subjects.layers.name_scopes import Callers, LayerNames
from profnb.subjects.memory.allocators import Allocator, find_allocators, tabulate_samples
from profnb.subjects.memory.peak import (
    measure_memory,
    tabulate_op_memory,
    tabulate_peak,
    tabulate_run_peaks,
)
from profnb.subjects.ops.op_execution import EAGER, find_eager_kernels, find_innermost_ops
from profnb.subjects.ops.op_table import OpTable, find_op_runs, runs_within, sum_op_runs
from profnb.subjects.python.python_time import find_python
from profnb.subjects.source.range_table import tabulate_ranges
from profnb.subjects.source.source_lines import SourceLines, tabulate_source_lines
from profnb.subjects.source.torch_lines import find_stack_lines
from profnb.subjects.xla.hlo_ops import find_hlo_ops
from profnb.subjects.xla.xla_ops import tabulate_xla, tabulate_xla_modules

_CASTING = "AutoMixedPrecision"  # casts that TensorFlow itself puts in: the graph's widths are not what ran


class _Value(Generic[T]):
    """A value of a subject: worked out of the study when somebody asks, and kept.

    The docstring of its function says what it is.
    """

    def __init__(self, work_out: Callable[["Study"], T]) -> None:
        self._work_out = work_out

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, subject: "_Subject", owner: type) -> T:
        value = vars(subject)[self._name] = self._work_out(subject.study)
        return value


class _Subject:
    """The findings of one subject, of which nothing is computed yet."""

    def __init__(self, study: "Study") -> None:
        self.study = study


class Input(_Subject):
    """tf.data's work in a trace, the training's waiting for it, and the reason; queues of TensorFlow 1."""

    iterators = _Value(lambda s: find_iterators(s.trace, s.parent, s.function_runs))
    charges = _Value(lambda s: charge_waiting(s.trace, s.input.iterators))
    pipeline = _Value(lambda s: tabulate_input_pipeline(s, s.input.iterators, s.input.charges))
    # The user's line at which each iterator's function stands; "" where that is not known.
    function_lines = _Value(
        lambda s: name_functions(s.input.pipeline.dataset, s.recording.dataset_lines)
    )
    waiting = _Value(
        lambda s: find_waiting(s, s.input.iterators, s.input.charges, s.input.pipeline.parallelism)
    )
    feeding = _Value(find_feeding)
    first_element = _Value(
        lambda s: explain_first_element(s.trace, s.input.pipeline, s.input.waiting)
    )
    queues = _Value(find_queues)
    buffers = _Value(lambda s: find_buffers(s.trace))
    # The same, and the queues, as one table; None where there is neither.
    buffer_samples = _Value(
        lambda s: tabulate_buffers(s.input.buffers, s.input.pipeline, s.input.queues)
    )
    small_files = _Value(
        lambda s: find_small_files(
            s.input.pipeline.function_ops,
            s.input.pipeline.function_occurrences,
            s.recording.file_bytes,
        )
    )

    @cached_property
    def diagnosis(self) -> InputDiagnosis | None:
        """The limit of the training's input; None without an input pipeline or steps."""
        study, waiting = self.study, self.waiting
        if study.steps.is_window:
            return None
        examples = study.examples[waiting.counted]
        is_known = waiting.elements and examples.size and examples.all()
        of_element = float(examples.sum() / waiting.elements) if is_known else None
        per_element = of_element or usual_batch_size(study.trace)
        diagnosis = diagnose_input(self.pipeline, waiting, per_element)
        files = files_text(study.recording.file_counts, study.recording.file_bytes)
        if diagnosis is not None and diagnosis.cause == "small files" and files:
            return replace(diagnosis, sentence=f"{diagnosis.sentence} There are {files}.")
        return diagnosis


class Memory(_Subject):
    """The allocators of a trace: their use over time, at the peak, and what grows.

    ``samples`` are what each held over time, None where nothing was recorded; ``peak`` are the blocks alive
    at each one's peak, of session runs the ops that held them; ``ops`` what each op of those allocated.
    """

    allocators = _Value(lambda s: find_allocators(s.trace))
    samples = _Value(lambda s: tabulate_samples(s.trace, s.memory.allocators))
    peak = _Value(
        lambda s: (
            [row for one in s.memory.allocators for row in tabulate_peak(s.trace, one, s.steps)]
            if s.memory.allocators
            else tabulate_run_peaks(s.trace)
        )
    )
    ops = _Value(lambda s: tabulate_op_memory(s.trace))
    use = _Value(
        lambda s: [
            measure_memory(s.trace, one, s.steps, s.batch_size) for one in s.memory.allocators
        ]
    )


class Xla(_Subject):
    """XLA's part of a trace: the events that ran its instructions, its ops, its modules (programs)."""

    hlo = _Value(lambda s: find_hlo_ops(s.trace))
    ops = _Value(lambda s: tabulate_xla(s.trace, s.xla.hlo))
    modules = _Value(lambda s: tabulate_xla_modules(s.trace, s.xla.hlo, s.xla.ops))


class Devices(_Subject):
    """The devices of a trace: kernels, copies, launches, streams, and why one was idle."""

    use = _Value(lambda s: tabulate_devices(s.trace, s.steps))
    idle = _Value(attribute_idle)
    unused = _Value(lambda s: find_unused_gpus(s, lambda: s.memory.allocators))
    kernels = _Value(lambda s: tabulate_kernels(s.trace, s.xla.hlo))
    precision = _Value(lambda s: measure_precision(s.trace, s.xla.hlo))
    copies = _Value(lambda s: tabulate_copies(s.trace))
    launches = _Value(tabulate_launches)
    streams = _Value(lambda s: tabulate_streams(s.trace, s.steps))
    # The limits of the busiest device, and XLA's ops against them; None where they are not known.
    peak = _Value(
        lambda s: None if s.program.device is None else find_peak(s.trace.planes[s.program.device])
    )
    roofline = _Value(lambda s: draw_roofline(s.xla.ops, s.xla.hlo, s.device.peak))


class Ops(_Subject):
    """The ops of a trace: every run of one, and their table.

    ``steady`` is of the steps that averages are of and of what runs beside them, else of everything;
    ``counted`` is of those steps alone; ``iterator`` is that of tf.data which each run worked for.
    ``innermost`` are the host's events of ops that run no other; ``at_work`` these, and eager ops' kernels.
    """

    innermost = _Value(lambda s: find_innermost_ops(s.trace, s.parent))
    at_work: _Value[Int64s] = _Value(
        lambda s: np.concatenate([s.ops.innermost, find_eager_kernels(s.trace, s.parent)])
    )
    runs = _Value(lambda s: find_op_runs(s.trace, s.xla.hlo, s.groups.step))
    table: _Value[OpTable] = _Value(lambda s: sum_op_runs(s.ops.runs))
    steady: _Value[OpTable] = _Value(
        lambda s: sum_op_runs(s.ops.runs, s.in_scope) if s.has_steps else s.ops.table
    )
    counted: _Value[OpTable] = _Value(
        lambda s: sum_op_runs(s.ops.runs, s.events_of(s.summary.counted))
    )
    iterator = _Value(
        lambda s: find_input_work(s.trace, s.input.iterators, s.groups.parent, s.ops.runs.events)
    )

    def of_steps(self, rows: Int64s) -> OpTable:
        """Sum up the ops of some steps only."""
        if rows is self.study.summary.counted:
            return self.counted
        return sum_op_runs(self.runs, self.study.events_of(rows))


class Bounds(_Subject):
    """The bounds of ops in a trace: their costs, the limits, and their roofline."""

    _placed: tuple[Peak | None, OpRoofline | None] | None = None

    @property
    def peak(self) -> Peak | None:
        """The limits of what the steps run on: the busiest device, else the CPU of this machine.

        Of a CPU they are known once they were measured, and for what this process captured.
        """
        if self.study.program.has_device:
            return self.study.device.peak
        measured = kept_peak()
        return measured.peak if measured is not None and self.is_of_here else None

    @property
    def is_of_here(self) -> bool:
        """True if this process captured the trace, and so on this machine."""
        recording = self.study.recording
        return recording.path is not None or bool(recording.graph_runs)

    @property
    def roofline(self) -> OpRoofline | None:
        """The ops of the counted steps under the limits known now; None where no op's cost is known."""
        peak = self.peak
        if self._placed is None or self._placed[0] != peak:
            is_device = self.study.program.has_device
            costs = self.costs
            placed = place_ops(self.ops, costs, peak, is_device=is_device) if costs else None
            self._placed = peak, placed
        return self._placed[1]

    @cached_property
    def ops(self) -> OpTable:
        """The ops of the counted steps that TensorFlow ran itself and that feed no pipeline."""
        study, runs, hlo = self.study, self.study.ops.runs, self.study.xla.hlo
        counted = study.summary.counted
        within = study.events_of(counted) if counted.size else study.in_scope
        kept = within[runs.events] & (study.ops.iterator == NOT_INPUT)
        if len(hlo):
            kept &= hlo.codes_of(runs.events) < 0
        return sum_op_runs(runs_within(runs, kept))

    @cached_property
    def graphs(self) -> list[GraphShapes]:
        """The graphs that may have run: of a function that the trace names, or that another one calls."""
        source, texts = self.study.recording.source, self.study.trace.names.texts
        if source is None:
            return []
        ran = {text.removeprefix(EAGER) for text in texts if text.startswith(EAGER)}
        ran |= {name for one in source.graphs for called in one.calls.values() for name in called}
        return [one for one in source.shapes if not one.function or one.function in ran]

    @cached_property
    def costs(self) -> dict[tuple[str, str], Cost]:
        """Operations and bytes of one run of each op, by name and type, of those of which they are known."""
        study = self.study
        if not self.graphs:
            return {}
        rows = np.flatnonzero(self.ops.is_device == study.program.has_device).tolist()
        keys = [(self.ops.op_name[row], self.ops.op_type[row]) for row in rows]
        if any(_CASTING in name for name, _ in keys):
            return {}
        is_one = len(working_devices(study.trace)) <= 1  # several share a batch
        batch = study.summary.batch_size if is_one and not study.steps.is_window else None
        return find_costs(keys, self.graphs, batch, find_recorded_shapes(study.trace))


class Layers(_Subject):
    """The layers of a trace: the op time of each, and the table."""

    _tabulated: tuple[OpRoofline | None, LayerTable] | None = None
    # The scope that called each op, and products by their shapes, where names of ops do not tell: of PyTorch.
    called = _Value(lambda s: find_called_scopes(s.trace, s.ops.runs.events))
    products = _Value(lambda s: product_flops(s.trace, s.parent))

    @cached_property
    def times(self) -> LayerTimes:
        """Op time of the counted steps by layer."""
        counted = self.study.summary.counted
        return self._times_of(counted, self.study.events_of(counted))

    @cached_property
    def names(self) -> LayerNames:
        """The names of the models' layers, by the scopes of their calls."""
        rows = self.times.rows
        return {place.scope: rows.layers[place.row].path for place in rows.layer_places}

    @cached_property
    def callers(self) -> Callers:
        """The layers that ops of a name ran in, where the name does not tell: of PyTorch."""
        if self.called is None:
            return {}
        runs, code = self.study.ops.runs, self.called.code
        pairs = np.unique(np.stack([runs.code, code])[:, code >= 0], axis=1).T.tolist()
        paths = ["/".join(scope.path) for scope in self.called.scopes]
        rows = group((runs.keys[key][0], paths[at]) for key, at in pairs if paths[at])
        return {name: sorted(set(said)) for name, said in rows.items()}

    @cached_property
    def ops(self) -> OpTable:
        """The ops of the whole capture, each with the row of the table that it counts for."""
        ops, everywhere = self.study.ops.table, np.ones(len(self.study.trace.events), np.bool_)
        times = self._times_of(self.study.summary.counted, everywhere)
        names = times.rows.names
        return replace(ops, layer=tuple(names[times.row_of_op[name]] for name in ops.op_name))

    def _times_of(self, rows: Int64s, within: Bools) -> LayerTimes:
        study, is_input = self.study, self.study.ops.iterator > NOT_INPUT
        facts = study.ops.runs, is_input, study.xla.hlo, self.called, self.products
        return hand_out_ops(study, rows, within, *facts)

    @cached_property
    def peaks(self) -> list[AllocatorPeak]:
        """Memory that came and went at each allocator's peak, and in XLA's largest program."""
        study = self.study
        allocators, phase = study.memory.allocators, study.summary.phase or ""
        if self.called is not None:
            allocators = [self._with_scopes(one, self.called) for one in allocators]
        alive = [tabulate_peak(study.trace, one, study.steps) for one in allocators]
        names = {block.op_name.partition(":")[0] for blocks in alive for block in blocks}
        hlo = study.xla.hlo
        ops_of = group((one.program_id, one) for one in hlo.ops if one.program_id in hlo.modules)
        ran = [hlo.modules[program_id] for program_id in ops_of]
        largest = max(ran, key=lambda one: (one.buffers or {}).get("temporary", 0), default=None)
        ops = [] if largest is None else ops_of[largest.program_id]
        op_names = {one.row: one.op_name or one.served for one in ops}
        rows = LayerRows(study.recording.models, sorted(names | {*op_names.values()}), phase)
        named = [name_peak(*one, rows) for one in zip(allocators, alive, strict=True)]
        if largest is not None and not allocators:
            device = "GPU:0" if study.program.has_device else CPU
            named.append(name_program(largest, op_names, rows, device))
        return named

    def _with_scopes(self, allocator: Allocator, called: CalledScopes) -> Allocator:
        """Write the layer that called it in front of each op whose name does not tell."""
        code = look_up(self.study.ops.runs.events, called.code, allocator.op)
        ways = ((*("gradient_tape",) * one.is_backward, *one.path, "") for one in called.scopes)
        prefixes = [*map("/".join, ways), ""]  # the last where nothing called it
        named = zip(code.tolist(), allocator.op_names, strict=True)
        return replace(allocator, op_names=[prefixes[at] + name for at, name in named])

    @property
    def table(self) -> LayerTable:
        """The layers, with what is known of each now: limits of the CPU may be measured later."""
        roofline = self.study.bounds.roofline
        if self._tabulated is None or self._tabulated[0] is not roofline:
            self._tabulated = roofline, self._tabulate(self.times, roofline)
        return self._tabulated[1]

    def table_of(self, rows: Int64s, within: Bools) -> LayerTable:
        """The layers by the op time of a part of the trace, without what bounds them.

        ``rows`` are the steps that a mean is of; ``within`` tells which events count, shape (E,).
        """
        return self._tabulate(self._times_of(rows, within), None)

    def _tabulate(self, times: LayerTimes, roofline: OpRoofline | None) -> LayerTable:
        study = self.study
        order = sorted(study.memory.allocators, key=lambda a: (not a.is_device, -a.in_use.max()))
        alive = [row for one in order[:1] for row in tabulate_peak(study.trace, one, study.steps)]
        return tabulate_layers(study, times, alive, roofline)


class Source(_Subject):
    """The cost of each line of the user's source."""

    # Whether the times are of the steps that averages are of: there are some, and they ran an op.
    has_scope = _Value(lambda s: s.has_steps and bool(s.in_scope[s.ops.runs.events].any()))
    # The trace's own stacks, where the capture did not follow the user's lines.
    stacks = _Value(
        lambda s: (
            None
            if s.recording.source is not None and len(s.recording.source.lines)
            else find_stack_lines(s.trace)
        )
    )
    ranges = _Value(lambda s: tabulate_ranges(s, s.xla.hlo))

    @cached_property
    def lines(self) -> SourceLines | None:
        """The cost of each line of the user's source; None where the capture did not look at it.

        Times are of the steps that averages are of; of the whole capture where there are none, or where they
        ran no op.
        """
        return self.lines_without(np.zeros(len(self.study.trace.events), np.bool_))

    def lines_without(self, left_out: Bools) -> SourceLines | None:
        """Give the same without the ops of some events, shape (E,)."""
        study = self.study
        if not self.has_scope:
            return self.lines_of(~left_out)
        return self.lines_of(study.in_scope & ~left_out, study.loop_times(study.summary.counted))

    @property
    def scope(self) -> str:
        """The scope of the lines' times, in words."""
        return self.study.scope if self.has_scope else "the whole capture"

    def lines_of(
        self, within: Bools, times_ps: tuple[Int64s, Int64s] | None = None
    ) -> SourceLines | None:
        """Work out what each line cost in a part of the trace; None where the capture did not look at lines.

        ``within`` tells which events count, ``times_ps`` the begins and ends of what Python's time is of;
        None for all.
        """
        study, ops = self.study, self.study.ops
        if study.recording.source is None and self.stacks is None:
            return None
        kept = within[ops.runs.events]
        runs, input_of = runs_within(ops.runs, kept), ops.iterator[kept]
        return tabulate_source_lines(study, study.xla.hlo, runs, input_of, times_ps, self.stacks)


class Python(_Subject):
    """Python's part of a capture: its time by function; None where the capture did not sample it."""

    time = _Value(lambda s: find_python(s.recording))


class Study(Spine):
    """One trace: its steps, as ``Spine`` has them, and what each subject finds."""

    recorded: "Study"
    input: cached_property[Input] = cached_property(Input)
    memory: cached_property[Memory] = cached_property(Memory)
    xla: cached_property[Xla] = cached_property(Xla)
    device: cached_property[Devices] = cached_property(Devices)
    ops: cached_property[Ops] = cached_property(Ops)
    bounds: cached_property[Bounds] = cached_property(Bounds)
    layers: cached_property[Layers] = cached_property(Layers)
    source: cached_property[Source] = cached_property(Source)
    python: cached_property[Python] = cached_property(Python)
