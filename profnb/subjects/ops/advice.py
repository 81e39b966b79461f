"""Rules of advice on ops: tracing anew, eager ops, the optimizer, threads, graphs that grow (TF1)."""

import numpy as np

from profnb.capture.environment import CORES, INTRA_OP
from profnb.core.columns import Bools, Int64s
from profnb.core.units import count_text, duration_text, percent_text
from profnb.subjects.advising import (
    GUIDE,
    LEAST,
    Advice,
    covered_share,
    excess_share,
    gain_of_fusing,
    op_events,
    period_ps,
    share_of,
    window_of,
)
from profnb.subjects.ops.growth import find_growth
from profnb.subjects.ops.optimizers import is_optimizer
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, words
from profnb.trace.names import FUNCTION_CALL

__all__ = [
    "eager_ops",
    "growing_graph",
    "idle_cores",
    "large_optimizer",
    "oversubscribed",
    "retracing",
]

_EAGER_CALL = "EagerLocalExecute: "
_EAGER_RUN = "KernelAndDeviceFunc::Run"
_FUNCTION_NAMES = (
    "__inference", "__forward", "__backward", "Iterator", "MakeIterator", "Anonymous",
)  # fmt: skip
_SHOWN_VALUES = 4
_MANY_EAGER_OPS, _OPS_TO_MAKE_A_VARIABLE = 500, 30


def retracing(study: Study) -> Advice | None:
    """A tf.function was traced anew in three steps or more, a fifth of its calls at least.

    Not where another one that calls it was being traced: that traces it once, and is the one to speak of.
    """
    calls = study.trace.stats.texts(FUNCTION_CALL)
    if not len(calls):
        return None
    is_traced = np.array([text.startswith("traced") for text in calls.texts], np.bool_)[
        calls.values
    ]
    names = study.trace.events.name[calls.events]
    worst: tuple[int, str, int, int] = (0, "", 0, 0)
    culprit = calls.events[:0]
    is_due = _is_traced_inside(study, calls.events[is_traced])
    for name in np.unique(names[is_traced]).tolist():
        own = names == name
        events = calls.events[is_traced][own[is_traced] & ~is_due]
        if events.size >= 3 and events.size * 5 >= own.sum():
            spent = int(study.trace.events.duration_ps[events[1:]].sum())  # the first is its due
            found = spent, study.trace.names[name], int(events.size), int(own.sum())
            worst, culprit = max((worst, culprit), (found, events), key=lambda pair: pair[0])
    window = window_of(study)
    if not worst[0] or not window or worst[0] / window < LEAST:
        return None
    spent, function, traced, total = worst
    return Advice(
        "retracing", f"Trace {function[:60]} once",
        f"{function[:100]} was traced anew in {count_text(traced)} of its {count_text(total)} calls, "
        f"{duration_text(spent)} in all: {_why_traced(study, function)}.",
        min(max(spent / window, excess_share(study, culprit)), 1.0),
        "Pass tensors instead of Python numbers, and fix the shapes: @tf.function(input_signature=["
        "tf.TensorSpec([None, ...], tf.float32)]) or reduce_retracing=True; .batch(n, drop_remainder=True).",
        f"{GUIDE}/function#controlling_retracing",
    )  # fmt: skip


def _is_traced_inside(study: Study, events: Int64s) -> Bools:
    """Which of N tracings are the first of their function inside another function's tracing, shape (N,)."""
    known, names = set(events.tolist()), study.trace.events.name
    parent, seen = study.groups.parent, set[tuple[int, int]]()
    is_first = np.zeros(events.size, np.bool_)
    for row, event in enumerate(events.tolist()):
        above = int(parent[event])
        while above >= 0 and above not in known:
            above = int(parent[above])
        pair = (above, int(names[event]))
        is_first[row] = above >= 0 and names[above] != names[event] and pair not in seen
        seen.add(pair)
    return is_first


def _why_traced(study: Study, function: str) -> str:
    """Which argument changed from call to call, where the function was at hand."""
    changing = study.recording.changing_arguments.get(function)
    if not changing:
        return "a Python number, a new object or a new shape comes with each call"
    told = []
    for argument, values in changing[:2]:
        listed = ", ".join(value[:40] for value in values[:_SHOWN_VALUES])
        more = ", ..." if len(values) > _SHOWN_VALUES else ""
        told.append(f"its argument {argument[:60]} was {listed}{more}")
    return "; ".join(told)


def eager_ops(study: Study) -> Advice | None:
    """Python runs more than 20 ops a step one by one, for a tenth of the step time or more.

    Without steps: 500 ops or more besides those that make variables. The bound leaves the kernels their time:
    what a tf.function saves is all that is around them.
    """
    counted = study.summary.counted
    if not counted.size:
        return None

    def is_eager(name: str) -> bool:
        op = name.removeprefix(_EAGER_CALL)
        return op != name and not op.startswith(_FUNCTION_NAMES)

    trace = study.trace
    events = np.flatnonzero(trace.select_names(is_eager) & trace.is_host_event)
    events = events[np.isin(study.groups.step[events], counted)]
    spent = int(trace.events.duration_ps[events].sum())
    whole = int(study.steps.duration_ps[counted].sum())
    each = events.size / counted.size
    if each < 20 or not whole or spent / whole < 0.1:
        return None
    what = f"Python ran {count_text(round(each))} ops a step one by one"
    if study.steps.is_window:
        made = trace.select_names(lambda name: name == f"{_EAGER_CALL}VarHandleOp")
        if each - _OPS_TO_MAKE_A_VARIABLE * made.sum() < _MANY_EAGER_OPS:
            return None
        what = f"Python ran {count_text(events.size)} ops one by one in {duration_text(whole)}"
    runs = trace.select_named(_EAGER_RUN) & trace.is_host_event
    kernels = np.union1d(np.flatnonzero(runs), op_events(study, lambda *_: True))
    return Advice(
        "eager-ops", "Put the step into a tf.function",
        f"{what}; each costs its dispatch, and nothing is fused or runs in parallel.",
        max(1 - covered_share(study, kernels), spent / whole * 0.1),
        "Put @tf.function over the function that runs them."
        if study.steps.is_window
        else "Put @tf.function over the function that does one step (model.run_eagerly must be False).",
        f"{GUIDE}/function",
    )  # fmt: skip


def _is_optimizers(op_name: str) -> bool:
    return any(map(is_optimizer, op_name.split("/")))


def large_optimizer(study: Study) -> Advice | None:
    """The optimizer's ops take a quarter of the self time of their side or more, and can be fused.

    That is, XLA has not compiled them already, and no one op is half of their time: an update of one large
    variable is bound by its memory.
    """
    ops = (
        study.ops.of_steps(study.summary.counted) if study.summary.counted.size else study.ops.table
    )
    side = ops.is_device if ops.is_device.any() else ~ops.is_device
    whole = int(ops.self_ps[side].sum())
    own = np.array([_is_optimizers(name) for name in ops.op_name], np.bool_)
    share = float(ops.self_ps[side & own].sum() / whole) if whole and own.size else 0.0
    if share < 0.25 or study.framework == JAX or len(study.xla.hlo):
        return None
    if 2 * ops.self_ps[side & own].max() > ops.self_ps[side & own].sum():
        return None
    if ops.is_device.any():
        bound = share * share_of(study, "device compute")
    else:
        bound = gain_of_fusing(study, lambda name, _: _is_optimizers(name))
    return Advice(
        "large-optimizer", "Make the optimizer cheaper",
        f"The optimizer's ops are {percent_text(share)} of the time of all ops.",
        bound,
        words(
            study.framework,
            "Fuse its many small ops with the framework's compiler; a larger batch runs it less often.",
            tensorflow="model.compile(..., jit_compile=True) fuses its many small ops; a larger batch "
            "runs it "
            "less often.",
            sessions="config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1 "
            "fuses its many small ops; a larger batch runs it less often.",
            pytorch="torch.optim.AdamW(..., fused=True), or foreach=True, runs its many small ops as a "
            "few; a "
            "larger batch runs it less often.",
        ),
        words(
            study.framework, "https://www.tensorflow.org/xla",
            jax="https://docs.jax.dev/en/latest/jit-compilation.html",
            pytorch="https://docs.pytorch.org/docs/stable/optim.html",
        ),
    )  # fmt: skip


def growing_graph(study: Study) -> Advice | None:
    """The graph of a TF1 session changed in half of its runs or more, and in three at least.

    A session has to take in and prune the graph again each time; the bound leaves the ops their time.
    """
    versions = study.recording.graph_versions
    growth = find_growth(versions)
    if growth is None or not study.summary.counted.size:
        return None
    grown, added = growth
    busy = covered_share(study, op_events(study, lambda *_: True))
    runs = (
        study.step_times.duration_ps
    )  # by the wall clock: taking the graph in is before the first op
    each_ps = float(np.median(runs)) if runs.size else 0.0
    return Advice(
        "growing-graph", "Build the graph before the loop",
        f"The graph grew in {count_text(grown)} of {count_text(len(versions))} session runs, by "
        f"{count_text(added)} changes a run: the session takes it in and prunes it again; "
        f"a run takes {duration_text(each_ps)} (median).",
        1 - busy,
        "Make every op before the loop, feed what changes through placeholders, and call graph.finalize(), "
        "which makes the line that adds an op raise.",
        "https://www.tensorflow.org/api_docs/python/tf/Graph#finalize",
    )  # fmt: skip


def _count_of(study: Study, setting: str) -> int | None:
    """A number that the capture noted of the environment, or None."""
    told = study.recording.environment.get(setting, "")
    return int(told) if told.isdecimal() and len(told) < 7 else None


def _threads_at_work(study: Study) -> float:
    """How many of the host's ops ran at once on average, while any did, from the first counted step on."""
    ops = op_events(study, lambda _, op_type: op_type != "Dataset")
    events, counted = study.trace.events, study.summary.counted
    inside = events.begin_ps[ops] >= study.steps.begin_ps[counted[0]]
    inside &= events.end_ps[ops] <= study.steps.end_ps[counted[-1]]
    covered = covered_share(study, ops[inside]) * period_ps(study)
    return float(events.duration_ps[ops[inside]].sum() / covered) if covered else 0.0


def idle_cores(study: Study) -> Advice | None:
    """TensorFlow was told to use fewer threads for an op than there are cores, on a CPU that is the limit."""
    cores, threads = _count_of(study, CORES), _count_of(study, INTRA_OP)
    busy = share_of(study, "host compute")
    if cores is None or threads is None or threads >= cores or study.has_device or busy < 0.3:
        return None
    return Advice(
        "idle-cores", "Use all cores",
        f"Each op may use {count_text(threads)} of {count_text(cores)} cores, and ops on the CPU are "
        f"{percent_text(busy)} of the time.",
        busy * (1 - threads / cores),
        "Leave tf.config.threading.set_intra_op_parallelism_threads alone (0 means all cores), and unset "
        "TF_NUM_INTRAOP_THREADS; it takes a fresh process.",
        "https://www.tensorflow.org/api_docs/python/tf/config/threading",
    )  # fmt: skip


def oversubscribed(study: Study) -> Advice | None:
    """On average one and a half times as many ops run at once as there are cores."""
    cores = _count_of(study, CORES)
    if cores is None or study.has_device or not study.summary.counted.size or study.steps.is_window:
        return None
    threads = _threads_at_work(study)
    if threads < 1.5 * cores:
        return None
    busy = share_of(study, "host compute") + share_of(study, "input")
    return Advice(
        "oversubscribed", "Run fewer threads",
        f"{threads:.1f} ops were at work at once on average, on {count_text(cores)} cores: they take turns, "
        "and each switch costs.",
        busy * (1 - cores / threads),
        f"num_parallel_calls=tf.data.AUTOTUNE instead of a large number, or options.threading."
        f"private_threadpool_size = {cores}; tf.config.threading.set_inter_op_parallelism_threads({cores}).",
        "https://www.tensorflow.org/api_docs/python/tf/data/ThreadingOptions",
    )  # fmt: skip
