"""What the nodes of session runs say besides their times, as the stats of a trace's events."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profnb.core.columns import Int64s
from profnb.tf1.nodes import Nodes
from profnb.trace.model import StatColumn, Stats
from profnb.trace.names import GROUP_ID, ROOT_LEVEL, STEP_NUM, TF_OP

_OP_LABEL = re.compile(r"(.*) = (.*)\((.*)\)", re.DOTALL)
_OP_TOKEN = re.compile(r"([^\s:]+):([A-Za-z_]\w*)")
_UNKNOWN = "unknown"
_COMPOSED = ("memory", "output_shapes")
_RUN = -1  # the node of the event that stands for a whole run


@dataclass(frozen=True, slots=True)
class Label:
    """What a node's name and timeline label say.

    Attributes:
        event: The event's name: ``node:Op``, or what a device did where that is named apart.
        name: The node's name.
        op: Its op type; "unknown" where the label does not say, as in TensorFlow's ``Timeline``.
        inputs: The names of its inputs.
        details: On a device, what follows: registers, grid and block, or the copied bytes.
        is_device: Whether a device's stream or copy engine recorded it.
    """

    event: str
    name: str
    op: str
    inputs: tuple[str, ...] = ()
    details: str = ""
    is_device: bool = False

    @property
    def stats(self) -> dict[str, str]:
        """The text stats of an event with this label."""
        texts = {"name": self.name, "op": self.op}
        texts.update((f"input{index}", text) for index, text in enumerate(self.inputs))
        if self.is_device and self.op != _UNKNOWN:
            texts[TF_OP] = f"{self.name}:{self.op}"
        if self.details:
            is_copy = self.event.lower().startswith(("memcpy", "memset"))
            texts["memcpy_details" if is_copy else "kernel_details"] = self.details
        return texts


def parse_label(node_name: str, label: str, *, is_device: bool) -> Label:
    """Read a node's timeline label.

    Ops: ``[allocator 3.8MB 3.8MB] name = Op(input, input)``. Device work: ``name:Op details``, with the
    kernel or the copy (``MEMCPYHtoD``) as the node's name; or, older, ``kernel@@name:Op#id``.

    Source: Timeline._parse_op_label and _parse_kernel_label in tensorflow/python/client/timeline.py
    (2.21), which do not know ``name:Op details`` and call such an op unknown.
    """
    if not is_device:
        if node_name == "RecvTensor":
            return Label("RecvTensor:RecvTensor", node_name, "RecvTensor")
        match = _OP_LABEL.match(label)
        op = match[2] if match else _UNKNOWN
        inputs = tuple(match[3].split(", ")) if match and match[3] else ()
        return Label(f"{node_name}:{op}", node_name, op, inputs)
    kernel, _, annotation = label.partition("@@")
    annotated, closed, _ = annotation.partition("#")
    if annotated and closed:
        name, op = [*annotated.split(":"), _UNKNOWN][:2]
        return Label(kernel.strip() or annotated, name, op, is_device=True)
    token = _OP_TOKEN.match(label)
    if token is None:
        name, op = [*node_name.split(":"), _UNKNOWN][:2]
        return Label(node_name, name, op, details=label, is_device=True)
    name, op = token[1], token[2]
    event = f"{name}:{op}" if node_name == name else node_name
    return Label(event, name, op, details=label.partition(" ")[2], is_device=True)


class GraphStats(Stats):
    """The stats of a trace made from session runs.

    Input events are the nodes of run 0, of run 1, ..., and then one event per run, which carries
    ``step_num``. Every event has its run as ``group_id``.

    Args:
        runs: R runs.
        event_nodes: For each run, the nodes that are events.
        label_rows: For each run, the row of ``labels`` of each of its nodes.
        labels: The distinct labels.
        order: The input event of each event of the trace, shape (E,).
    """

    def __init__(
        self,
        runs: Sequence[Nodes],
        event_nodes: Sequence[Int64s],
        label_rows: Sequence[Int64s],
        labels: Sequence[Label],
        order: Int64s,
    ) -> None:
        """Remember the runs; nothing is worked out yet."""
        self._runs, self._label_rows, self._labels = runs, label_rows, labels
        numbers = np.arange(len(runs))
        self._run = np.concatenate(
            [np.repeat(numbers, [rows.size for rows in event_nodes]), numbers]
        )[order]
        self._node = np.concatenate([*event_nodes, np.full(len(runs), _RUN, np.int64)])[order]

    @property
    def recorded(self) -> list[bytes]:
        """The RunMetadata of each run, as it was read."""
        return [run.messages.buffer.tobytes() for run in self._runs]

    @cached_property
    def _positions(self) -> tuple[Int64s, Int64s]:
        """The events that are nodes, and their positions when all runs' nodes stand one after another."""
        first = np.cumsum([0, *map(len, self._runs)])
        events = np.flatnonzero(self._node != _RUN)
        return events, first[self._run[events]] + self._node[events]

    def integers(self, name: str) -> StatColumn:
        """The events with an integer stat of this name."""
        if name == GROUP_ID:
            return StatColumn(np.arange(self._run.size), self._run)
        if name in (STEP_NUM, ROOT_LEVEL):
            events = np.flatnonzero(self._node == _RUN)
            return StatColumn(events, self._run[events] if name == STEP_NUM else events * 0 + 1)
        if name not in self._runs[0].integers:
            return super().integers(name)
        flags = [np.zeros(len(run), np.bool_) for run in self._runs]
        for run, flag in zip(self._runs, flags, strict=True):
            flag[run.integers[name][0]] = True
        events, positions = self._positions
        has = np.concatenate(flags)[positions]
        values = np.concatenate([run.integers[name][1] for run in self._runs])[positions]
        return StatColumn(events[has], values[has])

    def texts(self, name: str) -> StatColumn:
        """The events with a text stat of this name, as rows of the distinct texts."""
        events, positions = self._positions
        if name in _COMPOSED:
            texts_of_nodes = [
                text for run in self._runs for text in _compose_texts(run, name, slice(None))
            ]
            texts = [texts_of_nodes[row] for row in positions.tolist()]
        else:
            of_label = [label.stats.get(name, "") for label in self._labels]
            rows = np.concatenate(self._label_rows)[positions]
            texts = [of_label[row] for row in rows.tolist()]
        codes = {"": -1}
        values = np.array([codes.setdefault(text, len(codes) - 1) for text in texts], np.int64)
        return StatColumn(events[values >= 0], values[values >= 0], tuple(codes)[1:])

    def of_event(self, event: int) -> dict[str, int | float | str | bytes]:
        """Every stat of one event."""
        number, node = int(self._run[event]), int(self._node[event])
        if node == _RUN:
            return {STEP_NUM: number, ROOT_LEVEL: 1, GROUP_ID: number}
        label = self._labels[self._label_rows[number][node]]
        stats: dict[str, int | float | str | bytes] = dict(label.stats)
        run, only = self._runs[number], slice(node, node + 1)
        stats.update((n, text) for n in _COMPOSED for text in _compose_texts(run, n, only) if text)
        for name, (rows, values) in run.integers.items():
            at = np.searchsorted(rows, node)
            if at < rows.size and rows[at] == node:
                stats[name] = int(values[node])
        stats[GROUP_ID] = number
        return stats


def _compose_texts(run: Nodes, name: str, rows: slice) -> list[str]:
    return run.memory_texts(rows) if name == "memory" else run.shapes_texts(rows)
