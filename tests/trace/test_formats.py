"""Files of other profilers: told by their first bytes, read as they say, and refused in words where they can't be.

Each file is made here. ``test_the_shared_inputs_...`` compares with the answers beside ../shared/traces/other-tools.
"""

import json
import pickle
import sqlite3
import struct

import numpy as np
import pytest
from traces import message

import profnb
from profnb.core.errors import TraceFormatError
from profnb.trace.files import read_trace
from profnb.trace.formats import FORMATS
from profnb.trace.names import kernel_title, kernel_titles

MS = 1_000_000  # nanoseconds
NSYS = """
create table StringIds (id integer primary key, value text);
create table CUPTI_ACTIVITY_KIND_KERNEL (start int, end int, deviceId int, streamId int, correlationId int, demangledName int, shortName int,
    registersPerThread int, gridX int, gridY int, gridZ int, blockX int, blockY int, blockZ int, staticSharedMemory int, dynamicSharedMemory int);
create table CUPTI_ACTIVITY_KIND_RUNTIME (start int, end int, globalTid int, correlationId int, nameId int);
create table CUPTI_ACTIVITY_KIND_MEMCPY (start int, end int, deviceId int, streamId int, correlationId int, bytes int, copyKind int, srcKind int, dstKind int);
create table CUPTI_ACTIVITY_KIND_MEMSET (start int, end int, deviceId int, streamId int, correlationId int, bytes int);
create table NVTX_EVENTS (start int, end int, eventType int, text text, globalTid int, textId int);
create table TARGET_INFO_GPU (id int, name text, totalMemory int, smCount int, computeMajor int, computeMinor int);
create table ThreadNames (nameId int, globalTid int);
insert into StringIds values (1, 'cudaLaunchKernel_v7000'), (2, 'void gemm<half>(half*)'), (3, 'gemm'), (4, 'cudaMemcpyAsync_v3020'), (5, 'forward'), (6, 'trainer');
insert into TARGET_INFO_GPU values (0, 'Made GPU', 16000000000, 80, 7, 0);
"""
TID = (9 << 24) + 77


def write_database(path, script, rows=()):
    with sqlite3.connect(path) as connection:
        connection.executescript(script)
        for table, row in rows:
            connection.execute(f"insert into {table} values ({', '.join('?' * len(row))})", row)
    connection.close()
    return path


def nsys(path, script=NSYS):
    """Five iterations of 10 ms: a copy of 1 ms, then a kernel of 4 ms on stream 7, each launched before."""
    rows = [("ThreadNames", (6, TID))]
    for step in range(5):
        at, one = (100 + 10 * step) * MS, 10 * step
        rows += [
            ("NVTX_EVENTS", (at, at + 9 * MS, 59, f"iteration {step}", TID, None)),
            ("NVTX_EVENTS", (at + MS, at + 3 * MS, 59, None, TID, 5)),
            ("NVTX_EVENTS", (at, None, 34, "a mark", TID, None)),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", (at + MS // 2, at + MS, TID, one, 4)),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", (at + 2 * MS, at + 2 * MS + MS // 2, TID, one + 1, 1)),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", (at + 2 * MS, at + 3 * MS, 0, 7, one, 4096, 1, 0, 2)),
            ("CUPTI_ACTIVITY_KIND_KERNEL", (at + 3 * MS, at + 7 * MS, 0, 7, one + 1, 2, 3, 40, 2, 3, 1, 128, 1, 1, 16, 32)),
            ("CUPTI_ACTIVITY_KIND_MEMSET", (at + 7 * MS, at + 8 * MS, 0, 8, one + 2, 64)),
        ]
    return write_database(path, script, rows)


NVVP = """
create table StringTable (_id_ integer primary key, value text);
create table CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start int, end int, deviceId int, streamId int, correlationId int, name int);
create table CUPTI_ACTIVITY_KIND_RUNTIME (cbid int, start int, end int, threadId blob, correlationId int);
create table CUPTI_ACTIVITY_KIND_MEMCPY (start int, end int, deviceId int, streamId int, correlationId int, bytes int, copyKind int, srcKind int, dstKind int);
create table CUPTI_ACTIVITY_KIND_MARKER (flags int, timestamp int, id int, objectId blob, name int);
insert into StringTable values (1, 'step 0'), (2, 'step 1'), (3, 'step 2'), (4, '_Z4gemmPf');
"""


def nvvp(path):
    thread = (77).to_bytes(4, "little")
    rows = []
    for step in range(3):
        at = (100 + 10 * step) * MS
        rows += [
            ("CUPTI_ACTIVITY_KIND_MARKER", (2, at, step, thread * 2, step + 1)),
            ("CUPTI_ACTIVITY_KIND_MARKER", (4, at + 9 * MS, step, thread * 2, 0)),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", (211, at + MS, at + 2 * MS, thread + bytes(4), step)),
            ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", (at + 3 * MS, at + 7 * MS, 0, 7, step, 4)),
            ("CUPTI_ACTIVITY_KIND_MEMCPY", (at + 7 * MS, at + 8 * MS, 0, 7, 90 + step, 1 << 20, 2, 3, 1)),
        ]
    return write_database(path, NVVP, rows)


CSV = '''==1== NVPROF is profiling process 1, command: ./a
==1== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem","Dynamic SMem","Size","SrcMemType","DstMemType","Device","Context","Stream","Name","Correlation_ID"
s,us,,,,,,,,B,B,KB,,,,,,,
1.000000,400.000,2,3,1,128,1,1,40,16,0,,,,"TITAN Xp (0)","1","7","add(float*, int)",11
1.000500,100.000,,,,,,,,,,2.000000,"Pageable","Device","TITAN Xp (0)","1","7","[CUDA memcpy HtoD]",12
1.000700,50.000,,,,,,,,,,4.000000,,,"TITAN Xp (0)",,,"[Unified Memory Memcpy HtoD]",
1.000800,200.000,2,3,1,128,1,1,40,16,0,,,,"TITAN Xp (0)","1","7","add(float*, int)",13
'''
TEXT = """==1== NVPROF is profiling process 1, command: ./a
   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream  Name
326.63ms  1.5000ms          (32768 1 1)      (1024 1 1)        14        0B        0B         -           -           -           -     TITAN Xp (0)         1         7  add(float*, int) [128]
329.00ms  2.0000us                    -               -         -         -         -  2.0000KB  1.0837GB/s      Device    Pageable     TITAN Xp (0)         1         7  [CUDA memcpy DtoH]
"""
API = '==1== NVPROF is profiling process 1\n"Start","Duration","Name","Correlation_ID"\nms,us,,\n1.0,20.0,"cudaLaunchKernel (add [5])",5\n2.0,10.0,"cudaDeviceSynchronize",6\n'
NSYS_CSV = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n1000,300,5,2,3,1,128,1,1,40,0.000,0.000,,,,,Made GPU (0),1,,7,add\n2000,100,6,,,,,,,,,,1.000,100.0,Pageable,Device,Made GPU (0),1,,7,[CUDA memcpy Host-to-Device]\n"


def test_an_export_of_nsight_systems_is_a_trace_like_any_other(tmp_path):
    p = profnb.load(nsys(tmp_path / "x.sqlite"))
    assert p.steps.duration_ms.tolist() == [9.0] * 5
    assert p.steps.phase.unique().tolist() == ["iteration"]
    kernel = p.kernels.iloc[0]
    assert (kernel.kernel_name, kernel.occurrences, kernel.total_us) == ("void gemm<half>(half*)", 5, 20_000)
    assert (kernel.grid, kernel.block, kernel.registers_per_thread, kernel.shared_bytes) == ("2,3,1", "128,1,1", 40, 48)
    copies = p.copies.set_index("direction")
    assert copies.loc["host to device", ["source_kind", "destination_kind", "bytes"]].tolist() == ["pageable", "device", 5 * 4096]
    assert copies.loc["set", "bytes"] == 5 * 64
    assert p.trace.lines.names.texts == ["Stream #7", "Stream #8", "trainer/77"]
    gpu = next(plane for plane in p.trace.planes if plane.is_device)
    assert gpu.stats["gpu_device_name"] == "Made GPU"
    assert p.launches.kernels.tolist() == [5]
    assert p.launches.delay_us.tolist() == [500.0]  # from the call's end, 2.5 ms, to the kernel's begin, 3 ms
    assert not any("step()" in note for note in p.notes)
    assert "torch" not in p.summary().lower()


def graph_nodes(path):
    """Two layers captured once, copied into the graph that five iterations launch: two kernels of 2 ms each."""
    script = NSYS.replace("demangledName int,", "globalPid int, graphNodeId int, demangledName int,") + """
        create table CUDA_GRAPH_NODE_EVENTS (start int, end int, globalTid int, nameId int, graphNodeId int, originalGraphNodeId int);
        insert into StringIds values (7, 'cudaGraphLaunch_v10000');"""
    rows = [("NVTX_EVENTS", (10 * MS, 20 * MS, 59, "capture", TID, None))]
    for layer in range(2):
        at = (12 + 3 * layer) * MS
        rows += [
            ("NVTX_EVENTS", (at, at + 2 * MS, 59, f"layer {layer}", TID, None)),
            ("CUDA_GRAPH_NODE_EVENTS", (at + MS, at + MS, TID, 6, 50 + layer, None)),
            ("CUDA_GRAPH_NODE_EVENTS", (19 * MS, 19 * MS, TID, 6, 60 + layer, 50 + layer)),
            ("CUDA_GRAPH_NODE_EVENTS", (25 * MS, 25 * MS, TID, 6, 70 + layer, 60 + layer)),
        ]
    for step in range(5):
        at = (100 + 10 * step) * MS
        rows += [
            ("NVTX_EVENTS", (at, at + 9 * MS, 59, f"iteration {step}", TID, None)),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", (at + MS, at + 2 * MS, TID, step, 7)),
            *(("CUPTI_ACTIVITY_KIND_KERNEL", (at + (3 + 2 * one) * MS, at + (5 + 2 * one) * MS, 0, 7, step, TID >> 24 << 24, 70 + one, 2, 3, 40, 2, 3, 1, 128, 1, 1, 16, 32)) for one in range(2)),
            ("CUPTI_ACTIVITY_KIND_KERNEL", (at + 8 * MS, at + 9 * MS, 0, 7, step, TID >> 24 << 24, 99, 2, 3, 40, 2, 3, 1, 128, 1, 1, 16, 32)),
        ]
    return write_database(path, script, rows)


def test_kernels_of_a_cuda_graph_are_of_their_capture_and_launched_with_the_graph(tmp_path):
    p = profnb.load(graph_nodes(tmp_path / "x.sqlite"))
    kernels = p.kernels.set_index("op_name").total_us.to_dict()
    assert kernels == {"capture/layer 0": 10_000, "capture/layer 1": 10_000, "void gemm<half>(half*)": 5_000}  # no link: its own name
    assert (p.steps.duration_ms.tolist(), set(p.steps.phase)) == ([9.0] * 5, {"iteration"})
    ranges = p.ranges.set_index("range")
    assert ranges.loc["iteration", ["device_busy_ms", "kernels"]].tolist() == [25.0, 15]
    assert ranges.loc["capture", "kernels"] == 0


def test_processes_of_one_export_share_no_stream_and_no_launch(tmp_path):
    script = NSYS.replace("correlationId int, demangledName", "correlationId int, globalPid int, demangledName")
    rows = []
    for process, at in ((5, 0), (6, 30)):
        tid = (process << 24) + 70 + process
        rows += [
            ("CUPTI_ACTIVITY_KIND_RUNTIME", ((100 + at) * MS, (101 + at) * MS, tid, 1, 1)),
            ("CUPTI_ACTIVITY_KIND_KERNEL", ((103 + at) * MS, (140 + at) * MS, 0, 7, 1, process << 24, 2, 3, 40, 2, 3, 1, 128, 1, 1, 16, 32)),
        ]  # fmt: skip
    p = profnb.load(write_database(tmp_path / "x.sqlite", script, rows))
    assert [name for name in p.trace.lines.names.texts if "Stream" in name] == ["Stream #7 (process 5)", "Stream #7 (process 6)"]
    assert p.launches[["kernels", "delay_us"]].to_numpy().tolist() == [[2, 2000.0]]
    assert p.kernels.total_us.tolist() == [74_000.0]


def test_pages_of_unified_memory_move_in_a_direction(tmp_path):
    rows = [("CUPTI_ACTIVITY_KIND_MEMCPY", ((100 + at) * MS, (101 + at) * MS, 0, 0, 0, 4096 << at, kind, 7, 7)) for at, kind in enumerate((11, 12, 13))]
    copies = profnb.load(write_database(tmp_path / "x.sqlite", NSYS, rows)).copies.set_index("direction")
    assert copies.bytes.to_dict() == {"host to device": 4096, "device to host": 8192, "device to device": 16_384}


def test_calls_of_the_operating_system_launch_nothing_and_inline_text_goes_before_shared(tmp_path):
    script = NSYS + "create table OSRT_API (start int, end int, globalTid int, correlationId int, nameId int);"
    rows = [("OSRT_API", (100 * MS, 101 * MS, TID, 1, 4)), ("NVTX_EVENTS", (100 * MS, 120 * MS, 59, "inline", TID, 5)),
            ("CUPTI_ACTIVITY_KIND_KERNEL", (103 * MS, 140 * MS, 0, 7, 1, 2, 3, 40, 2, 3, 1, 128, 1, 1, 16, 32))]  # fmt: skip
    p = profnb.load(write_database(tmp_path / "x.sqlite", script, rows))
    assert p.launches.delay_us.isna().all()
    assert "inline" in p.trace.names.texts and "forward" not in [p.trace.names[row] for row in p.trace.events.name.tolist()]


def test_a_database_is_read_by_the_page_and_bounded_by_its_cells(tmp_path, monkeypatch):
    from profnb.trace import files
    from profnb.trace.nvidia import database

    monkeypatch.setattr(files, "MOST_BYTES", 1000)  # of other files
    path = nsys(tmp_path / "x.sqlite")
    assert path.stat().st_size > 1000
    assert len(read_trace(path).events)
    monkeypatch.setattr(database, "_MOST_CELLS", 100)
    with pytest.raises(TraceFormatError, match="More than 100 cells"):
        read_trace(path)


def test_nested_ranges_of_an_export_stand_in_the_timeline_and_come_back_from_it(tmp_path):
    p = profnb.load(nsys(tmp_path / "x.sqlite"))
    back = profnb.load(p.to_chrome_trace(tmp_path / "x.json"))
    for trace in (p.trace, back.trace):
        names = [trace.names[row] for row in trace.events.name[trace.is_host_event].tolist()]
        assert names[:4] == ["iteration 0", "cudaMemcpyAsync", "forward", "cudaLaunchKernel"]
    assert back.steps.duration_ms.tolist() == p.steps.duration_ms.tolist()


def test_a_database_of_nvprof_has_the_same_tables(tmp_path):
    p = profnb.load(nvvp(tmp_path / "x.nvvp"))
    assert (p.steps.duration_ms.tolist(), set(p.steps.phase)) == ([9.0] * 3, {"step"})
    assert (p.kernels.kernel_name.tolist(), p.kernels.total_us.tolist()) == (["_Z4gemmPf"], [12_000.0])
    assert p.copies[["direction", "source_kind", "destination_kind", "bytes"]].to_numpy().tolist() == [["device to host", "device", "pageable", 3 << 20]]
    assert p.launches.kernels.tolist() == [3]
    assert p.trace.lines.names.texts == ["Stream #7", "thread 77"]


def test_ranges_that_take_no_time_are_no_steps(tmp_path):
    path = nvvp(tmp_path / "x.nvvp")
    with sqlite3.connect(path) as connection:
        connection.execute("update CUPTI_ACTIVITY_KIND_MARKER set timestamp = 150000000")
    connection.close()
    assert profnb.load(path).steps.phase.tolist() == ["window"]


def test_printed_rows_are_kernels_and_copies_in_their_own_units(tmp_path):
    (tmp_path / "x.csv").write_text(CSV)
    p = profnb.load(tmp_path / "x.csv")
    assert p.kernels[["kernel_name", "occurrences", "total_us", "grid"]].to_numpy().tolist() == [["add(float*, int)", 2, 600.0, "2,3,1"]]
    assert p.copies[["direction", "occurrences", "bytes"]].to_numpy().tolist() == [["host to device", 1, 2048]]
    (tmp_path / "x.txt").write_text(TEXT)
    p = profnb.load(tmp_path / "x.txt")
    assert p.kernels[["kernel_name", "total_us", "grid", "block"]].to_numpy().tolist() == [["add(float*, int)", 1500.0, "32768,1,1", "1024,1,1"]]
    assert p.copies[["direction", "total_us", "bytes"]].to_numpy().tolist() == [["device to host", 2.0, 2048]]
    (tmp_path / "n.csv").write_text(NSYS_CSV)
    p = profnb.load(tmp_path / "n.csv")
    assert (p.kernels.total_us.tolist(), p.copies.direction.tolist(), p.copies.bytes.tolist()) == ([0.3], ["host to device"], [1_000_000])


def test_printed_calls_are_the_hosts(tmp_path):
    (tmp_path / "x.csv").write_text(API)
    trace = read_trace(tmp_path / "x.csv")
    assert [trace.names[row] for row in trace.events.name.tolist()] == ["cudaLaunchKernel", "cudaDeviceSynchronize"]
    assert trace.events.duration_ps.tolist() == [20_000_000, 10_000_000]


@pytest.mark.parametrize(
    ("name", "content", "essence"),
    [
        ("x.nsys-rep", b"\x01\x02nsys\0\0", "nsys export --type sqlite x.nsys-rep"),
        ("x.zip", b"PK\x03\x04rest", "is a zip archive. Unpack the archive"),
        ("x.pickle", pickle.dumps({"segments": []}, 4), "A Python pickle, but no memory snapshot"),
        ("x.txt", b"some words\n", "is a text. profnb opens "),
        ("x.bin", b"\xff\x00\x01\x02", "which no format here does. profnb opens "),
        ("x.ncu-rep", b"NVR\0\1\2", "is a report of Nsight Compute"),
        ("x.csv", b"==1== NVPROF is profiling process 1\n\"Type\",\"Time(%)\"\n", "listed no single kernel"),
        ("x.prof", bytes(8) + b"\3" + bytes(31), "pprof -proto -output profile.pb.gz PROGRAM x.prof"),
        ("x.json", b'"Start"', "is a text"),
        ("tfprof_log", message((1, message((1, "dense/MatMul"), (2, 900)))), "is a graph of TensorFlow or an op log of tfprof"),
        ("graph.pb", message((1, message((1, "x"), (2, "Placeholder")))), "A graph has no times"),
        ("model.ckpt.index", b"\0\0\6\x08\1\x1a\2\x08\1\0\1", "is a checkpoint of TensorFlow"),
    ],
)  # fmt: skip
def test_what_does_not_open_is_named(tmp_path, name, content, essence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceFormatError) as error:
        profnb.load(tmp_path / name)
    assert essence in str(error.value)
    assert name in str(error.value)
    assert max(len(sentence.split()) for sentence in str(error.value).split(". ")) <= 22


def test_only_what_may_be_an_xspace_is_read_as_one():
    last = FORMATS[-1]
    assert last.fits(b"\x0a\x10") and not last.fits(b"SQLite") and not last.fits(b"\x00")


def hostile(path, script, name="CUPTI_ACTIVITY_KIND_KERNEL"):
    return write_database(path, NSYS.replace(f"create table {name} ", "create table other ") + script)


@pytest.mark.parametrize(
    ("script", "essence"),
    [
        ("create view CUPTI_ACTIVITY_KIND_KERNEL as select 1 as start;", "CUPTI_ACTIVITY_KIND_KERNEL is a view"),
        ("create virtual table CUPTI_ACTIVITY_KIND_KERNEL using fts5(start);", "is a virtual table"),
        ("", "No kernel, copy, call or range with a time"),
        ("create table CUPTI_ACTIVITY_KIND_KERNEL (start int, end int); insert into CUPTI_ACTIVITY_KIND_KERNEL values (0, 1), (1 << 62, (1 << 62) + 5);", "days apart"),
        ("insert into StringIds values (90, zeroblob(40000000));", "No kernel|damaged or cut short"),
        ("create trigger t instead of insert on v begin select 1; end;".replace("instead of insert on v", "after insert on StringIds"), "No kernel"),
        ("create view StringIds2 as select * from StringIds; drop table StringIds; create view StringIds as with recursive c(id, value) as (select 1, 'x' union all select id + 1, value from c) select * from c;", "neither Nsight|is a view"),
    ],
)  # fmt: skip
def test_a_hostile_database_is_refused(tmp_path, script, essence):
    try:
        path = hostile(tmp_path / "x.sqlite", script)
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no such module")
    with pytest.raises(TraceFormatError, match=essence):
        read_trace(path)


def test_an_export_without_work_says_once_whose_it_is_and_what_to_record(tmp_path):
    path = write_database(tmp_path / "x.sqlite", NSYS)
    with pytest.raises(TraceFormatError) as error:
        read_trace(path)
    assert str(error.value).count("x.sqlite") == 1
    calls = [("CUPTI_ACTIVITY_KIND_RUNTIME", ((100 + n) * MS, (101 + n) * MS, TID, n, 1)) for n in range(5)]
    notes = " ".join(profnb.load(write_database(tmp_path / "y.sqlite", NSYS, calls)).notes)
    assert "Mark each iteration with a range (NVTX" in notes and "CUPTI" not in notes and "step()" not in notes
    assert "Have Nsight Systems record kernels and copies" in notes
    script = NSYS + "create table OSRT_API (start int, end int, globalTid int, correlationId int, nameId int);"
    waits = [("OSRT_API", ((100 + n) * MS, (101 + n) * MS, TID, n, 6)) for n in range(5)]
    notes = profnb.load(write_database(tmp_path / "z.sqlite", script, waits)).notes
    assert "The trace holds no kernel and no copy. Have Nsight Systems record kernels and copies, and open that." in notes


def test_a_generated_column_is_no_column(tmp_path):
    """Its expression is the file's, so it is not computed."""
    made = "create table CUPTI_ACTIVITY_KIND_KERNEL (a int, start int generated always as (a * 2), end int); insert into CUPTI_ACTIVITY_KIND_KERNEL(a, end) values (5, 9);"
    with pytest.raises(TraceFormatError, match="No kernel"):
        read_trace(hostile(tmp_path / "x.sqlite", made))


def test_texts_and_numbers_of_any_kind_do_no_harm(tmp_path):
    rows = [("CUPTI_ACTIVITY_KIND_KERNEL", ("x" * 50_000, b"\xff", 1e300, None, "-5", 2, 3, *[1 << 62] * 9)), ("CUPTI_ACTIVITY_KIND_KERNEL", (5, 9, 0, 7, 1, 99, 3, *[1] * 9)), ("StringIds", (99, "\x1b[31m" + "n" * 9_000))]
    trace = read_trace(write_database(tmp_path / "x.sqlite", NSYS, rows))
    assert len(trace.events) == 1 and len(trace.names[trace.events.name[0]]) <= 4_000
    assert trace.left_out == ("1 records have no begin or no end.",)


@pytest.mark.parametrize("make", [nsys, nvvp])
def test_a_cut_or_mutated_database_is_read_or_refused_and_nothing_else(tmp_path, make):
    whole = make(tmp_path / "x.sqlite").read_bytes()
    rng = np.random.default_rng(7)
    outcomes = set()
    for number in range(60):
        raw = bytearray(whole)
        for at in rng.integers(16, len(raw), 1 + number % 40).tolist():
            raw[at] = int(rng.integers(256))
        damaged = tmp_path / "y.sqlite"
        damaged.write_bytes(raw[: int(rng.integers(20, len(raw)))] if number % 3 == 0 else raw)
        try:
            outcomes.add(len(read_trace(damaged).events) > 0)
        except TraceFormatError as error:
            assert "y.sqlite" in str(error)
            outcomes.add("refused")
    assert {True, "refused"} <= outcomes


@pytest.mark.parametrize("text", [CSV, TEXT, API, NSYS_CSV])
def test_a_mutated_table_is_read_or_refused_and_nothing_else(tmp_path, text):
    rng = np.random.default_rng(7)
    path = tmp_path / "x.csv"
    for number in range(60):
        raw = bytearray(text.encode())
        for at in rng.integers(0, len(raw), 1 + number % 9).tolist():
            raw[at] = int(rng.choice(list(b'",\n.-e90x\xff\0 ')))
        path.write_bytes(raw)
        try:
            assert len(read_trace(path).events)
        except TraceFormatError as error:
            assert "x.csv" in str(error)


def snapshot():
    """Three blocks of 1 MiB by ``train.py:12``, one of 4 MiB in between by ``model.py:5`` that is freed at once."""
    torch = {"filename": "/lib/torch/nn/modules/linear.py", "line": 3, "name": "forward"}

    def change(action, time_us, address, mib, file, line):
        frames = [torch, {"filename": f"/home/user/{file}", "line": line, "name": "f"}]
        return {"action": action, "addr": address, "size": mib << 20, "stream": 0, "time_us": time_us, "frames": frames}

    train = [change("alloc", 10 * n, n, 1, "train.py", 12) for n in range(3)]
    passing = [change("alloc", 5, 9, 4, "model.py", 5), change("free_requested", 6, 9, 4, "model.py", 5), change("free_completed", 7, 9, 4, "model.py", 5)]
    events = sorted([*train, *passing], key=lambda one: one["time_us"])
    return {"segments": [{"address": 1 << 34, "segment_pool_id": (0, 3)}], "device_traces": [[], events], "allocator_settings": {}}


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_memory_snapshot_tells_the_peak_by_line(tmp_path, protocol):
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(snapshot(), protocol))
    p = profnb.load(tmp_path / "s.pickle")
    assert p.memory_peak[["allocator", "op_name", "bytes", "occurrences"]].to_numpy().tolist() == [
        ["GPU_1", "model.py:5 f", 4 << 20, 1], ["GPU_1", "train.py:12 f", 1 << 20, 1],
    ]  # fmt: skip
    assert p.memory.in_use_bytes.tolist() == [one << 20 for one in (1, 5, 1, 2, 3)]
    assert p.notes == ["The file holds memory and no times. Record a trace for times of ops and kernels."]


class Harm:
    def __reduce__(self):
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize(
    ("content", "essence"),
    [
        (pickle.dumps({"device_traces": [Harm()]}), "which no memory snapshot has. Nothing of it was run"),
        (pickle.dumps({"device_traces": [("a", 2)]}), "holds TUPLE2"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "holds LONG_BINPUT"),
        (pickle.dumps(snapshot())[:-20], "damaged or cut short"),
        (b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".", "no memory snapshot of PyTorch"),
        (pickle.dumps({"device_traces": [[{"action": "alloc", "size": 1 << 200}, {"action": [], "size": -1}, 5]]}), "No allocation|holds LONG"),
    ],
)  # fmt: skip
def test_a_hostile_pickle_is_refused_and_nothing_of_it_runs(tmp_path, content, essence):
    (tmp_path / "s.pickle").write_bytes(content)
    with pytest.raises(TraceFormatError, match=f"s.pickle: .*({essence})"):
        profnb.load(tmp_path / "s.pickle")


# Damaged JSON.


def kineto(*events, tail="]}"):
    head = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "V100"}], "traceEvents": ['
    return head + ", ".join(one if isinstance(one, str) else json.dumps(one) for one in events) + tail


def op(at, name="aten::mm", **rest):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 5, "args": {"n": at}} | rest


def load_text(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return profnb.load(path).trace


def test_json_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path):
    whole = kineto(op(0), op(10), op(20))
    cut = whole[: whole.rindex('"ts"')]
    trace = load_text(tmp_path / "x.json", cut)
    assert trace.events.begin_ps.tolist() == [0, 10_000_000]
    begin = len(cut) - len(cut[cut.rindex('{"ph"') :])
    assert trace.left_out[0] == f"The file is cut off at byte {begin} of {len(cut)}: later events are missing."


@pytest.mark.parametrize("quoted", ['say "so" twice', 'one " only', '", "args": {"x": "y'])
def test_an_event_with_quotes_that_are_not_escaped_is_left_out_alone(tmp_path, quoted):
    bad = json.dumps(op(10, "BAD")).replace("BAD", quoted)
    trace = load_text(tmp_path / "x.json", kineto(op(0), bad, op(20), op(30)))
    begins = trace.events.begin_ps.tolist()
    assert begins[0] == 0 and begins[-2:] == [20_000_000, 30_000_000]
    if len(begins) == 3:
        assert "1 event could not be read" in trace.left_out[0]


def test_many_damaged_events_cost_no_more_than_the_file_is_long(tmp_path):
    events = [op(at) if at % 2 else json.dumps(op(at, "BAD")).replace("BAD", 'a " b') for at in range(20_000)]
    trace = load_text(tmp_path / "x.json", kineto(*events))
    assert len(trace.events) == 10_000
    assert "10,000 events could not be read" in trace.left_out[0]


def test_odd_json_reads_as_it_is_meant(tmp_path):
    odd = kineto(op(0), op(10, "a\tb"), op(20), tail=",]}").replace('"args": {"n": 20}', '"args": {"n": NaN}')
    assert len(load_text(tmp_path / "x.json", odd).events) == 3
    assert len(load_text(tmp_path / "y.json", kineto(op(0), op(10)), "utf-16").events) == 2
    open_ended = load_text(tmp_path / "z.json", kineto(op(0), op(10), tail=""))
    assert len(open_ended.events) == 2 and "no closing bracket" in open_ended.left_out[0]


# Ranges as steps.


@pytest.mark.parametrize(("end", "note"), [(-600, "the gzip is cut short after"), (-3, "the gzip is cut short after"), (None, "damaged gzip after")])
def test_a_packed_trace_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path, end, note):
    import gzip

    packed = gzip.compress(kineto(*(op(10 * n, f"aten::op{n * 7919 % 10007}") for n in range(3000))).encode())
    damaged = bytearray(packed[:end])
    if end is None:
        damaged[-8] ^= 1  # its checksum
    (tmp_path / "x.json.gz").write_bytes(damaged)
    p = profnb.load(tmp_path / "x.json.gz")
    assert len(p.trace.events) == (3000 if end != -600 else pytest.approx(2900, abs=99))
    assert sum(note in one for one in p.notes) == 1
    (tmp_path / "x.pb.gz").write_bytes(gzip.compress(message((1, message((2, "/host:CPU"), (3, b"x" * 400)))))[:-12])
    with pytest.raises(TraceFormatError, match="x.pb.gz: the gzip is cut short"):
        profnb.load(tmp_path / "x.pb.gz")


def test_documents_one_behind_the_other_are_shown_together(tmp_path):
    bare = json.dumps([{"ph": "X", "name": "b", "ts": 30, "dur": 5, "pid": 1, "tid": 1}])
    whole = kineto(op(0), op(10), tail='], "more": {"a": [1, "]"]}, "x": 1}')
    trace = load_text(tmp_path / "x.json", f"{whole}\n{bare}{whole[: whole.index('traceEvents')]}")
    assert (len(trace.events), trace.left_out) == (3, ("The file holds 2 JSON documents; their events are shown together.",))
    assert len(load_text(tmp_path / "y.json", whole + " trailing words").events) == 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_text_of_two_bytes_a_letter_opens_with_and_without_a_mark(tmp_path, encoding):
    assert len(load_text(tmp_path / "x.json", kineto(op(0), op(10)), encoding).events) == 2


def test_a_range_that_repeats_is_a_step_and_nobody_is_told_to_call_step(tmp_path):
    ranges = [op(100 * at, "train_iter", cat="user_annotation", dur=90) for at in range(6)]
    inside = [op(100 * at + 10, "forward", cat="user_annotation", dur=30) for at in range(6)]
    p = profnb.load(tmp_path / "x.json") if (tmp_path / "x.json").write_text(kineto(op(0, "all", cat="user_annotation", dur=600), *ranges, *inside, op(20))) else None
    assert p.steps.duration_ms.tolist() == [0.09] * 6
    assert set(p.steps.phase) == {"train_iter"}
    assert [note for note in p.notes if "ranges that repeat: train_iter" in note]
    assert not any("step()" in note for note in p.notes)


def test_ranges_that_take_turns_are_one_step_together(tmp_path):
    parts = [op(100 * at + begin, name, cat="user_annotation", dur=40) for at in range(4) for begin, name in ((0, "forward"), (45, "backward"))]
    (tmp_path / "x.json").write_text(kineto(*parts, op(5)))
    p = profnb.load(tmp_path / "x.json")
    assert p.steps.duration_ms.tolist() == [0.085] * 4


def test_iterations_inside_of_epochs_are_the_steps(tmp_path):
    epochs = [op(1000 * at, f"epoch {at}", cat="user_annotation", dur=950) for at in range(3)]
    turns = [op(1000 * at + 90 * one, f"iter {one}", cat="user_annotation", dur=85) for at in range(3) for one in range(10)]
    (tmp_path / "x.json").write_text(kineto(*epochs, *turns, op(5)))
    assert len(profnb.load(tmp_path / "x.json").steps) == 30


# Devices.


def on_stream(at, duration, name, number):
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at - 20, "dur": 5, "args": {"correlation": number}}
    kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": duration, "args": {"correlation": number, "stream": 7, "device": 0}}
    return call, kernel


def test_kernels_that_overlap_on_one_stream_count_once(tmp_path):
    (tmp_path / "x.json").write_text(kineto(op(0, dur=300), *on_stream(100, 200, "a", 1), *on_stream(220, 200, "b", 2)))
    p = profnb.load(tmp_path / "x.json")
    assert p.kernels.total_us.tolist() == [200, 200]
    assert p.ops[p.ops.side == "device"].self_us.sum() == 320


FFMA = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x64x8_stage3_warpsize2x2x1_g1_ffma_aligna4_alignc4_execute"


def test_products_on_the_fp32_pipes_are_told_with_the_remedy(tmp_path):
    text = kineto(op(0, "aten::linear", dur=300), *on_stream(100, 200, FFMA, 1)).replace('"V100"', '"A100", "computeMajor": 8, "computeMinor": 0, "numSms": 108')
    (tmp_path / "x.json").write_text(text)
    p = profnb.load(tmp_path / "x.json")
    assert p.kernels[["uses_tensor_core", "is_tensor_core_eligible"]].to_numpy().tolist() == [[False, True]]
    assert "this device has TF32: torch.set_float32_matmul_precision" in " ".join(p.summary().split())


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, x)", "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3ul>>"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128>(cutlass_80::Params)", "Kernel2<cutlass_80_tensorop_s1688gemm_128x128>"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void (anonymous namespace)::softmax<float>(float*)", "softmax<float>"),
        ("void f<(bool)1>(int)", "f<(bool)1>"),
        ("(odd)", "(odd)"),
    ],
)  # fmt: skip
def test_a_kernels_title_is_what_is_its_own(name, title):
    assert kernel_title(name) == title


def test_titles_keep_what_tells_kernels_apart():
    names = [f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<float>, std::array<char*, 3ul> >(int)" for functor in ("CUDAFunctor_add", "MulFunctor")]
    add, mul = kernel_titles(names, 64)
    assert "CUDAFunctor_add" in add and "MulFunctor" in mul
    assert max(map(len, (add, mul))) <= 64


# The inputs that other people have.


@pytest.fixture
def inputs(shared_traces):
    folder = shared_traces / "other-tools"
    if not folder.is_dir():
        pytest.skip("needs ../shared/traces/other-tools")
    return folder


@pytest.mark.parametrize("name", ["nsys.sqlite", "nvprof.nvvp"])
def test_the_shared_databases_are_as_their_readme_says(inputs, name):
    p = profnb.load(inputs / name)
    assert p.steps.duration_ms.tolist() == [0.99] * 7
    means = dict(zip(p.kernels.kernel_name, zip(p.kernels.occurrences, p.kernels.mean_us, strict=True), strict=True))
    assert {key.split("<")[0]: value for key, value in means.items()} == {"void conv2d_tile": (7, 250.0), "void reduce_rows": (7, 200.0)}
    assert p.copies[["direction", "occurrences", "bytes", "total_us"]].to_numpy().tolist() == [["host to device", 7, 7 * 4194304, 350.0]]
    assert p.launches.kernels.tolist() == [14]


def test_the_shared_csv_has_the_kernels_of_its_rows(inputs):
    import csv

    lines = (inputs / "nvprof-gpu-trace.csv").read_text().splitlines()
    rows = [row for row in csv.DictReader(lines[lines.index(next(line for line in lines if line.startswith('"Start"'))) :]) if row["Device"] and not row["Name"].startswith("[")]
    expected = {}
    for row in rows:
        count, total = expected.get(row["Name"], (0, 0.0))
        expected[row["Name"]] = count + 1, total + float(row["Duration"]) * 1000
    p = profnb.load(inputs / "nvprof-gpu-trace.csv")
    found = p.kernels.groupby("kernel_name")[["occurrences", "total_us"]].sum()
    assert {name: (row.occurrences, pytest.approx(row.total_us)) for name, row in found.iterrows()} == expected
    assert len(profnb.load(inputs / "nvprof-gpu-trace.txt").kernels)


def test_the_shared_traces_of_pytorch_are_as_their_readme_says(inputs):
    assert len(profnb.load(inputs / "ranges.pt.trace.json").steps) == 12
    overlap = profnb.load(inputs / "overlap.pt.trace.json")
    assert overlap.ops[overlap.ops.side == "device"].self_us.sum() == 6 * 320
    assert not profnb.load(inputs / "ffma.pt.trace.json").kernels.uses_tensor_core.any()
    assert profnb.load(inputs / "tf32.pt.trace.json").kernels.uses_tensor_core.all()
    text = profnb.load(inputs / "names.pt.trace.json").summary()
    assert "CUDAFunctor_add" in text and "MulFunctor" in text


def test_the_shared_memory_snapshot_is_as_its_readme_says(inputs):
    peak = profnb.load(inputs / "torch-memory-snapshot.pickle").memory_peak
    assert (peak.bytes.tolist(), peak.occurrences.tolist()) == ([14 << 20], [14])
    assert peak.op_name[0].startswith("train.py:12")


def test_the_shared_event_file_is_as_its_readme_says(inputs):
    p = profnb.load(inputs / "event-file")
    assert len(p.steps) == 3 and "product" in p.ops.op_name.tolist()


@pytest.mark.parametrize(("name", "note"), [("cut-off", "is cut off at byte"), ("unescaped-quotes", "1 event could not be read")])
def test_the_shared_damaged_traces_are_read_as_far_as_they_go(inputs, name, note):
    p = profnb.load(inputs / f"{name}.pt.trace.json")
    assert len(p.trace.events) > 1000
    assert any(note in one for one in p.notes)
