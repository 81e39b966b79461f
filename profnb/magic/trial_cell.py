"""A cell of the shell whose advice is tried: ``%%tfprofile --try`` and ``p.try_advice()``."""

import ast
import inspect
import linecache
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

from profnb.capture.cell import awaits, body_of, run_quietly
from profnb.capture.seams import TRANSFORM_CELL
from profnb.capture.source.user_code import outward
from profnb.core.options import CaptureOptions

if TYPE_CHECKING:
    from profnb.compare.trial_table import Trial
    from profnb.edits.editing import Edit
    from profnb.profile import Profile
    from profnb.trials.cell_runs_again import CellAgain, CellCode
    from profnb.warm import Warming

_NAMELESS = "<ipython-input-cell>"
_FAILED = "The cell failed, so no edit was tried."
_AWAITS = "The cell awaits something, so it cannot run again inside of this one."


def running_cell(shell: Any) -> tuple[str, str]:
    """The file and text of the cell that runs, without our magic's line; "" twice where none is found."""
    for frame in outward(inspect.currentframe()):
        file = frame.f_code.co_filename
        if frame.f_globals is shell.user_ns and (lines := linecache.getlines(file)):
            return file, f"#\n{''.join(lines[1:])}"
    return "", ""


def cell_code(shell: Any, file: str, text: str) -> "CellCode":
    """The code of a cell as it can run again: Python alone, also below ``%%time``."""
    from profnb.trials.cell_runs_again import CellCode

    transform = TRANSFORM_CELL.of(shell, str)
    python = text if file else transform(body_of(f"%%magic\n{text}"))
    python = _below_time(python, transform)
    return CellCode(
        file or _NAMELESS,
        python,
        shell.user_ns,
        partial(run_quietly, shell, shows_errors=False),
        _AWAITS if awaits(shell, python) else "",
    )


def _below_time(text: str, transform: Callable[[str], str]) -> str:
    """The lines below ``%%time``, at their place; any other cell as it is."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return text
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return text
    words = [one.value for one in call.args if isinstance(one, ast.Constant)]
    if call.func.attr != "run_cell_magic" or len(words) != 3 or words[0] != "time":
        return text
    return "\n" * body[0].lineno + transform(str(words[2]))


class TriedCell:
    """A cell whose advice can be tried, now or later.

    Args:
        shell: What runs it.
        file: The file that it is compiled as; "" where that is not known.
        text: Its text, without our magic's line.
        warming: Pauses meanwhile.
    """

    def __init__(self, shell: Any, file: str, text: str, warming: "Warming") -> None:
        """Keep nothing yet."""
        self._shell, self._file, self._text = shell, file, text
        self._warming = warming
        self._again: CellAgain | None = None
        self._trouble = ""

    def keep(self, options: CaptureOptions) -> "CellAgain | None":
        """Keep what the cell can change, before it runs or, at the latest, before a trial."""
        from profnb.trials.cell_runs_again import CellAgain

        try:
            code = cell_code(self._shell, self._file, self._text)
            self._again = CellAgain(code, options)
        except Exception as error:  # noqa: BLE001 - whatever objects do, the user's code comes first
            self._trouble = f"What the cell reads cannot be kept ({type(error).__name__}: {error})."
        return self._again

    def ended(self, *, succeeded: bool) -> None:
        """Keep what the cell left behind, if it is to be tried at once."""
        try:
            if not succeeded:
                self._trouble = _FAILED
            elif self._again is not None:
                self._again.cell_ended()
        except Exception as error:  # noqa: BLE001 - likewise
            self._trouble = f"What the cell left cannot be kept ({type(error).__name__}: {error})."

    def try_advice(
        self,
        profile: "Profile",
        count: int,
        seconds: float,
        *,
        anyway: bool = False,
        edits: "Sequence[Edit] | None" = None,
    ) -> "list[Trial]":
        """Try what a profile advises; see ``Profile.try_advice``."""
        from profnb.edits.editing import find_edits
        from profnb.report.progress import LiveLine
        from profnb.trials.trying import declined, try_for

        again = None if self._trouble else self._again or self.keep(profile.options)
        self._again = None
        if again is None:
            return [declined(self._trouble)]
        if edits is None:
            edits = find_edits(profile.advice, again.sources, dict(again.namespace))
        chosen = list(edits)[:count]
        if not chosen:
            return [declined("No advice has an edit that surely fits this code.")]
        refusals = [] if anyway else again.refusals
        reasons = [" ".join(refusals[:1]) or again.refuse_edit(edit) for edit in chosen]
        tried = [edit for edit, reason in zip(chosen, reasons, strict=True) if not reason]
        now = ["trying"]
        with ExitStack() as stack:
            stack.callback(self._warming.go_on)
            self._warming.pause()
            line = stack.enter_context(closing(LiveLine(lambda: now[0])))
            stack.enter_context(again.left_as_it_was())
            line.start()
            tell = partial(now.__setitem__, 0)
            trials = try_for(profile, tried, again.sources, again.run_once, seconds, tell)
        pairs = zip(chosen, reasons, strict=True)
        return trials + [declined(reason, edit) for edit, reason in pairs if reason]
