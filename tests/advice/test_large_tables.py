"""A table of which a step reads few rows: the optimizer goes through all of them, and the layer is named."""

import pytest
from advised import alone, proposed
from traces import event, host, line, read

from profnb.capture.models.layer_facts import LayerFacts, ModelFacts
from profnb.capture.models.op_order import UPDATE, OpFact
from profnb.capture.recording import Recording
from profnb.subjects.study import Study

MS = 10**9


def study_of(rows, shape, kind="Embedding", others=1):
    """Eight steps of 10 ms, 64 examples each: 7 ms update the table, ``others`` the Dense layer behind."""
    layers = (
        LayerFacts("m", "m", "Sequential", True, -1, 0),
        LayerFacts("m/table", "table", kind, True, 0, rows * shape[-1], shape),
        LayerFacts("m/dense", "dense", "Dense", True, 0, 10, (None, 1)),
    )
    facts = {"adam/Sub": OpFact(UPDATE, 1), "adam/Sub_1": OpFact(UPDATE, 2)}
    model = ModelFacts("m", layers, True, ("mse",), "adam", {}, frozenset(), {}, {"train": (facts,)})
    steps = [event("train", at * 10 * MS, 10 * MS, step_num=at, _r=1, batch_size=64) for at in range(8)]
    ops = [
        event(name, at * 10 * MS + int(begin * MS), int(took * MS))
        for at in range(8)
        for name, begin, took in (
            ("m/table/GatherV2:GatherV2", 0.5, 0.5), ("adam/Sub:Sub", 1, 8 - others), ("adam/Sub_1:Sub", 9 - others, others),
            ("m/dense/MatMul:MatMul", 9, 0.9),
        )
    ]  # fmt: skip
    return Study(read(host(line("python", *steps, *ops))), 0, Recording(models=(model,)))


@pytest.mark.parametrize("shape", [(None, 24, 32), (None, None, 32)])
def test_a_table_of_which_a_step_reads_few_rows_is_named_with_what_its_update_takes(shape):
    study = study_of(150_000, shape)
    advice = proposed(study)["large-optimizer"]
    assert advice.title == "Update fewer rows of `m/table`"
    assert "all 150,000 rows" in advice.evidence
    assert ("looks up 1,536 at most" in advice.evidence) == (shape[1] == 24)
    low, high = alone(study)["large-optimizer"]
    assert low == pytest.approx(0.7 * 0.75, abs=0.03) and high == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(study_of(3_000, (None, 100, 32)), id="a step reads all rows"),
        pytest.param(study_of(5_000, (None, None, 32)), id="few rows"),
        pytest.param(study_of(150_000, (None, 24, 32), "Dense"), id="no table"),
        pytest.param(study_of(150_000, (None, 24, 32), others=5), id="others take more"),
    ],
)
def test_what_has_few_rows_or_needs_them_all_is_left_alone(study):
    advice = proposed(study).get("large-optimizer")
    assert advice is None or "rows" not in advice.title
