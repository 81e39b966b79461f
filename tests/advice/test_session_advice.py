"""What loops of TensorFlow 1 do beside training: summaries in each run, checkpoints, graphs that grow."""

import numpy as np
import pytest

import profnb
from profnb.capture.parts.part_records import CALLBACKS, CHECKPOINTING, OTHER, PROFNB, SESSION_RUNS, CellPart, CellRecords
from profnb.capture.recording import Recording
from profnb.capture.parts.part_records import CELL, TreeNode
from profnb.capture.recording import AFTER, RUN_ITSELF, GapPlace, GapRecords, SessionRecords
from profnb.advice.advise import advise
from profnb.advice.cell_model import Model
from profnb.causes.cell_tree import grow_tree
from profnb.report.build import build_report
from profnb.report.text import alarm_text
from profnb.subjects.ops.op_execution import find_growth
from profnb.causes.starving import note_threads
from profnb.subjects.study import Study

from advised import advised, alone
from traces import event, host, line, read

MS, NS = 1_000_000_000, 1_000_000
STEPS = 40


def study(*, summary_ms=0.0, every=1, saves=0, save_ms=10, gap_ms=10, places=(), versions=None):
    """Forty runs of 10 ms and gaps of 10 ms, with an op of 5 ms and summaries in some."""
    runs = [event("session_run", row * 20 * MS, 10 * MS, step_num=row, _r=1) for row in range(STEPS)]
    ops = []
    for row in range(STEPS):
        ops.append(event("a/MatMul:MatMul", row * 20 * MS, 5 * MS))
        if summary_ms and row % every == 0:
            ops.append(event("w:HistogramSummary", row * 20 * MS + 5 * MS, int(summary_ms * MS)))
    trace = read(host(line("python", *runs), line("ops", *ops, line_id=2)))
    others_ms = (STEPS - 1) * gap_ms - (saves * save_ms if save_ms < 10 * gap_ms else 0)
    parts = [CellPart(SESSION_RUNS, "", STEPS, 400 * NS, 10 * NS), CellPart(OTHER, "", 0, max(others_ms, 0) * NS, 0)]
    parts.append(CellPart(PROFNB, "stop", 1, 900 * NS, 900 * NS))
    if saves:
        parts.append(CellPart(CHECKPOINTING, "Saver.save", saves, saves * save_ms * NS, save_ms * NS))
    cell = CellRecords(sum(part.wall_ns for part in parts), parts)
    gaps = GapRecords(STEPS, 0, 0, 0, 0, STEPS - 1, (STEPS - 1) * gap_ms * NS, 60, list(places))
    recording = Recording(sessions=SessionRecords(0, gaps), cell=cell, graph_versions=versions or [3] * STEPS)
    return Study(trace, recording=recording)


def of_cell(study):
    """What is said of the study's cell, whose parts are its tree."""
    cell = study.recording.cell
    cell.tree = [TreeNode(-1, CELL), *(TreeNode(0, part.part, part.name, occurrences=part.occurrences, self_ns=part.wall_ns) for part in cell.parts)]
    return {one.rule: one for one in advise(Model(grow_tree(cell, study), study, cell=cell))}


def place(text, took_ms, role=AFTER):
    return GapPlace("cell.py", 5, text, role, took_ms * NS)


def test_summaries_of_each_run_are_said_with_their_ops_and_their_writing():
    of = study(summary_ms=4, places=[place("writer.add_summary(s, i)", 39)])
    each = advised(of)["summaries"]
    assert each.evidence == (
        "40 of 40 session runs make summaries. Summary ops take 20.3 % of the time, writing 1.00 ms a run."
    )
    low, high = alone(of)["summaries"]
    assert high == pytest.approx(0.99 * (0.203 + 0.051), abs=0.002)  # at every 100th run they remain
    assert low == pytest.approx(0.8 * (0.203 + 0.051), rel=0.01)  # or at every fifth
    assert "save_summaries_steps=100" in each.code


@pytest.mark.parametrize("facts", [{"summary_ms": 4, "every": 10}, {"summary_ms": 0.2}, {}])
def test_seldom_or_cheap_summaries_are_no_advice(facts):
    assert "summaries" not in advised(study(**facts))


def test_frequent_checkpoints_are_said_and_are_no_python_between_steps():
    often = study(saves=39, save_ms=8, places=[place("saver.save(s, path)", 380)])
    advice = of_cell(often)["checkpoints"]
    assert "python-between-steps" not in of_cell(often)
    assert advice.evidence == "`Saver.save` ran at least 39 times and took 312 ms."
    of_cell_without_profnb = 1690 / (1690 - 900)
    assert advice.saves_ms == (pytest.approx(0.8 * 312 * of_cell_without_profnb), pytest.approx(312 * of_cell_without_profnb))
    assert "save_checkpoint_secs" in advice.code
    hooked = of_cell(study(saves=39, save_ms=8, places=[place("CheckpointSaverHook.after_run", 380, RUN_ITSELF)]))
    assert "python-between-steps" not in hooked


def test_saves_so_long_that_they_are_pauses_are_a_share_of_the_whole_cell():
    """400 ms of runs, 390 ms between them, and three pauses of 500 ms that no gap has."""
    long = of_cell(study(saves=3, save_ms=500, places=[place("log(loss)", 380)]))["checkpoints"]
    assert long.evidence.endswith(" ran at least 3 times and took 1.50 s.")
    assert long.saves_ms[0] == pytest.approx(0.8 * 1500 * 3190 / (3190 - 900))  # the rest is profnb's


@pytest.mark.parametrize("facts", [{"saves": 2, "save_ms": 100}, {"saves": 20, "save_ms": 1}, {"saves": 0}])
def test_few_or_cheap_checkpoints_are_no_advice(facts):
    few = study(places=[place("log(loss)", 380)], **facts)
    assert "`log(loss)`, cell.py:5" in advised(few)["python-between-steps"].evidence or facts["saves"] == 2
    assert "checkpoints" not in of_cell(few)


def test_what_tensorflow_itself_does_around_a_run_is_not_the_codes():
    own = study(places=[place("", 390, RUN_ITSELF)])
    assert "python-between-steps" not in advised(own)
    assert own.input.feeding is None


def test_a_growing_graph_is_said_before_anything_else_and_python_makes_it():
    grows = study(versions=list(range(20, 20 + 5 * STEPS, 5)), places=[place("loss = f(x)", 380)])
    assert find_growth(grows.recording.graph_versions) == (39, 5)
    report = build_report(grows, title="", notes=[], overhead_ps=None)
    assert report.alarm.startswith("The graph grows in the loop: 39 of 40 session runs found new ops.")
    advice = advised(grows)["growing-graph"]
    assert "graph.finalize()" in advice.code
    assert advice.saves_ms[1] == pytest.approx(40 * 5 - 40 * 0.02 + 390 * 39 / 40)  # the ops, a call of each run, one gap
    assert advice.saves_ms[0] == pytest.approx(40 * 5 - 40 * 0.5)
    assert "python-between-steps" not in advised(grows)


@pytest.mark.parametrize("versions", [[], [3], [3, 4], [3, 4, 5, 5, 5, 5, 5], [7] * 40])
def test_a_graph_that_was_built_before_the_loop_does_not_grow(versions):
    assert find_growth(versions) is None
    assert alarm_text(study(versions=versions or None)) == ""


@pytest.mark.tensorflow
def test_savers_and_hooks_make_no_steps_and_have_rows(tmp_path, clock, monkeypatch):
    """What TensorFlow runs for a save takes a millisecond, and so does a step; nothing else takes any time."""
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    base = v1.Session.__base__
    do_run = base._do_run

    def runs(*given):
        clock.work(1)
        return do_run(*given)

    monkeypatch.setattr(base, "_do_run", runs)
    with tf.Graph().as_default():
        weight = v1.get_variable("w", [4, 4])
        count = v1.train.get_or_create_global_step()
        step = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(weight**2), global_step=count)
        v1.summary.scalar("loss", tf.reduce_sum(weight))
        settings = {"save_checkpoint_steps": 4, "save_summaries_steps": 1, "log_step_count_steps": None}
        with v1.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), **settings) as s, profnb.profile() as p:
            for _ in range(12):
                s.run(step)
    assert p.steps.phase.tolist().count("session_run") >= 11
    assert len(p.step_times) == 12  # none of the hooks' own runs
    rows = p.cell_breakdown.set_index(["part", "name"]).wall_ms
    assert rows[CHECKPOINTING, "Saver.save"] >= 3
    assert {name.rpartition(".")[2] for part, name in rows.index if part == CALLBACKS} <= {"before_run", "after_run"}
    assert (tmp_path / "checkpoint").exists()
    with tf.Graph().as_default(), v1.Session() as s:
        weight = v1.get_variable("w", [4, 4])
        s.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        with profnb.profile() as p:
            for number in range(6):
                s.run(weight)
                path = saver.save(s, str(tmp_path / "own"), global_step=number)
            saver.restore(s, path)
            assert np.shape(s.run(weight)) == (4, 4)
    assert len(p.step_times) == 7
    rows = p.cell_breakdown.set_index(["part", "name"]).wall_ms
    assert (rows[CHECKPOINTING, "Saver.save"], rows[CHECKPOINTING, "Saver.restore"]) == (6, 1)


SET = {"CPU cores": "2", "Intra-op threads": "22", "Inter-op threads": "22"}


def thread_notes(environment):
    made = study()
    made.recording.environment |= environment
    return note_threads(made)


def test_more_threads_than_cores_are_said_with_what_measures_them():
    assert thread_notes(SET) == [
        "Threads were set to 22 for each op (intra-op) and 22 to run ops (inter-op), on 2 cores. More threads than cores "
        "take turns. `%%tfsweep intra_op_threads=2,22 inter_op_threads=2,22` measures the cost."
    ]
    (one,) = thread_notes(SET | {"Intra-op threads": "default"})
    assert "Threads were set to 22 to run ops (inter-op), on 2 cores" in one and "`%%tfsweep inter_op_threads=2,22`" in one


@pytest.mark.parametrize(
    "environment",
    [{}, {"CPU cores": "2"}, SET | {"CPU cores": "22"}, {"CPU cores": "2", "Intra-op threads": "2", "Inter-op threads": "default"}],
)
def test_threads_as_many_as_cores_are_not_said(environment):
    assert thread_notes(environment) == []


@pytest.mark.tensorflow
def test_what_a_session_was_set_to_is_kept():
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        one = tf.constant(1)
        with v1.Session(config=v1.ConfigProto(intra_op_parallelism_threads=31)) as s, profnb.profile() as p:
            s.run(one)
    assert p.environment["Intra-op threads"] == "31"
    assert p.environment["Inter-op threads"] == "default"
