"""nvprof's database (``nvprof -o x.nvvp``, what the Visual Profiler opens) to a ``Trace``.

It holds CUPTI's records as they came: a table per kind, texts in ``StringTable``, calls by number instead of
name, a range as a begin row and an end row with one id, threads as bytes. As in nvprof's summary, a kernel's
time is the sum of ``end - start``.

Source: cupti_activity.h, cupti_runtime_cbid.h and cupti_driver_cbid.h (CUDA 13.0); nvprof's own schema.
"""

import numpy as np

from profnb.trace.assemble import PlaneStats
from profnb.trace.model import Trace
from profnb.trace.nvidia import records as nvidia
from profnb.trace.nvidia.database import Database, Strings

STRINGS = "StringTable"
_KERNELS = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL"
_COPY_TABLES = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMCPY2"
_MEMSET, _MARKERS = "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_MARKER"
_DEVICES = "CUPTI_ACTIVITY_KIND_DEVICE"
TABLES = (*_KERNELS, *_COPY_TABLES, _MARKERS, "CUPTI_ACTIVITY_KIND_RUNTIME")
_MARKER_BEGINS, _MARKER_ENDS = 2, 4  # CUPTI_ACTIVITY_FLAG_MARKER_START and _END
_MEMORY_KINDS = {1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "device"}
_FACTS = {
    "globalMemorySize": "memory_size", "numMultiprocessors": "core_count",
    "computeCapabilityMajor": "compute_cap_major", "computeCapabilityMinor": "compute_cap_minor",
}  # fmt: skip
# Calls that training programs make, by CUPTI's numbers; of others the number is shown.
_CALLS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("cudaCall", {
        8: "cudaConfigureCall", 9: "cudaSetupArgument", 10: "cudaGetLastError", 11: "cudaPeekAtLastError",
        13: "cudaLaunch", 16: "cudaSetDevice", 17: "cudaGetDevice", 20: "cudaMalloc", 22: "cudaFree",
        25: "cudaMallocHost", 26: "cudaFreeHost", 27: "cudaHostAlloc", 31: "cudaMemcpy", 32: "cudaMemcpy2D",
        39: "cudaMemcpyToSymbol", 40: "cudaMemcpyFromSymbol", 41: "cudaMemcpyAsync",
        44: "cudaMemcpy2DAsync", 49: "cudaMemset", 51: "cudaMemsetAsync", 126: "cudaThreadSynchronize",
        129: "cudaStreamCreate", 131: "cudaStreamSynchronize", 132: "cudaStreamQuery",
        134: "cudaEventCreateWithFlags", 135: "cudaEventRecord", 137: "cudaEventSynchronize",
        138: "cudaEventQuery", 147: "cudaStreamWaitEvent", 160: "cudaMemcpyPeer",
        161: "cudaMemcpyPeerAsync", 165: "cudaDeviceSynchronize", 198: "cudaStreamCreateWithFlags",
        206: "cudaMallocManaged", 211: "cudaLaunchKernel", 252: "cudaMemPrefetchAsync",
        269: "cudaLaunchCooperativeKernel", 311: "cudaGraphLaunch",
    }),
    "CUPTI_ACTIVITY_KIND_DRIVER": ("cuCall", {
        17: "cuCtxSynchronize", 20: "cuModuleLoadDataEx", 119: "cuEventRecord", 121: "cuEventSynchronize",
        126: "cuStreamSynchronize", 216: "cuMemsetD8Async", 220: "cuMemsetD32Async", 243: "cuMemAlloc",
        245: "cuMemFree", 276: "cuMemcpyHtoD", 277: "cuMemcpyHtoDAsync", 278: "cuMemcpyDtoH",
        279: "cuMemcpyDtoHAsync", 280: "cuMemcpyDtoD", 281: "cuMemcpyDtoDAsync", 295: "cuStreamWaitEvent",
        305: "cuMemcpy", 306: "cuMemcpyAsync", 307: "cuLaunchKernel", 514: "cuGraphLaunch",
    }),
}  # fmt: skip


def read_nvprof(database: Database, source: str) -> Trace:
    """Read a database of nvprof."""
    strings = Strings(database, STRINGS, "_id_")
    records = []
    for table in _KERNELS:
        *of_kernels, name = database.integers(table, *nvidia.KERNEL_COLUMNS, "name")
        records.append(nvidia.kernels_of(of_kernels, *strings.of(name)))
    for table in (*_COPY_TABLES, _MEMSET):
        of_copies = database.integers(table, *nvidia.COPY_COLUMNS)
        records.append(nvidia.copies_of(of_copies, _MEMORY_KINDS, is_set=table == _MEMSET))
    for table, (prefix, names_of_calls) in _CALLS.items():
        (begin, end, correlation, call), (threads,) = database.rows(
            table, ["start", "end", "correlationId", "cbid"], ["threadId"]
        )
        calls, row = np.unique(call, return_inverse=True)
        names = [names_of_calls.get(one, f"{prefix} {one}") for one in calls.tolist()]
        thread = np.array([_number(text) for text in threads], np.int64)
        columns = begin, end, thread, correlation
        records.append(nvidia.host_records(columns, names, row.reshape(-1), {}))
    records.append(_ranges(database, strings))
    return nvidia.trace_of(source, "nvprof", records, _facts(database, strings))


def _number(text: str, first_byte: int = 0) -> int:
    """Read a thread's number: decimal, or four bytes, little end first, of ``0x4D00...``."""
    if text.startswith("0x"):
        return int.from_bytes(bytes.fromhex(text[2:])[first_byte : first_byte + 4], "little")
    return int(text) & 0xFFFFFFFF if text.isdecimal() and len(text) < 20 else 0


def _ranges(database: Database, strings: Strings) -> nvidia.Records:
    """Join the begins and ends of ranges by their id; the begin has the name and the thread."""
    (when, flags, number, name), (objects,) = database.rows(
        _MARKERS, ["timestamp", "flags", "id", "name"], ["objectId"]
    )
    flags = np.maximum(flags, 0)
    begins, ends = np.flatnonzero(flags & _MARKER_BEGINS), np.flatnonzero(flags & _MARKER_ENDS)
    _, first = np.unique(number[begins], return_index=True)
    begins = begins[first]
    ended, first = np.unique(number[ends], return_index=True)
    at = np.searchsorted(ended, number[begins])
    is_closed = (np.append(ended, -1)[at] == number[begins]) & (number[begins] >= 0)
    begins, ends = begins[is_closed], ends[first][at[is_closed]]
    thread = np.array([_number(objects[row], 4) for row in begins.tolist()], np.int64)
    return nvidia.host_records((when[begins], when[ends], thread), *strings.of(name[begins]), {})


def _facts(database: Database, strings: Strings) -> dict[str, PlaneStats]:
    device, name_id, *columns = database.integers(_DEVICES, "id", "name", *_FACTS)
    names, row = strings.of(name_id)
    columns_of = dict(zip(_FACTS.values(), map(np.ndarray.tolist, columns), strict=True))
    return nvidia.facts_of(device.tolist(), [names[at] for at in row.tolist()], columns_of)
