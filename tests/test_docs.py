"""The pages of docs/ are what the code says, and the glossary explains the words of the report."""

import ast
import importlib.util
import itertools
import re
import sys
from pathlib import Path

import pytest
from test_layers import listed

from profnb.core.glossary import GLOSSARY, explain
from profnb.core.table import Column, Table
from profnb.drawing.section import Bar, section_of

DOCS = Path(__file__).parents[1] / "docs"
PACKAGE = DOCS.parent / "profnb"
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in FILES})


def load_make():
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages():
    return load_make().pages()


@pytest.mark.parametrize("name", ["glossary.md", "tables.md", "sentences.md", "../CONTRIBUTING.md"])
def test_a_page_is_what_the_script_writes(name, pages):
    assert (DOCS / name).read_text("utf-8") == pages[name], "run python docs/make.py"


def test_sentences_are_short_and_point_to_nothing_else(pages):
    measured = sys.modules["sentences"].measure(pages["sentences.md"])
    worst = sorted(measured.words, key=lambda sentence: -measured.words[sentence])[:5]
    assert measured.mean <= 13, worst
    assert measured.long_fraction <= 0.03, worst
    assert measured.pointing_fraction <= 0.045, sorted(measured.pointing, key=lambda one: -measured.pointing[one])[:5]


def test_a_new_sentence_appears_filled_with_its_parts(tmp_path):
    package = tmp_path / "said"
    package.mkdir()
    (package / "notes.py").write_text(
        'ENDS = {"a": "ends early", "b": "never comes to its end"}\n'
        "def how(kind: str) -> str:\n    return ENDS[kind]\n"
        "def note(count, kind):\n"
        '    who = "The training" if count else "A training"\n'
        '    return [f"{who} {how(kind)} after {count:,} of the steps."]\n'
    )
    load_make()
    assert sys.modules["sentences"].Sentences(package).rooms() == {
        "said.notes": [
            "The training ends early after 12 of the steps.",
            "The training never comes to its end after 12 of the steps.",
        ]
    }


def test_every_declared_table_has_its_columns_on_the_page(pages):
    page = pages["tables.md"]
    assert "## p.copies" in page
    assert re.search(r"^\| `direction` \| \S", page, re.MULTILINE)


def test_the_room_of_every_tab_is_named():
    source = DOCS.parent / "profnb" / "subjects"
    tabs = {(tab, path.parent.name) for path in source.rglob("*.py") for tab in re.findall(r'\btab="(\w+)"', path.read_text("utf-8"))}
    rooms = dict(re.findall(r"^\| (\w+) \| (.*) \|$", (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE))
    assert len(tabs) > 10
    assert [(tab, room) for tab, room in sorted(tabs) if f"`{room}/" not in rooms.get(tab, "")] == []
    for named in re.findall(r"`([\w/]+\.py|[\w/]+/)`", " ".join(rooms.values())):
        assert (source / named).exists() or (source.parent / named).exists(), named


def test_a_term_stands_in_the_glossary_once():
    names = [name for terms in GLOSSARY.values() for name in terms]
    headings = [heading for terms in GLOSSARY.values() for term in terms.values() for heading in term.headings]
    assert len({*names, *headings}) == len(names) + len(headings)


def test_a_sentence_is_one():
    for terms in GLOSSARY.values():
        for name, term in terms.items():
            assert term.sentence.endswith("."), name
            assert "|" not in term.sentence + term.rule + term.shows + term.elsewhere, name


def test_a_heading_that_is_a_term_is_explained_under_the_pointer():
    table = Table("made", "One row per kernel.", (
        Column("occurrences", lambda v: v, "how often it ran", "runs"), Column("colour", lambda v: v, "what it looks like"),
    ))  # fmt: skip
    section = section_of(table, [1, 2], ["occurrences", "colour"], title="", tab="", bar=Bar(lambda row: 1.0, "red"), rows=[0, 1])
    assert section.meanings == ("", "how often it ran. How often something ran.", "what it looks like")


def test_a_heading_that_is_no_term_is_not_explained():
    assert explain("Own time") == explain("self time") != ""
    assert explain("colour") == ""


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in DOCS.glob("*.md"))])
def test_links_lead_to_files_and_headings_that_are_there(page):
    file = DOCS.parent / page
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text("utf-8")):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        there = (file.parent / path).resolve() if path else file
        assert there.exists(), target
        if heading:
            headings = [re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in there.read_text("utf-8").splitlines() if line.startswith("#")]
            assert heading in headings, target


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(PACKAGE.parent).as_posix())
def test_a_folder_says_what_each_of_its_modules_is(folder):
    names = list(itertools.chain.from_iterable(listed(folder)))
    within = {path.name.removesuffix(".py"): path for path in folder.iterdir() if path.suffix == ".py" or path in FOLDERS}
    within.pop("__init__")
    said = [stem for name in names for stem, path in within.items() if path.match(name) or path.match(f"{name}.py")]
    assert sorted(said) == sorted(within), "each once, in the folder's docstring"
    assert [name for name in names if not [*folder.glob(name), *folder.glob(f"{name}.py")]] == []


def bound_in(body):
    """The names that statements bind, with what binds each."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, node) for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((name.id, node) for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def is_there(place, parts):
    """Whether a path of names leads from a folder to a module, or to what one binds; nothing is imported."""
    while parts and (place / parts[0]).is_dir():
        place, parts = place / parts[0], parts[1:]
    if parts and (place / f"{parts[0]}.py").exists():
        place, parts = place / f"{parts[0]}.py", parts[1:]
    body = ast.parse((place / "__init__.py" if place.is_dir() else place).read_text("utf-8")).body
    for part in parts:
        found = dict(bound_in(body)).get(part)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def places_of(text):
    """What a docstring names by a dotted path that begins with a folder or a top-level module of profnb: where to look, and for what."""
    rooms = {folder.name: folder for folder in FOLDERS} | {path.stem: path for path in PACKAGE.glob("*.py")}
    for name in re.findall(r"``([a-z]\w*(?:\.\w+)+)(?:\([^`]*\))?``", text):
        first, *parts = name.split(".")
        if first in rooms and parts[-1] not in ("gz", "js", "json", "py"):  # which are files
            yield name, PACKAGE if first == "profnb" else rooms[first].parent, parts if first == "profnb" else [first, *parts]


def test_what_a_docstring_refers_to_is_there():
    named = [(str(path.relative_to(PACKAGE)), *found) for path in FILES for found in places_of(ast.get_docstring(ast.parse(path.read_text("utf-8"))))]
    assert {"profnb.load", "compare.ranking", "device.roofline"} <= {name for _, name, _, _ in named}
    assert [(file, name) for file, name, place, parts in named if not is_there(place, parts)] == []
