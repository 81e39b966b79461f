"""What a person sees of a report, in headless Chromium: the page as a file, and a notebook in JupyterLab."""

import json
from pathlib import Path

import pytest
from conftest import PATIENT
from chromium import Lab, act_until, browser, complaints, new_notebook, nbformat, open_page, run_all, settle, wait_until  # noqa: F401

import profnb

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]


@pytest.fixture(scope="module")
def report_file(tmp_path_factory):
    here = Path(__file__).parent / "data" / "cpu-cnn.xplane.pb"
    return profnb.load(here).to_html(tmp_path_factory.mktemp("page") / "report.html").as_uri()


ROWS = ".profnb-tab[data-tab=Ops] table tr"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 700])
def test_the_page_opens_offline_with_chart_and_tables(open_page, report_file, scheme, width):
    page = open_page(report_file, scheme=scheme, width=width)
    page.page.wait_for_selector(".js-plotly-plot .bars path")
    page.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    page.shot(f"page-{scheme}-{width}")
    assert page.errors == []
    assert page.count(ROWS) == 16
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    colour = page.page.evaluate("getComputedStyle(document.querySelector('.profnb-tab[data-tab=Ops] td')).color")
    light_text = sum(map(int, colour[4:-1].split(",")[:3])) > 380
    assert light_text == (scheme == "dark")


def column(page, number):
    return page.page.locator(f"{ROWS} td:nth-child({number})").all_inner_texts()


def test_ops_are_searched_sorted_grouped_and_shown_whole(open_page, report_file):
    page = open_page(report_file)
    search = page.page.get_by_label("search ops")
    search.fill("conv2d relu")
    assert all("conv2d" in name.lower() and "relu" in name.lower() for name in column(page, 2))
    assert 0 < page.count(ROWS) - 1 < 15
    search.fill("no such op")
    assert page.count(ROWS) == 1
    search.fill("")
    page.page.get_by_text("runs", exact=True).click()
    runs = [int(text.replace(",", "")) for text in column(page, 3)]
    assert runs == sorted(runs, reverse=True)
    page.page.get_by_text("runs ▾").click()
    runs = [int(text.replace(",", "")) for text in column(page, 3)]
    assert runs == sorted(runs)
    page.page.locator(".profnb-tab[data-tab=Ops] select").last.select_option("by type")
    assert any("ops" in name for name in column(page, 2))
    page.page.locator(".profnb-tab[data-tab=Ops] select").last.select_option("by op")
    page.page.get_by_role("button", name="show all").click()
    assert page.count(ROWS) > 40
    assert page.errors == []


def test_host_and_device_rows_keep_their_colours_and_are_told_apart(open_page, tmp_path):
    from traces import event, gpu, host, line, read

    from profnb.profile import Profile

    trace = read(host(line("p", event("a:Op", 0, 9))), gpu(line("Stream #1", event("kernel", 0, 5))))
    page = open_page(Profile(trace).to_html(tmp_path / "r.html").as_uri())
    page.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    colours = page.page.evaluate(f"[...document.querySelectorAll('{ROWS} td:first-child')].map(e => getComputedStyle(e).color)")
    assert len(set(colours)) == 2
    page.page.locator(".profnb-tab[data-tab=Ops] select").first.select_option("device")
    assert column(page, 2) == ["kernel"]


def test_layers_are_sorted_shown_whole_and_lead_to_their_ops(open_page, tmp_path):
    from traces import event, host, line, read

    from profnb.profile import Profile

    ops = [event("train", 0, 10**9, step_num=0, _r=1)]
    ops += [event(f"net/layer_{at}/MatMul:MatMul", at * 10**7, (at + 1) * 10**5) for at in range(30)]
    page = open_page(Profile(read(host(line("python", *ops)))).to_html(tmp_path / "r.html").as_uri())
    page.page.click('[role=tab]:text-is("Layers")')
    rows = page.page.locator(".profnb-tab[data-tab=Layers] .profnb-table tr")
    names = lambda: [text.split()[0] for text in page.page.locator(".profnb-tab[data-tab=Layers] .profnb-table td:nth-child(2)").all_inner_texts()]  # noqa: E731
    assert names()[:2] == ["layer_29", "layer_28"]
    assert rows.count() == 21
    page.page.get_by_role("button", name="show all 30").click()
    assert rows.count() == 31
    page.page.locator(".profnb-tab[data-tab=Layers] .profnb-table th button", has_text="own time").first.click()
    page.page.locator(".profnb-tab[data-tab=Layers] .profnb-table th button", has_text="own time").first.click()
    assert names()[0] == "layer_0"
    page.shot("layers")
    page.page.locator(".profnb-tab[data-tab=Layers] .profnb-table td", has_text="layer_7").first.click()
    assert page.page.get_by_label("search ops").input_value() == "net/layer_7/"
    assert page.page.get_by_label("search ops").is_visible()
    assert column(page, 2) == ["layer_7 · MatMul in net"]
    assert page.errors == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 700)])
def test_parts_of_the_report_are_tabs_with_their_charts(open_page, tmp_path, scheme, width):
    from programs import metadata_plane
    from test_xla import PROGRAM, T4, US, hlo
    from traces import event, gpu, host, line, read

    from profnb.profile import Profile

    steps = [event("train", at * 100 * US, 90 * US, step_num=at, _r=1) for at in range(8)]
    work = [hlo(name, at * 100 * US + begin * US, 10 * US) for at in range(8) for name, begin in (("dot.1", 10), ("fusion.1", 30))]
    trace = read(metadata_plane(jit_step=(3, PROGRAM)), host(line("python", *steps)), gpu(line("Stream #1", *work), stats=T4))
    page = open_page(Profile(trace).to_html(tmp_path / "r.html").as_uri(), scheme=scheme, width=width)
    tabs = page.page.get_by_role("tab")
    tabs.first.wait_for()
    assert tabs.all_inner_texts() == ["Ops", "Layers", "Device", "Kernels", "XLA"]
    shown = "[...document.querySelectorAll('.profnb-tab')].filter(e => e.offsetHeight).map(e => e.dataset.tab)"
    assert page.page.evaluate(shown) == ["Ops"]
    tabs.nth(2).click()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    assert page.page.evaluate(shown) == ["XLA"]
    settle(page.page)
    wide = "[...document.querySelectorAll('.profnb-tab[data-tab=XLA] .main-svg')].map(e => e.clientWidth)"
    room = "document.querySelector('.profnb-tab[data-tab=XLA]').clientWidth"
    wait_until(page.page, f"{wide}.length >= 2 && {wide}.every(e => {room} * 0.9 < e && e <= {room})")
    page.shot(f"page-xla-{scheme}-{width}")
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.errors == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 700)])
def test_a_starved_training_is_seen_at_a_glance(open_page, tmp_path, scheme, width):
    from test_input_pipeline import starved
    from test_memory import training

    from profnb.profile import Profile

    page = open_page(Profile(starved()).to_html(tmp_path / "r.html").as_uri(), scheme=scheme, width=width)
    page.page.get_by_role("tab", name="Input").click()
    bars = page.page.locator(".profnb-tab[data-tab=Input] .js-plotly-plot .bars .point")
    bars.nth(7).wait_for()
    wait_until(page.page, f"document.querySelector('.profnb-tab[data-tab=Input] .main-svg').clientWidth > {width} / 2")
    page.shot(f"page-input-{scheme}-{width}")
    assert bars.count() == 8  # work and waiting of four iterators
    assert "Map (MatMul) is the limit" in page.page.inner_text(".profnb-tab[data-tab=Input]")

    def click_waiting_for_map():  # whose bar begins at the left
        settle(page.page)
        box = bars.nth(5).bounding_box()
        page.page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)

    act_until(page.page, click_waiting_for_map, "document.querySelector('[aria-label=\"search events\"]').value.startsWith('Iterator::Root')")
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.errors == []
    page = open_page(Profile(training()).to_html(tmp_path / "m.html").as_uri(), scheme=scheme, width=width)
    page.page.locator(".profnb-tab[data-tab=Memory] .js-plotly-plot .scatterlayer .trace").wait_for()
    assert page.page.get_by_role("tab").count() == 0  # one part needs no tabs
    page.shot(f"page-memory-{scheme}-{width}")
    assert page.page.locator(".profnb-tab[data-tab=Memory] .js-plotly-plot .scatterlayer .trace").count() == 1
    assert page.errors == []


def numbers():
    """Values of every size, halves that a double holds exactly among them, and what is just beside them."""
    import math
    import random

    chosen = random.Random(12)
    halves = [whole + part for whole in (0, 1, 2, 7, 10, 99, 100, 999, 1000, 1234, 99_999) for part in (0.0625, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)]
    values = [0, 1, 999, 1000, 1_000_000, *halves, *(10 ** chosen.uniform(-4, 7) for _ in range(2000))]
    return [near for value in values for near in (value, math.nextafter(value, 0), math.nextafter(value, math.inf))]


def test_numbers_are_written_alike_by_python_and_in_the_browser(open_page):
    from importlib import resources

    from profnb.core.units import count_text, duration_text, percent_text

    scripts = [resources.files("profnb.drawing") / "format.js", resources.files("profnb.timeline") / "numbers.js"]
    code = "\n".join(script.read_text("utf-8") for script in scripts)
    page = open_page("about:blank")
    scales = (1, 1e3, 1e6, 1e9, 1e12)
    durations = [value * scale for value in numbers() for scale in scales]
    fractions = [value / 100 for value in numbers()]
    counts = [float(round(value)) for value in numbers()]
    for name, values, text in (("duration", durations, duration_text), ("percent", fractions, percent_text), ("count", counts, count_text)):
        shown = page.page.evaluate(f"values => {{ {code}\nreturn values.map({name}Text); }}", values)
        assert [pair for pair in zip(shown, map(text, values), strict=True) if pair[0] != pair[1]] == []


# JupyterLab.

NOTEBOOK = [
    "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n%load_ext profnb",
    "import keras, numpy as np\n"
    "x = np.ones((320, 8), 'float32'); y = np.zeros(320, 'int64')\n"
    "model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3)])\n"
    "model.compile('sgd', keras.losses.SparseCategoricalCrossentropy(from_logits=True))",
    "%%tfprofile\nmodel.fit(x, y, batch_size=8, verbose=0);",
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab whose folder holds one notebook in four states."""
    nbclient = pytest.importorskip("nbclient")
    root = tmp_path_factory.mktemp("lab")
    lab = Lab(root)
    nbformat.write(new_notebook(NOTEBOOK), root / "live.ipynb")
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


@pytest.fixture
def open_notebook(lab, open_page):
    def open_(name, theme="JupyterLab Light", width=1200):
        return lab.open(open_page, name, theme, width)

    return open_


@pytest.mark.parametrize(("theme", "width"), [("JupyterLab Light", 1200), ("JupyterLab Dark", 700)])
def test_a_saved_notebook_opened_again_shows_everything(open_notebook, theme, width):
    page = open_notebook("trusted", theme, width)
    page.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    page.page.wait_for_selector(".js-plotly-plot")
    page.page.wait_for_timeout(1500)
    page.shot(f"lab-{theme.split()[1].lower()}-{width}")
    assert page.count(ROWS) > 5
    assert complaints(page) == []
    page.page.get_by_label("search ops").first.fill("matmul")
    assert all("matmul" in name.lower() for name in column(page, 2))


def test_an_untrusted_notebook_shows_tables_and_chart_and_runs_nothing(open_notebook):
    page = open_notebook("untrusted", width=700)
    page.page.wait_for_selector(".js-plotly-plot")
    page.page.wait_for_selector("text=Live controls need the kernel")
    page.shot("lab-untrusted-700")
    assert page.count(".profnb table tr") > 5
    assert page.count(".profnb-tab[data-tab=Ops] input") == 0
    assert complaints(page) == []
    assert "Live controls need the kernel" in page.page.inner_text(".jp-Notebook")


def test_lost_controls_are_explained_without_an_error(open_notebook):
    page = open_notebook("stateless")
    page.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    page.page.wait_for_selector("text=Live controls need the kernel")
    assert complaints(page) == []
    assert "Live controls need the kernel" in page.page.inner_text(".jp-Notebook")


def test_live_controls_drive_the_report(open_notebook):
    page = open_notebook("live")
    run_all(page)
    page.page.wait_for_selector(".jupyter-widgets input[placeholder='search ops']")
    wait_until(page.page, r"[...document.querySelectorAll('.widget-html-content')].some(e => /3\d steady steps/.test(e.innerText))")
    page.shot("lab-live")
    page.page.locator(".jupyter-widgets input[placeholder='search ops']").fill("matmul")
    wait_until(page.page, "[...document.querySelectorAll('.widget-html-content')].some(e => e.innerText.includes('MatMul') && !e.innerText.includes('Prefetch'))")
    page.page.locator(".jupyter-widgets select").nth(1).select_option("by type")
    wait_until(page.page, "[...document.querySelectorAll('.widget-html-content')].some(e => /types/.test(e.innerText))")
    assert complaints(page) == []
