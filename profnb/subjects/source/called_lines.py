"""Ops of PyTorch to source lines: Python calls each, so the line that was running then is theirs.

- an op, and the device work that it launched: the line at which the thread was that called it, as the capture
  followed it, or as the stack in the trace tells it (``stack_lines``);
- a backward op: the line of the forward op that made its node of autograd; the line that asked for the
  gradients (``loss.backward()``) is known besides. What the user's own code runs in a node stays with it;
- where Keras' ``fit`` runs layers, with no line of the user's in between: the line that made the layer;
- an op of a thread that was not watched, outside of every node: none.
"""

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.steps.nesting import find_parents, nearest_of
from profnb.subjects.ops.autograd_nodes import find_makers, find_nodes, on_hosts
from profnb.subjects.source.code_times import LineHistory
from profnb.subjects.source.op_work import Work
from profnb.subjects.source.stack_lines import StackLines
from profnb.trace.model import Trace
from profnb.trace.names import KINETO_SCOPE, STEP_NUM

_NONE = 0


class CalledRows:
    """Finds the row of each op's source line.

    Args:
        trace: The trace.
        places: Rows by (file, line), that of none first; grows.
        layers: The place that made a layer, by its name.
        source_lines: Where the user's code was: as it was followed, with the trace's line of that thread;
            or stacks.
    """

    def __init__(
        self,
        trace: Trace,
        places: dict[tuple[str, int], int],
        layers: dict[str, tuple[str, int]],
        source_lines: tuple[LineHistory, int] | StackLines,
    ) -> None:
        """Find what is around each event."""
        self._trace, self._source_lines = trace, source_lines
        line_places = (
            source_lines.places if isinstance(source_lines, StackLines) else source_lines[0].places
        )
        rows = [places.setdefault(place, len(places)) for place in line_places]
        self._row_of = np.array([*rows, _NONE], np.int64)
        parent = find_parents(trace.events.end_ps, trace.lines.offsets)
        is_node = find_nodes(trace)
        is_scope = on_hosts(trace, lambda name: name.startswith(KINETO_SCOPE))
        self._scope = nearest_of(parent, is_scope)
        around = nearest_of(parent, is_node | is_scope)
        self._in_node: Bools = (around >= 0) & is_node[around]
        self._node = np.where(self._in_node, around, -1)
        nodes = np.flatnonzero(is_node)
        self._maker = np.full(len(trace.events), -1, np.int64)
        self._maker[nodes] = find_makers(trace, nodes, self._in_node)
        is_step = np.zeros(len(trace.events), np.bool_)
        is_step[trace.stats.integers(STEP_NUM).events] = True
        self._step = nearest_of(parent, is_step & trace.is_host_event)
        self._layer_of_name = np.full(len(trace.names), _NONE, np.int64)
        for row in np.unique(trace.events.name[is_scope]).tolist():
            parts = trace.names[row].removeprefix(KINETO_SCOPE).split("/")
            made = next((layers[part] for part in reversed(parts) if part in layers), None)
            if made is not None:
                self._layer_of_name[row] = places.setdefault(made, len(places))

    def charge(self, work: Work) -> tuple[Int64s, Int64s, Bools]:
        """Per op: the row of its line, the row that asked for the gradient (else -1), whether it is one."""
        asked = work.asked
        op_line = self._running(asked, is_any_thread=False)
        is_backward = self._in_node[asked]
        node = self._node[asked]
        maker = np.where(node >= 0, self._maker[node], -1)
        forward = np.where(maker >= 0, self._line_of(maker), _NONE)
        tape = np.where(node >= 0, self._running(node, is_any_thread=True), _NONE)
        at_node = np.where(node >= 0, self._running(node, is_any_thread=False), _NONE)
        is_own_code = (op_line != _NONE) & (op_line != at_node)
        caused = np.where(is_own_code, op_line, np.where(forward != _NONE, forward, tape))
        row = np.where(is_backward, caused, self._line_of(asked))
        has_tape = is_backward & (tape != _NONE) & (tape != row)
        return row, np.where(has_tape, tape, -1), is_backward

    def _running(self, events: Int64s, *, is_any_thread: bool) -> Int64s:
        """The row of the line at which the user's code was as each event began (-1 is any of them)."""
        if isinstance(self._source_lines, StackLines):
            return self._row_of[self._source_lines.place[events]]
        history, thread_line = self._source_lines
        rows = self._row_of[history.place_at(self._trace.events.begin_ps[events])]
        is_here = self._trace.lines.of_event[events] == thread_line
        return rows if is_any_thread else np.where(is_here, rows, _NONE)

    def _line_of(self, events: Int64s) -> Int64s:
        """The row of each forward event's line: that of its layer, where the user only called the whole."""
        row = self._running(events, is_any_thread=False)
        scope, step = self._scope[events], self._step[events]
        layer = self._layer_of_name[self._trace.events.name[scope]]
        layer = np.where(scope >= 0, layer, _NONE)
        begun_at = np.where(step >= 0, self._running(step, is_any_thread=False), -1)
        is_outside = (row == _NONE) | (row == begun_at)
        return np.where((layer != _NONE) & is_outside, layer, row)
