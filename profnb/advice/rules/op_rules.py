"""Rules on ops: loops of them, their threads, graphs and summaries of TF1, recurrent layers on a GPU."""

from collections.abc import Callable, Iterator

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit, with_below_of
from profnb.advice.rules.compile_rules import compiled_together
from profnb.capture.environment import CORES, INTRA_OP
from profnb.capture.models.layer_facts import WITHOUT_CUDNN
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import EAGER
from profnb.causes.numbers import LONG_OP_PS, QUARTER, SELDOM
from profnb.causes.pieces import find_step_by_step
from profnb.causes.threads import number_set, threads_at_work
from profnb.core.printable import quoted
from profnb.core.units import PS_PER_NS, count_text, duration_text, percent_text
from profnb.steps.streams import busiest_device
from profnb.subjects.advising import GUIDE, op_events, share_of
from profnb.subjects.covered_time import covered_share, period_ps, share_beyond, spans_of
from profnb.subjects.device.peaks import is_nvidia
from profnb.subjects.feeds.feeding import session_gaps
from profnb.subjects.ops.graph_loops import find_loop
from profnb.subjects.ops.growth import find_growth
from profnb.trace.names import PYTHON_OPS

_TF_API = "https://www.tensorflow.org/api_docs/python/tf/"
_SHOWN, _LONGEST = 3, 100


def growing_graph(model: Model) -> Iterator[Proposal]:
    """A session's graph grows, and is taken in and pruned again in each run; the ops themselves remain."""
    study, tree = model.traced, model.tree
    growth = find_growth(study.recording.graph_versions)
    if growth is None or not study.summary.counted.size:
        return
    steps = model.main_steps
    runs, between = (with_below_of(tree, at) for at in (steps, model.rows(EAGER, parts.GAPS)))
    times = max(int(tree.occurrences[steps].sum()), 1)
    whole, making = (float(tree.self_ps[rows].sum()) for rows in (runs, between))
    ops_ps = covered_share(study, op_events(study, lambda *_: True)) * model.periods_ps
    least, most = (min(ops_ps + times * call_ps, whole) for call_ps in model.costs.call_ps)
    grown, added = map(count_text, growth)
    yield Proposal(
        "growing-graph", "Build the graph before the loop",
        f"The graph grew in {grown} of {count_text(len(study.recording.graph_versions))} session runs, by "
        f"{added} changes a run. The session takes it in and prunes it again: a run takes "
        f"{duration_text(whole / times)}.",
        "Make every op before the loop and feed what changes through placeholders. Then call "
        "graph.finalize(), which makes the line that adds an op raise.",
        f"{_TF_API}Graph#finalize",
        [
            Edit(runs, least, most, "the ops of each session run remain, and a call"),
            Edit(between, making / times, making, "ops are made once"),
        ],
    )  # fmt: skip


def idle_cores(model: Model) -> Iterator[Proposal]:
    """TensorFlow was set to use fewer threads for an op than there are cores.

    Long ops can use more, but for functions of Python that ops call. Two cores of a virtual machine may be
    one that two threads share.
    """
    study = model.traced
    cores, threads = number_set(study, CORES), number_set(study, INTRA_OP)
    if study.has_device or not 0 < threads < cores:
        return
    python = op_events(study, lambda _, op_type: op_type in PYTHON_OPS)
    ops = op_events(study, lambda _, op_type: op_type not in (*PYTHON_OPS, "Dataset"))
    ops = ops[study.trace.events.duration_ps[ops] > LONG_OP_PS]
    busy = share_beyond(study, spans_of(study, ops), spans_of(study, python))
    busy = min(busy, share_of(study, "host compute"))
    remains = threads / cores, min(2 * threads / cores, 1.0)
    because = f"{count_text(cores)} cores instead of {count_text(threads)}"
    yield Proposal(
        "idle-cores", "Use all cores",
        f"Each op may use {count_text(threads)} of {count_text(cores)} cores, and ops that compute for long "
        f"take {percent_text(busy)} of the time.",
        "Leave tf.config.threading.set_intra_op_parallelism_threads alone (0 means all cores), and unset "
        "TF_NUM_INTRAOP_THREADS; it takes a fresh process.",
        f"{_TF_API}config/threading", [model.some_of(("host compute",), busy, remains, because)],
    )  # fmt: skip


def oversubscribed(model: Model) -> Iterator[Proposal]:
    """More ops run at once than there are cores, and take turns; the work itself remains."""
    study = model.traced
    if study.has_device or study.steps.is_window or not study.summary.counted.size:
        return
    cores, threads = number_set(study, CORES), threads_at_work(study)
    if not 0 < cores < threads:
        return
    share = share_of(study, "host compute") + share_of(study, "input")
    because = f"{threads:.1f} ops at once took turns on {count_text(cores)} cores"
    kinds = ("host compute", "input")
    yield Proposal(
        "oversubscribed", "Run fewer threads",
        f"{threads:.1f} ops were at work at once on average, on {count_text(cores)} cores. They take turns, "
        "and each switch costs.",
        f"num_parallel_calls=tf.data.AUTOTUNE instead of a large number, or options.threading."
        f"private_threadpool_size = {cores}; tf.config.threading.set_inter_op_parallelism_threads({cores}).",
        f"{_TF_API}data/ThreadingOptions",
        [model.some_of(kinds, share, (cores / threads, 1.0), because)],
    )  # fmt: skip


_SUMMARY_OPS = (
    "ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary", "TensorSummary",
    "TensorSummaryV2", "MergeSummary",
)  # fmt: skip
_WRITES = ("add_summary", "SummarySaverHook.")


def summaries(model: Model) -> Iterator[Proposal]:
    """Session runs make summaries: ops do, and Python between the runs writes them."""
    study = model.traced
    gaps, counted = session_gaps(study), study.summary.counted
    ops = op_events(study, lambda _, op_type: op_type in _SUMMARY_OPS)
    made = np.intersect1d(study.groups.step[ops], counted).size
    if gaps is None or not made:
        return
    making, seldom = covered_share(study, ops), (0.01, 1 / SELDOM)
    written = sum(place.wall_ns for place in gaps.places if any(w in place.text for w in _WRITES))
    each_ps = written * PS_PER_NS / gaps.gaps
    writing = each_ps * counted.size / period_ps(study)
    writes = f", and writing them {duration_text(each_ps)} a run" if each_ps else ""
    because = "of 100 steps one makes them, or 20 do"
    yield Proposal(
        "summaries", "Write summaries less often",
        f"{count_text(made)} of {count_text(counted.size)} session runs make summaries: their ops take "
        f"{percent_text(making)} of the time{writes}.",
        "Make them every 100 steps: save_summaries_steps=100 of MonitoredTrainingSession, or fetch the "
        "merged summary only if step % 100 == 0. Histograms and images cost most.",
        f"{_TF_API}compat/v1/train/SummarySaverHook",
        [
            model.some_of(("host compute",), making, seldom, because),
            model.some_of((parts.GAPS,), writing, seldom, because),
        ],
    )  # fmt: skip


# What to write instead, by the argument that forbids cuDNN.
_ALLOWED = {
    "activation": "activation='tanh'",
    "recurrent_activation": "recurrent_activation='sigmoid'",
    "recurrent_dropout": "recurrent_dropout=0 (dropout=... is allowed)",
    "unroll": "unroll=False",
    "use_bias": "use_bias=True",
    "reset_after": "reset_after=True",
    "use_cudnn": "use_cudnn='auto'",
}


def slow_rnn(model: Model) -> Iterator[Proposal]:
    """On an NVIDIA GPU, LSTM and GRU layers whose arguments forbid cuDNN run each time step by itself."""
    study = model.traced
    plane, (layers, pieces) = busiest_device(study.trace), find_step_by_step(study)
    if plane is None or study.steps.is_window or not layers or not is_nvidia(study.trace, plane):
        return
    edit, share = compiled_together(model, pieces)
    reasons = list(dict.fromkeys(str(layer.numbers[WITHOUT_CUDNN]) for layer in layers))
    listed = ", ".join(quoted(layer.path, _LONGEST) for layer in layers[:_SHOWN])
    listed += ", ..." if len(layers) > _SHOWN else ""
    yield Proposal(
        "slow-rnn", "Let cuDNN run the recurrent layers",
        f"Keras runs {listed} time step by time step: {count_text(round(pieces.each))} ops and kernels a "
        f"step, {percent_text(share)} of the time. cuDNN runs a whole sequence as one, but not with "
        f"{'; '.join(reasons[:_SHOWN])}.",
        _instead(reasons), "https://keras.io/api/layers/recurrent_layers/lstm/", [edit],
    )  # fmt: skip


def _instead(reasons: list[str]) -> str:
    """What to write so that cuDNN may run the layers."""
    given = dict.fromkeys(part for reason in reasons for part in reason.split(", "))
    texts = [f"keras.layers.{c[4:-5]}(...) instead of {c}" for c in given if c.startswith("RNN(")]
    names = {part.partition("=")[0] for part in given}
    texts.append(", ".join(text for name, text in _ALLOWED.items() if name in names))
    instead = "; ".join(filter(None, texts))
    return f"{instead}. That is another model: train it anew, and see that it learns as well."


def loops_of_small_ops(model: Model) -> Iterator[Proposal]:
    """A loop inside of a compiled function starts the same small ops again in each of its turns.

    Not the loop of a recurrent layer, each of whose turns needs the one before.
    """
    study, tree = model.traced, model.tree
    loop = find_loop(study, LONG_OP_PS)
    steps = [row for row in model.main_steps if tree.kind[row] != parts.VALIDATION]
    if loop is None or loop.turns < 2 or loop.is_recurrent or not steps:
        return
    if _RECURRENT_LAYERS & set(study.layers.table.layer_type):
        return
    rows = with_below_of(tree, steps)
    whole = float(tree.self_ps[rows].sum())
    spent = duration_text(loop.share * whole)
    if loop.long_share > loop.share / 2:  # it is computing that takes the time
        return
    # At once: its long ops as now, of the rest one turn; perhaps more, as the ops then are larger. Of what
    # lies around it other ops and a call remain, or all.
    at_once = loop.long_share + max(loop.share - loop.long_share, 0.0) / loop.turns
    calls = sum(map(model.times_of, steps)) * model.costs.call_ps[0] / max(whole, 1)
    least = at_once + min(covered_share(study, loop.others) + calls, 1 - loop.share)
    most = at_once + 1 - loop.share
    most = min(most + (1 - most) * QUARTER, 1.0)
    edit = Edit(rows, whole * least, whole * most, f"the loop took {spent}")
    name = next((tree.name[row] for row in steps if tree.name[row]), "")
    where = f" in {quoted(name, _LONGEST)}" if name else ""
    yield Proposal(
        "loop-of-ops", f"Do all turns of the loop{where} at once",
        f"A loop{where} (for, tf.while_loop or tf.map_fn) took {count_text(loop.turns)} turns a step, and "
        f"{spent} in all, most of it starting small ops.",
        "Where a turn does not need the one before: one op over all of them, with the loop's axis as one "
        "more axis of the tensors (tf.vectorized_map does it for many functions). Else take several elements "
        "a turn, or jit_compile=True.",
        f"{GUIDE}/function#autograph_transformations", [edit], model.line_above(steps[0]),
    )  # fmt: skip


_RECURRENT_LAYERS = {
    "LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional",
}  # fmt: skip


OP_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (
    loops_of_small_ops, growing_graph, idle_cores, oversubscribed, summaries, slow_rnn,
)  # fmt: skip
