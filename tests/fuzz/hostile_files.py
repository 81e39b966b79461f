"""Hostile files: what happens when damaged ones are opened and everything is asked of them.

    python tests/fuzz/hostile_files.py --out /tmp/fuzz --count 100000      # goes on where it was stopped
    python tests/fuzz/hostile_files.py --out /tmp/fuzz --table
    python tests/fuzz/hostile_files.py --out /tmp/bounds --count 10000 --bounds   # Numba's bounds checks on
    python tests/fuzz/hostile_files.py --out /tmp/readers --count 150000 --readers   # each is read and asked nothing else
    python tests/fuzz/hostile_files.py --out /tmp/fuzz --show xplane 17    # one case, here and now

Each case is opened by a worker process with a limit on processor time (10 s a case) and memory. A worker says
which case it begins, so that a crash, a hang or a death for memory belongs to one; the next worker goes on
after it. What opens must hold: categories sum to the step, self time is at most total time, no text has a
control character, no payload stands in the page as markup. Every case that is neither refused as documented
nor opened is made as small as it stays what it is, and written to ``OUT/FORMAT-NUMBER.bin``.

Results are lines of ``OUT/FORMAT.jsonl``; only outcomes other than refused and opened are kept one by one.
"""

import argparse
import collections
import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from fuzz_seeds import DATA, FORMATS, PAYLOAD, SUFFIX, case

_CPU_S, _MEMORY_BYTES = 10, 6 << 30
_CHUNK, _SAVED_EVERY = 500, 50
_MOST_TRIES = 150
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]")


class BrokenInvariantError(Exception):
    """Something that opened is not what it must be."""


def read_alone(file):
    """Read one file, and each column and stat of its events."""
    from profnb.trace.files import read_file
    from profnb.trace.model import Trace

    trace = read_file(file)
    if not isinstance(trace, Trace):
        return
    events = trace.events
    _claim((events.duration_ps >= 0).all() and (events.begin_ps >= 0).all(), "a time below zero")
    names = {name for event in range(min(len(events), 100)) for name in trace.stats.of_event(event)}
    for name in names:
        for column in (trace.stats.integers(name), trace.stats.texts(name)):
            _claim(len(column.events) == len(column.values), "a column of two lengths")
    _claim(all(char.isprintable() for note in trace.left_out for char in note), "a control character in a note")


def open_file(kind, data, folder, *, is_whole=True, is_read_alone=False):
    """Open one file and ask everything of it: "refused" or "opened"; raises whatever else happens.

    Args:
        kind: One of ``FORMATS``.
        data: Its bytes.
        folder: Where to write it.
        is_whole: Whether the page and the Chrome trace are written too, which take longest.
        is_read_alone: Whether nothing is asked of what was read, so that thousands take a minute.
    """
    import profnb
    from profnb.core.errors import TraceFormatError

    file = folder / f"case{SUFFIX[kind]}"
    if kind == "notebook":
        from profnb.report.notebook_file import clean_notebook

        file.write_bytes(data)
        try:
            clean_notebook(file)
        except ValueError:
            _claim(file.read_bytes() == data, "a refused notebook was changed")
            return "refused"
        finally:
            _claim([path.name for path in folder.iterdir()] == [file.name], "files were left")
        return "opened"
    if kind == "sidecar":
        file = folder / "case.xplane.pb"
        file.write_bytes((DATA / "cpu-cnn.xplane.pb").read_bytes())
        (folder / "case.profnb.json.gz").write_bytes(gzip.compress(data, 1))
    else:
        file.write_bytes(data)
    try:
        read_alone(file) if is_read_alone else _examine(profnb.load(file), folder, is_whole=is_whole)
    except TraceFormatError:  # stats are decoded when they are asked for
        return "refused"
    return "opened"


def _claim(is_so, what):
    if not is_so:
        raise BrokenInvariantError(what)


def _examine(profile, folder, *, is_whole):
    import numpy as np

    text = profile.summary()
    _claim(all(char.isprintable() or char == "\n" for char in text + repr(profile)), "a control character in the text")
    if profile.has_trace:
        study = profile.study
        steps, broken_down = study.steps, study.breakdown
        durations = steps.end_ps - steps.begin_ps
        _claim(np.array_equal(broken_down.picoseconds.sum(1), durations), "categories do not sum to the step")
        _claim((broken_down.picoseconds >= 0).all(), "a category below zero")
        ops = profile.ops
        _claim((ops.self_us <= ops.total_us + 1e-6).all(), "self time above total time")
        profile.source_lines, profile.kernels, profile.memory, profile.layers, profile.input_pipeline, profile.events
    _claim(len(profile.python) >= 0, "no table of Python")
    if is_whole:
        page = profile.to_html(folder / "page.html").read_text("utf-8")
        _claim(PAYLOAD not in page, "a payload in the page")
        _claim(not _CONTROLS.search(re.sub(r"<script>.*?</script>", "", page, flags=re.S)), "a control character in the page")
        if profile.has_trace:
            profile.to_chrome_trace(folder / "out.json")


def outcome_of(kind, number, folder, **how):
    """What came of one case, and why where it is not as it should be."""
    for path in folder.iterdir():
        path.unlink()
    data = case(kind, number)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return open_file(kind, data, folder, **how), ""
    except BrokenInvariantError as error:
        return "broken invariant", str(error)
    except Exception as error:  # noqa: BLE001 - what is looked for
        at = traceback.extract_tb(error.__traceback__)[-1]
        return "wrong exception", f"{type(error).__name__}: {str(error)[:150]} ({Path(at.filename).name}:{at.lineno})"


# The worker.


def _work(arguments):
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="profnb-fuzz-") as name:
        folder = Path(name)
        for number in range(arguments.first, arguments.last):
            print("begin", number, flush=True)
            spent = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(spent.ru_utime + spent.ru_stime) + _CPU_S + (60 if number == arguments.first else 0)  # the first loads kernels
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            outcome, why = outcome_of(arguments.kind, number, folder, is_whole=number % arguments.whole == 0, is_read_alone=arguments.readers)
            print("end", json.dumps([number, outcome, why]), flush=True)


# The parent.


def _run_worker(kind, first, last, environment):
    """Results of a range of cases: (number, outcome, why); a worker that died ends it early."""
    command = [sys.executable, __file__, *environment["PROFNB_FUZZ"].split(), "--work", kind, str(first), str(last)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    begun = None
    try:
        for text in worker.stdout:
            word, _, rest = text.partition(" ")
            if word == "begin":
                begun = int(rest)
            elif word == "end":
                begun = None
                yield tuple(json.loads(rest))
    finally:
        worker.kill() if worker.poll() is None and sys.exc_info()[0] else None
        code = worker.wait()
    if begun is not None:
        died = "hang" if code in (-signal.SIGXCPU, -signal.SIGKILL) else "crash"
        yield begun, died, f"exit status {code}"


def _minimised(kind, number, outcome, why, environment):
    """The case, with pieces taken out as long as the same comes of it."""
    data = case(kind, number)
    tries, size = 0, len(data) // 2
    while size and tries < _MOST_TRIES:
        at = 0
        while at < len(data) and tries < _MOST_TRIES:
            tries += 1
            shorter = data[:at] + data[at + size :]
            if _outcome_in_a_process(kind, shorter, environment) == (outcome, why.partition(":")[0]):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _outcome_in_a_process(kind, data, environment):
    with tempfile.TemporaryDirectory(prefix="profnb-fuzz-") as name:
        file = Path(name) / "data"
        file.write_bytes(data)
        command = [sys.executable, __file__, "--file", kind, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return ("hang" if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else "crash"), f"exit status {done.returncode}"
    outcome, why = json.loads(done.stdout.splitlines()[-1])
    return outcome, why.partition(":")[0]


def _file(arguments):
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (4 * _CPU_S, 4 * _CPU_S))
    with tempfile.TemporaryDirectory(prefix="profnb-fuzz-") as name:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = open_file(arguments.kind, Path(arguments.path).read_bytes(), Path(name)), ""
        except BrokenInvariantError as error:
            found = "broken invariant", str(error)
        except Exception as error:  # noqa: BLE001 - what is looked for
            found = "wrong exception", f"{type(error).__name__}: {error}"
    print(json.dumps(found))


def _run(arguments):
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": "-1", "PROFNB_FUZZ": f"--whole {arguments.whole} {'--readers' if arguments.readers else ''}"}
    if arguments.bounds:
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(out / "cache")}
    end = time.monotonic() + arguments.seconds if arguments.seconds else float("inf")
    states = {kind: _State(out, kind) for kind in arguments.formats}
    for state in states.values():
        state.next = max(state.next, arguments.first)
    share = arguments.count // len(states)
    chunk = 20 * _CHUNK if arguments.readers else _CHUNK  # a worker's begin takes as long as 10,000 files
    while time.monotonic() < end:
        waiting = [state for state in states.values() if state.next < share]
        if not waiting:
            break
        state = min(waiting, key=lambda state: state.next)
        for number, outcome, why in _run_worker(state.kind, state.next, min(state.next + chunk, share), environment):
            state.note(number, outcome, why)
            if outcome not in ("refused", "opened"):
                small = _minimised(state.kind, number, outcome, why, environment) if state.is_new(why) else case(state.kind, number)
                (out / f"{state.kind}-{number}.bin").write_bytes(small)
            if time.monotonic() > end:
                break
        state.save()
    _table(arguments)


class _State:
    """How far one format has come."""

    def __init__(self, out, kind):
        self.kind, self.file, self.odd = kind, out / f"{kind}.json", out / f"{kind}.jsonl"
        known = json.loads(self.file.read_text()) if self.file.exists() else {"next": 0, "counts": {}}
        self.next, self.counts = known["next"], collections.Counter(known["counts"])
        self.reasons = {json.loads(text)[2] for text in self.odd.read_text().splitlines()} if self.odd.exists() else set()

    def is_new(self, why):
        is_new = why not in self.reasons
        self.reasons.add(why)
        return is_new

    def note(self, number, outcome, why):
        self.counts[outcome] += 1
        self.next = number + 1
        if outcome not in ("refused", "opened"):
            with self.odd.open("a") as file:
                file.write(json.dumps([number, outcome, why]) + "\n")
        if self.next % _SAVED_EVERY == 0:
            self.save()

    def save(self):
        self.file.write_text(json.dumps({"next": self.next, "counts": self.counts}))


def _table(arguments):
    out = Path(arguments.out)
    headings = ("refused", "opened", "wrong exception", "broken invariant", "crash", "hang")
    print(f"{'format':14}{'tried':>9}" + "".join(f"{heading:>18}" for heading in headings))
    whole = collections.Counter()
    for kind in FORMATS:
        state = _State(out, kind)
        whole += state.counts
        print(f"{kind:14}{sum(state.counts.values()):9,}" + "".join(f"{state.counts[heading]:18,}" for heading in headings))
    print(f"{'all':14}{sum(whole.values()):9,}" + "".join(f"{whole[heading]:18,}" for heading in headings))
    for kind in FORMATS:
        odd = out / f"{kind}.jsonl"
        reasons = collections.Counter(tuple(json.loads(text)[1:]) for text in odd.read_text().splitlines()) if odd.exists() else {}
        for (outcome, why), count in sorted(reasons.items(), key=lambda pair: -pair[1])[:20]:
            print(f"{kind}: {count} x {outcome}: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="/tmp/fuzz")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case of each format")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this long")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--bounds", action="store_true", help="with Numba's bounds checks on")
    parser.add_argument("--whole", type=int, default=1, help="write the page and the Chrome trace of each so many cases, which take longest")
    parser.add_argument("--readers", action="store_true", help="only read each case, and ask nothing of it")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--show", nargs=2, metavar=("FORMAT", "NUMBER"))
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--file", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        kind, first, last = arguments.work
        _work(argparse.Namespace(kind=kind, first=int(first), last=int(last), whole=arguments.whole, readers=arguments.readers))
    elif arguments.file:
        _file(argparse.Namespace(kind=arguments.file[0], path=arguments.file[1]))
    elif arguments.show:
        with tempfile.TemporaryDirectory() as name:
            print(open_file(arguments.show[0], case(arguments.show[0], int(arguments.show[1])), Path(name)))
    elif arguments.table:
        _table(arguments)
    else:
        _run(arguments)


if __name__ == "__main__":
    main()
