"""The notebooks are saved with what their code shows, tell nothing of a machine, and install profnb where it is missing."""

import base64
import gzip
import importlib.util
import shutil
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parents[1]
GALLERY = sorted((ROOT / "notebooks").glob("*.ipynb"))


def load_gallery():
    spec = importlib.util.spec_from_file_location("docs_gallery", ROOT / "docs" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gallery = load_gallery()


def notebook_of(*cells):
    """A notebook of code cells, each a list of outputs: text, or a dict of MIME types."""
    outputs = [
        [nbformat.v4.new_output("stream", name="stdout", text=o) if isinstance(o, str) else nbformat.v4.new_output("display_data", data=o) for o in cell]
        for cell in cells
    ]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=each, execution_count=1) for each in outputs])


def report_of(tab, *columns):
    heads = "".join(f'<td role="columnheader"><b>{column}</b></td>' for column in columns)
    return {"text/html": f'<div class="profnb"><div data-tab="{tab}"><div data-part="{tab}/Things"><table><tr>{heads}</tr></table></div></div></div>', "text/plain": "12 ms"}


def frame_of(*columns):
    heads = "".join(f"<th>{column}</th>" for column in columns)
    return {"text/html": f'<table class="dataframe"><thead><tr><th></th>{heads}</tr></thead><tbody><tr><th>0</th></tr></tbody></table>', "text/plain": "0"}


def test_other_numbers_are_not_stale():
    saved, now = notebook_of(["12 ms"], [report_of("Ops", "op", "time")]), notebook_of(["13 s"], [report_of("Ops", "op", "time") | {"text/plain": "9 s"}])
    assert gallery.differences(saved, now) == []


def test_a_column_or_a_tab_more_is_not_stale_as_it_depends_on_what_ran():
    assert gallery.differences(notebook_of([report_of("Ops", "op", "time")]), notebook_of([report_of("Ops", "op", "time", "achieved")])) == []


@pytest.mark.parametrize(
    ("saved", "now", "said"),
    [
        ([report_of("Ops", "op", "time")], [report_of("Ops", "op", "self time")], "cell 1: columns of Ops/Things self time, saved time"),
        ([report_of("Ops", "op")], [report_of("Operations", "op")], "cell 1: tabs Operations, saved Ops"),
        ([frame_of("op", "us")], [frame_of("op", "ms")], "cell 1: columns ms, saved us"),
        ([report_of("Ops", "op")], ["text"], "cell 1 shows text, saved is report"),
        ([], [report_of("Ops", "op")], "cell 1 shows report, saved is nothing"),
        (["text"], [], "cell 1 shows nothing, saved is text"),
    ],
)
def test_another_kind_of_output_is_stale(saved, now, said):
    assert gallery.differences(notebook_of(saved), notebook_of(now)) == [said]


def test_what_is_of_the_moment_is_not_saved():
    notebook = notebook_of(["kept"], [{"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/html": ""}, {"text/html": "", "text/plain": ""}])
    notebook.cells[0].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="/usr/lib/python: a warning"))
    notebook.cells[0].metadata["execution"] = {"iopub.execute_input": "2026"}
    gallery.tidy(notebook)
    assert [len(cell.outputs) for cell in notebook.cells] == [1, 0]
    assert notebook.cells[0].metadata == {}
    assert gallery.of_machine(notebook) == []


def test_a_path_is_found_in_packed_data_too():
    packed = base64.b64encode(gzip.compress(b"names: /home/ada/train.py" + bytes(range(256)))).decode()
    assert gallery.of_machine(notebook_of([f'<div data-marks="{packed}">'])) == ["/home/ada"]
    assert gallery.of_machine(notebook_of(["/tmp/tmpx/report.html"])) == ["/tmp/", "/tmp/tmpx"]
    assert gallery.of_machine(notebook_of(["model/home/dense", "https://example.org/home/ada", "train.py:3 and 3 /home"])) == []


@pytest.mark.parametrize("path", GALLERY, ids=lambda p: p.stem)
def test_a_notebook_is_saved_with_what_its_code_shows(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    again = f"run python docs/gallery.py {path.stem}"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if "profnb" not in notebook.metadata and not any(cell.outputs for cell in code):
        pytest.skip(f"it is not saved with its outputs yet: {again}")
    assert code[0].source == gallery.first_cell(path.stem), again
    assert notebook.metadata.get("profnb", {}).get("code") == gallery.source_mark(notebook), f"the code changed since it was saved: {again}"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), again
    kinds = gallery.kinds(notebook)
    assert any(kind[0] in ("report", "timeline") for shown in kinds for kind in shown if isinstance(kind, tuple)), again
    assert not any(str(kind).startswith("error") for shown in kinds for kind in shown), again
    assert kinds[0] == [], "the first cell is silent"
    assert path.stat().st_size <= gallery.BUDGET_BYTES


@pytest.mark.parametrize("path", GALLERY, ids=lambda p: p.stem)
def test_a_saved_notebook_tells_nothing_of_the_machine(path):
    notebook = nbformat.read(path, 4)
    assert gallery.of_machine(notebook) == []
    assert "widgets" not in notebook.metadata
    assert "widget-view" not in path.read_text("utf-8")
    assert not any(output.get("name") == "stderr" for cell in notebook.cells for output in cell.get("outputs", []))


@pytest.mark.parametrize(("is_here", "in_clone", "asked"), [(True, True, []), (False, True, ["install -q .."]), (False, False, ["install -q git+https://github.com/OWNER/profnb"])])
def test_the_first_cell_installs_profnb_where_it_is_missing(is_here, in_clone, asked, tmp_path, monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    (tmp_path / "notebooks").mkdir()
    if in_clone:
        (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: object() if is_here else None)
    shell, pip, loaded = InteractiveShell(), [], []
    shell.register_magic_function(pip.append, "line", "pip")
    shell.register_magic_function(loaded.append, "line", "load_ext")
    try:
        shell.run_cell(gallery.FIRST_CELL.format(repository=gallery.NOWHERE, extras="")).raise_error()
    finally:
        shell.history_manager.end_session()
    assert (pip, loaded) == (asked, ["profnb"])


def test_the_address_is_written_wherever_it_is_missing(tmp_path):
    for name in ("README.md", "docs/notebooks.md", "notebooks/01-quickstart.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changed = gallery.write_address("ada/engine", tmp_path)
    assert {"docs/notebooks.md", "notebooks/01-quickstart.ipynb"} <= set(changed)
    assert "git+https://github.com/ada/engine" in (tmp_path / "notebooks/01-quickstart.ipynb").read_text("utf-8")
    assert not any("OWNER/profnb" in (tmp_path / name).read_text("utf-8") for name in changed)
    marks = {gallery.source_mark(nbformat.read(root / "notebooks/01-quickstart.ipynb", 4)) for root in (ROOT, tmp_path)}
    assert len(marks) == 1, "the saved outputs are those of the same code"
    with pytest.raises(ValueError, match="is not OWNER/NAME"):
        gallery.write_address("https://github.com/ada/engine", tmp_path)


def test_every_notebook_opens_from_the_page_on_them():
    page = (ROOT / "docs" / "notebooks.md").read_text("utf-8")
    for path in GALLERY:
        assert f"(../notebooks/{path.name})" in page
        assert f"/HEAD?labpath=notebooks/{path.name})" in page
        assert f"/blob/main/notebooks/{path.name})" in page
