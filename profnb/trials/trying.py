"""Advice to edits, edits to trials: one by one, then the best together."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from profnb.advice.proposals import Advice
from profnb.compare.estimates import Spread
from profnb.compare.trial_table import Trial
from profnb.edits.editing import Edit, join
from profnb.history.keeping import keep_trials
from profnb.history.lookup import find_spread
from profnb.profile import Profile
from profnb.subjects.study import Study
from profnb.trials.alternating import RunOnce, try_edits, with_promise

_ONE_BY_ONE = 0.7  # of the time, where the best together are tried too


def try_in_order(
    edits: Sequence[Edit],
    join: Callable[[Sequence[Edit]], Edit | None],
    run_once: RunOnce,
    seconds: float,
    *,
    study: Study | None = None,
    spread: Spread | None = None,
    advice: Sequence[Advice] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> list[Trial]:
    """Try edits one by one, then those together that made the code faster.

    Args:
        edits: What to try, in order.
        join: Makes one edit of several; None where they do not fit together.
        run_once: See ``alternating.try_edits``.
        seconds: How long to go on, about.
        study: The captured run; None for none.
        spread: How much its runs vary; None where nobody knows.
        advice: What promised something of the time.
        tell: Is told what is being tried.
    """
    share = _ONE_BY_ONE if len(edits) > 1 else 1.0
    meant = {edit.rule for edit in edits if edit.is_as_advised}
    promised = [one for one in advice if one.rule in meant]
    trials = with_promise(
        try_edits(edits, run_once, share * seconds, study, spread, tell), promised
    )
    best = [edit for edit, trial in zip(edits, trials, strict=True) if trial.is_faster]
    joined = join(best) if len(best) > 1 else None
    if joined is not None and not any("interrupted" in trial.error for trial in trials):
        trials += try_edits([joined], run_once, (1 - share) * seconds, study, spread, tell)
    return trials


def try_for(
    profile: Profile,
    edits: Sequence[Edit],
    sources: Mapping[str, str],
    run_once: RunOnce,
    seconds: float,
    tell: Callable[[str], None],
) -> list[Trial]:
    """Try edits of the sources that a profile is of, and keep what came of it in the history."""
    trials = try_in_order(
        edits,
        partial(join, sources=sources),
        run_once,
        seconds,
        study=profile.study if profile.has_trace else None,
        spread=find_spread(profile),
        advice=profile.advice,
        tell=tell,
    )
    keep_trials(profile, trials)
    return trials


def declined(reason: str, edit: Edit | None = None) -> Trial:
    """A trial that was not made, and why."""
    if edit is None:
        return Trial("", "nothing was tried", "nothing", "", error=reason)
    return Trial(edit.rule, edit.change, edit.alters, edit.diff, error=reason)
