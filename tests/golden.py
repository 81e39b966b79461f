"""Everything that profnb says of every trace there is, as text files that two versions of the code can be compared by.

    python tests/golden.py OUT_DIR [--only SUBSTRING] [--also PATH]     write
    python tests/golden.py --compare DIR_A DIR_B [--tables-only]        compare; exits with 1 if they differ
    python tests/golden.py --renew                                      rewrite tests/data/golden (see test_golden.py)

Opens every file of ../shared/traces, the recorded CPU trace, and what ``--also`` names (a file, or a folder that
is searched; folders of runs open as one), by the public names of profnb alone, so that the same script runs on
any version: ``PYTHONPATH=/that/version python tests/golden.py OUT_DIR``. Per trace it writes

    summary.txt, notes.txt, advice.txt   what is said; of advice every field
    TABLE.csv                            every DataFrame of ``Profile``, whole, or the first and last 50 rows of many
    doc.txt                              columns, types, rows, attributes; a digest of columns too long for a file
    words.txt                            the words of the report's page, one text a line
    figures.txt                          the figures of the page, as plotly is given them
    report.html                          the page, in a canonical form: a tag a line, long data as digests
    export.txt                           a digest of the Chrome trace
    error.txt                            instead of all that: why it was refused

Pairs of traces add ``comparison.txt`` and the tables of a ``Comparison``. No path of this machine and no time is
in there; two runs write the same bytes.
"""

import argparse
import dataclasses
import difflib
import hashlib
import io
import json
import re
import sys
import tempfile
import time
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd

import profnb

# "TABLE.COLUMN" or "TABLE" of the first folder, and its name in the second.
RENAMED: dict[str, str] = {
    "utilisation": "utilization",
    "memory_summary.peak_ms": "peak_time_ms",
    "devices.utilisation_fraction": "utilization_fraction",
    "xla_modules.executions": "occurrences",
    "source_lines.runs": "occurrences",
    "source_lines.op_runs": "op_occurrences",
    "python.calls": "occurrences",
    "input_pipeline.calls": "occurrences",
    **{f"tfprof-{view}.run_count": "occurrences" for view in ("scope", "graph", "op", "code")},
    "input_pipeline.function_runs": "function_occurrences",
}
# "TABLE.COLUMN" or "TABLE" that only the second folder has, for instance a new name beside the old one.
ADDED: set[str] = set()

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared" / "traces"
RECORDED = TESTS / "data" / "cpu-cnn.xplane.pb"
PAIRS = (
    ("gpu-cnn-pairs/batch32-fp32-global-a.xplane.pb", "gpu-cnn-pairs/batch32-fp32-global-b.xplane.pb"),
    ("gpu-cnn-pairs/batch32-fp32-global-a.xplane.pb", "gpu-cnn-pairs/batch32-mixed-global.xplane.pb"),
    ("gpu-cnn-batch128/host.xplane.pb", "gpu-cnn-batch512/host.xplane.pb"),
    ("kineto/control.json.gz", "kineto/changed.json.gz"),
)
WHOLE_ROWS, SAMPLE_ROWS = 2000, 50
LONG_DATA = 4000
MARKUP, WORDS, FIGURES = "report.html", "words.txt", "figures.txt"
HEX_ID = re.compile(r"\b[0-9a-f]{32}\b")


# What there is.


def find_paths(shared, also):
    """Name and path of everything to open, in order."""
    roots = [("", shared)] + [(f"also/{root.name}/", root) for root in also]
    paths = {"cpu-cnn.xplane.pb": RECORDED}
    for prefix, root in roots:
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
        for file in files:
            if file.suffix != ".md":
                paths[prefix + (file.name if file == root else file.relative_to(root).as_posix())] = file
        for folder in sorted(p.parent for p in root.rglob("plugins")):
            paths[f"{prefix}{folder.relative_to(root).as_posix()}/logdir"] = folder
    return paths


# One trace to files.


def write_trace(path, out, root):
    """Everything said of one trace, or why it was refused; how many table rows."""
    out.mkdir(parents=True)
    try:
        profile = profnb.load(path)
    except Exception as error:
        write(out / "error.txt", f"{type(error).__name__}: {clean(str(error), root)}")
        return 0
    write(out / "summary.txt", profile.summary())
    write(out / "notes.txt", "\n".join(profile.notes))
    write(out / "advice.txt", "\n\n".join(advice_text(advice) for advice in profile.advice))
    tables = dict(find_tables(profile)) | tfprof_tables(profile)
    write_tables(tables, out)
    write_html(profile, out, root)
    return sum(len(table) for table in tables.values() if isinstance(table, pd.DataFrame))


def find_tables(profile):
    """Every public attribute that is a DataFrame, or that raises, by name."""
    for name in sorted(dir(type(profile))):
        if name.startswith("_") or callable(getattr(type(profile), name)):
            continue
        if RENAMED.get(name) in dir(type(profile)):  # what a table was called, kept for one release
            continue
        try:
            value = getattr(profile, name)
        except Exception as error:
            value = f"{type(error).__name__}: {error}"
            yield name, value
        else:
            if isinstance(value, pd.DataFrame):
                yield name, value


def tfprof_tables(profile):
    tables = {}
    for view in ("scope", "graph", "op", "code"):
        try:
            tables[f"tfprof-{view}"] = profile.tfprof(view)
        except Exception as error:
            tables[f"tfprof-{view}"] = f"{type(error).__name__}: {error}"
    return tables


def write_tables(tables, out):
    described = []
    for name, table in tables.items():
        if isinstance(table, str):
            described.append(f"{name}: {table}")
            continue
        described.append(f"{name}: {len(table)} rows, attributes {json.dumps(table.attrs, sort_keys=True, default=str)}")
        many = len(table) > WHOLE_ROWS
        for position, column in enumerate(table.columns):
            digest = f" {digest_of(table.iloc[:, position])}" if many else ""
            described.append(f"{name}.{column}: {table.dtypes.iloc[position]}{digest}")
        if many:
            table = pd.concat([table.head(SAMPLE_ROWS), table.tail(SAMPLE_ROWS)])
        write(out / f"{name}.csv", table.to_csv(index=many, lineterminator="\n"))
    write(out / "doc.txt", "\n".join(described))


def digest_of(column):
    """The same for equal values, whatever bits a NaN has."""
    if column.dtype.kind in "fiub":
        values = column.to_numpy()
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), np.nan, values + 0.0)
        raw = np.ascontiguousarray(values).tobytes()
    else:
        raw = "\0".join(map(str, column.tolist())).encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest()[:16]


def advice_text(advice):
    fields = dataclasses.fields(advice)
    return "\n".join(f"{field.name}: {getattr(advice, field.name)!r}" for field in fields)


def write_html(profile, out, root):
    """The page: the report and its figures, then the timeline."""
    with tempfile.TemporaryDirectory() as folder:
        page = profile.to_html(Path(folder) / "page.html").read_text("utf-8")
        canonical = Canonical.of(re.sub(r"<(script|style)\b[^>]*>.*?</\1>", "", page, flags=re.S))
        if profile.has_trace:
            exported = profile.to_chrome_trace(Path(folder) / "trace.json").read_bytes()
            write(out / "export.txt", f"{len(exported)} bytes {hashlib.sha256(exported).hexdigest()}")
    write(out / MARKUP, clean("\n".join(canonical.lines), root))
    write(out / WORDS, clean("\n".join(canonical.words), root))
    write(out / FIGURES, clean("\n\n".join(map(figure_text, canonical.figures)), root))


def figure_text(figure):
    """A plotly figure with one member a line, to two levels."""
    figure = json.loads(figure)
    members = [(f"data {number} {name}", value) for number, part in enumerate(figure.pop("data", [])) for name, value in sorted(part.items())]
    members += [(f"layout {name}", value) for name, value in sorted(figure.pop("layout", {}).items())]
    members += sorted(figure.items())
    return "\n".join(f"{name}: {json.dumps(value, sort_keys=True, ensure_ascii=False)}" for name, value in members)


class Canonical(HTMLParser):
    """HTML with one tag a line, attributes in order, one way of escaping, long data as digests; and its words."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.lines, self.words, self.figures = [], [], []

    @classmethod
    def of(cls, html):
        canonical = cls()
        canonical.feed(html)
        canonical.close()
        return canonical

    def handle_starttag(self, tag, attributes):
        written = "".join(f" {name}={self.value_text(value or '')}" for name, value in sorted(attributes))
        self.lines.append(f"<{tag}{written}>")
        self.words.extend(f"[{value}]" for name, value in attributes if name in ("title", "aria-label", "alt"))
        self.figures.extend(value for name, value in attributes if name == "data-figure")

    def handle_endtag(self, tag):
        self.lines.append(f"</{tag}>")

    def handle_data(self, text):
        text = " ".join(text.split())
        if text:
            self.lines.append(escape(text, quote=False))
            self.words.append(text)

    @staticmethod
    def value_text(value):
        if value[:1] in ("{", "["):
            try:
                value = json.dumps(json.loads(value), sort_keys=True, ensure_ascii=False)
            except ValueError:
                pass
        value = HEX_ID.sub("ID", value)
        if len(value) > LONG_DATA:
            value = f"{value[:LONG_DATA]}... {len(value)} {hashlib.sha256(value.encode()).hexdigest()[:16]}"
        return json.dumps(value, ensure_ascii=False)


def write_comparison(one, two, out):
    out.mkdir(parents=True)
    comparison = profnb.compare(profnb.load(one), profnb.load(two))
    write(out / "comparison.txt", comparison.summary())
    write_tables(dict(find_tables(comparison)), out)
    report = Canonical.of(comparison._repr_mimebundle_()["text/html"])
    write(out / MARKUP, "\n".join(report.lines))
    write(out / WORDS, "\n".join(report.words))


def clean(text, root):
    return text.replace(str(root) + "/", "").replace(str(root), "").replace(str(TESTS) + "/", "")


def write(path, text):
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        file.write(text.rstrip("\n") + "\n")


def write_all(out, shared, only, also):
    """Everything said of every trace into a folder that must be new or empty."""
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty.")
    opened = refused = rows = 0
    for name, path in find_paths(shared, also).items():
        if only not in name:
            continue
        begin = time.perf_counter()
        try:
            count = write_trace(path, out / name, shared)
        except Exception as error:
            raise RuntimeError(f"{name} was opened, but something cannot be asked of it") from error
        is_refused = (out / name / "error.txt").exists()
        opened, refused, rows = opened + (not is_refused), refused + is_refused, rows + count
        print(f"{time.perf_counter() - begin:6.1f} s  {'refused' if is_refused else f'{count:7,} rows'}  {name}", flush=True)
    for one, two in PAIRS:
        if only in f"{one} {two}" and (shared / one).exists():
            write_comparison(shared / one, shared / two, out / "comparisons" / f"{slug(one)}--{slug(two)}")
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"{opened} opened, {refused} refused, {rows:,} table rows, {len(files)} files, {size / 1e6:.1f} MB")


def slug(name):
    return re.sub(r"[/.]", "-", re.sub(r"\.(xplane\.pb|json\.gz|json)$", "", name))


# Two folders.


def compare(one, two, ignored, most_lines):
    """Print what differs; how many files."""
    ones, twos = files_of(one), files_of(two)
    differing = 0
    for name in sorted({renamed_file(name) for name in ones} | set(twos)):
        old = next((before for before in ones if renamed_file(before) == name), None)
        if Path(name).name in ignored or (old is None and Path(name).stem in ADDED):
            continue
        if old is None or name not in twos:
            differing += 1
            print(f"{'only in ' + str(two) if old is None else 'missing in ' + str(two)}: {name}")
            continue
        before, after = ones[old].read_bytes(), twos[name].read_bytes()
        if before == after:
            continue
        before_lines = with_renames(before.decode("utf-8", "surrogatepass"), old)
        after_lines = without_additions(after.decode("utf-8", "surrogatepass"), name)
        if before_lines == after_lines:
            continue
        differing += 1
        print(f"differs: {name}")
        difference = list(difflib.unified_diff(before_lines, after_lines, "before", "after", n=0, lineterm=""))
        for text in difference[2 : 2 + most_lines]:
            print(f"    {text[:200]}")
    print(f"{len(ones)} and {len(twos)} files, {differing} differ")
    return differing


def files_of(folder):
    if not folder.is_dir():
        sys.exit(f"No folder {folder}.")
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def renamed_file(name):
    path = Path(name)
    table = RENAMED.get(path.stem) if path.suffix == ".csv" else None
    return path.with_name(f"{table}.csv").as_posix() if table else name


def with_renames(text, name):
    """The lines of an old file with the new names of its columns and tables."""
    lines = text.splitlines()
    path = Path(name)
    if path.suffix == ".csv" and lines:
        lines[0] = ",".join(RENAMED.get(f"{path.stem}.{column}", column) for column in lines[0].split(","))
    if path.name == "doc.txt":
        lines = sorted(renamed_doc(line) for line in lines)
    return lines


def renamed_doc(line):
    subject, colon, rest = line.partition(": ")
    table, dot, column = subject.partition(".")
    return f"{RENAMED.get(table, table)}{dot}{RENAMED.get(subject, column)}{colon}{rest}"


def without_additions(text, name):
    """The lines of a new file without what was added on purpose."""
    lines = text.splitlines()
    path = Path(name)
    if path.name == "doc.txt":
        return sorted(line for line in lines if not {(subject := line.split(": ")[0]), subject.split(".")[0]} & ADDED)
    added = {one.partition(".")[2] for one in ADDED if one.startswith(f"{path.stem}.")}
    if path.suffix == ".csv" and added:
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
        table = table.drop(columns=added & set(table.columns)).rename(columns={"Unnamed: 0": ""})
        return table.to_csv(index=False, lineterminator="\n").splitlines()
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, help="an empty or new folder")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only traces with this in their name")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the traces (default: ../shared/traces)")
    parser.add_argument("--also", type=Path, action="append", default=[], metavar="PATH", help="more traces or logdirs")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("DIR_A", "DIR_B"))
    parser.add_argument("--tables-only", action="store_true", help="leave out everything of the HTML")
    parser.add_argument("--no-markup", action="store_true", help=f"leave out {MARKUP}, but not its words")
    parser.add_argument("--lines", type=int, default=8, help="how many lines of a difference to print")
    parser.add_argument("--renew", action="store_true", help="rewrite tests/data/golden")
    options = parser.parse_args()
    if options.compare:
        ignored = {MARKUP, WORDS, FIGURES} if options.tables_only else {MARKUP} if options.no_markup else set()
        sys.exit(1 if compare(*options.compare, ignored, options.lines) else 0)
    if options.renew:
        sys.path.append(str(TESTS / "report"))
        from test_golden import renew

        renew()
        return
    if options.out is None:
        parser.error("give a folder to write to, or --compare, or --renew")
    print(f"profnb of {Path(profnb.__file__).parent}")
    write_all(options.out, options.shared, options.only, options.also)


if __name__ == "__main__":
    main()
