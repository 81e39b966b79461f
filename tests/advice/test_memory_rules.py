"""A cell that memory ended: one headline, one advice, each number by hand; nothing of it elsewhere."""

import math

import pytest
from test_memory import MB, training

from profnb.advice.advise import advise
from profnb.advice.cell_model import Model
from profnb.capture.memory.memory_records import HeldMemory, MemoryRecords, MemoryShortage
from profnb.capture.parts.part_records import CELL, CellPart, CellRecords, OTHER, TreeNode
from profnb.capture.recording import Recording
from profnb.profile import Profile

GPU = "GPU:0"
STATE = (HeldMemory("weights", "net/conv", GPU, 5 * MB, 2), HeldMemory("optimizer state", "", GPU, 10 * MB, 4))


def shortage(**more):
    return MemoryShortage(**{"error": "OutOfMemoryError", "device": GPU, "asked_bytes": 4 * MB, "free_bytes": MB, "in_use_bytes": 35 * MB, "limit_bytes": 36 * MB, "where": "Cell [3]:8"} | more)


def recorded(held=STATE, *, missing=None, name="own"):
    second = 1_000_000_000
    cell = CellRecords(second, [CellPart(OTHER, "", 1, second, second)], tree=[TreeNode(-1, CELL, name, self_ns=second)])
    return Recording(cell=cell, memory=MemoryRecords(held, (), missing or shortage()))


def test_the_headline_says_what_was_asked_for_and_what_filled_the_memory():
    """35 MB were in use: 15 are held, so 20 come and go."""
    p = Profile(recording=recorded())
    report = p._report
    said = "GPU:0 ran out of memory at Cell [3]:8. 4.00 MB were asked for; 1.00 MB of 36.0 MB were free. In use: activations and workspace 20.0 MB, optimizer state 10.0 MB, weights 5.00 MB."
    assert report.alarm == said
    assert report.text().replace("\n", " ").startswith(said)
    assert report.html.index("ran out of memory") < report.html.index("What to change")
    assert p.memory_kinds.bytes.sum() == 35 * MB


def test_what_each_remedy_frees():
    """Of 20 MB that grow: all, three quarters, half. 36 - 15 MB hold 21/24 of 32 examples that take 20 + 4 MB."""
    p = Profile(training(), recording=recorded())
    advice = p.advice[0]
    assert advice.rule == "out-of-memory" and advice.where == "Cell [3]:8"
    assert all(map(math.isnan, advice.saves_ms))
    assert advice.evidence == (
        "A batch of 28 fits at most (now 32). Freed: by recomputing activations up to 20.0 MB, by gradient accumulation over 4 batches 15.0 MB, by 16 bits 10.0 MB."
    )


def test_weights_that_take_half_of_the_memory_are_said_to_stay():
    held = (HeldMemory("weights", "net", GPU, 30 * MB, 2),)
    [advice] = Profile(recording=recorded(held)).advice
    assert "Weights, gradients and optimizer state alone take 30.0 MB, whatever the batch." in advice.evidence


def test_without_a_model_the_largest_variables_are_named():
    held = (HeldMemory("input and data", "`big`\x1b[31m", "CPU", 30 * MB, 1), HeldMemory("input and data", "small", "CPU", MB, 1))
    missing = shortage(error="MemoryError", device="CPU", free_bytes=-1, limit_bytes=40 * MB, limit_of="`ulimit -v`")
    p = Profile(recording=recorded(held, missing=missing))
    [advice] = p.advice
    assert "30.0 MB would be free" in advice.evidence and "small" not in advice.evidence and "batch" not in advice.code
    text = p._report.text()
    assert "35.0 MB of 40.0 MB (`ulimit -v`) were in use" in " ".join(text.split())
    assert "\x1b" not in text


def test_what_is_not_known_is_not_said():
    missing = MemoryShortage("MemoryError")
    p = Profile(recording=recorded((), missing=missing))
    assert p._report.alarm == "The device ran out of memory."
    [advice] = p.advice
    assert advice.evidence == "What filled the memory is not known here."
    assert "—" not in p._report.alarm and "-1" not in p._report.text()


def test_a_leak_is_named_with_its_steps():
    """Eight steps, eight tensors kept: what keeps a gradient's graph need not be large itself."""
    held = (*STATE, HeldMemory("activations", "losses", GPU, 32, 8))
    evidence = Profile(training(), recording=recorded(held)).advice[0].evidence
    assert "`losses` keeps 8 arrays: append float(x)" in evidence
    held = (*STATE, HeldMemory("activations", "losses", GPU, 32, 8))
    assert "keeps" not in Profile(training(count=4), recording=recorded(held)).advice[0].evidence  # of four steps nobody knows
    held = (*STATE, HeldMemory("activations", "outputs", GPU, 32, 3))
    assert "outputs" not in Profile(training(), recording=recorded(held)).advice[0].evidence


def test_other_cells_hear_nothing_of_it():
    recording = recorded()
    recording.memory.shortage = None
    p = Profile(training(), recording=recording)
    assert "out-of-memory" not in [one.rule for one in p.advice]
    assert p._report.alarm == ""


def test_the_advice_comes_first_and_the_others_stay():
    p = Profile(training(), recording=recorded())
    without = Profile(training(), recording=Recording(cell=recorded().cell))
    assert [one.rule for one in p.advice[1:]] == [one.rule for one in without.advice]
    assert p.to_dict()["advice"][0]["rule"] == "out-of-memory"


@pytest.mark.parametrize("name", ["", "own`x", "<script>"])
def test_a_model_without_a_shortage_gets_no_such_advice(name):
    tree = Profile(recording=recorded(name=name)).tree
    assert advise(Model(tree)) == []
