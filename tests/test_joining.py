"""Rows joined by equal keys, and stats by their names: what is fast gives what is slow and plain."""

import numpy as np
import pytest

from profnb.core.columns import stable_order
from profnb.core.joining import number_keys
from profnb.trace import grouped_stats
from profnb.trace.xplane import read_xplane
from profnb.warm import _message


def longs(*values):
    return np.array(values, np.int64)


def test_keys_are_numbered_in_the_order_in_which_they_first_occur():
    number, found = number_keys((longs(1, 1, 1), longs(70, 71, 71)), (longs(1, 1, 2), longs(70, 70, 71)))
    assert number.tolist() == [0, 1, 1]
    assert found.tolist() == [0, 0, -1]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_numbers_tell_equal_keys_from_others(count):
    rng = np.random.default_rng(count)
    one, two = rng.integers(0, 3, count), rng.integers(-(2**62), 2**62, count)[rng.integers(0, max(count // 3, 1), count)]
    number, found = number_keys((one, two), (one[::-1].copy(), two[::-1].copy()))
    plain = {}
    assert number.tolist() == [plain.setdefault(key, len(plain)) for key in zip(one.tolist(), two.tolist(), strict=True)]
    assert found.tolist() == number[::-1].tolist()


def test_no_keys_are_found_among_none():
    none = longs()
    assert [part.tolist() for part in number_keys((none,), (longs(5, 0),))] == [[], [-1, -1]]


@pytest.mark.parametrize("keys", [[], [0], [2, 0, 2, 1, 0], [1 << 62, 3, 1 << 62]])
def test_a_stable_order_keeps_equal_keys_in_place(keys):
    assert stable_order(longs(*keys)).tolist() == np.argsort(longs(*keys), kind="stable").tolist()


def trace_with(*stats):
    """One event with stats; two keys, "a" of id 1 and "b" of id 2."""
    entry = [_message((1, number), (2, _message((1, number), (2, name)))) for number, name in ((1, b"a"), (2, b"b"))]
    event = _message((1, 1), (2, 0), (3, 10), *((4, stat) for stat in stats))
    line = _message((1, 1), (2, b"t"), (3, 1), (4, event))
    plane = _message((2, b"/host:CPU"), (3, line), (4, entry[0]), (5, entry[0]), (5, entry[1]))
    return read_xplane(np.frombuffer(_message((1, plane)), np.uint8), "made")


@pytest.mark.parametrize(
    "stat",
    [
        _message((1, 2), (4, 300)),  # as every writer has it: the key, then the value
        _message((4, 300), (1, 2)),
        _message((1, 1), (4, 300), (1, 2)),  # of a field that comes twice the last one holds
        _message((1, 1), (4, 7), (1, 2), (4, 300)),
    ],
)
def test_a_stat_is_found_wherever_its_key_stands(stat):
    stats = trace_with(_message((1, 1), (4, 5)), stat).stats
    assert stats.integers("a").values.tolist() == [5]
    assert stats.integers("b").values.tolist() == [300]
    assert stats.of_event(0) == {"a": 5, "b": 300}


def test_stats_are_counted_anew_only_where_the_quick_count_was_wrong(monkeypatch):
    passes = []
    one_pass = grouped_stats._pass
    monkeypatch.setattr(grouped_stats, "_pass", lambda *of: passes.append(of[-1]) or one_pass(*of))
    len(trace_with(_message((1, 1), (4, 5))).stats.integers("a"))
    quick = passes.copy()
    len(trace_with(_message((1, 1), (4, 5), (1, 2))).stats.integers("a"))
    count_quickly, count, keep = range(3)
    assert [how for how in quick if how != keep] == [count_quickly]
    assert passes[-4:] == [count_quickly, keep, count, keep]
