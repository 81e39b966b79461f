"""Memory: peaks and what was alive, by hand, against the official answers, and in a real training."""

import gzip
import json

import numpy as np
import pytest
from traces import event, gpu, host, line, read

import profnb
from profnb.report.notes import notes_of
from profnb.subjects.memory.allocators import find_allocators, step_around
from profnb.subjects.memory.peak import MEMORY_PEAK, UNATTRIBUTED, tabulate_peak
from profnb.subjects.memory.allocators import MEMORY
from profnb.subjects.memory.peak import MEMORY_SUMMARY, find_memory_growth, measure_memory
from profnb.subjects.study import Study
from profnb.subjects.memory.section import memory_sections

MS = 10**9
MB = 10**6


def allocate(at, size, total, addr, op="", region="output", dtype=1, shape="[2]", name="GPU_0_bfc", limit=100 * MB):
    more = {"tf_op": op} if op else {}
    return event(
        "MemoryAllocation", at, 0, allocator_name=name, bytes_allocated=total, bytes_available=limit - total, bytes_reserved=0,
        allocation_bytes=size, addr=addr, fragmentation=0.25, peak_bytes_in_use=90 * MB, region_type=region, data_type=dtype, shape=shape, **more,
    )  # fmt: skip


def free(at, size, total, addr, name="GPU_0_bfc", limit=100 * MB):
    return event(
        "MemoryDeallocation", at, 0, allocator_name=name, bytes_allocated=total, bytes_available=limit - total, bytes_reserved=0,
        allocation_bytes=size, addr=addr, fragmentation=0.5, peak_bytes_in_use=90 * MB,
    )  # fmt: skip


def training(leak=0, count=8):
    """Steps of 10 ms over 20 MB from before the trace: 8 MB of activations and 2 of workspace come and go."""
    steps = [event("train", at * 10 * MS, 9 * MS, step_num=at, _r=1, batch_size=32) for at in range(count)]
    work, held = [], 20 * MB
    for at in range(count):
        begin = at * 10 * MS + MS
        work += [
            allocate(begin, 8 * MB, held + 8 * MB, 1, "conv/Conv2D", shape="[32,8]"),
            allocate(begin + MS, 2 * MB, held + 10 * MB, 2, "conv/Conv2D", "temp", 6),
            free(begin + 2 * MS, 2 * MB, held + 8 * MB, 2),
        ]
        if leak:
            held += leak
            work.append(allocate(begin + 3 * MS, leak, held + 8 * MB, 100 + at, "loss/Mean"))
        work.append(free(begin + 4 * MS, 8 * MB, held, 1))
    return read(host(line("python", *steps), line("gpu thread", *work)))


def test_the_peak_by_hand():
    trace = training()
    study = Study(trace)
    [allocator] = study.memory.allocators
    assert (allocator.name, allocator.limit, allocator.lifetime_peak) == ("GPU_0_bfc", 100 * MB, 90 * MB)
    rows = tabulate_peak(trace, allocator, study.steps)
    assert [(r.op_name, r.region, r.dtype, r.shape, r.bytes, r.occurrences, r.is_persistent) for r in rows] == [
        (UNATTRIBUTED, "", "", "", 20 * MB, 0, True),
        ("conv/Conv2D", "output", "float32", "[32,8]", 8 * MB, 1, False),
        ("conv/Conv2D", "temp", "int8", "[2]", 2 * MB, 1, False),
    ]
    [use] = study.memory.use  # of eight equal peaks, the first
    assert (use.peak_bytes, use.peak_ps, use.base_bytes, use.growth_bytes) == (30 * MB, 2 * MS, 20 * MB, 0)
    # 95 MB less 20 that stay is room for 7.5 times 32 examples of 10 MB.
    assert (use.batch_size, use.largest_batch) == (32, 240)
    assert "A batch of about 240" in memory_sections(study)[0].sentence


def test_tables_by_hand():
    trace = training()
    study = Study(trace)
    frame = MEMORY.frame(study.memory.samples)
    assert frame.in_use_bytes.max() == 30 * MB
    assert set(frame.fragmentation) == {0.25, 0.5}
    peak = MEMORY_PEAK.frame(study.memory.peak)
    assert peak.bytes.sum() == 30 * MB
    assert set(peak.time_ms) == {2}
    summary = MEMORY_SUMMARY.frame(study.memory.use)
    assert summary.limit_bytes.tolist() == [100 * MB]
    assert summary.fragmentation.tolist() == [0.25]


def test_what_outlives_its_step_is_persistent_and_what_grows_is_named():
    study = Study(training(leak=MB))
    [allocator] = study.memory.allocators
    growth, op = find_memory_growth(study.trace, allocator, study.steps)
    assert (growth, op) == (MB, "loss/Mean")
    rows = tabulate_peak(study.trace, allocator, study.steps)
    [kept] = [row for row in rows if row.op_name == "loss/Mean"]
    assert (kept.bytes, kept.occurrences, kept.is_persistent) == (7 * MB, 7, True)
    assert any("grows by 1.00 MB a step, mostly from loss/Mean" in note for note in notes_of(study))


def test_a_device_that_is_nearly_full_is_said():
    full = [allocate(MS, 92 * MB, 92 * MB, 1), free(2 * MS, 92 * MB, 0, 1)]
    study = Study(read(host(line("p", event("train", 0, 5 * MS, step_num=0, _r=1), *full)), gpu(line("Stream #1", event("k", 0, 5)))))
    assert any("92.0 % full" in note for note in notes_of(study))


def test_kinds_of_numbers_are_those_of_tensorflows_types_proto():
    names = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64", 10: "bool",
             14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
             11: "qint8", 12: "quint8", 13: "qint32", 15: "qint16", 16: "quint16"}  # fmt: skip
    held = [allocate(number * MS, number, number * (number + 1) // 2, number, f"op {number}", dtype=number) for number in range(1, 24)]
    trace = read(host(line("p", event("train", 0, 99 * MS, step_num=0, _r=1), *held)))
    rows = tabulate_peak(trace, find_allocators(trace)[0], Study(trace).steps)
    assert {int(row.op_name[3:]): row.dtype for row in rows if row.dtype} == names


def test_the_limit_is_of_the_events_that_tell_it_be_the_allocator_full_or_empty():
    def limit_of(*states):
        told = [{"bytes_allocated": held, **({} if room is None else {"bytes_available": room})} for held, room in states]
        events = [event("MemoryAllocation", at * MS, 0, allocator_name="GPU_0_bfc", **stats) for at, stats in enumerate(told)]
        [allocator] = find_allocators(read(host(line("t", *events))))
        return allocator.limit

    assert limit_of((40, None), (30, 70), (90, None)) == 100
    assert limit_of((100, 0)) == limit_of((0, 100)) == 100
    assert limit_of((40, None)) == -1


def test_the_most_that_was_ever_in_use_is_the_largest_that_any_event_tells():
    told = [event("MemoryAllocation", at * MS, 0, allocator_name="GPU_0_bfc", bytes_allocated=9, **({"peak_bytes_in_use": peak} if peak else {})) for at, peak in enumerate((0, 20, 30, 0))]
    assert [allocator.lifetime_peak for allocator in find_allocators(read(host(line("t", *told))))] == [30]
    assert [allocator.lifetime_peak for allocator in find_allocators(read(host(line("t", told[0]))))] == [-1]


def test_an_allocator_is_one_where_any_event_tells_what_is_in_use():
    events = [event("MemoryAllocation", 1, 0, allocator_name="GPU_0_bfc", allocation_bytes=8), event("MemoryAllocation", 2, 0, allocator_name="GPU_0_bfc", bytes_allocated=24),
              event("MemoryAllocation", 3, 0, allocator_name="mute", allocation_bytes=8)]  # fmt: skip
    assert [(found.name, found.in_use.tolist()) for found in find_allocators(read(host(line("p", *events))))] == [("GPU_0_bfc", [-1, 24])]


def test_a_block_is_in_use_from_its_allocation_until_its_free():
    events = [allocate(1, 8 * MB, 8 * MB, 1, "a"), allocate(5, 9 * MB, MB, 2, "b"), free(7, MB, 8 * MB, 1), allocate(9, 9 * MB, 8 * MB, 1, "c")]
    [allocator] = find_allocators(read(host(line("p", *events))))
    assert [allocator.alive_at(row).tolist() for row in range(4)] == [[0], [0, 1], [1], [1, 3]]


def test_the_step_around_a_moment_is_the_rows_between_its_begin_and_its_end():
    """Blocks at 1, 5, 8, 10, 12 and 25 ms; steps from 4 to 10 and from 20 to 30 ms."""
    steps = [event("train", begin * MS, size * MS, step_num=number, _r=1) for number, (begin, size) in enumerate([(4, 6), (20, 10)])]
    trace = read(host(line("p", *steps), line("t", *(allocate(at * MS, 1, n + 1, n) for n, at in enumerate((1, 5, 8, 10, 12, 25))))))
    [allocator], found = find_allocators(trace), Study(trace).steps
    outside = (-1, -1)
    assert [step_around(trace, allocator, found, row) for row in range(6)] == [outside, (1, 3), (1, 3), outside, outside, (5, 6)]


def test_without_memory_events_there_is_nothing():
    study = Study(read(host(line("p", event("train", 0, 5, step_num=0, _r=1)))))
    assert study.memory.allocators == []
    assert memory_sections(study) == []
    assert MEMORY_PEAK.frame(study.memory.peak).empty
    assert MEMORY_SUMMARY.frame(study.memory.use).empty


def test_events_that_tell_nothing_open():
    study = Study(read(host(line("p", event("MemoryAllocation", 0, 0), event("MemoryDeallocation", 5, 0)))))
    assert study.memory.allocators == []
    assert memory_sections(study) == []


@pytest.mark.parametrize("name", ["gpu-cnn-batch512", "gpu-cnn-batch128", "gpu-cnn-batch8"])
def test_the_peak_its_time_and_its_parts_are_the_official_ones(shared_traces, name):
    """The official tool names what was allocated in the step of the peak; we name that and more."""
    official = json.load(gzip.open(shared_traces / name / "host.memory_profile.json.gz"))["memoryProfilePerAllocator"]
    profile = profnb.load(shared_traces / name / "host.xplane.pb")
    trace, steps = profile.trace, profile.study.steps
    allocators = {allocator.name: allocator for allocator in find_allocators(trace)}
    assert set(allocators) == set(official)
    for allocator_name, theirs in official.items():
        allocator, summary = allocators[allocator_name], theirs["profileSummary"]
        assert allocator.in_use.max() == int(summary["peakStats"]["heapAllocatedBytes"])
        assert allocator.lifetime_peak == int(summary["peakBytesUsageLifetime"])
        assert allocator.limit == int(summary["memoryCapacity"])
        times = trace.events.begin_ps[allocator.events]
        [row] = np.flatnonzero((times == int(summary["peakStatsTimePs"])) & (allocator.in_use == allocator.in_use.max()))
        equal = np.flatnonzero(allocator.in_use == allocator.in_use.max())
        # Of equal peaks we take the first in time, they the last in the file, thread after thread.
        assert (allocator.peak, int(row)) == (equal[0], equal[allocator.events[equal].argmax()])
        rows = tabulate_peak(trace, allocator, steps, int(row))
        assert sum(found.bytes for found in rows) == allocator.in_use.max()
        # Their indices count the snapshots in time order, of which the file keeps a thousand.
        alive, known = set(allocator.alive_at(int(row)).tolist()), 0
        for active in theirs["activeAllocations"]:
            index = int(active["snapshotIndex"])
            if index >= 0:
                assert index in alive
                known += int(allocator.size[index]) * int(active["numOccurrences"])
        preallocated = sum(int(special["allocationBytes"]) for special in theirs["specialAllocations"])
        assert allocator.in_use.max() - known - preallocated in (0, 256)  # one of theirs misses a block
        assert sum(found.bytes for found in rows if found.op_name == UNATTRIBUTED) <= preallocated + 256


def test_blocks_of_allocators_without_a_name_are_not_told_apart_and_lost_frees_take_nothing_away():
    nameless = [
        event("MemoryAllocation", at, 0, bytes_allocated=total, allocation_bytes=8 * MB, addr=1) for at, total in ((5, 8 * MB), (9, 4 * MB))
    ]
    study = Study(read(host(line("p", *nameless))))
    rows = MEMORY_PEAK.frame(study.memory.peak)
    assert rows.bytes.tolist() == [8 * MB]
    lost = [allocate(1, 8 * MB, 8 * MB, 1, "old"), allocate(5, 6 * MB, 9 * MB, 2, "new"), free(7, 6 * MB, 3 * MB, 2)]
    study = Study(read(host(line("p", *lost))))
    rows = MEMORY_PEAK.frame(study.memory.peak)
    assert dict(zip(rows.op_name, rows.bytes, strict=True)) == {"new": 6 * MB, UNATTRIBUTED: 3 * MB}
    assert "stays from step" not in memory_sections(study)[-1].sentence


def test_the_largest_batch_is_asked_of_devices_only():
    trace = training()
    [allocator] = find_allocators(trace)
    steps = Study(trace).steps
    assert measure_memory(trace, allocator, steps, None).largest_batch == 0
    assert measure_memory(trace, allocator, steps, 64).largest_batch == 480


@pytest.mark.tensorflow
def test_a_real_training_on_a_cpu():
    """The allocator's own peak is the most that its events tell; a kept list grows by what it keeps."""
    tf = pytest.importorskip("tensorflow")
    size = 4 * 1024 * 1024
    kept = []

    @tf.function
    def step(x):
        return tf.matmul(x, x) * 2.0

    x = tf.random.normal((1024, 1024))
    step(x)
    with profnb.profile() as p:
        for number in range(8):
            with profnb.step(number):
                kept.append(step(x))
                kept[-1].numpy()
    summary = p.memory_summary
    if summary.empty:
        pytest.skip(f"TensorFlow {tf.__version__} records no memory on a CPU")
    largest = summary.loc[summary.peak_bytes.idxmax()]
    assert largest.peak_bytes >= 8 * size
    assert largest.peak_bytes <= largest.lifetime_peak_bytes  # other tests ran in this process before
    assert largest.growth_bytes_per_step == pytest.approx(size, rel=0.1)
    own = p.memory_peak[p.memory_peak.allocator == largest.allocator]
    assert own.bytes.sum() == largest.peak_bytes
    assert any("grows by" in note for note in p.notes)
