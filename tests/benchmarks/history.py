"""How often the history's alarm is false, how soon it is right, and how often a comparison's interval holds the truth.

python tests/benchmarks/history.py [SERIES]      by simulation; 20,000 series by default, some minutes
python tests/benchmarks/history.py --runs [N]    by how much two runs of one program differ, on this machine and in recorded pairs; 12 runs by default
python tests/benchmarks/history.py --cell FOLDER [N]    one cell run N times, 40 by default, ten times a process; what pairs of its runs say
python tests/benchmarks/history.py --file        what the file bears: 8 processes that write 1,000 runs each, 300 kills, 10,000 runs

Prints the rates that docs/history.md has: false alarms of steady series of 50 runs, by kind of noise; slow-downs of 10 % at
3 % noise found with the third and the fourth slow run, by how many runs were before them; and of comparisons with one or two
runs a side, whose spread past runs tell, how many intervals hold the truth and how many equal programs are called different.
"""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np

from profnb.compare.estimates import UNKNOWN_SPREAD
from profnb.compare.speedup import RunSet, compare_runs, estimate_step
from profnb.history.change_points import find_changes
from profnb.history.series import spread_of_runs
from profnb.history.showing import open_history
from profnb.history.store import Run, read_runs, write_run

NOISE, SLOWER, RUNS = 0.03, 1.1, 50
RECORDED = (0.009, 0.008, 0.025, 0.004, 0.015, 0.042, 0.006, 0.035)  # by how much runs of recorded programs vary (--runs)
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


def told_by_others(random):
    """What the history tells of code that it has not, and how that varies: five other codes, of six runs each."""
    runs = [
        Run(key=f"{code}-{at}", cell=str(code), median_ms=float(np.exp(random.normal(0, spread))))
        for code, spread in enumerate(random.choice(RECORDED, 5))
        for at in range(6)
    ]
    return spread_of_runs(runs, "new", ""), float(random.choice(RECORDED))


def covered(past, count, ratio, spread_seen, trials, random):
    """Of comparisons with so many past runs and runs a side: intervals that hold the truth, and claims.

    With 0 past runs nobody knows how runs vary; with -1 other codes tell it. A spread of 0 is that of a recorded program.
    """
    held = claims = 0
    for trial in range(trials):
        spread, spread_of_run = UNKNOWN_SPREAD, spread_seen or float(random.choice(RECORDED))
        if past > 0:
            before = np.exp(random.normal(0, spread_of_run, past)).tolist()
            spread = spread_of_runs([Run(key=str(at), cell="it", median_ms=ms) for at, ms in enumerate(before)], "it", "")
        if past < 0:
            spread, spread_of_run = told_by_others(random)
        sides = [
            RunSet("x", tuple(level * np.exp(random.normal(0, spread_of_run)) * random.normal(1, 0.02, 60) for _ in range(count)))
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
        from profnb.history import store
        from profnb.history.store import Run, write_run
        store._PATIENCE_S = 120  # a user waits for 5 s, no write of many on a busy machine
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


def small_programs():
    """A step of each program, by its name."""
    random = np.random.default_rng(0)
    square, large, table = random.random((300, 300)), random.random(2_000_000), random.integers(0, 9, 30_000).tolist()
    tf = import_if_there("tensorflow")
    programs = {
        "a product of matrices": lambda: square @ square,
        "a copy of 16 MB": large.copy,
        "a sort": lambda: np.sort(large[:100_000]),
        "a loop of Python": lambda: sum(value * 3 for value in table),
        "counting in a dictionary": lambda: {value: at for at, value in enumerate(table)},
        "exponentials": lambda: np.exp(large[:300_000]),
    }
    if tf is not None:
        x, product = tf.random.normal((256, 256)), tf.function(lambda x: tf.reduce_sum(tf.nn.relu(x @ x)))
        programs["a function of TensorFlow"] = lambda: product(x).numpy()
        programs["eager ops"] = lambda: [tf.reduce_sum(x * at).numpy() for at in range(4)]
    return programs


def import_if_there(name):
    try:
        return __import__(name)
    except ImportError:
        return None


def recorded_programs():
    """The typical steps of each run of programs that were recorded several times (tests/data)."""
    import profnb
    sys.path[:0] = [str(ROOT / "tests")]
    from recorded import program

    for name in ("once", "twice", "short-sleep", "long-sleep", "without-extra", "with-extra"):
        profiles = [program(f"{name}-{turn}") for turn in range(3)]
        yield name, [estimate_step([profile.steady_step_times[0][0]]).mean for profile in profiles]
    pairs = next((pairs for above in ROOT.parents if (pairs := above / "shared" / "traces" / "gpu-cnn-pairs").exists()), None)
    for name in ("batch32-fp32-global", "batch32-fp32-private") if pairs else ():
        profiles = [profnb.load(pairs / f"{name}-{letter}.xplane.pb") for letter in "ab"]
        yield name, [estimate_step([profile.steady_step_times[0][0]]).mean for profile in profiles]


def runs_differ(runs):
    """Print how far two runs of one program are apart, of programs that ran by turns here and of recorded ones."""
    programs, logs = small_programs(), {}
    for _ in range(runs):
        for name, step in programs.items():
            times = []
            for _ in range(150):
                began = time.perf_counter()
                step()
                times.append(time.perf_counter() - began)
            logs.setdefault(name, []).append(math.log(np.median(times[20:])))
    logs |= dict(recorded_programs())
    apart, weights = [], []
    for name, values in logs.items():
        pairs = [abs(one - two) for at, one in enumerate(values) for two in values[:at]]
        apart, weights = apart + pairs, weights + [1 / len(pairs)] * len(pairs)
        print(f"  {name}: {len(values)} runs vary by {np.std(values, ddof=1):.1%}, two are {max(pairs):.1%} apart at most")
    order = np.argsort(apart)
    share = np.cumsum(np.array(weights)[order]) / sum(weights)
    for wanted in (0.5, 0.8, 0.95):
        print(f"  {wanted:.0%} of pairs of runs are within {np.array(apart)[order][np.searchsorted(share, wanted)]:.1%}, each program counting alike")


CELL = """
    import json, os, sys
    import keras, numpy as np, profnb
    def run(file):
        x, y = np.random.rand(16_000, 64).astype("float32"), np.random.randint(0, 10, 16_000)
        model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        with profnb.profile(label="cell") as p:
            model.fit(x, y, batch_size=32, epochs=2, verbose=0)
        (times, was_traced), = p.steady_step_times
        json.dump({"times": times.tolist(), "traced": was_traced, "load": os.getloadavg()[0]}, open(file, "w"))
        print(file, f"{np.median(times) / 1e9:.2f} ms", flush=True)
    for file in sys.argv[1:]:
        run(file)
"""
RUNS_OF_A_KERNEL = 10


def run_cell(folder, count):
    """Run the cell so many times, as far as it hasn't been, ten times a process; each run leaves its steps, and its row in the history."""
    file = folder / "history.sqlite"
    env = {**os.environ, "PROFNB_HISTORY": str(file), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    (folder / "cell.py").write_text(textwrap.dedent(CELL))
    files = [folder / f"{number}.json" for number in range(count)]
    for first in range(0, count, RUNS_OF_A_KERNEL):
        if missing := [str(one) for one in files[first : first + RUNS_OF_A_KERNEL] if not one.exists()]:
            subprocess.run([sys.executable, str(folder / "cell.py"), *missing], env=env, cwd=folder, check=True)
    return read_runs(file)[:count], [json.loads(one.read_text()) for one in files]


def cell_told(folder, count):
    """What comparisons of one unchanged cell's runs say, one run a side: intervals that hold 1, and claims."""
    rows, seen = run_cell(folder, count)
    sides = [RunSet("cell", (np.array(one["times"]),)) for one in seen]
    known = {}  # each run's steps are resampled once, not for each pair

    def estimated(runs, _):
        if (key := runs[0].tobytes()) not in known:
            known[key] = estimate_step(runs)
        return known[key]

    sys.modules["profnb.compare.speedup"].estimate_step = estimated
    medians, loads = [float(np.median(one["times"])) / 1e9 for one in seen], [one["load"] for one in seen]
    print(f"{count} runs of {len(seen[0]['times'])} steps: {min(medians):.2f} to {max(medians):.2f} ms; their logarithms vary by {np.std(np.log(medians), ddof=1):.1%}")
    print(f"load {min(loads):.1f} to {max(loads):.1f}; correlation of neighbours {np.corrcoef(np.log(medians)[1:], np.log(medians)[:-1])[0, 1]:.2f}")
    random = np.random.default_rng(0)

    def past(one, two, runs):
        others = [at for at in range(count) if at not in (one, two)]
        return [rows[at] for at in sorted(random.choice(others, runs, replace=False))] if runs else []

    ways = {"the steps of both runs alone": None, "nobody": 0, "3 past runs": 3, "10 past runs": 10, "all other runs": count - 2}
    pairs = [(one, two) for two in range(count) for one in range(two)]
    for name, runs in ways.items():
        found = []
        for one, two in pairs:
            spread = None if runs is None else spread_of_runs(past(one, two, runs), rows[0].cell, "cell") or UNKNOWN_SPREAD
            found.append(compare_runs(sides[one], sides[two], spreads=None if runs is None else (spread, spread)))
        print(name, told(found), flush=True)
    found = []
    for two in range(4, count):
        spread = spread_of_runs(rows[: two - 1], rows[0].cell, "cell") or UNKNOWN_SPREAD
        found.append(compare_runs(sides[two - 1], sides[two], spreads=(spread, spread)))
    print("neighbours, by all runs before them", told(found))


def told(found):
    """The rates of comparisons of equal runs; and of the same where B would take 10 % and 30 % longer."""
    held, claims = (np.mean([check(one) for one in found]) for check in (lambda one: one.low <= 1 <= one.high, lambda one: one.is_different))
    seen = [np.mean([(slower := one.times(factor)).is_different and slower.low > 1 for one in found]) for factor in (1.1, 1.3)]
    width = np.median([np.sqrt(one.high / one.low) - 1 for one in found])
    return f"({len(found)} pairs): {held:.1%} hold the truth, {claims:.1%} called different; +-{width:.0%}; 10 % slower found {seen[0]:.0%}, 30 % {seen[1]:.0%}"


def main():
    if sys.argv[1:2] == ["--cell"]:
        (folder := Path(sys.argv[2])).mkdir(parents=True, exist_ok=True)
        cell_told(folder, int(sys.argv[3]) if len(sys.argv) > 3 else 40)
        return
    if sys.argv[1:2] == ["--runs"]:
        runs_differ(int(sys.argv[2]) if len(sys.argv) > 2 else 12)
        return
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
    for past, count, spread in ((3, 1, 0.04), (10, 1, 0.04), (30, 1, 0.04), (10, 2, 0.04), (10, 1, 0.1), (-1, 1, 0), (0, 1, 0), (0, 1, 0.06)):
        rates = [covered(past, count, ratio, spread, max(series // 20, 20), random) for ratio in (1.0, 1.1)]
        known = {0: "nobody knows", -1: "other code tells"}.get(past, f"{past} past runs")
        vary = f"by {spread:.0%}" if spread else "as those of recorded programs do"
        print(f"  {known}, {count} run(s) a side, runs vary {vary}: {np.mean([held for held, _ in rates]):.1%}, {rates[0][1]:.1%}")


if __name__ == "__main__":
    main()
