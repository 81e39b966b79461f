"""Rules of advice on ops: the optimizer, threads, graphs that grow (TF1)."""

from collections.abc import Set as AbstractSet

import numpy as np

from profnb.capture.environment import CORES, INTRA_OP
from profnb.core.printable import printable
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.streams import covered_ps
from profnb.subjects.advising import Finding, gain_of_fusing, op_events, share_of
from profnb.subjects.covered_time import (
    covered_share,
)
from profnb.subjects.ops.growth import find_growth
from profnb.subjects.ops.optimizers import is_optimizer
from profnb.subjects.study import Study
from profnb.subjects.uncompilable import find_uncompilable
from profnb.trace.framework import JAX, words
from profnb.trace.names import PYTHON_OPS, is_host_collective
from profnb.trace.op_names import is_packing, packing_scopes

__all__ = [
    "growing_graph",
    "idle_cores",
    "large_optimizer",
    "oversubscribed",
]

_WHOLE_UPDATES = ("ResourceApply", "ResourceSparseApply", "Apply", "SparseApply")
_LONGEST_TYPE = 60
_SMALL_PS, _MANY = 50_000_000, 20  # an op that is mostly its start; so many a step


def _is_optimizers(op_name: str) -> bool:
    return any(map(is_optimizer, op_name.split("/")))


def _updates(op_name: str, op_type: str, packing: AbstractSet[str]) -> bool:
    """Whether an op is an optimizer's own, and not of the exchange that has its name."""
    is_exchange = is_host_collective(f"{op_name}:{op_type}")
    return _is_optimizers(op_name) and not (is_exchange or is_packing(op_name, op_type, packing))


def large_optimizer(study: Study) -> Finding | None:
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
    obstacle = find_uncompilable(study)
    return Finding(
        "large-optimizer", "Make the optimizer cheaper",
        f"The optimizer's ops are {percent_text(share)} of the time of all ops: {count_text(round(each))} a "
        f"step, of {duration_text(mean_ps)} on average.",
        bound,
        words(
            study.framework,
            f"Fuse its {kind} with the framework's compiler; a larger batch runs it less often.",
            tensorflow=f"A larger batch runs it less often. jit_compile=True would fuse its {kind}, but XLA "
            f"cannot compile this step, which runs {printable(obstacle)[:_LONGEST_TYPE]}."
            if obstacle
            else f"model.compile(..., jit_compile=True) fuses its {kind}; a larger batch runs it less often.",
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


def growing_graph(study: Study) -> Finding | None:
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
    return Finding(
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


def idle_cores(study: Study) -> Finding | None:
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
    return Finding(
        "idle-cores", "Use all cores",
        f"Each op may use {count_text(threads)} of {count_text(cores)} cores, and ops on the CPU are "
        f"{percent_text(busy)} of the time.",
        busy * (1 - threads / cores),
        "Leave tf.config.threading.set_intra_op_parallelism_threads alone (0 means all cores), and unset "
        "TF_NUM_INTRAOP_THREADS; it takes a fresh process.",
        "https://www.tensorflow.org/api_docs/python/tf/config/threading",
    )  # fmt: skip


def oversubscribed(study: Study) -> Finding | None:
    """On average one and a half times as many ops run at once as there are cores."""
    cores = _count_of(study, CORES)
    if cores is None or study.has_device or not study.summary.counted.size or study.steps.is_window:
        return None
    threads = _threads_at_work(study)
    if threads < 1.5 * cores:
        return None
    busy = share_of(study, "host compute") + share_of(study, "input")
    return Finding(
        "oversubscribed", "Run fewer threads",
        f"{threads:.1f} ops were at work at once on average, on {count_text(cores)} cores: they take turns, "
        "and each switch costs.",
        busy * (1 - cores / threads),
        f"num_parallel_calls=tf.data.AUTOTUNE instead of a large number, or options.threading."
        f"private_threadpool_size = {cores}; tf.config.threading.set_inter_op_parallelism_threads({cores}).",
        "https://www.tensorflow.org/api_docs/python/tf/data/ThreadingOptions",
    )  # fmt: skip
