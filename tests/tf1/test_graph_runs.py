"""TF1 session runs under a capture: traced, timed, and otherwise as without us."""

import gzip
import inspect
import sys
import threading
import traceback
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import profnb
from profnb.capture import hooks
from profnb.capture.hooks import Library
from profnb.capture.marking.step_recorder import SessionRuns
from profnb.capture.seams import SEAMS
from profnb.tf1 import gap_watch, session_runs
from profnb.tf1.run_metadata import join_run_metadata
from traces import tell_beside, told_beside
from profnb.capture.source import user_code

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow
v1 = tf.compat.v1
FULL = v1.RunOptions.FULL_TRACE


@pytest.fixture(scope="module")
def model():
    """A graph with a product of two 1000 x 1000 matrices of float32."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 1000), name="x")
        w = v1.get_variable("w", (1000, 1000), initializer=v1.ones_initializer())
        v1.global_variables_initializer()
        tf.reduce_sum(tf.matmul(x, w, name="product"), name="total")
    return graph


X = np.ones((1000, 1000), np.float32)


def run_it(session, times=1, **arguments):
    return [session.run("total:0", {"x:0": X}, **arguments) for _ in range(times)]


def start(graph):
    session = v1.Session(graph=graph)
    session.run("init")
    return session


def test_each_run_is_a_step_with_ops_memory_and_shapes(model):
    with profnb.profile() as p, v1.Session(graph=model) as session:
        session.run("init")
        assert run_it(session, 3) == [1e9] * 3
    assert not any("session run" in note for note in p.notes)
    assert p.steps.phase.tolist() == ["session_run (2)"] + ["session_run"] * 3  # the initialisation is another program
    assert p.steps.step_num.tolist() == [0, 1, 2, 3]
    assert p.step_times.step_num.tolist() == [0, 1, 2, 3]
    assert p.step_times.was_traced.all()
    assert (p.step_times.wall_ms.to_numpy() >= p.steps.duration_ms.to_numpy()).all()
    assert p.recording.closed_by == "session runs"
    assert p.recording.graph is model
    product = p.ops[p.ops.op_name == "product"].iloc[0]
    assert product.occurrences == 3
    events = np.flatnonzero(p.events.name.str.startswith("product:"))
    assert [p.trace.stats.of_event(e)["total_bytes"] for e in events] == [4_000_000] * 3
    assert p.trace.stats.of_event(events[0])["output_shapes"] == "0: float32[1000,1000]"


def test_the_bound_on_steps_bounds_the_traced_runs_and_all_are_timed(model):
    with profnb.profile(max_steps=3) as p, start(model) as session:
        run_it(session, 7)
    assert len(p.steps) == len(p.recording.graph_runs) == 3
    assert p.step_times.was_traced.tolist() == [True] * 3 + [False] * 5
    assert p.notes[0] == (
        "3 of 8 session runs were traced, all were timed; -n and -t change the bounds."
    )


def test_the_bound_on_seconds_bounds_the_traced_runs(model):
    with profnb.profile(max_seconds=1e-9) as p, start(model) as session:
        run_it(session, 2)
    assert p.step_times.was_traced.tolist() == [False] * 3
    assert len(p.recording.graph_runs) == 0


def test_options_of_the_code_that_trace_are_used_and_not_traced_twice(model):
    own = v1.RunMetadata()
    options = v1.RunOptions(trace_level=FULL, output_partition_graphs=True)
    with start(model) as session, profnb.profile() as p:
        run_it(session, options=options, run_metadata=own)
        session.run("total:0", {"x:0": X}, options, own)
        session.run("total:0", {"x:0": X}, options)
    assert len(p.steps) == 3
    assert p.recording.graph_runs[1] == own.SerializeToString()
    assert len(own.partition_graphs) == 1
    assert options == v1.RunOptions(trace_level=FULL, output_partition_graphs=True)
    assert not any("session run" in note for note in p.notes)


def test_options_of_the_code_that_do_not_trace_are_left_alone_and_said(model):
    own = v1.RunMetadata()
    with start(model) as session, profnb.profile() as p:
        run_it(session, 2, options=v1.RunOptions(timeout_in_ms=60_000), run_metadata=own)
        run_it(session)
    assert own == v1.RunMetadata()
    assert len(p.steps) == 1
    assert p.step_times.was_traced.tolist() == [False, False, True]
    assert p.notes[0] == (
        "2 session runs had options without FULL_TRACE, so the ops' memory is "
        "unknown. Leave out options= to trace these runs."
    )


def test_a_run_metadata_of_the_code_stays_as_it_would_without_us(model):
    with start(model) as session:
        plain, own = v1.RunMetadata(), v1.RunMetadata()
        run_it(session, run_metadata=plain)
        with profnb.profile() as p:
            run_it(session, run_metadata=own)
            run_it(session, options=v1.RunOptions(), run_metadata=own)
    assert len(p.steps) == 2
    assert own == plain


def test_a_monitored_session_is_traced(model):
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        step = v1.assign_add(v1.get_variable("n", (), initializer=v1.zeros_initializer()), 1.0)
        with profnb.profile() as p, v1.train.MonitoredSession() as session:
            assert [session.run(step) for _ in range(4)] == [1, 2, 3, 4]
    assert p.step_times.was_traced.all()
    assert p.steps.phase.tolist()[-4:] == ["session_run"] * 4


def test_an_interactive_session_and_eval_are_traced(model):
    with profnb.profile() as p:
        with model.as_default():
            session = v1.InteractiveSession(graph=model)
            model.get_operation_by_name("init").run()
            model.get_tensor_by_name("total:0").eval({"x:0": X})
            session.close()
    assert len(p.steps) == 2


def failures(session):
    """The tracebacks of three runs that fail, in Python, in TensorFlow and in the call."""
    texts = []
    for call in (
        lambda: session.run("no such op"),
        lambda: session.run("total:0", {"x:0": np.ones((2, 3))}),
        lambda: session.run("total:0"),
        lambda: session.run(),
        lambda: session.run("total:0", None, None, None, None),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            call()
        texts.append("".join(traceback.format_exception(caught.type, caught.value, caught.tb)))
    return texts


def test_a_failing_run_has_the_same_traceback_as_without_us(model):
    with start(model) as session:
        plain = failures(session)
        with profnb.profile():
            captured = failures(session)
        with profnb.profile(), profnb.profile():
            nested = failures(session)
    assert captured == plain
    assert nested == plain
    assert all("profnb" not in text.replace("test_graph_runs", "").replace("/profnb/", "") for text in plain)


def test_runs_that_are_only_counted_tell_what_the_others_do(monkeypatch, tmp_path):
    """A failing one, options, a step around one and a saver between them."""
    with tf.Graph().as_default() as graph:
        counter = v1.get_variable("counter", (), tf.int32, v1.zeros_initializer())
        added = v1.assign_add(counter, 1)
        tf.identity(v1.placeholder(tf.float32, (), name="fed"), name="out")
        v1.global_variables_initializer()
        saver = v1.train.Saver()
    software = v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE)

    def program():
        session.run("init")
        texts = []
        for turn in range(500):
            session.run(added)
            if turn in (300, 400):
                with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                    session.run("out:0")
                texts.append("".join(traceback.format_exception(caught.type, caught.value, caught.tb)))
            if turn == 310:
                session.run(added, None, software)
                session.run(added, options=v1.RunOptions(), run_metadata=v1.RunMetadata())
            if turn == 320:
                with profnb.step("whole"):
                    session.run(added)
            if turn == 330:
                saver.save(session, str(tmp_path / "saved"))
        return session.run(counter), texts

    def captured():
        with profnb.profile(max_steps=3) as p:
            outcome = program()
        steps, gaps = p.recording.steps, p.recording.sessions.gaps
        seen = (outcome, len(steps), list(steps.step_num), list(steps.name), list(steps.kind), steps.names, gaps.gaps)
        return seen, [note for note in p.notes if "session run" in note], list(p.recording.graph_versions)

    with v1.Session(graph=graph) as session:
        plain = program()
        monkeypatch.setattr(gap_watch, "_SHORTEST_PAUSE_NS", 10**15)  # how many gaps are pauses, the clock says
        counting, run_counted = [], SessionRuns.run_counted
        monkeypatch.setattr(SessionRuns, "run_counted", lambda *given: counting.append(given) or run_counted(*given))
        quick = captured()
        assert len(counting) > 200
        assert sum(not end for _, _, end in counting) == 2
        counting.clear()
        monkeypatch.setattr(session_runs.GapWatch, "spans", None)
        assert quick == captured()
        assert counting == []
    assert quick[0][0] == plain
    assert quick[0][1] == 1 + 500 + 3 + 1


def test_each_hook_on_sessions_says_what_it_costs(model):
    before = hooks._replaced[:]
    with profnb.profile(), start(model) as session:
        run_it(session)
        names = {one.name for one in hooks._replaced if one not in before}
    assert {"run", "save", "after_run", "_call_tf_sessionrun"} <= names
    assert names <= {name for seam in SEAMS if seam.cost for name in seam.attributes}


def test_a_run_that_raises_is_no_step_and_later_ones_are(model):
    with start(model) as session, profnb.profile() as p:
        run_it(session)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run("total:0")
        run_it(session, 2)
    assert len(p.steps) == 3
    assert p.step_times.step_num.tolist() == [0, 1, 2]


def test_everything_patched_is_put_back(model):
    before = [vars(c).get("run") for c in v1.Session.__mro__]
    with profnb.profile():
        assert [vars(c).get("run") for c in v1.Session.__mro__] != before
        assert inspect.signature(v1.Session.run) == inspect.signature(next(f for f in before if f))
        with start(model) as session:
            run_it(session)
    assert [vars(c).get("run") for c in v1.Session.__mro__] == before


def test_a_capture_inside_a_capture_times_all_runs_and_traces_its_own(model):
    with start(model) as session, profnb.profile() as outer:
        run_it(session)
        with profnb.profile() as inner:
            run_it(session, 2)
        run_it(session)
    assert len(inner.steps) == 2
    assert len(outer.step_times) == 4


def test_runs_of_other_threads_are_left_alone(model):
    with start(model) as session, profnb.profile() as p:
        run_it(session)
        thread = threading.Thread(target=run_it, args=(session,))
        thread.start()
        thread.join()
    assert len(p.steps) == 1


def test_runs_inside_steps_marked_by_hand_are_traced_and_the_marked_steps_timed(model):
    with start(model) as session, profnb.profile() as p:
        for number in range(3):
            with profnb.step(number):
                run_it(session, 2)
    assert len(p.steps) == 6
    assert p.step_times.phase.tolist() == ["train"] * 3


def test_a_single_run_after_many_other_steps_does_not_displace_them(model):
    @tf.function
    def train_step(x):
        return tf.reduce_sum(x)

    with start(model) as session, profnb.profile() as p:
        for _ in range(5):
            train_step(tf.ones((5, 5)))
        run_it(session)
        for _ in range(5):
            train_step(tf.ones((5, 5)))
    assert p.steps.phase.tolist() == ["train_step"] * 10
    assert set(p.step_times.phase) == {"train_step"}


def test_runs_print_nothing(model, capfd):
    with profnb.profile(), start(model) as session:
        run_it(session, 2)
    out, err = capfd.readouterr()
    assert out == ""
    assert "profiler_session" not in err


@pytest.mark.parametrize(("devices", "level"), [(["CPU"], v1.RunOptions.SOFTWARE_TRACE), (["CPU", "GPU"], FULL), (None, FULL)])
def test_what_a_run_is_asked_to_trace_depends_on_where_it_runs(model, monkeypatch, devices, level):
    """FULL_TRACE starts TensorFlow's profiler, which logs; only that times a device."""

    def list_devices(_):
        if devices is None:
            raise tf.errors.UnavailableError(None, None, "no such process")
        return [SimpleNamespace(device_type=kind) for kind in devices]

    asked = []
    plan = session_runs.GraphRuns.plan
    monkeypatch.setattr(session_runs.GraphRuns, "plan", lambda *arguments: asked.append(plan(*arguments)) or asked[-1])
    monkeypatch.setattr(v1.Session, "list_devices", list_devices)
    with profnb.profile() as p, start(model) as session:
        run_it(session, 2)
    assert [options.trace_level for options, _, _ in asked] == [level] * 3
    assert len(p.steps) == 3


def test_a_run_that_the_code_has_traced_logs_as_without_us(model, capfd):
    def lines(profiled):
        with start(model) as session, profnb.profile() if profiled else nullcontext():
            capfd.readouterr()
            run_it(session, options=v1.RunOptions(trace_level=FULL), run_metadata=v1.RunMetadata())
            return capfd.readouterr().err.count("\n")

    assert lines(True) == lines(False)


def test_what_the_ops_print_still_appears(capfd):
    with tf.Graph().as_default(), v1.Session() as session, profnb.profile():
        session.run(tf.print("hello from the graph"))
    assert "hello from the graph" in capfd.readouterr().err


def test_the_window_of_the_profiler_stays_open_without_runs_to_trace(model):
    with start(model) as session, profnb.profile() as p:
        run_it(session, 3, options=v1.RunOptions(timeout_in_ms=60_000))
    assert p.recording.closed_by is None
    assert p.recording.graph_runs == []
    assert p.step_times.was_traced.all()
    assert p.steps.phase.tolist() == ["SessionRun"] * 3


# The wrapper around whose calls our hooks run.


class Doubled:
    def __init__(self, instance, feed_dict, options, metadata):
        self.instance, self.arguments = instance, (feed_dict * 2, options or "o", metadata)

    def __enter__(self):
        self.instance.log.append("enter")
        return self.arguments

    def __exit__(self, kind, *_):
        self.instance.log.append(kind)


NOT_COUNTED = SimpleNamespace(counts_only=False, around=Doubled)


class Subject:
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Docs."""
        if feed_dict > 10:
            raise ValueError(feed_dict)
        return fetches + feed_dict, options, run_metadata

    def __init__(self):
        self.log = []


def test_the_wrapper_sees_and_replaces_arguments_and_is_told_of_errors():
    wrapped, subject = session_runs._wrap_run(Subject.run, NOT_COUNTED), Subject()
    assert wrapped(subject, 1, 3) == (7, "o", None)
    assert wrapped(subject, fetches=1, feed_dict=1, run_metadata=2) == (3, "o", 2)
    with pytest.raises(ValueError, match="12") as caught:
        wrapped(subject, 1, feed_dict=6)
    ours = [entry for entry in caught.traceback if "/profnb/tf1/" in str(entry.path).replace("\\", "/")]
    assert ours == []
    assert subject.log == ["enter", None, "enter", None, "enter", ValueError]
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == ("run", "Docs.", __name__)
    assert wrapped.__qualname__ == "Subject.run"


def test_what_takes_no_options_is_not_wrapped():
    assert session_runs._wrap_run(lambda self, fetches, feed_dict=None: None, NOT_COUNTED) is None
    assert session_runs._wrap_run(None, NOT_COUNTED) is None


def wrapped_by(monkeypatch, make):
    """Somebody's wrapper in the place of ``Session.run``."""
    owner = next(base for base in v1.Session.__mro__ if "run" in vars(base))
    monkeypatch.setattr(owner, "run", make(vars(owner)["run"]))
    return owner


def test_session_runs_that_somebody_wrapped_are_bounded_and_traced(model, monkeypatch):
    calls = []

    def make(run):
        def counting(self, *arguments, **keywords):
            calls.append(len(arguments))
            return run(self, *arguments, **keywords)

        return counting

    owner = wrapped_by(monkeypatch, make)
    theirs = vars(owner)["run"]
    with profnb.profile(max_steps=3) as p, start(model) as session:
        assert run_it(session, 6) == [1e9] * 6
        session.run("total:0", {"x:0": X}, None, None)
    assert vars(owner)["run"] is theirs
    assert len(calls) == 8
    assert len(p.recording.graph_runs) == 3
    assert p.step_times.was_traced.tolist() == [True] * 3 + [False] * 5


def test_errors_pass_a_wrapped_run_without_an_entry_of_ours(model, monkeypatch):
    wrapped_by(monkeypatch, lambda run: lambda self, *arguments, **keywords: run(self, *arguments, **keywords))
    with profnb.profile(), start(model) as session:
        with pytest.raises(Exception, match="nowhere") as caught:
            session.run("nowhere:0")
    ours = [entry for entry in caught.traceback if "/profnb/tf1/" in str(entry.path).replace("\\", "/")]
    assert ours == []


def test_a_wrapper_that_takes_no_options_is_left_alone_and_said(model, monkeypatch):
    wrapped_by(monkeypatch, lambda run: lambda self, fetches, feed_dict=None: run(self, fetches, feed_dict))
    with profnb.profile(max_steps=2) as p, start(model) as session:
        assert run_it(session, 4) == [1e9] * 4
    assert p.recording.graph_runs == []
    assert any("Other code replaced Session.run and takes no options" in note for note in p.notes)


def test_session_runs_are_kept_in_a_logdir(model, tmp_path):
    """The profiler's own trace has nothing of them; what is opened again is what was captured."""
    with profnb.profile(logdir=tmp_path) as p, start(model) as session:
        run_it(session, 6)
    [kept] = tmp_path.glob("plugins/profile/*/*.run_metadata.pb.gz")
    assert p.recording.path == kept and not list(tmp_path.rglob("*.xplane.pb"))
    again = profnb.load(tmp_path)
    assert len(p.memory)
    for table in ("steps", "ops", "memory", "memory_peak", "source_lines", "events", "devices", "step_times"):
        pd.testing.assert_frame_equal(getattr(again, table), getattr(p, table))
    assert again.source_lines.line.tolist() == p.source_lines.line.tolist()
    assert [one.rule for one in again.advice] == [one.rule for one in p.advice]
    node = next(i for i in range(len(p.trace.events)) if "memory" in p.trace.stats.of_event(i))
    assert again.trace.stats.of_event(node) == p.trace.stats.of_event(node)
    assert [note for note in again.notes if "records beside" in note] == []


def test_session_runs_are_saved_when_asked_for(model, tmp_path):
    with profnb.profile() as p, start(model) as session:
        run_it(session, 6)
    path = p.save(tmp_path / "logs")
    assert path.name.endswith(".run_metadata.pb.gz") and path.parents[2] == tmp_path / "logs" / "plugins"
    again = profnb.load(tmp_path / "logs")
    for table in ("steps", "ops", "memory", "source_lines", "events", "step_times", "cell_breakdown"):
        pd.testing.assert_frame_equal(getattr(again, table), getattr(p, table))
    assert again.notes == p.notes


def test_session_runs_that_cannot_be_written_leave_no_run_behind(model, tmp_path, monkeypatch):
    with profnb.profile() as p, start(model) as session:
        run_it(session, 6)
    monkeypatch.setattr("profnb.tf1.run_metadata._MOST_RUNS_READ", 2)
    with pytest.raises(profnb.TraceFormatError, match="session runs in one file"):
        p.save(tmp_path)
    assert list(tmp_path.rglob("*.gz")) == [] and list((tmp_path / "plugins" / "profile").iterdir()) == []


def test_what_stands_beside_other_session_runs_is_not_told_of_them(model, tmp_path):
    with profnb.profile(logdir=tmp_path) as p, start(model) as session:
        run_it(session, 6)
    kept, runs = p.recording.path, [np.frombuffer(run, np.uint8) for run in p.recording.graph_runs]
    kept.write_bytes(gzip.compress(b"".join(join_run_metadata(runs[:4]))))
    cut = profnb.load(kept)
    assert [note for note in cut.notes if "The file holds 3 of " in note]
    told = told_beside(kept)
    told["runs"][0]["sessions"]["epoch_ns"] -= 7_200 * 10**9  # it saw the runs of two hours before
    tell_beside(kept, told)
    other = profnb.load(kept)
    assert any("come from another capture and are left out" in note for note in other.notes)
    assert len(other.steps) == len(cut.steps) and other.source_lines.empty and not cut.source_lines.empty


def test_a_cluster_of_a_worker_and_a_parameter_server_is_told_apart(tmp_path):
    """Both servers in this process, over the loopback: the worker's cell has what ran on either, and what was sent."""
    servers = {job: v1.train.Server.create_local_server() for job in ("ps", "worker")}  # each of a port of its own choice
    cluster = v1.train.ClusterSpec({job: [server.target.removeprefix("grpc://")] for job, server in servers.items()})
    settings = v1.ConfigProto(cluster_def=cluster.as_cluster_def())
    target, hooks = servers["worker"].target, [v1.train.StopAtStepHook(6)]
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            weights = v1.get_variable("w", (200, 200), initializer=v1.ones_initializer(), use_resource=False)
        with tf.device("/job:worker/task:0"):
            count = v1.train.get_or_create_global_step()
            train = v1.group(v1.assign_add(count, 1), v1.assign_add(weights, tf.matmul(weights, weights, name="product")))
        with profnb.profile(logdir=tmp_path, max_seconds=300) as p, v1.train.MonitoredTrainingSession(target, config=settings, hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
    for one in (p, profnb.load(tmp_path)):
        planes = {plane.name for plane in one.trace.planes}
        assert {f"/job:{job}/replica:0/task:0/device:CPU:0" for job in servers} < planes
        assert one.steps.phase.tolist().count("session_run") >= 4  # of six, the first of which TensorFlow cuts otherwise
        assert "RecvTensor" in one.ops.op_type.tolist() and "product" in one.ops.op_name.tolist()
        assert one.steps[one.steps.phase == "session_run"].device_to_device_ms.sum() > 0


SESSION, EAGER = "def train(v1):\n    return v1.Session()\n", "def train(x):\n    return x.numpy()\n"


@pytest.mark.parametrize(
    ("helper", "main", "is_so"),
    [
        (SESSION, "import helper_of_sessions\nask()", True),
        (SESSION, "from helper_of_sessions import train\nask()", True),
        (f"import tensorflow\n{EAGER}v1 = tensorflow.compat.v1", "from helper_of_sessions import train\nask()", True),
        ("class Runner:\n    def run(self, v1):\n        return v1.Session()\n", "from helper_of_sessions import Runner\nask()", True),
        (EAGER, "def own():\n    return tensorflow.compat.v1.Session()\nask()", True),
        (EAGER, "def own():\n    ask()\nown()", False),
        (EAGER, "import helper_of_sessions\nfrom helper_of_sessions import train\nask()", False),
        (SESSION, "import json\nask()", False),  # nothing leads there
    ],
)
def test_code_that_leads_to_sessions_is_seen_before_it_runs(tmp_path, monkeypatch, helper, main, is_so):
    """The user's files are those of a folder of the test's, so that this file is none of them."""
    (tmp_path / "helper_of_sessions.py").write_text(helper)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "helper_of_sessions", raising=False)
    answers = []
    library = Library(tf, pytest.fail)
    names = {"ask": lambda: answers.append(user_code.uses_sessions(library))}
    program = compile(main, str(tmp_path / "main.py"), "exec")
    monkeypatch.setattr(user_code, "is_user_file", lambda file: file.startswith(str(tmp_path)))
    exec(program, names)
    sys.modules.pop("helper_of_sessions", None)
    assert answers == [is_so]
