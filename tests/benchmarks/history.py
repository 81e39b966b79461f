"""How often the history's alarm is false, how soon it is right, and how often a comparison's interval holds the truth.

python tests/benchmarks/history.py [SERIES]      by simulation; 20,000 series by default, a minute or two

Prints the rates that docs/history.md has: false alarms of steady series of 50 runs, by kind of noise; slow-downs of 10 % at
3 % noise found with the third and the fourth slow run, by how many runs were before them; and of comparisons with one or two
runs a side, whose spread past runs tell, how many intervals hold the truth and how many equal programs are called different.
"""

import math
import sys

import numpy as np

from profnb.compare.estimates import THIS_CODE, UNKNOWN_SPREAD, Spread
from profnb.compare.speedup import RunSet, compare_runs
from profnb.history.change_points import find_changes

NOISE, SLOWER, RUNS = 0.03, 1.1, 50


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


def main():
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
