"""Device work to the framework op that asked for it.

Where to look depends on who recorded the trace, in this order:

1. the program that XLA saved, for an HLO instruction (``hlo_ops``);
2. ``tf_op``: the op of a TensorFlow kernel (newer traces);
3. ``name``: the op a fusion's root came from, else ``hlo_op``, where that program is not saved;
4. ``level 0`` or ``annotation``: the op around the launch, ``name:Type#more`` (TensorFlow 2.2 to 2.4);
5. the innermost op around its launch, where the recorder marks ops as such (PyTorch);
6. the work's own name (TF1), which may be an op's.

The official tool reads only the second, and finds no op in a trace that has only the fourth.

Source: openxla/xla xla/tsl/profiler/utils/xplane_schema.cc and cupti_collector.cc (5a3e9fa3).
"""

from dataclasses import dataclass

import numpy as np

from profnb.core.columns import Int64s, look_up
from profnb.steps.nesting import find_parents, nearest_of
from profnb.steps.streams import find_launches
from profnb.subjects.xla.hlo_ops import HloOps
from profnb.trace.model import Trace
from profnb.trace.names import TF_OP, parse_op

_XLA_MODULE = "XlaModule"
_HLO_SOURCES = ("hlo_op", "name")  # the later one wins
_ANNOTATIONS = ("annotation", "level 0")


@dataclass(frozen=True, slots=True)
class DeviceOps:
    """The op of each event of interest.

    Attributes:
        keys: Distinct (op name, op type); the type is "" where the trace does not say.
        code: Row of ``keys`` for each of the N events, shape (N,).
    """

    keys: tuple[tuple[str, str], ...]
    code: Int64s


def name_device_work(trace: Trace, events: Int64s, hlo: HloOps | None = None) -> DeviceOps:
    """Find the op of device events.

    Args:
        trace: The trace.
        events: Indices of N device events, ascending.
        hlo: Its HLO instructions, if they were looked for.
    """
    codes: dict[tuple[str, str], int] = {}
    names, inverse = np.unique(trace.events.name[events], return_inverse=True)
    texts = [trace.names[row] for row in names]
    name_codes = [codes.setdefault(parse_op(text) or (text, ""), len(codes)) for text in texts]
    code = np.array(name_codes, np.int64)[inverse] if events.size else np.empty(0, np.int64)
    around = _ops_around_launches(trace, events)
    if (around >= 0).any():
        ops, inverse = np.unique(trace.events.name[around], return_inverse=True)
        op_codes = [codes.setdefault((trace.names[row], ""), len(codes)) for row in ops.tolist()]
        code = np.where(around >= 0, np.array(op_codes, np.int64)[inverse], code)
    for stat in (*_ANNOTATIONS, *_HLO_SOURCES, TF_OP):
        column = trace.stats.texts(stat)
        if not len(column):
            continue
        rows = [_key_of(text, stat) for text in column.texts]
        numbers = np.array(
            [-1 if key is None else codes.setdefault(key, len(codes)) for key in rows], np.int64
        )
        event_codes = look_up(column.events, numbers[column.values], events)
        code = np.where(event_codes >= 0, event_codes, code)
    if hlo is not None and len(hlo):
        own_rows = hlo.codes_of(events)
        numbers = np.array(
            [codes.setdefault(op.key, len(codes)) if op.name else -1 for op in hlo.ops], np.int64
        )
        event_codes = np.where(own_rows >= 0, numbers[own_rows], -1)
        code = np.where(event_codes >= 0, event_codes, code)
    return DeviceOps(tuple(codes), code)


def _ops_around_launches(trace: Trace, events: Int64s) -> Int64s:
    """The innermost op in which each device event was launched, as event; -1 where none is marked as one."""
    if trace.is_op_name is None:
        return np.full(events.size, -1, np.int64)
    launches, launched = find_launches(trace)
    call = look_up(launched, launches, events)
    parent = find_parents(trace.events.end_ps, trace.lines.offsets)
    op = nearest_of(parent, trace.by_name(trace.is_op_name) & trace.is_host_event)
    return np.where(call >= 0, op[call], -1)


def _key_of(text: str, stat: str) -> tuple[str, str] | None:
    """The op that a stat's text tells, or None."""
    if stat == TF_OP:
        return None if not text or text.startswith(_XLA_MODULE) else parse_op(text) or (text, "")
    if stat in _ANNOTATIONS:
        text = text.partition("#")[0]
        return (parse_op(text) or (text, "")) if text else None
    scope, _, primitive = text.rpartition("/")
    return (text, primitive if scope else "") if text else None
