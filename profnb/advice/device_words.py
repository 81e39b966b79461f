"""What to do about devices, in the words of each framework: a title, the code, and where it is explained."""

from collections.abc import Mapping

from profnb.subjects import reads
from profnb.subjects.advising import READY, guide
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN

__all__ = ["words_of"]

Texts = (
    str | Mapping[str, str]
)  # one for all, or by framework; of UNKNOWN where one has none of its own


def words_of(study: Study, rule: str, variant: str = "") -> tuple[str, str, str]:
    """Give a rule's title, code and link in the framework's words.

    Args:
        study: The trace's analyses.
        rule: The rule.
        variant: A case of it, which may have words of its own.
    """
    title, code, page = _WORDS.get(f"{rule} {variant}") or _WORDS[rule]
    link = _of(page, study.framework)
    return title, _of(code, study.framework), link if "://" in link else guide(study, link)


def _of(texts: Texts, framework: str) -> str:
    return texts if isinstance(texts, str) else texts.get(framework, texts.get(UNKNOWN, ""))


_GUIDE, _DISTRIBUTED, _PRECISION = (
    "gpu_performance_analysis",
    "distributed_training",
    "mixed_precision",
)
_THREADS = "os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private' before TensorFlow is imported."
_COMPILE = {
    UNKNOWN: "Fuse small kernels with the framework's compiler.",
    TENSORFLOW: "model.compile(..., jit_compile=True) fuses small kernels.",
    SESSIONS: "config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1",
    JAX: "Put the whole step into one jax.jit, and several steps into one with jax.lax.scan.",
    PYTORCH: "torch.compile(model, mode='reduce-overhead') fuses small kernels and replays them together.",
}
_FUSE_OR_THREADS = f"{_COMPILE[TENSORFLOW]} Where XLA cannot compile the model: {_THREADS}"
_COMPILERS = {
    UNKNOWN: "https://www.tensorflow.org/xla",
    JAX: "https://docs.jax.dev/en/latest/jit-compilation.html",
    PYTORCH: "https://docs.pytorch.org/docs/stable/torch.compiler.html",
}
_LAUNCH_LESS = "Launch fewer, larger kernels", _COMPILE, _COMPILERS
_PINNED = (
    "batch.to(device, non_blocking=True) for the next batch; send uint8 and convert on the device."
)
_COPY = {
    UNKNOWN: "Copy the next batch while this one is computed. Send narrow types (uint8).",
    TENSORFLOW: "dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')) as the last step. Send "
    "uint8, and tf.cast on the device.",
    JAX: "jax.device_put the next batch before this step's result is read. Send uint8, convert in the step.",
    PYTORCH: f"DataLoader(..., pin_memory=True) and {_PINNED}",
}
_COPY_BESIDE = "Copy to the device while it computes", _COPY, "data_performance"
_READ = {
    UNKNOWN: "Printing a result, or making a Python number of it, waits: do it every 100 steps.",
    TENSORFLOW: "float(loss), loss.numpy() and print(loss) wait for the device: do them every 100 steps, or "
    "keep a tf.keras.metrics.Mean and read it once an epoch.",
    SESSIONS: "What sess.run fetches is copied back: fetch the loss and the summaries every 100 steps.",
    JAX: "float(loss), np.asarray(x) and x.block_until_ready() wait for the device: do them every 100 steps.",
    PYTORCH: "loss.item(), x.tolist(), torch.cuda.synchronize() and an if on a value wait for the device: do "
    "them every 100 steps.",
}
_READ_LESS = "Read results less often", _READ, _GUIDE
_READS_OF_TORCH = {
    reads.SIZE: "x[mask], nonzero, masked_select and unique wait for the size of their result: "
    "torch.where(mask, a, b), or a product with the mask, keeps it.",
    reads.INTO: "x.to('cuda') waits until ordinary memory is copied: DataLoader(..., pin_memory=True) and "
    "x.to('cuda', non_blocking=True) do not.",
    reads.OUT_OF: "x.cpu() and x.numpy() wait for the device: do them every 100 steps, or at the end.",
}
_EXCHANGE = (
    "For exchange: a larger batch per device, mixed precision, or gradients summed over steps."
)
_WORKERS = (
    "Capture all workers into one logdir: profnb.load_fleet(logdir) tells waiting from exchange, and who is "
    f"waited for. {_EXCHANGE}"
)
_PYTHON = {
    UNKNOWN: "Profile the Python code. Hand the device more work at once.",
    TENSORFLOW: "p.python (a capture with Python's calls) names functions. Put them into the tf.function.",
    SESSIONS: "p.python (a capture with Python's calls) names the functions. Feed through tf.data.",
    JAX: "The frames on the timeline name the functions. Put the whole step into one jax.jit.",
    PYTORCH: "with_stack=True in torch.profiler.profile records the functions. Do less of it in the step.",
}
_SEE_GPU = {
    UNKNOWN: "Ask the framework which devices it sees. Look for CUDA_VISIBLE_DEVICES in the program.",
    TENSORFLOW: "If tf.config.list_physical_devices('GPU') is empty: `pip install 'tensorflow[and-cuda]'`. "
    "Else look for tf.device('/CPU:0') and CUDA_VISIBLE_DEVICES.",
    SESSIONS: "If tf.test.is_gpu_available() is False, install tensorflow-gpu and its CUDA libraries.",
    JAX: "If jax.devices() lists no GPU: `pip install 'jax[cuda12]'`. Else look for JAX_PLATFORMS.",
    PYTORCH: "If torch.cuda.is_available() is False, install a build with CUDA. Else: model.to('cuda').",
}
_INSTALLING = {
    UNKNOWN: "https://www.tensorflow.org/install/pip",
    JAX: "https://docs.jax.dev/en/latest/installation.html",
    PYTORCH: "https://pytorch.org/get-started/locally/",
}
_IN_16_BITS = {
    UNKNOWN: "Compute in bfloat16 or float16. Keep sums, losses and the last softmax in float32.",
    TENSORFLOW: "keras.mixed_precision.set_global_policy('mixed_float16') before the model is built. Keep "
    "the last softmax in float32.",
    SESSIONS: "tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer) (from 1.14 on).",
    JAX: "Cast parameters and inputs to jnp.bfloat16 inside the step. Keep the loss in float32.",
    PYTORCH: "with torch.autocast('cuda', dtype=torch.bfloat16): around the forward pass and loss.",
}
_IN_TF32 = {
    UNKNOWN: "Allow TF32 in matrix products and convolutions.",
    TENSORFLOW: "tf.config.experimental.enable_tensor_float_32_execution(True)",
    JAX: "jax.config.update('jax_default_matmul_precision', 'tensorfloat32')",
    PYTORCH: "torch.set_float32_matmul_precision('high')",
}
_ONE_ORDER = {
    UNKNOWN: "Keep one order of dimensions in all layers: channels last with tensor cores.",
    TENSORFLOW: "Keep one data_format in all layers: channels_last with mixed precision.",
    PYTORCH: "model.to(memory_format=torch.channels_last), and the inputs likewise.",
}
_EVENLY = {
    UNKNOWN: "Give every replica the same number of examples of like sizes.",
    TENSORFLOW: "Give every replica as many examples (drop_remainder=True) of like sizes.",
    PYTORCH: "Give every replica as many examples (drop_last=True) of like sizes.",
}
_WORDS: Mapping[str, tuple[str, Texts, Texts]] = {
    "unused-gpu": ("Let the training use the GPU", _SEE_GPU, _INSTALLING),
    "mixed-precision": ("Compute in 16 bits", _IN_16_BITS, _PRECISION),
    "mixed-precision TF32": ("Compute products in TF32", _IN_TF32, _PRECISION),
    "missed-tensor-cores": (
        "Make dimensions multiples of 8",
        "Round these up to multiples of 8.",
        _PRECISION,
    ),
    "layout-changes": ("Keep one order of dimensions", _ONE_ORDER, _GUIDE),
    "exposed-collectives": ("Hide the exchange between devices", _EXCHANGE, _DISTRIBUTED),
    "exposed-collectives workers": ("Find out which worker is waited for", _WORKERS, _DISTRIBUTED),
    "imbalance": ("Spread the work evenly", _EVENLY, _DISTRIBUTED),
    "launch-bound": _LAUNCH_LESS,
    "launch-bound pool": (_LAUNCH_LESS[0], _FUSE_OR_THREADS, _COMPILERS),
    "gpu-thread-mode": ("Let threads of their own launch kernels", _THREADS, _GUIDE),
    "copying-input": _COPY_BESIDE,
    "copying-input pinned": (_COPY_BESIDE[0], {**_COPY, PYTORCH: _PINNED}, _COPY_BESIDE[2]),
    "copying-input program": (
        "Keep on the device what fits there",
        "Leave arrays that fit there (memory_kind='device' in their shardings). Fetch the next one while "
        "this one is computed.",
        "https://docs.jax.dev/en/latest/notebooks/host-offloading.html",
    ),
    "synchronising-reads": _READ_LESS,
    **{
        f"synchronising-reads {kind}": (_READ_LESS[0], code, _GUIDE)
        for kind, code in _READS_OF_TORCH.items()
    },
    "larger-batch": ("Use twice the batch", "Scale the learning rate with it.", _GUIDE),
    "idle-device compiling": (
        "Compile before the loop",
        "Run a step or two before what is timed. Give every batch one shape.",
        _GUIDE,
    ),
    "idle-device waiting for input": ("Have the next batch ready", READY, _GUIDE),
    "idle-device copying input": _COPY_BESIDE,
    "idle-device synchronising copy": _READ_LESS,
    "idle-device host compute": (
        "Move work from the CPU to the device",
        "Place the host's longest ops on the device, or do them in the input.",
        _GUIDE,
    ),
    "idle-device kernel launch": _LAUNCH_LESS,
    "idle-device host collectives": ("Find out who is waited for", _WORKERS, _DISTRIBUTED),
    "idle-device Python in the step": ("Give the device more to do", _PYTHON, _GUIDE),
    "idle-device Python between steps": ("Do less between steps", _PYTHON, _GUIDE),
    "idle-device unknown": (
        "Find out why the device is idle",
        "Record the host's side too (its ops, and Python's calls), over several marked steps.",
        _GUIDE,
    ),
    "idle-device first": (
        "Record a later run",
        "The first run of an op loads libraries and compiles kernels. Run the step before you record it.",
        _GUIDE,
    ),
}
