"""A page is called by its result's label, or by the first line of its cell's code."""

import html
import re

import pytest

import profnb
from profnb.capture.cell import title_of


@pytest.mark.parametrize(
    ("cell", "title"),
    [
        ("%%tfprofile -q\n# Train\n\n  model.fit(x)\nprint()", "model.fit(x)"),
        ("\n%%tfprofile\n%%time\nmodel.fit(x)", "model.fit(x)"),
        ("%%tfprofile\n%matplotlib inline\nmodel.fit(x)", "model.fit(x)"),
        (f"%%tfprofile\n{'x' * 100}", f"{'x' * 69}…"),
        ("%%tfprofile\n# nothing\n", ""),
        ("%%tfprofile\n@jax.jit\ndef update(p):\n    return p", "def update(p):"),
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


def test_the_page_of_a_cell_that_fails_has_its_first_line_too(shell, tmp_path):
    assert not shell.run_cell("%%tfprofile -q --no-live\n\ntotal = sum(range(10))\n1 / 0").success
    page = shell.user_ns["_tfprofile"].to_html(tmp_path / "page.html").read_text()
    assert "<title>total = sum(range(10)) - profnb</title>" in page


def test_the_page_of_a_block_has_the_name_of_its_file(tmp_path):
    with profnb.profile() as p:
        sum(range(10))
    assert "<title>test_titles.py - profnb</title>" in p.to_html(tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%tfcompare", "Name two results or more: `%tfcompare before after`"),
        ("%tfcompare one two", "There is no result, label or file 'one' (labels: none). Keep a result with `%%tfprofile --label NAME`."),
        ("%tfprofile", "To profile this cell, write as its first line: %%tfprofile"),
        ("%tflite nothing", "There is no model and no file 'nothing': give a variable of this notebook, or a path."),
        ("%%tfsweep n\nn", "A setting is NAME=VALUE,VALUE such as batch_size=32,64; got 'n'."),
    ],
)
def test_an_error_of_a_magic_says_what_to_write(line, said, shell, capsys):
    assert not shell.run_cell(line).success
    assert said in (shown := "".join(capsys.readouterr())) and "what" not in shown.split()
