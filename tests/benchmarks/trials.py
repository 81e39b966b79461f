"""Whether trials find what helps, and only that: `python tests/benchmarks/trials.py [--seconds S] [--write] [NAME ...]`.

Each program of ``tried_programs.py`` runs once as it is and once under ``%%tfprofile --try``. Of twenty programs one
of the edits has to be faster for sure, by the rule that the program is made for; of ten no edit may be, and there an edit that changes
nothing is tried beside those of the advice. What the cell leaves behind has to be the same with trials as without, to 1e-5: weights,
containers, files, random numbers drawn next. JAX and PyTorch run in the environments that
``PROFNB_JAX`` and ``PROFNB_TORCH`` name. ``--write`` puts the table into docs/gains.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tried_programs import JAX, PROGRAMS, TORCH

from profnb.edits import editing
from profnb.trials.promises import gains_text, summarize_gains

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ["PROFNB_HISTORY"] = "0"  # what past runs vary by is no help here
PYTHONS = {JAX: os.environ.get("PROFNB_JAX", "/work/venv-jax/bin/python"), TORCH: os.environ.get("PROFNB_TORCH", "/work/venv-torch/bin/python")}
PAGE = Path(__file__).parents[2] / "docs" / "gains.md"
HEADING = "## Tried on the spot"
SAME = 1e-5


def new_shell():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "profnb")
    return shell


def ran(shell, cell):
    result = shell.run_cell(cell, store_history=True)
    if not result.success:
        raise SystemExit(f"the cell failed: {result.error_in_exec or result.error_before_exec!r}")


def nothing_but_a_line(sources):
    """An edit that has no effect."""
    name, text = next(iter(sources.items()))
    return editing.Edit("none", "a line that does nothing", "nothing", {name: f"{text}\npass\n"}, "+pass")


def child(name):
    """Run a program as it is and tried; print what came of it."""
    shell = new_shell()
    with tempfile.TemporaryDirectory() as folder:
        plain, seconds = run(shell, name, folder)
        left, _ = run(shell, name, folder, is_tried=True)
        os.chdir("/")
    profile = shell.user_ns["_tfprofile"]
    result = {
        "cell_s": seconds,
        "advice": [one.rule for one in profile.advice],
        "trials": json.loads(profile.trials.to_json(orient="records")),
        "words": [one.words() for one in profile.tried],
        "promises": [one.promise_words() for one in profile.tried],
        "differs": differences(plain, left),
    }
    print(json.dumps(result), flush=True)


def run(shell, name, folder, *, is_tried=False):
    """Run a program; give what it leaves behind, and how long the cell took."""
    import random

    import numpy as np

    program, place = PROGRAMS[name], Path(folder, str(is_tried))
    place.mkdir()
    os.chdir(place)
    shell.reset(new_session=False)
    if "keras" in sys.modules:
        sys.modules["keras"].backend.clear_session()
    ran(shell, program.setup)
    random.seed(3)  # an import may draw
    np.random.seed(3)
    tries = 3 if program.rules else 9
    head = f"%%tfprofile -q --no-live --try {tries} --try-seconds {os.environ['TRY_SECONDS']}\n" if is_tried else ""
    find = editing.find_edits
    editing.find_edits = lambda advice, sources, *rest: [*find(advice, sources, *rest), *([] if program.rules else [nothing_but_a_line(sources)])]
    begin = time.perf_counter()
    try:
        ran(shell, head + program.cell)
    finally:
        editing.find_edits = find
    seconds = time.perf_counter() - begin
    files = {f"<file {path.name}>": path.stat().st_size for path in place.iterdir()}
    return left_behind(shell.user_ns) | files, seconds


def left_behind(namespace):
    """All numbers and words that a notebook's names lead to, and the random numbers that would be drawn next, by path."""
    left = {}
    for name, value in list(namespace.items()):
        if not name.startswith("_") and name not in ("In", "Out", "exit", "quit", "get_ipython", "open"):
            add(left, name, value, set())
    return left | next_numbers()


def next_numbers():
    """What each source of random numbers draws next."""
    import random

    import numpy as np

    drawn = {"random": random.random(), "numpy": float(np.random.rand())}
    modules = sys.modules
    if "tensorflow" in modules:
        drawn["tensorflow"] = float(modules["tensorflow"].random.normal(()))
    if "keras" in modules:
        drawn["keras"] = float(np.asarray(modules["keras"].random.normal(())))
        drawn["layer"] = modules["keras"].layers.Dense(1).name
    if "torch" in modules:
        drawn["torch"] = float(modules["torch"].rand(()))
    return {f"<next of {name}>": value for name, value in drawn.items()}


def add(left, path, value, around):
    import numpy as np

    if id(value) in around or len(around) > 8:
        return
    root = type(value).__module__.partition(".")[0]
    inner = around | {id(value)}
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        left[path] = value
    elif isinstance(value, np.generic | np.ndarray) and value.dtype != object:
        left[path] = np.array(value)
    elif isinstance(value, dict):
        left[path] = len(value)
        for key, one in value.items():
            add(left, f"{path}[{key!r}]" if isinstance(key, str | int) else f"{path}[...]", one, inner)
    elif isinstance(value, list | tuple):
        left[path] = len(value)
        for at, one in enumerate(value):
            add(left, f"{path}[{at}]", one, inner)
    elif root == "torch" and hasattr(value, "state_dict"):
        add(left, path, value.state_dict(), inner)
    elif root == "torch" and hasattr(value, "detach"):
        left[path] = value.detach().cpu().numpy().copy()
    elif root in ("keras", "tensorflow", "jax", "jaxlib") and hasattr(value, "dtype") and hasattr(value, "shape") and type(value).__name__ != "KerasTensor":
        left[path] = as_array(value)
    elif root == "keras" and hasattr(value, "variables"):
        for at, one in enumerate(value.variables):
            left[f"{path}.variables[{at}]"] = as_array(one)
        for more in ("optimizer", "history", "stop_training", "trainable"):
            add(left, f"{path}.{more}", getattr(value, more, None), inner)
    elif root == "keras" and hasattr(value, "history"):
        add(left, f"{path}.history", value.history, inner)
        add(left, f"{path}.epoch", value.epoch, inner)
    elif root == "numpy" and hasattr(value, "bit_generator"):
        add(left, path, value.bit_generator.state, inner)
    elif type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
        add(left, path, vars(value), inner)
    else:
        left[path] = type(value).__name__


def as_array(value):
    import numpy as np

    if "key<" in str(value.dtype):
        from jax.random import key_data

        value = key_data(value)
    return np.array(value.numpy() if hasattr(value, "numpy") else value)


def differences(one, two):
    """The paths whose values differ."""
    import numpy as np

    found = []
    for path in sorted(one.keys() | two.keys()):
        a, b = one.get(path, "nothing"), two.get(path, "nothing")
        is_number = all(isinstance(v, float | np.ndarray) for v in (a, b))
        is_same = np.shape(a) == np.shape(b) and np.allclose(a, b, SAME, SAME, equal_nan=True) if is_number and np.asarray(a).dtype.kind in "fc" else np.array_equal(a, b)
        if not is_same:
            found.append(path)
    return found


def judge(name):
    """Run a program in a process of its own; give what came of it, with whether that was right; None where it failed."""
    program = PROGRAMS[name]
    done = subprocess.run(
        [PYTHONS.get(program.framework, sys.executable), __file__, "--child", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
    if done.returncode or not lines:
        print(f"{name} ended with {done.returncode}: {done.stdout[-1500:]}", flush=True)
        return None
    came, rules = json.loads(lines[-1]), set(program.rules)
    faster = [at for at, one in enumerate(came["trials"]) if one["interval_high"] is not None and one["interval_high"] < 1]
    found = [at for at in faster if rules & set(came["trials"][at]["rule"].split(", "))]
    return came | {"name": name, "right": bool(found) if rules else not faster, "shown": (found or faster or [0])[0]}


def line_of(one):
    at = one["shown"]
    trial = one["trials"][at] if one["trials"] else {"rule": "", "change": "", "promised_low": None, "ratio": None}
    change = f"{trial['rule']}: {trial['change']}" if trial["rule"] else ""
    state = "same" if not one["differs"] else ", ".join(one["differs"][:3])
    said = one["words"][at] if one["words"] else ""
    promise = one["promises"][at] if one["promises"] else ""
    return f"| {one['name']} | {one['cell_s']:.1f} s | {change} | {promise} | {said} | {'right' if one['right'] else 'WRONG'} | {state} |"


def frame_of(judged):
    """All trials as ``profnb gains`` has them."""
    import pandas as pd

    columns = ["rule", "promised_low", "promised_high", "ratio", "interval_low", "interval_high"]
    frame = pd.DataFrame([trial for one in judged for trial in one["trials"]]).reindex(columns=columns).astype(dict.fromkeys(columns[1:], float))
    return frame.assign(when=pd.Timestamp.now())


def main():
    parser = argparse.ArgumentParser(description="Trials against the truth.")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the trials of a program")
    parser.add_argument("--write", action="store_true", help="write docs/gains.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what came of each program, and go on with it")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    if asked.child:
        child(*asked.names)
        return
    os.environ["TRY_SECONDS"] = str(asked.seconds)
    kept = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    names = [name for name in PROGRAMS if not asked.names or any(word in name for word in asked.names)]
    for one in filter(None, map(judge, names)):
        kept[one["name"]] = one
        trials = zip(one["trials"], one["words"], one["promises"], strict=True)
        print(line_of(one), *(f"{trial['rule']}: {words}; promised {promise}" for trial, words, promise in trials), sep="\n    ", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(kept))
    judged = [kept[name] for name in PROGRAMS if name in kept]
    head = ["| program | cell | change | promised | measured | | left behind |", "| --- | --- | --- | --- | --- | --- | --- |"]
    table = [*head, *map(line_of, judged)]
    right = [one["right"] and not one["differs"] for one in judged]
    said = f"{sum(right)} of {len(judged)} programs right.\n\n```\n{gains_text(summarize_gains(frame_of(judged)))}\n```"
    print("\n".join(table), said, sep="\n")
    if asked.write:
        page = PAGE.read_text("utf-8").partition(f"\n{HEADING}\n")[0].rstrip()
        PAGE.write_text("\n".join([page, "", HEADING, "", *__doc__.split("\n\n")[1].splitlines(), "", *table, "", said, ""]), "utf-8")


if __name__ == "__main__":
    main()
