"""What filled memory, by kind: the parts add up; what holds them is named; nothing is made up."""

import dataclasses

import pytest
from test_memory import MB, training
from traces import event, host, line, read

from profnb.capture.memory.memory_records import HeldMemory, MemoryPool, MemoryRecords, MemoryShortage
from profnb.capture.recording import Recording
from profnb.profile import Profile
from profnb.subjects.layers.memory_kinds import MEMORY_KINDS, rows_of, shown_kinds, sums_by_kind, tabulate_kinds
from profnb.subjects.study import Study

GPU = "GPU:0"
STATE = (HeldMemory("weights", "net/conv", GPU, 5 * MB, 2), HeldMemory("optimizer state", "", GPU, 10 * MB, 4), HeldMemory("input and data", "x", "CPU", 64 * MB, 1))


def kinds_of(rows):
    return [(row.source, row.moment, row.kind, row.holder, row.bytes) for row in rows]


def test_the_table_in_the_docstring():
    """30 MB at the peak: 8 and 2 came and went, 20 were there; of those 15 have names."""
    rows = tabulate_kinds(MemoryRecords(STATE), Study(training()).layers.peaks)
    assert kinds_of(rows) == [
        ("GPU_0_bfc", "peak", "optimizer state", "", 10 * MB),
        ("GPU_0_bfc", "peak", "activations", "conv", 8 * MB),
        ("GPU_0_bfc", "peak", "weights", "net/conv", 5 * MB),
        ("GPU_0_bfc", "peak", "workspace", "conv", 2 * MB),
        ("GPU_0_bfc", "peak", "everything else", "", 5 * MB),
    ]
    assert sum(row.bytes for row in rows) == 30 * MB
    assert sum(row.fraction for row in rows) == pytest.approx(1)
    assert MEMORY_KINDS.frame(rows).bytes.sum() == 30 * MB


def test_nothing_is_more_than_there_is():
    held = [HeldMemory("weights", "net", GPU, 50 * MB, 2)]
    rows = tabulate_kinds(MemoryRecords(tuple(held)), Study(training()).layers.peaks)
    assert sums_by_kind(rows) == {"weights": 20 * MB, "activations": 8 * MB, "workspace": 2 * MB}


def test_without_a_capture_what_stays_is_one_row():
    rows = tabulate_kinds(MemoryRecords(), Study(training()).layers.peaks)
    assert sums_by_kind(rows) == {"everything else": 20 * MB, "activations": 8 * MB, "workspace": 2 * MB}


def test_the_process_and_a_device_of_which_no_event_tells():
    pools = MemoryPool("CPU", 100 * MB, -1, 1000 * MB, "the machine"), MemoryPool(GPU, 15 * MB, 40 * MB, 80 * MB, GPU)
    rows = tabulate_kinds(MemoryRecords(STATE, pools), (), 300 * MB)
    assert kinds_of(rows) == [
        ("process", "peak", "input and data", "x", 64 * MB),
        ("process", "peak", "everything else", "", 236 * MB),
        (GPU, "peak", "optimizer state", "", 10 * MB),
        (GPU, "peak", "weights", "net/conv", 5 * MB),
        (GPU, "peak", "activations and workspace", "", 25 * MB),
    ]
    assert {row.source for row in shown_kinds(None, rows)} == {GPU}
    assert tabulate_kinds(MemoryRecords(STATE, (MemoryPool("CPU"),)), ()) == []  # nobody tells how much there was
    [*_, last] = tabulate_kinds(MemoryRecords((), (MemoryPool("CPU", 7, -1, 9, "x"),)), ())
    assert (last.moment, last.bytes) == ("end", 7)


def test_the_moment_of_failure_comes_first_with_what_is_reserved_and_unused():
    shortage = MemoryShortage("OutOfMemoryError", GPU, 4 * MB, MB, 40 * MB, 5 * MB, 50 * MB)
    rows = tabulate_kinds(MemoryRecords(STATE, (), shortage), Study(training()).layers.peaks)
    there = rows_of(shortage, rows)
    assert kinds_of(there) == [
        (GPU, "failure", "optimizer state", "", 10 * MB),
        (GPU, "failure", "weights", "net/conv", 5 * MB),
        (GPU, "failure", "activations and workspace", "", 25 * MB),
        (GPU, "failure", "reserved, unused", "", 5 * MB),
    ]
    assert rows[: len(there)] == there
    mute = dataclasses.replace(shortage, in_use_bytes=-1, unused_bytes=-1)
    rows = tabulate_kinds(MemoryRecords(STATE, (), mute), Study(training()).layers.peaks)
    assert {(row.source, row.moment) for row in rows_of(mute, rows)} == {("GPU_0_bfc", "peak")}


def test_a_profile_has_the_table_and_a_trace_of_others_too():
    frame = Profile(training()).memory_kinds
    assert list(frame.columns) == [column.name for column in MEMORY_KINDS.columns]
    assert frame.bytes.sum() == 30 * MB
    assert Profile(read(host(line("p", event("train", 0, 5))))).memory_kinds.empty
    assert Profile(recording=Recording()).memory_kinds.empty
