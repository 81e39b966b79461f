"""What the report says of two traces, and how their steps are drawn, word for word.

The files are in tests/data/golden. If a change of them is meant, ``python tests/golden.py --renew`` rewrites them;
read the difference (``git diff tests/data/golden``) before it is committed. Real traces of others are compared by
``tests/golden.py`` between two versions of the code; nothing of them is kept here.
"""

import difflib
import json
from pathlib import Path

import golden
import pytest
from gpu_example import built_profile

import profnb

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "golden"
RENEW = "If this is meant: python tests/golden.py --renew, and read the difference."
NUMBERS_PER_LINE = 10


def cpu_profile():
    return profnb.load(DATA / "cpu-cnn.xplane.pb")


def said(profile):
    """The report, every field of the advice, and the notes."""
    advice = "\n\n".join(golden.advice_text(one) for one in profile.advice)
    return f"{profile.summary()}\n\n== advice ==\n{advice}\n\n== notes ==\n" + "\n".join(profile.notes) + "\n"


def drawn(profile):
    """The chart of the steps as plotly is given it: JSON, members in order, numbers to six digits after the point."""
    return json_text(profile._report.figures["Steps"]) + "\n"


def json_text(value, margin=""):
    deeper = margin + " "
    if isinstance(value, dict) and value:
        members = (f"{deeper}{json.dumps(name)}: {json_text(value[name], deeper)}" for name in sorted(value))
        return "{\n" + ",\n".join(members) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return "[\n" + ",\n".join(deeper + json_text(one, deeper) for one in value) + f"\n{margin}]"
    if isinstance(value, list):
        parts = [json_text(one) for one in value]
        lines = [", ".join(parts[at : at + NUMBERS_PER_LINE]) for at in range(0, len(parts), NUMBERS_PER_LINE)]
        return f"[{f',{chr(10)}{deeper}'.join(lines)}]"
    return json.dumps(round(value, 6) if isinstance(value, float) else value, ensure_ascii=False)


MADE = {
    "cpu-report.txt": (cpu_profile, said),
    "cpu-steps.json": (cpu_profile, drawn),
    "gpu-report.txt": (built_profile, said),
    "gpu-steps.json": (built_profile, drawn),
}


def renew():
    """Write the files anew."""
    GOLDEN.mkdir(exist_ok=True)
    for name, (profile, text) in MADE.items():
        (GOLDEN / name).write_text(text(profile()), encoding="utf-8", newline="\n")


@pytest.mark.parametrize("name", MADE)
def test_what_is_said_and_drawn_is_what_it_was(name):
    profile, text = MADE[name]
    expected = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    difference = list(difflib.unified_diff(expected, text(profile()).splitlines(), f"tests/data/golden/{name}", "now", lineterm=""))
    if difference:
        pytest.fail("\n".join([f"{name} changed. {RENEW}", *difference]), pytrace=False)


def test_a_step_chart_is_json_that_can_be_read_back():
    figure = json.loads((GOLDEN / "gpu-steps.json").read_text(encoding="utf-8"))
    assert [bars["name"] for bars in figure["data"]][-2:] == ["between steps", "slowest step"]
    assert len(figure["data"][0]["x"]) == 66  # 2 bars of warm-up, 62 of train steps, 2 of test steps


def test_two_outputs_of_the_script_are_compared_cell_by_cell(tmp_path, capsys, monkeypatch):
    for name in ("one", "two"):
        golden.write_all(tmp_path / name, DATA, "cpu-cnn.xplane.pb", [])
    assert golden.compare(tmp_path / "one", tmp_path / "two", set(), 8) == 0
    steps = tmp_path / "two" / "cpu-cnn.xplane.pb" / "steps.csv"
    steps.write_text(steps.read_text().replace("step_num", "number", 1))
    assert golden.compare(tmp_path / "one", tmp_path / "two", set(), 8) == 1
    assert "+number,phase" in capsys.readouterr().out
    monkeypatch.setitem(golden.RENAMED, "steps.step_num", "number")
    doc = steps.with_name("doc.txt")
    doc.write_text(doc.read_text().replace("\nsteps.step_num:", "\nsteps.number:"))
    assert golden.compare(tmp_path / "one", tmp_path / "two", set(), 8) == 0


def test_a_column_that_was_added_on_purpose_is_no_difference(tmp_path, monkeypatch):
    for name, text in (("one", "a,b\n1,\"x, y\"\n"), ("two", "a,c,b\n1,2.50,\"x, y\"\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ops.csv").write_text(text)
    assert golden.compare(tmp_path / "one", tmp_path / "two", set(), 8) == 1
    monkeypatch.setattr(golden, "ADDED", {"ops.c"})
    assert golden.compare(tmp_path / "one", tmp_path / "two", set(), 8) == 0
