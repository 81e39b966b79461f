"""What a sweep can tell and what it cannot, in sentences: ties, what more rounds would show, its power."""

import math
from collections.abc import Mapping, Sequence

from profnb.capture.switches import BACKEND
from profnb.compare.best_setting import MOST_ROUNDS, Ranking
from profnb.compare.rounds import RoundFit
from profnb.core.units import count_text

_TIE, _MOST_NAMED, _LONGEST = math.log(1.02), 3, 60
_ALWAYS = 1e-4  # a difference below which nothing was left to chance


def ranking_notes(labels: Sequence[str], ranking: Ranking | None, fit: RoundFit) -> list[str]:
    """Sentences of settings that may be as fast as the fastest one, and of what such a sweep shows.

    Args:
        labels: What each setting is called.
        ranking: How they stand; None where none has a run.
        fit: Their times.
    """
    if ranking is None or fit.rounds < 2 or int(fit.is_timed.sum()) < 2:
        return []
    others = [int(row) for row in ranking.may_be_best.nonzero()[0] if row != ranking.best]
    notes = []
    ties = [row for row in others if ranking.high[row] <= _TIE]
    if ties:
        most = max(float(ranking.high[row]) for row in ties)
        notes.append(
            f"A tie: {_listed(labels, ties)} {'is' if len(ties) == 1 else 'are'} at most "
            f"{slower_text(most)} slower than {labels[ranking.best][:_LONGEST]}, if at all."
        )
    open_rows = [row for row in others if row not in ties]
    more = [int(ranking.more_rounds[row]) for row in open_rows]
    separable_rows = [row for row, rounds in zip(open_rows, more, strict=True) if rounds > 0]
    if separable_rows:
        rounds = max(int(ranking.more_rounds[row]) for row in separable_rows)
        notes.append(
            f"{count_text(rounds)} more round{'s' if rounds > 1 else ''} would tell "
            f"{_listed(labels, separable_rows)} from the fastest, four times of five, if the "
            "difference is what it looks like now (--repeat)."
        )
    close = [row for row, rounds in zip(open_rows, more, strict=True) if rounds < 0]
    if close:
        notes.append(
            f"{_listed(labels, close)}: so close to the fastest that {MOST_ROUNDS} more rounds would not "
            "tell."
        )
    if math.isfinite(ranking.shows) and ranking.shows > _ALWAYS:
        notes.append(
            f"These {fit.rounds} rounds show a difference to the fastest of {slower_text(ranking.shows)} "
            "four times of five. All differences hold at once in 95 % of such sweeps; what whole rounds have "
            "in common does not count."
        )
    return notes


def seed_note(
    settings: Sequence[Mapping[str, object]], learned: Sequence[Sequence[float]], metric: str | None
) -> str:
    """That what backends learned is one draw each, in a sentence; "" where it is not.

    Args:
        settings: What was set.
        learned: The metric's last value in each run of each setting.
        metric: Its name.
    """
    backends = {
        setting.get(BACKEND) for setting, runs in zip(settings, learned, strict=True) if runs
    }
    if len(backends) < 2 or not any(len(runs) > 1 and len(set(runs)) == 1 for runs in learned):
        return ""
    return (
        "Every run of a backend learned exactly the same: the cell sets a seed. Of one seed each backend "
        f"makes other random numbers, so how they differ in {metric} may be chance, and is not weighed."
    )


def slower_text(log: float) -> str:
    """How much slower a difference of logarithms is."""
    value = 100 * (1 - math.exp(-log))
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def _listed(labels: Sequence[str], rows: Sequence[int]) -> str:
    named = [labels[row][:_LONGEST] for row in rows[:_MOST_NAMED]]
    if len(rows) > _MOST_NAMED:
        named.append(f"{len(rows) - _MOST_NAMED} others")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
