"""Rows joined by equal keys, and stats by their names: what is fast gives what is slow and plain."""

import numpy as np
import pytest

from profnb.core.columns import distinct_rows, gather, match, stable_order
from profnb.core.joining import Keyed, link_by_key, number_keys
from profnb.trace import xplane_stats
from profnb.trace.xplane import read_xplane
from profnb.trace.wire import write_message as _message


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


def pairs(producing, consuming):
    """Every (producer, consumer) that is linked, in order."""
    links = link_by_key(producing, consuming)
    spans = zip(links.producers.tolist(), links.first.tolist(), links.last.tolist(), strict=True)
    return [(one, two) for one, first, last in spans for two in links.consumers[first:last].tolist()]


@pytest.mark.parametrize(("few", "many"), [(0, 5), (1, 40), (7, 300), (60, 61)])
def test_links_are_those_of_equal_keys_whichever_side_is_smaller(few, many):
    rng = np.random.default_rng(few)
    one = Keyed(np.arange(few), (rng.integers(0, 4, few), rng.integers(-3, 9, few)))
    two = Keyed(1000 + np.arange(many), (rng.integers(0, 4, many), rng.integers(-3, 9, many)))
    for producing, consuming in ((one, two), (two, one)):
        plain = [
            (event, other)
            for event, *key in zip(producing.events.tolist(), *(k.tolist() for k in producing.keys), strict=True)
            for other, *wanted in zip(consuming.events.tolist(), *(k.tolist() for k in consuming.keys), strict=True)
            if key == wanted
        ]
        assert pairs(producing, consuming) == plain
        assert plain or not few


def test_what_many_of_both_sides_share_links_nothing():
    for producers, consumers, expected in ((64, 64, 0), (63, 64, 63 * 64), (1, 5000, 5000), (5000, 1, 5000)):
        one = Keyed(np.arange(producers), (np.full(producers, 7),))
        two = Keyed(np.arange(consumers), (np.full(consumers, 7),))
        assert len(pairs(one, two)) == expected


@pytest.mark.parametrize("count", [0, 1, 40_000, 70_000])
def test_values_are_gathered_as_by_indexing_and_below_zero_is_the_last(count):
    rows = np.random.default_rng(0).integers(-1, 9, count).astype(np.int32)
    for values in (np.arange(9) * 10, np.arange(9) % 2 == 0):
        found = gather(values, rows)
        assert found.dtype == values.dtype
        assert found.tolist() == values[rows].tolist()


@pytest.mark.parametrize("spread", [1, 3, 1000])
@pytest.mark.parametrize("below", [0, -5])
def test_values_of_two_ascending_arrays_are_matched_in_a_table_or_by_searching(spread, below):
    rng = np.random.default_rng(spread)
    one, two = (np.unique(rng.integers(below, 40 * spread, count)) for count in (20, 50))
    for first, second in ((one, two), (two, one), (one[:0], two), (one, one)):
        found = match(first, second)
        assert [part.tolist() for part in found] == [
            part.tolist() for part in np.intersect1d(first, second, return_indices=True)
        ]


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
    one_pass = xplane_stats._pass
    monkeypatch.setattr(xplane_stats, "_pass", lambda *of: passes.append(of[-1]) or one_pass(*of))
    len(trace_with(_message((1, 1), (4, 5))).stats.integers("a"))
    quick = passes.copy()
    len(trace_with(_message((1, 1), (4, 5), (1, 2))).stats.integers("a"))
    count_quickly, count, keep = range(3)
    assert [how for how in quick if how != keep] == [count_quickly]
    assert passes[-4:] == [count_quickly, keep, count, keep]


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_distinct_rows_ascend_and_each_row_is_told_which_it_is(count):
    rng = np.random.default_rng(count)
    columns = rng.integers(-1, 4, count), rng.integers(-1, 3, count), rng.integers(0, 5, count)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    distinct, row = distinct_rows(*columns)
    assert [tuple(one) for one in distinct] == sorted(set(rows))
    assert [tuple(distinct[at]) for at in row.tolist()] == rows
