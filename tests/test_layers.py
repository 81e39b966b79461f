"""The architecture: an import points only backwards, and importing profnb loads nothing heavy."""

import ast
import fnmatch
import graphlib
import itertools
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "profnb"
ORDER = [
    {"core"}, {"trace"}, {"capture"}, {"tf1"}, {"steps"}, {"drawing"}, {"subjects"}, {"causes"}, {"advice"}, {"edits"}, {"compare"}, {"timeline"}, {"report"}, {"fleet"}, {"lite"}, {"forecast"},
    {"tables"}, {"profile"}, {"loading"}, {"many_traces"}, {"history"}, {"captured", "comparison"}, {"sweep_process"}, {"sweep"}, {"warm"}, {"trials"}, {"magic"}, {"magics", "demo", "program"}, {"__init__"}, {"__main__"},
]  # fmt: skip
# The one module through which each heavy library comes in.
DOORS = {"tensorflow": {"capture", "tf1", "demo", "lite"}, "plotly": {"drawing/figures"}, "ipywidgets": {"drawing/live_outputs"}, "numba": {"core/jit"}}
# TF1 has one folder, and two doors: its files are opened where files are, its runs recorded where runs are.
TF1_DOORS = {("trace/formats", "profnb.tf1.run_metadata"), ("trace/formats", "profnb.tf1.event_file"), ("capture/session", "profnb.tf1.session_runs")}
# What each subject may need of the others, besides the spine.
SUBJECTS = {
    "feeds": set(), "input": {"feeds"}, "memory": set(), "python": set(), "xla": set(), "device": {"memory", "xla"}, "ops": {"device", "input", "xla"},
    "bounds": {"device", "input", "ops", "xla"}, "cell": {"source"}, "system": set(), "layers": {"bounds", "input", "memory", "ops", "xla"}, "source": {"device", "input", "layers", "ops", "xla"},
}  # fmt: skip
# Files of more than 500 lines, and why they are one.
LONG = {
    "capture/parts/cell_division": "one division of a cell's wall time, by which everything adds up",
    "profile": "the public class, a property an answer",
}
# Files of a subject that show; whatever else it has finds.
SHOWS = ("section",)


def is_shown(stem):
    return stem.split("_")[-1] in SHOWS


FILES = sorted(PACKAGE.rglob("*.py"))


def room(name):
    return next(i for i, names in enumerate(ORDER) if name in names)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def place_of(path):
    return str(path.relative_to(PACKAGE).with_suffix(""))


def needs_of(path):
    return {module for module in imports(path) if module.startswith("profnb.") and (place_of(path), module) not in TF1_DOORS}


@pytest.mark.parametrize("path", FILES, ids=place_of)
def test_imports_point_backwards(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in needs_of(path):
        if path.name != "__init__.py":
            assert room(module.split(".")[1]) <= room(own), f"{path.name} imports {module}"


def test_the_doors_of_tf1_are_used():
    for place, module in TF1_DOORS:
        assert module in imports(PACKAGE / f"{place}.py")


def test_no_circle_between_files():
    needs = {f"profnb.{place_of(path).replace('/', '.')}": needs_of(path) for path in FILES if path.name != "__init__.py"}
    assert "profnb.steps.spine" in needs["profnb.subjects.study"]
    list(graphlib.TopologicalSorter(needs).static_order())


def test_no_circle_between_folders():
    """A folder counts as one thing: what it needs stands before it, whole. Subjects have a rule of their own, below."""

    def thing(module):
        parts = module.split(".")[1:]
        return parts[0] if parts[0] == "subjects" else ".".join(parts[:2])

    needs = {}
    for path in FILES:
        own = thing(f"profnb.{place_of(path).replace('/', '.')}")
        if path.name != "__init__.py":
            needs[own] = needs.get(own, set()) | {thing(m) for m in needs_of(path)} - {own}
    list(graphlib.TopologicalSorter(needs).static_order())


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.parent.name == "subjects"], ids=place_of)
def test_what_a_subject_finds_needs_only_the_subjects_before_it_and_nothing_that_is_drawn(path):
    subject = path.parent.name
    if is_shown(path.stem) or path.stem.endswith(("_chart", "_charts")):
        return
    for module in needs_of(path):
        parts = module.split(".")
        assert parts[1] not in ("drawing", "report"), f"{place_of(path)} imports {module}"
        if parts[1] == "subjects":
            assert parts[2] in {subject} | SUBJECTS[subject], f"{place_of(path)} imports {module}"
            assert not is_shown(parts[-1]), f"{place_of(path)} imports {module}"


def test_no_file_name_is_used_twice():
    """But for the doors of the subjects, which are called alike on purpose."""
    stems = [path.stem for path in FILES if path.stem not in ("__init__", "__main__", "find", "section", "advice")]
    assert sorted(stems) == sorted(set(stems))


def test_no_file_is_long_without_a_reason():
    long = [place_of(path) for path in FILES if len(path.read_text("utf-8").splitlines()) > 500]
    assert long == sorted(LONG)


def test_no_folder_is_crowded():
    for folder in {path.parent for path in FILES}:
        assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= 15, folder


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_stay_behind_their_doors(path):
    place = str(path.relative_to(PACKAGE).with_suffix(""))
    for module in imports(path):
        doors = DOORS.get(module.split(".")[0])
        if doors is not None:
            assert place in doors or place.split("/")[0] in doors, f"{place} imports {module}"


def test_the_process_of_interpreters_begins_without_profnb():
    """It is run as a file, by a Python that may not find the package, and whose start is waited for."""
    tree = ast.parse((PACKAGE / "lite" / "process" / "interpreting.py").read_text("utf-8"))
    begins = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in begins]
    assert "json" in named and not [name for name in named if name.startswith("profnb")]


# Words that stand for a thing instead of naming it. One is left: a field in files that were saved.
PRONOUNS, SAVED = {"told", "own", "found", "known", "way"}, {"found": "capture/machine/waits"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_things_are_named_by_nouns(path):
    """Variables, arguments, functions, fields and attributes of objects themselves."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            named.add(node.name)
        elif isinstance(node, ast.arg):
            named.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            named.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            named.add(node.attr)
    pronouns = {name for name in named if name.lower().strip("_") in PRONOUNS}
    assert {name for name in pronouns if SAVED.get(name) != place_of(path)} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path):
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


def listed(folder):
    """What a folder's docstring lists, a line at a time: names, a comma between them, two spaces and what they are."""
    for line in ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))).splitlines():
        if names := re.match(r" *([\w*./]+(?:, [\w*./]+)*),? {2,}\S", line):
            yield [name.strip("/") for name in names[1].split(", ")]


@pytest.mark.parametrize("folder", [path.parent for path in FILES if path.name == "__init__.py"], ids=lambda path: path.relative_to(PACKAGE.parent).as_posix())
def test_what_a_folder_is_said_to_hold_is_there(folder):
    for name in itertools.chain.from_iterable(listed(folder)):
        found = [*folder.glob(name if "." in name else f"{name}.py"), *(path for path in folder.glob(name) if path.is_dir())]
        assert found, f"{name} is not in {folder.name}/"


def test_the_map_has_every_room_in_the_order_of_imports():
    lines = [[i for shown in line for i, names in enumerate(ORDER) if fnmatch.filter(names, shown)] for line in listed(PACKAGE)]
    assert all(max(line) < min(below) for line, below in itertools.pairwise(lines)), lines
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"} <= set(itertools.chain.from_iterable(listed(PACKAGE)))


def test_import_profnb_loads_nothing_heavy():
    heavy = ("numpy", "pandas", "numba", "tensorflow", "plotly", "ipywidgets", "IPython")
    code = f"import sys, profnb; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_public_names_are_all_there():
    import profnb

    assert all(hasattr(profnb, name) for name in profnb.__all__)
    assert callable(profnb.profile)  # the function, not the module of the same name
    import_module("profnb.compare.speedup")
    assert callable(profnb.compare)  # likewise, and the folder
