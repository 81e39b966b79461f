"""Rules of advice on what devices compute: precision, layouts, exchange, several devices, none used."""

import re

import numpy as np

from profnb.core.columns import Bools
from profnb.core.units import percent_text
from profnb.steps.activities import EXCHANGING
from profnb.steps.launching import has_replicas
from profnb.steps.streams import busiest_device
from profnb.subjects.advising import (
    FIND_WORKER,
    Finding,
    guide,
    idle_share_of,
    share_of,
)
from profnb.subjects.device.peaks import find_rates, is_nvidia
from profnb.subjects.device.precision import (
    WIDTHS,
    layer_of,
    odd_dimensions,
    ops_without_tensor_cores,
)
from profnb.subjects.device.unused import is_mixed_precision
from profnb.subjects.study import Study
from profnb.trace.framework import words

__all__ = [
    "exposed_collectives",
    "imbalance",
    "layout_changes",
    "missed_tensor_cores",
    "mixed_precision",
    "unused_gpu",
]

_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|TransposeNHWCToNCHW|TransposeNCHWToNHWC|LayoutOptimizer", re.IGNORECASE
)
_LIMITING = 0.75  # of the time, from which on the device is what limits
_AT_WORK = 0.5


def _share_of_kernels(study: Study, chosen: Bools) -> float:
    """The chosen kernels' share of the time of all; 0 without kernels."""
    times = study.device.kernels.total_ps
    return float(times[chosen].sum() / times.sum()) if times.sum() else 0.0


def mixed_precision(study: Study) -> Finding | None:
    """The device limits, a fifth of its kernel time could use tensor cores, and 16-bit is under a tenth.

    It limits where it computes three quarters of the time: the casts of mixed precision are kernels too, and
    of 14 recorded pairs of runs whose device idled each was slower with it.
    """
    kernels, plane = study.device.kernels, busiest_device(study.trace)
    if plane is None or not len(kernels) or study.steps.is_window:
        return None
    rate_of = find_rates(study.trace.planes[plane])
    rates = rate_of.get("16-bit", 0), rate_of.get("32-bit", 0)
    if not 0 < rates[1] < rates[0]:
        return None
    if share_of(study, "device compute") < _LIMITING:
        return None
    narrow = study.device.precision.fraction[: WIDTHS.index("32-bit")].sum()
    eligible = _share_of_kernels(study, kernels.is_tensor_core_eligible)
    if narrow >= 0.1 or eligible < 0.2:
        return None
    bound = share_of(study, "device compute") * eligible
    return Finding(
        "mixed-precision", "Compute in 16 bits",
        f"{percent_text(eligible)} of kernel time is matrix products and convolutions in 32 bits; this "
        f"device does 16 bits {rates[0] / rates[1]:.0f} times as fast at best.",
        bound,
        words(
            study.framework,
            "Compute in bfloat16 or float16; keep sums, losses and the last softmax in float32.",
            tensorflow="keras.mixed_precision.set_global_policy('mixed_float16') before the model is "
            "built; keep "
            "the last layer's softmax in float32.",
            sessions="tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer) (from 1.14 on).",
            jax="Cast parameters and inputs to jnp.bfloat16 inside the step, keep the loss in float32.",
            pytorch="with torch.autocast('cuda', dtype=torch.bfloat16): around the forward pass and the "
            "loss.",
        ),
        guide(study, "mixed_precision"),
    )  # fmt: skip


def missed_tensor_cores(study: Study) -> Finding | None:
    """On NVIDIA, 16-bit ops of 5 % of kernel time miss the tensor cores by a dimension that can be rounded.

    Multiples of 8 are what counts; the first layer's inputs and the last one's outputs are the data's.
    """
    kernels, plane = study.device.kernels, busiest_device(study.trace)
    narrow = study.device.precision.fraction[WIDTHS.index("16-bit")] if len(kernels) else 0.0
    if narrow < 0.1 or plane is None or study.steps.is_window or not is_nvidia(study.trace, plane):
        return None
    odd = odd_dimensions(study.trace, study.steps)
    spent: dict[str, int] = {}
    for name, (time, _) in ops_without_tensor_cores(kernels).items():
        layer = layer_of(name)[0]
        if layer in odd:
            spent[layer] = spent.get(layer, 0) + time
    share = sum(spent.values()) / max(int(kernels.total_ps.sum()), 1)
    if share < 0.05:
        return None
    layers = sorted(spent, key=lambda layer: -spent[layer])
    listed = "; ".join(f"{layer[:100]} has {odd[layer]}" for layer in layers[:3])
    return Finding(
        "missed-tensor-cores", "Make dimensions multiples of 8",
        f"{percent_text(share)} of kernel time is products and convolutions on the ordinary cores although "
        f"the model computes in 16 bits: {listed}.",
        share_of(study, "device compute") * share,
        "Round these up to multiples of 8.",
        guide(study, "mixed_precision"),
    )  # fmt: skip


def layout_changes(study: Study) -> Finding | None:
    """Kernels that only change the order of dimensions take 5 % of kernel time or more."""
    kernels = study.device.kernels
    names = zip(kernels.kernel_name, kernels.op_name, strict=True)
    moved = np.array([bool(_LAYOUT.search(f"{kernel} {op}")) for kernel, op in names], np.bool_)
    share = _share_of_kernels(study, moved)
    if share < 0.05 or study.steps.is_window:
        return None
    return Finding(
        "layout-changes", "Keep one order of dimensions",
        f"{percent_text(share)} of kernel time only turns NHWC into NCHW or back, between convolutions that "
        "want one and ops that want the other.",
        share_of(study, "device compute") * share,
        words(
            study.framework,
            "Keep one order of dimensions in all layers: channels last where tensor cores are used.",
            tensorflow="Keep data_format one and the same in all layers: channels_last with mixed precision "
            "(tensor cores want it), else channels_first on an NVIDIA GPU.",
            pytorch="model.to(memory_format=torch.channels_last), and the inputs likewise.",
        ),
        guide(study, "gpu_performance_analysis"),
    )  # fmt: skip


def exposed_collectives(study: Study) -> Finding | None:
    """Exchange between devices or workers takes 5 % of the step or more that no compute hides."""
    share = share_of(study, "device collectives")
    if share < 0.05 or study.steps.is_window:
        return None
    on_host = idle_share_of(study, "host collectives")
    if not study.has_device or 2 * on_host >= share:
        # Several replicas of one process meet in one number: nobody else's trace says more of them.
        keys = study.trace.stats.integers("instance_key").values
        exchanging = np.flatnonzero(study.activities == EXCHANGING)
        if keys.size > 1.5 * np.unique(keys).size or has_replicas(study.trace, exchanging):
            return None
        return Finding(
            "exposed-collectives", "Find out which worker is waited for",
            f"{percent_text(share)} of the time goes to waiting for other workers and exchanging with them, "
            f"while {'the device' if study.has_device else 'no op'} computes "
            f"{'nothing' if study.has_device else 'here'}. One trace does not tell how much of it is "
            "waiting.",
            share,
            FIND_WORKER,
            guide(study, "distributed_training"),
        )  # fmt: skip
    # Where several devices of the trace meet, the fleet's definitions tell them apart.
    is_alone = int((study.device.use.collective_ps > 0).sum()) < 2
    return Finding(
        "exposed-collectives", "Hide the exchange between devices",
        f"{percent_text(share)} of the step is collectives during which the device computes nothing."
        + (" One trace does not tell how much of it is waiting for others." if is_alone else ""),
        share,
        ("profnb.load_fleet of all ranks' traces tells the two apart. For exchange: a" if is_alone else "A")
        + " larger batch per device, mixed precision (half the bytes), or gradient accumulation over several "
        "steps.",
        guide(study, "distributed_training"),
    )  # fmt: skip


def imbalance(study: Study) -> Finding | None:
    """The busiest of several devices that compute works a tenth longer than their mean, and half of the time.

    Devices that only copy take no part in the work; devices that idle wait for the host, not for each other.
    """
    devices = study.device.use
    computes = devices.compute_ps > 0
    exposed = (
        devices.collective_ps - devices.hidden_collective_ps
    )  # mostly waiting for those that work
    busy = ((devices.busy_ps - exposed) / max(devices.window_ps, 1))[computes]
    if busy.size < 2 or study.steps.is_window or busy.max() < _AT_WORK:
        return None
    imbalance_of = float(busy.max() / busy.mean() - 1)
    if imbalance_of < 0.1:
        return None
    return Finding(
        "imbalance", "Spread the work evenly",
        f"The busiest of {busy.size} devices that compute is at work {percent_text(float(busy.max()))} "
        f"of the time, collectives left out, {percent_text(imbalance_of)} longer than their mean.",
        float(busy.max() - busy.mean()),
        words(
            study.framework,
            "Give every replica the same number of examples of like sizes.",
            tensorflow="Give every replica the same number of examples (drop_remainder=True) of like sizes.",
            pytorch="Give every replica the same number of examples (drop_last=True) of like sizes.",
        ),
        guide(study, "distributed_training"),
    )  # fmt: skip


def unused_gpu(study: Study) -> Finding | None:
    """A GPU is there, nothing shows that it worked, and half of the steps or more is ops on the CPU."""
    names = study.device.unused
    if not names:
        return None
    mixed = is_mixed_precision(study)
    return Finding(
        "unused-gpu", "Let the training use the GPU",
        f"Nothing was launched on {', '.join(names[:4])} and its memory is empty; the ops ran on the CPU, "
        f"{percent_text(share_of(study, 'host compute'))} of the time."
        + (" Mixed precision makes that slower still: a CPU computes 16 bits in software." if mixed else ""),
        None,
        words(
            study.framework,
            "Ask the framework which devices it sees, and look for CUDA_VISIBLE_DEVICES in the program.",
            tensorflow="Look at tf.config.list_physical_devices('GPU'): if it is empty, TensorFlow "
            "found no CUDA "
            "libraries (`pip install 'tensorflow[and-cuda]'` brings them; the log of its import says "
            "which is "
            "missing). Else look for tf.device('/CPU:0'), CUDA_VISIBLE_DEVICES or set_visible_devices in the "
            "program." + (" On the CPU, leave keras.mixed_precision at float32." if mixed else ""),
            sessions="Look at tf.test.is_gpu_available(): if it is False, install tensorflow-gpu and the "
            "CUDA libraries of its version. Else look for tf.device('/cpu:0') and CUDA_VISIBLE_DEVICES.",
            jax="Look at jax.devices(): if it lists no GPU, `pip install 'jax[cuda12]'` brings what is "
            "missing. "
            "Else look for JAX_PLATFORMS, CUDA_VISIBLE_DEVICES or jax.default_device in the program.",
            pytorch="Look at torch.cuda.is_available(): if it is False, install a build of PyTorch with "
            "CUDA. "
            "Else look for model.to('cuda') and CUDA_VISIBLE_DEVICES in the program.",
        ),
        words(
            study.framework, "https://www.tensorflow.org/install/pip",
            jax="https://docs.jax.dev/en/latest/installation.html", pytorch="https://pytorch.org/get-started/locally/",
        ),
    )  # fmt: skip
