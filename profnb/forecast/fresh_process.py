"""A process that runs a saved model at the batches that it is told, by ``python -m``.

Each line of standard input is a batch size. The answer is a line of JSON: the most memory of a process while
it trained on such a batch, or why it could not. Each batch has a process of its own, forked where Keras is
imported and nothing has started: memory that another batch freed, or keeps, would hide what a step takes.
"""

import json
import os
import sys
from functools import partial
from typing import Any

import numpy as np

from profnb.capture.machine.memory_limits import resident_bytes
from profnb.forecast.meters import resident_peak


def main() -> None:
    """Answer until there is no line more."""
    import keras  # noqa: F401 - and what it works on

    with np.load(sys.argv[2]) as examples:
        given = dict(examples)
    _answer({})
    for line in sys.stdin:
        imported = resident_bytes() or 0
        child = os.fork()
        if not child:
            _answer(_train(sys.argv[1], given, int(line), imported))
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            _answer({"error": "it was ended"})


def _train(path: str, given: dict[str, Any], batch: int, imported: int) -> dict[str, object]:
    """The memory with the model loaded, and the most that training on so many examples takes on top.

    A forked process does not count the libraries' files that are in memory, so it is told what it was before.
    """
    import keras

    files = max(imported - (resident_bytes() or 0), 0)
    try:
        model: Any = keras.saving.load_model(path)
        loaded = float(resident_bytes() or 0)
        x, y = (_batch_of(given, side, batch) for side in ("x", "y"))
        # What the first step keeps is used anew: TensorFlow keeps what a recurrent layer stacked.
        there, more = resident_peak(partial(model.train_on_batch, x, y))
        return {"before": loaded + files, "more": max(there + more - loaded, 0.0)}
    except Exception as error:  # noqa: BLE001 - whatever Keras says of a model or of a batch
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


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
