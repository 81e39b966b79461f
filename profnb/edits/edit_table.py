"""The edits that each rule's advice has.

A row is a rule's alternatives, the first that fits is taken; the edits of one alternative are made together,
as far as they fit. An edit is tried only where the advice's own code has its word, so that what is tried is
what was advised. One without a word helps in another way, and the advice's promise is not for it.
"""

from collections.abc import Callable
from functools import partial

from profnb.advice.proposals import Advice
from profnb.edits import argument_edits as arguments
from profnb.edits import dataset_edits as datasets
from profnb.edits import function_edits as functions
from profnb.edits.program_text import Change, ProgramText

Make = Callable[[ProgramText, Advice], Change]
Maker = tuple[str, Make]  # the word, and what makes the change
Alternatives = tuple[tuple[Maker, ...], ...]

_PARALLEL: Maker = ("num_parallel_calls", datasets.in_parallel)
_PREFETCH: Maker = ("prefetch(tf.data.AUTOTUNE)", datasets.prefetched)
_CACHE: Maker = (".cache()", datasets.cached)
_JIT: Alternatives = (
    (("jit_compile=True", arguments.jit_of_model),),
    (("jit_compile=True", partial(functions.option_of_function, argument="jit_compile=True")),),
    (("torch.compile", functions.torch_module),),
    (("jax.jit", functions.jax_function),),
)
_RELAXED = partial(
    functions.option_of_function, argument="reduce_retracing=True", but="input_signature"
)
_INPUT_EDITS: Alternatives = (
    (_PARALLEL, _PREFETCH),
    ((".batch(n) before .map(f)", datasets.batched_before_map),),
    (_CACHE,),
    (("num_workers", arguments.workers),),
    (("prefetch_to_device", datasets.copied_ahead),),
    (("pin_memory", arguments.pinned),),
)
_EVEN: Alternatives = (
    (("reduce_retracing", _RELAXED),),
    (("drop_remainder", arguments.even_batches),),
    (("dynamic=True", arguments.any_shapes),),
    (("drop_last", arguments.even_loader),),
)
EDITS: dict[str, Alternatives] = {
    "eager-ops": (
        (("run_eagerly", arguments.not_eager),),
        (("tf.function", functions.tensorflow_function),),
        (("tf.function", functions.compiled_calls),),
    ),
    "predict-in-a-loop": ((("predict_on_batch", functions.predicted_on_batch),),),
    "callback": (
        (("if ", arguments.saved_at_epoch_ends),),
        (("if ", arguments.saved_less),),
        (("", functions.compiled_calls),),
    ),
    "validation": ((("validation_freq", arguments.validated_less),),),
    "epoch-ends": ((("from_tensor_slices", datasets.arrays_as_dataset),),),
    "retracing": _EVEN,
    "recompiling": _EVEN,
    "python-between-steps": ((("steps_per_execution", arguments.several_steps),),),
    "cache-input": ((_CACHE,),),
    "prefetch-more": (((".prefetch(16)", partial(datasets.prefetched, size="16")),),),
    "input-bound": _INPUT_EDITS,
    "small-files": _INPUT_EDITS,
    "waiting-for-input": _INPUT_EDITS,
    "copying-input": _INPUT_EDITS,
    "idle-device": (*_INPUT_EDITS, *_JIT),
    "small-ops-without-xla": _JIT,
    "large-optimizer": _JIT,
    "launch-bound": _JIT,
    "small-ops": _JIT,
    "work-outside-jit": _JIT,
    "mixed-precision": (
        (("set_global_policy", arguments.in_16_bits),),
        (("32", arguments.setting),),
    ),
    "idle-cores": ((("set_intra_op_parallelism_threads", arguments.all_cores),),),
    "oversubscribed": ((("num_parallel_calls", arguments.threads_as_needed),),),
    "gpu-thread-mode": ((("TF_GPU_THREAD_MODE", arguments.gpu_threads),),),
}
