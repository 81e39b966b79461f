"""What reading, the first view, all tables and the first use cost, as ratios in one run, beside their budgets.

    python tests/benchmarks/budgets.py [TRACE.xplane.pb [LARGER.xplane.pb ...]]

Without a trace it records the one of record_trace.py first. Everything is CPU time of fresh processes, the least of
several runs (RUNS=5 python ... for more than 3), so that a busy machine changes little; the official converter's five
tools are measured the same way. Every row has its budget behind it. Larger traces of the same program tell how cost
grows with the events: repeat_trace.py makes them. The rows of a fresh machine: an empty cache, nothing compiled. The
last one captures a cell right after %load_ext; it needs TensorFlow.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compare import HERE, OFFICIAL, TOOLS, has_official, python

RUNS = int(os.environ.get("RUNS", "3"))

ALL = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
from profnb.warm import FIRST_VIEW, kernel_by_kernel, warm_up
from profnb.profile import Profile
def tables():
    names = {}
    for kind in Profile.__mro__:
        names.update({n: v for n, v in vars(kind).items() if isinstance(v, property) and not n.startswith("_")})
    return [n for n, v in names.items() if "DataFrame" in str(v.fget.__annotations__.get("return"))]
def first_view(p):
    from profnb.report.text import answer_text, headline_text, share_rows
    study = p.study
    return headline_text(study), answer_text(study.summary), share_rows(study.summary.shares), p.advice
def everything(p):
    p.summary()
    for name in tables():
        getattr(p, name)
def cost(run, *arguments):
    begin = time.process_time()
    result = run(*arguments)
    return time.process_time() - begin, result
def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
"""

MEASURE = ALL + """
from profnb.trace.files import read_trace
warm_up()
import pandas
decode, first, whole = [], [], []
for _ in range(4):
    seconds, trace = cost(read_trace, sys.argv[1])
    decode.append(seconds)
    first.append(cost(first_view, Profile(trace))[0])
    whole.append(cost(everything, Profile(read_trace(sys.argv[1])))[0])
print(json.dumps({"decode": min(decode), "first": min(first), "everything": min(whole), "events": len(trace.events)}))
"""

MEMORY = ALL + """
from profnb.trace.files import read_trace
warm_up()
import plotly.offline
before = peak()
everything(Profile(read_trace(sys.argv[1])))
print(json.dumps({"peak": peak() - before}))
"""

FRESH = ALL + """
from numba.core import event
class Compiling(event.Listener):
    depth, begin, seconds, kernels = 0, 0.0, 0.0, 0
    def on_start(self, _):
        self.begin = self.begin if self.depth else time.process_time()
        self.depth += 1
    def on_end(self, ended):
        self.depth -= 1
        self.kernels += ended.data["dispatcher"].py_func.__module__.startswith("profnb.")
        if not self.depth:
            self.seconds += time.process_time() - self.begin
listener = Compiling()
event.register("numba:compile", listener)
pieces = kernel_by_kernel()
while next(pieces) != FIRST_VIEW:
    pass
out = {"first_compiling": listener.seconds}
for _ in pieces:
    pass
out.update(compiling=listener.seconds, kernels=listener.kernels)
print(json.dumps(out))
"""

REPORT = ALL + """
import profnb
def report():
    return profnb.load(sys.argv[1])._repr_mimebundle_()
import numba, pandas, profnb.report.build
if sys.argv[2] == "warm":
    warm_up()
    report()
print(json.dumps({"report": cost(report)[0]}))
"""

LOAD = """
import json, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
begin = time.thread_time()
shell.run_line_magic("load_ext", "profnb")
print(json.dumps({"load_ext": time.thread_time() - begin}))
"""

DISTURBS = """
import json
import tensorflow as tf
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.user_ns["times"] = times = []
cell = '''
import time
times.append((time.thread_time(), time.process_time()))
until = time.thread_time() + 10
while time.thread_time() < until:
    pass
times.append((time.thread_time(), time.process_time()))
'''
shell.run_line_magic("load_ext", "profnb")
shell.run_cell("%%tfprofile -q" + cell)
(own, every), (own_end, every_end) = times
print(json.dumps({"disturbs": ((every_end - every) - (own_end - own)) / (own_end - own)}))
"""

CPU_OFFICIAL = OFFICIAL.replace("perf_counter", "process_time")


def least(code, *arguments, runs=RUNS, **environment):
    rows = [python(code, *arguments, **environment) for _ in range(runs)]
    return {key: min(row[key] for row in rows) for key in rows[0]}


def official(path, folder):
    total = 0.0
    for tool in TOOLS:
        seconds = []
        for run in range(RUNS):
            fresh = Path(folder) / f"{tool}-{run}"
            fresh.mkdir()
            seconds.append(python(CPU_OFFICIAL, shutil.copy(path, fresh / "host.xplane.pb"), tool)["seconds"])
            shutil.rmtree(fresh)
        total += min(seconds)
    return total


def show(name, value, budget=""):
    print(f"{name:<64}  {value:8.2f}  {budget}", flush=True)


def grow(ours, larger):
    """How cost grows from one trace to a larger one of the same program."""
    more, size = least(MEASURE, larger), Path(larger).stat().st_size
    grown = math.log(more["events"] / ours["events"])
    for key, name in (("decode", "decoding"), ("first", "the first view"), ("everything", "everything")):
        exponent = math.log(more[key] / ours[key]) / grown
        show(f"exponent of {name}, to {more['events']:,} events ({more[key]:.2f} s)", exponent, "about 1")
    show("peak memory over the file, there", least(MEMORY, larger, runs=1)["peak"] / size, "<= 6")


def main(path=None, *larger):
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "trace.xplane.pb"
            subprocess.run([sys.executable, HERE / "record_trace.py", path], check=True, stderr=subprocess.DEVNULL)
        size = Path(path).stat().st_size
        ours = least(MEASURE, path)
        decode = ours["decode"]
        print(f"{ours['events']:,} events, {size / 1e6:.1f} MB")
        show("s of CPU to decode", decode, "<= 0.06")
        show("MB/s decoded", size / 1e6 / decode, ">= 500")
        show("first view over the decode", ours["first"] / decode, "<= 3")
        show("all tables and the text over the decode", ours["everything"] / decode, "<= 6")
        show("peak memory over the file", least(MEMORY, path, runs=1)["peak"] / size, "<= 6")
        fresh_machine(folder, path)
        if has_official():
            show("official five tools over decode and all", official(path, folder) / (decode + ours["everything"]), ">= 40")
        for one in larger:
            grow(ours, one)


def later_by(trace, folder):
    """How much later the first report comes where nothing is warm than where all is."""
    empty = tempfile.mkdtemp(dir=folder)
    cold = least(REPORT, trace, "cold", runs=1, NUMBA_CACHE_DIR=empty)["report"]
    return cold - least(REPORT, trace, "warm")["report"]


def fresh_machine(folder, path):
    first_use = least(FRESH, runs=1, NUMBA_CACHE_DIR=str(Path(folder) / "empty"))
    show(f"s of compiling on a fresh machine, {first_use['kernels']} kernels", first_use["compiling"], "<= 3")
    show("s of that before the first view", first_use["first_compiling"])
    trace = HERE.parent / "data" / "cpu-cnn.xplane.pb"
    show("s the first report comes later with nothing warm", later_by(trace, folder), "<= 2")
    show("s the first report of the trace above then comes later", later_by(path, folder), "<= 2")
    show("s of %load_ext", least(LOAD)["load_ext"], "<= 0.3")
    empty = str(Path(folder) / "empty as well")
    disturbs = least(DISTURBS, runs=1, NUMBA_CACHE_DIR=empty)["disturbs"]
    show("CPU of other threads over that of a captured cell of 10 s", disturbs, "<= 0.02")


if __name__ == "__main__":
    main(*sys.argv[1:])
