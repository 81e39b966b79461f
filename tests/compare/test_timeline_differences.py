"""Two timelines aligned by step: which events of a mean step are new, gone, longer or shorter."""

from traces import event, gpu, host, line, read

from profnb.comparison import compare
from profnb.profile import Profile

MS = 10**9


def made(load_ms, extra=(), number=1):
    """Four steps of 20 ms; each loads at 1 ms and computes for 5 ms at 10 ms; a kernel runs for 4 ms at 12 ms."""
    events, kernels = [], []
    for at in range(4):
        begin = at * 20 * MS
        events += [event("train", begin, 20 * MS, step_num=at, _r=1), event("load", begin + MS, load_ms * MS)]
        events += [event(f"dense_{number}/MatMul", begin + 10 * MS, 5 * MS), event("launch", begin + 11 * MS, MS, correlation_id=at)]
        events += [event(name, begin + (16 + place) * MS, MS) for place, name in enumerate(extra)]
        kernels.append(event("gemm", begin + 12 * MS, 4 * MS, correlation_id=at))
    return Profile(read(host(line("python", *events)), gpu(line("Stream #1", *kernels))))


def test_events_of_a_step_by_hand():
    """load takes 2 ms, then 6 of the step's; log comes twice a step; the layer is numbered anew and the same."""
    found = compare(made(2, ["save"]), made(6, ["log", "log"], number=7), labels=("a", "b"))
    frame = found.timeline_diff.set_index("event")
    assert frame.status.to_dict() == {"load": "longer", "train": "shorter", "log": "new", "save": "gone"}
    assert frame.difference_ms.to_dict() == {"load": 4.0, "train": -5.0, "log": 2.0, "save": -1.0}
    assert frame.difference_ms.sum() == 0  # a step is as long as before
    assert (frame.first_count["save"], frame.second_count["save"], frame.second_count["log"]) == (1, 0, 2)
    assert (frame.first_begin_ms["load"], frame.second_begin_ms["log"]) == (1.0, 16.5)
    assert frame.first_ms.isna().to_dict() == {"load": False, "train": False, "log": True, "save": False}
    assert set(frame.side) == {"host"}
    assert "The timelines, step by step" in found.summary()
    assert "gemm" not in found.summary()  # which is as long as it was


def test_equal_timelines_have_no_differences():
    assert not len(compare(made(2), made(2, number=3)).timeline_diff)


def test_traces_without_steps_or_events_have_none():
    none = Profile(read(host(line("python"))))
    assert not len(compare(none, none).timeline_diff)
