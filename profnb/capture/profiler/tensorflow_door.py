"""TensorFlow's profiler: of this process for one capture, and of others through its service.

The capture's is started into a folder of its own, stopped, and its trace kept. The service traces other
processes, one window of all of them at once. It has no authentication and listens on every interface of the
machine (xla profiler_server.cc binds ``[::]``): whoever reaches the port can trace the process, and have it
write where it may write. Keep the port behind a firewall, and reach it through a tunnel:
``ssh -L 6009:localhost:6009 worker``.
"""

import inspect
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from profnb.capture.profiler.profiler_door import Door, find_rank, first_line, log_held_back
from profnb.capture.seams import ALREADY_RUNNING, PROFILER_OPTIONS, START, STOP, TRACE, VERSION
from profnb.capture.source.user_code import is_own_file, outward
from profnb.core.errors import CaptureError
from profnb.core.options import CaptureOptions
from profnb.core.safe_files import folder_prefix

SCHEME = "grpc://"
_PORTS = range(1, 1 << 16)
_ATTEMPTS = 3
_QUIET_S = 0.5
_STARTS = ("_start_taking_over", "start")  # what calls a profiler of another capture


class TensorFlowDoor(Door):
    """Starts and stops TensorFlow's.

    Attributes:
        rank: Which process of its job this is.
        took_over: Whether a session of the code's was stopped, which still means to stop it.
    """

    title = "TensorFlow"
    needed = (START, STOP)

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing is looked up or started yet."""
        super().__init__(options, messages)
        self._log: list[bytes] = []
        self.took_over = False
        self.rank = find_rank(options.rank)
        self._has_told = self._has_warned = False

    def start(self, folder: str) -> None:
        """Start the profiler, taking over a session that is running already."""
        self._announce()
        with log_held_back() as log:
            self._start_taking_over(folder)
        self._log = log

    def mark_step(self, phase: str, step_num: int, **metadata: object) -> Any:
        """A marker in TensorFlow's trace, begun; None where it has none."""
        kind = self._take(TRACE)
        return None if kind is None else kind(phase, step_num=step_num, _r=1, **metadata)

    def mark(self, name: str) -> None:
        """Nothing: TensorFlow's own events tell what it fetches."""

    def stop(self, folder: Path) -> Path | None:
        """Stop it; the trace that it wrote, if any.

        Among others it waits a little first, so that nobody is in a collective any more: all ranks stop at
        one step. That it helps is not shown: 3 of 1,174 stops ended a process then, 9 of 1,255 beside them
        did without waiting (docs/what-was-tried.md).
        """
        if self.rank is not None and self.rank.is_collective:
            time.sleep(_QUIET_S)
        with log_held_back():
            self.functions[1]()
        return self._find_trace(
            folder,
            f"The TensorFlow profiler stopped but left no trace in {self._options.logdir or folder}. Check "
            "that the folder is writable and the disk is not full.",
        )

    def give_back(self) -> None:
        """Start a session for code that means to stop one that was taken over."""
        if self.took_over:
            self.took_over = False
            with log_held_back():
                self.functions[0](tempfile.mkdtemp(prefix=folder_prefix()))

    def note_ignored_options(self) -> None:
        """TensorFlow 2.20 and 2.21 cannot read the options that their own API takes.

        They log it, but a log level may hide that.
        """
        options, default = self._options, CaptureOptions()
        asked = (options.host_level, options.python_tracer, options.device_tracer)
        if asked == (default.host_level, default.python_tracer, default.device_tracer):
            return
        version = str(VERSION.find())
        logged = any(b"_tracer_level expects" in line for line in self._log)
        if logged or version.startswith(("2.20.", "2.21.")):
            self._messages.append(
                f"TensorFlow {version} ignored the profiler options (a defect of 2.20 and 2.21). This trace "
                "has host level 2, the device, and no Python calls."
            )

    def _announce(self) -> None:
        """Say what a process of a job has to know before TensorFlow's profiler starts.

        Stopping, TensorFlow pairs the ends of events with their begins on other threads through pointers that
        may have been freed (TraceMeRecorder::Consume): collectives over gRPC are such events, and between
        one stop of a rank in a hundred and one in twelve ended with SIGSEGV or SIGABRT, also without profnb
        (TensorFlow 2.21; docs/what-was-tried.md). No result can say so afterwards.
        """
        self.tell_of_others()
        if self.rank is None or not self.rank.is_collective or self._has_warned:
            return
        self._has_warned = True
        self._messages.append(
            "At the end of a capture TensorFlow's profiler may end a process with collectives (in our "
            "tests up to one in twelve). Save checkpoints before a capture, and capture few steps."
        )
        if sys.stderr is not None:
            sys.stderr.write(f"profnb: {self._messages[-1]}\n")
            sys.stderr.flush()

    def tell_of_others(self) -> None:
        """Say that others are not shown here."""
        if self.rank is None or self._has_told:
            return
        self._has_told = True
        many = f" of {self.rank.processes:,}" if self.rank.processes else ""
        kept = "" if self._options.logdir else " Let every process write to the same logdir."
        self._messages.append(
            f"This shows process {self.rank.name}{many} alone. profnb.load_fleet(logdir) shows all.{kept}"
        )
        if not self.rank.is_collective:
            self._messages.append(
                "This job has parameter servers, so workers have no common steps. The steps here are of this "
                "process alone. Steps of a coordinator are the functions that run on workers."
            )

    def _start_taking_over(self, folder: str) -> None:
        start, stop = self.functions
        asked = self._options
        levels = (asked.host_level, int(asked.python_tracer), int(asked.device_tracer))
        options = self._take(PROFILER_OPTIONS)
        if options is not None:
            options = options(**dict(zip(PROFILER_OPTIONS.keywords, levels, strict=True)))
        already_running = self._take(ALREADY_RUNNING) or ()
        try:
            start(folder, options)
        except already_running:
            stop()
            self.took_over = True
            self._messages.append(
                "A TensorFlow profiler from earlier code was still running. The earlier trace is in its own "
                "logdir, and this capture started."
            )
            start(folder, options)


def is_called_by_a_capture() -> bool:
    """Tell if the code that starts a profiler is a capture's, inside of the code that another surrounds."""
    codes = (frame.f_code for frame in outward(inspect.currentframe()))
    ours = takewhile(lambda code: is_own_file(code.co_filename), codes)
    return any(code.co_name in _STARTS for code in ours)


def serve(port: int) -> None:
    """Let this process be traced from a notebook: ``%tfprofile grpc://localhost:PORT -t 2``.

    Args:
        port: Where to listen. Nobody is asked who he is, on any interface: let a firewall guard the port.

    Raises:
        ValueError: It is no port.
        CaptureError: TensorFlow did not start its service; the message says why.
    """
    if port not in _PORTS:
        raise ValueError(f"A port is from 1 to {_PORTS[-1]}, got {port}.")
    import tensorflow as tf

    try:
        tf.profiler.experimental.server.start(port)
    except Exception as error:  # noqa: BLE001 - whatever TensorFlow raises
        raise CaptureError(
            f"TensorFlow's profiler service did not start on port {port} ({first_line(error)})."
        ) from None


def parse_addresses(url: str) -> list[str]:
    """Split ``grpc://a:1,b:2`` to ``["a:1", "b:2"]``; each may have the scheme again.

    Raises:
        ValueError: One is not HOST:PORT.
    """
    listed = [part.strip().removeprefix(SCHEME) for part in url.split(",")]
    for address in listed:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port[:6]) not in _PORTS or "/" in address:
            raise ValueError(f"An address is HOST:PORT, got {address!r}.")
    return listed


def trace_processes(addresses: Sequence[str], seconds: float, folder: Path) -> None:
    """Trace processes that ``serve``, all in one window, into a logdir that they and we see.

    Args:
        addresses: HOST:PORT of each.
        seconds: How long.
        folder: The logdir.

    Raises:
        ValueError: The time is not positive.
        CaptureError: Nobody answered, or nothing ran.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, got {seconds}.")
    import tensorflow as tf

    service = ",".join(f"{SCHEME}{address}" for address in addresses)
    try:
        tf.profiler.experimental.client.trace(
            service, str(folder), round(seconds * 1000), num_tracing_attempts=_ATTEMPTS
        )
    except Exception as error:  # noqa: BLE001 - likewise
        raise CaptureError(
            f"Tracing {', '.join(addresses)} failed ({first_line(error)}). Each process has to run "
            "profnb.serve(PORT) and work during the capture."
        ) from None
    if not any(folder.glob("plugins/profile/*/*.xplane.pb")):
        raise CaptureError(
            f"No trace came from {', '.join(addresses)}. Each process has to run profnb.serve(PORT), work "
            "during the capture, and see the file system of this process."
        )
