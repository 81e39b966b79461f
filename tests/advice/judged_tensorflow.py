"""TensorFlow's real traces, each read whole against its raw events on 2026-11-22: what is true of it, and why."""

from judged import Judged

# The Keras CNN on one GPU (cc 7.5): the host launches 180 kernels a step, most of them shorter than their launch.
_CNN_NEVER = ("host compute", "Python", "all others", "not TensorFlow")
_CNN_FORBIDDEN = ("mixed-precision", "missed-tensor-cores", "gpu-thread-mode", "unused-gpu", "imbalance", "idle-device", "waiting-for-input", "large-optimizer")
_UNUSED = "This training does not use the GPU"


def _cnn(path, because, fact, advice=("larger-batch",)):
    """A run of the CNN: a larger batch adds to larger kernels where these leave enough of launching."""
    more = () if path.endswith(".json.gz") else advice  # how much memory the device has is not in the JSON
    return Judged(
        path, because, fact, ("19 train steps", "kernel launch"), _CNN_NEVER, ("launch-bound", *more), _CNN_FORBIDDEN, ("CUPTI", "No steps"),
        first="launch-bound",
    )  # fmt: skip


def _launches(low, high, threads):
    """Whether launching is such a share of the time, and done by so many threads."""
    return lambda raw: low < raw.launching("train", "Memcpy", "IteratorGetNext") < high and len(raw.threads_that_launch()) == threads


def _idle_while_it_moves(raw):
    steps, within = raw.steps("train")
    return raw.alone(raw.named("MemcpyH2D"), raw.busiest() & ~raw.copies(), within=within) > 0.1 * (within[1] - within[0])


ROWS = [
    *(
        _cnn(f"gpu-cnn-batch512/{file}", "launching with the device idle and nothing copied 39 %, kernels 38 %; the batch moves while nothing computes "
             "14 %; 15 threads of tf_Compute launch", lambda raw: _launches(0.37, 0.41, 15)(raw) and _idle_while_it_moves(raw), ("copying-input",))
        for file in ("host.xplane.pb", "host.trace.json.gz")
    ),
    *(
        _cnn(f"gpu-cnn-batch128/{file}", "launching 48 %, kernels 32 %; two threads of tf_gpu_private launch", _launches(0.46, 0.5, 2))
        for file in ("host.xplane.pb", "host.trace.json.gz")
    ),
    *(
        _cnn(f"gpu-cnn-batch8/{file}", "launching 66 %, kernels 15 %; two threads of tf_gpu_private launch", _launches(0.64, 0.69, 2))
        for file in ("host.xplane.pb", "host.trace.json.gz")
    ),
    _cnn("gpu-cnn-pairs/batch32-fp32-global-a.xplane.pb", "launching 55 %, kernels 16 %; 8 threads of tf_Compute launch", _launches(0.53, 0.57, 8)),
    _cnn("gpu-cnn-pairs/batch32-fp32-global-b.xplane.pb", "launching 63 %, kernels 17 %; 8 threads of tf_Compute launch", _launches(0.61, 0.65, 8)),
    _cnn("gpu-cnn-pairs/batch32-fp32-private-a.xplane.pb", "launching 52 %, kernels 20 %; 2 threads of tf_gpu_private", _launches(0.5, 0.54, 2)),
    _cnn("gpu-cnn-pairs/batch32-fp32-private-b.xplane.pb", "launching 52 %, kernels 20 %; 2 threads of tf_gpu_private", _launches(0.5, 0.54, 2)),
    _cnn("gpu-cnn-pairs/batch32-mixed-global.xplane.pb", "launching 63 %, kernels 15 %; 12 threads of tf_Compute launch", _launches(0.6, 0.65, 12)),
    _cnn("gpu-cnn-pairs/batch32-mixed-private.xplane.pb", "launching 59 %, kernels 23 %; 2 threads of tf_gpu_private", _launches(0.57, 0.61, 2)),
    _cnn("gpu-cnn-pairs/batch64-fp32-global.xplane.pb", "launching 51 %, kernels 23 %; 8 threads of tf_Compute launch", _launches(0.49, 0.53, 8)),
    *(
        Judged(path, "no event on the GPU, no correlation id; convolutions run on host threads for 75 to 81 % of the time",
               lambda raw: not raw.on_device.any() and not len(raw.trace.stats.integers("correlation_id"))
               and raw.covered(raw.named("Conv2D"), within=raw.steps("train")[1]) > 0.7 * (raw.steps("train")[1][1] - raw.steps("train")[1][0]),
               (_UNUSED, "19 train steps", "host compute, 98."), ("kernel launch", "mixed precision"), ("unused-gpu",),
               ("larger-batch", "idle-device", "mixed-precision"), ("CUPTI", "No steps"), first="unused-gpu")
        for path in ("gpu-plane-empty/host.xplane.pb", "gpu-plane-empty/host.trace.json.gz", "judged/tf-trains-on-the-cpu-fp32.xplane.pb")
    ),
    Judged("gpu-v100x8-bert/host0.xplane.pb", "in the 669 ms of the step the devices run for 15 ms each, any host thread but those of the input for 6 %",
           lambda raw: raw.covered(~raw.on_device & ~raw.named("Prefetch", "IteratorGet"), within=(1_921_061_912_000, 2_589_928_037_000)) < 0.07 * 669e9,
           ("1 step, 669 ms", "/device:GPU:6", "nothing that could explain it was recorded"), ("Python", "host compute"), ("idle-device",),
           ("imbalance", "launch-bound", "gpu-thread-mode", "larger-batch", "mixed-precision"), ("CUPTI",)),
    Judged("gpu-windows/host.xplane.pb", "from 224 to 1,184 ms the host shows a few deletions of tensors: 3.4 % of the step has any host event, 2.8 % device work",
           lambda raw: raw.covered(~raw.on_device, within=(192_457_344_000, 1_184_670_003_000)) < 0.04 * 992e9,
           ("1 step, 992 ms", "nothing that could explain it was recorded"), ("Python", "host compute"), ("idle-device",),
           ("launch-bound", "gpu-thread-mode", "mixed-precision", "larger-batch"), ("CUPTI",)),
    Judged("judged/tf1-gpu-one-run.json", "one op, layer_1/fully_connected/MatMul, takes 112.8 of 114.2 ms to launch, the device works for 0.7 %",
           lambda raw: raw.longest("layer_1/fully_connected/MatMul") > 0.98 * raw.whole() and raw.covered(raw.busiest()) < 0.01 * raw.whole(),
           ("1 session_run step, 114 ms", "kernel launch, 99.1 %"), ("host compute", "median"), ("idle-device",), ("launch-bound", "larger-batch"), first="idle-device"),
    Judged("judged/tf1-tfrecords-input.json", "IteratorGetNext alone takes 16.5 of 51.8 ms with the device idle, more than anything else",
           lambda raw: 0.31 < raw.alone(raw.named("IteratorGetNext") & ~raw.on_device, raw.busiest()) / raw.whole() < 0.32,
           ("1 session_run step, 51.8 ms", "input, 31.9 %"), ("median", "Python"), ("waiting-for-input",), ("idle-device", "launch-bound"), first="waiting-for-input"),
    Judged("tf1-timeline/conv-relation-gpu.json", "one op, conv-5/Conv2D, takes 434 of 502 ms to launch; IteratorGetNext 8.1 %; the device works for 3.5 %",
           lambda raw: raw.longest("conv-5/Conv2D:Conv2D") > 0.86 * raw.whole() and raw.covered(raw.busiest()) < 0.04 * raw.whole(),
           ("1 session_run step, 502 ms", "kernel launch, 87.8 %"), ("host compute",), ("idle-device",), ("launch-bound",), first="idle-device"),
    Judged("tf1-timeline/kittibox-gpu.json", "one op, conv1_1/Conv2D, takes 2.42 of 4.35 s to launch; the device works for 42.5 %",
           lambda raw: raw.longest("Validation/conv1_1/Conv2D") > 0.55 * raw.whole() and 0.42 < raw.covered(raw.busiest()) / raw.whole() < 0.43,
           ("1 session_run step, 4.35 s", "kernel launch, 57.1 %"), ("host compute",), ("idle-device",), ("launch-bound", "mixed-precision"), first="idle-device"),
    Judged("tf1-timeline/deeprm-cpu.json", "ops run for 91.5 % of 1.71 ms; the optimizer's longest is one ApplyAdam, which is fused already",
           lambda raw: 0.91 < raw.covered(raw.named(":")) / raw.whole() < 0.92 and raw.longest("ApplyAdam") > 0.18 * raw.whole(),
           ("1 session_run step, 1.71 ms", "host compute, 91.5 %"), ("Python",), (), ("large-optimizer", "unused-gpu", "python-between-steps")),
    Judged("tf1-timeline/resnet50-cpu-merged.json", "100 runs, 50 of 5.5 and 50 of 859 ms in turns; ops run for 95.7 % of the whole, 99.8 % of the long runs, 98.9 % with the gaps behind them",
           lambda raw: raw.named("_SOURCE").sum() == 100 and raw.covered(raw.named(":")) > 0.95 * raw.whole(),
           ("50 session_run (2) steps, median 859 ms", "host compute, 98.9 %"), ("Python",), (), ("python-between-steps", "large-optimizer", "unused-gpu")),
    Judged("run-metadata/gpu.run_metadata.pb", "one Conv2D takes 4.08 of 4.75 ms to launch, the device works for 8.6 %",
           lambda raw: raw.longest("Conv2D:Conv2D") > 0.85 * raw.whole() and 0.08 < raw.covered(raw.busiest()) / raw.whole() < 0.09,
           ("1 session_run step, 4.75 ms", "kernel launch, 88.7 %"), ("host compute",), ("idle-device",), ("launch-bound",), first="idle-device"),
    Judged("run-metadata/cpu.run_metadata.pb", "ops run for 109 of 127 us", lambda raw: 0.85 < raw.covered(raw.named(":")) / raw.whole() < 0.86,
           ("1 session_run step, 127 µs", "host compute, 85.8 %"), ("Python",), (), ("large-optimizer", "idle-device", "unused-gpu")),
]  # fmt: skip
