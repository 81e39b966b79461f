"""What hostile files are made from: a few small, whole files of each format, and how one is damaged.

Which case is which hangs on its format and number alone. Formats that have a structure (JSON, a sidecar, marshal)
are damaged in it too, so that more than the outermost reader is met.
"""

import cProfile
import json
import marshal
import pickle
import random
import sqlite3
import struct
import sys
import tempfile
from functools import cache
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "trace")]

from programs import BF16, F32, dot, metadata_plane, op, parameter, program, shape
from traces import event, gpu, host, line, message, plane, ref, xspace

FORMATS = ("xplane", "chrome", "run-metadata", "sidecar", "prof", "notebook", "pprof", "tfprof", "event-file", "rocprof", "nsys", "nvprof", "nvprof-csv", "snapshot", "onnx", "memory-timeline")
SUFFIX = {"xplane": ".xplane.pb", "chrome": ".json", "run-metadata": ".run_metadata.pb", "sidecar": ".json", "prof": ".prof", "notebook": ".ipynb", "pprof": ".pb", "tfprof": "", "event-file": ".tfevents.1", "rocprof": ".json", "nsys": ".sqlite", "nvprof": ".nvvp", "nvprof-csv": ".csv", "snapshot": ".pickle", "onnx": ".json", "memory-timeline": ".json"}
DATA = Path(__file__).parents[1] / "data"
# Where it stands in a page as it is, a name has become markup.
PAYLOAD = "<svg/onload=fuzz()>"
_TEXTS = [PAYLOAD, "\x1b[31m", "", "a" * 3000, "/device:GPU:0", "\ud800", "../../etc", "%s{}", "\x00", "tf_op", "1e999"]
_NUMBERS = [0, -1, 1, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 64, 1 << 200, 0.5, 1e308, -1e308, 1e15, 3]
_US = 10**6


def _small():
    ops = [event(f"n{i}:MatMul", i * 10 * _US, 7 * _US, _r=1, step_num=i, k=ref("t"), group_id=i, tf_op=f"n{i}") for i in range(8)]
    kernels = [event("gemm_kernel", i * 10 * _US + 2 * _US, 4 * _US, correlation_id=i, tf_op=f"n{i}:MatMul", kernel_details="regs:32 grid:4,1,1 block:256,1,1") for i in range(8)]
    memory = [event("MemoryAllocation", i * 10 * _US, 0, allocator_name="GPU_0_bfc", bytes_allocated=1 << i, peak_bytes_in_use=1 << i, requested_bytes=8) for i in range(6)]
    input_ = [event("Iterator::Prefetch::Map", i * 10 * _US, 3 * _US, id=i, parent_id=i - 1) for i in range(6)]
    return xspace(
        host(line("python", *ops), line("input", *input_, line_id=2), line("memory", *memory, line_id=3)),
        gpu(line("Stream #1(Compute)", *kernels), stats={"core_count": 40, "clock_rate": 1_590_000, "memory_bandwidth": 320_064_000_000}),
        hostnames=("host-a",),
    )


def _with_program():
    compiled = program(
        "jit_step",
        {"main": [parameter("a", 0, shape(BF16, 64, 128)), parameter("b", 1, shape(BF16, 128, 256)),
                  dot("dot.1", shape(F32, 64, 256), "a", "b", op_name="model/dense/MatMul", op_type="MatMul", source=("/u/model.py", 12)),
                  op("add.1", "add", shape(F32, 64, 256), "dot.1", "dot.1")]},
        "main", (), [(49152, 5)],
    )  # fmt: skip
    ran = [event("dot.1", i * 10 * _US, 6 * _US, hlo_op="dot.1", hlo_module="jit_step", program_id=7) for i in range(6)]
    marks = [event("train", i * 10 * _US, 9 * _US, _r=1, step_num=i) for i in range(6)]
    return xspace(metadata_plane(jit_step=(7, compiled)), host(line("python", *marks)), gpu(line("XLA Ops", *ran)), plane("Task Environment", line("x")))


def _run_metadata():
    def node(name, begin_us, duration_us, op):
        memory = message((1, "cpu"), (2, 4096), (3, 4096))
        return message((1, name), (2, begin_us), (3, 1), (4, duration_us), (5, duration_us), (6, memory), (8, f"{name} = {op}(a, b)"))

    cpu = "/job:localhost/replica:0/task:0/device:CPU:0"
    nodes = [node("_SOURCE", 1000, 1, "NoOp"), node("a", 1002, 30, "MatMul"), node("b", 1040, 20, "Add")]
    devices = {cpu: nodes, "/device:GPU:0/stream:13": [node("a:MatMul", 1005, 10, "MatMul")]}
    return message((1, message(*((1, message((1, name), *((2, n) for n in of))) for name, of in devices.items()))))


def _sidecar():
    from profnb.capture.recording import Recording
    from profnb.capture.saved.sidecar import sidecar_of, write_recordings
    from profnb.capture.source.source_records import GraphLines, LineRecords, SourceRecords, StackRecords
    from profnb.core.options import CaptureOptions
    import gzip

    recording = Recording(window_ns=10**9, wall_ns=2 * 10**9, overhead_ns=5, messages=["a note"], devices=("/device:GPU:0",), environment={"tensorflow": "2.21"})
    recording.cardinalities = {"data": 100}
    for row in range(6):
        recording.steps.append(row * 10**6, row * 10**6 + 9 * 10**5, 0, 0, True, False, 1, row, 1)
    recording.steps.names.append("train")
    lines = LineRecords(files=["a.py", "b.py"])
    lines.time_ns.extend([1, 2, 3, 4]), lines.code.extend([0, 0, 1, 0]), lines.line.extend([-1, 2, 1, 3])
    graph = GraphLines("step", ("MatMul", "while"), ("MatMul", "While"), (0, 1), (False, True), {"while": ("body", "cond")})
    recording.source = SourceRecords([("a.py", 2), ("b.py", 1)], lines, (graph,), {"dense": 0}, {"a.py": ("x", "y = 1", "z")}, {"a.py": 3})
    recording.stacks = StackRecords(1, stacks=[(0, 1)], frames=[("f", "a.py", 1, 2), ("g", "b.py", 1, 1)])
    recording.stacks.time_ns.extend([1, 2]), recording.stacks.stack.extend([0, 0])
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "x.xplane.pb"
        write_recordings(trace, CaptureOptions(), [recording])
        return gzip.decompress(sidecar_of(trace).read_bytes())


def _prof():
    profiler = cProfile.Profile()
    profiler.runcall(lambda: json.dumps([sorted(range(9)), {"a": [1, 2]}]))
    profiler.create_stats()
    return marshal.dumps(profiler.stats)


def _pprof(*sampled):
    texts = ["", "samples", "count", *sampled, "step", "train.py", "core.py", "device", "gpu:0"]
    lines = [message((4, message((1, one), (2, 40 + one)))) for one in (1, 2)]
    return message((1, message((1, 1), (2, 2))), (1, message((1, 3), (2, 4))),
                   *((2, message((1, bytes([1, 2])), (2, bytes([n, 9 * n])), (3, message((1, 8), (2, 9))))) for n in range(1, 5)),
                   *((4, message((1, one)) + lines[one - 1]) for one in (1, 2)), *((5, message((1, one), (2, 5), (4, 5 + one))) for one in (1, 2)),
                   *((6, text) for text in texts), (12, 10))  # fmt: skip


def _notebook():
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "profnb controls", "text/html": "<b></b>"}
    cells = [{"cell_type": "code", "source": "1", "outputs": [{"output_type": "display_data", "data": view}, {"output_type": "stream", "text": "x"}]}]
    state = {"widgets": {"application/vnd.jupyter.widget-state+json": {"1": {}}}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": state, "cells": cells}).encode()


@cache
def seeds(kind):
    """The whole files of a format."""
    if kind == "xplane":
        return [_small(), _small(), _with_program(), _with_program(), (DATA / "cpu-cnn.xplane.pb").read_bytes()]
    if kind == "chrome":
        import numpy as np

        import profnb
        from profnb.profile import Profile
        from profnb.tf1.run_metadata import read_run_metadata

        found = []
        with tempfile.TemporaryDirectory() as folder:
            for raw in (_small(), _with_program()):
                file = Path(folder) / "x.xplane.pb"
                file.write_bytes(raw)
                found.append(profnb.load(file).to_chrome_trace(Path(folder) / "x.json").read_bytes())
            run = read_run_metadata([np.frombuffer(_run_metadata(), np.uint8)], "x")
            found.append(Profile(run).to_chrome_trace(Path(folder) / "y.json").read_bytes())
        plain = [{"ph": p, "name": "f", "cat": "cpu_op", "ts": t, "dur": 5, "pid": 1, "tid": 2, "args": {"correlation": t}} for t, p in ((1, "X"), (8, "B"), (9, "E"), (12, "X"), (20, "C"))]
        found.append(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "V100"}], "traceEvents": plain}).encode())
        return found
    if kind == "pprof":
        return [_pprof("space", "bytes"), _pprof("cpu", "nanoseconds")]
    if kind == "rocprof":
        from test_rocprof import tool, tracks

        return [json.dumps(one).encode() for one in ({"rocprofiler-sdk-tool": [tool()]}, tracks())]
    if kind in ("nsys", "nvprof"):
        from test_formats import graph_nodes, nsys, nvvp

        makers = {"nsys": (nsys, graph_nodes), "nvprof": (nvvp,)}[kind]
        with tempfile.TemporaryDirectory() as folder:
            return [make(Path(folder) / f"{row}.sqlite").read_bytes() for row, make in enumerate(makers)]
    if kind == "nvprof-csv":
        from test_formats import API, CSV, NSYS_CSV, TEXT

        return [text.encode() for text in (CSV, TEXT, API, NSYS_CSV)]
    if kind == "snapshot":
        from test_formats import snapshot

        return [pickle.dumps(snapshot(), 4)]
    if kind == "memory-timeline":
        from test_memory_timeline import CHANGES, SUMMED

        return [json.dumps(one).encode() for one in (CHANGES, SUMMED)]
    if kind == "onnx":
        named = (("model_run", 50, 0, "Session", {}), ("mm_kernel_time", 30, 5, "Node", {"op_name": "MatMul"}), ("relu_kernel_time", 8, 36, "Node", {"op_name": "Relu"}))
        return [json.dumps([{"cat": cat, "pid": 3, "tid": 3, "dur": took, "ts": at + after, "ph": "X", "name": name, "args": args} for at in range(1000, 1600, 100) for name, took, after, cat, args in named]).encode()]
    if kind == "tfprof":
        times = message((1, "/device:CPU:0"), (2, message(*((1, message((1, bytes([n, 3])))) for n in (5, 50, 90)))))
        execs = message((1, 7), (2, message((5, times), (4, times), (7, message((6, 90), (7, 80), (9, 60))))))
        return [message(*((1, message((1, n), (2, message((1, f"layer/op{n}"), (9, "MatMul"), (12, execs))))) for n in range(4)))]
    if kind == "event-file":
        loss = message((1, "loss")) + b"\x15" + struct.pack("<f", 0.5)  # Summary.Value.simple_value has four bytes
        events = [message((1, 1.5), (3, "brain.Event:2")), *(message((1, 1.5 + n), (2, n), (5, message((1, loss)))) for n in range(4))]
        events += [message((1, 9.5), (8, message((1, "run"), (2, _run_metadata()))))] * 2
        return [b"".join(struct.pack("<Q", len(one)) + bytes(4) + one + bytes(4) for one in events)]
    return [{"run-metadata": _run_metadata, "sidecar": _sidecar, "prof": _prof, "notebook": _notebook}[kind]()]


def case(kind, number):
    """The bytes of one hostile file."""
    rng = random.Random(f"{kind} {number}")
    base = rng.choice(seeds(kind))
    if kind in ("chrome", "sidecar", "notebook", "rocprof", "onnx", "memory-timeline") and rng.random() < 0.7:
        return _damaged_json(base, rng)
    if kind == "prof" and rng.random() < 0.5:
        return marshal.dumps(_damaged_value(marshal.loads(base), rng))
    if kind == "snapshot" and rng.random() < 0.5:
        return pickle.dumps(_damaged_value(pickle.loads(base), rng), 4)
    if kind in ("nsys", "nvprof") and rng.random() < 0.6:
        return _damaged_cells(base, rng)
    return _damaged_bytes(base, rng, seeds(kind))


def _damaged_cells(base, rng):
    """A database with some cells of odd values, rows many times over, or a column of another name."""
    with sqlite3.connect(":memory:") as connection:
        connection.deserialize(base)
        connection.text_factory = bytes
        tables = [row[0].decode() for row in connection.execute("select name from sqlite_master where type = 'table' order by name")]
        for _ in range(rng.choice((1, 2, 5, 20))):
            table = rng.choice(tables)
            columns = [row[1].decode() for row in connection.execute(f"pragma table_info({table})")]
            column, what = rng.choice(columns), rng.random()
            odd = rng.choice([*(n if isinstance(n, float) or abs(n) < 1 << 63 else None for n in _NUMBERS), *(t.encode("utf-8", "replace").decode() for t in _TEXTS), b"\xff\0"])
            try:
                if what < 0.8:
                    connection.execute(f"update {table} set {column} = ? where rowid % ? = 0", (odd, rng.choice((1, 2, 3, 7))))
                elif what < 0.95:
                    connection.execute(f"insert into {table} select * from {table} limit 100")
                else:
                    connection.execute(f"alter table {table} rename column {column} to {column}_")
            except sqlite3.Error:  # the table's key
                continue
        connection.commit()
        return bytes(connection.serialize())


def _damaged_json(base, rng):
    value = json.loads(base)
    for _ in range(rng.choice((1, 1, 2, 5))):
        value = _damaged_value(value, rng)
    text = json.dumps(value)
    if rng.random() < 0.05:
        text = text[: rng.randrange(len(text))]
    return text.encode("utf-8", "surrogatepass")


def _damaged_value(value, rng):
    """A value of the same shape with one part changed, most often to another of its type."""
    if isinstance(value, dict) and value and rng.random() < 0.97:
        key = rng.choice(list(value))
        what = rng.random()
        if what < 0.04:
            return {k: v for k, v in value.items() if k != key}
        if what < 0.07 and isinstance(key, str):
            return value | {key + rng.choice(_TEXTS): value[key]}
        return value | {key: _damaged_value(value[key], rng)}
    if isinstance(value, (list, tuple)) and value and rng.random() < 0.97:
        at, listed = rng.randrange(len(value)), list(value)
        what = rng.random()
        if what < 0.04:
            del listed[at]
        elif what < 0.08:
            listed *= rng.choice((2, 2, 50))
        else:
            listed[at] = _damaged_value(listed[at], rng)
        return type(value)(listed)
    if rng.random() < 0.15:
        return rng.choice([None, True, [], {}, "x", 0, -1, [[]], 1.5, {"a": 1}])
    if isinstance(value, str):
        return rng.choice([value + rng.choice(_TEXTS), rng.choice(_TEXTS), value[: len(value) // 2]])
    if isinstance(value, (int, float)):
        number = rng.choice([*_NUMBERS, value + 1, -value, value * 1000])
        return number
    return rng.choice([None, 0, "x", []])


def _damaged_bytes(base, rng, others):
    raw, keeps_length = bytearray(base), rng.random() < 0.6  # else most are refused at the first length
    for _ in range(rng.choice((1, 1, 2, 4, 12))):
        at = rng.randrange(len(raw) or 1)
        what = rng.choice((0, 0, 6, 7)) if keeps_length else rng.randrange(9)
        if what <= 2 and raw:
            raw[at] = rng.choice((raw[at] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 3:
            del raw[at : at + rng.choice((1, 2, 8, 100))]
        elif what == 4:
            raw[at:at] = raw[at : at + rng.choice((1, 8, 60, 400))]
        elif what == 5:
            raw[at : at + 9] = b"\xff" * rng.choice((4, 8, 9)) + b"\x01"
        elif what == 6:
            wide = struct.pack("<Q", rng.choice((0, 1, 1 << 31, 1 << 62, (1 << 64) - 1)))
            raw[at : at + 8] = wide[: len(raw) - at] if keeps_length else wide
        elif what == 7:
            text = rng.choice(_TEXTS).encode("utf-8", "surrogatepass")
            text = text[: len(raw) - at] if keeps_length else text
            raw[at : at + (len(text) if keeps_length or rng.random() < 0.7 else 0)] = text
        else:
            other = rng.choice(others)
            begin = rng.randrange(len(other))
            raw[at : at + rng.choice((0, 50))] = other[begin : begin + rng.choice((10, 80, 500))]
    if not keeps_length and rng.random() < 0.1:
        del raw[rng.randrange(len(raw) or 1) :]
    return bytes(raw)
