"""``slow-rnn``: recurrent layers that an argument keeps from cuDNN, on GPUs by hand; what forbids it, in real Keras."""

from dataclasses import replace

import pytest
from test_advice import MS, T4, US, steps_of
from test_layer_times import layer, model
from advised import advised
from traces import event, gpu, host, line, read

from profnb.capture.models.layer_facts import describe_model
from profnb.capture.recording import Recording
from profnb.advice.cell_model import Model
from profnb.causes.cell_tree import grow_tree
from profnb.advice.rules.op_rules import slow_rnn
from profnb.subjects.study import Study

BODY = "sequential/lstm/while/body/_9/sequential/lstm/while/lstm_cell"
FORBIDDEN = {"without_cudnn": "recurrent_dropout=0.1"}


def models(kind="LSTM", **numbers):
    return (model(layer("sequential", "Sequential", -1), layer("sequential/lstm", kind, numbers=numbers), layer("sequential/dense")),)


def study_of(facts, op=f"{BODY}/MatMul:MatMul", count=90, stats=T4, is_on_device=True, took_us=40):
    """Ten steps of 10 ms; an op and its kernel every 100 us, and one large product of another layer."""
    launches, kernels = [], []
    for at in range(0, 100 * MS, 10 * MS):
        for number in range(count):
            begin = at + MS // 10 + number * 100 * US
            launches.append(event(op, begin, took_us * US))
            kernels.append(event("volta_sgemm", begin + 10 * US, (took_us - 10) * US, tf_op=op))
        kernels.append(event("volta_h884gemm", at + 9_500 * US, 300 * US, tf_op="sequential/dense/MatMul:MatMul"))
    planes = [gpu(line("Stream #1", *kernels), stats=stats)] if is_on_device else []
    recording = Recording(models=facts)
    return Study(read(host(line("python", *steps_of()), line("tf_Compute", *launches, line_id=2)), *planes), 0, recording)


def test_an_lstm_whose_recurrent_dropout_forbids_cudnn():
    found = advised(study_of(models(**FORBIDDEN)))["slow-rnn"]
    assert "Keras runs `sequential/lstm` time step by time step: 180 ops and kernels a step, " in found.evidence
    assert "but not with recurrent_dropout=0.1." in found.evidence
    # Of 90 ops of 40 us a call of 20 us remains at least; at most their kernels of 30 us, and 500 us.
    assert found.saves_ms == (pytest.approx(10 * (0.9 - 0.5), abs=0.1), pytest.approx(10 * (3.6 - 0.02), abs=0.5))
    assert "recurrent_dropout=0 (dropout=... is allowed)" in found.code
    assert "reset_after" not in found.code


def test_several_arguments_and_a_cell():
    said = advised(study_of(models(without_cudnn="activation='relu', unroll=True")))["slow-rnn"]
    assert "activation='tanh', unroll=False." in said.code
    said = advised(study_of(models("RNN", without_cudnn="RNN(GRUCell)")))["slow-rnn"]
    assert said.code.startswith("keras.layers.GRU(...) instead of RNN(GRUCell).")


@pytest.mark.parametrize("study", [
    study_of(models(**FORBIDDEN), is_on_device=False),
    study_of(models(**FORBIDDEN), stats={**T4, "device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4}),
    study_of(models()),
    study_of(()),
    study_of(models(**FORBIDDEN), op="sequential/lstm/CudnnRNNV3:CudnnRNNV3", count=2),
    study_of(models(**FORBIDDEN), op="sequential/dense/MatMul:MatMul"),
    study_of(models(**FORBIDDEN), took_us=20, count=20),
    study_of(models("MyLSTM")),
], ids=["a CPU", "AMD", "cuDNN allowed", "no model known", "cuDNN ran it", "another layer's ops", "few ops", "a layer of the user's"])  # fmt: skip
def test_where_nothing_is_said(study):
    assert "slow-rnn" not in advised(study)


def test_without_steps_nothing_is_said():
    study = study_of(models(**FORBIDDEN))
    tree = grow_tree(None, study)
    assert list(slow_rnn(Model(tree, study)))
    study.steps = replace(study.steps, phase=("window",))
    assert not list(slow_rnn(Model(tree, study)))


@pytest.fixture(scope="module")
def keras():
    pytest.importorskip("tensorflow")
    return pytest.importorskip("keras")


@pytest.mark.tensorflow
def test_what_forbids_cudnn_is_read_from_real_layers(keras):
    layers = keras.layers
    given = {
        "plain": layers.LSTM(4), "dropout": layers.LSTM(4, dropout=0.2), "wet": layers.GRU(4, recurrent_dropout=0.25),
        "relu": layers.LSTM(4, activation="relu"), "hard": layers.GRU(4, recurrent_activation="hard_sigmoid"),
        "unrolled": layers.LSTM(4, unroll=True), "unbiased": layers.LSTM(4, use_bias=False), "before": layers.GRU(4, reset_after=False),
        "cell": layers.RNN(layers.LSTMCell(4)), "simple": layers.SimpleRNN(4), "both": layers.Bidirectional(layers.GRU(4, unroll=True, use_bias=False)),
    }  # fmt: skip
    told = {}
    for name, made in given.items():
        facts = describe_model(keras.Sequential([keras.layers.Input((3, 2)), made]))
        told[name] = [one.numbers["without_cudnn"] for one in facts.layers if "without_cudnn" in one.numbers]
    assert told == {
        "plain": [], "dropout": [], "wet": ["recurrent_dropout=0.25"], "relu": ["activation='relu'"],
        "hard": ["recurrent_activation='hard_sigmoid'"], "unrolled": ["unroll=True"], "unbiased": ["use_bias=False"],
        "before": ["reset_after=False"], "cell": ["RNN(LSTMCell)"], "simple": [], "both": ["unroll=True, use_bias=False"] * 2,
    }  # fmt: skip
