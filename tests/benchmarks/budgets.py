"""What reading, the first view, all tables and the first use cost, as ratios in one run, beside their budgets.

    python tests/benchmarks/budgets.py [TRACE.xplane.pb [LARGER.xplane.pb]]

Without a trace it records the one of record_trace.py first. Everything is CPU time of fresh processes, the least of
several runs, so that a busy machine changes little; the official converter's five tools are measured the same way.
A larger trace of the same program (record_trace.py with more steps) tells how cost grows with the events. The last
rows are a fresh machine's: an empty cache, nothing compiled.
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
    return headline_text(study.steps, study.summary), answer_text(study.summary), share_rows(study.summary.shares), p.advice
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
import numba, pandas, profnb.report.report
first = cost(report)[0]
print(json.dumps({"later_by": first - cost(report)[0]}))
"""

LOAD = """
import json, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
begin = time.thread_time()
shell.run_line_magic("load_ext", "profnb")
print(json.dumps({"load_ext": time.thread_time() - begin}))
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


def main(path=None, larger=None):
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "trace.xplane.pb"
            subprocess.run([sys.executable, HERE / "record_trace.py", path], check=True, stderr=subprocess.DEVNULL)
        size = Path(path).stat().st_size
        ours = least(MEASURE, path)
        decode = ours["decode"]
        print(f"{ours['events']:,} events, {size / 1e6:.1f} MB, decoded in {decode:.3f} s of CPU")
        show("first view over the decode", ours["first"] / decode, "<= 3")
        show("all tables and the text over the decode", ours["everything"] / decode, "<= 6")
        show("peak memory over the file", least(MEMORY, path, runs=1)["peak"] / size, "<= 6")
        fresh_machine(folder)
        if has_official():
            show("official five tools over decode and all", official(path, folder) / (decode + ours["everything"]), ">= 40")
        if larger is not None:
            more = least(MEASURE, larger)
            grown = math.log(more["events"] / ours["events"])
            for key in ("decode", "first", "everything"):
                show(f"exponent of {key}, to {more['events']:,} events", math.log(more[key] / ours[key]) / grown, "about 1")


def fresh_machine(folder):
    first_use = least(FRESH, runs=1, NUMBA_CACHE_DIR=str(Path(folder) / "empty"))
    show(f"s of compiling on a fresh machine, {first_use['kernels']} kernels", first_use["compiling"], "<= 3")
    show("s of that before the first view", first_use["first_compiling"])
    trace = HERE.parent / "data" / "cpu-cnn.xplane.pb"
    later = least(REPORT, trace, runs=1, NUMBA_CACHE_DIR=str(Path(folder) / "empty too"))
    show("s the first report comes later with nothing warm", later["later_by"], "<= 2")
    show("s of %load_ext", least(LOAD)["load_ext"], "<= 0.3")


if __name__ == "__main__":
    main(*sys.argv[1:3])
