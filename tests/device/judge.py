"""Hold what profnb says of the traces of `backends.py` to what was measured beside: `python tests/device/judge.py FOLDER [NAME ...]`.

FOLDER has the unpacked tars, FOLDER/FRAMEWORK/PROGRAM/. The trace's device work is read a second time here, without profnb: of
Kineto's JSON by its categories, of XPlane by TensorFlow's protobufs. One line per number that disagrees, one per program besides.
"""

import json
import sys
from pathlib import Path

import profnb

COPIES = {"h2d_bytes": "host to device", "d2h_bytes": "device to host", "d2d_bytes": "device to device"}


def read_kineto(path):
    """(kernels, copies) as (name, begin us, duration us, args)."""
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    of = lambda *kinds: [(e["name"], e["ts"], e["dur"], e["args"]) for e in events if e.get("cat") in kinds]
    return of("kernel"), of("gpu_memcpy", "gpu_memset")


def read_xplane(path):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    kernels, copies = [], []
    for plane in space.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        keys = {key: value.name for key, value in plane.stat_metadata.items()}
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                stats = {}
                for stat in event.stats:
                    kind = stat.WhichOneof("value")
                    value = getattr(stat, kind)
                    stats[keys[stat.metadata_id]] = keys[value] if kind == "ref_value" else value
                row = (name, line.timestamp_ns / 1000 + event.offset_ps / 1e6, event.duration_ps / 1e6, stats)
                (copies if name.startswith(("Memcpy", "Memset")) else kernels).append(row)
    return kernels, copies


def covered(rows, window):
    total, end = 0.0, window[0]
    for begin, last in sorted((max(r[1], window[0]), min(r[1] + r[2], window[1])) for r in rows):
        total += max(0.0, last - max(begin, end))
        end = max(end, last)
    return total


def differs(a, b, rel=0.01):
    return abs(a - b) > rel * max(abs(a), abs(b), 1e-9)


def judge(folder):
    told = json.loads((folder / f"{folder.name}.json").read_text())
    if "error" in told:
        return print("ERROR", folder, told["error"])
    traces = [*folder.glob("*.xplane.pb"), *folder.glob("*.pt.trace.json")]
    p = profnb.load(traces[0])
    kernels, copies = (read_kineto if told["framework"] == "torch" else read_xplane)(traces[0])
    wrong = []

    def hold(what, ours, theirs, rel=0.01):
        if differs(ours, theirs, rel):
            wrong.append(f"{what}: {ours:.6g}, by the raw trace or the program {theirs:.6g}")

    table, steps = p.kernels, p.steps
    kernels = [row for row in kernels if not row[0].startswith("memcpy")]  # a copy in a graph
    hold("kernels", table.occurrences.sum(), len(kernels))
    hold("kernel time us", table.total_us.sum(), sum(k[2] for k in kernels), 1e-4)
    hold("work launched by steps us", steps.launched_work_ms.sum() * 1000, sum(k[2] for k in (*kernels, *copies)), 0.02)
    sums = steps[[c for c in steps if c.endswith("_ms") and c not in ("begin_ms", "duration_ms", "gap_ms", "busy_gap_ms", "launched_work_ms")]].sum(axis=1)
    hold("categories of a step", sums.sum(), steps.duration_ms.sum(), 1e-6)
    known = told["known"]
    n = len(steps)
    for key, direction in COPIES.items():
        rows = p.copies[p.copies.direction == direction]
        if key in known:
            hold(f"bytes {direction}", rows.bytes.sum() / n, known[key], 0.02)
    traced = p.step_times[p.step_times.was_traced]
    counted = told["counted"]
    hold("steps in all", len(p.step_times), counted)
    plain = min(told["plain_s"]) / told["steps"] * 1000
    period = float((steps.duration_ms + steps.gap_ms).iloc[:-1].median()) if n > 1 else float("nan")
    mean_period = float((steps.begin_ms.iloc[-1] - steps.begin_ms.iloc[0]) / (n - 1)) if n > 1 else float("nan")
    untraced = p.step_times[~p.step_times.was_traced]
    after = float((untraced.begin_ms.diff()).median()) if "begin_ms" in untraced and len(untraced) > 1 else float("nan")
    device = p.devices
    busy = float(device.busy_us.iloc[0]) / n if len(device) else 0.0
    own = told.get("own")
    work = {*(name for name, *_ in kernels), *(name for name, *_ in copies)}  # not its rows of annotations
    own_busy = sum(r[1] for r in own["kernels"] if r[0] in work) / own["steps"] if own else float("nan")
    own_wall = own["wall_s"] / own["steps"] * 1000 if own else float("nan")
    events = told.get("cuda_events_ms", float("nan")) / told["steps"]
    print(
        f"{told['framework']:5} {told['program']:11} {plain:8.3f} plain {events:8.3f} events | traced {mean_period:8.3f} mean {period:8.3f} med, own profiler {own_wall:8.3f}"
        f" | busy {busy / 1000:8.3f} own {own_busy / 1000:8.3f} | {n} of {counted} steps, page {told.get('page_s', 0):.1f} s"
    )
    print("      ", p.summary().splitlines()[0])
    for note in p.notes:
        print("       note:", note[:400])
    for a in p.advice:
        print("       advice:", a.rule, "|", a.title, "|", a.evidence[:400], f"| {a.bound_fraction}")
    for line in wrong:
        print("   !!! ", line)
    return None


def main():
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    for path in sorted(folder.glob("*/*")):
        if path.is_dir() and (not names or path.name in names or f"{path.parent.name}:{path.name}" in names):
            judge(path)


if __name__ == "__main__":
    main()
