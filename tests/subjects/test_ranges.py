"""Ranges that a program marked: as steps, asked for by name, and as a table of host and device time."""

import json

import numpy as np
import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

import profnb
from profnb.profile import Profile
from profnb.steps.streams import raw_device_lines
from profnb.trace.files import read_trace

MS = 10**9


def marked(name, begin, duration, *, thread=1):
    """A range of PyTorch, in microseconds."""
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 7, "tid": thread, "ts": begin, "dur": duration, "args": {}}


def launched(number, at, begin, duration, *, thread=1, stream=7, name="gemm"):
    """A launch of a microsecond, and the kernel that it starts."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": thread, "ts": at, "dur": 1, "args": {"correlation": number}}
    kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": duration, "args": {"correlation": number, "stream": stream, "device": 0}}
    return [call, kernel]


def load(folder, *events, **rest):
    flat = [one for part in events for one in (part if isinstance(part, list) else [part])]
    path = folder / "x.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "V100"}], "traceEvents": flat}))
    return profnb.load(path, **rest)


def rows(profile):
    """Each range with the ranges around it: runs, host and device time in microseconds, kernels."""
    table = profile.ranges
    return {
        (f"{row.parent} / " if row.parent else "") + row.range: (row.occurrences, round(row.host_ms * 1e3), round(row.device_busy_ms * 1e3), row.kernels)
        for row in table.itertuples()
    }  # fmt: skip


def nested(folder, **rest):
    """Three iterations of 100 us in an epoch: forward launches [20, 40), backward's thread [50, 70) and [60, 90)."""
    parts = [marked("epoch 0", 0, 400)]
    for at in range(3):
        begin = 100 * at
        parts += [
            marked(f"train_iter {at}", begin, 95), marked("forward", begin + 5, 30), marked("backward", begin + 40, 50),
            launched(10 * at + 1, begin + 10, begin + 20, 20),
            launched(10 * at + 2, begin + 45, begin + 50, 20, thread=2),
            launched(10 * at + 3, begin + 47, begin + 60, 30, thread=2, stream=8),
        ]  # fmt: skip
    return load(folder, *parts, **rest)


def test_what_ran_at_once_counts_once_for_a_range_and_for_those_around_it(tmp_path):
    p = nested(tmp_path)
    assert rows(p) == {
        "epoch": (1, 400, 180, 9),
        "epoch / train_iter": (3, 285, 180, 9),
        "epoch / train_iter / backward": (3, 150, 120, 6),
        "epoch / train_iter / forward": (3, 90, 60, 3),
    }
    assert p.ranges.device_fraction.tolist() == pytest.approx([1, 1, 2 / 3, 1 / 3])
    assert list(p.ranges.range) == ["epoch", "train_iter", "backward", "forward"]


def test_work_that_runs_after_its_range_belongs_to_it(tmp_path):
    p = load(tmp_path, marked("a", 0, 10), marked("b", 20, 10), launched(1, 2, 100, 50), launched(2, 25, 150, 10), launched(3, 50, 200, 40))
    assert rows(p) == {"a": (1, 10, 50, 1), "b": (1, 10, 10, 1)}
    assert p.ranges.device_fraction.tolist() == pytest.approx([0.5, 0.1])


def test_other_threads_launch_for_what_runs_on_the_thread_of_ranges(tmp_path):
    p = load(tmp_path, marked("a", 0, 10), marked("b", 20, 10), launched(1, 25, 30, 5, thread=9), launched(2, 15, 40, 5, thread=9))
    assert rows(p) == {"a": (1, 10, 0, 0), "b": (1, 10, 5, 1)}


def test_without_a_launch_that_was_recorded_device_time_is_missing_not_zero(tmp_path):
    kernel = launched(1, 0, 30, 5)[1]
    table = load(tmp_path, marked("a", 0, 10), kernel).ranges
    assert table.device_busy_ms.isna().all() and table.kernels.isna().all() and table.host_ms.tolist() == [0.01]


def test_a_range_inside_of_one_of_its_name_and_very_deep_ones_are_bounded(tmp_path):
    p = load(tmp_path, *(marked("r", at, 1000 - 2 * at) for at in range(100)), launched(1, 300, 400, 7))
    table = p.ranges
    assert len(table) == 32 and table.occurrences.tolist() == [1.0] * 31 + [69.0]
    assert (table.device_busy_ms == 0.007).all()


def test_annotations_of_tensorflow_and_jax_are_ranges_and_the_runtimes_own_events_are_none():
    def one(at):
        begin = at * 10 * MS
        return [
            event("train_iter", begin, 9 * MS, step_num=at, _r=1), event("load data", begin, MS), event("Iterator::GetNext", begin, MS // 2),
            event("PjitFunction(f)", begin + 2 * MS, 5 * MS), event("backend_compile", begin + 2 * MS, 4 * MS), event("Execute::Run", begin + 2 * MS, MS),
            event("cuLaunchKernel", begin + 4 * MS, MS // 10, correlation_id=at),
        ]  # fmt: skip
    kernels = [event("gemm", (at * 10 + 5) * MS, 3 * MS, correlation_id=at) for at in range(4)]
    p = Profile(read(host(line("python", *(e for at in range(4) for e in one(at)))), gpu(line("Stream #1", *kernels))))
    assert rows(p) == {"train_iter": (4, 36_000, 12_000, 4), "train_iter / load data": (4, 4_000, 0, 0)}
    assert "`steps=` takes another range: `load data`." in " ".join(p.notes)


def test_scopes_of_jax_are_rows_of_their_own():
    ops = ("jit(f)/jit(main)/encoder/attention/dot_general", "jit(f)/jit(main)/transpose(jvp(encoder))/mul", "jit(f)/jit(main)/add")
    kernels = [event("k", at * 10 * MS, 4 * MS, tf_op=op) for at, op in enumerate(ops)]
    calls = [event("PjitFunction(f)", at * 30 * MS, MS) for at in range(3)]
    table = Profile(read(host(line("python", *calls)), gpu(line("Stream #1", *kernels)))).ranges
    assert table.kind.tolist() == ["named scope"] * 2
    assert list(zip(table.parent, table.range, table.device_busy_ms, table.kernels, strict=True)) == [("", "encoder", 8.0, 2.0), ("encoder", "attention", 4.0, 1.0)]
    assert table.host_ms.isna().all()


# Steps that were asked for.


def test_a_range_that_was_asked_for_is_the_step_and_the_others_are_named(tmp_path):
    p = nested(tmp_path, steps="forward")
    assert p.steps.phase.tolist() == ["forward"] * 3
    (note,) = [note for note in p.notes if "forward" in note and note.startswith("Steps")]
    assert note == "Steps are the range `forward`, as asked. `steps=` takes another range: `train_iter`, `backward`."
    with_number = nested(tmp_path, steps="train_iter")
    assert with_number.steps.begin_ms.tolist() == pytest.approx([0.0, 0.1, 0.2])


def test_ranges_beside_step_markers_are_named(tmp_path):
    events = [one for at in range(3) for one in (marked(f"ProfilerStep#{at}", 100 * at, 90), marked("part", 100 * at + 10, 30))]
    p = load(tmp_path, events)
    assert "Steps are the step markers. `steps=` takes another range: `part`." in p.notes
    assert load(tmp_path, events, steps="part").steps.duration_ms.tolist() == pytest.approx([0.03] * 3)


def test_a_name_that_no_range_has_is_refused_with_those_that_repeat(tmp_path):
    with pytest.raises(ValueError, match=r"^x.pt.trace.json has no range 'nothing'; these repeat: `train_iter`, `backward`, `forward`\.$"):
        nested(tmp_path, steps="nothing")
    with pytest.raises(ValueError, match="no range repeats in it"):
        load(tmp_path, marked("one", 0, 10), steps="two")


def test_a_capture_without_the_range_says_so_and_finds_steps_by_itself():
    markers = [event("train", at * 10 * MS, 9 * MS, step_num=at, _r=1) for at in range(5)]
    trace = read(host(line("python", *markers)))
    p = Profile(trace, options=profnb.CaptureOptions(steps="gone"))
    assert len(p.steps) == 5
    assert p.notes[0] == "No range is called 'gone'. Steps are the step markers."


def test_the_command_and_the_option_take_a_name_or_a_number(tmp_path, capsys):
    from profnb.__main__ import _parser, main
    from profnb.core.options import options_of

    nested(tmp_path)
    assert main(["report", str(tmp_path / "x.pt.trace.json"), "--steps", "forward"]) == 0
    assert "as asked" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "x.pt.trace.json"), "--steps", "x"]) == 1
    assert "has no range 'x'" in capsys.readouterr().err
    parse = lambda *words: options_of(_parser().parse_args(["run", *words, "a.py"]))
    assert parse("--steps", "train_iter", "-n", "7") == profnb.CaptureOptions(max_steps=7, steps="train_iter")
    assert parse("--steps", "12").max_steps == 12
    with pytest.raises(ValueError, match="name of a range"):
        profnb.CaptureOptions(steps=" ")
    with pytest.raises(ValueError, match="steps takes a range's name: max_steps=12 is a number"):
        profnb.CaptureOptions(steps=12)


# What one stream runs at once.


def test_kernels_that_overlap_on_one_stream_count_once_in_every_table(tmp_path):
    """[20, 220) and [140, 340) of each 1,000 us: 320 us, of which the second has 120 alone; as after Hopper's dependent launch."""
    parts = [[marked("train_iter", at, 950), launched(at + 1, at + 5, at + 20, 200), launched(at + 2, at + 10, at + 140, 200, name="relu")] for at in range(0, 5000, 1000)]
    p = load(tmp_path, *(one for part in parts for one in part))
    assert p.steps.device_compute_ms.tolist() == pytest.approx([0.32] * 5)
    assert p.steps.launched_work_ms.tolist() == pytest.approx([0.32] * 5)
    assert p.devices.busy_us.tolist() == p.streams.busy_us.tolist() == [5 * 320]
    on_device = p.events[p.events.line == "stream 7"]
    assert sorted(set(on_device.self_us)) == [120, 200] and on_device.self_us.sum() == 5 * 320
    assert p.ops[p.ops.side == "device"].self_us.sum() == 5 * 320
    assert p.layers.device_us.sum() == 5 * 320
    assert p.ranges.device_busy_ms.tolist() == pytest.approx([5 * 0.32])
    assert p.kernels.total_us.tolist() == [1000, 1000]  # what each took by itself


def test_kernels_inside_of_one_another_on_a_stream_add_up_to_its_busy_time(tmp_path):
    p = load(tmp_path, marked("a", 0, 900), launched(1, 5, 100, 300), launched(2, 10, 150, 100), launched(3, 15, 350, 100))
    on_device = p.events[p.events.line == "stream 7"]
    assert on_device.self_us.tolist() == [200, 100, 50] and p.streams.busy_us.tolist() == [350]


def test_long_names_of_kernels_stay_apart_where_json_cuts_them(tmp_path):
    names = [f"void at::native::vectorized_elementwise_kernel<4, at::native::{'x' * 80}<{one}>, std::array<char*, 3ul> >(int)" for one in ("add", "mul")]
    p = load(tmp_path, marked("a", 0, 90), launched(1, 5, 10, 20, name=names[0]), launched(2, 6, 40, 20, name=names[1]))
    shown = [row[0] for row in p.to_dict()["tables"]["kernels"]["top"]]
    assert len(set(shown)) == 2 and any("add" in name for name in shown) and any("mul" in name for name in shown)


# ONNX Runtime.


def test_a_profile_of_onnx_runtime_has_its_runs_as_steps_and_its_nodes_as_ops(tmp_path):
    def one(at, name, took, kind=""):
        args = {"op_name": kind, "provider": "CPUExecutionProvider"} if kind else {}
        return {"cat": "Node" if kind else "Session", "pid": 3, "tid": 3, "dur": took, "ts": at, "ph": "X", "name": name, "args": args}

    runs = [[one(at, "model_run", 50), one(at + 5, "mm_kernel_time", 30, "MatMul"), one(at + 36, "relu_kernel_time", 8, "Relu")] for at in range(1000, 1600, 100)]
    path = tmp_path / "onnxruntime_profile.json"
    path.write_text(json.dumps([one(0, "session_initialization", 900), *(e for run in runs for e in run)]))
    p = profnb.load(path)
    assert p.steps.duration_ms.tolist() == pytest.approx([0.05] * 6) and set(p.steps.phase) == {"model_run"}
    assert p.ops[["op_name", "op_type", "occurrences", "total_us"]].to_numpy().tolist() == [["mm", "MatMul", 6, 180.0], ["relu", "Relu", 6, 48.0]]
    assert p.steps.host_compute_ms.tolist() == pytest.approx([0.038] * 6)
    assert not any("PyTorch" in text or "TensorFlow" in text for text in (p.summary(), *p.notes))


# Against a count of its own.


@pytest.mark.parametrize("path", every_shared_trace())
def test_ranges_of_every_trace_agree_with_a_plain_walk(path):
    p = Profile(read_trace(path))
    trace, study = p.trace, p.study
    table = study.source.ranges
    work = np.flatnonzero(raw_device_lines(trace)[trace.lines.of_event])
    whole, until = 0, -1
    for e in sorted(work.tolist(), key=lambda e: trace.events.begin_ps[e]):
        begin, end = max(int(trace.events.begin_ps[e]), until), int(trace.events.end_ps[e])
        whole, until = whole + max(end - begin, 0), max(until, end)
    assert table.device_ps == whole
    runs = sum(row.occurrences for row in table.rows if row.kind == "range")
    assert runs == len(study.ranges)
    by_path = {(row.kind, row.path): row for row in table.rows}
    for row in table.rows:
        assert not row.busy_ps > whole
        if len(row.path) > 1:
            assert not row.busy_ps > by_path[row.kind, row.path[:-1]].busy_ps
