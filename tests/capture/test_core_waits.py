"""Threads that wait for a free core: read from what the system keeps, said where they waited long."""

import pytest
from advised import advised
from traces import event, host, line, read

from profnb.capture.machine import waits
from profnb.capture.machine.waits import CoreClock, CoreWaits
from profnb.capture.recording import Recording
from profnb.capture.saved.sidecar import read_recordings, write_recordings
from profnb.core.options import CaptureOptions
from profnb.report.notes import notes_of
from profnb.report.build import build_report
from profnb.subjects.study import Study

MS, S = 10**9, 10**9  # picoseconds, nanoseconds


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A process of threads with their times, on a machine with two cores."""
    monkeypatch.setattr(waits, "THREADS", tmp_path / "task")
    monkeypatch.setattr(waits, "CORES", tmp_path / "stat")
    monkeypatch.setattr(waits.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(waits.time, "process_time_ns", lambda: 0)

    def tell(ticks, **threads):
        (tmp_path / "stat").write_text(f"cpu  {ticks} 0 0 5000 100 0 0 0 7 7\ncpu0 1 1\ncpu1 1 1\nintr 5\n")
        for name, times in threads.items():
            folder = tmp_path / "task" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "schedstat").write_text(times)

    return tell


def test_what_threads_ran_and_waited_is_of_the_window_and_others_had_the_rest(machine, monkeypatch):
    """One thread is there all the time, one begins meanwhile, one has ended: its file is gone."""
    clock = CoreClock()
    machine(1000, t1="100 50 3", t3="7 7 7")
    clock.begin()
    machine(1250, t1="1100 950 9", t2="500 400 1", t3="gone")
    monkeypatch.setattr(waits.time, "process_time_ns", lambda: S)
    waited = clock.end()
    assert (waited.ran_ns, waited.waited_ns, waited.cores) == (1500, 1300, 2)
    assert waited.others_ns == 2_500_000_000 - S  # 250 ticks of 10 ms, a second of them its own
    assert waited.wall_ns > 0


def test_a_system_that_does_not_tell_gives_nothing(machine, tmp_path):
    clock = CoreClock()
    clock.begin()
    assert clock.end() == CoreWaits()
    machine(1000, t1="never")
    clock.begin()
    assert clock.end() == CoreWaits()
    (tmp_path / "stat").unlink()
    machine(1000, t1="1 2 3")
    (tmp_path / "stat").write_text("")
    clock.begin()
    assert clock.end().others_ns == clock.end().cores == 0


def study(waits, late=1):
    """Steps of 10 ms, 9 of them an op; from the 40th on they take ``late`` times as long."""
    made, at = [], 0
    for number in range(80):
        took = int(10 * (late if number >= 40 else 1) * MS)
        made += [event("train", at, took, step_num=number, _r=1), event("a/MatMul:MatMul", at, took - MS)]
        at += took
    return Study(read(host(line("python", *made))), recording=Recording(core_waits=waits))


CROWDED = CoreWaits(10 * S, 8 * S, 12 * S, 13 * S, 2)


def test_long_waits_are_said_and_who_had_the_cores():
    note = next(note for note in notes_of(study(CROWDED)) if "free core" in note)
    assert note.startswith("The machine was busy: other programs used 1.3 of 2 cores. Times below are too long; run again on an idle machine.")
    assert note.endswith("For each second of running, threads of this process waited 1.50 s for a free core.")
    own = next(note for note in notes_of(study(CoreWaits(10 * S, 8 * S, 12 * S, S, 2))) if "free core" in note)
    assert own.startswith("More threads were ready than the machine has cores.")


@pytest.mark.parametrize("waits", [CoreWaits(), CoreWaits(10 * S, 8 * S, 3 * S, 13 * S, 2), CoreWaits(S, S // 100, S, S, 2)])
def test_short_waits_and_hardly_any_work_are_not_said(waits):
    assert not any("free core" in note for note in notes_of(study(waits)))


def test_ops_are_said_to_compute_or_to_wait_where_they_may_have():
    def answer(waits):
        return build_report(study(waits), title="t", notes=[], overhead_ps=None).answer

    assert answer(CROWDED) == "Most of it is host compute, 90.0 % (ops on the CPU, computing or waiting for a core)."
    assert answer(CoreWaits()) == "Most of it is host compute, 90.0 % (ops computing on the CPU)."


def test_steps_that_slow_down_while_others_have_the_cores_are_no_fault_of_the_program():
    assert "slowing-down" in advised(study(CoreWaits(), late=2))
    assert "slowing-down" in advised(study(CoreWaits(10 * S, 8 * S, 12 * S, S, 2), late=2))
    assert "slowing-down" not in advised(study(CROWDED, late=2))


def test_waits_are_kept_beside_a_trace(tmp_path):
    trace = tmp_path / "host.xplane.pb"
    trace.write_bytes(b"")
    write_recordings(trace, CaptureOptions(), [Recording(core_waits=CROWDED)])
    assert read_recordings(trace)[1][0].core_waits == CROWDED
