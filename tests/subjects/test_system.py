"""The machine over a cell: who looks at it and how, what its looks say, its energy, and what is said of it."""

import re
import sys
import threading
import types
from array import array

import numpy as np
import pytest
from traces import tell_beside, told_beside

import profnb
from profnb.capture.machine import machine_watch
from profnb.capture.machine.machine_watch import visible_boards
from profnb.capture.machine.machine_watch import BoardRecords, MachineRecords
from profnb.capture.machine.machine_watch import MachineWatch
from profnb.capture.recording import Recording
from profnb.capture.saved.sidecar import read_recordings, write_recordings
from profnb.capture.step_records import StepRecords
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.drawing.section import section_block, section_text
from profnb.profile import Profile
from profnb.steps.step_times import wall_step_times
from profnb.subjects.system.machine_use import COUNTER, ENERGY, SAMPLES, find_energy
from profnb.subjects.system.machine_use import SYSTEM, find_machine_use
from profnb.subjects.system.section import energy_sentence, system_sections
from profnb.subjects.system.machine_use import throttling_notes

S, MS = 10**9, 10**6
POWER_CAP, IDLE, HEAT = 0x4, 0x1, 0x20


# By hand.


def ints(values):
    return array("q", [int(value) for value in values])


def looks(count=41, *, boards=(), begin=7 * S, step=S // 4, **columns):
    """A machine looked at every quarter of a second, whose four cores are half busy, one of them by this process."""
    rows = np.arange(count)
    defaults = {
        "busy_ns": 100 * S + rows * 2 * step, "idle_ns": 500 * S + rows * 2 * step, "process_ns": 5 * S + rows * step,
        "resident_bytes": np.full(count, 2e9), "read_bytes": rows * 25e6, "written_bytes": np.full(count, 9),
    }  # fmt: skip
    filled = {name: ints(values) for name, values in (defaults | columns).items()}
    return MachineRecords(begin, begin + (count - 1) * step, ints(begin + rows * step), **filled, boards=list(boards))


def board(count=41, *, name="H100", index=0, watts=300, counter=True, reasons=0, **columns):
    """A GPU that draws so much all the time, and counts it."""
    watts = np.broadcast_to(watts, count)
    joules = np.concatenate([[0], np.cumsum((watts[1:] + watts[:-1]) / 2 / 4)])
    defaults = {
        "utilization_percent": np.full(count, 80), "used_bytes": np.full(count, 20e9), "power_milliwatts": watts * 1e3,
        "energy_millijoules": 1e9 + joules * 1e3 if counter else np.full(count, -1), "reasons": np.broadcast_to(reasons, count),
    }  # fmt: skip
    return BoardRecords(name, index, int(80e9), **{name: ints(values) for name, values in (defaults | columns).items()})


def steps(count=80, *, begin=8 * S, period=100 * MS, traced=0, name="train"):
    records = StepRecords(names=[name])
    for row in range(count):
        at = begin + row * period
        records.append(at, at + period - 10 * MS, 0, 0, row < traced, 0, 1, row, 1)
    return wall_step_times(records)


def test_what_looks_say_by_hand():
    use = find_machine_use(looks(boards=[board(reasons=[IDLE] * 20 + [POWER_CAP | HEAT] * 21)]))
    frame = SYSTEM.frame(use)
    assert len(frame) == 82
    host, gpu = frame[frame.source == "host"], frame[frame.source == "GPU 0 (H100)"]
    assert host.time_ms.tolist()[:3] == [0, 250, 500]
    assert np.isnan(host.utilization_fraction.iloc[0])  # a share since the look before
    assert host.utilization_fraction[1:].tolist() == pytest.approx([0.5] * 40)
    assert host.process_fraction[1:].tolist() == pytest.approx([0.25] * 40)
    assert set(host.memory_bytes) == {2e9}
    assert host.read_bytes_per_second[1:].tolist() == pytest.approx([100e6] * 40)
    assert set(host.written_bytes_per_second[1:]) == {0}
    assert host.power_watts.isna().all()
    assert set(gpu.utilization_fraction) == {0.8}
    assert set(gpu.power_watts) == {300}
    assert gpu.throttling.tolist() == [""] * 20 + ["power cap, heat"] * 21
    assert gpu.process_fraction.isna().all()


def test_what_nobody_told_is_missing_and_never_zero():
    missing = np.full(5, -1)
    unknown = board(5, utilization_percent=missing, used_bytes=missing, power_milliwatts=np.zeros(5), energy_millijoules=missing, reasons=missing)
    use = find_machine_use(looks(5, boards=[unknown], busy_ns=missing, process_ns=missing, read_bytes=missing))
    frame = SYSTEM.frame(use)
    gpu, host = frame[frame.source != "host"], frame[frame.source == "host"]
    for column in ("utilization_fraction", "memory_bytes", "power_watts"):
        assert gpu[column].isna().all(), column
    for column in ("utilization_fraction", "process_fraction", "read_bytes_per_second"):
        assert host[column].isna().all(), column
    assert find_machine_use(None) is None
    assert find_machine_use(MachineRecords()) is None
    assert SYSTEM.frame(None).empty
    none = find_machine_use(looks(5, resident_bytes=missing, boards=[board(5)]))  # no psutil
    assert {source.source for source in none.sources} == {"GPU 0 (H100)"}


def test_energy_of_a_step_and_an_example_by_hand():
    # 300 W over 10 s, steps of 0.1 s: 30 J each. 79 periods lie between 80 begins.
    (energy,) = find_energy(looks(boards=[board()]), steps(), "train", 32)
    assert energy.joules == pytest.approx(3000)
    assert energy.steps == 79
    assert energy.step_joules == pytest.approx(30)
    assert energy.example_joules == pytest.approx(30 / 32)
    assert energy.method == COUNTER
    # 5 %, and 0.1 s of 300 W at both ends of 7.9 s.
    assert energy.band == pytest.approx(0.05 + 2 * 30 / (79 * 30))
    assert energy_sentence(energy) == "GPU 0 (H100) took 3 kJ: 30 J a step, 938 mJ an example (±7.5 %, by the board's energy counter)."
    assert ENERGY.frame([energy]).joules_per_step.tolist() == pytest.approx([30])


def test_without_a_counter_the_power_is_summed_and_less_sure():
    watts = np.array([100] * 11 + [300] * 30)
    (energy,) = find_energy(looks(boards=[board(watts=watts, counter=False)]), steps(31, begin=12 * S), "train", None)
    assert energy.method == SAMPLES
    assert energy.step_joules == pytest.approx(30, rel=0.01)
    assert np.isnan(energy.example_joules)
    assert energy.joules == pytest.approx(100 * 2.5 + 50 + 300 * 7.25)
    # The readings may be means of the last second: 200 J more or less over 30 steps of 30 J.
    assert energy.band == pytest.approx(0.05 + 200 / (30 * 30))


def test_energy_that_is_not_known_is_said_to_be_unknown():
    silent = board(power_milliwatts=np.zeros(41), counter=False)
    (energy,) = find_energy(looks(boards=[silent]), steps(), "train", 32)
    assert np.isnan(energy.joules)
    assert energy_sentence(energy) == "Energy of GPU 0 (H100): unknown: the board reports neither power nor energy."
    stuck = board(energy_millijoules=np.full(41, 5), power_milliwatts=np.zeros(41))
    assert np.isnan(find_energy(looks(boards=[stuck]), steps(), "train", 32)[0].joules)
    (short,) = find_energy(looks(boards=[board()]), steps(15), "train", 32)  # 1.4 s
    assert np.isnan(short.step_joules)
    assert "less than 2 s" in energy_sentence(short)
    (none,) = find_energy(looks(boards=[board()]), None, None, None)
    assert none.joules == pytest.approx(3000)
    assert "no step was timed" in energy_sentence(none)
    assert find_energy(None, steps(), "train", 32) == ()


def test_pauses_and_traced_steps_do_not_count_to_the_energy_of_a_step():
    records = StepRecords(names=["train"])
    at = 8 * S
    for row in range(60):
        records.append(at, at + 90 * MS, 0, 0, row < 20, 0, 1, row, 1)
        at += 100 * MS + (2 * S if row == 40 else 0)
    watts = np.array([300] * 41)
    (energy,) = find_energy(looks(boards=[board(watts=watts)]), wall_step_times(records), "train", None)
    assert energy.steps == 38  # 39 periods begin in untraced steps, one of them with the pause
    assert energy.step_joules == pytest.approx(30)


@pytest.mark.parametrize(
    ("held", "bits", "said"),
    [(5, POWER_CAP, "12 %"), (41, POWER_CAP | IDLE, "100 %"), (2, POWER_CAP, ""), (41, IDLE, ""), (41, -1, ""), (41, 0x2, ""), (41, 0x10, "")],
)  # fmt: skip
def test_throttling_is_said_where_it_was_seen(held, bits, said):
    reasons = [bits] * held + [0 if bits >= 0 else -1] * (41 - held)
    notes = throttling_notes(find_machine_use(looks(boards=[board(reasons=reasons)])))
    if not said:
        assert notes == []
        return
    assert notes == [f"GPU 0 (H100) was throttled for {said} of the time (power cap): held-back clocks in {held} of 41 samples."]


def test_the_strip_and_the_table_say_the_same():
    evil = "<script>alert(1)</script>"
    use = find_machine_use(looks(boards=[board(name=evil, reasons=[0] * 30 + [POWER_CAP] * 11)]))
    (section,) = system_sections(use, find_energy(looks(boards=[board(name=evil)]), steps(), "train", 32))
    html = str(section_block(section))
    assert "<script>" not in html
    assert html.count("<path") == len(section.rows) == 7
    assert [row[1] for row in section.rows] == ["GPU 0 utilization", "GPU 0 power", "GPU 0 memory", "CPU, all cores", "CPU, this process", "memory of this process", "disk read"]
    assert [row[2:] for row in section.rows][:4] == [("80.0 %", "80.0 %"), ("300 W", "300 W"), ("20.0 GB", "20.0 GB"), ("50.0 %", "50.0 %")]
    assert len(re.findall(r'<rect [^>]*height="3"', html)) == 11  # clocks held back
    assert "30 J a step" in section_text(section)
    without = re.sub(r"<svg.*?</svg>", "", html, flags=re.S)
    assert "20.0\u00a0GB" in without
    assert system_sections(find_machine_use(looks(1)), ()) == []
    assert system_sections(None, ()) == []
    long = find_machine_use(looks(2000, boards=[board(2000)]))
    assert len(str(section_block(system_sections(long, ())[0]))) < 40_000


def test_a_profile_has_them_with_and_without_a_trace():
    recording = Recording(machine=looks(boards=[board(reasons=POWER_CAP)]))
    p = Profile(recording=recording)
    assert len(p.system) == 82
    assert p.energy.joules.tolist() == pytest.approx([3000])
    assert any("was throttled for 100 % of the time (power cap)" in note for note in p.notes)
    assert Profile(recording=Recording()).system.empty
    assert Profile(recording=Recording()).energy.empty


# Who looks.


class Nvml(types.ModuleType):
    """Stands in for pynvml: two boards by a script, one of which knows little; keeps what was called."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, old=False, names=("NVIDIA H100", b"Tesla K80")):
        super().__init__("pynvml")
        self.calls, self.names, self.old = [], names, old
        self.energy = 0

    def nvmlInit(self):
        self.calls.append("init")

    def nvmlShutdown(self):
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self):
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetHandleByUUID(self, name):
        return {"GPU-1": 0}[name]

    def nvmlDeviceGetName(self, handle):
        return self.names[handle]

    def _known(self, handle, value):
        self.calls.append(handle)
        if handle == 1:
            raise self.NVMLError("not supported")
        return value

    def nvmlDeviceGetUtilizationRates(self, handle):
        return types.SimpleNamespace(gpu=self._known(handle, 77), memory=3)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return types.SimpleNamespace(total=80, used=20 + handle, free=60)

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._known(handle, 250_000)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self.energy += 1000
        return self._known(handle, self.energy)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return POWER_CAP

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        if self.old:
            raise self.NVMLError("function not found")
        return HEAT


def watched(monkeypatch, nvml, psutil=None, count=5):
    """What is seen until there are so many looks; None stands for a package that is not there."""
    monkeypatch.setattr(machine_watch, "_PERIOD_S", 0.0)
    monkeypatch.setattr(machine_watch, "_LEAST_IDLE", 0)
    for name, module in (("pynvml", nvml), ("psutil", psutil)):
        monkeypatch.setitem(sys.modules, name, module)
    present = {name for name, module in (("pynvml", nvml), ("psutil", psutil)) if module is not None}
    monkeypatch.setattr(machine_watch, "_is_there", present.__contains__)
    watch = MachineWatch()
    enough = threading.Event()
    look = watch._look

    def looked(readers):
        look(readers)
        if len(watch.records) >= count:
            enough.set()

    watch._look = looked
    with watch.watch():
        enough.wait(60 if present else 0)
    return watch.records


def test_boards_are_asked_for_what_they_know(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml = Nvml()
    records = watched(monkeypatch, nvml)
    first, second = records.boards
    assert (first.name, second.name, first.memory_bytes) == ("NVIDIA H100", "Tesla K80", 80)
    assert set(first.utilization_percent) == {77}
    assert set(first.power_milliwatts) == {250_000}
    assert set(first.reasons) == {HEAT}
    assert np.diff(first.energy_millijoules).min() > 0
    assert set(second.used_bytes) == {21}
    assert set(second.utilization_percent) == set(second.power_milliwatts) == set(second.energy_millijoules) == {-1}
    assert nvml.calls.count(1) == 3  # what a board does not know it is not asked again
    assert (nvml.calls[0], nvml.calls[-1]) == ("init", "shutdown")
    assert {len(column) for column in records.columns()} == {len(records)}
    assert set(records.resident_bytes) == {-1}
    assert records.begin_ns <= records.time_ns[0]


def test_an_older_driver_knows_the_older_name(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    records = watched(monkeypatch, Nvml(old=True))
    assert [one.name for one in records.boards] == ["NVIDIA H100"]
    assert set(records.boards[0].reasons) == {POWER_CAP}


@pytest.mark.parametrize(
    ("asked", "names", "order", "expected"),
    [
        (None, ["a", "a"], "", [0, 1]), ("1", ["a", "a"], "", [1]), ("-1", ["a"], "", []), ("", ["a"], "", []), ("1,0", ["a", "a"], "", [1, 0]),
        ("0,7,1", ["a", "a"], "", [0]), ("1", ["a", "b"], "", [0, 1]), ("1", ["a", "b"], "PCI_BUS_ID", [1]), ("GPU-1,MIG-2", ["a"], "", ["GPU-1", "MIG-2"]),
    ],
)  # fmt: skip
def test_only_boards_that_the_process_may_use_are_looked_at(asked, names, order, expected):
    environment = {"CUDA_DEVICE_ORDER": order} | ({} if asked is None else {"CUDA_VISIBLE_DEVICES": asked})
    assert visible_boards(environment, names) == expected


def test_without_the_packages_or_a_driver_nothing_is_looked_at_and_nothing_fails(monkeypatch):
    assert len(watched(monkeypatch, None)) == 0

    class NoDriver(Nvml):
        def nvmlInit(self):
            raise self.NVMLError("no driver")

    watch = MachineWatch()
    monkeypatch.setitem(sys.modules, "pynvml", NoDriver())
    monkeypatch.setattr(machine_watch, "_is_there", {"pynvml"}.__contains__)
    with watch.watch():
        pass
    assert len(watch.records) == 0


def test_a_reader_that_fails_later_leaves_missing_values(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    class Breaks(Nvml):
        def nvmlDeviceGetMemoryInfo(self, handle):
            raise ValueError("anything")

    records = watched(monkeypatch, Breaks())
    assert set(records.boards[0].used_bytes) == {-1}
    assert set(records.boards[0].power_milliwatts) == {250_000}


def test_many_looks_are_thinned(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine_watch, "MOST_LOOKS", 10)
    records = watched(monkeypatch, Nvml(names=("one",)), count=9)
    assert len(records) <= 11
    assert len({len(column) for column in records.columns()}) == 1
    thinned = looks(11, boards=[board(11)])
    for column in thinned.columns():
        column[:] = column[::2]
    assert np.diff(thinned.time_ns).tolist() == [S // 2] * 5
    assert find_energy(thinned, None, None, None)[0].joules == pytest.approx(750)  # counters stay what they were


def test_real_psutil_sees_this_process(monkeypatch):
    psutil = pytest.importorskip("psutil")
    records = watched(monkeypatch, None, psutil)
    assert min(records.resident_bytes) > 10e6
    assert min(records.process_ns) > 0
    assert min(records.busy_ns) > 0
    assert list(records.busy_ns) == sorted(records.busy_ns)
    use = find_machine_use(records)
    assert use.sources[0].source == "host"
    assert use.whole_ps > 0


@pytest.mark.tensorflow
def test_a_capture_looks_at_the_machine_over_the_whole_cell(tmp_path):
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("psutil")
    with profnb.profile(max_steps=2, source=False, logdir=str(tmp_path)) as p:
        double = tf.function(lambda x: 2 * x)
        for number in range(50):
            double(tf.constant(float(number)))
    host = p.system[p.system.source == "host"]
    assert len(host) >= 2
    assert host.memory_bytes.min() > 10e6
    assert host.time_ms.is_monotonic_increasing
    again = profnb.load(tmp_path)
    assert again.system.equals(p.system)
    # Of a run that was only timed nobody looks at the machine.
    assert {section.tab for section in p._report.sections} >= {"Machine"}


# Kept beside a trace.


def test_looks_come_back_as_they_were(tmp_path):
    records = looks(boards=[board(), board(name="other", index=1)])
    write_recordings(tmp_path / "h.xplane.pb", CaptureOptions(), [Recording(machine=records), Recording()])
    _, (one, none) = read_recordings(tmp_path / "h.xplane.pb")
    assert repr(one.machine) == repr(records)
    assert none.machine is None


def test_looks_that_cannot_be_are_refused(tmp_path):
    path = tmp_path / "h.xplane.pb"
    write_recordings(path, CaptureOptions(), [Recording(machine=looks(5, boards=[board(5)]))])
    told = told_beside(path)
    machine = told["runs"][0]["machine"]
    for change in ({"time_ns": [1, -1, 1, 1, 1]}, {"busy_ns": [1, 2]}, {"boards": [{**machine["boards"][0], "reasons": [0]}]}):
        told["runs"][0]["machine"] = machine | change
        tell_beside(path, told)
        with pytest.raises(TraceFormatError):
            read_recordings(path)
