"""Tracing other processes through TensorFlow's profiler service: one window of all of them at once.

The service has no authentication and listens on every interface of the machine (xla profiler_server.cc binds
``[::]``): whoever reaches the port can trace the process, and have it write where it may write. Keep the port
behind a firewall, and reach it through a tunnel: ``ssh -L 6009:localhost:6009 worker``.
"""

from collections.abc import Sequence
from pathlib import Path

from profnb.capture.profiler.profiler_door import first_line
from profnb.core.errors import CaptureError

SCHEME = "grpc://"
_PORTS = range(1, 1 << 16)
_ATTEMPTS = 3


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
    """``grpc://a:1,b:2`` to ``["a:1", "b:2"]``; each may have the scheme again.

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
            "profnb.serve(PORT) and to be at work meanwhile."
        ) from None
    if not any(folder.glob("plugins/profile/*/*.xplane.pb")):
        raise CaptureError(
            f"No trace came from {', '.join(addresses)}: each process has to run profnb.serve(PORT) and to "
            "be at work meanwhile, and to see the same file system as this one."
        )
