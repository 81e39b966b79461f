"""Record tests/data/cpu-cnn.xplane.pb and the official converter's answers to it.

    python tests/data/record.py

Needs TensorFlow and xprof 2.24.2. The answers go to cpu-cnn.xprof.json with the versions used.
"""

import json
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf

import profnb

HERE = Path(__file__).parent


def table(path, tool, index):
    from xprof.convert import raw_to_tool_data

    data, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], tool, {"use_saved_result": False})
    chosen = json.loads(data)[index]
    columns = [column["id"] for column in chosen["cols"]]
    return [dict(zip(columns, (c["v"] for c in row["c"]))) for row in chosen["rows"]]


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 12, 12, 1)).astype("float32")
    y = rng.integers(0, 4, 256)
    model = keras.Sequential([
        keras.Input((12, 12, 1)), keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(), keras.layers.Dense(4),
    ])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).prefetch(2)
    model.fit(dataset, verbose=0, shuffle=False)
    with tempfile.TemporaryDirectory() as logdir:
        with profnb.profile(logdir=logdir) as result:
            model.fit(dataset, verbose=0, shuffle=False)
        target = HERE / "cpu-cnn.xplane.pb"
        shutil.copy(result.recording.path, target)
        copy = Path(logdir) / "fresh" / "host.xplane.pb"
        copy.parent.mkdir()
        shutil.copy(target, copy)
        ops = table(copy, "framework_op_stats", 1)
        steps = table(copy, "input_pipeline_analyzer", 1)
    keep = ("host_or_device", "type", "operation", "occurrences", "total_time", "total_self_time")
    answers = {
        "versions": {name: version(name) for name in ("xprof", "keras")} | {"tensorflow": tf.__version__},
        "ops": [[row[name] for name in keep] for row in ops],
        "steps": [
            {k: v for k, v in row.items() if k != "tooltip"} for row in steps
        ],
    }
    text = json.dumps(answers, indent=0)
    (HERE / "cpu-cnn.xprof.json").write_text(text + "\n")
    print(target.stat().st_size, len(text))


if __name__ == "__main__":
    main()
