"""Trials as a section of the report: a row each, and below them the edits as diffs.

The script adds buttons to each diff: they copy it, or the edited cell, or insert that below.
"""

import re
from collections.abc import Sequence

from markupsafe import Markup

from profnb.capture.source.user_code import number_cells
from profnb.compare.trial_table import TRIALS, Trial
from profnb.core.printable import printable, printable_lines
from profnb.core.units import MISSING
from profnb.drawing.section import Bar, Section, Shown, section_of, section_text
from profnb.drawing.theme import CHIP, COLOURS, MUTED

TAB = "Trials"
_LEARNED = "what the training reached as edited, against the code as it is"
_EDIT = Markup(
    '<div style="margin:10px 0"><div><b>{}</b> <span style="{}">{}</span></div>'
    '<code class="profnb-code"{} style="{};display:block;margin:3px 0;padding:4px 8px">{}</code></div>'
)
# By how a line of a diff begins: what both sides are called, and what the edit takes out and puts in.
_LINE_LOOKS = dict.fromkeys(("--- ", "+++ ", "@@"), MUTED) | {
    "-": "background:rgba(248,81,73,0.18)",
    "+": "background:rgba(46,160,67,0.2)",
}
_FIRST_LINE = re.compile(r"(^@@ -1,\d+ \+1,\d+ @@\n) #\n", re.MULTILINE)
_LINE = Markup('<div style="{}">{}</div>')


def trial_sections(trials: Sequence[Trial]) -> list[Section]:
    """Show what was tried; nothing where nothing was."""
    if not trials:
        return []
    said = ["Each edit ran by turns with your code as it is. Variables and files are as before."]
    if any(trial.is_cut for trial in trials):
        said.append("Runs were cut short, so steps are compared. Promises are for the whole cell.")
    section = section_of(
        TRIALS,
        trials,
        (
            Shown("change", lambda row: printable(trials[row].change)),
            Shown("measured", lambda row: _result(trials[row]), meaning=TRIALS["ratio"].meaning),
            Shown("promised", lambda row: trials[row].promise_words()),
            Shown("learned", lambda row: trials[row].metric_words(), meaning=_LEARNED),
            Shown("alters", lambda row: trials[row].alters if trials[row].rule else MISSING),
        ),
        title="Trials",
        tab=TAB,
        sentence=" ".join(said) if any(trial.has_result for trial in trials) else "",
        bar=Bar(lambda row: trials[row].saved_fraction, COLOURS["host compute"]),
        below=Markup("").join(_edit_html(trial) for trial in trials if trial.diff),
    )
    return [section]


def trials_text(trials: Sequence[Trial]) -> str:
    """Write trials as plain text, with their diffs."""
    tables = map(section_text, trial_sections(trials))
    diffs = [printable_lines("".join(_diff_lines(one))) for one in trials if one.diff]
    return "\n\n".join([*tables, *diffs])


def edited_cells(trial: Trial) -> str:
    """The edited text of the notebook's cells, in their order, without our magic's line; "" for none."""
    numbers = number_cells()
    cells = sorted(numbers.keys() & trial.sources.keys(), key=numbers.__getitem__)
    texts = (trial.sources[file].removeprefix("#\n").strip("\n") for file in cells)
    return "\n\n\n".join(texts)


def _result(trial: Trial) -> str:
    return printable(trial.words().replace("`", ""))


def _diff_lines(trial: Trial) -> list[str]:
    """The lines of its diff, with our magic where a comment holds its place."""
    return _FIRST_LINE.sub(r"\1 %%tfprofile\n", trial.diff).splitlines(keepends=True)


def _edit_html(trial: Trial) -> Markup:
    cell = edited_cells(trial)
    data = Markup(' data-cell="{}"').format(cell) if cell else ""
    diff = Markup("").join(_LINE.format(_line_look(line), line) for line in _diff_lines(trial))
    return _EDIT.format(trial.change, MUTED, _result(trial), data, CHIP, diff)


def _line_look(line: str) -> str:
    return next((look for mark, look in _LINE_LOOKS.items() if line.startswith(mark)), "")
