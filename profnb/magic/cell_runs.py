"""A cell under ``%%tfprofile``: captured, run again as often as asked, compared, shown, its advice tried."""

import ast
import inspect
import linecache
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

from profnb.capture.cell import awaits, body_of, call_after_cell, run_quietly, title_of
from profnb.capture.seams import FAILED_INSIDE, KERNEL, SUCCESS, TRANSFORM_CELL
from profnb.capture.signals import interrupt_held_back
from profnb.capture.source.user_code import outward
from profnb.captured import CapturedProfile
from profnb.comparison import compare
from profnb.core.errors import ProfnbError
from profnb.core.options import CaptureOptions, options_of
from profnb.core.printable import open_output
from profnb.history.door import keep
from profnb.magic.known_results import KnownResults, labels_of, say, write_json
from profnb.magic.magic_options import as_usage_error
from profnb.profile import Profile
from profnb.report.progress import LiveLine, LiveText, Progress, run_words
from profnb.warm import Warming

if TYPE_CHECKING:
    from profnb.compare.trial_table import Trial
    from profnb.edits.editing import Edit
    from profnb.trials.cell_runs_again import CellAgain, CellCode

_FILE_OF_CELL = "<ipython-input-cell>"
_FAILED = "The cell failed, so no edit was tried."
_NO_EDIT = "No advice has a safe edit for this code. Edit by hand, then profile again."
_AWAITS = "A cell with `await` cannot run a second time inside of a cell."


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
    run = partial(run_quietly, shell, shows_errors=False)
    refusal = _AWAITS if awaits(shell, python) else ""
    return CellCode(file or _FILE_OF_CELL, python, shell.user_ns, run, refusal)


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

    def __init__(self, shell: Any, file: str, text: str, warming: Warming) -> None:
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
        profile: Profile,
        count: int,
        seconds: float,
        *,
        anyway: bool = False,
        edits: "Sequence[Edit] | None" = None,
    ) -> "list[Trial]":
        """Try what a profile advises; see ``Profile.try_advice``."""
        from profnb.edits.editing import find_edits
        from profnb.trials.alternating import declined, try_for

        again = None if self._trouble else self._again or self.keep(profile.options)
        self._again = None
        if again is None:
            return [declined(self._trouble)]
        if edits is None:
            edits = find_edits(profile.advice, again.sources, dict(again.namespace))
        chosen = list(edits)[:count]
        if not chosen:
            return [declined(_NO_EDIT)]
        refusals = [] if anyway else again.refusals
        reasons = [" ".join(refusals[:1]) or again.refuse_edit(edit) for edit in chosen]
        tried = [edit for edit, reason in zip(chosen, reasons, strict=True) if not reason]
        now = ["trying"]
        with ExitStack() as stack:
            stack.enter_context(self._warming.paused())
            line = stack.enter_context(closing(LiveLine(lambda: now[0])))
            stack.enter_context(again.left_as_it_was())
            line.start()
            tell = partial(now.__setitem__, 0)
            trials = try_for(profile, tried, again.sources, again.run_once, seconds, tell)
        pairs = zip(chosen, reasons, strict=True)
        return trials + [declined(reason, edit) for edit, reason in pairs if reason]


Show = Callable[[Profile, bool | None], None]


class FailedCellError(Exception):
    """The cell failed and its own traceback has been shown; this one stays silent."""

    def _render_traceback_(self) -> list[str]:
        return []


class CellRuns:
    """Captures cells of one shell.

    Args:
        shell: What runs them.
        results: Where results are found and kept.
        warming: Pauses meanwhile: what compiled then would count as the cell's own time.
        is_live: Whether reports get live controls where the line does not say; None for the default.
    """

    def __init__(
        self,
        shell: Any,
        results: KnownResults,
        warming: Callable[[], Warming],
        is_live: Callable[[], bool | None],
    ) -> None:
        """No cell runs yet."""
        self.shell, self._results = shell, results
        self._warming, self._is_live = warming, is_live
        # What showing the last one and keeping it took: the next one's page cannot tell its own.
        self._shown_ns = 0

    def run(self, arguments: Namespace, cell: str, show: Show) -> None:
        """Run a cell's body for a caller that bypassed the input transformer."""
        captured: CapturedProfile | None = None
        whole = f"%%magic\n{cell}"
        succeeded, error = False, None
        try:
            with interrupt_held_back():
                captured = self._begin(arguments, ("", cell))
            result = self.shell.run_cell(body_of(whole))
            succeeded, error = SUCCESS.of(result, default=True), FAILED_INSIDE.of(result)
        finally:
            if captured is not None:
                self._end(captured, arguments, show, whole, error, succeeded=succeeded)
        if not succeeded:
            raise FailedCellError

    def begin_before_cell(self, arguments: Namespace, show: Show) -> None:
        """Begin to capture the cell that runs; its end is noticed."""

        def cell_ended(cell: str, succeeded: bool, error: BaseException | None) -> None:
            try:
                self._end(captured, arguments, show, cell, error, succeeded=succeeded)
            except KeyboardInterrupt:  # of our own work alone, as the cell is over
                say(
                    "Interrupted while the result was being shown. `%tfprofile _tfprofile` shows the "
                    "captured result."
                )

        with interrupt_held_back():  # until there is somebody to end what was begun
            captured = self._begin(arguments, running_cell(self.shell))
            call_after_cell(self.shell, cell_ended)

    def _begin(self, arguments: Namespace, cell: tuple[str, str]) -> CapturedProfile:
        entered_ns = time.perf_counter_ns()
        with as_usage_error():
            options = options_of(arguments)
        if arguments.vs is not None:
            arguments.vs = self._results.source(arguments.vs), arguments.vs
        captured = CapturedProfile(options)
        arguments.cell = TriedCell(self.shell, *cell, self._warming())
        if arguments.tries:
            arguments.cell.keep(options)
        live = self._is_live() if arguments.live is None else arguments.live
        arguments.is_silent = arguments.quiet or live is False
        text, is_wanted = LiveText(), not arguments.is_silent
        arguments.line = LiveLine(lambda: text(captured.standing()), is_wanted=is_wanted)
        with ExitStack() as stack:
            # What compiled now would count as the cell's own time.
            stack.enter_context(self._warming().paused())
            stack.callback(arguments.line.close)
            arguments.around_ns = time.perf_counter_ns() - entered_ns
            captured.start()
            arguments.line.start()
            arguments.begun = stack.pop_all()
        return captured

    def _end(
        self,
        captured: CapturedProfile,
        arguments: Namespace,
        show: Show,
        cell: str,
        error: BaseException | None,
        *,
        succeeded: bool,
    ) -> None:
        """End the capture and show it; run the cell again, if it succeeded, as often as asked."""
        ended_ns = time.perf_counter_ns()
        with open_output(), arguments.begun:
            profile = captured.profile
            with interrupt_held_back():
                arguments.line.end("reading what was captured")
                self._results.keep(profile, "_tfprofile", arguments.out)
                profile.title = title_of(cell)
                arguments.around_ns += time.perf_counter_ns() - ended_ns
                captured.finish(self.shell.user_ns, error=error)
                arguments.line.close()
                arguments.cell.ended(succeeded=succeeded)
                profile.trying = arguments.cell.try_advice
            sentence = self._repeat(captured, arguments, cell) if succeeded else ""
            if arguments.tries:
                asked = {"seconds": arguments.try_seconds, "anyway": arguments.try_anyway}
                profile.try_advice(arguments.tries, **asked)
            if arguments.label is not None:
                self._results.by_label[arguments.label] = profile
            if arguments.vs is not None and profile.has_trace:
                self._show_against(profile, arguments)
            shows_page = show is Profile.report and not arguments.quiet
            if shows_page:
                took = {"shown_ns": self._shown_ns, "around_ns": arguments.around_ns}
                profile.count_page(as_html=KERNEL.of(self.shell) is not None, **took)
            if not arguments.quiet:
                shown_ns = -time.perf_counter_ns()
                show(profile, arguments.live)
            if sentence:
                say(sentence)
            write_json(profile, arguments)
            if succeeded:
                transform = TRANSFORM_CELL.of(self.shell, str)
                remark = keep(profile, code=transform(body_of(cell)))
                if remark and not arguments.quiet:
                    say(remark)
            if shows_page:
                self._shown_ns = shown_ns + time.perf_counter_ns()

    def _repeat(self, captured: CapturedProfile, arguments: Namespace, cell: str) -> str:
        """Run the cell again as often as asked; say why it was less often, or ""."""
        if arguments.repeat < 2:
            return ""
        body = body_of(cell)
        if awaits(self.shell, body):
            return (
                "The cell awaits something and was run once: cells that await cannot be repeated."
            )
        error: BaseException | None = None
        done = 1
        heads = ("run", "wall time", "latest steps")
        shown = Progress(arguments.repeat, heads, done=1, is_quiet=arguments.is_silent)
        with closing(shown) as progress:
            progress.fill(0, "1, traced", *run_words(captured.profile.recordings[0]))
            try:
                while done < arguments.repeat and error is None:
                    progress.show(done, "")
                    with captured.time_again():
                        error = run_quietly(self.shell, body)
                    done += error is None
                    progress.fill(done - 1, str(done), *run_words(captured.profile.repeats[-1]))
            except KeyboardInterrupt as interrupt:  # between two runs
                error = interrupt
        if error is None:
            return ""
        del captured.profile.repeats[done - 1 :]  # what failed is no run
        ended = f"Run {done + 1} of {arguments.repeat} ended with {type(error).__name__}"
        return f"{ended}; the {done} before it count."

    def _show_against(self, profile: Profile, arguments: Namespace) -> None:
        source, name = arguments.vs
        cell_name = arguments.label or arguments.out or "this cell"
        try:
            comparison = compare(
                source, profile, labels=labels_of([name, cell_name], [source, profile])
            )
        except (ProfnbError, OSError, ValueError) as error:
            say(f"Nothing was compared: {error}")
            return
        self._results.keep(comparison, "_tfcomparison")
        if not arguments.quiet:
            comparison.report()
