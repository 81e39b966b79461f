import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from traces import event, gpu, host, line, read, xspace

import profnb
from profnb.steps.breakdown import column_of
from profnb.steps.activities import CATEGORIES
from profnb.core.options import CaptureOptions
from profnb.profile import Profile
from profnb.trace.runs import find_traces, pick_trace
from profnb.report.notebook_file import clean_notebook

pytestmark = pytest.mark.versions


def marker(begin, end, number):
    return event("train", begin, end - begin, _r=1, step_num=number)


BUILT = host(line("python", marker(0, 3_000_000, 4), event("a:Op", 0, 1_000_000), marker(5_000_000, 6_000_000, 5)))


def test_the_tables_have_the_promised_columns():
    p = Profile(read(BUILT))
    assert {"step_num", "begin_ms", "duration_ms", "gap_ms", "is_warmup"} <= set(p.steps)
    assert {column_of(c) for c in CATEGORIES} <= set(p.steps)
    assert list(p.step_times) == ["step_num", "phase", "wall_ms", "was_traced"]
    assert list(p.ops) == ["side", "op_type", "op_name", "occurrences", "total_us", "self_us", "self_fraction", "layer"]
    assert list(p.events) == ["plane", "line", "name", "begin_us", "duration_us", "self_us", "step_num"]


def test_times_are_in_the_unit_of_the_suffix_and_missing_is_nan():
    p = Profile(read(BUILT))
    first, last = p.steps.iloc[0], p.steps.iloc[1]
    assert (first.duration_ms, first.gap_ms) == (0.003, 0.002)
    assert np.isnan(last.gap_ms)
    assert np.isnan(first.device_compute_ms)  # no device in the trace: missing, not zero
    assert first.host_compute_ms == 0.001
    assert p.events.self_us.tolist() == [2.0, 1.0, 1.0]
    assert p.events.step_num.tolist() == [4, 4, 5]


def test_with_a_device_its_categories_are_numbers():
    p = Profile(read(BUILT, gpu(line("Stream #1", event("k", 0, 1000)))))
    assert p.steps.device_compute_ms.tolist() == [1e-6, 0.0]
    assert p.steps.output_ms.tolist() == [0.0, 0.0]


def test_the_categories_sum_to_the_duration():
    p = Profile(read(BUILT))
    columns = [column_of(c) for c in CATEGORIES]
    assert p.steps[columns].sum(axis=1).tolist() == pytest.approx(p.steps.duration_ms.tolist())


def test_a_table_is_made_fresh_on_access():
    p = Profile(read(BUILT))
    ops = p.ops
    ops["self_us"] = -1.0
    assert p.ops.self_us[0] == 1.0


def test_events_outside_every_step_have_no_step_number():
    p = Profile(read(host(line("python", marker(0, 10, 0), event("late", 50, 5)))))
    assert p.events.step_num.isna().tolist() == [False, True]


def test_a_profile_without_a_trace_says_why():
    with pytest.raises(profnb.CaptureError, match="not ended"):
        Profile().steps


def logdir(tmp_path, *runs):
    for number, (run, host_name) in enumerate(runs):
        folder = tmp_path / "plugins" / "profile" / run
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{host_name}.xplane.pb"
        file.write_bytes(xspace(BUILT, hostnames=[host_name]))
        import os

        os.utime(file, (number, number))
    return tmp_path


def test_a_logdir_gives_its_newest_run_and_first_host(tmp_path):
    root = logdir(tmp_path, ("old", "a"), ("new", "b"), ("new", "a"))
    traces = find_traces(root)
    assert [(t.run, t.host) for t in traces] == [("old", "a"), ("new", "a"), ("new", "b")]
    assert pick_trace(traces, None, None).path.parts[-2:] == ("new", "a.xplane.pb")
    assert pick_trace(traces, "new", "b").host == "b"
    assert len(profnb.load(root).steps) == 2


@pytest.mark.parametrize(("run", "host_name", "said"), [("x", None, "old, new"), (None, "z", "a, b")])
def test_a_run_or_host_that_is_not_there_is_answered_with_those_that_are(tmp_path, run, host_name, said):
    root = logdir(tmp_path, ("old", "a"), ("new", "b"), ("new", "a"))
    with pytest.raises(ValueError, match=said):
        profnb.load(root, run=run, host=host_name)


def test_missing_paths_and_empty_folders(tmp_path):
    with pytest.raises(FileNotFoundError):
        profnb.load(tmp_path / "no")
    with pytest.raises(profnb.TraceFormatError, match=r"\*\.xplane\.pb"):
        profnb.load(tmp_path)


def test_saving_writes_the_same_bytes_in_tensorboards_layout_but_for_paths_and_hosts(tmp_path, cpu_trace_path):
    p = profnb.load(cpu_trace_path)
    saved = p.save(tmp_path)
    recorded, kept = cpu_trace_path.read_bytes(), saved.read_bytes()
    assert len(kept) == len(recorded)
    changed = [at for at, (one, two) in enumerate(zip(recorded, kept)) if one != two]
    assert len(changed) < len(recorded) / 100
    assert not any(re.search(rb"(?<![\w-])" + re.escape(name) + rb"(?![\w-])", kept) for name in p.trace.sharing.names)
    assert saved.parents[2].name == "plugins"
    pd.testing.assert_frame_equal(profnb.load(tmp_path).ops, profnb.load(cpu_trace_path).ops)


@pytest.mark.parametrize(
    "bad", [{"max_steps": 0}, {"max_seconds": 0}, {"warmup_steps": -1}, {"host_level": 9}, {"max_seconds": float("nan")}, {"logdir": "gs://bucket/logs"}]
)
def test_options_that_cannot_be_meant_are_refused(bad):
    with pytest.raises(ValueError, match="must be|positive|local"):
        CaptureOptions(**bad)


def run_command(*arguments):
    return subprocess.run([sys.executable, "-m", "profnb", *map(str, arguments)], capture_output=True, text=True)


def test_the_command_line_reports_lists_and_writes(tmp_path, cpu_trace_path):
    run = run_command("report", cpu_trace_path)
    assert run.returncode == 0
    assert "8 train steps" in run.stdout
    run = run_command("report", cpu_trace_path, "-o", tmp_path / "out.html")
    assert (tmp_path / "out.html").stat().st_size > 100_000
    root = logdir(tmp_path, ("one", "a"))
    assert "run one  host a" in run_command("report", root, "--list").stdout


def test_the_command_line_says_what_is_wrong_in_one_line(tmp_path):
    (tmp_path / "x.xplane.pb").write_bytes(b"nonsense")
    run = run_command("report", tmp_path / "x.xplane.pb")
    assert run.returncode == 1
    assert run.stderr.startswith("profnb: x.xplane.pb is a text.")
    assert run.stderr.count("\n") == 1


def colab_notebook():
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": ["Live controls need the kernel that made them."]}
    other = {"application/vnd.jupyter.widget-view+json": {"model_id": "2"}, "text/plain": "tqdm"}
    return {
        "nbformat": 4, "nbformat_minor": 5,
        "metadata": {"widgets": {"application/vnd.jupyter.widget-state+json": {"1": {}, "2": {}}}},
        "cells": [
            {"cell_type": "markdown", "source": "é"},
            {"cell_type": "code", "outputs": [
                {"output_type": "display_data", "data": view},
                {"output_type": "display_data", "data": other},
                {"output_type": "stream", "text": "x"},
            ]},
        ],
    }  # fmt: skip


def test_a_notebook_that_github_calls_invalid_is_repaired(tmp_path):
    file = tmp_path / "nb.ipynb"
    file.write_text(json.dumps(colab_notebook()))
    changes = clean_notebook(file)
    assert len(changes) == 2
    cleaned = json.loads(file.read_text())
    assert "widgets" not in cleaned["metadata"]
    assert len(cleaned["cells"][1]["outputs"]) == 2  # the user's own widget stays
    assert clean_notebook(file) == []


def test_a_healthy_notebook_is_left_alone(tmp_path):
    notebook = colab_notebook()
    notebook["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    del notebook["cells"][1]["outputs"][0]
    file = tmp_path / "nb.ipynb"
    file.write_text(json.dumps(notebook))
    before = file.read_text()
    assert run_command("clean", file).stdout == "Nothing to repair.\n"
    assert file.read_text() == before


@pytest.mark.parametrize("text", ["not json", "[]", '{"cells": 3}'])
def test_what_is_no_notebook_is_refused(tmp_path, text):
    file = tmp_path / "nb.ipynb"
    file.write_text(text)
    with pytest.raises(ValueError, match="not a notebook"):
        clean_notebook(file)


def test_kernels_copies_and_idle_are_tables_in_the_units_of_their_names():
    from traces import ref

    us = 10**6
    kernel = event("gemm", 20 * us, 30 * us, kernel_details=ref("regs:16 shm:0 grid:2,1,1 block:32,1,1"), tf_op=ref("a/MatMul:MatMul"))
    copy = event("MemcpyH2D", 5 * us, 10 * us, memcpy_details=ref("kind_src:pageable size:1000 dest:0"))
    p = Profile(read(host(line("python", event("train", 0, 100 * us, step_num=0, _r=1))), gpu(line("Stream #1", copy, kernel))))
    (row,) = p.kernels.to_dict("records")
    assert (row["kernel_name"], row["op_name"], row["occurrences"], row["total_us"], row["registers_per_thread"], row["grid"]) == ("gemm", "a/MatMul", 1, 30.0, 16.0, "2,1,1")
    assert np.isnan(row["occupancy_percent"])
    (copied,) = p.copies.to_dict("records")
    assert copied.pop("gigabytes_per_second") == pytest.approx(0.1)
    assert copied == {"direction": "host to device", "source_kind": "pageable", "destination_kind": "", "occurrences": 1, "total_us": 10.0, "bytes": 1000.0}
    assert p.idle.total_us.sum() == 60.0
    assert p.idle.set_index("cause").window_fraction["Python in the step"] == 0.6
    empty = Profile(read(host(line("python", event("train", 0, 100 * us, step_num=0, _r=1)))))
    assert len(empty.kernels) == len(empty.copies) == len(empty.idle) == 0


def test_memory_is_a_table_by_allocator_and_time(shared_traces, tmp_path):
    ms = 10**9
    state = dict(allocator_name="cpu", bytes_reserved=0)
    p = Profile(read(host(line("t", event("MemoryAllocation", ms, 0, bytes_allocated=100, **state), event("MemoryDeallocation", 2 * ms, 0, bytes_allocated=40, **state)))))
    assert p.memory.drop(columns=["reserved_bytes", "fragmentation"]).to_dict("list") == {"allocator": ["cpu", "cpu"], "time_ms": [1.0, 2.0], "in_use_bytes": [100.0, 40.0]}
    assert p.memory.reserved_bytes.isna().all()
    gpu = profnb.load(shared_traces / "gpu-cnn-batch512").memory
    # peakStats of host.memory_profile.json.gz: the bytes, and one of the times at which they were in use.
    peaks = gpu[gpu.in_use_bytes == gpu.in_use_bytes.max()]
    assert set(peaks.allocator) == {"GPU_0_bfc"} and set(peaks.in_use_bytes) == {80_176_384}
    assert 260.148603 in peaks.time_ms.round(6).tolist()
    torch = profnb.load(shared_traces / "kineto" / "resnet50.pt.trace.json.gz").memory
    assert set(torch.allocator) == {"CPU", "GPU:0"}
    assert len(Profile(read(BUILT)).memory) == 0


DEEP = "[" * 30_000 + "]" * 30_000
NESTED = '{"cells": [], "metadata": {"widgets": {}, "deep": ' + "[" * 900 + "]" * 900 + "}}"


@pytest.mark.parametrize("text", [DEEP, '{"cells": ' + DEEP + "}", "{", "[]", "\udcff"], ids=range(5))
def test_what_is_no_notebook_is_refused_in_one_way_and_leaves_nothing(tmp_path, text):
    file = tmp_path / "nb.ipynb"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match="is not a notebook"):
        clean_notebook(file)
    assert [path.name for path in tmp_path.iterdir()] == ["nb.ipynb"]


def test_a_deep_notebook_is_repaired_or_refused_and_leaves_nothing(tmp_path):
    file = tmp_path / "nb.ipynb"
    file.write_text(NESTED)
    try:
        assert clean_notebook(file) != []
    except ValueError:
        assert file.read_text() == NESTED
    assert [path.name for path in tmp_path.iterdir()] == ["nb.ipynb"]


@pytest.mark.parametrize("shown", [5, None, {"a": 1}, [1, 2], ["x", 3], [["x"]], True])
def test_outputs_that_are_no_text_are_let_alone(tmp_path, shown):
    notebook = colab_notebook()
    view = "application/vnd.jupyter.widget-view+json"
    odd = {"output_type": "display_data", "data": {view: {}, "text/plain": shown, "text/html": shown}}
    notebook["cells"][1]["outputs"].append(odd)
    file = tmp_path / "nb.ipynb"
    file.write_text(json.dumps(notebook))
    assert len(clean_notebook(file)) == 2
    assert json.loads(file.read_text())["cells"][1]["outputs"][-1] == odd


def test_half_a_character_survives_a_repair(tmp_path):
    notebook = colab_notebook()
    notebook["cells"][0]["source"] = "half \ud83d of an emoji"
    file = tmp_path / "nb.ipynb"
    file.write_text(json.dumps(notebook))
    clean_notebook(file)
    assert json.loads(file.read_text())["cells"][0]["source"] == "half \ud83d of an emoji"


def test_a_disk_that_is_full_costs_no_notebook_and_leaves_nothing(tmp_path, monkeypatch):
    file = tmp_path / "nb.ipynb"
    file.write_text(json.dumps(colab_notebook()))
    before = file.read_text()

    def half(path, data):
        with path.open("wb") as written:
            written.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(file), "write_bytes", half)
    with pytest.raises(OSError, match="No space"):
        clean_notebook(file)
    assert file.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["nb.ipynb"]
