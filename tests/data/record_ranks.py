"""Record two ranks of PyTorch (gloo) or JAX on this machine, the second of which sleeps 50 ms a step: tests/data/ranks.

    python tests/data/record_ranks.py torch FOLDER
    python tests/data/record_ranks.py jax FOLDER

Recorded with torch 2.15.0 and jax 0.10.2 on CPUs; what was planted is what the tests look for.
"""

import gzip
import lzma
import os
import subprocess
import sys
import time
from pathlib import Path

import profnb

SLEEP_S, STEPS = 0.05, 12


def run_torch(rank, port):
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.ones(32, 64), torch.ones(32, 1)

    def step():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        if rank:
            time.sleep(SLEEP_S)
        loss.backward()
        optimizer.step()

    return step


def run_jax(rank, port):
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("d",))
    local = np.ones((64, 256), "float32")
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("d")), local, (128, 256))
    weights = [jax.device_put(np.full((256, 256), 0.01, "float32"), NamedSharding(mesh, PartitionSpec()))]

    @jax.jit
    def train_step(w, x):
        return w - 1e-3 * jax.grad(lambda w: jnp.mean(jnp.square(jnp.tanh(x @ w) @ w)))(w)

    def step():
        if rank:
            time.sleep(SLEEP_S)
        weights[0] = train_step(weights[0], x).block_until_ready()

    return step


def run_rank(what, rank, port, logdir):
    step = {"torch": run_torch, "jax": run_jax}[what](rank, port)
    for _ in range(3):
        step()
    with profnb.profile(logdir=logdir):
        for number in range(STEPS):
            with profnb.step(number):
                step()


def record(what, folder):
    logdir, port = folder / "logs", 20_000 + os.getpid() % 10_000
    ranks = [subprocess.Popen([sys.executable, __file__, what, str(rank), str(port), str(logdir)], env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"})
             for rank in (0, 1)]  # fmt: skip
    assert [one.wait(timeout=300) for one in ranks] == [0, 0]
    for file in logdir.glob("plugins/profile/*/*_?.*"):
        if file.name.endswith(".pt.trace.json"):
            (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
        elif file.name.endswith(".xplane.pb"):
            (folder / f"jax_{file.name.rpartition('_')[2]}.xz").write_bytes(lzma.compress(file.read_bytes()))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        record(sys.argv[1], Path(sys.argv[2]))
    else:
        run_rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
