"""Run a command on a machine that keeps standing still: `python tests/hiccups.py python -m pytest tests/capture/test_capture.py`.

What a busy machine does to a test now and then happens here all the time, so a test that hangs on a clock fails soon:
any thread may stand still between any two lines, for as long as ten of its steps take. Two things do it:

- all of a process at once: one of the command's processes, drawn at random, is stopped and goes on a moment later;
- one thread and not the others, where this may be asked for (root on Linux): on each core something that goes before
  everything else takes the core for a moment, whoever runs there.

Ends with the command's status. `--seed` draws others, `--still` says how much of the time all stands still.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time

LONGEST_S, USUAL_S = 1.0, 0.06


def family(root):
    """A process and all that it started, as the kernel lists them now."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):  # it has ended meanwhile
                continue
            children.setdefault(parent, []).append(int(name))
    found = [root]
    for process in found:
        found += children.get(process, ())
    return found


def moments(draw, still):
    """How long to let all run and then to stand still, again and again, in seconds."""
    while True:
        stand_s = min(draw.expovariate(1 / USUAL_S), LONGEST_S)
        yield draw.expovariate(still / (1 - still) / USUAL_S), stand_s


def take_a_core(core, seed, still):
    """In a process of its own: take a core from all others at random moments, until the parent is gone."""
    process = os.fork()
    if process:
        return process
    parent = os.getppid()
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    for run_s, stand_s in moments(random.Random(seed), still):
        time.sleep(run_s)
        if os.getppid() != parent:
            os._exit(0)
        until = time.monotonic() + stand_s
        while time.monotonic() < until:
            pass


def main():
    """Run the command, and hinder it."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--still", type=float, default=0.3, help="fraction of the time, 0 to 0.9; 0.3 if not given")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "SCHED_FIFO") and os.geteuid() == 0 else []
    takers = [take_a_core(core, f"{options.seed} {core}", options.still) for core in cores]
    command = subprocess.Popen(options.command)
    draw = random.Random(options.seed)
    try:
        for run_s, stand_s in moments(draw, options.still):
            try:
                return command.wait(run_s)
            except subprocess.TimeoutExpired:
                stop_one(draw.choice(family(command.pid)), stand_s)
    finally:
        for process in takers:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def stop_one(process, stand_s):
    """Let a process stand still for a while, if it is still there."""
    try:
        os.kill(process, signal.SIGSTOP)
        time.sleep(stand_s)
    except ProcessLookupError:
        return
    finally:
        try:
            os.kill(process, signal.SIGCONT)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    sys.exit(main())
