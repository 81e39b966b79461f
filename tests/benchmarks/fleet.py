"""Many hosts and many traces: what 64 hosts of 24 MB cost, and how an executor's throughput is to one process'.

    python tests/benchmarks/fleet.py hosts [HOSTS] [MEGABYTES]
    python tests/benchmarks/fleet.py traces [TRACES] [WORKERS]

Traces are generated: four kinds of host, of which the others are links. ``hosts`` gives the peak of memory over what the
imports take, the time of merging the hosts' parts, what a part weighs and the report's size, each beside its budget.
``traces`` summarizes a folder of small traces in one process, on a process pool, and on Dask's workers where Dask is
installed, each started before it is timed; throughput is a ratio to the one process.
"""

import os
import pickle
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "fleet")]

from made_hosts import MS, hosts_of  # noqa: E402
from traces import message, varint  # noqa: E402

_STEPS, _KINDS, _BYTES_OF_EVENT = 2000, 4, 20


def padded(values, width):
    """Numbers as varints of a fixed width, which the format allows."""
    shifts = 7 * np.arange(width, dtype=np.uint64)
    parts = (np.asarray(values, np.uint64)[:, None] >> shifts).astype(np.uint8) & 0x7F
    parts[:, :-1] |= 0x80
    return parts


def filler(count, span_ps):
    """A thread of short events, as bytes of a plane of the host."""
    begin = (np.arange(count) * (span_ps // count)).astype(np.uint64)
    body = np.concatenate([padded(np.full(count, 1), 1), np.full((count, 1), 0x10), padded(begin, 8), np.full((count, 1), 0x18), padded(np.full(count, span_ps // count // 2), 6)], axis=1)
    heads = np.tile(np.array([0x22, body.shape[1] + 1, 0x08], np.uint8), (count, 1))
    events = np.concatenate([heads, body.astype(np.uint8)], axis=1).tobytes()
    line = message((1, 99), (2, "tf_pool/1"), (3, 0)) + events
    name = message((1, 1), (2, message((1, 1), (2, "filler"))))
    return message((2, "/host:CPU"), (3, line), (4, name))


def make_hosts(folder, hosts, megabytes):
    """A run's folder of so many hosts, the third of which is slow."""
    rng = np.random.default_rng(0)
    works = 10 + rng.integers(0, 3, (_KINDS, _STEPS))
    works[2] += 15
    kinds = hosts_of(folder / "kinds", works.tolist())
    more = filler(int(megabytes * 1e6) // _BYTES_OF_EVENT, _STEPS * 40 * MS)
    run = folder / "run"
    run.mkdir()
    for file in kinds:
        with file.open("ab") as opened:
            opened.write(b"\x0a" + varint(len(more)) + more)
    for host in range(hosts):
        kind = host if host < _KINDS else (0, 1, 3)[host % 3]
        os.link(kinds[kind], run / f"worker-{host}.xplane.pb")
    return run, kinds[0].stat().st_size


def status(key):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def measure_hosts(hosts=64, megabytes=24):
    import profnb
    from profnb.fleet.merging import find_meeting
    from profnb.fleet.merging import merge
    from profnb.warm import warm_up

    warm_up()
    with tempfile.TemporaryDirectory() as name:
        run, size = make_hosts(Path(name), hosts, megabytes)
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
        before, begin = status("VmRSS"), time.process_time()
        fleet = profnb.load_fleet(run)
        read = time.process_time() - begin
        digests = fleet._digests
        peak = status("VmHWM") - before
        spent = []
        for _ in range(3):
            begin = time.process_time()
            merge(find_meeting(digests).digests)
            spent.append(time.process_time() - begin)
        html = len(fleet._repr_mimebundle_()["text/html"].encode())
        begin = time.process_time()
        fleet.timeline()
        drawn = time.process_time() - begin
        steps = len(digests[0].step_begin_ps)
        rows = (
            ("peak of memory over the imports'", f"{peak / 1e6:.0f} MB", "<= 1,000 MB", peak <= 1e9),
            ("merge of all parts, CPU", f"{min(spent):.2f} s", "<= 0.5 s", min(spent) <= 0.5),
            ("a host's part", f"{len(pickle.dumps(digests[0])) / 1e3:.0f} kB", f"<= 20 kB + 100 B x {steps} steps", len(pickle.dumps(digests[0])) <= 20e3 + 100 * steps),
            ("report", f"{html / 1e3:.0f} kB", "<= 1,200 kB", html <= 1.2e6),
        )  # fmt: skip
        print(f"\n{len(fleet)} hosts of {size / 1e6:.1f} MB; read in {read:.1f} s of CPU, drawn on one axis in {drawn:.1f} s.")
        print(fleet.verdict)
        for what, value, budget, holds in rows:
            print(f"{what:34} {value:>10}   {budget:34} {'holds' if holds else 'DOES NOT HOLD'}")


def measure_traces(count=1000, workers=2):
    import profnb
    from profnb.many_traces.summaries import summarize_trace

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = hosts_of(folder / "kinds", (10 + np.random.default_rng(0).integers(0, 3, (_KINDS, 100))).tolist())
        paths = [folder / f"run-{at}.xplane.pb" for at in range(count)]
        for at, path in enumerate(paths):
            os.link(kinds[at % _KINDS], path)
        paths[count // 2].unlink()
        paths[count // 2].write_bytes(b"broken")

        def timed(executor):
            if executor is not None:
                list(executor.map(summarize_trace, [str(kinds[0])] * 4 * workers))  # imports, compiled kernels
            begin = time.perf_counter()
            rows = profnb.summarize(paths, executor=executor)
            assert len(rows) == count and (rows.error != "").sum() == 1
            return count / (time.perf_counter() - begin)

        summarize_trace(str(kinds[0]))
        alone = timed(None)
        print(f"{count} traces of {kinds[0].stat().st_size / 1e3:.0f} kB, {workers} workers, one of the traces broken")
        print(f"one process        {alone:8.1f} traces/s")
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            print(f"process pool       {timed(pool) / alone:8.2f} x")
        try:
            from distributed import Client
        except ImportError:
            print("Dask               is not installed")
            return
        with Client(n_workers=workers, threads_per_worker=1, dashboard_address=None) as client:
            print(f"Dask               {timed(client.get_executor()) / alone:8.2f} x")


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["hosts"]
    {"hosts": measure_hosts, "traces": measure_traces}[what](*map(int, numbers))
