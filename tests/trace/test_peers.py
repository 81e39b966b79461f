"""Numbers that a file's own tools tell of it: nsys stats, PyTorch's memory_viz, rocprofv3 --stats; pprof and tfprof have theirs.

Each tool's formula stands here once more, in its own words (SQL, a walk), and in the docstring of the reader.
"""

import pickle
import sqlite3

import pytest
from test_formats import nsys, nvvp, snapshot
from test_rocprof import load as load_rocprof
from test_rocprof import tool

import profnb

MIB = 1 << 20
_PLAIN = "case substr(value, -6, 2) when '_v' then substr(value, 1, length(value) - 6) else value end"  # as cuda_api_sum cuts names


@pytest.fixture(params=["made", "shared"])
def export(request, tmp_path):
    if request.param == "made":
        return nsys(tmp_path / "x.sqlite")
    return request.getfixturevalue("shared_traces") / "other-tools" / "nsys.sqlite"


def test_kernels_calls_copies_and_ranges_are_those_of_nsys_stats(export):
    """cuda_gpu_kern_sum, cuda_api_sum, cuda_gpu_mem_size_sum and nvtx_sum."""
    p = profnb.load(export)
    with sqlite3.connect(f"file:{export}?mode=ro", uri=True) as database:
        numbers = "count(*), sum(end - start), min(end - start), max(end - start)"
        kernels = database.execute(f"select value, {numbers} from CUPTI_ACTIVITY_KIND_KERNEL join StringIds on id = demangledName group by value").fetchall()
        calls = database.execute(f"select {_PLAIN} as name, {numbers} from CUPTI_ACTIVITY_KIND_RUNTIME join StringIds on id = nameId group by name").fetchall()
        copied = database.execute("select count(*), sum(bytes), sum(end - start) from CUPTI_ACTIVITY_KIND_MEMCPY where copyKind = 1").fetchone()
        marked = database.execute("select count(*), sum(end - start) from NVTX_EVENTS where eventType = 59 and coalesce(text, '') like 'iteration %'").fetchone()
    database.close()
    mine = p.kernels.groupby("kernel_name").agg({"occurrences": "sum", "total_us": "sum", "min_us": "min", "max_us": "max"})
    assert {row.Index: tuple(row[1:]) for row in mine.itertuples()} == {name: (n, *(ns / 1e3 for ns in rest)) for name, n, *rest in kernels}
    of_calls = p.events[p.events.name.isin([name for name, *_ in calls])].groupby("name").duration_us.agg(["size", "sum", "min", "max"])
    assert {row.Index: tuple(row[1:]) for row in of_calls.itertuples()} == {name: (n, *(ns / 1e3 for ns in rest)) for name, n, *rest in calls}
    copies = p.copies.set_index("direction").loc["host to device"]
    assert (copies.occurrences, copies.bytes, copies.total_us * 1e3) == copied
    ranges = p.ranges.set_index("range").loc["iteration"]
    assert (ranges.occurrences, ranges.host_ms * 1e6) == (marked[0], pytest.approx(marked[1]))


def test_kernels_of_nvprof_are_those_of_its_summary(tmp_path):
    path = nvvp(tmp_path / "x.nvvp")
    with sqlite3.connect(path) as database:
        rows = database.execute("select value, count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL join StringTable on _id_ = name group by value").fetchall()
    database.close()
    p = profnb.load(path)
    assert list(zip(p.kernels.kernel_name, p.kernels.occurrences, p.kernels.total_us * 1e3, strict=True)) == rows


def test_kernels_of_rocprofv3_are_those_of_its_stats(tmp_path):
    dispatches = tool()["buffer_records"]["kernel_dispatch"]
    took = [one["end_timestamp"] - one["start_timestamp"] for one in dispatches]
    p = load_rocprof(tmp_path / "x.json", [tool()])
    kernel = p.kernels.iloc[0]
    assert (kernel.occurrences, kernel.total_us * 1e3, kernel.mean_us * 1e3, kernel.min_us * 1e3, kernel.max_us * 1e3) == (len(took), sum(took), sum(took) / len(took), min(took), max(took))


# PyTorch's memory_viz.


def viz_of(snapshot, device):
    """Walk a device's history as MemoryViz.js does, and give what is in use after each change."""
    alive, before, changes = {}, 0, []
    for event in snapshot["device_traces"][device]:
        if event["action"] == "alloc":
            alive[event["addr"]] = event["size"]
            changes.append(event["size"])
        elif event["action"] in ("free", "free_completed"):
            before += 0 if event["addr"] in alive else event["size"]
            changes.append(-alive.pop(event["addr"], event["size"]))
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment.get("blocks", ()):
            if segment["device"] == device and block["state"] == "active_allocated" and at not in alive:
                before += block["requested_size"]
            at += block["size"]
    return [before + sum(changes[: row + 1]) for row in range(len(changes))]


def with_what_was_there():
    """The same history beside 2 MiB by ``init.py:3`` and 8 MiB by nobody who is known, and 3 MiB that are freed in it."""
    one, frames = snapshot(), [{"filename": "/home/user/init.py", "line": 3, "name": "g"}]
    blocks = [
        {"size": 8 * MIB, "requested_size": 8 * MIB, "state": "active_allocated", "frames": []},
        {"size": 4 * MIB, "requested_size": 4 * MIB, "state": "inactive", "frames": frames},
        {"size": 4 * MIB, "requested_size": 2 * MIB, "state": "active_allocated", "frames": frames},
    ]
    of_history = [{"size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": frames}]
    one["segments"] = [{"device": 1, "address": 1 << 34, "blocks": blocks}, {"device": 1, "address": 2, "blocks": of_history}, {"device": 0, "address": 0, "blocks": []}]
    one["device_traces"][1].insert(-2, {"action": "free_completed", "addr": 77, "size": 3 * MIB, "stream": 0, "time_us": 8, "frames": []})
    return one


def test_what_was_allocated_before_the_history_counts_as_in_memory_viz(tmp_path):
    made = with_what_was_there()
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(made, 4))
    p = profnb.load(tmp_path / "s.pickle")
    in_use = [mib * MIB for mib in (13, 14, 18, 14, 11, 12, 13)]
    assert p.memory.in_use_bytes.tolist() == in_use
    assert viz_of(made, 1) == in_use[1:]  # which has no moment of its own for what was there
    rows = dict(zip(p.memory_peak.op_name, p.memory_peak.bytes // MIB, strict=True))
    assert rows == {"(held since before the trace began)": 11, "model.py:5 f": 4, "init.py:3 g": 2, "train.py:12 f": 1}


def test_what_a_thread_of_autograd_allocated_has_its_op(tmp_path):
    """Real names of frames (PyTorch 2.8, ``stacks="all"``): no Python ran there."""
    names = ["torch::unwind::unwind()", "at::native::structured_bmm_out_cuda::impl(at::Tensor const&)",
             "torch::autograd::VariableType::(anonymous namespace)::bmm(c10::DispatchKeySet, at::Tensor const&)", "torch::autograd::generated::BmmBackward0::apply(int)"]  # fmt: skip
    frames = [{"name": name, "filename": "??", "line": 0} for name in names]
    change = {"action": "alloc", "addr": 9, "size": MIB, "stream": 0, "time_us": 1}
    history = [change | {"frames": frames}, change | {"addr": 10, "frames": frames[3:]}, change | {"addr": 11, "frames": frames[:2]}]
    (tmp_path / "s.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [history]}, 4))
    assert profnb.load(tmp_path / "s.pickle").memory_peak.op_name.tolist() == ["bmm", "BmmBackward0", "(no op)"]


def test_the_shared_snapshot_is_as_memory_viz_has_it(shared_traces):
    path = shared_traces / "other-tools" / "torch-memory-snapshot.pickle"
    walked = viz_of(pickle.loads(path.read_bytes()), 0)
    p = profnb.load(path)
    assert p.memory.in_use_bytes.tolist()[-len(walked) :] == walked
    assert p.memory_summary.peak_bytes.tolist() == [max(walked)]
