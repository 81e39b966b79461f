"""profnb beside the official converter on one trace, and the cost of capturing, in one run.

    python tests/benchmarks/compare.py [TRACE.xplane.pb]

Without a trace it records the one of record_trace.py first. Every figure is measured in a process of
its own, peers in turn; ratios are what to quote, the machine's speed is not. Needs TensorFlow; the
official converter's rows need `pip install 'profnb[xprof]'`.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RUNS = 5
CAPTURE_RUNS = 15  # whole trainings differ more from run to run than what capturing adds
TOOLS = ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "kernel_stats", "memory_profile")

MEASURE = """
import json, resource, sys, time
def rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
out, path = {}, sys.argv[1]
begin = time.perf_counter()
from profnb.warm import warm_up
warm_up()
out["warm_up_s"] = time.perf_counter() - begin
from profnb.subjects.study import Study
from profnb.profile import Profile
from profnb.trace.files import read_trace
base = rss()
begin = time.perf_counter()
trace = read_trace(path)
out["decode_s"] = time.perf_counter() - begin
p = Profile(trace)
begin = time.perf_counter()
p.steps, p.ops, p.step_times, p.notes
out["tables_s"] = time.perf_counter() - begin
begin = time.perf_counter()
html = p._repr_mimebundle_()["text/html"]
out["report_s"] = time.perf_counter() - begin
out["peak_bytes"] = rss() - base
out["report_bytes"] = len(json.dumps(p._repr_mimebundle_()))
out["events"], out["file_bytes"] = len(trace.events), len(trace.recorded)
print(json.dumps(out))
"""

OFFICIAL = """
import json, sys, time
from xprof.convert import raw_to_tool_data
def rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
base = rss()
begin = time.perf_counter()
data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], sys.argv[2], {"use_saved_result": False})
print(json.dumps({"seconds": time.perf_counter() - begin, "bytes": len(data or b""), "peak_bytes": rss() - base}))
"""

CAPTURE = """
import json, os, sys, tempfile, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
sys.path.insert(0, sys.argv[1])
from record_trace import build
import tensorflow as tf
import profnb
from profnb.captured import CapturedProfile
from profnb.warm import warm_up
warm_up()
steps = 256
model, dataset = build(steps)
def fit():
    model.fit(dataset, verbose=0, shuffle=False)
def bare():
    with tempfile.TemporaryDirectory() as logdir:
        tf.profiler.experimental.start(logdir)
        fit()
        tf.profiler.experimental.stop()
def ours(finish=True):
    captured = CapturedProfile(profnb.CaptureOptions(max_steps=10**6, max_seconds=600))
    captured.start()
    fit()
    recording = captured._capture.finish()
    recording.discard()
def timed(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
fit(); bare(); ours()
rows = [[timed(run) for run in (fit, bare, ours)] for _ in range(int(sys.argv[2]))]
with profnb.profile(max_steps=10**6, max_seconds=600) as p:
    fit()
begin = time.perf_counter()
p._repr_mimebundle_(); p._report.figure
print(json.dumps({"rows": rows, "report_s": time.perf_counter() - begin, "events": len(p.trace.events)}))
"""


def python(code, *arguments, **environment):
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **environment}
    run = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=env, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr[-2000:])
    return json.loads(run.stdout.splitlines()[-1])


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def has_official():
    return subprocess.run([sys.executable, "-c", "import xprof.convert.raw_to_tool_data"], capture_output=True).returncode == 0


def main(path=None):
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "trace.xplane.pb"
            subprocess.run([sys.executable, HERE / "record_trace.py", path], check=True, stderr=subprocess.DEVNULL)
        ours, theirs = [], {tool: [] for tool in TOOLS if has_official()}
        for number in range(RUNS):
            ours.append(python(MEASURE, path))
            for tool in theirs:
                fresh = Path(folder) / f"{number}-{tool}"
                fresh.mkdir()
                copy = shutil.copy(path, fresh / "host.xplane.pb")
                theirs[tool].append(python(OFFICIAL, copy, tool))
        cold = python(MEASURE, path, NUMBA_CACHE_DIR=str(Path(folder) / "cache"))
        capture = python(CAPTURE, HERE, CAPTURE_RUNS)
    show(ours, theirs, cold, capture)


def show(ours, theirs, cold, capture):
    first = ours[0]
    size = first["file_bytes"]
    rows = [
        ("trace", f"{first['events']:,} events, {size / 1e6:.1f} MB", ""),
        ("decode", f"{median(ours, 'decode_s'):.3f} s", f"{size / 1e6 / median(ours, 'decode_s'):,.0f} MB/s"),
        ("every table of the report", f"{median(ours, 'tables_s'):.3f} s", ""),
        ("report, HTML and chart", f"{median(ours, 'report_s'):.3f} s", f"{first['report_bytes'] / 1e3:,.0f} kB"),
        ("peak memory over file size", f"{median(ours, 'peak_bytes') / size:.1f} x", ""),
        ("imports and kernels, cached", f"{median(ours, 'warm_up_s'):.2f} s", "in the background at %load_ext"),
        ("imports and kernels, first use", f"{cold['warm_up_s']:.2f} s", "in the background at %load_ext"),
    ]
    whole = median(ours, "decode_s") + median(ours, "tables_s")
    for tool, runs in theirs.items():
        rows.append((f"official {tool}", f"{median(runs, 'seconds'):.2f} s", f"{median(runs, 'peak_bytes') / size:.0f} x file size"))
    if theirs:
        total = sum(median(runs, "seconds") for runs in theirs.values())
        rows.append(("official tools over decode and tables", f"{total / whole:.0f} x", f"{total:.2f} s against {whole:.2f} s"))
    plain, bare, with_us = (statistics.median(column) for column in zip(*capture["rows"]))
    ratios = [row[2] / row[1] for row in capture["rows"]]
    rows += [
        ("256 steps untraced", f"{plain:.3f} s", ""),
        ("with TensorFlow's profiler", f"{bare:.3f} s", f"{bare / plain:.3f} x untraced"),
        ("with profnb's capture", f"{with_us:.3f} s", f"{statistics.median(ratios):.3f} x TensorFlow's profiler ({min(ratios):.3f} to {max(ratios):.3f})"),
        ("cell end to report", f"{capture['report_s']:.3f} s", f"{capture['events']:,} events, after reading"),
    ]
    width = max(len(row[0]) for row in rows)
    for name, value, remark in rows:
        print(f"{name:<{width}}  {value:>26}  {remark}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
