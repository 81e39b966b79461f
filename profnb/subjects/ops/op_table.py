"""Events to the op table: what ran, how often, for how long.

Host side: an event is an op if its name says so, ``name:Type`` for a TensorFlow op, ``name:type`` for
a JAX primitive, ``Iterator::...`` for a tf.data iterator, or if XLA ran an HLO instruction there. Total
time sums the ops' durations; self time leaves out the part spent in ops they called on the same thread, and
in a program of XLA's, whose ops are recorded on their own.
Device side: every event of a stream is work of one op (``device.kernels``); lines that a profiler derived
from the streams are left out.

An op that Python runs eagerly, outside of any function, is told by its execution, where TensorFlow records
no other event of it; the official tool then shows no ops at all.

Occurrences count executions, on a device too, where one may run several kernels (``streams``). The
official table also counts each memory event that names an op, so an op that allocates once per run shows
twice the occurrences there (and half the average); the times agree.

Source: openxla/xprof xprof/convert/xplane_to_op_metrics_db.cc and xla tf_op_utils.cc (a27d00aa).
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from profnb.core.columns import Bools, Floats, Int32s, Int64s, RowColumns, ratio, sum_by
from profnb.core.table import Table, columns_in
from profnb.steps.nesting import find_parents, self_times
from profnb.steps.streams import by_device_clock, find_executions, own_times, raw_device_lines
from profnb.subjects.device.kernels import KernelTable, name_device_work
from profnb.subjects.ops.op_execution import add_eager_ops, is_eager_op
from profnb.subjects.xla.hlo_ops import HloOps
from profnb.trace.model import Trace
from profnb.trace.names import parse_op, without_numbers

# The code of an eager op's name, until it is known whether the op is recorded inside.
_EAGER_OP = -2
# A call that runs a program of XLA's on the CPU (TensorFlow 2.21): its ops are recorded on their own, on
# whatever thread, and the rest of it waits for them.
_PROGRAMS = ("CpuExecutable::ExecuteAsyncOnStream",)
OPTIMIZERS = frozenset({
    "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "gradientdescent", "lamb",
    "lion", "loss_scale_optimizer", "lossscaleoptimizer", "momentum", "muon", "nadam", "optimizer",
    "rmsprop", "sgd",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpTable(RowColumns):
    """One row per op and side, most self time first.

    Its columns are those of ``OPS``, each of shape (N,), times in picoseconds.
    """

    is_device: Bools  # whether the row is device work, shape (N,)
    op_type: tuple[str, ...]
    op_name: tuple[str, ...]
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    layer: tuple[str, ...] = ()  # the row of the table of layers that it counts for, where asked

    @property
    def self_fraction(self) -> Floats:
        """Each row's share of the self time of its side; NaN where the side has none."""
        side = self.is_device.astype(np.int64)
        return ratio(self.self_ps, sum_by(side, self.self_ps, 2)[side])

    def find_outlier(self) -> int:
        """Find the host's op that takes longest, if a run takes ten times as long as others; else -1."""
        longest, *others = np.flatnonzero(~self.is_device).tolist() or [-1]
        runs = self.occurrences[others].sum()
        usual = 10 * self.self_ps[others].sum() / max(runs, 1) * self.occurrences[longest]
        return longest if runs and self.self_ps[longest] >= usual else -1

    def share_of_many(self, kernels: KernelTable, least: int) -> float:
        """Share of kernels whose op starts so many or more each time, as cuDNN's recurrent ones do."""
        runs, started = Counter[str](), Counter[str]()
        for row in np.flatnonzero(~self.is_device).tolist():
            runs[self.op_name[row]] += int(self.occurrences[row])
        for name, count in zip(kernels.op_name, kernels.occurrences.tolist(), strict=True):
            started[name] += count
        many = sum(count for name, count in started.items() if count >= least * runs[name] > 0)
        return many / max(started.total(), 1)


@dataclass(frozen=True, slots=True)
class OpRuns:
    """Every run of an op, host side first, in event order on each side."""

    keys: tuple[tuple[str, str], ...]  # distinct (op name, op type) of each side, host side first
    is_device: Bools  # whether each key is of device work, shape (K,)
    events: Int64s  # the runs as indices of events, shape (N,)
    code: Int64s  # row of ``keys`` for each run, shape (N,)
    total_ps: Int64s  # duration of each, shape (N,)
    self_ps: Int64s  # duration less what ops that it called on the same thread took, shape (N,)
    # whether it begins an execution of the op, shape (N,): all on a host; on a device the first of the
    # kernels that one execution runs
    is_execution: Bools

    def __len__(self) -> int:
        return self.events.size


def find_op_runs(trace: Trace, hlo: HloOps, step: Int32s | None = None) -> OpRuns:
    """Find every run of an op.

    ``step`` is the row of each event's step, or -1, shape (E,): no execution is of two steps.
    """
    host_keys, code, host, self_ps = _host_runs(trace, hlo)
    keys, total_ps, events = [*host_keys], trace.events.duration_ps[host], host
    begins = np.ones(host.size, np.bool_)
    work = trace.lines.events_of(raw_device_lines(trace))
    if work.size:
        device_keys, of_device = name_device_work(trace, work, hlo)
        begin, end = by_device_clock(trace, work)
        # An execution is of an instruction, where XLA ran one, else of its op.
        instruction = hlo.codes_of(work)
        unit = np.where(instruction >= 0, instruction + int(of_device.max()) + 1, of_device)
        keys += device_keys
        code = np.append(code, of_device + len(host_keys))
        events = np.append(host, work)
        total_ps = np.append(total_ps, end - begin)
        self_ps = np.append(self_ps, own_times(trace, work))
        begins = np.append(begins, find_executions(trace, work, unit, step))
    is_device = np.arange(len(keys)) >= len(host_keys)
    return OpRuns(tuple(keys), is_device, events, code, total_ps, self_ps, begins)


def runs_within(runs: OpRuns, kept: Bools) -> OpRuns:
    """Keep some of the runs, shape (N,); their self time stays what it was among all of them."""
    columns = ("events", "code", "total_ps", "self_ps", "is_execution")
    return replace(runs, **{name: getattr(runs, name)[kept] for name in columns})


def sum_op_runs(runs: OpRuns, within: Bools | None = None) -> OpTable:
    """Sum up runs of ops, by self time descending, device rows first at equal time.

    ``within`` tells which events count, shape (E,); all by default. Self time is worked out before this
    filter, so a step's table sums to no more than the whole one.
    """
    kept, count = slice(None) if within is None else within[runs.events], len(runs.keys)
    code = runs.code[kept]
    occurrences = np.bincount(code[runs.is_execution[kept]], minlength=count)
    total, self_ps = (sum_by(code, took[kept], count) for took in (runs.total_ps, runs.self_ps))
    used = np.flatnonzero(np.bincount(code, minlength=count))
    order = used[np.lexsort((~runs.is_device[used], -total[used], -self_ps[used]))]
    types, names = (tuple(runs.keys[row][at] for row in order) for at in (1, 0))
    is_device = runs.is_device[order]
    return OpTable(is_device, types, names, occurrences[order], total[order], self_ps[order])


def _host_runs(trace: Trace, hlo: HloOps) -> tuple[list[tuple[str, str]], Int64s, Int64s, Int64s]:
    """(keys, key of each run, the runs' events, their self time)."""
    codes_of: dict[tuple[str, str], int] = {}
    code_of_name = np.full(len(trace.names), -1, np.int32)
    for row, text in enumerate(trace.names.texts):
        key = parse_op(text)
        if trace.is_op_name is not None and not trace.is_op_name[row]:
            key = None
        elif key is None and trace.is_op_name is not None:
            scope, _, op_type = text.rpartition("::")  # aten::conv2d
            key = text, op_type if scope else ""
        if key is not None:
            code_of_name[row] = codes_of.setdefault(key, len(codes_of))
    code_of_name[(code_of_name < 0) & trace.names.rows_where(is_eager_op)] = _EAGER_OP
    events = trace.events
    codes = trace.by_name(code_of_name)
    eager = np.flatnonzero(codes == _EAGER_OP)
    keys = np.array([codes_of.setdefault(op.key, len(codes_of)) for op in hlo.ops], np.int64)
    codes[hlo.events] = keys[hlo.code]
    add_eager_ops(trace, codes, codes_of, eager[trace.is_host_event[eager]])
    is_op = (codes >= 0) & trace.is_host_event
    is_program = trace.select_named(*_PROGRAMS) & trace.is_host_event if len(hlo) else is_op
    counted = np.flatnonzero(is_op | is_program)
    begin, end = events.begin_ps[counted], events.end_ps[counted]
    offsets = np.searchsorted(counted, trace.lines.offsets)
    self_ps = self_times(begin, end, find_parents(end, offsets))
    is_kept = is_op[counted]
    ops = counted[is_kept]
    return list(codes_of), codes[ops].astype(np.int64), ops, self_ps[is_kept]


OPS = Table[OpTable](
    "ops",
    "One row per op and side, most self time first.",
    columns_in("""
        side: where it ran, "host" or "device"
        op_type: the kind of op, "" where the trace does not say
        op_name: the op's own name
        occurrences [runs]: how often it ran; several kernels of one execution count once
        total_us: time in it and in the ops it called
        self_us [own time]: time in it alone; on a device without what overlaps earlier work of its stream
        self_fraction [own share]: share of the self time of its side, NaN where the side has none
        layer: its row of ``p.layers``; of several the one with most of its time
        """),
    values={"side": lambda t: np.where(t.is_device, "device", "host")},
)


def is_of_optimizer(op_name: str) -> bool:
    """Tell whether an op was made in an optimizer's scope: ``Adam``, ``sgd_1_1``."""
    return any(without_numbers(s.lower()) in OPTIMIZERS for s in op_name.split("/"))
