"""What a person calls an op: its layer, its direction and what it does; its own name stays under the pointer."""

import json
import re
from html import unescape

import pytest

from profnb.core.printable import cut_middle
from profnb.drawing.markup import fitted, html_table
from profnb.subjects.layers.name_scopes import op_title, op_titles
from profnb.subjects.ops.section import ops_section
from traces import op_table


@pytest.mark.parametrize(("name", "kind", "said", "about"), [
    ("gradient_tape/net/conv2d_1/Conv2D/Conv2DBackpropFilter", "Conv2DBackpropFilter", "conv2d_1 · backward (filter)", "in net"),
    ("gradient_tape/net/conv2d_1/Conv2D/Conv2DBackpropInput", "Conv2DBackpropInput", "conv2d_1 · backward (input)", "in net"),
    ("gradient_tape/net/conv2d/convolution/Conv2DBackpropFilter", "_MklNativeConv2DBackpropFilterWithBias", "conv2d · backward (filter)", "in net"),
    ("gradient_tape/net/dense/BiasAdd/BiasAddGrad", "BiasAddGrad", "dense · backward (bias)", "in net"),
    ("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul", "dense · backward (MatMul_1)", "in net"),  # of the weights or not: the name alone does not tell
    ("gradient_tape/net/pool/MaxPool/MaxPoolGrad", "MaxPoolGrad", "pool · backward (MaxPool)", "in net"),
    ("gradient_tape/net/bn/FusedBatchNormGradV3", "FusedBatchNormGradV3", "bn · backward (FusedBatchNormV3)", "in net"),
    ("StatefulPartitionedCall/net/conv2d/Conv2D", "Conv2D", "conv2d · Conv2D", "in net"),
    ("net/conv2d/Relu", "_FusedConv2D", "conv2d · Relu", "_FusedConv2D, in net"),
    ("net/mul", "Mul", "net · mul", ""),
    ("model/add/AddV2", "AddV2", "model · AddV2", ""),
    ("m/d/dropout_3/dropout/random_uniform/RandomUniform", "RandomUniform", "dropout_3 · RandomUniform", "in m/d"),
    ("m/attn/einsum/Einsum/Cast", "Cast", "attn · Einsum/Cast", "in m"),
    ("Adam/update_dense/kernel/ResourceApplyAdam", "ResourceApplyAdam", "Adam · ResourceApplyAdam", "dense/kernel"),
    ("jit(f)/transpose(jvp(Model))/Dense_0/dot_general", "dot_general", "Dense_0 · backward (dot_general)", "in Model"),
    ("gradients/layer_2/fc/MatMul_grad/MatMul", "MatMul", "fc · backward (MatMul)", "in layer_2"),
    ("gradients/Mean_grad/Prod_1", "Prod", "Mean · backward (Prod_1)", ""),
    ("Iterator::Root::Prefetch::Map", "Dataset", "Map", "Iterator::Root::Prefetch"),
    ("Iterator::Root", "Dataset", "Iterator::Root", ""),
    ("GatherV2", "GatherV2", "GatherV2", ""),
    ("IteratorGetNext/_1", "_Send", "IteratorGetNext/_1", "_Send"),
    ("copy-done.4", "copy-done", "copy-done.4", ""),
    ("aten::addmm", "", "aten::addmm", ""),
    ("moments/mean", "Mean", "moments/mean", ""),
])  # fmt: skip
def test_an_op_is_called_by_its_layer_and_what_it_does(name, kind, said, about):
    title = op_title(name, kind)
    assert (title.name, title.about) == (said, about)
    assert title.full.startswith(name.removeprefix("StatefulPartitionedCall/"))


def test_scopes_inside_of_a_known_layer_are_its_ops():
    op, kind = "gradient_tape/decoder_1/up_1_2/conv_transpose/Conv2DBackpropFilter", "Conv2DBackpropFilter"
    title = op_title(op, kind, {("decoder_1", "up_1_2"): "vae/decoder/up_1", ("decoder_1",): "vae/decoder"})
    assert (title.name, title.about) == ("up_1 · backward (filter)", "in vae/decoder")
    assert title.full == f"vae/decoder/up_1/conv_transpose/Conv2DBackpropFilter\nrecorded as {op}"
    assert op_title(op, kind).name == "conv_transpose · backward (filter)"  # of which nobody knows a layer


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "a/",
        "//",
        "gradient_tape/",
        "gradient_tape",
        "::",
        "Iterator::",
        "a" * 5000,
        "/".join("ab" * 300),
        "·",
        "\x1b[31m/x",
    ],
)
@pytest.mark.parametrize("kind", ["", "MatMul", "/"])
def test_any_name_has_a_title_and_keeps_its_own(name, kind):
    assert name in op_title(name, kind).full


def test_ops_that_would_read_alike_show_their_own_names():
    names = ["replica_0/net/dense/MatMul", "replica_1/net/dense/MatMul", "net/conv/Conv2D"]
    assert [title.about for title in op_titles(names, ["MatMul", "MatMul", "Conv2D"])] == [
        names[0],
        names[1],
        "in net",
    ]
    same = op_titles(
        ["a/b/MatMul", "a/b/MatMul"], ["MatMul", "MatMul"]
    )  # on the host and on the device
    assert [title.about for title in same] == ["in a", "in a"]


def test_long_words_lose_their_middle_and_sentences_do_not():
    assert cut_middle("abcdefghij", 6) == "abc…ij"
    assert cut_middle("abc", 3) == "abc"
    word = "begin" + "x" * 80 + "end"
    shown, _, faint, whole = fitted((word, "", f"see {word}"))
    assert shown.startswith("begin")
    assert shown.endswith("xend")
    assert len(shown) == 48
    assert faint == f"see {shown}"
    assert whole == f"{word} see {word}"
    sentence = "many short words " * 20
    assert fitted(sentence) == (sentence, "", "", "")
    code = ("x" * 90, "font-family:monospace;white-space:pre")
    assert fitted(code)[0] == code[0]


def test_a_name_breaks_between_the_parts_of_a_path_alone():
    html = html_table(("name",), [["net/Conv2DBackpropFilter_1.x::Map"]], (False,))
    pieces = [part.partition("</span>")[0] for part in html.split('display:inline-block">')[1:]]
    assert pieces == ["net/", "Conv2DBackpropFilter_1.x::", "Map"]


def test_an_op_is_found_by_its_own_name_in_the_page_and_behind_it():
    ops = [
        (
            False,
            f"gradient_tape/net/conv2d_{at}/Conv2D/Conv2DBackpropFilter",
            "Conv2DBackpropFilter",
            1,
            99 - at,
            99,
        )
        for at in range(20)
    ]
    html = ops_section(op_table(ops)).html
    assert 'title="gradient_tape/net/conv2d_3/Conv2D/Conv2DBackpropFilter"' in html
    assert "conv2d_3 · backward (filter)" in html
    data = json.loads(unescape(html.partition("data-rows='")[2].partition("'>")[0]))
    last = data["parts"][0]["rest"].split("\n")[-1].split("\t")[1].split("\f")
    assert last == [
        "conv2d_19 · backward (filter)",
        "in net",
        "gradient_tape/net/conv2d_19/Conv2D/Conv2DBackpropFilter",
    ]


def test_an_op_whose_name_tells_no_layer_says_where_it_ran_and_is_found_by_it():
    ops = op_table([(False, "aten::mm", "", 2, 9, 9), (False, "aten::add", "", 1, 5, 5), (False, "aten::sum", "", 1, 2, 2)])
    html = ops_section(ops, callers={"aten::mm": ["Net/a", "Net/b"], "aten::add": ["Net/b"]}).html
    assert "in 2 layers" in html and "in Net/b" in unescape(re.sub("<[^>]+>", "", html))
    (part, *_) = json.loads(unescape(html.partition("data-rows='")[2].partition("'>")[0]))["parts"]
    assert part["words"].split("\n") == ["Net/a/ Net/b/", "Net/b/", ""]
