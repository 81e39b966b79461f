"""Rules of advice on devices: launches, copies, precision, layouts, several devices."""

import re

import numpy as np

from profnb.core.columns import Bools
from profnb.core.units import bytes_text, count_text, duration_text, percent_text
from profnb.subjects.advising import GUIDE, Advice, idle_share_of, share_of, window_of
from profnb.subjects.device.precision import WIDTHS
from profnb.subjects.device.unused import is_mixed_precision
from profnb.subjects.study import Study

__all__ = [
    "exposed_collectives",
    "imbalance",
    "launch_bound",
    "layout_changes",
    "missed_tensor_cores",
    "mixed_precision",
    "pageable_copies",
    "synchronising_reads",
    "unused_gpu",
]

_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|TransposeNHWCToNCHW|TransposeNCHWToNHWC|LayoutOptimizer", re.IGNORECASE
)


def _share_of_kernels(study: Study, chosen: Bools) -> float:
    """The chosen kernels' share of the time of all; 0 without kernels."""
    times = study.device.kernels.total_ps
    return float(times[chosen].sum() / times.sum()) if times.sum() else 0.0


def launch_bound(study: Study) -> Advice | None:
    """Launching sets the pace of the kernels and the device idles 10 % of the time meanwhile."""
    launches, idle = study.device.launches, idle_share_of(study, "kernel launch")
    if not launches.sets_the_pace or idle < 0.1:
        return None
    calls = int(launches.calls.sum())
    longer = float(launches.longer_calls.sum() / calls)
    return Advice(
        "launch-bound", "Launch fewer, larger kernels",
        f"{percent_text(longer)} of the {count_text(calls)} calls that launch kernels took longer than what "
        f"they started, and the device idled {percent_text(idle)} of the time while the host launched.",
        idle,
        "model.compile(..., jit_compile=True) fuses small kernels; a larger batch makes each do more; "
        "steps_per_execution=16 queues several steps ahead.",
        "https://www.tensorflow.org/xla",
    )  # fmt: skip


def pageable_copies(study: Study) -> Advice | None:
    """Copies from pageable host memory take 3 % of the time or more on the device."""
    window, spent, moved = window_of(study), 0, 0
    for row in range(len(study.device.copies)):
        if (
            study.device.copies.direction[row] == "host to device"
            and study.device.copies.source_kind[row] == "pageable"
        ):
            spent += int(study.device.copies.total_ps[row])
            moved += int(study.device.copies.bytes[row])
    share = min(spent / window, share_of(study, "input")) if window else 0.0
    if share < 0.03:
        return None
    return Advice(
        "pageable-copies", "Copy to the device while it computes",
        f"{bytes_text(moved)} came from pageable memory, {duration_text(spent)} of copying that the steps "
        "waited for: the driver copies it twice and the host waits.",
        share,
        "dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0')) as the last step of the pipeline; "
        "send uint8 and convert on the device.",
        f"{GUIDE}/data_performance",
    )  # fmt: skip


def synchronising_reads(study: Study) -> Advice | None:
    """The device idles 5 % of the time or more while the host reads a result back."""
    share = idle_share_of(study, "synchronising copy")
    if share < 0.05:
        return None
    return Advice(
        "synchronising-reads", "Read results less often",
        f"The device was idle {percent_text(share)} of the time while the host waited for a result of it.",
        share,
        "float(loss), loss.numpy() and print(loss) wait for the device: do them every 100 steps, or keep a "
        "tf.keras.metrics.Mean and read it once an epoch.",
        f"{GUIDE}/gpu_performance_analysis",
    )  # fmt: skip


def mixed_precision(study: Study) -> Advice | None:
    """The device has tensor cores, a fifth of kernel time could use them, and 16-bit is under a tenth."""
    kernels, peak = study.device.kernels, study.device.peak
    known = {} if peak is None else peak.flops
    rates = known.get("16-bit", 0.0), known.get("32-bit", 0.0)
    if not len(kernels) or not 0 < rates[1] < rates[0]:
        return None
    narrow = study.device.precision.fraction[: WIDTHS.index("32-bit")].sum()
    eligible = _share_of_kernels(study, kernels.is_tensor_core_eligible)
    if narrow >= 0.1 or eligible < 0.2:
        return None
    bound = share_of(study, "device compute") * eligible
    return Advice(
        "mixed-precision", "Compute in 16 bits",
        f"{percent_text(eligible)} of kernel time is matrix products and convolutions in 32 bits; this "
        f"device does 16 bits {rates[0] / rates[1]:.0f} times as fast at best.",
        bound,
        "keras.mixed_precision.set_global_policy('mixed_float16') before the model is built; keep the last "
        "layer's softmax in float32.",
        f"{GUIDE}/mixed_precision",
    )  # fmt: skip


def missed_tensor_cores(study: Study) -> Advice | None:
    """16-bit products and convolutions of a twentieth of kernel time ran outside the tensor cores."""
    kernels = study.device.kernels
    narrow = study.device.precision.fraction[WIDTHS.index("16-bit")] if len(kernels) else 0.0
    if narrow < 0.1:
        return None
    missed = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    share = _share_of_kernels(study, missed)
    if share < 0.05:
        return None
    worst = kernels.op_name[int(np.argmax(np.where(missed, kernels.total_ps, 0)))]
    return Advice(
        "missed-tensor-cores", "Make dimensions multiples of 8",
        f"{percent_text(share)} of kernel time is products and convolutions on the ordinary cores although "
        f"the model computes in 16 bits, most of it {worst[:100]}.",
        share_of(study, "device compute") * share,
        "Round layer widths, channels and the batch up to multiples of 8.",
        f"{GUIDE}/mixed_precision",
    )  # fmt: skip


def layout_changes(study: Study) -> Advice | None:
    """Kernels that only change the order of dimensions take 5 % of kernel time or more."""
    kernels = study.device.kernels
    names = zip(kernels.kernel_name, kernels.op_name, strict=True)
    moved = np.array([bool(_LAYOUT.search(f"{kernel} {op}")) for kernel, op in names], np.bool_)
    share = _share_of_kernels(study, moved)
    if share < 0.05:
        return None
    return Advice(
        "layout-changes", "Keep one order of dimensions",
        f"{percent_text(share)} of kernel time only turns NHWC into NCHW or back, between convolutions that "
        "want one and ops that want the other.",
        share_of(study, "device compute") * share,
        "Keep data_format one and the same in all layers: channels_last with mixed precision (tensor cores "
        "want it), else channels_first on an NVIDIA GPU.",
        f"{GUIDE}/gpu_performance_analysis",
    )  # fmt: skip


def exposed_collectives(study: Study) -> Advice | None:
    """Exchange between devices takes 5 % of the step or more that no compute hides."""
    share = share_of(study, "device collectives")
    if share < 0.05:
        return None
    return Advice(
        "exposed-collectives", "Hide the exchange between devices",
        f"{percent_text(share)} of the step is collectives during which the device computes nothing.",
        share,
        "A larger batch per device, mixed precision (half the bytes), or gradient accumulation over several "
        "steps.",
        f"{GUIDE}/distributed_training",
    )  # fmt: skip


def imbalance(study: Study) -> Advice | None:
    """The busiest device works a tenth longer than the mean of them."""
    devices = study.device.use
    if len(devices) < 2 or devices.imbalance < 0.1:
        return None
    return Advice(
        "imbalance", "Spread the work evenly",
        f"The busiest of {len(devices)} devices works {percent_text(devices.imbalance)} longer than the "
        "mean; the others wait for it.",
        devices.imbalance / (1 + devices.imbalance) * float(devices.utilization.max()),
        "Give every replica the same number of examples (drop_remainder=True) of like sizes.",
        f"{GUIDE}/distributed_training",
    )  # fmt: skip


def unused_gpu(study: Study) -> Advice | None:
    """A GPU is there, nothing shows that it worked, and half of the steps or more is ops on the CPU."""
    names = study.device.unused
    if not names:
        return None
    mixed = is_mixed_precision(study)
    return Advice(
        "unused-gpu", "Let the training use the GPU",
        f"Nothing was launched on {', '.join(names[:4])} and its memory is empty; the ops ran on the CPU, "
        f"{percent_text(share_of(study, 'host compute'))} of the time."
        + (" Mixed precision makes that slower still: a CPU computes 16 bits in software." if mixed else ""),
        None,
        "Look at tf.config.list_physical_devices('GPU'): if it is empty, TensorFlow found no CUDA libraries "
        "(`pip install 'tensorflow[and-cuda]'` brings them; the log of its import says which is missing). "
        "Else look for tf.device('/CPU:0'), CUDA_VISIBLE_DEVICES or set_visible_devices in the program."
        + (" On the CPU, leave keras.mixed_precision at float32." if mixed else ""),
        "https://www.tensorflow.org/install/pip",
    )  # fmt: skip
