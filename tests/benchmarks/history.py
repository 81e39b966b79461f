"""How often the history's alarm is false, how soon it is right, and how often a comparison's interval holds the truth.

python tests/benchmarks/history.py [SERIES]      by simulation; 20,000 series by default, some minutes
python tests/benchmarks/history.py --file        what the file bears: 8 processes that write 1,000 runs each, 300 kills, 10,000 runs

Prints the rates that docs/history.md has: false alarms of steady series of 50 runs, by kind of noise; slow-downs of 10 % at
3 % noise found with the third and the fourth slow run, by how many runs were before them; and of comparisons with one or two
runs a side, whose spread past runs tell, how many intervals hold the truth and how many equal programs are called different.
"""

import math
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np

from profnb.compare.estimates import THIS_CODE, UNKNOWN_SPREAD, Spread
from profnb.compare.speedup import RunSet, compare_runs
from profnb.history.change_points import find_changes
from profnb.history.showing import open_history
from profnb.history.store import Run, read_runs, write_run

NOISE, SLOWER, RUNS = 0.03, 1.1, 50
ROOT = Path(__file__).parents[2]


def noise(kind, count, random):
    """The logarithms of a series' runs; their standard deviation is 3 %, outliers apart."""
    normal = random.normal(0, NOISE, count)
    if kind == "heavy tails (Student's t, 3)":
        return random.standard_t(3, count) * NOISE / math.sqrt(3)
    if kind == "1 run in 20 is slowed by 15 %":
        return normal + (random.random(count) < 0.05) * random.exponential(0.15, count)
    if kind == "each run depends on the one before (0.3)":
        series = normal.copy()
        for at in range(1, count):
            series[at] = 0.3 * series[at - 1] + math.sqrt(1 - 0.09) * normal[at]
        return series
    return normal


KINDS = ("normal", "heavy tails (Student's t, 3)", "1 run in 20 is slowed by 15 %", "each run depends on the one before (0.3)")


def false_alarms(kind, series, random):
    """Of steady series, how many alarms: slow-downs that are none."""
    return sum(any(change.ratio > 1 for change in find_changes(np.exp(noise(kind, RUNS, random)))) for _ in range(series)) / series


def found_within(before, series, random):
    """Of series that become slower, how many are found with the third, and with the third or fourth slow run."""
    counts = [0, 0]
    for _ in range(series):
        times = np.exp(random.normal(0, NOISE, before + 4))
        times[before:] *= SLOWER
        seen = [change.found_at - before + 1 for change in find_changes(times) if change.ratio > 1 and change.found_at >= before]
        for at, runs in enumerate((3, 4)):
            counts[at] += any(one <= runs for one in seen)
    return [count / series for count in counts]


def covered(past, count, ratio, spread_of_runs, trials, random):
    """Of comparisons with so many past runs (0: nobody knows) and runs a side: intervals that hold the truth, and claims."""
    held = claims = 0
    for trial in range(trials):
        spread = UNKNOWN_SPREAD
        if past:
            spread = Spread(float(random.normal(0, spread_of_runs, past).var(ddof=1)), past - 1, THIS_CODE)
        sides = [
            RunSet("x", tuple(level * np.exp(random.normal(0, spread_of_runs)) * random.normal(1, 0.02, 60) for _ in range(count)))
            for level in (1.0, ratio)
        ]
        difference = compare_runs(*sides, trial, (spread, spread))
        held += difference.low <= ratio <= difference.high
        claims += difference.is_different
    return held / trials, claims / trials


def written_by(file, count, processes, begin=0):
    """Processes that each write so many runs, and print the number of each one that is kept."""
    code = f"""
        import sys; from pathlib import Path
        from profnb.history.store import Run, write_run
        for number in range({count}):
            write_run(Path(sys.argv[1]), Run(key=f"{{sys.argv[2]}}-{{number}}", cell="abcd", tree=[[-1, "cell", "", 0, 1.0]] * 40))
            print(number, flush=True)
    """
    return [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(file), str(begin + at)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for at in range(processes)
    ]


def kept_of_many(file, count, processes):
    """How many runs are kept of those that processes wrote at once."""
    for process in (started := written_by(file, count, processes)):
        process.communicate()
    assert [process.returncode for process in started] == [0] * processes
    return len({run.key for run in read_runs(file)})


def kept_of_killed(file, kills):
    """Runs that writers said were kept before they were killed, runs that are kept, and what SQLite says of the file."""
    said = 0
    for kill in range(kills):
        (process,) = written_by(file, 10_000, 1, begin=kill)
        for _ in range(1 + kill % 7):
            process.stdout.readline()
            said += 1
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return said, len(read_runs(file)), sqlite3.connect(file).execute("PRAGMA integrity_check").fetchone()[0]


def fill(file, count):
    """A file of so many runs in 20 series."""
    write_run(file, Run(key="first", cell="0"))
    names = 'cell, label, machine, versions, settings, runs, steps, cell_steps, median_ms, low_ms, high_ms, wall_ms, advice, "commit"'
    times = 2 * np.exp(np.random.default_rng(4).normal(0, NOISE, count))
    database = sqlite3.connect(file)
    database.executemany(
        f"INSERT INTO runs (key, {names}) VALUES (?, ?, '', '', '{{}}', '{{}}', 1, 1, 100, ?, ?, ?, ?, '[]', '')",
        [(f"more {at}", str(at % 20), ms, 0.9 * ms, 1.1 * ms, 100 * ms) for at, ms in enumerate(times.tolist())],
    )
    database.commit()
    database.close()


def file_bears():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.sqlite"
        print(f"8 processes wrote 1,000 runs each; kept: {kept_of_many(file, 1000, 8):,}")
        killed = file.with_name("killed.sqlite")
        print("300 kills during writes; runs said to be kept {:,}, kept {:,}, integrity {}".format(*kept_of_killed(killed, 300)))
        large = file.with_name("large.sqlite")
        fill(large, 10_000)
        took = []
        for _ in range(6):
            began, used = time.perf_counter(), time.process_time()
            count = len(open_history(path=large).rows)
            took.append((time.perf_counter() - began, time.process_time() - used))
        print(f"{count:,} runs read and judged in {min(took)[0]:.2f} s, {min(took)[1]:.2f} s of a processor; at first {took[0][0]:.2f} s")


def main():
    if sys.argv[1:] == ["--file"]:
        file_bears()
        return
    series, random = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, np.random.default_rng(0)
    print(f"False alarms in a steady series of {RUNS} runs ({series:,} series):")
    for kind in KINDS:
        print(f"  {kind}: {false_alarms(kind, series, random):.2%}")
    print("A slow-down of 10 % at 3 % noise, found with the third slow run, and with the third or fourth:")
    for before in (10, 20, 46, 97, 200):
        third, fourth = found_within(before, series // 10, random)
        print(f"  behind {before} runs: {third:.1%}, {fourth:.1%}")
    print("Comparisons: intervals that hold the truth, and equal programs that are called different:")
    for past, count, spread in ((3, 1, 0.04), (10, 1, 0.04), (30, 1, 0.04), (10, 2, 0.04), (10, 1, 0.1), (0, 1, 0.03), (0, 1, 0.06)):
        told = [covered(past, count, ratio, spread, max(series // 20, 20), random) for ratio in (1.0, 1.1)]
        known = f"{past} past runs" if past else "nobody knows"
        print(f"  {known}, {count} run(s) a side, runs vary by {spread:.0%}: {np.mean([held for held, _ in told]):.1%}, {told[0][1]:.1%}")


if __name__ == "__main__":
    main()
