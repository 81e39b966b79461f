"""What a reader does with an edit that was tried: copy its diff or the edited cell, or have that cell inserted.

How JupyterLab inserts it, test_jupyterlab tries, which has one open.
"""

import pytest
from chromium import browser, one_page, open_page  # noqa: F401
from markupsafe import Markup

from profnb.compare import trial_section
from profnb.compare.speedup import Difference
from profnb.compare.trial_section import trial_sections
from profnb.compare.trial_table import Trial
from profnb.drawing.section import section_block
from profnb.report.report import report_script

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]

FILE = "<ipython-input-3-abc>"
CELL = 'batches = data.map(decode).cache()\nfor batch in batches:\n    if batch is not None:\n        train(batch, "a <b> & c")'
DIFF = '--- Cell [3]\n+++ Cell [3] (edited)\n@@ -1,4 +1,4 @@\n-batches = data.map(decode)\n+batches = data.map(decode).cache()\n for batch in batches:\n     if batch is not None:\n         train(batch, "a <b> & c")\n'
FASTER = Difference(0.5, 0.45, 0.55, float("nan"), (3, 3), (0, 0))


@pytest.fixture
def output(monkeypatch):
    """The trials of a report, as a notebook saves them."""
    monkeypatch.setattr(trial_section, "number_cells", lambda: {FILE: 3})
    trial = Trial("input", "cache() behind map(decode)", "nothing", DIFF, {FILE: f"#\n{CELL}\n"}, FASTER)
    (section,) = trial_sections([trial])
    return Markup('<div class="profnb">{}</div>').format(section_block(section))


@pytest.fixture
def shown(output, open_page, tmp_path):
    """The trials in a page of their own, where a script may run first."""

    def show(first=""):
        (tmp_path / "page.html").write_text(f"<!doctype html><html><body>{output}<script>{first};{report_script()}</script></body></html>", "utf-8")
        page = open_page((tmp_path / "page.html").as_uri()).page
        page.get_by_role("button", name="copy diff").wait_for()
        return page

    return show


@pytest.mark.parametrize(("button", "text"), [("diff", DIFF), ("edited cell", CELL)])
def test_a_page_copies_the_diff_and_the_edited_cell(shown, button, text):
    page = shown()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=f"copy {button}").click()
    page.get_by_role("button", name="copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == text
    assert page.get_by_role("button", name="insert below").count() == 0  # there is no notebook


def test_colab_gets_the_edited_cell_by_its_own_call(shown):
    page = shown("window.google = {colab: {kernel: {accessAllowed: true}, notebook: {addCell: async (...what) => { window.added = what; }}}}")
    page.get_by_role("button", name="insert below").click()
    page.get_by_role("button", name="inserted").wait_for()
    assert page.evaluate("window.added") == [CELL, "code"]
