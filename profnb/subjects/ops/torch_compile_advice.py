"""Rules of advice on ``torch.compile``: functions compiled again and again, or cut into pieces.

What it compiled runs in events ``Torch-Compiled Region: 2/1``: the third function that it came across, in its
second version. A graph break ends a function's piece, and calls the rest, a function of its own, from inside
of it, so regions inside of regions are pieces; functions compiled one by one follow each other.

Source: PyTorch's torch/csrc/dynamo/eval_frame.c and torch/_dynamo/eval_frame.py (2.15).
"""

import re
from collections import Counter

import numpy as np

from profnb.core.columns import Int64s
from profnb.core.units import count_text, duration_text, percent_text
from profnb.steps.compilation import FRAME_COMPILES, is_compilation
from profnb.steps.nesting import outermost_of
from profnb.subjects.advising import LEAST, Finding, excess_share, share_of, window_of
from profnb.subjects.covered_time import in_periods, share_beyond, spans_of
from profnb.subjects.study import Study
from profnb.trace.framework import PYTORCH

__all__ = ["graph_breaks", "recompiling_in_torch"]

_REGION = re.compile(r"Torch-Compiled Region: (\d{1,6})/(\d{1,6})")
_FEWEST, _LIMITING, _LEAST = 2, 0.75, 0.05
_DOCS = "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"


def recompiling_in_torch(study: Study) -> Finding | None:
    """``torch.compile`` compiled further versions of functions, twice or more, for 2 % of the time at least.

    The first version of a function is its due, and so is the second where shapes change: that is compiled for
    any of them, so one further version is no cause to speak.
    """
    window, trace = window_of(study), study.trace
    if study.framework != PYTORCH or not window or study.steps.is_window:
        return None
    compiles = trace.select_names(lambda name: name.endswith(FRAME_COMPILES))
    compiling = outermost_of(compiles & trace.is_host_event, study.groups.parent)
    regions, function, version = _regions(study)
    if not regions.size or not compiling.size:
        return None
    order = np.argsort(trace.events.begin_ps[regions], kind="stable")
    regions, function, version = regions[order], function[order], version[order]
    ends = trace.events.end_ps[compiling]
    runs = np.searchsorted(trace.events.begin_ps[regions], ends)  # what was compiled runs next
    is_known = runs < regions.size
    runs = np.minimum(runs, regions.size - 1)
    again = is_known & (version[runs] > 0)
    spent = int(trace.events.duration_ps[compiling[again]].sum())
    if again.sum() < _FEWEST or spent / window < LEAST:
        return None
    most = Counter(function[runs[again]].tolist()).most_common(1)[0][0]
    versions = int(version[function == most].max()) + 1
    return Finding(
        "recompiling", "Compile once",
        f"torch.compile compiled functions again {count_text(int(again.sum()))} times, "
        f"{duration_text(spent)} in all; one of them has {count_text(versions)} versions by now. Each is for "
        "other shapes, or other Python values: which, the trace does not hold.",
        min(max(spent / window, excess_share(study, compiling)), 1.0),
        "TORCH_LOGS=recompiles prints what changed. Of shapes: torch.compile(..., dynamic=True), or one "
        "shape for every batch (DataLoader(..., drop_last=True)). Of Python numbers: pass them as tensors.",
        _DOCS,
    )  # fmt: skip


def graph_breaks(study: Study) -> Finding | None:
    """A compiled function is cut into pieces in the steps, and between these a twentieth of the time passes.

    Not where a device limits, which has enough to do meanwhile. What fusing over the breaks saves is not
    known, so nothing bounds it.
    """
    counted, trace = study.summary.counted, study.trace
    if study.framework != PYTORCH or not counted.size or study.steps.is_window:
        return None
    if study.has_device and share_of(study, "device compute") >= _LIMITING:
        return None
    regions, _, _ = _regions(study)
    regions = regions[in_periods(study, trace.events.begin_ps[regions])]
    if not regions.size:
        return None
    is_region = np.zeros(len(trace.events), np.bool_)
    is_region[regions] = True
    outer = outermost_of(is_region, study.groups.parent)
    each = (regions.size - outer.size) / counted.size
    if each < 1 or trace.is_op_name is None:
        return None
    is_op = trace.is_op_name[trace.events.name] & trace.is_host_event & ~is_region
    is_op &= ~trace.select_names(is_compilation)
    is_op[study.steps.roots] = False
    ops = np.flatnonzero(is_op)
    share = share_beyond(study, spans_of(study, outer), spans_of(study, ops))
    if share < _LEAST:
        return None
    return Finding(
        "graph-breaks", "Compile the step in one piece",
        f"What torch.compile made is cut into pieces: {count_text(round(each))} graph breaks a step. Between "
        f"the pieces Python goes on, {percent_text(share)} of the time, and nothing is fused across.",
        None,
        "TORCH_LOGS=graph_breaks prints where and why; torch.compile(..., fullgraph=True) raises there. "
        "Common reasons: .item(), print and an if on a tensor's value in the compiled function.",
        _DOCS,
        share,
    )  # fmt: skip


def _regions(study: Study) -> tuple[Int64s, Int64s, Int64s]:
    """The events that run what was compiled, which function each is of, and which version, from 0."""
    trace = study.trace
    region_of_name = {
        row: (int(match[1]), int(match[2]))
        for row, name in enumerate(trace.names.texts)
        if (match := _REGION.fullmatch(name))
    }
    number = np.full((len(trace.names), 2), -1, np.int64)
    for row, pair in region_of_name.items():
        number[row] = pair
    events = np.flatnonzero((number[trace.events.name, 0] >= 0) & trace.is_host_event)
    rows = trace.events.name[events]
    return events, number[rows, 0], number[rows, 1]
