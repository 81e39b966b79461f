"""Devices of one process that run programs of several pieces: who holds the others up, and what would be gained.

What a step would take is known: the same program is run again with the slow device as fast as the others.
"""

import pytest
from advised import alone
from made_devices import MS, programs_of
from traces import event, host, line, plane, xspace

import profnb

STEPS = 14


def fleet_of(folder, count, program, steps=STEPS):
    file = folder / "one.xplane.pb"
    file.write_bytes(programs_of(count, steps, program))
    return profnb.load_fleet(file)


def advice_of(folder):
    return {one.rule: one for one in profnb.load(folder / "one.xplane.pb").advice}


def plain(one, step, *, work=20.0):
    return [("compute", "gemm", work), ("meet", 5.0)]


def buckets(slow, exchange=3.0):
    """DDP: the gradients of a bucket are exchanged beside the rest of the backward pass; GPU 1 is slow in it."""

    def program(one, step):
        pieces = [("compute", "forward", 10.0)]
        for _ in range(5):
            pieces += [("compute", "backward", 4.0 * (slow if one == 1 else 1)), ("meet", exchange)]
        return [*pieces, ("join",), ("compute", "adam", 2.0)]

    return program


def sharded(slow):
    """FSDP: the next layer's weights are gathered beside this one's compute; GPU 1 is slow in all of it."""

    def program(one, step):
        times = slow if one == 1 else 1
        pieces = [("meet", 3.0), ("join",)]
        for _ in range(4):
            pieces += [("meet", 3.0), ("compute", "forward", 4.0 * times), ("join",)]
        for _ in range(4):
            pieces += [("compute", "backward", 8.0 * times), ("meet", 3.0)]
        return [*pieces, ("join",), ("compute", "adam", 2.0)]

    return program


@pytest.mark.parametrize(("program", "count", "slow"), [(buckets, 2, 2.0), (buckets, 4, 3.0), (sharded, 4, 1.5)])
def test_what_is_gained_counts_what_the_others_compute_while_they_wait(tmp_path, program, count, slow):
    even = fleet_of(tmp_path, count, program(1.0))
    assert even.stragglers == ()
    fleet = fleet_of(tmp_path, count, program(slow))
    assert fleet.stragglers == ("GPU:1",)
    step, faster = fleet.hosts.step_ms[0], even.hosts.step_ms[0]
    assert fleet.advice[0].bound_fraction * step == pytest.approx(step - faster, rel=0.01)
    assert fleet.hosts.caused_ms[1] == pytest.approx(step - faster, rel=0.01)
    assert f"a step would take {faster:.1f} ms" in fleet.advice[0].evidence
    assert f"Why: {step - faster:.1f} ms a step more device compute" in fleet.verdict


def test_compute_that_the_exchange_hides_costs_nobody_anything(tmp_path):
    """GPU 1 is half as slow again, and all of it lies beside exchanges that take longer still."""
    fleet = fleet_of(tmp_path, 2, buckets(1.5, exchange=12.0))
    assert fleet.stragglers == ()
    assert "GPU:0 has 10.0 ms a step less work than any other." in fleet.verdict


def test_a_first_step_that_lacks_its_begin_is_in_no_mean_but_tells_who_was_late(tmp_path):
    """Counting begins behind the first exchange, in the middle of a step that has several."""
    program = lambda one, step: [*plain(one, step), ("join",), ("compute", "tail", 5.0 + 10 * one), ("meet", 5.0)]  # noqa: E731
    fleet = fleet_of(tmp_path, 2, program, 6)
    assert fleet.steps.is_steady.tolist() == [False, False, *[True] * 10]
    assert set(fleet.hosts.step_ms) == {47.0}  # 20 + 5 + 15 + 5, and 2 between steps
    assert fleet.stragglers == ("GPU:1",) and "5 steps of 47.0 ms" in fleet.verdict


def test_devices_that_meet_in_every_fourth_step_are_told_so(tmp_path):
    """Gradients of four steps are added up: what lies between two exchanges is no step of the trace."""
    program = lambda one, step: [("compute", "gemm", 10.0 + 10 * one)] + [("meet", 5.0)] * (step % 4 == 3)  # noqa: E731
    fleet = fleet_of(tmp_path, 2, program, 40)
    assert "9 steps of 93.0 ms (each spans 4 steps of the trace, from one exchange to the next). GPU:1 holds" in fleet.verdict
    assert "A step here spans 4 steps of the trace." in advice_of(tmp_path)["straggler"].evidence
    every = fleet_of(tmp_path, 2, plain)
    assert "of the trace's" not in every.verdict


@pytest.mark.parametrize("fast", [0, 2])
def test_one_that_has_less_to_do_than_all_others_is_named_as_that(tmp_path, fast):
    fleet = fleet_of(tmp_path, 3, lambda one, step: plain(one, step, work=10.0 if one == fast else 40.0))
    assert fleet.stragglers == ()
    assert f"GPU:{fast} has 30.0 ms a step less work than any other." in fleet.verdict
    assert "less work" not in fleet_of(tmp_path, 3, plain).verdict


def test_one_that_is_late_in_some_steps_is_named_with_these(tmp_path):
    fleet = fleet_of(tmp_path, 2, lambda one, step: plain(one, step, work=60.0 if one and step % 5 == 0 else 20.0), 21)
    assert fleet.stragglers == ()
    assert "No device holds the others up" in fleet.verdict
    assert "GPU:1 holds the others up in 4 of 20 steps, by 40.0 ms on average." in fleet.verdict
    exchange = advice_of(tmp_path)["exposed-collectives"].evidence
    assert "in 4 of 20 steps" in exchange
    late_in_turns = fleet_of(tmp_path, 2, lambda one, step: plain(one, step, work=60.0 if one == step % 2 else 20.0), 21)
    assert " of 20 steps, by" not in late_in_turns.verdict


def test_one_that_computes_behind_the_exchange_is_named_though_nobody_waits_in_it(tmp_path):
    program = lambda one, step: [*plain(one, step), ("join",), *[("compute", "metrics", 6.0)] * (one == 0)]  # noqa: E731
    fleet = fleet_of(tmp_path, 4, program)
    assert fleet.stragglers == ()
    assert "GPU:0 computes 6.00 ms a step more than the rest. Any waiting for this work is outside" in fleet.verdict
    assert "computes" not in fleet_of(tmp_path, 4, plain).verdict


def test_a_device_whose_input_comes_late_is_told_copies_from_waiting(tmp_path):
    copied = fleet_of(tmp_path, 2, lambda one, step: [("copy", 1.0 + 8 * one), *plain(one, step)])
    assert copied.stragglers == ("GPU:1",)
    assert "8.00 ms a step more copying to the device than" in copied.verdict and "copies to and from" in copied.advice[0].code
    waits = fleet_of(tmp_path, 2, lambda one, step: [*[("next", 9.0)] * one, ("copy", 1.0), *plain(one, step)])
    assert waits.stragglers == ("GPU:1",)
    assert "9.00 ms a step more waiting for input than" in waits.verdict
    assert "input of this device" in waits.advice[0].code and "copied" not in waits.advice[0].code


def test_waiting_in_an_exchange_is_no_work_that_is_uneven(tmp_path):
    """GPU 0 is first in each exchange and so the longest in it; it computes as much as the others."""
    fleet_of(tmp_path, 4, lambda one, step: [("idle", 2.0 * one), *plain(one, step)])
    assert "imbalance" not in advice_of(tmp_path)
    fleet_of(tmp_path, 2, lambda one, step: plain(one, step, work=10.0 + 30 * one), 5)  # too few to name one
    assert alone(profnb.load(tmp_path / "one.xplane.pb").study)["imbalance"] == pytest.approx((15 / 47 * 0.6, 15 / 47), abs=0.02)


def test_a_device_of_another_program_is_no_uneven_replica(tmp_path):
    fleet = fleet_of(tmp_path, 3, lambda one, step: [("compute", "teacher", 30.0)] if one == 2 else plain(one, step, work=15.0))
    assert any("GPU:2 shared no collective" in note for note in fleet.notes)
    assert "imbalance" not in advice_of(tmp_path)


def tpus(late, *, work=(10, 10, 10)):
    """Three TPU cores, the last of which begins its program so many ms later; they wait for it before they begin."""
    calls, modules, ops, beside = [], [[] for _ in work], [[] for _ in work], [[] for _ in work]
    at = 10
    for step in range(STEPS):
        begins = [at, at, at + late]
        reached = [max(begins) + own for own in work]
        end = max(reached) + 5
        for one, begin in enumerate(begins):
            beside[one].append(event("barrier-cores", begin * MS, (max(begins) - begin) * MS + 2_000_000))
            ops[one].append(event("%fusion.1 = f32[8]{0} fusion(%p)", max(begins) * MS + 1_000_000, work[one] * MS - 1_000_000))
            ops[one].append(event("%all-reduce = f32[8]{0} all-reduce(%x)", reached[one] * MS, (end - reached[one]) * MS))
            modules[one].append(event("jit_step(1)", begin * MS, (end - begin) * MS))
        calls.append(event("train", at * MS, (end - at) * MS + 1, step_num=step, _r=1))
        at = end + 2
    lines = zip(modules, ops, beside, strict=True)
    cores = [
        plane(f"/device:TPU:{one}", line("XLA Modules", *m, line_id=2), line("XLA Ops", *o, line_id=3), line("XLA TraceMe", *b, line_id=6))
        for one, (m, o, b) in enumerate(lines)
    ]
    return xspace(host(line("python", *calls, line_id=1)), *cores)


def test_what_tpus_wait_before_a_program_is_waiting(tmp_path):
    """Recorded so (tpu-v6e/inference_2): one core waits 341 ms in barrier-cores, and the all-reduce takes 122 ms on all."""
    file = tmp_path / "one.xplane.pb"
    file.write_bytes(tpus(20))
    fleet = profnb.load_fleet(file)
    assert fleet.stragglers == ("TPU:2",)
    assert fleet.hosts.wait_ms.tolist() == pytest.approx([20, 20, 0], abs=0.01)
    assert fleet.hosts.exchange_ms.tolist() == pytest.approx([5, 5, 5], abs=0.01)
    file.write_bytes(tpus(0))
    assert profnb.load_fleet(file).stragglers == ()
    file.write_bytes(tpus(0, work=(10, 10, 25)))
    assert profnb.load_fleet(file).stragglers == ("TPU:2",)
