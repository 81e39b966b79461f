"""The process that interprets, seen from here: started, asked, and said in a sentence where it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from profnb.core.errors import CaptureError
from profnb.lite.lite_data import LiteData
from profnb.lite.process.interpreting import write_examples

_SECONDS = 600


class InterpreterRefusalError(CaptureError):
    """The interpreter refused what it was asked, or its process ended."""


def pick_engine() -> str:
    """Pick the package that interprets: "litert" or "tensorflow".

    Raises:
        CaptureError: Neither is installed.
    """
    for engine, package in (("litert", "ai_edge_litert"), ("tensorflow", "tensorflow")):
        if find_spec(package) is not None:
            return engine
    raise CaptureError(
        "There is no interpreter for .tflite models here: pip install 'profnb[litert]' (ai-edge-litert)."
    )


def own_environment() -> dict[str, str]:
    """Make the environment of a process of ours: it finds what we find, and uses no accelerator."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONIOENCODING": "utf-8",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def why_it_ended(code: int) -> str:
    """Say how a process ended: "ended with signal SIGSEGV"."""
    names = {-one.value: one.name for one in signal.Signals}
    how = f"signal {names.get(code, -code)}" if code < 0 else f"status {code}"
    return f"ended with {how}"


class InterpreterProcess:
    """A process with interpreters; ``with`` ends it."""

    def __init__(self, engine: str) -> None:
        """Start it."""
        self.engine = engine
        self._process = subprocess.Popen(  # noqa: S603 - our own module, by this Python
            [sys.executable, str(Path(__file__).with_name("interpreting.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=own_environment(),
            encoding="utf-8",
        )

    @property
    def is_alive(self) -> bool:
        """It can be asked."""
        return self._process.poll() is None

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Ask it, and wait for the answer.

        Raises:
            InterpreterRefusalError: It is an error, or the process ended before it answered.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(_SECONDS, process.kill)
        limit.start()
        try:
            process.stdin.write(json.dumps({"do": do, "engine": self.engine, **fields}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (BrokenPipeError, OSError):
            line = ""
        finally:
            limit.cancel()
        if not line:
            raise InterpreterRefusalError(f"its process {why_it_ended(process.wait())}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise InterpreterRefusalError(" ".join(answer["error"].split())[:300].rstrip("."))
        return answer

    def __enter__(self) -> "InterpreterProcess":  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what a dead process did not take
                    pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class Bench:
    """The place where models are measured: their interpreter, a folder, the shape of a run.

    Attributes:
        paths: The files of the models, by name.
        batch: Examples of a run.
        folder: Where arrays pass to the interpreters and back.
        engine: Which interpreter runs them.
        version: Its version, once one has run.
        order: Of the arrays of the data, as the interpreters' inputs come.
        notes: What a reader should know of how it was measured.
    """

    paths: Mapping[str, Path]
    batch: int
    folder: Path
    engine: str
    version: str = ""
    order: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def begin(self) -> InterpreterProcess:
        """Start a process of its own, as a broken file may end it."""
        return InterpreterProcess(self.engine)

    def place(self, name: str, threads: int) -> dict[str, Any]:
        """Give what opens the file of a model in an interpreter, and what to call it there."""
        path = str(self.path_of(name))
        return {"id": name, "path": path, "threads": threads, "batch": self.batch}

    def path_of(self, name: str) -> Path:
        """Give the file of a model, whatever number of threads its name ends with."""
        return self.paths.get(name) or self.paths[name.rpartition(", ")[0]]

    def write(self, name: str, data: LiteData, rows: slice) -> str:
        """Write examples for an interpreter to read; the file's path."""
        arrays = [data.inputs[at][rows] for at in self.order]
        narrow = [x.astype(np.float32) if x.dtype == np.float64 else x for x in arrays]
        return write_examples(self.folder / f"{name}.npz", narrow)
