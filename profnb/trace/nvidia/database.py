"""SQLite files of others to columns: only real tables are read, and nothing that a file names is run.

A database may hold views, triggers, virtual tables and generated columns, which run what the file says. So a
table is read only where the schema calls it one and its text begins ``CREATE TABLE``; the authorizer lets
nothing else through. The work is bounded by the file's size, a text by its length, all cells by their number.

Source: "Defense Against The Dark Arts", sqlite.org/security.html.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable

_MOST_CELLS, _BLOCK = 150_000_000, 50_000  # numbers and texts: 1.2 GB, however small the file is
_MOST_TABLES = 1_000
_LONGEST_CELL, _LONGEST_ROW = 4_000, 1 << 24
_CHECK_EVERY, _FREE_CHECKS, _BYTES_A_CHECK = 10_000, 1_000, 200  # virtual machine's instructions
_ALLOWED = {
    sqlite3.SQLITE_SELECT: None, sqlite3.SQLITE_READ: None, sqlite3.SQLITE_PRAGMA: {"table_info"},
    sqlite3.SQLITE_FUNCTION: {"substr", "hex", "typeof"},
}  # fmt: skip


class Database:
    """The real tables of an open SQLite file.

    Attributes:
        tables: The columns of each table.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Find the tables."""
        self._connection, self._cells_left = connection, _MOST_CELLS
        schema = connection.execute(
            "SELECT type, name, substr(sql, 1, 20) FROM sqlite_master LIMIT ?", (_MOST_TABLES,)
        ).fetchall()
        self.tables: dict[str, set[str]] = {}
        self._others: dict[str, str] = {}
        for kind, name, sql in schema:
            if kind == "table" and str(sql).upper().startswith("CREATE TABLE") and '"' not in name:
                columns = connection.execute(f'PRAGMA table_info("{name}")')
                self.tables[name] = {column[1] for column in columns}
            elif kind in ("view", "table"):
                self._others[name] = "a view" if kind == "view" else "a virtual table"

    def has(self, *names: str) -> bool:
        """Tell whether one of some tables is there."""
        for name in names:
            if name in self._others:
                raise TraceFormatError(
                    f"{name} is {self._others[name]}, where these files have a table. Nothing was read."
                )
        return any(name in self.tables for name in names)

    def integers(self, table: str, *columns: str) -> list[Int64s]:
        """Read columns of integers; -1 where a cell or column is missing, none without the table."""
        return self.rows(table, columns, ())[0]

    def rows(
        self, table: str, columns: Sequence[str], texts: Sequence[str]
    ) -> tuple[list[Int64s], list[list[str]]]:
        """Read columns of integers, and columns of texts; bytes as ``0x4D00``."""
        there = self.tables[table] if self.has(table) else set()
        asked = [
            f'CASE typeof("{name}") WHEN \'integer\' THEN "{name}" END' if name in there else "NULL"
            for name in columns
        ]
        for name in texts:
            cell = f'substr("{name}", 1, {_LONGEST_CELL})'
            of_bytes = (
                f"CASE typeof(\"{name}\") WHEN 'blob' THEN '0x' || hex({cell}) ELSE {cell} END"
            )
            asked.append(of_bytes if name in there else "NULL")
        blocks: list[Int64s] = [np.empty((0, len(columns)), np.int64)]
        text_columns: list[list[str]] = [[] for _ in texts]
        if there:
            cursor = self._connection.execute(f'SELECT {", ".join(asked)} FROM "{table}"')  # noqa: S608
            while block := cursor.fetchmany(_BLOCK):
                self._cells_left -= len(block) * max(len(asked), 1)
                if self._cells_left < 0:
                    raise TraceFormatError(
                        f"More than {_MOST_CELLS:,} cells. Record a shorter time and export that."
                    )
                cells = [[-1 if c is None else c for c in row[: len(columns)]] for row in block]
                blocks.append(np.array(cells, np.int64).reshape(len(block), len(columns)))
                for at, column in enumerate(text_columns, len(columns)):
                    column.extend("" if row[at] is None else str(row[at]) for row in block)
        return list(np.concatenate(blocks).T.copy()), text_columns


class Strings:
    """A database's table of texts; a number that is not in it has the text ``?``.

    Args:
        database: The database.
        table: The table, whose texts stand in ``value``.
        key: The column of their numbers.
    """

    def __init__(self, database: Database, table: str, key: str) -> None:
        """Read them all."""
        (ids,), (texts,) = database.rows(table, [key], ["value"])
        self._texts = dict(zip(ids.tolist(), texts, strict=True))

    def of(self, ids: Int64s) -> tuple[list[str], Int64s]:
        """Give the distinct texts of N numbers, and the row of each, shape (N,)."""
        distinct, row = np.unique(ids, return_inverse=True)
        return [self._texts.get(one, "?") for one in distinct.tolist()], row.reshape(-1)


@contextmanager
def open_database(file: Path) -> Iterator[Database]:
    """Open a SQLite file to read, as it is: no journal beside it is applied, no lock taken.

    Raises:
        TraceFormatError: It is damaged, or needs more work than its size explains.
    """
    checks = _FREE_CHECKS + file.stat().st_size // _BYTES_A_CHECK

    def is_too_much() -> bool:
        nonlocal checks
        checks -= 1
        return checks < 0

    def allows(action: int, one: str | None, two: str | None, *_: str | None) -> int:
        names = _ALLOWED.get(action, set())
        is_fine = names is None or one in names or two in names
        return sqlite3.SQLITE_OK if is_fine else sqlite3.SQLITE_DENY

    uri = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            if hasattr(connection, "setlimit"):  # from Python 3.11 on
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_ROW)
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA cell_size_check=ON")
            connection.set_progress_handler(is_too_much, _CHECK_EVERY)
            connection.set_authorizer(allows)
            yield Database(connection)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:  # of a message, too
        reason = printable(str(error)[:200])
        raise TraceFormatError(
            f"The SQLite database is damaged or cut short ({reason}). Export it again."
        ) from None
