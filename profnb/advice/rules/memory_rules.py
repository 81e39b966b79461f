"""The rule for a cell that memory ended: what each remedy would free.

It saves no time; without it there is none to save. What grows with the batch is activations, workspace and
what was asked for; recomputation keeps none of these but what one part of the model takes at a time.
"""

from collections.abc import Iterator, Sequence

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal, Proposals
from profnb.capture.machine.memory_limits import batch_that_fits
from profnb.capture.memory.memory_records import (
    CPU,
    DATA,
    GRADIENTS,
    OPTIMIZER_STATE,
    WEIGHTS,
    MemoryShortage,
)
from profnb.causes.growing import find_holder
from profnb.core.printable import quoted
from profnb.core.units import bytes_text, count_text, counted_text
from profnb.steps.program_kind import JAX, PYTORCH, TENSORFLOW, UNKNOWN
from profnb.steps.summary import usual_batch_size
from profnb.subjects.device.devices import is_mixed_precision
from profnb.subjects.layers.memory_kinds import GROWING, KindRow, rows_of, sums_by_kind

_TIMES = 4  # smaller batches whose gradients are added up
_TENTH = 0.1
_MOST_HOLDERS = 2
_FITTING = {
    UNKNOWN: "Use a smaller batch first. Then recompute activations (checkpointing), or accumulate "
    "gradients.",
    TENSORFLOW: "Give fit a smaller batch_size first. Then keras.optimizers.Adam("
    f"gradient_accumulation_steps={_TIMES}), tf.recompute_grad(block), or "
    "keras.mixed_precision.set_global_policy('mixed_float16').",
    PYTORCH: "Use a smaller batch first. Then call optimizer.step() after every "
    f"{_TIMES}th loss.backward(), torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False), or "
    "torch.autocast('cuda', dtype=torch.bfloat16).",
    JAX: "Use a smaller batch first. Then "
    f"optax.MultiSteps(optimizer, every_k_schedule={_TIMES}), jax.checkpoint(block), or jnp.bfloat16.",
}
_FITTING_GUIDES = {
    UNKNOWN: "https://docs.pytorch.org/docs/stable/checkpoint.html",
    TENSORFLOW: "https://www.tensorflow.org/api_docs/python/tf/recompute_grad",
    JAX: "https://docs.jax.dev/en/latest/gradient-checkpointing.html",
}
_LESS_DATA = "Keep fewer arrays, or narrower ones: dtype='float32' takes half of NumPy's float64."


def out_of_memory(model: Model) -> Proposals:
    """The cell ended because memory ran out."""
    shortage = model.shortage
    if shortage is None:
        return
    rows = rows_of(shortage, model.memory_kinds)
    sums = sums_by_kind(rows)
    trains = model.has_steps or WEIGHTS in sums
    said = [*_kept(model, shortage, rows)]
    said += _smaller_steps(model, shortage, sums) if trains else ()
    yield Proposal(
        "out-of-memory", "Make it fit into memory",
        " ".join(said) or "What filled the memory is not known here.",
        model.program.text_of(_FITTING) if trains else _LESS_DATA, model.program.text_of(_FITTING_GUIDES), (),
        shortage.where, is_needed=True,
    )  # fmt: skip


def _kept(model: Model, shortage: MemoryShortage, rows: Sequence[KindRow]) -> Iterator[str]:
    """Name the variable that keeps what steps made, then those that hold most."""
    leak = ""
    if model.study is not None and rows:
        device = shortage.device or CPU
        holder, line = find_holder(model.study, device, sum(row.bytes for row in rows))
        if holder is not None:
            leak, at = holder.holder, f" ({line})" if line else ""
            count = counted_text(holder.blocks, "array")
            yield f"{quoted(leak)}{at} keeps {count}: append float(x) instead of the tensor."
    large = [row for row in rows if row.kind == DATA and row.fraction >= _TENTH]
    for row in [row for row in large if row.holder not in ("", leak)][:_MOST_HOLDERS]:
        yield f"Without {quoted(row.holder)}, {bytes_text(row.bytes)} would be free."


def _smaller_steps(model: Model, shortage: MemoryShortage, sums: dict[str, int]) -> Iterator[str]:
    """Say what batch fits, and what the remedies free of what grows with the batch."""
    in_use, asked = sum(sums.values()), max(shortage.asked_bytes, 0)
    grows = sum(sums.get(kind, 0) for kind in GROWING)
    staying = sum(sums.get(kind, 0) for kind in (WEIGHTS, GRADIENTS, OPTIMIZER_STATE))
    study = model.study
    batch = None if study is None else study.summary.batch_size or usual_batch_size(study.trace)
    if 2 * staying > max(shortage.limit_bytes, in_use) > 0:
        yield (
            f"Weights, gradients and optimizer state alone take {bytes_text(staying)}, whatever the batch."
        )
    if batch and grows + asked and shortage.limit_bytes > 0 and in_use:
        fits = batch_that_fits(shortage.limit_bytes, in_use - grows, (grows + asked) / batch)
        if 0 < fits < batch:
            yield f"A batch of {count_text(fits)} fits at most (now {count_text(batch)})."
    if not grows:
        return
    frees = [
        f"Freed: by recomputing activations up to {bytes_text(grows)}",
        f"by gradient accumulation over {_TIMES} batches {bytes_text(grows * (1 - 1 / _TIMES))}",
    ]
    is_narrow = study is not None and is_mixed_precision(study)
    if shortage.device != CPU and not is_narrow:  # a CPU computes 16 bits in software
        frees.append(f"by 16 bits {bytes_text(grows / 2)}")
    yield f"{', '.join(frees)}."


MEMORY_RULES = (out_of_memory,)
