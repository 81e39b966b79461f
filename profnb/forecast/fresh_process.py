"""A process that trains a saved model on one batch of the size that it is told, by ``python -m``.

One line of standard input is the size. The answer is a line of JSON: the memory with the model loaded, and
the most that ``fit`` took on top of that and of the examples, or why it could not. In a process that has done
anything else, memory that was freed, or is kept, would hide what a step takes.

It is one ``fit`` of several steps, as training is. Its first step traces and compiles, which small batches
hide behind, and does not count. TensorFlow's allocator keeps the gaps between what it gave, so its memory
grows for some steps more. A second ``fit`` would hold another copy of the examples.
"""

import json
import sys
from functools import partial
from typing import Any

import numpy as np

from profnb.capture.machine.memory_limits import resident_bytes
from profnb.forecast.meters import RUNS, process_peak, set_peak_back


def main() -> None:
    """Wait for the size, with all that it takes imported."""
    import keras

    with np.load(sys.argv[2], allow_pickle=True) as examples:  # of text; this user wrote it
        given = dict(examples)
    batch = int(sys.stdin.readline() or 0)
    try:
        model: Any = keras.saving.load_model(sys.argv[1])
        loaded = float(resident_bytes() or 0)
        x, y = (_batch_of(given, side, batch) for side in ("x", "y"))
        with_examples = float(resident_bytes() or 0)  # which the user's process has, too
        second = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, _: set_peak_back() if epoch == 1 else None
        )
        fit = partial(model.fit, x, y, batch_size=batch, epochs=RUNS, verbose=0)
        peak = process_peak(partial(fit, callbacks=[second]))
        _answer({"before": loaded, "more": max(peak - with_examples, 0.0)})
    except Exception as error:  # noqa: BLE001 - whatever Keras says of a model or of a batch
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
