"""Kernel launches: which device work each set going, by correlation id."""

import numpy as np

from profnb.core.columns import Int64s
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID

__all__ = ["find_launches"]


def find_launches(trace: Trace) -> tuple[Int64s, Int64s]:
    """Pairs of a host event and the device event that it set going.

    The two carry the same ``correlation_id``. Where several host events carry it (an op around the
    driver's call, say) the last to begin is the launch.

    Returns:
        The launches and the device events, both indices of events, each of shape (N,), ordered by
        device event. Device work whose launch was not recorded is not among them.
    """
    column = trace.stats.integers(CORRELATION_ID)
    events, ids = column.events, column.values.astype(np.int64)
    on_device = trace.is_device_line[trace.lines.of_event[events]]
    on_host = trace.is_host_event[events]
    order = np.lexsort((trace.events.begin_ps[events[on_host]], ids[on_host]))
    host, host_ids = events[on_host][order], ids[on_host][order]
    device, device_ids = events[on_device], ids[on_device]
    at = np.searchsorted(host_ids, device_ids, side="right") - 1
    known = at >= 0
    known[known] = host_ids[at[known]] == device_ids[known]
    return host[at[known]], device[known]
