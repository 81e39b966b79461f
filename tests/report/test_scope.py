"""One scope: ops, source lines, layers, controls and headline speak of steady steps, and each says which it shows."""

import re
from array import array

import pytest
from traces import event, host, line, read

from profnb.capture.recording import Recording
from profnb.capture.source.source_records import ENTERED, LEFT, LineRecords, SourceRecords
from profnb.trace.names import CLOCK_EVENT, CLOCK_NS
from profnb.report.frontend import _ROWS_OF_SCOPE, _choose, answer_choice
from profnb.report.build import build_report
from profnb.subjects.source.section import source_sections
from profnb.subjects.study import Study

MS = 10**9


def asked(study, chosen=(0, 9), scope="steady steps"):
    """What the report's script gets for a range of steps and a scope."""
    return answer_choice(study, f"{chosen[0]} {chosen[1]} {list(_ROWS_OF_SCOPE).index(scope)}")


@pytest.fixture
def study():
    """A slow first step of 400 ms, nine of 10 ms whose op takes 6, set-up before them, a pipeline beside them."""
    made = [event("VarHandleOp:VarHandleOp", 0, 90 * MS)]
    made += [event("train", 100 * MS, 400 * MS, step_num=0, _r=1), event("d/MatMul:MatMul", 101 * MS, 390 * MS)]
    beside = [event("Iterator::Root::Map", 50 * MS, 40 * MS)]
    for at in range(1, 10):
        begin = 500 * MS + at * 12 * MS
        made += [event("train", begin, 10 * MS, step_num=at, _r=1), event("d/MatMul:MatMul", begin + MS, 6 * MS)]
        beside.append(event("Iterator::Root::Map", begin + 2 * MS, 3 * MS))
    return Study(read(host(line("python", *made), line("tf_data_x", *beside, line_id=2))))


def shown(study):
    report = build_report(study, title="t", notes=(), overhead_ps=None)
    return report, next(section for section in report.sections if section.title == "Ops")


def test_the_ops_of_a_report_are_those_of_its_steady_steps_and_say_so(study):
    report, ops = shown(study)
    assert report.headline == "9 train steps, median 10.0 ms"
    assert study.scope == "9 steady train steps"
    assert ops.sentence == "Of 9 steady train steps; p.ops has the whole capture."
    assert "VarHandleOp" not in report.text()
    table = study.ops.steady
    assert dict(zip(table.op_name, table.self_ps.tolist(), strict=True)) == {"d/MatMul": 54 * MS, "Iterator::Root::Map": 27 * MS}
    assert int(study.ops.table.self_ps.sum()) == (90 + 390 + 54 + 40 + 27) * MS


def test_layers_have_the_same_op_time(study):
    times = study.layers.times.time_ps
    assert int(times.sum()) == int(study.ops.steady.self_ps.sum()) == (54 + 27) * MS


def test_without_steps_it_is_the_whole_capture():
    window = Study(read(host(line("python", event("a:Op", 0, 5 * MS)))))
    assert window.scope == "the whole capture"
    assert shown(window)[1].sentence == ""
    assert window.ops.steady.total_ps.tolist() == [5 * MS]


def test_the_controls_choose_among_steady_warm_up_and_all_steps(study):
    def said(scope, chosen=(0, 9)):
        return asked(study, chosen, scope)

    assert list(_ROWS_OF_SCOPE) == ["steady steps", "warm-up steps", "steps of all kinds", "everything"]
    assert "9 steady steps, median 10.0 ms" in said("steady steps")
    assert "1 warm-up steps, median 400 ms" in said("warm-up steps")
    assert "10 steps of all kinds" in said("steps of all kinds")
    assert "3 steady steps" in said("steady steps", (2, 4))
    assert said("warm-up steps", (2, 4)) == "none"
    assert "Map" in said("steady steps")


MADE_LINES = {1: "setup()", 2: "for batch in data:", 3: "    train(batch)", 4: "    time.sleep(0.001)"}


@pytest.fixture
def watched():
    """Set-up, at 100 ms a warm-up step of 400, nine of 10 and 2 ms behind each; all but 4 ms of each step is an op.

    At line 1 until 99 ms, with an op of 80; then in turn at line 3 from 1 ms before a step to its end, and at line 4.
    """
    made = [event(CLOCK_EVENT, 0, 10, **{CLOCK_NS: 0}), event("s/VarHandleOp:VarHandleOp", 2 * MS, 80 * MS)]
    now, changes = 100, [(0, 0, ENTERED), (0, 0, 1)]
    for at in range(10):
        took = 10 if at else 400
        changes += [((now - 1) * 10**6, 0, 3), ((now + took) * 10**6, 0, 4)]
        made += [event("train", now * MS, took * MS, step_num=at, _r=1), event("net/dense/MatMul:MatMul", (now + 1) * MS, (took - 4) * MS)]
        now += took + 2
    changes.append((now * 10**6, 0, LEFT))
    records = LineRecords(array("q", [c[0] for c in changes]), array("i", [c[1] for c in changes]), array("i", [c[2] for c in changes]), ["a.py"])
    texts = {"a.py": tuple(MADE_LINES.values())}
    source = SourceRecords(lines=records, texts=texts)
    return Study(read(host(line("python", *made))), recording=Recording(source=source))


def lines_of(lines):
    return {int(number): row for row, number in enumerate(lines.line)}


def test_pythons_time_of_lines_is_that_of_the_steady_steps_too(watched):
    """Line 3: 10 ms a step, 4 of them without an op, and 1 before each next one; line 4: 1 ms; of the last step no gap is known."""
    lines = watched.source.lines
    row = lines_of(lines)
    assert watched.source.scope == "9 steady train steps"
    assert lines.wall_ps[row[3]] == 9 * 10 * MS + 8 * MS
    assert lines.python_ps[row[3]] == 9 * 4 * MS + 8 * MS
    assert lines.wall_ps[row[4]] == lines.python_ps[row[4]] == 8 * MS
    assert lines.occurrences[[row[3], row[4]]].tolist() == [8, 8]
    assert lines.wall_ps[row[1]] == lines.python_ps[row[1]] == 0
    assert lines.capture_ps[[row[1], row[3], row[4]]].tolist() == [99 * MS, (401 + 9 * 11) * MS, (9 + 2) * MS]


def test_the_source_tab_says_which_steps_ops_and_python_are_of(watched):
    section = next(s for s in source_sections(watched) if s.title == "Lines of your code")
    assert section.sentence.startswith("Ops and Python of 9 steady train steps. ")


@pytest.mark.parametrize(
    ("scope", "chosen", "line_3", "line_1", "matmul_ms"),
    [
        ("steady steps", (0, 9), 9 * 4 + 8, 0, 9 * 6),
        ("steady steps", (2, 4), 3 * 4 + 3, 0, 3 * 6),
        ("warm-up steps", (0, 9), 4 + 1, 0, 396),
        ("steps of all kinds", (0, 9), 10 * 4 + 9, 0, 396 + 54),
        ("everything", (0, 9), 10 * 4 + 10, 19, 396 + 54),
        ("everything", (3, 4), 2 * 4 + 2, 0, 12),
    ],
)
def test_a_choice_of_the_controls_changes_lines_ops_and_layers(watched, scope, chosen, line_3, line_1, matmul_ms):
    choice = _choose(watched, chosen, scope)
    lines = watched.source.lines_of(choice.within, choice.times_ps)
    row = lines_of(lines)
    assert lines.python_ps[row[3]] == line_3 * MS
    assert lines.python_ps[row[1]] // MS == line_1
    layers = watched.layers.table_of(choice.rows, choice.of_steps)
    assert layers.total_ps[layers.layer.index("net/dense")] == matmul_ms * MS
    html = asked(watched, chosen, scope)
    assert html.count(choice.words) >= 4  # over the mean step, with the ops, with the layers, with the lines


def test_what_is_chosen_takes_the_place_of_parts_that_the_report_has(watched):
    report = build_report(watched, title="t", notes=(), overhead_ps=None)
    parts = set(re.findall('data-part="([^"]+)"', report.html))
    chosen = re.findall('data-part="([^"]+)"', asked(watched))
    assert chosen == ["Steps/Steps", "Ops/Ops", "Layers/Parts of a step", "Layers/Layers", "Source/Lines of your code"]
    assert set(chosen) <= parts
    assert "train(batch)" in asked(watched)
    window = Study(read(host(line("python", event("a:Op", 0, 5 * MS)))))
    assert re.findall('data-part="([^"]+)"', asked(window)) in (["Steps/Steps", "Ops/Ops"], [])


@pytest.mark.parametrize("question", ["", "0", "0 1", "0 1 9", "-1 2 0", "a b c", "0 1 2 3", "99999999999 0 0"])
def test_a_question_that_makes_no_sense_has_no_answer(study, question):
    assert answer_choice(study, question) == ""


def test_the_script_is_told_the_steps_and_scopes_there_are(study):
    assert answer_choice(study, "hello").split("\n") == ["0 1 2 3 4 5 6 7 8 9", *_ROWS_OF_SCOPE]


def test_set_up_is_in_everything_and_in_no_choice_of_steps(watched):
    said = {scope: asked(watched, scope=scope) for scope in _ROWS_OF_SCOPE}
    assert [scope for scope, html in said.items() if "Handle" in html] == ["everything"]
