"""Trials that were kept, summed up by rule: what advice promised, beside what was measured."""

import math
from typing import TYPE_CHECKING

from profnb.compare.speedup import Difference
from profnb.compare.trial_table import Trial
from profnb.core.units import count_text, percent_text

if TYPE_CHECKING:
    import pandas as pd

_COUNTED = ("trials", "faster", "inside", "near")
_NO_TRIALS = "No trial has been kept yet. `%%tfprofile --try` over a cell makes some."


def summarize_gains(kept: "pd.DataFrame") -> "pd.DataFrame":
    """Sum up trials by rule, those of several rules together left out.

    Args:
        kept: A row per trial, as ``history.series.kept_trials`` gives them.

    Returns:
        A row per rule, the most tried first: ``rule, trials``; how many of those were ``faster`` for sure,
        had their ratio ``inside`` the promise, or had the promise ``near``, within their interval; the
        medians of ``promised_low, promised_high, ratio``, each of the time that was left.
    """
    rows = kept[(kept["ratio"] > 0) & kept["promised_high"].notna()]
    rows = rows.assign(
        faster=rows["interval_high"] < 1,
        inside=rows["ratio"].between(rows["promised_low"], rows["promised_high"]),
        near=(rows["interval_low"] <= rows["promised_high"])
        & (rows["interval_high"] >= rows["promised_low"]),
        trials=1,
    )
    sums = dict.fromkeys(_COUNTED, "sum")
    medians = dict.fromkeys(("promised_low", "promised_high", "ratio"), "median")
    gains = rows.groupby("rule", as_index=False).agg(sums | medians)
    return gains.sort_values(["trials", "rule"], ascending=[False, True], ignore_index=True)


def gains_text(gains: "pd.DataFrame") -> str:
    """Write what was summed up as a sentence and a table."""
    if not len(gains):
        return _NO_TRIALS
    shown = gains[["rule", *_COUNTED]].copy()
    medians = gains[["promised_low", "promised_high", "ratio"]].itertuples(index=False, name=None)
    typical = [_trial(*row) for row in medians]
    shown.insert(2, "promised", [one.promise_words() for one in typical])
    shown.insert(3, "measured", [one.difference.speed_words()[0] for one in typical])
    trials, faster, inside, near = (int(gains[name].sum()) for name in _COUNTED)
    said = (
        f"In {count_text(inside)} of {count_text(trials)} trials ({percent_text(inside / trials)}) the "
        f"measured change lay within the promise; with its interval in {count_text(near)}. "
        f"{count_text(faster)} edits were faster for sure."
    )
    return f"{said}\n\n{shown.to_string(index=False)}"


def _trial(low: float, high: float, ratio: float) -> Trial:
    """A trial of a rule's medians, for its words."""
    typical = Difference(ratio, math.nan, math.nan, math.nan, (0, 0), (0, 0))
    return Trial("", "", "", "", difference=typical, promised=(low, high))
