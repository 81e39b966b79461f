"""One scope: ops, source lines, layers, controls and headline speak of steady steps, and each says which it shows."""

import pytest
from traces import event, host, line, read

from profnb.report.controls import _SCOPES, _part_html
from profnb.report.report import build_report
from profnb.subjects.study import Study

MS = 10**9


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
        return str(_part_html(study, chosen, "all", "by op", "", scope))

    assert list(_SCOPES) == ["steady steps", "warm-up steps", "steps of all kinds"]
    assert "9 steady steps, median 10.0 ms" in said("steady steps")
    assert "1 warm-up steps, median 400 ms" in said("warm-up steps")
    assert "10 steps of all kinds" in said("steps of all kinds")
    assert "3 steady steps" in said("steady steps", (2, 4))
    assert "no such steps" in said("warm-up steps", (2, 4))
    assert "Map" in said("steady steps")
