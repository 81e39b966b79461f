"""A trace and what was found in it to the Chrome trace that shows both.

One of TF1's session runs becomes the ``timeline.json`` that TensorFlow's own ``Timeline`` writes, with the
same events: each node once per device string, named by its op type, with name, op and inputs as args, in
whole microseconds of the epoch. The runs are marked besides, in a process of their own. Timeline's flow
arrows and its thread numbers, which it deals out anew, are not events and differ; and a kernel labelled
``name:Op regs:...`` has its op here, where Timeline says "unknown".

Source: Timeline._show_compute and _emit_op in tensorflow/python/client/timeline.py (2.21).
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from profnb import __version__
from profnb.steps.streams import find_launches
from profnb.steps.windows import Steps
from profnb.subjects.input.pipeline import find_buffers
from profnb.subjects.memory.allocators import find_allocators, sample_memory
from profnb.tf1.nodes import GraphStats
from profnb.trace.chrome.writer import Additions, open_text, write_chrome
from profnb.trace.model import Trace
from profnb.trace.names import GRAPH_RUNS, ROOT_LEVEL, STEP_NUM

_EVENTS_AT_ONCE = 10_000


def export_chrome(trace: Trace, steps: Steps, target: Path) -> None:
    """Write a trace as a Chrome trace, with launches, steps and sampled quantities.

    Args:
        trace: The trace.
        steps: Its steps; the begin of each is marked.
        target: The file; compressed if its name ends with ``.gz``.

    Raises:
        OSError: The file cannot be written.
    """
    if isinstance(trace.stats, GraphStats):
        _write_graph_timeline(trace, target)
        return
    launches, kernels = find_launches(trace)
    shown = slice(0, 0) if steps.is_window else slice(None)
    line = 0 if len(steps) and not steps.is_window else -1
    if line == 0 and steps.roots.size:
        line = int(np.bincount(trace.lines.of_event[steps.roots]).argmax())
    names = zip(steps.phase[shown], steps.step_num[shown], strict=True)
    labels = [f"{phase} {number}" for phase, number in names]
    additions = Additions(
        launches=launches,
        kernels=kernels,
        step_begin_ps=steps.begin_ps[shown],
        step_labels=labels,
        step_line=line,
        counters=[*sample_memory(trace, find_allocators(trace)), *find_buffers(trace)],
    )
    write_chrome(trace, target, additions, __version__)


def _write_graph_timeline(trace: Trace, target: Path) -> None:
    with open_text(target) as file:
        file.write(b'{"traceEvents":[\n')
        texts = (json.dumps(event).replace("<", "\\u003c") for event in _graph_events(trace))
        between = ""
        while piece := ",\n".join(islice(texts, _EVENTS_AT_ONCE)):
            file.write(trace.sharing.encoded(f"{between}{piece}".encode()))
            between = ",\n"
        file.write(b"\n]}\n")


def _graph_events(trace: Trace) -> Iterator[dict[str, object]]:
    devices = []  # the device string that each line came from
    for line in range(len(trace.lines)):
        plane = trace.planes[trace.lines.plane[line]]
        stream = trace.lines.names[line].partition(" #")[0]
        devices.append(f"{plane.name}/{stream}" if plane.is_device else plane.name)
    pids = {device: pid for pid, device in enumerate(dict.fromkeys(devices), start=1)}
    for device, pid in pids.items():
        process = device if device == GRAPH_RUNS else f"{device} Compute"
        yield {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": process}}
    for line, device in enumerate(devices):
        for event in range(*trace.lines.offsets[line : line + 2].tolist()):
            stats = trace.stats.of_event(event)
            if device == GRAPH_RUNS:  # a run has no group here, as its nodes have none
                name = trace.names[int(trace.events.name[event])]
                args = {key: stats[key] for key in (STEP_NUM, ROOT_LEVEL)}
            else:
                name = str(stats.get("op", ""))
                args = {
                    key: value
                    for key, value in stats.items()
                    if key in ("name", "op") or (key.startswith("input") and key[5:].isdecimal())
                }
            begin_ns = trace.epoch_ns + int(trace.events.begin_ps[event]) // 1000
            end_ns = begin_ns + int(trace.events.duration_ps[event]) // 1000
            yield {
                "ph": "X", "cat": "Op", "name": name, "pid": pids[device],
                "tid": int(trace.lines.ids[line]), "ts": begin_ns // 1000,
                "dur": end_ns // 1000 - begin_ns // 1000, "args": args,
            }  # fmt: skip
