"""The timeline as a person works with it in headless Chromium: a page as a file."""

import json
import re
from pathlib import Path

import pytest
from chromium import browser, one_page, open_page, settle, wait_until  # noqa: F401
from traces import event, gpu, host, line, read

import profnb
from profnb.profile import Profile

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]
HERE = Path(__file__).parents[1] / "data" / "cpu-cnn.xplane.pb"
VIEW = "document.querySelector('.profnb-timeline[data-ms]').viewer"


def view(page):
    """What the viewer shows: from and to as fractions of the whole, and what is selected."""
    return page.page.evaluate(f"(() => {{ const v = {VIEW}, p = v.picture, s = v.whole.head.span; return {{from: p.from / s, to: p.to / s, selected: p.selected, range: p.range, marks: p.marks.head.marks, scroll: p.scroll, folded: [...v.bands.folded]}} }})()")


CANVAS = ".profnb-timeline canvas[role=application]"


def show_all(page):
    """The whole trace, as most tests count from its begin."""
    page.page.evaluate(f"{VIEW}.show(0, {VIEW}.whole.head.span)")


def panel(page):
    return page.page.locator(".profnb-timeline [aria-live]").inner_text()


@pytest.fixture(scope="module")
def cnn_page(tmp_path_factory):
    return profnb.load(HERE).to_html(tmp_path_factory.mktemp("timeline") / "cnn.html").as_uri()


@pytest.fixture
def cnn(open_page, cnn_page):
    page = open_page(cnn_page)
    page.page.wait_for_selector(".profnb-timeline[data-ms]")
    settle(page.page)
    show_all(page)
    yield page
    assert page.errors == []


@pytest.fixture
def open_trace(open_page, tmp_path):
    def open_(trace, *, at_first=False, **settings):
        page = open_page(Profile(trace).to_html(tmp_path / "t.html").as_uri(), **settings)
        page.page.wait_for_selector(".profnb-timeline[data-ms]")
        settle(page.page)
        if not at_first:
            show_all(page)
        return page

    return open_


def box(page):
    """Where the canvas is in the window."""
    canvas = page.page.locator(CANVAS)
    canvas.scroll_into_view_if_needed()
    return canvas.bounding_box()


def drag(page, x0, x1, y, **keys):
    mouse = page.page.mouse
    mouse.move(box(page)["x"] + x0, box(page)["y"] + y)
    mouse.down()
    mouse.move(box(page)["x"] + x1, box(page)["y"] + y, steps=6)
    mouse.up()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 700])
def test_the_first_picture_is_drawn_offline_in_any_theme_and_width(open_page, cnn_page, scheme, width):
    page = open_page(cnn_page, scheme=scheme, width=width)
    page.page.wait_for_selector(".profnb-timeline[data-ms]")
    page.page.locator(".profnb-timeline").scroll_into_view_if_needed()
    page.shot(f"timeline-{scheme}-{width}")
    wait_until(page.page, "(() => { const c = document.querySelector('.profnb-timeline canvas[role=application]'); const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer); return new Set(d).size > 20 })()")
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert not page.page.locator(".profnb-still").is_visible()
    assert page.errors == []


def test_keys_and_wheel_zoom_and_pan(cnn):
    cnn.page.locator(CANVAS).focus()
    cnn.page.mouse.move(box(cnn)["x"] + 550, box(cnn)["y"] + 120)
    cnn.page.keyboard.press("w")
    first = view(cnn)
    assert first["to"] - first["from"] == pytest.approx(0.6, abs=0.01)
    cnn.page.keyboard.press("d")
    second = view(cnn)
    assert second["from"] - first["from"] == pytest.approx(0.09, abs=0.01)
    cnn.page.keyboard.press("a")
    assert view(cnn)["from"] == pytest.approx(first["from"], abs=0.001)
    cnn.page.keyboard.press("s")
    assert view(cnn)["to"] - view(cnn)["from"] == pytest.approx(1, abs=0.01)
    cnn.page.keyboard.down("Control")
    cnn.page.mouse.wheel(0, -100)
    cnn.page.keyboard.up("Control")
    wait_until(cnn.page, f"({VIEW}.picture.to - {VIEW}.picture.from) / {VIEW}.whole.head.span < 0.8")
    closer = view(cnn)
    cnn.page.keyboard.down("Shift")
    cnn.page.mouse.wheel(0, 100)
    cnn.page.keyboard.up("Shift")
    wait_until(cnn.page, f"{VIEW}.picture.from / {VIEW}.whole.head.span > {closer['from']}")
    cnn.page.keyboard.press("0")
    assert (view(cnn)["from"], view(cnn)["to"]) == (0, 1)


def test_a_step_is_reached_by_number_by_key_and_by_click(cnn):
    steps = profnb.load(HERE).steps
    span_ms = profnb.load(HERE).events.eval("begin_us + duration_us").max() / 1000
    cnn.page.get_by_label("go to step").fill("5")
    cnn.page.keyboard.press("Enter")
    row = steps[steps.step_num == 5].iloc[0]
    assert view(cnn)["from"] * span_ms == pytest.approx(row.begin_ms - 0.04 * row.duration_ms, abs=0.01)
    assert view(cnn)["to"] * span_ms == pytest.approx(row.begin_ms + 1.04 * row.duration_ms, abs=0.01)
    cnn.shot("timeline-step")
    cnn.page.get_by_label("next step (])").click()
    assert view(cnn)["from"] * span_ms == pytest.approx(steps.begin_ms[6], abs=0.1)
    cnn.page.get_by_label("go to step").fill("99")
    cnn.page.keyboard.press("Enter")
    assert "no step 99 (0 to 7)" in cnn.page.inner_text(".profnb-timeline")
    cnn.page.get_by_label("all of it (0)").click()
    x = 168 + (steps.begin_ms[2] + steps.duration_ms[2] / 2) / span_ms * (box(cnn)["width"] - 168)
    cnn.page.mouse.click(box(cnn)["x"] + x, box(cnn)["y"] + 28)
    assert view(cnn)["from"] * span_ms == pytest.approx(steps.begin_ms[2], abs=0.1)


def test_search_counts_and_walks_the_matches_in_time_order(cnn):
    events = profnb.load(HERE).events
    wanted = events[events.name.str.contains("conv2d", case=False) & events.name.str.contains("relu", case=False)]
    cnn.page.get_by_label("search events").fill("conv2d relu")
    bar = cnn.page.locator(".profnb-timeline")
    assert f"{len(wanted)}" in bar.inner_text()
    cnn.page.keyboard.press("Enter")
    begins = []
    for number in range(1, 4):
        assert f"{number} of {len(wanted)}" in bar.inner_text()
        begins.append(cnn.page.evaluate(f"{VIEW}.picture.marks.begin[{VIEW}.picture.selected]"))
        assert re.search("relu", panel(cnn), re.IGNORECASE)
        cnn.page.get_by_label("next match (N)").click()
    assert begins == (wanted.begin_us.sort_values().head(3) * 1000).astype(int).tolist()
    cnn.shot("timeline-search")
    cnn.page.get_by_label("search events").fill("no such event")
    assert view(cnn)["selected"] >= -1
    assert cnn.page.evaluate(f"{VIEW}.search.found.length") == 0


MS = 10**9


def table_of(page):
    """The rows of the table of a measured range, as text."""
    return page.page.locator(".profnb-timeline [aria-live] tbody tr").evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")


def hand_made():
    steps = [event("train", k * 10 * MS, 8 * MS, step_num=k, _r=1) for k in range(3)]
    ops = [event("a:MatMul", k * 10 * MS + MS, 4 * MS, long_name="<b>bold</b>") for k in range(3)]
    inner = [event("<img src=x onerror=alert(1)>", k * 10 * MS + 2 * MS, MS, correlation_id=k) for k in range(3)]
    kernels = [event(f"kernel", k * 10 * MS + 5 * MS, 2 * MS, correlation_id=k) for k in range(3)]
    python = line("python", *(e for trio in zip(steps, ops, inner, strict=True) for e in trio))
    return read(host(python, line("pool", event("b:Add", 0, 28 * MS))), gpu(line("Stream #1", *kernels)))


def point(page, ms, row_top):
    """Where a time (of 28 ms) and a row stand in the window."""
    return box(page)["x"] + 168 + ms / 28 * (box(page)["width"] - 168), box(page)["y"] + 40 + row_top + 8


# Rows from the top: stream at 0, python's three at 22, 39, 56, pool at 78.


def test_an_event_tells_its_numbers_and_its_kernel(open_trace):
    page = open_trace(hand_made())
    page.page.mouse.move(*point(page, 12.0, 39))
    assert "a:MatMul" in panel(page)
    page.page.mouse.click(*point(page, 11.5, 39))
    text = panel(page)
    assert "4.00 ms · self 3.00 ms · begins at 11.0 ms · step 1 · kernel launch · Python (steps)" in text
    assert "long_name: <b>bold</b>" in text
    page.page.mouse.click(*point(page, 6.0, 0))
    assert "2.00 ms · self 2.00 ms · begins at 5.00 ms · step 0 · device compute · GPU:0 Stream #1 · launch to start 3.00 ms" in panel(page)
    page.page.mouse.click(*point(page, 12.5, 56))
    assert "<img src=x onerror=alert(1)>" in panel(page)
    assert "kernel launch" in panel(page)
    page.shot("timeline-flow")
    assert page.errors == []
    assert page.count(".profnb-timeline img") == 0


def test_a_dragged_range_is_measured_to_the_pixel(open_trace):
    page = open_trace(hand_made())
    width = box(page)["width"] - 168
    drag(page, 168 + 10 / 28 * width, 168 + 19.95 / 28 * width, 40 + 39 + 8)  # the next step begins at 20 ms
    text = panel(page)
    wall = float(re.match(r"([\d.]+) ms wall", text)[1])
    assert wall == pytest.approx(10, abs=0.1)
    # In 10..20 ms: train 8 - 4, MatMul 4 - 1, inner 1, kernel 2, Add 10; python is busy 8 of 10 ms.
    assert float(re.search(r"Python \(steps\) busy ([\d.]+) ms", text)[1]) == pytest.approx(8, abs=0.1)
    assert "5 events on the lanes shown" in text
    rows = table_of(page)
    assert [row[0] for row in rows] == ["b:Add", "train", "a:MatMul", "kernel", "<img src=x onerror=alert(1)>"]
    assert [float(row[1].removesuffix(" ms")) for row in rows] == pytest.approx([10, 4, 3, 2, 1], abs=0.1)
    assert [row[3] for row in rows] == ["1"] * 5
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("m")
    assert view(page)["from"] * 28 == pytest.approx(10, abs=0.1)
    page.shot("timeline-measure")


def test_double_click_goes_to_an_event_and_a_name_folds_its_rows(open_trace):
    page = open_trace(hand_made())
    page.page.mouse.dblclick(*point(page, 11.5, 39))
    shown = view(page)
    assert (shown["from"] * 28, shown["to"] * 28) == pytest.approx((10.2, 15.8), abs=0.05)
    height = page.page.evaluate(f"{VIEW}.bands.height")
    page.page.mouse.click(box(page)["x"] + 40, box(page)["y"] + 40 + 30)
    assert view(page)["folded"] == [1]
    assert page.page.evaluate(f"{VIEW}.bands.height") == height - 2 * 17
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("?")
    assert "zoom in, out" in panel(page)
    page.shot("timeline-help")


def test_a_large_page_draws_first_and_then_takes_every_event(open_trace, monkeypatch):
    from profnb.timeline import element

    monkeypatch.setattr(element, "_FIRST_MARKS", 3)
    many = line("t", *(event(f"e{k % 3}", 10 * k * MS, 9 * MS if k % 2 else MS) for k in range(40)))
    page = open_trace(read(host(many)))
    wait_until(page.page, f"{VIEW}.whole.head.marks === 40 && !{VIEW}.pending")
    assert page.count(".profnb-every") == 0
    assert view(page)["marks"] == 40 and page.page.evaluate(f"{VIEW}.whole.head.merged") == 0
    page.page.get_by_label("search events").fill("e1")
    assert page.page.evaluate(f"{VIEW}.search.found.length") == 13
    page.page.mouse.click(*[box(page)[side] + by for side, by in (("x", 168 + (box(page)["width"] - 168) * 14.5 / 399), ("y", 48))])
    assert panel(page).startswith("e1") and "9.00 ms" in panel(page)
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("r")
    assert "40 events on the lanes shown" in panel(page)
    assert page.errors == []


def test_empty_and_odd_traces_open(open_trace):
    page = open_trace(read(host(line("one", event("instant", 5, 0)))))
    assert view(page)["marks"] == 1
    page = open_trace(read(host(line("deep", *(event(f"e{i}", i, 1000 - 2 * i) for i in range(300))))))
    assert page.errors == []


def test_in_colab_its_own_call_brings_the_detail(browser, tmp_path):
    """Colab's page is played by an object with its call's name and shape; the answers are the kernel's own."""
    from chromium import Page

    from profnb.timeline.element import timeline_script
    from profnb.timeline import element
    from profnb.timeline.element import answer_question
    from profnb.timeline.scene import Scene

    study = profnb.load(HERE).study
    most, element._NOTEBOOK_MARKS = element._NOTEBOOK_MARKS, 200
    try:
        html = element.build_timeline(study).html("abc")
    finally:
        element._NOTEBOOK_MARKS = most
    file = tmp_path / "colab.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{html}<script>{timeline_script()}</script>", "utf-8")
    page = Page(browser)
    page.page.expose_function("askPython", lambda question: answer_question(Scene(study), question))
    page.page.add_init_script(
        "const mayAnswer = new Promise((let_answer) => { window.letAnswer = let_answer; });"
        "window.google = {colab: {kernel: {accessAllowed: true, invokeFunction: async (name, [question]) => { await mayAnswer; return"
        " ({data: {'application/json': {answer: name === 'profnb.abc' ? await window.askPython(question) : ''}}}); }}}}"
    )
    page.page.goto(file.as_uri())
    page.page.wait_for_selector(".profnb-timeline[data-ms]")
    assert view(page)["marks"] <= 200  # before the kernel answers
    page.page.evaluate("letAnswer()")
    wait_until(page.page, f"{VIEW}.detail.source")
    page.page.get_by_label("next step (])").click()
    wait_until(page.page, f"{VIEW}.picture.marks !== {VIEW}.whole")
    assert page.page.evaluate(f"{VIEW}.picture.marks.head.merged") == 0
    assert page.errors == []
    page.context.close()


def test_a_list_of_choices_is_as_dark_as_the_notebook_around_it(cnn):
    shown = "getComputedStyle(document.querySelector('.profnb-timeline select')).colorScheme"
    assert cnn.page.evaluate(shown) == "light"
    cnn.page.evaluate(f"(() => {{ document.body.style.color = '#eee'; {VIEW}.drawNow(); }})()")
    assert cnn.page.evaluate(shown) == "dark"
