"""Rows, marks and their packing: every event stands somewhere, and the numbers survive the way to the browser."""

import gzip
import json
import struct
from base64 import b64decode

import numpy as np
import pytest
from traces import event, gpu, host, line, plane, read

from profnb.steps.streams import find_launches
from profnb.timeline.pack import merge_events, pick_marks
from profnb.timeline.scene import busy_in_bins
from profnb.subjects.study import Study
from profnb.timeline import pack
from profnb.trace.assemble import FoundLine, assemble_trace
from profnb.trace.model import StringTable
from profnb.timeline.scene import Scene
from profnb.timeline.element import build_timeline, timeline_script
from profnb.timeline.element import answer_question
from profnb.timeline.pack import event_details, fit_timeline, pack_timeline, unit_of
from profnb.timeline.element import still_picture, still_text

pytestmark = pytest.mark.versions


def study_of(*planes):
    return Study(read(*planes))


def rows_of(study):
    """Event name to row."""
    names = [study.trace.names[row] for row in study.trace.events.name]
    return dict(zip(names, Scene(study).lanes.lane.tolist(), strict=True))


def test_streams_stand_first_then_the_thread_with_the_steps_then_the_busiest():
    study = study_of(
        host(
            line("idle", event("x", 0, 1)),
            line("busy", event("y", 0, 90)),
            line("empty"),
            line("python", event("train", 0, 50, step_num=1, _r=1)),
        ),
        gpu(line("Stream #1", event("k", 0, 1)), line("Steps", event("1", 0, 60)), line("Stream #2", event("m", 0, 9))),
    )
    labels = Scene(study).names
    assert labels == ["GPU:0 Stream #1", "GPU:0 Stream #2", "GPU:0 Steps", "Python (steps)", "busy", "idle"]
    assert Scene(study).lanes.busy_ps.tolist() == [1, 9, 60, 50, 90, 1]
    assert labels[Scene(study).lanes.steps_line] == "Python (steps)"


def test_an_event_stands_below_its_parent_and_below_what_it_only_partly_overlaps():
    study = study_of(host(line("t", event("a", 0, 100), event("b", 10, 20), event("c", 20, 50), event("d", 60, 10), event("e", 70, 60))))
    # c begins inside b and outlives it; e begins inside a and outlives it.
    assert rows_of(study) == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 1}
    assert Scene(study).lanes.busy_ps.tolist() == [130]


def test_events_of_one_row_never_overlap_in_any_real_trace(shared_study):
    study = shared_study
    marks = merge_events(study.trace, Scene(study).lanes, 0, len(study.trace.events))
    same = marks.lane[1:] == marks.lane[:-1]
    assert (marks.end_ps[:-1] <= marks.begin_ps[1:])[same].all()
    assert len(marks) == len(study.trace.events)


def marks_of(study, resolution, **rest):
    marks = merge_events(study.trace, Scene(study).lanes, resolution, 1000, **rest)
    names = [study.trace.names[study.trace.events.name[e]] for e in marks.event]
    return list(zip(names, marks.begin_ps.tolist(), marks.end_ps.tolist(), marks.busy_ps.tolist(), marks.occurrences.tolist(), strict=True))


def test_short_neighbours_merge_and_long_events_stay():
    study = study_of(host(line("t", event("a", 0, 2), event("b", 3, 5), event("c", 9, 40), event("d", 50, 1), event("e", 80, 1))))
    assert marks_of(study, 0) == [("a", 0, 2, 2, 1), ("b", 3, 8, 5, 1), ("c", 9, 49, 40, 1), ("d", 50, 51, 1, 1), ("e", 80, 81, 1, 1)]
    # At 10: a and b are short and 1 apart; c is long; d and e are 29 apart.
    assert marks_of(study, 10) == [("b", 0, 8, 7, 2), ("c", 9, 49, 40, 1), ("d", 50, 51, 1, 1), ("e", 80, 81, 1, 1)]


def test_children_of_different_parents_do_not_merge():
    study = study_of(host(line("t", event("p", 0, 20), event("x", 18, 1), event("q", 20, 20), event("y", 21, 1))))
    assert marks_of(study, 10) == [("p", 0, 20, 20, 1), ("q", 20, 40, 20, 1), ("x", 18, 19, 1, 1), ("y", 21, 22, 1, 1)]
    assert marks_of(study, 30) == [("p", 0, 40, 40, 2), ("x", 18, 22, 2, 2)]
    deep = study_of(host(line("t", event("long", 0, 50), event("s", 40, 10), event("x", 49, 1), event("long", 50, 50), event("s", 50, 3), event("y", 50, 1))))
    assert marks_of(deep, 20)[2:] == [("s", 40, 50, 10, 1), ("s", 50, 53, 3, 1), ("x", 49, 50, 1, 1), ("y", 50, 51, 1, 1)]


def test_a_window_holds_what_touches_it():
    study = study_of(host(line("t", event("a", 0, 100), event("b", 10, 5), event("c", 50, 5), event("d", 200, 5))))
    assert [m[0] for m in marks_of(study, 0, window_ps=(12, 50))] == ["a", "b"]
    assert [m[0] for m in marks_of(study, 0, window_ps=(50, 51))] == ["a", "c"]


@pytest.mark.parametrize("most", [50, 2000])
def test_no_event_is_dropped_at_any_level_of_detail(shared_study, most):
    study = shared_study
    marks = pick_marks(study.trace, Scene(study).lanes, most)
    assert len(marks) <= max(most, Scene(study).lanes.first_lane[-1])
    assert marks.occurrences.sum() == len(study.trace.events)
    assert marks.busy_ps.sum() == study.trace.events.duration_ps.sum()
    assert (np.diff(marks.lane) >= 0).all()
    owner = marks.mark_of_event
    assert (marks.begin_ps[owner] <= study.trace.events.begin_ps).all()
    assert (marks.end_ps[owner] >= study.trace.events.end_ps).all()
    assert (marks.lane[owner] == Scene(study).lanes.lane).all()


def test_busy_fractions_of_equal_stretches():
    study = study_of(host(line("t", event("a", 0, 10), event("in a", 2, 5), event("b", 25, 10), event("over b", 30, 20))))
    edges = np.array([0, 10, 20, 30, 40, 50, 60])
    assert busy_in_bins(study.trace, Scene(study).lanes, 0, edges).tolist() == [1, 0, 0.5, 1, 1, 0]


def test_a_launch_is_the_last_host_event_with_the_kernels_id():
    study = study_of(
        host(line("t", event("op", 0, 9, correlation_id=7), event("cuLaunch", 1, 2, correlation_id=7), event("other", 5, 1, correlation_id=8))),
        gpu(line("Stream #1", event("kernel", 20, 3, correlation_id=7), event("stray", 30, 1, correlation_id=99))),
    )
    launches, kernels = find_launches(study.trace)
    name = lambda e: study.trace.names[study.trace.events.name[e]]
    assert [(name(a), name(b)) for a, b in zip(launches, kernels, strict=True)] == [("cuLaunch", "kernel")]


# The bytes, read by rules of their own.


def unpack(data):
    raw = gzip.decompress(data)
    (size,) = struct.unpack_from("<I", raw)
    head = json.loads(raw[4 : 4 + size])
    at = 4 + size
    out = {}
    widths = iter(head["widths"])

    def numbers(count):
        nonlocal at
        width = next(widths)
        runs = np.frombuffer(raw, np.uint8, width * count, at).reshape(width, count).astype(np.int64)
        at += width * count
        assert width == 0 or not count or runs[-1].any()  # no run that holds nothing
        return sum((runs[place] << 8 * place for place in range(width)), np.zeros(count, np.int64))

    for name, count in [
        ("first", head["rows"] + 1), *((n, head["marks"]) for n in ("begin", "duration", "busy", "children", "occurrences", "name", "step", "category")),
        ("launch", head["flows"]), ("kernel", head["flows"]),
    ]:  # fmt: skip
        out[name] = numbers(count)
    first = out["first"]
    out["tracks"] = [(numbers(track["samples"]), numbers(track["samples"])) for track in head["tracks"]]
    assert at == len(raw)
    assert next(widths, None) is None
    for row in range(head["rows"]):
        part = slice(first[row], first[row + 1])
        out["begin"][part] = np.cumsum(out["begin"][part])
    return head, out


US = 10**6


def test_the_browser_gets_every_number():
    study = study_of(
        host(line("python", event("train", 0, 90 * US, step_num=4, _r=1), event("launch", 10 * US, 5 * US, correlation_id=3), event("next", 95 * US, US))),
        gpu(line("Stream #1", event("kernel", 20 * US, 30 * US, correlation_id=3))),
    )
    head, columns = unpack(pack_timeline(Scene(study), 100, 10).data)
    assert (head["unit_ps"], head["span"], head["events"], head["merged"]) == (1000, 96_000, 4, 0)
    names = [head["names"][row] for row in columns["name"]]
    assert names == ["kernel", "train", "next", "launch"]
    assert columns["begin"].tolist() == [20_000, 0, 95_000, 10_000]
    assert columns["duration"].tolist() == [30_000, 90_000, 1000, 5000]
    assert columns["children"].tolist() == [0, 5000, 0, 0]
    assert columns["step"].tolist() == [1, 1, 0, 1]
    assert [head["categories"][c][0] for c in columns["category"]] == ["device compute", "all others", "kernel launch", "kernel launch"]
    assert (columns["launch"].tolist(), columns["kernel"].tolist()) == ([3], [0])
    assert head["steps"] == {"begin": [0], "end": [90_000], "num": [4], "warm": [0]}
    assert [(entry["label"], entry["row"], entry["device"], entry["steps"]) for entry in head["lines"]] == [("GPU:0 Stream #1", 0, True, False), ("Python (steps)", 1, False, True)]


def test_times_count_from_the_first_event_even_where_it_is_before_its_lines_begin():
    study = study_of(host(line("t", event("early", -5 * US, 2 * US), event("a", 0, 10 * US))))
    head, columns = unpack(pack_timeline(Scene(study), 10, 0).data)
    assert (head["begin_ps"], head["span"]) == (-5 * US, 15_000)
    assert (columns["begin"].tolist(), columns["duration"].tolist()) == ([0, 5000], [2000, 10_000])


def test_a_block_tells_how_long_its_events_ran():
    study = study_of(host(line("t", *(event("a", at * 3 * US, 2 * US) for at in range(100)))))
    _, columns = unpack(pack_timeline(Scene(study), 10, 0).data)
    assert (columns["occurrences"] > 1).all()
    assert columns["busy"].tolist() == (columns["occurrences"] * 2000).tolist()


def test_a_long_trace_gets_a_coarser_unit_that_fits_32_bits():
    study = study_of(host(line("t", event("a", 0, 10), event("b", 60 * 10**12, 10**6))))
    head, columns = unpack(pack_timeline(Scene(study), 10, 0).data)
    assert head["unit_ps"] == -(-(60 * 10**12 + 10**6) // (2**32 - 1))
    assert columns["begin"][1] * head["unit_ps"] == pytest.approx(60 * 10**12, rel=1e-9)
    assert columns["duration"][0] == 1  # what is shorter than the unit stays visible


def test_the_unit_is_of_the_whole_span_though_it_begins_before_zero():
    study = study_of(host(line("t", event("early", -30 * 10**12, 5), event("late", 10 * 10**12, 5))))
    assert unit_of(Scene(study)) == (-30 * 10**12, -(-(40 * 10**12 + 5) // (2**32 - 1)))


def test_details_are_what_a_person_can_use():
    study = study_of(host(line("t", event("a", 0, 10, long_name="x" * 2000, bytes=64, correlation_id=5, _pt=3))))
    text = event_details(Scene(study), 0)
    assert "bytes: 64" in text
    assert "correlation_id" not in text and "_pt" not in text
    assert len(text) < 700


def test_the_longest_events_have_their_details_and_blocks_of_several_none():
    short = [event("a", at * 3 * US, US, bytes=at + 1) for at in range(100)]
    study = study_of(host(line("t", *short, event("b", 400 * US, 900 * US, bytes=7), event("c", 2000 * US, 800 * US, bytes=8))))
    head, columns = unpack(pack_timeline(Scene(study), 10, 2).data)
    assert (columns["occurrences"] > 1).any()
    told = {head["names"][columns["name"][int(mark)]]: text for mark, text in head["details"].items()}
    assert told == {"b": "bytes: 7", "c": "bytes: 8"}
    head, columns = unpack(pack_timeline(Scene(study), 10, 1).data)
    assert [head["names"][columns["name"][int(mark)]] for mark in head["details"]] == ["b"]  # the longest


def test_a_page_has_the_first_20_000_steps():
    study = study_of(host(line("p", *(event("train", at * 10_000, 9000, step_num=at, _r=1) for at in range(20_001)))))
    assert len(study.steps) == 20_001
    head, _ = unpack(pack_timeline(Scene(study), 10, 0).data)
    assert {len(column) for column in head["steps"].values()} == {20_000}


def many(count):
    """A made-up trace: one thread, events of 1 to 100 us in a row, 50 names."""
    random = np.random.default_rng(3)
    duration = random.integers(1, 100, count) * US
    begin = np.cumsum(duration + random.integers(0, 20, count) * US) - duration
    names = StringTable.of(f"op{k}:MatMul" for k in range(50))
    return assemble_trace("made.json", [FoundLine("/host:CPU", "", "python")], np.zeros(count, np.int64), random.integers(0, 50, count), begin, duration, names)


def test_a_page_draws_some_marks_first_and_holds_every_event():
    built = build_timeline(Study(many(60_000)), is_page=True)
    first, every = (unpack(b64decode(data)) for data in (built.data, built.every))
    assert first[0]["marks"] <= 30_000 and every[0]["marks"] == 60_000
    assert first[1]["occurrences"].sum() == every[1]["occurrences"].sum() == 60_000
    assert first[0]["lines"] == every[0]["lines"]
    assert built.remarks == ()  # nothing stays merged
    assert 'data-more="1"' in built.html() and built.every in built.every_html()
    small = build_timeline(Study(many(100)), is_page=True)
    assert (small.every, small.every_html()) == ("", "")
    assert "data-more" not in small.html()


def test_a_timeline_coarsens_until_it_fits_and_says_so():
    study = Study(many(300_000))
    packed = fit_timeline(Scene(study), 100_000, 100, 200_000)
    assert len(packed.data) <= 200_000
    assert packed.marks > 20_000
    _, columns = unpack(packed.data)
    assert columns["occurrences"].sum() == 300_000
    timeline = build_timeline(study)
    assert len(timeline.html()) < 700_000
    assert "drawn as blocks of several" in timeline.remarks[0]
    assert "p.to_html(path)" in timeline.remarks[0]
    assert build_timeline(Study(many(1000))).remarks == ()


def test_what_fits_is_found_in_a_few_tries(monkeypatch):
    """The whole takes 89 kB: what is almost small enough already is no reason to try one mark less each time."""
    tries = []
    monkeypatch.setattr(pack, "pack_timeline", lambda *given: tries.append(pack_timeline(*given)) or tries[-1])
    assert fit_timeline(Scene(Study(many(20_000))), 20_000, 100, 85_000) is tries[-1]
    assert len(tries[-1].data) <= 85_000 < len(tries[-2].data)
    assert len(tries) <= 4


def test_a_page_holds_every_event():
    study = Study(many(300_000))
    head, _ = unpack(b64decode(build_timeline(study, is_page=True).every))
    assert (head["marks"], head["merged"]) == (300_000, 0)


def test_the_kernel_answers_with_every_event_of_a_window():
    study = Study(many(50_000))
    events = study.trace.events
    low, high = int(events.begin_ps[1000]), int(events.begin_ps[1100])
    head, columns = unpack(b64decode(answer_question(Scene(study), f"window {low // 1000} {high // 1000}")))
    inside = (events.begin_ps < high) & (events.end_ps >= low)
    assert head["marks"] == inside.sum()
    assert columns["begin"].tolist() == (events.begin_ps[inside] // 1000).tolist()


def test_a_window_beyond_all_numbers_is_an_empty_one():
    study = study_of(host(line("t", event("a", 0, 10), event("b", 20 * 86_400 * 10**12, 10))))
    for question in ("window 999999999999998 999999999999999", "window -99999999999999 -99999999999998"):
        head, _ = unpack(b64decode(answer_question(Scene(study), question)))
        assert head["marks"] == 0


@pytest.mark.parametrize("question", ["", "window", "window a b", "window 1 2 3", "event 0 99999999999999999999", "delete everything", "event -1 0"])
def test_a_question_that_makes_no_sense_gets_no_answer(question):
    assert answer_question(Scene(Study(many(10))), question) == ""


def test_the_still_picture_reads_as_text():
    study = study_of(
        host(line("python", *(event("train", 10 * US * k, 8 * US, step_num=k, _r=1) for k in range(3)))),
        gpu(line("Stream #1", event("kernel", 0, 14 * US))),
    )
    lines = still_text(still_picture(Scene(study))).splitlines()
    assert lines[0].split() == ["thread", "or", "stream", "|", "28.0", "µs", "|", "busy", "busy", "%", "events"]
    assert lines[1] == "GPU:0 Stream #1   |" + "█" * 30 + " " * 30 + "|  14.0 µs  50.0 %       1"
    assert lines[2].startswith("Python (steps)    |" + "█" * 17)
    assert lines[2].endswith("|  24.0 µs  85.7 %       3")


def test_a_hostile_name_is_text_everywhere():
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    study = study_of(host(line(evil, event(evil, 0, 10, **{"long_name": evil}))), plane(evil, line("l", event("e", 0, 1))))
    html = build_timeline(study).html("id")
    assert "<script" not in html and "<img" not in html
    assert "</script" not in timeline_script()


def test_a_claim_of_a_million_lines_shows_the_first_and_says_so():
    count = 3000
    lines = [FoundLine("/host:CPU", "", f"thread {k}") for k in range(count)]
    trace = assemble_trace("made.json", lines, np.arange(count), np.zeros(count, np.int64), np.arange(count), np.full(count, 5), StringTable.of(["e"]))
    timeline = build_timeline(Study(trace))
    assert "2,600 events on hidden lines" in " ".join(timeline.remarks)
    assert len(timeline.html()) < 200_000


def test_a_trace_without_events_is_said():
    assert build_timeline(study_of(host(line("t")))).data == ""


def test_in_colab_a_callback_is_registered_and_no_widget_is_made(monkeypatch):
    import sys
    import types

    from profnb.timeline.element import show_live_detail

    registered = {}
    colab = types.ModuleType("google.colab")
    colab.output = types.SimpleNamespace(register_callback=registered.__setitem__)
    package = sys.modules.get("google") or types.ModuleType("google")
    monkeypatch.setitem(sys.modules, "google", package)
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setattr(package, "colab", colab, raising=False)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # importing it would fail
    show_live_detail(Study(many(100)), "abc")
    (name, callback), = registered.items()
    assert name == "profnb.abc"
    assert callback("hello").data == {"answer": "here"}
    head, _ = unpack(b64decode(callback("window 0 1000").data["answer"]))
    assert head["marks"] >= 1
