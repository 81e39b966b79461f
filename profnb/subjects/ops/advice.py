"""Rules of advice on ops: eager ops, the optimizer, threads, graphs that grow (TF1)."""

from collections.abc import Set as AbstractSet

import numpy as np

from profnb.capture.environment import CORES, INTRA_OP
from profnb.core.columns import Int64s
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.activities import FIRST_OF_DEVICE
from profnb.steps.finding.loops import EAGER_LOOPS
from profnb.steps.streams import covered_ps
from profnb.subjects.advising import GUIDE, Advice, gain_of_fusing, op_events, share_of
from profnb.subjects.covered_time import (
    Spans,
    covered_share,
    share_beyond,
    spans_of,
    usual_share_beyond,
)
from profnb.subjects.ops.eager_ops import find_eager_kernels
from profnb.subjects.ops.growth import find_growth
from profnb.subjects.ops.optimizers import is_optimizer
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, words
from profnb.trace.names import PYTHON_OPS, is_host_collective
from profnb.trace.op_names import is_packing, packing_scopes

__all__ = [
    "eager_ops",
    "growing_graph",
    "idle_cores",
    "large_optimizer",
    "oversubscribed",
]

_EAGER_CALL = "EagerLocalExecute: "
_FUNCTION_NAMES = (
    "__inference", "__forward", "__backward", "Iterator", "MakeIterator", "Anonymous",
)  # fmt: skip
_MANY_EAGER_OPS, _OPS_TO_MAKE_A_VARIABLE = 500, 30
_CLOSE_PS, _FAR_PS, _LEAST_STARTING = 200_000_000, 2_000_000_000, 0.1
_WHOLE_UPDATES = ("ResourceApply", "ResourceSparseApply", "Apply", "SparseApply")
_SMALL_PS, _MANY = 50_000_000, 20  # an op that is mostly its start; so many a step


def eager_ops(study: Study) -> Advice | None:
    """Python runs more than 20 ops a step one by one, and starting them takes a tenth of the time or more.

    That is what their executions take besides their kernels, and Python from one to the next where that is
    less than 0.2 ms; a longer pause is something else. It is so in half of the steps, too. Without steps: 500
    ops or more besides those that make variables. What a tf.function saves at most is that, with pauses of up
    to 2 ms. What a device computes meanwhile costs nothing. Not where the loop is Keras' own (``adapt``),
    which nobody can put into a function.
    """
    counted = study.summary.counted
    is_keras_own = study.steps.origin in EAGER_LOOPS and study.recording.turns.are_library
    if not counted.size or is_keras_own:
        return None

    def is_eager(name: str) -> bool:
        op = name.removeprefix(_EAGER_CALL)
        return op != name and not op.startswith(_FUNCTION_NAMES)

    trace = study.trace
    events = np.flatnonzero(trace.select_names(is_eager) & trace.is_host_event)
    events = events[np.isin(study.groups.step[events], counted)]
    each = events.size / counted.size
    if each < _MANY:
        return None
    is_window = study.steps.is_window
    made = trace.select_named(f"{_EAGER_CALL}VarHandleOp").sum()
    if is_window and each - _OPS_TO_MAKE_A_VARIABLE * made < _MANY_EAGER_OPS:
        return None
    hidden = spans_of(study, _kernels(study))
    starting = _with_pauses(study, events, _CLOSE_PS)
    share = share_beyond(study, starting, hidden)
    if min(share, usual_share_beyond(study, starting, hidden)) < _LEAST_STARTING:
        return None
    whole = int(study.steps.duration_ps[counted].sum())
    what = (
        f"{count_text(events.size)} ops one by one in {duration_text(whole)}"
        if is_window
        else f"{count_text(round(each))} ops a step one by one"
    )
    return Advice(
        "eager-ops", "Put the step into a tf.function",
        f"Python ran {what}; starting them, and coming from one to the next, takes {percent_text(share)} of "
        "the time, and nothing is fused or runs in parallel.",
        share_beyond(study, _with_pauses(study, events, _FAR_PS), hidden),
        "Put @tf.function over the function that runs them."
        if is_window
        else "Put @tf.function over the function that does one step (model.run_eagerly must be False).",
        f"{GUIDE}/function",
    )  # fmt: skip


def _kernels(study: Study) -> Int64s:
    """What ops do once they are started: a device's work, or kernels on the CPU."""
    if study.has_device:
        return np.flatnonzero(study.activities >= FIRST_OF_DEVICE)
    kernels = find_eager_kernels(study.trace, study.parent)
    return np.union1d(kernels, op_events(study, lambda *_: True))


def _with_pauses(study: Study, events: Int64s, longest_ps: int) -> Spans:
    """Executions, each up to the next one of its thread and step where no more than so long lies between."""
    begin, end = spans_of(study, events)
    if not events.size:
        return begin, end
    line, step = study.trace.lines.of_event[events], study.groups.step[events]
    is_followed = (line[1:] == line[:-1]) & (step[1:] == step[:-1])
    is_followed &= begin[1:] - end[:-1] <= longest_ps
    return begin, np.append(
        np.where(is_followed, np.maximum(begin[1:], end[:-1]), end[:-1]), end[-1:]
    )


def _is_optimizers(op_name: str) -> bool:
    return any(map(is_optimizer, op_name.split("/")))


def _updates(op_name: str, op_type: str, packing: AbstractSet[str]) -> bool:
    """Whether an op is an optimizer's own, and not of the exchange that has its name."""
    is_exchange = is_host_collective(f"{op_name}:{op_type}")
    return _is_optimizers(op_name) and not (is_exchange or is_packing(op_name, op_type, packing))


def large_optimizer(study: Study) -> Advice | None:
    """The optimizer's ops take a quarter of a device's self time or more, half of a CPU's, and can be fused.

    That is, XLA has not compiled them already, and no one op is half of their time: an update of one large
    variable is bound by its memory, and so are long ones that are one op for each variable already
    (``ResourceApplyAdam``). On a CPU what XLA makes of the products costs what fusing the rest saves:
    where the optimizer was 39 % of a dense model's ops, jit_compile=True took 4 % more processor time.
    """
    ops = (
        study.ops.of_steps(study.summary.counted) if study.summary.counted.size else study.ops.table
    )
    side = ops.is_device if ops.is_device.any() else ~ops.is_device
    whole = int(ops.self_ps[side].sum())
    packing = packing_scopes(ops.op_name)  # an exchange of gradients has the optimizer's name
    names = zip(ops.op_name, ops.op_type, strict=True)
    is_of_optimizer = np.array([_updates(*name, packing) for name in names], np.bool_)
    share = (
        float(ops.self_ps[side & is_of_optimizer].sum() / whole)
        if whole and is_of_optimizer.size
        else 0.0
    )
    least = 0.25 if ops.is_device.any() else 0.5
    if share < least or study.framework == JAX or len(study.xla.hlo):
        return None
    if 2 * ops.self_ps[side & is_of_optimizer].max() > ops.self_ps[side & is_of_optimizer].sum():
        return None
    updates = np.array([kind.startswith(_WHOLE_UPDATES) for kind in ops.op_type], np.bool_)
    runs = int(ops.occurrences[side & is_of_optimizer].sum())
    mean_ps = int(ops.self_ps[side & is_of_optimizer].sum()) / runs
    if (
        mean_ps >= _SMALL_PS
        and 2 * ops.self_ps[side & is_of_optimizer & updates].sum() > mean_ps * runs
    ):
        return None
    each = runs / max(study.summary.counted.size, 1)
    kind = "many small ops" if mean_ps < _SMALL_PS and each >= _MANY else "ops"
    if ops.is_device.any():
        bound = share * share_of(study, "device compute")
    else:
        bound = gain_of_fusing(study, lambda name, kind: _updates(name, kind, packing))
    return Advice(
        "large-optimizer", "Make the optimizer cheaper",
        f"The optimizer's ops are {percent_text(share)} of the time of all ops: {count_text(round(each))} a "
        f"step, of {duration_text(mean_ps)} on average.",
        bound,
        words(
            study.framework,
            f"Fuse its {kind} with the framework's compiler; a larger batch runs it less often.",
            tensorflow=f"model.compile(..., jit_compile=True) fuses its {kind}; a larger batch runs it less "
            "often.",
            sessions="config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1 "
            f"fuses its {kind}; a larger batch runs it less often.",
            pytorch=f"torch.optim.AdamW(..., fused=True), or foreach=True, runs its {kind} as a few; a "
            "larger batch runs it less often.",
        ),
        words(
            study.framework, "https://www.tensorflow.org/xla",
            jax="https://docs.jax.dev/en/latest/jit-compilation.html",
            pytorch="https://docs.pytorch.org/docs/stable/optim.html",
        ),
    )  # fmt: skip


def growing_graph(study: Study) -> Advice | None:
    """The graph of a TF1 session grows (``find_growth``), and it is taken in and pruned again each time.

    The bound leaves the ops their time.
    """
    versions = study.recording.graph_versions
    growth = find_growth(versions)
    if growth is None or not study.summary.counted.size:
        return None
    grown, added = growth
    busy = covered_share(study, op_events(study, lambda *_: True))
    runs = study.step_times.duration_ps  # by the wall clock: the graph is taken in before ops run
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
    setting_text = study.recording.environment.get(setting, "")
    return int(setting_text) if setting_text.isdecimal() and len(setting_text) < 7 else None


def _threads_at_work(study: Study) -> float:
    """How many of the host's ops ran at once on average, while any did, from the first counted step on."""
    ops = op_events(study, lambda _, op_type: op_type != "Dataset")
    events, counted = study.trace.events, study.summary.counted
    inside = events.begin_ps[ops] >= study.steps.begin_ps[counted[0]]
    inside &= events.end_ps[ops] <= study.steps.end_ps[counted[-1]]
    begin, end = events.begin_ps[ops[inside]], events.end_ps[ops[inside]]
    covered = covered_ps(begin, end)  # of all of them: a validation between the steps has ops too
    return float((end - begin).sum() / covered) if covered else 0.0


def idle_cores(study: Study) -> Advice | None:
    """TensorFlow was told to use fewer threads for an op than there are cores, on a CPU that is the limit.

    Functions of Python that ops call are left out: these run on one core.
    """
    cores, threads = _count_of(study, CORES), _count_of(study, INTRA_OP)
    if cores is None or threads is None or threads >= cores or study.has_device:
        return None
    of_python = op_events(study, lambda _, op_type: op_type in PYTHON_OPS)
    busy = share_of(study, "host compute") - covered_share(study, of_python)
    if busy < 0.3:
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
