"""Hostile names in a real browser: nothing runs, nothing is asked of the network, no element appears.

    PROFNB_ALL_PAGES=1 pytest -n0 tests/browser/test_poison.py     # every payload in every place of every trace
"""

import os
import shutil
import warnings

import pytest
from chromium import Page, browser  # noqa: F401
from conftest import DATA, SHARED
from poison import PAYLOADS, RUN, SIGN, poisoned_sidecar, poisoned_trace

import profnb
from profnb.core.errors import TraceFormatError

ALL = bool(os.environ.get("PROFNB_ALL_PAGES"))  # every page takes minutes; the gate opens a few
pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]

TRACES = [
    DATA / "cpu-cnn.xplane.pb",
    *(SHARED / name for name in ("gpu-cnn-batch8/host.xplane.pb", "kineto/changed.json.gz", "tpu-v6e/training.xplane.pb", "run-metadata/gpu.run_metadata.pb")),
]


@pytest.fixture
def drive(browser):
    """Open a page, touch everything on it, and say what went wrong."""

    def drive_(file):
        page = Page(browser)
        asked, said = [], []
        page.page.on("request", lambda request: asked.append(request.url))
        page.page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.page.goto(file.as_uri())
        page.page.wait_for_selector(".profnb")
        tabs = page.page.locator("[role=tab]")
        for at in range(tabs.count()):
            tabs.nth(at).click()
            page.page.evaluate("""() => {
              const seen = [...document.querySelectorAll('.profnb *, .profnb-timeline *')];
              for (const element of seen.filter(e => !e.closest('.js-plotly-plot')).slice(0, 4000)) {
                for (const kind of ['mouseover', 'mouseenter', 'mousemove', 'focus']) element.dispatchEvent(new MouseEvent(kind, {bubbles: true}));
              }
            }""")
        for heading in page.page.locator(".profnb-table th").all()[:6]:
            if heading.is_visible():
                heading.click()
        for chart in page.page.locator(".js-plotly-plot .draglayer").all()[:3]:
            if chart.is_visible():
                chart.hover(force=True)
        lane = page.page.locator(".profnb-timeline canvas[role=application]").first
        if lane.count():
            lane.hover()
            lane.click()
            for key in ("w", "w", "s", "ArrowRight", "n", "ArrowDown", "r", "l"):
                page.page.keyboard.press(key)
        page.page.wait_for_timeout(50)
        wrong = [f"asked for {url}" for url in asked if url != file.as_uri() and not url.startswith(("data:", "blob:"))]
        wrong += [f"dialog {text}" for text in said] + [f"error {text}" for text in page.errors]
        if page.page.evaluate(f"window.{SIGN}"):
            wrong.append("a payload ran")
        found = page.page.evaluate(f"document.querySelectorAll('.{SIGN}, iframe, base, meta[http-equiv=refresh], [onerror], [onload], [onmouseover]').length")
        if found:
            wrong.append(f"{found} elements of a payload")
        shown = page.page.evaluate("document.documentElement.innerText")
        page.context.close()
        return wrong, shown

    return drive_


def test_a_page_in_which_a_payload_did_become_markup_is_noticed_and_its_policy_stops_it(drive, tmp_path):
    """The guilty case: what the other tests would see, and that the policy alone is enough to stop it."""
    page = profnb.load(DATA / "cpu-cnn.xplane.pb").to_html(tmp_path / "x.html")
    text = page.read_text("utf-8")
    for name, payload in (("script", PAYLOADS["script"]), ("image", PAYLOADS["image"]), ("frame", PAYLOADS["frame"])):
        page.write_text(text.replace('<div class="profnb"', payload + '<div class="profnb"', 1), "utf-8")
        wrong, _ = drive(page)
        assert "a payload ran" not in wrong
        assert wrong == ([] if name == "script" else wrong)
        assert not any("example" in one for one in wrong if one.startswith("asked")) or name == "image"
    policy = text[text.index("<meta http-equiv") : text.index(">", text.index("<meta http-equiv")) + 1]
    page.write_text(text.replace(policy, "").replace('<div class="profnb"', PAYLOADS["script"] + '<div class="profnb"', 1), "utf-8")
    assert "a payload ran" in drive(page)[0]


CASES = [(payload, place, at) for payload in PAYLOADS for place in ("before", "after", "instead") for at in range(len(TRACES))]
QUICK = {("image", "after", 0), ("quote", "after", 1), ("closed script", "before", 2), ("svg", "instead", 4), ("json", "after", 1)}


@pytest.mark.parametrize(
    ("payload", "place", "at"),
    [case for case in CASES if case in QUICK or ALL],
)
def test_a_poisoned_trace_does_nothing(drive, tmp_path, payload, place, at):
    if not TRACES[at].exists():
        pytest.skip("needs ../shared/traces")
    try:
        p = profnb.load(poisoned_trace(TRACES[at], PAYLOADS[payload], place, tmp_path))
    except TraceFormatError:
        pytest.skip("refused")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = p.to_html(tmp_path / "x.html")
    wrong, shown = drive(file)
    assert wrong == []
    # It stands on the page, as text, where the trace is still understood; long names are cut in the middle.
    assert RUN in shown or PAYLOADS[payload][-12:] in shown or place == "before"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    keras = pytest.importorskip("keras")
    import numpy as np

    logdir = tmp_path_factory.mktemp("logs")
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3, name="head")])
    model.compile("sgd", "mse")
    with profnb.profile(logdir=str(logdir), python=True) as p:
        model.fit(np.ones((64, 6), "float32"), np.ones((64, 3), "float32"), batch_size=8, verbose=0)
    return p.recording.path.parent


@pytest.mark.parametrize("payload", [name for name in PAYLOADS if name in ("image", "quote") or ALL])
def test_a_poisoned_file_beside_a_trace_does_nothing(drive, saved, tmp_path, payload):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    poisoned_sidecar(next(run.glob("*.profnb.json.gz")), PAYLOADS[payload])
    p = profnb.load(run)
    wrong, shown = drive(p.to_html(tmp_path / "x.html"))
    assert wrong == []
    assert RUN in shown or PAYLOADS[payload][-12:] in shown
