"""Rules on ops: small ones that a compiler puts together, loops, threads, and what is compiled again.

Pieces that a compiler puts together: what they compute remains, and one start. A program that is compiled
again: each time but the first costs a usual step instead.
"""

from dataclasses import replace

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal, Proposals, of_steps, of_trace, propose
from profnb.advice.replay import Edit
from profnb.capture.environment import CORES, INTRA_OP
from profnb.capture.models.layer_facts import WITHOUT_CUDNN
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import COMPILATION, EAGER, TRACING
from profnb.causes.compiled_again import SAME_SHAPES, find_compiled_again
from profnb.causes.numbers import LEFT, QUARTER, SELDOM
from profnb.causes.pieces import (
    ELEMENTWISE,
    FEW_ROWS,
    Pieces,
    allowed_instead,
    find_cut_regions,
    find_fusible,
    find_large_tables,
    find_nodes_again,
    find_programs,
    find_step_by_step,
    find_torch_ops,
    find_uncompilable,
    fused_by_xla,
)
from profnb.causes.python_work import share_around_ops
from profnb.causes.repeats import find_summaries
from profnb.causes.starving import (
    has_tiny_batches,
    long_ops_share,
    number_set,
    threads_at_work,
)
from profnb.causes.unrolled import find_unrolled, find_unrolled_program
from profnb.core.printable import quoted
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.program_kind import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN
from profnb.subjects.advising import (
    GUIDE,
    JIT_GUIDE,
    covered_share,
    period_ps,
    share_of,
)
from profnb.subjects.ops.op_execution import LONG_OP_PS, find_growth, find_loop
from profnb.subjects.ops.op_table import is_of_optimizer
from profnb.subjects.study import Study
from profnb.trace.names import is_host_collective, is_packing, packing_scopes

_MOST_NAMES = 4
_JIT_ON = "config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1"
_XLA_DOCS = "https://www.tensorflow.org/xla"
_TORCH_DOCS = "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"


def _compiled_together(model: Model, pieces: Pieces) -> tuple[Edit, float]:
    """Pieces that are one: what they compute remains, where it is long at least, and a call for each start.

    Returns:
        The edit; the share of the time from step to step that they take.
    """
    study = model.traced
    share, *computing = pieces.shares(study, LONG_OP_PS)
    step_ps = period_ps(study) / study.summary.counted.size
    calls = [pieces.starts * call_ps / step_ps for call_ps in model.costs.call_ps]
    remains = [min(sum(of) / (share or 1), 1.0) for of in zip(computing, calls, strict=True)]
    return model.some_of((), share, remains), share


@of_trace
def started_in_pieces(model: Model, study: Study) -> Proposals:
    """Python starts many small pieces one by one, where a compiler would make few of them."""
    for find, in_words in _PIECES:
        if pieces := find(study):
            edit, share = _compiled_together(model, pieces)
            name, part, where = model.own_within(model.main_steps) or ("", 0.0, "")
            named = f" {name} takes {percent_text(part)} of the steps." if name else ""
            for one in in_words(study, pieces, percent_text(share), edit):
                edits = [*one.edits, *_first_compilations(model, pieces)]
                yield replace(one, evidence=one.evidence + named, where=where, edits=edits)


def _first_compilations(model: Model, pieces: Pieces) -> list[Edit]:
    """Programs that are started one by one were compiled one by one, as none is that does all."""
    modules, names = model.traced.xla.modules, {name for name, _ in pieces.names}
    compiled, rows = int(modules.compile_ps.sum()), model.tree.rows(TRACING, COMPILATION)
    if not (model.program.is_jax and compiled and rows):
        return []
    are_pieces = [name.removeprefix("jit_") in names for name in modules.module]
    share = float(modules.compile_ps[are_pieces].sum() / compiled)
    spoken = float(model.tree.self_ps[rows].sum()) * share
    return [Edit(np.array(rows, np.int64), 0.0, LEFT * spoken, share)]


def _programs(study: Study, pieces: Pieces, share: str, edit: Edit) -> Proposals:
    """JAX. Keras compiles its step unless it is told otherwise; then all programs are single ops."""
    is_keras = study.program.is_loop_of_keras
    if pieces.beside and is_keras:
        return
    listed = ", ".join(f"{quoted(name, 40)} {count}" for name, count in pieces.names[:_MOST_NAMES])
    listed += ", ..." if len(pieces.names) > _MOST_NAMES else ""
    beside = f"Besides {quoted(pieces.beside)}, " if pieces.beside else ""
    yield Proposal(
        "work-outside-jit", "Put the whole step into one jax.jit",
        f"{beside}Python starts {count_text(round(pieces.each))} programs a step, one by one (in all "
        f"{listed}). Starting and running the programs takes {share} of the time.",
        "model.compile(..., run_eagerly=False, jit_compile='auto') lets Keras compile its step."
        if is_keras
        else "Put @jax.jit over one function with the whole step, these operations included. Return the "
        "values for the loop.",
        JIT_GUIDE, [edit],
    )  # fmt: skip


@of_steps
def steps_in_one_program(model: Model, study: Study) -> Proposals:
    """Starting short programs of JAX, and reading what each gives, takes longer than they do."""
    if not study.program.is_jax or study.program.is_loop_of_keras:
        return
    around, whole = share_around_ops(study), share_of(study, "host compute")
    count, step_ps = study.summary.counted.size, study.summary.mean_period_ps
    if 2 * around > 1 and (whole - around) * step_ps <= LONG_OP_PS:
        remains = 0.0, (whole - around + QUARTER * around) / whole
        yield Proposal(
            "work-outside-jit", "Run many steps in one program",
            f"JAX ran {count_text(count)} steps of {duration_text(step_ps)} each. Starting programs, and "
            f"reading what they give, took {percent_text(around)} of the time.",
            "Where a step needs what the one before gave, jax.lax.scan inside one jax.jit runs many in one "
            "call, and returns a value of each. Examples that do not need each other: jax.vmap.",
            f"{_JAX_DOCS}/automatic-vectorization.html",
            [model.some_of(("host compute",), whole, remains)],
        )  # fmt: skip


def _torch_ops(study: Study, pieces: Pieces, share: str, edit: Edit) -> Proposals:
    if has_tiny_batches(study):
        return  # ``small_batches`` says what all but long ops take
    mean_ps = float(study.trace.events.duration_ps[pieces.runs].mean())
    compiler = "model.compile(..., jit_compile=True) lets torch.compile make fewer ops."
    if not study.program.is_loop_of_keras:
        compiler = (
            "torch.compile(model) makes fewer and larger ops, which saves less; "
            "torch.optim.AdamW(..., foreach=True) or fused=True fewer optimizer ops."
        )
    yield Proposal(
        "small-ops", "Give each op more to do",
        f"Python starts {count_text(round(pieces.each))} short ops a step one by one, each of "
        f"{duration_text(mean_ps)} on average. The ops and the pauses between take {share} of the time.",
        "A larger batch makes fewer steps of as many ops. A loop over the rows of a batch (for row in x) "
        f"starts each op once a row: compute all rows at once. {compiler}",
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html", [edit],
    )  # fmt: skip


def _cut_regions(_: Study, pieces: Pieces, share: str, edit: Edit) -> Proposals:
    yield Proposal(
        "graph-breaks", "Compile the step in one piece",
        f"{count_text(round(pieces.each))} graph breaks a step cut the torch.compile program into pieces. "
        f"The pieces and the Python between take {share} of the time.",
        "TORCH_LOGS=graph_breaks prints where and why; torch.compile(..., fullgraph=True) raises at the "
        "break. Common reasons: .item(), print and an if on a tensor's value in the compiled function.",
        _TORCH_DOCS, [edit],
    )  # fmt: skip


def _nodes_again(_: Study, pieces: Pieces, share: str, edit: Edit) -> Proposals:
    yield Proposal(
        "backward-again", "Run backward once over the same ops",
        f"{count_text(round(pieces.each))} gradient ops a step had run before, for another backward(). They "
        f"take {share} of the time.",
        "Where losses may be added, add them and call loss.backward() once, without retain_graph=True. State "
        "that one step hands to the next: h = h.detach().",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html", [edit],
    )  # fmt: skip


_PIECES = (
    (find_programs, _programs), (find_torch_ops, _torch_ops), (find_nodes_again, _nodes_again),
    (find_cut_regions, _cut_regions),
)  # fmt: skip


@of_trace
def small_ops_without_xla(model: Model, study: Study) -> Proposals:
    """Element-wise ops of TensorFlow on a CPU are not fused; on devices launches are what matters."""
    if study.program.has_device or len(study.xla.hlo) or find_uncompilable(study):
        return
    ops = find_fusible(study, lambda _, op_type: op_type in ELEMENTWISE)
    if ops is None or not (fused := fused_by_xla(study, ops)):
        return
    share, whole, *remains = fused
    few = "fuses the ops into few passes."
    yield Proposal(
        "small-ops-without-xla", "Let XLA fuse the small ops",
        f"{count_text(round(ops.each))} element-wise ops a step take {percent_text(share)} of the time. "
        "Each op reads and writes memory.",
        study.program.text_of({
            UNKNOWN: f"model.compile(..., jit_compile=True) or @tf.function(jit_compile=True) {few}",
            SESSIONS: f"{_JIT_ON} {few}",
        }),
        _XLA_DOCS, [model.some_of(("host compute",), whole, remains)],
    )  # fmt: skip


@of_trace
def large_optimizer(model: Model, study: Study) -> Proposals:
    """The optimizer's ops are not fused.

    An exchange of gradients, and what packs them for it, has the optimizer's name and is not its own.
    """
    if study.program.is_jax or len(study.xla.hlo):
        return
    share, tables = find_large_tables(study)
    if share:  # of fewer rows, or of those that were read, there are no ops to fuse
        _, layer, rows, read = tables[0]
        name, least = quoted(layer), max(read / rows for *_, rows, read in tables)
        reading = f" and looks up {count_text(read)} at most" * bool(read)
        yield Proposal(
            "large-optimizer", f"Update fewer rows of {name}",
            f"The optimizer goes through all {count_text(rows)} rows of {name} in each step{reading}. "
            f"Updates of embeddings take {percent_text(share)} of the time.",
            f"Keep fewer rows: TextVectorization(max_tokens={FEW_ROWS}) gives rare words one row, "
            f"keras.layers.Hashing(num_bins={FEW_ROWS}) lets several share one. Or keras.optimizers.SGD "
            "without momentum: it updates only rows that were read, but learns differently.",
            "https://keras.io/api/layers/core_layers/embedding/",
            [model.some_of((study.program.computing,), share, (least, QUARTER))],
        )  # fmt: skip
        return
    packing = packing_scopes(study.ops.table.op_name)

    def is_its(name: str, kind: str) -> bool:
        is_exchange = is_host_collective(f"{name}:{kind}") or is_packing(name, kind, packing)
        return is_of_optimizer(name) and not is_exchange

    ops = find_fusible(study, is_its)
    if ops is None or not (fused := fused_by_xla(study, ops)):
        return
    share, whole, *remains = fused
    larger, obstacle = "A larger batch runs the optimizer less often.", find_uncompilable(study)
    code = f"model.compile(..., jit_compile=True) fuses the optimizer's ops. {larger}"
    if obstacle:  # of a batch two to five times as large it runs as much less often
        whole, remains = share, [1 / SELDOM, 1 / 2]
        code = f"{larger} jit_compile=True would fuse the ops, but XLA cannot compile this step: the step "
        code += f"runs {quoted(obstacle)}."
    side = "host compute" if obstacle else study.program.computing
    mean_ps = float(study.trace.events.duration_ps[ops.runs].mean())
    yield Proposal(
        "large-optimizer", "Make the optimizer cheaper",
        f"The optimizer's ops take {percent_text(share)} of the time: {count_text(round(ops.each))} a "
        f"step, of {duration_text(mean_ps)} on average.",
        study.program.text_of({
            UNKNOWN: f"The framework's compiler fuses the ops. {larger}",
            TENSORFLOW: code,
            SESSIONS: f"{_JIT_ON} fuses the ops. {larger}",
        }),
        _XLA_DOCS, [model.some_of((side,), whole, remains)],
    )  # fmt: skip


_MADE_ONCE = (
    "Make the compiled function once, outside of the loop. Pass changing values as arguments."
)
_BY_DROPPING = "Give every batch one shape: {}. Pad sequences to a few lengths."
_ONE_SHAPE = {
    UNKNOWN: _BY_DROPPING.format("drop the last, smaller batch"),
    **dict.fromkeys((TENSORFLOW, SESSIONS), _BY_DROPPING.format(".batch(n, drop_remainder=True)")),
    PYTORCH: "TORCH_LOGS=recompiles prints what changed. Shapes: torch.compile(..., dynamic=True), or "
    "DataLoader(..., drop_last=True). Python numbers: pass them as tensors.",
}
_COMPILER_DOCS = {UNKNOWN: _XLA_DOCS, JAX: JIT_GUIDE, PYTORCH: _TORCH_DOCS}


@of_trace
def recompiling(model: Model, study: Study) -> Proposals:
    """XLA or ``torch.compile`` compiled the same program three times or more."""
    if again := find_compiled_again(study):
        yield propose(
            study, "recompiling",
            ("Compile once", _MADE_ONCE if again.why == SAME_SHAPES else _ONE_SHAPE, _COMPILER_DOCS),
            f"{again.what}: {again.why}. All compilations but the first took "
            f"{duration_text(again.spent_ps)}.", _compiled_once(model, again.times, again.spent_ps),
        )  # fmt: skip


def _compiled_once(model: Model, times: int, again_ps: float) -> Edit:
    """Each time costs a usual step instead; at least what all but the first took is saved."""
    tree, summary = model.tree, model.traced.summary
    usual_ps = summary.mean_period_ps
    if summary.all_warm_up:
        usual_ps = float(model.costs.call_ps[0])
    first, compiling = tree.rows(parts.FIRST), tree.rows(TRACING, COMPILATION)
    if (count := int(tree.occurrences[first].sum())) > 1:
        rows, times = tree.with_below(first), count
    elif compiling:
        rows, usual_ps = np.array(compiling, np.int64), 0.0
    else:
        rows = tree.with_below(model.main_steps)
    whole = float(tree.self_ps[rows].sum())
    each = whole / times
    least = times * min(usual_ps, each) if usual_ps else each
    return Edit(rows, least, max(whole - again_ps, least))


_TF_API = "https://www.tensorflow.org/api_docs/python/tf/"


@of_trace
def growing_graph(model: Model, study: Study) -> Proposals:
    """A session's graph grows, and is taken in and pruned again in each run; the ops themselves remain."""
    tree = model.tree
    growth = find_growth(study.recording.graph_versions)
    if growth is None or not study.summary.counted.size:
        return
    steps = model.main_steps
    runs, between = (tree.with_below(at) for at in (steps, tree.rows(EAGER, parts.GAPS)))
    times = max(int(tree.occurrences[steps].sum()), 1)
    whole, making = (float(tree.self_ps[rows].sum()) for rows in (runs, between))
    ops_ps = covered_share(study, study.ops.innermost) * model.periods_ps
    least, most = (min(ops_ps + times * call_ps, whole) for call_ps in model.costs.call_ps)
    grown, added = map(count_text, growth)
    yield Proposal(
        "growing-graph", "Build the graph before the loop",
        f"The graph grew in {grown} of {count_text(len(study.recording.graph_versions))} session runs, by "
        f"{added} changes a run. Each time the session reads and prunes the graph again: a run takes "
        f"{duration_text(whole / times)}.",
        "Make every op before the loop and feed changing values. graph.finalize() raises where an op is "
        "added.",
        f"{_TF_API}Graph#finalize",
        [Edit(runs, least, most), Edit(between, making / times, making)],
    )  # fmt: skip


@of_trace
def idle_cores(model: Model, study: Study) -> Proposals:
    """TensorFlow was set to use fewer threads for an op than there are cores.

    Long ops can use more, but for functions of Python that ops call. Two cores of a virtual machine may be
    one that two threads share.
    """
    cores, threads = number_set(study, CORES), number_set(study, INTRA_OP)
    if study.program.has_device or not 0 < threads < cores:
        return
    busy = long_ops_share(study)
    remains = threads / cores, min(2 * threads / cores, 1.0)
    yield Proposal(
        "idle-cores", "Use all cores",
        f"Each op may use {count_text(threads)} of {count_text(cores)} cores. Long ops take "
        f"{percent_text(busy)} of the time.",
        "Run in a fresh process without set_intra_op_parallelism_threads and TF_NUM_INTRAOP_THREADS.",
        f"{_TF_API}config/threading", [model.some_of(("host compute",), busy, remains)],
    )  # fmt: skip


@of_trace
def oversubscribed(model: Model, study: Study) -> Proposals:
    """More ops run at once than there are cores, and take turns; the work itself remains."""
    if study.program.has_device or not study.has_steps:
        return
    cores, threads = number_set(study, CORES), threads_at_work(study)
    if not 0 < cores < threads:
        return
    share = share_of(study, "host compute") + share_of(study, "input")
    kinds = ("host compute", "input")
    yield Proposal(
        "oversubscribed", "Run fewer threads",
        f"On average {threads:.1f} ops ran at once on {count_text(cores)} cores. The ops take turns, and "
        "each switch costs.",
        f"Set num_parallel_calls=tf.data.AUTOTUNE. Else limit threads: options.threading."
        f"private_threadpool_size = {cores}, tf.config.threading.set_inter_op_parallelism_threads({cores}).",
        f"{_TF_API}data/ThreadingOptions", [model.some_of(kinds, share, (cores / threads, 1.0))],
    )  # fmt: skip


@of_trace
def summaries(model: Model, study: Study) -> Proposals:
    """Session runs make summaries: ops do, and Python between the runs writes them."""
    made, making, writing, each_ps = find_summaries(study)
    writes = f", writing {duration_text(each_ps)} a run" if each_ps else ""
    if not made:
        return
    yield Proposal(
        "summaries", "Write summaries less often",
        f"{count_text(made)} of {count_text(study.summary.counted.size)} session runs make summaries. "
        f"Summary ops take {percent_text(making)} of the time{writes}.",
        "Make summaries every 100 steps: save_summaries_steps=100 of MonitoredTrainingSession, or fetch "
        "the merged summary only if step % 100 == 0. Histograms and images cost most.",
        f"{_TF_API}compat/v1/train/SummarySaverHook",
        [model.some_of((kind,), share, (0.01, 1 / SELDOM))
         for kind, share in (("host compute", making), (parts.GAPS, writing))],
    )  # fmt: skip


@of_trace
def slow_rnn(model: Model, study: Study) -> Proposals:
    """On an NVIDIA GPU, LSTM and GRU layers whose arguments forbid cuDNN run each time step by itself."""
    layers, pieces = find_step_by_step(study)
    if not study.program.is_nvidia or study.steps.is_window or not layers:
        return
    edit, share = _compiled_together(model, pieces)
    reasons = list(dict.fromkeys(str(layer.numbers[WITHOUT_CUDNN]) for layer in layers))
    listed = ", ".join(quoted(layer.path) for layer in layers[:_MOST_NAMES])
    listed += ", ..." if len(layers) > _MOST_NAMES else ""
    yield Proposal(
        "slow-rnn", "Let cuDNN run the recurrent layers",
        f"Keras runs {listed} time step by time step: {count_text(round(pieces.each))} ops and kernels a "
        f"step, {percent_text(share)} of the time. cuDNN runs a whole sequence as one op, but not with "
        f"{'; '.join(reasons[:_MOST_NAMES])}.",
        allowed_instead(reasons), "https://keras.io/api/layers/recurrent_layers/lstm/", [edit],
    )  # fmt: skip


@of_trace
def loops_of_small_ops(model: Model, study: Study) -> Proposals:
    """A loop inside of a compiled function starts the same small ops again in each of its turns.

    Not the loop of a recurrent layer, each of whose turns needs the one before. One that was written out has
    been traced turn by turn as well.
    """
    tree = model.tree
    steps = [row for row in model.main_steps if tree.kind[row] != parts.VALIDATION]
    if not steps or _RECURRENT_LAYERS & set(study.layers.table.layer_type):
        return
    loop = find_loop(study)
    if loop is None or loop.turns < 2 or loop.is_recurrent or loop.long_share > loop.share / 2:
        loop = None if study.program.has_device else find_unrolled(study)
    if loop is None:
        return
    rows = tree.with_below(steps)
    whole = float(tree.self_ps[rows].sum())
    # At once: its long ops as now, of the rest one turn; perhaps more, as the ops then are larger. Of what
    # lies around it all remains; or less by what feeds the loop, a sixth to a fifth of its time as measured.
    at_once = loop.long_share + max(loop.share - loop.long_share, 0.0) / loop.turns
    least = at_once + max(1 - loop.share * (1 + QUARTER), 0.0)
    most = at_once + 1 - loop.share
    most = min(most + (1 - most) * QUARTER, 1.0)
    if loop.traced:  # counted by its ops, which are shorter than the others are
        least, most = (1 - loop.share * (1 - left) for left in (1 / loop.turns, LEFT))
    edits = [Edit(rows, whole * least, whole * most)]
    name = next((tree.name[row] for row in steps if tree.name[row]), "")
    where = f" in {quoted(name)}" if name else ""
    turns, took = count_text(loop.turns), duration_text(loop.share * whole)
    evidence = f"A loop{where} (for, tf.while_loop or tf.map_fn) ran {turns} iterations a step, "
    evidence += f"{took} in all, mostly starting small ops."
    code = "Or take several elements an iteration, or jit_compile=True."
    if loop.traced:
        tracing = tree.with_below(tree.rows(parts.FIRST))
        traced_ps = float(tree.self_ps[tracing].sum()) * loop.traced
        edits.append(Edit(tracing, traced_ps / loop.turns, traced_ps * QUARTER, loop.traced))
        evidence = f"Tracing wrote all {turns} iterations of a Python loop{where} into the graph: "
        evidence += f"{percent_text(loop.traced)} of its ops. Running them took {took}"
        first = f", their share of the steps that traced {duration_text(traced_ps)}"
        evidence += f"{first if traced_ps else ''}."
        code = "A loop over tf.range is traced once. One metric can count for all classes."
    yield Proposal(
        "loop-of-ops", f"Run the loop{where} as one op", evidence,
        "If no iteration needs an earlier result, run one op over all: make the loop one more axis of the "
        f"tensors (often tf.vectorized_map is enough). {code}",
        f"{GUIDE}/function#autograph_transformations", edits, loop.line or tree.line_above(steps[0]),
    )  # fmt: skip


@of_trace
def loops_compiled(model: Model, study: Study) -> Proposals:
    """XLA compiles each iteration of a loop that JAX's tracing wrote out."""
    tree = model.tree
    nodes = tree.rows(TRACING, COMPILATION)
    share, line = find_unrolled_program(study) if nodes else (0.0, "")
    rows = tree.with_below(nodes)
    took_ps = float(tree.self_ps[rows].sum())
    if share:
        yield Proposal(
            "loop-of-ops", "Compile the loop once: jax.lax.scan",
            f"Tracing and compiling took {duration_text(took_ps)}. {percent_text(share)} of the program's "
            "operations come from the same few lines again and again: a Python loop, written out.",
            "jax.lax.scan(body, start, xs) traces and compiles one iteration. jax.lax.fori_loop(0, n, body, "
            "start) does so without xs. Layers of one shape: scan over their stacked parameters.",
            f"{_JAX_DOCS}/_autosummary/jax.lax.scan.html",
            [Edit(rows, 0.0, LEFT * share * took_ps, share)], line,
        )  # fmt: skip


_JAX_DOCS = "https://docs.jax.dev/en/latest"
_RECURRENT_LAYERS = {
    "LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional",
}  # fmt: skip


OP_RULES = (
    started_in_pieces, steps_in_one_program, small_ops_without_xla, large_optimizer, recompiling,
    loops_of_small_ops, loops_compiled, growing_graph, idle_cores, oversubscribed, summaries, slow_rnn,
)  # fmt: skip
