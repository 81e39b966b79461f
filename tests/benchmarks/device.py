"""Device analyses of a million events beside the official converter's, in one run.

    python tests/benchmarks/device.py [EVENTS]

Writes a trace as CUPTI and TensorFlow record one: steps of 500 launches, each an op, a launching call and a
kernel with its shape and op, on two streams, with copies. Ratios are what to quote, the machine's speed is
not. The official rows need `pip install 'profnb[xprof]'`.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RUNS = 3
LAUNCHES = 500
PS_PER_US = 10**6
TOOLS = ("overview_page", "input_pipeline_analyzer", "kernel_stats")

MEASURE = """
import json, sys, time
from profnb.warm import warm_up
warm_up()
from profnb.subjects.study import Study
from profnb.trace.files import read_trace
begin = time.perf_counter()
trace = read_trace(sys.argv[1])
out = {"decode": time.perf_counter() - begin}
for round in range(2):  # the first compiles what the tiny warm-up trace does not reach
    study = Study(trace)
    for name in ("groups", "breakdown", "kernels", "idle", "devices", "launches", "precision", "copies", "xla"):
        begin = time.perf_counter()
        getattr(study, name)
        out[name] = time.perf_counter() - begin
out["events"] = len(trace.events)
print(json.dumps(out))
"""

OFFICIAL = """
import json, os, shutil, sys, tempfile, time
from xprof.convert import raw_to_tool_data
out = {}
for tool in sys.argv[2].split(","):
    with tempfile.TemporaryDirectory() as fresh:  # it keeps results beside the trace
        path = shutil.copy(sys.argv[1], os.path.join(fresh, "host.xplane.pb"))
        begin = time.perf_counter()
        raw_to_tool_data.xspace_to_tool_data([path], tool, {"use_saved_result": False})
        out[tool] = time.perf_counter() - begin
print(json.dumps(out))
"""


def write_trace(path, events):
    """A trace of about so many events."""
    sys.path.insert(0, str(HERE.parent))
    from traces import event, gpu, host, line, ref, xspace

    steps = max(events // (3 * LAUNCHES), 1)
    ops, calls, kernels, copies, markers = [], [], [], [], []
    names = [f"model/layer_{n}/MatMul" for n in range(60)]
    for step in range(steps):
        base = step * (LAUNCHES + 20) * 20 * PS_PER_US
        markers.append(event("train", base, LAUNCHES * 20 * PS_PER_US, step_num=step, _r=1))
        for n in range(LAUNCHES):
            at, number, name = base + n * 20 * PS_PER_US, step * LAUNCHES + n, names[n % 60]
            ops.append(event(f"{name}:MatMul", at, 18 * PS_PER_US))
            calls.append(event("cuLaunchKernel", at + 2 * PS_PER_US, 6 * PS_PER_US, correlation_id=number))
            if n % 50 == 0:
                copies.append(event("MemcpyH2D", at + 9 * PS_PER_US, 15 * PS_PER_US, correlation_id=number,
                                    memcpy_details=ref("kind_src:pageable kind_dst:device size:4096 dest:0 async:1")))  # fmt: skip
            else:
                kernels.append(event(f"sgemm_{n % 60}", at + 9 * PS_PER_US, 11 * PS_PER_US, correlation_id=number, tf_op=ref(f"{name}:MatMul"),
                                     kernel_details=ref("regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:50")))  # fmt: skip
    path.write_bytes(xspace(
        host(line("python", *markers, *ops), line("launcher", *calls, line_id=2)),
        gpu(line("Stream #1(Compute)", *kernels), line("Stream #2(MemcpyH2D)", *copies, line_id=2)),
    ))  # fmt: skip


def measure(code, *args):
    """Median of each figure over fresh processes."""
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        for _ in range(RUNS)
    ]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main():
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.xplane.pb"
        write_trace(path, events)
        own = measure(MEASURE, str(path))
        print(f"{own.pop('events'):,.0f} events, {path.stat().st_size / 1e6:.1f} MB")
        for name, seconds in own.items():
            print(f"  profnb {name:12} {seconds:8.3f} s")
        total = own["groups"] + own["breakdown"] + own["kernels"]
        print(f"  grouping + breakdown + kernels {total:.3f} s; all but decoding {sum(own.values()) - own['decode']:.3f} s")
        try:
            official = measure(OFFICIAL, str(path), ",".join(TOOLS))
        except subprocess.CalledProcessError:
            print("  no official converter here (pip install 'profnb[xprof]')")
            return
        for name, seconds in official.items():
            print(f"  xprof  {name:24} {seconds:8.3f} s")
        print(f"  ratio, three tools over all of profnb's with decoding: {sum(official.values()) / sum(own.values()):.1f}")


if __name__ == "__main__":
    main()
