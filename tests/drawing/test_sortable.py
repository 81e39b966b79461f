"""What the report's script is told of a table: the rows that are not in the page, ranks, sums by kind."""

import json
from dataclasses import replace
from html import unescape

from profnb.drawing.section import Section, section_text
from profnb.subjects.ops.section import ops_section, sum_by_type
from traces import op_table


def data_of(html):
    return json.loads(unescape(html.partition('data-rows=\'')[2].partition("'>")[0]))


def table(**rest):
    return Section(
        title="T", sentence="", headings=("", "name", "time"), rows=[("█", ("a", "", "faint"), "9"), ("", "c\td\ne", "—"), ("", "b", "1")],
        numbers=(False, False, True), colours=["red", "green", "red"], tab="X",
        sort_keys=[(None, "a", 9), (None, "c", None), (None, "b", 1)], searches=["x/", "", "y\n/"], shown=1, **rest,
    )  # fmt: skip


def test_the_rest_is_text_and_keys_become_ranks():
    html = table().html
    data = data_of(html)
    part = data["parts"][0]
    assert html.count("<tr>") == 2  # headings and the one row that is shown
    assert part["rest"].split("\n") == ["\tc d e\t—", "\tb\t1"]
    assert part["ranks"] == [None, {"up": 1, "of": [0, 2, 1]}, {"up": 0, "of": [1, None, 0]}]
    assert [part["palette"][at] for at in part["colours"]] == ["green", "red"]
    assert part["searches"].split("\n") == ["x/", "", "y /"]
    assert "and 2 more" in html


def test_a_fainter_text_goes_behind_its_cell():
    data = data_of(replace(table(), shown=0).html)
    assert data["parts"][0]["rest"].split("\n")[0] == "█\ta\ffaint\t9"


def test_meanings_are_titles_of_the_headings():
    html = table(meanings=("", "what it is called", 'its "time"')).html
    assert html.count("title=") == 2
    assert 'title="what it is called"><b>name</b>' in html
    assert 'title="its &#34;time&#34;"' in html


OPS = op_table([(True, "k", "MatMul", 2, 60, 60), (False, "h", "", 1, 50, 70), (True, "m", "MatMul", 1, 30, 30), (True, "n", "Relu", 4, 10, 10)])


def test_types_sum_their_ops_on_each_side():
    types = sum_by_type(OPS)
    columns = (types.is_device.tolist(), types.op_name, types.op_type, types.occurrences.tolist(), types.self_ps.tolist())
    assert [*zip(*columns, strict=True)] == [(True, "MatMul", "2 ops", 3, 90), (False, "-", "1 op", 1, 50), (True, "Relu", "1 op", 4, 10)]


def test_ops_carry_their_side_and_kind_and_what_a_share_is_of():
    section = ops_section(OPS)
    assert section.headings == ("", "op", "side", "runs", "own time", "own share", "running total", "total")
    assert [row[6] for row in section.rows] == ["60.0 %", "100.0 %", "90.0 %", "100.0 %"]
    data = data_of(section.html)
    ops, types = data["parts"]
    assert data["wholes"] == {"host": 50, "device": 100}
    assert ops["sides"] == [1, 0, 1, 1]
    assert ops["weights"] == [60, 50, 30, 10]
    assert data["kind_of"] == [0, 1, 0, 2]
    assert data["running"] == 6
    assert [line.split("\t")[1] for line in types["rest"].split("\n")] == ["MatMul\f2 ops", "-\f1 op", "Relu\f1 op"]


def test_one_side_needs_no_column_and_hidden_ops_are_counted():
    section = ops_section(op_table([(False, f"op{at}", "T", 1, 500 - at, 500) for at in range(450)]))
    assert "side" not in section.headings
    assert len(section.rows) == 150
    html = section.html
    assert "and 445 more" in html
    data = data_of(html)
    assert data["parts"][0]["hidden"] == 300
    assert data["parts"][1]["rest"].split("\t")[2] == "450"  # a type counts all of its ops


def test_the_plain_text_of_ops_is_their_first_ten():
    text = section_text(ops_section(op_table([(False, "h", "", 1, 50, 70)] * 12)))
    assert text.startswith("Ops with the most own time\nside")
    assert len(text.splitlines()) == 12
