"""What README and docs/ show to type really runs: each Python block statement by statement, each command of the terminal."""

import ast
import cProfile
import importlib.util
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
# What cannot run here: another's storage, what notebooks/09-litert and tests/capture/test_journal run in its place (a cell
# that died, whose answer is taken as it is read: it may be yours), and a model that no fixture makes.
ELSEWHERE = ("gs://", "profnb.last(", "onnxruntime", "enable_profiling", "end_profiling", "profnb.lite(", "profnb lite", "profnb run", "pip install", "-m pytest", "-m profnb demo")
# Libraries that few have, whose statements run where they are installed: tests/magics/test_metrics.py likewise.
ABSENT = tuple(name for name in ("mlflow", "wandb") if importlib.util.find_spec(name) is None)


def blocks(language, *pages):
    """The blocks of pages that are shown as code of a language: where they stand, and their text."""
    for page in pages:
        text = (ROOT / page).read_text("utf-8")
        for found in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield f"{page}:{text[: found.start()].count(chr(10)) + 2}", found[1]


PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PYTHON, TERMINAL = list(blocks("python", *PAGES)), list(blocks("sh", *PAGES))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The names that the snippets take for granted, in a folder with the files that they open."""
    import numpy as np
    from tensorflow import data, keras
    from tensorflow.profiler import experimental as profiler

    import profnb

    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 1, (64, 8)).astype("float32"), rng.integers(0, 2, 64)
    dataset = data.Dataset.from_tensor_slices((x, y)).batch(8)

    def make_model():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        return model

    folder, model = tmp_path_factory.mktemp("snippets"), make_model()
    profiles = []
    for name in "ab":
        with profnb.profile() as p:
            model.fit(dataset, verbose=0)
        p.save(folder / "logs" / name)
        profiles.append(p)
    p.to_chrome_trace(folder / "timeline.json")
    with profnb.profile() as marked:
        for _ in range(3):
            with profiler.Trace("train_iter"):
                model.train_on_batch(x, y)
    marked.to_chrome_trace(folder / "trace.json")
    with cProfile.Profile() as functions:
        sum(range(10))
    functions.dump_stats(folder / "run.prof")
    (folder / "notebook.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    names = {f"{side}{number}": profiles["ab".index(side)] for side in "ab" for number in (1, 2, 3)}
    names |= {"p": p, "model": model, "dataset": dataset, "faster_dataset": dataset.prefetch(2), "x": x, "y": y, "make_model": make_model}
    names |= {"step": lambda batch: model(batch), "batch": x}
    names |= {"train": lambda: model.fit(dataset, verbose=0), "pool": ThreadPoolExecutor(1), "profnb": profnb}
    return folder, names


@pytest.fixture(scope="module")
def shell(made):
    from IPython.core.interactiveshell import InteractiveShell

    from profnb.magics import unload_magics

    shell = InteractiveShell(user_ns=dict(made[1]))
    yield shell
    unload_magics(shell)
    shell.history_manager.end_session()


def test_there_are_blocks_to_try():
    assert len(PYTHON) >= 5
    assert len(TERMINAL) >= 1


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in PYTHON])
def test_a_block_of_python_runs(code, shell, made, monkeypatch):
    monkeypatch.chdir(made[0])
    # Each batch of a model that is forecast is a process: three, from a size at which the search would end.
    monkeypatch.setattr("profnb.forecast.fitting._FIRST", 1 << 14)
    monkeypatch.setattr("profnb.forecast.fitting._PROCESSES", 1)
    shell.user_ns.update(made[1])
    if re.match(r"\s*%", code):
        shell.run_cell(code).raise_error()
        return
    texts = [ast.get_source_segment(code, statement) for statement in ast.parse(code).body]
    run = [text for text in texts if text != "..." and not any(word in text for word in ELSEWHERE + ABSENT)]
    for text in run:
        shell.run_cell(text).raise_error()
    if not run:
        pytest.skip("runs elsewhere")


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{where}-{number}") for where, code in TERMINAL for number, line in enumerate(code.splitlines())])
def test_a_command_of_the_terminal_runs(line, made, monkeypatch):
    from profnb.__main__ import main

    command = shlex.split(line, comments=True)
    if any(word in line for word in ELSEWHERE):
        pytest.skip("runs elsewhere")
    assert command[0] == "profnb"
    monkeypatch.chdir(made[0])
    # Whether one of two is slower is the clock's to say; that there is an answer is not.
    assert main(command[1:]) in ((0, 1) if command[1] == "compare" else (0,))
