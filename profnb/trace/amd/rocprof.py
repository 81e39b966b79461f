"""The JSON of AMD's rocprofv3 to a ``Trace``: kernels, copies, calls, ranges.

In that of ``--output-format json`` records refer to symbols, agents and texts by number. A kernel's grid is
counted in work items there and in groups here, as everywhere else. A range of ROCTx has its text by
correlation id. As in ``--stats``, a kernel's time is the sum of end less start.

That of ``--output-format pftrace`` is Perfetto's, as ``traceconv json`` writes it. Its times are whole
microseconds and its queues no threads; the args of an event have its time in nanoseconds, its queue and its
thread. They have only the product of a grid's and a block's sides, which stands here as x.

Source: ROCm/rocprofiler-sdk, source/lib/output (generatePerfetto.cpp) and its tests of rocprofv3 (2024 to
2025); google/perfetto, src/trace_processor/export_json.cc.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from profnb.core.columns import Bytes
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.trace.assemble import PlaneStats
from profnb.trace.chrome.event_args import parse_value
from profnb.trace.model import Trace
from profnb.trace.nvidia import records as nvidia

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
    """Read a file of rocprofv3."""
    whole = _dict(parse_value(buffer.tobytes()) if buffer.size <= _MOST_BYTES else None)
    if not whole:
        raise TraceFormatError(
            f"Damaged or cut-off JSON of rocprofv3, or more than {_MOST_BYTES / 1e6:,.0f} MB. Record again, "
            "for a shorter time."
        )
    tools = _list(whole.get(_TOOL)) or [whole.get(_TOOL, _tool_of(_list(whole.get("traceEvents"))))]
    records: list[nvidia.Records] = []
    facts: dict[str, PlaneStats] = {}
    for tool in map(_dict, tools[:_MOST_TOOLS]):
        one = _Tool(tool)
        records += [one.kernels(), one.copies(), one.calls(), one.ranges()]
        facts |= one.facts()
    return nvidia.trace_of(source, "rocprofv3", records, facts)


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


def _at(values: Sequence[Any], number: object) -> Any:
    return values[row] if 0 <= (row := _integer(number)) < len(values) else None


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
        agents = ["agent", *(f"{end}_agent" for end, mark in _AT_DEVICE.items() if mark in name)]
        gpus |= {_integer(args.get(agent)) for agent in agents}
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
    """The records of one process."""

    def __init__(self, tool: Mapping[str, Any]) -> None:
        self._records, strings = _dict(tool.get("buffer_records")), _dict(tool.get("strings"))
        self._kinds = _list(strings.get("buffer_records"))
        marks = map(_dict, _list(strings.get("marker_api")))
        self._marks = {_integer(one.get("key")): _text(one.get("value")) for one in marks}
        symbols = map(_dict, _list(tool.get("kernel_symbols")))
        self._symbols = {_integer(one.get("kernel_id")): one for one in symbols}
        agents = [_dict(agent) for agent in _list(tool.get("agents"))]
        self._gpus = [agent for agent in agents if agent.get("type") == _GPU]
        self._gpu_of = {_integer(agent.get("id")): row for row, agent in enumerate(self._gpus)}

    def _each(self, kind: str) -> Iterator[dict[str, Any]]:
        return (one for one in _list(self._records.get(kind)) if isinstance(one, dict))

    def kernels(self) -> nvidia.Records:
        """Read the kernels; a queue is a line where no stream is told."""
        rows = nvidia.Columns(*nvidia.KERNEL_COLUMNS)
        for one in self._each("kernel_dispatch"):
            sent = _dict(one.get("dispatch_info"))
            symbol = self._symbols.get(_integer(sent.get("kernel_id")), {})
            name = _text(symbol.get("formatted_kernel_name")) or _text(symbol.get("kernel_name"))
            static, shape = _integer(symbol.get("group_segment_size")), dict[str, int]()
            for axis in "xyz":
                sizes = (_dict(sent.get(f"{what}_size")) for what in ("workgroup", "grid"))
                block, items = (_integer(size.get(axis)) for size in sizes)
                groups = -(-items // block) if block > 0 and items >= 0 else -1
                shape |= {f"block{axis.upper()}": block, f"grid{axis.upper()}": groups}
            dynamic = max(_integer(sent.get("group_segment_size")) - max(static, 0), 0)
            rows.add(name or "?", {
                **_begun(one), **shape, "deviceId": self._gpu_of.get(_integer(sent.get("agent_id")), 0),
                "streamId": _integer(one.get("stream_id", sent.get("queue_id"))),
                "registersPerThread": _integer(symbol.get("arch_vgpr_count")),
                "staticSharedMemory": static, "dynamicSharedMemory": dynamic,
            })  # fmt: skip
        return nvidia.kernels_of(rows.all(), *rows.names())

    def copies(self) -> nvidia.Records:
        """Read the copies; they lie on the line of their device."""
        rows = nvidia.Columns(*nvidia.COPY_COLUMNS)
        for one in self._each("memory_copy"):
            agents = one.get("src_agent_id"), one.get("dst_agent_id")
            ends = [self._gpu_of.get(_integer(agent), -1) for agent in agents]
            rows.add("", {
                **_begun(one), "deviceId": max(ends), "streamId": _integer(one.get("stream_id")),
                "bytes": _integer(one.get("bytes")), "copyKind": _COPY_KINDS[ends[0] >= 0, ends[1] >= 0],
            })  # fmt: skip
        return nvidia.copies_of(rows.all(), {})

    def calls(self) -> nvidia.Records:
        """Read the calls of HIP."""
        rows = self._on_threads("hip_api", self._operation)
        return nvidia.host_records(rows.all(), *rows.names(), {})

    def ranges(self) -> nvidia.Records:
        """Read what the program marked with ROCTx."""
        rows = self._on_threads("marker_api", self._mark)
        return nvidia.host_records(rows.all()[:3], *rows.names(), {})

    def _on_threads(self, kind: str, name_of: Callable[[dict[str, Any]], str]) -> nvidia.Columns:
        rows = nvidia.Columns("start", "end", "thread", "correlationId")
        for one in self._each(kind):
            thread = _integer(one.get("thread_id"))
            rows.add(name_of(one) or kind, {**_begun(one), "thread": thread})
        return rows

    def _mark(self, one: Mapping[str, Any]) -> str:
        return self._marks.get(_integer(one.get("correlation_id")), "")

    def _operation(self, one: Mapping[str, Any]) -> str:
        kind = _dict(_at(self._kinds, one.get("kind")))
        return _text(_at(_list(kind.get("operations")), one.get("operation")))

    def facts(self) -> dict[str, PlaneStats]:
        """Tell what is known of each GPU."""
        gpus = self._gpus[:1000]
        names = [_text(gpu.get("product_name")) or _text(gpu.get("name")) for gpu in gpus]
        cores = [_integer(gpu.get("cu_count")) or -1 for gpu in gpus]
        return nvidia.facts_of(range(len(gpus)), names, {"core_count": cores}, "AMD")


def _begun(one: Mapping[str, Any]) -> dict[str, int]:
    """Read what each record has: its begin, its end, and the number that joins it to others."""
    keys = {"start": "start_timestamp", "end": "end_timestamp", "correlationId": "correlation_id"}
    return {ours: _integer(one.get(theirs)) for ours, theirs in keys.items()}
