import numpy as np
import pytest
from conftest import every_shared_trace
from traces import event, host, line, read

from profnb.steps.nesting import find_parents, has_inside, is_inside, last_around, outermost_of, self_times
from profnb.trace.files import read_trace


def nest(*spans, offsets=None):
    begin, end = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    offsets = np.array(offsets or [0, len(spans)], np.int64)
    parent = find_parents(end, offsets)
    return parent.tolist(), self_times(begin, end, parent).tolist()


def test_a_call_contains_the_calls_it_makes():
    parents, own = nest((0, 100), (10, 40), (20, 30), (50, 60))
    assert parents == [-1, 0, 1, 0]
    assert own == [60, 20, 10, 10]


def test_an_event_of_the_same_span_is_the_child_of_the_earlier_one():
    parents, own = nest((0, 10), (0, 10))
    assert parents == [-1, 0]
    assert own == [0, 10]


def test_a_partly_overlapping_event_is_no_child_and_self_time_is_never_negative():
    parents, own = nest((0, 10), (1, 8), (5, 9))
    assert parents == [-1, 0, 0]
    assert own == [2, 7, 4]  # the two cover 1 to 9 of their parent


def test_lines_do_not_nest_in_each_other():
    parents, _ = nest((0, 10), (2, 3), offsets=[0, 1, 2])
    assert parents == [-1, -1]


def test_what_lies_around_an_event_is_the_last_that_began_on_its_line_and_still_runs():
    trace = read(
        host(
            line("a", event("first", 0, 10), event("in first", 5, 2), event("at its end", 10, 1), event("second", 20, 10), event("in second", 20, 5)),
            line("b", event("elsewhere", 22, 5)),
        )
    )
    around, wanted = np.array([0, 3]), np.array([0, 1, 2, 4, 5])
    assert last_around(trace, around, wanted).tolist() == [0, 0, -1, 1, -1]
    assert last_around(trace, np.array([3]), wanted).tolist() == [-1, -1, -1, 0, -1]
    assert last_around(trace, np.empty(0, np.int64), wanted).tolist() == [-1] * 5


def test_what_is_marked_is_found_from_outside_and_from_inside_at_every_depth():
    """0 holds 1, which holds 2, which holds 3; 4 holds 5; 6 stands alone."""
    parent = np.array([-1, 0, 1, 2, -1, 4, -1], np.int32)
    marked = lambda *rows: np.isin(np.arange(7), rows)
    assert np.flatnonzero(has_inside(parent, marked(2))).tolist() == [0, 1, 2]
    assert np.flatnonzero(has_inside(parent, marked(0, 3, 5))).tolist() == [0, 1, 2, 3, 4, 5]
    assert not has_inside(parent, marked()).any()
    assert is_inside(parent, marked(0), np.arange(7)).tolist() == [False, True, True, True, False, False, False]
    assert is_inside(parent, marked(1, 4), np.array([5, 3, 1, 6])).tolist() == [True, True, False, False]
    assert not is_inside(parent, marked(6), np.arange(7)).any()
    assert outermost_of(marked(1, 3, 5, 6), parent).tolist() == [1, 5, 6]
    assert outermost_of(marked(0, 3, 4), parent).tolist() == [0, 4]


def test_no_events():
    empty = np.empty(0, np.int64)
    assert find_parents(empty, np.zeros(1, np.int64)).size == 0


@pytest.mark.parametrize("path", every_shared_trace())
def test_self_times_sum_to_the_busy_time_of_each_line_that_nests(path):
    events, lines = (trace := read_trace(path)).events, trace.lines
    parent = find_parents(events.end_ps, lines.offsets)
    own = self_times(events.begin_ps, events.end_ps, parent)
    assert (own >= 0).all()
    for number in range(len(lines)):
        part = slice(lines.offsets[number], lines.offsets[number + 1])
        roots = parent[part] < 0
        begin, end = events.begin_ps[part][roots], events.end_ps[part][roots]
        nests = (begin[1:] >= end[:-1]).all() and not overlaps(events, parent, part)
        if nests:
            assert own[part].sum() == (end - begin).sum()


def overlaps(events, parent, part):
    """Whether some siblings overlap in part."""
    last = {}
    for index in range(part.start, part.stop):
        owner = int(parent[index])
        if events.begin_ps[index] < last.get(owner, -(1 << 62)):
            return True
        last[owner] = int(events.end_ps[index])
    return False
