"""The pages of the documentation that follow from the code: the glossary, the tables, all sentences, the walk of a cell.

python docs/make.py            write docs/glossary.md, tables.md and sentences.md, and the walk into CONTRIBUTING.md
python docs/make.py --check    exit with 1 if they are not what would be written
"""

import ast
import re
import sys
from pathlib import Path

from profnb.comparison import Comparison
from profnb.core.glossary import GLOSSARY
from profnb.core.table import Table, tables_of
from profnb.history.series import HISTORY
from profnb.lite.entry import LiteResult
from profnb.lite.entry import LiteComparison
from profnb.many_traces.fleets import Fleet
from profnb.many_traces.summaries import SUMMARIES
from profnb.tables import Tables

FOLDER = Path(__file__).resolve().parent
PACKAGE = FOLDER.parent / "profnb"
CONTRIBUTING = "../CONTRIBUTING.md"
sys.path.insert(0, str(FOLDER))  # for those who load this file by its path

from sentences import sentences_markdown  # noqa: E402

# The files that a profiled cell walks through, in order. Who calls whom and what each does is read from them.
WALK = (
    "magics", "magic/cell_runs", "captured", "capture/session", "trace/files", "profile", "subjects/study", "steps/spine",
    "subjects/ops/op_table", "causes/cell_tree", "advice/advise", "advice/rules/op_rules",
    "report/build", "subjects/ops/section", "report/report", "report/frontend", "timeline/element",
)  # fmt: skip


def glossary_markdown() -> str:
    """The page on terms."""
    parts = [
        "# Glossary",
        "The field's terms as profnb uses them. Written by `docs/make.py` from `profnb/core/glossary.json`.",
    ]
    for title, terms in GLOSSARY.items():
        rows = [
            f"| **{name}** | {term.sentence} {term.rule}".rstrip()
            + f" | {term.shows} | {term.elsewhere} |"
            for name, term in terms.items()
        ]
        head = "| term | meaning | where it shows | in other tools |\n| --- | --- | --- | --- |"
        parts.append(f"## {title}\n\n" + "\n".join([head, *rows]))
    return "\n\n".join(parts) + "\n"


def table_markdown(table: Table) -> str:
    """The section of one table."""
    listed = "\n".join(f"| `{c.name}` | {c.meaning.replace('|', '/')} |" for c in table.columns)
    remark = f"\n{table.remark}\n" if table.remark else ""
    head = f"## {table.owner}.{table.name}\n\n{table.rows}\n{remark}\n"
    return f"{head}| column | meaning |\n| --- | --- |\n{listed}"


def tables_markdown() -> str:
    """The page on the tables that are declared, in the order of ``profnb.tables``."""
    owners = (Tables, Comparison, LiteResult, LiteComparison)
    tables = [table for owner in owners for table in tables_of(owner).values() if table.columns]
    tables += [*tables_of(Fleet).values(), SUMMARIES, HISTORY]
    listed = "\n".join(
        f"- [{table.owner}.{table.name}](#{table.owner}{table.name}): {table.rows}" for table in tables
    )
    head = (
        "# Tables\n\nEach is a pandas DataFrame, made fresh on access: `p.NAME`, or "
        "`python -m profnb table PATH NAME`; `f.NAME` of a fleet (`profnb.load_fleet`), `c.NAME` of a "
        "comparison (`profnb.compare`), `lite.NAME` of what `profnb.lite` gives. Written by `docs/make.py` from the declarations."
    )
    return "\n\n".join([head, listed, *map(table_markdown, tables)]) + "\n"


def walk_text() -> str:
    """The walk of a cell as a tree: each file below the last one before it that imports it."""
    parsed = {place: ast.parse((PACKAGE / f"{place}.py").read_text("utf-8")) for place in WALK}
    needs = {place: {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} for place, tree in parsed.items()}
    depth = {WALK[0]: 0}
    for at, place in enumerate(WALK[1:], 1):
        module = "profnb." + place.replace("/", ".")
        depth[place] = 1 + depth[next(before for before in WALK[at - 1 :: -1] if module in needs[before])]
    width = max(2 * depth[place] + len(place) for place in WALK) + 3
    return "\n".join(
        f"{'  ' * depth[place] + place + '.py':{width}}  {ast.get_docstring(tree).splitlines()[0].replace('``', '')}"
        for place, tree in parsed.items()
    )


def contributing_markdown() -> str:
    """The page for contributors with the walk of a cell put in anew."""
    page = (FOLDER / CONTRIBUTING).read_text("utf-8")
    return re.sub(r"(<!-- walk -->\n```text\n).*?(\n```)", lambda found: found[1] + walk_text() + found[2], page, flags=re.DOTALL)


def pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    return {
        "glossary.md": glossary_markdown(),
        "tables.md": tables_markdown(),
        "sentences.md": sentences_markdown(),
        CONTRIBUTING: contributing_markdown(),
    }


def main() -> int:
    """Write the pages, or check them."""
    written = pages()
    stale = [name for name, text in written.items() if not _is_written(FOLDER / name, text)]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{name} is not what docs/make.py writes" for name in stale))
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(written[name], encoding="utf-8")
        print(f"docs/{name}")
    return 0


def _is_written(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
