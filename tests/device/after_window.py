"""A step behind a traced window on an accelerator, against the same step before it: `python tests/device/after_window.py [NAME ...]`.

PyTorch loops whose time is Python and launches, each with nothing, with PyTorch's own profiler around a few steps, and with a capture of ours
(once with CUPTI taken down behind it). Each in a process of its own; blocks of steps, of which the median counts.
"""

import os
import statistics
import subprocess
import sys
import time

STEPS, BLOCKS = 40, 5


def many_small(torch, device):
    layers = [part for _ in range(60) for part in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10)).to(device)
    return model, torch.rand(64, 64, device=device), model


def recurrent(torch, device):
    lstm = torch.nn.LSTM(512, 512, 2, batch_first=True).to(device)
    return lstm, torch.rand(128, 100, 512, device=device), lambda x: lstm(x)[0][:, -1]


PROGRAMS = {"many small": many_small, "recurrent": recurrent}


def child(name, how):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, x, forward = PROGRAMS[name](torch, device)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)

    def run(steps, forward=forward):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            forward(x).square().mean().backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    def block(**what):
        began = time.perf_counter()
        run(STEPS, **what)
        return (time.perf_counter() - began) / STEPS * 1e3

    run(20)
    before, inside = [block() for _ in range(BLOCKS)], []
    if how == "own":
        with torch.profiler.profile():
            run(5)
    elif how == "compiled":
        compiled = torch.compile(model, mode="reduce-overhead")
        fast = compiled if forward is model else lambda x: compiled(x)[0][:, -1]
        run(20, forward=fast)
        inside = [block(forward=fast) for _ in range(BLOCKS)]
    elif how != "nothing":
        import profnb

        with profnb.profile(max_steps=5):
            run(15)
            inside = [block() for _ in range(BLOCKS)]
    behind = [block() for _ in range(BLOCKS)]
    medians = [f"{statistics.median(one):7.3f}" if one else "      -" for one in (before, inside, behind)]
    print(f"{name:12} {how:10} ms a step before {medians[0]}, inside {medians[1]}, behind {medians[2]}", flush=True)


def main():
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    for name in sys.argv[1:] or PROGRAMS:
        for how in ("nothing", "own", "ours", "taken down", "compiled"):
            more = {"TEARDOWN_CUPTI": "1"} if how == "taken down" else {}
            subprocess.run([sys.executable, __file__, "--child", name, how], check=False, timeout=100, env=os.environ | more)


if __name__ == "__main__":
    main()
