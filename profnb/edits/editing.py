"""Advice as edits of the user's source: one for each that certainly fits, and several in one."""

import difflib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from profnb.advice.proposals import Advice
from profnb.capture.source.user_code import file_title, number_cells

if TYPE_CHECKING:
    from profnb.edits.edit_table import Make
    from profnb.edits.program_text import Change, ProgramText
    from profnb.edits.source_text import Piece

NOTHING = "nothing"  # what most edits change in results


@dataclass(frozen=True)
class Edit:
    """A change of the user's source that one piece of advice means, or several.

    Attributes:
        rule: The rule's id.
        change: What changes, as a user would say it: "cache() behind map(decode)".
        alters: What it changes in results: "nothing", "order of rounding".
        sources: The changed text of each source that changes.
        diff: What changes, as a unified diff.
        pieces: The text that is put in, and where.
        is_as_advised: Whether it is what the advice promises a saving for, and no other remedy.
    """

    rule: str
    change: str
    alters: str
    sources: Mapping[str, str]
    diff: str
    pieces: tuple["Piece", ...] = field(default=(), repr=False)
    is_as_advised: bool = True


def find_edits(
    advice: Iterable[Advice], sources: Mapping[str, str], names: Mapping[str, object]
) -> list[Edit]:
    """Make an edit of each piece of advice that has one that certainly fits.

    Args:
        advice: What was advised, in its order.
        sources: The text of each source by the file name that it was compiled with, the cell's first.
        names: The cell's global names, which are only read.
    """
    from profnb.edits.edit_table import EDITS

    program = _read(sources, names)
    if program is None:
        return []
    edits = (_edit(program, one, sources) for one in advice if one.rule in EDITS)
    return [edit for edit in edits if edit is not None]


def join(edits: Sequence[Edit], sources: Mapping[str, str]) -> Edit | None:
    """Make several edits of the same sources one; None where they do not fit together."""
    from profnb.edits.source_text import DoesNotFitError

    program = _read(sources, {})
    if program is None or not edits:
        return None
    words = [", ".join(dict.fromkeys(edit.rule for edit in edits))]
    words += [", ".join(dict.fromkeys(edit.change for edit in edits))]
    words += [_all_altered(what for edit in edits for what in edit.alters.split(", "))]
    try:
        return _made(program, sources, words, [piece for edit in edits for piece in edit.pieces])
    except DoesNotFitError:
        return None


def _all_altered(alters: Iterable[str]) -> str:
    """Join what several edits change in results."""
    return ", ".join(one for one in dict.fromkeys(alters) if one != NOTHING) or NOTHING


def _read(sources: Mapping[str, str], names: Mapping[str, object]) -> "ProgramText | None":
    """Parse all sources that can be; None where the cell itself cannot."""
    from profnb.edits.program_text import ProgramText
    from profnb.edits.source_text import read_source

    texts = [read_source(name, text) for name, text in sources.items()]
    if not texts or texts[0] is None:
        return None
    return ProgramText([text for text in texts if text is not None], names)


def _edit(program: "ProgramText", advice: Advice, sources: Mapping[str, str]) -> Edit | None:
    """The first alternative of the advice's rule of which anything fits."""
    from profnb.edits.edit_table import EDITS
    from profnb.edits.source_text import DoesNotFitError

    for makers in EDITS[advice.rule]:
        asked = [make for word, make in makers if word in advice.code]
        tried = (_change(make, program, advice) for make in asked)
        changes = [change for change in tried if change is not None]
        if not changes:
            continue
        what, alters, pieces = zip(*changes, strict=True)
        words = [advice.rule, " and ".join(what), _all_altered(alters)]
        try:
            edit = _made(program, sources, words, [piece for some in pieces for piece in some])
        except DoesNotFitError:
            continue
        return replace(edit, is_as_advised=all(word for word, _ in makers))
    return None


def _change(make: "Make", program: "ProgramText", advice: Advice) -> "Change | None":
    from profnb.edits.source_text import DoesNotFitError

    try:
        return make(program, advice)
    except (DoesNotFitError, RecursionError):
        return None


def _made(
    program: "ProgramText",
    sources: Mapping[str, str],
    words: Sequence[str],
    pieces: Iterable["Piece"],
) -> Edit:
    from profnb.edits.source_text import fit_together

    ordered = fit_together(pieces)
    changed = {piece.source for piece in ordered}
    texts = {text.name: text.changed(ordered) for text in program.texts if text.name in changed}
    diff = "".join(_diff(name, sources[name], text) for name, text in texts.items())
    rule, change, alters = words
    return Edit(rule, change, alters, texts, diff, tuple(ordered))


def _diff(name: str, before: str, after: str) -> str:
    title = file_title(name, number_cells())
    old, new = (io.StringIO(text, newline="\n").readlines() for text in (before, after))
    made = difflib.unified_diff(old, new, title, f"{title} (edited)")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made
    )
