"""Memory on an accelerator: forecasts against its allocator, cells that it ends, and what fills it: `python tests/device/device_memory.py OUT torch`, or jax.

Each in a process of its own. A forecast is held against the allocator's peak of a batch eight times the largest that was tried. A cell
runs out of what a part of the device's memory gives: the exception must be the user's, and the report says who asked, and what to do.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from memory import models  # noqa: E402 - the same as on CPUs

TIMES, LIMIT_BYTES = 8, 16 << 30


def torch_step(name):
    import keras
    import torch

    model, (x,), y = models(keras)[name]()
    optimizer = torch.optim.Adam(list(model.parameters()))

    def step(x, y):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()

    device = next(iter(model.parameters())).device
    return step, tuple(torch.from_numpy(one).to(device) for one in (x, y)), lambda one, size: one.repeat(-(-size // 16), *[1] * (one.dim() - 1))[:size]


def jax_step(name):
    import jax
    import keras

    model, (x,), y = models(keras)[name]()
    weights, others = ([one.value for one in group] for group in (model.trainable_variables, model.non_trainable_variables))

    def loss_of(weights, x, y):
        return ((model.stateless_call(weights, others, x, training=True)[0] - y) ** 2).mean()

    @jax.jit
    def update(weights, x, y):
        return jax.tree.map(lambda one, gradient: one - 0.01 * gradient, weights, jax.grad(loss_of)(weights, x, y))

    def resized(one, size):
        return jax.numpy.asarray(np.resize(np.asarray(one), (size, *one.shape[1:])))

    return jax.jit(lambda x, y: update(weights, x, y)), (jax.numpy.asarray(x), jax.numpy.asarray(y)), resized


def allocated_peak(framework):
    if framework == "jax":
        import jax

        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


def run_batch(framework, step, batch):
    result = step(*batch)
    if framework == "jax":
        import jax

        jax.block_until_ready(result)
    return allocated_peak(framework)


def forecast(framework, name):
    import profnb

    step, batch, _ = {"torch": torch_step, "jax": jax_step}[framework](name)
    found = profnb.fits(step, batch, limit_bytes=LIMIT_BYTES)
    size = TIMES * int(found.table.batch_size.max())
    return {"batch": size, "forecast": float(found.peak_bytes(size)), "largest": found.largest_batch, "because": found.because}


def took(framework, name, size):
    """What a step takes that runs: of JAX's, without what XLA takes while it tries kernels, so it has tried them before."""
    step, batch, resized = {"torch": torch_step, "jax": jax_step}[framework](name)
    return {"measured": run_batch(framework, step, tuple(resized(one, int(size)) for one in batch))}


def ended(framework, name):
    """A cell that takes ever larger batches until there is no memory, under a bound of it."""
    import profnb

    step, batch, resized = {"torch": torch_step, "jax": jax_step}[framework](name)
    if framework == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(0.03)
    raised = ""
    try:
        with profnb.profile() as p:
            for at in range(10):
                run_batch(framework, step, tuple(resized(one, 256 << 2 * at) for one in batch))
    except Exception as error:
        raised = f"{type(error).__module__}.{type(error).__name__}: {str(error)[:300]}"
    return {
        "raised": raised,
        "summary": p.summary()[:3000],
        "advice": [(a.rule, a.title, a.evidence, a.code) for a in p.advice],
        "kinds": p.memory_kinds.to_string(),
        "notes": list(p.notes),
    }


def kinds(framework, name):
    """What fills the memory in a cell of healthy steps, beside what the allocator says at its end."""
    import profnb

    step, batch, resized = {"torch": torch_step, "jax": jax_step}[framework](name)
    large = tuple(resized(one, 4096) for one in batch)
    run_batch(framework, step, large)
    with profnb.profile() as p:
        for _ in range(20):
            peak = run_batch(framework, step, large)
    return {"kinds": p.memory_kinds.to_string(), "allocator": peak, "notes": list(p.notes), "summary": p.summary()[:1200]}


def child(*words, **more):
    settings = {**more, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "KERAS_BACKEND": words[1], "TF_CPP_MIN_LOG_LEVEL": "3", "PROFNB_HISTORY": "0"}
    if words[0] == "ended":
        settings |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.03"}
    done = subprocess.run([sys.executable, __file__, "--child", *map(str, words)], capture_output=True, text=True, timeout=90, env=os.environ | settings)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": done.stderr[-1500:]}


def main():
    if sys.argv[1] == "--child":
        what, *rest = sys.argv[2:]
        print(json.dumps({"forecast": forecast, "took": took, "ended": ended, "kinds": kinds}[what](*rest), default=str))
        return
    out, frameworks, told = Path(sys.argv[1]), sys.argv[2:], []
    out.mkdir(parents=True, exist_ok=True)
    for framework in frameworks:
        for what, name in (("ended", "dense"), ("kinds", "convolution")):
            row = child(what, framework, name)
            told.append({"framework": framework, "model": name, "what": what, **row})
            print(framework, what, name, flush=True)
            for key, value in row.items():
                print(f"  {key}: {value}", flush=True)
        for name in ("dense", "convolution", "normalised", "attention"):
            row = child("forecast", framework, name)
            if "error" not in row:
                tried = out / f"{name}.pbtxt"
                if framework == "jax":
                    row["while compiling"] = child("took", framework, name, row["batch"], XLA_FLAGS=f"--xla_gpu_dump_autotune_results_to={tried}").get("measured")
                    row |= child("took", framework, name, row["batch"], XLA_FLAGS=f"--xla_gpu_load_autotune_results_from={tried}")
                else:
                    row |= child("took", framework, name, row["batch"])
            told.append({"framework": framework, "model": name, **row})
            off = row["forecast"] / row["measured"] - 1 if row.get("measured") else float("nan")
            print(framework, name, f"{off:+.1%}", {key: value for key, value in row.items() if key != "because"}, flush=True)
    (out / f"memory-{'-'.join(frameworks)}.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
