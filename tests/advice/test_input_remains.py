"""What remains of waiting for input: with threads, which share the cores with the steps, and behind a cache, which is ready at once."""

import pytest
from test_python_input import MS, fed_by
from test_what_if import tree_of

from profnb.advice.advise import proposals_of
from profnb.advice.cell_model import Model
from profnb.advice.replay import replay


def saves(wait, made_us, cores):
    """Steps of 4 ms that wait for a map so long; the cell is 1 s, so much of it waiting: what threads save, in ms."""
    tree = tree_of((-1, "cell", "", 0, 0), (0, "call", "fit", 0, 1), (1, "epoch", "", 0, 1), (2, "train steps", "", 0, 100),
                   (3, "input", "", wait, 100), (3, "host compute", "", 1000 - wait, 0))  # fmt: skip
    (found,) = [one for one in proposals_of(Model(tree, fed_by("MapV2", made_us, "MatMul"), cores=cores)) if one.rule == "input-bound"]
    saving = replay(tree, found.edits)
    return saving.low_ps / MS, saving.high_ps / MS


def test_on_two_cores_the_steps_keep_one_for_as_long_as_they_compute():
    """800 of 1,000 ms is waiting: both cores have 1,000 ms of work between them, and need 500; or the steps use both, and it is 600."""
    assert saves(800, 16_000, 2) == pytest.approx((400, 500), rel=0.03)


def test_on_many_cores_nothing_is_left_to_wait_for():
    low, high = saves(800, 16_000, 16)
    assert low == pytest.approx(750, rel=0.03)
    assert high == pytest.approx(800, rel=0.03)


def test_where_computing_takes_as_long_as_the_input_less_is_promised():
    """500 of 1,000 ms: before 500 ms are over for both on two cores, as neither can be faster."""
    low, high = saves(500, 4_000, 2)
    assert low == pytest.approx(250, rel=0.05)
    assert high == pytest.approx(500, rel=0.05)


def kept(kind="callbacks", took=0, epochs=10, parent=2):
    """A fit of ten epochs and 1 s that maps each time; what a cache saves of it at least and at most, None where nobody says so."""
    tree = tree_of((-1, "cell", "", 0, 0), (0, "call", "fit", 0, 1), (1, "epoch", "", 0, epochs), (2, "train steps", "", 0, 100),
                   (3, "input", "", 400, 100), (3, "host compute", "", 500, 0), (parent, kind, "", took, 10))  # fmt: skip
    model = Model(tree, fed_by("MapV2", 2_600, "MatMul"), cores=2)
    found = [one for one in proposals_of(model) if one.rule == "cache-input"]
    saving = replay(tree, found[0].edits) if found else None
    return saving and (saving.low_ps / MS, saving.high_ps / MS)


def test_behind_a_cache_a_new_iterator_is_ready_as_soon_as_it_is_made():
    """Nine tenths of 400 ms of waiting, and of 400 ms of ten new iterators what more than restarting a ready dataset takes."""
    without, with_them = kept(), kept("set-up", 400)
    assert without[1] == pytest.approx(360, rel=0.03)
    assert 300 < with_them[0] - without[0] < 420
    assert 300 < with_them[1] - without[1] < 420


def test_iterators_of_something_else_and_single_epochs_are_no_reason_to_cache():
    assert kept("set-up", parent=0) == kept(parent=0)  # of no epoch of this fit
    assert kept(epochs=1) is None
