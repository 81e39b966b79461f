"""Interrupts at random instants in a real kernel: a cell with ``%%tfprofile`` and the same one without, in turn.

    python tests/fuzz/interrupts.py --out /tmp/interrupts --count 500     # goes on where it was stopped
    python tests/fuzz/interrupts.py --out /tmp/interrupts --table

After each interrupt the kernel says what a capture may not leave behind (a running profiler, a timer, a folder, a
hook, a monitoring tool), and every fifth time a capture must work. An interrupt was swallowed if the cell ran on
after it to its end and nothing was said. What the cell without the magic does at the same instants is the control:
TensorFlow swallows interrupts and dies of some by itself.
"""

import argparse
import collections
import json
import os
import queue
import random
import re
import sys
import time
from pathlib import Path

SETUP = """
import os, sys, gc, glob, tempfile, threading, warnings
warnings.filterwarnings("ignore")
tempfile.tempdir = tempfile.mkdtemp(prefix="interrupts-")
import keras, numpy as np, tensorflow as tf
import profnb
x = np.ones((512, 6), "float32"); y = np.zeros(512, "int64")
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, batch_size=8, verbose=0)

def leftovers():
    left = [path for path in os.listdir(tempfile.tempdir) if path.startswith("profnb-")]
    left += ["timer" for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    left += ["import hook" for finder in sys.meta_path if type(finder).__name__ == "_ImportFinder"]
    monitoring = getattr(sys, "monitoring", None)
    left += ["tool" for tool in range(6) if monitoring and monitoring.get_tool(tool) == "profnb"]
    experimental = tf.profiler.experimental
    left += ["hook" for f in (experimental.start, experimental.stop) if hasattr(f, "profnb_hooks")]
    from profnb.capture import hooks
    left += [f"{one.owner}.{one.name}" for one in hooks._replaced]
    left += ["sampler" for thread in threading.enumerate() if thread.name == "profnb"]
    left += ["cell hook" for name in ("pre_run_cell", "post_run_cell") for f in get_ipython().events.callbacks[name] if getattr(f, "__module__", "") == "profnb.capture.cell"]
    try:
        experimental.stop(save=False)
        left.append("profiler")
    except tf.errors.UnavailableError:
        pass
    return left
"""
BODY = "model.fit(x, y, batch_size=8, epochs=3, verbose=0)\nfor _ in range(300):\n    z = tf.ones(3) + 1\n'done'"
AGAIN = "%%tfprofile -q -o again\nmodel.fit(x, y, batch_size=8, verbose=0);"
LONGEST_S, PATIENCE_S = 2.5, 120


class Kernel:
    """A kernel that is started again when it dies."""

    def __init__(self):
        self.manager = self.client = None

    def start(self):
        from jupyter_client.manager import start_new_kernel

        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(Path(__file__).parents[2])}
        self.manager, self.client = start_new_kernel(env=env, extra_arguments=["--log-level=50"])
        self.run(SETUP)
        self.run("%load_ext profnb")

    def stop(self):
        if self.manager is not None:
            self.client.stop_channels()
            self.manager.shutdown_kernel(now=True)
            self.manager = None

    def run(self, cell, interrupt_after_s=None):
        """(errors, texts, seconds the cell went on after the interrupt), or None if the kernel died."""
        began, sent = time.monotonic(), None
        asked = self.client.execute(cell)
        errors, texts = [], []
        while True:
            now = time.monotonic()
            if interrupt_after_s is not None and sent is None and now - began >= interrupt_after_s:
                self.manager.interrupt_kernel()
                sent = time.monotonic()
            wait = 0.2 if sent or interrupt_after_s is None else max(interrupt_after_s - (now - began), 0.0005)
            try:
                message = self.client.get_iopub_msg(timeout=min(wait, 0.2))
            except queue.Empty:
                if not self.manager.is_alive() or now - began > PATIENCE_S:
                    return None
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "error":
                errors.append(content["ename"])
            elif kind == "stream":
                texts.append(content["text"])
            elif kind in ("execute_result", "display_data"):
                texts.append(content["data"].get("text/plain", ""))
            elif kind == "status" and content["execution_state"] == "idle":
                after = None if sent is None else time.monotonic() - sent
                self.client.get_shell_msg(timeout=PATIENCE_S)
                return errors, texts, after


def judge(found):
    """What came of an interrupt."""
    if found is None:
        return "died"
    errors, texts, after = found
    text = "\n".join(texts)
    if "Error in callback" in text:
        return "callback error"
    interrupts = errors.count("KeyboardInterrupt")
    if interrupts > 1 or len(errors) > 1:
        return "shown twice"
    if errors and not interrupts:
        return f"other error {errors[0]}"
    if interrupts:
        return "interrupted"
    if "Interrupted while the result was being shown" in text:
        return "said"
    if after is None or after < 0.05:
        return "over"
    return "swallowed"


def run(arguments):
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    done = len(results.read_text().splitlines()) if results.exists() else 0
    end = time.monotonic() + arguments.seconds if arguments.seconds else float("inf")
    kernel = Kernel()
    try:
        for number in range(done, arguments.count):
            if time.monotonic() > end:
                break
            delay_s = random.Random(f"interrupt {number}").uniform(0, LONGEST_S)  # the same each time
            row = {"number": number, "delay_s": round(delay_s, 4)}
            for name, first in (("control", "# plain"), ("magic", "%%tfprofile --no-live")):
                if kernel.manager is None:
                    kernel.start()
                found = kernel.run(f"{first}\n{BODY}", delay_s)
                row[name] = judge(found)
                if row[name] == "swallowed":
                    # Python says where it drops an exception: in a destructor, a callback of C.
                    row[f"{name}_said"] = "\n".join(found[1])[-1500:]
                if found is None:
                    kernel.stop()
                    continue
                if name == "magic":
                    row |= _after(kernel, number)
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
    finally:
        kernel.stop()
    table(arguments)


def _after(kernel, number):
    found = kernel.run("leftovers()")
    row = {"left": "died" if found is None else re.sub(r"profnb-\w+", "folder", "".join(found[1]).strip())}
    if found is not None and number % 5 == 0:
        found = kernel.run(AGAIN)
        asked = None if found is None else kernel.run("len(again.steps), [n for n in again.notes if 'already running' in n]")
        row["again"] = "died" if asked is None else "".join(asked[1]).strip()
    if found is None:
        kernel.stop()
    return row


def table(arguments):
    rows = [json.loads(text) for text in (Path(arguments.out) / "results.jsonl").read_text().splitlines()]
    print(f"{len(rows)} instants")
    for name in ("control", "magic"):
        print(name, dict(collections.Counter(row[name] for row in rows)))
    print("left behind", dict(collections.Counter(row.get("left") for row in rows)))
    print("the next capture", dict(collections.Counter(row["again"] for row in rows if "again" in row)))
    for row in rows:
        if row["magic"] not in ("interrupted", "said", "over") or row.get("left") not in ("[]", None):
            print(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="/tmp/interrupts")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    table(arguments) if arguments.table else run(arguments)


if __name__ == "__main__":
    sys.exit(main())
