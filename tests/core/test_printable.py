"""Names of others command no terminal: escape sequences in files, folders, hosts, labels and ops."""

import io
import shutil

import pytest

import profnb
from profnb.__main__ import main
from profnb.core.printable import filled, printable, printable_lines, terminal_columns

EVIL = "a\x1b[31m\x1b]0;title\x07\u202eb\r"


def test_what_commands_a_terminal_is_replaced_and_the_rest_stays():
    assert printable("k\u00e4se \u2588\u2592 \u65e5\u672c") == "k\u00e4se \u2588\u2592 \u65e5\u672c"
    assert printable(EVIL) == "a\ufffd[31m\ufffd]0;title\ufffd\ufffdb\ufffd"
    assert printable("\u00a0\u00a0indented") == "\u00a0\u00a0indented"
    assert printable_lines("one\ntwo\x1b") == "one\ntwo\ufffd"


@pytest.fixture
def evil_logdir(tmp_path, cpu_trace_path):
    run = tmp_path / f"log{EVIL}" / "plugins" / "profile" / f"run{EVIL}"
    run.mkdir(parents=True)
    shutil.copy(cpu_trace_path, run / f"host{EVIL}.xplane.pb")
    return tmp_path / f"log{EVIL}"


def shows_no_command(text):
    return not [char for char in text if not (char.isprintable() or char == "\n")]


@pytest.mark.parametrize("arguments", [["--list"], ["--text"], ["--run", "none"], ["--host", "none"]])
def test_the_command_line_prints_no_escape_sequence_of_a_name(evil_logdir, capsys, arguments):
    main(["report", str(evil_logdir), *arguments])
    shown = "".join(capsys.readouterr())
    assert len(shown) > 20
    assert shows_no_command(shown)


def test_errors_and_results_hold_no_escape_sequence(evil_logdir, tmp_path):
    p = profnb.load(evil_logdir)
    assert shows_no_command(repr(p))
    assert "host" in repr(p)
    damaged = tmp_path / f"x{EVIL}.xplane.pb"
    damaged.write_bytes(b"\x0a\xff\xff")
    for path, error in ((damaged, profnb.TraceFormatError), (tmp_path / EVIL, FileNotFoundError)):
        with pytest.raises(error) as caught:
            profnb.load(path)
        assert shows_no_command(str(caught.value))


def test_the_error_of_vs_and_of_options_holds_no_escape_sequence():
    from types import SimpleNamespace

    from IPython.core.error import UsageError

    from profnb.magic.known_results import KnownResults

    results = KnownResults(SimpleNamespace(user_ns={EVIL: 3}))
    results.by_label[f"label{EVIL}"] = None
    for name in ("no such", EVIL):
        with pytest.raises(UsageError) as caught:
            results.source(name)
        assert shows_no_command(str(caught.value))
        assert "label" in str(caught.value) or "int" in str(caught.value)


@pytest.mark.parametrize("output", [None, object(), io.StringIO()], ids=["none", "a logger's", "no terminal"])
def test_an_output_that_is_no_terminal_has_no_columns(monkeypatch, output):
    monkeypatch.setattr("sys.stdout", output)
    assert terminal_columns() is None
    assert filled("a " * 60, 40) == "\n".join(["a " * 19 + "a"] * 3)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It saves 842 ms to 1.89 s of the cell", ["It saves 842 ms to", "1.89 s of the cell"]),
        ("This is 38 % of the whole cell", ["This is 38 % of the", "whole cell"]),
        ("with memory of about 1.5 GB or more", ["with memory of about", "1.5 GB or more"]),
        ("It ran for more than 3 steps of all", ["It ran for more than", "3 steps of all"]),
        ("It ran for all of its 12 steps again", ["It ran for all of its", "12 steps again"]),
        ("the first of all these is batch 12 so", ["the first of all", "these is batch 12 so"]),
    ],
)
def test_a_line_ends_between_words_but_not_before_a_unit(text, lines):
    assert filled(text, 21).split("\n") == lines
