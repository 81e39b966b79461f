"""Findings to advice: what to change, how much it can gain at most, and the numbers that say so.

Each rule is one function with its condition and threshold in its docstring. It answers for one trace or stays
silent. The bound is Amdahl's: the share of the time from step to step that would be gone if what the rule
speaks of took no time at all. Advice is ranked by it; gains of several do not add up.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profnb.analysis.idle import IDLE_CAUSES
from profnb.analysis.precision import WIDTHS
from profnb.analysis.study import Study
from profnb.analysis.summary import GAP
from profnb.trace.names import FUNCTION_CALL
from profnb.units import bytes_text, count_text, duration_text, percent_text

__all__ = ["RULES", "Advice", "advise"]

_GUIDE = "https://www.tensorflow.org/guide"
_LEAST = 0.02  # a gain below this is not worth a sentence
_LEAST_GAP_PS = 20_000_000
_EAGER_CALL = "EagerLocalExecute: "
_FUNCTION_NAMES = (
    "__inference",
    "__forward",
    "__backward",
    "Iterator",
    "MakeIterator",
    "Anonymous",
)
_OPTIMIZERS = (
    "adam",
    "adamw",
    "sgd",
    "rmsprop",
    "adagrad",
    "nadam",
    "lion",
    "lamb",
    "adafactor",
    "optimizer",
)


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to change.

    Attributes:
        rule: The rule's name.
        title: What to do, in a few words.
        evidence: The numbers, in a sentence or two.
        bound_fraction: Most of the time from step to step that it can save, 0 to 1.
        code: What to write.
        link: Where TensorFlow's guide explains it.
    """

    rule: str
    title: str
    evidence: str
    bound_fraction: float
    code: str
    link: str


Rule = Callable[[Study], Advice | None]


def _share(study: Study, category: str) -> float:
    return next((s.fraction for s in study.summary.shares if s.category == category), 0.0)


def _window_ps(study: Study) -> int:
    steps = study.steps
    return int(steps.end_ps[-1] - steps.begin_ps[0]) if len(steps) else 0


def _idle_share(study: Study, cause: str) -> float:
    """Share of the window in which the busiest device was idle for a cause."""
    idle = study.idle
    return float(idle.total_ps[IDLE_CAUSES.index(cause)] / idle.window_ps) if idle else 0.0


def input_bound(study: Study) -> Advice | None:
    """The training waits for its input for 5 % of the time or more."""
    found = study.input_diagnosis
    if found is None or found.iterator < 0:
        return None
    return Advice(
        "input-bound", "Feed the model faster", found.sentence, study.waiting.fraction, found.fix,
        f"{_GUIDE}/data_performance",
    )  # fmt: skip


def python_between_steps(study: Study) -> Advice | None:
    """A tenth or more of the time, 20 us or more a step, TensorFlow does nothing and waits for no data.

    That is between steps, and on a CPU inside them where nothing was active (Keras 2 calls callbacks there).
    """
    if not study.summary.counted.size or study.steps.is_window:
        return None
    waiting, rows = study.waiting, study.summary.counted
    gaps = np.maximum(study.steps.gap_ps[rows], 0)
    inside = study.breakdown.of("input")[rows]
    outside = np.maximum(waiting.step_ps[rows] - inside, 0)
    rest = float(np.maximum(gaps - outside, 0).sum())
    if not study.has_device:
        rest += float(study.breakdown.of("all others")[rows].sum())
    whole = float(study.steps.duration_ps[rows].sum() + gaps.sum())
    share = rest / whole if whole else 0.0
    if share < 0.1 or rows.size < 5 or rest / rows.size < _LEAST_GAP_PS:
        return None
    each = duration_text(rest / rows.size)
    return Advice(
        "python-between-steps", "Do less between steps",
        f"{percent_text(share)} of the time, {each} a step, is Python between steps and around "
        "TensorFlow's work: callbacks, logging, metrics, fetching data by hand.",
        share,
        "Log every 100 steps instead of each; model.compile(..., steps_per_execution=16) runs 16 steps for "
        "each return to Python; in a loop of your own put several steps into one tf.function.",
        f"{_GUIDE}/function",
    )  # fmt: skip


def launch_bound(study: Study) -> Advice | None:
    """Most kernels are shorter than their launch and the device idles 10 % of the time while launching."""
    launches, idle = study.launches, _idle_share(study, "launching kernels")
    launched = int(launches.launched.sum())
    if not launched or idle < 0.1:
        return None
    outlived = float(launches.outlived.sum() / launched)
    if outlived < 0.5:
        return None
    return Advice(
        "launch-bound", "Launch fewer, larger kernels",
        f"{percent_text(outlived)} of the {count_text(launched)} kernels ran shorter than the call that "
        f"launched them, and the device idled {percent_text(idle)} of the time while the host launched.",
        idle,
        "model.compile(..., jit_compile=True) fuses small kernels; a larger batch makes each do more; "
        "steps_per_execution=16 queues several steps ahead.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


def pageable_copies(study: Study) -> Advice | None:
    """Copies from pageable host memory take 3 % of the time or more on the device."""
    window, spent, moved = _window_ps(study), 0, 0
    for row in range(len(study.copies)):
        if (
            study.copies.direction[row] == "host to device"
            and study.copies.source_kind[row] == "pageable"
        ):
            spent += int(study.copies.total_ps[row])
            moved += int(study.copies.bytes[row])
    share = min(spent / window, _share(study, "input")) if window else 0.0
    if share < 0.03:
        return None
    return Advice(
        "pageable-copies", "Copy to the device while it computes",
        f"{bytes_text(moved)} came from pageable memory, {duration_text(spent)} of copying that the steps "
        "waited for: the driver copies it twice and the host waits.",
        share,
        "dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')) as the last step of the pipeline; "
        "send uint8 and convert on the device.",
        f"{_GUIDE}/data_performance",
    )  # fmt: skip


def synchronising_reads(study: Study) -> Advice | None:
    """The device idles 5 % of the time or more while the host reads a result back."""
    share = _idle_share(study, "synchronising copy")
    if share < 0.05:
        return None
    return Advice(
        "synchronising-reads", "Read results less often",
        f"The device was idle {percent_text(share)} of the time while the host waited for a result of it.",
        share,
        "float(loss), loss.numpy() and print(loss) wait for the device: do them every 100 steps, or keep a "
        "tf.keras.metrics.Mean and read it once an epoch.",
        f"{_GUIDE}/gpu_performance_analysis",
    )  # fmt: skip


def retracing(study: Study) -> Advice | None:
    """A tf.function was traced anew in three steps or more, a fifth of its calls at least."""
    calls = study.trace.stats.texts(FUNCTION_CALL)
    if not len(calls):
        return None
    is_traced = np.array([text.startswith("traced") for text in calls.texts], np.bool_)[
        calls.values
    ]
    names = study.trace.events.name[calls.events]
    worst: tuple[int, str, int, int] = (0, "", 0, 0)
    for name in np.unique(names[is_traced]).tolist():
        own = names == name
        events = calls.events[own & is_traced]
        if events.size >= 3 and events.size * 5 >= own.sum():
            spent = int(study.trace.events.duration_ps[events[1:]].sum())  # the first is its due
            worst = max(worst, (spent, study.trace.names[name], int(events.size), int(own.sum())))
    window = _window_ps(study)
    if not worst[0] or not window or worst[0] / window < _LEAST:
        return None
    spent, function, traced, total = worst
    return Advice(
        "retracing", f"Trace {function[:60]} once",
        f"{function[:100]} was traced anew in {count_text(traced)} of its {count_text(total)} calls, "
        f"{duration_text(spent)} in all: a Python number, a new object or a new shape comes with each call.",
        min(spent / window, 1.0),
        "Pass tensors instead of Python numbers, and fix the shapes: @tf.function(input_signature=["
        "tf.TensorSpec([None, ...], tf.float32)]) or reduce_retracing=True; .batch(n, drop_remainder=True).",
        f"{_GUIDE}/function#controlling_retracing",
    )  # fmt: skip


def recompiling(study: Study) -> Advice | None:
    """XLA compiled a program of one name three times or more, for 2 % of the time at least."""
    modules, window = study.xla_modules, _window_ps(study)
    if not len(modules) or not window:
        return None
    row = int(np.argmax(np.where(modules.compilations >= 3, modules.compile_ps, 0)))
    spent = int(modules.compile_ps[row])
    if modules.compilations[row] < 3 or spent / window < _LEAST:
        return None
    return Advice(
        "recompiling", "Compile once",
        f"XLA compiled {modules.module[row][:100]} {count_text(int(modules.compilations[row]))} times, "
        f"{duration_text(spent)} in all: its shapes change from call to call.",
        min(spent / window, 1.0),
        "Give every batch one shape: .batch(n, drop_remainder=True), pad sequences to a few lengths.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


def eager_ops(study: Study) -> Advice | None:
    """Python runs more than 20 ops a step one by one, for a tenth of the step time or more."""
    counted = study.summary.counted
    if not counted.size or study.steps.is_window:
        return None

    def is_eager(name: str) -> bool:
        op = name.removeprefix(_EAGER_CALL)
        return op != name and not op.startswith(_FUNCTION_NAMES)

    events = np.flatnonzero(study.trace.select_names(is_eager) & study.trace.is_host_event)
    events = events[np.isin(study.groups.step[events], counted)]
    spent = int(study.trace.events.duration_ps[events].sum())
    whole = int(study.steps.duration_ps[counted].sum())
    each = events.size / counted.size
    if each < 20 or not whole or spent / whole < 0.1:
        return None
    return Advice(
        "eager-ops", "Put the step into a tf.function",
        f"Python ran {count_text(round(each))} ops a step one by one; each costs its dispatch, and nothing "
        "is fused or runs in parallel.",
        min(spent / whole, 1.0) * (1 - _share(study, GAP)),
        "Put @tf.function over the function that does one step (model.run_eagerly must be False).",
        f"{_GUIDE}/function",
    )  # fmt: skip


def mixed_precision(study: Study) -> Advice | None:
    """The device has tensor cores, a fifth of kernel time could use them, and 16-bit is under a tenth."""
    kernels, peak = study.kernels, study.peak
    whole = int(kernels.total_ps.sum()) if len(kernels) else 0
    known = {} if peak is None else peak.flops
    rates = known.get("16-bit", 0.0), known.get("32-bit", 0.0)
    if not whole or not 0 < rates[1] < rates[0]:
        return None
    narrow = study.precision.fraction[: WIDTHS.index("32-bit")].sum()
    eligible = float(kernels.total_ps[kernels.is_tensor_core_eligible].sum() / whole)
    if narrow >= 0.1 or eligible < 0.2:
        return None
    bound = _share(study, "device compute") * eligible
    return Advice(
        "mixed-precision", "Compute in 16 bits",
        f"{percent_text(eligible)} of kernel time is matrix products and convolutions in 32 bits; this "
        f"device does 16 bits {rates[0] / rates[1]:.0f} times as fast at best.",
        bound,
        "keras.mixed_precision.set_global_policy('mixed_float16') before the model is built; keep the last "
        "layer's softmax in float32.",
        f"{_GUIDE}/mixed_precision",
    )  # fmt: skip


def missed_tensor_cores(study: Study) -> Advice | None:
    """16-bit products and convolutions of a twentieth of kernel time ran outside the tensor cores."""
    kernels = study.kernels
    whole = int(kernels.total_ps.sum()) if len(kernels) else 0
    narrow = study.precision.fraction[WIDTHS.index("16-bit")] if whole else 0.0
    if not whole or narrow < 0.1:
        return None
    missed = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    share = float(kernels.total_ps[missed].sum() / whole)
    if share < 0.05:
        return None
    worst = kernels.op_name[int(np.argmax(np.where(missed, kernels.total_ps, 0)))]
    return Advice(
        "missed-tensor-cores", "Make dimensions multiples of 8",
        f"{percent_text(share)} of kernel time is products and convolutions on the ordinary cores although "
        f"the model computes in 16 bits, most of it {worst[:100]}.",
        _share(study, "device compute") * share,
        "Round layer widths, channels and the batch up to multiples of 8.",
        f"{_GUIDE}/mixed_precision",
    )  # fmt: skip


def larger_batch(study: Study) -> Advice | None:
    """Twice the batch would fit into the device, which idles a fifth of the time or more."""
    idle = study.idle
    use = next((u for u in study.memory_use if u.largest_batch and u.batch_size), None)
    if (
        idle is None
        or use is None
        or use.batch_size is None
        or use.largest_batch < 2 * use.batch_size
    ):
        return None
    share = float(idle.total_ps.sum() / idle.window_ps)
    if share < 0.2:
        return None
    return Advice(
        "larger-batch", "Use a larger batch",
        f"The device was idle {percent_text(share)} of the time, and its memory would hold a batch of about "
        f"{count_text(_rounded(use.largest_batch))} (now {count_text(use.batch_size)}).",
        share / 2,  # twice the batch halves the idle time per example at best
        f"batch_size={2 * use.batch_size}; scale the learning rate with it.",
        f"{_GUIDE}/gpu_performance_analysis",
    )  # fmt: skip


def _rounded(batch: int) -> int:
    """Two digits: it is an estimate."""
    return batch - batch % int(10 ** max(len(str(batch)) - 2, 0))


def exposed_collectives(study: Study) -> Advice | None:
    """Exchange between devices takes 5 % of the step or more that no compute hides."""
    share = _share(study, "device collectives")
    if share < 0.05:
        return None
    return Advice(
        "exposed-collectives", "Hide the exchange between devices",
        f"{percent_text(share)} of the step is collectives during which the device computes nothing.",
        share,
        "A larger batch per device, mixed precision (half the bytes), or gradient accumulation over several "
        "steps.",
        f"{_GUIDE}/distributed_training",
    )  # fmt: skip


def imbalance(study: Study) -> Advice | None:
    """The busiest device works a tenth longer than the mean of them."""
    devices = study.devices
    if len(devices) < 2 or devices.imbalance < 0.1:
        return None
    return Advice(
        "imbalance", "Spread the work evenly",
        f"The busiest of {len(devices)} devices works {percent_text(devices.imbalance)} longer than the "
        "mean; the others wait for it.",
        devices.imbalance / (1 + devices.imbalance) * float(devices.utilisation.max()),
        "Give every replica the same number of examples (drop_remainder=True) of like sizes.",
        f"{_GUIDE}/distributed_training",
    )  # fmt: skip


def large_optimizer(study: Study) -> Advice | None:
    """The optimizer's ops take a quarter of the self time of their side or more."""
    ops = study.ops_of_steps(study.summary.counted) if study.summary.counted.size else study.ops
    side = ops.is_device if ops.is_device.any() else ~ops.is_device
    whole = int(ops.self_ps[side].sum())
    own = np.array(
        [any(part in _OPTIMIZERS for part in name.lower().split("/")) for name in ops.op_name],
        np.bool_,
    )
    share = float(ops.self_ps[side & own].sum() / whole) if whole and own.size else 0.0
    if share < 0.25:
        return None
    busy = "device compute" if ops.is_device.any() else "host compute"
    return Advice(
        "large-optimizer", "Make the optimizer cheaper",
        f"The optimizer's ops are {percent_text(share)} of the time of all ops.",
        share * _share(study, busy),
        "model.compile(..., jit_compile=True) fuses its many small ops; a larger batch runs it less often.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    input_bound, python_between_steps, launch_bound, pageable_copies, synchronising_reads, retracing,
    recompiling, eager_ops, mixed_precision, missed_tensor_cores, larger_batch, exposed_collectives,
    imbalance, large_optimizer,
)  # fmt: skip


def advise(study: Study) -> list[Advice]:
    """Everything the rules have to say about a trace, what can gain most first."""
    found = [advice for rule in RULES if (advice := rule(study)) is not None]
    return sorted(
        (advice for advice in found if advice.bound_fraction >= _LEAST),
        key=lambda advice: -advice.bound_fraction,
    )
