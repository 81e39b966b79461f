"""What Python does between session runs: which statements, and whether they make what is fed."""

import linecache
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest

import profnb
from profnb.capture.recording import AFTER, BEFORE, FEEDS, RUN_ITSELF, GapPlace, GapRecords, SessionRecords
from profnb.report.notes import note_cost, notes_of
from profnb.report.build import build_report
from profnb.report.text import headline_text
from profnb.steps.untraced import TracingCost
from profnb.subjects.study import Study
from profnb.capture.source.stacks import Looks
from profnb.tf1.gap_watch import GapWatch
from profnb.tf1.gap_watch import Source
from profnb.tf1.gap_watch import comes_from, fed_names, only_shows
from profnb.capture.recording import Recording

from advised import advised
from traces import event, host, line, read

MS = 1_000_000_000


def source_of(text):
    name = "/home/user/made-up.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return Source(name)


LOOP = """
for i, row in enumerate(rows()):
    image = read(row)
    batch[:] = image
    buffer.append(batch)
    print(i)
    lr = rate(i)
    s.run(step, feed_dict={x: np.stack(buffer), k: lr})
    other = log(image)
"""


def test_what_is_fed_is_followed_back_through_the_names_it_is_made_of():
    source = source_of(LOOP)
    at = {number: source.statement(number, None) for number in range(2, 10)}
    run = at[8]
    needed = fed_names(run)
    assert needed == {"x", "np", "buffer", "k", "lr"}
    assert [number for number in at if number != 8 and comes_from(source, at[number], run, needed)] == [2, 3, 4, 5, 7]
    assert only_shows(at[6]) and not only_shows(at[3])


def test_without_a_column_a_line_of_two_statements_tells_none():
    source = source_of("wait(); s.run(a, {x: b})\n")
    assert source.statement(1, None) is None
    assert source.text(1, source.statement(1, 8)) == "s.run(a, {x: b})"


def study(places, *, gap_ms=18, fed=20, judged=17, new=17, samples=100, wall_ms=None, cells=None, versions=(3,) * 20, gaps=None):
    """Twenty runs of 2 ms, each followed by nothing for ``gap_ms``; of ``gaps``, where they are given."""
    period = (2 + gap_ms) * MS
    ops = [event("a/MatMul:MatMul", row * period, 2 * MS) for row in range(20)]
    runs = [event("session_run", row * period, 2 * MS, step_num=row, _r=1) for row in range(20)]
    trace = read(host(line("python", *runs), line("ops", *ops, line_id=2)))
    gap_ns = 19 * (gap_ms if wall_ms is None else wall_ms) * 1_000_000
    gaps = gaps or GapRecords(20, fed, judged, new, 8192, 19, gap_ns, samples, places, cells or {})
    return Study(trace, recording=Recording(sessions=SessionRecords(0, gaps), graph_versions=list(versions)))


def place(role, took_ms=300, text="batch = load(i)", at=8, **inner):
    return GapPlace("cell.py", at, text, role, took_ms * 1_000_000, **inner)


def rules(of):
    return list(advised(of))


def first_of(of):
    return next(iter(advised(of).values()))


def test_making_what_is_fed_is_input_with_its_lines_and_times():
    inner = {"inner_file": "cell.py", "inner_line": 3, "inner_text": "img = crop(img)", "inner_ns": 200_000_000}
    made = study([place(FEEDS, **inner), place(AFTER, 40, "print(loss)", 12)], cells={"cell.py": 4})
    advice = first_of(made)
    assert rules(made) == ["python-input"]
    assert advice.evidence == (
        "Python makes arrays (8.19 kB) for each session run while TensorFlow waits: 89.5 % of the time, 17.1 ms a "
        "step. Most of the time goes to `batch = load(i)`, Cell [4]:8 (15.1 ms a step, mostly in `img = crop(img)`, Cell [4]:3)."
    )
    assert advice.bound_fraction == pytest.approx(19 * 18 / (19 * 18 + 20 * 2), abs=0.001)
    assert "TFRecord" in advice.code and "100 steps" not in advice.code
    assert not any("tf.data iterator ran" in note for note in notes_of(made))


def test_where_the_graph_grows_that_is_what_python_makes():
    grown = study([place(FEEDS)], versions=range(20))
    assert rules(grown) == ["growing-graph"]


def test_the_answer_says_that_it_is_the_arrays_that_are_fed():
    made, other = study([place(FEEDS)]), study([place(AFTER)])
    answer = [build_report(s, title="", notes=[], overhead_ps=None).answer for s in (made, other)]
    assert answer[0].endswith("(Python making the fed arrays).")
    assert "fed" not in answer[1]


@pytest.mark.parametrize(
    ("places", "facts"),
    [
        ([place(AFTER)], {}),  # logging behind the run
        ([place(BEFORE)], {"new": 0}),  # arrays that were there
        ([place(BEFORE)], {"judged": 0, "new": 0}),
        ([place(FEEDS)], {"fed": 0}),  # scalars
        ([place(FEEDS, 100), place(AFTER, 300)], {}),  # the smaller part
        ([place(RUN_ITSELF, 300, "CheckpointSaverHook.after_run")], {}),
    ],
)
def test_what_does_not_make_the_arrays_is_no_input_and_is_named(places, facts):
    innocent = study(places, **facts)
    assert rules(innocent) == ["python-between-steps"]
    most = max(places, key=lambda p: p.wall_ns)
    assert f"Most of the time goes to `{most.text}`, cell.py:8 (" in first_of(innocent).evidence
    assert "instead of placeholders" not in first_of(innocent).code


def test_new_arrays_and_what_comes_before_the_run_are_input():
    assert rules(study([place(BEFORE)])) == ["python-input"]


def test_few_samples_tell_nothing():
    assert study([place(FEEDS)], samples=3).input.feeding is None


def test_what_passes_inside_of_the_run_is_not_pythons():
    assert rules(study([place(AFTER)], wall_ms=0.1)) == []


def test_long_gaps_that_are_the_sessions_are_not_said_to_be_pythons():
    """1.2 ms of Python after each run; every eighth gap is 40 ms, most of it inside of ``Session.run``."""
    begin, events = 0, []
    for row in range(40):
        events += [event("session_run", begin, 2 * MS, step_num=row, _r=1), event("a/MatMul:MatMul", begin, 2 * MS)]
        begin += (42 if row % 8 == 7 else 6) * MS
    places = [place(AFTER, 46, "log(loss)")]
    gaps = GapRecords(40, 0, 0, 0, 0, 39, 39 * 1_200_000, 30, places)
    of = Study(read(host(line("python", *events))), recording=Recording(sessions=SessionRecords(0, gaps), graph_versions=[3] * 40))
    advice = first_of(of)
    assert "Most of the time goes to `log(loss)`, cell.py:8 (1.20 ms a step)." in advice.evidence
    assert "comes after" not in advice.evidence
    assert "those steps" not in advice.code


def test_names_from_the_code_cannot_leave_their_quotes():
    told = study([place(FEEDS, text="x = f(`<b>`)")]).input.feeding.named()
    assert told.startswith("`x = f('<b>')`, cell.py:8")


def test_an_array_is_new_that_was_not_fed_before_and_does_not_stay():
    kept = [np.ones(9) for _ in range(8)]
    whole = np.ones(90)
    for feeds, fed, new in (
        (lambda i: {"x": np.ones(9)}, 8, 5), (lambda i: {"x": kept[i]}, 8, 0),
        (lambda i: {"x": whole[i : i + 9]}, 8, 0),
        (lambda i: {"x": np.ones(9), "y": whole[i : i + 2]}, 8, 5),  # labels are a part of what is kept
        (lambda i: dict(zip("xy", np.ones((2, 9)), strict=True)), 8, 5),  # parts of one new array
        (lambda i: {"x": whole[i : i + 9], "noise": np.ones(2)}, 8, 0), (lambda i: {"x": 0.1}, 0, 0), (lambda i: None, 0, 0),
    ):  # fmt: skip
        watch = GapWatch()
        for number in range(8):
            watch.run_begins(feeds(number))
        records = watch.finish(Looks())
        assert (records.runs, records.fed, records.new) == (8, fed, new)
        assert records.judged == (5 if fed else 0)


# Real runs.


@pytest.fixture(scope="module")
def session():
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 64), name="x")
        v1.placeholder(tf.float32, (None,), name="y")
        tf.reduce_sum(x, name="total")
    with v1.Session(graph=graph) as opened:
        yield opened


NAP_NS = 100_000_000


@pytest.fixture
def nap(clock):
    """By a clock that stands still in between: only naps take time, and a look is taken in each."""
    return partial(clock.work, NAP_NS // 1_000_000)


def load(nap):
    nap()
    return np.ones((8, 64))


def fed_inline(s, nap):
    for number in range(16):
        s.run("total:0", {"x:0": load(nap)})


def fed_by_name(s, nap):
    for number in range(16):
        rows = load(nap)
        batch = rows / 2
        s.run("total:0", feed_dict={"x:0": batch})


def fed_and_logged(s, nap):
    for _ in range(16):
        s.run("total:0", {"x:0": np.ones((8, 64))})
        nap()


def rules_of(gaps):
    """What is said of so many runs of 2 ms each, with these gaps between them."""
    return rules(study([], gap_ms=NAP_NS // 1_000_000, gaps=replace(gaps, own_ns=0)))


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("loop", "role", "text"),
    [
        (fed_inline, FEEDS, 's.run("total:0", {"x:0": load(nap)})'),
        (fed_by_name, FEEDS, "rows = load(nap)"),
        (fed_and_logged, AFTER, "nap()"),
    ],
)  # fmt: skip
def test_statements_of_real_loops_are_found(session, nap, loop, role, text):
    with profnb.profile() as p:
        loop(session, nap)
    gaps = p.recording.sessions.gaps
    assert (gaps.runs, gaps.fed, gaps.new, gaps.gaps) == (16, 16, 13, 15)
    assert gaps.gap_ns == 15 * NAP_NS
    most = gaps.places[0]
    assert (most.role, most.text, most.wall_ns) == (role, text, 15 * NAP_NS)
    assert most.file.endswith("test_feeding.py")
    assert rules_of(gaps) == ["python-input" if role == FEEDS else "python-between-steps"]


def fed_after_another_run(s, nap):
    s.run("total:0", {"x:0": np.zeros((1, 64))})  # as one that initialises
    kept = np.ones((900, 64))
    for i in range(12):
        batch = load(nap)
        s.run("total:0", {"x:0": batch, "y:0": kept[i : i + 8, 0]})


def logged_after_another_run(s, nap):
    s.run("total:0", {"x:0": np.zeros((1, 64))})
    for _ in range(12):
        s.run("total:0", {"x:0": np.ones((8, 64))})
        nap()


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("loop", "role", "text", "naps"),
    [(fed_after_another_run, FEEDS, "batch = load(nap)", 12), (logged_after_another_run, AFTER, "nap()", 11)],
)
def test_a_run_before_the_loop_does_not_tell_what_the_loops_statements_are(session, nap, loop, role, text, naps):
    with profnb.profile() as p:
        loop(session, nap)
    gaps = p.recording.sessions.gaps
    most = gaps.places[0]
    assert (most.role, most.text, most.wall_ns) == (role, text, naps * NAP_NS)
    assert rules_of(gaps) == ["python-input" if role == FEEDS else "python-between-steps"]


@pytest.mark.tensorflow
def test_without_source_a_statement_has_its_line_and_its_time_and_no_text(session, nap):
    with profnb.profile(source=False) as p:
        fed_by_name(session, nap)
    gaps = p.recording.sessions.gaps
    assert {(place.text, place.inner_text) for place in gaps.places} == {("", "")}
    at = fed_by_name.__code__.co_firstlineno + 2
    assert (gaps.places[0].role, gaps.places[0].line, gaps.places[0].wall_ns) == (FEEDS, at, 15 * NAP_NS)
    assert "rows = load" not in p.summary()


@pytest.mark.tensorflow
def test_a_hook_of_a_monitored_session_is_named(nap):
    tf = pytest.importorskip("tensorflow")

    class Slow(tf.compat.v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            nap()

    with tf.Graph().as_default():
        one = tf.compat.v1.assign_add(tf.compat.v1.train.create_global_step(), 1)
        with tf.compat.v1.train.MonitoredSession(hooks=[Slow()]) as s, profnb.profile() as p:
            for _ in range(16):
                s.run(one)
    most = p.recording.sessions.gaps.places[0]
    assert (most.role, most.wall_ns) == (RUN_ITSELF, 15 * NAP_NS)
    assert (most.inner_text, most.inner_ns) == ("sampler._look(thread)", 15 * NAP_NS)
    assert most.text.endswith("after_run")


@pytest.mark.parametrize(
    ("between_ms", "own_ms", "said"),
    [
        (17, 0, "Python between two runs"),
        (2, 0, "mostly inside of Session.run, around its ops"),
        (2, 14, "mostly profnb, which traces each run by itself"),
    ],
)
def test_a_gap_inside_of_session_run_or_of_profnb_is_not_callbacks(between_ms, own_ms, said):
    made = study([], gap_ms=18)
    gaps = made.recording.sessions.gaps
    gaps.gap_ns, gaps.traced, gaps.own_ns = gaps.gaps * between_ms * 1_000_000, 20, 20 * own_ms * 1_000_000
    report = build_report(made, title="t", notes=[], overhead_ps=None)
    assert report.answer == f"Most of it is between steps, 89.5 % ({said})."


def test_the_cost_of_tracing_session_runs_is_said_of_the_call():
    made = study([], gap_ms=18)
    cost = TracingCost(0.5, 0.4, 0.6, 10 * MS)
    made.tracing_cost = TracingCost(0.9, 0.1, 9, MS)
    assert "Traced calls of Session.run took 50.0 % longer" in note_cost(cost, of_runs=True)[0]
    assert headline_text(made).startswith("20 session_run steps, median 2.00 ms, one every")
