"""Nothing in the way of keyboards and screen readers: axe-core on the pages of a report, a comparison, a sweep, a fleet and a timeline.

axe-core comes from the npm registry: ``PROFNB_AXE`` names its axe.min.js (``.ci/run`` fetches it). Without it only what needs
no axe-core is tested.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from chromium import browser, one_page, open_page, settle  # noqa: F401
from made_hosts import hosts_of

import profnb
from profnb.compare.section import comparison_bundle
from profnb.compare.sweep_section import sweep_bundle
from profnb.compare.sweeps import SweepPoint, tabulate_sweep
from profnb.report.report import report_script

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]
HERE = Path(__file__).parents[1] / "data"
MS = 1e9
PAGE = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{0}</title><style>:root{{color-scheme:light dark}}body{{background:Canvas;color:CanvasText}}</style></head><body><main><h1>{0}</h1>{1}</main><script>{2}</script></body></html>'


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("axe")
    profile = profnb.load(HERE / "cpu-cnn.xplane.pb")
    profile.opened_as = "before"
    random = np.random.default_rng(0)
    points = [SweepPoint({"batch_size": size}, [random.normal(took * MS, 0.1 * MS, 40) for _ in range(3)], [1e12] * 3, False, size, (), 1e6 * size) for size, took in ((32, 4), (64, 5), (128, 16))]
    bundles = {"comparison": comparison_bundle(profnb.compare(profile, profnb.load(HERE / "cpu-cnn.xplane.pb"))._view), "sweep": sweep_bundle(tabulate_sweep(points))}
    random_works = np.random.default_rng(2).integers(5, 30, (3, 40))
    hosts_of(folder / "run", (random_works + np.array([[0], [40], [1]])).tolist())
    profnb.load_fleet(folder / "run").to_html(folder / "fleet.html", timeline=False)
    profile.to_html(folder / "report.html")  # the timeline stands below it
    for name, bundle in bundles.items():
        (folder / f"{name}.html").write_text(PAGE.format(name, bundle["text/html"], report_script()), "utf-8")
    return folder


def violations(page):
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(rule["id"], rule["impact"], [node["html"][:200] for node in rule["nodes"]]) for rule in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "comparison", "sweep", "fleet"])
def test_axe_finds_nothing(open_page, pages, name, scheme):
    axe = os.environ.get("PROFNB_AXE", "")
    if not Path(axe).is_file():
        pytest.skip("needs axe-core (npm install axe-core; PROFNB_AXE=.../axe.min.js)")
    page = open_page((pages / f"{name}.html").as_uri(), scheme=scheme, bypass_csp=True)  # axe is no program of the page's
    page.page.wait_for_selector("th[scope=col]", state="attached")
    page.page.evaluate(Path(axe).read_text("utf-8"))
    tabs = page.page.get_by_role("tab")
    for at in range(max(tabs.count(), 1)):
        if tabs.count():
            tabs.nth(at).click()
        assert violations(page.page) == []
    page.page.evaluate("document.querySelector('th').removeAttribute('scope'); document.querySelector('main').insertAdjacentHTML('beforeend', '<select></select>')")
    assert [rule for rule, *_ in violations(page.page)] == ["select-name"]  # it does look
    assert page.errors == []


def test_tables_are_read_and_driven_without_a_mouse(open_page, pages):
    page = open_page((pages / "report.html").as_uri()).page
    page.wait_for_selector(".profnb-tab[data-tab=Ops] th button")
    sorted_now = "[...document.querySelectorAll('.profnb-tab[data-tab=Ops] th[aria-sort]')].map(th => [th.innerText.trim(), th.getAttribute('aria-sort')]).filter(([, how]) => how !== 'none')"
    assert page.evaluate(sorted_now) == [["own time ▾", "descending"]]
    page.locator(".profnb-tab[data-tab=Ops] th button", has_text="runs").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(sorted_now) == [["runs ▾", "descending"]]
    page.keyboard.press("Enter")
    assert page.evaluate(sorted_now) == [["runs ▴", "ascending"]]
    # No bar is read out, and every table has headings of its columns.
    assert page.evaluate("[...document.querySelectorAll('.profnb td')].filter(td => /[█▏▎▍▌▋▊▉]/.test(td.innerText) && !td.querySelector('[aria-hidden=true]')).length") == 0
    assert page.evaluate("[...document.querySelectorAll('.profnb-tab table')].filter(t => !t.querySelector('th[scope=col]')).length") == 0
    # A row of the layers leads to its ops by Enter.
    page.get_by_role("tab", name="Layers").click()
    row = page.locator(".profnb-tab[data-tab=Layers] tr[tabindex='0']").first
    row.focus()
    page.keyboard.press("Enter")
    assert page.get_by_label("search ops").is_visible()
    assert page.get_by_label("search ops").input_value() != ""


def test_advice_is_folded_copied_and_unfolded(open_page, pages, tmp_path):
    from test_report import profile_of, steps_of

    from profnb.report.report import page_html
    from profnb.advice.proposals import Advice
    from dataclasses import replace

    listed = [Advice(f"r{at}", f"Do {at}", "It is slow.", (0.0, 500.0 - 100 * at), 1000.0, f"batch_size={at}; and more.", "https://x.test") for at in range(5)]
    profile = profile_of(steps_of(6))
    html = page_html(replace(profile._report, advice=listed, again="%%tfprofile --vs before"), profile.study)
    (tmp_path / "page.html").write_text(html, "utf-8")
    page = open_page((tmp_path / "page.html").as_uri()).page
    rows = page.locator(".profnb-advice li")
    page.get_by_role("button", name="3 more").wait_for()
    assert [rows.nth(at).is_visible() for at in range(5)] == [True, True, False, False, False]
    page.get_by_role("button", name="3 more").click()
    assert rows.nth(4).is_visible()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="copy batch_size=0").click()
    page.get_by_role("button", name="copied batch_size=0").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "batch_size=0"
    page.get_by_role("button", name="copy %%tfprofile --vs before").click()
    page.get_by_role("button", name="copied %%tfprofile --vs before").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "%%tfprofile --vs before"


@pytest.mark.parametrize("width", [1366, 1100, 400])
def test_whatever_its_texts_say_the_first_screen_is_one(open_page, tmp_path, width):
    from dataclasses import replace

    from test_report import profile_of, steps_of

    from profnb.advice.proposals import Advice
    from profnb.report.report import page_html

    words = "Each of these many words takes room of the screen. " * 20
    profile = profile_of(steps_of(6))
    ends = []
    for texts, count in (("", 1), (words, 5)):
        listed = [Advice(f"r{at}", f"Do {at}", f"It is slow. {texts}", (250.0, 500.0 - 50 * at), 1000.0, f"Write it. {texts}", "", own_ms=100.0) for at in range(count)]
        report = replace(profile._report, advice=listed, again="%%tfprofile --vs before", alarm=texts, idle=texts)
        (tmp_path / "page.html").write_text(page_html(report, profile.study), "utf-8")
        page = open_page((tmp_path / "page.html").as_uri(), width=width).page
        page.get_by_role("tab").first.wait_for()
        settle(page)
        ends.append(page.evaluate("document.querySelector('[role=tablist]').getBoundingClientRect().bottom + scrollY"))
        rows, more = page.locator(".profnb-advice li"), page.get_by_text(re.compile("more$"))
        assert more.is_visible() == bool(texts)  # what is short is all there
    assert ends[1] <= 780
    assert page.evaluate("[...document.querySelectorAll('.profnb-advice li > *')].every(e => e.scrollWidth <= e.clientWidth)")
    assert rows.first.is_visible()
    assert rows.nth(4).is_hidden()
    more.click()
    assert rows.nth(4).is_visible()
    assert page.evaluate("[...document.querySelectorAll('.profnb-clip')].every(e => e.scrollHeight <= e.clientHeight + 1)")
    page.get_by_role("button", name="show less").click()
    assert page.evaluate("document.querySelector('[role=tablist]').getBoundingClientRect().bottom + scrollY") == ends[1]
