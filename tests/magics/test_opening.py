"""Opening: which of several runs and hosts was taken, and a line magic where the cell's was meant."""

import os
import shutil

import pytest

import profnb
from profnb.magics import ProfnbMagics


@pytest.fixture
def logdir(tmp_path, cpu_trace_path):
    for at, run in enumerate(("2026_01_01", "2026_01_02")):
        folder = tmp_path / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        for host in ("a", "b"):
            file = folder / f"{host}.xplane.pb"
            shutil.copy(cpu_trace_path, file)
            os.utime(file, (1000 + at, 1000 + at))
    return tmp_path


def test_what_was_taken_of_several_is_said_unless_it_was_asked_for(logdir):
    p = profnb.load(logdir)
    assert p.notes[:2] == [
        "The newest of 2 runs was opened, 2026_01_02; run= (--run) opens a different run.",
        "The first of 2 hosts was opened, a; host= (--host) opens a different host, profnb.load_fleet all.",
    ]
    assert "The newest of 2 runs" in p.summary()
    assert profnb.load(logdir, run="2026_01_01").remarks == ["The first of 2 hosts was opened, a; host= (--host) opens a different host, profnb.load_fleet all."]
    assert profnb.load(logdir, run="2026_01_01", host="b").remarks == []


def test_nothing_is_said_of_the_only_one(cpu_trace_path):
    assert profnb.load(cpu_trace_path).remarks == []


@pytest.fixture
def magics():
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    yield ProfnbMagics(shell)
    type(shell).clear_instance()


@pytest.mark.parametrize("line", ["-o p", "-n 20 --python", ""])
def test_a_line_magic_with_a_cell_magics_options_says_what_was_meant(magics, line):
    from IPython.core.error import UsageError

    for name, call in (("tfprofile", magics.tfprofile_line), ("tftimeline", magics.tftimeline_line)):
        with pytest.raises(UsageError, match="write as its first line: ") as caught:
            call(line)
        assert str(caught.value).endswith(f"%%{name} {line}".rstrip())


@pytest.mark.parametrize("line", ["nowhere", "a b c"])
def test_what_is_wrong_with_a_path_is_said_as_it_is(magics, line):
    from IPython.core.error import UsageError

    with pytest.raises(UsageError) as caught:
        magics.tfprofile_line(line)
    assert "%%" not in str(caught.value)
