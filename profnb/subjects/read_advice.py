"""The rule on results that the host waits for in the loop: which op waits, and what lets it run ahead."""

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.units import count_text, counted_text, percent_text
from profnb.steps.activities import AWAITING, COPYING_IN, COPYING_OUT, SYNCHRONISING
from profnb.subjects.advising import Finding, guide, idle_share_of, is_loop_of_keras
from profnb.subjects.covered_time import covered_share, in_periods, share_of_spans
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH, words
from profnb.trace.names import HLO_MODULE, RUN_ID

__all__ = ["fewer_reads", "synchronising_reads"]

_LEAST, _LEAST_ON_CPU = 0.05, 0.1
# Ops of PyTorch that wait for a value of the device, and what to do instead.
_ITEM = (
    "loss.item(), float(loss), print(loss), x.tolist() and an if on a value wait for the device: do them "
    "every 100 steps, and sum up losses in a tensor on the device."
)
_SHAPES = (
    "x[mask], nonzero, masked_select and unique wait for the device, as it decides how large their result "
    "is: torch.where(mask, a, b), or a product with the mask, keeps the size."
)
_COPY_IN = (
    "x.to('cuda') of ordinary memory waits until it is copied: DataLoader(..., pin_memory=True) and "
    "x.to('cuda', non_blocking=True) do not."
)
_OF_TORCH = {
    "aten::item": _ITEM,
    "aten::is_nonzero": _ITEM,
    "aten::_local_scalar_dense": _ITEM,
    "aten::equal": _ITEM,
    "aten::nonzero": _SHAPES,
    "aten::masked_select": _SHAPES,
    "aten::unique": _SHAPES,
    "aten::_unique2": _SHAPES,
}
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_")
_TO_HOST = (
    "x.cpu() and x.numpy() wait for the device: do them every 100 steps, or keep what is needed in a tensor "
    "on the device until the end."
)
_INTO, _OUT_OF = "copies to the device", "copies to the host"
_OF_COPIES = {_INTO: _COPY_IN, _OUT_OF: _TO_HOST}
_READS_OF_JAX = ("np.asarray(jax.Array)", "block_until_ready")


def synchronising_reads(study: Study) -> Finding | None:
    """The device idles 5 % of the time or more while the host reads a result back.

    JAX runs its programs beside Python on a CPU too: there a loop that reads a result in each of its steps
    could take as long as the longer of the two, where now it takes both. What it can gain is at most the
    waiting, and at most the time in which no program runs; from a tenth on it is said.
    """
    if study.steps.is_window:
        return None
    if not study.has_device:
        return _reads_of_jax_on_a_cpu(study)
    share = idle_share_of(study, "synchronising copy")
    if share < _LEAST:
        return None
    name, each = _waiting_op(study)
    which = f" Most of it is in {name}, {count_text(round(each))} a step." if name else ""
    return Finding(
        "synchronising-reads", "Read results less often",
        f"The device was idle {percent_text(share)} of the time while the host waited for a result of it."
        f"{which}",
        share,
        _fewer_reads(study, name),
        guide(study, "gpu_performance_analysis"),
    )  # fmt: skip


def _reads_of_jax_on_a_cpu(study: Study) -> Finding | None:
    counted, trace = study.summary.counted, study.trace
    if (
        study.framework != JAX
        or not counted.size
        or not len(study.xla.hlo)
        or study.steps.steps_ahead
    ):
        return None
    if is_loop_of_keras(study):
        return None  # Keras decides when it reads
    reads = np.flatnonzero(
        trace.select_names(lambda name: name.endswith(_READS_OF_JAX)) & trace.is_host_event
    )
    reads = reads[in_periods(study, trace.events.begin_ps[reads])]
    if reads.size * 2 < counted.size:
        return None
    waiting = covered_share(study, reads)
    unused = 1 - share_of_spans(study, _runs_of_programs(study))
    share = min(waiting, unused)
    if share < _LEAST_ON_CPU:
        return None
    return Finding(
        "synchronising-reads", "Read results less often",
        f"{counted_text(reads.size, 'time')} in {counted_text(counted.size, 'step')} the loop waits for a "
        f"result, {percent_text(waiting)} of the time; for {percent_text(unused)} of it no program runs. "
        "Without the waiting programs and Python go on side by side.",
        share,
        fewer_reads(study),
        guide(study, "gpu_performance_analysis"),
    )  # fmt: skip


def _runs_of_programs(study: Study) -> tuple[Int64s, Int64s]:
    """When JAX's programs ran: from the first instruction of a run to its last, as one may wait for another.

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


def _waiting_op(study: Study) -> tuple[str, float]:
    """The op of PyTorch in whose calls the host waits for most of the time, and how often a step; or ""."""
    counted, trace = study.summary.counted, study.trace
    if study.framework != PYTORCH or not counted.size:
        return "", 0.0
    waits = np.flatnonzero(
        np.isin(study.activities, (SYNCHRONISING, COPYING_OUT, AWAITING)) & trace.is_host_event
    )
    waits = waits[in_periods(study, trace.events.begin_ps[waits])]
    spent, ops = dict[str, int](), dict[str, set[int]]()
    took_ps = trace.events.duration_ps[waits].tolist()
    for (name, op), took in zip(_ops_around(study, waits), took_ps, strict=True):
        spent[name] = spent.get(name, 0) + took
        ops.setdefault(name, set()).add(op)
    if not spent:
        return "", 0.0
    most = max(spent, key=lambda name: spent[name])
    if not most or 2 * spent[most] < sum(spent.values()):
        return "", 0.0
    return most, len(ops[most]) / counted.size


def _ops_around(study: Study, events: Int64s) -> list[tuple[str, int]]:
    """The outermost of the known waiting ops around each event, and its event; ("", -1) where there is none.

    Of a copy it is where to, not the op's name.
    A copy from ordinary memory to the device is a call that copies and one that waits, side by side.
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
            if text in _OF_TORCH:
                name, op = text, above
            elif text in _COPIES and name not in _OF_TORCH:
                name, op = (_INTO if is_in else _OUT_OF), above
            above = int(parent[above])
        ops_around.append((name, op))
    return ops_around


def fewer_reads(study: Study) -> str:
    """What lets the host run ahead."""
    return _fewer_reads(study, _waiting_op(study)[0])


def _fewer_reads(study: Study, waiting: str) -> str:
    """The same, where the op of PyTorch in which it waits is known, or ""."""
    pytorch = (
        "loss.item(), x.cpu(), x.tolist() and torch.cuda.synchronize() wait for the device: do them "
        "every 100 steps, and sum up losses in a tensor on the device."
    )
    if waiting:
        pytorch = _OF_TORCH.get(waiting) or _OF_COPIES[waiting]
    return words(
        study.framework,
        "Printing a result, or making a Python number of it, waits for the device: do it every 100 steps.",
        tensorflow="float(loss), loss.numpy() and print(loss) wait for the device: do them every 100 steps, "
        "or keep a tf.keras.metrics.Mean and read it once an epoch.",
        sessions="What sess.run fetches is copied back: fetch the loss and the summaries every 100 steps.",
        jax="float(loss), np.asarray(x) and x.block_until_ready() wait for the device: do them every "
        "100 steps.",
        pytorch=pytorch,
    )
