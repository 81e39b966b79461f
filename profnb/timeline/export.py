"""A trace and what was found in it to the Chrome trace that shows both."""

from pathlib import Path

import numpy as np

from profnb.steps.launching import find_launches
from profnb.steps.windows import Steps
from profnb.subjects.input.pipeline import find_buffers
from profnb.subjects.memory.allocators import find_allocators, sample_memory
from profnb.tf1.graph_timeline import is_graph_run, write_graph_timeline
from profnb.trace.chrome.writer import Additions, write_chrome
from profnb.trace.model import Trace


def export_chrome(trace: Trace, steps: Steps, target: Path, version: str) -> None:
    """Write a trace as a Chrome trace, with launches, steps and sampled quantities.

    A trace of TF1 session runs becomes what TF1's own ``Timeline`` writes.

    Args:
        trace: The trace.
        steps: Its steps; the begin of each is marked.
        target: The file; compressed if its name ends with ``.gz``.
        version: Ours, for the file's own record.

    Raises:
        OSError: The file cannot be written.
    """
    if is_graph_run(trace):
        write_graph_timeline(trace, target)
        return
    launches, kernels = find_launches(trace)
    shown = not steps.is_window and len(steps) > 0
    line = -1
    if shown:
        root_lines = trace.lines.of_event[steps.roots]
        line = int(np.bincount(root_lines).argmax()) if root_lines.size else 0
    labels = [
        f"{phase} {number}" for phase, number in zip(steps.phase, steps.step_num, strict=True)
    ]
    additions = Additions(
        launches=launches,
        kernels=kernels,
        step_begin_ps=steps.begin_ps if shown else steps.begin_ps[:0],
        step_labels=labels if shown else (),
        step_line=line,
        counters=[*sample_memory(trace, find_allocators(trace)), *find_buffers(trace)],
    )
    write_chrome(trace, target, additions, version)
