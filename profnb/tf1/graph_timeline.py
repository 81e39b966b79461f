"""A trace of TF1 session runs to ``timeline.json``, as TensorFlow's own ``Timeline`` writes it.

The same events: each node once per device string, named by its op type, with name, op and inputs as args,
in whole microseconds of the epoch. The runs are marked besides, in a process of their own. Timeline's flow
arrows and its thread numbers, which it deals out anew, are not events and differ; and a kernel labelled
``name:Op regs:...`` has its op here, where Timeline says "unknown".

Source: Timeline._show_compute and _emit_op in tensorflow/python/client/timeline.py (2.21).
"""

import json
from collections.abc import Iterator
from pathlib import Path

from profnb.tf1.node_stats import GraphStats
from profnb.trace.chrome.writer import open_text
from profnb.trace.model import Trace
from profnb.trace.names import GRAPH_RUNS, ROOT_LEVEL, STEP_NUM

_PIECE = 10_000


def is_graph_run(trace: Trace) -> bool:
    """Whether a trace was made from RunMetadata."""
    return isinstance(trace.stats, GraphStats)


def write_graph_timeline(trace: Trace, target: Path) -> None:
    """Write the ``timeline.json`` of a trace made from RunMetadata.

    Args:
        trace: The trace.
        target: The file; compressed if its name ends with ``.gz``.

    Raises:
        OSError: The file cannot be written.
    """
    with open_text(target) as file:
        file.write(b'{"traceEvents":[\n')
        piece: list[str] = []
        for number, event in enumerate(_events(trace)):
            piece.append((",\n" if number else "") + json.dumps(event).replace("<", "\\u003c"))
            if len(piece) == _PIECE:
                file.write(trace.sharing.encoded("".join(piece).encode()))
                piece.clear()
        file.write(trace.sharing.encoded("".join(piece).encode()) + b"\n]}\n")


def _device(trace: Trace, line: int) -> str:
    """The device string that a line came from."""
    plane = trace.planes[trace.lines.plane[line]]
    stream = trace.lines.names[line].partition(" #")[0]
    return f"{plane.name}/{stream}" if plane.is_device else plane.name


def _events(trace: Trace) -> Iterator[dict[str, object]]:
    devices = [_device(trace, line) for line in range(len(trace.lines))]
    pids = {device: pid for pid, device in enumerate(dict.fromkeys(devices), start=1)}
    for device, pid in pids.items():
        process = device if device == GRAPH_RUNS else f"{device} Compute"
        yield {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": process}}
    for line, device in enumerate(devices):
        for event in range(trace.lines.offsets[line], trace.lines.offsets[line + 1]):
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
