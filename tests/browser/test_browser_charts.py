"""Charts are zoomed with the mouse and with the keyboard; words on colours can be read."""

from itertools import product
from pathlib import Path

import pytest
from chromium import browser, one_page, open_page, settle  # noqa: F401
from test_browser import notebook_page, recorded_cpu
from test_colours import LEAST_TEXT, contrast

import profnb
from profnb.drawing.theme import COLOURS, PART_COLOURS, ink_on
from profnb.report.report import report_script

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]


def ticks(chart):
    return [float(text) for text in chart.locator("svg > text").all_text_contents() if text.replace(".", "").isdigit()]


def drag(page, chart, begin, end):
    box = chart.locator("svg").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * begin, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, y, steps=3)
    page.mouse.up()


def test_a_chart_is_zoomed_by_mouse_and_keys_and_shown_whole_again(open_page, tmp_path):
    opened = open_page(notebook_page(recorded_cpu(), tmp_path / "r.html"))
    page = opened.page
    page.get_by_role("tab", name="Layers").click()
    chart = page.locator(".profnb-tab[data-tab=Layers] .profnb-figure").first
    chart.locator("svg").first.wait_for()
    settle(page)
    whole = ticks(chart)
    blocks = chart.locator("rect.profnb-bar").count()
    assert (whole[0], whole[-1]) == (0, 100)
    chart.scroll_into_view_if_needed()
    drag(page, chart, 0.5, 0.6)
    inside = ticks(chart)
    assert 49 <= inside[0] < inside[-1] <= 61
    assert 0 < chart.locator("rect.profnb-bar").count() < blocks
    left, right = (chart.locator("svg").first.bounding_box()[key] for key in ("x", "width"))
    for box in (block.bounding_box() for block in chart.locator("rect.profnb-bar").all()):
        assert left <= box["x"] and box["x"] + box["width"] <= left + right  # nothing sticks out
    page.keyboard.press("-")  # the focus is still on the chart
    assert ticks(chart)[0] < inside[0] and ticks(chart)[-1] > inside[-1]
    page.keyboard.press("ArrowRight")
    assert ticks(chart)[0] > 45
    page.keyboard.press("Escape")
    assert ticks(chart) == whole
    drag(page, chart, 0.2, 0.202)  # a click
    assert ticks(chart) == whole
    drag(page, chart, 0.1, 0.3)
    chart.get_by_role("button", name="show all").click()
    assert ticks(chart) == whole
    assert opened.errors == []


def test_words_on_colours_of_the_timeline_and_of_icicles_can_be_read(open_page, tmp_path):
    scripts = Path(profnb.__file__).parent / "timeline" / "browser"
    source = "".join((scripts / name).read_text("utf-8") for name in ("numbers.js", "picture.js"))
    (tmp_path / "empty.html").write_text("<!doctype html>")
    page = open_page((tmp_path / "empty.html").as_uri()).page
    shades = [0.8, 0.87, 0.93, 0.98, 1.04]
    assert f"this.shades = {shades}" in source
    colours = list(product({*COLOURS.values(), *PART_COLOURS.values()}, shades))
    ask = "([source, colours]) => { const [pixelOf, inkOn] = new Function(source + ';return [pixelOf, inkOn]')(); return colours.map(([hex, shade]) => { const pixel = pixelOf(hex, shade, 255); return [pixel, inkOn(pixel)]; }); }"
    for pixel, ink in page.evaluate(ask, [source, colours]):
        colour = "#" + "".join(f"{pixel >> at & 255:02x}" for at in (0, 8, 16))
        assert ink == ink_on(colour)
        assert contrast(colour, ink[0] + 2 * ink[1:]) >= LEAST_TEXT


def test_a_report_is_made_tabs_of_once_all_of_it_is_there(open_page, tmp_path):
    (tmp_path / "empty.html").write_text("<!doctype html>")
    opened = open_page((tmp_path / "empty.html").as_uri())
    html = recorded_cpu()._repr_mimebundle_()["text/html"]
    cut = html.index("profnb-tab", html.index("profnb-tab") + 20) - 20
    assert 0 < cut < html.rindex("profnb-tab")
    write = "([first, rest, program]) => { const run = new Function(program); document.open(); document.write('<!doctype html><body>' + first); run(); document.write(rest); document.close(); }"
    opened.page.evaluate(write, [html[:cut], html[cut:], report_script()])
    tabs = opened.page.get_by_role("tab")
    tabs.first.wait_for()
    parts = opened.page.locator(".profnb-tab")
    assert tabs.count() == parts.count() > 2
    assert parts.evaluate_all("list => list.filter(e => e.offsetHeight).length") == 1
    assert opened.errors == []
