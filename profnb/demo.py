"""A small real training to see profnb at work: ``python -m profnb demo``.

A convolutional Keras model learns to tell where a bright blob lies in generated images, on the CPU,
with an input pipeline that shifts each image's brightness, one example at a time. The first steps are
traced, the rest only timed, which shows what tracing costs.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

from profnb.captured import profile
from profnb.core.errors import CaptureError
from profnb.profile import Profile

_CLASSES = 4
_IMAGE_SIZE = 28


def run_demo(target: str | os.PathLike[str], steps: int = 200, epochs: int = 2) -> Profile:
    """Train, capture, and write the report.

    Args:
        target: The HTML file to write.
        steps: Batches per epoch.
        epochs: Epochs.

    Returns:
        The profile.

    Raises:
        CaptureError: TensorFlow is not installed.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise CaptureError(
            "The demo needs TensorFlow. Install TensorFlow with: pip install 'profnb[cpu]'"
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    model, dataset = _build(steps)
    with profile(label="demo: a small convolutional network on the CPU") as result:
        model.fit(dataset, epochs=epochs, shuffle=False, verbose=1)
    result.to_html(Path(target))
    return result


def _build(steps: int, batch_size: int = 64) -> tuple[Any, Any]:
    """The model and its dataset of ``steps`` batches."""
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    count = steps * batch_size
    labels = rng.integers(0, _CLASSES, count)
    images = rng.normal(0, 0.3, (count, _IMAGE_SIZE, _IMAGE_SIZE, 1)).astype(np.float32)
    half = _IMAGE_SIZE // 2
    for quarter in range(_CLASSES):
        row, column = half * (quarter // 2), half * (quarter % 2)
        is_of_class = labels == quarter
        images[is_of_class, row + 4 : row + 10, column + 4 : column + 10] += 1

    def change_brightness(image: Any, label: Any) -> tuple[Any, Any]:
        return image + tf.random.uniform([], -0.2, 0.2), label

    dataset = (
        tf.data.Dataset.from_tensor_slices((images, labels))
        .map(change_brightness, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )
    model = keras.Sequential(
        [
            keras.Input((_IMAGE_SIZE, _IMAGE_SIZE, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(_CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model, dataset
