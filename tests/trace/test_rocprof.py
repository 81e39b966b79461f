"""AMD's rocprofv3: its JSON is a trace like any other. Made by the schema that its own tests read."""

import json

import numpy as np
import pytest

import profnb
from profnb.core.errors import TraceFormatError

MS = 1_000_000


def tool():
    """Five iterations of 10 ms under a range of ROCTx: a copy of 1 ms, then a kernel of 4 ms, each launched before."""
    names, records = [], {"kernel_dispatch": [], "memory_copy": [], "hip_api": [], "marker_api": []}

    def add(kind, number, begin, end, correlation, **rest):
        records[kind].append({"size": 8, "kind": number, "thread_id": 77, "correlation_id": {"internal": correlation, "external": 0},
                              "start_timestamp": begin, "end_timestamp": end} | rest)  # fmt: skip

    for step in range(5):
        at, one = (100 + 10 * step) * MS, 10 * step + 1
        names.append({"key": one + 5, "value": f"iteration {step}"})
        add("marker_api", 2, at, at + 9 * MS, one + 5, operation=0)
        add("hip_api", 1, at + MS // 2, at + MS, one, operation=1)
        add("hip_api", 1, at + 2 * MS, at + 2 * MS + MS // 2, one + 1, operation=0)
        add("memory_copy", 3, at + 2 * MS, at + 3 * MS, one, operation=0, src_agent_id={"handle": 10}, dst_agent_id={"handle": 21}, bytes=4096)
        sent = {"size": 8, "agent_id": {"handle": 21}, "queue_id": {"handle": 3}, "kernel_id": 16, "dispatch_id": step, "private_segment_size": 0, "group_segment_size": 48,
                "workgroup_size": {"x": 128, "y": 1, "z": 1}, "grid_size": {"x": 250, "y": 3, "z": 1}}  # fmt: skip
        add("kernel_dispatch", 0, at + 3 * MS, at + 7 * MS, one + 1, operation=0, dispatch_info=sent)
    kinds = [{"kind": "KERNEL_DISPATCH", "operations": ["KERNEL_DISPATCH"]}, {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]}, {"kind": "MARKER_CORE_API", "operations": ["roctxThreadRangeA"]}]
    agents = [{"id": {"handle": 10}, "type": 1, "name": "CPU"}, {"id": {"handle": 20}, "type": 2, "name": "gfx90a"}, {"id": {"handle": 21}, "type": 2, "name": "gfx90a", "product_name": "Made Instinct", "cu_count": 104}]
    return {"metadata": {"pid": 9}, "agents": agents, "strings": {"buffer_records": kinds, "marker_api": names}, "buffer_records": records,
            "kernel_symbols": [{"kernel_id": 16, "kernel_name": "_Z4gemm.kd", "formatted_kernel_name": "gemm(float*)", "group_segment_size": 16, "arch_vgpr_count": 40}]}  # fmt: skip


def tracks():
    """The same as Perfetto's JSON, as ``traceconv json`` writes a ``.pftrace``: whole microseconds, queues as asynchronous tracks."""
    one, symbol = tool(), "gemm(float*)"
    kinds = {row: kind["operations"] for row, kind in enumerate(one["strings"]["buffer_records"])}
    marks = {mark["key"]: mark["value"] for mark in one["strings"]["marker_api"]}
    events = [{"args": {"name": "app"}, "cat": "__metadata", "name": "process_name", "ph": "M", "pid": 9, "tid": 9, "ts": 0}]
    for category, records in one["buffer_records"].items():
        for record in records:
            begin, end, correlation = record["start_timestamp"], record["end_timestamp"], record["correlation_id"]["internal"]
            args = {"begin_ns": begin, "end_ns": end, "delta_ns": end - begin, "corr_id": correlation, "tid": record["thread_id"], "kind": record["kind"]}
            sent = record.get("dispatch_info")
            if sent:
                args |= {"agent": 4, "queue": sent["queue_id"]["handle"], "group_segment_size": 48, "workgroup_size": 128, "grid_size": 750}
            if category == "memory_copy":
                args |= {"src_agent": 0, "dst_agent": 4, "copy_bytes": record["bytes"]}
            name = symbol if sent else "MEMORY_COPY_HOST_TO_DEVICE" if "bytes" in record else marks.get(correlation) or kinds[record["kind"]][record["operation"]]
            place = {"cat": category, "name": name, "pid": 9, "tid": 9}
            if category in ("hip_api", "marker_api"):
                events.append({"args": args, "dur": (end - begin) // 1000, "ph": "X", "ts": begin // 1000, **place})
            else:
                events += [{"args": args, "id2": {"local": "0x1f"}, "ph": "b", "ts": begin // 1000, **place}, {"args": {}, "id2": {"local": "0x1f"}, "ph": "e", "ts": end // 1000, **place}]
    return {"traceEvents": events}


def load(path, tools):
    path.write_text(json.dumps({"rocprofiler-sdk-tool": tools}))
    return profnb.load(path)


@pytest.mark.parametrize("tools", [[tool()], tool()])  # older files have no list
def test_a_file_of_rocprofv3_is_a_trace_like_any_other(tmp_path, tools):
    p = load(tmp_path / "x_results.json", tools)
    assert (p.steps.duration_ms.tolist(), set(p.steps.phase)) == ([9.0] * 5, {"iteration"})
    kernel = p.kernels.iloc[0]
    assert (kernel.kernel_name, kernel.occurrences, kernel.total_us) == ("gemm(float*)", 5, 20_000)
    assert (kernel.grid, kernel.block, kernel.registers_per_thread, kernel.shared_bytes) == ("2,3,1", "128,1,1", 40, 48)
    assert p.copies[["direction", "occurrences", "bytes"]].to_numpy().tolist() == [["host to device", 5, 5 * 4096]]
    assert p.launches[["device", "kernels", "delay_us"]].to_numpy().tolist() == [["/device:GPU:1", 5, 500.0]]
    gpu = next(plane for plane in p.trace.planes if plane.name == "/device:GPU:1")
    assert (gpu.stats["device_vendor"], gpu.stats["gpu_device_name"]) == ("AMD", "Made Instinct")
    assert {"hipLaunchKernel", "hipMemcpyAsync"} <= set(p.trace.names.texts)


def test_perfettos_json_of_rocprofv3_has_the_same_tables(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(tracks(), separators=(",", ":")))
    p, q = profnb.load(tmp_path / "x.json"), load(tmp_path / "y.json", tool())
    assert p.steps.equals(q.steps) and p.copies.equals(q.copies) and p.ranges.equals(q.ranges)
    kernel = p.kernels.iloc[0]
    assert (kernel.kernel_name, kernel.occurrences, kernel.total_us, kernel.grid, kernel.block) == ("gemm(float*)", 5, 20_000, "6,1,1", "128,1,1")
    assert p.launches[["device", "kernels", "delay_us"]].to_numpy().tolist() == [["/device:GPU:0", 5, 500.0]]
    assert next(plane for plane in p.trace.planes if plane.is_device).stats["device_vendor"] == "AMD"


@pytest.mark.parametrize(("text", "essence"), [('{"rocprofiler-sdk-tool": [{"a": ', "Damaged or cut-off JSON"), ('{"rocprofiler-sdk-tool": []}', "No kernel"), ('{"rocprofiler-sdk-tool": ' + "[" * 90_000, "Damaged or cut-off JSON")])
def test_what_cannot_be_read_is_said(tmp_path, text, essence):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(TraceFormatError, match=essence):
        profnb.load(tmp_path / "x.json")


def test_values_of_any_kind_do_no_harm(tmp_path):
    rng, odd = np.random.default_rng(3), [None, -1, 1 << 70, "x", [], {}, 1.5, True, {"handle": "y"}]

    def damaged(value):
        if rng.random() < 0.03:
            return odd[rng.integers(len(odd))]
        if isinstance(value, dict):
            return {key: damaged(one) for key, one in value.items()}
        return [damaged(one) for one in value] if isinstance(value, list) else value

    outcomes = set()
    for _ in range(60):
        try:
            outcomes.add(len(load(tmp_path / "x.json", [damaged(tool())]).kernels) > 0)
        except TraceFormatError as error:
            assert "x.json" in str(error)
            outcomes.add("refused")
    assert True in outcomes
