"""The SQLite export of Nsight Systems to a ``Trace``: kernels, copies, calls, NVTX ranges.

``nsys export --type sqlite`` writes one table per kind of event, of which any may be missing; texts stand in
``StringIds``. ``globalTid`` holds the process and the thread, 24 bits each. Streams and correlation ids are
each process's own. A CUDA graph that was traced as a whole is one event on its stream. One that was traced
by its nodes has their kernels and copies: what launched the graph launched them, and their op is the path of
NVTX ranges in which they were captured. A node of a graph that runs is a copy of the captured one.

Numbers are those of ``nsys stats``: by name, the count of rows and the sum, least and most of ``end - start``
(cuda_gpu_kern_sum, cuda_api_sum, nvtx_sum); by direction, the sum of ``bytes`` (cuda_gpu_mem_size_sum).

Source: "SQLite Schema Reference" of the Nsight Systems User Guide (2021.5 to 2025.1): ``bytes`` are bytes.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from profnb.core.columns import Int64s, distinct_rows, number_values
from profnb.trace.assemble import PlaneStats
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID, TF_OP
from profnb.trace.nvidia.database import Database, Strings
from profnb.trace.nvidia.records import (
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    Records,
    copies_of,
    facts_of,
    host_records,
    kernels_of,
    on_streams,
    trace_of,
)

KERNEL_TABLE, _RUNTIME_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
STRINGS = "StringIds"
_MEMCPY, _MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS, _OF_OS, _NVTX = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "OSRT_API", "NVTX_EVENTS"
_GRAPH_NODES, _GRAPH_NODE, _MOST_COPIES = "CUDA_GRAPH_NODE_EVENTS", "graphNodeId", 8
_MOST_OPEN, _LONGEST_NAME, _LONGEST_PATH = 32, 100, 400
_THREAD_NAMES, _GPUS, _CUDA_DEVICES = "ThreadNames", "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
# ENUM_CUDA_MEM_KIND
_MEMORY_KINDS = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device"}
_THREAD_BITS, _PROCESS = (1 << 24) - 1, "globalPid"
_API_VERSION = re.compile(r"(_ptsz|_ptds)?_v\d+$")
_FACTS = {
    "totalMemory": "memory_size", "smCount": "core_count", "computeMajor": "compute_cap_major",
    "computeMinor": "compute_cap_minor",
}  # fmt: skip

_Pair = tuple[int, int]


def read_nsys(database: Database, source: str) -> Trace:
    """Read an export of Nsight Systems."""
    strings, titles = Strings(database, STRINGS, "id"), dict[int, str]()
    threads, name_ids = database.integers(_THREAD_NAMES, "globalTid", "nameId")
    texts, row = strings.of(name_ids)
    for thread, at in zip((threads & _THREAD_BITS).tolist(), row.tolist(), strict=True):
        titles[thread] = f"{texts[at]}/{thread}"
    ranges = _ranges(database, strings, titles)
    *columns, process, node, demangled, short = database.integers(
        KERNEL_TABLE, *KERNEL_COLUMNS, _PROCESS, _GRAPH_NODE, "demangledName", "shortName"
    )
    names = strings.of(np.where(demangled >= 0, demangled, short))
    work = [(kernels_of(columns, *names), process, node)]
    for table in (_MEMCPY, _MEMSET):
        *columns, process, node = database.integers(table, *COPY_COLUMNS, _PROCESS, _GRAPH_NODE)
        work.append((copies_of(columns, _MEMORY_KINDS, is_set=table == _MEMSET), process, node))
    records = _with_captures(database, work, ranges)
    records.append(_graphs(database))
    for table in (_RUNTIME_TABLE, _OF_OS):
        begin, end, thread, correlation, name_id = database.integers(
            table, "start", "end", "globalTid", "correlationId", "nameId"
        )
        texts, row = strings.of(name_id)
        texts = [_API_VERSION.sub("", text) for text in texts]
        if table == _OF_OS:  # its numbers are its own, and no launches
            correlation = np.full_like(correlation, -1)
        calls = host_records((begin, end, thread & _THREAD_BITS, correlation), texts, row, titles)
        records.append((calls, thread))
    processes = np.unique(np.concatenate([process[process > 0] >> 24 for _, process in records]))
    parts = [one for one, _ in records]
    if processes.size > 1:
        parts = [_tell_apart(one, process >> 24) for one, process in records]
    return trace_of(source, "Nsight Systems", [*parts, ranges], _facts(database))


def _with_captures(
    database: Database, work: Iterable[tuple[Records, Int64s, Int64s]], ranges: Records
) -> list[tuple[Records, Int64s]]:
    """Give work, whose processes and nodes are known, the op of its capture, where the file links them."""
    when, thread, number, original = database.integers(
        _GRAPH_NODES, "start", "globalTid", _GRAPH_NODE, "originalGraphNodeId"
    )
    process, thread = (thread >> 24).tolist(), (thread & _THREAD_BITS).tolist()
    captured, copied = dict[_Pair, _Pair](), dict[_Pair, _Pair]()
    rows = zip(process, number.tolist(), thread, when.tolist(), original.tolist(), strict=True)
    for owner, node, place, moment, source in rows:
        captured.setdefault((owner, node), (place, moment))
        if source >= 0:
            copied[owner, node] = owner, source
    if not copied:
        return [(records, owners) for records, owners, _ in work]
    path_of = _paths_at(ranges, set(captured.values()))
    named = []
    for records, owners, nodes in work:
        pairs, row = distinct_rows(owners >> 24, nodes)
        paths, codes = dict[str, int](), []
        for owner, node in pairs:
            first = copied.get((owner, node), (-1, -1))
            for _ in range(_MOST_COPIES):
                first = copied.get(first, first)
            path = path_of.get(captured.get(first, (-1, -1)), "")
            codes.append(paths.setdefault(path, len(paths)) if path else -1)
        op = list(paths), np.array(codes, np.int64)[row]
        named.append((replace(records, texts={**records.texts, TF_OP: op}), owners))
    return named


def _paths_at(ranges: Records, places: Iterable[_Pair]) -> dict[_Pair, str]:
    """Name the ranges that are open on a thread at a moment, the outermost first."""
    thread = np.array([line.line_id for line in ranges.lines], np.int64)[ranges.line]
    order = np.lexsort((-ranges.end_ns, ranges.begin_ns, thread))
    columns = thread, ranges.begin_ns, ranges.end_ns, ranges.name
    opening = iter(zip(*(column[order].tolist() for column in columns), strict=True))
    following, open_, paths = next(opening, None), list[tuple[int, int, int]](), {}
    for place in sorted(places):
        while following is not None and following[:2] <= place:
            owner, _, end, name = following
            open_.append((owner, end, name))
            following = next(opening, None)
        open_ = [one for one in open_ if one[0] == place[0] and one[1] > place[1]][-_MOST_OPEN:]
        names = [ranges.names[name][:_LONGEST_NAME] for _, _, name in open_]
        paths[place] = "/".join(names)[:_LONGEST_PATH]
    return paths


def _tell_apart(records: Records, process: Int64s) -> Records:
    """Give each process lines of its own on a device, and numbers of its own for what it launched."""
    process = process & _THREAD_BITS
    correlation = records.integers[CORRELATION_ID]
    correlation = np.where(correlation >= 0, correlation | process << 32, -1)
    pairs, line = distinct_rows(records.line, process)
    lines = [
        replace(one, name=f"{one.name} (process {number})") if one.side == "device" else one
        for one, number in ((records.lines[row], number) for row, number in pairs)
    ]
    integers = {**records.integers, CORRELATION_ID: correlation}
    return replace(records, lines=lines, line=line, integers=integers)


def _graphs(database: Database) -> tuple[Records, Int64s]:
    begin, end, device, stream, correlation, graph, process = database.integers(
        _GRAPHS, "start", "end", "deviceId", "streamId", "correlationId", "graphId", _PROCESS
    )
    distinct, row = np.unique(graph, return_inverse=True)
    names = [f"CUDA graph {number}" for number in distinct.tolist()]
    lines = on_streams(device, stream)
    records = Records(*lines, names, row.reshape(-1), begin, end, {CORRELATION_ID: correlation})
    return records, process


def _ranges(database: Database, strings: Strings, titles: dict[int, str]) -> Records:
    """Read the NVTX ranges that ended, pushed and popped ones as well as started and ended ones."""
    (begin, end, thread, text_id), (texts,) = database.rows(
        _NVTX, ["start", "end", "globalTid", "textId"], ["text"]
    )
    distinct, inline = number_values(texts)
    shared, row = strings.of(text_id)
    names = [*distinct, *shared]
    # A text of its own goes before the shared one.
    is_inline = np.array([bool(text) for text in texts], np.bool_)
    name = np.where(is_inline | (text_id < 0), inline, row + len(distinct))
    kept = np.flatnonzero((end >= 0) & (begin >= 0))  # marks and categories have no end
    columns = begin[kept], end[kept], thread[kept] & _THREAD_BITS
    return host_records(columns, names, name[kept], titles)


def _facts(database: Database) -> dict[str, PlaneStats]:
    """Read what is known of each GPU, by the number that CUDA gives it."""
    cuda, of_gpu = database.integers(_CUDA_DEVICES, "cudaId", "gpuId")
    (gpu, *columns), (names,) = database.rows(_GPUS, ["id", *_FACTS], ["name"])
    number_of = dict(zip(of_gpu.tolist(), cuda.tolist(), strict=True))
    numbers = [number_of.get(one, one) for one in gpu.tolist()]
    columns_of = dict(zip(_FACTS.values(), map(np.ndarray.tolist, columns), strict=True))
    return facts_of(numbers, names, columns_of)
