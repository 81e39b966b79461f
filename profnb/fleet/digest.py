"""One host's part of a capture, small enough to travel: what the fleet needs of a trace, not its events.

A digest has the times of the collectives and of the steps, what the host did between them, and the ops and
lines that took most of its steps.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.core.printable import printable
from profnb.core.units import counted_text
from profnb.fleet.collectives import HostCollectives, find_collectives, has_pairs
from profnb.fleet.own_work import Doings, find_doings
from profnb.steps.activities import COLLECTIVES, EXCHANGING
from profnb.subjects.advising import line_text
from profnb.subjects.study import Study
from profnb.trace.names import is_host_collective
from profnb.trace.runs import CaptureTime

_MOST_OPS = 60
_FIRST_PORT = 1024  # that a process may open without being root


@dataclass(frozen=True, slots=True)
class Digest:
    """What a fleet knows of one host.

    Attributes:
        host: What it is called in the run.
        rank: Its number in the job; -1 where nothing tells.
        path: Its trace; "" for one that is no file.
        time: When it was captured, by its own clock.
        step_begin_ps: Begins of S steps since the trace began, shape (S,).
        step_num: Their numbers, shape (S,).
        is_warmup: Which are no steady steps, shape (S,).
        collectives: What it exchanged with others.
        doings: What it did between them.
        op_ps: Self time of a mean step by op, most first, ops at the end of the list left out.
        line_ps: Time of a mean step by line of the user's code, likewise; empty where nobody looked.
        framework: Whose trace it is.
        has_device: Whether anything ran on a device.
        has_transfers: Whether it sent values to other hosts, or received them, outside of collectives.
        is_device: Whether it is no host, but one of several devices of a process: these have one clock.
        ranks: How many the job has; 0 where nothing tells.
        copied_in_ps: Of such a device, time of copies from the host of a mean step.
    """

    host: str
    rank: int
    path: str
    time: CaptureTime
    step_begin_ps: Int64s
    step_num: Int64s
    is_warmup: Bools
    collectives: HostCollectives
    doings: Doings
    op_ps: dict[str, float]
    line_ps: dict[str, float]
    framework: str
    has_device: bool
    has_transfers: bool
    is_device: bool = False
    ranks: int = 0
    copied_in_ps: float = 0.0


def noun_of(digests: Sequence[Digest]) -> str:
    """What one of a fleet is called: "host", or "device" where all are of one process."""
    return "device" if digests and all(one.is_device for one in digests) else "host"


def count_of(digests: Sequence[Digest]) -> str:
    """How many there are, with the noun: "3 hosts", "1 host"."""
    return counted_text(len(digests), noun_of(digests))


def rank_of_name(host: str) -> int:
    """The rank in a name HOST_RANK, as captures of profnb's have it; -1 for none.

    TensorFlow's service, which ``serve`` starts, names files HOST_PORT: no rank is as large as a port.
    """
    number = host.rpartition("_")[2]
    is_rank = "_" in host and number.isdecimal() and len(number) < 7
    return int(number) if is_rank and int(number) < _FIRST_PORT else -1


def digest_study(
    study: Study, host: str, path: str | os.PathLike[str], time: CaptureTime
) -> Digest:
    """A host's part.

    Args:
        study: Its analyses.
        host: What it is called in the run.
        path: Its trace.
        time: When it was captured.
    """
    ops = study.ops.of_steps(study.summary.counted)
    steps = max(int(study.summary.counted.size), 1)
    of_side = ops.is_device == study.has_device
    spent: dict[
        str, float
    ] = {}  # names of ops stand in sentences, so nothing in them commands a terminal
    has_transfers = has_pairs(study.trace)
    exchanged = find_collectives(study)
    edges = np.concatenate([exchanged.enter_ps, exchanged.leave_ps])
    for row in of_side.nonzero()[0].tolist():
        name, op_type = ops.op_name[row], ops.op_type[row]
        has_transfers |= op_type in ("_Recv", "_Send", "RecvTensor")
        if not is_host_collective(f"{name}:{op_type}") and len(spent) < _MOST_OPS:
            name = printable(name)
            spent[name] = spent.get(name, 0.0) + float(ops.self_ps[row]) / steps
    return Digest(
        host=printable(host),
        rank=study.trace.rank if study.trace.rank >= 0 else rank_of_name(host),
        path=str(Path(path)) if os.fspath(path) else "",
        time=time,
        step_begin_ps=study.steps.begin_ps,
        step_num=study.steps.step_num,
        is_warmup=study.steps.is_warmup,
        collectives=exchanged,
        doings=find_doings(study, edges),
        op_ps=spent,
        line_ps=_lines_of(study, steps),
        framework=study.framework,
        has_device=study.has_device,
        has_transfers=has_transfers,
        ranks=study.trace.ranks,
    )


def _lines_of(study: Study, steps: int) -> dict[str, float]:
    """Time of a mean step at each line of the user's code, as far as the capture looked; most first.

    Collectives are left out: a line that all exchange in is longest where the others are waited for.
    """
    lines = study.source.lines_without(np.isin(study.activities, (COLLECTIVES, EXCHANGING)))
    if lines is None:
        return {}
    spent = (lines.host_ps + lines.device_ps + np.maximum(lines.python_ps, 0)) / steps
    return {
        line_text(study, lines.file[row], int(lines.line[row])): float(spent[row])
        for row in np.argsort(-spent, kind="stable")[:_MOST_OPS].tolist()
        if lines.file[row]
    }
