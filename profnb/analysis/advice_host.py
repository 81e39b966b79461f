"""Rules of advice on the host: input, Python, tracing, compiling, eager ops, the optimizer."""

import numpy as np

from profnb.analysis.advice_parts import GUIDE, LEAST, Advice, share_of, window_of
from profnb.analysis.study import Study
from profnb.analysis.summary import GAP
from profnb.trace.names import FUNCTION_CALL
from profnb.units import count_text, duration_text, percent_text

__all__ = [
    "eager_ops", "input_bound", "large_optimizer", "python_between_steps", "recompiling", "retracing",
]  # fmt: skip

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


def input_bound(study: Study) -> Advice | None:
    """The training waits for its input for 5 % of the time or more."""
    found = study.input_diagnosis
    if found is None or found.iterator < 0:
        return None
    return Advice(
        "input-bound", "Feed the model faster", found.sentence, study.waiting.fraction, found.fix,
        f"{GUIDE}/data_performance",
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
        f"{GUIDE}/function",
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
    window = window_of(study)
    if not worst[0] or not window or worst[0] / window < LEAST:
        return None
    spent, function, traced, total = worst
    return Advice(
        "retracing", f"Trace {function[:60]} once",
        f"{function[:100]} was traced anew in {count_text(traced)} of its {count_text(total)} calls, "
        f"{duration_text(spent)} in all: a Python number, a new object or a new shape comes with each call.",
        min(spent / window, 1.0),
        "Pass tensors instead of Python numbers, and fix the shapes: @tf.function(input_signature=["
        "tf.TensorSpec([None, ...], tf.float32)]) or reduce_retracing=True; .batch(n, drop_remainder=True).",
        f"{GUIDE}/function#controlling_retracing",
    )  # fmt: skip


def recompiling(study: Study) -> Advice | None:
    """XLA compiled a program of one name three times or more, for 2 % of the time at least."""
    modules, window = study.xla_modules, window_of(study)
    if not len(modules) or not window:
        return None
    row = int(np.argmax(np.where(modules.compilations >= 3, modules.compile_ps, 0)))
    spent = int(modules.compile_ps[row])
    if modules.compilations[row] < 3 or spent / window < LEAST:
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
        min(spent / whole, 1.0) * (1 - share_of(study, GAP)),
        "Put @tf.function over the function that does one step (model.run_eagerly must be False).",
        f"{GUIDE}/function",
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
        share * share_of(study, busy),
        "model.compile(..., jit_compile=True) fuses its many small ops; a larger batch runs it less often.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip
