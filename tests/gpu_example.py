"""A training on a GPU, built by hand: what tests/data/golden says of it can be recomputed from here.

126 train steps, one every 10 ms, of 8.5, 9 and 9.5 ms in turn, but every 16th 9.8 ms; then 3 test steps of 4 ms, one
every 5 ms. The first 3 train steps are warm-up. The device is a T4. In each train step, from its begin:

    host    0.2-1.2 ms  waiting for the next element of tf.data
            1.3, 2.3, 5.3 ms  launches of 10 us; 6.3-6.6 ms  launching the XLA program; 7.6-8.4 ms  waiting for a copy
    device  stream 13:  1.5-5 ms  a product in tensor cores, XLA's dot.1 (in every 4th step until 5.5 ms)
                        5.6-6.2 ms  a convolution's gradient outside them, 6.4-6.405 ms  Relu, 7-7.4 ms  XLA's fusion.1
            stream 14:  0.5-1.4 ms  3.6 MB from pageable memory, 3-3.1 ms  2 MB within the device, 7.7-7.9 ms  4 kB back

The first step compiles the program from 1.4 to 6.4 ms; each allocates 8 MB beside 20 MB that stay.
"""

from programs import BF16, F32, dot, metadata_plane, op, parameter, program, shape
from traces import event, gpu, host, line, read, ref

from profnb.capture.recording import Recording
from profnb.capture.step_records import KERAS, StepRecords
from profnb.core.options import CaptureOptions
from profnb.profile import Profile

US, MS, MB = 10**6, 10**9, 10**6
TRAIN, TEST, WARM_UP = 126, 3, 3
T4 = {"clock_rate": 1_590_000, "core_count": 40, "memory_bandwidth": 320_064_000_000, "compute_cap_major": 7,
      "compute_cap_minor": 5, "memory_size": 16 * 10**9}  # fmt: skip
SHAPE = "regs:96 static_shared:0 dynamic_shared:3332 grid:4,1,1 block:256,1,1 occ_pct:50"
PROGRAM = program(
    "jit_step",
    {
        "fused": [
            parameter("p0", 0, shape(F32, 64, 256)),
            op("relu.1", "maximum", shape(F32, 64, 256), "p0", "p0", op_name="model/relu/Relu", op_type="Relu"),
            op("add.1", "add", shape(F32, 64, 256), "relu.1", "p0", op_name="model/add/AddV2", op_type="AddV2"),
        ],
        "main": [
            parameter("a", 0, shape(BF16, 64, 128)), parameter("b", 1, shape(BF16, 128, 256)),
            dot("dot.1", shape(F32, 64, 256), "a", "b", op_name="model/dense/MatMul", op_type="MatMul", source=("/home/user/model.py", 12)),
            op("fusion.1", "fusion", shape(F32, 64, 256), "dot.1", calls=("fused",)),
        ],
    },
    "main", {"fused"}, [(49152, 5), (65536, 7), (65536,)],
)  # fmt: skip


def begin_of(number):
    return number * 10 * MS if number < TRAIN else TRAIN * 10 * MS + (number - TRAIN) * 5 * MS


def duration_of(number):
    return 9800 * US if number % 16 == 15 else (8500 + 500 * (number % 3)) * US


def markers():
    train = [event("train", begin_of(at), duration_of(at), step_num=at, _r=1, batch_size=32) for at in range(TRAIN)]
    return train + [event("test", begin_of(TRAIN + at), 4 * MS, step_num=at, _r=1) for at in range(TEST)]


def launched(number):
    """What runs on stream 13, in microseconds: when it is launched, how long that takes, begin, duration, name, stats."""
    xla = {"hlo_module": "jit_step", "program_id": 3}
    return [
        (1300, 10, 1500, 4000 if number % 4 == 3 else 3500, "turing_fp16_s884gemm_fp16_64x64_ldg8_f2f_nn", {"hlo_op": "dot.1", **xla}),
        (2300, 10, 5600, 600, "cudnn::cnn::wgrad2d_float", {"tf_op": ref("gradient_tape/model/conv/Conv2DBackpropFilter:Conv2DBackpropFilter"), "kernel_details": ref(SHAPE)}),
        (5300, 10, 6400, 5, "void Eigen::relu_kernel<float>(float*)", {"tf_op": ref("model/conv/Relu:Relu"), "kernel_details": ref(SHAPE)}),
        (6300, 300, 7000, 400, "loop_add_fusion", {"hlo_op": "fusion.1", **xla}),
    ]  # fmt: skip


def built_trace():
    python, calls, kernels, copies = [], [], [], []
    for at in range(TRAIN):
        begin = begin_of(at)
        python.append(event("IteratorGetNext:IteratorGetNext", begin + 200 * US, MS))
        for number, (call, spent, start, duration, name, stats) in enumerate(launched(at)):
            calls.append(event("cuLaunchKernel", begin + call * US, spent * US, correlation_id=at * 10 + number))
            kernels.append(event(name, begin + start * US, duration * US, correlation_id=at * 10 + number, **stats))
        calls.append(event("cuStreamSynchronize", begin + 7600 * US, 800 * US))
        for name, start, duration, kinds in (
            ("MemcpyH2D", 500, 900, "kind_src:pageable kind_dst:device size:3600000"), ("MemcpyD2D", 3000, 100, "kind_src:device kind_dst:device size:2000000"),
            ("MemcpyD2H", 7700, 200, "kind_src:device kind_dst:pinned size:4096"),
        ):  # fmt: skip
            copies.append(event(name, begin + start * US, duration * US, memcpy_details=ref(f"{kinds} dest:0 async:1")))
    for at in range(TEST):
        kernels.append(event("volta_sgemm_32x32", begin_of(TRAIN + at) + MS, 2 * MS, tf_op=ref("model/dense/MatMul:MatMul")))
    compiling = [event("GpuCompiler::Compile", begin_of(0) + 1400 * US, 5 * MS, name="jit_step")]
    return read(
        metadata_plane(jit_step=(3, PROGRAM)),
        host(line("python", *markers(), *python), line("launcher", *calls, line_id=2), line("compiler", *compiling, line_id=3),
             line("allocations", *allocations(), line_id=4)),
        gpu(line("Stream #13(compute)", *kernels), line("Stream #14(copies)", *copies, line_id=2), stats=T4),
        hostnames=["trainer"],
    )  # fmt: skip


def allocations():
    """Beside 20 MB from before the trace, 8 MB of activations from 1.5 to 6 ms of each train step."""
    made = []
    for at in range(TRAIN):
        for name, time, held in (("MemoryAllocation", 1500, 28 * MB), ("MemoryDeallocation", 6000, 20 * MB)):
            made.append(event(
                name, begin_of(at) + time * US, 0, allocator_name="GPU_0_bfc", bytes_allocated=held, bytes_available=100 * MB - held,
                bytes_reserved=0, allocation_bytes=8 * MB, addr=1, fragmentation=0.25, peak_bytes_in_use=28 * MB, region_type="output",
                data_type=1, shape="[32,62500]", tf_op=ref("model/conv/Conv2D:Conv2D"),
            ))  # fmt: skip
    return made


def built_profile():
    """The trace, and three runs of the same code without one, whose steps come every 7, 8 and 12 ms."""
    profile = Profile(built_trace(), options=CaptureOptions(warmup_steps=WARM_UP))
    for period_ns in (7_000_000, 8_000_000, 12_000_000):
        steps = StepRecords(names=["train"])
        for at in range(12):
            steps.append(at * period_ns, at * period_ns + 6_000_000, 0, steps.kinds.index(KERAS), 0, 0, 1, at, 0)
        profile.repeats.append(Recording(steps=steps))
    return profile
