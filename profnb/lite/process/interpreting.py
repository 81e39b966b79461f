"""Interpreters in a process of their own, asked over a pipe; ``interpreters`` runs this file.

A damaged model or a broken kernel ends this process and not the notebook's. Each line that comes in is a JSON
object with ``do`` and what that needs; each line that goes out is the answer, or ``{"error": ...}``. Arrays
travel in ``.npz`` files. What libraries print goes to standard error.

Outputs come from ``Interpreter``; times from ``CompiledModel`` where the package has it, as in
``ai_edge_litert/tools/benchmark_litert_model.py``, and from ``Interpreter.invoke`` where not.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

_WARM_UP = 10
_LARGEST_TENSOR = 1 << 24  # elements: what is shown of a layer has to fit


def _interpreter_class(engine: str) -> tuple[Any, Any]:
    """The interpreter, and how it is told to leave out delegates."""
    if engine == "tensorflow":
        import tensorflow as tf

        return tf.lite.Interpreter, tf.lite.experimental.OpResolverType
    from ai_edge_litert import interpreter

    return interpreter.Interpreter, interpreter.OpResolverType


def _engine_version(engine: str) -> str:
    packages = {"tensorflow": ("tensorflow", "tensorflow-cpu"), "litert": ("ai-edge-litert",)}
    for package in packages[engine]:
        with suppress(PackageNotFoundError):
            return version(package)
    return ""


class _Model:
    """An interpreter with its inputs in place."""

    def __init__(self, ask: Mapping[str, Any]) -> None:
        self.path, self.threads, self.engine = ask["path"], int(ask["threads"]), ask["engine"]
        self.batch = int(ask["batch"])
        self.is_resized = False
        self.interpreter = self.made()
        self.inputs = self.interpreter.get_input_details()
        self.outputs = self.interpreter.get_output_details()
        self.timed: Callable[[], None] = self.interpreter.invoke
        self.is_compiled = False

    def made(self, **settings: Any) -> Any:
        """An interpreter of the model, ready to be given inputs."""
        make, _ = _interpreter_class(self.engine)
        interpreter = make(model_path=self.path, num_threads=self.threads, **settings)
        for detail in interpreter.get_input_details():
            signature = [int(size) for size in detail.get("shape_signature", detail["shape"])]
            if signature and signature[0] == -1 and self.batch != 1:
                self.is_resized = True
                interpreter.resize_tensor_input(
                    detail["index"], [self.batch, *(max(size, 1) for size in signature[1:])]
                )
        interpreter.allocate_tensors()
        return interpreter

    def without_delegates(self) -> Any:
        """The same model with all its tensors kept and nothing delegated."""
        _, resolver = _interpreter_class(self.engine)
        return self.made(
            experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )

    def by_index(self, arrays: list[Any]) -> dict[int, Any]:
        """The inputs in their types by the index of their tensors."""
        pairs = zip(self.inputs, arrays, strict=True)
        return {detail["index"]: _quantized(array, detail) for detail, array in pairs}

    def fill(self, interpreter: Any, arrays: list[Any]) -> None:
        for index, array in self.by_index(arrays).items():
            interpreter.set_tensor(index, array)

    def compile(self, arrays: list[Any]) -> None:
        """Time ``CompiledModel`` from now on, where the package has it."""
        is_litert = self.engine == "litert" and find_spec("ai_edge_litert.options") is not None
        if self.is_resized or not is_litert:
            return
        with suppress(ImportError, TypeError, AttributeError, RuntimeError, ValueError):
            from ai_edge_litert.compiled_model import CompiledModel
            from ai_edge_litert.hardware_accelerator import HardwareAccelerator
            from ai_edge_litert.options import CpuOptions, Options

            options = Options(
                hardware_accelerators=HardwareAccelerator.CPU,
                cpu_options=CpuOptions(num_threads=self.threads),
            )
            model = CompiledModel.from_file(self.path, options=options)
            key, signature = next(iter(model.get_signature_list().items()))
            details = self.interpreter.get_signature_runner(key).get_input_details()
            ins = {n: model.create_input_buffer_by_name(key, n) for n in signature["inputs"]}
            outs = {n: model.create_output_buffer_by_name(key, n) for n in signature["outputs"]}
            values = self.by_index(arrays)
            for name, buffer in ins.items():
                buffer.write(np.ascontiguousarray(values[details[name]["index"]]))
            model.run_by_name(key, ins, outs)
            self._kept = model, ins, outs
            self.timed = lambda: model.run_by_name(key, ins, outs)
            self.is_compiled = True


def _quantized(array: Any, detail: Mapping[str, Any]) -> Any:
    """An array in the type of an input, by its scale and zero point where it has one."""
    scale, zero = detail.get("quantization") or (0.0, 0)
    kind = np.dtype(detail["dtype"])
    if scale and kind.kind in "iu" and array.dtype != kind:
        limits = np.iinfo(kind)
        return np.clip(np.round(array / scale + zero), limits.min, limits.max).astype(kind)
    return array.astype(kind, copy=False)


def _real(array: Any, detail: Mapping[str, Any]) -> Any:
    """Read what an output or tensor stands for, as 32-bit floats."""
    scale, zero = detail.get("quantization") or (0.0, 0)
    if scale and array.dtype.kind in "iu":
        return ((array.astype(np.float32) - zero) * scale).astype(np.float32)
    return array.astype(np.float32)


def _described(detail: Mapping[str, Any]) -> dict[str, Any]:
    scale, zero = detail.get("quantization") or (0.0, 0)
    return {
        "index": int(detail["index"]),
        "name": str(detail["name"]),
        "shape": [int(size) for size in detail["shape"]],
        "open": [int(size) for size in detail.get("shape_signature", detail["shape"])],
        "dtype": np.dtype(detail["dtype"]).name,
        "scale": float(scale),
        "zero": int(zero),
    }


class _Server:
    """The questions, and their answers."""

    def __init__(self) -> None:
        self.models: dict[str, _Model] = {}

    def probe(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Open and run one model once, and tell the most memory that took."""
        _interpreter_class(ask["engine"])
        with suppress(OSError):
            # Forget the peak so far.
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = _status("VmRSS")
        answer = self.open(ask)
        model = self.models[ask["id"]]
        model.interpreter.invoke()
        peak = _status("VmHWM")
        answer["memory"] = peak - before if before and peak else None
        return answer

    def open(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        model = self.models[ask["id"]] = _Model(ask)
        return {
            "inputs": [_described(detail) for detail in model.inputs],
            "version": _engine_version(model.engine),
        }

    def graph(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """The ops in order, those that stand for a part given to a delegate at the end; and the tensors.

        ``ask["method"]`` lists the ops; where the interpreter has none, they are None.
        """
        interpreter = self.models[ask["id"]].interpreter
        list_ops = getattr(interpreter, ask["method"], None)
        return {
            "ops": None if list_ops is None else [
                {
                    "index": int(op["index"]), "type": str(op["op_name"]),
                    **{side: [int(one) for one in op[side]] for side in ("inputs", "outputs")},
                }
                for op in list_ops()
            ],
            "tensors": [_described(detail) for detail in interpreter.get_tensor_details()],
        }  # fmt: skip

    def ready(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Fill the inputs and warm up."""
        model = self.models[ask["id"]]
        arrays = read_arrays(ask["source"])
        model.fill(model.interpreter, arrays)
        model.compile(arrays)
        for _ in range(_WARM_UP):
            model.timed()
        begin = time.perf_counter()
        model.timed()
        return {"seconds": time.perf_counter() - begin, "is_compiled": model.is_compiled}

    def round(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Each model in turn."""
        order, burst = ask["order"], ask["burst"]
        return {"seconds": {name: median_seconds(self.models[name].timed, burst) for name in order}}

    def outputs(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Run each example, and keep the outputs."""
        model = self.models[ask["id"]]
        arrays = read_arrays(ask["source"])
        count = len(arrays[0])
        collected: list[list[Any]] = [[] for _ in model.outputs]
        for begin in range(0, count, model.batch):
            rows = np.minimum(np.arange(begin, begin + model.batch), count - 1)
            model.fill(model.interpreter, [array[rows] for array in arrays])
            model.interpreter.invoke()
            for kept, detail in zip(collected, model.outputs, strict=True):
                kept.append(_real(model.interpreter.get_tensor(detail["index"]), detail))
        joined = (np.concatenate([*map(np.atleast_1d, kept)])[:count] for kept in collected)
        write_examples(ask["target"], joined)
        return {}

    def tensors(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Keep what ops give for a few examples, tensor by tensor."""
        model = self.models[ask["id"]]
        interpreter = model.without_delegates()
        arrays = read_arrays(ask["source"])
        details = {int(one["index"]): one for one in interpreter.get_tensor_details()}
        kept: dict[int, list[Any]] = {}
        list_ops = getattr(interpreter, ask["method"], tuple)
        wanted = {int(one) for op in list_ops() for one in op["outputs"]}
        wanted = {i for i in wanted & details.keys() if details[i]["shape"].size}
        for begin in range(0, len(arrays[0]) - model.batch + 1, model.batch):
            model.fill(interpreter, [array[begin : begin + model.batch] for array in arrays])
            interpreter.invoke()
            for index in wanted:
                with suppress(ValueError):  # the body of a loop has none
                    array = interpreter.get_tensor(index)
                    if array.dtype.kind in "fiu" and array.size <= _LARGEST_TENSOR:
                        kept.setdefault(index, []).append(_real(array, details[index]).copy())
        named: dict[str, Any] = {f"t{i}": np.stack(values) for i, values in kept.items()}
        np.savez(ask["target"], **named)
        return {}

    def profile(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        from profnb.lite.process.op_profiler import profile_ops

        model = self.models[ask["id"]]
        if model.is_resized:
            raise RuntimeError("an open batch size runs as batches of 1; give fixed_batch=True")
        values = model.by_index(read_arrays(ask["source"]))
        details = model.interpreter.get_signature_runner().get_input_details()
        names = {name: values[one["index"]] for name, one in details.items()}
        return profile_ops(model.path, model.threads, names, ask["runs"])


def write_examples(path: Path | str, inputs: Iterable[Any]) -> str:
    """Write arrays where a process of ours reads them; the path as text."""
    arrays: dict[str, Any] = {f"x{at}": np.asarray(array) for at, array in enumerate(inputs)}
    np.savez(path, **arrays)
    return str(path)


def read_arrays(path: str) -> list[Any]:
    """Read what ``write_examples`` or a process of ours wrote."""
    with np.load(path, allow_pickle=False) as file:
        return [file[f"x{at}"] for at in range(len(file.files))]


def median_seconds(run: Callable[[], object], burst: int) -> float:
    """Time a few runs behind one that is not timed, for the caches."""
    run()
    taken = []
    for _ in range(burst):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))


def _status(name: str) -> int:
    """A number of kilobytes that Linux tells of this process, in bytes; 0 elsewhere."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    """Answer until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    server = _Server()
    for line in sys.stdin:
        try:
            ask = json.loads(line)
            answer = getattr(server, ask["do"])(ask)
        except (
            RuntimeError, ValueError, TypeError, OSError, ImportError, MemoryError, KeyError, AttributeError,
        ) as error:  # fmt: skip
            answer = {"error": str(error) or type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
