"""Graphs that are older than a capture: read once, with the lines and shapes that a first reading gave, as long as they live."""

import gc
import subprocess
import sys

import pytest

import profnb
from profnb.capture.source import graph_lines
from profnb.capture.source.graph_lines import GraphWatch
from profnb.capture.source.graph_lines import Reading
from profnb.capture.source.layer_lines import of_types
from profnb.capture.source.user_code import LineTable

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow


def read_graphs(name):
    """What a capture that begins now reads of the living graphs of a name: lines, shapes, the lines' places."""
    watch = GraphWatch(places := LineTable())
    watch.shapes.clear()
    found = [lines for lines in watch.finish() if lines.name == name]
    return [(own.op_names, own.op_types, [[*places][row] if row >= 0 else None for row in own.places], own.is_outside) for own in found], watch.shapes


def traced(name):
    def function(x):
        y = tf.matmul(x, x)
        return tf.nn.relu(y)

    function.__name__ = name
    return tf.function(function).get_concrete_function(tf.TensorSpec((4, 4)))


@pytest.fixture
def readings(monkeypatch):
    """Names of the graphs whose ops were read one by one."""
    read, names = Reading.read, []

    def counted(reading, graph, most):
        names.append(graph.name)
        return read(reading, graph, most)

    monkeypatch.setattr(Reading, "read", counted)
    return names


def test_the_next_capture_is_given_the_same_without_reading_it(readings):
    kept = traced("read_once")
    first, shapes = read_graphs("read_once")
    again, later_shapes = read_graphs("read_once")
    assert readings.count("read_once") == 1
    assert again == first
    ((names, _, places, _),) = first
    assert "MatMul" in names
    assert len({place for place in places if place and place[0] == __file__}) >= 2  # the line of each op
    own = [shape for shape in shapes if "MatMul" in shape.op_names and "Relu" in shape.op_names]
    assert own
    assert all(shape in later_shapes for shape in own)
    assert kept.graph in graph_lines._read_before


def test_a_graph_to_which_an_op_is_added_is_read_anew(readings):
    kept = traced("grows")
    read_graphs("grows")
    with kept.graph.as_default():
        tf.exp(kept.graph.inputs[0])
    ((names, *_),), _ = read_graphs("grows")
    assert "Exp" in names
    assert readings.count("grows") == 2


def test_a_graph_is_not_kept_alive_by_what_was_read_of_it():
    kept = traced("dies")
    read_graphs("dies")
    assert "dies" in {graph.name for graph in graph_lines._read_before}
    del kept
    gc.collect()
    assert "dies" not in {graph.name for graph in graph_lines._read_before}
    assert read_graphs("dies")[0] == []


def test_what_was_cut_short_is_not_kept(monkeypatch, readings):
    kept = traced("is_long")
    gc.collect()
    monkeypatch.setattr(graph_lines, "_MOST_OPS_READ", 1)
    read_graphs("is_long")
    monkeypatch.undo()
    ((names, *_),), _ = read_graphs("is_long")
    assert {"MatMul", "Relu"} <= set(names)
    assert kept.graph in graph_lines._read_before


def test_types_are_asked_once_and_may_forbid_to_be_hashed():
    class Kind(type):
        __hash__ = None

        def __eq__(cls, other):
            return cls is other

    class Odd(metaclass=Kind):
        pass

    class Own:
        pass

    class Heir(Own):
        pass

    things = [Odd(), Own(), 1, Heir(), Odd(), "a", Own]
    assert of_types(things, (Own,)) == [things[1], things[3]]
    assert of_types(things, (Odd,)) == [things[0], things[4]]


def test_a_function_written_anew_has_the_lines_of_the_new_one_though_the_old_one_dies_meanwhile():
    """As where a cell is edited and run again: what it defined before goes when the collector comes."""

    def make(kind):
        if kind == "old":
            @tf.function
            def step(x):
                return tf.reduce_sum(tf.matmul(x, x))
        else:
            @tf.function
            def step(x):
                return tf.reduce_sum(tf.matmul(x, x)) + 1.0
        step(tf.ones((9, 9)))
        return step

    gc.collect()
    gc.disable()  # the old one, which is a circle, lives until the capture
    try:
        make("old")
        step = make("new")
        with profnb.profile() as p:
            gc.collect()
            for _ in range(6):
                step(tf.ones((9, 9)))
    finally:
        gc.enable()
    (graph,) = [graph for graph in p.recording.source.graphs if graph.name == "step"]  # the old one is gone as graphs are read
    assert "AddV2" in graph.op_types
    first = make.__code__.co_firstlineno
    lines = {int(line) - first: count for file, line, count in zip(p.source_lines.file, p.source_lines.line, p.source_lines.op_occurrences, strict=True) if file.endswith("older_graphs.py")}
    assert lines.get(8) and 4 not in lines


def test_a_capture_may_begin_while_another_thread_collects_graphs():
    """Those are in pieces when they come to the capture's eyes; to ask such a graph for its ops ends the process, so it is a fresh one."""
    code = """if True:
        import gc, threading
        import tensorflow as tf, profnb

        began, captured = threading.Event(), threading.Event()

        class Slow:
            def __del__(self):
                began.set()
                captured.wait(60)

        def leave():
            @tf.function
            def step(x):
                return tf.cond(tf.reduce_sum(x) > 0, lambda: x @ x, lambda: x)
            step(tf.ones((3, 3)))
            slow = Slow()
            slow.itself = slow

        with profnb.profile():
            tf.ones(3)
        gc.collect()
        gc.disable()
        for _ in range(5):
            leave()
        collecting = threading.Thread(target=gc.collect)
        collecting.start()
        began.wait(60)
        with profnb.profile() as p:
            captured.set()
            collecting.join()
            tf.ones(3)
        print(p.has_trace)
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr[-1500:]
