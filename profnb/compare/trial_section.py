"""Trials as a section of the report: a row each, and below them the edits as diffs to copy."""

from collections.abc import Sequence

from markupsafe import Markup

from profnb.compare.trial_table import TRIALS, Trial
from profnb.core.printable import printable
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import COLOURS, MUTED

TAB = "Trials"
_FASTER_COLOUR, _OTHERS = COLOURS["host compute"], COLOURS["device compute"]
_DIFF = Markup(
    '<div style="{}">{}, alters {}:</div><code class="profnb-code" style="display:block;white-space:pre;'
    'overflow-x:auto;margin:2px 0 8px">{}</code>'
)


def trial_sections(trials: Sequence[Trial]) -> list[Section]:
    """Show what was tried; nothing where nothing was."""
    if not trials:
        return []
    cut = " Each run ended after its first steps." if any(trial.is_cut for trial in trials) else ""
    section = section_of(
        TRIALS,
        trials,
        (
            Shown("change", lambda row: printable(trials[row].change)),
            Shown("measured", lambda row: trials[row].words(), meaning=TRIALS["ratio"].meaning),
            Shown("promised", lambda row: trials[row].promise_words()),
            Shown("learned", lambda row: trials[row].metric_words()),
            Shown("alters", lambda row: printable(trials[row].alters)),
        ),
        title="Trials",
        tab=TAB,
        sentence=f"Each edit ran beside the cell as it is; everything was put back.{cut}",
        bar=Bar(
            lambda row: min(trials[row].difference.ratio, 1.0) if trials[row].is_faster else 0.0,
            lambda row: _FASTER_COLOUR if trials[row].is_faster else _OTHERS,
        ),
        rows=range(len(trials)),
        strip=Markup("").join(
            _DIFF.format(MUTED, trial.change, trial.alters, trial.diff)
            for trial in trials
            if trial.diff
        ),
    )
    return [section]
