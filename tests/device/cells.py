"""Run cells of a notebook on an accelerator: `python tests/device/cells.py OUT torch`, or jax.

What the magics show comes back in OUT/FRAMEWORK-cells.txt: the text of each cell's outputs. Beside a GPU: a loop that uses it, one
that does not, a comparison of two labels, the timeline, a trace that is kept and opened again.
"""

import io
import os
import sys
import traceback
from pathlib import Path

TORCH = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
def train(device, steps, width=512):
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)).to(device)
    optimizer, loss_of = torch.optim.Adam(model.parameters()), torch.nn.CrossEntropyLoss()
    x, y = torch.rand(256, width, device=device), torch.randint(0, 10, (256,), device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
train(device, 3)
"""
JAX = """
import jax, jax.numpy as jnp
device = jax.devices()[0]
@jax.jit
def update(w, x):
    return w - 0.01 * jax.grad(lambda w: jnp.tanh(x @ w).mean())(w)
def train(device, steps, width=512):
    device = jax.devices("cpu")[0] if device == "cpu" else device
    w, x = (jax.device_put(jnp.ones((width, width)), device) for _ in range(2))
    for _ in range(steps):
        w = update(w, x)
    jax.block_until_ready(w)
train(device, 3)
"""
CELLS = (
    "%%tfprofile -o used\ntrain(device, 30)",
    "%%tfprofile -q -o beside\ntrain('cpu', 30, 256)",
    "print(beside.summary()[:1500])",
    "%%tfprofile -q --label small --repeat 2\ntrain(device, 30)",
    "%%tfprofile --label large --repeat 2 --vs small\ntrain(device, 30, 2048)",
    "%%tftimeline -n 3\ntrain(device, 10)",
    "%%tfprofile -q -d kept -o saved\ntrain(device, 10)",
    "import profnb\nagain = profnb.load('kept')\nprint(again.summary()[:600])\nprint(again.kernels.occurrences.sum(), saved.kernels.occurrences.sum())",
    "used.save('written'); print(profnb.load('written').summary()[:300]); used.to_html('page.html')",
)


def main():
    out, framework = Path(sys.argv[1]).absolute(), sys.argv[2]
    out.mkdir(parents=True, exist_ok=True)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    os.chdir(out)
    shell.run_line_magic("load_ext", "profnb")
    written = io.StringIO()
    for cell in ({"torch": TORCH, "jax": JAX}[framework], *CELLS):
        written.write(f"\n=== {cell.strip().splitlines()[0]}\n")
        with capture_output() as shown:
            result = shell.run_cell(cell)
        written.write(shown.stdout[-6000:] + shown.stderr[-2000:])
        for output in shown.outputs:
            written.write(str(output.data.get("text/plain", sorted(output.data)))[:6000] + "\n")
        if not result.success:
            written.write("".join(traceback.format_exception(result.error_in_exec or result.error_before_exec))[-3000:])
    (out / f"{framework}-cells.txt").write_text(written.getvalue())
    print(written.getvalue()[-9000:])


if __name__ == "__main__":
    main()
