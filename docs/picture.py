"""The picture of README: the report of a small real training, as headless Chromium draws it.

python docs/picture.py            write docs/pictures/report.png (needs the test extra, and Chromium)
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

_WIDTH, _HEIGHT = 1000, 620


def train():
    """Profile two epochs that wait for their input, which is what most first reports are about."""
    import keras
    import numpy as np
    import tensorflow as tf

    import profnb

    rng = np.random.default_rng(0)
    images, labels = rng.normal(0, 0.3, (3200, 28, 28, 1)).astype("float32"), rng.integers(0, 4, 3200)

    def examples():
        for image, label in zip(images, labels, strict=True):
            yield np.clip(np.roll(image, 1, axis=0) * 1.1, 0, 1), label

    signature = (tf.TensorSpec((28, 28, 1), tf.float32), tf.TensorSpec((), tf.int64))
    dataset = tf.data.Dataset.from_generator(examples, output_signature=signature).batch(64)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((28, 28, 1)), layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dense(4)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with profnb.profile() as p:
        model.fit(dataset, epochs=2, verbose=0)
    return p


def main() -> int:
    """Train, write the page, photograph its beginning."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = train().to_html(Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, device_scale_factor=1.5)
        page.goto(page_file.as_uri())
        page.wait_for_selector(".profnb")
        page.wait_for_timeout(1500)
        out = Path(__file__).parent / "pictures" / "report.png"
        page.screenshot(path=out)
        browser.close()
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
