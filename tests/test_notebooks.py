"""The gallery runs top to bottom, within its byte budget, and what is saved reads well anywhere."""

import functools
import json
import re
from pathlib import Path

import pytest
from conftest import PATIENT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
nbconvert = pytest.importorskip("nbconvert")
pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.kernel, pytest.mark.tensorflow]

FOLDER = Path(__file__).parents[1] / "notebooks"
GALLERY = sorted(FOLDER.glob("*.ipynb"))
LONG = {"03", "04", "05", "06", "07", "08", "10"}  # those that train most, or in many processes
# Fewer rounds of the same code, and fewer layers of a kind, than a reader is given: the third of any says nothing new.
FEWER = {
    "01-quickstart": [("(6400, 28", "(1600, 28")],
    "02-timeline": [("(6400, 28", "(3200, 28")],
    "03-input-pipeline": [("(4096, 32", "(1024, 32")],
    "04-mixed-precision": [("epochs=3", "epochs=2"), ("make_images(1536)", "make_images(640)"), ("make_images(512)", "make_images(128)"), ("--repeat 5", "--repeat 3 -n 30"), ("--repeat 5", "--repeat 3 -n 30")],
    "05-slow-to-fast": [("--repeat 4", "--repeat 3")] * 3 + [("--try 1", "--try 1 --try-seconds 5"), ("for _ in range(3)]", "for _ in range(1)]"), ("--repeat 3 -o sweep", "--repeat 2 -o sweep"), ("=32,128,512", "=32,128"), ("STEPS = 60", "STEPS = 30")],
    "06-layers-and-lines": [("(2048, 24", "(512, 24"), ("range(60)", "range(30)")],
    "07-several-workers": [("STEPS = 25", "STEPS = 15")],
    "08-keras-on-jax-and-torch": [("(3200, 64)", "(1600, 64)"), ("(3200, 64)", "(1600, 64)"), ("--repeat 3", "--repeat 2")],
    "09-litert": [("2400", "1000"), ("1800", "800"), ("epochs=3", "epochs=1"), ("seconds=2", "seconds=0.5"), ("seconds=1", "seconds=0.3")],
}
# What a reader must find in each, with style and script stripped. Which of two was faster, and by how much, is the
# clock's to say: here it is only that a verdict is given. What verdicts say of which times is in test_comparison.
VERDICT = r"({0} is [\d.]+x (faster|slower) than {1}|These runs show no difference)"
# TensorFlow records the memory of a CPU where oneDNN allocates it, which takes a CPU with AVX-512 VNNI: elsewhere none is shown.
WEIGHED = r"(?s)Worth the price.*peak memory|\A(?!.*(peak memory|Worth the price))"
READABLE = {
    "01-quickstart": ["train steps, median", "host compute", "█", "slowest steps", r"own time\s+own share\s+running total\s+total"],
    "02-timeline": [r"events on \d+ threads and streams in", "thread or stream", "python", "busy over", "█", r"(19|20) session_run steps, median|1[78] session_run steps, median [^(]*\((one|2|3) steps? of [^)]* aside", "MatMul"],
    "04-mixed-precision": ["mixed precision", r"95 % interval|No difference", r"2 \+ 2 runs", "What was learned", "val_ ?accuracy", "Ops that account for it", "Precision policy differs"],
    "05-slow-to-fast": [r"@tf\.function over train_step", VERDICT.format("compiled", "eager"), VERDICT.format("pipeline", "compiled"), VERDICT.format("pipeline", "eager"), "is fastest", WEIGHED, r"The best setting makes [\d,]+ examples/s"],
    "06-layers-and-lines": ["Layers", "conv2d", "backward", "Lines of your code", "tf.matmul\\(batch, weights\\)", "596,458 parameters in the table, 596,458 in the model"],
    "07-several-workers": [r"4 hosts, \d+ common steps of", "(holds|hold) the others up|No host holds", "Who was late in which step", "own work", "Clocks are joined to", "median_ms", "train_step"],
    "08-keras-on-jax-and-torch": ["train steps, median", "Keras runs on", r"(tensorflow|jax|torch): (installed|not installed, its parts are skipped)", "backend=tensorflow", "examples/s", "is not installed here: pip install|first_forward_us"],
    "09-litert": ["train steps, median", "(faster|slower) than float32|as fast as float32", "Size and time", "What comes out", "Layers", "conv2d_1", "of fixed batch", r"quarters.lite.json.gz: [\d.]+ kB"],
    "10-history": [r"12 runs in 1 series", "Latest runs", r"digits is [\d.]+x slower since [^,]+, commit [0-9a-f]{7}", r"Score\.on_epoch_end \+[\d.]+ s", "is_alarm", "part of the cell"],
    "03-input-pipeline": ["Input pipeline", "Python", r"before +[\d.]+ ms a step, of which +[\d.]+ ms waiting", r"after +[\d.]+ ms", r"[\d.]+ times as fast"],
}


@pytest.fixture(scope="session", params=[pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path.stem[:2] in LONG)) for path in GALLERY])
def executed(request, tmp_path_factory):
    """A notebook of the gallery after it ran, as saved."""
    if request.param.stem == "09-litert":
        pytest.importorskip("ai_edge_litert", reason="no ai-edge-litert here: pip install 'profnb[litert]'")
    notebook = nbformat.read(request.param, 4)
    for long, short in FEWER.get(request.param.stem, []):
        cell = next(cell for cell in notebook.cells if cell.cell_type == "code" and long in cell.source)
        cell.source = cell.source.replace(long, short)
    folder = tmp_path_factory.mktemp("executed")  # what a notebook writes stays there
    nbclient.NotebookClient(notebook, **PATIENT, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    target = folder / request.param.name
    nbformat.write(notebook, target)
    return target


def outputs(path):
    return [o for cell in nbformat.read(path, 4).cells if cell.cell_type == "code" for o in cell.outputs]


def reports(path):
    return [o for o in outputs(path) if re.search('class="profnb( profnb-timeline)?"', o.get("data", {}).get("text/html", ""))]


def test_the_saved_outputs_are_of_the_kind_that_a_run_gives(executed):
    from test_gallery import gallery

    saved = nbformat.read(FOLDER / executed.name, 4)
    if saved.metadata.get("profnb", {}).get("tensorflow") != gallery._tensorflow():
        pytest.skip("not saved with its outputs yet, or with another TensorFlow, whose traces have other things to show")
    if executed.stem.startswith("08") and saved.metadata.profnb.get("frameworks") != gallery.frameworks():
        pytest.skip(f"saved where {' '.join(saved.metadata.profnb.get('frameworks', []))} are installed, which shows other things")
    assert gallery.differences(saved, nbformat.read(executed, 4)) == [], f"run python docs/gallery.py {executed.stem}"


def test_it_runs_without_noise(executed):
    for output in outputs(executed):
        assert output.output_type != "error"
        if output.output_type == "stream" and output.name == "stderr":
            text = output.text.replace(str(Path(__file__).parents[1]), "")  # a clone may be called so
            assert "profiler" not in text and "profnb" not in text


def test_each_report_and_the_whole_file_stay_within_the_byte_budget(executed):
    assert len(reports(executed)) >= 2
    for report in reports(executed):
        is_timeline = "profnb-timeline" in report.data["text/html"]
        assert len(json.dumps(report)) < (750_000 if is_timeline else 350_000)
    assert any("data-figure=" in report.data["text/html"] for report in reports(executed))
    assert not any("plotly" in mime or mime == "image/png" for o in outputs(executed) for mime in o.get("data", {}))
    assert executed.stat().st_size < 1_200_000


@functools.cache
def convert(path, **settings):
    exporter = nbconvert.HTMLExporter(**settings)
    html, _ = exporter.from_filename(str(path))
    return html


def body_text(html):
    """What a reader without style or script sees."""
    html = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", html)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.mark.parametrize(
    "settings",
    [{"template_name": "lab"}, {"template_name": "classic"}, {"template_name": "lab", "sanitize_html": True}, {"template_name": "classic", "sanitize_html": True}],
    ids=["lab", "classic", "lab-sanitized", "classic-sanitized"],
)  # fmt: skip
def test_converted_pages_hold_readable_tables_and_no_program_text(executed, settings):
    text = body_text(convert(executed, **settings))
    for pattern in READABLE[executed.stem]:
        assert re.search(pattern, text), pattern
    assert "&lt;td" not in text
    assert "&lt;b" not in text
    assert "&lt;span" not in text
    for program in ("querySelector", " function (", "newPlot", "DecompressionStream"):
        assert program not in text


def test_a_sanitized_page_runs_nothing_of_ours(executed):
    html = convert(executed, template_name="lab", sanitize_html=True)
    assert "upgradeOps" not in html
    assert "readMarks" not in html
    assert "onerror" not in html


def test_the_cleaned_notebook_is_valid_and_loses_only_the_controls(executed, tmp_path):
    from profnb.report.notebook_file import clean_notebook

    target = tmp_path / "clean.ipynb"
    has_controls = "widget-view" in executed.read_text("utf-8")
    assert has_controls == (executed.stem != "10-history")  # whose pictures are fixed: nothing to take out
    assert (clean_notebook(executed, target) != []) == has_controls
    nbformat.validate(nbformat.read(target, 4))
    assert len(reports(target)) == len(reports(executed))
    assert "widget-view" not in target.read_text("utf-8")
