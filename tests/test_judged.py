"""Real traces, read by a person: what the first line and the advice must say and must not, and the fact that decides.

Each row names a fact of the raw events, worked out here by a query of a few lines that uses none of profnb's analyses,
only its columns. Traces stand in ../shared/traces; without them these tests skip.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest

import profnb


class Raw:
    """A trace's events, and questions about them in plain NumPy."""

    def __init__(self, trace):
        self.names = np.array(trace.names.texts, object)[trace.events.name]
        self.begin, self.end = trace.events.begin_ps, trace.events.end_ps
        self.line = np.array([trace.lines.names[row] for row in range(len(trace.lines))], object)[trace.lines.of_event]
        self.plane = np.array([plane.name for plane in trace.planes], object)[trace.lines.plane[trace.lines.of_event]]
        self.on_device = np.array([plane.is_device for plane in trace.planes])[trace.lines.plane[trace.lines.of_event]]
        self.trace = trace

    def named(self, *parts):
        return np.array([any(part in name for part in parts) for name in self.names])

    def covered(self, chosen):
        """Picoseconds that the chosen events cover together."""
        order = np.argsort(self.begin[chosen], kind="stable")
        begin, end = self.begin[chosen][order], np.maximum.accumulate(self.end[chosen][order])
        return int(np.maximum(end - np.maximum(begin, np.append(begin[:1], end[:-1])), 0).sum())

    def busiest(self):
        """The device plane with most work on its streams, and its events there."""
        derived = ("Steps", "TensorFlow", "XLA M", "Framework")
        streams = self.on_device & np.array([not name.startswith(derived) and not name.endswith(("annotations", "waits")) for name in self.line])
        planes = {plane: self.covered(streams & (self.plane == plane)) for plane in set(self.plane[streams])}
        plane = max(planes, key=planes.get)
        return streams & (self.plane == plane)


def busy_share(raw, marker):
    """Share of the time from the first marker's begin to the end of the device's work that the busiest device is busy."""
    steps = raw.named(marker) & ~raw.on_device
    work = raw.busiest() & (raw.begin >= raw.begin[steps].min())
    return raw.covered(work) / (max(raw.end[work].max(), raw.end[steps].max()) - raw.begin[steps].min())


@dataclass
class Judged:
    path: str
    says: tuple = ()
    never: tuple = ()
    advice: tuple = ()
    forbidden: tuple = ()
    fact: object = None
    notes_never: tuple = field(default=())


IDLE_CNN = {"never": ("host compute", "Python"), "forbidden": ("mixed-precision", "unused-gpu", "imbalance")}
ROWS = [
    Judged("judged/kineto-mi300-resnet-checkpointing.json.gz", ("device collectives",), ("host compute", "Python"), (), ("python-between-steps", "idle-device"),
           lambda raw: busy_share(raw, "ProfilerStep#") > 0.9),
    Judged("judged/kineto-mi210-kernels-only.json.gz", ("device compute",), ("host compute",), (), ("unused-gpu",),
           lambda raw: raw.on_device.sum() >= 562, ("tensorflow[and-cuda]", "no device")),
    Judged("judged/kineto-mi300-timesformer.json.gz", ("all others", "Python"), ("host compute",), ("idle-device",), ("mixed-precision",),
           lambda raw: raw.named("zoom", "normalize", "image_transforms").sum() > 0),
    Judged("judged/kineto-sglang-decode.json.gz", ("output",), ("kernel launch",), (), ("launch-bound",),
           lambda raw: (raw.end - raw.begin)[raw.named("hipMemcpyWithStream")].max() > 460e9),
    Judged("judged/kineto-h100-vit.json.gz", ("kernel launch",), ("host compute",), ("idle-device",), (), lambda raw: busy_share(raw, "ProfilerStep#") < 0.25),
    Judged("judged/tf-trains-on-the-cpu-fp32.xplane.pb", ("There is a GPU, and this training does not use it",), (), ("unused-gpu",), ("larger-batch",),
           lambda raw: not raw.on_device.any() and not len(raw.trace.stats.integers("correlation_id")), ("CUPTI",)),
    Judged("gpu-plane-empty/host.xplane.pb", ("There is a GPU, and this training does not use it",), (), ("unused-gpu",), ("larger-batch",),
           lambda raw: not raw.on_device.any() and not len(raw.trace.stats.integers("correlation_id")), ("CUPTI",)),
    Judged("judged/tf1-gpu-one-run.json", ("kernel launch",), ("host compute", "median"), ("idle-device",), (),
           lambda raw: raw.covered(raw.busiest()) < 0.02 * (raw.end.max() - raw.begin.min())),
    Judged("judged/tf1-tfrecords-input.json", ("input, 31.9 %",), ("median",), ("waiting-for-input",), (),
           lambda raw: 0.25 < raw.covered(raw.named("IteratorGetNext") & ~raw.on_device) / (raw.end.max() - raw.begin.min()) < 0.4),
    Judged("judged/jax-mi300-conv.xplane.pb", ("output", "one step of"), ("host compute", "between steps"), ("synchronising-reads",), ("mixed-precision",),
           lambda raw: raw.covered(raw.busiest()) < 0.1 * (raw.end.max() - raw.begin.min()), ("tf.data", "Keras")),
    Judged("kineto/changed.json.gz", ("device compute",), ("host compute",), (), ("idle-device", "python-between-steps"), lambda raw: busy_share(raw, "ProfilerStep#") > 0.9),
    Judged("kineto/resnet50.pt.trace.json.gz", ("device compute",), ("host compute",), ("waiting-for-input",), ("launch-bound",), lambda raw: 0.3 < busy_share(raw, "ProfilerStep#") < 0.8),
    Judged("tpu-v6e/inference_2.xplane.pb", ("input", "/device:TPU:"), ("host compute", "device compute"), ("copying-input",), ("imbalance",), None),
    Judged("gpu-v100x8-bert/host0.xplane.pb", ("/device:GPU:", "nothing that could explain it was recorded"), ("Python",), ("idle-device",), ("imbalance",), None),
    Judged("gpu-cnn-batch512/host.xplane.pb", ("kernel launch",), ("host compute",), ("gpu-thread-mode", "copying-input"), ("mixed-precision", "imbalance"),
           lambda raw: raw.covered(raw.named("MemcpyH2D")) > 0.1 * (raw.end.max() - raw.begin.min())),
    *(Judged(f"gpu-cnn-pairs/batch32-fp32-global-{run}.xplane.pb", ("kernel launch",), advice=("gpu-thread-mode", "launch-bound"), fact=lambda raw: busy_share(raw, "train") < 0.3, **IDLE_CNN) for run in "ab"),
    *(Judged(f"gpu-cnn-pairs/batch32-fp32-private-{run}.xplane.pb", ("kernel launch",), never=IDLE_CNN["never"], forbidden=(*IDLE_CNN["forbidden"], "gpu-thread-mode"),
             advice=("launch-bound",), fact=lambda raw: busy_share(raw, "train") < 0.3) for run in "ab"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.path)
def test_the_first_line_and_the_advice_are_those_that_the_raw_events_bear_out(shared_traces, row):
    profile = profnb.load(shared_traces / row.path)
    first = profile.summary().split("\n", 1)[0]
    assert row.fact is None or row.fact(Raw(profile.trace))
    assert [text for text in row.says if text not in first] == [], first
    assert [text for text in row.never if text in first] == [], first
    rules = {advice.rule for advice in profile.advice}
    assert set(row.advice) <= rules
    assert not set(row.forbidden) & rules
    assert not [note for note in profile.notes if any(text in note for text in row.notes_never)]


# Median step times of runs of one program on one GPU that differ in one thing, batch 32 (see the README of the traces).
RECORDED_MS = {"fp32-global": 4.11, "fp32-private": 3.42, "mixed-global": 7.04, "mixed-private": 4.86}


def test_no_bound_is_exceeded_by_what_a_recorded_change_really_saved(shared_traces):
    """Private threads saved 17 and 31 %; mixed precision saved nothing, and is not advised."""
    for precision in ("fp32", "mixed"):
        before, after = RECORDED_MS[f"{precision}-global"], RECORDED_MS[f"{precision}-private"]
        [path] = sorted((shared_traces / "gpu-cnn-pairs").glob(f"batch32-{precision}-global*"))[:1]
        found = {advice.rule: advice.bound_fraction for advice in profnb.load(path).advice}
        assert found["gpu-thread-mode"] is None or found["gpu-thread-mode"] >= 1 - after / before
        assert "mixed-precision" not in found
