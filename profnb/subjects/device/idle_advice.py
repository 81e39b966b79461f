"""Rules of advice on idle devices: launches, copies of the input, reads of results, and what else is known.

A device that idles half of the time or more always gets its cause and a remedy, or the sentence that the
cause is unknown.
"""

from collections.abc import Sequence

import numpy as np

from profnb.core.units import bytes_text, count_text, duration_text, percent_text
from profnb.steps.launching import find_launches
from profnb.steps.streams import (
    DIRECTIONS,
    busiest_device,
    directions_of_copies,
    raw_device_lines,
)
from profnb.subjects.advising import (
    FIND_WORKER,
    GUIDE,
    LEAST_INPUT,
    READY,
    Finding,
    guide,
    idle_share_of,
    input_shares,
    op_events,
)
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.device.peaks import is_nvidia
from profnb.subjects.read_advice import fewer_reads
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH, TENSORFLOW, words

__all__ = ["copying_input", "gpu_thread_mode", "idle_device", "launch_bound"]

_MANY_THREADS, _FEW_STEPS = 4, 2
_XLA_LINKS = {
    JAX: "https://docs.jax.dev/en/latest/jit-compilation.html",
    PYTORCH: "https://docs.pytorch.org/docs/stable/torch.compiler.html",
}
# Which causes of idle time a rule speaks of.
_EXPLAINS = {
    "launch-bound": ("kernel launch",),
    "gpu-thread-mode": ("kernel launch",),
    "eager-ops": ("kernel launch", "Python in the step"),
    "input-bound": ("waiting for input",),
    "python-input": ("waiting for input",),
    "prefetch-more": ("waiting for input",),
    "waiting-for-input": ("waiting for input",),
    "copying-input": ("copying input",),
    "synchronising-reads": ("synchronising copy",),
    "python-between-steps": ("Python between steps",),
    "recompiling": ("compiling",),
    "exposed-collectives": ("host collectives",),
}


def launch_bound(study: Study) -> Finding | None:
    """Launching sets the pace of the kernels and the device idles 10 % of the time meanwhile."""
    launches, idle = study.device.launches, idle_share_of(study, "kernel launch")
    if not launches.sets_the_pace or idle < 0.1 or study.steps.is_window:
        return None
    calls = int(launches.calls.sum())
    longer = float(launches.longer_calls.sum() / calls)
    return Finding(
        "launch-bound", "Launch fewer, larger kernels",
        f"{percent_text(longer)} of the {count_text(calls)} calls that launch kernels took longer than what "
        f"they started, and the device idled {percent_text(idle)} of the time while the host launched.",
        idle,
        _fewer_launches(study),
        _XLA_LINKS.get(study.framework, "https://www.tensorflow.org/xla"),
    )  # fmt: skip


def _fewer_launches(study: Study) -> str:
    """What makes fewer and larger kernels; what a larger batch saves per example is no part of the bound."""
    return words(
        study.framework,
        "Fuse small kernels with the framework's compiler. A larger batch takes less time per example "
        "besides.",
        tensorflow="model.compile(..., jit_compile=True) fuses small kernels; steps_per_execution=16 queues "
        "several steps ahead. A larger batch takes less time per example besides.",
        sessions="config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1 fuses "
        "small kernels; tf.while_loop runs several steps in one run. A larger batch takes less time per "
        "example besides.",
        jax="Put the whole step into one jax.jit, and several steps into one with jax.lax.scan. A larger "
        "batch takes less time per example besides.",
        pytorch="torch.compile(model, mode='reduce-overhead') fuses small kernels and replays them as one "
        "CUDA graph; torch.optim.AdamW(..., fused=True) for the optimizer. A larger batch takes less time "
        "per example besides.",
    )


def gpu_thread_mode(study: Study) -> Finding | None:
    """Four threads of TensorFlow's pool or more launch, and the NVIDIA GPU idles a fifth of the time for it.

    What it saves has no bound that the trace tells: all of 14 recorded pairs of runs were faster with threads
    that only launch, by 8 to 34 %.
    """
    idle, plane = idle_share_of(study, "kernel launch"), busiest_device(study.trace)
    if study.framework != TENSORFLOW or plane is None or study.steps.is_window or idle < 0.2:
        return None
    if not is_nvidia(study.trace, plane):
        return None
    threads = _launching_threads(study, plane)
    if threads < _MANY_THREADS:
        return None
    return Finding(
        "gpu-thread-mode", "Let threads of their own launch the kernels",
        f"{count_text(threads)} threads of the pool that also runs ops and input launched the kernels in "
        f"turns, and the device idled {percent_text(idle)} of the time while the host launched.",
        None,
        "os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private' before TensorFlow is imported; "
        "TF_GPU_THREAD_COUNT is how many of these threads each GPU gets (2 unless set; try 1).",
        f"{GUIDE}/gpu_performance_analysis",
        idle,
    )  # fmt: skip


def _launching_threads(study: Study, plane: int) -> int:
    """How many threads launched a fiftieth or more of a device's work; 0 if it has threads of its own."""
    trace = study.trace
    host, device = find_launches(trace)
    lines = trace.lines.of_event
    counts = np.bincount(lines[host[trace.lines.plane[lines[device]] == plane]])
    launching = np.flatnonzero(counts >= max(counts.sum() / 50, 1)) if counts.size else counts
    if any("gpu_private" in trace.lines.names[line] for line in launching.tolist()):
        return 0
    return int(launching.size)


def copying_input(study: Study) -> Finding | None:
    """Data is moved to the device while it computes nothing, for a twentieth of the time or more.

    That is copies on the device, and calls of the host that copy while the device does nothing. Where it and
    waiting for input reach that together, the larger of the two is said.
    """
    share, waiting = input_shares(study)
    if share < LEAST_INPUT and (share + waiting < LEAST_INPUT or share < waiting):
        return None
    copies = study.device.copies
    rows = [row for row in range(len(copies)) if copies.direction[row] == "host to device"]
    moved = sum(int(copies.bytes[row]) for row in rows)
    pageable = sum(int(copies.bytes[row]) for row in rows if copies.source_kind[row] == "pageable")
    moved_text = f" {bytes_text(moved)} in all" if moved else ""
    moved_text += (
        f", {bytes_text(pageable)} of it from pageable memory" if moved and pageable else ""
    )
    if _copies_by_itself(study):
        return Finding(
            "copying-input", "Keep on the device what fits there",
            f"{percent_text(share)} of the time the program's own copies (copy-done) brought data from the "
            "host's memory, and the device computed nothing.",
            share,
            "Leave arrays that fit in the device's memory there (memory_kind='device' in their shardings), "
            "and fetch the next one while this one is computed.",
            "https://docs.jax.dev/en/latest/notebooks/host-offloading.html",
        )  # fmt: skip
    return Finding(
        "copying-input", "Copy to the device while it computes",
        f"{percent_text(share)} of the time the host moved data to the device while that computed nothing"
        f"{':' if moved_text else ''}{moved_text}.",
        share,
        words(
            study.framework,
            "Copy the next batch while this one is computed; send narrower types (uint8) and convert on the "
            "device.",
            tensorflow="dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')) as the last step of "
            "the pipeline; send uint8 (or float16) and tf.cast on the device.",
            jax="jax.device_put the next batch before this step's result is read; send uint8 and convert "
            "inside the jitted function.",
            pytorch=("" if _is_pinned(study) else "DataLoader(..., pin_memory=True) and ")
            + "batch.to(device, non_blocking=True) for the next batch before this one is computed; send "
            "uint8 and convert on the device.",
        ),
        guide(study, "data_performance"),
    )  # fmt: skip


def _is_pinned(study: Study) -> bool:
    """Whether PyTorch copied to the device from pinned memory alone: its copies' names tell."""
    names = [name for name in study.trace.names.texts if name.startswith("Memcpy HtoD (")]
    return bool(names) and all(name.startswith("Memcpy HtoD (Pinned") for name in names)


def _copies_by_itself(study: Study) -> bool:
    """Whether XLA's own instructions are most of the time of copies from the host."""
    trace = study.trace
    copies = trace.lines.events_of(raw_device_lines(trace))
    to_device = directions_of_copies(trace, copies) == DIRECTIONS.index("host to device")
    of_xla = trace.are_named(copies, lambda name: name.lstrip("%").startswith("copy-"))
    spent = trace.events.duration_ps[copies]
    return bool(2 * spent[to_device & of_xla].sum() > spent[to_device].sum())


def idle_device(study: Study, said: Sequence[Finding]) -> Finding | None:
    """A device idles half of the time or more, and no other advice speaks of the largest cause.

    Args:
        study: The analyses.
        said: What the other rules said.
    """
    idle = study.device.idle
    if idle is None:
        return None
    share = float(idle.total_ps.sum() / idle.window_ps)
    if share < 0.5:
        return None
    row = int(idle.total_ps.argmax())
    cause, part = IDLE_CAUSES[row], float(idle.total_ps[row] / idle.window_ps)
    if any(cause in _EXPLAINS.get(advice.rule, ()) for advice in said):
        return None
    title, reason, repair = _remedy(study, cause)
    first = _long_first_launch(study) if cause == "kernel launch" else ""
    if first:
        title, reason = "Record a later run", f"{reason}, most of it one op's: {first}"
        repair = (
            "The first run of an op loads libraries, compiles kernels and tries out algorithms: run the "
            "step a few times before what is recorded. If it takes as long then, look at that op."
        )
    seen = f"the {duration_text(idle.window_ps)} that were recorded; no step divides them"
    whole = seen if study.steps.is_window else "the time"
    return Finding(
        "idle-device", title,
        f"{idle.device} was idle {percent_text(share)} of {whole}. For {percent_text(part)} {reason}.",
        None if study.steps.is_window or cause == "unknown" or first else part,
        repair,
        guide(study, "gpu_performance_analysis"),
        part,
    )  # fmt: skip


def _long_first_launch(study: Study) -> str:
    """The op that takes half of the launching or more, of one step or two: which, and how long it took.

    It has to stand out, ten times as long as the mean of the others. Of more steps it would be each step's.
    """
    idle, counted = study.device.idle, study.summary.counted
    ops = op_events(study, lambda *_: True)
    ops = ops[np.isin(study.groups.step[ops], counted)]
    if idle is None or study.steps.is_window or counted.size > _FEW_STEPS or ops.size < 2:
        return ""
    spent = study.trace.events.duration_ps[ops]
    longest = int(spent.argmax())
    others = float((spent.sum() - spent[longest]) / (ops.size - 1))
    launching = int(idle.total_ps[IDLE_CAUSES.index("kernel launch")])
    if spent[longest] < max(launching / 2, 10 * others):
        return ""
    name = study.trace.names[study.trace.events.name[ops[longest]]]
    return f"{name[:100]} took {duration_text(float(spent[longest]))}"


def _remedy(study: Study, cause: str) -> tuple[str, str, str]:
    """A title, what the host did meanwhile, and what to change, for a cause of idle time."""
    python = words(
        study.framework,
        "Profile the Python code, and hand the device more work at once.",
        tensorflow="p.python (a capture with Python's calls) names the functions; do less of it in the step, "
        "or put it into the tf.function.",
        sessions="p.python (a capture with Python's calls) names the functions; do less of it between the "
        "session runs, and feed through tf.data instead of placeholders.",
        jax="The frames on the timeline name the functions; put the whole step into one jax.jit.",
        pytorch="with_stack=True in torch.profiler.profile records the functions; do less of it in the step, "
        "or in the workers of the DataLoader.",
    )
    return {
        "compiling": ("Compile before the loop", "programs were compiled", "Run a step or two before "
                      "what is timed, and give every batch one shape."),
        "waiting for input": ("Have the next batch ready", "the host waited for data",
                              READY[study.framework]),
        "copying input": ("Copy to the device while it computes", "the host copied data to it",
                          "Copy the next batch while this one is computed; send narrower types."),
        "synchronising copy": ("Read results less often", "the host waited for it or copied results back",
                               fewer_reads(study) if cause == "synchronising copy" else ""),
        "host compute": ("Move work from the CPU to the device", "ops computed on the CPU",
                         "Look at the host's ops of most time: place them on the device, or do them ahead "
                         "of the step, in the input."),
        "kernel launch": ("Launch fewer, larger kernels", "the host prepared and launched its work",
                          _fewer_launches(study)),
        "host collectives": ("Find out who is waited for", "the host waited for other workers or "
                             "replicas, or exchanged with them",
                             f"If other processes train with this one: {FIND_WORKER}"),
        "Python in the step": ("Give the device more to do", "a step ran and at most Python was at "
        "work", python),
        "Python between steps": ("Do less between steps", "at most Python ran between steps", python),
    }.get(cause, (
        "Find out why the device is idle", "the cause is unknown: nothing of the host that could "
        "explain it was recorded",
        "Record the host's side too (its ops, and Python's calls), over several marked steps.",
    ))  # fmt: skip
