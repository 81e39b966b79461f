"""Capture JAX and PyTorch on an accelerator: `python tests/device/backends.py OUT`, within ten minutes.

For each framework that is installed: a Keras fit and an own loop, in float32 and bfloat16, one input-bound and one launch-bound,
each in a process of its own. Two files come back: OUT/report.json, also on the terminal, has of each program the steps against a
counter, the wall clock of the loop with and without the capture, the device's busy time by profnb and by torch.profiler's own
table, source lines, the headline and the advice; OUT/traces.tar has the traces, packed (few steps, so that each may go into
tests/data; the largest are left out where all would be more than 15 MB, which is said). No program asserts: a person reads the
report. Needs profnb, keras, and jax or torch; without CUDA it runs on the CPU, so that nothing but CUDA is untried.
"""

import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

STEPS, TRACED, WIDTH, BATCH = 40, 10, 1024, 256
MOST_BYTES, MOST_SECONDS, MOST_OF_ONE = 15_000_000, 540, 90  # of ten minutes; 16 MiB come back
PROGRAMS = ("keras", "loop", "bf16", "input", "launch")


def run(framework, name, out):
    global STEPS, WIDTH, BATCH
    started = time.perf_counter()
    import numpy as np

    if framework == "jax":
        import jax

        devices = [str(device) for device in jax.devices() if device.platform != "cpu"]
    else:
        import torch

        devices = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    if not devices:  # a CPU would take its ten minutes for one of them
        STEPS, WIDTH, BATCH = 14, 128, 32
    make, counted = {"jax": of_jax, "torch": of_torch}[framework](name, np)
    make()  # compiled, and warm
    begin = time.perf_counter()
    make()
    plain = time.perf_counter() - begin
    import profnb

    counted.clear()
    with profnb.profile(logdir=str(out / f"{framework}-{name}"), max_steps=TRACED) as p:
        begin = time.perf_counter()
        make()
        traced = time.perf_counter() - begin
    told = {
        "framework": framework, "program": name, "devices": devices, "counted": len(counted), "plain_s": plain, "traced_s": traced,
        "notes": p.notes, "has_trace": p.has_trace,
    }  # fmt: skip
    if p.has_trace:
        lines = p.source_lines[["file", "line", "host_us", "device_us", "backward_us", "gradient_us"]]
        told |= {
            "step_times": p.step_times.groupby(["phase", "was_traced"]).size().reset_index(name="n").values.tolist(),
            "steps": p.steps.phase.value_counts().to_dict(), "headline": p.summary().splitlines()[0],
            "period_ms": float((p.steps.duration_ms + p.steps.gap_ms).median()), "plain_ms": plain / STEPS * 1000,
            "busy": p.devices.to_dict("records"), "kernels": p.kernels.head(8).to_dict("records"),
            "idle": p.idle.to_dict("records"), "layers": p.layers[["layer", "total_us", "fraction"]].head(12).to_dict("records"),
            "advice": [(advice.rule, advice.bound_fraction, advice.evidence) for advice in p.advice], "source_lines": lines.head(8).to_dict("records"),
            "batch_size": p.study.summary.batch_size, "seconds": time.perf_counter() - started,
        }  # fmt: skip
    if framework == "torch":
        import torch

        with torch.profiler.profile() as own:
            make()
        told["torch_table"] = [
            (row.key, row.self_device_time_total, row.count)
            for row in sorted(own.key_averages(), key=lambda row: -row.self_device_time_total)[:8]
        ]
    (out / f"{framework}-{name}.json").write_text(json.dumps(told, default=str))


def data_of(name, np):
    rng = np.random.default_rng(0)
    rows = BATCH if name != "launch" else 4
    x, y = rng.random((rows, WIDTH)).astype("float32"), rng.integers(0, 10, rows)

    def batches():
        for _ in range(STEPS):
            if name == "input":
                time.sleep(0.03)
            yield x, y

    return batches, x, y


def keras_fit(name, np, dtype="float32"):
    import keras

    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bf16" else "float32")
    batches, _, _ = data_of(name, np)
    model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(4 * WIDTH, activation="relu"), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    counted = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            counted.append(batch)

    return lambda: model.fit(batches(), steps_per_epoch=STEPS, verbose=0, callbacks=[Count()]), counted


def of_jax(name, np):
    if name in ("keras", "bf16", "input"):
        return keras_fit(name, np, name)
    import jax
    import jax.numpy as jnp

    batches, x, y = data_of(name, np)
    depth = 2 if name == "loop" else 30
    weights, counted = [jnp.asarray(np.eye(WIDTH, dtype="float32")) for _ in range(depth)], []

    @jax.jit
    def update(weights, x):
        def loss(weights):
            h = x
            for weight in weights:
                h = jnp.tanh(h @ weight)
            return jnp.mean(h)

        return [weight - 0.01 * slope for weight, slope in zip(weights, jax.grad(loss)(weights))]

    def loop():
        now = weights
        for x, _ in batches():
            now = update(now, x)
            counted.append(1)
        jax.block_until_ready(now)

    return loop, counted


def of_torch(name, np):
    if name in ("keras", "bf16", "input"):
        return keras_fit(name, np, name)
    import torch

    batches, x, y = data_of(name, np)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(2 if name == "loop" else 30)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10)).to(device)
    optimizer, loss_of, counted = torch.optim.SGD(model.parameters(), 0.01), torch.nn.CrossEntropyLoss(), []

    def loop():
        for x, y in batches():
            optimizer.zero_grad()
            loss_of(model(torch.as_tensor(x).to(device)), torch.as_tensor(y).to(device)).backward()
            optimizer.step()
            counted.append(1)
        if device == "cuda":
            torch.cuda.synchronize()

    return loop, counted


def pack(work, out):
    """The traces, small ones first, in one file; which were left out."""
    left_out, packed = [], 0
    with tarfile.open(out / "traces.tar", "w") as tar:
        traces = [*work.glob("**/*.xplane.pb"), *work.glob("**/*.pt.trace.json")]
        traces = [trace for trace in traces if (work / f"{trace.relative_to(work).parts[0]}.json").exists()]
        for trace in sorted(traces, key=lambda trace: trace.stat().st_size):
            small = trace.parent / f"{trace.name}.gz"
            small.write_bytes(gzip.compress(trace.read_bytes()))
            packed += small.stat().st_size
            name = trace.relative_to(work).parts[0]
            if packed > MOST_BYTES:
                left_out.append(name)
                continue
            tar.add(small, f"{name}/{small.name}")
            for beside in trace.parent.glob("*.json"):
                if beside != trace and beside.suffix == ".json":
                    tar.add(beside, f"{name}/{beside.name}")
    return left_out


def main():
    out = Path(sys.argv[1]).absolute()
    out.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        return run(sys.argv[2], sys.argv[3], out)
    began, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for framework in ("jax", "torch"):
            if subprocess.run([sys.executable, "-c", f"import {framework}"], capture_output=True).returncode:
                failed.append(f"{framework} is not installed: skipped")
                continue
            for name in PROGRAMS:
                left = MOST_SECONDS - (time.monotonic() - began)
                if left < 20:
                    failed.append(f"{framework} {name}: no time was left")
                    continue
                environment = {**os.environ, "KERAS_BACKEND": framework, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
                command = [sys.executable, __file__, str(work), framework, name]
                try:
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=min(MOST_OF_ONE, left))
                except subprocess.TimeoutExpired:
                    failed.append(f"{framework} {name} took longer than {min(MOST_OF_ONE, left):.0f} s: left out")
                    continue
                if done.returncode:
                    failed.append(f"{framework} {name} failed: {done.stderr[-1500:]}")
        told = [json.loads(file.read_text()) for file in sorted(work.glob("*-*.json"))]
        left_out = pack(work, out)
    (out / "report.json").write_text(json.dumps({"programs": told, "failed": failed, "traces_left_out": left_out}, indent=1))
    for one in told:
        print(one["framework"], one["program"], one["devices"], f"counted {one['counted']}", one.get("step_times"), one.get("headline"))
        print("   period", one.get("period_ms"), "ms against", one.get("plain_ms"), "ms without the capture", one.get("advice"), one["notes"][:2])
    print(*failed, f"traces left out: {left_out}", f"{time.monotonic() - began:.0f} s", sep="\n")
    return None


if __name__ == "__main__":
    main()
