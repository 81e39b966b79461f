"""The magics: parse, capture or load, show. No logic of their own."""

import keyword
import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import parse_argstring
from traitlets import Bool

from profnb.capture.cell import (
    as_written,
    body_of,
    call_after_cell,
    make_transformer,
    run_quietly,
)
from profnb.capture.hooks import replace_attribute
from profnb.capture.profiler.held_back import interrupt_held_back
from profnb.capture.profiler.remote import SCHEME
from profnb.capture.seams import TRACEBACK
from profnb.captured import CapturedProfile
from profnb.comparison import compare
from profnb.core.errors import ProfnbError
from profnb.core.printable import printable
from profnb.drawing.live_outputs import LiveOutputs
from profnb.lite.result import LiteResult
from profnb.loading import load
from profnb.magic_options import (
    CAPTURE_ARGUMENTS,
    COMPARE_ARGUMENTS,
    LITE_ARGUMENTS,
    OPEN_ARGUMENTS,
    SWEEP_ARGUMENTS,
    capture_options,
    with_arguments,
)
from profnb.profile import Profile
from profnb.report.running.live_line import LiveLine
from profnb.report.running.live_text import LiveText, run_words
from profnb.report.running.progress import Progress
from profnb.several.fleet_loading import find_fleet
from profnb.several.fleets import Fleet
from profnb.warm import Warming

Show = Callable[[Profile, bool | None], None]

__all__ = ["ProfnbMagics", "load_magics", "unload_magics"]


_CELL_MAGICS = ("tfprofile", "tftimeline")


def _say(sentence: str) -> None:
    from profnb.report.frontend import (
        show_sentence,  # only now: loading the extension takes no time
    )

    show_sentence(sentence)


class _FailedCellError(Exception):
    """The cell failed and its own traceback has been shown; this one stays silent."""

    def _render_traceback_(self) -> list[str]:
        return []


@magics_class
class ProfnbMagics(Magics):
    """``%%tfprofile`` and ``%%tftimeline``, ``%tfprofile`` and ``%tftimeline``."""

    live = Bool(
        None, allow_none=True, help="Whether reports get live controls; by default not in Colab."
    ).tag(config=True)

    def __init__(self, shell: Any) -> None:
        """Register with a shell and begin compiling in the background."""
        super().__init__(shell)
        self._warming = Warming()
        self._written: dict[str, str] = {}  # the magics' lines, by what stands in their place
        self._transform = make_transformer(_CELL_MAGICS, shell.user_ns, self._written)
        self.hooked = ExitStack()
        self._hook_tracebacks()
        self._kept: dict[str, Profile] = {}  # by their labels
        self.live_outputs = LiveOutputs(shell)

    def _hook_tracebacks(self) -> None:
        """Let tracebacks show the magic's line as it was written."""
        tracebacks = getattr(self.shell, "InteractiveTB", None)
        shown = TRACEBACK.of(tracebacks)
        if shown is None:
            return

        def structured_traceback(*arguments: Any, **keywords: Any) -> Any:
            pieces = shown(*arguments, **keywords)
            if not isinstance(pieces, list) or not self._written:
                return pieces
            return [
                as_written(one, self._written) if isinstance(one, str) else one for one in pieces
            ]

        name = TRACEBACK.attributes[0]
        self.hooked.enter_context(replace_attribute(tracebacks, name, structured_traceback))

    def _begin(self, arguments: Namespace) -> CapturedProfile:
        options = capture_options(arguments)
        _check_name(arguments.out)
        if arguments.vs is not None:
            arguments.vs = self._source(arguments.vs), arguments.vs
        captured = CapturedProfile(options)
        live = self.live if arguments.live is None else arguments.live
        arguments.is_silent = arguments.quiet or live is False
        text = LiveText()
        arguments.line = LiveLine(
            lambda: text(captured.standing()), is_wanted=not arguments.is_silent
        )
        self._warming.pause()  # what compiled now would count as the cell's own time
        try:
            captured.start()
            arguments.line.start()
        except BaseException:
            arguments.line.close()
            self._warming.go_on()
            raise
        return captured

    def _end(
        self, captured: CapturedProfile, arguments: Namespace, show: Show, cell: str | None
    ) -> None:
        """End the capture and show it; ``cell`` is what to run again, None if it failed."""
        try:
            self._finish(captured, arguments, show, cell)
        finally:
            arguments.line.close()
            self._warming.go_on()

    def _finish(
        self, captured: CapturedProfile, arguments: Namespace, show: Show, cell: str | None
    ) -> None:
        profile = captured.profile
        with interrupt_held_back():
            arguments.line.end("reading what was captured")
            self.shell.user_ns["_tfprofile"] = profile
            if arguments.out is not None:
                self.shell.user_ns[arguments.out] = profile
            captured.finish(self.shell.user_ns)
            arguments.line.close()
        sentence = self._repeat(captured, arguments, cell) if cell is not None else ""
        if arguments.label is not None:
            self._kept[arguments.label] = profile
        if arguments.vs is not None and profile.has_trace:
            self._show_against(profile, arguments)
        if not arguments.quiet:
            show(profile, arguments.live)
        if sentence:
            _say(sentence)
        _write_json(profile, arguments)

    def _repeat(self, captured: CapturedProfile, arguments: Namespace, cell: str) -> str:
        """Run the cell again as often as asked; why it was less often, or ""."""
        if arguments.repeat < 2:
            return ""
        body = body_of(cell)
        if self.shell.should_run_async(body, transformed_cell=self.shell.transform_cell(body)):
            return "The cell awaits something, so it was run once: such a cell cannot be repeated."
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
        own = arguments.label or arguments.out or "this cell"
        try:
            comparison = compare(source, profile, labels=_labels([name, own], [source, profile]))
        except (ProfnbError, OSError, ValueError) as error:
            _say(f"Nothing was compared: {error}")
            return
        self.shell.user_ns["_tfcomparison"] = comparison
        if not arguments.quiet:
            comparison.report()

    def _source(self, name: str) -> Any:
        """What to compare: a result or a list of them by its label or name, or a path that exists."""
        found = self._kept.get(name, self.shell.user_ns.get(name))
        if found is not None and not isinstance(found, str | os.PathLike):
            listed = [found] if isinstance(found, Profile) else found
            if isinstance(listed, Sequence) and all(isinstance(one, Profile) for one in listed):
                return found
            if isinstance(found, LiteResult):
                return found
            raise UsageError(
                f"{name!r} is a {type(found).__name__}, not a profile or a list of them."
            )
        path = Path(found or name).expanduser()
        if not path.exists():
            known = printable(", ".join(self._kept)) or "none"
            raise UsageError(f"There is no result, label or path {name!r} (labels: {known}).")
        return path

    def _run_cell(self, arguments: Namespace, cell: str, show: Show) -> None:
        """Run a cell's body for a caller that bypassed the input transformer."""
        captured: CapturedProfile | None = None
        whole = f"%%magic\n{cell}"
        succeeded = False
        try:
            with interrupt_held_back():
                captured = self._begin(arguments)
            result = self.shell.run_cell(body_of(whole))
            succeeded = result.success
        finally:
            if captured is not None:
                self._end(captured, arguments, show, whole if succeeded else None)
        if not succeeded:
            raise _FailedCellError

    def _begin_before_cell(self, arguments: Namespace, show: Show) -> None:
        with interrupt_held_back():  # until there is somebody to end what was begun
            captured = self._begin(arguments)
            call_after_cell(
                self.shell, lambda cell: self._end_after_cell(captured, arguments, show, cell)
            )

    def _end_after_cell(
        self, captured: CapturedProfile, arguments: Namespace, show: Show, cell: str | None
    ) -> None:
        """End the capture; the cell is over, so an interrupt has only our own work to end."""
        try:
            self._end(captured, arguments, show, cell)
        except KeyboardInterrupt:
            _say(
                "Interrupted while the result was being shown; what was captured is in `_tfprofile`, and "
                "`%tfprofile _tfprofile` shows it."
            )

    @no_var_expand
    @line_magic("_tfprofile_begin")
    def _begin_tfprofile(self, line: str) -> None:
        """What the input transformer writes in place of ``%%tfprofile``."""
        self._begin_before_cell(parse_argstring(self.tfprofile_cell, line), Profile.report)

    @no_var_expand
    @line_magic("_tftimeline_begin")
    def _begin_tftimeline(self, line: str) -> None:
        """What the input transformer writes in place of ``%%tftimeline``."""
        self._begin_before_cell(parse_argstring(self.tftimeline_cell, line), Profile.timeline)

    @no_var_expand
    @cell_magic("tfprofile")
    @with_arguments(*CAPTURE_ARGUMENTS)
    def tfprofile_cell(self, line: str, cell: str) -> None:
        """Profile the TensorFlow work of this cell and show where its time went.

        The cell runs exactly as without this line. Keras' fit, evaluate and predict and loops over a
        tf.function are divided into steps by themselves; mark others with `with profnb.step(i):`.
        The last result is also in `_tfprofile`.
        """
        self._run_cell(parse_argstring(self.tfprofile_cell, line), cell, Profile.report)

    @no_var_expand
    @cell_magic("tftimeline")
    @with_arguments(*CAPTURE_ARGUMENTS)
    def tftimeline_cell(self, line: str, cell: str) -> None:
        """Show the timeline of this cell's TensorFlow work: threads, streams, events, steps.

        The cell runs and is captured as with %%tfprofile; press ? in the timeline for its keys.
        """
        self._run_cell(parse_argstring(self.tftimeline_cell, line), cell, Profile.timeline)

    @line_magic("tfprofile")
    @with_arguments(*OPEN_ARGUMENTS)
    def tfprofile_line(self, line: str) -> None:
        """Show the report of a saved trace, or of a result again."""
        arguments = _parse_open(self.tfprofile_line, line)
        self._open(arguments, is_fleet=True).report(arguments.live)

    @line_magic("tftimeline")
    @with_arguments(*OPEN_ARGUMENTS)
    def tftimeline_line(self, line: str) -> None:
        """Show the timeline of a saved trace, or of an earlier result."""
        arguments = _parse_open(self.tftimeline_line, line)
        opened = self._open(arguments, is_fleet=True)
        if isinstance(opened, LiteResult):
            raise UsageError("LiteRT models have no timeline; %tfprofile shows the result.")
        opened.timeline(arguments.live)

    @line_magic("tfcompare")
    @with_arguments(*COMPARE_ARGUMENTS)
    def tfcompare_line(self, line: str) -> None:
        """Compare results with the first: how much faster, how sure, and where it comes from.

        Repeat the cells (--repeat 5), or give lists of profiles, for an interval that holds from run to run.
        """
        arguments = parse_argstring(self.tfcompare_line, line)
        if len(arguments.what) < 2:
            raise UsageError("%tfcompare takes two results or more.")
        sources = [self._source(name) for name in arguments.what]
        results = []
        for at in range(1, len(sources)):
            pair = [arguments.what[0], arguments.what[at]], [sources[0], sources[at]]
            try:
                results.append(compare(*pair[1], labels=_labels(*pair)))
            except (ProfnbError, OSError, ValueError) as error:
                raise UsageError(printable(str(error))) from None
        if arguments.out is not None:
            self.shell.user_ns[arguments.out] = results if len(results) > 1 else results[0]
        for result in [] if arguments.quiet else results:
            result.report()

    @no_var_expand
    @cell_magic("tfsweep")
    @with_arguments(*SWEEP_ARGUMENTS)
    def tfsweep_cell(self, line: str, cell: str) -> None:
        """Run this cell once per combination of settings and show which is fastest, and at what cost.

        For example `%%tfsweep batch_size=32,64,128 jit_compile=False,True --repeat 3`. The cell's own output
        is hidden. The last sweep is in `_tfsweep`, its profiles in `_tfsweep.profiles`.
        """
        arguments = parse_argstring(self.tfsweep_cell, line)
        _check_name(arguments.out)
        from profnb.sweep_magic import sweep_cell

        self._warming.pause()
        try:
            sweep = sweep_cell(self.shell, arguments, cell)
        finally:
            self._warming.go_on()
        self.shell.user_ns["_tfsweep"] = sweep
        if arguments.out is not None:
            self.shell.user_ns[arguments.out] = sweep.table
        if not any(sweep.profiles):
            raise _FailedCellError

    @line_magic("tflite")
    @with_arguments(*LITE_ARGUMENTS)
    def tflite_line(self, line: str) -> None:
        """Convert a model to LiteRT (TensorFlow Lite) and show what each kind costs and gains.

        For example `%tflite model --data x_test y_test`. The last result is also in `_tflite`.
        """
        arguments = parse_argstring(self.tflite_line, line)
        _check_name(arguments.out)
        from profnb.lite_magic import lite_line

        self._warming.pause()
        try:
            lite_line(self.shell, arguments)
        finally:
            self._warming.go_on()

    def _open(self, arguments: Namespace, *, is_fleet: bool = False) -> Any:
        """The result of this name, or the trace at this path; all hosts of it where that is wanted."""
        profile: Any = self._kept.get(arguments.what, self.shell.user_ns.get(arguments.what))
        kinds = Profile | LiteResult | Fleet if is_fleet else Profile | LiteResult
        if not isinstance(profile, kinds):
            try:
                profile = _load(arguments, is_fleet=is_fleet)
            except (ProfnbError, OSError, ValueError) as error:
                raise UsageError(printable(str(error))) from None
            is_whole = arguments.run is None and arguments.host is None
            if is_whole and isinstance(profile, Profile):
                profile.opened_as = arguments.what
        if arguments.out is not None:
            self.shell.user_ns[arguments.out] = profile
        if isinstance(profile, Profile):
            _write_json(profile, arguments)
        return profile


def _load(arguments: Namespace, *, is_fleet: bool) -> Profile | Fleet:
    """What a path, a URL or the addresses of running processes give."""
    if is_fleet and arguments.what.startswith(SCHEME):
        from profnb.several.tracing_remotely import trace_remotely

        return trace_remotely(arguments.what, arguments.seconds)
    if is_fleet and arguments.host is None:
        fleet = find_fleet(arguments.what, arguments.run)
        if fleet is not None:
            return fleet
    return load(arguments.what, run=arguments.run, host=arguments.host)


def _parse_open(magic: Any, line: str) -> Namespace:
    """The arguments of a line magic, which opens; whoever gives it only options meant the cell's."""
    try:
        arguments: Namespace = parse_argstring(magic, line)
    except UsageError as error:
        if line and not line.lstrip().startswith("-"):
            raise
        name = magic.__name__.removesuffix("_line")
        asked = f"%%{name} {line}".rstrip()
        raise UsageError(
            f"%{name} shows a saved trace, or a result again ({error}). To profile a cell, its "
            f"first line is: {asked}"
        ) from None
    return arguments


def _check_name(name: str | None) -> None:
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"-o takes a variable name, got {name!r}.")


def _labels(names: list[str], sources: list[Any]) -> tuple[str | None, str | None]:
    """What to call two results: labels where they have different ones, else names; None for saved traces."""
    own = [getattr(getattr(source, "options", None), "label", None) for source in sources]
    if own[0] == own[1]:
        own = [None, None]
    first, second = (
        label or (None if isinstance(source, Path) else name)
        for label, source, name in zip(own, sources, names, strict=True)
    )
    return first, second


def _write_json(profile: Any, arguments: Namespace) -> None:
    """Write the Chrome trace where it was asked for; a file that cannot be written is one sentence."""
    if arguments.json is None or not getattr(profile, "has_trace", False):
        return
    try:
        profile.to_chrome_trace(arguments.json)
    except OSError as error:
        _say(f"The Chrome trace was not written: {error}")


def load_magics(shell: Any) -> None:
    """Register the magics; loading twice changes nothing."""
    if "ProfnbMagics" in shell.magics_manager.registry:
        return
    magics = ProfnbMagics(shell)
    shell.register_magics(magics)
    shell.input_transformers_cleanup.append(magics._transform)


def unload_magics(shell: Any) -> None:
    """Take back what ``load_magics`` did."""
    magics = shell.magics_manager.registry.pop("ProfnbMagics", None)
    if magics is None:
        return
    shell.input_transformers_cleanup.remove(magics._transform)
    magics.live_outputs.end()
    magics.hooked.close()
    for kind, names in magics.magics.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
