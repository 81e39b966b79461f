"""What comes out of the models, judged: accuracy or error of each, and how far it agrees with Keras."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profnb.core.units import PS_PER_S, count_text
from profnb.lite.findings import KERAS, LiteFindings, LiteModel
from profnb.lite.given import GivenData, read_arrays
from profnb.lite.judging import judge_outputs
from profnb.lite.measured.bench import Bench
from profnb.lite.measured.keras_side import KerasSide
from profnb.lite.process.interpreters import InterpreterProcess

_JUDGING_SECONDS, _FEWEST_JUDGED, _KERAS_BATCH = 30.0, 200, 128


def judge_models(
    bench: Bench,
    process: InterpreterProcess,
    rows: Sequence[LiteModel],
    given: GivenData,
    data: GivenData,
    side: KerasSide | None,
) -> LiteFindings:
    """Run the models over the data.

    Args:
        bench: Where they are measured.
        process: In which the models are open.
        rows: The models, timed.
        given: The data as the user gave them; may be none.
        data: The same with a batch at least.
        side: The Keras model; None for files.
    """
    if not len(given):
        bench.notes.append("No data were given: times are of random input, and nothing was judged.")
        return LiteFindings("", models=tuple(rows))
    each = sum(one.latency_ps for one in rows) / PS_PER_S / bench.batch
    count = int(min(len(given), max(_FEWEST_JUDGED, _JUDGING_SECONDS / each)))
    if count < len(given):
        bench.notes.append(
            f"The first {count_text(count)} of {count_text(len(given))} examples are judged: more "
            f"would take longer than {_JUDGING_SECONDS:.0f} s."
        )
    source = bench.write("judged", data, slice(0, count))
    outputs_by_model: dict[str, list[Any]] = {}
    if side is not None:
        outputs_by_model[KERAS] = side.outputs([x[:count] for x in data.inputs], _KERAS_BATCH)
    by_file: dict[Path, list[Any]] = {}
    for one in rows:
        if one.kind != KERAS:
            path = bench.path_of(one)
            if path not in by_file:  # threads do not change what comes out
                target = str(bench.folder / "outputs.npz")
                process.ask("outputs", id=one.name, source=source, target=target)
                by_file[path] = read_arrays(target)
            outputs_by_model[one.name] = by_file[path]
    labels = None if given.labels is None else given.labels[:count]
    judged = judge_outputs(outputs_by_model, labels, KERAS)
    models = [replace(one, **judged.figures[one.name]) for one in rows]
    digest = given.head(count).digest
    return LiteFindings(
        "", models=tuple(models), metric=judged.metric, examples=count, data_digest=digest
    )
