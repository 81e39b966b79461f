"""XLA programs read from their bytes, and what their instructions cost, against figures worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import BF16, F16, F32, PRED, S32, convolution, dot, metadata_plane, op, parameter, program, shape
from traces import event, host, line, message, read

from profnb.subjects.xla.hlo_program import Costs, _valid_positions
from profnb.core.errors import TraceFormatError
from profnb.subjects.xla.hlo_ops import HloOp
from profnb.trace.hlo import read_hlo_module, read_hlo_modules

ADD = [parameter("x", 0, shape(F32)), parameter("y", 1, shape(F32)), op("add.9", "add", shape(F32), "x", "y")]


def module_of(instructions, computations=None, fused=(), **more):
    raw = program("jit_f", {**(computations or {}), "main": instructions}, "main", fused, **more)
    return read_hlo_module(np.frombuffer(raw, np.uint8), "jit_f", 7)


def costs_of(module, name):
    row, costs = module.row_of[name], Costs(module)
    return costs.flops(row), costs.bytes(row)


def test_names_operands_shapes_and_sources():
    module = module_of(
        [
            parameter("a", 0, shape(F32, 64, 128)),
            parameter("b", 1, shape(F32, 128, 256)),
            dot("dot.1", shape(F32, 64, 256), "a", "b", op_name="dense/MatMul", op_type="MatMul", source=("m.py", 3)),
        ],
        allocations=[(32768, 5), (131072, 5), (65536, 7), (400, 12), (1000,), (77, 3)],
    )
    row = module.row_of["dot.1"]
    assert (module.name, module.program_id, len(module), module.entry) == ("jit_f", 7, 3, 0)
    assert module.operands_of(row) == [0, 1]
    assert module.shapes.of(row) == [64, 256]
    assert module.shapes.bytes[row] == 64 * 256 * 4
    assert (module.op_names[row], module.op_types[row]) == ("dense/MatMul", "MatMul")
    assert (module.source_files[row], module.source_lines[row]) == ("m.py", 3)
    assert module.buffers == {"argument": 163840, "output": 65536, "constant": 400, "temporary": 1000}
    assert module.roots.tolist() == [row]


def test_a_product_does_two_operations_for_each_multiplication():
    module = module_of([
        parameter("a", 0, shape(F32, 64, 128)), parameter("b", 1, shape(F32, 128, 256)),
        dot("dot.1", shape(F32, 64, 256), "a", "b"),
    ])  # fmt: skip
    assert costs_of(module, "dot.1") == (2 * 64 * 128 * 256, 4 * (64 * 128 + 128 * 256 + 64 * 256))


def test_a_convolution_leaves_its_padding_out():
    # 5 x 5 of one channel, 3 x 3 filters, padding 1: 9 positions inside, 6 on each side, 4 in each corner.
    module = module_of([
        parameter("x", 0, shape(F32, 1, 5, 5, 1)), parameter("k", 1, shape(F32, 3, 3, 1, 2)),
        convolution("conv", shape(F32, 1, 5, 5, 2), "x", "k", [(3, 1, 1, 1)] * 2),
    ])  # fmt: skip
    assert costs_of(module, "conv")[0] == 2 * 2 * (9 * 9 + 12 * 6 + 4 * 4)


def test_a_depthwise_convolution_uses_one_channel_for_each_result():
    module = module_of([
        parameter("x", 0, shape(F32, 4, 8, 8, 16)), parameter("k", 1, shape(F32, 3, 3, 1, 16)),
        convolution("conv", shape(F32, 4, 6, 6, 16), "x", "k", [(3, 1, 0, 0)] * 2, groups=16),
    ])  # fmt: skip
    assert costs_of(module, "conv")[0] == 2 * 4 * 6 * 6 * 16 * 9


def test_a_fusion_does_what_is_inside_and_reads_what_a_slice_touches():
    inside = [
        parameter("p0", 0, shape(F32, 1000, 8)), parameter("p1", 1, shape(S32)),
        op("slice", "dynamic-slice", shape(F32, 1, 8), "p0", "p1"),
        op("exp", "exponential", shape(F32, 1, 8), "slice"),
        op("neg", "negate", shape(F32, 1, 8), "exp", op_name="model/neg"),
    ]  # fmt: skip
    module = module_of(
        [
            parameter("a", 0, shape(F32, 1000, 8)), parameter("i", 1, shape(S32)),
            op("fusion.1", "fusion", shape(F32, 1, 8), "a", "i", calls=("fused",)),
        ],
        {"fused": inside}, fused={"fused"},
    )  # fmt: skip
    assert costs_of(module, "fusion.1") == (8, 32 + 4 + 32)  # a transcendental is no operation
    alone = module_of([parameter("a", 0, shape(F32, 1000, 8)), parameter("i", 1, shape(S32)), op("slice", "dynamic-slice", shape(F32, 1, 8), "a", "i")])
    assert costs_of(alone, "slice") == (0, 32 + 32)


def test_a_fusion_reads_all_of_what_something_inside_takes_whole():
    """640 numbers are summed into 64, and one row of the same is sliced: all are read."""
    inside = [
        parameter("p0", 0, shape(F32, 64, 10)), parameter("p1", 1, shape(S32)), op("zero", "constant", shape(F32)),
        op("sums", "reduce", shape(F32, 64), "p0", "zero", calls=("region",)), op("slice", "dynamic-slice", shape(F32, 1, 10), "p0", "p1"),
        op("both", "tuple", shape(0, parts=(shape(F32, 64), shape(F32, 1, 10))), "sums", "slice"),
    ]  # fmt: skip
    module = module_of(
        [
            parameter("a", 0, shape(F32, 64, 10)), parameter("i", 1, shape(S32)),
            op("f", "fusion", shape(0, parts=(shape(F32, 64), shape(F32, 1, 10))), "a", "i", calls=("fused",)),
        ],
        {"fused": inside, "region": ADD}, fused={"fused"},
    )  # fmt: skip
    assert costs_of(module, "f")[1] == 4 * (640 + 1 + 64 + 10)


def test_an_update_in_place_writes_only_the_update():
    inside = [
        parameter("p0", 0, shape(F32, 1000, 8)), parameter("p1", 1, shape(F32, 1, 8)), parameter("p2", 2, shape(S32)),
        op("dus", "dynamic-update-slice", shape(F32, 1000, 8), "p0", "p1", "p2"),
    ]  # fmt: skip
    module = module_of(
        [
            parameter("a", 0, shape(F32, 1000, 8)), parameter("u", 1, shape(F32, 1, 8)), parameter("i", 2, shape(S32)),
            op("f", "fusion", shape(F32, 1000, 8), "a", "u", "i", calls=("fused",)),
        ],
        {"fused": inside}, fused={"fused"},
    )  # fmt: skip
    assert costs_of(module, "f") == (0, 32 + 4 + 32)


def test_all_devices_add_what_each_brings():
    """An addition for each number of the first instruction of the program."""
    body = [parameter("a", 0, shape(F32, 64)), op("sum", "all-reduce", shape(F32, 64), "a", calls=("region",))]
    one = module_of([parameter("b", 0, shape(F32, 64)), op("call", "call", shape(F32, 64), "b", calls=("body",))], {"body": body, "region": ADD})
    assert (one.operands_of(one.names.texts.index("sum")), costs_of(one, "sum")[0]) == ([0], 64)


def test_a_reduction_of_nothing_or_of_what_is_not_there_is_unknown():
    module = module_of(
        [
            parameter("a", 0, shape(F32, 64, 10)),
            op("of nothing", "reduce", shape(F32, 64), calls=("region",)),
            op("of a stranger", "reduce", shape(F32, 64), calls=("region",), operand=(36, b"\x63")),  # number 99
            op("scattered", "scatter", shape(F32, 64), "a", calls=("region",)),  # its last operand is its only one
        ],
        {"region": ADD},
    )  # fmt: skip
    assert math.isnan(costs_of(module, "of nothing")[0])
    assert math.isnan(costs_of(module, "of a stranger")[0])
    assert costs_of(module, "scattered")[0] == 640


@pytest.mark.parametrize(("operands", "expected"), [(("p0",), 4 * 8000), (("p0", "p1"), 32 + 32)])
def test_an_update_in_place_without_indices_or_without_an_update(operands, expected):
    """Without an update nobody knows what is written: the whole result; p1 is not read then."""
    inside = [
        parameter("p0", 0, shape(F32, 1000, 8)), *([parameter("p1", 1, shape(F32, 1, 8))] if len(operands) > 1 else []),
        op("dus", "dynamic-update-slice", shape(F32, 1000, 8), *operands),
    ]  # fmt: skip
    module = module_of(
        [
            parameter("a", 0, shape(F32, 1000, 8)), parameter("u", 1, shape(F32, 1, 8)),
            op("f", "fusion", shape(F32, 1000, 8), "a", "u", calls=("fused",)),
        ],
        {"fused": inside}, fused={"fused"},
    )  # fmt: skip
    assert costs_of(module, "f")[1] == expected


@pytest.mark.parametrize(("size", "window", "stride", "low", "dilation", "base"), [
    (16_000, 16_000, 1, 15_999, 1, 1), (37, 5, 2, 2, 3, 1), (10, 3, 1, 4, 1, 2), (1, 1, 1, 0, 1, 1), (50, 9, 4, 11, 2, 1), (12, 4, 3, 1, 2, 3),
])  # fmt: skip
def test_positions_of_a_window_are_counted_exactly(size, window, stride, low, dilation, base):
    steps = 40
    expected = sum(
        1
        for output in range(steps) for offset in range(window)
        if (at := output * stride - low + offset * dilation) >= 0 and at % base == 0 and at // base < size
    )  # fmt: skip
    assert _valid_positions(size, steps, window, stride, low, 0, dilation, base) == expected


@pytest.mark.filterwarnings("error")
def test_numbers_that_no_program_has_are_unknown():
    huge = module_of([
        parameter("a", 0, shape(F32, *(1 << 62,) * 3)), parameter("b", 1, shape(F32, 4)),
        dot("d", shape(F32, 4), "a", "b", contracted=(1,) * 40),
        convolution("c", shape(F32, 1, 4, 4, 1), "a", "b", [(1 << 62, 1, 0, 0)] * 2),
    ])  # fmt: skip
    assert not math.isfinite(costs_of(huge, "d")[0])
    assert math.isnan(costs_of(huge, "c")[0])


def test_a_reduction_does_one_operation_for_each_element_it_takes_away():
    module = module_of(
        [
            parameter("a", 0, shape(F32, 64, 10)), op("zero", "constant", shape(F32)),
            op("sum", "reduce", shape(F32, 64), "a", "zero", calls=("region",)),
        ],
        {"region": ADD},
    )  # fmt: skip
    assert costs_of(module, "sum") == (64 * 9, 4 * (640 + 1 + 64))


def test_to_sort_costs_the_logarithm_of_the_length_for_each_element():
    module = module_of([
        parameter("a", 0, shape(F32, 64)), parameter("none", 1, shape(F32, 0)),
        op("sorted", "sort", shape(F32, 64), "a"), op("nothing", "sort", shape(F32, 0), "none"),
    ])  # fmt: skip
    assert costs_of(module, "sorted") == (64 * 6, 2 * 4 * 64)
    assert costs_of(module, "nothing") == (0, 0)


def test_an_exchange_of_several_arrays_adds_up_all_of_them():
    module = module_of(
        [
            parameter("a", 0, shape(F32, 64, 10)), parameter("b", 1, shape(F32, 5)),
            op("sum", "all-reduce", shape(0, parts=(shape(F32, 64, 10), shape(F32, 5))), "a", "b", calls=("region",)),
        ],
        {"region": ADD},
    )  # fmt: skip
    assert costs_of(module, "sum")[0] == 640 + 5


def test_a_window_that_is_reduced_and_what_it_selects():
    """3 x 2 windows: five additions for each of 10 results; 40 values compared five times and added once."""
    window = (15, message((1, message((1, 3), (2, 1), (5, 1), (6, 1))), (1, message((1, 2), (2, 1), (5, 1), (6, 1)))))
    pick = [parameter("x", 0, shape(F32)), parameter("y", 1, shape(F32)), op("ge", "compare", shape(PRED), "x", "y")]
    module = module_of(
        [
            parameter("a", 0, shape(F32, 100)), parameter("s", 1, shape(F32, 40)), op("zero", "constant", shape(F32)),
            op("pool", "reduce-window", shape(F32, 10), "a", "zero", calls=("region",), window=window),
            op("unpool", "select-and-scatter", shape(F32, 100), "a", "s", "zero", calls=("pick", "region"), window=window),
        ],
        {"region": ADD, "pick": pick},
    )  # fmt: skip
    assert costs_of(module, "pool")[0] == 10 * 5
    assert costs_of(module, "unpool")[0] == 40 * (5 + 1)


def test_library_calls_are_the_products_they_are():
    config = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'
    module = module_of([
        parameter("a", 0, shape(BF16, 32, 64)), parameter("b", 1, shape(BF16, 64, 16)),
        op("gemm", "custom-call", shape(0, parts=(shape(BF16, 32, 16), shape(PRED, 4096))), "a", "b",
           target="__cublas$gemm", config=config),
        op("other", "custom-call", shape(F32, 4), "a", target="my_kernel"),
        *(op(name, "custom-call", shape(F32, 4), "a", "b", target="__cublas$gemm", config=bad) for name, bad in {
            "broken": "{[", "a list": "[1]", "no lists": '{"dot_dimension_numbers": {"lhs_contracting_dimensions": 1}}',
            "no numbers": config.replace('"1"', '"one"'), "endless": config + " " * (1 << 16),
        }.items()),
    ])  # fmt: skip
    flops, moved = costs_of(module, "gemm")
    assert flops == 2 * 32 * 16 * 64
    assert moved == 2 * (32 * 64 + 64 * 16 + 32 * 16) + 4096
    assert math.isnan(costs_of(module, "other")[0])
    for name in ("broken", "a list", "no lists", "no numbers", "endless"):
        assert math.isnan(costs_of(module, name)[0]), name


def test_a_product_of_what_is_not_there_is_unknown():
    inner, outer = (dot("", shape(F32, 4), "a", "a", contracted=at)[-1]["dims"] for at in ((0,), ()))
    module = module_of([
        parameter("a", 0, shape(F32, 4)), op("of nothing", "dot", shape(F32, 4), dims=inner),
        op("of a stranger", "dot", shape(F32, 4), dims=inner, operand=(36, b"\x63")),  # number 99
        op("with a stranger", "dot", shape(F32, 4, 4), dims=outer, operand=(36, b"\x63")),
    ])  # fmt: skip
    for name in ("of nothing", "of a stranger", "with a stranger"):
        assert math.isnan(costs_of(module, name)[0])


def test_the_gradients_of_a_convolution_cost_as_much_as_the_convolution():
    """4 images of 8 x 8 with 3 channels, 16 filters of 3 x 3 and no padding: 6 x 6 results."""
    def call(target, result, *operands):
        name, _, *rest = convolution(target, result, *operands, [(3, 1, 0, 0)] * 2, target=f"__cudnn$conv{target}")
        return name, "custom-call", *rest

    images, filters, results = shape(F32, 4, 8, 8, 3), shape(F32, 3, 3, 3, 16), shape(F32, 4, 6, 6, 16)
    module = module_of([
        parameter("x", 0, images), parameter("k", 1, filters), parameter("y", 2, results),
        call("Forward", results, "x", "k"), call("BackwardInput", images, "y", "k"), call("BackwardFilter", filters, "x", "y"),
    ])  # fmt: skip
    for target in ("Forward", "BackwardInput", "BackwardFilter"):
        assert costs_of(module, target)[0] == 2 * 4 * 6 * 6 * 16 * 9 * 3
    # With memory for cuDNN to work in, the result is the first of two.
    module = module_of([
        parameter("x", 0, images), parameter("k", 1, filters), call("Forward", shape(0, parts=(results, shape(PRED, 4096))), "x", "k"),
        op("first", "get-tuple-element", results, "Forward"),
    ])  # fmt: skip
    assert costs_of(module, "Forward")[0] == 2 * 4 * 6 * 6 * 16 * 9 * 3


def test_computations_that_call_each_other_in_circles_end():
    module = module_of(
        [parameter("a", 0, shape(F32, 4)), op("f", "fusion", shape(F32, 4), "a", calls=("one",))],
        {"one": [op("g", "fusion", shape(F32, 4), calls=("two",))], "two": [op("h", "fusion", shape(F32, 4), calls=("one",))]},
    )
    assert math.isnan(costs_of(module, "f")[0])


def test_a_broken_program_is_said_and_the_trace_still_opens():
    good = program("jit_f", {"main": [parameter("a", 0, shape(F16, 4))]}, "main")
    trace = read(metadata_plane(jit_f=(1, good), jit_g=(2, b"\x0a\xff\xff")), host(line("python", event("x", 0, 5))))
    modules, complaints = read_hlo_modules(trace)
    assert list(modules) == [1]
    assert len(complaints) == 1
    assert "jit_g" in complaints[0]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutated_programs_are_read_or_refused(data):
    raw = bytearray(program(
        "jit_f",
        {"region": ADD, "main": [
            parameter("a", 0, shape(F32, 8, 4)), parameter("b", 1, shape(F32, 4, 2)),
            dot("d", shape(F32, 8, 2), "a", "b"), op("z", "constant", shape(F32)),
            op("s", "reduce", shape(F32, 8), "d", "z", calls=("region",)),
            convolution("c", shape(F32, 1, 2, 2, 1), "a", "b", [(1, 1, 0, 0)] * 2),
        ]},
        "main", allocations=[(8, 5)],
    ))  # fmt: skip
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        module = read_hlo_module(np.frombuffer(bytes(raw), np.uint8), "x")
    except TraceFormatError:
        return
    costs = Costs(module)
    for row in range(len(module)):
        costs.flops(row)
        costs.bytes(row)


@pytest.mark.parametrize("name, op_name, expected", [
    ("all-reduce.3", "jit(step)/transpose(jvp())/dot_general", ("all-reduce.3", "all-reduce")),  # the compiler's own
    ("all-reduce.3", "jit(step)/psum", ("jit(step)/psum", "psum")),  # the program's
    ("all-gather.1", "jit(f)/all_gather", ("jit(f)/all_gather", "all_gather")),
    ("all-reduce.3", "while/CollectiveReduceV2", ("while/CollectiveReduceV2", "CollectiveReduceV2")),
    ("dot.3", "jit(step)/transpose(jvp())/dot_general", ("jit(step)/transpose(jvp())/dot_general", "dot_general")),
    ("reduce.3", "jit(step)/reduce_sum", ("jit(step)/reduce_sum", "reduce_sum")),
])  # fmt: skip
def test_an_exchange_that_the_compiler_added_is_not_the_op_it_is_for(name, op_name, expected):
    assert HloOp("jit_step", 1, name, 0, "all-reduce", op_name).key == expected
