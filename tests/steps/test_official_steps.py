"""Steps on a GPU against the answers TensorFlow itself gave (2.4), every difference traced to a rule.

The rules are written down here a second time, as a sweep of its own that follows the official definitions. It
gives the official numbers exactly, for all 63 steps of three traces. So whatever differs between them and ours
comes from these rules and from nothing else:

| rule of the official tool              | profnb                                     | mean effect on batch512 |
| a group without a marker is a step     | only marked steps are steps                | 2 of 21 steps           |
| copies are device compute              | input, output or device to device          | 1.301 ms less compute   |
| an executor's time is kernel launch    | so is all that prepares the device's work  | 0.639 ms more launch    |
| a host call that copies is launch      | it is input or output                      | in input, output        |
| what begins with "train" is no work    | only the marker itself is none             | in kernel launch        |
| the time between steps is left out     | it is shown                                | 0.029 ms a step         |
"""

import numpy as np
import pytest

import profnb
from profnb.steps.streams import raw_device_lines

TRACES = ("gpu-cnn-batch512", "gpu-cnn-batch128", "gpu-cnn-batch8")
UNKNOWN, HOST, LAUNCH, WAIT, DEVICE = range(5)
FIELDS = ("unknown_time_ms", "host_compute_ms", "host_prepare_ms", "host_wait_input_ms", "device_compute_ms")
WRAPPERS = ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun", "train", "TraceContext")


def official_steps(folder):
    protos = pytest.importorskip("xprof.protobuf.input_pipeline_pb2")
    result = protos.InputPipelineAnalysisResult()
    result.ParseFromString((folder / "host.input_pipeline.pb").read_bytes())
    steps = []
    for packed in result.step_details:
        step = protos.PerGenericStepDetails()
        packed.Unpack(step)
        steps.append(step)
    return steps


class Rules:
    """The official definitions, spelled out event by event."""

    def __init__(self, trace):
        self.trace = trace
        self.names = trace.names.texts
        groups = trace.stats.integers("group_id")
        self.group = np.full(len(trace.events), -1)
        self.group[groups.events] = groups.values
        self.named = set(trace.stats.texts("step_name").events.tolist())
        self.launches = set(trace.stats.integers("correlation_id").events.tolist())
        self.on_device = raw_device_lines(trace)[trace.lines.of_event]
        steps_line = [row for row in range(len(trace.lines)) if trace.lines.names[row] == "Steps"]
        first, last = trace.lines.offsets[steps_line[0]], trace.lines.offsets[steps_line[0] + 1]
        self.device_steps = range(int(first), int(last))

    def name(self, event):
        return self.names[int(self.trace.events.name[event])]

    def lane(self, event):
        name = self.name(event)
        if self.on_device[event]:
            return DEVICE  # kernels and copies alike
        if name.startswith(WRAPPERS):
            return None
        if event in self.launches or name.startswith("ExecutorState::Process"):
            return LAUNCH
        return WAIT if name.lower().startswith("iteratorgetnext") else HOST

    def window(self, members, group):
        """The longest marker of the host, unless it does not hold the longest one of the device."""
        begin, end = self.trace.events.begin_ps, self.trace.events.end_ps
        hosts = [event for event in members if event in self.named and self.trace.is_host_event[event]]
        pieces = [event for event in self.device_steps if self.group[event] == group]
        host, device = (max(found, key=lambda e: end[e] - begin[e]) for found in (hosts, pieces))
        holds = begin[host] <= begin[device] and end[device] <= end[host]
        chosen = host if holds else device
        return begin[chosen], end[chosen]

    def step(self, group):
        members = np.flatnonzero((self.group == group) & (self.on_device | self.trace.is_host_event)).tolist()
        first, last = map(int, self.window(members, group))
        edges = []
        for event in members:
            lane = self.lane(event)
            begin = max(int(self.trace.events.begin_ps[event]), first)
            end = min(int(self.trace.events.end_ps[event]), last)
            if lane is not None and end > begin:
                edges += [(begin, 1, lane), (end, -1, lane)]
        totals, active, before = [0] * 5, [0] * 5, first
        for time, change, lane in sorted(edges):
            totals[max((row for row in range(5) if active[row]), default=UNKNOWN)] += time - before
            active[lane] += change
            before = time
        totals[UNKNOWN] += last - before
        return last - first, totals


@pytest.mark.parametrize("name", TRACES)
def test_official_rules_give_the_official_numbers(shared_traces, name):
    official = official_steps(shared_traces / name)
    rules = Rules(profnb.load(shared_traces / name / "host.xplane.pb").trace)
    assert len(official) == 21
    for step in official:
        duration, totals = rules.step(step.step_number)
        assert duration / 1e9 == pytest.approx(step.step_time_ms, abs=1e-9)
        assert [total / 1e9 for total in totals] == pytest.approx([getattr(step, f) for f in FIELDS], abs=1e-9)


@pytest.mark.parametrize("name", TRACES)
def test_steps_and_windows_are_the_official_ones_but_for_the_two_without_a_marker(shared_traces, name):
    official = official_steps(shared_traces / name)
    steps = profnb.load(shared_traces / name / "host.xplane.pb").steps
    assert steps.duration_ms.tolist() == pytest.approx([step.step_time_ms for step in official[1:-1]], abs=1e-9)
    assert (steps.step_num.diff().dropna() == 1).all()


@pytest.mark.parametrize("name", TRACES)
def test_device_compute_is_the_official_one_less_what_only_copies_cover(shared_traces, name):
    official = official_steps(shared_traces / name)
    profile = profnb.load(shared_traces / name / "host.xplane.pb")
    trace, groups = profile.trace, profile.study.groups
    device = raw_device_lines(trace)[trace.lines.of_event]
    is_copy = trace.select_names(lambda text: text.startswith(("Memcpy", "Memset")))
    for row, step in enumerate(official[1:-1]):
        spans = sorted(
            (int(trace.events.begin_ps[event]), int(trace.events.end_ps[event]), bool(is_copy[event]))
            for event in np.flatnonzero(device & (groups.step == row))
        )
        covered, kernels = 0, 0
        for counted in (True, False):
            until = total = 0
            for begin, end, copies in spans:
                if counted or not copies:
                    total += max(end - max(begin, until), 0)
                    until = max(until, end)
            covered, kernels = (total, kernels) if counted else (covered, total)
        assert covered / 1e9 == pytest.approx(step.device_compute_ms, abs=1e-9)
        # A memset is compute here as there: it fills what a kernel will use, on the device.
        ours = profile.steps.device_compute_ms[row]
        assert kernels / 1e9 <= ours + 1e-9 <= step.device_compute_ms + 2e-9


def test_the_size_of_each_difference(shared_traces):
    """Means over the 19 steps that both count, in ms; (profnb, official)."""
    official = official_steps(shared_traces / "gpu-cnn-batch512")[1:-1]
    steps = profnb.load(shared_traces / "gpu-cnn-batch512" / "host.xplane.pb").steps
    means = {
        "duration": (steps.duration_ms.mean(), np.mean([s.step_time_ms for s in official])),
        "compute": (steps.device_compute_ms.mean(), np.mean([s.device_compute_ms for s in official])),
        "launch": (steps.kernel_launch_ms.mean(), np.mean([s.host_prepare_ms for s in official])),
        "gap": (steps.gap_ms.mean(), 0.0),
    }
    assert {name: tuple(round(float(v), 3) for v in pair) for name, pair in means.items()} == EXPECTED


EXPECTED = {
    "duration": (13.418, 13.418), "compute": (5.258, 6.559), "launch": (5.262, 4.623), "gap": (0.029, 0.0),
}  # fmt: skip
