"""How often what a sweep says is true: `python tests/compare/simulate_sweep.py`, sweeps made by a program that knows the truth.

Runs differ by 2 %, the machine drifts by up to a tenth in the course of the sweep and jumps from round to round, and one run in
twenty is disturbed. What is counted, in percent of the sweeps: all bounds of differences to the truly best setting hold
(`covers`, 95 wanted); a setting that is best, or as good, is called surely slower (`wrong`, at most 5); a setting 10 % slower
than the best is told from it (`tells`, the power); the interval of the first setting's own time holds that (`own`, 95 wanted), at the machine's mean speed.
"""

import numpy as np

from profnb.compare.ranking import rank
from profnb.compare.ranking import fit_rounds
from profnb.sweep import run_order

SIGMA = 0.02


def simulate(settings, rounds, *, drift=0.0, jumps=0.0, outliers=0.0, gap=0.0, missing=False, sweeps=1000, seed=0):
    """Fractions (covers, wrong, tells, own) over many sweeps.

    Args:
        settings: How many; the first is best, by `gap` where that is not 0.
        rounds: How often each was run.
        drift: How much slower the machine is at the end (a logarithm).
        jumps: Standard deviation of rounds.
        outliers: How often a run is disturbed: it takes 5 to 20 % longer.
        gap: How much slower all the others are.
        missing: Whether the second setting misses the first round.
        sweeps: How many.
        seed: Of all chance.
    """
    chance = np.random.default_rng(seed)
    truth = np.where(np.arange(settings) == 0, 0.0, gap)
    covered = wrong = told = own = 0
    for number in range(sweeps):
        rows = np.array(list(run_order(settings, rounds, number)))
        block = np.repeat(np.arange(rounds), settings)
        logs = truth[rows] + drift * np.arange(rows.size) / rows.size + chance.normal(0, SIGMA, rows.size)
        logs += chance.normal(0, jumps, rounds)[block] + (chance.random(rows.size) < outliers) * chance.uniform(0.05, 0.2, rows.size)
        kept = ~((rows == 1) & (block == 0)) if missing else slice(None)
        fit = fit_rounds(rows[kept], block[kept], logs[kept], settings)
        ranking = rank(fit, -fit.means)
        lead = [fit.means[0] - fit.means[other] + truth[other] - fit.factor * fit.errors[0, other] for other in range(1, settings)]
        covered += max(lead) <= 0
        wrong += bool((~ranking.may_be_best[truth == 0]).any()) if gap else bool(not ranking.may_be_best[0])
        told += bool(not ranking.may_be_best[-1])
        low, high = fit.interval(0)
        own += low <= drift * (rows.size - 1) / 2 / rows.size + outliers * 0.125 <= high
    return covered / sweeps, wrong / sweeps, told / sweeps, own / sweeps


CASES = {
    "nothing": {},
    "drift": {"drift": 0.1},
    "jumps from round to round": {"jumps": 0.1},
    "outliers": {"outliers": 0.05},
    "all of them": {"drift": 0.1, "jumps": 0.05, "outliers": 0.05},
    "a round is missing": {"drift": 0.1, "jumps": 0.05, "missing": True},
}

if __name__ == "__main__":
    print(f"{'':28} settings rounds covers  wrong    own  tells 10 %")
    for title, case in CASES.items():
        for settings, rounds in ((3, 3), (6, 3), (6, 5), (12, 3)):
            covers, wrong, _, own = simulate(settings, rounds, **case)
            power = simulate(settings, rounds, gap=0.1, sweeps=300, **case)[2]
            print(f"{title:28} {settings:8} {rounds:6} {100 * covers:6.1f} {100 * wrong:6.1f} {100 * own:6.1f} {100 * power:11.0f}", flush=True)
