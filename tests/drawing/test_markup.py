"""HTML is told from text by its type: no module writes a tag or escapes by hand; what is text is escaped once."""

import ast
import json
import re
from html import unescape
from pathlib import Path

import pytest
from markupsafe import Markup

from profnb.drawing import markup
from profnb.drawing.markup import _CellWrapper, figure_text, html_table, json_attribute, note_list, plain_table, script_element
from profnb.drawing.figures import figure_html

PACKAGE = Path(__file__).parents[2] / "profnb"
FILES = sorted(PACKAGE.rglob("*.py"))
TAG = re.compile(
    r"</?(div|span|b|i|ul|li|table|tr|td|h1|html|head|body|title|style|script|progress)[ >]"
)
THE_ONE_PLACE = PACKAGE / "drawing" / "markup.py"
# What makes Markup of something else than a literal there, or reads tags.
MAKERS = {"without_controls", "json_attribute", "script_element", "content_policy"}


def parents_of(tree):
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def is_docstring(node, parents):
    return isinstance(parents.get(node), ast.Expr)


def function_around(node, parents):
    while node in parents and not isinstance(node, ast.FunctionDef):
        node = parents[node]
    return getattr(node, "name", "")


def inside_markup(node, parents):
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Markup":
            return True
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_tags_stand_in_literals_of_markup_alone_and_nothing_is_escaped_by_hand(path):
    tree = ast.parse(path.read_text("utf-8"))
    parents = parents_of(tree)
    for node in ast.walk(tree):
        if path == THE_ONE_PLACE and function_around(node, parents) in MAKERS:
            continue
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            assert node.module != "html"
            # A table's cells are escaped to be joined as Markup; all others leave it to ``format``.
            assert not (node.module == "markupsafe" and "escape" in names) or path == THE_ONE_PLACE
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and TAG.search(node.value)
        ):
            assert is_docstring(node, parents) or inside_markup(node, parents), (
                f"{path}:{node.lineno}"
            )
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Markup":
            assert len(node.args) == 1 and isinstance(node.args[0], ast.Constant), (
                f"{path}:{node.lineno}: not a literal"
            )


def test_a_table_escapes_text_once_wherever_it_stands():
    evil = "<i>\"'&"
    html = html_table((evil,), [[(evil, evil, evil)]], (True,), (evil,))
    assert isinstance(html, Markup)
    assert "<i>" not in html
    assert (
        html.count("&lt;i&gt;&#34;&#39;&amp;") == 5
    )  # meaning, heading, style, text, fainter text
    assert "&amp;lt;" not in note_list([evil]) + html


def test_a_figure_takes_html_whole_and_its_data_as_text():
    html = figure_html({"data": ["</div><script>"], "layout": {}}, Markup("<b>fallback</b>"))
    assert "<b>fallback</b>" in html
    assert "<script>" not in html
    assert "&lt;b" not in html


def test_a_figure_reads_text_as_text():
    assert figure_text("<b>a & b</b>") == "&lt;b&gt;a &amp; b&lt;/b&gt;"
    assert type(figure_text("a")) is str


def test_an_attribute_holds_json_that_no_quote_or_tag_ends():
    value = {"a": ["it's", '"', "<b>", "&#39;", "\u2028", "\x85"]}
    written = json_attribute(value)
    inner = written[1:-1]
    assert (written[0], written[-1]) == ("'", "'")
    assert not set("'<>") & set(inner)
    assert json.loads(unescape(inner)) == value
    assert "&#34;" not in inner  # what it is for


def test_a_program_ends_its_element_only_once():
    assert script_element("a('</script>')") == "<script>a('<\\/script>')</script>"


def lines_in(columns, rows, numbers, monkeypatch):
    monkeypatch.setattr(markup, "terminal_columns", lambda: columns)
    return plain_table(rows, numbers).splitlines()


ROWS = [("op", "a/long-name.pb", "runs"), ("model/dense_1/MatMul", "1.25 ms", "8"), ("Relu", "3 us", "1,000")]


@pytest.mark.parametrize("columns", [None, 200, 43])
def test_a_table_that_fits_is_left_alone(columns, monkeypatch):
    assert lines_in(columns, ROWS, (False, True, True), monkeypatch) == [
        "op                    a/long-name.pb   runs",
        "model/dense_1/MatMul         1.25 ms      8",
        "Relu                            3 us  1,000",
    ]


def test_in_a_narrow_terminal_headings_give_way_first_and_names_break_behind_a_slash(monkeypatch):
    assert lines_in(35, ROWS, (False, True, True), monkeypatch) == [
        "op                   a/long-   runs",
        "                     name.pb",
        "model/dense_1/       1.25 ms      8",
        "MatMul",
        "Relu                    3 us  1,000",
    ]


def test_columns_that_do_not_fit_follow_below_with_the_names_again(monkeypatch):
    rows = [("op", "first", "second", "third"), ("Relu", "1.25 ms", "2.25 ms", "3.25 ms"), ("Add", "1 us", "2 us", "3 us")]
    assert lines_in(24, rows, (False, True, True, True), monkeypatch) == [
        "op      first   second",
        "Relu  1.25 ms  2.25 ms",
        "Add      1 us     2 us",
        "op      third",
        "Relu  3.25 ms",
        "Add      3 us",
    ]


def test_numbers_are_never_broken_however_narrow_it_is(monkeypatch):
    shown = lines_in(10, ROWS, (False, True, True), monkeypatch)
    assert any("1.25 ms" in line for line in shown) and any("3 us  1,000" in line for line in shown)
    assert lines_in(10, [], (), monkeypatch) == []


def test_a_column_that_is_narrow_parts_no_number_from_its_unit():
    assert _CellWrapper(14).wrap("it took 12.5 ms and 38 % of it") == ["it took", "12.5 ms and", "38 % of it"]


def test_lines_of_a_broken_cell_keep_its_indent(monkeypatch):
    rows = [("node", "time"), ("  a long name of a node", "1.25 s"), ("      framework", "62 ms")]
    assert lines_in(22, rows, (False, True), monkeypatch) == [
        "node              time",
        "  a long name   1.25 s",
        "  of a node",
        "    framework    62 ms",
    ]
