"""Loops of a LiteRT interpreter: each run is a step, copies are parts of the cell, and nothing is left behind."""

import re
import subprocess
import sys
import textwrap

import pytest

from profnb.capture.seams import INTERPRETERS, INVOKES

pytest.importorskip("ai_edge_litert")
pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One dense layer of 4 to 2 numbers, as a file."""
    path = tmp_path_factory.mktemp("lite") / "dense.tflite"
    code = f"""
        import tensorflow as tf
        dense = tf.function(lambda x: tf.matmul(x, tf.ones((4, 2))), input_signature=[tf.TensorSpec((1, 4))])
        converter = tf.lite.TFLiteConverter.from_concrete_functions([dense.get_concrete_function()])
        open({str(path)!r}, "wb").write(converter.convert())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def ran(model):
    """What a process says that captured loops: without TensorFlow, of a run that raises, of a signature, inside a marked step."""
    code = f"""
        import numpy as np, profnb
        from ai_edge_litert.interpreter import Interpreter
        before = Interpreter.invoke
        with profnb.profile() as p:
            it = Interpreter({str(model)!r}); it.allocate_tensors()
            for _ in range(12):
                it.set_tensor(it.get_input_details()[0]["index"], np.ones((1, 4), np.float32))
                it.invoke()
                value = it.get_tensor(it.get_output_details()[0]["index"])
        print(value.tolist(), Interpreter.invoke is before)
        print(p.step_times.phase.tolist() == ["invoke"] * 12, p.step_times.step_num.tolist() == list(range(12)))
        tree = p.cell_tree
        print(tree[tree.name == "invoke"].occurrences.tolist())
        print(p.summary())
        with profnb.profile() as q:
            raw = Interpreter({str(model)!r})
            for _ in range(3):
                try: raw.invoke()
                except (RuntimeError, ValueError) as error: kind = type(error).__name__
        print(kind, len(q.recording.steps), q.recording.messages)
        with profnb.profile() as s:
            run = it.get_signature_runner() if it.get_signature_list() else None
            for _ in range(4): it.invoke()
        print(len(s.recording.steps))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    return done.stdout


def test_each_run_of_an_interpreter_is_a_step_and_the_hook_is_gone_behind_it(ran):
    lines = ran.splitlines()
    assert lines[0] == "[[4.0, 4.0]] True"
    assert lines[1] == "True True"
    assert lines[2] == "[12.0]"
    assert re.search(r"12 invoke steps, median|11 invoke steps, median [^(\n]*\(one step of ", ran)
    assert "`%tflite MODEL.tflite` tells the time of each op." in ran
    assert "nothing was captured" not in ran


def test_a_run_that_raises_is_no_step(ran):
    assert [line for line in ran.splitlines() if line.startswith(("RuntimeError 0 []", "ValueError 0 []"))]


def test_a_run_inside_of_a_marked_step_is_part_of_it():
    from profnb.capture.marking.step_recorder import StepRecorder

    recorder = StepRecorder(lambda: False, lambda _: None, lambda: None)
    recorder.iterations.begin(None)
    recorder.invokes.begin(None)
    recorder.invokes.end()
    recorder.iterations.end()
    recorder.invokes.begin(None)
    recorder.invokes.end()
    assert [recorder.log.records().names[name] for name in recorder.log.records().name] == ["train", "invoke"]


def test_two_names_of_two_packages_are_hooked():
    assert len(INTERPRETERS) == 3
    assert [seam.path for seam in INVOKES[:4]] == [f"{module}:{name}" for module in [*INTERPRETERS][:2] for name in ("Interpreter.invoke", "SignatureRunner.__call__")]


def test_each_run_of_an_onnx_session_is_a_step(tmp_path):
    """An addition of two numbers, ten times; with its own profile, which has the nodes."""
    pytest.importorskip("onnxruntime")
    helper = pytest.importorskip("onnx.helper")
    x, y = (helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"], "twice")], "g", [x], [y])
    model = tmp_path / "twice.onnx"
    model.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    code = f"""
        import numpy as np, onnxruntime, profnb
        options = onnxruntime.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, {str(tmp_path / "own")!r}
        session = onnxruntime.InferenceSession({str(model)!r}, options)
        before = type(session).run
        with profnb.profile() as p:
            for _ in range(10):
                value = session.run(None, {{"x": np.ones(2, np.float32)}})
        print(value[0].tolist(), type(session).run is before, p.step_times.phase.tolist() == ["invoke"] * 10)
        print(*p.notes)
        q = profnb.load(session.end_profiling())
        print(len(q.steps), set(q.steps.phase), q.ops[["op_name", "op_type", "occurrences"]].to_numpy().tolist())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "[2.0, 2.0] True True"
    assert "open the file that `SessionOptions.enable_profiling` writes" in lines[1]
    assert lines[2] == "10 {'model_run'} [['twice', 'Add', 10]]"
