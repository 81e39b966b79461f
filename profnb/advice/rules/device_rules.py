"""Rules on what devices compute, and what they exchange: precision, layouts, uneven work, none at all.

Of what a remedy is for half remains at most, but where facts tell more.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps

import numpy as np

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal
from profnb.advice.replay import Edit
from profnb.causes.numbers import HALF, LIMITING
from profnb.core.columns import Bools
from profnb.core.printable import printable
from profnb.core.units import percent_text
from profnb.steps.activities import EXCHANGING
from profnb.steps.launching import has_replicas
from profnb.steps.streams import busiest_device
from profnb.subjects.advising import guide, idle_share_of, share_of
from profnb.subjects.device.devices import is_mixed_precision, is_nvidia
from profnb.subjects.device.precision import WIDTHS, find_missed_dimensions
from profnb.subjects.device.roofline import find_rates
from profnb.subjects.study import Study
from profnb.trace.framework import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN

_LONGEST = 100
_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|TransposeNHWCToNCHW|TransposeNCHWToNHWC|LayoutOptimizer", re.IGNORECASE
)
# One text for all, or by framework: of UNKNOWN where one has none of its own.
Texts = str | Mapping[str, str]
Words = tuple[str, Texts, Texts]  # a title, the code, and a link or a page of the framework's guide


def propose(study: Study, rule: str, words: Words, evidence: str, *edits: Edit) -> Proposal:
    """Give a proposal in the framework's words."""
    title, *texts = words
    code, link = (
        text if isinstance(text, str) else text.get(study.framework, text.get(UNKNOWN, ""))
        for text in texts
    )
    link = link if "://" in link else guide(study, link)
    return Proposal(rule, title, evidence, code, link, edits)


def of_steps(
    rule: Callable[[Model, Study], Iterator[Proposal]],
) -> Callable[[Model], Iterator[Proposal]]:
    """Ask a rule only where steps were recorded."""

    @wraps(rule)
    def ask(model: Model) -> Iterator[Proposal]:
        study = model.traced
        if study.summary.counted.size and not study.steps.is_window:
            yield from rule(model, study)

    return ask


_UNUSED = (
    "Let the training use the GPU",
    {
        UNKNOWN: "Ask the framework which devices it sees. Look for CUDA_VISIBLE_DEVICES in the program.",
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
def unused_gpu(model: Model, study: Study) -> Iterator[Proposal]:
    """A GPU is there, nothing shows that it worked, and most of the steps is ops on the CPU."""
    if not study.device.unused:
        return
    named, share = printable(", ".join(study.device.unused[:4])), share_of(study, "host compute")
    evidence = f"Nothing ran on {named}. The ops ran on the CPU, {percent_text(share)} of the time."
    if is_mixed_precision(study):
        evidence += " A CPU computes 16 bits in software: keep keras.mixed_precision at float32."
    edits = model.of_category("host compute", share, model.left_by_a_call(share), "a GPU is faster")
    yield propose(study, "unused-gpu", _UNUSED, evidence, *edits)


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
_NARROWER: dict[str, Words] = {
    "TF32": ("Compute products in TF32", _IN_TF32, "mixed_precision"),
    "16-bit": ("Compute in 16 bits", _IN_16_BITS, "mixed_precision"),
}


@of_steps
def mixed_precision(model: Model, study: Study) -> Iterator[Proposal]:
    """The device limits, and multiplies more in 32 bits, on its ordinary cores, than it computes in fewer."""
    kernels, rates = study.device.kernels, _rates(study)
    chosen = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    share = _kernel_share(study, chosen)
    narrow = float(study.device.precision.fraction[: WIDTHS.index("32-bit")].sum())
    width = "TF32" if "TF32" in rates else "16-bit"
    times = rates.get(width, 0) / rates.get("32-bit", np.inf)
    if share_of(study, "device compute") < LIMITING or times <= 1 or not share > narrow:
        return
    yield propose(
        study, "mixed-precision", _NARROWER[width],
        f"{percent_text(share)} of kernel time is products and convolutions in 32 bits. This device "
        f"does {width} numbers {times:.0f} times as fast at best.",
        _of_kernels(model, study, chosen, 1 / times, f"{width} numbers take less time"),
    )  # fmt: skip


_EVEN = "Make dimensions multiples of 8", "Round these up to multiples of 8.", "mixed_precision"


@of_steps
def missed_tensor_cores(model: Model, study: Study) -> Iterator[Proposal]:
    """On NVIDIA, products of a program in 16 bits miss the tensor cores by a dimension that can be rounded.

    Multiples of 8 are what counts; the first layer's inputs and the last one's outputs are the data's.
    """
    plane, rates = busiest_device(study.trace), _rates(study)
    narrow = float(study.device.precision.fraction[WIDTHS.index("16-bit")])
    if plane is None or not narrow > 0 or not is_nvidia(study.trace, plane):
        return
    missed, chosen = find_missed_dimensions(study.trace, study.steps, study.device.kernels)
    share = _kernel_share(study, chosen)
    if not missed or narrow <= share:
        return
    listed = "; ".join(f"{printable(layer[:_LONGEST])} has {odd}" for layer, odd in missed[:3])
    least = rates.get("32-bit", 0) / rates.get("16-bit", np.inf)
    yield propose(
        study, "missed-tensor-cores", _EVEN,
        f"{percent_text(share)} of kernel time is products and convolutions in 16 bits without tensor cores: "
        f"{listed}.",
        _of_kernels(model, study, chosen, least, "tensor cores are faster"),
    )  # fmt: skip


_ONE_ORDER = {
    UNKNOWN: "Keep one order of dimensions in all layers: channels last with tensor cores.",
    TENSORFLOW: "Keep one data_format in all layers: channels_last with mixed precision.",
    PYTORCH: "model.to(memory_format=torch.channels_last), and the inputs likewise.",
}
_ORDER = "Keep one order of dimensions", _ONE_ORDER, "gpu_performance_analysis"


@of_steps
def layout_changes(model: Model, study: Study) -> Iterator[Proposal]:
    """Kernels only change the order of dimensions."""
    kernels = study.device.kernels
    names = zip(kernels.kernel_name, kernels.op_name, strict=True)
    moved = np.array([bool(_LAYOUT.search(f"{kernel} {op}")) for kernel, op in names], np.bool_)
    evidence = (
        f"{percent_text(_kernel_share(study, moved))} of kernel time turns NHWC into NCHW or back."
    )
    edit = _of_kernels(model, study, moved, 0.0, "inputs and results may still be turned")
    if moved.any():
        yield propose(study, "layout-changes", _ORDER, evidence, edit)


_LESS = "For exchange: a larger batch per device, mixed precision, or gradients summed over steps."
_ALL_RANKS = (
    "Capture all workers into one logdir: profnb.load_fleet(logdir) tells waiting from exchange, and who is "
    f"waited for. {_LESS}"
)
WORKERS: Words = ("Find out which worker is waited for", _ALL_RANKS, "distributed_training")
_EXCHANGE = "Hide the exchange between devices", _LESS, "distributed_training"


@of_steps
def exposed_collectives(model: Model, study: Study) -> Iterator[Proposal]:
    """Devices or workers exchange while nothing computes; how much of it is waiting is not known."""
    share = share_of(study, "device collectives")
    is_of_workers = not study.has_device or 2 * idle_share_of(study, "host collectives") >= share
    # Several replicas of one process meet in one number: nobody else's trace says more of them.
    keys = study.trace.stats.integers("instance_key").values
    exchanging = np.flatnonzero(study.activities == EXCHANGING)
    is_of_replicas = keys.size > 1.5 * np.unique(keys).size or has_replicas(study.trace, exchanging)
    if not share or (is_of_workers and is_of_replicas):
        return
    # Where several devices of the trace meet, the fleet's definitions tell them apart.
    is_alone = is_of_workers or int((study.device.use.collective_ps > 0).sum()) < 2
    meanwhile = "the device computes nothing" if study.has_device else "no op here computes"
    because = "exchange can be hidden, and waiting is for the slowest"
    yield propose(
        study, "exposed-collectives", WORKERS if is_of_workers else _EXCHANGE,
        f"{percent_text(share)} of the time is exchange while {meanwhile}."
        + (" One trace does not tell how much of it is waiting." if is_alone else ""),
        *model.of_category("device collectives", share, (0.0, HALF), because),
    )  # fmt: skip


_AS_MANY = {
    UNKNOWN: "Give every replica the same number of examples of like sizes.",
    TENSORFLOW: "Give every replica as many examples (drop_remainder=True) of like sizes.",
    PYTORCH: "Give every replica as many examples (drop_last=True) of like sizes.",
}
_SPREAD = "Spread the work evenly", _AS_MANY, "distributed_training"


@of_steps
def imbalance(model: Model, study: Study) -> Iterator[Proposal]:
    """The busiest of several devices that compute works longer than their mean, and most of the time.

    Devices that only copy take no part in the work; devices that idle wait for the host, not for each other.
    """
    use = study.device.use
    exposed_ps = use.collective_ps - use.hidden_collective_ps  # mostly waiting for those that work
    busy = ((use.busy_ps - exposed_ps) / max(use.window_ps, 1))[use.compute_ps > 0]
    if busy.size < 2 or 2 * busy.max() < 1:
        return
    most, mean = float(busy.max()), float(busy.mean())
    kinds = "device compute", "device collectives"  # in which the others wait for it
    yield propose(
        study, "imbalance", _SPREAD,
        f"The busiest of {busy.size} devices is at work {percent_text(most)} of the time, collectives left "
        f"out. The mean is {percent_text(mean)}.",
        model.some_of(kinds, most - mean, (0.0, HALF), "work is never quite even"),
    )  # fmt: skip


def _rates(study: Study) -> dict[str, int]:
    plane = busiest_device(study.trace)
    return {} if plane is None else find_rates(study.trace.planes[plane])


def _kernel_share(study: Study, chosen: Bools) -> float:
    return float(np.nansum(study.device.kernels.fraction[chosen]))


def _of_kernels(model: Model, study: Study, chosen: Bools, least: float, because: str) -> Edit:
    """Kernels that take less of the device's time from now on."""
    share = _kernel_share(study, chosen) * share_of(study, "device compute")
    return model.some_of(("device compute",), share, (min(least, HALF), HALF), because)


DEVICE_RULES: tuple[Callable[[Model], Iterator[Proposal]], ...] = (
    unused_gpu, mixed_precision, missed_tensor_cores, layout_changes, exposed_collectives, imbalance,
)  # fmt: skip
