"""Reading XPlane files: hand-made ones, real ones against TensorFlow's own parser, damaged ones."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED, every_shared_trace
from traces import event, gpu, host, line, message, plane, read, ref, xspace

from profnb.core.errors import TraceFormatError
from profnb.trace import xplane
from profnb.trace.files import read_trace
from profnb.trace.xplane import read_xplane
from profnb.warm import tiny_trace

pytestmark = pytest.mark.versions


def decode(raw):
    return read_xplane(np.frombuffer(raw, np.uint8), "test.pb")


def test_events_come_out_with_names_times_and_lines():
    trace = read(
        host(
            line("python", event("step", 0, 100), event("op", 10, 20), timestamp_ns=5),
            line("worker", event("op", 7, 1), timestamp_ns=8),
        ),
        hostnames=["vm"],
    )
    assert [p.name for p in trace.planes] == ["/host:CPU"]
    assert trace.lines.names.texts == ["python", "worker"]
    assert [trace.names[n] for n in trace.events.name] == ["step", "op", "op"]
    assert trace.events.begin_ps.tolist() == [0, 10, 3007]  # 3 ns later, plus 7 ps
    assert trace.events.duration_ps.tolist() == [100, 20, 1]
    assert trace.lines.of_event.tolist() == [0, 0, 1]
    assert trace.hostnames == ("vm",)


def test_events_of_a_line_are_put_in_time_order_longest_first():
    trace = read(host(line("python", event("c", 5, 1), event("b", 0, 3), event("a", 0, 9))))
    assert [trace.names[n] for n in trace.events.name] == ["a", "b", "c"]


def test_stats_of_every_type_are_read():
    trace = read(
        host(
            line(
                "python",
                event("a", 0, 1, _r=1, big=(1 << 64) - 1, negative=-3, ratio=0.5, text="own", kind=ref("shared")),
                event("b", 1, 1, kind=ref("shared")),
                event("c", 2, 1),
            )
        )
    )  # fmt: skip
    assert trace.stats.of_event(0) == {
        "_r": 1, "big": (1 << 64) - 1, "negative": -3, "ratio": 0.5, "text": "own", "kind": "shared",
    }  # fmt: skip
    roots = trace.stats.integers("_r")
    assert (roots.events.tolist(), roots.values.tolist()) == ([0], [1])
    kinds = trace.stats.texts("kind")
    assert kinds.events.tolist() == [0, 1]
    assert [kinds.texts[v] for v in kinds.values] == ["shared", "shared"]
    assert len(trace.stats.integers("absent")) == 0


def test_stats_follow_their_events_when_a_line_is_sorted():
    trace = read(host(line("python", event("late", 9, 1, n=9), event("early", 1, 1, n=1))))
    assert trace.stats.integers("n").values.tolist() == [1, 9]


def test_plane_stats_are_read():
    trace = read(gpu(stats={"clock_rate": 1815000, "vendor": ref("Nvidia"), "cap": "7.5"}))
    assert trace.planes[0].stats == {"clock_rate": 1815000, "vendor": "Nvidia", "cap": "7.5"}


def test_each_plane_has_its_own_dictionary():
    trace = read(host(line("python", event("a", 0, 1))), gpu(line("Stream #1", event("b", 0, 1))))
    assert [trace.names[n] for n in trace.events.name] == ["a", "b"]


def test_names_that_are_not_utf8_are_shown_with_replacement_characters():
    raw = message((1, message(
        (2, "/host:CPU"), (3, message((2, "l"), (4, message((1, 1), (3, 1))))),
        (4, message((1, 1), (2, message((1, 1), (2, b"\xff\xfe")))))
    )))  # fmt: skip
    assert decode(raw).names.texts == ["��"]


def test_an_event_without_a_name_goes_by_its_display_name():
    names = [(1, message((1, 1), (2, "name"), (4, "shown"))), (2, message((1, 2), (4, "shown instead"))), (3, message((1, 3)))]
    events = [(4, message((1, number), (2, 10 * number), (3, 1))) for number in (1, 2, 3)]
    dictionary = [(4, message((1, number), (2, entry))) for number, entry in names]
    raw = message((1, message((2, "/host:CPU"), (3, message((2, "l"), *events)), *dictionary)))
    trace = decode(raw)
    assert [trace.names[n] for n in trace.events.name] == ["name", "shown instead", ""]


def test_a_line_goes_by_its_display_name_where_it_has_one():
    lines = [(3, message((1, number), (2, "python"), *more, (4, message((1, 1), (3, 1))))) for number, more in ((7, ()), (8, ((11, "Main thread"),)))]
    trace = decode(message((1, message((2, "/host:CPU"), *lines, (4, message((1, 1), (2, message((1, 1), (2, "a")))))))))
    assert trace.lines.names.texts == ["python", "Main thread"]
    assert trace.lines.ids.tolist() == [7, 8]


def test_time_begins_with_the_first_line_that_holds_an_event():
    trace = read(host(line("empty", timestamp_ns=5), line("python", event("a", 3, 1), timestamp_ns=100), line("worker", event("b", 0, 1), timestamp_ns=101)))
    assert trace.events.begin_ps.tolist() == [3, 1000]


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"", "Empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "Malformed"),
        (b'{"traceEvents": []}', "Malformed"),
        (message((2, "an error and no plane")), "No planes"),
        (message((1, message((1, 7)))), "No plane has a name"),
        (message((1, 5)), "Malformed XSpace"),  # planes with a wrong wire type
        (message((1, message((2, "/host:CPU"), (3, 1)))), "Malformed XPlane"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "Malformed"),  # a length of 2**64 - 1
        (b"\x0b", "Malformed"),  # a group
        (b"\xff" * 20, "Malformed"),  # a varint without an end
    ],
)
def test_what_is_no_trace_is_refused_and_the_message_says_what_was_found(raw, found):
    with pytest.raises(TraceFormatError, match=found):
        decode(raw)


def one_event(*fields, names=((1, "a"),)):
    return message((1, message(
        (2, "/host:CPU"), (3, message((2, "python"), (4, message(*fields)))),
        *((4, message((1, i), (2, message((1, i), (2, n))))) for i, n in names),
    )))  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        ((1, 1), (3, -1)),  # negative duration
        ((1, 1), (3, 1 << 62)),  # 53 days
        ((1, 1), (2, 1 << 62), (3, 1)),
        ((1, "a"),),  # metadata id as text
        ((1, 1), (2, "x")),
        ((1, 9), (3, 1)),  # an id that is not in the dictionary
    ],
)
def test_events_that_cannot_be_meant_are_refused(fields):
    with pytest.raises(TraceFormatError):
        decode(one_event(*fields))


def test_what_an_event_does_not_tell_is_0_as_protobuf_has_it():
    trace = decode(one_event((1, 1)))
    assert (trace.events.begin_ps.tolist(), trace.events.duration_ps.tolist()) == ([0], [0])


@pytest.mark.parametrize(("count", "is_read"), [(3, True), (4, False)])
def test_more_planes_than_any_trace_has_are_refused(monkeypatch, count, is_read):
    monkeypatch.setattr(xplane, "_MOST_PLANES", 3)
    raw = message(*((1, message((1, at), (2, f"/host:{at}"))) for at in range(count)))
    if is_read:
        assert len(decode(raw).planes) == 3
        return
    with pytest.raises(TraceFormatError, match="The file claims 4 planes, more than any real trace has"):
        decode(raw)


def test_lines_that_begin_years_apart_are_refused():
    with pytest.raises(TraceFormatError, match="days apart"):
        read(host(line("a", event("x", 0, 1)), line("b", event("x", 0, 1), timestamp_ns=1 << 60)))


def test_metadata_ids_need_not_be_dense_or_in_order():
    raw = one_event((1, 900), (3, 1), names=((900, "b"), (7, "a")))
    trace = decode(raw)
    assert trace.names[trace.events.name[0]] == "b"


def test_a_truncated_trace_is_refused_or_shorter_but_never_wrong():
    whole = xspace(host(line("python", event("a", 0, 5, n=1), event("b", 5, 5, n=2))))
    for size in range(len(whole)):
        try:
            trace = decode(whole[:size])
        except TraceFormatError:
            continue
        pytest.fail(f"{size} of {len(whole)} bytes were taken for a whole trace: {trace.planes}")


FUZZ = """
import random, sys
import numpy as np
from profnb.report.notes import notes_of
from profnb.subjects.study import Study
from profnb.core.errors import TraceFormatError
from profnb.trace.xplane import read_xplane
random.seed(int(sys.argv[2]))
whole = open(sys.argv[1], "rb").read()
opened = refused = 0
for _ in range(int(sys.argv[3])):
    raw = bytearray(whole)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(raw))
        raw[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    if random.random() < 0.3:
        del raw[random.randrange(len(raw)):]
    try:
        study = Study(read_xplane(np.frombuffer(bytes(raw), np.uint8), "fuzzed"))
        assert (study.breakdown.picoseconds >= 0).all()
        study.ops.table, study.summary, notes_of(study)
        opened += 1
    except TraceFormatError:
        refused += 1
print(opened, refused)
"""


@pytest.mark.newest
def test_damaged_bytes_never_cause_a_read_out_of_bounds(tmp_path):
    """With Numba's bounds checks on, a thousand damaged traces open or are refused."""
    small = tmp_path / "small.pb"
    small.write_bytes(
        xspace(
            host(line("python", *(event(f"n{i}:Op", i * 10, 5, _r=1, step_num=i, k=ref("t"), s="x") for i in range(8)))),
            gpu(line("Stream #1", event("k", 1, 2, correlation_id=3)), stats={"a": 1}),
        )
    )  # fmt: skip
    env = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, "-c", FUZZ, str(small), "1", "1000"], env=env, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    opened, refused = map(int, run.stdout.split())
    assert opened > 50
    assert refused > 50


def test_ids_near_the_end_of_the_range_do_not_wrap(tmp_path):
    """Three names before, so that first + id - 1 would wrap; with bounds checks on."""
    huge = (1 << 63) - 1
    bad = []
    for stat in ((), (((4, message((1, huge), (4, 1))),)), ((4, message((1, 1), (7, huge))),)):
        first = plane("/host:A", line("l", *(event(f"n{i}", i, 1, k=ref("t")) for i in range(3))))
        second = message(
            (2, "/host:CPU"),
            (3, message((2, "l"), (4, message((1, huge if not stat else 1), (3, 1), *stat)))),
            (4, message((1, 1), (2, message((1, 1), (2, "x"))))),
        )
        bad.append(message((1, first), (1, second)))
    for number, raw in enumerate(bad):
        (tmp_path / f"{number}.pb").write_bytes(raw)
    code = (
        "import sys, numpy as np\n"
        "from profnb.core.errors import TraceFormatError\n"
        "from profnb.trace.xplane import read_xplane\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        trace = read_xplane(np.fromfile(path, np.uint8), 'x')\n"
        "        print([trace.stats.of_event(i) for i in range(len(trace.events))])\n"
        "    except TraceFormatError:\n"
        "        print('refused')\n"
    )
    env = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run([sys.executable, "-c", code, *map(str, sorted(tmp_path.glob("*.pb")))], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines()[0] == "refused"
    assert len(run.stdout.splitlines()) == 3


def test_kernels_compile_where_nothing_can_be_cached(tmp_path):
    code = (
        "import numba.core.caching as c\n"
        "c.CacheImpl._locator_classes = []\n"
        "for k in list(vars(c).values()):\n"
        "    if isinstance(k, type) and hasattr(k, '_locator_classes'): k._locator_classes = []\n"
        "from profnb.warm import warm_up\n"
        "warm_up()\n"
        "print('compiled')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr[-2000:]


def test_the_warm_up_trace_is_a_trace():
    trace = decode(tiny_trace())
    assert len(trace.events) == 6


def test_the_damaged_tpu_trace_is_refused(shared_traces):
    with pytest.raises(TraceFormatError, match=r"utf8-mangled\.xplane\.pb"):
        read_trace(shared_traces / "corrupt" / "utf8-mangled.xplane.pb")


def columns_by_tensorflow(path):
    """(plane, line, name, begin ps relative to the first line with events, duration) of each event."""
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = xplane_pb2.XSpace()
    space.ParseFromString(Path(path).read_bytes())
    base = min(l.timestamp_ns for p in space.planes for l in p.lines if l.events)
    rows, stats = [], []
    for p in space.planes:
        for l in p.lines:
            own = []
            for e in l.events:
                begin = (l.timestamp_ns - base) * 1000 + e.offset_ps
                m = p.event_metadata[e.metadata_id]
                values = {}
                for s in e.stats:
                    kind = s.WhichOneof("value")
                    value = getattr(s, kind)
                    values[p.stat_metadata[s.metadata_id].name] = (
                        p.stat_metadata[value].name if kind == "ref_value" else value
                    )
                own.append(((p.name, l.display_name or l.name, m.name or m.display_name, begin, e.duration_ps), values))
            own.sort(key=lambda r: (r[0][3], -r[0][4]))
            rows += [r for r, _ in own]
            stats += [s for _, s in own]
    return rows, stats


@pytest.mark.tensorflow
@pytest.mark.parametrize("path", every_shared_trace())
def test_every_column_equals_tensorflows_own_parser(path):
    check_columns(path)


@pytest.mark.tensorflow
def test_every_column_of_our_trace_equals_tensorflows_own_parser(cpu_trace_path):
    check_columns(cpu_trace_path)


def check_columns(path):
    trace = read_trace(path)
    rows, stats = columns_by_tensorflow(path)
    lines = trace.lines.of_event
    mine = list(
        zip(
            (trace.planes[p].name for p in trace.lines.plane[lines]),
            (trace.lines.names[l] for l in lines),
            (trace.names[n] for n in trace.events.name),
            trace.events.begin_ps.tolist(),
            trace.events.duration_ps.tolist(),
            strict=True,
        )
    )
    assert mine == rows
    chosen = np.random.default_rng(0).choice(len(rows), min(len(rows), 2000), replace=False)
    for index in chosen.tolist():
        assert trace.stats.of_event(index) == stats[index]
    for name in ("correlation_id", "group_id", "step_num", "_p", "_c"):
        expected = [
            (i, (v + (1 << 63)) % (1 << 64) - (1 << 63))
            for i, s in enumerate(stats)
            if isinstance(v := s.get(name), int)
        ]
        column = trace.stats.integers(name)
        assert list(zip(column.events.tolist(), column.values.tolist(), strict=True)) == expected


@pytest.mark.parametrize("path", every_shared_trace())
def test_reading_twice_gives_equal_traces(path):
    one, two = read_trace(path), read_trace(path)
    assert one.names.texts == two.names.texts
    for column in ("name", "begin_ps", "duration_ps"):
        assert np.array_equal(getattr(one.events, column), getattr(two.events, column))


def test_the_shared_folder_is_where_the_tests_look():
    assert SHARED.name == "traces"
