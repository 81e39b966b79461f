"""A slice of the hostile files of ``tests/fuzz``: opened whole or refused as documented, whatever is in them."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from fuzz_seeds import FORMATS, PAYLOAD, case, seeds
from hostile_files import BrokenInvariantError, _examine, open_file, outcome_of

# Most of what people have most. Of ONNX Runtime's, few are refused.
HOW_MANY = dict.fromkeys(FORMATS, 100) | {"xplane": 400, "onnx": 150}
FIRST = int(os.environ.get("PROFNB_FUZZ_FIRST", "0"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_hostile_files_open_or_are_refused_as_documented(tmp_path, kind):
    wrong, outcomes = [], []
    for number in range(FIRST, FIRST + HOW_MANY[kind]):
        outcome, why = outcome_of(kind, number, tmp_path, is_whole=number % 25 == 0)  # the page takes longest
        outcomes.append(outcome)
        if outcome not in ("refused", "opened"):
            wrong.append((kind, number, outcome, why))
    assert wrong == []
    assert outcomes.count("opened") > HOW_MANY[kind] / 20  # else nothing but the outermost reader was tried
    assert outcomes.count("refused") > HOW_MANY[kind] / 20


def test_a_case_is_the_same_each_time():
    assert [case(kind, 7) for kind in FORMATS] == [case(kind, 7) for kind in FORMATS]
    assert len({case("xplane", number) for number in range(50)}) > 45


@pytest.mark.parametrize("kind", FORMATS)
def test_whole_files_open(tmp_path, kind):
    for data in seeds(kind):
        for path in tmp_path.iterdir():
            path.unlink()
        assert open_file(kind, data, tmp_path, is_whole=False) == "opened"


def test_broken_invariants_are_noticed(tmp_path, monkeypatch):
    """The guilty: each thing that is looked for, planted."""
    import profnb
    from profnb.profile import Profile

    file = tmp_path / "x.xplane.pb"
    file.write_bytes(seeds("xplane")[0])
    monkeypatch.setattr(Profile, "summary", lambda _: "a\x1b[31m")
    with pytest.raises(BrokenInvariantError, match="control character"):
        _examine(profnb.load(file), tmp_path, is_whole=False)
    monkeypatch.undo()
    page = f"<p>{PAYLOAD}</p>"
    monkeypatch.setattr("profnb.report.report.page_html", lambda *_: page)
    with pytest.raises(BrokenInvariantError, match="payload in the page"):
        _examine(profnb.load(file), tmp_path, is_whole=True)
    monkeypatch.undo()
    p = profnb.load(file)
    p.study.breakdown.picoseconds[0, 0] += 1
    with pytest.raises(BrokenInvariantError, match="do not sum"):
        _examine(p, tmp_path, is_whole=False)
