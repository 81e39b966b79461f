"""Python's objects by the line that made them, where memray is installed; a sentence where it is not."""

import builtins
import sys
from pathlib import Path

import pytest

import profnb

NAME = Path(__file__).name


def test_without_memray_the_cell_runs_and_a_note_says_what_to_do(monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "memray":
            raise ImportError(name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with profnb.profile(memory=True) as p:
        total = sum(range(10))
    assert total == 45
    assert [note for note in p.notes if "pip install memray" in note]
    assert "Python objects" not in set(p.memory_kinds.kind)


@pytest.fixture
def memray():
    return pytest.importorskip("memray", reason="memray is not installed")


def test_objects_stand_by_the_line_that_made_them(memray):
    line = sys._getframe().f_lineno + 2
    with profnb.profile(memory=True) as p:
        kept = [bytes(200) for _ in range(100_000)]  # 233 bytes each, in blocks of 240
    rows = p.memory_kinds.query("source == 'process' and kind == 'Python objects'")
    made = rows[rows.holder.str.endswith(f"{NAME}:{line}")]
    assert len(kept) == 100_000 and len(made) == 1
    assert made.bytes.iloc[0] == pytest.approx(233 * 100_000, rel=0.1)
    assert made.blocks.iloc[0] >= 100_000
    process = p.memory_kinds.query("source == 'process'")
    assert process.fraction.sum() == pytest.approx(1)


def test_the_most_that_lived_counts_and_not_what_is_left(memray):
    with profnb.profile(memory=True) as p:
        for _ in range(3):
            list(map(bytes, [200] * 100_000))
    objects = p.memory_kinds.query("kind == 'Python objects'").bytes.sum()
    assert 20e6 < objects < 40e6


def test_a_tracker_of_the_users_goes_on(memray, tmp_path):
    with memray.Tracker(tmp_path / "mine"), profnb.profile(memory=True) as p:
        total = sum(range(10))
    assert total == 45
    assert [note for note in p.notes if note.startswith("memray could not start (")]
    assert memray.FileReader(tmp_path / "mine").metadata.total_allocations > 0
