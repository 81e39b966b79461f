"""The JSON of AMD's rocprofv3 to a ``Trace``: kernels, copies, calls, ranges.

In that of ``--output-format json`` records refer to symbols, agents and texts by number. A kernel's grid is
counted in work items there and in groups here, as everywhere else. A range of ROCTx has its text by
correlation id.

That of ``--output-format pftrace`` is Perfetto's, as ``traceconv json`` writes it. Its times are whole
microseconds and its queues no threads; the args of an event have its time in nanoseconds, its queue and its
thread. They have only the product of a grid's and a block's sides, which stands here as x.

Source: ROCm/rocprofiler-sdk, source/lib/output (generatePerfetto.cpp) and its tests of rocprofv3 (2024 to
2025); google/perfetto, src/trace_processor/export_json.cc.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from profnb.core.columns import Bytes, Int64s
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.trace.assemble import PlaneStats
from profnb.trace.model import Trace
from profnb.trace.nvidia.records import (
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    Records,
    calls_of,
    copies_of,
    kernels_of,
    ranges_of,
    trace_of,
)

_TOOL, _OF_TRACKS = "rocprofiler-sdk-tool", (b'"begin_ns":', b'"corr_id":')
_BEGINNINGS, _AT_DEVICE = ("X", "B", "b"), {"src": "DEVICE_TO", "dst": "TO_DEVICE"}
_MOST_BYTES, _MOST_TOOLS = 256 << 20, 100
_LARGEST, _LONGEST_VALUE = (1 << 62) - 1, 4_000
_GPU = 2  # rocprofiler_agent_type_t
_COPY_KINDS = {(False, True): 1, (True, False): 2, (True, True): 8, (False, False): 9}


def is_rocprof(head: bytes) -> bool:
    """Tell whether JSON begins as rocprofv3's."""
    return _TOOL.encode() in head[:200] or all(mark in head for mark in _OF_TRACKS)


def read_rocprof(buffer: Bytes, source: str) -> Trace:
    """Read a file of rocprofv3.

    Args:
        buffer: The whole file.
        source: Its name, for messages.

    Raises:
        TraceFormatError: It is damaged, too large, or holds no event.
    """
    if buffer.size > _MOST_BYTES:
        raise TraceFormatError(
            f"{source} has {buffer.size / 1e6:,.0f} MB; at most {_MOST_BYTES / 1e6:,.0f} MB of rocprofv3's "
            "JSON are read. Record less."
        )
    try:
        whole = json.loads(buffer.tobytes().decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(
            f"{source}: the JSON of rocprofv3 is damaged or cut off ({printable(str(error))[:100]}). Record "
            "it again."
        ) from None
    whole = _dict(whole)
    tools = _list(whole.get(_TOOL)) or [whole.get(_TOOL, _tool_of(_list(whole.get("traceEvents"))))]
    records: list[Records] = []
    facts: dict[str, PlaneStats] = {}
    for tool in map(_dict, tools[:_MOST_TOOLS]):
        one = _Tool(tool)
        records += [one.kernels(), one.copies(), one.calls(), one.ranges()]
        facts |= one.facts()
    return trace_of(source, "rocprofv3", records, facts)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _integer(value: object) -> int:
    """Read a number, or the number in a handle; -1 for what is none."""
    if isinstance(value, dict):
        value = value.get("handle", value.get("internal"))
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
    return int(value) if is_number and isinstance(value, int) else -1


def _text(value: object) -> str:
    return printable(value[:_LONGEST_VALUE]) if isinstance(value, str) else ""


def _tool_of(events: Sequence[Any]) -> dict[str, Any]:
    """Write events of Perfetto as the records that rocprofv3 made them of."""
    records, names, gpus = dict[str, list[Any]](), dict[str, int](), set[int]()
    marks = []
    for event in map(_dict, events):
        kind, args = _text(event.get("cat")), _dict(event.get("args"))
        if event.get("ph") not in _BEGINNINGS or not args:
            continue
        name, correlation = _text(event.get("name")), args.get("corr_id")
        number = names.setdefault(name, len(names))
        if kind == "marker_api":
            marks.append({"key": correlation, "value": name})
        gpus |= {_integer(args.get("agent"))}
        gpus |= {
            _integer(args.get(f"{end}_agent")) for end, mark in _AT_DEVICE.items() if mark in name
        }
        sizes = ({"x": args.get(f"{what}_size"), "y": 1, "z": 1} for what in ("workgroup", "grid"))
        sent = {
            "agent_id": args.get("agent"), "queue_id": args.get("queue"), "kernel_id": number,
            "group_segment_size": args.get("group_segment_size"),
            **dict(zip(("workgroup_size", "grid_size"), sizes, strict=True)),
        }  # fmt: skip
        records.setdefault(kind, []).append({
            "start_timestamp": args.get("begin_ns"), "end_timestamp": args.get("end_ns"),
            "thread_id": args.get("tid"), "correlation_id": correlation, "kind": 0, "operation": number,
            "dispatch_info": sent, "bytes": args.get("copy_bytes"),
            "src_agent_id": args.get("src_agent"), "dst_agent_id": args.get("dst_agent"),
        })  # fmt: skip
    return {
        "buffer_records": records,
        "strings": {"buffer_records": [{"operations": list(names)}], "marker_api": marks},
        "agents": [{"id": gpu, "type": _GPU} for gpu in sorted(gpus - {-1})],
        "kernel_symbols": [{"kernel_id": row, "kernel_name": name} for name, row in names.items()],
    }


class _Tool:
    """What one process recorded."""

    def __init__(self, tool: Mapping[str, Any]) -> None:
        self._records, strings = _dict(tool.get("buffer_records")), _dict(tool.get("strings"))
        self._kinds = [_dict(kind) for kind in _list(strings.get("buffer_records"))]
        marks = map(_dict, _list(strings.get("marker_api")))
        self._marks = {_integer(one.get("key")): _text(one.get("value")) for one in marks}
        symbols = map(_dict, _list(tool.get("kernel_symbols")))
        self._symbols = {_integer(one.get("kernel_id")): one for one in symbols}
        agents = [_dict(agent) for agent in _list(tool.get("agents"))]
        self._gpus = [agent for agent in agents if agent.get("type") == _GPU]
        self._gpu_of = {_integer(agent.get("id")): row for row, agent in enumerate(self._gpus)}

    def _each(self, kind: str) -> Iterator[dict[str, Any]]:
        return (one for one in _list(self._records.get(kind)) if isinstance(one, dict))

    def kernels(self) -> Records:
        """Read the kernels; a queue is a line where no stream is told."""
        names, rows = dict[str, int](), list[tuple[int, ...]]()
        for one in self._each("kernel_dispatch"):
            sent = _dict(one.get("dispatch_info"))
            symbol = self._symbols.get(_integer(sent.get("kernel_id")), {})
            name = (
                _text(symbol.get("formatted_kernel_name"))
                or _text(symbol.get("kernel_name"))
                or "?"
            )
            stream = _integer(one.get("stream_id", sent.get("queue_id")))
            block = [_integer(_dict(sent.get("workgroup_size")).get(axis)) for axis in "xyz"]
            items = [_integer(_dict(sent.get("grid_size")).get(axis)) for axis in "xyz"]
            grid = [
                -(-of // by) if by > 0 and of >= 0 else -1
                for of, by in zip(items, block, strict=True)
            ]
            static = _integer(symbol.get("group_segment_size"))
            dynamic = max(_integer(sent.get("group_segment_size")) - max(static, 0), 0)
            rows.append((
                *self._times(one), self._gpu_of.get(_integer(sent.get("agent_id")), 0), stream,
                _integer(one.get("correlation_id")), _integer(symbol.get("arch_vgpr_count")),
                static,
                dynamic,
                *grid, *block, names.setdefault(name, len(names)),
            ))  # fmt: skip
        *columns, name_row = _columns(rows, len(KERNEL_COLUMNS) + 1)
        return kernels_of(columns, list(names), name_row)

    def copies(self) -> Records:
        """Read the copies; they lie on the line of their device."""
        rows = []
        for one in self._each("memory_copy"):
            ends = [
                self._gpu_of.get(_integer(one.get(f"{end}_agent_id")), -1) for end in ("src", "dst")
            ]
            kind = _COPY_KINDS[ends[0] >= 0, ends[1] >= 0]
            rows.append((
                *self._times(one), max(ends), _integer(one.get("stream_id")),
                _integer(one.get("correlation_id")), _integer(one.get("bytes")), kind, -1, -1,
            ))  # fmt: skip
        return copies_of(_columns(rows, len(COPY_COLUMNS)), {})

    def calls(self) -> Records:
        """Read the calls of HIP."""
        return self._on_threads("hip_api", self._operation, calls_of)

    def ranges(self) -> Records:
        """Read what the program marked with ROCTx."""
        return self._on_threads(
            "marker_api", self._mark, lambda *columns: ranges_of(*columns[:3], *columns[4:])
        )

    def _on_threads(
        self,
        kind: str,
        name_of: Callable[[dict[str, Any]], str],
        records_of: Callable[..., Records],
    ) -> Records:
        names, rows = dict[str, int](), list[tuple[int, ...]]()
        for one in self._each(kind):
            name = names.setdefault(name_of(one) or kind, len(names))
            thread, correlation = (
                _integer(one.get("thread_id")),
                _integer(one.get("correlation_id")),
            )
            rows.append((*self._times(one), thread, correlation, name))
        begin, end, thread_ids, correlations, name_row = _columns(rows, 5)
        return records_of(begin, end, thread_ids, correlations, list(names), name_row, {})

    def _mark(self, one: Mapping[str, Any]) -> str:
        return self._marks.get(_integer(one.get("correlation_id")), "")

    def _operation(self, one: Mapping[str, Any]) -> str:
        kind, operation = _integer(one.get("kind")), _integer(one.get("operation"))
        operations = (
            _list(self._kinds[kind].get("operations")) if 0 <= kind < len(self._kinds) else []
        )
        return _text(operations[operation]) if 0 <= operation < len(operations) else ""

    @staticmethod
    def _times(one: Mapping[str, Any]) -> tuple[int, int]:
        return _integer(one.get("start_timestamp")), _integer(one.get("end_timestamp"))

    def facts(self) -> dict[str, PlaneStats]:
        """Tell what is known of each GPU."""
        return {
            f"/device:GPU:{row}": {
                "device_vendor": "AMD",
                "gpu_device_name": _text(gpu.get("product_name")) or _text(gpu.get("name")),
                **({"core_count": count} if (count := _integer(gpu.get("cu_count"))) > 0 else {}),
            }
            for row, gpu in enumerate(self._gpus[:1000])
        }  # fmt: skip


def _columns(rows: Sequence[tuple[int, ...]], count: int) -> list[Int64s]:
    return list(np.array(rows, np.int64).reshape(len(rows), count).T.copy())
