"""HTML is told from text by its type: no module writes a tag or escapes by hand; what is text is escaped once."""

import ast
import json
import re
from html import unescape
from pathlib import Path

import pytest
from markupsafe import Markup

from profnb.drawing.markup import figure_text, html_table, json_attribute, note_list, script_element
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
