"""Lines of a device to what they are: which hold its work, and which kind of work an event is.

A GPU's work is what its streams ran. A TPU core's is its line ``XLA Ops``: its other lines repeat that
work (``XLA Modules``), show what one op does inside (``Tensor Core``, ``XLA TraceMe``) or copies in flight
behind it (``Async XLA Ops``). Lines that a profiler derived from others are never work.
"""

import re

from profnb.core.columns import Bools
from profnb.trace.model import Trace
from profnb.trace.names import DERIVED_LINES, XLA_OPS_LINE, copy_direction, is_collective

__all__ = ["COLLECTIVE", "COMPUTE", "COPY", "kind_of_work", "raw_device_lines"]

COMPUTE, COPY, COLLECTIVE = range(3)
_HLO_COLLECTIVE = re.compile(
    r"%?(all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-[a-z]+)\b"
)


def raw_device_lines(trace: Trace) -> Bools:
    """Which lines hold the work of a device, each piece of it once; shape (L,)."""
    derived = trace.lines.names.rows_where(lambda name: name in DERIVED_LINES)
    if trace.lines.is_copy is not None:
        derived |= trace.lines.is_copy
    raw = trace.is_device_line & ~derived
    for plane in trace.planes:
        if plane.is_device and "TPU" in plane.name:
            ops = [row for row in plane.lines if trace.lines.names[row] == XLA_OPS_LINE]
            if ops:
                raw[plane.lines.start : plane.lines.stop] = False
                raw[ops] = True
    return raw


def kind_of_work(name: str) -> int:
    """Whether work of this name computes, copies (or sets) memory, or exchanges it with other devices."""
    if copy_direction(name) is not None:
        return COPY
    return COLLECTIVE if is_collective(name) or _HLO_COLLECTIVE.match(name) else COMPUTE
