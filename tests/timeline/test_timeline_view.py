"""What a timeline opens on, what its lanes are called, and the quantities below them."""

from base64 import b64decode

import numpy as np
import pytest
from test_timeline import study_of, unpack
from traces import event, gpu, host, line, read

import profnb
from profnb.profile import Profile
from profnb.timeline.pack import typical_steps
from profnb.timeline.pack import pack_timeline
from profnb.timeline.scene import Scene
from profnb.timeline.element import still_picture
from profnb.timeline.scene import Track, find_tracks, thin_track

US = 10**6
MS = 10**9


def training(*durations_us, period_us=10):
    return line("python", *(event("train", k * period_us * US, d * US, step_num=10 + k, _r=1) for k, d in enumerate(durations_us)))


def test_it_opens_on_the_three_steps_that_together_take_the_median():
    # Threes take 20 us and the third one's duration: 25, 23, 27, 28; the lower median is 25, of the first three.
    study = study_of(host(training(6, 6, 5, 3, 7, 8)))
    assert study.summary.counted.tolist() == [0, 1, 2, 3, 4, 5]
    assert typical_steps(study) == (0, 2)
    head, _ = unpack(pack_timeline(Scene(study), 100, 0).data)
    assert head["opens"] == [0, 2]


@pytest.mark.parametrize(("durations", "shown"), [((6, 5), (0, 1)), ((6,), (0, 0))])
def test_of_fewer_than_three_steps_all_are_shown(durations, shown):
    assert typical_steps(study_of(host(training(*durations)))) == shown


def test_without_steps_it_opens_on_everything():
    study = study_of(host(line("t", event("a", 0, 100))))
    assert typical_steps(study) is None


def test_no_real_trace_opens_on_a_step_that_averages_leave_out(shared_study):
    study = shared_study
    shown = typical_steps(study)
    assert (shown is None) == (study.steps.is_window or not study.summary.counted.size)
    if shown is not None:
        first, last = shown
        assert 0 <= last - first < 3
        assert set(range(first, last + 1)) <= set(study.summary.counted.tolist())


def test_threads_of_a_pool_are_numbered_and_named_for_what_they_do():
    study = study_of(
        host(
            training(9, 9),
            line("tf_data_private_threadpool/77", event("a", 0, 50 * US)),
            line("tf_data_private_threadpool/-5", event("b", 0, 40 * US)),
            line("tf_numa_-1_Eigen/1", event("c", 0, 30 * US)),
            line("tf_Compute/12", event("d", 0, 20 * US)),
            line("my own/3", event("e", 0, 10 * US)),
            line("python", event("f", 0, 5 * US)),
        ),
        gpu(line("Stream #19(Compute,MemcpyD2D)", event("k", 0, 1)), line("Stream #20(MemcpyH2D)", event("m", 0, 1))),
    )
    assert Scene(study).names == [
        "GPU:0 compute #19", "GPU:0 copies in #20", "Python (steps)", "tf.data worker 1", "tf.data worker 2", "intra-op worker",
        "TensorFlow worker", "my own", "Python",
    ]  # fmt: skip
    head, _ = unpack(pack_timeline(Scene(study), 100, 0).data)
    assert [lane["recorded"] for lane in head["lines"]][:4] == ["Stream #19(Compute,MemcpyD2D)", "Stream #20(MemcpyH2D)", "python", "tf_data_private_threadpool/77"]


def test_no_two_lanes_of_a_pool_have_one_name_in_a_real_trace(shared_study):
    scene = Scene(shared_study)
    numbered = [name for name in scene.names if "worker" in name]
    assert len(numbered) == len(set(numbered))


def with_derived():
    steps = training(9, 9, 9)
    launches = line("python", *(e for k, s in enumerate(steps[3]) for e in (s, event("launch", k * 10 * US + US, US, correlation_id=k + 1))))
    kernels = [event("k", k * 10 * US + 3 * US, 5 * US, correlation_id=k + 1, group_id=k) for k in range(3)]
    derived = [event(str(k), k * 10 * US + 3 * US, 5 * US, group_id=k) for k in range(3)]
    return host(launches), gpu(line("Stream #1", *kernels), line("Steps", *derived), line("XLA Modules", event("m", 0, 5)))


def test_lanes_that_repeat_a_devices_work_are_known_as_such():
    study = study_of(*with_derived())
    scene = Scene(study)
    assert dict(zip(scene.names, scene.derived, strict=True)) == {
        "GPU:0 Stream #1": "", "GPU:0 Steps": "GPU:0", "GPU:0 XLA Modules": "GPU:0", "Python (steps)": "",
    }  # fmt: skip
    assert [row[0] for row in still_picture(scene).rows] == ["GPU:0 Stream #1", "Python (steps)"]


def test_a_devices_own_steps_have_the_numbers_of_the_ruler():
    study = study_of(*with_derived())
    head, columns = unpack(pack_timeline(Scene(study), 100, 0).data)
    names = [head["names"][row] for row in columns["name"]]
    row = next(lane["row"] for lane in head["lines"] if lane["label"] == "GPU:0 Steps")
    marks = range(*columns["first"][row : row + 2])
    steps = {int(m): columns["step"][m] for m in marks}
    numbers = study.steps.step_num.tolist()
    assert [names[m] for m in marks] == [f"step {numbers[s - 1]}" if s else "outside the steps" for s in steps.values()]
    assert any(steps.values())


def test_tracks_are_what_allocators_and_buffers_held():
    allocations = [
        event("MemoryAllocation", k * US, 0, allocator_name="GPU_0_bfc", bytes_allocated=held, allocation_bytes=100, addr=k)
        for k, held in enumerate([100, 5_000_000_000, 300])
    ]
    asked = [event("Iterator::Root::Prefetch", k * US, 10, buffered_elements=held, buffer_limit=4) for k, held in enumerate([1, 3])]
    study = study_of(host(training(9, 9), line("alloc", *allocations), line("data", *asked)))
    memory, buffer = find_tracks(study)
    assert (memory.label, memory.title, memory.unit, memory.is_held) == ("GPU_0_bfc memory", "GPU_0_bfc memory in use", "bytes", True)
    assert memory.value.tolist() == [100, 5e9, 300]
    assert (buffer.label, buffer.title, buffer.unit, buffer.is_held) == ("Prefetch buffer", "Root::Prefetch buffered elements", "", False)
    head, columns = unpack(pack_timeline(Scene(study), 100, 0).data)
    for track, said, (time, raw) in zip([memory, buffer], head["tracks"], columns["tracks"], strict=True):
        assert (np.cumsum(time) * head["unit_ps"] + head["begin_ps"]).tolist() == track.time_ps.tolist()
        assert raw * said["scale"] + said["least"] == pytest.approx(track.value, rel=1e-9, abs=said["scale"])
        assert said["largest"] == track.value.max()
    assert [said["scale"] for said in head["tracks"]] == [pytest.approx((5e9 - 100) / (2**32 - 1)), 1]  # whole numbers stay what they are, if they fit


def test_a_trace_without_samples_has_no_track():
    assert find_tracks(study_of(host(training(9, 9)))) == []


def test_thinning_keeps_every_peak_and_low():
    value = np.zeros(100_000)
    value[[31_415, 77_777]] = 9, -4
    track = Track("t", "t", "", np.arange(100_000), value, is_held=False)
    thin = thin_track(track, 400)
    assert len(thin) <= 400
    assert thin.left_out == 100_000 - len(thin)
    assert (np.diff(thin.time_ps) > 0).all()
    assert (thin.value.max(), thin.time_ps[thin.value.argmax()]) == (9, 31_415)
    assert (thin.value.min(), thin.time_ps[thin.value.argmin()]) == (-4, 77_777)
    assert thin.time_ps[0] == 0 and thin.time_ps[-1] == 99_999


def test_a_window_has_the_sample_before_it():
    track = Track("t", "t", "", np.array([0, 10, 20, 30, 40]), np.arange(5.0), is_held=True)
    assert thin_track(track, 100, (15, 30)).time_ps.tolist() == [10, 20, 30]
    assert thin_track(track, 100, (50, 60)).time_ps.tolist() == [40]
    assert len(thin_track(track, 100, (-20, -10))) <= 1


def test_two_runs_share_the_room_of_one_and_keep_their_names(monkeypatch):
    from profnb.timeline import element
    from profnb.timeline.element import build_pair

    monkeypatch.setattr(element, "_NOTEBOOK_MARKS", 8)
    study = study_of(host(training(*[6] * 9)))
    pair = build_pair(study, study, ("<b>one</b>", "two"))
    for side, name in zip(pair.sides, ("<b>one</b>", "two"), strict=True):
        head, _ = unpack(b64decode(side.data))
        assert head["marks"] <= 4
        assert side.headline.startswith(f"{name}: 9 events")
    html = pair.html(("x", "y"))
    assert "<b>one" not in html
    assert html.count("data-timeline=") == 2
    assert pair.text.count("9 events on") == 2


def test_a_comparison_shows_both_runs_as_text_in_a_terminal(capsys):
    a, b = Profile(read(host(training(6, 6, 6)))), Profile(read(host(training(3, 3, 3))))
    profnb.compare(a, b, labels=("slow", "fast")).timeline()
    shown = capsys.readouterr().out
    assert shown.index("slow: 3 events") < shown.index("fast: 3 events")
