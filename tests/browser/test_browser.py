"""What a person sees of a report in headless Chromium: the page as a file."""

import json
import re
from pathlib import Path

import pytest
from chromium import act_until, browser, one_page, open_page, settle, wait_until  # noqa: F401

import profnb

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]


@pytest.fixture(scope="module")
def report_file(tmp_path_factory):
    here = Path(__file__).parents[1] / "data" / "cpu-cnn.xplane.pb"
    return profnb.load(here).to_html(tmp_path_factory.mktemp("page") / "report.html").as_uri()


ROWS = ".profnb-tab[data-tab=Ops] table tr"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 700])
def test_the_page_opens_offline_with_chart_and_tables(open_page, report_file, scheme, width):
    page = open_page(report_file, scheme=scheme, width=width)
    page.page.wait_for_selector(".profnb-icicle [role=treeitem]")
    page.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    page.shot(f"page-{scheme}-{width}")
    assert page.errors == []
    assert page.count(ROWS) == 6
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
    assert 0 < page.count(ROWS) - 1 < 8
    search.fill("no such op")
    assert page.count(ROWS) == 2  # the headings, and what was searched
    search.fill("")
    page.page.get_by_text("runs", exact=True).click()
    runs = [int(text.replace(",", "")) for text in column(page, 3)]
    assert runs == sorted(runs, reverse=True)
    page.page.get_by_text("runs ▾").click()
    runs = [int(text.replace(",", "")) for text in column(page, 3)]
    assert runs == sorted(runs)
    page.page.locator(".profnb-tab[data-tab=Ops] select").last.select_option("by type")
    assert all(re.search(r"\d ops?$", name) for name in column(page, 2))
    page.page.locator(".profnb-tab[data-tab=Ops] select").last.select_option("by op")
    page.page.get_by_role("button", name="show all").click()
    assert page.count(ROWS) == 26  # a page of them
    assert page.errors == []


def test_host_and_device_rows_keep_their_colours_and_are_told_apart(open_page, tmp_path):
    from traces import event, gpu, host, line, read

    from profnb.profile import Profile

    trace = read(host(line("p", event("a:Op", 0, 9))), gpu(line("Stream #1", event("kernel", 0, 5))))
    page = open_page(Profile(trace).to_html(tmp_path / "r.html").as_uri())
    page.page.wait_for_selector(".profnb-tab[data-tab=Ops] input")
    colours = page.page.evaluate(f"[...document.querySelectorAll('{ROWS} td:first-child:not(:empty)')].map(e => getComputedStyle(e).color)")
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
    assert rows.count() == 9
    page.page.get_by_role("button", name="show all 30").click()
    assert rows.count() == 26  # a page of them, under their headings
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
    assert tabs.all_inner_texts() == ["Ops", "Steps", "Layers", "Device", "Kernels", "XLA", "Tree"]
    shown = "[...document.querySelectorAll('.profnb-tab')].filter(e => e.offsetHeight).map(e => e.dataset.tab)"
    assert page.page.evaluate(shown) == ["Ops"]
    tabs.nth(3).click()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    assert page.page.evaluate(shown) == ["XLA"]
    settle(page.page)
    wide = "[...document.querySelectorAll('.profnb-tab[data-tab=XLA] .profnb-figure svg:first-of-type')].map(e => e.getBoundingClientRect().width)"
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
    assert "Map (MatMul) " in page.page.inner_text(".profnb-tab[data-tab=Input]")

    def click_waiting_for_map():  # whose bar begins at the left
        settle(page.page)
        box = bars.nth(5).bounding_box()
        page.page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)

    act_until(page.page, click_waiting_for_map, "document.querySelector('[aria-label=\"search events\"]').value.startsWith('Iterator::Root')")
    assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.errors == []
    page = open_page(Profile(training()).to_html(tmp_path / "m.html").as_uri(), scheme=scheme, width=width)
    assert page.page.get_by_role("tab").all_inner_texts() == ["Memory", "Steps", "Tree"]
    page.page.locator(".profnb-tab[data-tab=Memory] .js-plotly-plot .scatterlayer .trace").wait_for()
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

    scripts = [resources.files("profnb.drawing") / "format.js", resources.files("profnb.timeline") / "browser" / "numbers.js"]
    code = "\n".join(script.read_text("utf-8") for script in scripts)
    page = open_page("about:blank")
    scales = (1, 1e3, 1e6, 1e9, 1e12)
    durations = [value * scale for value in numbers() for scale in scales]
    fractions = [value / 100 for value in numbers()]
    counts = [float(round(value)) for value in numbers()]
    for name, values, text in (("duration", durations, duration_text), ("percent", fractions, percent_text), ("count", counts, count_text)):
        shown = page.page.evaluate(f"values => {{ {code}\nreturn values.map({name}Text); }}", values)
        assert [pair for pair in zip(shown, map(text, values), strict=True) if pair[0] != pair[1]] == []


# The first look.

HEIGHTS = """() => {
  const report = document.querySelector('.profnb').getBoundingClientRect();
  const answer = document.querySelector('.profnb [role=heading]').getBoundingClientRect(), picture = document.querySelector('.profnb-icicle').getBoundingClientRect();
  return {report: report.height, answer: answer.bottom - report.top, lines: Math.round(answer.height / 23.4), picture: picture.bottom - report.top, wide: document.documentElement.scrollWidth - innerWidth};
}"""


def notebook_page(profile, path):
    """What a notebook shows of a profile: the HTML, then the script, without plotly.js."""
    from profnb.report.report import report_script

    html = profile._repr_mimebundle_()["text/html"]
    program = report_script().replace("</script", "<\\/script")
    style = "margin:0 50px;background:Canvas;color:CanvasText;color-scheme:light dark"
    path.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}">{html}<script>{program}</script>', "utf-8")
    return path.as_uri()


def recorded_cpu():
    return profnb.load(Path(__file__).parents[1] / "data" / "cpu-cnn.xplane.pb")


def made_gpu():
    from gpu_example import built_profile

    return built_profile()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("made", "most"), [(recorded_cpu, 780), (made_gpu, 1000)])
def test_the_answer_is_two_lines_the_picture_in_260_pixels_and_the_closed_report_in_one_screen(open_page, tmp_path, made, most, scheme):
    page = open_page(notebook_page(made(), tmp_path / "r.html"), scheme=scheme, width=1200)
    page.page.wait_for_selector(".profnb-icicle [role=treeitem]")
    page.page.wait_for_selector("[role=tab]")
    sizes = page.page.evaluate(HEIGHTS)
    page.shot(f"closed-{made.__name__}-{scheme}")
    assert sizes["lines"] <= 2
    assert sizes["answer"] <= 200
    assert sizes["picture"] <= 260
    assert sizes["report"] <= most
    assert sizes["wide"] <= 0
    assert page.errors == []


@pytest.mark.parametrize("width", [1200, 700])
def test_every_chart_stands_in_its_tab_as_wide_as_the_page(open_page, tmp_path, width):
    page = open_page(notebook_page(made_gpu(), tmp_path / "r.html"), width=width)
    tabs = page.page.get_by_role("tab")
    tabs.first.wait_for()
    drawn = 0
    for at, name in enumerate(tabs.all_inner_texts()):
        tabs.nth(at).click()
        for chart in page.page.locator(f".profnb-tab[data-tab={json.dumps(name)}] .profnb-figure").all():
            svg = chart.locator("svg")
            svg.first.wait_for()
            room, wide = chart.evaluate("e => e.clientWidth"), svg.first.evaluate("e => e.getBoundingClientRect().width")
            assert room * 0.98 <= wide <= room <= width
            assert chart.locator("svg rect.profnb-bar, svg path, svg circle").count() > 0
            drawn += 1
    assert drawn >= 4  # layers, idle time, XLA, memory
    page.page.set_viewport_size({"width": width - 150, "height": 900})
    wait_until(page.page, f"[...document.querySelectorAll('.profnb-figure svg')].filter(e => e.clientWidth).every(e => e.getBoundingClientRect().width <= {width - 150})")
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.errors == []


def test_no_other_script_is_loaded_and_define_is_left_alone(open_page, tmp_path):
    page = open_page("about:blank")
    page.page.add_init_script("window.define = function kept() {}; window.watched = []; const own = Object.getOwnPropertyDescriptor(window, 'define');"
                              "let held = window.define; Object.defineProperty(window, 'define', {get: () => held, set: v => { watched.push(String(v)); held = v; }});")
    page.page.goto(notebook_page(made_gpu(), tmp_path / "r.html"))
    page.page.wait_for_selector(".profnb-icicle [role=treeitem]")
    assert page.page.evaluate("watched") == []
    assert page.page.evaluate("document.querySelectorAll('script[src]').length") == 0
    assert "Share chart" not in page.page.content()


def test_what_qualifies_the_figures_is_folded_and_opens(open_page, tmp_path):
    page = open_page(notebook_page(made_gpu(), tmp_path / "r.html"))
    fold = page.page.get_by_role("button", name="about this measurement")
    assert "The trace also holds 3 test steps" not in page.page.inner_text(".profnb")
    fold.click()
    assert "The trace also holds 3 test steps" in page.page.inner_text(".profnb")
    assert fold.get_attribute("aria-expanded") == "true"


def test_without_svg_and_script_the_answer_still_reads(open_page, tmp_path):
    html = made_gpu()._repr_mimebundle_()["text/html"]
    (tmp_path / "r.html").write_text(f'<!doctype html><meta charset="utf-8">{html}', "utf-8")
    page = open_page((tmp_path / "r.html").as_uri())
    said = page.page.inner_text(".profnb")
    assert page.count("svg") == 0
    head, rest = said.split("What to change")
    assert "train steps" in head and "part of the recorded window" in head and "█" in head
    assert "Use twice the batch" in rest
    assert "The GPU is idle 42.7 % of the time" in rest
    assert "device compute 46.3 %" in rest
    assert "slowest steps" in rest
    assert "The trace also holds 3 test steps" in said


def test_a_mark_of_a_chart_leads_to_its_ops_and_says_what_it_is(open_page, tmp_path):
    page = open_page(notebook_page(recorded_cpu(), tmp_path / "r.html"))
    page.page.get_by_role("tab", name="Layers").click()
    blocks = page.page.locator(".profnb-tab[data-tab=Layers] svg rect.profnb-bar")
    blocks.first.wait_for()
    titles = blocks.evaluate_all("list => list.map(e => e.textContent)")
    conv = next(at for at, title in enumerate(titles) if title.startswith("sequential_1/conv2d_1:"))
    assert "a step" in titles[conv]
    settle(page.page)
    blocks.nth(conv).dispatch_event("click")
    assert page.page.get_by_label("search ops").is_visible()
    assert "conv2d_1" in page.page.get_by_label("search ops").input_value()
    steps = page.page.locator(".profnb-tab[data-tab=Steps] rect.profnb-column title").all_text_contents()
    assert len(steps) == 8
    assert steps[0].startswith("train 0\n") and "host compute: " in steps[0]


def test_names_in_charts_stay_text(open_page, tmp_path):
    from traces import event, host, line, read

    from profnb.profile import Profile

    evil = '<img src=x onerror="window.hit=1">&lt;b&gt;'
    steps = [event(evil, at * 100, 90, step_num=at, _r=1) for at in range(4)]
    page = open_page(notebook_page(Profile(read(host(line("python", *steps, event(f"{evil}:", 10, 5))))), tmp_path / "r.html"))
    page.page.get_by_role("tab", name="Steps").click()
    page.page.wait_for_selector(".profnb-tab[data-tab=Steps] svg title", state="attached")
    assert page.page.locator("rect.profnb-column title").first.text_content().startswith(f"{evil} 0")
    assert page.page.evaluate("window.hit") is None
    assert page.count(".profnb img") == 0


def with_kernel(page, study, live_id):
    """Puts two elements on the page as the hidden widgets are, and answers as the kernel does."""
    from profnb.report.frontend import answer_choice

    page.expose_function("answerOfKernel", lambda question: answer_choice(study, question))
    page.add_init_script(f"""addEventListener('DOMContentLoaded', () => {{
      document.body.insertAdjacentHTML('beforeend', '<div hidden><p class="profnb-ask-{live_id}"><input></p><p class="profnb-reply-{live_id}"></p></div>');
      document.querySelector('.profnb-ask-{live_id} input').oninput = async event => {{
        const [number, ...words] = event.target.value.split(' ');
        const said = document.createElement('i');
        said.dataset.number = number;
        said.dataset.answer = await answerOfKernel(words.join(' '));
        document.querySelector('.profnb-reply-{live_id}').replaceChildren(said);
      }};
    }});""")


def test_the_controls_change_bar_tables_and_charts_in_their_places(open_page, tmp_path):
    profile = made_gpu()
    profile._repr_mimebundle_ = lambda: profile._report.bundle("abc")
    page = open_page("about:blank")
    with_kernel(page.page, profile.study, "abc")
    page.page.goto(notebook_page(profile, tmp_path / "r.html"))
    page.page.wait_for_selector(".profnb-live select")
    page.shot("live")
    parts = {name: page.page.locator(f'[data-part="{name}"]') for name in ("Steps/Steps", "Ops/Ops", "Layers/Layers")}
    before = {name: part.text_content() for name, part in parts.items()}
    tables = page.count(".profnb table")
    last = page.page.get_by_role("combobox", name="last step")
    last.fill("9")
    last.press("Enter")
    wait_until(page.page, "/^Of \\d+ steady steps, median/.test(document.querySelector('[data-part^=Steps]').textContent.trim())")
    # What cannot follow the choice stands aside: nothing on the screen is of other steps.
    names = page.page.get_by_role("tab").all_inner_texts()
    assert {"Ops", "Steps", "Layers"} <= set(names) and not {"Device", "Kernels", "XLA"} & set(names)
    assert "of all steps only" in page.page.inner_text(".profnb-live")
    assert page.count(".profnb table") <= tables
    assert parts["Ops/Ops"].text_content() != before["Ops/Ops"]
    assert parts["Layers/Layers"].text_content() != before["Layers/Layers"]
    page.page.get_by_label("search ops").fill("matmul")
    assert column(page, 2) == ["dense · MatMul in model"]
    page.page.get_by_role("tab", name="Layers").click()
    page.page.locator(".profnb-tab[data-tab=Layers] .profnb-figure svg").wait_for()
    first = page.page.get_by_role("combobox", name="first step")
    first.fill("99999")
    first.press("Enter")
    page.page.get_by_text("there is no step 99999").wait_for()
    first.fill("9")
    first.press("Enter")
    page.page.get_by_label("kind of steps").select_option("warm-up steps")
    page.page.get_by_text("no such steps in this range").wait_for()
    page.page.get_by_role("button", name="all steady steps").click()
    wait_until(page.page, f"document.querySelector('[data-part^=Steps]').textContent === {json.dumps(before['Steps/Steps'])}")
    assert {name: part.text_content() for name, part in parts.items() if name != "Ops/Ops"} == {name: text for name, text in before.items() if name != "Ops/Ops"}
    assert page.errors == []


# The picture of the cell.


def recorded_cell(name="a_callback_that_pauses_at_the_end_of_an_epoch"):
    import recorded

    return recorded.load(Path(__file__).parents[1] / "data" / "diagnosis" / "tensorflow", name)


BLOCKS = """() => [...document.querySelectorAll('.profnb-icicle [role=treeitem]')].map(e => {
  const {left, right, top} = e.getBoundingClientRect(), own = document.createRange();
  own.selectNodeContents(e);
  return {left, right, top, row: +e.dataset.node, text: e.textContent, label: own.getBoundingClientRect().right};
})"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1366), ("dark", 1100), ("light", 400)])
def test_the_tree_of_the_cell_fills_the_width_and_cuts_no_label(open_page, tmp_path, scheme, width):
    profile = recorded_cell()
    page = open_page(notebook_page(profile, tmp_path / "r.html"), scheme=scheme, width=width)
    page.page.wait_for_selector(".profnb-icicle [role=treeitem]")
    page.shot(f"cell-{scheme}-{width}")
    blocks = {one["row"]: one for one in page.page.evaluate(BLOCKS)}
    tree = profile.cell_tree.set_index("node")
    whole = blocks[0]["right"] - blocks[0]["left"]
    assert whole == pytest.approx(page.page.evaluate("document.querySelector('.profnb-icicle').clientWidth"), abs=1)
    for row, block in blocks.items():
        assert (block["right"] - block["left"]) / whole == pytest.approx(tree.fraction[row], abs=0.002)
        assert not block["text"] or block["label"] <= block["right"]
    for row in blocks:  # neighbours abut: what is below a node begins where it begins
        below = sorted((blocks[at] for at in tree.index[tree.parent == row] if at in blocks), key=lambda one: one["left"])
        assert not below or below[0]["left"] == pytest.approx(blocks[row]["left"], abs=0.01)
        assert all(one["right"] <= other["left"] + 1.5 for one, other in zip(below, below[1:]))
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.errors == []


def test_a_person_goes_into_the_tree_and_back_by_mouse_and_by_keyboard(open_page, tmp_path):
    page = open_page(notebook_page(recorded_cell(), tmp_path / "r.html"), width=1366).page
    path = page.locator(".profnb-icicle .profnb-path")
    item = lambda name: page.locator(".profnb-icicle [role=treeitem]", has_text=name).first  # noqa: E731
    item("Pause.on_epoch_end").click()
    assert path.inner_text().split("\n")[0].startswith("the cell")
    assert "diagnosis_python.py:113 · 2 times · 1.51 s, 73.3 %" in path.inner_text()
    assert page.locator(".profnb-icicle [role=treeitem]").count() == 1
    path.get_by_role("button", name="the cell").click()
    assert page.locator(".profnb-icicle [role=treeitem]").count() > 9
    item("the cell").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Pause.on_epoch_end  1.51 s, 73.3 % · callbacks")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "4"
    page.keyboard.press("Enter")
    assert page.locator(".profnb-icicle [role=treeitem]").count() == 1
    page.keyboard.press("Escape")
    assert path.inner_text().endswith("86.4 %")  # of the epoch
    assert page.evaluate("document.activeElement.textContent").startswith("epoch")


def test_what_the_headline_names_leads_to_its_node_and_a_layer_to_its_ops(open_page, tmp_path):
    page = open_page(notebook_page(recorded_cell("fit_of_a_small_cnn"), tmp_path / "r.html"), width=1366).page
    page.get_by_role("button", name="train steps").first.click()
    assert "train steps" in page.inner_text(".profnb-icicle .profnb-path")
    page.locator(".profnb-named").get_by_role("button", name="conv2d_1").first.click()  # the path leads there by its whole name
    assert "sequential/conv2d_1" in page.inner_text(".profnb-icicle .profnb-path")
    page.get_by_role("button", name="show its ops").click()
    names = page.locator(".profnb-tab[data-tab=Ops] tr td:nth-child(2)").all_inner_texts()
    assert names and all(name.startswith("conv2d_1 ·") for name in names)  # and not conv2d_1_2, as a graph has it
    assert page.get_by_label("search ops").input_value() == "sequential/conv2d_1/"


def test_a_long_table_is_paged_and_an_empty_search_says_what_was_searched(open_page, tmp_path):
    page = open_page(notebook_page(recorded_cell("fit_of_a_small_cnn"), tmp_path / "r.html"), width=1366).page
    rows = page.locator(".profnb-tab[data-tab=Ops] tr:not(:first-child)")
    page.get_by_role("button", name="show all 78").click()
    assert rows.count() == 25
    for _ in range(3):
        page.get_by_role("button", name="next ›").click()
    assert rows.count() == 3
    assert "76 to 78 of 78 ops, 100.0 %" in page.inner_text(".profnb-tab[data-tab=Ops]")
    page.get_by_label("search ops").fill("no such op")
    assert rows.all_inner_texts() == ["None of the 78 ops has “no such op” in its name or type."]
    assert page.evaluate("document.querySelector('.profnb').clientHeight") < 1400


def test_a_tip_is_shown_to_who_points_touches_or_comes_by_keyboard(open_page, tmp_path):
    page = open_page(notebook_page(recorded_cell(), tmp_path / "r.html"), width=1366, has_touch=True).page
    tip = page.locator(".profnb-tip")
    block = page.locator(".profnb-icicle [role=treeitem]", has_text="Pause.on_epoch_end")
    block.wait_for()
    assert not tip.is_visible()
    block.hover()
    assert tip.inner_text().split("\n") == ["Pause.on_epoch_end", "callbacks · diagnosis_python.py:113 · 2 times · 1.51 s, 73.3 %"]
    page.mouse.move(5, 1200)
    block.focus()
    assert tip.is_visible()
    page.keyboard.press("ArrowUp")
    assert tip.inner_text().startswith("epoch")
    page.locator(".profnb-icicle [role=treeitem]", has_text="Pause.on_epoch_end").tap()  # which is drawn anew, as wide as the page
    assert not tip.is_visible()
    page.locator(".profnb-advice li > div").first.tap()
    assert "saves" in page.locator(".profnb-advice li").first.inner_text() and tip.is_visible()
    described = page.locator(".profnb-advice li > div").first
    assert described.get_attribute("title") is None and described.get_attribute("aria-description")


def test_keys_typed_in_a_report_stay_in_it(open_page, tmp_path):
    page = open_page(notebook_page(recorded_cell(), tmp_path / "r.html"), width=1366).page
    page.evaluate("() => { window.heard = []; for (const n of ['keydown', 'keyup', 'keypress']) document.addEventListener(n, e => heard.push(e.key)); }")
    page.get_by_role("tab", name="Ops").focus()
    page.keyboard.press("d")
    page.keyboard.press("d")
    assert page.evaluate("heard") == []
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("d")
    assert page.evaluate("heard") != []


def test_a_part_of_the_mean_step_leads_to_what_it_is_made_of(open_page, tmp_path):
    page = open_page(notebook_page(made_gpu(), tmp_path / "r.html"), width=1366).page
    page.get_by_role("tab", name="Steps").click()
    page.locator(".profnb-piece", has_text="device compute").click()
    assert page.get_by_label("side", exact=True).input_value() == "device"
    assert page.get_by_role("tab", name="Ops").get_attribute("aria-selected") == "true"


def test_the_tree_is_a_table_of_bars_without_a_script(open_page, tmp_path):
    html = recorded_cell()._repr_mimebundle_()["text/html"]
    (tmp_path / "r.html").write_text(f'<!doctype html><meta charset="utf-8">{html}', "utf-8")
    said = open_page((tmp_path / "r.html").as_uri()).page.inner_text(".profnb-icicle")
    assert "Pause.on_epoch_end" in said and "73.3\u00a0%" in said and "█" in said


def test_on_a_phone_nothing_scrolls_sideways_and_a_row_of_ops_takes_two_lines(open_page, tmp_path):
    page = open_page(notebook_page(recorded_cell("fit_of_a_small_cnn"), tmp_path / "r.html"), width=400).page
    tabs = page.get_by_role("tab")
    for at in range(tabs.count()):
        tabs.nth(at).click()
        assert page.evaluate("[...document.querySelectorAll('.profnb, .profnb div')].filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto').map(e => e.innerText.slice(0, 80))") == []
    tabs.nth(0).click()
    name, runs = (page.locator(f".profnb-tab[data-tab=Ops] tr:nth-child(2) td:nth-child({column})").bounding_box() for column in (2, 3))
    assert runs["y"] >= name["y"] + name["height"] - 1 and runs["x"] < 100
    left = page.evaluate("[...document.querySelectorAll('.profnb-bar > *')].filter(e => e.offsetHeight).map(e => e.getBoundingClientRect().x)")
    assert left and set(map(round, left)) <= {round(left[0]), round(max(left))}  # two columns at most, evenly
