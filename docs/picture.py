"""The pictures of README and the pages: answers to real programs, as headless Chromium draws them.

python docs/picture.py                   write all of docs/pictures/ (needs the test extra, and Chromium); a minute
python docs/picture.py report help       only these
python docs/picture.py fit TRACE         the memory of a trace from a GPU, which the repository has none of

Each is a few hundred pixels high, has at most 64 colours, and takes less than 60 kB.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

FOLDER = Path(__file__).parent / "pictures"
_DATA = Path(__file__).parents[1] / "tests" / "data"
_WIDTH, _COLOURS, _MOST_BYTES = 960, 64, 60_000


def train(*, prefetches: bool = False, captures: int = 1) -> Any:
    """Profile epochs that wait for their input, which is what most first reports are about."""
    import keras
    import numpy as np
    import profnb
    import tensorflow as tf

    rng = np.random.default_rng(0)
    images, labels = rng.normal(0, 0.3, (3200, 28, 28, 1)).astype("float32"), rng.integers(0, 4, 3200)

    def examples():
        for image, label in zip(images, labels, strict=True):
            yield np.clip(np.roll(image, 1, axis=0) * 1.1, 0, 1), label

    signature = (tf.TensorSpec((28, 28, 1), tf.float32), tf.TensorSpec((), tf.int64))
    dataset = tf.data.Dataset.from_generator(examples, output_signature=signature)
    dataset = dataset.cache().batch(64).prefetch(tf.data.AUTOTUNE) if prefetches else dataset.batch(64)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((28, 28, 1)), layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dense(4)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    if prefetches:
        model.fit(dataset, epochs=1, verbose=0)  # fills the cache
    profiles = []
    for _ in range(captures):
        with profnb.profile(label="train.py") as p:
            model.fit(dataset, epochs=2, verbose=0)
        profiles.append(p)
    return profiles if captures > 1 else profiles[0]


def report(page: Path) -> None:
    """My input is slow: the report of a training that waits for its input."""
    train().to_html(page)


def help_(page: Path) -> None:
    """Did it help? The same training before and after the change that the report named."""
    import profnb

    before, after = train(captures=3), train(prefetches=True, captures=3)
    _write(page, profnb.compare(before, after, labels=("before", "after")))


def fit(page: Path) -> None:
    """Will it fit? The memory of a trace from a GPU."""
    import profnb

    profnb.load(sys.argv[2]).to_html(page)


def worker(page: Path) -> None:
    """One of my workers is slow: two ranks, whose traces the tests have."""
    import lzma

    import profnb

    with tempfile.TemporaryDirectory() as folder:
        for packed in _DATA.glob("ranks/jax_*.xz"):
            (Path(folder) / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
        profnb.load_fleet(folder).to_html(page)


def timeline(page: Path) -> None:
    """The timeline, and what a search found."""
    import profnb

    profnb.load(_DATA / "cpu-cnn.xplane.pb").to_html(page)


def _write(page: Path, result: Any) -> None:
    html = result._repr_mimebundle_()["text/html"]
    page.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:8px">{html}', "utf-8")


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        make: Writes the page.
        height: Of the picture, in pixels.
        act: What is done on the page first.
        of: The element at whose top it begins.
    """

    make: Callable[[Path], None]
    height: int
    act: Callable[[Any], None] = lambda page: None
    of: str = ".profnb"


def _show_memory(page: Any) -> None:
    page.get_by_role("tab", name="Memory").click()


def _search(page: Any) -> None:
    page.get_by_label("search events").fill("conv2d")
    page.keyboard.press("Enter")


PICTURES = {
    "report": Picture(report, 560),
    "help": Picture(help_, 400),
    "fit": Picture(fit, 460, _show_memory, "[role=tablist]"),
    "worker": Picture(worker, 420),
    "timeline": Picture(timeline, 600, _search, ".profnb-timeline"),
}


def photograph(picture: Picture, browser: Any, to: Path) -> int:
    """Write one picture, and say how many bytes it has."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        file, raw = Path(folder) / "page.html", Path(folder) / "page.png"
        picture.make(file)
        page = browser.new_page(viewport={"width": _WIDTH, "height": 1600})
        page.goto(file.as_uri())
        page.wait_for_selector(".profnb")
        page.wait_for_timeout(1500)
        picture.act(page)
        page.wait_for_timeout(500)
        top = page.locator(picture.of).first.bounding_box()["y"]
        page.screenshot(path=raw, full_page=True, clip={"x": 0, "y": max(top - 8, 0), "width": _WIDTH, "height": picture.height})
        page.close()
        Image.open(raw).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(to, optimize=True)
    size = to.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"{to.name} has {size:,} bytes, more than {_MOST_BYTES:,}.")
    return size


def main() -> int:
    """Make, open, photograph."""
    from playwright.sync_api import sync_playwright

    asked = sys.argv[1:2] if "fit" in sys.argv[1:2] else sys.argv[1:] or [name for name in PICTURES if name != "fit"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in asked:
            print(f"{name}.png: {photograph(PICTURES[name], browser, FOLDER / f'{name}.png'):,} bytes", flush=True)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
