"""A bar leads to what it is made of: a step's to its parts, a type's to its ops, an op's to its events."""

import pytest
from chromium import browser, one_page, open_page  # noqa: F401
from test_browser import notebook_page, recorded_cpu

from profnb.drawing.programs import packed
from profnb.report.report import report_script

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]
SHOWN = ".profnb-tab[data-tab=Steps] [role=status]"


def shares(page):
    """The shares of the bar that is shown, in percent."""
    texts = page.locator(f"{SHOWN} tr td:nth-child(3)").all_inner_texts()
    return [float(text.removesuffix(" %").replace("<", "")) for text in texts]


def test_a_step_tells_its_parts_by_click_and_by_keyboard(open_page, tmp_path):
    opened = open_page(notebook_page(recorded_cpu(), tmp_path / "r.html"))
    page = opened.page
    page.get_by_role("tab", name="Steps").click()
    columns = page.locator(".profnb-tab[data-tab=Steps] .profnb-column")
    assert page.locator(SHOWN).count() == 0
    columns.nth(3).click()
    first = page.inner_text(f"{SHOWN} b")
    assert first.startswith("train ")
    assert sum(shares(page)) == pytest.approx(100, abs=1)
    page.keyboard.press("ArrowRight")
    assert page.inner_text(f"{SHOWN} b") != first
    page.keyboard.press("ArrowLeft")
    assert page.inner_text(f"{SHOWN} b") == first
    page.set_viewport_size({"width": 700, "height": 900})  # drawn again, and still told
    page.wait_for_timeout(100)
    assert page.inner_text(f"{SHOWN} b") == first
    page.keyboard.press("Escape")
    assert page.locator(SHOWN).count() == 0
    page.keyboard.press("Enter")  # the longest
    heights = [float(text) for text in page.locator(f"{SHOWN} tr td:nth-child(2)").all_inner_texts()]
    assert heights == sorted(heights, reverse=True)
    columns.nth(3).click()
    columns.nth(3).click()
    assert page.locator(SHOWN).count() == 0
    assert opened.errors == []


def test_a_type_lists_its_ops_and_leads_back(open_page, tmp_path):
    opened = open_page(notebook_page(recorded_cpu(), tmp_path / "r.html"))
    page = opened.page
    ops = page.locator(".profnb-tab[data-tab=Ops]")
    page.get_by_label("rows").select_option("by type")
    row = ops.locator("tr:not(:first-child)").first
    kind, count = row.locator("td").nth(1).inner_text().split(maxsplit=1)
    row.focus()
    page.keyboard.press("Enter")
    only = page.get_by_role("button", name=f"only {kind}")
    assert page.get_by_label("rows").input_value() == "by op"
    assert f" of {count.split()[0]} ops" in ops.inner_text()
    only.click()
    assert not only.is_visible()
    assert f" of {count.split()[0]} ops" not in ops.inner_text()
    assert opened.errors == []


def test_in_a_page_an_op_finds_its_events_in_the_timeline(open_page, tmp_path):
    profile = recorded_cpu()
    opened = open_page(profile.to_html(tmp_path / "p.html").as_uri())
    page = opened.page
    box = page.get_by_label("search events")
    box.wait_for()
    page.locator(".profnb-tab[data-tab=Ops] tr:not(:first-child)").first.click()
    words = box.input_value()
    assert words
    assert any(words in name for name in profile.events.name)  # without the call that it is inside of
    assert opened.errors == []


def test_the_program_of_a_saved_notebook_unpacks_and_runs(open_page, tmp_path):
    html = recorded_cpu()._repr_mimebundle_()["text/html"]
    page = f"<!doctype html><meta charset=utf-8><body>{html}<script>{packed(report_script())}</script>"
    (tmp_path / "p.html").write_text(page, "utf-8")
    opened = open_page((tmp_path / "p.html").as_uri())
    opened.page.get_by_role("tab").first.wait_for()
    number = opened.page.locator(".profnb-tab[data-tab=Ops] td[align=right]").first
    assert number.evaluate("e => getComputedStyle(e).textAlign + getComputedStyle(e).paddingRight") == "right10px"
    assert opened.errors == []
