"""What a person sees of a notebook in JupyterLab: saved, of somebody else, without its widgets, and with its kernel running.

A page of JupyterLab costs seconds of a processor, its kernel and the notebook's run more: one server, one notebook with a
report and a timeline, and one page serve all tests, which look at what is open and leave it so that others can.
"""

import json
import re

import pytest
from chromium import PATIENCE_MS, Lab, browser, complaints, nbformat, new_notebook, one_page, run_all, settle, wait_until  # noqa: F401
from conftest import PATIENT
from test_browser import ROWS, column
from test_browser_trials import CELL, output  # noqa: F401
from test_browser_timeline import CANVAS, VIEW

from profnb.drawing.programs import packed
from profnb.report.report import report_script

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]

NOTEBOOK = [
    "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n%load_ext profnb",
    "import keras, numpy as np\n"
    "x = np.ones((320, 8), 'float32'); y = np.zeros(320, 'int64')\n"
    "model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3)])\n"
    "model.compile('sgd', keras.losses.SparseCategoricalCrossentropy(from_logits=True))",
    "%%tfprofile\nmodel.fit(x, y, batch_size=8, verbose=0);",
    "import tensorflow as tf\n"
    "batches = iter(tf.data.Dataset.range(4000).map(lambda v: v + 1).batch(8).repeat())\n"
    "@tf.function\n"
    "def train(v):\n"
    "    return tf.reduce_sum(v)\n"
    "for _ in range(20): train(next(batches))\n"
    # A budget as small as a trace of millions would meet, so that the kernel has detail to add.
    "import profnb.timeline.element as e; e._NOTEBOOK_MARKS = 400",
    "%%tftimeline -o p\nfor _ in range(100): train(next(batches))",
]
HISTORY = [
    "import os; os.environ |= {'TF_CPP_MIN_LOG_LEVEL': '3', 'PROFNB_HISTORY': 'runs.sqlite'}\n%load_ext profnb",
    "import tensorflow as tf\n@tf.function\ndef train(v):\n    return tf.reduce_sum(v)",
    *["%%tfprofile -q -d traces\nfor _ in range(60): train(tf.ones(8))"] * 2,
    "%%tfprofile -q\nfor _ in range(50): train(tf.ones(8))",
    "%tfhistory",
]
REPORT, TIMELINE = ".profnb:not(.profnb-timeline)", ".profnb-timeline"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab whose folder holds one notebook in four states."""
    nbclient = pytest.importorskip("nbclient")
    root = tmp_path_factory.mktemp("lab")
    lab = Lab(root)
    nbformat.write(new_notebook(NOTEBOOK), root / "live.ipynb")
    nbformat.write(new_notebook(HISTORY), root / "history.ipynb")
    ran = new_notebook(NOTEBOOK)
    nbclient.NotebookClient(ran, **PATIENT, kernel_name="python3").execute()
    nbformat.write(ran, root / "trusted.ipynb")
    stateless = nbformat.from_dict(json.loads(json.dumps(ran)))
    stateless.metadata.pop("widgets", None)  # what JupyterLab itself saves by default
    nbformat.write(stateless, root / "stateless.ipynb")
    stranger = nbformat.from_dict(json.loads(json.dumps(ran)))
    stranger.cells[0].source += "\n# from somebody else"
    nbformat.write(stranger, root / "untrusted.ipynb")
    for name in ("trusted", "stateless"):
        lab.trust(name)
    with lab.running():
        yield lab


@pytest.fixture(scope="module")
def opened(lab, one_page):
    """Open a notebook in the one page, unless it is the one that stands there."""
    there = None

    def open_(*what):
        nonlocal there
        if what != there:
            lab.open(one_page, *what)
            there = what
        return one_page

    return open_


def scroll_to(page, selector):
    """Bring what a cell shows into view: JupyterLab makes and drops cells as they scroll in and out."""
    outer = "document.querySelector('.jp-Notebook .jp-WindowedPanel-outer')"
    for _ in range(600):
        if page.count(selector):
            page.page.locator(selector).first.scroll_into_view_if_needed()
            return
        page.page.evaluate(f"{outer}.scrollTop = ({outer}.scrollTop + 300) % {outer}.scrollHeight")
        page.page.wait_for_timeout(100)
    raise AssertionError(f"never there: {selector}")


THEMES = [("JupyterLab Light", 1200), ("JupyterLab Dark", 700)]


@pytest.fixture(scope="module", params=THEMES, ids=lambda it: f"{it[0]}-{it[1]}")
def saved(request, opened):
    page = opened("trusted", *request.param)
    page.name = f"{request.param[0].split()[1].lower()}-{request.param[1]}"
    return page


def test_a_saved_notebook_opened_again_shows_everything(saved):
    scroll_to(saved, REPORT)
    saved.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    saved.page.wait_for_selector(".profnb-icicle [role=treeitem]")
    settle(saved.page)
    saved.shot(f"lab-{saved.name}")
    assert saved.count(ROWS) > 5
    assert complaints(saved) == []
    saved.page.get_by_label("search ops").first.fill("matmul")
    assert all("matmul" in name.lower() for name in column(saved, 2))


def test_a_saved_timeline_still_zooms_without_a_kernel(saved):
    scroll_to(saved, TIMELINE)
    saved.page.wait_for_selector(".profnb-timeline[data-ms]")
    saved.page.locator(CANVAS).scroll_into_view_if_needed()
    saved.shot(f"lab-timeline-{saved.name}")
    width = "({0}.picture.to - {0}.picture.from)".format(VIEW)
    before = saved.page.evaluate(width)
    saved.page.get_by_label("zoom in (W)").click()
    zoomed = saved.page.evaluate(width) / before
    assert zoomed == pytest.approx(0.5, abs=0.01)
    saved.page.wait_for_selector("text=are drawn as blocks of several")
    assert "zooming in loads" not in saved.page.inner_text(".profnb-timeline")
    assert complaints(saved) == []


def test_keys_in_the_timeline_are_no_commands_of_the_notebook(saved):
    scroll_to(saved, TIMELINE)
    saved.page.wait_for_selector(".profnb-timeline[data-ms]")
    canvas = saved.page.locator(CANVAS)
    canvas.scroll_into_view_if_needed()
    settle(saved.page)
    canvas.click(position={"x": 400, "y": 60})
    cells = saved.count(".jp-Cell")
    for key in ["a", "d", "d", "b", "x", "m", "w", "s", "0", "0"]:
        saved.page.keyboard.press(key)
    saved.page.wait_for_timeout(300)
    assert saved.count(".jp-Cell") == cells
    assert saved.count(".jp-Dialog") == 0


def test_an_untrusted_notebook_shows_tables_and_bars_and_runs_nothing(opened):
    page = opened("untrusted", "JupyterLab Light", 700)
    scroll_to(page, REPORT)
    page.page.wait_for_selector(f"{REPORT} table")
    page.page.wait_for_timeout(1500)
    page.shot("lab-untrusted-700")
    assert page.count(f"{REPORT} table tr") > 5
    assert page.count(".profnb-tab[data-tab=Ops] input") == 0
    assert complaints(page) == []
    said = page.page.inner_text(REPORT)
    assert "host compute" in said.split("slowest steps")[0]  # the bar of the step, and the steps, as text
    assert "█" in said.split("slowest steps")[1].split("What to change")[0]


def test_where_no_script_runs_a_picture_of_text_remains(opened):
    page = opened("untrusted", "JupyterLab Light", 700)
    scroll_to(page, TIMELINE)
    page.page.wait_for_selector(".profnb-still")
    page.page.locator(".profnb-still").scroll_into_view_if_needed()
    page.shot("lab-timeline-untrusted")
    still = page.page.inner_text(".profnb-still")
    assert page.count(".profnb-timeline canvas") == 0
    assert "busy over" in still
    assert "█" in still or "▇" in still


def test_a_notebook_without_its_widgets_shows_no_error(opened):
    page = opened("stateless", "JupyterLab Light", 700)
    scroll_to(page, REPORT)
    page.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    assert complaints(page) == []
    assert page.count(".profnb-live") == 0


def test_keys_on_a_tab_of_the_report_are_no_commands_of_the_notebook(saved):
    scroll_to(saved, REPORT)
    saved.page.wait_for_selector(f"{REPORT} [role=tab]")
    cells = saved.count(".jp-Cell")
    for place in (saved.page.locator(f"{REPORT} [role=tab]").first, saved.page.locator(f"{REPORT} [role=treeitem]").first):
        place.click()
        for key in ["d", "d", "a", "b", "x", "0", "0"]:
            saved.page.keyboard.press(key)
    saved.page.wait_for_timeout(300)
    assert saved.count(".jp-Cell") == cells
    assert saved.count(".jp-Dialog") == 0


@pytest.fixture(scope="module")
def live(opened):
    """The notebook while its kernel lives, after all its cells ran."""
    page = opened("live", "JupyterLab Light", 1200)
    run_all(page)
    page.page.wait_for_selector(".profnb-live select", timeout=3 * PATIENCE_MS)  # a kernel starts, imports, trains
    scroll_to(page, TIMELINE)
    page.page.wait_for_selector(".profnb-timeline[data-ms]", timeout=3 * PATIENCE_MS)
    return page


def test_live_controls_drive_the_report_itself(live):
    scroll_to(live, REPORT)
    reports = live.count(REPORT)
    whole = live.page.text_content("[data-part^=Steps]")
    tables = live.count(f"{REPORT} table")
    live.shot("lab-live")
    live.page.get_by_label("kind of steps").select_option("warm-up steps")
    wait_until(live.page, r"/^Of \d+ warm-up steps, median/.test(document.querySelector('[data-part^=Steps]').textContent.trim())")
    wait_until(live.page, "/warm-up steps/.test(document.querySelector('[data-part=\"Ops/Ops\"]').innerText)")
    live.page.get_by_label("search ops").fill("matmul")
    assert live.count(ROWS) > 1
    assert all("matmul" in name.lower() for name in column(live, 2))
    assert live.count(REPORT) == reports
    assert live.count(f"{REPORT} table") <= tables  # in the place of what stood there, and no second copy
    live.page.get_by_role("button", name="all steady steps").click()
    wait_until(live.page, f"document.querySelector('[data-part^=Steps]').textContent === {json.dumps(whole)}")
    assert complaints(live) == []


def test_zooming_in_loads_every_event_from_the_kernel(live):
    scroll_to(live, TIMELINE)
    live.page.wait_for_selector("text=zooming in loads every event")
    whole = live.page.evaluate(f"({{marks: {VIEW}.whole.head.marks, merged: {VIEW}.whole.head.merged, events: {VIEW}.whole.head.events}})")
    assert whole["marks"] <= 400 < whole["events"]
    live.page.get_by_label("next step (])").click()
    wait_until(live.page, f"{VIEW}.picture.marks !== {VIEW}.whole")
    near = live.page.evaluate(f"({{merged: {VIEW}.picture.marks.head.merged, marks: {VIEW}.picture.marks.head.marks}})")
    assert near["merged"] == 0
    assert near["marks"] > 20
    live.page.locator(CANVAS).scroll_into_view_if_needed()
    live.shot("lab-timeline-live")
    live.page.get_by_label("all of it (0)").click()
    wait_until(live.page, f"{VIEW}.picture.marks === {VIEW}.whole")
    assert complaints(live) == []
    assert live.errors == []


def test_a_click_on_a_run_of_the_history_opens_its_report(opened):
    page = opened("history", "JupyterLab Light", 1200)
    run_all(page)
    runs = page.page.locator(".profnb-point[role=button]")
    runs.first.wait_for(timeout=3 * PATIENCE_MS)
    assert runs.count() == 2 < page.count(".profnb-point")  # the third run's trace was not kept
    settle(page.page)
    page.shot("lab-history")
    runs.first.click()
    page.page.wait_for_selector(".profnb-run [role=tab]", timeout=PATIENCE_MS)
    settle(page.page)
    assert re.search(r"(?s)Of [\d.]+\s+m?s: .*\d+ train steps, median", page.page.inner_text(".profnb-run"))
    page.page.get_by_role("tab", name="Ops").first.click()
    assert page.count(f".profnb-run {ROWS}") > 1
    page.shot("lab-history-run")
    runs.nth(1).press("Enter")
    wait_until(page.page, "document.querySelectorAll('.profnb-run .profnb').length === 1")
    assert complaints(page) == []
    assert page.errors == []


def test_jupyterlab_gets_the_edited_cell_below_the_one_that_shows_it(output, lab, opened):
    notebook = new_notebook(["train()", "after()"])
    bundles = {"text/html": str(output), "text/plain": ""}, {"application/javascript": packed(report_script()), "text/plain": ""}
    notebook.cells[0].outputs = [nbformat.v4.new_output("display_data", data) for data in bundles]
    nbformat.write(notebook, lab.root / "trials.ipynb")
    lab.trust("trials")
    page = opened("trials", "JupyterLab Light", 1200)
    page.page.get_by_role("button", name="insert below").click()
    page.page.get_by_role("button", name="inserted").wait_for()
    page.shot("lab-inserted")
    texts = "[...document.querySelectorAll('.jp-CodeCell .cm-content')].map(e => [...e.querySelectorAll('.cm-line')].map(l => l.textContent).join('\\n'))"
    wait_until(page.page, f"{texts}.length === 3")
    assert page.page.evaluate(texts) == ["train()", CELL, "after()"]
    assert complaints(page) == []
