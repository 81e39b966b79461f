"""Ops to layers: which row and phase each op's time goes to, and what layers compute."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import every_shared_trace
from programs import F32, dot, metadata_plane, op, parameter, program, shape
from traces import event, gpu, host, line, read, ref

import profnb
from profnb.subjects.layers.flops import backward_factor, forward_flops
from profnb.subjects.layers.section import grow_layer_tree
from profnb.subjects.layers.name_scopes import layer_scope, parse_scope
from profnb.subjects.study import Study
from profnb.capture.models.op_order import BACKWARD, METRICS, UPDATE, OpFact, describe_ops
from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.recording import Recording
from profnb.subjects.layers.layer_rows import LAYER_PARTS, OTHERS, LayerRows
from profnb.subjects.layers.layer_table import LAYERS
from profnb.subjects.ops.op_table import OPS as OP_TABLE
from profnb.report.build import build_report

US = 1_000_000


# Names.


@pytest.mark.parametrize(("name", "path", "is_backward"), [
    ("StatefulPartitionedCall/sequential_1/dense_1/Relu", "sequential_1/dense_1", False),
    ("gradient_tape/model/dense/MatMul/MatMul_1", "model/dense", True),
    ("StatefulPartitionedCall/gradient_tape/sequential_1/bn_1/moments/Tile", "sequential_1/bn_1", True),
    ("gradients/model/dense/MatMul_grad/MatMul", "model/dense", True),
    ("model/lstm/while/body/_12/model/lstm/while/lstm_cell/MatMul", "model/lstm/model/lstm/lstm_cell", False),
    ("replica_3/bert/encoder/layer_7/attention/einsum/Einsum/Cast", "bert/encoder/layer_7/attention", False),
    ("model/dense/Tensordot/MatMul", "model/dense", False),
    ("model/dropout_6/dropout/Mul_1", "model/dropout_6", False),
    ("Encoder/block/MatMul", "Encoder/block", False),
    ("ConstantFolding/model/dense/ReadVariableOp", "model/dense", False),
    ("jit(step)/transpose(jvp(Net))/Dense_0/dot_general", "Net/Dense_0", True),
    ("jit(step)/transpose(jvp(Net))/Dense_0/mul;jit(step)/add", "Net/Dense_0", True),
    ("jit(step)/mul;jit(step)/add", "", False),
    ("Cast_2", "", False),
    ("", "", False),
])  # fmt: skip
def test_scopes_are_told_from_what_stands_around_them(name, path, is_backward):
    scope = parse_scope(name)
    assert "/".join(layer_scope(scope)) == path
    assert scope.is_backward == is_backward


def test_a_name_without_end_is_no_trouble():
    assert len(parse_scope("a/" * 100_000 + "b").path) <= 100
    assert parse_scope("jvp(" * 500 + ")" * 500).path


# Rows, by hand.


def layer(path, kind="Dense", parent=0, parameters=0, **rest):
    return LayerFacts(path, path.rpartition("/")[2], kind, is_library=True, parent=parent, parameters=parameters, **rest)


def model(*layers, is_uniquified=True, **rest):
    return ModelFacts(layers[0].name, layers, is_uniquified, **{"optimizer": "adam", **rest})


def inside(*named):
    """A thread's ops, 10 us each, one after another in the first step."""
    return [event("train", 0, (1000 + 10 * len(named)) * US, step_num=0, _r=1), *(event(name, (10 + 10 * at) * US, 10 * US) for at, name in enumerate(named))]


def table_of(*named, models=()):
    trace = read(host(line("python", *inside(*named))))
    study = Study(trace, recording=Recording(models=tuple(models)))
    return study, LAYERS.frame(study.layers.table).set_index("layer")


OPS = [
    "model/dense/MatMul:_FusedMatMul", "model/dense_1/BiasAdd:_FusedMatMul", "mean_squared_error/Mean:Mean",
    "gradient_tape/mean_squared_error/mul:Mul", "gradient_tape/model/dense_1/MatMul/MatMul:MatMul",
    "gradient_tape/model/dense/MatMul/MatMul_1:MatMul", "Adam/sub_8:Sub", "Iterator::Root::Map",
    "IteratorGetNext:IteratorGetNext", "div_no_nan:DivNoNan",
]  # fmt: skip


def test_the_example_in_the_words_of_layer_rows():
    names = {
        "Iterator::Root::Map": ("input", "other"), "net/dense/MatMul": ("net/dense", "forward"),
        "gradient_tape/net/dense/MatMul/MatMul_1": ("net/dense", "backward"), "net/dense/checkpoint/MatMul": ("net/dense", "recomputation"),
        "Adam/sub": ("optimizer", "update"), "mean_squared_error/sub": ("loss", "forward"),
        "gradient_tape/mean_squared_error/mul": ("loss", "backward"), "Sum": ("outside the model", "other"),
    }  # fmt: skip
    rows = LayerRows((), list(names))
    placed = {name: rows.place(name, "") for name in names}
    titles = [*OTHERS, *("/".join(path) for path in rows.scopes)]
    assert {name: (titles[place.row], LAYER_PARTS[place.layer_part]) for name, place in placed.items()} == names


def test_without_a_model_name_scopes_are_rows():
    study, table = table_of(*OPS)
    assert table.index.tolist() == ["model/dense", "model/dense_1", "loss", "optimizer", "input", "outside the model"]
    assert table.loc["model/dense", ["forward_us", "backward_us", "total_us"]].tolist() == [10, 10, 20]
    assert table.loc["loss", ["forward_us", "backward_us"]].tolist() == [10, 10]
    assert table.loc["optimizer", "update_us"] == 10
    assert table.loc["input", "other_us"] == 20
    assert table.loc["outside the model", "other_us"] == 10  # nobody knows whether it is a metric's
    assert table.parameters.isna().all()
    assert table.flops.isna().all()
    assert (table.output_shape == "").all()
    assert int(study.layers.table.total_ps.sum()) == 100 * US
    assert table.fraction.sum() == pytest.approx(1)


def test_each_op_says_the_row_that_it_counts_for():
    study, layers = table_of(*OPS, models=[two_dense()])
    ops = study.layers.ops
    assert dict(zip(ops.op_name, ops.layer, strict=True))["gradient_tape/model/dense/MatMul/MatMul_1"] == "model/dense"
    of_layers = OP_TABLE.frame(ops).groupby("layer").self_us.sum()
    assert of_layers.to_dict() == layers.total_us[layers.total_us > 0].to_dict()
    beside = Study(read(host(line("python", event("model/dense/MatMul:MatMul", 0, US), event("train", 2 * US, US, step_num=0, _r=1)))))
    assert beside.layers.ops.layer == ("model/dense",)  # outside of the steps, too
    assert Study(read(host(line("python")))).layers.ops.layer == ()


def two_dense(**rest):
    return model(layer("model", "Functional", -1), layer("model/dense", parameters=6), layer("model/dense_1", parameters=3), is_uniquified=False, **rest)


def test_with_a_model_rows_are_its_layers():
    _, table = table_of(*OPS, models=[two_dense()])
    assert table.index.tolist() == ["model", "model/dense", "model/dense_1", "loss", "optimizer", "input", "outside the model"]
    assert table.layer_type.tolist()[:3] == ["Functional", "Dense", "Dense"]
    assert table.parameters.dropna().tolist() == [0, 6, 3]


def test_what_the_graph_tells_about_ops_goes_before_what_their_names_suggest():
    told = {
        "div_no_nan": OpFact(METRICS), "Adam/sub_8": OpFact(UPDATE, row=2), "mul_9": OpFact(BACKWARD, scope="model/dense"),
        "AddN": OpFact(BACKWARD),
    }  # fmt: skip
    _, table = table_of(*OPS, "mul_9:Mul", "AddN:AddN", models=[two_dense(ops={"train": [{"mul_9": OpFact(METRICS), "never/ran": OpFact(METRICS)}, told]})])
    assert table.loc["metrics", "other_us"] == 10
    assert table.loc["model/dense_1", "update_us"] == 10
    assert table.loc["model/dense", "backward_us"] == 20
    assert table.loc["outside the model", "backward_us"] == 10
    assert "optimizer" not in table.index


class FakeGraph:
    """Ops in the order they were made: (name, type), or (name, type, weight) for an assignment."""

    def __init__(self, *ops):
        self.captures = [(w, SimpleNamespace(name=f"{w}:0")) for w in {op[2] for op in ops if len(op) > 2}]
        self._ops = [SimpleNamespace(name=op[0], type=op[1], inputs=[SimpleNamespace(name=f"{w}:0") for w in op[2:]]) for op in ops]

    def get_operations(self):
        return self._ops


def test_the_order_in_which_ops_were_made_tells_what_they_are_for():
    graph = FakeGraph(
        ("Cast", "Cast"), ("net/a/MatMul", "MatMul"), ("net/a/IdentityN", "IdentityN"), ("net/b/MatMul", "MatMul"), ("loss/Mean", "Mean"),
        ("AssignVariableOp", "AssignVariableOp"),  # the loss' tracker
        ("gradient_tape/loss/mul", "Mul"), ("gradient_tape/net/b/MatMul/MatMul", "MatMul"),
        ("AddN", "AddN"), ("mul_1", "Mul"), ("Sigmoid_1", "Sigmoid"),  # swish's gradient, of a sum
        ("gradient_tape/net/a/MatMul/MatMul", "MatMul"), ("AddN_1", "AddN"),
        ("adam/mul", "Mul"), ("adam/AssignSub", "AssignSubVariableOp", "kernel"),
        ("adam/mul_1", "Mul"), ("adam/AssignSub_1", "AssignSubVariableOp", "bias"),
        ("ArgMax", "ArgMax"), ("Sum/ReadVariableOp", "ReadVariableOp"),
    )  # fmt: skip
    rows = {id(weight): row for weight, row in (("kernel", 1), ("bias", 2))}
    assert describe_ops(graph, rows, has_keras_step=True) == {
        "AssignVariableOp": OpFact(METRICS),
        "AddN": OpFact(BACKWARD, scope="net/a"), "mul_1": OpFact(BACKWARD, scope="net/a"), "Sigmoid_1": OpFact(BACKWARD, scope="net/a"),
        "AddN_1": OpFact(BACKWARD),
        "adam/mul": OpFact(UPDATE, 1), "adam/AssignSub": OpFact(UPDATE, 1), "adam/mul_1": OpFact(UPDATE, 2), "adam/AssignSub_1": OpFact(UPDATE, 2),
        "ArgMax": OpFact(METRICS), "Sum/ReadVariableOp": OpFact(METRICS),
    }  # fmt: skip
    own = describe_ops(graph, rows, has_keras_step=False)
    assert {fact.part for fact in own.values()} == {BACKWARD, UPDATE}


def test_between_two_functions_with_gradients_of_their_own_nobody_is_chosen():
    graph = FakeGraph(
        ("net/a/MatMul", "MatMul"), ("net/b/IdentityN", "IdentityN"), ("net/c/IdentityN", "IdentityN"), ("net/d/MatMul", "MatMul"),
        ("gradient_tape/net/d/MatMul/MatMul", "MatMul"), ("mul_1", "Mul"), ("gradient_tape/net/a/MatMul/MatMul", "MatMul"),
    )  # fmt: skip
    assert describe_ops(graph, {}, has_keras_step=False) == {"mul_1": OpFact(BACKWARD)}


def test_what_the_graph_of_another_phase_tells_does_not_count():
    _, table = table_of(*OPS, models=[two_dense(ops={"test": [{"div_no_nan": OpFact(METRICS)}]})])
    assert "metrics" not in table.index


def test_names_that_keras_3_made_unique_find_their_layers():
    """dense runs in dense_1, the layer called dense_1 in dense_1_2, and a shared layer in two scopes."""
    made = model(
        layer("net", "Functional", -1), layer("net/dense"), layer("net/dense_1"), layer("net/dense_2"),
        layer("net/shared", is_shared=True, input_shapes=((None, 4), (None, 4))),
    )  # fmt: skip
    _, table = table_of(
        "net_1/dense_1/MatMul:MatMul", "net_1/dense_1_2/MatMul:MatMul", "net_1/dense_1_2/BiasAdd:BiasAdd",
        "net_1/dense_2_1/MatMul:MatMul", "net_1/dense_2_1/Relu:Relu", "net_1/dense_2_1/a/b:Mul",
        "net_1/shared_1/MatMul:MatMul", "net_1/shared_3/MatMul:MatMul", "net_1/Add:Add",
        models=[made],
    )  # fmt: skip
    assert table.forward_us.tolist() == [10, 10, 20, 30, 20]
    assert table.index.tolist()[:4] == ["net", "net/dense", "net/dense_1", "net/dense_2"]


def test_scopes_that_were_seen_go_before_what_names_suggest():
    seen = model(
        layer("net", "Net", -1), layer("net/dense"), layer("net/dense_1"),
        scopes={"net_1": 0, "net_1/dense_1": 2, "net_1/dense_2": 1},
    )  # fmt: skip
    _, table = table_of("net_1/dense_1/MatMul:MatMul", "net_1/dense_2/MatMul:MatMul", "net_1/dense_2/Relu:Relu", models=[seen])
    assert table.forward_us.to_dict() == {"net": 0, "net/dense": 20, "net/dense_1": 10}


@pytest.mark.parametrize("order", [1, -1])
def test_a_layer_of_two_models_counts_where_it_was_called(order):
    """Keras' regression tutorial: one Normalization in two models, of which one runs; a layer called by itself stays."""
    idle = model(layer("line", "Sequential", -1), layer("line/norm"), layer("line/dense"), scopes={"net_1/norm_1": 1})
    ran = model(layer("net", "Sequential", -1), layer("net/norm"), layer("net/up"), scopes={"net_1": 0, "net_1/norm_1": 1, "net_1/up_1": 2})
    ops = ("net_1/norm_1/Sub:Sub", "net_1/up_1/MatMul:MatMul")
    _, table = table_of(*ops, models=[idle, ran][::order])
    assert table.forward_us.to_dict() == {"net": 0, "net/norm": 10, "net/up": 10}
    by_itself = replace(idle, scopes={"norm_1": 1})
    _, table = table_of(*ops, "norm_1/Sub:Sub", models=[by_itself, ran][::order])
    assert table.forward_us["line/norm"] == 10
    assert table.forward_us["net/norm"] == 10


def test_what_a_gradient_repeats_is_recomputation():
    block = model(
        layer("net", "Functional", -1), layer("net/block", "Block"), layer("net/block/up", parent=1),
        is_uniquified=False, scopes={"net": 0, "net/block": 1, "net/block/up": 2, "up": 2}, again=frozenset({"up"}),
    )  # fmt: skip
    _, table = table_of(
        "net/block/up/BiasAdd:BiasAdd", "up/BiasAdd:BiasAdd", "up/Gelu/mul:Mul", "gradient_tape/up/MatMul/MatMul_1:MatMul",
        models=[block],
    )  # fmt: skip
    row = table.loc["net/block/up"]
    assert (row.forward_us, row.recomputation_us, row.backward_us) == (10, 20, 10)
    assert table.loc["net", "with_parts_us"] == 40


def test_a_layer_that_is_only_called_by_itself_is_not_repeated():
    alone = model(layer("net", "Functional", -1), layer("net/up"), scopes={"up": 1})
    _, table = table_of("up/BiasAdd:BiasAdd", models=[alone])
    assert table.loc["net/up", "forward_us"] == 10


def test_loops_of_a_recurrent_layer_lie_in_it():
    net = model(layer("net", "Functional", -1), layer("net/lstm", "LSTM"), is_uniquified=False)
    _, table = table_of(
        "net/lstm/while/body/_1/net/lstm/while/lstm_cell/MatMul:MatMul",
        "gradient_tape/net/lstm/while/net/lstm/while_grad/body/_2/gradient_tape/net/lstm/while/gradients/AddN:AddN",
        models=[net],
    )  # fmt: skip
    assert table.loc["net/lstm", ["forward_us", "backward_us"]].tolist() == [10, 10]


def test_an_optimizers_op_that_names_a_weight_updates_its_layer():
    net = model(layer("net", "Functional", -1), layer("net/dense"), is_uniquified=False)
    _, table = table_of("net/dense/MatMul:MatMul", "Adam/Adam/update_dense/kernel/ResourceApplyAdam:ResourceApplyAdam",
                        "Adam/Adam/update_4/ResourceApplyAdam:ResourceApplyAdam", models=[net])  # fmt: skip
    assert table.loc["net/dense", "update_us"] == 10
    assert table.loc["optimizer", "update_us"] == 10


def test_models_that_did_not_run_have_no_rows():
    ran = model(layer("net", "Functional", -1), layer("net/dense"), is_uniquified=False)
    other = model(layer("critic", "Functional", -1), layer("critic/dense", parameters=5), is_uniquified=False)
    _, table = table_of("net/dense/MatMul:MatMul", models=[other, ran])
    assert table.index.tolist() == ["net", "net/dense"]


def test_ops_that_the_input_pipeline_runs_are_input():
    """A function of tf.data's runs ops with names like any other; the run it belongs to tells."""
    trace = read(host(
        line("python", *inside("net/dense/MatMul:MatMul")),
        line("data", event("InstantiatedCapturedFunction::Run", 0, 30 * US, id=7, iter_num=0), line_id=2),
        line("pool", event("ExecutorState::Process", 5 * US, 20 * US, id=7, iter_num=0), event("GatherV2:GatherV2", 6 * US, 10 * US), line_id=3),
        line("pool 2", event("Iterator::Root::Map", 0, 50 * US), event("Cast:Cast", 10 * US, 20 * US), line_id=4),
    ))  # fmt: skip
    study = Study(trace)
    table = LAYERS.frame(replace_window(study)).set_index("layer")
    assert table.loc["net/dense", "total_us"] == 10
    assert table.loc["input", "total_us"] == 60
    assert "outside the model" not in table.index


def replace_window(study):
    """The layers of all events, whichever step they belong to."""
    return study.layers.table_of(np.arange(len(study.steps)), np.ones(len(study.trace.events), np.bool_))


def test_on_a_gpu_the_rows_are_device_time_and_the_host_is_told_besides():
    trace = read(
        host(line("python", *inside("net/dense/MatMul:MatMul"))),
        gpu(line("Stream #1", event("gemm", 20 * US, 40 * US, tf_op=ref("net/dense/MatMul:MatMul")),
                 event("adam_kernel", 60 * US, 5 * US, tf_op=ref("Adam/Adam/update_1/ResourceApplyAdam:ResourceApplyAdam")),
                 event("MemcpyH2D", 70 * US, 7 * US), event("mystery", 80 * US, 3 * US))),
    )  # fmt: skip
    table = LAYERS.frame(Study(trace).layers.table).set_index("layer")
    assert table.total_us.to_dict() == {"net/dense": 40, "optimizer": 5, "input": 7, "outside the model": 3}
    assert table.loc["net/dense", ["host_us", "device_us"]].tolist() == [10, 40]


def test_without_a_device_its_time_is_missing_not_zero():
    _, table = table_of("net/dense/MatMul:MatMul")
    assert table.device_us.isna().all()


def test_memory_at_the_peak_is_of_the_layer_that_allocated_it():
    def allocation(at, size, in_use, name):
        return event("MemoryAllocation", at * US, 0, allocator_name=ref("GPU_0_bfc"), allocation_bytes=size, bytes_allocated=in_use,
                     bytes_reserved=0, bytes_available=1000, addr=at, tf_op=ref(name))  # fmt: skip

    trace = read(host(line("python", *inside("net/dense/MatMul:MatMul", "net/dense_1/MatMul:MatMul")),
                      line("pool", allocation(11, 100, 300, "net/dense/MatMul"), allocation(12, 50, 350, "net/dense_1/MatMul"), line_id=2)))  # fmt: skip
    table = LAYERS.frame(Study(trace).layers.table).set_index("layer")
    assert table.peak_bytes.to_dict() == {"net/dense": 100, "net/dense_1": 50}


# XLA.

SAME = shape(F32, 64, 64)
FUSED = program(
    "jit_step",
    {
        "inside": [
            parameter("p0", 0, SAME), parameter("p1", 1, SAME),
            dot("d", SAME, "p0", "p1", op_name="net/dense/MatMul", op_type="MatMul"),
            op("r", "maximum", SAME, "d", "p0", op_name="net/other/Relu", op_type="Relu"),
            op("s", "add", SAME, "r", "p0", op_name="gradient_tape/net/dense/add", op_type="Add"),
        ],
        "main": [
            parameter("x", 0, SAME), parameter("w", 1, SAME),
            op("fusion", "fusion", SAME, "x", "w", calls=("inside",), op_name="net/other/Relu", op_type="Relu"),
            dot("alone", SAME, "fusion", "w", op_name="net/dense/MatMul", op_type="MatMul"),
        ],
    },
    "main", fused=("inside",),
)  # fmt: skip


def test_a_fusion_across_layers_is_shared_out_by_operations_and_marked():
    def ran(name, begin, duration):
        return event(name, begin * US, duration, hlo_op=name, hlo_module="jit_step", program_id=3)

    trace = read(
        metadata_plane(jit_step=(3, FUSED)),
        host(line("python", event("train", 0, 1000 * US, step_num=0, _r=1)),
             line("pool", ran("fusion", 10, 1_000_001), ran("alone", 20, 7 * US), line_id=2)),
    )  # fmt: skip
    study = Study(trace)
    times = replace_window(study)
    table = LAYERS.frame(times).set_index("layer")
    product, each = 2 * 64**3, 64**2
    whole = product + 2 * each
    other = int(1_000_001 * (each / whole))
    assert times.total_ps.sum() == 1_000_001 + 7 * US  # not a picosecond lost
    assert round(table.loc["net/other", "forward_us"] * 1e6) == other
    assert round(table.loc["net/dense", "backward_us"] * 1e6) == other
    assert round(table.loc["net/dense", "forward_us"] * 1e6) == 7 * US + 1_000_001 - 2 * other
    assert table.is_estimate.to_dict() == {"net/dense": True, "net/other": True}
    assert table.loc["net/dense", "flops_forward"] == 2 * product
    assert table.loc["net/dense", "flops_backward"] == table.loc["net/other", "flops_forward"] == each


# Operations, by hand.


def flops(kind, shapes, kernels=(), output=None, calls=1, **numbers):
    row = LayerFacts("l", "l", kind, True, -1, 0, output, shapes, kernels=kernels, numbers=numbers)
    return forward_flops([row], 0, calls)


def test_operations_of_products_equal_those_worked_out_by_hand():
    assert flops("Dense", ((None, 30),), ((30, 7),)) == 2 * 30 * 7
    assert flops("Dense", ((None, 20, 30),), ((30, 7),)) == 20 * 2 * 30 * 7
    # 3 by 3 over 10 by 12 places, 5 channels to 8: each place takes 3 * 3 * 5 products for each of 8 results.
    assert flops("Conv2D", ((None, 12, 14, 5),), ((3, 3, 5, 8),), (None, 10, 12, 8)) == 10 * 12 * 8 * 3 * 3 * 5 * 2
    assert flops("Conv2D", ((None, 5, 12, 14),), ((3, 3, 5, 8),), (None, 8, 10, 12), data_format="channels_first") == 10 * 12 * 8 * 45 * 2
    # Two groups: each result sees half of the channels, as the kernel's shape says.
    assert flops("Conv2D", ((None, 12, 14, 4),), ((3, 3, 2, 8),), (None, 10, 12, 8)) == 10 * 12 * 8 * 3 * 3 * 2 * 2
    assert flops("DepthwiseConv2D", ((None, 8, 8, 4),), ((3, 3, 4, 2),), (None, 6, 6, 8)) == 6 * 6 * 4 * 2 * 9 * 2
    assert flops("SeparableConv2D", ((None, 8, 8, 4),), ((3, 3, 4, 1), (1, 1, 4, 16)), (None, 6, 6, 16)) == 36 * (9 * 4 + 4 * 16) * 2
    assert flops("Conv2DTranspose", ((None, 6, 6, 4),), ((3, 3, 8, 4),), (None, 8, 8, 8)) == 36 * 9 * 8 * 4 * 2
    assert flops("Conv1D", ((None, 50, 4),), ((5, 4, 16),), (None, 46, 16)) == 46 * 5 * 4 * 16 * 2
    # Four gates: each of 11 steps multiplies the input (3) and the state (8) with 4 * 8 columns.
    assert flops("LSTM", ((None, 11, 3),), ((3, 32), (8, 32)), (None, 8)) == 11 * (3 + 8) * 4 * 8 * 2
    # 20 queries with 30 keys, 4 heads of 16 (keys) and 32 (values).
    told = {"num_heads": 4, "key_dim": 16, "value_dim": 32, "query_length": 20, "key_length": 30}
    assert flops("MultiHeadAttention", (), **told) == 2 * 4 * 20 * 30 * (16 + 32)
    assert flops("EinsumDense", ((None, 20, 64),), ((64, 4, 16),), equation="abc,cde->abde") == 2 * 20 * 64 * 4 * 16
    assert flops("EinsumDense", ((None, 20, 64),), ((64, 16),), equation="...x,xy->...y") == 2 * 20 * 64 * 16
    assert flops("Embedding", ((None, 20),)) == 0


def test_what_is_not_known_is_not_guessed():
    assert np.isnan(flops("BatchNormalization", ((None, 4),)))
    assert np.isnan(flops("Dense", (), ((30, 7),)))  # a shape is missing
    assert np.isnan(flops("Dense", ((None, None, 30),), ((30, 7),)))
    assert np.isnan(flops("EinsumDense", ((None, 20, 64),), ((64, 4, 16),), equation="nonsense"))
    own = replace(layer("l", "Dense", -1, input_shapes=((None, 3),), kernels=((3, 3),)), is_library=False)
    assert np.isnan(forward_flops([own], 0, 1))  # somebody's Dense may do anything


def test_a_shared_layer_counts_each_call():
    assert flops("Dense", ((None, 30), (None, 30)), ((30, 7),), calls=2) == 2 * 420
    assert flops("Dense", ((None, 5, 30), (None, 30)), ((30, 7),), calls=2) == 6 * 420
    assert flops("Dense", ((None, 30),), ((30, 7),), calls=3) == 3 * 420
    assert np.isnan(flops("Dense", ((None, 5, 30), (None, 30)), ((30, 7),), calls=3))


def test_the_way_back_takes_one_or_two_of_the_way_forward():
    middle = layer("l", is_trainable=True, needs_input_gradient=True)
    assert backward_factor(middle) == 2
    assert backward_factor(replace(middle, needs_input_gradient=False)) == 1
    assert backward_factor(replace(middle, is_trainable=False)) == 1
    assert backward_factor(replace(middle, is_trainable=False, needs_input_gradient=False)) == 0
    assert backward_factor(layer("a", "MultiHeadAttention")) == 2


def test_within_the_first_layer_the_gradient_reaches_the_kernel_before():
    first = {"is_trainable": True, "needs_input_gradient": False}
    lstm = layer("l", "LSTM", kernels=((8, 128), (32, 128)), **first)
    assert backward_factor(lstm) == 1 + 32 / 40  # through the state, not to the input
    assert backward_factor(layer("s", "SeparableConv2D", kernels=((3, 3, 3, 1), (1, 1, 3, 16)), **first)) == 1 + 48 / 75
    assert backward_factor(replace(lstm, is_trainable=False)) == 0
    assert backward_factor(replace(lstm, needs_input_gradient=True)) == 2


# Pictures.


def test_the_picture_lays_parts_under_what_they_are_part_of():
    study, _ = table_of("net/block/up/MatMul:MatMul", "gradient_tape/net/block/up/MatMul/MatMul:MatMul", "net/head/MatMul:MatMul",
                        "Adam/sub:Sub")  # fmt: skip
    blocks = grow_layer_tree(study.layers.table)
    assert [(b.level, b.label, b.begin, b.width) for b in blocks] == [
        (0, "net", 0, 0.75), (0, "optimizer", 0.75, 0.25),
        (1, "block", 0, 0.5), (1, "head", 0.5, 0.25),
        (2, "up", 0, 0.5),
        (3, "forward", 0, 0.25), (3, "backward", 0.25, 0.25), (3, "forward", 0.5, 0.25), (3, "update", 0.75, 0.25),
    ]  # fmt: skip


def test_the_report_has_layers_as_html_and_as_text():
    study, _ = table_of(*OPS)
    report = build_report(study, title="t", notes=[], overhead_ps=None)
    assert 'data-tab="Layers"' in report.html
    text = report.text()
    assert "2 layers with ops. Shares of op time: forward 20.0 %, backward 20.0 %, loss 20.0 %, input 20.0 %." in text
    assert re.search(r"dense +10.0 µs +10.0 µs +— +20.0 µs +20.0 %", text.replace("  in model", ""))
    assert "Parts of a step" in report.html
    assert "in model" in text  # where a layer lies is said behind its name


def test_a_hostile_name_is_data():
    study, _ = table_of("net/<script>alert(1)</script>/MatMul:MatMul", "net/'\"&x/MatMul:MatMul")
    html = build_report(study, title="t", notes=[], overhead_ps=None).html
    assert "<script" not in html


def test_a_trace_without_layers_has_no_tab():
    study, _ = table_of("Iterator::Root::Map")
    assert 'data-tab="Layers"' not in build_report(study, title="t", notes=[], overhead_ps=None).html


def test_a_picture_of_thousands_of_layers_stays_small():
    names = [f"net/block_{at // 10}/layer_{at}/MatMul:MatMul" for at in range(3000)]
    study, table = table_of(*names)
    assert len(table) == 3000
    assert len(grow_layer_tree(study.layers.table)) <= 190
    assert len(build_report(study, title="t", notes=[], overhead_ps=None).html) < 500_000


@pytest.mark.parametrize("path", every_shared_trace())
def test_rows_of_real_traces_sum_to_the_op_time(path):
    study = profnb.load(path).study
    table = study.layers.table
    ops = study.ops.of_steps(study.summary.counted)
    for is_device, own in ((False, table.host_ps), (True, table.device_ps)):
        assert int(own.sum()) == int(ops.self_ps[ops.is_device == is_device].sum())
    assert int(table.total_ps.sum()) == int(ops.self_ps[ops.is_device == (table.side == "device")].sum())


def test_a_real_trace_has_its_layers(shared_traces):
    table = profnb.load(shared_traces / "gpu-cnn-batch512" / "host.xplane.pb").layers.set_index("layer")
    assert {"sequential/conv2d", "sequential/conv2d_1", "sequential/dense"} <= set(table.index)
    row = table.loc["sequential/conv2d"]
    assert 0 < row.forward_us < row.backward_us
    assert table.loc["optimizer", "update_us"] == table.loc["optimizer", "total_us"] > 0
