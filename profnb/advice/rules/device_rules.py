"""Rules on devices: what they compute and exchange, and why they idle.

A device that idles more than it
works always gets its cause, or the sentence that the cause is unknown.
"""

import re

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposals, Texts, Words, of_steps, of_trace, propose
from profnb.advice.replay import Edit
from profnb.capture.parts.part_records import EPOCH_ENDS, GAPS
from profnb.causes import numbers
from profnb.causes.pieces import shares_by_width
from profnb.causes.python_work import starts_ops_singly
from profnb.causes.reads import INTO, OUT_OF, SIZE, find_reads_beside_programs, find_waiting_op
from profnb.causes.starving import room_for_batch
from profnb.core.columns import Bools
from profnb.core.printable import printable
from profnb.core.units import bytes_text, count_text, counted_text, duration_text, percent_text
from profnb.steps.activities import CATEGORIES, EXCHANGING
from profnb.steps.grouping import has_replicas
from profnb.steps.program_kind import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN
from profnb.steps.summary import OTHERS
from profnb.subjects.advising import (
    JIT_GUIDE,
    READY,
    TORCH_COMPILE_GUIDE,
    idle_share_of,
    input_shares,
    share_of,
)
from profnb.subjects.device.devices import are_of_program
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.device.launches import is_launched_by_pool
from profnb.subjects.device.precision import IN_TF32, WIDTHS, find_missed_dimensions
from profnb.subjects.device.roofline import find_rates
from profnb.subjects.ops.op_execution import LONG_OP_PS
from profnb.subjects.study import Study

_LONGEST_LAYER = 100
_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|TransposeNHWCToNCHW|TransposeNCHWToNHWC|LayoutOptimizer", re.IGNORECASE
)
_UNUSED = (
    "Let the training use the GPU",
    {
        UNKNOWN: "List the framework's devices. Look for CUDA_VISIBLE_DEVICES in the program.",
        TENSORFLOW: "If tf.config.list_physical_devices('GPU') is empty: `pip install "
        "'tensorflow[and-cuda]'`. Else look for tf.device('/CPU:0') and CUDA_VISIBLE_DEVICES.",
        SESSIONS: "If tf.test.is_gpu_available() is False, install tensorflow-gpu and its CUDA libraries.",
        JAX: "If jax.devices() lists no GPU: `pip install 'jax[cuda12]'`. Else look for JAX_PLATFORMS.",
        PYTORCH: "If torch.cuda.is_available() is False, install a build with CUDA. Else: model.to('cuda').",
    },
    {
        UNKNOWN: "https://www.tensorflow.org/install/pip",
        JAX: "https://docs.jax.dev/en/latest/installation.html",
        PYTORCH: "https://pytorch.org/get-started/locally/",
    },
)


@of_steps
def unused_gpu(model: Model, study: Study) -> Proposals:
    """A GPU is there, nothing shows that it worked, and most of the steps is ops on the CPU."""
    if not study.device.unused:
        return
    named, share = printable(", ".join(study.device.unused[:4])), share_of(study, "host compute")
    evidence = f"Nothing ran on {named}. For {percent_text(share)} of the time ops ran on the CPU."
    edits = model.of_category("host compute", share, model.left_by_a_call(share))
    yield propose(study, "unused-gpu", _UNUSED, evidence, *edits)


_IN_16_BITS = {
    UNKNOWN: "Compute in bfloat16 or float16. Keep sums, losses and the last softmax in float32.",
    TENSORFLOW: "keras.mixed_precision.set_global_policy('mixed_float16') before the model is built. Keep "
    "the last softmax in float32.",
    SESSIONS: "tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer) (from 1.14 on).",
    JAX: "Cast parameters and inputs to jnp.bfloat16 inside the step. Keep the loss in float32.",
    PYTORCH: "with torch.autocast('cuda', dtype=torch.bfloat16): around the forward pass and loss.",
}
_WITH_TF32: Words = "Compute products in TF32", IN_TF32, "mixed_precision"
_WITH_16_BITS: Words = "Compute in 16 bits", _IN_16_BITS, "mixed_precision"
_IN_32_BITS: tuple[tuple[str, str, str, Texts], ...] = (
    ("64-bit", "wide-numbers",
     "32 bits keep 7 digits, and a processor computes twice as many of these at once.",
     {UNKNOWN: "Make float32 arrays before the loop: x.astype('float32'), as NumPy makes float64 by itself. "
      "Variables: tf.Variable(tf.cast(v, tf.float32)). Undo keras.config.set_floatx('float64').",
      PYTORCH: "Leave out model.double() and torch.set_default_dtype(torch.float64). Tensors: x.float(). "
      "Arrays, as NumPy makes float64 by itself: x.astype('float32')."}),
    ("16-bit", "slow-16-bit", "This processor computes their products in software.",
     "Keep 'mixed_float16' for GPUs: keras.config.set_dtype_policy('float32') before the model is built."),
)  # fmt: skip


@of_steps
def narrower_numbers(model: Model, study: Study) -> Proposals:
    """Ops compute in 64 bits; or the device limits, and multiplies more in 32 bits than it computes in fewer.

    A CPU, too, computes twice as many numbers of half the width at once; in 16 bits some do in software.
    """
    kernels, rates, kinds = study.device.kernels, _rates(study), (study.program.computing,)
    least = min(rates.get("64-bit", 0) / rates.get("32-bit", np.inf) or numbers.QUARTER, 1 / 2)
    remains = (least, 1 / 2), (0.0, numbers.LEFT)
    of_side = shares_by_width(study)
    for (width, rule, why, code), part, left in zip(_IN_32_BITS, of_side, remains, strict=True):
        share = part * share_of(study, kinds[0])
        if share:
            yield propose(
                study, rule, ("Compute in 32 bits", code, "mixed_precision"),
                f"{percent_text(share)} of the time goes to ops on {width} numbers. {why}",
                model.some_of(kinds, share, left),
            )  # fmt: skip
    chosen = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    share = _kernel_share(study, chosen)
    narrow = float(study.device.precision.fraction[: WIDTHS.index("32-bit")].sum())
    width, words = ("TF32", _WITH_TF32) if "TF32" in rates else ("16-bit", _WITH_16_BITS)
    times = rates.get(width, 0) / rates.get("32-bit", np.inf)
    if share_of(study, "device compute") < numbers.LIMITING or times <= 1 or not share > narrow:
        return
    yield propose(
        study, "mixed-precision", words,
        f"{percent_text(share)} of kernel time goes to products and convolutions in 32 bits. This device "
        f"computes {width} numbers up to {times:.0f} times as fast.",
        _of_kernels(model, study, chosen, 1 / times),
    )  # fmt: skip


_EVEN = "Make dimensions multiples of 8", "Round these up to multiples of 8.", "mixed_precision"


@of_steps
def missed_tensor_cores(model: Model, study: Study) -> Proposals:
    """On NVIDIA, products of a program in 16 bits miss the tensor cores by a dimension that can be rounded.

    Multiples of 8 are what counts; the first layer's inputs and the last one's outputs are the data's.
    """
    rates = _rates(study)
    narrow = float(study.device.precision.fraction[WIDTHS.index("16-bit")])
    if not study.program.is_nvidia or not narrow > 0:
        return
    missed, chosen = find_missed_dimensions(study.trace, study.steps, study.device.kernels)
    share = _kernel_share(study, chosen)
    if not missed or narrow <= share:
        return
    listed = "; ".join(
        f"{printable(layer[:_LONGEST_LAYER])} has {odd}" for layer, odd in missed[:3]
    )
    least = rates.get("32-bit", 0) / rates.get("16-bit", np.inf)
    yield propose(
        study, "missed-tensor-cores", _EVEN,
        f"{percent_text(share)} of kernel time goes to 16-bit products and convolutions without tensor "
        f"cores: {listed}.",
        _of_kernels(model, study, chosen, least),
    )  # fmt: skip


_ONE_ORDER = {
    UNKNOWN: "Keep one order of dimensions in all layers: channels last with tensor cores.",
    TENSORFLOW: "Keep one data_format in all layers: channels_last with mixed precision.",
    PYTORCH: "model.to(memory_format=torch.channels_last), and the same for the inputs.",
}
_ORDER = "Keep one order of dimensions", _ONE_ORDER, "gpu_performance_analysis"


@of_steps
def layout_changes(model: Model, study: Study) -> Proposals:
    """Kernels only change the order of dimensions."""
    kernels = study.device.kernels
    names = zip(kernels.kernel_name, kernels.op_name, strict=True)
    moved = np.array([bool(_LAYOUT.search(f"{kernel} {op}")) for kernel, op in names], np.bool_)
    evidence = f"{percent_text(_kernel_share(study, moved))} of kernel time converts between NHWC and NCHW."
    edit = _of_kernels(model, study, moved, 0.0)
    if moved.any():
        yield propose(study, "layout-changes", _ORDER, evidence, edit)


_LESS = "To communicate less: a larger batch per device, mixed precision, or gradient accumulation."
_ALL_RANKS = (
    "Capture all workers into one logdir: profnb.load_fleet(logdir) separates waiting from communication "
    f"and names the straggler. {_LESS}"
)
WORKERS: Words = ("Find the straggler", _ALL_RANKS, "distributed_training")
_EXCHANGE = "Communicate less between devices", _LESS, "distributed_training"


@of_steps
def exposed_collectives(model: Model, study: Study) -> Proposals:
    """Devices or workers exchange while nothing computes; how much of it is waiting is not known."""
    share = share_of(study, "device collectives")
    idle = idle_share_of(study, "host collectives")
    is_of_workers = not study.program.has_device or 2 * idle >= share
    # Several replicas of one process meet in one number: nobody else's trace says more of them.
    keys = study.trace.stats.integers("instance_key").values
    exchanging = np.flatnonzero(study.activities == EXCHANGING)
    is_of_replicas = keys.size > 1.5 * np.unique(keys).size or has_replicas(study.trace, exchanging)
    if not share or (is_of_workers and is_of_replicas):
        return
    # Where several devices of the trace meet, the fleet's definitions tell them apart.
    is_alone = is_of_workers or int((study.device.use.collective_ps > 0).sum()) < 2
    meanwhile = "the device computes nothing" if study.program.has_device else "no op here computes"
    yield propose(
        study, "exposed-collectives", WORKERS if is_of_workers else _EXCHANGE,
        f"{percent_text(share)} of the time goes to communication while {meanwhile}."
        + (" One trace does not show how much of this is waiting." if is_alone else ""),
        *model.of_category("device collectives", share, (0.0, numbers.LEFT)),
    )  # fmt: skip


_AS_MANY = {
    UNKNOWN: "Give every replica the same number of examples of like sizes.",
    TENSORFLOW: "Give every replica as many examples (drop_remainder=True) of like sizes.",
    PYTORCH: "Give every replica as many examples (drop_last=True) of like sizes.",
}
_SPREAD = "Spread the work evenly", _AS_MANY, "distributed_training"


@of_steps
def imbalance(model: Model, study: Study) -> Proposals:
    """The busiest of several devices that compute works longer than their mean, and most of the time.

    Devices that only copy take no part in the work; devices that idle wait for the host, not for each other.
    """
    use = study.device.use
    exposed_ps = use.collective_ps - use.hidden_collective_ps  # mostly waiting for those that work
    busy = ((use.busy_ps - exposed_ps) / max(use.window_ps, 1))[use.compute_ps > 0]
    most, mean = (float(busy.max()), float(busy.mean())) if busy.size > 1 else (0.0, 0.0)
    if 2 * most < 1:
        return
    kinds = "device compute", "device collectives"  # in which the others wait for it
    yield propose(
        study, "imbalance", _SPREAD,
        f"The busiest of {busy.size} devices works {percent_text(most)} of the time, an average device "
        f"{percent_text(mean)} (collectives left out).",
        model.some_of(kinds, most - mean, (0.0, numbers.LEFT)),
    )  # fmt: skip


def _rates(study: Study) -> dict[str, int]:
    plane = study.program.device
    return {} if plane is None else find_rates(study.trace.planes[plane])


def _kernel_share(study: Study, chosen: Bools) -> float:
    return float(np.nansum(study.device.kernels.fraction[chosen]))


def _of_kernels(model: Model, study: Study, chosen: Bools, least: float) -> Edit:
    """Kernels that take less of the device's time from now on."""
    share = _kernel_share(study, chosen) * share_of(study, "device compute")
    return model.some_of(("device compute",), share, (min(least, 1 / 2), 1 / 2))


_OF_STEP = (*(set(CATEGORIES) - {"device compute", "input"}), GAPS, EPOCH_ENDS)
_GUIDE = "gpu_performance_analysis"

_FUSE = {
    UNKNOWN: "Fuse small kernels with the framework's compiler.",
    TENSORFLOW: "model.compile(..., jit_compile=True) fuses small kernels.",
    SESSIONS: "config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1",
    JAX: "Put the whole step into a jax.jit, and several steps into a jax.lax.scan.",
    PYTORCH: "torch.compile(model, mode='reduce-overhead') fuses small kernels and replays them together.",
}
_COMPILERS = {
    UNKNOWN: "https://www.tensorflow.org/xla",
    JAX: JIT_GUIDE,
    PYTORCH: TORCH_COMPILE_GUIDE,
}
_PRIVATE = "os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private' before TensorFlow is imported."
_LAUNCH_LESS: Words = ("Launch fewer, larger kernels", _FUSE, _COMPILERS)
_OR_THREADS = {TENSORFLOW: f"{_FUSE[TENSORFLOW]} Where XLA cannot compile the model: {_PRIVATE}"}
_THREADS_CHANGE = "Give kernel launches threads of their own", _PRIVATE, _GUIDE


@of_steps
def launch_bound(model: Model, study: Study) -> Proposals:
    """Launching sets the pace of the kernels, and the device idles meanwhile."""
    launches, kernels = study.device.launches, study.device.kernels
    if not launches.sets_the_pace:
        return
    idle, calls = idle_share_of(study, "kernel launch"), int(launches.calls.sum())
    times, longer = kernels.occurrences, float(launches.longer_calls.sum() / calls)
    inside = study.ops.table.share_of_many(kernels, numbers.FEWEST)
    least, most = model.left_by_a_call(idle)
    # Compilers join ops, not what cuDNN does in one. PyTorch's replays all at once, XLA launches products.
    joined = 0.0 if study.program.is_pytorch else kernels.is_tensor_core_eligible
    products = float((times * joined).sum() / times.sum())
    remains = max(least, inside), max(inside + (1 - inside) * most, products)
    is_pool = is_launched_by_pool(study)
    alone = share_of(study, OTHERS)  # of Python that starts the ops, spared likewise
    yield propose(
        study, "launch-bound", (_LAUNCH_LESS[0], _OR_THREADS, _COMPILERS) if is_pool else _LAUNCH_LESS,
        f"The device idled {percent_text(idle)} of the time while the host launched. {percent_text(longer)} "
        f"of the {count_text(calls)} launches took longer than their kernels.",
        *model.of_category("kernel launch", idle, remains),
        *([model.some_of((OTHERS,), alone, (least, most))] if starts_ops_singly(study) else []),
    )  # fmt: skip


@of_steps
def gpu_thread_mode(model: Model, study: Study) -> Proposals:
    """Threads of TensorFlow's pool launch in turns, and the NVIDIA GPU idles meanwhile."""
    idle = idle_share_of(study, "kernel launch")
    if is_launched_by_pool(study):
        yield propose(
            study, "gpu-thread-mode", _THREADS_CHANGE,
            "Ops, input and kernel launches share one thread pool. The device idled "
            f"{percent_text(idle)} of the time during launches.",
            *model.of_category("kernel launch", idle, (1 / 2, 1 - 1 / numbers.SELDOM)),  # left in 14 runs
        )  # fmt: skip


_PINNED = (
    "batch.to(device, non_blocking=True) for the next batch; send uint8, convert on the device."
)
_COPY_CHANGES = {
    UNKNOWN: "Copy the next batch while the device computes. Send narrow types (uint8).",
    TENSORFLOW: "dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')) as the last step. Send "
    "uint8, and tf.cast on the device.",
    JAX: "jax.device_put the next batch before this step's result is read. Send uint8, convert in the step.",
    PYTORCH: f"DataLoader(..., pin_memory=True) and {_PINNED}",
}
_COPY_BESIDE: Words = ("Copy to the device while it computes", _COPY_CHANGES, "data_performance")
_KEEP = (
    "Keep arrays on the device",
    "Leave arrays on the device as far as memory allows (memory_kind='device' in the shardings). Fetch the "
    "next array while the device computes.",
    "https://docs.jax.dev/en/latest/notebooks/host-offloading.html",
)


@of_steps
def copying_input(model: Model, study: Study) -> Proposals:
    """Data is moved to the device while it computes nothing: by its copies, or by calls of the host."""
    share, bytes_of = input_shares(study)[0], study.device.copies.bytes_by_source("host to device")
    if not share:
        return
    words: Words = _KEEP if are_of_program(study.trace) else _COPY_BESIDE
    if study.program.is_pytorch and set(bytes_of) == {"pinned"}:
        words = words[0], _PINNED, words[2]
    slow = bytes_of.get("pageable", 0)
    evidence = f"{percent_text(share)} of the time the device computed nothing while data moved to the device"
    evidence += f", {bytes_text(slow)} of it from pageable memory." if slow else "."
    hidden = share_of(study, "device compute") / share
    # Beside computing a copy takes no time, as far as that is as long; a float has four bytes, a uint8 one.
    remains = max(1 / 4 - hidden, 0.0), max(1 - hidden, numbers.LEFT)
    edits = model.of_category("input", share, remains)
    yield propose(study, "copying-input", words, evidence, *edits)


_READ = {
    UNKNOWN: "print(loss) and float(loss) wait for the device. Read results every 100 steps.",
    TENSORFLOW: "float(loss), loss.numpy() and print(loss) wait for the device. Read results every 100 "
    "steps, or keep a tf.keras.metrics.Mean and read the mean once an epoch.",
    SESSIONS: "sess.run copies every fetched value back. Fetch the loss and the summaries every 100 steps.",
    JAX: "float(loss), np.asarray(x) and x.block_until_ready() wait for the device. Read results every 100 "
    "steps.",
    PYTORCH: "loss.item(), x.tolist(), torch.cuda.synchronize() and an if on a value wait for the device. "
    "Read results every 100 steps.",
}
_READS_OF_TORCH = {
    SIZE: "x[mask], nonzero, masked_select and unique wait for the size of the result. "
    "torch.where(mask, a, b) or a product with the mask keeps the size.",
    INTO: "x.to('cuda') waits for the copy from ordinary memory. Use DataLoader(..., "
    "pin_memory=True) and x.to('cuda', non_blocking=True).",
    OUT_OF: "x.cpu() and x.numpy() wait for the device. Read results every 100 steps, or at the end.",
}
_READ_LESS: Words = ("Read results less often", _READ, _GUIDE)


@of_steps
def synchronising_reads(model: Model, study: Study) -> Proposals:
    """The device idles while the host reads a result back; of JAX on a CPU no program runs meanwhile."""
    share = idle_share_of(study, "synchronising copy")
    name, waits_for, each = "", "", 0.0
    if share > numbers.LEAST_SHARE:  # it takes long to find, and of less nothing is said
        name, waits_for, each = find_waiting_op(study)
    evidence = (
        f"For {percent_text(share)} of the time the host waited for a result and the device idled."
    )
    evidence += f" Most reads are in {name}, {count_text(round(each))} a step." if name else ""
    remains = 0.01, numbers.LEFT  # one of 100 reads, and what the host then waits for anyway
    edits = model.of_category("output", share, remains)
    if not study.program.has_device:
        times, waiting, unused = find_reads_beside_programs(study)
        of, share = counted_text(study.summary.counted.size, "step"), min(waiting, unused)
        evidence = f"The loop waits for results {percent_text(waiting)} of the time "
        evidence += (
            f"({counted_text(times, 'time')} in {of}). No program runs for {percent_text(unused)} "
        )
        evidence += "of the time."
        edits = [model.some_of((), share, remains)]
    code = _READS_OF_TORCH.get(waits_for, _READ)
    if share:
        yield propose(study, "synchronising-reads", (_READ_LESS[0], code, _GUIDE), evidence, *edits)


@of_steps
def larger_batch(model: Model, study: Study) -> Proposals:
    """Twice the batch fits into the device, which idles, and not for want of data.

    Per example half of what does not grow with the batch is saved: of the idle time, and at most of all but
    the input and kernels that are long enough to grow with it.
    """
    size, idle, fixed = room_for_batch(study)
    if not size or fixed < 1 - numbers.LIMITING:
        return
    kernels, computing = study.device.kernels, share_of(study, "device compute")
    rest = 1 - computing - share_of(study, "input")
    short = 1 - float(kernels.fraction[kernels.mean_ps > LONG_OP_PS].sum())
    grows = max(1 - fixed / rest, 0.0)
    code = f"batch_size={2 * size}; scale the learning rate with it."
    yield propose(
        study, "larger-batch", ("Use twice the batch", code, _GUIDE),
        f"The device was idle {percent_text(idle)} of the time. Device memory would hold twice the batch "
        f"(now {count_text(size)}). Twice the batch halves the fixed cost of each example.",
        model.some_of(_OF_STEP, rest / 2, (0.0, grows)),
        model.some_of(("device compute",), computing * short / 2, (0.0, 1.0)),
    )  # fmt: skip


_PYTHON_CHANGES = {
    UNKNOWN: "Profile the Python code. Hand the device more work at once.",
    TENSORFLOW: "Capture with --python: p.python names the functions. Move slow ones into the tf.function.",
    SESSIONS: "Capture with --python: p.python names the functions. Feed through tf.data.",
    JAX: "The frames on the timeline name the functions. Put the whole step into one jax.jit.",
    PYTORCH: "with_stack=True in torch.profiler.profile records the functions. Do less Python in the step.",
}
_MORE_TO_DO: Words = ("Give the device more to do", _PYTHON_CHANGES, _GUIDE)
_LESS_BETWEEN: Words = ("Do less between steps", _PYTHON_CHANGES, _GUIDE)
_BEFORE = "Run two steps before the capture begins. Give every batch one shape."
_MOVE = "Place the host's longest ops on the device, or move them to the input pipeline."
_RECORD = "Record the host's ops and Python calls as well, over several marked steps."
_LATER = "The first run of an op loads libraries and compiles kernels. Run the step once before recording."
# Of each cause of idle time the category that it is charged to ("" for gaps), what the host did, and words.
_CAUSES: dict[str, tuple[str, str, Words]] = {
    "compiling": ("compilation", "programs were compiled", ("Compile first", _BEFORE, _GUIDE)),
    "waiting for input": ("input", "the host waited for data", ("Have the next batch ready", READY, _GUIDE)),
    "copying input": ("input", "the host copied data to the device", _COPY_BESIDE),
    "synchronising copy": ("output", "the host waited for results", _READ_LESS),
    "host compute": ("host compute", "ops computed on the CPU", ("Move work to the device", _MOVE, _GUIDE)),
    "kernel launch": ("kernel launch", "the host prepared and launched kernels", _LAUNCH_LESS),
    "host collectives": ("device collectives", "the host waited for other workers", WORKERS),
    "Python in the step": (OTHERS, "Python or unrecorded work ran in the steps", _MORE_TO_DO),
    "Python between steps": ("", "Python or unrecorded work ran between steps", _LESS_BETWEEN),
    "unknown": (
        OTHERS, "nothing recorded says why",
        ("Find out why the device is idle", _RECORD, _GUIDE),
    ),
}  # fmt: skip


@of_trace
def idle_device(model: Model, study: Study) -> Proposals:
    """A device idles more than it works; this is what the host did for most of that time."""
    idle = study.device.idle
    if idle is None or 2 * idle.total_ps.sum() < idle.window_ps:
        return
    row, is_open = int(idle.total_ps.argmax()), study.steps.is_window
    cause, part = IDLE_CAUSES[row], float(idle.total_ps[row] / idle.window_ps)
    category, reason, words = _CAUSES[cause]
    of = "the time"
    if is_open:
        of = f"the recorded {duration_text(idle.window_ps)} (no steps were found)"
    elif cause == "kernel launch" and study.summary.counted.size <= 2:  # else it is each step's
        ops, first = study.ops.steady, study.ops.steady.find_outlier()
        if first >= 0 and 2 * ops.self_ps[first] > idle.total_ps[row]:
            took, is_open = duration_text(int(ops.self_ps[first])), True
            reason += (
                f", mostly for one op: {printable(ops.op_name[first][:_LONGEST_LAYER])} took {took}"
            )
            words = "Record a later run", _LATER, _GUIDE
    remains = (0.0 if is_open or cause == "unknown" else 1 / 2), 1.0
    share = float(idle.total_ps.sum() / idle.window_ps)
    yield propose(
        study, "idle-device", words,
        f"{printable(idle.device)} was idle {percent_text(share)} of {of}: for {percent_text(part)} "
        f"{reason}.",
        *model.of_category(category, part, remains),
    )  # fmt: skip


DEVICE_RULES = (
    unused_gpu, narrower_numbers, missed_tensor_cores, layout_changes, exposed_collectives, imbalance,
    launch_bound, gpu_thread_mode, copying_input, synchronising_reads, larger_batch, idle_device,
)  # fmt: skip
