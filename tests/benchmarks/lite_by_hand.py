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
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "lite")]

import numpy as np

KINDS = ("float32", "float16", "dynamic", "int8")
# So wide that a float32 model takes some tenths of a millisecond: the tool counts in 10 us, and each event of the profiler takes one.
WIDTHS = {"cnn": 4, "dense": 8, "lstm": 8, "mobile": 12}


def main():
    import tensorflow as tf
    from lite_models import make_data, make_model, train

    import profnb

    x, y = make_data(1200)
    for name in sys.argv[1:] or ("cnn", "dense", "lstm", "mobile"):
        model = make_model(name, WIDTHS[name])
        train(model, x[:800], y[:800], epochs=10 if name == "mobile" else 2)  # its normalizations settle slowly
        with tempfile.TemporaryDirectory() as folder:
            files = {kind: Path(folder) / f"{kind}.tflite" for kind in KINDS}
            for kind, path in files.items():
                if (name, kind) == ("lstm", "int8"):
                    continue  # the converter crashes: profnb, which runs it in another process, says so below
                path.write_bytes(by_hand(tf, model, kind, x))
            files = {kind: path for kind, path in files.items() if path.exists()}
            told = {kind: [benchmark(path, folder)] for kind, path in files.items()}  # before, and after: a machine drifts
            result = profnb.lite(model, (x[800:], y[800:]), representative=x[:100], seconds=3)
            for _ in range(2):
                for kind, path in files.items():
                    told[kind].append(benchmark(path, folder))
            outputs_of = {kind: run(path, x[800:]) for kind, path in files.items()}
            bytes_of = {kind: path.stat().st_size for kind, path in files.items()}
        print(f"\n{name}: {result.verdict}")
        rows = result.models.set_index("model")
        ops = result.ops
        for kind in KINDS:
            if rows.error[kind]:
                print(f"  {kind:8} {rows.error[kind]}")
                continue
            own = ops[(ops.model == kind) & (ops.kernel != "folded")]
            ratio = own.self_us.sum() / 1000 / rows.profiled_ms[kind]
            outputs = outputs_of[kind]
            low, middle, high = min(t[0] for t in told[kind]), sorted(t[1] for t in told[kind])[1], max(t[2] for t in told[kind])
            judged = np.mean(outputs.argmax(1) == y[800:])
            reference = model.predict(x[800:], verbose=0)
            largest = float(np.abs(outputs - reference).max())
            print(
                f"  {kind:8} bytes {int(rows.bytes[kind])} by hand {bytes_of[kind]} | accuracy {rows.metric[kind]:.4f} by hand "
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
