"""The architecture: an import points only backwards, and importing profnb loads nothing heavy."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "profnb"
ORDER = [
    {"errors", "units", "options", "columns", "kernels"}, {"capture"}, {"trace"}, {"analysis"}, {"view", "frames"},
    {"device_tables"}, {"tables"}, {"profile"}, {"loading"}, {"captured", "comparison"}, {"sweep_process"}, {"sweep"}, {"warm", "magic_options"}, {"sweep_magic"}, {"magics", "demo"}, {"__init__"}, {"__main__"},
]  # fmt: skip
# The one module through which each heavy library comes in.
DOORS = {"tensorflow": {"capture", "demo"}, "plotly": {"view/plotly"}, "ipywidgets": {"view/controls", "view/timeline/live"}, "numba": {"kernels"}}
FILES = sorted(PACKAGE.rglob("*.py"))


def room(name):
    return next(i for i, names in enumerate(ORDER) if name in names)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_backwards(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports(path):
        if module.startswith("profnb.") and path.name != "__init__.py":
            assert room(module.split(".")[1]) <= room(own), f"{path.name} imports {module}"


def test_no_circle_between_files_or_folders():
    """A folder inside of a room counts as one thing: what it needs stands before it, whole."""

    def thing(parts):
        return ".".join(parts[:3])

    needs = {}
    for path in FILES:
        own = thing(("profnb", *path.relative_to(PACKAGE).with_suffix("").parts))
        if path.name != "__init__.py":
            needs[own] = needs.get(own, set()) | {thing(m.split(".")) for m in imports(path) if m.startswith("profnb.")} - {own}
    assert "profnb.steps" in needs["profnb.subjects.study"]
    list(graphlib.TopologicalSorter(needs).static_order())


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_stay_behind_their_doors(path):
    place = str(path.relative_to(PACKAGE).with_suffix(""))
    for module in imports(path):
        doors = DOORS.get(module.split(".")[0])
        if doors is not None:
            assert place in doors or place.split("/")[0] in doors, f"{place} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path):
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_import_profnb_loads_nothing_heavy():
    heavy = ("numpy", "pandas", "numba", "tensorflow", "plotly", "ipywidgets", "IPython")
    code = f"import sys, profnb; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_public_names_are_all_there():
    import profnb

    assert all(hasattr(profnb, name) for name in profnb.__all__)
    assert callable(profnb.profile)  # the function, not the module of the same name
