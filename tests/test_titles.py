"""A page is called by its result's label, or by the first line of its cell's code."""

import html
import re

import pytest

from profnb.capture.cell import title_of


@pytest.mark.parametrize(
    ("cell", "title"),
    [
        ("%%tfprofile -q\n# Train\n\n  model.fit(x)\nprint()", "model.fit(x)"),
        ("\n%%tfprofile\n%%time\nmodel.fit(x)", "model.fit(x)"),
        ("%%tfprofile\n%matplotlib inline\nmodel.fit(x)", "model.fit(x)"),
        (f"%%tfprofile\n{'x' * 100}", f"{'x' * 69}…"),
        ("%%tfprofile\n# nothing\n", ""),
        ("", ""),
    ],
)
def test_a_cell_is_called_by_its_first_line_of_code(cell, title):
    assert title_of(cell) == title


@pytest.mark.parametrize(("line", "title"), [("", "total = sum(range(10)) < 3"), (" --label before", "before")])
def test_the_page_has_the_label_or_the_cells_first_line(line, title, shell, tmp_path):
    assert shell.run_cell(f"%%tfprofile -q --no-live{line}\n\ntotal = sum(range(10)) < 3").success
    page = shell.user_ns["_tfprofile"].to_html(tmp_path / "page.html").read_text()
    assert [html.unescape(text) for text in re.findall("<title>(.*?) - profnb</title>.*?<h1>(.*?)</h1>", page, re.DOTALL)[0]] == [title] * 2
