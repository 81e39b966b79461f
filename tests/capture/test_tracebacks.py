"""In a traceback the magic's line reads as its user wrote it, and nothing else changes."""

import linecache
import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from profnb.capture.cell import as_written
from profnb.magics import load_magics, unload_magics

WRITTEN = {"get_ipython().run_line_magic('_tfprofile_begin', '-q')": "%%tfprofile   -q"}
PLAIN_PIECE = "Cell In[1], line 2\n      1 get_ipython().run_line_magic('_tfprofile_begin', '-q')\n----> 2 1/0"
COLOURED = "\x1b[92m      1\x1b[39m get_ipython()\x1b[38;5;241m.\x1b[39mrun_line_magic(\x1b[33m'_tfprofile_begin', '-q'\x1b[39m)\n\x1b[92m----> \x1b[39m\x1b[92m2\x1b[39m 1/0"


def test_the_magics_line_in_a_traceback_reads_as_it_was_written():
    assert as_written(PLAIN_PIECE, WRITTEN) == "Cell In[1], line 2\n      1 %%tfprofile   -q\n----> 2 1/0"
    shown = as_written(COLOURED, WRITTEN).split("\n")
    assert shown == ["\x1b[92m      1\x1b[39m \x1b[0m%%tfprofile   -q", COLOURED.split("\n")[1]]
    at_fault = "----> 1 get_ipython().run_line_magic('_tfprofile_begin', '-q')"
    assert as_written(at_fault, WRITTEN) == "----> 1 %%tfprofile   -q"


@pytest.mark.parametrize(
    "line",
    [
        "      2 get_ipython().run_line_magic('_tfprofile_begin', '-q')",  # not the first line: the user's own
        "      1 get_ipython().run_line_magic('_tfprofile_begin', '-o p')",  # was never transformed
        "      1 x = get_ipython().run_line_magic('_tfprofile_begin', '-q')",
        "get_ipython().run_line_magic('_tfprofile_begin', '-q')",  # what an exception says
        "",
    ],
)
def test_all_else_of_a_traceback_stays(line):
    assert as_written(line, WRITTEN) == line


def run(shell, cell, capsys):
    shell.run_cell(cell)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    return re.sub(r"input-\d+-\w+", "input", shown)


CELLS = {
    "an exception": "1/0",
    "in a function": "def f():\n    return 1/0\nf()",
    "chained": "try:\n    1/0\nexcept Exception as e:\n    raise ValueError(3) from e",
    "over lines": "sum(\n    [1,\n     1/0])",
    "again": "1/0\n",
}


@pytest.mark.parametrize("body", CELLS.values(), ids=CELLS)
def test_a_traceback_is_that_of_the_cell_without_the_magic(shell, capsys, body):
    first = "%%tfprofile -q  --no-live"
    ours = run(shell, f"{first}\n{body}", capsys)
    again = run(shell, "%tb", capsys)
    assert ours == run(shell, f"# plain\n{body}", capsys).replace("# plain", first)
    assert again == run(shell, "%tb", capsys).replace("# plain", first)
    assert "_tfprofile_begin" not in ours


def test_the_cells_source_stays_python(shell, capsys):
    run(shell, "%%tfprofile -q --no-live\ndef f():\n    return 1/0\nf()", capsys)
    name = shell.user_ns["f"].__code__.co_filename
    compile("".join(linecache.getlines(name)), name, "exec")


def test_without_the_name_in_ipython_the_cell_runs():
    shell = InteractiveShell()
    shell.InteractiveTB = None
    load_magics(shell)
    shell.run_cell("%%tfprofile -q --no-live\nx = 1")
    assert shell.user_ns["x"] == 1
    unload_magics(shell)


def test_unloading_takes_the_hook_back():
    shell = InteractiveShell()
    before = shell.InteractiveTB.structured_traceback
    load_magics(shell)
    assert shell.InteractiveTB.structured_traceback != before
    unload_magics(shell)
    assert shell.InteractiveTB.structured_traceback == before
