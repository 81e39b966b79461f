"""``profnb.lite`` against what the converter, the interpreter and LiteRT's own benchmark give by hand.

python tests/benchmarks/lite_by_hand.py [MODEL ...]     cnn dense lstm mobile; needs ai-edge-litert and TensorFlow

For each kind of each model: bytes of the file and outputs of the interpreter beside profnb's, the median time
beside what ``benchmark_litert_model.py`` of the wheel prints (5th to 95th percentile), the sum of the op times over the
time of ``Invoke`` in the same runs, and how many ops have a layer.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

KINDS = ("float32", "float16", "dynamic", "int8")


def main():
    import tensorflow as tf
    from lite_models import make_data, make_model, train

    import profnb

    x, y = make_data(1200)
    for name in sys.argv[1:] or ("cnn", "dense", "lstm", "mobile"):
        model = make_model(name, width=4)
        train(model, x[:800], y[:800])
        result = profnb.lite(model, (x[800:], y[800:]), representative=x[:100], seconds=3)
        print(f"\n{name}: {result.verdict}")
        rows = result.models.set_index("model")
        ops = result.ops
        for kind in KINDS:
            if rows.error[kind]:
                print(f"  {kind:8} {rows.error[kind]}")
                continue
            content = by_hand(tf, model, kind, x)
            own = ops[(ops.model == kind) & (ops.kernel != "folded")]
            ratio = own.self_us.sum() / 1000 / rows.profiled_ms[kind]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "m.tflite"
                path.write_bytes(content)
                outputs = run(path, x[800:])
                low, middle, high = benchmark(path, folder)
            judged = np.mean(outputs.argmax(1) == y[800:])
            reference = model.predict(x[800:], verbose=0)
            largest = float(np.abs(outputs - reference).max())
            print(
                f"  {kind:8} bytes {int(rows.bytes[kind])} by hand {len(content)} | accuracy {rows.metric[kind]:.4f} by hand "
                f"{judged:.4f} | largest difference {rows.largest_difference[kind]:.6f} by hand {largest:.6f} | "
                f"{rows.latency_ms[kind] * 1000:.1f} us ({rows.latency_low_ms[kind] * 1000:.1f} to "
                f"{rows.latency_high_ms[kind] * 1000:.1f}), benchmark {middle:.1f} ({low:.1f} to {high:.1f}) | ops over Invoke "
                f"{ratio:.2f} | layers {int((own.layer != '').sum())} of {len(own)}",
                flush=True,
            )


def by_hand(tf, model, kind, x):
    if any(type(layer).__name__ == "LSTM" for layer in model.layers):  # the converter wants a fixed batch
        import keras

        folder = tempfile.mkdtemp()
        archive = keras.export.ExportArchive()
        archive.track(model)
        archive.add_endpoint("serve", lambda x: model(x, training=False), [tf.TensorSpec((1, *model.inputs[0].shape[1:]), name=model.inputs[0].name)])
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
    else:
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        converter.representative_dataset = lambda: ([x[at : at + 1]] for at in range(100))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()):
        return converter.convert()


def run(path, x):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    (feed,), (fetch,) = interpreter.get_input_details(), interpreter.get_output_details()
    outputs = []
    for row in range(len(x)):
        value = x[row : row + 1]
        scale, zero = feed["quantization"]
        if scale:
            value = np.clip(np.round(value / scale + zero), -128, 127)
        interpreter.set_tensor(feed["index"], value.astype(feed["dtype"]))
        interpreter.invoke()
        out = interpreter.get_tensor(fetch["index"]).astype(np.float32)
        scale, zero = fetch["quantization"]
        outputs.append((out - zero) * scale if scale else out)
    return np.concatenate(outputs)


def benchmark(path, folder):
    """The 5th percentile, median and 95th percentile in microseconds that the wheel's own tool tells."""
    target = Path(folder) / "result.json"
    command = [sys.executable, "-m", "ai_edge_litert.tools.benchmark_litert_model", f"--model={path}", "--num_runs=500", f"--result_json={target}"]
    subprocess.run(command, check=True, capture_output=True)
    told = json.loads(target.read_text())["latency"]
    return [1000 * next(v for k, v in told.items() if word in k) for word in ("p5", "median", "p95")]


if __name__ == "__main__":
    main()
