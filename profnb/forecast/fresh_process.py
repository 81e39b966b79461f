"""A process that runs a saved model at the batches that it is told, by ``python -m``.

Each line of standard input is a batch size. The answer is a line of JSON: the most memory of the process
while it trained on such a batch, or why it could not. A process that has done little else takes memory as a
first training does; in the notebook's, memory that was freed would hide what a step takes.
"""

import json
import sys
from typing import Any

import numpy as np

from profnb.forecast.meters import resident_peak


def main() -> None:
    """Answer until there is no line more."""
    import keras

    with np.load(sys.argv[2]) as examples:
        given = dict(examples)
    try:
        model: Any = keras.saving.load_model(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - whatever Keras says of a model
        _answer({"error": f"{type(error).__name__}: {str(error)[:300]}"})
        return
    _answer({})
    for line in sys.stdin:
        batch = int(line)
        x, y = (_batch_of(given, side, batch) for side in ("x", "y"))
        size = batch * sum(one.nbytes // len(one) for one in given.values())

        def train(x: Any = x, y: Any = y) -> None:
            model.train_on_batch(x, y)

        try:
            before, more = resident_peak(train)
            _answer({"before": before - size, "more": more + size})
        except Exception as error:  # noqa: BLE001 - whatever the framework says of a batch
            _answer({"error": f"{type(error).__name__}: {str(error)[:300]}"})


def _batch_of(given: dict[str, Any], side: str, batch: int) -> Any:
    """So many examples, the given ones again and again; of several inputs a list, or a dict as given."""
    arrays = {
        name.removeprefix(side): np.resize(one, (batch, *one.shape[1:]))
        for name, one in given.items()
        if name.startswith(side)
    }
    if any(name.startswith(".") for name in arrays):
        return {name[1:]: one for name, one in arrays.items()}
    return [*arrays.values()] if len(arrays) > 1 else next(iter(arrays.values()))


def _answer(value: dict[str, object]) -> None:
    sys.stdout.write(f"profnb {json.dumps(value)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
