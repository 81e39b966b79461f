"""What a program of the diagnosis benchmark is, and how what profnb says of it is judged."""

import contextlib
import gc
import importlib
import io
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from advised import proposed


class Later:
    """A module that is imported when something of it is asked for: collecting tests imports no TensorFlow."""

    def __init__(self, name):
        self._name = name

    def load(self):
        return importlib.import_module(self._name)

    def __getattr__(self, name):
        return getattr(self.load(), name)


tf, keras, v1 = Later("tensorflow"), Later("keras"), Later("tensorflow.compat.v1")


# Rules that a machine whose cores others use makes true of any program: it waits where it did not, and of two things the
# other takes longer. No such machine makes a program trace or compile anew, run op by op, or read over a network.
OF_THE_CLOCK = {
    "python-between-steps", "slowing-down", "epoch-ends", "input-bound", "waiting-for-input", "python-input", "prefetch-more",
    "synchronising-reads", "idle-cores", "small-ops", "small-ops-without-xla", "large-optimizer", "validation", "own-python",
    "values-to-tensors",  # which is where a thread that slept waits for a core
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A small program in which one thing is slow, or nothing.

    Attributes:
        make: Prepares what is not looked at, and returns the cell: a function of no argument. Or the profile
            of a program that was recorded.
        first: Rules of which one must be said first; none: nothing may be said.
        question: Its number among the 25 that users ask most; 0 for others.
        also: Rules that are true of it too, and may be said.
        says: What the first advice must hold, each of them.
        never: What neither advice nor the first line may hold.
    """

    make: Callable
    first: tuple[str, ...]
    question: int = 0
    also: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    @property
    def name(self):
        return self.make.__name__


@dataclass(frozen=True)
class Outcome:
    """What was said of a program, judged.

    Attributes:
        program: The program.
        said: The rules that spoke, what can gain most first.
        wrong: Those of them that are not true of it.
        unsaid: What the first advice should hold and does not.
        words: What must not be said, and was.
    """

    program: Program
    said: tuple[str, ...]
    wrong: tuple[str, ...]
    unsaid: tuple[str, ...]
    words: tuple[str, ...]
    texts: tuple[str, ...] = field(repr=False, default=())

    @property
    def has_cause(self):
        """Whether the planted cause comes first; of an innocent program, whether nothing is said."""
        if not self.program.first:
            return not self.said or set(self.said) <= set(self.program.also)
        return bool(self.said) and self.said[0] in self.program.first and not self.unsaid

    @property
    def has_wrong_remedy(self):
        return bool(self.wrong or self.words)

    @property
    def is_right(self):
        return self.has_cause and not self.has_wrong_remedy


def programs(*, of):
    """A decorator that adds a program to a list: ``@planted("python-input", question=4)``."""

    def planted(*first, **rest):
        def add(make):
            of.append(Program(make, first, **rest))
            return make

        return add

    return planted


def step_of_products():
    """A step that multiplies matrices as often as it is told, in a graph that is always the same."""
    x = tf.random.normal((360, 360))

    @tf.function
    def train_step(turns):
        y = x
        for _ in tf.range(turns):
            y = tf.matmul(y, x) * 1e-2
        return tf.reduce_sum(y)

    return train_step


# The side of the matrices of such loops; smaller ones do where no time is looked at.
SIDE = 1100


def own_loop(name, *, training, other):
    """A loop of three epochs over a function that trains and another, of a name of its own, that only runs forward."""
    x, weight = tf.random.normal((SIDE, SIDE)), tf.Variable(tf.random.normal((SIDE, SIDE)))

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, weight))
        weight.assign_sub(tape.gradient(loss, weight) * 1e-9)

    def forward():
        return tf.reduce_sum(tf.matmul(tf.matmul(x, weight), x))

    forward.__name__ = name
    forward = tf.function(forward)

    def cell():
        for _ in range(3):
            for _ in range(training):
                train_step()
            for _ in range(other):
                forward()

    return cell


def profile_of(program, **options):
    """A program under a capture as users have it."""
    import profnb

    cell = program.make()
    if isinstance(cell, profnb.Profile):
        return cell
    with contextlib.redirect_stdout(io.StringIO()), profnb.profile(**options) as p:
        cell()
    return p


def diagnose(program, p):
    """Judge what a profile of a program says."""
    content = p.to_dict()
    headline = f"{content['headline']}. {content['answer']}"
    texts = [f"{one.title}. {one.evidence} {one.code}" for one in p.advice]
    return judge(program, [one.rule for one in p.advice], texts, headline)


def seen_in(p):
    """What is seen of a program whatever the clock says: what ran and was traced how often, and by which arguments.

    Which of two functions is the step depends on which takes longer; where nothing was recorded, steps are the trace's.
    """
    records, steps = p.recording.steps, p.study.steps
    found = Counter(zip((records.names[row] for row in records.name), (records.kinds[row] for row in records.kind), strict=True))
    return {
        "steps": found or (steps.origin, Counter(steps.phase)),
        "iterations": sum(records.iterations),
        "traced anew": sum(records.retraced),
        "functions": [(one.name, one.tracings) for one in p.recording.functions],
        "arguments": p.recording.changing_arguments,
        "epochs": [fit.epochs for fit in p.recording.fits],
        "changes of graphs": Counter(np.diff(p.recording.graph_versions).tolist()),
        "ends of epochs": list(records.ended_epoch),
    }


def check_run(program, kept):
    """Run a program, and hold what no clock changes against what was kept of it, and what is said against what it is."""
    p = profile_of(program, max_seconds=600)
    outcome, seen, notes = diagnose(program, p), seen_in(p), p.notes
    del p
    tidy_up()
    assert seen == seen_in(kept)
    assert not [note for note in notes if "A hook of" in note or " hides " in note]
    new = set(outcome.wrong) - OF_THE_CLOCK
    assert not new or new <= set(proposed(kept.study)), outcome.texts  # what was too little to be said may be more on a busy machine
    _, *texts = outcome.texts
    of_it = [text for rule, text in zip(outcome.said, texts, strict=True) if rule not in outcome.wrong]
    assert not [word for word in program.never if any(word in text for text in of_it)], of_it


def judge(program, said, texts, headline):
    """Hold what was said against what is true.

    Args:
        program: The program.
        said: The rules that spoke, in order.
        texts: What each of them said.
        headline: The first line.
    """
    allowed = {*program.first, *program.also}
    return Outcome(
        program,
        tuple(said),
        tuple(rule for rule in said if rule not in allowed),
        tuple(word for word in program.says if not texts or word not in texts[0]),
        tuple(word for word in program.never if any(word in text for text in (*texts, headline))),
        (headline, *texts),
    )


def begin():
    """Import what programs need, and take that out of what the collector, and so each capture, looks through."""
    for one in (tf, keras, v1):
        one.load()
    gc.collect()
    gc.freeze()


def tidy_up():
    """Let models and graphs go: the next capture would look at all that live."""
    for name in ("keras", "tf_keras"):
        if name in sys.modules:
            sys.modules[name].backend.clear_session()
    gc.collect()
