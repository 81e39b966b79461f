"""What torch.compile does under a capture, and the tree of a cell, on an accelerator: `python tests/device/compiled.py OUT`.

Each program runs without a capture and with one, in a process of its own: as often compiled, in as many pieces, and nothing anew behind it.
Then what the capture says: the headline, layers, the tree, and the device's time by the tree against a clock of CUDA events.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def model_of(width=1024):
    layers = [part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)).to(DEVICE)


def loop(model, forward, steps=40, rows=512, width=1024):
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    x, y = torch.rand(rows, width, device=DEVICE), torch.randint(0, 10, (rows,), device=DEVICE)

    def cell():
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(forward(x), y).backward()
            optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return cell


def program(name):
    model = model_of()
    forward = {"eager": lambda: model, "module": lambda: torch.compile(model), "in place": lambda: (model.compile(), model)[1],
               "fewer launches": lambda: torch.compile(model, mode="reduce-overhead")}[name]()  # fmt: skip
    return loop(model, forward)


def child(name, is_captured):
    from torch._dynamo.utils import counters

    cell = program(name)
    told = {}
    if is_captured:
        import profnb

        with profnb.profile() as p:
            cell()
    else:
        cell()
    counts = [dict(counters["stats"]), sum(counters["graph_break"].values())]
    began = time.perf_counter()
    cell()
    warm_s = time.perf_counter() - began
    behind = [dict(counters["stats"]), sum(counters["graph_break"].values())]
    if is_captured:  # once more, compiled by now
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2)) if DEVICE == "cuda" else (None, None)
        with profnb.profile(max_steps=15) as p:
            if begin:
                begin.record()
            cell()
            if end:
                end.record()
        if end:
            torch.cuda.synchronize()
        tree = p.cell_tree
        rows = tree[tree.fraction > 0.005]
        told = {
            "summary": p.summary()[:1500], "layers": p.layers.iloc[:, :6].to_string(), "advice": [(a.rule, a.bound_fraction) for a in p.advice],
            "tree": [f"{row.fraction:6.1%} {'  ' * row.depth}{row.kind} {row.name} {row.line} {row.occurrences:.0f}" for row in rows.itertuples()],
            "launch": str(p.what_if(launch=0)), "device": str(p.what_if(device=0.5)), "untraced ms": warm_s * 1e3,
            "cell ms": float(tree.wall_ms[0]), "between CUDA events ms": begin.elapsed_time(end) if begin else None,
            "steps": p.step_times.groupby("was_traced").wall_ms.median().to_dict(), "notes": p.notes[:6],
        }  # fmt: skip
    print(json.dumps({"counts": counts, "behind": behind, **told}))


def main():
    if sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3] == "captured")
        return
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in ("eager", "module", "in place", "fewer launches"):
        found = {}
        for how in ("plain", "captured"):
            done = subprocess.run([sys.executable, __file__, "--child", name, how], capture_output=True, text=True, timeout=170)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            found[how] = json.loads(lines[-1]) if lines else {"error": done.stderr[-1500:]}
        same = all(found["plain"].get(key) == found["captured"].get(key) for key in ("counts", "behind"))
        print(f"== {name}: compiled as without us: {same}")
        (out / f"{name.replace(' ', '-')}.json").write_text(json.dumps(found, indent=1))
        for key, value in found["captured"].items():
            print(f"{key}: {value}" if not isinstance(value, list) or key in ("counts", "behind") else "\n  ".join([f"{key}:", *map(str, value)]))
        if "error" in found["plain"]:
            print(found["plain"]["error"])


if __name__ == "__main__":
    main()
