"""The time of each op of a model, by the profiler that ``libLiteRt.so`` exports (LiteRT 2.1.6 to 2.3.0).

The functions are C; LiteRT calls them experimental, so each is looked for first, and where one is missing
there are no op times. A run goes through these events: ``Invoke``, the ops with built-in kernels (their index
in the model), and those of XNNPACK (their place in the part of the model that it was given).

Source: litert/c/litert_profiler.h, litert_profiler_event.h; tensorflow/lite/core/api/profiler.h.
"""

import ctypes
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

_WARM_UP = 10
_INVOKE, _OP, _DELEGATED = 1, 2, 8
_LIBRARY_NAMES = {"linux": "libLiteRt.so", "darwin": "libLiteRt.dylib", "win32": "libLiteRt.dll"}
_NEEDED = (
    "LiteRtCreateOpaqueOptions", "LiteRtCompiledModelGetProfiler", "LiteRtStartProfiler",
    "LiteRtStopProfiler",
    "LiteRtGetNumProfilerEvents", "LiteRtGetProfilerEvents", "LiteRtGetSignatureInputName",
    "LiteRtCreateManagedTensorBufferFromRequirements",
)  # fmt: skip
_Pointer, _Size = ctypes.c_void_p, ctypes.c_size_t


class _Layout(ctypes.Structure):
    _fields_ = (
        ("bits", ctypes.c_uint32),
        ("dims", ctypes.c_int32 * 8),
        ("strides", ctypes.c_uint32 * 8),
    )


class _TensorType(ctypes.Structure):
    _fields_ = (("element", ctypes.c_int), ("layout", _Layout))


class _Memory(ctypes.Structure):
    _fields_ = (("total", _Size), ("in_use", _Size), ("private", _Size))


class _Event(ctypes.Structure):
    _fields_ = (
        ("tag", ctypes.c_char_p), ("type", ctypes.c_int), ("begin_us", ctypes.c_uint64),
        ("duration_us", ctypes.c_uint64), ("before", _Memory), ("after", _Memory), ("index", ctypes.c_uint64),
        ("subgraph", ctypes.c_uint64), ("source", ctypes.c_int),
    )  # fmt: skip


def find_library() -> Any:
    """LiteRT's library."""
    spec = find_spec("ai_edge_litert")
    if spec is None or spec.origin is None:
        raise RuntimeError("ai-edge-litert is not installed")
    path = Path(spec.origin).with_name(_LIBRARY_NAMES.get(sys.platform, "libLiteRt.so"))
    if not path.exists():
        raise RuntimeError(f"its package has no {path.name}")
    library = ctypes.CDLL(str(path))
    missing = [name for name in _NEEDED if not hasattr(library, name)]
    if missing:
        raise RuntimeError(f"{path.name} has no {missing[0]}")
    return library


class _Profiled:
    """A model compiled with a profiler; what C has made lives as long as this process."""

    def __init__(self, path: str, threads: int, arrays: Mapping[str, Any]) -> None:
        self._library = find_library()
        self._kept: list[Any] = []
        environment = self._get("LiteRtCreateEnvironment", 0, None)
        model = self._get("LiteRtCreateModelFromFile", environment, path.encode())
        options = self._get("LiteRtCreateOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, 1)
        self._add(options, b"runtime_options_string", "enable_profiling = true\n")
        self._add(options, b"xnnpack", f'kernel_mode = "delegate"\nnum_threads = {threads}\n')
        self._model = self._get("LiteRtCreateCompiledModel", environment, model, options)
        signature = self._get("LiteRtGetModelSignature", model, _Size(0))
        self._inputs = self._buffers(environment, signature, "Input", arrays)
        self._outputs = self._buffers(environment, signature, "Output", {})
        self._profiler = self._get("LiteRtCompiledModelGetProfiler", self._model)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} failed with status {status}")

    def _get(self, name: str, *arguments: Any, kind: Any = _Pointer) -> Any:
        """Call a function, and take what it writes to where its last argument points."""
        value = kind()
        self._call(name, *arguments, ctypes.byref(value))
        return value

    def _add(self, options: Any, identifier: bytes, text: str) -> None:
        payload = ctypes.create_string_buffer(text.encode())
        keep = ctypes.CFUNCTYPE(None, _Pointer)(lambda _: None)  # ours to free, and never
        self._kept += [payload, keep]
        option = self._get("LiteRtCreateOpaqueOptions", identifier, payload, keep)
        self._call("LiteRtAddOpaqueOptions", options, option)

    def _buffers(
        self, environment: Any, signature: Any, side: str, arrays: Mapping[str, Any]
    ) -> Any:
        count = self._get(f"LiteRtGetNumSignature{side}s", signature, kind=_Size).value
        buffers = (_Pointer * count)()
        for at in range(count):
            place = signature, _Size(at)
            tensor = self._get(f"LiteRtGetSignature{side}TensorByIndex", *place)
            kind = self._get("LiteRtGetRankedTensorType", tensor, kind=_TensorType)
            name = self._get(f"LiteRtGetSignature{side}Name", *place, kind=ctypes.c_char_p).value
            array = arrays.get((name or b"").decode())
            for axis in range(kind.layout.bits & 127):
                if kind.layout.dims[axis] < 0:
                    kind.layout.dims[axis] = 1 if array is None else array.shape[axis]
            getter = f"LiteRtGetCompiledModel{side}BufferRequirements"
            needs = self._get(getter, self._model, _Size(0), _Size(at))
            buffer = self._get(
                "LiteRtCreateManagedTensorBufferFromRequirements",
                environment, ctypes.byref(kind), needs,
            )  # fmt: skip
            if array is not None:
                self._write(buffer, np.ascontiguousarray(array))
            buffers[at] = buffer
        return buffers

    def _write(self, buffer: Any, array: Any) -> None:
        place = _Pointer()
        size = self._get("LiteRtGetTensorBufferSize", buffer, kind=_Size).value
        if size < array.nbytes:
            raise RuntimeError(f"an input takes {size} bytes, and {array.nbytes} were given")
        self._call("LiteRtLockTensorBuffer", buffer, ctypes.byref(place), 1)
        ctypes.memmove(place, array.ctypes.data, array.nbytes)
        self._call("LiteRtUnlockTensorBuffer", buffer)

    def run(self) -> None:
        """Run once."""
        ins, outs = self._inputs, self._outputs
        sizes = _Size(len(ins)), ins, _Size(len(outs)), outs
        self._call("LiteRtRunCompiledModel", self._model, _Size(0), *sizes)

    def record(self, runs: int) -> tuple[Any, list[float]]:
        """The events of so many runs, and what each run took in seconds."""
        self._call("LiteRtStartProfiler", self._profiler)
        seconds = []
        for _ in range(runs):
            begin = time.perf_counter()
            self.run()
            seconds.append(time.perf_counter() - begin)
        self._call("LiteRtStopProfiler", self._profiler)
        count = self._get("LiteRtGetNumProfilerEvents", self._profiler, kind=ctypes.c_int)
        events = (_Event * count.value)()
        self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        return events, seconds


def profile_ops(path: str, threads: int, arrays: Mapping[str, Any], runs: int) -> dict[str, Any]:
    """Mean times of a model's ops over the calmer half of its runs.

    Returns:
        ``ops``: in the order in which they ran, ``[is_delegated, name, index, part, microseconds]``; a part
        is what was given to the delegate at once. ``invoke_us`` and ``run_us``: what those runs took, within
        the model and with what LiteRT does around it.

    Raises:
        RuntimeError: There is no profiler, or it refuses.
    """
    model = _Profiled(path, threads, arrays)
    for _ in range(_WARM_UP):
        model.run()
    events, seconds = model.record(runs)
    rows = [
        (e.type, e.tag.decode(errors="replace"), e.index, e.subgraph, e.duration_us) for e in events
    ]
    return summarise_events(rows, seconds)


def summarise_events(
    events: list[tuple[int, str, int, int, int]], seconds: list[float]
) -> dict[str, Any]:
    """Sum up what ``profile_ops`` gives, from ``(type, tag, index, subgraph, microseconds)`` in order."""
    invokes: list[int] = []
    ops: list[dict[tuple[bool, str, int, int], int]] = []
    part, last = -1, -1
    for kind, tag, index, subgraph, duration in events:
        if subgraph:  # the body of a loop: its op at the top holds that time
            continue
        if kind == _INVOKE and tag == "Invoke":
            invokes.append(duration)
            ops.append({})
            part, last = -1, -1
        elif ops and kind == _OP:
            ops[-1][False, tag, index, -1] = duration
            last = -1
        elif ops and kind == _DELEGATED:
            part += last < 0 or index <= last
            last = index
            ops[-1][True, tag, index, part] = duration
    if not invokes:
        raise RuntimeError("the profiler recorded no run")
    calm = np.argsort(invokes, kind="stable")[: max(len(invokes) // 2, 1)]
    keys = list(ops[calm[0]])
    return {
        "ops": [[*key, float(np.mean([ops[run].get(key, 0) for run in calm]))] for key in keys],
        "invoke_us": float(np.mean([invokes[run] for run in calm])),
        "run_us": float(np.median(seconds)) * 1e6,
    }
