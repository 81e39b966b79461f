"""Results that the host waits for in the loop: the op that waits, and how long nothing else runs."""

import numpy as np

from profnb.core.columns import Int64s
from profnb.steps.activities import AWAITING, COPYING_IN, COPYING_OUT, SYNCHRONISING
from profnb.subjects.advising import covered_share, in_periods, share_of_spans
from profnb.subjects.study import Study
from profnb.trace.names import HLO_MODULE, RUN_ID

VALUE, SIZE = "a value", "the size of a result"
INTO, OUT_OF = "copies to the device", "copies to the host"
# Ops of PyTorch that wait for something of the device.
_WAIT_FOR = {
    "aten::item": VALUE, "aten::is_nonzero": VALUE, "aten::_local_scalar_dense": VALUE, "aten::equal": VALUE,
    "aten::nonzero": SIZE, "aten::masked_select": SIZE, "aten::unique": SIZE, "aten::_unique2": SIZE,
}  # fmt: skip
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_")
_READS_OF_JAX = ("np.asarray(jax.Array)", "block_until_ready")


def find_waiting_op(study: Study) -> tuple[str, str, float]:
    """Find the op of PyTorch in whose calls the host waits for most of the time.

    Returns:
        (its name, what it waits for, how often a step); ("", "", 0) where there is none.
    """
    counted, trace = study.summary.counted, study.trace
    if not study.program.is_pytorch or not counted.size:
        return "", "", 0.0
    waits = np.flatnonzero(
        np.isin(study.activities, (SYNCHRONISING, COPYING_OUT, AWAITING)) & trace.is_host_event
    )
    waits = waits[in_periods(study, trace.events.begin_ps[waits])]
    spent, ops = dict[str, int](), dict[str, set[int]]()
    took_ps = trace.events.duration_ps[waits].tolist()
    for (name, op), took in zip(_ops_around(study, waits), took_ps, strict=True):
        spent[name] = spent.get(name, 0) + took
        ops.setdefault(name, set()).add(op)
    most = max(spent, key=lambda name: spent[name], default="")
    if not most or 2 * spent[most] < sum(spent.values()):
        return "", "", 0.0
    return most, _WAIT_FOR.get(most, most), len(ops[most]) / counted.size


def _ops_around(study: Study, events: Int64s) -> list[tuple[str, int]]:
    """Find the outermost of the ops that wait around each event, and its event; ("", -1) for none.

    Of a copy it is where to, not the op's name. A copy from ordinary memory to the device is a call that
    copies and one that waits, side by side.
    """
    parent, trace = study.groups.parent, study.trace
    copies_in = np.flatnonzero((study.activities == COPYING_IN) & trace.is_host_event)
    with_copy_in = set(parent[copies_in].tolist()) - {-1}
    ops_around = []
    for event in events.tolist():
        name, above, op = "", int(parent[event]), -1
        is_in = above in with_copy_in
        while above >= 0:
            text = trace.names[trace.events.name[above]]
            if text in _WAIT_FOR:
                name, op = text, above
            elif text in _COPIES and name not in _WAIT_FOR:
                name, op = (INTO if is_in else OUT_OF), above
            above = int(parent[above])
        ops_around.append((name, op))
    return ops_around


def find_reads_beside_programs(study: Study) -> tuple[int, float, float]:
    """Find where a loop of JAX on a CPU waits for results in most steps, beside which it could go on.

    Returns:
        (reads in the counted steps, the share of the time in which it waits, the share in which no program
        runs); zeros where it runs ahead, or Keras decides when it reads.
    """
    counted, trace = study.summary.counted, study.trace
    program = study.program
    is_of_cpu = program.is_jax and not program.has_device and len(study.xla.hlo)
    if not is_of_cpu or study.steps.steps_ahead or program.is_loop_of_keras:
        return 0, 0.0, 0.0
    reads = np.flatnonzero(
        trace.select_names(lambda name: name.endswith(_READS_OF_JAX)) & trace.is_host_event
    )
    reads = reads[in_periods(study, trace.events.begin_ps[reads])]
    if reads.size * 2 < counted.size or not counted.size:
        return 0, 0.0, 0.0
    unused = 1 - share_of_spans(study, _runs_of_programs(study))
    return reads.size, covered_share(study, reads), unused


def _runs_of_programs(study: Study) -> tuple[Int64s, Int64s]:
    """Find when JAX's programs ran: from a run's first instruction to its last, as one may wait for another.

    Where the trace does not number a run, what one program ran for a step is one.

    Returns:
        Begins and ends, shape (N,).
    """
    trace, events = study.trace, study.xla.hlo.events
    begin, end = trace.events.begin_ps[events], trace.events.end_ps[events]
    ids, step = trace.stats.integers(RUN_ID), study.groups.step[events].astype(np.int64)
    module = trace.stats.texts(HLO_MODULE).of(events).astype(np.int64)
    numbers, number = np.unique(ids.of(events), return_inverse=True)  # which may be negative
    by_step = numbers.size + np.where(step >= 0, step, len(study.steps) + np.arange(events.size))
    number = np.where(np.isin(events, ids.events), number, by_step)
    keys = module * (number.max(initial=0) + 1) + number
    distinct, run = np.unique(keys, return_inverse=True)
    first, last = np.full(distinct.size, np.iinfo(np.int64).max), np.zeros(distinct.size, np.int64)
    np.minimum.at(first, run, begin)
    np.maximum.at(last, run, end)
    return first, last
