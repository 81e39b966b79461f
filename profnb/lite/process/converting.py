"""``python -m profnb.lite.process.converting FOLDER``: TensorFlow's converter, see ``conversion``.

``job.json`` in the folder says what to convert to which kinds. Each kind leaves ``KIND.tflite`` and then
``KIND.json``, so that what is done stays done where the converter ends the process.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profnb.lite.lite_data import match_inputs
from profnb.lite.process.interpreting import read_arrays


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert what the folder's job says."""
    (folder,) = map(Path, sys.argv[1:] if arguments is None else arguments)
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    import tensorflow as tf

    for kind in job["kinds"]:
        begin = time.perf_counter()
        content, error, remark = _convert(tf, job, kind)
        seconds = time.perf_counter() - begin
        if content:
            (folder / f"{kind}.tflite").write_bytes(content)
        conversion = {"seconds": seconds, "error": error, "remark": remark}
        (folder / f"{kind}.json").write_text(json.dumps(conversion), encoding="utf-8")
    return 0


def _convert(tf: Any, job: Mapping[str, Any], kind: str) -> tuple[bytes, str, str]:
    """The file, or why there is none; and what differs from what was asked for."""
    try:
        return _converter(tf, job, kind).convert(), "", ""
    except Exception as error:  # noqa: BLE001 - the converter has errors of many classes
        first = str(error) or type(error).__name__
    if kind != "int8" or "TF Select ops" in first or "Custom ops" in first:
        return b"", first, ""
    try:
        content = _converter(tf, job, kind, is_strict=False).convert()
    except Exception as error:  # noqa: BLE001 - likewise
        return b"", str(error) or type(error).__name__, ""
    return content, "", "Some ops have no int8 kernel and stay float, with conversions around them."


def _converter(tf: Any, job: Mapping[str, Any], kind: str, *, is_strict: bool = True) -> Any:
    """TensorFlow's converter, set as its guide sets it for this kind."""
    sets, converter = tf.lite.OpsSet, tf.lite.TFLiteConverter.from_saved_model(job["saved_model"])
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    wanted = [sets.TFLITE_BUILTINS]
    if kind == "int8":
        if not job["is_trained"]:
            converter.representative_dataset = lambda: _examples(tf, job)
            wanted = [sets.TFLITE_BUILTINS_INT8, *([] if is_strict else wanted)]
            converter.target_spec.supported_ops = wanted
        converter.inference_input_type = converter.inference_output_type = tf.int8
    if "select-tf" in job["allow"]:
        converter.target_spec.supported_ops = [*wanted, sets.SELECT_TF_OPS]
    if "custom" in job["allow"]:
        converter.allow_custom_ops = True
    return converter


def _examples(tf: Any, job: Mapping[str, Any]) -> Iterator[Any]:
    """Read what is calibrated with, as many at a time as the model takes."""
    arrays = read_arrays(job["examples"])
    signature = tf.saved_model.load(job["saved_model"]).signatures["serving_default"]
    specs = signature.structured_input_signature[1]
    names = list(specs)
    shapes = [[-1 if size is None else size for size in specs[name].shape] for name in names]
    order = match_inputs(names, shapes, [array.shape for array in arrays], job["names"])
    batch = max(shapes[0][0], 1)
    for begin in range(0, len(arrays[0]) - batch + 1, batch):
        rows = {
            name: arrays[at][begin : begin + batch].astype(specs[name].dtype.as_numpy_dtype)
            for name, at in zip(names, order, strict=True)
        }
        yield rows if len(rows) > 1 else list(rows.values())


if __name__ == "__main__":
    sys.exit(main())
