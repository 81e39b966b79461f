"""The notebooks of the gallery, saved with their outputs: what GitHub, nbviewer and Colab's preview show a reader.

python docs/gallery.py                           run each notebook of notebooks/ and save it with what it shows (a minute or two each)
python docs/gallery.py 01-quickstart 09-litert   only these
python docs/gallery.py --repository OWNER/NAME   write where this repository is into notebooks, README and pages

A saved notebook says nothing of the machine: what TensorFlow and others log, moments, versions and live controls are
left out, and it is refused where a path or a name of the machine is left. ``differences`` says where saved outputs are
of another kind than those of a run (other outputs, tabs, tables or columns; not other numbers).
"""

import base64
import getpass
import gzip
import hashlib
import html
import os
import platform
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
NOWHERE = "OWNER/profnb"  # this repository is at no public address yet
BUDGET_BYTES = 400_000

# The first cell of each: it installs profnb where it is missing, and what a notebook needs besides.
EXTRAS = {"09-litert": ["ai-edge-litert"]}
FIRST_CELL = """\
import importlib.util
from pathlib import Path

if importlib.util.find_spec("profnb") is None:  # in Colab, or in a clone where it is not installed
    clone = Path("../pyproject.toml").exists()
    source = ".." if clone else "git+https://github.com/{repository}"  # where this repository is
    %pip install -q {{source}}{extras}

%load_ext profnb"""

_PATHS = re.compile(r"(?<![\w.:/~-])/(?:home|Users|root|tmp|var|work|usr|opt|content)/[\w.-]+")


def first_cell(stem: str) -> str:
    """The code that each notebook begins with."""
    found = re.search(r"git\+https://github\.com/([\w.-]+/[\w.-]+)", _code(NOTEBOOKS / f"{stem}.ipynb"))
    repository = found[1] if found else NOWHERE
    return FIRST_CELL.format(repository=repository, extras="".join(f" {name}" for name in EXTRAS.get(stem, [])))


def _code(path: Path) -> str:
    import nbformat

    return "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code") if path.exists() else ""


# What a notebook shows, without its numbers.


def kinds(notebook: Any) -> list[list[Any]]:
    """What each code cell shows: for a report its tabs and tables, for a DataFrame its columns, else text or picture."""
    return [[kind for output in cell.outputs if (kind := _kind(output)) not in (None, "script")] for cell in notebook.cells if cell.cell_type == "code"]


def _kind(output: Any) -> Any:
    if output.output_type == "stream":
        return "text" if output.name == "stdout" else None
    if output.output_type == "error":
        return f"error {output.ename}"
    data = {mime: value for mime, value in output.data.items() if value}
    page = data.get("text/html", "")
    if re.search(r'class="profnb( |")', page):
        name = "timeline" if "profnb-timeline" in page[:200] else "report"
        return name, frozenset(re.findall(r'data-tab="([^"]*)"', page)), _tables(page)
    if 'class="dataframe"' in page:
        head = page.partition("</thead>")[0]
        return "table", tuple(re.findall(r"<th>([^<]+)</th>", head))
    if not data or "application/vnd.jupyter.widget-view+json" in data:
        return None
    return "script" if "application/javascript" in data else "page" if page else "text" if "text/plain" in data else min(data)


def _tables(page: str) -> dict[str, frozenset[tuple[str, ...]]]:
    """The headings of the tables of each part of a report."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for part in re.split(r'(?=data-part=")', page)[1:]:
        name = html.unescape(part.split('"')[1])
        for row in re.findall(r"<tr[^>]*>((?:(?!</tr>).)*columnheader.*?)</tr>", part, re.DOTALL):
            cells = re.findall(r"<(t[dh])[^>]*columnheader[^>]*>(.*?)</\1>", row, re.DOTALL)
            found.setdefault(name, set()).add(tuple(" ".join(re.sub(r"<[^>]+>", "", cell).split()) for _, cell in cells))
    return {name: frozenset(heads) for name, heads in found.items()}


def differences(saved: Any, now: Any) -> list[str]:
    """Where the outputs of a saved notebook are of another kind than those of a run; empty if they are not stale.

    What one of both has more of is no difference, as the other may have had nothing to show for it; a name of one side
    that stands for another name of the other is.
    """
    found = []
    for number, (before, after) in enumerate(zip(kinds(saved), kinds(now), strict=True), 1):
        names = [[kind if isinstance(kind, str) else kind[0] for kind in side] for side in (before, after)]
        if names[0] != names[1]:
            found.append(f"cell {number} shows {', '.join(names[1]) or 'nothing'}, saved is {', '.join(names[0]) or 'nothing'}")
            continue
        for old, new in zip(before, after, strict=True):
            for what, was, has in _named(old, new):
                if was - has and has - was:
                    found.append(f"cell {number}: {what} {_listed(has - was)}, saved {_listed(was - has)}")
    return found


def _named(old: Any, new: Any) -> Iterator[tuple[str, set[str], set[str]]]:
    """What has names in two outputs of a kind: what it is, and the names in both."""
    if isinstance(old, tuple) and old[0] == "table":
        yield "columns", set(old[1]), set(new[1])
    elif isinstance(old, tuple):
        yield "tabs", set(old[1]), set(new[1])
        for part in old[2].keys() & new[2].keys():
            yield f"columns of {part}", *(set().union(*side[2][part]) for side in (old, new))


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


# Saving.


def source_mark(notebook: Any) -> str:
    """What saved outputs are of: a digest of the code of all cells but the first, which only installs and loads."""
    code = "\0".join([cell.source for cell in notebook.cells if cell.cell_type == "code"][1:])
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def tidy(notebook: Any) -> None:
    """Leave out of an executed notebook what is of the machine or the moment, and what needs a kernel."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _scripts_once([output for output in cell.outputs if _kind(output)])
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "profnb": {"code": source_mark(notebook), "tensorflow": _tensorflow(), "frameworks": frameworks()},
    }


def _scripts_once(outputs: list[Any]) -> list[Any]:
    """Leave each script of a cell where it comes last: it serves all outputs of the cell."""
    last = {script: at for at, output in enumerate(outputs) if (script := _script_of(output))}
    return [output for at, output in enumerate(outputs) if last.get(_script_of(output), at) == at]


def _script_of(output: Any) -> str:
    return output.data.get("application/javascript", "") if "data" in output else ""


def frameworks() -> list[str]:
    """The frameworks that are installed here; what a notebook shows of others is that they are not."""
    from importlib.util import find_spec

    return [name for name in ("tensorflow", "jax", "torch") if find_spec(name)]


def _tensorflow() -> str:
    from importlib.metadata import PackageNotFoundError, version

    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return ".".join(version(name).split(".")[:2])
        except PackageNotFoundError:
            continue
    return ""


def of_machine(notebook: Any) -> list[str]:
    """What outputs tell of the machine that ran them: absolute paths, names of host and user; also inside packed data."""
    names = {platform.node(), str(ROOT), str(Path.home()), tempfile.gettempdir() + "/", sys.prefix}
    if (user := getpass.getuser()) != "root":  # a word that means other things too
        names.add(f"/{user}")
    found = set()
    for text in _texts(notebook):
        found |= {name for name in names if len(name) > 3 and name in text}
        found |= set(_PATHS.findall(text))
    return sorted(found)


def _texts(notebook: Any) -> Iterator[str]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for text in (output.get("text", ""), *map(str, output.get("data", {}).values())):
                yield text
                for packed in re.findall(r"[A-Za-z0-9+/]{80,}={0,2}", text):
                    try:
                        data = base64.b64decode(packed, validate=True)
                        yield (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")
                    except (ValueError, OSError, EOFError, zlib.error):
                        continue


def save(path: Path) -> str:
    """Run a notebook, save it with its outputs, and say what it is now.

    Raises:
        ValueError: The outputs name the machine, or are too large.
        nbclient.exceptions.CellExecutionError: A cell fails; nothing is written.
    """
    import nbclient
    import nbformat
    from profnb.report.notebook_file import clean_notebook

    notebook = nbformat.read(path, 4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    if "%load_ext profnb" not in first.source:
        raise ValueError(f"{path.name} does not begin with %load_ext profnb.")
    first.source = first_cell(path.stem)
    client = nbclient.NotebookClient(
        notebook, timeout=1800, iopub_timeout=120, startup_timeout=300, kernel_name="python3", record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )  # fmt: skip
    client.execute()
    tidy(notebook)
    with tempfile.TemporaryDirectory() as folder:
        partial = Path(folder) / path.name
        nbformat.write(notebook, partial)
        clean_notebook(partial, partial)
        if told := of_machine(nbformat.read(partial, 4)):
            raise ValueError(f"Outputs of {path.name} name this machine: {', '.join(told)}.")
        if (size := partial.stat().st_size) > BUDGET_BYTES:
            raise ValueError(f"{path.name} has {size:,} bytes with its outputs, more than {BUDGET_BYTES:,}.")
        path.write_bytes(partial.read_bytes())
    return f"{path.name}: {size:,} bytes"


def write_address(repository: str, root: Path = ROOT) -> list[str]:
    """Write where the repository is, as OWNER/NAME on GitHub, into links and install cells; gives the files changed."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"{repository!r} is not OWNER/NAME.")
    changed = []
    for path in (root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "notebooks").glob("*.ipynb"))):
        text = path.read_text("utf-8")
        if NOWHERE in text:
            path.write_text(text.replace(NOWHERE, repository), encoding="utf-8")
            changed.append(path.relative_to(root).as_posix())
    return changed


def main() -> int:
    """Save notebooks, or write the address."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--repository"]:
        print("\n".join(write_address(arguments[1])))
        return 0
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("PROFNB_JOURNALS", "0")  # what died here is none of the reader's
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not arguments or path.stem in arguments:
            print(save(path), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
