"""Record JAX and PyTorch on an accelerator: `python tests/device/backends.py OUT [SECONDS] [jax:NAME torch:NAME ...]`.

Each program runs as it is, inside `profnb.profile`, and inside the framework's own profiler. What comes back for each, in
OUT/FRAMEWORK-N.tar as soon as it is known: profnb's trace with what lies beside it, and NAME.json with what must agree with it:
steps against a counter, the wall clock without and with the capture, CUDA events, torch.profiler's own table, the bytes that the
program copied, peak memory by the framework, the board's energy counter. No program asserts; `tests/device/judge.py OUT` compares.
The programs of a framework share a process; one that hangs or dies ends it, and a fresh one goes on behind it. Without CUDA all
runs on the CPU with small sizes, so that nothing but CUDA is untried. Needs profnb, keras, and jax or torch.
"""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

SECONDS, OF_ONE, TRACED = 300, 75, 10
TAR_BYTES = 14_000_000  # a file of 16 MiB comes back
ALONE = ("torch:compile",)  # what changes its process for what comes after it


class Program:
    """A loop and what is known of it.

    Attributes:
        loop: Runs so many steps and ends when they are computed; adds the time to ``counted`` after each.
        steps: How many steps to time.
        traced: How many to trace.
        known: What must agree with what is recorded, per step.
        settings: Further options of the capture.
    """

    def __init__(self, loop, counted, steps=40, traced=TRACED, settings=None, **known):
        self.loop, self.counted, self.steps, self.traced = loop, counted, steps, traced
        self.settings, self.known = settings or {}, known


# What both frameworks run by Keras.


def keras_program(size, dtype="float32", pause=0.0, steps=40):
    import keras
    import numpy as np

    keras.config.set_dtype_policy(dtype)
    width, batch = (1024, 1024) if size else (64, 32)
    rng = np.random.default_rng(0)
    x, y = rng.random((batch, width)).astype("float32"), rng.integers(0, 10, batch)
    dense = [keras.layers.Dense(4 * width, activation="relu", name=f"hidden{at}") for at in range(3)]
    model = keras.Sequential([keras.Input((width,)), *dense, keras.layers.Dense(10, name="logits")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    counted = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            counted.append(time.perf_counter())

    def batches():
        while True:
            if pause:
                time.sleep(pause)
            yield x, y

    def loop(steps):
        model.fit(batches(), steps_per_epoch=steps, verbose=0, callbacks=[Count()])

    products = 2 * batch * (width * 4 * width + 2 * 16 * width * width + 40 * width)
    return Program(loop, counted, steps, h2d_bytes=x.nbytes + y.nbytes, forward_flops=products, dtype=dtype)


def keras_conv(size):
    import keras
    import numpy as np

    keras.config.set_dtype_policy("float32")
    batch, side = (256, 32) if size else (4, 8)
    rng = np.random.default_rng(0)
    x, y = rng.random((batch, side, side, 3)).astype("float32"), rng.integers(0, 10, batch)
    kinds = [keras.layers.Conv2D(64, 3, activation="relu", name="conv0"), keras.layers.MaxPooling2D(2, name="pool")]
    kinds += [keras.layers.Conv2D(128, 3, activation="relu", name="conv1"), keras.layers.BatchNormalization(name="norm")]
    model = keras.Sequential([keras.Input((side, side, 3)), *kinds, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, name="logits")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    counted = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            counted.append(time.perf_counter())

    def batches():
        while True:
            yield x, y

    def loop(steps):
        model.fit(batches(), steps_per_epoch=steps, verbose=0, callbacks=[Count()])

    return Program(loop, counted, 40 if size else 14, h2d_bytes=x.nbytes + y.nbytes)


KERAS = {
    "keras-conv": keras_conv,
    "keras32": keras_program,
    "keras16": lambda size: keras_program(size, "mixed_bfloat16"),
    "keras-input": lambda size: keras_program(size, pause=0.03, steps=25),
}


# PyTorch.


def torch_size(size):
    import torch

    return torch, torch.device("cuda" if size else "cpu"), torch.cuda.synchronize if size else lambda: None


def torch_loop(size, *, tf32=False, width=4096, batch=4096, depth=2, steps=40, traced=TRACED, reads=False, autocast=None, compiled=False):
    """Products that compute (or, small and many, do not), their optimizer, an own loop without marks."""
    torch, device, wait = torch_size(size)
    if not size:
        width, batch, steps = min(width, 64), min(batch, 64), 14
    torch.backends.cuda.matmul.allow_tf32 = tf32
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 16)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, foreach=False if depth > 10 else None)
    scaler = torch.amp.GradScaler(device.type, enabled=autocast == torch.float16 and bool(size))
    x, y = torch.rand(batch, width, device=device), torch.randint(0, 16, (batch,), device=device)
    loss_of, counted = torch.nn.CrossEntropyLoss(), []
    forward = torch.compile(model) if compiled else model

    def loop(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast(device.type, autocast, enabled=autocast is not None):
                loss = loss_of(forward(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if reads:
                loss.item()
            counted.append(time.perf_counter())
        wait()

    flops = 2 * batch * width * width * depth * 3 - 2 * batch * width * width + 2 * batch * width * 16 * 3
    return Program(loop, counted, steps, traced, product_flops=flops, h2d_bytes=0)


def torch_graph(size):
    """A whole training step, captured once and replayed."""
    torch, device, wait = torch_size(size)
    import profnb

    width = 256 if size else 32
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(20)], torch.nn.Linear(width, 16)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, foreach=False)
    x, y = torch.rand(64, width, device=device), torch.randint(0, 16, (64,), device=device)
    loss_of, counted = torch.nn.CrossEntropyLoss(), []

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss_of(model(x), y).backward()
        optimizer.step()

    replay = step
    if size:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay = graph.replay

    def loop(steps):
        for at in range(steps):
            with profnb.step(at):
                replay()
            counted.append(time.perf_counter())
        wait()

    return Program(loop, counted, 40 if size else 14, h2d_bytes=0)


def torch_loader(size, *, pinned):
    """A DataLoader: with workers and pinned memory, or with neither."""
    torch, device, wait = torch_size(size)
    from torch.utils.data import DataLoader, TensorDataset

    batch, width, steps = (512, 8192, 40) if size else (16, 64, 14)
    data = TensorDataset(torch.rand(batch * steps, width), torch.randint(0, 16, (batch * steps,)))
    many = {"num_workers": 2, "pin_memory": bool(size)} if pinned else {}
    loader = DataLoader(data, batch, **many)
    model = torch.nn.Sequential(torch.nn.Linear(width, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 16)).to(device)
    optimizer, loss_of, counted = torch.optim.Adam(model.parameters(), 0.001), torch.nn.CrossEntropyLoss(), []

    def loop(steps):
        for at, (x, y) in enumerate(loader):
            if at == steps:
                break
            x, y = x.to(device, non_blocking=pinned), y.to(device, non_blocking=pinned)
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
            counted.append(time.perf_counter())
        wait()

    return Program(loop, counted, steps, h2d_bytes=batch * width * 4 + batch * 8, batch_size=batch, pinned=pinned)


def torch_copies(size):
    """Copies in every direction, whose sizes are known: pageable and pinned, on the device, and setting memory."""
    torch, device, wait = torch_size(size)
    import profnb

    count = 16 << 20 if size else 1 << 10  # of float32: 64 MiB
    pageable, pinned = torch.rand(count), torch.rand(count)
    pinned = pinned.pin_memory() if size else pinned
    here, there, counted = torch.rand(count, device=device), torch.empty(count, device=device), []

    def loop(steps):
        for at in range(steps):
            with profnb.step(at):
                here.copy_(pinned, non_blocking=True)
                there.copy_(here)
                pinned.copy_(there, non_blocking=True)
                here.copy_(pageable)
                there.cpu()
                there.zero_()
            counted.append(time.perf_counter())
        wait()

    one = count * 4
    return Program(loop, counted, 20 if size else 14, h2d_bytes=2 * one, d2h_bytes=2 * one, d2d_bytes=one)


def torch_conv(size):
    torch, device, wait = torch_size(size)
    torch.backends.cudnn.benchmark = True
    batch, side = (256, 64) if size else (4, 16)
    channels = [3, 64, 128, 128]
    blocks = []
    for before, after in zip(channels, channels[1:]):
        blocks += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    model = torch.nn.Sequential(*blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels[-1], 10)).to(device)
    optimizer, loss_of, counted = torch.optim.AdamW(model.parameters()), torch.nn.CrossEntropyLoss(), []
    x, y = torch.rand(batch, 3, side, side, device=device), torch.randint(0, 10, (batch,), device=device)

    def loop(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
            counted.append(time.perf_counter())
        wait()

    flops = 2 * batch * side * side * 9 * sum(a * b for a, b in zip(channels, channels[1:]))
    return Program(loop, counted, 40 if size else 14, settings={"host_level": 3}, h2d_bytes=0, forward_flops=flops)


def torch_attention(size):
    """Two layers of a transformer in bfloat16, on own modules."""
    torch, device, wait = torch_size(size)
    batch, length, width = (16, 1024, 1024) if size else (2, 16, 32)
    dtype = torch.bfloat16 if size else torch.float32
    layers = [torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True) for _ in range(2)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 16)).to(device, dtype)
    optimizer, counted = torch.optim.AdamW(model.parameters(), fused=bool(size)), []
    x = torch.rand(batch, length, width, device=device, dtype=dtype)

    def loop(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).float().square().mean().backward()
            optimizer.step()
            counted.append(time.perf_counter())
        wait()

    products = 2 * batch * length * (12 * width * width + 2 * length * width)
    return Program(loop, counted, 30 if size else 14, settings={"host_level": 3}, h2d_bytes=0, forward_flops=2 * products)


def torch_lstm(size):
    torch, device, wait = torch_size(size)
    batch, length, width = (128, 200, 512) if size else (2, 5, 16)
    lstm, head = torch.nn.LSTM(width, width, 2, batch_first=True).to(device), torch.nn.Linear(width, 10).to(device)
    optimizer, counted = torch.optim.Adam([*lstm.parameters(), *head.parameters()]), []
    x, y, loss_of = torch.rand(batch, length, width, device=device), torch.randint(0, 10, (batch,), device=device), torch.nn.CrossEntropyLoss()

    def loop(steps):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss_of(head(lstm(x)[0][:, -1]), y).backward()
            torch.nn.utils.clip_grad_norm_(lstm.parameters(), 1.0)
            optimizer.step()
            counted.append(time.perf_counter())
        wait()

    return Program(loop, counted, 30 if size else 14, 5, h2d_bytes=0)


def torch_inference(size):
    """No gradients; steps by hand, and each result is read."""
    torch, device, wait = torch_size(size)
    import profnb

    width = 2048 if size else 32
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)]).to(device).eval()
    x, counted = torch.rand(256, width), []

    @torch.inference_mode()
    def loop(steps):
        for at in range(steps):
            with profnb.step(at, "predict"):
                model(x.to(device)).cpu()
            counted.append(time.perf_counter())
        wait()

    return Program(loop, counted, 40 if size else 14, h2d_bytes=x.nbytes, d2h_bytes=x.nbytes)


def torch_programs():
    import torch

    return {
        "loop32": lambda size: torch_loop(size, steps=150),
        "looptf32": lambda size: torch_loop(size, tf32=True),
        "launch": lambda size: torch_loop(size, width=64, batch=8, depth=30, traced=5),
        "sync": lambda size: torch_loop(size, width=2048, batch=512, reads=True),
        "autocast16": lambda size: torch_loop(size, autocast=torch.float16),
        "autocastbf": lambda size: torch_loop(size, autocast=torch.bfloat16),
        "copies": torch_copies,
        "loader": lambda size: torch_loader(size, pinned=False),
        "pinned": lambda size: torch_loader(size, pinned=True),
        "conv": torch_conv,
        "attention": torch_attention,
        "graph": torch_graph,
        "lstm": torch_lstm,
        "inference": torch_inference,
        **KERAS,
        "compile": lambda size: torch_loop(size, compiled=True, depth=4, width=1024, batch=1024),
    }


# JAX.


def jax_update(loss_of):
    import jax

    @jax.jit
    def update(weights, x):
        slopes = jax.grad(loss_of)(weights, x)
        return jax.tree.map(lambda weight, slope: weight - (0.001 * slope).astype(weight.dtype), weights, slopes)

    return update


def jax_loop(size, *, precision="highest", width=4096, batch=4096, depth=2, steps=40, reads=False, marks=True, feeds=False, dtype="float32"):
    import contextlib

    import jax
    import jax.numpy as jnp
    import numpy as np

    import profnb

    if not size:
        width, batch, steps = min(width, 64), min(batch, 64), 14
    data = np.random.default_rng(0).random((batch, width)).astype("float32")
    weights, counted = [jnp.eye(width, dtype=dtype) for _ in range(depth)], []
    x = jnp.asarray(data, dtype)

    def loss(weights, x):
        h = x
        for at, weight in enumerate(weights):
            with jax.named_scope(f"layer{at}"):
                h = jnp.tanh(jnp.matmul(h, weight, precision=precision))
        return jnp.mean(h.astype("float32"))

    update = jax_update(loss)

    def loop(steps):
        now = weights
        for at in range(steps):
            with profnb.step(at) if marks else contextlib.nullcontext():
                now = update(now, jax.device_put(data) if feeds else x)
                if reads:
                    float(now[0][0, 0])
            counted.append(time.perf_counter())
        jax.block_until_ready(now)

    flops = 2 * batch * width * width * (depth * 3 - 1)
    return Program(loop, counted, steps, product_flops=flops, h2d_bytes=data.nbytes if feeds else 0)


def jax_eager(size):
    """Many small programs: jnp without jit."""
    import jax
    import jax.numpy as jnp

    import profnb

    weights, x, counted = [jnp.eye(64) for _ in range(30)], jnp.ones((8, 64)), []

    def loop(steps):
        h = x
        for at in range(steps):
            with profnb.step(at):
                h = x
                for weight in weights:
                    h = jnp.tanh(h @ weight)
            counted.append(time.perf_counter())
        jax.block_until_ready(h)

    return Program(loop, counted, 40, 5, h2d_bytes=0)


def jax_copies(size):
    import jax
    import numpy as np

    import profnb

    count = 16 << 20 if size else 1 << 10
    data, counted = np.random.default_rng(0).random(count, "float32"), []
    double = jax.jit(lambda x: x * 2)

    def loop(steps):
        for at in range(steps):
            with profnb.step(at):
                np.asarray(double(jax.device_put(data)))
            counted.append(time.perf_counter())

    return Program(loop, counted, 20, h2d_bytes=count * 4, d2h_bytes=count * 4)


def jax_conv(size):
    import jax
    import jax.numpy as jnp
    import numpy as np

    import profnb

    batch, side = (256, 64) if size else (4, 16)
    channels = [3, 64, 128, 128]
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.random((3, 3, a, b)) / 100, "float32") for a, b in zip(channels, channels[1:])]
    x, counted = jnp.asarray(rng.random((batch, side, side, 3)), "float32"), []

    def loss(weights, x):
        for weight in weights:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return x.mean()

    update = jax_update(loss)

    def loop(steps):
        now = weights
        for at in range(steps):
            with profnb.step(at):
                now = update(now, x)
            counted.append(time.perf_counter())
        jax.block_until_ready(now)

    return Program(loop, counted, 30 if size else 14, h2d_bytes=0)


def jax_attention(size):
    import jax
    import jax.numpy as jnp
    import numpy as np

    import profnb

    batch, length, heads, depth = (16, 1024, 8, 128) if size else (2, 16, 2, 8)
    width, dtype = heads * depth, "bfloat16" if size else "float32"
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.random((width, 3 * width)) / width, dtype), jnp.asarray(rng.random((width, width)) / width, dtype)]
    x, counted = jnp.asarray(rng.random((batch, length, width)), dtype), []

    def loss(weights, x):
        q, k, v = (part.reshape(batch, length, heads, depth) for part in jnp.split(x @ weights[0], 3, -1))
        out = jax.nn.dot_product_attention(q, k, v).reshape(batch, length, width)
        return (out @ weights[1]).astype("float32").mean()

    update = jax_update(loss)

    def loop(steps):
        now = weights
        for at in range(steps):
            with profnb.step(at):
                now = update(now, x)
            counted.append(time.perf_counter())
        jax.block_until_ready(now)

    return Program(loop, counted, 30 if size else 14, h2d_bytes=0)


def jax_scan(size):
    """A loop inside of the program, a convolution and products: parts of it are graphs."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import profnb

    batch, length, width = (64, 50, 512) if size else (2, 4, 8)
    rng = np.random.default_rng(0)
    weights = {"filter": jnp.asarray(rng.random((3, width, width)) / width, "float32"), "cell": jnp.asarray(rng.random((width, width)) / width, "float32")}
    x, counted = jnp.asarray(rng.random((batch, length, width)), "float32"), []

    def loss(weights, x):
        with jax.named_scope("conv"):
            x = jax.lax.conv_general_dilated(x, weights["filter"], (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))

        def cell(state, x):
            with jax.named_scope("cell"):
                return jnp.tanh(state @ weights["cell"] + x), None

        return jax.lax.scan(cell, jnp.zeros((batch, width)), x.swapaxes(0, 1))[0].mean()

    update = jax_update(loss)

    def loop(steps):
        now = weights
        for at in range(steps):
            with profnb.step(at):
                now = update(now, x)
            counted.append(time.perf_counter())
        jax.block_until_ready(now)

    return Program(loop, counted, 30 if size else 14, 5, h2d_bytes=0)


def jax_programs():
    return {
        "loop32": lambda size: jax_loop(size, steps=60),
        "looptf32": lambda size: jax_loop(size, precision="default"),
        "unmarked": lambda size: jax_loop(size, precision="default", steps=20, marks=False),
        "loop16": lambda size: jax_loop(size, precision="default", dtype="bfloat16"),
        "launch": lambda size: jax_loop(size, width=64, batch=8, depth=30),
        "eager": jax_eager,
        "sync": lambda size: jax_loop(size, width=2048, batch=512, reads=True),
        "feed": lambda size: jax_loop(size, width=4096, batch=4096, feeds=True, precision="default"),
        "copies": jax_copies,
        "conv": jax_conv,
        "attention": jax_attention,
        "scan": jax_scan,
        **KERAS,
    }


# Running one.


def measure(framework, name, make, size, work):
    """What is known of one program, as JSON values; its trace is left in ``work``."""
    began = time.perf_counter()
    program = make(size)
    loop, counted, steps = program.loop, program.counted, program.steps
    loop(3)  # compiled, and warm
    told = {"framework": framework, "program": name, "steps": steps, "known": program.known, "ready_s": time.perf_counter() - began}
    told["plain_s"] = [timed(lambda: loop(steps)) for _ in range(2)]
    if framework == "torch" and size:
        import torch

        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        loop(steps)
        last.record()
        last.synchronize()
        told["cuda_events_ms"] = first.elapsed_time(last)
        torch.cuda.reset_peak_memory_stats()
    import profnb

    counted.clear()
    energy = board_energy()
    with profnb.profile(logdir=str(work), max_steps=program.traced, label=name, **program.settings) as p:
        told["captured_s"] = timed(lambda: loop(steps))
    told["board_mj"] = None if energy is None else board_energy() - energy
    told |= {"counted": len(counted), "ticks_ms": [(b - a) * 1000 for a, b in zip(counted, counted[1:])][:40], "has_trace": p.has_trace, "notes": list(p.notes)}
    told["memory"] = framework_memory(framework, size)
    told["plain_s"].append(timed(lambda: loop(steps)))
    if p.has_trace:
        told["summary"] = p.summary()
        told["advice"] = [(advice.rule, advice.title, advice.evidence) for advice in p.advice]
        told["energy"], told["system"] = p.energy.to_dict("records"), p.system.to_dict("records")
        told["devices"] = p.devices.to_dict("records")
        begin = time.perf_counter()
        p.to_html(str(work / "page.html"))
        told["page_s"] = time.perf_counter() - begin
    if framework == "torch":
        told["own"] = own_table(loop, program.traced)
    told["took_s"] = time.perf_counter() - began
    return told


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def own_table(loop, steps):
    """torch.profiler's own table of a run beside: rows of kernels by name, and the whole."""
    import torch

    with torch.profiler.profile() as own:
        wall = timed(lambda: loop(steps))
    rows = [row for row in own.key_averages() if row.self_device_time_total]
    kernels = [(row.key, row.self_device_time_total, row.count) for row in rows if str(row.device_type).endswith("CUDA")]
    ops = [(row.key, row.self_device_time_total, row.count) for row in rows if not str(row.device_type).endswith("CUDA")]
    by_time = lambda row: -row[1]
    return {"steps": steps, "wall_s": wall, "kernels": sorted(kernels, key=by_time), "ops": sorted(ops, key=by_time)}


def board_energy():
    """Millijoules that the board has drawn since its driver was loaded; None where it does not tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0))
    except Exception:
        return None


def framework_memory(framework, size):
    if not size:
        return {}
    if framework == "torch":
        import torch

        return {"peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}
    import jax

    return jax.devices()[0].memory_stats() or {}


def work_through(framework, names, out):
    """Run programs one after the other in this process; each one's results are in a tar before the next begins."""
    if framework == "torch":
        import torch

        size, programs = torch.cuda.is_available(), torch_programs()
        device = torch.cuda.get_device_name(0) if size else "cpu"
        version = torch.__version__
    else:
        import jax

        size, programs = jax.default_backend() != "cpu", jax_programs()
        device, version = str(jax.devices()[0].device_kind), jax.__version__
    for name in names:
        print("BEGIN", name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            try:
                told = measure(framework, name, programs[name], size, work)
            except Exception as error:
                import traceback

                told = {"framework": framework, "program": name, "error": f"{error!r}\n{traceback.format_exc()[-3000:]}"}
            told |= {"device": device, "version": version}
            keep(framework, told, work, out)
        print("DONE", name, flush=True)
        plain = min(told["plain_s"]) / told["steps"] * 1000 if "plain_s" in told else float("nan")
        headline = (told.get("summary") or told.get("error") or "no trace").splitlines()[0][:200]
        print(f"{framework:5} {name:12} {plain:8.3f} ms/step, {told.get('took_s', 0):5.1f} s in all; {headline}", flush=True)


def keep(framework, told, work, out):
    """Add a program's trace and what is known of it to the last tar that has room."""
    members = [(f"{told['program']}.json", json.dumps(told, default=str, indent=1).encode())]
    for path in sorted(work.glob("**/*")):
        if path.is_file() and not path.name.endswith((".html", ".trace.json.gz")):
            raw = path.read_bytes()
            packed = raw if path.suffix == ".gz" else gzip.compress(raw, 6)
            members.append((f"{path.name}{'' if path.suffix == '.gz' else '.gz'}", packed))
    size = sum(len(raw) + 1024 for _, raw in members)
    number = 0
    while (tar_path := out / f"{framework}-{number}.tar").exists() and tar_path.stat().st_size + size > TAR_BYTES:
        number += 1
    if size > TAR_BYTES or number > 1:  # at most 8 files come back
        members, tar_path = members[:1], out / f"{framework}-0.tar"
    with tarfile.open(tar_path, "a") as tar:
        for name, raw in members:
            member = tarfile.TarInfo(f"{framework}/{told['program']}/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))


def main():
    out = Path(sys.argv[1]).absolute()
    if sys.argv[2] == "--work":
        return work_through(sys.argv[3], sys.argv[4].split(","), out)
    out.mkdir(parents=True, exist_ok=True)
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    wanted = sys.argv[3:] or ["torch", "jax"]
    began, failed = time.monotonic(), []
    queue = []
    for one in wanted:
        framework, _, name = one.partition(":")
        names = [name] if name else None
        if names is None:
            code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import backends; print(','.join(backends.{framework}_programs()))"
            found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            if found.returncode:
                failed.append(f"{framework} cannot be imported: {found.stderr[-300:]}")
                continue
            names = found.stdout.strip().split(",")
        queue += [(framework, name) for name in names]
    while queue:
        framework = queue[0][0]
        batch = [queue.pop(0)[1]]
        while queue and queue[0][0] == framework and f"{framework}:{batch[-1]}" not in ALONE and f"{framework}:{queue[0][1]}" not in ALONE:
            batch.append(queue.pop(0)[1])
        left = seconds - (time.monotonic() - began)
        if left < 10:
            failed += [f"{framework} {name}: no time was left" for name in batch]
            continue
        done, died = run_batch(framework, batch, out, began + seconds)
        rest = batch[done:]
        if rest:
            failed.append(f"{framework} {rest[0]} {died}")
            queue = [(framework, name) for name in rest[1:]] + queue
    summary = {"seconds": time.monotonic() - began, "failed": failed}
    (out / "report.json").write_text(json.dumps(summary, indent=1))
    print(*failed, f"{summary['seconds']:.0f} s", sep="\n")
    return None


def run_batch(framework, names, out, until):
    """How many of them are done, and how the process ended."""
    environment = {
        **os.environ, "KERAS_BACKEND": framework, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    command = [sys.executable, __file__, str(out), "--work", framework, ",".join(names)]
    log = out / f"{framework}.log"
    log.touch()
    before = log.read_text().count("DONE ")
    with log.open("a") as target:
        running = subprocess.Popen(command, env=environment, stdout=target, stderr=target)
    done, latest = 0, time.monotonic()
    while running.poll() is None:
        time.sleep(0.1)
        now, count = time.monotonic(), log.read_text().count("DONE ") - before
        if count > done:
            done, latest = count, now
        if now - latest > OF_ONE or now > until:
            running.kill()
            running.wait()
            return done, f"was ended after {now - latest:.0f} s"
    return log.read_text().count("DONE ") - before, f"ended its process ({running.returncode})"


if __name__ == "__main__":
    main()
