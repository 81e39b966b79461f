"""The timeline's lanes and tracks, minimap, search and table, as a person works with them in headless Chromium."""

import pytest
from chromium import browser, one_page, open_page, settle, wait_until  # noqa: F401
from test_browser_timeline import CANVAS, MS, VIEW, box, drag, open_trace, panel, table_of, view  # noqa: F401
from traces import event, gpu, host, line, read

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]


def a_run():
    """Eight steps of 8 ms, one each 10 ms, with kernels, what repeats them, two workers, memory and a buffer."""
    steps = range(8)
    python = [
        e for k in steps for e in (event("train", k * 10 * MS, 8 * MS, step_num=40 + k, _r=1), event("launch", k * 10 * MS + MS, MS, correlation_id=k + 1))
    ]
    kernels = [event("gemm", k * 10 * MS + 3 * MS, 4 * MS, correlation_id=k + 1, group_id=k) for k in steps]
    worker = [event("b:Add", k * 10 * MS, (1 + k) * MS // 2) for k in steps]
    held = [
        event("MemoryAllocation", k * 10 * MS + 5 * MS, 0, allocator_name="GPU_0_bfc", bytes_allocated=1_000_000 * (k + 1), allocation_bytes=1, addr=k) for k in steps
    ]
    return read(
        host(
            line("python", *python), line("tf_Compute/5", *worker), line("tf_Compute/6", event("c:Mul", 0, 3 * MS)), line("memory", *held),
            line("data", *(event("Iterator::Root::Prefetch", k * 10 * MS, 10, buffered_elements=2, buffer_limit=4) for k in steps)),
        ),
        gpu(line("Stream #7(Compute)", *kernels), line("Steps", *(event(str(k), k * 10 * MS + 3 * MS, 4 * MS, group_id=k) for k in steps))),
    )  # fmt: skip


def labels(page):
    return page.page.evaluate(f"{VIEW}.bands.bands.map(band => {VIEW}.bands.labelOf(band))")


def button(page, name):
    return page.page.locator(".profnb-timeline").get_by_role("button", name=name, exact=True)


LANES = "lanes ▾: hide and pin lanes (L)"
ALL = ["GPU:0 compute #7", "GPU:0 derived (1)", "Python (steps)", "TensorFlow worker 1", "TensorFlow worker 2", "data", "memory"]


def test_it_opens_on_three_steps_and_the_minimap_shows_where_and_moves_it(open_trace):
    page = open_trace(a_run(), at_first=True)
    status = "steps 42 to 44 are typical of 8"  # all threes take as long: the one in the middle
    assert status in page.page.inner_text(".profnb-timeline")
    unit = page.page.evaluate(f"[{VIEW}.picture.from, {VIEW}.picture.to].map(t => t * {VIEW}.whole.head.unit_ps)")
    assert unit == pytest.approx([20 * MS - 0.04 * 28 * MS, 48 * MS + 0.04 * 28 * MS], rel=0.001)
    slider = page.page.get_by_role("slider", name="what is shown of the whole trace")
    assert slider.get_attribute("aria-valuetext").startswith("steps 42 to 44, 30.2 ms from 18.9 ms on, of 78.0 ms")
    where = slider.bounding_box()
    page.page.mouse.click(where["x"] + 168 + (where["width"] - 168) * 60 / 78, where["y"] + 20)
    middle = f"({VIEW}.picture.from + {VIEW}.picture.to) / 2 * {VIEW}.whole.head.unit_ps / {MS}"
    assert page.page.evaluate(middle) == pytest.approx(60, abs=0.3)
    before = page.page.evaluate(middle)
    slider.focus()
    page.page.keyboard.press("ArrowLeft")
    assert page.page.evaluate(middle) == pytest.approx(before - 0.15 * 30.24, abs=0.1)
    wait_until(page.page, "/^steps 44 to 47/.test(document.querySelector('[role=slider]').getAttribute('aria-valuetext'))")
    assert page.errors == []


def test_derived_lanes_are_one_row_until_opened_and_count_as_the_ruler(open_trace):
    page = open_trace(a_run())
    assert labels(page) == ALL
    page.page.mouse.click(box(page)["x"] + 60, box(page)["y"] + 40 + 22 + 8)
    assert labels(page) == [*ALL[:2], "GPU:0 Steps", *ALL[2:]]
    names = page.page.evaluate(f"(() => {{ const m = {VIEW}.whole, l = m.head.lines.findIndex(x => x.label === 'GPU:0 Steps'), r = m.head.lines[l].row; return [...m.name.slice(m.first[r], m.first[r + 1])].map(n => m.head.names[n]) }})()")
    assert set(names) & {f"step {40 + k}" for k in range(8)}
    assert set(names) <= {f"step {40 + k}" for k in range(8)} | {"outside the steps"}


def test_lanes_are_filtered_hidden_and_pinned(open_trace):
    page = open_trace(a_run())
    page.page.get_by_label("filter lanes").fill("worker")
    assert labels(page) == ["TensorFlow worker 1", "TensorFlow worker 2"]
    page.page.get_by_label("filter lanes").fill("tf_compute/6")  # the recorder's own name is known too
    assert labels(page) == ["TensorFlow worker 2"]
    page.page.get_by_label("filter lanes").fill("")
    button(page, LANES).click()
    page.page.get_by_role("checkbox", name="TensorFlow worker 1 · 8 events").uncheck()
    assert "TensorFlow worker 1" not in labels(page)
    button(page, "pin TensorFlow worker 2 on top").press("Enter")
    assert labels(page)[0] == "TensorFlow worker 2"
    assert page.page.evaluate("document.activeElement.dataset.key") == "pin4"  # the keyboard stays where it was
    assert button(page, "pin TensorFlow worker 2 on top").get_attribute("aria-pressed") == "true"
    page.shot("timeline-lanes")
    # What is searched for is shown, wherever it was hidden.
    page.page.get_by_label("search events").fill("b:Add")
    page.page.keyboard.press("Enter")
    assert "TensorFlow worker 1" in labels(page)
    button(page, "only pinned").click()
    assert labels(page) == ["TensorFlow worker 2"]
    button(page, "show all").click()
    assert sorted(labels(page)) == sorted(ALL)
    assert page.errors == []


def test_a_pinned_lane_stays_where_others_scroll(open_trace):
    many = [line(f"thread {k:02}", *(event(f"e{k}.{d}", d, 1000 - 2 * d) for d in range(4))) for k in range(30)]
    page = open_trace(read(host(*many)))
    page.page.evaluate(f"(() => {{ const v = {VIEW}; v.bands.pinned.add(3); v.relay(); v.lane.scrollTop = 300; }})()")
    wait_until(page.page, f"{VIEW}.picture.scroll === 300 && !{VIEW}.pending")
    assert page.page.evaluate(f"{VIEW}.picture.placeAt(50).line") == 3
    assert page.page.evaluate(f"{VIEW}.picture.placeAt({VIEW}.picture.edge + 10).line") != 3
    short = box(page)["height"]
    button(page, "full height: every lane without scrolling, or a short picture (F)").click()
    wait_until(page.page, f"{VIEW}.lane.clientHeight >= {VIEW}.bands.height")
    assert box(page)["height"] > short
    page.page.keyboard.press("f")
    wait_until(page.page, f"{VIEW}.lane.clientHeight < {VIEW}.bands.height")


def test_tracks_say_what_was_held(open_trace):
    page = open_trace(a_run())
    image = page.page.get_by_role("img", name="GPU_0_bfc memory in use: 1.00 MB to 8.00 MB; Root::Prefetch buffered elements: 2 to 2")
    assert image.is_visible()
    # From 20 to 40 ms: what 15 ms left, then the samples at 25 and 35 ms.
    page.page.evaluate(f"{VIEW}.measure(20e9 / {VIEW}.whole.head.unit_ps, 40e9 / {VIEW}.whole.head.unit_ps, 0, true)")
    assert "GPU_0_bfc memory in use 2.00 MB to 4.00 MB · Root::Prefetch buffered elements 2" in panel(page)
    # Before the first sample nothing is drawn.
    page.page.evaluate(f"{VIEW}.show(0, 10e9 / {VIEW}.whole.head.unit_ps)")
    wait_until(page.page, f"!{VIEW}.pending")
    ink = page.page.evaluate(f"(() => {{ const c = {VIEW}.tracks.canvas, r = c.width / c.clientWidth, at = (x) => c.getContext('2d').getImageData(Math.round((168 + (c.clientWidth - 168) * x) * r), Math.round(29 * r), 1, 1).data[3]; return [at(0.3), at(0.8)] }})()")
    assert ink[0] == 0 < ink[1]
    button(page, LANES).click()
    page.page.get_by_role("checkbox", name="GPU_0_bfc memory in use").uncheck()
    assert page.page.get_by_role("img", name="Root::Prefetch buffered elements: 2 to 2", exact=True).is_visible()


def test_search_by_how_long_which_category_which_step_and_lane(open_trace):
    page = open_trace(a_run())
    field = page.page.get_by_label("search events")
    found = lambda: page.page.evaluate(f"{VIEW}.search.found.length")
    for text, count in [(">=4ms", 25), (">4.1ms <10ms", 8), ("<600us >1us", 1), ("train step:43", 1), ("lane:worker", 9), ("lane:nothing", 0), ("add >3ms", 3)]:
        field.fill(text)
        assert found() == count, text
    field.fill("")
    page.page.get_by_label("category to search").select_option("device compute")
    # The kernels, and what repeats them.
    assert found() == page.page.evaluate(f"(() => {{ const m = {VIEW}.whole, i = m.head.categories.findIndex(c => c[0] === 'device compute'); return m.category.filter(c => c === i).length }})()") >= 8
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("Escape")
    assert page.page.evaluate(f"{VIEW}.picture.query") is None


def test_the_table_of_a_range_sorts_by_each_heading(open_trace):
    page = open_trace(a_run())
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("r")
    names = lambda: [row[0] for row in table_of(page)]
    own = {row[0]: row[1] for row in table_of(page)}
    # Eight steps of 8 ms less a launch of 1 ms; kernels once, though a derived lane repeats them.
    assert (own["train"], own["launch"], own["gemm"], own["b:Add"], own["c:Mul"]) == ("56.0 ms", "8.00 ms", "32.0 ms", "18.0 ms", "3.00 ms")
    assert names()[:3] == ["train", "gemm", "b:Add"]
    head = page.page.locator(".profnb-timeline [aria-live] th")
    assert [head.nth(i).get_attribute("aria-sort") for i in range(2)] == ["none", "descending"]
    button(page, "event").click()
    assert names() == sorted(names(), key=str.lower)
    assert head.nth(0).get_attribute("aria-sort") == "ascending"
    button(page, "occurrences").press("Enter")
    counts = [int(row[3]) for row in table_of(page)]
    assert counts == sorted(counts, reverse=True)
    text = page.page.evaluate(f"{VIEW}.panel.table.asText()")
    assert text.split("\n")[0].split("\t") == ["event", "own time", "of the range", "occurrences", "mean", "longest", "category"]
    assert len(text.split("\n")) == 1 + len(counts)
    page.shot("timeline-table")


def test_events_are_reached_and_told_without_a_mouse(open_trace):
    page = open_trace(a_run())
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("ArrowDown")
    assert panel(page).startswith("gemm")
    page.page.keyboard.press(".")
    assert "begins at 13.0 ms" in panel(page)
    page.page.keyboard.press("ArrowDown")
    assert panel(page).startswith("train") and "step 41" in panel(page)
    page.page.keyboard.press(",")
    assert "step 40" in panel(page)
    page.page.keyboard.press("ArrowUp")
    assert panel(page).startswith("gemm")
    page.page.keyboard.press("ArrowDown")
    for _ in range(2):  # the lane of the selected event: one row, then all of them
        before = page.page.evaluate(f"{VIEW}.bands.height")
        page.page.keyboard.press("o")
        assert page.page.evaluate(f"{VIEW}.bands.height") != before
    page.page.evaluate(f"{VIEW}.show({VIEW}.whole.head.span * 0.4, {VIEW}.whole.head.span * 0.5)")
    page.page.get_by_role("slider", name="what is shown of the whole trace").focus()
    page.page.keyboard.press("End")
    assert view(page)["from"] < 1 < view(page)["to"]
    page.page.keyboard.press("Home")
    assert view(page)["from"] < 0 < view(page)["to"] < 0.2
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("r")
    page.page.get_by_role("region", name="events in the measured range").focus()
    page.page.keyboard.press("End")  # scrolls the table
    assert view(page)["from"] < 0
    # A name is cut where its own characters reach the end of its event.
    wide, narrow = (page.page.evaluate(f"{VIEW}.picture.roomFor('{letter * 60}', 100)") for letter in "Mi")
    assert wide < narrow


def test_everything_that_can_be_reached_has_a_name(open_trace):
    page = open_trace(a_run())
    button(page, LANES).click()
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("r")
    nameless = page.page.locator(".profnb-timeline").evaluate(
        "root => [...root.querySelectorAll('button, input, select, [tabindex], canvas')].filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim())).map(e => e.outerHTML)"
    )
    assert nameless == []
    assert page.page.locator(CANVAS).get_attribute("aria-roledescription") == "timeline"


@pytest.fixture
def pair_page(open_page, tmp_path):
    """Two runs of eight and of six steps, the second's shorter and later."""
    from profnb.subjects.study import Study
    from profnb.timeline.element import timeline_script
    from profnb.timeline.element import build_pair

    steps = lambda count, period, begin, long: line("python", *(e for k in range(count) for e in (event("train", begin + k * period * MS, long * MS, step_num=k, _r=1), event("inner", begin + k * period * MS + MS, 2 * MS))))
    slow, fast = Study(read(host(steps(8, 10, 0, 9)))), Study(read(host(steps(6, 5, 7 * MS, 4))))
    file = tmp_path / "pair.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{build_pair(slow, fast, ('slow', 'fast')).html()}<script>{timeline_script()}</script>", "utf-8")
    page = open_page(file.as_uri())
    page.page.wait_for_selector(".profnb-pair[data-joined]")
    settle(page.page)
    yield page
    assert page.errors == []


PAIR = "document.querySelector('.profnb-pair').pair"
SEEN = f"{PAIR}.sides.map(s => [s.picture.from - s.picture.zero, s.picture.to - s.picture.zero].map(t => t * s.whole.head.unit_ps / {MS}))"


def test_two_runs_are_aligned_at_a_step_and_move_together(pair_page):
    page = pair_page.page
    assert [page.get_by_role("group", name=name, exact=True).get_by_role("button", name="zoom in (W)").count() for name in ("slow", "fast")] == [1, 1]
    # Each opens on a typical three; the slower ones need 29 ms.
    for seen in page.evaluate(SEEN):
        assert seen == pytest.approx([-0.04 * 29, 1.04 * 29], abs=0.01)
    begins = page.evaluate(f"{PAIR}.sides.map((s, i) => s.picture.zero === s.whole.head.steps.begin[{PAIR}.at[i]])")
    assert begins == [True, True]
    page.get_by_label("step of fast to align").fill("4")
    page.keyboard.press("Enter")
    assert page.evaluate(f"{PAIR}.sides[1].picture.zero * {PAIR}.sides[1].whole.head.unit_ps / {MS}") == pytest.approx(7 + 4 * 5, abs=0.01)
    page.get_by_label("step of fast to align").fill("99")
    page.keyboard.press("Enter")
    assert "no step 99 (0 to 5)" in page.inner_text(".profnb-pair")
    page.get_by_label("previous step of both").click()
    assert page.get_by_label("step of fast to align").input_value() == "3"
    page.locator(CANVAS).nth(1).focus()
    before = page.evaluate(SEEN)
    page.keyboard.press("d")
    one, two = page.evaluate(SEEN)
    assert one == pytest.approx(two, abs=0.01)
    assert one[0] == pytest.approx(before[0][0] + 0.15 * 1.08 * 29, abs=0.01)


def test_a_range_measured_in_one_run_is_measured_in_both(pair_page):
    page = pair_page.page
    page.evaluate(f"(() => {{ const s = {PAIR}.sides[0], at = t => s.picture.zero + t * {MS} / s.whole.head.unit_ps; s.measure(at(0), at(10), 0, true); }})()")
    # In 10 ms: one step of 9 ms with 2 inside it; of the other two of 4 ms with 2 inside each.
    rows = page.locator(".profnb-pair > [aria-live] tbody tr").evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")
    assert rows == [["train", "7.00 ms", "4.00 ms", "−3.00 ms"], ["inner", "2.00 ms", "4.00 ms", "+2.00 ms"]]
    pair_page.shot("timeline-pair")
