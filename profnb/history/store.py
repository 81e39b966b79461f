"""The history's file: SQLite with a write-ahead log, one row a run.

Any number of processes write at once; each waits a few seconds for the others and loses nothing. A process
that is killed while it writes leaves the file as it was before. The file is bounded: in the older half every
second run goes once there are too many. A damaged file is renamed, and a new one begins; a file of a newer
profnb stays as it is, and this version writes beside it.

Source: SQLite's documentation: "Write-Ahead Logging", "PRAGMA Statements" (application_id, user_version).
"""

import atexit
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cache
from math import nan
from pathlib import Path
from typing import Any

from profnb.capture.machine.waits import MOUNTS, network_mounts
from profnb.core.errors import ProfnbError, TraceFormatError
from profnb.core.printable import printable
from profnb.core.safe_files import check_regular

_OURS, _SCHEMA = 0x70726E62, 3  # "prnb"; 2 has where a trace was kept, 3 trials and headlines
_PATIENCE_S = 5.0
MOST_RUNS, _LARGEST_HISTORY = 20_000, 64_000_000
_CHECKED_EACH = 64  # runs
_MOST_TREE = 1_000_000  # bytes of a tree, unpacked
Tree = Sequence[Sequence[Any]]
FIRST = (
    "profnb keeps the numbers of each run from now on, and no code: `%tfhistory` shows them. "
    "`profnb.configure(history=False)` keeps none."
)


class HistoryError(ProfnbError):
    """The history cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a cell, block or program, with its repeats; numbers, and names of rules and parts.

    Attributes:
        key: Its own.
        when: Seconds since 1970.
        cell: Which code it is: equal for edits of constants and comments.
        label: What the user called it; "" for nothing.
        commit: Of the git repository; "" where there is none.
        is_dirty: Whether files that git follows differed from it; None where nobody knows.
        machine: The hardware.
        versions: Of Python and the frameworks, and settings of theirs.
        settings: Batch size and the like, as far as known.
        runs: How often the code ran.
        steps: Steps that the times are of.
        cell_steps: Steps of the main phase that ran in all.
        median_ms: The typical step; NaN where there are none.
        low_ms: Where its 95 % interval begins.
        high_ms: Where it ends.
        wall_ms: The code's whole wall time.
        examples_per_second: Examples over wall time of steps; NaN where the batch size is not known.
        peak_bytes: Most memory of an allocator; NaN where none was recorded.
        others: Share of all cores that other programs took; NaN where nobody looked.
        headline: Its steps in a line.
        advice: Rules, and what each saves at least and at most, in ms.
        trials: Rules, and of each trial the ratio of times, where its 95 % interval begins and ends, and the
            least and the most that the advice had promised it to be; None where that is not known.
        trace: The file of its trace, where the user had it kept; "" for none.
        tree: Nodes of the cell's tree: parent, kind, name, occurrences, own time in ms.
    """

    key: str = ""
    when: float = nan
    cell: str = ""
    label: str = ""
    commit: str = ""
    is_dirty: bool | None = None
    machine: str = ""
    versions: str = "{}"
    settings: str = "{}"
    runs: int = 1
    steps: int = 0
    cell_steps: int = 0
    median_ms: float = nan
    low_ms: float = nan
    high_ms: float = nan
    wall_ms: float = nan
    examples_per_second: float = nan
    peak_bytes: float = nan
    others: float = nan
    headline: str = ""
    advice: Sequence[Sequence[Any]] = ()
    trials: Sequence[Sequence[Any]] = ()
    trace: str = ""
    tree: Tree = ()


_COLUMNS = tuple(field.name for field in fields(Run))
_LISTED = tuple(name for name in _COLUMNS if name != "tree")
_NUMBERS = tuple(field.name for field in fields(Run) if field.type is float)
_LISTS = ("advice", "trials")
_COLUMN_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_TABLE = _COLUMN_NAMES.replace('"key"', '"key" TEXT UNIQUE NOT NULL')


def write_run(path: Path, run: Run, most_runs: int = MOST_RUNS) -> str:
    """Keep a run, or what is known now of one that is kept; give what the user should know, or "".

    Raises:
        HistoryError: It was not written; the message says why.
    """
    trouble = f"This run was not kept in {printable(path.name)}"
    with _told_as(trouble, " profnb.configure(history=False) keeps none."):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _write(path, run, most_runs)
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # as of a lock or a full disk
                raise
            remark = _keep_aside(path, error)
        _write(path, run, most_runs)
        return remark


def add_to_run(path: Path, key: str, name: str, value: Any) -> None:
    """Add to a run that is kept what is known a moment later, such as whether files differed from its commit.

    Raises:
        HistoryError: It was not written.
    """
    with _told_as(f"{printable(path.name)} was not written"), _opened(path) as (database, _):
        stored = _as_json(value) if name in _LISTS else value
        database.execute(f'UPDATE runs SET "{name}" = ? WHERE key = ?', (stored, key))  # noqa: S608


@contextmanager
def _told_as(trouble: str, remedy: str = "") -> Iterator[None]:
    """Make what goes wrong with the file a sentence."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError, TypeError, zlib.error, TraceFormatError) as error:
        said = printable(str(error)).removesuffix(".")
        raise HistoryError(f"{trouble}: {said}.{remedy}") from None


def _write(path: Path, run: Run, most_runs: int) -> str:
    with _opened(path) as (database, remark):
        _insert(database, run, most_runs)
        _hold_open(path, path.stat().st_ino, os.getpid())
    return remark


def read_runs(path: Path, where: str = "1", given: Sequence[Any] = ()) -> list[Run]:
    """Read runs without their trees, the oldest first; none where there is no file.

    Args:
        path: The history's file.
        where: A condition of SQLite's.
        given: What stands for its question marks.

    Raises:
        HistoryError: The file is damaged, or is another program's.
    """
    if not path.exists() or not path.stat().st_size:  # to read an empty file leaves it empty
        return []
    names = ", ".join(f'"{name}"' for name in _LISTED)
    with _read(path) as database:
        rows = database.execute(f"SELECT {names} FROM runs WHERE {where} ORDER BY id", given)  # noqa: S608
        return [_as_run(dict(zip(_LISTED, row, strict=True))) for row in rows]


def read_tree(path: Path, key: str) -> Tree:
    """Read a run's tree; empty where it has none any more."""
    with _read(path) as database:
        row = database.execute("SELECT tree FROM runs WHERE key = ?", (key,)).fetchone()
        if row is None or row[0] is None:
            return ()
        tree: Tree = json.loads(zlib.decompressobj().decompress(row[0], _MOST_TREE))
        return tree


@contextmanager
def _read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file to read it, or say what it is instead.

    SQLite alone opens it: whoever closes the file otherwise gives up the locks that this process has on it.
    """
    trouble = f"{printable(path.name)} cannot be read as a history"
    with _told_as(trouble, " Give the file in which profnb keeps runs."):
        check_regular(path)
        with _opened(path) as (database, _):
            yield database


@contextmanager
def _opened(path: Path) -> Iterator[tuple[sqlite3.Connection, str]]:
    """Open the file, made where there is none; that of this version beside one of a newer profnb.

    With it comes what the user should know, in a sentence, or "".
    """
    remark = "" if path.exists() else FIRST
    with closing(_connect(path)) as database:
        version = _version(database, path)
        if version <= _SCHEMA:
            yield _prepared(database, version, path), remark
            return
    beside = path.with_name(f"{path.stem}-{_SCHEMA}{path.suffix}")
    remark = f"A newer profnb wrote {printable(path.name)}. This one keeps runs in {beside.name}."
    remark = "" if beside.exists() else remark
    with closing(_connect(beside)) as database:
        yield _prepared(database, _version(database, beside), beside), remark


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)


@cache
def _hold_open(path: Path, inode: int, process: int) -> None:  # noqa: ARG001 - they make it another file
    """Hold one connection until this process ends: to close the last one waits 20 ms for the disk."""
    held = sqlite3.connect(path, timeout=_PATIENCE_S, check_same_thread=False)
    held.execute("SELECT count(*) FROM sqlite_master").fetchone()
    atexit.register(held.close)


def _version(database: sqlite3.Connection, path: Path) -> int:
    asked = ("PRAGMA application_id", "SELECT count(*) FROM sqlite_master", "PRAGMA user_version")
    database.execute("BEGIN")  # all three of one moment: another process may be making the table
    owner, objects, version = (int(database.execute(one).fetchone()[0]) for one in asked)
    database.execute("COMMIT")
    if owner != _OURS and objects:
        name = printable(path.name)
        raise HistoryError(f"{name} is another program's database. Name another file.")
    return version


def _prepared(database: sqlite3.Connection, version: int, path: Path) -> sqlite3.Connection:
    """Make the table where there is none, and the columns that an earlier profnb had not."""
    database.execute("PRAGMA synchronous=NORMAL")
    if version < _SCHEMA:
        if not _is_remote(path):  # the log is shared memory, which no network file system has
            database.execute("PRAGMA journal_mode=WAL")
        database.execute("BEGIN IMMEDIATE")
        database.execute(f"PRAGMA application_id={_OURS}")
        database.execute(f"CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, {_TABLE})")
        database.execute("CREATE INDEX IF NOT EXISTS by_code ON runs (cell, label)")
        there = {row[1] for row in database.execute("PRAGMA table_info(runs)")}
        for name in set(_COLUMNS) - there:
            database.execute(f'ALTER TABLE runs ADD COLUMN "{name}"')
        database.execute(f"PRAGMA user_version={_SCHEMA}")
        database.execute("COMMIT")
    return database


def _is_remote(path: Path) -> bool:
    mounts: dict[str, str] = {}
    with suppress(OSError, UnicodeError):
        mounts = network_mounts(MOUNTS.read_text("utf-8", "surrogateescape"))
    place = os.path.realpath(path)
    return any(place.startswith(f"{mount.rstrip('/')}/") for mount in mounts)


def _insert(database: sqlite3.Connection, run: Run, most_runs: int) -> None:
    values = {name: getattr(run, name) for name in _COLUMNS}
    values |= {name: None if values[name] != values[name] else values[name] for name in _NUMBERS}
    values |= {name: _as_json(values[name]) if values[name] else None for name in _LISTS}
    values["tree"] = zlib.compress(_as_json(run.tree).encode()) if run.tree else None
    marks = ", ".join("?" * len(values))
    # What comes later is added.
    renewed = ", ".join(f'"{name}" = coalesce(excluded."{name}", "{name}")' for name in values)
    database.execute("BEGIN IMMEDIATE")
    cursor = database.execute(
        f"INSERT INTO runs ({_COLUMN_NAMES}) VALUES ({marks}) ON CONFLICT (key) DO UPDATE SET {renewed}",  # noqa: S608 - names of columns
        tuple(values.values()),
    )
    if (cursor.lastrowid or 0) % min(_CHECKED_EACH, most_runs) == 0:
        _thin(database, most_runs)
    database.execute("COMMIT")


def _as_json(value: Sequence[Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _thin(database: sqlite3.Connection, most_runs: int) -> None:
    """Let every second run of the older half go where there are too many; trees where those are large."""
    count = database.execute("SELECT count(*) FROM runs").fetchone()[0]
    while count > most_runs:
        count -= database.execute(
            "DELETE FROM runs WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS row "
            "FROM runs ORDER BY id LIMIT ?) WHERE row % 2 = 0)",
            (-(-count // 2),),
        ).rowcount
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    if (pages - free) * size > _LARGEST_HISTORY:
        database.execute(
            "UPDATE runs SET tree = NULL WHERE id IN (SELECT id FROM runs WHERE tree IS NOT NULL "
            "ORDER BY id LIMIT (SELECT count(*) / 2 FROM runs WHERE tree IS NOT NULL))"
        )


def _as_run(values: dict[str, Any]) -> Run:
    values |= {name: nan if values[name] is None else float(values[name]) for name in _NUMBERS}
    values["is_dirty"] = None if values["is_dirty"] is None else bool(values["is_dirty"])
    values |= {name: json.loads(values[name] or "[]") for name in _LISTS}
    values |= {name: values[name] or "" for name in ("trace", "headline")}
    return Run(**values)


def _keep_aside(path: Path, error: sqlite3.DatabaseError) -> str:
    """Rename a damaged file with what belongs to it; say so, unless another process has just done it."""
    with suppress(sqlite3.DatabaseError), _opened(path) as (database, _):
        if database.execute("PRAGMA quick_check").fetchone() == ("ok",):
            return ""
    aside = path.with_name(f"{path.stem}-damaged-{time.time_ns() // 1_000_000}{path.suffix}")
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(aside.with_name(aside.name + end))
    return (
        f"The history of runs was damaged ({printable(str(error))}). The old file is now "
        f"{printable(aside.name)}, and a new history begins."
    )
