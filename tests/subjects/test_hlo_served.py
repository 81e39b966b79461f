"""Instructions without a name to whom they work for: a training step of two convolutions as JAX compiles it, by hand."""

import numpy as np
import pytest
from programs import F32, convolution, metadata_plane, op, parameter, program, shape
from traces import event, host, line, read

from profnb.subjects.study import Study
from profnb.subjects.xla.hlo_program import Served
from profnb.trace.hlo import read_hlo_module

US = 1_000_000
KERNEL, IMAGE, STEP = shape(F32, 3, 3, 2, 2), shape(F32, 1, 4, 4, 2), "jit(train_step)"
WINDOW = [(3, 1, 1, 1)] * 2


def moved(name, result, used, **more):
    return op(name, "copy", result, used, **more)


def training(*, clips=False, updates="b", regularises=False):
    """x -> a -> b -> loss, and the gradient of b's kernel, which ``updates`` says the parameter of."""
    used = "product"
    extra = []
    if clips:  # what scales every gradient meets every parameter
        extra = [op("norm", "multiply", KERNEL, "product", "kernel_a", "kernel_b", op_name=f"{STEP}/adam/mul")]
        used = "norm"
    if regularises:
        extra = [op("decayed", "add", KERNEL, "product", "kernel_b", op_name=f"{STEP}/transpose(jvp(b))/add_any")]
        used = "decayed"
    return [
        parameter("x", 0, IMAGE), parameter("kernel_a", 1, KERNEL), parameter("kernel_b", 2, KERNEL), parameter("slot", 3, KERNEL),
        parameter("small", 4, shape(F32, 2)),
        convolution("a", IMAGE, "x", "kernel_a", WINDOW, op_name=f"{STEP}/jvp(a)/conv_general_dilated"),
        moved("layout", KERNEL, "kernel_b"),
        convolution("b", IMAGE, "a", "layout", WINDOW, op_name=f"{STEP}/jvp(b)/conv_general_dilated"),
        op("slope", "multiply", IMAGE, "b", "b", op_name=f"{STEP}/transpose(jvp(b))/mul"),
        moved("turned", IMAGE, "a"), moved("slope_turned", IMAGE, "slope"),
        convolution("product", KERNEL, "turned", "slope_turned", WINDOW),
        *extra,
        op("mean", "add", KERNEL, "slot", used, op_name=f"{STEP}/adam/add"),
        op("update", "subtract", KERNEL, f"kernel_{updates}", "mean", op_name=f"{STEP}/adam/sub"),
        moved("out", KERNEL, "update"), op("scaled", "add", shape(F32, 2), "small", "small", op_name=f"{STEP}/adam/sub"),
        op("root", "tuple", shape(F32, parts=(KERNEL, KERNEL)), "out", "mean"),
    ]  # fmt: skip


def served(instructions, computations=None, fused=()):
    raw = program("jit_f", {**(computations or {}), "main": instructions}, "main", fused)
    module = read_hlo_module(np.frombuffer(raw, np.uint8), "jit_f", 7)
    return lambda name: Served(module).op_name(module.row_of[name])


@pytest.mark.parametrize("name", ["product", "turned", "slope_turned"])
def test_the_gradient_of_a_kernel_and_what_is_moved_for_it_work_for_the_layer_whose_kernel_is_updated(name):
    assert served(training())(name) == f"{STEP}/transpose(jvp(b))/conv_general_dilated"
    # by what is updated, not by what is nearest
    assert served(training(updates="a"))(name) == f"{STEP}/transpose(jvp(a))/conv_general_dilated"


def test_a_copy_works_for_the_one_layer_that_uses_it_and_one_for_the_optimizer_for_nobody():
    of = served(training())
    assert of("layout") == f"{STEP}/jvp(b)/conv_general_dilated"
    assert of("out") == ""


@pytest.mark.parametrize("settings", [{"clips": True}, {"regularises": True}], ids=str)
def test_what_meets_parameters_of_several_layers_or_a_layer_on_its_way_stays_without_a_name(settings):
    assert served(training(**settings))("product") == ""


def test_a_product_of_the_optimizers_own_stays_without_a_name():
    rows = [row if row[0] != "slope" else op("slope", "multiply", IMAGE, "b", "b", op_name=f"{STEP}/muon/mul") for row in training()]
    assert served(rows)("product") == ""


def test_a_product_that_a_layer_uses_stays_without_a_name():
    rows = [row if row[0] != "mean" else op("mean", "add", KERNEL, "slot", "product", op_name=f"{STEP}/jvp(c)/add") for row in training()]
    assert served(rows)("product") == ""


def test_of_names_that_are_not_of_jax_nothing_is_said():
    rows = [(*row[:5], row[5].replace("jvp(", "of("), *row[6:]) for row in training()]
    assert served(rows)("product") == served(rows)("layout") == ""


def pooling(last):
    window = [parameter("p0", 0, IMAGE), op("found", "reduce-window", IMAGE, "p0")]
    main = [
        parameter("x", 0, IMAGE), op("relu", "maximum", IMAGE, "x", "x", op_name="jit(f)/jvp(conv)/max"),
        op("at", "iota", IMAGE), op("largest", "fusion", IMAGE, "relu", calls=("inside",)), op("part", "get-tuple-element", IMAGE, "largest"),
        op("spread", "scatter", IMAGE, "part", "at", op_name=last),
    ]  # fmt: skip
    return served(main, {"inside": window}, ("inside",))


def test_the_search_of_windows_works_for_the_select_and_scatter_that_it_was_part_of():
    name = "jit(f)/transpose(jvp(pool))/select_and_scatter_add"
    of = pooling(name)
    assert (of("largest"), of("at"), of("relu")) == (name, name, "jit(f)/jvp(conv)/max")


def test_a_search_of_windows_that_another_op_uses_may_be_anybodys():
    of = pooling("jit(f)/jvp(next)/add")
    assert of("largest") == ""
    assert of("at") == "jit(f)/jvp(next)/add"  # which is made for nothing else


def test_time_of_instructions_without_a_name_is_their_layers_and_sums_stay():
    ran = [("a", 10), ("layout", 1), ("b", 20), ("slope", 2), ("turned", 3), ("product", 40), ("update", 5), ("out", 7)]
    events = [event("train", 0, 1000 * US, step_num=0, _r=1)]
    begin = 10
    for name, lasts in ran:
        events.append(event(name, begin * US, lasts * US, hlo_op=name, hlo_module="jit_f", program_id=7))
        begin += lasts
    trace = read(host(line("python", *events)), metadata_plane(jit_f=(7, program("jit_f", {"main": training()}, "main"))))
    table = Study(trace).layers.times
    parts = {"/".join(path): table.time_ps[0, row] // US for path, row in table.rows.scopes.items()}
    forward, backward = 0, 1
    assert (parts["a"][forward], parts["b"][forward], parts["b"][backward]) == (10, 21, 45)
    outside = table.rows.other("outside the model")
    assert table.time_ps[0, outside].sum() == 7 * US
    assert table.time_ps.sum() == sum(lasts for _, lasts in ran) * US
