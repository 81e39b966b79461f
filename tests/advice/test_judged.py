"""Real traces, read by a person: what the first line and the advice must say and must not, and the fact that decides.

There is a row for each trace of ../shared/traces (``judged_tensorflow``, ``judged_others``), with the fact of the raw
events as a query of a few lines (``judged``). Without those traces these tests skip.
"""

import functools
from pathlib import Path

import numpy as np
import pytest
from advised import alone
from conftest import SHARED
from judged import Raw
from judged_others import ROWS as OTHERS
from judged_tensorflow import ROWS as OF_TENSORFLOW

import profnb
from profnb.core.errors import TraceFormatError

ROWS = [*OF_TENSORFLOW, *OTHERS]
# What TensorFlow's own profiler said of a trace beside it, and words about traces.
ANSWERS = ("input_pipeline.pb", "kernel_stats.pb", "memory_profile.json.gz", "overview_page.pb", "tensorflow_stats.pb", "README.md", "graph.pbtxt")
REFUSED = {"corrupt/utf8-mangled.xplane.pb": "Malformed XSpace"}
# Made by hand or of other tools: what is right of each stands beside them, and no person has judged one yet.
UNJUDGED = {
    f"other-tools/{name}"
    for name in (
        "cut-off.pt.trace.json", "event-file/events.out.tfevents.1700000000.host", "ffma.pt.trace.json", "jax-memory.prof", "names.pt.trace.json", "nsys.sqlite", "nvprof-gpu-trace.csv", "nvprof-gpu-trace.txt", "nvprof.nvvp",
        "overlap.pt.trace.json", "ranges.pt.trace.json", "tf32.pt.trace.json", "torch-memory-snapshot.pickle", "unescaped-quotes.pt.trace.json",
    )
}
DEVICE = ("device compute", "device to device", "device collectives")
FOREIGN = {
    "TensorFlow": ("torch.", "jax.", "DataLoader("),
    "TensorFlow 1": ("torch.", "jax.", "DataLoader(", "model.compile", "keras", "tf.function", "steps_per_execution", "profnb.step"),
    "JAX": ("torch.", "tf.", "keras", "model.compile", "profnb.step", "tensorflow[and-cuda]", "TensorFlow"),
    "PyTorch": ("jax.", "tf.", "keras", "model.compile", "profnb.step", "tensorflow[and-cuda]", "TensorFlow"),
    "": ("torch.", "jax.", "tf.", "keras", "model.compile", "profnb.step", "TensorFlow"),
}


@functools.lru_cache(2)
def load(path):
    return profnb.load(path)


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.path)
def row(request):
    return request.param


def test_every_trace_has_a_row_and_what_is_no_trace_is_refused(shared_traces):
    files = {str(path.relative_to(shared_traces)) for path in shared_traces.rglob("*") if path.is_file()}
    answers = {path for path in files if path.endswith(ANSWERS)}
    assert sorted(files - answers - set(REFUSED) - UNJUDGED) == sorted(row.path for row in ROWS)
    assert all(profnb.load(shared_traces / path).summary() for path in UNJUDGED)
    for path in sorted(answers):
        with pytest.raises(TraceFormatError):
            profnb.load(shared_traces / path)


@pytest.mark.parametrize("path", REFUSED)
def test_a_damaged_trace_is_refused_clearly(path, shared_traces):
    with pytest.raises(TraceFormatError, match=REFUSED[path]) as error:
        profnb.load(shared_traces / path)
    assert Path(path).name in str(error.value)


def test_the_fact_that_decides_holds(row, shared_traces):
    assert row.fact(Raw(load(shared_traces / row.path).trace)), row.because


def test_the_first_lines_are_those_that_the_raw_events_bear_out(row, shared_traces):
    first = load(shared_traces / row.path).summary().split("\n\n", 1)[0]
    assert [text for text in row.says if text not in first] == [], first
    assert [text for text in row.never if text in first] == [], first


def test_advice_and_notes_are_those_that_the_raw_events_bear_out(row, shared_traces):
    profile = load(shared_traces / row.path)
    rules = [advice.rule for advice in profile.advice]
    assert [rule for rule in row.advice if rule not in rules] == [], rules
    assert [rule for rule in row.forbidden if rule in rules] == [], rules
    assert not row.first or rules[0] == row.first
    assert [note for note in profile.notes if any(text in note for text in row.notes_never)] == []


def test_words_are_those_of_the_framework_and_bounds_are_shares(row, shared_traces):
    profile = load(shared_traces / row.path)
    said = [*profile.notes, *(f"{a.title} {a.evidence} {a.code}" for a in profile.advice)]
    assert [text for text in said if any(word in text for word in FOREIGN[profile.study.program.framework])] == []
    assert all(0 < a.bound_fraction <= 1 for a in profile.advice if a.bound_fraction is not None)


def test_headline_and_idle_table_speak_of_the_same_time(row, shared_traces):
    """What of the shares is the device's work and what of the time it was idle add up to all of it."""
    study = load(shared_traces / row.path).study
    idle = study.device.idle
    if idle is None:
        return
    of_device = study.breakdown.busy_ps[study.summary.counted].sum()
    assert of_device <= idle.busy_ps
    assert idle.busy_ps + idle.total_ps.sum() == idle.window_ps
    mean = {share.category: share.mean_ps for share in study.summary.shares}
    assert sum(mean.values()) * len(study.summary.counted) == pytest.approx(idle.window_ps)
    assert sum(mean.get(name, 0) for name in DEVICE) * len(study.summary.counted) <= idle.busy_ps * (1 + 1e-9) + idle.window_ps * 0.02


# Facts about bounds: recorded runs of one program that differ in one thing. What the change saved of the time per
# example is held against the bounds of the rules that advise it.
_BATCH = "gpu-cnn-batch{}/host.xplane.pb"
_PAIR = "gpu-cnn-pairs/batch{}.xplane.pb"
_THREADS, _LARGER = ("gpu-thread-mode", "launch-bound", "idle-device"), ("larger-batch",)
CHANGES = [
    *((_PAIR.format(f"32-fp32-global-{a}"), _PAIR.format(f"32-fp32-private-{b}"), 1, _THREADS) for a in "ab" for b in "ab"),
    (_PAIR.format("32-mixed-global"), _PAIR.format("32-mixed-private"), 1, _THREADS),
    *((_PAIR.format(f"32-fp32-global-{a}"), _PAIR.format("64-fp32-global"), 2, _LARGER) for a in "ab"),
    (_PAIR.format("32-mixed-private"), _BATCH.format(128), 4, _LARGER),
    (_PAIR.format("32-mixed-global"), _BATCH.format(512), 16, _LARGER),
    (_BATCH.format(8), _PAIR.format("32-mixed-private"), 4, _LARGER),
    (_BATCH.format(8), _BATCH.format(128), 16, _LARGER),
    *((_PAIR.format(f"32-fp32-global-{a}"), _PAIR.format("32-mixed-global"), 1, ("mixed-precision",)) for a in "ab"),
    *((_PAIR.format(f"32-fp32-private-{a}"), _PAIR.format("32-mixed-private"), 1, ("mixed-precision",)) for a in "ab"),
    ("kineto/control.json.gz", "kineto/changed.json.gz", 1, ("exposed-collectives",)),
]


def median_ms(path):
    """The median of a trace's own step markers on the host."""
    trace = load(path).trace
    markers = trace.stats.integers("step_num").events
    return float(np.median(trace.events.duration_ps[markers[trace.is_host_event[markers]]])) / 1e9


def test_the_recorded_pairs_are_what_is_known_of_them(shared_traces):
    """The numbers of the traces' README, from the markers alone."""
    known = {"32-fp32-global-a": 4.12, "32-fp32-global-b": 4.10, "32-fp32-private-a": 3.34, "32-fp32-private-b": 3.51, "32-mixed-global": 7.04, "32-mixed-private": 4.86}
    assert {name: median_ms(shared_traces / _PAIR.format(name)) for name in known} == {name: pytest.approx(ms, abs=0.1) for name, ms in known.items()}


NOISE = 0.05  # by which two recorded runs of the same program differ: 3.34 and 3.51 ms


@pytest.mark.parametrize(("before", "after", "batches", "rules"), CHANGES)
def test_what_a_recorded_change_saved_is_what_it_was_promised_to(before, after, batches, rules, shared_traces):
    """Of the time per example. Each doubling of a batch saves what is promised for twice the batch, again."""
    saved = 1 - median_ms(shared_traces / after) / batches / median_ms(shared_traces / before)
    promised = [range_of for rule, range_of in alone(load(shared_traces / before).study).items() if rule in rules]
    doublings = max(np.log2(batches), 1)
    least, most = ([1 - (1 - share) ** doublings for share in shares] for shares in zip(*promised, strict=True)) if promised else ([], [])
    if saved < 0 and len(rules) == 1 and rules != ("exposed-collectives",):
        assert not promised  # what makes it slower is not advised
    if saved > 0.1:
        assert promised  # what makes it faster is
        assert max(most) > saved - NOISE
        assert min(least) < saved + NOISE
