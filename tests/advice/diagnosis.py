"""The diagnosis benchmark: small programs with one planted cause, or none, and what profnb says of each.

    nice -n -20 python tests/advice/diagnosis.py [--keep] [NAME ...]

runs them, prints a line per program, and precision and recall per rule: of the programs in which a rule spoke, in how many
it was true; of those whose planted cause it is, in how many it came first. A program right in all: the cause comes
first, and nothing that is said is false of it.

What takes long in a program is the machine's doing, too, where others work on it. So with ``--keep`` each is kept as it was
recorded, on a machine where nothing else ran before it (hence nice), and ``test_diagnosis.py`` holds those to the table.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

sys.path.append(str(Path(__file__).parents[1]))  # as a script

import diagnosis_frameworks
import diagnosis_graph
import diagnosis_innocent
import diagnosis_input
import diagnosis_python
import recorded
from diagnosis_kit import begin, diagnose, profile_of, tidy_up

# Each in an environment that has the backend; TensorFlow's run in all others.
BY_BACKEND = {
    "tensorflow": [*diagnosis_input.PROGRAMS, *diagnosis_python.PROGRAMS, *diagnosis_graph.PROGRAMS, *diagnosis_innocent.PROGRAMS],
    "jax": [*diagnosis_frameworks.JAX_PROGRAMS, *diagnosis_frameworks.KERAS_PROGRAMS],
    "torch": [*diagnosis_frameworks.TORCH_PROGRAMS, *diagnosis_frameworks.KERAS_PROGRAMS],
}
PROGRAMS = BY_BACKEND["tensorflow"]
FOLDER = Path(__file__).parents[1] / "data" / "diagnosis"
LEAST_RIGHT, MOST_WRONG = 0.95, 0.02

# Programs that are not told right today: whether a wrong remedy is given, and why. Whoever mends one takes it off.
MISSES = {}


def score(outcomes):
    """(precision, recall) of each rule as pairs of counts: true and said, first and planted."""
    said, true, planted, first = Counter(), Counter(), Counter(), Counter()
    for one in outcomes:
        said.update(set(one.said))
        true.update(set(one.said) - set(one.wrong))
        if one.program.first:
            rule = one.said[0] if one.has_cause else one.program.first[0]
            planted[rule] += 1
            first[rule] += one.has_cause
    return {rule: ((true[rule], said[rule]), (first[rule], planted[rule])) for rule in sorted({*said, *planted})}


def kept_profile(backend, program):
    """The profile of a program as it was kept; of one that is made of a recorded trace, that."""
    folder = FOLDER / backend
    return recorded.load(folder, program.name) if recorded.is_kept(folder, program.name) else program.make()


def run(backend, program, is_kept):
    """Diagnose a program as it runs now, and keep what was recorded if that is asked for."""
    with tempfile.TemporaryDirectory() as logdir:
        p = profile_of(program, logdir=logdir)
        traces = recorded.traces_in(logdir) if is_kept else []
        for trace in traces:
            recorded.keep(trace, FOLDER / backend, program.name)
    outcome = diagnose(program, p)
    if traces and diagnose(program, kept_profile(backend, program)) != outcome:
        raise AssertionError(f"{program.name}: what was kept says something else than what was seen.")
    return outcome


def main():
    parser = argparse.ArgumentParser(description="Run the diagnosis benchmark.")
    parser.add_argument("--keep", action="store_true", help="keep what is recorded in tests/data/diagnosis")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all of the backend's by default")
    asked = parser.parse_args()
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend == "tensorflow":
        begin()
    outcomes = []
    for program in BY_BACKEND[backend]:
        if asked.names and program.name not in asked.names:
            continue
        began = time.perf_counter(), time.process_time()
        one = run(backend, program, asked.keep)
        tidy_up()
        outcomes.append(one)
        took, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        verdict = "right" if one.is_right else "WRONG" if one.has_wrong_remedy else "missed"
        print(f"{verdict:6} {program.name:50} {took:5.1f} s {cpu:5.1f} s CPU  {', '.join(one.said) or '-'}", flush=True)
        if not one.is_right:
            print(f"       wants {' | '.join(program.first) or 'nothing'}; {one.wrong} {one.unsaid} {one.words}")
            print(*(f"         {text}" for text in one.texts), sep="\n")
    print()
    for rule, (precision, recall) in score(outcomes).items():
        print(f"{rule:24} precision {precision[0]}/{precision[1]}  recall {recall[0]}/{recall[1]}")
    right, wrong = (sum(getattr(one, what) for one in outcomes) for what in ("has_cause", "has_wrong_remedy"))
    print(f"{len(outcomes)} programs: the right cause first in {right / len(outcomes):.1%}, a wrong remedy in {wrong / len(outcomes):.1%}")


if __name__ == "__main__":
    main()
