"""What a timeline says beside its lanes, what a search found, and frames of frameworks that fold: in headless Chromium."""

import pytest
from chromium import browser, one_page, open_page, settle, wait_until  # noqa: F401
from test_browser_timeline import CANVAS, MS, VIEW, cnn_page, hand_made, open_trace, panel, point, view  # noqa: F401
from traces import event, host, line, read

from profnb.timeline.pack import is_framework_frame

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]

DETAILS = ".profnb-timeline [role=region][aria-label=details]"


def found(page):
    return page.page.locator(f"{DETAILS} > div").nth(1)


def results(page):
    """The rows of the table of the longest matches, as text."""
    return found(page).locator("tbody tr").evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")


@pytest.mark.parametrize(("width", "is_beside"), [(1366, True), (1100, True), (400, False)])
def test_details_stand_beside_the_lanes_or_above_them_and_are_seen_at_once(open_page, cnn_page, width, is_beside):
    page = open_page(cnn_page, width=width)
    page.page.wait_for_selector(".profnb-timeline[data-ms]")
    settle(page.page)
    lanes, details = page.page.locator(CANVAS).bounding_box(), page.page.locator(DETAILS).bounding_box()
    timeline = page.page.locator(".profnb-timeline").bounding_box()
    if is_beside:
        assert details["x"] >= lanes["x"] + lanes["width"]
        assert abs(details["y"] - lanes["y"]) < 100
        assert max(lanes["y"] + lanes["height"], details["y"] + details["height"]) - timeline["y"] <= 768
    else:
        assert details["y"] + details["height"] <= lanes["y"]
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.page.set_viewport_size({"width": 700, "height": 768})  # the same timeline on a narrower page
    wait_until(page.page, f"document.querySelector('{DETAILS}').getBoundingClientRect().bottom <= document.querySelector('{CANVAS}').getBoundingClientRect().top")
    page.page.set_viewport_size({"width": 1366, "height": 768})  # and back
    wait_until(page.page, f"document.querySelector('{DETAILS}').getBoundingClientRect().left >= document.querySelector('{CANVAS}').getBoundingClientRect().right")
    assert page.errors == []


def test_pointing_at_an_event_above_the_lanes_does_not_move_them(open_trace):
    page = open_trace(hand_made(), width=700)
    before = page.page.locator(CANVAS).bounding_box()
    page.page.mouse.click(*point(page, 11.5, 39))
    assert "a:MatMul" in panel(page)
    assert page.page.locator(CANVAS).bounding_box() == before


def test_a_search_sums_up_what_it_found_and_a_click_goes_to_one_of_the_longest(open_trace):
    """Three MatMul of 4, 2 and 6 ms: 12 ms in all, 4 on average."""
    ops = [event("a:MatMul", begin * MS, long * MS) for begin, long in ((0, 4), (10, 2), (20, 6))]
    page = open_trace(read(host(line("python", *ops, event("b:Add", 27 * MS, MS)))))
    page.page.get_by_label("search events").fill("matmul")
    assert found(page).inner_text().startswith("3 matches · 12.0 ms in all · 4.00 ms on average")
    assert [row[1] for row in results(page)] == ["6.00 ms", "4.00 ms", "2.00 ms"]
    begin = f"{VIEW}.picture.marks.begin[{VIEW}.picture.selected] * {VIEW}.whole.head.unit_ps / {MS}"
    walked = []
    for key in ("Enter", "Enter", "Enter", "Shift+Enter"):
        page.page.keyboard.press(key)
        walked.append(page.page.evaluate(begin))
    assert walked == [0, 10, 20, 10]
    found(page).get_by_role("button", name="a:MatMul").first.click()
    assert page.page.evaluate(begin) == 20
    assert "3 of 3" in page.page.inner_text(".profnb-timeline")
    page.page.get_by_label("search events").fill("no such event")
    assert found(page).inner_text().startswith("0 matches among 4 events")
    page.page.get_by_label("search events").fill("")
    assert found(page).inner_text() == ""
    assert page.errors == []


def test_a_search_moves_nothing_and_tells_ops_by_their_ends_and_kernels_by_their_functors(open_trace):
    kernel = "void cudnn::cnn::%s<float, 1024, 5>(int, int, int, float const*, float const*)"
    events = [
        event(kernel % "implicit_convolve_sgemm", 0, 4 * MS),
        event("gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter", 4 * MS, 3 * MS),
        event("convolve", 8 * MS, 2 * MS),
    ]
    page = open_trace(read(host(line("python", *events))), width=1366)
    before = page.page.locator(CANVAS).bounding_box()
    page.page.get_by_label("search events").fill("conv")
    assert [row[0] for row in results(page)] == ["implicit_convolve_sgemm…", "…2D/Conv2DBackpropFilter", "convolve"]
    page.page.keyboard.press("Enter")
    assert "1 of 3" in page.page.inner_text(".profnb-timeline") and page.page.locator(CANVAS).bounding_box() == before
    table = found(page).get_by_label("the longest matches")
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")  # the lane, too, is seen
    assert page.errors == []


def wrapped():
    """main() calls a module through torch's _call_impl; a leaf of torch that calls nothing; a file of the user named like no library's."""
    return read(host(line(
        "python",
        event("train.py(3): main", 0, 20 * MS),
        event("torch/nn/modules/module.py(1779): _call_impl", MS, 10 * MS),
        event("model.py(9): forward", MS + 100, 9 * MS),
        event("aten::addmm", 2 * MS, MS),
        event("torch/cuda/__init__.py(975): synchronize", 12 * MS, 5 * MS),
    )))  # fmt: skip


def names(page):
    """The names on each row of lanes, as they are drawn."""
    return page.page.evaluate(
        f"(() => {{ const m = {VIEW}.whole; return Array.from({{length: m.head.rows}}, (_, row) => [...m.name.slice(m.first[row], m.first[row + 1])]"
        ".map(name => m.head.names[name])); })()"
    )


def test_frames_of_frameworks_fold_until_somebody_wants_them(open_trace):
    page = open_trace(wrapped())
    leaf, wrapper = "torch/cuda/__init__.py(975): synchronize", "torch/nn/modules/module.py(1779): _call_impl"
    assert names(page) == [["train.py(3): main"], ["model.py(9): forward", leaf], ["aten::addmm"]]
    toggle = page.page.get_by_role("button", name="framework frames")
    assert toggle.get_attribute("aria-pressed") == "false"
    page.page.evaluate(f"{VIEW}.select({VIEW}.whole.head.names.indexOf('aten::addmm') >= 0 ? 3 : -1)")
    assert "aten::addmm" in panel(page) and "1.00 ms" in panel(page)
    toggle.click()
    assert names(page) == [["train.py(3): main"], [wrapper, leaf], ["model.py(9): forward"], ["aten::addmm"]]
    assert "aten::addmm" in panel(page)  # what was selected still is
    page.page.get_by_label("search events").fill("_call_impl")
    assert found(page).inner_text().startswith("1 match · 10.0 ms in all")
    page.page.locator(CANVAS).focus()
    page.page.keyboard.press("g")
    assert "(1 with those in folded frames)" in found(page).inner_text()
    assert page.errors == []


@pytest.mark.parametrize(
    ("name", "is_framework"),
    [
        ("torch/nn/modules/module.py(1779): _call_impl", True),
        ("/opt/conda/lib/python3.11/site-packages/mylib/a.py(1): f", True),
        ("threading.py(1032): _bootstrap", True),
        ("train_ddp.py(82): train_step", False),
        ("mytorch/model.py(9): forward", False),
        ("$builtins len", True),
        ("$<unknown> __exit__", True),
        ("$contextlib.py:131 __enter__", True),
        ("$pjit.py:120 cache_miss", True),
        ("$train.py:12 main", False),
        ("$util.py:826 test_event", False),
        ("aten::addmm", False),
        ("$", False),
    ],
)
def test_a_frame_is_told_by_its_file(name, is_framework):
    assert is_framework_frame(name) == is_framework
