"""Real traces of JAX, PyTorch and other tools, each read whole against its raw events on 2026-11-22."""

from judged import Judged


def _of_device(raw, part, marker):
    """Share of the steps' time in which the busiest device runs some of its work."""
    _, within = raw.steps(marker)
    return raw.covered(part, within=within) / (within[1] - within[0])


def _alone(raw, part, marker, *others):
    """Share of the steps' time in which some events run and none of the others."""
    _, within = raw.steps(marker)
    return raw.alone(part, *others, within=within) / (within[1] - within[0])


def _exchange(raw, marker="ProfilerStep#"):
    """Share of the time in which the busiest device exchanges data and computes nothing."""
    work, nccl = raw.busiest(), raw.named("nccl")
    return _alone(raw, work & nccl, marker, work & ~nccl & ~raw.copies())


def _computing(raw, marker="ProfilerStep#"):
    return _of_device(raw, raw.busiest() & ~raw.named("nccl") & ~raw.copies(), marker)


def _waits_of_conv(raw):
    """From the second step on, the time in which Python waits for results and the device does nothing."""
    steps, within = raw.steps("PjitFunction(forward_3d_conv)")
    later = (60_843_541_000, within[1])
    return raw.alone(raw.named("block_until_ready"), raw.busiest(), steps, within=later) / (later[1] - later[0])


def _copies_of_xla(raw, *, to_device):
    """Share of the busiest TPU's time in which it waits for XLA's copies from (or to) the host's memory, S(5)."""
    from_host = raw.named("S(5)}, u32")  # (destination, source, context): the source lies there
    chosen = raw.named("copy-done") & (from_host if to_device else ~from_host)
    return raw.duration[raw.busiest() & chosen].sum() / raw.duration[raw.busiest()].sum()


_PYTORCH_FORBIDDEN = ("unused-gpu", "gpu-thread-mode", "mixed-precision", "missed-tensor-cores", "imbalance")

ROWS = [
    *(
        Judged(path, "after the first of five calls Python waits in block_until_ready for 86 % of the time with the device idle; that works for 2.6 %",
               lambda raw: 0.84 < _waits_of_conv(raw) < 0.87 and raw.covered(raw.busiest()) < 0.03 * raw.whole(),
               ("4 forward_3d_conv steps", "one step of 48.6 ms aside", "/device:GPU:0", "output, 85.5 %"), ("host compute", "between steps", "Python"),
               ("synchronising-reads",), ("mixed-precision", "imbalance", "missed-tensor-cores", "gpu-thread-mode", "python-between-steps"), ("tf.data", "Keras"),
               first="synchronising-reads")
        for path in ("jax-rocm/conv.xplane.pb", "judged/jax-mi300-conv.xplane.pb")
    ),
    Judged("jax-rocm/attention.xplane.pb", "three calls of transformer_block; for 20.6 of 32.7 ms JAX's runtime waits for a buffer, no Python frame runs and the device idles",
           lambda raw: raw.named("transformer_block").sum() == 3 and 20.6e9 < raw.longest("BufferSequencingEvent::Execute") < 20.7e9
           and raw.covered(raw.line == "python", within=(4_200_000_000, 24_800_000_000)) == 0,
           ("3 steps, median 3.53 ms", "output, 63.0 %"), ("host compute", "between steps", "Python"), ("synchronising-reads",),
           ("mixed-precision", "imbalance", "python-between-steps"), ("tf.data", "Keras")),
    Judged("tpu-v6e/training.xplane.pb", "three programs of 76 us; by its clock each ran before it was enqueued; Python waits for results 38.6 % of the time with the TPU idle",
           lambda raw: (raw.line == "XLA Modules").sum() == 3 and 0.38 < _alone(raw, raw.named("block_until_ready"), "PjitFunction(matmul_optimized)", raw.busiest()) < 0.39,
           ("3 matmul_optimized steps, median 104 µs", "output, 38.6 %"), ("host compute", "between steps"), ("synchronising-reads",),
           ("python-between-steps", "mixed-precision", "launch-bound"), ("tf.data",)),
    Judged("tpu-v6e/inference_2.xplane.pb", "copies from the host's memory are 74 %, to it 25 % of the TPU's time, everything else 2 to 3 %; 100 programs of 784 ms each",
           lambda raw: 0.73 < _copies_of_xla(raw, to_device=True) < 0.76 and 0.22 < _copies_of_xla(raw, to_device=False) < 0.26
           and ((raw.line == "XLA Modules") & raw.named("jit_f")).sum() == 400,
           ("99 f steps, median 784 ms", "/device:TPU:1", "input, 74.7 %"), ("host compute", "device compute"), ("copying-input",),
           ("imbalance", "python-between-steps", "idle-device", "mixed-precision"), ("tf.data",), first="copying-input"),
    Judged("kineto/changed.json.gz", "kernels run for 74 % of the time, copies or exchange for most of the rest; the device works for 96 %; exchange alone 9 to 10 %",
           lambda raw: 0.73 < _computing(raw) < 0.745 and raw.busy("ProfilerStep#") > 0.96 and 0.08 < _exchange(raw) < 0.1,
           ("6 ProfilerStep steps, median 117 ms", "device compute, 73.8 %"), ("host compute",), ("exposed-collectives",),
           (*_PYTORCH_FORBIDDEN, "idle-device", "python-between-steps", "launch-bound", "synchronising-reads")),
    Judged("kineto/control.json.gz", "kernels run for 60.5 % of the time, the exchange alone for 18.9 %; the device works for 83.5 %",
           lambda raw: 0.6 < _computing(raw) < 0.61 and 0.185 < _exchange(raw) < 0.195, ("6 ProfilerStep steps, median 76.8 ms", "device compute, 60.7 %"),
           ("host compute",), ("exposed-collectives",), (*_PYTORCH_FORBIDDEN, "idle-device", "python-between-steps", "launch-bound"), first="exposed-collectives"),
    Judged("kineto/resnet50.pt.trace.json.gz", "_SingleProcessDataLoaderIter.__next__ runs for 33.4 % of the time with the device idle, launching alone for 9 %",
           lambda raw: 0.33 < _alone(raw, raw.named("enumerate(DataLoader)"), "ProfilerStep#", raw.busiest()) < 0.34 and 0.55 < _computing(raw) < 0.56,
           ("6 ProfilerStep steps, median 177 ms", "device compute, 55.6 %"), ("host compute",), ("waiting-for-input", "launch-bound"), (*_PYTORCH_FORBIDDEN, "idle-device"),
           first="waiting-for-input"),
    Judged("judged/kineto-mi300-resnet-checkpointing.json.gz", "the device works for 97 % of the time; exchange alone 64 %",
           lambda raw: raw.busy("ProfilerStep#") > 0.96 and 0.63 < _exchange(raw) < 0.65, ("3 ProfilerStep steps, median 19.0 ms", "device collectives, 63.8 %"),
           ("host compute", "Python"), ("exposed-collectives",), (*_PYTORCH_FORBIDDEN, "python-between-steps", "idle-device", "launch-bound")),
    Judged("judged/kineto-mi210-kernels-only.json.gz", "562 kernels cover 86.2 % of what was recorded; not one op",
           lambda raw: raw.busiest().sum() == 562 and 0.86 < raw.covered(raw.busiest()) / raw.whole() < 0.865 and not raw.named("aten::").any(),
           ("No steps found", "device compute, 86.2 %"), ("host compute", "Python"), (), (*_PYTORCH_FORBIDDEN, "idle-device", "launch-bound"),
           ("tensorflow[and-cuda]", "no device", "profnb.step")),
    Judged("judged/kineto-mi300-timesformer.json.gz", "no op, no runtime call and no device work for 63.6 % of the step, in which Python's frames (image_transforms) are recorded",
           lambda raw: 0.63 < 1 - _of_device(raw, (raw.named("aten::", "hip") & ~raw.on_device) | raw.busiest(), "ProfilerStep#") < 0.64
           and _of_device(raw, raw.named("image_transforms"), "ProfilerStep#") > 0.39,
           ("1 ProfilerStep step, 391 ms", "all others, 63.6 %", "Python"), ("host compute",), ("idle-device",), (*_PYTORCH_FORBIDDEN, "launch-bound")),
    Judged("judged/kineto-sglang-decode.json.gz", "one hipMemcpyWithStream from the device (kind 2) blocks for 463 of 474 ms; the device works for 2 %",
           lambda raw: raw.longest("hipMemcpyWithStream") > 0.97 * raw.whole() and raw.covered(raw.busiest()) < 0.03 * raw.whole(),
           ("No steps found", "output, 97.7 %"), ("kernel launch", "host compute"), ("idle-device",), (*_PYTORCH_FORBIDDEN, "launch-bound", "synchronising-reads"), ("profnb.step",)),
    Judged("judged/kineto-h100-vit.json.gz", "the device works for 15.5 % of the step; ops and CUDA calls run for 56 % of it with the device idle",
           lambda raw: 0.15 < raw.busy("ProfilerStep#") < 0.16 and 0.55 < _alone(raw, raw.named("aten::", "cuda") & ~raw.on_device, "ProfilerStep#", raw.busiest()) < 0.57,
           ("1 ProfilerStep step, 7.89 ms", "kernel launch, 55.4 %"), ("host compute",), ("idle-device",), _PYTORCH_FORBIDDEN),
    Judged("chrome-other/horovod.json", "25 events of Horovod's negotiation cover 3.7 % of 9.3 s: nothing tells what the program did",
           lambda raw: len(raw.names) == 25 and raw.covered(raw.begin >= 0) < 0.04 * raw.whole(), ("No steps found", "nothing that could explain it was recorded"),
           ("Python", "host compute", "mostly"), (), ("unused-gpu", "idle-device", "python-between-steps"), ("profnb.step", "tf.data")),
    Judged("chrome-other/sagemaker-events.json", "661 events of tf.data, 0.1 % of 9.7 s: nothing tells what the program did", lambda raw: raw.covered(raw.begin >= 0) < 0.002 * raw.whole(),
           ("No steps found", "nothing that could explain it was recorded"), ("Python", "host compute", "mostly"), (), ("unused-gpu", "idle-device", "python-between-steps")),
]  # fmt: skip
