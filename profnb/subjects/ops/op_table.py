"""Events to the op table: what ran, how often, for how long.

Host side: an event is an op if its name says so, ``name:Type`` for a TensorFlow op, ``name:type`` for
a JAX primitive, ``Iterator::...`` for a tf.data iterator, or if XLA ran an HLO instruction there. Total
time sums the ops' durations; self time leaves out the part spent in ops they called on the same thread, and
in a program of XLA's, whose ops are recorded on their own.
Device side: every event of a stream is work of one op (``device.device_ops``); lines that a profiler derived
from the streams are left out.

An op that Python runs eagerly, outside of any function, is told by its execution, where TensorFlow records
no other event of it; the official tool then shows no ops at all.

Occurrences count executions, on a device too, where one may run several kernels (``launching``). The
official table also counts each memory event that names an op, so an op that allocates once per run shows
twice the occurrences there (and half the average); the times agree.

Source: openxla/xprof xprof/convert/xplane_to_op_metrics_db.cc and xla tf_op_utils.cc (a27d00aa).
"""

from dataclasses import dataclass, replace

import numpy as np

from profnb.core.columns import Bools, Floats, Int32s, Int64s
from profnb.core.table import Column, Table
from profnb.steps.launching import find_executions
from profnb.steps.nesting import find_parents, self_times
from profnb.steps.streams import by_device_clock, raw_device_lines
from profnb.subjects.device.device_ops import name_device_work
from profnb.subjects.ops.op_execution import add_eager_ops, is_eager_op
from profnb.subjects.xla.hlo_ops import HloOps
from profnb.trace.model import Trace
from profnb.trace.op_names import parse_op, without_numbers

_EAGER_OP = (
    -2
)  # the code of an eager op's name, until it is known whether the op is recorded inside
# A call that runs a program of XLA's on the CPU (TensorFlow 2.21): its ops are recorded on their own, on
# whatever thread, and the rest of it waits for them.
_PROGRAMS = frozenset({"CpuExecutable::ExecuteAsyncOnStream"})
OPTIMIZERS = frozenset(
    {
        "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "gradientdescent", "lamb",
        "lion", "loss_scale_optimizer", "lossscaleoptimizer", "momentum", "muon", "nadam", "optimizer",
        "rmsprop", "sgd",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpTable:
    """One row per op and side, most self time first.

    Attributes:
        is_device: Whether the row is device work, shape (N,).
        op_type: The kind of op; "" where the trace does not say.
        op_name: The op's own name.
        occurrences: How often it ran, shape (N,).
        total_ps: Time in it and in what it called, shape (N,).
        self_ps: Time in it alone, shape (N,); equal to the total on a device.
    """

    is_device: Bools
    op_type: tuple[str, ...]
    op_name: tuple[str, ...]
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s

    def __len__(self) -> int:
        return self.occurrences.size

    @property
    def self_fraction(self) -> Floats:
        """Each row's share of the self time of its side; NaN where the side has none."""
        shares = np.full(len(self), np.nan)
        for side in (False, True):
            rows = self.is_device == side
            whole = self.self_ps[rows].sum()
            if whole:
                shares[rows] = self.self_ps[rows] / whole
        return shares

    def find_outlier(self) -> int:
        """Find the host's op that takes longest, if a run takes ten times as long as others; else -1."""
        longest, *others = np.flatnonzero(~self.is_device).tolist() or [-1]
        runs = self.occurrences[others].sum()
        usual = 10 * self.self_ps[others].sum() / max(runs, 1) * self.occurrences[longest]
        return longest if runs and self.self_ps[longest] >= usual else -1


@dataclass(frozen=True, slots=True)
class OpRuns:
    """Every run of an op, host side first, in event order on each side.

    Attributes:
        keys: Distinct (op name, op type) of each side, host side first.
        is_device: Whether each key is of device work, shape (K,).
        events: The runs as indices of events, shape (N,).
        code: Row of ``keys`` for each run, shape (N,).
        total_ps: Duration of each, shape (N,).
        self_ps: Duration less what ops that it called on the same thread took, shape (N,).
        is_execution: Whether it begins an execution of the op, shape (N,): all on a host; on a device the
            first of the kernels that one execution runs.
    """

    keys: tuple[tuple[str, str], ...]
    is_device: Bools
    events: Int64s
    code: Int64s
    total_ps: Int64s
    self_ps: Int64s
    is_execution: Bools

    def __len__(self) -> int:
        return self.events.size


def find_op_runs(trace: Trace, hlo: HloOps | None = None, step: Int32s | None = None) -> OpRuns:
    """Find every run of an op.

    Args:
        trace: The trace.
        hlo: Its HLO instructions, if they were looked for; on a host they are ops as well.
        step: Row of each event's step, or -1, shape (E,): no execution is of two steps.
    """
    host_keys, host_code, host, host_self_ps = _host_runs(trace, hlo)
    device_keys, device_code, device = _device_runs(trace, hlo)
    begin, end = by_device_clock(trace, device)
    total = _join(trace.events.duration_ps[host], end - begin)
    return OpRuns(
        (*host_keys, *device_keys),
        np.arange(len(host_keys) + len(device_keys)) >= len(host_keys),
        _join(host, device),
        _join(host_code, device_code + len(host_keys)),
        total,
        _join(host_self_ps, total[host.size :]),
        np.concatenate(
            [np.ones(host.size, np.bool_), _begins(trace, device, device_code, hlo, step)]
        ),
    )


def _join(of_host: Int64s, of_device: Int64s) -> Int64s:
    """One behind the other; not copied where no device ran anything."""
    return np.concatenate([of_host, of_device]) if of_device.size else of_host


def runs_within(runs: OpRuns, kept: Bools) -> OpRuns:
    """Some of the runs; their self time stays what it was among all of them.

    Args:
        runs: The runs.
        kept: Which of them, shape (N,).
    """
    return replace(
        runs,
        events=runs.events[kept],
        code=runs.code[kept],
        total_ps=runs.total_ps[kept],
        self_ps=runs.self_ps[kept],
        is_execution=runs.is_execution[kept],
    )


def _begins(
    trace: Trace, work: Int64s, code: Int64s, hlo: HloOps | None, step: Int32s | None
) -> Bools:
    """Which work of devices begins an execution: of an instruction, where XLA ran one, else of its op."""
    instruction = hlo.codes_of(work) if hlo is not None and len(hlo) else np.full(work.size, -1)
    unit = np.where(instruction >= 0, instruction + int(code.max(initial=0)) + 1, code)
    return find_executions(trace, work, unit, step)


def sum_op_runs(runs: OpRuns, within: Bools | None = None) -> OpTable:
    """Sum up runs of ops.

    Args:
        runs: The runs.
        within: Which events count, shape (E,); all of them by default. Self time is worked out
            before this filter, so a step's table sums to no more than the whole one.

    Returns:
        The table, by self time descending, device rows first at equal time.
    """
    kept = slice(None) if within is None else within[runs.events]
    code = runs.code[kept]
    runs_of_key = np.bincount(code, minlength=len(runs.keys))
    occurrences = np.bincount(code[runs.is_execution[kept]], minlength=len(runs.keys))
    total, self_ps = (np.zeros(len(runs.keys), np.int64) for _ in range(2))
    np.add.at(total, code, runs.total_ps[kept])
    np.add.at(self_ps, code, runs.self_ps[kept])
    used = np.flatnonzero(runs_of_key)
    order = used[np.lexsort((~runs.is_device[used], -total[used], -self_ps[used]))]
    return OpTable(
        runs.is_device[order],
        tuple(runs.keys[row][1] for row in order),
        tuple(runs.keys[row][0] for row in order),
        occurrences[order],
        total[order],
        self_ps[order],
    )


def _host_runs(
    trace: Trace, hlo: HloOps | None
) -> tuple[list[tuple[str, str]], Int64s, Int64s, Int64s]:
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
    if hlo is not None and len(hlo):
        keys = np.array([codes_of.setdefault(op.key, len(codes_of)) for op in hlo.ops], np.int64)
        codes[hlo.events] = keys[hlo.code]
    add_eager_ops(trace, codes, codes_of, eager[trace.is_host_event[eager]])
    is_op = (codes >= 0) & trace.is_host_event
    is_program = np.zeros(len(events), np.bool_)
    if hlo is not None and len(hlo):
        is_program = trace.select_names(lambda name: name in _PROGRAMS) & trace.is_host_event
    counted = np.flatnonzero(is_op | is_program)
    begin, end = events.begin_ps[counted], events.end_ps[counted]
    offsets = np.searchsorted(counted, trace.lines.offsets)
    self_ps = self_times(begin, end, find_parents(end, offsets))
    is_kept = is_op[counted]
    ops = counted[is_kept]
    return list(codes_of), codes[ops].astype(np.int64), ops, self_ps[is_kept]


def _device_runs(
    trace: Trace, hlo: HloOps | None
) -> tuple[tuple[tuple[str, str], ...], Int64s, Int64s]:
    """(keys, key of each run, the runs' events)."""
    raw = raw_device_lines(trace)
    work = trace.lines.events_of(raw)
    if not work.size:
        none = np.empty(0, np.int64)
        return (), none, none
    ops = name_device_work(trace, work, hlo)
    return ops.keys, ops.code, work


OPS = Table[OpTable](
    "ops",
    "One row per op and side, most self time first.",
    (
        Column(
            "side",
            lambda t: np.where(t.is_device, "device", "host"),
            'where it ran, "host" or "device"',
        ),
        Column("op_type", lambda t: t.op_type, 'the kind of op, "" where the trace does not say'),
        Column("op_name", lambda t: t.op_name, "the op's own name"),
        Column(
            "occurrences",
            lambda t: t.occurrences,
            "how often it ran; several kernels of one execution count once",
            "runs",
        ),
        Column("total_us", lambda t: t.total_ps, "time in it and in the ops it called"),
        Column(
            "self_us",
            lambda t: t.self_ps,
            "time in it alone; equal to the total on a device",
            "own time",
        ),
        Column(
            "self_fraction",
            lambda t: t.self_fraction,
            "share of the self time of its side, NaN where the side has none",
            "own share",
        ),
    ),
)


def is_optimizer(scope: str) -> bool:
    """Whether a scope is an optimizer's: ``Adam``, ``sgd_1_1``."""
    return without_numbers(scope.lower()) in OPTIMIZERS


def is_of_optimizer(op_name: str) -> bool:
    """Whether an op was made in an optimizer's scope."""
    return any(map(is_optimizer, op_name.split("/")))
