"""Running processes traced from outside: addresses, what goes wrong, and two real ones over loopback."""

import contextlib
import os
import socket
import subprocess
import sys
import textwrap

import pytest

import profnb
from profnb.capture.profiler.tensorflow_door import parse_addresses
from profnb.many_traces.fleets import trace_remotely


def test_addresses_are_read():
    assert parse_addresses("grpc://a:1,b:65535") == ["a:1", "b:65535"]
    assert parse_addresses("grpc://a:1, grpc://[::1]:2") == ["a:1", "[::1]:2"]


@pytest.mark.parametrize("url", ["grpc://", "grpc://a", "grpc://a:", "grpc://a:0", "grpc://a:65536", "grpc://a:1,", "grpc://a:1/logs", "grpc://:5"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError, match="An address is HOST:PORT"):
        trace_remotely(url)


def test_what_is_no_port_or_time_is_refused():
    with pytest.raises(ValueError, match="from 1 to 65535"):
        profnb.serve(0)
    with pytest.raises(ValueError, match="seconds must be positive"):
        trace_remotely("grpc://localhost:1", 0)


SERVED = """
    import os, sys
    import tensorflow as tf
    import profnb
    @tf.function
    def train_step(x):
        return tf.reduce_sum(x @ x)
    train_step(tf.ones((64, 64)))
    profnb.serve(int(sys.argv[1]))
    print("serving", flush=True)
    while os.getppid() == int(sys.argv[2]):
        train_step(tf.ones((64, 64)))
"""


def held_port():
    """A socket that listens to nobody and holds a port for a server that shares it, as TensorFlow's do, and from all that do not."""
    for family, any_address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        with contextlib.suppress(OSError):  # a machine may have no IPv6
            holder = socket.socket(family)
            try:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                holder.bind((any_address, 0))
            except OSError:
                holder.close()
                raise
            return holder
    raise AssertionError("there is no port to be had")


def trace_steps(url):
    """What is traced in a window in which each process began a step: twice as long a one, where one stood still all the while."""
    for seconds in (1, 2, 4, 8, 16, 32):
        traced = trace_remotely(url, seconds)
        profiles = [traced[host] for host in traced] if isinstance(traced, profnb.Fleet) else [traced]
        if all("train_step" in set(profile.steps.phase) for profile in profiles):
            break
    return traced


@pytest.mark.tensorflow
@pytest.mark.long
def test_two_running_processes_are_traced_in_one_window():
    holders = [held_port() for _ in range(2)]
    ports = [holder.getsockname()[1] for holder in holders]
    code = textwrap.dedent(SERVED)
    jobs = [subprocess.Popen([sys.executable, "-c", code, str(port), str(os.getpid())], stdout=subprocess.PIPE, text=True) for port in ports]
    try:
        assert [job.stdout.readline() for job in jobs] == ["serving\n"] * 2
        fleet = trace_steps(",".join(f"grpc://localhost:{port}" for port in ports))
        assert isinstance(fleet, profnb.Fleet) and len(fleet) == 2
        assert not fleet.has_met and any("collective" in note for note in fleet.notes)  # they exchange nothing
        host = next(iter(fleet))
        assert set(fleet[host].steps.phase) == {"train_step"}
        alone = trace_steps(f"grpc://localhost:{ports[0]}")
        assert isinstance(alone, profnb.Profile) and set(alone.steps.phase) == {"train_step"}
    finally:
        for job in jobs:
            job.kill()
            job.wait()
        for holder in holders:
            holder.close()
    with pytest.raises(profnb.CaptureError, match="profnb.serve"):
        trace_remotely(f"grpc://localhost:{ports[0]}", 0.2)
