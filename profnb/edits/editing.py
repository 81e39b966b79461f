"""Advice as edits of the user's source: one for each that certainly fits, and several in one."""

import difflib
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from profnb.advice.proposals import Advice
from profnb.capture.source.user_code import file_title, number_cells
from profnb.edits import call_edits as calls
from profnb.edits import dataset_edits as datasets
from profnb.edits.program_text import NOTHING, Change, Make, ProgramText
from profnb.edits.source_text import DoesNotFitError, Piece, fit_together, read_source

# A row of ``EDITS`` is a rule's alternatives, the first that fits is taken; the edits of one alternative are
# made together, as far as they fit. An edit is tried only where the advice's own code has its word, so that
# what is tried is what was advised. One without a word helps in another way, and the advice's promise is not
# for it.

Maker = tuple[str, Make]  # the word, and what makes the change
Alternatives = tuple[tuple[Maker, ...], ...]

_PARALLEL: Maker = ("num_parallel_calls", datasets.in_parallel)
_PREFETCH: Maker = ("prefetch(tf.data.AUTOTUNE)", datasets.prefetched)
_CACHE: Maker = (".cache()", datasets.cached)
_JIT: Alternatives = (
    (("jit_compile=True", calls.jit_of_model),),
    (("jit_compile=True", partial(calls.function_option, argument="jit_compile=True")),),
    (("torch.compile", calls.torch_module),),
    (("jax.jit", calls.jax_function),),
)
_RELAXED = partial(calls.function_option, argument="reduce_retracing=True", but="input_signature")
_INPUT: Alternatives = (
    (_PARALLEL, _PREFETCH),
    ((".batch(n) before .map(f)", datasets.batched_before_map),),
    (_CACHE,),
    (("num_workers", calls.workers),),
    (("prefetch_to_device", datasets.copied_ahead),),
    (("pin_memory", calls.pinned),),
)
_EVEN: Alternatives = (
    (("reduce_retracing", _RELAXED),),
    (("drop_remainder", calls.even_batches),),
    (("dynamic=True", calls.any_shapes),),
    (("drop_last", calls.even_loader),),
)
EDITS: dict[str, Alternatives] = {
    "eager-ops": (
        (("run_eagerly", calls.not_eager),),
        (("tf.function", calls.tensorflow_function),),
        (("tf.function", calls.compiled_calls),),
    ),
    "predict-in-a-loop": ((("predict_on_batch", calls.predicted_on_batch),),),
    "callback": (
        (("if ", calls.saved_at_epoch_ends),),
        (("if ", calls.saved_less),),
        (("", calls.compiled_calls),),
    ),
    "validation": ((("validation_freq", calls.validated_less),),),
    "epoch-ends": ((("from_tensor_slices", datasets.arrays_as_dataset),),),
    **dict.fromkeys(("retracing", "recompiling"), _EVEN),
    "python-between-steps": ((("steps_per_execution", calls.several_steps),),),
    "cache-input": ((_CACHE,),),
    "prefetch-more": (((".prefetch(16)", partial(datasets.prefetched, size="16")),),),
    **dict.fromkeys(("input-bound", "small-files", "waiting-for-input", "copying-input"), _INPUT),
    "idle-device": (*_INPUT, *_JIT),
    **dict.fromkeys(("small-ops", "small-ops-without-xla", "large-optimizer"), _JIT),
    **dict.fromkeys(("launch-bound", "work-outside-jit"), _JIT),
    "mixed-precision": (
        (("set_global_policy", calls.in_16_bits),),
        (("32", calls.setting),),
    ),
    "idle-cores": ((("set_intra_op_parallelism_threads", calls.all_cores),),),
    "oversubscribed": ((("num_parallel_calls", calls.threads_as_needed),),),
    "gpu-thread-mode": ((("TF_GPU_THREAD_MODE", calls.gpu_threads),),),
}


@dataclass(frozen=True)
class Edit:
    """A change of the user's source that one piece of advice means, or several.

    Attributes:
        rule: The rule's id.
        change: What changes, as a user would say it: "cache() behind map(decode)".
        alters: What it changes in results: "nothing", "order of rounding".
        sources: The changed text of each source that changes.
        diff: What changes, as a unified diff.
        pieces: The text that is put in, and where.
        is_as_advised: Whether it is what the advice promises a saving for, and no other remedy.
    """

    rule: str
    change: str
    alters: str
    sources: Mapping[str, str]
    diff: str
    pieces: tuple[Piece, ...] = field(default=(), repr=False)
    is_as_advised: bool = True


def find_edits(
    advice: Iterable[Advice], sources: Mapping[str, str], names: Mapping[str, object]
) -> list[Edit]:
    """Make an edit of each piece of advice that has one that certainly fits.

    Args:
        advice: What was advised, in its order.
        sources: The text of each source by the file name that it was compiled with, the cell's first.
        names: The cell's global names, which are only read.
    """
    program = _read(sources, names)
    if program is None:
        return []
    edits = (_edit(program, one, sources) for one in advice)
    return [edit for edit in edits if edit is not None]


def join(edits: Sequence[Edit], sources: Mapping[str, str]) -> Edit | None:
    """Make several edits of the same sources one; None where they do not fit together."""
    program = _read(sources, {})
    if program is None or not edits:
        return None
    rules = ", ".join(dict.fromkeys(edit.rule for edit in edits))
    changes = ", ".join(dict.fromkeys(edit.change for edit in edits))
    alters = chain.from_iterable(edit.alters.split(", ") for edit in edits)
    pieces = chain.from_iterable(edit.pieces for edit in edits)
    return _made(program, sources, rules, changes, alters, pieces)


def _read(sources: Mapping[str, str], names: Mapping[str, object]) -> ProgramText | None:
    """Parse all sources that can be; None where the cell itself cannot."""
    texts = [read_source(name, text) for name, text in sources.items()]
    if not texts or texts[0] is None:
        return None
    return ProgramText([text for text in texts if text is not None], names)


def _edit(program: ProgramText, advice: Advice, sources: Mapping[str, str]) -> Edit | None:
    """The first alternative of the advice's rule of which anything fits."""
    for makers in EDITS.get(advice.rule, ()):
        tried = (_change(make, program, advice) for word, make in makers if word in advice.code)
        if changes := [change for change in tried if change is not None]:
            what, alters, pieces = zip(*changes, strict=True)
            said = advice.rule, " and ".join(what)
            edit = _made(program, sources, *said, alters, chain.from_iterable(pieces))
            if edit is not None:
                return replace(edit, is_as_advised=all(word for word, _ in makers))
    return None


def _change(make: Make, program: ProgramText, advice: Advice) -> Change | None:
    with suppress(DoesNotFitError, RecursionError):
        return make(program, advice)
    return None


def _made(
    program: ProgramText, sources: Mapping[str, str], rule: str, change: str,
    alters: Iterable[str], pieces: Iterable[Piece],
) -> Edit | None:  # fmt: skip
    """Make one edit of pieces of text; None where they do not fit together."""
    try:
        ordered = fit_together(pieces)
        changed = {piece.source for piece in ordered}
        texts = {text.name: text.changed(ordered) for text in program.texts if text.name in changed}
    except DoesNotFitError:
        return None
    diff = "".join(_diff(name, sources[name], text) for name, text in texts.items())
    altered = ", ".join(one for one in dict.fromkeys(alters) if one != NOTHING) or NOTHING
    return Edit(rule, change, altered, texts, diff, tuple(ordered))


def _diff(name: str, before: str, after: str) -> str:
    title = file_title(name, number_cells())
    old, new = (io.StringIO(text, newline="\n").readlines() for text in (before, after))
    made = difflib.unified_diff(old, new, title, f"{title} (edited)")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made
    )
