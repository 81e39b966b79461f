"""What a report says as plain values: by its schema, small whatever the trace, and the same as the tables and the text."""

import json
from pathlib import Path

import pytest
from conftest import DATA, SHARED
from traces import event, host, line, read

import profnb
from profnb.__main__ import main
from profnb.profile import Profile
from profnb.report.as_data import JSON_BYTES
from profnb.report.text import MEANINGS
from profnb.steps.activities import CATEGORIES

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads((Path(profnb.__file__).parent / "report" / "report.schema.json").read_text("utf-8"))
MS = 10**9


def checked(p):
    """What a profile says, held to the schema and the bound."""
    text = p.to_json()
    assert len(text.encode()) <= JSON_BYTES
    data = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert data == p.to_dict()
    return data


def trained(name="a", steps=8, phase="train"):
    ops = [event(phase, at * 10 * MS, 8 * MS, step_num=at, _r=1) for at in range(steps)]
    ops += [event(f"{name}/MatMul:MatMul", at * 10 * MS + MS, 4 * MS) for at in range(steps)]
    ops += [event(f"{name}/Relu:Relu", at * 10 * MS + 5 * MS, MS) for at in range(steps)]
    return Profile(read(host(line("python", *ops))))


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_numbers_are_those_of_the_tables_and_words_those_of_the_text():
    p = trained()
    data = checked(p)
    assert data["steps"]["counted"] == 8
    assert (data["steps"]["median_ms"], data["steps"]["mean_period_ms"]) == (8, 9.75)  # seven gaps of 2 ms, no eighth
    assert data["steps"]["batch_size"] is None  # not known is null, not zero
    by_category = {row["category"]: row["mean_ms"] for row in data["typical_step"]}
    assert by_category == {"host compute": 5, "all others": 3, "between steps": 1.75}
    assert sum(row["fraction"] for row in data["typical_step"]) == pytest.approx(1, abs=1e-4)
    top = data["tables"]["ops"]
    assert top["rows"] == len(p.ops)
    assert [dict(zip(top["columns"], row, strict=True))["op_name"] for row in top["top"]] == ["a/MatMul", "a/Relu"]
    assert dict(zip(top["columns"], top["top"][0], strict=True))["self_us"] == 32_000
    assert data["headline"] in p.summary()
    assert data["answer"] in p.summary()
    assert [one["rule"] for one in data["advice"]] == [one.rule for one in p.advice[:5]]
    assert not data["is_shortened"]
    assert data["definitions"]["host compute"] == MEANINGS["host compute"]


def test_every_category_has_a_definition():
    assert {*CATEGORIES, "between steps"} <= set(MEANINGS)


def test_a_window_has_no_steps_and_no_trace_no_tables():
    data = checked(Profile(read(host(line("python", event("a:MatMul", 0, MS))))))
    assert data["steps"] is None
    assert data["tables"]["ops"]["rows"] == 1
    with profnb.profile() as p:
        sum(range(10))
    data = checked(p)
    assert data["steps"] is None
    assert "ops" not in data["tables"]
    assert data["cell"] is None or data["cell"]["wall_ms"] >= 0


@pytest.mark.parametrize("name", ["\U0001f600" * 3000, '"\\' * 3000, "\x1b[31m\u202e<script>" * 300, "a" * 100_000])
def test_names_of_any_length_fit_and_command_nothing(name):
    p = trained(name, phase=name)
    text = p.to_json()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert checked(p)["is_shortened"]


def test_many_phases_and_many_notes_fit():
    many = [event(f"{'🎉' * 50}phase {at}", at * 10 * MS, 8 * MS, step_num=0, _r=1) for at in range(200)]
    p = Profile(read(host(line("python", *many, *(event(f"{'é' * 400}{at}:Mul", at * 10 * MS, 4 * MS) for at in range(200))))))
    vars(p)["notes"] = vars(p)["_other_notes"] = ["\\" * 1000] * 100
    assert checked(p)["is_shortened"]


def test_the_command_prints_it(capsys):
    trace = str(DATA / "cpu-cnn.xplane.pb")
    assert main(["report", trace, "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == profnb.load(trace).to_dict()


SHARED_TRACES = ("gpu-cnn-batch8/host.xplane.pb", "kineto/changed.json.gz", "tpu-v6e/training.xplane.pb", "run-metadata/gpu.run_metadata.pb", "jax-rocm/conv.xplane.pb")


@pytest.mark.parametrize("name", SHARED_TRACES)
def test_real_traces_fit_and_keep_to_the_schema(name):
    if not (SHARED / name).exists():
        pytest.skip("needs ../shared/traces")
    p = profnb.load(SHARED / name)
    data = checked(p)
    if data["steps"] is not None:
        assert data["steps"]["counted"] + data["steps"]["aside"] <= len(p.steps)
    for table, told in data["tables"].items():
        assert told["rows"] == len(getattr(p, table))
        assert len(told["top"]) >= 3 or len(told["top"]) == told["rows"]
