"""The process that interprets, seen from here: started, asked, and said in a sentence where it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from profnb.core.errors import CaptureError

_SECONDS = 600


class InterpreterRefusalError(CaptureError):
    """The interpreter refused what it was asked, or its process ended."""


def pick_engine() -> str:
    """Which package interprets: "litert" or "tensorflow".

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
    """The environment of a process of ours: it finds what we find, and uses no accelerator."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONIOENCODING": "utf-8",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def why_it_ended(code: int | None) -> str:
    """How a process ended: "ended with signal SIGSEGV"."""
    if code is not None and code < 0:
        names = {one.value: one.name for one in signal.Signals}
        return f"ended with signal {names.get(-code, -code)}"
    return f"ended with status {code}"


class InterpreterProcess:
    """A process with interpreters; ``with`` ends it."""

    def __init__(self, engine: str) -> None:
        """Start it."""
        self.engine = engine
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(  # noqa: S603 - our own module, by this Python
            [sys.executable, str(Path(__file__).with_name("interpreting.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=own_environment(),
            encoding="utf-8",
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """The answer to a question.

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
            raise InterpreterRefusalError(_first_sentence(answer["error"]))
        return answer

    def __enter__(self) -> "InterpreterProcess":  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
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
        self._errors.close()


def _first_sentence(error: str) -> str:
    """What an interpreter says, in a line."""
    return " ".join(error.split())[:300].rstrip(".")
