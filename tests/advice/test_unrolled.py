"""Loops of Python's that tracing wrote out: turns that need nothing of each other, and what looks like them."""

from dataclasses import replace
from itertools import cycle

import pytest
from advised import alone, proposed
from traces import event, host, line, read

from profnb.capture.recording import Recording
from profnb.capture.source.source_records import CAPTURED, GraphLines, GraphShapes, SourceRecords
from profnb.causes.unrolled import Recurrence, _turns, find_recurrence, find_unrolled
from profnb.subjects.study import Study

MS = 10**9
TURNS = 20


class Graph:
    """A graph that is written op by op; every op makes one tensor, of the same shape."""

    def __init__(self, scope=""):
        self.kinds, self.taken, self.held, self.scopes, self.scope, self.outputs = [], [], {}, [], scope, {}

    def add(self, kind, *taken):
        self.kinds.append(kind)
        self.scopes.append(self.scope)
        self.taken.append(taken)
        return len(self.kinds) - 1

    def variable(self):
        self.held[len(self.kinds)] = CAPTURED
        return self.add("ReadVariableOp", self.add("Placeholder"))

    def shapes(self):
        many = len(self.kinds)
        names = tuple(f"{scope}{kind}_{at}" for at, (kind, scope) in enumerate(zip(self.kinds, self.scopes, strict=True)))
        outputs = tuple(self.outputs.get(at, 1) for at in range(many))
        return GraphShapes(names, tuple(self.kinds), tuple(self.taken), outputs, ((4,),) * sum(outputs), ("float32",) * sum(outputs), self.held)


def study_of(graph, long_ms=0):
    """Steps of 1 ms, all of it ops of the graph, which are short, or that and one that takes so long."""
    ran, shapes = [], graph.shapes()
    short = cycle([f"{name}:{kind}" for name, kind in zip(shapes.op_names, shapes.op_types, strict=True) if kind != "Const"])
    for at in range(40 if long_ms else 8):
        ran.append(event("train", 2 * at * MS, MS, step_num=at, _r=1))
        ran += [event(next(short), 2 * at * MS + piece * MS // 40, MS // 41) for piece in range(40 - int(40 * long_ms))]
        ran += [event("b/MatMul:MatMul", int((2 * at + 1 - long_ms) * MS), int(long_ms * MS))] if long_ms else []
    lines = GraphLines("f", shapes.op_names, shapes.op_types, (0,) * len(shapes.op_names), (False,) * len(shapes.op_names), {})
    source = SourceRecords(places=[("/home/me/loss.py", 7)], graphs=(lines,), shapes=(shapes,))
    return Study(read(host(line("python", *ran))), 0, Recording(source=source))


def a_loss(graph, data):
    """Each turn looks at one row, and adds to a sum, as losses of one's own do."""
    whole = graph.add("Const")
    for _ in range(TURNS):
        row = graph.add("StridedSlice", data, graph.add("Const"))
        whole = graph.add("AddV2", whole, graph.add("Abs", graph.add("Sub", row, data)))


def test_turns_that_need_nothing_of_each_other_are_a_loop_with_its_line():
    """Of four ops of each turn the sums alone need each other; 80 of 101 ops are its, with the constants that only it needs."""
    graph = Graph()
    a_loss(graph, graph.add("Placeholder"))
    study = study_of(graph)
    loop = find_unrolled(study)
    assert (loop.turns, loop.traced, loop.line) == (TURNS, 80 / 101, "me/loss.py:7")
    assert loop.share == pytest.approx(0.75, abs=0.05)
    low, high = alone(study)["loop-of-ops"]
    assert 0.2 < low < 0.25 and 0.33 < high < 0.4  # the steps are half of the time


def test_metrics_that_each_count_for_themselves_are_turns():
    graph = Graph()
    data = graph.add("Placeholder")
    for _ in range(TURNS):
        graph.add("AssignAddVariableOp", graph.variable(), graph.add("Sum", graph.add("StridedSlice", data, graph.add("Const"))))
    loop = find_unrolled(study_of(graph))
    assert (loop.turns, loop.traced) == (TURNS, 1)


def a_recurrence(graph, data):
    state = graph.add("Const")
    weights = graph.variable()
    for _ in range(TURNS):
        state = graph.add("Tanh", graph.add("AddV2", graph.add("MatMul", state, weights), data))


def layers_in_a_chain(graph, data):
    for _ in range(TURNS):
        data = graph.add("Relu", graph.add("MatMul", data, graph.variable()))


def layers_on_arguments_of_their_own(graph, _):
    for _ in range(TURNS):
        graph.add("Sub", graph.add("Placeholder"), graph.variable())


def a_few_columns(graph, data):
    for _ in range(8):
        graph.add("Abs", graph.add("StridedSlice", data, graph.add("Const")))


def an_optimizer(graph, data):
    """The same for each layer's variable, and the rate worked out anew for each."""
    count = graph.variable()
    for _ in range(TURNS):
        data = graph.add("MatMul", data, graph.variable())
        rate = graph.add("Pow", graph.add("Const"), count)
        graph.add("AssignSubVariableOp", graph.variable(), graph.add("Mul", rate, data))


def a_mask_worked_out_for_each_layer(graph, data):
    """All of one tensor and one number: TensorFlow does it once."""
    for _ in range(TURNS):
        mask = graph.add("Cast", data)
        data_of = graph.add("MatMul", graph.add("Placeholder"), graph.variable())
        graph.add("AddV2", data_of, mask)


def gradients_handed_on_together(graph, data):
    """Those of layers in a chain pass one op, as Keras' optimizers let them, and update variables of one shape."""
    layer = data
    layers = [layer := graph.add("Tanh", layer) for _ in range(TURNS)]
    graph.add("IdentityN", *layers)
    graph.outputs[len(graph.kinds) - 1] = TURNS
    first = sum(graph.outputs.get(at, 1) for at in range(len(graph.kinds) - 1))
    for at in range(TURNS):
        graph.kinds.append("Square")
        graph.scopes.append("")
        graph.taken.append((first + at,))


@pytest.mark.parametrize("made", [gradients_handed_on_together, a_mask_worked_out_for_each_layer, a_recurrence, layers_in_a_chain, layers_on_arguments_of_their_own, a_few_columns, an_optimizer])
def test_what_only_looks_like_such_a_loop_is_none(made):
    graph = Graph()
    made(graph, graph.add("Placeholder"))
    assert find_unrolled(study_of(graph)) is None


def test_features_that_an_iterator_gives_are_other_data_each():
    kinds = ("IteratorGetNext", *["ExpandDims"] * TURNS)
    taken = ((), *((at,) for at in range(TURNS)))
    names = tuple(f"op_{at}" for at in range(TURNS + 1))
    many = 2 * TURNS
    shapes = GraphShapes(names, kinds, taken, (TURNS, *[1] * TURNS), ((4,),) * many, ("float32",) * many, {})
    assert _turns(shapes) == {}
    assert len(_turns(replace(shapes, op_types=("Unpack", *kinds[1:])))) == TURNS


def test_beside_ops_that_compute_for_long_its_ops_take_little():
    graph = Graph()
    a_loss(graph, graph.add("Placeholder"))
    assert alone(study_of(graph, long_ms=0.98))["loop-of-ops"][1] < 0.05


def test_inputs_that_are_not_known_are_no_data():
    graph = Graph()
    a_loss(graph, -1)
    assert find_unrolled(study_of(graph)) is None


def a_cell_of_a_layer(graph, data, turns=TURNS):
    """Each turn reads the layer's weights and needs the turn before; its gradients are in the layer's scope below another."""
    weights, state = graph.add("Placeholder"), data
    for _ in range(turns):
        graph.scope = "net/gru/"
        state = graph.add("Tanh", graph.add("MatMul", state, graph.add("ReadVariableOp", weights)))
        graph.scope = "gradient_tape/net/gru/"
        graph.add("TanhGrad", state)
    graph.scope = ""


def test_a_recurrence_that_was_written_out_is_known_by_the_weights_that_each_turn_reads():
    """Four of each turn, of 80 ops and 20 more: the data, the weights, and 18 of a loss."""
    graph = Graph()
    a_cell_of_a_layer(graph, graph.add("Placeholder"))
    for _ in range(18):
        graph.add("Const")
    found = find_recurrence(study_of(graph))
    assert found == Recurrence(TURNS, 0.8, ("net/gru",))


def a_few_turns(graph, data):
    a_cell_of_a_layer(graph, data, 5)


@pytest.mark.parametrize("made", [a_loss, layers_in_a_chain, an_optimizer, a_few_turns, a_mask_worked_out_for_each_layer])
def test_what_reads_each_of_its_weights_once_or_seldom_is_no_recurrence(made):
    graph = Graph()
    made(graph, graph.add("Placeholder"))
    assert find_recurrence(study_of(graph)) is None


def test_graphs_of_which_little_runs_are_of_other_models():
    graph, other = Graph(), Graph()
    a_cell_of_a_layer(graph, graph.add("Placeholder"))
    a_loss(graph, 0)
    for _ in range(9):
        other.add("Exp", other.add("Placeholder"))
    study, ran = study_of(graph), study_of(other).trace
    assert None not in (find_recurrence(study), find_unrolled(study))
    beside = Study(ran, 0, study.recording)
    assert find_recurrence(beside) is None
    assert find_unrolled(beside) is None


def test_a_single_number_that_each_update_reads_is_no_weight_of_a_turn():
    graph = Graph()
    a_cell_of_a_layer(graph, graph.add("Placeholder"))
    study = study_of(graph)
    numbers = replace(study.recording.source.shapes[0], shapes=((),) * len(graph.kinds))
    source = replace(study.recording.source, shapes=(numbers,))
    assert find_recurrence(Study(study.trace, 0, Recording(source=source))) is None


@pytest.mark.tensorflow
@pytest.mark.parametrize(("unroll", "is_told"), [(True, True), (False, False)])
def test_a_layer_of_keras_is_told_where_it_is_unrolled(unroll, is_told):
    import keras
    import numpy as np

    import profnb

    model = keras.Sequential([keras.Input((12, 3)), keras.layers.SimpleRNN(4, unroll=unroll), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with profnb.profile() as p:
        model.fit(np.ones((24, 12, 3)), np.ones((24, 1)), batch_size=8, verbose=0)
    said = proposed(p.study)
    assert ("written-out" in said) is is_told
    if is_told:
        assert "all 12 turns of a loop in `simple_rnn" in said["written-out"].evidence
        assert said["written-out"].edits[0].once_ps[1] > 0
