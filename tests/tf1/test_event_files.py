"""TensorBoard's event files: session runs are steps, scalars are a table, all files of a folder are one run."""

import re
import struct

import pytest
from traces import message

import profnb
from profnb.core.errors import TraceFormatError
from profnb.trace.runs import find_traces

VERSION = message((1, 1.5), (3, "brain.Event:2"))


def record(event):
    return struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4)


def run_at(begin_us):
    node = message((1, "a"), (2, begin_us), (4, 30), (5, 30), (8, "a = MatMul(b, c)"))
    return message((1, message((1, message((1, "/device:CPU:0"), (2, node))))))


def test_the_runs_in_an_event_file_are_steps(tmp_path):
    runs = [record(message((1, 1.5), (8, message((1, f"step{n}"), (2, run_at(1000 + 100 * n)))))) for n in range(3)]
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(record(VERSION) + record(message((1, 1.5), (4, b"a graph"))) + b"".join(runs))
    for p in (profnb.load(path), profnb.load(tmp_path)):
        assert p.steps.duration_ms.tolist() == [0.03] * 3
        assert p.ops[["op_name", "op_type", "occurrences"]].to_numpy().tolist() == [["a", "MatMul", 3]]
    path.write_bytes(path.read_bytes()[:-9])  # as it is while it is written
    assert len(profnb.load(path).steps) == 2


@pytest.mark.parametrize(
    ("content", "essence"),
    [
        (record(VERSION) + record(message((1, 1.5), (4, b"a graph"))), "without RunMetadata or scalars"),
        (record(VERSION) + struct.pack("<Q", (1 << 64) - 1) + bytes(40), "without RunMetadata"),
        (record(VERSION) + record(b"\x42\xff\xff"), r"without RunMetadata or scalars \(1 records are damaged\)"),
    ],
)  # fmt: skip
def test_an_event_file_without_runs_or_damaged_is_refused(tmp_path, content, essence):
    (tmp_path / "events.out.tfevents.1.host").write_bytes(content)
    with pytest.raises(TraceFormatError, match=f"events.out.*{essence}"):
        profnb.load(tmp_path)


@pytest.mark.parametrize(("step", "tag"), [(100, "run"), (0, "step100"), (0, "100 train")])
def test_runs_that_are_not_one_after_the_other_are_no_loop(tmp_path, step, tag):
    """Every hundredth run was recorded, 99 ms before the next one: what ran in between is nobody's waiting."""
    for every, gap_kinds in ((1, ["in the loop"] * 4 + ["last"]), (100, ["last"] * 5)):
        path = tmp_path / f"events.out.tfevents.{every}.host"
        runs = [record(message((1, 1.5), (2, step and n * every + 1), (8, message((1, tag.replace("100", str(n * every))), (2, run_at(1000 + 99_000 * n)))))) for n in range(5)]
        path.write_bytes(record(VERSION) + b"".join(runs))
        p = profnb.load(path)
        assert p.steps.gap_kind.tolist() == gap_kinds
        assert p.steps.step_num.tolist() == [n * every + (step > 0) for n in range(5)]
        assert p.steps.gap_ms.notna().sum() == (4 if every == 1 else 0)
        is_told = any("Only the runs in the file were recorded" in note for note in p.notes)
        assert is_told == (every == 100)
        path.unlink()
    assert re.search(r"between steps +—", p.summary()) and not p.advice
    assert p.cell_tree.wall_ms.iloc[0] == pytest.approx(5 * 0.03)


def test_a_damaged_record_costs_no_other(tmp_path):
    runs = [record(message((1, 1.5), (8, message((1, f"step{n}"), (2, run_at(1000 + 100 * n)))))) for n in range(3)]
    bad_scalar, bad_event = record(message((1, 1.5), (5, b"\x0a\xff\xff"))), record(b"\x42\xff\xff")
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(record(VERSION) + runs[0] + bad_scalar + runs[1] + bad_event + scalar("loss", 5, 9, 0.5) + runs[2])
    p = profnb.load(path)
    assert (len(p.steps), p.scalars.value.tolist()) == (3, [0.5])
    assert "2 damaged records of the event files could not be read." in " ".join(p.notes)


# PyTorch's memory snapshot.


def single(value):
    return struct.pack("<f", value)


def scalar(tag, step, at_s, value):
    """A scalar as TF1 and PyTorch write it: a plain number."""
    return record(message((1, float(at_s)), (2, step), (5, message((1, message((1, tag)) + b"\x15" + single(value))))))


def tensor(tag, step, at_s, *fields):
    return record(message((1, float(at_s)), (2, step), (5, message((1, message((1, tag), (8, message(*fields))))))))


def rows(p):
    return p.scalars.astype(object).where(p.scalars.notna(), None).to_numpy().tolist()


def test_scalars_of_every_kind_are_a_table_by_run_with_the_speed(tmp_path):
    train, test = (tmp_path / name for name in ("train", "test"))
    train.mkdir()
    test.mkdir()
    one = tensor("loss", 20, 15, (1, 1), (2, b""), (4, single(0.25))) + tensor("loss", 10, 10, (1, 2), (6, struct.pack("<d", 0.5)))
    other = [tensor("text", 1, 1, (1, 7), (8, "x")), tensor("vector", 1, 1, (1, 1), (2, message((2, message((1, 1))))), (4, single(1)))]
    (train / "events.out.tfevents.1.a").write_bytes(record(VERSION) + one + b"".join(other))
    (train / "events.out.tfevents.2.b").write_bytes(record(VERSION) + scalar("loss", 30, 20, float("nan")) + tensor("rate", 5, 1, (1, 1), (5, single(2)))[:-1])
    (test / "events.out.tfevents.1.a").write_bytes(record(VERSION) + scalar("loss", 10, 10, 0.75))
    p = profnb.load(tmp_path)
    assert rows(p) == [["test", "loss", 10, 10.0, 0.75, None], ["train", "loss", 10, 10.0, 0.5, None], ["train", "loss", 20, 15.0, 0.25, 2.0], ["train", "loss", 30, 20.0, None, 2.0]]
    assert any("hold scalars (`p.scalars`) and no times of ops" in note for note in p.notes)
    assert not any("nothing ran" in note for note in p.notes)
    assert p.to_html(tmp_path / "page.html").exists()


def test_event_files_of_one_folder_are_one_run_and_no_hosts(tmp_path):
    for number in range(2):
        raw = record(VERSION) + record(message((1, 1.5), (8, message((2, run_at(1000 + 100 * number))))))
        (tmp_path / f"events.out.tfevents.{number}.host").write_bytes(raw)
    (trace,) = find_traces(tmp_path)
    assert len(trace.beside) == 1
    p = profnb.load(tmp_path)
    assert (len(p.steps), p.other_hosts) == (2, 0)
    pytest.importorskip("fsspec")
    assert len(profnb.load(f"file://{tmp_path}").steps) == 2


def test_scalars_stand_beside_the_profilers_trace_of_the_logdir(tmp_path, cpu_trace_path):
    run = tmp_path / "plugins" / "profile" / "2026_01_01"
    run.mkdir(parents=True)
    (run / "host.xplane.pb").write_bytes(cpu_trace_path.read_bytes())
    (tmp_path / "events.out.tfevents.1.host").write_bytes(record(VERSION) + scalar("loss", 1, 1, 0.5))
    for path in (tmp_path, run / "host.xplane.pb"):
        p = profnb.load(path)
        assert p.scalars.value.tolist() == [0.5]
        assert len(p.steps) > 1
    assert profnb.load(cpu_trace_path).scalars.empty
