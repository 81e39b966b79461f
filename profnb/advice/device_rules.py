"""Rules on devices: what they compute, what keeps them idle, and what they wait for.

Of what a remedy is for half remains at most, but where facts tell more.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.device_words import words_of
from profnb.advice.numbers import HALF, LONG_OP_PS
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit
from profnb.capture.parts.part_records import EPOCH_ENDS, GAPS
from profnb.core.columns import Bools
from profnb.core.printable import printable
from profnb.core.units import bytes_text, count_text, counted_text, duration_text, percent_text
from profnb.steps.activities import CATEGORIES, EXCHANGING
from profnb.steps.launching import has_replicas
from profnb.steps.streams import busiest_device
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import input_shares, share_of
from profnb.subjects.device.copies import are_of_program
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.device.launches import launching_threads
from profnb.subjects.device.peaks import find_rates, is_nvidia
from profnb.subjects.device.precision import WIDTHS, find_missed_dimensions
from profnb.subjects.device.unused import is_mixed_precision
from profnb.subjects.reads import find_reads_beside_programs, find_waiting_op
from profnb.subjects.study import Study
from profnb.subjects.unseen import unrecorded_backend
from profnb.trace.framework import TENSORFLOW

__all__ = ["DEVICE_RULES"]

# Of the time, from which on the device is what limits: with 16 bits each of 14 recorded runs whose device
# idled more was slower, as casts are kernels too.
_LIMITING = 0.75
# Of launching, what threads that only launch left in 14 recorded pairs of runs, which saved 8 to 34 %.
_LEFT_BY_THREADS = (0.5, 0.8)
_MANY_THREADS = 4  # that launch in turns: twice as many as would do nothing else
_ROOMY = 0.2  # of the time idle: where a device is busier, a step may grow as much as its batch
_LONGEST = 100
_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|TransposeNHWCToNCHW|TransposeNCHWToNHWC|LayoutOptimizer", re.IGNORECASE
)
_BETWEEN = (GAPS, EPOCH_ENDS)
_UNEVEN = (
    "device compute",
    "device collectives",
)  # the others wait in an exchange for the busiest one
_ON_DEVICE, _ON_HOST = ("device compute",), (*CATEGORIES[1:], *_BETWEEN)

Rule = Callable[[Model, Study], Iterator[Proposal]]


def unused_gpu(model: Model, study: Study) -> Iterator[Proposal]:
    """A GPU is there, nothing shows that it worked, and most of the steps is ops on the CPU."""
    share = share_of(study, "host compute")
    evidence = f"The ops ran on the CPU, {percent_text(share)} of the time."
    if is_mixed_precision(study):
        evidence += " A CPU computes 16 bits in software: keep keras.mixed_precision at float32."
    if study.device.unused:
        named = printable(", ".join(study.device.unused[:4]))
        remains = _left_by_a_call(model, study, share)
        edits = _edits(model, "host compute", share, remains, "a GPU takes half of it at most")
        yield _proposal(study, "unused-gpu", f"Nothing ran on {named}. {evidence}", *edits)


def mixed_precision(model: Model, study: Study) -> Iterator[Proposal]:
    """The device limits, and multiplies more in 32 bits, on its ordinary cores, than it computes in fewer."""
    kernels, rates = study.device.kernels, _rates(study)
    chosen = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    share, narrow = (
        _kernel_share(study, chosen),
        study.device.precision.fraction[: WIDTHS.index("32-bit")],
    )
    width = "TF32" if "TF32" in rates else "16 bits"
    times = rates.get(width.replace(" bits", "-bit"), 0) / rates.get("32-bit", np.inf)
    if share_of(study, "device compute") < _LIMITING or times <= 1 or not share > narrow.sum():
        return
    yield _proposal(
        study, "mixed-precision",
        f"{percent_text(share)} of kernel time is products and convolutions in 32 bits. This device "
        f"does {width} {times:.0f} times as fast at best.",
        _of_kernels(model, study, chosen, 1 / times, f"{width} take less time"), variant=width,
    )  # fmt: skip


def missed_tensor_cores(model: Model, study: Study) -> Iterator[Proposal]:
    """On NVIDIA, products of a program in 16 bits miss the tensor cores by a dimension that can be rounded.

    Multiples of 8 are what counts; the first layer's inputs and the last one's outputs are the data's.
    """
    plane, kernels, rates = busiest_device(study.trace), study.device.kernels, _rates(study)
    if plane is None or not is_nvidia(study.trace, plane):
        return
    missed, chosen = find_missed_dimensions(study.trace, study.steps, kernels)
    share = _kernel_share(study, chosen)
    if not study.device.precision.fraction[WIDTHS.index("16-bit")] > share or not missed:
        return
    listed = "; ".join(f"{printable(layer[:_LONGEST])} has {odd}" for layer, odd in missed[:3])
    least = rates.get("32-bit", 0) / rates.get("16-bit", np.inf)
    yield _proposal(
        study, "missed-tensor-cores",
        f"{percent_text(share)} of kernel time is products and convolutions in 16 bits without tensor cores: "
        f"{listed}.",
        _of_kernels(model, study, chosen, least, "tensor cores are faster"),
    )  # fmt: skip


def layout_changes(model: Model, study: Study) -> Iterator[Proposal]:
    """Kernels only change the order of dimensions."""
    kernels = study.device.kernels
    names = zip(kernels.kernel_name, kernels.op_name, strict=True)
    moved = np.array([bool(_LAYOUT.search(f"{kernel} {op}")) for kernel, op in names], np.bool_)
    share, because = _kernel_share(study, moved), "inputs and results may still be turned"
    evidence = f"{percent_text(share)} of kernel time only turns NHWC into NCHW or back."
    yield _proposal(
        study, "layout-changes", evidence, _of_kernels(model, study, moved, 0.0, because)
    )


def exposed_collectives(model: Model, study: Study) -> Iterator[Proposal]:
    """Devices or workers exchange while nothing computes; how much of it is waiting is not known."""
    share = share_of(study, "device collectives")
    is_of_workers = not study.has_device or 2 * _idle_share(study, "host collectives") >= share
    # Several replicas of one process meet in one number: nobody else's trace says more of them.
    keys = study.trace.stats.integers("instance_key").values
    exchanging = np.flatnonzero(study.activities == EXCHANGING)
    is_of_replicas = keys.size > 1.5 * np.unique(keys).size or has_replicas(study.trace, exchanging)
    if not share or (is_of_workers and is_of_replicas):
        return
    # Where several devices of the trace meet, the fleet's definitions tell them apart.
    is_alone = is_of_workers or int((study.device.use.collective_ps > 0).sum()) < 2
    meanwhile = "the device computes nothing" if study.has_device else "no op here computes"
    yield _proposal(
        study, "exposed-collectives",
        f"{percent_text(share)} of the time is exchange while {meanwhile}."
        + (" One trace does not tell how much of it is waiting." if is_alone else ""),
        *_edits(model, "device collectives", share, (0.0, HALF), "it can be hidden, or waited for less"),
        variant="workers" if is_of_workers else "",
    )  # fmt: skip


def imbalance(model: Model, study: Study) -> Iterator[Proposal]:
    """The busiest of several devices that compute works longer than their mean, and most of the time.

    Devices that only copy take no part in the work; devices that idle wait for the host, not for each other.
    """
    use = study.device.use
    exposed_ps = use.collective_ps - use.hidden_collective_ps  # mostly waiting for those that work
    busy = ((use.busy_ps - exposed_ps) / max(use.window_ps, 1))[use.compute_ps > 0]
    if busy.size < 2 or 2 * busy.max() < 1:
        return
    most, mean = float(busy.max()), float(busy.mean())
    yield _proposal(
        study, "imbalance",
        f"The busiest of {busy.size} devices is at work {percent_text(most)} of the time, collectives left "
        f"out. The mean is {percent_text(mean)}.",
        model.some_of(_UNEVEN, most - mean, (0.0, HALF), "work is never quite even"),
    )  # fmt: skip


def launch_bound(model: Model, study: Study) -> Iterator[Proposal]:
    """Launching sets the pace of the kernels, and the device idles meanwhile."""
    launches, kernels = study.device.launches, study.device.kernels
    if not launches.sets_the_pace:
        return
    idle, longer = (
        _idle_share(study, "kernel launch"),
        launches.longer_calls.sum() / launches.calls.sum(),
    )
    products = (
        kernels.occurrences[kernels.is_tensor_core_eligible].sum() / kernels.occurrences.sum()
    )
    least, most = _left_by_a_call(model, study, idle)
    remains = least, max(most, float(products))
    yield _proposal(
        study, "launch-bound",
        f"The device idled {percent_text(idle)} of the time while the host launched. {percent_text(longer)} "
        f"of the {count_text(int(launches.calls.sum()))} launches took longer than their kernels.",
        *_edits(model, "kernel launch", idle, remains, "products are launched one by one"),
        variant="pool" if _is_launched_by_pool(study) else "",
    )  # fmt: skip


def gpu_thread_mode(model: Model, study: Study) -> Iterator[Proposal]:
    """Threads of TensorFlow's pool launch in turns, and the NVIDIA GPU idles meanwhile."""
    idle = _idle_share(study, "kernel launch")
    if _is_launched_by_pool(study):
        yield _proposal(
            study, "gpu-thread-mode",
            "Threads of the pool that also runs ops and input launched the kernels. The device idled "
            f"{percent_text(idle)} of the time meanwhile.",
            *_edits(model, "kernel launch", idle, _LEFT_BY_THREADS, "measured on 14 pairs of runs"),
        )  # fmt: skip


def copying_input(model: Model, study: Study) -> Iterator[Proposal]:
    """Data is moved to the device while it computes nothing: by its copies, or by calls of the host."""
    share, copies = input_shares(study)[0], study.device.copies
    if not share:
        return
    rows = [row for row, name in enumerate(copies.direction) if name == "host to device"]
    kinds, moved = {copies.source_kind[row] for row in rows}, int(copies.bytes[rows].sum())
    pageable = sum(int(copies.bytes[row]) for row in rows if copies.source_kind[row] == "pageable")
    evidence = (
        f"{percent_text(share)} of the time data moved to the device while that computed nothing"
    )
    evidence += f": {bytes_text(moved)} in all" if moved else ""
    evidence += f", {bytes_text(pageable)} of it from pageable memory." if pageable else "."
    hidden = share_of(study, "device compute") / share
    # Beside computing a copy takes no time, as far as that is as long; a float has four bytes, a uint8 one.
    remains = max(1 / 4 - hidden, 0.0), max(1 - hidden, HALF)
    yield _proposal(
        study, "copying-input", evidence,
        *_edits(model, "input", share, remains, "copies go on beside computing"),
        variant="program" if are_of_program(study.trace) else "" if kinds - {"pinned"} else "pinned",
    )  # fmt: skip


def synchronising_reads(model: Model, study: Study) -> Iterator[Proposal]:
    """The device idles while the host reads a result back; of JAX on a CPU no program runs meanwhile."""
    share = _idle_share(study, "synchronising copy")
    name, waits_for, each = find_waiting_op(study)
    evidence = (
        f"The device was idle {percent_text(share)} of the time while the host waited for a result."
    )
    evidence += f" Most of it is in {name}, {count_text(round(each))} a step." if name else ""
    if not study.has_device:
        times, waiting, unused = find_reads_beside_programs(study)
        share = min(waiting, unused)
        evidence = f"The loop waits for a result {counted_text(times, 'time')} in "
        evidence += (
            f"{counted_text(study.summary.counted.size, 'step')}, {percent_text(waiting)} of the "
        )
        evidence += f"time. For {percent_text(unused)} of it no program runs."
    edits = _edits(model, "output", share, (0.01, HALF), "the host waits every 100 steps")
    if not study.has_device:
        edits = [model.some_of((), share, (0.01, HALF), "Python goes on meanwhile")]
    yield _proposal(study, "synchronising-reads", evidence, *edits, variant=waits_for)


def larger_batch(model: Model, study: Study) -> Iterator[Proposal]:
    """Twice the batch fits into the device, which idles, and not for want of data.

    Per example half of what does not grow with the batch is saved: of the idle time, and at most of all but
    kernels that are long enough to grow with it.
    """
    sizes = [(use.batch_size or 0, use.largest_batch) for use in study.memory.use]
    size = next((now for now, largest in sizes if 0 < 2 * now <= largest), 0)
    idle = _idle_share(study)
    fixed = idle - _idle_share(study, "waiting for input", "copying input")
    if not size or fixed < _ROOMY:
        return
    kernels, computing = study.device.kernels, share_of(study, "device compute")
    short = 1 - _kernel_share(study, kernels.total_ps > LONG_OP_PS * kernels.occurrences)
    grows = max(1 - fixed / (1 - computing), 0.0)
    twice = _proposal(
        study, "larger-batch",
        f"The device was idle {percent_text(idle)} of the time, and its memory would hold twice the batch "
        f"(now {count_text(size)}).",
        model.some_of(_ON_HOST, (1 - computing) / 2, (0.0, grows), "twice the batch takes half the steps"),
        model.some_of(_ON_DEVICE, computing * short / 2, (0.0, 1.0), "short kernels take no longer"),
    )  # fmt: skip
    yield replace(twice, code=f"batch_size={2 * size}; scale the learning rate with it.")


def idle_device(model: Model, study: Study) -> Iterator[Proposal]:
    """A device idles more than it works; this is what the host did for most of that time."""
    idle, is_window = study.device.idle, study.steps.is_window
    if idle is None or 2 * idle.total_ps.sum() < idle.window_ps:
        return
    row = int(idle.total_ps.argmax())
    cause, part = IDLE_CAUSES[row], float(idle.total_ps[row] / idle.window_ps)
    category, reason = _CAUSES[cause]
    first = _long_first_launch(study) if cause == "kernel launch" else ""
    if first:
        reason = f"{reason}, most of it one op's: {printable(first)}"
    whole = "the time"
    if is_window:
        whole = f"the {duration_text(idle.window_ps)} that were recorded; no step divides them"
    remains = (0.0 if is_window or first or cause == "unknown" else HALF), 1.0
    yield _proposal(
        study, "idle-device",
        f"{printable(idle.device)} was idle {percent_text(_idle_share(study))} of {whole}. For "
        f"{percent_text(part)} {reason}.",
        *_edits(model, category, part, remains, f"the device was idle: {reason}"),
        variant="first" if first else cause,
    )  # fmt: skip


def _long_first_launch(study: Study) -> str:
    """Name the op that takes most of the launching of one step or two, and stands out of all others."""
    ops, idle, steps = study.ops.steady, study.device.idle, study.summary.counted.size
    host = np.flatnonzero(~ops.is_device)
    if idle is None or study.steps.is_window or steps > 2 or host.size < 2:
        return ""
    longest, others = int(host[0]), host[1:]
    mean = ops.self_ps[others].sum() / ops.occurrences[others].sum()
    launching = int(idle.total_ps[IDLE_CAUSES.index("kernel launch")])
    if 2 * ops.self_ps[longest] < launching or ops.self_ps[longest] < 10 * steps * mean:
        return ""
    took = duration_text(int(ops.self_ps[longest]))
    return f"{printable(ops.op_name[longest][:_LONGEST])} took {took}"


_CAUSES = {
    "compiling": ("compilation", "programs were compiled"),
    "waiting for input": ("input", "the host waited for data"),
    "copying input": ("input", "the host copied data to it"),
    "synchronising copy": ("output", "the host waited for results"),
    "host compute": ("host compute", "ops computed on the CPU"),
    "kernel launch": ("kernel launch", "the host prepared and launched its work"),
    "host collectives": (
        "device collectives",
        "the host waited for others, or exchanged with them",
    ),
    "Python in the step": (OTHERS, "at most Python ran in a step"),
    "Python between steps": ("", "at most Python ran between steps"),
    "unknown": (
        OTHERS,
        "the cause is unknown: nothing of the host that could explain it was recorded",
    ),
}


def _proposal(study: Study, rule: str, evidence: str, *edits: Edit, variant: str = "") -> Proposal:
    title, code, link = words_of(study, rule, variant)
    return Proposal(rule, title, evidence, code, link, edits)


def _rates(study: Study) -> dict[str, int]:
    plane = busiest_device(study.trace)
    return {} if plane is None else find_rates(study.trace.planes[plane])


def _kernel_share(study: Study, chosen: Bools) -> float:
    times = study.device.kernels.total_ps
    return float(times[chosen].sum() / max(times.sum(), 1))


def _edits(
    model: Model, category: str, share: float, remains: tuple[float, float], because: str
) -> list[Edit]:
    """Some time of a category, in steps and in the gaps behind them; "" for gaps alone."""
    study, between = model.study, 1.0
    if study is not None and category:
        rows, at = study.summary.counted, CATEGORIES.index(category)
        within, behind = (
            float(one[rows, at].sum())
            for one in (study.breakdown.picoseconds, study.breakdown.gap_picoseconds)
        )
        between = behind / ((within + behind) or 1.0)
    parts = ((category,), share * (1 - between)), (_BETWEEN, share * between)
    return [model.some_of(kinds, part, remains, because) for kinds, part in parts if part]


def _of_kernels(model: Model, study: Study, chosen: Bools, least: float, because: str) -> Edit:
    """Kernels that take less of the device's time from now on."""
    share = _kernel_share(study, chosen) * share_of(study, "device compute")
    return model.some_of(_ON_DEVICE, share, (min(least, HALF), HALF), because)


def _idle_share(study: Study, *causes: str) -> float:
    """Share of the time in which the busiest device was idle for some causes, or any."""
    idle = study.device.idle
    rows = [IDLE_CAUSES.index(cause) for cause in causes or IDLE_CAUSES]
    return float(idle.total_ps[rows].sum() / idle.window_ps) if idle else 0.0


def _left_by_a_call(model: Model, study: Study, share: float) -> tuple[float, float]:
    """What is left of a share of each step where one call starts all of its work: that call at least."""
    took_ps = max(share * study.summary.mean_period_ps, 1)
    return min(model.costs.call_ps[0] / took_ps, HALF), HALF


def _is_launched_by_pool(study: Study) -> bool:
    """Tell threads of TensorFlow's pool, which launch in turns, from those that do nothing else."""
    plane = busiest_device(study.trace)
    if study.framework != TENSORFLOW or plane is None or not is_nvidia(study.trace, plane):
        return False
    threads = launching_threads(study.trace, plane)
    return len(threads) >= _MANY_THREADS and not any("gpu_private" in name for name in threads)


def _asked(rule: Rule) -> Callable[[Model], Iterator[Proposal]]:
    """Ask a rule where steps, and the work in them, were recorded; of idle time without steps, too."""

    @wraps(rule)
    def ask(model: Model) -> Iterator[Proposal]:
        study = model.study
        if study is None or not study.summary.counted.size or unrecorded_backend(study):
            return
        if not study.steps.is_window or rule is idle_device:
            yield from rule(model, study)

    return ask


DEVICE_RULES = tuple(
    map(
        _asked,
        (
            unused_gpu, mixed_precision, missed_tensor_cores, layout_changes, exposed_collectives, imbalance,
            launch_bound, gpu_thread_mode, copying_input, synchronising_reads, larger_batch, idle_device,
        ),
    )
)  # fmt: skip
