"""``python -m profnb table``: the list of tables, one as text, one as JSON."""

import json
from pathlib import Path

import pytest

import profnb
from profnb.__main__ import main
from profnb.comparison import Comparison
from profnb.core.table import Table, TableOf, tables_of
from profnb.lite.entry import LiteResult
from profnb.lite.entry import LiteComparison
from profnb.many_traces.fleets import Fleet
from profnb.tables import Tables

TRACE = str(Path(__file__).parents[1] / "data" / "cpu-cnn.xplane.pb")


def test_without_a_name_every_table_is_listed_with_what_its_rows_are(capsys):
    assert main(["table", TRACE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(tables_of(Tables))
    assert all("One row per" in line for line in lines)
    assert {"kernels", "steps", "ops", "events"} <= {line.split()[0] for line in lines}


def test_a_table_is_printed_as_text(capsys):
    assert main(["table", TRACE, "steps"]) == 0
    out = capsys.readouterr().out
    steps = profnb.load(TRACE).steps
    assert out.startswith("One row per")
    assert len(out.splitlines()) == 2 + len(steps)
    assert "duration_ms" in out.splitlines()[1]


def test_a_long_table_is_cut_and_says_so(capsys):
    assert main(["table", TRACE, "events"]) == 0
    events = profnb.load(TRACE).events
    assert f"60 of {len(events):,} rows; --json has all." in capsys.readouterr().out


def test_a_table_without_rows_says_so(capsys):
    assert main(["table", TRACE, "kernels"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "This table is empty for this trace."


def test_json_has_every_row_and_none_for_what_is_missing(capsys):
    assert main(["table", TRACE, "steps", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    steps = profnb.load(TRACE).steps
    assert read["table"] == "steps"
    assert [column["name"] for column in read["columns"]] == list(steps)
    assert len(read["rows"]) == len(steps)
    gap = list(steps).index("gap_ms")
    assert read["rows"][-1][gap] is None
    assert read["rows"][0][gap] == steps.gap_ms[0]


def test_a_name_that_is_no_table_is_refused_with_those_there_are(capsys):
    assert main(["table", TRACE, "kernel"]) == 1
    assert "There is no table 'kernel'. The tables are: " in capsys.readouterr().err


def test_a_path_that_is_not_there_is_refused_without_a_name_too(capsys, tmp_path):
    assert main(["table", str(tmp_path / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err


def test_tables_are_declarations_and_properties_that_speak_of_rows():
    class Both:
        copies = TableOf("subjects.device.devices", "COPIES", "copies")

        @property
        def made(self):
            """One row per thing, the
            largest first.

            Columns: ``a``.
            """

        @property
        def other(self):
            """Something else."""

    tables = tables_of(Both)
    assert list(tables) == ["copies", "made"]
    assert tables["made"] == Table("made", "One row per thing, the largest first.", ())


@pytest.mark.parametrize("owner", [Tables, LiteResult, Fleet, Comparison, LiteComparison])
def test_a_table_is_declared_under_the_name_that_it_has(owner):
    declared = {name: place.table for name, place in vars(owner).items() if isinstance(place, TableOf)}
    assert [table.name for table in declared.values()] == list(declared)
    assert all(table.rows.startswith("One row per ") and table.rows.endswith(".") for table in declared.values())


@pytest.mark.parametrize("name", list(tables_of(Tables)))
def test_every_table_is_json(name, capsys):
    assert main(["table", TRACE, name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["table"] == name
