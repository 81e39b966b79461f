"""Programs of PyTorch and JAX on an accelerator, run both ways: `python tests/device/gains.py OUT [NAME ...]`.

What the first advice promises of the cell, against what the change saves; a third has nothing to change. Each in a process of its own.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = {}


def program(*words):
    def add(make):
        PROGRAMS[make.__name__] = make, words
        return make

    return add


def torch_loop(model, batches, after=lambda loss: None, forward=None, autocast=False):
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    forward = forward or model

    def cell():
        for x, y in batches():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = torch.nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()
            after(loss)
        torch.cuda.synchronize()

    return cell


def mlp(width, depth):
    import torch

    layers = [part for _ in range(depth) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)).cuda()


def on_gpu(rows, width, steps):
    import torch

    x, y = torch.rand(rows, width, device="cuda"), torch.randint(0, 10, (rows,), device="cuda")
    return lambda: ((x, y) for _ in range(steps))


@program("DataLoader", "batch", "worker")
def a_loader_without_workers():
    import torch

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 1600

        def __getitem__(self, at):
            text = ",".join(str(v) for v in range(at % 7, 512 + at % 7))
            return torch.tensor([float(v) for v in text.split(",")]), at % 10

    def batches(**how):
        loader = torch.utils.data.DataLoader(Rows(), batch_size=32, **how)
        return lambda: ((x.cuda(), y.cuda()) for x, y in loader)

    model = mlp(512, 3)
    return torch_loop(model, batches()), torch_loop(model, batches(num_workers=8, persistent_workers=True))


@program("compile", "launch", "graph", "small")
def many_small_kernels():
    import torch

    model = mlp(64, 60)
    return torch_loop(model, on_gpu(64, 64, 80)), torch_loop(model, on_gpu(64, 64, 80), forward=torch.compile(model, mode="reduce-overhead"))


@program("TF32", "16", "precision", "matmul")
def large_products_in_fp32():
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    model = mlp(4096, 8)
    slow = torch_loop(model, on_gpu(4096, 4096, 30))

    def fast():
        torch.backends.cuda.matmul.allow_tf32 = True
        slow()
        torch.backends.cuda.matmul.allow_tf32 = False

    return slow, fast


@program("cop", "pin")
def pageable_batches():
    import torch

    model, x, y = mlp(2048, 2), torch.rand(16384, 2048), torch.randint(0, 10, (16384,))
    pinned = x.pin_memory(), y.pin_memory()
    slow = torch_loop(model, lambda: ((x.cuda(), y.cuda()) for _ in range(40)))
    return slow, torch_loop(model, lambda: ((pinned[0].cuda(non_blocking=True), pinned[1].cuda(non_blocking=True)) for _ in range(40)))


@program("own", "numbers", "make", "draw", "batches", "Python")
def batches_made_on_the_host():
    import torch

    model = mlp(1024, 2)

    def made():
        for _ in range(60):
            yield torch.randn(8192, 1024).cuda(), torch.randint(0, 10, (8192,)).cuda()

    def made_there():
        for _ in range(60):
            yield torch.randn(8192, 1024, device="cuda"), torch.randint(0, 10, (8192,), device="cuda")

    return torch_loop(model, made), torch_loop(model, made_there)


@program("look_at")
def an_own_function_between_the_steps():
    import numpy as np

    model = mlp(1024, 3)

    def look_at(loss):
        return [np.histogram(p.detach().cpu().numpy(), 100) for p in model.parameters()]

    return torch_loop(model, on_gpu(512, 1024, 30), look_at), torch_loop(model, on_gpu(512, 1024, 30))


@program()
def a_large_model_in_bf16():
    model = mlp(8192, 8)
    return torch_loop(model, on_gpu(8192, 8192, 20), autocast=True), None


@program()
def reading_the_loss_of_a_large_model():
    model = mlp(8192, 6)
    cell = torch_loop(model, on_gpu(8192, 8192, 20), lambda loss: loss.item(), autocast=True)
    return cell, torch_loop(model, on_gpu(8192, 8192, 20), autocast=True)


@program("jit")
def a_jax_loop_without_jit():
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 12)
    weights = [jax.random.normal(key, (256, 256)) / 16 for key in keys]
    x = jnp.ones((128, 256))

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    def step(weights, x):
        return [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights, x))]

    fast = jax.jit(step)

    def run(step):
        now = weights
        for _ in range(60):
            now = step(now, x)
        jax.block_until_ready(now)

    return lambda: run(step), lambda: run(fast)


@program()
def a_large_jax_step():
    import jax
    import jax.numpy as jnp

    w, x = jnp.ones((8192, 8192), jnp.bfloat16), jnp.ones((8192, 8192), jnp.bfloat16)
    step = jax.jit(lambda w, x: w + 1e-6 * (x.T @ jnp.tanh(x @ w)))

    def run():
        now = w
        for _ in range(60):
            now = step(now, x)
        jax.block_until_ready(now)

    return run, None


def child(name, is_captured, out):
    cell, changed = PROGRAMS[name][0]()

    def wall(function):
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    for function in (cell, changed):
        if function is not None:
            wall(function)
    if not is_captured:
        times = [(wall(cell), wall(changed) if changed else None) for _ in range(3)]
        best = min(a for a, _ in times)
        return {"wall": best, "changed": min(b for _, b in times) if changed else best}
    import profnb

    with profnb.profile(logdir=f"{out}/{name}") as p:
        cell()
    tree = p.cell_tree
    return {
        "advice": [
            {"rule": a.rule, "title": a.title, "evidence": a.evidence, "code": a.code, "low": a.saves_ms[0] / a.wall_ms, "high": a.bound_fraction}
            for a in p.advice
        ],
        "tree": [
            f"{'  ' * r.depth}{r.kind} {r.name} x{r.occurrences:.0f} {r.wall_ms:.0f} self {r.self_ms:.0f}" for r in tree[tree.fraction > 0.02].itertuples()
        ],
        "steps": p.step_times.groupby("was_traced").wall_ms.median().to_dict() if len(p.step_times) else {},
        "summary": p.summary()[:1500],
    }


def run(name, how, out):
    done = subprocess.run([sys.executable, __file__, "--child", how, name, str(out)], capture_output=True, text=True, timeout=150)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": done.stderr[-800:]}


def main():
    if sys.argv[1] == "--child":
        print(json.dumps(child(sys.argv[3], sys.argv[2] == "capture", sys.argv[4]), default=str))
        return
    out, told = Path(sys.argv[1]), {}
    for name in sys.argv[2:] or PROGRAMS:
        times, promise = run(name, "time", out), run(name, "capture", out)
        told[name] = {"times": times, "promise": promise}
        out.mkdir(parents=True, exist_ok=True)
        (out / "gains.json").write_text(json.dumps(told, indent=1))
        if "error" in times or "error" in promise:
            print(name, times.get("error", ""), promise.get("error", ""), flush=True)
            continue
        saved = 1 - times["changed"] / times["wall"]
        first = promise["advice"][0] if promise["advice"] else None
        said = f"{first['rule']} {first['low']:.0%} to {first['high']:.0%}" if first else "nothing"
        words = PROGRAMS[name][1]
        names = bool(first) and any(w.lower() in json.dumps(first).lower() for w in words)
        print(f"{name}: {times['wall']:.3f} s, saves {saved:.0%}; first {said}; {'named' if names else 'not named' if words else ''}", flush=True)
        for one in promise["advice"][:4]:
            print("    ", one["rule"], "|", one["title"], "|", f"{one['low']:.0%} to {one['high']:.0%}", flush=True)
        print("     steps", promise["steps"])


if __name__ == "__main__":
    main()
