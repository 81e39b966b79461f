"""Tensors that grow piece by piece, each time copied whole; and joins that do not grow."""

import pytest
from advised import advised
from traces import event, host, line, read

from profnb.causes.slowing import find_growing_joins
from profnb.subjects.study import Study

US = 10**6


def study_of(takes_us, name="aten::cat"):
    """A window without steps: joins that take so many microseconds, each 100 us after the one before."""
    ran, at = [], 0
    for took in takes_us:
        ran.append(event(name, at * US, int(took * US)))
        at += int(took) + 100
    return Study(read(host(line("python", *ran))))


def test_a_tensor_that_grows_is_to_be_collected():
    """1 + 2 + ... + 200 us are 20,100; of these 200 times what the first ten took, 5.5 us, would remain."""
    found = advised(study_of(range(1, 201)))["joined-again"]
    assert "Concatenating ran 200 times and took longer and longer: 20.1 ms in all." in found.evidence
    assert found.saves_ms == pytest.approx((19, 19), rel=0.02)
    assert find_growing_joins(study_of(range(1, 201), "EagerLocalExecute: ConcatV2"))[0].size == 200


@pytest.mark.parametrize("takes", [
    [50] * 200,  # as long each time
    [20] * 120 + [900] * 80,  # larger batches behind smaller ones
    range(40, 480, 2),  # sequences sorted by length
    [50, 400] * 100,  # two in turn
    range(1, 30),  # too few to tell
    range(200, 401),  # twice as long at the end
    [*range(1, 51)] * 4,  # anew in each of four epochs
    range(200, 0, -1),
])  # fmt: skip
def test_joins_that_do_not_grow_are_left_alone(takes):
    assert "joined-again" not in advised(study_of(takes))


def test_another_op_that_grows_is_none():
    assert "joined-again" not in advised(study_of(range(1, 201), "aten::mm"))
